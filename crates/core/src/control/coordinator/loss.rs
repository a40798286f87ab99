//! A shard whose disks are gone: what is left of it, and an operator who has it go on with that.
//!
//! By itself a chain waits for ever for a member that had all that was acknowledged (CONF-2): the coordinator cannot know
//! whether a disk is gone or a machine is off. An operator can. The wish names the epoch that it is about, so that it
//! never says anything about a chain that went on meanwhile. Who goes on ends all sessions of clients, and clients
//! forget how far they had read: `ChainConfig::history` tells both.

use hoplo_base::Instant;
use hoplo_wire::control::{ChainConfig, ClusterConfig, Epoch, Member, ReplicaId, ShardId, Wish};

use super::{Coordinator, Known, Standing};

/// A shard that waits for disks, and what there is without them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    pub shard: ShardId,
    /// The last one that had a living member with everything.
    pub epoch: Epoch,
    /// Who would go on. Absent: no process runs that could.
    pub left: Option<Left>,
    /// Members that are not proven to be gone. If one of them runs somewhere, what it acknowledges is lost, too.
    pub silent: Vec<ReplicaId>,
}

/// What the one that would go on has on its disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    pub member: Member,
    /// Epoch and index of its last entry; absent: it has nothing.
    pub last: Option<(Epoch, u64)>,
}

impl Coordinator {
    /// All shards that cannot go on by themselves, as far as this coordinator knows.
    pub fn losses(&self, now: Instant) -> Vec<Loss> {
        let chains = self.config().into_iter().flat_map(|config| &config.shards);
        chains.filter_map(|chain| self.loss(now, chain)).collect()
    }

    /// Absent: a member that has everything lives, or may live, or is back with its disk.
    pub(super) fn loss(&self, now: Instant, chain: &ChainConfig) -> Option<Loss> {
        let may_have_all = |member: &Member| {
            let lives = match self.standing(now, member.replica) {
                Standing::Alive => self.is_whole(chain, member.replica),
                Standing::Unsure => true,
                Standing::Unfit | Standing::Gone => false,
            };
            lives || self.returned(now, chain, member).flatten().is_some()
        };
        if chain.members.iter().any(may_have_all) || self.begin_again(now, chain).is_some() {
            return None;
        }
        let not_gone = |id: &ReplicaId| self.standing(now, *id) != Standing::Gone;
        let members = chain.members.iter().map(|member| member.replica);
        let left = self.left(now, chain);
        let others = |id: &ReplicaId| left.as_ref().is_none_or(|it| it.member.replica != *id);
        let silent = members.filter(not_gone).filter(others).collect();
        Some(Loss { shard: chain.shard, epoch: chain.epoch, left, silent })
    }

    /// A member that lives, though it may lack what was acknowledged last; else who has the longest log.
    fn left(&self, now: Instant, chain: &ChainConfig) -> Option<Left> {
        let usable = |known: &&Known| known.registered && known.standing(now) == Standing::Alive;
        let last = |known: &Known| {
            let holding = known.holds.get(&chain.shard);
            holding.map(|it| (it.epoch, it.logged))
        };
        let is_member =
            |known: &Known| chain.members.iter().any(|it| it.replica == known.member.replica);
        let best = self.replicas.values().filter(usable).max_by_key(|known| {
            (is_member(known), last(known), std::cmp::Reverse(known.member.replica))
        })?;
        Some(Left { member: best.member.clone(), last: last(best) })
    }

    /// Operators had the chain go on as it is: who does.
    pub(super) fn goes_on_with_loss(
        &self,
        now: Instant,
        config: &ClusterConfig,
        chain: &ChainConfig,
    ) -> Option<Left> {
        let accepted = Wish::AcceptLoss { shard: chain.shard, epoch: chain.epoch };
        if !config.wishes.contains(&accepted) {
            return None;
        }
        self.loss(now, chain)?.left
    }
}
