//! What was at home at a node that died is in the charge of its heir.

use hoplo_wire::peer::Peer;

use super::*;

impl Nodes {
    /// These hear that a node died, all with the same entry, and who is its heir.
    pub(super) fn death_is_heard(&mut self, whom: &[usize], dead: usize, heir: usize, index: u64) {
        let heir = Some(number(heir));
        let state = NodeState::Dead { why: "it fell".to_string(), heir };
        for at in whom {
            let entry = Box::new(node_entry(dead, state.clone()));
            self.shells[*at].hears(Event::Member { entry, index });
        }
        self.pump();
    }

    pub(super) fn is_settled(&mut self, whom: &[usize], dead: usize, heir: usize, died: u64) {
        let heir = Some(number(heir));
        let state = NodeState::Settled { why: "it fell".to_string(), heir, died };
        for at in whom {
            let entry = Box::new(node_entry(dead, state.clone()));
            self.shells[*at].hears(Event::Member { entry, index: died + 10 });
        }
        self.pump();
    }

    /// A driver of node 0 gives a value of its own to a worker of node 2, which reads and keeps it.
    fn read_at_another_node() -> (Self, ProcessId, ObjectId) {
        let mut nodes = Self::new(3);
        let driver = nodes.shells[0].driver();
        nodes.demand(driver, 3.0);
        let forked = nodes.forks(2);
        let (_, worker) = nodes.granted(driver);
        assert_eq!(worker, forked);
        nodes.says(0, driver, ToNode::Connect { to: worker });
        let (object, frame) = nodes.calls_with_a_value(driver, worker);
        let cover = nodes.passes(0, frame.clone());
        nodes.passes(2, Passing { arrived: Some(cover), ..frame });
        let hold = Notice::Hold { object, process: worker };
        nodes.says(2, worker, ToNode::Notices(vec![hold]));
        nodes.says(2, worker, ToNode::Want { objects: vec![object] });
        assert!(nodes.shells[2].node.objects.keeps_value(object), "it is read");
        (nodes, worker, object)
    }
}

#[test]
fn an_heir_is_told_what_others_know_and_lets_it_go_when_nobody_uses_it() {
    let (mut nodes, worker, object) = Nodes::read_at_another_node();
    nodes.death_is_heard(&[1, 2], 0, 1, 90);
    assert!(nodes.shells[1].node.objects.keeps_value(object));
    nodes.is_settled(&[1, 2], 0, 1, 90);
    assert!(nodes.shells[1].node.objects.keeps_value(object), "the worker uses it");
    nodes.says(2, worker, ToNode::TookOver { caller: object.task.owner });
    nodes.says(2, worker, ToNode::Notices(vec![Notice::Released { object, tokens: 1 }]));
    for at in [1, 2] {
        assert!(!nodes.shells[at].node.objects.knows(object), "nobody uses it at {at}");
        let shell = &nodes.shells[at].node;
        assert!(shell.is_quiet(), "{at}: {}", shell.what_is_left());
    }
}

/// FAR-5: a death that was announced to the heir, which had not heard that yet when another node died, was forgotten: the second one was passed, and with it the first.
#[test]
fn an_heir_that_has_not_heard_is_asked_again_when_another_node_dies() {
    for hears in [false, true] {
        let (mut nodes, ..) = Nodes::read_at_another_node();
        nodes.joins();
        let announced = |nodes: &mut Nodes, dead: usize, index: u64| {
            let state = NodeState::Dead { why: "it fell".to_string(), heir: Some(number(1)) };
            let entry = Box::new(node_entry(dead, state));
            nodes.shells[2].hears(Event::Member { entry, index });
            while nodes.sweeps(2) {}
            let told = nodes.shells[2].take(|effect| match effect {
                Effect::SendPeer { to, message, .. } => {
                    let is_it = matches!(**message, Peer::Announced { epoch } if epoch == index);
                    (is_it && *to == number(1)).then_some(())
                }
                _ => None,
            });
            told.is_some()
        };
        assert!(announced(&mut nodes, 0, 90), "it told its heir what it has of node 0");
        if hears {
            let (cover, message) = (0, Box::new(Peer::Heard { epoch: 90 }));
            nodes.shells[2].hears(Event::Peer { from: number(1), cover, message });
        }
        assert_eq!(announced(&mut nodes, 3, 91), !hears, "it has nothing of node 3");
    }
}

/// FAR-6
#[test]
fn what_comes_before_the_heir_has_heard_of_the_death_waits_for_that() {
    let (mut nodes, _, object) = Nodes::read_at_another_node();
    nodes.death_is_heard(&[2], 0, 1, 90);
    assert!(!nodes.shells[1].node.objects.keeps_value(object), "it is not in charge");
    assert_eq!(nodes.shells[1].node.violations, 0);
    nodes.death_is_heard(&[1], 0, 1, 90);
    assert!(nodes.shells[1].node.objects.keeps_value(object));
}

/// EST-2
#[test]
fn the_next_heir_is_told_all_of_it_again() {
    let (mut nodes, _, object) = Nodes::read_at_another_node();
    nodes.joins();
    nodes.death_is_heard(&[1, 2, 3], 0, 1, 90);
    nodes.death_is_heard(&[2, 3], 1, 3, 91);
    assert!(nodes.shells[3].node.objects.keeps_value(object));
    for at in [2, 3] {
        assert_eq!(nodes.shells[at].node.objects.in_charge(number(0)), number(3));
    }
}

/// The rows of a start tell who lives before they tell who died: the row of the dead names its heir.
#[test]
fn who_joins_later_asks_the_same_heir() {
    let (mut nodes, _, object) = Nodes::read_at_another_node();
    nodes.death_is_heard(&[1, 2], 0, 1, 90);
    nodes.is_settled(&[1, 2], 0, 1, 90);
    nodes.joins();
    nodes.joins();
    for late in [3, 4] {
        nodes.is_settled(&[late], 0, 1, 90);
        assert_eq!(nodes.shells[late].node.objects.in_charge(object.task.owner.node()), number(1));
    }
}
