//! Lies and oddities that processes tell, and what comes of them.

use super::*;

#[test]
fn who_has_not_joined_is_not_heard() {
    let mut bench = Bench::new();
    let stranger = process(9);
    let object = object(stranger, 1);
    for event in [
        Event::Noticed { from: stranger, notice: hold(object, stranger) },
        Event::Wanted { from: stranger, objects: vec![object], need: Need::Bytes },
        Event::ExtentWanted { from: stranger, request: 1, bytes: 1, slots: 1 },
        Event::ExtentReturned { from: stranger, offset: 0, len: PAGE },
    ] {
        assert_eq!(Bench::violation(&bench.feed(event)).0, stranger);
    }
    assert_eq!(bench.directory.totals().violations, 4);
    assert_eq!(bench.directory.totals().objects, 0);
}

#[test]
fn a_place_that_is_not_the_writers_is_a_violation() {
    let mut bench = Bench::new();
    bench.seal(object(A, 1), 4096, &[]);
    let good = Location { slot: 2, generation: 1, offset: 8192, len: 100 };
    for (from, bad) in [
        (A, Location { offset: 4032, ..good }),
        (A, Location { offset: 8 * MIB, ..good }),
        (A, Location { offset: 8 * MIB - 64, ..good }),
        (A, Location { offset: u64::MAX - 63, ..good }),
        (A, Location { offset: 8200, ..good }),
        (A, Location { len: 0, ..good }),
        (A, Location { slot: 0, ..good }),
        (A, Location { slot: 5, ..good }),
        (A, Location { slot: u32::MAX, ..good }),
        (B, Location { slot: 5, ..good }),
    ] {
        let effects = bench.notice(from, sealed(object(A, 2), bad, &[], A));
        assert_eq!(Bench::violation(&effects).0, from, "{bad:?}");
        assert_eq!(bench.state(object(A, 2)), None);
    }
    assert_eq!(bench.notice(A, sealed(object(A, 2), good, &[], A)), []);
}

#[test]
fn only_its_writer_says_that_an_object_is_stored() {
    let mut bench = Bench::new();
    let location = Location { slot: 0, generation: 1, offset: 0, len: 64 };
    let value = Value::Stored(location);
    let object = object(A, 1);
    let state = SharedState::Value { value: value.clone(), contains: vec![] };
    let effects = bench.notice(A, Notice::Shared { object, state });
    assert!(Bench::violation(&effects).1.contains("its writer's word"));
    let effects = bench.notice(A, Notice::Fulfilled { object, value, contains: vec![] });
    assert!(Bench::violation(&effects).1.contains("its writer's word"));
}

#[test]
fn an_actors_handle_has_no_value() {
    let mut bench = Bench::new();
    let handle = hoplo_base::ActorId(object(A, 1).task).handle();
    let location = Location { slot: 0, generation: 1, offset: 0, len: 64 };
    for notice in [sealed(handle, location, &[], A), shared(handle, &[]), pending(handle, None)] {
        assert!(Bench::violation(&bench.notice(A, notice)).1.contains("actor"));
    }
    assert!(Bench::violation(&bench.want(A, handle)).1.contains("handle"));
}

#[test]
fn a_lineage_that_cannot_run_again_is_a_violation() {
    let mut bench = Bench::new();
    let mut bad = lineage(object(A, 1), &[]);
    let effects = bench.notice(A, pending(object(A, 2), Some(bad.clone())));
    assert!(Bench::violation(&effects).1.contains("task:1-1"));
    bad.frame.truncate(20);
    let effects = bench.notice(A, pending(object(A, 1), Some(bad)));
    assert!(Bench::violation(&effects).1.contains("lineage"));
    assert_eq!(bench.directory.totals().objects, 0);
}

#[test]
fn a_writer_frees_only_what_nobody_else_may_reach() {
    let mut bench = Bench::new();
    let [mine, held, inner, theirs] = [1, 2, 3, 4].map(|seq| object(A, seq));
    let place = bench.seal(mine, 4096, &[]);
    bench.seal(held, 64, &[inner]);
    bench.notice(A, hold(held, B));
    bench.notice(A, shared(theirs, &[]));
    for object in [held, inner, theirs, object(A, 9)] {
        let effects = bench.notice(A, Notice::Freed { object });
        assert_eq!(Bench::violation(&effects).0, A, "{object}");
    }
    let effects = bench.notice(B, Notice::Freed { object: mine });
    assert_eq!(Bench::violation(&effects).0, B);
    // Its own it frees, and the place is in use again with the next notice.
    assert_eq!(bench.notice(A, Notice::Freed { object: mine }), []);
    assert_eq!(bench.notice(A, sealed(object(A, 5), place, &[], A)), []);
}

#[test]
fn freeing_a_value_releases_what_it_contains() {
    let mut bench = Bench::new();
    let [outer, inner] = [1, 2].map(|seq| object(A, seq));
    bench.notice(A, shared(inner, &[]));
    bench.seal(outer, 64, &[inner]);
    bench.notice(A, released(inner));
    assert_eq!(bench.state(inner), Some("inline"));
    bench.notice(A, Notice::Freed { object: outer });
    bench.sweep();
    assert_eq!(bench.state(inner), None);
}

#[test]
fn a_second_copy_of_a_value_goes_back_to_its_writer() {
    let mut bench = Bench::new();
    let object = object(A, 1);
    let first = bench.seal(object, 64, &[]);
    let second = bench.place(64);
    let effects = bench.notice(A, sealed(object, second, &[], B));
    assert_eq!(effects, [Effect::Free { ticket: 1, object, location: second }]);
    let freed = Event::Freed { ticket: 1, result: FreeOutcome::Done };
    assert_eq!(bench.feed(freed), [reclaimed(A, object, second)]);
    // B was given its token all the same, and reads the first copy.
    assert_eq!(bench.want(B, object), [ready(B, object, Value::Stored(first), &[])]);
    bench.notice(A, released(object));
    bench.notice(B, released(object));
    assert_eq!(bench.sweep(), [Effect::Free { ticket: 2, object, location: first }]);
}

#[test]
fn a_value_told_twice_stays_the_first() {
    let mut bench = Bench::new();
    let [object, inner] = [1, 2].map(|seq| object(A, seq));
    bench.notice(A, shared(object, &[]));
    bench.notice(A, fulfilled(object, &[inner]));
    bench.notice(A, shared(object, &[inner]));
    assert_eq!(bench.state(inner), None);
    let row = bench.directory.listing().next().unwrap();
    assert_eq!((row.holders, row.contains), (vec![(A, 2)], vec![]));
}

#[test]
fn a_value_for_what_nobody_wants_any_more_is_dropped() {
    let mut bench = Bench::new();
    let object = object(A, 1);
    assert_eq!(bench.notice(A, fulfilled(object, &[])), []);
    assert_eq!(bench.state(object), None);
    assert!(!bench.sweep_is_under_way());
}
