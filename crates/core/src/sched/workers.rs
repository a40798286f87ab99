//! Worker pool: which worker processes exist, and which of them serves which lease.
//!
//! ```text
//!            fork            Hello           lease             lease returned
//!  (nothing) ----> starting -------> idle --------> busy ----------------------> idle
//!                     |                |              | it says that it takes no more calls
//!                     | failed         |  idle for WORKER_IDLE, beyond the floor
//!                     |                v              v
//!                     +--> (nothing)  retired <-------/ --> gone
//! ```
//!
//! A lease gets an idle worker of its job, environment and GPUs, best one that its owner has a channel
//! with already; else it waits, and a worker is forked for it. Forks follow what waits: one starting
//! worker for each waiting lease, at most `starts_max` at a time. The scheduler bounds the leases,
//! so the pool needs no bound on workers of its own.
//!
//! A worker that an actor keeps does not come back. Who makes one actor often makes another, or loses this one and waits for
//! its restart: so a spare worker is started in its place, where none of its kind idles or starts. An actor that finds it
//! waits for no process to start, which is most of what making an actor takes. A spare that fails to start is not tried again.
//!
//! Some starts fail for no reason of ours (a fork is refused for lack of memory): another is
//! tried. After `STARTS_FAILED_MAX` failures in a row of one job and environment, what waits for it fails. In
//! a row: each began after the one before it had failed. Starts that fail together count as one. A start that
//! somebody killed says little about its environment: there may be `STARTS_KILLED_MAX` of them.
//!
//! Libraries read `CUDA_VISIBLE_DEVICES` once, when they first look for devices. So a worker that had a lease
//! with GPUs serves leases of the same GPUs only, and one that had none serves leases without. An idle
//! worker may still hold memory of its GPUs: it is retired when another kind of worker gets one of them, and
//! whatever the floor is when it has been idle for `WORKER_IDLE`.
//!
//! # Invariants
//! - POOL-1: a lease waits, or has a worker, never both; no two leases have the same worker.
//! - POOL-2: while leases wait for a kind of worker, as many start as wait (or `starts_max` in all).
//! - POOL-3: no idle worker fits a lease that waits.
//! - POOL-4: no idle worker has a GPU in common with a lease that waits.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::limits::{
    STARTS_FAILED_MAX, STARTS_KILLED_MAX, WORKER_IDLE, WORKERS_IDLE_FLOORS_MAX,
};
use hoplo_base::{Instant, JobId, LeaseId, ProcessId};
use hoplo_wire::Failure;
use hoplo_wire::node::RuntimeEnv;

/// Why a worker that holds memory of GPUs goes.
const GPUS_GO: &str = "others get its GPUs";

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Wanted {
        lease: LeaseId,
        job: JobId,
        env: RuntimeEnv,
        gpus: Vec<u32>,
        prefer: Option<ProcessId>,
    },
    /// The lease does not wait any more (it has no worker yet).
    Cancelled {
        lease: LeaseId,
    },
    Released {
        worker: ProcessId,
    },
    /// An actor keeps it.
    Kept {
        worker: ProcessId,
    },
    Started {
        ticket: u64,
        worker: ProcessId,
    },
    StartFailed {
        ticket: u64,
        failure: Failure,
        /// Somebody killed it (SIGKILL), which says little about its environment.
        killed: bool,
    },
    /// Nobody began it, for no reason of its own: another start takes its place.
    StartUndone {
        ticket: u64,
    },
    /// It takes no more calls, and goes by itself: its lease is about to come back.
    Retires {
        worker: ProcessId,
    },
    /// `worker` has a channel with `peer`.
    Connected {
        worker: ProcessId,
        peer: ProcessId,
    },
    Gone {
        process: ProcessId,
    },
    /// The driver is gone; only what detached actors need is still started for it.
    JobEnded {
        job: JobId,
    },
    Tick,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    Fork {
        ticket: u64,
        job: JobId,
        env: RuntimeEnv,
    },
    Assign {
        lease: LeaseId,
        worker: ProcessId,
    },
    Fail {
        lease: LeaseId,
        failure: Failure,
    },
    /// It is idle and not needed any more: to exit.
    Retire {
        worker: ProcessId,
        reason: &'static str,
    },
}

/// What distinguishes workers: they cannot be changed from one to the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    job: JobId,
    env: RuntimeEnv,
    /// Ids, ascending.
    gpus: Vec<u32>,
}

impl Kind {
    /// The floor is not for those: they hold memory of GPUs, or only tasks of one placement group can use them.
    fn is_special(&self) -> bool {
        !self.gpus.is_empty() || self.env.group.is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    Idle {
        since: Instant,
    },
    Busy,
    /// It was told to exit, or said that it goes: it gets no lease any more.
    Retired,
}

#[derive(Clone, Debug)]
struct Worker {
    kind: Kind,
    state: WorkerState,
    /// Processes that it has a channel with.
    peers: BTreeSet<ProcessId>,
}

#[derive(Clone, Debug)]
struct Waiting {
    kind: Kind,
    prefer: Option<ProcessId>,
}

/// Starts of one kind that failed in a row.
#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    count: u32,
    /// Of those that somebody killed, which do not count above.
    killed: u32,
    /// Ticket of the first start that was asked for after the last of them had failed.
    since: u64,
}

#[derive(Debug)]
pub struct WorkerPool {
    /// Idle workers that are kept however long they idle.
    floor: usize,
    /// Workers that start at the same time.
    starts_max: usize,
    workers: BTreeMap<ProcessId, Worker>,
    /// In the order of the leases' ids, which is the order in which they were reserved.
    waiting: BTreeMap<LeaseId, Waiting>,
    starting: BTreeMap<u64, Kind>,
    failures: BTreeMap<Kind, Failures>,
    ended: BTreeSet<JobId>,
    next_ticket: u64,
}

impl WorkerPool {
    /// `floor`: the node's CPUs, about.
    pub fn new(floor: usize) -> Self {
        Self {
            floor,
            starts_max: (2 * floor).max(4),
            workers: BTreeMap::new(),
            waiting: BTreeMap::new(),
            starting: BTreeMap::new(),
            failures: BTreeMap::new(),
            ended: BTreeSet::new(),
            next_ticket: 1,
        }
    }

    pub fn handle(&mut self, now: Instant, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Wanted { lease, job, env, gpus, prefer } => {
                let kind = Kind { job, env, gpus };
                match self.best_idle(&kind, prefer) {
                    Some(worker) => self.assign(lease, worker, effects),
                    None => {
                        self.retire_users(&kind.gpus, effects);
                        let other = self.waiting.insert(lease, Waiting { kind, prefer });
                        assert!(other.is_none(), "POOL-1: {lease} waits twice");
                    }
                }
            }
            Event::Cancelled { lease } => {
                self.waiting.remove(&lease);
            }
            Event::Released { worker } => self.on_released(now, worker, effects),
            Event::Kept { worker } => self.replace(worker, effects),
            Event::Started { ticket, worker } => self.on_started(now, ticket, worker, effects),
            Event::StartFailed { ticket, failure, killed } => {
                self.on_start_failed(ticket, &failure, killed, effects);
            }
            Event::StartUndone { ticket } => {
                self.starting.remove(&ticket).expect("every start was asked for");
            }
            Event::Retires { worker } => {
                if let Some(worker) = self.workers.get_mut(&worker) {
                    worker.state = WorkerState::Retired;
                }
            }
            Event::Connected { worker, peer } => {
                for (one, other) in [(worker, peer), (peer, worker)] {
                    if let Some(worker) = self.workers.get_mut(&one) {
                        worker.peers.insert(other);
                    }
                }
            }
            Event::Gone { process } => {
                self.workers.remove(&process);
                for worker in self.workers.values_mut() {
                    worker.peers.remove(&process);
                }
            }
            Event::JobEnded { job } => {
                self.ended.insert(job);
                self.failures.retain(|kind, _| kind.job != job);
            }
            Event::Tick => {}
        }
        self.retire(now, effects);
        self.fork(effects);
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        let is_spare = self.idle().count() > self.floor;
        let special = |id: &ProcessId| self.workers[id].kind.is_special();
        let reapable = self.idle().filter(|(_, id)| is_spare || special(id));
        reapable.map(|(since, _)| since + WORKER_IDLE).min()
    }

    pub fn state(&self, worker: ProcessId) -> Option<WorkerState> {
        self.workers.get(&worker).map(|worker| worker.state)
    }

    pub fn starting(&self) -> usize {
        self.starting.len()
    }

    /// What this start is for.
    pub fn env_of_start(&self, ticket: u64) -> Option<&RuntimeEnv> {
        self.starting.get(&ticket).map(|kind| &kind.env)
    }

    /// Environments that a worker has, or is to have.
    pub fn envs(&self) -> impl Iterator<Item = &RuntimeEnv> {
        let workers = self.workers.values().map(|worker| &worker.kind);
        let waiting = self.waiting.values().map(|waiting| &waiting.kind);
        workers.chain(waiting).chain(self.starting.values()).map(|kind| &kind.env)
    }

    /// Why this lease has no worker yet.
    pub fn explain(&self, lease: LeaseId) -> Option<String> {
        let waiting = self.waiting.get(&lease)?;
        let failures =
            self.failures.get(&waiting.kind).map_or(0, |failures| failures.count + failures.killed);
        Some(match failures {
            0 => "its worker is starting".to_string(),
            _ => format!("its worker is starting (it failed {failures} times)"),
        })
    }

    /// Asserts the invariants of the module's doc.
    pub fn check(&self) {
        for (lease, waiting) in &self.waiting {
            let fits = self.best_idle(&waiting.kind, None);
            assert_eq!(fits, None, "POOL-3: {lease}");
            let users = self.idle().filter(|(_, id)| self.shares(*id, &waiting.kind.gpus));
            assert_eq!(users.count(), 0, "POOL-4: {lease}");
        }
        let waiting = self.waiting.len();
        let busy_starting = self.starting.len() >= self.starts_max;
        assert!(busy_starting || self.starting.len() >= waiting.min(self.starts_max), "POOL-2");
    }

    fn on_released(&mut self, now: Instant, id: ProcessId, effects: &mut Vec<Effect>) {
        // It died, or it goes, while it was being given back.
        let Some(worker) = self.workers.get_mut(&id) else { return };
        match worker.state {
            WorkerState::Retired => return,
            WorkerState::Busy => worker.state = WorkerState::Idle { since: now },
            WorkerState::Idle { .. } => panic!("POOL-1: {id} is given back, but it is idle"),
        }
        self.serve(id, effects);
    }

    fn on_started(&mut self, now: Instant, ticket: u64, id: ProcessId, effects: &mut Vec<Effect>) {
        let kind = self.starting.remove(&ticket).expect("every start was asked for");
        self.failures.remove(&kind);
        let state = WorkerState::Idle { since: now };
        self.workers.insert(id, Worker { kind, state, peers: BTreeSet::new() });
        self.serve(id, effects);
    }

    fn on_start_failed(
        &mut self,
        ticket: u64,
        failure: &Failure,
        killed: bool,
        effects: &mut Vec<Effect>,
    ) {
        let kind = self.starting.remove(&ticket).expect("every start was asked for");
        let failures = self.failures.entry(kind.clone()).or_default();
        if ticket >= failures.since {
            failures.since = self.next_ticket;
            *(if killed { &mut failures.killed } else { &mut failures.count }) += 1;
        }
        if failures.count < STARTS_FAILED_MAX && failures.killed < STARTS_KILLED_MAX {
            return;
        }
        self.failures.remove(&kind);
        let failed: Vec<LeaseId> =
            self.waiting.iter().filter(|(_, w)| w.kind == kind).map(|(lease, _)| *lease).collect();
        for lease in failed {
            self.waiting.remove(&lease);
            effects.push(Effect::Fail { lease, failure: failure.clone() });
        }
    }

    /// Gives an idle worker to the first lease that it fits: one whose owner knows it, if any.
    fn serve(&mut self, id: ProcessId, effects: &mut Vec<Effect>) {
        let worker = &self.workers[&id];
        let fits = || self.waiting.iter().filter(|(_, waiting)| waiting.kind == worker.kind);
        let known = fits().find(|(_, w)| w.prefer.is_some_and(|peer| worker.peers.contains(&peer)));
        if let Some(lease) = known.or_else(|| fits().next()).map(|(lease, _)| *lease) {
            self.waiting.remove(&lease);
            return self.assign(lease, id, effects);
        }
        if self.waiting.values().any(|waiting| self.shares(id, &waiting.kind.gpus)) {
            self.retire_one(id, GPUS_GO, effects);
        }
    }

    fn assign(&mut self, lease: LeaseId, id: ProcessId, effects: &mut Vec<Effect>) {
        let worker = self.workers.get_mut(&id).expect("an idle worker lives");
        assert!(matches!(worker.state, WorkerState::Idle { .. }), "POOL-1: {id}");
        worker.state = WorkerState::Busy;
        effects.push(Effect::Assign { lease, worker: id });
    }

    /// Known to the asker first, then the one that was used last (its caches are warm).
    fn best_idle(&self, kind: &Kind, prefer: Option<ProcessId>) -> Option<ProcessId> {
        let idle = self.workers.iter().filter_map(|(id, worker)| match worker.state {
            WorkerState::Idle { since } if worker.kind == *kind => {
                let known = prefer.is_some_and(|peer| worker.peers.contains(&peer));
                Some(((known, since), *id))
            }
            WorkerState::Idle { .. } | WorkerState::Busy | WorkerState::Retired => None,
        });
        idle.max().map(|(_, id)| id)
    }

    fn idle(&self) -> impl Iterator<Item = (Instant, ProcessId)> {
        self.workers.iter().filter_map(|(id, worker)| match worker.state {
            WorkerState::Idle { since } => Some((since, *id)),
            WorkerState::Busy | WorkerState::Retired => None,
        })
    }

    fn shares(&self, worker: ProcessId, gpus: &[u32]) -> bool {
        self.workers[&worker].kind.gpus.iter().any(|gpu| gpus.contains(gpu))
    }

    fn retire_users(&mut self, gpus: &[u32], effects: &mut Vec<Effect>) {
        let users = self.idle().filter(|(_, id)| self.shares(*id, gpus));
        for id in users.map(|(_, id)| id).collect::<Vec<_>>() {
            self.retire_one(id, GPUS_GO, effects);
        }
    }

    fn retire_one(&mut self, id: ProcessId, reason: &'static str, effects: &mut Vec<Effect>) {
        self.workers.get_mut(&id).expect("it was just listed").state = WorkerState::Retired;
        effects.push(Effect::Retire { worker: id, reason });
    }

    fn retire(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let mut idle: Vec<_> = self.idle().collect();
        idle.sort();
        let mut spare = idle.len().saturating_sub(self.floor);
        let mut excess = idle.len().saturating_sub(self.floor.max(1) * WORKERS_IDLE_FLOORS_MAX);
        for (since, id) in idle {
            let worker = &self.workers[&id];
            let reason = if self.ended.contains(&worker.kind.job) {
                "its job ended"
            } else if excess > 0 {
                "too many idle workers"
            } else if (spare > 0 || worker.kind.is_special()) && now.since(since) >= WORKER_IDLE {
                "idle"
            } else {
                continue;
            };
            spare = spare.saturating_sub(1);
            excess = excess.saturating_sub(1);
            self.retire_one(id, reason, effects);
        }
    }

    /// Starts a spare one in the place of a worker that does not come back.
    fn replace(&mut self, id: ProcessId, effects: &mut Vec<Effect>) {
        let Some(worker) = self.workers.get(&id) else { return };
        let kind = worker.kind.clone();
        let starts = self.starting.values().any(|other| *other == kind);
        if starts
            || kind.is_special()
            || self.ended.contains(&kind.job)
            || self.best_idle(&kind, None).is_some()
        {
            return;
        }
        self.start(kind, effects);
    }

    /// As many starts of each kind as leases wait for it.
    fn fork(&mut self, effects: &mut Vec<Effect>) {
        let mut starting: BTreeMap<Kind, usize> = BTreeMap::new();
        for kind in self.starting.values() {
            *starting.entry(kind.clone()).or_default() += 1;
        }
        let mut missing = Vec::new();
        for waiting in self.waiting.values() {
            if let Some(count) = starting.get_mut(&waiting.kind).filter(|count| **count > 0) {
                *count -= 1;
                continue;
            }
            if self.starting.len() + missing.len() >= self.starts_max {
                break;
            }
            missing.push(waiting.kind.clone());
        }
        for kind in missing {
            self.start(kind, effects);
        }
    }

    fn start(&mut self, kind: Kind, effects: &mut Vec<Effect>) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        effects.push(Effect::Fork { ticket, job: kind.job, env: kind.env.clone() });
        self.starting.insert(ticket, kind);
    }
}

#[cfg(test)]
#[path = "workers_tests.rs"]
mod tests;
