//! The haul's hands: pieces of objects between the stores of two nodes, as orders say (`crates/node/src/carrier/haul.rs`).
//!
//! What lies in a store is short here, however long the object is said to be: each piece says its place, and brings all of it.

use std::collections::{BTreeMap, VecDeque};

use hoplo_base::limits::BULK_CHUNK_BYTES;
use hoplo_base::{NodeNumber, ObjectId};
use hoplo_core::objects::haul;
use hoplo_core::transfer::{Done, Order, Place};
use hoplo_wire::Location;

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
    /// None is empty.
    sending: BTreeMap<NodeNumber, VecDeque<Sending>>,
}

#[derive(Debug)]
struct Receiving {
    from: NodeNumber,
    place: Place,
    written: u64,
    /// Pinned, and folded into what comes.
    operands: Vec<Location>,
}

#[derive(Debug)]
struct Sending {
    ticket: u64,
    place: Place,
    next: u64,
    /// Absent: it is still arriving, and relayed.
    pinned: Option<Location>,
}

impl Hauler {
    pub fn is_idle(&self) -> bool {
        self.orders.is_empty() && self.receiving.is_empty() && self.sending.is_empty()
    }

    /// Nodes for which it has a piece.
    pub fn waiting(&self) -> Vec<NodeNumber> {
        self.sending.keys().copied().filter(|node| self.turn(*node).is_some()).collect()
    }

    /// Up to where all of what comes there is written.
    fn mark(&self, slot: u32) -> Option<u64> {
        self.receiving.values().find(|it| it.place.slot == slot).map(|it| it.written)
    }

    /// Whose turn it is, and how many bytes it may send.
    fn turn(&self, to: NodeNumber) -> Option<(usize, u64)> {
        self.sending.get(&to)?.iter().enumerate().find_map(|(at, sending)| {
            let bytes = self.unsent(sending).min(BULK_CHUNK_BYTES as u64);
            (bytes > 0).then_some((at, bytes))
        })
    }

    fn unsent(&self, sending: &Sending) -> u64 {
        let end = match sending.pinned {
            Some(_) => sending.place.len,
            None => self.mark(sending.place.slot).unwrap_or(0),
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
                    let operands = Vec::new();
                    let receiving = Receiving { from, place, written, operands };
                    hauler.receiving.insert(ticket, receiving);
                }
                Order::Fold { ticket, from, place, written, op: _, operands } => {
                    if self.pins_all(ticket, &operands) {
                        let receiving = Receiving { from, place, written, operands };
                        self.here.carrier.hauler.receiving.insert(ticket, receiving);
                    }
                }
                Order::FoldHere { ticket, place, op: _, source, mut operands } => {
                    // All of it at once.
                    operands.push(source);
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
                Order::Send { to, ticket, location, offset } => {
                    self.sends(to, ticket, location, offset);
                }
                Order::Relay { to, ticket, place, offset: next } => {
                    if hauler.mark(place.slot).is_some() {
                        let sending = Sending { ticket, place, next, pinned: None };
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

    fn sends(&mut self, to: NodeNumber, ticket: u64, location: Location, next: u64) {
        if self.here.memory.pin(location, haul(self.here.number)) {
            let Location { slot, offset, len, .. } = location;
            let (place, pinned) = (Place { slot, offset, len }, Some(location));
            let queue = self.here.carrier.hauler.sending.entry(to).or_default();
            queue.push_back(Sending { ticket, place, next, pinned });
        } else {
            self.count("objects that moved before they were sent");
            let why = "it moved".to_string();
            self.hauled(Done::SendFailed { to, ticket, moved: true, why });
        }
    }

    /// Operands of a fold: else it stops.
    fn pins_all(&mut self, ticket: u64, operands: &[Location]) -> bool {
        let by = haul(self.here.number);
        let pinned = operands.iter().take_while(|it| self.here.memory.pin(**it, by)).count();
        if pinned < operands.len() {
            self.unpins_all(&operands[..pinned]);
            self.count("operands that moved before they were folded");
            let why = "an operand moved".to_string();
            self.hauled(Done::Stopped { ticket, written: 0, why, lost: false });
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
            self.hauled(Done::Stopped { ticket, written, why, lost });
        }
    }

    /// The next piece for that node: ticket, offset, length, content.
    pub fn next_chunk(&mut self, to: NodeNumber) -> Option<Vec<u8>> {
        self.takes_orders();
        let here = &mut *self.here;
        let hauler = &mut here.carrier.hauler;
        let (at, len) = hauler.turn(to)?;
        let queue = hauler.sending.get_mut(&to).expect("somebody has a turn");
        let mut sending = queue.remove(at).expect("it is there");
        let mut chunk = sending.ticket.to_le_bytes().to_vec();
        chunk.extend(sending.next.to_le_bytes());
        chunk.extend(len.to_le_bytes());
        chunk.extend_from_slice(match sending.pinned {
            Some(location) => here.memory.content(location),
            None => &hauler.contents[&sending.place.slot][..],
        });
        sending.next += len;
        if sending.next < sending.place.len {
            queue.push_back(sending);
        } else {
            let ticket = sending.ticket;
            self.unpins(Some(sending));
            self.tidy_sending(to);
            self.hauled(Done::Sent { to, ticket });
        }
        Some(chunk)
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
        receiving.written += len;
        let (place, operands) = (receiving.place, receiving.operands.clone());
        let is_whole = receiving.written == place.len;
        let content = match operands.is_empty() {
            true => chunk[24..].to_vec(),
            false => self.folded(Some(&chunk[24..]), &operands),
        };
        self.here.carrier.hauler.contents.insert(place.slot, content);
        if is_whole {
            self.seals(ticket, place);
        }
    }

    /// HAUL-5: it is pinned for its relays at once.
    fn seals(&mut self, ticket: u64, place: Place) {
        let Place { slot, offset, len } = place;
        let hauler = &mut self.here.carrier.hauler;
        let receiving = hauler.receiving.remove(&ticket);
        let content = hauler.contents.remove(&slot).expect("it came");
        let relays = hauler.take_relays(slot);
        if let Some(receiving) = receiving.filter(|it| !it.operands.is_empty()) {
            self.count("objects that were folded");
            self.unpins_all(&receiving.operands);
        }
        let generation = self.here.memory.seal(slot, offset, content);
        for (to, Sending { ticket, next, .. }) in relays {
            self.sends(to, ticket, Location { slot, generation, offset, len }, next);
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
