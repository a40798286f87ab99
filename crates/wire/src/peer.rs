//! What the deciding threads of two daemons say to each other (docs/internals/far.md).
//!
//! They travel over the talk socket of the two nodes' link, in order, each with a **cover**: a number that counts up from one node
//! to another, under which the sender holds the refs that the message names until the receiver has claimed them. 0: it names none.

use hoplo_base::{
    ActorId, FunctionId, GroupId, JobId, NodeNumber, ObjectId, ProcessId, ResourceSet,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

use crate::fold::{Fold, Rest};
use crate::node::{
    ActorSpec, Checkpoint, JobConfig, Lineage, LoggedCall, Obituary, Replay, Shape, ToClient,
    ToNode,
};
use crate::object::Failure;
use crate::why::{Question, Told};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Peer {
    // ---- references ----
    /// Of the claims machine. Its own numbers, 1, 2, 3, ...
    Claims {
        seq: u64,
        message: Claims,
    },

    // ---- processes ----
    /// A process of the sender says this of what is at home at the receiver, or of a process there.
    From {
        process: ProcessId,
        job: JobId,
        message: Box<ToNode>,
    },
    /// To a process of the receiver.
    To {
        process: ProcessId,
        message: Box<ToClient>,
    },
    /// `caller`, of the sender, is about to call `worker`, of the receiver.
    Connect {
        caller: ProcessId,
        worker: ProcessId,
    },
    /// A process of the sender that had to do with something of the receiver is gone.
    Gone {
        process: ProcessId,
        obituary: Obituary,
    },

    // ---- jobs and functions ----
    /// Before anything else of that job.
    Job {
        job: JobId,
        driver: ProcessId,
        config: Box<JobConfig>,
    },
    /// To the home of a job: the sender heard of it from another node, and is to hear when it ends.
    JobKnown {
        job: JobId,
    },
    JobEnded {
        job: JobId,
    },
    /// Answered by `Function`: whoever calls a function has exported it at its node.
    Fetch {
        job: JobId,
        function: FunctionId,
    },
    Function {
        function: FunctionId,
        #[serde(with = "serde_bytes")]
        bytes: Option<Vec<u8>>,
    },

    // ---- objects ----
    /// To the home: answered by `Value` when each has one. If `gone` names nodes: it named these alone before, and the sender has heard that
    /// they are dead. So it answers once it has heard so, too.
    Want {
        objects: Vec<ObjectId>,
        gone: Vec<NodeNumber>,
    },
    /// Of the home.
    Value {
        object: ObjectId,
        value: FarValue,
        contains: Vec<ObjectId>,
    },
    /// Of the home, to who wants it: it was lost, and is made again. `Value` follows.
    Delayed {
        object: ObjectId,
    },
    /// To the home: the sender has all bytes of it, as `maker`, its worker, wrote them. A reply to `holder` follows that
    /// names it, unless one of the two is gone. `word`: the sender counts what it says of its copies.
    Sealed {
        object: ObjectId,
        bytes: u64,
        contains: Vec<ObjectId>,
        maker: ProcessId,
        holder: ProcessId,
        word: u64,
    },
    /// To the home: the sender has a copy now. `word`: as with `Sealed`. `turn`: that of the `Value` that said from where to fetch it; 0 if it was
    /// not fetched.
    Copied {
        object: ObjectId,
        word: u64,
        turn: u64,
    },
    /// To the home: the sender was told where the bytes are, and they are not on their way to it (any more); or its copy is gone.
    NotCopied {
        object: ObjectId,
    },
    /// Of the home: nobody needs the copy any more of which it was told last by this word. A copy of which the receiver has said
    /// more since then stays: the home had not heard that.
    Forget {
        object: ObjectId,
        word: u64,
    },
    /// Of who is in charge of it: the receiver is to have one of so many copies. Answered by `Copied`, or by `NotCopied`.
    KeepCopy {
        object: ObjectId,
        copies: u8,
    },
    /// To who is in charge of it, its home or that one's heir: the sender knows this of it.
    Known {
        object: ObjectId,
        known: Known,
    },
    /// Of the home, to a node that claimed it: it is pending, and made so.
    Lineage {
        object: ObjectId,
        lineage: Lineage,
    },
    /// Of who is in charge, to a node that waits for one of these: their owner is dead, and a process there is to make them. Answered
    /// by `Known` with what is not stored, and by `MadeAt` or `NotAdopted`.
    Adopt {
        lineage: Lineage,
        objects: Vec<ObjectId>,
    },
    /// Nobody at the sender makes these (any more), or waits for them.
    NotAdopted {
        objects: Vec<ObjectId>,
    },
    /// The sender has had these made, as `Adopt` asked. What is stored, that node keeps, whose word of it comes on another connection.
    MadeAt {
        node: NodeNumber,
        objects: Vec<ObjectId>,
    },
    /// Send its bytes from `offset` on, as far as `until` if it has so many, over the bulk socket, as chunks under this ticket of the asker's. `turn`: as the home
    /// told the asker.
    FetchBytes {
        ticket: u64,
        object: ObjectId,
        offset: u64,
        until: u64,
        turn: u64,
    },
    /// Not (or no more): it is not here, or cannot be read now.
    NoBytes {
        ticket: u64,
        why: String,
    },
    /// Bytes of that ticket come slowly, or not at all. Answered by `NoBytes` if that is because of the receiver, so that others
    /// may do better; or by `Waits`.
    Slow {
        ticket: u64,
    },
    /// The sender sends what comes to it, and has no more of it now.
    Waits {
        ticket: u64,
    },
    /// The asker needs no more of that ticket.
    Enough {
        ticket: u64,
    },
    /// To who is in charge of it: the sender relays it to that node, which was told so in this turn. That one takes it more slowly than half as fast as
    /// it comes to the sender.
    Lags {
        object: ObjectId,
        node: NodeNumber,
        turn: u64,
    },
    /// Of who is in charge: what the receiver fetches in that turn it fetches in turn `now` from these nodes, the best one first.
    NowFrom {
        object: ObjectId,
        turn: u64,
        now: u64,
        sources: Vec<NodeNumber>,
    },

    // ---- reduces ----
    /// It is to be made there, and kept until `FoldOver`. Whoever is told so may fetch it meanwhile, as it comes.
    Fold(Box<Fold>),
    /// To who asked for it: it cannot be made. `again`: as with `NoReduce`.
    NoFold {
        made: ObjectId,
        why: String,
        again: bool,
    },
    /// To who asked for it: the node that it comes from died, and this is what it needs. It goes on when `FoldFrom` says from where.
    FoldBroke {
        made: ObjectId,
        rest: Rest,
    },
    /// Of who asked for it: what comes is this now, behind the bytes that are there. These are folded into that as well.
    FoldFrom {
        made: ObjectId,
        from: NodeNumber,
        upstream: ObjectId,
        operands: Vec<ObjectId>,
    },
    /// Of who asked for it: nobody needs it under that name any more, whether it is made or not. `sealed`: the `result` of its ring has
    /// the bytes that it has.
    FoldOver {
        made: ObjectId,
        sealed: bool,
    },

    // ---- scheduling ----
    /// A process of the sender could use so many leases here (absolute; as `LeaseDemand`).
    Demand {
        process: ProcessId,
        job: JobId,
        key: u32,
        shape: Shape,
        wanted: u32,
    },
    /// An actor that is at home at the sender is to be placed here.
    PlaceActor {
        actor: ActorId,
        incarnation: u32,
        job: JobId,
        shape: Shape,
        held: ResourceSet,
    },
    /// It does not want to be placed (any more).
    UnplaceActor {
        actor: ActorId,
    },
    /// To the home: it has a worker here.
    ActorPlaced {
        actor: ActorId,
        incarnation: u32,
        worker: ProcessId,
        gpus: Vec<u32>,
    },
    ActorNotPlaced {
        actor: ActorId,
        incarnation: u32,
        failure: Failure,
    },
    ActorStuck {
        actor: ActorId,
        reason: Option<String>,
        infeasible: bool,
    },
    /// Of the home: become this actor.
    RunActor {
        worker: ProcessId,
        spec: Box<ActorSpec>,
        incarnation: u32,
        gpus: Vec<u32>,
        replay: Option<Box<Replay>>,
    },
    /// Of who is in charge of an actor: keep this of it, in case that the sender dies. It replaces what was told before. `word`: if it
    /// is not 0, `Kept` says it back.
    KeepActor {
        known: Box<KnownActor>,
        word: u64,
    },
    UnkeepActor {
        actor: ActorId,
        word: u64,
    },
    /// To who keeps an actor with checkpoints: what its log has gained. It follows a `KeepActor` with a log.
    KeepLog {
        actor: ActorId,
        incarnation: u32,
        gained: Gained,
        word: u64,
    },
    /// All is done that was said up to this word.
    Kept {
        actor: ActorId,
        word: u64,
    },
    /// To the heir of its home: what the sender knows of an actor.
    ActorKnown(Box<KnownActor>),
    /// Of the head, to the heir of its home: its row says that it has ended, whatever others know of it.
    ActorEnded {
        actor: ActorId,
    },
    /// Of the home: its constructor has returned, so it keeps only what it holds.
    ActorStarted {
        worker: ProcessId,
    },
    /// Of the home: the worker is to end.
    StopWorker {
        worker: ProcessId,
        manner: StopManner,
        reason: String,
    },
    /// To the head: where could so many leases of this shape be had? Answered by `Where`, once at once, and again whenever there
    /// is room for what is left of it. It replaces what was asked under this number; `wanted` 0 takes it back, unanswered.
    Seek {
        seek: u64,
        shape: Shape,
        wanted: u32,
    },
    Where {
        seek: u64,
        found: Found,
    },
    /// To the head: what the sender has and what is in use.
    Load(Box<Load>),

    // ---- placement groups ----
    /// Of the head.
    Bundles {
        group: GroupId,
        order: BundleOrder,
    },
    /// To the head: whether all bundles that were asked for are reserved.
    BundlesAnswered {
        group: GroupId,
        attempt: u32,
        refused: Option<String>,
    },

    /// To each new head, when it was told all names: what else this node has.
    Held {
        bundles: Vec<(GroupId, Vec<u32>)>,
        /// Of its drivers, those that go on.
        jobs: Vec<JobId>,
        /// Its processes removed them, and no head has said since that they are gone.
        removed: Vec<GroupId>,
    },

    // ---- names ----
    /// To the head. Answered by `Named`.
    Name {
        ask: u64,
        namespace: String,
        name: String,
        /// Take it for this actor, if nobody has it. Absent: who has it?
        take: Option<ActorId>,
    },
    Named {
        ask: u64,
        actor: Option<ActorId>,
    },
    /// To the head: that actor has that name no more.
    Unname {
        namespace: String,
        name: String,
        actor: ActorId,
    },

    // ---- members ----
    /// Of the head: leave, as soon as nothing is lost by it, and at the latest after so long.
    Drain {
        within_ms: u64,
    },
    /// Of a node that leaves, to who will be its heir: what it has the last word on. It is for the time when it is gone, and replaces what
    /// it said of this object before. Answered by `HandedOver`.
    HandOver {
        object: ObjectId,
        known: Known,
        word: u64,
    },
    HandedOver {
        word: u64,
    },
    /// Of a node that nothing keeps any more, to all others. Each answers by `LeaveHeard`: it has all that the sender said before.
    Leave {
        word: u64,
    },
    LeaveHeard {
        word: u64,
    },
    /// Nobody else uses it any more: what was handed over of it need not be kept.
    TakeBack {
        object: ObjectId,
    },
    /// To an heir: the sender has told what it knows of the estates of this epoch. Answered by `Heard`.
    Announced {
        epoch: u64,
    },
    Heard {
        epoch: u64,
    },
    /// To the head: whatever the dead of this epoch sent to the sender is claimed or refused, and the heirs have heard what it knows
    /// of the estates.
    Passed {
        epoch: u64,
    },

    // ---- questions of people ----
    /// What do you know, and your processes? Kinds as in `ToNode::Query`. Answered by `Answer`, for the receiver alone: nobody
    /// passes it on.
    Query {
        request: u64,
        kind: String,
        argument: String,
    },
    Answer {
        request: u64,
        result: Result<String, String>,
        /// The text is long, and goes on in the next one.
        more: bool,
    },
    /// A round of `why`, for the receiver's processes and tables. Answered by `Explained`, or by an `Answer` that says why not.
    Explain {
        request: u64,
        question: Question,
        /// Processes of the receiver that did not answer in a round before: they are not asked.
        late: Vec<ProcessId>,
        /// Processes of the receiver that were named: who are they?
        named: Vec<ProcessId>,
    },
    Explained {
        request: u64,
        told: Told,
        /// Who did not answer in this round.
        late: Vec<ProcessId>,
        /// What tells processes of the sender apart for people, like `worker, pid 77`: those that were asked for, and those that
        /// the answer names.
        names: Vec<(ProcessId, String)>,
    },
}

impl Peer {
    /// Its name, for a log: what is in it may be long, and is the user's.
    pub fn kind(&self) -> String {
        let mut name = FirstWord(String::new());
        // It stops behind the name.
        let _ = fmt::Write::write_fmt(&mut name, format_args!("{self:?}"));
        name.0
    }
}

/// Takes what is written up to the first character that is of no name, and no more.
struct FirstWord(String);

impl fmt::Write for FirstWord {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let word = text.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        self.0.push_str(word);
        if word.len() == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// Of the claims machine (`hoplo_core::claims`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Claims {
    Claim {
        object: ObjectId,
    },
    Announce {
        object: ObjectId,
        contents: Option<Box<[ObjectId]>>,
    },
    Claimed {
        object: ObjectId,
        contents: Option<Box<[ObjectId]>>,
    },
    Unknown {
        object: ObjectId,
    },
    Release {
        object: ObjectId,
    },
    /// `announce`: the number is that of an `Announce`, and not of a cover.
    Settled {
        cover: u64,
        announce: bool,
    },
}

/// A value as another node is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FarValue {
    Inline(#[serde(with = "crate::arc_bytes")] Arc<[u8]>),
    Failed(Failure),
    /// Its bytes are at these nodes, the best one to fetch them from first. That one may be fetching them itself; the others have
    /// all of them. `turn` counts up with each such answer of the home.
    Stored {
        bytes: u64,
        turn: u64,
        sources: Vec<NodeNumber>,
    },
}

/// What a node knows of an object in the charge of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Known {
    /// It has all bytes, and keeps them until it is told to forget them. `word`: as with `Sealed`. `copies`: as with `KeepCopy`, if it
    /// was asked to have one; else 0.
    Copy {
        bytes: u64,
        word: u64,
        contains: Vec<ObjectId>,
        copies: u8,
    },
    Inline {
        #[serde(with = "crate::arc_bytes")]
        bytes: Arc<[u8]>,
        contains: Vec<ObjectId>,
    },
    Failed(Failure),
    /// How it is made. Its home was the last one to know whether it is finished.
    Lineage(Lineage),
}

/// What the log of an actor gained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Gained {
    Call(Box<LoggedCall>),
    Checkpoint(Box<Checkpoint>),
}

/// What a node knows of an actor in the charge of another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnownActor {
    /// Its `contains` is empty if `holds_arguments` is not so.
    pub spec: ActorSpec,
    pub job: JobId,
    pub incarnation: u32,
    /// Incarnations that cost no restart.
    pub moved: u32,
    /// This incarnation was given a worker.
    pub begun: bool,
    /// The process that starts or runs it, at the node that tells this.
    pub worker: Option<ProcessId>,
    /// Who tells this holds its constructor's arguments.
    pub holds_arguments: bool,
    /// Of one with checkpoints: all that its worker has told its home.
    pub replay: Option<Box<Replay>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopManner {
    Finish,
    Exit,
    Kill,
}

/// What a node is to do with bundles of a placement group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BundleOrder {
    /// Reserve all of these, or none: answered by `BundlesAnswered`.
    Prepare {
        attempt: u32,
        bundles: Vec<(u32, ResourceSet)>,
    },
    Commit {
        attempt: u32,
    },
    Release {
        attempt: u32,
    },
    /// Why it is not placed, for those who wait there; absent: it is.
    Waits {
        reason: Option<String>,
    },
    /// It is no more.
    End {
        why: String,
    },
}

/// What the global scheduler found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Found {
    /// So many are to be asked for there; together at most what was wanted.
    Nodes(Vec<(NodeNumber, u32)>),
    /// No node has room now: so many may wait at which node. Further answers come to the same `seek` as there is room.
    Queue(Vec<(NodeNumber, u32)>),
    /// No node has room now, and none is better to wait at. Further answers as with `Queue`.
    Later,
    /// No node could ever; what is missing at the nearest one.
    Never { why: String },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    pub total: ResourceSet,
    pub available: ResourceSet,
    /// Claims that wait there: what each wants, and how many of it.
    pub waiting: Vec<(ResourceSet, u32)>,
    /// Neither its object store nor its disk has room.
    pub full: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log had the pickles of actors in it, as numbers.
    #[test]
    fn the_kind_of_a_message_says_nothing_of_what_is_in_it() {
        assert_eq!(Peer::Load(Box::default()).kind(), "Load");
        assert_eq!(Peer::Heard { epoch: 1 }.kind(), "Heard");
        let (process, node) = (ProcessId(1), NodeNumber::FIRST);
        let message = Box::new(ToNode::Want { objects: Vec::new() });
        assert_eq!(Peer::From { process, job: JobId::new(node, 1), message }.kind(), "From");
    }
}
