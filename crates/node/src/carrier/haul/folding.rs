//! Objects of this node, folded into what comes as it comes.
//!
//! What came is folded in place, up to where no number is cut. It has to have the structure of the operands; where its arrays begin may
//! differ (`hoplo_wire::layout`).

use std::ops::Range;
use std::sync::Arc;

use hoplo_core::collective::{self, Lap, Turn};
use hoplo_net::Lent;
use hoplo_wire::FoldOp;
use hoplo_wire::layout::{Layout, Part, PartKind};
use hoplo_wire::plain::WRITABLE;

use super::lent::Pinned;

/// As it was ordered.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) op: FoldOp,
    pub(super) divide_by: Option<u32>,
    /// This node's place, of so many.
    pub(super) ring: Option<(u32, u32)>,
}

/// Of one attempt.
pub(super) struct Folding {
    op: FoldOp,
    divide_by: Option<u32>,
    /// In a ring. Then all members are alike, and so is what comes: gaps have the same lengths as well.
    lap: Option<Lap>,
    operands: Vec<(Arc<Pinned>, Layout)>,
    /// An object of this node, which they are folded into, instead of what comes.
    source: Option<(Arc<Pinned>, Layout)>,
    /// Of what comes, as far as it is known.
    coming: Layout,
    /// Bytes of what comes.
    len: usize,
}

/// An object of this node, and how long it is.
pub(super) type Held = (Arc<Pinned>, u64);

impl Folding {
    pub(super) fn new(
        how: How,
        operands: Vec<Held>,
        source: Option<Held>,
        len: u64,
    ) -> Result<Self, String> {
        let How { op, divide_by, ring } = how;
        let layout_of = |(pinned, len): &Held| {
            let layout = Layout::of(pinned.bytes(0, *len as usize));
            let layout = layout.map_err(|unfit| unfit.to_string())?;
            let unfit = layout.numbers().find(|it| !collective::folds(op, *it));
            if let Some(numbers) = unfit {
                return Err(format!("nodes do not fold {numbers:?} by {op:?}"));
            }
            divide_by.map_or(Ok(()), |_| divides(&layout)).map(|()| layout)
        };
        let with_layout = |held: Held| layout_of(&held).map(|layout| (held.0, layout));
        let source = source.map(with_layout).transpose()?;
        let mut coming = source.as_ref().map(|(_, layout)| layout.clone()).unwrap_or_default();
        let operands = operands.into_iter().map(with_layout).collect::<Result<Vec<_>, String>>()?;
        let mut lap = None;
        if let Some((at, of)) = ring {
            let (_, first) = operands.first().ok_or("no member is here")?;
            let is_alike = |it: &Layout| it == first && it.end() as u64 == len;
            if !operands.iter().all(|(_, layout)| is_alike(layout)) {
                return Err("arrays of members begin at different places".to_string());
            }
            coming = first.clone();
            let cut = |at: u64| coming.whole(at as usize) as u64;
            lap = Some(Lap::new(at, of, len, cut).ok_or("there is no such ring")?);
        }
        Ok(Self { op, divide_by, lap, operands, source, coming, len: len as usize })
    }

    /// So many bytes are there, or only what lies in them beside numbers. Is it what operands fit, and the source?
    pub(super) fn begin_behind(&mut self, total: &[u8], there: u64) -> Result<(), String> {
        let front = Layout::begun(&total[..there as usize], self.len);
        self.coming = front.map_err(|unfit| unfit.to_string())?;
        if let Some((source, layout)) = &self.source {
            let fits = self.fits(source, layout, total, there);
            let moved = layout.moved(&self.coming).filter(|it| fits && it.end() == self.len);
            self.coming = moved.ok_or("what was made again differs from what was lost")?;
        }
        let fits =
            |(operand, layout): &(Arc<Pinned>, Layout)| self.fits(operand, layout, total, there);
        match self.operands.iter().all(fits) {
            true => Ok(()),
            false => Err("what was made again differs from what was lost".to_string()),
        }
    }

    /// Whether this member has the structure of these bytes.
    fn fits(&self, member: &Pinned, layout: &Layout, total: &[u8], there: u64) -> bool {
        let there = there as usize;
        let in_parts = self.coming.between(0, there).all(|(part, start, end)| {
            self.coming.fits(layout, part) && {
                let at = layout.start(part) + (start - self.coming.start(part));
                let more = || member.bytes(at as u64, end - start);
                match self.coming.parts()[part].kind {
                    PartKind::Numbers(_) | PartKind::Gap => true,
                    PartKind::Skeleton => total[start..end] == *more(),
                    PartKind::Flags => (total[start] ^ more()[0]) & !WRITABLE == 0,
                }
            }
        });
        // Of what the last ones are part of is not known yet: they have to be the same.
        let (known, next) = (self.coming.end().min(there), self.coming.parts().len());
        let rest = &total[known..there];
        let is_long = |part: &Part| layout.start(next) + rest.len() <= part.end;
        let is_whole = rest.is_empty()
            || layout.parts().get(next).is_some_and(is_long)
                && *rest == *member.bytes(layout.start(next) as u64, rest.len());
        in_parts && is_whole
    }

    pub(super) fn lap(&self) -> Option<&Lap> {
        self.lap.as_ref()
    }

    /// Of what came, that between these is not folded. Folds it, as far as it can be folded: up to where?
    pub(super) fn go_on(&mut self, total: &mut [u8], from: u64, came: u64) -> Result<u64, String> {
        let Some(lap) = &self.lap else {
            let upto = self.upto(total, came)?;
            self.fold(total, from, upto, true)?;
            return Ok(upto);
        };
        let mut done = from;
        for (turn, place) in lap.coming(from, came) {
            let whole = match turn {
                Turn::Keep => place.end,
                Turn::Fold | Turn::FoldLast => {
                    let whole = self.coming.whole(place.end as usize) as u64;
                    self.fold(total, place.start, whole.max(place.start), turn == Turn::FoldLast)?;
                    whole.max(place.start)
                }
            };
            done += whole - place.start;
            if whole < place.end {
                break;
            }
        }
        Ok(done)
    }

    /// These bytes of what is folded here, before anything comes: no more, and perhaps fewer, so that no number is cut.
    pub(super) fn own(&self, place: Range<u64>) -> Lent {
        let len = (place.end - place.start) as usize;
        let [(first, _), others @ ..] = &self.operands[..] else {
            panic!("who has a lap has operands")
        };
        if others.is_empty() {
            return first.lend(place.start, len);
        }
        let (from, to) = (place.start as usize, self.coming.whole(place.end as usize));
        let mut total = first.bytes(place.start, to - from).to_vec();
        for (numbers, start, end) in self.coming.numbers_between(from, to) {
            for (other, _) in others {
                let more = other.bytes(start as u64, end - start);
                collective::fold(self.op, numbers, &mut total[start - from..end - from], more);
            }
        }
        Arc::new(total)
    }

    /// Up to where it can be folded, of so many bytes that came.
    fn upto(&mut self, total: &[u8], came: u64) -> Result<u64, String> {
        if self.operands.is_empty() && self.divide_by.is_none() {
            return Ok(came);
        }
        let there = came as usize;
        if there > self.coming.end() {
            let begun = Layout::begun(&total[..there], self.len);
            self.coming = begun.map_err(|unfit| unfit.to_string())?;
            self.divide_by.map_or(Ok(()), |_| divides(&self.coming))?;
        }
        Ok(self.coming.whole(there) as u64)
    }

    /// How far the source has to be copied, so that all up to there can be folded.
    pub(super) fn beyond(&self, wanted: u64) -> u64 {
        const NUMBER_BYTES_MAX: u64 = 16;
        (wanted + NUMBER_BYTES_MAX).min(self.len as u64)
    }

    /// The source's bytes between these places come. What is in front of a rest may be as long as another gap.
    pub(super) fn copy(&self, total: &mut [u8], from: u64, to: u64) {
        let (source, layout) = self.source.as_ref().expect("who copies has a source");
        for (part, start, end) in self.coming.between(from as usize, to as usize) {
            let begin = self.coming.start(part);
            let (at, count) = (layout.start(part) + (start - begin), end - start);
            if at + count <= layout.parts()[part].end {
                total[start..end].copy_from_slice(source.bytes(at as u64, count));
            }
        }
    }

    /// Folds what came between these places, up to the second of which it can be folded. `last`: nothing more is folded into that.
    fn fold(&self, total: &mut [u8], from: u64, to: u64, last: bool) -> Result<(), String> {
        for (operand, layout) in &self.operands {
            let folded = self.fold_one(operand, layout, total, from as usize, to as usize);
            let is_whole = to as usize == self.len;
            if !folded || is_whole && layout.parts().len() != self.coming.parts().len() {
                return Err("members differ in structure, dtype or shape".to_string());
            }
        }
        if last && let Some(count) = self.divide_by {
            for (numbers, start, end) in self.coming.numbers_between(from as usize, to as usize) {
                collective::divide(numbers, &mut total[start..end], count);
            }
        }
        Ok(())
    }

    /// False if it does not fit.
    fn fold_one(
        &self,
        operand: &Pinned,
        layout: &Layout,
        total: &mut [u8],
        from: usize,
        to: usize,
    ) -> bool {
        self.coming.between(from, to).all(|(part, start, end)| {
            if !self.coming.fits(layout, part) {
                return false;
            }
            let at = layout.start(part) + (start - self.coming.start(part));
            let total = &mut total[start..end];
            let more = || operand.bytes(at as u64, end - start);
            match self.coming.parts()[part].kind {
                PartKind::Numbers(numbers) => {
                    collective::fold(self.op, numbers, total, more());
                    true
                }
                PartKind::Skeleton => *total == *more(),
                PartKind::Flags => (total[0] ^ more()[0]) & !WRITABLE == 0,
                PartKind::Gap if self.lap.is_none() => true,
                // But for the length, what lies there says nothing.
                PartKind::Gap => {
                    let begin = self.coming.start(part);
                    let count = begin + Layout::gap_head(operand.bytes(begin as u64, 1)[0]);
                    let counted = count.clamp(start, end) - start;
                    total[..counted] == more()[..counted]
                }
            }
        })
    }
}

/// A mean of others is the task's: their sum may be too large for their kind.
fn divides(layout: &Layout) -> Result<(), String> {
    match layout.numbers().find(|it| !collective::divides(*it)) {
        Some(numbers) => Err(format!("nodes make no mean of {numbers:?}")),
        None => Ok(()),
    }
}
