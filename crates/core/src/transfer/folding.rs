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
    pub(super) unfit: bool,
    /// Nobody needs it any more. The shell may have it whole before it hears so.
    pub(super) over: bool,
}
