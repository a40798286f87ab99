//! Start-up: the records of the log, in order.
//!
//! A log begins with a base in chunks. Later chunks are either snapshots that this replica made of what it
//! has anyway, which are passed over, or another base that it was given in place of everything before.

use hoplo_base::Instant;
use hoplo_wire::control::{Chunk, Epoch, Record};

use super::Replica;

impl Replica {
    pub(super) fn on_replayed(&mut self, now: Instant, record: Record) {
        assert!(self.replaying, "the log is read before everything else");
        match record {
            Record::Entry(entry) => {
                self.snapshots.appended(super::history::entry_bytes(&entry));
                if entry.index != self.last() + 1 || entry.epoch < self.history.last_epoch() {
                    // Before a base, or after one that is not complete. If it is missed, the end shows it.
                    return;
                }
                let committed = entry.committed;
                self.history.push(std::sync::Arc::new(Record::Entry(entry)), 0);
                self.known = self.known.max(committed);
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

    fn on_replayed_chunk(&mut self, now: Instant, chunk: &Chunk) {
        if self.has_base() && (chunk.from.is_some() || self.made_it(chunk)) {
            self.known = self.known.max(chunk.as_of);
            return;
        }
        if chunk.from.is_some() && self.snapshots.replaying != Some(chunk.snapshot) {
            return;
        }
        self.snapshots.replaying = Some(chunk.snapshot);
        if self.take_chunk(now, chunk, &mut Vec::new()).is_err() {
            self.tell(now, format!("the log has no complete base: chunk as of {}", chunk.as_of));
            self.forget_all();
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
    }

    /// Epoch of the last thing that it was told by a chain, as far as the log says.
    pub(super) fn last_epoch(&self) -> Epoch {
        self.history.last_epoch()
    }
}
