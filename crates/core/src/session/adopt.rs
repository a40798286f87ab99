//! Objects survive their owner: a pending object that was shared goes with its lineage, and a process
//! that holds a ref runs the task again when the owner is dead (ARCHITECTURE.md, "Escape").

use std::sync::Arc;

use hoplo_base::{Instant, ObjectId, TaskId};
use hoplo_wire::call::{CALL_CPUS, CALL_NAMES, CALL_STREAMING, CallView};
use hoplo_wire::node::{Lineage, Notice};
use hoplo_wire::object::ValueView;
use hoplo_wire::{Failure, FailureKind, Value};

use super::call::Values;
use super::promises::READY;
use super::refs::State;
use super::results::Origin;
use super::{Call, CallOptions, Effect, SessionMachine};

impl SessionMachine {
    /// What another process needs to make a pending object of ours. `None`: it cannot be made again
    /// (a method call, a stream, a task that must not be retried).
    pub(super) fn lineage(
        &mut self,
        now: Instant,
        object: ObjectId,
        effects: &mut Vec<Effect>,
    ) -> Option<Lineage> {
        let task = object.task;
        let record = self.tasks.get(&task.seq).filter(|_| task.owner == self.me)?;
        let options = record.call.options.clone();
        let again = record.actor.is_none()
            && record.creates.is_none()
            && record.stands_for.is_none()
            && options.flags & CALL_STREAMING == 0
            && record.retries_left != 0;
        if !again {
            return None;
        }
        let retries = record.retries_left;
        self.mention_arguments(now, task.seq, effects);
        let contains = self.named_in_frame(task.seq);
        let frame = self.frame_of_kind(task.seq, None);
        let mut bytes = frame.header.to_vec();
        for part in [frame.args, &frame.extra, frame.refs] {
            bytes.extend_from_slice(part);
        }
        Some(Lineage { task, shape: options.shape.clone(), frame: bytes, contains, retries })
    }

    /// The owner of the task is dead: this process runs it for all who hold its objects.
    pub(super) fn adopt(
        &mut self,
        now: Instant,
        lineage: &Lineage,
        objects: &[ObjectId],
        effects: &mut Vec<Effect>,
    ) {
        let call = CallView::parse(&lineage.frame).and_then(|view| Ok((view, view.refs()?)));
        let Ok((view, refs)) = call else {
            self.adoption_failed(now, lineage.task, objects, effects);
            return;
        };
        let options = CallOptions {
            function: view.header.function,
            name: Arc::from(format!("{} (its owner died)", lineage.task)),
            shape: lineage.shape.clone(),
            returns: view.header.returns,
            flags: view.header.flags & !(CALL_CPUS | CALL_NAMES), // said of that frame
            max_retries: lineage.retries,
            max_calls: view.header.max_calls,
            job: Some(view.header.job),
            stream_ahead: 0,
            max_pending_calls: 0,
            remembered: true,
            near_first: false,
            may_be_overtaken: false,
        };
        let mut ids = Vec::with_capacity(refs.len());
        for (object, value) in &refs {
            ids.push(self.adopt_argument(lineage, *object, value));
        }
        // What travels by value may lie inside another argument as a ref, too.
        let by_ref = |object: &ObjectId| {
            refs.iter().any(|(id, value)| id == object && matches!(value, ValueView::Stored(_)))
        };
        let nested = lineage.contains.iter().filter(|object| !by_ref(object));
        let call = Call {
            options: Arc::new(options),
            args: view.args.to_vec(),
            refs: ids.clone(),
            nested: nested.copied().collect(),
            packed: false, // what is packed waits for its refs in the worker now
        };
        let task = self.create_task(call, None, None);
        self.drop_all(now, &ids, effects); // the task counts them now
        for index in 0..view.header.returns {
            self.drop_ref(now, task.object(index), effects); // it makes the original's objects instead
        }
        let record = self.tasks.get_mut(&task.seq).expect("it was just made");
        record.stands_for = Some(lineage.task);
        record.shared = true; // all who hold its objects wait for its reply
        record.attempt = view.header.attempt + 1;
        // The records of what it makes hold them only until the first of these has its value.
        self.report_borrowed(now, effects);
        self.flush(effects);
        match view.header.function {
            READY => self.promise(now, task.seq, effects),
            _ => self.admit(now, task.seq, effects),
        }
    }

    /// One of the call's refs, counted once.
    fn adopt_argument(
        &mut self,
        lineage: &Lineage,
        object: ObjectId,
        value: &ValueView,
    ) -> ObjectId {
        let ValueView::Inline(bytes) = value else {
            self.add_ref(object);
            return object;
        };
        let value = Value::Inline((*bytes).into());
        if !lineage.contains.contains(&object) {
            // Nobody holds it for this call, which got the value alone. That travels on under a name of ours: if it does not fit the next
            // frame, the object's home could not be told of it.
            return self.put_inline(value, &[]);
        }
        self.add_ref(object);
        let entry = self.objects.get_mut(&object).expect("it was just counted");
        if entry.count == 1 && matches!(entry.state, State::Pending { asked: false }) {
            entry.state = State::Ready(value);
        }
        object
    }

    fn adoption_failed(
        &mut self,
        now: Instant,
        task: TaskId,
        objects: &[ObjectId],
        effects: &mut Vec<Effect>,
    ) {
        for object in objects {
            let text = format!(
                "{object} is lost: the owner of {task} died, and its lineage does not parse"
            );
            let value = Value::Failed(Failure::new(FailureKind::ObjectLost, text));
            self.fulfil(now, *object, value, vec![], Origin::Own, effects);
        }
        self.notice(now, Notice::AdoptionOver { task, maker: None }, effects);
        self.flush(effects);
    }

    /// An adopted task is over: `original`'s objects get the values, for everybody who holds them.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn fulfil_adopted(
        &mut self,
        now: Instant,
        task: TaskId,
        original: TaskId,
        returns: u32,
        values: Values,
        origin: Origin,
        effects: &mut Vec<Effect>,
    ) {
        let maker = match origin {
            Origin::Reply(worker) => Some(worker),
            Origin::Own | Origin::Node => None,
        };
        for (index, (value, contains)) in (0..).zip(one_each(original, returns, values)) {
            self.objects.remove(&task.object(index));
            self.fulfil(now, original.object(index), value, contains, origin, effects);
        }
        self.notice(now, Notice::AdoptionOver { task: original, maker }, effects);
    }

    pub(super) fn fulfil(
        &mut self,
        now: Instant,
        object: ObjectId,
        value: Value,
        contains: Vec<ObjectId>,
        origin: Origin,
        effects: &mut Vec<Effect>,
    ) {
        if !matches!(value, Value::Stored(_)) {
            self.mention_all(now, &contains, effects);
            let (value, contains) = (value.clone(), contains.clone());
            self.notice(now, Notice::Fulfilled { object, value, contains }, effects);
        }
        self.complete(now, object, value, contains, origin, effects);
    }
}

/// What each of so many results of a task gets: one failure may stand for all of them.
pub(super) fn one_each(
    original: TaskId,
    returns: u32,
    values: Values,
) -> impl Iterator<Item = (Value, Vec<ObjectId>)> {
    let for_all = match values.as_slice() {
        [(Value::Failed(failure), _)] if returns != 1 => Some(failure.clone()),
        _ => None,
    };
    let mut values = values.into_iter();
    (0..returns).map(move |_| match (&for_all, values.next()) {
        (None, Some(value)) => value,
        (Some(failure), _) => (Value::Failed(failure.clone()), vec![]),
        (None, None) => {
            let text = format!("{original} returned fewer values than it was asked for");
            (Value::Failed(Failure::new(FailureKind::ObjectLost, text)), vec![])
        }
    })
}
