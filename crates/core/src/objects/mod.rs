//! Object directory and store of one node: who may still reach which shared object, where its
//! bytes lie, and who may write where.
//!
//! ```text
//!  first token, want or mention
//!        |                 Shared          owner dies         a sweep, and somebody holds or wants it
//!        +---> Unknown ------------> Pending --------> Orphaned -----------------------------> Pending (Adopt)
//!        |        |                     |                  |  \-- a sweep, no lineage --> Failed
//!        |        | a sweep             | Fulfilled, Sealed| Sealed
//!        |        v                     v                  v
//!        |     Failed   Inline | Failed | Stored <--> Spilling --> Spilled <--> Restoring --> Mapped
//!        |                              | Mapped                      ^                         |
//!        +---> Handle (of an actor)                                   +------- Closing <--------+
//!
//!  the last copy is lost, and its owner lives --> Pending (Remake)
//!  any state -- no support, and a sweep passed without a word about it --> gone
//! ```
//! A record is **supported** by tokens of processes, by records that contain it, by the node's own
//! holds and by processes that wait for it. It may be made by any of them before its owner's word
//! is read, because sockets are read in any order; for the same reason a token count may be below
//! zero for a moment.
//!
//! An **undecided** record has no value, and whose word that would be cannot be asked: nobody told of it
//! (`Unknown`), or its owner is dead (`Orphaned`). What others wrote of it before may lie in their sockets: the worker
//! that made a stored value tells it on its own socket, and the owner may have read the reply, passed the ref on
//! and gone before that is read. So what becomes of it is decided after a sweep.
//!
//! What goes becomes a **move** (see `on_move`): its bytes are given back when
//! nobody reads them any more.
//!
//! A stored object lies in the arena, or in the spill file (**mapped**): its `Location` counts the file's
//! bytes on from the end of the arena. One that was spilled is read where it is, and never comes back.
//!
//! An object's **home** is the node of its owner. What becomes of objects of other homes here is in `on_foreign`, what other
//! nodes have to do with those of this one in `on_far`, what becomes of a lost one in `on_loss`. When a home dies, another node is in charge
//! (`on_estate`): what is said of objects at home here holds for those that were inherited. What a dead owner was to make is made by another process (`on_adopt`). What is to be on several nodes is in `on_copies`.
//!
//! Who has which memory is in `memory`, who waits for some in `on_room`, who was asked to give some back in
//! `on_recall`, where the file has room in `disk`, what it is for in `on_file`, when nobody has room in `full`, which tokens may get lost with
//! their reply in `replies`. How fast other nodes take what they fetch is in `speeds`.
//!
//! # What the shell promises
//! - A process is `ProcessJoined` before anything else about it, its messages come in order, and
//!   `ProcessGone`, or `ProcessLeft` and then `Unmapped`, come after all of them.
//! - `Swept { n }` comes once for each `Effect::Sweep { sweep: n }`; between the two every socket that
//!   was open at the effect was read until it would block, and what it gave was handled.
//! - `Free`, `Spill`, `Restore` and `Reserve` are answered exactly once each, in any order.
//! - Effects are carried out in order; a state word is closed before anything after it is sent.
//!
//! # What a process promises (checked: a breach is `Effect::Violation`)
//! - It takes back a sealed object by itself (`Freed`) only if nobody else ever saw its ref and the
//!   state word could be closed by it; if the daemon has closed it, it says `Released` instead.
//! - It has sent its notices before it sends `ExtentReturn` or `ExtentWant`.
//! - It answers each `ExtentRecall` by one `ExtentRecalled`, after what it returned.
//! - What it sealed in the spill file it does not free itself; room there that it does not use it gives back
//!   (`ExtentReturn`) in whole.
//! - It says `Replying` before it gives another process tokens, and `RepliesEnded` once for each dead
//!   process that it called, when it has read all its replies.
//! - After `Reclaimed` it may use that range and slot, unless it said `Freed` for that location.
//!
//! # Invariants
//! - OBJ-1: memory adds up (MEM-1 to MEM-4).
//! - OBJ-2: every record is supported, or a candidate to go, or kept for its home and not claimed; only one of them.
//! - OBJ-3: tokens, waits and owners name joined processes, and each process's index is exact.
//! - OBJ-4: `containers` is how often a record occurs in `contains` of records.
//! - OBJ-5: who waits, waits for something that cannot be read at once; or, for a word only, for what has no value.
//! - OBJ-6: the handle of an actor is a `Handle`, and nothing else is.
//! - OBJ-7: each tenant of the arena is one stored object, or one move, and the other way round; each place
//!   that is taken in the spill file is one object's, one move's, or one process's room.
//! - OBJ-8: the orders of use have exactly the stored and the mapped objects.
//! - OBJ-9: requests are from joined processes; a spilled object that is queued has a request.
//! - OBJ-10: where a record is a candidate or undecided, a sweep is under way; at most one is. What was inherited is neither before all
//!   have announced what they know of it (EST-1).
//! - OBJ-11: what went with replies is kept for joined callers, and for far ones that have a channel to a worker here.
//! - OBJ-12: who was asked for room has joined, and owes none when it has answered every time.
//! - OBJ-13: what is at home elsewhere and supported is claimed; what is kept for its home has its bytes here.
//! - OBJ-15: a secondary copy is in the store of this node, and was fetched from another one; no node died since.
//! - OBJ-14: copies are known of stored values only; nodes wait and fetch at the home only. No node that has a copy or waits is
//!   this one.
//! - OBJ-17: an owner hears of losses and of ends at the end of the event; who is to keep lineages has joined.
//! - OBJ-18: what is made again has no value yet, or its home did not tell it.
//! - OBJ-19: who was told how something is made, in case that its home dies, is told its value, asked for or not. Else it would hold the arguments
//!   of a task that has ended.
//! - OBJ-16: what is at home here has no copy at a node that drains, unless it would be lost without it.

mod check;
mod config;
mod disk;
mod estate;
mod event;
mod full;
mod listing;
mod memory;
mod on_adopt;
mod on_copies;
mod on_delay;
mod on_estate;
mod on_far;
mod on_file;
mod on_foreign;
mod on_leave;
mod on_loss;
mod on_move;
mod on_notice;
mod on_process;
mod on_recall;
mod on_room;
mod on_want;
mod ranges;
mod record;
mod references;
mod replies;
mod speeds;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hoplo_base::limits::STORY_LINES_MAX;
use hoplo_base::{Instant, NodeNumber, ObjectId, ProcessId, slack};

pub use config::{Config, PAGE};
pub use event::Need;
pub use event::{CopyAt, Effect, Event, FreeOutcome, Heir, Refusal, SpillOutcome, SpillPlace};
pub use listing::{ObjectPlace, ObjectRow, Totals};
pub use record::Several;
pub(crate) use references::is_handle;

use disk::Disk;
use full::Full;
use memory::Memory;
use on_adopt::Adoptions;
use on_copies::Keepers;
use on_estate::Estates;
use on_file::Reserve;
use on_loss::Losses;
use on_move::Move;
use on_recall::Recall;
use on_room::Request;
use record::Record;
use replies::Given;
use speeds::Speeds;

#[derive(Debug)]
pub struct ObjectDirectory {
    /// Whose directory it is.
    node: NodeNumber,
    haul: ProcessId,
    config: Config,
    now: Instant,
    records: BTreeMap<ObjectId, Record>,
    /// Records at a time, since the memory of earlier ones was given back.
    records_most: usize,
    /// Live processes, each with the objects that it has tokens of, waits for or owns (pending).
    processes: BTreeMap<ProcessId, BTreeSet<ObjectId>>,
    /// Those of them that are dead, and whose end was not told yet.
    dying: BTreeSet<ProcessId>,
    /// Nodes that are about to leave.
    draining: BTreeSet<NodeNumber>,
    /// What workers (first) gave callers (second) with replies.
    replies: BTreeMap<(ProcessId, ProcessId), Given>,
    sweeps: Sweeps,
    /// Records without support.
    candidates: BTreeSet<ObjectId>,
    /// Records whose value may lie in a socket.
    undecided: BTreeSet<ObjectId>,
    /// What is used here since this event, and is at home elsewhere.
    first_uses: Vec<ObjectId>,
    losses: Losses,
    keepers: Keepers,
    estates: Estates,
    adoptions: Adoptions,
    memory: Memory,
    /// Stored objects in the arena, least recently used first.
    lru: BTreeMap<u64, ObjectId>,
    /// Those in the spill file that can be read there, in the same way.
    mapped: BTreeMap<u64, ObjectId>,
    disk: Disk,
    /// Counts uses.
    uses: u64,
    /// Counts what was told of from where to fetch.
    turns: u64,
    /// Of the nodes that fetched what is at home here.
    speeds: Speeds,
    /// Counts what homes were told of copies here.
    words: u64,
    /// By ticket.
    moves: BTreeMap<u64, Move>,
    /// Moves that found a reader, and when to try again.
    pinned: BTreeSet<(Instant, u64)>,
    tickets: u64,
    /// By ticket.
    reserves: BTreeMap<u64, Reserve>,
    requests: VecDeque<Request>,
    /// Processes that were asked for room.
    recalls: BTreeMap<ProcessId, Recall>,
    /// When room last came free.
    progress_at: Instant,
    /// When the first request is to be looked at again, if it waits for a time.
    room_wake: Option<Instant>,
    /// A spill failed since a request was last denied for it.
    spill_failure: Option<String>,
    full: Option<Full>,
    story: VecDeque<StoryLine>,
    spills: u64,
    evictions: u64,
    restores: u64,
    violations: u64,
}

/// The daemon's own party, which moves bytes between nodes.
pub fn haul(node: NodeNumber) -> ProcessId {
    ProcessId::new(node, 0, 0)
}

#[derive(Debug, Default)]
struct Sweeps {
    asked: u64,
    done: u64,
}

#[derive(Debug)]
struct StoryLine {
    at: Instant,
    object: ObjectId,
    what: &'static str,
    who: Option<ProcessId>,
}

impl ObjectDirectory {
    pub fn new(node: NodeNumber, config: Config, now: Instant) -> Self {
        config.check();
        Self {
            node,
            haul: haul(node),
            now,
            records: BTreeMap::new(),
            records_most: 0,
            processes: BTreeMap::new(),
            dying: BTreeSet::new(),
            draining: BTreeSet::new(),
            replies: BTreeMap::new(),
            sweeps: Sweeps::default(),
            candidates: BTreeSet::new(),
            undecided: BTreeSet::new(),
            first_uses: Vec::new(),
            losses: Losses::default(),
            keepers: Keepers::default(),
            estates: Estates::default(),
            adoptions: Adoptions::default(),
            memory: Memory::new(&config, now),
            lru: BTreeMap::new(),
            mapped: BTreeMap::new(),
            disk: Disk::default(),
            uses: 0,
            turns: 0,
            speeds: Speeds::default(),
            words: 0,
            moves: BTreeMap::new(),
            pinned: BTreeSet::new(),
            tickets: 0,
            reserves: BTreeMap::new(),
            requests: VecDeque::new(),
            recalls: BTreeMap::new(),
            progress_at: now,
            room_wake: None,
            spill_failure: None,
            full: None,
            story: VecDeque::new(),
            spills: 0,
            evictions: 0,
            restores: 0,
            violations: 0,
            config,
        }
    }

    pub fn handle(&mut self, now: Instant, event: Event, effects: &mut Vec<Effect>) {
        assert!(now >= self.now, "time goes backwards");
        self.now = now;
        let first_effect = effects.len();
        match event {
            Event::ProcessJoined { process, slots } => {
                self.on_process_joined(process, slots, effects);
            }
            Event::ProcessDies { process } => {
                self.dying.insert(process);
            }
            Event::ProcessGone { process, obituary } => {
                self.on_process_left(process, &obituary, effects);
                self.on_unmapped(process, effects);
            }
            Event::ProcessLeft { process, obituary } => {
                self.on_process_left(process, &obituary, effects);
            }
            Event::Unmapped { process } => self.on_unmapped(process, effects),
            Event::Noticed { from, notice } => {
                if self.is_joined(from, effects) {
                    self.on_notice(from, notice, effects);
                }
            }
            Event::Wanted { from, objects, need } => {
                if self.is_joined(from, effects) {
                    self.on_wanted(from, objects, need, effects);
                }
            }
            Event::Misplaced { objects } => self.on_misplaced(&objects),
            Event::Delayed { object } => self.on_delayed(object, effects),
            Event::ExtentWanted { from, request, bytes, slots } => {
                if self.is_joined(from, effects) {
                    self.on_extent_wanted(from, request, bytes, slots, effects);
                }
            }
            Event::ExtentReturned { from, offset, len } => {
                if self.is_joined(from, effects) {
                    self.on_extent_returned(from, offset, len, effects);
                }
            }
            Event::ExtentRecalled { from } => {
                if self.is_joined(from, effects) {
                    self.on_extent_recalled(from, effects);
                }
            }
            Event::NodeHeld { objects } => self.node_hold(&objects),
            Event::NodeReleased { objects } => self.node_release(&objects),
            Event::ServesFar { worker, caller } => self.on_serves_far(worker, caller),
            Event::FarReplyLeft { worker, caller, named } => {
                self.on_far_reply_left(worker, caller, &named);
            }
            Event::FarRepliesEnded { worker, caller } => self.on_far_replies_ended(worker, caller),
            Event::Swept { sweep } => self.on_swept(sweep, effects),
            Event::Freed { ticket, result } => self.on_freed(ticket, result, effects),
            Event::Spilled { ticket, result } => self.on_spilled(ticket, result, effects),
            Event::Restored { ticket, result } => self.on_restored(ticket, result, effects),
            Event::Reserved { ticket, result } => self.on_reserved(ticket, result, effects),
            Event::AskedByHome { object } => self.on_served(object, true, effects),
            Event::HandedOver { location, to } => self.memory.hand_over(self.haul, to, location),
            Event::Tick => {
                self.retry_pinned(effects);
                self.retry_copies(effects);
                self.answer_slow_ones(effects);
            }
            Event::FarWanted { node, object } => self.on_far_wanted(node, object, effects),
            Event::FarSealed { copy, object, bytes, contains } => {
                self.on_far_sealed(copy, object, bytes, contains, effects);
            }
            Event::FarCopied { copy, object, turn } => {
                self.on_far_copied(copy, object, turn, effects);
            }
            Event::FarNotCopied { node, object } => {
                self.on_far_not_copied(node, object, effects);
            }
            Event::FarLags { by, node, object, turn } => {
                self.on_far_lags(by, node, (object, turn), effects);
            }
            Event::FarKnows { node, object, known } => {
                self.on_far_knows(node, object, known, effects);
            }
            Event::FarMadeAt { adopter, maker, objects } => {
                self.on_far_made_at(adopter, maker, &objects, effects);
            }
            Event::FarNotAdopted { node, objects } => {
                self.on_far_not_adopted(node, objects, effects);
            }
            Event::Announced { homes } => self.on_announced(&homes, effects),
            Event::LineageGiven { node, object } => self.on_lineage_given(node, object, effects),
            Event::LineageTold { object, lineage } => self.on_lineage_told(object, lineage),
            Event::AdoptAsked { lineage, objects } => {
                self.on_adopt_asked(lineage, objects, effects);
            }
            Event::ValueTold { object, value, contains } => {
                self.on_value_told(object, value, contains, effects);
            }
            Event::Forgotten { object, word } => self.on_forgotten(object, word),
            Event::Lost { object, why } => self.on_lost(object, why, effects),
            Event::PullFailed { object, why, lost } => {
                self.on_pull_failed(object, &why, lost, effects);
            }
            Event::PullDenied { object, failure } => self.on_pull_denied(object, &failure, effects),
            Event::Other { node, stays, heir } => self.on_other(node, stays, heir, effects),
            Event::PassedSlow { node, bytes, since } => {
                self.speeds.passed(now, node, bytes, since);
            }
            Event::MadeHere { object } => self.on_made_here(object),
            Event::CopyAsked { object, copies } => self.on_copy_asked(object, copies, effects),
            Event::NodeDrains { node } => self.on_node_drains(node, effects),
            Event::HandsOver { objects } => self.on_hands_over(objects, effects),
            Event::NodeGone { node, why, heirs } => {
                self.on_node_gone(node, &why, &heirs, effects);
            }
        }
        self.serve_requests(effects);
        self.look_whether_full();
        self.tell_owners(effects);
        self.ask_for_sweep(effects);
        if !self.first_uses.is_empty() {
            let used = self.first_uses.drain(..).map(|object| Effect::Foreign { object });
            effects.splice(first_effect..first_effect, used);
        }
        self.records_most = self.records_most.max(self.records.len());
        if slack::is_found(self.records.len(), self.records_most) {
            self.records_most = self.records.len();
            effects.push(Effect::ReturnMemory);
        }
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        let pinned = self.pinned.first().map(|(at, _)| *at);
        let warm = self.memory.warm_since().map(|at| at + self.config.warm_idle);
        let copies = self.keepers.next_deadline();
        let full = self.full_ends();
        let slow = self.speeds.next_deadline();
        [self.room_wake, pinned, warm, copies, full, slow].into_iter().flatten().min()
    }

    /// Whether the last word on the object is this directory's: it is at home here, or inherited.
    fn is_at_home(&self, object: ObjectId) -> bool {
        let home = object.task.owner.node();
        home == self.node || !self.estates.is_empty() && self.in_charge(home) == self.node
    }

    /// A tool, or a process that is gone, has no business here.
    fn is_joined(&mut self, from: ProcessId, effects: &mut Vec<Effect>) -> bool {
        let joined = self.processes.contains_key(&from);
        if !joined {
            self.violation(from, "speaks of objects and has not joined".to_string(), effects);
        }
        joined
    }

    /// Remembers what happened to an object.
    fn note(&mut self, object: ObjectId, what: &'static str, who: Option<ProcessId>) {
        if self.story.len() == STORY_LINES_MAX {
            self.story.pop_front();
        }
        self.story.push_back(StoryLine { at: self.now, object, what, who });
    }
}
