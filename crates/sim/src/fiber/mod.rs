//! A thread of a process: runs programs, waits, replies.
//!
//! A driver and a worker of tasks have one, an actor as many as calls run in it at a time.

mod logged;
mod ops;
mod reply;
mod values;
mod work;

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use hoplo_base::{
    ActorId, FunctionId, GroupId, Instant, JobId, ObjectId, ProcessId, TaskId, limits,
};
use hoplo_core::worker::Worker;
use hoplo_wire::node::ToNode;
use hoplo_wire::reply::{ReplyHeader, ReplyKind, Returned};
use hoplo_wire::{Failure, FailureKind, Location, Value};

use crate::cluster::{Cluster, Step};
use crate::workload::{Program, Role, program};
use reply::Reply;

pub struct Fiber {
    role: Role,
    seed: u64,
    depth: u8,
    program: Option<Program>,
    pc: usize,
    call: Option<Incoming>,
    /// Top-level arguments that lie in the store.
    args: VecDeque<(ObjectId, Option<Location>)>,
    /// Of arguments, which are read until the call has ended.
    views: Vec<u64>,
    refs: Vec<ObjectId>,
    pub handles: Vec<ActorId>,
    /// That it made, and that were created.
    pub groups: Vec<GroupId>,
    /// It was made, and is not created yet.
    pub awaits_group: Option<GroupId>,
    /// Streams, and how many items were taken.
    streams: Vec<(TaskId, u32)>,
    pub wait: Option<Wait>,
    /// Since when it waits for others.
    waits_since: Instant,
    /// Its wait lends the CPU.
    lends: bool,
    until: Instant,
    deadline: Option<Instant>,
    /// A request for room.
    asked_room: Option<u64>,
    failure: Option<Failure>,
    /// An argument is made again: the call goes back to its caller.
    not_begun: bool,
    /// It was told to stop.
    stopped: bool,
    built: Vec<Returned>,
    items: u32,
    /// Its call has ended, and this is to be written.
    reply: Option<Reply>,
    /// A question to the daemon that its present step waits for.
    pub request: Option<u64>,
    /// What it asked to be folded.
    pub reducing: Vec<ObjectId>,
    /// What many tasks are to return, which is to be reduced.
    pub gathering: Option<Vec<ObjectId>>,
    /// A reduce that goes on when these of its members are there again.
    pub mending: Option<(u64, Vec<ObjectId>)>,
    /// Where parts of those go, of which it asked for parts.
    pub assembling: Vec<u64>,
    /// What is to come of it, if all nodes that have some of these are to have it.
    pub reduced_for_all: Option<ObjectId>,
    /// A named actor that is not known to be its own.
    pub creates: Option<ActorId>,
    /// Of an actor with checkpoints: the call's frame and what it names, until the call is logged.
    to_log: Option<(Vec<u8>, Vec<ObjectId>)>,
    /// It was logged, and its answer is not noted yet.
    logged: bool,
    /// The call ran before, and its answer waits for the log.
    answered_again: bool,
}

/// A call that runs here.
#[derive(Clone, Copy, Debug)]
struct Incoming {
    caller: ProcessId,
    function: FunctionId,
    job: JobId,
    tag: u64,
    task: TaskId,
    attempt: u32,
    returns: u32,
    flags: u8,
    is_task: bool,
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
    /// Another thread's reply to the same caller.
    Turn(ProcessId),
    /// The home of an actor with checkpoints is to log its call.
    Logged,
}

impl Wait {
    /// For what others make: it lends the CPU. Asking the daemon is no such wait.
    fn is_for_others(&self) -> bool {
        match self {
            Self::Ready(_) | Self::Any(_) | Self::Item(..) | Self::Credit => true,
            Self::Room | Self::Function(_) | Self::Answer(_) | Self::Turn(_) | Self::Logged => {
                false
            }
        }
    }
}

pub enum Flow {
    Next,
    Sleep(Duration),
    Wait(Wait),
    /// The call, or the driver's program, has ended.
    Over,
    /// Nothing is left to do for it.
    Gone,
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
            views: Vec::new(),
            refs: Vec::new(),
            handles: Vec::new(),
            groups: Vec::new(),
            awaits_group: None,
            streams: Vec::new(),
            wait: None,
            waits_since: Instant::ZERO,
            lends: false,
            until: Instant::ZERO,
            deadline: None,
            asked_room: None,
            failure: None,
            not_begun: false,
            stopped: false,
            built: Vec::new(),
            items: 0,
            reply: None,
            request: None,
            reducing: Vec::new(),
            gathering: None,
            mending: None,
            assembling: Vec::new(),
            reduced_for_all: None,
            creates: None,
            to_log: None,
            logged: false,
            answered_again: false,
        }
    }

    pub fn driver(seed: u64) -> Self {
        Self::new(Role::Driver, seed, 0)
    }

    pub fn awaited(&self) -> Vec<ObjectId> {
        match &self.wait {
            Some(Wait::Ready(object)) => vec![*object],
            Some(Wait::Any(objects)) => objects.clone(),
            Some(
                Wait::Room
                | Wait::Item(..)
                | Wait::Credit
                | Wait::Function(_)
                | Wait::Answer(_)
                | Wait::Turn(_)
                | Wait::Logged,
            )
            | None => vec![],
        }
    }

    /// The call that runs here.
    pub fn task(&self) -> Option<TaskId> {
        self.call.map(|call| call.task)
    }

    /// A method keeps its place among the calls of its actor.
    fn gives_back(&self) -> bool {
        match self.role {
            Role::Task | Role::Stream | Role::Holder => self.call.is_some_and(|call| call.is_task),
            Role::Driver | Role::Method | Role::Constructor => false,
        }
    }

    /// What people may ask about.
    pub fn things(&self) -> Vec<ObjectId> {
        let handles = self.handles.iter().map(|actor| actor.handle());
        let task = self.task().map(|task| task.object(0));
        self.refs.iter().copied().chain(handles).chain(task).chain(self.awaited()).collect()
    }

    pub fn hold(&mut self, objects: Vec<ObjectId>) {
        for object in objects {
            if object.index == u32::MAX {
                self.handles.push(ActorId(object.task));
            } else {
                self.refs.push(object);
            }
        }
    }

    pub fn keeps(&mut self, object: ObjectId) {
        self.refs.push(object);
    }

    pub fn refs(&self) -> &[ObjectId] {
        &self.refs
    }

    fn pick(&self, pick: u64) -> Option<ObjectId> {
        let len = self.refs.len() as u64;
        (len > 0).then(|| self.refs[(pick % len) as usize])
    }

    fn handle(&self, pick: u64) -> Option<ActorId> {
        let len = self.handles.len() as u64;
        (len > 0).then(|| self.handles[(pick % len) as usize])
    }

    pub fn group(&self, pick: u64) -> Option<GroupId> {
        let len = self.groups.len() as u64;
        (len > 0).then(|| self.groups[(pick % len) as usize])
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
    /// Every thread of a process looks again, and takes work if it has none.
    pub fn goes(&mut self, id: ProcessId) {
        self.awake(id);
        let threads: Vec<u64> = self.client(id).fibers.keys().copied().collect();
        for thread in threads {
            self.runs_on(id, thread);
        }
        while let Some(thread) = self.finds_work(id) {
            self.runs_on(id, thread);
        }
        if self.client(id).alive {
            self.idles(id);
        }
    }

    fn runs_on(&mut self, id: ProcessId, thread: u64) {
        let now = self.now;
        if !self.client(id).alive {
            return;
        }
        let Some(mut fiber) = self.client(id).fibers.remove(&thread) else { return };
        if now < fiber.until {
            self.client(id).fibers.insert(thread, fiber);
            return;
        }
        // Who waits for the daemon's answer takes it first.
        if let Some(call) = fiber.call
            && fiber.failure.is_none()
            && fiber.request.is_none()
            && fiber.mending.is_none()
            && fiber.asked_room.is_none()
            && fiber.reply.is_none()
            && !fiber.logged
            && self.client(id).worker.is_cancelled(call.task)
        {
            self.stop_is_legitimate(call.task);
            let text = "it was told to stop";
            fiber.failure = Some(Failure::new(FailureKind::Cancelled, text));
            fiber.stopped = true;
            fiber.wait = None;
        }
        let mut flow = match fiber.reply {
            Some(_) => self.replies(id, thread, &mut fiber),
            None => self.advance(id, thread, &mut fiber),
        };
        if matches!(flow, Flow::Over) {
            flow = self.over(id, &mut fiber);
        }
        let waited_for_others = fiber.wait.take().is_some_and(|wait| wait.is_for_others());
        let lends_on = matches!(&flow, Flow::Wait(wait) if wait.is_for_others());
        if fiber.lends && !lends_on {
            fiber.lends = false;
            if self.client(id).worker.take_back() {
                self.say(id, ToNode::Unblocked);
            }
        }
        match flow {
            Flow::Next => self.sleep(id, &mut fiber, Duration::from_micros(5)),
            Flow::Sleep(time) => self.sleep(id, &mut fiber, time),
            Flow::Wait(wait) => {
                if !waited_for_others && wait.is_for_others() {
                    fiber.waits_since = now;
                    self.after(limits::BLOCKED_AFTER, Step::Goes(id));
                }
                self.may_lend(id, &mut fiber, &wait);
                fiber.wait = Some(wait);
                if let Some(deadline) = fiber.deadline {
                    self.at(deadline, Step::Goes(id));
                }
            }
            Flow::Over | Flow::Gone => {
                for view in std::mem::take(&mut fiber.views) {
                    let delay = self.rng.delay(Duration::from_millis(1));
                    self.after(delay, Step::Unviews(id, view));
                }
                self.client(id).worker.check();
                self.wake(id);
                self.arm(id);
                return;
            }
        }
        self.client(id).fibers.insert(thread, fiber);
        self.arm(id);
    }

    fn sleep(&mut self, id: ProcessId, fiber: &mut Fiber, time: Duration) {
        fiber.until = self.now + time;
        self.at(fiber.until, Step::Goes(id));
    }

    /// A long wait lends the CPU, and any wait does while a task of this process has no worker at all.
    fn may_lend(&mut self, id: ProcessId, fiber: &mut Fiber, wait: &Wait) {
        let waited = self.now.since(fiber.waits_since);
        let client = self.client(id);
        let starved = *wait != Wait::Credit && client.session.is_starved();
        let long =
            wait.is_for_others() && Worker::<()>::is_long(starved, waited, limits::BLOCKED_AFTER);
        if client.is_driver || fiber.lends || !long || !client.worker.lend() {
            return;
        }
        fiber.lends = true;
        self.say(id, ToNode::Blocked);
        if waited < limits::BLOCKED_AFTER {
            self.count("CPUs lent at once");
        }
    }

    // ---- running ----

    fn advance(&mut self, id: ProcessId, thread: u64, fiber: &mut Fiber) -> Flow {
        if let Some(call) = fiber.call
            && fiber.failure.is_none()
            && !self.has_function(id, call.function, call.job, call.task)
        {
            return Flow::Wait(Wait::Function(call.function));
        }
        if let Some((object, location)) = fiber.args.front().copied() {
            return self.argument(id, fiber, object, location);
        }
        if fiber.not_begun {
            return Flow::Over;
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
            self.logs(id, fiber);
        }
        let next = fiber.program.as_ref().expect("it is there").ops.get(fiber.pc).cloned();
        if let Some(op) = next
            && fiber.failure.is_none()
        {
            let flow = self.execute(id, thread, fiber, &op);
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
                fiber.views.push(self.client(id).next_view - 1);
                fiber.hold(contains);
                return Flow::Next;
            }
        }
        if fiber.failure.is_some() || fiber.not_begun {
            fiber.args.pop_front();
            self.drop_refs(id, [object]);
            return Flow::Next;
        }
        self.session(id, |session, _, effects| session.want(&[object], effects));
        // The count that came with it, or that was asked with, goes to the view.
        if let Some(Value::Stored(location)) = self.client(id).session.value(object).cloned() {
            fiber.args.front_mut().expect("it is there").1 = Some(location);
            return Flow::Next;
        }
        match self.read(id, object) {
            None if fiber.gives_back() && self.client(id).session.is_delayed(object) => {
                fiber.not_begun = true;
                Flow::Next
            }
            None => Flow::Wait(Wait::Ready(object)),
            Some(result) => {
                fiber.args.pop_front();
                match result {
                    Ok(contains) => fiber.hold(contains),
                    Err(()) => self.raises(fiber, "an argument failed"),
                }
                self.drop_refs(id, [object]);
                Flow::Next
            }
        }
    }
}

impl Cluster {
    /// The program that runs raises an exception of its own.
    fn raises(&mut self, fiber: &mut Fiber, text: &str) {
        if let Some(call) = fiber.call {
            self.books.facts.fails_by_itself(call.task, FailureKind::User);
        }
        fiber.failure = Some(Failure::user(text.as_bytes().into()));
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

fn ids(objects: &[ObjectId]) -> Vec<String> {
    objects.iter().map(ToString::to_string).collect()
}
