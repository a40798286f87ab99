//! Extents, pressure and denial.

use hoplo_wire::{Failure, FailureKind};

use super::*;

fn granted(effects: &[Effect]) -> Option<(ProcessId, u64, u64)> {
    effects.iter().find_map(|effect| match effect {
        Effect::Send { to, message: ToClient::ExtentGranted { offset, len, .. } } => {
            Some((*to, *offset, *len))
        }
        _ => None,
    })
}

fn denial(effects: &[Effect]) -> Option<(ProcessId, &Failure)> {
    effects.iter().find_map(|effect| match effect {
        Effect::Send { to, message: ToClient::ExtentDenied { failure, .. } } => {
            Some((*to, failure))
        }
        _ => None,
    })
}

/// Denied for want of room in memory.
fn denied(effects: &[Effect]) -> Option<(ProcessId, String)> {
    let (to, failure) = denial(effects)?;
    assert_eq!(failure.kind, FailureKind::StoreFull);
    Some((to, failure.text()))
}

fn wanted(from: ProcessId, bytes: u64) -> Event {
    Event::ExtentWanted { from, request: 7, bytes, slots: 0 }
}

#[test]
fn more_than_the_whole_store_is_denied_at_once() {
    let mut bench = Bench::new();
    for bytes in [64 * MIB + 1, u64::MAX] {
        let effects = bench.feed(wanted(B, bytes));
        let (to, reason) = denied(&effects).unwrap();
        assert_eq!(to, B);
        assert!(reason.contains("the whole object store has 64.0 MiB"), "{reason}");
        assert!(reason.contains("object_store_memory"), "{reason}");
    }
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
            Effect::Spill { attempt: 1, object: objects[1], location: places[1] },
            Effect::Spill { attempt: 2, object: objects[2], location: places[2] },
        ]
    );
}

#[test]
fn what_is_being_read_is_passed_over_and_when_all_is_the_reason_says_who_holds_what() {
    let mut bench = Bench::with(Config::new(8 * MIB));
    let [first, second] = [1, 2].map(|seq| object(A, seq));
    bench.seal(first, 4 * MIB, &[]);
    let place = bench.seal(second, 4 * MIB, &[]);
    bench.notice(A, hold(second, C));
    bench.feed(wanted(B, MIB));
    assert_eq!(
        bench.feed(Event::Spilled { attempt: 1, result: SpillOutcome::Pinned }),
        [Effect::Spill { attempt: 2, object: second, location: place }]
    );
    // Read meanwhile: it is answered as soon as it is clear that it stays.
    assert_eq!(bench.want(C, second), []);
    assert_eq!(
        bench.feed(Event::Spilled { attempt: 2, result: SpillOutcome::Pinned }),
        [ready(C, second, Value::Stored(place), &[])]
    );
    let mut reason = None;
    let mut effects = VecDeque::new();
    while reason.is_none() {
        match effects.pop_front() {
            Some(Effect::Spill { attempt, .. }) => {
                let result = SpillOutcome::Pinned;
                effects.extend(bench.feed(Event::Spilled { attempt, result }));
            }
            Some(effect) => reason = denied(&[effect]).map(|(_, reason)| reason.to_string()),
            None => {
                let until = bench.directory.next_deadline().expect("somebody waits");
                effects.extend(bench.pass(until.since(bench.now)));
            }
        }
        assert!(bench.now < Instant::ZERO + Duration::from_secs(3), "denied in bounded time");
    }
    let reason = reason.unwrap();
    assert!(
        reason.starts_with("the object store is full: 1.0 MiB wanted, 0 bytes of 8.0 MiB free")
    );
    assert!(reason.contains("process:1 holds 2 objects (8.0 MiB)"), "{reason}");
    assert!(reason.contains("process:3 holds 1 objects (4.0 MiB)"), "{reason}");
    assert!(reason.contains("raise object_store_memory"), "{reason}");
}

#[test]
fn a_full_disk_is_told_to_the_one_who_asked_and_nothing_is_lost() {
    let mut bench = Bench::with(Config::new(8 * MIB));
    let object = object(A, 1);
    let place = bench.seal(object, 8 * MIB, &[]);
    bench.feed(wanted(B, MIB));
    let result = SpillOutcome::Failed("no space left on /tmp".to_string());
    let effects = bench.feed(Event::Spilled { attempt: 1, result });
    let (to, failure) = denial(&effects).unwrap();
    assert_eq!((to, failure.kind), (B, FailureKind::OutOfDisk));
    let reason = failure.text();
    assert!(reason.contains("no space left on /tmp"), "{reason}");
    assert_eq!(bench.want(C, object), [ready(C, object, Value::Stored(place), &[])]);
}

#[test]
fn without_a_disk_requests_wait_for_what_comes_free_and_no_longer() {
    let mut bench = Bench::with(Config { spill: false, ..Config::new(8 * MIB) });
    let object = object(A, 1);
    let location = bench.seal(object, 8 * MIB, &[]);
    assert_eq!(bench.feed(wanted(B, MIB)), []);
    assert_eq!(bench.feed(wanted(C, MIB)), []);
    bench.pass(Duration::from_millis(1900));
    bench.notice(A, released(object));
    bench.sweep();
    let effects = bench.feed(Event::Freed { attempt: 1, result: FreeOutcome::Done });
    let recall = ToClient::ExtentRecall { bytes: 8 * MIB };
    assert_eq!(effects, [reclaimed(A, object, location), Effect::Send { to: A, message: recall }]);
    // A gives too little for the second one, which is denied when its patience has ended.
    let effects = bench.feed(Event::ExtentReturned { from: A, offset: 0, len: MIB });
    assert_eq!(granted(&effects), Some((B, 0, MIB)));
    let mut refused = None;
    while refused.is_none() {
        let until = bench.directory.next_deadline().expect("somebody waits");
        refused =
            denied(&bench.pass(until.since(bench.now))).map(|(to, why)| (to, why.to_string()));
    }
    let (to, reason) = refused.unwrap();
    assert_eq!(to, C);
    assert!(reason.contains("spilling is off"), "{reason}");
    assert!(bench.now >= Instant::ZERO + Duration::from_millis(3900));
}

#[test]
fn patience_starts_anew_with_everything_that_comes_free() {
    let mut bench = Bench::with(Config { spill: false, ..Config::new(8 * MIB) });
    bench.seal(object(A, 1), 4 * MIB, &[]);
    bench.seal(object(A, 2), 4 * MIB, &[]);
    bench.feed(wanted(B, 8 * MIB));
    bench.pass(Duration::from_millis(1900));
    bench.notice(A, Notice::Freed { object: object(A, 1) });
    bench.feed(Event::ExtentReturned { from: A, offset: 0, len: 4 * MIB });
    assert_eq!(bench.pass(Duration::from_millis(1900)), []);
    assert!(denied(&bench.pass(Duration::from_millis(200))).is_some());
}

#[test]
fn requests_of_the_dead_are_forgotten_and_too_many_of_one_are_a_violation() {
    let mut bench = Bench::with(Config { spill: false, ..Config::new(8 * MIB) });
    bench.seal(object(A, 1), 8 * MIB, &[]);
    for _ in 0..config::REQUESTS_PER_PROCESS_MAX {
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
