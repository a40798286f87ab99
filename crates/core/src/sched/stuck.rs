//! Why claims wait, for those who wait and for people.

use std::collections::BTreeMap;

use hoplo_base::bundles::{Asked, GroupName};
use hoplo_base::limits::{CLAIM_STUCK_AFTER, LEASES_FREE_MAX};
use hoplo_base::resources::Amount;
use hoplo_base::{Instant, ResourceSet};
use hoplo_wire::Reason;

use super::claim::{Bar, Claim, Claimant, Stuck};
use super::local::{Effect, LocalScheduler};
use super::place::lacks_resource;

impl LocalScheduler {
    /// Tells those that got nothing for a while why, and those that were told when that changes.
    pub(super) fn tell_who_waits(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let mut users = BTreeMap::new();
        self.tell_lines(now, &mut users, effects);
        let mut looks = Vec::new();
        let mut done = Vec::new();
        let mut next: Option<Instant> = None;
        for (claimant, claim) in self.demands() {
            let stuck_at = self.stuck_at(claim);
            let due = match &claim.word.said {
                None => stuck_at,
                Some(_) if stuck_at.is_some_and(|at| at <= now) => {
                    claim.word.stale_at(self.changes)
                }
                // It got something: it hears now that it goes on, and why it waits when it has waited again.
                Some(_) => {
                    looks.push(claimant);
                    stuck_at
                }
            };
            match due {
                Some(at) if at <= now => looks.push(claimant),
                Some(at) => next = Some(next.map_or(at, |other| other.min(at))),
                None => {}
            }
            if claim.wanted == 0 {
                done.push(claimant);
            }
        }
        if let Some(at) = next {
            self.arm(at);
        }
        for claimant in looks {
            let claim = &self.claims[&claimant];
            let stuck = self.stuck_at(claim).filter(|at| *at <= now);
            let stuck = stuck.map(|_| self.why_stuck(claim, &mut users));
            let changes = self.changes;
            let claim = self.claims.get_mut(&claimant).expect("it was just looked up");
            (claim.word.looked, claim.word.looked_at) = (changes, now);
            if claim.word.said != stuck {
                claim.word.said = stuck.clone();
                effects.push(tell_stuck(claimant, stuck));
            }
        }
        for claimant in done {
            self.claims.remove(&claimant);
        }
    }

    /// From when on this claim is said to be stuck, if it gets nothing until then.
    fn stuck_at(&self, claim: &Claim) -> Option<Instant> {
        let feasible = claim.barred.is_none() && self.feasible(&claim.shape.resources);
        let at = if feasible { claim.since + CLAIM_STUCK_AFTER } else { claim.since };
        (claim.unmet() > 0).then_some(at)
    }

    /// `users` holds what was found for other claims at this moment.
    pub(super) fn why_stuck(&self, claim: &Claim, users: &mut BTreeMap<String, Reason>) -> Stuck {
        #[cfg(test)]
        self.looks.update(|looks| looks + 1);
        if self.closed {
            let reason = "its node is being drained, and no other one could take it".into();
            return Stuck { reason, infeasible: false };
        }
        let wanted = &claim.shape.resources;
        match &claim.barred {
            Some(Bar::Place(why)) => Stuck { reason: why.to_string().into(), infeasible: true },
            Some(Bar::Environment(what)) => {
                let reason = format!("its environment is being built ({what})").into();
                Stuck { reason, infeasible: false }
            }
            None => self.why_short(wanted, users),
        }
    }

    /// The same of resources, wherever they may be.
    pub(super) fn why_short(
        &self,
        wanted: &ResourceSet,
        users: &mut BTreeMap<String, Reason>,
    ) -> Stuck {
        match Asked::of(wanted) {
            Asked::Plain => {}
            Asked::InGroup(asked) => {
                if let Some(stuck) = self.why_stuck_in_group(&asked) {
                    return stuck;
                }
            }
            Asked::Mixed => {
                let reason = "asks for bundles of several placement groups at once".into();
                return Stuck { reason, infeasible: true };
            }
        }
        if let Some(reason) = lacks_resource(&self.total, wanted) {
            return Stuck { reason: reason.into(), infeasible: true };
        }
        let reason = match self.short(wanted).next() {
            None if wanted.is_empty() => format!(
                "{LEASES_FREE_MAX} tasks that need no resources run, which is the most at a time"
            )
            .into(),
            None => "it is the next one's turn".into(),
            Some(name) => {
                let users = users.entry(name.to_string()).or_insert_with(|| self.users(name));
                let (used, total) = (self.used.amount(name), self.total.amount(name));
                let named = match GroupName::parse(name) {
                    None => name.to_string(),
                    Some(GroupName { base, group, index: None }) => format!("{base} of {group}"),
                    Some(GroupName { base, group, index: Some(index) }) => {
                        format!("{base} of bundle {index} of {group}")
                    }
                };
                Reason::from(format!("{named}: {used} of {total} in use by ")).and(users.clone())
            }
        };
        Stuck { reason, infeasible: false }
    }

    /// Who uses most of a resource, a few of them.
    fn users(&self, name: &str) -> Reason {
        let mut users: BTreeMap<Reason, u64> = BTreeMap::new();
        for lease in self.leases.values() {
            let parts = lease.parts_in_use(name);
            if parts > 0 {
                let user = match lease.claimant {
                    Claimant::Demand { process, .. } => Reason::from("tasks of ").and(process),
                    Claimant::Actor { actor, .. } => actor.to_string().into(),
                };
                *users.entry(user).or_default() += parts;
            }
        }
        for (group, parts) in self.bundles_with(name) {
            *users.entry(group.to_string().into()).or_default() += parts;
        }
        let mut users: Vec<_> = users.into_iter().collect();
        users.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        let more = users.len().saturating_sub(3);
        users.truncate(3);
        let share = |parts| format!(" ({})", Amount::new(name, parts));
        let mut told: Vec<Reason> =
            users.into_iter().map(|(user, parts)| user.and(share(parts))).collect();
        if more > 0 {
            told.push(format!("{more} more").into());
        }
        if told.is_empty() { "those that wait longer".into() } else { Reason::joined(told, ", ") }
    }
}

pub(super) fn tell_stuck(claimant: Claimant, stuck: Option<Stuck>) -> Effect {
    match claimant {
        Claimant::Demand { process, key } => Effect::TellStuck { process, key, stuck },
        Claimant::Actor { actor, .. } => Effect::TellActorStuck { actor, stuck },
    }
}
