//! The session machine: everything a process knows as the owner of tasks and a holder of refs.
//!
//! One per process (driver or worker). It decides which call goes into whose ring, when a lease is
//! asked for or given back, what runs again after a crash, when an object is unreachable here, and what
//! the node daemon must know before somebody else does.
//!
//! ```text
//!   submit --> Waiting --refs ready--> Queued --lease--> Placed --reply--> (gone; its objects are Ready)
//!                 |                      ^  ^              |
//!                 |                      |  +--revoked-----+  (not started: costs no retry, but see SES-7)
//!                 |                      +-----retry-------+  (worker died, no room there, or a retryable exception)
//!                 +--a ref failed, cancelled, retries used up--> its objects are Ready(Failed)
//! ```
//! A method call waits in its actor's queue instead of a shape's, in submission order; `Limbo` is a call
//! whose actor's worker is gone and whose verdict (restart or dead) has not come yet.
//!
//! # Invariants
//! - SES-1: a lease's `in_flight` holds exactly the tasks that are `Placed` on it, in ring order.
//! - SES-2: an entry exists while its count is above zero or its task will still complete it.
//! - SES-3: every object named in a frame, a reply or a stored value was told to the daemon before
//!   (REF-1): `mention` precedes every `Place`, and notices are flushed by it.
//! - SES-4: a reply of an attempt that is not the current one changes nothing but gives back what it brought.
//! - SES-5: calls of one caller (driver, actor, task) to one actor are placed in the order of their submission. One that
//!   `may_be_overtaken` has its place in it when its arguments are there.
//! - SES-6: no lease is due before `next_deadline`. It may be too early (a tick for nothing finds out), since it
//!   is asked for at every call: there it only takes in what became due sooner.
//! - SES-7: no call waits for ever for workers that die before they take any: of those that lay there, one or all.
//!   After `WORKERS_UNTAKEN_MAX` of them in a row each one costs it a retry, as if it had begun.
//! - SES-8: no call is placed at an actor that this process killed before, nor at a worker that it ended so that the actor starts again, whatever is
//!   said of the actor meanwhile, and by whichever handle.
//! - SES-9: a stream and the run that stands for it, to make its lost items, have one number of retries left.
//!
//! # Budget
//! Of the client's (its module doc has the whole), this machine takes 950 instructions of a submit: 370 for the
//! two records, 380 to find the lease and tell the demand, 130 to place it; and 1,800 of a reply: 300 to copy
//! the value out of the frame, 150 for the lease, 220 to complete the object, 620 to end the task, 120 for the
//! timeline. A lookup in a map is 25 to 30: a path that looks up less is the one that got faster.
//!
//! The hot paths (`submit`, `on_reply`, `add_ref`, `drop_ref`) are methods that borrow their input; everything
//! rare is an `Event`.

mod actors;
mod adopt;
mod asked_back;
mod call;
mod delays;
mod explain;
mod failures;
mod frames;
mod leases;
mod lineage;
mod mentions;
mod near;
mod promises;
mod refs;
mod remake;
mod results;
mod room;
mod runs;
mod shapes;
mod spread;
mod streams;
mod tasks;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use hoplo_base::{
    ActorId, FunctionId, Instant, JobId, LeaseId, Map, NodeNumber, ObjectId, ProcessId, Set,
    TaskId, limits,
};
use hoplo_wire::node::{
    ActorState, Counters, GroupState, Lineage, Notice, Obituary, Shape, ToNode,
};
use hoplo_wire::{Failure, FailureKind, Location, Value};

pub use actors::CreateActor;
pub use asked_back::AskedBack;
pub use call::{Call, CallOptions, SubmitError};
pub use explain::TaskLine;
pub use frames::Frame;
pub use promises::PROMISED;
pub use refs::brings_tokens;
pub use streams::{StreamLook, StreamNext};

use actors::Actor;
use call::Stage;
use leases::Pace;
use lineage::Lineages;
use promises::Promises;
use refs::{Entry, State, Waiter};
use results::Origin;
use runs::Untold;
use shapes::{LeaseAt, Locality, ShapeState};
use tasks::Task;

/// What the daemon or the shell reports.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    LeaseGranted {
        lease: LeaseId,
        key: u32,
        worker: ProcessId,
        gpus: Vec<u32>,
    },
    LeaseRecall {
        lease: LeaseId,
    },
    LeaseIdleWanted {
        key: u32,
    },
    LeaseStuck {
        key: u32,
        reason: Option<String>,
        infeasible: bool,
    },
    LeasesComing {
        key: u32,
        wanted: u32,
        count: u32,
    },
    /// No worker can be made for this shape: what waits for it fails.
    LeaseFailed {
        key: u32,
        failure: Failure,
    },
    WorkerBlocked {
        worker: ProcessId,
    },
    /// The shell has drained its replies before; `unstarted`: calls that it never took.
    ProcessGone {
        process: ProcessId,
        obituary: Obituary,
        unstarted: Vec<u64>,
    },
    /// Frames that were taken back before the worker took them, and those it had taken.
    Revoked {
        worker: ProcessId,
        seqs: Vec<u64>,
        kept: Vec<u64>,
    },
    /// A call could not be written into its ring, and never will.
    NotPlaced {
        worker: ProcessId,
        seq: u64,
        failure: Failure,
    },
    Ready {
        object: ObjectId,
        value: Value,
        contains: Vec<ObjectId>,
    },
    /// It is on this node and cannot be read now: so are those told who wait for it, and no others.
    Unreadable {
        object: ObjectId,
        failure: Failure,
    },
    ActorState {
        actor: ActorId,
        state: ActorState,
    },
    /// The owner of these pending objects died, this process holds a ref: it is the owner now.
    Adopt {
        lineage: Box<Lineage>,
        objects: Vec<ObjectId>,
    },
    /// To a watch with a number from `PROMISED` on.
    GroupState {
        request: u64,
        state: GroupState,
    },
    /// No copy of these own results is left, and somebody uses them; `node` died with the last ones.
    Remake {
        objects: Vec<ObjectId>,
        node: Option<NodeNumber>,
        why: String,
    },
    /// Their bytes are awaited here, and are made again.
    Delayed {
        objects: Vec<ObjectId>,
    },
    /// Nobody can reach these own results any more, which were made at other nodes.
    LineageOver {
        objects: Vec<ObjectId>,
    },
    /// Asked by the user here, or by a process that borrows the ref.
    Cancel {
        task: TaskId,
        force: bool,
        recursive: bool,
    },
    /// The daemon is gone: everything that needs it fails.
    NodeDied {
        failure: Failure,
    },
    Tick,
}

/// What the shell is to do, in this order, under the same lock.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Write `SessionMachine::frame(seq)` into the call ring of this worker; if that cannot be, `Event::NotPlaced`.
    Place {
        worker: ProcessId,
        seq: u64,
    },
    /// Take these frames back if they are not taken yet; answer with `Event::Revoked`, for a worker of another node also later.
    Revoke {
        worker: ProcessId,
        seqs: Vec<u64>,
    },
    Node(ToNode),
    /// An object that only this process ever saw, in its own extent: free the state word and reuse range and
    /// slot. If the daemon is just spilling it: `SessionMachine::free_refused`.
    FreeStored {
        object: ObjectId,
        location: Location,
    },
    /// A callback that `watch` registered is due.
    Fire {
        watch: u64,
    },
    /// An actor whose creator waits for the daemon's answer died before the daemon heard of it: there will
    /// be none, and every call says why.
    CreationFailed {
        request: u64,
    },
    /// A line for the user.
    Warn {
        line: String,
    },
    /// Tables that were large are small: free memory may go back to the system, outside of the lock.
    ReturnMemory,
}

pub struct SessionMachine {
    me: ProcessId,
    job: JobId,
    next_seq: u64,
    /// Own tasks that are not finished, by `seq`.
    tasks: Map<u64, Task>,
    /// Every object that something in this process refers to, or that a task here will make.
    objects: Map<ObjectId, Entry>,
    shapes: Vec<ShapeState>,
    shape_keys: BTreeMap<Arc<Shape>, u32>,
    /// Near shapes, by the key of the shape and the node.
    near_keys: BTreeMap<(u32, NodeNumber), u32>,
    locality: Locality,
    lineages: Lineages,
    /// Where the lease of each worker is.
    workers: Map<ProcessId, LeaseAt>,
    paces: Map<FunctionId, Pace>,
    /// SES-6: no lease is due before.
    lease_look: Option<Instant>,
    /// Most objects went: when their memory goes back to the system.
    memory_look: Option<Instant>,
    /// When the daemon is told what has run.
    runs_look: Option<Instant>,
    /// The earlier one of both.
    seldom_look: Option<Instant>,
    /// The latest shape that was looked up: nearly always the next one's, too.
    shape_known: Option<(Arc<Shape>, u32)>,
    actors: BTreeMap<ActorId, Actor>,
    /// What this process has ended of actors of which it has no handle (any more), while nobody has said that it is over (SES-8).
    ended: BTreeMap<ActorId, actors::Ended>,
    promises: Promises,
    /// What actors lack to start, each with the one whose line said so: actors of a kind make one line.
    warned: BTreeMap<String, ActorId>,
    /// Not yet told to the daemon.
    notices: Vec<Notice>,
    /// Refs inside those, or more: some may have been taken out again.
    notices_refs: usize,
    /// When they go at the latest; of no meaning while there are none.
    notices_due: Instant,
    /// Borrowed entries of which the daemon does not know that we hold them.
    unreported: Vec<ObjectId>,
    unreported_max: usize,
    next_watch: u64,
    /// Results that this worker sealed and has not replied yet, by slot.
    results: Map<u32, Notice>,
    /// What came with the replies of each process that lives.
    tokens_of_replies: Map<ProcessId, u64>,
    /// How streams ended whose reader is not done with them.
    ended_streams: Map<u64, Option<Failure>>,
    /// Functions that this process has exported.
    exported: Set<FunctionId>,
    /// Reasons why replies must be drained though nobody waits: see `needs_progress`.
    reasons: u64,
    untold: Untold,
    counters: Counters,
    node_died: Option<Failure>,
    failures: u64,
    /// How often a value was told whose bytes may be at another node.
    far_values: u64,
    /// An actor's calls, from this number on.
    actor_from: Option<u64>,
    /// Scratch for the refs part of frames.
    scratch: Vec<u8>,
}

impl SessionMachine {
    pub fn new(me: ProcessId, job: JobId) -> Self {
        Self {
            me,
            job,
            next_seq: 1,
            tasks: Map::default(),
            objects: Map::default(),
            shapes: Vec::new(),
            shape_keys: BTreeMap::new(),
            near_keys: BTreeMap::new(),
            locality: Locality::Unneeded,
            lineages: Lineages::default(),
            workers: Map::default(),
            paces: Map::default(),
            lease_look: None,
            memory_look: None,
            runs_look: None,
            seldom_look: None,
            shape_known: None,
            actors: BTreeMap::new(),
            ended: BTreeMap::new(),
            promises: Promises::default(),
            warned: BTreeMap::new(),
            notices: Vec::new(),
            notices_refs: 0,
            notices_due: Instant::ZERO,
            unreported: Vec::new(),
            unreported_max: refs::UNREPORTED_MIN,
            next_watch: 1,
            results: Map::default(),
            tokens_of_replies: Map::default(),
            ended_streams: Map::default(),
            exported: Set::default(),
            reasons: 0,
            untold: Untold::default(),
            counters: Counters::default(),
            node_died: None,
            failures: 0,
            far_values: 0,
            actor_from: None,
            scratch: Vec::new(),
        }
    }

    pub fn handle(&mut self, now: Instant, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::LeaseGranted { lease, key, worker, gpus } => {
                self.lease_granted(now, lease, key, worker, gpus, effects);
            }
            Event::LeaseRecall { lease } => self.lease_recalled(now, lease, effects),
            Event::LeaseIdleWanted { key } => self.lease_idle_wanted(now, key, effects),
            Event::LeaseStuck { key, reason, infeasible } => {
                self.lease_stuck(key, reason, infeasible, effects);
            }
            Event::LeasesComing { key, wanted, count } => {
                self.leases_coming(now, key, wanted, count, effects);
            }
            Event::LeaseFailed { key, failure } => self.lease_failed(now, key, &failure, effects),
            Event::WorkerBlocked { worker } => self.worker_blocked(now, worker, effects),
            Event::ProcessGone { process, obituary, unstarted } => {
                self.replies_ended(now, process, effects);
                self.process_gone(now, process, &obituary, &unstarted, effects);
            }
            Event::Revoked { worker, seqs, kept } => {
                self.revoked(now, worker, &seqs, &kept, effects);
            }
            Event::NotPlaced { worker, seq, failure } => {
                self.not_placed(now, worker, seq, &failure, effects);
            }
            Event::Ready { object, value, contains } => {
                self.object_ready(now, object, value, contains, effects);
            }
            Event::Unreadable { object, failure } => {
                self.object_unreadable(now, object, failure, effects);
            }
            Event::ActorState { actor, state } => self.actor_state(now, actor, state, effects),
            Event::Adopt { lineage, objects } => self.adopt(now, &lineage, &objects, effects),
            Event::Remake { objects, node, why } => {
                self.remake(now, &objects, node, why, effects);
            }
            Event::Delayed { objects } => self.delayed(&objects),
            Event::LineageOver { objects } => self.lineage_over(now, &objects, effects),
            Event::GroupState { request, state } => {
                self.group_state(now, request, state, effects);
            }
            Event::Cancel { task, force, recursive } => {
                self.cancel(now, task, force, recursive, effects);
            }
            Event::NodeDied { failure } => self.node_died(now, failure, effects),
            Event::Tick => self.tick(now, effects),
        }
    }

    /// When `Event::Tick` is due at the latest.
    pub fn next_deadline(&self) -> Option<Instant> {
        let notices = (!self.notices.is_empty()).then_some(self.notices_due);
        let soon = match (notices, self.lease_look) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        match self.seldom_look {
            None => soon,
            Some(look) => Some(soon.map_or(look, |soon| soon.min(look))),
        }
    }

    /// Whether replies must be drained even though nobody waits for them.
    pub fn needs_progress(&self) -> bool {
        self.reasons > 0 && (!self.workers.is_empty() || !self.actors.is_empty())
    }

    /// Whether some of its tasks have no worker at all: none of them begins before the daemon grants one.
    pub fn is_starved(&self) -> bool {
        self.shapes.iter().any(|state| state.leases.is_empty() && !state.queue.is_empty())
    }

    /// Unsent notices go out now.
    pub fn flush(&mut self, effects: &mut Vec<Effect>) {
        self.notices_refs = 0;
        if !self.notices.is_empty() {
            let batch = std::mem::take(&mut self.notices);
            effects.push(Effect::Node(ToNode::Notices(batch)));
        }
    }

    /// Whether this function is yet to be exported by this process; asked once, true once.
    pub fn exports(&mut self, function: FunctionId) -> bool {
        self.exported.insert(function)
    }

    pub fn has_exported(&self, function: FunctionId) -> bool {
        self.exported.contains(&function)
    }

    /// The refs inside an exported function, before it goes to the daemon, which holds them.
    pub fn mention_exported(
        &mut self,
        now: Instant,
        contains: &[ObjectId],
        effects: &mut Vec<Effect>,
    ) {
        self.mention_all(now, contains, effects);
        self.flush(effects);
    }

    /// Tasks and calls of this process that are not finished.
    pub fn unfinished(&self) -> usize {
        self.tasks.len()
    }

    /// Everything that this process has a reference to, or uses, in no order.
    pub fn known_objects(&self) -> impl Iterator<Item = ObjectId> {
        self.objects.keys().copied()
    }

    /// What was counted since this was asked last.
    pub fn take_counters(&mut self) -> Counters {
        std::mem::take(&mut self.counters)
    }

    pub fn me(&self) -> ProcessId {
        self.me
    }

    /// Asserts the invariants of the module doc that can be seen from inside.
    pub fn check(&self) {
        assert_eq!(self.all_leases().count(), self.workers.len(), "SES-1: one lease a worker");
        for lease in self.all_leases() {
            let found = self.lease_of(lease.worker).map(|lease| lease.id);
            assert_eq!(found, Some(lease.id), "SES-1: one lease a worker");
            for seq in &lease.in_flight {
                let task = self.tasks.get(seq).expect("SES-1: what is in flight exists");
                assert!(
                    matches!(task.stage, Stage::Placed { worker } if worker == lease.worker),
                    "SES-1: {seq} is {:?}",
                    task.stage
                );
            }
        }
        self.check_near();
        self.check_lineages();
        let mut keys: Vec<_> = self.objects.keys().copied().collect();
        keys.sort_unstable();
        for object in keys {
            let entry = &self.objects[&object];
            let coming = self.is_coming(object);
            assert!(entry.count > 0 || coming, "SES-2: {object} is unreachable and kept");
        }
        if let Some(due) = self.lease_deadline() {
            assert!(
                self.lease_look.is_some_and(|look| look <= due),
                "SES-6: a lease is due {due:?} (of near queues {:?}), and is looked at {:?}",
                self.patience_deadline(),
                self.lease_look
            );
        }
        let mut reasons = self.all_leases().filter(|lease| lease.is_reason()).count() as u64;
        reasons += self.actors.values().filter(|actor| actor.abandoned).count() as u64;
        for task in self.tasks.values() {
            reasons += u64::from(task.is_reason());
        }
        for entry in self.objects.values() {
            let is_watch = |waiter: &&Waiter| matches!(waiter, Waiter::Watch(_));
            reasons += entry.waiters.iter().filter(is_watch).count() as u64;
        }
        for task in self.tasks.values() {
            reasons += task.stream.as_ref().map_or(0, |stream| stream.watches.len() as u64);
        }
        assert_eq!(reasons, self.reasons, "reasons for progress are counted");
    }

    fn tick(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if !self.notices.is_empty() && now >= self.notices_due {
            self.flush(effects);
        }
        self.tick_near(now, effects);
        self.tick_leases(now, effects);
        if self.seldom_look.is_some_and(|look| look <= now) {
            if self.memory_look.take_if(|look| *look <= now).is_some() {
                effects.push(Effect::ReturnMemory);
            }
            if self.runs_look.is_some_and(|look| look <= now) {
                self.tell_runs(now, effects);
            }
            self.look_seldom();
        }
    }

    fn notice(&mut self, now: Instant, notice: Notice, effects: &mut Vec<Effect>) {
        let refs = notice.refs();
        if self.notices_refs + refs > limits::MESSAGE_REFS_MAX {
            self.flush(effects);
        }
        let due = match notice {
            // Others may wait for it: it goes with what else comes at the same time.
            Notice::Fulfilled { .. } => now,
            _ => now + NOTICES_DELAY,
        };
        if self.notices.is_empty() || due < self.notices_due {
            self.notices_due = due;
        }
        self.notices_refs += refs;
        self.notices.push(notice);
        if self.notices.len() >= limits::NOTICES_BATCH {
            self.flush(effects);
        }
    }

    fn next_task(&mut self) -> TaskId {
        let seq = self.next_seq;
        self.next_seq += 1;
        TaskId { owner: self.me, seq }
    }

    fn node_died(&mut self, now: Instant, failure: Failure, effects: &mut Vec<Effect>) {
        self.node_died = Some(failure.clone());
        // First nothing can be placed any more, whatever the failures set free.
        self.reasons -= self.all_leases().filter(|lease| lease.is_reason()).count() as u64;
        for state in &mut self.shapes {
            state.queue.clear();
            state.leases.clear();
            state.asked = 0;
            state.spread = None;
        }
        self.lease_look = None;
        self.memory_look = None;
        self.runs_look = None;
        self.seldom_look = None;
        self.workers.clear();
        self.forget_promises();
        for actor in self.actors.values_mut() {
            actor.give_up(failure.clone());
        }
        let mut seqs: Vec<u64> = self.tasks.keys().copied().collect();
        seqs.sort_unstable();
        for seq in seqs {
            if self.tasks.contains_key(&seq) {
                self.set_stage(seq, Stage::Limbo);
                self.fail_task(now, seq, &failure, effects);
            }
        }
        let mut waiting: Vec<ObjectId> = self
            .objects
            .iter()
            .filter(|(_, entry)| !matches!(entry.state, State::Ready(_)))
            .map(|(object, _)| *object)
            .collect();
        waiting.sort_unstable();
        for object in waiting {
            let value = Value::Failed(failure.clone());
            if !self.is_ready(object) {
                self.complete(now, object, value, vec![], Origin::Own, effects);
            }
        }
        self.forget_lineages(now, effects);
        self.notices.clear();
        self.notices_refs = 0;
    }
}

/// How long a notice that nobody waits for may wait for company.
const NOTICES_DELAY: std::time::Duration = std::time::Duration::from_millis(20);

/// How long after most objects went their memory goes back to the system.
const MEMORY_DELAY: std::time::Duration = std::time::Duration::from_secs(1);

fn cancelled(name: &str, task: TaskId) -> Failure {
    Failure::new(FailureKind::Cancelled, format!("{task} of {name} was cancelled"))
}
