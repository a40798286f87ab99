//! Placement groups: making them, and what a task or actor in one asks for.

use std::time::Duration;

use hoplo_base::bundles::InGroup;
use hoplo_base::limits::INLINE_BYTES_MAX;
use hoplo_base::{GroupId, ResourceSet};
use hoplo_client::{GivesUp, GroupError};
use hoplo_wire::node::{BundleSpec, GroupSpec, GroupState, GroupStrategy, Inside, NoGroup};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::current;
use crate::errors;
use crate::options;
use crate::python;
use crate::refs::ObjectRef;
use crate::session::{self, Session};
use crate::values::{self, Contained, Encoded};

/// The `group` of parsed options: in which placement group, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// That of the caller, if its children are captured.
    OfCaller,
    Anywhere,
    In {
        group: GroupId,
        index: Option<u32>,
        capture: Option<bool>,
    },
}

impl Place {
    pub(crate) fn read(options: &Bound<'_, PyAny>) -> PyResult<Place> {
        let value = options.getattr("group")?;
        if value.is_none() {
            return Ok(Place::OfCaller);
        }
        if value.extract::<bool>().is_ok() {
            return Ok(Place::Anywhere);
        }
        let (group, index, capture): (String, i64, Option<bool>) = value.extract()?;
        Ok(Place::In { group: group_id(&group)?, index: u32::try_from(index).ok(), capture })
    }

    /// In which group, in which of its bundles, and whether what runs there has its children there as well.
    fn settle(self, session: &Session) -> Option<(Inside, Option<u32>)> {
        let outer = current::runtime_env(session).group;
        match self {
            Place::OfCaller => Some((outer.filter(|outer| outer.capture)?, None)),
            Place::Anywhere => None,
            Place::In { group, index, capture } => {
                let capture = capture.unwrap_or(outer.is_some_and(|outer| outer.capture));
                Some((Inside { group, capture }, index))
            }
        }
    }

    /// What the code that runs there is to know of it.
    pub(crate) fn inside(self, session: &Session) -> Option<Inside> {
        self.settle(session).map(|(inside, _)| inside)
    }

    /// What is asked for, by the names that the nodes have for it.
    pub(crate) fn named(self, session: &Session, resources: ResourceSet) -> ResourceSet {
        match self.settle(session) {
            Some((inside, index)) => InGroup::of_task(inside.group, index, resources).named(),
            None => resources,
        }
    }
}

fn group_id(hex: &str) -> PyResult<GroupId> {
    GroupId::from_hex(hex).ok_or_else(|| {
        PyValueError::new_err(format!(
            "{hex:?} is not the id of a placement group: give PlacementGroup.id"
        ))
    })
}

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
        Err(GroupError::Not(NoGroup::Refused(why))) => Err(PyValueError::new_err(why)),
        Err(GroupError::Not(NoGroup::NotWritten(why))) => Err(errors::system_error(
            py,
            "HoploError",
            &format!(
                "the placement group was not made, as it would not outlive the head: {why}. Make it again when the control store \
                 takes rows; `hoplo status` says so, and what it lacks"
            ),
        )),
        Err(GroupError::NodeDied(failure)) => Err(errors::raised(py, &failure, None)),
        // By a signal, whose exception is raised instead.
        Err(GroupError::GivenUp) => Err(errors::system_error(
            py,
            "HoploError",
            "the placement group was given up before the head had made it",
        )),
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
    Ok(state.and_then(|state| match state {
        GroupState::Waits { .. } => None,
        GroupState::Created => Some("CREATED"),
        GroupState::Removed { .. } => Some("REMOVED"),
    }))
}

/// A ref that is ready, with `value`, once the group is created; None if that is more than goes without the store.
#[pyfunction]
pub(crate) fn group_ready<'py>(
    py: Python<'py>,
    group: &str,
    value: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, ObjectRef>>> {
    let session = session::current(py)?;
    let group = group_id(group)?;
    let mut bytes = Vec::new();
    let encoded = values::encode(value, INLINE_BYTES_MAX, &mut bytes, &mut Contained::default())?;
    let Encoded::Inline = encoded else { return Ok(None) };
    let object = session.client.group_ready(group, bytes);
    ObjectRef::owning(py, session, object).map(Some)
}

#[pyfunction]
pub(crate) fn remove_group(py: Python<'_>, group: &str) -> PyResult<()> {
    session::current(py)?.client.remove_group(group_id(group)?);
    Ok(())
}
