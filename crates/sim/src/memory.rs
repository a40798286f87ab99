//! The shared segment, arena and spill file: state words, pins, and what lies where.

use std::collections::BTreeMap;
use std::ops::Range;

use hoplo_base::{ObjectId, ProcessId};
use hoplo_core::objects::{FreeOutcome, SpillOutcome, SpillPlace};
use hoplo_wire::Location;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Word {
    #[default]
    Free,
    Sealed,
    Closed,
}

#[derive(Debug)]
pub struct Memory {
    /// Where in the address space of a `Location` the spill file begins.
    file_starts: u64,
    /// State and generation by slot.
    words: BTreeMap<u32, (Word, u32)>,
    pins: BTreeMap<(u32, ProcessId), u32>,
    /// Bytes of what was read in each slot last.
    lens: BTreeMap<u32, u64>,
    /// By offset: what was written there last.
    contents: BTreeMap<u64, Vec<u8>>,
    /// Slots that are sealed once the bytes were looked at, by ticket.
    filling: BTreeMap<u64, (SpillPlace, u32)>,
    closed: BTreeMap<u64, (Location, SpillPlace)>,
}

/// A process's own extents and slots.
#[derive(Debug, Default)]
pub struct Extents {
    free: BTreeMap<u64, u64>,
    pub slots: Vec<u32>,
}

const PAGE: u64 = 4096;

fn rounded(len: u64) -> u64 {
    len.max(1).next_multiple_of(64)
}

impl Extents {
    /// Offset and slot.
    pub fn allocate(&mut self, len: u64) -> Option<(u64, u32)> {
        let len = rounded(len);
        let (start, end) = self.free.iter().find(|(s, e)| *e - *s >= len).map(|(s, e)| (*s, *e))?;
        let slot = self.slots.pop()?;
        self.free.remove(&start);
        if start + len < end {
            self.free.insert(start + len, end);
        }
        Some((start, slot))
    }

    pub fn insert(&mut self, offset: u64, len: u64) {
        let (mut start, mut end) = (offset, offset + len);
        if let Some((s, e)) = self.free.range(..start).next_back().map(|(s, e)| (*s, *e)) {
            assert!(e <= start, "a range is freed twice");
            if e == start {
                self.free.remove(&s);
                start = s;
            }
        }
        if let Some((s, e)) = self.free.range(start..).next().map(|(s, e)| (*s, *e)) {
            assert!(s >= end, "a range is freed twice");
            if s == end {
                self.free.remove(&s);
                end = e;
            }
        }
        self.free.insert(start, end);
    }

    /// An object's room and slot, and what is left of its last page. It is kept until the daemon wants it, or for other objects; a real process gives it back as soon
    /// as it is free. A daemon has to do with both.
    pub fn takes_over(&mut self, location: Location) {
        let end = location.offset + rounded(location.len);
        let rest = end.next_multiple_of(PAGE) - end;
        if rest > 0 {
            self.insert(end, rest);
        }
    }

    pub fn reclaim(&mut self, location: Location) {
        self.slots.push(location.slot);
        self.insert(location.offset, rounded(location.len));
    }

    pub fn free_ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.free.iter().map(|(start, end)| *start..*end)
    }

    /// Whole free pages, at least `bytes` if there are.
    pub fn give_back(&mut self, bytes: u64) -> Vec<(u64, u64)> {
        let mut given = Vec::new();
        let mut sum = 0;
        for (start, end) in self.free.clone() {
            let (from, to) = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
            if from >= to || sum >= bytes {
                continue;
            }
            self.free.remove(&start);
            if start < from {
                self.free.insert(start, from);
            }
            if to < end {
                self.free.insert(to, end);
            }
            sum += to - from;
            given.push((from, to - from));
        }
        given
    }
}

impl Memory {
    pub fn new(arena_bytes: u64) -> Self {
        Self {
            file_starts: arena_bytes,
            words: BTreeMap::new(),
            pins: BTreeMap::new(),
            lens: BTreeMap::new(),
            contents: BTreeMap::new(),
            filling: BTreeMap::new(),
            closed: BTreeMap::new(),
        }
    }

    /// Writes and seals; the generation.
    pub fn seal(&mut self, slot: u32, offset: u64, content: Vec<u8>) -> u32 {
        let word = self.words.entry(slot).or_default();
        assert!(word.0 == Word::Free, "slot {slot} is sealed while {word:?}");
        *word = (Word::Sealed, word.1 + 1);
        let generation = word.1;
        self.contents.insert(offset, content);
        generation
    }

    /// `live`: whose pins are looked at.
    fn close(&mut self, location: Location, live: &[u16]) -> Close {
        let all = (location.slot, ProcessId(0))..=(location.slot, ProcessId(u64::MAX));
        let mut pins = self.pins.range(all);
        let pinned = pins.any(|((_, process), _)| {
            let slot = process.slot() as u16;
            slot == 0 || live.contains(&slot) // slot 0 is the carrier's
        });
        let word = self.words.entry(location.slot).or_default();
        if *word != (Word::Sealed, location.generation) {
            return Close::Stale;
        }
        if pinned {
            return Close::Pinned;
        }
        word.0 = Word::Closed;
        Close::Closed
    }

    fn set(&mut self, location: Location, to: Word) {
        let word = self.words.entry(location.slot).or_default();
        assert!(*word == (Word::Closed, location.generation), "{location:?} is {word:?}");
        word.0 = to;
    }

    /// An object that only its writer ever saw.
    pub fn free_private(&mut self, location: Location, live: &[u16]) -> bool {
        let closed = matches!(self.close(location, live), Close::Closed);
        if closed {
            self.set(location, Word::Free);
        }
        closed
    }

    pub fn free(&mut self, location: Location, live: &[u16]) -> FreeOutcome {
        match self.close(location, live) {
            Close::Closed => {
                self.set(location, Word::Free);
                FreeOutcome::Done
            }
            Close::Pinned => FreeOutcome::Pinned,
            Close::Stale => FreeOutcome::Vanished,
        }
    }

    /// `None`: it is being written.
    pub fn begin_spill(
        &mut self,
        ticket: u64,
        location: Location,
        place: SpillPlace,
        live: &[u16],
    ) -> Option<SpillOutcome> {
        match self.close(location, live) {
            Close::Closed => {
                self.closed.insert(ticket, (location, place));
                None
            }
            Close::Pinned | Close::Stale => Some(SpillOutcome::Pinned),
        }
    }

    pub fn end_spill(&mut self, ticket: u64, disk_full: bool) -> SpillOutcome {
        let (location, place) = self.closed.remove(&ticket).expect("it was begun");
        if disk_full {
            self.set(location, Word::Sealed);
            return SpillOutcome::Failed("no space left on device".to_string());
        }
        let content = self.contents[&location.offset].clone();
        self.set(location, Word::Free);
        let before = self.contents.insert(self.file_starts + place.offset, content);
        assert!(before.is_none(), "{place:?} is in use");
        SpillOutcome::Done
    }

    pub fn begin_restore(&mut self, ticket: u64, place: SpillPlace, slot: u32) {
        self.filling.insert(ticket, (place, slot));
    }

    pub fn end_restore(&mut self, ticket: u64, fails: bool) -> Result<u32, String> {
        let (place, slot) = self.filling.remove(&ticket).expect("it was begun");
        if fails {
            return Err("input/output error".to_string());
        }
        let offset = self.file_starts + place.offset;
        let content = self.contents[&offset].clone();
        Ok(self.seal(slot, offset, content))
    }

    pub fn forget(&mut self, range: Range<u64>, end: u64) {
        let (from, to) = (self.file_starts + range.start, self.file_starts + range.end);
        self.contents.retain(|offset, _| *offset < from || *offset >= to);
        let behind = self.contents.range(self.file_starts + end..).next();
        assert!(behind.is_none(), "the file is cut off at {end}: {behind:?}");
    }

    pub fn reset_slots(&mut self, slots: &[u32]) {
        for slot in slots {
            self.words.entry(*slot).or_default().0 = Word::Free;
        }
    }

    /// False: it moved.
    pub fn pin(&mut self, location: Location, process: ProcessId) -> bool {
        let sealed = self.is_there(location);
        if sealed {
            self.lens.insert(location.slot, location.len);
            *self.pins.entry((location.slot, process)).or_default() += 1;
        }
        sealed
    }

    pub fn unpin(&mut self, location: Location, process: ProcessId) {
        let count = self.pins.get_mut(&(location.slot, process)).expect("it was pinned");
        *count -= 1;
        if *count == 0 {
            self.pins.remove(&(location.slot, process));
        }
    }

    /// What was sealed there is there still.
    pub fn is_there(&self, location: Location) -> bool {
        self.words.get(&location.slot) == Some(&(Word::Sealed, location.generation))
    }

    pub fn wipe(&mut self, process: ProcessId) {
        self.pins.retain(|(_, by), _| *by != process);
    }

    pub fn content(&self, location: Location) -> &[u8] {
        &self.contents[&location.offset]
    }

    /// Of objects that somebody reads.
    pub fn pinned_bytes(&self) -> u64 {
        let mut slots: Vec<u32> = self.pins.keys().map(|(slot, _)| *slot).collect();
        slots.dedup();
        slots.iter().map(|slot| self.lens[slot]).sum()
    }

    /// Of what is being made readable.
    pub fn filling_bytes(&self, ticket: u64) -> u64 {
        self.filling[&ticket].0.len
    }

    /// Objects in the spill file.
    pub fn on_disk(&self) -> usize {
        self.contents.range(self.file_starts..).count()
    }
}

enum Close {
    Closed,
    Pinned,
    Stale,
}

/// Bytes of a value: how many refs lie inside, whose they are, the refs, and so many more bytes.
pub fn encode_content(object: ObjectId, contains: &[ObjectId], padding: usize) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(contains.len()).expect("programs pick few refs")];
    bytes.extend(object.to_bytes());
    for inner in contains {
        bytes.extend(inner.to_bytes());
    }
    bytes.resize(bytes.len() + padding, 0);
    bytes
}

pub fn decode_content(bytes: &[u8]) -> (ObjectId, Vec<ObjectId>) {
    let mut ids = bytes[1..]
        .chunks_exact(20)
        .take(1 + usize::from(bytes[0]))
        .map(|id| ObjectId::from_bytes(id.try_into().expect("chunks are of twenty")));
    let object = ids.next().expect("content names its object");
    (object, ids.collect())
}
