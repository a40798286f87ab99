//! Calls to and from other nodes: rings at one side, links at the other, and what `hoplo_core::carry` makes of both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hoplo_base::limits::NODE_MESSAGE_BYTES_MAX;
use hoplo_base::{Instant, NodeNumber};
use hoplo_core::carry::{Carry, Effect, Event, Item, Outbox, Pair, calls_in};
use hoplo_core::link::{self, Connection, LostWhy, SendError, Socket};
use hoplo_core::transfer::Uplink;
use hoplo_shm::Segment;
use hoplo_wire::node::{DeathCause, Obituary, decode};
use hoplo_wire::peer::Peer;

use super::bulk::{Begun, Bulk, Parcel, Piece};
use super::rings::{Broken, Rings};
use super::{Told, Word};
use crate::clock::clock;
use crate::journal;

mod boxes;

pub(super) type Links = link::Links<Parcel>;
pub(super) type LinkEffect = link::Effect<Parcel>;
pub(super) type LinkEvent = link::Event<Parcel>;

pub(super) struct Calls {
    me: NodeNumber,
    carry: Carry,
    links: Links,
    pub(super) rings: Rings,
    boxes: BTreeMap<NodeNumber, Outbox>,
    /// Boxes with something that the link was not given.
    dirty: BTreeSet<NodeNumber>,
    /// Boxes in which lines of workers wait.
    talkative: BTreeSet<NodeNumber>,
    /// Messages of deciders that did not come whole.
    unfinished: BTreeMap<NodeNumber, Vec<u8>>,
    dead: BTreeSet<NodeNumber>,
    pub(super) bulk: Box<dyn Bulk>,
    uplink: Uplink,
    /// Pieces that found no room.
    pieces: BTreeMap<NodeNumber, Piece>,
    /// The sockets may take more than the last turn gave them.
    pub(super) hauls_on: bool,
    /// Rings to look at, and whether to look at all.
    hot: BTreeSet<Pair>,
    look_at_all: bool,
    /// How often the bell had rung when all rings were looked at.
    rings_seen: u32,
    /// For the shell to carry out.
    pub(super) link_effects: Vec<LinkEffect>,
    effects: Vec<Effect>,
    pub(super) words: Vec<Word>,
    /// Frames of links that ended, until the end is carried out.
    unsent: BTreeMap<NodeNumber, Vec<(Pair, u64)>>,
    items: Vec<Item>,
}

impl Calls {
    pub(super) fn new(
        me: NodeNumber,
        first_token: u64,
        segment: Arc<Segment>,
        bulk: Box<dyn Bulk>,
    ) -> Self {
        let options = link::Options::new(me, link::Token(first_token));
        Self {
            me,
            carry: Carry::new(me),
            links: link::Links::new(options),
            rings: Rings::new(segment),
            boxes: BTreeMap::new(),
            dirty: BTreeSet::new(),
            talkative: BTreeSet::new(),
            unfinished: BTreeMap::new(),
            dead: BTreeSet::new(),
            bulk,
            uplink: Uplink::new(me),
            hauls_on: false,
            pieces: BTreeMap::new(),
            hot: BTreeSet::new(),
            look_at_all: false,
            rings_seen: 0,
            link_effects: Vec::new(),
            effects: Vec::new(),
            words: Vec::new(),
            unsent: BTreeMap::new(),
            items: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rings.is_empty()
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.links.next_deadline()
    }

    pub(super) fn on_time(&mut self) {
        if self.links.next_deadline().is_some_and(|at| at <= clock()) {
            self.link(link::Event::Tick);
        }
    }

    pub(super) fn link(&mut self, event: LinkEvent) {
        self.links.handle(clock(), event, &mut self.link_effects);
    }

    // ---- rings ----

    /// Takes what callers and workers have written, and writes what came for them. Whether anything moved.
    pub(super) fn turn_rings(&mut self) -> bool {
        let rung = self.rings.segment().doorbell(super::slot()).rings();
        let all = std::mem::replace(&mut self.rings_seen, rung) != rung
            || std::mem::take(&mut self.look_at_all);
        let full = self.rings.take_full();
        let mut pairs = std::mem::take(&mut self.hot);
        if all {
            pairs.extend(self.rings.pairs());
        }
        let mut moved = !pairs.is_empty();
        pairs.extend(full);
        for pair in pairs {
            moved |= self.take(pair, false);
            self.write(pair);
        }
        self.rings.ring();
        moved
    }

    /// A frame lies there that may be taken, or came and is to be written. The next turn looks for it: that a process rang may have
    /// been spent on a turn in which what waited for the link was in the way.
    pub(super) fn has_work(&mut self) -> bool {
        let takes = |pair| self.carry.takes(pair) && !self.is_stuck(pair);
        self.look_at_all = self.look_at_all || self.rings.has_some(takes);
        self.look_at_all || self.hauls_on || !self.hot.is_empty()
    }

    /// Its link takes no more: room is told.
    fn is_stuck(&self, pair: Pair) -> bool {
        self.boxes.get(&self.other_node(pair)).is_some_and(Outbox::is_full)
    }

    fn take(&mut self, pair: Pair, all: bool) -> bool {
        if !all && self.is_stuck(pair) {
            return false;
        }
        let Self { rings, carry, effects, .. } = self;
        let taken = match rings.take(pair, carry, all, effects) {
            Ok(taken) => taken,
            Err(broken) => {
                self.broken(broken);
                0
            }
        };
        self.carry_out();
        taken > 0
    }

    fn write(&mut self, pair: Pair) {
        let Self { rings, carry, effects, .. } = self;
        if let Err(broken) = rings.write(pair, carry, effects) {
            self.broken(broken);
        }
        self.carry_out();
    }

    fn broken(&mut self, Broken { process, what }: Broken) {
        self.words.push(Word::Broke { process, what });
    }

    fn other_node(&self, pair: Pair) -> NodeNumber {
        if pair.caller.node() == self.me { pair.worker.node() } else { pair.caller.node() }
    }

    // ---- the machine ----

    fn carry(&mut self, event: Event) {
        self.carry.handle(event, &mut self.effects);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while !self.effects.is_empty() {
            for effect in std::mem::take(&mut self.effects) {
                match effect {
                    Effect::Send { to, item } => self.send(to, &item),
                    Effect::Pass { ticket, frame } => {
                        self.words.push(Word::Passing { ticket, frame });
                    }
                    Effect::Look { pair } => {
                        self.hot.insert(pair);
                    }
                    Effect::TakeBack { pair, seqs, mut revoked } => {
                        let (more, kept) = self.rings.take_back(pair, &seqs);
                        revoked.extend(more);
                        let event = Event::TakenBack { pair, seqs: revoked, kept };
                        self.carry.handle(event, &mut self.effects);
                    }
                    Effect::Revoked { pair, seqs, kept } => {
                        let Pair { caller, worker } = pair;
                        self.words.push(Word::Revoked { caller, worker, seqs, kept });
                    }
                    Effect::Ended { pair, unstarted, obituary } => {
                        let Pair { caller, worker } = pair;
                        self.words.push(Word::Ended { caller, worker, unstarted, obituary });
                    }
                    Effect::Drop { pair } => {
                        self.rings.ring(); // what was written last is told
                        self.rings.remove(pair);
                        self.hot.remove(&pair);
                    }
                    Effect::Nonsense { from, what } => {
                        journal::log(format_args!("{from} speaks nonsense of calls: {what}"));
                    }
                }
            }
        }
    }

    // ---- the bulk socket ----

    /// Connections for pieces that may not be there yet. To make one takes several round trips, each of which waits behind the bytes that links are busy with.
    fn open_for_bulk(&mut self) {
        for begun in self.bulk.begun() {
            let node = match begun {
                Begun::Relays(node) => node,
                // Both connections are made at the same time. If there is one, the other node hears of the request first, and opens the second one itself.
                Begun::Asked(node) if self.links.connection(node, Socket::Talk).is_none() => node,
                Begun::Asked(_) => continue,
            };
            self.links.open(clock(), node, Socket::Bulk, &mut self.link_effects);
        }
    }

    /// One piece for the node whose turn it is, if there is one. `unsent`: bytes that wait for the socket of a connection.
    pub(super) fn haul(&mut self, unsent: impl Fn(Connection) -> usize) -> bool {
        // Who has one that found no room waits for some.
        let waiting = self.bulk.waiting();
        self.open_for_bulk();
        let waiting = waiting.into_iter().filter(|it| !self.pieces.contains_key(it));
        let links = &self.links;
        let next = self.uplink.next(waiting.map(|node| {
            let connection = links.connection(node, Socket::Bulk);
            (node, connection.map_or_else(|| links.held_bytes(node, Socket::Bulk), &unsent))
        }));
        let Some(node) = next else { return false };
        if let Some(piece) = self.bulk.next(node) {
            self.haul_to(node, piece);
        }
        true
    }

    fn haul_to(&mut self, node: NodeNumber, piece: Piece) {
        let parcel = Parcel::Piece(piece);
        match self.links.send(clock(), node, Socket::Bulk, parcel, &mut self.link_effects) {
            Ok(()) => {}
            Err(SendError::Full(Parcel::Piece(piece))) => {
                self.pieces.insert(node, piece);
            }
            Err(SendError::Dead(_)) => self.bulk.lost(node),
            Err(SendError::Full(_) | SendError::TooLong(_)) => {
                unreachable!("a piece is bounded, and what was given comes back")
            }
        }
    }

    // ---- links ----

    pub(super) fn on_deliver(&mut self, from: NodeNumber, socket: Socket, parcel: Parcel) {
        match (socket, parcel) {
            (Socket::Bulk, Parcel::Landed(piece)) => self.bulk.arrived(from, piece),
            (Socket::Talk, Parcel::Talk(frame)) => self.on_talk(from, &frame),
            (Socket::Bulk | Socket::Talk, _) => {
                journal::log(format_args!("{from} sent over one socket what belongs to the other"));
            }
        }
    }

    fn on_talk(&mut self, from: NodeNumber, frame: &Arc<Vec<u8>>) {
        let mut items = std::mem::take(&mut self.items);
        if let Err(error) = Item::parse_all(frame, &mut items) {
            journal::log(format_args!("{from} speaks nonsense: {error}"));
        }
        for item in items.drain(..) {
            match item {
                Item::Peer { cover, more, bytes } => self.on_peer(from, cover, more, &bytes),
                item => self.carry(Event::Arrived { from, item }),
            }
        }
        self.items = items;
    }

    fn on_peer(&mut self, from: NodeNumber, cover: u64, more: bool, bytes: &[u8]) {
        let unfinished = self.unfinished.entry(from).or_default();
        let message = if unfinished.is_empty() && !more {
            decode::<Peer>(bytes)
        } else {
            if unfinished.len() + bytes.len() > NODE_MESSAGE_BYTES_MAX {
                journal::log(format_args!("{from} sends a message that does not end"));
                unfinished.clear();
                return;
            }
            unfinished.extend_from_slice(bytes);
            if more {
                return;
            }
            decode::<Peer>(&std::mem::take(unfinished))
        };
        match message {
            Ok(message) => {
                let message = Box::new(message);
                self.words.push(Word::Peer { from, cover, message });
            }
            Err(error) => journal::log(format_args!("{from} speaks nonsense: {error}")),
        }
    }

    pub(super) fn on_room(&mut self, peer: NodeNumber, socket: Socket) {
        match socket {
            Socket::Talk => {
                self.dirty.insert(peer);
                self.look_at_all = true;
            }
            Socket::Bulk => {
                if let Some(piece) = self.pieces.remove(&peer) {
                    self.haul_to(peer, piece);
                }
            }
        }
    }

    pub(super) fn on_lost(
        &mut self,
        peer: NodeNumber,
        why: LostWhy,
        talk: &link::Unacknowledged<Parcel>,
    ) {
        let frames = talk.never_sent.iter().filter_map(|parcel| match parcel {
            Parcel::Talk(frame) => Some(frame),
            Parcel::Piece(_) | Parcel::Landed(_) => None,
        });
        let calls = frames.flat_map(calls_in);
        self.unsent.entry(peer).or_default().extend(calls);
        match why {
            LostWhy::Dead => {} // whoever said so goes on
            LostWhy::Forgotten => {
                journal::log(format_args!("{peer} knows nothing of the link with it any more"));
                self.end_node(peer, format!("{peer} has lost its link with this node"));
            }
        }
    }

    /// Of that node's number nothing comes any more. First `Links` hears of it.
    pub(super) fn end_node(&mut self, node: NodeNumber, why: String) {
        // What its workers replied goes as far as it can go at once.
        let pairs: Vec<Pair> = self.rings.pairs();
        for pair in pairs.into_iter().filter(|pair| pair.worker.node() == node) {
            self.write(pair);
        }
        self.rings.ring();
        let mut unsent = self.unsent.remove(&node).unwrap_or_default();
        let frames = self.boxes.remove(&node).map(Outbox::into_frames).unwrap_or_default();
        unsent.extend(frames.iter().flat_map(calls_in));
        self.dirty.remove(&node);
        self.talkative.remove(&node);
        self.unfinished.remove(&node);
        self.pieces.remove(&node);
        self.dead.insert(node);
        self.bulk.lost(node);
        let cause = DeathCause::Lost { reason: why };
        let obituary = Obituary { pid: 0, cause, last_lines: Vec::new() };
        self.carry(Event::NodeDead { node, unsent, obituary });
    }

    pub(super) fn is_dead(&self, node: NodeNumber) -> bool {
        self.dead.contains(&node)
    }

    // ---- the decider ----

    pub(super) fn on_told(&mut self, told: Told) {
        match told {
            Told::SendPeer { to, cover, message } => {
                if self.dead.contains(&to) || to == self.me {
                    journal::log(format_args!("{to} is gone: it is not told {}", message.kind()));
                } else {
                    self.send_peer(to, cover, &message);
                }
            }
            Told::Go { ticket, cover } => self.carry(Event::Go { ticket, cover }),
            Told::Caller { caller, worker, end } => {
                let pair = Pair { caller, worker };
                self.rings.add_caller(pair, end);
                self.carry(Event::Opened { pair });
            }
            Told::Worker { caller, worker, end } => {
                let pair = Pair { caller, worker };
                self.rings.add_worker(pair, end);
                self.carry(Event::Opened { pair });
            }
            Told::RevokeFar { caller, worker, seqs } => {
                self.carry(Event::Revoke { pair: Pair { caller, worker }, seqs });
            }
            Told::CloseFar { caller, worker } => {
                self.carry(Event::Closed { pair: Pair { caller, worker } });
            }
            Told::WorkerGone { caller, worker, obituary } => {
                let pair = Pair { caller, worker };
                self.take(pair, true);
                let unread = self.rings.unread(pair);
                self.carry(Event::WorkerGone { pair, unread, obituary });
            }
            Told::Drain { n } => {
                for pair in self.rings.pairs() {
                    self.take(pair, true);
                }
                self.words.push(Word::Drained { n });
            }
            Told::Row { .. }
            | Told::Verdict { .. }
            | Told::NoVerdict { .. }
            | Told::Leaves { .. }
            | Told::Over => {
                unreachable!("that is about members")
            }
        }
        if cfg!(debug_assertions) {
            self.carry.check();
            self.links.check();
        }
    }
}
