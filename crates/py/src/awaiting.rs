//! Awaiting refs in event loops, and `concurrent.futures`.
//!
//! An `await` that must wait registers with the client and suspends on a future of its loop. When
//! the object is ready, the client's progress thread, which never takes the GIL for this, pushes that
//! future to the loop's waker and, if it is the first one, writes the waker's eventfd. The loop
//! wakes up once for however many became ready:
//!
//! ```text
//! progress thread:  ready.push(future); first? write(eventfd)
//! loop:             eventfd readable -> for each future: set_result(None) -> await goes on, reads
//! ```
//!
//! The loop of an async actor needs no eventfd: it sleeps at the process's bell (see `event_loop`).
//!
//! `.future()` needs Python to finish it, and may run callbacks of the user's: that happens in a thread
//! of its own, so that they may call hoplo themselves.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc;

use hoplo_client::Nudge;
use parking_lot::Mutex;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyStopIteration};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};

use crate::fetch;
use crate::python::Import;
use crate::refs::{self, ObjectRef, Ways};
use crate::session::Session;

/// What a coroutine suspends on: the iterator that `__await__` gives.
#[pyclass(module = "hoplo._core", name = "_Awaiter", freelist = 256)]
pub(crate) struct Awaiter {
    target: Target,
    /// Iterator of the loop's future, once this waits.
    suspended: Option<Py<PyAny>>,
}

enum Target {
    Ref(Py<ObjectRef>),
    Other(Box<dyn Awaited>),
}

/// What may be awaited besides a ref.
pub(crate) trait Awaited: Send + Sync {
    /// What it gives, or raises, if it is ready.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>>;

    /// The callback may run in any thread, and must not wait for the interpreter.
    fn when_ready(&self, callback: Box<dyn FnOnce() + Send>);
}

/// When the module is made.
pub(crate) fn register() {
    refs::set_ways(Ways { awaited: await_ref, future });
}

fn await_ref<'py>(reference: &Bound<'py, ObjectRef>) -> PyResult<Bound<'py, PyAny>> {
    let target = Target::Ref(reference.clone().unbind());
    Ok(Bound::new(reference.py(), Awaiter { target, suspended: None })?.into_any())
}

/// The awaitable of something else than a ref.
pub(crate) fn awaitable<'py>(
    py: Python<'py>,
    awaited: impl Awaited + 'static,
) -> PyResult<Bound<'py, PyAny>> {
    let target = Target::Other(Box::new(awaited));
    Ok(Bound::new(py, Awaiter { target, suspended: None })?.into_any())
}

#[pymethods]
impl Awaiter {
    /// Of an awaited ref, as `ObjectRef.hex()`.
    #[getter]
    fn object_id(&self) -> Option<String> {
        match &self.target {
            Target::Ref(reference) => Some(reference.get().id().hex()),
            Target::Other(_) => None,
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.suspended)
    }

    fn __clear__(&mut self) {
        self.suspended = None;
    }

    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        loop {
            if let Some(suspended) = self.suspended.take() {
                // The future's own iterator: yields it until it is done, raises if it was cancelled.
                match next_of(suspended.bind(py))? {
                    Some(yielded) => {
                        self.suspended = Some(suspended);
                        return Ok(yielded);
                    }
                    None => continue,
                }
            }
            if let Some(value) = self.target.poll(py)? {
                return Err(PyStopIteration::new_err((value.unbind(),)));
            }
            let (waker, future) = LoopWaker::of_running_loop(py)?;
            let iterator = future.call_method0(intern!(py, "__await__"))?;
            self.suspended = Some(iterator.unbind());
            let future = future.unbind();
            self.target.when_ready(py, Box::new(move || waker.push(future)));
        }
    }
}

impl Target {
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self {
            Target::Ref(reference) => {
                let reference = reference.get();
                match reference.session().client.read(reference.id()) {
                    Some(content) => fetch::value_of(py, &content, reference.id()).map(Some),
                    None => Ok(None),
                }
            }
            Target::Other(awaited) => awaited.poll(py),
        }
    }

    fn when_ready(&self, py: Python<'_>, callback: Box<dyn FnOnce() + Send>) {
        match self {
            Target::Ref(reference) => {
                let reference = reference.bind(py).get();
                reference.session().client.on_ready(reference.id(), callback);
            }
            Target::Other(awaited) => awaited.when_ready(callback),
        }
    }
}

fn next_of<'py>(iterator: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    // SAFETY: attached; `iterator` is an iterator, made by `__await__`.
    unsafe {
        let next = pyo3::ffi::PyIter_Next(iterator.as_ptr());
        match Bound::from_owned_ptr_or_opt(iterator.py(), next) {
            Some(next) => Ok(Some(next)),
            None => PyErr::take(iterator.py()).map_or(Ok(None), Err),
        }
    }
}

/// Wakes one event loop up; registered as the reader of its own eventfd.
#[pyclass(frozen, module = "hoplo._core", name = "_LoopWaker")]
pub(crate) struct LoopWaker {
    inbox: Arc<Inbox>,
}

/// Futures of one loop that are to be done.
pub(crate) struct Inbox {
    wake: Wake,
    ready: Mutex<Vec<Py<PyAny>>>,
}

/// How the loop hears of the first.
enum Wake {
    Event(OwnedFd),
    Turn(Arc<Session>, Arc<Nudge>),
}

impl Inbox {
    fn new(wake: Wake) -> Inbox {
        Inbox { wake, ready: Mutex::new(Vec::new()) }
    }

    pub(crate) fn of_turn(session: Arc<Session>, nudge: Arc<Nudge>) -> Inbox {
        Inbox::new(Wake::Turn(session, nudge))
    }

    fn push(&self, future: Py<PyAny>) {
        let mut ready = self.ready.lock();
        ready.push(future);
        if ready.len() > 1 {
            return;
        }
        drop(ready);
        match &self.wake {
            // Can only fail when the counter is full, and then the loop wakes up anyway.
            Wake::Event(event) => drop(rustix::io::write(event, &1u64.to_ne_bytes())),
            Wake::Turn(session, nudge) => session.client.nudge(nudge),
        }
    }

    /// In the loop: finishes what is ready.
    pub(crate) fn deliver(&self, py: Python<'_>) -> PyResult<()> {
        let ready = std::mem::take(&mut *self.ready.lock());
        for future in ready {
            let future = future.bind(py);
            if !future.call_method0(intern!(py, "done"))?.is_truthy()? {
                future.call_method1(intern!(py, "set_result"), (py.None(),))?;
            }
        }
        Ok(())
    }
}

impl LoopWaker {
    /// Of a loop that has this inbox already.
    pub(crate) fn of(inbox: Arc<Inbox>) -> LoopWaker {
        LoopWaker { inbox }
    }

    /// The running loop's inbox, and a new future of that loop.
    fn of_running_loop(py: Python<'_>) -> PyResult<(Arc<Inbox>, Bound<'_, PyAny>)> {
        static RUNNING_LOOP: Import = Import::new("asyncio", "get_running_loop");
        let running = RUNNING_LOOP.get(py)?.call0().map_err(|error| {
            let made = PyRuntimeError::new_err(
                "a ref can be awaited in an asyncio event loop only; elsewhere use hoplo.get",
            );
            made.set_cause(py, Some(error));
            made
        })?;
        let future = running.call_method0(intern!(py, "create_future"))?;
        Ok((Self::inbox_of(&running)?, future))
    }

    fn inbox_of(running: &Bound<'_, PyAny>) -> PyResult<Arc<Inbox>> {
        static WAKERS: pyo3::sync::PyOnceLock<Py<PyAny>> = pyo3::sync::PyOnceLock::new();
        let py = running.py();
        // By weak reference to the loop: a waker lives as long as its loop.
        let wakers = WAKERS.get_or_try_init(py, || {
            Ok::<_, PyErr>(py.import("weakref")?.getattr("WeakKeyDictionary")?.call0()?.unbind())
        })?;
        let known = wakers.bind(py).call_method1(intern!(py, "get"), (running,))?;
        if let Ok(waker) = known.cast::<LoopWaker>() {
            return Ok(Arc::clone(&waker.get().inbox));
        }
        if let Some(turn) = running.getattr_opt(intern!(py, "_hoplo_turn"))? {
            let waker = turn.call_method0(intern!(py, "_waker"))?.cast_into::<LoopWaker>()?;
            let inbox = Arc::clone(&waker.get().inbox);
            wakers.bind(py).set_item(running, waker)?;
            return Ok(inbox);
        }
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| PyOSError::new_err(format!("no eventfd for the loop: {error}")))?;
        let fd = event.as_raw_fd();
        let inbox = Arc::new(Inbox::new(Wake::Event(event)));
        let waker = Bound::new(py, LoopWaker { inbox: Arc::clone(&inbox) })?;
        running.call_method1(intern!(py, "add_reader"), (fd, &waker))?;
        wakers.bind(py).set_item(running, waker)?;
        Ok(inbox)
    }
}

#[pymethods]
impl LoopWaker {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        // First the event, then the inbox: what is pushed in between writes the event again.
        if let Wake::Event(event) = &self.inbox.wake {
            let _ = rustix::io::read(event, &mut [0u8; 8]);
        }
        self.inbox.deliver(py)
    }
}

type Job = (Py<PyAny>, Py<ObjectRef>);

/// To the thread that finishes `concurrent.futures`.
static FINISHER: Mutex<Option<mpsc::Sender<Job>>> = Mutex::new(None);

fn future<'py>(reference: &Bound<'py, ObjectRef>) -> PyResult<Bound<'py, PyAny>> {
    static FUTURE: Import = Import::new("concurrent.futures", "Future");
    let py = reference.py();
    let this = reference.get();
    this.session().check()?;
    let future = FUTURE.get(py)?.call0()?;
    if this.session().client.read(this.id()).is_some() {
        finish(&future, reference)?;
        return Ok(future);
    }
    let finisher = finisher()?;
    let job = (future.clone().unbind(), reference.clone().unbind());
    this.session().client.on_ready(
        this.id(),
        Box::new(move || {
            // The receiver ends only with the process.
            let _ = finisher.send(job);
        }),
    );
    Ok(future)
}

/// In the child of a fork: the thread stayed with the parent.
pub(crate) fn after_fork() {
    std::mem::forget(FINISHER.lock().take());
}

fn finisher() -> PyResult<mpsc::Sender<Job>> {
    let mut finisher = FINISHER.lock();
    if let Some(sender) = &*finisher {
        return Ok(sender.clone());
    }
    let (sender, jobs) = mpsc::channel::<Job>();
    std::thread::Builder::new()
        .name("hoplo-futures".to_string())
        .spawn(move || {
            for (future, reference) in jobs {
                let attached = Python::try_attach(|py| {
                    let future = future.bind(py);
                    if let Err(error) = finish(future, reference.bind(py)) {
                        error.write_unraisable(py, Some(future));
                    }
                });
                if attached.is_none() {
                    return; // the interpreter ends
                }
            }
        })
        .map_err(|error| PyOSError::new_err(format!("no thread for futures: {error}")))?;
    *finisher = Some(sender.clone());
    Ok(sender)
}

fn finish(future: &Bound<'_, PyAny>, reference: &Bound<'_, ObjectRef>) -> PyResult<()> {
    let py = future.py();
    if !future.call_method0(intern!(py, "set_running_or_notify_cancel"))?.is_truthy()? {
        return Ok(());
    }
    let (session, id) = (reference.get().session(), reference.get().id());
    let value = || {
        session.check()?;
        let content = match session.client.read(id) {
            Some(content) => content,
            None => fetch::one(py, session, id, None, None)?,
        };
        fetch::value_of(py, &content, id)
    };
    match value() {
        Ok(value) => future.call_method1(intern!(py, "set_result"), (value,))?,
        Err(error) => future.call_method1(intern!(py, "set_exception"), (error.value(py),))?,
    };
    Ok(())
}
