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
    assert!(
        bench.directory.explain(object).to_string().contains("waited for by process:2, process:3")
    );
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
fn with_spilled(object: ObjectId, config: Config) -> (Bench, SpillPlace) {
    let mut bench = Bench::with(config);
    let location = bench.seal(object, 6 * MIB, &[]);
    let wanted = Event::ExtentWanted { from: B, request: 1, bytes: 6 * MIB, slots: 0 };
    let recall = ToClient::ExtentRecall { bytes: 2 * MIB };
    assert_eq!(bench.feed(wanted), [Effect::Send { to: A, message: recall }]);
    let place = SpillPlace { offset: 0, len: 6 * MIB };
    assert_eq!(
        bench.feed(Event::ExtentReturned { from: A, offset: 6 * MIB, len: 2 * MIB }),
        [Effect::Spill { ticket: 1, object, location, place }]
    );
    let recall = ToClient::ExtentRecall { bytes: 6 * MIB };
    assert_eq!(
        bench.feed(Event::Spilled { ticket: 1, result: SpillOutcome::Done }),
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

/// The ticket and slot of the one effect, a restore of what lies there.
fn restore(effects: &[Effect], it: ObjectId, at: SpillPlace) -> (u64, u32) {
    match *effects {
        [Effect::Restore { ticket, object, place, slot }] if (object, place) == (it, at) => {
            (ticket, slot)
        }
        _ => panic!("{effects:?}"),
    }
}

fn forget(range: std::ops::Range<u64>, end: u64) -> Effect {
    Effect::Forget { range, end }
}

fn unreadable(effects: &[Effect], who: ProcessId, what: ObjectId) -> String {
    match effects {
        [Effect::Refuse { to, object, refusal }] if (*to, *object) == (who, what) => {
            refusal.reason.to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_spilled_object_is_read_where_it_is_however_full_the_memory_is() {
    let object = object(A, 1);
    let (mut bench, place) = with_spilled(object, Config::new(8 * MIB));
    assert_eq!(bench.state(object), Some("spilled"));
    assert_eq!(bench.directory.totals().free_bytes, 0);
    let (ticket, slot) = restore(&bench.want(C, object), object, place);
    assert_eq!(bench.state(object), Some("restoring"));
    assert_eq!(bench.want(B, object), []);
    let location = Location { slot, generation: 9, offset: 8 * MIB, len: 6 * MIB };
    let value = Value::Stored(location);
    assert_eq!(
        bench.feed(Event::Restored { ticket, result: Ok(9) }),
        [ready(B, object, value.clone(), &[]), ready(C, object, value.clone(), &[])]
    );
    assert_eq!(bench.state(object), Some("mapped"));
    assert_eq!(bench.want(A, object), [ready(A, object, value, &[])]);
    let totals = bench.directory.totals();
    assert_eq!((totals.spills, totals.restores), (1, 1));
    assert_eq!((totals.spilled_bytes, totals.mapped_bytes), (6 * MIB, 6 * MIB));
    assert_eq!(totals.disk_bytes, 6 * MIB);
    // It goes when nobody reads it any more, and only then does its disk space.
    bench.notice(A, released(object));
    let ticket = ticket + 1;
    assert_eq!(bench.sweep(), [Effect::Free { ticket, object, location }]);
    assert_eq!(bench.feed(Event::Freed { ticket, result: FreeOutcome::Pinned }), []);
    let ticket = ticket + 1;
    let effects = bench.pass(bench.directory.config.pinned_retry);
    assert_eq!(effects, [Effect::Free { ticket, object, location }]);
    let freed = Event::Freed { ticket, result: FreeOutcome::Done };
    assert_eq!(bench.feed(freed), [forget(0..6 * MIB, 0)]);
    assert_eq!(bench.directory.totals().disk_bytes, 0);
}

#[test]
fn who_only_asks_where_it_is_does_not_bring_it_back_from_disk() {
    let object = object(A, 1);
    let (mut bench, _) = with_spilled(object, Config::new(8 * MIB));
    let here = Value::Stored(Location::elsewhere(bench.directory.node, 6 * MIB));
    assert_eq!(bench.want_word(C, object), [ready(C, object, here, &[])]);
    assert_eq!(bench.state(object), Some("spilled"));
}

#[test]
fn what_cannot_be_read_back_is_refused_to_who_waits_and_may_be_tried_again() {
    let object = object(A, 1);
    let (mut bench, place) = with_spilled(object, Config::new(8 * MIB));
    let (ticket, _) = restore(&bench.want(C, object), object, place);
    let failed = Event::Restored { ticket, result: Err("input/output error".to_string()) };
    let text = unreadable(&bench.feed(failed), C, object);
    assert!(text.contains("input/output error"), "{text}");
    let (ticket, slot) = restore(&bench.want(C, object), object, place);
    let location = Location { slot, generation: 3, offset: 8 * MIB, len: 6 * MIB };
    let effects = bench.feed(Event::Restored { ticket, result: Ok(3) });
    assert_eq!(effects, [ready(C, object, Value::Stored(location), &[])]);
}

#[test]
fn objects_on_disk_that_nobody_reads_give_their_slots_to_others() {
    // A, B and C have four slots each, A's first object gave one back to A.
    let config = Config { slots: 13, ..Config::new(8 * MIB) };
    let [first, second] = [1, 2].map(|seq| object(A, seq));
    let (mut bench, place) = with_spilled(first, config);
    let (ticket, slot) = restore(&bench.want(C, first), first, place);
    assert_eq!(slot, 12);
    let location = Location { slot, generation: 1, offset: 8 * MIB, len: 6 * MIB };
    bench.feed(Event::Restored { ticket, result: Ok(1) });
    // B's object finds no room and goes to disk: it needs a slot.
    let wanted = Event::ExtentWanted { from: A, request: 2, bytes: 9 * MIB, slots: 0 };
    let ticket = ticket + 1;
    assert_eq!(bench.feed(wanted), [Effect::Free { ticket, object: first, location }]);
    assert_eq!(bench.state(first), Some("closing"));
    // It is being read: it keeps its slot, and is tried again.
    let waits = bench.feed(Event::Freed { ticket, result: FreeOutcome::Pinned });
    assert_eq!((waits, bench.state(first)), (vec![], Some("mapped")));
    let ticket = ticket + 1;
    let effects = bench.pass(bench.directory.config.pinned_retry);
    assert_eq!(effects, [Effect::Free { ticket, object: first, location }]);
    let effects = bench.feed(Event::Freed { ticket, result: FreeOutcome::Done });
    let room = SpillPlace { offset: 6 * MIB, len: 9 * MIB };
    assert_eq!(effects, [Effect::Reserve { ticket: ticket + 1, place: room }]);
    assert_eq!(bench.state(first), Some("spilled"));
    let effects = bench.feed(Event::Reserved { ticket: ticket + 1, result: Ok(()) });
    let (offset, len) = (14 * MIB, 9 * MIB);
    let message = ToClient::FileGranted { request: 2, offset, len, slot: 12 };
    assert_eq!(effects, [Effect::Send { to: A, message }]);
    let location = Location { slot: 12, generation: 2, offset, len: len - 5 };
    assert_eq!(bench.notice(A, sealed(second, location, &[], A)), []);
    // Now the first one needs a slot, and gets it from the second.
    let ticket = ticket + 2;
    let effects = bench.want(C, first);
    assert_eq!(effects, [Effect::Free { ticket, object: second, location }]);
    assert!(bench.directory.explain(first).to_string().contains("waits for an object slot"));
    let effects = bench.feed(Event::Freed { ticket, result: FreeOutcome::Done });
    restore(&effects, first, place);
    assert_eq!(bench.directory.listing().find(|row| row.object == second).unwrap().len, len - 5);
}

#[test]
fn what_goes_while_it_is_restored_or_spilled_leaves_nothing_behind() {
    let object = object(A, 1);
    let (mut bench, place) = with_spilled(object, Config::new(8 * MIB));
    let (ticket, slot) = restore(&bench.want(C, object), object, place);
    bench.feed(Event::ProcessGone { process: C, obituary: String::new() });
    bench.notice(A, released(object));
    assert_eq!(bench.sweep(), []);
    let location = Location { slot, generation: 4, offset: 8 * MIB, len: 6 * MIB };
    let effects = bench.feed(Event::Restored { ticket, result: Ok(4) });
    assert_eq!(effects, [Effect::Free { ticket: ticket + 1, object, location }]);
    let freed = Event::Freed { ticket: ticket + 1, result: FreeOutcome::Done };
    assert_eq!(bench.feed(freed), [forget(0..6 * MIB, 0)]);

    let (mut bench, _) = with_spilled(object, Config::new(8 * MIB));
    bench.notice(A, released(object));
    assert_eq!(bench.sweep(), [forget(0..6 * MIB, 0)]);
}
