//! What is known of an object that another node asks for.

use hoplo_base::ObjectId;

#[derive(Debug)]
pub(super) struct Serve {
    pub(super) object: ObjectId,
    pub(super) offset: u64,
    /// The asker needs no more, if there is more.
    pub(super) until: u64,
    /// In which its asker was told to ask here.
    pub(super) turn: u64,
    pub(super) stage: Stage,
    /// How often it was looked for.
    pub(super) tries: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The directory says where it lies.
    Asking,
    /// What it asks for is to be folded here, and that was not said yet.
    Expecting,
    /// It is being pulled, and does not come right now.
    Waiting,
    /// The shell sends what has come of it.
    Relaying,
    /// The shell has it pinned, or is about to.
    Sending,
}

impl Serve {
    pub(super) fn new(object: ObjectId, offset: u64, until: u64, turn: u64) -> Self {
        Self { object, offset, until, turn, stage: Stage::Asking, tries: 0 }
    }
}
