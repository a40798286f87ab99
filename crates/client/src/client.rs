//! The client: one per process.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hoplo_base::{ActorId, FunctionId, ObjectId, ProcessId, TaskId};
use hoplo_wire::Failure;
use hoplo_wire::node::{KvOperation, Role, Welcome};
use hoplo_wire::reply::{ReplyHeader, Returned};

use crate::{
    ActorCreate, Call, Content, FoundActor, Hooks, StreamNext, SubmitError, Waited, Work,
};

pub struct Client {}

/// Room in the store that is being written; freed on drop unless it was put.
pub struct Allocation {}

impl Allocation {
    /// 64-byte aligned, writable memory in the arena.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        todo!()
    }
    pub fn len(&self) -> usize {
        todo!()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the node daemon refused: {0}")]
    Refused(String),
    #[error("the node daemon does not answer: {0}")]
    Io(#[from] std::io::Error),
}

/// No room in the object store.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Says who holds what and what may be done.
    #[error("{0}")]
    Full(String),
    #[error("{0}")]
    NodeDied(String),
}

#[allow(unused_variables)]
impl Client {
    /// Says Hello on a connected unix socket and waits for the Welcome. Starts the helper threads.
    pub fn connect(socket: OwnedFd, role: Role, hooks: Box<dyn Hooks>) -> Result<Arc<Client>, ConnectError> {
        todo!()
    }
    pub fn welcome(&self) -> &Welcome {
        todo!()
    }
    /// The daemon's obituary once it is gone.
    pub fn daemon_gone(&self) -> Option<Failure> {
        todo!()
    }
    /// Flushes what is owed to the daemon, closes the socket, joins the helper threads. Every later call fails
    /// with `NodeDied`.
    pub fn close(&self) {
        todo!()
    }

    // ---- values ----
    /// A value of at most `INLINE_BYTES_MAX`; the caller owns one reference. `contains`: refs that lie inside.
    pub fn put(&self, bytes: &[u8], contains: &[ObjectId]) -> ObjectId {
        todo!()
    }
    /// Room in the store. May wait for the daemon: call it without the GIL when `len` is not at hand
    /// (`allocate_warm` never waits).
    pub fn allocate(&self, len: usize) -> Result<Allocation, StoreError> {
        todo!()
    }
    pub fn allocate_warm(&self, len: usize) -> Option<Allocation> {
        todo!()
    }
    /// Seals it as a put of this process.
    pub fn put_allocated(&self, allocation: Allocation, contains: &[ObjectId]) -> ObjectId {
        todo!()
    }
    /// Seals it as the result `object` that belongs to `owner`; the value goes into a reply.
    pub fn seal_result(&self, object: ObjectId, owner: ProcessId, allocation: Allocation, contains: &[ObjectId]) -> hoplo_wire::Value {
        todo!()
    }

    // ---- references: each Python ObjectRef owns one ----
    pub fn add_ref(&self, object: ObjectId) {
        todo!()
    }
    pub fn drop_ref(&self, object: ObjectId) {
        todo!()
    }

    // ---- reading ----
    /// The content if it is ready and readable here now; never waits. For a borrowed or spilled object that
    /// is not here, `None`: `wait` fetches it.
    pub fn read(&self, object: ObjectId) -> Option<Content> {
        todo!()
    }
    /// Drains replies and waits until `wanted` of the objects are ready (readable with `read`, except under
    /// pressure: then wait again). Duplicates count once each time they are listed.
    pub fn wait(&self, objects: &[ObjectId], wanted: usize, deadline: Option<Instant>) -> Waited {
        todo!()
    }
    /// Which are ready now (drains replies once).
    pub fn ready(&self, objects: &[ObjectId]) -> Vec<bool> {
        todo!()
    }
    /// Runs `callback` on the progress thread once the object is ready (at once if it is).
    pub fn on_ready(&self, object: ObjectId, callback: Box<dyn FnOnce() + Send>) {
        todo!()
    }
    /// Why it is not ready, for the text of a timeout: "waits for task:1-2 of f (queued: needs GPU 1, node has 0)".
    pub fn explain(&self, object: ObjectId) -> String {
        todo!()
    }

    // ---- calls ----
    /// Exports a pickled function or class of this job once; later calls with the same bytes are free.
    pub fn export(&self, bytes: &[u8], contains: &[ObjectId]) -> FunctionId {
        todo!()
    }
    /// The pickled function; waits for the daemon (no GIL). `None`: nobody exported it.
    pub fn fetch_function(&self, function: FunctionId) -> Option<Vec<u8>> {
        todo!()
    }
    /// Submits a task. The caller owns one reference to each of its `returns` objects (`task.object(0..n)`).
    pub fn submit(&self, call: Call) -> TaskId {
        todo!()
    }
    /// Submits a method call, in order with this process's other calls to the actor.
    pub fn submit_method(&self, actor: ActorId, call: Call) -> Result<TaskId, SubmitError> {
        todo!()
    }
    /// Takes the next item of a streaming call of this process.
    pub fn stream_next(&self, task: TaskId) -> StreamNext {
        todo!()
    }
    /// Waits until `stream_next` is not `Pending`.
    pub fn stream_wait(&self, task: TaskId, deadline: Option<Instant>) -> Waited {
        todo!()
    }
    pub fn on_stream(&self, task: TaskId, callback: Box<dyn FnOnce() + Send>) {
        todo!()
    }
    /// The reader is gone: items not taken are dropped, the producer is cancelled.
    pub fn stream_drop(&self, task: TaskId) {
        todo!()
    }
    pub fn cancel(&self, object: ObjectId, force: bool, recursive: bool) {
        todo!()
    }

    // ---- actors ----
    /// The caller owns one reference to the handle (`actor.handle()`), which `add_ref`/`drop_ref` count.
    /// Waits for the daemon only for named actors (no GIL). Err: the name is taken.
    pub fn create_actor(&self, create: ActorCreate) -> Result<FoundActor, String> {
        todo!()
    }
    /// Waits for the daemon (no GIL).
    pub fn lookup_actor(&self, namespace: &str, name: &str) -> Option<FoundActor> {
        todo!()
    }
    pub fn kill_actor(&self, actor: ActorId, no_restart: bool) {
        todo!()
    }

    // ---- a worker's main thread ----
    /// The next call from any ring; without waiting `None` if nothing is there.
    pub fn next_work(&self) -> Option<Work> {
        todo!()
    }
    /// Waits for the next (no GIL).
    pub fn wait_work(&self) -> Work {
        todo!()
    }
    /// Whether `cancel` was asked for a task that runs or waits here.
    pub fn is_cancelled(&self, task: TaskId) -> bool {
        todo!()
    }
    /// Before the first call of user code with refs in its arguments and after it: everything borrowed in between
    /// and still referenced is told to the daemon before the reply (REF-3); `reply` does that.
    /// Any thread may reply. `retiring`: set the flag in the header to exit after it.
    pub fn reply(&self, to: ProcessId, header: ReplyHeader, returned: &[Returned]) {
        todo!()
    }
    /// For a stream with back-pressure: how many items the reader has taken. Waits while more than `ahead` are not
    /// taken (no GIL); Interrupted and reader gone end the wait too.
    pub fn stream_credit(&self, to: ProcessId, task: TaskId, sent: u64, ahead: u64) -> Waited {
        todo!()
    }
    pub fn actor_started(&self, actor: ActorId, incarnation: u32, result: Result<(), Failure>) {
        todo!()
    }
    /// `exit_actor()`: the daemon will not restart it; reply first, then exit.
    pub fn actor_exit(&self, actor: ActorId) {
        todo!()
    }
    pub fn set_title(&self, title: &str) {
        todo!()
    }

    // ---- asking the daemon (all wait: no GIL) ----
    pub fn query(&self, kind: &str, argument: &str, timeout: Duration) -> Result<String, String> {
        todo!()
    }
    /// The old value (Get, Put without overwrite), or the keys.
    pub fn kv(&self, namespace: &str, operation: KvOperation) -> Result<(Option<Vec<u8>>, Vec<Vec<u8>>), Failure> {
        todo!()
    }
    pub fn stop_node(&self) {
        todo!()
    }
}
