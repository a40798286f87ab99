//! The daemon's loop: reads what is there, lets the machines decide, carries out what they say.
//!
//! ```text
//!   epoll --> read, decode --> event --> machine --> effects --> messages, forks, kills, files
//!     ^                           ^                     |
//!     |                           +--- queue <----------+  (effects for another machine)
//!     +--- flush, timers, sweep
//! ```
//! One thread decides. Machines speak to each other through a queue of events (`Work`), so every
//! machine sees them in the order in which they were caused.
//!
//! # Sweeps (REF-5)
//! A machine that wants one, or a question about something unknown, waits for the end of the current
//! batch. Then one `epoll_wait` without waiting names every socket in which something lies, each is
//! read until it would block, all of it is handled, and only then the sweep is reported and the
//! questions are asked again.
//!
//! # Invariants
//! - NODE-1: a process's slot is used again only after its pins were wiped, and they are wiped only
//!   when the process is dead (or, a driver's, has closed its connection).
//! - NODE-2: when nothing happens the loop sleeps in `epoll_wait` without a timeout.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use hoplo_base::{FunctionId, Instant, JobId, NodeId, ProcessId, ResourceError};
use hoplo_core::actors::{ActorTable, life};
use hoplo_core::control::NodeEntry;
use hoplo_core::objects::{self, ObjectDirectory};
use hoplo_core::sched::{LocalScheduler, WorkerPool, local, workers};
use hoplo_folders::{Base, FolderError, HeadError, Session, SessionDir};
use hoplo_wire::node::{Counters, Obituary};

use crate::cage::Cages;
use crate::clients::{Connection, Kind, Process};
use crate::control::{Control, Escaped};
use crate::jobs::Job;
use crate::journal;
use crate::memory::MemoryWatch;
use crate::options::Options;
use crate::poll::{Poller, Ready, Source};
use crate::query::Queries;
use crate::store::{Store, StoreError};
use crate::zygote::Zygote;

/// Bytes that one connection may bring before others get their turn.
const READ_BYTES_MAX: usize = 1 << 20;

/// A process that was asked to exit has so long before it is killed.
pub(crate) const EXIT_GRACE: Duration = Duration::from_millis(200);

/// An idle worker that was asked to exit runs its exit handlers meanwhile.
pub(crate) const RETIRE_GRACE: Duration = Duration::from_secs(5);

/// The zygote tells a worker's exit status within this time after its end was seen.
pub(crate) const STATUS_PATIENCE: Duration = Duration::from_millis(100);

/// A worker that closed its connection and does not end is killed after this time.
pub(crate) const HANGUP_GRACE: Duration = Duration::from_secs(1);

/// Obituaries that are kept for those who ask too late.
pub(crate) const GRAVES_MAX: usize = 1024;

#[derive(Debug)]
pub struct Daemon {
    pub(crate) now: Instant,
    pub(crate) node: NodeId,
    /// 24 random bits.
    pub(crate) boot: u32,
    pub(crate) session: SessionDir,
    pub(crate) poller: Poller,
    pub(crate) listener: OwnedFd,
    pub(crate) signals: Option<UnixStream>,
    pub(crate) scratch: Vec<u8>,

    pub(crate) connections: BTreeMap<u64, Connection>,
    pub(crate) next_connection: u64,
    /// Connections with something to send.
    pub(crate) dirty: BTreeSet<u64>,
    pub(crate) processes: BTreeMap<ProcessId, Process>,
    pub(crate) slots: Slots,
    pub(crate) next_process: u32,
    pub(crate) graves: VecDeque<(ProcessId, Obituary)>,
    pub(crate) jobs: BTreeMap<JobId, Job>,
    /// The daemon stops with this connection, of the driver that started it.
    pub(crate) master: Option<u64>,

    pub(crate) scheduler: LocalScheduler,
    pub(crate) pool: WorkerPool,
    pub(crate) actors: ActorTable,
    pub(crate) objects: ObjectDirectory,
    pub(crate) control: Control,
    /// What it refused last, which is in the log.
    pub(crate) refused: Option<String>,
    pub(crate) escaped: Escaped,
    /// Events of this life.
    pub(crate) events: u64,
    /// The last job of an earlier daemon.
    pub(crate) jobs_before: u32,
    pub(crate) queue: VecDeque<Work>,
    /// What is done after the next sweep.
    pub(crate) after_sweep: Vec<Deferred>,
    pub(crate) sweep_asked: Option<u64>,

    pub(crate) zygote: Zygote,
    /// Starting workers, by the pool's attempt.
    pub(crate) attempts: BTreeMap<u64, ProcessId>,
    pub(crate) store: Store,
    pub(crate) memory: MemoryWatch,
    pub(crate) cages: Cages,
    pub(crate) queries: Queries,
    pub(crate) counters: Counters,
    /// Connections that were dropped for what they sent.
    pub(crate) violations: u64,
    pub(crate) timers: BTreeSet<(Instant, Timer)>,
    pub(crate) stopping: bool,
    pub(crate) stopped: bool,
    /// The control store is for the next head to go on with.
    pub(crate) stays: bool,
}

/// What one machine has for another, or for itself.
#[derive(Debug)]
pub(crate) enum Work {
    Scheduler(local::Event),
    Pool(workers::Event),
    Actors(life::Event),
    Objects(objects::Event),
}

/// A question about something that may lie unread in another socket.
#[derive(Debug)]
pub(crate) enum Deferred {
    Actors(life::Event),
    Fetch { process: ProcessId, job: JobId, function: FunctionId },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// Its time to exit by itself is over.
    Kill(ProcessId),
    /// Its exit status did not come.
    Bury(ProcessId),
    /// What its workers printed is to be sent.
    Output(JobId),
    Memory,
    /// Results that were shared before they were there.
    Escaped,
    Query(u64),
    /// Those that are left are killed, and the daemon ends.
    Stop,
}

/// Places in the metadata segment. A free one is used again as late as possible.
#[derive(Debug)]
pub(crate) struct Slots {
    owners: Vec<Option<ProcessId>>,
    /// Given back, longest ago first.
    free: VecDeque<u16>,
    /// The first that was never taken.
    fresh: u16,
    taken: Vec<u16>,
}

/// So many slots rest before one is taken again: who still rings a dead process's bell wakes nobody new.
/// A slot that was never taken costs a page of the segment, so no more rest than that.
const RESTING_SLOTS: usize = 64;

/// The daemon could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The session directory, socket or another system resource could not be made.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// There is no folder that is safe to use.
    #[error("{0}")]
    Folder(#[from] FolderError),
    /// Somebody else is the head.
    #[error("{0}")]
    Head(#[from] HeadError),
    /// A resource amount on the command line cannot be.
    #[error("{0}")]
    Resource(#[from] ResourceError),
    /// The object store's memory could not be mapped.
    #[error("{0}")]
    Store(String),
    /// The control store of an earlier daemon cannot be read.
    #[error("{0}")]
    Control(String),
}

impl From<StoreError> for StartError {
    fn from(error: StoreError) -> Self {
        StartError::Store(error.to_string())
    }
}

impl Daemon {
    /// Everything is made, and the socket listens.
    pub fn new(options: Options) -> Result<Self, StartError> {
        let resources = options.node_resources()?;
        let base = match &options.session_dir {
            Some(_) if !options.head => options.base.find().unwrap_or(None),
            Some(_) | None => Some(options.base.make()?),
        };
        base.iter().for_each(Base::sweep);
        let head = base.as_ref().filter(|_| options.head).map(Base::claim_head).transpose()?;
        let left = base.as_ref().filter(|_| options.head).and_then(Base::left);
        let left = left.as_ref().map(Session::path);
        let session = match (options.session_dir.as_deref().or(left), base) {
            (Some(path), base) => SessionDir::at(path, base)?,
            (None, base) => SessionDir::create(base.expect("a new session has a base"))?,
        };
        let control = Control::open(&session, options.head)?;
        let poller = Poller::new()?;
        let listener = session.listen()?;
        poller.add(&listener, Source::Listener)?;
        let config = object_config(options.object_store_bytes());
        let store = Store::new(config.arena_bytes, session.path().join("spill"))?;
        poller.add(store.disk(), Source::Disk)?;
        if let Some(kept) = control.kept() {
            poller.add(kept.wake(), Source::Archive)?;
        }
        let now = clock();
        let random = random_u64()?;
        let floor = resources.units(hoplo_base::resources::CPU).ceil().max(1.0) as usize;
        let mut daemon = Self {
            now,
            node: NodeId(random),
            boot: (random >> 40) as u32,
            poller,
            listener,
            signals: None,
            scratch: vec![0; 128 * 1024],
            connections: BTreeMap::new(),
            next_connection: 1,
            dirty: BTreeSet::new(),
            processes: BTreeMap::new(),
            slots: Slots::new(),
            next_process: 1,
            graves: VecDeque::new(),
            jobs: BTreeMap::new(),
            master: None,
            scheduler: LocalScheduler::new(resources),
            pool: WorkerPool::new(floor),
            actors: ActorTable::new(),
            objects: ObjectDirectory::new(config, now),
            control,
            refused: None,
            escaped: Escaped::default(),
            events: 0,
            jobs_before: 0,
            queue: VecDeque::new(),
            after_sweep: Vec::new(),
            sweep_asked: None,
            zygote: Zygote::new(options.zygote),
            attempts: BTreeMap::new(),
            store,
            memory: MemoryWatch::new(),
            cages: Cages::new(crate::machine::cgroup2()),
            queries: Queries::default(),
            counters: Counters::default(),
            violations: 0,
            timers: BTreeSet::new(),
            stopping: false,
            stopped: false,
            stays: false,
            session,
        };
        daemon.recall();
        daemon.save(&NodeEntry {
            node: daemon.node,
            hostname: crate::machine::hostname(),
            resources: daemon.scheduler.total().clone(),
            session_dir: daemon.session.path().display().to_string(),
            alive: true,
        });
        if let Some(head) = head {
            daemon.session.make_current(head)?;
        }
        if let Some(driver) = options.driver {
            daemon.add_master(driver)?;
        }
        Ok(daemon)
    }

    pub fn session_dir(&self) -> &Path {
        self.session.path()
    }

    /// A byte on it asks for an orderly stop.
    pub fn stop_on(&mut self, signals: UnixStream) -> io::Result<()> {
        signals.set_nonblocking(true)?;
        self.poller.add(&signals, Source::Signal)?;
        self.signals = Some(signals);
        Ok(())
    }

    /// Until somebody stops it, or its master leaves.
    pub fn run(mut self) {
        self.zygote.start(&self.poller);
        self.fail_forks();
        while !self.stopped {
            self.turn();
        }
        self.close();
    }

    /// One round: wait, handle everything that came, time, a sweep if one is wanted, send.
    fn turn(&mut self) {
        let timeout = self.next_deadline().map(|at| at.since(clock()));
        let ready = self.poller.wait(timeout).expect("epoll waits");
        self.now = clock();
        self.handle_ready(ready, READ_BYTES_MAX);
        self.handle_time();
        if self.sweep_asked.is_some() || !self.after_sweep.is_empty() {
            self.sweep();
        }
        self.flush_control();
        self.flush_all();
        #[cfg(debug_assertions)]
        self.check();
    }

    fn sweep(&mut self) {
        let deferred = std::mem::take(&mut self.after_sweep);
        let sweep = self.sweep_asked.take();
        let ready = self.poller.wait(Some(Duration::ZERO)).expect("epoll waits");
        self.now = clock();
        self.handle_ready(ready, usize::MAX);
        for one in deferred {
            match one {
                Deferred::Actors(event) => self.queue.push_back(Work::Actors(event)),
                Deferred::Fetch { process, job, function } => {
                    self.answer_fetch(process, job, function, true);
                }
            }
            self.settle();
        }
        if let Some(sweep) = sweep {
            self.handle(Work::Objects(objects::Event::Swept { sweep }));
        }
    }

    fn handle_ready(&mut self, ready: Vec<Ready>, read_bytes_max: usize) {
        for Ready { source, readable, writable } in ready {
            match source {
                Source::Listener => self.accept(),
                Source::Signal => {
                    self.stays = self.control.kept().is_some();
                    self.begin_stop("a signal");
                }
                Source::Disk => {
                    for event in self.store.disk_done() {
                        self.handle(Work::Objects(event));
                    }
                }
                // The turn's flush takes what it says.
                Source::Archive => {}
                Source::Zygote => self.on_zygote(),
                Source::ZygoteOutput => self.on_zygote_output(),
                Source::Connection(number) => {
                    if writable {
                        self.dirty.insert(number);
                    }
                    if readable {
                        self.read_connection(number, read_bytes_max);
                    }
                }
                Source::Life(slot) => self.on_life(slot),
                Source::Output { slot, stderr } => self.on_output(slot, stderr),
            }
            self.settle();
        }
    }

    fn handle_time(&mut self) {
        while let Some((at, timer)) = self.timers.first().copied() {
            if at > self.now {
                break;
            }
            self.timers.pop_first();
            self.on_timer(timer);
            self.settle();
        }
        self.control.on_time(self.now);
        let due = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= self.now);
        let scheduler = due(self.scheduler.next_deadline());
        let pool = due(self.pool.next_deadline());
        let objects = due(self.objects.next_deadline());
        if scheduler {
            self.handle(Work::Scheduler(local::Event::Tick));
        }
        if pool {
            self.handle(Work::Pool(workers::Event::Tick));
        }
        if objects {
            self.handle(Work::Objects(objects::Event::Tick));
        }
    }

    fn on_timer(&mut self, timer: Timer) {
        match timer {
            Timer::Kill(process) => self.kill_late(process),
            Timer::Bury(process) => self.bury(process),
            Timer::Output(job) => self.send_output(job),
            Timer::Memory => self.watch_memory(),
            Timer::Escaped => self.look_at_escaped(),
            Timer::Query(query) => self.finish_query(query),
            Timer::Stop => self.stopped = true,
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        if self.sweep_asked.is_some() || !self.after_sweep.is_empty() {
            return Some(self.now);
        }
        let timer = self.timers.first().map(|(at, _)| *at);
        [
            timer,
            self.scheduler.next_deadline(),
            self.pool.next_deadline(),
            self.objects.next_deadline(),
            self.control.next_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    pub(crate) fn handle(&mut self, work: Work) {
        self.queue.push_back(work);
        self.settle();
    }

    /// Until no machine has anything for another one.
    pub(crate) fn settle(&mut self) {
        while let Some(work) = self.queue.pop_front() {
            match work {
                Work::Scheduler(event) => {
                    journal::note(self.now, &event);
                    let mut effects = Vec::new();
                    self.scheduler.handle(self.now, event, &mut effects);
                    effects.into_iter().for_each(|effect| self.on_scheduler(effect));
                }
                Work::Pool(event) => {
                    journal::note(self.now, &event);
                    let mut effects = Vec::new();
                    self.pool.handle(self.now, event, &mut effects);
                    effects.into_iter().for_each(|effect| self.on_pool(effect));
                }
                Work::Actors(event) => {
                    journal::note(self.now, &event);
                    let mut effects = Vec::new();
                    self.actors.handle(self.now, event, &mut effects);
                    effects.into_iter().for_each(|effect| self.on_actors(effect));
                }
                Work::Objects(event) => {
                    let mut effects = Vec::new();
                    self.objects.handle(self.now, event, &mut effects);
                    effects.into_iter().for_each(|effect| self.on_objects(effect));
                }
            }
        }
    }

    pub(crate) fn after(&mut self, delay: Duration, timer: Timer) {
        self.timers.insert((self.now + delay, timer));
    }

    /// Drivers are dropped at once, workers are told to exit; the daemon ends when they have, or a
    /// little later.
    pub(crate) fn begin_stop(&mut self, why: &str) {
        if self.stopping {
            return;
        }
        // Of a node that goes with its driver nothing is to stay, no log either.
        if self.master.is_none() {
            journal::log(format_args!("stops: {why}"));
        }
        self.stopping = true;
        let drivers = self.processes.values().filter(|process| process.kind == Kind::Driver);
        for number in drivers.filter_map(|driver| driver.connection).collect::<Vec<_>>() {
            self.say_farewell(number);
            self.hang_up(number);
        }
        let workers: Vec<ProcessId> =
            self.processes.values().filter(|process| process.is_worker()).map(|p| p.id).collect();
        for worker in workers {
            self.stop_process(worker, life::Manner::Exit, "the node stops".to_string());
        }
        self.after(2 * EXIT_GRACE, Timer::Stop);
        self.stop_when_empty();
    }

    pub(crate) fn stop_when_empty(&mut self) {
        if self.stopping && !self.processes.values().any(Process::is_worker) {
            self.stopped = true;
        }
    }

    fn close(mut self) {
        self.flush_all();
        for process in self.processes.values() {
            process.kill();
        }
        self.zygote.stop();
        drop(self.listener);
        if let Err(refusal) = self.control.close() {
            journal::log(format_args!("the control store was not closed: {refusal}"));
        }
        // Who waits for the end of its connection finds nothing left.
        self.session.close(self.stays);
        drop(self.connections);
    }

    /// Asserts every machine's invariants.
    #[cfg(debug_assertions)]
    fn check(&self) {
        self.scheduler.check();
        self.pool.check();
        self.actors.check();
        self.objects.check();
    }
}

impl Slots {
    fn new() -> Self {
        let count = hoplo_base::limits::PROCESSES_MAX as u16;
        // Slot 0 is the daemon's.
        Self {
            owners: vec![None; usize::from(count)],
            free: VecDeque::new(),
            fresh: 1,
            taken: Vec::new(),
        }
    }

    pub(crate) fn take(&mut self, process: impl FnOnce(u16) -> ProcessId) -> Option<ProcessId> {
        let rested = self.free.len() > RESTING_SLOTS;
        let slot = if !rested && usize::from(self.fresh) < self.owners.len() {
            self.fresh += 1;
            self.fresh - 1
        } else {
            self.free.pop_front()?
        };
        let process = process(slot);
        self.owners[usize::from(slot)] = Some(process);
        self.taken.push(slot);
        Some(process)
    }

    pub(crate) fn give_back(&mut self, slot: u16) {
        let owner = self.owners[usize::from(slot)].take();
        assert!(owner.is_some(), "NODE-1: slot {slot} is given back twice");
        self.free.push_back(slot);
        self.taken.retain(|taken| *taken != slot);
    }

    pub(crate) fn owner(&self, slot: u16) -> Option<ProcessId> {
        self.owners[usize::from(slot)]
    }

    /// The slots of all processes that may have something pinned.
    pub(crate) fn taken(&self) -> &[u16] {
        &self.taken
    }
}

/// CLOCK_MONOTONIC, which all processes of the machine share.
pub(crate) fn clock() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Instant(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

fn object_config(capacity_bytes: u64) -> objects::Config {
    let mut config = objects::Config::new(capacity_bytes);
    // Addresses are free, memory is not: large objects find a place although memory is in pieces.
    config.arena_bytes = capacity_bytes * hoplo_base::limits::ARENA_PER_STORE;
    config
}

fn random_u64() -> io::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_le_bytes(bytes))
}

/// For messages that bring one descriptor.
pub(crate) fn single(fd: OwnedFd) -> Rc<[OwnedFd]> {
    vec![fd].into()
}
