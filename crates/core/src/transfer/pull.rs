//! What is known of an object that comes here.

use hoplo_base::NodeNumber;
use hoplo_base::limits::PULLS_MAX;
use hoplo_wire::Rest;

use super::event::Place;
use super::folding::Folding;
use super::watch::Watch;

#[derive(Debug)]
pub(super) struct Pull {
    pub(super) bytes: u64,
    /// In which its sources were told.
    pub(super) turn: u64,
    /// Nodes that were not tried, the best one first.
    pub(super) sources: Vec<NodeNumber>,
    pub(super) stage: Stage,
    pub(super) watch: Watch,
    /// Why the last attempt failed.
    pub(super) why: String,
    /// One of its sources died, or the link with it was lost. Another one may have failed by that too: it relayed what came from there.
    pub(super) lost: bool,
    /// It is no copy of an object.
    pub(super) fold: Option<Box<Folding>>,
}

#[derive(Debug)]
pub(super) enum Stage {
    Queued,
    AskingRoom {
        request: u64,
    },
    Receiving {
        room: Room,
        ticket: u64,
        from: NodeNumber,
        /// When it began.
        written: u64,
    },
    /// The shell was told to stop; so much was written when it began.
    Stopping {
        room: Room,
        ticket: u64,
    },
    /// Of a fold: its source's node died, and who asked for it says where the rest comes from. Those who are relayed to wait.
    Broken {
        room: Room,
        rest: Rest,
    },
    /// No source is left, and the shell was told to relay it no more.
    Clearing {
        room: Room,
        ticket: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) place: Place,
    pub(super) in_file: bool,
}

impl Pull {
    pub(super) fn room(&self) -> Option<Room> {
        match &self.stage {
            Stage::Queued | Stage::AskingRoom { .. } => None,
            Stage::Receiving { room, .. }
            | Stage::Stopping { room, .. }
            | Stage::Broken { room, .. }
            | Stage::Clearing { room, .. } => Some(*room),
        }
    }

    pub(super) fn explain(&self) -> String {
        match &self.stage {
            Stage::Queued => format!("waits, since {PULLS_MAX} other objects are being fetched"),
            Stage::AskingRoom { .. } => "waits for room in the object store".to_string(),
            Stage::Receiving { from, written, .. } => {
                let from = from.hex();
                format!("is being fetched from node {from} (from byte {written} on)")
            }
            Stage::Stopping { .. } => "is about to be fetched from another node".to_string(),
            Stage::Broken { rest: Rest { from, .. }, .. } => {
                format!("waits from byte {from} on for members that are made again")
            }
            Stage::Clearing { .. } => "could not be fetched".to_string(),
        }
    }

    /// Another source could be taken.
    pub(super) fn is_watched(&self) -> bool {
        matches!(self.stage, Stage::Receiving { .. }) && !self.sources.is_empty()
    }
}
