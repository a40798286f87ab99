//! A set of byte ranges: neighbours merge at once, best fit finds room.
//!
//! # Invariants
//! - RANGE-1: `by_start` and `by_len` hold the same ranges.
//! - RANGE-2: ranges are not empty and do not touch each other.
//! - RANGE-3: `bytes` is the sum of their lengths.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RangeSet {
    /// Start to length.
    by_start: BTreeMap<u64, u64>,
    /// (length, start).
    by_len: BTreeSet<(u64, u64)>,
    bytes: u64,
}

impl RangeSet {
    /// Adds a range of which nothing is here yet.
    pub(super) fn insert(&mut self, range: Range<u64>) {
        assert!(range.start < range.end, "RANGE-2: {range:?} is empty");
        assert!(!self.overlaps(range.clone()), "{range:?} is here already");
        let mut merged = range.clone();
        if let Some((&start, &len)) = self.by_start.range(..range.start).next_back()
            && start + len == range.start
        {
            self.drop_whole(start, len);
            merged.start = start;
        }
        if let Some(&len) = self.by_start.get(&range.end) {
            self.drop_whole(range.end, len);
            merged.end += len;
        }
        self.add_whole(merged);
    }

    /// Takes out a range that is wholly here.
    pub(super) fn remove(&mut self, range: Range<u64>) {
        assert!(self.covers(range.clone()), "{range:?} is not here");
        let removed = self.subtract(range.clone());
        assert!(removed == range.end - range.start);
    }

    /// Takes out whatever of `range` is here; returns how many bytes that was.
    pub(super) fn subtract(&mut self, range: Range<u64>) -> u64 {
        let hit = self.pieces_within(range.clone());
        for piece in &hit {
            let (&start, &len) =
                self.by_start.range(..=piece.start).next_back().expect("the piece lies in one");
            self.drop_whole(start, len);
            if start < piece.start {
                self.add_whole(start..piece.start);
            }
            if piece.end < start + len {
                self.add_whole(piece.end..start + len);
            }
        }
        hit.iter().map(|piece| piece.end - piece.start).sum()
    }

    /// Takes `len` bytes out of the smallest range that has them, at its lowest offset.
    pub(super) fn take(&mut self, len: u64) -> Option<Range<u64>> {
        assert!(len > 0);
        let &(_, start) = self.by_len.range((len, 0)..).next()?;
        self.remove(start..start + len);
        Some(start..start + len)
    }

    pub(super) fn covers(&self, range: Range<u64>) -> bool {
        let before = self.by_start.range(..=range.start).next_back();
        range.start < range.end && before.is_some_and(|(start, len)| range.end <= start + len)
    }

    pub(super) fn overlaps(&self, range: Range<u64>) -> bool {
        let before = self.by_start.range(..range.end).next_back();
        before.is_some_and(|(start, len)| range.start < start + len)
    }

    /// What of `range` is here, in order.
    pub(super) fn pieces_within(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let before = self.by_start.range(..range.start).next_back();
        let inside = self.by_start.range(range.start..range.end.max(range.start));
        before
            .into_iter()
            .chain(inside)
            .map(|(start, len)| (*start).max(range.start)..(start + len).min(range.end))
            .filter(|piece| piece.start < piece.end)
            .collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.by_start.iter().map(|(start, len)| *start..start + len)
    }

    pub(super) fn longest(&self) -> u64 {
        self.by_len.last().map_or(0, |(len, _)| *len)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn check(&self) {
        let by_start: BTreeSet<_> =
            self.by_start.iter().map(|(start, len)| (*len, *start)).collect();
        assert!(by_start == self.by_len, "RANGE-1");
        let ranges: Vec<_> = self.iter().collect();
        assert!(ranges.iter().all(|range| range.start < range.end), "RANGE-2");
        assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "RANGE-2");
        assert!(ranges.iter().map(|range| range.end - range.start).sum::<u64>() == self.bytes);
    }

    fn add_whole(&mut self, range: Range<u64>) {
        let len = range.end - range.start;
        self.by_start.insert(range.start, len);
        self.by_len.insert((len, range.start));
        self.bytes += len;
    }

    fn drop_whole(&mut self, start: u64, len: u64) {
        self.by_start.remove(&start);
        self.by_len.remove(&(len, start));
        self.bytes -= len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn neighbours_merge_and_the_smallest_fit_is_taken() {
        let mut set = RangeSet::default();
        set.insert(0..10);
        set.insert(20..25);
        set.insert(10..12);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0..12, 20..25]);
        assert_eq!(set.take(5), Some(20..25));
        assert_eq!(set.take(13), None);
        assert_eq!(set.take(12), Some(0..12));
        assert_eq!(set, RangeSet::default());
    }

    proptest! {
        #[test]
        fn agrees_with_a_set_of_numbers(steps in prop::collection::vec((0u8..3, 0u64..40, 1u64..9), 0..60)) {
            let mut set = RangeSet::default();
            let mut naive = BTreeSet::new();
            for (what, start, len) in steps {
                let range = start..start + len;
                let here = range.clone().filter(|at| naive.contains(at)).count() as u64;
                prop_assert_eq!(set.overlaps(range.clone()), here > 0);
                prop_assert_eq!(set.covers(range.clone()), here == len);
                match what {
                    0 if here == 0 => {
                        set.insert(range.clone());
                        naive.extend(range);
                    }
                    0 | 1 => {
                        prop_assert_eq!(set.subtract(range.clone()), here);
                        naive.retain(|at| !range.contains(at));
                    }
                    _ => if let Some(taken) = set.take(len) {
                        for at in taken {
                            prop_assert!(naive.remove(&at));
                        }
                    }
                }
                set.check();
                prop_assert_eq!(set.iter().flatten().collect::<BTreeSet<_>>(), naive.clone());
            }
        }
    }
}
