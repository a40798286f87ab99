//! What a process says to its daemon.

use std::sync::Arc;

use hoplo_base::limits::TOOL_MESSAGE_BYTES_MAX;
use hoplo_base::{ActorId, FunctionId, GroupId, JobId, LeaseId, ObjectId, ProcessId};
use serde::{Deserialize, Serialize};

use super::{
    ActorSpec, Checkpoint, Counters, GroupSpec, JobConfig, KvOperation, LoggedCall, Notice, Role,
    Runs, Shape, Tell,
};
use crate::assembly::Part;
use crate::fold::Wish;
use crate::object::Failure;
use crate::reason::Reason;
use crate::why::Told;

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
        shape: Arc<Shape>,
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
    /// From a worker: it was told that this process is gone, and has told what it uses of what calls of that one name, which go on here.
    TookOver {
        caller: ProcessId,
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
    /// The answer to one `ExtentRecall`: what could be given back, if anything, was.
    ExtentRecalled,
    Notices(Vec<Notice>),
    /// Tell me (`Ready`) when each of these has a value that this process can read here.
    Want {
        objects: Vec<ObjectId>,
    },
    /// Tell me (`Ready`) when each of these has a value. Where its bytes would have to be fetched first, the location is
    /// `Location::elsewhere`, or `Location::ASK` if no node is known that has them.
    WantWord {
        objects: Vec<ObjectId>,
    },
    /// A worker found that the bytes of these are no more where they were said to be. So who asks for them next is answered by their
    /// home.
    Misplaced {
        objects: Vec<ObjectId>,
    },

    /// Fold these, which lie in stores and which the sender holds, into one object at this node, on their way here. Answered by
    /// `Reduced`. `more`: others come with `ReduceMore`, for a wish for all.
    Reduce {
        request: u64,
        wish: Wish,
        members: Vec<ObjectId>,
        more: bool,
    },
    ReduceMore {
        request: u64,
        members: Vec<ObjectId>,
        more: bool,
    },
    /// What was said to be lost of reduce `was`, which `goes_on`, is there again. Answered by `Reduced`.
    ReduceMended {
        request: u64,
        was: u64,
    },
    /// I wait no more for that: it is to be answered at once. If it was answered already: it does not become what `for_all` names.
    ReduceOver {
        request: u64,
    },

    /// Bring these parts of objects, which the sender holds, into one room of so many bytes at this node. They are of other nodes, in the order of `at`, and do not
    /// overlap there. What lies between them is the sender's to write. Answered by `Assembled`.
    Assemble {
        request: u64,
        bytes: u64,
        parts: Vec<Part>,
    },
    /// I wait no more for that: it is to be answered at once.
    AssembleOver {
        request: u64,
    },

    Export {
        function: FunctionId,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        contains: Vec<ObjectId>,
    },
    /// `call`: the job of the call that needs it, which may be another one's than the sender, and the process that submitted that call first.
    Fetch {
        function: FunctionId,
        call: Option<(JobId, ProcessId)>,
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
    /// `of`: only if it lives in this worker; absent: wherever it lives.
    ActorKill {
        actor: ActorId,
        no_restart: bool,
        of: Option<ProcessId>,
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
    /// From the actor's worker: it cannot go on, and no restart would help.
    ActorFailed {
        actor: ActorId,
        failure: Failure,
    },
    /// From the worker of an actor with checkpoints: this call begins, behind all before it. Of another node, it is answered by
    /// `CallsLogged`, and no reply leaves before.
    CallLogged {
        actor: ActorId,
        incarnation: u32,
        call: Box<LoggedCall>,
    },
    /// From the same: the log up to there is not needed any more.
    Checkpointed {
        actor: ActorId,
        incarnation: u32,
        checkpoint: Box<Checkpoint>,
    },

    /// Answered by `GroupCreated`.
    GroupCreate {
        request: u64,
        spec: Box<GroupSpec>,
    },
    GroupRemove {
        group: GroupId,
    },
    /// Answered by `GroupState` once it is created, or removed; before, by what it waits for, each time that this is something else.
    GroupWatch {
        request: u64,
        group: GroupId,
    },
    /// I wait no more for that answer.
    GroupUnwatch {
        request: u64,
        group: GroupId,
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
    /// Take these calls back from a worker of another node, if it has not taken them: answered by `Revoked`, or by `ProcessGone`.
    /// They have left my ring.
    RevokeFar {
        worker: ProcessId,
        seqs: Vec<u64>,
    },
    /// Kill a worker that runs a task of mine (`cancel(force=True)`).
    KillWorker {
        worker: ProcessId,
    },
    /// The channel for calls to `worker`, which is me or has a channel with me, is of no more use: nobody would
    /// hear of the calls in it again. The worker ends, for this reason.
    ChannelBroken {
        worker: ProcessId,
        why: Reason,
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
    /// What it called and what has ended, since the last word on it.
    Ran(Runs),
    /// The whole node is to stop (`hoplo stop`).
    Stop,
}

impl ToNode {
    /// The question with a request's number. Refuses one that does not fit into a tool's message: the daemon would
    /// close the connection.
    pub fn question(kind: &str, argument: &str) -> Result<impl FnOnce(u64) -> ToNode, String> {
        let bytes = kind.len() + argument.len();
        if bytes > QUESTION_BYTES_MAX {
            return Err(format!(
                "the question has {bytes} bytes, and may have {QUESTION_BYTES_MAX}: give an id as errors and lists show it"
            ));
        }
        let (kind, argument) = (kind.to_string(), argument.to_string());
        Ok(|request| ToNode::Query { request, kind, argument })
    }
}

const QUESTION_BYTES_MAX: usize = TOOL_MESSAGE_BYTES_MAX / 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::encode;

    #[test]
    fn a_question_that_was_too_long_was_said_to_have_found_no_daemon() {
        let longest = "x".repeat(QUESTION_BYTES_MAX - "why".len());
        let mut bytes = Vec::new();
        encode(&ToNode::question("why", &longest).unwrap()(u64::MAX), &mut bytes);
        assert!(bytes.len() <= TOOL_MESSAGE_BYTES_MAX);
        let refused = ToNode::question("why", &format!("{longest}x")).err().unwrap();
        assert!(refused.contains("32769 bytes") && refused.contains("give an id"), "{refused}");
    }
}
