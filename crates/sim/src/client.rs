//! A process: its session machine, and a shell that does with it what the real one does.

mod effects;
mod heard;
mod reading;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use hoplo_base::{ActorId, Instant, JobId, ObjectId, ProcessId, TaskId};
use hoplo_core::session::{Event, SessionMachine};
use hoplo_core::worker::Worker;
use hoplo_wire::node::{Replay, ToClient, ToNode};
use hoplo_wire::{FailureKind, Location};

use crate::asks::{Asked, Asks};
use crate::cluster::{Cluster, Step};
use crate::fiber::Fiber;
use crate::memory::Extents;
use crate::network::Outbound;

/// What the daemon said to a process that wanted room.
#[derive(Clone, Copy, Debug)]
pub enum Answered {
    Extent,
    /// For one object, in the spill file.
    File {
        offset: u64,
        slot: u32,
    },
    Denied(FailureKind),
}

pub struct Client {
    pub id: ProcessId,
    pub job: JobId,
    pub is_driver: bool,
    /// It runs our code.
    pub alive: bool,
    /// A driver whose program is over.
    pub finished: bool,
    pub session: SessionMachine,
    /// Written to the daemon and not read.
    pub up: VecDeque<ToNode>,
    pub down: VecDeque<ToClient>,
    pub extents: Extents,
    pub outbound: BTreeMap<ProcessId, Outbound>,
    /// What waits in the background, by watch.
    pub watches: BTreeMap<u64, ObjectId>,
    pub views: BTreeMap<u64, (ObjectId, Location)>,
    pub next_view: u64,
    /// What its threads do: one, or several in an actor with concurrent calls.
    pub fibers: BTreeMap<u64, Fiber>,
    pub next_fiber: u64,
    pub worker: Worker<()>,
    pub actor: Option<Instance>,
    /// Which thread is about to write a reply that brings tokens, by caller.
    pub replying: BTreeMap<ProcessId, u64>,
    pub asks: Asks,
    /// Of the daemon, as people do.
    pub asked: Asked,
    /// What it was asked and answers later, by round.
    pub inspections: BTreeMap<u64, ToClient>,
    /// Answers to requests for room.
    pub rooms: BTreeMap<u64, Answered>,
    woken: bool,
    draining: bool,
    tick_at: Option<Instant>,
}

/// What an actor keeps.
pub struct Instance {
    pub actor: ActorId,
    pub kept: Vec<ObjectId>,
    pub constructed: bool,
    /// Calls that run at a time.
    pub concurrency: usize,
    /// Of one with checkpoints: what it is to become, until its constructor has run.
    pub replay: Option<Box<Replay>>,
    /// Of one with checkpoints: its state, the calls that took effect, in their order.
    pub ledger: Option<Vec<TaskId>>,
}

impl Client {
    fn new(id: ProcessId, job: JobId, is_driver: bool) -> Self {
        Self {
            id,
            job,
            is_driver,
            alive: true,
            finished: false,
            session: SessionMachine::new(id, job),
            up: VecDeque::new(),
            down: VecDeque::new(),
            extents: Extents::default(),
            outbound: BTreeMap::new(),
            watches: BTreeMap::new(),
            views: BTreeMap::new(),
            next_view: 0,
            fibers: BTreeMap::new(),
            next_fiber: 0,
            worker: Worker::default(),
            actor: None,
            replying: BTreeMap::new(),
            asks: Asks::default(),
            asked: Asked::default(),
            inspections: BTreeMap::new(),
            rooms: BTreeMap::new(),
            woken: false,
            draining: false,
            tick_at: None,
        }
    }

    pub fn driver(id: ProcessId, job: JobId, program: u64) -> Self {
        let mut client = Self::new(id, job, true);
        client.fibers.insert(0, Fiber::driver(program));
        client
    }

    pub fn worker(id: ProcessId, job: JobId) -> Self {
        Self::new(id, job, false)
    }

    pub fn is_waiting(&self) -> bool {
        self.fibers.values().any(|fiber| fiber.wait.is_some())
    }

    fn must_drain(&self) -> bool {
        self.session.needs_progress()
            || self.is_waiting()
            || (self.worker.is_leaving() && self.session.unfinished() > 0)
    }

    pub fn whats_up(&self) -> String {
        let mut text = format!(
            "{}{}: up {}, down {}\n",
            self.id,
            if self.worker.is_leaving() { " (leaving)" } else { "" },
            self.up.len(),
            self.down.len()
        );
        for fiber in self.fibers.values() {
            text += &format!("  runs {fiber}\n");
            for object in fiber.awaited() {
                text += &format!("    {object}: {}\n", self.session.explain(object));
            }
        }
        for line in self.session.task_lines(20) {
            text += &format!("  {} {} {}: {}\n", line.task, line.stage, line.attempt, line.reason);
        }
        text
    }
}

impl Cluster {
    pub fn client(&mut self, id: ProcessId) -> &mut Client {
        self.clients.get_mut(&id).expect("processes are never forgotten")
    }

    pub fn drains(&mut self, id: ProcessId) {
        self.client(id).draining = false;
        if self.client(id).alive && self.client(id).must_drain() {
            self.drain(id);
            self.wake(id);
        }
    }

    pub fn ticks(&mut self, id: ProcessId) {
        let now = self.now;
        let client = self.client(id);
        client.tick_at = None;
        if !client.alive {
            return;
        }
        if client.worker.callbacks_lend(now, client.watches.len() as u64) {
            self.count("CPUs lent by callbacks");
            self.say(id, ToNode::Blocked);
        }
        let due = self.client(id).session.next_deadline().is_some_and(|at| at <= now);
        if due {
            self.session(id, |session, now, effects| session.handle(now, Event::Tick, effects));
        } else {
            self.arm(id);
        }
    }

    /// Threads and timers that the state of the session asks for.
    pub fn arm(&mut self, id: ProcessId) {
        let client = self.client(id);
        if !client.alive {
            return;
        }
        if client.must_drain() && !client.draining {
            let range = (id, ProcessId(0))..=(id, ProcessId(u64::MAX));
            let any =
                self.here.channels.range(range).any(|(_, channel)| !channel.replies.is_empty());
            if any {
                self.client(id).draining = true;
                let delay = self.rng.delay(Duration::from_micros(500));
                self.after(delay, Step::Drains(id));
            }
        }
        let client = self.client(id);
        let timers = [client.session.next_deadline(), client.worker.lends_at()];
        if let Some(at) = timers.into_iter().flatten().min()
            && client.tick_at.is_none_or(|set| at < set)
        {
            client.tick_at = Some(at);
            let late = self.rng.delay(Duration::from_micros(100));
            self.at(at + late, Step::Ticks(id));
        }
    }

    /// The main thread looks again.
    pub fn wake(&mut self, id: ProcessId) {
        let client = self.client(id);
        if client.alive && !client.woken {
            client.woken = true;
            let delay = self.rng.delay(Duration::from_micros(100));
            self.after(delay, Step::Goes(id));
        }
    }

    pub fn awake(&mut self, id: ProcessId) {
        self.client(id).woken = false;
    }
}
