//! Objects by their ids: into the store, and out of it once they are ready.
//!
//! A signal ends the wait below; Python's handlers run here, then the wait goes on.

use std::time::Instant;

use hoplo_base::ObjectId;
use hoplo_client::{Allocation, Content, StoreError, Waited};
use pyo3::prelude::*;

use crate::errors;
use crate::python;
use crate::running::Noted;
use crate::session::Session;
use crate::values::{self, Large};

/// One copy, straight into the store; the caller owns a reference.
pub(crate) fn put_large(
    py: Python<'_>,
    session: &Session,
    large: &Large,
    contains: &[ObjectId],
) -> PyResult<ObjectId> {
    let allocation = place(py, session, large)?;
    Ok(session.client.put_allocated(allocation, contains))
}

/// Writes a value into the store.
pub(crate) fn place(py: Python<'_>, session: &Session, large: &Large) -> PyResult<Allocation> {
    try_place(py, session, large)?.map_err(|error| errors::store_error(py, &error))
}

/// The same, for who wants to know why there is no room.
pub(crate) fn try_place(
    py: Python<'_>,
    session: &Session,
    large: &Large,
) -> PyResult<Result<Allocation, StoreError>> {
    session.make_room(py)?;
    let allocation = match session.client.allocate_warm(large.len()) {
        Some(allocation) => allocation,
        None => {
            let len = large.len();
            match python::interruptible(py, |gives_up| session.client.allocate(len, gives_up))? {
                Ok(allocation) => allocation,
                Err(error) => return Ok(Err(error)),
            }
        }
    };
    // SAFETY: the allocation is `large.len()` bytes that are ours until it is sealed.
    unsafe { large.write(py, allocation.as_mut_ptr()) };
    Ok(Ok(allocation))
}

pub(crate) fn value_of<'py>(
    py: Python<'py>,
    content: &Content,
    object: ObjectId,
) -> PyResult<Bound<'py, PyAny>> {
    match content {
        Content::Failed(failure) => Err(errors::of_object(py, failure, object)),
        Content::Inline(_) | Content::Stored(_) => values::read_content(py, content),
    }
}

pub(crate) fn one(
    py: Python<'_>,
    session: &Session,
    id: ObjectId,
    timeout: Option<f64>,
    deadline: Option<Instant>,
) -> PyResult<Content> {
    loop {
        let what = ("get", &[id][..], deadline.is_none());
        let in_time = until(py, session, what, || session.client.wait(&[id], 1, deadline))?;
        match session.client.read(id) {
            Some(content) => return Ok(content),
            None if !in_time => return Err(timed_out(py, session, &[id], timeout)),
            None => {}
        }
    }
}

/// An argument; `None` if it was lost, and is made again.
pub(crate) fn argument(
    py: Python<'_>,
    session: &Session,
    id: ObjectId,
) -> PyResult<Option<Content>> {
    loop {
        let what = ("get", &[id][..], true);
        until(py, session, what, || session.client.wait_argument(id))?;
        match session.client.read(id) {
            Some(content) => return Ok(Some(content)),
            None if session.client.is_delayed(id) => return Ok(None),
            None => {}
        }
    }
}

/// Whether so many are ready in time.
pub(crate) fn wait_for(
    py: Python<'_>,
    session: &Session,
    ids: &[ObjectId],
    wanted: usize,
    deadline: Option<Instant>,
) -> PyResult<bool> {
    let only = wanted == ids.len() && deadline.is_none();
    until(py, session, ("wait", ids, only), || session.client.wait(ids, wanted, deadline))
}

/// Waits on, after signals; whether it was in time. `what`: for `hoplo why`, the operation, what it waits
/// for, and whether nothing else ends it.
pub(crate) fn until(
    py: Python<'_>,
    session: &Session,
    (operation, ids, only): (&'static str, &[ObjectId], bool),
    wait: impl Fn() -> Waited + Sync,
) -> PyResult<bool> {
    let mut noted = Noted::not_yet();
    loop {
        match py.detach(&wait) {
            Waited::Ready => return Ok(true),
            Waited::TimedOut => return Ok(false),
            Waited::Interrupted => {
                py.check_signals()?;
                let missing = || ids.iter().zip(session.client.ready(ids)).filter(|(_, it)| !it);
                noted.note(operation, only, || missing().map(|(id, _)| *id).collect());
            }
        }
        if let Some(failure) = session.client.daemon_gone() {
            return Err(errors::raised(py, &failure, None));
        }
    }
}

#[cold]
pub(crate) fn timed_out(
    py: Python<'_>,
    session: &Session,
    ids: &[ObjectId],
    timeout: Option<f64>,
) -> PyErr {
    let text = py.detach(|| session.client.why_late(ids, timeout.unwrap_or(0.0)));
    errors::system_error(py, "GetTimeoutError", &text)
}
