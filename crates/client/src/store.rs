//! This process's part of the object store: its extents, its free slots, its pins.

use std::sync::Arc;
use std::time::Instant;

use hoplo_base::limits;
use hoplo_shm::{
    Arena, Claim, CloseOutcome, Generation, PinEntry, PinError, PinTable, ProcessSlot,
    RangeAllocator, Segment,
};
use hoplo_wire::Location;

pub(crate) struct Store {
    segment: Arc<Segment>,
    arena: Arc<Arena>,
    free: RangeAllocator,
    slots: Vec<u32>,
    pins: PinTable,
    /// Something was allocated since this was last cleared.
    pub(crate) used: bool,
    /// When the daemon last wanted room back.
    recalled: Option<Instant>,
}

/// Room for one object: a claimed range and a slot.
pub(crate) struct Room {
    pub(crate) claim: Claim,
    pub(crate) slot: u32,
    pub(crate) len: u64,
}

impl Store {
    pub(crate) fn new(
        segment: Arc<Segment>,
        arena: Arc<Arena>,
        process: ProcessSlot,
        slots: Vec<u32>,
    ) -> Self {
        let free = RangeAllocator::new(arena.capacity());
        let pins = PinTable::new(segment.clone(), process);
        Self { segment, arena, free, slots, pins, used: false, recalled: None }
    }

    /// Room for an object of `len` bytes, if an extent here has it.
    pub(crate) fn allocate(&mut self, len: u64) -> Option<Room> {
        let slot = *self.slots.last()?;
        let range = self.free.allocate(rounded(len), limits::OBJECT_ALIGN)?;
        let claim = self
            .arena
            .claim(range.start, rounded(len))
            .expect("the allocator gives out each range once");
        self.slots.pop();
        self.used = true;
        Some(Room { claim, slot, len })
    }

    /// Whether a request should ask for slots, too.
    pub(crate) fn slots_short(&self) -> u32 {
        if self.slots.len() < 16 { limits::SLOTS_GRANT } else { 0 }
    }

    pub(crate) fn grant(&mut self, offset: u64, len: u64, slots: &[u32]) {
        if len > 0 {
            self.free.insert(offset..offset + len);
        }
        self.slots.extend_from_slice(slots);
    }

    /// An allocation that was never sealed.
    pub(crate) fn abandon(&mut self, room: Room) {
        let (offset, len) = (room.claim.offset(), rounded(room.len));
        drop(room.claim);
        self.slots.push(room.slot);
        self.free.free(offset..offset + len);
    }

    pub(crate) fn seal(&mut self, room: Room) -> Location {
        let object = self.segment.object(room.slot).expect("the daemon grants valid slots");
        let offset = room.claim.offset();
        drop(room.claim);
        let generation = object.seal().0;
        Location { slot: room.slot, generation, offset, len: room.len }
    }

    /// An object that only this process ever saw; false if the daemon is at it.
    pub(crate) fn free_private(&mut self, location: Location) -> bool {
        let Some(object) = self.segment.object(location.slot) else { return false };
        let generation = Generation(location.generation);
        let closed = object.close(location.slot, generation, std::iter::empty());
        if closed != CloseOutcome::Closed {
            return false;
        }
        assert!(object.free(generation), "nobody else moves a word that we closed");
        self.reclaim(location);
        true
    }

    /// The range and the slot are ours again.
    pub(crate) fn reclaim(&mut self, location: Location) {
        self.slots.push(location.slot);
        self.free.free(location.offset..location.offset + rounded(location.len));
    }

    /// Whole pages that are free, at least `bytes` of them if there are, taken out to be returned. The
    /// largest ranges go first.
    pub(crate) fn give_back(&mut self, bytes: u64) -> Vec<(u64, u64)> {
        let mut pieces: Vec<(u64, u64)> = self
            .free
            .free_ranges()
            .filter_map(|range| {
                let start = range.start.next_multiple_of(PAGE);
                let end = range.end / PAGE * PAGE;
                (start < end).then(|| (start, end - start))
            })
            .collect();
        pieces.sort_by_key(|(_, len)| std::cmp::Reverse(*len));
        let mut given = 0;
        pieces.retain(|(offset, len)| {
            let take = given < bytes;
            if take {
                given += len;
                let removed = self.free.remove(*offset..offset + len);
                assert!(removed, "it was free a moment ago, under the same lock");
            }
            take
        });
        pieces
    }

    /// The daemon wants so much back: what is free of it, taken out to be returned.
    pub(crate) fn recall(&mut self, bytes: u64) -> Vec<(u64, u64)> {
        self.recalled = Some(Instant::now());
        self.give_back(bytes)
    }

    /// Whether the node was short of room a moment ago.
    pub(crate) fn is_pressed(&self) -> bool {
        self.recalled.is_some_and(|at| at.elapsed() < limits::WARM_TIME)
    }

    /// What is free beyond `WARM_BYTES_MAX`, taken out to be returned.
    pub(crate) fn surplus(&mut self) -> Vec<(u64, u64)> {
        match self.free.free_bytes().checked_sub(limits::WARM_BYTES_MAX) {
            None | Some(0) => Vec::new(),
            Some(surplus) => self.give_back(surplus),
        }
    }

    pub(crate) fn pin(&mut self, location: Location) -> Result<PinEntry, PinError> {
        self.pins.pin(location.slot, Generation(location.generation))
    }

    pub(crate) fn unpin(&mut self, pin: PinEntry) {
        self.pins.unpin(pin);
    }
}

const PAGE: u64 = 4096;

fn rounded(len: u64) -> u64 {
    len.max(1).next_multiple_of(limits::OBJECT_ALIGN)
}
