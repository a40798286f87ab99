//! Memory is short: the head makes finished rows history, oldest first.
//!
//! It begins at 15/16 of the cap and frees 1/32 at a time, so that updates seldom wait and memory hardly moves.
//! What it has entered and not yet seen applied counts as gone already, and so does what is on
//! its way to the cold tier, up to a bound: else it would archive more than it must.

use std::collections::VecDeque;

use hoplo_base::limits::{CONTROL_ARCHIVE_OPS, CONTROL_COLD_BYTES_MAX};
use hoplo_wire::control::{Entry, Op};

use super::Replica;

#[derive(Clone, Debug, Default)]
pub struct Archiving {
    /// Entries that archive and are not applied: index, and bytes (0: not known).
    entered: VecDeque<(u64, u64)>,
    bytes: u64,
    /// An update that found no room needs so much; it comes again.
    wanted: u64,
}

impl Archiving {
    pub fn entered(&mut self, entry: &Entry) {
        if entry.ops.iter().any(|op| matches!(op, Op::Archive { .. })) {
            self.entered.push_back((entry.index, 0));
        }
    }

    pub fn applied(&mut self, index: u64) {
        if self.entered.front().is_some_and(|(entered, _)| *entered <= index) {
            self.bytes -= self.entered.pop_front().map_or(0, |(_, bytes)| bytes);
        }
    }

    pub fn wants(&mut self, bytes: u64) {
        self.wanted = self.wanted.max(bytes);
    }

    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

impl Replica {
    pub(super) fn archive(&mut self) {
        let cap = self.options.memory_bytes;
        // A narrow band: what is resident stays at the highest that ever was.
        let wanted = std::mem::take(&mut self.archiving.wanted);
        let high = (cap - cap / 16).min(cap.saturating_sub(wanted));
        let low = high.saturating_sub(cap / 32);
        let used = self.used_bytes() + self.pending_bytes();
        if used <= high || !self.is_head() || !self.has_base() || self.disk_failed.is_some() {
            return;
        }
        loop {
            let on_its_way = self.archiving.bytes + self.cold.bytes();
            let left = used.saturating_sub(on_its_way);
            if left <= low || on_its_way >= CONTROL_COLD_BYTES_MAX / 2 {
                return;
            }
            let (rows, bytes) = self.tables.oldest_finished(left - low, CONTROL_ARCHIVE_OPS);
            if rows.is_empty() {
                return;
            }
            let op = |(key, version)| Op::Archive { key, version };
            let ops = rows.into_iter().map(op).collect();
            self.enter(None, ops, vec![]);
            self.archiving.entered.push_back((self.last(), bytes));
            self.archiving.bytes += bytes;
        }
    }
}
