//! The control store: what a cluster knows about itself, in tables of small versioned rows.

pub mod backup;
pub mod client;
pub mod coordinator;
pub mod register;
pub mod replica;
pub mod rows;
pub mod seat;
pub mod sessions;
pub mod store;
pub mod tables;

pub use hoplo_wire::control::{Key, Row, Table};
pub use rows::{
    ActorEntry, ActorPhase, EndedRun, Entry, EventEntry, FunctionEntry, GroupEntry, HistoryEntry,
    JobEntry, NodeEntry, NodeState, RowError, SeatEntry, TaskEntry, TaskState, TokenEntry,
};
pub use store::{CasError, ControlStore, MemoryStore};
pub use tables::{Page, Tables};
