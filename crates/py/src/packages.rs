//! Packages of runtime environments: what `python/hoplo/_packages.py` makes and unpacks goes out and comes in here.
//!
//! A package travels as a large function does. It is exported under the hash of its content; a stub in the
//! control store holds the object with its bytes, and both stay as long as somebody of the job may ask. So whatever
//! brings a function to a node brings packages as well.

use std::sync::Arc;

use hoplo_base::FunctionId;
use hoplo_wire::node::RuntimeEnv;
use hoplo_wire::{Failure, FailureKind};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::exported;
use crate::options;
use crate::python::Import;
use crate::session::{self, Session};
use crate::values::{self, Contained};

/// The environment of a canonical JSON, with packages where workers cannot use what it names in place.
pub(crate) fn runtime_env(py: Python<'_>, session: &Session, json: &str) -> PyResult<RuntimeEnv> {
    static PACKED: Import = Import::new("hoplo._packages", "packed");
    if !json.contains("\"working_dir\"") && !json.contains("\"py_modules\"") {
        return options::runtime_env(py, json);
    }
    let packed: String = PACKED.get(py)?.call1((json, session.packs))?.extract()?;
    options::runtime_env(py, &packed)
}

/// The job's own, in its driver: everything made there inherits it.
pub(crate) fn enter_job(py: Python<'_>, json: &str) -> PyResult<()> {
    let session = session::current(py)?;
    let env = runtime_env(py, &session, json)?;
    *session.env.lock() = env;
    Ok(())
}

/// The options of a remote function that leaves this process, perhaps for another node.
pub(crate) fn portable<'py>(options: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static PORTABLE: Import = Import::new("hoplo._packages", "portable");
    if session::live().is_none_or(|session| !session.packs) {
        return Ok(options.clone());
    }
    PORTABLE.get(options.py())?.call1((options,))
}

/// The packages that a worker's environment names.
pub(crate) enum Packages {
    /// They are unpacked, or there are none.
    There,
    Missing {
        /// The environment, as canonical JSON.
        env: String,
    },
}

impl Packages {
    pub(crate) fn of(env: Option<&str>) -> Packages {
        match env {
            Some(env) if env.contains("\"pkg:") => Packages::Missing { env: env.to_string() },
            Some(_) | None => Packages::There,
        }
    }

    /// Before the first function is loaded. After an error the next call tries again.
    pub(crate) fn unpack(&mut self, py: Python<'_>, session: &Session) -> Result<(), Failure> {
        static ENTER: Import = Import::new("hoplo._packages", "enter");
        let Packages::Missing { env } = self else { return Ok(()) };
        let folder = &session.client.welcome().session_dir;
        let entered = ENTER.get(py).and_then(|enter| enter.call1((folder, &*env)));
        if let Err(error) = entered {
            let text = error.value(py).to_string();
            return Err(Failure::new(FailureKind::RuntimeEnv, text));
        }
        *self = Packages::There;
        Ok(())
    }
}

/// Whether environments that leave this process must name packages.
#[pyfunction]
pub(crate) fn _packs() -> bool {
    session::live().is_some_and(|session| session.packs)
}

/// Distinguishes the sessions of this process.
#[pyfunction]
pub(crate) fn _session_number(py: Python<'_>) -> PyResult<u32> {
    Ok(session::current(py)?.number)
}

/// Makes a package known to the processes of the job; its hash, by which they fetch it.
#[pyfunction]
pub(crate) fn _export_package(py: Python<'_>, content: &Bound<'_, PyAny>) -> PyResult<String> {
    static EXPORTED: Import = Import::new("hoplo._packages", "exported");
    let session = session::current(py)?;
    let view = PyBuffer::<u8>::get(content)?;
    if !view.is_c_contiguous() {
        return Err(PyValueError::new_err("a package is one piece"));
    }
    let (start, length) = (view.buf_ptr() as usize, view.len_bytes());
    let key = py.detach(|| {
        // SAFETY: `view` keeps the memory in place, and is released only after this; nobody writes to the
        // package while it is exported: `_packages` maps a file for it that it made itself.
        let bytes = unsafe { std::slice::from_raw_parts(start as *const u8, length) };
        hoplo_client::function_id(bytes)
    });
    drop(view);
    let hash: String = key.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let known = session.client.has_exported(key)
        // In a worker the program may have done it before; else it asks for nothing.
        || (session.is_worker && exported::pickle_of(py, &session, key, None)?.is_some());
    if !known {
        let mut contains = Contained::default();
        let make = EXPORTED.get(py)?;
        let made = contains.collect(|| make.call1((content,)))?;
        // The ref lives until the daemon holds it.
        let (pickle, _stored): (Bound<'_, PyBytes>, Bound<'_, PyAny>) = made.extract()?;
        let name: Arc<str> = "a package of a runtime_env".into();
        exported::send(py, &session, &name, key, pickle.as_bytes(), &contains)?;
    }
    Ok(hash)
}

/// The bytes of a package, as an object with a buffer.
#[pyfunction]
pub(crate) fn _fetch_package<'py>(py: Python<'py>, hash: &str) -> PyResult<Bound<'py, PyAny>> {
    let session = session::current(py)?;
    let key = key_of(hash).ok_or_else(|| PyValueError::new_err(format!("{hash} is no hash")))?;
    let pickle = exported::pickle_of(py, &session, key, None)?.ok_or_else(|| {
        PyRuntimeError::new_err("nobody of this job has sent it, or its job has ended")
    })?;
    let value = values::load(&PyBytes::new(py, &pickle), None)?;
    if value.is_instance_of::<PyBytes>() {
        return Ok(value);
    }
    static GET: Import = Import::new("hoplo._core", "get");
    GET.get(py)?.call1((value,))
}

fn key_of(hash: &str) -> Option<FunctionId> {
    if hash.len() != 32 || !hash.is_ascii() {
        return None;
    }
    let mut key = [0; 16];
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hash[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(FunctionId(key))
}
