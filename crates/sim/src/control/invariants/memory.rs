//! Memory is bounded: rows by their cap, recent entries by theirs, and what is underway by a constant.

use hoplo_wire::control::{ReplicaId, ShardId};

use crate::control::world::World;

const UNDERWAY_BYTES: u64 = 1 << 20;

impl World {
    pub fn check_memory(&self, id: ReplicaId, shard: ShardId) {
        let status = self.process(id).expect("it acts").held[&shard].replica.status();
        let bytes = status.memory_bytes + status.history_bytes + status.cold_bytes;
        let most = self.plan.memory_bytes + self.plan.recent_bytes + UNDERWAY_BYTES;
        assert!(bytes <= most, "{id:?} holds {bytes} bytes, at most {most} may be: {status:?}");
    }
}
