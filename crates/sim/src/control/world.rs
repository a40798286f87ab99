//! Processes, clients and the config store under one clock, and the queue of what happens when.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hoplo_base::{Instant, NodeId};
use hoplo_core::control::coordinator::Event as CoordinatorEvent;
use hoplo_core::control::replica::Event as ReplicaEvent;
use hoplo_wire::control::{ClientId, Epoch, Query, ReplicaId, ShardId};

use super::clients::ClientProcess;
use super::counts::{Counts, What};
use super::disk::Disk;
use super::invariants::linear::History;
use super::invariants::truth::Truth;
use super::network::{Arrange, Arrived, End, Kind, Message, Network};
use super::plan::{Clock, Plan};
use super::process::{Input, Process};
use super::sabotage::Sabotage;
use super::short::short;
use super::store::ConfigStore;
use crate::rng::Rng;
use crate::story::Story;

/// What happens at one moment.
#[derive(Debug)]
pub enum Step {
    Deliver {
        connection: u64,
        to: usize,
    },
    Gone {
        connection: u64,
        to: usize,
    },
    ProcessTicks(ReplicaId, Instant),
    /// Something that the process waits for is done.
    Process(ReplicaId, Box<Input>),
    FlushDone {
        process: ReplicaId,
        shard: ShardId,
        upto: u64,
    },
    ColdDone {
        process: ReplicaId,
        shard: ShardId,
        work: Box<super::replicas::ColdWork>,
    },
    Probed {
        process: ReplicaId,
        ticket: u64,
        member: hoplo_wire::control::Member,
    },
    StoreDoes {
        process: ReplicaId,
        work: Box<super::coordinators::StoreWork>,
    },
    Starts(u64),
    Resumes(u64),
    Mends,
    StoreBack,
    DisksWork(u64),
    Fault,
    Heals,
    Unwishes,
    Looks,
    ClientGoes(u64),
    ClientTicks(u64, Instant),
    ClientConsumes(u64, u64, ShardId, u32),
    CoordinatorAbsent(u64, u64),
}

/// A host of control processes.
pub struct Host {
    /// How its processes' clocks run.
    pub clock: Clock,
    /// It never runs again.
    pub buried: bool,
    pub disks: BTreeMap<ShardId, Disk>,
    pub incarnation: u64,
    /// How often the machine was started.
    pub boot: u32,
    pub process: Option<Process>,
    /// No power: nobody says that nobody listens.
    pub dark: bool,
    pub disk_full: bool,
    pub disk_slow: bool,
    /// Up to this incarnation the disk lost what it had acknowledged, or is another one.
    pub lost: u64,
}

pub struct World {
    pub now: Instant,
    pub rng: Rng,
    pub plan: Plan,
    pub sabotage: Option<Sabotage>,
    queue: BTreeMap<(Instant, u64), Step>,
    next: u64,
    pub network: Network,
    pub hosts: BTreeMap<u64, Host>,
    pub clients: BTreeMap<u64, ClientProcess>,
    pub store: ConfigStore,
    /// Probes that were answered, by who asked: the answer is on its way.
    pub answering: BTreeMap<(ReplicaId, u64), ReplicaId>,
    pub truths: BTreeMap<ShardId, Truth>,
    pub queries: BTreeMap<(ClientId, u64), Query>,
    /// The newest epoch in which each replica acted.
    pub acted: BTreeMap<(ShardId, ReplicaId), Epoch>,
    /// Batches that came to a replica.
    pub batches: BTreeSet<(ReplicaId, ShardId, ClientId, u64)>,
    pub history: History,
    pub story: Story,
    pub formed: bool,
    pub healing: bool,
    pub healed: bool,
    pub steps: u64,
    pub calls: u64,
    pub calls_done: u64,
    pub faults: u64,
    pub counts: Counts,
}

/// Everything must be well so long after the last fault.
const HEALS_WITHIN: Duration = Duration::from_secs(60);
const LOOKS_EVERY: Duration = Duration::from_millis(200);
const STEPS_MAX: u64 = 3_000_000;

pub fn host_address(node: u64) -> String {
    format!("host-{node}")
}

pub fn node_of(address: &str) -> u64 {
    address.strip_prefix("host-").and_then(|it| it.parse().ok()).expect("an address of this world")
}

impl World {
    pub fn new(seed: u64, sabotage: Option<Sabotage>) -> Self {
        let mut rng = Rng::new(seed ^ 0x0c0a_77d0);
        let mut plan = Plan::new(&mut rng);
        if let Some(sabotage) = &sabotage {
            sabotage.suits(&mut plan);
        }
        let host = |rng: &mut Rng| Host {
            clock: Clock::new(rng, plan.drift_ppm),
            disks: BTreeMap::new(),
            incarnation: 0,
            boot: 1,
            buried: false,
            process: None,
            dark: false,
            disk_full: false,
            disk_slow: false,
            lost: 0,
        };
        let hosts = (0..plan.nodes).map(|node| (node, host(&mut rng))).collect();
        let now = Instant(1_000_000);
        let clients = (0..plan.clients).map(|number| {
            let clock = Clock::new(&mut rng, plan.drift_ppm).restarted(now);
            (number, ClientProcess::new(number, clock, plan.coordinators, plan.calls, now))
        });
        let clients = clients.collect();
        let shards = (0..plan.shards).map(ShardId);
        let truths = shards.map(|shard| (shard, Truth::new(shard))).collect();
        Self {
            now,
            rng,
            plan,
            sabotage,
            queue: BTreeMap::new(),
            next: 0,
            network: Network::default(),
            hosts,
            clients,
            store: ConfigStore::default(),
            answering: BTreeMap::new(),
            truths,
            queries: BTreeMap::new(),
            acted: BTreeMap::new(),
            batches: BTreeSet::new(),
            history: History::default(),
            story: Story::default(),
            formed: false,
            healing: false,
            healed: false,
            steps: 0,
            calls: 0,
            calls_done: 0,
            faults: 0,
            counts: Counts::default(),
        }
    }

    /// Runs to the end, or panics with what does not hold. Returns what `check_the_end` does.
    pub fn run(&mut self) -> usize {
        for host in self.hosts.values() {
            if host.clock.drifts() {
                self.counts.add(What::ClockDrifts);
            }
        }
        for node in 0..self.plan.nodes {
            let delay = self.rng.delay(Duration::from_millis(50));
            self.after(delay, Step::Starts(node));
        }
        for number in 0..self.plan.clients {
            if self.rng.one_in(2) {
                self.client_subscribes(number);
            }
            self.client_event(number, hoplo_core::control::client::Event::Tick);
            self.after(Duration::from_millis(1), Step::ClientGoes(number));
        }
        let until = self.plan.faults.as_ref().map_or(Instant(1_000_000_000), |it| it.until);
        if self.plan.faults.is_some() {
            self.after(Duration::from_millis(100), Step::Fault);
        }
        self.at(until, Step::Heals);
        let deadline = until + HEALS_WITHIN;
        while !self.healed {
            assert!(self.now < deadline, "it does not heal:\n{}", self.whats_up());
            self.steps_once();
        }
        let undecided = self.check_the_end();
        if self.plan.ends_in_loss {
            self.loses_everything();
        }
        undecided
    }

    pub fn steps_once(&mut self) {
        let ((at, _), step) = self.queue.pop_first().expect("there is always a tick");
        self.now = self.now.max(at);
        self.steps += 1;
        assert!(self.steps < STEPS_MAX, "no end of steps:\n{}", self.whats_up());
        self.step(step);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Deliver { connection, to } => self.deliver(connection, to),
            Step::Gone { connection, to } => self.gone(connection, to),
            Step::ProcessTicks(process, at) => self.process_ticks(process, at),
            Step::Process(process, input) => self.input(process, *input),
            Step::FlushDone { process, shard, upto } => self.flush_done(process, shard, upto),
            Step::ColdDone { process, shard, work } => self.cold_done(process, shard, *work),
            Step::Probed { process, ticket, member } => self.probed(process, ticket, &member),
            Step::StoreDoes { process, work } => self.store_does(process, *work),
            Step::Starts(node) => self.starts(node),
            Step::Resumes(node) => self.resumes(node),
            Step::Mends => self.mends(),
            Step::StoreBack => self.store.away = false,
            Step::DisksWork(node) => self.disks_work(node),
            Step::Fault => self.fault(),
            Step::Heals => self.heals(),
            Step::Unwishes => self.unwish_all(),
            Step::Looks => self.looks(),
            Step::ClientGoes(number) => self.client_goes(number),
            Step::ClientTicks(number, at) => self.client_ticks(number, at),
            Step::ClientConsumes(number, subscription, shard, changes) => {
                self.client_consumes(number, subscription, shard, changes);
            }
            Step::CoordinatorAbsent(number, node) => self.coordinator_absent(number, node),
        }
    }

    pub fn at(&mut self, at: Instant, step: Step) {
        self.next += 1;
        self.queue.insert((at.max(self.now), self.next), step);
    }

    pub fn after(&mut self, delay: Duration, step: Step) {
        self.at(self.now + delay, step);
    }

    pub fn arrange(&mut self, arrange: impl IntoIterator<Item = Arrange>) {
        for it in arrange {
            match it {
                Arrange::Deliver { connection, to, at } => {
                    self.at(at, Step::Deliver { connection, to });
                }
                Arrange::Gone { connection, to, at } => self.at(at, Step::Gone { connection, to }),
            }
        }
    }

    pub fn send(&mut self, from: End, to: End, kind: Kind, message: Message) {
        let Some(message) = self.sabotaged(from, to, message) else { return };
        let doubles = self.plan.faults.as_ref().is_some_and(|faults| faults.doubles);
        if doubles && self.faulty() && self.rng.one_in(30) && message.may_double() {
            self.counts.add(What::MessageDoubled);
            self.sends(from, to, kind, message.clone());
        }
        self.sends(from, to, kind, message);
    }

    fn sends(&mut self, from: End, to: End, kind: Kind, message: Message) {
        let (now, max) = (self.now, self.plan.delay_max);
        let arrange = self.network.send(now, &mut self.rng, max, (from, to, kind), message);
        if let Some(Arrange::Deliver { at, .. }) = arrange {
            if at.since(now) > Duration::from_millis(10) {
                self.counts.add(What::MessageLate);
            }
            if self.network.overtakes(from, to, at) {
                self.counts.add(What::MessageOvertaken);
            }
        }
        self.arrange(arrange);
    }

    pub fn hangs_up(&mut self, from: End, to: End, kind: Kind) {
        if let Some(connection) = self.network.used(from, to, kind) {
            let arrange = self.network.breaks(self.now, &mut self.rng, connection, Duration::ZERO);
            self.arrange(arrange);
        }
    }

    pub fn process(&self, id: ReplicaId) -> Option<&Process> {
        self.hosts.get(&id.node.0)?.process.as_ref().filter(|process| process.id == id)
    }

    /// The process that runs there now.
    pub fn process_at(&self, node: u64) -> Option<ReplicaId> {
        self.hosts.get(&node)?.process.as_ref().map(|process| process.id)
    }

    fn is_paused(&self, end: End) -> bool {
        match end {
            End::Process(id) => self.process(id).is_some_and(|process| process.paused),
            End::Client(_) => false,
        }
    }

    fn deliver(&mut self, connection: u64, to: usize) {
        let Some((here, there, kind)) = self.network.ends(connection, to) else { return };
        if let End::Process(id) = here
            && self.process(id).is_none()
        {
            let dark = self.hosts[&id.node.0].dark;
            let heard = if dark { Duration::from_secs(1) } else { Duration::ZERO };
            let arrange = self.network.breaks(self.now, &mut self.rng, connection, heard);
            return self.arrange(arrange);
        }
        if self.is_paused(here) {
            return;
        }
        match self.network.arrived(self.now, connection, to) {
            Arrived::Message(message) => self.hears(here, there, kind, message),
            Arrived::Replaces(message) => {
                self.loses(here, there, kind);
                self.hears(here, there, kind, message);
            }
            Arrived::Nothing => {}
        }
    }

    fn hears(&mut self, here: End, there: End, kind: Kind, message: Message) {
        match here {
            End::Process(id) => self.input(id, Input::Message { from: there, message }),
            End::Client(number) => self.client_hears(number, there, kind, message),
        }
    }

    fn gone(&mut self, connection: u64, to: usize) {
        let Some((here, there, kind)) = self.network.ends(connection, to) else { return };
        if self.network.hears_end(connection, to) {
            self.loses(here, there, kind);
        }
    }

    fn loses(&mut self, here: End, there: End, kind: Kind) {
        match here {
            End::Process(id) => self.input(id, Input::Gone { from: there, kind }),
            End::Client(number) => self.client_loses(number, there, kind),
        }
    }

    /// Nobody is ready while somebody is not.
    fn looks(&mut self) {
        if self.is_well() {
            self.healed = true;
        } else {
            self.after(LOOKS_EVERY, Step::Looks);
        }
    }

    pub fn heals(&mut self) {
        self.healing = true;
        self.note(|| "no more faults".to_string());
        self.mends();
        self.store.away = false;
        for node in 0..self.plan.nodes {
            self.disks_work(node);
            self.resumes(node);
            if self.hosts[&node].process.is_none() {
                self.after(Duration::from_millis(1), Step::Starts(node));
            }
        }
        self.unwish_all();
        self.after(LOOKS_EVERY, Step::Looks);
    }

    pub fn faulty(&self) -> bool {
        !self.healing
    }

    pub fn note(&mut self, line: impl FnOnce() -> String) {
        let line = line();
        if self.plan.prints {
            eprintln!("{:>12.6}ms {}", self.now.0 as f64 / 1e6, short(&line));
        }
        self.story.note(self.now, line);
    }

    pub fn id_of(node: u64, incarnation: u64) -> ReplicaId {
        ReplicaId { node: NodeId(node), incarnation }
    }

    pub fn later_input(&mut self, delay: Duration, process: ReplicaId, event: CoordinatorEvent) {
        self.after(delay, Step::Process(process, Box::new(Input::Coordinator(event))));
    }

    pub fn later_replica(
        &mut self,
        delay: Duration,
        process: ReplicaId,
        shard: ShardId,
        event: ReplicaEvent,
    ) {
        self.after(delay, Step::Process(process, Box::new(Input::Replica(shard, event))));
    }
}
