//! A main thread: runs programs, waits, replies.

mod ops;
mod values;

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use hoplo_base::{ActorId, FunctionId, Instant, ObjectId, ProcessId, TaskId, limits};
use hoplo_wire::call::{CALL_BACKPRESSURE, CallView};
use hoplo_wire::node::{DeathCause, ToNode};
use hoplo_wire::object::ValueView;
use hoplo_wire::reply::{ReplyHeader, ReplyKind, Returned};
use hoplo_wire::{Failure, FailureKind, Location};

use crate::client::Instance;
use crate::cluster::{Cluster, Step};
use crate::memory::decode_content;
use crate::workload::{Program, Role, decode_args, program};

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
    pub handles: Vec<ActorId>,
    /// Streams, and how many items were taken.
    streams: Vec<(TaskId, u32)>,
    pub wait: Option<Wait>,
    until: Instant,
    deadline: Option<Instant>,
    asked_room: bool,
    failure: Option<Failure>,
    built: Vec<Returned>,
    items: u32,
    /// A question to the daemon that its present step waits for.
    pub request: Option<u64>,
    /// A named actor that is not known to be its own.
    pub creates: Option<ActorId>,
}

/// A call that runs here.
#[derive(Clone, Copy, Debug)]
struct Incoming {
    caller: ProcessId,
    function: FunctionId,
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
    Function(FunctionId),
    /// Of the daemon, to a request.
    Answer(u64),
}

pub enum Flow {
    Next,
    Sleep(Duration),
    Wait(Wait),
    Over,
}

enum Room {
    Got(u64, u32),
    Wait,
    Denied(FailureKind),
}

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
            request: None,
            creates: None,
        }
    }

    pub fn driver(_id: ProcessId, seed: u64) -> Self {
        Self::new(Role::Driver, seed, 0)
    }

    pub fn awaited(&self) -> Vec<ObjectId> {
        match &self.wait {
            Some(Wait::Ready(object)) => vec![*object],
            Some(Wait::Any(objects)) => objects.clone(),
            Some(
                Wait::Room | Wait::Item(..) | Wait::Credit | Wait::Function(_) | Wait::Answer(_),
            )
            | None => vec![],
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
        // Who waits for the daemon's answer takes it first.
        if let Some(call) = fiber.call
            && fiber.failure.is_none()
            && fiber.request.is_none()
            && !fiber.asked_room
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
            self.session(id, |session, _, effects| session.return_leases(effects));
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
        let ahead = if header.flags & CALL_BACKPRESSURE != 0 { view.extra().last() } else { None };
        fiber.call = Some(Incoming {
            caller,
            function: header.function,
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
        if attempt > 0 || incarnation > 0 {
            self.count(if role == Role::Constructor { "restarts of actors" } else { "retries" });
        }
        self.note(|| format!("{id} takes {task}, attempt {attempt}, from {caller}"));
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
        if let Some(call) = fiber.call
            && fiber.failure.is_none()
            && !self.has_function(id, call.function)
        {
            return Flow::Wait(Wait::Function(call.function));
        }
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
