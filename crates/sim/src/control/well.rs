//! How the world is: whether all shards have begun, whether all is well again, and if not, why.

use super::world::World;

impl World {
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
                                .is_some_and(|disk| !disk.safe_records().is_empty())
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
            if chain.members.len() != wished || chain.joining.is_some() || chain.unbegun {
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
    /// Returns for how many keys it is not decided whether their history is linearizable.
    pub fn check_the_end(&self) -> usize {
        let config = self.store.config().expect("it formed");
        for chain in &config.shards {
            let truth = &self.truths[&chain.shard];
            for member in &chain.members {
                self.check_equal(member.replica, chain.shard);
            }
            for refused in self.clients.values().flat_map(|client| &client.never) {
                assert!(!truth.is_there(refused), "a refused update was applied: {refused:?}");
            }
        }
        self.history.check().unwrap_or_else(|story| panic!("{story}"))
    }

    pub fn whats_up(&self) -> String {
        let mut text = String::new();
        for host in self.hosts.values() {
            let Some(process) = &host.process else {
                text += "a host without a process\n";
                continue;
            };
            let reads = process.clock.reads(self.now);
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
