//! Steps of a program: submissions, actors, streams.

use std::sync::Arc;

use hoplo_base::bundles::group_of;
use hoplo_base::{ActorId, ProcessId, TaskId};
use hoplo_core::session::{Call as SessionCall, CallOptions, CreateActor, Event, StreamNext};
use hoplo_wire::call::CALL_STREAMING;
use hoplo_wire::node::Shape;

use super::{Fiber, Flow, Wait, ids};
use crate::cluster::Cluster;
use crate::invariants::Call;
use crate::workload::{Name, Op, Submission, encode_args, shape};

/// Calls of one seed.
const SUBMISSIONS_MAX: u64 = 400;

impl Cluster {
    pub(super) fn execute(
        &mut self,
        id: ProcessId,
        thread: u64,
        fiber: &mut Fiber,
        op: &Op,
    ) -> Flow {
        match op {
            Op::Work(time) => return Flow::Sleep(*time),
            Op::Submit(submission) => {
                // What is read by many at the same time is read at other nodes, too.
                let times = if self.plan.dies_when_named && submission.refs > 0 { 4 } else { 1 };
                (0..times).for_each(|_| self.submit(id, fiber, submission));
            }
            Op::Put { stored, contains, copies } => {
                let contains = fiber.some(*contains, fiber.pc as u64);
                return self.put(id, fiber, (*stored, *copies), &contains);
            }
            Op::Get(pick) => {
                if let Some(object) = fiber.pick(*pick) {
                    self.session(id, |session, _, effects| session.want(&[object], effects));
                    match self.read(id, object) {
                        None => return Flow::Wait(Wait::Ready(object)),
                        Some(result) => fiber.hold(result.unwrap_or_default()),
                    }
                }
            }
            Op::WaitAny(time) => {
                let refs = fiber.refs.clone();
                let deadline = *fiber.deadline.get_or_insert(self.now + *time);
                self.session(id, |session, _, effects| session.want(&refs, effects));
                let session = &self.client(id).session;
                let ready = refs.iter().any(|object| session.is_ready(*object));
                if !ready && !refs.is_empty() && self.now < deadline {
                    return Flow::Wait(Wait::Any(refs));
                }
            }
            Op::Watch(pick) => {
                if let Some(object) = fiber.pick(*pick) {
                    self.client(id).session.add_ref(object);
                    self.watch(id, object);
                }
            }
            Op::Drop(pick) => {
                if !fiber.refs.is_empty() {
                    let at = (*pick % fiber.refs.len() as u64) as usize;
                    let object = fiber.refs.swap_remove(at);
                    self.note(|| format!("{id} drops {object}"));
                    self.drop_refs(id, [object]);
                }
            }
            Op::Reduce(pick) => {
                let of = fiber.refs.clone();
                return self.reduces(id, fiber, &of, *pick);
            }
            Op::ReduceMany(submission, pick) => {
                return self.reduces_many(id, fiber, submission, *pick);
            }
            Op::Cancel { pick, force, recursive } => {
                if let Some(object) = fiber.pick(*pick) {
                    self.drain(id);
                    self.note(|| format!("{id} cancels {object}, force {force}"));
                    self.books.facts.cancels(object.task, *recursive);
                    let (task, force) = (object.task, *force);
                    let (task, recursive) = self.sabotage_cancels(task, *recursive);
                    let event = Event::Cancel { task, force, recursive };
                    self.session(id, |session, now, effects| session.handle(now, event, effects));
                }
            }
            Op::Create(submission, restarts, name) => {
                return self.create(id, fiber, submission, *restarts, name.as_ref());
            }
            Op::Group(spec) => return self.makes_group(id, fiber, spec),
            Op::RemoveGroup(pick) => self.removes_group(id, fiber, *pick),
            Op::Find(name) => return self.finds(id, fiber, name),
            Op::Kv(step) => return self.kv(id, fiber, step),
            Op::Call(submission, pick) => {
                if let Some(actor) = fiber.handle(*pick) {
                    self.call(id, fiber, submission, actor);
                }
            }
            Op::DropHandle(pick) => {
                if !fiber.handles.is_empty() {
                    let at = (*pick % fiber.handles.len() as u64) as usize;
                    let actor = fiber.handles.swap_remove(at);
                    self.note(|| format!("{id} drops a handle of {actor}"));
                    self.drop_refs(id, [actor.handle()]);
                }
            }
            Op::Kill { pick, no_restart } => {
                if let Some(actor) = fiber.handle(*pick) {
                    self.books.facts.kills(actor, *no_restart);
                    if *no_restart {
                        self.books.facts.killers.insert((id, actor));
                        self.session(id, |session, now, effects| {
                            session.kill_actor(now, actor, effects);
                        });
                    } else {
                        let lives_in = self.client(id).session.lives_in(actor);
                        if let Some(worker) = lives_in {
                            self.books.facts.ended_workers.insert((id, actor), worker);
                        }
                        self.session(id, |session, _, effects| {
                            session.end_worker_of(actor, effects);
                        });
                    }
                }
            }
            Op::Take(pick) => return self.take_item(id, fiber, *pick),
            Op::DropStream(pick) => {
                if !fiber.streams.is_empty() {
                    let at = (*pick % fiber.streams.len() as u64) as usize;
                    let (task, taken) = fiber.streams.swap_remove(at);
                    self.drop_stream(id, task, taken);
                }
            }
            Op::Keep(pick) => {
                if let Some(at) =
                    (!fiber.refs.is_empty()).then(|| *pick as usize % fiber.refs.len())
                {
                    let object = fiber.refs.swap_remove(at);
                    let actor = self.client(id).actor.as_mut().expect("methods run in actors");
                    actor.kept.push(object);
                    self.note(|| format!("{id} keeps {object}"));
                }
            }
            Op::Recall(pick) => {
                let actor = self.client(id).actor.as_mut().expect("methods run in actors");
                if !actor.kept.is_empty() {
                    let at = *pick as usize % actor.kept.len();
                    let object = actor.kept.swap_remove(at);
                    self.watch(id, object);
                }
            }
            Op::Yield { stored, contains } => {
                return self.yield_item(id, thread, fiber, *stored, *contains);
            }
        }
        Flow::Next
    }

    pub(super) fn session_call(
        &mut self,
        id: ProcessId,
        fiber: &Fiber,
        submission: &Submission,
    ) -> SessionCall {
        self.drain(id);
        self.exports(id, submission.options.function);
        self.books.submitted += 1;
        let from = submission.program;
        let refs = fiber.some(submission.refs, from);
        let mut nested = fiber.some(submission.nested, from / 7);
        for at in 0..submission.handles.min(fiber.handles.len()) {
            nested.push(fiber.handles[(from as usize + at) % fiber.handles.len()].handle());
        }
        let args = encode_args(submission, fiber.depth + 1, &nested);
        let mut options = submission.options.clone();
        let shape = self.in_group(fiber, &options.shape, submission.bundle);
        if shape != *options.shape {
            options = Arc::new(CallOptions { shape: Arc::new(shape), ..(*options).clone() });
        }
        SessionCall { options, args, refs, nested, packed: false }
    }

    pub fn submit(&mut self, id: ProcessId, fiber: &mut Fiber, submission: &Submission) {
        if self.books.submitted >= SUBMISSIONS_MAX {
            return;
        }
        let call = self.session_call(id, fiber, submission);
        let parent = fiber.call.map(|call| call.task);
        let text = format!("refs {:?}, nested {:?}", ids(&call.refs), ids(&call.nested));
        let fact = fact(&call, parent, None);
        let task =
            self.session(id, |session, now, effects| session.submit(now, call, parent, effects));
        self.books.facts.submits(task, fact);
        let streams = submission.options.flags & CALL_STREAMING != 0;
        self.note(|| format!("{id} submits {task}, {text}"));
        self.submitted(fiber, task, submission.options.returns, streams);
    }

    pub(super) fn submitted(
        &mut self,
        fiber: &mut Fiber,
        task: TaskId,
        returns: u32,
        streams: bool,
    ) {
        if streams {
            fiber.streams.push((task, 0));
        } else {
            fiber.refs.extend((0..returns).map(|index| task.object(index)));
        }
    }

    pub(super) fn create(
        &mut self,
        id: ProcessId,
        fiber: &mut Fiber,
        submission: &Submission,
        restarts: i32,
        name: Option<&Name>,
    ) -> Flow {
        if let Some(actor) = fiber.creates {
            return self.created_by_name(id, fiber, actor);
        }
        if self.books.submitted >= SUBMISSIONS_MAX {
            return Flow::Next;
        }
        let mut call = self.session_call(id, fiber, submission);
        if name.is_some() {
            // Who waits for the daemon's word on a name waits for no argument before.
            call.refs.clear();
        }
        let detached = name.is_some_and(|name| name.detached);
        let shape =
            Shape { resources: shape(1.0).resources, ..(*submission.options.shape).clone() };
        let shape = self.in_group(fiber, &shape, submission.bundle);
        let mut create = CreateActor {
            class_name: "A".to_string(),
            name: name.map(|name| name.name.clone()).unwrap_or_default(),
            namespace: String::new(),
            detached,
            get_if_exists: name.is_some_and(|name| name.get_if_exists),
            shape,
            held: hoplo_base::ResourceSet::new(),
            max_restarts: restarts,
            checkpoints: self.checkpoints(restarts),
            handle: vec![],
            request: 0,
        };
        if name.is_some() {
            self.creates_by_name(id, fiber, &mut create);
        }
        if detached {
            self.count("detached actors");
        }
        let text = format!("refs {:?}, nested {:?}", ids(&call.refs), ids(&call.nested));
        let logs = create.checkpoints.is_some();
        let mut fact = fact(&call, None, None); // no cancellation reaches an actor
        fact.group = group_of(&create.shape.resources);
        let actor = self
            .session(id, |session, now, effects| session.create_actor(now, call, create, effects));
        self.books.facts.submits(actor.0, fact);
        self.books.facts.creates(actor, restarts);
        if logs {
            self.books.ledgers.logs(actor);
            self.count("actors with checkpoints");
        }
        self.note(|| format!("{id} creates {actor} {name:?}, {text}"));
        if name.is_some() {
            fiber.creates = Some(actor);
            return Flow::Wait(Wait::Answer(fiber.request.expect("it was asked")));
        }
        fiber.handles.push(actor);
        Flow::Next
    }

    pub(super) fn call(
        &mut self,
        id: ProcessId,
        fiber: &mut Fiber,
        submission: &Submission,
        actor: ActorId,
    ) {
        if self.books.submitted >= SUBMISSIONS_MAX {
            return;
        }
        let submission = &self.as_its_handle_says(submission, actor);
        let call = self.session_call(id, fiber, submission);
        let parent = fiber.call.map(|call| call.task);
        let text = format!("refs {:?}, nested {:?}", ids(&call.refs), ids(&call.nested));
        let fact = fact(&call, parent, Some(actor));
        let task = self.session(id, |session, now, effects| {
            session.submit_method(now, actor, call, parent, effects)
        });
        if let Ok(task) = task {
            self.note(|| format!("{id} calls {actor} by {task}, {text}"));
            self.books.facts.submits(task, fact);
            if self.books.facts.killers.contains(&(id, actor)) {
                self.books.facts.after_kill.insert(task);
                self.count("calls of an actor that the caller has killed");
            }
            if let Some(worker) = self.books.facts.ended_workers.get(&(id, actor)) {
                self.books.facts.not_at.insert(task, *worker);
                self.count("calls of an actor whose worker the caller has ended");
            }
            match submission.options.may_be_overtaken {
                true => self.count("calls that may be overtaken"),
                false => self.calls(task, actor, parent),
            }
            let streams = submission.options.flags & CALL_STREAMING != 0;
            self.submitted(fiber, task, submission.options.returns, streams);
        }
    }

    pub(super) fn take_item(&mut self, id: ProcessId, fiber: &mut Fiber, pick: u64) -> Flow {
        if fiber.streams.is_empty() {
            return Flow::Next;
        }
        let at = (pick % fiber.streams.len() as u64) as usize;
        let (task, taken) = fiber.streams[at];
        self.drain(id);
        let next =
            self.session(id, |session, _, effects| session.stream_next(task, taken, effects));
        match next {
            StreamNext::Item(object) => {
                fiber.streams[at].1 += 1;
                fiber.refs.push(object);
            }
            StreamNext::Pending => return Flow::Wait(Wait::Item(task, taken)),
            StreamNext::End => {
                fiber.streams.swap_remove(at);
            }
        }
        Flow::Next
    }

    pub(super) fn drop_stream(&mut self, id: ProcessId, task: TaskId, taken: u32) {
        self.note(|| format!("{id} drops the stream of {task} after {taken}"));
        self.books.facts.cancels(task, false);
        self.session(id, |session, now, effects| session.stream_drop(now, task, taken, effects));
    }
}

fn fact(call: &SessionCall, parent: Option<TaskId>, actor: Option<ActorId>) -> Call {
    let streams = call.options.flags & CALL_STREAMING != 0;
    let may_run_again = actor.is_none() && !call.packed;
    let (refs, nested) = (call.refs.clone(), call.nested.clone());
    let max_retries = call.options.max_retries;
    let group = group_of(&call.options.shape.resources);
    let labels = call.options.shape.labels.clone();
    Call { parent, actor, refs, nested, max_retries, may_run_again, streams, group, labels }
}
