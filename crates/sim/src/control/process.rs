//! A control process: replicas of some shards and perhaps a coordinator, and a shell that does what they ask for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use hoplo_base::{Instant, limits};
use hoplo_core::control::coordinator::{self, Coordinator, CoordinatorOptions, Probe, Revision};
use hoplo_core::control::replica::{self, Replica, ReplicaOptions};
use hoplo_wire::control::{
    ClusterConfig, ClusterId, FromCoordinator, Key, Member, Record, Refusal, ReplicaId, Request,
    Response, Row, ShardId, Speaker, ToCoordinator,
};

use super::network::{End, Kind, Message};
use super::world::{Step, World, host_address};

pub const CLUSTER: ClusterId = ClusterId(0xc1);

pub struct Process {
    pub id: ReplicaId,
    pub paused: bool,
    inbox: VecDeque<Input>,
    pub held: BTreeMap<ShardId, Held>,
    pub coordinator: Option<Coordinator>,
    tick_at: Option<Instant>,
    heartbeat_at: Instant,
    /// Coordinators that know it.
    registered: BTreeSet<ReplicaId>,
    /// Ticks in a row that were due again at once.
    spins: u32,
}

/// A shell that is asked to tick so often in a row for nothing burns its core.
const SPINS_MAX: u32 = 100;

impl Process {
    fn whats_due(&self, reads: Instant) -> String {
        let due = self
            .held
            .values()
            .filter(|held| held.replica.next_deadline().is_some_and(|at| at <= reads));
        let due: Vec<String> = due
            .map(|held| {
                format!("{:?} at {:?}", held.replica.status(), held.replica.next_deadline())
            })
            .collect();
        format!("now {reads:?}, {}", due.join("\n"))
    }
}

/// One replica, and its log in the shell's hands.
pub struct Held {
    pub replica: Replica,
    /// Position in the log, and the number of the record that ends there.
    marks: VecDeque<(u64, u64)>,
    flushing: bool,
    failed: bool,
    /// Entries that this run has seen, by index: what it says it applied must be one of them.
    pub log: BTreeMap<u64, Arc<Record>>,
    cold_at: Instant,
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

#[derive(Debug)]
pub enum ColdWork {
    Write {
        flush: u64,
        clear: Vec<(Option<Key>, Option<Key>)>,
        puts: Vec<(Key, Row)>,
        deletes: Vec<Key>,
    },
    Read {
        attempt: u64,
        key: Key,
    },
    Scan {
        attempt: u64,
        from: Option<Key>,
        until: Option<Key>,
        limit: u32,
    },
}

#[derive(Debug)]
pub enum StoreWork {
    Load { attempt: u64 },
    Store { attempt: u64, expected: Option<Revision>, config: ClusterConfig },
}

const PROBE_TIMEOUT: Duration = Duration::from_millis(200);

impl World {
    /// A new process on that host, with what lies on its disks.
    pub fn starts(&mut self, node: u64) {
        let now = self.now;
        let host = self.hosts.get_mut(&node).expect("a host");
        if host.process.is_some() {
            return;
        }
        host.incarnation += 1;
        host.dark = false;
        let id = World::id_of(node, host.incarnation);
        let reads = host.clock.reads(now);
        let coordinator = (node < self.plan.coordinators).then(|| {
            let options = CoordinatorOptions {
                me: member(id),
                cluster: CLUSTER,
                shards: self.plan.shards,
                replication: self.plan.replication,
            };
            Coordinator::new(options, reads)
        });
        let shards: Vec<ShardId> = host.disks.keys().copied().collect();
        host.process = Some(Process {
            id,
            paused: false,
            inbox: VecDeque::new(),
            held: BTreeMap::new(),
            coordinator,
            tick_at: None,
            heartbeat_at: reads,
            registered: BTreeSet::new(),
            spins: 0,
        });
        self.tell(|| format!("{id:?} starts"));
        for shard in shards {
            self.hold(id, shard);
        }
        self.input(id, Input::Tick);
    }

    /// The process gets a replica of that shard, and its disk if it has one.
    fn hold(&mut self, id: ReplicaId, shard: ShardId) {
        let now = self.now;
        let mut options = ReplicaOptions::new(id, shard);
        options.memory_bytes = self.plan.memory_bytes;
        options.recent_bytes = self.plan.recent_bytes;
        options.snapshot_bytes = self.plan.snapshot_bytes;
        options.session_idle = self.plan.session_idle;
        let host = self.hosts.get_mut(&id.node.0).expect("a host");
        let reads = host.clock.reads(now);
        let disk = host.disks.entry(shard).or_default();
        let records = disk.records();
        let log = records.iter().filter_map(|record| match record.as_ref() {
            Record::Entry(entry) => Some((entry.index, record.clone())),
            Record::Chunk(_) => None,
        });
        let held = Held {
            replica: Replica::new(options, reads),
            marks: VecDeque::new(),
            flushing: false,
            failed: false,
            log: log.collect(),
            cold_at: now,
        };
        let process = host.process.as_mut().expect("it runs");
        process.held.insert(shard, held);
        for record in records {
            let record = record.as_ref().clone();
            self.replica(id, shard, replica::Event::Replayed { record });
        }
        self.replica(id, shard, replica::Event::ReplayDone);
    }

    /// It dies, by a signal or for lack of power.
    pub fn dies(&mut self, node: u64, power: bool) {
        let host = self.hosts.get_mut(&node).expect("a host");
        let Some(process) = host.process.take() else { return };
        host.dark = power;
        for disk in host.disks.values_mut() {
            disk.crash(&mut self.rng, power);
        }
        let id = process.id;
        self.tell(|| format!("{id:?} dies{}", if power { " in the dark" } else { "" }));
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
        self.tell(|| format!("{id:?} goes on"));
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

    fn process_mut(&mut self, id: ReplicaId) -> Option<&mut Process> {
        self.hosts.get_mut(&id.node.0)?.process.as_mut().filter(|process| process.id == id)
    }

    fn reads(&self, id: ReplicaId) -> Instant {
        self.hosts[&id.node.0].clock.reads(self.now)
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
        if !tick && let Some(process) = self.process_mut(id) {
            process.spins = 0;
        }
        self.arm(id);
    }

    fn arm(&mut self, id: ReplicaId) {
        let now = self.now;
        let clock = self.hosts[&id.node.0].clock;
        let Some(process) = self.process_mut(id) else { return };
        let replicas = process.held.values().filter_map(|held| held.replica.next_deadline());
        let coordinator = process.coordinator.as_ref().and_then(Coordinator::next_deadline);
        let next = replicas.chain(coordinator).chain([process.heartbeat_at]).min();
        let at = clock.when(next.expect("a heartbeat")).max(Instant(now.0 + 1000));
        let reads = clock.reads(now);
        let spins = process.spins;
        assert!(spins < SPINS_MAX, "it spins: {}", process.whats_due(reads));
        if process.tick_at.is_none_or(|armed| at < armed || armed < now) {
            process.tick_at = Some(at);
            self.at(at, Step::ProcessTicks(id, at));
        }
    }

    fn tick(&mut self, id: ReplicaId) {
        let reads = self.reads(id);
        let Some(process) = self.process_mut(id) else { return };
        let due: Vec<ShardId> = process
            .held
            .iter()
            .filter(|(_, held)| held.replica.next_deadline().is_some_and(|at| at <= reads))
            .map(|(shard, _)| *shard)
            .collect();
        let look = process.coordinator.is_some();
        let beat = process.heartbeat_at <= reads;
        process.spins = if due.is_empty() { 0 } else { process.spins + 1 };
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
            if process.registered.insert(to) {
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

    fn reports(&mut self, id: ReplicaId, message: ToCoordinator) {
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

    fn told(&mut self, id: ReplicaId, from: ReplicaId, message: FromCoordinator) {
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

    fn configured(&mut self, id: ReplicaId, config: ClusterConfig) {
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

    fn coordinator(&mut self, id: ReplicaId, event: coordinator::Event) {
        let reads = self.reads(id);
        let Some(process) = self.process_mut(id) else { return };
        let Some(coordinator) = &mut process.coordinator else { return };
        let mut effects = Vec::new();
        coordinator.handle(reads, event, &mut effects);
        coordinator.check();
        for effect in effects {
            self.coordinator_effect(id, effect);
        }
    }

    fn coordinator_effect(&mut self, id: ReplicaId, effect: coordinator::Effect) {
        match effect {
            coordinator::Effect::Probe { attempt, member } => {
                let delay = self.rng.delay(self.plan.delay_max) + Duration::from_micros(50);
                self.after(delay, Step::Probed { process: id, attempt, member });
            }
            coordinator::Effect::Load { attempt } => {
                self.asks_store(id, StoreWork::Load { attempt });
            }
            coordinator::Effect::Store { attempt, expected, config } => {
                self.asks_store(id, StoreWork::Store { attempt, expected, config });
            }
            coordinator::Effect::Announce(config) => {
                let chains: Vec<String> = config.shards.iter().map(coordinator::line).collect();
                self.tell(|| format!("{id:?} announces {}", chains.join("; ")));
                let message = FromCoordinator::Config(config.clone());
                for end in self.network.used_by(End::Process(id), Kind::Coordinator) {
                    let message = Message::Told(message.clone());
                    self.send(End::Process(id), end, Kind::Coordinator, message);
                }
                self.configured(id, config);
            }
            coordinator::Effect::Answer { to, message } => {
                let to = match to {
                    Speaker::Replica(to) | Speaker::Coordinator(to) => End::Process(to),
                    Speaker::Client(client) => End::Client(client.0 - 100),
                };
                if to == End::Process(id) {
                    return self.told(id, id, message);
                }
                // Only over the connection over which it asked.
                if self.network.used(End::Process(id), to, Kind::Coordinator).is_some() {
                    let message = Message::Told(message);
                    self.send(End::Process(id), to, Kind::Coordinator, message);
                }
            }
        }
    }

    pub fn probed(&mut self, id: ReplicaId, attempt: u64, member: &Member) {
        let (me, it) = (id.node.0, member.replica.node.0);
        let cut = self.network.is_cut(me, it) || self.network.is_cut(it, me);
        let host = &self.hosts[&it];
        let process = host.process.as_ref();
        let (found, later) = if cut || host.dark {
            (Probe::Silent, PROBE_TIMEOUT)
        } else if process.is_none_or(|process| process.id != member.replica) {
            (Probe::Refused, Duration::ZERO)
        } else if process.is_some_and(|process| process.paused) {
            (Probe::Silent, PROBE_TIMEOUT)
        } else {
            (Probe::Alive, Duration::ZERO)
        };
        let found = self.sabotaged_probe(found);
        let delay = later + self.rng.delay(self.plan.delay_max);
        self.later_input(delay, id, coordinator::Event::Probed { attempt, found });
    }

    fn asks_store(&mut self, id: ReplicaId, work: StoreWork) {
        let delay = self.rng.delay(Duration::from_millis(5));
        self.after(delay, Step::StoreDoes { process: id, work: Box::new(work) });
    }

    /// The store does it, though the one who asked may be dead by now.
    pub fn store_does(&mut self, id: ReplicaId, work: StoreWork) {
        let event = match work {
            StoreWork::Load { attempt } => self.store.load(attempt),
            StoreWork::Store { attempt, expected, config } => {
                let faults = self.plan.faults.as_ref().is_some_and(|faults| faults.store);
                let lost = faults && self.faulty() && self.rng.one_in(20);
                self.store.store(attempt, expected, config, lost)
            }
        };
        let slow = matches!(event, coordinator::Event::Unreachable { .. });
        let delay = if slow { Duration::from_millis(300) } else { Duration::from_millis(2) };
        let delay = self.rng.delay(delay);
        self.later_input(delay, id, event);
    }

    pub fn replica(&mut self, id: ReplicaId, shard: ShardId, event: replica::Event) {
        let reads = self.reads(id);
        if self.plan.prints {
            let line = format!("{id:?} {shard:?} <- {event:?}");
            self.tell(|| line);
        }
        let Some(process) = self.process_mut(id) else { return };
        let Some(held) = process.held.get_mut(&shard) else { return };
        let mut effects = Vec::new();
        held.replica.handle(reads, event, &mut effects);
        held.replica.check();
        for effect in &effects {
            if let replica::Effect::Append { records, .. } = effect {
                for record in records {
                    if let Record::Entry(entry) = record.as_ref() {
                        held.log.insert(entry.index, record.clone());
                    }
                }
            }
        }
        self.observe(id, shard);
        for effect in effects {
            self.replica_effect(id, shard, effect);
        }
    }

    fn replica_effect(&mut self, id: ReplicaId, shard: ShardId, effect: replica::Effect) {
        match effect {
            replica::Effect::Append { records, upto } => {
                let loses = self.sabotage_loses_records();
                let disk = self.disk(id, shard);
                disk.append(records);
                if loses {
                    disk.loses_the_last();
                }
                let end = disk.end();
                self.held(id, shard).marks.push_back((end, upto));
                self.flush(id, shard);
            }
            replica::Effect::Truncate { after } => {
                self.disk(id, shard).truncate(after);
                let held = self.held(id, shard);
                held.log.retain(|index, _| *index <= after);
                self.flush(id, shard);
            }
            replica::Effect::SnapshotDone { snapshot } => {
                self.disk(id, shard).snapshot_done(snapshot);
            }
            replica::Effect::Send { to, message } => {
                let to = End::Process(to);
                self.send(End::Process(id), to, Kind::Peer, Message::Peer(message));
            }
            replica::Effect::Respond { to, response } => self.respond(id, shard, to, response),
            replica::Effect::ColdWrite { flush, clear, puts, deletes } => {
                self.cold(id, shard, ColdWork::Write { flush, clear, puts, deletes });
            }
            replica::Effect::ColdGet { attempt, key } => {
                self.cold(id, shard, ColdWork::Read { attempt, key });
            }
            replica::Effect::ColdScan { attempt, from, until, limit, bytes: _ } => {
                self.cold(id, shard, ColdWork::Scan { attempt, from, until, limit });
            }
            replica::Effect::CaughtUp { shard, epoch } => {
                self.reports(id, ToCoordinator::CaughtUp { replica: id, shard, epoch });
            }
            replica::Effect::Suspect { replica } => {
                let epoch = self.held(id, shard).replica.status().epoch;
                self.tell(|| format!("{id:?} finds {replica:?} silent"));
                self.reports(id, ToCoordinator::Report { shard, epoch, silent: replica });
            }
            replica::Effect::WantConfig { epoch: _ } => {
                self.reports(id, ToCoordinator::WantConfig { known: 0 });
            }
        }
    }

    fn respond(
        &mut self,
        id: ReplicaId,
        shard: ShardId,
        to: hoplo_wire::control::ClientId,
        response: Response,
    ) {
        let query = match &response {
            Response::Answered { request, .. } => self.queries.get(&(to, *request)),
            _ => None,
        };
        self.truths[&shard].check_response(to, &response, query);
        if let Response::Updated { index, .. } = &response {
            self.check_stable_everywhere(id, shard, *index);
        }
        let client = End::Client(to.0 - 100);
        // Only over the connection over which it asked.
        if self.network.used(End::Process(id), client, Kind::Client).is_some() {
            self.send(End::Process(id), client, Kind::Client, Message::Response(response));
        }
    }

    fn disk(&mut self, id: ReplicaId, shard: ShardId) -> &mut super::disk::Disk {
        let host = self.hosts.get_mut(&id.node.0).expect("a host");
        host.disks.get_mut(&shard).expect("who holds a replica has a disk for it")
    }

    fn held(&mut self, id: ReplicaId, shard: ShardId) -> &mut Held {
        let process = self.process_mut(id).expect("it acts");
        process.held.get_mut(&shard).expect("it holds that")
    }

    /// Starts to write what was appended, unless it does or cannot.
    fn flush(&mut self, id: ReplicaId, shard: ShardId) {
        let fsync = self.plan.fsync;
        let slow = self.hosts[&id.node.0].disk_slow;
        let full = self.hosts[&id.node.0].disk_full;
        let end = self.disk(id, shard).end();
        let held = self.held(id, shard);
        if held.flushing || held.failed || held.marks.is_empty() {
            if !full && held.marks.is_empty() && !held.failed && !held.flushing {
                self.disk(id, shard).write(end);
            }
            return;
        }
        if full {
            held.failed = true;
            let why = "no space left on device".to_string();
            return self.later_replica(
                Duration::ZERO,
                id,
                shard,
                replica::Event::LogFailed { why },
            );
        }
        held.flushing = true;
        self.disk(id, shard).write(end);
        let max = self.plan.disk_max * if slow { 20 } else { 1 };
        let delay = if fsync { self.rng.delay(max) } else { Duration::from_nanos(1) };
        self.after(delay, Step::FlushDone { process: id, shard, upto: end });
    }

    pub fn flush_done(&mut self, id: ReplicaId, shard: ShardId, upto: u64) {
        if self.process(id).is_none() {
            return;
        }
        if self.plan.fsync {
            self.disk(id, shard).sync(upto);
        }
        let held = self.held(id, shard);
        held.flushing = false;
        let mut logged = None;
        while held.marks.front().is_some_and(|(end, _)| *end <= upto) {
            logged = held.marks.pop_front().map(|(_, number)| number);
        }
        self.flush(id, shard);
        if let Some(upto) = logged {
            self.input(id, Input::Replica(shard, replica::Event::Logged { upto }));
        }
    }

    /// The disks of that host have room again, and are as fast as before.
    pub fn disks_work(&mut self, node: u64) {
        let host = self.hosts.get_mut(&node).expect("a host");
        (host.disk_full, host.disk_slow) = (false, false);
        let Some(process) = &mut host.process else { return };
        let id = process.id;
        let failed: Vec<ShardId> =
            process.held.iter().filter(|(_, it)| it.failed).map(|(shard, _)| *shard).collect();
        if !failed.is_empty() {
            // It may be used again.
            process.registered.clear();
        }
        for shard in failed {
            self.held(id, shard).failed = false;
            self.later_replica(Duration::ZERO, id, shard, replica::Event::LogBack);
            self.flush(id, shard);
        }
    }

    fn cold(&mut self, id: ReplicaId, shard: ShardId, work: ColdWork) {
        let delay = self.rng.delay(self.plan.disk_max * 2);
        let now = self.now;
        let held = self.held(id, shard);
        held.cold_at = held.cold_at.max(now + delay);
        let at = held.cold_at;
        self.at(at, Step::ColdDone { process: id, shard, work: Box::new(work) });
    }

    pub fn cold_done(&mut self, id: ReplicaId, shard: ShardId, work: ColdWork) {
        if self.process(id).is_none() {
            return;
        }
        let full = self.hosts[&id.node.0].disk_full;
        let disk = self.disk(id, shard);
        let event = match work {
            ColdWork::Write { flush, .. } if full => {
                replica::Event::ColdFailed { number: flush, why: "no space left".to_string() }
            }
            ColdWork::Write { flush, clear, puts, deletes } => {
                disk.cold_write(clear, puts, deletes);
                replica::Event::ColdWritten { flush }
            }
            ColdWork::Read { attempt, key } => {
                let row = disk.cold.get(&key).cloned();
                replica::Event::ColdRow { attempt, row }
            }
            ColdWork::Scan { attempt, from, until, limit } => {
                let (rows, until) = disk.cold_scan(from, until, limit);
                replica::Event::ColdPage { attempt, rows, until }
            }
        };
        self.input(id, Input::Replica(shard, event));
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
