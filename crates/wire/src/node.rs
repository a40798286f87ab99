//! Messages between a process and its node daemon, over one unix stream socket.
//!
//! Each message is a `u32` length and its postcard bytes; `fds` says how many descriptors came with
//! it. Messages from one process arrive in order. Between two processes there is one guarantee, on
//! which reference counting rests (ARCHITECTURE.md, "References"): **what a process wrote to its socket
//! before it wrote into another's ring is handled before anything that the other writes because of
//! it is allowed to free something.** The daemon gets it by sweeping all sockets once before it frees
//! an object, or answers that one is unknown.

use std::collections::BTreeMap;

use hoplo_base::{
    ActorId, FunctionId, JobId, LeaseId, NodeNumber, ObjectId, ProcessId, ResourceSet, TaskId,
};
use serde::{Deserialize, Serialize};

pub use crate::obituary::{DeathCause, Obituary};
use crate::object::{Failure, Location, Value};
use crate::why::{Question, Told};

/// What a task needs: tasks of equal shape share leases.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Shape {
    pub resources: ResourceSet,
    pub env: RuntimeEnv,
}

/// The parts of a runtime environment that are set in a forked worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RuntimeEnv {
    pub env_vars: BTreeMap<String, String>,
    /// Absolute path; the worker's current directory and first place to import from.
    pub working_dir: Option<String>,
    /// Absolute paths to import from.
    pub py_modules: Vec<String>,
}

/// What a driver tells about its program; workers of the job take it over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobConfig {
    pub cwd: String,
    pub sys_path: Vec<String>,
    pub namespace: String,
    /// Lines that workers print come to the driver as `Output`.
    pub log_to_driver: bool,
    /// Modules that the driver has imported and the zygote may import before it forks.
    pub preload: Vec<String>,
    /// What the program was started as, for `hoplo status`.
    pub entrypoint: String,
    /// The job's own environment; a task's or actor's is laid over it by the client.
    pub env: RuntimeEnv,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Tells its `Job` next.
    Driver,
    /// On the socket that the zygote handed over; the daemon knows which worker it is.
    Worker,
    /// The `hoplo` command: queries only.
    Tool,
}

/// Process to daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToNode {
    /// First on every connection, and short: the daemon has checked the peer's user id before it reads on.
    Hello {
        protocol: u32,
        version: String,
        pid: u32,
        role: Role,
    },
    /// From a driver, second: what it is for. Then comes the Welcome.
    Job(Box<JobConfig>),

    /// This process could use `wanted` more leases of this shape now (absolute, replaces the last
    /// word on it; each grant lowers it by one).
    LeaseDemand {
        key: u32,
        shape: Shape,
        wanted: u32,
    },
    LeaseReturn {
        lease: LeaseId,
    },
    /// From a worker: its task waits in `get`; its CPU may be lent meanwhile.
    Blocked,
    Unblocked,
    /// One descriptor: the channel that the sender made for its calls to `to`.
    Connect {
        to: ProcessId,
    },
    /// From a worker: the title of what it is now ("Counter", "f"), for prefixes and listings.
    Title {
        title: String,
    },

    /// A piece of the arena of at least `bytes`, and `slots` object-state slots.
    ExtentWant {
        request: u64,
        bytes: u64,
        slots: u32,
    },
    /// A wholly free part of what was granted; of what was granted in the spill file, all of it.
    ExtentReturn {
        offset: u64,
        len: u64,
    },
    Notices(Vec<Notice>),
    /// Tell me (`Ready`) when each of these has a value that this process can read here.
    Want {
        objects: Vec<ObjectId>,
    },

    Export {
        function: FunctionId,
        bytes: Vec<u8>,
        contains: Vec<ObjectId>,
    },
    Fetch {
        function: FunctionId,
    },

    ActorCreate {
        request: u64,
        spec: Box<ActorSpec>,
        get_if_exists: bool,
    },
    /// Tell me (`ActorState`) now and at every change.
    ActorWatch {
        actor: ActorId,
    },
    ActorKill {
        actor: ActorId,
        no_restart: bool,
    },
    ActorLookup {
        request: u64,
        namespace: String,
        name: String,
    },
    /// From the actor's worker: the constructor returned, or raised.
    ActorStarted {
        actor: ActorId,
        incarnation: u32,
        result: Result<(), Failure>,
    },
    /// From the actor's worker: it leaves on its own will (`exit_actor`); not restarted.
    ActorExit {
        actor: ActorId,
    },

    Tell {
        to: ProcessId,
        message: Tell,
    },
    /// A worker of mine takes no more calls, and ends when all that it submitted is done: nobody is to be granted
    /// it after me.
    Retires {
        worker: ProcessId,
    },
    /// Kill a worker that runs a task of mine (`cancel(force=True)`).
    KillWorker {
        worker: ProcessId,
    },
    /// The channel for calls to `worker`, which is me or has a channel with me, is of no more use: nobody would
    /// hear of the calls in it again. The worker ends, for this reason.
    ChannelBroken {
        worker: ProcessId,
        why: String,
    },

    Kv {
        request: u64,
        namespace: String,
        operation: KvOperation,
    },
    /// Asks the daemon; kinds are listed in ARCHITECTURE.md. The answer is JSON text.
    Query {
        request: u64,
        kind: String,
        argument: String,
    },
    /// Answer to `Inspect`, JSON text.
    Inspected {
        request: u64,
        json: String,
    },
    /// Answer to `Explain`.
    Explained {
        request: u64,
        told: Told,
    },
    /// What this process counted since the last word on it.
    Counted(Counters),
    /// The whole node is to stop (`hoplo stop`).
    Stop,
}

/// Daemon to process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToClient {
    /// Three descriptors for drivers and workers: metadata segment, arena, spill file. None for tools.
    Welcome(Welcome),
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
    /// Why demand of this shape cannot be met now; `None` when it is met again. `infeasible`: this
    /// node can never meet it.
    LeaseStuck {
        key: u32,
        reason: Option<String>,
        infeasible: bool,
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
    ProcessGone {
        process: ProcessId,
        obituary: Obituary,
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
    /// Give back free ranges (`ExtentReturn`), at least so many bytes if you can.
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

    Function {
        function: FunctionId,
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
    },

    Told {
        from: ProcessId,
        message: Tell,
    },
    KvAnswer {
        request: u64,
        value: Option<Vec<u8>>,
        keys: Vec<Vec<u8>>,
        /// Nothing was written, for this reason.
        refused: Option<String>,
    },
    Answer {
        request: u64,
        result: Result<String, String>,
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
        stderr: bool,
        lines: Vec<String>,
    },
    /// Finish what lies in your rings if `graceful`, then exit.
    Exit {
        graceful: bool,
        reason: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    pub process: ProcessId,
    pub node: NodeNumber,
    pub job: JobId,
    pub arena_bytes: u64,
    pub session_dir: String,
    /// The job's, for workers.
    pub config: JobConfig,
    /// First object-state slots.
    pub slots: Vec<u32>,
    /// What the node has in all.
    pub resources: ResourceSet,
}

/// Facts about objects, batched; each is about the sender unless it names a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// The sender wrote and sealed this in one of its extents; `holder` holds its first reference.
    Sealed { object: ObjectId, location: Location, contains: Vec<ObjectId>, holder: ProcessId },
    /// The sender sealed this and nobody else ever saw its ref: its range and slot are already in
    /// use again by the sender. Always follows its `Sealed`.
    Freed { object: ObjectId },
    /// A ref of an object that the sender owns and that is not in the store leaves the sender. The
    /// sender holds it.
    Shared { object: ObjectId, state: SharedState },
    /// An object that was shared while pending has its value now (inline or failed; a stored one
    /// is told by `Sealed` of its writer).
    Fulfilled { object: ObjectId, value: Value, contains: Vec<ObjectId> },
    /// One more **token** for `process`: it holds a reference (told on its behalf, or its own).
    /// Holders are counted, not a set: a token may arrive on behalf of a process that gives its older
    /// ones back at the same moment. `Sealed` gives its `holder` one token, `Shared` its sender
    /// one, `ActorCreate` its sender one on the actor's handle, `ActorFound` and
    /// `ActorCreated::Existing` the asker one.
    Hold { object: ObjectId, process: ProcessId },
    /// The sender gives back so many of its tokens. A process with tokens left still holds.
    Released { object: ObjectId, tokens: u32 },
    /// The tokens that the sender gives `to` from here on go with its next reply to `to`; those
    /// before went with replies that are written.
    Replying { to: ProcessId },
    /// `from` is dead, and its replies brought the sender so many tokens in all: what it gave the sender
    /// beyond these never arrived.
    RepliesEnded { from: ProcessId, tokens: u64 },
}

impl Notice {
    /// How many refs it lists.
    #[inline]
    pub fn refs(&self) -> usize {
        match self {
            Notice::Sealed { contains, .. }
            | Notice::Fulfilled { contains, .. }
            | Notice::Shared { state: SharedState::Value { contains, .. }, .. }
            | Notice::Shared {
                state: SharedState::Pending { lineage: Some(Lineage { contains, .. }) },
                ..
            } => contains.len(),
            Notice::Shared { state: SharedState::Pending { lineage: None }, .. }
            | Notice::Freed { .. }
            | Notice::Hold { .. }
            | Notice::Released { .. }
            | Notice::Replying { .. }
            | Notice::RepliesEnded { .. } => 0,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SharedState {
    /// Not computed yet. `lineage`: the call that makes it, for whoever adopts it when its owner
    /// dies; `None` for what cannot run again (method calls).
    Pending {
        lineage: Option<Lineage>,
    },
    Value {
        value: Value,
        contains: Vec<ObjectId>,
    },
}

/// A task that any process may run again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    pub task: TaskId,
    pub shape: Shape,
    /// The call frame, refs without values where they are shared themselves.
    pub frame: Vec<u8>,
    /// Every ref in it: top-level, inside arguments, and inside the values of refs that travel in it.
    pub contains: Vec<ObjectId>,
    pub retries: i32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorSpec {
    pub actor: ActorId,
    pub class_name: String,
    /// Empty for none: read it by `name()`.
    pub name: String,
    pub namespace: String,
    pub detached: bool,
    /// What must be free to start it.
    pub shape: Shape,
    /// What it keeps while it lives.
    pub held: ResourceSet,
    /// -1 is for ever.
    pub max_restarts: i32,
    /// Call frame of the constructor (`CallKind::Create`).
    pub frame: Vec<u8>,
    /// Refs in the constructor's arguments: held by the daemon while the actor may start again.
    pub contains: Vec<ObjectId>,
    /// What a handle needs (methods, options); opaque, made and read by the Python side.
    pub handle: Vec<u8>,
}

impl ActorSpec {
    /// By which others find it.
    pub fn name(&self) -> Option<&str> {
        (!self.name.is_empty()).then_some(self.name.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorFound {
    pub actor: ActorId,
    pub handle: Vec<u8>,
    /// It was lost with an earlier daemon, and nobody took its name since.
    pub dead: Option<Failure>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActorCreated {
    New,
    /// `get_if_exists` found one.
    Existing(ActorFound),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActorState {
    /// Waits for resources or for its constructor.
    Pending {
        reason: String,
        infeasible: bool,
    },
    Alive {
        incarnation: u32,
        worker: ProcessId,
    },
    Restarting {
        incarnation: u32,
        cause: String,
    },
    Dead {
        failure: Failure,
    },
}

/// Between two processes where a ring will not do (the other's main thread may be busy).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tell {
    Cancel {
        task: TaskId,
        recursive: bool,
    },
    /// The stream's reader has taken `count` items.
    Consumed {
        task: TaskId,
        count: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KvOperation {
    Get {
        key: Vec<u8>,
    },
    /// `value` is the old one if `overwrite` is false and there was one.
    Put {
        key: Vec<u8>,
        value: Vec<u8>,
        overwrite: bool,
    },
    Delete {
        key: Vec<u8>,
    },
    Keys {
        prefix: Vec<u8>,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    pub tasks_finished: u64,
    pub method_calls_finished: u64,
    pub objects_stored: u64,
    pub bytes_stored: u64,
}

/// A message could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message of {len} bytes does not parse: {cause}")]
pub struct NodeCodecError {
    pub len: usize,
    pub cause: String,
}

/// Length prefix and body, appended to `out`.
pub fn encode<M: Serialize>(message: &M, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    encode_body(message, out);
    let len = u32::try_from(out.len() - start - 4).expect("messages are below 4 GiB");
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
}

/// The body alone, appended to `out`.
pub fn encode_body<M: Serialize>(message: &M, out: &mut Vec<u8>) {
    *out = postcard::to_extend(message, std::mem::take(out))
        .expect("our own messages always serialize into memory");
}

/// The body, without its length prefix.
pub fn decode<'a, M: Deserialize<'a>>(body: &'a [u8]) -> Result<M, NodeCodecError> {
    let error = |cause: String| NodeCodecError { len: body.len(), cause };
    let (message, rest) =
        postcard::take_from_bytes(body).map_err(|cause| error(cause.to_string()))?;
    if rest.is_empty() { Ok(message) } else { Err(error("bytes left over".to_string())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_and_rubbish_is_an_error() {
        let message = ToNode::LeaseDemand {
            key: 3,
            shape: Shape {
                resources: ResourceSet::from_units([("CPU", 0.5)]).unwrap(),
                env: RuntimeEnv::default(),
            },
            wanted: 7,
        };
        let mut out = vec![9];
        encode(&message, &mut out);
        assert_eq!(out[1..5], ((out.len() - 5) as u32).to_le_bytes());
        assert_eq!(decode::<ToNode>(&out[5..]), Ok(message));
        for len in 0..out.len() - 5 {
            assert!(decode::<ToNode>(&out[5..5 + len]).is_err());
        }
        assert!(decode::<ToNode>(&[0xff; 40]).is_err());
    }
}
