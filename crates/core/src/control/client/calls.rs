//! A call from its beginning to its `Finish`: splitting by shard, putting answers together, deadlines.

use std::collections::BTreeMap;

use hoplo_base::Instant;
use hoplo_base::limits::CONTROL_CLIENT_QUEUE_BYTES_MAX;
use hoplo_wire::control::{Op, Outcome, Query, Refusal, Row, ShardId};

use super::state::{CallState, Page, ScanState, UpdateState, What, key_of, op_bytes};
use super::updates::Part;
use super::{Call, CallError, Client, Done, Effect, shard_of};

impl Client {
    pub(super) fn on_call(
        &mut self,
        now: Instant,
        call: u64,
        what: Call,
        deadline: Instant,
        effects: &mut Vec<Effect>,
    ) {
        assert!(!self.calls.contains_key(&call), "the shell numbers calls");
        self.calls.insert(call, CallState { deadline, what: What::Early });
        self.deadlines.insert((deadline, call));
        if self.config.is_some() {
            self.begin(now, call, what, effects);
            return;
        }
        let bytes = match &what {
            Call::Update(ops) => ops.iter().map(op_bytes).sum(),
            Call::Query { .. } => QUERY_BYTES,
        };
        if self.early_bytes + bytes > CONTROL_CLIENT_QUEUE_BYTES_MAX {
            self.finish(call, Err(overloaded(self.early_bytes + bytes)), effects);
        } else {
            self.early_bytes += bytes;
            self.early.push((call, what));
        }
    }

    /// The configuration is there.
    pub(super) fn begin(&mut self, now: Instant, call: u64, what: Call, effects: &mut Vec<Effect>) {
        match what {
            Call::Update(ops) => self.begin_update(now, call, ops, effects),
            Call::Query { query, stale } => self.begin_query(now, call, query, stale, effects),
        }
    }

    fn begin_update(&mut self, now: Instant, call: u64, ops: Vec<Op>, effects: &mut Vec<Effect>) {
        let count = ops.len();
        let mut parts: BTreeMap<ShardId, Part> = BTreeMap::new();
        for (place, op) in ops.into_iter().enumerate() {
            let shard = shard_of(key_of(&op), self.shards.len() as u16);
            let part = parts.entry(shard).or_insert_with(|| Part::new(call));
            part.push(place, op);
        }
        if parts.is_empty() {
            self.finish(call, Ok(Done::Updated(Vec::new())), effects);
            return;
        }
        for (shard, part) in &parts {
            if let Some(bytes) = self.shards[usize::from(shard.0)].updates.no_room(part) {
                self.finish(call, Err(overloaded(bytes)), effects);
                return;
            }
        }
        self.state(call).what = What::Update(UpdateState {
            outcomes: vec![None; count],
            parts_left: parts.len(),
            parts: parts.len(),
            refused: None,
            sent: false,
        });
        for (shard, part) in parts {
            self.enqueue(now, shard, part, effects);
        }
    }

    fn begin_query(
        &mut self,
        now: Instant,
        call: u64,
        query: Query,
        stale: bool,
        effects: &mut Vec<Effect>,
    ) {
        match &query {
            Query::Get { key } => {
                let shard = shard_of(key, self.shards.len() as u16);
                self.state(call).what = What::Get;
                self.ask_shard(now, call, shard, query, stale, effects);
            }
            Query::Scan { limit, .. } => {
                let shards = self.shards.len();
                self.state(call).what = What::Scan(ScanState {
                    limit: *limit as usize,
                    pages: BTreeMap::new(),
                    shards,
                });
                for shard in 0..shards {
                    self.ask_shard(now, call, ShardId(shard as u16), query.clone(), stale, effects);
                }
            }
        }
    }

    /// One shard has applied its part.
    pub(super) fn part_done(
        &mut self,
        call: u64,
        places: &[usize],
        outcomes: &[Outcome],
        effects: &mut Vec<Effect>,
    ) {
        let Some(update) = self.update_of(call) else { return };
        for (&place, outcome) in places.iter().zip(outcomes) {
            update.outcomes[place] = Some(*outcome);
        }
        update.parts_left -= 1;
        self.finish_when_whole(call, effects);
    }

    /// One shard will never apply its part.
    pub(super) fn part_refused(&mut self, call: u64, why: &Refusal, effects: &mut Vec<Effect>) {
        let Some(update) = self.update_of(call) else { return };
        update.parts_left -= 1;
        update.refused.get_or_insert_with(|| why.clone());
        self.finish_when_whole(call, effects);
    }

    /// Absent when the call is over: its caller was told that the update may still be applied.
    pub(super) fn update_of(&mut self, call: u64) -> Option<&mut UpdateState> {
        match &mut self.calls.get_mut(&call)?.what {
            What::Update(update) => Some(update),
            What::Early | What::Get | What::Scan(_) => None,
        }
    }

    fn finish_when_whole(&mut self, call: u64, effects: &mut Vec<Effect>) {
        let Some(update) = self.update_of(call) else { return };
        if update.parts_left > 0 {
            return;
        }
        let result = match update.refused.take() {
            Some(why) => Err(CallError::Refused { why, elsewhere: update.parts > 1 }),
            None => {
                let outcomes: Option<Vec<Outcome>> = update.outcomes.drain(..).collect();
                Ok(Done::Updated(
                    outcomes.expect("every shard answered for each of its operations"),
                ))
            }
        };
        self.finish(call, result, effects);
    }

    pub(super) fn page_done(
        &mut self,
        call: u64,
        shard: ShardId,
        rows: Vec<(Vec<u8>, Row)>,
        next: Option<Vec<u8>>,
        index: u64,
        effects: &mut Vec<Effect>,
    ) {
        let Some(state) = self.calls.get_mut(&call) else { return };
        let What::Scan(scan) = &mut state.what else { return };
        scan.pages.insert(shard, Page { rows, next, index });
        if scan.pages.len() == scan.shards {
            let page = scan.merge();
            self.finish(call, Ok(page), effects);
        }
    }

    pub(super) fn finish(
        &mut self,
        call: u64,
        result: Result<Done, CallError>,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(state) = self.calls.remove(&call) {
            self.deadlines.remove(&(state.deadline, call));
            effects.push(Effect::Finish { call, result });
        }
    }

    /// Ends what is out of time.
    pub(super) fn expire(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        while let Some(&(deadline, call)) = self.deadlines.first() {
            if deadline > now {
                break;
            }
            let state = &self.calls[&call];
            let may_apply = matches!(&state.what, What::Update(update) if update.sent);
            let early = matches!(state.what, What::Early);
            let update = matches!(state.what, What::Update(_));
            let waiting = self.waiting_for(call, state);
            if early {
                self.early.retain(|(other, _)| *other != call);
            } else if update {
                self.withdraw(call);
            } else {
                self.forget_queries(call);
            }
            self.finish(call, Err(CallError::Late { may_apply, waiting }), effects);
        }
    }

    pub(super) fn waiting_for(&self, call: u64, state: &CallState) -> String {
        let mut why = match &state.what {
            What::Early => {
                let where_from = self.coordinators.join(", ");
                format!("no coordinator has told the configuration yet (asked: {where_from})")
            }
            What::Update(update) => format!(
                "{} of {} shards have not answered the update",
                update.parts_left, update.parts
            ),
            What::Get | What::Scan(_) => {
                let open = self.queries.values().filter(|waiting| waiting.call == call);
                let shards: Vec<String> = open
                    .map(|waiting| self.shards[usize::from(waiting.shard.0)].describe())
                    .collect();
                format!("not answered by {}", shards.join(" and "))
            }
        };
        if let Some(trouble) = &self.trouble {
            why.push_str("; last heard: ");
            why.push_str(trouble);
        }
        why
    }

    pub(super) fn state(&mut self, call: u64) -> &mut CallState {
        self.calls.get_mut(&call).expect("the call has just begun")
    }
}

impl super::Shard {
    fn describe(&self) -> String {
        let tail = self.chain.members.last().map_or("nobody", |member| member.address.as_str());
        format!("shard {} (tail {tail}, epoch {})", self.chain.shard.0, self.chain.epoch.0)
    }
}

impl ScanState {
    /// Keys up to where the shortest page ends; what lies behind comes with the next page.
    fn merge(&mut self) -> Done {
        let mut next = self.pages.values().filter_map(|page| page.next.clone()).min();
        let indexes = self.pages.values().map(|page| page.index).collect();
        let pages = std::mem::take(&mut self.pages);
        let mut rows: Vec<_> = pages.into_values().flat_map(|page| page.rows).collect();
        rows.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        if let Some(next) = &next {
            rows.retain(|(key, _)| key < next);
        }
        if rows.len() > self.limit {
            next = Some(rows[self.limit].0.clone());
            rows.truncate(self.limit);
        }
        Done::Page { rows, next, indexes }
    }
}

const QUERY_BYTES: usize = 256;

fn overloaded(bytes: usize) -> CallError {
    CallError::Overloaded { bytes, max: CONTROL_CLIENT_QUEUE_BYTES_MAX }
}
