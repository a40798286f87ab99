//! When everybody has passed: whoever collects what nodes say (`Effect::Passed`) asks here when all have.
//!
//! A death with its epoch is passed by all when each node that lived in this epoch said that it passed this or a later
//! one. One that dies before it said so is missing for ever, and with right: it may have got refs from the first dead, and
//! sent them on to a node that passed only the first. So both are struck together, when all have passed the later epoch.
//! It is one moment at which every living node has passed every dead one, not a number of pairs.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::NodeNumber;

use super::event::Epoch;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Passing {
    alive: BTreeSet<NodeNumber>,
    /// By death: who lived then and has not passed it yet. Nothing for what all have passed.
    awaited: BTreeMap<Epoch, BTreeSet<NodeNumber>>,
    /// The last that each who lives said it passed. It may have heard of that death before us.
    said: BTreeMap<NodeNumber, Epoch>,
}

impl Passing {
    pub fn joined(&mut self, node: NodeNumber) {
        self.alive.insert(node);
    }

    pub fn died(&mut self, node: NodeNumber, epoch: Epoch) {
        self.alive.remove(&node);
        self.said.remove(&node);
        let last = self.awaited.last_key_value().map(|(epoch, _)| *epoch);
        assert!(last.is_none_or(|last| last < epoch), "{epoch:?} comes after {last:?}");
        let passed = |node: &NodeNumber| self.said.get(node).is_some_and(|said| *said >= epoch);
        let awaited = self.alive.iter().copied().filter(|node| !passed(node)).collect();
        self.awaited.insert(epoch, awaited);
    }

    /// Returns the latest epoch that all have passed, if it is a new one: then the dead until then are settled.
    pub fn passed(&mut self, node: NodeNumber, epoch: Epoch) -> Option<Epoch> {
        if !self.alive.contains(&node) {
            return None; // it said so before it died, and nobody counts on it
        }
        let said = self.said.entry(node).or_insert(epoch);
        *said = epoch.max(*said);
        for (_, awaited) in self.awaited.range_mut(..=epoch) {
            awaited.remove(&node);
        }
        let done = self.awaited.iter().rev().find(|(_, awaited)| awaited.is_empty());
        let done = done.map(|(epoch, _)| *epoch)?;
        self.awaited.retain(|epoch, _| *epoch > done);
        Some(done)
    }
}
