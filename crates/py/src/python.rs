//! What this module takes from Python: imports made once, and calls without temporary tuples.

use hoplo_client::GivesUp;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// A Python name that is looked up at its first use.
pub(crate) struct Import {
    module: &'static str,
    name: &'static str,
    cell: PyOnceLock<Py<PyAny>>,
}

impl Import {
    pub(crate) const fn new(module: &'static str, name: &'static str) -> Import {
        Import { module, name, cell: PyOnceLock::new() }
    }

    pub(crate) fn get<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyAny>> {
        self.cell.import(py, self.module, self.name)
    }
}

/// `callable(*args)` by vectorcall; the arguments are borrowed.
pub(crate) fn call<'py, const N: usize>(
    callable: &Bound<'py, PyAny>,
    args: [&Bound<'py, PyAny>; N],
) -> PyResult<Bound<'py, PyAny>> {
    let pointers = args.map(|arg| arg.as_ptr());
    // SAFETY: attached; all pointers are live borrowed references for the call, which returns
    // a new reference or null with an exception set.
    unsafe {
        let result =
            ffi::PyObject_Vectorcall(callable.as_ptr(), pointers.as_ptr(), N, std::ptr::null_mut());
        Bound::from_owned_ptr_or_err(callable.py(), result)
    }
}

/// Waits for the daemon, detached; a signal whose handler raises ends the wait.
pub(crate) fn interruptible<R: Send>(
    py: Python<'_>,
    wait: impl FnOnce(GivesUp<'_>) -> R + Send,
) -> PyResult<R> {
    let mut raised = None;
    let result = py.detach(|| {
        wait(&mut || {
            raised = Python::attach(|py| py.check_signals()).err();
            raised.is_some()
        })
    });
    match raised {
        Some(error) => Err(error),
        None => Ok(result),
    }
}

pub(crate) fn not_initialized() -> PyErr {
    PyRuntimeError::new_err("hoplo is not initialized here: call hoplo.init() first")
}
