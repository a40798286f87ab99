//! All disks of a cluster are lost, when nobody else has what was on them: it is told, and nothing goes on as if nothing had
//! happened. Then an operator puts up with it, and the shards begin anew.

use std::time::Duration;

use hoplo_base::limits;
use hoplo_core::control::coordinator::{Event, Loss};
use hoplo_wire::control::{ClientId, Speaker, ToCoordinator, Wish};

use super::counts::What;
use super::invariants::truth::Truth;
use super::process::Input;
use super::world::World;

/// Long enough to probe everybody, and to take somebody's word for all of it.
const TOLD_WITHIN: Duration = Duration::from_secs(30);

impl World {
    /// After all is well, and checked.
    pub fn loses_everything(&mut self) {
        self.note(|| "all disks are lost".to_string());
        for node in 0..self.plan.nodes {
            self.dies(node, false);
            let host = self.hosts.get_mut(&node).expect("a host");
            host.disks.clear();
            self.starts(node);
        }
        let before = self.store.config().expect("it formed").shards.clone();
        let deadline = self.now + TOLD_WITHIN;
        while self.told_losses().len() < before.len() {
            assert!(self.now < deadline, "the loss is not told:\n{}", self.whats_up());
            self.steps_once();
        }
        let waits = self.now + limits::SUSPECT + limits::RESTORE_GRACE * 2;
        while self.now < waits {
            self.steps_once();
        }
        let losses = self.told_losses();
        for (chain, loss) in before.iter().zip(&losses) {
            let now = &self.store.config().expect("it formed").shards[usize::from(chain.shard.0)];
            assert_eq!(chain.members, now.members, "a loss was denied: the chain goes on");
            let left = loss.left.as_ref().expect("somebody runs");
            assert_eq!((loss.shard, left.last), (chain.shard, None), "nothing is left of it");
        }
        for loss in losses {
            let wish = Wish::AcceptLoss { shard: loss.shard, epoch: loss.epoch };
            self.truths.insert(loss.shard, Truth::new(loss.shard));
            let feeds = self.clients.values_mut().filter_map(|client| client.feed.as_mut());
            feeds.for_each(|feed| feed.begins_anew(loss.shard));
            self.says_to_all(&ToCoordinator::Wished(wish));
        }
        self.acted.clear();
        let deadline = self.now + TOLD_WITHIN;
        while !self.goes_on() {
            assert!(self.now < deadline, "a loss was accepted in vain:\n{}", self.whats_up());
            self.steps_once();
        }
        self.counts.add(What::LossAccepted);
    }

    /// By the coordinator that acts.
    fn told_losses(&self) -> Vec<Loss> {
        let acting = self.store.acting().and_then(|id| self.process(id));
        let Some(process) = acting else { return Vec::new() };
        let Some(coordinator) = process.coordinator.as_ref().filter(|it| it.acts()) else {
            return Vec::new();
        };
        coordinator.losses(process.clock.reads(self.now))
    }

    fn says_to_all(&mut self, message: &ToCoordinator) {
        for node in 0..self.plan.coordinators {
            if let Some(id) = self.process_at(node) {
                let from = Speaker::Client(ClientId(100));
                let message = message.clone();
                self.input(id, Input::Coordinator(Event::Heard { from, message }));
            }
        }
    }

    /// Each chain has its length again, and each member acts.
    fn goes_on(&self) -> bool {
        let config = self.store.config().expect("it formed");
        config.shards.iter().all(|chain| {
            let whole = chain.members.len() == usize::from(self.plan.replication);
            let acts = chain.members.iter().all(|member| {
                let held = self.process(member.replica).and_then(|it| it.held.get(&chain.shard));
                held.is_some_and(|held| held.replica.status().acts == Some(chain.epoch))
            });
            whole && acts && chain.joining.is_none()
        })
    }
}
