//! What a driver or worker links: the shell around the session machine.
//!
//! User threads call the machine directly under one short lock. Three threads help: one reads the
//! daemon's socket, one writes what that socket did not take at once (`writer`), one (*progress*) drains reply
//! rings when nobody waits in `wait`, runs callbacks and prints warnings.
//!
//! The lock order: the session lock is the innermost; nothing sleeps, runs a callback, prints or calls Python
//! while it is held. A thread that panics while it holds it, or that helps, ends the client: everybody who waits
//! gets an error (`lock`).
//!
//! # Budget
//! Instructions of the hot paths for a small value (x86-64), as `benches/instructions` counts them; `make test`
//! fails when one takes over a tenth more than its `baseline.txt`, which has the figures of today.
//!
//! | path | in all | of it |
//! |---|---|---|
//! | submit a task | 2,200 | 870 frame into the ring, 580 queue, lease, demand, 370 records, 100 look for replies, 60 timers, 60 clock |
//! | submit a method call | 2,540 | the same, but 900 for the actor's queues |
//! | get: take the reply | 2,190 | 1,800 session (its module says for what), 250 ring and parsing, 60 clock, 50 timers |
//! | get: read the value | 140 | |
//! | drop the ref | 290 | |
//! | execute: take the call | 320 | 90 ring, 60 copy |
//! | execute: reply | 1,030 | 670 encode and write, 200 tell the daemon if need be, 70 bell |
//! | put of a small value; of one in the store, but for the copy | 350; 1,830 | of the latter 930 to find room |
//! | get of one in the store, pinned and let go | 1,220 | |
//!
//! A look at the clock costs 25 ns more where it is no system call, a lock that nobody wants 10 ns. No path
//! makes a system call unless somebody sleeps.

mod ask;
mod assemblies;
mod behind;
mod calls;
mod client;
mod daemon;
mod effects;
mod events;
mod greet;
mod groups;
mod guarded;
mod journal;
mod lending;
mod lock;
mod peers;
mod reduces;
mod ringer;
mod serving;
mod signal;
mod socket;
mod store;
mod turn;
mod values;
mod wait;
mod why;
mod work;
mod writer;

pub use ask::{GivesUp, KvAnswer, NoActor};
pub use calls::function_id;
pub use client::Client;
pub use greet::ConnectError;
pub use groups::GroupError;
pub use hoplo_core::session::{Call, CallOptions, StreamLook, SubmitError};
pub use hoplo_core::worker::journal::Room;
pub use hoplo_shm::FileRoom;
pub use lending::TakesArguments;
pub use reduces::{ComeAgain, Made, Reducing};
pub use turn::Patience;
pub use values::{Allocation, StoreError};
pub use why::{CallWaits, RunningCall};
pub use work::Nudge;

use std::sync::Arc;
use std::time::Duration;

use hoplo_base::{ActorId, FunctionId, ObjectId, ProcessId, TaskId};
use hoplo_shm::{Arena, FileView};
use hoplo_wire::Failure;
use hoplo_wire::node::{ActorSpec, Replay};

/// What a ref stands for, readable in this process.
#[derive(Clone)]
pub enum Content {
    Inline(Arc<[u8]>),
    /// Lies in the object store; stays mapped and pinned while any clone of this lives.
    Stored(Arc<Pinned>),
    Failed(Failure),
}

/// A pinned object in the store: dereferences to its bytes, read-only memory, 64-byte aligned.
pub struct Pinned {
    bytes: Bytes,
    release: Box<dyn Fn() + Send + Sync>,
}

/// Where a pinned object lies.
pub(crate) enum Bytes {
    Arena {
        arena: Arc<Arena>,
        offset: u64,
        len: u64,
    },
    /// Mapped for this reader.
    File(FileView),
}

impl std::ops::Deref for Pinned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Arena { arena, offset, len } => arena
                .read(*offset, *len)
                .expect("the location was checked when the object was pinned"),
            Bytes::File(view) => view,
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        (self.release)();
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// At least as many as wanted are ready.
    Ready,
    TimedOut,
    /// A signal came: let Python run its handlers, then wait again.
    Interrupted,
}

/// What the worker's main thread does next.
pub enum Work {
    Call(IncomingCall),
    /// Become this actor: run the constructor in `spec.frame`, then `Client::actor_started`.
    RunActor {
        spec: Box<ActorSpec>,
        incarnation: u32,
        gpus: Vec<u32>,
        /// Of one with checkpoints: what it is to become behind its constructor.
        replay: Option<Box<Replay>>,
    },
    /// A signal came: let Python run its handlers.
    Interrupted,
    /// Leave the loop and exit the process.
    Exit {
        reason: String,
    },
}

/// A call taken from a ring: parse `frame` with `hoplo_wire::call::CallView`.
pub struct IncomingCall {
    pub caller: ProcessId,
    /// The caller's name for the call: `ReplyHeader::seq` of every reply. (Not always the task's own
    /// sequence number: an adopted task keeps the id that its first owner gave it.)
    pub tag: u64,
    pub frame: Vec<u8>,
}

/// A stream's next item.
pub enum StreamNext {
    /// Its ref; the caller owns one reference to it.
    Item(ObjectId),
    /// All items were taken; `failure` if the generator raised (also the last item then).
    End,
    /// None yet.
    Pending,
}

/// Something that happens to the process at any moment, told on the progress thread.
pub trait Hooks: Send + Sync {
    /// Lines that workers of the job printed. No pid: the daemon says them.
    fn output(
        &self,
        pid: Option<u32>,
        title: &str,
        address: Option<&str>,
        stderr: bool,
        lines: &[String],
    );
    /// A running task is to be cancelled (worker side): interrupt it if it still runs.
    fn cancel(&self, task: hoplo_base::TaskId);
    /// One line for the user (an infeasible shape, a retry with its reason).
    fn warn(&self, line: &str);
    /// This worker must be gone now (its daemon is, or says so): end the process without ceremony.
    fn exit(&self, reason: &str);
    /// Likewise, but by a fault within this process: it says so, and its status is not 0.
    fn fail(&self, reason: &str);
    /// What runs in this process now, for people. May wait a moment for the interpreter: not asked on a thread
    /// that others wait for.
    fn running(&self) -> Vec<RunningCall>;
    /// Which calls have begun in this process, and how long they have run; `None`: all that were taken. Waits for nobody.
    fn begun(&self) -> Option<Vec<(TaskId, Duration)>>;
}

/// What an actor's creator tells.
pub struct ActorCreate {
    pub class: FunctionId,
    pub class_name: String,
    pub name: String,
    pub namespace: String,
    pub detached: bool,
    pub get_if_exists: bool,
    pub shape: hoplo_wire::node::Shape,
    pub held: hoplo_base::ResourceSet,
    pub max_restarts: i32,
    pub checkpoints: Option<hoplo_wire::node::Checkpoints>,
    /// 0 is no limit.
    pub max_pending_calls: u32,
    /// Opaque: methods and options for handles.
    pub handle: Vec<u8>,
    pub call: Call,
}

/// The named actor that `get_if_exists` or `lookup_actor` found, with one reference to its handle.
pub struct FoundActor {
    pub actor: ActorId,
    pub handle: Vec<u8>,
    /// It was lost with an earlier daemon: there is no reference to its handle.
    pub dead: Option<Failure>,
}
