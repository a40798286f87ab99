//! The carrier of a node: rings at one side, connections at the other, and the real machines of links and calls between them.
//!
//! It is the real shell (`crates/node/src/carrier`) in a model: the decider *tells* it things, it has *words* for the decider, and both
//! take what the other left at steps of their own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use hoplo_base::{Instant, NodeNumber, ProcessId};
use hoplo_core::carry::{self, Carry, Item, Outbox, Pair, calls_in};
use hoplo_core::control::{NodeEntry, NodeState};
use hoplo_core::link::{self, Connection, Links, SendError, Socket};
use hoplo_core::node::Passing;
use hoplo_core::transfer::Uplink;
use hoplo_wire::node::{DeathCause, Obituary, decode};
use hoplo_wire::peer::Peer;
use hoplo_wire::reply::ReplyView;

use crate::cluster::{Cluster, Step};
use crate::faults::Plan;
use crate::haul::Hauler;
use crate::network::Call;

type Frame = Arc<Vec<u8>>;

pub struct Carrier {
    pub carry: Carry,
    links: Links<Frame>,
    /// Which connection is which.
    pub connections: BTreeMap<Connection, u64>,
    /// So many were dialled by others.
    pub accepted: u64,
    /// Ends of rings that are its own.
    rings: BTreeSet<Pair>,
    boxes: BTreeMap<NodeNumber, Outbox>,
    /// Messages of deciders that did not come whole.
    unfinished: BTreeMap<NodeNumber, Vec<u8>>,
    /// Nodes whose rows came.
    pub known: BTreeSet<NodeNumber>,
    dead: BTreeSet<NodeNumber>,
    pub hauler: Hauler,
    uplink: Uplink,
    /// Pieces of objects that found no room.
    chunks: BTreeMap<NodeNumber, Frame>,
    link_effects: VecDeque<link::Effect<Frame>>,
    /// Calls of links that ended, until their end is carried out.
    unsent: BTreeMap<NodeNumber, Vec<(Pair, u64)>>,
    /// From the decider, and to it.
    told: VecDeque<Told>,
    pub words: VecDeque<Word>,
    turns: bool,
    /// Nothing happens there before.
    pub rests_until: Instant,
    pub hears: bool,
    tick_at: Option<Instant>,
}

/// From the deciding thread.
#[derive(Debug)]
pub enum Told {
    Row {
        entry: Box<NodeEntry>,
        index: u64,
    },
    SendPeer {
        to: NodeNumber,
        cover: u64,
        message: Box<Peer>,
    },
    Go {
        ticket: u64,
        cover: u64,
    },
    /// There is a channel of this pair here.
    Opened {
        pair: Pair,
    },
    Revoke {
        pair: Pair,
        seqs: Vec<u64>,
    },
    Close {
        pair: Pair,
    },
    WorkerGone {
        pair: Pair,
        obituary: Obituary,
    },
    /// Take all that lies in rings: answered by `Drained`.
    Drain {
        n: u64,
    },
    /// The hauler has orders.
    Haul,
}

/// To the deciding thread.
#[derive(Debug)]
pub enum Word {
    Peer { from: NodeNumber, cover: u64, message: Box<Peer> },
    Member { entry: Box<NodeEntry>, index: u64 },
    Passing { ticket: u64, frame: Passing },
    Ended { pair: Pair, unstarted: Vec<u64>, obituary: Obituary },
    Revoked { pair: Pair, seqs: Vec<u64>, kept: Vec<u64> },
    Drained { n: u64 },
    Hauled(hoplo_core::transfer::Done),
}

/// A thread wakes up within this time.
const WAKES: Duration = Duration::from_micros(60);
/// At times its thread does not run for so long.
const RESTS: Duration = Duration::from_millis(20);
/// When a process does not empty its ring.
const RING_ROOM_LOOK: Duration = Duration::from_micros(200);
/// Pieces of objects that it gives away before it looks at anything else.
const HAULS_A_TURN: usize = 8;

impl Carrier {
    pub fn new(me: NodeNumber, plan: &Plan) -> Self {
        let mut options = link::Options::new(me, link::Token(u64::from(me.number()) << 32));
        options.bulk_window_bytes = plan.bulk_window_bytes;
        Self {
            carry: Carry::new(me),
            links: Links::new(options),
            connections: BTreeMap::new(),
            accepted: 0,
            rings: BTreeSet::new(),
            boxes: BTreeMap::new(),
            unfinished: BTreeMap::new(),
            known: BTreeSet::new(),
            dead: BTreeSet::new(),
            hauler: Hauler::default(),
            uplink: Uplink::new(me),
            chunks: BTreeMap::new(),
            link_effects: VecDeque::new(),
            unsent: BTreeMap::new(),
            told: VecDeque::new(),
            words: VecDeque::new(),
            turns: false,
            rests_until: Instant::ZERO,
            hears: false,
            tick_at: None,
        }
    }

    pub fn check(&self) {
        self.carry.check();
        self.links.check();
    }

    /// Nothing is under way, and no pair is left.
    pub fn is_idle(&self) -> bool {
        let unsaid = self.told.is_empty() && self.words.is_empty();
        unsaid && self.carry.is_empty() && self.rings.is_empty() && self.hauler.is_idle()
    }

    /// Something is on its way to another node that lives, or to the decider.
    pub fn is_busy(&self) -> bool {
        let peers = self.known.difference(&self.dead);
        let mut sockets = peers.flat_map(|peer| Socket::ALL.map(|socket| (*peer, socket)));
        !self.told.is_empty()
            || !self.words.is_empty()
            || !self.hauler.is_idle()
            || sockets.any(|(peer, socket)| self.links.held_bytes(peer, socket) > 0)
    }

    pub fn whats_up(&self) -> String {
        let (told, words, turns) = (&self.told, &self.words, self.turns);
        let pairs = self.carry.len();
        let mut text =
            format!("  carrier: {pairs} pairs, told {told:?}, words {words:?}, turns: {turns}\n");
        for peer in &self.known {
            text += &format!("    {}\n", self.links.explain(*peer));
        }
        text
    }
}

impl Cluster {
    // ---- the decider's side ----

    pub fn tells_carrier(&mut self, told: Told) {
        self.here.carrier.told.push_back(told);
        self.rings_carrier();
    }

    /// Somebody rings: it looks, soon.
    pub fn rings_carrier(&mut self) {
        if !std::mem::replace(&mut self.here.carrier.turns, true) {
            let delay = self.rng.delay(WAKES.max(self.plan.tardiness / 8));
            self.after(delay, Step::CarrierTurns);
        }
    }

    /// Its thread does not run for a while.
    pub fn carrier_rests(&mut self) {
        let time = Duration::from_nanos(self.rng.below(RESTS.as_nanos() as u64));
        self.here.carrier.rests_until = self.now + time;
    }

    /// Of a connection of the carrier there.
    pub fn socket_has_room(&mut self, node: NodeNumber) {
        let waits = !self.host(node).carrier.hauler.waiting().is_empty();
        if waits && !std::mem::replace(&mut self.host_mut(node).carrier.turns, true) {
            let delay = self.rng.delay(WAKES);
            self.at_node(node, self.now + delay, Step::CarrierTurns);
        }
    }

    fn word(&mut self, word: Word) {
        self.here.carrier.words.push_back(word);
        self.hears_again();
    }

    /// The decider takes what words there are, soon.
    pub fn hears_again(&mut self) {
        let any = !self.here.carrier.words.is_empty();
        if any && !std::mem::replace(&mut self.here.carrier.hears, true) {
            let delay = self.rng.delay(WAKES.max(self.plan.tardiness / 8));
            self.after(delay, Step::DaemonHears);
        }
    }

    // ---- its turn ----

    pub fn carrier_turns(&mut self) {
        self.here.carrier.turns = false;
        if self.rng.one_in(32) {
            self.carrier_rests();
        }
        while let Some(told) = self.here.carrier.told.pop_front() {
            self.carrier_hears(told);
        }
        self.turns_rings();
        self.flushes();
        if self.has_work() {
            self.rings_carrier();
        }
    }

    /// A frame lies there that may be taken: what waited for its link was in the way, and has left (`has_work` in
    /// `crates/node/src/carrier/calls.rs`).
    fn has_work(&self) -> bool {
        let carrier = &self.here.carrier;
        carrier.rings.iter().any(|pair| {
            let channel = self.here.channels.get(&(pair.caller, pair.worker));
            let lies = channel.is_some_and(|channel| match self.is_near(*pair) {
                true => !channel.calls.is_empty(),
                false => !channel.replies.is_empty(),
            });
            lies && carrier.carry.takes(*pair) && !self.is_stuck(*pair)
        })
    }

    /// Its link takes no more: room is told.
    fn is_stuck(&self, pair: Pair) -> bool {
        let other = if self.is_near(pair) { pair.worker.node() } else { pair.caller.node() };
        self.here.carrier.boxes.get(&other).is_some_and(Outbox::is_full)
    }

    pub fn carrier_ticks(&mut self) {
        self.here.carrier.tick_at = None;
        self.hears_link(link::Event::Tick);
    }

    /// Something of a connection, or of the members.
    pub fn hears_link(&mut self, event: link::Event<Frame>) {
        let mut effects = Vec::new();
        self.here.carrier.links.handle(self.now, event, &mut effects);
        self.here.carrier.link_effects.extend(effects);
        self.links_act();
        self.flushes();
    }

    fn carrier_hears(&mut self, told: Told) {
        match told {
            Told::Row { entry, index } => {
                if !entry.address.is_empty() {
                    self.here.carrier.known.insert(entry.node);
                }
                self.ends_if_dead(&entry);
                self.word(Word::Member { entry, index });
            }
            Told::SendPeer { to, cover, message } => {
                let carrier = &mut self.here.carrier;
                if !carrier.dead.contains(&to) {
                    carrier.boxes.entry(to).or_default().push_peer(cover, &message);
                }
            }
            Told::Go { ticket, cover } => self.carry(carry::Event::Go { ticket, cover }),
            Told::Opened { pair } => {
                self.here.carrier.rings.insert(pair);
                self.carry(carry::Event::Opened { pair });
            }
            Told::Revoke { pair, seqs } => self.carry(carry::Event::Revoke { pair, seqs }),
            Told::Close { pair } => self.carry(carry::Event::Closed { pair }),
            Told::WorkerGone { pair, obituary } => {
                self.takes(pair, true);
                let channel = self.here.channels.get(&(pair.caller, pair.worker));
                let calls = channel.map(|it| it.calls.iter().map(|call| call.seq).collect());
                let unread = calls.unwrap_or_default();
                self.carry(carry::Event::WorkerGone { pair, unread, obituary });
            }
            Told::Drain { n } => {
                for pair in self.here.carrier.rings.clone() {
                    self.takes(pair, true);
                }
                self.word(Word::Drained { n });
            }
            Told::Haul => {}
        }
    }

    fn ends_if_dead(&mut self, entry: &NodeEntry) {
        let why = match &entry.state {
            NodeState::Dead { why, .. } | NodeState::Settled { why, .. } => why,
            NodeState::Alive | NodeState::Draining => return,
        };
        let number = entry.node;
        if number == self.here.number || self.here.carrier.dead.contains(&number) {
            return;
        }
        let reason = format!("{number} died: {why}");
        self.hears_link(link::Event::Dead { number });
        self.ends_node(number, reason);
    }

    /// Of that node nothing comes any more.
    fn ends_node(&mut self, node: NodeNumber, reason: String) {
        let pairs = self.here.carrier.rings.iter().filter(|pair| pair.worker.node() == node);
        for pair in pairs.copied().collect::<Vec<_>>() {
            self.puts(pair);
        }
        let carrier = &mut self.here.carrier;
        let mut unsent = carrier.unsent.remove(&node).unwrap_or_default();
        let frames = carrier.boxes.remove(&node).map(Outbox::into_frames).unwrap_or_default();
        unsent.extend(frames.iter().flat_map(calls_in));
        carrier.unfinished.remove(&node);
        carrier.chunks.remove(&node);
        carrier.dead.insert(node);
        self.haul_lost(node);
        let cause = DeathCause::Lost { reason };
        let obituary = Obituary { pid: 0, cause, last_lines: Vec::new() };
        self.carry(carry::Event::NodeDead { node, unsent, obituary });
    }

    // ---- rings ----

    fn turns_rings(&mut self) {
        for pair in self.here.carrier.rings.clone() {
            self.takes(pair, false);
            self.puts(pair);
        }
    }

    fn is_near(&self, pair: Pair) -> bool {
        pair.caller.node() == self.here.number
    }

    /// Takes frames out of the ring of this node's process: as credit goes, or `all`.
    fn takes(&mut self, pair: Pair, all: bool) {
        if !self.here.carrier.rings.contains(&pair) {
            return;
        }
        if !all && self.is_stuck(pair) {
            return;
        }
        let near = self.is_near(pair);
        let mut effects = Vec::new();
        let here = &mut *self.here;
        let Some(channel) = here.channels.get_mut(&(pair.caller, pair.worker)) else { return };
        let carry = &mut here.carrier.carry;
        while all || carry.takes(pair) {
            let took = if near {
                let Some(call) = channel.take() else { break };
                carry.took_call(pair, call.seq, &call.bytes, &mut effects)
            } else {
                let Some(bytes) = channel.replies.pop_front() else { break };
                let reply = ReplyView::parse(&bytes).expect("workers here write well");
                let tag = reply.header.seq;
                carry.took_reply(pair, tag, bytes, &mut effects)
            };
            took.expect("processes here write well");
        }
        self.carry_acts(effects);
    }

    /// Writes what came for this node's process.
    fn puts(&mut self, pair: Pair) {
        let near = self.is_near(pair);
        let mut effects = Vec::new();
        let (mut wrote, mut full) = (false, false);
        let (depth, here) = (self.plan.ring_depth, &mut *self.here);
        let carry = &mut here.carrier.carry;
        while let Some((seq, bytes)) = carry.front(pair) {
            let bytes = bytes.to_vec();
            if let Some(channel) = here.channels.get_mut(&(pair.caller, pair.worker)) {
                full = !near && channel.calls.len() >= depth;
                if full {
                    break;
                }
                wrote = true;
                match near {
                    true => channel.replies.push_back(bytes),
                    false => channel.calls.push_back(Call { seq, bytes }),
                }
            }
            carry.written(pair, &mut effects);
        }
        if full {
            self.count("rings of far callers that were full");
            if !std::mem::replace(&mut self.here.carrier.turns, true) {
                self.after(RING_ROOM_LOOK, Step::CarrierTurns);
            }
        }
        if wrote {
            match near {
                true => self.arm(pair.caller),
                false => self.wake(pair.worker),
            }
        }
        self.carry_acts(effects);
    }

    // ---- the machine of calls ----

    fn carry(&mut self, event: carry::Event) {
        let mut effects = Vec::new();
        self.here.carrier.carry.handle(event, &mut effects);
        self.carry_acts(effects);
    }

    fn carry_acts(&mut self, effects: Vec<carry::Effect>) {
        for effect in effects {
            match effect {
                carry::Effect::Send { to, item } => {
                    let carrier = &mut self.here.carrier;
                    if !carrier.dead.contains(&to) {
                        self.notes_item(&item);
                        self.here.carrier.boxes.entry(to).or_default().push(&item);
                    }
                }
                carry::Effect::Pass { ticket, frame } => self.word(Word::Passing { ticket, frame }),
                carry::Effect::Look { .. } => self.rings_carrier(),
                carry::Effect::TakeBack { pair, seqs, mut revoked } => {
                    let mut kept = Vec::new();
                    let mut channel = self.here.channels.get_mut(&(pair.caller, pair.worker));
                    // From the back, so that nothing is started out of order meanwhile.
                    for seq in seqs.into_iter().rev() {
                        let back = channel.as_mut().is_some_and(|channel| channel.revoke(seq));
                        if back { revoked.push(seq) } else { kept.push(seq) }
                    }
                    kept.reverse();
                    self.carry(carry::Event::TakenBack { pair, seqs: revoked, kept });
                }
                carry::Effect::Revoked { pair, seqs, kept } => {
                    self.word(Word::Revoked { pair, seqs, kept });
                }
                carry::Effect::Ended { pair, unstarted, obituary } => {
                    self.word(Word::Ended { pair, unstarted, obituary });
                }
                carry::Effect::Drop { pair } => {
                    self.here.carrier.rings.remove(&pair);
                }
                carry::Effect::Nonsense { from, what } => panic!("{from} says nonsense: {what}"),
            }
        }
    }

    fn notes_item(&mut self, item: &Item) {
        match item {
            Item::Stray { .. } => self.count("frames that went astray"),
            Item::Gone { .. } => self.count("ends of far workers"),
            Item::Call(_) => self.count("far calls"),
            Item::Reply(frame) if frame.names() => self.count("far replies through the decider"),
            Item::Reply(_)
            | Item::Credit { .. }
            | Item::Revoke { .. }
            | Item::Revoked { .. }
            | Item::Closed { .. }
            | Item::Peer { .. } => {}
        }
    }

    // ---- links ----

    /// Gives the links what they take.
    fn flushes(&mut self) {
        self.takes_orders();
        let nodes: Vec<NodeNumber> = self.here.carrier.boxes.keys().copied().collect();
        for node in nodes {
            self.flushes_to(node);
        }
        self.links_act();
        self.hauls();
        let carrier = &mut self.here.carrier;
        if let Some(at) = carrier.links.next_deadline()
            && carrier.tick_at.is_none_or(|set| at < set)
        {
            carrier.tick_at = Some(at);
            self.at(at, Step::CarrierTicks);
        }
    }

    fn flushes_to(&mut self, node: NodeNumber) {
        let (now, carrier) = (self.now, &mut self.here.carrier);
        let Some(outbox) = carrier.boxes.get_mut(&node) else { return };
        outbox.close_pack();
        let mut effects = Vec::new();
        while let Some(frame) = outbox.pop() {
            match carrier.links.send(now, node, Socket::Talk, frame, &mut effects) {
                Ok(()) | Err(SendError::Dead(_)) => {}
                Err(SendError::Full(frame)) => {
                    outbox.put_back(frame);
                    break;
                }
                Err(SendError::TooLong(frame)) => panic!("a frame of {} bytes", frame.len()),
            }
        }
        carrier.link_effects.extend(effects);
    }

    /// One piece after the other while sockets take them.
    fn hauls(&mut self) {
        for _ in 0..HAULS_A_TURN {
            if !self.hauls_a_piece() {
                return;
            }
            self.links_act();
        }
        self.rings_carrier();
    }

    /// For the node whose turn it is, if there is one (`haul` in `crates/node/src/carrier/calls.rs`).
    fn hauls_a_piece(&mut self) -> bool {
        let carrier = &self.here.carrier;
        // Who has one that found no room waits for some.
        let waiting = carrier.hauler.waiting().into_iter();
        let waiting = waiting.filter(|node| !carrier.chunks.contains_key(node));
        let unsent = |node| match carrier.links.connection(node, Socket::Bulk) {
            Some(connection) => self.unsent_bytes(connection),
            None => carrier.links.held_bytes(node, Socket::Bulk),
        };
        let wanting: Vec<_> = waiting.map(|node| (node, unsent(node))).collect();
        if wanting.iter().any(|(_, unsent)| *unsent > 0) {
            self.count("nodes whose sockets took no piece");
        }
        let Some(node) = self.here.carrier.uplink.next(wanting) else { return false };
        if let Some(chunk) = self.next_chunk(node) {
            self.sends_piece(node, Arc::new(chunk));
        }
        true
    }

    fn sends_piece(&mut self, node: NodeNumber, chunk: Frame) {
        let (now, carrier) = (self.now, &mut self.here.carrier);
        let mut effects = Vec::new();
        let sent = carrier.links.send(now, node, Socket::Bulk, chunk, &mut effects);
        carrier.link_effects.extend(effects);
        match sent {
            Ok(()) => self.count("pieces of objects"),
            Err(SendError::Full(chunk)) => {
                self.here.carrier.chunks.insert(node, chunk);
                self.count("pieces of objects that waited for room");
            }
            Err(SendError::Dead(_)) => self.haul_lost(node),
            Err(SendError::TooLong(_)) => panic!("a piece is bounded"),
        }
    }

    fn links_act(&mut self) {
        while let Some(effect) = self.here.carrier.link_effects.pop_front() {
            match effect {
                link::Effect::Dial { connection, peer, socket } => {
                    self.dials(connection, peer, socket);
                }
                link::Effect::Write { connection, message } => self.writes(connection, message),
                link::Effect::Close { connection } => self.hangs_up(connection),
                link::Effect::Deliver { peer, socket: Socket::Talk, frame } => {
                    self.delivered(peer, &frame);
                }
                link::Effect::Deliver { peer, socket: Socket::Bulk, frame } => {
                    self.chunk_arrives(peer, &frame);
                }
                link::Effect::Room { peer, socket: Socket::Talk } => {
                    self.flushes_to(peer);
                    self.rings_carrier();
                }
                link::Effect::Room { peer, socket: Socket::Bulk } => {
                    if let Some(chunk) = self.here.carrier.chunks.remove(&peer) {
                        self.sends_piece(peer, chunk);
                    }
                    self.rings_carrier();
                }
                link::Effect::Lost { peer, why, talk, bulk: _ } => {
                    assert_eq!(why, link::LostWhy::Dead, "no carrier here forgets a link");
                    let calls = talk.never_sent.iter().flat_map(calls_in);
                    self.here.carrier.unsent.entry(peer).or_default().extend(calls);
                }
                link::Effect::Trouble { peer, what } => match what {
                    link::Trouble::Broken | link::Trouble::Refused | link::Trouble::Silent => {
                        self.count("troubles with links");
                    }
                    link::Trouble::AnotherLife { .. }
                    | link::Trouble::Version { .. }
                    | link::Trouble::Nonsense(_) => panic!("the link with {peer}: {what:?}"),
                },
                link::Effect::Fenced { .. } | link::Effect::Behind { .. } => {}
            }
        }
    }

    /// Nobody knows where that node is.
    pub fn closed_at_once(&mut self, connection: Connection) {
        let mut effects = Vec::new();
        let closed = link::Event::Closed { connection, how: link::End::Broken };
        self.here.carrier.links.handle(self.now, closed, &mut effects);
        self.here.carrier.link_effects.extend(effects);
    }

    fn delivered(&mut self, from: NodeNumber, frame: &Frame) {
        let mut items = Vec::new();
        Item::parse_all(frame, &mut items).expect("carriers here write well");
        for item in items {
            match item {
                Item::Peer { cover, more, bytes } => {
                    let unfinished = self.here.carrier.unfinished.entry(from).or_default();
                    unfinished.extend_from_slice(&bytes);
                    if !more {
                        let whole = std::mem::take(unfinished);
                        let message = decode::<Peer>(&whole).expect("deciders here write well");
                        self.word(Word::Peer { from, cover, message: Box::new(message) });
                    }
                }
                item => self.carry(carry::Event::Arrived { from, item }),
            }
        }
    }

    pub fn hauled(&mut self, done: hoplo_core::transfer::Done) {
        self.word(Word::Hauled(done));
    }

    /// A process here has a ring to or from another node.
    pub fn is_far(&self, process: ProcessId) -> bool {
        process.node() != self.here.number
    }
}
