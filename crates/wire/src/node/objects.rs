//! Facts about objects that processes tell the daemon, and what makes an object.

use std::sync::Arc;

use hoplo_base::{ObjectId, ProcessId, TaskId};
use serde::{Deserialize, Serialize};

use super::Shape;
use crate::object::{Location, Value};

/// Facts about objects, batched; each is about the sender unless it names a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// The sender wrote and sealed this in one of its extents; `holder` holds its first reference.
    Sealed { object: ObjectId, location: Location, contains: Vec<ObjectId>, holder: ProcessId },
    /// The sender sealed this object of its own before, and it is to be on so many nodes.
    Copies { object: ObjectId, copies: u8 },
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
    /// The sender has run this task in the place of its dead owner, as `Adopt` asked: what it can tell of the results is told. One for each `Adopt`.
    /// `maker`: whose reply it was, if one came; it tells of what it stored.
    AdoptionOver { task: TaskId, maker: Option<ProcessId> },
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
            | Notice::Copies { .. }
            | Notice::Freed { .. }
            | Notice::Hold { .. }
            | Notice::Released { .. }
            | Notice::Replying { .. }
            | Notice::RepliesEnded { .. }
            | Notice::AdoptionOver { .. } => 0,
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
    pub shape: Arc<Shape>,
    /// The call frame, refs without values where they are shared themselves.
    #[serde(with = "serde_bytes")]
    pub frame: Vec<u8>,
    /// Every ref in it: top-level, inside arguments, and inside the values of refs that travel in it.
    pub contains: Vec<ObjectId>,
    pub retries: i32,
}
