//! NREF-2: what a frame names stays, until its receiver has claimed it.

use super::*;

#[test]
fn a_sender_holds_what_it_sent_until_the_receiver_has_claimed_it() {
    let (mut nodes, x) = (Nodes::new(3), object(1, 1));
    nodes.held(1, x);
    nodes.sends(1, 2, &[x]);
    nodes.dropped(1, x);
    assert!(!nodes.nodes[1].sweep_under_way, "a home gives up what it sent");
    nodes.arrives(1, 2);
    nodes.sends(2, 0, &[x]);
    nodes.dropped(2, x);
    [(2, 1), (1, 2)].iter().for_each(|(from, to)| nodes.arrives(*from, *to));
    assert!(!nodes.nodes[2].sweep_under_way, "a node gives up what it sent on");
    assert_eq!(nodes.view(2, x).covers, 1);
    nodes.run();
    assert_eq!(nodes.view(1, x).registered, [number(0), number(2)]);
    nodes.run_down();
    assert_eq!(nodes.view(1, x).registered, [number(0)]);
    assert_eq!(nodes.said(), [(2, Effect::Forget { object: x })]);
}

#[test]
fn a_frame_is_settled_when_the_last_claim_for_it_is_confirmed() {
    let (mut nodes, x, y) = (Nodes::new(4), object(1, 1), object(2, 1));
    nodes.held(1, x);
    nodes.held(2, y);
    [x, y].iter().for_each(|it| nodes.held(0, *it));
    nodes.run();
    nodes.sends(0, 3, &[x, y]);
    nodes.arrives(0, 3);
    nodes.arrives(3, 1);
    nodes.arrives(1, 3);
    assert_eq!(nodes.messages(3, 0), []);
    nodes.arrives(3, 2);
    nodes.arrives(2, 3);
    assert_eq!(nodes.messages(3, 0), [Message::Settled { cover: Cover::Frame(1) }]);
}

#[test]
fn what_nobody_holds_at_the_other_end_is_settled_at_once() {
    let (mut nodes, x) = (Nodes::new(2), object(0, 1));
    nodes.held(0, x);
    nodes.sends(0, 1, &[x]);
    nodes.wires.clear();
    let arrived = Event::Arrived { from: number(0), frame: 1, objects: [x].into() };
    nodes.handle(1, arrived.clone());
    assert_eq!(nodes.messages(1, 0), [Message::Settled { cover: Cover::Frame(1) }]);
    nodes.handle(1, arrived);
    assert_eq!(nodes.messages(1, 0).len(), 1, "a frame that comes again is settled once");
    nodes.run();
    assert_eq!(nodes.view(0, x).covers, 0);
}

#[test]
fn what_comes_home_is_settled_without_a_claim() {
    let (mut nodes, x) = (Nodes::new(2), object(0, 1));
    nodes.held(0, x);
    nodes.held(1, x);
    nodes.run();
    nodes.sends(1, 0, &[x]);
    nodes.arrives(1, 0);
    assert_eq!(nodes.messages(0, 1), [Message::Settled { cover: Cover::Frame(1) }]);
}
