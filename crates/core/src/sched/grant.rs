//! In which order waiting claims get what is free.

use std::collections::BTreeSet;

use hoplo_base::bundles::{Asked, InGroup, is_gpu};
use hoplo_base::limits::{LEASE_KEEP_PERIOD, LEASE_QUANTUM};
use hoplo_base::resources::GPU;
use hoplo_base::{GroupId, Instant, LeaseId, ProcessId, ResourceSet};

use super::claim::{Claim, Claimant, Lease};
use super::local::{Effect, LocalScheduler};
use super::stuck::tell_stuck;

impl LocalScheduler {
    /// A look at all who wait: only when one of them may get something.
    pub(super) fn grant(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let mut kept = BTreeSet::new();
        let mut elders = self.elders(now);
        while let Some((_, _, claimant)) = elders.pop_first() {
            let resources = &self.claims[&claimant].shape.resources;
            if !self.fits(claimant, resources) {
                if self.keeps_now(now, claimant) {
                    kept.extend(self.short(resources).map(str::to_string));
                }
                continue;
            }
            let next = match claimant {
                Claimant::Actor { .. } => self.behind(claimant),
                Claimant::Demand { .. } => None,
            };
            self.reserve_or_park(now, claimant, effects);
            elders.extend(next.and_then(|next| self.elder(now, next)));
        }
        loop {
            let mut granted = false;
            for party in self.round() {
                let fit = self.claims_of(party).into_iter().find(|claimant| {
                    let resources = &self.claims[claimant].shape.resources;
                    self.fits(*claimant, resources)
                        && resources.iter().all(|(name, _)| !kept.contains(name))
                });
                if let Some(claimant) = fit {
                    self.reserve_or_park(now, claimant, effects);
                    self.served = party.or(self.served);
                    granted = true;
                }
            }
            if !granted {
                return;
            }
        }
    }

    /// Feasible claims of parties that have nothing and waited long enough, oldest first. Of a line of actors
    /// it is the first one: the others get nothing before it.
    fn elders(&mut self, now: Instant) -> BTreeSet<(Instant, u64, Claimant)> {
        let mut has = BTreeSet::new();
        has.extend(self.leases.values().map(|lease| lease.claimant));
        let poor = |(claimant, claim): &(Claimant, &Claim)| {
            claim.is_open() && !has.contains(claimant) && self.feasible(&claim.shape.resources)
        };
        let demands = self.demands().filter(poor).map(|(claimant, _)| claimant);
        let poor: Vec<Claimant> = self.heads().chain(demands).collect();
        self.grant_at = None;
        for claimant in &poor {
            self.arm_grant(now, self.claims[claimant].since);
        }
        poor.into_iter().filter_map(|claimant| self.elder(now, claimant)).collect()
    }

    /// Its place among the elders, if it is one.
    fn elder(&self, now: Instant, claimant: Claimant) -> Option<(Instant, u64, Claimant)> {
        let claim = &self.claims[&claimant];
        (now.since(claim.since) >= LEASE_QUANTUM).then_some((claim.since, claim.turn, claimant))
    }

    /// A claim that waits since then may get something by time alone: when it becomes an elder, and when what is
    /// kept for it changes.
    pub(super) fn arm_grant(&mut self, now: Instant, since: Instant) {
        let waited = now.since(since);
        let at = if waited < LEASE_QUANTUM {
            since + LEASE_QUANTUM
        } else {
            let periods = waited.as_nanos() / LEASE_KEEP_PERIOD.as_nanos();
            since + LEASE_KEEP_PERIOD * (periods as u32).saturating_add(1)
        };
        self.grant_at = Some(self.grant_at.map_or(at, |other| other.min(at)));
    }

    fn keeps_now(&self, now: Instant, claimant: Claimant) -> bool {
        let waited = now.since(self.claims[&claimant].since);
        (waited.as_nanos() / LEASE_KEEP_PERIOD.as_nanos()).is_multiple_of(2)
    }

    /// Who takes turns: actors as one party (`None`), then processes, beginning after `served`.
    fn round(&self) -> Vec<Option<ProcessId>> {
        let mut processes = Vec::new();
        for (claimant, claim) in self.demands() {
            let Claimant::Demand { process, .. } = claimant else { continue };
            if claim.is_open() && processes.last() != Some(&process) {
                processes.push(process);
            }
        }
        let actors = self.heads().next().is_some();
        let after = processes.partition_point(|process| Some(*process) <= self.served);
        processes.rotate_left(after);
        actors.then_some(None).into_iter().chain(processes.into_iter().map(Some)).collect()
    }

    /// The waiting claims of one party in the order in which they came; of a line of actors the first.
    fn claims_of(&self, party: Option<ProcessId>) -> Vec<Claimant> {
        let mut claims: Vec<_> = match party {
            None => self.heads().map(|head| (self.claims[&head].turn, head)).collect(),
            Some(process) => {
                let range = Claimant::Demand { process, key: 0 }..=Claimant::Demand {
                    process,
                    key: u32::MAX,
                };
                let waiting = self.claims.range(range).filter(|(_, claim)| claim.is_open());
                waiting.map(|(id, claim)| (claim.turn, *id)).collect()
            }
        };
        claims.sort();
        claims.into_iter().map(|(_, claimant)| claimant).collect()
    }

    fn reserve_or_park(&mut self, now: Instant, claimant: Claimant, effects: &mut Vec<Effect>) {
        if !self.is_parked_now(now, claimant, effects) {
            self.reserve(now, claimant, effects);
        }
    }

    fn reserve(&mut self, now: Instant, claimant: Claimant, effects: &mut Vec<Effect>) {
        let was_told = match claimant {
            Claimant::Actor { .. } => self.leave_line(now, claimant),
            Claimant::Demand { .. } => false, // It hears at the end of this event.
        };
        let claim = self.claims.get_mut(&claimant).expect("it was just looked up");
        assert!(claim.is_open());
        let python = claim.shape.env.python.as_deref();
        assert!(python.is_none_or(|python| self.made.contains(python)), "SCHED-10: {claimant:?}");
        claim.reserved += 1;
        let mut held = ResourceSet::new();
        for (name, parts) in claim.held.iter() {
            held.set_parts(name, parts.min(claim.shape.resources.parts(name)));
        }
        let (job, env) = (claim.job, claim.shape.env.clone());
        let mut resources = claim.shape.resources.clone();
        let id = LeaseId::new(self.node, self.next_lease);
        self.next_lease += 1;
        let bundle = self.settle(&mut resources, &mut held);
        self.used.add(&resources);
        let gpus = match bundle {
            None => self.gpus.take(resources.parts(GPU)),
            Some(bundle) => {
                let of_gpus = resources.iter().find(|(name, _)| is_gpu(name));
                self.bundles.take_gpus(bundle, of_gpus.map_or(0, |(_, parts)| parts))
            }
        };
        let lease = Lease {
            claimant,
            gpus: gpus.clone(),
            resources,
            worker: None,
            granted_at: now,
            recalled: false,
            blocked: false,
            retires: false,
            bundle,
            held,
        };
        self.leases.insert(id, lease);
        effects.push(Effect::AcquireWorker {
            lease: id,
            job,
            env,
            gpus,
            prefer: match claimant {
                Claimant::Demand { process, .. } => Some(process),
                Claimant::Actor { .. } => None,
            },
        });
        if was_told {
            effects.push(tell_stuck(claimant, None));
        }
    }
    /// What asks for a bundle of a placement group is put into one.
    fn settle(
        &self,
        resources: &mut ResourceSet,
        held: &mut ResourceSet,
    ) -> Option<(GroupId, u32)> {
        if self.bundles.is_empty() {
            return None;
        }
        let Asked::InGroup(asked) = Asked::of(resources) else { return None };
        let (bundle, named) = self.bundle_for(&asked).expect("the caller saw that it fits");
        *resources = named;
        if let Asked::InGroup(kept) = Asked::of(held) {
            *held = InGroup { index: Some(bundle.1), ..kept }.named();
        }
        Some(bundle)
    }
}
