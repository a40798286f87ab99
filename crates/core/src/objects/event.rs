//! What happens to the directory, and what it asks its shell to do.

use std::ops::Range;

use hoplo_base::{ActorId, Instant, NodeNumber, ObjectId, ProcessId};
use hoplo_wire::node::{Lineage, Notice, ToClient};
use hoplo_wire::peer::{FarValue, Known};
use hoplo_wire::{Failure, FailureKind, Location, Reason};

/// A node that has all bytes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyAt {
    pub node: NodeNumber,
    /// At its home: with which number that node said so last. The copy may go when that number is answered.
    pub word: u64,
}

/// Who has the last word on what was at home at a dead node, from a death on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heir {
    pub home: NodeNumber,
    pub heir: NodeNumber,
}

/// What who waits for an object needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// To hear that there is a value, wherever its bytes are.
    Word,
    /// To read it here.
    Bytes,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A driver or worker has an entry in the metadata segment (tools do not join). Answered by
    /// `Effect::Welcome` with its first slots, at most so many.
    ProcessJoined {
        process: ProcessId,
        slots: u32,
    },
    /// It is dead, and what it holds stays: `ProcessGone` or `ProcessLeft` follows.
    ProcessDies {
        process: ProcessId,
    },
    /// Its socket was read to the end, everything in it was handled, and its pins are wiped.
    /// `obituary`: one line for people.
    ProcessGone {
        process: ProcessId,
        obituary: String,
    },
    /// The same of a process that may go on by itself, read what it has pinned and write where it wrote: then `Unmapped` follows.
    ProcessLeft {
        process: ProcessId,
        obituary: String,
    },
    /// It has nothing of the store mapped any more, and its pins are wiped.
    Unmapped {
        process: ProcessId,
    },
    /// One of a process's notices, in the order of its socket. The tokens that the daemon itself
    /// gives (`ActorCreate`, `ActorFound`, `ActorCreated::Existing`) come as `Notice::Hold` too.
    Noticed {
        from: ProcessId,
        notice: Notice,
    },
    /// `ToNode::Want`, `ToNode::WantWord`.
    Wanted {
        from: ProcessId,
        objects: Vec<ObjectId>,
        need: Need,
    },
    /// `ToNode::Misplaced`.
    Misplaced {
        objects: Vec<ObjectId>,
    },
    /// The home of what this node waits for makes it again: `Peer::Delayed`.
    Delayed {
        object: ObjectId,
    },
    /// `ToNode::ExtentWant`.
    ExtentWanted {
        from: ProcessId,
        request: u64,
        bytes: u64,
        slots: u32,
    },
    /// `ToNode::ExtentReturn`.
    ExtentReturned {
        from: ProcessId,
        offset: u64,
        len: u64,
    },
    /// `ToNode::ExtentRecalled`.
    ExtentRecalled {
        from: ProcessId,
    },
    /// The node itself holds these from now on (a function's or an actor spec's refs, the handle
    /// of a detached actor). Counted, like tokens.
    NodeHeld {
        objects: Vec<ObjectId>,
    },
    NodeReleased {
        objects: Vec<ObjectId>,
    },
    /// A process of another node may call this worker from now on, and get replies.
    ServesFar {
        worker: ProcessId,
        caller: ProcessId,
    },
    /// One of these replies leaves. It names these, once for each token, in the order in which the worker told of them; and
    /// they are covered.
    FarReplyLeft {
        worker: ProcessId,
        caller: ProcessId,
        named: Vec<ObjectId>,
    },
    /// No reply of that worker to that caller leaves any more.
    FarRepliesEnded {
        worker: ProcessId,
        caller: ProcessId,
    },
    /// Every socket was read until it would block, once, and what was read was handled; all of it
    /// after `Effect::Sweep` of this number was emitted.
    Swept {
        sweep: u64,
    },
    /// Answer to `Effect::Free`.
    Freed {
        ticket: u64,
        result: FreeOutcome,
    },
    /// Answer to `Effect::Spill`.
    Spilled {
        ticket: u64,
        result: SpillOutcome,
    },
    /// Answer to `Effect::Restore`: the generation under which the slot was sealed. After an
    /// error the slot is free.
    Restored {
        ticket: u64,
        result: Result<u32, String>,
    },
    /// Answer to `Effect::Reserve`.
    Reserved {
        ticket: u64,
        result: Result<(), String>,
    },
    /// The haul is to send it to its home: as `Wanted`, but it does not wait for a word of that home, which waits itself.
    AskedByHome {
        object: ObjectId,
    },
    /// The haul has sealed what nobody knows of: its room and its slot are that process's from now on, as if it had written there itself.
    HandedOver {
        location: Location,
        to: ProcessId,
    },
    /// `next_deadline` has come (earlier does no harm).
    Tick,

    // ---- of what is at home here, or inherited ----
    /// That node wants the value: answered by `Effect::TellNode`, once there is one.
    FarWanted {
        node: NodeNumber,
        object: ObjectId,
    },
    /// A worker of that node made it, and all its bytes are there.
    FarSealed {
        copy: CopyAt,
        object: ObjectId,
        bytes: u64,
        contains: Vec<ObjectId>,
    },
    /// That node has a copy of it now. It fetched it as it was told in this turn; 0: it did not fetch it.
    FarCopied {
        copy: CopyAt,
        object: ObjectId,
        turn: u64,
    },
    /// That node was told from where to fetch it, and does not (any more); or its copy is gone.
    FarNotCopied {
        node: NodeNumber,
        object: ObjectId,
    },

    /// The first node relays it to the second one, which was told so in this turn, and takes it less than half as fast as it comes to the first one.
    FarLags {
        by: NodeNumber,
        node: NodeNumber,
        object: ObjectId,
        turn: u64,
    },

    /// That node knows this of it.
    FarKnows {
        node: NodeNumber,
        object: ObjectId,
        known: Known,
    },
    /// Nobody at that node makes these in the place of their dead owner (any more), or waits for them.
    FarNotAdopted {
        node: NodeNumber,
        objects: Vec<ObjectId>,
    },
    /// A process of that node (`adopter`) had these made in the place of their dead owner, by a worker of node `maker`.
    FarMadeAt {
        adopter: NodeNumber,
        maker: NodeNumber,
        objects: Vec<ObjectId>,
    },
    /// All nodes have said what they know of what was at home at these dead ones.
    Announced {
        homes: Vec<NodeNumber>,
    },

    /// Whether that other node lives and does not leave has changed, perhaps. `heir`: who would be in charge of what is at home here.
    Other {
        node: NodeNumber,
        stays: bool,
        heir: Option<NodeNumber>,
    },
    /// That node is about to leave: what is at home here has its bytes elsewhere before. This node, too: `HandsOver` follows.
    NodeDrains {
        node: NodeNumber,
    },
    /// This node leaves, and others use these that are in its charge.
    HandsOver {
        objects: Vec<ObjectId>,
    },

    // ---- of what is at home elsewhere ----
    /// The home's answer to `Effect::AskHome`.
    ValueTold {
        object: ObjectId,
        value: FarValue,
        contains: Vec<ObjectId>,
    },
    /// What many nodes made together went past this one, since it seemed slow: so many bytes, and when they began.
    PassedSlow {
        node: NodeNumber,
        bytes: u64,
        since: Instant,
    },
    /// What is to be pulled was made here, and is not fetched.
    MadeHere {
        object: ObjectId,
    },
    /// Who is in charge of it asks for one of so many copies. Answered by `Effect::TellCopied` or `Effect::TellNotCopied`.
    CopyAsked {
        object: ObjectId,
        copies: u8,
    },
    /// The home needs the copy here no more, of which it was told with that number.
    Forgotten {
        object: ObjectId,
        word: u64,
    },
    /// The home does not know it, or is dead: who waits for it here gets this reason.
    Lost {
        object: ObjectId,
        why: String,
    },

    /// That node is told how what is at home here is made, since it claimed it while it was pending.
    LineageGiven {
        node: NodeNumber,
        object: ObjectId,
    },
    /// The home says how it is made, while it is pending.
    LineageTold {
        object: ObjectId,
        lineage: Lineage,
    },
    /// Who is in charge asks: their owner is dead, and a process here is to make them. Answered by `Effect::TellKnown` or
    /// `Effect::TellNotAdopted`.
    AdoptAsked {
        lineage: Lineage,
        objects: Vec<ObjectId>,
    },

    // ---- of both ----
    /// Each of the nodes that `Effect::Pull` named was tried in vain. (After a pull that did well the haul says
    /// `Notice::Sealed`, and nothing else of that object.)
    PullFailed {
        object: ObjectId,
        why: String,
        /// One of them died, or the link with it was lost: its home will hear of that, too.
        lost: bool,
    },
    /// There is no room for it here, which is the answer to those who wait now.
    PullDenied {
        object: ObjectId,
        failure: Failure,
    },
    /// The node is dead, and all that came from it was handed in. `why`: how its death is told. `heirs`: of the homes that have a new one
    /// by that, of which none but `node` was alive before.
    NodeGone {
        node: NodeNumber,
        why: String,
        heirs: Vec<Heir>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    Send {
        to: ProcessId,
        message: ToClient,
    },
    /// The process gets no room, for this reason: `ToClient::ExtentDenied`.
    Deny {
        to: ProcessId,
        request: u64,
        refusal: Refusal,
    },
    /// It waits for what cannot be read now, for this reason: `ToClient::Unreadable`.
    Refuse {
        to: ProcessId,
        object: ObjectId,
        refusal: Refusal,
    },
    /// The process may be sent its `Welcome`, with these slots.
    Welcome {
        process: ProcessId,
        slots: Vec<u32>,
    },
    /// Read every socket until it would block, once; then report `Swept`. One is under way at a
    /// time.
    Sweep {
        sweep: u64,
    },
    /// Close the state word, check the pins, free the word; then report `Freed`.
    Free {
        ticket: u64,
        object: ObjectId,
        location: Location,
    },
    /// Close the state word, check the pins, write the bytes to their place in the spill file, free
    /// the word; then report `Spilled`. When the write fails, reopen the word.
    Spill {
        ticket: u64,
        object: ObjectId,
        location: Location,
        place: SpillPlace,
    },
    /// See that the bytes can be read where they are in the spill file, seal the slot; then report
    /// `Restored`.
    Restore {
        ticket: u64,
        object: ObjectId,
        place: SpillPlace,
        slot: u32,
    },
    /// Take disk space for these bytes of the spill file, so that writing to them through memory
    /// cannot fail; then report `Reserved`.
    Reserve {
        ticket: u64,
        place: SpillPlace,
    },
    /// Nothing lies in `range` of the spill file any more, nor from `end` on: give the disk space
    /// back. (After everything that was asked for before, before all that comes later.)
    Forget {
        range: Range<u64>,
        end: u64,
    },
    /// A dead process had these and no object lies in them: make each word free (keep its
    /// generation counting).
    ResetSlots {
        slots: Vec<u32>,
    },
    /// Give this memory back to the system; nobody uses it.
    Punch {
        offset: u64,
        len: u64,
    },
    /// Tables that were large are small: free memory of the process may go back to the system, when it is idle.
    ReturnMemory,
    /// No handle of the actor is left: it is to finish and exit.
    ActorUnreachable {
        actor: ActorId,
    },
    /// The first use of an object that is at home elsewhere. (It comes before all other effects of its event.)
    Foreign {
        object: ObjectId,
    },
    /// The end of its last use here.
    Unforeign {
        object: ObjectId,
    },
    /// The home is to tell its value: answered by `ValueTold` or `Lost`.
    AskHome {
        object: ObjectId,
    },
    /// Fetch its bytes from one of these nodes, the first one if it can be: answered by `Notice::Sealed` of the haul, `PullFailed`
    /// or `PullDenied`. One pull of an object is under way at a time. `turn`: of the home's answer that named them.
    Pull {
        object: ObjectId,
        bytes: u64,
        turn: u64,
        sources: Vec<NodeNumber>,
    },
    /// To its home: `maker`, a worker of this node, made it for `holder`, and its bytes stay here until `Forgotten`.
    TellHome {
        object: ObjectId,
        bytes: u64,
        contains: Vec<ObjectId>,
        maker: ProcessId,
        holder: ProcessId,
        word: u64,
    },
    /// To its home: its bytes are here as well, and stay until `Forgotten`. `turn`: as with `Event::FarCopied`.
    TellCopied {
        object: ObjectId,
        word: u64,
        turn: u64,
    },
    /// To its home, which told from where to fetch it: that is not done (any more). Or its copy is gone.
    TellNotCopied {
        object: ObjectId,
    },
    /// To who is in charge of it: this node knows this of it.
    TellKnown {
        object: ObjectId,
        known: Known,
    },
    /// To who is in charge of these: nobody here makes them (any more), or waits for them.
    TellNotAdopted {
        objects: Vec<ObjectId>,
    },
    /// To who is in charge of these: a worker of that node has made them, as a process here wanted.
    TellMadeAt {
        maker: NodeNumber,
        objects: Vec<ObjectId>,
    },
    /// That node waits for one of these, whose owner is dead: a process there is to make them.
    AdoptAt {
        node: NodeNumber,
        lineage: Lineage,
        objects: Vec<ObjectId>,
    },
    /// The answer to `FarWanted`.
    TellNode {
        node: NodeNumber,
        object: ObjectId,
        value: FarValue,
        contains: Vec<ObjectId>,
    },
    /// What it fetches in that turn it is to fetch from these, in turn `now`: `Peer::NowFrom`. This node, too.
    TellSources {
        node: NodeNumber,
        object: ObjectId,
        turn: u64,
        now: u64,
        sources: Vec<NodeNumber>,
    },
    /// It waits for what is made again: `Peer::Delayed`.
    TellDelayed {
        node: NodeNumber,
        object: ObjectId,
    },
    /// That node is to have one of so many copies.
    AskCopy {
        node: NodeNumber,
        object: ObjectId,
        copies: u8,
    },
    /// That node may forget its copy of what is at home here.
    ForgetCopy {
        object: ObjectId,
        copy: CopyAt,
    },
    /// The process broke the protocol: drop its connection (then report `ProcessGone`).
    Violation {
        process: ProcessId,
        what: String,
    },
}

/// Why the store does not give what it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub kind: FailureKind,
    pub reason: Reason,
}

/// Where bytes lie in the spill file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpillPlace {
    /// Bytes from its start; a multiple of `PAGE`.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeOutcome {
    /// The word is free; nobody reads the bytes.
    Done,
    /// Somebody reads it; the word is open again.
    Pinned,
    /// Its writer had freed it already, and this node has not heard so: what the word says now is not of this object.
    Vanished,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpillOutcome {
    /// The bytes are in the file and the word is free.
    Done,
    /// Somebody reads it, or the word does not say that this generation is sealed. Nothing changed.
    Pinned,
    /// The file could not be written (disk full); the word is open again.
    Failed(String),
}
