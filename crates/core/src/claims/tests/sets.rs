//! NREF-1, NREF-3 and NREF-6: claims, releases and sweeps.

use super::*;

#[test]
fn a_foreign_object_is_claimed_at_its_first_use_and_released_after_a_sweep() {
    let (mut nodes, x) = (Nodes::new(2), object(1, 1));
    nodes.held(1, x);
    nodes.held(0, x);
    nodes.held(0, x);
    assert_eq!(nodes.messages(0, 1), [Message::Claim { object: x }]);
    nodes.run();
    assert_eq!(nodes.view(1, x).registered, [number(0)]);
    assert!(nodes.view(0, x).is_claimed);
    nodes.dropped(0, x);
    nodes.dropped(0, x);
    assert_eq!(nodes.messages(0, 1), []);
    nodes.handle(0, Event::Swept);
    assert_eq!(nodes.messages(0, 1), [Message::Release { object: x }]);
    assert_eq!(nodes.said(), [(0, Effect::Forget { object: x })]);
    nodes.run();
    assert_eq!(nodes.view(1, x).registered, []);
}

#[test]
fn a_home_frees_nothing_that_another_node_claimed() {
    let (mut nodes, x) = (Nodes::new(2), object(1, 1));
    nodes.held(1, x);
    nodes.held(0, x);
    nodes.run();
    nodes.dropped(1, x);
    nodes.run_down();
    assert_eq!(nodes.said(), []);
    nodes.dropped(0, x);
    nodes.run_down();
    assert_eq!(nodes.said(), [(0, Effect::Forget { object: x }), (1, Effect::Free { object: x })]);
    assert!(nodes.nodes.iter().all(Claims::is_empty));
}

/// Or the release of this one and the claim of the next one might be answered by one `Claimed`.
#[test]
fn nothing_is_released_while_its_claim_is_open() {
    let (mut nodes, x) = (Nodes::new(2), object(1, 1));
    nodes.held(1, x);
    nodes.held(0, x);
    nodes.dropped(0, x);
    assert!(!nodes.nodes[0].sweep_under_way);
    nodes.run();
    assert!(nodes.nodes[0].sweep_under_way);
    nodes.handle(0, Event::Swept);
    assert_eq!(nodes.messages(0, 1), [Message::Release { object: x }]);
}

#[test]
fn a_use_that_comes_and_goes_during_a_sweep_asks_for_another_one() {
    let (mut nodes, x) = (Nodes::new(1), object(0, 1));
    nodes.held(0, x);
    nodes.dropped(0, x);
    nodes.held(0, x);
    nodes.dropped(0, x);
    nodes.handle(0, Event::Swept);
    assert_eq!(nodes.said(), []);
    nodes.handle(0, Event::Swept);
    assert_eq!(nodes.said(), [(0, Effect::Free { object: x })]);
}

#[test]
fn what_its_home_does_not_know_is_lost_and_is_released_nowhere() {
    let (mut nodes, x) = (Nodes::new(2), object(1, 1));
    nodes.held(0, x);
    nodes.run();
    assert_eq!(nodes.said(), [(0, Effect::Lost { object: x })]);
    assert!(nodes.view(0, x).is_lost);
    nodes.dropped(0, x);
    nodes.handle(0, Event::Swept);
    assert_eq!(nodes.messages(0, 1), []);
    assert!(nodes.nodes[0].is_empty());
}

#[test]
fn a_container_supports_its_contents_at_its_home_only() {
    let (mut nodes, c, x) = (Nodes::new(3), object(0, 1), object(1, 1));
    nodes.held(1, x);
    nodes.held(0, c);
    nodes.contains(0, c, &[x]);
    nodes.held(2, c);
    nodes.run();
    nodes.dropped(1, x);
    nodes.dropped(0, c);
    nodes.run_down();
    assert_eq!(nodes.view(1, x).registered, [number(0)]);
    assert_eq!(nodes.view(2, c).contents, Some([x].into()));
    nodes.dropped(2, c);
    nodes.run_down();
    let freed = [(0, Effect::Free { object: c }), (1, Effect::Free { object: x })];
    assert_eq!(nodes.said().into_iter().filter(|it| freed.contains(it)).count(), 2);
    assert!(nodes.nodes.iter().all(Claims::is_empty));
}

#[test]
fn a_value_takes_the_place_of_its_lineage() {
    let (mut nodes, c, x, y) = (Nodes::new(1), object(0, 1), object(0, 2), object(0, 3));
    nodes.held(0, c);
    [x, y].iter().for_each(|it| nodes.held(0, *it));
    nodes.contains(0, c, &[x]);
    [x, y].iter().for_each(|it| nodes.dropped(0, *it));
    nodes.held(0, y);
    nodes.contains(0, c, &[y]);
    nodes.dropped(0, y);
    nodes.run_down();
    assert_eq!(nodes.said(), [(0, Effect::Free { object: x })]);
}

#[test]
fn a_container_is_not_released_under_a_reader_whose_claim_is_open() {
    let (mut nodes, c, x) = (Nodes::new(3), object(0, 1), object(1, 1));
    nodes.held(1, x);
    nodes.held(0, c);
    nodes.contains(0, c, &[x]);
    nodes.held(2, c);
    nodes.run();
    nodes.held(2, x);
    nodes.dropped(2, c);
    nodes.handle(2, Event::Swept);
    assert_eq!(nodes.messages(2, 0), []);
    nodes.arrives(2, 1);
    nodes.arrives(1, 2);
    nodes.handle(2, Event::Swept);
    assert_eq!(nodes.messages(2, 0), [Message::Release { object: c }]);
}

#[test]
fn a_message_that_comes_again_counts_once() {
    let (mut nodes, x) = (Nodes::new(2), object(1, 1));
    nodes.held(1, x);
    let said = |seq, message| Event::Received { from: number(0), parcel: Parcel { seq, message } };
    nodes.handle(1, said(1, Message::Claim { object: x }));
    nodes.handle(1, said(2, Message::Release { object: x }));
    nodes.handle(1, said(3, Message::Claim { object: x }));
    nodes.handle(1, said(2, Message::Release { object: x }));
    assert_eq!(nodes.view(1, x).registered, [number(0)]);
    assert_eq!(nodes.messages(1, 0).len(), 2);
}

#[test]
fn who_speaks_of_what_was_not_asked_or_leaves_something_out_is_accused() {
    let x = object(1, 1);
    let wrong = [
        (2, Message::Claim { object: x }),
        (1, Message::Release { object: x }),
        (1, Message::Claimed { object: x, contents: None }),
        (1, Message::Unknown { object: x }),
        (1, Message::Settled { cover: Cover::Frame(1) }),
    ];
    for (seq, message) in wrong {
        let mut nodes = Nodes::new(2);
        nodes.held(1, x);
        let parcel = Parcel { seq, message: message.clone() };
        nodes.handle(1, Event::Received { from: number(0), parcel });
        let said = nodes.said();
        let accused =
            matches!(&said[..], [(1, Effect::Violation { node, .. })] if *node == number(0));
        assert!(accused, "{message:?}: {said:?}");
        assert_eq!(nodes.view(1, x).registered, []);
    }
}

/// A node of a B-tree has between 5 and 11 places: at worst 11 for 5.
#[test]
fn an_entry_is_small() {
    let place = size_of::<(ObjectId, crate::claims::entry::Entry)>();
    let (foreign, at_home) = (place, place + 8 * size_of::<NodeNumber>());
    assert!(foreign * 11 / 5 <= 200, "{foreign}");
    assert!(at_home * 11 / 5 <= 400, "{at_home}");
}
