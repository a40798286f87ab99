//! A main thread: runs programs, waits, replies.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use hoplo_base::{ActorId, Instant, ObjectId, ProcessId, TaskId, limits};
use hoplo_core::session::{Call as SessionCall, CreateActor, Effect, Event, StreamNext};
use hoplo_wire::call::{CALL_BACKPRESSURE, CALL_RETRY_ANY, CALL_STREAMING, CallView};
use hoplo_wire::node::{DeathCause, ToNode};
use hoplo_wire::object::ValueView;
use hoplo_wire::reply::{
    REPLY_RETIRING, REPLY_RETRYABLE, ReplyHeader, ReplyKind, Returned, encode_returned,
};
use hoplo_wire::{Failure, FailureKind, Location, Value};

use crate::client::Instance;
use crate::cluster::{Cluster, Step};
use crate::memory::{decode_content, encode_content};
use crate::workload::{Op, Program, Role, Submission, decode_args, encode_args, program, shape};

pub struct Fiber {
    role: Role,
    seed: u64,
    depth: u8,
    program: Option<Program>,
    pc: usize,
    call: Option<Incoming>,
    /// Top-level arguments that lie in the store.
    args: VecDeque<(ObjectId, Option<Location>)>,
    refs: Vec<ObjectId>,
    handles: Vec<ActorId>,
    /// Streams, and how many items were taken.
    streams: Vec<(TaskId, u32)>,
    pub wait: Option<Wait>,
    until: Instant,
    deadline: Option<Instant>,
    asked_room: bool,
    failure: Option<Failure>,
    built: Vec<Returned>,
    items: u32,
}

/// A call that runs here.
#[derive(Clone, Copy, Debug)]
struct Incoming {
    caller: ProcessId,
    tag: u64,
    task: TaskId,
    attempt: u32,
    returns: u32,
    flags: u8,
    max_calls: u32,
    ahead: u32,
    incarnation: u32,
    since: Instant,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Wait {
    Ready(ObjectId),
    Any(Vec<ObjectId>),
    Room,
    Item(TaskId, u32),
    Credit,
}

enum Flow {
    Next,
    Sleep(Duration),
    Wait(Wait),
    Over,
}

enum Room {
    Got(u64, u32),
    Wait,
    Denied,
}

/// Calls of one seed.
const SUBMISSIONS_MAX: u64 = 400;

impl Fiber {
    fn new(role: Role, seed: u64, depth: u8) -> Self {
        Self {
            role,
            seed,
            depth,
            program: None,
            pc: 0,
            call: None,
            args: VecDeque::new(),
            refs: Vec::new(),
            handles: Vec::new(),
            streams: Vec::new(),
            wait: None,
            until: Instant::ZERO,
            deadline: None,
            asked_room: false,
            failure: None,
            built: Vec::new(),
            items: 0,
        }
    }

    pub fn driver(_id: ProcessId, seed: u64) -> Self {
        Self::new(Role::Driver, seed, 0)
    }

    pub fn awaited(&self) -> Vec<ObjectId> {
        match &self.wait {
            Some(Wait::Ready(object)) => vec![*object],
            Some(Wait::Any(objects)) => objects.clone(),
            Some(Wait::Room | Wait::Item(..) | Wait::Credit) | None => vec![],
        }
    }

    fn hold(&mut self, objects: Vec<ObjectId>) {
        for object in objects {
            if object.index == u32::MAX {
                self.handles.push(ActorId(object.task));
            } else {
                self.refs.push(object);
            }
        }
    }

    fn pick(&self, pick: u64) -> Option<ObjectId> {
        let len = self.refs.len() as u64;
        (len > 0).then(|| self.refs[(pick % len) as usize])
    }

    fn handle(&self, pick: u64) -> Option<ActorId> {
        let len = self.handles.len() as u64;
        (len > 0).then(|| self.handles[(pick % len) as usize])
    }

    /// Different refs of its own.
    fn some(&self, count: usize, from: u64) -> Vec<ObjectId> {
        let len = self.refs.len();
        (0..count.min(len)).map(|at| self.refs[(from as usize + at) % len]).collect()
    }
}

impl fmt::Display for Fiber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} {:?} at {}: {:?}",
            self.role,
            self.call.map(|call| call.task),
            self.pc,
            self.wait
        )
    }
}

impl Cluster {
    pub fn goes(&mut self, id: ProcessId) {
        self.awake(id);
        if !self.client(id).alive {
            return;
        }
        if self.client(id).fiber.is_none() && !self.finds_work(id) {
            return;
        }
        let now = self.now;
        let Some(mut fiber) = self.client(id).fiber.take() else { return };
        if now < fiber.until {
            self.client(id).fiber = Some(fiber);
            return;
        }
        if let Some(call) = fiber.call
            && fiber.failure.is_none()
            && self.client(id).cancelled.contains(&call.task)
        {
            let text = "it was told to stop";
            fiber.failure = Some(Failure::new(FailureKind::Cancelled, text));
            fiber.wait = None;
        }
        let flow = self.advance(id, &mut fiber);
        let waited = fiber.wait.take().is_some();
        if waited && !matches!(flow, Flow::Wait(_)) && std::mem::take(&mut self.client(id).lent) {
            self.say(id, ToNode::Unblocked);
        }
        match flow {
            Flow::Next => self.sleep(id, &mut fiber, Duration::from_micros(5)),
            Flow::Sleep(time) => self.sleep(id, &mut fiber, time),
            Flow::Wait(wait) => {
                fiber.wait = Some(wait);
                if !waited {
                    self.client(id).waits += 1;
                    let wait = self.client(id).waits;
                    self.after(limits::BLOCKED_AFTER, Step::Lends(id, wait));
                }
                if let Some(deadline) = fiber.deadline {
                    self.at(deadline, Step::Goes(id));
                }
            }
            Flow::Over => {
                self.over(id, fiber);
                self.wake(id);
                self.arm(id);
                return;
            }
        }
        self.client(id).fiber = Some(fiber);
        self.arm(id);
    }

    fn sleep(&mut self, id: ProcessId, fiber: &mut Fiber, time: Duration) {
        fiber.until = self.now + time;
        self.at(fiber.until, Step::Goes(id));
    }

    /// A wait of more than a millisecond.
    pub fn lends(&mut self, id: ProcessId, wait: u64) {
        let client = self.client(id);
        let waits = client.waits == wait && client.is_waiting() && client.alive;
        let constructed = client.actor.as_ref().is_some_and(|actor| actor.constructed);
        if waits && !client.is_driver && !constructed && !client.lent {
            client.lent = true;
            self.say(id, ToNode::Blocked);
        }
    }

    // ---- taking work ----

    fn finds_work(&mut self, id: ProcessId) -> bool {
        let client = self.client(id);
        if client.is_driver {
            return false;
        }
        if let Some((spec, incarnation)) = client.orders.pop_front() {
            client.actor = Some(Instance { actor: spec.actor, kept: vec![], constructed: false });
            self.begin(id, spec.actor.0.owner, 0, &spec.frame, incarnation);
            return true;
        }
        let takes = client.actor.as_ref().is_none_or(|actor| actor.constructed);
        let callers: Vec<ProcessId> = (self.channels.iter())
            .filter(|((_, worker), channel)| *worker == id && channel.connected && takes)
            .map(|((caller, _), _)| *caller)
            .collect();
        for at in 0..callers.len() {
            let turn = self.client(id).served;
            let caller = callers[(turn + at) % callers.len()];
            let channel = self.channels.get_mut(&(caller, id)).expect("it was just listed");
            if let Some(call) = channel.take() {
                self.client(id).served = (turn + at + 1) % callers.len();
                self.begin(id, caller, call.seq, &call.bytes, 0);
                return true;
            }
        }
        let client = self.client(id);
        if client.leaving && client.session.unfinished() > 0 && !client.lent {
            client.lent = true;
            self.say(id, ToNode::Blocked);
            return false;
        }
        let client = self.client(id);
        if client.leaving && client.session.unfinished() == 0 {
            self.session(id, |session, _, effects| session.leave(effects));
            self.dies(id, DeathCause::Exited { code: 0 });
        }
        false
    }

    fn begin(
        &mut self,
        id: ProcessId,
        caller: ProcessId,
        tag: u64,
        bytes: &[u8],
        incarnation: u32,
    ) {
        if std::mem::take(&mut self.client(id).lent) {
            self.say(id, ToNode::Unblocked); // it was leaving and only waited
        }
        let view = CallView::parse(bytes).expect("callers here write well");
        let header = view.header;
        let (seed, role, depth, nested) = decode_args(view.args);
        let mut fiber = Fiber::new(role, seed, depth);
        self.client(id).serves = Some(caller);
        let ahead = if header.flags & CALL_BACKPRESSURE != 0 { view.extra().last() } else { None };
        fiber.call = Some(Incoming {
            caller,
            tag,
            task: header.task,
            attempt: header.attempt,
            returns: header.returns,
            flags: header.flags,
            max_calls: header.max_calls,
            ahead: ahead.unwrap_or(0),
            incarnation,
            since: self.now,
        });
        let (task, attempt) = (header.task, header.attempt);
        self.tell(|| format!("{id} takes {task}, attempt {attempt}, from {caller}"));
        if role != Role::Constructor {
            self.starts_once(header.task, header.attempt, caller, id);
        }
        for (object, value) in view.refs().expect("callers here write well") {
            match value {
                ValueView::Inline(bytes) => {
                    let (token, contains) = decode_content(bytes);
                    self.books.is_value_of(object, token);
                    for inner in &contains {
                        self.client(id).session.add_ref(*inner);
                    }
                    fiber.hold(contains);
                }
                ValueView::Failed { kind, payload, cause } => {
                    fiber.failure.get_or_insert(Failure {
                        kind,
                        payload: payload.into(),
                        cause: cause.into(),
                    });
                }
                ValueView::Stored(Location::ASK) => {
                    self.client(id).session.add_ref(object);
                    fiber.args.push_back((object, None));
                }
                ValueView::Stored(location) => {
                    self.client(id).session.borrow_stored(object, location);
                    fiber.args.push_back((object, Some(location)));
                }
            }
        }
        for object in &nested {
            self.client(id).session.add_ref(*object);
        }
        fiber.hold(nested);
        self.client(id).fiber = Some(fiber);
    }

    // ---- running ----

    fn advance(&mut self, id: ProcessId, fiber: &mut Fiber) -> Flow {
        if let Some((object, location)) = fiber.args.front().copied() {
            return self.argument(id, fiber, object, location);
        }
        if fiber.program.is_none() {
            fiber.program = Some(program(fiber.seed, fiber.role, fiber.depth, &self.plan));
            if let Some(call) = fiber.call
                && (call.attempt + call.incarnation)
                    < fiber.program.as_ref().map_or(0, |it| it.raises)
            {
                // Raises half way.
                let program = fiber.program.as_mut().expect("it was just made");
                let half = program.ops.len() / 2;
                program.ops.truncate(half);
            }
        }
        let next = fiber.program.as_ref().expect("it is there").ops.get(fiber.pc).cloned();
        if let Some(op) = next
            && fiber.failure.is_none()
        {
            let flow = self.execute(id, fiber, &op);
            if !matches!(flow, Flow::Wait(_)) {
                fiber.pc += 1;
                fiber.deadline = None;
            }
            return flow;
        }
        match fiber.call {
            None => Flow::Over,
            Some(call) => self.build(id, fiber, call),
        }
    }

    fn argument(
        &mut self,
        id: ProcessId,
        fiber: &mut Fiber,
        object: ObjectId,
        location: Option<Location>,
    ) -> Flow {
        if let Some(location) = location {
            // The count that came with it goes to the view, or stays until it is read.
            fiber.args.front_mut().expect("it is there").1 = None;
            if let Some(contains) = self.read_stored(id, object, location, true) {
                fiber.args.pop_front();
                fiber.hold(contains);
                return Flow::Next;
            }
        }
        if fiber.failure.is_some() {
            fiber.args.pop_front();
            self.drop_refs(id, [object]);
            return Flow::Next;
        }
        self.session(id, |session, _, effects| session.want(&[object], effects));
        match self.read(id, object) {
            None => Flow::Wait(Wait::Ready(object)),
            Some(result) => {
                fiber.args.pop_front();
                match result {
                    Ok(contains) => fiber.hold(contains),
                    Err(()) => fiber.failure = Some(user_failure("an argument failed")),
                }
                self.drop_refs(id, [object]);
                Flow::Next
            }
        }
    }

    fn execute(&mut self, id: ProcessId, fiber: &mut Fiber, op: &Op) -> Flow {
        match op {
            Op::Work(time) => return Flow::Sleep(*time),
            Op::Submit(submission) => self.submit(id, fiber, submission),
            Op::Put { stored, contains } => {
                let contains = fiber.some(*contains, fiber.pc as u64);
                return self.put(id, fiber, *stored, &contains);
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
                    self.tell(|| format!("{id} drops {object}"));
                    self.drop_refs(id, [object]);
                }
            }
            Op::Cancel { pick, force, recursive } => {
                if let Some(object) = fiber.pick(*pick) {
                    self.drain(id);
                    self.tell(|| format!("{id} cancels {object}, force {force}"));
                    self.books.cancelled = true;
                    let (task, force, recursive) = (object.task, *force, *recursive);
                    let event = Event::Cancel { task, force, recursive };
                    self.session(id, |session, now, effects| session.handle(now, event, effects));
                }
            }
            Op::Create(submission, restarts) => self.create(id, fiber, submission, *restarts),
            Op::Call(submission, pick) => {
                if let Some(actor) = fiber.handle(*pick) {
                    self.call(id, fiber, submission, actor);
                }
            }
            Op::DropHandle(pick) => {
                if !fiber.handles.is_empty() {
                    let at = (*pick % fiber.handles.len() as u64) as usize;
                    let actor = fiber.handles.swap_remove(at);
                    self.tell(|| format!("{id} drops a handle of {actor}"));
                    self.drop_refs(id, [actor.handle()]);
                }
            }
            Op::Kill { pick, no_restart } => {
                if let Some(actor) = fiber.handle(*pick) {
                    self.books.actors_killed = true;
                    self.say(id, ToNode::ActorKill { actor, no_restart: *no_restart });
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
                    self.tell(|| format!("{id} keeps {object}"));
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
                return self.yield_item(id, fiber, *stored, *contains);
            }
        }
        Flow::Next
    }

    fn session_call(
        &mut self,
        id: ProcessId,
        fiber: &Fiber,
        submission: &Submission,
    ) -> SessionCall {
        self.drain(id);
        self.books.submitted += 1;
        let from = submission.program;
        let refs = fiber.some(submission.refs, from);
        let mut nested = fiber.some(submission.nested, from / 7);
        for at in 0..submission.handles.min(fiber.handles.len()) {
            nested.push(fiber.handles[(from as usize + at) % fiber.handles.len()].handle());
        }
        let args = encode_args(submission, fiber.depth + 1, &nested);
        SessionCall { options: submission.options.clone(), args, refs, nested }
    }

    fn submit(&mut self, id: ProcessId, fiber: &mut Fiber, submission: &Submission) {
        if self.books.submitted >= SUBMISSIONS_MAX {
            return;
        }
        let call = self.session_call(id, fiber, submission);
        let parent = fiber.call.map(|call| call.task);
        let text = format!("refs {:?}, nested {:?}", ids(&call.refs), ids(&call.nested));
        let task =
            self.session(id, |session, now, effects| session.submit(now, call, parent, effects));
        let streams = submission.options.flags & CALL_STREAMING != 0;
        self.tell(|| format!("{id} submits {task}, {text}"));
        self.submitted(fiber, task, submission.options.returns, streams);
    }

    fn submitted(&mut self, fiber: &mut Fiber, task: TaskId, returns: u32, streams: bool) {
        if streams {
            fiber.streams.push((task, 0));
        } else {
            fiber.refs.extend((0..returns).map(|index| task.object(index)));
        }
    }

    fn create(&mut self, id: ProcessId, fiber: &mut Fiber, submission: &Submission, restarts: i32) {
        if self.books.submitted >= SUBMISSIONS_MAX {
            return;
        }
        let call = self.session_call(id, fiber, submission);
        let create = CreateActor {
            class_name: "A".to_string(),
            name: String::new(),
            namespace: String::new(),
            detached: false,
            get_if_exists: false,
            shape: shape(1.0),
            held: hoplo_base::ResourceSet::new(),
            max_restarts: restarts,
            handle: vec![],
            request: 0,
        };
        let text = format!("refs {:?}, nested {:?}", ids(&call.refs), ids(&call.nested));
        let actor = self
            .session(id, |session, now, effects| session.create_actor(now, call, create, effects));
        self.tell(|| format!("{id} creates {actor}, {text}"));
        fiber.handles.push(actor);
    }

    fn call(&mut self, id: ProcessId, fiber: &mut Fiber, submission: &Submission, actor: ActorId) {
        if self.books.submitted >= SUBMISSIONS_MAX {
            return;
        }
        let call = self.session_call(id, fiber, submission);
        let parent = fiber.call.map(|call| call.task);
        let text = format!("refs {:?}, nested {:?}", ids(&call.refs), ids(&call.nested));
        let task = self.session(id, |session, now, effects| {
            session.submit_method(now, actor, call, parent, effects)
        });
        if let Ok(task) = task {
            self.tell(|| format!("{id} calls {actor} by {task}, {text}"));
            let streams = submission.options.flags & CALL_STREAMING != 0;
            self.submitted(fiber, task, submission.options.returns, streams);
        }
    }

    fn take_item(&mut self, id: ProcessId, fiber: &mut Fiber, pick: u64) -> Flow {
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

    fn drop_stream(&mut self, id: ProcessId, task: TaskId, taken: u32) {
        self.tell(|| format!("{id} drops the stream of {task} after {taken}"));
        self.books.streams_dropped.insert(task);
        self.session(id, |session, now, effects| session.stream_drop(now, task, taken, effects));
    }

    // ---- values ----

    fn room(&mut self, id: ProcessId, fiber: &mut Fiber, len: u64) -> Room {
        if let Some((offset, slot)) = self.client(id).extents.allocate(len) {
            return Room::Got(offset, slot);
        }
        if fiber.asked_room {
            match self.client(id).room.take() {
                None => return Room::Wait,
                Some(false) => {
                    fiber.asked_room = false;
                    return Room::Denied;
                }
                Some(true) => {}
            }
        }
        fiber.asked_room = true;
        self.client(id).room = None;
        let slots = if self.client(id).extents.slots.len() < 16 { limits::SLOTS_GRANT } else { 0 };
        let bytes = len.next_multiple_of(limits::OBJECT_ALIGN);
        self.session(id, |session, _, effects| session.flush(effects));
        self.say(id, ToNode::ExtentWant { request: 1, bytes, slots });
        Room::Wait
    }

    fn put(
        &mut self,
        id: ProcessId,
        fiber: &mut Fiber,
        stored: Option<u64>,
        contains: &[ObjectId],
    ) -> Flow {
        let object = match stored {
            None => {
                let token = self.books.token(id);
                let value = Value::Inline(encode_content(token, contains).into());
                let object = self.client(id).session.put_inline(value, contains);
                self.books.put(object, token);
                object
            }
            Some(len) => match self.room(id, fiber, len) {
                Room::Wait => return Flow::Wait(Wait::Room),
                Room::Denied => return Flow::Next,
                Room::Got(offset, slot) => {
                    fiber.asked_room = false;
                    let object = self.client(id).session.next_put();
                    let content = encode_content(object, contains);
                    let generation = self.memory.seal(slot, offset, content);
                    let location = Location { slot, generation, offset, len };
                    self.session(id, |session, now, effects| {
                        session.put_stored(now, object, location, contains, effects);
                    });
                    object
                }
            },
        };
        self.tell(|| format!("{id} puts {object} (stored: {stored:?}) with {:?}", ids(contains)));
        fiber.refs.push(object);
        Flow::Next
    }

    /// The value of a returned object; `Err`: wait.
    fn returned(
        &mut self,
        id: ProcessId,
        fiber: &mut Fiber,
        call: Incoming,
        index: u32,
        (stored, contains): (Option<u64>, usize),
    ) -> Result<Returned, Flow> {
        let contains = fiber.some(contains, u64::from(index));
        let object = call.task.object(index);
        let content = encode_content(object, &contains);
        let Some(len) = stored else {
            return Ok(Returned { value: Value::Inline(content.into()), contains });
        };
        match self.room(id, fiber, len) {
            Room::Wait => Err(Flow::Wait(Wait::Room)),
            Room::Denied => {
                let failure = Failure::new(FailureKind::StoreFull, "no room for the result");
                Ok(Returned { value: Value::Failed(failure), contains: vec![] })
            }
            Room::Got(offset, slot) => {
                fiber.asked_room = false;
                let generation = self.memory.seal(slot, offset, content);
                let location = Location { slot, generation, offset, len };
                self.session(id, |session, _, _| {
                    let owner = call.caller;
                    session.result_stored(object, owner, location, &contains);
                });
                Ok(Returned { value: Value::Stored(location), contains })
            }
        }
    }

    fn yield_item(
        &mut self,
        id: ProcessId,
        fiber: &mut Fiber,
        stored: Option<u64>,
        contains: usize,
    ) -> Flow {
        let Some(call) = fiber.call.filter(|call| call.flags & CALL_STREAMING != 0) else {
            return Flow::Next;
        };
        let taken = self.client(id).consumed.get(&call.task).copied().unwrap_or(0);
        let gone = !self.channels.contains_key(&(call.caller, id));
        if call.ahead > 0
            && u64::from(fiber.items).saturating_sub(taken) >= u64::from(call.ahead)
            && !gone
        {
            return Flow::Wait(Wait::Credit);
        }
        match self.returned(id, fiber, call, fiber.items, (stored, contains)) {
            Err(flow) => flow,
            Ok(one) => {
                self.before_reply(id, call.caller, std::slice::from_ref(&one));
                let header = header(call, ReplyKind::Item, 0, fiber.items);
                fiber.items += 1;
                self.reply(id, call, header, &[one]);
                Flow::Next
            }
        }
    }

    /// Everything that it returns, one by one.
    fn build(&mut self, id: ProcessId, fiber: &mut Fiber, call: Incoming) -> Flow {
        let program = fiber.program.clone().expect("it ran");
        let raises = call.attempt + call.incarnation < program.raises;
        if raises && fiber.failure.is_none() {
            fiber.failure = Some(user_failure("it raises"));
        }
        if fiber.failure.is_some() || call.flags & CALL_STREAMING != 0 {
            return Flow::Over;
        }
        let built = fiber.built.len();
        if built < call.returns as usize {
            let spec = program.returns[built % program.returns.len()];
            return match self.returned(id, fiber, call, built as u32, spec) {
                Err(flow) => flow,
                Ok(one) => {
                    fiber.built.push(one);
                    Flow::Next
                }
            };
        }
        Flow::Over
    }

    fn over(&mut self, id: ProcessId, mut fiber: Fiber) {
        for (task, taken) in std::mem::take(&mut fiber.streams) {
            self.drop_stream(id, task, taken);
        }
        match fiber.call {
            None => {
                self.drop_locals(id, &mut fiber, &[]);
                self.client(id).finished = true;
                self.tell(|| format!("{id} has finished its program"));
                self.driver_finished();
            }
            Some(call) if fiber.role == Role::Constructor => {
                self.drop_locals(id, &mut fiber, &[]);
                let actor = ActorId(call.task);
                let incarnation = call.incarnation;
                let result = fiber.failure.map_or(Ok(()), Err);
                let instance = self.client(id).actor.as_mut().expect("it is constructed");
                instance.constructed = result.is_ok();
                self.session(id, |session, now, effects| {
                    session.before_reply(now, session.me(), &[], effects);
                    let message = ToNode::ActorStarted { actor, incarnation, result };
                    effects.push(Effect::Node(message));
                });
            }
            Some(call) => self.finish_call(id, fiber, call),
        }
    }

    fn finish_call(&mut self, id: ProcessId, mut fiber: Fiber, call: Incoming) {
        let streams = call.flags & CALL_STREAMING != 0;
        let mut flags = 0;
        let mut returned = std::mem::take(&mut fiber.built);
        if let Some(failure) = fiber.failure.clone() {
            if failure.kind == FailureKind::User && call.flags & CALL_RETRY_ANY != 0 {
                flags |= REPLY_RETRYABLE;
            }
            // What was sealed already for it is in the store: the caller gives it back with the others.
            if returned.is_empty() {
                returned.push(Returned { value: Value::Failed(failure), contains: vec![] });
            } else {
                let more = call.returns as usize - returned.len();
                let one = Returned { value: Value::Failed(failure), contains: vec![] };
                returned.extend(std::iter::repeat_n(one, more));
                flags = 0;
            }
        }
        let retires = call.max_calls > 0;
        if retires {
            flags |= REPLY_RETIRING;
        }
        let kept: Vec<ObjectId> = returned.iter().flat_map(|one| one.contains.clone()).collect();
        if self.rng.one_in(2) {
            self.drop_locals(id, &mut fiber, &kept);
        }
        self.before_reply(id, call.caller, &returned);
        if self.faulty() && self.rng.one_in(30) {
            self.tell(|| format!("FAULT: {id} is killed before its reply for {}", call.task));
            return self.dies(id, DeathCause::Signaled { signal: 9 });
        }
        let early = self.rng.one_in(2);
        if early {
            self.drop_locals(id, &mut fiber, &[]);
        }
        let kind = if streams { ReplyKind::StreamEnd } else { ReplyKind::Finished };
        let index = if streams { fiber.items } else { 0 };
        let mut header = header(call, kind, flags, index);
        header.ran_ns = u32::try_from(self.now.since(call.since).as_nanos()).unwrap_or(u32::MAX);
        self.reply(id, call, header, &returned);
        self.drop_locals(id, &mut fiber, &[]);
        self.client(id).cancelled.remove(&call.task);
        self.client(id).consumed.remove(&call.task);
        if retires {
            self.client(id).leaving = true;
        }
    }

    fn before_reply(&mut self, id: ProcessId, caller: ProcessId, returned: &[Returned]) {
        if self.channels.contains_key(&(caller, id)) {
            self.session(id, |session, now, effects| {
                session.before_reply(now, caller, returned, effects);
            });
        }
    }

    fn reply(&mut self, id: ProcessId, call: Incoming, header: ReplyHeader, returned: &[Returned]) {
        let Some(channel) = self.channels.get_mut(&(call.caller, id)) else { return };
        let mut bytes = header.encode(returned.len()).to_vec();
        encode_returned(returned, &mut bytes);
        channel.replies.push_back(bytes);
        let (kind, task) = (header.kind, call.task);
        self.tell(|| format!("{id} replies {kind:?} for {task}, attempt {}", call.attempt));
        self.arm(call.caller);
    }

    /// All but those of `kept`, each of which stays once.
    fn drop_locals(&mut self, id: ProcessId, fiber: &mut Fiber, kept: &[ObjectId]) {
        let mut refs = std::mem::take(&mut fiber.refs);
        for object in kept {
            if fiber.refs.contains(object) {
                continue;
            }
            if let Some(at) = refs.iter().position(|held| held == object) {
                fiber.refs.push(refs.swap_remove(at));
            }
        }
        self.drop_refs(id, refs);
        let handles: Vec<ObjectId> = fiber.handles.drain(..).map(ActorId::handle).collect();
        self.drop_refs(id, handles);
    }
}

fn header(call: Incoming, kind: ReplyKind, flags: u8, index: u32) -> ReplyHeader {
    ReplyHeader {
        kind,
        flags,
        attempt: call.attempt,
        seq: call.tag,
        started_ns: call.since.0,
        ran_ns: 0,
        index,
    }
}

fn user_failure(text: &str) -> Failure {
    Failure::user(text.as_bytes().into())
}

fn ids(objects: &[ObjectId]) -> Vec<String> {
    objects.iter().map(ToString::to_string).collect()
}
