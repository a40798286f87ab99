//! Bytes of objects between nodes: for one node, decides what is pulled from where, and what is sent to whom.
//!
//! ```text
//!   pull:   Queued --a place is free--> AskingRoom --granted--> Receiving --Received--> (sealed)
//!                                           |                    |     ^
//!                                           | denied             |     | another copy goes on where this one ended
//!                                           v                    v     |
//!                                     (PullDenied)            Stopping -+--no source is left--> Clearing --> (PullFailed)
//!
//!   serve:  Asking --the directory says where it lies-----> Sending --Sent--> (done)
//!             |  ^                                             |  ^
//!             |  +---------------- it moved -------------------+  | all of it is here
//!             |                                                   |
//!             +--it is being pulled--> Waiting --Receiving--> Relaying
//! ```
//! The directory says what to pull, and from which nodes (`crates/core/src/objects/on_far.rs`). Here it gets room as any writer does, in the name of the **haul**, the
//! daemon's own party (`crates/core/src/objects/on_foreign.rs`). The shell moves the bytes: what arrives it writes to its place, what
//! is asked for it pins and sends. It does so for a **ticket**: one attempt to get one object from one node.
//!
//! # Relays
//! What is being pulled is sent on while it comes: who asks for it gets what is here, and then what arrives, never a byte above the
//! mark up to which all is written. So those who want one object at the same time form a chain.
//! - The source of a pull is replaced by the next one; who is relayed to waits meanwhile, and goes on behind what it has.
//! - A pull that fails is the end of its relays: each asker hears it (`NoBytes`), and goes on with its next source. The room goes back
//!   when nobody reads there (`Clear`).
//! - A pull that is whole is sealed and pinned for its relays in one step, before the directory hears of it. So it may be
//!   freed or spilled like any object that is being sent.
//! - Only a pull that is under way is relayed, so nobody waits for one that waits for a place; nor one in the spill file.
//! - What a worker of this node made while it was being pulled is sent from there. Its home names this node as one that has all of it, and that
//!   pull may fail: its sources were told for an earlier run of the task.
//!
//! # Folds
//! A node may be asked to fold objects of its own into what comes, as it comes (`on_fold`). That is a pull, too. In a ring, or a train, what it makes may become an
//! object here that other nodes make as well (`on_ring`).
//!
//! # Assemblies
//! A process may have parts of objects of other nodes brought into one room (`on_assemble`).
//!
//! # What the shell promises
//! - `Order::Receive`, and what is folded, is answered once: by `Received`, when all bytes are written and the slot is sealed, or by `Stopped`, and then it
//!   writes there no more. It stops by itself when what comes cannot be right or its link was lost, and when it is told to
//!   (`StopReceive`, to which nothing else is an answer: it may come after `Received`).
//! - `Order::ReceivePart` is answered as `Receive`, but by `PartCame`.
//! - `Order::Send` and `Order::Relay` are answered once, by `Sent` or `SendFailed`, or taken back by `StopSend` or `Clear`.
//!
//! # Invariants
//! - XFER-1: a ticket is one attempt: one object, one source. Each byte of an attempt is written once, in order; the next attempt goes
//!   on behind them.
//! - XFER-2: an object is pulled once at a time.
//! - XFER-3: nothing is fetched before there is room for all of it.
//! - XFER-4: room is given back only when the shell writes there no more, and reads nothing there that somebody expects.
//! - XFER-5: what is under way is bounded: pulls here (`PULLS_MAX`), what one node is sent (`SERVES_MAX`), and in bytes by the window of
//!   the bulk socket.
//! - XFER-6: a slot is in the pool, or of one pull; none is in both.
//! - XFER-7: each `Begin` has one end: `Seal`, `PullFailed` or `PullDenied`. One that comes while its object is being pulled has the end of
//!   that pull.
//! - XFER-12: a fold that was asked for is wanting, being pulled, whole, or over; each that cannot be made is told once (`NoFold`).
//! - XFER-15: a fold of a chain whose source's node died keeps what is written. It says so once for each such death, and goes on, or ends, only when who asked for it says so.
//! - XFER-14: each assembly that was asked for has one end, `Assembled` or `NotAssembled`. Until then it waits for its turn, for room, or for a part.
//! - XFER-8: what is pulled in one turn is relayed to who asks in a later turn only. So along a chain turns fall, and nobody waits for
//!   itself. A ring has no first one; there each begins to send before anything comes.
//! - XFER-13: what was made for a result that others make as well is sealed under the name of the result only if its asker has said that the result has these bytes.
//!
//! What is to be sent to several nodes goes in the order of the `Uplink` (XFER-9 to XFER-11).
//!
//! # A source that is slow
//! While there is another source, it is looked every 100 ms how much has come. When twice in a row that was less than half of the best
//! look of this pull, the source is told (`Slow`). One that has bytes and does not get rid of them says `NoBytes`, and the next one goes
//! on at the same offset. One that relays and has sent all it has says `Waits`: its own source is to blame, which it replaces
//! itself, so a slow link is answered for by its two ends and by nobody further down the chain. Who does not even answer is replaced as well.
//!
//! A relay that was slow from the beginning is found out by the node before it: what that one relays goes to it less than half as fast as it comes
//! (`Done::Lags`). Who is in charge of the object hears so (`Lags`), and names another source to those behind the slow node, and to that node the end of the
//! chain (`NowFrom`). Each goes on at the same offset. Who is moved to the end fetches in a later turn, so it ends its relays first (XFER-8).

mod check;
mod event;
mod folding;
mod on_assemble;
mod on_fold;
mod on_look;
mod on_pull;
mod on_ring;
mod on_serve;
mod pull;
mod serve;
#[cfg(test)]
mod tests;
mod uplink;
mod watch;

use std::collections::{BTreeMap, VecDeque};

use hoplo_base::{Instant, NodeNumber, ObjectId};

pub use event::{Done, Effect, Event, Order, Place};
pub use uplink::Uplink;

use folding::Fetch;
use on_assemble::{Assembly, Key};
use on_fold::{Past, Wanting, Whole};
use pull::Pull;
use serve::Serve;

#[derive(Debug)]
pub struct Transfer {
    me: NodeNumber,
    pulls: BTreeMap<ObjectId, Pull>,
    /// Those of them that have no room and did not ask for it.
    queue: VecDeque<ObjectId>,
    /// What could not be fetched here lately, and in which turn.
    in_vain: VecDeque<(ObjectId, u64)>,
    /// Whose attempt, or request for room, has this number.
    tickets: BTreeMap<u64, ObjectId>,
    last_ticket: u64,
    /// Folds whose operands are not found yet, and those that are whole, by what is made.
    wanting: BTreeMap<ObjectId, Wanting>,
    wholes: BTreeMap<ObjectId, Whole>,
    /// The oldest one first.
    past: VecDeque<Past>,
    /// By who asked.
    assemblies: BTreeMap<Key, Assembly>,
    /// Of which a part, or the request for room, has this number. No pull has the same.
    part_tickets: BTreeMap<u64, Key>,
    /// Slots that came with room and are not used.
    slots: Vec<u32>,
    /// By who asked, and its ticket.
    serves: BTreeMap<(NodeNumber, u64), Serve>,
    now: Instant,
    /// When it is looked how fast bytes come.
    look_at: Option<Instant>,
}

impl Transfer {
    pub fn new(me: NodeNumber, now: Instant) -> Self {
        Self {
            me,
            pulls: BTreeMap::new(),
            queue: VecDeque::new(),
            in_vain: VecDeque::new(),
            tickets: BTreeMap::new(),
            last_ticket: 0,
            wanting: BTreeMap::new(),
            wholes: BTreeMap::new(),
            past: VecDeque::new(),
            assemblies: BTreeMap::new(),
            part_tickets: BTreeMap::new(),
            slots: Vec::new(),
            serves: BTreeMap::new(),
            now,
            look_at: None,
        }
    }

    pub fn handle(&mut self, now: Instant, event: Event, effects: &mut Vec<Effect>) {
        self.now = now;
        match event {
            Event::Begin { object, bytes, turn, sources } => {
                self.on_begin(object, Fetch { bytes, turn, sources }, effects);
            }
            Event::NotBegun { object, turn } => self.on_not_begun(object, turn, effects),
            Event::Granted { request, offset, len, slots } => {
                self.on_granted(request, offset, len, slots, effects);
            }
            Event::FileGranted { request, offset, len, slot } => {
                self.on_file_granted(request, offset, len, slot, effects);
            }
            Event::Denied { request, failure } => self.on_denied(request, failure, effects),
            Event::Reclaimed { location } => self.on_reclaimed(location, effects),
            Event::RoomAsked => {
                self.let_kept_ones_go(effects);
                // What else it has is being written.
                effects.push(Effect::AnswerRecall);
            }
            Event::FoldAsked { asker, fold } => self.on_fold(asker, *fold, effects),
            Event::FoldFrom { asker, made, from, upstream, operands } => {
                self.on_fold_from(asker, made, (from, upstream), operands, effects);
            }
            Event::FoldOver { asker, made, sealed } => {
                self.on_fold_over(asker, made, sealed, effects);
            }
            Event::AssembleAsked { asker, request, bytes, parts } => {
                self.on_assemble((asker, request), bytes, parts, effects);
            }
            Event::AssembleOver { asker, request } => {
                self.on_assemble_over((asker, request), effects);
            }
            Event::ProcessGone { process } => self.lose_assembler(process, effects),
            Event::Done(done) => self.on_done(done, effects),
            Event::NoBytes { from, ticket, why } => self.on_no_bytes(from, ticket, why, effects),
            Event::Asked { from, ticket, object, offset, until, turn, is_here } => {
                let serve = Serve::new(object, offset, until, turn);
                self.on_asked((from, ticket), serve, is_here, effects);
            }
            Event::Ready { object, location } => self.on_ready(object, location, effects),
            Event::Unreadable { object, why } => self.on_unreadable(object, &why, effects),
            Event::Enough { from, ticket } => self.on_enough(from, ticket, effects),
            Event::Slow { from, ticket } => self.on_slow(from, ticket, effects),
            Event::Waits { from, ticket } => self.on_waits(from, ticket),
            Event::NowFrom { object, turn, now, sources } => {
                self.on_now_from(object, turn, (now, sources), effects);
            }
            Event::Tick => {
                self.look(effects);
                self.let_old_ones_go(effects);
            }
            Event::NodeGone { node } => {
                self.lose_sources(node, effects);
                self.lose_parts(node, effects);
                self.lose_folds(node, effects);
                self.lose_askers(node, effects);
            }
        }
        self.hand_over(effects);
        self.plan_look();
    }

    /// What is being written to the room with this slot.
    pub fn comes_to(&self, slot: u32) -> Option<ObjectId> {
        let has = |pull: &Pull| pull.room().is_some_and(|room| room.place.slot == slot);
        self.pulls.iter().find(|(_, pull)| has(pull)).map(|(object, _)| *object)
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.look_at.into_iter().chain(self.next_to_let_go()).min()
    }

    fn on_done(&mut self, done: Done, effects: &mut Vec<Effect>) {
        match done {
            Done::Received { ticket, generation } => self.on_received(ticket, generation, effects),
            Done::PartCame { ticket } => self.on_part_came(ticket, effects),
            Done::Stopped { ticket, written, why, lost, front } => {
                self.on_stopped(ticket, (written, front), (why, lost), effects);
            }
            Done::Unfit { ticket, why } => self.on_unfit(ticket, why, effects),
            Done::Sent { to, ticket } => self.on_sent(to, ticket),
            Done::SendFailed { to, ticket, moved, why } => {
                self.on_send_failed(to, ticket, moved, why, effects);
            }
            Done::Cleared { ticket } => self.on_cleared(ticket, effects),
            Done::Seen { ticket, written } => self.on_seen(ticket, written, effects),
            Done::Behind { to, ticket, bytes } => self.on_behind(to, ticket, bytes, effects),
            Done::Lags { to, ticket } => self.on_lags(to, ticket, effects),
        }
    }

    /// Why an object is not here yet, for people.
    pub fn explain(&self, object: ObjectId) -> Option<String> {
        let pull = self.pulls.get(&object)?;
        Some(format!("{object} {}", pull.explain()))
    }

    fn next_ticket(&mut self, object: ObjectId) -> u64 {
        self.last_ticket += 1;
        self.tickets.insert(self.last_ticket, object);
        self.last_ticket
    }
}
