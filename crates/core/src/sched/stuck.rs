//! Why claims wait, for those who wait and for people.

use std::collections::BTreeMap;
use std::time::Duration;

use hoplo_base::resources::{GPU, PARTS};
use hoplo_base::{Instant, ResourceSet};

use super::local::{Claimant, Effect, LocalScheduler, Stuck, in_use};

/// A claim that got nothing for so long is told why, and then of changes, at most this often.
const STUCK_AFTER: Duration = Duration::from_millis(500);

impl LocalScheduler {
    /// Tells those that got nothing for a while why, and those that were told when that changes.
    pub(super) fn tell_who_waits(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let mut changes = Vec::new();
        let mut later = Vec::new();
        for (claimant, claim) in
            self.claims.iter().filter(|(_, c)| c.told.is_some() || c.unmet() > 0)
        {
            let infeasible = !self.feasible(&claim.shape.resources);
            let waited = claim.since + STUCK_AFTER;
            let stuck = claim.unmet() > 0 && (infeasible || waited <= now);
            if claim.unmet() > 0 && !stuck {
                later.push(waited);
            }
            let stuck = stuck.then(|| self.why_stuck(&claim.shape.resources));
            let again = claim.told_at + STUCK_AFTER;
            match (&claim.told, &stuck) {
                (told, stuck) if told == stuck => {}
                (Some(_), Some(_)) if again > now => later.push(again),
                _ => changes.push((*claimant, stuck)),
            }
        }
        for at in later {
            self.arm(at);
        }
        for (claimant, stuck) in changes {
            let claim = self.claims.get_mut(&claimant).expect("it was just listed");
            claim.told = stuck.clone();
            claim.told_at = now;
            effects.push(tell_stuck(claimant, stuck));
        }
        self.claims.retain(|_, claim| claim.wanted > 0);
    }

    pub(super) fn why_stuck(&self, wanted: &ResourceSet) -> Stuck {
        if let Some((name, needs, has)) = self.total.lacks(wanted) {
            return Stuck {
                reason: format!("needs {name} {needs}, node has {has}"),
                infeasible: true,
            };
        }
        if !self.gpus.could_take(wanted.parts(GPU)) {
            let (needs, has) = (wanted.units(GPU), self.gpus.len());
            return Stuck {
                reason: format!("needs GPU {needs}, node has {has}"),
                infeasible: true,
            };
        }
        let reason = match self.short(wanted).first() {
            None if wanted.is_empty() => "too many tasks that need no resources run".to_string(),
            None => "it is the next one's turn".to_string(),
            Some(name) => format!(
                "{name}: {} of {} in use by {}",
                self.used.units(name),
                self.total.units(name),
                self.users(name)
            ),
        };
        Stuck { reason, infeasible: false }
    }

    /// Who uses most of a resource, a few of them.
    fn users(&self, name: &str) -> String {
        let mut users: BTreeMap<String, u64> = BTreeMap::new();
        for lease in self.leases.values() {
            let parts = in_use(lease).parts(name);
            if parts > 0 {
                let user = match lease.claimant {
                    Claimant::Demand { process, .. } => format!("tasks of {process}"),
                    Claimant::Actor { actor, .. } => actor.to_string(),
                };
                *users.entry(user).or_default() += parts;
            }
        }
        let mut users: Vec<_> = users.into_iter().collect();
        users.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        let more = users.len().saturating_sub(3);
        users.truncate(3);
        let mut text: Vec<String> = users
            .into_iter()
            .map(|(user, parts)| format!("{user} ({})", parts as f64 / PARTS as f64))
            .collect();
        if more > 0 {
            text.push(format!("{more} more"));
        }
        if text.is_empty() { "those that wait longer".to_string() } else { text.join(", ") }
    }
}

fn tell_stuck(claimant: Claimant, stuck: Option<Stuck>) -> Effect {
    match claimant {
        Claimant::Demand { process, key } => Effect::TellStuck { process, key, stuck },
        Claimant::Actor { actor, .. } => Effect::TellActorStuck { actor, stuck },
    }
}
