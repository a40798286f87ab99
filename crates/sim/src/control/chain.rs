//! What must hold across the replicas of a shard after each step, and once all is well.
//!
//! - CHAIN-1, CHAIN-5: what a replica applied is what the history says (`truth`), and its rows with it.
//! - CHAIN-2: applied <= committed <= stable here <= logged.
//! - CHAIN-3: what a tail answered is stable at every member (van Renesse and Schneider 2004, section 3.1: an update is
//!   acknowledged once every server of the chain has it).
//! - CHAIN-6: at most one replica answers queries as the tail.

use hoplo_wire::control::{Record, ReplicaId, ShardId};

use super::world::World;
use hoplo_core::control::tables::Covered;

/// What a replica of this size may hold: its cap, and what is underway.
const UNDERWAY_BYTES: u64 = 1 << 20;

impl World {
    /// A replica has just done something.
    pub fn observe(&mut self, id: ReplicaId, shard: ShardId) {
        let now = self.now;
        let host = self.hosts.get_mut(&id.node.0).expect("a host");
        let reads = host.clock.reads(now);
        let process = host.process.as_mut().expect("it acts");
        let held = process.held.get_mut(&shard).expect("it holds that");
        let status = held.replica.status();
        assert!(status.stable <= status.logged, "CHAIN-2: {status:?}");
        let truth = self.truths.get_mut(&shard).expect("a shard");
        // Chunks of a base are rows as of entries that the giver applied.
        let base = held.replica.tables().covered() == &Covered::All;
        let first = held.log.first_key_value().map_or(0, |(index, _)| *index);
        for index in first.max(1)..=status.applied {
            if index > truth.last()
                && let Some(Record::Entry(entry)) = held.log.get(&index).map(AsRef::as_ref)
            {
                truth.learn(entry);
            }
        }
        assert!(
            status.applied <= truth.last(),
            "CHAIN-2: {id:?} applied {} of {}",
            status.applied,
            truth.last()
        );
        // What it has in memory and applied must be the history.
        let applied = status.applied;
        let known = held.log.range(..=applied).filter_map(|(_, record)| match record.as_ref() {
            Record::Entry(entry) => Some(entry),
            Record::Chunk(_) => None,
        });
        known.for_each(|entry| truth.learn(entry));
        held.log = held.log.split_off(&(applied + 1));
        if base && status.applied == truth.last() && self.rng.one_in(32) {
            check_rows(held.replica.tables().range(None), truth, id);
        }
        let bytes = status.memory_bytes + status.history_bytes + status.cold_bytes;
        let most = self.plan.memory_bytes + self.plan.recent_bytes + UNDERWAY_BYTES;
        assert!(
            bytes <= most,
            "{id:?} holds {bytes} bytes, at most {most} are allowed: {status:?}"
        );
        if held.replica.answers(reads) {
            self.check_only_one_answers(id, shard);
        }
    }

    fn check_only_one_answers(&self, id: ReplicaId, shard: ShardId) {
        for host in self.hosts.values() {
            let Some(process) = host.process.as_ref().filter(|it| it.id != id && !it.paused) else {
                continue;
            };
            let Some(held) = process.held.get(&shard) else { continue };
            assert!(
                !held.replica.answers(host.clock.reads(self.now)),
                "CHAIN-6: both {id:?} and {:?} answer queries\n{:?}\n{:?}",
                process.id,
                held.replica.config(),
                self.process(id).expect("it answers").held[&shard].replica.config()
            );
        }
    }

    /// CHAIN-3: acknowledged here, so on the disk of every member of that configuration, but for those that a
    /// newer one left out: they may have come back, and dropped what they did not know to be committed.
    pub fn check_stable_everywhere(&mut self, id: ReplicaId, shard: ShardId, index: u64) {
        if !self.rng.one_in(8) {
            return;
        }
        let config = self.process(id).and_then(|it| it.held[&shard].replica.config());
        // Who was just promoted is not relied on before it has acted.
        let config = config.expect("it answers");
        let added = config.added.map(|(who, _)| who);
        let newest =
            self.store.config().and_then(|it| it.shards.iter().find(|it| it.shard == shard));
        let newest = newest.expect("a replica was told of it").members.clone();
        let counts = |who| Some(who) != added && newest.iter().any(|it| it.replica == who);
        let members: Vec<_> =
            config.members.iter().filter(|it| counts(it.replica)).cloned().collect();
        for member in members {
            let Some(disk) = self.hosts[&member.replica.node.0].disks.get(&shard) else {
                panic!("CHAIN-3: {member:?} has no disk of {shard:?}");
            };
            let has =
                disk.safe_records(self.plan.fsync).iter().any(|record| match record.as_ref() {
                    Record::Entry(entry) => entry.index == index,
                    Record::Chunk(chunk) => chunk.as_of >= index,
                });
            assert!(has, "CHAIN-3: {id:?} acknowledged {index}, which {member:?} may lose");
        }
    }

    /// Each shard has begun.
    pub fn is_formed(&mut self) -> bool {
        self.formed = self.formed
            || self.store.config().is_some_and(|config| {
                config.shards.iter().all(|chain| {
                    chain.members.iter().all(|member| {
                        let held =
                            self.process(member.replica).and_then(|it| it.held.get(&chain.shard));
                        let status = held.map(|held| held.replica.status());
                        status.is_some_and(|it| it.acts == Some(chain.epoch))
                            && self.hosts[&member.replica.node.0]
                                .disks
                                .get(&chain.shard)
                                .is_some_and(|disk| !disk.safe_records(self.plan.fsync).is_empty())
                    })
                })
            });
        self.formed
    }

    /// All faults are over, and everything has to be as it should.
    pub fn is_well(&self) -> bool {
        let Some(config) = self.store.config() else { return false };
        let wished = usize::from(self.plan.replication);
        for chain in &config.shards {
            if chain.members.len() != wished || chain.joining.is_some() {
                return false;
            }
            let truth = &self.truths[&chain.shard];
            for member in &chain.members {
                let held = self.process(member.replica).and_then(|it| it.held.get(&chain.shard));
                let Some(held) = held else { return false };
                let status = held.replica.status();
                let quiet = status.applied == status.logged && status.applied == truth.last();
                if status.acts != Some(chain.epoch) || !quiet {
                    return false;
                }
            }
        }
        self.clients.values().all(|client| {
            let told = client.feed.as_ref().is_none_or(|feed| {
                let shards = self.truths.iter();
                shards.into_iter().all(|(shard, truth)| feed.is_complete(*shard, truth))
            });
            client.is_done() && client.paused_feeds == 0 && told
        })
    }

    /// Nothing that was acknowledged is lost, all replicas agree, and what clients saw has an order.
    pub fn check_the_end(&self) {
        let config = self.store.config().expect("it formed");
        for chain in &config.shards {
            let truth = &self.truths[&chain.shard];
            for member in &chain.members {
                let held = &self.process(member.replica).expect("it is well").held[&chain.shard];
                check_rows(held.replica.tables().range(None), truth, member.replica);
            }
            for refused in self.clients.values().flat_map(|client| &client.never) {
                assert!(!truth.is_there(refused), "a refused update was applied: {refused:?}");
            }
        }
        if let Err(story) = self.history.check() {
            panic!("{story}");
        }
    }

    pub fn whats_up(&self) -> String {
        let mut text = String::new();
        for host in self.hosts.values() {
            let Some(process) = &host.process else {
                text += "a host without a process\n";
                continue;
            };
            let reads = host.clock.reads(self.now);
            for held in process.held.values() {
                let status = held.replica.status();
                text += &format!(
                    "{}.{} epoch {} {:?} acts {:?} logged {} stable {} committed {} applied {}: {}\n",
                    process.id.node,
                    process.id.incarnation,
                    status.epoch.0,
                    status.role,
                    status.acts,
                    status.logged,
                    status.stable,
                    status.committed,
                    status.applied,
                    held.replica.explain(reads)
                );
            }
            if let Some(coordinator) = &process.coordinator {
                text += &format!(
                    "{}.{} coordinator, acts: {}, {:?}\n",
                    process.id.node,
                    process.id.incarnation,
                    coordinator.acts(),
                    coordinator.explain(reads)
                );
                if coordinator.acts() {
                    for (id, known) in coordinator.replicas() {
                        let standing = known.standing(reads);
                        text +=
                            &format!("  {}.{} {standing:?} {known:?}\n", id.node, id.incarnation);
                    }
                }
            }
        }
        if let Some(config) = self.store.config() {
            for chain in &config.shards {
                text += &format!("{}\n", hoplo_core::control::coordinator::line(chain));
            }
        }
        for client in self.clients.values() {
            text += &client.whats_up();
        }
        let known: Vec<String> = self
            .truths
            .iter()
            .map(|(shard, truth)| format!("{shard:?} has {} entries", truth.last()))
            .collect();
        text + &known.join(", ")
    }
}

/// CHAIN-5: rows that are in memory are those of the history.
fn check_rows<'a>(
    rows: impl Iterator<Item = (&'a hoplo_wire::control::Key, &'a hoplo_wire::control::Row)>,
    truth: &'a super::truth::Truth,
    id: ReplicaId,
) {
    assert!(rows.eq(truth.rows.iter()), "CHAIN-5: {id:?} differs from the history");
}
