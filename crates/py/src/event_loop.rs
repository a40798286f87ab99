//! An async actor's event loop runs in the worker's main thread, and waits for calls itself.
//!
//! asyncio's loop asks its selector for events once a turn. Ours (`hoplo._event_loop`) asks `Turn`:
//!
//! ```text
//! asyncio: select(timeout) --> Turn.take --calls there--> a task each (see `coroutines`), which runs in
//!                                |                          this same turn, and replies in it
//!                                '--nothing--> sleep at the bell, until
//!        a call comes | a thread nudges | a ref that is awaited is ready | the timeout | a signal
//! ```
//!
//! So a call is taken, run and answered without another thread, and calls that come together share one
//! turn. What else wakes a loop comes by the same bell:
//! - `call_soon_threadsafe`, and what it is made for (executors, cancellation), nudges.
//! - Files (sockets, pipes) are watched by a thread that sleeps in the kernel on the loop's own epoll set
//!   and nudges. It starts with the first file that a user's code adds.
//! - Refs that coroutines await are pushed to the loop's `Inbox`, which nudges (see `awaiting`).
//!
//! # Invariants
//! - TURN-1: `take` looks for nudges after it was told its timeout: what another thread put into the
//!   loop before it nudged is seen by this turn or the next.
//! - TURN-2: the loop looks at its files before and after each wait. The watcher tells each change once; what
//!   is left in a file by who reads a part of it is no change.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hoplo_client::{IncomingCall, Nudge, Patience, Work};
use parking_lot::Mutex;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rustix::event::epoll;

use crate::actor_call::ActorCall;
use crate::awaiting::{Inbox, LoopWaker};
use crate::calls::{Fault, Invocation};
use crate::coroutines::Coroutines;
use crate::interface::{Interface, unknown_method, unnamed};
use crate::leaving::{self, Outlook};
use crate::session::Session;

/// Turns between two looks at files when calls come without a pause: signals arrive as one.
const TURNS_BLIND_MAX: u32 = 64;

/// Enough that a turn costs little a call, and few enough that the first does not wait.
const CALLS_MAX: usize = 64;

/// A timeout beyond this is none.
const TIMEOUT_SECONDS_MAX: f64 = 1e6;

/// The actor whose calls a process takes.
pub(crate) struct Inlet {
    pub(crate) session: Arc<Session>,
    pub(crate) class_name: String,
    pub(crate) interface: Arc<Interface>,
}

impl Inlet {
    /// `None` if something is wrong with it, which is its answer.
    pub(crate) fn call(&self, py: Python<'_>, call: IncomingCall) -> PyResult<Option<ActorCall>> {
        let by_id = &self.interface.by_id;
        let session = Arc::clone(&self.session);
        let Some(call) = Invocation::of(session, call, |header| {
            by_id.get(&header.function).map_or_else(unnamed, |method| method.full_name())
        }) else {
            return Ok(None);
        };
        match by_id.get(&call.header.function) {
            Some(method) => ActorCall::new(py, call, &method.name, method.group.as_ref()).map(Some),
            None => {
                call.fail(py, Fault::Raised(unknown_method(&self.class_name)));
                Ok(None)
            }
        }
    }
}

/// Where an async actor's event loop waits.
#[pyclass(frozen, module = "hoplo._core")]
pub(crate) struct Turn {
    inlet: Arc<Inlet>,
    nudge: Arc<Nudge>,
    inbox: Arc<Inbox>,
    watches: AtomicBool,
    /// The last wait brought calls.
    busy: AtomicBool,
    blind: AtomicU32,
    end: Mutex<Option<End>>,
    coroutines: OnceLock<Coroutines>,
}

/// Why the loop is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By `exit_actor` or `sys.exit`.
    Left(i32),
    /// The daemon said so, or the process is a child that a coroutine forked.
    Ordered,
}

impl Turn {
    pub(crate) fn new(inlet: Arc<Inlet>) -> Turn {
        let nudge = Arc::new(Nudge::default());
        let inbox = Arc::new(Inbox::of_turn(Arc::clone(&inlet.session), Arc::clone(&nudge)));
        Turn {
            inlet,
            nudge,
            inbox,
            watches: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            blind: AtomicU32::new(0),
            end: Mutex::new(None),
            coroutines: OnceLock::new(),
        }
    }

    pub(crate) fn end(&self) -> Option<End> {
        *self.end.lock()
    }
}

#[pymethods]
impl Turn {
    /// Wakes the loop up for what is awaited in it.
    fn _waker(&self) -> LoopWaker {
        LoopWaker::of(Arc::clone(&self.inbox))
    }

    /// The loop whose turns these are. `limits`: of each concurrency group; None is the default one.
    /// `starters`: what starts a coroutine in the loop of each other group.
    fn prepare(
        &self,
        event_loop: Bound<'_, PyAny>,
        limits: Bound<'_, PyDict>,
        starters: Bound<'_, PyDict>,
        method_of: Bound<'_, PyAny>,
        stream: Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let made = Coroutines::new(event_loop, limits, starters, method_of, stream)?;
        let _ = self.coroutines.set(made); // a process has one such loop
        Ok(())
    }

    /// Waits for calls, nudges, or `timeout` seconds, and starts the calls; stops the loop at the
    /// actor's end. Unless it `serves`, calls are left alone. True: look at the files.
    fn take(&self, py: Python<'_>, timeout: Option<f64>, serves: bool) -> PyResult<bool> {
        self.inbox.deliver(py)?;
        let client = &self.inlet.session.client;
        let mut work = if serves { client.next_work() } else { None };
        if work.is_none() && self.outcome(serves).is_none() {
            let spins = self.busy.swap(false, Ordering::Relaxed);
            if timeout != Some(0.0) {
                let deadline = timeout
                    .filter(|seconds| *seconds < TIMEOUT_SECONDS_MAX)
                    .map(|seconds| Instant::now() + Duration::from_secs_f64(seconds.max(0.0)));
                let end = match leaving::outlook() {
                    Outlook::Finishes { until } => until,
                    Outlook::Stays | Outlook::Leaves(_) => None,
                };
                let deadline = [deadline, end].into_iter().flatten().min();
                let patience = Patience { takes: serves, spins, deadline };
                work = py.detach(|| client.wait_turn(patience, &self.nudge));
                self.inbox.deliver(py)?;
            }
        }
        let Some(coroutines) = self.coroutines.get().filter(|_| serves) else { return Ok(true) };
        let mut look = false;
        let mut taken = 0;
        while let Some(found) = work.take() {
            taken += 1;
            match found {
                Work::Call(call) => self.start(py, coroutines, call)?,
                Work::Exit { .. } => *self.end.lock() = Some(End::Ordered),
                Work::Interrupted => look = true,
                Work::RunActor { .. } => {}
            }
            if taken < CALLS_MAX && self.end().is_none() {
                work = client.next_work();
            }
        }
        if let Some(end) = self.outcome(serves) {
            *self.end.lock() = Some(end);
            coroutines.stop(py)?;
        }
        let turns = self.blind.fetch_add(1, Ordering::Relaxed);
        Ok(look || turns.is_multiple_of(TURNS_BLIND_MAX))
    }

    /// Fails a call that waits for its group; false if none of that id does.
    fn cancel_waiting(&self, py: Python<'_>, task_id: &str) -> PyResult<bool> {
        self.coroutines.get().map_or(Ok(false), |all| all.cancel_waiting(py, task_id))
    }

    /// From any thread: the loop has something to do.
    fn nudge(&self) {
        self.inlet.session.client.nudge(&self.nudge);
    }

    /// Nudges whenever something happens in the epoll set `fd`, which lives as long as the process.
    fn watch(&self, fd: i32) -> PyResult<()> {
        if self.watches.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let no_watch = |error: std::io::Error| PyOSError::new_err(error.to_string());
        // SAFETY: the caller's set is open now; an error later would end the watch.
        let inner = unsafe { BorrowedFd::borrow_raw(fd) };
        let outer = watch_set(inner).map_err(|error| no_watch(error.into()))?;
        let session = Arc::clone(&self.inlet.session);
        let nudge = Arc::clone(&self.nudge);
        std::thread::Builder::new()
            .name("hoplo-files".to_string())
            .spawn(move || {
                let mut events = [epoll::Event {
                    flags: epoll::EventFlags::empty(),
                    data: epoll::EventData::new_u64(0),
                }];
                loop {
                    match epoll::wait(&outer, &mut events, None) {
                        Ok(_) => session.client.nudge(&nudge),
                        Err(rustix::io::Errno::INTR) => {}
                        Err(_) => return,
                    }
                }
            })
            .map_err(no_watch)?;
        Ok(())
    }
}

impl Turn {
    fn start(&self, py: Python<'_>, coroutines: &Coroutines, call: IncomingCall) -> PyResult<()> {
        self.busy.store(true, Ordering::Relaxed);
        match self.inlet.call(py, call)? {
            Some(call) if leaving::outlook() != Outlook::Stays => {
                call.refuse(py);
                Ok(())
            }
            Some(call) => coroutines.accept(py, Bound::new(py, call)?),
            None => Ok(()),
        }
    }

    fn outcome(&self, serves: bool) -> Option<End> {
        if !self.inlet.session.is_ours() {
            return Some(End::Ordered);
        }
        match leaving::outlook() {
            _ if !serves => None,
            Outlook::Leaves(status) => Some(End::Left(status)),
            Outlook::Stays | Outlook::Finishes { .. } => self.end(),
        }
    }
}

/// A set that holds `inner`, by its edges: it says once that something happened there.
fn watch_set(inner: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let outer = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&outer, inner, epoll::EventData::new_u64(0), flags)?;
    Ok(outer)
}
