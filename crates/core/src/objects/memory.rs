//! Who has which part of the arena and which object-state slots.
//!
//! ```text
//!   free --grant--> extent of a process --ExtentReturned--> free
//!                     |  ^ what the haul has folded for a process is handed over to it
//!                     |  the process dies, or has left and unmaps the store
//!                     +--> pages under its objects: the node's --last object gone--> free
//!                     +--> the rest: free
//! ```
//! Whatever lies in the arena and is known here is a **tenant**: a stored object, one that is being
//! spilled, or one that is being freed. A page belongs to one process or to the node.
//!
//! # Invariants
//! - MEM-1: granted + free == capacity; extents, the node's pages and the free ranges are disjoint and
//!   make up the arena; warm ranges are free.
//! - MEM-2: tenants do not overlap, and each lies in an extent of its writer, or in the node's pages
//!   when it has none; the node's pages are exactly those under such tenants.
//! - MEM-3: a slot is in the pool, or with one process, or with one tenant that has no writer, or
//!   lent to one object in the spill file.
//! - MEM-4: what a process keeps is idle.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use hoplo_base::limits::{EXTENT_BYTES_MIN, OBJECT_ALIGN};
use hoplo_base::{Instant, ObjectId, ProcessId};
use hoplo_wire::Location;

use super::config::{Config, PAGE};
use super::estate::Estate;
use super::event::SpillPlace;
use super::ranges::RangeSet;

#[derive(Debug)]
pub(super) struct Memory {
    capacity_bytes: u64,
    arena_bytes: u64,
    free: RangeSet,
    /// The part of `free` that the system may have given memory to.
    warm: RangeSet,
    /// When the warm part last changed.
    warm_since: Instant,
    node: RangeSet,
    estates: BTreeMap<ProcessId, Estate>,
    /// By offset.
    tenants: BTreeMap<u64, Tenant>,
    slots: SlotPool,
    /// Slots of objects in the spill file.
    lent: BTreeSet<u32>,
}

/// What a dead process leaves.
pub(super) struct Legacy {
    /// They come back to the pool: their words are to be made free.
    pub(super) slots: Vec<u32>,
    /// In the spill file, and never sealed.
    pub(super) rooms: Vec<SpillPlace>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tenant {
    pub(super) object: ObjectId,
    pub(super) len: u64,
    pub(super) slot: u32,
    /// The live process in whose extent it lies; none for the node's.
    pub(super) writer: Option<ProcessId>,
}

/// Slots that nobody has.
#[derive(Debug)]
struct SlotPool {
    /// Never given out: from here up.
    fresh: u32,
    end: u32,
    returned: Vec<u32>,
}

impl Memory {
    pub(super) fn new(config: &Config, now: Instant) -> Self {
        let mut free = RangeSet::default();
        free.insert(0..config.arena_bytes);
        Self {
            capacity_bytes: config.capacity_bytes,
            arena_bytes: config.arena_bytes,
            free,
            warm: RangeSet::default(),
            warm_since: now,
            node: RangeSet::default(),
            estates: BTreeMap::new(),
            tenants: BTreeMap::new(),
            slots: SlotPool { fresh: 0, end: config.slots, returned: Vec::new() },
            lent: BTreeSet::new(),
        }
    }

    pub(super) fn join(&mut self, process: ProcessId) {
        let before = self.estates.insert(process, Estate::default());
        assert!(before.is_none(), "{process} joined twice");
    }

    /// The process is over, and may still write where it wrote. As its objects go, the pages come back of which nothing else can be its: it may
    /// be writing in the first and the last one. What else it has stays as it is.
    pub(super) fn leave(&mut self, process: ProcessId) {
        self.estate_mut(process).left = true;
        self.keep(process);
    }

    /// The process has nothing of the store mapped any more.
    pub(super) fn bury(&mut self, now: Instant, process: ProcessId) -> Legacy {
        let estate = self.estates.remove(&process).expect("who dies has joined");
        for extent in estate.extents.iter() {
            let mut rest = RangeSet::default();
            rest.insert(extent.clone());
            for (offset, tenant) in self.tenants.range_mut(extent) {
                assert!(tenant.writer == Some(process), "MEM-2: {tenant:?} in {process}'s extent");
                tenant.writer = None;
                let pages = pages_over(*offset, tenant.len);
                rest.subtract(pages.clone());
                for piece in missing(&self.node, pages) {
                    self.node.insert(piece);
                }
            }
            rest.iter().for_each(|piece| self.give_back(now, piece));
        }
        let unused: Vec<u32> = estate.slots.difference(&estate.slots_used).copied().collect();
        self.slots.returned.extend(&unused);
        let place = |(offset, len): (&u64, &u64)| SpillPlace { offset: *offset, len: *len };
        Legacy { slots: unused, rooms: estate.rooms.iter().map(place).collect() }
    }

    /// An extent of at least `bytes` for the process; a comfortable one if there is room.
    pub(super) fn grant(
        &mut self,
        now: Instant,
        process: ProcessId,
        bytes: u64,
    ) -> Option<Range<u64>> {
        let comfortable = bytes.max(EXTENT_BYTES_MIN);
        let range = self.cut(now, comfortable).or_else(|| self.cut(now, bytes))?;
        let estate = self.estate_mut(process);
        estate.extents.insert(range.clone());
        estate.kept_bytes += bytes.next_multiple_of(PAGE);
        Some(range)
    }

    /// It was asked for all its idle memory, and has none to give but what it gave.
    pub(super) fn keep(&mut self, process: ProcessId) {
        let estate = self.estate_mut(process);
        estate.kept_bytes = estate.idle_bytes();
    }

    /// At most `count` slots for the process.
    pub(super) fn grant_slots(&mut self, process: ProcessId, count: u32) -> Vec<u32> {
        let slots: Vec<u32> = (0..count).map_while(|_| self.slots.take()).collect();
        self.estate_mut(process).slots.extend(&slots);
        slots
    }

    /// A slot that was granted and never told: it did not come to what it was for.
    pub(super) fn revoke_slot(&mut self, process: ProcessId, slot: u32) {
        assert!(self.estate_mut(process).slots.remove(&slot), "MEM-3: slot {slot}");
        self.slots.returned.push(slot);
    }

    /// A slot for an object in the spill file.
    pub(super) fn lend_slot(&mut self) -> Option<u32> {
        let slot = self.slots.take()?;
        self.lent.insert(slot);
        Some(slot)
    }

    /// Its word is free.
    pub(super) fn return_slot(&mut self, slot: u32) {
        assert!(self.lent.remove(&slot), "MEM-3: slot {slot} is not lent");
        self.slots.returned.push(slot);
    }

    /// The process may write there, in the spill file.
    pub(super) fn grant_room(&mut self, process: ProcessId, place: SpillPlace) {
        let before = self.estate_mut(process).rooms.insert(place.offset, place.len);
        assert!(before.is_none(), "{place:?} was granted twice");
    }

    /// A process sealed an object in the spill file, where it was granted room: place and slot are the
    /// object's from now on. Else says what is wrong with that.
    pub(super) fn sealed_in_file(
        &mut self,
        from: ProcessId,
        object: ObjectId,
        location: Location,
    ) -> Result<SpillPlace, String> {
        let Location { slot, offset, len, .. } = location;
        let start = offset - self.arena_bytes;
        let estate = self.estates.get_mut(&from).expect("the caller knows that it has joined");
        let fits = estate.rooms.get(&start).is_some_and(|room| len > 0 && len <= *room);
        if !fits {
            return Err(format!("{object} at {location:?} is not in room of its writer"));
        }
        if estate.slots_used.contains(&slot) || !estate.slots.remove(&slot) {
            return Err(format!("{object} at {location:?} is not in a free slot of its writer"));
        }
        estate.rooms.remove(&start);
        self.lent.insert(slot);
        Ok(SpillPlace { offset: start, len })
    }

    /// A process gives back room in the spill file, and keeps the slot; else says what is wrong with that.
    pub(super) fn return_room(
        &mut self,
        from: ProcessId,
        offset: u64,
        len: u64,
    ) -> Result<SpillPlace, String> {
        let place = SpillPlace { offset: offset - self.arena_bytes, len };
        let rooms = &mut self.estate_mut(from).rooms;
        if rooms.get(&place.offset) != Some(&len) {
            return Err(format!("{len} bytes at {offset} are not room that it was granted"));
        }
        rooms.remove(&place.offset);
        Ok(place)
    }

    /// Where in the address space of a `Location` the spill file begins.
    pub(super) fn file_starts(&self) -> u64 {
        self.arena_bytes
    }

    /// A process sealed an object in one of its extents; else says what is wrong with that.
    pub(super) fn sealed_in_extent(
        &mut self,
        from: ProcessId,
        object: ObjectId,
        location: Location,
    ) -> Result<(), String> {
        let Location { slot, offset, len, .. } = location;
        let end = offset.checked_add(len).filter(|end| *end <= self.arena_bytes);
        let Some(end) = end.filter(|_| len > 0 && offset.is_multiple_of(OBJECT_ALIGN)) else {
            return Err(format!("{object} at {location:?} is no place in the arena"));
        };
        if let Some(other) = self.tenant_within(offset..end) {
            return Err(format!("{object} at {location:?} lies over {}", other.object));
        }
        let pages = self.pages_alone(offset, len);
        let estate = self.estates.get_mut(&from).expect("the caller knows that it has joined");
        if !estate.extents.covers(offset..end) {
            return Err(format!("{object} at {location:?} is not in an extent of its writer"));
        }
        if !estate.slots.contains(&slot) || !estate.slots_used.insert(slot) {
            return Err(format!("{object} at {location:?} is not in a free slot of its writer"));
        }
        estate.tenant_bytes += pages.end - pages.start;
        estate.lower_kept();
        self.tenants.insert(offset, Tenant { object, len, slot, writer: Some(from) });
        Ok(())
    }

    /// Nothing lies at `offset` any more and its slot's word is free. Range and slot go back to the
    /// writer, or, where that is over, to the node. Also says how many bytes of pages came free.
    pub(super) fn vacate(&mut self, now: Instant, offset: u64) -> (Tenant, u64) {
        let tenant = self.tenants.remove(&offset).expect("a tenant leaves once");
        let pages = self.pages_alone(offset, tenant.len);
        let bytes = pages.end - pages.start;
        if let Some(writer) = tenant.writer {
            let estate = self.estate_mut(writer);
            assert!(estate.slots_used.remove(&tenant.slot), "MEM-3: slot {}", tenant.slot);
            estate.tenant_bytes -= bytes;
            if !estate.left {
                return (tenant, bytes);
            }
            estate.slots.remove(&tenant.slot);
            self.slots.returned.push(tenant.slot);
            let whole = offset.next_multiple_of(PAGE)..(offset + tenant.len) / PAGE * PAGE;
            if !whole.is_empty() {
                self.estate_mut(writer).extents.remove(whole.clone());
                self.give_back(now, whole);
            }
            self.keep(writer);
            return (Tenant { writer: None, ..tenant }, bytes);
        }
        self.slots.returned.push(tenant.slot);
        if bytes > 0 {
            self.node.remove(pages.clone());
            self.give_back(now, pages);
        }
        (tenant, bytes)
    }

    /// Its writer, who has left, had freed what lay at `offset`: range and slot are as what else it has.
    pub(super) fn vacated(&mut self, offset: u64) {
        let tenant = self.tenants.remove(&offset).expect("a tenant leaves once");
        let pages = self.pages_alone(offset, tenant.len);
        let writer = tenant.writer.expect("who frees it has the store mapped");
        let estate = self.estate_mut(writer);
        assert!(estate.slots_used.remove(&tenant.slot), "MEM-3: slot {}", tenant.slot);
        estate.tenant_bytes -= pages.end - pages.start;
        self.keep(writer);
    }

    /// Of the pages over what is no tenant yet, or no more, those that no tenant touches.
    fn pages_alone(&self, offset: u64, len: u64) -> Range<u64> {
        let mut pages = pages_over(offset, len);
        if let Some((start, before)) = self.tenants.range(..offset).next_back() {
            pages.start = pages.start.max((start + before.len).next_multiple_of(PAGE));
        }
        if let Some((start, _)) = self.tenants.range(offset..).next() {
            pages.end = pages.end.min(start / PAGE * PAGE);
        }
        pages.start..pages.end.max(pages.start)
    }

    /// Whole pages of one's extent, with a slot, are the other's, which writes there.
    pub(super) fn hand_over(&mut self, from: ProcessId, to: ProcessId, location: Location) {
        let Location { slot, offset, len, .. } = location;
        let pages = pages_over(offset, len);
        assert!(offset == pages.start, "MEM-1: {location:?} begins within a page");
        assert!(self.tenant_within(pages.clone()).is_none(), "MEM-2: {location:?} is somebody's");
        let giver = self.estate_mut(from);
        assert!(giver.extents.covers(pages.clone()), "MEM-1: {location:?} is not {from}'s");
        giver.extents.remove(pages.clone());
        giver.lower_kept();
        let had = giver.slots.remove(&slot) && !giver.slots_used.contains(&slot);
        assert!(had, "MEM-3: slot {slot} is not {from}'s");
        let taker = self.estate_mut(to);
        taker.kept_bytes += pages.end - pages.start;
        taker.extents.insert(pages);
        taker.slots.insert(slot);
    }

    /// A process gives back a free piece of an extent; else says what is wrong with that.
    pub(super) fn return_extent(
        &mut self,
        now: Instant,
        from: ProcessId,
        offset: u64,
        len: u64,
    ) -> Result<(), String> {
        let end =
            offset.checked_add(len).filter(|_| len > 0 && (offset | len).is_multiple_of(PAGE));
        let extents =
            &self.estates.get(&from).expect("the caller knows that it has joined").extents;
        let Some(end) = end.filter(|end| extents.covers(offset..*end)) else {
            return Err(format!("{len} bytes at {offset} are not in its extents"));
        };
        if let Some(tenant) = self.tenant_within(offset..end) {
            return Err(format!("{len} bytes at {offset} hold {}", tenant.object));
        }
        let estate = self.estate_mut(from);
        estate.extents.remove(offset..end);
        estate.lower_kept();
        self.give_back(now, offset..end);
        Ok(())
    }

    /// Warm memory that the system should have back now: what is over the capacity (there may be
    /// more addresses than bytes), and all of it after `idle` without a change.
    pub(super) fn cool(&mut self, now: Instant, idle: Duration) -> Vec<Range<u64>> {
        if now.since(self.warm_since) >= idle {
            let all = self.warm.iter().collect();
            self.warm = RangeSet::default();
            return all;
        }
        let mut cold = Vec::new();
        while self.warm.bytes() > self.free_bytes() {
            let over = self.warm.bytes() - self.free_bytes();
            let first = self.warm.iter().next().expect("it has bytes");
            let piece = first.start..first.end.min(first.start + over);
            self.warm.remove(piece.clone());
            self.warm_since = now;
            cold.push(piece);
        }
        cold
    }

    /// When the warm memory last changed, if there is some.
    pub(super) fn warm_since(&self) -> Option<Instant> {
        (self.warm.bytes() > 0).then_some(self.warm_since)
    }

    pub(super) fn granted_bytes(&self) -> u64 {
        self.arena_bytes - self.free.bytes()
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.capacity_bytes - self.granted_bytes()
    }

    /// The largest piece of free room, and how many there are.
    pub(super) fn free_pieces(&self) -> (u64, usize) {
        (self.longest_free(), self.free.iter().count())
    }

    pub(super) fn longest_free(&self) -> u64 {
        self.free.longest().min(self.free_bytes())
    }

    pub(super) fn has_slots(&self) -> bool {
        self.slots.has_some()
    }

    pub(super) fn tenant(&self, offset: u64) -> Option<&Tenant> {
        self.tenants.get(&offset)
    }

    pub(super) fn tenants(&self) -> impl Iterator<Item = (u64, &Tenant)> {
        self.tenants.iter().map(|(offset, tenant)| (*offset, tenant))
    }

    /// Whether the process has joined, and has something of the store mapped.
    pub(super) fn has_estate(&self, process: ProcessId) -> bool {
        self.estates.contains_key(&process)
    }

    pub(super) fn estates(&self) -> impl Iterator<Item = (ProcessId, &Estate)> {
        self.estates.iter().map(|(process, estate)| (*process, estate))
    }

    pub(super) fn check(&self) {
        let parts = || self.estates.values().map(|estate| &estate.extents).chain([&self.node]);
        let mut whole = self.free.clone();
        parts().flat_map(RangeSet::iter).for_each(|range| whole.insert(range));
        let arena = std::iter::once(0..self.arena_bytes);
        assert!(whole.iter().eq(arena), "MEM-1: {whole:?}");
        assert!(self.granted_bytes() <= self.capacity_bytes, "MEM-1");
        assert!(parts().map(RangeSet::bytes).sum::<u64>() == self.granted_bytes(), "MEM-1");
        assert!(self.warm.iter().all(|range| self.free.covers(range)), "MEM-1: warm is free");
        parts().chain([&self.free, &self.warm]).for_each(RangeSet::check);

        let mut end = 0;
        let mut under = RangeSet::default();
        for (offset, tenant) in &self.tenants {
            assert!(end <= *offset, "MEM-2: {tenant:?} overlaps");
            end = offset + tenant.len;
            match tenant.writer {
                Some(writer) => {
                    let estate = &self.estates[&writer];
                    assert!(estate.extents.covers(*offset..end), "MEM-2: {tenant:?}");
                    assert!(estate.slots_used.contains(&tenant.slot), "MEM-3: {tenant:?}");
                }
                None => missing(&under, pages_over(*offset, tenant.len))
                    .into_iter()
                    .for_each(|piece| under.insert(piece)),
            }
        }
        assert!(under == self.node, "MEM-2: the node's pages {:?}, needed {under:?}", self.node);

        let orphans = self.tenants.values().filter(|tenant| tenant.writer.is_none());
        let slots: Vec<u32> =
            (self.estates.values().flat_map(|estate| estate.slots.iter().copied()))
                .chain(self.slots.returned.iter().copied())
                .chain(self.lent.iter().copied())
                .chain(orphans.map(|tenant| tenant.slot))
                .collect();
        let distinct: BTreeSet<u32> = slots.iter().copied().collect();
        assert!(slots.len() == distinct.len(), "MEM-3: a slot is in two places");
        assert!(distinct.len() == self.slots.fresh as usize, "MEM-3: a slot is nowhere");
        for (process, estate) in &self.estates {
            let mine = || self.tenants.values().filter(|tenant| tenant.writer == Some(*process));
            assert!(estate.slots_used.is_subset(&estate.slots), "MEM-3: {process}");
            assert!(estate.slots_used.len() == mine().count(), "MEM-3: {process}");
            let mut under = RangeSet::default();
            for (offset, tenant) in &self.tenants {
                if tenant.writer == Some(*process) {
                    let pages = missing(&under, pages_over(*offset, tenant.len));
                    pages.into_iter().for_each(|piece| under.insert(piece));
                }
            }
            assert!(estate.tenant_bytes == under.bytes(), "MEM-2: {process}");
            assert!(estate.kept_bytes <= estate.idle_bytes(), "MEM-4: {process}");
        }
    }

    /// `bytes` (rounded up to pages) out of the free addresses, warm ones first.
    fn cut(&mut self, now: Instant, bytes: u64) -> Option<Range<u64>> {
        let bytes = bytes.checked_next_multiple_of(PAGE)?;
        if bytes > self.free_bytes() {
            return None;
        }
        let range = match self.warm.take(bytes) {
            Some(warm) => {
                self.free.remove(warm.clone());
                warm
            }
            None => {
                let range = self.free.take(bytes)?;
                self.warm.subtract(range.clone());
                range
            }
        };
        self.warm_since = now;
        Some(range)
    }

    fn give_back(&mut self, now: Instant, range: Range<u64>) {
        self.free.insert(range.clone());
        self.warm.insert(range);
        self.warm_since = now;
    }

    fn tenant_within(&self, range: Range<u64>) -> Option<Tenant> {
        let (offset, tenant) = self.tenants.range(..range.end).next_back()?;
        (range.start < offset + tenant.len).then_some(*tenant)
    }

    fn estate_mut(&mut self, process: ProcessId) -> &mut Estate {
        self.estates.get_mut(&process).expect("the process has joined and lives")
    }
}

impl SlotPool {
    fn take(&mut self) -> Option<u32> {
        if let Some(slot) = self.returned.pop() {
            return Some(slot);
        }
        let slot = self.fresh;
        (slot < self.end).then(|| {
            self.fresh += 1;
            slot
        })
    }

    fn has_some(&self) -> bool {
        !self.returned.is_empty() || self.fresh < self.end
    }
}

fn pages_over(offset: u64, len: u64) -> Range<u64> {
    offset / PAGE * PAGE..(offset + len).next_multiple_of(PAGE)
}

/// What of `range` is not in `set`.
fn missing(set: &RangeSet, range: Range<u64>) -> Vec<Range<u64>> {
    let mut rest = RangeSet::default();
    rest.insert(range.clone());
    for piece in set.pieces_within(range) {
        rest.remove(piece);
    }
    rest.iter().collect()
}
