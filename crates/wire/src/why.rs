//! What a daemon asks processes for `hoplo why`, and what they tell.

use std::fmt;

use hoplo_base::{ActorId, ObjectId, ProcessId, TaskId};
use serde::{Deserialize, Serialize};

use crate::reason::Reason;

/// Something that may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Thing {
    Object(ObjectId),
    Task(TaskId),
    /// A task that was given to this worker.
    Placed(ProcessId, TaskId),
    Actor(ActorId),
}

/// What somebody knows of a thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    pub of: Thing,
    /// A sentence that names the thing.
    pub says: Reason,
    /// What it waits for, at most `WHY_THINGS_MAX`.
    pub waits_for: Vec<Thing>,
    /// It goes on when all of that has ended, and not before.
    pub only: bool,
}

/// What every process is asked in one round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// What of yours does a person mean by this id? Answered by `Things`.
    Named(String),
    /// What do you know of these? Answered by `Links`.
    Links(Vec<Thing>),
}

/// What one of them tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    Things(Vec<Thing>),
    Links(Vec<Link>),
}

impl Link {
    /// It waits for nothing that has a name.
    pub fn end(of: Thing, says: impl Into<Reason>) -> Self {
        Self { of, says: says.into(), waits_for: Vec::new(), only: false }
    }
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Thing::Object(object) => object.fmt(f),
            Thing::Task(task) | Thing::Placed(_, task) => task.fmt(f),
            Thing::Actor(actor) => actor.fmt(f),
        }
    }
}
