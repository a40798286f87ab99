//! The configuration and the connections that follow from it; what coordinators are asked and told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hoplo_base::{Instant, limits};
use hoplo_wire::control::{
    ChainConfig, ClusterConfig, FromCoordinator, Member, ReplicaId, ToCoordinator,
};

use super::{Client, Effect, Link, LinkState, Shard, Silence};

impl Client {
    pub(super) fn on_told(
        &mut self,
        now: Instant,
        message: FromCoordinator,
        effects: &mut Vec<Effect>,
    ) {
        match message {
            FromCoordinator::Config(config) => {
                if self.is_sound(&config) {
                    self.adopt(now, config, effects);
                } else {
                    self.trouble =
                        Some("a coordinator told the configuration of another cluster".into());
                }
            }
            // All coordinators are asked; the one that acts answers.
            FromCoordinator::NotActing { acting: _ } => {}
            FromCoordinator::Refused { why } => {
                self.trouble = Some(format!("a coordinator refused: {why}"));
            }
        }
    }

    fn is_sound(&self, config: &ClusterConfig) -> bool {
        let known = self.config.as_ref().is_none_or(|known| {
            known.cluster == config.cluster && known.shards.len() == config.shards.len()
        });
        let mut numbered = config.shards.iter().enumerate();
        known
            && !config.shards.is_empty()
            && numbered
                .all(|(n, chain)| usize::from(chain.shard.0) == n && !chain.members.is_empty())
    }

    /// Takes over what is newer, shard by shard, and asks for what comes next.
    fn adopt(&mut self, now: Instant, config: ClusterConfig, effects: &mut Vec<Effect>) {
        let first = self.config.is_none();
        let mut changed = BTreeSet::new();
        let mut lost = Vec::new();
        if first {
            self.shards = config.shards.iter().cloned().map(Shard::new).collect();
        }
        for (number, chain) in config.shards.iter().enumerate() {
            let shard = &mut self.shards[number];
            if first || chain.epoch > shard.chain.epoch {
                if chain.history > shard.chain.epoch {
                    lost.push(number);
                }
                shard.chain = chain.clone();
                shard.retry_at = None;
                shard.retry_after = Duration::ZERO;
                changed.insert(number);
            }
        }
        if changed.is_empty() {
            return;
        }
        let shards = self.shards.iter().map(|shard| shard.chain.clone()).collect();
        self.config = Some(ClusterConfig { shards, ..config });
        self.link(effects);
        for number in lost {
            // Nothing that this client knows of the shard's history need be so any more.
            self.session_over(now, number, 0, effects);
            self.subscriptions_void(number, effects);
        }
        for number in changed {
            self.send_all_again(now, number, effects);
        }
        for (call, what) in std::mem::take(&mut self.early) {
            self.begin(now, call, what, effects);
        }
        self.early_bytes = 0;
        self.ask(now, effects);
    }

    /// Connects to all members, and to nobody else.
    fn link(&mut self, effects: &mut Vec<Effect>) {
        let members: BTreeMap<ReplicaId, &Member> = self
            .shards
            .iter()
            .flat_map(|shard| shard.chain.members.iter().chain(&shard.chain.joining))
            .map(|member| (member.replica, member))
            .collect();
        self.links.retain(|replica, _| {
            let stays = members.contains_key(replica);
            if !stays {
                effects.push(Effect::Disconnect(*replica));
            }
            stays
        });
        for (replica, member) in members {
            self.links.entry(replica).or_insert_with(|| {
                effects.push(Effect::Connect(member.clone()));
                let (address, state) = (member.address.clone(), LinkState::Connecting);
                Link { address, state, failures: 0 }
            });
        }
    }

    pub(super) fn on_connected(
        &mut self,
        now: Instant,
        replica: ReplicaId,
        effects: &mut Vec<Effect>,
    ) {
        let Some(link) = self.links.get_mut(&replica) else { return };
        link.state = LinkState::Up;
        link.failures = 0;
        for number in self.shards_of(replica) {
            self.send_all_again(now, number, effects);
        }
    }

    pub(super) fn on_lost(&mut self, now: Instant, replica: ReplicaId, effects: &mut Vec<Effect>) {
        let Some(link) = self.links.get_mut(&replica) else { return };
        let wait = (limits::CONTROL_CLIENT_RETRY_FIRST * (1 << link.failures.min(10)))
            .min(limits::CONTROL_CLIENT_RETRY_LAST);
        link.failures += 1;
        link.state = LinkState::Down { retry_at: now + wait };
        self.trouble =
            Some(format!("the connection to {} broke or could not be made", link.address));
        self.subscriptions_lost(replica);
        for number in self.shards_of(replica) {
            // Whoever else may answer a stale query can do it at once.
            self.resend_queries(now, number, effects);
        }
    }

    pub(super) fn reconnect(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        for (replica, link) in &mut self.links {
            let due = matches!(link.state, LinkState::Down { retry_at } if retry_at <= now);
            if due {
                link.state = LinkState::Connecting;
                let address = link.address.clone();
                effects.push(Effect::Connect(Member { replica: *replica, address }));
            }
        }
    }

    /// What is not answered goes to whom it concerns now.
    fn send_all_again(&mut self, now: Instant, number: usize, effects: &mut Vec<Effect>) {
        self.resend_updates(now, number, effects);
        self.resend_queries(now, number, effects);
        self.subscribe_again(number, true, effects);
    }

    fn shards_of(&self, replica: ReplicaId) -> Vec<usize> {
        let mine =
            |shard: &Shard| shard.chain.members.iter().any(|member| member.replica == replica);
        (0..self.shards.len()).filter(|&number| mine(&self.shards[number])).collect()
    }

    /// Head and tail can be reached: one takes updates, the other answers them.
    pub(super) fn chain_up(&self, number: usize) -> bool {
        let members = &self.shards[number].chain.members;
        [members.first(), members.last()].into_iter().flatten().all(|member| {
            self.links.get(&member.replica).is_some_and(|link| link.state == LinkState::Up)
        })
    }

    pub(super) fn tail_up(&self, number: usize) -> Option<ReplicaId> {
        let tail = self.shards[number].chain.members.last()?.replica;
        let link = self.links.get(&tail)?;
        (link.state == LinkState::Up).then_some(tail)
    }

    /// There may be a newer configuration.
    pub(super) fn ask_soon(&mut self, now: Instant) {
        self.ask_at = self.ask_at.min(now + limits::CONTROL_CLIENT_ASKS_SOON);
    }

    pub(super) fn on_coordinator_lost(&mut self, now: Instant, address: &str) {
        if self.config.is_none() {
            self.trouble = Some(format!("no connection to the control node at {address}"));
        }
        // Its word on the next configuration is lost, too.
        let wait = if self.config.is_none() {
            limits::CONTROL_CLIENT_RETRY_LAST
        } else {
            limits::CONTROL_CLIENT_ASKS_SOON
        };
        self.ask_at = self.ask_at.min(now + wait);
    }

    /// For anything newer than what is known.
    pub(super) fn ask(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        // Where each chain is one replica nobody takes over from another, and who is lost is missed by its connection.
        let mut chains = self.shards.iter().map(|shard| &shard.chain.members);
        let can_move = self.shards.is_empty() || chains.any(|members| members.len() > 1);
        self.ask_at = now
            + match can_move {
                true => limits::CONTROL_CLIENT_ASKS,
                false => limits::CONTROL_CLIENT_ASKS_ALONE,
            };
        let known = self.shards.iter().map(|shard| shard.chain.epoch.0).sum();
        self.tell_all(&ToCoordinator::WantConfig { known }, effects);
    }

    fn tell_all(&self, message: &ToCoordinator, effects: &mut Vec<Effect>) {
        effects.extend(
            self.coordinators
                .iter()
                .map(|address| Effect::Tell { address: address.clone(), message: message.clone() }),
        );
    }
}

impl Shard {
    fn new(chain: ChainConfig) -> Self {
        Self {
            chain,
            updates: super::updates::Window::default(),
            queries: BTreeSet::new(),
            queries_waiting: Silence::default(),
            retry_at: None,
            retry_after: Duration::ZERO,
        }
    }
}
