//! CHAIN-6: at any time at most one replica of a shard answers queries as tail.
//!
//! The paper's servers fail by stopping, and that is seen (van Renesse and Schneider 2004), so its old tail is
//! silent. Here it may live on behind a cut, with a lease and a clock of its own: this looks at all
//! replicas at one moment, each by its own clock.

use hoplo_wire::control::{ReplicaId, ShardId};

use crate::control::world::World;

impl World {
    pub fn check_one_tail(&self, id: ReplicaId, shard: ShardId) {
        let me = self.process(id).expect("it acts");
        if !me.held[&shard].replica.answers(me.clock.reads(self.now)) {
            return;
        }
        for host in self.hosts.values() {
            let Some(process) = host.process.as_ref().filter(|it| it.id != id && !it.paused) else {
                continue;
            };
            let Some(held) = process.held.get(&shard) else { continue };
            assert!(
                !held.replica.answers(process.clock.reads(self.now)),
                "CHAIN-6: both {id:?} and {:?} answer queries\n{:?}\n{:?}",
                process.id,
                held.replica.config(),
                self.process(id).expect("it answers").held[&shard].replica.config()
            );
        }
    }
}
