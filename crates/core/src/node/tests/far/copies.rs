//! What is put with copies: at the node that would inherit from its home, and after the home's death.

use hoplo_wire::Value;

use super::*;

const HOME: usize = 0;

/// A driver of node 0 has put it with two copies. The other nodes: the one that was asked for the second, and the one that was not.
fn put() -> (Nodes, ProcessId, ObjectId, [usize; 2]) {
    let mut nodes = Nodes::new(3);
    let driver = nodes.shells[HOME].driver();
    let object = TaskId { owner: driver, seq: 3 }.object(0);
    nodes.seals(HOME, driver, object, driver);
    nodes.notices(HOME, driver, Notice::Copies { object, copies: 2 });
    let asked = (1..3).find(|at| nodes.shells[*at].node.objects.knows(object));
    let asked = asked.expect("one is asked at once");
    let other = 3 - asked;
    assert!(!nodes.shells[other].node.objects.knows(object), "and only one");
    nodes.moves(HOME, asked);
    (nodes, driver, object, [asked, other])
}

impl Nodes {
    fn keeps(&self, at: usize, object: ObjectId) -> bool {
        self.shells[at].node.objects.keeps_value(object)
    }
}

#[test]
fn the_copy_is_at_the_node_that_would_inherit_and_goes_with_the_last_reference() {
    let (mut nodes, driver, object, [asked, _]) = put();
    let entries = (1..3).map(|at| node_entry(at, NodeState::Alive)).collect::<Vec<_>>();
    let heir = crate::node::heir_of(number(HOME), entries.iter());
    assert_eq!(heir, Some(number(asked)));
    assert!(nodes.keeps(asked, object));
    nodes.notices(HOME, driver, Notice::Released { object, tokens: 1 });
    nodes.pump();
    assert!(nodes.shells.iter().all(|shell| !shell.node.objects.knows(object)));
    assert!(nodes.shells.iter().all(|shell| shell.node.is_quiet()), "no claim is left");
}

#[test]
fn the_heir_of_a_dead_home_has_the_value_and_another_copy_made() {
    let (mut nodes, _, object, [heir, other]) = put();
    let reader = nodes.shells[other].driver();
    nodes.notices(other, reader, Notice::Hold { object, process: reader });
    nodes.death_is_heard(&[1, 2], HOME, heir, 90);
    assert!(nodes.keeps(heir, object));
    assert!(!nodes.keeps(other, object), "it may have been told of copies by others yet");
    nodes.is_settled(&[1, 2], HOME, heir, 90);
    nodes.moves(heir, other);
    assert!(nodes.keeps(other, object));
    nodes.wants(other, reader, object);
    assert!(matches!(nodes.ready(other, reader), Some(Value::Stored(_))));
    nodes.notices(other, reader, Notice::Released { object, tokens: 1 });
    nodes.pump();
    assert!((1..3).all(|at| !nodes.shells[at].node.objects.knows(object)));
}
