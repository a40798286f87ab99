//! Results that come one by one: items of a generator, taken in order by one reader.
//!
//! # Items that are lost
//! They are made again as the results of a task are (`remake`), by a run of the same generator. A run makes what is in its `lost`, as it comes; all else
//! that it yields has a value, and is given back.
//!
//! ```text
//!   Remake --> the stream runs, and will yield the item --> its `lost`
//!       |
//!       +----> it runs and is past the item, or has ended --> a run that stands for it, with no reader: `lost`, and `abandoned` from its start
//!                                                              |
//!                what that is past, too: `Kept::lost`. Another run begins when it is over
//! ```
//! A run without a reader is cancelled as soon as nothing is left for it to make: the generator may have no end. A stream that its reader drops goes on until
//! then. The stream and the run that stands for it share retries, and the numbers of their attempts (SES-9).
//!
//! # Stories
//! 1. A reader is paced (`stream_ahead`), and waits for a lost item before it takes the next: the generator waits for the reader, and would never end. So
//!    another run begins beside it, which nobody paces.
//! 2. The node of the worker is gone, which may be heard before or after what is lost with it: the next run of the stream makes that.
//! 3. A lost item that the reader did not take yet is the next one all the same: who takes it waits for its value.

use std::collections::BTreeSet;
use std::sync::Arc;

use hoplo_base::{Instant, ObjectId, ProcessId, TaskId};
use hoplo_wire::node::{Tell, ToNode};
use hoplo_wire::reply::{ReplyHeader, ReplyKind, ReplyView};
use hoplo_wire::{Failure, FailureKind, Malformed, Value};

use super::call::{Stage, Values};
use super::lineage::{Loss, in_vain};
use super::refs::{Entry, Knowledge, State};
use super::results::Origin;
use super::{Effect, SessionMachine};

#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Items that arrived; the next one expected has this index. Items that a second run makes again are
    /// dropped; one that ends before it has made them all fails.
    pub received: u32,
    /// Items that the reader took.
    pub taken: u32,
    pub watches: Vec<u64>,
    /// Items of the present attempt.
    pub yielded: u32,
    /// Items that are to be made again.
    pub lost: BTreeSet<u32>,
    /// The reader is gone: other items are dropped as they come.
    pub abandoned: bool,
    /// The latest one of it, or of what stood for it beside it.
    pub attempt: u32,
    /// The value of the stream's end (an encoded None), if somebody has a ref of it.
    pub none: Option<Arc<[u8]>>,
}

/// Index of the pseudo-object that is ready when a stream has ended.
const STREAM_END: u32 = u32::MAX - 1;

/// What the reader of a stream finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamNext {
    /// The reader owns one count of it.
    Item(ObjectId),
    Pending,
    End,
}

/// What the reader of a stream would find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamLook {
    Item,
    Pending,
    End,
}

impl SessionMachine {
    /// The next item for the reader of a streaming call; `taken` items were taken before.
    pub fn stream_next(
        &mut self,
        task: TaskId,
        taken: u32,
        effects: &mut Vec<Effect>,
    ) -> StreamNext {
        let object = task.object(taken);
        if self.has_arrived(object) {
            let record = self.tasks.get_mut(&task.seq);
            if let Some(stream) = record.and_then(|record| record.stream.as_mut()) {
                stream.taken = taken + 1;
            }
            if let Some(record) = self.tasks.get(&task.seq)
                && record.call.options.stream_ahead > 0
                && let Stage::Placed { worker } = record.stage
            {
                let message = Tell::Consumed { task, count: u64::from(taken) + 1 };
                effects.push(Effect::Node(ToNode::Tell { to: worker, message }));
            }
            return StreamNext::Item(object);
        }
        if self.tasks.contains_key(&task.seq) { StreamNext::Pending } else { StreamNext::End }
    }

    /// For a reader that took `taken` items. To look takes nothing: the producer may wait for the reader.
    pub fn stream_look(&self, task: TaskId, taken: u32) -> StreamLook {
        match (self.has_arrived(task.object(taken)), self.tasks.contains_key(&task.seq)) {
            (true, _) => StreamLook::Item,
            (false, true) => StreamLook::Pending,
            (false, false) => StreamLook::End,
        }
    }

    /// The object that is ready when the stream has ended: `none` (an encoded value), or what ended it. The
    /// caller owns one count.
    pub fn stream_completion(&mut self, task: TaskId, none: Arc<[u8]>) -> ObjectId {
        let object = task.object(STREAM_END);
        if let Some(entry) = self.objects.get_mut(&object) {
            entry.count += 1;
            return object;
        }
        let mut entry = Entry::pending(1, Knowledge::Private);
        match self.tasks.get_mut(&task.seq).and_then(|task| task.stream.as_mut()) {
            Some(stream) => stream.none = Some(none),
            None => {
                let failure = self.ended_streams.get(&task.seq).cloned().flatten();
                entry.state = State::Ready(failure.map_or(Value::Inline(none), Value::Failed));
            }
        }
        self.objects.insert(object, entry);
        object
    }

    /// Registers a callback for the item after `taken`, or the end; `None` if it is there now.
    pub fn stream_watch(&mut self, task: TaskId, taken: u32) -> Option<u64> {
        if self.has_arrived(task.object(taken)) {
            return None;
        }
        let watch = self.next_watch;
        let stream = self.tasks.get_mut(&task.seq)?.stream.as_mut()?;
        self.next_watch += 1;
        stream.watches.push(watch);
        self.reasons += 1;
        Some(watch)
    }

    /// The reader is gone: what it did not take is dropped, the producer is cancelled.
    pub fn stream_drop(
        &mut self,
        now: Instant,
        task: TaskId,
        taken: u32,
        effects: &mut Vec<Effect>,
    ) {
        let mut index = taken;
        while self.has_arrived(task.object(index)) {
            self.drop_ref(now, task.object(index), effects);
            index += 1;
        }
        self.ended_streams.remove(&task.seq);
        if let Some(record) = self.tasks.get_mut(&task.seq) {
            if let Some(stream) = &mut record.stream {
                stream.abandoned = true;
            }
            self.stop_if_done(now, task.seq, effects);
        }
    }

    /// An item that its reader did not take: it has its value, or is made again.
    fn has_arrived(&self, item: ObjectId) -> bool {
        self.objects.contains_key(&item)
    }

    /// A run whose items nobody needs is cancelled.
    fn stop_if_done(&mut self, now: Instant, seq: u64, effects: &mut Vec<Effect>) {
        let Some(record) = self.tasks.get(&seq).filter(|it| it.cancel.is_none()) else { return };
        if record.stream.as_ref().is_some_and(|it| it.abandoned && it.lost.is_empty()) {
            self.cancel(now, TaskId { owner: self.me, seq }, false, false, effects);
        }
    }

    pub(super) fn stream_item(
        &mut self,
        now: Instant,
        worker: ProcessId,
        reply: &ReplyView<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Malformed> {
        let (seq, index) = (reply.header.seq, reply.header.index);
        let mut values = Values::new();
        self.values_of(worker, reply, &mut values)?;
        let task = self.as_called(seq);
        let object = task.object(index);
        for (value, contains) in values {
            let Some(stream) = self.tasks.get_mut(&seq).and_then(|task| task.stream.as_mut())
            else {
                return Err(Malformed { what: "item of a call that does not stream" });
            };
            stream.yielded = index + 1;
            let fresh = index == stream.received;
            stream.received += u32::from(fresh);
            let wanted = fresh && !stream.abandoned;
            if stream.lost.remove(&index) {
                self.item_again(now, worker, object, (value, contains), effects);
            } else if wanted {
                self.objects.insert(object, Entry::pending(1, Knowledge::Private));
                self.complete(now, object, value, contains, Origin::Reply(worker), effects);
            } else {
                self.give_back_value(now, object, &value, contains, effects);
            }
        }
        self.stream_progress(seq, effects);
        self.stop_if_done(now, seq, effects);
        Ok(())
    }

    // ---- items that are made again ----

    /// A run of that number makes the lost item of its own accord. False: another one has to begin.
    pub(super) fn stream_will_make(&mut self, item: ObjectId, seq: u64, loss: &Loss) -> bool {
        let Some(record) = self.tasks.get_mut(&seq) else { return false };
        if record.actor.is_some() || record.cancel.is_some() {
            return false;
        }
        let Some(stream) = record.stream.as_mut() else { return false };
        let worker_died = // story 2
            matches!(record.stage, Stage::Placed { worker } if Some(worker.node()) == loss.node);
        let makes = match worker_died {
            true => record.retries_left != 0,
            false => item.index >= stream.yielded,
        };
        if !makes {
            return false;
        }
        let again = !stream.lost.insert(item.index);
        if again || loss.node.is_some() {
            self.lineages.unread.insert(item, loss.clone());
        }
        self.shared_pending(seq);
        true
    }

    /// It is to come from a stream that runs, and not from what stands for that.
    pub(super) fn is_made_by_stream(&self, item: ObjectId) -> bool {
        let record = self.tasks.get(&item.task.seq).filter(|_| item.task.owner == self.me);
        let stream = record.and_then(|record| record.stream.as_ref());
        stream.is_some_and(|it| item.index >= it.received || it.lost.contains(&item.index))
    }

    fn item_again(
        &mut self,
        now: Instant,
        worker: ProcessId,
        item: ObjectId,
        (value, contains): (Value, Vec<ObjectId>),
        effects: &mut Vec<Effect>,
    ) {
        if !matches!(value, Value::Stored(location) if location.known().is_none()) {
            self.lineages.unread.remove(&item);
        }
        self.value_again(now, item, value, contains, Origin::Reply(worker), effects);
    }

    /// A run came to its end, and did not make these.
    pub(super) fn items_missing(
        &mut self,
        now: Instant,
        worker: ProcessId,
        end: &ReplyHeader,
        effects: &mut Vec<Effect>,
    ) {
        let (task, name) =
            (self.as_called(end.seq), self.tasks[&end.seq].call.options.name.clone());
        for (item, why) in self.take_lost(end.seq) {
            let text = format!(
                "{item} is lost: {why}. {task} of {name} ran again to make it, and that run (attempt {} at node {}) yielded {}, where an \
                 earlier one had yielded {} or more. Let {name} yield the same values in each run",
                end.attempt,
                worker.node().hex(),
                values(end.index),
                values(item.index + 1),
            );
            let value = Value::Failed(Failure::new(FailureKind::ObjectLost, text));
            self.item_failed(now, item, value, effects);
        }
    }

    /// No other run follows this one, which failed.
    fn items_failed(
        &mut self,
        now: Instant,
        seq: u64,
        failure: &Failure,
        effects: &mut Vec<Effect>,
    ) {
        for (item, why) in self.take_lost(seq) {
            let value = Value::Failed(in_vain(item, &why, failure.clone()));
            self.item_failed(now, item, value, effects);
        }
    }

    fn item_failed(
        &mut self,
        now: Instant,
        item: ObjectId,
        value: Value,
        effects: &mut Vec<Effect>,
    ) {
        self.lineages.unread.remove(&item);
        self.value_again(now, item, value, vec![], Origin::Own, effects);
    }

    /// With why they are lost.
    fn take_lost(&mut self, seq: u64) -> Vec<(ObjectId, String)> {
        let task = self.as_called(seq);
        let stream = self.tasks.get_mut(&seq).and_then(|record| record.stream.as_mut());
        let lost = std::mem::take(&mut stream.expect("only streams end so").lost);
        let kept = self.lineages.kept.get(&task.seq).map(|kept| &kept.why);
        let with_why = |index: u32| {
            let item = task.object(index);
            let latest = self.lineages.unread.get(&item).map(|loss| &loss.why);
            (item, latest.or(kept).cloned().unwrap_or_else(|| "no copy of it is left".to_string()))
        };
        lost.into_iter().map(with_why).collect()
    }

    /// A run that stood for a stream is over. What was lost when it was past that is for the next one.
    fn items_over(&mut self, now: Instant, original: TaskId, effects: &mut Vec<Effect>) {
        let Some(kept) = self.lineages.kept.get_mut(&original.seq) else { return };
        kept.run = None;
        let lost = std::mem::take(&mut kept.lost);
        for item in lost.into_iter().map(|index| original.object(index)) {
            if let Some(loss) = self.lineages.unread.remove(&item) {
                self.remake_one(now, item, &loss, effects);
            }
        }
        self.drop_if_unneeded(now, original.seq, effects);
    }

    // ---- the end ----

    /// Of a generator that ran again, and came to its end before it had yielded what an earlier run did: the reader would take that for
    /// the end of a stream of which it has more.
    pub(super) fn fell_short(&self, worker: ProcessId, end: &ReplyHeader) -> Option<Failure> {
        if end.kind != ReplyKind::StreamEnd || end.attempt == 0 {
            return None;
        }
        let record = self.tasks.get(&end.seq)?;
        let before = record.stream.as_ref().filter(|stream| !stream.abandoned)?.received;
        if end.index >= before {
            return None;
        }
        let (task, name) = (TaskId { owner: self.me, seq: end.seq }, &record.call.options.name);
        let retries = if record.actor.is_some() { "max_task_retries" } else { "max_retries" };
        let text = format!(
            "{task} of {name} ran again, and that run (attempt {} at node {}) yielded {}, where an earlier one had yielded {before}: \
             nobody knows what would have followed. Let {name} yield the same values in each run, or give it {retries}=0, so that it does \
             not run again",
            end.attempt,
            worker.node().hex(),
            values(end.index),
        );
        Some(Failure::new(FailureKind::ObjectLost, text))
    }

    /// The call is over. A failure is the last item.
    pub(super) fn stream_end(
        &mut self,
        now: Instant,
        seq: u64,
        failure: Option<Failure>,
        effects: &mut Vec<Effect>,
    ) {
        self.stream_progress(seq, effects);
        if let Some(failure) = &failure {
            self.items_failed(now, seq, failure, effects);
        }
        let record = self.remove_task(seq);
        if let Some(original) = record.stands_for {
            self.items_over(now, original, effects);
            return self.let_go(now, record, effects);
        }
        let stream = record.stream.as_ref().expect("only streams end so");
        let task = TaskId { owner: self.me, seq };
        if !stream.abandoned {
            self.ended_streams.insert(seq, failure.clone());
        }
        if let Some(none) = stream.none.clone() {
            let end = failure.clone().map_or(Value::Inline(none), Value::Failed);
            self.complete(now, task.object(STREAM_END), end, vec![], Origin::Own, effects);
        }
        if let Some(failure) = failure
            && !stream.abandoned
        {
            let object = task.object(stream.received);
            self.objects.insert(object, Entry::pending(1, Knowledge::Private));
            let value = Value::Failed(failure);
            self.complete(now, object, value, vec![], Origin::Own, effects);
        }
        self.let_go(now, record, effects);
    }

    fn stream_progress(&mut self, seq: u64, effects: &mut Vec<Effect>) {
        let stream = self.tasks.get_mut(&seq).and_then(|task| task.stream.as_mut());
        let watches = stream.map(|stream| std::mem::take(&mut stream.watches)).unwrap_or_default();
        self.reasons -= watches.len() as u64;
        effects.extend(watches.into_iter().map(|watch| Effect::Fire { watch }));
    }
}

fn values(count: u32) -> String {
    format!("{count} {}", if count == 1 { "value" } else { "values" })
}
