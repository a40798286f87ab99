//! A node that is to leave: nothing is granted any more, and what was granted is called back.

use hoplo_base::{Instant, NodeNumber};

use super::claim::{Claim, Claimant};
use super::local::{Effect, LocalScheduler};

impl LocalScheduler {
    /// Claims of this node's processes and of actors that are at home here wait without a worker, so that the broker can move them.
    /// Those of other nodes stay until who made them takes them back, as it does when it hears that this node drains.
    pub(super) fn on_drains(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        self.closed = true;
        let here = self.node;
        let own = self.claims.keys().filter(|claimant| home(claimant) == here);
        for claimant in own.copied().collect::<Vec<_>>() {
            let Claim { job, shape, held, wanted, .. } = self.claims[&claimant].clone();
            self.drop_claim(now, claimant, effects);
            match claimant {
                Claimant::Demand { .. } if wanted == 0 => {}
                Claimant::Demand { .. } => {
                    self.on_demanded(now, claimant, job, shape, wanted, effects);
                }
                Claimant::Actor { .. } => {
                    self.on_actor_waits(now, claimant, job, shape, held, effects);
                }
            }
        }
        for (id, lease) in &mut self.leases {
            if let Claimant::Demand { process, .. } = lease.claimant
                && lease.worker.is_some()
                && !std::mem::replace(&mut lease.recalled, true)
            {
                effects.push(Effect::Recall { process, lease: *id });
            }
        }
    }
}

fn home(claimant: &Claimant) -> NodeNumber {
    match claimant {
        Claimant::Demand { process, .. } => process.node(),
        Claimant::Actor { actor, .. } => actor.0.owner.node(),
    }
}
