//! The coordinator of this process, if it has one: its machine, its store's thread, its probes. And the other way
//! round: what this process's replicas tell the coordinators, and hear from them.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use hoplo_base::limits::PROBE_WITHIN;
use hoplo_core::control::coordinator::{
    Coordinator, CoordinatorOptions, Effect, Event, Probe, Revision,
};
use hoplo_core::control::replica;
use hoplo_net::hub::{Gone, LinkId};
use hoplo_wire::control::{
    ClusterConfig, Epoch, FromCoordinator, Member, ShardId, Speaker, ToCoordinator,
};

use crate::clock::since_1970;

use super::super::cluster::Cluster;
use super::super::config_store::{ConfigStore, Swapped};
use super::super::frame::Frame;
use super::hosted::{HostOptions, Hosted};
use super::{Inbox, Report, ServeError, Server, note};

pub(super) struct Coordinating {
    pub(super) machine: Coordinator,
    store: Sender<Wanted>,
    probes: BTreeMap<LinkId, Probing>,
    effects: Vec<Effect>,
}

struct Probing {
    ticket: u64,
    member: Member,
    until: Instant,
    /// A dying process's port may still accept what it resets a moment later: asked again at once, once.
    again: bool,
}

enum Wanted {
    Load { ticket: u64 },
    Store { ticket: u64, expected: Option<Revision>, config: ClusterConfig },
}

impl Coordinating {
    pub(super) fn start(
        me: &Member,
        cluster: &Cluster,
        store: Box<dyn ConfigStore>,
        inbox: Inbox,
    ) -> io::Result<Self> {
        let options = CoordinatorOptions {
            me: me.clone(),
            cluster: cluster.id,
            shards: cluster.shards,
            replication: cluster.replication,
            founded: Epoch(since_1970().as_secs()),
        };
        let (sender, wanted) = channel();
        let thread = std::thread::Builder::new().name("hoplo:config".to_string());
        // It ends with the last sender.
        thread.spawn(move || {
            let mut store = store;
            for wanted in wanted {
                inbox.post(Report::Coordinator(carry_out(store.as_mut(), wanted)));
            }
        })?;
        Ok(Self {
            machine: Coordinator::new(options, hoplo_base::Instant::ZERO),
            store: sender,
            probes: BTreeMap::new(),
            effects: Vec::new(),
        })
    }

    pub(super) fn due(&self) -> Option<hoplo_base::Instant> {
        self.machine.next_deadline()
    }
}

fn carry_out(store: &mut dyn ConfigStore, wanted: Wanted) -> Event {
    match wanted {
        Wanted::Load { ticket } => match store.load() {
            Ok(document) => Event::Loaded { ticket, document },
            Err(error) => Event::Unreachable { ticket, why: error.to_string() },
        },
        Wanted::Store { ticket, expected, config } => match store.swap(expected, &config) {
            Ok(Swapped::Stored(revision)) => Event::Stored { ticket, revision },
            Ok(Swapped::Conflict) => Event::Conflict { ticket },
            Err(error) => Event::Unreachable { ticket, why: error.to_string() },
        },
    }
}

impl Server {
    pub(super) fn coordinate(&mut self, event: Event) {
        let now = self.now();
        let Some(coordinating) = &mut self.coordinating else { return };
        coordinating.machine.handle(now, event, &mut coordinating.effects);
        let effects = std::mem::take(&mut coordinating.effects);
        for effect in effects {
            match effect {
                Effect::Probe { ticket, member } => self.probe(ticket, &member),
                Effect::Load { ticket } => self.want(Wanted::Load { ticket }),
                Effect::Store { ticket, expected, config } => {
                    self.want(Wanted::Store { ticket, expected, config });
                }
                Effect::Announce(config) => self.announce(config),
                Effect::Answer { to, message } => self.answer_to(to, message),
            }
        }
    }

    pub(super) fn coordinate_on_time(&mut self) {
        let now = self.now();
        let Some(coordinating) = &mut self.coordinating else { return };
        let instant = Instant::now();
        let late = coordinating.probes.iter().filter(|(_, probing)| probing.until <= instant);
        let late: Vec<LinkId> = late.map(|(link, _)| *link).collect();
        let due = coordinating.machine.next_deadline().is_some_and(|at| at <= now);
        for link in late {
            self.hub.close(link);
            self.probed(link, Probe::Silent);
        }
        if due {
            self.coordinate(Event::Tick);
        }
    }

    fn want(&mut self, wanted: Wanted) {
        let coordinating = self.coordinating.as_ref().expect("its own effect");
        coordinating.store.send(wanted).expect("the store's thread lives as long as its sender");
    }

    fn announce(&mut self, config: ClusterConfig) {
        let frame = Frame::FromCoordinator(FromCoordinator::Config(config.clone()));
        for &link in self.clients.values().chain(self.reporters.values()) {
            self.hub.send(link, &frame);
        }
        // Others are not kept waiting by what this process does with it.
        self.hub.flush();
        self.on_config(config);
    }

    fn answer_to(&mut self, to: Speaker, message: FromCoordinator) {
        let link = match to {
            Speaker::Replica(replica) if replica == self.me.replica => {
                self.on_message(None, message);
                return;
            }
            Speaker::Client(client) => self.clients.get(&client),
            Speaker::Replica(replica) | Speaker::Coordinator(replica) => {
                self.reporters.get(&replica)
            }
        };
        if let Some(&link) = link {
            self.hub.send(link, &Frame::FromCoordinator(message));
        }
    }

    fn probe(&mut self, ticket: u64, member: &Member) {
        if member.replica == self.me.replica {
            self.coordinate(Event::Probed { ticket, found: Probe::Alive });
            return;
        }
        let until = Instant::now() + PROBE_WITHIN;
        self.dial_probe(Probing { ticket, member: member.clone(), until, again: true });
    }

    fn dial_probe(&mut self, probing: Probing) {
        let hello = self.cluster.hello(Speaker::Coordinator(self.me.replica));
        let link = self.hub.dial_as(hello, &probing.member.address);
        self.coordinating.as_mut().expect("it probes").probes.insert(link, probing);
    }

    /// Whether that was a probe's connection.
    pub(super) fn on_probe_opened(&mut self, link: LinkId, who: Speaker) -> bool {
        let probing = self.coordinating.as_ref().and_then(|it| it.probes.get(&link));
        let Some(probing) = probing else { return false };
        if who == Speaker::Replica(probing.member.replica) {
            let ticket = probing.ticket;
            self.hub.send(link, &Frame::Probe { ticket });
        } else {
            self.hub.close(link);
            self.probed(link, Probe::Refused);
        }
        true
    }

    pub(super) fn on_alive(&mut self, link: LinkId, _ticket: u64) {
        self.hub.close(link);
        self.probed(link, Probe::Alive);
    }

    pub(super) fn on_probe_closed(&mut self, link: LinkId, why: &Gone) -> bool {
        let Some(coordinating) = &mut self.coordinating else { return false };
        let Some(probing) = coordinating.probes.get_mut(&link) else { return false };
        let found = match why {
            Gone::Refused { .. } => Probe::Refused,
            Gone::Broken { .. } if std::mem::take(&mut probing.again) => {
                let probing = coordinating.probes.remove(&link).expect("it was there");
                self.dial_probe(probing);
                return true;
            }
            Gone::Unfit { .. } | Gone::Broken { .. } => Probe::Silent,
        };
        self.probed(link, found);
        true
    }

    fn probed(&mut self, link: LinkId, found: Probe) {
        let Some(coordinating) = &mut self.coordinating else { return };
        if let Some(Probing { ticket, .. }) = coordinating.probes.remove(&link) {
            self.coordinate(Event::Probed { ticket, found });
        }
    }

    /// From a client or a replica, to this process's coordinator. Where there is none, or it does not know,
    /// anybody who has heard a newer configuration may say it.
    pub(super) fn on_to_coordinator(
        &mut self,
        link: LinkId,
        from: Speaker,
        message: ToCoordinator,
    ) {
        if let Speaker::Replica(replica) = from
            && self.reporters.get(&replica) != Some(&link)
            && let Some(older) = self.reporters.insert(replica, link)
        {
            self.replaced(older);
        }
        if self.coordinating.is_some() {
            self.coordinate(Event::Heard { from, message });
            return;
        }
        if let ToCoordinator::WantConfig { known } = message
            && known < self.epochs_known()
            && let Some(config) = &self.config
        {
            let config = FromCoordinator::Config(config.clone());
            self.hub.send(link, &Frame::FromCoordinator(config));
        }
    }

    // The replicas' side.

    pub(super) fn coordinator_of(&self, link: LinkId) -> Option<String> {
        let mut found =
            self.coordinators.iter().filter(|(_, open)| open.is_some_and(|(open, _)| open == link));
        found.next().map(|(address, _)| address.clone())
    }

    /// To all: the one that acts listens.
    pub(super) fn tell_coordinators(&mut self, message: &ToCoordinator) {
        for (link, _) in self.coordinators.values().flatten().filter(|(_, open)| *open) {
            self.hub.send(*link, &Frame::ToCoordinator(message.clone()));
        }
        let from = Speaker::Replica(self.me.replica);
        self.coordinate(Event::Heard { from, message: message.clone() });
    }

    pub(super) fn heartbeat(&mut self) {
        if !self.holds_replicas {
            return;
        }
        for address in self.coordinators.keys().cloned().collect::<Vec<_>>() {
            if self.coordinators[&address].is_none() {
                let link = self.hub.dial(&address);
                self.coordinators.insert(address, Some((link, false)));
            }
        }
        if !self.hosted.values().any(Hosted::log_fails) {
            for link in std::mem::take(&mut self.unknown_to) {
                self.register_with(link);
            }
        }
        let acting = self
            .hosted
            .iter()
            .filter_map(|(shard, hosted)| hosted.acts_in().map(|epoch| (*shard, epoch)));
        let epochs: Vec<(ShardId, Epoch)> = acting.collect();
        let replica = self.me.replica;
        self.tell_coordinators(&ToCoordinator::Heartbeat { replica, epochs });
    }

    pub(super) fn register_everywhere(&mut self) {
        if !self.holds_replicas {
            return;
        }
        let message = self.registration();
        for (link, _) in self.coordinators.values().flatten().filter(|(_, open)| *open) {
            self.hub.send(*link, &Frame::ToCoordinator(message.clone()));
        }
        let from = Speaker::Replica(self.me.replica);
        self.coordinate(Event::Heard { from, message });
    }

    pub(super) fn register_with(&mut self, link: LinkId) {
        let message = self.registration();
        self.hub.send(link, &Frame::ToCoordinator(message));
    }

    fn registration(&self) -> ToCoordinator {
        let holds = self.hosted.values().filter_map(Hosted::holding).collect();
        ToCoordinator::Register { member: self.me.clone(), holds }
    }

    pub(super) fn on_told(&mut self, link: LinkId, message: FromCoordinator) {
        if self.coordinator_of(link).is_some() {
            self.on_message(Some(link), message);
        }
    }

    fn on_message(&mut self, link: Option<LinkId>, message: FromCoordinator) {
        match message {
            FromCoordinator::Config(config) => self.on_config(config),
            FromCoordinator::NotActing { acting: _ } => {}
            FromCoordinator::Refused { why } => {
                // With the next heartbeat, so that two who do not agree do not keep each other busy.
                if link.is_some_and(|link| self.unknown_to.insert(link)) {
                    note(&format!("a coordinator refused: {why}"));
                }
            }
        }
    }

    pub(super) fn on_config(&mut self, config: ClusterConfig) {
        let newer = self.config.as_ref().is_none_or(|known| epochs(known) < epochs(&config));
        if config.cluster != self.cluster.id || !newer {
            return;
        }
        self.peers.learn(&config);
        let me = self.me.replica;
        for chain in &config.shards {
            let mut all = chain.members.iter().chain(&chain.joining);
            if all.any(|member| member.replica == me) {
                self.connect_all(chain);
                self.host(chain.shard);
            }
            self.shard(chain.shard, replica::Event::Configured(chain.clone()));
        }
        self.config = Some(config);
    }

    /// By a thread of its own, because a disk takes its time and other shards do not wait for it.
    fn host(&mut self, shard: ShardId) {
        if self.hosted.contains_key(&shard) || self.opening.contains_key(&shard) {
            return;
        }
        let options = HostOptions {
            me: self.me.replica,
            shard,
            cluster: self.cluster.id,
            folder: self.home.shard(shard),
            fsync: self.fsync,
            memory_bytes: self.memory_bytes,
            retention: self.retention,
        };
        let (now, inbox) = (self.now(), self.inbox.clone());
        let open = move || {
            let opened = Hosted::open(options, now, &inbox);
            inbox.post(Report::Opened(shard, Box::new(opened)));
        };
        match std::thread::Builder::new().name("hoplo:open".to_string()).spawn(open) {
            Ok(_) => {
                self.opening.insert(shard, Vec::new());
            }
            Err(error) => cannot_hold(shard, &error),
        }
    }

    pub(super) fn on_opened(&mut self, shard: ShardId, opened: Result<Hosted, ServeError>) {
        let early = self.opening.remove(&shard).unwrap_or_default();
        match opened {
            Ok(hosted) => {
                self.hosted.insert(shard, hosted);
            }
            Err(error) => return cannot_hold(shard, &error),
        }
        for event in early {
            self.shard(shard, event);
        }
    }

    pub(super) fn epoch(&self, shard: ShardId) -> Epoch {
        let chain = self.config.as_ref().and_then(|it| it.shards.get(usize::from(shard.0)));
        chain.map_or(Epoch(0), |chain| chain.epoch)
    }

    pub(super) fn epochs_known(&self) -> u64 {
        self.config.as_ref().map_or(0, epochs)
    }
}

/// The coordinator sees that it does not act, and others go on.
fn cannot_hold(shard: ShardId, why: &dyn std::fmt::Display) {
    note(&format!("shard {} cannot be held here: {why}", shard.0));
}

fn epochs(config: &ClusterConfig) -> u64 {
    config.shards.iter().map(|chain| chain.epoch.0).sum()
}
