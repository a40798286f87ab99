//! NREF-5: what a dead node was home of. Of four, the heir of 0 is 2, and 3 when that dies, too.

use super::*;

fn announced(object: ObjectId, contents: &[ObjectId]) -> Message {
    Message::Announce { object, contents: Some(contents.into()) }
}

/// c is at home on 0 and held by 3; x is in it and at home on 1. Nobody else holds anything.
fn a_container_is_held_elsewhere() -> (Nodes, ObjectId, ObjectId) {
    let (mut nodes, c, x) = (Nodes::new(4), object(0, 1), object(1, 1));
    nodes.held(1, x);
    nodes.held(0, c);
    nodes.contains(0, c, &[x]);
    nodes.held(3, c);
    nodes.run();
    nodes.dropped(1, x);
    nodes.dropped(0, c);
    nodes.run_down();
    (nodes, c, x)
}

#[test]
fn an_heir_frees_nothing_before_all_have_announced() {
    let (mut nodes, c, x) = a_container_is_held_elsewhere();
    let epoch = nodes.dies(0);
    nodes.hears(2, 0, epoch);
    nodes.hears(3, 0, epoch);
    assert_eq!(nodes.messages(3, 2), [announced(c, &[x])]);
    nodes.hears(1, 0, epoch);
    nodes.run_down();
    nodes.dropped(3, c);
    nodes.run_down();
    let said = nodes.said();
    assert!(said.contains(&(3, Effect::Forget { object: c })), "{said:?}");
    assert!(!said.iter().any(|(_, it)| matches!(it, Effect::Free { .. })), "{said:?}");
    assert_eq!(nodes.view(2, c).registered, []);
    (1..4).for_each(|at| nodes.handle(at, Event::AllPassed { epoch }));
    nodes.run_down();
    assert!(nodes.said().contains(&(1, Effect::Free { object: x })));
    assert!(nodes.nodes[1..].iter().all(Claims::is_empty));
}

#[test]
fn an_heir_calls_nothing_unknown_before_all_have_announced() {
    let (mut nodes, c) = (Nodes::new(4), object(0, 1));
    nodes.held(0, c);
    let epoch = nodes.dies(0);
    (1..4).for_each(|at| nodes.hears(at, 0, epoch));
    nodes.held(3, c);
    nodes.run();
    assert!(nodes.view(3, c).is_claimed);
    (1..4).for_each(|at| nodes.handle(at, Event::AllPassed { epoch }));
    let d = object(0, 2);
    nodes.held(3, d);
    nodes.run();
    assert!(nodes.view(3, d).is_lost);
}

/// The dead home's place in the set of x is given up when all have passed, and c's heir may be late.
#[test]
fn who_announces_a_container_holds_the_contents_until_the_heir_does() {
    let (mut nodes, c, x) = a_container_is_held_elsewhere();
    let epoch = nodes.dies(0);
    (1..4).for_each(|at| nodes.hears(at, 0, epoch));
    nodes.said();
    assert_eq!(nodes.view(3, x).covers, 1);
    nodes.arrives(3, 2);
    nodes.arrives(2, 3);
    assert_eq!(nodes.said(), [], "x is not claimed yet");
    nodes.arrives(3, 1);
    nodes.arrives(1, 3);
    assert_eq!(nodes.said(), [(3, Effect::Passed { epoch })]);
    assert_eq!(nodes.view(3, x).covers, 1, "the heir has not claimed x");
    nodes.run();
    assert_eq!(nodes.view(3, x).covers, 0);
    assert_eq!(nodes.view(2, c).contents, Some([x].into()));
    assert_eq!(nodes.view(1, x).registered, [number(0), number(2), number(3)]);
}

/// Story 3.
#[test]
fn an_heir_that_has_not_heard_of_the_death_takes_what_is_announced() {
    let (mut nodes, c, x) = a_container_is_held_elsewhere();
    let epoch = nodes.dies(0);
    nodes.hears(3, 0, epoch);
    nodes.run_down();
    assert_eq!(nodes.view(2, c).registered, [number(3)]);
    nodes.dropped(3, c);
    nodes.run_down();
    assert_eq!(nodes.view(2, c).registered, []);
    assert_eq!(nodes.view(2, x).containers, 1, "it does not know that it may let go");
    (1..3).for_each(|at| nodes.hears(at, 0, epoch));
    (1..4).for_each(|at| nodes.handle(at, Event::AllPassed { epoch }));
    nodes.run_down();
    assert!(nodes.said().contains(&(2, Effect::Free { object: c })));
    assert!(nodes.nodes[1..].iter().all(Claims::is_empty));
}

#[test]
fn the_heir_of_an_heir_hears_everything_again() {
    let (mut nodes, c, x) = a_container_is_held_elsewhere();
    nodes.held(1, c);
    nodes.run();
    let first = nodes.dies(0);
    (1..4).for_each(|at| nodes.hears(at, 0, first));
    nodes.run_down();
    (1..4).for_each(|at| nodes.handle(at, Event::AllPassed { epoch: first }));
    let second = nodes.dies(2);
    nodes.hears(3, 2, second);
    nodes.hears(1, 2, second);
    assert_eq!(nodes.messages(1, 3), [announced(c, &[x])]);
    assert_eq!(nodes.view(3, c).in_charge, number(3));
    assert_eq!(nodes.view(3, x).containers, 1);
    nodes.run();
    assert_eq!(nodes.view(3, c).registered, [number(1)]);
    nodes.dropped(1, c);
    nodes.dropped(3, c);
    nodes.run_down();
    assert!(!nodes.said().contains(&(3, Effect::Free { object: c })));
    [1, 3].iter().for_each(|at| nodes.handle(*at, Event::AllPassed { epoch: second }));
    nodes.run_down();
    assert!(nodes.said().contains(&(3, Effect::Free { object: c })));
    assert!(nodes.nodes[1].is_empty() && nodes.nodes[3].is_empty());
}

#[test]
fn an_open_claim_goes_to_the_heir_and_what_it_was_for_is_settled_then() {
    let (mut nodes, c) = (Nodes::new(4), object(0, 1));
    nodes.held(0, c);
    nodes.held(1, c);
    nodes.run();
    nodes.sends(1, 3, &[c]);
    nodes.arrives(1, 3);
    let epoch = nodes.dies(0);
    nodes.hears(3, 0, epoch);
    assert_eq!(nodes.messages(3, 2), [Message::Announce { object: c, contents: None }]);
    assert_eq!(nodes.messages(3, 1), []);
    nodes.arrives(3, 2);
    nodes.arrives(2, 3);
    assert_eq!(nodes.messages(3, 1), [Message::Settled { cover: Cover::Frame(1) }]);
}

/// Story 4: each contains the other, and both homes die.
#[test]
fn objects_in_each_other_are_passed() {
    let (mut nodes, c, d) = (Nodes::new(4), object(0, 1), object(1, 1));
    nodes.held(0, c);
    nodes.held(1, d);
    nodes.contains(0, c, &[d]);
    nodes.contains(1, d, &[c]);
    [c, d].iter().for_each(|it| nodes.held(3, *it));
    nodes.run();
    let first = nodes.dies(0);
    (1..4).for_each(|at| nodes.hears(at, 0, first));
    nodes.said();
    let second = nodes.dies(1);
    [2, 3].iter().for_each(|at| nodes.hears(*at, 1, second));
    nodes.run();
    let passed = nodes.said();
    assert!(passed.contains(&(2, Effect::Passed { epoch: second })), "{passed:?}");
    assert!(passed.contains(&(3, Effect::Passed { epoch: second })), "{passed:?}");
}

#[test]
fn who_joins_later_knows_the_heirs_and_is_none() {
    let mut late = Claims::new(number(4));
    let mut effects = Vec::new();
    let joined = |at: usize| Event::Joined { node: number(at), epoch: Epoch(at as u64 + 1) };
    (0..4).for_each(|at| late.handle(joined(at), &mut effects));
    late.handle(Event::Died { node: number(0), heir: None, epoch: Epoch(5) }, &mut effects);
    late.handle(Event::AllPassed { epoch: Epoch(5) }, &mut effects);
    late.handle(Event::Joined { node: number(4), epoch: Epoch(6) }, &mut effects);
    late.handle(Event::Held { object: object(0, 1) }, &mut effects);
    let told =
        matches!(effects[..], [Effect::Passed { .. }, Effect::Send { to, .. }] if to == number(2));
    assert!(told, "{effects:?}");
}
