//! Nodes in virtual time: their daemons and carriers, drivers and workers, and the queue of what happens when, and where.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hoplo_base::{Instant, NodeNumber, ProcessId, ResourceSet};
use hoplo_core::control::MemoryStore;
use hoplo_core::node::Event;

use crate::asks::Questions;
use crate::begin::begin;
use crate::carrier::Carrier;
use crate::client::Client;
use crate::counts::Counts;
use crate::daemon::Daemon;
use crate::faults::Plan;
use crate::host::Host;
use crate::invariants::Books;
use crate::kernel::Kernel;
use crate::memory::Memory;
use crate::operator::Operator;
use crate::rng::Rng;
use crate::sabotage::Sabotage;
use crate::story::{Story, shorten};
use crate::table::{begins, number};
use crate::wires::Wires;

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
    ControlAnswers,
    ControlTakes,
    Measured,
    /// A driver with this program connects.
    Knocks(u64),
    /// A fork is done; the zygote tells it; the worker says hello.
    Born(ProcessId),
    Births(ProcessId),
    Hellos(ProcessId),
    /// It is killed.
    Dies(ProcessId),
    /// It closes its connection and does not end.
    Hangs(ProcessId),
    /// It does not read what its daemon tells it.
    IsDeaf(ProcessId),
    /// The end of a socket, of a process, and its exit status, as the daemon hears of them.
    Closes(ProcessId),
    /// A driver has nothing of the store mapped any more.
    Unmaps(ProcessId),
    Ends(ProcessId),
    Reports(ProcessId),
    Examined(ProcessId),
    ClientReads(ProcessId),
    Drains(ProcessId),
    Ticks(ProcessId),
    /// The main thread goes on.
    Goes(ProcessId),
    /// A view of a stored object is closed.
    Unviews(ProcessId, u64),
    SomebodyAsks,
    /// A process answers a question that the daemon passed on, late.
    Tells(ProcessId, u64),
    /// Another member of a reduce is there.
    SaysMore(ProcessId),
    ToolLeaves(ProcessId),
    /// The carrier takes what its decider told, and looks at its rings; its words are heard.
    CarrierTurns,
    CarrierTicks,
    DaemonHears,
    /// Of connections between carriers.
    Dialled(u64),
    Arrives(u64, u8),
    /// Of the node table: the n-th node gets its number, says where it is, and a node hears of rows.
    Joins(u32),
    SaysWhere(u32),
    HearsRows,
    /// The head, over control nodes, has read what the dead left, or could not.
    HeadReads,
    Verdict(NodeNumber),
    /// Another daemon goes on as head, with the store of the one that died.
    HeadBegins,
    /// A node notices that its head says nothing.
    HeadIsSilent,
    /// The node hears that it is dead to others.
    IsFenced,
    /// The node that was drained, or fenced, has stopped.
    Leaves,
    LinkFault,
    /// It is killed, or declared dead.
    NodeFalls(NodeNumber),
    Fault,
    /// Somebody removes placement groups that are old.
    GroupsEnd,
    DriversDone,
}

impl Step {
    /// Its thread does it.
    fn is_of_carrier(self) -> bool {
        matches!(
            self,
            Self::CarrierTurns | Self::CarrierTicks | Self::Dialled(_) | Self::Arrives(..)
        )
    }

    /// It befalls all nodes, or somebody does it from outside: it also happens while there is no head.
    fn is_of_nobody(self) -> bool {
        matches!(
            self,
            Self::Fault
                | Self::LinkFault
                | Self::Joins(_)
                | Self::NodeFalls(_)
                | Self::Verdict(_)
                | Self::HeadBegins
                | Self::GroupsEnd
                | Self::DriversDone
        )
    }
}

pub struct Cluster {
    pub seed: u64,
    pub now: Instant,
    pub rng: Rng,
    queue: BTreeSet<(Instant, u64, NodeNumber, Step)>,
    next: u64,
    pub plan: Plan,
    /// The node at which this step happens, and the others.
    pub here: Box<Host>,
    pub away: BTreeMap<NodeNumber, Box<Host>>,
    /// Of several nodes, the one that is the head, or was it last.
    leader: NodeNumber,
    /// Heads that came in place of others.
    pub heads_begun: u32,
    pub wires: Wires,
    pub control: MemoryStore,
    pub clients: BTreeMap<ProcessId, Client>,
    pub kernel: BTreeMap<ProcessId, Kernel>,
    pub counts: Counts,
    pub books: Books,
    pub questions: Questions,
    pub operator: Operator,
    pub story: Story,
    pub drivers: Vec<ProcessId>,
    pub steps: u64,
    /// How often all replies were drained at the end.
    drained: u32,
    /// Some call was not over then.
    was_unfinished: bool,
    /// Once all drivers have come and finished: all that was dropped is gone then.
    done_at: Option<Instant>,
    /// Counts daemons with this control store.
    pub life: u32,
    pub sabotage: Option<Sabotage>,
}

/// Everything must be done so long after the last fault. Some of it is patience: a call that waits for a placement group of which no program
/// is left that could remove it is waited for for 80 s, and the last timers of the nodes take a minute. And some programs are long: on two nodes of few
/// CPUs with a slow link one was at work for 205 s, most of them with 42 placement groups that one driver removed one after the other (seed 498662).
const HEALS_WITHIN: Duration = Duration::from_secs(480);
/// What is unreachable is gone after this time.
const SETTLES_WITHIN: Duration = Duration::from_secs(4);
/// Of very many seeds one in so many is checked at each step; in the others what goes wrong is found somewhat later. These take a third of the time.
const CHECKED_OFTEN: u64 = 8;
const STEPS_MAX: u64 = 3_000_000;

impl Cluster {
    pub fn new(seed: u64, sabotage: Option<Sabotage>) -> Self {
        let mut rng = Rng::new(seed);
        let mut plan = Plan::new(&mut rng);
        if let Some(sabotage) = sabotage {
            sabotage.suits(&mut plan);
        }
        Self { sabotage, ..Self::alone(seed, rng, plan, 1, MemoryStore::new()) }
    }

    /// Up to 16 nodes.
    pub fn of_nodes(seed: u64, sabotage: Option<Sabotage>) -> Self {
        let mut rng = Rng::new(seed);
        let mut plan = Plan::of_nodes(&mut rng);
        let most = std::env::var_os("HOPLO_SIM_CHECKS_RARELY").is_some();
        plan.checks_rarely = most && !seed.is_multiple_of(CHECKED_OFTEN);
        if let Some(sabotage) = sabotage {
            sabotage.suits(&mut plan);
        }
        let here = begins(&plan, 0, number(0));
        let control = MemoryStore::new();
        let cluster = Self::with(seed, rng, plan, 1, here, control, Counts::default());
        Self { sabotage, ..cluster }
    }

    /// A life of a daemon without others, with what the control store has of earlier ones.
    fn alone(seed: u64, rng: Rng, plan: Plan, life: u32, mut control: MemoryStore) -> Self {
        let mut counts = Counts::default();
        let random = seed as u32 + life;
        let beginning = begin(&mut control, plan.keeps_rows, random, &mut counts);
        let units = [("CPU", plan.cpus as f64), ("GPU", plan.gpus as f64), ("memory", 1e9)];
        let resources = ResourceSet::from_units(units).expect("finite amounts");
        let carrier = Carrier::new(beginning.node, &plan);
        let daemon = Daemon::new(&plan, beginning, resources);
        let here = Box::new(Host::new(daemon, Memory::new(plan.capacity_bytes), carrier));
        Self::with(seed, rng, plan, life, here, control, counts)
    }

    fn with(
        seed: u64,
        rng: Rng,
        plan: Plan,
        life: u32,
        here: Box<Host>,
        control: MemoryStore,
        counts: Counts,
    ) -> Self {
        Self {
            seed,
            now: Instant(1_000_000),
            rng,
            queue: BTreeSet::new(),
            next: 0,
            here,
            away: BTreeMap::new(),
            leader: number(0),
            heads_begun: 0,
            wires: Wires::default(),
            control,
            clients: BTreeMap::new(),
            kernel: BTreeMap::new(),
            counts,
            books: Books::default(),
            questions: Questions::default(),
            operator: Operator::default(),
            story: Story::default(),
            drivers: Vec::new(),
            steps: 0,
            drained: 0,
            was_unfinished: false,
            done_at: None,
            life,
            sabotage: None,
            plan,
        }
    }

    /// Runs to the end, or panics with what does not hold.
    pub fn run(&mut self) {
        self.live();
        while self.head_is_dead() {
            self.count("daemons that died");
            let (control, counts) = (self.control.clone(), self.counts.clone());
            let mut rng = Rng::new(self.rng.next());
            let mut plan = Plan::new(&mut rng);
            (plan.keeps_rows, plan.head_dies_at) = (true, None);
            let story = std::mem::take(&mut self.story);
            *self = Self { story, ..Self::alone(self.seed, rng, plan, self.life + 1, control) };
            self.counts.join(&counts);
            self.live();
        }
        self.check_the_end();
    }

    fn head_is_dead(&self) -> bool {
        self.plan.head_dies_at.is_some_and(|at| self.now >= at)
    }

    fn live(&mut self) {
        self.recalls();
        self.check_the_past();
        if !self.groups().is_empty() {
            self.somebody_looks();
        }
        if self.plan.nodes > 1 {
            self.everybody_joins();
        } else {
            self.drivers_come(self.plan.drivers);
        }
        self.after(Duration::from_micros(100), Step::Fault);
        if self.plan.nodes > 1 {
            self.after(Duration::from_micros(100), Step::LinkFault);
        } else {
            self.after(Duration::from_millis(1), Step::SomebodyAsks);
        }
        let deadline = self.plan.faults_until + HEALS_WITHIN;
        while let Some((at, _, node, step)) = self.queue.pop_first() {
            self.now = self.now.max(at);
            if self.host(node).dead && !step.is_of_nobody() {
                continue;
            }
            let Host { frozen_until, carrier, .. } = self.host(node);
            let (frozen_until, rests_until) = (*frozen_until, carrier.rests_until);
            if frozen_until > self.now && !step.is_of_nobody() {
                self.at_node(node, frozen_until, step);
                continue;
            }
            if step.is_of_carrier() && rests_until > self.now {
                self.at_node(node, rests_until, step);
                continue;
            }
            self.goes_to(node);
            if self.head_is_dead() {
                return self.note(|| "FAULT: the daemon dies".to_string());
            }
            self.steps += 1;
            assert!(self.steps < STEPS_MAX, "no end of steps: {}", self.whats_up());
            assert!(self.now < deadline, "it does not heal:\n{}", self.whats_up());
            self.step(step);
            self.check();
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::DaemonReads(from) => self.daemon_reads(from),
            Step::DaemonSweeps => self.daemon_sweeps(),
            Step::DaemonTicks => self.daemon_ticks(),
            Step::DiskWrote(ticket) => self.disk_wrote(ticket),
            Step::DiskRead(ticket) => self.disk_read(ticket),
            Step::DiskReserved(ticket) => self.disk_reserved(ticket),
            Step::ControlAnswers => self.control_answers(),
            Step::ControlTakes => self.control_takes_next(),
            Step::Measured => self.reports_measures(),
            Step::Knocks(program) => self.knocks(program),
            Step::Born(process) => self.born(process),
            Step::Births(process) => self.births(process),
            Step::Hellos(process) => self.hellos(process),
            Step::Hangs(process) => self.hangs(process),
            Step::IsDeaf(process) => self.is_deaf(process),
            Step::Closes(process) => self.closes(process),
            Step::Unmaps(process) => self.unmaps(process),
            Step::Ends(process) => self.ends(process),
            Step::Reports(process) => self.reports(process),
            Step::Examined(process) => self.examined(process),
            Step::Dies(process) => {
                self.dies(process, hoplo_wire::node::DeathCause::Signaled { signal: 9 })
            }
            Step::ClientReads(process) => self.client_reads(process),
            Step::Drains(process) => self.drains(process),
            Step::Ticks(process) => self.ticks(process),
            Step::Goes(process) => self.goes(process),
            Step::Unviews(process, view) => self.unviews(process, view),
            Step::SomebodyAsks => self.somebody_asks(),
            Step::Tells(process, round) => self.tells_late(process, round),
            Step::SaysMore(process) => self.says_more(process),
            Step::ToolLeaves(tool) => self.tool_leaves(tool),
            Step::CarrierTurns => self.carrier_turns(),
            Step::CarrierTicks => self.carrier_ticks(),
            Step::DaemonHears => self.daemon_hears(),
            Step::Dialled(wire) => self.dialled(wire),
            Step::Arrives(wire, lane) => self.arrives(wire, lane),
            Step::Joins(at) => self.joins(at),
            Step::SaysWhere(at) => self.says_where(at),
            Step::HearsRows => self.hears_rows(),
            Step::HeadReads => self.head_reads(),
            Step::Verdict(node) => self.is_declared_dead(node),
            Step::HeadBegins => self.head_begins(),
            Step::HeadIsSilent => self.head_is_silent(),
            Step::IsFenced => self.is_fenced(),
            Step::Leaves => self.leaves(),
            Step::LinkFault => self.link_fault(),
            Step::NodeFalls(node) => self.node_falls(node),
            Step::Fault => self.fault(),
            Step::GroupsEnd => self.groups_end(),
            Step::DriversDone => self.drivers_done(),
        }
    }

    /// At this node.
    pub fn at(&mut self, at: Instant, step: Step) {
        self.at_node(self.here.number, at, step);
    }

    pub fn at_node(&mut self, node: NodeNumber, at: Instant, step: Step) {
        self.next += 1;
        self.queue.insert((at.max(self.now), self.next, node, step));
    }

    /// So many programs begin here, soon.
    pub fn drivers_come(&mut self, count: u32) {
        for _ in 0..count {
            let program = self.rng.next();
            let delay = self.rng.delay(Duration::from_millis(3));
            self.after(delay, Step::Knocks(program));
        }
    }

    pub fn after(&mut self, delay: Duration, step: Step) {
        self.at(self.now + delay, step);
    }

    /// A driver has finished its program.
    pub fn driver_finished(&mut self) {
        let all = self.drivers.iter().all(|driver| {
            self.clients.get(driver).is_none_or(|client| !client.alive || client.finished)
        });
        if all && self.drivers.len() == self.plan.drivers as usize {
            self.done_soon();
        }
    }

    /// The drivers have finished, and time has passed since.
    pub fn is_done(&self) -> bool {
        self.done_at.is_some_and(|at| self.now >= at)
    }

    fn done_soon(&mut self) {
        self.done_at = Some(self.now + SETTLES_WITHIN);
        self.at_node(self.head(), self.now + SETTLES_WITHIN, Step::DriversDone);
    }

    pub fn head(&self) -> NodeNumber {
        if self.plan.nodes == 1 { self.here.number } else { self.leader }
    }

    /// It died, and nobody has come in its place.
    pub fn is_headless(&self) -> bool {
        self.host(self.head()).dead
    }

    /// At some time.
    pub fn lost_a_head(&self) -> bool {
        self.is_headless() || self.head() != number(0)
    }

    pub fn is_led_by(&mut self, head: NodeNumber) {
        self.leader = head;
    }

    /// They have dropped everything and time has passed: what is left is a leak. Then they exit.
    fn drivers_done(&mut self) {
        // Drivers end more than once (by themselves, killed, with their node): the last time counts.
        if !self.is_done() {
            return;
        }
        if self.is_headless() {
            return self.done_soon();
        }
        let unfinished = self.clients.values().any(|it| it.alive && it.session.unfinished() > 0);
        // What the last of them released is on its way.
        let was_unfinished = std::mem::replace(&mut self.was_unfinished, unfinished);
        if self.drained < 1 || ((unfinished || was_unfinished) && self.drained < 20) {
            self.drained += 1;
            // Replies that nobody waits for lie in their rings until the next call: this is it.
            for id in self.clients.keys().copied().collect::<Vec<_>>() {
                if self.clients[&id].alive {
                    self.goes_to(id.node());
                    self.drain(id);
                }
            }
            return self.done_soon();
        }
        self.check_wills();
        // Over slow links the last words take their time.
        if self.ends_detached() || self.hosts().any(|host| !host.dead && host.carrier.is_busy()) {
            return self.done_soon();
        }
        self.check_leaks();
        self.check_answers();
        if self.plan.stops {
            self.count("orderly stops");
            for node in self.living() {
                self.goes_to(node);
                self.happens(Event::Stop { why: "asked for".to_string() });
            }
            return;
        }
        for driver in self.drivers.clone() {
            if self.clients.get(&driver).is_some_and(|client| client.alive) {
                self.goes_to(driver.node());
                self.dies(driver, hoplo_wire::node::DeathCause::Exited { code: 0 });
            }
        }
    }

    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if !self.story.is_written() {
            return;
        }
        let line = line();
        if self.plan.prints {
            eprintln!("{:>12.6}ms {}", self.now.0 as f64 / 1e6, shorten(&line));
        }
        self.story.note(self.now, line);
    }

    /// Who waits for what.
    pub fn whats_up(&self) -> String {
        let mut text = String::new();
        for client in self.clients.values().filter(|client| client.alive) {
            text += &client.whats_up();
        }
        for host in self.hosts().filter(|host| !host.dead) {
            text += &host.daemon.whats_up();
            if self.plan.nodes > 1 {
                text += &host.carrier.whats_up();
            }
        }
        text
    }
}

impl Cluster {
    pub fn count(&mut self, what: &'static str) {
        self.counts.add(what);
    }

    pub fn summary(&self) -> crate::Summary {
        let mut counts = self.counts.clone();
        counts.set("steps", self.steps);
        counts.set("calls", self.books.submitted);
        counts.set("processes", self.kernel.len() as u64);
        crate::Summary { counts }
    }
}
