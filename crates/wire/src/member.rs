//! What nodes say to each other about who lives.
//!
//! `Hello` and `Refused` keep their places and layouts for ever: they are how versions find out about each other.

use hoplo_base::NodeNumber;
use serde::{Deserialize, Serialize};

use crate::control::ClusterId;

/// Raised with every change of a layout.
pub const PROTOCOL: u32 = 7;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Must be equal.
    pub protocol: u32,
    /// For the message when it is not.
    pub program: String,
    pub cluster: ClusterId,
    pub node: NodeNumber,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// First, both ways.
    Hello(Hello),
    /// Instead of anything else: the connection ends here.
    Refused {
        why: String,
    },
    /// To a control node. `epoch`: how much of the node table the node knows.
    Heartbeat {
        epoch: u64,
    },
    /// To a control node: nothing runs at this node any more, and it ends when its row says that it is dead, for this reason.
    Leaves {
        why: String,
    },
    /// Of a control node, now and then: it hears the heartbeats.
    Heard,
    /// Answered by `Alive` with the same number.
    Probe {
        ticket: u64,
    },
    Alive {
        ticket: u64,
    },
    /// Of a control node: probe that one, and say what was found.
    Look {
        ticket: u64,
        node: NodeNumber,
        address: String,
    },
    Looked {
        ticket: u64,
        found: Found,
    },
    /// Of a control node: that number was declared dead.
    Dead {
        why: String,
    },
    /// Of a control node: the cluster was stopped, for good.
    Over,
    /// Of a head that does not hear this node: it listens there.
    Here {
        address: String,
    },
}

/// What a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Found {
    /// That life answered.
    Alive,
    /// Nobody listens at its address, or another life does.
    Refused,
    /// It did not answer, or its machine cannot be reached.
    Silent,
}

impl Message {
    /// For messages: "a probe".
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => "a second hello",
            Self::Refused { .. } => "a refusal",
            Self::Heartbeat { .. } => "a heartbeat",
            Self::Leaves { .. } => "the end of a node",
            Self::Heard => "an answer to heartbeats",
            Self::Probe { .. } => "a probe",
            Self::Alive { .. } => "an answer to a probe",
            Self::Look { .. } => "a request to probe",
            Self::Looked { .. } => "the outcome of a probe",
            Self::Dead { .. } => "a verdict",
            Self::Over => "the end of the cluster",
            Self::Here { .. } => "where a head listens",
        }
    }
}
