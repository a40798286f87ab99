//! Queries on their way: each goes to the tail (or to any replica, if the caller allows) until answered.

use std::time::Duration;

use hoplo_base::{Instant, limits};
use hoplo_wire::control::{Answer, Query, Refusal, ReplicaId, Request, ShardId};

use super::{CallError, Client, Done, Effect, LinkState};

/// One shard's part of a call.
pub(super) struct Waiting {
    pub(super) call: u64,
    pub(super) shard: ShardId,
    query: Query,
    stale: bool,
    /// Absent while no replica that may answer can be reached, or after a refusal.
    sent_to: Option<ReplicaId>,
}

impl Client {
    pub(super) fn ask_shard(
        &mut self,
        now: Instant,
        call: u64,
        shard: ShardId,
        query: Query,
        stale: bool,
        effects: &mut Vec<Effect>,
    ) {
        let request = self.next_request;
        self.next_request += 1;
        self.queries.insert(request, Waiting { call, shard, query, stale, sent_to: None });
        self.shards[usize::from(shard.0)].queries.insert(request);
        self.send_query(now, request, effects);
    }

    fn send_query(&mut self, now: Instant, request: u64, effects: &mut Vec<Effect>) {
        let waiting = &self.queries[&request];
        let shard = &self.shards[usize::from(waiting.shard.0)];
        let members = &shard.chain.members;
        let up = |replica: &ReplicaId| {
            self.links.get(replica).is_some_and(|link| link.state == LinkState::Up)
        };
        let tail = members.last().map(|member| member.replica);
        let to = if waiting.stale {
            // Spread, the same for one client as long as the chain is.
            let start = (self.me.0 % members.len() as u64) as usize;
            let order = (0..members.len()).map(|place| (start + place) % members.len());
            order.map(|place| members[place].replica).find(up)
        } else {
            tail.filter(up)
        };
        let effect = to.map(|to| Effect::Send {
            to,
            request: Request::Query {
                shard: waiting.shard,
                epoch: shard.chain.epoch,
                request,
                query: waiting.query.clone(),
                stale: waiting.stale,
            },
        });
        effects.extend(effect);
        let number = usize::from(waiting.shard.0);
        self.queries.get_mut(&request).expect("it was there").sent_to = to;
        if to.is_some() {
            self.shards[number].queries_waiting.sent(now, Duration::ZERO);
        }
    }

    /// After a change of the chain, its connections, or a silence.
    pub(super) fn resend_queries(
        &mut self,
        now: Instant,
        number: usize,
        effects: &mut Vec<Effect>,
    ) {
        let requests: Vec<u64> = self.shards[number].queries.iter().copied().collect();
        for request in requests {
            self.send_query(now, request, effects);
        }
    }

    pub(super) fn on_answered(
        &mut self,
        now: Instant,
        request: u64,
        index: u64,
        answer: Answer,
        effects: &mut Vec<Effect>,
    ) {
        let Some(waiting) = self.queries.remove(&request) else { return };
        let shard = &mut self.shards[usize::from(waiting.shard.0)];
        shard.queries.remove(&request);
        shard.queries_waiting.heard(now, Duration::ZERO, !shard.queries.is_empty());
        shard.retry_after = Duration::ZERO;
        match (answer, &waiting.query) {
            (Answer::Row(row), Query::Get { .. }) => {
                self.finish(waiting.call, Ok(Done::Row(row)), effects);
            }
            (Answer::Page { rows, next }, Query::Scan { .. }) => {
                self.page_done(
                    waiting.call,
                    waiting.shard,
                    rows.into_value(),
                    next,
                    index,
                    effects,
                );
            }
            (Answer::Row(_), Query::Scan { .. }) | (Answer::Page { .. }, Query::Get { .. }) => {
                // The peer does not know what it was asked for.
                let why = Refusal::Busy("the replica answered another question".to_string());
                self.query_failed(waiting.call, why, effects);
            }
        }
    }

    pub(super) fn on_query_refused(
        &mut self,
        now: Instant,
        request: u64,
        why: Refusal,
        effects: &mut Vec<Effect>,
    ) {
        let Some(waiting) = self.queries.get_mut(&request) else { return };
        waiting.sent_to = None;
        let (call, number) = (waiting.call, usize::from(waiting.shard.0));
        self.trouble = Some(format!("shard {number}: {why}"));
        let shard = &mut self.shards[number];
        shard.queries_waiting.heard(now, Duration::ZERO, true);
        match why {
            Refusal::Stale(_) | Refusal::NotMine(_) => {
                shard.retry_later(now);
                self.ask_soon(now);
            }
            Refusal::Busy(_) | Refusal::Gap { .. } | Refusal::SessionOver { .. } => {
                shard.retry_later(now)
            }
            Refusal::KeyTooLong { .. }
            | Refusal::ValueTooLong { .. }
            | Refusal::BatchTooLarge(_)
            | Refusal::BadRow { .. }
            | Refusal::NotAllowed(_)
            | Refusal::Full { .. }
            | Refusal::Disk(_) => self.query_failed(call, why, effects),
        }
    }

    fn query_failed(&mut self, call: u64, why: Refusal, effects: &mut Vec<Effect>) {
        self.forget_queries(call);
        self.finish(call, Err(CallError::Refused { why, elsewhere: false }), effects);
    }

    pub(super) fn forget_queries(&mut self, call: u64) {
        self.queries.retain(|request, waiting| {
            if waiting.call != call {
                return true;
            }
            let shard = &mut self.shards[usize::from(waiting.shard.0)];
            shard.queries.remove(request);
            if shard.queries.is_empty() {
                shard.queries_waiting = super::Silence::default();
            }
            false
        });
    }

    pub(super) fn queries_on_time(
        &mut self,
        now: Instant,
        number: usize,
        effects: &mut Vec<Effect>,
    ) {
        let shard = &mut self.shards[number];
        let asks = shard.queries_waiting.ask_due(now);
        let resend = shard.queries_waiting.resend_due(now);
        let retry = shard.retry_at.is_some_and(|at| at <= now);
        if resend {
            self.resend_queries(now, number, effects);
        } else if retry {
            let refused = self.shards[number].queries.iter().copied();
            let refused: Vec<u64> =
                refused.filter(|request| self.queries[request].sent_to.is_none()).collect();
            for request in refused {
                self.send_query(now, request, effects);
            }
        }
        if retry {
            self.shards[number].retry_at = None;
            self.subscribe_again(number, false, effects);
        }
        if asks {
            self.ask_soon(now);
        }
    }
}

impl super::Shard {
    pub(super) fn retry_later(&mut self, now: Instant) {
        if self.retry_at.is_none() {
            self.retry_after = (self.retry_after * 2)
                .clamp(limits::CONTROL_CLIENT_RETRY_FIRST, limits::CONTROL_CLIENT_RETRY_LAST);
            self.retry_at = Some(now + self.retry_after);
        }
    }
}
