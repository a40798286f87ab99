//! Placement groups: making them, waiting for them, removing them.

use std::time::Duration;

use hoplo_client::{GivesUp, GroupError};
use hoplo_wire::node::{BundleSpec, GroupSpec, GroupState, GroupStrategy};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors;
use crate::options;
use crate::place::group_id;
use crate::python;
use crate::session;

/// Makes a placement group: its id, and why no node that is there now could ever hold it, or None.
#[pyfunction]
pub(crate) fn create_group(
    py: Python<'_>,
    name: String,
    detached: bool,
    strategy: &str,
    bundles: Vec<(Bound<'_, PyAny>, std::collections::BTreeMap<String, String>)>,
) -> PyResult<(String, Option<String>)> {
    let session = session::current(py)?;
    let strategy = GroupStrategy::parse(strategy).ok_or_else(|| {
        let names = GroupStrategy::ALL.map(GroupStrategy::name).join(", ");
        PyValueError::new_err(format!(
            "there is no placement strategy {strategy:?}: give one of {names}"
        ))
    })?;
    let bundles = bundles.into_iter().map(|(resources, labels)| {
        Ok(BundleSpec { resources: options::resources(&resources)?, labels })
    });
    let bundles = bundles.collect::<PyResult<Vec<_>>>()?;
    let namespace = session.namespace.clone();
    let spec = GroupSpec { name, namespace, detached, strategy, bundles };
    let made = python::interruptible(py, |gives_up: GivesUp<'_>| {
        session.client.create_group(spec, gives_up)
    })?;
    match made {
        Ok((group, never)) => Ok((group.hex(), never)),
        Err(GroupError::Refused(why)) => Err(PyValueError::new_err(why)),
        Err(GroupError::NodeDied(failure)) => Err(errors::raised(py, &failure, None)),
    }
}

/// Waits until it is created or removed: "CREATED", "REMOVED", or None after `timeout` seconds.
#[pyfunction]
#[pyo3(signature = (group, timeout=None))]
pub(crate) fn wait_group(
    py: Python<'_>,
    group: &str,
    timeout: Option<f64>,
) -> PyResult<Option<&'static str>> {
    let session = session::current(py)?;
    let group = group_id(group)?;
    let timeout = timeout
        .map(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX));
    let state = python::interruptible(py, |gives_up: GivesUp<'_>| {
        session.client.wait_group(group, timeout, gives_up)
    })?;
    let state = state.map_err(|failure| errors::raised(py, &failure, None))?;
    Ok(state.map(|state| match state {
        GroupState::Created => "CREATED",
        GroupState::Removed { .. } => "REMOVED",
    }))
}

#[pyfunction]
pub(crate) fn remove_group(py: Python<'_>, group: &str) -> PyResult<()> {
    session::current(py)?.client.remove_group(group_id(group)?);
    Ok(())
}
