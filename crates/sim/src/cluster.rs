//! One node in virtual time: a daemon, drivers and workers, and the queue of what happens when.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hoplo_base::{Instant, JobId, ProcessId};

use crate::client::Client;
use crate::daemon::Daemon;
use crate::faults::Plan;
use crate::invariants::Books;
use crate::memory::Memory;
use crate::network::Channels;
use crate::rng::Rng;
use crate::story::{Story, shorten};

/// A step of somebody. Every one is atomic, as what happens under one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Reads what lies in the socket of a process.
    DaemonReads(ProcessId),
    DaemonSweeps,
    DaemonTicks,
    DiskWrote(u64),
    DiskRead(u64),
    DiskReserved(u64),
    /// A fork is done.
    Born(u64),
    /// The daemon has seen the end of a process.
    Buries(ProcessId),
    Dies(ProcessId),
    ClientReads(ProcessId),
    Drains(ProcessId),
    Ticks(ProcessId),
    /// The main thread goes on.
    Goes(ProcessId),
    /// It waits for so long that it lends its CPU; the count tells which wait.
    Lends(ProcessId, u64),
    /// A view of a stored object is closed.
    Unviews(ProcessId, u64),
    Fault,
    DriversDone,
}

pub struct Cluster {
    pub seed: u64,
    pub now: Instant,
    pub rng: Rng,
    queue: BTreeSet<(Instant, u64, Step)>,
    next: u64,
    pub plan: Plan,
    pub clients: BTreeMap<ProcessId, Client>,
    pub channels: Channels,
    pub memory: Memory,
    pub daemon: Daemon,
    pub books: Books,
    pub story: Story,
    pub drivers: Vec<ProcessId>,
    pub steps: u64,
    /// How often all replies were drained at the end.
    drained: u32,
}

/// Everything must be done so long after the last fault.
const HEALS_WITHIN: Duration = Duration::from_secs(120);
/// What is unreachable is gone after this time.
const SETTLES_WITHIN: Duration = Duration::from_secs(4);
const STEPS_MAX: u64 = 3_000_000;

impl Cluster {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let plan = Plan::new(&mut rng);
        let memory = Memory::new(plan.capacity_bytes);
        let daemon = Daemon::new(&plan);
        Self {
            seed,
            now: Instant(1_000_000),
            rng,
            queue: BTreeSet::new(),
            next: 0,
            plan,
            clients: BTreeMap::new(),
            channels: Channels::new(),
            memory,
            daemon,
            books: Books::default(),
            story: Story::default(),
            drivers: Vec::new(),
            steps: 0,
            drained: 0,
        }
    }

    /// Runs to the end, or panics with what does not hold.
    pub fn run(&mut self) {
        for number in 0..self.plan.drivers {
            let program = self.rng.next();
            let driver = self.start_driver(JobId(number + 1), program);
            self.drivers.push(driver);
        }
        self.after(Duration::from_micros(100), Step::Fault);
        let deadline = self.plan.faults_until + HEALS_WITHIN;
        while let Some((at, _, step)) = self.queue.pop_first() {
            self.now = self.now.max(at);
            self.steps += 1;
            assert!(self.steps < STEPS_MAX, "no end of steps: {}", self.whats_up());
            assert!(self.now < deadline, "it does not heal:\n{}", self.whats_up());
            self.step(step);
            self.check();
        }
        self.check_the_end();
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::DaemonReads(from) => self.daemon_reads(from),
            Step::DaemonSweeps => self.daemon_sweeps(),
            Step::DaemonTicks => self.daemon_ticks(),
            Step::DiskWrote(attempt) => self.disk_wrote(attempt),
            Step::DiskRead(attempt) => self.disk_read(attempt),
            Step::DiskReserved(attempt) => self.disk_reserved(attempt),
            Step::Born(attempt) => self.born(attempt),
            Step::Buries(process) => self.bury(process),
            Step::Dies(process) => {
                self.dies(process, hoplo_wire::node::DeathCause::Signaled { signal: 9 })
            }
            Step::ClientReads(process) => self.client_reads(process),
            Step::Drains(process) => self.drains(process),
            Step::Ticks(process) => self.ticks(process),
            Step::Goes(process) => self.goes(process),
            Step::Lends(process, wait) => self.lends(process, wait),
            Step::Unviews(process, view) => self.unviews(process, view),
            Step::Fault => self.fault(),
            Step::DriversDone => self.drivers_done(),
        }
    }

    pub fn at(&mut self, at: Instant, step: Step) {
        self.next += 1;
        self.queue.insert((at.max(self.now), self.next, step));
    }

    pub fn after(&mut self, delay: Duration, step: Step) {
        self.at(self.now + delay, step);
    }

    /// A driver has finished its program.
    pub fn driver_finished(&mut self) {
        let all = self.drivers.iter().all(|driver| {
            self.clients.get(driver).is_none_or(|client| !client.alive || client.finished)
        });
        if all {
            self.after(SETTLES_WITHIN, Step::DriversDone);
        }
    }

    /// They have dropped everything and time has passed: what is left is a leak. Then they exit.
    fn drivers_done(&mut self) {
        let unfinished = self.clients.values().any(|it| it.alive && it.session.unfinished() > 0);
        if self.drained < 1 || (unfinished && self.drained < 20) {
            self.drained += 1;
            // Replies that nobody waits for lie in their rings until the next call: this is it.
            for id in self.clients.keys().copied().collect::<Vec<_>>() {
                if self.clients[&id].alive {
                    self.drain(id);
                }
            }
            self.after(SETTLES_WITHIN, Step::DriversDone);
            return;
        }
        self.check_leaks();
        for driver in self.drivers.clone() {
            if self.clients.get(&driver).is_some_and(|client| client.alive) {
                self.dies(driver, hoplo_wire::node::DeathCause::Exited { code: 0 });
            }
        }
    }

    pub fn tell(&mut self, line: impl FnOnce() -> String) {
        let line = line();
        if self.plan.prints {
            eprintln!("{:>12.6}ms {}", self.now.0 as f64 / 1e6, shorten(&line));
        }
        self.story.tell(self.now, line);
    }

    /// Who waits for what.
    pub fn whats_up(&self) -> String {
        let mut text = String::new();
        for client in self.clients.values().filter(|client| client.alive) {
            text += &client.whats_up();
        }
        text += &self.daemon.whats_up();
        text
    }
}

impl Cluster {
    pub fn summary(&self) -> crate::Summary {
        crate::Summary {
            steps: self.steps,
            calls: self.books.submitted,
            spills: self.daemon.objects.totals().spills,
            adoptions: self.books.adoptions,
            deaths: self.clients.len() as u64,
        }
    }
}
