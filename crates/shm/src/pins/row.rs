//! One process's pin entries, as everybody else sees them.

use crate::segment::PINS_PER_PROCESS;
use crate::sync::{AtomicU32, Ordering};

/// A row of the pin table, in shared memory. An entry is `slot + 1`, or 0 if it is empty.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct PinRow {
    /// Entries from here on are empty (PIN-2).
    high_water: AtomicU32,
    entries: Entries,
}

#[repr(C, align(128))]
#[derive(Debug)]
struct Entries([AtomicU32; PINS_PER_PROCESS]);

impl PinRow {
    /// An empty row, in model memory.
    #[cfg(loom)]
    pub fn new() -> PinRow {
        PinRow {
            high_water: AtomicU32::new(0),
            entries: Entries(core::array::from_fn(|_| AtomicU32::new(0))),
        }
    }

    /// Whether an entry names `slot`. Means something only after the daemon closed the object
    /// (PIN-1); before that it is a hint.
    pub fn contains(&self, slot: u32) -> bool {
        self.pinned().any(|pinned| pinned == slot)
    }

    /// The object slots that this process has pinned, in no order; a snapshot.
    pub fn pinned(&self) -> impl Iterator<Item = u32> + '_ {
        // Acquire: pairs with the Release in set_high_water(): a lowered mark is as good as an
        // empty entry, and says that the reads under that pin are over.
        let high_water = (self.high_water.load(Ordering::Acquire) as usize).min(PINS_PER_PROCESS);
        self.entries.0[..high_water].iter().filter_map(|entry| {
            // Acquire: pairs with the Release in clear(): the reads under the pin are over.
            entry.load(Ordering::Acquire).checked_sub(1)
        })
    }

    /// Empties the row of a dead process (PIN-4); returns how many pins went.
    pub fn wipe(&self) -> usize {
        let high_water = (self.high_water.load(Ordering::Acquire) as usize).min(PINS_PER_PROCESS);
        let mut wiped = 0;
        for entry in &self.entries.0[..high_water] {
            if entry.load(Ordering::Relaxed) != 0 {
                entry.store(0, Ordering::Release);
                wiped += 1;
            }
        }
        self.high_water.store(0, Ordering::Release);
        wiped
    }

    pub(super) fn set(&self, entry: usize, slot: u32) {
        // Relaxed: the fence in PinTable::pin() follows.
        self.entries.0[entry].store(slot + 1, Ordering::Relaxed);
    }

    pub(super) fn clear(&self, entry: usize) {
        // Release: pairs with the Acquire in pinned(): our reads come before the daemon's reuse.
        self.entries.0[entry].store(0, Ordering::Release);
    }

    pub(super) fn set_high_water(&self, entries: usize) {
        // Release: pairs with the Acquire in pinned().
        self.high_water.store(entries as u32, Ordering::Release);
    }
}
