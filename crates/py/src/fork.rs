//! `os.fork`: what of a process's state its child gives up. Every room says it for itself; this calls them in order.

use pyo3::prelude::*;

use crate::values::scratch;
use crate::{awaiting, hooks, session};

/// Has Python call what is below at every fork.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let hooks = pyo3::types::PyDict::new(py);
    hooks.set_item("before", module.getattr("_before_fork")?)?;
    hooks.set_item("after_in_parent", module.getattr("_after_fork_in_parent")?)?;
    hooks.set_item("after_in_child", module.getattr("_after_fork_in_child")?)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&hooks))?;
    Ok(())
}

/// Runs in the child of every `os.fork`.
#[pyfunction]
pub(crate) fn _after_fork_in_child() {
    session::begin_epoch();
    scratch::after_fork_in_child();
    awaiting::after_fork();
    hooks::after_fork();
    session::after_fork();
}
