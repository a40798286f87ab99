//! Placement groups: what a task or actor in one asks for.

use hoplo_base::bundles::InGroup;
use hoplo_base::{GroupId, ResourceSet};
use hoplo_wire::node::Inside;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::current;
use crate::session::Session;

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

pub(crate) fn group_id(hex: &str) -> PyResult<GroupId> {
    GroupId::from_hex(hex).ok_or_else(|| {
        PyValueError::new_err(format!(
            "{hex:?} is not the id of a placement group: give PlacementGroup.id"
        ))
    })
}
