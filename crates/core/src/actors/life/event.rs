//! What happens to actors, and what their table asks the daemon to do.

use hoplo_base::{ActorId, JobId, NodeNumber, ObjectId, ProcessId, ResourceSet};
use hoplo_wire::Failure;
use hoplo_wire::node::{ActorCreated, ActorFound, ActorSpec, ActorState, Obituary, Shape};
use hoplo_wire::peer::KnownActor;

use super::Name;

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Created {
        creator: ProcessId,
        job: JobId,
        /// 0 wants no answer.
        request: u64,
        spec: Box<ActorSpec>,
        get_if_exists: bool,
    },
    /// `swept`: all sockets were read since it came.
    LookedUp {
        from: ProcessId,
        request: u64,
        namespace: String,
        name: String,
        swept: bool,
    },
    Watched {
        from: ProcessId,
        actor: ActorId,
        swept: bool,
    },
    /// Why it is not placed, or `None` if nothing is in its way any more.
    PlacementStuck {
        actor: ActorId,
        reason: Option<String>,
        infeasible: bool,
    },
    /// No worker can be made for it.
    PlacementFailed {
        actor: ActorId,
        incarnation: u32,
        failure: Failure,
    },
    Placed {
        actor: ActorId,
        incarnation: u32,
        worker: ProcessId,
        gpus: Vec<u32>,
    },
    /// The constructor returned or raised.
    Started {
        worker: ProcessId,
        actor: ActorId,
        incarnation: u32,
        result: Result<(), Failure>,
    },
    /// `exit_actor()` in its worker.
    Left {
        worker: ProcessId,
        actor: ActorId,
    },
    /// Its worker says that it cannot go on, whatever process it is.
    Failed {
        worker: ProcessId,
        actor: ActorId,
        failure: Failure,
    },
    Killed {
        actor: ActorId,
        no_restart: bool,
        /// Only if it lives in this worker.
        of: Option<ProcessId>,
        swept: bool,
    },
    /// No handle of it is left.
    Unreachable {
        actor: ActorId,
    },
    ProcessGone {
        process: ProcessId,
        obituary: Obituary,
    },
    JobEnded {
        job: JobId,
    },
    /// Its home died, and this node is in charge of it. `home_died`: why, of one that has no worker.
    Inherited {
        known: Box<KnownActor>,
        home_died: String,
    },
    /// It is to leave: whoever can start elsewhere does.
    NodeDrains {
        node: NodeNumber,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Get it resources and a worker: answered by `Placed` or `PlacementFailed`.
    Place {
        actor: ActorId,
        incarnation: u32,
        job: JobId,
        shape: Shape,
        held: ResourceSet,
    },
    Unplace {
        actor: ActorId,
    },
    Run {
        actor: ActorId,
        incarnation: u32,
        worker: ProcessId,
        gpus: Vec<u32>,
        spec: Box<ActorSpec>,
    },
    /// It needs only what it holds from now on.
    FinishStart {
        worker: ProcessId,
    },
    Stop {
        worker: ProcessId,
        manner: Manner,
        reason: String,
    },
    AnswerCreate {
        to: ProcessId,
        request: u64,
        result: Result<ActorCreated, String>,
    },
    AnswerLookup {
        to: ProcessId,
        request: u64,
        found: Option<ActorFound>,
    },
    Tell {
        to: ProcessId,
        actor: ActorId,
        state: ActorState,
    },
    /// It has its name no more: somebody else may take it.
    NameFreed {
        name: Name,
        actor: ActorId,
    },
    /// Handle this again after a sweep (its `swept` is set).
    AfterSweep(Box<Event>),
    /// A token of the actor's handle for this process.
    Hold {
        object: ObjectId,
        process: ProcessId,
    },
    NodeHold {
        objects: Vec<ObjectId>,
    },
    NodeRelease {
        objects: Vec<ObjectId>,
    },
    /// Its row changed.
    Save {
        actor: ActorId,
    },
    /// It is dead for long: its row goes, too.
    Forget {
        actor: ActorId,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It finishes what lies in its rings and exits.
    Finish,
    /// It exits now; killed if it does not.
    Exit,
    Kill,
}
