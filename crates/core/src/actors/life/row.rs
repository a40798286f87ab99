//! An actor as others see it: in listings, in the control store, and after a daemon died.

use hoplo_base::{ActorId, JobId, ProcessId};
use hoplo_wire::Failure;
use hoplo_wire::node::ActorState;

/// One actor, for listings and the control store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActorRow {
    pub actor: ActorId,
    pub class_name: String,
    pub name: String,
    pub namespace: String,
    pub job: JobId,
    pub detached: bool,
    pub incarnation: u32,
    pub state: ActorState,
    /// The process that starts or runs it.
    pub worker: Option<ProcessId>,
    pub handle: Vec<u8>,
    /// It died with an earlier daemon.
    pub lost: bool,
}

/// An actor of an earlier daemon, dead.
#[derive(Clone, Debug, PartialEq)]
pub struct Former {
    pub actor: ActorId,
    pub class_name: String,
    pub name: String,
    pub namespace: String,
    pub job: JobId,
    pub detached: bool,
    pub incarnation: u32,
    pub handle: Vec<u8>,
    pub failure: Failure,
    /// It did not die by itself: its name is remembered.
    pub lost: bool,
}
