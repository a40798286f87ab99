//! What waits at the local scheduler, and what it has been given.

use std::collections::BTreeMap;

use hoplo_base::bundles::is_cpu;
use hoplo_base::limits::CLAIM_STUCK_AFTER;
use hoplo_base::{ActorId, GroupId, Instant, JobId, ProcessId, ResourceSet};
use hoplo_wire::Reason;
use hoplo_wire::node::Shape;

/// Why a claim waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    pub reason: Reason,
    /// This node can never meet it.
    pub infeasible: bool,
}

/// Stands between what no node has, and which one comes nearest to having it.
pub(super) const NEAREST: &str = " (node ";

/// What is lacking, of why no node can run something. Which node comes nearest to having it is left out: that changes as nodes join.
pub fn lack_of(why_never: &str) -> &str {
    why_never.split_once(NEAREST).map_or(why_never, |(lack, _)| lack)
}

/// Who waits for the head is told this of it.
pub fn silence_of_head(address: &str, since: Instant, now: Instant) -> String {
    match now.since(since).as_secs() {
        0 => format!("the head ({address}) does not answer"),
        seconds => format!("the head ({address}) has not answered for {seconds} s"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claimant {
    Actor { actor: ActorId, incarnation: u32 },
    Demand { process: ProcessId, key: u32 },
}

#[derive(Clone, Debug)]
pub struct Lease {
    pub claimant: Claimant,
    /// What it takes of the node (with its CPU, even while that is lent).
    pub resources: ResourceSet,
    pub gpus: Vec<u32>,
    /// Absent while it waits for one.
    pub worker: Option<ProcessId>,
    pub granted_at: Instant,
    pub recalled: bool,
    /// Its CPU is lent.
    pub blocked: bool,
    /// Its worker takes no more calls.
    pub retires: bool,
    /// The bundle of a placement group that it lies in.
    pub bundle: Option<(GroupId, u32)>,
    /// Of an actor: what it keeps once started.
    pub(super) held: ResourceSet,
}

impl Lease {
    /// What it takes of the node now.
    pub(super) fn in_use(&self) -> ResourceSet {
        if !self.blocked {
            return self.resources.clone();
        }
        let mut resources = ResourceSet::new();
        for (name, parts) in self.resources.iter().filter(|(name, _)| !is_cpu(name)) {
            resources.set_parts(name, parts);
        }
        resources
    }

    /// The same of one resource.
    pub(super) fn parts_in_use(&self, name: &str) -> u64 {
        if self.blocked && is_cpu(name) { 0 } else { self.resources.parts(name) }
    }

    pub(super) fn may_be_recalled(&self) -> bool {
        let of_a_process = matches!(self.claimant, Claimant::Demand { .. });
        of_a_process && self.worker.is_some() && !self.blocked && !self.recalled
    }
}

#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) job: JobId,
    pub(super) shape: Shape,
    pub(super) held: ResourceSet,
    /// Leases wanted, those included that wait for their worker.
    pub(super) wanted: u32,
    /// Leases that wait for their worker.
    pub(super) reserved: u32,
    /// When it began to wait, or last had something.
    pub(super) since: Instant,
    /// Order of arrival.
    pub(super) turn: u64,
    /// Since it got something last, its process was asked for what it has that is idle.
    pub(super) asked_idle: bool,
    /// Of an actor its line has it.
    pub(super) word: Word,
    /// Why it may not run here, whatever is free.
    pub(super) barred: Option<Bar>,
}

/// What keeps a claim from running here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Bar {
    /// It names another node, or a label that this one lacks: why.
    Place(Box<str>),
    /// There was room for it, and its Python is being made: what is done for that.
    Environment(Box<str>),
}

impl Claim {
    pub(super) fn unmet(&self) -> u32 {
        self.wanted - self.reserved
    }

    /// It could get something here.
    pub(super) fn is_open(&self) -> bool {
        self.unmet() > 0 && self.barred.is_none()
    }
}

/// What was said of why a claim or a line waits, and when it was looked up.
#[derive(Clone, Debug)]
pub(super) struct Word {
    pub(super) said: Option<Stuck>,
    pub(super) looked_at: Instant,
    /// `LocalScheduler::changes` then.
    pub(super) looked: u64,
}

impl Word {
    pub(super) fn none(now: Instant) -> Self {
        Self { said: None, looked_at: now, looked: 0 }
    }

    /// From when on it may be looked up anew, if it may have changed since.
    pub(super) fn stale_at(&self, changes: u64) -> Option<Instant> {
        let said = self.said.as_ref()?;
        let stale = self.looked < changes && !said.infeasible;
        stale.then(|| self.looked_at + CLAIM_STUCK_AFTER)
    }
}

/// Actors that want the same; its rules are in `lines`.
#[derive(Debug)]
pub(super) struct Line {
    /// The node could meet it if nobody else had anything.
    pub(super) feasible: bool,
    /// By turn.
    pub(super) members: BTreeMap<u64, Claimant>,
    /// What those were told that were told.
    pub(super) word: Word,
    /// Members of earlier turns were told, others not.
    pub(super) told_before: u64,
}
