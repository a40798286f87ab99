//! Runtime environments as canonical JSON, and the environment that one inside another comes to.

use std::collections::BTreeMap;

use hoplo_base::GroupId;
use hoplo_base::limits::RUNTIME_ENV_BYTES_MAX;
use hoplo_wire::node::{Inside, RuntimeEnv};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::python::Import;

/// What one asks for was checked alone; with what its caller and its job ask for it may be too much.
pub(crate) fn check_size(env: &RuntimeEnv) -> PyResult<()> {
    let variables = env.env_vars.iter().map(|(name, value)| name.len() + value.len());
    let modules = env.py_modules.iter().map(String::len);
    let bytes: usize = variables.chain(modules).sum();
    if bytes > RUNTIME_ENV_BYTES_MAX {
        return Err(PyValueError::new_err(format!(
            "runtime_env, merged with that of the job and of the caller, takes {bytes} bytes, and may take \
             {RUNTIME_ENV_BYTES_MAX}: put large values into a file, or pass them as arguments"
        )));
    }
    Ok(())
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
    if fields.is_empty() {
        return Ok(None);
    }
    let style = PyDict::new(py);
    style.set_item(intern!(py, "sort_keys"), true)?;
    style.set_item(intern!(py, "separators"), (",", ":"))?;
    DUMPS.get(py)?.call((fields,), Some(&style))?.extract().map(Some)
}

/// The variables of both, the inner ones winning; any other field is the inner one's where it has it.
pub(crate) fn merged(outer: RuntimeEnv, inner: RuntimeEnv) -> RuntimeEnv {
    let mut env_vars = outer.env_vars;
    env_vars.extend(inner.env_vars);
    let py_modules = if inner.py_modules.is_empty() { outer.py_modules } else { inner.py_modules };
    let working_dir = inner.working_dir.or(outer.working_dir);
    RuntimeEnv { env_vars, working_dir, py_modules, group: outer.group }
}
