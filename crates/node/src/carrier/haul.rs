//! The haul's hands: moves bytes between the store of this node and the bulk socket.
//!
//! ```text
//!   deciding thread  Haul --Order--> Hauler  carrier's thread: writes what arrives, pins and sends what is asked for
//!                      ^-----Done------'
//! ```
//! What is to move, and where, `hoplo_core::transfer` decides on the deciding thread. Here bytes are copied to their place as they were opened. What
//! is sent is lent to its link where it lies: TLS takes it from there, and takes it again if it has to be sent again.
//!
//! # Invariants
//! - HAUL-1: an order to receive is answered once, and after that nothing is written there.
//! - HAUL-2: what is sent is pinned, in the row of slot 0, until the other node has acknowledged its last byte, or its link is lost. Views
//!   of it end before the pin. What was folded is copied for its link, and pinned until its last piece is taken, and no longer: a process may get it
//!   as soon as it is sent, and seals another object in that slot.
//! - HAUL-3: bytes of an attempt are written in order, each once, from its own source, and never beyond its object. A byte counts when it
//!   has landed, also if the rest of its piece never comes: what is sent again is the same, and is passed over.
//! - HAUL-4: of several objects for one node a chunk of each is sent in turn, of those that have one.
//! - HAUL-5: what is still arriving is relayed below its mark only. When it is whole, it is sealed and pinned for its relays at once, so
//!   nobody frees it in between.
//! - HAUL-6: of what is folded (`folding`) a byte counts when it is folded, and is folded once. Operands are pinned until the last byte is
//!   folded.
//! - HAUL-7: in a ring bytes are counted as they come and go (`Lap`), and not by their places. A byte goes as it was when it counted, before the final one
//!   comes to its place.
//! - HAUL-8: a part is written to its place in a room that others are written to as well, and nothing of it is relayed. Who ordered it knows when the room is whole.
//!
//! *Why a byte counts before its piece is whole:* it is relayed at once. Of 16 nodes in a chain each held what it relayed for as long as a piece of 256 KiB
//! needs on its link, 10 ms at 200 Mbit/s: a broadcast of 1 MB took 3.5 times as long as one link needs for it.

mod folding;
mod lent;
mod pace;
mod receiving;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, mem};

use hoplo_base::NodeNumber;
use hoplo_base::limits::BULK_CHUNK_BYTES;
use hoplo_core::collective::Lap;
use hoplo_core::transfer::{Done, Order, Place};
use hoplo_net::Lent;
use hoplo_net::poll::Bell;
use hoplo_shm::{Arena, Generation, Kept, PinError, PinTable, ProcessSlot, Segment, SpillFile};
use hoplo_wire::{Location, Rest};

use super::bulk::{Begun, Bulk, Landed, Piece};
use folding::{Folding, How};
use lent::{Lies, Pinned, Unpinned};
use pace::Pace;
use receiving::{Receiving, Room};

/// The deciding thread's end.
#[derive(Debug)]
pub(crate) struct Haul {
    shared: Arc<Shared>,
    /// The carrier's.
    bell: Bell,
}

#[derive(Debug)]
struct Shared {
    orders: Mutex<Vec<Order>>,
    done: Mutex<Vec<Done>>,
    /// The deciding thread's.
    wake: Bell,
}

/// The carrier's end.
pub(crate) struct Hauler {
    shared: Arc<Shared>,
    segment: Arc<Segment>,
    arena: Arc<Arena>,
    file: SpillFile,
    pins: PinTable,
    /// Of what is not sent any more.
    unpinned: Unpinned,
    /// By ticket.
    receiving: BTreeMap<u64, Receiving>,
    /// What each node is sent; none is empty.
    sending: BTreeMap<NodeNumber, VecDeque<Sending>>,
    /// Since it was asked.
    begun: Vec<Begun>,
}

struct Sending {
    ticket: u64,
    place: Place,
    next: u64,
    held: Held,
    /// In a ring.
    lap: Option<Lap>,
    /// It was folded here: links get copies (HAUL-2).
    made: bool,
    /// Of what is relayed, and no fold.
    pace: Option<Pace>,
}

/// Why what is sent stays where it is.
enum Held {
    Pinned(Arc<Pinned>),
    /// It is still arriving, in the arena.
    Arriving,
}

/// What a hauler is made of.
pub(crate) struct Parts {
    pub(crate) segment: Arc<Segment>,
    pub(crate) arena: Arc<Arena>,
    pub(crate) spill_file: OwnedFd,
    /// Rings when there is something in `Haul::done`.
    pub(crate) wake: Bell,
}

impl Hauler {
    pub(crate) fn new(parts: Parts) -> io::Result<Self> {
        let Parts { segment, arena, spill_file, wake } = parts;
        let slot = ProcessSlot::new(0).expect("there is a first slot");
        let shared = Shared { orders: Mutex::default(), done: Mutex::default(), wake };
        Ok(Self {
            shared: Arc::new(shared),
            pins: PinTable::new(Arc::clone(&segment), slot),
            unpinned: Unpinned::default(),
            segment,
            arena,
            file: SpillFile::new(Kept::new(spill_file)?),
            receiving: BTreeMap::new(),
            sending: BTreeMap::new(),
            begun: Vec::new(),
        })
    }

    /// The other end.
    pub(crate) fn haul(&self) -> io::Result<Haul> {
        Ok(Haul { shared: Arc::clone(&self.shared), bell: Bell::unheard()? })
    }

    fn take_orders(&mut self) {
        let orders = mem::take(&mut *lock(&self.shared.orders));
        for order in orders {
            match order {
                Order::Receive { ticket, from, place, written } => {
                    self.receive(ticket, (Some(from), written, None), place, None);
                }
                Order::ReceivePart { ticket, from, place, at, offset, until } => {
                    self.receive_part(ticket, from, place, at, offset..until);
                }
                Order::Fold {
                    ticket,
                    from,
                    place,
                    written,
                    op,
                    operands,
                    divide_by,
                    ring,
                    rest,
                } => {
                    let how = How { op, divide_by, ring };
                    let fold = self.folding(how, &operands, None, place.len);
                    let from = (Some(from), written, rest);
                    self.receive(ticket, from, place, Some(fold));
                }
                Order::FoldHere { ticket, place, written, op, source, operands, rest } => {
                    let how = How { op, divide_by: None, ring: None };
                    let fold = self.folding(how, &operands, Some(source), place.len);
                    self.receive(ticket, (None, written, rest), place, Some(fold));
                }
                Order::StopReceive { ticket } => {
                    self.stop_receiving(ticket, "it was told to stop", false);
                }
                Order::Look { ticket } => {
                    if let Some(receiving) = self.receiving.get(&ticket) {
                        self.say(Done::Seen { ticket, written: receiving.written });
                    }
                }
                Order::LookBehind { to, ticket } => self.look_behind(to, ticket),
                Order::Send { to, ticket, location, offset, until, made } => {
                    let location = Location { len: location.len.min(until), ..location };
                    self.send(to, ticket, location, offset, None, made);
                }
                Order::Relay { to, ticket, place, offset } => {
                    self.relay(to, ticket, place, offset);
                }
                Order::Clear { ticket, slot } => {
                    self.take_relays(slot);
                    self.say(Done::Cleared { ticket });
                }
                Order::StopSend { to, ticket } => {
                    let Some(queue) = self.sending.get_mut(&to) else { continue };
                    let at = queue.iter().position(|sending| sending.ticket == ticket);
                    at.and_then(|at| queue.remove(at));
                    self.tidy(to);
                }
            }
        }
        self.unpin();
    }

    /// What nobody sends any more.
    fn unpin(&mut self) {
        let unpinned = self.unpinned.take();
        unpinned.into_iter().for_each(|pin| self.pins.unpin(pin));
    }

    fn say(&self, done: Done) {
        lock(&self.shared.done).push(done);
        self.shared.wake.ring();
    }

    // ---- what comes ----

    fn receive(
        &mut self,
        ticket: u64,
        (from, written, rest): (Option<NodeNumber>, u64, Option<Rest>),
        place: Place,
        fold: Option<Result<Folding, (bool, String)>>,
    ) {
        let Place { slot, offset, len } = place;
        let room = match offset.checked_sub(self.arena.capacity()) {
            None => self.arena.claim(offset, len).map(Room::Arena).map_err(|it| it.to_string()),
            Some(_) if fold.is_some() => Err("what is on disk is not folded".to_string()),
            Some(at) => self.file.room(at, len).map(Room::File).map_err(|it| it.to_string()),
        };
        let room = room.map_err(|error| format!("there is no place to write it to: {error}"));
        let done = match (room, fold.transpose()) {
            (Ok(room), Ok(fold)) => {
                let (came, landed) = (written, written);
                let len = fold.as_ref().and_then(Folding::lap).map_or(len, Lap::comes);
                let part = None;
                let mut receiving =
                    Receiving { from, slot, len, part, written, came, landed, room, fold };
                match rest.map_or(Ok(()), |rest| receiving.lay(rest)) {
                    Ok(()) => {
                        self.begun.extend(from.map(Begun::Asked));
                        self.receiving.insert(ticket, receiving);
                        return;
                    }
                    // All of them anew may show what differs.
                    Err(why) => Done::Stopped { ticket, written, why, lost: false, front: None },
                }
            }
            (Err(why), _) | (_, Err((true, why))) => {
                Done::Stopped { ticket, written, why, lost: false, front: None }
            }
            (_, Err((false, why))) => Done::Unfit { ticket, why },
        };
        self.say(done);
    }

    fn receive_part(
        &mut self,
        ticket: u64,
        from: NodeNumber,
        place: Place,
        at: u64,
        bytes: Range<u64>,
    ) {
        let Range { start, end: len } = bytes;
        let room = self.arena.claim(place.offset + at, len - start);
        let done = match room {
            Ok(room) => {
                self.begun.push(Begun::Asked(from));
                let (room, fold, part, from) = (Room::Arena(room), None, Some(start), Some(from));
                let (slot, written, came, landed) = (place.slot, start, start, start);
                let receiving =
                    Receiving { from, slot, len, part, written, came, landed, room, fold };
                self.receiving.insert(ticket, receiving);
                return;
            }
            Err(error) => {
                let why = format!("there is no place to write it to: {error}");
                Done::Stopped { ticket, written: 0, why, lost: false, front: None }
            }
        };
        self.say(done);
    }

    /// HAUL-6. True if it may be otherwise at another try.
    fn folding(
        &mut self,
        how: How,
        operands: &[Location],
        source: Option<Location>,
        len: u64,
    ) -> Result<Folding, (bool, String)> {
        let mut held = |location: Location| match self.pinned(location) {
            Ok(pinned) => Ok((pinned, location.len)),
            Err((_, why)) => Err((true, why)),
        };
        let operands = operands.iter().map(|it| held(*it)).collect::<Result<Vec<_>, _>>()?;
        let source = source.map(held).transpose()?;
        Folding::new(how, operands, source, len).map_err(|why| (false, why))
    }

    fn stop_receiving(&mut self, ticket: u64, why: &str, lost: bool) {
        // Else it has come to its end already, which was told.
        if let Some(receiving) = self.receiving.remove(&ticket) {
            let (written, why, front) = (receiving.written, why.to_string(), receiving.front());
            drop(receiving);
            self.say(Done::Stopped { ticket, written, why, lost, front });
        }
    }

    /// HAUL-3.
    fn count(&mut self, from: NodeNumber, piece: Landed) {
        let Landed { ticket, offset, len } = piece;
        // Of an attempt that is over, as with its last byte, or of a node that guesses.
        let Some(receiving) = self.receiving.get_mut(&ticket) else { return };
        if receiving.from != Some(from) {
            return;
        }
        let Receiving { came, landed, len: all, .. } = *receiving;
        let left = all - came;
        if offset != came || len > left || len > landed - came {
            let why = format!(
                "node {} sent {len} bytes from byte {offset} on, and those from byte {came} on were expected, {left} at most",
                from.hex()
            );
            return self.stop_receiving(ticket, &why, false);
        }
        receiving.came += len;
    }

    fn is_unfit(&mut self, ticket: u64, why: String) {
        self.receiving.remove(&ticket);
        self.say(Done::Unfit { ticket, why });
    }

    /// What is made here is made as far as somebody is to be sent it.
    fn make(&mut self, slot: u32, wanted: u64) {
        let found = self.receiving.iter_mut().find(|(_, it)| it.slot == slot && it.from.is_none());
        let Some((ticket, receiving)) = found else { return };
        let ticket = *ticket;
        let made = receiving.make(wanted);
        self.count_written(ticket, made);
    }

    /// More may have been written, or what came does not fit.
    fn count_written(&mut self, ticket: u64, done: Result<(), String>) {
        match done {
            Err(why) => self.is_unfit(ticket, why),
            Ok(()) if !self.receiving[&ticket].is_whole() => {}
            Ok(()) if self.receiving[&ticket].part.is_some() => {
                self.receiving.remove(&ticket);
                self.say(Done::PartCame { ticket });
            }
            Ok(()) => self.seal(ticket),
        }
    }

    fn seal(&mut self, ticket: u64) {
        let receiving = self.receiving.remove(&ticket).expect("it is whole");
        let (slot, made) = (receiving.slot, receiving.fold.is_some());
        drop(receiving);
        let word = self.segment.object(slot).expect("the directory has slots of ours");
        let generation = word.seal().0;
        // HAUL-5
        for (to, sending) in self.take_relays(slot) {
            let Sending { ticket, place: Place { offset, len, .. }, next, lap, .. } = sending;
            self.send(to, ticket, Location { slot, generation, offset, len }, next, lap, made);
        }
        self.say(Done::Received { ticket, generation });
    }

    // ---- what goes ----

    fn send(
        &mut self,
        to: NodeNumber,
        ticket: u64,
        location: Location,
        offset: u64,
        lap: Option<Lap>,
        made: bool,
    ) {
        match self.begin(ticket, location, offset) {
            Ok(sending) => {
                self.sending.entry(to).or_default().push_back(Sending { lap, made, ..sending })
            }
            Err((moved, why)) => self.say(Done::SendFailed { to, ticket, moved, why }),
        }
    }

    fn relay(&mut self, to: NodeNumber, ticket: u64, place: Place, next: u64) {
        let Some(receiving) = self.coming(place.slot) else {
            let why = "it does not come here now".to_string();
            return self.say(Done::SendFailed { to, ticket, moved: true, why });
        };
        let (lap, made) = (receiving.lap().cloned(), receiving.fold.is_some());
        let pace = (!made).then(|| Pace::new(receiving.written, next));
        let sending = Sending { ticket, place, next, held: Held::Arriving, lap, made, pace };
        self.begun.push(Begun::Relays(to));
        self.sending.entry(to).or_default().push_back(sending);
    }

    fn look_behind(&self, to: NodeNumber, ticket: u64) {
        let queue = self.sending.get(&to).into_iter().flatten();
        for sending in queue.filter(|sending| sending.ticket == ticket) {
            let bytes = self.end(sending).saturating_sub(sending.next);
            self.say(Done::Behind { to, ticket, bytes });
        }
    }

    /// Who is sent what comes there, and lags?
    fn look_who_lags(&mut self, slot: u32, came: u64) {
        let mut lagging = Vec::new();
        for (to, queue) in &mut self.sending {
            for Sending { ticket, place, next, pace, .. } in queue {
                let lags = |pace: &mut Pace| pace.lags(came, *next, place.len);
                if place.slot == slot && pace.as_mut().is_some_and(lags) {
                    lagging.push((*to, *ticket));
                }
            }
        }
        for (to, ticket) in lagging {
            self.say(Done::Lags { to, ticket });
        }
    }

    /// Up to where it may be sent.
    fn end(&self, sending: &Sending) -> u64 {
        match &sending.held {
            Held::Pinned(_) => sending.len(),
            Held::Arriving => self.reach(sending.place.slot),
        }
    }

    /// What comes there, and may be relayed.
    fn coming(&self, slot: u32) -> Option<&Receiving> {
        self.receiving.values().find(|it| it.slot == slot && it.part.is_none())
    }

    /// Up to where it could be sent now: what is made here is made when it is sent.
    fn reach(&self, slot: u32) -> u64 {
        self.coming(slot).map_or(0, |it| if it.from.is_none() { it.len } else { it.mark() })
    }

    fn take_relays(&mut self, slot: u32) -> Vec<(NodeNumber, Sending)> {
        let mut taken = Vec::new();
        for (to, queue) in &mut self.sending {
            let is_one =
                |it: &mut Sending| matches!(it.held, Held::Arriving) && it.place.slot == slot;
            while let Some(at) = queue.iter_mut().position(&is_one) {
                taken.extend(queue.remove(at).map(|sending| (*to, sending)));
            }
        }
        self.sending.retain(|_, queue| !queue.is_empty());
        taken
    }

    /// Whose turn it is, and how many bytes it may send.
    fn turn(&self, to: NodeNumber) -> Option<(usize, u64)> {
        let queue = self.sending.get(&to)?;
        queue.iter().enumerate().find_map(|(at, sending)| {
            let bytes = self.end(sending).saturating_sub(sending.next).min(BULK_CHUNK_BYTES as u64);
            let place = sending.piece(bytes);
            (bytes > 0).then_some((at, place.end - place.start))
        })
    }

    /// The same, once these bytes are there. What is made may be whole then and go to the end of the queue, and what has a turn
    /// in its place may have to be made as well.
    fn turn_made(&mut self, to: NodeNumber) -> Option<(usize, u64)> {
        loop {
            let (at, len) = self.turn(to)?;
            let Sending { place: Place { slot, .. }, next, ref held, .. } = self.sending[&to][at];
            let is_there = match held {
                Held::Pinned(_) => true,
                Held::Arriving => self.coming(slot).is_some_and(|it| next + len <= it.mark()),
            };
            if is_there {
                return Some((at, len));
            }
            self.make(slot, next + len);
        }
    }

    /// HAUL-2.
    fn begin(
        &mut self,
        ticket: u64,
        location: Location,
        next: u64,
    ) -> Result<Sending, (bool, String)> {
        let held = Held::Pinned(self.pinned(location)?);
        let Location { slot, offset, len, .. } = location;
        let place = Place { slot, offset, len };
        Ok(Sending { ticket, place, next, held, lap: None, made: false, pace: None })
    }

    /// True if it may lie elsewhere by now.
    fn pinned(&mut self, location: Location) -> Result<Arc<Pinned>, (bool, String)> {
        // Else what was in the slot before may still be pinned.
        self.unpin();
        let pinned = self.pins.pin(location.slot, Generation(location.generation));
        let pin = pinned.map_err(|error| match error {
            PinError::Stale { .. } | PinError::Closing { .. } => (true, error.to_string()),
            PinError::TableFull => (false, "too many objects are being sent".to_string()),
        })?;
        let Location { offset, len, .. } = location;
        let lies = match offset.checked_sub(self.arena.capacity()) {
            None => Lies::in_arena(&self.arena, offset, len).map_err(|it| it.to_string()),
            Some(at) => self.file.view(at, len).map(Lies::File).map_err(|it| it.to_string()),
        };
        match lies {
            Ok(lies) => Ok(Pinned::new(lies, pin, &self.unpinned)),
            Err(why) => {
                self.pins.unpin(pin);
                Err((false, format!("it cannot be read: {why}")))
            }
        }
    }

    fn tidy(&mut self, to: NodeNumber) {
        if self.sending.get(&to).is_some_and(VecDeque::is_empty) {
            self.sending.remove(&to);
        }
    }
}

impl Sending {
    /// Bytes that go.
    fn len(&self) -> u64 {
        self.lap.as_ref().map_or(self.place.len, Lap::goes)
    }

    /// Where the next bytes lie in the object, so many at the most.
    fn piece(&self, bytes: u64) -> Range<u64> {
        match &self.lap {
            None => self.next..self.next + bytes,
            Some(lap) => lap.going(self.next, bytes).0,
        }
    }

    /// The next ones are this node's own.
    fn is_own(&self) -> bool {
        self.lap.as_ref().is_some_and(|lap| lap.going(self.next, 1).1)
    }
}

impl Bulk for Hauler {
    fn lands(&mut self, from: NodeNumber, ticket: u64, offset: u64, bytes: &[u8]) {
        if !self.receiving.contains_key(&ticket) {
            self.take_orders();
        }
        let Some(receiving) = self.receiving.get_mut(&ticket) else { return };
        let Receiving { came, landed, len, .. } = *receiving;
        // HAUL-3. What does not fit is found out when its piece has arrived.
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= len);
        let Some(end) = end.filter(|_| receiving.from == Some(from)) else { return };
        let is_here = end <= landed;
        if offset < came || offset > landed || is_here {
            return;
        }
        receiving.land(&bytes[(landed - offset) as usize..]);
        let finished = receiving.finish();
        let (slot, written) = (receiving.slot, receiving.written);
        if receiving.part.is_none() {
            self.look_who_lags(slot, written);
        }
        self.count_written(ticket, finished);
    }

    fn arrived(&mut self, from: NodeNumber, piece: Landed) {
        self.take_orders();
        self.count(from, piece);
    }

    fn expects(&self) -> bool {
        !self.receiving.is_empty()
    }

    fn begun(&mut self) -> Vec<Begun> {
        mem::take(&mut self.begun)
    }

    fn waiting(&mut self) -> Vec<NodeNumber> {
        self.take_orders();
        self.sending.keys().copied().filter(|node| self.turn(*node).is_some()).collect()
    }

    fn next(&mut self, to: NodeNumber) -> Option<Piece> {
        self.take_orders();
        let (at, len) = self.turn_made(to)?;
        let queue = self.sending.get_mut(&to).expect("somebody has a turn");
        let mut sending = queue.remove(at).expect("it is there");
        let (ticket, offset) = (sending.ticket, sending.next);
        let lies = sending.piece(len);
        let own = sending.is_own().then(|| self.coming(sending.place.slot)).flatten();
        let bytes: Lent = match (own.and_then(|it| it.fold.as_ref()), &sending.held) {
            (Some(fold), _) => fold.own(lies),
            (None, Held::Pinned(pinned)) if sending.made => {
                Arc::new(pinned.bytes(lies.start, len as usize).to_vec())
            }
            (None, Held::Pinned(pinned)) => pinned.lend(lies.start, len as usize),
            (None, Held::Arriving) => {
                let bytes = self.arena.read(sending.place.offset + lies.start, len);
                Arc::new(bytes.expect("all of it lies in the arena").to_vec())
            }
        };
        sending.next += (*bytes).as_ref().len() as u64;
        if sending.next < sending.len() {
            self.sending.entry(to).or_default().push_back(sending);
        } else {
            self.tidy(to);
            self.say(Done::Sent { to, ticket });
        }
        Some(Piece { ticket, offset, bytes })
    }

    fn lost(&mut self, node: NodeNumber) {
        self.take_orders();
        let why = format!("the link with node {} was lost", node.hex());
        let from_it = self.receiving.iter().filter(|(_, receiving)| receiving.from == Some(node));
        for ticket in from_it.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            self.stop_receiving(ticket, &why, true);
        }
        for sending in self.sending.remove(&node).into_iter().flatten() {
            let ticket = sending.ticket;
            self.say(Done::SendFailed { to: node, ticket, moved: false, why: why.clone() });
        }
        self.unpin();
    }
}

impl Haul {
    /// Who carries has this bell.
    pub(crate) fn rings(&mut self, bell: Bell) {
        self.bell = bell;
    }

    /// They are carried out in this order.
    pub(crate) fn order(&self, order: Order) {
        lock(&self.shared.orders).push(order);
        self.bell.ring();
    }

    pub(crate) fn done(&self) -> Vec<Done> {
        mem::take(&mut *lock(&self.shared.done))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
