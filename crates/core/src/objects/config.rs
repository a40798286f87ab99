//! Bounds of one node's store.

use std::time::Duration;

use hoplo_base::limits;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes that may be in use at once (`object_store_memory`); a multiple of `PAGE`.
    pub capacity_bytes: u64,
    /// Addresses in the arena; at least `capacity_bytes`, a multiple of `PAGE`. More of them (four
    /// times as many) keep large objects placeable when the free memory is in pieces.
    pub arena_bytes: u64,
    /// Object-state slots of the node; slot numbers are below it.
    pub slots: u32,
    /// How long processes have to answer a recall before others' objects are spilled.
    pub recall_grace: Duration,
    /// For so long, who gave less than it was asked for is not asked for the rest again.
    pub recall_again: Duration,
    /// Without a disk, or where all slots are in use, a request is denied when nothing was freed for so long.
    pub room_patience: Duration,
    /// What was pinned is tried again after this time.
    pub pinned_retry: Duration,
    /// Free memory that nobody used for so long goes back to the system.
    pub warm_idle: Duration,
}

/// Extents start and end at multiples of this.
pub const PAGE: u64 = 4096;

impl Config {
    pub fn new(capacity_bytes: u64) -> Self {
        let capacity_bytes = capacity_bytes.max(PAGE) / PAGE * PAGE;
        Self {
            capacity_bytes,
            arena_bytes: capacity_bytes,
            slots: limits::OBJECTS_STORED_MAX as u32,
            recall_grace: limits::RECALL_GRACE,
            recall_again: limits::RECALL_AGAIN,
            room_patience: limits::ROOM_PATIENCE,
            pinned_retry: limits::PINNED_RETRY,
            warm_idle: limits::WARM_TIME,
        }
    }

    pub(super) fn check(&self) {
        assert!(self.capacity_bytes > 0 && self.capacity_bytes.is_multiple_of(PAGE));
        assert!(self.arena_bytes >= self.capacity_bytes && self.arena_bytes.is_multiple_of(PAGE));
        assert!(self.slots > 0);
    }
}

const _: () = assert!(limits::EXTENT_BYTES_MIN.is_multiple_of(PAGE));
