//! Demands of the time before there was another node.

use hoplo_wire::node::Strategy;

use super::*;

fn demand(key: u32, shape: &Shape, wanted: u32) -> ToNode {
    ToNode::LeaseDemand { key, shape: shape.clone().into(), wanted }
}

/// While the broker hears what waits, the first that it hears of goes elsewhere, and the worker that this frees goes to the last.
#[test]
fn what_is_granted_while_the_first_other_node_joins_may_be_asked_for_again() {
    let mut nodes = Nodes::new(1);
    let driver = nodes.shells[0].driver();
    let plain = Shape::of(cpus(1.0));
    nodes.says(0, driver, demand(9, &plain, 1));
    nodes.forks(0);
    let (idle, _) = nodes.shells[0]
        .told(driver, |message| match message {
            ToClient::LeaseGranted { lease, worker, .. } => Some((*lease, *worker)),
            _ => None,
        })
        .expect("the node is free");
    nodes.says(0, driver, ToNode::LeaseReturn { lease: idle });

    let mut elsewhere =
        Shape { strategy: Strategy::Node { node: number(1), soft: true }, ..plain.clone() };
    elsewhere.env.env_vars.insert("A".to_string(), "a worker of its own".to_string());
    let spread = Shape { strategy: Strategy::Spread, ..plain };
    nodes.says(0, driver, demand(1, &elsewhere, 1));
    nodes.says(0, driver, demand(3, &spread, 1));
    nodes.says(0, driver, demand(2, &spread, 1));
    let granted = |nodes: &mut Nodes| {
        nodes.shells[0].told(driver, |message| match message {
            ToClient::LeaseGranted { lease, key: 3, .. } => Some(*lease),
            _ => None,
        })
    };
    assert_eq!(granted(&mut nodes), None, "a worker for the first is starting");
    nodes.joins();
    let lease = granted(&mut nodes).expect("the first went elsewhere");

    nodes.says(0, driver, demand(2, &spread, 0));
    nodes.says(0, driver, ToNode::LeaseReturn { lease });
    nodes.says(0, driver, demand(3, &spread, 1));
    assert!(granted(&mut nodes).is_some(), "it is a new demand");
}

/// Its own tasks began there as long as it had a free CPU, and failed.
#[test]
fn a_node_without_room_for_objects_sends_its_tasks_elsewhere() {
    let mut nodes = Nodes::new(2);
    let (driver, other) = (nodes.shells[1].driver(), nodes.shells[1].driver());
    let plain = Shape::of(cpus(1.0));
    let bytes = 64 << 20;
    nodes.says(1, other, ToNode::ExtentWant { request: 1, bytes, slots: 0 });
    nodes.says(1, driver, ToNode::ExtentWant { request: 1, bytes: 1 << 20, slots: 1 });
    nodes.says(1, other, ToNode::ExtentRecalled);
    let ticket = nodes.shells[1].take(|effect| match effect {
        Effect::Reserve { ticket, .. } => Some(*ticket),
        _ => None,
    });
    let ticket = ticket.expect("there is no room in memory");
    let result = Err("no space left".to_string());
    nodes.shells[1].hears(Event::Reserved { ticket, result });
    nodes.pump();
    let kind = nodes.shells[1].told(driver, |message| match message {
        ToClient::ExtentDenied { failure, .. } => Some(failure.kind),
        _ => None,
    });
    assert_eq!(kind, Some(FailureKind::OutOfDiskHere), "others may have room");
    let forks = |nodes: &mut Nodes, at: usize| nodes.shells[at].forked().is_some();
    nodes.says(1, driver, demand(1, &plain, 1));
    assert!(forks(&mut nodes, 0) && !forks(&mut nodes, 1));
    // What runs nowhere else begins here.
    nodes.says(1, driver, demand(2, &Shape::of(cpus(2.0)), 1));
    assert!(forks(&mut nodes, 1));
}
