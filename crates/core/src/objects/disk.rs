//! Where objects lie in the spill file: one sparse file, cut into whole pages.
//!
//! A place is taken before bytes are written to it and keeps them until nobody needs them: an object
//! that was spilled is never written again. What is given back is punched out of the file by the
//! shell, so that the disk holds what lives, rounded up to pages. Where the file system cannot punch
//! holes, freed ranges are used again before the file grows, and its end is cut off when nothing
//! lies there any more: it then takes no more than it had to hold at its fullest, and the pieces in between
//! that were too small for what came.
//!
//! # Invariants
//! - DISK-1: taken and free ranges are disjoint, and make up the file up to `end`.
//! - DISK-2: the last range before `end` is taken.

use std::collections::BTreeMap;
use std::ops::Range;

use super::config::PAGE;
use super::event::SpillPlace;
use super::ranges::RangeSet;

#[derive(Debug, Default)]
pub(super) struct Disk {
    free: RangeSet,
    /// Start to length, in whole pages.
    taken: BTreeMap<u64, u64>,
    taken_bytes: u64,
    end: u64,
}

impl Disk {
    /// Room for `len` bytes; none where numbers end.
    pub(super) fn take(&mut self, len: u64) -> Option<SpillPlace> {
        assert!(len > 0);
        let bytes = len.checked_next_multiple_of(PAGE)?;
        let range = match self.free.take(bytes) {
            Some(range) => range,
            None => {
                let end = self.end.checked_add(bytes).filter(|end| *end <= BYTES_MAX)?;
                let range = self.end..end;
                self.end = end;
                range
            }
        };
        self.taken.insert(range.start, bytes);
        self.taken_bytes += bytes;
        Some(SpillPlace { offset: range.start, len })
    }

    /// Nobody needs what lies there. Returns the whole pages that it took, and where the file ends now.
    pub(super) fn release(&mut self, place: SpillPlace) -> (Range<u64>, u64) {
        let bytes = self.taken.remove(&place.offset).expect("DISK-1: a place is released once");
        assert!(place.len <= bytes, "DISK-1: {place:?} took {bytes} bytes");
        self.taken_bytes -= bytes;
        let range = place.offset..place.offset + bytes;
        self.free.insert(range.clone());
        let end = self.taken.last_key_value().map_or(0, |(start, len)| start + len);
        if end < self.end {
            self.free.remove(end..self.end);
            self.end = end;
        }
        (range, end)
    }

    /// On the disk, at least.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    /// Starts of the places that are taken.
    pub(super) fn taken(&self) -> impl Iterator<Item = u64> {
        self.taken.keys().copied()
    }

    pub(super) fn check(&self) {
        let mut whole = self.free.clone();
        whole.check();
        self.taken.iter().for_each(|(start, len)| whole.insert(*start..start + len));
        let file = (self.end > 0).then_some(0..self.end);
        assert!(whole.iter().eq(file), "DISK-1: {whole:?} of {}", self.end);
        let last = self.taken.last_key_value().map_or(0, |(start, len)| start + len);
        assert!(last == self.end, "DISK-2: {last} and {}", self.end);
        assert!(self.taken.values().sum::<u64>() == self.taken_bytes);
    }
}

/// Offsets in a file are signed, and those of the arena come before them in a `Location`.
const BYTES_MAX: u64 = 1 << 62;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_used_again_and_the_end_is_cut_off() {
        let mut disk = Disk::default();
        let places = [5000, 100, PAGE].map(|len| disk.take(len).unwrap());
        assert_eq!(places.map(|place| place.offset), [0, 2 * PAGE, 3 * PAGE]);
        assert_eq!(disk.release(places[1]), (2 * PAGE..3 * PAGE, 4 * PAGE));
        disk.check();
        assert_eq!(disk.take(1).unwrap().offset, 2 * PAGE);
        assert_eq!(disk.release(places[0]), (0..2 * PAGE, 4 * PAGE));
        assert_eq!(disk.release(places[2]), (3 * PAGE..4 * PAGE, 3 * PAGE));
        disk.check();
        assert_eq!(disk.take(3 * PAGE).unwrap().offset, 3 * PAGE);
        let last = SpillPlace { offset: 2 * PAGE, len: 1 };
        assert_eq!(disk.release(last), (2 * PAGE..3 * PAGE, 6 * PAGE));
        disk.check();
        assert_eq!(disk.release(SpillPlace { offset: 3 * PAGE, len: 9 }), (3 * PAGE..6 * PAGE, 0));
        disk.check();
        assert_eq!((disk.end, disk.taken_bytes(), disk.free.bytes()), (0, 0, 0));
        assert_eq!(disk.take(u64::MAX), None);
        assert_eq!(disk.take(BYTES_MAX + 1), None);
    }
}
