//! Where the numbers lie in the bytes of a value, found out without Python.
//!
//! A value that can be folded is an array of numpy, or a dict, list or tuple of such values, in the plain form
//! (`crates/py/src/values/plain.rs`). Its bytes are **numbers**, the data of its arrays, and the **skeleton**: tags, keys, dtypes and
//! shapes. Between the two are **gaps**, which depend on how an array came into its store. So two values can be folded if
//! their parts are of the same kinds, and, but for gaps, of the same lengths, and their skeletons are equal.
//!
//! # Invariants
//! - LAY-1: the parts cover all bytes, in order, and none is empty. Of a value that is still coming they cover a front of it.

use hoplo_base::limits::{FOLD_ARRAYS_MAX, FOLD_SKELETON_BYTES_MAX};
use serde::{Deserialize, Serialize};

use crate::plain::{
    ARRAY, BYTES, DEPTH_MAX, DICT, FALSE, FLOAT, INT, LIST, NONE, STR, TRUE, TUPLE,
};

/// Of one value. By default nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    parts: Vec<Part>,
}

/// What lies in the first bytes of a value beside its numbers: where, and which bytes. So the layout of these first bytes can be found out without the numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Front(Vec<(u64, Vec<u8>)>);

impl Front {
    /// Lays it in its place. False: it is longer than that.
    pub fn lay(&self, place: &mut [u8]) -> bool {
        self.0.iter().all(|(start, bytes)| {
            let from = place.get_mut(*start as usize..).and_then(|it| it.get_mut(..bytes.len()));
            from.map(|place| place.copy_from_slice(bytes)).is_some()
        })
    }
}

/// It begins where the one before it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub end: usize,
    pub kind: PartKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// Of the skeleton.
    Skeleton,
    /// One byte of the skeleton, of which `plain::WRITABLE` says nothing about the numbers.
    Flags,
    /// In front of an array's data, which begins at a multiple of its alignment: how long it is, and whatever lies there.
    Gap,
    Numbers(Numbers),
}

/// In native byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// Truth values, of a byte each.
    Bool,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F16,
    /// bfloat16: the upper half of an F32.
    Bf16,
    F32,
    F64,
    /// Two of F32.
    C64,
    /// Two of F64.
    C128,
}

/// Why a value cannot be folded here. Tasks fold it, or say what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("its bytes end too early, or go on behind its end")]
    Length,
    /// Only of a value that is still coming.
    #[error("it goes on in bytes that did not come yet")]
    Coming,
    #[error("there is something in it that is no array, or that only Python can read (tag {0})")]
    Tag(u8),
    #[error("there is an array of dtype {0} in it")]
    Dtype(u8),
    #[error("it has too many arrays, is too deep, or has too much beside its arrays")]
    TooLarge,
    #[error("there is no array in it")]
    NoArray,
}

impl Layout {
    /// Of the value that these are all bytes of.
    pub fn of(bytes: &[u8]) -> Result<Layout, Unfit> {
        Layout::begun(bytes, bytes.len())
    }

    /// As much as is known of a value of `len` bytes, of which these came.
    pub fn begun(bytes: &[u8], len: usize) -> Result<Layout, Unfit> {
        assert!(bytes.len() <= len, "no more comes than there is");
        let mut reader = Reader { bytes, len, at: 0, parts: Vec::new(), arrays: 0, skeleton: 0 };
        match reader.whole() {
            Ok(()) => {}
            Err(Unfit::Coming) if bytes.len() < len => {}
            Err(unfit) => return Err(unfit),
        }
        Ok(Layout { parts: reader.parts })
    }

    /// Of these first bytes of a value of `len` bytes, those that are no numbers.
    pub fn front(bytes: &[u8], len: usize) -> Result<Front, Unfit> {
        let layout = Layout::begun(bytes, len)?;
        let mut front = Vec::new();
        for (part, start, end) in layout.between(0, bytes.len()) {
            let end = match layout.parts[part].kind {
                PartKind::Numbers(_) => continue,
                PartKind::Skeleton | PartKind::Flags => end,
                // But for the length, what lies there says nothing.
                PartKind::Gap => end.min(start + Layout::gap_head(bytes[start])),
            };
            front.push((start as u64, bytes[start..end].to_vec()));
        }
        // Of what it is part of it is not known yet.
        let known = layout.end().min(bytes.len());
        front.push((known as u64, bytes[known..].to_vec()));
        Ok(Front(front))
    }

    /// The same value, with its gaps as long as those of a front. `None`: it is another value.
    pub fn moved(&self, front: &Layout) -> Option<Layout> {
        if !(0..front.parts.len()).all(|part| front.fits(self, part)) {
            return None;
        }
        let (mut at, mut parts) = (0, Vec::with_capacity(self.parts.len()));
        for (part, Part { kind, end }) in self.parts.iter().enumerate() {
            at += match front.parts.get(part).filter(|_| *kind == PartKind::Gap) {
                Some(gap) => gap.end - front.start(part),
                None => end - self.start(part),
            };
            parts.push(Part { end: at, kind: *kind });
        }
        Some(Layout { parts })
    }

    /// Up to where it is known.
    pub fn end(&self) -> usize {
        self.parts.last().map_or(0, |part| part.end)
    }

    /// Where this part begins.
    pub fn start(&self, part: usize) -> usize {
        part.checked_sub(1).map_or(0, |before| self.parts[before].end)
    }

    /// Whether these parts of two values may be folded, as far as that can be seen without their bytes.
    pub fn fits(&self, other: &Layout, part: usize) -> bool {
        let kind = |layout: &Layout| layout.parts.get(part).map(|part| part.kind);
        let len = |layout: &Layout| layout.parts[part].end - layout.start(part);
        kind(self) == kind(other)
            && kind(self).is_some_and(|it| it == PartKind::Gap || len(self) == len(other))
    }

    /// Of these, those that are numbers: their kind, start, end.
    pub fn numbers_between(
        &self,
        from: usize,
        to: usize,
    ) -> impl Iterator<Item = (Numbers, usize, usize)> {
        self.between(from, to).filter_map(|(part, start, end)| match self.parts[part].kind {
            PartKind::Numbers(numbers) => Some((numbers, start, end)),
            PartKind::Skeleton | PartKind::Flags | PartKind::Gap => None,
        })
    }

    /// In so many bytes a gap that begins with this one says how long it is.
    pub fn gap_head(first: u8) -> usize {
        if first < u8::MAX { 1 } else { 9 }
    }

    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The kinds of numbers that are in it.
    pub fn numbers(&self) -> impl Iterator<Item = Numbers> {
        self.parts.iter().filter_map(|part| match part.kind {
            PartKind::Numbers(numbers) => Some(numbers),
            PartKind::Skeleton | PartKind::Flags | PartKind::Gap => None,
        })
    }

    /// Up to where no number is cut and the layout is known, of so many bytes that are there.
    pub fn whole(&self, there: usize) -> usize {
        let there = there.min(self.end());
        let at = self.parts.partition_point(|part| part.end <= there);
        let Some(part) = self.parts.get(at) else { return there };
        match part.kind {
            PartKind::Numbers(numbers) => there - (there - self.start(at)) % numbers.bytes(),
            PartKind::Skeleton | PartKind::Flags | PartKind::Gap => there,
        }
    }

    /// The parts that lie between these two places, cut to them: number, start, end.
    pub fn between(&self, from: usize, to: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        let first = self.parts.partition_point(|part| part.end <= from);
        (first..self.parts.len()).map_while(move |part| {
            let (start, end) = (self.start(part).max(from), self.parts[part].end.min(to));
            (start < end).then_some((part, start, end))
        })
    }
}

impl Numbers {
    /// Of the kinds of `crates/py/src/values/array.rs`.
    fn of_kind(kind: u8) -> Option<Numbers> {
        Some(match kind {
            1 => Numbers::Bool,
            2 => Numbers::I8,
            3 => Numbers::U8,
            4 => Numbers::I16,
            5 => Numbers::U16,
            6 => Numbers::I32,
            7 => Numbers::U32,
            8 => Numbers::I64,
            9 => Numbers::U64,
            10 => Numbers::F16,
            11 => Numbers::F32,
            12 => Numbers::F64,
            13 => Numbers::C64,
            14 => Numbers::C128,
            15 => Numbers::Bf16,
            _ => return None,
        })
    }

    pub fn bytes(self) -> usize {
        match self {
            Numbers::Bool | Numbers::I8 | Numbers::U8 => 1,
            Numbers::I16 | Numbers::U16 | Numbers::F16 | Numbers::Bf16 => 2,
            Numbers::I32 | Numbers::U32 | Numbers::F32 => 4,
            Numbers::I64 | Numbers::U64 | Numbers::F64 | Numbers::C64 => 8,
            Numbers::C128 => 16,
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    /// Of the value.
    len: usize,
    at: usize,
    parts: Vec<Part>,
    arrays: usize,
    /// Bytes of it so far.
    skeleton: usize,
}

impl Reader<'_> {
    fn whole(&mut self) -> Result<(), Unfit> {
        self.value(0)?;
        if self.at != self.len {
            return Err(Unfit::Length);
        }
        self.cut(PartKind::Skeleton)?;
        (self.arrays > 0).then_some(()).ok_or(Unfit::NoArray)
    }

    fn value(&mut self, depth: u32) -> Result<(), Unfit> {
        match self.byte()? {
            TUPLE | LIST => {
                for _ in 0..self.items(depth)? {
                    self.value(depth + 1)?;
                }
                Ok(())
            }
            DICT => {
                for _ in 0..self.items(depth)? {
                    self.key()?;
                    self.value(depth + 1)?;
                }
                Ok(())
            }
            ARRAY => self.array(),
            tag => Err(Unfit::Tag(tag)),
        }
    }

    fn items(&mut self, depth: u32) -> Result<usize, Unfit> {
        let count = self.count()?;
        if depth >= DEPTH_MAX || count > FOLD_ARRAYS_MAX {
            return Err(Unfit::TooLarge);
        }
        Ok(count)
    }

    fn key(&mut self) -> Result<(), Unfit> {
        match self.byte()? {
            NONE | FALSE | TRUE => Ok(()),
            INT | FLOAT => self.skip(8),
            STR | BYTES => {
                let len = self.count()?;
                self.skip(len)
            }
            tag => Err(Unfit::Tag(tag)),
        }
    }

    fn array(&mut self) -> Result<(), Unfit> {
        let kind = self.byte()?;
        let numbers = Numbers::of_kind(kind).ok_or(Unfit::Dtype(kind))?;
        self.cut(PartKind::Skeleton)?;
        self.byte()?;
        self.cut(PartKind::Flags)?;
        let dimensions = self.byte()?;
        let mut len = numbers.bytes();
        for _ in 0..dimensions {
            len = len.checked_mul(self.count()?).ok_or(Unfit::Length)?;
        }
        self.cut(PartKind::Skeleton)?;
        let gap = self.count()?;
        self.skip(gap)?;
        self.cut(PartKind::Gap)?;
        self.skip(len)?;
        self.cut(PartKind::Numbers(numbers))?;
        self.arrays += 1;
        (self.arrays <= FOLD_ARRAYS_MAX).then_some(()).ok_or(Unfit::TooLarge)
    }

    /// What was read since the last cut is a part.
    fn cut(&mut self, kind: PartKind) -> Result<(), Unfit> {
        let start = self.parts.last().map_or(0, |part| part.end);
        if start == self.at {
            return Ok(()); // LAY-1
        }
        if kind == PartKind::Skeleton {
            self.skeleton += self.at - start;
            if self.skeleton > FOLD_SKELETON_BYTES_MAX {
                return Err(Unfit::TooLarge);
            }
        }
        self.parts.push(Part { end: self.at, kind });
        Ok(())
    }

    fn skip(&mut self, count: usize) -> Result<(), Unfit> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.len);
        self.at = end.ok_or(Unfit::Length)?;
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, Unfit> {
        self.skip(1)?;
        self.bytes.get(self.at - 1).copied().ok_or(Unfit::Coming)
    }

    fn count(&mut self) -> Result<usize, Unfit> {
        let first = self.byte()?;
        if first < u8::MAX {
            return Ok(usize::from(first));
        }
        self.skip(8)?;
        let eight = self.bytes.get(self.at - 8..self.at).ok_or(Unfit::Coming)?;
        let eight = eight.try_into().expect("eight were skipped");
        usize::try_from(u64::from_le_bytes(eight)).map_err(|_| Unfit::Length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An array of so many f32 behind a gap.
    fn array(out: &mut Vec<u8>, flags: u8, count: u8, gap: u8) {
        out.extend([ARRAY, 11, flags, 1, count, gap]);
        out.extend(std::iter::repeat_n(0xee, usize::from(gap)));
        out.extend(std::iter::repeat_n(1, 4 * usize::from(count)));
    }

    fn nested() -> Vec<u8> {
        let mut bytes = vec![DICT, 2, STR, 1, b'a'];
        array(&mut bytes, 0, 3, 5);
        bytes.extend([INT, 1, 0, 0, 0, 0, 0, 0, 0, LIST, 1]);
        array(&mut bytes, 2, 1, 0);
        bytes
    }

    #[test]
    fn the_numbers_of_a_nested_value_are_found() {
        let bytes = nested();
        let layout = Layout::of(&bytes).unwrap();
        let kinds: Vec<PartKind> = layout.parts().iter().map(|part| part.kind).collect();
        use PartKind::{Flags, Gap, Skeleton};
        let numbers = PartKind::Numbers(Numbers::F32);
        let array = [Skeleton, Flags, Skeleton, Gap, numbers];
        assert_eq!(kinds, [array, array].concat());
        assert_eq!(layout.end(), bytes.len(), "LAY-1");
        let first = layout.parts()[4].end;
        assert_eq!(first, 5 + 6 + 5 + 12);
        // In the middle of a number.
        let whole = [first - 1, first, first + 1].map(|at| layout.whole(at));
        assert_eq!(whole, [first - 4, first, first + 1]);
        let cut: Vec<_> = layout.between(first - 8, first + 2).collect();
        assert_eq!(cut, [(4, first - 8, first), (5, first, first + 2)]);
        assert_eq!(layout.start(5), first);
    }

    #[test]
    fn values_that_differ_in_their_gaps_fit() {
        let of = |gap, count| {
            let mut bytes = Vec::new();
            array(&mut bytes, 0, count, gap);
            Layout::of(&bytes).unwrap()
        };
        let fits = |one: &Layout, other: &Layout| (0..5).all(|part| one.fits(other, part));
        assert!(fits(&of(0, 3), &of(9, 3)));
        assert!(!fits(&of(0, 3), &of(0, 4)));
        assert!(!of(0, 3).fits(&of(0, 3), 5), "there is no such part");
    }

    #[test]
    fn of_a_value_that_comes_as_much_is_known_as_came() {
        let bytes = nested();
        let whole = Layout::of(&bytes).unwrap();
        for came in 0..=bytes.len() {
            let begun = Layout::begun(&bytes[..came], bytes.len()).unwrap();
            assert!(whole.parts().starts_with(begun.parts()), "{came}");
            let known = whole.parts().iter().filter(|part| part.end <= came).count();
            assert!(begun.parts().len() + 1 >= known, "{came}");
            assert!(begun.whole(came) <= came);
        }
        let begun = Layout::begun(&[ARRAY, 11, 0, 1, 3], 20).unwrap();
        assert_eq!(begun.parts().len(), 3);
        assert_eq!(Layout::begun(&[ARRAY, 16], 20).unwrap_err(), Unfit::Dtype(16));
        assert_eq!(Layout::begun(&[ARRAY, 11, 0, 1, 9, 0], 20).unwrap_err(), Unfit::Length);
    }

    #[test]
    fn a_front_says_where_numbers_are_without_them() {
        let bytes = nested();
        for came in 0..=bytes.len() {
            let front = Layout::front(&bytes[..came], bytes.len()).unwrap();
            let mut place = vec![0x55; came];
            assert!(front.lay(&mut place));
            let layout = Layout::begun(&place, bytes.len()).unwrap();
            assert_eq!(layout, Layout::begun(&bytes[..came], bytes.len()).unwrap(), "{came}");
            for (part, start, end) in layout.between(0, came) {
                match layout.parts()[part].kind {
                    PartKind::Numbers(_) => assert!(place[start..end].iter().all(|it| *it == 0x55)),
                    PartKind::Gap => {}
                    PartKind::Skeleton | PartKind::Flags => {
                        assert_eq!(place[start..end], bytes[start..end]);
                    }
                }
            }
            assert!(came == 0 || !front.lay(&mut place[1..]), "{came}: there is no room");
        }
    }

    #[test]
    fn a_value_is_moved_to_where_a_front_has_its_numbers() {
        let of = |gap, count| {
            let mut bytes = vec![LIST, 2];
            array(&mut bytes, 0, count, gap);
            array(&mut bytes, 0, 2, 7);
            bytes
        };
        let (one, other) = (of(3, 4), of(9, 4));
        let [layout, wanted] = [&one, &other].map(|bytes| Layout::of(bytes).unwrap());
        for came in 0..=other.len() {
            let front = Layout::begun(&other[..came], other.len()).unwrap();
            let moved = layout.moved(&front).unwrap();
            let knows_gap = front.parts().len() > 3;
            assert_eq!(moved, if knows_gap { wanted.clone() } else { layout.clone() }, "{came}");
        }
        let mut another = Vec::new();
        array(&mut another, 0, 4, 0);
        assert_eq!(Layout::of(&another).unwrap().moved(&wanted), None);
    }

    #[test]
    fn what_cannot_be_folded_is_told() {
        let unfit = |bytes: &[u8]| Layout::of(bytes).unwrap_err();
        assert_eq!(unfit(&[]), Unfit::Length);
        assert_eq!(unfit(&[LIST, 0]), Unfit::NoArray);
        assert_eq!(unfit(&[LIST, 1, FLOAT]), Unfit::Tag(FLOAT));
        assert_eq!(unfit(&[32]), Unfit::Tag(32));
        assert_eq!(unfit(&[ARRAY, 0, 0, 0]), Unfit::Dtype(0));
        assert_eq!(unfit(&[ARRAY, 16, 0, 0]), Unfit::Dtype(16));
        let deep = [LIST, 1].repeat(DEPTH_MAX as usize + 1);
        assert_eq!(unfit(&deep), Unfit::TooLarge);
        let mut longer = nested();
        longer.push(0);
        assert_eq!(unfit(&longer), Unfit::Length);
        let huge = [vec![ARRAY, 12, 0, 2], [[255; 9], [255; 9]].concat()].concat();
        assert_eq!(unfit(&huge), Unfit::Length);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(prop_oneof![0..16u8, any::<u8>()], 0..200)) {
            if let Ok(layout) = Layout::of(&bytes) {
                prop_assert_eq!(layout.parts().last().unwrap().end, bytes.len(), "LAY-1");
            }
        }

        #[test]
        fn a_value_that_is_cut_is_no_value(len in 0..40usize) {
            let bytes = nested();
            prop_assume!(len < bytes.len());
            prop_assert!(Layout::of(&bytes[..len]).is_err());
        }
    }
}
