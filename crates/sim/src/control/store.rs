//! The config store: one document under a revision. It may be away, be slow, or do what it was asked for and not say so.

use std::collections::BTreeMap;

use hoplo_wire::control::{ClusterConfig, ReplicaId};

use hoplo_core::control::coordinator::{Event, Revision};

#[derive(Default)]
pub struct ConfigStore {
    pub document: Option<(Revision, ClusterConfig)>,
    pub away: bool,
    /// What it was asked to store, and has not done yet.
    pub asked: BTreeMap<(ReplicaId, u64), ClusterConfig>,
    /// All that the document ever said about each chain: CONF-1.
    said: BTreeMap<(u16, u64), hoplo_wire::control::ChainConfig>,
}

impl ConfigStore {
    pub fn load(&self, ticket: u64) -> Event {
        if self.away {
            return Event::Unreachable { ticket, why: "the store is away".to_string() };
        }
        Event::Loaded { ticket, document: self.document.clone() }
    }

    pub fn store(
        &mut self,
        ticket: u64,
        expected: Option<Revision>,
        config: ClusterConfig,
        answer_lost: bool,
    ) -> Event {
        if self.away {
            return Event::Unreachable { ticket, why: "the store is away".to_string() };
        }
        let revision = self.document.as_ref().map(|(revision, _)| *revision);
        if revision != expected {
            return Event::Conflict { ticket };
        }
        for chain in &config.shards {
            let said = self.said.entry((chain.shard.0, chain.epoch.0)).or_insert(chain.clone());
            assert_eq!(said, chain, "CONF-1: an epoch has one configuration");
        }
        let revision = revision.unwrap_or(0) + 1;
        self.document = Some((revision, config));
        if answer_lost {
            return Event::Unreachable { ticket, why: "no answer of the store".to_string() };
        }
        Event::Stored { ticket, revision }
    }

    pub fn config(&self) -> Option<&ClusterConfig> {
        self.document.as_ref().map(|(_, config)| config)
    }

    pub fn acting(&self) -> Option<ReplicaId> {
        self.config()?.acting.as_ref().map(|acting| acting.coordinator.replica)
    }

    pub fn changes(&self) -> usize {
        self.said.len()
    }
}
