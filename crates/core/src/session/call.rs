//! A call as the application makes it, before it has a worker.

use std::sync::Arc;

use hoplo_base::{FunctionId, JobId, ObjectId, ProcessId, limits};
use hoplo_wire::node::Shape;
use hoplo_wire::{Location, Value};
use smallvec::SmallVec;

/// Values of a call, each with the refs that lie inside it; nearly always there is one.
pub(super) type Values = SmallVec<[(Value, Vec<ObjectId>); 1]>;

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Waiting,
    Queued,
    Placed {
        worker: ProcessId,
    },
    /// The daemon's word ends it.
    Promised,
    Limbo,
}

impl Stage {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Waiting | Stage::Promised => "waiting",
            Stage::Queued => "queued",
            Stage::Placed { .. } => "running",
            Stage::Limbo => "worker lost",
        }
    }
}

/// What all calls of one remote function (or method) share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallOptions {
    pub function: FunctionId,
    /// For messages: `f`, `Counter.add`. It was `hoplo_base::shown`.
    pub name: Arc<str>,
    /// What a task needs; ignored for methods.
    pub shape: Arc<Shape>,
    /// Values returned; ignored when streaming.
    pub returns: u32,
    /// `hoplo_wire::call::CALL_*`.
    pub flags: u8,
    /// Runs after the first when the worker dies (or, by flags, when the user's code raises); -1 is
    /// no limit.
    pub max_retries: i32,
    /// The worker exits after so many calls; 0 is never.
    pub max_calls: u32,
    /// Of a task that was adopted of another job, where its function was exported: that one; else it is the process's.
    pub job: Option<JobId>,
    /// For a stream: how many untaken items stop the producer; 0 is no limit.
    pub stream_ahead: u32,
    /// For methods: calls that this process may have unfinished on the actor; 0 is no limit.
    pub max_pending_calls: u32,
    /// Its runs are told to the daemon, for `timeline` and listings.
    pub remembered: bool,
    /// It belongs where the first ref inside its arguments lies, or its first argument, however small (`near`).
    pub near_first: bool,
    /// For methods: while it waits for its arguments, later calls go before it.
    pub may_be_overtaken: bool,
}

/// One call.
#[derive(Clone, Debug)]
pub struct Call {
    pub options: Arc<CallOptions>,
    /// Encoded arguments; top-level refs are named in it by their index in `refs`.
    pub args: Vec<u8>,
    /// Top-level refs: their values are put in place of them.
    pub refs: Vec<ObjectId>,
    /// Refs that lie inside argument values: they are passed as refs.
    pub nested: Vec<ObjectId>,
    /// The arguments are more than a frame takes: they lie in a stored object, `refs[0]`, which holds all other
    /// refs. Those are only waited for.
    pub packed: bool,
}

impl Call {
    /// Whether so many bytes of arguments and so many refs fit a frame, wherever the refs' values lie.
    pub fn fits_frame(args_bytes: usize, refs: usize) -> bool {
        args_bytes + refs * Location::ARGUMENT_BYTES <= limits::CALL_INLINE_BYTES_MAX
    }

    /// The refs that are named in the frame.
    pub(super) fn refs_in_frame(&self) -> &[ObjectId] {
        if self.packed { &self.refs[..1] } else { &self.refs }
    }

    /// Bytes that values of refs may take in the frame, beyond those of a place in the store.
    pub(super) fn inline_budget(&self) -> usize {
        let refs = self.refs_in_frame().len() * Location::ARGUMENT_BYTES;
        limits::CALL_INLINE_BYTES_MAX.saturating_sub(self.args.len() + refs)
    }
}

/// The call was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// `max_pending_calls` of the actor is reached; take results first.
    #[error(
        "the actor has {pending} unfinished calls of this process, its max_pending_calls; get some results first"
    )]
    PendingCallsLimit { pending: u32 },
}
