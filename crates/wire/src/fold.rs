//! What nodes say to each other for a reduce (`hoplo_core::collective`).

use hoplo_base::{NodeNumber, ObjectId};
use serde::{Deserialize, Serialize};

use crate::layout::Front;

/// How two numbers become one. It does not care how many are grouped and ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FoldOp {
    Sum,
    Prod,
    Min,
    Max,
}

/// How a process wants members to be folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    pub op: FoldOp,
    /// In the end each number is divided by this. All have to be of kinds that `hoplo_core::collective::divides` names.
    pub divide_by: Option<u32>,
    /// The process will seal what is made as this object, and the nodes that have members will read it.
    pub for_all: Option<ObjectId>,
}

/// Why nodes do not fold the members of a reduce on their way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoReduce {
    pub why: String,
    /// It may be otherwise at the next try: a node died, or an object moved.
    pub again: bool,
    /// Those of the members that no node is known to have (any more).
    pub lost: Vec<ObjectId>,
    /// It was begun, and goes on when these are there again and `ToNode::ReduceMended` says so.
    pub goes_on: bool,
}

impl NoReduce {
    pub fn new(why: impl Into<String>, again: bool) -> Self {
        Self { why: why.into(), again, lost: Vec::new(), goes_on: false }
    }
}

/// To be made at the receiver: what comes from another node, with objects of the receiver's store folded into it as it comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fold {
    /// Names what is made. Its owner is the haul of the node that asks for it.
    pub made: ObjectId,
    pub op: FoldOp,
    /// Of what is made, and of what comes.
    pub bytes: u64,
    pub from: NodeNumber,
    /// What comes: an object of that node's store, or what it makes itself for the same reduce.
    pub upstream: ObjectId,
    /// In the receiver's store. None: what comes is copied.
    pub operands: Vec<ObjectId>,
    /// Higher than that of `upstream` (XFER-8).
    pub turn: u64,
    /// What it divides all numbers by, in the end: as with `Wish`.
    pub divide_by: Option<u32>,
    /// All who fold end with all of it, and what comes is what the next one in the ring makes.
    pub ring: Option<Ring>,
    /// What will have the bytes that it makes.
    pub result: Option<ObjectId>,
    /// None: all of it is made.
    pub rest: Option<Rest>,
}

/// It takes the place of a fold whose node died. Who was sent the front of that needs only the rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rest {
    /// The first byte of it.
    pub from: u64,
    pub front: Front,
}

/// Of a node that folds: its place among so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ring {
    pub at: u32,
    pub of: u32,
}
