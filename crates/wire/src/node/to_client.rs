//! What a daemon says to a process.

use hoplo_base::{ActorId, FunctionId, GroupId, LeaseId, NodeNumber, ObjectId, ProcessId};
use serde::{Deserialize, Serialize};

use super::{
    ActorCreated, ActorFound, ActorSpec, ActorState, GroupState, Lineage, NoGroup, Obituary,
    Replay, Tell, Welcome,
};
use crate::fold::NoReduce;
use crate::object::{Failure, Location, Value};
use crate::why::Question;

/// In a line that a worker prints of a progress bar: what follows is JSON, for the driver's terminal. As in `python/hoplo/_bars.py`.
pub const BAR_MARK: &str = "\x1fhoplo-bar ";

/// Whether a line that a worker prints is a log record as JSON. The driver prints it as it is, for whoever parses its output.
/// As `python/hoplo/_logging.py` writes them.
pub fn is_log_record(line: &str) -> bool {
    line.starts_with("{\"asctime\": \"") && line.ends_with('}')
}

/// The reason of an `Exit`: this actor starts again at another node. One with checkpoints makes one first, so that nothing runs again there.
pub const ACTOR_MOVES: &str = "its node is being drained";

/// Daemon to process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToClient {
    /// Four descriptors for drivers and workers: metadata segment, arena, spill file, and what rings the carrier. None for tools.
    Welcome(Box<Welcome>),
    /// The connection is refused; it closes after this.
    Refused {
        reason: String,
    },

    LeaseGranted {
        lease: LeaseId,
        key: u32,
        worker: ProcessId,
        gpus: Vec<u32>,
    },
    /// Somebody else waits: return it once what it runs is done; start nothing more on it.
    LeaseRecall {
        lease: LeaseId,
    },
    /// This demand waits for what idle leases of the process's own other shapes take: they go back at once, and others
    /// when they fall idle, until as much is free as the demand needs, or something is granted.
    LeaseIdleWanted {
        key: u32,
    },
    /// Why demand of this shape cannot be met now; `None` when it is met again. `infeasible`: this
    /// node can never meet it.
    LeaseStuck {
        key: u32,
        reason: Option<String>,
        infeasible: bool,
    },
    /// Of a shape that spreads: of the leases that are wanted and not granted room was found for `count`, and for more there is none
    /// now. Said once after each `LeaseDemand` that asks for more.
    LeasesComing {
        key: u32,
        wanted: u32,
        count: u32,
    },
    /// No worker can be made for this shape (its environment cannot be set up, forks fail): what
    /// waits for it fails with `failure`. Its demand counts as 0 until it is told again.
    LeaseFailed {
        key: u32,
        failure: Failure,
    },
    /// To a worker, with one descriptor: a channel whose caller is `from`.
    Connected {
        from: ProcessId,
    },
    /// To the holders of a lease on it.
    WorkerBlocked {
        worker: ProcessId,
    },
    /// To everyone connected with it, in either direction: it is gone, and so are leases on it.
    /// `unstarted`: calls of the receiver's that left its ring, for a worker of another node, and that it never took.
    ProcessGone {
        process: ProcessId,
        obituary: Obituary,
        unstarted: Vec<u64>,
    },
    /// The answer to `RevokeFar`: what was taken back, and what was begun.
    Revoked {
        worker: ProcessId,
        seqs: Vec<u64>,
        kept: Vec<u64>,
    },

    ExtentGranted {
        request: u64,
        offset: u64,
        len: u64,
        slots: Vec<u32>,
    },
    /// Memory is short: this is for one object in the spill file (`offset` counts on from the end of the
    /// arena), with its slot. Once sealed, both are the node's.
    FileGranted {
        request: u64,
        offset: u64,
        len: u64,
        slot: u32,
    },
    /// The store is full, and the disk takes nothing, or there is none to spill to.
    ExtentDenied {
        request: u64,
        failure: Failure,
    },
    /// Give back free ranges (`ExtentReturn`), at least so many bytes if you can; then say that this was all
    /// (`ExtentRecalled`).
    ExtentRecall {
        bytes: u64,
    },
    /// What lay in one of your extents at this location is there no more (freed, or spilled): the
    /// range and the slot are yours again. The object itself may live on elsewhere.
    Reclaimed {
        object: ObjectId,
        location: Location,
    },
    Ready {
        object: ObjectId,
        value: Value,
        contains: Vec<ObjectId>,
    },
    /// You wanted it, and it cannot be read now. This is the answer to those who wait, not its value: who
    /// asks again may be told another.
    Unreadable {
        object: ObjectId,
        failure: Failure,
    },
    /// The owner of these pending objects died: you own them now. Run the task again and tell their
    /// values (`Fulfilled`, or `Sealed` by its writer). Gives no tokens.
    Adopt {
        lineage: Lineage,
        objects: Vec<ObjectId>,
    },

    /// No copy of these results of yours is left, or nobody knows them any more, and somebody uses them. Run their tasks again and tell
    /// their values as after an `Adopt`; or tell that it cannot be (`Fulfilled`, with a failure). Gives no tokens. `node`: the one that
    /// died with the last copies.
    Remake {
        objects: Vec<ObjectId>,
        node: Option<NodeNumber>,
        why: String,
    },
    /// You wait for the bytes of these. They were lost, and are made again, which may take long. `Ready` follows all the same.
    Delayed {
        objects: Vec<ObjectId>,
    },
    /// Nobody can reach these results of yours any more, which were made at other nodes.
    LineageOver {
        objects: Vec<ObjectId>,
    },

    /// What was asked for lies there, sealed. Its whole pages and its slot are yours, as if you had written it into room that you were granted.
    Reduced {
        request: u64,
        result: Result<Location, NoReduce>,
    },
    /// The same of what was assembled, but that it is not sealed. Or why it cannot be.
    Assembled {
        request: u64,
        result: Result<Location, String>,
    },

    Function {
        function: FunctionId,
        #[serde(with = "serde_bytes")]
        bytes: Option<Vec<u8>>,
    },

    ActorCreated {
        request: u64,
        result: Result<ActorCreated, String>,
    },
    ActorState {
        actor: ActorId,
        state: ActorState,
    },
    ActorFound {
        request: u64,
        found: Option<ActorFound>,
    },
    /// To a worker: become this actor. Its channel frames wait until `ActorStarted`.
    RunActor {
        spec: Box<ActorSpec>,
        incarnation: u32,
        gpus: Vec<u32>,
        /// Of one with checkpoints: what it is to become before it says `ActorStarted`.
        replay: Option<Box<Replay>>,
    },
    /// To a worker whose actor is at home at another node: its calls are logged there up to this one.
    CallsLogged {
        upto: u64,
    },

    /// With it why no node that is there now could ever hold it.
    GroupCreated {
        request: u64,
        result: Result<(GroupId, Option<String>), NoGroup>,
    },
    GroupState {
        request: u64,
        state: GroupState,
    },

    Told {
        from: ProcessId,
        message: Tell,
    },
    KvAnswer {
        request: u64,
        #[serde(with = "serde_bytes")]
        value: Option<Vec<u8>>,
        keys: Vec<Vec<u8>>,
        /// Nothing was written, for this reason.
        refused: Option<String>,
    },
    Answer {
        request: u64,
        result: Result<String, String>,
        /// What is not in it: nodes that were asked and did not answer, a sentence each.
        missing: Vec<String>,
    },
    /// Tell what you know (kinds as in `Query`): answered by `Inspected`.
    Inspect {
        request: u64,
        kind: String,
    },
    /// Tell what you know of why things wait: answered by `Explained`.
    Explain {
        request: u64,
        question: Question,
    },
    /// Lines that a worker of the job printed.
    Output {
        pid: u32,
        title: String,
        /// Of its node, if that is not the driver's: the driver's node adds it.
        address: Option<String>,
        stderr: bool,
        lines: Vec<String>,
    },
    /// Finish what lies in your rings if `graceful`, then exit. Of an actor that goes on elsewhere the reason is `ACTOR_MOVES`.
    Exit {
        graceful: bool,
        reason: String,
    },
}
