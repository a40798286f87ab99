//! Results that come one by one: items of a generator, taken in order by one reader.

use std::sync::Arc;

use hoplo_base::{Instant, ObjectId, ProcessId, TaskId};
use hoplo_wire::node::{Tell, ToNode};
use hoplo_wire::reply::{ReplyHeader, ReplyKind, ReplyView};
use hoplo_wire::{Failure, FailureKind, Malformed, Value};

use super::call::Values;
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
    /// The reader is gone: items are dropped as they come.
    pub abandoned: bool,
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
        if self.is_ready(object) {
            let record = self.tasks.get_mut(&task.seq);
            if let Some(stream) = record.and_then(|record| record.stream.as_mut()) {
                stream.taken = taken + 1;
            }
            if let Some(record) = self.tasks.get(&task.seq)
                && record.call.options.stream_ahead > 0
                && let super::Stage::Placed { worker } = record.stage
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
        match (self.is_ready(task.object(taken)), self.tasks.contains_key(&task.seq)) {
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
        if self.is_ready(task.object(taken)) {
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
        while self.is_ready(task.object(index)) {
            self.drop_ref(now, task.object(index), effects);
            index += 1;
        }
        self.ended_streams.remove(&task.seq);
        if let Some(record) = self.tasks.get_mut(&task.seq) {
            if let Some(stream) = &mut record.stream {
                stream.abandoned = true;
            }
            self.cancel(now, task, false, false, effects);
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
        let task = TaskId { owner: self.me, seq };
        let mut values = Values::new();
        self.values_of(worker, reply, &mut values)?;
        for (value, contains) in values {
            let Some(stream) = self.tasks.get_mut(&seq).and_then(|task| task.stream.as_mut())
            else {
                return Err(Malformed { what: "item of a call that does not stream" });
            };
            let fresh = index == stream.received;
            stream.received += u32::from(fresh);
            let wanted = fresh && !stream.abandoned;
            if wanted {
                self.objects.insert(task.object(index), Entry::pending(1, Knowledge::Private));
            }
            let object = task.object(index);
            if wanted {
                self.complete(now, object, value, contains, Origin::Reply, effects);
            } else {
                self.give_back_value(now, object, &value, contains, effects);
            }
        }
        self.stream_progress(seq, effects);
        Ok(())
    }

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
        let values = if end.index == 1 { "value" } else { "values" };
        let text = format!(
            "{task} of {name} ran again, and that run (attempt {} at node {}) yielded {} {values}, where an earlier one had yielded {before}: \
             nobody knows what would have followed. Let {name} yield the same values in each run, or give it {retries}=0, so that it does \
             not run again",
            end.attempt,
            worker.node().hex(),
            end.index,
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
        let record = self.remove_task(seq);
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
