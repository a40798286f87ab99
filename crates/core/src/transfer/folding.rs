//! What a pull that is a fold has besides (`on_fold`).

use hoplo_base::{NodeNumber, ObjectId};
use hoplo_wire::{FoldOp, Location, Rest};

#[derive(Clone, Debug)]
pub(super) struct Folding {
    pub(super) asker: NodeNumber,
    pub(super) op: FoldOp,
    /// What its source calls what it sends.
    pub(super) upstream: ObjectId,
    pub(super) operands: Vec<Location>,
    /// For the next attempt.
    pub(super) rest: Option<Rest>,
    /// Where the rest comes from, until its operands are found.
    pub(super) next: Option<Next>,
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

#[derive(Clone, Debug)]
pub(super) struct Next {
    pub(super) from: NodeNumber,
    pub(super) upstream: ObjectId,
    pub(super) operands: Vec<(ObjectId, Option<Location>)>,
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

impl Folding {
    /// What comes can come from elsewhere, if the one who asked for it says so: of a chain alone, whose source was another node.
    pub(super) fn can_go_on(&self) -> bool {
        let is_chain = self.ring.is_none() && self.outcome.is_none() && self.source.is_none();
        is_chain && !self.unfit && !self.over
    }
}

impl Outcome {
    pub(super) fn of(result: ObjectId) -> Self {
        Self { result, sealed: false, wanted: None }
    }
}
