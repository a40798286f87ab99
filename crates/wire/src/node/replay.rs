//! What an actor leaves at its home that restarts from checkpoints: so much that another process can become what it was.

use hoplo_base::{ObjectId, TaskId};
use serde::{Deserialize, Serialize};

use crate::object::Value;

/// When an actor makes a checkpoint. Whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoints {
    /// After so many calls; at least 1.
    pub calls: u32,
    /// So many milliseconds after the last one, if there were calls; 0: not by time.
    pub interval_ms: u64,
}

/// A call that an actor began to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedCall {
    /// 1 for the first call of the actor's life.
    pub index: u64,
    /// As its caller wrote it.
    #[serde(with = "serde_bytes")]
    pub frame: Vec<u8>,
    /// Refs that the frame names, and those inside its arguments.
    pub contains: Vec<ObjectId>,
}

/// The actor's state behind a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The index of that call.
    pub upto: u64,
    /// What `checkpoint()` returned, pickled.
    #[serde(with = "serde_bytes")]
    pub state: Vec<u8>,
    /// Refs inside it.
    pub contains: Vec<ObjectId>,
    /// What was replied to the last calls, of each caller in the order in which they ran.
    pub answers: Vec<Answered>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    pub task: TaskId,
    pub answer: Answer,
}

/// What was replied to a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// They are small and hold no refs.
    Values(Vec<Value>),
    /// An object that was put is what the call returned.
    Kept(ObjectId),
    /// Who did not get it cannot be given it again.
    Lost,
}

/// From what a new process becomes the actor: its constructor, then this.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Replay {
    pub checkpoint: Option<Checkpoint>,
    /// All that came behind it, in the order in which they ran.
    pub calls: Vec<LoggedCall>,
}

impl LoggedCall {
    /// What it takes of its log.
    pub fn bytes(&self) -> usize {
        self.frame.len() + self.contains.len() * ObjectId::BYTES
    }
}

impl Replay {
    /// The index of the last call that is known.
    pub fn last(&self) -> u64 {
        let upto = self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.upto);
        self.calls.last().map_or(upto, |call| call.index)
    }

    /// Refs in all of it.
    pub fn contains(&self) -> Vec<ObjectId> {
        let state = self.checkpoint.iter().flat_map(|checkpoint| &checkpoint.contains);
        state.chain(self.calls.iter().flat_map(|call| &call.contains)).copied().collect()
    }
}
