//! The head of some shards dies: three control nodes, real replicas, a real coordinator, and a real client of the store for each node.
//!
//! ```text
//!   clients (one a node) --updates--> head of the shard --> middle --> tail --answers--> clients
//!        ^-- new configuration, to each of them --- coordinator (on another control node) <-- its connection ended
//! ```
//! Each control node is one server, as its process has one thread for all of this. Disks are not modelled: what is appended is stable at
//! once. The document lies in a file: changed after `DOCUMENT_NS`.
//!
//! Or (`stored`) nobody dies, and the clients are nodes that make actors.

mod stored;

use std::collections::BTreeMap;
use std::time::Duration;

use hoplo_base::limits::HEARTBEAT;
use hoplo_base::{Instant, NodeId};
use hoplo_core::control::client::{Call, Client, ClientOptions, Effect as Wants, Event as Comes};
use hoplo_core::control::coordinator::{
    Coordinator, CoordinatorOptions, Effect as Orders, Event as Hears, Probe,
};
use hoplo_core::control::replica::{Effect, Event, Replica, ReplicaOptions};
use hoplo_wire::control::{
    ClientId, ClusterConfig, ClusterId, Epoch, FromCoordinator, Key, Member, Op, ReplicaId,
    Request, ShardId, Speaker, Table, ToCoordinator,
};
use serde::Serialize;

use super::words::encoded_bytes;
use super::{Costs, Meter, Server};
use stored::Making;
pub use stored::Stored;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failover {
    pub clients: u32,
    /// Updates that were answered, and how long one took before anything happened.
    pub updates: u64,
    pub usual_ms: f64,
    /// The longest that one took across the death of the head.
    pub worst_ms: f64,
    /// Until the last client has the new configuration.
    pub told_ms: f64,
    pub resent: u64,
    /// The busiest control node after the death: seconds of one core.
    pub busiest_s: f64,
}

const NODES: u64 = 3;
/// Holds the coordinator that acts, and is head of no shard that dies.
const ACTING: u64 = 1;
const DYING: u64 = 0;
const SHARDS: u16 = 4;
const DOCUMENT_NS: u64 = 3_000_000;
const PERIOD_NS: u64 = 1_000_000_000;
/// For all messages of a client that wait for their turn.
const CALL_WITHIN: Duration = Duration::from_secs(60);

enum What {
    Replica(u64, ShardId, Event),
    Coordinator(Hears),
    Client(u32, Comes),
    /// Its node and what it hears of the configuration.
    Configured(u64, ClusterConfig),
    Beats,
    Calls(u32),
    Ticks,
    Dies,
    /// One more actor of this node lives.
    Actor(u32),
}

struct World {
    costs: Costs,
    meter: Meter,
    shards: u16,
    now: u64,
    next: u64,
    queue: BTreeMap<(u64, u64), What>,
    servers: Vec<Server>,
    dead: bool,
    replicas: BTreeMap<(u64, ShardId), Replica>,
    coordinator: Coordinator,
    document: Option<(u64, ClusterConfig)>,
    clients: Vec<Client>,
    begun: BTreeMap<(u32, u64), u64>,
    call: u64,
    calls_stop: bool,
    answered: u64,
    worst: u64,
    sum: u64,
    told_at: u64,
    resent: u64,
    epoch: u64,
    making: Option<Making>,
}

/// One update of each client a second, and then a control node ends.
pub fn head_of_a_shard_dies(clients: u32, costs: Costs, meter: Meter) -> (Failover, Meter) {
    let mut world = World::new(clients, SHARDS, costs, meter);
    world.after(0, What::Beats);
    world.after(0, What::Ticks);
    world.run_until(5_000_000_000);
    for at in 0..clients {
        let phase = u64::from(at) * PERIOD_NS / u64::from(clients);
        world.after(phase, What::Calls(at));
    }
    world.run_until(world.now + 2_000_000_000);
    let usual_ms = world.sum as f64 / world.answered.max(1) as f64 / 1e6;
    (world.worst, world.resent) = (0, 0);
    world.servers.iter_mut().for_each(Server::begin);
    world.meter.begin();
    let died = world.now;
    world.after(0, What::Dies);
    world.run_until(died + 2_000_000_000);
    world.calls_stop = true;
    world.run_until(died + 10_000_000_000);
    assert!(world.begun.is_empty(), "{} updates were never answered", world.begun.len());
    let busiest = world.servers.iter().map(|server| server.busy).max().unwrap_or(0);
    let found = Failover {
        clients,
        updates: world.answered,
        usual_ms,
        worst_ms: world.worst as f64 / 1e6,
        told_ms: world.told_at.saturating_sub(died) as f64 / 1e6,
        resent: world.resent,
        busiest_s: busiest as f64 / 1e9,
    };
    (found, world.meter)
}

fn id(node: u64) -> ReplicaId {
    ReplicaId { node: NodeId(node), incarnation: 1 }
}

fn member(node: u64) -> Member {
    Member { replica: id(node), address: format!("host-{node}") }
}

fn client_id(at: u32) -> ClientId {
    ClientId(1000 + u64::from(at))
}

impl World {
    fn new(clients: u32, shards: u16, costs: Costs, meter: Meter) -> Self {
        let now = 1_000_000_000;
        let options = CoordinatorOptions {
            me: member(ACTING),
            cluster: ClusterId(1),
            shards,
            replication: NODES as u8,
            founded: Epoch::first(),
        };
        let client = |at: u32| {
            let options = ClientOptions { me: client_id(at), coordinators: vec!["host-1".into()] };
            Client::new(options, Instant(now))
        };
        let mut world = Self {
            costs,
            meter,
            shards,
            now,
            next: 0,
            queue: BTreeMap::new(),
            servers: vec![Server::default(); NODES as usize],
            dead: false,
            replicas: BTreeMap::new(),
            coordinator: Coordinator::new(options, Instant(now)),
            document: None,
            clients: (0..clients).map(client).collect(),
            begun: BTreeMap::new(),
            call: 0,
            calls_stop: false,
            answered: 0,
            worst: 0,
            sum: 0,
            told_at: 0,
            resent: 0,
            epoch: 0,
            making: None,
        };
        for node in 0..NODES {
            let message = ToCoordinator::Register { member: member(node), holds: Vec::new() };
            let heard = Hears::Heard { from: Speaker::Replica(id(node)), message };
            world.after(1000, What::Coordinator(heard));
        }
        world
    }

    fn after(&mut self, ns: u64, what: What) {
        self.at(self.now + ns, what);
    }

    fn at(&mut self, at: u64, what: What) {
        self.next += 1;
        self.queue.insert((at.max(self.now), self.next), what);
    }

    fn run_until(&mut self, end: u64) {
        while self.queue.first_key_value().is_some_and(|((at, _), _)| *at <= end) {
            let ((at, _), what) = self.queue.pop_first().expect("it was just looked at");
            self.now = self.now.max(at);
            self.happens(what);
        }
        self.now = end;
    }

    fn lives(&self, node: u64) -> bool {
        !(self.dead && node == DYING)
    }

    fn happens(&mut self, what: What) {
        match what {
            What::Replica(node, shard, event) => self.replica(node, shard, event),
            What::Coordinator(event) => self.coordinator(event),
            What::Client(at, event) => self.client(at, event),
            What::Configured(node, config) => self.configured(node, &config),
            What::Beats => self.beats(),
            What::Calls(at) => self.calls(at),
            What::Ticks => self.ticks(),
            What::Dies => self.dies(),
            What::Actor(at) => self.actor_lives(at),
        }
    }

    // ---- control nodes ----

    /// That thread has worked so long for it; returns when it is done.
    fn works(&mut self, node: u64, ns: u64) -> u64 {
        self.servers[node as usize].takes(self.now, ns)
    }

    fn replica(&mut self, node: u64, shard: ShardId, event: Event) {
        if !self.lives(node) {
            return;
        }
        let Some(replica) = self.replicas.get_mut(&(node, shard)) else { return };
        let what = match &event {
            Event::Request { .. } => "replica: a request",
            Event::Peer { .. } => "replica: a neighbour's word",
            Event::Configured(_) => "replica: a configuration",
            _ => "replica: another event",
        };
        let now = Instant(self.now);
        let mut effects = Vec::new();
        let heard = match &event {
            Event::Request { request, .. } => encoded_bytes(request),
            Event::Peer { message, .. } => encoded_bytes(message),
            _ => 0,
        };
        let mut appended = false;
        let mut ns = self.costs.receive
            + self.costs.kilobyte * heard / 1000
            + self.meter.run(what, || {
                replica.handle(now, event, &mut effects);
                while let Some(upto) = super::words::logged(&effects) {
                    appended = true;
                    effects.retain(|effect| !matches!(effect, Effect::Append { .. }));
                    replica.handle(now, Event::Logged { upto }, &mut effects);
                }
                effects.len()
            });
        if appended {
            ns += self.costs.log;
        }
        for effect in &effects {
            ns += match effect {
                Effect::Send { message, .. } => self.says(message),
                Effect::Respond { response, .. } => self.says(response),
                _ => 0,
            };
        }
        let done = self.works(node, ns) + self.costs.way;
        for effect in effects {
            match effect {
                Effect::Send { to, message } => {
                    let shard = message.shard;
                    let event = Event::Peer { from: id(node), message };
                    self.at(done, What::Replica(to.node.0, shard, event));
                }
                Effect::Respond { to, response } => {
                    let at = (to.0 - 1000) as u32;
                    self.at(done, What::Client(at, Comes::Response { from: id(node), response }));
                }
                Effect::CaughtUp { shard, epoch } => {
                    let message = ToCoordinator::CaughtUp { replica: id(node), shard, epoch };
                    self.reports(done, node, message);
                }
                Effect::WantConfig { .. } => {
                    if let Some((_, config)) = self.document.clone() {
                        self.at(done, What::Configured(node, config));
                    }
                }
                _ => {}
            }
        }
    }

    /// What it takes to say that.
    fn says(&mut self, message: &impl Serialize) -> u64 {
        let mut bytes = Vec::new();
        let ns = self.meter.run("replica: what it says is encoded", || {
            hoplo_wire::node::encode(message, &mut bytes);
            bytes.len()
        });
        ns + self.costs.flush + self.costs.kilobyte * bytes.len() as u64 / 1000
    }

    fn reports(&mut self, at: u64, node: u64, message: ToCoordinator) {
        let from = Speaker::Replica(id(node));
        self.at(at, What::Coordinator(Hears::Heard { from, message }));
    }

    fn coordinator(&mut self, event: Hears) {
        let (now, coordinator) = (Instant(self.now), &mut self.coordinator);
        let mut effects = Vec::new();
        let ns = self.meter.run("coordinator: an event", || {
            coordinator.handle(now, event, &mut effects);
            effects.len()
        });
        let done = self.works(ACTING, self.costs.receive + ns);
        for effect in effects {
            match effect {
                Orders::Probe { ticket, member } => {
                    let lives = self.lives(member.replica.node.0);
                    let found = if lives { Probe::Alive } else { Probe::Refused };
                    let at = done + self.costs.way * 3;
                    self.at(at, What::Coordinator(Hears::Probed { ticket, found }));
                }
                Orders::Load { ticket } => {
                    let document = self.document.clone();
                    let loaded = Hears::Loaded { ticket, document };
                    self.at(done + DOCUMENT_NS, What::Coordinator(loaded));
                }
                Orders::Store { ticket, expected, config } => {
                    let revision = self.document.as_ref().map(|(revision, _)| *revision);
                    let event = if revision == expected {
                        let revision = revision.unwrap_or(0) + 1;
                        self.document = Some((revision, config));
                        Hears::Stored { ticket, revision }
                    } else {
                        Hears::Conflict { ticket }
                    };
                    self.at(done + DOCUMENT_NS, What::Coordinator(event));
                }
                Orders::Announce(config) => self.announces(&config),
                Orders::Answer { to: Speaker::Client(client), message } => {
                    let at = (client.0 - 1000) as u32;
                    let sent = self.works(ACTING, self.costs.flush + self.costs.frame);
                    self.at(sent + self.costs.way, What::Client(at, Comes::Told { message }));
                }
                Orders::Answer { .. } => {}
            }
        }
    }

    /// To all who are connected, one after the other.
    fn announces(&mut self, config: &ClusterConfig) {
        self.epoch = config.shards.iter().map(|chain| chain.epoch.0).sum();
        let each = self.costs.flush + self.costs.frame;
        for node in 0..NODES {
            let sent = self.works(ACTING, each) + self.costs.way;
            self.at(sent, What::Configured(node, config.clone()));
        }
        for at in 0..self.clients.len() as u32 {
            let sent = self.works(ACTING, each) + self.costs.way;
            let message = FromCoordinator::Config(config.clone());
            self.at(sent, What::Client(at, Comes::Told { message }));
        }
    }

    fn configured(&mut self, node: u64, config: &ClusterConfig) {
        for chain in &config.shards {
            let mine = chain.members.iter().any(|member| member.replica == id(node));
            if mine {
                let now = Instant(self.now);
                self.replicas.entry((node, chain.shard)).or_insert_with(|| {
                    let mut options = ReplicaOptions::new(id(node), chain.shard);
                    options.cold_is_empty = true;
                    let mut replica = Replica::new(options, now);
                    replica.handle(now, Event::ReplayDone, &mut Vec::new());
                    replica
                });
            }
            self.replica(node, chain.shard, Event::Configured(chain.clone()));
        }
    }

    fn beats(&mut self) {
        for node in (0..NODES).filter(|node| self.lives(*node)).collect::<Vec<_>>() {
            let held = self.replicas.iter().filter(|((of, _), _)| *of == node);
            let acts = held.filter_map(|(_, it)| Some((it.status().shard, it.status().acts?)));
            let message = ToCoordinator::Heartbeat { replica: id(node), epochs: acts.collect() };
            self.reports(self.now + self.costs.way, node, message);
        }
        self.after(HEARTBEAT.as_nanos() as u64, What::Beats);
    }

    /// Once in 10 ms everybody looks whether it is time for something.
    fn ticks(&mut self) {
        let now = Instant(self.now);
        if self.coordinator.next_deadline().is_some_and(|at| at <= now) {
            self.coordinator(Hears::Tick);
        }
        let due =
            self.replicas.iter().filter(|(_, it)| it.next_deadline().is_some_and(|at| at <= now));
        for (node, shard) in due.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.replica(node, shard, Event::Tick);
        }
        let due = |client: &Client| client.next_deadline().is_some_and(|at| at <= now);
        let due = self.clients.iter().enumerate().filter(|(_, client)| due(client));
        for at in due.map(|(at, _)| at as u32).collect::<Vec<_>>() {
            self.client(at, Comes::Tick);
        }
        self.after(10_000_000, What::Ticks);
    }

    fn dies(&mut self) {
        self.dead = true;
        let heard = self.costs.way;
        let replica = id(DYING);
        self.after(heard, What::Coordinator(Hears::Lost { from: Speaker::Replica(replica) }));
        for node in 1..NODES {
            for shard in (0..self.shards).map(ShardId) {
                self.after(heard, What::Replica(node, shard, Event::PeerGone { replica }));
            }
        }
        for at in 0..self.clients.len() as u32 {
            self.after(heard, What::Client(at, Comes::Lost { replica }));
        }
    }

    // ---- clients ----

    fn calls(&mut self, at: u32) {
        if self.calls_stop {
            return;
        }
        self.call += 1;
        let (call, now) = (self.call, Instant(self.now));
        let key = Key { table: Table::Kv, bytes: format!("key-{at}-{call}").into_bytes() };
        let (value, finished) = (vec![0; 200], false);
        let what = Call::Update(vec![Op::Put { key, value, expected: None, finished }]);
        self.begun.insert((at, call), self.now);
        self.client(at, Comes::Call { call, what, deadline: now + CALL_WITHIN });
        self.after(PERIOD_NS, What::Calls(at));
    }

    fn client(&mut self, at: u32, event: Comes) {
        let (now, client) = (Instant(self.now), &mut self.clients[at as usize]);
        let is_config = matches!(event, Comes::Told { message: FromCoordinator::Config(_) });
        let is_lost = matches!(event, Comes::Lost { .. });
        let mut effects = Vec::new();
        self.meter.run("client: an event", || {
            client.handle(now, event, &mut effects);
            effects.len()
        });
        if is_config && self.dead {
            self.told_at = self.told_at.max(self.now);
        }
        for effect in effects {
            match effect {
                Wants::Connect(member) => {
                    let (replica, lives) = (member.replica, self.lives(member.replica.node.0));
                    let event = match lives {
                        true => Comes::Connected { replica },
                        false => Comes::Lost { replica },
                    };
                    self.after(self.costs.way * 3, What::Client(at, event));
                }
                Wants::Send { to, request } => {
                    let updates = matches!(request, Request::Update { .. });
                    self.resent += u64::from(updates && (is_config || is_lost));
                    let event = Event::Request { from: client_id(at), request };
                    let shard = match &event {
                        Event::Request { request, .. } => request.shard(),
                        _ => unreachable!("it was made just now"),
                    };
                    self.after(self.costs.way, What::Replica(to.node.0, shard, event));
                }
                Wants::Tell { message, .. } => {
                    let from = Speaker::Client(client_id(at));
                    self.after(self.costs.way, What::Coordinator(Hears::Heard { from, message }));
                }
                Wants::Finish { result, .. } if self.making.is_some() => {
                    self.is_saved(at, result.map(drop));
                }
                Wants::Finish { call, result } => {
                    let began = self.begun.remove(&(at, call)).expect("it was begun");
                    assert!(result.is_ok(), "{result:?}");
                    self.answered += 1;
                    self.sum += self.now - began;
                    self.worst = self.worst.max(self.now - began);
                }
                Wants::Disconnect(_) | Wants::Changes { .. } | Wants::Missed { .. } => {}
            }
        }
    }
}
