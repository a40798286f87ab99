//! Subscriptions over all shards: a cursor, a credit and the tail that serves it, for each shard.

use std::collections::BTreeMap;

use hoplo_base::Instant;
use hoplo_base::limits::CONTROL_BATCH_OPS_MAX;
use hoplo_wire::control::{Change, Refusal, ReplicaId, Request, ShardId, Table};

use super::{Client, Effect};

pub(super) struct Subscription {
    table: Table,
    prefix: Vec<u8>,
    /// By shard: the caller's start, for shards that are not known yet.
    after: Vec<u64>,
    /// Changes of one shard that may be on their way or in the caller's hands.
    window: u32,
    shards: BTreeMap<ShardId, Cursor>,
}

struct Cursor {
    /// Everything up to this entry was told.
    at: u64,
    /// Told, not consumed.
    held: u32,
    /// Consumed, and not yet said so to the tail.
    owed: u32,
    /// Who serves it now; nobody else is listened to.
    tail: Option<ReplicaId>,
    /// Waits for `Resume`.
    missed: bool,
}

/// By a tail, or by one that was.
pub(super) struct Told {
    pub(super) from: ReplicaId,
    pub(super) shard: ShardId,
    pub(super) after: u64,
    pub(super) changes: Vec<Change>,
    pub(super) upto: u64,
}

impl Client {
    pub(super) fn on_subscribe(
        &mut self,
        subscription: u64,
        table: Table,
        prefix: Vec<u8>,
        after: Vec<u64>,
        credit: u32,
        effects: &mut Vec<Effect>,
    ) {
        assert!(credit > 0 && !self.subscriptions.contains_key(&subscription));
        let shards = BTreeMap::new();
        let new = Subscription { table, prefix, after, window: credit, shards };
        self.subscriptions.insert(subscription, new);
        for number in 0..self.shards.len() {
            self.subscribe_again(number, false, effects);
        }
    }

    /// At the tail as it is now: those that nobody serves, or `all` of them.
    pub(super) fn subscribe_again(&mut self, number: usize, all: bool, effects: &mut Vec<Effect>) {
        let tail = self.tail_up(number);
        let chain = &self.shards[number].chain;
        for (&id, subscription) in &mut self.subscriptions {
            let after = subscription.after.get(number).copied().unwrap_or(0);
            let cursor = subscription.shards.entry(chain.shard).or_insert(Cursor {
                at: after,
                held: 0,
                owed: 0,
                tail: None,
                missed: false,
            });
            if cursor.missed || (cursor.tail.is_some() && !all) {
                continue;
            }
            cursor.tail = tail;
            cursor.owed = 0;
            let Some(to) = tail else { continue };
            effects.push(Effect::Send {
                to,
                request: Request::Subscribe {
                    shard: chain.shard,
                    epoch: chain.epoch,
                    subscription: id,
                    table: subscription.table,
                    prefix: subscription.prefix.clone(),
                    after: cursor.at,
                    credit: subscription.window.saturating_sub(cursor.held),
                },
            });
        }
    }

    pub(super) fn on_changes(
        &mut self,
        now: Instant,
        subscription: u64,
        told: Told,
        effects: &mut Vec<Effect>,
    ) {
        let Told { from, shard, after, mut changes, upto } = told;
        let Some((cursor, window)) = self.cursor(subscription, shard, from) else { return };
        if after > cursor.at {
            // From an older subscription at the same tail, whose last words were not listened to: what lies
            // between is told by the one that was asked for since, or asked for now.
            cursor.tail = None;
            self.shards[usize::from(shard.0)].retry_later(now);
            return;
        }
        let told = changes.len();
        changes.retain(|change| change.index > cursor.at);
        cursor.owed += (told - changes.len()) as u32;
        // What nobody is told nobody consumes: its credit goes back here.
        effects.extend(cursor.credit(subscription, shard, window));
        if upto <= cursor.at && changes.is_empty() {
            return;
        }
        let held = cursor.held + changes.len() as u32;
        if held > held_max(window) {
            // Nobody sends more.
            cursor.tail = None;
            self.trouble =
                Some(format!("shard {}: more changes came than credit was given", shard.0));
            self.shards[usize::from(shard.0)].retry_later(now);
            return;
        }
        cursor.at = cursor.at.max(upto);
        cursor.held = held;
        effects.push(Effect::Changes { subscription, shard, changes, upto });
    }

    pub(super) fn on_missed(
        &mut self,
        from: ReplicaId,
        shard: ShardId,
        subscription: u64,
        oldest: u64,
        effects: &mut Vec<Effect>,
    ) {
        let Some((cursor, _)) = self.cursor(subscription, shard, from) else { return };
        if oldest <= cursor.at + 1 {
            // It was asked from an older place, and what lay between was told meanwhile. Nothing is missed, but the
            // tail has stopped until it is asked again.
            cursor.tail = None;
            self.subscribe_again(usize::from(shard.0), false, effects);
            return;
        }
        cursor.missed = true;
        cursor.tail = None;
        effects.push(Effect::Missed { subscription, shard, oldest });
    }

    /// The shard's history went on from before what was told: nobody has another beginning than the table itself.
    pub(super) fn subscriptions_void(&mut self, number: usize, effects: &mut Vec<Effect>) {
        let shard = self.shards[number].chain.shard;
        for (&subscription, known) in &mut self.subscriptions {
            let Some(cursor) = known.shards.get_mut(&shard) else { continue };
            let told = cursor.missed;
            (cursor.at, cursor.tail, cursor.missed) = (0, None, true);
            if !told {
                effects.push(Effect::Missed { subscription, shard, oldest: 1 });
            }
        }
    }

    pub(super) fn on_subscription_ended(
        &mut self,
        now: Instant,
        shard: ShardId,
        subscription: u64,
        why: &Refusal,
    ) {
        let known = self.subscriptions.get_mut(&subscription);
        let Some(cursor) = known.and_then(|known| known.shards.get_mut(&shard)) else { return };
        cursor.tail = None;
        self.trouble = Some(format!("shard {}: a subscription ended: {why}", shard.0));
        self.shards[usize::from(shard.0)].retry_later(now);
        self.ask_soon(now);
    }

    pub(super) fn on_consumed(
        &mut self,
        subscription: u64,
        shard: ShardId,
        changes: u32,
        effects: &mut Vec<Effect>,
    ) {
        let Some(known) = self.subscriptions.get_mut(&subscription) else { return };
        let Some(cursor) = known.shards.get_mut(&shard) else { return };
        assert!(changes <= cursor.held, "nobody consumes what was not told");
        cursor.held -= changes;
        if cursor.tail.is_some() {
            cursor.owed += changes;
            effects.extend(cursor.credit(subscription, shard, known.window));
        }
    }

    pub(super) fn on_resume(
        &mut self,
        subscription: u64,
        shard: ShardId,
        after: u64,
        effects: &mut Vec<Effect>,
    ) {
        let Some(known) = self.subscriptions.get_mut(&subscription) else { return };
        let Some(cursor) = known.shards.get_mut(&shard) else { return };
        if !cursor.missed {
            return;
        }
        cursor.missed = false;
        cursor.at = cursor.at.max(after);
        self.subscribe_again(usize::from(shard.0), false, effects);
    }

    pub(super) fn on_unsubscribe(&mut self, subscription: u64, effects: &mut Vec<Effect>) {
        let Some(known) = self.subscriptions.remove(&subscription) else { return };
        for (shard, cursor) in known.shards {
            let request = Request::Unsubscribe { shard, subscription };
            effects.extend(cursor.tail.map(|to| Effect::Send { to, request }));
        }
    }

    /// The tail that served a subscription can not be reached any more.
    pub(super) fn subscriptions_lost(&mut self, replica: ReplicaId) {
        let cursors = self.subscriptions.values_mut().flat_map(|known| known.shards.values_mut());
        for cursor in cursors.filter(|cursor| cursor.tail == Some(replica)) {
            cursor.tail = None;
        }
    }

    /// The cursor that this replica serves.
    fn cursor(
        &mut self,
        subscription: u64,
        shard: ShardId,
        from: ReplicaId,
    ) -> Option<(&mut Cursor, u32)> {
        let known = self.subscriptions.get_mut(&subscription)?;
        let cursor = known.shards.get_mut(&shard)?;
        (cursor.tail == Some(from)).then_some((cursor, known.window))
    }
}

impl Cursor {
    /// Half the window at a time, so that credit costs few messages.
    fn credit(&mut self, subscription: u64, shard: ShardId, window: u32) -> Option<Effect> {
        let to = self.tail.filter(|_| self.owed * 2 >= window)?;
        let more = std::mem::take(&mut self.owed);
        Some(Effect::Send { to, request: Request::Credit { shard, subscription, more } })
    }
}

/// Twice the credit: one window before it was subscribed again, one after; each is overdrawn by one
/// entry at most, because a cursor cannot lie within an entry.
fn held_max(window: u32) -> u32 {
    window.saturating_add(CONTROL_BATCH_OPS_MAX as u32).saturating_mul(2)
}

impl Subscription {
    pub(super) fn check(&self) {
        for cursor in self.shards.values() {
            assert!(cursor.held <= held_max(self.window), "CLIENT-4: credit");
        }
    }
}
