//! Modules that are on another machine.

use pyo3::exceptions::PyModuleNotFoundError;
use pyo3::prelude::*;

use crate::session;

/// What to add where something cannot be unpickled, because of a module that is on another machine.
pub(crate) fn why_missing(py: Python<'_>, error: &PyErr) -> String {
    let session = session::live().filter(|session| session.is_worker && session.packs);
    let Some(session) = session.filter(|_| error.is_instance_of::<PyModuleNotFoundError>(py))
    else {
        return String::new();
    };
    format!(
        ". This worker runs on node {:06x}, and modules that lie beside the program are on the program's machine only: \
         send them with hoplo.init(runtime_env={{'working_dir': '.'}})",
        session.client.welcome().node.number()
    )
}
