use hoplo_base::{NodeNumber, ResourceSet};
use hoplo_wire::node::{BundleSpec, GroupSpec, GroupStrategy};

use super::*;

fn node(number: u32) -> NodeNumber {
    NodeNumber::alone(number)
}

fn cpus(amount: f64) -> ResourceSet {
    ResourceSet::from_units([("CPU", amount)]).unwrap()
}

fn spec(strategy: GroupStrategy, bundles: &[f64]) -> GroupSpec {
    let bundles = bundles
        .iter()
        .map(|amount| BundleSpec { resources: cpus(*amount), labels: BTreeMap::new() });
    let (name, namespace) = (String::new(), String::new());
    GroupSpec { name, namespace, detached: false, strategy, bundles: bundles.collect() }
}

fn room(free: &[f64]) -> Room {
    let spot = |(at, amount): (usize, &f64)| {
        (
            node(at as u32),
            Spot { node: node(at as u32), free: cpus(*amount), labels: BTreeMap::new() },
        )
    };
    free.iter().enumerate().map(spot).collect()
}

fn placed(spec: &GroupSpec, room: &Room) -> Option<Vec<u32>> {
    let plan = place(spec, &BTreeMap::new(), room)?;
    Some(plan.values().map(|at| at.number() - node(0).number()).collect())
}

#[test]
fn pack_uses_few_nodes_and_spread_uses_many() {
    let free = room(&[2.0, 4.0, 4.0]);
    let at = |strategy| placed(&spec(strategy, &[1.0, 1.0, 1.0]), &free).unwrap();
    assert_eq!(at(GroupStrategy::Pack), [1, 1, 1].map(|_| at(GroupStrategy::Pack)[0]));
    let mut spread = at(GroupStrategy::Spread);
    spread.sort_unstable();
    assert_eq!(spread, [0, 1, 2]);
    // One node cannot hold all: as few as will do.
    let packed = placed(&spec(GroupStrategy::Pack, &[2.0, 4.0, 4.0]), &free).unwrap();
    assert_eq!(packed, [0, 1, 2].map(|at| packed[at]));
    // Fewer nodes than bundles.
    assert_eq!(placed(&spec(GroupStrategy::Spread, &[1.0; 4]), &free).map(|it| it.len()), Some(4));
}

#[test]
fn strict_rules_are_all_or_nothing() {
    let free = room(&[2.0, 3.0]);
    let packed = |bundles: &[f64]| placed(&spec(GroupStrategy::StrictPack, bundles), &free);
    assert_eq!(packed(&[1.0, 1.0]), Some(vec![0, 0]), "the closer fit");
    assert_eq!(packed(&[1.0, 2.0]), Some(vec![1, 1]));
    assert_eq!(packed(&[2.0, 2.0]), None);
    let spread = |bundles: &[f64]| placed(&spec(GroupStrategy::StrictSpread, bundles), &free);
    assert_eq!(spread(&[1.0, 3.0]), Some(vec![0, 1]));
    assert_eq!(spread(&[1.0, 1.0, 1.0]), None);
    assert_eq!(spread(&[3.0, 3.0]), None);
}

#[test]
fn a_bundle_that_any_node_would_do_for_took_the_only_one_of_another() {
    // The first bundle fits everywhere; the labels leave the second one nowhere but at node 0.
    let mut free = room(&[4.0, 4.0, 4.0]);
    free.get_mut(&node(0)).unwrap().labels.insert("disk".into(), "fast".into());
    let mut spec = spec(GroupStrategy::StrictSpread, &[2.0, 1.0, 1.0]);
    spec.bundles[1].labels.insert("disk".into(), "in(fast, faster)".into());
    let plan = placed(&spec, &free).unwrap();
    assert_eq!(plan[1], 0);
    spec.bundles[2].labels.insert("disk".into(), "fast".into());
    assert_eq!(placed(&spec, &free), None);
    spec.bundles[2].labels.insert("disk".into(), "!fast".into());
    assert!(placed(&spec, &free).is_some());
}

#[test]
fn bundles_that_stay_bind_those_that_move() {
    let free = room(&[4.0, 4.0, 4.0]);
    let stays = BTreeMap::from([(0, node(1))]);
    let packed = place(&spec(GroupStrategy::StrictPack, &[1.0, 1.0]), &stays, &free).unwrap();
    assert_eq!(packed, BTreeMap::from([(1, node(1))]));
    let packed = place(&spec(GroupStrategy::Pack, &[1.0, 1.0]), &stays, &free).unwrap();
    assert_eq!(packed, BTreeMap::from([(1, node(1))]));
    let spread = place(&spec(GroupStrategy::StrictSpread, &[1.0; 3]), &stays, &free).unwrap();
    assert_eq!(spread.into_values().collect::<Vec<_>>(), [node(0), node(2)]);
}

#[test]
fn what_is_missing_is_told_with_the_nearest_node() {
    let free = room(&[1.0, 2.0]);
    let told = |strategy, bundles: &[f64]| {
        let spec = spec(strategy, bundles);
        lack(&spec, &BTreeMap::new(), &free, "")
    };
    assert_eq!(told(GroupStrategy::Pack, &[1.0, 4.0]), "bundle 1 needs CPU 4, nearest node has 2");
    assert_eq!(
        told(GroupStrategy::StrictPack, &[1.0, 2.0]),
        "its bundles need CPU 3 on one node, nearest node has 1"
    );
    assert_eq!(
        told(GroupStrategy::StrictSpread, &[1.0, 1.0, 1.0]),
        "3 bundles need a node each, and 2 could hold one now"
    );
    assert_eq!(
        told(GroupStrategy::Pack, &[2.0, 2.0]),
        "2 bundles need CPU 4, all nodes together have 3"
    );
    let mut labelled = spec(GroupStrategy::Pack, &[1.0]);
    labelled.bundles[0].labels.insert("zone".into(), "a".into());
    assert_eq!(
        lack(&labelled, &BTreeMap::new(), &free, ""),
        "bundle 0 needs a node with zone=a, and there is none"
    );
}

#[test]
fn never_is_said_only_of_what_is_never() {
    let empty = room(&[4.0, 4.0]);
    let never =
        |strategy, bundles: &[f64]| is_never(&spec(strategy, bundles), &BTreeMap::new(), &empty);
    assert!(never(GroupStrategy::Pack, &[5.0]));
    assert!(never(GroupStrategy::Spread, &[3.0, 3.0, 3.0]));
    assert!(!never(GroupStrategy::Pack, &[3.0, 3.0]));
    assert!(never(GroupStrategy::StrictPack, &[3.0, 3.0]));
    assert!(never(GroupStrategy::StrictSpread, &[1.0; 3]));
    assert!(!never(GroupStrategy::StrictSpread, &[1.0; 2]));
}
