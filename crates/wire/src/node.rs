//! Messages between a process and its node daemon, over one unix stream socket.
//!
//! Each message is a `u32` length and its postcard bytes; `fds` says how many descriptors came with
//! it. Messages from one process arrive in order. Between two processes there is one guarantee, on
//! which reference counting rests (ARCHITECTURE.md, "References"): **what a process wrote to its socket
//! before it wrote into another's ring is handled before anything that the other writes because of
//! it is allowed to free something.** The daemon gets it by sweeping all sockets once before it frees
//! an object, or answers that one is unknown.

mod actors;
mod codec;
mod groups;
mod objects;
mod processes;
mod replay;
mod runs;
mod strategy;
mod to_client;
mod to_node;

use hoplo_base::TaskId;
use serde::{Deserialize, Serialize};

pub use crate::obituary::{DeathCause, Obituary};
pub use actors::{ActorCreated, ActorFound, ActorSpec, ActorState};
pub use codec::{NodeCodecError, decode, encode, encode_body};
pub use groups::{BundleSpec, GroupSpec, GroupState, GroupStrategy, Inside, NoGroup};
pub use objects::{Lineage, Notice, SharedState};
pub use processes::{JobConfig, PythonEnv, Role, RuntimeEnv, Shape, Welcome};
pub use replay::{Answer, Answered, Checkpoint, Checkpoints, LoggedCall, Replay};
pub use runs::{Run, RunCall, RunFailure, Runs};
pub use strategy::{
    Condition, LabelSelector, NODE_ID_LABEL, NODE_ID_LABEL_OF_RAY, Strategy, Unmet, label_of,
};
pub use to_client::{ACTOR_MOVES, BAR_MARK, ToClient, is_log_record};
pub use to_node::ToNode;

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
        #[serde(with = "serde_bytes")]
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
