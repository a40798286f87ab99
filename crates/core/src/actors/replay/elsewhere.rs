//! Which calls of a log have to be confirmed by another node before they are acknowledged.
//!
//! ```text
//!   home                                               keeper
//!     KeepActor, with the log as it is, word 1 ------->  has the log
//!     call 7 is logged: KeepLog, word 2 -------------->  has call 7
//!     acknowledges call 7   <------------- Kept 2 -----
//!   the actor has started at another node, which passes its calls by
//!     UnkeepActor, word 3 ---------------------------->  has no log
//!     acknowledges call 8   <------------- Kept 3 -----
//! ```
//! Letting go is confirmed as well: a log that a node kept and that grows no more would be an old state of the actor, if that node were to
//! tell an heir of it.
//!
//! # Invariants
//! - REPLAY-5: when a call is acknowledged, each node that lives and was ever told to keep the log has it with that call, or has let it go.

use hoplo_base::NodeNumber;

#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    keeper: Option<NodeNumber>,
    /// The last one that was said.
    word: u64,
    open: Vec<Open>,
    /// The last call that was.
    acknowledged: u64,
}

/// What a node was told and did not confirm.
#[derive(Debug)]
struct Open {
    node: NodeNumber,
    word: u64,
    /// This call and all later ones wait for it.
    first: u64,
}

impl Elsewhere {
    pub(super) fn keeper(&self) -> Option<NodeNumber> {
        self.keeper
    }

    pub(super) fn keeps(&mut self, node: NodeNumber) -> u64 {
        self.keeper = Some(node);
        self.says(node, self.acknowledged + 1)
    }

    pub(super) fn lets_go(&mut self, node: NodeNumber) -> u64 {
        self.keeper = self.keeper.filter(|keeper| *keeper != node);
        self.says(node, self.acknowledged + 1)
    }

    /// The log gains this call: who is to hear of it, with which word.
    pub(super) fn logs(&mut self, call: u64) -> Option<(NodeNumber, u64)> {
        let keeper = self.keeper?;
        Some((keeper, self.says(keeper, call)))
    }

    pub(super) fn confirmed(&mut self, by: NodeNumber, word: u64) {
        self.open.retain(|open| open.node != by || open.word > word);
    }

    /// It tells nobody of the log any more.
    pub(super) fn gone(&mut self, node: NodeNumber) {
        self.keeper = self.keeper.filter(|keeper| *keeper != node);
        self.open.retain(|open| open.node != node);
    }

    /// Of a log that ends with this call: up to which it may be acknowledged.
    pub(super) fn safe(&self, last: u64) -> u64 {
        let first = self.open.iter().map(|open| open.first).min();
        first.map_or(last, |first| last.min(first - 1))
    }

    /// The same, if that is more than was acknowledged.
    pub(super) fn newly_safe(&mut self, last: u64) -> Option<u64> {
        let safe = self.safe(last);
        let is_new = safe > self.acknowledged;
        self.acknowledged = self.acknowledged.max(safe);
        is_new.then_some(safe)
    }

    fn says(&mut self, node: NodeNumber, first: u64) -> u64 {
        self.word += 1;
        self.open.push(Open { node, word: self.word, first });
        self.word
    }
}
