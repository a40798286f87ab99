//! Its own log: what was appended, what is stable, what the disk says.

use std::sync::Arc;

use hoplo_base::Instant;
use hoplo_base::limits::CONTROL_PEER_SILENT;
use hoplo_wire::control::{ClientId, Entry, Op, Record};

use super::history::{entry, entry_bytes};
use super::{Effect, Replica};
use crate::control::sessions::BatchId;

impl Replica {
    pub(super) fn on_logged(&mut self, upto: u64) {
        assert!(upto <= self.numbered, "only what was appended can be stable");
        self.stable_number = self.stable_number.max(upto);
    }

    pub(super) fn on_log_failed(&mut self, now: Instant, why: String) {
        self.note(now, format!("the log fails: {why}"));
        self.disk_failed = Some(why);
        self.disk_reported = Some(now);
    }

    pub(super) fn on_log_back(&mut self, now: Instant) {
        self.note(now, "the log works again".to_string());
        self.disk_failed = None;
        self.disk_reported = None;
    }

    /// A member that cannot log holds up all others: it asks to be left out.
    pub(super) fn report_disk(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if self.disk_reported.is_some_and(|at| at <= now) {
            self.disk_reported = Some(now + CONTROL_PEER_SILENT);
            effects.push(Effect::Suspect { replica: self.options.me });
        }
    }

    /// Returns the record's number.
    pub(super) fn append(&mut self, record: Arc<Record>) -> u64 {
        self.to_log.push(record);
        self.numbered += 1;
        self.numbered
    }

    pub(super) fn push_entry(&mut self, record: Arc<Record>) {
        let number = self.append(Arc::clone(&record));
        self.snapshots.appended(entry_bytes(entry(&record)));
        self.history.push(record, number);
    }

    /// Head: a new entry.
    pub(super) fn enter(
        &mut self,
        client: Option<(ClientId, BatchId, u64)>,
        ops: Vec<Op>,
        ended: Vec<ClientId>,
    ) {
        debug_assert!(self.is_head(), "only the head enters");
        let (client, BatchId { born, seq }, answered) = match client {
            Some((client, batch, answered)) => (Some(client), batch, answered),
            None => (None, BatchId { born: 0, seq: 0 }, 0),
        };
        let (index, epoch, committed) = (self.last() + 1, self.epoch(), self.committed());
        let entry = Entry { index, epoch, committed, client, born, seq, answered, ops, ended };
        self.push_entry(Arc::new(Record::Entry(entry)));
    }

    pub(super) fn flush_log(&mut self, effects: &mut Vec<Effect>) {
        if self.log_waits.is_some_and(|mark| !self.cold.is_written(mark)) {
            return;
        }
        self.log_waits = None;
        if !self.to_log.is_empty() {
            let records = std::mem::take(&mut self.to_log);
            effects.push(Effect::Append { records, upto: self.numbered });
        }
    }

    /// Entries after this one never happened.
    pub(super) fn truncate(&mut self, after: u64, effects: &mut Vec<Effect>) {
        // What was not handed over never needs to be.
        while self.to_log.last().is_some_and(|last| match &**last {
            Record::Entry(entry) => entry.index > after,
            Record::Chunk(_) => false,
        }) {
            self.to_log.pop();
            self.numbered -= 1;
        }
        self.flush_log(effects);
        effects.push(Effect::Truncate { after });
        self.history.cut(after);
        self.stable = self.stable.min(after);
    }

    pub(super) fn advance_stable(&mut self) {
        if let Some((number, mark)) = self.base_unstable {
            if self.stable_number < number || !self.cold.is_written(mark) {
                return;
            }
            self.base_unstable = None;
            self.stable = self.stable.max(self.applied);
            if let Some(snapshot) = self.up.as_mut().and_then(|up| up.receiving.take()) {
                self.snapshots.given = Some(snapshot);
            }
        }
        if !self.has_base() {
            return;
        }
        while let Some(kept) = self.history.get(self.stable + 1)
            && kept.number <= self.stable_number
        {
            self.stable += 1;
        }
    }
}
