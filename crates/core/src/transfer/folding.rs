//! What a pull that is a fold has besides (`on_fold`).

use hoplo_base::{NodeNumber, ObjectId};
use hoplo_wire::{FoldOp, Location};

#[derive(Clone, Debug)]
pub(super) struct Folding {
    pub(super) asker: NodeNumber,
    pub(super) op: FoldOp,
    /// What its source calls what it sends.
    pub(super) upstream: ObjectId,
    pub(super) operands: Vec<Location>,
    /// What they are folded into, if that is an object of this node.
    pub(super) source: Option<Location>,
    pub(super) divide_by: Option<u32>,
    /// Place, of so many.
    pub(super) ring: Option<(u32, u32)>,
    pub(super) outcome: Option<Outcome>,
    pub(super) unfit: bool,
    /// Nobody needs it any more. The shell may have it whole before it hears so.
    pub(super) over: bool,
}

/// Of a fold whose node ends with all bytes of a result.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) result: ObjectId,
    /// The result has these bytes.
    pub(super) sealed: bool,
    /// Somebody reads the result here, and it is another node's.
    pub(super) wanted: Option<Fetch>,
}

/// How the result is fetched if need be.
#[derive(Clone, Debug)]
pub(super) struct Fetch {
    pub(super) bytes: u64,
    pub(super) turn: u64,
    pub(super) sources: Vec<NodeNumber>,
}

impl Outcome {
    pub(super) fn of(result: ObjectId) -> Self {
        Self { result, sealed: false, wanted: None }
    }
}
