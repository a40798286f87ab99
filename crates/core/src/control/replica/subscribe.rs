//! Who looks on: at the tail, changes of keys with a prefix, after a cursor, while there is credit.
//!
//! Nothing is queued for a subscriber: a cursor walks along the history, which is bounded. Who is too slow for it
//! is told so and goes on from where the history begins, after it has read the table again.
//!
//! News are told at once. Where many look on, nothing is told for a moment after that, and what comes meanwhile is told together: else a thousand
//! nodes that join at a time would be a million messages. No more than some hundreds are told at a time, and the others after a moment, one
//! round after the other: who tells them has other work, too. Both end early when the history would lose what was not looked at since: a flood
//! of rows of one table must not have all who look on at another one read that again.
//!
//! Those whose cursors are at one place are told the same news, which are gathered and encoded once (`Shared`).
//!
//! # Invariants
//! - CHAIN-8: a subscriber sees each change after its cursor once, in order, or is told `Missed`.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::Instant;
use hoplo_base::limits::{
    CONTROL_NEWS_AT_ONCE, CONTROL_NEWS_GATHERED_OF_EACH, CONTROL_NEWS_TOLD_AT_A_TIME,
    CONTROL_PAGE_BYTES, CONTROL_SUBSCRIPTION_NEWS, CONTROL_SUBSCRIPTIONS_MAX,
};
use hoplo_wire::Shared;
use hoplo_wire::control::{Change, ClientId, Refusal, Response, ShardId, Table};

use super::Effect;
use super::history::History;

#[derive(Clone, Debug, Default)]
pub struct Subscriptions {
    all: BTreeMap<(ClientId, u64), Subscription>,
    /// Those with credit whose cursor is not at the end.
    behind: BTreeSet<(ClientId, u64)>,
    /// Of those that were, the ones whose turn in this round is still to come; and the last entry when the round began.
    round: BTreeSet<(ClientId, u64)>,
    round_upto: u64,
    /// Nothing is told before.
    gathers_until: Instant,
    /// The entry up to which all with credit were told.
    published: u64,
    /// No cursor that moved without a word is to be told before; absent if none moved.
    reminds_at: Option<Instant>,
}

/// Changes, and the entry up to which there are no others.
type News = (Shared<Vec<Change>>, u64);

/// For whoever has enough credit: by table, prefix and cursor.
type Made = BTreeMap<(Table, Vec<u8>, u64), News>;

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
        self.round.remove(&(client, number));
    }

    pub fn client_gone(&mut self, client: ClientId) {
        self.all.retain(|(of, _), _| *of != client);
        self.behind.retain(|(of, _)| *of != client);
        self.round.retain(|(of, _)| *of != client);
    }

    /// This replica publishes no more.
    pub fn end_all(&mut self, shard: ShardId, why: &Refusal, effects: &mut Vec<Effect>) {
        self.behind.clear();
        self.round.clear();
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
        if self.round.is_empty() || !stays {
            self.round.append(&mut self.behind);
            self.round_upto = applied;
        }
        let mut made = Made::new();
        let mut told = 0;
        while told < CONTROL_NEWS_TOLD_AT_A_TIME || !stays {
            let Some(id) = self.round.pop_first() else { break };
            let Some(subscription) = self.all.get_mut(&id) else { continue };
            let before = effects.len();
            while let Some(response) =
                subscription.next(now, shard, id.1, history, applied, &mut made)
            {
                effects.push(Effect::Respond { to: id.0, response });
            }
            told += usize::from(effects.len() > before);
            let moved = [self.reminds_at, subscription.reminder_at()];
            self.reminds_at = moved.into_iter().flatten().min();
        }
        if self.round.is_empty() {
            self.published = self.round_upto;
        }
        if told > 0 && self.all.len() > CONTROL_NEWS_AT_ONCE {
            self.gathers_until = now + CONTROL_NEWS_GATHERED_OF_EACH * told as u32;
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
        let some = !self.behind.is_empty() || !self.round.is_empty();
        let gathered = some.then_some(self.gathers_until);
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
        made: &mut Made,
    ) -> Option<Response> {
        if self.cursor < applied && !history.changes_known_after(self.cursor) {
            // It reads the table again, which says of which entry it is, and subscribes after that.
            let oldest = history.changes_after() + 1;
            (self.cursor, self.told, self.told_at) = (oldest - 1, oldest - 1, now);
            self.credit = 0;
            return Some(Response::Missed { shard, subscription, oldest });
        }
        let after = self.told;
        let mut changes = Shared::new(Vec::new());
        if self.cursor < applied && self.credit > 0 {
            (changes, self.cursor) = self.news(history, applied, made);
        }
        let due = self.reminder_at().is_some_and(|at| at <= now);
        if changes.is_empty() && !due {
            return None;
        }
        self.credit = self.credit.saturating_sub(changes.len() as u32);
        (self.told, self.told_at) = (self.cursor, now);
        Some(Response::Changes { shard, subscription, after, changes, upto: self.cursor })
    }

    /// What comes after its cursor, as far as its credit goes, and up to where that is.
    fn news(&self, history: &History, applied: u64, made: &mut Made) -> News {
        let gathered = |credit: u64| {
            let (mut changes, mut bytes, mut cursor) = (Vec::new(), 0, self.cursor);
            // An entry is told as a whole (a cursor is an index); its changes may overdraw the credit once.
            while cursor < applied && (changes.len() as u64) < credit && bytes < CONTROL_PAGE_BYTES
            {
                cursor += 1;
                bytes += history.changes(cursor, self.table, &self.prefix, &mut changes);
            }
            (Shared::new(changes), cursor)
        };
        let place = (self.table, self.prefix.clone(), self.cursor);
        let (changes, upto) = made.entry(place).or_insert_with(|| gathered(u64::MAX));
        if changes.len() as u64 <= u64::from(self.credit) {
            return (changes.clone(), *upto);
        }
        gathered(u64::from(self.credit))
    }

    fn reminder_at(&self) -> Option<Instant> {
        (self.told < self.cursor).then(|| self.told_at + CONTROL_SUBSCRIPTION_NEWS)
    }
}
