//! Start-up: the records of the log, in order.
//!
//! A log begins with a base in chunks; entries that were pending when it was made may lie before it. Later chunks are either snapshots that this replica made of what it
//! has anyway, which are passed over, or another base that it was given in place of everything before.

use std::collections::VecDeque;
use std::sync::Arc;

use hoplo_base::Instant;
use hoplo_base::limits::CONTROL_PENDING_BYTES_MAX;
use hoplo_wire::control::{Chunk, Entry, Epoch, Record};

use super::Replica;
use super::history::{entry, entry_bytes};
use crate::control::tables::Covered;

impl Replica {
    pub(super) fn on_replayed(&mut self, now: Instant, record: Record) {
        assert!(self.replaying, "the log is read before everything else");
        match record {
            Record::Entry(entry) => {
                self.snapshots.appended(entry_bytes(&entry));
                if *self.tables.covered() == Covered::Nothing {
                    return self.keep_before_base(entry);
                }
                if entry.index != self.last() + 1 || entry.epoch < self.history.last_epoch() {
                    // Of what the base has already, or after one that is not complete.
                    return;
                }
                self.take_replayed(Arc::new(Record::Entry(entry)));
            }
            Record::Chunk(chunk) => self.on_replayed_chunk(now, &chunk),
        }
        if self.has_base() {
            // Nobody is connected, nobody is answered.
            let upto = self.known.min(self.last());
            self.apply_upto(now, upto, &mut Vec::new());
            self.trim();
        }
    }

    fn take_replayed(&mut self, record: Arc<Record>) {
        self.known = self.known.max(entry(&record).committed);
        self.history.push(record, 0);
    }

    /// So many may have been pending; others are of no use.
    fn keep_before_base(&mut self, new: Entry) {
        self.before_base.push_back(Arc::new(Record::Entry(new)));
        let bytes = |records: &VecDeque<Arc<Record>>| -> u64 {
            records.iter().map(|record| entry_bytes(entry(record))).sum()
        };
        if self.before_base.len().is_power_of_two() {
            while bytes(&self.before_base) > 2 * CONTROL_PENDING_BYTES_MAX {
                self.before_base.pop_front();
            }
        }
    }

    fn on_replayed_chunk(&mut self, now: Instant, chunk: &Chunk) {
        if self.has_base() && (chunk.from.is_some() || self.made_it(chunk)) {
            self.known = self.known.max(chunk.as_of);
            return;
        }
        if chunk.from.is_some() && self.snapshots.replaying != Some(chunk.snapshot) {
            return;
        }
        if chunk.from.is_none() {
            self.snapshots.replayed_base = chunk.as_of;
        }
        self.snapshots.replaying = Some(chunk.snapshot);
        if self.take_chunk(now, chunk, &mut Vec::new()).is_err() {
            self.note(now, format!("the log has no complete base: chunk as of {}", chunk.as_of));
            self.forget_all();
        }
        for record in std::mem::take(&mut self.before_base) {
            if self.last() + 1 == entry(&record).index && self.tables.covered() != &Covered::Nothing
            {
                self.take_replayed(record);
            }
        }
    }

    /// A snapshot of what is here, not another base.
    fn made_it(&self, chunk: &Chunk) -> bool {
        let known = self.history.epoch_at(chunk.as_of).unwrap_or(chunk.epoch);
        chunk.as_of >= self.snapshots.replayed_base
            && chunk.as_of <= self.last()
            && known == chunk.epoch
    }

    pub(super) fn on_replay_done(&mut self) {
        assert!(self.replaying, "the log is read once");
        self.replaying = false;
        if !self.has_base() {
            self.forget_all();
        }
        self.stable = self.last();
        self.snapshots.replaying = None;
        self.before_base.clear();
    }

    /// Epoch of the last thing that it was told by a chain, as far as the log says.
    pub(super) fn last_epoch(&self) -> Epoch {
        self.history.last_epoch()
    }
}
