//! RangeAllocator: which byte ranges of an arena are free. Pure bookkeeping, outside the arena.
//!
//! The daemon uses one to cut extents out of an arena; a client uses one to cut objects out of the
//! extents that it was granted. Best fit: of the free ranges that are large enough the smallest,
//! and of those the one at the lowest offset. Neighbours merge at once.
//!
//! ```text
//!   insert --> managed, free <--allocate / free--> managed, in use <-- insert_used
//!   remove <-----'
//! ```
//!
//! # Invariants
//! - EXTENT-1: `by_start` and `by_len` hold the same ranges.
//! - EXTENT-2: free ranges are not empty, do not touch each other, and lie within the capacity.
//! - EXTENT-3: every start and length is a multiple of [`RangeAllocator::GRANULE`].
//! - EXTENT-4: free bytes == sum of the free ranges, and <= managed bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Free ranges within `[0, capacity)`.
#[derive(Clone, Debug)]
pub struct RangeAllocator {
    capacity: u64,
    /// Bytes inserted and not removed, free or not.
    managed_bytes: u64,
    free_bytes: u64,
    /// Start to length.
    by_start: BTreeMap<u64, u64>,
    /// (length, start), for best fit.
    by_len: BTreeSet<(u64, u64)>,
}

impl RangeAllocator {
    /// Ranges start and end at multiples of this: a cache line, and the alignment of objects.
    pub const GRANULE: u64 = 64;

    /// Manages nothing yet: `insert` extents.
    pub fn new(capacity: u64) -> RangeAllocator {
        RangeAllocator {
            capacity: capacity / Self::GRANULE * Self::GRANULE,
            managed_bytes: 0,
            free_bytes: 0,
            by_start: BTreeMap::new(),
            by_len: BTreeSet::new(),
        }
    }

    /// Manages all of `[0, capacity)`, free.
    pub fn full(capacity: u64) -> RangeAllocator {
        let mut allocator = RangeAllocator::new(capacity);
        if allocator.capacity > 0 {
            allocator.insert(0..allocator.capacity);
        }
        allocator
    }

    /// A free range of at least `len` bytes (rounded up to granules; zero counts as one) whose
    /// start is a multiple of `align` (a power of two). Give exactly the returned range back.
    /// O(log n) for `align` up to a granule; beyond that it may pass over misaligned candidates.
    pub fn allocate(&mut self, len: u64, align: u64) -> Option<Range<u64>> {
        assert!(align.is_power_of_two(), "alignment {align}");
        let len = len.max(1).checked_next_multiple_of(Self::GRANULE)?;
        let align = align.max(Self::GRANULE);
        let fits = |&&(found, start): &&(u64, u64)| {
            let skipped = start.next_multiple_of(align) - start;
            skipped <= found && found - skipped >= len
        };
        let &(found, start) = self.by_len.range((len, 0)..).find(fits)?;
        let aligned = start.next_multiple_of(align);
        self.take_out(start, found);
        self.put_in(start..aligned);
        self.put_in(aligned + len..start + found);
        Some(aligned..aligned + len)
    }

    /// Gives back a range, or part of one, that `allocate` returned. Panics if any of it is free.
    pub fn free(&mut self, range: Range<u64>) {
        let in_use = self.managed_bytes - self.free_bytes;
        assert!(range.end - range.start <= in_use, "EXTENT-4: {range:?} of {in_use} bytes in use");
        self.merge_in(range);
    }

    /// A new extent was granted: it is managed from now on, and free.
    pub fn insert(&mut self, range: Range<u64>) {
        self.managed_bytes += range.end - range.start;
        self.merge_in(range);
    }

    /// A range that is in use was granted: `free` gives it back.
    pub fn insert_used(&mut self, range: Range<u64>) {
        self.check_range(&range);
        self.managed_bytes += range.end - range.start;
    }

    /// Takes a wholly free range out of the managed ones, to give it back to who granted it.
    /// False, and nothing changes, if any of it is in use.
    pub fn remove(&mut self, range: Range<u64>) -> bool {
        self.check_range(&range);
        let Some((start, len)) = self.free_around(range.start) else { return false };
        if start + len < range.end {
            return false;
        }
        self.take_out(start, len);
        self.put_in(start..range.start);
        self.put_in(range.end..start + len);
        self.managed_bytes -= range.end - range.start;
        true
    }

    /// Whether all of `range` is managed and free.
    pub fn is_free(&self, range: &Range<u64>) -> bool {
        self.free_around(range.start).is_some_and(|(start, len)| range.end <= start + len)
    }

    /// The longest free range, in bytes.
    pub fn largest_free(&self) -> u64 {
        self.by_len.last().map_or(0, |&(len, _)| len)
    }

    /// Bytes that are free.
    pub fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// Bytes that are managed, free or in use.
    pub fn managed_bytes(&self) -> u64 {
        self.managed_bytes
    }

    /// The free ranges by offset.
    pub fn free_ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.by_start.iter().map(|(&start, &len)| start..start + len)
    }

    /// Asserts every invariant above.
    pub fn check(&self) {
        let mut total = 0;
        let mut last_end = None;
        for (&start, &len) in &self.by_start {
            assert!(self.by_len.contains(&(len, start)), "EXTENT-1: {start}+{len}");
            assert!(last_end.is_none_or(|end| end < start), "EXTENT-2: {start} touches");
            assert!(len > 0 && start + len <= self.capacity, "EXTENT-2: {start}+{len}");
            assert!((start | len).is_multiple_of(Self::GRANULE), "EXTENT-3: {start}+{len}");
            last_end = Some(start + len);
            total += len;
        }
        assert_eq!(self.by_len.len(), self.by_start.len(), "EXTENT-1");
        assert_eq!(total, self.free_bytes, "EXTENT-4");
        assert!(self.free_bytes <= self.managed_bytes, "EXTENT-4");
    }

    /// Adds a free range, together with its free neighbours.
    fn merge_in(&mut self, range: Range<u64>) {
        self.check_range(&range);
        let Range { mut start, mut end } = range;
        if let Some((&next, &len)) = self.by_start.range(start..).next() {
            assert!(next >= end, "EXTENT-2: {start}..{end} is free already, from {next}");
            if next == end {
                self.take_out(next, len);
                end += len;
            }
        }
        if let Some((&last, &len)) = self.by_start.range(..start).next_back() {
            assert!(last + len <= start, "EXTENT-2: {start}..{end} is free already, from {last}");
            if last + len == start {
                self.take_out(last, len);
                start = last;
            }
        }
        self.put_in(start..end);
    }

    fn free_around(&self, offset: u64) -> Option<(u64, u64)> {
        let (&start, &len) = self.by_start.range(..=offset).next_back()?;
        (offset < start + len).then_some((start, len))
    }

    fn put_in(&mut self, range: Range<u64>) {
        if !range.is_empty() {
            let len = range.end - range.start;
            self.by_start.insert(range.start, len);
            self.by_len.insert((len, range.start));
            self.free_bytes += len;
        }
    }

    fn take_out(&mut self, start: u64, len: u64) {
        let by_start = self.by_start.remove(&start);
        assert!(self.by_len.remove(&(len, start)) && by_start == Some(len), "EXTENT-1");
        self.free_bytes -= len;
    }

    fn check_range(&self, range: &Range<u64>) {
        assert!(!range.is_empty() && range.end <= self.capacity, "EXTENT-2: {range:?}");
        assert!((range.start | range.end).is_multiple_of(Self::GRANULE), "EXTENT-3: {range:?}");
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
