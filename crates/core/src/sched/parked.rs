//! Claims that are parked: there is room for them, and the Python of their environment is still to be made.
//!
//! ```text
//!   open --room, its Python is not made--> parked --made--> open --room--> reserved
//!                                            \--cannot be made--> (fails)
//! ```
//! To make a Python may take minutes. So it begins only where a claim could run at once, and the claim takes no
//! resources meanwhile: others run. It stays in its place by its turn and by how long it waits. What the broker wants
//! to know of it is how many leases it would have here by now: those stay here, the others may look elsewhere.
//!
//! Who makes what, and for how long, is decided in `environments`; here is only what is made (`made`).
//!
//! # Invariants
//! - SCHED-10: no claim is parked whose Python is made or that has none, and nobody gets a lease whose Python is not made.

use hoplo_base::Instant;
use hoplo_base::limits::LEASES_FREE_MAX;
use hoplo_wire::Failure;
use hoplo_wire::node::PythonEnv;

use super::claim::{Bar, Claim, Claimant};
use super::local::{Effect, LocalScheduler};
use super::place::rooms;
use super::stuck::tell_stuck;

impl LocalScheduler {
    /// There is room for it. True: it waits for its Python first.
    pub(super) fn is_parked_now(
        &mut self,
        now: Instant,
        claimant: Claimant,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Some(python) = self.claims[&claimant].shape.env.python.as_deref() else { return false };
        if self.made.contains(python) {
            return false;
        }
        let python = python.clone();
        let bar = Bar::Environment(python.what.as_str().into());
        self.bar(now, claimant, Some(bar), effects);
        effects.push(Effect::MakeEnvironment { python });
        true
    }

    pub(super) fn on_environment_made(
        &mut self,
        now: Instant,
        python: PythonEnv,
        effects: &mut Vec<Effect>,
    ) {
        for claimant in self.claims_in(&python) {
            if is_parked(&self.claims[&claimant]) {
                self.bar(now, claimant, None, effects);
                self.may_grant = true;
            }
        }
        self.made.insert(python);
    }

    /// Those fail as well that were not parked yet: they would be, and wait for the same again.
    pub(super) fn on_environment_failed(
        &mut self,
        now: Instant,
        python: &PythonEnv,
        failure: &Failure,
        effects: &mut Vec<Effect>,
    ) {
        self.made.remove(python);
        for claimant in self.claims_in(python) {
            if self.claims[&claimant].unmet() == 0 {
                continue; // It has a worker by when the Python was still there.
            }
            self.drop_claim(now, claimant, effects);
            let failure = failure.clone();
            effects.push(match claimant {
                Claimant::Demand { process, key } => Effect::FailDemand { process, key, failure },
                Claimant::Actor { actor, incarnation } => {
                    Effect::FailActor { actor, incarnation, failure }
                }
            });
        }
    }

    /// Leases that a parked claim would have now.
    pub(super) fn room_of_parked(&self, claim: &Claim) -> u32 {
        if !is_parked(claim) {
            return 0;
        }
        let free = LEASES_FREE_MAX as u32;
        rooms(&self.available(), &claim.shape.resources, free).min(claim.unmet())
    }

    /// Asserts SCHED-10.
    pub(super) fn check_parked(&self) {
        for (claimant, claim) in self.claims.iter().filter(|(_, claim)| is_parked(claim)) {
            let python = claim.shape.env.python.as_deref();
            let waits = python.is_some_and(|python| !self.made.contains(python));
            assert!(waits, "SCHED-10: {claimant:?}");
        }
    }

    fn claims_in(&self, python: &PythonEnv) -> Vec<Claimant> {
        let theirs = self.claims.iter();
        let theirs = theirs.filter(|(_, it)| it.shape.env.python.as_deref() == Some(python));
        theirs.map(|(claimant, _)| *claimant).collect()
    }

    /// What keeps it from running changes; its turn does not.
    fn bar(
        &mut self,
        now: Instant,
        claimant: Claimant,
        bar: Option<Bar>,
        effects: &mut Vec<Effect>,
    ) {
        let in_line = matches!(claimant, Claimant::Actor { .. });
        let was_told = in_line && self.leave_line(now, claimant);
        self.claims.get_mut(&claimant).expect("it was just looked up").barred = bar;
        if in_line {
            self.join_line(now, claimant);
        }
        if was_told {
            effects.push(tell_stuck(claimant, None));
        }
    }
}

fn is_parked(claim: &Claim) -> bool {
    matches!(claim.barred, Some(Bar::Environment(_)))
}

#[cfg(test)]
#[path = "parked_tests.rs"]
mod tests;
