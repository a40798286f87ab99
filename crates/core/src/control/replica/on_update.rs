//! Updates at the head: taken, or refused with a reason. Nothing that is refused leaves a trace.

use hoplo_base::Instant;
use hoplo_base::limits::{
    CONTROL_BATCH_BYTES_MAX, CONTROL_BATCH_OPS_MAX, CONTROL_ENTRY_OVERHEAD, CONTROL_KEY_BYTES_MAX,
    CONTROL_PENDING_BYTES_MAX, CONTROL_SESSIONS_ENDED_AT_ONCE, CONTROL_SESSIONS_MAX,
    CONTROL_VALUE_BYTES_MAX, CONTROL_WINDOW_MAX,
};
use hoplo_wire::control::{ClientId, Epoch, Op, Refusal, Request, Response, ShardId};

use super::apply::archivable;
use super::{Effect, Replica};
use crate::control::rows;
use crate::control::sessions::{BatchId, Remembered};
use crate::control::tables::row_bytes;

/// What becomes of a batch.
enum Fate {
    Enter,
    /// It was applied before.
    Answer {
        index: u64,
        outcomes: Vec<hoplo_wire::control::Outcome>,
    },
    /// It is pending: answered when it is applied.
    Wait,
}

impl Replica {
    pub(super) fn on_request(
        &mut self,
        now: Instant,
        from: ClientId,
        request: Request,
        effects: &mut Vec<Effect>,
    ) {
        match request {
            Request::Update { shard, epoch, born, seq, answered, ops } => {
                if shard != self.options.shard {
                    return;
                }
                let batch = BatchId { born, seq };
                self.on_update(now, from, epoch, (batch, answered), ops, effects);
            }
            Request::Query { shard, epoch, request, query, stale } => {
                if shard == self.options.shard {
                    self.on_query(now, from, epoch, request, query, stale, effects);
                }
            }
            Request::Subscribe { shard, epoch, subscription, table, prefix, after, credit } => {
                if let Err(why) = self.may_subscribe(shard, epoch).and_then(|()| {
                    self.subscriptions.add(now, from, subscription, table, prefix, after, credit)
                }) {
                    // An older one of the same number is over, too.
                    self.subscriptions.remove(from, subscription);
                    let response = Response::SubscriptionEnded { shard, subscription, why };
                    effects.push(Effect::Respond { to: from, response });
                }
            }
            Request::Credit { subscription, more, .. } => {
                self.subscriptions.credit(from, subscription, more);
            }
            Request::Unsubscribe { subscription, .. } => {
                self.subscriptions.remove(from, subscription);
            }
        }
    }

    pub(super) fn on_client_gone(&mut self, client: ClientId) {
        self.subscriptions.client_gone(client);
        self.queries.client_gone(client);
    }

    fn may_subscribe(&self, shard: ShardId, epoch: Epoch) -> Result<(), Refusal> {
        if epoch != self.epoch() || shard != self.options.shard {
            return Err(Refusal::Stale(self.epoch()));
        }
        if !self.is_tail() {
            return Err(Refusal::NotMine("tail".to_string()));
        }
        Ok(())
    }

    fn on_update(
        &mut self,
        now: Instant,
        client: ClientId,
        epoch: Epoch,
        (batch, answered): (BatchId, u64),
        ops: Vec<Op>,
        effects: &mut Vec<Effect>,
    ) {
        let (shard, seq) = (self.options.shard, batch.seq);
        if let Some(touched) = self.touched.get_mut(&client) {
            *touched = now;
        }
        match self.judge(client, epoch, batch, answered, &ops) {
            Ok(Fate::Enter) => {
                self.entered.insert(client, batch);
                self.touched.insert(client, now);
                self.enter(Some((client, batch, answered)), ops, vec![]);
            }
            Ok(Fate::Answer { index, outcomes }) => {
                let response = Response::Updated { shard, seq, index, outcomes };
                effects.push(Effect::Respond { to: client, response });
            }
            Ok(Fate::Wait) => {
                self.asked_again.insert((client, seq));
                // It may still be applied; until then its caller should know what it waits for.
                if let Some(why) = &self.disk_failed {
                    let why = Refusal::Busy(format!("the disk is full or broken: {why}"));
                    let response = Response::UpdateRefused { shard, seq, why };
                    effects.push(Effect::Respond { to: client, response });
                }
            }
            Err(why) => {
                if let (Refusal::Busy(_), Ok(growth)) = (&why, judge_ops(&ops)) {
                    self.archiving.wants(growth);
                }
                let response = Response::UpdateRefused { shard, seq, why };
                effects.push(Effect::Respond { to: client, response });
            }
        }
    }

    fn judge(
        &self,
        client: ClientId,
        epoch: Epoch,
        batch: BatchId,
        answered: u64,
        ops: &[Op],
    ) -> Result<Fate, Refusal> {
        if epoch != self.epoch() {
            return Err(Refusal::Stale(self.epoch()));
        }
        if !self.is_head() {
            return Err(Refusal::NotMine("head".to_string()));
        }
        if !self.has_base() {
            return Err(Refusal::Busy("this replica does not have the shard's rows".to_string()));
        }
        if !self.has_begun() {
            return Err(Refusal::Busy("the shard begins".to_string()));
        }
        let seq = batch.seq;
        let session = self.session(client, batch.born)?;
        // Before the first one come those that its client has seen the end of.
        let last = session.unwrap_or(answered);
        if session.is_some() && seq <= last {
            return match self.sessions.remembered(client, seq) {
                Remembered::New => Ok(Fate::Wait),
                Remembered::Applied { index, outcomes } => Ok(Fate::Answer { index, outcomes }),
                Remembered::Forgotten => Err(Refusal::Gap { expected: last + 1 }),
            };
        }
        if last.checked_add(1) != Some(seq) {
            return Err(Refusal::Gap { expected: last.saturating_add(1) });
        }
        self.has_room(client, session.is_none(), seq.saturating_sub(answered))?;
        let growth = judge_ops(ops)?;
        self.has_memory(growth)?;
        Ok(Fate::Enter)
    }

    /// Seq of the last batch of this session that was entered; absent when it may begin.
    fn session(&self, client: ClientId, born: u64) -> Result<Option<u64>, Refusal> {
        let over = self.sessions.over();
        // 1. The end that this head has entered may be lost with it: it must not be told before it is applied.
        // 2. The client was told of an end that this head has not applied yet.
        if self.ending.contains(&client) || born > over {
            return Err(Refusal::Busy("the session's end is on its way".to_string()));
        }
        match self.entered.get(&client).copied().or_else(|| self.sessions.last(client)) {
            Some(last) if last.born == born => Ok(Some(last.seq)),
            None if born == over => Ok(None),
            Some(_) | None => Err(Refusal::SessionOver { upto: over }),
        }
    }

    fn has_room(&self, client: ClientId, new: bool, unanswered: u64) -> Result<(), Refusal> {
        if let Some(why) = &self.disk_failed {
            return Err(Refusal::Disk(why.clone()));
        }
        if unanswered > CONTROL_WINDOW_MAX {
            return Err(Refusal::Busy(format!(
                "{unanswered} batches of {client:?} are unanswered"
            )));
        }
        if new && self.sessions.len() + self.entered.len() >= CONTROL_SESSIONS_MAX {
            return Err(Refusal::Busy(format!("{CONTROL_SESSIONS_MAX} clients are known")));
        }
        if self.pending_bytes() > CONTROL_PENDING_BYTES_MAX {
            return Err(Refusal::Busy("the chain does not keep up".to_string()));
        }
        Ok(())
    }

    fn has_memory(&self, growth: u64) -> Result<(), Refusal> {
        let cap = self.options.memory_bytes;
        let used = self.used_bytes() + self.pending_bytes();
        if growth == 0 || used + growth <= cap {
            return Ok(());
        }
        if self.tables.finished_rows() > 0 || self.cold.bytes() > 0 {
            return Err(match &self.cold.failed {
                Some(why) => Refusal::Disk(why.clone()),
                None => Refusal::Busy("finished rows go to disk first".to_string()),
            });
        }
        Err(Refusal::Full { used, cap })
    }

    /// Rows, sessions, and what is on its way to the cold tier.
    pub(super) fn used_bytes(&self) -> u64 {
        self.tables.bytes() + self.sessions.bytes() + self.cold.bytes()
    }

    /// Entries that are not applied.
    pub(super) fn pending_bytes(&self) -> u64 {
        self.history.bytes_between(self.applied, self.last())
    }

    /// Head: clients of which nothing was heard for long are forgotten, by all replicas at one entry.
    pub(super) fn expire_sessions(&mut self, now: Instant) {
        if !self.is_head() || now < self.expire_at {
            return;
        }
        let idle = self.options.session_idle;
        let oldest = self.touched.values().min();
        self.expire_at = oldest.map_or(now, |at| *at + idle).max(now + idle / 64);
        let over: Vec<ClientId> = self
            .touched
            .iter()
            .filter(|(client, at)| **at + idle <= now && !self.entered.contains_key(*client))
            .map(|(client, _)| *client)
            .take(CONTROL_SESSIONS_ENDED_AT_ONCE)
            .collect();
        if !over.is_empty() && self.has_base() {
            over.iter().for_each(|client| {
                self.touched.remove(client);
                // Until the entry is applied it is the last that is known of the client.
                self.ending.insert(*client);
            });
            self.enter(None, vec![], over);
        }
    }
}

/// Checks each operation; returns by how much memory may grow.
fn judge_ops(ops: &[Op]) -> Result<u64, Refusal> {
    if ops.len() > CONTROL_BATCH_OPS_MAX {
        let many = format!("{} operations, at most {CONTROL_BATCH_OPS_MAX} are allowed", ops.len());
        return Err(Refusal::BatchTooLarge(many));
    }
    let mut bytes = 0;
    let mut growth = 0;
    for op in ops {
        match op {
            Op::Put { key, value, finished, .. } => {
                judge_key(key.bytes.len())?;
                if value.len() > CONTROL_VALUE_BYTES_MAX {
                    let (bytes, max) = (value.len() as u64, CONTROL_VALUE_BYTES_MAX as u64);
                    return Err(Refusal::ValueTooLong { bytes, max });
                }
                if *finished && !archivable(key.table) {
                    let why = "rows of this table are never finished".to_string();
                    return Err(Refusal::BadRow { table: key.table, why });
                }
                rows::validate(key, value)?;
                bytes += key.bytes.len() + value.len();
                growth += row_bytes(key, value.len(), *finished);
            }
            Op::Delete { key, .. } => {
                judge_key(key.bytes.len())?;
                bytes += key.bytes.len();
            }
            Op::Archive { key, .. } => {
                let why = "what is archived is for the head to decide".to_string();
                return Err(Refusal::BadRow { table: key.table, why });
            }
        }
    }
    if bytes > CONTROL_BATCH_BYTES_MAX {
        let many = format!("{bytes} bytes, at most {CONTROL_BATCH_BYTES_MAX} are allowed");
        return Err(Refusal::BatchTooLarge(many));
    }
    let overhead = if growth > 0 { CONTROL_ENTRY_OVERHEAD as u64 } else { 0 };
    Ok(growth + overhead)
}

fn judge_key(bytes: usize) -> Result<(), Refusal> {
    if bytes > CONTROL_KEY_BYTES_MAX {
        let (bytes, max) = (bytes as u64, CONTROL_KEY_BYTES_MAX as u64);
        return Err(Refusal::KeyTooLong { bytes, max });
    }
    Ok(())
}
