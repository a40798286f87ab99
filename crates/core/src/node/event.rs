//! What happens to a node, and what it asks its shell to do.

use std::ops::Range;
use std::sync::Arc;

use hoplo_base::{Instant, NodeNumber, ObjectId, ProcessId};
use hoplo_wire::Location;
use hoplo_wire::control::{Key, Refusal, Table};
use hoplo_wire::node::{DeathCause, JobConfig, Obituary, PythonEnv, RuntimeEnv, ToClient, ToNode};
use hoplo_wire::peer::Peer;

use super::process::Kind;
use super::queries::{Others, Report};
use crate::control::NodeEntry;
use crate::objects::{FreeOutcome, SpillOutcome, SpillPlace};
use crate::transfer;

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The first message of a connection that nobody has said hello on. `stranger`: the shell's name for
    /// the connection; `pid`: the peer's by the kernel's word, 0 where it has none.
    Knocked {
        stranger: u64,
        pid: u32,
        message: ToNode,
    },
    /// The next message of a connection after `Introduce`.
    Told {
        stranger: u64,
        pid: u32,
        message: ToNode,
    },
    /// A message of a driver, worker or tool; a worker's first one is its hello.
    Heard {
        from: ProcessId,
        message: ToNode,
    },
    /// What it sent is no message.
    Broke {
        process: ProcessId,
        what: String,
    },
    /// More waits for it than it may leave unread. It is told nothing more; what it says is heard on.
    DoesNotRead {
        process: ProcessId,
    },
    /// Its connection ended; all that came on it was handed over.
    Closed {
        process: ProcessId,
    },
    /// A driver has nothing of the store mapped any more: it is dead, or has dropped its last array.
    Unmapped {
        process: ProcessId,
    },
    /// The zygote made it.
    Forked {
        process: ProcessId,
        pid: u32,
    },
    ForkFailed {
        process: ProcessId,
        reason: String,
    },
    /// Its runtime environment cannot be made.
    ForkRefused {
        process: ProcessId,
        reason: String,
    },
    /// Nobody will make it, for no reason of its own: the zygote died with others before it.
    ForkUndone {
        process: ProcessId,
    },
    /// A builder has made the Python of an environment; forks that name it start in it from now on.
    EnvironmentMade {
        ticket: u64,
    },
    /// It could not, or was stopped. `why`: what it said last.
    EnvironmentFailed {
        ticket: u64,
        why: String,
    },
    /// The kernel says that it has ended. `status_follows`: the zygote lives and will tell its exit status.
    Ended {
        process: ProcessId,
        status_follows: bool,
    },
    /// The zygote says how it ended: an exit code, or minus a signal.
    Exited {
        process: ProcessId,
        status: i32,
    },
    /// What it printed last, and what the kernel killed it for, if it did.
    Examined {
        process: ProcessId,
        last_lines: Vec<String>,
        verdict: Option<DeathCause>,
    },
    Freed {
        ticket: u64,
        result: FreeOutcome,
    },
    Spilled {
        ticket: u64,
        result: SpillOutcome,
    },
    Restored {
        ticket: u64,
        result: Result<u32, String>,
    },
    Reserved {
        ticket: u64,
        result: Result<(), String>,
    },
    /// From here on every socket is read once.
    SweepBegins,
    /// Every socket was read, and all of it was handed over.
    Swept,
    /// The control store's answer.
    Answered {
        ask: u64,
        answer: Answer,
    },
    /// Bytes: of the machine, and of those that were asked about and live.
    Measured {
        total: u64,
        available: u64,
        used: Vec<(ProcessId, u64)>,
    },
    /// Another node's decider says this. `cover`: under which it holds the refs that the message names.
    Peer {
        from: NodeNumber,
        cover: u64,
        message: Box<Peer>,
    },
    /// What the node table says of a node, as of this entry of the store. All that came from that node before was
    /// handed in, and of a dead one nothing comes any more.
    Member {
        entry: Box<NodeEntry>,
        index: u64,
    },
    /// The head says nothing, since then: its machine refuses, or is silent.
    HeadSilent {
        since: Instant,
    },
    HeadHeard,
    /// No connection to that node comes about, since then, and nobody has declared it dead.
    NodeUnreached {
        node: NodeNumber,
        since: Instant,
    },
    /// It is, or says something again.
    NodeReached {
        node: NodeNumber,
    },
    /// A frame waits to leave this node, or to be handed to a process of it: answered by `Go`. All that its sender, if that
    /// is a process of this node, wrote to its socket before was handed in.
    Passing {
        ticket: u64,
        frame: Passing,
    },
    /// Between a process of this node and a far one: all replies that there were are in their ring (of a caller here), and no
    /// more come. `unstarted`: tags of calls that left the caller's ring and that the worker never took.
    ChannelEnded {
        caller: ProcessId,
        worker: ProcessId,
        unstarted: Vec<u64>,
        obituary: Obituary,
    },
    /// What workers of a job printed, for its driver, which is at another node.
    Printed {
        driver: ProcessId,
        message: Box<ToClient>,
    },
    /// The answer to `RevokeFar`.
    CallsRevoked {
        caller: ProcessId,
        worker: ProcessId,
        seqs: Vec<u64>,
        kept: Vec<u64>,
    },
    /// The answer to `ReportPart`.
    Written {
        node: NodeNumber,
        request: u64,
        result: Result<String, String>,
    },
    /// The shell did this of what `Haul` told it.
    Hauled {
        done: transfer::Done,
    },
    /// The node is to end: drivers are dropped at once, workers are told to exit.
    Stop {
        why: String,
    },
    /// The same of a node that is dead to others, or will be: they go on without it. So from now on nobody hears from it. Else
    /// its workers would end twice, once by its word and once by its death, and each would cost an actor a restart.
    Fenced {
        why: String,
    },
    /// `next_deadline` has come (earlier does no harm).
    Tick,
}

/// A frame between nodes that names refs, or that ends a call that named some.
#[derive(Clone, Debug, PartialEq)]
pub struct Passing {
    pub caller: ProcessId,
    pub worker: ProcessId,
    /// Of the call.
    pub tag: u64,
    pub is_reply: bool,
    /// Absent: it leaves this node. Else its sender's number and cover.
    pub arrived: Option<u64>,
    /// Of a call each once. Of a reply once for each token that it brings: values that are stored, and what lies in others.
    pub named: Vec<ObjectId>,
    /// Nothing more comes of this call.
    pub is_last: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// `Welcome` takes the store's descriptors along (but not to tools), `Connected` the one that came with
    /// the `Connect` that is being handled.
    Send {
        to: ProcessId,
        message: ToClient,
    },
    /// A driver is at the other end of this connection and has more to say, up to `JOB_BYTES_MAX`: that is
    /// `Told`, with this pid.
    Introduce {
        stranger: u64,
        pid: u32,
    },
    /// This connection is the process's from now on.
    Accept {
        stranger: u64,
        process: ProcessId,
        kind: Kind,
    },
    /// Tell it why (`Refused`), then close its connection.
    Refuse {
        stranger: u64,
        reason: String,
    },
    /// Close its connection.
    HangUp {
        process: ProcessId,
    },
    /// Make a worker with a connection of its own: answered by `Forked`, `ForkFailed` or `ForkRefused`.
    Fork {
        process: ProcessId,
        config: Arc<JobConfig>,
        env: RuntimeEnv,
    },
    /// Start a builder for the Python of an environment: answered by `EnvironmentMade` or `EnvironmentFailed`.
    MakeEnvironment {
        ticket: u64,
        python: PythonEnv,
    },
    /// End that builder, with what it started.
    StopMaking {
        ticket: u64,
    },
    /// No worker will start in it: others may remove it.
    LetGoEnvironment {
        python: PythonEnv,
    },
    /// The zygote may import these before it forks.
    Preload {
        modules: Vec<String>,
    },
    /// Report when it has ended.
    Watch {
        process: ProcessId,
        pid: u32,
    },
    /// End it at once, with what it started.
    Kill {
        process: ProcessId,
        pid: u32,
    },
    /// It is dead: read what it printed to the end, show it, ask the kernel why; then report `Examined`.
    Examine {
        process: ProcessId,
    },
    /// Nothing is said to it any more. (Whoever waited for it ends what it left behind.) Of a driver `Unmapped` is reported when it is
    /// so, at once if nobody can tell.
    Bury {
        process: ProcessId,
        kind: Kind,
        pid: u32,
    },
    /// It reads and writes nothing in the store any more: wipe its pins.
    Wipe {
        process: ProcessId,
    },
    /// At the end of the batch: report `SweepBegins`, read every socket once, report `Swept`.
    Sweep,
    /// Close the state word, check the pins, free the word; then report `Freed`.
    Free {
        ticket: u64,
        object: ObjectId,
        location: Location,
    },
    /// Close the word, check the pins, write the bytes, free the word; then report `Spilled`.
    Spill {
        ticket: u64,
        object: ObjectId,
        location: Location,
        place: SpillPlace,
    },
    /// See that the bytes can be read where they are, seal the slot; then report `Restored`.
    Restore {
        ticket: u64,
        object: ObjectId,
        place: SpillPlace,
        slot: u32,
    },
    /// Take disk space for these bytes of the spill file; then report `Reserved`.
    Reserve {
        ticket: u64,
        place: SpillPlace,
    },
    /// Nothing lies in `range` of the spill file any more, nor from `end` on: give the disk space back.
    ForgetSpilled {
        range: Range<u64>,
        end: u64,
    },
    /// A dead process had these and no object lies in them: make each word free.
    ResetSlots {
        slots: Vec<u32>,
    },
    /// Give this memory of the store back to the system.
    Punch {
        offset: u64,
        len: u64,
    },
    /// Tables that were large are small: free memory of the process may go back to the system, when it is idle.
    ReturnMemory,
    /// Write a row; `last`: it does not change any more. Where that fails, log why.
    Save {
        key: Key,
        value: Vec<u8>,
        last: bool,
    },
    /// Delete a row.
    Forget {
        key: Key,
    },
    /// Ask the control store: answered by `Answered`, perhaps in a later turn. What is said to be written is kept.
    Ask {
        ask: u64,
        question: Question,
    },
    /// To another node's decider, in order.
    SendPeer {
        to: NodeNumber,
        cover: u64,
        message: Box<Peer>,
    },
    /// Of a head: all nodes that live have passed every death up to this entry of the store. Rows that say `Dead` since then or
    /// before are to say so (`settled`).
    Settle {
        epoch: u64,
    },
    /// The answer to `Passing`: it goes on, under this cover where it leaves this node (0: it names nothing).
    Go {
        ticket: u64,
        cover: u64,
    },
    /// The descriptor that came with the `Connect` that is being handled is of the channel of `caller`, a process here, to a
    /// far worker.
    OpenFar {
        caller: ProcessId,
        worker: ProcessId,
    },
    /// Make a channel for the calls of a far caller to a worker of this node, and tell that one (`Connected`).
    ServeFar {
        caller: ProcessId,
        worker: ProcessId,
    },
    /// The caller is gone: nothing of that pair is of use any more.
    CloseFar {
        caller: ProcessId,
        worker: ProcessId,
    },
    /// The worker, of this node, is gone: its last replies go, then the caller's node hears of it.
    WorkerGone {
        caller: ProcessId,
        worker: ProcessId,
        obituary: Obituary,
    },
    /// Take these calls of a process of this node back from a far worker: answered by `CallsRevoked`, or by the end of the pair.
    RevokeFar {
        caller: ProcessId,
        worker: ProcessId,
        seqs: Vec<u64>,
    },
    /// Move bytes between the store and other nodes (`crates/core/src/transfer`).
    Haul {
        order: transfer::Order,
    },
    /// Report what these use, with what they started, and what the machine has: `Measured`.
    Measure {
        processes: Vec<(ProcessId, u32)>,
    },
    /// The kernel is to kill it when it takes more bytes, where it can.
    Confine {
        process: ProcessId,
        pid: u32,
        limit_bytes: u64,
    },
    Unconfine {
        process: ProcessId,
    },
    /// Write this as JSON, with what other nodes told, and send it as the `Answer` to that request.
    Report {
        to: ProcessId,
        request: u64,
        report: Report,
        others: Others,
    },
    /// Write what this node alone has for it as JSON, for another node: answered by `Written`.
    ReportPart {
        node: NodeNumber,
        request: u64,
        report: Report,
    },
    /// For people who look after the fact.
    Log {
        text: String,
    },
    /// A step, for the story.
    Note {
        line: String,
    },
    /// From here on everybody is sent away.
    Stopping {
        why: String,
    },
    /// All is told: the shell may end.
    Stopped,
}

impl Effect {
    /// Another node, or who reads the control store, would hear of it. So would a caller whose reply goes on: what lies in it might
    /// be here alone.
    pub(super) fn is_for_others(&self) -> bool {
        let to_store = matches!(
            self,
            Self::Save { .. } | Self::Forget { .. } | Self::Ask { .. } | Self::Settle { .. }
        );
        to_store || matches!(self, Self::SendPeer { .. } | Self::Go { .. })
    }
}

/// To the control store.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// Answered by `Rows`, in this order.
    Get { keys: Vec<Key> },
    /// Answered by `Written`.
    Put { key: Key, value: Vec<u8> },
    /// Writes only if there is no such row: answered by `Found`.
    Create { key: Key, value: Vec<u8> },
    /// Answered by `Found`.
    Delete { key: Key },
    /// Answered by `Keys`, in order, at most [`super::KEYS_MAX`].
    List { table: Table, prefix: Vec<u8> },
    /// Rows in order of their keys, from that key on: answered by `Page`.
    Scan { table: Table, prefix: Vec<u8>, from: Option<Vec<u8>> },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Values, absent where there is no row.
    Rows(Result<Vec<Option<Vec<u8>>>, Refusal>),
    Written(Result<(), Refusal>),
    /// The value of the row that was there.
    Found(Result<Option<Vec<u8>>, Refusal>),
    Keys(Result<Vec<Vec<u8>>, Refusal>),
    Page(Result<RowsPage, Refusal>),
}

/// Some rows in order of their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowsPage {
    /// Keys and values.
    pub rows: Vec<(Vec<u8>, Vec<u8>)>,
    /// Where the next page begins; absent after the last one.
    pub next: Option<Vec<u8>>,
}
