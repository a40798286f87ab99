//! The worker's side of calls: whose call is next, when the CPU is lent, when the process may leave.
//!
//! One per process. The shell has the rings; it keeps what it needs for a caller (`P`) in here, so that callers
//! and their turns are one list.
//!
//! ```text
//!   taking --told to leave--> emptying --rings empty, nothing runs--\
//!      \----retires---------> finishing --nothing runs---------------> waiting --nothing unfinished--> gone
//!   (emptying takes what lies in its rings, finishing takes nothing, waiting lends the CPU for what it submitted)
//!
//!   CPU: held --a wait lends--> lent --the last wait is over--> held
//! ```
//!
//! # Invariants
//! - WORK-1: callers take turns: after a call of one, each other that has a call is served before it is again.
//! - WORK-2: orders of the daemon (an actor's constructor) come before calls.
//! - WORK-3: `busy` counts what was taken and has not ended; an actor's constructor is among it.
//! - WORK-4: while a wait lends, the daemon was told `Blocked` and not yet `Unblocked`; `Unblocked` is said when the
//!   last of these waits is over, and only then.
//! - WORK-5: it is gone only when nothing it took runs and nothing it submitted is unfinished. Who retires takes
//!   nothing any more; who is told to leave takes what lies in its rings.
//! - WORK-6: what a reader has taken of a stream never shrinks; nothing is known of a call that has ended.
//! - WORK-7: what a call names is known here from when it is taken until it ends. Its caller holds that; when the caller dies, this process
//!   holds it from then on (REF-2).
//!
//! The hot paths (`take`, `caller`, `ended`) borrow, and allocate nothing.

pub mod journal;
mod leaving;
mod lending;
mod replies;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use hoplo_base::{Map, ObjectId, ProcessId, Set, TaskId};
use hoplo_wire::call::{CALL_FLAGS_AT, CALL_NAMES, named_in, task_of};
use hoplo_wire::node::{ActorSpec, Replay};

pub use journal::Journal;
pub use leaving::Leave;
pub use replies::cuts;

use leaving::Leaving;
use lending::Waits;

pub struct Worker<P> {
    /// Who is served next comes first.
    callers: Vec<Caller<P>>,
    orders: VecDeque<BecomeActor>,
    /// WORK-3.
    busy: u64,
    /// WORK-7: calls that name something.
    naming: Vec<Naming>,
    is_actor: bool,
    leaving: Option<Leaving>,
    waits: Waits,
    cancelled: Set<TaskId>,
    /// What readers have taken of the streams that are produced here.
    consumed: Map<TaskId, u64>,
    /// Of an actor with checkpoints.
    pub journal: Option<Box<Journal>>,
    /// The highest index that `CallsLogged` brought.
    logged: u64,
}

struct Caller<P> {
    process: ProcessId,
    port: P,
}

struct Naming {
    caller: ProcessId,
    task: TaskId,
    named: Vec<ObjectId>,
    /// The caller is dead, and this process holds them.
    held: bool,
}

/// The daemon wants this process to be an actor.
pub struct BecomeActor {
    pub spec: Box<ActorSpec>,
    pub incarnation: u32,
    pub gpus: Vec<u32>,
    /// Of one with checkpoints.
    pub replay: Option<Box<Replay>>,
}

/// What lies in a caller's ring.
pub enum Found<C> {
    Call(C),
    Nothing,
    /// It is not served any more.
    Nonsense,
}

/// What the main thread does next.
pub enum Next<C> {
    BecomeActor(BecomeActor),
    Call(C),
}

/// What a caller that is gone leaves.
#[derive(Debug, PartialEq)]
pub struct Left<P> {
    pub port: Option<P>,
    /// What this process holds from now on, once for each time that it is named.
    pub named: Vec<ObjectId>,
}

/// Work, and whether the daemon is to be told `Unblocked` first: it had lent the CPU to be gone soon.
pub struct Taken<C> {
    pub next: Next<C>,
    pub takes_back: bool,
}

impl<P> Default for Worker<P> {
    fn default() -> Self {
        Self {
            callers: Vec::new(),
            orders: VecDeque::new(),
            busy: 0,
            naming: Vec::new(),
            is_actor: false,
            leaving: None,
            waits: Waits::default(),
            cancelled: Set::default(),
            consumed: Map::default(),
            journal: None,
            logged: 0,
        }
    }
}

impl<P> Worker<P> {
    pub fn connected(&mut self, process: ProcessId, port: P) {
        self.callers.push(Caller { process, port });
    }

    /// The caller is gone: what it had queued is dropped. What its calls name that go on is held here from now on (WORK-7).
    pub fn disconnected(&mut self, process: ProcessId) -> Left<P> {
        if let Some(journal) = &mut self.journal {
            journal.caller_gone(process);
        }
        let mut named = Vec::new();
        for call in self.naming.iter_mut().filter(|call| call.caller == process && !call.held) {
            call.held = true;
            named.extend_from_slice(&call.named);
        }
        let at = self.callers.iter().position(|caller| caller.process == process);
        Left { port: at.map(|at| self.callers.remove(at).port), named }
    }

    /// Of an actor with checkpoints: it begins.
    pub fn begins_journal(&mut self, mut journal: Journal) {
        journal.logged(self.logged);
        self.journal = Some(Box::new(journal));
    }

    /// `CallsLogged`: it may come before the journal begins.
    pub fn logged(&mut self, upto: u64) {
        self.logged = self.logged.max(upto);
        if let Some(journal) = &mut self.journal {
            journal.logged(upto);
        }
    }

    pub fn ordered(&mut self, order: BecomeActor) {
        self.orders.push_back(order);
    }

    /// A task that runs or waits here was cancelled.
    pub fn cancelled(&mut self, task: TaskId) {
        self.cancelled.insert(task);
    }

    /// The reader of a stream has taken so many items.
    pub fn consumed(&mut self, task: TaskId, count: u64) {
        let seen = self.consumed.entry(task).or_insert(0);
        *seen = count.max(*seen); // WORK-6
    }

    /// What is to be done next. `look` takes the next call out of a caller's ring.
    #[inline]
    pub fn take<C>(
        &mut self,
        mut look: impl FnMut(ProcessId, &mut P) -> Found<C>,
    ) -> Option<Taken<C>> {
        if !self.orders.is_empty() {
            return self.take_order();
        }
        if self.leaving.as_ref().is_some_and(|leaving| leaving.retired) {
            return None; // its callers take back what they queued here
        }
        for at in 0..self.callers.len() {
            let caller = &mut self.callers[at];
            match look(caller.process, &mut caller.port) {
                Found::Call(call) => {
                    self.callers[at..].rotate_left(1); // WORK-1
                    self.busy += 1;
                    let takes_back = self.leaves_no_more();
                    return Some(Taken { next: Next::Call(call), takes_back });
                }
                Found::Nothing => {}
                Found::Nonsense => {
                    self.callers.remove(at);
                    break;
                }
            }
        }
        None
    }

    #[cold]
    fn take_order<C>(&mut self) -> Option<Taken<C>> {
        let order = self.orders.pop_front()?;
        self.is_actor = true;
        self.busy += 1; // with its constructor
        let takes_back = self.leaves_no_more();
        Some(Taken { next: Next::BecomeActor(order), takes_back })
    }

    /// Of each call that was taken, before anything else happens (WORK-7). What a frame that nobody can read names is not known.
    #[inline]
    pub fn took(&mut self, caller: ProcessId, frame: &[u8]) {
        if frame.get(CALL_FLAGS_AT).is_some_and(|flags| flags & CALL_NAMES != 0) {
            self.names(caller, frame);
        }
    }

    #[cold]
    fn names(&mut self, caller: ProcessId, frame: &[u8]) {
        if let (Ok(task), Ok(named)) = (task_of(frame), named_in(frame)) {
            self.naming.push(Naming { caller, task, named, held: false });
        }
    }

    /// A call was replied to, or the constructor has run. What it names, and this process held for a dead caller, is let go.
    #[inline]
    #[must_use]
    pub fn ended(&mut self, caller: ProcessId, task: TaskId) -> Vec<ObjectId> {
        assert!(self.busy > 0, "WORK-3: {task} ends and was never taken");
        self.busy -= 1;
        let is_it = |call: &Naming| (call.caller, call.task) == (caller, task);
        let ended = self.naming.iter().position(is_it).map(|at| self.naming.swap_remove(at));
        if !self.cancelled.is_empty() {
            self.cancelled.remove(&task);
        }
        if !self.consumed.is_empty() {
            self.consumed.remove(&task);
        }
        ended.filter(|call| call.held).map_or(Vec::new(), |call| call.named)
    }

    #[inline]
    pub fn caller(&self, process: ProcessId) -> Option<&P> {
        self.callers.iter().find(|caller| caller.process == process).map(|caller| &caller.port)
    }

    pub fn is_cancelled(&self, task: TaskId) -> bool {
        self.cancelled.contains(&task)
    }

    /// Calls that were taken and have not ended.
    pub fn busy(&self) -> u64 {
        self.busy
    }

    /// Asserts the invariants of the module doc that can be seen from inside.
    pub fn check(&self) {
        let mut known: Vec<ProcessId> = self.callers.iter().map(|caller| caller.process).collect();
        known.sort_unstable();
        assert!(known.is_sorted_by(|one, next| one < next), "WORK-1: one turn a caller: {known:?}");
        self.waits.check();
    }
}
