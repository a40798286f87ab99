//! One node: the machines of a daemon, wired to each other and to the processes that they serve.
//!
//! ```text
//!  sockets, zygote, kernel, disk, control store           (the shell: `crates/node`, `crates/sim`)
//!        | Event                         ^ Effect
//!        v                               |
//!  processes, jobs, functions, sweeps, lineage, memory, questions            (this module)
//!        | Work                          ^ effects of the machines
//!        v                               |
//!  LocalScheduler   WorkerPool   Environments   ActorTable   ObjectDirectory
//! ```
//! The machines do not know each other. What one has for another is queued (`Work`), so that each sees
//! events in the order in which they were caused; `handle` returns when nobody has anything more.
//!
//! # The life of a process
//! ```text
//!             Fork              hello            Closed          Ended           Examined
//!  (nothing) ------> Starting ---------> Greeted ------> Closed ------> Ended ------------> (buried)
//!                       \----------------- Closed --------^   \-- Exited: at once --^
//! ```
//! A worker's pid comes from the zygote, its hello from its own socket, its end from the kernel, its
//! exit status from the zygote again: they come in any order, and any of them may never come. So
//! its pid (`Birth`) is apart from its `Stage`. A driver comes by itself and ends with its connection.
//! Whoever must die before its pid is known is killed at birth. Who was asked to exit and does not, or closed its
//! connection and does not end, is killed when its time is over. A dead worker is examined before it is
//! buried: its shell reads what it printed last and why the kernel may have killed it. At its burial everybody
//! concerned is told, its pins are wiped, and its slot is free. Obituaries are kept for who asks late.
//!
//! # Sweeps (REF-5)
//! A machine that wants one, or a question about something unknown, waits for the end of the shell's
//! current batch (`Effect::Sweep`). The shell says `SweepBegins`, reads once what lies in all sockets, and says
//! `Swept`. What asked before the beginning is answered; what asks later waits for the next one.
//!
//! # The control store
//! is asked and answers later (`Ask`, `Answered`), in order; rows that nobody waits for are `Save`d and `Forget`ten.
//!
//! # What the shell promises
//! - Messages of a process come in their order. `Closed` comes after all of them, once; and before
//!   `Ended` and `Exited`, which mean that its connection was read to the end.
//! - Effects are carried out in order, before the next event. `MakeEnvironment` is answered once, by `EnvironmentMade` or
//!   `EnvironmentFailed`. `Free`, `Spill`, `Restore`, `Reserve`, `Ask`, `Measure` and
//!   `Examine` are answered once each; `Fork` by `Forked`, `ForkFailed`, `ForkRefused` or `ForkUndone`, unless its worker is buried
//!   before, or the zygote died and could not tell: then the worker's hello has its pid.
//! - The descriptor that comes with `Connect` goes with the `Connected` that it causes, or is dropped.
//! - After `HangUp`, `Refuse` and `Bury` nothing comes from that connection any more.
//!
//! # Invariants
//! - NODE-1: a process's slot, and the memory where it may still be writing, are used again only after its pins were wiped, and they are
//!   wiped only when the process is dead (or, a driver's, has unmapped the store). A program may read and write its arrays after
//!   `shutdown()`, and after it was dropped: it does not have to know of that yet.
//! - NODE-2: when nothing is due there is no deadline: an idle node sleeps.
//! - NODE-3: the directory knows exactly the drivers and workers that said hello and are not buried, and, where there may be
//!   other nodes, the haul.
//! - NODE-4: each start of the pool is one process in stage `Starting`, or one that never said hello and is
//!   not buried yet.
//! - NODE-5: who is to be killed before its pid is known is killed when that comes.

pub mod copies;
mod environments;
mod event;
mod far;
mod fetcher;
mod functions;
mod groups;
mod hello;
mod jobs;
mod kv;
mod life;
mod lineage;
mod machines;
mod memory;
mod past;
mod process;
mod queries;
mod queue;
mod recall;
mod replays;
mod requests;
mod slots;
mod sweeps;
mod takeover;
#[cfg(test)]
mod tests;
mod timers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hoplo_base::{GroupId, Instant, JobId, NodeNumber, ProcessId, ResourceSet};
use hoplo_wire::node::{Counters, DeathCause, Obituary, ToClient};

use crate::actors::{ActorTable, ReplayLogs};
use crate::control::Entry;
use crate::history::History;
use crate::objects::{self, ObjectDirectory};
use crate::sched::place::Place;
use crate::sched::{Environments, LocalScheduler, WorkerPool, environments as envs};

pub use event::{Answer, Effect, Event, Passing, Question, RowsPage};
pub use far::{DRAINED, heir_among, heir_of, outlived, settled};
pub use jobs::Job;
pub use kv::KEYS_MAX;
pub use past::PastRows;
pub use process::{Birth, Kind, Process, Stage};
pub use queries::{Asker, Everywhere, Here, Logs, OfDead, OpenRound, Others, Report};
pub use recall::Rows;

use far::Far;
use functions::Functions;
use groups::GroupDesk;
use lineage::Escaped;
use memory::MemoryWatch;
use past::Past;
use queries::Queries;
use queue::Work;
use slots::Slots;
use sweeps::Sweeps;
use timers::Timer;

/// What a node is told when it begins.
#[derive(Clone, Debug)]
pub struct Config {
    pub node: NodeNumber,
    pub resources: ResourceSet,
    pub objects: objects::Config,
    /// For people, and for processes to find files.
    pub session_dir: String,
    /// Rows outlive this daemon: tasks that others depend on get one.
    pub keeps_rows: bool,
    /// It is a head or has joined one.
    pub clustered: bool,
    /// So many slots rest before one is taken again.
    pub slots_resting: usize,
    /// Processes at a time; no more than there are places in the segment.
    pub processes_max: usize,
}

#[derive(Debug)]
pub struct Node {
    config: Config,
    now: Instant,
    /// Microseconds since 1970, for rows that people read.
    wall_us: u64,

    pub scheduler: LocalScheduler,
    pub pool: WorkerPool,
    environments: Environments,
    pub actors: ActorTable,
    pub replays: ReplayLogs,
    pub objects: ObjectDirectory,
    queue: VecDeque<Work>,
    /// What this call of `handle` decided so far.
    out: Vec<Effect>,

    processes: BTreeMap<ProcessId, Process>,
    /// Drivers that left, or were dropped, and may still have the store mapped; their pids.
    mapped: BTreeMap<ProcessId, u32>,
    /// Processes that are buried, and of which the directory has not heard that.
    unheard: BTreeMap<ProcessId, takeover::Unheard>,
    slots: Slots,
    next_process: u32,
    graves: VecDeque<(ProcessId, Obituary)>,
    jobs: BTreeMap<JobId, Job>,
    /// In this life.
    jobs_begun: u64,
    functions: Functions,
    groups: GroupDesk,
    far: Far,
    /// Questions to the control store that are not answered, and what each is for.
    asked: BTreeMap<u64, Asked>,
    last_ask: u64,
    queries: Queries,
    sweeps: Sweeps,
    escaped: Escaped,
    memory: MemoryWatch,
    pub history: History,
    past: Past,
    counters: Counters,
    violations: u64,
    /// Rows in the table of events.
    events: u64,
    timers: BTreeSet<(Instant, Timer)>,
    stopping: bool,
    /// To others it is dead.
    fenced: bool,
}

#[derive(Debug)]
enum Asked {
    Kv(kv::Asker),
    Function(functions::Asker),
    Past(past::Asker),
    /// The first row of a detached group.
    Group(GroupId),
}

impl Asked {
    fn group(&self) -> Option<GroupId> {
        match self {
            Asked::Group(group) => Some(*group),
            Asked::Kv(_) | Asked::Function(_) | Asked::Past(_) => None,
        }
    }
}

impl Node {
    pub fn new(config: Config, now: Instant) -> Self {
        let (node, resources) = (config.node, config.resources.clone());
        // Its labels come with its row.
        let here = Place { node, labels: BTreeMap::new(), total: resources.clone() };
        let floor = resources.units(hoplo_base::resources::CPU).ceil().max(1.0) as usize;
        Self {
            now,
            wall_us: 0,
            scheduler: LocalScheduler::new(config.node, resources),
            pool: WorkerPool::new(floor),
            environments: Environments::default(),
            actors: ActorTable::new(),
            replays: ReplayLogs::new(),
            objects: ObjectDirectory::new(config.node, config.objects.clone(), now),
            queue: VecDeque::new(),
            out: Vec::new(),
            processes: BTreeMap::new(),
            mapped: BTreeMap::new(),
            unheard: BTreeMap::new(),
            slots: Slots::new(config.slots_resting),
            config,
            next_process: 1,
            graves: VecDeque::new(),
            jobs: BTreeMap::new(),
            jobs_begun: 0,
            functions: Functions::default(),
            groups: GroupDesk::default(),
            far: Far::new(here, now),
            asked: BTreeMap::new(),
            last_ask: 0,
            queries: Queries::default(),
            sweeps: Sweeps::default(),
            escaped: Escaped::default(),
            memory: MemoryWatch::default(),
            history: History::default(),
            past: Past::default(),
            counters: Counters::default(),
            violations: 0,
            events: 0,
            timers: BTreeSet::new(),
            stopping: false,
            fenced: false,
        }
    }

    /// What the clock on the wall says, in microseconds since 1970: for rows that people read.
    pub fn set_wall_clock(&mut self, wall_us: u64) {
        self.wall_us = wall_us;
    }

    pub fn handle(&mut self, now: Instant, event: Event, effects: &mut Vec<Effect>) {
        self.now = now;
        match event {
            Event::Knocked { stranger, pid, message } => self.on_knock(stranger, pid, message),
            Event::Told { stranger, pid, message } => self.on_job(stranger, pid, message),
            Event::Heard { from, message } => self.on_heard(from, message),
            Event::Broke { process, what } => self.violation(process, &what),
            Event::DoesNotRead { process } => self.on_unread(process),
            Event::Closed { process } => self.on_closed(process),
            Event::Unmapped { process } => self.on_unmapped(process),
            Event::Forked { process, pid } => self.on_forked(process, pid),
            Event::ForkFailed { process, reason } => {
                self.on_fork_failed(process, DeathCause::NotStarted { reason });
            }
            Event::ForkRefused { process, reason } => {
                self.on_fork_failed(process, DeathCause::BadEnvironment { reason });
            }
            Event::ForkUndone { process } => self.on_fork_undone(process),
            Event::EnvironmentMade { ticket } => {
                self.pass_to_environments(envs::Event::Made { ticket });
            }
            Event::EnvironmentFailed { ticket, why } => {
                self.pass_to_environments(envs::Event::Failed { ticket, why });
            }
            Event::Ended { process, status_follows } => self.on_ended(process, status_follows),
            Event::Exited { process, status } => self.on_exited(process, status),
            Event::Examined { process, last_lines, verdict } => {
                self.on_examined(process, last_lines, verdict);
            }
            Event::Freed { ticket, result } => {
                self.pass_to_objects(objects::Event::Freed { ticket, result });
            }
            Event::Spilled { ticket, result } => {
                self.pass_to_objects(objects::Event::Spilled { ticket, result });
            }
            Event::Restored { ticket, result } => {
                self.pass_to_objects(objects::Event::Restored { ticket, result });
            }
            Event::Reserved { ticket, result } => {
                self.pass_to_objects(objects::Event::Reserved { ticket, result });
            }
            Event::SweepBegins => self.sweeps.begin(),
            Event::Swept => self.on_swept(),
            Event::Answered { ask, answer } => self.on_answered(ask, answer),
            Event::Measured { total, available, used } => {
                self.on_measured(total, available, &used);
            }
            Event::Peer { from, cover, message } => self.on_peer(from, cover, *message),
            Event::Member { entry, index } => self.on_member(*entry, index),
            Event::Passing { ticket, frame } => self.on_passing(ticket, frame),
            Event::ChannelEnded { caller, worker, unstarted, obituary } => {
                self.on_channel_ended(caller, worker, unstarted, obituary);
            }
            Event::HeadSilent { since } => self.on_head_silent(since),
            Event::HeadHeard => self.on_head_heard(),
            Event::NodeUnreached { node, since } => self.on_unreached(node, since),
            Event::NodeReached { node } => self.on_reached(node),
            Event::Printed { driver, message } => self.send(driver, *message),
            Event::CallsRevoked { caller, worker, seqs, kept } => {
                self.send(caller, ToClient::Revoked { worker, seqs, kept });
            }
            Event::Written { node, request, result } => self.answer_node(node, request, result),
            Event::Hauled { done } => self.on_hauled(done),
            Event::Stop { why } => self.begin_stop(&why),
            Event::Fenced { why } => {
                self.fenced = true;
                self.begin_stop(&why);
            }
            Event::Tick => self.on_tick(),
        }
        self.work_off_queue();
        self.watch_load();
        self.ask_for_sweep();
        if self.fenced {
            self.out.retain(|effect| !effect.is_for_others());
        }
        effects.append(&mut self.out);
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.processes.values()
    }

    /// Absent when it is buried.
    pub fn process(&self, id: ProcessId) -> Option<&Process> {
        self.processes.get(&id)
    }

    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values()
    }

    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id)
    }

    /// Whose slot this is.
    pub fn owner_of_slot(&self, slot: u16) -> Option<ProcessId> {
        self.slots.owner(slot)
    }

    /// The slots of all processes that may have something pinned.
    pub fn live_slots(&self) -> &[u16] {
        self.slots.taken()
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Connections that were dropped for what they sent.
    pub fn violations(&self) -> u64 {
        self.violations
    }

    /// Asserts every machine's invariants, and those of the module's doc.
    pub fn check(&self) {
        self.check_quickly();
        self.check_far_replies();
        self.objects.check();
    }

    /// All but the directory's, which are many.
    pub fn check_quickly(&self) {
        self.scheduler.check();
        self.pool.check();
        self.environments.check();
        self.actors.check();
        self.replays.check();
        self.groups.machine.check();
        self.check_unwritten();
        self.history.check();
        self.check_past();
        self.check_asked_here();
        self.far.check(self.config.node, self.now);
        self.check_processes();
        self.check_queries();
    }

    fn on_answered(&mut self, ask: u64, answer: Answer) {
        match self.asked.remove(&ask).expect("only what was asked is answered") {
            Asked::Kv(asker) => self.on_kv_answer(asker, answer),
            Asked::Function(asker) => self.on_function_answer(&asker, answer),
            Asked::Past(asker) => self.on_past_answer(asker, answer),
            Asked::Group(group) => self.on_group_answer(group, answer),
        }
    }

    fn ask(&mut self, question: Question, asked: Asked) {
        self.last_ask += 1;
        self.asked.insert(self.last_ask, asked);
        self.out.push(Effect::Ask { ask: self.last_ask, question });
    }

    /// Nothing happens if it is gone: it, or who asked, is told otherwise.
    fn send(&mut self, to: ProcessId, message: ToClient) {
        if self.is_far(to.node()) {
            self.send_far(to, message);
        } else if self.speaks(to) {
            self.out.push(Effect::Send { to, message });
        }
    }

    /// Its connection is open: it hears, and may answer.
    fn speaks(&self, id: ProcessId) -> bool {
        self.processes.get(&id).is_some_and(|process| process.stage.has_connection())
    }

    /// Nobody waits for this row.
    fn save(&mut self, entry: &impl Entry) {
        self.out.push(Effect::Save { key: entry.key(), value: entry.to_value(), last: false });
    }

    /// The last version of something: history when memory is short.
    fn save_last(&mut self, entry: &impl Entry) {
        self.out.push(Effect::Save { key: entry.key(), value: entry.to_value(), last: true });
    }

    fn log(&mut self, text: impl Into<String>) {
        self.out.push(Effect::Log { text: text.into() });
    }
}
