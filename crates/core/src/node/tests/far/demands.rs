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
