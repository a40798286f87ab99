//! What a session knows of each shape: what waits for it, its leases, and what makes it spread or draws it to a node.

use std::collections::VecDeque;
use std::sync::Arc;

use hoplo_base::{Instant, LeaseId, NodeNumber, ProcessId, ResourceSet};
use hoplo_wire::node::Shape;

#[derive(Debug)]
pub(super) struct ShapeState {
    pub shape: Arc<Shape>,
    /// Tasks without a place; some may be finished (cancelled) or placed meanwhile: they are skipped.
    pub queue: VecDeque<u64>,
    /// Those of this node first, else in the order of their grants.
    pub leases: Vec<Lease>,
    /// What the daemon was told last, less what it granted.
    pub asked: u32,
    /// What the daemon said that it waits for though idle leases of other shapes may take it, less what they gave.
    pub lacks: ResourceSet,
    /// Why the daemon grants nothing, and whether it never can.
    pub stuck: Option<(String, bool)>,
    /// Of a shape that spreads.
    pub spread: Option<Spread>,
    /// Its tasks are those of another shape with arguments at one node.
    pub near: Option<Near>,
}

#[derive(Debug)]
pub(super) struct Lease {
    pub id: LeaseId,
    pub worker: ProcessId,
    pub gpus: Vec<u32>,
    /// Whole ones, at least 1.
    pub cpus: u32,
    pub granted_at: Instant,
    /// In ring order.
    pub in_flight: VecDeque<u64>,
    /// Nanoseconds of work in flight, by our guess.
    pub expected_ns: u64,
    /// Of a shape that spreads: tasks that it got.
    pub placed: u64,
    /// Its worker has replied to no call of ours: the first one may have to load its function.
    pub cold: bool,
    pub wanted: Wanted,
    /// Its worker waits in `get`, or runs far longer than guessed: nothing more is placed until it replies.
    pub held_up: bool,
    /// Its worker exits after what it runs.
    pub retiring: bool,
    /// The daemon was told so.
    pub told_retiring: bool,
    /// Time of the last reply, or of the first placement after it was empty.
    pub progress_at: Instant,
    /// There was no progress for `LEASE_IDLE`: from now on its replies are drained as they come, lest an
    /// idle worker is kept because nobody here looks.
    pub overdue: bool,
}

/// Who wants a lease back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Nobody,
    /// When it falls idle, shapes of ours that lack what it takes may have it.
    Ourselves,
    /// It is of another node and was here for long: when it falls idle it goes back.
    Home,
    /// The daemon recalled it: nothing more is placed.
    Others,
}

/// Where a lease is: in the list of the shape of that key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaseAt {
    pub key: u32,
    pub at: u32,
}

/// Of a shape that spreads: see `spread`.
#[derive(Debug, Default)]
pub(super) struct Spread {
    pub hold: Option<Hold>,
    /// So many leases there were when no more could be had.
    pub width: Option<usize>,
}

/// Work is held back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    /// Leases that will be granted; `None` before that is told.
    pub coming: Option<u32>,
    pub until: Instant,
}

/// Whether tasks go where their arguments lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Locality {
    /// Never: the user said so.
    Off,
    /// Nothing large is known to lie at another node.
    Unneeded,
    Used,
}

/// What makes a shape a near one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Near {
    /// Key of the shape that its tasks have.
    pub shape: u32,
    pub node: NodeNumber,
    /// From when on the first of the queue waits, if nothing moves. Ahead of now while a worker may be starting there.
    pub since: Instant,
}
