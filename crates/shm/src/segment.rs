//! The node's metadata segment: doorbells, object state words and pin rows in one memfd.
//!
//! ```text
//!   0        header: magic, version, the three counts
//!   4096     PROCESS_SLOTS x Doorbell   (128 bytes each: two cache lines, fetched as a pair)
//!   ...      OBJECT_SLOTS  x ObjectSlot (8 bytes each)
//!   ...      PROCESS_SLOTS x PinRow     (a line, then PINS_PER_PROCESS entries of 4 bytes)
//! ```
//! The daemon creates it and hands the descriptor and a **process slot** to each process; every
//! process of the node maps it read-write. The file is sparse: only touched pages cost memory, a
//! node with 16 processes and 10,000 objects touches about 100 KiB. All zeroes is the empty state
//! of everything behind the header (SHM-3).
//!
//! # Invariants
//! - SEG-1: slots are given out by the daemon alone; a slot belongs to at most one live process.
//! - SEG-2: what lies in the segment is reached only through `&Doorbell`, `&ObjectSlot` and
//!   `&PinRow`, all made of atomics: any bytes that a peer may leave there are a valid value.

#[cfg(not(loom))]
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use hoplo_base::limits;

use crate::doorbell::Doorbell;
#[cfg(not(loom))]
use crate::mapping::{Access, MapError, Mapping, create_sealed};
use crate::pins::{ObjectSlot, PinRow};

/// Processes of one node that can be attached at once.
pub const PROCESS_SLOTS: usize = if cfg!(loom) { 2 } else { limits::PROCESSES_MAX };
/// Large objects in one node's store at once.
pub const OBJECT_SLOTS: usize = if cfg!(loom) { 2 } else { limits::OBJECTS_STORED_MAX };
/// Objects that one process can have pinned at once.
pub const PINS_PER_PROCESS: usize = if cfg!(loom) { 2 } else { limits::PINS_PER_PROCESS_MAX };

/// A process's place in the segment, below [`PROCESS_SLOTS`]. Slot 0 is the daemon's by custom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessSlot(u32);

impl ProcessSlot {
    /// `None` if there is no such slot.
    pub fn new(index: u32) -> Option<ProcessSlot> {
        ((index as usize) < PROCESS_SLOTS).then_some(ProcessSlot(index))
    }

    /// The number that travels in messages.
    pub fn index(self) -> u32 {
        self.0
    }
}

impl core::fmt::Display for ProcessSlot {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "slot:{}", self.0)
    }
}

/// The mapped segment.
#[derive(Debug)]
pub struct Segment {
    #[cfg(not(loom))]
    mapping: Mapping,
    #[cfg(loom)]
    model: Model,
}

impl Segment {
    /// The daemon's call: an empty segment, and the descriptor to send to the other processes.
    #[cfg(not(loom))]
    pub fn create() -> Result<(Arc<Segment>, OwnedFd), MapError> {
        let fd = create_sealed("hoplo-segment", layout::BYTES as u64)?;
        let mapping = Mapping::new(&fd, layout::BYTES as u64, Access::ReadWrite)?;
        // SAFETY: nobody else has the descriptor yet, and the header fits the first page.
        unsafe { mapping.at::<Header>(0).write(Header::OURS) };
        Ok((Arc::new(Segment { mapping }), fd))
    }

    /// Maps a segment that the daemon sent.
    #[cfg(not(loom))]
    pub fn open(fd: impl AsFd) -> Result<Arc<Segment>, MapError> {
        let mapping = Mapping::new(&fd, layout::BYTES as u64, Access::ReadWrite)?;
        // SAFETY: any bytes are a valid Header, and it was written before the file was sent.
        let found = unsafe { mapping.at::<Header>(0).read() };
        if found.magic != Header::OURS.magic {
            return Err(MapError::BadMagic { kind: "segment", found: found.magic });
        }
        if found != Header::OURS {
            return Err(MapError::BadVersion {
                kind: "segment",
                found: found.version,
                expected: Header::OURS.version,
            });
        }
        Ok(Arc::new(Segment { mapping }))
    }

    /// The bell of a process.
    pub fn doorbell(&self, process: ProcessSlot) -> &Doorbell {
        &self.doorbells()[process.0 as usize]
    }

    /// The state word of an object; `None` if there is no such slot (a peer sent nonsense).
    pub fn object(&self, slot: u32) -> Option<&ObjectSlot> {
        self.objects().get(slot as usize)
    }

    /// The pins of a process.
    pub fn pin_row(&self, process: ProcessSlot) -> &PinRow {
        &self.pin_rows()[process.0 as usize]
    }

    #[cfg(not(loom))]
    fn doorbells(&self) -> &[Doorbell; PROCESS_SLOTS] {
        // SAFETY: the layout reserves this range for doorbells and nothing else; atomics (SEG-2).
        unsafe { self.mapping.at(layout::DOORBELLS).as_ref() }
    }

    #[cfg(not(loom))]
    fn objects(&self) -> &[ObjectSlot; OBJECT_SLOTS] {
        // SAFETY: as for doorbells().
        unsafe { self.mapping.at(layout::OBJECTS).as_ref() }
    }

    #[cfg(not(loom))]
    fn pin_rows(&self) -> &[PinRow; PROCESS_SLOTS] {
        // SAFETY: as for doorbells().
        unsafe { self.mapping.at(layout::PIN_ROWS).as_ref() }
    }
}

#[cfg(not(loom))]
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct Header {
    magic: u64,
    version: u32,
    process_slots: u32,
    object_slots: u32,
    pins_per_process: u32,
}

#[cfg(not(loom))]
impl Header {
    const OURS: Header = Header {
        magic: u64::from_le_bytes(*b"hoploSEG"),
        version: 1,
        process_slots: PROCESS_SLOTS as u32,
        object_slots: OBJECT_SLOTS as u32,
        pins_per_process: PINS_PER_PROCESS as u32,
    };
}

#[cfg(not(loom))]
mod layout {
    use super::*;

    pub(super) const DOORBELLS: usize = 4096;
    pub(super) const OBJECTS: usize = DOORBELLS + PROCESS_SLOTS * size_of::<Doorbell>();
    pub(super) const PIN_ROWS: usize = OBJECTS + OBJECT_SLOTS * size_of::<ObjectSlot>();
    pub(super) const BYTES: usize = PIN_ROWS + PROCESS_SLOTS * size_of::<PinRow>();

    const _: () = assert!(size_of::<Doorbell>() == 128 && size_of::<ObjectSlot>() == 8);
    const _: () = assert!(OBJECTS.is_multiple_of(4096) && PIN_ROWS.is_multiple_of(4096));
}

/// The same three arrays in loom's memory.
#[cfg(loom)]
#[derive(Debug)]
struct Model {
    doorbells: Vec<Doorbell>,
    objects: Vec<ObjectSlot>,
    pin_rows: Vec<PinRow>,
}

#[cfg(loom)]
impl Segment {
    /// An empty segment in model memory.
    pub fn model() -> Arc<Segment> {
        Arc::new(Segment {
            model: Model {
                doorbells: (0..PROCESS_SLOTS).map(|_| Doorbell::new()).collect(),
                objects: (0..OBJECT_SLOTS).map(|_| ObjectSlot::new()).collect(),
                pin_rows: (0..PROCESS_SLOTS).map(|_| PinRow::new()).collect(),
            },
        })
    }

    fn doorbells(&self) -> &[Doorbell] {
        &self.model.doorbells
    }

    fn objects(&self) -> &[ObjectSlot] {
        &self.model.objects
    }

    fn pin_rows(&self) -> &[PinRow] {
        &self.model.pin_rows
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_see_one_memory_and_an_empty_one_is_small() {
        let (ours, fd) = Segment::create().unwrap();
        let theirs = Segment::open(&fd).unwrap();
        let generation = ours.object(17).unwrap().seal();
        assert_eq!(theirs.object(17).unwrap().state().generation, generation);
        assert!(ours.object(OBJECT_SLOTS as u32).is_none());
        assert!(ProcessSlot::new(PROCESS_SLOTS as u32).is_none());
        let touched_bytes = rustix::fs::fstat(&fd).unwrap().st_blocks * 512;
        assert!(touched_bytes <= 3 * 4096, "{touched_bytes} bytes for an empty segment");
    }

    #[test]
    fn a_file_of_another_kind_is_refused() {
        let fd = create_sealed("t", layout::BYTES as u64).unwrap();
        assert!(matches!(Segment::open(&fd), Err(MapError::BadMagic { found: 0, .. })));
        let newer = Header { version: 2, ..Header::OURS };
        let mapping = Mapping::new(&fd, 4096, Access::ReadWrite).unwrap();
        // SAFETY: our own file, mapped writable, nobody else has it.
        unsafe { mapping.at::<Header>(0).write(newer) };
        assert!(matches!(Segment::open(&fd), Err(MapError::BadVersion { found: 2, .. })));
    }
}
