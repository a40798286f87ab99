//! The haul's hands: pieces of objects between the stores of two nodes, as orders say (`crates/node/src/carrier/haul.rs`).
//!
//! What lies in a store is short here, however long the object is said to be: each piece says its place, and brings all of it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use hoplo_base::limits::BULK_CHUNK_BYTES;
use hoplo_base::{NodeNumber, ObjectId};
use hoplo_core::collective::{Lap, Turn};
use hoplo_core::objects::haul;
use hoplo_core::transfer::{Done, Order, Place};
use hoplo_wire::layout::Front;
use hoplo_wire::{Location, Rest};

use crate::carrier::Told;
use crate::cluster::Cluster;
use crate::memory::{decode_content, encode_content};

#[derive(Debug, Default)]
pub struct Hauler {
    orders: VecDeque<Order>,
    /// By ticket.
    receiving: BTreeMap<u64, Receiving>,
    /// What came to a slot last.
    contents: BTreeMap<u32, Vec<u8>>,
    /// What a chain folds in a slot, and what came to it, by place.
    folded: BTreeMap<u32, (Option<ObjectId>, Pieces)>,
    /// What came to a slot of which others write parts as well, by place.
    parts: BTreeMap<u32, BTreeMap<u64, Vec<u8>>>,
    /// None is empty.
    sending: BTreeMap<NodeNumber, VecDeque<Sending>>,
}

#[derive(Debug)]
struct Receiving {
    from: NodeNumber,
    place: Place,
    written: u64,
    /// Of a part: its place, and the end of it in its object.
    part: Option<(u64, u64)>,
    /// Pinned, and folded into what comes.
    operands: Vec<Location>,
    ring: Option<Round>,
}

/// How a ring is walked through, and what came so far. A node may still be sending the end of a stripe on when the beginning of it
/// comes round again and is final: so each piece is kept at its place.
#[derive(Debug)]
struct Round {
    walk: Walk,
    pieces: Pieces,
}

/// By where it begins: where it ends, and what all its bytes stand for.
#[derive(Debug, Default)]
struct Pieces(BTreeMap<u64, (u64, Vec<u8>)>);

impl Pieces {
    /// Over what lay there.
    fn put(&mut self, place: Range<u64>, content: Vec<u8>) {
        let under = self.0.range(..place.end).filter(|(_, (end, _))| *end > place.start);
        for start in under.map(|(start, _)| *start).collect::<Vec<_>>() {
            let (end, old) = self.0.remove(&start).expect("it was just there");
            if end > place.end {
                self.0.insert(place.end, (end, old.clone()));
            }
            if start < place.start {
                self.0.insert(start, (place.start, old));
            }
        }
        self.0.insert(place.start, (place.end, content));
    }

    /// Of the byte at this place: where its piece ends, and what it stands for.
    fn at(&self, place: u64) -> Option<(u64, &Vec<u8>)> {
        let (_, (end, content)) = self.0.range(..=place).next_back()?;
        (place < *end).then_some((*end, content))
    }

    /// What all these bytes stand for, if it is the same.
    fn whole(&self, bytes: Range<u64>) -> Option<&Vec<u8>> {
        let Range { start: mut place, end: len } = bytes;
        let mut first = None;
        while place < len {
            let (end, content) = self.at(place)?;
            if *first.get_or_insert(content) != content {
                return None;
            }
            place = end;
        }
        first
    }
}

#[derive(Clone, Debug)]
struct Walk {
    lap: Lap,
    len: u64,
    of: u64,
}

impl Round {
    fn new(at: u32, of: u32, len: u64) -> Self {
        let lap = Lap::new(at, of, len, |at| at).expect("nodes order well");
        let walk = Walk { lap, len, of: u64::from(of) };
        Self { walk, pieces: Pieces::default() }
    }

    /// The next bytes that go, which stand for the same thing: how many.
    fn going(&self, next: u64, bytes: u64) -> u64 {
        let (place, len, is_own) = self.walk.going(next, bytes);
        let piece = self.pieces.at(place).filter(|_| !is_own);
        piece.map_or(len, |(end, _)| len.min(end - place))
    }
}

impl Walk {
    /// The next bytes that go, of one stripe: their place, how many, and whether they are this node's own.
    fn going(&self, next: u64, bytes: u64) -> (u64, u64, bool) {
        let (place, is_own) = self.lap.going(next, bytes);
        let mut ends = (1..=self.of).map(|stripe| self.len * stripe / self.of);
        let end = ends.find(|end| place.start < *end).expect("it is in the object");
        (place.start, place.end.min(end) - place.start, is_own)
    }
}

impl Receiving {
    /// Up to where it may be sent on.
    fn mark(&self) -> u64 {
        self.ring.as_ref().map_or(self.written, |it| it.walk.lap.reach(self.written))
    }

    /// Bytes that come.
    fn len(&self) -> u64 {
        let all = self.part.map_or(self.place.len, |(_, until)| until);
        self.ring.as_ref().map_or(all, |it| it.walk.lap.comes())
    }
}

#[derive(Debug)]
struct Sending {
    ticket: u64,
    place: Place,
    next: u64,
    /// Absent: it is still arriving, and relayed.
    pinned: Option<Location>,
    /// In a ring.
    walk: Option<Walk>,
}

impl Sending {
    /// Bytes that go.
    fn len(&self) -> u64 {
        self.walk.as_ref().map_or(self.place.len, |walk| walk.lap.goes())
    }
}

impl Hauler {
    pub fn is_idle(&self) -> bool {
        self.orders.is_empty() && self.receiving.is_empty() && self.sending.is_empty()
    }

    /// Nodes for which it has a piece.
    pub fn waiting(&self) -> Vec<NodeNumber> {
        self.sending.keys().copied().filter(|node| self.turn(*node).is_some()).collect()
    }

    /// What comes there.
    fn coming(&self, slot: u32) -> Option<&Receiving> {
        self.receiving.values().find(|it| it.place.slot == slot && it.part.is_none())
    }

    /// What came to the parts of a room, by place.
    pub fn take_parts(&mut self, slot: u32) -> BTreeMap<u64, Vec<u8>> {
        self.parts.remove(&slot).unwrap_or_default()
    }

    /// Whose turn it is, and how many bytes it may send.
    fn turn(&self, to: NodeNumber) -> Option<(usize, u64)> {
        self.sending.get(&to)?.iter().enumerate().find_map(|(at, sending)| {
            let bytes = self.unsent(sending).min(BULK_CHUNK_BYTES as u64);
            (bytes > 0).then(|| (at, self.alike(sending, bytes)))
        })
    }

    /// So many of these next bytes stand for the same thing.
    fn alike(&self, sending: &Sending, bytes: u64) -> u64 {
        let Some(walk) = &sending.walk else { return bytes };
        match (sending.pinned, self.coming(sending.place.slot)) {
            (None, Some(Receiving { ring: Some(round), .. })) => round.going(sending.next, bytes),
            _ => walk.going(sending.next, bytes).1,
        }
    }

    fn unsent(&self, sending: &Sending) -> u64 {
        let end = match sending.pinned {
            Some(_) => sending.len(),
            None => self.coming(sending.place.slot).map_or(0, Receiving::mark),
        };
        end.saturating_sub(sending.next)
    }

    fn behind(&self, to: NodeNumber, ticket: u64) -> Option<u64> {
        let sending = self.sending.get(&to)?.iter().find(|sending| sending.ticket == ticket)?;
        Some(self.unsent(sending))
    }

    fn take_relays(&mut self, slot: u32) -> Vec<(NodeNumber, Sending)> {
        let mut taken = Vec::new();
        for (to, queue) in &mut self.sending {
            let is_one = |it: &Sending| it.pinned.is_none() && it.place.slot == slot;
            while let Some(at) = queue.iter().position(is_one) {
                taken.extend(queue.remove(at).map(|sending| (*to, sending)));
            }
        }
        self.sending.retain(|_, queue| !queue.is_empty());
        taken
    }
}

/// Stands for what objects give together: each counts as often as it is folded in.
pub fn sum(objects: impl IntoIterator<Item = ObjectId>) -> ObjectId {
    let mut total = [0u8; 20];
    for object in objects {
        for (byte, more) in total.iter_mut().zip(object.to_bytes()) {
            *byte = byte.wrapping_add(more);
        }
    }
    ObjectId::from_bytes(total)
}

impl Cluster {
    pub fn orders(&mut self, order: Order) {
        if matches!(order, Order::Send { .. }) && self.rng.one_in(3) {
            self.carrier_rests(); // what it is to send may move meanwhile
        }
        self.here.carrier.hauler.orders.push_back(order);
        self.tells_carrier(Told::Haul);
    }

    pub fn takes_orders(&mut self) {
        while let Some(order) = self.here.carrier.hauler.orders.pop_front() {
            self.note(|| format!("  hauler: {order:?}"));
            let hauler = &mut self.here.carrier.hauler;
            match order {
                Order::Receive { ticket, from, place, written } => {
                    let (operands, ring, part) = (Vec::new(), None, None);
                    hauler.folded.remove(&place.slot);
                    let receiving = Receiving { from, place, written, part, operands, ring };
                    hauler.receiving.insert(ticket, receiving);
                }
                Order::ReceivePart { ticket, from, place, at, offset, until } => {
                    let (written, part) = (offset, Some((at, until)));
                    let (operands, ring) = (Vec::new(), None);
                    let receiving = Receiving { from, place, written, part, operands, ring };
                    hauler.receiving.insert(ticket, receiving);
                }
                Order::Fold { ticket, from, place, written, operands, ring, rest, .. } => {
                    let is_chain = ring.is_none();
                    hauler.folded.retain(|slot, _| *slot != place.slot || is_chain);
                    if (!is_chain || self.begins_fold(ticket, place, written, rest.as_ref()))
                        && self.pins_all(ticket, &operands)
                    {
                        let ring = ring.map(|(at, of)| Round::new(at, of, place.len));
                        let part = None;
                        let receiving = Receiving { from, place, written, part, operands, ring };
                        self.here.carrier.hauler.receiving.insert(ticket, receiving);
                    }
                }
                Order::FoldHere { ticket, place, source, mut operands, .. } => {
                    // All of it at once.
                    operands.push(source);
                    hauler.folded.remove(&place.slot);
                    if self.pins_all(ticket, &operands) {
                        let content = self.folded(None, &operands);
                        self.here.carrier.hauler.contents.insert(place.slot, content);
                        self.unpins_all(&operands);
                        self.seals(ticket, place);
                    }
                }
                Order::StopReceive { ticket } => {
                    self.stops_receiving(ticket, "it was told to stop", false)
                }
                Order::Look { ticket } => {
                    if let Some(written) = hauler.receiving.get(&ticket).map(|it| it.written) {
                        self.hauled(Done::Seen { ticket, written });
                    }
                }
                Order::LookBehind { to, ticket } => {
                    if let Some(bytes) = hauler.behind(to, ticket) {
                        self.hauled(Done::Behind { to, ticket, bytes });
                    }
                }
                Order::Send { to, ticket, location, offset, until, made: _ } => {
                    self.sends((to, ticket), location, offset..until, None);
                }
                Order::Relay { to, ticket, place, offset: next } => {
                    if let Some(receiving) = hauler.coming(place.slot) {
                        let walk = receiving.ring.as_ref().map(|ring| ring.walk.clone());
                        let sending = Sending { ticket, place, next, pinned: None, walk };
                        hauler.sending.entry(to).or_default().push_back(sending);
                        self.count("objects that were relayed");
                    } else {
                        let why = "it does not come here now".to_string();
                        self.hauled(Done::SendFailed { to, ticket, moved: true, why });
                    }
                }
                Order::Clear { ticket, slot } => {
                    hauler.take_relays(slot);
                    self.hauled(Done::Cleared { ticket });
                }
                Order::StopSend { to, ticket } => {
                    let sending = hauler.sending.get_mut(&to).and_then(|queue| {
                        let at = queue.iter().position(|sending| sending.ticket == ticket)?;
                        queue.remove(at)
                    });
                    self.unpins(sending);
                    self.tidy_sending(to);
                }
            }
        }
    }

    fn sends(
        &mut self,
        (to, ticket): (NodeNumber, u64),
        location: Location,
        bytes: Range<u64>,
        walk: Option<Walk>,
    ) {
        let next = bytes.start;
        if self.here.memory.pin(location, haul(self.here.number)) {
            let Location { slot, offset, len, .. } = location;
            let len = len.min(bytes.end);
            let (place, pinned) = (Place { slot, offset, len }, Some(location));
            let queue = self.here.carrier.hauler.sending.entry(to).or_default();
            queue.push_back(Sending { ticket, place, next, pinned, walk });
        } else {
            self.count("objects that moved before they were sent");
            let why = "it moved".to_string();
            self.hauled(Done::SendFailed { to, ticket, moved: true, why });
        }
    }

    /// What was made again may differ from what was lost: then it stops.
    fn begins_fold(
        &mut self,
        ticket: u64,
        place: Place,
        written: u64,
        rest: Option<&Rest>,
    ) -> bool {
        if rest.is_some() && self.rng.one_in(4) {
            self.count("members made again that differed");
            let why = "it differs".to_string();
            let done = Done::Stopped { ticket, written, why, lost: false, front: None };
            self.hauled(done);
            return false;
        }
        // Else it goes on, perhaps with others that are folded in. Another one may have the room of one that was given up (seed 110139770).
        let made = self.here.daemon.node.comes_to(place.slot);
        let folded = self.here.carrier.hauler.folded.get(&place.slot);
        let goes_on = |(of, pieces): &(Option<ObjectId>, Pieces)| {
            *of == made && pieces.at(written - 1).is_some_and(|it| it.0 == written)
        };
        let is_new = written == 0 || !folded.is_some_and(goes_on);
        if rest.is_some() {
            self.count("folds of the rest");
        }
        if !is_new {
            self.count("folds that went on from elsewhere");
            return true;
        }
        let pieces = Pieces(BTreeMap::from([(0, (written, Vec::new()))]));
        self.here.carrier.hauler.folded.insert(place.slot, (made, pieces));
        true
    }

    /// Operands of a fold: else it stops.
    fn pins_all(&mut self, ticket: u64, operands: &[Location]) -> bool {
        let by = haul(self.here.number);
        let pinned = operands.iter().take_while(|it| self.here.memory.pin(**it, by)).count();
        if pinned < operands.len() {
            self.unpins_all(&operands[..pinned]);
            self.count("operands that moved before they were folded");
            let why = "an operand moved".to_string();
            let front = None;
            self.hauled(Done::Stopped { ticket, written: 0, why, lost: false, front });
        }
        pinned == operands.len()
    }

    fn unpins_all(&mut self, operands: &[Location]) {
        let by = haul(self.here.number);
        operands.iter().for_each(|operand| self.here.memory.unpin(*operand, by));
    }

    /// What these give together, with what comes.
    fn folded(&self, comes: Option<&[u8]>, operands: &[Location]) -> Vec<u8> {
        let twice = operands.first().filter(|_| self.sabotage_folds_twice());
        let operands = operands.iter().chain(twice);
        let contents = operands.map(|operand| self.here.memory.content(*operand));
        let objects = contents.chain(comes).map(|content| decode_content(content).0);
        encode_content(sum(objects), &[], 0)
    }

    fn unpins(&mut self, sending: Option<Sending>) {
        if let Some(location) = sending.and_then(|sending| sending.pinned) {
            self.here.memory.unpin(location, haul(self.here.number));
        }
    }

    fn tidy_sending(&mut self, to: NodeNumber) {
        let sending = &mut self.here.carrier.hauler.sending;
        if sending.get(&to).is_some_and(VecDeque::is_empty) {
            sending.remove(&to);
        }
    }

    fn stops_receiving(&mut self, ticket: u64, why: &str, lost: bool) {
        if let Some(receiving) = self.here.carrier.hauler.receiving.remove(&ticket) {
            self.count("pulls that stopped");
            let (written, why) = (receiving.written, why.to_string());
            self.unpins_all(&receiving.operands);
            // Of what is no array nobody knows what its front is like.
            let front = (lost && !self.rng.one_in(16)).then(Front::default);
            self.hauled(Done::Stopped { ticket, written, why, lost, front });
        }
    }

    /// The next piece for that node: ticket, offset, length, content.
    pub fn next_chunk(&mut self, to: NodeNumber) -> Option<Vec<u8>> {
        self.takes_orders();
        let hauler = &mut self.here.carrier.hauler;
        let (at, len) = hauler.turn(to)?;
        let queue = hauler.sending.get_mut(&to).expect("somebody has a turn");
        let mut sending = queue.remove(at).expect("it is there");
        let mut chunk = sending.ticket.to_le_bytes().to_vec();
        chunk.extend(sending.next.to_le_bytes());
        chunk.extend(len.to_le_bytes());
        chunk.extend(self.content_of(&sending));
        sending.next += len;
        if sending.next < sending.len() {
            self.here.carrier.hauler.sending.entry(to).or_default().push_back(sending);
        } else {
            let ticket = sending.ticket;
            self.unpins(Some(sending));
            self.tidy_sending(to);
            self.hauled(Done::Sent { to, ticket });
        }
        Some(chunk)
    }

    /// A node to which is relayed what comes there may be slow.
    fn lags_perhaps(&mut self, slot: u32) {
        let relayed = self.here.carrier.hauler.sending.iter().flat_map(|(to, queue)| {
            let relays = queue.iter().filter(|it| it.pinned.is_none() && it.place.slot == slot);
            relays.map(|it| (*to, it.ticket))
        });
        let relayed: Vec<(NodeNumber, u64)> = relayed.collect();
        for (to, ticket) in relayed {
            if self.rng.one_in(4) {
                self.count("relays that lagged");
                self.hauled(Done::Lags { to, ticket });
            }
        }
    }

    /// What its next piece brings.
    fn content_of(&self, sending: &Sending) -> Vec<u8> {
        let hauler = &self.here.carrier.hauler;
        if let Some(location) = sending.pinned {
            return self.here.memory.content(location).to_vec();
        }
        let Some(walk) = &sending.walk else {
            return hauler.contents[&sending.place.slot].clone();
        };
        let receiving = hauler.coming(sending.place.slot).expect("it is relayed");
        match walk.going(sending.next, 1) {
            (_, _, true) => self.folded(None, &receiving.operands),
            (place, ..) => {
                let pieces = &receiving.ring.as_ref().expect("it walks").pieces;
                pieces.at(place).expect("it came").1.clone()
            }
        }
    }

    pub fn chunk_arrives(&mut self, from: NodeNumber, chunk: &[u8]) {
        self.takes_orders();
        if self.sabotage_loses_piece() {
            return;
        }
        let number = |at: usize| {
            let bytes = chunk[8 * at..][..8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        let (ticket, offset, len) = (number(0), number(1), number(2));
        let hauler = &mut self.here.carrier.hauler;
        let Some(receiving) = hauler.receiving.get_mut(&ticket) else {
            return self.count("pieces of pulls that were over");
        };
        if receiving.from != from {
            return;
        }
        if offset != receiving.written {
            return self.stops_receiving(ticket, "a piece is missing", false);
        }
        let before = receiving.written;
        receiving.written += len;
        let slot = receiving.place.slot;
        if let Some((at, until)) = receiving.part {
            assert!(receiving.written <= until, "XFER-14: more comes than was asked for");
            if receiving.written == until {
                hauler.receiving.remove(&ticket);
                hauler.parts.entry(slot).or_default().insert(at, chunk[24..].to_vec());
                self.hauled(Done::PartCame { ticket });
            }
            return;
        }
        self.lags_perhaps(slot);
        let hauler = &mut self.here.carrier.hauler;
        let receiving = hauler.receiving.get_mut(&ticket).expect("it was just there");
        let (place, operands) = (receiving.place, receiving.operands.clone());
        let is_whole = receiving.written == receiving.len();
        let walk = receiving.ring.as_ref().map(|ring| ring.walk.clone());
        let turn = walk.as_ref().and_then(|walk| walk.lap.coming(before, before + len).next());
        let comes = &chunk[24..];
        let content = match (operands.is_empty(), &turn) {
            (true, _) | (_, Some((Turn::Keep, _))) => comes.to_vec(),
            (false, _) => self.folded(Some(comes), &operands),
        };
        let hauler = &mut self.here.carrier.hauler;
        if let (Some(walk), Some((_, at))) = (walk, turn) {
            let receiving = hauler.receiving.get_mut(&ticket).expect("it was just there");
            let pieces = &mut receiving.ring.as_mut().expect("it walks").pieces;
            pieces.put(at, content.clone());
            assert!(!is_whole || pieces.whole(0..walk.len) == Some(&content), "COLL-1: {pieces:?}");
        }
        if let Some((_, pieces)) = hauler.folded.get_mut(&slot) {
            pieces.put(before..before + len, content.clone());
        }
        let folds = hauler.folded.contains_key(&slot);
        hauler.contents.insert(place.slot, content);
        if is_whole {
            self.seals(ticket, place);
        } else if folds {
            self.is_folded_into(from);
        }
    }

    /// HAUL-5: it is pinned for its relays at once.
    fn seals(&mut self, ticket: u64, place: Place) {
        let Place { slot, offset, len } = place;
        let hauler = &mut self.here.carrier.hauler;
        let receiving = hauler.receiving.remove(&ticket);
        let content = hauler.contents.remove(&slot).expect("it came");
        if let Some((_, pieces)) = hauler.folded.remove(&slot) {
            // What is in front of a rest never came.
            let front = pieces.at(0).filter(|(_, content)| content.is_empty());
            let first = front.map_or(0, |(end, _)| end);
            assert_eq!(pieces.whole(first..len), Some(&content), "COLL-1: {pieces:?}");
        }
        let relays = hauler.take_relays(slot);
        if let Some(receiving) = receiving.filter(|it| !it.operands.is_empty()) {
            self.count(match receiving.ring {
                None => "objects that were folded",
                Some(_) => "objects that were folded in rings",
            });
            self.unpins_all(&receiving.operands);
        }
        let generation = self.here.memory.seal(slot, offset, content);
        for (to, Sending { ticket, next, walk, .. }) in relays {
            let location = Location { slot, generation, offset, len };
            self.sends((to, ticket), location, next..u64::MAX, walk);
        }
        self.count("objects that were pulled");
        self.hauled(Done::Received { ticket, generation });
    }

    /// Nothing comes from that node, or goes there.
    pub fn haul_lost(&mut self, node: NodeNumber) {
        self.takes_orders();
        let why = format!("the link with {node} was lost");
        let receiving = &self.here.carrier.hauler.receiving;
        let from_it = receiving.iter().filter(|(_, receiving)| receiving.from == node);
        for ticket in from_it.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            self.stops_receiving(ticket, &why, true);
        }
        for sending in self.here.carrier.hauler.sending.remove(&node).into_iter().flatten() {
            let (ticket, why) = (sending.ticket, why.clone());
            self.unpins(Some(sending));
            self.hauled(Done::SendFailed { to: node, ticket, moved: false, why });
        }
    }
}
