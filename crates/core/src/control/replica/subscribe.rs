//! Who looks on: at the tail, changes of keys with a prefix, after a cursor, while there is credit.
//!
//! Nothing is queued for a subscriber: a cursor walks along the history, which is bounded. Who is too slow for it
//! is told so and goes on from where the history begins, after it has read the table again.
//!
//! News are told at once. Where many look on, nothing is told for a moment after that, and what comes meanwhile is told together: else a thousand
//! nodes that join at a time would be a million messages. It ends early when the history would lose what was not looked at since: a flood of
//! rows of one table must not have all who look on at another one read that again.
//!
//! # Invariants
//! - CHAIN-8: a subscriber sees each change after its cursor once, in order, or is told `Missed`.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::Instant;
use hoplo_base::limits::{
    CONTROL_NEWS_AT_ONCE, CONTROL_NEWS_GATHERED_MAX, CONTROL_NEWS_GATHERED_OF_EACH,
    CONTROL_PAGE_BYTES, CONTROL_SUBSCRIPTION_NEWS, CONTROL_SUBSCRIPTIONS_MAX,
};
use hoplo_wire::control::{ClientId, Refusal, Response, ShardId, Table};

use super::Effect;
use super::history::History;

#[derive(Clone, Debug, Default)]
pub struct Subscriptions {
    all: BTreeMap<(ClientId, u64), Subscription>,
    /// Those with credit whose cursor is not at the end.
    behind: BTreeSet<(ClientId, u64)>,
    /// Nothing is told before.
    gathers_until: Instant,
    /// The entry up to which all with credit were told.
    published: u64,
    /// No cursor that moved without a word is to be told before; absent if none moved.
    reminds_at: Option<Instant>,
}

#[derive(Clone, Debug)]
struct Subscription {
    table: Table,
    prefix: Vec<u8>,
    /// Entries up to this one were told, or have nothing of interest.
    cursor: u64,
    /// The subscriber knows that.
    told: u64,
    told_at: Instant,
    credit: u32,
}

impl Subscriptions {
    /// One with the same number is replaced.
    #[expect(clippy::too_many_arguments, reason = "the fields of one request")]
    pub fn add(
        &mut self,
        now: Instant,
        client: ClientId,
        number: u64,
        table: Table,
        prefix: Vec<u8>,
        after: u64,
        credit: u32,
    ) -> Result<(), Refusal> {
        let id = (client, number);
        if self.all.len() >= CONTROL_SUBSCRIPTIONS_MAX && !self.all.contains_key(&id) {
            let many = format!("{CONTROL_SUBSCRIPTIONS_MAX} subscriptions are open here");
            return Err(Refusal::Busy(many));
        }
        let (cursor, told) = (after, after);
        let new = Subscription { table, prefix, cursor, told, told_at: now, credit };
        self.all.insert(id, new);
        self.behind.insert(id);
        Ok(())
    }

    pub fn credit(&mut self, client: ClientId, number: u64, more: u32) {
        if let Some(subscription) = self.all.get_mut(&(client, number)) {
            subscription.credit = subscription.credit.saturating_add(more);
            self.behind.insert((client, number));
        }
    }

    pub fn remove(&mut self, client: ClientId, number: u64) {
        self.all.remove(&(client, number));
        self.behind.remove(&(client, number));
    }

    pub fn client_gone(&mut self, client: ClientId) {
        self.all.retain(|(of, _), _| *of != client);
        self.behind.retain(|(of, _)| *of != client);
    }

    /// This replica publishes no more.
    pub fn end_all(&mut self, shard: ShardId, why: &Refusal, effects: &mut Vec<Effect>) {
        self.behind.clear();
        for ((client, subscription), _) in std::mem::take(&mut self.all) {
            let response = Response::SubscriptionEnded { shard, subscription, why: why.clone() };
            effects.push(Effect::Respond { to: client, response });
        }
    }

    /// Something was applied: everybody may be behind.
    pub fn news(&mut self) {
        if self.behind.len() < self.all.len() {
            self.behind.extend(self.all.keys().copied());
        }
    }

    /// Tells what there is up to `applied`. Afterwards the history may keep no more than `recent_bytes`.
    pub fn publish(
        &mut self,
        now: Instant,
        shard: ShardId,
        history: &History,
        recent_bytes: u64,
        applied: u64,
        effects: &mut Vec<Effect>,
    ) {
        let stays = history.bytes_between(self.published, history.last()) <= recent_bytes;
        if now < self.gathers_until && stays {
            return;
        }
        self.published = applied;
        let before = effects.len();
        for id in std::mem::take(&mut self.behind) {
            let Some(subscription) = self.all.get_mut(&id) else { continue };
            while let Some(response) = subscription.next(now, shard, id.1, history, applied) {
                effects.push(Effect::Respond { to: id.0, response });
            }
            let moved = [self.reminds_at, subscription.reminder_at()];
            self.reminds_at = moved.into_iter().flatten().min();
        }
        if effects.len() > before && self.all.len() > CONTROL_NEWS_AT_ONCE {
            let all = CONTROL_NEWS_GATHERED_OF_EACH * self.all.len() as u32;
            self.gathers_until = now + all.min(CONTROL_NEWS_GATHERED_MAX);
        }
    }

    /// Cursors that moved without a word are told now and then, so that a new tail need not go far back.
    pub fn remind(&mut self, now: Instant) {
        if self.reminds_at.is_none_or(|at| at > now) {
            return;
        }
        let moved = self.all.iter().filter_map(|(id, it)| Some((*id, it.reminder_at()?)));
        let (due, later): (Vec<_>, Vec<_>) = moved.partition(|(_, at)| *at <= now);
        self.behind.extend(due.into_iter().map(|(id, _)| id));
        self.reminds_at = later.into_iter().map(|(_, at)| at).min();
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        let gathered = (!self.behind.is_empty()).then_some(self.gathers_until);
        self.reminds_at.into_iter().chain(gathered).min()
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl Subscription {
    fn next(
        &mut self,
        now: Instant,
        shard: ShardId,
        subscription: u64,
        history: &History,
        applied: u64,
    ) -> Option<Response> {
        if self.cursor < applied && !history.changes_known_after(self.cursor) {
            // It reads the table again, which says of which entry it is, and subscribes after that.
            let oldest = history.changes_after() + 1;
            (self.cursor, self.told, self.told_at) = (oldest - 1, oldest - 1, now);
            self.credit = 0;
            return Some(Response::Missed { shard, subscription, oldest });
        }
        let after = self.told;
        let mut changes = Vec::new();
        let mut bytes = 0;
        // An entry is told as a whole (a cursor is an index); its changes may overdraw the credit once.
        while self.cursor < applied
            && (changes.len() as u64) < u64::from(self.credit)
            && bytes < CONTROL_PAGE_BYTES
        {
            self.cursor += 1;
            bytes += history.changes(self.cursor, self.table, &self.prefix, &mut changes);
        }
        let due = self.reminder_at().is_some_and(|at| at <= now);
        if changes.is_empty() && !due {
            return None;
        }
        self.credit = self.credit.saturating_sub(changes.len() as u32);
        (self.told, self.told_at) = (self.cursor, now);
        Some(Response::Changes { shard, subscription, after, changes, upto: self.cursor })
    }

    fn reminder_at(&self) -> Option<Instant> {
        (self.told < self.cursor).then(|| self.told_at + CONTROL_SUBSCRIPTION_NEWS)
    }
}
