//! Every machine of hoplo: what decides, without I/O, clock, thread, lock or random source.
//!
//! A machine has one `handle(now, event, &mut effects)`; `explain` says why something waits; `check`
//! asserts its invariants. Machines do not import each other: they meet through ids and messages, and `node`
//! alone wires those of a daemon to each other.

pub mod actors;
pub mod carry;
pub mod claims;
pub mod collective;
pub mod control;
pub mod history;
pub mod link;
pub mod members;
pub mod node;
pub mod objects;
pub mod sched;
pub mod session;
pub mod transfer;
pub mod why;
pub mod worker;
