//! The haul's hands: pieces of objects between the stores of two nodes, as orders say (`crates/node/src/carrier/haul.rs`).
//!
//! What lies in a store is short here, however long the object is said to be: each piece says its place, and brings all of it.

use std::collections::{BTreeMap, VecDeque};

use hoplo_base::NodeNumber;
use hoplo_base::limits::BULK_CHUNK_BYTES;
use hoplo_core::objects::haul;
use hoplo_core::transfer::{Done, Order, Place};
use hoplo_wire::Location;

use crate::carrier::Told;
use crate::cluster::Cluster;

#[derive(Debug, Default)]
pub struct Hauler {
    orders: VecDeque<Order>,
    /// By ticket.
    receiving: BTreeMap<u64, Receiving>,
    sending: BTreeMap<NodeNumber, VecDeque<Sending>>,
}

#[derive(Debug)]
struct Receiving {
    from: NodeNumber,
    place: Place,
    written: u64,
}

/// It is pinned.
#[derive(Debug)]
struct Sending {
    ticket: u64,
    location: Location,
    next: u64,
}

impl Hauler {
    pub fn is_idle(&self) -> bool {
        self.orders.is_empty() && self.receiving.is_empty() && self.sending.is_empty()
    }

    pub fn waiting(&self) -> Vec<NodeNumber> {
        self.sending.keys().copied().collect()
    }
}

impl Cluster {
    pub fn orders(&mut self, order: Order) {
        self.here.carrier.hauler.orders.push_back(order);
        self.tells_carrier(Told::Haul);
    }

    pub fn takes_orders(&mut self) {
        while let Some(order) = self.here.carrier.hauler.orders.pop_front() {
            self.note(|| format!("  hauler: {order:?}"));
            let hauler = &mut self.here.carrier.hauler;
            match order {
                Order::Receive { ticket, from, place, written } => {
                    hauler.receiving.insert(ticket, Receiving { from, place, written });
                }
                Order::StopReceive { ticket } => {
                    self.stops_receiving(ticket, "it was told to stop")
                }
                Order::Send { to, ticket, location, offset: next } => {
                    if self.here.memory.pin(location, haul(self.here.number)) {
                        let queue = self.here.carrier.hauler.sending.entry(to).or_default();
                        queue.push_back(Sending { ticket, location, next });
                    } else {
                        self.count("objects that moved before they were sent");
                        let why = "it moved".to_string();
                        self.hauled(Done::SendFailed { to, ticket, moved: true, why });
                    }
                }
                Order::StopSend { to, ticket } => {
                    let queue = hauler.sending.get_mut(&to);
                    let at = queue.and_then(|queue| {
                        let at = queue.iter().position(|sending| sending.ticket == ticket)?;
                        queue.remove(at)
                    });
                    if let Some(sending) = at {
                        self.here.memory.unpin(sending.location, haul(self.here.number));
                    }
                    self.tidy_sending(to);
                }
            }
        }
    }

    fn tidy_sending(&mut self, to: NodeNumber) {
        let sending = &mut self.here.carrier.hauler.sending;
        if sending.get(&to).is_some_and(VecDeque::is_empty) {
            sending.remove(&to);
        }
    }

    fn stops_receiving(&mut self, ticket: u64, why: &str) {
        if let Some(receiving) = self.here.carrier.hauler.receiving.remove(&ticket) {
            self.count("pulls that stopped");
            let (written, why) = (receiving.written, why.to_string());
            self.hauled(Done::Stopped { ticket, written, why });
        }
    }

    /// The next piece for that node: ticket, offset, length, content.
    pub fn next_chunk(&mut self, to: NodeNumber) -> Option<Vec<u8>> {
        self.takes_orders();
        let here = &mut *self.here;
        let queue = here.carrier.hauler.sending.get_mut(&to)?;
        let mut sending = queue.pop_front().expect("no queue is empty");
        let len = (sending.location.len - sending.next).min(BULK_CHUNK_BYTES as u64);
        let mut chunk = sending.ticket.to_le_bytes().to_vec();
        chunk.extend(sending.next.to_le_bytes());
        chunk.extend(len.to_le_bytes());
        chunk.extend_from_slice(here.memory.content(sending.location));
        sending.next += len;
        if sending.next < sending.location.len {
            queue.push_back(sending);
        } else {
            here.memory.unpin(sending.location, haul(here.number));
            self.tidy_sending(to);
            self.hauled(Done::Sent { to, ticket: sending.ticket });
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
        let here = &mut *self.here;
        let Some(receiving) = here.carrier.hauler.receiving.get_mut(&ticket) else {
            return self.count("pieces of pulls that were over");
        };
        if receiving.from != from {
            return;
        }
        if offset != receiving.written {
            return self.stops_receiving(ticket, "a piece is missing");
        }
        receiving.written += len;
        let Place { slot, offset, len } = receiving.place;
        if receiving.written == len {
            here.carrier.hauler.receiving.remove(&ticket);
            let generation = here.memory.seal(slot, offset, chunk[24..].to_vec());
            self.count("objects that were pulled");
            self.hauled(Done::Received { ticket, generation });
        }
    }

    /// Nothing comes from that node, or goes there.
    pub fn haul_lost(&mut self, node: NodeNumber) {
        self.takes_orders();
        let why = format!("the link with {node} was lost");
        let receiving = &self.here.carrier.hauler.receiving;
        let from_it = receiving.iter().filter(|(_, receiving)| receiving.from == node);
        for ticket in from_it.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            self.stops_receiving(ticket, &why);
        }
        for sending in self.here.carrier.hauler.sending.remove(&node).into_iter().flatten() {
            self.here.memory.unpin(sending.location, haul(self.here.number));
            let (ticket, why) = (sending.ticket, why.clone());
            self.hauled(Done::SendFailed { to: node, ticket, moved: false, why });
        }
    }
}
