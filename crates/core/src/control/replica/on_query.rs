//! Queries: answered by the tail that may, or by anyone who has all rows when the caller allows.
//!
//! What the cold tier is asked for is answered when its row comes, as of then: the replica applies only
//! what is committed, so that is a state between the query and its answer.

use std::collections::{BTreeMap, VecDeque};

use hoplo_base::Instant;
use hoplo_base::limits::{
    CONTROL_PAGE_BYTES, CONTROL_PAGE_ROWS_MAX, CONTROL_PEER_QUIET, CONTROL_QUERIES_MAX,
    CONTROL_QUERY_WAIT,
};
use hoplo_wire::control::{Answer, ClientId, Epoch, Key, Query, Refusal, Response, Row, Table};

use super::apply::archivable;
use super::cold::Above;
use super::{Effect, Replica};

#[derive(Clone, Debug, Default)]
pub struct Queries {
    /// For leave to answer them.
    waiting: VecDeque<Asked>,
    /// For the cold tier.
    reading: BTreeMap<u64, Asked>,
    tickets: u64,
}

#[derive(Clone, Debug)]
struct Asked {
    client: ClientId,
    request: u64,
    query: Query,
    at: Instant,
}

impl Queries {
    /// Of the next question to the cold tier.
    pub fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    pub fn client_gone(&mut self, client: ClientId) {
        self.waiting.retain(|asked| asked.client != client);
        self.reading.retain(|_, asked| asked.client != client);
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.waiting.front().map(|asked| asked.at + CONTROL_QUERY_WAIT)
    }

    pub fn len(&self) -> usize {
        self.waiting.len() + self.reading.len()
    }
}

impl Replica {
    #[expect(clippy::too_many_arguments, reason = "the fields of one request")]
    pub(super) fn on_query(
        &mut self,
        now: Instant,
        client: ClientId,
        epoch: Epoch,
        request: u64,
        query: Query,
        stale: bool,
        effects: &mut Vec<Effect>,
    ) {
        let asked = Asked { client, request, query, at: now };
        let refusal = if stale {
            let busy = || Refusal::Busy("this replica does not have the shard's rows".to_string());
            (!self.has_base() || self.base_unstable.is_some()).then(busy)
        } else if epoch != self.epoch() {
            Some(Refusal::Stale(self.epoch()))
        } else if !self.is_tail() {
            Some(Refusal::NotMine("tail".to_string()))
        } else {
            None
        };
        let many = || Refusal::Busy(format!("{CONTROL_QUERIES_MAX} queries wait"));
        let refusal = refusal.or_else(|| (self.queries.len() >= CONTROL_QUERIES_MAX).then(many));
        if let Some(why) = refusal {
            return refuse(&asked, why, effects);
        }
        if stale || (self.queries.waiting.is_empty() && self.may_answer(now)) {
            self.answer(asked, effects);
            if !stale && self.lease_runs_out(now) {
                self.want_lease(now, effects);
            }
        } else {
            self.queries.waiting.push_back(asked);
        }
    }

    /// It is the tail, no other is, and it has applied all that was ever answered. A shard that has not begun may begin
    /// elsewhere while this tail lives, so that it never answers.
    pub(super) fn may_answer(&self, now: Instant) -> bool {
        self.is_tail()
            && self.acting()
            && self.has_begun()
            && self.has_base()
            && self.base_unstable.is_none()
            && now >= self.quiet_until
            && self.applied >= self.answers_from
            && self.has_lease(now)
    }

    pub(super) fn answer_queries(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if self.queries.waiting.is_empty() {
            let asked = self.lease_asked;
            self.lease_asked = asked.filter(|asked| now < *asked + CONTROL_PEER_QUIET);
            return;
        }
        if self.may_answer(now) {
            while let Some(asked) = self.queries.waiting.pop_front() {
                self.answer(asked, effects);
            }
            return;
        }
        let over = |asked: &Asked| asked.at + CONTROL_QUERY_WAIT <= now;
        while self.queries.waiting.front().is_some_and(over) {
            let why = Refusal::Busy(self.why_not_answering(now));
            let asked = self.queries.waiting.pop_front().expect("it was just looked at");
            refuse(&asked, why, effects);
        }
        if !self.queries.waiting.is_empty() && !self.has_lease(now) {
            self.want_lease(now, effects);
        }
    }

    pub(super) fn why_not_answering(&self, now: Instant) -> String {
        if !self.has_begun() {
            "the shard begins".to_string()
        } else if !self.acting() {
            "the predecessor of this tail was not heard of since the chain changed".to_string()
        } else if now < self.quiet_until {
            "the tail before this one may still answer".to_string()
        } else if self.applied < self.answers_from {
            let left = self.answers_from - self.applied;
            format!("this tail has {left} entries to commit that the one before may have answered")
        } else {
            "this tail has no lease: its predecessors do not answer".to_string()
        }
    }

    pub(super) fn refuse_queries(&mut self, why: &Refusal, effects: &mut Vec<Effect>) {
        for asked in std::mem::take(&mut self.queries.waiting) {
            refuse(&asked, why.clone(), effects);
        }
    }

    fn answer(&mut self, asked: Asked, effects: &mut Vec<Effect>) {
        let answer = match &asked.query {
            Query::Get { key } => match self.tables.get(key) {
                Some(row) => Answer::Row(Some(row.clone())),
                None if !self.cold.used || !archivable(key.table) => Answer::Row(None),
                None => match self.cold.above(key) {
                    Above::Row(row) => Answer::Row(Some(row.clone())),
                    Above::Gone => Answer::Row(None),
                    Above::Nothing => {
                        let (ticket, key) = (self.queries.ticket(), key.clone());
                        effects.push(Effect::ColdGet { ticket, key });
                        self.queries.reading.insert(ticket, asked);
                        return;
                    }
                },
            },
            Query::Scan { table, prefix, from, limit, archived } => {
                let limit = (*limit).clamp(1, CONTROL_PAGE_ROWS_MAX);
                if *archived && self.cold.used && archivable(*table) {
                    let ticket = self.queries.ticket();
                    let (from, until) = range(*table, prefix, from.as_deref());
                    let bytes = CONTROL_PAGE_BYTES as u64;
                    let from = Some(from);
                    effects.push(Effect::ColdScan { ticket, from, until, limit, bytes });
                    self.queries.reading.insert(ticket, asked);
                    return;
                }
                self.page(*table, prefix, from.as_deref(), limit)
            }
        };
        self.respond(&asked, answer, effects);
    }

    fn page(&mut self, table: Table, prefix: &[u8], from: Option<&[u8]>, limit: u32) -> Answer {
        if let Some((rows, next)) = self.pages.find(table, prefix, from, limit) {
            return Answer::Page { rows, next };
        }
        let page = self.tables.scan(table, prefix, from, limit as usize, CONTROL_PAGE_BYTES);
        let (rows, next) = (page.rows.into(), page.next);
        self.pages.keep(table, prefix, from, limit, &rows, next.as_deref());
        Answer::Page { rows, next }
    }

    fn respond(&self, asked: &Asked, answer: Answer, effects: &mut Vec<Effect>) {
        let response = Response::Answered { request: asked.request, index: self.applied, answer };
        effects.push(Effect::Respond { to: asked.client, response });
    }

    pub(super) fn on_cold_row(&mut self, ticket: u64, row: Option<Row>, effects: &mut Vec<Effect>) {
        let Some(asked) = self.queries.reading.remove(&ticket) else { return };
        let Query::Get { key } = &asked.query else { return };
        let row = match (self.tables.get(key), self.cold.above(key)) {
            (Some(row), _) | (None, Above::Row(row)) => Some(row.clone()),
            (None, Above::Gone) => None,
            (None, Above::Nothing) => row,
        };
        self.respond(&asked, Answer::Row(row), effects);
    }

    pub(super) fn on_cold_page(
        &mut self,
        now: Instant,
        ticket: u64,
        mut rows: Vec<(Key, Row)>,
        until: Option<Key>,
        effects: &mut Vec<Effect>,
    ) {
        if self.on_chunk_read(now, ticket, &mut rows, until.as_ref(), effects) {
            return;
        }
        let Some(asked) = self.queries.reading.remove(&ticket) else { return };
        let Query::Scan { table, prefix, from, limit, .. } = &asked.query else { return };
        let limit = (*limit).clamp(1, CONTROL_PAGE_ROWS_MAX) as usize;
        let (start, end) = range(*table, prefix, from.as_deref());
        let page_end = until.or(end);
        let mut merged = self.cold.overlaid(Some(&start), page_end.as_ref(), rows);
        // A row in memory is newer than its namesake in the archive.
        let mut next = page_end.filter(|end| end.table == *table && end.bytes.starts_with(prefix));
        let in_range = |key: &Key| {
            key.table == *table
                && key.bytes.starts_with(prefix)
                && next.as_ref().is_none_or(|next| key < next)
        };
        let hot = self.tables.range(Some(&start)).take_while(|(key, _)| in_range(key));
        for (key, row) in hot.take(limit + 1) {
            merged.insert(key.clone(), row.clone());
        }
        let mut page = Vec::new();
        let mut bytes = 0;
        for (key, row) in merged {
            if page.len() == limit || bytes >= CONTROL_PAGE_BYTES {
                next = Some(key);
                break;
            }
            bytes += key.bytes.len() + row.value.len();
            page.push((key.bytes, row));
        }
        let answer = Answer::Page { rows: page.into(), next: next.map(|next| next.bytes) };
        self.respond(&asked, answer, effects);
    }

    pub(super) fn on_cold_failed(&mut self, now: Instant, flush: u64, why: &str) {
        if self.cold.on_failed(now, flush, why) {
            self.note(now, format!("the cold tier is not written: {why}"));
        }
    }

    pub(super) fn on_cold_unread(
        &mut self,
        now: Instant,
        ticket: u64,
        why: &str,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(asked) = self.queries.reading.remove(&ticket) {
            refuse(&asked, Refusal::Disk(why.to_string()), effects);
        } else if self.on_chunk_unread(now, ticket) {
            self.note(now, format!("the cold tier is not read: {why}"));
        }
    }

    /// The cold tier is behind, and somebody waits for it.
    pub(super) fn waits_for_cold(&self) -> bool {
        self.base_unstable.is_some() || self.snapshots.waits_for_cold()
    }
}

fn refuse(asked: &Asked, why: Refusal, effects: &mut Vec<Effect>) {
    let response = Response::QueryRefused { request: asked.request, why };
    effects.push(Effect::Respond { to: asked.client, response });
}

/// The keys of a scan: from the first to before the second.
fn range(table: Table, prefix: &[u8], from: Option<&[u8]>) -> (Key, Option<Key>) {
    let start = from.filter(|from| *from > prefix).unwrap_or(prefix).to_vec();
    let mut end = prefix.to_vec();
    while let Some(last) = end.last_mut() {
        if *last < u8::MAX {
            *last += 1;
            break;
        }
        end.pop();
    }
    // Without a key behind the prefix: up to the end of the table.
    let end = (!end.is_empty()).then_some(Key { table, bytes: end });
    (Key { table, bytes: start }, end.or_else(|| next_table(table)))
}

fn next_table(table: Table) -> Option<Key> {
    let next = match table {
        Table::Node => Table::Job,
        Table::Job => Table::Function,
        Table::Function => Table::Object,
        Table::Object => Table::Task,
        Table::Task => Table::Actor,
        Table::Actor => Table::PlacementGroup,
        Table::PlacementGroup => Table::Kv,
        Table::Kv => Table::Event,
        Table::Event => Table::Token,
        Table::Token => Table::Head,
        Table::Head => Table::History,
        Table::History => return None,
    };
    Some(Key { table: next, bytes: vec![] })
}
