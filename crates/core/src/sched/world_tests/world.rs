//! Several daemons, a head, owners of tasks, and the time between them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hoplo_base::{Instant, JobId, LeaseId, NodeNumber, ProcessId, ResourceSet};
use hoplo_wire::node::{PythonEnv, Shape};

use super::daemon::{Daemon, Message, Out};
use crate::sched::claim::{Claimant, Stuck};
use crate::sched::place::Place;
use crate::sched::{GlobalScheduler, broker, global, local};

pub const WIRE: Duration = Duration::from_millis(1);
pub const FORK: Duration = Duration::from_millis(8);
/// How long an environment is made, and how long it is kept then.
const MAKING: Duration = Duration::from_millis(300);
const KEPT: Duration = Duration::from_millis(250);
/// Between two reports of one node.
const REPORT: Duration = Duration::from_millis(2);

#[derive(Clone, Debug)]
enum Happens {
    Message { from: NodeNumber, to: NodeNumber, message: Message },
    Head(global::Event),
    Report { node: NodeNumber },
    Member { to: NodeNumber, event: broker::Event },
    Forked { node: NodeNumber, lease: LeaseId },
    Made { node: NodeNumber, python: PythonEnv },
    Gone { node: NodeNumber, python: PythonEnv },
    Done { owner: ProcessId, lease: LeaseId },
    Kill { node: NodeNumber },
    Join { place: Place },
}

/// A process with tasks of one shape, who asks for leases as a session does.
pub struct Owner {
    pub shape: Shape,
    pub queue: u32,
    pub takes: Duration,
    pub asked: u32,
    /// Where each is, and whether a task runs there.
    pub leases: BTreeMap<LeaseId, (NodeNumber, bool)>,
    recalled: BTreeSet<LeaseId>,
    pub done: u32,
    /// How many ran at each node, and when the first began.
    pub ran: BTreeMap<NodeNumber, (u32, Instant)>,
    pub told: Vec<Option<Stuck>>,
}

pub struct World {
    pub now: Instant,
    pub daemons: BTreeMap<NodeNumber, Daemon>,
    pub global: GlobalScheduler,
    pub owners: BTreeMap<ProcessId, Owner>,
    /// Where each placed actor is.
    pub placed: BTreeMap<Claimant, NodeNumber>,
    pub seeks: u32,
    /// Processes of nodes that were killed.
    dead: BTreeMap<NodeNumber, Vec<ProcessId>>,
    queue: BTreeMap<(Instant, u64), Happens>,
    /// Of wires that are not equally fast: microseconds more at most, and what draws them.
    pub jitter_us: u64,
    drawn: u64,
    /// When the last message of each wire arrives; each is first in, first out. The head is `None`.
    wires: BTreeMap<(Option<NodeNumber>, Option<NodeNumber>), Instant>,
    sequence: u64,
    reporting: BTreeSet<NodeNumber>,
}

pub fn node(number: u32) -> NodeNumber {
    (0..number).fold(NodeNumber::first_given(0), |node, _| node.next_given())
}

pub fn units(units: &[(&str, f64)]) -> ResourceSet {
    ResourceSet::from_units(units.iter().copied()).unwrap()
}

pub fn place(number: u32, cpus: f64) -> Place {
    Place { node: node(number), labels: BTreeMap::new(), total: units(&[("CPU", cpus)]) }
}

impl World {
    pub fn new(places: Vec<Place>) -> Self {
        let mut world = Self {
            now: Instant(1_000_000_000),
            daemons: BTreeMap::new(),
            global: GlobalScheduler::new(7),
            owners: BTreeMap::new(),
            placed: BTreeMap::new(),
            seeks: 0,
            dead: BTreeMap::new(),
            queue: BTreeMap::new(),
            jitter_us: 0,
            drawn: 1,
            wires: BTreeMap::new(),
            sequence: 0,
            reporting: BTreeSet::new(),
        };
        for place in places {
            world.join(place);
        }
        world.run_for(Duration::from_millis(20));
        world
    }

    pub fn join_at(&mut self, after: Duration, place: Place) {
        self.plan(after, Happens::Join { place });
    }

    pub fn kill_at(&mut self, after: Duration, node: NodeNumber) {
        self.plan(after, Happens::Kill { node });
    }

    pub fn owner(
        &mut self,
        at: NodeNumber,
        shape: Shape,
        tasks: u32,
        takes: Duration,
    ) -> ProcessId {
        let id = ProcessId::new(at, 1 + self.owners.len() as u32, 1);
        self.owners.insert(
            id,
            Owner {
                shape,
                queue: tasks,
                takes,
                asked: 0,
                leases: BTreeMap::new(),
                recalled: BTreeSet::new(),
                done: 0,
                ran: BTreeMap::new(),
                told: Vec::new(),
            },
        );
        self.turn(id);
        id
    }

    pub fn demand(&mut self, id: ProcessId, wanted: u32) {
        let claimant = Claimant::Demand { process: id, key: 1 };
        let (shape, held) = (self.owners[&id].shape.clone(), ResourceSet::new());
        let event = broker::Event::Demanded { claimant, job: JobId(1), shape, held, wanted };
        self.tell_broker(id.node(), event);
    }

    pub fn tell_broker(&mut self, at: NodeNumber, event: broker::Event) {
        let now = self.now;
        self.at(at, |daemon, out| daemon.ask_broker(now, event, out));
    }

    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
        self.now = end;
    }

    /// Until it is so, or this time is over.
    pub fn run_until(&mut self, time: Duration, mut so: impl FnMut(&World) -> bool) -> bool {
        let end = self.now + time;
        while !so(self) {
            if !self.step(end) {
                return so(self);
            }
        }
        true
    }

    fn step(&mut self, end: Instant) -> bool {
        let first = self.queue.first_key_value().map(|((at, _), _)| *at);
        let deadlines = self.daemons.values().filter_map(Daemon::next_deadline);
        let timer = deadlines.chain(self.global.next_deadline()).min();
        let Some(at) = first.into_iter().chain(timer).min().filter(|at| *at <= end) else {
            return false;
        };
        self.now = self.now.max(at);
        if timer.is_some_and(|timer| timer <= at) {
            self.tick();
        } else {
            let (_, happens) = self.queue.pop_first().unwrap();
            self.happen(happens);
        }
        true
    }

    fn tick(&mut self) {
        let now = self.now;
        if self.global.next_deadline().is_some_and(|at| at <= now) {
            self.head(global::Event::Tick);
        }
        let nodes: Vec<_> = self.daemons.keys().copied().collect();
        for node in nodes {
            if self.daemons[&node].next_deadline().is_some_and(|at| at <= now) {
                self.at(node, |daemon, out| daemon.tick(now, out));
            }
        }
    }

    fn happen(&mut self, happens: Happens) {
        let now = self.now;
        match happens {
            Happens::Message { from, to, message } => {
                if self.daemons.contains_key(&from) {
                    self.at(to, |daemon, out| daemon.on_message(now, from, message, out));
                }
            }
            Happens::Head(event) => self.head(event),
            Happens::Report { node } => {
                self.reporting.remove(&node);
                if let Some(daemon) = self.daemons.get(&node) {
                    let load = daemon.scheduler.load();
                    let event = global::Event::Reported { node, load };
                    self.wire(Some(node), None, Happens::Head(event));
                }
            }
            Happens::Member { to, event } => {
                let dead = match &event {
                    broker::Event::Gone { node } => self.dead.get(node).cloned(),
                    _ => None,
                };
                self.at(to, |daemon, out| {
                    daemon.ask_broker(now, event, out);
                    for process in dead.into_iter().flatten() {
                        daemon.ask_scheduler(now, local::Event::ProcessGone { process }, out);
                    }
                });
            }
            Happens::Forked { node, lease } => {
                self.at(node, |daemon, out| daemon.forked(now, lease, out));
            }
            Happens::Made { node, python } => {
                self.plan(KEPT, Happens::Gone { node, python: python.clone() });
                let made = local::Event::EnvironmentMade { python };
                self.at(node, |daemon, out| daemon.ask_scheduler(now, made, out));
            }
            Happens::Gone { node, python } => {
                let gone = local::Event::EnvironmentGone { python };
                self.at(node, |daemon, out| daemon.ask_scheduler(now, gone, out));
            }
            Happens::Done { owner, lease } => {
                let Some(it) = self.owners.get_mut(&owner) else { return };
                if let Some((_, busy)) = it.leases.get_mut(&lease) {
                    *busy = false;
                    it.done += 1;
                    self.turn(owner);
                }
            }
            Happens::Kill { node } => self.kill(node),
            Happens::Join { place } => self.join(place),
        }
    }

    fn join(&mut self, place: Place) {
        let node = place.node;
        self.daemons.insert(node, Daemon::new(place.clone()));
        self.plan(WIRE, Happens::Head(global::Event::Joined { place: place.clone() }));
        let others: Vec<_> = self.daemons.values().map(|it| it.broker_place()).collect();
        for other in others {
            if other.node != node {
                let event = broker::Event::Joined { place: other.clone() };
                self.plan(WIRE, Happens::Member { to: node, event });
                let event = broker::Event::Joined { place: place.clone() };
                self.plan(WIRE, Happens::Member { to: other.node, event });
            }
        }
    }

    fn kill(&mut self, dead: NodeNumber) {
        self.daemons.remove(&dead);
        let theirs = self.owners.keys().filter(|owner| owner.node() == dead);
        self.dead.insert(dead, theirs.copied().collect());
        self.owners.retain(|owner, _| owner.node() != dead);
        let verdict = Duration::from_millis(50);
        self.plan(verdict, Happens::Head(global::Event::Gone { node: dead }));
        let live: Vec<_> = self.daemons.keys().copied().collect();
        for to in live {
            let event = broker::Event::Gone { node: dead };
            self.plan(verdict + WIRE, Happens::Member { to, event });
        }
        // Its tasks run again.
        for id in self.owners.keys().copied().collect::<Vec<_>>() {
            let owner = self.owners.get_mut(&id).unwrap();
            let lost = owner.leases.values().filter(|(at, busy)| *at == dead && *busy).count();
            owner.leases.retain(|_, (at, _)| *at != dead);
            owner.queue += lost as u32;
            self.turn(id);
        }
    }

    fn head(&mut self, event: global::Event) {
        let mut effects = Vec::new();
        self.global.handle(self.now, event, &mut effects);
        self.global.check();
        for global::Effect::Answer { asker, seek, found } in effects {
            let message = Message::Found { seek, found };
            let message = Happens::Message { from: asker, to: asker, message };
            self.wire(None, Some(asker), message);
        }
    }

    fn at(&mut self, node: NodeNumber, tell: impl FnOnce(&mut Daemon, &mut Vec<Out>)) {
        let Some(daemon) = self.daemons.get_mut(&node) else { return };
        let before = daemon.scheduler.load();
        let mut out = Vec::new();
        tell(daemon, &mut out);
        if daemon.scheduler.load() != before && self.reporting.insert(node) {
            self.plan(REPORT, Happens::Report { node });
        }
        for effect in out {
            self.carry_out(node, effect);
        }
    }

    fn carry_out(&mut self, here: NodeNumber, effect: Out) {
        match effect {
            Out::Send { to, message } => {
                self.wire(Some(here), Some(to), Happens::Message { from: here, to, message });
            }
            Out::Seek { seek, shape, wanted } => {
                self.seeks += u32::from(wanted > 0);
                let event = global::Event::Sought { asker: here, seek, shape, wanted };
                self.wire(Some(here), None, Happens::Head(event));
            }
            Out::Make { python } => self.plan(MAKING, Happens::Made { node: here, python }),
            Out::Fork { lease } => self.plan(FORK, Happens::Forked { node: here, lease }),
            Out::Granted { claimant, lease, node, .. } => match claimant {
                Claimant::Demand { process, .. } => {
                    let Some(owner) = self.owners.get_mut(&process) else { return };
                    owner.asked = owner.asked.saturating_sub(1);
                    owner.leases.insert(lease, (node, false));
                    self.turn(process);
                }
                Claimant::Actor { .. } => drop(self.placed.insert(claimant, node)),
            },
            Out::Recall { process, lease } => {
                let Some(owner) = self.owners.get_mut(&process) else { return };
                if owner.leases.contains_key(&lease) {
                    owner.recalled.insert(lease);
                }
                self.turn(process);
            }
            Out::Tell { claimant, stuck } => {
                let Claimant::Demand { process, .. } = claimant else { return };
                if let Some(owner) = self.owners.get_mut(&process) {
                    owner.told.push(stuck);
                }
            }
        }
    }

    /// The owner begins what it can, gives back what it does not need, and says what it wants.
    fn turn(&mut self, id: ProcessId) {
        let now = self.now;
        let Some(owner) = self.owners.get_mut(&id) else { return };
        let idle = owner.leases.iter().filter(|(_, (_, busy))| !busy);
        let idle: Vec<_> = idle.map(|(lease, (at, _))| (*lease, *at)).collect();
        let (mut begun, mut back) = (Vec::new(), Vec::new());
        for (lease, at) in idle {
            if owner.queue > 0 && !owner.recalled.contains(&lease) {
                owner.queue -= 1;
                owner.leases.insert(lease, (at, true));
                owner.ran.entry(at).or_insert((0, now)).0 += 1;
                begun.push(lease);
            } else {
                owner.leases.remove(&lease);
                owner.recalled.remove(&lease);
                back.push((lease, at));
            }
        }
        let (takes, wanted, asked) = (owner.takes, owner.queue.min(1024), owner.asked);
        let more = wanted > asked && (asked == 0 || wanted >= 2 * asked);
        let says = more || (wanted == 0 && asked > 0);
        if says {
            owner.asked = wanted;
        }
        for lease in begun {
            self.plan(takes, Happens::Done { owner: id, lease });
        }
        for (lease, at) in back {
            let message = Message::Returned { process: id, lease };
            if at == id.node() {
                let event = local::Event::Returned { process: id, lease };
                self.at(at, |daemon, out| daemon.ask_scheduler(now, event, out));
            } else {
                let from = id.node();
                self.wire(Some(from), Some(at), Happens::Message { from, to: at, message });
            }
        }
        if says {
            self.demand(id, wanted);
        }
    }

    fn wire(&mut self, from: Option<NodeNumber>, to: Option<NodeNumber>, happens: Happens) {
        self.drawn = self.drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let more = Duration::from_micros((self.drawn >> 33) % (self.jitter_us + 1));
        let last = self.wires.get(&(from, to)).copied().unwrap_or(Instant::ZERO);
        let at = (self.now + WIRE + more).max(last);
        self.wires.insert((from, to), at);
        self.plan(at.since(self.now), happens);
    }

    fn plan(&mut self, after: Duration, happens: Happens) {
        self.sequence += 1;
        self.queue.insert((self.now + after, self.sequence), happens);
    }
}

impl Daemon {
    fn broker_place(&self) -> Place {
        self.broker.here().clone()
    }
}
