//! What people may ask about the store.

use hoplo_base::{ObjectId, ProcessId};

/// One shared object, for `hoplo list objects`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRow {
    pub object: ObjectId,
    /// `pending`, `orphaned`, `inline`, `stored`, `spilling`, `spilled`, `restoring`, `failed`,
    /// `handle` (of an actor) or `unknown` (heard of, not told yet).
    pub state: &'static str,
    /// Bytes of the value; 0 while there is none.
    pub len: u64,
    /// Who makes it, while it is pending.
    pub owner: Option<ProcessId>,
    /// Processes and their tokens; a negative count is on its way to zero or more.
    pub holders: Vec<(ProcessId, i64)>,
    /// Records that contain it, counted with repetition.
    pub containers: u64,
    pub node_holds: u64,
    /// What its value contains.
    pub contains: Vec<ObjectId>,
    /// Processes that wait for it.
    pub waiting: Vec<ProcessId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub capacity_bytes: u64,
    /// In extents of processes, and under objects of dead ones.
    pub granted_bytes: u64,
    pub free_bytes: u64,
    /// Of sealed objects in the arena.
    pub stored_bytes: u64,
    pub stored_objects: u64,
    pub spilled_bytes: u64,
    pub spilled_objects: u64,
    /// Records.
    pub objects: u64,
    pub requests_waiting: u64,
    /// Since the start.
    pub spills: u64,
    pub restores: u64,
    pub violations: u64,
}
