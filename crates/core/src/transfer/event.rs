//! What happens to transfers, and what is asked for.

use hoplo_base::{NodeNumber, ObjectId, ProcessId};
use hoplo_wire::layout::Front;
use hoplo_wire::node::ToClient;
use hoplo_wire::{Failure, Fold, FoldOp, Location, Part, Rest, Value};

/// Where the bytes of a pulled object go: in the arena or, from its end on, in the spill file, as in a `Location`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub slot: u32,
    pub offset: u64,
    /// Of the object, all of it.
    pub len: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    // ---- of the directory ----
    /// `objects::Effect::Pull`.
    Begin {
        object: ObjectId,
        bytes: u64,
        turn: u64,
        sources: Vec<NodeNumber>,
    },
    /// Its home told this node to fetch it in this turn, and that is not begun.
    NotBegun {
        object: ObjectId,
        turn: u64,
    },
    /// What the directory says to the haul (`Event::told`).
    Granted {
        request: u64,
        offset: u64,
        len: u64,
        slots: Vec<u32>,
    },
    FileGranted {
        request: u64,
        offset: u64,
        len: u64,
        slot: u32,
    },
    Denied {
        request: u64,
        failure: Failure,
    },
    Reclaimed {
        location: Location,
    },
    RoomAsked,
    Ready {
        object: ObjectId,
        location: Location,
    },
    Unreadable {
        object: ObjectId,
        why: String,
    },

    /// `Peer::Fold`, or what this node asks itself for.
    FoldAsked {
        asker: NodeNumber,
        fold: Box<Fold>,
    },
    /// `Peer::FoldFrom`, or this node's own word.
    FoldFrom {
        asker: NodeNumber,
        made: ObjectId,
        from: NodeNumber,
        upstream: ObjectId,
        operands: Vec<ObjectId>,
    },
    /// `Peer::FoldOver`, or this node's own word.
    FoldOver {
        asker: NodeNumber,
        made: ObjectId,
        sealed: bool,
    },

    /// `ToNode::Assemble`: none of the parts is of this node.
    AssembleAsked {
        asker: ProcessId,
        request: u64,
        bytes: u64,
        parts: Vec<Part>,
    },
    /// `ToNode::AssembleOver`.
    AssembleOver {
        asker: ProcessId,
        request: u64,
    },
    /// A process of this node.
    ProcessGone {
        process: ProcessId,
    },

    /// Of the shell.
    Done(Done),

    // ---- of other nodes ----
    /// `Peer::FetchBytes`.
    Asked {
        from: NodeNumber,
        ticket: u64,
        object: ObjectId,
        offset: u64,
        until: u64,
        turn: u64,
        /// The directory has all of it, though it may still be being pulled: a worker of this node made it meanwhile.
        is_here: bool,
    },
    /// `Peer::NoBytes`.
    NoBytes {
        from: NodeNumber,
        ticket: u64,
        why: String,
    },
    /// `Peer::Enough`.
    Enough {
        from: NodeNumber,
        ticket: u64,
    },
    /// `Peer::Slow`.
    Slow {
        from: NodeNumber,
        ticket: u64,
    },
    /// `Peer::Waits`.
    Waits {
        from: NodeNumber,
        ticket: u64,
    },
    /// `Peer::NowFrom`, or this node's own word: of what it fetches in that turn.
    NowFrom {
        object: ObjectId,
        turn: u64,
        now: u64,
        sources: Vec<NodeNumber>,
    },
    /// `next_deadline` has come (earlier does no harm).
    Tick,
    /// It is dead, and all that came from it was handed in.
    NodeGone {
        node: NodeNumber,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    // ---- to the directory, in the name of the haul ----
    /// `ExtentWanted`.
    WantRoom {
        request: u64,
        bytes: u64,
        slots: u32,
    },
    /// `ExtentReturned`.
    ReturnRoom {
        offset: u64,
        len: u64,
    },
    /// `ExtentRecalled`.
    AnswerRecall,
    /// `Notice::Sealed`, which contains nothing and whose holder is the haul.
    Seal {
        object: ObjectId,
        location: Location,
    },
    /// The same, of what was made here and is that object: it was not fetched.
    SealMade {
        object: ObjectId,
        location: Location,
    },
    /// A fold that this node asked for is whole. Its room and slot are those of the process that wants it.
    HandOver {
        made: ObjectId,
        location: Location,
    },
    /// `Wanted`.
    Want {
        object: ObjectId,
    },
    /// `AskedByHome`.
    WantForHome {
        object: ObjectId,
    },
    PullFailed {
        object: ObjectId,
        why: String,
        lost: bool,
    },
    PullDenied {
        object: ObjectId,
        failure: Failure,
    },

    /// What was asked for lies there, not sealed. Its room and slot are those of the process.
    Assembled {
        asker: ProcessId,
        request: u64,
        location: Location,
    },
    NotAssembled {
        asker: ProcessId,
        request: u64,
        why: String,
    },

    /// To the shell.
    Order(Order),

    /// `Peer::NoFold`, or to this node itself.
    NoFold {
        to: NodeNumber,
        made: ObjectId,
        why: String,
        again: bool,
    },
    /// `Peer::FoldBroke`, or to this node itself.
    FoldBroke {
        to: NodeNumber,
        made: ObjectId,
        rest: Rest,
    },

    // ---- to other nodes ----
    /// `Peer::FetchBytes`.
    Fetch {
        to: NodeNumber,
        ticket: u64,
        object: ObjectId,
        offset: u64,
        until: u64,
        turn: u64,
    },
    /// `Peer::NoBytes`.
    NoBytes {
        to: NodeNumber,
        ticket: u64,
        why: String,
    },
    /// `Peer::Enough`.
    Enough {
        to: NodeNumber,
        ticket: u64,
    },
    /// `Peer::Slow`.
    Slow {
        to: NodeNumber,
        ticket: u64,
    },
    /// `Peer::Waits`.
    Waits {
        to: NodeNumber,
        ticket: u64,
    },
    /// `Peer::Lags`, to who is in charge of the object.
    Lags {
        object: ObjectId,
        node: NodeNumber,
        turn: u64,
    },
}

/// For the shell. What is sent has the number of its asker's attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Chunks of this ticket that come from this node begin with the byte at `written`: write each to its place.
    Receive { ticket: u64, from: NodeNumber, place: Place, written: u64 },
    /// Chunks of this ticket that come from this node are the bytes from `offset` to `until` of an object: write them to the place, from `at` on. Answered by `PartCame`, or by
    /// `Stopped`.
    ReceivePart { ticket: u64, from: NodeNumber, place: Place, at: u64, offset: u64, until: u64 },
    /// The same as `Receive`, and fold the operands into it as it comes. It counts as written when that is done.
    Fold {
        ticket: u64,
        from: NodeNumber,
        place: Place,
        written: u64,
        op: FoldOp,
        operands: Vec<Location>,
        /// As with `Fold`.
        divide_by: Option<u32>,
        /// This node's place, of so many. What comes, and what is relayed of it, is counted as its lap goes (`collective::Lap`).
        ring: Option<(u32, u32)>,
        /// What is in front of `written` was never here, or is without some of the operands. They have to fit what lies there.
        rest: Option<Rest>,
    },
    /// Fold the operands into a copy of the source, which lies here: a piece whenever somebody is to be sent it. Else as with `Receive`.
    FoldHere {
        ticket: u64,
        place: Place,
        written: u64,
        op: FoldOp,
        source: Location,
        operands: Vec<Location>,
        /// As with `Fold`, of the source as well: it is moved to where that front has its numbers.
        rest: Option<Rest>,
    },
    /// Of a `Receive`, or of what is folded.
    StopReceive { ticket: u64 },
    /// How much of it is there? `Done::Seen`, unless it has ended.
    Look { ticket: u64 },
    /// Pin it, and send its bytes from `offset` on, as far as `until` if it has so many.
    Send {
        to: NodeNumber,
        ticket: u64,
        location: Location,
        offset: u64,
        until: u64,
        /// It was folded here, and is no object: as soon as it is sent, a process may get it (`HandOver`). Then nobody reads there any more.
        made: bool,
    },
    /// Send what has come to this place, from `offset` on, and then what comes; when all is there, pin it and go on.
    Relay { to: NodeNumber, ticket: u64, place: Place, offset: u64 },
    /// Of a `Send` or a `Relay`.
    StopSend { to: NodeNumber, ticket: u64 },
    /// Does it wait for what comes here? `Done::Behind`, unless it has ended.
    LookBehind { to: NodeNumber, ticket: u64 },
    /// Nothing more comes to this place: relay nothing of it any more.
    Clear { ticket: u64, slot: u32 },
}

/// What the shell did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// All bytes are written, and the slot is sealed under this generation.
    Received {
        ticket: u64,
        generation: u32,
    },
    /// All bytes of a part are written.
    PartCame {
        ticket: u64,
    },
    /// The first `written` bytes are there, and no more will be written.
    Stopped {
        ticket: u64,
        written: u64,
        why: String,
        /// The link with its source was lost.
        lost: bool,
        /// What lies in these bytes beside numbers, if they are folded.
        front: Option<Front>,
    },
    /// As `Stopped`: what comes and the operands cannot be folded, from whatever node it comes.
    Unfit {
        ticket: u64,
        why: String,
    },
    Sent {
        to: NodeNumber,
        ticket: u64,
    },
    /// `moved`: it is not there (any more), or is not on its way there now; no byte of it was sent.
    SendFailed {
        to: NodeNumber,
        ticket: u64,
        moved: bool,
        why: String,
    },
    /// Nobody reads there.
    Cleared {
        ticket: u64,
    },
    /// So much of it is written.
    Seen {
        ticket: u64,
        written: u64,
    },
    /// So many bytes are here and were not sent.
    Behind {
        to: NodeNumber,
        ticket: u64,
        bytes: u64,
    },
    /// What is relayed to it goes less than half as fast as it comes here. Told once for each relay.
    Lags {
        to: NodeNumber,
        ticket: u64,
    },
}

impl Event {
    /// What the directory has for the haul.
    pub fn told(message: ToClient) -> Event {
        match message {
            ToClient::ExtentGranted { request, offset, len, slots } => {
                Event::Granted { request, offset, len, slots }
            }
            ToClient::FileGranted { request, offset, len, slot } => {
                Event::FileGranted { request, offset, len, slot }
            }
            ToClient::ExtentDenied { request, failure } => Event::Denied { request, failure },
            ToClient::Reclaimed { object: _, location } => Event::Reclaimed { location },
            ToClient::ExtentRecall { bytes: _ } => Event::RoomAsked,
            ToClient::Ready { object, value: Value::Stored(location), contains: _ } => {
                Event::Ready { object, location }
            }
            ToClient::Ready { object, value: Value::Failed(failure), contains: _ } => {
                Event::Unreadable { object, why: failure.text() }
            }
            ToClient::Ready { object, value: Value::Inline(_), contains: _ } => {
                Event::Unreadable { object, why: "it is not stored".to_string() }
            }
            ToClient::Unreadable { object, failure } => {
                Event::Unreadable { object, why: failure.text() }
            }
            other => panic!("the directory does not say that to the haul: {other:?}"),
        }
    }
}
