//! Actors from the outside: templates, handles and methods.
//!
//! A handle and the methods taken from it share one counted reference to the actor, `Held`.

use std::sync::Arc;

use hoplo_base::limits::ACTOR_INTERFACE_BYTES_MAX;
use hoplo_base::{ActorId, TaskId};
use hoplo_client::{ActorCreate, CallOptions, NoActor};
use hoplo_wire::node::Checkpoints;
use pyo3::exceptions::{PyAttributeError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use pyo3::{IntoPyObjectExt, ffi};

use crate::args::{Extras, encode_args};
use crate::ask;
use crate::context;
use crate::current;
use crate::errors;
use crate::exported::{Exported, short_name};
use crate::interface::{Interface, Method};
use crate::options;
use crate::placement::Place;
use crate::python::{self, Import};
use crate::refs::note_or_keep;
use crate::remote::{certainly_fits, results};
use crate::session::{self, Session};
use crate::shape;
use crate::values::contained;

/// One counted reference to an actor's handle.
pub(crate) struct Held {
    pub(crate) actor: ActorId,
    pub(crate) session: Arc<Session>,
    pub(crate) interface: Arc<Interface>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.session.drop_ref(self.actor.handle());
    }
}

/// A class to create actors of: exported once, by content hash, at the first `create`.
#[pyclass(frozen, module = "hoplo._core")]
pub(crate) struct ActorTemplate {
    class: Py<PyAny>,
    exported: Exported,
    class_name: String,
    methods: Py<PyList>,
    is_async: bool,
}

#[pymethods]
impl ActorTemplate {
    #[new]
    fn new(
        actor_class: &Bound<'_, PyAny>,
        class_name: &str,
        methods: &Bound<'_, PyAny>,
        is_async: bool,
    ) -> PyResult<ActorTemplate> {
        let methods = methods.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        let short = short_name(class_name);
        Ok(ActorTemplate {
            class: actor_class.clone().unbind(),
            exported: Exported::new(short.as_ref().into()),
            class_name: short.to_string(),
            methods: PyList::new(actor_class.py(), methods)?.unbind(),
            is_async,
        })
    }

    /// Starts an actor and returns at once. The arguments have been checked.
    fn create<'py>(
        &self,
        options: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<ActorHandle> {
        let py = options.py();
        let session = session::current(py)?;
        let class = self.exported.export(py, &session, Some(&self.class))?;
        let interface = self.interface(options)?;
        let env: Option<String> = options.getattr("runtime_env")?.extract()?;
        let place = options::Where::read(&options.getattr("where")?)?;
        let placement = options::resources(&options.getattr("placement_resources")?)?;
        let group = Place::read(options)?;
        let shape = shape::shape(py, &session, &placement, env.as_deref(), &place, group)?;
        let held = options::resources(&options.getattr("resources")?)?;
        let args = encode_args(&session, args, Some(kwargs), &Extras::default())?;
        let max_restarts = options::retries(options.getattr("max_restarts")?.extract()?);
        let checkpoints: Option<(u32, u64)> = options.getattr("checkpoints")?.extract()?;
        let checkpoints =
            checkpoints.map(|(calls, interval_ms)| Checkpoints { calls, interval_ms });
        let call = CallOptions {
            function: class,
            name: self.class_name.as_str().into(),
            shape: Arc::clone(&shape),
            returns: 0,
            flags: 0,
            max_retries: max_restarts,
            max_calls: 0,
            job: None,
            stream_ahead: 0,
            max_pending_calls: 0,
            remembered: false,
            near_first: false,
            may_be_overtaken: false,
        };
        let (call, implicit) = args.call(Arc::new(call));
        let namespace: Option<String> = options.getattr("namespace")?.extract()?;
        let create = ActorCreate {
            class,
            class_name: self.class_name.clone(),
            name: interface.name.clone(),
            namespace: namespace.unwrap_or_else(|| session.namespace.clone()),
            detached: options.getattr("detached")?.extract()?,
            get_if_exists: options.getattr("get_if_exists")?.extract()?,
            shape: (*shape).clone(),
            held: group.named(&session, held),
            max_restarts,
            checkpoints,
            max_pending_calls: interface.max_pending_calls,
            handle: interface.bytes.as_bytes(py).to_vec(),
            call,
        };
        let found = if create.name.is_empty() {
            session.client.create_actor(create, &mut || false)
        } else {
            python::interruptible(py, |gives_up| session.client.create_actor(create, gives_up))?
        };
        drop(implicit);
        let found = found.map_err(|error| match error {
            NoActor::Refused(why) => PyValueError::new_err(why),
            NoActor::Unsaid(failure) | NoActor::NodeDied(failure) => {
                errors::raised(py, &failure, None)
            }
            // By a signal, whose exception is raised instead.
            NoActor::GivenUp => errors::system_error(
                py,
                "HoploError",
                "the actor was given up before the daemon knew it",
            ),
        })?;
        ActorHandle::found(py, session, found)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.class)?;
        visit.call(&self.methods)
    }
}

impl ActorTemplate {
    fn interface(&self, options: &Bound<'_, PyAny>) -> PyResult<Arc<Interface>> {
        static DUMPS: Import = Import::new("hoplo._serialization", "dumps_in_band");
        let py = options.py();
        let groups = PyDict::new(py);
        groups.update(options.getattr("concurrency_groups")?.cast()?)?;
        let parts = (
            &self.class_name,
            options.getattr("name")?,
            &self.methods,
            self.is_async,
            options.getattr("max_concurrency")?,
            groups,
            options.getattr("max_task_retries")?,
            options.getattr("max_pending_calls")?,
            options.getattr("enable_task_events")?,
            !options.getattr("checkpoints")?.is_none(),
            options.getattr("allow_out_of_order_execution")?,
        );
        let bytes = DUMPS.get(py)?.call1((parts,))?.cast_into::<PyBytes>()?;
        let taken = bytes.as_bytes().len();
        if taken > ACTOR_INTERFACE_BYTES_MAX {
            return Err(PyValueError::new_err(format!(
                "the names and options of the methods and concurrency groups of {} take {taken} bytes, and \
                 {ACTOR_INTERFACE_BYTES_MAX} at most travel with a handle: give the actor fewer methods, or \
                 shorter names",
                self.class_name
            )));
        }
        Interface::read(&bytes)
    }
}

/// Stands for an actor: `handle.method.remote(...)` calls a method of it.
///
/// A handle can be passed to tasks and actors, returned, stored and pickled; all copies stand for
/// the same actor. When no process holds a handle any more, the actor ends, after the calls that
/// were made before. A detached actor stays until `hoplo.kill`.
#[pyclass(frozen, generic, module = "hoplo._core")]
pub(crate) struct ActorHandle {
    held: Arc<Held>,
}

impl ActorHandle {
    /// Takes over one reference to the actor's handle.
    pub(crate) fn owning(
        session: Arc<Session>,
        actor: ActorId,
        interface: Arc<Interface>,
    ) -> ActorHandle {
        ActorHandle { held: Arc::new(Held { actor, session, interface }) }
    }

    fn found(
        py: Python<'_>,
        session: Arc<Session>,
        found: hoplo_client::FoundActor,
    ) -> PyResult<ActorHandle> {
        let interface = Interface::read(&PyBytes::new(py, &found.handle))?;
        Ok(Self::owning(session, found.actor, interface))
    }

    fn method(&self, method: &Arc<Method>) -> ActorMethod {
        ActorMethod { held: Arc::clone(&self.held), method: Arc::clone(method) }
    }
}

#[pymethods]
impl ActorHandle {
    /// The id, as hexadecimal text.
    #[getter]
    fn _actor_id(&self) -> String {
        self.held.actor.hex()
    }

    #[getter]
    fn _class_name(&self) -> &str {
        &self.held.interface.class_name
    }

    /// Methods first, so that a call's look-up raises no error on its way; but what begins with an
    /// underscore is the handle's own if it has it.
    fn __getattribute__<'py>(
        slf: &Bound<'py, Self>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let text = name.to_str()?;
        let method = this.held.interface.methods.get(text);
        if let Some(method) = method
            && !text.starts_with('_')
        {
            return Ok(Bound::new(py, this.method(method))?.into_any());
        }
        // SAFETY: attached; both are alive. The result is a new reference, or null and an error.
        let own = unsafe {
            let own = ffi::PyObject_GenericGetAttr(slf.as_ptr(), name.as_ptr());
            Bound::from_owned_ptr_or_err(py, own)
        };
        match (own, method) {
            (Ok(own), _) => Ok(own),
            (Err(_), Some(method)) => Ok(Bound::new(py, this.method(method))?.into_any()),
            (Err(error), None) => Err(error),
        }
    }

    /// Python asks this when the above raised AttributeError.
    fn __getattr__<'py>(
        slf: &Bound<'py, Self>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let text = name.to_str()?;
        if text.starts_with("__") {
            return Err(PyAttributeError::new_err(text.to_string()));
        }
        Err(no_such_method(slf.py(), &slf.get().held.interface, text))
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let py = other.py();
        let Ok(other) = other.cast_exact::<ActorHandle>() else {
            return Ok(py.NotImplemented());
        };
        let equal = self.held.actor == other.get().held.actor;
        match op {
            CompareOp::Eq => equal.into_py_any(py),
            CompareOp::Ne => (!equal).into_py_any(py),
            CompareOp::Lt | CompareOp::Le | CompareOp::Gt | CompareOp::Ge => {
                Ok(py.NotImplemented())
            }
        }
    }

    fn __hash__(&self) -> u64 {
        let TaskId { owner, seq } = self.held.actor.0;
        (seq ^ owner.0.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn __dir__(&self) -> Vec<String> {
        let names = self.held.interface.methods.keys();
        let mut names: Vec<_> = names.filter(|name| !name.starts_with('_')).cloned().collect();
        names.extend(["_actor_id".to_string(), "_class_name".to_string()]);
        names.sort_unstable();
        names
    }

    fn __repr__(&self) -> String {
        format!("Actor({}, {})", self.held.interface.class_name, self.held.actor.hex())
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        static RESTORE: Import = Import::new("hoplo._core", "_restore_actor");
        let (py, held) = (slf.py(), &slf.get().held);
        held.session.check()?;
        note_or_keep(&held.session, held.actor.handle(), slf.as_any());
        let id = PyBytes::new(py, &held.actor.0.to_bytes());
        (RESTORE.get(py)?, (id, held.interface.bytes.bind(py))).into_pyobject(py)
    }
}

/// What a pickled handle calls when it is read.
#[pyfunction]
pub(crate) fn _restore_actor<'py>(
    py: Python<'py>,
    id: &Bound<'py, PyBytes>,
    interface: &Bound<'py, PyBytes>,
) -> PyResult<ActorHandle> {
    let id = <[u8; 16]>::try_from(id.as_bytes())
        .map_err(|_| PyValueError::new_err("an actor has an id of 16 bytes"))?;
    let actor = ActorId(TaskId::from_bytes(id));
    let interface = Interface::read(interface)?;
    let session = session::live().ok_or_else(python::not_initialized)?;
    let _ = py;
    session.client.add_ref(actor.handle());
    contained::note_read(actor.handle());
    Ok(ActorHandle::owning(session, actor, interface))
}

/// A method of an actor, to be called.
#[pyclass(frozen, module = "hoplo._core", freelist = 64)]
pub(crate) struct ActorMethod {
    held: Arc<Held>,
    method: Arc<Method>,
}

#[pymethods]
impl ActorMethod {
    /// Calls the method in the actor, and returns at once: what `RemoteFunction.remote` does.
    #[pyo3(signature = (*args, **kwargs))]
    fn remote<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        let (session, method) = (&self.held.session, &self.method);
        session.check()?;
        if !certainly_fits(method.arity, args, kwargs) {
            self.check(args, kwargs)?;
        }
        let args = encode_args(session, args, kwargs, &method.extras)?;
        let (call, implicit) = args.call(Arc::clone(&method.options));
        let parent = context::parent(py)?;
        let task = session.client.submit_method(self.held.actor, call, parent);
        drop(implicit);
        let task = task.map_err(|error| errors::submit_error(py, &error))?;
        results(py, Arc::clone(session), task, method.results, true)
    }

    /// The same method with some options changed: those of `hoplo.method`.
    #[pyo3(signature = (**options))]
    fn options<'py>(
        slf: &Bound<'py, Self>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        static WITH_OPTIONS: Import = Import::new("hoplo.actor", "with_method_options");
        let none = PyDict::new(slf.py());
        python::call(WITH_OPTIONS.get(slf.py())?, [slf, options.unwrap_or(&none)])
    }

    /// A copy with these options in place of the method's own, where they are not None.
    fn _with(&self, options: &Bound<'_, PyAny>) -> PyResult<ActorMethod> {
        let method = self.method.with(options, &self.held.interface)?;
        Ok(ActorMethod { held: Arc::clone(&self.held), method: Arc::new(method) })
    }

    /// Raises TypeError: call `actor.method.remote()`.
    #[pyo3(signature = (*_args, **_kwargs))]
    fn __call__(
        &self,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let name = &self.method.name;
        Err(PyTypeError::new_err(format!(
            "{name}() runs nothing, since it is an actor's method: call actor.{name}.remote()"
        )))
    }

    #[getter]
    fn __name__(&self) -> &str {
        &self.method.name
    }

    fn __repr__(&self) -> String {
        format!("ActorMethod({})", self.method.options.name)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let handle = Bound::new(py, ActorHandle { held: Arc::clone(&self.held) })?;
        let getattr = py.import("builtins")?.getattr(intern!(py, "getattr"))?;
        (getattr, (handle, &self.method.name)).into_pyobject(py)
    }
}

impl ActorMethod {
    #[cold]
    fn check(&self, args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        static CHECK: Import = Import::new("hoplo._signature", "check_shape");
        let py = args.py();
        let none = PyDict::new(py);
        let kwargs = kwargs.unwrap_or(&none);
        CHECK.get(py)?.call1((&self.method.shape, args, kwargs, &*self.method.options.name))?;
        Ok(())
    }
}

#[cold]
fn no_such_method(py: Python<'_>, interface: &Interface, name: &str) -> PyErr {
    static NO_SUCH_METHOD: Import = Import::new("hoplo.actor", "no_such_method");
    let known: Vec<_> = interface.methods.keys().cloned().collect();
    NO_SUCH_METHOD
        .get(py)
        .and_then(|make| make.call1((&interface.class_name, name, known)))
        .map_or_else(|error| error, PyErr::from_value)
}

/// Ends the actor's process now.
#[pyfunction]
pub(crate) fn kill(actor: &Bound<'_, ActorHandle>, no_restart: bool) -> PyResult<()> {
    let held = &actor.get().held;
    held.session.check()?;
    held.session.client.kill_actor(held.actor, no_restart);
    Ok(())
}

/// The actor of that name.
#[pyfunction]
pub(crate) fn get_actor(
    py: Python<'_>,
    name: &str,
    namespace: Option<String>,
) -> PyResult<ActorHandle> {
    let session = session::current(py)?;
    let namespace = namespace.unwrap_or_else(|| session.namespace.clone());
    let found = python::interruptible(py, |gives_up| {
        session.client.lookup_actor(&namespace, name, gives_up)
    })?;
    match (found, session.client.daemon_gone()) {
        (Some(hoplo_client::FoundActor { dead: Some(failure), .. }), _) => {
            Err(errors::raised(py, &failure, None))
        }
        (Some(found), _) => ActorHandle::found(py, session, found),
        (None, Some(failure)) => Err(errors::raised(py, &failure, None)),
        (None, None) => Err(no_such_actor(py, name, &namespace)),
    }
}

#[cold]
fn no_such_actor(py: Python<'_>, name: &str, namespace: &str) -> PyErr {
    let near = near_names(py, name, namespace).unwrap_or_default();
    let remedy = match near.as_slice() {
        [] => "it was not created, or it is dead; `hoplo list actors` shows those that live".into(),
        near => format!("did you mean {}?", near.join(" or ")),
    };
    let text = format!("there is no actor named {name:?} in namespace {namespace:?}: {remedy}");
    PyValueError::new_err(text)
}

fn near_names(py: Python<'_>, name: &str, namespace: &str) -> PyResult<Vec<String>> {
    static LOADS: Import = Import::new("json", "loads");
    static CLOSE_MATCHES: Import = Import::new("difflib", "get_close_matches");
    let actors = LOADS.get(py)?.call1((ask::query(py, "actors", None, None)?,))?;
    let mut names = Vec::new();
    for actor in actors.try_iter()? {
        let actor = actor?.cast_into::<PyDict>()?;
        let text = |key: &str| -> PyResult<String> {
            Ok(actor.get_item(key)?.map(|value| value.extract()).transpose()?.unwrap_or_default())
        };
        if text("namespace")? == namespace && text("state")?.to_lowercase() != "dead" {
            names.push(text("name")?);
        }
    }
    let near: Vec<String> = CLOSE_MATCHES.get(py)?.call1((name, names))?.extract()?;
    Ok(near.iter().map(|name| format!("{name:?}")).collect())
}

/// A handle of the actor that this code runs in.
#[pyfunction]
pub(crate) fn current_actor(py: Python<'_>) -> PyResult<ActorHandle> {
    let session = session::live().ok_or_else(python::not_initialized)?;
    let actor = current::actor()
        .ok_or_else(|| PyRuntimeError::new_err("this code does not run in an actor"))?;
    let interface = Interface::read(&PyBytes::new(py, &actor.spec.handle))?;
    session.client.add_ref(actor.spec.actor.handle());
    Ok(ActorHandle::owning(session, actor.spec.actor, interface))
}
