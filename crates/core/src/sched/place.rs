//! Whether a node could ever run something: its labels, its resources, its number.

use std::collections::BTreeMap;

use hoplo_base::bundles::group_of;
use hoplo_base::resources::{GPU, PARTS};
use hoplo_base::{NodeNumber, ResourceSet, shown};
use hoplo_wire::node::{LabelSelector, Shape, Strategy};

/// A node, as those who choose among nodes know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub node: NodeNumber,
    pub labels: BTreeMap<String, String>,
    pub total: ResourceSet,
}

impl Place {
    /// It has the resources, if nobody else had anything there.
    /// Bundles of placement groups come and go: who has some says its load.
    pub(super) fn covers(&self, wanted: &ResourceSet) -> bool {
        if group_of(wanted).is_some() {
            return true;
        }
        self.total.covers(wanted) && gpus_needed(wanted) <= self.total.parts(GPU) / PARTS
    }

    /// It meets this one of the shape's selectors and has the resources.
    pub(super) fn could(&self, shape: &Shape, selector: &LabelSelector) -> bool {
        self.covers(&shape.resources) && selector.is_met(self.node, &self.labels)
    }

    /// Leases of this shape that an empty node has room for; `free_of_charge` of one that needs nothing.
    pub(super) fn slots(&self, wanted: &ResourceSet, free_of_charge: u32) -> u32 {
        if self.covers(wanted) { rooms(&self.total, wanted, free_of_charge) } else { 0 }
    }

    /// What it lacks for the shape: how many things, how much of them in thousandths of what is needed, and in words.
    pub(super) fn lacks(&self, shape: &Shape, selector: &LabelSelector) -> Lack {
        let unmet: Vec<_> = selector.unmet(self.node, &self.labels).collect();
        let missing = shape.resources.iter().map(|(name, parts)| {
            parts.saturating_sub(self.total.parts(name)).saturating_mul(1_000).div_ceil(parts)
        });
        let missing: Vec<u64> = missing.filter(|missing| *missing > 0).collect();
        let mut why = unmet.first().map(|unmet| format!("needs label {unmet}"));
        if why.is_none() {
            why = lacks_resource(&self.total, &shape.resources);
        }
        (unmet.len() + missing.len(), missing.iter().sum(), why)
    }
}

/// See [`Place::lacks`].
pub(super) type Lack = (usize, u64, Option<String>);

/// How many leases of `wanted` fit into `free`.
pub(super) fn rooms(free: &ResourceSet, wanted: &ResourceSet, free_of_charge: u32) -> u32 {
    let rooms = wanted.iter().map(|(name, parts)| {
        let parts = if name == GPU && parts > PARTS { gpus_needed(wanted) * PARTS } else { parts };
        free.parts(name) / parts
    });
    rooms.min().map_or(free_of_charge, |rooms| u32::try_from(rooms).unwrap_or(u32::MAX))
}

/// Selectors in order; one that every node meets if there is none.
pub(super) fn selectors(shape: &Shape) -> &[LabelSelector] {
    const ANY: &[LabelSelector] = &[LabelSelector(Vec::new())];
    if shape.labels.is_empty() { ANY } else { &shape.labels }
}

/// Why this node may not run it, whatever it has.
pub(super) fn barred(
    shape: &Shape,
    node: NodeNumber,
    labels: &BTreeMap<String, String>,
) -> Option<String> {
    if let Strategy::Node { node: only, soft: false } = shape.strategy
        && only != node
    {
        return Some(format!("needs node {}, which is not in this cluster", only.hex()));
    }
    let selectors = selectors(shape);
    if selectors.iter().any(|selector| selector.is_met(node, labels)) {
        return None;
    }
    let unmet = selectors.iter().filter_map(|selector| selector.unmet(node, labels).next());
    Some(tried(unmet.map(|unmet| format!("needs label {unmet}"))))
}

/// What each of a shape's selectors lacks, in the order in which they are tried.
pub(super) fn tried(lacks: impl Iterator<Item = String>) -> String {
    let mut lacks: Vec<String> = lacks.collect();
    lacks.dedup();
    let more = lacks.len().saturating_sub(TRIED_NAMED);
    lacks.truncate(TRIED_NAMED);
    if more > 0 {
        lacks.push(format!("{more} more"));
    }
    lacks.join("; or else ")
}

/// Selectors that a reason names.
const TRIED_NAMED: usize = 4;

/// The first resource that is short, in words.
pub(super) fn lacks_resource(total: &ResourceSet, wanted: &ResourceSet) -> Option<String> {
    if let Some((name, needs, has)) = total.lacks(wanted) {
        return Some(format!("needs {} {needs}, node has {has}", shown(name)));
    }
    let has = total.parts(GPU) / PARTS;
    let short = gpus_needed(wanted) > has;
    short.then(|| format!("needs GPU {}, node has {has}", wanted.units(GPU)))
}

/// Whole ones go whole: several, or a share of one.
fn gpus_needed(wanted: &ResourceSet) -> u64 {
    wanted.parts(GPU).div_ceil(PARTS)
}
