//! A process's own side of its pin row: which entries are free, and who shares one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Generation, ObjectState, PinRow};
use crate::segment::{PINS_PER_PROCESS, ProcessSlot, Segment};
use crate::sync::{Ordering, fence};

/// Why an object could not be pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// The object is not in this store any more (or never was): look it up again.
    #[error("object slot {slot} does not hold generation {generation}")]
    Stale { slot: u32, generation: u32 },
    /// The daemon is deciding whether it goes: ask it, or try again.
    #[error("object slot {slot} is being closed")]
    Closing { slot: u32 },
    /// This process reads too many objects at once: let some go.
    #[error("all {PINS_PER_PROCESS} pins of this process are in use")]
    TableFull,
}

impl PinError {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            PinError::Stale { .. } => false,
            PinError::Closing { .. } | PinError::TableFull => true,
        }
    }
}

/// Proof of one pin; give it back with [`PinTable::unpin`]. If it is lost, the object stays until
/// the process ends.
#[must_use = "give it back with PinTable::unpin"]
#[derive(Debug, PartialEq, Eq)]
pub struct PinEntry {
    slot: u32,
    generation: Generation,
}

/// The pins of this process. One per process, under its owner's lock (PIN-4).
#[derive(Debug)]
pub struct PinTable {
    segment: Arc<Segment>,
    process: ProcessSlot,
    /// What we hold, by object slot.
    held: BTreeMap<u32, Held>,
    entries: FreeEntries,
}

/// Several pins of one object share one entry.
#[derive(Debug)]
struct Held {
    generation: Generation,
    entry: usize,
    pins: usize,
}

impl PinTable {
    /// Takes over the row of `process`, which must be this process's slot and empty.
    pub fn new(segment: Arc<Segment>, process: ProcessSlot) -> PinTable {
        let left = segment.pin_row(process).pinned().count();
        assert_eq!(left, 0, "PIN-4: {process} was given out with {left} pins of its last owner");
        PinTable { segment, process, held: BTreeMap::new(), entries: FreeEntries::new() }
    }

    /// Pins the object, so that its bytes stay until [`PinTable::unpin`].
    pub fn pin(&mut self, slot: u32, generation: Generation) -> Result<PinEntry, PinError> {
        let stale = PinError::Stale { slot, generation: generation.0 };
        let Some(object) = self.segment.object(slot) else { return Err(stale) };
        if let Some(held) = self.held.get_mut(&slot) {
            if held.generation != generation {
                return Err(stale);
            }
            held.pins += 1;
            return Ok(PinEntry { slot, generation });
        }
        let Some(entry) = self.entries.take_lowest() else { return Err(PinError::TableFull) };
        let row = self.segment.pin_row(self.process);
        row.set_high_water(self.entries.high_water());
        row.set(entry, slot);
        // Pairs with the fence in ObjectSlot::close (PIN-1, step 3).
        fence(Ordering::SeqCst);
        let found = object.state();
        if found.generation == generation && found.state == ObjectState::Sealed {
            self.held.insert(slot, Held { generation, entry, pins: 1 });
            return Ok(PinEntry { slot, generation });
        }
        Self::withdraw(&mut self.entries, row, entry);
        if found.generation == generation && found.state == ObjectState::Closed {
            return Err(PinError::Closing { slot });
        }
        Err(stale)
    }

    /// Gives a pin back. The caller has dropped every view of the bytes.
    pub fn unpin(&mut self, pin: PinEntry) {
        let held = self.held.get_mut(&pin.slot).expect("a pin of this table is held");
        assert_eq!(held.generation, pin.generation, "PIN-1: slot {} changed hands", pin.slot);
        held.pins -= 1;
        if held.pins == 0 {
            let entry = held.entry;
            self.held.remove(&pin.slot);
            let row = self.segment.pin_row(self.process);
            Self::withdraw(&mut self.entries, row, entry);
        }
    }

    /// Objects pinned by this process.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether this process pins nothing.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Asserts PIN-2 and that the row holds exactly what we believe.
    pub fn check(&self) {
        let row = self.segment.pin_row(self.process);
        let mut shared: Vec<u32> = row.pinned().collect();
        shared.sort_unstable();
        assert!(shared.iter().eq(self.held.keys()), "PIN-2: {shared:?} against {:?}", self.held);
        for held in self.held.values() {
            assert!(held.entry < self.entries.high_water() && held.pins > 0, "PIN-2: {held:?}");
        }
    }

    fn withdraw(entries: &mut FreeEntries, row: &PinRow, entry: usize) {
        row.clear(entry);
        entries.give_back(entry);
        row.set_high_water(entries.high_water());
    }
}

/// Which entries are in use: a bitmap, lowest first, so that the high-water mark stays low.
#[derive(Debug)]
struct FreeEntries {
    /// A set bit is an entry in use.
    used: [u64; WORDS],
    /// No entry below this word is free.
    first_word: usize,
    high_water: usize,
}

const WORDS: usize = PINS_PER_PROCESS.div_ceil(64);

impl FreeEntries {
    fn new() -> FreeEntries {
        FreeEntries { used: [0; WORDS], first_word: 0, high_water: 0 }
    }

    fn high_water(&self) -> usize {
        self.high_water
    }

    fn take_lowest(&mut self) -> Option<usize> {
        while self.first_word < WORDS {
            let word = &mut self.used[self.first_word];
            let bit = word.trailing_ones() as usize;
            let entry = self.first_word * 64 + bit;
            if bit < 64 && entry < PINS_PER_PROCESS {
                *word |= 1 << bit;
                self.high_water = self.high_water.max(entry + 1);
                return Some(entry);
            }
            if entry >= PINS_PER_PROCESS {
                return None;
            }
            self.first_word += 1;
        }
        None
    }

    fn give_back(&mut self, entry: usize) {
        self.used[entry / 64] &= !(1 << (entry % 64));
        self.first_word = self.first_word.min(entry / 64);
        // At most WORDS steps down, and each was paid for by a take on the way up.
        while self.high_water > 0 {
            let top = self.high_water - 1;
            let word = self.used[top / 64] & (u64::MAX >> (63 - top % 64));
            if word != 0 {
                self.high_water = (top / 64) * 64 + 64 - word.leading_zeros() as usize;
                return;
            }
            self.high_water = (top / 64) * 64;
        }
    }
}
