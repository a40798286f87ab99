//! What goes wrong, and when it is over.

use std::time::Duration;

use hoplo_base::NodeId;
use hoplo_core::control::coordinator::Event;
use hoplo_wire::control::{ClientId, ReplicaId, ShardId, Speaker, ToCoordinator, Wish};

use super::counts::What;
use super::process::Input;
use super::world::{Step, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    KeepsData,
    LosesData,
}

impl World {
    pub fn fault(&mut self) {
        let Some(faults) = self.plan.faults.clone().filter(|_| self.faulty()) else { return };
        // A shard that dies before it has reached a disk is gone: until then nobody dies who has a part in it.
        let formed = self.is_formed();
        let unnamed = self.store.config().is_none();
        let mut kinds: Vec<fn(&mut World)> = Vec::new();
        for (may, kind) in [
            (faults.kills && unnamed, World::kills_a_nobody as fn(&mut World)),
            (faults.pauses && !formed, World::stops_anybody),
            (faults.breaks, World::breaks_some),
            (faults.store, World::store_goes),
            (faults.cuts && !formed, World::cuts_anybody),
        ] {
            if may {
                kinds.push(kind);
            }
        }
        for (may, kind) in [
            (faults.kills, World::kills as fn(&mut World)),
            (faults.kills, World::kills),
            (faults.burials, World::buries),
            (faults.collapses, World::collapses),
            (faults.power, World::darkens),
            (faults.pauses, World::stops),
            (faults.cuts, World::cuts),
            (faults.disks, World::disk_fails),
            (faults.wishes, World::wishes),
            (faults.wipes, World::wipes),
            (faults.rots, World::rots),
            (true, World::wants_snapshot),
        ] {
            if may && formed {
                kinds.push(kind);
            }
        }
        if kinds.is_empty() {
            return self.after(Duration::from_millis(20), Step::Fault);
        }
        if !formed {
            self.counts.add(What::BeforeFormation);
        }
        let which = self.rng.below(kinds.len() as u64) as usize;
        self.faults += 1;
        kinds[which](self);
        // Some come at once: whole chains fall.
        let pause = if self.rng.one_in(4) { Duration::from_micros(200) } else { faults.every * 2 };
        let delay = Duration::from_nanos(1 + self.rng.below(pause.as_nanos() as u64));
        self.after(delay, Step::Fault);
    }

    fn some_node(&mut self) -> u64 {
        self.rng.below(self.plan.nodes)
    }

    /// How long it lasts.
    fn lasts(&mut self) -> Duration {
        let most = [5, 100, 1_000, 4_000][self.rng.below(4) as usize];
        Duration::from_millis(1 + self.rng.below(most))
    }

    /// Whether all that was acknowledged survives if this node fails so.
    ///
    /// Where a disk loses what it had, another member has to have it, and to work until the chain knows that this one
    /// is gone: were that one to fail first, in the coordinator's eyes, the chain would rely on this one. A change that the
    /// store is about to make counts as made: it may leave the chain to this one. So may the answer to a probe that is on its
    /// way.
    fn may_fail(&self, node: u64, failure: Failure) -> bool {
        let Some(config) = self.store.config() else { return false };
        let answered = |(asker, who): (&(ReplicaId, u64), &ReplicaId)| {
            who.node.0 == node && self.process(asker.0).is_some()
        };
        if failure == Failure::LosesData && self.answering.iter().any(answered) {
            return false;
        }
        let asked = self.store.asked.values().chain([config]);
        asked.flat_map(|config| &config.shards).all(|chain| {
            let lost = |id: &ReplicaId| id.incarnation <= self.hosts[&id.node.0].lost;
            let members = || chain.members.iter().map(|member| member.replica);
            let loses = failure == Failure::LosesData || members().any(|id| lost(&id));
            let concerns = members().any(|id| id.node.0 == node);
            let added = chain.added.map(|(id, _)| id);
            let whole = |id: &ReplicaId| id.node.0 != node && Some(*id) != added && !lost(id);
            !concerns || !loses || members().filter(whole).any(|id| self.works(id))
        })
    }

    /// A disk lost what it had, and its chain does not know yet.
    fn lacks_data(&self) -> bool {
        self.store.config().is_none_or(|config| {
            let mut members = config.shards.iter().flat_map(|chain| &chain.members);
            members.any(|it| it.replica.incarnation <= self.hosts[&it.replica.node.0].lost)
        })
    }

    fn works(&self, id: ReplicaId) -> bool {
        self.process(id).is_some_and(|process| !process.paused)
            && !self.hosts[&id.node.0].disk_full
            && self.network.cuts() == 0
    }

    fn kills(&mut self) {
        let node = self.some_node();
        if !self.may_fail(node, Failure::KeepsData) {
            return;
        }
        self.dies(node, false);
        let lasts = self.lasts();
        self.after(lasts, Step::Starts(node));
    }

    /// No document names anybody.
    fn kills_a_nobody(&mut self) {
        let node = self.some_node();
        self.dies(node, false);
        let lasts = self.lasts();
        self.after(lasts, Step::Starts(node));
    }

    /// Chains still have their length without it, if nobody else goes.
    fn may_be_buried(&self, node: u64) -> bool {
        let others = self.hosts.iter().filter(|(it, host)| **it != node && !host.buried);
        let coordinates = |it: u64| it < self.plan.coordinators && !self.hosts[&it].buried;
        let left = (0..self.plan.nodes).filter(|it| *it != node && coordinates(*it)).count();
        others.count() >= usize::from(self.plan.replication)
            && left > 0
            && self.may_fail(node, Failure::LosesData)
    }

    fn bury(&mut self, node: u64) {
        self.note(|| format!("node {node} never comes back"));
        self.counts.add(What::Buried);
        let host = self.hosts.get_mut(&node).expect("a host");
        host.buried = true;
        host.disks.clear();
        host.lost = host.incarnation;
    }

    fn buries(&mut self) {
        let node = self.some_node();
        if !self.hosts[&node].buried && self.may_be_buried(node) {
            self.dies(node, false);
            self.bury(node);
        }
    }

    /// All die at once, and one of them perhaps for ever.
    fn collapses(&mut self) {
        let all: Vec<u64> = (0..self.plan.nodes).collect();
        let who = self.some_node();
        let dark = self.plan.log.fsync && self.rng.one_in(2);
        let buried = !self.hosts[&who].buried && self.may_be_buried(who);
        if self.lacks_data() || !all.iter().all(|node| self.may_fail(*node, Failure::KeepsData)) {
            return;
        }
        self.counts.add(What::AllDied);
        for &node in &all {
            self.dies(node, dark);
        }
        if buried && self.rng.one_in(2) {
            self.bury(who);
        }
        for node in all {
            let lasts = self.lasts();
            self.after(lasts, Step::Starts(node));
        }
    }

    fn wipes(&mut self) {
        let node = self.some_node();
        if !self.may_fail(node, Failure::LosesData) {
            return;
        }
        self.dies(node, false);
        self.note(|| format!("node {node} gets a new disk"));
        self.counts.add(What::DiskWiped);
        let host = self.hosts.get_mut(&node).expect("a host");
        host.disks.clear();
        host.lost = host.incarnation;
        let lasts = self.lasts();
        self.after(lasts, Step::Starts(node));
    }

    fn rots(&mut self) {
        let node = self.some_node();
        if !self.may_fail(node, Failure::LosesData) || self.hosts[&node].process.is_none() {
            return;
        }
        self.dies(node, false);
        let host = self.hosts.get_mut(&node).expect("a host");
        host.lost = host.incarnation;
        let rng = &mut self.rng;
        let what: Vec<String> = host.disks.values_mut().filter_map(|disk| disk.rots(rng)).collect();
        self.note(|| format!("the disk of {node} rots: {}", what.join(", ")));
        self.counts.add(What::LogRotted);
        let lasts = self.lasts();
        self.after(lasts, Step::Starts(node));
    }

    fn darkens(&mut self) {
        let node = self.some_node();
        let failure = if self.plan.log.fsync { Failure::KeepsData } else { Failure::LosesData };
        if !self.may_fail(node, failure) {
            return;
        }
        self.dies(node, true);
        let lasts = self.lasts();
        self.after(lasts, Step::Starts(node));
    }

    fn stops(&mut self) {
        let node = self.some_node();
        if !self.may_fail(node, Failure::KeepsData) {
            return;
        }
        self.stop(node);
    }

    fn stops_anybody(&mut self) {
        let node = self.some_node();
        self.stop(node);
    }

    fn stop(&mut self, node: u64) {
        self.note(|| format!("node {node} is stopped"));
        self.counts.add(What::Stopped);
        self.pauses(node);
        let lasts = self.lasts();
        self.after(lasts, Step::Resumes(node));
    }

    fn cuts(&mut self) {
        // It may part all members from who coordinates, whichever they are.
        if !self.lacks_data() {
            self.cuts_anybody();
        }
    }

    fn cuts_anybody(&mut self) {
        let (from, to) = (self.some_node(), self.some_node());
        let lonely = self.rng.one_in(3);
        let both = self.rng.one_in(2);
        let to_clients = self.rng.one_in(4);
        self.note(|| format!("cut from {from} to {to}, both ways: {both}, from all: {lonely}"));
        let others: Vec<u64> = if lonely { (0..self.plan.nodes).collect() } else { vec![to] };
        for other in others.into_iter().filter(|other| *other != from) {
            self.counts.add(if both { What::Cut } else { What::CutOneWay });
            self.network.cut(from, other);
            if both {
                self.network.cut(other, from);
            }
        }
        if to_clients {
            self.network.cut(from, 1_000_000 + self.rng.below(self.plan.clients));
        }
        let lasts = self.lasts();
        self.after(lasts, Step::Mends);
    }

    /// All cuts end; a part of the connections did not live that long.
    pub fn mends(&mut self) {
        if self.network.cuts() == 0 {
            return;
        }
        self.note(|| "cuts are mended".to_string());
        for connection in self.network.all() {
            if self.rng.one_in(8) {
                let arrange =
                    self.network.breaks(self.now, &mut self.rng, connection, Duration::ZERO);
                self.arrange(arrange);
            }
        }
        self.network.mend();
        let waiting = self.network.waiting(self.now, None);
        self.arrange(waiting);
    }

    fn breaks_some(&mut self) {
        let all = self.network.all();
        if all.is_empty() {
            return;
        }
        let connection = all[self.rng.below(all.len() as u64) as usize];
        let ends = self.network.ends(connection, 0);
        self.counts.add(What::ConnectionBroken);
        self.note(|| format!("a connection breaks: {ends:?}"));
        let arrange = self.network.breaks(self.now, &mut self.rng, connection, Duration::ZERO);
        self.arrange(arrange);
    }

    fn store_goes(&mut self) {
        self.note(|| "the config store is away".to_string());
        self.counts.add(What::StoreAway);
        self.store.away = true;
        let lasts = self.lasts();
        self.after(lasts, Step::StoreBack);
    }

    fn disk_fails(&mut self) {
        let node = self.some_node();
        if !self.may_fail(node, Failure::KeepsData) {
            return;
        }
        let full = self.rng.one_in(2);
        self.note(|| format!("the disk of {node} is {}", if full { "full" } else { "slow" }));
        self.counts.add(if full { What::DiskFull } else { What::DiskSlow });
        let host = self.hosts.get_mut(&node).expect("a host");
        if full {
            host.disk_full = true;
        } else {
            host.disk_slow = true;
        }
        let lasts = self.lasts();
        self.after(lasts, Step::DisksWork(node));
    }

    fn wishes(&mut self) {
        let shard = ShardId(self.rng.below(u64::from(self.plan.shards)) as u16);
        let (from, to) = (NodeId(self.some_node()), NodeId(self.some_node()));
        let wish = match self.rng.below(3) {
            0 => ToCoordinator::Wished(Wish::Leave { node: from }),
            1 => ToCoordinator::Unwished(Wish::Leave { node: from }),
            _ => ToCoordinator::Wished(Wish::Move { shard, from, to }),
        };
        self.counts.add(What::OperatorWished);
        self.wish(wish);
    }

    fn wish(&mut self, message: ToCoordinator) {
        self.note(|| format!("an operator: {message:?}"));
        for node in 0..self.plan.coordinators {
            if let Some(id) = self.process_at(node) {
                let from = Speaker::Client(ClientId(100));
                let message = message.clone();
                self.input(id, Input::Coordinator(Event::Heard { from, message }));
            }
        }
    }

    /// Everybody may hold everything again.
    pub fn unwish_all(&mut self) {
        let wishes = self.store.config().map(|config| config.wishes.clone()).unwrap_or_default();
        for wish in wishes {
            self.wish(ToCoordinator::Unwished(wish));
        }
        // Some may be on their way into the document.
        self.after(Duration::from_millis(300), Step::Unwishes);
    }

    fn wants_snapshot(&mut self) {
        let node = self.some_node();
        let shard = ShardId(self.rng.below(u64::from(self.plan.shards)) as u16);
        if let Some(id) = self.process_at(node) {
            self.counts.add(What::SnapshotWanted);
            let event = hoplo_core::control::replica::Event::SnapshotWanted;
            self.input(id, Input::Replica(shard, event));
        }
    }
}
