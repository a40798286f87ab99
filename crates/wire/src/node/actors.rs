//! What an actor is made of, how it is found, and how it is.

use hoplo_base::{ActorId, JobId, NodeNumber, ObjectId, ProcessId, ResourceSet};
use serde::{Deserialize, Serialize};

use super::{Checkpoints, Shape};
use crate::object::Failure;

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
    /// It restarts from checkpoints: its calls are logged and replayed.
    pub checkpoints: Option<Checkpoints>,
    /// Call frame of the constructor (`CallKind::Create`).
    #[serde(with = "serde_bytes")]
    pub frame: Vec<u8>,
    /// Refs in the constructor's arguments: held by the daemon while the actor may start again.
    pub contains: Vec<ObjectId>,
    /// What a handle needs (methods, options); opaque, made and read by the Python side.
    #[serde(with = "serde_bytes")]
    pub handle: Vec<u8>,
}

impl ActorSpec {
    /// Of one with checkpoints that a process of `node` becomes, in that job: the reply to a call waits until the home says that the call
    /// is logged. It is at two nodes then, since the actor may outlive one.
    pub fn replies_wait(&self, job: JobId, node: NodeNumber) -> bool {
        let home = self.actor.0.owner.node();
        node != home || (home.is_given() && (self.detached || job.node() != home))
    }

    /// By which others find it.
    pub fn name(&self) -> Option<&str> {
        (!self.name.is_empty()).then_some(self.name.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorFound {
    pub actor: ActorId,
    #[serde(with = "serde_bytes")]
    pub handle: Vec<u8>,
    /// It was lost with an earlier daemon, and nobody took its name since.
    pub dead: Option<Failure>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActorCreated {
    New,
    /// `get_if_exists` found one.
    Existing(ActorFound),
    /// It was not made: nobody said in time who has its name.
    Unsaid {
        why: String,
    },
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
        /// It restarts from checkpoints: few calls of one caller lie before it.
        logs: bool,
    },
    Restarting {
        incarnation: u32,
        cause: String,
    },
    Dead {
        failure: Failure,
    },
}
