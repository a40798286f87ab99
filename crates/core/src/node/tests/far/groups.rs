//! What processes ask of placement groups while there is no head.

use hoplo_wire::node::{BundleSpec, GroupSpec, GroupState, GroupStrategy};
use hoplo_wire::peer::{BundleOrder, Peer};

use super::*;

fn spec() -> Box<GroupSpec> {
    let bundle = BundleSpec { resources: cpus(1.0), ..BundleSpec::default() };
    Box::new(GroupSpec {
        name: String::new(),
        namespace: String::new(),
        detached: false,
        strategy: GroupStrategy::Pack,
        bundles: vec![bundle],
    })
}

fn made(nodes: &mut Nodes, driver: ProcessId) -> Option<hoplo_base::GroupId> {
    nodes.shells[1].told(driver, |message| match message {
        ToClient::GroupCreated { result, .. } => Some(result.clone().unwrap().0),
        _ => None,
    })
}

fn state(nodes: &mut Nodes, driver: ProcessId) -> Option<GroupState> {
    nodes.shells[1].told(driver, |message| match message {
        ToClient::GroupState { state, .. } => Some(state.clone()),
        _ => None,
    })
}

/// The node planned it itself, without the others.
#[test]
fn a_group_that_is_asked_for_while_there_is_no_head_is_made_by_the_next_one() {
    let mut nodes = Nodes::new(2);
    let driver = nodes.shells[1].driver();
    nodes.dies(0);
    nodes.says(1, driver, ToNode::GroupCreate { request: 5, spec: spec() });
    assert_eq!(made(&mut nodes, driver), None);
    nodes.joins_as_head();
    let group = made(&mut nodes, driver).expect("a head is there");
    assert_eq!(group.node(), number(2));
    nodes.says(1, driver, ToNode::GroupWatch { request: 6, group });
    assert_eq!(state(&mut nodes, driver), Some(GroupState::Created));
}

/// It waited for ever.
#[test]
fn who_waits_for_a_group_of_a_head_that_died_hears_from_the_next_one() {
    let mut nodes = Nodes::new(2);
    let driver = nodes.shells[1].driver();
    let mut wide = spec();
    wide.bundles[0].resources = cpus(64.0);
    nodes.says(1, driver, ToNode::GroupCreate { request: 5, spec: wide });
    let group = made(&mut nodes, driver).unwrap();
    nodes.says(1, driver, ToNode::GroupWatch { request: 6, group });
    assert!(matches!(state(&mut nodes, driver), Some(GroupState::Waits { .. })));
    nodes.dies(0);
    assert_eq!(state(&mut nodes, driver), None);
    // This one has no row of it.
    nodes.joins_as_head();
    assert!(matches!(state(&mut nodes, driver), Some(GroupState::Removed { .. })));
}

/// Nobody gave it back, and nothing else got it.
#[test]
fn a_bundle_of_which_no_head_knows_is_given_back() {
    let mut nodes = Nodes::new(2);
    let group = hoplo_base::GroupId::new(number(0), 1);
    let bundles = vec![(0, cpus(2.0))];
    for order in [BundleOrder::Prepare { attempt: 1, bundles }, BundleOrder::Commit { attempt: 1 }]
    {
        let message = Box::new(Peer::Bundles { group, order });
        nodes.shells[1].hears(Event::Peer { from: number(0), cover: 0, message });
    }
    let free = |nodes: &Nodes| nodes.shells[1].node.scheduler.available_of_node().units("CPU");
    assert_eq!(free(&nodes), 0.0);
    nodes.dies(0);
    nodes.joins_as_head();
    assert_eq!(free(&nodes), 2.0);
}
