//! Local scheduler: for one node, decides which process gets which share of its resources.
//!
//! Two kinds of claims wait: the **demand** of a process (so many leases of one shape; only the number
//! is known, not the tasks) and the **placement** of an actor. A claim that fits takes its
//! resources at once and waits for a worker:
//!
//! ```text
//!  demand / placement --fits--> reserved --worker--> leased --returned, worker gone--> (free)
//!                                  \--demand fell, owner gone, no worker can start--> (free)
//! ```
//!
//! **Order.** Claims of parties that have nothing and waited for `LEASE_QUANTUM` go first, oldest first.
//! What such an elder lacks is kept for it, so that a wide shape is not starved by narrow ones; but
//! only every other second, so that a running task goes on whose own children the elder keeps
//! out. After the elders everybody takes turns: actors, then each process with its first shape that fits.
//!
//! **Recall.** A claim that would fit if others gave something back gets it recalled: from those
//! who have more leases than it has, oldest first, no lease before it is `LEASE_QUANTUM` old (placements do
//! not wait for that: an actor is created once, not in turns).
//!
//! Actors that want the same wait in a line (`lines`), of which only the first is looked at.
//!
//! **Idle.** The quantum keeps leases that are used from going to and fro at each call. It is of no use to a process
//! that waits for what its own idle leases of other shapes take. The scheduler cannot see which are idle. So when a demand
//! begins to wait, its process is asked to give such leases back, at once or as they fall idle. A process need
//! not give what is idle to others before the quantum is over: its next call may come at any moment.
//!
//! **Parked.** A claim whose environment has a Python of its own waits until that is made here, and takes nothing
//! meanwhile (`parked`).
//!
//! **Blocked.** A worker that waits in `get` lends its CPU, nothing else. When it goes on, the CPU is
//! taken back even if it is in use: more than all are in use until something returns.
//!
//! **Nothing.** Of leases that need no resource there are `LEASES_FREE_MAX` at a time, so that a process does not fork without end. Those of actors
//! do not count, since each was asked for by itself; nor do blocked ones, since what they wait for may need nothing, either.
//!
//! **Retired.** A worker that takes no more calls keeps its lease until it is gone, so that what it has of a GPU is free when the next
//! one gets it. If it has to wait for what it submitted itself, it gives all back: no call runs in it any more, and what it waits
//! for may need that very GPU.
//!
//! # Invariants
//! - SCHED-1: what is in use is the sum over the leases, without the CPU of blocked ones, and over the bundles.
//! - SCHED-2: of nothing but CPU more is in use than the node has.
//! - SCHED-3: a worker has at most one lease, and a lease at most one worker.
//! - SCHED-4: a claim's reserved count is the number of its leases without a worker, and is not above
//!   what it wants.
//! - SCHED-5: the GPU ids of the leases that are in no bundle, and of the bundles, add up to what is taken of the GPUs.
//! - SCHED-6 and SCHED-7 are in `lines`, SCHED-8 and SCHED-9 in `bundles`, SCHED-10 in `parked`.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::bundles::{self, Asked, is_gpu};
use hoplo_base::limits::{LEASE_DEMAND_MAX, LEASES_FREE_MAX};
use hoplo_base::resources::{GPU, PARTS};
use hoplo_base::{ActorId, GroupId, Instant, JobId, LeaseId, NodeNumber, ProcessId, ResourceSet};
use hoplo_wire::node::{PythonEnv, RuntimeEnv, Shape, Strategy};
use hoplo_wire::peer::Load;
use hoplo_wire::{Failure, Reason};

use super::bundle::{Bundles, GroupFailures};
use super::claim::{Bar, Claim, Claimant, Lease, Line, Stuck, Word};
use super::gpus::Gpus;
use super::place;

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Absolute: replaces the last word on (process, key).
    Demanded {
        process: ProcessId,
        job: JobId,
        key: u32,
        shape: Shape,
        wanted: u32,
    },
    /// `held` is what the actor keeps once it has started; at most its shape.
    ActorWaits {
        actor: ActorId,
        incarnation: u32,
        job: JobId,
        shape: Shape,
        held: ResourceSet,
    },
    /// It does not want to be placed any more.
    ActorGaveUp {
        actor: ActorId,
    },
    ActorStarted {
        worker: ProcessId,
    },
    WorkerAssigned {
        lease: LeaseId,
        worker: ProcessId,
    },
    /// No worker can be made for what this lease needs.
    WorkerFailed {
        lease: LeaseId,
        failure: Failure,
    },
    Returned {
        process: ProcessId,
        lease: LeaseId,
    },
    Blocked {
        worker: ProcessId,
    },
    Unblocked {
        worker: ProcessId,
    },
    /// It takes no more calls.
    Retires {
        worker: ProcessId,
    },
    ProcessGone {
        process: ProcessId,
    },
    /// The node is to leave: for good.
    Drains,
    /// Of a placement group: answered by `AnswerBundles`.
    BundlesAsked {
        group: GroupId,
        attempt: u32,
        bundles: Vec<(u32, ResourceSet)>,
    },
    /// All nodes have what was asked of them.
    BundlesCommitted {
        group: GroupId,
        attempt: u32,
    },
    /// Who planned them is dead: what was prepared will not be committed.
    PlannerGone,
    BundlesReleased {
        group: GroupId,
        attempt: u32,
    },
    /// Why it is not placed; `None`: it is.
    GroupWaits {
        group: GroupId,
        reason: Option<Reason>,
    },
    GroupEnded {
        group: GroupId,
        failures: Box<GroupFailures>,
    },
    /// The Python of an environment is there; workers can start in it.
    EnvironmentMade {
        python: PythonEnv,
    },
    /// It cannot be made: what waits for it fails.
    EnvironmentFailed {
        python: PythonEnv,
        failure: Failure,
    },
    /// It is to be made again before the next one gets a worker in it.
    EnvironmentGone {
        python: PythonEnv,
    },
    Tick,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Somebody who has room here needs it: answered by `EnvironmentMade` or `EnvironmentFailed`.
    MakeEnvironment {
        python: PythonEnv,
    },
    AcquireWorker {
        lease: LeaseId,
        job: JobId,
        env: RuntimeEnv,
        gpus: Vec<u32>,
        prefer: Option<ProcessId>,
    },
    /// The worker that was asked for is not needed any more.
    CancelWorker {
        lease: LeaseId,
    },
    ReleaseWorker {
        worker: ProcessId,
    },
    /// The owner of what it runs is gone.
    KillWorker {
        worker: ProcessId,
        owner: ProcessId,
    },
    Grant {
        process: ProcessId,
        key: u32,
        lease: LeaseId,
        worker: ProcessId,
        gpus: Vec<u32>,
    },
    PlaceActor {
        actor: ActorId,
        incarnation: u32,
        worker: ProcessId,
        gpus: Vec<u32>,
    },
    Recall {
        process: ProcessId,
        lease: LeaseId,
    },
    /// It waits for what idle leases of its own may take.
    WantIdle {
        process: ProcessId,
        key: u32,
    },
    TellStuck {
        process: ProcessId,
        key: u32,
        stuck: Option<Stuck>,
    },
    TellActorStuck {
        actor: ActorId,
        stuck: Option<Stuck>,
    },
    /// The demand is dropped.
    FailDemand {
        process: ProcessId,
        key: u32,
        failure: Failure,
    },
    FailActor {
        actor: ActorId,
        incarnation: u32,
        failure: Failure,
    },
    TellBlocked {
        holder: ProcessId,
        worker: ProcessId,
    },
    /// `refused`: why nothing was prepared.
    AnswerBundles {
        group: GroupId,
        attempt: u32,
        refused: Option<Reason>,
    },
    /// What it runs lies in a bundle of a group that is no more.
    EndWorker {
        worker: ProcessId,
        group: GroupId,
    },
}

#[derive(Debug)]
pub struct LocalScheduler {
    pub(super) total: ResourceSet,
    /// Without the CPU of blocked leases; of CPU it may be more than `total`.
    pub(super) used: ResourceSet,
    pub(super) gpus: Gpus,
    /// It drains: nothing is granted.
    pub(super) closed: bool,
    pub(super) bundles: Bundles,
    pub(super) claims: BTreeMap<Claimant, Claim>,
    /// Of this node.
    pub(super) labels: BTreeMap<String, String>,
    /// Actors that wait, by what bars them here and by what they want.
    pub(super) lines: BTreeMap<Option<Bar>, BTreeMap<ResourceSet, Line>>,
    /// Pythons of runtime environments that were made here.
    pub(super) made: BTreeSet<PythonEnv>,
    pub(super) leases: BTreeMap<LeaseId, Lease>,
    pub(super) by_worker: BTreeMap<ProcessId, LeaseId>,
    pub(super) node: NodeNumber,
    pub(super) next_lease: u64,
    pub(super) next_turn: u64,
    /// Who was served last in the round.
    pub(super) served: Option<ProcessId>,
    pub(super) deadline: Option<Instant>,
    /// Events so far, each of which may change why somebody waits.
    pub(super) changes: u64,
    /// Since the last look at who gets what, something was freed, or a claim came that fits.
    pub(super) may_grant: bool,
    /// When time alone gives somebody something.
    pub(super) grant_at: Option<Instant>,
    /// How often it was looked at whether there is something for a claim, or why there is not.
    #[cfg(test)]
    pub(super) looks: std::cell::Cell<u64>,
}

impl LocalScheduler {
    pub fn new(node: NodeNumber, total: ResourceSet) -> Self {
        let gpus = Gpus::new((total.parts(GPU) / PARTS) as usize);
        Self {
            total,
            used: ResourceSet::new(),
            gpus,
            closed: false,
            bundles: Bundles::default(),
            claims: BTreeMap::new(),
            labels: BTreeMap::new(),
            lines: BTreeMap::new(),
            made: BTreeSet::new(),
            leases: BTreeMap::new(),
            by_worker: BTreeMap::new(),
            node,
            next_lease: 1,
            next_turn: 0,
            served: None,
            deadline: None,
            changes: 0,
            may_grant: false,
            grant_at: None,
            #[cfg(test)]
            looks: Default::default(),
        }
    }

    /// Those of its node. Before the first event.
    pub fn set_labels(&mut self, labels: BTreeMap<String, String>) {
        assert!(self.changes == 0, "what bars a claim is looked up once");
        self.labels = labels;
    }

    pub fn handle(&mut self, now: Instant, event: Event, effects: &mut Vec<Effect>) {
        self.changes += u64::from(event != Event::Tick);
        match event {
            Event::Demanded { process, job, key, shape, wanted } => {
                self.on_demanded(
                    now,
                    Claimant::Demand { process, key },
                    job,
                    shape,
                    wanted,
                    effects,
                );
            }
            Event::ActorWaits { actor, incarnation, job, shape, held } => {
                let claimant = Claimant::Actor { actor, incarnation };
                self.on_actor_waits(now, claimant, job, shape, held, effects);
            }
            Event::ActorGaveUp { actor } => self.on_actor_gave_up(now, actor, effects),
            Event::ActorStarted { worker } => self.on_actor_started(worker),
            Event::WorkerAssigned { lease, worker } => {
                self.on_worker_assigned(now, lease, worker, effects);
            }
            Event::WorkerFailed { lease, failure } => {
                self.on_worker_failed(now, lease, failure, effects)
            }
            Event::Returned { process, lease } => self.on_returned(now, process, lease, effects),
            Event::Blocked { worker } => self.on_blocked(worker, effects),
            Event::Unblocked { worker } => self.on_unblocked(worker),
            Event::Retires { worker } => self.on_retires(worker),
            Event::ProcessGone { process } => self.on_process_gone(now, process, effects),
            Event::Drains => self.on_drains(now, effects),
            Event::BundlesAsked { group, attempt, bundles } => {
                self.on_bundles_asked(group, attempt, bundles, effects);
            }
            Event::BundlesCommitted { group, attempt } => {
                self.on_bundles_committed(group, attempt);
            }
            Event::PlannerGone => self.on_planner_gone(),
            Event::BundlesReleased { group, attempt } => self.on_bundles_released(group, attempt),
            Event::GroupWaits { group, reason } => self.on_group_waits(group, reason, effects),
            Event::GroupEnded { group, failures } => {
                self.on_group_ended(now, group, &failures, effects);
            }
            Event::EnvironmentMade { python } => self.on_environment_made(now, python, effects),
            Event::EnvironmentFailed { python, failure } => {
                self.on_environment_failed(now, &python, &failure, effects);
            }
            Event::EnvironmentGone { python } => {
                self.made.remove(&python);
            }
            Event::Tick => {}
        }
        if self.may_grant || self.grant_at.is_some_and(|at| at <= now) {
            self.may_grant = false;
            self.grant(now, effects);
        }
        self.deadline = self.grant_at;
        self.want_idle(effects);
        self.recall(now, effects);
        self.tell_who_waits(now, effects);
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// With what bundles of placement groups add.
    pub fn total(&self) -> &ResourceSet {
        &self.total
    }

    /// Without that.
    pub fn total_of_node(&self) -> ResourceSet {
        bundles::plain(&self.total)
    }

    pub fn available_of_node(&self) -> ResourceSet {
        bundles::plain(&self.available())
    }

    pub fn available(&self) -> ResourceSet {
        let mut free = self.total.clone();
        for (name, parts) in self.used.iter() {
            free.set_parts(name, free.parts(name).saturating_sub(parts));
        }
        free
    }

    pub fn leases(&self) -> impl Iterator<Item = (LeaseId, &Lease)> {
        self.leases.iter().map(|(id, lease)| (*id, lease))
    }

    pub fn lease(&self, id: LeaseId) -> &Lease {
        &self.leases[&id]
    }

    pub fn lease_on(&self, worker: ProcessId) -> Option<&Lease> {
        self.by_worker.get(&worker).map(|id| &self.leases[id])
    }

    /// Claims that wait: who, how many more leases, of which shape.
    pub fn waiting(&self) -> impl Iterator<Item = (Claimant, u32, &Shape)> {
        let unmet = self.claims.iter().filter(|(_, claim)| claim.unmet() > 0);
        unmet.map(|(claimant, claim)| (*claimant, claim.unmet(), &claim.shape))
    }

    /// All claims that want something, those included that wait for their worker.
    pub fn claims(&self) -> impl Iterator<Item = (Claimant, JobId, &Shape, &ResourceSet, u32)> {
        let wanted = self.claims.iter().filter(|(_, claim)| claim.wanted > 0);
        wanted.map(|(id, claim)| (*id, claim.job, &claim.shape, &claim.held, claim.wanted))
    }

    /// Leases of this claim that wait for their worker, or would if its environment were made.
    pub fn reserved(&self, claimant: Claimant) -> u32 {
        let claim = self.claims.get(&claimant);
        claim.map_or(0, |claim| claim.reserved + self.room_of_parked(claim))
    }

    /// Grows whenever the load may have changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// For the global scheduler, as far as it is known here.
    pub fn load(&self) -> Load {
        let mut waiting: BTreeMap<&ResourceSet, u32> = BTreeMap::new();
        for (_, unmet, shape) in self.waiting() {
            let count = waiting.entry(&shape.resources).or_default();
            *count = count.saturating_add(unmet);
        }
        let waiting = waiting.into_iter().map(|(wanted, count)| (wanted.clone(), count)).collect();
        Load { total: self.total.clone(), available: self.available(), waiting, full: false }
    }

    /// Why this claim has not got all it wants; `None` if it has.
    pub fn explain(&self, claimant: Claimant) -> Option<Stuck> {
        let claim = self.claims.get(&claimant)?;
        if claim.reserved > 0 {
            let reason = "a worker for it is starting".into();
            return Some(Stuck { reason, infeasible: false });
        }
        (claim.unmet() > 0).then(|| self.why_stuck(claim, &mut BTreeMap::new()))
    }

    pub fn explain_actor(&self, actor: ActorId) -> Option<Stuck> {
        self.explain(self.actor_claim(actor)?)
    }

    /// Asserts the invariants of the module's doc.
    pub fn check(&self) {
        let mut used = ResourceSet::new();
        let mut gpu_parts = 0;
        let mut reserved: BTreeMap<Claimant, u32> = BTreeMap::new();
        for (id, lease) in &self.leases {
            used.add(&lease.in_use());
            if lease.bundle.is_none() {
                gpu_parts += lease.gpus.len() as u64 * lease.resources.parts(GPU).min(PARTS);
            }
            match lease.worker {
                Some(worker) => assert_eq!(self.by_worker.get(&worker), Some(id), "SCHED-3"),
                None => *reserved.entry(lease.claimant).or_default() += 1,
            }
        }
        self.check_bundles(&mut used, &mut gpu_parts);
        assert_eq!(self.used, used, "SCHED-1");
        let with_worker = self.leases.values().filter(|lease| lease.worker.is_some()).count();
        assert_eq!(self.by_worker.len(), with_worker, "SCHED-3");
        for (claimant, claim) in &self.claims {
            let count = reserved.remove(claimant).unwrap_or(0);
            assert_eq!(claim.reserved, count, "SCHED-4: {claimant:?}");
            assert!(claim.reserved <= claim.wanted, "SCHED-4: {claimant:?}");
        }
        assert!(reserved.is_empty(), "SCHED-4: reserved without a claim: {reserved:?}");
        assert_eq!(self.gpus.taken(), gpu_parts, "SCHED-5");
        self.check_lines();
        self.check_parked();
    }

    pub(super) fn on_demanded(
        &mut self,
        now: Instant,
        claimant: Claimant,
        job: JobId,
        shape: Shape,
        wanted: u32,
        effects: &mut Vec<Effect>,
    ) {
        let wanted = wanted.min(LEASE_DEMAND_MAX);
        // One that does not fit waits like the others, until it has waited for long.
        let barred = self.barred(&shape);
        if barred.is_none() {
            self.may_grant |= self.fits(claimant, &shape.resources);
            if self.feasible(&shape.resources) {
                self.arm_grant(now, now);
            }
        }
        let turn = self.turn();
        let claim = self.claims.entry(claimant).or_insert_with(|| Claim {
            job,
            shape: shape.clone(),
            held: ResourceSet::new(),
            wanted: 0,
            reserved: 0,
            since: now,
            turn,
            asked_idle: false,
            word: Word::none(now),
            barred: None,
        });
        if claim.wanted == 0 || claim.shape != shape {
            claim.since = now;
            claim.asked_idle = false;
        }
        // What was kept for it may be for others.
        self.may_grant |= wanted < claim.wanted || claim.shape != shape;
        claim.shape = shape;
        claim.barred = barred;
        claim.wanted = wanted;
        let surplus = claim.reserved.saturating_sub(wanted);
        claim.wanted += surplus; // Until the leases are cancelled below: SCHED-4.
        for _ in 0..surplus {
            self.cancel_reserved(now, claimant, effects);
        }
        if let Some(claim) = self.claims.get_mut(&claimant) {
            claim.wanted = wanted;
        }
    }

    pub(super) fn on_actor_waits(
        &mut self,
        now: Instant,
        claimant: Claimant,
        job: JobId,
        shape: Shape,
        held: ResourceSet,
        effects: &mut Vec<Effect>,
    ) {
        self.drop_claim(now, claimant, effects); // Its last word counts.
        let barred = self.barred(&shape);
        self.may_grant |= barred.is_none() && self.fits(claimant, &shape.resources);
        let (turn, word) = (self.turn(), Word::none(now));
        let claim = Claim {
            job,
            shape,
            held,
            wanted: 1,
            reserved: 0,
            since: now,
            turn,
            asked_idle: false,
            word,
            barred,
        };
        self.claims.insert(claimant, claim);
        self.join_line(now, claimant);
    }

    fn turn(&mut self) -> u64 {
        self.next_turn += 1;
        self.next_turn - 1
    }

    fn on_actor_gave_up(&mut self, now: Instant, actor: ActorId, effects: &mut Vec<Effect>) {
        if let Some(claimant) = self.actor_claim(actor) {
            self.drop_claim(now, claimant, effects);
        }
    }

    fn on_actor_started(&mut self, worker: ProcessId) {
        let Some(id) = self.by_worker.get(&worker) else { return };
        let lease = self.leases.get_mut(id).expect("SCHED-3");
        let mut keeps = lease.held.clone();
        // GPU ids were told to the process: they cannot change while it lives.
        for (name, parts) in lease.resources.iter().filter(|(name, _)| is_gpu(name)) {
            keeps.set_parts(name, parts);
        }
        self.used.subtract(&lease.in_use());
        lease.resources = keeps;
        self.used.add(&lease.in_use());
        self.may_grant = true;
    }

    fn on_worker_assigned(
        &mut self,
        now: Instant,
        id: LeaseId,
        worker: ProcessId,
        effects: &mut Vec<Effect>,
    ) {
        // It was cancelled while the worker was on its way.
        let Some(lease) = self.leases.get_mut(&id) else {
            effects.push(Effect::ReleaseWorker { worker });
            return;
        };
        assert!(lease.worker.is_none(), "{id} has a worker already");
        lease.worker = Some(worker);
        lease.granted_at = now;
        let gpus = lease.gpus.clone();
        let claimant = lease.claimant;
        let other = self.by_worker.insert(worker, id);
        assert_eq!(other, None, "SCHED-3: {worker} is leased already");
        let claim = self.claims.get_mut(&claimant).expect("SCHED-4: a reserved lease has a claim");
        claim.wanted -= 1;
        claim.reserved -= 1;
        claim.since = now;
        claim.asked_idle = false;
        effects.push(match claimant {
            Claimant::Demand { process, key } => {
                Effect::Grant { process, key, lease: id, worker, gpus }
            }
            Claimant::Actor { actor, incarnation } => {
                self.claims.remove(&claimant);
                Effect::PlaceActor { actor, incarnation, worker, gpus }
            }
        });
    }

    fn on_worker_failed(
        &mut self,
        now: Instant,
        id: LeaseId,
        failure: Failure,
        effects: &mut Vec<Effect>,
    ) {
        let Some(lease) = self.leases.get(&id) else { return };
        let claimant = lease.claimant;
        self.end_lease(now, id);
        let claim = self.claims.get_mut(&claimant).expect("SCHED-4: a reserved lease has a claim");
        (claim.wanted, claim.reserved) = (claim.wanted - 1, claim.reserved - 1);
        self.drop_claim(now, claimant, effects);
        effects.push(match claimant {
            Claimant::Demand { process, key } => Effect::FailDemand { process, key, failure },
            Claimant::Actor { actor, incarnation } => {
                Effect::FailActor { actor, incarnation, failure }
            }
        });
    }

    fn on_returned(
        &mut self,
        now: Instant,
        process: ProcessId,
        id: LeaseId,
        effects: &mut Vec<Effect>,
    ) {
        // A lease that ended (its worker died) while the return was on its way, or is not theirs.
        let Some(lease) = self.leases.get(&id) else { return };
        let theirs = matches!(lease.claimant, Claimant::Demand { process: p, .. } if p == process);
        let Some(worker) = lease.worker.filter(|_| theirs) else { return };
        self.end_lease(now, id);
        effects.push(Effect::ReleaseWorker { worker });
    }

    fn on_blocked(&mut self, worker: ProcessId, effects: &mut Vec<Effect>) {
        let Some(id) = self.by_worker.get(&worker).copied() else { return };
        let lease = self.leases.get_mut(&id).expect("SCHED-3");
        if lease.blocked {
            return;
        }
        self.used.subtract(&lease.in_use());
        lease.blocked = true;
        self.used.add(&lease.in_use());
        self.may_grant = true;
        if let Claimant::Demand { process: holder, .. } = lease.claimant {
            effects.push(Effect::TellBlocked { holder, worker });
        }
        if lease.retires {
            self.give_all(id);
        }
    }

    /// Its last call has replied: if it waits now, it waits to leave.
    fn on_retires(&mut self, worker: ProcessId) {
        let Some(id) = self.by_worker.get(&worker).copied() else { return };
        let lease = self.leases.get_mut(&id).expect("SCHED-3");
        lease.retires = true;
        if lease.blocked {
            self.give_all(id);
        }
    }

    fn on_unblocked(&mut self, worker: ProcessId) {
        let Some(id) = self.by_worker.get(&worker) else { return };
        let lease = self.leases.get_mut(id).expect("SCHED-3");
        self.used.subtract(&lease.in_use());
        lease.blocked = false;
        self.used.add(&lease.in_use());
    }

    /// It may be a worker with a lease on it, and a process that holds leases and claims more.
    fn on_process_gone(&mut self, now: Instant, process: ProcessId, effects: &mut Vec<Effect>) {
        if let Some(id) = self.by_worker.get(&process) {
            self.end_lease(now, *id);
        }
        let theirs =
            Claimant::Demand { process, key: 0 }..=Claimant::Demand { process, key: u32::MAX };
        let claimants: Vec<_> = self.claims.range(theirs).map(|(claimant, _)| *claimant).collect();
        for claimant in claimants {
            self.drop_claim(now, claimant, effects);
        }
        for lease in self.leases.values() {
            if let (Claimant::Demand { process: owner, .. }, Some(worker)) =
                (lease.claimant, lease.worker)
                && owner == process
            {
                effects.push(Effect::KillWorker { worker, owner });
            }
        }
    }

    fn barred(&self, shape: &Shape) -> Option<Bar> {
        let anywhere = shape.labels.is_empty() && shape.strategy == Strategy::Default;
        let why = (!anywhere).then(|| place::barred(shape, self.node, &self.labels));
        why.flatten().map(|why| Bar::Place(why.into_boxed_str()))
    }

    pub(super) fn feasible(&self, wanted: &ResourceSet) -> bool {
        if !self.bundles.is_empty() {
            match Asked::of(wanted) {
                Asked::Plain => {}
                Asked::InGroup(asked) => return self.bundle_could(&asked),
                Asked::Mixed => return false,
            }
        }
        self.total.covers(wanted) && self.gpus.could_take(wanted.parts(GPU))
    }

    pub(super) fn fits(&self, claimant: Claimant, wanted: &ResourceSet) -> bool {
        #[cfg(test)]
        self.looks.update(|looks| looks + 1);
        if self.closed {
            return false;
        }
        if wanted.is_empty() {
            let is_actor = matches!(claimant, Claimant::Actor { .. });
            return is_actor || self.leases_free() < LEASES_FREE_MAX;
        }
        if !self.bundles.is_empty() {
            match Asked::of(wanted) {
                Asked::Plain => {}
                Asked::InGroup(asked) => return self.bundle_for(&asked).is_some(),
                Asked::Mixed => return false,
            }
        }
        self.short(wanted).next().is_none()
    }

    /// Those that need nothing and are bounded all the same.
    fn leases_free(&self) -> usize {
        let of_task = |lease: &&Lease| matches!(lease.claimant, Claimant::Demand { .. });
        let leases = self.leases.values().filter(of_task);
        leases.filter(|lease| lease.resources.is_empty() && !lease.blocked).count()
    }

    /// The resources of `wanted` of which not enough is free.
    pub(super) fn short<'a>(&'a self, wanted: &'a ResourceSet) -> impl Iterator<Item = &'a str> {
        let short = wanted.iter().filter(|(name, parts)| {
            let sum = self.used.parts(name).saturating_add(*parts);
            sum > self.total.parts(name) || (*name == GPU && !self.gpus.can_take(*parts))
        });
        short.map(|(name, _)| name)
    }

    pub(super) fn demands(&self) -> impl Iterator<Item = (Claimant, &Claim)> {
        let first = Claimant::Demand { process: ProcessId(0), key: 0 };
        self.claims.range(first..).map(|(claimant, claim)| (*claimant, claim))
    }

    fn actor_claim(&self, actor: ActorId) -> Option<Claimant> {
        let first = Claimant::Actor { actor, incarnation: 0 };
        let last = Claimant::Actor { actor, incarnation: u32::MAX };
        self.claims.range(first..=last).next().map(|(claimant, _)| *claimant)
    }

    pub(super) fn drop_claim(
        &mut self,
        now: Instant,
        claimant: Claimant,
        effects: &mut Vec<Effect>,
    ) {
        let Some(claim) = self.claims.get(&claimant) else { return };
        // What was kept for it may be for others.
        self.may_grant |= self.feasible(&claim.shape.resources);
        if matches!(claimant, Claimant::Actor { .. }) && claim.unmet() > 0 {
            self.leave_line(now, claimant);
        }
        while self.claims[&claimant].reserved > 0 {
            self.cancel_reserved(now, claimant, effects);
        }
        self.claims.remove(&claimant);
    }

    /// The youngest lease of this claim that waits for its worker.
    fn cancel_reserved(&mut self, now: Instant, claimant: Claimant, effects: &mut Vec<Effect>) {
        let mut leases = self.leases.iter().rev();
        let lease = leases.find(|(_, l)| l.claimant == claimant && l.worker.is_none());
        let id = *lease.expect("SCHED-4: the claim has reserved leases").0;
        self.end_lease(now, id);
        self.claims.get_mut(&claimant).expect("it has leases").reserved -= 1;
        effects.push(Effect::CancelWorker { lease: id });
    }

    fn end_lease(&mut self, now: Instant, id: LeaseId) {
        self.give_all(id);
        let lease = self.leases.remove(&id).expect("it was just looked up");
        if let Some(claim) = self.claims.get_mut(&lease.claimant) {
            claim.since = now;
        }
        if let Some(worker) = lease.worker {
            self.by_worker.remove(&worker);
        }
    }

    /// The lease takes nothing of the node any more.
    fn give_all(&mut self, id: LeaseId) {
        let lease = self.leases.get_mut(&id).expect("the caller looked it up");
        self.used.subtract(&lease.in_use());
        self.may_grant = true;
        let resources = std::mem::replace(&mut lease.resources, ResourceSet::new());
        let (gpus, bundle) = (std::mem::take(&mut lease.gpus), lease.bundle.take());
        match bundle {
            None => self.gpus.give(&gpus, resources.parts(GPU)),
            Some(bundle) => {
                let of_gpus = resources.iter().find(|(name, _)| is_gpu(name));
                let parts = of_gpus.map_or(0, |(_, parts)| parts);
                self.bundles.give_gpus(bundle, &gpus, parts);
                self.free_if_unused(bundle);
            }
        }
    }

    pub(super) fn arm(&mut self, at: Instant) {
        self.deadline = Some(self.deadline.map_or(at, |other| other.min(at)));
    }
}

#[cfg(test)]
#[path = "local_tests.rs"]
pub(super) mod tests;
