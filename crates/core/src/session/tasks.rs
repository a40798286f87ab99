//! From submission to the last reply: waiting for refs, frames, replies, retries, cancellation.

use hoplo_base::limits::WORKERS_UNTAKEN_MAX;
use hoplo_base::{ActorId, Instant, ObjectId, ProcessId, TaskId};
use hoplo_wire::call::CALL_STREAMING;
use hoplo_wire::node::{Tell, ToNode};
use hoplo_wire::reply::{
    REPLY_NO_ROOM, REPLY_NOT_BEGUN, REPLY_RETIRING, REPLY_RETRYABLE, REPLY_STOPPED, ReplyKind,
    ReplyView,
};
use hoplo_wire::{Failure, FailureKind, Malformed, Value};

use super::call::{Stage, Values};
use super::leases::Replied;
use super::refs::{Entry, Knowledge, State, Waiter};
use super::results::Origin;
use super::runs::Ended;
use super::streams::Stream;
use super::{Call, CreateActor, Effect, SessionMachine};

#[derive(Debug)]
pub(super) struct Task {
    pub call: Call,
    pub stage: Stage,
    /// The actor whose method it calls.
    pub actor: Option<ActorId>,
    /// It is the constructor of an actor: goes to the daemon, not into a ring.
    pub creates: Option<Box<CreateActor>>,
    pub attempt: u32,
    /// SES-7: workers in a row that died before they took any call that lay there, with this one.
    pub untaken: u8,
    /// Runs that ended since its result or an argument found no room (`room`).
    pub turned_away: u8,
    /// -1 is no limit.
    pub retries_left: i32,
    /// The task that was running here when it was submitted.
    pub parent: Option<TaskId>,
    pub cancel: Option<Cancel>,
    /// Refs (counted as often as they are listed) that are not ready.
    pub missing: u32,
    pub stream: Option<Box<Stream>>,
    /// The task of a dead owner, or an own one whose result was lost, that this one runs again.
    pub stands_for: Option<TaskId>,
    /// Values that came before the last part of a reply.
    pub parts: Vec<(Value, Vec<ObjectId>)>,
    /// Other processes know of its pending results: somebody may wait for its reply.
    pub shared: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Cancel {
    pub force: bool,
    pub recursive: bool,
}

impl Task {
    /// Whether its reply must be drained though nobody may wait for it.
    pub fn is_reason(&self) -> bool {
        match self.stage {
            Stage::Waiting | Stage::Queued | Stage::Limbo => true,
            Stage::Promised => false,
            Stage::Placed { .. } => {
                self.shared || !self.call.refs.is_empty() || !self.call.nested.is_empty()
            }
        }
    }
}

impl SessionMachine {
    /// The caller owns one count of each returned object. `parent`: the task that runs here now.
    pub fn submit(
        &mut self,
        now: Instant,
        call: Call,
        parent: Option<TaskId>,
        effects: &mut Vec<Effect>,
    ) -> TaskId {
        let task = self.create_task(call, None, parent);
        self.admit(now, task.seq, effects);
        task
    }

    pub(super) fn create_task(
        &mut self,
        call: Call,
        actor: Option<ActorId>,
        parent: Option<TaskId>,
    ) -> TaskId {
        let task = self.next_task();
        let streaming = call.options.flags & CALL_STREAMING != 0;
        if !streaming {
            for index in 0..call.options.returns {
                let entry = Entry::pending(1, Knowledge::Private);
                self.objects.insert(task.object(index), entry);
            }
        }
        for at in 0..call.refs.len() {
            self.add_ref(call.refs[at]);
        }
        for at in 0..call.nested.len() {
            self.add_ref(call.nested[at]);
        }
        let retries_left = call.options.max_retries;
        let record = Task {
            call,
            stage: Stage::Waiting,
            actor,
            creates: None,
            attempt: 0,
            untaken: 0,
            turned_away: 0,
            retries_left,
            parent,
            cancel: None,
            missing: 0,
            stream: streaming.then(Box::default),
            stands_for: None,
            parts: Vec::new(),
            shared: false,
        };
        self.reasons += 1;
        self.tasks.insert(task.seq, record);
        task
    }

    /// A new task waits for its refs, or goes to its queue.
    pub(super) fn admit(&mut self, now: Instant, seq: u64, effects: &mut Vec<Effect>) {
        if let Some(failure) = self.node_died.clone() {
            self.fail_task(now, seq, &failure, effects);
            return;
        }
        let task = self.tasks.get_mut(&seq).expect("it was just made");
        if !task.call.refs.is_empty() {
            let refs = std::mem::take(&mut task.call.refs);
            // They may be read at another node: nothing is fetched.
            self.want_word(&refs, effects);
            let mut missing = 0;
            let mut failed = None;
            for object in &refs {
                let entry = self.objects.get_mut(object).expect("the task counts it");
                match &entry.state {
                    State::Pending { .. } => {
                        entry.waiters.push(Waiter::Task(seq));
                        missing += 1;
                    }
                    State::Ready(Value::Failed(failure)) => failed = Some(failure.clone()),
                    State::Ready(_) => {}
                }
            }
            let task = self.tasks.get_mut(&seq).expect("it is there");
            task.call.refs = refs;
            task.missing = missing;
            if let Some(failure) = failed {
                self.fail_task(now, seq, &failure, effects);
                return;
            }
            if missing > 0 {
                return;
            }
        }
        self.ready_to_run(now, seq, effects);
    }

    /// One of the refs that a task waits for has its value.
    pub(super) fn dependency_ready(
        &mut self,
        now: Instant,
        seq: u64,
        object: ObjectId,
        effects: &mut Vec<Effect>,
    ) {
        let Some(task) = self.tasks.get_mut(&seq) else { return };
        task.missing -= 1;
        let missing = task.missing;
        if let Some(Value::Failed(failure)) = self.value(object) {
            let failure = failure.clone();
            self.fail_task(now, seq, &failure, effects);
        } else if missing == 0 {
            self.ready_to_run(now, seq, effects);
        }
    }

    fn ready_to_run(&mut self, now: Instant, seq: u64, effects: &mut Vec<Effect>) {
        let task = self.tasks.get_mut(&seq).expect("the caller has it");
        task.stage = Stage::Queued;
        if let Some(create) = task.creates.take() {
            self.send_creation(now, seq, *create, effects);
        } else if let Some(actor) = task.actor {
            self.is_complete(now, actor, seq, effects);
        } else {
            self.enqueue(now, seq, effects);
        }
    }

    pub(super) fn set_stage(&mut self, seq: u64, stage: Stage) {
        let task = self.tasks.get_mut(&seq).expect("the caller has it");
        let before = task.is_reason();
        task.stage = stage;
        let after = task.is_reason();
        self.reasons = self.reasons + u64::from(after) - u64::from(before);
    }

    /// What a frame will mention is told first, then it is placed.
    pub(super) fn place(
        &mut self,
        now: Instant,
        seq: u64,
        worker: ProcessId,
        effects: &mut Vec<Effect>,
    ) {
        self.set_stage(seq, Stage::Placed { worker });
        let task = &self.tasks[&seq];
        if task.call.refs.is_empty() && task.call.nested.is_empty() && task.stream.is_none() {
            effects.push(Effect::Place { worker, seq });
            return;
        }
        self.mention_arguments(now, seq, effects);
        let task = &self.tasks[&seq];
        if let Some(stream) = &task.stream
            && stream.taken > 0
            && task.call.options.stream_ahead > 0
        {
            // The worker of this run has not heard of what was taken of an earlier one.
            let task = TaskId { owner: self.me, seq };
            let message = Tell::Consumed { task, count: u64::from(stream.taken) };
            effects.push(Effect::Node(ToNode::Tell { to: worker, message }));
        }
        effects.push(Effect::Place { worker, seq });
    }

    /// Its results are known elsewhere while they are pending.
    pub(super) fn shared_pending(&mut self, seq: u64) {
        if let Some(task) = self.tasks.get_mut(&seq) {
            let before = task.is_reason();
            task.shared = true;
            let after = task.is_reason();
            self.reasons = self.reasons + u64::from(after) - u64::from(before);
        }
    }

    /// A reply that lay in the ring of `worker`.
    pub fn on_reply(
        &mut self,
        now: Instant,
        worker: ProcessId,
        reply: &ReplyView<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Malformed> {
        let header = reply.header;
        let seq = header.seq;
        let Some(record) = self.tasks.get_mut(&seq).filter(|task| {
            task.attempt == header.attempt && task.stage == Stage::Placed { worker }
        }) else {
            return self.stale_reply(now, worker, reply, effects);
        };
        match header.kind {
            ReplyKind::Item => return self.stream_item(now, worker, reply, effects),
            ReplyKind::Finished | ReplyKind::StreamEnd | ReplyKind::Part => {}
        }
        if header.flags & REPLY_NOT_BEGUN != 0 {
            let retiring = header.flags & REPLY_RETIRING != 0;
            return self.not_begun(now, worker, seq, Replied { retiring }, effects);
        }
        let mut values = Values::from_vec(std::mem::take(&mut record.parts));
        self.values_of(worker, reply, &mut values)?;
        let fell_short = self.fell_short(worker, &header);
        let record = self.tasks.get_mut(&seq).expect("it is current");
        if header.kind == ReplyKind::Part {
            record.parts = values.into_vec();
            return Ok(());
        }
        let elsewhere = header.flags & REPLY_NO_ROOM != 0 && record.may_run_elsewhere();
        // It was told to an earlier run, which had ended when it came there.
        let stray = header.kind == ReplyKind::StreamEnd && header.flags & REPLY_STOPPED != 0;
        let again = (header.flags & REPLY_RETRYABLE != 0 || elsewhere || stray)
            && record.retries_left != 0
            && record.cancel.is_none();
        let (actor, function) = (record.actor, record.call.options.function);
        if record.call.options.remembered {
            let ended = Ended {
                task: TaskId { owner: self.me, seq },
                options: record.call.options.clone(),
                actor,
                parent: record.parent,
                worker: Some(worker),
                attempt: header.attempt,
                ran_ns: header.ran_ns,
                started_ns: header.started_ns,
                at: now,
                failure: failure_in(&values).or_else(|| fell_short.clone().map(Box::new)),
            };
            self.remember(ended);
        }
        if actor.is_none() {
            self.learn_pace(function, header.ran_ns);
        }
        let retiring = header.flags & REPLY_RETIRING != 0;
        self.remove_from_worker(now, worker, seq, actor, Some(Replied { retiring }));
        if again {
            self.give_back_values(now, seq, 0, values, effects);
            if elsewhere {
                self.leave_for_room(now, seq, worker, effects);
            }
            self.run_again(now, seq, effects);
        } else if header.kind == ReplyKind::StreamEnd {
            let failure = values.iter().find_map(|(value, _)| match value {
                Value::Failed(failure) => Some(failure.clone()),
                Value::Inline(_) | Value::Stored(_) => None,
            });
            self.give_back_values(now, seq, header.index, values, effects);
            if failure.is_none() {
                self.items_missing(now, worker, &header, effects);
            }
            self.stream_end(now, seq, failure.or(fell_short), effects);
        } else {
            self.finish(now, seq, values, Origin::Reply(worker), effects);
        }
        self.after_reply(now, worker, effects);
        Ok(())
    }

    /// SES-4: gives back what a reply of an old attempt brought.
    fn stale_reply(
        &mut self,
        now: Instant,
        worker: ProcessId,
        reply: &ReplyView<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Malformed> {
        let mut values = Values::new();
        self.values_of(worker, reply, &mut values)?;
        self.give_back_values(now, reply.header.seq, reply.header.index, values, effects);
        Ok(())
    }

    /// Values that came with a reply and that nobody wants: their tokens go back. `first`: the index of the
    /// first one.
    pub(super) fn give_back_values(
        &mut self,
        now: Instant,
        seq: u64,
        first: u32,
        values: Values,
        effects: &mut Vec<Effect>,
    ) {
        let task = self.as_called(seq);
        for (index, (value, contains)) in (first..).zip(values) {
            self.give_back_value(now, task.object(index), &value, contains, effects);
        }
    }

    /// The task runs again: after a crash, or after an exception that may be retried.
    pub(super) fn run_again(&mut self, now: Instant, seq: u64, effects: &mut Vec<Effect>) {
        self.give_back_parts(now, seq, effects);
        let attempt = self.pay_for_run(seq);
        let task = self.tasks.get_mut(&seq).expect("the caller has it");
        task.attempt = attempt;
        task.untaken = 0;
        if let Some(stream) = &mut task.stream {
            stream.yielded = 0;
        }
        self.requeue(now, seq, effects);
    }

    /// SES-7: a worker died that had taken none of the calls that lay there, among them this one.
    pub(super) fn may_wait_for_another_worker(&mut self, seq: u64) -> bool {
        let task = self.tasks.get_mut(&seq).expect("the caller has it");
        task.untaken += 1;
        if task.untaken <= WORKERS_UNTAKEN_MAX {
            return true;
        }
        let may = task.retries_left != 0;
        self.pay_retry(seq);
        may
    }

    /// A run that ended before its last value came.
    pub(super) fn give_back_parts(&mut self, now: Instant, seq: u64, effects: &mut Vec<Effect>) {
        let task = self.tasks.get_mut(&seq).expect("the caller has it");
        let parts = std::mem::take(&mut task.parts);
        self.give_back_values(now, seq, 0, parts.into(), effects);
    }

    /// The task is over: its objects get their values, its arguments are let go.
    pub(super) fn finish(
        &mut self,
        now: Instant,
        seq: u64,
        values: Values,
        origin: Origin,
        effects: &mut Vec<Effect>,
    ) {
        let task = TaskId { owner: self.me, seq };
        let record = &self.tasks[&seq];
        let returns = record.call.options.returns;
        if let Some(original) = record.stands_for {
            let record = self.remove_task(seq);
            if original.owner == self.me {
                self.remade(now, (seq, &record), values, origin, effects);
                self.let_go(now, record, effects);
                return;
            }
            self.fulfil_adopted(now, task, original, returns, values, origin, effects);
            self.let_go(now, record, effects);
            return;
        }
        let one_for_all = match values.as_slice() {
            [(Value::Failed(failure), _)] if returns != 1 => Some(failure.clone()),
            _ => None,
        };
        if one_for_all.is_some() && origin.is_reply() {
            self.give_back_values(now, seq, 0, values.clone(), effects);
        }
        let mut values = values.into_iter();
        for index in 0..returns {
            let (value, contains) = match &one_for_all {
                Some(failure) => (Value::Failed(failure.clone()), vec![]),
                None => values.next().unwrap_or_else(|| {
                    let text = format!("{task} returned fewer values than it was asked for");
                    (Value::Failed(Failure::new(FailureKind::ObjectLost, text)), vec![])
                }),
            };
            // What this sets free may share the next ones, or drop them: the task is there until all are
            // complete.
            self.complete(now, task.object(index), value, contains, origin, effects);
        }
        let record = self.remove_task(seq);
        if !self.lineages.read.is_empty() {
            self.remake_all_read(now, effects);
        }
        self.let_go(now, record, effects);
    }

    pub(super) fn remove_task(&mut self, seq: u64) -> Task {
        let record = self.tasks.remove(&seq).expect("the caller has it");
        self.reasons -= u64::from(record.is_reason());
        if record.missing > 0 {
            for object in &record.call.refs {
                if let Some(entry) = self.objects.get_mut(object) {
                    entry.waiters.retain(|waiter| *waiter != Waiter::Task(seq));
                }
            }
        }
        if record.stage == Stage::Waiting
            && let Some(actor) = record.actor.and_then(|actor| self.actors.get_mut(&actor))
        {
            actor.incomplete.remove(&seq);
        }
        if let Some(stream) = &record.stream {
            self.reasons -= stream.watches.len() as u64;
        }
        record
    }

    pub(super) fn let_go(&mut self, now: Instant, record: Task, effects: &mut Vec<Effect>) {
        self.drop_all(now, &record.call.refs, effects);
        self.drop_all(now, &record.call.nested, effects);
        match record.actor {
            Some(actor) => {
                self.counters.method_calls_finished += 1;
                self.call_over(now, actor, effects);
            }
            None => self.counters.tasks_finished += 1,
        }
    }
}

/// Why a run has no result, if it has none.
#[inline]
fn failure_in(values: &Values) -> Option<Box<Failure>> {
    match values.first() {
        Some((Value::Failed(failure), _)) => Some(Box::new(failure.clone())),
        Some((Value::Inline(_) | Value::Stored(_), _)) | None => None,
    }
}
