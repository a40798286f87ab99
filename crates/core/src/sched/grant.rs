//! In which order waiting claims get what is free.

use std::collections::BTreeSet;

use hoplo_base::limits::{LEASE_KEEP_PERIOD, LEASE_QUANTUM};
use hoplo_base::resources::GPU;
use hoplo_base::{ActorId, Instant, LeaseId, ProcessId, ResourceSet, TaskId};

use super::local::{Claimant, Effect, Lease, LocalScheduler};

impl LocalScheduler {
    /// A look at all who wait: only when one of them may get something.
    pub(super) fn grant(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let mut kept = BTreeSet::new();
        for claimant in self.elders(now) {
            let resources = &self.claims[&claimant].shape.resources;
            if self.fits(resources) {
                self.reserve(now, claimant, effects);
            } else if self.keeps_now(now, claimant) {
                kept.extend(self.short(resources).map(str::to_string));
            }
        }
        loop {
            let mut granted = false;
            for party in self.round() {
                let fit = self.claims_of(party).into_iter().find(|claimant| {
                    let resources = &self.claims[claimant].shape.resources;
                    self.fits(resources) && resources.iter().all(|(name, _)| !kept.contains(name))
                });
                if let Some(claimant) = fit {
                    self.reserve(now, claimant, effects);
                    self.served = party.or(self.served);
                    granted = true;
                }
            }
            if !granted {
                return;
            }
        }
    }

    /// Feasible claims of parties that have nothing and waited long enough, oldest first.
    fn elders(&mut self, now: Instant) -> Vec<Claimant> {
        let mut has = BTreeSet::new();
        has.extend(self.leases.values().map(|lease| lease.claimant));
        let mut elders = Vec::new();
        let mut later = Vec::new();
        for (claimant, claim) in &self.claims {
            let poor = claim.unmet() > 0 && !has.contains(claimant);
            if !poor || !self.feasible(&claim.shape.resources) {
                continue;
            }
            let waited = now.since(claim.since);
            if waited >= LEASE_QUANTUM {
                elders.push((claim.since, claim.turn, *claimant));
                let periods = waited.as_nanos() / LEASE_KEEP_PERIOD.as_nanos();
                later.push(claim.since + LEASE_KEEP_PERIOD * (periods as u32).saturating_add(1));
            } else {
                later.push(claim.since + LEASE_QUANTUM);
            }
        }
        self.grant_at = later.into_iter().min();
        elders.sort();
        elders.into_iter().map(|(_, _, claimant)| claimant).collect()
    }

    fn keeps_now(&self, now: Instant, claimant: Claimant) -> bool {
        let waited = now.since(self.claims[&claimant].since);
        (waited.as_nanos() / LEASE_KEEP_PERIOD.as_nanos()).is_multiple_of(2)
    }

    /// Who takes turns: actors as one party (`None`), then processes, beginning after `served`.
    fn round(&self) -> Vec<Option<ProcessId>> {
        let mut processes = Vec::new();
        let mut actors = false;
        for (claimant, claim) in &self.claims {
            match claimant {
                _ if claim.unmet() == 0 => {}
                Claimant::Actor { .. } => actors = true,
                Claimant::Demand { process, .. } if processes.last() == Some(process) => {}
                Claimant::Demand { process, .. } => processes.push(*process),
            }
        }
        let after = processes.partition_point(|process| Some(*process) <= self.served);
        processes.rotate_left(after);
        actors.then_some(None).into_iter().chain(processes.into_iter().map(Some)).collect()
    }

    /// The waiting claims of one party in the order in which they came.
    fn claims_of(&self, party: Option<ProcessId>) -> Vec<Claimant> {
        // The least of each kind, to begin a range: nobody has such ids.
        let first = Claimant::Actor {
            actor: ActorId(TaskId { owner: ProcessId(0), seq: 0 }),
            incarnation: 0,
        };
        let range = match party {
            None => first..Claimant::Demand { process: ProcessId(0), key: 0 },
            Some(process) => {
                Claimant::Demand { process, key: 0 }..Claimant::Demand {
                    process: ProcessId(process.0 + 1),
                    key: 0,
                }
            }
        };
        let waiting = self.claims.range(range).filter(|(_, claim)| claim.unmet() > 0);
        let mut claims: Vec<_> = waiting.map(|(id, claim)| (claim.turn, *id)).collect();
        claims.sort();
        claims.into_iter().map(|(_, claimant)| claimant).collect()
    }

    fn reserve(&mut self, now: Instant, claimant: Claimant, effects: &mut Vec<Effect>) {
        let claim = self.claims.get_mut(&claimant).expect("it was just looked up");
        assert!(claim.unmet() > 0);
        claim.reserved += 1;
        let mut held = ResourceSet::new();
        for (name, parts) in claim.held.iter() {
            held.set_parts(name, parts.min(claim.shape.resources.parts(name)));
        }
        let resources = claim.shape.resources.clone();
        let id = LeaseId::new(self.node, self.next_lease);
        self.next_lease += 1;
        self.used.add(&resources);
        let gpus = self.gpus.take(resources.parts(GPU));
        let lease = Lease {
            claimant,
            gpus: gpus.clone(),
            resources,
            worker: None,
            granted_at: now,
            recalled: false,
            blocked: false,
            held,
        };
        self.leases.insert(id, lease);
        effects.push(Effect::AcquireWorker {
            lease: id,
            job: claim.job,
            env: claim.shape.env.clone(),
            gpus,
            prefer: match claimant {
                Claimant::Demand { process, .. } => Some(process),
                Claimant::Actor { .. } => None,
            },
        });
    }
}
