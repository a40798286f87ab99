//! What the node knows of one process.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::{Instant, JobId, ProcessId, TaskId};
use hoplo_wire::node::{DeathCause, Tell};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Driver,
    Worker,
    /// The `hoplo` command: it has no slot.
    Tool,
}

/// Whether its pid is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Birth {
    /// The zygote was asked to make it. `doomed`: it is to be killed as soon as its pid comes.
    Awaited { doomed: bool },
    /// 0: a driver of another pid namespace.
    Known { pid: u32 },
}

/// How far it is from its fork to its burial. `ticket` is of the effect that asked for the start; it stays as long as the
/// process has not said hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Starting {
        ticket: u64,
    },
    /// It said hello, and its connection is open.
    Greeted,
    /// Its connection is closed, and nothing was heard of its end yet.
    Closed {
        ticket: Option<u64>,
    },
    /// It has ended, and its exit status may come.
    Ended {
        ticket: Option<u64>,
    },
    /// The shell looks at what it left.
    Examined {
        ticket: Option<u64>,
    },
}

#[derive(Debug)]
pub struct Process {
    pub id: ProcessId,
    pub kind: Kind,
    pub birth: Birth,
    pub stage: Stage,
    /// 0, which is no job, until its first message was answered, and of a tool.
    pub job: JobId,
    pub since: Instant,
    /// What it runs, by its own word.
    pub title: String,
    /// Processes that it has a channel with, in either direction.
    pub(super) peers: BTreeSet<ProcessId>,
    /// Cancels of tasks that it makes, said after it closed its connection: for who adopts them.
    pub(super) unheard: BTreeMap<TaskId, (ProcessId, Tell)>,
    /// Why we ended it.
    pub(super) cause: Option<DeathCause>,
    /// Exit code, or minus a signal.
    pub(super) status: Option<i32>,
    /// Its start is no failure: nobody began it.
    pub(super) undone: bool,
}

impl Process {
    pub(super) fn new(id: ProcessId, kind: Kind, birth: Birth, stage: Stage, now: Instant) -> Self {
        Self {
            id,
            kind,
            birth,
            stage,
            job: JobId(0),
            since: now,
            title: String::new(),
            peers: BTreeSet::new(),
            unheard: BTreeMap::new(),
            cause: None,
            status: None,
            undone: false,
        }
    }

    /// For lists and messages: 0 while it is not known.
    pub fn pid(&self) -> u32 {
        self.known_pid().unwrap_or(0)
    }

    /// `None`: it was not told yet, or means nothing here, in another pid namespace.
    pub fn known_pid(&self) -> Option<u32> {
        match self.birth {
            Birth::Awaited { .. } => None,
            Birth::Known { pid } => Some(pid).filter(|pid| *pid > 0),
        }
    }

    pub fn is_worker(&self) -> bool {
        self.kind == Kind::Worker
    }

    /// It said hello, and messages reach it.
    pub fn is_greeted(&self) -> bool {
        self.stage == Stage::Greeted
    }
}

impl Stage {
    pub fn has_connection(self) -> bool {
        match self {
            Stage::Starting { .. } | Stage::Greeted => true,
            Stage::Closed { .. } | Stage::Ended { .. } | Stage::Examined { .. } => false,
        }
    }

    /// The kernel or the zygote said so.
    pub fn is_dead(self) -> bool {
        match self {
            Stage::Starting { .. } | Stage::Greeted | Stage::Closed { .. } => false,
            Stage::Ended { .. } | Stage::Examined { .. } => true,
        }
    }

    /// The pool's ticket, if it has not said hello.
    pub fn ticket(self) -> Option<u64> {
        match self {
            Stage::Starting { ticket } => Some(ticket),
            Stage::Greeted => None,
            Stage::Closed { ticket } | Stage::Ended { ticket } | Stage::Examined { ticket } => {
                ticket
            }
        }
    }
}
