//! What a task or actor made here asks for, with what its caller and its placement group add to its options.

use std::sync::Arc;

use hoplo_base::ResourceSet;
use hoplo_base::limits::RUNTIME_ENV_BYTES_MAX;
use hoplo_wire::node::{RuntimeEnv, Shape};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::current;
use crate::options::Where;
use crate::packages;
use crate::placement::Place;
use crate::python::Import;
use crate::session::Session;

/// The shape of a task or actor made here: its own environment over the one that this code runs in.
pub(crate) fn shape(
    py: Python<'_>,
    session: &Session,
    resources: &ResourceSet,
    env: Option<&str>,
    place: &Where,
    group: Place,
) -> PyResult<Arc<Shape>> {
    let outer = current::runtime_env(session);
    let mut env = match env {
        None => outer,
        Some(json) => merged(outer, packages::runtime_env(py, session, json)?),
    };
    tell_installer(py, &mut env)?;
    check_size(&env)?;
    env.group = group.inside(session);
    let resources = group.named(session, resources.clone());
    let Where { strategy, labels } = place.clone();
    Ok(Arc::new(Shape { resources, env, strategy, labels }))
}

/// Whoever makes the Python of this environment is told the variables that it sets, after all is merged.
fn tell_installer(py: Python<'_>, env: &mut RuntimeEnv) -> PyResult<()> {
    static WITH_VARIABLES: Import = Import::new("hoplo._environments", "with_variables");
    if let Some(python) = &mut env.python {
        python.spec = WITH_VARIABLES.get(py)?.call1((&python.spec, &env.env_vars))?.extract()?;
    }
    Ok(())
}

/// What one asks for was checked alone; with what its caller and its job ask for it may be too much.
fn check_size(env: &RuntimeEnv) -> PyResult<()> {
    let variables = env.env_vars.iter().map(|(name, value)| name.len() + value.len());
    let modules = env.py_modules.iter().map(String::len);
    let python = env.python.iter().map(|python| python.spec.len());
    let bytes: usize = variables.chain(modules).chain(python).sum();
    if bytes > RUNTIME_ENV_BYTES_MAX {
        return Err(PyValueError::new_err(format!(
            "runtime_env, merged with that of the job and of the caller, takes {bytes} bytes, and may take \
             {RUNTIME_ENV_BYTES_MAX}: put large values into a file, or pass them as arguments"
        )));
    }
    Ok(())
}

/// The variables of both, the inner ones winning; any other field is the inner one's where it has it.
fn merged(outer: RuntimeEnv, inner: RuntimeEnv) -> RuntimeEnv {
    let mut env_vars = outer.env_vars;
    env_vars.extend(inner.env_vars);
    let py_modules = if inner.py_modules.is_empty() { outer.py_modules } else { inner.py_modules };
    let working_dir = inner.working_dir.or(outer.working_dir);
    let python = inner.python.or(outer.python);
    RuntimeEnv { env_vars, working_dir, py_modules, group: outer.group, python }
}
