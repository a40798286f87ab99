//! What a process says to its node to have parts of objects brought together (`hoplo_core::transfer`).

use hoplo_base::{NodeNumber, ObjectId};
use serde::{Deserialize, Serialize};

/// Some bytes of an object, and where they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub object: ObjectId,
    /// Has all of the object.
    pub node: NodeNumber,
    /// Of the first byte, in the object.
    pub from: u64,
    pub len: u64,
    /// Of the first byte, in what is made.
    pub at: u64,
}
