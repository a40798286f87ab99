//! NREF-4: when a dead node is struck, and what was sent to it is given up.

use super::*;

#[test]
fn a_dead_node_stays_in_the_sets_until_all_have_passed() {
    let (mut nodes, x) = (Nodes::new(3), object(1, 1));
    nodes.held(1, x);
    nodes.held(0, x);
    nodes.run();
    nodes.dropped(1, x);
    let epoch = nodes.dies(0);
    nodes.hears(1, 0, epoch);
    assert_eq!(nodes.view(1, x).registered, [number(0)]);
    assert_eq!(nodes.said(), [(1, Effect::Passed { epoch })]);
    nodes.handle(1, Event::AllPassed { epoch });
    nodes.run_down();
    assert_eq!(nodes.said(), [(1, Effect::Free { object: x })]);
}

/// Story 1: the dead one sent it on.
#[test]
fn a_cover_to_a_dead_node_stays_until_all_have_passed() {
    let (mut nodes, x) = (Nodes::new(3), object(1, 1));
    nodes.held(1, x);
    nodes.sends(1, 0, &[x]);
    nodes.dropped(1, x);
    let epoch = nodes.dies(0);
    nodes.hears(1, 0, epoch);
    assert_eq!(nodes.view(1, x).covers, 1);
    nodes.handle(1, Event::AllPassed { epoch });
    assert_eq!(nodes.view(1, x).covers, 0);
    nodes.sends(1, 0, &[x]);
    assert_eq!(nodes.view(1, x).covers, 0, "the carrier says later what it sent before");
}

#[test]
fn an_epoch_is_passed_when_the_claims_that_were_open_are_confirmed_and_no_later_ones() {
    let (mut nodes, x, y) = (Nodes::new(4), object(1, 1), object(3, 1));
    nodes.held(1, x);
    nodes.held(3, y);
    nodes.held(2, x);
    let epoch = nodes.dies(0);
    nodes.hears(2, 0, epoch);
    nodes.held(2, y);
    assert_eq!(nodes.said(), []);
    nodes.arrives(2, 1);
    nodes.arrives(1, 2);
    assert_eq!(nodes.said(), [(2, Effect::Passed { epoch })]);
}

#[test]
fn only_the_last_epoch_is_said_to_be_passed() {
    let (mut nodes, x) = (Nodes::new(4), object(1, 1));
    nodes.held(1, x);
    nodes.held(2, x);
    let first = nodes.dies(0);
    nodes.hears(2, 0, first);
    nodes.epoch += 1;
    let second = Epoch(nodes.epoch);
    nodes.hears(2, 3, second);
    nodes.run();
    assert_eq!(nodes.said(), [(2, Effect::Passed { epoch: second })]);
}

#[test]
fn a_dead_node_is_refused_and_told_nothing() {
    let (mut nodes, x) = (Nodes::new(3), object(1, 1));
    nodes.held(1, x);
    nodes.sends(1, 2, &[x]);
    nodes.arrives(1, 2);
    let epoch = nodes.dies(0);
    nodes.hears(1, 0, epoch);
    let parcel = Parcel { seq: 1, message: Message::Claim { object: x } };
    nodes.handle(1, Event::Received { from: number(0), parcel });
    nodes.handle(1, Event::Arrived { from: number(0), frame: 1, objects: [x].into() });
    assert_eq!(nodes.messages(1, 0), []);
    assert_eq!(nodes.view(1, x).registered, []);
}

#[test]
fn a_dead_sender_waits_for_nothing() {
    let (mut nodes, x) = (Nodes::new(3), object(1, 1));
    nodes.held(1, x);
    nodes.held(0, x);
    nodes.run();
    nodes.sends(0, 2, &[x]);
    nodes.arrives(0, 2);
    let epoch = nodes.dies(0);
    nodes.hears(2, 0, epoch);
    nodes.arrives(2, 1);
    nodes.arrives(1, 2);
    assert_eq!(nodes.messages(2, 0), []);
    assert!(nodes.view(2, x).is_claimed);
}
