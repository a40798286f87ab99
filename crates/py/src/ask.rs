//! Questions to the daemon: listings as JSON, and the key-value table.

use std::sync::Arc;

use hoplo_base::limits::QUERY_PATIENCE;
use hoplo_client::GivesUp;
use hoplo_wire::Failure;
use hoplo_wire::node::KvOperation;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::errors;
use crate::python;
use crate::session::{self, Session};

/// JSON text from the daemon.
#[pyfunction]
#[pyo3(signature = (kind, arg=None, missing=None))]
pub(crate) fn query(
    py: Python<'_>,
    kind: &str,
    arg: Option<&str>,
    missing: Option<&Bound<'_, PyList>>,
) -> PyResult<String> {
    let session = session::current(py)?;
    let argument = arg.unwrap_or("");
    let says = missing.is_none();
    let ask = |gives_up: GivesUp<'_>| {
        let client = &session.client;
        if says {
            let json = client.query(kind, argument, QUERY_PATIENCE, gives_up)?;
            return Ok((json, Vec::new()));
        }
        client.query_parts(kind, argument, QUERY_PATIENCE, gives_up)
    };
    let answer: Result<_, String> = python::interruptible(py, ask)?;
    let (json, silent) = answer.map_err(|text| match session.client.daemon_gone() {
        Some(failure) => errors::raised(py, &failure, None),
        None => PyRuntimeError::new_err(format!("query {kind:?}: {text}")),
    })?;
    if let Some(missing) = missing {
        silent.into_iter().try_for_each(|line| missing.append(line))?;
    }
    Ok(json)
}

/// Stores a value in the control store; True when the key was new.
#[pyfunction]
#[pyo3(signature = (key, value, overwrite=true))]
pub(crate) fn kv_put(
    py: Python<'_>,
    key: Vec<u8>,
    value: Vec<u8>,
    overwrite: bool,
) -> PyResult<bool> {
    let session = session::current(py)?;
    let first = KvOperation::Put { key: key.clone(), value: value.clone(), overwrite: false };
    let old = kv(py, &session, first)?.0;
    if old.is_some() && overwrite {
        kv(py, &session, KvOperation::Put { key, value, overwrite: true })?;
    }
    Ok(old.is_none())
}

#[pyfunction]
pub(crate) fn kv_get<'py>(py: Python<'py>, key: Vec<u8>) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let session = session::current(py)?;
    let value = kv(py, &session, KvOperation::Get { key })?.0;
    Ok(value.map(|value| PyBytes::new(py, &value)))
}

#[pyfunction]
pub(crate) fn kv_delete(py: Python<'_>, key: Vec<u8>) -> PyResult<bool> {
    let session = session::current(py)?;
    let existed = kv(py, &session, KvOperation::Get { key: key.clone() })?.0.is_some();
    kv(py, &session, KvOperation::Delete { key })?;
    Ok(existed)
}

#[pyfunction]
pub(crate) fn kv_keys<'py>(py: Python<'py>, prefix: Vec<u8>) -> PyResult<Bound<'py, PyList>> {
    let session = session::current(py)?;
    let keys = kv(py, &session, KvOperation::Keys { prefix })?.1;
    PyList::new(py, keys.iter().map(|key| PyBytes::new(py, key)))
}

type Answer = (Option<Vec<u8>>, Vec<Vec<u8>>);

fn kv(py: Python<'_>, session: &Arc<Session>, operation: KvOperation) -> PyResult<Answer> {
    let ask = |gives_up: GivesUp<'_>| session.client.kv(&session.namespace, operation, gives_up);
    python::interruptible(py, ask)?.map_err(|failure: Failure| errors::raised(py, &failure, None))
}
