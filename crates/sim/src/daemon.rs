//! The daemon's shell: the machines, wired to each other and to the processes as the real one wires them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use hoplo_base::{JobId, ProcessId, ResourceSet, limits};
use hoplo_core::actors::{ActorTable, life};
use hoplo_core::objects::{self, ObjectDirectory};
use hoplo_core::sched::local::{self, Claimant};
use hoplo_core::sched::{LocalScheduler, WorkerPool, workers};
use hoplo_wire::node::{DeathCause, Notice, Obituary, ToClient, ToNode};
use hoplo_wire::{Failure, FailureKind};

use crate::client::Client;
use crate::cluster::{Cluster, Step};
use crate::faults::Plan;

pub struct Daemon {
    pub scheduler: LocalScheduler,
    pub pool: WorkerPool,
    pub actors: ActorTable,
    pub objects: ObjectDirectory,
    queue: VecDeque<Work>,
    after_sweep: Vec<life::Event>,
    sweep_asked: Option<u64>,
    sweeping: bool,
    tick_at: Option<hoplo_base::Instant>,
    /// Processes that are not buried, with those that they have channels with.
    pub processes: BTreeMap<ProcessId, BTreeSet<ProcessId>>,
    graves: BTreeMap<ProcessId, Obituary>,
    forks: BTreeMap<u64, JobId>,
    next_process: u32,
}

#[derive(Debug)]
enum Work {
    Scheduler(local::Event),
    Pool(workers::Event),
    Actors(life::Event),
    Objects(objects::Event),
}

impl Daemon {
    pub fn new(plan: &Plan) -> Self {
        let total = ResourceSet::from_units([("CPU", plan.cpus as f64)]).expect("a finite amount");
        let mut config = objects::Config::new(plan.capacity_bytes);
        config.spill = plan.spill;
        let now = hoplo_base::Instant::ZERO;
        Self {
            scheduler: LocalScheduler::new(total),
            pool: WorkerPool::new(plan.cpus as usize),
            actors: ActorTable::new(),
            objects: ObjectDirectory::new(config, now),
            queue: VecDeque::new(),
            after_sweep: Vec::new(),
            sweep_asked: None,
            sweeping: false,
            tick_at: None,
            processes: BTreeMap::new(),
            graves: BTreeMap::new(),
            forks: BTreeMap::new(),
            next_process: 1,
        }
    }

    pub fn whats_up(&self) -> String {
        let mut text = String::from("daemon:\n");
        for (claimant, unmet, shape) in self.scheduler.waiting() {
            text += &format!("  {claimant:?} wants {unmet} of {}\n", shape.resources);
        }
        for (id, lease) in self.scheduler.leases() {
            text += &format!("  {id} {lease:?}\n");
        }
        for row in self.actors.rows() {
            text += &format!("  {} {:?}\n", row.actor, row.state);
        }
        for row in self.objects.listing() {
            text += &format!("  {row:?}\n");
        }
        text + &format!("  {:?}\n", self.objects.totals())
    }
}

impl Cluster {
    pub fn start_driver(&mut self, job: JobId, program: u64) -> ProcessId {
        let id = self.new_process();
        let client = Client::driver(id, job, program);
        self.join(client);
        id
    }

    fn new_process(&mut self) -> ProcessId {
        let count = self.daemon.next_process;
        self.daemon.next_process += 1;
        ProcessId::new(1, count, count as u16)
    }

    fn join(&mut self, client: Client) {
        let process = client.id;
        self.clients.insert(process, client);
        self.daemon.processes.insert(process, BTreeSet::new());
        let event = objects::Event::ProcessJoined { process, slots: limits::SLOTS_GRANT };
        self.daemon.queue.push_back(Work::Objects(event));
        self.settle();
        let delay = self.rng.delay(self.plan.tardiness);
        self.after(delay, Step::Goes(process));
    }

    pub fn born(&mut self, attempt: u64) {
        let job = self.daemon.forks.remove(&attempt).expect("it was asked for");
        if self.plan.fork_failures && self.faulty() && self.rng.one_in(3) {
            self.tell(|| format!("FAULT: fork {attempt} fails"));
            let reason = "no memory for a fork".to_string();
            self.daemon
                .queue
                .push_back(Work::Pool(workers::Event::StartFailed { attempt, reason }));
            return self.settle();
        }
        let id = self.new_process();
        self.tell(|| format!("{id} is forked for {job}"));
        self.join(Client::worker(id, job));
        self.daemon.queue.push_back(Work::Pool(workers::Event::Started { attempt, worker: id }));
        self.settle();
    }

    /// Reads what lies there: some messages, or all.
    pub fn daemon_reads(&mut self, from: ProcessId) {
        let some = if self.rng.one_in(4) { 1 } else { usize::MAX };
        self.read_socket(from, some);
        let more = self.clients.get(&from).is_some_and(|client| !client.up.is_empty());
        if more {
            let delay = self.rng.delay(self.plan.tardiness);
            self.after(delay, Step::DaemonReads(from));
        }
    }

    fn read_socket(&mut self, from: ProcessId, most: usize) {
        for _ in 0..most {
            if !self.daemon.processes.contains_key(&from) {
                return;
            }
            let client = self.clients.get_mut(&from).expect("it joined");
            let Some(message) = client.up.pop_front() else { return };
            self.on_message(from, message);
            self.settle();
        }
    }

    pub fn daemon_sweeps(&mut self) {
        self.daemon.sweeping = false;
        let deferred = std::mem::take(&mut self.daemon.after_sweep);
        let sweep = self.daemon.sweep_asked.take();
        let mut open: Vec<ProcessId> = self.daemon.processes.keys().copied().collect();
        if !open.is_empty() {
            let turn = self.rng.below(open.len() as u64) as usize;
            open.rotate_left(turn);
        }
        for process in open {
            self.read_socket(process, usize::MAX);
        }
        for event in deferred {
            self.daemon.queue.push_back(Work::Actors(event));
            self.settle();
        }
        if let Some(sweep) = sweep {
            self.daemon.queue.push_back(Work::Objects(objects::Event::Swept { sweep }));
            self.settle();
        }
    }

    pub fn daemon_ticks(&mut self) {
        self.daemon.tick_at = None;
        let due = |at: Option<hoplo_base::Instant>| at.is_some_and(|at| at <= self.now);
        let daemon = &self.daemon;
        let (scheduler, pool, objects) = (
            due(daemon.scheduler.next_deadline()),
            due(daemon.pool.next_deadline()),
            due(daemon.objects.next_deadline()),
        );
        if scheduler {
            self.daemon.queue.push_back(Work::Scheduler(local::Event::Tick));
        }
        if pool {
            self.daemon.queue.push_back(Work::Pool(workers::Event::Tick));
        }
        if objects {
            self.daemon.queue.push_back(Work::Objects(objects::Event::Tick));
        }
        self.settle();
    }

    /// A process ends: what it wrote can still be read.
    pub fn dies(&mut self, process: ProcessId, cause: DeathCause) {
        let Some(client) = self.clients.get_mut(&process).filter(|client| client.alive) else {
            return;
        };
        client.alive = false;
        client.cause.get_or_insert(cause);
        self.tell(|| format!("{process} dies"));
        self.books.died(process);
        let delay = self.rng.delay(Duration::from_millis(2).max(self.plan.tardiness));
        self.after(delay, Step::Buries(process));
        if self.drivers.contains(&process) {
            self.driver_finished();
        }
    }

    pub fn bury(&mut self, process: ProcessId) {
        self.read_socket(process, usize::MAX);
        let client = &self.clients[&process];
        let (driver, job) = (client.is_driver, client.job);
        let cause = client.cause.clone().expect("the dead have a cause");
        let obituary = Obituary { pid: process.count(), cause, last_lines: vec![] };
        self.tell(|| format!("{process} is buried: {}", obituary.headline()));
        let mut concerned = self.daemon.processes.remove(&process).expect("one is buried once");
        if let Some(Claimant::Demand { process: holder, .. }) =
            self.daemon.scheduler.lease_on(process).map(|lease| lease.claimant)
        {
            concerned.insert(holder);
        }
        for peer in concerned {
            if let Some(peers) = self.daemon.processes.get_mut(&peer) {
                peers.remove(&process);
            }
            self.send(peer, ToClient::ProcessGone { process, obituary: obituary.clone() });
        }
        self.memory.wipe(process);
        let headline = obituary.headline();
        let queue = &mut self.daemon.queue;
        queue.push_back(Work::Objects(objects::Event::ProcessGone { process, obituary: headline }));
        queue.push_back(Work::Pool(workers::Event::Gone { process }));
        queue.push_back(Work::Scheduler(local::Event::ProcessGone { process }));
        let gone = life::Event::ProcessGone { process, obituary: obituary.clone() };
        queue.push_back(Work::Actors(gone));
        if driver {
            queue.push_back(Work::Actors(life::Event::JobEnded { job }));
            queue.push_back(Work::Pool(workers::Event::JobEnded { job }));
        }
        self.daemon.graves.insert(process, obituary);
        self.settle();
    }

    pub fn disk_wrote(&mut self, attempt: u64) {
        let full = self.plan.disk_failures && self.faulty() && self.rng.one_in(3);
        let result = self.memory.end_spill(attempt, full);
        self.daemon.queue.push_back(Work::Objects(objects::Event::Spilled { attempt, result }));
        self.settle();
    }

    pub fn disk_read(&mut self, attempt: u64) {
        let result = self.memory.end_restore(attempt);
        self.daemon.queue.push_back(Work::Objects(objects::Event::Restored { attempt, result }));
        self.settle();
    }

    pub fn disk_reserved(&mut self, attempt: u64) {
        let full = self.plan.disk_failures && self.faulty() && self.rng.one_in(3);
        let result = if full { Err("no space left on device".to_string()) } else { Ok(()) };
        self.daemon.queue.push_back(Work::Objects(objects::Event::Reserved { attempt, result }));
        self.settle();
    }

    fn send(&mut self, to: ProcessId, message: ToClient) {
        let tardiness = self.plan.tardiness;
        if !self.daemon.processes.contains_key(&to) {
            return;
        }
        let client = self.clients.get_mut(&to).expect("it joined");
        client.down.push_back(message);
        if client.down.len() == 1 {
            let delay = self.rng.delay(tardiness);
            self.after(delay, Step::ClientReads(to));
        }
    }

    fn kill(&mut self, process: ProcessId, reason: &str) {
        let Some(client) = self.clients.get_mut(&process).filter(|client| client.alive) else {
            return;
        };
        client.cause.get_or_insert(DeathCause::Stopped { reason: reason.to_string() });
        let delay = self.rng.delay(Duration::from_micros(100));
        self.after(delay, Step::Dies(process));
    }

    fn on_message(&mut self, from: ProcessId, message: ToNode) {
        let job = self.clients[&from].job;
        let plan_line = |message: &ToNode| format!("daemon hears {from}: {message:?}");
        self.tell(|| plan_line(&message));
        let queue = &mut self.daemon.queue;
        match message {
            ToNode::LeaseDemand { key, shape, wanted } => {
                let event = local::Event::Demanded { process: from, job, key, shape, wanted };
                queue.push_back(Work::Scheduler(event));
            }
            ToNode::LeaseReturn { lease } => {
                let event = local::Event::Returned { process: from, lease };
                queue.push_back(Work::Scheduler(event));
            }
            ToNode::Blocked => {
                queue.push_back(Work::Scheduler(local::Event::Blocked { worker: from }));
            }
            ToNode::Unblocked => {
                queue.push_back(Work::Scheduler(local::Event::Unblocked { worker: from }));
            }
            ToNode::Connect { to } => self.connect(from, to),
            ToNode::ExtentWant { request, bytes, slots } => {
                let event = objects::Event::ExtentWanted { from, request, bytes, slots };
                queue.push_back(Work::Objects(event));
            }
            ToNode::ExtentReturn { offset, len } => {
                let event = objects::Event::ExtentReturned { from, offset, len };
                queue.push_back(Work::Objects(event));
            }
            ToNode::Notices(notices) => {
                for notice in notices {
                    let event = objects::Event::Noticed { from, notice };
                    queue.push_back(Work::Objects(event));
                }
            }
            ToNode::Want { objects } => {
                queue.push_back(Work::Objects(objects::Event::Wanted { from, objects }));
            }
            ToNode::ActorCreate { request, spec, get_if_exists } => {
                self.books.actors.insert(spec.actor);
                let event =
                    life::Event::Created { creator: from, job, request, spec, get_if_exists };
                queue.push_back(Work::Actors(event));
            }
            ToNode::ActorWatch { actor } => {
                let event = life::Event::Watched { from, actor, swept: false };
                queue.push_back(Work::Actors(event));
            }
            ToNode::ActorKill { actor, no_restart } => {
                queue.push_back(Work::Actors(life::Event::Killed { actor, no_restart }));
            }
            ToNode::ActorStarted { actor, incarnation, result } => {
                let event = life::Event::Started { worker: from, actor, incarnation, result };
                queue.push_back(Work::Actors(event));
            }
            ToNode::ActorExit { actor } => {
                queue.push_back(Work::Actors(life::Event::Left { worker: from, actor }));
            }
            ToNode::Tell { to, message } => self.send(to, ToClient::Told { from, message }),
            ToNode::KillWorker { worker } => {
                let lease = self.daemon.scheduler.lease_on(worker);
                let theirs = lease.is_some_and(|lease| {
                    matches!(lease.claimant, Claimant::Demand { process, .. } if process == from)
                });
                if theirs {
                    self.kill(worker, "cancelled with force");
                }
            }
            other => panic!("nobody here says {other:?}"),
        }
    }

    fn connect(&mut self, from: ProcessId, to: ProcessId) {
        if !self.daemon.processes.contains_key(&to) {
            let obituary = self.daemon.graves[&to].clone();
            return self.send(from, ToClient::ProcessGone { process: to, obituary });
        }
        for (one, other) in [(from, to), (to, from)] {
            self.daemon.processes.get_mut(&one).expect("both live").insert(other);
        }
        let event = workers::Event::Connected { worker: to, peer: from };
        self.daemon.queue.push_back(Work::Pool(event));
        self.send(to, ToClient::Connected { from });
    }

    fn settle(&mut self) {
        let now = self.now;
        while let Some(work) = self.daemon.queue.pop_front() {
            match work {
                Work::Scheduler(event) => {
                    let mut effects = Vec::new();
                    self.daemon.scheduler.handle(now, event, &mut effects);
                    effects.into_iter().for_each(|effect| self.on_scheduler(effect));
                }
                Work::Pool(event) => {
                    let mut effects = Vec::new();
                    self.daemon.pool.handle(now, event, &mut effects);
                    effects.into_iter().for_each(|effect| self.on_pool(effect));
                }
                Work::Actors(event) => {
                    let mut effects = Vec::new();
                    self.daemon.actors.handle(now, event, &mut effects);
                    effects.into_iter().for_each(|effect| self.on_actors(effect));
                }
                Work::Objects(event) => {
                    let mut effects = Vec::new();
                    self.daemon.objects.handle(now, event, &mut effects);
                    effects.into_iter().for_each(|effect| self.on_objects(effect));
                }
            }
        }
        let daemon = &self.daemon;
        let wanted = daemon.sweep_asked.is_some() || !daemon.after_sweep.is_empty();
        if wanted && !daemon.sweeping {
            self.daemon.sweeping = true;
            let delay = self.rng.delay(Duration::from_micros(100));
            self.after(delay, Step::DaemonSweeps);
        }
        let daemon = &self.daemon;
        let deadlines = [
            daemon.scheduler.next_deadline(),
            daemon.pool.next_deadline(),
            daemon.objects.next_deadline(),
        ];
        if let Some(at) = deadlines.into_iter().flatten().min()
            && daemon.tick_at.is_none_or(|set| at < set || set < now)
        {
            self.daemon.tick_at = Some(at);
            self.at(at.max(now), Step::DaemonTicks);
        }
    }

    fn on_scheduler(&mut self, effect: local::Effect) {
        let queue = &mut self.daemon.queue;
        match effect {
            local::Effect::AcquireWorker { lease, job, env, prefer } => {
                queue.push_back(Work::Pool(workers::Event::Wanted { lease, job, env, prefer }));
            }
            local::Effect::CancelWorker { lease } => {
                queue.push_back(Work::Pool(workers::Event::Cancelled { lease }));
            }
            local::Effect::ReleaseWorker { worker } => {
                queue.push_back(Work::Pool(workers::Event::Released { worker }));
            }
            local::Effect::KillWorker { worker, owner } => {
                self.kill(worker, &format!("{owner}, whose task it ran, is gone"));
            }
            local::Effect::Grant { process, key, lease, worker, gpus } => {
                self.tell(|| format!("{lease} on {worker} is granted to {process}"));
                self.send(process, ToClient::LeaseGranted { lease, key, worker, gpus });
            }
            local::Effect::PlaceActor { actor, incarnation, worker, gpus } => {
                let event = life::Event::Placed { actor, incarnation, worker, gpus };
                queue.push_back(Work::Actors(event));
            }
            local::Effect::Recall { process, lease } => {
                self.send(process, ToClient::LeaseRecall { lease });
            }
            local::Effect::TellStuck { process, key, stuck } => {
                let infeasible = stuck.as_ref().is_some_and(|stuck| stuck.infeasible);
                let reason = stuck.map(|stuck| stuck.reason);
                self.send(process, ToClient::LeaseStuck { key, reason, infeasible });
            }
            local::Effect::TellActorStuck { actor, stuck } => {
                let infeasible = stuck.as_ref().is_some_and(|stuck| stuck.infeasible);
                let reason = stuck.map(|stuck| stuck.reason);
                let event = life::Event::PlacementStuck { actor, reason, infeasible };
                queue.push_back(Work::Actors(event));
            }
            local::Effect::FailDemand { process, key, reason } => {
                let failure = Failure::new(FailureKind::RuntimeEnv, reason);
                self.send(process, ToClient::LeaseFailed { key, failure });
            }
            local::Effect::FailActor { actor, incarnation, reason } => {
                let event = life::Event::PlacementFailed { actor, incarnation, reason };
                queue.push_back(Work::Actors(event));
            }
            local::Effect::TellBlocked { holder, worker } => {
                self.send(holder, ToClient::WorkerBlocked { worker });
            }
        }
    }

    fn on_pool(&mut self, effect: workers::Effect) {
        match effect {
            workers::Effect::Fork { attempt, job, env: _ } => {
                self.daemon.forks.insert(attempt, job);
                let delay = self.rng.delay(Duration::from_millis(10));
                self.after(delay, Step::Born(attempt));
            }
            workers::Effect::Assign { lease, worker } => {
                let event = local::Event::WorkerAssigned { lease, worker };
                self.daemon.queue.push_back(Work::Scheduler(event));
            }
            workers::Effect::Fail { lease, reason } => {
                let event = local::Event::WorkerFailed { lease, reason };
                self.daemon.queue.push_back(Work::Scheduler(event));
            }
            workers::Effect::Retire { worker, reason } => {
                self.stop(worker, life::Manner::Finish, reason.to_string());
                if self.clients[&worker].alive {
                    self.after(Duration::from_secs(5), Step::Dies(worker));
                }
            }
        }
    }

    fn stop(&mut self, worker: ProcessId, manner: life::Manner, reason: String) {
        let Some(client) = self.clients.get_mut(&worker).filter(|client| client.alive) else {
            return;
        };
        client.cause.get_or_insert(DeathCause::Stopped { reason: reason.clone() });
        match manner {
            life::Manner::Kill => return self.kill(worker, &reason),
            life::Manner::Exit => self.after(Duration::from_millis(200), Step::Dies(worker)),
            life::Manner::Finish => {}
        }
        self.send(worker, ToClient::Exit { graceful: manner == life::Manner::Finish, reason });
    }

    fn on_actors(&mut self, effect: life::Effect) {
        let queue = &mut self.daemon.queue;
        match effect {
            life::Effect::Place { actor, incarnation, job, shape, held } => {
                let event = local::Event::ActorWaits { actor, incarnation, job, shape, held };
                queue.push_back(Work::Scheduler(event));
            }
            life::Effect::Unplace { actor } => {
                queue.push_back(Work::Scheduler(local::Event::ActorGaveUp { actor }));
            }
            life::Effect::Run { actor, incarnation, worker, gpus, spec } => {
                self.tell(|| format!("{actor} is to run in {worker}"));
                self.send(worker, ToClient::RunActor { spec, incarnation, gpus });
            }
            life::Effect::Settle { worker } => {
                queue.push_back(Work::Scheduler(local::Event::ActorStarted { worker }));
            }
            life::Effect::Stop { worker, manner, reason } => self.stop(worker, manner, reason),
            life::Effect::AnswerCreate { to, request, result } => {
                self.send(to, ToClient::ActorCreated { request, result });
            }
            life::Effect::AnswerLookup { to, request, found } => {
                self.send(to, ToClient::ActorFound { request, found });
            }
            life::Effect::Tell { to, actor, state } => {
                self.send(to, ToClient::ActorState { actor, state });
            }
            life::Effect::AfterSweep(event) => self.daemon.after_sweep.push(*event),
            life::Effect::Hold { object, process } => {
                if self.daemon.processes.contains_key(&process) {
                    let notice = Notice::Hold { object, process };
                    let event = objects::Event::Noticed { from: process, notice };
                    queue.push_back(Work::Objects(event));
                }
            }
            life::Effect::NodeHold { objects } => {
                queue.push_back(Work::Objects(objects::Event::NodeHeld { objects }));
            }
            life::Effect::NodeRelease { objects } => {
                queue.push_back(Work::Objects(objects::Event::NodeReleased { objects }));
            }
            life::Effect::Save { .. } | life::Effect::Forget { .. } => {}
        }
    }

    fn on_objects(&mut self, effect: objects::Effect) {
        match effect {
            objects::Effect::Send { to, message } => self.send(to, message),
            objects::Effect::Welcome { process, slots } => {
                self.clients.get_mut(&process).expect("it joined").extents.slots = slots;
            }
            objects::Effect::Sweep { sweep } => self.daemon.sweep_asked = Some(sweep),
            objects::Effect::Free { attempt, object, location } => {
                let result = self.memory.free(location);
                self.tell(|| format!("daemon frees {object}: {result:?}"));
                let event = objects::Event::Freed { attempt, result };
                self.daemon.queue.push_back(Work::Objects(event));
            }
            objects::Effect::Spill { attempt, object, location, place } => {
                self.tell(|| format!("daemon spills {object}"));
                match self.memory.begin_spill(attempt, location, place) {
                    Some(result) => {
                        let event = objects::Event::Spilled { attempt, result };
                        self.daemon.queue.push_back(Work::Objects(event));
                    }
                    None => {
                        let delay = self.rng.delay(Duration::from_millis(5));
                        self.after(delay, Step::DiskWrote(attempt));
                    }
                }
            }
            objects::Effect::Restore { attempt, object, place, slot } => {
                self.tell(|| format!("daemon restores {object}"));
                self.memory.begin_restore(attempt, place, slot);
                let delay = self.rng.delay(Duration::from_millis(5));
                self.after(delay, Step::DiskRead(attempt));
            }
            objects::Effect::Reserve { attempt, place } => {
                self.tell(|| format!("daemon takes disk space for {} bytes", place.len));
                let delay = self.rng.delay(Duration::from_millis(5));
                self.after(delay, Step::DiskReserved(attempt));
            }
            objects::Effect::Forget { range, end } => self.memory.forget(range, end),
            objects::Effect::ResetSlots { slots } => self.memory.reset_slots(&slots),
            objects::Effect::Punch { .. } => {}
            objects::Effect::ActorUnreachable { actor } => {
                let event = life::Event::Unreachable { actor };
                self.daemon.queue.push_back(Work::Actors(event));
            }
            objects::Effect::Violation { process, what } => {
                panic!("{process} breaks the protocol: {what}");
            }
        }
    }
}
