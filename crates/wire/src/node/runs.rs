//! What a process tells its daemon of the calls that it made and that have ended.

use hoplo_base::{ActorId, ProcessId, TaskId};
use serde::{Deserialize, Serialize};

use crate::object::FailureKind;

/// Runs that have ended, in the order in which their caller heard of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Runs {
    /// What several runs have in common.
    pub calls: Vec<RunCall>,
    pub runs: Vec<Run>,
    /// How many more there were since the last word: too many to tell.
    pub untold: u64,
}

/// What was called, and what it needed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunCall {
    /// `f`, `Counter.add`, or the name that was given to the call.
    pub name: String,
    /// In units; of a method nothing.
    pub resources: Vec<(String, f64)>,
}

/// One run of a call: a call that is tried again has several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub task: TaskId,
    pub attempt: u32,
    /// Its place in `Runs::calls`.
    pub call: u32,
    /// The actor whose method it was.
    pub actor: Option<ActorId>,
    /// The task that called.
    pub parent: Option<TaskId>,
    /// Where it ran, or was to run. Absent: it was given to nobody.
    pub worker: Option<ProcessId>,
    /// Nanoseconds of the CLOCK_MONOTONIC of the worker's machine; 0 if it is not known whether it began.
    pub started_ns: u64,
    pub ran_ns: u64,
    /// So long before this was told its caller heard of its end, in microseconds.
    pub ago_us: u64,
    pub failure: Option<Box<RunFailure>>,
}

/// Why a run has no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFailure {
    pub kind: FailureKind,
    /// `ValueError: no such thing`; cut.
    pub text: String,
}
