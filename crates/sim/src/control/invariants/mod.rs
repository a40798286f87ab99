//! What must hold, one file for each invariant. They look at the world from outside: at disks, answers and
//! what was applied, not at what a machine believes. (CONF-1 is in `store`; the coordinator checks CONF-2 to CONF-4
//! itself.)

mod equal;
pub mod feed;
pub mod linear;
mod memory;
pub mod once;
mod one_tail;
mod order;
mod prefix;
mod stable;
pub mod truth;
mod turn;

use hoplo_wire::control::{ReplicaId, ShardId};

use super::world::World;

impl World {
    /// A replica has just done something.
    pub fn observe(&mut self, id: ReplicaId, shard: ShardId) {
        self.check_prefix(id, shard);
        self.check_order(id, shard);
        self.check_turn(id, shard);
        self.check_memory(id, shard);
        self.check_one_tail(id, shard);
        if self.rng.one_in(32) {
            self.check_equal(id, shard);
        }
    }
}
