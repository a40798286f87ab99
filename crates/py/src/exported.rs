//! A function or class that workers need: pickled and exported at its first use in a session.
//!
//! A small pickle lies in the control store, of which each job has a share. A large one goes into the object
//! store like any large value, and what is exported holds the ref: it takes room from nobody else's
//! functions, and goes to disk when memory is short. How large it may be says `hoplo._serialization`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use hoplo_base::limits::{INLINE_BYTES_MAX, JOB_FUNCTION_BYTES_MAX, SHOWN_NAME_BYTES_MAX};
use hoplo_base::{FunctionId, JobId, ProcessId, shown};
use parking_lot::Mutex;
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict};

use crate::errors;
use crate::get;
use crate::missing;
use crate::python::{self, Import};
use crate::session::{self, Session};
use crate::values::{self, Contained};

/// Exports of this size and more are told to the daemon detached.
const DETACHED_BYTES_MIN: usize = 64 * 1024;

pub(crate) struct Exported {
    /// What messages call it.
    pub(crate) name: Arc<str>,
    /// The number of the session that knows it, and its key there.
    key: Mutex<Option<(u32, FunctionId)>>,
}

impl Exported {
    pub(crate) fn new(name: Arc<str>) -> Exported {
        Exported { name, key: Mutex::new(None) }
    }

    /// What another process exported under `key`.
    pub(crate) fn known(session: &Session, key: FunctionId, name: Arc<str>) -> Exported {
        Exported { name, key: Mutex::new(Some((session.number, key))) }
    }

    fn key_in(&self, session: &Session) -> Option<FunctionId> {
        let (number, key) = (*self.key.lock())?;
        (session.number == number).then_some(key)
    }

    /// The key, if it was exported in the live session.
    pub(crate) fn key(&self) -> Option<FunctionId> {
        self.key_in(&*session::live()?)
    }

    /// The target itself, in a process that has only its key.
    pub(crate) fn fetch<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let key = self.key().ok_or_else(|| {
            let text = format!("{} belongs to a session that was shut down", self.name);
            PyRuntimeError::new_err(text)
        })?;
        fetch(py, &*session::current(py)?, key, None)
    }

    /// Exports `target` unless that was done; `None`: this process has only the key.
    pub(crate) fn export(
        &self,
        py: Python<'_>,
        session: &Session,
        target: Option<&Py<PyAny>>,
    ) -> PyResult<FunctionId> {
        if let Some(key) = self.key_in(session) {
            return Ok(key);
        }
        let target = match target {
            Some(target) => target.bind(py).clone(),
            None => self.fetch(py)?,
        };
        let key = match loaded_from(&target) {
            // A function that refers to itself, or to its module's others: no second export.
            Some((number, key)) if number == session.number => key,
            _ => self.export_target(session, &target)?,
        };
        *self.key.lock() = Some((session.number, key));
        Ok(key)
    }

    fn export_target(&self, session: &Session, target: &Bound<'_, PyAny>) -> PyResult<FunctionId> {
        static DUMPS: Import = Import::new("hoplo._serialization", "dumps_definition");
        static DUMPS_STORED: Import =
            Import::new("hoplo._serialization", "dumps_stored_definition");
        let py = target.py();
        let dumps = DUMPS.get(py)?;
        let mut contains = Contained::default();
        let pickle = contains
            .collect(|| dumps.call1((target,)))
            .map_err(|error| values::unpicklable(target, &self.name, error))?;
        let mut pickle = pickle.cast_into::<PyBytes>()?;
        let function = hoplo_client::function_id(pickle.as_bytes());
        if session.client.has_exported(function) {
            return Ok(function);
        }
        // Held until the daemon holds it, because it holds what was exported.
        let mut _stored = None;
        if pickle.as_bytes().len() > INLINE_BYTES_MAX {
            static CHECK: Import = Import::new("hoplo._serialization", "check_definition_size");
            CHECK.get(py)?.call1((target, &*self.name, pickle.as_bytes().len()))?;
            let reference = get::put(&pickle, None)?;
            let dumps = DUMPS_STORED.get(py)?;
            let stub = contains.collect(|| dumps.call1((&reference,)))?;
            pickle = stub.cast_into::<PyBytes>()?;
            _stored = Some(reference);
        }
        send(py, session, &self.name, function, pickle.as_bytes(), &contains)?;
        Ok(function)
    }
}

/// Makes a pickle known to the processes of the job.
pub(crate) fn send(
    py: Python<'_>,
    session: &Session,
    name: &Arc<str>,
    key: FunctionId,
    pickle: &[u8],
    contains: &Contained,
) -> PyResult<()> {
    count(session, name, pickle.len())?;
    session.make_room(py)?;
    if pickle.len() < DETACHED_BYTES_MIN {
        session.client.export(key, pickle, contains.ids());
    } else {
        py.detach(|| session.client.export(key, pickle, contains.ids()));
    }
    Ok(())
}

/// What this process exported in its session.
struct Count {
    session: u32,
    bytes: usize,
    functions: usize,
    largest: (usize, Arc<str>),
}

static COUNT: Mutex<Option<Count>> = Mutex::new(None);

fn count(session: &Session, name: &Arc<str>, bytes: usize) -> PyResult<()> {
    let mut known = COUNT.lock();
    let count = known.take().filter(|count| count.session == session.number);
    let count = known.insert(count.unwrap_or_else(|| Count {
        session: session.number,
        bytes: 0,
        functions: 0,
        largest: (0, Arc::clone(name)),
    }));
    if bytes > count.largest.0 {
        count.largest = (bytes, Arc::clone(name));
    }
    if count.bytes + bytes > JOB_FUNCTION_BYTES_MAX {
        let Count { bytes: before, functions, largest: (most, largest), .. } = &*count;
        return Err(PyRuntimeError::new_err(format!(
            "{name} cannot be sent to workers: the {functions} functions and classes that this program \
             sent take {before} bytes, this one takes {bytes}, and a job may have \
             {JOB_FUNCTION_BYTES_MAX}. The largest is {largest} ({most} bytes). Define remote functions \
             once, not in a loop, and pass data as arguments or by put() instead of capturing it"
        )));
    }
    count.bytes += bytes;
    count.functions += 1;
    Ok(())
}

/// What this process unpickled, by address; entries keep their targets, so addresses stay theirs.
static LOADED: Mutex<Option<HashMap<usize, (u32, FunctionId)>>> = Mutex::new(None);

fn loaded_from(target: &Bound<'_, PyAny>) -> Option<(u32, FunctionId)> {
    LOADED.lock().as_ref()?.get(&(target.as_ptr() as usize)).copied()
}

/// What was exported under `key`, if anything was. `call`: which call needs it, as in `ToNode::Fetch`.
pub(crate) fn pickle_of(
    py: Python<'_>,
    session: &Session,
    key: FunctionId,
    call: Option<(JobId, ProcessId)>,
) -> PyResult<Option<Vec<u8>>> {
    python::interruptible(py, |gives_up| session.client.fetch_function(key, call, gives_up))
}

/// Unpickles what was exported under `key`; `call` as of `pickle_of`.
pub(crate) fn fetch<'py>(
    py: Python<'py>,
    session: &Session,
    key: FunctionId,
    call: Option<(JobId, ProcessId)>,
) -> PyResult<Bound<'py, PyAny>> {
    static FETCHED: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let fetched = FETCHED.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
    let name = PyBytes::new(py, &key.0);
    if let Some(known) = fetched.get_item(&name)? {
        return Ok(known);
    }
    let bytes = pickle_of(py, session, key, call)?.ok_or_else(|| {
        PyRuntimeError::new_err(format!("{key} was never exported in this session"))
    })?;
    let target = values::load(&PyBytes::new(py, &bytes), None).map_err(|error| {
        // A cancellation or Ctrl-C, which may come at any line.
        if !error.is_instance_of::<PyException>(py) {
            return error;
        }
        let made = errors::system_error(
            py,
            "DeserializationError",
            &format!(
                "a function or class arrived and cannot be unpickled here: {error}. A module that \
                 it needs must be importable in workers; see runtime_env={{'py_modules': [...]}}{}",
                missing::why_missing(py, &error)
            ),
        );
        made.set_cause(py, Some(error));
        made
    })?;
    fetched.set_item(name, &target)?;
    LOADED.lock().get_or_insert_default().insert(target.as_ptr() as usize, (session.number, key));
    Ok(target)
}

/// `f` of `test_it.<locals>.f`, for people: nothing is found by it.
pub(crate) fn short_name(qualname: &str) -> Cow<'_, str> {
    let name = qualname.rsplit("<locals>.").next().unwrap_or(qualname);
    if name.len() <= SHOWN_NAME_BYTES_MAX {
        return shown(name);
    }
    let end = (0..=SHOWN_NAME_BYTES_MAX).rev().find(|at| name.is_char_boundary(*at));
    shown(&name[..end.unwrap_or_default()])
}
