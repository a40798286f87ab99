//! Extents, pressure and denial.

use hoplo_base::limits::ROOM_REQUESTS_MAX;
use hoplo_wire::FailureKind;

use super::*;

fn granted(effects: &[Effect]) -> Option<(ProcessId, u64, u64)> {
    effects.iter().find_map(|effect| match effect {
        Effect::Send { to, message: ToClient::ExtentGranted { offset, len, .. } } => {
            Some((*to, *offset, *len))
        }
        _ => None,
    })
}

fn denial(effects: &[Effect]) -> Option<(ProcessId, &Refusal)> {
    effects.iter().find_map(|effect| match effect {
        Effect::Deny { to, refusal, .. } => Some((*to, refusal)),
        _ => None,
    })
}

/// Denied for want of room in memory.
fn denied(effects: &[Effect]) -> Option<(ProcessId, String)> {
    let (to, refusal) = denial(effects)?;
    assert_eq!(refusal.kind, FailureKind::StoreFull);
    Some((to, refusal.reason.to_string()))
}

fn wanted(from: ProcessId, bytes: u64) -> Event {
    Event::ExtentWanted { from, request: 7, bytes, slots: 0 }
}

/// What B is to have in the spill file.
fn reserved(effects: &[Effect]) -> (u64, SpillPlace) {
    match *effects {
        [Effect::Reserve { ticket, place }] => (ticket, place),
        _ => panic!("{effects:?}"),
    }
}

#[test]
fn more_than_any_file_takes_is_denied_at_once() {
    let mut bench = Bench::with(Config::new(64 * MIB));
    let effects = bench.feed(wanted(B, u64::MAX));
    let (to, reason) = denied(&effects).unwrap();
    assert_eq!(to, B);
    assert!(reason.contains("the whole object store has 64.0 MiB"), "{reason}");
    assert!(reason.contains("object_store_memory"), "{reason}");
}

#[test]
fn more_than_the_whole_store_goes_to_the_disk_at_once() {
    let mut bench = Bench::with(Config::new(8 * MIB));
    let kept = object(A, 1);
    bench.seal(kept, MIB, &[]);
    let (ticket, place) = reserved(&bench.feed(wanted(B, 9 * MIB)));
    assert_eq!(place, SpillPlace { offset: 0, len: 9 * MIB });
    assert_eq!(bench.state(kept), Some("stored"));
    let effects = bench.feed(Event::Reserved { ticket, result: Ok(()) });
    let [Effect::Send { to: B, message: ToClient::FileGranted { request: 7, offset, len, slot } }] =
        effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!((offset, len), (8 * MIB, 9 * MIB));
    // Only there, only once, and only with that slot may B seal it.
    let large = object(B, 1);
    let location = Location { slot, generation: 1, offset, len };
    for wrong in [
        Location { len: len + 1, ..location },
        Location { len: 0, ..location },
        Location { offset: offset + PAGE, ..location },
        Location { slot: 0, ..location },
        Location { offset: u64::MAX, ..location },
    ] {
        let effects = bench.notice(B, sealed(large, wrong, &[], B));
        assert_eq!(Bench::violation(&effects).0, B, "{wrong:?}");
    }
    assert_eq!(bench.notice(B, sealed(large, location, &[], B)), []);
    assert_eq!(bench.want(C, large), [ready(C, large, Value::Stored(location), &[])]);
    let again = bench.notice(B, sealed(object(B, 2), location, &[], B));
    assert_eq!(Bench::violation(&again).0, B);
    let freed = bench.notice(B, Notice::Freed { object: large });
    assert_eq!(Bench::violation(&freed).0, B);
}

#[test]
fn room_in_the_file_that_is_not_used_goes_back() {
    let mut bench = Bench::with(Config::new(8 * MIB));
    for (file, ending) in [(0, "returns it"), (0, "dies"), (0, "is dead already")] {
        let (ticket, place) = reserved(&bench.feed(wanted(C, 9 * MIB)));
        assert_eq!(place.offset, file);
        let forgotten = Effect::Forget { range: 0..9 * MIB, end: 0 };
        let gone = Event::ProcessGone { process: C, obituary: String::new() };
        let done = Event::Reserved { ticket, result: Ok(()) };
        if ending == "is dead already" {
            bench.feed(gone);
            assert_eq!(bench.feed(done), [forgotten]);
            continue;
        }
        bench.feed(done);
        if ending == "dies" {
            assert!(bench.feed(gone).contains(&forgotten), "{ending}");
            bench.feed(Event::ProcessJoined { process: C, slots: 0 });
            continue;
        }
        for (from, len) in [(B, 9 * MIB), (C, PAGE)] {
            let wrong = Event::ExtentReturned { from, offset: 8 * MIB, len };
            assert_eq!(Bench::violation(&bench.feed(wrong)).0, from);
        }
        let back = Event::ExtentReturned { from: C, offset: 8 * MIB, len: 9 * MIB };
        assert_eq!(bench.feed(back), [forgotten]);
    }
    assert_eq!(bench.directory.totals().disk_bytes, 0);
}

#[test]
fn an_extent_is_comfortable_if_there_is_room_and_exact_if_not() {
    let mut bench = Bench::with(Config::new(20 * MIB));
    assert_eq!(granted(&bench.feed(wanted(B, 100))), Some((B, 8 * MIB, 8 * MIB)));
    assert_eq!(granted(&bench.feed(wanted(C, MIB + 1))), Some((C, 16 * MIB, MIB + PAGE)));
    let totals = bench.directory.totals();
    assert_eq!(totals.granted_bytes + totals.free_bytes, 20 * MIB);
}

#[test]
fn slots_come_with_or_without_memory_until_there_are_none() {
    let mut bench = Bench::with(Config { slots: 14, ..Config::new(64 * MIB) });
    let only_slots = Event::ExtentWanted { from: B, request: 2, bytes: 0, slots: 8 };
    let message = ToClient::ExtentGranted { request: 2, offset: 0, len: 0, slots: vec![12, 13] };
    assert_eq!(bench.feed(only_slots.clone()), [Effect::Send { to: B, message }]);
    let effects = bench.feed(only_slots.clone());
    assert!(denied(&effects).unwrap().1.contains("all 14 object slots"));
    // A dead process's slots are there again.
    bench.feed(Event::ProcessGone { process: C, obituary: String::new() });
    assert!(granted(&bench.feed(only_slots)).is_some());
}

/// Its program may still read what it has pinned, and write to arrays that it has not put.
#[test]
fn what_a_driver_that_left_has_mapped_is_nobody_elses() {
    let mut bench = Bench::with(Config { slots: 13, ..Config::new(20 * MIB) });
    let put = object(A, 1);
    let location = bench.seal(put, MIB, &[]);
    let idle = bench.directory.totals().free_bytes;
    bench.feed(Event::ProcessLeft { process: A, obituary: String::new() });
    // Its object goes, once nobody reads it; where else it may write does not.
    bench.sweep();
    let pinned = bench.feed(Event::Freed { ticket: 1, result: FreeOutcome::Pinned });
    assert_eq!(pinned, []);
    assert_eq!(bench.directory.totals().free_bytes, idle);
    let effects = bench.feed(wanted(B, 16 * MIB));
    let asks = |it: &Effect| matches!(it, Effect::Send { to, .. } if *to == A);
    assert!(granted(&effects).is_none() && !effects.iter().any(asks), "nobody is there to answer");
    let (ticket, _) = reserved(&effects);
    let slots = Event::ExtentWanted { from: B, request: 2, bytes: 0, slots: 8 };
    assert!(denied(&bench.feed(slots.clone())).is_some(), "all slots are with somebody");
    let effects = bench.feed(Event::Reserved { ticket, result: Err("disk full".to_string()) });
    let reason = denial(&effects).unwrap().1.reason.to_string();
    assert!(
        reason.contains("1 objects without a ref (1.0 MiB) are in arrays of programs"),
        "{reason}"
    );
    assert!(reason.contains(&format!("{A} keeps 7.0 MiB to write in")), "{reason}");
    let first = bench.directory.config.pinned_retry;
    let again = |ticket| Effect::Free { ticket, object: put, location };
    assert_eq!(bench.pass(first), [again(3)]);
    bench.feed(Event::Freed { ticket: 3, result: FreeOutcome::Pinned });
    assert_eq!(bench.pass(first), [], "less often");
    assert_eq!(bench.pass(first), [again(4)]);
    bench.feed(Event::Freed { ticket: 4, result: FreeOutcome::Pinned });
    let effects = bench.feed(Event::Unmapped { process: A });
    assert!(effects.contains(&again(5)), "at once: {effects:?}");
    assert!(effects.iter().any(|it| matches!(it, Effect::ResetSlots { .. })));
    bench.feed(Event::Freed { ticket: 5, result: FreeOutcome::Done });
    assert!(granted(&bench.feed(wanted(C, 16 * MIB))).is_some());
    assert!(granted(&bench.feed(slots)).is_some());
    assert_eq!(bench.feed(Event::Unmapped { process: A }), [], "it is over once");
}

/// Found by a seed. The end of an array that was never put lay in the first page of an object, or the beginning in the last one.
#[test]
fn pages_at_the_edge_of_an_object_stay_with_the_driver_that_left() {
    let mut bench = Bench::new();
    let put = object(A, 1);
    bench.seal(put, MIB + 64, &[]);
    let idle = bench.directory.totals().free_bytes;
    bench.feed(Event::ProcessLeft { process: A, obituary: String::new() });
    bench.sweep();
    let effects = bench.feed(Event::Freed { ticket: 1, result: FreeOutcome::Done });
    assert_eq!(effects, [], "nobody is there to hear of it");
    assert_eq!(bench.directory.totals().free_bytes, idle + MIB);
    bench.feed(Event::Unmapped { process: A });
    assert_eq!(bench.directory.totals().free_bytes, idle + 8 * MIB);
}

/// Found by a seed. A driver frees what nobody else holds by itself, and writes there again, before it says so; and its connection broke.
#[test]
fn what_a_driver_had_freed_itself_when_it_left_is_its_until_it_unmaps() {
    for leaves in [true, false] {
        let mut bench = Bench::new();
        let location = bench.seal(object(A, 1), MIB, &[]);
        let idle = bench.directory.totals().free_bytes;
        let obituary = String::new();
        bench.feed(match leaves {
            true => Event::ProcessLeft { process: A, obituary },
            false => Event::ProcessGone { process: A, obituary },
        });
        bench.sweep();
        let mut effects = bench.feed(Event::Freed { ticket: 1, result: FreeOutcome::Vanished });
        if leaves {
            assert_eq!(effects, [], "it may be writing there");
            assert_eq!(bench.directory.totals().free_bytes, idle);
            effects = bench.feed(Event::Unmapped { process: A });
        }
        let reset = effects
            .iter()
            .any(|it| matches!(it, Effect::ResetSlots { slots } if slots.contains(&location.slot)));
        assert!(reset, "{effects:?}");
        assert_eq!(bench.directory.totals().granted_bytes, 0);
    }
}

#[test]
fn an_extent_is_returned_only_by_its_owner_and_only_where_it_is_empty() {
    let mut bench = Bench::new();
    bench.seal(object(A, 1), 10_000, &[]);
    for (from, offset, len) in [
        (A, 8192, PAGE),
        (A, 0, 8 * MIB),
        (A, 16 * PAGE + 1, PAGE),
        (A, 16 * PAGE, 100),
        (A, 16 * PAGE, 0),
        (A, 8 * MIB, PAGE),
        (A, u64::MAX - PAGE + 1, PAGE),
        (B, 16 * PAGE, PAGE),
    ] {
        let effects = bench.feed(Event::ExtentReturned { from, offset, len });
        assert_eq!(Bench::violation(&effects).0, from, "{offset} {len}");
    }
    let event = Event::ExtentReturned { from: A, offset: 12288, len: 8 * MIB - 12288 };
    assert_eq!(bench.feed(event), []);
    assert_eq!(bench.directory.totals().granted_bytes, 12288);
}

#[test]
fn the_least_recently_used_object_is_spilled_first() {
    let mut bench = Bench::with(Config::new(8 * MIB));
    let objects = [1, 2, 3, 4].map(|seq| object(A, seq));
    let places = objects.map(|object| bench.seal(object, 2 * MIB, &[]));
    bench.want(B, objects[0]);
    // Nobody has idle memory: no time is lost on recalls.
    let effects = bench.feed(wanted(B, 3 * MIB));
    assert_eq!(
        effects,
        [
            Effect::Spill {
                ticket: 1,
                object: objects[1],
                location: places[1],
                place: SpillPlace { offset: 0, len: 2 * MIB },
            },
            Effect::Spill {
                ticket: 2,
                object: objects[2],
                location: places[2],
                place: SpillPlace { offset: 2 * MIB, len: 2 * MIB },
            },
        ]
    );
}

#[test]
fn what_is_being_read_is_passed_over_and_when_all_is_the_request_goes_to_disk() {
    let mut bench = Bench::with(Config::new(8 * MIB));
    let [first, second] = [1, 2].map(|seq| object(A, seq));
    bench.seal(first, 4 * MIB, &[]);
    let location = bench.seal(second, 4 * MIB, &[]);
    bench.feed(wanted(B, MIB));
    let place = SpillPlace { offset: 0, len: 4 * MIB };
    assert_eq!(
        bench.feed(Event::Spilled { ticket: 1, result: SpillOutcome::Pinned }),
        [Effect::Spill { ticket: 2, object: second, location, place }]
    );
    // Read meanwhile: it is answered as soon as it is clear that it stays.
    assert_eq!(bench.want(C, second), []);
    let effects = bench.feed(Event::Spilled { ticket: 2, result: SpillOutcome::Pinned });
    let room = SpillPlace { offset: 0, len: MIB };
    assert_eq!(
        effects,
        [
            ready(C, second, Value::Stored(location), &[]),
            Effect::Reserve { ticket: 3, place: room }
        ]
    );
}

#[test]
fn nothing_is_spilled_for_what_would_not_fit_even_so() {
    let mut bench = Bench::with(Config::new(8 * MIB));
    let [read, unread] = [1, 2].map(|seq| object(A, seq));
    bench.seal(read, 4 * MIB, &[]);
    bench.seal(unread, 4 * MIB, &[]);
    bench.feed(wanted(B, 4 * MIB));
    bench.feed(Event::Spilled { ticket: 1, result: SpillOutcome::Pinned });
    bench.feed(Event::Spilled { ticket: 2, result: SpillOutcome::Done });
    bench.feed(Event::ExtentReturned { from: A, offset: 4 * MIB, len: 4 * MIB });
    assert_eq!((bench.state(read), bench.state(unread)), (Some("stored"), Some("spilled")));
    let third = object(B, 1);
    let slot = 4;
    let location = Location { slot, generation: 1, offset: 4 * MIB, len: 4 * MIB };
    assert_eq!(bench.notice(B, sealed(third, location, &[], B)), []);
    // The first one rests: 4 of 8 MiB could come free.
    reserved(&bench.feed(wanted(C, 5 * MIB)));
    assert_eq!(bench.state(third), Some("stored"));
}

#[test]
fn a_full_disk_is_told_to_the_one_who_asked_with_who_holds_what_and_nothing_is_lost() {
    let mut bench = Bench::with(Config::new(8 * MIB));
    let object = object(A, 1);
    let location = bench.seal(object, 8 * MIB, &[]);
    bench.notice(A, hold(object, C));
    bench.feed(wanted(B, MIB));
    // Eight MiB do not go to disk; one may.
    let result = SpillOutcome::Failed("no space left on /tmp".to_string());
    let effects = bench.feed(Event::Spilled { ticket: 1, result });
    let [forgotten, reserve @ Effect::Reserve { .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(*forgotten, Effect::Forget { range: 0..8 * MIB, end: 0 });
    let (ticket, _) = reserved(std::slice::from_ref(reserve));
    let result = Err("nor now".to_string());
    let effects = bench.feed(Event::Reserved { ticket, result });
    let (to, refusal) = denial(&effects).unwrap();
    assert_eq!((to, refusal.kind), (B, FailureKind::OutOfDisk));
    let reason = refusal.reason.to_string();
    for part in [
        "1.0 MiB are wanted",
        "no space left on /tmp",
        "nor now",
        "process:1 holds 1 objects (8.0 MiB)",
        "process:3 holds 1 objects (8.0 MiB)",
        "free disk space, drop refs, or raise object_store_memory",
    ] {
        assert!(reason.contains(part), "{reason}");
    }
    assert_eq!(bench.want(C, object), [ready(C, object, Value::Stored(location), &[])]);
    assert_eq!(bench.directory.totals().disk_bytes, 0);
}

#[test]
fn a_store_full_of_what_lies_in_other_objects_was_said_to_be_held_by_nobody() {
    let mut bench = Bench::with(Config::new(8 * MIB));
    let (inner, outer) = (object(A, 1), object(A, 2));
    bench.seal(inner, 4 * MIB, &[]);
    bench.seal(outer, 4 * MIB, &[inner]);
    bench.notice(A, released(inner));
    let reason = bench.directory.who_holds().to_string();
    assert!(reason.contains("process:1 holds 1 objects (4.0 MiB)"), "{reason}");
    assert!(reason.contains("1 objects (4.0 MiB) are held by other nodes or objects"), "{reason}");
}

#[test]
fn a_full_disk_was_told_twice_in_one_sentence() {
    let mut bench = Bench::with(Config::new(8 * MIB));
    bench.seal(object(A, 1), 8 * MIB, &[]);
    bench.feed(wanted(B, MIB));
    let full = || "/tmp/objects: no space left".to_string();
    let result = SpillOutcome::Failed(full());
    let effects = bench.feed(Event::Spilled { ticket: 1, result });
    let (ticket, _) = reserved(&effects[1..]);
    let effects = bench.feed(Event::Reserved { ticket, result: Err(full()) });
    let reason = denial(&effects).unwrap().1.reason.to_string();
    assert_eq!(reason.matches("/tmp/objects").count(), 1, "{reason}");
    assert!(reason.contains("and the disk does not take them either; "), "{reason}");
}

#[test]
fn requests_of_the_dead_are_forgotten_and_too_many_of_one_are_a_violation() {
    let mut bench = Bench::with(Config::new(8 * MIB));
    bench.seal(object(A, 1), 8 * MIB, &[]);
    let effects = bench.feed(wanted(B, MIB));
    assert!(matches!(effects[..], [Effect::Spill { .. }]), "{effects:?}");
    for _ in 1..ROOM_REQUESTS_MAX {
        assert_eq!(bench.feed(wanted(B, MIB)), []);
    }
    assert_eq!(Bench::violation(&bench.feed(wanted(B, MIB))).0, B);
    bench.feed(Event::ProcessGone { process: B, obituary: String::new() });
    assert_eq!(bench.directory.totals().requests_waiting, 0);
}

#[test]
fn memory_that_nobody_uses_goes_back_to_the_system() {
    let mut bench = Bench::new();
    bench.feed(Event::ExtentReturned { from: A, offset: 0, len: 8 * MIB });
    let until = bench.directory.next_deadline().unwrap();
    assert_eq!(until, Instant::ZERO + bench.directory.config.warm_idle);
    let punch = Effect::Punch { offset: 0, len: 8 * MIB };
    assert_eq!(bench.pass(until.since(bench.now)), [punch]);
    assert_eq!(bench.directory.next_deadline(), None);
}

#[test]
fn with_more_addresses_than_bytes_warm_and_used_stay_below_the_capacity() {
    let mut bench = Bench::with(Config { arena_bytes: 64 * MIB, ..Config::new(16 * MIB) });
    bench.at = 8 * MIB - PAGE;
    bench.seal(object(A, 1), PAGE, &[]);
    bench.feed(Event::ExtentReturned { from: A, offset: 0, len: 8 * MIB - PAGE });
    // 15 MiB in one piece are only where nobody has been yet: the warm rest goes.
    let effects = bench.feed(wanted(B, 15 * MIB));
    assert_eq!(granted(&effects), Some((B, 8 * MIB, 15 * MIB)));
    let punched: u64 = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Punch { len, .. } => Some(*len),
            _ => None,
        })
        .sum();
    assert_eq!(punched, 8 * MIB - PAGE - (MIB - PAGE));
}
