//! The document: reading it, changing it, and who acts.

use hoplo_base::{Instant, limits};
use hoplo_wire::control::{Acting, ClusterConfig, ReplicaId, Wish};

use super::{Coordinator, Effect, Probe, Probed, Revision, Storing};

/// What this coordinator saw when it read the document last.
#[derive(Clone, Debug)]
pub struct Watch {
    /// When it was read, or written.
    read_at: Instant,
    /// When the acting one was first seen with this count.
    moved_at: Instant,
    /// The acting one is proven to be gone.
    gone: bool,
    /// Probes of the acting one find nobody who answers since then.
    silent_since: Option<Instant>,
    /// When the acting one was probed last.
    probed_at: Option<Instant>,
}

impl Coordinator {
    /// Starts the next operation on the document, if one is due and none is in flight.
    pub(super) fn advance(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if self.storing.is_some() || self.retry_at.is_some_and(|at| now < at) {
            return;
        }
        self.retry_at = None;
        let Some(watch) = self.read.as_ref().filter(|_| !self.reload) else {
            return self.load(effects);
        };
        let read_at = watch.read_at;
        match &self.document {
            None => match self.form(now) {
                Some(config) => self.store(None, config, effects),
                None if now.since(read_at) >= limits::CONFIG_WATCH => self.load(effects),
                None => {}
            },
            Some((revision, _)) if self.acts() => {
                let revision = *revision;
                let renew = now.since(read_at) >= limits::ACTING_RENEW;
                let mut next = self.plan(now);
                if next.is_none() && renew {
                    next = self.config().cloned();
                }
                if let Some(mut next) = next {
                    next.acting = Some(self.acting_next(next.acting.as_ref()));
                    self.store(Some(revision), next, effects);
                }
            }
            Some((revision, config)) => {
                let revision = *revision;
                if config.acting.is_none() || watch.is_over(now) {
                    // What there is to change goes with it: it knows as much as the other one did.
                    let acting = self.acting_next(config.acting.as_ref());
                    let unchanged = config.clone();
                    let mut next = self.plan(now).unwrap_or(unchanged);
                    next.acting = Some(acting);
                    self.note(now, || "wants to act".to_string());
                    self.store(Some(revision), next, effects);
                } else if now.since(read_at) >= limits::CONFIG_WATCH {
                    self.load(effects);
                }
            }
        }
    }

    pub(super) fn acting_next(&self, last: Option<&Acting>) -> Acting {
        let renewed = last.map_or(0, |last| last.renewed) + 1;
        Acting { coordinator: self.options.me.clone(), renewed }
    }

    fn load(&mut self, effects: &mut Vec<Effect>) {
        let ticket = self.ticket();
        self.storing = Some(Storing::Load { ticket });
        effects.push(Effect::Load { ticket });
    }

    fn store(
        &mut self,
        expected: Option<Revision>,
        config: ClusterConfig,
        effects: &mut Vec<Effect>,
    ) {
        let ticket = self.ticket();
        self.storing = Some(Storing::Store { ticket, config: config.clone() });
        effects.push(Effect::Store { ticket, expected, config });
    }

    pub(super) fn on_loaded(
        &mut self,
        now: Instant,
        ticket: u64,
        document: Option<(Revision, ClusterConfig)>,
        effects: &mut Vec<Effect>,
    ) {
        match self.storing {
            Some(Storing::Load { ticket: current }) if current == ticket => self.storing = None,
            Some(_) | None => return,
        }
        if let Err(why) = self.believable(document.as_ref().map(|(_, config)| config)) {
            self.on_useless_store(now, why);
            return;
        }
        self.store_trouble = None;
        let Some((revision, config)) = document else {
            (self.read, self.reload) = (Some(Watch::new(now)), false);
            return;
        };
        self.adopt(now, revision, config, effects);
    }

    pub(super) fn on_stored(
        &mut self,
        now: Instant,
        ticket: u64,
        revision: Revision,
        effects: &mut Vec<Effect>,
    ) {
        match self.storing.take() {
            Some(Storing::Store { ticket: current, config }) if current == ticket => {
                self.store_trouble = None;
                self.adopt(now, revision, config, effects);
            }
            other => self.storing = other,
        }
    }

    pub(super) fn on_conflict(&mut self, now: Instant, ticket: u64) {
        if self.ends(ticket) {
            self.note(now, || "somebody else changed the document".to_string());
            self.forget_the_document();
        }
    }

    pub(super) fn on_unreachable(&mut self, now: Instant, ticket: u64, why: String) {
        if self.ends(ticket) {
            self.on_useless_store(now, why);
        }
    }

    fn on_useless_store(&mut self, now: Instant, why: String) {
        self.note(now, || format!("the config store is of no use: {why}"));
        self.store_trouble = Some(why);
        self.retry_at = Some(now + limits::CONFIG_RETRY);
        self.forget_the_document();
    }

    /// What was known of it still goes to those who ask, and is what the next load is compared with.
    fn forget_the_document(&mut self) {
        self.reload = true;
    }

    fn ends(&mut self, ticket: u64) -> bool {
        let current = match &self.storing {
            Some(Storing::Load { ticket } | Storing::Store { ticket, .. }) => Some(*ticket),
            None => None,
        };
        if current == Some(ticket) {
            self.storing = None;
        }
        current == Some(ticket)
    }

    /// A store may be the wrong one, or restored from an old copy.
    fn believable(&self, config: Option<&ClusterConfig>) -> Result<(), String> {
        let known = self.config();
        let Some(config) = config else {
            return match known {
                Some(_) => Err("the configuration is gone from the store".to_string()),
                None => Ok(()),
            };
        };
        if config.cluster != self.options.cluster {
            let (theirs, mine) = (config.cluster.0, self.options.cluster.0);
            return Err(format!("the store belongs to cluster {theirs:x}, this is {mine:x}"));
        }
        let Some(known) = known else { return Ok(()) };
        let older = known.shards.iter().zip(&config.shards).find(|(was, is)| is.epoch < was.epoch);
        match older {
            Some((was, is)) => Err(format!(
                "the store went back in time: {:?} was at {:?}, now at {:?}",
                was.shard, was.epoch, is.epoch
            )),
            None if known.shards.len() != config.shards.len() => {
                Err(format!("{} shards became {}", known.shards.len(), config.shards.len()))
            }
            None => Ok(()),
        }
    }

    /// The document is known to be this.
    fn adopt(
        &mut self,
        now: Instant,
        revision: Revision,
        config: ClusterConfig,
        effects: &mut Vec<Effect>,
    ) {
        let before = self.document.take().map(|(_, config)| config);
        let chains_changed = before.as_ref().is_none_or(|before| before.shards != config.shards);
        let acting_moved = before.as_ref().is_none_or(|before| before.acting != config.acting);
        let same_one = before.as_ref().is_some_and(|before| {
            let who =
                |config: &ClusterConfig| config.acting.as_ref().map(|it| it.coordinator.replica);
            who(before) == who(&config)
        });
        let mut watch = Watch::new(now);
        if let Some(last) = &self.read {
            if !acting_moved {
                (watch.moved_at, watch.silent_since) = (last.moved_at, last.silent_since);
            }
            if same_one {
                (watch.gone, watch.probed_at) = (last.gone, last.probed_at);
            }
        }
        self.read = Some(watch);
        self.reload = false;
        if chains_changed {
            let changed = config.shards.iter().enumerate().filter(|(at, chain)| {
                before.as_ref().and_then(|before| before.shards.get(*at)) != Some(*chain)
            });
            let lines: Vec<String> =
                changed.map(|(_, chain)| super::explain::line(chain)).collect();
            self.note(now, || format!("the document says now: {}", lines.join("; ")));
            effects.push(Effect::Announce(config.clone()));
        }
        self.know_all(&config);
        let wished = |wish: &Wish| config.wishes.contains(wish);
        self.wishes.retain(|(wish, is)| wished(wish) != *is);
        self.document = Some((revision, config));
    }

    /// Every process that the document names is known; of those that are new, nothing was heard yet.
    fn know_all(&mut self, config: &ClusterConfig) {
        for member in
            config.shards.iter().flat_map(|chain| chain.members.iter().chain(&chain.joining))
        {
            let known = self.replicas.entry(member.replica);
            known.or_insert_with(|| super::Known::unheard(member.clone()));
        }
    }

    pub(super) fn look_at_the_acting_one(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if self.acts() {
            return;
        }
        let acting = self.config().and_then(|config| config.acting.as_ref());
        let Some(member) = acting.map(|acting| acting.coordinator.clone()) else { return };
        let ticket = self.tickets + 1;
        let asked = |probed: &Probed| *probed == Probed::Acting(member.replica);
        let under_way = self.probes.values().any(asked);
        let Some(watch) = &mut self.read else { return };
        let lately = watch.probed_at.is_some_and(|at| now.since(at) < limits::CONFIG_WATCH);
        if watch.gone || lately || under_way {
            return;
        }
        watch.probed_at = Some(now);
        self.tickets = ticket;
        self.probes.retain(|_, probed| !matches!(probed, Probed::Acting(_)));
        self.probes.insert(ticket, Probed::Acting(member.replica));
        effects.push(Effect::Probe { ticket, member });
    }

    /// A probe that was meant for it, or for the replica in the same process.
    pub(super) fn on_acting_probed(&mut self, now: Instant, who: ReplicaId, found: Probe) {
        let acting = self.config().and_then(|config| config.acting.as_ref());
        if acting.is_none_or(|acting| acting.coordinator.replica != who) {
            return;
        }
        let Some(watch) = &mut self.read else { return };
        match found {
            Probe::Alive => watch.silent_since = None,
            Probe::Silent => {
                watch.silent_since.get_or_insert(watch.probed_at.unwrap_or(now));
            }
            Probe::Refused => {
                watch.gone = true;
                self.note(now, || format!("{who:?}, which acts, is gone"));
            }
        }
    }

    /// Of an operator; who does not act only says who does.
    pub(super) fn on_wish(&mut self, wish: Wish, wished: bool) {
        self.wishes.retain(|(it, _)| *it != wish);
        if self.acts() && self.wishes.len() < limits::WISHES_MAX {
            self.wishes.push((wish, wished));
        }
    }
}

impl Watch {
    fn new(now: Instant) -> Self {
        Self { read_at: now, moved_at: now, gone: false, silent_since: None, probed_at: None }
    }

    /// The acting one is gone, or does nothing any more as far as can be seen.
    fn is_over(&self, now: Instant) -> bool {
        let stands = now.since(self.moved_at);
        let silent = self.silent_since.is_some_and(|since| now.since(since) >= limits::SUSPECT);
        self.gone || stands >= limits::ACTING_LEASE || (silent && stands >= limits::ACTING_SILENT)
    }
}
