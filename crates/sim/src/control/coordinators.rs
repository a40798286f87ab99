//! A coordinator's shell: probes, and the config store.

use std::time::Duration;

use hoplo_base::limits::PROBE_WITHIN;
use hoplo_core::control::coordinator::{self, Probe, Revision};
use hoplo_wire::control::{ClusterConfig, FromCoordinator, Member, ReplicaId, Speaker};

use super::counts::What;
use super::network::{End, Kind, Message};
use super::world::{Step, World};

#[derive(Debug)]
pub enum StoreWork {
    Load { ticket: u64 },
    Store { ticket: u64, expected: Option<Revision>, config: ClusterConfig },
}

impl World {
    pub fn coordinator(&mut self, id: ReplicaId, event: coordinator::Event) {
        if let coordinator::Event::Probed { ticket, .. } = &event {
            self.answering.remove(&(id, *ticket));
        }
        let Some(reads) = self.reads(id) else { return };
        let Some(process) = self.process_mut(id) else { return };
        let Some(coordinator) = &mut process.coordinator else { return };
        let mut effects = Vec::new();
        coordinator.handle(reads, event, &mut effects);
        coordinator.check();
        for effect in effects {
            self.coordinator_effect(id, effect);
        }
    }

    fn coordinator_effect(&mut self, id: ReplicaId, effect: coordinator::Effect) {
        match effect {
            coordinator::Effect::Probe { ticket, member } => {
                let delay = self.rng.delay(self.plan.delay_max) + Duration::from_micros(50);
                self.after(delay, Step::Probed { process: id, ticket, member });
            }
            coordinator::Effect::Load { ticket } => {
                self.asks_store(id, StoreWork::Load { ticket });
            }
            coordinator::Effect::Store { ticket, expected, config } => {
                self.asks_store(id, StoreWork::Store { ticket, expected, config });
            }
            coordinator::Effect::Announce(config) => {
                let chains: Vec<String> = config.shards.iter().map(coordinator::line).collect();
                self.note(|| format!("{id:?} announces {}", chains.join("; ")));
                let message = FromCoordinator::Config(config.clone());
                for end in self.network.used_by(End::Process(id), Kind::Coordinator) {
                    let message = Message::Told(message.clone());
                    self.send(End::Process(id), end, Kind::Coordinator, message);
                }
                self.configured(id, config);
            }
            coordinator::Effect::Answer { to, message } => {
                let to = match to {
                    Speaker::Replica(to) | Speaker::Coordinator(to) => End::Process(to),
                    Speaker::Client(client) => End::Client(client.0 - 100),
                };
                if to == End::Process(id) {
                    return self.told(id, id, message);
                }
                // Only over the connection over which it asked.
                if self.network.used(End::Process(id), to, Kind::Coordinator).is_some() {
                    let message = Message::Told(message);
                    self.send(End::Process(id), to, Kind::Coordinator, message);
                }
            }
        }
    }

    pub fn probed(&mut self, id: ReplicaId, ticket: u64, member: &Member) {
        let (me, it) = (id.node.0, member.replica.node.0);
        let cut = self.network.is_cut(me, it) || self.network.is_cut(it, me);
        let host = &self.hosts[&it];
        let process = host.process.as_ref();
        let (found, later) = if cut || host.dark {
            (Probe::Silent, PROBE_WITHIN)
        } else if process.is_none_or(|process| process.id != member.replica) {
            (Probe::Refused, Duration::ZERO)
        } else if process.is_some_and(|process| process.paused) {
            (Probe::Silent, PROBE_WITHIN)
        } else {
            (Probe::Alive, Duration::ZERO)
        };
        let found = self.sabotaged_probe(found);
        if found == Probe::Alive {
            self.answering.insert((id, ticket), member.replica);
        }
        let delay = later + self.rng.delay(self.plan.delay_max);
        self.later_input(delay, id, coordinator::Event::Probed { ticket, found });
    }

    fn asks_store(&mut self, id: ReplicaId, work: StoreWork) {
        if let StoreWork::Store { ticket, config, .. } = &work {
            self.store.asked.insert((id, *ticket), config.clone());
        }
        let delay = self.rng.delay(Duration::from_millis(5));
        self.after(delay, Step::StoreDoes { process: id, work: Box::new(work) });
    }

    /// The store does it, though the one who asked may be dead by now.
    pub fn store_does(&mut self, id: ReplicaId, work: StoreWork) {
        let event = match work {
            StoreWork::Load { ticket } => self.store.load(ticket),
            StoreWork::Store { ticket, expected, config } => {
                let faults = self.plan.faults.as_ref().is_some_and(|faults| faults.store);
                let lost = faults && self.faulty() && self.rng.one_in(20);
                self.store.asked.remove(&(id, ticket));
                let before = self.store.acting();
                let event = self.store.store(ticket, expected, config, lost);
                if matches!(event, coordinator::Event::Unreachable { .. }) && lost {
                    self.counts.add(What::StoreAnswerLost);
                }
                if before.is_some() && before != self.store.acting() {
                    self.counts.add(What::CoordinatorChanged);
                }
                event
            }
        };
        let slow = matches!(event, coordinator::Event::Unreachable { .. });
        let delay = if slow { Duration::from_millis(300) } else { Duration::from_millis(2) };
        let delay = self.rng.delay(delay);
        self.later_input(delay, id, event);
    }
}
