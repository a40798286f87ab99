//! The register: one document that control nodes hold together, changed by compare-and-swap, with nothing beside them.
//!
//! It follows CASPaxos (Rystsov 2018), which is Paxos for one value without a log. Some control nodes are *acceptors*, each at
//! its *place* in the cluster file; a majority of them decides. Whoever wants to load or swap is a *proposer*. A swap is a round:
//!
//! ```text
//!   proposer: Prepare(ballot, seats) --> all        acceptors: promised := ballot; what did I accept last?
//!             enough promises: the value of the highest ballot among them is the register's, or may be.
//!             Its version is the expected one: the next value is mine. Another: the same value again.
//!   proposer: Accept(ballot, seats, value) --> all  acceptors: accepted := value, unless promised > ballot
//!             a majority accepted: it is the register's, and the caller hears so
//! ```
//! A load asks without a round: if a majority accepted the same in the same round, that is the register's value, and no disk
//! writes. Those who watch load ten times a second each; as rounds they would write at every node, and overtake the swaps of the
//! one that acts. Only what stays unlike is settled by a round, and so is what a conflicting swap has found: nobody is told what may yet vanish.
//!
//! # Disks that are lost
//! An acceptor that comes back with an empty disk has forgotten what it promised and accepted. If it voted as before, two majorities
//! might have but itself in common, and a value that was acknowledged would be gone. So votes belong to **seats**: at each place sits one node,
//! and a node that lost its disk is another node (its number was drawn with its folder). The new one takes the next turn at its place.
//!  1. A proposer hears of a node without a seat. It begins a round with seats in which that one sits.
//!  2. Others join these seats to what they know, for ever, before they promise: from then on they refuse every round in which the old node
//!     sits. So no promise and no acceptance of the old one, however late, is part of a majority together with theirs.
//!  3. The promise of the new node counts for nothing, since it tells of no value. The others' are enough, and the round
//!     ends with an Accept in which the newest value comes to the new node. From then on it is an acceptor like the others.
//!
//! So one lost disk is made good by itself, with the next two or three changes of the document (the coordinator that acts makes some each second). If more
//! nodes than a minority lose theirs before that, the value may be gone. Then nothing is decided, and `Lost` says whose disks are missed.
//! A disk that is found again after another node took its seat is like a new one: its node takes the next turn, and has accepted nothing. The same befalls a node
//! whose place lost its disk twice just before, if a word of the one between is late enough: it costs one more value, and no answer becomes wrong.
//!
//! **The beginning** is the same: no node has a seat, and when all have answered, all of them take the first turn. Two proposers may
//! seat different nodes then, if a disk is lost in that moment, and each may take the other's word late. So a promise without a value counts only if
//! *all* nodes promise: whatever a round with other nodes decided, who survived of it is among them. That is why a
//! cluster begins only when all its acceptors run.
//!
//! # What a swap does not know
//! A proposer that is overtaken after its `Accept` tries again. It finds its own value (then it was stored, by whoever went on with it), or another value
//! of the same version (then it never will be), or a later version: `Overtaken`, nobody knows. Nor does one whose time is over.
//!
//! # Invariants
//! - REG-1: a version has one value: what was acknowledged for it, told to a load or followed by a swap is the same everywhere.
//! - REG-2: what an acceptor answers is on its disk before.
//! - REG-3: an acceptor's promise, its seats, and the ballot of what it accepted only grow; that ballot is at most its promise. (Who takes
//!   a seat that another one had has accepted nothing.)
//! - REG-4: all votes of a round are of the nodes that sit in it, and none of them knew later seats when it voted.
//! - REG-5: a round is decided by the promises of so many, with a value each, that every majority has one of them in it; or of all, if so many
//!   have a value or were the first at their place.
//! - REG-6: a load or swap that begins after another one ended finds at least its version. A swap that was told `Conflict` is never stored.
//!
//! # What is not survived
//! A folder that is put back from an older copy votes as the node that it was, and has forgotten what that node did since. Nobody can see that. So is a
//! disk that damages what it had synced.

mod acceptor;
mod proposer;
mod seats;

#[cfg(test)]
mod tests;

pub use acceptor::{Acceptor, Effect as AcceptorEffect};
pub use proposer::{Effect, Event, Failure, Outcome, Proposer, ProposerOptions, Wanted};
