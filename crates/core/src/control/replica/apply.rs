//! What is committed is applied, and whoever waits for it is answered.

use std::sync::Arc;

use hoplo_base::Instant;
use hoplo_wire::control::{Chunk, Epoch, Op, Outcome, Response, Table};

use super::history::{Did, entry};
use super::{Effect, Replica};
use crate::control::sessions::{BatchId, ClientSessions};
use crate::control::tables::{Applied, Tables};

/// Tables whose rows may be put as finished, and archived.
pub(super) fn archivable(table: Table) -> bool {
    match table {
        Table::Task | Table::Event => true,
        Table::Node
        | Table::Job
        | Table::Function
        | Table::Object
        | Table::Actor
        | Table::PlacementGroup
        | Table::Kv
        | Table::Token
        | Table::Head
        | Table::History => false,
    }
}

impl Replica {
    /// Tail: what is stable here and before is committed.
    pub(super) fn commit(&mut self, now: Instant) {
        if !self.is_tail() || !self.acting() || now < self.quiet_until || self.cold_is_full() {
            return;
        }
        let before = self.up.as_ref().map_or(u64::MAX, |up| up.stable);
        self.known = self.known.max(self.stable.min(before));
    }

    pub(super) fn apply(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if self.has_base() && self.base_unstable.is_none() {
            self.apply_upto(now, self.committed(), effects);
        }
    }

    pub(super) fn apply_upto(&mut self, now: Instant, upto: u64, effects: &mut Vec<Effect>) {
        if self.applied < upto {
            self.subscriptions.news();
        }
        while self.applied < upto {
            self.apply_next(now, effects);
        }
    }

    fn apply_next(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let index = self.applied + 1;
        let kept = self.history.get(index).expect("CHAIN-9: what is not applied is here");
        let record = Arc::clone(&kept.record);
        let entry = entry(&record);
        let mut outcomes = Vec::with_capacity(entry.ops.len());
        let mut did = Vec::with_capacity(entry.ops.len());
        for op in &entry.ops {
            let (outcome, what) = self.apply_op(now, index, op);
            outcomes.push(outcome);
            did.push(what);
        }
        self.history.applied(index, did);
        self.applied = index;
        // Sessions come with the last chunk of a base; until then they are not known.
        if !self.has_base() {
            return;
        }
        self.sessions.ended(index, &entry.ended);
        for client in &entry.ended {
            self.touched.remove(client);
            self.ending.remove(client);
        }
        let Some(client) = entry.client else {
            self.archiving.applied(index);
            return;
        };
        let batch = BatchId { born: entry.born, seq: entry.seq };
        if self.entered.get(&client) == Some(&batch) {
            self.entered.remove(&client);
        }
        let again = !self.asked_again.is_empty() && self.asked_again.remove(&(client, entry.seq));
        if again || self.is_tail() {
            let (shard, seq) = (self.options.shard, entry.seq);
            let response = Response::Updated { shard, seq, index, outcomes: outcomes.clone() };
            effects.push(Effect::Respond { to: client, response });
        }
        self.sessions.applied(client, batch, entry.answered, index, outcomes);
    }

    fn apply_op(&mut self, now: Instant, index: u64, op: &Op) -> (Outcome, Did) {
        let key = match op {
            Op::Put { key, .. } | Op::Delete { key, .. } | Op::Archive { key, .. } => key,
        };
        if !self.tables.covered().covers(key) {
            return (Outcome::Done { version: 0 }, Did::Nothing);
        }
        let applied = self.tables.apply(index, op);
        self.pages.changed(key);
        let results = (applied.outcome(), Did::from(&applied));
        match applied {
            Applied::Archived(row) => self.cold.put(now, key.clone(), row),
            Applied::Deleted | Applied::Absent if archivable(key.table) => {
                self.cold.delete(now, key);
            }
            Applied::Deleted | Applied::Absent | Applied::Put { .. } | Applied::Conflict { .. } => {
            }
        }
        results
    }

    /// A part of a base: `Err` when it does not follow what is here.
    pub(super) fn take_chunk(
        &mut self,
        now: Instant,
        chunk: &Chunk,
        effects: &mut Vec<Effect>,
    ) -> Result<(), ()> {
        if chunk.from.is_none() {
            self.forget_all();
            self.history.reset(chunk.as_of, chunk.epoch);
            self.known = chunk.as_of;
            self.applied = chunk.as_of;
        } else if !self.tables.covered().ends_at(chunk.from.as_ref())
            || chunk.as_of < self.applied
            || chunk.as_of > self.last()
        {
            return Err(());
        }
        self.known = self.known.max(chunk.as_of);
        self.apply_upto(now, chunk.as_of, effects);
        self.tables.install(chunk);
        self.pages.forget();
        if chunk.until.is_none() {
            self.sessions = ClientSessions::from_wire(&chunk.sessions, chunk.sessions_over);
            self.history.changes_begin_after(self.applied);
            // What happened on the way to the base nobody here can tell: subscribers missed it.
            self.subscriptions.news();
        }
        Ok(())
    }

    /// Nothing is left of its state but what is on disk.
    pub(super) fn forget_all(&mut self) {
        self.tables = Tables::new();
        self.pages.forget();
        self.sessions = ClientSessions::new();
        self.history.reset(0, Epoch(0));
        self.known = 0;
        self.applied = 0;
        self.stable = 0;
        self.base_unstable = None;
        self.log_waits = None;
        self.archiving.forget();
        self.snapshots.forget();
        self.entered.clear();
        self.asked_again.clear();
        self.touched.clear();
        self.ending.clear();
    }

    pub(super) fn publish(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if !self.subscriptions.is_empty() {
            let shard = self.options.shard;
            let (recent_bytes, applied) = (self.options.recent_bytes, self.applied);
            self.subscriptions.publish(now, shard, &self.history, recent_bytes, applied, effects);
        }
    }

    /// Applied entries that nobody needs any more go.
    pub(super) fn trim(&mut self) {
        let joins = self.down.as_ref().is_some_and(|down| down.is_joining());
        while self.history.len() > 0 && self.history.bytes() > self.options.recent_bytes {
            let first = self.history.base() + 1;
            let needed = self.down.as_ref().is_some_and(|down| down.needs_from() <= first);
            let full = self.history.bytes() > hoplo_base::limits::CONTROL_JOIN_BYTES_MAX;
            if first > self.applied || (needed && !(joins && full)) {
                return;
            }
            self.history.forget_first();
        }
    }
}
