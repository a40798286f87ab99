//! What the document should say next, from what it says and what is known: no time passes here.
//!
//! Each chain takes one step at a time, the first of these that applies:
//! 1. who is gone, unfit or accused leaves, if a living whole member stays; who joins is replaced at once;
//! 2. no whole member is left: one that returned with its disk goes on alone (`restore`), whoever lives if the shard had not
//!    begun (`begin_again`), or what operators put up with;
//! 3. all members act in a chain that had not begun: from then on its head takes updates;
//! 4. who joins and has caught up becomes the tail;
//! 5. a member that operators want elsewhere leaves once there are enough others;
//! 6. a chain that is too short gets one who joins.

use hoplo_base::{Instant, NodeId, limits};
use hoplo_wire::control::{ChainConfig, ClusterConfig, Epoch, Member, ReplicaId, Wish};

use super::known::place_of;
use super::{Coordinator, Known, Standing, check_change};

impl Coordinator {
    /// The document as it should be; absent if it is that already.
    pub(super) fn plan(&mut self, now: Instant) -> Option<ClusterConfig> {
        let before = self.config()?.clone();
        let mut next = before.clone();
        self.wishes.retain(|(wish, _)| !is_done(wish, &before));
        for (wish, wished) in &self.wishes {
            next.wishes.retain(|it| it != wish);
            if *wished && next.wishes.len() < limits::WISHES_MAX {
                next.wishes.push(wish.clone());
            }
        }
        for at in 0..next.shards.len() {
            let chain = next.shards[at].clone();
            self.note_who_returned(now, &chain);
            self.note_who_is_surplus(now, &next, &chain);
            let accused = self.accused(now, &chain);
            if let Some(accused) = accused {
                self.accusations.shun(now, chain.shard, accused);
            }
            if let Some(changed) = self.step(now, &next, &chain, accused) {
                next.shards[at] = self.stamped(now, &chain, changed);
            }
        }
        let wishes = std::mem::take(&mut next.wishes);
        next.wishes = wishes.into_iter().filter(|wish| !is_done(wish, &next)).collect();
        (next != before).then_some(next)
    }

    /// The next epoch of a chain: its number, and what its members have to know of the one before.
    fn stamped(&self, now: Instant, from: &ChainConfig, mut to: ChainConfig) -> ChainConfig {
        to.epoch = Epoch(from.epoch.0 + 1);
        let is_member = |who: ReplicaId| to.members.iter().any(|member| member.replica == who);
        let nobody_left = from.members.iter().all(|member| is_member(member.replica));
        let shared = to.members.iter().any(|member| self.is_whole(from, member.replica));
        let returned = to.members.len() == 1 && place_of(from, to.members[0].replica).is_none();
        let accepted = to.history == to.epoch;
        let begun = || to.members.iter().all(|member| self.has_acted(from, member));
        to.unbegun = if accepted { to.unbegun } else { from.unbegun && !begun() };
        let kept = nobody_left || shared || returned || accepted || to.unbegun;
        assert!(kept, "CONF-2: {from:?} to {to:?}");
        // Until it has acted, the one before the new tail may answer as the tail.
        let unsettled = self.unsettled(from);
        let mut tails = from.members.iter().rev().take(1 + usize::from(unsettled.is_some()));
        let gone = tails
            .all(|it| is_member(it.replica) || self.standing(now, it.replica) == Standing::Gone);
        let promoted = from.joining.as_ref().map(|it| it.replica).filter(|it| is_member(*it));
        // Once it is known to be whole, the document need not ask any more.
        let added = promoted.map(|it| (it, to.epoch)).or(unsettled);
        to.added = added.filter(|(who, _)| is_member(*who));
        // It speaks of the last change of members: one of them may hear of this configuration first.
        let same = to.members == from.members;
        // Who returned has forgotten to whom it lent: it waits in any case.
        to.old_tail_gone = if same { from.old_tail_gone } else { gone && !returned && !accepted };
        check_change(from, &to);
        to
    }

    fn step(
        &self,
        now: Instant,
        config: &ClusterConfig,
        chain: &ChainConfig,
        accused: Option<ReplicaId>,
    ) -> Option<ChainConfig> {
        let bad = |member: &Member| {
            accused == Some(member.replica)
                || matches!(self.standing(now, member.replica), Standing::Unfit | Standing::Gone)
        };
        let mut next = chain.clone();
        next.joining = next.joining.filter(|member| !bad(member));
        let survives = |member: &&Member| !bad(member);
        let survivors: Vec<Member> = chain.members.iter().filter(survives).cloned().collect();
        if survivors.len() < chain.members.len() {
            if survivors.iter().any(|it| self.outlived(now, chain, it.replica)) {
                next.members = survivors;
                if next.joining.is_none() {
                    next.joining = self.candidate(now, config, &next);
                }
                return Some(next);
            }
            if let Some(restored) = self.restore(now, chain) {
                next.members = vec![restored];
                next.joining = None;
                return Some(next);
            }
            if let Some(first) = self.begin_again(now, chain) {
                next.members = vec![first.clone()];
                next.joining = None;
                return Some(next);
            }
            if let Some(left) = self.goes_on_with_loss(now, config, chain) {
                next.members = vec![left.member];
                next.joining = None;
                next.history = Epoch(chain.epoch.0 + 1);
                next.unbegun = left.last.is_none();
                return Some(next);
            }
            return (next.joining != chain.joining).then_some(next);
        }
        if chain.unbegun && chain.members.iter().all(|member| self.has_acted(chain, member)) {
            return Some(next);
        }
        if let Some(joining) = &next.joining {
            let settled = self.unsettled(chain).is_none();
            let known = &self.replicas[&joining.replica];
            let caught_up = known.caught_up.get(&chain.shard) == Some(&chain.epoch);
            if settled && caught_up && known.standing(now) == Standing::Alive {
                next.members.extend(next.joining.take());
                return Some(next);
            }
        }
        if let Some(leaving) = self.who_is_surplus(now, config, &next) {
            let mut others = next.members.iter().filter(|it| it.replica != leaving);
            if others.all(|it| self.outlived(now, chain, it.replica)) {
                next.members.retain(|member| member.replica != leaving);
                return Some(next);
            }
        }
        if next.joining.is_none() && self.wants_more(config, &next) {
            next.joining = self.candidate(now, config, &next);
        }
        (next.joining != chain.joining).then_some(next)
    }

    /// When the last one of those that have to leave had to, for whatever reason, or the store was waited for since: only who
    /// was asked then or later, and answered, outlived them all.
    pub(super) fn leaves_since(&self, now: Instant, chain: &ChainConfig) -> Option<Instant> {
        let known = chain.members.iter().filter_map(|it| self.replicas.get(&it.replica));
        let failed = known.filter_map(|known| known.failed_since(now));
        let accused = self.accusations.standing(now, chain.shard, chain.epoch);
        let accused = accused.map(|(_, _, since)| since);
        let surplus = self.surplus_since.get(&chain.shard.0).copied();
        let leaves = failed.chain(accused).chain(surplus).max()?;
        Some(self.waited_until.map_or(leaves, |waited| waited.max(leaves)))
    }

    /// The chain may be left to it: it lived after all that have to leave had to.
    fn outlived(&self, now: Instant, chain: &ChainConfig, replica: ReplicaId) -> bool {
        let since = self.leaves_since(now, chain);
        self.is_sound(now, chain, replica)
            && since.is_none_or(|at| self.replicas[&replica].lived_since(at))
    }

    /// It has all that was acknowledged in this chain: nothing, if that has not begun.
    pub(super) fn is_whole(&self, chain: &ChainConfig, replica: ReplicaId) -> bool {
        let member = chain.members.iter().any(|member| member.replica == replica);
        let settled = || self.unsettled(chain).is_none_or(|(who, _)| who != replica);
        member && (chain.unbegun || settled())
    }

    /// Who was added, in which epoch, and has not acted since.
    fn unsettled(&self, chain: &ChainConfig) -> Option<(ReplicaId, Epoch)> {
        chain.added.filter(|(who, since)| {
            let acts = self.replicas.get(who).and_then(|known| known.acts.get(&chain.shard));
            acts < Some(since)
        })
    }

    /// The chain may rely on it alone.
    pub(super) fn is_sound(&self, now: Instant, chain: &ChainConfig, replica: ReplicaId) -> bool {
        self.is_whole(chain, replica) && self.standing(now, replica) == Standing::Alive
    }

    pub(super) fn standing(&self, now: Instant, replica: ReplicaId) -> Standing {
        self.replicas.get(&replica).map_or(Standing::Unsure, |known| known.standing(now))
    }

    /// Who has to leave because a neighbour finds it silent, or finds a neighbour silent: the accused one, of
    /// two that accuse each other the later one, unless the chain cannot do without it.
    fn accused(&self, now: Instant, chain: &ChainConfig) -> Option<ReplicaId> {
        let lasting: Vec<_> = self.accusations.standing(now, chain.shard, chain.epoch).collect();
        let mut pairs: Vec<(usize, ReplicaId, ReplicaId)> = lasting
            .iter()
            .filter_map(|&(by, who, _)| {
                let place = place_of(chain, who)?;
                place_of(chain, by)?;
                Some((place, who, by))
            })
            .collect();
        pairs.sort_unstable();
        let can_go = |victim: &ReplicaId| {
            let mut others = chain.members.iter().filter(|it| it.replica != *victim);
            others.any(|it| self.outlived(now, chain, it.replica))
        };
        let joins = chain.joining.as_ref().map(|member| member.replica);
        let victims = pairs
            .into_iter()
            .rev()
            .flat_map(|(_, who, by)| if joins == Some(by) { [by, who] } else { [who, by] });
        victims.into_iter().find(can_go)
    }

    /// Since when one that could restore the chain waits for the others.
    fn note_who_returned(&mut self, now: Instant, chain: &ChainConfig) {
        let lives = |member: &Member| {
            let standing = self.standing(now, member.replica);
            self.is_whole(chain, member.replica)
                && matches!(standing, Standing::Alive | Standing::Unsure)
        };
        let returned = |member: &Member| self.returned(now, chain, member).flatten().is_some();
        if !chain.members.iter().any(lives) && chain.members.iter().any(returned) {
            self.returned_since.entry(chain.shard.0).or_insert(now);
        } else {
            self.returned_since.remove(&chain.shard.0);
        }
    }

    /// No whole member lives: who returned with the disk of one, and has the longest log.
    ///
    /// One member must be proven gone: then no entry can be committed any more, and the tail's lease, which every
    /// member before it has to lend, ends by itself.
    fn restore(&self, now: Instant, chain: &ChainConfig) -> Option<Member> {
        let since = *self.returned_since.get(&chain.shard.0)?;
        let gone = |member: &Member| self.standing(now, member.replica) == Standing::Gone;
        if !chain.members.iter().any(gone) {
            return None;
        }
        let returned: Vec<_> =
            chain.members.iter().map(|member| self.returned(now, chain, member)).collect();
        let all = returned.iter().all(Option::is_some);
        if !all && now.since(since) < limits::RESTORE_GRACE {
            return None;
        }
        let holdings = returned.into_iter().flatten().flatten();
        let longest = holdings.max_by_key(|(known, epoch, logged)| {
            (*epoch, *logged, std::cmp::Reverse(known.member.replica))
        });
        longest.map(|(known, ..)| known.member.clone())
    }

    /// It has the beginning of this history on its disk. What it had in an earlier epoch it may have lost since: who joins gets
    /// another base in place of its own. In a later one: then this chain is not what the document says.
    fn has_acted(&self, chain: &ChainConfig, member: &Member) -> bool {
        let acts = self.replicas.get(&member.replica).and_then(|it| it.acts.get(&chain.shard));
        acts == Some(&chain.epoch)
    }

    /// All members of a chain that had not begun are gone or unfit, and nobody returned with anything. Nothing was acknowledged,
    /// so whoever lives begins it; best who has a beginning already.
    pub(super) fn begin_again(&self, now: Instant, chain: &ChainConfig) -> Option<&Member> {
        let lost = |member: &Member| {
            matches!(self.standing(now, member.replica), Standing::Gone | Standing::Unfit)
        };
        let has_some = |member: &Member| self.returned(now, chain, member).flatten().is_some();
        if !chain.unbegun || !chain.members.iter().all(lost) || chain.members.iter().any(has_some) {
            return None;
        }
        let usable = self
            .replicas
            .values()
            .filter(|known| known.registered && known.standing(now) == Standing::Alive);
        let best = usable.max_by_key(|known| {
            let holding = known.holds.get(&chain.shard);
            let beginning = holding.map(|it| it.epoch).filter(|epoch| *epoch >= chain.history);
            (beginning, std::cmp::Reverse(known.member.replica))
        });
        best.map(|known| &known.member)
    }

    /// A living process of the member's node which came after it: absent if there is none; without
    /// anything inside if it does not have all that was acknowledged.
    #[allow(clippy::option_option)]
    pub(super) fn returned(
        &self,
        now: Instant,
        chain: &ChainConfig,
        member: &Member,
    ) -> Option<Option<(&Known, Epoch, u64)>> {
        let id = member.replica;
        if self.standing(now, id) != Standing::Gone {
            return None;
        }
        let last = ReplicaId { node: id.node, incarnation: u64::MAX };
        let mut newer = self.replicas.range(id..=last).rev().filter(|(it, _)| **it > id);
        let (_, known) =
            newer.find(|(_, known)| known.registered && known.standing(now) == Standing::Alive)?;
        let since = chain.added.filter(|(who, _)| *who == id).map(|(_, since)| since);
        let holding = known.holds.get(&chain.shard);
        let whole = holding.filter(|it| since.is_none_or(|since| it.epoch >= since));
        Some(whole.map(|holding| (known, holding.epoch, holding.logged)))
    }

    /// Operators do not want a member of this shard on the node.
    fn unwanted(config: &ClusterConfig, chain: &ChainConfig, node: NodeId) -> bool {
        config.wishes.iter().any(|wish| match wish {
            Wish::Leave { node: leaves } => *leaves == node,
            Wish::Move { shard, from, .. } => *shard == chain.shard && *from == node,
            Wish::AcceptLoss { .. } => false,
        })
    }

    fn wants_more(&self, config: &ClusterConfig, chain: &ChainConfig) -> bool {
        let stay =
            chain.members.iter().filter(|it| !Self::unwanted(config, chain, it.replica.node));
        stay.count() < usize::from(config.replication)
            && chain.members.len() <= usize::from(config.replication)
    }

    /// Since when there is somebody whom the chain does not need.
    fn note_who_is_surplus(&mut self, now: Instant, config: &ClusterConfig, chain: &ChainConfig) {
        if self.who_is_surplus(now, config, chain).is_some() {
            self.surplus_since.entry(chain.shard.0).or_insert_with(|| {
                self.found_surplus = true;
                now
            });
        } else {
            self.surplus_since.remove(&chain.shard.0);
        }
    }

    /// The member that operators want elsewhere, or the last one, where there are enough others.
    fn who_is_surplus(
        &self,
        now: Instant,
        config: &ClusterConfig,
        chain: &ChainConfig,
    ) -> Option<ReplicaId> {
        let wished = usize::from(config.replication);
        let is_unwanted = |it: &&Member| Self::unwanted(config, chain, it.replica.node);
        let leaving = chain.members.iter().rev().find(is_unwanted);
        let leaving = leaving.or_else(|| chain.members.last());
        let enough = chain.members.len() > wished;
        let settled = chain.members.iter().all(|it| self.is_sound(now, chain, it.replica));
        leaving.filter(|_| enough && settled).map(|member| member.replica)
    }

    /// Who could join: where operators want it, else who has most of this shard on its disk, else who has least to
    /// do.
    fn candidate(
        &self,
        now: Instant,
        config: &ClusterConfig,
        chain: &ChainConfig,
    ) -> Option<Member> {
        if !self.wants_more(config, chain) {
            return None;
        }
        let moves_to = |node: NodeId| {
            config.wishes.iter().any(|wish| match wish {
                Wish::Move { shard, to, .. } => *shard == chain.shard && *to == node,
                Wish::Leave { .. } | Wish::AcceptLoss { .. } => false,
            })
        };
        let taken = |node: NodeId| {
            chain.members.iter().chain(&chain.joining).any(|it| it.replica.node == node)
        };
        let fits = self.replicas.values().filter(|known| {
            let id = known.member.replica;
            known.registered
                && known.standing(now) == Standing::Alive
                && !taken(id.node)
                && !Self::unwanted(config, chain, id.node)
                && !self.accusations.shuns(now, chain.shard, id)
        });
        let best = fits.min_by_key(|known| {
            let id = known.member.replica;
            let holding = known.holds.get(&chain.shard);
            let held = holding.map_or((Epoch(0), 0), |it| (it.epoch, it.logged));
            let busy = config.shards.iter().filter(|it| place_of(it, id).is_some()).count();
            (!moves_to(id.node), std::cmp::Reverse(held), busy, id)
        });
        best.map(|known| known.member.clone())
    }
}

/// A replica moves until it is where it should be; a node leaves until it is wanted again; a loss is accepted until the
/// chain went on, in whatever way.
fn is_done(wish: &Wish, config: &ClusterConfig) -> bool {
    match wish {
        Wish::Leave { .. } => false,
        Wish::Move { shard, from, .. } => {
            let chain = config.shards.get(usize::from(shard.0));
            chain.is_none_or(|it| it.members.iter().all(|it| it.replica.node != *from))
        }
        Wish::AcceptLoss { shard, epoch } => {
            config.shards.get(usize::from(shard.0)).is_none_or(|it| it.epoch > *epoch)
        }
    }
}
