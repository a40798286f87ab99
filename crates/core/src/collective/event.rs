//! What happens to reduces, and what is asked for.

use std::collections::BTreeSet;

use hoplo_base::{Instant, NodeNumber, ObjectId, ProcessId};
use hoplo_wire::{Fold, Location, NoReduce, Rest, Wish};

/// An object that is to be folded, and where all its bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub object: ObjectId,
    pub bytes: u64,
    pub nodes: Vec<NodeNumber>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// `ToNode::Reduce`.
    Asked {
        asker: ProcessId,
        request: u64,
        wish: Wish,
        members: Vec<Member>,
        more: bool,
        /// Nodes whose links are slow, as far as is known here.
        slow: BTreeSet<NodeNumber>,
    },
    /// `ToNode::ReduceMore`.
    More {
        asker: ProcessId,
        request: u64,
        members: Vec<Member>,
        more: bool,
    },
    /// `ToNode::ReduceOver`. If it was answered already: what was made does not become the result.
    GivenUp {
        asker: ProcessId,
        request: u64,
    },
    ProcessGone {
        process: ProcessId,
    },
    NodeGone {
        node: NodeNumber,
    },
    /// The last fold of a chain, or this node's of a ring, lies in the store of this node.
    Made {
        made: ObjectId,
        location: Location,
    },
    /// A process of this node sealed an object.
    Sealed {
        process: ProcessId,
        object: ObjectId,
        location: Location,
    },
    /// `Peer::FoldBroke`, or this node's own word.
    Broke {
        from: NodeNumber,
        made: ObjectId,
        rest: Rest,
    },
    /// `ToNode::ReduceMended`: of what is lost these are in stores again.
    Mended {
        asker: ProcessId,
        request: u64,
        was: u64,
        members: Vec<Member>,
    },
    /// `Peer::NoFold`, or this node's own word.
    Failed {
        from: NodeNumber,
        made: ObjectId,
        why: String,
        again: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// `Peer::Fold`, or for this node itself.
    Fold {
        at: NodeNumber,
        fold: Box<Fold>,
    },
    /// `Peer::FoldFrom`, or for this node itself.
    FoldFrom {
        at: NodeNumber,
        made: ObjectId,
        from: NodeNumber,
        upstream: ObjectId,
        operands: Vec<ObjectId>,
    },
    /// `Peer::FoldOver`, or for this node itself.
    End {
        at: NodeNumber,
        made: ObjectId,
        sealed: bool,
    },
    /// What is made lies there, and is its own.
    Answer {
        asker: ProcessId,
        request: u64,
        location: Location,
    },
    /// What went past this slow node, as it was taken for, is made: so many bytes since then.
    PassedSlow {
        node: NodeNumber,
        bytes: u64,
        since: Instant,
    },
    Refuse {
        asker: ProcessId,
        request: u64,
        no: NoReduce,
    },
}
