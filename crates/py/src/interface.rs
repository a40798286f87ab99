//! What every handle of an actor needs to know: its methods and their options.
//!
//! Shared by all handles of actors made alike. It travels as bytes that only Python reads:
//!
//! ```text
//! pickle of (class name, actor name, [MethodInfo], is_async, max_concurrency, {group: limit},
//!            max_task_retries, max_pending_calls, enable_task_events, has checkpoints,
//!            calls may be overtaken)
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use hoplo_base::limits::INTERFACES_KNOWN_MAX;
use hoplo_base::{FunctionId, Map, shown};
use hoplo_client::CallOptions;
use hoplo_wire::call::{CALL_RETRY_ANY, CALL_RETRY_LISTED};
use hoplo_wire::node::Shape;
use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::args::Extras;
use crate::options::{self, Results, RetryExceptions};
use crate::python::Import;

/// (least, most) positional arguments with which a call certainly fits; most -1 is any number.
pub(crate) type Arity = (i64, i64);

/// What handles of one kind of actor know.
pub(crate) struct Interface {
    pub(crate) class_name: String,
    /// Empty for none.
    pub(crate) name: String,
    pub(crate) is_async: bool,
    /// 0: the kind's own default.
    pub(crate) max_concurrency: usize,
    pub(crate) groups: Vec<(String, usize)>,
    pub(crate) methods: Map<String, Arc<Method>>,
    pub(crate) by_id: Map<FunctionId, Arc<Method>>,
    pub(crate) max_pending_calls: u32,
    max_task_retries: i32,
    /// It has checkpoints: a call runs once, whatever is said of retries.
    once: bool,
    pub(crate) bytes: Py<PyBytes>,
}

/// A method as its callers know it.
pub(crate) struct Method {
    pub(crate) name: String,
    pub(crate) group: Option<Arc<str>>,
    pub(crate) arity: Arity,
    /// Python's, for `check_shape`.
    pub(crate) shape: Py<PyAny>,
    pub(crate) results: Results,
    pub(crate) options: Arc<CallOptions>,
    pub(crate) extras: Extras,
    /// `None`: as the actor says.
    retries: Option<i64>,
    retry: RetryExceptions,
}

pub(crate) fn method_id(name: &str) -> FunctionId {
    let hash = blake3::hash(name.as_bytes());
    FunctionId(hash.as_bytes()[..16].try_into().expect("a hash has 32 bytes"))
}

impl Interface {
    /// Handles come in numbers: what was read once is not read again.
    pub(crate) fn read(bytes: &Bound<'_, PyBytes>) -> PyResult<Arc<Interface>> {
        static KNOWN: Mutex<Option<HashMap<[u8; 32], Arc<Interface>>>> = Mutex::new(None);
        let hash = *blake3::hash(bytes.as_bytes()).as_bytes();
        if let Some(known) = KNOWN.lock().get_or_insert_default().get(&hash) {
            return Ok(Arc::clone(known));
        }
        let interface = Arc::new(Self::parse(bytes)?);
        let mut known = KNOWN.lock();
        let known = known.get_or_insert_default();
        if known.len() >= INTERFACES_KNOWN_MAX {
            known.clear();
        }
        known.insert(hash, Arc::clone(&interface));
        Ok(interface)
    }

    fn parse(bytes: &Bound<'_, PyBytes>) -> PyResult<Interface> {
        static LOADS: Import = Import::new("pickle", "loads");
        let py = bytes.py();
        let parts = LOADS.get(py)?.call1((bytes,))?.cast_into::<PyTuple>()?;
        let class_name: String = parts.get_item(0)?.extract()?;
        let max_task_retries: i64 = parts.get_item(6)?.extract()?;
        let max_pending_calls: i64 = parts.get_item(7)?.extract()?;
        let max_pending_calls = u32::try_from(max_pending_calls).unwrap_or(0);
        let remembered: bool = parts.get_item(8)?.extract()?;
        let once: bool = parts.get_item(9)?.extract()?;
        let may_be_overtaken: bool = parts.get_item(10)?.extract()?;
        let mut methods = Map::default();
        for info in parts.get_item(2)?.try_iter()? {
            let mut method =
                Method::read(&info?, &class_name, max_task_retries, max_pending_calls)?;
            if !remembered {
                method.forget();
            }
            if once {
                method.run_once();
            }
            if may_be_overtaken {
                method.may_be_overtaken();
            }
            methods.insert(method.name.clone(), Arc::new(method));
        }
        let groups = parts.get_item(5)?.cast_into::<PyDict>()?;
        Ok(Interface {
            name: parts.get_item(1)?.extract::<Option<String>>()?.unwrap_or_default(),
            is_async: parts.get_item(3)?.extract()?,
            max_concurrency: parts.get_item(4)?.extract()?,
            groups: groups.iter().map(|item| item_of(&item)).collect::<PyResult<_>>()?,
            by_id: methods.values().map(|one| (one.options.function, Arc::clone(one))).collect(),
            methods,
            class_name,
            max_pending_calls,
            max_task_retries: options::retries(max_task_retries),
            once,
            bytes: bytes.clone().unbind(),
        })
    }
}

impl Interface {
    /// Raises for a group that the actor does not have.
    fn check_group(&self, py: Python<'_>, group: &str) -> PyResult<()> {
        static NO_SUCH_GROUP: Import = Import::new("hoplo.actor", "no_such_group");
        if self.groups.iter().any(|(name, _)| name == group) {
            return Ok(());
        }
        let known: Vec<&String> = self.groups.iter().map(|(name, _)| name).collect();
        let error = NO_SUCH_GROUP.get(py)?.call1((&self.class_name, group, known))?;
        Err(PyErr::from_value(error))
    }
}

fn item_of(item: &(Bound<'_, PyAny>, Bound<'_, PyAny>)) -> PyResult<(String, usize)> {
    Ok((item.0.extract()?, item.1.extract()?))
}

impl Method {
    fn read(
        info: &Bound<'_, PyAny>,
        class_name: &str,
        max_task_retries: i64,
        max_pending_calls: u32,
    ) -> PyResult<Method> {
        let name: String = info.getattr("name")?.extract()?;
        let results = Results {
            num_returns: info.getattr("num_returns")?.extract()?,
            backpressure: info.getattr("backpressure")?.extract()?,
        };
        let retry = RetryExceptions::read(&info.getattr("retry_exceptions")?)?;
        let retries: Option<i64> = info.getattr("max_task_retries")?.extract()?;
        let group: Option<String> = info.getattr("concurrency_group")?.extract()?;
        let options = CallOptions {
            function: method_id(&name),
            name: shown(&format!("{class_name}.{name}")).into(),
            shape: no_shape(),
            returns: results.returns(),
            flags: results.flags() | retry.flags,
            max_retries: options::retries(retries.unwrap_or(max_task_retries)),
            max_calls: 0,
            job: None,
            stream_ahead: results.stream_ahead(),
            max_pending_calls,
            remembered: info.getattr("enable_task_events")?.extract()?,
            near_first: false,
            may_be_overtaken: false,
        };
        Ok(Method {
            group: group.map(Arc::from),
            arity: info.getattr("arity")?.extract()?,
            shape: info.getattr("shape")?.unbind(),
            results,
            options: Arc::new(options),
            extras: Extras { retry_types: retry.types.clone(), ..Extras::default() },
            retries,
            retry,
            name,
        })
    }

    /// Its actor's calls are not told to the daemon once they have ended, but for those that ask for it.
    fn forget(&mut self) {
        let options = (*self.options).clone();
        self.options = Arc::new(CallOptions { remembered: false, ..options });
    }

    /// It goes to its actor until it is answered; what it raises is its answer.
    fn run_once(&mut self) {
        let mut options = (*self.options).clone();
        options.flags &= !(CALL_RETRY_ANY | CALL_RETRY_LISTED);
        options.max_retries = -1;
        self.options = Arc::new(options);
    }

    /// Later calls go before one that waits for its arguments.
    fn may_be_overtaken(&mut self) {
        let options = (*self.options).clone();
        self.options = Arc::new(CallOptions { may_be_overtaken: true, ..options });
    }

    /// `Counter.add`.
    pub(crate) fn full_name(&self) -> Arc<str> {
        Arc::clone(&self.options.name)
    }

    /// A copy with the fields of `MethodOptions` that are not None.
    pub(crate) fn with(&self, given: &Bound<'_, PyAny>, interface: &Interface) -> PyResult<Method> {
        let mut results = self.results;
        if let Some(count) = given.getattr("num_returns")?.extract()? {
            results.num_returns = count;
        }
        if let Some(limit) = given.getattr("backpressure")?.extract()? {
            results.backpressure = limit;
        }
        let mut retry = self.retry.clone();
        let retry_exceptions = given.getattr("retry_exceptions")?;
        if !retry_exceptions.is_none() {
            retry = RetryExceptions::read(&retry_exceptions)?;
        }
        let retries: Option<i64> = given.getattr("max_task_retries")?.extract()?;
        let retries = retries.or(self.retries);
        let remembered: Option<bool> = given.getattr("enable_task_events")?.extract()?;
        let name: Option<String> = given.getattr("name")?.extract()?;
        let group: Option<String> = given.getattr("concurrency_group")?.extract()?;
        if let Some(group) = &group {
            interface.check_group(given.py(), group)?;
        }
        let group = group.map(Arc::from).or_else(|| self.extras.group.clone());
        let name = name.map(Arc::from).or_else(|| self.extras.name.clone());
        let options = CallOptions {
            name: name
                .as_deref()
                .map_or_else(|| Arc::clone(&self.options.name), |name| shown(name).into()),
            returns: results.returns(),
            flags: results.flags() | retry.flags,
            max_retries: retries.map_or(interface.max_task_retries, options::retries),
            stream_ahead: results.stream_ahead(),
            remembered: remembered.unwrap_or(self.options.remembered),
            ..(*self.options).clone()
        };
        let mut method = Method {
            name: self.name.clone(),
            group: self.group.clone(),
            arity: self.arity,
            shape: self.shape.clone_ref(given.py()),
            results,
            options: Arc::new(options),
            extras: Extras { group, name, retry_types: retry.types.clone() },
            retries,
            retry,
        };
        if interface.once {
            method.run_once();
        }
        Ok(method)
    }
}

/// Methods run where their actor is.
fn no_shape() -> Arc<Shape> {
    let resources = hoplo_base::ResourceSet::new();
    Arc::new(Shape::of(resources))
}

pub(crate) fn unknown_method(class_name: &str) -> PyErr {
    PyRuntimeError::new_err(format!(
        "{class_name} has no method of that name: the caller's class differs from the actor's"
    ))
}

pub(crate) fn unnamed() -> Arc<str> {
    "a function".into()
}
