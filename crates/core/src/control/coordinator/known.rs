//! What a coordinator knows of replica processes: heartbeats, probes, accusations.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::{Instant, limits};
use hoplo_wire::control::{
    Epoch, FromCoordinator, Holding, Member, ReplicaId, ShardId, Speaker, ToCoordinator,
};

use super::{Coordinator, Effect, Probe, Probed};

#[derive(Clone, Debug)]
pub struct Known {
    pub member: Member,
    /// It said itself that it is there.
    pub registered: bool,
    /// Since when, of those after it registered, it asks to be removed: its disk is broken, or full.
    unfit_since: Option<Instant>,
    /// What lay on its disk when it started.
    pub holds: BTreeMap<ShardId, Holding>,
    /// The newest epoch in which it acted, by shard.
    pub acts: BTreeMap<ShardId, Epoch>,
    /// The newest epoch in which it had caught up.
    pub caught_up: BTreeMap<ShardId, Epoch>,
    heard: Heard,
    /// Probes find nobody who answers since then.
    silent_since: Option<Instant>,
    gone: bool,
    /// When the last probe began.
    probed_at: Option<Instant>,
    /// When the last one began that it answered: it lived then, whatever its messages say, which may be old.
    lived_at: Option<Instant>,
    probing: bool,
}

/// When a process last gave a sign of life: a heartbeat, or a probe's answer.
///
/// A coordinator that has just begun has heard of nobody. That is no point in time: a clock that begins with the
/// process has none that is long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// Never, by this coordinator: the document names it.
    Never,
    At(Instant),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Heard of lately.
    Alive,
    /// Not for a while, or not yet; it is being probed.
    Unsure,
    /// It said that it cannot go on, or was silent for long. It may live and act.
    Unfit,
    /// Proven: that process does not exist any more.
    Gone,
}

/// Who finds whom silent.
#[derive(Default)]
pub struct Accusations {
    /// By shard, accuser, accused.
    lasting: BTreeMap<(ShardId, ReplicaId, ReplicaId), Lasting>,
    shunned: BTreeMap<(ShardId, ReplicaId), Instant>,
}

struct Lasting {
    epoch: Epoch,
    since: Instant,
    last: Instant,
}

impl Known {
    /// Nothing was heard of it by this coordinator.
    pub fn unheard(member: Member) -> Self {
        Self {
            member,
            registered: false,
            unfit_since: None,
            holds: BTreeMap::new(),
            acts: BTreeMap::new(),
            caught_up: BTreeMap::new(),
            heard: Heard::Never,
            silent_since: None,
            gone: false,
            probed_at: None,
            lived_at: None,
            probing: false,
        }
    }

    pub fn standing(&self, now: Instant) -> Standing {
        let silent = self.silent_since.is_some_and(|since| now.since(since) >= limits::SUSPECT);
        if self.gone {
            Standing::Gone
        } else if silent || self.unfit_since.is_some() {
            Standing::Unfit
        } else if self.silent_since.is_some() || self.is_missed(now) {
            Standing::Unsure
        } else {
            Standing::Alive
        }
    }

    /// It answered a probe that began then or later.
    pub fn lived_since(&self, since: Instant) -> bool {
        self.lived_at.is_some_and(|at| at >= since)
    }

    /// Something of it came then or later.
    fn heard_since(&self, since: Instant) -> bool {
        match self.heard {
            Heard::Never => false,
            Heard::At(at) => at >= since,
        }
    }

    /// It should have given one by now.
    fn is_missed(&self, now: Instant) -> bool {
        match self.heard {
            Heard::Never => true,
            Heard::At(at) => now.since(at) > limits::HEARTBEAT_MISSED,
        }
    }

    /// Since when it has to be left out: it was asked then for the sign of life that proved its death, fell silent, or said
    /// that it cannot go on.
    pub fn failed_since(&self, now: Instant) -> Option<Instant> {
        match self.standing(now) {
            Standing::Gone => self.probed_at,
            Standing::Unfit => self.unfit_since.or(self.silent_since),
            Standing::Unsure | Standing::Alive => None,
        }
    }

    fn heard(&mut self, now: Instant) {
        self.heard = Heard::At(now);
        self.silent_since = None;
    }
}

impl Accusations {
    fn accuse(
        &mut self,
        now: Instant,
        shard: ShardId,
        epoch: Epoch,
        by: ReplicaId,
        who: ReplicaId,
    ) {
        let lasting = self.lasting.entry((shard, by, who)).or_insert(Lasting {
            epoch,
            since: now,
            last: now,
        });
        if lasting.epoch != epoch || now.since(lasting.last) >= limits::ACCUSED / 2 {
            *lasting = Lasting { epoch, since: now, last: now };
        }
        lasting.last = now;
    }

    /// Who is accused for long in this epoch, by whom, and since when that has been long enough.
    pub fn standing(
        &self,
        now: Instant,
        shard: ShardId,
        epoch: Epoch,
    ) -> impl Iterator<Item = (ReplicaId, ReplicaId, Instant)> {
        let first = ReplicaId { node: hoplo_base::NodeId(0), incarnation: 0 };
        let all = self.lasting.range((shard, first, first)..);
        all.take_while(move |((of, _, _), _)| *of == shard)
            .filter(move |(_, it)| it.epoch == epoch)
            .filter(move |(_, it)| now.since(it.since) >= limits::ACCUSED)
            .filter(move |(_, it)| now.since(it.last) < limits::ACCUSED / 2)
            .map(|((_, by, who), it)| (*by, *who, it.since + limits::ACCUSED))
    }

    pub fn shun(&mut self, now: Instant, shard: ShardId, who: ReplicaId) {
        self.shunned.insert((shard, who), now + limits::SHUNNED);
    }

    pub fn shuns(&self, now: Instant, shard: ShardId, who: ReplicaId) -> bool {
        self.shunned.get(&(shard, who)).is_some_and(|until| now < *until)
    }

    fn forget(&mut self, now: Instant) {
        self.shunned.retain(|_, until| now < *until);
        self.lasting.retain(|_, it| now.since(it.last) < limits::ACCUSED);
    }
}

impl Coordinator {
    pub(super) fn on_message(
        &mut self,
        now: Instant,
        from: Speaker,
        message: ToCoordinator,
        effects: &mut Vec<Effect>,
    ) {
        if let Speaker::Replica(replica) = from
            && let Some(known) = self.replicas.get_mut(&replica)
        {
            known.heard(now);
        }
        match message {
            ToCoordinator::Register { member, holds } => {
                self.on_register(now, from, member, holds, effects);
            }
            ToCoordinator::Heartbeat { replica, epochs } => {
                let Some(known) = self.registered(from, replica, effects) else { return };
                let newest = epochs.iter().copied().collect();
                known.acts.extend(epochs);
                let unfit = known.unfit_since.is_some();
                self.tell_if_behind(from, &newest, effects);
                if unfit {
                    // Its last word may have been overtaken by an older one, that it cannot go on.
                    let why = format!("{replica:?} said that it cannot go on");
                    effects.push(Effect::Answer {
                        to: from,
                        message: FromCoordinator::Refused { why },
                    });
                }
            }
            ToCoordinator::CaughtUp { replica, shard, epoch } => {
                let Some(known) = self.registered(from, replica, effects) else { return };
                known.caught_up.insert(shard, epoch);
            }
            ToCoordinator::Report { shard, epoch, silent } => {
                self.on_report(now, from, shard, epoch, silent, effects);
            }
            ToCoordinator::WantConfig { known } => {
                let newer = self.config().filter(|config| epochs_sum(config) > known);
                if let Some(config) = newer {
                    let message = FromCoordinator::Config(config.clone());
                    effects.push(Effect::Answer { to: from, message });
                }
            }
            ToCoordinator::Wished(wish) => self.on_wish(wish, true),
            ToCoordinator::Unwished(wish) => self.on_wish(wish, false),
        }
        self.say_who_acts(from, effects);
    }

    fn on_register(
        &mut self,
        now: Instant,
        from: Speaker,
        member: Member,
        holds: Vec<Holding>,
        effects: &mut Vec<Effect>,
    ) {
        let id = member.replica;
        let newer = self.replicas.keys().find(|it| it.node == id.node && **it > id).copied();
        let refused = if from != Speaker::Replica(id) {
            Some(format!("{from:?} cannot register {id:?}"))
        } else if let Some(newer) = newer.filter(|newer| self.replicas[newer].registered) {
            Some(format!("a newer process of this node has registered: {newer:?}"))
        } else if self.replicas.len() >= limits::REPLICAS_MAX && !self.replicas.contains_key(&id) {
            Some(format!("{} replica processes are known, no more fit", self.replicas.len()))
        } else {
            None
        };
        if let Some(why) = refused {
            effects.push(Effect::Answer { to: from, message: FromCoordinator::Refused { why } });
            return;
        }
        self.note(now, || format!("{id:?} registers with {holds:?}"));
        if !self.replicas.contains_key(&id) {
            self.newest_at = now;
        }
        let known = self.replicas.entry(id).or_insert_with(|| Known::unheard(member.clone()));
        known.member = member;
        (known.registered, known.unfit_since) = (true, None);
        known.holds = holds.into_iter().map(|holding| (holding.shard, holding)).collect();
        known.heard(now);
        let older = self.replicas.keys().filter(|it| it.node == id.node && **it < id);
        for older in older.copied().collect::<Vec<_>>() {
            self.suspect(now, older, effects);
        }
        if let Some(config) = self.config() {
            let message = FromCoordinator::Config(config.clone());
            effects.push(Effect::Answer { to: from, message });
        }
    }

    /// A registered replica speaks; it is told to register if this coordinator does not know it.
    fn registered(
        &mut self,
        from: Speaker,
        replica: ReplicaId,
        effects: &mut Vec<Effect>,
    ) -> Option<&mut Known> {
        let known = self.replicas.get_mut(&replica);
        let known = known.filter(|it| it.registered && from == Speaker::Replica(replica));
        match known {
            Some(known) => Some(known),
            None => {
                let why = format!("{replica:?} is not registered here");
                let message = FromCoordinator::Refused { why };
                effects.push(Effect::Answer { to: from, message });
                None
            }
        }
    }

    /// It does not act in the newest epoch of a chain: perhaps it never heard of that.
    fn tell_if_behind(
        &self,
        to: Speaker,
        acts: &BTreeMap<ShardId, Epoch>,
        effects: &mut Vec<Effect>,
    ) {
        let (Some(config), Speaker::Replica(replica)) = (self.config(), to) else { return };
        let behind = config.shards.iter().any(|chain| {
            let mine = chain.members.iter().any(|member| member.replica == replica);
            let joins = chain.joining.as_ref().is_some_and(|member| member.replica == replica);
            let epoch = acts.get(&chain.shard);
            joins || (mine && epoch != Some(&chain.epoch)) || (!mine && epoch.is_some())
        });
        if behind {
            let message = FromCoordinator::Config(config.clone());
            effects.push(Effect::Answer { to, message });
        }
    }

    fn on_report(
        &mut self,
        now: Instant,
        from: Speaker,
        shard: ShardId,
        epoch: Epoch,
        silent: ReplicaId,
        effects: &mut Vec<Effect>,
    ) {
        let chain = self.chain(shard);
        let Some(chain) = chain.filter(|chain| place_of(chain, silent).is_some()) else {
            // It was removed already, and the reporter does not know.
            if let Some(config) = self.config() {
                let message = FromCoordinator::Config(config.clone());
                effects.push(Effect::Answer { to: from, message });
            }
            return;
        };
        let newest = chain.epoch;
        let neighbour = match from {
            Speaker::Replica(by) => place_of(chain, by).map(|_| by),
            Speaker::Client(_) | Speaker::Coordinator(_) => None,
        };
        self.note(now, || format!("{from:?} finds {silent:?} silent in {shard:?}, {epoch:?}"));
        match neighbour {
            Some(by) if by == silent => {
                if let Some(known) = self.replicas.get_mut(&silent) {
                    known.unfit_since.get_or_insert(now);
                }
                self.ask_who_outlived(now, effects);
            }
            Some(by) => {
                if epoch == newest {
                    self.accusations.accuse(now, shard, epoch, by, silent);
                }
                self.suspect(now, silent, effects);
            }
            None => self.suspect(now, silent, effects),
        }
    }

    fn say_who_acts(&self, to: Speaker, effects: &mut Vec<Effect>) {
        if self.acts() {
            return;
        }
        let acting = self.config().and_then(|config| config.acting.as_ref());
        let acting = acting.map(|acting| acting.coordinator.address.clone());
        effects.push(Effect::Answer { to, message: FromCoordinator::NotActing { acting } });
    }

    /// Something is wrong with it, they say. Who would go on without it is asked at the same time: that it lived a
    /// moment before says nothing, for they may have died together.
    pub(super) fn suspect(&mut self, now: Instant, replica: ReplicaId, effects: &mut Vec<Effect>) {
        let chains = self.config().into_iter().flat_map(|config| &config.shards);
        let with_it = chains.filter(|chain| place_of(chain, replica).is_some());
        let others: BTreeSet<ReplicaId> =
            with_it.flat_map(|chain| chain.members.iter().map(|it| it.replica)).collect();
        for other in others.into_iter().filter(|other| *other != replica) {
            self.ask_whether_it_lives(now, other, effects);
        }
        self.ask_whether_it_lives(now, replica, effects);
    }

    /// Where a member has to leave, those who did not answer since: they were being asked for another reason, or not at all.
    pub(super) fn ask_who_outlived(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let mut asked = BTreeSet::new();
        for chain in self.config().into_iter().flat_map(|config| &config.shards) {
            let Some(since) = self.leaves_since(now, chain) else { continue };
            let waits = |id: &ReplicaId| {
                self.replicas.get(id).is_some_and(|known| {
                    known.standing(now) == Standing::Alive && !known.lived_since(since)
                })
            };
            asked.extend(chain.members.iter().map(|it| it.replica).filter(waits));
        }
        for id in asked {
            self.ask_whether_it_lives(now, id, effects);
        }
    }

    fn ask_whether_it_lives(
        &mut self,
        now: Instant,
        replica: ReplicaId,
        effects: &mut Vec<Effect>,
    ) {
        let ticket = self.tickets + 1;
        let Some(known) = self.replicas.get_mut(&replica) else { return };
        if known.gone || known.probing {
            return;
        }
        (known.probing, known.probed_at) = (true, Some(now));
        let member = known.member.clone();
        self.tickets = ticket;
        self.probes.insert(ticket, Probed::Replica(replica));
        effects.push(Effect::Probe { ticket, member });
    }

    pub(super) fn on_probed(
        &mut self,
        now: Instant,
        ticket: u64,
        found: Probe,
        effects: &mut Vec<Effect>,
    ) {
        let replica = match self.probes.remove(&ticket) {
            Some(Probed::Replica(replica)) => replica,
            Some(Probed::Acting(acting)) => return self.on_acting_probed(now, acting, found),
            None => return,
        };
        let Some(known) = self.replicas.get_mut(&replica) else { return };
        known.probing = false;
        // Forgotten and registered again since: what was found is told about the same process all the same.
        let asked = known.probed_at.unwrap_or(now);
        match found {
            Probe::Alive => {
                known.heard(now);
                known.lived_at = Some(asked);
            }
            Probe::Refused => known.gone = true,
            // Unless it said something meanwhile.
            Probe::Silent if !known.heard_since(asked) => {
                known.silent_since.get_or_insert(asked);
            }
            Probe::Silent => {}
        }
        self.note(now, || format!("a probe of {replica:?} finds {found:?}"));
        self.on_acting_probed(now, replica, found);
        self.ask_who_outlived(now, effects);
    }

    /// Probes who was not heard of for long, and forgets who does not matter.
    pub(super) fn look(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        self.accusations.forget(now);
        let config = self.document.as_ref().map(|(_, config)| config);
        let named = |id: ReplicaId| {
            config.is_some_and(|it| it.shards.iter().any(|chain| place_of(chain, id).is_some()))
        };
        let lost = |it: &Known| match it.standing(now) {
            Standing::Alive | Standing::Unsure => false,
            Standing::Unfit => it.silent_since.is_some(),
            Standing::Gone => true,
        };
        let all = self.replicas.iter();
        let forgotten: Vec<ReplicaId> =
            all.filter(|(id, it)| lost(it) && !named(**id)).map(|(id, _)| *id).collect();
        for id in forgotten {
            self.replicas.remove(&id);
        }
        let missed: Vec<ReplicaId> = self
            .replicas
            .iter()
            .filter(|(_, it)| it.is_missed(now))
            .filter(|(_, it)| it.probed_at.is_none_or(|at| now.since(at) >= limits::HEARTBEAT))
            .map(|(id, _)| *id)
            .collect();
        for id in missed {
            self.ask_whether_it_lives(now, id, effects);
        }
        self.ask_who_outlived(now, effects);
        self.look_at_the_acting_one(now, effects);
    }

    pub(super) fn chain(&self, shard: ShardId) -> Option<&hoplo_wire::control::ChainConfig> {
        self.config()?.shards.get(usize::from(shard.0))
    }
}

/// Position in the chain; who joins comes after the tail.
pub(super) fn place_of(
    chain: &hoplo_wire::control::ChainConfig,
    replica: ReplicaId,
) -> Option<usize> {
    chain.members.iter().chain(&chain.joining).position(|member| member.replica == replica)
}

/// What `WantConfig` compares.
pub fn epochs_sum(config: &hoplo_wire::control::ClusterConfig) -> u64 {
    config.shards.iter().map(|chain| chain.epoch.0).sum()
}
