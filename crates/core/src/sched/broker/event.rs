//! What the broker is told, and what it wants.

use hoplo_base::{ActorId, GroupId, Instant, JobId, NodeNumber, ProcessId, ResourceSet};
use hoplo_wire::node::Shape;
use hoplo_wire::peer::Found;

use super::super::claim::{Claimant, Stuck};
use super::super::place::Place;

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// May be asked from now on; again when its labels or resources change.
    Joined {
        place: Place,
    },
    /// Takes nothing more.
    Drains {
        node: NodeNumber,
    },
    /// Dead, or left.
    Gone {
        node: NodeNumber,
    },
    /// Of a process of this node, or (`wanted` 1) of an actor at home here. Absolute: replaces the last word.
    Demanded {
        claimant: Claimant,
        job: JobId,
        shape: Shape,
        /// Of an actor, what it keeps once it has started.
        held: ResourceSet,
        wanted: u32,
    },
    /// After `Recite`: the local scheduler has this claim, of a process or actor of this node.
    WaitsHere {
        claimant: Claimant,
        job: JobId,
        shape: Shape,
        held: ResourceSet,
        wanted: u32,
    },
    /// The actor does not want to be placed any more.
    GaveUp {
        actor: ActorId,
    },
    /// Answers `Look`: leases that the local scheduler has for it and that wait for their worker.
    Looked {
        claimant: Claimant,
        reserved: u32,
    },
    Found {
        seek: u64,
        found: Found,
    },
    /// A lease was granted, or the actor was placed, by that node.
    Granted {
        claimant: Claimant,
        node: NodeNumber,
    },
    /// That node's local scheduler says why it waits there, or that it goes on.
    Stuck {
        claimant: Claimant,
        node: NodeNumber,
        stuck: Option<Stuck>,
    },
    /// That node has dropped it: no worker can be made. Its process is told by who tells us.
    Failed {
        claimant: Claimant,
        node: NodeNumber,
    },
    /// The head answers nothing, since then.
    HeadSilent {
        address: String,
        since: Instant,
    },
    /// It speaks again, or another node is head.
    HeadHeard,
    /// The object store and the disk of this node are, or have room again.
    Full {
        full: bool,
    },
    /// This placement group is no more.
    GroupEnded {
        group: GroupId,
    },
    /// One of this node's.
    ProcessGone {
        process: ProcessId,
    },
    Tick,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Of our local scheduler or of that node. Absolute; of an actor always 1.
    Ask {
        node: NodeNumber,
        claimant: Claimant,
        job: JobId,
        shape: Shape,
        held: ResourceSet,
        wanted: u32,
    },
    /// The actor is not to be placed there any more.
    GiveUp { node: NodeNumber, actor: ActorId },
    /// To the global scheduler. `wanted` 0: no more of that, which is not answered.
    Seek { seek: u64, shape: Shape, wanted: u32 },
    /// Answered by `Looked`, before anything else is told.
    Look { claimant: Claimant },
    /// No node will ever meet it, for the one that it names is no more. The claim is over; the same are told.
    Fail { claimant: Claimant, why: String },
    /// Its placement group is no more. The claim is over; the same are told.
    FailOfGroup { claimant: Claimant, group: GroupId },
    /// To the process, or to the actor's table.
    Tell { claimant: Claimant, stuck: Option<Stuck> },
    /// To the process: of a shape that spreads, room was found for `count` of the leases that are wanted and not granted.
    Coming { claimant: Claimant, wanted: u32, count: u32 },
    /// Answered by a `WaitsHere` for each claim of the local scheduler that is of this node.
    Recite,
}
