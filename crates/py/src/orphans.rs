//! Whose children those are whose parent is gone.

use pyo3::prelude::*;
use rustix::process::{getpid, set_child_subreaper};

/// From now on a descendant of this process whose parent ends becomes this process's child, whatever
/// session or group it put itself into: who forks twice does not get away.
#[pyfunction]
pub(crate) fn adopt_orphans() -> PyResult<()> {
    set_child_subreaper(Some(getpid()))
        .map_err(|error| pyo3::exceptions::PyOSError::new_err(error.to_string()))
}
