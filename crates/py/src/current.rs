//! What runs in this process now: for `get_runtime_context`, for cancellation, for messages.
//!
//! The main thread's task is in `MAIN`, where the client's threads look when a task is cancelled. Threads
//! of an actor's pool have their call in a thread-local; coroutines of an async actor in
//! `hoplo._worker.current_call`. A thread that the user's code started sees the main thread's.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hoplo_base::TaskId;
use hoplo_wire::node::{ActorSpec, RuntimeEnv};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::session::{self, Session};

/// A call that runs.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) task: TaskId,
    pub(crate) name: Arc<str>,
    pub(crate) attempt: u32,
    /// The `name` option of the call.
    pub(crate) given_name: Option<Arc<str>>,
    /// A cancellation interrupts it.
    pub(crate) interruptible: bool,
    /// By `coarse_now`.
    pub(crate) since: Duration,
}

impl Running {
    /// What its caller calls it.
    pub(crate) fn title(&self) -> &Arc<str> {
        self.given_name.as_ref().unwrap_or(&self.name)
    }
}

/// The actor that this process is.
pub(crate) struct ActorSelf {
    pub(crate) spec: Box<ActorSpec>,
    pub(crate) incarnation: u32,
    /// Its calls run in an event loop.
    pub(crate) is_async: bool,
}

static MAIN: Mutex<Option<Running>> = Mutex::new(None);
/// Calls that other threads run, by thread.
static THREADS: Mutex<BTreeMap<u64, Running>> = Mutex::new(BTreeMap::new());
/// GPU ids of the current task, or of the actor.
static GPUS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
static ACTOR: OnceLock<ActorSelf> = OnceLock::new();
/// Set by the first request to cancel something here: who starts a call asks the client from then on.
static ANY_CANCELLED: AtomicBool = AtomicBool::new(false);
/// The main thread, for `pthread_kill`; 0 in a driver.
static MAIN_THREAD: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static HERE: RefCell<Option<Running>> = const { RefCell::new(None) };
}

pub(crate) fn set_main(running: Option<Running>) {
    *MAIN.lock() = running;
}

/// Runs `body` as the call of this thread, which is not the main one.
pub(crate) fn in_thread<R>(running: Running, body: impl FnOnce() -> R) -> R {
    let thread = thread();
    THREADS.lock().insert(thread, running.clone());
    HERE.set(Some(running));
    let result = body();
    HERE.set(None);
    THREADS.lock().remove(&thread);
    result
}

/// What runs now, with the threads that run it as Python's `threading.get_ident` names them. The calls of an
/// async actor are its event loop's to tell.
pub(crate) fn running() -> Vec<(u64, Running)> {
    let main = MAIN.lock().clone().map(|running| (MAIN_THREAD.load(Ordering::Relaxed), running));
    let threads = THREADS.lock();
    main.into_iter().chain(threads.iter().map(|(thread, one)| (*thread, one.clone()))).collect()
}

/// This thread, as Python's `threading.get_ident` names it.
pub(crate) fn thread() -> u64 {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as u64 }
}

/// A clock that is a few milliseconds late and costs next to nothing.
pub(crate) fn coarse_now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

pub(crate) fn become_actor(actor: ActorSelf) -> &'static ActorSelf {
    ACTOR.get_or_init(|| actor)
}

pub(crate) fn actor() -> Option<&'static ActorSelf> {
    ACTOR.get()
}

pub(crate) fn remember_main_thread() {
    MAIN_THREAD.store(thread(), Ordering::Relaxed);
}

/// Of a worker.
pub(crate) fn is_main_thread() -> bool {
    // SAFETY: no preconditions.
    MAIN_THREAD.load(Ordering::Relaxed) == unsafe { libc::pthread_self() } as u64
}

/// What the task that the main thread runs is called; `None` in an actor.
pub(crate) fn main_task() -> Option<Arc<str>> {
    if actor().is_some() {
        return None;
    }
    MAIN.lock().as_ref().map(|running| Arc::clone(running.title()))
}

/// False as long as nobody asked to cancel anything that runs or waits here.
pub(crate) fn any_cancelled() -> bool {
    ANY_CANCELLED.load(Ordering::Acquire)
}

/// From a thread of the client: interrupts the main thread if it runs that task. True if it does.
pub(crate) fn interrupt(task: TaskId) -> bool {
    ANY_CANCELLED.store(true, Ordering::Release); // pairs with the Acquire in any_cancelled
    let main = MAIN.lock();
    let runs = main.as_ref().is_some_and(|running| running.task == task && running.interruptible);
    let thread = MAIN_THREAD.load(Ordering::Relaxed);
    if runs && thread != 0 {
        // SAFETY: the main thread of a process lives as long as the process.
        unsafe { libc::pthread_kill(thread as libc::pthread_t, libc::SIGINT) };
    }
    runs
}

/// Whether the task that the main thread runs now has been asked to stop.
#[pyfunction]
pub(crate) fn interrupted() -> bool {
    let running = MAIN.lock().as_ref().filter(|running| running.interruptible).map(|one| one.task);
    match (running, session::live()) {
        (Some(task), Some(session)) => session.client.is_cancelled(task),
        _ => false,
    }
}

pub(crate) fn set_gpus(gpus: &[u32]) {
    let mut known = GPUS.lock();
    known.clear();
    known.extend_from_slice(gpus);
}

/// The environment that this code runs in: what is made here runs in the same one.
pub(crate) fn runtime_env(session: &Session) -> RuntimeEnv {
    match actor() {
        Some(actor) => actor.spec.shape.env.clone(),
        None => session.env.lock().clone(),
    }
}

/// The call of this thread, where it is not the main one.
pub(crate) fn here() -> Option<Running> {
    HERE.with_borrow(Clone::clone)
}

/// The task of the call of this thread, where it is not the main one.
pub(crate) fn task_here() -> Option<TaskId> {
    HERE.with_borrow(|here| here.as_ref().map(|running| running.task))
}

/// The call of the main thread.
pub(crate) fn main() -> Option<Running> {
    MAIN.lock().clone()
}

/// GPU ids of the current task, or of the actor.
pub(crate) fn gpus() -> Vec<u32> {
    GPUS.lock().clone()
}
