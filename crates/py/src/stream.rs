//! `ObjectRefGenerator`: the refs of a streaming call, in order.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use hoplo_base::TaskId;
use hoplo_base::limits::INLINE_BYTES_MAX;
use hoplo_client::{StreamLook, StreamNext, Waited};
use pyo3::exceptions::{PyOSError, PyStopAsyncIteration, PyStopIteration, PyTypeError};
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::awaiting::{self, Awaited};
use crate::errors;
use crate::refs::{ObjectRef, not_a_ref};
use crate::running::Noted;
use crate::session::Session;
use crate::values::{self, Contained};

/// The refs of the values that a generator task or method yields, in their order.
///
/// `next()` and `for`, or `async for`, wait until the next value is there and give its ref. If the
/// generator raised, the last ref holds the error: `get` raises it. `hoplo.wait` takes a generator
/// in place of a ref: it is ready when the next ref is there or the generator has ended. Dropping
/// it cancels the task. It cannot be sent to another process; its refs can.
#[pyclass(frozen, generic, module = "hoplo._core")]
pub(crate) struct ObjectRefGenerator {
    task: TaskId,
    of_method: bool,
    session: Arc<Session>,
}

/// What the next step of an iteration would give.
pub(crate) enum Next<'py> {
    Item(Bound<'py, ObjectRef>),
    End,
    Pending,
}

impl ObjectRefGenerator {
    pub(crate) fn new(session: Arc<Session>, task: TaskId, of_method: bool) -> Self {
        Self { task, of_method, session }
    }

    pub(crate) fn is_of_method(&self) -> bool {
        self.of_method
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    fn look(&self) -> PyResult<StreamLook> {
        self.session.check()?;
        Ok(self.session.client.stream_look(self.task))
    }

    pub(crate) fn task(&self) -> TaskId {
        self.task
    }

    pub(crate) fn next_now<'py>(&self, py: Python<'py>) -> PyResult<Next<'py>> {
        self.session.check()?;
        match self.session.client.stream_next(self.task) {
            StreamNext::Pending => Ok(Next::Pending),
            StreamNext::End => Ok(Next::End),
            StreamNext::Item(object) => {
                Ok(Next::Item(ObjectRef::owning(py, Arc::clone(&self.session), object)?))
            }
        }
    }
}

/// The next ref of a stream, awaited.
struct NextOf(Py<ObjectRefGenerator>);

impl Awaited for NextOf {
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.0.get().next_now(py)? {
            Next::Item(reference) => Ok(Some(reference.into_any())),
            Next::End => Err(PyStopAsyncIteration::new_err(())),
            Next::Pending => Ok(None),
        }
    }

    fn when_ready(&self, callback: Box<dyn FnOnce() + Send>) {
        let stream = self.0.get();
        stream.session.client.on_stream(stream.task, callback);
    }
}

impl Drop for ObjectRefGenerator {
    fn drop(&mut self) {
        if self.session.is_ours() {
            self.session.client.stream_drop(self.task);
        }
    }
}

#[pymethods]
impl ObjectRefGenerator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, ObjectRef>> {
        let mut noted = Noted::not_yet();
        loop {
            match self.next_now(py)? {
                Next::Item(reference) => return Ok(reference),
                Next::End => return Err(PyStopIteration::new_err(())),
                Next::Pending => {}
            }
            match py.detach(|| self.session.client.stream_wait(self.task, None)) {
                Waited::Ready => {}
                Waited::TimedOut | Waited::Interrupted => {
                    py.check_signals()?;
                    let upcoming = || vec![self.session.client.stream_upcoming(self.task)];
                    noted.note("next", true, upcoming);
                }
            }
            if let Some(failure) = self.session.client.daemon_gone() {
                return Err(errors::raised(py, &failure, Some(self.task)));
            }
        }
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        awaiting::awaitable(slf.py(), NextOf(slf.clone().unbind()))
    }

    /// A ref that is ready when the generator has ended; `get` of it raises what ended it.
    fn completed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, ObjectRef>> {
        self.session.check()?;
        let mut none = Vec::new();
        values::encode(py.None().bind(py), INLINE_BYTES_MAX, &mut none, &mut Contained::default())?;
        let object = self.session.client.stream_completion(self.task, &none);
        ObjectRef::owning(py, Arc::clone(&self.session), object)
    }

    /// Whether `next()` would give a ref without waiting.
    fn next_ready(&self) -> PyResult<bool> {
        Ok(self.look()? == StreamLook::Item)
    }

    /// Whether the generator has ended and all of its refs were taken.
    fn is_finished(&self) -> PyResult<bool> {
        Ok(self.look()? == StreamLook::End)
    }

    /// The id of the task that yields the values.
    fn task_id(&self) -> String {
        errors::hex(self.task)
    }

    fn __repr__(&self) -> String {
        format!("ObjectRefGenerator({})", self.task_id())
    }

    fn __reduce__(&self) -> PyResult<Py<PyAny>> {
        Err(PyTypeError::new_err(
            "an ObjectRefGenerator stays in the process that made the call; pass its refs on \
             instead",
        ))
    }
}

/// `wait` where some of the awaited are streams: which are ready once `wanted` are, or time is up.
pub(crate) fn wait_mixed(
    py: Python<'_>,
    session: &Session,
    targets: &[Bound<'_, PyAny>],
    wanted: usize,
    deadline: Option<Instant>,
) -> PyResult<Vec<bool>> {
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|error| PyOSError::new_err(format!("no eventfd to wait with: {error}")))?;
    let event = Arc::new(event);
    let mut asked = vec![false; targets.len()];
    loop {
        let mut ready = Vec::with_capacity(targets.len());
        for (target, asked) in targets.iter().zip(&mut asked) {
            let is_ready = is_ready(session, target)?;
            ready.push(is_ready);
            if !is_ready && !std::mem::replace(asked, true) {
                ring_when_ready(session, target, &event);
            }
        }
        if ready.iter().filter(|ready| **ready).count() >= wanted {
            return Ok(ready);
        }
        if !sleep(py, &event, deadline)? {
            return Ok(ready);
        }
        if let Some(failure) = session.client.daemon_gone() {
            return Err(errors::raised(py, &failure, None));
        }
    }
}

fn is_ready(session: &Session, target: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Ok(stream) = target.cast_exact::<ObjectRefGenerator>() {
        return Ok(stream.get().look()? != StreamLook::Pending);
    }
    match target.cast_exact::<ObjectRef>() {
        Ok(reference) => Ok(session.client.ready(&[reference.get().id_in(session)?])[0]),
        Err(_) => Err(not_a_ref(target, "wait")),
    }
}

fn ring_when_ready(session: &Session, target: &Bound<'_, PyAny>, event: &Arc<OwnedFd>) {
    let event = Arc::clone(event);
    let ring = Box::new(move || {
        // Can only fail when the counter is full, and then the waiter is awake.
        let _ = rustix::io::write(&*event, &1u64.to_ne_bytes());
    });
    if let Ok(stream) = target.cast_exact::<ObjectRefGenerator>() {
        session.client.on_stream(stream.get().task(), ring);
    } else if let Ok(reference) = target.cast_exact::<ObjectRef>() {
        session.client.on_ready(reference.get().id(), ring);
    }
}

/// False when the deadline passed.
fn sleep(py: Python<'_>, event: &OwnedFd, deadline: Option<Instant>) -> PyResult<bool> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let woken = py.detach(|| {
            let mut fds = [PollFd::from_borrowed_fd(event.as_fd(), PollFlags::IN)];
            let woken = poll(&mut fds, left.as_ref());
            let _ = rustix::io::read(event, &mut [0u8; 8]);
            woken
        });
        match woken {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(rustix::io::Errno::INTR) => py.check_signals()?,
            Err(error) => return Err(PyOSError::new_err(format!("poll failed: {error}"))),
        }
    }
}
