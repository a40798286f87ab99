//! Exceptions that are no error of the user's code: an actor or a process that exits, a call that is cancelled.

use hoplo_wire::{Failure, FailureKind};
use pyo3::intern;
use pyo3::prelude::*;

use crate::current;
use crate::python::Import;

static ACTOR_EXIT: Import = Import::new("hoplo.actor", "ActorExit");
static TASK_CANCELLED: Import = Import::new("hoplo.exceptions", "TaskCancelledError");

/// `how`: `left by exit_actor()`.
pub(crate) fn actor_left(how: &str) -> Failure {
    let text = match current::actor() {
        Some(actor) => format!("{} ({}) {how}", actor.spec.class_name, actor.spec.actor),
        None => how.to_string(),
    };
    Failure::new(FailureKind::ActorDied, text)
}

/// Whether it is what `exit_actor` raises.
pub(crate) fn is_actor_exit(py: Python<'_>, error: &PyErr) -> bool {
    is_named(py, error, &ACTOR_EXIT)
}

/// What a cancelled call raises where it stands.
pub(crate) fn ends_by_cancelling(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<pyo3::exceptions::PyKeyboardInterrupt>(py)
        || is_named(py, error, &TASK_CANCELLED)
}

/// The exceptions that were being handled when it was raised, the latest first.
pub(crate) fn contexts(py: Python<'_>, error: &PyErr) -> impl Iterator<Item = PyErr> {
    const MOST: usize = 64;
    let context = move |error: &PyErr| {
        let context = error.value(py).getattr(intern!(py, "__context__")).ok()?;
        (!context.is_none()).then(|| PyErr::from_value(context))
    };
    std::iter::successors(context(error), move |error| context(error)).take(MOST)
}

fn is_named(py: Python<'_>, error: &PyErr, kind: &Import) -> bool {
    kind.get(py).is_ok_and(|kind| error.value(py).is_instance(kind).unwrap_or(false))
}

/// As Python does at the end of a program: the text of `sys.exit("text")` goes to the standard error.
pub(crate) fn print_exit_text(py: Python<'_>, error: &PyErr) {
    let Ok(code) = error.value(py).getattr(intern!(py, "code")) else { return };
    if code.is_none() || code.extract::<i32>().is_ok() {
        return;
    }
    let print = || -> PyResult<()> {
        let stderr = py.import(intern!(py, "sys"))?.getattr(intern!(py, "stderr"))?;
        stderr.call_method1(intern!(py, "write"), (format!("{}\n", code.str()?),))?;
        stderr.call_method0(intern!(py, "flush")).map(drop)
    };
    // The program may have closed it, or put anything in its place.
    if let Err(error) = print() {
        error.write_unraisable(py, None);
    }
}

pub(crate) fn exit_status(py: Python<'_>, error: &PyErr) -> i32 {
    match error.value(py).getattr(intern!(py, "code")) {
        Ok(code) if code.is_none() => 0,
        Ok(code) => code.extract().unwrap_or(1),
        Err(_) => 1,
    }
}
