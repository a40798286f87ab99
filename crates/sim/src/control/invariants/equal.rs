//! CHAIN-5: two replicas that have applied the same index have equal rows.
//!
//! Both are what a naive table makes of the history: an object's value follows from its history alone (van Renesse and
//! Schneider 2004, section 2). What is archived is compared where it is read (`truth`).

use hoplo_core::control::tables::Covered;
use hoplo_wire::control::{ReplicaId, ShardId};

use crate::control::world::World;

impl World {
    pub fn check_equal(&self, id: ReplicaId, shard: ShardId) {
        let replica = &self.process(id).expect("it acts").held[&shard].replica;
        let truth = &self.truths[&shard];
        // Chunks of a base are rows as of entries that the giver applied.
        let base = replica.tables().covered() == &Covered::All;
        if base && replica.status().applied == truth.last() {
            let rows = replica.tables().range(None);
            assert!(rows.eq(truth.rows.iter()), "CHAIN-5: {id:?} differs from the history");
        }
    }
}
