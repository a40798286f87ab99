//! Who lives, who is dead, and who is in charge of what the dead were home of.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use hoplo_base::NodeNumber;

use super::event::Epoch;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Members {
    me: NodeNumber,
    /// With ourselves, from the epoch on in which we joined: who was there before us was heir without us.
    alive: BTreeSet<NodeNumber>,
    dead: BTreeMap<NodeNumber, Estate>,
    epoch: Epoch,
    /// Of the last death: they are heard of in order.
    died: Epoch,
    all_passed: Epoch,
}

/// All that a dead node was home of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Estate {
    died: Epoch,
    /// Nobody, while nobody lives.
    heir: Option<NodeNumber>,
    /// When the heir became it.
    since: Epoch,
}

impl Members {
    pub(super) fn new(me: NodeNumber) -> Self {
        let (alive, dead) = (BTreeSet::new(), BTreeMap::new());
        let (epoch, died, all_passed) = Default::default();
        Self { me, alive, dead, epoch, died, all_passed }
    }

    pub(super) fn me(&self) -> NodeNumber {
        self.me
    }

    /// Its row may be younger than a death that was heard of before: rows change after they are made.
    pub(super) fn joined(&mut self, node: NodeNumber, epoch: Epoch) {
        self.epoch = self.epoch.max(epoch);
        assert!(!self.dead.contains_key(&node), "{node} is dead: no number is given twice");
        self.alive.insert(node);
        for estate in self.dead.values_mut().filter(|estate| estate.heir.is_none()) {
            // Everybody was dead: nobody is left who could announce anything of it.
            (estate.heir, estate.since) = (Some(node), Epoch::default());
        }
    }

    /// Returns the dead nodes that have a new heir by this.
    pub(super) fn died(
        &mut self,
        node: NodeNumber,
        heir: Option<NodeNumber>,
        epoch: Epoch,
    ) -> BTreeSet<NodeNumber> {
        assert!(epoch > self.died, "{epoch:?} comes after {:?}", self.died);
        (self.died, self.epoch) = (epoch, self.epoch.max(epoch));
        assert!(node != self.me, "the dead decide nothing");
        assert!(!self.dead.contains_key(&node), "{node} died before");
        self.alive.remove(&node);
        let left_alone = self.dead.iter().filter(|(_, estate)| estate.heir == Some(node));
        let mut moved: BTreeSet<NodeNumber> = left_alone.map(|(dead, _)| *dead).collect();
        moved.insert(node);
        for &dead in &moved {
            let heir = heir.or_else(|| self.heir(dead));
            let died = self.dead.get(&dead).map_or(epoch, |estate| estate.died);
            self.dead.insert(dead, Estate { died, heir, since: epoch });
        }
        moved
    }

    /// Who will be in charge of what when that node is dead.
    pub(super) fn heirs_after(
        &self,
        node: NodeNumber,
        named: Option<NodeNumber>,
    ) -> Vec<(NodeNumber, NodeNumber)> {
        let left_alone = self.dead.iter().filter(|(_, estate)| estate.heir == Some(node));
        let moved = left_alone.map(|(dead, _)| *dead).chain([node]);
        let others = || self.alive.iter().copied().filter(|other| *other != node);
        moved.filter_map(|home| Some((home, named.or_else(|| heir(home, others()))?))).collect()
    }

    pub(super) fn passed_by_all(&mut self, epoch: Epoch) {
        assert!(epoch <= self.epoch, "we have not passed {epoch:?} ourselves");
        self.all_passed = self.all_passed.max(epoch);
    }

    pub(super) fn is_dead(&self, node: NodeNumber) -> bool {
        self.dead.contains_key(&node)
    }

    /// Dead, and whatever it sent has been claimed or refused by all (NREF-4).
    pub(super) fn is_struck(&self, node: NodeNumber) -> bool {
        self.dead.get(&node).is_some_and(|estate| estate.died <= self.all_passed)
    }

    pub(super) fn in_charge(&self, home: NodeNumber) -> NodeNumber {
        self.dead.get(&home).and_then(|estate| estate.heir).unwrap_or(home)
    }

    /// Whether all nodes have announced what they hold of what this one is, or was, home of (NREF-5).
    pub(super) fn is_announced(&self, home: NodeNumber) -> bool {
        self.dead.get(&home).is_none_or(|estate| estate.since <= self.all_passed)
    }

    fn heir(&self, dead: NodeNumber) -> Option<NodeNumber> {
        heir(dead, self.alive.iter().copied())
    }
}

/// Who of these is in charge of what a dead node was in charge of.
pub fn heir(dead: NodeNumber, living: impl Iterator<Item = NodeNumber>) -> Option<NodeNumber> {
    living.filter(|node| *node != dead).max_by_key(|node| (weight(dead, *node), *node))
}

/// The same ones, in the order in which each is preferred where those before it cannot be in charge.
pub fn by_preference(
    dead: NodeNumber,
    living: impl Iterator<Item = NodeNumber>,
) -> impl Iterator<Item = NodeNumber> {
    let others = living.filter(|node| *node != dead);
    let mut heap: BinaryHeap<_> = others.map(|node| (weight(dead, node), node)).collect();
    std::iter::from_fn(move || heap.pop()).map(|(_, node)| node)
}

/// Rendezvous: each dead node prefers the living in an order of its own. So estates spread, and a death moves only
/// what lay at the one who died. The same in every node of every version: it decides who is in charge.
fn weight(dead: NodeNumber, living: NodeNumber) -> u64 {
    let mut bits = u64::from(dead.number()) << 32 | u64::from(living.number());
    for factor in [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93] {
        bits = (bits ^ bits >> 32).wrapping_mul(factor);
    }
    bits ^ bits >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u32) -> NodeNumber {
        NodeNumber::first_given(number)
    }

    #[test]
    fn estates_spread_over_the_living_and_move_only_when_their_heir_dies() {
        let mut members = Members::new(node(0));
        for number in 0..400 {
            members.joined(node(number), Epoch(u64::from(number) + 1));
        }
        let mut epoch = 400;
        let mut heirs: BTreeMap<NodeNumber, NodeNumber> = BTreeMap::new();
        let mut most: BTreeMap<NodeNumber, u32> = BTreeMap::new();
        for number in 200..400 {
            epoch += 1;
            let moved = members.died(node(number), None, Epoch(epoch));
            for (dead, heir) in &heirs {
                let stays = members.in_charge(*dead) == *heir;
                assert_eq!(stays, *heir != node(number), "{dead} of {heir}");
                assert_eq!(stays, !moved.contains(dead), "{dead} of {heir}");
            }
            heirs.insert(node(number), node(0));
            for (dead, heir) in &mut heirs {
                *heir = members.in_charge(*dead);
            }
        }
        for heir in heirs.values() {
            *most.entry(*heir).or_default() += 1;
        }
        assert!(most.len() > 100, "200 estates went to {} of 200 nodes", most.len());
        assert!(most.values().all(|estates| *estates < 10), "{most:?}");
    }

    #[test]
    fn who_comes_when_all_are_dead_is_the_heir_of_all_and_nothing_is_left_of_it() {
        let mut members = Members::new(node(3));
        members.joined(node(1), Epoch(1));
        members.joined(node(2), Epoch(2));
        members.died(node(1), None, Epoch(3));
        members.died(node(2), None, Epoch(4));
        members.joined(node(3), Epoch(5));
        members.joined(node(4), Epoch(6));
        for dead in [node(1), node(2)] {
            assert_eq!(members.in_charge(dead), node(3));
            assert!(members.is_announced(dead));
        }
    }
}
