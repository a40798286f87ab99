//! A control process: replicas of some shards and perhaps a coordinator, and a shell that does what they ask for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use hoplo_base::{Instant, limits};
use hoplo_core::control::coordinator::{self, Coordinator, CoordinatorOptions};
use hoplo_core::control::replica;
use hoplo_wire::control::{
    ClusterConfig, FromCoordinator, Member, Refusal, ReplicaId, Request, Response, ShardId,
    Speaker, ToCoordinator,
};

use super::counts::What;
use super::network::{End, Kind, Message};
use super::plan::Clock;
use super::replicas::Held;
use super::spins::Spins;
use super::world::{Step, World, host_address};

pub struct Process {
    pub id: ReplicaId,
    pub clock: Clock,
    pub paused: bool,
    inbox: VecDeque<Input>,
    pub held: BTreeMap<ShardId, Held>,
    pub coordinator: Option<Coordinator>,
    tick_at: Option<Instant>,
    heartbeat_at: Instant,
    /// Coordinators that know it.
    pub registered: BTreeSet<ReplicaId>,
    spins: Spins,
}

impl Process {
    /// By its own clock: its heartbeat, its coordinator, its replicas.
    fn deadlines(&self, reads: Instant) -> String {
        let coordinator = self.coordinator.as_ref().and_then(Coordinator::next_deadline);
        let mut text = format!(
            "at {reads:?} {:?} waits for {:?}, its coordinator for {coordinator:?}",
            self.id, self.heartbeat_at
        );
        for held in self.held.values() {
            let (at, status) = (held.replica.next_deadline(), held.replica.status());
            text += &format!("\n{at:?}: {status:?}");
        }
        text
    }
}

/// What a process's loop takes.
#[derive(Debug)]
pub enum Input {
    Message { from: End, message: Message },
    Gone { from: End, kind: Kind },
    Replica(ShardId, replica::Event),
    Coordinator(coordinator::Event),
    Tick,
}

impl World {
    /// A new process on that host, with what lies on its disks.
    pub fn starts(&mut self, node: u64) {
        let now = self.now;
        let host = self.hosts.get_mut(&node).expect("a host");
        if host.process.is_some() || host.buried {
            return;
        }
        host.incarnation += 1;
        if host.incarnation > 1 {
            self.counts.add(What::Restarted);
        }
        host.dark = false;
        let id = World::id_of(node, host.incarnation);
        let clock = host.clock.restarted(now);
        let reads = clock.reads(now);
        let coordinator = (node < self.plan.coordinators).then(|| {
            let options = CoordinatorOptions {
                me: member(id),
                cluster: super::CLUSTER,
                shards: self.plan.shards,
                replication: self.plan.replication,
                founded: super::FOUNDED,
            };
            Coordinator::new(options, reads)
        });
        let shards: Vec<ShardId> = host.disks.keys().copied().collect();
        host.process = Some(Process {
            id,
            clock,
            paused: false,
            inbox: VecDeque::new(),
            held: BTreeMap::new(),
            coordinator,
            tick_at: None,
            heartbeat_at: reads,
            registered: BTreeSet::new(),
            spins: Spins::default(),
        });
        self.note(|| format!("{id:?} starts"));
        for shard in shards {
            self.hold(id, shard);
        }
        self.input(id, Input::Tick);
    }

    /// It dies, by a signal or for lack of power.
    pub fn dies(&mut self, node: u64, power: bool) {
        let host = self.hosts.get_mut(&node).expect("a host");
        let Some(process) = host.process.take() else { return };
        host.dark = power;
        let id = process.id;
        self.counts.add(if power { What::PowerLost } else { What::Killed });
        host.boot += u32::from(power);
        for disk in host.disks.values_mut() {
            let crash = disk.crash(&mut self.rng, power, host.boot);
            if crash.torn {
                self.counts.add(What::LogTorn);
            }
            if crash.lost && !self.plan.log.fsync {
                self.counts.add(What::UnsyncedLost);
                host.lost = id.incarnation;
            }
        }
        self.note(|| format!("{id:?} dies{}", if power { " in the dark" } else { "" }));
        let heard = if power { Duration::from_secs(1) } else { Duration::ZERO };
        for connection in self.network.forget_end(End::Process(id)) {
            let arrange = self.network.breaks(self.now, &mut self.rng, connection, heard);
            self.arrange(arrange);
        }
    }

    pub fn pauses(&mut self, node: u64) {
        if let Some(process) = self.hosts.get_mut(&node).and_then(|host| host.process.as_mut()) {
            process.paused = true;
        }
    }

    pub fn resumes(&mut self, node: u64) {
        let Some(process) = self.hosts.get_mut(&node).and_then(|host| host.process.as_mut()) else {
            return;
        };
        if !process.paused {
            return;
        }
        process.paused = false;
        let (id, inbox) = (process.id, std::mem::take(&mut process.inbox));
        self.note(|| format!("{id:?} goes on"));
        // Its timers fire first or last, as it happens.
        let ticks_first = self.rng.one_in(2);
        if ticks_first {
            self.input(id, Input::Tick);
        }
        for input in inbox {
            self.input(id, input);
        }
        self.input(id, Input::Tick);
        let waiting = self.network.waiting(self.now, Some(node));
        self.arrange(waiting);
    }

    pub fn process_ticks(&mut self, id: ReplicaId, at: Instant) {
        let Some(process) = self.process_mut(id) else { return };
        if process.tick_at == Some(at) {
            process.tick_at = None;
            self.input(id, Input::Tick);
        }
    }

    pub fn process_mut(&mut self, id: ReplicaId) -> Option<&mut Process> {
        self.hosts.get_mut(&id.node.0)?.process.as_mut().filter(|process| process.id == id)
    }

    /// What the process's clock says; absent if it does not run any more.
    pub fn reads(&self, id: ReplicaId) -> Option<Instant> {
        self.process(id).map(|process| process.clock.reads(self.now))
    }

    pub fn input(&mut self, id: ReplicaId, input: Input) {
        let Some(process) = self.process_mut(id) else { return };
        if process.paused {
            process.inbox.push_back(input);
            return;
        }
        let tick = matches!(input, Input::Tick);
        match input {
            Input::Message { from, message } => self.message(id, from, message),
            Input::Gone { from, kind } => self.lost(id, from, kind),
            Input::Replica(shard, event) => self.replica(id, shard, event),
            Input::Coordinator(event) => self.coordinator(id, event),
            Input::Tick => self.tick(id),
        }
        let now = self.now;
        if let Some(process) = self.process_mut(id) {
            if tick { process.spins.tick(now) } else { process.spins.ends() }
        }
        self.arm(id);
    }

    fn arm(&mut self, id: ReplicaId) {
        let now = self.now;
        let Some(process) = self.process_mut(id) else { return };
        let clock = process.clock;
        let replicas = process.held.values().filter_map(|held| held.replica.next_deadline());
        let coordinator = process.coordinator.as_ref().and_then(Coordinator::next_deadline);
        let next = replicas.chain(coordinator).chain([process.heartbeat_at]).min();
        let at = clock.when(next.expect("a heartbeat")).max(Instant(now.0 + 1000));
        let spins = process.spins.is_too_many();
        assert!(!spins, "it spins: {}", process.deadlines(clock.reads(now)));
        if process.tick_at.is_none_or(|armed| at < armed || armed < now) {
            process.tick_at = Some(at);
            self.at(at, Step::ProcessTicks(id, at));
        }
    }

    fn tick(&mut self, id: ReplicaId) {
        let Some(reads) = self.reads(id) else { return };
        let forgets = self.sabotage_forgets_ticks();
        let Some(process) = self.process_mut(id) else { return };
        let due: Vec<ShardId> = process
            .held
            .iter()
            .filter(|(_, held)| held.replica.next_deadline().is_some_and(|at| at <= reads))
            .filter(|_| !forgets)
            .map(|(shard, _)| *shard)
            .collect();
        let look = process.coordinator.is_some();
        let beat = process.heartbeat_at <= reads;
        if beat {
            process.heartbeat_at = reads + limits::HEARTBEAT;
        }
        for shard in due {
            self.replica(id, shard, replica::Event::Tick);
        }
        if look {
            self.coordinator(id, coordinator::Event::Tick);
        }
        if beat {
            self.heartbeat(id);
        }
    }

    fn heartbeat(&mut self, id: ReplicaId) {
        for node in 0..self.plan.coordinators {
            let Some(to) = self.process_at(node) else { continue };
            let process = self.process_mut(id).expect("it beats");
            let mut messages = Vec::new();
            let statuses: Vec<_> = process
                .held
                .values()
                .map(|held| (held.replica.status(), held.replica.holding()))
                .collect();
            let fails = process.held.values().any(|held| held.replica.log_fails());
            if !fails && process.registered.insert(to) {
                let holds = statuses.iter().map(|(_, holding)| *holding);
                let holds = holds.filter(|it| it.logged > 0 || it.epoch.0 > 0).collect();
                messages.push(ToCoordinator::Register { member: member(id), holds });
            }
            let epochs = statuses.iter().filter_map(|(it, _)| Some((it.shard, it.acts?))).collect();
            messages.push(ToCoordinator::Heartbeat { replica: id, epochs });
            for (status, _) in statuses.iter().filter(|(status, _)| status.caught_up) {
                let (shard, epoch) = (status.shard, status.epoch);
                messages.push(ToCoordinator::CaughtUp { replica: id, shard, epoch });
            }
            for message in messages {
                self.reports_to(id, to, message);
            }
        }
    }

    fn reports_to(&mut self, id: ReplicaId, to: ReplicaId, message: ToCoordinator) {
        if id == to {
            let from = Speaker::Replica(id);
            self.coordinator(id, coordinator::Event::Heard { from, message });
        } else {
            let (from, to) = (End::Process(id), End::Process(to));
            self.send(from, to, Kind::Coordinator, Message::Report(message));
        }
    }

    pub fn reports(&mut self, id: ReplicaId, message: ToCoordinator) {
        for node in 0..self.plan.coordinators {
            if let Some(to) = self.process_at(node) {
                self.reports_to(id, to, message.clone());
            }
        }
    }

    fn message(&mut self, id: ReplicaId, from: End, message: Message) {
        match (message, from) {
            (Message::Peer(message), End::Process(from)) => {
                let shard = message.shard;
                self.replica(id, shard, replica::Event::Peer { from, message });
            }
            (Message::Hello, _) => {
                self.send(End::Process(id), from, Kind::Client, Message::Welcome)
            }
            (Message::Request(request), End::Client(number)) => self.request(id, number, request),
            (Message::Report(message), _) => {
                let from = speaker(from);
                self.coordinator(id, coordinator::Event::Heard { from, message });
            }
            (Message::Told(message), End::Process(from)) => self.told(id, from, message),
            (message, from) => panic!("{message:?} from {from:?} at a process"),
        }
    }

    fn request(&mut self, id: ReplicaId, number: u64, request: Request) {
        let shard = request.shard();
        let client = self.clients[&number].id;
        if let Request::Update { seq, .. } = &request
            && !self.batches.insert((id, shard, client, *seq))
        {
            self.counts.add(What::BatchAgain);
        }
        if self.process(id).is_some_and(|process| process.held.contains_key(&shard)) {
            let event = replica::Event::Request { from: client, request };
            return self.replica(id, shard, event);
        }
        let why = Refusal::NotMine("member".to_string());
        let response = match request {
            Request::Update { seq, .. } => Response::UpdateRefused { shard, seq, why },
            Request::Query { request, .. } => Response::QueryRefused { request, why },
            Request::Subscribe { subscription, .. } => {
                Response::SubscriptionEnded { shard, subscription, why }
            }
            Request::Credit { .. } | Request::Unsubscribe { .. } => return,
        };
        let to = End::Client(number);
        self.send(End::Process(id), to, Kind::Client, Message::Response(response));
    }

    fn lost(&mut self, id: ReplicaId, from: End, kind: Kind) {
        match (kind, from) {
            (Kind::Peer, End::Process(replica)) => {
                for shard in self.shards_of(id) {
                    self.replica(id, shard, replica::Event::PeerGone { replica });
                }
            }
            (Kind::Client, End::Client(number)) => {
                let client = self.clients[&number].id;
                for shard in self.shards_of(id) {
                    self.replica(id, shard, replica::Event::ClientGone { client });
                }
            }
            (Kind::Coordinator, _) => {
                if let (End::Process(other), Some(process)) = (from, self.process_mut(id)) {
                    process.registered.remove(&other);
                }
                self.coordinator(id, coordinator::Event::Lost { from: speaker(from) });
            }
            (Kind::Peer, End::Client(_)) | (Kind::Client, End::Process(_)) => {}
        }
    }

    fn shards_of(&self, id: ReplicaId) -> Vec<ShardId> {
        self.process(id).map(|it| it.held.keys().copied().collect()).unwrap_or_default()
    }

    pub fn told(&mut self, id: ReplicaId, from: ReplicaId, message: FromCoordinator) {
        match message {
            FromCoordinator::Config(config) => self.configured(id, config),
            FromCoordinator::NotActing { .. } => {}
            FromCoordinator::Refused { .. } => {
                if let Some(process) = self.process_mut(id) {
                    process.registered.remove(&from);
                }
            }
        }
    }

    pub fn configured(&mut self, id: ReplicaId, config: ClusterConfig) {
        for chain in config.shards {
            let shard = chain.shard;
            let mine = chain.members.iter().chain(&chain.joining).any(|it| it.replica == id);
            let holds = self.process(id).is_some_and(|it| it.held.contains_key(&shard));
            if mine && !holds {
                self.hold(id, shard);
            }
            if mine || holds {
                self.replica(id, shard, replica::Event::Configured(chain));
            }
        }
    }
}

pub fn member(id: ReplicaId) -> Member {
    Member { replica: id, address: host_address(id.node.0) }
}

fn speaker(end: End) -> Speaker {
    match end {
        End::Process(id) => Speaker::Replica(id),
        End::Client(number) => Speaker::Client(hoplo_wire::control::ClientId(100 + number)),
    }
}
