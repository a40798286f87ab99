//! The head of a cluster and its nodes, and the queue of what happens when.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hoplo_base::{Instant, Map, NodeId, NodeNumber, ResourceSet};
use hoplo_core::control::replica::{Event as Asked, Replica, ReplicaOptions};
use hoplo_core::control::{Entry, MemoryStore, NodeEntry, NodeState};
use hoplo_core::members::{Event as Judged, Judge, beat};
use hoplo_core::node::{Config, Event, Node};
use hoplo_core::objects;
use hoplo_wire::control::{
    ChainConfig, ClientId, Epoch, Member as Listed, Op, ReplicaId, Request, ShardId, Table,
};
use hoplo_wire::peer::Peer;

use super::words::{Heard, Kind, Making, Member, Said, What};
use super::{Costs, Meter, Server};

/// At the head's desk.
#[derive(Default)]
pub(super) struct Joining {
    /// In the order in which they came.
    pub(super) knocking: VecDeque<u32>,
    pub(super) at_desk: usize,
    /// Those that have asked, and those whom the clerk gives numbers.
    pub(super) asking: VecDeque<u32>,
    pub(super) numbering: Vec<u32>,
    /// Answers of the store, since the clerk took these up.
    pub(super) heard: u32,
    pub(super) seq: u64,
}

pub struct Plane {
    pub(super) costs: Costs,
    pub meter: Meter,
    pub(super) now: u64,
    queue: BTreeMap<(u64, u64), What>,
    next: u64,
    pub(super) cpus: f64,

    pub(super) store: Replica,
    pub(super) node: Node,
    pub(super) judge: Judge,
    pub(super) decider: Server,
    pub(super) carrier: Server,
    pub(super) desk: Server,
    pub(super) clerk: Server,
    pub(super) to_decider: VecDeque<Said>,
    pub(super) to_carrier: VecDeque<Heard>,
    pub(super) decider_turns_at: Option<u64>,
    pub(super) carrier_turns_at: Option<u64>,
    pub(super) store_tick_at: Option<u64>,
    pub(super) node_tick_at: Option<u64>,
    pub(super) judge_tick_at: Option<u64>,
    /// Verdicts that the store is asked for: by what it is asked under.
    pub(super) verdicts: BTreeMap<u64, u64>,
    pub(super) seq: u64,
    /// The node table as the head reads it: rows with their versions and entries.
    pub(super) rows: BTreeMap<NodeNumber, (NodeEntry, u64, u64)>,
    pub(super) joining: Joining,

    /// The n-th node; the first one is the head and is not here.
    pub(super) members: BTreeMap<u32, Member>,
    pub(super) probes: u64,
    /// Of nodes that live.
    pub(super) false_verdicts: u64,
    pub(super) verdicts_stored: u64,
    pub(super) last_verdict_at: u64,
    pub(super) last_heard_at: u64,
    /// How often all rows were read, since all had passed some death.
    pub(super) settlings: u64,
    pub(super) frames: u64,
    pub(super) flushes: u64,
    pub(super) refusals: BTreeMap<String, u64>,
    /// So many of the first nodes that join are real.
    pub(super) samples: u32,
    /// By entry of the store: what the row says that it wrote.
    pub(super) kinds: Map<u64, Kind>,
    /// The entry by which the last node of all said where it is, and how many nodes have not heard of it.
    pub(super) last_place: Option<u64>,
    pub(super) all_nodes: usize,
    pub(super) placed: usize,
    pub(super) ready: usize,
    pub(super) unknown: usize,
    pub(super) heard_deaths_at: u64,
    pub(super) making: Option<Making>,
    /// How long a node that works waits before it tells its load again.
    pub(super) load_every: Option<u64>,
    /// Nodes that are connected with each other; and by node how much it told another one of claims.
    /// That deciders of nodes said to those of others; and by kind those to heirs, of stand-ins and of real nodes.
    pub(super) words: u64,
    pub(super) to_heirs: BTreeMap<&'static str, [u64; 2]>,
    /// By real nodes, in the turn that is under way: who, to whom.
    pub(super) said: Vec<(NodeNumber, NodeNumber, Box<Peer>)>,
    pub(super) linked: BTreeSet<(NodeNumber, NodeNumber)>,
    pub(super) claims_said: BTreeMap<(u32, NodeNumber), u64>,
    /// Of all jobs, as the head's store has them; absent if that does not matter.
    pub(super) actors: Option<MemoryStore>,
}

/// A cluster where nothing happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Idle {
    pub seconds: f64,
    /// Of one core.
    pub decider: f64,
    pub carrier: f64,
    /// The longest that anything waited for the carrier.
    pub carrier_waited_ms: f64,
    pub probes: u64,
    pub declared_dead: u64,
}

pub(super) const SHARD: ShardId = ShardId(0);
/// The head's own, and the desk's.
pub(super) const OWN: ClientId = ClientId(1);
pub(super) const DESK: ClientId = ClientId(2);
pub(super) const EPOCH: Epoch = Epoch(2);
const BEGIN: u64 = 1_000_000_000;

impl Plane {
    /// A head, and nobody else. `samples` of the nodes will be real ones.
    pub fn new(costs: Costs, meter: Meter) -> Self {
        let now = BEGIN;
        let head = number(0);
        let mut plane = Self {
            costs,
            meter,
            now,
            queue: BTreeMap::new(),
            next: 0,
            cpus: 16.0,
            store: store(),
            node: Node::new(config(head, 16.0), Instant(now)),
            judge: Judge::new(Instant(now)),
            decider: Server::default(),
            carrier: Server::default(),
            desk: Server::default(),
            clerk: Server::default(),
            to_decider: VecDeque::new(),
            to_carrier: VecDeque::new(),
            decider_turns_at: None,
            carrier_turns_at: None,
            store_tick_at: None,
            node_tick_at: None,
            judge_tick_at: None,
            verdicts: BTreeMap::new(),
            seq: 0,
            rows: BTreeMap::new(),
            joining: Joining::default(),
            members: BTreeMap::new(),
            probes: 0,
            false_verdicts: 0,
            verdicts_stored: 0,
            last_verdict_at: 0,
            last_heard_at: 0,
            settlings: 0,
            frames: 0,
            flushes: 0,
            refusals: BTreeMap::new(),
            samples: 0,
            kinds: Map::default(),
            last_place: None,
            all_nodes: 0,
            placed: 0,
            ready: 0,
            unknown: 0,
            heard_deaths_at: 0,
            making: None,
            load_every: None,
            words: 0,
            to_heirs: BTreeMap::new(),
            said: Vec::new(),
            linked: BTreeSet::new(),
            claims_said: BTreeMap::new(),
            actors: None,
        };
        plane.judge.handle(Instant(now), Judged::Acts(true), &mut Vec::new());
        let watch = Request::Subscribe {
            shard: SHARD,
            epoch: EPOCH,
            subscription: 1,
            table: Table::Node,
            prefix: Vec::new(),
            after: 0,
            credit: u32::MAX,
        };
        plane.decides(Said::Request { from: OWN, request: watch });
        let row = row(0, "head", NodeState::Alive, 16.0);
        plane.writes(vec![put(&row, Some(0))]);
        plane.run_for(100_000_000);
        plane
    }

    /// A cluster of so many nodes, the head among them, as it is long after the last of them joined. `samples` of them are real.
    pub fn joined(nodes: u32, samples: u32, costs: Costs, meter: Meter) -> Self {
        let mut plane = Self::new(costs, meter);
        // They are there before the judge hears of them, and looks.
        for at in 1..nodes {
            plane.members.insert(at, Member::joined(at));
            // Not in step.
            let phase = u64::from(at) * 7_919_000 % beat(nodes as usize).as_nanos() as u64;
            plane.after(phase, What::Beats(at));
        }
        let rows = |at| put(&plane.row(at, NodeState::Alive), Some(0));
        let ops: Vec<Op> = (1..nodes).map(rows).collect();
        for some in ops.chunks(1000) {
            plane.writes(some.to_vec());
            plane.run_for(50_000_000);
        }
        for at in 1..nodes {
            let sample = (at <= samples).then(|| plane.real(at));
            let mut member = plane.members.remove(&at).expect("it lives");
            member.sample = sample;
            plane.subscribes(&mut member);
            plane.members.insert(at, member);
        }
        plane.run_for(2_000_000_000);
        plane.begin();
        plane
    }

    /// What happened until now is not counted.
    pub(super) fn begin(&mut self) {
        self.meter.begin();
        self.decider.begin();
        self.carrier.begin();
        self.desk.begin();
        self.clerk.begin();
        (self.probes, self.false_verdicts, self.verdicts_stored) = (0, 0, 0);
        (self.settlings, self.words) = (0, 0);
        self.to_heirs.clear();
        (self.frames, self.flushes) = (0, 0);
        self.members.values_mut().for_each(|member| member.decider.begin());
    }

    /// Nothing but heartbeats, for so long.
    pub fn idles(&mut self, seconds: f64) -> Idle {
        self.begin();
        self.run_for((seconds * 1e9) as u64);
        let share = |server: &Server| server.busy as f64 / 1e9 / seconds;
        Idle {
            seconds,
            decider: share(&self.decider),
            carrier: share(&self.carrier),
            carrier_waited_ms: self.carrier.waited_most as f64 / 1e6,
            probes: self.probes,
            declared_dead: self.false_verdicts,
        }
    }

    pub(super) fn at(&mut self, at: u64, what: What) {
        self.next += 1;
        self.queue.insert((at.max(self.now), self.next), what);
    }

    pub(super) fn after(&mut self, ns: u64, what: What) {
        self.at(self.now + ns, what);
    }

    pub(super) fn run_for(&mut self, ns: u64) {
        self.run_until(self.now + ns, |_| false);
    }

    /// Until this is so, or it is that late. Whether it is so.
    pub(super) fn run_until(&mut self, end: u64, is_over: impl Fn(&Self) -> bool) -> bool {
        while let Some(((at, _), _)) = self.queue.first_key_value() {
            if *at > end {
                break;
            }
            let ((at, _), what) = self.queue.pop_first().expect("it was just looked at");
            self.now = self.now.max(at);
            self.happens(what);
            if is_over(self) {
                return true;
            }
        }
        self.now = self.now.max(end);
        is_over(self)
    }

    fn happens(&mut self, what: What) {
        match what {
            What::Decider => self.decider_turns(),
            What::ToDecider(said) => self.decides(said),
            What::Carrier => self.carrier_turns(),
            What::ToCarrier(heard) => self.carries(heard),
            What::Knocks(at) => self.knocks(at),
            What::Asks(at) => self.asks_to_join(at),
            What::Certified(at) => self.certified(at),
            What::Admitted(at) => self.admitted(at),
            What::Answers(at, responses) => self.answered(at, responses),
            What::Ready(at) => self.is_ready(at),
            What::Beats(at) => self.beats(at),
            What::Ticks(at) => self.sample_ticks(at),
            What::Word(at, from, message) => self.hears_word(at, from, message),
            What::Actor(at) => self.actor_lives(at),
            What::Load(at, free) => self.tells_load(at, free),
        }
    }

    /// A real node that has heard of all rows.
    fn real(&mut self, at: u32) -> Box<Node> {
        let mut node = Box::new(Node::new(config(number(at), self.cpus), Instant(self.now)));
        let mut effects = Vec::new();
        let me = number(at);
        let others = self.rows.iter().filter(|(it, _)| **it != me);
        let last = self.rows.get(&me).map(|row| (&me, row));
        for (_, (entry, _, index)) in others.chain(last) {
            let (entry, index) = (Box::new(entry.clone()), *index);
            node.handle(Instant(self.now), Event::Member { entry, index }, &mut effects);
        }
        self.after(0, What::Ticks(at));
        node
    }

    pub(super) fn row(&self, at: u32, state: NodeState) -> NodeEntry {
        row(at, "10.0.0.1:6379", state, self.cpus)
    }
}

pub(super) fn number(at: u32) -> NodeNumber {
    NodeNumber::first_given(at)
}

/// Which node that is.
pub(super) fn place(number: NodeNumber) -> u32 {
    number.number() - NodeNumber::first_given(0).number()
}

pub(super) fn put(entry: &NodeEntry, expected: Option<u64>) -> Op {
    Op::Put { key: entry.key(), value: entry.to_value(), expected, finished: false }
}

pub(super) fn row(at: u32, address: &str, state: NodeState, cpus: f64) -> NodeEntry {
    NodeEntry {
        node: number(at),
        head: at == 0,
        hostname: format!("host-{at}"),
        resources: resources(cpus),
        labels: BTreeMap::from([("hoplo.io/python".to_string(), "cpython-3.11.7".to_string())]),
        store_bytes: 8 << 30,
        session_dir: format!("/tmp/hoplo/session-2026-01-01-{at:06}"),
        pid: 1000,
        address: address.to_string(),
        state,
    }
}

fn resources(cpus: f64) -> ResourceSet {
    ResourceSet::from_units([("CPU", cpus), ("memory", 64e9)]).expect("finite amounts")
}

pub(super) fn config(node: NodeNumber, cpus: f64) -> Config {
    Config {
        node,
        resources: resources(cpus),
        objects: objects::Config::new(1 << 30),
        session_dir: String::new(),
        keeps_rows: true,
        clustered: true,
        slots_resting: hoplo_base::limits::SLOTS_RESTING,
        processes_max: hoplo_base::limits::PROCESSES_MAX,
    }
}

/// A chain of one, as in a head's daemon.
fn store() -> Replica {
    let me = ReplicaId { node: NodeId(1), incarnation: 1 };
    let mut options = ReplicaOptions::new(me, SHARD);
    // As `hoplo_control::embedded` has it.
    options.memory_bytes = 128 << 20;
    options.snapshot_bytes = 16 << 20;
    options.cold_is_empty = true;
    let mut store = Replica::new(options, Instant(BEGIN));
    store.handle(Instant(BEGIN), Asked::ReplayDone, &mut Vec::new());
    let chain = |epoch, unbegun| ChainConfig {
        shard: SHARD,
        epoch,
        members: vec![Listed { replica: me, address: String::new() }],
        joining: None,
        added: None,
        old_tail_gone: true,
        history: Epoch::first(),
        unbegun,
    };
    let mut upto = 0;
    for config in [chain(Epoch(1), true), chain(EPOCH, false)] {
        let mut effects = Vec::new();
        store.handle(Instant(BEGIN), Asked::Configured(config), &mut effects);
        upto = super::words::logged(&effects).unwrap_or(upto);
        store.handle(Instant(BEGIN), Asked::Logged { upto }, &mut Vec::new());
    }
    store
}
