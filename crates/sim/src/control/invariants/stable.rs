//! CHAIN-3: what a tail answered is stable at every member of that epoch.
//!
//! An update passes every server before the tail answers it, so whichever of them is left has it (van Renesse and
//! Schneider 2004, section 3); here each must have it on its disk, as safe as the policy says.

use hoplo_wire::control::{Record, ReplicaId, ShardId};

use crate::control::world::World;

impl World {
    /// Acknowledged here, so on the disk of every member of that configuration, but for those that a
    /// newer one left out: they may have come back, and dropped what they did not know to be committed.
    pub fn check_stable_everywhere(&mut self, id: ReplicaId, shard: ShardId, index: u64) {
        if !self.rng.one_in(8) {
            return;
        }
        let config = self.process(id).and_then(|it| it.held[&shard].replica.config());
        // Who was just promoted is not relied on before it has acted.
        let config = config.expect("it answers");
        let added = config.added.map(|(who, _)| who);
        let newest =
            self.store.config().and_then(|it| it.shards.iter().find(|it| it.shard == shard));
        let newest = newest.expect("a replica was told of it").members.clone();
        // What a machine without power or a new disk lost is not asked for: the others have it.
        let lost = |who: ReplicaId| who.incarnation <= self.hosts[&who.node.0].lost;
        let counts =
            |who| Some(who) != added && newest.iter().any(|it| it.replica == who) && !lost(who);
        let members: Vec<_> =
            config.members.iter().filter(|it| counts(it.replica)).cloned().collect();
        for member in members {
            let Some(disk) = self.hosts[&member.replica.node.0].disks.get(&shard) else {
                panic!("CHAIN-3: {member:?} has no disk of {shard:?}");
            };
            let has = disk.safe_records().iter().any(|record| match record.as_ref() {
                Record::Entry(entry) => entry.index == index,
                Record::Chunk(chunk) => chunk.as_of >= index,
            });
            assert!(has, "CHAIN-3: {id:?} acknowledged {index}, which {member:?} may lose");
        }
    }
}
