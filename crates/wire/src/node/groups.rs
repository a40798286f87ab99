//! Placement groups: bundles of resources that are reserved together.

use std::collections::BTreeMap;

use hoplo_base::{GroupId, ResourceSet};
use serde::{Deserialize, Serialize};

/// Where the bundles of a group are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupStrategy {
    /// On as few nodes as will do.
    Pack,
    /// On as many as there are.
    Spread,
    /// On one node, or nowhere.
    StrictPack,
    /// Each on a node of its own, or nowhere.
    StrictSpread,
}

impl GroupStrategy {
    pub const ALL: [Self; 4] = [Self::Pack, Self::Spread, Self::StrictPack, Self::StrictSpread];

    pub fn name(self) -> &'static str {
        match self {
            Self::Pack => "PACK",
            Self::Spread => "SPREAD",
            Self::StrictPack => "STRICT_PACK",
            Self::StrictSpread => "STRICT_SPREAD",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.name() == name)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleSpec {
    pub resources: ResourceSet,
    /// Labels that its node must have, with what each must be.
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSpec {
    /// Empty for none: read it by `name()`.
    pub name: String,
    pub namespace: String,
    /// It outlives its job.
    pub detached: bool,
    pub strategy: GroupStrategy,
    pub bundles: Vec<BundleSpec>,
}

impl GroupSpec {
    /// By which others find it.
    pub fn name(&self) -> Option<&str> {
        (!self.name.is_empty()).then_some(self.name.as_str())
    }
}

/// Why a group was not made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoGroup {
    /// Its name is taken, or it can be of no use: the text says what to do.
    Refused(String),
    /// It is to outlive its head, and the control store did not take its row.
    NotWritten(String),
}

/// What those hear who wait for a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupState {
    /// It is not placed yet: why. Another state follows.
    Waits { why: String },
    /// All its bundles are there.
    Created,
    /// It was removed, with its job or by `remove_placement_group`, or is not known.
    Removed { why: String },
}

/// In which group code runs: what it submits runs there as well, if `capture` says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Inside {
    pub group: GroupId,
    pub capture: bool,
}
