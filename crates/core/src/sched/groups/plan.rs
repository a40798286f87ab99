//! On which nodes the bundles of a group could be.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::resources::{CPU, GPU};
use hoplo_base::{NodeNumber, ResourceSet, shown};
use hoplo_wire::node::{BundleSpec, GroupSpec, GroupStrategy, label_of};

/// What is left of each node that may be used.
pub(super) type Room = BTreeMap<NodeNumber, Spot>;

#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) node: NodeNumber,
    pub(super) free: ResourceSet,
    pub(super) labels: BTreeMap<String, String>,
}

impl Spot {
    fn suits(&self, bundle: &BundleSpec) -> bool {
        self.free.covers(&bundle.resources) && self.has_labels(bundle)
    }

    fn has_labels(&self, bundle: &BundleSpec) -> bool {
        let has = |label: &str| label_of(self.node, &self.labels, label);
        bundle.labels.iter().all(|(label, wanted)| label_is(has(label).as_deref(), wanted))
    }

    /// How much of it would be left, as a share: less is a closer fit.
    fn left(&self, wanted: &ResourceSet) -> f64 {
        let share =
            |(name, parts): (&str, u64)| 1.0 - parts as f64 / self.free.parts(name).max(1) as f64;
        wanted.iter().map(share).sum()
    }
}

/// Whether a label is as it is wanted: a value, `!value`, `in(one, other)` or `!in(one, other)`.
fn label_is(label: Option<&str>, wanted: &str) -> bool {
    let (not, wanted) = match wanted.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, wanted),
    };
    let list = wanted.strip_prefix("in(").and_then(|rest| rest.strip_suffix(')'));
    let is_one = label.is_some_and(|label| match list {
        Some(list) => list.split(',').any(|one| one.trim() == label),
        None => label == wanted,
    });
    is_one != not
}

/// A node for each bundle that is not in `placed`; `None` if there is no room for all.
pub(super) fn place(
    spec: &GroupSpec,
    placed: &BTreeMap<u32, NodeNumber>,
    room: &Room,
) -> Option<BTreeMap<u32, NodeNumber>> {
    let missing: Vec<u32> =
        (0..spec.bundles.len() as u32).filter(|index| !placed.contains_key(index)).collect();
    match spec.strategy {
        GroupStrategy::Pack => pack(spec, &missing, placed, room.clone()),
        GroupStrategy::Spread => spread(spec, &missing, placed, room.clone()),
        GroupStrategy::StrictPack => strict_pack(spec, &missing, placed, room),
        GroupStrategy::StrictSpread => strict_spread(spec, &missing, placed, room),
    }
}

fn bundle(spec: &GroupSpec, index: u32) -> &BundleSpec {
    &spec.bundles[index as usize]
}

/// Large ones first: what is left over takes small ones.
fn by_size(spec: &GroupSpec, missing: &[u32]) -> Vec<u32> {
    let mut ordered = missing.to_vec();
    ordered.sort_by_key(|index| {
        let wanted = &bundle(spec, *index).resources;
        let size = (wanted.parts(GPU), wanted.iter().count(), wanted.parts(CPU));
        (Reverse(size), *index)
    });
    ordered
}

/// Node by node, the one first that takes most of what is left.
fn pack(
    spec: &GroupSpec,
    missing: &[u32],
    placed: &BTreeMap<u32, NodeNumber>,
    mut room: Room,
) -> Option<BTreeMap<u32, NodeNumber>> {
    let used: BTreeSet<NodeNumber> = placed.values().copied().collect();
    let mut rest = by_size(spec, missing);
    let mut plan = BTreeMap::new();
    while !rest.is_empty() {
        let takes = |spot: &Spot| {
            let mut spot = spot.clone();
            let mut taken = Vec::new();
            for index in &rest {
                let bundle = bundle(spec, *index);
                if spot.suits(bundle) {
                    spot.free.subtract(&bundle.resources);
                    taken.push(*index);
                }
            }
            taken
        };
        let nodes = room.iter().map(|(node, spot)| (*node, takes(spot)));
        let rank = |(node, taken): &(NodeNumber, Vec<u32>)| {
            (taken.len(), used.contains(node), Reverse(*node))
        };
        let (node, taken) = nodes.max_by_key(rank).filter(|(_, taken)| !taken.is_empty())?;
        rest.retain(|index| !taken.contains(index));
        room.remove(&node);
        plan.extend(taken.into_iter().map(|index| (index, node)));
    }
    Some(plan)
}

/// Bundle by bundle, those first that few nodes will do for; each where fewest of the group are.
fn spread(
    spec: &GroupSpec,
    missing: &[u32],
    placed: &BTreeMap<u32, NodeNumber>,
    mut room: Room,
) -> Option<BTreeMap<u32, NodeNumber>> {
    let mut rest = by_size(spec, missing);
    rest.sort_by_key(|index| room.values().filter(|spot| spot.suits(bundle(spec, *index))).count());
    let mut counts: BTreeMap<NodeNumber, u32> = BTreeMap::new();
    for node in placed.values() {
        *counts.entry(*node).or_default() += 1;
    }
    let mut plan = BTreeMap::new();
    for index in rest {
        let wanted = bundle(spec, index);
        let suit = room.iter().filter(|(_, spot)| spot.suits(wanted));
        let best = suit.min_by(|(one, a), (other, b)| {
            let count = |node| counts.get(node).copied().unwrap_or(0);
            let emptier = || b.left(&wanted.resources).total_cmp(&a.left(&wanted.resources));
            count(*one).cmp(&count(*other)).then_with(emptier).then(one.cmp(other))
        });
        let node = *best?.0;
        room.get_mut(&node).expect("it was just found").free.subtract(&wanted.resources);
        *counts.entry(node).or_default() += 1;
        plan.insert(index, node);
    }
    Some(plan)
}

/// The node that all together leave least of.
fn strict_pack(
    spec: &GroupSpec,
    missing: &[u32],
    placed: &BTreeMap<u32, NodeNumber>,
    room: &Room,
) -> Option<BTreeMap<u32, NodeNumber>> {
    let wanted = sum(spec, missing);
    let home = placed.values().next();
    let suit = room.iter().filter(|(node, spot)| {
        home.is_none_or(|home| home == *node)
            && spot.free.covers(&wanted)
            && missing.iter().all(|index| spot.has_labels(bundle(spec, *index)))
    });
    let closer = |(_, a): &(&NodeNumber, &Spot), (_, b): &(&NodeNumber, &Spot)| {
        a.left(&wanted).total_cmp(&b.left(&wanted))
    };
    let (node, _) = suit.min_by(closer)?;
    Some(missing.iter().map(|index| (*index, *node)).collect())
}

/// Each bundle its own node: whoever finds all nodes taken that would do has another one move (augmenting paths).
fn strict_spread(
    spec: &GroupSpec,
    missing: &[u32],
    placed: &BTreeMap<u32, NodeNumber>,
    room: &Room,
) -> Option<BTreeMap<u32, NodeNumber>> {
    let used: BTreeSet<NodeNumber> = placed.values().copied().collect();
    let suits = |index: u32| {
        let wanted = bundle(spec, index);
        let suit = room.iter().filter(move |(_, spot)| spot.suits(wanted));
        suit.map(|(node, _)| *node).filter(|node| !used.contains(node)).collect::<Vec<_>>()
    };
    let options: BTreeMap<u32, Vec<NodeNumber>> =
        missing.iter().map(|index| (*index, suits(*index))).collect();
    let mut at: BTreeMap<NodeNumber, u32> = BTreeMap::new();
    for index in by_size(spec, missing) {
        if !finds_node(index, &options, &mut at) {
            return None;
        }
    }
    Some(at.into_iter().map(|(node, index)| (index, node)).collect())
}

/// Breadth first, so that many bundles need no deep stack.
fn finds_node(
    index: u32,
    options: &BTreeMap<u32, Vec<NodeNumber>>,
    at: &mut BTreeMap<NodeNumber, u32>,
) -> bool {
    let mut came_from: BTreeMap<NodeNumber, u32> = BTreeMap::new();
    let mut looks = std::collections::VecDeque::from([index]);
    while let Some(one) = looks.pop_front() {
        for node in &options[&one] {
            if came_from.contains_key(node) {
                continue;
            }
            came_from.insert(*node, one);
            if let Some(there) = at.get(node) {
                looks.push_back(*there);
                continue;
            }
            // Each on the way moves to the node by which the next one was found.
            let mut free = *node;
            loop {
                let mover = came_from[&free];
                let before = at.iter().find(|(_, index)| **index == mover).map(|(node, _)| *node);
                at.insert(free, mover);
                match before {
                    Some(before) => free = before,
                    None => return true,
                }
            }
        }
    }
    false
}

fn sum(spec: &GroupSpec, missing: &[u32]) -> ResourceSet {
    let mut sum = ResourceSet::new();
    missing.iter().for_each(|index| sum.add(&bundle(spec, *index).resources));
    sum
}

/// Whether nothing but more or other nodes could help. `room` is that of empty nodes. What is not told by amounts alone
/// is not said to be so.
pub(super) fn is_never(spec: &GroupSpec, placed: &BTreeMap<u32, NodeNumber>, room: &Room) -> bool {
    match spec.strategy {
        GroupStrategy::StrictPack | GroupStrategy::StrictSpread => {
            place(spec, placed, room).is_none()
        }
        GroupStrategy::Pack | GroupStrategy::Spread => {
            let mut all = ResourceSet::new();
            room.values().for_each(|spot| all.add(&spot.free));
            let indices: Vec<u32> = (0..spec.bundles.len() as u32).collect();
            let fits = |bundle: &BundleSpec| room.values().any(|spot| spot.suits(bundle));
            !all.covers(&sum(spec, &indices)) || !spec.bundles.iter().all(fits)
        }
    }
}

/// For people: what is missing, at the node that is nearest to it. `free` is behind amounts of what is not taken.
pub(super) fn lack(
    spec: &GroupSpec,
    placed: &BTreeMap<u32, NodeNumber>,
    room: &Room,
    free: &str,
) -> String {
    if room.is_empty() {
        return "there is no node".to_string();
    }
    let missing: Vec<u32> =
        (0..spec.bundles.len() as u32).filter(|index| !placed.contains_key(index)).collect();
    for index in &missing {
        let wanted = bundle(spec, *index);
        if room.values().any(|spot| spot.suits(wanted)) {
            continue;
        }
        let labelled: Vec<&Spot> = room.values().filter(|spot| spot.has_labels(wanted)).collect();
        if labelled.is_empty() {
            let labels = wanted.labels.iter().map(|(label, value)| format!("{label}={value}"));
            let labels = labels.collect::<Vec<_>>().join(", ");
            return format!(
                "bundle {index} needs a node with {}, and there is none",
                shown(&labels)
            );
        }
        let lacking = |spot: &&&Spot| {
            let short = |(name, parts): (&str, u64)| {
                1.0 - (spot.free.parts(name) as f64 / parts as f64).min(1.0)
            };
            wanted.resources.iter().map(short).sum::<f64>()
        };
        let nearest = labelled.iter().min_by(|a, b| lacking(a).total_cmp(&lacking(b)));
        let nearest = nearest.expect("there is one");
        let (name, needs, has) =
            nearest.free.lacks(&wanted.resources).expect("it does not hold the bundle");
        return format!(
            "bundle {index} needs {} {needs}, nearest node has {has}{free}",
            shown(name)
        );
    }
    let count = missing.len();
    match spec.strategy {
        GroupStrategy::StrictSpread => {
            let fits = |spot: &Spot| missing.iter().any(|index| spot.suits(bundle(spec, *index)));
            let nodes = room.values().filter(|spot| fits(spot)).count();
            format!("{count} bundles need a node each, and {nodes} could hold one now")
        }
        GroupStrategy::StrictPack => {
            let wanted = sum(spec, &missing);
            let left = |spot: &&Spot| {
                wanted.iter().filter(|(name, parts)| spot.free.parts(name) < *parts).count()
            };
            let nearest = room.values().min_by_key(left).expect("there is a node");
            match nearest.free.lacks(&wanted) {
                Some((name, needs, has)) => format!(
                    "its bundles need {} {needs} on one node, nearest node has {has}{free}",
                    shown(name)
                ),
                None => "no node has the labels that all its bundles need".to_string(),
            }
        }
        GroupStrategy::Pack | GroupStrategy::Spread => {
            let wanted = sum(spec, &missing);
            let mut all = ResourceSet::new();
            room.values().for_each(|spot| all.add(&spot.free));
            match all.lacks(&wanted) {
                Some((name, needs, has)) => format!(
                    "{count} bundles need {} {needs}, all nodes together have {has}{free}",
                    shown(name)
                ),
                None => format!("{count} bundles fit one by one, and not together"),
            }
        }
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
