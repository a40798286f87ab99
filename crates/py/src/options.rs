//! The parsed options of `hoplo._options`, as the client wants them.

use std::collections::BTreeMap;
use std::sync::Arc;

use hoplo_base::{GroupId, NodeNumber, ResourceSet};
use hoplo_wire::call::{CALL_BACKPRESSURE, CALL_RETRY_ANY, CALL_RETRY_LISTED, CALL_STREAMING};
use hoplo_wire::node::{Condition, Inside, LabelSelector, PythonEnv, RuntimeEnv, Strategy};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMapping};

use crate::python::Import;

/// How many results, and how they come. What tasks and methods have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Results {
    /// -1: a stream.
    pub(crate) num_returns: i64,
    /// -1 is no limit.
    pub(crate) backpressure: i64,
}

impl Results {
    pub(crate) fn returns(self) -> u32 {
        u32::try_from(self.num_returns).unwrap_or(0)
    }

    pub(crate) fn stream_ahead(self) -> u32 {
        if self.num_returns < 0 { u32::try_from(self.backpressure).unwrap_or(0) } else { 0 }
    }

    pub(crate) fn flags(self) -> u8 {
        let streaming = if self.num_returns < 0 { CALL_STREAMING } else { 0 };
        let backpressure = if self.stream_ahead() > 0 { CALL_BACKPRESSURE } else { 0 };
        streaming | backpressure
    }
}

/// Which exceptions of the user's are worth another run.
#[derive(Clone, Debug, Default)]
pub(crate) struct RetryExceptions {
    pub(crate) flags: u8,
    /// Pickled tuple of types, for `CALL_RETRY_LISTED`.
    pub(crate) types: Option<Arc<[u8]>>,
}

impl RetryExceptions {
    pub(crate) fn read(value: &Bound<'_, PyAny>) -> PyResult<RetryExceptions> {
        static DUMPS: Import = Import::new("hoplo._serialization", "dumps_in_band");
        if let Ok(any) = value.extract::<bool>() {
            return Ok(RetryExceptions {
                flags: if any { CALL_RETRY_ANY } else { 0 },
                types: None,
            });
        }
        let types = DUMPS.get(value.py())?.call1((value,))?;
        let types = types.cast::<PyBytes>()?.as_bytes().into();
        Ok(RetryExceptions { flags: CALL_RETRY_LISTED, types: Some(types) })
    }
}

pub(crate) fn resources(mapping: &Bound<'_, PyAny>) -> PyResult<ResourceSet> {
    let items = mapping.cast::<PyMapping>()?.items()?;
    let items =
        items.iter().map(|item| item.extract::<(String, f64)>()).collect::<PyResult<Vec<_>>>()?;
    ResourceSet::from_units(items.iter().map(|(name, amount)| (name.as_str(), *amount)))
        .map_err(|error| PyValueError::new_err(error.to_string()))
}

/// `hoplo._strategy.Where`: on which nodes something may run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Where {
    pub(crate) strategy: Strategy,
    pub(crate) labels: Vec<LabelSelector>,
}

/// As `hoplo._strategy` writes it: a label's name, what is said of it, and of which values.
type Term = (String, String, Vec<String>);

impl Where {
    pub(crate) fn read(value: &Bound<'_, PyAny>) -> PyResult<Where> {
        let kind: String = value.getattr("kind")?.extract()?;
        let unknown =
            |what: &str| PyValueError::new_err(format!("hoplo knows no {what:?} of nodes"));
        let strategy = match kind.as_str() {
            "DEFAULT" => Strategy::Default,
            "SPREAD" => Strategy::Spread,
            "NODE" => {
                let id: String = value.getattr("node")?.extract()?;
                let node = NodeNumber::of_hex(&id).ok_or_else(|| unknown(&id))?;
                Strategy::Node { node, soft: value.getattr("soft")?.extract()? }
            }
            other => return Err(unknown(other)),
        };
        let selectors: Vec<Vec<Term>> = value.getattr("selectors")?.extract()?;
        let condition = |(key, said, values): Term| match said.as_str() {
            "in" => Ok((key, Condition::In(values))),
            "not in" => Ok((key, Condition::NotIn(values))),
            "exists" => Ok((key, Condition::Exists)),
            "absent" => Ok((key, Condition::Absent)),
            other => Err(unknown(other)),
        };
        let selector = |terms: Vec<Term>| {
            terms.into_iter().map(condition).collect::<PyResult<_>>().map(LabelSelector)
        };
        let labels = selectors.into_iter().map(selector).collect::<PyResult<_>>()?;
        Ok(Where { strategy, labels })
    }
}

/// Parses the canonical JSON of `hoplo.runtime_env`.
pub(crate) fn runtime_env(py: Python<'_>, json: &str) -> PyResult<RuntimeEnv> {
    static LOADS: Import = Import::new("json", "loads");
    let fields = LOADS.get(py)?.call1((json,))?.cast_into::<PyDict>()?;
    let mut env = RuntimeEnv::default();
    if let Some(variables) = fields.get_item("env_vars")? {
        env.env_vars = variables.extract::<BTreeMap<String, String>>()?;
    }
    if let Some(folder) = fields.get_item("working_dir")? {
        env.working_dir = Some(folder.extract()?);
    }
    if let Some(modules) = fields.get_item("py_modules")? {
        env.py_modules = modules.extract()?;
    }
    if let Some(python) = fields.get_item("python")? {
        // Of a worker, as its daemon has it.
        env.python = Some(Box::new(PythonEnv {
            spec: python.get_item("spec")?.extract()?,
            what: python.get_item("what")?.extract()?,
            patience_s: python.get_item("patience_s")?.extract()?,
        }));
    } else {
        static WANTED: Import = Import::new("hoplo._environments", "wanted");
        let names = ["pip", "uv", "py_executable"];
        if names.iter().any(|name| fields.contains(name).unwrap_or(false)) {
            let wanted: Option<(String, String, u32)> =
                WANTED.get(py)?.call1((json,))?.extract()?;
            let python = |(spec, what, patience_s)| Box::new(PythonEnv { spec, what, patience_s });
            env.python = wanted.map(python);
        }
    }
    // Of a worker; users cannot name it.
    if let Some(group) = fields.get_item("group")? {
        let capture = group.get_item("capture")?.extract()?;
        env.group = Some(Inside { group: GroupId(group.get_item("group")?.extract()?), capture });
    }
    Ok(env)
}

/// The canonical JSON; `None` for the environment that asks for nothing.
pub(crate) fn runtime_env_json(py: Python<'_>, env: &RuntimeEnv) -> PyResult<Option<String>> {
    static DUMPS: Import = Import::new("json", "dumps");
    let fields = PyDict::new(py);
    if !env.env_vars.is_empty() {
        fields.set_item("env_vars", &env.env_vars)?;
    }
    if let Some(folder) = &env.working_dir {
        fields.set_item("working_dir", folder)?;
    }
    if !env.py_modules.is_empty() {
        fields.set_item("py_modules", &env.py_modules)?;
    }
    if let Some(python) = &env.python {
        static GIVEN: Import = Import::new("hoplo._environments", "given");
        let given = GIVEN.get(py)?.call1((&python.spec, python.patience_s))?;
        fields.update(given.cast::<PyMapping>()?)?;
    }
    if fields.is_empty() {
        return Ok(None);
    }
    let style = PyDict::new(py);
    style.set_item(intern!(py, "sort_keys"), true)?;
    style.set_item(intern!(py, "separators"), (",", ":"))?;
    DUMPS.get(py)?.call((fields,), Some(&style))?.extract().map(Some)
}

/// An `int` option whose -1 is for ever.
pub(crate) fn retries(value: i64) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}
