//! Who is asked for room that it holds, and how long a request waits for the answer.

use super::*;

fn wanted(from: ProcessId, bytes: u64) -> Event {
    Event::ExtentWanted { from, request: 7, bytes, slots: 0 }
}

fn returned(from: ProcessId, offset: u64, len: u64) -> Event {
    Event::ExtentReturned { from, offset, len }
}

fn answered(from: ProcessId) -> Event {
    Event::ExtentRecalled { from }
}

fn recall(to: ProcessId, bytes: u64) -> Effect {
    Effect::Send { to, message: ToClient::ExtentRecall { bytes } }
}

fn gone(process: ProcessId) -> Event {
    Event::ProcessGone { process, obituary: String::new() }
}

fn spilled(effects: &[Effect]) -> Vec<ObjectId> {
    let object = |effect: &Effect| match effect {
        Effect::Spill { object, .. } => Some(*object),
        _ => None,
    };
    effects.iter().filter_map(object).collect()
}

fn is_granted(effects: &[Effect], process: ProcessId) -> bool {
    let granted = |effect: &Effect| match effect {
        Effect::Send { to, message: ToClient::ExtentGranted { .. } } => *to == process,
        _ => false,
    };
    effects.iter().any(granted)
}

/// A store of 16 MiB. A has 8 MiB and has sealed nothing there: it is writing. B has filled the others with an
/// object.
fn half_written() -> (Bench, ObjectId) {
    let mut bench = Bench::with(Config::new(16 * MIB));
    let granted = bench.extent(B, 1, 8 * MIB);
    assert!(matches!(granted, ToClient::ExtentGranted { .. }), "{granted:?}");
    let full = object(B, 1);
    let location = Location { slot: 4, generation: 1, offset: 8 * MIB, len: 8 * MIB };
    assert_eq!(bench.notice(B, sealed(full, location, &[], B)), []);
    (bench, full)
}

#[test]
fn each_put_into_a_full_store_waited_for_room_that_was_given_already() {
    let mut bench = Bench::with(Config { arena_bytes: 16 * MIB, ..Config::new(4 * MIB) });
    let objects = [1, 2, 3].map(|seq| object(A, seq));
    // As arrays are: a little more than whole pages.
    let len = MIB + 128;
    let places = objects.map(|object| bench.seal(object, len, &[]));
    let tail = (3 * len).next_multiple_of(PAGE);
    assert_eq!(bench.feed(wanted(A, len)), [recall(A, 4 * MIB - tail)]);
    let effects = bench.feed(returned(A, tail, 4 * MIB - tail));
    assert_eq!(spilled(&effects), [objects[0]]);
    assert_eq!(bench.feed(answered(A)), []);
    // It shares its last page with the next one: less comes back than it had.
    let effects = bench.feed(Event::Spilled { ticket: 1, result: SpillOutcome::Done });
    assert_eq!(effects, [reclaimed(A, objects[0], places[0]), recall(A, MIB)]);
    let effects = bench.feed(returned(A, 0, MIB));
    assert!(is_granted(&effects, A), "{effects:?}");
    assert_eq!(bench.feed(answered(A)), []);
    // The next put: A has only parts of pages, and is not asked for them.
    bench.at = tail;
    bench.seal(object(A, 4), len, &[]);
    let effects = bench.feed(wanted(A, len));
    assert!(matches!(effects[..], [Effect::Spill { .. }]), "{effects:?}");
    assert_eq!(spilled(&effects), [objects[1]]);
}

#[test]
fn a_request_waited_for_those_who_had_answered_that_they_have_nothing() {
    let (mut bench, full) = half_written();
    assert_eq!(bench.feed(wanted(C, MIB)), [recall(A, MIB)]);
    assert_eq!(spilled(&bench.feed(answered(A))), [full]);
    assert_eq!(bench.now, Instant::ZERO);
}

#[test]
fn a_request_goes_on_only_when_all_that_were_asked_have_answered() {
    let mut bench = Bench::with(Config::new(24 * MIB));
    let full = object(A, 1);
    bench.seal(full, 8 * MIB, &[]);
    bench.extent(B, 1, 8 * MIB);
    bench.extent(C, 1, 8 * MIB);
    assert_eq!(bench.feed(wanted(A, 12 * MIB)), [recall(C, 8 * MIB), recall(B, 4 * MIB)]);
    assert_eq!(bench.feed(answered(C)), []);
    assert_eq!(bench.feed(returned(B, 8 * MIB, 2 * MIB)), []);
    assert_eq!(
        bench.directory.next_deadline(),
        Some(bench.now + bench.directory.config.recall_grace)
    );
    // 8 of A, and 2 of B: 12 are not to be had.
    let effects = bench.feed(answered(B));
    assert!(matches!(effects[..], [Effect::Reserve { .. }]), "{effects:?}");
}

#[test]
fn a_request_waited_for_the_answer_of_the_dead() {
    let (mut bench, full) = half_written();
    assert_eq!(bench.feed(wanted(C, 12 * MIB)), [recall(A, 8 * MIB)]);
    assert_eq!(spilled(&bench.feed(gone(A))), [full]);
}

#[test]
fn a_process_that_is_stopped_delayed_each_request() {
    let (mut bench, full) = half_written();
    assert_eq!(bench.feed(wanted(C, MIB)), [recall(A, MIB)]);
    let grace = bench.directory.config.recall_grace;
    assert_eq!(bench.directory.next_deadline(), Some(bench.now + grace));
    assert_eq!(bench.pass(grace - Duration::from_millis(1)), []);
    assert_eq!(spilled(&bench.pass(Duration::from_millis(1))), [full]);
    bench.feed(Event::Spilled { ticket: 1, result: SpillOutcome::Done });
    let effects = bench.feed(returned(B, 8 * MIB, 8 * MIB));
    assert!(is_granted(&effects, C), "{effects:?}");
    bench.feed(answered(B));
    let location = Location { slot: 8, generation: 1, offset: 8 * MIB, len: 8 * MIB };
    let next = object(C, 1);
    assert_eq!(bench.notice(C, sealed(next, location, &[], C)), []);
    // It owes an answer: it is neither asked nor waited for.
    assert_eq!(spilled(&bench.feed(wanted(B, MIB))), [next]);
    // It goes on, and gives what it was asked for. Then it is asked again.
    let effects = bench.feed(returned(A, 0, MIB));
    assert!(is_granted(&effects, B), "{effects:?}");
    bench.feed(answered(A));
    assert!(bench.feed(wanted(B, 9 * MIB)).contains(&recall(A, 7 * MIB)));
}

#[test]
fn who_had_just_said_that_it_has_nothing_was_asked_again() {
    let (mut bench, full) = half_written();
    assert_eq!(bench.feed(wanted(C, MIB)), [recall(A, MIB)]);
    assert_eq!(spilled(&bench.feed(answered(A))), [full]);
    bench.feed(Event::Spilled { ticket: 1, result: SpillOutcome::Pinned });
    // Everything is being written or read: C has room in the file. Nobody is asked for the next one's sake.
    let effects = bench.feed(wanted(C, MIB));
    assert!(matches!(effects[..], [Effect::Reserve { .. }]), "{effects:?}");
    // A sealed something and took it back: that may be had.
    let own = object(A, 1);
    bench.seal(own, MIB, &[]);
    bench.notice(A, Notice::Freed { object: own });
    assert_eq!(bench.feed(wanted(C, 2 * MIB)), [recall(A, MIB)]);
    let effects = bench.feed(answered(A));
    assert!(matches!(effects[..], [Effect::Reserve { .. }]), "{effects:?}");
    // After a while it may have given up what it was writing.
    bench.pass(bench.directory.config.recall_again);
    let effects = bench.feed(wanted(C, 2 * MIB));
    assert_eq!(effects, [recall(A, 2 * MIB)]);
}

#[test]
fn who_was_granted_what_it_wanted_was_asked_to_give_it_back() {
    let mut bench = Bench::with(Config::new(24 * MIB));
    bench.seal(object(A, 1), 8 * MIB, &[]);
    bench.extent(B, 1, 8 * MIB);
    assert_eq!(bench.feed(wanted(C, 16 * MIB)), [recall(B, 8 * MIB)]);
    bench.feed(answered(B));
    bench.feed(Event::Spilled { ticket: 1, result: SpillOutcome::Pinned });
    // Of 8 MiB more it wanted 3.
    bench.extent(B, 2, 3 * MIB);
    assert_eq!(bench.feed(wanted(C, 16 * MIB)), [recall(B, 5 * MIB)]);
}

#[test]
fn an_answer_without_a_recall_is_a_violation() {
    let (mut bench, _) = half_written();
    assert_eq!(Bench::violation(&bench.feed(answered(A))).0, A);
    assert_eq!(Bench::violation(&bench.feed(answered(process(9)))).0, process(9));
    bench.feed(wanted(C, MIB));
    bench.feed(answered(A));
    assert_eq!(Bench::violation(&bench.feed(answered(A))).0, A);
}
