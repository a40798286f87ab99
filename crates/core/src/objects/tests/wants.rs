//! Waiting for values.

use super::*;

#[test]
fn an_unknown_object_is_lost_only_after_a_sweep() {
    let mut bench = Bench::new();
    let [late, never] = [1, 2].map(|seq| object(A, seq));
    assert_eq!(bench.want(B, late), []);
    assert_eq!(bench.want(B, never), []);
    // The owner's word was in its socket all the time.
    assert_eq!(bench.notice(A, shared(late, &[])), [ready(B, late, inline(), &[])]);
    let effects = bench.sweep();
    // It was heard of after the sweep had begun.
    assert_eq!(effects, []);
    let effects = bench.sweep();
    let [Effect::Send { to: B, message: ToClient::Ready { object, value, .. } }] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    let Value::Failed(failure) = value else { panic!("{value:?}") };
    assert_eq!(*object, never);
    assert_eq!(failure.kind, hoplo_wire::FailureKind::ObjectLost);
    assert!(failure.text().starts_with("obj:1-2.0 is lost"), "{}", failure.text());
    bench.sweep();
    assert_eq!(bench.state(never), None);
}

#[test]
fn a_pending_object_is_told_to_all_who_wait_when_it_comes() {
    let mut bench = Bench::new();
    let [object, inner] = [2, 1].map(|seq| object(B, seq));
    bench.notice(B, pending(object, None));
    for from in [B, C] {
        assert_eq!(bench.want(from, object), []);
    }
    assert!(bench.directory.explain(object).contains("waited for by process:2, process:3"));
    let location = bench.place(64);
    let value = Value::Stored(location);
    assert_eq!(
        bench.notice(A, sealed(object, location, &[inner], B)),
        [B, C].map(|to| ready(to, object, value.clone(), &[inner]))
    );
    assert_eq!(bench.want(C, object), [ready(C, object, value, &[inner])]);
}

#[test]
fn who_waits_keeps_the_object() {
    let mut bench = Bench::new();
    let object = object(A, 1);
    bench.notice(A, pending(object, None));
    bench.want(B, object);
    bench.notice(A, released(object));
    assert!(!bench.sweep_is_under_way());
    assert_eq!(bench.notice(A, fulfilled(object, &[])), [ready(B, object, inline(), &[])]);
    bench.sweep();
    assert_eq!(bench.state(object), None);
}

/// A store of 8 MiB in which A's object was spilled for B's sake. B has the extent.
fn with_spilled(object: ObjectId) -> (Bench, SpillPlace) {
    let mut bench = Bench::with(Config::new(8 * MIB));
    let location = bench.seal(object, 6 * MIB, &[]);
    let wanted = Event::ExtentWanted { from: B, request: 1, bytes: 6 * MIB, slots: 0 };
    let recall = ToClient::ExtentRecall { bytes: 2 * MIB };
    assert_eq!(bench.feed(wanted), [Effect::Send { to: A, message: recall }]);
    assert_eq!(
        bench.feed(Event::ExtentReturned { from: A, offset: 6 * MIB, len: 2 * MIB }),
        [Effect::Spill { attempt: 1, object, location }]
    );
    let place = SpillPlace { file: 1, offset: 0, len: 6 * MIB };
    let recall = ToClient::ExtentRecall { bytes: 6 * MIB };
    assert_eq!(
        bench.feed(Event::Spilled { attempt: 1, result: SpillOutcome::Done(place) }),
        [reclaimed(A, object, location), Effect::Send { to: A, message: recall }]
    );
    let effects = bench.feed(Event::ExtentReturned { from: A, offset: 0, len: 6 * MIB });
    let [Effect::Send { to: B, message: ToClient::ExtentGranted { offset, len, .. } }] =
        &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!((*offset, *len), (0, 8 * MIB));
    (bench, place)
}

#[test]
fn a_spilled_object_comes_back_when_it_is_wanted() {
    let object = object(A, 1);
    let (mut bench, place) = with_spilled(object);
    assert_eq!(bench.state(object), Some("spilled"));
    let recall = ToClient::ExtentRecall { bytes: 6 * MIB };
    assert_eq!(bench.want(C, object), [Effect::Send { to: B, message: recall }]);
    assert!(bench.directory.explain(object).contains("waits for room"));
    let effects = bench.feed(Event::ExtentReturned { from: B, offset: 2 * MIB, len: 6 * MIB });
    let [Effect::Restore { attempt, offset, slot, .. }] = effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(effects[0], Effect::Restore { attempt, object, place, offset, slot });
    assert_eq!((offset, bench.state(object)), (2 * MIB, Some("restoring")));
    assert_eq!(bench.want(B, object), []);
    let location = Location { slot, generation: 9, offset, len: 6 * MIB };
    let value = Value::Stored(location);
    assert_eq!(
        bench.feed(Event::Restored { attempt, result: Ok(9) }),
        [
            Effect::Forget { place },
            ready(B, object, value.clone(), &[]),
            ready(C, object, value, &[])
        ]
    );
    let totals = bench.directory.totals();
    assert_eq!((totals.spills, totals.restores, totals.spilled_bytes), (1, 1, 0));
}

#[test]
fn a_restore_that_fails_can_be_tried_again() {
    let object = object(A, 1);
    let (mut bench, place) = with_spilled(object);
    bench.feed(Event::ExtentReturned { from: B, offset: 0, len: 8 * MIB });
    let effects = bench.want(C, object);
    let [Effect::Restore { attempt, .. }] = effects[..] else { panic!("{effects:?}") };
    let failed = Event::Restored { attempt, result: Err("input/output error".to_string()) };
    let effects = bench.feed(failed);
    let [Effect::Send { to: C, message: ToClient::Ready { value: Value::Failed(it), .. } }] =
        &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert!(it.text().contains("input/output error"));
    assert!(
        matches!(bench.want(C, object)[..], [Effect::Restore { place: it, .. }] if it == place)
    );
}

#[test]
fn no_room_to_restore_is_told_and_nothing_is_lost() {
    let object = object(A, 1);
    let (mut bench, _) = with_spilled(object);
    bench.want(C, object);
    assert_eq!(bench.pass(Duration::from_millis(20)), []);
    let effects = bench.pass(Duration::from_secs(2));
    let [Effect::Send { to: C, message: ToClient::Ready { value: Value::Failed(it), .. } }] =
        &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!(it.kind, hoplo_wire::FailureKind::StoreFull);
    assert!(it.text().contains("process:2 keeps 8.0 MiB to write in"), "{}", it.text());
    assert_eq!(bench.state(object), Some("spilled"));
}

#[test]
fn what_goes_while_it_is_restored_or_spilled_leaves_nothing_behind() {
    let object = object(A, 1);
    let (mut bench, place) = with_spilled(object);
    bench.feed(Event::ExtentReturned { from: B, offset: 0, len: 8 * MIB });
    let effects = bench.want(C, object);
    let [Effect::Restore { attempt, offset, slot, .. }] = effects[..] else {
        panic!("{effects:?}")
    };
    bench.feed(Event::ProcessGone { process: C, obituary: String::new() });
    bench.notice(A, released(object));
    assert_eq!(bench.sweep(), []);
    let location = Location { slot, generation: 4, offset, len: 6 * MIB };
    let effects = bench.feed(Event::Restored { attempt, result: Ok(4) });
    assert_eq!(
        effects,
        [Effect::Forget { place }, Effect::Free { attempt: attempt + 1, object, location }]
    );
    bench.feed(Event::Freed { attempt: attempt + 1, result: FreeOutcome::Done });
    assert_eq!(bench.directory.totals().granted_bytes, 0);

    let (mut bench, place) = with_spilled(object);
    bench.notice(A, released(object));
    assert_eq!(bench.sweep(), [Effect::Forget { place }]);
}
