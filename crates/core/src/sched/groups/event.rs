//! What the groups hear, and what they have done.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::{GroupId, JobId, NodeNumber, ProcessId, ResourceSet};
use hoplo_wire::node::{GroupSpec, GroupState};

use super::Held;

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Answered by `AnswerCreate`.
    Asked {
        from: ProcessId,
        request: u64,
        group: GroupId,
        job: JobId,
        spec: Box<GroupSpec>,
    },
    /// Before any `Recalled`: nodes that lived under the earlier head.
    Awaits {
        nodes: BTreeSet<NodeNumber>,
    },
    /// One of an earlier head.
    Recalled {
        group: GroupId,
        job: JobId,
        spec: Box<GroupSpec>,
        asked: (ProcessId, u64),
    },
    /// The first word of a node to this head.
    Told {
        node: NodeNumber,
        held: Held,
    },
    RemoveAsked {
        group: GroupId,
    },
    /// The store did not take its first row, for which its creator waits.
    NotWritten {
        group: GroupId,
        why: String,
    },
    JobEnded {
        job: JobId,
    },
    /// Answered by `AnswerWatch`, now and later, until it is created or removed.
    Watched {
        from: ProcessId,
        request: u64,
        group: GroupId,
    },
    Unwatched {
        from: ProcessId,
        request: u64,
    },
    ProcessGone {
        process: ProcessId,
    },
    /// A node came, or has something else than it had.
    NodeSeen {
        node: NodeNumber,
        view: NodeView,
    },
    /// It is about to leave.
    NodeDrains {
        node: NodeNumber,
    },
    NodeGone {
        node: NodeNumber,
    },
    /// To `Prepare`. `refused`: why nothing was reserved there.
    Answered {
        node: NodeNumber,
        group: GroupId,
        attempt: u32,
        refused: Option<String>,
    },
}

/// A node, as it said last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeView {
    /// Of the node itself, without what bundles add.
    pub total: ResourceSet,
    pub free: ResourceSet,
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Reserve all of these there, or none: answered by `Answered`.
    Prepare {
        node: NodeNumber,
        group: GroupId,
        attempt: u32,
        bundles: Vec<(u32, ResourceSet)>,
    },
    /// What was prepared may be used.
    Commit {
        node: NodeNumber,
        group: GroupId,
        attempt: u32,
    },
    /// What was prepared, or is about to be, is not wanted.
    Release {
        node: NodeNumber,
        group: GroupId,
        attempt: u32,
    },
    /// It is no more: what is there of it goes, with what runs in it and what waits for it.
    End {
        node: NodeNumber,
        group: GroupId,
        why: String,
    },
    /// Why it is not placed, for those who wait there; `None`: it is.
    Waits {
        node: NodeNumber,
        group: GroupId,
        reason: Option<String>,
    },
    AnswerCreate {
        to: ProcessId,
        request: u64,
        result: Result<Made, String>,
    },
    AnswerWatch {
        to: ProcessId,
        request: u64,
        state: GroupState,
    },
    /// It is there from now on: its first row.
    Begun {
        group: GroupId,
    },
    /// Its row changed.
    Save {
        group: GroupId,
    },
    Forget {
        group: GroupId,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    pub group: GroupId,
    /// Why no node that is there now could ever hold it.
    pub never: Option<String>,
}

/// For lists and rows.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupRow<'a> {
    pub group: GroupId,
    pub job: JobId,
    /// Who asked for it, by which request.
    pub asked: (ProcessId, u64),
    pub spec: &'a GroupSpec,
    pub phase: &'a Phase,
    pub placed: &'a BTreeMap<u32, NodeNumber>,
    /// Why it is not placed.
    pub waits: Option<&'a str>,
    pub infeasible: bool,
}

/// How far a group's life is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Created,
    /// It lost bundles with a node.
    Rescheduling,
    Removed {
        why: String,
    },
}

impl Phase {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Created => "CREATED",
            Self::Rescheduling => "RESCHEDULING",
            Self::Removed { .. } => "REMOVED",
        }
    }
}
