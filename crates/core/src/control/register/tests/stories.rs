//! What happens when it happens one after the other.

use super::*;

fn stored(outcome: Outcome) -> u64 {
    match outcome {
        Outcome::Stored(version) => version,
        other => panic!("{other:?}"),
    }
}

fn loaded(outcome: Outcome) -> Option<u64> {
    match outcome {
        Outcome::Loaded(found) => found.map(|(version, _)| version),
        other => panic!("{other:?}"),
    }
}

/// With a value that all have.
fn begun(places: usize) -> World {
    let mut world = World::new(places, 2);
    assert_eq!(stored(world.swapped(0, None)), 1);
    world
}

#[test]
fn a_swap_is_found_by_everybody_and_excludes_others_of_its_version() {
    for places in [1, 2, 3, 5] {
        let mut world = World::new(places, 2);
        assert_eq!(loaded(world.load(1)), None);
        assert_eq!(world.swapped(1, Some(1)), Outcome::Conflict, "there is nothing to replace");
        assert_eq!(stored(world.swapped(0, None)), 1);
        assert_eq!(loaded(world.load(1)), Some(1));
        assert_eq!(world.swapped(1, None), Outcome::Conflict);
        assert_eq!(stored(world.swapped(1, Some(1))), 2);
        assert_eq!(world.swapped(0, Some(1)), Outcome::Conflict);
        assert_eq!(loaded(world.load(0)), Some(2));
    }
}

#[test]
fn who_loads_what_all_agree_on_makes_no_disk_write() {
    let mut world = begun(3);
    let before = world.keeps;
    for at in [0, 1, 1, 0] {
        assert_eq!(loaded(world.load(at)), Some(1));
    }
    assert_eq!(world.keeps, before);
    // Nor does anybody while there is nothing.
    let mut world = World::new(3, 2);
    assert_eq!(loaded(world.load(0)), None);
    assert_eq!(world.keeps, 0);
}

#[test]
fn a_minority_may_be_down() {
    for (places, down) in [(3, vec![0]), (3, vec![2]), (5, vec![1, 3])] {
        let mut world = begun(places);
        world.down.extend(down);
        assert_eq!(stored(world.swapped(1, Some(1))), 2);
        assert_eq!(loaded(world.load(0)), Some(2));
        world.down.clear();
        assert_eq!(loaded(world.load(0)), Some(2));
        assert_eq!(stored(world.swapped(0, Some(2))), 3);
    }
}

#[test]
fn without_a_majority_the_error_names_who_is_missing_and_afterwards_all_goes_on() {
    let mut world = begun(3);
    world.down.extend([0, 2]);
    let missing = Outcome::Failed(Failure::Silent { places: vec![0, 2], beginning: false });
    assert_eq!(world.load(0), missing);
    assert_eq!(world.swapped(1, Some(1)), missing);
    assert_eq!(
        loaded({
            world.down.clear();
            world.load(0)
        }),
        Some(1)
    );
    assert_eq!(stored(world.swapped(1, Some(1))), 2);
}

#[test]
fn a_cluster_begins_when_all_are_there() {
    let mut world = World::new(3, 2);
    world.down.insert(1);
    let missing = Outcome::Failed(Failure::Silent { places: vec![1], beginning: true });
    assert_eq!(world.swapped(0, None), missing);
    assert_eq!(world.load(1), missing);
    assert_eq!(world.keeps, 0, "nobody sits, so nobody votes");
    world.down.clear();
    assert_eq!(stored(world.swapped(1, None)), 1);
}

#[test]
fn who_lost_its_disk_is_an_acceptor_again_after_two_swaps() {
    let mut world = begun(3);
    world.down.insert(2);
    assert_eq!(stored(world.swapped(0, Some(1))), 2);
    world.down.clear();
    // Places 0 and 1 have version 2, place 2 has version 1.
    world.loses_disk(0);
    assert_eq!(loaded(world.load(1)), Some(2));
    assert_eq!(stored(world.swapped(1, Some(2))), 3);
    assert_eq!(stored(world.swapped(1, Some(3))), 4);
    assert!(world.emptied.is_empty(), "it has the value again");
    world.down.insert(1);
    assert_eq!(stored(world.swapped(1, Some(4))), 5);
    // And another one, as often as it takes, whoever swaps.
    world.down.clear();
    let mut version = 5;
    for round in 0..6 {
        world.loses_disk(round % 3);
        for _ in 0..2 {
            assert_eq!(stored(world.swapped(round / 2 % 2, Some(version))), version + 1);
            version += 1;
        }
        assert!(world.emptied.is_empty(), "it has the value again");
    }
}

/// Who had heard of a node, and then that another one sits at its place, gave the seat back to the one that was gone.
#[test]
fn a_node_that_is_gone_does_not_get_its_seat_back_by_hearsay() {
    let mut world = begun(3);
    assert_eq!(loaded(world.load(1)), Some(1), "proposer 1 has heard of all");
    // One more word of it is on its way for long.
    world.begin(1, Wanted::Load);
    world.deliver_to(0);
    let late = world.messages.pop().expect("its answer");
    world.settle();
    world.loses_disk(0);
    assert_eq!(stored(world.swapped(0, Some(1))), 2);
    assert_eq!(stored(world.swapped(0, Some(2))), 3);
    let seats = world.acceptors[1].held().seats.clone();
    assert_eq!((seats[0].turn, seats[0].node), (2, NodeId(4)));
    // Proposer 1 hears of that by the others.
    world.down.insert(0);
    assert_eq!(stored(world.swapped(1, Some(3))), 4);
    world.down.clear();
    assert_eq!(stored(world.swapped(1, Some(4))), 5);
    world.deliver(late);
    assert_eq!(stored(world.swapped(1, Some(5))), 6);
    assert_eq!(world.acceptors[1].held().seats, seats);
}

#[test]
fn of_two_one_disk_may_be_lost() {
    let mut world = begun(2);
    world.loses_disk(1);
    assert_eq!(stored(world.swapped(0, Some(1))), 2);
    world.loses_disk(0);
    assert_eq!(stored(world.swapped(1, Some(2))), 3);
    assert_eq!(loaded(world.load(0)), Some(3));
}

#[test]
fn who_is_empty_does_not_vote_before_it_has_the_value() {
    let mut world = begun(3);
    world.down.insert(2);
    assert_eq!(stored(world.swapped(0, Some(1))), 2);
    // Version 2 is at places 0 and 1. One of these is emptied, the other is down: what is left must not decide.
    world.down = BTreeSet::from([1]);
    world.loses_disk(0);
    let missing = Outcome::Failed(Failure::Silent { places: vec![1], beginning: false });
    assert_eq!(world.swapped(0, Some(1)), missing);
    assert_eq!(world.load(0), missing);
    world.down.clear();
    assert_eq!(loaded(world.load(0)), Some(2));
}

#[test]
fn when_most_disks_are_lost_nothing_is_decided_and_the_error_says_whose() {
    let mut world = begun(3);
    world.loses_disk(0);
    world.loses_disk(2);
    let lost = Outcome::Failed(Failure::Lost { places: vec![0, 2] });
    assert_eq!(world.swapped(0, Some(1)), lost);
    assert_eq!(world.load(1), lost);
}

#[test]
fn a_disk_that_takes_nothing_answers_nothing() {
    let mut world = begun(3);
    world.full.extend([0, 1]);
    let missing = Outcome::Failed(Failure::Silent { places: vec![0, 1], beginning: false });
    assert_eq!(world.swapped(0, Some(1)), missing);
    assert_eq!(loaded(world.load(0)), Some(1), "who reads needs no room");
    world.full.remove(&0);
    assert_eq!(stored(world.swapped(0, Some(1))), 2);
}

/// 1. Proposer 1 prepares a high round. Place 0 promises, and loses its disk; the other two questions are under way.
/// 2. Proposer 0 seats the new node of place 0. Its swap is accepted by that one and by place 2 alone, and acknowledged.
/// 3. Places 1 and 2 hear the high round. Were their promises counted together with the one of the lost disk, one of them would be
///    enough: that of place 1, which knows nothing of the swap.
#[test]
fn a_promise_of_a_lost_disk_is_worth_nothing_however_late() {
    let mut world = begun(3);
    assert_eq!(loaded(world.load(1)), Some(1));
    // Rounds of which nobody hears: its next one is above all that follow here.
    for _ in 0..20 {
        world.begin(1, Wanted::Load);
        while world.working[1].is_some() {
            world.messages.clear();
            world.ticks();
        }
    }
    world.swap(1, Some(1));
    world.deliver_to(0);
    let late = std::mem::take(&mut world.messages);
    let (promise, late): (Vec<_>, Vec<_>) =
        late.into_iter().partition(|it| matches!(it, Message::Answer { .. }));
    promise.into_iter().for_each(|promise| world.deliver(promise));
    world.loses_disk(0);

    world.swap_hidden_from(1, Some(1));
    assert_eq!(world.ended.last(), Some(&(0, Outcome::Stored(2))));
    assert_eq!(world.acceptors[1].held().accepted.as_ref().unwrap().value.version, 1);

    world.messages = late;
    world.settle();
    assert_eq!(world.ended.last(), Some(&(1, Outcome::Conflict)));
    assert_eq!(loaded(world.load(1)), Some(2));
}

/// Somebody puts a disk back that was lost, when another node had voted in its place.
#[test]
fn a_disk_that_comes_back_after_another_took_its_seat_has_nothing_to_say() {
    let mut world = begun(3);
    let old = world.acceptors[0].clone();
    world.loses_disk(0);
    assert_eq!(stored(world.swapped(0, Some(1))), 2);
    assert_eq!(stored(world.swapped(0, Some(2))), 3);
    world.down.insert(1);
    assert_eq!(stored(world.swapped(0, Some(3))), 4);
    world.down.clear();
    world.acceptors[0] = old;
    // Version 4 is at place 2 alone, whose promise comes last; the old disk tells of version 1, place 1 of version 3.
    assert_eq!(stored(world.swapped(1, Some(4))), 5);
}

/// The same, and the disk tells who loads of the value that place 1 has, too.
#[test]
fn two_that_hold_the_same_are_no_majority_if_one_of_them_has_lost_its_seat() {
    let mut world = begun(3);
    let old = world.acceptors[0].clone();
    world.loses_disk(0);
    world.swap_hidden_from(1, Some(1));
    assert_eq!(world.ended.last(), Some(&(0, Outcome::Stored(2))));
    world.messages.clear();
    world.acceptors[0] = old;
    world.down.insert(2);
    let missing = Outcome::Failed(Failure::Silent { places: vec![2], beginning: false });
    assert_eq!(world.load(1), missing);
    world.down.clear();
    assert_eq!(loaded(world.load(1)), Some(2));
}

/// 1. Proposer 1 begins, and hears of places 1 and 2 that nobody sits. What it asks place 0 is under way.
/// 2. Proposer 0 seats all three. Its swap is accepted by places 0 and 1, and acknowledged. Place 0 loses its disk.
/// 3. The question arrives at the new node of place 0: proposer 1 gives first seats to that one and the other two.
#[test]
fn a_beginning_that_missed_the_beginning_finds_it() {
    let mut world = World::new(3, 2);
    world.swap(1, None);
    world.deliver_to(1);
    world.deliver_to(2);
    let late = world.messages.remove(0);
    while !world.messages.is_empty() {
        let message = world.messages.remove(0);
        world.deliver(message);
    }
    world.swap_hidden_from(2, None);
    assert_eq!(world.ended.last(), Some(&(0, Outcome::Stored(1))));
    world.messages.clear();
    world.loses_disk(0);

    world.down.insert(1);
    world.messages.push(late);
    world.settle();
    let missing = Outcome::Failed(Failure::Silent { places: vec![1], beginning: false });
    assert_eq!(world.ended.last(), Some(&(1, missing)), "place 1 alone has the value");
    world.down.clear();
    assert_eq!(loaded(world.load(1)), Some(1));
}
