//! Refs of nodes whose rows have not come.

use hoplo_wire::peer::{FarValue, Peer};

use super::*;

fn object_of(node: NodeNumber) -> ObjectId {
    ObjectId { task: TaskId { owner: ProcessId::new(node, 5, 1), seq: 3 }, index: 0 }
}

impl Nodes {
    /// A driver of node 1 waits for it: what the home is asked, if it is.
    fn asks_home_for(&mut self, driver: ProcessId, object: ObjectId) -> Option<NodeNumber> {
        self.shells[1].says(driver, ToNode::Want { objects: vec![object] });
        self.shells[1].take(|effect| match effect {
            Effect::SendPeer { to, message, .. } if matches!(**message, Peer::Want { .. }) => {
                Some(*to)
            }
            _ => None,
        })
    }

    fn failure(&mut self, driver: ProcessId) -> Option<String> {
        self.shells[1].told(driver, |message| match message {
            ToClient::Ready { value: hoplo_wire::Value::Failed(failure), .. } => {
                Some(failure.text().to_string())
            }
            _ => None,
        })
    }
}

/// Another node had heard of it, and sent a ref: it was lost.
#[test]
fn what_is_at_home_at_a_node_whose_row_had_not_come_counted_as_lost() {
    let mut nodes = Nodes::new(2);
    let driver = nodes.shells[1].driver();
    let home = number(2);
    assert_eq!(nodes.asks_home_for(driver, object_of(home)), Some(home), "it waits in the carrier");
    assert_eq!(nodes.failure(driver), None);
}

#[test]
fn a_node_that_has_a_number_and_no_address_yet_is_waited_for() {
    let mut nodes = Nodes::new(2);
    let driver = nodes.shells[1].driver();
    for at in [2, 3] {
        let index = 20 + at as u64;
        let entry = NodeEntry { address: String::new(), ..node_entry(at, NodeState::Alive) };
        nodes.shells[1].hears(Event::Member { entry: Box::new(entry), index });
    }
    let home = number(2);
    assert_eq!(nodes.asks_home_for(driver, object_of(home)), Some(home));
}

#[test]
fn what_waits_for_a_node_that_turns_out_to_be_dead_is_lost() {
    let mut nodes = Nodes::new(2);
    let driver = nodes.shells[1].driver();
    nodes.asks_home_for(driver, object_of(number(2)));
    nodes.stuck = Some(2);
    nodes.tells_row(&[0, 1], 2, NodeState::dead("it fell"));
    assert_eq!(nodes.failure(driver), None, "others may know something");
    let settled = nodes.shells[0].take(|effect| match effect {
        Effect::Settle { epoch } => Some(*epoch),
        _ => None,
    });
    let (why, died) = ("it fell".to_string(), settled.expect("all have passed it"));
    nodes.tells_row(&[0, 1], 2, NodeState::Settled { why, heir: None, died });
    assert!(nodes.failure(driver).is_some_and(|text| text.contains("it fell")));
}

/// Nobody would answer: of another cluster, of a node that was forgotten, of a daemon that nobody hears of.
#[test]
fn a_ref_of_no_node_of_this_cluster_is_lost_at_once_and_holds_up_no_death() {
    let far_ahead = (0..5000).fold(number(1), |number, _| number.next_given());
    for home in [far_ahead, NodeNumber::alone(7)] {
        let mut nodes = Nodes::new(3);
        let driver = nodes.shells[1].driver();
        let object = object_of(home);
        nodes.says(1, driver, ToNode::Notices(vec![Notice::Hold { object, process: driver }]));
        assert_eq!(nodes.asks_home_for(driver, object), None);
        assert!(nodes.failure(driver).is_some_and(|text| text.contains("is lost")));
        nodes.dies(2);
        let settles = |effect: &Effect| matches!(effect, Effect::Settle { .. }).then_some(());
        assert!(nodes.shells[0].take(settles).is_some(), "all have passed the death");
        nodes.says(1, driver, ToNode::Notices(vec![Notice::Released { object, tokens: 1 }]));
        assert!(nodes.shells[1].node.is_quiet());
    }
}

/// Whoever wanted it was told that no node has it.
#[test]
fn a_source_whose_row_had_not_come_was_not_asked_for_its_bytes() {
    let mut nodes = Nodes::new(2);
    let driver = nodes.shells[1].driver();
    let object = object_of(number(0));
    nodes.asks_home_for(driver, object);
    let value = FarValue::Stored { bytes: 1000, turn: 1, sources: vec![number(2)] };
    let message = Box::new(Peer::Value { object, value, contains: vec![] });
    nodes.shells[1].hears(Event::Peer { from: number(0), cover: 0, message });
    let asked = nodes.shells[1].take(|effect| match effect {
        Effect::SendPeer { to, message, .. } if matches!(**message, Peer::FetchBytes { .. }) => {
            Some(*to)
        }
        _ => None,
    });
    assert_eq!(asked, Some(number(2)), "it waits in the carrier");
}
