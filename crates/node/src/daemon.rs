//! The daemon's loop: reads what is there, lets the node decide, carries out what it says.
//!
//! ```text
//!   epoll --> read, decode --> event --> Node --> effects --> messages, forks, kills, files
//!     ^                          ^                   |
//!     |                          +---- answers <-----+
//!     +--- flush, timers, sweep
//! ```
//! One thread decides. What is decided is in `hoplo_core::node`; here is only what needs a descriptor, a pid, a file
//! or the clock. An effect that is answered at once queues its answer (`Daemon::answer`), which is handled when all
//! effects before it were carried out.
//!
//! # Sweeps (REF-5)
//! Asked for one, the daemon finishes the current batch. Then one `epoll_wait` without waiting names every
//! socket in which something lies, each is read until it would block, and all of it is handled.

mod clients;
mod control;
mod effects;
mod jobs;
mod query;
mod why;
mod workers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, SystemTime};

use hoplo_base::limits::{TABLE_ROOM_KEPT, TURN_BYTES_MAX};
use hoplo_base::{Instant, JobId, ProcessId, ResourceError};
use hoplo_core::control::NodeEntry;
use hoplo_core::node::{Config, Effect, Event, Node};
use hoplo_core::objects;
use hoplo_folders::{Base, FolderError, HeadError, OwnSessionFolder, SessionFolder};
use hoplo_shm::heap;

use crate::cage::Cages;
use crate::children::{self, Families, Looks};
use crate::descriptors::Descriptors;
use crate::journal;
use crate::options::Options;
use crate::poll::{Poller, Ready, Source};
use crate::store::{Store, StoreError};
use crate::stream::Amount;
use crate::zygote::Zygote;

use clients::Connections;
use control::Control;
use jobs::Output;
use workers::WorkerSide;

#[derive(Debug)]
pub struct Daemon {
    pub(crate) now: Instant,
    pub(crate) node: Node,
    /// Answers to effects, and what else the node is to hear next.
    queue: VecDeque<Event>,
    /// Used again and again.
    effects: Vec<Effect>,
    pub(crate) sweep_wanted: bool,

    pub(crate) session: OwnSessionFolder,
    pub(crate) poller: Poller,
    pub(crate) listener: OwnedFd,
    signals: Option<UnixStream>,
    pub(crate) scratch: Vec<u8>,
    pub(crate) connections: Connections,

    pub(crate) zygote: Zygote,
    /// Pipes of workers that are not buried.
    pub(crate) workers: BTreeMap<ProcessId, WorkerSide>,
    /// Readable when their process has ended.
    pub(crate) lives: BTreeMap<ProcessId, OwnedFd>,
    pub(crate) outputs: BTreeMap<JobId, Output>,
    pub(crate) store: Store,
    pub(crate) cages: Cages,
    pub(crate) control: Control,
    /// Strangers that were dropped for what they sent.
    pub(crate) violations: u64,
    /// What describes this node.
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) timers: BTreeSet<(Instant, Timer)>,
    pub(crate) stopped: bool,
    pub(crate) descriptors: Descriptors,
    /// Whose children processes are, and when that was looked at.
    pub(crate) families: Option<(Instant, Families)>,
    /// Processes whose parents end become our children.
    pub(crate) adopts: bool,
    /// Children that this process had before.
    pub(crate) not_ours: BTreeSet<u32>,
    pub(crate) orphan_looks: Looks,
    /// The control store is for the next head to go on with.
    stays: bool,
    goes_on: bool,
}

/// The shell's own; what the node waits for is in its `next_deadline`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// What its workers printed is to be sent.
    Output(JobId),
    /// Connections are accepted again.
    Accept,
    /// Processes that were killed may have left others behind.
    Orphans,
    /// Memory that is free goes back to the system.
    ReturnMemory,
    /// That connection has had the time to say who it is.
    Hello(u64),
}

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
        let claim = |base: &Base| base.claim_head(&crate::hello_of_tool());
        let head = base.as_ref().filter(|_| options.head).map(claim).transpose()?;
        let left = base.as_ref().filter(|_| options.head).and_then(Base::left);
        let left = left.as_ref().map(SessionFolder::path);
        let goes_on = left.is_some()
            && options.session_dir.as_deref().is_none_or(|wanted| Some(wanted) == left);
        let session = match (options.session_dir.as_deref().or(left), base) {
            (Some(path), base) => OwnSessionFolder::at(path, base)?,
            (None, base) => OwnSessionFolder::create(base.expect("a new session has a base"))?,
        };
        let mut control = Control::open(&session, options.head, options.accept_loss)?;
        let poller = Poller::new()?;
        let listener = session.listen()?;
        poller.add(&listener, Source::Listener)?;
        let objects = object_config(options.object_store_bytes());
        let store = Store::new(objects.arena_bytes, session.path().join("spill/objects"))?;
        poller.add(store.disk(), Source::Disk)?;
        if let Some(kept) = control.kept() {
            poller.add(kept.wake(), Source::Archive)?;
        }
        let now = clock();
        let descriptors = Descriptors::new()?;
        let session_dir = session.path().display().to_string();
        let hostname = crate::machine::hostname();
        let row = |node| {
            let (hostname, session_dir) = (hostname.clone(), session_dir.clone());
            NodeEntry {
                node,
                head: true,
                hostname,
                resources: resources.clone(),
                session_dir,
                alive: true,
            }
        };
        let (rows, node) = control.begin(&session.control(), random_u32()?, row)?;
        let config = Config {
            node,
            resources,
            objects,
            session_dir,
            keeps_rows: control.kept().is_some(),
            slots_resting: hoplo_base::limits::SLOTS_RESTING,
            processes_max: descriptors.processes_max(),
        };
        let mut daemon = Self {
            now,
            node: Node::new(config, now),
            queue: VecDeque::new(),
            effects: Vec::new(),
            sweep_wanted: false,
            session,
            poller,
            listener,
            signals: None,
            scratch: vec![0; 128 * 1024],
            connections: Connections::default(),
            zygote: Zygote::new(options.zygote, options.descriptors_of_workers),
            workers: BTreeMap::new(),
            lives: BTreeMap::new(),
            outputs: BTreeMap::new(),
            store,
            cages: Cages::new(crate::machine::cgroup2()),
            control,
            violations: 0,
            labels: options.labels,
            timers: BTreeSet::new(),
            stopped: false,
            descriptors,
            families: None,
            adopts: false,
            not_ours: BTreeSet::new(),
            orphan_looks: Looks::default(),
            stays: false,
            goes_on,
        };
        daemon.node.set_wall_clock(micros());
        daemon.recall(rows);
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

    /// A head before this one ended without `hoplo stop`; its tables are this one's.
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// A byte on it asks for an orderly stop.
    pub fn stop_on(&mut self, signals: UnixStream) -> io::Result<()> {
        signals.set_nonblocking(true)?;
        self.poller.add(&signals, Source::Signal)?;
        self.signals = Some(signals);
        Ok(())
    }

    /// Whatever workers started ends with the daemon at the latest. What becomes a child of this process from
    /// now on is taken for such, but not in the first process of a container: all orphans are its children.
    pub fn adopt_orphans(&mut self) -> io::Result<()> {
        children::adopt_orphans()?;
        let me = std::process::id();
        self.adopts = me != 1;
        // To look through all processes of the machine takes milliseconds: for nobody, nearly always.
        if children::are_any() {
            self.not_ours = Families::look()?.children(me).into_iter().collect();
        }
        Ok(())
    }

    /// Until somebody stops it, or its master leaves.
    pub fn run(mut self) {
        if let Err(error) = self.zygote.start(&self.poller) {
            // The first task tries again, and hears why.
            journal::log(format_args!("the zygote does not start: {error}"));
        }
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
        self.node.set_wall_clock(micros());
        self.handle_ready(ready, Amount::Bytes(TURN_BYTES_MAX));
        self.handle_time();
        if std::mem::take(&mut self.sweep_wanted) {
            self.sweep();
        }
        self.control.flush();
        self.flush_all();
        #[cfg(debug_assertions)]
        self.node.check();
    }

    fn sweep(&mut self) {
        self.handle(Event::SweepBegins);
        let ready = self.poller.wait(Some(Duration::ZERO)).expect("epoll waits");
        self.now = clock();
        self.handle_ready(ready, Amount::WhatLies);
        self.handle(Event::Swept);
    }

    fn handle_ready(&mut self, mut ready: Vec<Ready>, amount: Amount) {
        // Whoever knocks after a signal is not told that the node runs.
        ready.sort_by_key(|ready| ready.source != Source::Signal);
        for Ready { source, readable, writable } in ready {
            match source {
                Source::Listener => self.accept(),
                Source::Signal => {
                    self.stays = self.control.kept().is_some();
                    self.handle(Event::Stop { why: "a signal".to_string() });
                }
                Source::Disk => {
                    for event in self.store.disk_done() {
                        self.handle(event);
                    }
                }
                // The turn's flush takes what it says.
                Source::Archive => {}
                Source::Zygote => self.on_zygote(),
                Source::ZygoteOutput => self.on_zygote_output(),
                Source::Connection(number) => {
                    if writable {
                        self.connections.dirty.insert(number);
                    }
                    if readable {
                        self.read_connection(number, amount);
                    }
                }
                Source::Life(slot) => self.on_life(slot),
                Source::Output { slot, stderr } => self.on_output(slot, stderr),
            }
        }
    }

    fn handle_time(&mut self) {
        while let Some((at, timer)) = self.timers.first().copied() {
            if at > self.now {
                break;
            }
            self.timers.pop_first();
            match timer {
                Timer::Output(job) => self.send_output(job),
                Timer::Accept => self.resume_accepting(),
                Timer::Orphans => self.look_for_orphans(),
                Timer::ReturnMemory => self.return_memory(),
                Timer::Hello(number) => self.end_stranger(number),
            }
        }
        self.control.on_time(self.now);
        if self.node.next_deadline().is_some_and(|at| at <= self.now) {
            self.handle(Event::Tick);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        if self.sweep_wanted {
            return Some(self.now);
        }
        let timer = self.timers.first().map(|(at, _)| *at);
        let deadlines = [timer, self.node.next_deadline(), self.control.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Lets the node decide, and carries out what it says.
    pub(crate) fn handle(&mut self, event: Event) {
        self.queue.push_back(event);
        let mut effects = std::mem::take(&mut self.effects);
        while let Some(event) = self.queue.pop_front() {
            self.node.handle(self.now, event, &mut effects);
            for effect in effects.drain(..) {
                self.carry_out(effect);
            }
        }
        self.effects = effects;
    }

    /// The node hears it when what it said before is carried out.
    pub(crate) fn answer(&mut self, event: Event) {
        self.queue.push_back(event);
    }

    pub(crate) fn after(&mut self, delay: Duration, timer: Timer) {
        self.timers.insert((self.now + delay, timer));
    }

    /// What tables and queues no longer need, and the allocator kept.
    fn return_memory(&mut self) {
        self.queue.shrink_to(TABLE_ROOM_KEPT);
        self.effects.shrink_to(TABLE_ROOM_KEPT);
        heap::return_free();
    }

    fn close(mut self) {
        self.flush_all();
        for process in self.node.processes().filter(|process| !process.stage.is_dead()) {
            if let Some(pid) = process.known_pid().filter(|_| process.is_worker()) {
                self.kill(process.id, pid);
            }
        }
        self.zygote.stop();
        if self.adopts {
            self.descriptors.spend();
            let ended = children::end_all_in_time(&self.not_ours);
            if let Err(error) = ended {
                journal::log(format_args!(
                    "what workers started was killed and may live on: {error}"
                ));
            }
        }
        drop(self.listener);
        if let Err(refusal) = self.control.close() {
            journal::log(format_args!("the control store was not closed: {refusal}"));
        }
        // Who waits for the end of its connection finds nothing left.
        self.session.close(self.stays);
        drop(self.connections);
    }
}

/// CLOCK_MONOTONIC, which all processes of the machine share.
pub(crate) fn clock() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Instant(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Since 1970.
fn micros() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn object_config(capacity_bytes: u64) -> objects::Config {
    let mut config = objects::Config::new(capacity_bytes);
    // Addresses are free, memory is not: large objects find a place although memory is in pieces.
    config.arena_bytes = capacity_bytes * hoplo_base::limits::ARENA_PER_STORE;
    config
}

fn random_u32() -> io::Result<u32> {
    let mut bytes = [0; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u32::from_le_bytes(bytes))
}
