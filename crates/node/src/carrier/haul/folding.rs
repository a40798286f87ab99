//! Objects of this node, folded into what comes as it comes.
//!
//! What came is folded in place, up to where no number is cut. It has to have the structure of the operands; where its arrays begin may
//! differ (`hoplo_wire::layout`).

use std::sync::Arc;

use hoplo_core::collective;
use hoplo_wire::FoldOp;
use hoplo_wire::layout::{Layout, PartKind};
use hoplo_wire::plain::WRITABLE;

use super::lent::Pinned;

/// Of one attempt.
pub(super) struct Folding {
    op: FoldOp,
    operands: Vec<(Arc<Pinned>, Layout)>,
    /// An object of this node, which they are folded into, instead of what comes.
    source: Option<Arc<Pinned>>,
    /// Of what comes, as far as it is known.
    coming: Layout,
    /// Bytes of what comes.
    len: usize,
}

/// An object of this node, and how long it is.
pub(super) type Held = (Arc<Pinned>, u64);

impl Folding {
    pub(super) fn new(
        op: FoldOp,
        operands: Vec<Held>,
        source: Option<Held>,
        len: u64,
    ) -> Result<Self, String> {
        let layout_of = |(pinned, len): &Held| {
            let layout = Layout::of(pinned.bytes(0, *len as usize));
            let layout = layout.map_err(|unfit| unfit.to_string())?;
            let unfit = layout.numbers().find(|it| !collective::folds(op, *it));
            match unfit {
                Some(numbers) => Err(format!("nodes do not fold {numbers:?} by {op:?}")),
                None => Ok(layout),
            }
        };
        let coming = source.as_ref().map(layout_of).transpose()?.unwrap_or_default();
        let with_layout = |held: Held| layout_of(&held).map(|layout| (held.0, layout));
        let operands = operands.into_iter().map(with_layout).collect::<Result<Vec<_>, String>>()?;
        let source = source.map(|(pinned, _)| pinned);
        Ok(Self { op, operands, source, coming, len: len as usize })
    }

    /// Up to where it can be folded, of so many bytes that came.
    pub(super) fn upto(&mut self, total: &[u8], came: u64) -> Result<u64, String> {
        if self.operands.is_empty() {
            return Ok(came);
        }
        let there = came as usize;
        if there > self.coming.end() {
            let begun = Layout::begun(&total[..there], self.len);
            self.coming = begun.map_err(|unfit| unfit.to_string())?;
        }
        Ok(self.coming.whole(there) as u64)
    }

    /// How far the source has to be copied, so that all up to there can be folded.
    pub(super) fn beyond(&self, wanted: u64) -> u64 {
        const NUMBER_BYTES_MAX: u64 = 16;
        (wanted + NUMBER_BYTES_MAX).min(self.len as u64)
    }

    /// The source's bytes between these places come.
    pub(super) fn copy(&self, total: &mut [u8], from: u64, to: u64) {
        let source = self.source.as_ref().expect("who copies has a source");
        let (from, to) = (from as usize, to as usize);
        total[from..to].copy_from_slice(source.bytes(from as u64, to - from));
    }

    /// Folds what came between these places, up to the second of which it can be folded.
    pub(super) fn fold(&self, total: &mut [u8], from: u64, to: u64) -> Result<(), String> {
        for (operand, layout) in &self.operands {
            let folded = self.fold_one(operand, layout, total, from as usize, to as usize);
            let is_whole = to as usize == self.len;
            if !folded || is_whole && layout.parts().len() != self.coming.parts().len() {
                return Err("members differ in structure, dtype or shape".to_string());
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
                PartKind::Gap => true,
            }
        })
    }
}
