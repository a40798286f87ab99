//! CHAIN-2: applied <= committed <= stable here <= logged, at every replica, and nothing is applied that nobody
//! committed.
//!
//! The paper's servers have no disk: what it keeps as sent and not yet known to be at the tail (van Renesse and
//! Schneider 2004, section 3, the *Inprocess Requests Invariant*) is what is logged and not applied here.

use hoplo_wire::control::{ReplicaId, ShardId};

use crate::control::world::World;

impl World {
    pub fn check_order(&self, id: ReplicaId, shard: ShardId) {
        let status = self.process(id).expect("it acts").held[&shard].replica.status();
        assert!(status.stable <= status.logged, "CHAIN-2: {status:?}");
        // While a base is on its way to the disk, its entries are applied already.
        let last = self.truths[&shard].last();
        assert!(status.applied <= last, "CHAIN-2: {id:?} applied {} of {last}", status.applied);
    }
}
