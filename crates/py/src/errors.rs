//! The one map from what went wrong below to the exceptions of `hoplo.exceptions`.

use hoplo_base::{ObjectId, TaskId};
use hoplo_client::{ConnectError, StoreError, SubmitError};
use hoplo_wire::{Failure, FailureKind};
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::python::Import;
use crate::values::Contained;

/// The exception to raise for a result that failed.
pub(crate) fn raised(py: Python<'_>, failure: &Failure, task: Option<TaskId>) -> PyErr {
    static MAKE_TASK_ERROR: Import = Import::new("hoplo._errors", "make_task_error");
    let made = match failure.kind {
        FailureKind::User => MAKE_TASK_ERROR
            .get(py)
            .and_then(|make| make.call1((PyBytes::new(py, &failure.payload),))),
        FailureKind::Cancelled
        | FailureKind::WorkerCrashed
        | FailureKind::ActorDied
        | FailureKind::ActorUnavailable
        | FailureKind::ObjectLost
        | FailureKind::StoreFull
        | FailureKind::OutOfMemory
        | FailureKind::RuntimeEnv
        | FailureKind::PendingCallsLimit
        | FailureKind::NodeDied
        | FailureKind::OutOfDisk
        | FailureKind::OutOfDiskHere
        | FailureKind::OwnerDied
        | FailureKind::NotSent
        | FailureKind::WorkerStart
        | FailureKind::TaskGroupRemoved
        | FailureKind::ActorGroupRemoved
        | FailureKind::TaskUnschedulable
        | FailureKind::ActorUnschedulable => {
            let cause = Some(&*failure.cause).filter(|cause| !cause.is_empty());
            exception(py, failure.kind.exception(), &failure.text(), task.map(hex), cause)
        }
    };
    made.map_or_else(|error| error, PyErr::from_value)
}

/// The same for an object: the exception names it, and its task.
pub(crate) fn of_object(py: Python<'_>, failure: &Failure, object: ObjectId) -> PyErr {
    let error = raised(py, failure, Some(object.task));
    let ids = [("task_id", hex(object.task)), ("object_id", object.hex())];
    // Not by setattr, which may be the user's. One without a dict of its own goes without ids.
    if let Ok(own) = error.value(py).getattr(intern!(py, "__dict__"))
        && let Ok(own) = own.cast_into::<PyDict>()
        && let Err(error) = ids.into_iter().try_for_each(|(name, id)| own.set_item(name, id))
    {
        return error;
    }
    error
}

/// The exception of that name with that text.
pub(crate) fn system_error(py: Python<'_>, name: &str, text: &str) -> PyErr {
    exception(py, name, text, None, None).map_or_else(|error| error, PyErr::from_value)
}

fn exception<'py>(
    py: Python<'py>,
    name: &str,
    text: &str,
    task: Option<String>,
    cause: Option<&[u8]>,
) -> PyResult<Bound<'py, PyAny>> {
    static SYSTEM_ERROR: Import = Import::new("hoplo._errors", "system_error");
    let details = PyDict::new(py);
    if let Some(task) = task {
        details.set_item("task_id", task)?;
    }
    SYSTEM_ERROR.get(py)?.call1((name, text, details, cause.map(|cause| PyBytes::new(py, cause))))
}

pub(crate) fn connection_failed(py: Python<'_>, text: &str) -> PyErr {
    system_error(py, "ConnectionFailedError", text)
}

pub(crate) fn connect_error(py: Python<'_>, error: &ConnectError) -> PyErr {
    connection_failed(py, &error.to_string())
}

pub(crate) fn store_error(py: Python<'_>, error: &StoreError) -> PyErr {
    let name = match error {
        StoreError::Denied(failure) => failure.kind.exception(),
        StoreError::NodeDied(_) => "NodeDiedError",
        StoreError::GivenUp => "HoploError", // by a signal, whose exception is raised instead
    };
    system_error(py, name, &error.to_string())
}

pub(crate) fn submit_error(py: Python<'_>, error: &SubmitError) -> PyErr {
    match error {
        SubmitError::PendingCallsLimit { .. } => {
            system_error(py, "PendingCallsLimitExceeded", &error.to_string())
        }
    }
}

/// A user's exception as the payload of a failure, and the refs inside, which the caller keeps until it replied. If there are
/// more than `refs_max`, it goes without its cause and them: its text and traceback are all there is of it.
pub(crate) fn encode_with_refs(
    error: &PyErr,
    py: Python<'_>,
    function: &str,
    refs_max: usize,
) -> (Failure, Contained) {
    let mut contains = Contained::default();
    let failure = contains.collect(|| encode(error, py, function, true));
    if contains.len() <= refs_max {
        return (failure, contains);
    }
    (encode(error, py, function, false), Contained::default())
}

fn encode(error: &PyErr, py: Python<'_>, function: &str, with_cause: bool) -> Failure {
    static ENCODE_ERROR: Import = Import::new("hoplo._errors", "encode_error");
    let encoded = ENCODE_ERROR
        .get(py)
        .and_then(|encode| {
            let error = with_traceback(py, error);
            encode.call1((error, function, std::process::id(), with_cause))
        })
        .and_then(|bytes| Ok(bytes.cast_into::<PyBytes>()?.as_bytes().into()));
    match encoded {
        Ok(exception) => Failure::user(exception),
        Err(second) => Failure::new(
            FailureKind::WorkerCrashed,
            format!("{function} raised {error}, which could not be sent back: {second}"),
        ),
    }
}

/// The exception, which has its traceback; `PyErr::value` alone may not.
pub(crate) fn with_traceback<'py>(py: Python<'py>, error: &PyErr) -> Bound<'py, PyAny> {
    error.clone_ref(py).into_value(py).into_bound(py).into_any()
}

/// A failure for what only a bug of ours or a foreign program on our socket can cause.
pub(crate) fn malformed(what: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(format!("hoplo received bytes it cannot read: {what}"))
}

/// The id as hexadecimal text.
pub(crate) fn hex(task: TaskId) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * TaskId::BYTES);
    for byte in task.to_bytes() {
        text.push(DIGITS[usize::from(byte >> 4)].into());
        text.push(DIGITS[usize::from(byte & 15)].into());
    }
    text
}
