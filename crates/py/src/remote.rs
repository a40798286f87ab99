//! `RemoteFunction`: what `@hoplo.remote` makes of a function.
//!
//! Budget of `f.remote(1)`, in instructions as callgrind counts them: 290 for session and options, 450
//! for the arguments, 2,050 in the client, 270 for the ref. The replies that the client drains on the
//! way come on top, 1,900 for one, whether here or in `get`.

use std::sync::Arc;

use hoplo_base::{FunctionId, ResourceSet, TaskId, shown};
use hoplo_client::CallOptions;
use parking_lot::Mutex;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::args::{Extras, encode_args};
use crate::context;
use crate::exported::{Exported, short_name};
use crate::interface::Arity;
use crate::options::{self, Results, RetryExceptions, Where};
use crate::packages;
use crate::placement::Place;
use crate::python::{self, Import};
use crate::refs::ObjectRef;
use crate::session::{self, Session};
use crate::shape;
use crate::stream::ObjectRefGenerator;

pub(crate) fn certainly_fits(
    arity: Arity,
    args: &Bound<'_, PyTuple>,
    kwargs: Option<&Bound<'_, PyDict>>,
) -> bool {
    let count = args.len() as i64;
    kwargs.is_none_or(|kwargs| kwargs.is_empty())
        && count >= arity.0
        && (arity.1 < 0 || count <= arity.1)
}

/// A function that runs in workers: `f.remote(...)` calls it. Made by `hoplo.remote`.
///
/// `f.options(...)` changes options, `f.map(items)` calls it for many items, and `f.__wrapped__` is
/// the plain function. It can be sent to other processes.
#[pyclass(frozen, dict, module = "hoplo._core")]
pub(crate) struct RemoteFunction {
    /// `None` in a process that only knows its key.
    function: Option<Py<PyAny>>,
    exported: Arc<Exported>,
    arity: Arity,
    options: Py<PyAny>,
    parsed: Parsed,
    /// What the client is given, of the session of that number.
    resolved: Mutex<Option<(u32, Arc<CallOptions>)>>,
}

/// Of `TaskOptions`.
struct Parsed {
    resources: ResourceSet,
    results: Results,
    max_retries: i32,
    max_calls: u32,
    retry_flags: u8,
    extras: Extras,
    name: Arc<str>,
    env: Option<String>,
    place: Where,
    group: Place,
    remembered: bool,
    near_first: bool,
}

impl Parsed {
    fn read(options: &Bound<'_, PyAny>, function_name: &Arc<str>) -> PyResult<Parsed> {
        let name: String = options.getattr("name")?.extract()?;
        let retry = RetryExceptions::read(&options.getattr("retry_exceptions")?)?;
        let given_name = (!name.is_empty()).then(|| Arc::from(name.as_str()));
        Ok(Parsed {
            resources: options::resources(&options.getattr("resources")?)?,
            results: Results {
                num_returns: options.getattr("num_returns")?.extract()?,
                backpressure: options.getattr("backpressure")?.extract()?,
            },
            max_retries: options::retries(options.getattr("max_retries")?.extract()?),
            max_calls: options.getattr("max_calls")?.extract().unwrap_or(u32::MAX),
            retry_flags: retry.flags,
            name: given_name
                .as_deref()
                .map_or_else(|| Arc::clone(function_name), |name| shown(name).into()),
            extras: Extras { group: None, name: given_name, retry_types: retry.types },
            env: options.getattr("runtime_env")?.extract()?,
            place: Where::read(&options.getattr("where")?)?,
            group: Place::read(options)?,
            remembered: options.getattr("enable_task_events")?.extract()?,
            near_first: options.getattr("near_first")?.extract()?,
        })
    }
}

impl RemoteFunction {
    fn make<'py>(
        function: Option<Py<PyAny>>,
        exported: Arc<Exported>,
        options: &Bound<'py, PyAny>,
        arity: Arity,
        names: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, RemoteFunction>> {
        let py = options.py();
        let parsed = Parsed::read(options, &exported.name)?;
        let made = RemoteFunction {
            function,
            exported,
            arity,
            options: options.clone().unbind(),
            parsed,
            resolved: Mutex::new(None),
        };
        let made = Bound::new(py, made)?;
        for name in NAMES {
            if let Ok(value) = names.getattr(name) {
                made.setattr(name, value)?;
            }
        }
        Ok(made)
    }

    fn target<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.function {
            Some(function) => Ok(function.bind(py).clone()),
            None => self.exported.fetch(py),
        }
    }

    /// Exports the function at the first call of a session.
    fn resolved(&self, py: Python<'_>, session: &Session) -> PyResult<Arc<CallOptions>> {
        if let Some((number, options)) = &*self.resolved.lock()
            && *number == session.number
        {
            return Ok(Arc::clone(options));
        }
        let parsed = &self.parsed;
        let options = Arc::new(CallOptions {
            function: self.exported.export(py, session, self.function.as_ref())?,
            name: Arc::clone(&parsed.name),
            shape: shape::shape(
                py,
                session,
                &parsed.resources,
                parsed.env.as_deref(),
                &parsed.place,
                parsed.group,
            )?,
            returns: parsed.results.returns(),
            flags: parsed.results.flags() | parsed.retry_flags,
            max_retries: parsed.max_retries,
            max_calls: parsed.max_calls,
            job: None,
            stream_ahead: parsed.results.stream_ahead(),
            max_pending_calls: 0,
            remembered: parsed.remembered,
            near_first: parsed.near_first,
            may_be_overtaken: false,
        });
        *self.resolved.lock() = Some((session.number, Arc::clone(&options)));
        Ok(options)
    }

    #[cold]
    fn check(&self, args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        static CHECK: Import = Import::new("hoplo._signature", "check");
        let py = args.py();
        let none = PyDict::new(py);
        let kwargs = kwargs.unwrap_or(&none);
        let function = self.target(py)?;
        CHECK.get(py)?.call1((function, args, kwargs, &*self.exported.name))?;
        Ok(())
    }
}

/// What an instance takes over from its function.
const NAMES: [&str; 2] = ["__module__", "__doc__"];

#[pymethods]
impl RemoteFunction {
    #[new]
    fn new<'py>(
        function: &Bound<'py, PyAny>,
        options: &Bound<'py, PyAny>,
        arity: Arity,
    ) -> PyResult<Bound<'py, RemoteFunction>> {
        let name = match function.getattr(intern!(function.py(), "__qualname__")) {
            Ok(name) => name.extract::<String>()?,
            Err(_) => function.getattr("__name__")?.extract()?,
        };
        let exported = Arc::new(Exported::new(short_name(&name).as_ref().into()));
        Self::make(Some(function.clone().unbind()), exported, options, arity, function)
    }

    /// Calls the function in a worker, and returns at once.
    ///
    /// Returns an ObjectRef; with `num_returns` above 1 a list of them, with 0 None; for a
    /// generator function an ObjectRefGenerator. An argument that is an ObjectRef is replaced by
    /// its value before the function runs.
    #[pyo3(signature = (*args, **kwargs))]
    fn remote<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        if !certainly_fits(self.arity, args, kwargs) {
            self.check(args, kwargs)?;
        }
        let session = session::current(py)?;
        let options = self.resolved(py, &session)?;
        let extras = &self.parsed.extras;
        let (call, implicit) = encode_args(&session, args, kwargs, extras)?.call(options);
        let parent = context::parent(py)?;
        let task = session.client.submit(call, parent);
        drop(implicit);
        results(py, session, task, self.parsed.results, false)
    }

    /// Yields the function's values for the items, in order; like the builtin `map`.
    ///
    /// One task runs `chunk_size` items; by default as many as take about 5 ms, by measured time.
    /// Several iterables give several arguments. The first error is raised where its value would be
    /// yielded. An iterable may be endless: only as many items are taken as keep all workers busy.
    /// `refs=True` yields an ObjectRef for each item in place of its value.
    #[pyo3(signature = (*iterables, chunk_size=None, refs=false))]
    fn map<'py>(
        slf: &Bound<'py, Self>,
        iterables: &Bound<'py, PyTuple>,
        chunk_size: Option<Bound<'py, PyAny>>,
        refs: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        static MAP_ITEMS: Import = Import::new("hoplo._map", "map_items");
        let py = slf.py();
        session::current(py)?;
        MAP_ITEMS.get(py)?.call1((slf, iterables, chunk_size, refs))
    }

    /// The same function with some options changed: those of `hoplo.remote`.
    #[pyo3(signature = (**options))]
    fn options<'py>(
        slf: &Bound<'py, Self>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        static WITH_OPTIONS: Import = Import::new("hoplo.remote_function", "with_options");
        let none = PyDict::new(slf.py());
        python::call(WITH_OPTIONS.get(slf.py())?, [slf, options.unwrap_or(&none)])
    }

    /// A copy with other options that shares the export.
    fn _with<'py>(
        slf: &Bound<'py, Self>,
        options: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, RemoteFunction>> {
        let this = slf.get();
        let function = this.function.as_ref().map(|function| function.clone_ref(slf.py()));
        Self::make(function, Arc::clone(&this.exported), options, this.arity, slf.as_any())
    }

    /// Raises TypeError: `f()` runs nothing; call `f.remote()`.
    #[pyo3(signature = (*_args, **_kwargs))]
    fn __call__(
        &self,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let name = &self.exported.name;
        Err(PyTypeError::new_err(format!(
            "{name}() runs nothing, since {name} is a remote function: call {name}.remote(), or \
             {name}.__wrapped__() to run it in this process"
        )))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static RESTORE: Import = Import::new("hoplo._core", "_restore_function");
        let (py, this) = (slf.py(), slf.get());
        let mut options = this.options.bind(py).clone();
        if this.parsed.env.is_some() {
            options = packages::portable(&options)?;
        }
        let Some(key) = this.exported.key() else {
            let function = this.target(py)?;
            let made = (function, &options, this.arity);
            return Ok((slf.get_type(), made).into_pyobject(py)?.into_any());
        };
        let names = NAMES.map(|name| slf.getattr(name).ok());
        let key = PyBytes::new(py, &key.0);
        let made = (key, &*this.exported.name, &options, this.arity, names.to_vec());
        Ok((RESTORE.get(py)?, made).into_pyobject(py)?.into_any())
    }

    fn __repr__(&self) -> String {
        format!("RemoteFunction({})", self.exported.name)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)?;
        visit.call(&self.options)
    }

    #[getter]
    fn _function<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.target(py)
    }

    #[getter]
    fn _options<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.options.bind(py)
    }

    #[getter]
    fn _arity(&self) -> Arity {
        self.arity
    }

    #[getter]
    fn __wrapped__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.target(py)
    }

    #[getter]
    fn __name__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.target(py)?.getattr(intern!(py, "__name__"))
    }

    #[getter]
    fn __qualname__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.target(py)?.getattr(intern!(py, "__qualname__"))
    }
}

/// What a pickled remote function calls when it is read, by the key of its export.
#[pyfunction]
pub(crate) fn _restore_function<'py>(
    py: Python<'py>,
    key: &Bound<'py, PyBytes>,
    name: &str,
    options: &Bound<'py, PyAny>,
    arity: Arity,
    names: Vec<Option<Bound<'py, PyAny>>>,
) -> PyResult<Bound<'py, RemoteFunction>> {
    let key = <[u8; 16]>::try_from(key.as_bytes())
        .map_err(|_| PyValueError::new_err("an export has a key of 16 bytes"))?;
    let session = session::current(py)?;
    let exported = Exported::known(&session, FunctionId(key), name.into());
    let nameless = py.None();
    let made = RemoteFunction::make(None, Arc::new(exported), options, arity, nameless.bind(py))?;
    for (name, value) in NAMES.iter().zip(names) {
        made.setattr(*name, value)?;
    }
    Ok(made)
}

/// The refs that a call's `.remote()` returns.
pub(crate) fn results(
    py: Python<'_>,
    session: Arc<Session>,
    task: TaskId,
    results: Results,
    of_method: bool,
) -> PyResult<Bound<'_, PyAny>> {
    match results.num_returns {
        1 => Ok(ObjectRef::of_result(py, session, task.object(0), of_method)?.into_any()),
        0 => Ok(py.None().into_bound(py)),
        count if count < 0 => {
            Ok(Bound::new(py, ObjectRefGenerator::new(session, task, of_method))?.into_any())
        }
        _ => {
            let refs = (0..results.returns())
                .map(|index| {
                    let (session, object) = (Arc::clone(&session), task.object(index));
                    ObjectRef::of_result(py, session, object, of_method)
                })
                .collect::<PyResult<Vec<_>>>()?;
            Ok(PyList::new(py, refs)?.into_any())
        }
    }
}
