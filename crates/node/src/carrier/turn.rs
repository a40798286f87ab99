//! The carrier's loop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hoplo_base::NodeNumber;
use hoplo_base::limits::{
    LINK_REDIAL_FIRST, LINK_REDIAL_LAST, MEMBER_HEARD, MEMBER_PROBE_DIALS, MEMBER_PROBE_RESTS,
    MEMBER_PROBE_WITHIN, MEMBER_WITNESS_WITHIN,
};
use hoplo_core::control::{NodeEntry, NodeState};
use hoplo_core::link::{self, Connection};
use hoplo_core::members::standing::{self, Standing};
use hoplo_core::members::{Effect, Event, Found, Judge, beat};
use hoplo_net::hub::{Gone, Happening, Hub, LinkId};
use hoplo_net::name::{Name, Role};
use hoplo_shm::{SleepKind, Spins};
use hoplo_wire::member::{self, Message};

use super::bulk::Parcel;
use super::calls::Calls;
use super::ground::{End, Ground};
use super::protocol::{Between, Said};
use super::unreached::Unreached;
use super::{Machine, Shared, Told, Word};
use crate::clock::clock;

pub(super) struct Turn {
    pub(super) hub: Hub<Between>,
    me: NodeNumber,
    machine: Machine,
    pub(super) shared: Arc<Shared>,
    part: Part,
    pub(super) nodes: BTreeMap<NodeNumber, NodeEntry>,
    /// Of them, those that live.
    living: usize,
    /// The newest entry of the store that it knows.
    epoch: u64,
    pub(super) links: BTreeMap<LinkId, End>,
    probes: BTreeMap<LinkId, Probing>,
    /// Who speaks to this node, by which connection.
    speakers: BTreeMap<NodeNumber, LinkId>,
    pub(super) calls: Calls,
    pub(super) connections: BTreeMap<Connection, LinkId>,
    /// Whom a connection of a link is to reach.
    pub(super) dialled: BTreeMap<Connection, NodeNumber>,
    pub(super) unreached: Unreached,
    /// Connections of links that others dialled, so far.
    pub(super) accepted: u64,
    spins: Spins,
    spins_for_pieces: Spins,
}

/// As which of the two it begins.
pub(super) enum Begin {
    Judge { seeks_as: Option<String> },
    Member { head: String },
}

enum Part {
    Judge {
        judge: Judge,
        /// Where nodes find it that do not speak to it; absent: they know.
        seeks_as: Option<String>,
        /// When each node was told last that it is heard.
        heard: BTreeMap<NodeNumber, Instant>,
    },
    Member {
        standing: Standing,
        head: Head,
        beats_at: Instant,
        /// Why this node leaves, if it does.
        leaves: Option<String>,
    },
}

/// Who is to hear this node.
struct Head {
    address: String,
    link: Option<LinkId>,
    open: bool,
    failures: u32,
    redial_at: Instant,
}

impl Head {
    fn at(address: String) -> Self {
        Self { address, link: None, open: false, failures: 0, redial_at: Instant::now() }
    }
}

#[derive(Clone)]
struct Probing {
    ticket: u64,
    target: NodeNumber,
    /// The control node that wants to know, if this one does not.
    asked_by: Option<LinkId>,
    until: Instant,
    address: String,
    /// When another connection is tried.
    again: Instant,
    /// If this one ends without a word, after so long.
    rest: Duration,
}

/// When a process does not drain its ring.
const RING_ROOM_LOOK: Duration = Duration::from_micros(200);
/// Pieces of objects before what came meanwhile is heard.
const HAULS_A_TURN: usize = 4;
/// Turns that only take what has arrived, before time passes.
const READS_MAX: usize = 64;

impl Turn {
    pub(super) fn new(
        hub: Hub<Between>,
        me: NodeNumber,
        machine: Machine,
        begin: Begin,
        calls: Calls,
        shared: Arc<Shared>,
    ) -> Self {
        let now = Instant::now();
        let part = match begin {
            Begin::Member { head: address } => {
                let standing = Standing::new(standing::Options::new(1), clock());
                Part::Member { standing, head: Head::at(address), beats_at: now, leaves: None }
            }
            Begin::Judge { seeks_as } => {
                let mut judge = Judge::new(clock());
                judge.handle(clock(), Event::Acts(true), &mut Vec::new());
                Part::Judge { judge, seeks_as, heard: BTreeMap::new() }
            }
        };
        Self {
            hub,
            me,
            machine,
            shared,
            part,
            nodes: BTreeMap::new(),
            living: 0,
            epoch: 0,
            links: BTreeMap::new(),
            probes: BTreeMap::new(),
            speakers: BTreeMap::new(),
            calls,
            connections: BTreeMap::new(),
            dialled: BTreeMap::new(),
            unreached: Unreached::default(),
            accepted: 0,
            spins: Spins::default(),
            spins_for_pieces: Spins::default(),
        }
    }

    pub(super) fn run(mut self) {
        let mut happenings = Vec::new();
        while !self.shared.ended() {
            self.wait(&mut happenings);
            // CARRY-3
            for _ in 0..READS_MAX {
                if happenings.is_empty() {
                    break;
                }
                for happening in happenings.drain(..) {
                    self.on_happening(happening);
                }
                self.turn_hub(Some(Instant::now()), &mut happenings);
            }
            for happening in happenings.drain(..) {
                self.on_happening(happening);
            }
            self.hear_decider();
            self.on_time();
            self.turn_calls();
        }
        self.hear_decider();
    }

    /// Until something happens in a socket or a ring, or it is time. Who calls far workers waits for this thread, and so does who waits
    /// for an object that comes: it looks for a moment before it sleeps.
    fn wait(&mut self, happenings: &mut Vec<Happening<Between>>) {
        let now = Instant::now();
        let at_once = self.calls.has_work();
        let hauls = self.calls.bulk.expects();
        if at_once || (self.calls.is_empty() && !hauls) {
            let until = if at_once { Some(now) } else { self.due() };
            self.turn_hub(until, happenings);
            return;
        }
        let segment = self.calls.rings.segment();
        let bell = segment.doorbell(super::slot());
        let (hub, seen) = (&mut self.hub, bell.rings());
        let mut ground = Ground { links: &self.links, bulk: &mut *self.calls.bulk };
        let spins = if hauls { &self.spins_for_pieces } else { &self.spins };
        let came = spins.spin(|| {
            // Rung: there may be something to haul, too.
            let rung = hub.turn_landing(Some(now), happenings, &mut ground).expect("epoll waits");
            let drained = hub.has_drained();
            rung || drained
                || !happenings.is_empty()
                || bell.rings() != seen
                || self.shared.has_told()
        });
        if came {
            return;
        }
        let sleeper = bell.prepare(SleepKind::Strict);
        let again = self.calls.has_work() || self.shared.has_told();
        let soon = (again || self.calls.rings.has_full()).then(|| {
            // Nobody rings when room appears: look again in a moment.
            if again { now } else { Instant::now() + RING_ROOM_LOOK }
        });
        let until = self.due().into_iter().chain(soon).min();
        self.turn_hub(until, happenings);
        drop(sleeper);
    }

    fn turn_hub(&mut self, until: Option<Instant>, happenings: &mut Vec<Happening<Between>>) {
        let mut ground = Ground { links: &self.links, bulk: &mut *self.calls.bulk };
        self.hub.turn_landing(until, happenings, &mut ground).expect("epoll waits");
    }

    /// Rings, links, and what the decider is to hear, until nothing moves.
    fn turn_calls(&mut self) {
        self.links_act();
        self.calls.turn_rings();
        self.calls.flush();
        self.links_act();
        self.hub.flush();
        self.haul();
        self.shared.say_all(&mut self.calls.words);
    }

    /// Pieces of objects, one after the other while the sockets take them.
    fn haul(&mut self) {
        self.hub.has_drained(); // whose socket took all is asked now
        for _ in 0..HAULS_A_TURN {
            let Self { hub, connections, calls, .. } = self;
            let unsent = |it| connections.get(&it).map_or(0, |id| hub.unsent_bytes(*id));
            self.calls.hauls_on = calls.haul(unsent);
            self.links_act();
            if !self.calls.hauls_on {
                return;
            }
            self.hub.flush();
        }
    }

    fn hear_decider(&mut self) {
        for told in self.shared.take() {
            self.on_told(told);
        }
    }

    fn on_told(&mut self, told: Told) {
        match told {
            Told::Row { entry, version, index } => {
                self.epoch = self.epoch.max(index);
                let (number, state) = (entry.node, entry.state.clone());
                let near = self.machine.has(&entry);
                let lives = !state.is_dead();
                let before = self.nodes.insert(number, (*entry).clone());
                self.living += usize::from(lives);
                self.living -= usize::from(before.is_some_and(|it| !it.state.is_dead()));
                if number != self.me {
                    self.follow(&entry);
                    self.judge(Event::Row { number, version, state: state.clone(), near });
                    self.end_if_dead(number, &state);
                }
                self.calls.words.push(Word::Member { entry, index });
            }
            Told::Verdict { ticket, stored: Some(version) } => {
                self.judge(Event::Stored { ticket, version });
            }
            Told::Verdict { ticket, stored: None } => self.judge(Event::Conflict { ticket }),
            Told::NoVerdict { ticket } => self.judge(Event::Unreachable { ticket }),
            Told::Leaves { why } => {
                if let Part::Member { leaves, .. } = &mut self.part {
                    *leaves = Some(why);
                }
                self.says_how_it_is();
                self.hub.flush();
            }
            Told::Over => {
                for &link in self.speakers.values() {
                    self.hub.send(link, &Said::Member(Message::Over));
                }
                self.hub.flush();
            }
            told => self.calls.on_told(told),
        }
    }

    /// Its links end, then its pairs: nothing comes from it any more.
    fn end_if_dead(&mut self, number: NodeNumber, state: &NodeState) {
        if self.calls.is_dead(number) {
            return;
        }
        let why = match state {
            NodeState::Dead { why, .. } | NodeState::Settled { why, .. } => {
                format!("its node ({number}) died: {why}")
            }
            NodeState::Alive | NodeState::Draining => return,
        };
        self.links_act(); // what came is there before
        self.unreached.forget(number);
        self.calls.link(link::Event::Dead { number });
        self.links_act();
        self.calls.end_node(number, why);
    }

    fn on_happening(&mut self, happening: Happening<Between>) {
        match happening {
            Happening::Opened { link, theirs, shown, dialled: false } => {
                let is_control = shown.is_some_and(|shown| shown.role == Role::Control);
                self.links.insert(link, End::Node { node: theirs.node, is_control });
            }
            Happening::Opened { link, theirs, shown, dialled: true } => {
                self.on_dialled(link, theirs.node, shown.as_ref());
            }
            Happening::Frame { link, frame: Said::Member(message) } => {
                self.on_message(link, message);
            }
            Happening::Frame { link, frame: Said::Link(message) } => self.on_link(link, message),
            Happening::Closed { link, why } => self.on_closed(link, &why),
        }
    }

    fn on_dialled(&mut self, link: LinkId, node: NodeNumber, shown: Option<&Name>) {
        match self.links.get(&link) {
            Some(End::Probe) => match self.probes.get(&link) {
                Some(Probing { ticket, target, .. }) if *target == node => {
                    let probe = Message::Probe { ticket: *ticket };
                    self.tell_where(link, node);
                    self.hub.send(link, &Said::Member(probe));
                }
                _ => self.found(link, member::Found::Refused),
            },
            Some(End::Head) => {
                if shown.is_some_and(|shown| shown.role == Role::Control) {
                    self.head_opened();
                } else {
                    // CARRY-2: any node may listen there now.
                    self.hub.close(link);
                    self.links.remove(&link);
                    self.head_gone(false);
                }
            }
            Some(End::Link(connection, _)) => self.link_dialled(link, *connection, node),
            Some(End::Verdict(why)) => {
                let why = why.clone();
                self.hub.send(link, &Said::Member(Message::Dead { why }));
            }
            Some(End::Node { .. }) | None => self.hub.close(link),
        }
    }

    /// A node that does not speak to this head looks for one elsewhere: where the head before listened.
    fn tell_where(&mut self, link: LinkId, node: NodeNumber) {
        if let Part::Judge { seeks_as: Some(address), .. } = &self.part
            && !self.speakers.contains_key(&node)
        {
            let address = address.clone();
            self.hub.send(link, &Said::Member(Message::Here { address }));
        }
    }

    fn on_link(&mut self, link: LinkId, message: link::Message<Parcel>) {
        match (self.links.get(&link), message) {
            (None, _) => {}
            (Some(End::Link(connection, _)), message) => self.link_says(*connection, message),
            (Some(End::Node { node, .. }), link::Message::Hello(hello)) => {
                self.link_comes(link, *node, hello);
            }
            (Some(End::Node { .. } | End::Head | End::Probe | End::Verdict(_)), _) => {
                self.has_no_business(link, "a link's message has no business on this connection");
            }
        }
    }

    fn on_message(&mut self, link: LinkId, message: Message) {
        let out_of_place = match (self.links.get(&link), message) {
            (None, _) => return,
            (Some(End::Node { .. }), Message::Probe { ticket }) => {
                return self.hub.send(link, &Said::Member(Message::Alive { ticket }));
            }
            (Some(End::Node { is_control: true, .. }), Message::Here { address }) => {
                return self.head_is_at(address);
            }
            (Some(End::Node { node, .. }), Message::Heartbeat { epoch }) => {
                let node = *node;
                return self.on_heartbeat(link, node, epoch);
            }
            (Some(End::Node { node, .. }), Message::Leaves { why }) => {
                let from = *node;
                return self.judge(Event::Leaves { from, why });
            }
            (Some(End::Node { .. }), Message::Looked { ticket, found }) => {
                return self.judge(Event::Probed { ticket, found: of_wire(found) });
            }
            (Some(End::Probe), Message::Alive { .. }) => {
                return self.found(link, member::Found::Alive);
            }
            (Some(End::Head), Message::Heard) => {
                return self.stand(standing::Event::Heard);
            }
            (Some(End::Head), Message::Look { ticket, node, address }) => {
                return self.probe(ticket, node, &address, Some(link));
            }
            (Some(End::Head), Message::Over) => return self.shared.say(Word::Over),
            (Some(End::Head | End::Node { is_control: true, .. }), Message::Dead { why }) => {
                return self.stand(standing::Event::Fenced { why });
            }
            (Some(_), message) => format!("{} has no business on this connection", message.name()),
        };
        self.has_no_business(link, &out_of_place);
    }

    fn has_no_business(&mut self, link: LinkId, out_of_place: &str) {
        self.hub.refuse(link, out_of_place);
        let out_of_place = out_of_place.to_string();
        let why = Gone::Unfit { peer: "a node".to_string(), why: out_of_place };
        self.on_closed(link, &why);
    }

    fn on_heartbeat(&mut self, link: LinkId, node: NodeNumber, epoch: u64) {
        if let Some(older) = self.speakers.insert(node, link)
            && older != link
        {
            self.hub.close(older);
            self.links.remove(&older);
        }
        if let Part::Judge { heard, .. } = &mut self.part {
            let now = Instant::now();
            let last = heard.get(&node);
            if last.is_none_or(|at| now.saturating_duration_since(*at) >= MEMBER_HEARD) {
                heard.insert(node, now);
                self.hub.send(link, &Said::Member(Message::Heard));
            }
        }
        self.judge(Event::Heartbeat { from: node, epoch });
    }

    fn on_closed(&mut self, link: LinkId, why: &Gone) {
        let refused = matches!(why, Gone::Refused { .. });
        match self.links.get(&link) {
            None => {}
            Some(End::Link(connection, _)) => self.link_closed(link, *connection, why),
            Some(End::Probe) => match why {
                Gone::Refused { .. } => self.found(link, member::Found::Refused),
                Gone::Broken { .. } => self.probe_ended(link),
                Gone::Unfit { .. } => self.found(link, member::Found::Silent),
            },
            Some(End::Head) => {
                self.links.remove(&link);
                self.head_gone(refused);
            }
            Some(End::Verdict(_)) => {
                self.links.remove(&link);
            }
            Some(End::Node { node, .. }) => {
                let node = *node;
                self.links.remove(&link);
                if self.speakers.get(&node) == Some(&link) {
                    self.speakers.remove(&node);
                    if let Part::Judge { heard, .. } = &mut self.part {
                        heard.remove(&node);
                    }
                    self.judge(Event::Closed { number: node });
                }
            }
        }
    }

    // ---- probes ----

    fn probe(&mut self, ticket: u64, target: NodeNumber, address: &str, asked_by: Option<LinkId>) {
        let within = if asked_by.is_some() { MEMBER_WITNESS_WITHIN } else { MEMBER_PROBE_WITHIN };
        let until = Instant::now() + within;
        let address = address.to_string();
        let (again, rest) = (until, MEMBER_PROBE_RESTS);
        self.dial_probe(Probing { ticket, target, asked_by, until, address, again, rest });
    }

    /// That process may be ending: then its port took this connection before it closed, and refuses a later one. Silence it is when time is up.
    fn probe_ended(&mut self, link: LinkId) {
        self.links.remove(&link);
        if let Some(probing) = self.probes.get_mut(&link) {
            probing.again = probing.until.min(Instant::now() + probing.rest);
            probing.rest = (2 * probing.rest).min(MEMBER_PROBE_DIALS);
        }
    }

    fn dial_probe(&mut self, probing: Probing) {
        let link = self.hub.dial(&probing.address);
        let again = Instant::now() + MEMBER_PROBE_DIALS;
        self.links.insert(link, End::Probe);
        self.probes.insert(link, Probing { again, ..probing });
    }

    /// Of all connections for the same probe the first word counts.
    fn found(&mut self, link: LinkId, found: member::Found) {
        let Some(Probing { ticket, asked_by, .. }) = self.probes.get(&link).cloned() else {
            return;
        };
        let same = |it: &Probing| (it.ticket, it.asked_by) == (ticket, asked_by);
        let links: Vec<LinkId> =
            self.probes.iter().filter(|(_, it)| same(it)).map(|(link, _)| *link).collect();
        for link in links {
            self.probes.remove(&link);
            self.links.remove(&link);
            self.hub.close(link);
        }
        match asked_by {
            Some(asker) => self.hub.send(asker, &Said::Member(Message::Looked { ticket, found })),
            None => self.judge(Event::Probed { ticket, found: of_wire(found) }),
        }
    }

    // ---- the judge ----

    fn judge(&mut self, event: Event) {
        let Part::Judge { judge, .. } = &mut self.part else { return };
        let mut effects = Vec::new();
        judge.handle(clock(), event, &mut effects);
        for effect in effects {
            match effect {
                Effect::Probe { ticket, target, via: None } => {
                    match self.nodes.get(&target).map(|entry| entry.address.clone()) {
                        Some(address) if !address.is_empty() => {
                            self.probe(ticket, target, &address, None);
                        }
                        // It has a number, and did not say yet where it is.
                        _ => self.judge(Event::Probed { ticket, found: Found::Silent }),
                    }
                }
                Effect::Probe { ticket, target, via: Some(via) } => {
                    let address = self.nodes.get(&target).map(|entry| entry.address.clone());
                    match (self.speakers.get(&via), address) {
                        (Some(&link), Some(address)) => {
                            let look = Message::Look { ticket, node: target, address };
                            self.hub.send(link, &Said::Member(look));
                        }
                        (_, _) => self.judge(Event::Probed { ticket, found: Found::Unasked }),
                    }
                }
                Effect::Verdict { ticket, number, expected, why } => {
                    self.shared.say(Word::Verdict { ticket, number, expected, why });
                }
                Effect::Behind { by } => self.shared.say(Word::Behind { by }),
                Effect::Tell { number, why } => {
                    if let Some(&link) = self.speakers.get(&number) {
                        self.hub.send(link, &Said::Member(Message::Dead { why }));
                    } else if let Some(entry) = self.nodes.get(&number) {
                        let link = self.hub.dial(&entry.address);
                        self.links.insert(link, End::Verdict(why));
                    }
                }
            }
        }
    }

    // ---- the node ----

    fn stand(&mut self, event: standing::Event) {
        let Part::Member { standing, head, .. } = &mut self.part else { return };
        let mut effects = Vec::new();
        standing.handle(clock(), event, &mut effects);
        let head = &head.address;
        for effect in effects {
            match effect {
                standing::Effect::EndWorkers { why } => {
                    self.shared.say(Word::Fenced { why: why_ended(&why, head) });
                }
                standing::Effect::HeadSilent { since } => {
                    self.shared.say(Word::HeadSilent { since });
                }
                standing::Effect::HeadHeard => self.shared.say(Word::HeadHeard),
                // Its workers are gone with its daemon's session, which has begun anew.
                standing::Effect::TakeWork | standing::Effect::JoinAgain => {}
            }
        }
    }

    /// Another node is head now: that one is to hear this node.
    fn follow(&mut self, entry: &NodeEntry) {
        let Part::Member { head, .. } = &mut self.part else { return };
        let is_new = entry.head && !entry.state.is_dead() && !entry.address.is_empty();
        if !is_new || entry.address == head.address {
            return;
        }
        let link = std::mem::replace(head, Head::at(entry.address.clone())).link;
        self.leave(link);
    }

    /// Of a head that goes on elsewhere than the one before it. While this node has a head that answers, it stays with that one.
    fn head_is_at(&mut self, address: String) {
        let Part::Member { head, .. } = &mut self.part else { return };
        if head.open || head.address == address {
            return;
        }
        let link = std::mem::replace(head, Head::at(address.clone())).link;
        self.leave(link);
        self.shared.say(Word::Head { address });
    }

    fn leave(&mut self, link: Option<LinkId>) {
        if let Some(link) = link {
            self.hub.close(link);
            self.links.remove(&link);
        }
        self.stand(standing::Event::HeadChanged);
    }

    fn head_opened(&mut self) {
        let Part::Member { head, .. } = &mut self.part else { return };
        (head.open, head.failures) = (true, 0);
        self.says_how_it_is();
    }

    /// To the head, if it can hear it.
    fn says_how_it_is(&mut self) {
        let Part::Member { head, leaves, .. } = &self.part else { return };
        let Some(link) = head.link.filter(|_| head.open) else { return };
        self.hub.send(link, &Said::Member(Message::Heartbeat { epoch: self.epoch }));
        if let Some(why) = leaves {
            self.hub.send(link, &Said::Member(Message::Leaves { why: why.clone() }));
        }
    }

    fn head_gone(&mut self, refused: bool) {
        let Part::Member { head, .. } = &mut self.part else { return };
        (head.open, head.link) = (false, None);
        let wait = LINK_REDIAL_FIRST * (1 << head.failures.min(10));
        head.failures = head.failures.saturating_add(1);
        head.redial_at = Instant::now() + wait.min(LINK_REDIAL_LAST);
        self.stand(match refused {
            true => standing::Event::Refused { control_node: 0 },
            false => standing::Event::Silent { control_node: 0 },
        });
    }

    // ---- time ----

    fn due(&self) -> Option<Instant> {
        let probes = self.probes.values().map(|probing| probing.until.min(probing.again));
        let machine = match &self.part {
            Part::Judge { judge, .. } => judge.next_deadline(),
            Part::Member { standing, .. } => standing.next_deadline(),
        };
        let machine = machine.map(|at| Instant::now() + at.since(clock()));
        let beats = match &self.part {
            Part::Judge { .. } => None,
            Part::Member { head, beats_at, .. } => {
                let dials = head.link.is_none().then_some(head.redial_at);
                let beats = head.open.then_some(*beats_at);
                dials.into_iter().chain(beats).min()
            }
        };
        let links = self.calls.next_deadline().map(|at| Instant::now() + at.since(clock()));
        probes.chain(machine).chain(beats).chain(links).min()
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        self.calls.on_time();
        let late = self.probes.iter().filter(|(_, probing)| probing.until <= now);
        for link in late.map(|(link, _)| *link).collect::<Vec<_>>() {
            self.found(link, member::Found::Silent);
        }
        let again = self.probes.values_mut().filter(|probing| probing.again <= now);
        let again: Vec<Probing> = again
            .map(|probing| {
                probing.again = probing.until;
                probing.clone()
            })
            .collect();
        again.into_iter().for_each(|probing| self.dial_probe(probing));
        self.beat(now);
        match &self.part {
            Part::Judge { judge, .. } => {
                if judge.next_deadline().is_some_and(|at| at <= clock()) {
                    self.judge(Event::Tick);
                }
            }
            Part::Member { standing, .. } => {
                if standing.next_deadline().is_some_and(|at| at <= clock()) {
                    self.stand(standing::Event::Tick);
                }
            }
        }
    }

    fn beat(&mut self, now: Instant) {
        let Part::Member { head, beats_at, .. } = &mut self.part else { return };
        if head.link.is_none() && head.redial_at <= now {
            let link = self.hub.dial(&head.address);
            head.link = Some(link);
            self.links.insert(link, End::Head);
        }
        if *beats_at <= now {
            *beats_at = now + beat(self.living);
            self.says_how_it_is();
            // So this thread does not wake once more for it (`NODE_LATE`).
            self.stand(standing::Event::Tick);
        }
    }
}

fn of_wire(found: member::Found) -> Found {
    match found {
        member::Found::Alive => Found::Alive,
        member::Found::Refused => Found::Refused,
        member::Found::Silent => Found::Silent,
    }
}

/// For its drivers and its log.
fn why_ended(why: &standing::Why, head: &str) -> String {
    match why {
        standing::Why::Declared { why } => format!("this node was declared dead: {why}"),
        standing::Why::Silent { time } => format!(
            "this node has not reached the head ({head}) for {} s, and may have been declared dead: \
             it ended its workers, and joins again when the head answers",
            time.as_secs()
        ),
        standing::Why::Refused { time } => {
            format!("no head has come back at {head} for {} s", time.as_secs())
        }
    }
}
