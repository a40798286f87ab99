//! What processes ask of placement groups while there is no head.

use hoplo_wire::node::{BundleSpec, GroupSpec, GroupState, GroupStrategy};
use hoplo_wire::peer::{BundleOrder, Peer};

use super::*;
use crate::control::GroupEntry;

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

/// The head dropped it, as of a job that nobody knew, and its creator heard that it had been removed.
#[test]
fn a_group_of_a_job_whose_row_is_on_its_way_is_planned_by_the_next_head() {
    let mut nodes = Nodes::new(2);
    let driver = nodes.shells[1].driver();
    nodes.says(1, driver, ToNode::GroupCreate { request: 5, spec: spec() });
    let group = made(&mut nodes, driver).unwrap();
    nodes.dies(0);
    nodes.says(1, driver, ToNode::GroupWatch { request: 6, group });
    let job = nodes.shells[1].node.process(driver).unwrap().job;
    let (asked, spec) = ((driver, 5), *spec());
    let (created, placed) = (true, [(0, number(0))].into());
    let groups = vec![GroupEntry { group, job, asked, spec, created, placed }];
    let head = nodes.begins_as_head_with(Rows { groups, ..Rows::default() });
    nodes.row(head, NodeState::Alive);
    assert_eq!(state(&mut nodes, driver), Some(GroupState::Created));
}

/// A driver at the second of two nodes waits for a group that no node has room for.
fn waiting() -> (Nodes, ProcessId, hoplo_base::GroupId) {
    let mut nodes = Nodes::new(2);
    let driver = nodes.shells[1].driver();
    let mut wide = spec();
    wide.bundles[0].resources = cpus(64.0);
    nodes.says(1, driver, ToNode::GroupCreate { request: 5, spec: wide });
    let group = made(&mut nodes, driver).unwrap();
    nodes.says(1, driver, ToNode::GroupWatch { request: 6, group });
    (nodes, driver, group)
}

/// It waited for ever.
#[test]
fn who_waits_for_a_group_of_a_head_that_died_hears_from_the_next_one() {
    let (mut nodes, driver, _) = waiting();
    assert!(matches!(state(&mut nodes, driver), Some(GroupState::Waits { .. })));
    nodes.dies(0);
    assert_eq!(state(&mut nodes, driver), None);
    // This one has no row of it.
    nodes.joins_as_head();
    assert!(matches!(state(&mut nodes, driver), Some(GroupState::Removed { .. })));
}

/// It asked the earlier head, of whose death its node had not heard, and waited for ever (found by the simulator).
#[test]
fn of_two_heads_the_new_one_is_asked_about_groups_of_both() {
    let (mut nodes, driver, group) = waiting();
    let head = nodes.begins_as_head();
    nodes.tells_row(&[1, head], head, NodeState::Alive);
    while state(&mut nodes, driver).is_some() {}
    nodes.says(1, driver, ToNode::GroupWatch { request: 7, group });
    assert!(matches!(state(&mut nodes, driver), Some(GroupState::Removed { .. })));
}

#[test]
fn who_waits_for_a_group_hears_that_the_head_is_silent() {
    let (mut nodes, driver, _) = waiting();
    state(&mut nodes, driver);
    let since = nodes.shells[1].now;
    nodes.shells[1].hears(Event::HeadSilent { since });
    match state(&mut nodes, driver) {
        Some(GroupState::Waits { why }) => assert!(why.contains("does not answer"), "{why}"),
        other => panic!("{other:?}"),
    }
    nodes.says(1, driver, ToNode::GroupCreate { request: 7, spec: spec() });
    let said = nodes.shells[1].told(driver, |message| match message {
        ToClient::Output { lines, .. } => lines.first().cloned(),
        _ => None,
    });
    assert!(said.unwrap().starts_with("a placement group is not made yet: the head ("));
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

/// The new head had been told what the node has before that, and nobody gave the bundle back (seed 2201110).
#[test]
fn a_bundle_that_a_head_wants_after_another_one_came_is_not_reserved() {
    let mut nodes = Nodes::new(2);
    let group = hoplo_base::GroupId::new(number(0), 1);
    let head = nodes.begins_as_head();
    nodes.tells_row(&[1, head], head, NodeState::Alive);
    let order = BundleOrder::Prepare { attempt: 1, bundles: vec![(0, cpus(2.0))] };
    let message = Box::new(Peer::Bundles { group, order });
    nodes.shells[1].hears(Event::Peer { from: number(0), cover: 0, message });
    let free = nodes.shells[1].node.scheduler.available_of_node().units("CPU");
    assert_eq!(free, 2.0);
}

/// It was kept for a head, and then this node was the head itself.
#[test]
fn what_a_head_is_asked_before_it_knows_that_it_is_the_head_is_answered() {
    let mut nodes = Nodes { shells: vec![shell(0)], index: 10, head: 0, stuck: None };
    let driver = nodes.shells[0].driver();
    let told = |nodes: &mut Nodes| {
        nodes.shells[0].told(driver, |message| match message {
            ToClient::GroupCreated { request: 5, result } => Some(result.clone().unwrap().0),
            _ => None,
        })
    };
    nodes.says(0, driver, ToNode::GroupCreate { request: 5, spec: spec() });
    assert_eq!(told(&mut nodes), None);
    nodes.row(0, NodeState::Alive);
    assert!(told(&mut nodes).is_some());
}

fn in_group(group: hoplo_base::GroupId) -> Shape {
    Shape::of(hoplo_base::bundles::InGroup::of_task(group, None, cpus(1.0)).named())
}

fn group_removed(nodes: &mut Nodes, at: usize, driver: ProcessId) -> bool {
    let failed = nodes.shells[at].told(driver, |message| match message {
        ToClient::LeaseFailed { key: 1, failure } => Some(failure.kind),
        _ => None,
    });
    failed == Some(hoplo_wire::FailureKind::TaskGroupRemoved)
}

/// It waited for ever: the node had nothing of the group any more, and nobody told it of the end again.
#[test]
fn a_demand_that_comes_to_a_node_after_its_group_has_ended_fails() {
    let mut nodes = Nodes::new(3);
    let (driver, asker) = (nodes.shells[0].driver(), nodes.shells[1].driver());
    nodes.says(0, driver, ToNode::GroupCreate { request: 5, spec: spec() });
    let group = hoplo_base::GroupId::new(number(0), 1);
    nodes.says(0, driver, ToNode::GroupRemove { group });
    let (job, shape) = (nodes.shells[1].node.process(asker).unwrap().job, in_group(group));
    let demand = Peer::Demand { process: asker, job, key: 1, shape: shape.clone(), wanted: 1 };
    let demanded = Event::Peer { from: number(1), cover: 0, message: Box::new(demand) };
    nodes.shells[2].hears(demanded);
    nodes.pump();
    assert!(group_removed(&mut nodes, 1, asker));
    assert!(nodes.shells[2].node.scheduler.waiting().next().is_none());
    // And the head tells who asks where there is room.
    let seek = Peer::Seek { seek: 9, shape, wanted: 1 };
    nodes.shells[0].hears(Event::Peer { from: number(1), cover: 0, message: Box::new(seek) });
    let told = nodes.shells[0].take(|effect| match effect {
        Effect::SendPeer { to, message, .. } if *to == number(1) => match &**message {
            Peer::Bundles { group: ended, order: BundleOrder::End { .. } } => Some(*ended),
            _ => None,
        },
        _ => None,
    });
    assert_eq!(told, Some(group));
}

/// Nothing but the broker knew of it.
#[test]
fn a_demand_that_waits_for_a_node_with_room_fails_with_its_group() {
    let mut nodes = Nodes::new(2);
    let (driver, asker) = (nodes.shells[0].driver(), nodes.shells[1].driver());
    let mut wide = spec();
    wide.bundles[0].resources = cpus(64.0);
    nodes.says(0, driver, ToNode::GroupCreate { request: 5, spec: wide });
    let group = hoplo_base::GroupId::new(number(0), 1);
    let shape = Shape { strategy: hoplo_wire::node::Strategy::Spread, ..in_group(group) };
    nodes.says(1, asker, ToNode::LeaseDemand { key: 1, shape: shape.into(), wanted: 1 });
    assert!(nodes.shells[1].node.scheduler.waiting().next().is_none());
    assert!(!group_removed(&mut nodes, 1, asker));
    nodes.says(0, driver, ToNode::GroupRemove { group });
    assert!(group_removed(&mut nodes, 1, asker));
}
