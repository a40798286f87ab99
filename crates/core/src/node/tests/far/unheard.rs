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

/// Three nodes: a worker of node 2 made something that is at home at node 0, and a driver of node 1 reads it. Node 2 is dead, and node 0 hears of it
/// late: it named the dead node again, and the reader was told that the object cannot be fetched.
#[test]
fn a_home_that_has_not_heard_of_a_death_is_asked_until_it_has() {
    let mut nodes = Nodes::new(3);
    let (owner, reader) = (nodes.shells[0].driver(), nodes.shells[1].driver());
    let object = ObjectId { task: TaskId { owner, seq: 3 }, index: 0 };
    let sealed = Peer::Sealed {
        object,
        bytes: 1000,
        contains: vec![],
        maker: ProcessId::new(number(2), 5, 1),
        holder: owner,
        word: 1,
    };
    let hold = Notice::Hold { object, process: owner };
    nodes.says(0, owner, ToNode::Notices(vec![hold]));
    let (from, message) = (number(2), Box::new(sealed));
    nodes.shells[0].hears(Event::Peer { from, cover: 0, message });
    nodes.tells_row(&[1], 2, NodeState::dead("it fell"));
    nodes.says(1, reader, ToNode::Want { objects: vec![object] });
    assert_eq!(nodes.failure(reader), None, "node 0 has still to hear of it");
    nodes.tells_row(&[0], 2, NodeState::dead("it fell"));
    let remake = nodes.shells[0].told(owner, |message| match message {
        ToClient::Remake { objects, .. } => Some(objects.clone()),
        _ => None,
    });
    assert_eq!(remake, Some(vec![object]));
    let value = hoplo_wire::Value::Inline((*b"made again").into());
    let fulfilled = Notice::Fulfilled { object, value: value.clone(), contains: vec![] };
    nodes.says(0, owner, ToNode::Notices(vec![fulfilled]));
    let read = nodes.shells[1].told(reader, |message| match message {
        ToClient::Ready { value, .. } => Some(value.clone()),
        _ => None,
    });
    assert_eq!(read, Some(value));
}

/// Found by seed 10007648. The home named a dead node alone to one reader, and that reader's node to the next one. So it fetched itself from a node that
/// waited for one that waited for a word of the home.
#[test]
fn who_was_told_to_fetch_from_a_node_that_asks_its_home_again_waited_for_that() {
    let no_bytes = |nodes: &mut Nodes| {
        nodes.shells[1].take(|effect| match effect {
            Effect::SendPeer { to, message, .. } => match **message {
                Peer::NoBytes { ticket, .. } => Some((*to, ticket)),
                _ => None,
            },
            _ => None,
        })
    };
    for asks_before in [true, false] {
        let mut nodes = Nodes::new(4);
        let driver = nodes.shells[1].driver();
        let object = object_of(number(0));
        nodes.tells_row(&[1], 2, NodeState::dead("it fell"));
        let held = vec![Notice::Hold { object, process: driver }];
        nodes.shells[1].says(driver, ToNode::Notices(held));
        assert_eq!(nodes.asks_home_for(driver, object), Some(number(0)));
        let value = FarValue::Stored { bytes: 1000, turn: 1, sources: vec![number(2)] };
        let value = (number(0), Peer::Value { object, value, contains: vec![] });
        let (ticket, offset, until, turn) = (7, 0, u64::MAX, 2);
        let fetch = Peer::FetchBytes { ticket, object, offset, until, turn };
        let mut messages = vec![value, (number(3), fetch)];
        if asks_before {
            messages.reverse();
        }
        for (from, message) in messages {
            nodes.shells[1].hears(Event::Peer { from, cover: 0, message: Box::new(message) });
        }
        assert_eq!(no_bytes(&mut nodes), Some((number(3), 7)), "asks before: {asks_before}");
    }
}

/// Nobody is answered who is dead.
#[test]
fn who_asked_ahead_of_a_death_and_dies_is_answered_no_more() {
    let mut nodes = Nodes::new(4);
    let owner = nodes.shells[0].driver();
    let object = ObjectId { task: TaskId { owner, seq: 3 }, index: 0 };
    let value = hoplo_wire::Value::Inline((*b"x").into());
    let state = SharedState::Value { value, contains: vec![] };
    nodes.says(0, owner, ToNode::Notices(vec![Notice::Shared { object, state }]));
    for from in [1, 3] {
        let want = Peer::Want { objects: vec![object], gone: vec![number(2)] };
        let (from, message) = (number(from), Box::new(want));
        nodes.shells[0].hears(Event::Peer { from, cover: 0, message });
    }
    let answered = |nodes: &mut Nodes| {
        let mut to_whom = Vec::new();
        while let Some(to) = nodes.shells[0].take(|effect| match effect {
            Effect::SendPeer { to, message, .. } if matches!(**message, Peer::Value { .. }) => {
                Some(*to)
            }
            _ => None,
        }) {
            to_whom.push(to);
        }
        to_whom
    };
    assert_eq!(answered(&mut nodes), []);
    nodes.stuck = Some(1);
    let mut dies = |at: usize| {
        let entry = Box::new(node_entry(at, NodeState::dead("it fell")));
        nodes.shells[0].hears(Event::Member { entry, index: 30 + at as u64 });
        answered(&mut nodes)
    };
    assert_eq!(dies(3), []);
    assert_eq!(dies(2), [number(1)]);
}
