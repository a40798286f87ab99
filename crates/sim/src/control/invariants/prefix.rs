//! CHAIN-1: a member's log is a prefix of its predecessor's, as far as it counts: what any replica applied is one
//! history, the same entry at each index for ever.
//!
//! This is chain replication's *Update Propagation Invariant* (van Renesse and Schneider 2004, section 3). The history is
//! learnt from whoever applies an entry first (`truth`); everybody else has to agree.

use hoplo_wire::control::{Record, ReplicaId, ShardId};

use crate::control::world::World;

impl World {
    pub fn check_prefix(&mut self, id: ReplicaId, shard: ShardId) {
        let host = self.hosts.get_mut(&id.node.0).expect("a host");
        let process = host.process.as_mut().expect("it acts");
        let held = process.held.get_mut(&shard).expect("it holds that");
        let applied = held.replica.status().applied;
        let truth = self.truths.get_mut(&shard).expect("a shard");
        let known = held.log.range(..=applied).filter_map(|(_, record)| match record.as_ref() {
            Record::Entry(entry) => Some(entry),
            Record::Chunk(_) => None,
        });
        known.for_each(|entry| truth.learn(entry));
        held.log = held.log.split_off(&(applied + 1));
    }
}
