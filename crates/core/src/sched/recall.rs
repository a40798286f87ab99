//! Which leases are called back for claims that wait: the arithmetic of one pass.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::limits::LEASE_QUANTUM;
use hoplo_base::{Instant, LeaseId, ProcessId, ResourceSet};

use super::claim::{Claimant, Lease};
use super::local::{Effect, LocalScheduler};

impl LocalScheduler {
    /// Asks those that wait for what leases of their own take to give back those of them that are idle.
    pub(super) fn want_idle(&mut self, effects: &mut Vec<Effect>) {
        let unasked = self.demands().filter(|(_, claim)| claim.is_open() && !claim.asked_idle);
        let mut unasked = unasked.peekable();
        if unasked.peek().is_none() {
            return;
        }
        let mut has: BTreeMap<ProcessId, Vec<&Lease>> = BTreeMap::new();
        for lease in self.leases.values().filter(|lease| lease.may_be_recalled()) {
            if let Claimant::Demand { process, .. } = lease.claimant {
                has.entry(process).or_default().push(lease);
            }
        }
        let mut asked = Vec::new();
        for (claimant, claim) in unasked {
            let Claimant::Demand { process, key } = claimant else { continue };
            let Some(leases) = has.get(&process) else { continue };
            let wanted = &claim.shape.resources;
            let mut others = leases.iter().filter(|lease| lease.claimant != claimant);
            let helps =
                |lease: &&&Lease| self.short(wanted).any(|name| lease.resources.parts(name) > 0);
            if self.feasible(wanted) && others.any(|lease| helps(&lease)) {
                asked.push(claimant);
                effects.push(Effect::WantIdle { process, key });
            }
        }
        for claimant in asked {
            self.claims.get_mut(&claimant).expect("it was just looked up").asked_idle = true;
        }
    }

    /// Recalls what claims wait for from those who have more than they.
    pub(super) fn recall(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        // To an actor that needs nothing, nothing that is recalled would help.
        let heads = self.heads().filter(|head| !self.claims[head].shape.resources.is_empty());
        let heads: Vec<Claimant> = heads.collect();
        let demands = self.demands().filter(|(_, claim)| claim.is_open());
        let demands: Vec<Claimant> = demands.map(|(claimant, _)| claimant).collect();
        if heads.is_empty() && demands.is_empty() {
            return;
        }
        let candidates = self.leases.values().filter(|lease| lease.may_be_recalled());
        let Some(oldest) = candidates.map(|lease| lease.granted_at).min() else { return };
        // Hundreds may wait while all who could give something have had it for a moment only.
        if oldest + LEASE_QUANTUM > now && heads.is_empty() {
            self.arm(oldest + LEASE_QUANTUM);
            return;
        }
        let mut book = RecallBook::new(self);
        let place = |book: &RecallBook, claimant| {
            let claim = &self.claims[&claimant];
            (book.wealth(claimant), claim.since, claim.turn, claimant)
        };
        let mut waiting = BTreeSet::new();
        waiting.extend(heads.into_iter().chain(demands).map(|claimant| place(&book, claimant)));
        let mut recalled = Vec::new();
        let mut ripe_at = None;
        while let Some((_, _, _, claimant)) = waiting.pop_first() {
            let claim = &self.claims[&claimant];
            let all = (0..claim.unmet()).all(|_| {
                match book.meet(now, claimant, &claim.shape.resources) {
                    Meet::Expected => true,
                    Meet::Recall(leases) => {
                        recalled.extend(leases);
                        true
                    }
                    Meet::Ripens(at) => {
                        ripe_at = Some(ripe_at.map_or(at, |other: Instant| other.min(at)));
                        false
                    }
                    Meet::Never => false,
                }
            });
            // If there is nothing for the first of a line, there is nothing for those behind it.
            if all && let Claimant::Actor { .. } = claimant {
                waiting.extend(self.behind(claimant).map(|next| place(&book, next)));
            }
        }
        if let Some(at) = ripe_at {
            self.arm(at);
        }
        for id in recalled {
            let lease = self.leases.get_mut(&id).expect("the book holds living leases");
            lease.recalled = true;
            if let Claimant::Demand { process, .. } = lease.claimant {
                effects.push(Effect::Recall { process, lease: id });
            }
        }
    }
}

pub(super) enum Meet {
    /// What is free or was recalled already is enough.
    Expected,
    Recall(Vec<LeaseId>),
    /// It could be met by leases that are too young; the youngest of them is ripe then.
    Ripens(Instant),
    Never,
}

/// What would be free after all recalls, and who would then have how much.
pub(super) struct RecallBook<'a> {
    scheduler: &'a LocalScheduler,
    expected: ResourceSet,
    /// Leases that can be recalled, oldest first.
    candidates: Vec<(Instant, LeaseId)>,
    /// Leases that each will keep.
    keeps: Counts,
    /// Leases that each has or will get, recalled ones included until they are back: one who
    /// gives is not made to take from the next at once.
    has: Counts,
}

#[derive(Default)]
struct Counts {
    by_process: BTreeMap<ProcessId, u32>,
    by_claimant: BTreeMap<Claimant, u32>,
}

impl Counts {
    fn add(&mut self, claimant: Claimant, by: i32) {
        if let Claimant::Demand { process, .. } = claimant {
            let add = |count: &mut u32| {
                *count = count.checked_add_signed(by).expect("a recalled lease was counted");
            };
            add(self.by_process.entry(process).or_default());
            add(self.by_claimant.entry(claimant).or_default());
        }
    }

    fn of_process(&self, process: ProcessId) -> u32 {
        self.by_process.get(&process).copied().unwrap_or(0)
    }

    fn of_claimant(&self, claimant: Claimant) -> u32 {
        self.by_claimant.get(&claimant).copied().unwrap_or(0)
    }
}

impl<'a> RecallBook<'a> {
    pub(super) fn new(scheduler: &'a LocalScheduler) -> Self {
        let mut book = Self {
            scheduler,
            expected: scheduler.available(),
            candidates: Vec::new(),
            keeps: Counts::default(),
            has: Counts::default(),
        };
        for (id, lease) in scheduler.leases() {
            book.has.add(lease.claimant, 1);
            if lease.recalled {
                book.expected.add(&lease.in_use());
                continue;
            }
            if let Claimant::Demand { .. } = lease.claimant {
                book.keeps.add(lease.claimant, 1);
            }
            if lease.may_be_recalled() {
                book.candidates.push((lease.granted_at, id));
            }
        }
        book.candidates.sort();
        book
    }

    pub(super) fn meet(&mut self, now: Instant, claimant: Claimant, wanted: &ResourceSet) -> Meet {
        #[cfg(test)]
        self.scheduler.looks.update(|looks| looks + 1);
        let feasible = self.scheduler.feasible(wanted);
        let mut expected = self.expected.clone();
        let mut chosen: Vec<(Instant, LeaseId)> = Vec::new();
        for (granted_at, id) in &self.candidates {
            if expected.covers(wanted) || !feasible {
                break;
            }
            let lease = &self.scheduler.lease(*id);
            let lacks = |name: &str, parts| expected.parts(name) < parts;
            let helps = wanted
                .iter()
                .any(|(name, parts)| lacks(name, parts) && lease.resources.parts(name) > 0);
            if helps && self.is_richer(lease, claimant, &chosen) {
                expected.add(&lease.resources);
                chosen.push((*granted_at, *id));
            }
        }
        if !expected.covers(wanted) {
            return Meet::Never;
        }
        let ripe_at = match claimant {
            Claimant::Actor { .. } => None,
            Claimant::Demand { .. } => chosen.iter().map(|(at, _)| *at + LEASE_QUANTUM).max(),
        };
        if let Some(at) = ripe_at.filter(|at| *at > now) {
            return Meet::Ripens(at);
        }
        expected.subtract(wanted);
        self.expected = expected;
        self.has.add(claimant, 1);
        self.keeps.add(claimant, 1);
        let chosen: Vec<LeaseId> = chosen.into_iter().map(|(_, id)| id).collect();
        for id in &chosen {
            self.keeps.add(self.scheduler.lease(*id).claimant, -1);
        }
        self.candidates.retain(|(_, id)| !chosen.contains(id));
        if chosen.is_empty() { Meet::Expected } else { Meet::Recall(chosen) }
    }

    /// Whether the lease's holder would still not be poorer than the claimant.
    fn is_richer(&self, lease: &Lease, claimant: Claimant, chosen: &[(Instant, LeaseId)]) -> bool {
        let Claimant::Demand { process: holder, .. } = lease.claimant else { return false };
        let Claimant::Demand { process, .. } = claimant else { return true };
        if lease.worker == Some(process) {
            return false; // The one that waits runs on it.
        }
        let chosen = chosen.iter().map(|(_, id)| self.scheduler.lease(*id).claimant);
        let same_process = holder == process;
        let taken = chosen.filter(|other| match other {
            Claimant::Demand { process: p, .. } if !same_process => *p == holder,
            other => *other == lease.claimant,
        });
        let taken = taken.count() as u32;
        if same_process {
            let keeps = self.keeps.of_claimant(lease.claimant) - taken;
            lease.claimant != claimant && keeps > self.has.of_claimant(claimant)
        } else {
            let keeps = self.keeps.of_process(holder) - taken;
            keeps > self.has.of_process(process)
        }
    }

    /// Leases that the claimant's process has.
    pub(super) fn wealth(&self, claimant: Claimant) -> u32 {
        match claimant {
            Claimant::Actor { .. } => 0,
            Claimant::Demand { process, .. } => self.has.of_process(process),
        }
    }
}
