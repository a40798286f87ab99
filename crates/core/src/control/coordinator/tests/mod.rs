//! A coordinator in a small world: a document in memory, processes that live, are silent or gone.

mod acting;
mod beginning;
mod joining;
mod leaving;
mod restoring;

use std::collections::BTreeMap;
use std::time::Duration;

use hoplo_base::{Instant, NodeId, limits};
use hoplo_wire::control::{
    ChainConfig, ClusterConfig, ClusterId, Epoch, FromCoordinator, Holding, Member, ReplicaId,
    ShardId, Speaker, ToCoordinator, Wish,
};

use super::{Coordinator, CoordinatorOptions, Effect, Event, Left, Loss, Probe};

const CLUSTER: ClusterId = ClusterId(7);
const SHARD: ShardId = ShardId(0);

struct World {
    now: Instant,
    coordinators: Vec<Coordinator>,
    document: Option<(u64, ClusterConfig)>,
    reachable: bool,
    /// What a probe of it finds.
    processes: BTreeMap<ReplicaId, Probe>,
    /// It says heartbeats with this epoch.
    beats: BTreeMap<ReplicaId, u64>,
    announced: Vec<ClusterConfig>,
    answers: Vec<(Speaker, FromCoordinator)>,
}

fn id(node: u64, incarnation: u64) -> ReplicaId {
    ReplicaId { node: NodeId(node), incarnation }
}

fn member(id: ReplicaId) -> Member {
    Member { replica: id, address: format!("{}:{}", id.node.0, id.incarnation) }
}

fn holding(logged: u64, epoch: u64) -> Holding {
    Holding { shard: SHARD, config: Epoch(epoch), logged, epoch: Epoch(epoch) }
}

/// One that has just begun, and its clock with it.
fn coordinator(me: ReplicaId, replication: u8, shards: u16) -> Coordinator {
    let founded = Epoch::first();
    let options =
        CoordinatorOptions { me: member(me), cluster: CLUSTER, shards, replication, founded };
    Coordinator::new(options, Instant::ZERO)
}

impl World {
    fn new(coordinators: u64, replication: u8) -> Self {
        Self::with_shards(coordinators, replication, 1)
    }

    fn with_shards(coordinators: u64, replication: u8, shards: u16) -> Self {
        let start = |number: u64| coordinator(id(100 + number, 1), replication, shards);
        let mut world = World {
            // As clocks do that begin with their process.
            now: Instant::ZERO,
            coordinators: (0..coordinators).map(start).collect(),
            document: None,
            reachable: true,
            processes: (0..coordinators).map(|it| (id(100 + it, 1), Probe::Alive)).collect(),
            beats: BTreeMap::new(),
            announced: Vec::new(),
            answers: Vec::new(),
        };
        world.all(Event::Tick);
        world
    }

    /// A chain of these nodes, in epoch 1.
    fn formed(replication: u8, nodes: u64) -> Self {
        let mut world = World::new(1, replication);
        for node in 1..=nodes {
            world.registers(id(node, 1), vec![]);
        }
        world.pass(limits::FORM_GRACE);
        world
    }

    fn handle(&mut self, at: usize, event: Event) {
        if !self.processes.contains_key(&self.coordinators[at].options.me.replica) {
            return;
        }
        let mut effects = Vec::new();
        self.coordinators[at].handle(self.now, event, &mut effects);
        self.coordinators[at].check();
        for effect in effects {
            let event = match effect {
                Effect::Probe { ticket, member } => {
                    let found = self.processes.get(&member.replica);
                    Event::Probed { ticket, found: *found.unwrap_or(&Probe::Refused) }
                }
                Effect::Load { ticket } if self.reachable => {
                    Event::Loaded { ticket, document: self.document.clone() }
                }
                Effect::Store { ticket, expected, config } if self.reachable => {
                    let revision = self.document.as_ref().map(|(revision, _)| *revision);
                    if revision == expected {
                        let revision = revision.unwrap_or(0) + 1;
                        self.document = Some((revision, config));
                        Event::Stored { ticket, revision }
                    } else {
                        Event::Conflict { ticket }
                    }
                }
                Effect::Load { ticket } | Effect::Store { ticket, .. } => {
                    Event::Unreachable { ticket, why: "cut".into() }
                }
                Effect::Announce(config) => {
                    self.announced.push(config);
                    continue;
                }
                Effect::Answer { to, message } => {
                    self.answers.push((to, message));
                    continue;
                }
            };
            self.handle(at, event);
        }
    }

    fn all(&mut self, event: Event) {
        for at in 0..self.coordinators.len() {
            self.handle(at, event.clone());
        }
    }

    fn says(&mut self, from: ReplicaId, message: ToCoordinator) {
        self.all(Event::Heard { from: Speaker::Replica(from), message });
    }

    fn registers(&mut self, who: ReplicaId, holds: Vec<Holding>) {
        self.processes.insert(who, Probe::Alive);
        self.beats.insert(who, 0);
        self.says(who, ToCoordinator::Register { member: member(who), holds });
    }

    /// A moment after what it said last.
    fn dies(&mut self, who: ReplicaId) {
        self.now = self.now + Duration::from_millis(1);
        self.processes.remove(&who);
        self.beats.remove(&who);
    }

    fn falls_silent(&mut self, who: ReplicaId) {
        self.processes.insert(who, Probe::Silent);
        self.beats.remove(&who);
    }

    /// The only coordinator dies, and another process takes its place: with a clock of its own, and knowing nobody.
    fn coordinator_restarts(&mut self) {
        let old = self.coordinators.remove(0).options;
        self.processes.remove(&old.me.replica);
        let id = id(old.me.replica.node.0, old.me.replica.incarnation + 1);
        self.processes.insert(id, Probe::Alive);
        self.coordinators.push(coordinator(id, old.replication, old.shards));
        self.now = Instant::ZERO;
        self.all(Event::Tick);
    }

    fn wishes(&mut self, wish: Wish) {
        self.all(Event::Heard {
            from: Speaker::Client(hoplo_wire::control::ClientId(9)),
            message: ToCoordinator::Wished(wish),
        });
    }

    /// Time goes by; who lives says so, and acts in the newest epoch.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now = self.now + Duration::from_millis(50);
            self.all(Event::Tick);
            for (who, epoch) in self.beats.clone() {
                let epochs = if epoch == 0 { vec![] } else { vec![(SHARD, Epoch(epoch))] };
                self.says(who, ToCoordinator::Heartbeat { replica: who, epochs });
            }
        }
    }

    fn acts(&mut self, who: ReplicaId) {
        let epoch = self.chain().epoch;
        self.beats.insert(who, epoch.0);
        let epochs = vec![(SHARD, epoch)];
        self.says(who, ToCoordinator::Heartbeat { replica: who, epochs });
    }

    /// All members have the beginning on disk, and the document says so.
    fn begins(&mut self) {
        for member in self.chain().members.clone() {
            self.acts(member.replica);
        }
        assert!(!self.chain().unbegun);
    }

    fn catches_up(&mut self, who: ReplicaId) {
        let epoch = self.chain().epoch;
        self.says(who, ToCoordinator::CaughtUp { replica: who, shard: SHARD, epoch });
    }

    fn chain(&self) -> &ChainConfig {
        &self.document.as_ref().expect("there is a document").1.shards[0]
    }

    /// `1.1 2.1 +3.1`: members, and who joins.
    fn shape(&self) -> String {
        let name = |it: &Member| format!("{}.{}", it.replica.node.0, it.replica.incarnation);
        let chain = self.chain();
        let mut names: Vec<String> = chain.members.iter().map(name).collect();
        names.extend(chain.joining.iter().map(|it| format!("+{}", name(it))));
        names.join(" ")
    }
}
