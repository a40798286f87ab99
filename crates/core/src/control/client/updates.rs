//! One shard's updates: the queue of parts of calls, and the window of batches that carry a seq.

use std::collections::VecDeque;
use std::time::Duration;

use hoplo_base::limits::{
    CONTROL_CLIENT_BATCH_BYTES, CONTROL_CLIENT_BATCH_OPS, CONTROL_CLIENT_QUEUE_BYTES_MAX,
    CONTROL_CLIENT_WINDOW,
};
use hoplo_base::{Instant, limits};
use hoplo_wire::control::{Op, Outcome, Refusal, Request, ShardId, Table};

use super::state::{CallState, What, key_of, op_bytes};
use super::{Client, Effect, Silence};

#[derive(Default)]
pub(super) struct Window {
    /// Of the next new batch, less one.
    last_seq: u64,
    /// What the shard said when it did not know this client's session (see `Request::Update`).
    born: u64,
    /// The shard knows the session: one of its batches was answered.
    open: bool,
    /// In order of their seqs, without gaps; the front one is not answered.
    batches: VecDeque<Batch>,
    queue: VecDeque<Part>,
    queue_bytes: usize,
    pub(super) waiting: Silence,
    /// After a refusal for now: when the window is sent again.
    pub(super) again_at: Option<Instant>,
    again_after: Duration,
    /// How long answers take: the longest of late (CLIENT-6).
    usual: Duration,
    /// When the window was sent again because of a gap.
    gap_at: Option<Instant>,
}

/// One call's operations for one shard.
pub(super) struct Part {
    call: u64,
    /// Of each operation in the call.
    places: Vec<usize>,
    ops: Vec<Op>,
    bytes: usize,
    /// Was refused in the company of others, or is about a node (CLIENT-7).
    alone: bool,
}

struct Batch {
    seq: u64,
    ops: Vec<Op>,
    /// Whose operations they are: so many of each call, in order.
    shares: Vec<Share>,
    bytes: usize,
    /// How often it went out; and when, first or after it was refused for a time.
    sends: u32,
    sent_at: Instant,
    refused: bool,
    answered: bool,
}

struct Share {
    call: u64,
    places: Vec<usize>,
}

impl Client {
    pub(super) fn enqueue(
        &mut self,
        now: Instant,
        shard: ShardId,
        part: Part,
        effects: &mut Vec<Effect>,
    ) {
        let window = &mut self.shards[usize::from(shard.0)].updates;
        window.queue_bytes += part.bytes;
        window.queue.push_back(part);
        self.pump(now, usize::from(shard.0), effects);
    }

    /// Sends new batches while there is room in the window.
    pub(super) fn pump(&mut self, now: Instant, number: usize, effects: &mut Vec<Effect>) {
        let ready = self.chain_up(number);
        let shard = &mut self.shards[number];
        // A window that waits to be sent again must go first.
        while ready && shard.updates.again_at.is_none() && shard.updates.take_batch() {
            let last = shard.updates.batches.len() - 1;
            for share in &shard.updates.batches[last].shares {
                if let Some(CallState { what: What::Update(update), .. }) =
                    self.calls.get_mut(&share.call)
                {
                    update.sent = true;
                }
            }
            shard.send_batches(now, last, effects);
        }
    }

    /// Everything that is not answered, in order: after a change of the chain or its connections.
    pub(super) fn resend_updates(
        &mut self,
        now: Instant,
        number: usize,
        effects: &mut Vec<Effect>,
    ) {
        if !self.chain_up(number) {
            return;
        }
        let shard = &mut self.shards[number];
        shard.updates.again_at = None;
        shard.send_batches(now, 0, effects);
        self.pump(now, number, effects);
    }

    pub(super) fn on_updated(
        &mut self,
        now: Instant,
        shard: ShardId,
        seq: u64,
        outcomes: Vec<Outcome>,
        effects: &mut Vec<Effect>,
    ) {
        let number = usize::from(shard.0);
        let Some(found) = self.shards.get_mut(number) else { return };
        let Some(batch) = found.updates.batch(seq) else { return };
        if batch.answered {
            return;
        }
        // An empty batch may be answered as the one that had its seq before: nobody waits for it.
        if batch.ops.len() != outcomes.len() && !batch.shares.is_empty() {
            self.trouble = Some(format!(
                "shard {} answered {} outcomes for {} operations",
                shard.0,
                outcomes.len(),
                batch.ops.len()
            ));
            return;
        }
        batch.answered = true;
        batch.ops = Vec::new();
        let shares = std::mem::take(&mut batch.shares);
        let took = now.since(batch.sent_at);
        found.updates.open = true;
        found.updates.answered(now, took);
        let mut rest = outcomes.as_slice();
        for share in shares {
            let (mine, others) = rest.split_at(share.places.len());
            rest = others;
            self.part_done(share.call, &share.places, mine, effects);
        }
        self.pump(now, number, effects);
    }

    pub(super) fn on_update_refused(
        &mut self,
        now: Instant,
        shard: ShardId,
        seq: u64,
        why: Refusal,
        effects: &mut Vec<Effect>,
    ) {
        let number = usize::from(shard.0);
        if number >= self.shards.len() {
            return;
        }
        self.trouble = Some(format!("shard {}: {why}", shard.0));
        let window = &mut self.shards[number].updates;
        match window.batch(seq) {
            // What it waits now is not what an answer takes.
            Some(batch) if !batch.answered => batch.refused = true,
            Some(_) | None => return,
        }
        window.waiting.heard(now, window.usual, true);
        match why {
            Refusal::Stale(_) | Refusal::NotMine(_) => {
                window.again_later(now);
                self.ask_soon(now);
            }
            Refusal::Busy(_) => window.again_later(now),
            Refusal::Gap { expected } => {
                // What comes before it was refused or lost; one resend heals all that follow it.
                let fresh = window
                    .gap_at
                    .is_none_or(|at| now.since(at) > limits::CONTROL_CLIENT_RETRY_LAST);
                if fresh && window.batch(expected).is_some() {
                    window.gap_at = Some(now);
                    window.again_at = Some(now);
                } else {
                    window.again_later(now);
                }
            }
            Refusal::SessionOver { upto } => self.session_over(now, number, upto, effects),
            Refusal::Disk(_) => self.refuse_from(now, number, seq, &why, effects),
            Refusal::KeyTooLong { .. }
            | Refusal::ValueTooLong { .. }
            | Refusal::BatchTooLarge(_)
            | Refusal::BadRow { .. }
            | Refusal::NotAllowed(_)
            | Refusal::Full { .. } => self.refuse(now, number, seq, &why, effects),
        }
    }

    /// This batch will never be taken: an empty one takes its seq. Calls that only travelled in its
    /// company are sent again, each by itself.
    fn refuse(
        &mut self,
        now: Instant,
        number: usize,
        seq: u64,
        why: &Refusal,
        effects: &mut Vec<Effect>,
    ) {
        let window = &mut self.shards[number].updates;
        let Some(batch) = window.batch(seq) else { return };
        if batch.shares.is_empty() {
            window.again_later(now);
            return;
        }
        let ops = std::mem::take(&mut batch.ops);
        let shares = std::mem::take(&mut batch.shares);
        let batch_sends = batch.sends;
        batch.bytes = 0;
        // The ones behind it were refused as a gap, or will be.
        window.again_at = Some(now);
        window.gap_at = Some(now);
        // Memory comes and goes: another copy of it may be taken.
        if batch_sends > 1 && matches!(why, Refusal::Full { .. }) {
            return self.unsure(shares.into_iter().map(|share| share.call), why, effects);
        }
        if let [share] = shares.as_slice() {
            self.part_refused(share.call, why, effects);
            return;
        }
        let mut ops = ops.into_iter();
        let mut alone = Vec::new();
        for share in shares {
            let mut part = Part::new(share.call);
            part.alone = true;
            for (place, op) in share.places.into_iter().zip(ops.by_ref()) {
                part.push(place, op);
            }
            alone.push(part);
        }
        for part in alone.into_iter().rev() {
            window.queue_bytes += part.bytes;
            window.queue.push_front(part);
        }
    }

    /// The head takes nothing at all: neither what follows.
    ///
    /// Only a batch that was sent once and is itself refused is surely not applied. Of any other, a
    /// copy may be on its way, and be taken if the disk has room by then.
    fn refuse_from(
        &mut self,
        now: Instant,
        number: usize,
        seq: u64,
        why: &Refusal,
        effects: &mut Vec<Effect>,
    ) {
        let window = &mut self.shards[number].updates;
        let mut refused = Vec::new();
        let mut unsure = Vec::new();
        for batch in window.batches.iter_mut().filter(|batch| batch.seq >= seq && !batch.answered) {
            batch.ops = Vec::new();
            batch.bytes = 0;
            let surely = batch.seq == seq && batch.sends == 1;
            let calls = if surely { &mut refused } else { &mut unsure };
            calls.extend(std::mem::take(&mut batch.shares).into_iter().map(|share| share.call));
        }
        window.again_later(now);
        // While it is so, waiting in the queue helps nobody.
        window.queue_bytes = 0;
        refused.extend(window.queue.drain(..).map(|part| part.call));
        self.unsure(unsure, why, effects);
        for call in refused {
            self.part_refused(call, why, effects);
        }
    }

    /// The shard does not know this client, or not any more: then what is underway was applied or will never
    /// be. Another session begins, with the next seq: no two batches ever have the same.
    pub(super) fn session_over(
        &mut self,
        now: Instant,
        number: usize,
        upto: u64,
        effects: &mut Vec<Effect>,
    ) {
        let window = &mut self.shards[number].updates;
        let batches = std::mem::take(&mut window.batches);
        (window.born, window.open) = (upto, false);
        window.waiting = Silence::default();
        window.again_at = None;
        let shares = batches.into_iter().flat_map(|batch| batch.shares);
        let why = Refusal::SessionOver { upto };
        self.unsure(shares.map(|share| share.call), &why, effects);
        self.pump(now, number, effects);
    }

    /// These calls end; what was sent of them may still be applied.
    fn unsure(
        &mut self,
        calls: impl IntoIterator<Item = u64>,
        why: &Refusal,
        effects: &mut Vec<Effect>,
    ) {
        for call in calls {
            let late = super::CallError::Late { may_apply: true, waiting: why.to_string() };
            self.finish(call, Err(late), effects);
        }
    }

    /// The call is over; what was not sent yet is not sent.
    pub(super) fn withdraw(&mut self, call: u64) {
        for shard in &mut self.shards {
            let window = &mut shard.updates;
            window.queue.retain(|part| {
                let stays = part.call != call;
                if !stays {
                    window.queue_bytes -= part.bytes;
                }
                stays
            });
        }
    }

    pub(super) fn updates_on_time(
        &mut self,
        now: Instant,
        number: usize,
        effects: &mut Vec<Effect>,
    ) {
        let window = &mut self.shards[number].updates;
        let asks = window.waiting.ask_due(now);
        let resend = window.waiting.resend_due(now) || window.again_at.is_some_and(|at| at <= now);
        if resend {
            window.again_at = None;
            self.resend_updates(now, number, effects);
        }
        if asks {
            self.ask_soon(now);
        }
    }
}

impl super::Shard {
    fn send_batches(&mut self, now: Instant, from: usize, effects: &mut Vec<Effect>) {
        let head = self.chain.members[0].replica;
        let (born, answered) = (self.updates.born, self.updates.answered_seq());
        for batch in self.updates.batches.range_mut(from..).filter(|batch| !batch.answered) {
            batch.sends += 1;
            if batch.sends == 1 || std::mem::take(&mut batch.refused) {
                batch.sent_at = now;
            }
            effects.push(Effect::Send {
                to: head,
                request: Request::Update {
                    shard: self.chain.shard,
                    epoch: self.chain.epoch,
                    born,
                    seq: batch.seq,
                    answered,
                    ops: batch.ops.clone(),
                },
            });
        }
        if !self.updates.batches.is_empty() {
            self.updates.waiting.sent(now, self.updates.usual);
        }
    }
}

impl Window {
    /// How many bytes would wait if that came, when it is too much.
    pub(super) fn no_room(&self, part: &Part) -> Option<usize> {
        let bytes = self.queue_bytes + part.bytes;
        // One that is large by itself may come when nothing waits: the head says what it thinks of it.
        (bytes > CONTROL_CLIENT_QUEUE_BYTES_MAX && self.queue_bytes > 0).then_some(bytes)
    }

    pub(super) fn check(&self) {
        let bytes: usize = self.queue.iter().map(|part| part.bytes).sum();
        assert_eq!(self.queue_bytes, bytes, "CLIENT-4: counted");
        assert!(self.batches.len() <= CONTROL_CLIENT_WINDOW, "CLIENT-4: the window");
        let seqs = self.batches.iter().map(|batch| batch.seq);
        let first = self.last_seq + 1 - self.batches.len() as u64;
        assert!(seqs.eq(first..=self.last_seq), "CLIENT-1: seqs without gaps");
        assert!(self.batches.front().is_none_or(|batch| !batch.answered), "CLIENT-3: the front");
        for batch in &self.batches {
            let places: usize = batch.shares.iter().map(|share| share.places.len()).sum();
            assert!(batch.answered || batch.ops.len() == places, "CLIENT-1: all has an owner");
        }
    }

    /// A new batch from the queue, if there is one and it may go. A session begins with an empty batch: who
    /// hears that it is not known has not lost anything by it.
    fn take_batch(&mut self) -> bool {
        let room = if self.open { CONTROL_CLIENT_WINDOW } else { 1 };
        if self.batches.len() >= room || self.queue.is_empty() {
            return false;
        }
        if !self.open {
            self.push_batch(Vec::new(), Vec::new(), 0);
            return true;
        }
        let first = self.queue.pop_front().expect("it is not empty");
        let alone = first.alone;
        let mut bytes = first.bytes;
        let mut ops = first.ops;
        let mut shares = vec![Share { call: first.call, places: first.places }];
        while let Some(next) = self.queue.front() {
            let fits = bytes + next.bytes <= CONTROL_CLIENT_BATCH_BYTES
                && ops.len() + next.ops.len() <= CONTROL_CLIENT_BATCH_OPS;
            if alone || next.alone || !fits {
                break;
            }
            let next = self.queue.pop_front().expect("it was there");
            bytes += next.bytes;
            ops.extend(next.ops);
            shares.push(Share { call: next.call, places: next.places });
        }
        self.queue_bytes -= bytes;
        self.push_batch(ops, shares, bytes);
        true
    }

    fn push_batch(&mut self, ops: Vec<Op>, shares: Vec<Share>, bytes: usize) {
        self.last_seq += 1;
        self.batches.push_back(Batch {
            seq: self.last_seq,
            ops,
            shares,
            bytes,
            sends: 0,
            sent_at: Instant::ZERO,
            refused: false,
            answered: false,
        });
    }

    fn batch(&mut self, seq: u64) -> Option<&mut Batch> {
        let first = self.batches.front()?.seq;
        let place = usize::try_from(seq.checked_sub(first)?).ok()?;
        self.batches.get_mut(place)
    }

    /// One batch was, which took so long; drops what needs no memory any more.
    fn answered(&mut self, now: Instant, took: Duration) {
        self.usual = took.max(self.usual - self.usual / 8);
        while self.batches.front().is_some_and(|batch| batch.answered) {
            self.batches.pop_front();
        }
        self.again_after = Duration::ZERO;
        self.gap_at = None;
        self.waiting.heard(now, self.usual, !self.batches.is_empty());
    }

    /// All batches up to this one were.
    fn answered_seq(&self) -> u64 {
        self.batches.front().map_or(self.last_seq, |batch| batch.seq - 1)
    }

    fn again_later(&mut self, now: Instant) {
        if self.again_at.is_none() {
            let first = self.usual.min(limits::CONTROL_CLIENT_BUSY_LAST);
            self.again_after = (self.again_after * 2).clamp(
                first.max(limits::CONTROL_CLIENT_RETRY_FIRST),
                limits::CONTROL_CLIENT_BUSY_LAST,
            );
            self.again_at = Some(now + self.again_after);
        }
    }
}

impl Part {
    pub(super) fn new(call: u64) -> Self {
        Self { call, places: Vec::new(), ops: Vec::new(), bytes: 0, alone: false }
    }

    pub(super) fn push(&mut self, place: usize, op: Op) {
        self.bytes += op_bytes(&op);
        self.alone |= key_of(&op).table == Table::Node;
        self.places.push(place);
        self.ops.push(op);
    }
}
