//! How fast the bytes of a pull come.

use hoplo_base::limits::PULL_SLOW_LOOKS;

/// Of one pull.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Bytes that were written at the last look.
    seen: u64,
    /// The most that came between two looks, from any source.
    best: u64,
    /// Looks in a row that found less than half of that.
    pub(super) slow: u32,
    /// The source was told.
    pub(super) told: bool,
}

impl Watch {
    /// Another source goes on from there.
    pub(super) fn begin(&mut self, written: u64) {
        *self = Self { seen: written, best: self.best, slow: 0, told: false };
    }

    /// Whether it is slow for so long that something is to be done.
    pub(super) fn look(&mut self, written: u64) -> bool {
        let came = written.saturating_sub(self.seen);
        self.seen = written;
        let is_slow = came == 0 || came < self.best / 2;
        self.best = self.best.max(came);
        self.slow = if is_slow { self.slow + 1 } else { 0 };
        self.told &= is_slow;
        self.slow >= PULL_SLOW_LOOKS
    }
}
