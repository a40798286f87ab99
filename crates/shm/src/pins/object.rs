//! An object's state word: `generation << 32 | state`, and the daemon's moves on it.

use super::PinRow;
use crate::sync::{AtomicU64, Ordering, fence};

/// Tells the objects that lived in one slot apart (PIN-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u32);

/// Where an object is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectState {
    /// The slot holds no object.
    Free,
    /// The object can be pinned and read.
    Sealed,
    /// The daemon is deciding about it, or has decided to take it away: no new pins.
    Closed,
}

/// What a state word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectWord {
    pub generation: Generation,
    pub state: ObjectState,
}

/// What came of a try to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseOutcome {
    /// Nobody reads it and nobody can start to: free it, or reopen it.
    Closed,
    /// Somebody reads it; it is open again.
    Pinned,
    /// No sealed object of that generation is in the slot.
    Stale,
}

/// The state word of one object slot, in shared memory.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct ObjectSlot {
    word: AtomicU64,
}

impl ObjectSlot {
    /// A free slot (in shared memory, zeroes do as well).
    pub fn new() -> ObjectSlot {
        ObjectSlot::default()
    }

    /// FREE -> SEALED under a new generation, which readers must name. Panics if the slot is not
    /// free: who seals owns the slot.
    pub fn seal(&self) -> Generation {
        let before = self.word.load(Ordering::Relaxed);
        let found = ObjectWord::decode(before);
        assert_eq!(found.state, ObjectState::Free, "seal of a slot in use: {found:?}");
        let generation = Generation(found.generation.0.wrapping_add(1).max(1));
        let sealed = ObjectWord { generation, state: ObjectState::Sealed }.encode();
        // Release: pairs with the Acquire in may_read(): who pins sees the object's bytes.
        let swapped =
            self.word.compare_exchange(before, sealed, Ordering::Release, Ordering::Relaxed);
        assert!(swapped.is_ok(), "two owners seal one slot: {found:?}");
        generation
    }

    /// SEALED -> CLOSED if no row of `live` has an entry for `slot`, which is this slot's index;
    /// `live` must list every process that could hold a pin (PIN-5).
    pub fn close<'a>(
        &self,
        slot: u32,
        generation: Generation,
        live: impl IntoIterator<Item = &'a PinRow>,
    ) -> CloseOutcome {
        if !self.shift(generation, ObjectState::Sealed, ObjectState::Closed) {
            return CloseOutcome::Stale;
        }
        // Pairs with the fence in PinTable::pin (PIN-1, step 3).
        fence(Ordering::SeqCst);
        if live.into_iter().any(|row| row.contains(slot)) {
            self.reopen(generation);
            return CloseOutcome::Pinned;
        }
        CloseOutcome::Closed
    }

    /// CLOSED -> SEALED: the spill failed, or somebody asked for the object after all.
    pub fn reopen(&self, generation: Generation) -> bool {
        self.shift(generation, ObjectState::Closed, ObjectState::Sealed)
    }

    /// CLOSED -> FREE: the memory and the slot may be used again.
    pub fn free(&self, generation: Generation) -> bool {
        self.shift(generation, ObjectState::Closed, ObjectState::Free)
    }

    /// What the word says now; a snapshot. A word that no code of ours wrote reads as `Closed`.
    pub fn state(&self) -> ObjectWord {
        ObjectWord::decode(self.word.load(Ordering::Acquire))
    }

    fn shift(&self, generation: Generation, from: ObjectState, to: ObjectState) -> bool {
        let from = ObjectWord { generation, state: from }.encode();
        let to = ObjectWord { generation, state: to }.encode();
        // Release: pairs with the Acquire in state(), for seal() after free(); Acquire: likewise.
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

impl ObjectWord {
    const FREE: u32 = 0;
    const SEALED: u32 = 1;
    const CLOSED: u32 = 2;

    fn encode(self) -> u64 {
        let state = match self.state {
            ObjectState::Free => Self::FREE,
            ObjectState::Sealed => Self::SEALED,
            ObjectState::Closed => Self::CLOSED,
        };
        u64::from(self.generation.0) << 32 | u64::from(state)
    }

    fn decode(word: u64) -> ObjectWord {
        let state = match word as u32 {
            Self::FREE => ObjectState::Free,
            Self::SEALED => ObjectState::Sealed,
            _ => ObjectState::Closed,
        };
        ObjectWord { generation: Generation((word >> 32) as u32), state }
    }
}
