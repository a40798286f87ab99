//! The control store: what a cluster knows about itself, in tables of small versioned rows.

pub mod client;
pub mod replica;
pub mod rows;
pub mod tables;

pub use rows::{ActorEntry, Entry, EventEntry, FunctionEntry, JobEntry, NodeEntry};
pub use tables::{CasError, ControlStore, Key, MemoryStore, Page, Row, Table};
