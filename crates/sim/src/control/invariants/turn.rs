//! CHAIN-7: nobody acts in an epoch before the member in front of it does.
//!
//! When a server in the middle goes, the one before it first hands over what was underway to the one behind it (van
//! Renesse and Schneider 2004, section 3): the first word of an epoch goes down the chain, one member
//! after the other.

use hoplo_wire::control::{ReplicaId, ShardId};

use crate::control::world::World;

impl World {
    pub fn check_turn(&mut self, id: ReplicaId, shard: ShardId) {
        let replica = &self.process(id).expect("it acts").held[&shard].replica;
        if !replica.acting() {
            return;
        }
        let config = replica.config().expect("who acts was told of a configuration");
        let epoch = config.epoch;
        if self.acted.get(&(shard, id)) == Some(&epoch) {
            return;
        }
        let place = config.members.iter().position(|member| member.replica == id);
        if let Some(before) = place.expect("only a member acts").checked_sub(1) {
            let before = config.members[before].replica;
            let acted = self.acted.get(&(shard, before));
            assert!(
                acted >= Some(&epoch),
                "CHAIN-7: {id:?} acts in {epoch:?}, {before:?} only in {acted:?}"
            );
        }
        self.acted.insert((shard, id), epoch);
    }
}
