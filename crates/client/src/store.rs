//! This process's part of the object store: its extents, its free slots, its pins.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use hoplo_base::limits;
use hoplo_shm::{
    Arena, Claim, CloseOutcome, FileRoom, Generation, MapError, PinEntry, PinError, PinTable,
    ProcessSlot, RangeAllocator, Segment, SpillFile,
};
use hoplo_wire::Location;

use crate::Bytes;

pub(crate) struct Store {
    segment: Arc<Segment>,
    arena: Arc<Arena>,
    file: SpillFile,
    free: RangeAllocator,
    slots: Vec<u32>,
    pins: PinTable,
    /// Something was allocated since this was last cleared.
    pub(crate) used: bool,
    /// When the daemon last wanted room back.
    recalled: Option<Instant>,
    /// Pages of rooms that the haul wrote, and handed over: by where they begin, where they end.
    ///
    /// Such a room goes back to the daemon as soon as it is free, and is not kept for objects of this process: the haul needs the next one. Else it takes fresh memory
    /// for each, which costs 6 us a page: 40% of the CPU time of an all_to_all of 32 MB.
    handed: BTreeMap<u64, u64>,
    /// Of these, what is free and is to be returned.
    unhanded: Vec<(u64, u64)>,
}

/// Room for one object, with a slot.
pub(crate) struct Room {
    pub(crate) memory: Memory,
    pub(crate) slot: u32,
    pub(crate) len: u64,
}

/// Where an object is written.
pub(crate) enum Memory {
    /// A claimed range of one of our extents.
    Arena(Claim),
    /// Granted by the daemon for this one object. `offset`: as in a `Location`.
    File { room: Arc<FileRoom>, offset: u64 },
}

impl Store {
    pub(crate) fn new(
        segment: Arc<Segment>,
        arena: Arc<Arena>,
        file: SpillFile,
        process: ProcessSlot,
        slots: Vec<u32>,
    ) -> Self {
        let free = RangeAllocator::new(arena.capacity());
        let pins = PinTable::new(segment.clone(), process);
        let (handed, unhanded) = (BTreeMap::new(), Vec::new());
        Self {
            segment,
            arena,
            file,
            free,
            slots,
            pins,
            used: false,
            recalled: None,
            handed,
            unhanded,
        }
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
        Some(Room { memory: Memory::Arena(claim), slot, len })
    }

    /// What the daemon granted in the spill file, for an object of `len` bytes.
    pub(crate) fn allocate_in_file(
        &self,
        offset: u64,
        slot: u32,
        len: u64,
    ) -> Result<Room, MapError> {
        let start = offset.checked_sub(self.arena.capacity());
        let start = start.ok_or(MapError::BadSize { bytes: offset })?;
        let room = Arc::new(self.file.room(start, rounded(len))?);
        Ok(Room { memory: Memory::File { room, offset }, slot, len })
    }

    /// What the daemon granted in the spill file and cannot be used: the slot stays here.
    pub(crate) fn refuse_room(&mut self, slot: u32) {
        self.slots.push(slot);
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

    /// What the haul wrote and sealed there is ours to write on, with its slot and its pages.
    pub(crate) fn take_over(&mut self, location: Location) -> Room {
        assert!(self.unseal(location), "nobody else knows of it");
        self.take_room(location)
    }

    /// What the haul wrote there, and did not seal, is ours as well.
    pub(crate) fn take_room(&mut self, location: Location) -> Room {
        let Location { slot, offset, len, .. } = location;
        let end = (offset + rounded(len)).next_multiple_of(PAGE);
        self.free.insert_used(offset..end);
        self.handed.insert(offset, end);
        let claim = self.arena.claim(offset, rounded(len));
        let claim = claim.expect("the daemon hands over what nobody writes");
        self.used = true;
        Room { memory: Memory::Arena(claim), slot, len }
    }

    /// An allocation that was never sealed. What is to be returned to the daemon.
    pub(crate) fn abandon(&mut self, room: Room) -> Vec<(u64, u64)> {
        self.slots.push(room.slot);
        let len = rounded(room.len);
        match room.memory {
            Memory::Arena(claim) => {
                let offset = claim.offset();
                drop(claim);
                self.vacate(offset, len);
                std::mem::take(&mut self.unhanded)
            }
            Memory::File { offset, .. } => vec![(offset, len)],
        }
    }

    pub(crate) fn seal(&mut self, room: Room) -> Location {
        let object = self.segment.object(room.slot).expect("the daemon grants valid slots");
        let offset = match &room.memory {
            Memory::Arena(claim) => claim.offset(),
            Memory::File { offset, .. } => *offset,
        };
        drop(room.memory);
        let generation = object.seal().0;
        Location { slot: room.slot, generation, offset, len: room.len }
    }

    /// An object that only this process ever saw; false if the daemon is at it, or it lies in the spill file:
    /// then it is the daemon's to free.
    pub(crate) fn free_private(&mut self, location: Location) -> bool {
        let freed = location.offset < self.arena.capacity() && self.unseal(location);
        if freed {
            self.reclaim(location);
        }
        freed
    }

    /// A sealed object of which the daemon has not heard. What is to be returned to it.
    pub(crate) fn discard(&mut self, location: Location) -> Vec<(u64, u64)> {
        if location.offset < self.arena.capacity() {
            self.free_private(location);
            return std::mem::take(&mut self.unhanded);
        }
        assert!(self.unseal(location), "nobody else knows of it");
        self.slots.push(location.slot);
        vec![(location.offset, rounded(location.len))]
    }

    fn unseal(&self, location: Location) -> bool {
        let Some(object) = self.segment.object(location.slot) else { return false };
        let generation = Generation(location.generation);
        let closed = object.close(location.slot, generation, std::iter::empty());
        if closed != CloseOutcome::Closed {
            return false;
        }
        assert!(object.free(generation), "nobody else moves a word that we closed");
        true
    }

    /// The range and the slot are ours again.
    pub(crate) fn reclaim(&mut self, location: Location) {
        self.slots.push(location.slot);
        self.vacate(location.offset, location.len);
    }

    /// Nothing lies there any more.
    fn vacate(&mut self, offset: u64, len: u64) {
        let Some(end) = self.handed.remove(&offset) else {
            return self.free.free(offset..offset + rounded(len));
        };
        self.free.free(offset..end);
        assert!(self.free.remove(offset..end), "it was freed a moment ago");
        self.unhanded.push((offset, end - offset));
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

    /// What is not kept for the next objects, taken out to be returned.
    pub(crate) fn surplus(&mut self) -> Vec<(u64, u64)> {
        let mut pieces = std::mem::take(&mut self.unhanded);
        if let Some(surplus) = self.free.free_bytes().checked_sub(limits::WARM_BYTES_MAX) {
            pieces.extend(self.give_back(surplus));
        }
        pieces
    }

    pub(crate) fn pin(&mut self, location: Location) -> Result<PinEntry, PinError> {
        self.pins.pin(location.slot, Generation(location.generation))
    }

    /// Where a pinned object can be read.
    pub(crate) fn bytes(&self, location: Location) -> Result<Bytes, MapError> {
        let Location { offset, len, .. } = location;
        Ok(match offset.checked_sub(self.arena.capacity()) {
            None => Bytes::Arena { arena: self.arena.clone(), offset, len },
            Some(start) => Bytes::File(self.file.view(start, len)?),
        })
    }

    pub(crate) fn unpin(&mut self, pin: PinEntry) {
        self.pins.unpin(pin);
    }
}

const PAGE: u64 = 4096;

fn rounded(len: u64) -> u64 {
    len.max(1).next_multiple_of(limits::OBJECT_ALIGN)
}
