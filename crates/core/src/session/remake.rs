//! Results that were lost with a node are made again, by the process that owns them. For items of streams, `streams` tells what differs.
//!
//! ```text
//!   a result of a task is made at another node --> its call is kept (its lineage)
//!       |                                                 |   Remake: no copy of a result is left
//!       |  LineageOver: nobody can reach its results,     v
//!       |  and no kept call has one as argument       it runs again: a new task that stands for the old one, attempt + 1, one of
//!       v                                             its max_retries less. Its arguments are asked for at their homes, which
//!   it is dropped                                     ask their owners, if nobody knows them any more: so it goes on recursively
//! ```
//! Which calls are kept, and for how long, is in `lineage`.
//!
//! # Stories
//! 1. The home hears that a result is made, then that the node died, before this process has read the reply: `Remake` comes while the first run
//!    is not over here. It is remembered (`unread`). The reply, when it is read, names the dead node. When the task is over, it runs again, and who
//!    needs the result waits for that run. If the reply never comes, the task runs again anyway, since its worker is dead.
//! 2. Two results of one task are lost: the second `Remake` finds the task running for the first, and is content with that run.
//! 3. The run that makes it again ends at a node that dies, too: as in 1, or as a new loss, with one retry less.
//! 4. Of several results one is lost: the run makes all of them, and what was not lost keeps its first value.
//! 5. A run makes the result at another node, its worker dies before this process has read the reply, and the run after it fails. The home names the
//!    first one's result until that is lost: then it is told the failure, which is the result here. (If the run after it makes a value, the home
//!    takes that one, since this process keeps no call for a value that lies here.)

use std::collections::BTreeSet;
use std::sync::Arc;

use hoplo_base::{Instant, NodeNumber, ObjectId, TaskId};
use hoplo_wire::call::CALL_STREAMING;
use hoplo_wire::{Failure, FailureKind, Value};

use super::adopt::one_each;
use super::call::Values;
use super::lineage::{Loss, in_vain};
use super::refs::{Knowledge, State};
use super::results::Origin;
use super::tasks::Task;
use super::{CallOptions, Effect, SessionMachine};

impl SessionMachine {
    /// A reply brought a result of ours that lies at another node.
    #[cold]
    pub(super) fn made_elsewhere(
        &mut self,
        now: Instant,
        object: ObjectId,
        effects: &mut Vec<Effect>,
    ) {
        if object.task.owner != self.me {
            return;
        }
        self.keep_lineage(now, object, effects);
        let Some(loss) = self.lineages.unread.remove(&object) else { return };
        let Some(Value::Stored(location)) = self.value(object) else { return };
        if loss.node.is_some() && location.other_node() != loss.node {
            return;
        }
        if self.is_coming(object) {
            self.lineages.read.push((object, loss)); // its task is there until all results of it are complete
        } else {
            self.remake_read(now, object, &loss, effects);
        }
    }

    /// The task whose reply is read is over: now it may run again (story 1).
    #[cold]
    pub(super) fn remake_all_read(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        for (object, loss) in std::mem::take(&mut self.lineages.read) {
            self.remake_read(now, object, &loss, effects);
        }
    }

    /// What the reply named is not there any more, as if the loss was told after it.
    fn remake_read(
        &mut self,
        now: Instant,
        object: ObjectId,
        loss: &Loss,
        effects: &mut Vec<Effect>,
    ) {
        self.is_lost_here(object);
        self.remake_one(now, object, loss, effects);
    }

    /// No copy of these results is left.
    pub(super) fn remake(
        &mut self,
        now: Instant,
        objects: &[ObjectId],
        node: Option<NodeNumber>,
        why: String,
        effects: &mut Vec<Effect>,
    ) {
        let loss = Loss { node, why };
        // What was awaited, and came otherwise or not at all.
        let mut unread = std::mem::take(&mut self.lineages.unread);
        unread.retain(|object, _| {
            self.tasks.contains_key(&object.task.seq) || self.run_of(object.task).is_some()
        });
        self.lineages.unread = unread;
        let me = self.me;
        for object in objects.iter().filter(|object| object.task.owner == me) {
            self.is_lost_here(*object);
            self.remake_one(now, *object, &loss, effects);
        }
        self.flush(effects);
    }

    pub(super) fn remake_one(
        &mut self,
        now: Instant,
        object: ObjectId,
        loss: &Loss,
        effects: &mut Vec<Effect>,
    ) {
        let seq = object.task.seq;
        if self.is_coming(object) && !self.is_ready(object) {
            self.lineages.unread.insert(object, loss.clone()); // story 1
            return;
        }
        if let Some(failure) = self.own_failure(object) {
            return self.value_again(now, object, failure, vec![], Origin::Own, effects); // story 5
        }
        if self.stream_will_make(object, seq, loss) {
            return;
        }
        let Some(kept) = self.lineages.kept.get_mut(&seq) else {
            let why = match seq <= self.lineages.dropped {
                true => "its lineage went, since the lineages of this process took too much memory",
                false => {
                    "it was put, or it is not known any more what made it. Keep a reference to what is put for as long as a \
                     result of it may be needed"
                }
            };
            return self.stays_lost(now, object, loss, why, effects);
        };
        kept.live.insert(object.index);
        if let Some(run) = kept.run {
            if self.stream_will_make(object, run, loss) {
                return;
            }
            let kept = self.lineages.kept.get_mut(&seq).expect("it was just there");
            kept.lost.insert(object.index); // story 2
            self.lineages.unread.insert(object, loss.clone()); // story 3
            return;
        }
        if let Err(never) = kept.call {
            return self.stays_lost(now, object, loss, never.text(), effects);
        }
        if kept.retries_left == 0 {
            let name = &kept.name;
            let why = match kept.attempt {
                0 => format!("{name} has max_retries=0. With more of them it would run again"),
                more => format!(
                    "{name} ran {} times, and max_retries is used up. With more of them it would run again",
                    more + 1
                ),
            };
            return self.stays_lost(now, object, loss, &why, effects);
        }
        self.run_lineage(now, object, loss, effects);
    }

    /// It is kept, and may run.
    fn run_lineage(
        &mut self,
        now: Instant,
        object: ObjectId,
        loss: &Loss,
        effects: &mut Vec<Effect>,
    ) {
        let original = object.task;
        let kept = self.lineages.kept.get_mut(&original.seq).expect("the caller has seen it");
        let Ok(mut call) = kept.call.clone() else { return };
        kept.lost = BTreeSet::from([object.index]);
        kept.why.clone_from(&loss.why);
        if let Some(node) = loss.node
            && self.lineages.warned.insert(node)
        {
            let name = &call.options.name;
            let line = format!("results are made again, of {name} first: {}", loss.why);
            effects.push(Effect::Warn { line });
        }
        let streams = call.options.flags & CALL_STREAMING != 0;
        let returns = if streams { 0 } else { call.options.returns };
        if call.options.stream_ahead > 0 {
            // Nobody reads it.
            call.options = Arc::new(CallOptions { stream_ahead: 0, ..(*call.options).clone() });
        }
        let task = self.create_task(call, None, None);
        for index in 0..returns {
            self.drop_ref(now, task.object(index), effects); // it makes the first one's objects instead
        }
        let kept = self.lineages.kept.get_mut(&original.seq).expect("it was just there");
        kept.run = Some(task.seq);
        let lost = if streams { std::mem::take(&mut kept.lost) } else { BTreeSet::new() };
        let record = self.tasks.get_mut(&task.seq).expect("it was just made");
        record.stands_for = Some(original);
        record.shared = true;
        record.retries_left = kept.retries_left;
        if let Some(stream) = &mut record.stream {
            stream.abandoned = true;
            stream.lost = lost;
        }
        let attempt = self.pay_for_run(task.seq);
        self.tasks.get_mut(&task.seq).expect("it was just made").attempt = attempt;
        // The daemon knows that the arguments are used before it is asked for them.
        self.report_borrowed(now, effects);
        self.flush(effects);
        self.admit(now, task.seq, effects);
    }

    /// Who needs it here waits, as for a task that has not ended. So does who read it on this node: that copy is gone as well.
    fn is_lost_here(&mut self, object: ObjectId) {
        if let Some(entry) = self.objects.get_mut(&object)
            && matches!(&entry.state, State::Ready(Value::Stored(_)))
        {
            entry.leaves();
            self.place_changed();
        }
    }

    /// A run of a kept call is over. What was lost gets its value, everywhere; the rest has one (story 4).
    pub(super) fn remade(
        &mut self,
        now: Instant,
        (seq, record): (u64, &Task),
        values: Values,
        origin: Origin,
        effects: &mut Vec<Effect>,
    ) {
        let original = record.stands_for.expect("the caller has seen it");
        let mut lost: BTreeSet<u32> = BTreeSet::new();
        let mut why = String::new();
        if let Some(kept) = self.lineages.kept.get_mut(&original.seq) {
            kept.run = None;
            kept.attempt = record.attempt;
            kept.retries_left = record.retries_left;
            lost = std::mem::take(&mut kept.lost);
            why = std::mem::take(&mut kept.why);
        }
        let returns = record.call.options.returns;
        for (index, (value, contains)) in (0..).zip(one_each(original, returns, values)) {
            self.objects.remove(&TaskId { owner: self.me, seq }.object(index));
            let object = original.object(index);
            // Its worker may have ended after it had stored this one.
            let is_there = matches!(self.value(object), Some(Value::Stored(_)));
            if !lost.contains(&index) || is_there && matches!(value, Value::Failed(_)) {
                if origin.is_reply() {
                    self.give_back_value(now, object, &value, contains, effects);
                }
                continue;
            }
            let value = match value {
                Value::Failed(failure) => Value::Failed(in_vain(object, &why, failure)),
                value => value,
            };
            if matches!(value, Value::Failed(_) | Value::Inline(_)) {
                self.lineages.unread.remove(&object);
            }
            self.value_again(now, object, value, contains, origin, effects);
        }
        self.drop_if_unneeded(now, original.seq, effects);
    }

    pub(super) fn value_again(
        &mut self,
        now: Instant,
        object: ObjectId,
        value: Value,
        contains: Vec<ObjectId>,
        origin: Origin,
        effects: &mut Vec<Effect>,
    ) {
        let tells = |entry: &super::Entry| {
            let pending = matches!(entry.state, State::Pending { .. });
            pending && entry.count > 0 && entry.knowledge == Knowledge::Shared
        };
        if self.objects.get(&object).is_some_and(tells) {
            self.complete(now, object, value, contains, origin, effects);
        } else {
            self.fulfil(now, object, value, contains, origin, effects);
        }
        self.flush(effects);
    }

    // ---- retries ----

    /// One run more of a task. Its number.
    pub(super) fn pay_for_run(&mut self, seq: u64) -> u32 {
        self.pay_retry(seq);
        let mut attempt = self.tasks[&seq].attempt + 1;
        let original = self.as_called(seq);
        if original.owner != self.me {
            return attempt;
        }
        let kept = self.lineages.kept.get_mut(&original.seq);
        let stream = self.tasks.get_mut(&original.seq).and_then(|task| task.stream.as_mut());
        let latest = kept.map(|kept| &mut kept.attempt);
        let mut latest: Vec<&mut u32> =
            latest.into_iter().chain(stream.map(|stream| &mut stream.attempt)).collect();
        attempt = latest.iter().map(|latest| **latest + 1).fold(attempt, u32::max);
        latest.iter_mut().for_each(|latest| **latest = attempt);
        attempt
    }

    /// SES-9
    pub(super) fn pay_retry(&mut self, seq: u64) {
        let task = self.tasks.get_mut(&seq).expect("the caller has it");
        task.retries_left -= i32::from(task.retries_left > 0);
        let left = task.retries_left;
        let original = self.as_called(seq);
        if original.owner != self.me {
            return;
        }
        let Some(kept) = self.lineages.kept.get_mut(&original.seq) else { return };
        kept.retries_left = left;
        for other in [Some(original.seq), kept.run].into_iter().flatten() {
            if let Some(task) = self.tasks.get_mut(&other) {
                task.retries_left = left;
            }
        }
    }

    fn own_failure(&self, object: ObjectId) -> Option<Value> {
        let entry = self.objects.get(&object).filter(|entry| !entry.passing)?;
        match &entry.state {
            State::Ready(value @ Value::Failed(_)) => Some(value.clone()),
            State::Ready(Value::Inline(_) | Value::Stored(_)) | State::Pending { .. } => None,
        }
    }

    fn stays_lost(
        &mut self,
        now: Instant,
        object: ObjectId,
        loss: &Loss,
        why: &str,
        effects: &mut Vec<Effect>,
    ) {
        let text = format!("{object} is lost: {}. It cannot be made again: {why}", loss.why);
        let value = Value::Failed(Failure::new(FailureKind::ObjectLost, text));
        self.value_again(now, object, value, vec![], Origin::Own, effects);
    }

    /// The task that runs an own one again, if there is one: its number, and why it runs.
    pub(super) fn run_of(&self, task: TaskId) -> Option<(TaskId, &str)> {
        let kept = self.lineages.kept.get(&task.seq).filter(|_| task.owner == self.me)?;
        Some((TaskId { owner: self.me, seq: kept.run? }, &kept.why))
    }
}
