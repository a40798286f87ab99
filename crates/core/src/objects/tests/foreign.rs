//! Objects of other homes.

use hoplo_base::ActorId;
use hoplo_wire::FailureKind;
use hoplo_wire::peer::{FarValue, Known};

use super::far::*;
use super::*;

#[test]
fn who_waits_for_what_its_home_does_not_know_hears_that_it_is_lost() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    assert_eq!(bench.want(B, object), [Effect::Foreign { object }, Effect::AskHome { object }]);
    let lost = bench.feed(Event::Lost { object, why: "nobody knows it".to_string() });
    assert_failure(&lost, B, FailureKind::ObjectLost, "nobody knows it");
    assert_eq!(bench.sweep(), [Effect::Unforeign { object }]);
    assert_eq!(bench.state(object), None);
}

#[test]
fn no_sweep_calls_a_foreign_object_lost_and_its_home_is_asked_once() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.use_first(B, object);
    assert!(!bench.sweep_is_under_way());
    assert_eq!(bench.want(B, object), [Effect::AskHome { object }]);
    assert_eq!(bench.want(C, object), []);
    let value = FarValue::Inline((*b"value").into());
    let inner = foreign(2);
    let answers = bench.feed(told(object, value.clone(), &[inner]));
    let expected = [
        Effect::Foreign { object: inner },
        ready(B, object, inline(), &[inner]),
        ready(C, object, inline(), &[inner]),
    ];
    assert_eq!(answers, expected);
    assert_eq!(bench.feed(told(object, value, &[])), [], "it is known already");
    bench.notice(B, released(object));
    let ends = [Effect::Unforeign { object }, Effect::Unforeign { object: inner }];
    assert_eq!(bench.sweep(), ends);
    assert_eq!(bench.state(object), None);
}

#[test]
fn a_use_that_ends_and_begins_again_before_the_sweep_is_said_once() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.use_first(B, object);
    assert_eq!(bench.notice(B, released(object)), []);
    assert_eq!(bench.notice(C, hold(object, C)), []);
    assert_eq!(bench.sweep(), []);
    assert_eq!(bench.state(object), Some("foreign"));
}

#[test]
fn the_last_handle_of_a_foreign_actor_is_no_end_of_the_actor_here() {
    let mut bench = Bench::new();
    let handle = ActorId(foreign(1).task).handle();
    bench.use_first(B, handle);
    assert_eq!(bench.state(handle), Some("handle"));
    bench.notice(B, released(handle));
    assert_eq!(bench.sweep(), [Effect::Unforeign { object: handle }]);
}

#[test]
fn what_a_worker_makes_for_a_foreign_caller_stays_until_its_home_forgets_it() {
    let (mut bench, object, inner) = (Bench::new(), foreign(1), home(9));
    bench.notice(A, shared(inner, &[]));
    let location = bench.place(100);
    let caller = object.task.owner;
    let effects = bench.notice(A, sealed(object, location, &[inner], caller));
    let contains = vec![inner];
    let told = Effect::TellHome { object, bytes: 100, contains, maker: A, holder: caller, word: 1 };
    assert_eq!(effects, [told]);
    bench.notice(A, released(inner));
    assert!(!bench.sweep_is_under_way(), "it is kept, and supports what is in it");
    // Somebody here uses it, and lets go.
    let used = [Effect::Foreign { object }, ready(B, object, Value::Stored(location), &[inner])];
    assert_eq!(bench.want(B, object), used);
    assert_eq!(bench.sweep(), [Effect::Unforeign { object }]);
    assert_eq!(bench.state(object), Some("stored"));
    assert!(!bench.sweep_is_under_way());
    assert_eq!(bench.feed(Event::Forgotten { object, word: 1 }), []);
    let freed = bench.sweep();
    assert_eq!(freed, [Effect::Free { ticket: 1, object, location }]);
    assert_eq!((bench.state(object), bench.state(inner)), (None, None));
}

#[test]
fn a_copy_that_its_home_forgets_goes_when_nobody_here_uses_it() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.use_first(B, object);
    let location = bench.place(100);
    bench.notice(A, sealed(object, location, &[], object.task.owner));
    bench.feed(Event::Forgotten { object, word: 1 });
    assert!(!bench.sweep_is_under_way());
    bench.notice(B, released(object));
    let ends = [Effect::Unforeign { object }, Effect::Free { ticket: 1, object, location }];
    assert_eq!(bench.sweep(), ends);
}

/// The maker of the first one died before its reply left, so its home needed that no more; and the word of it was on its way here
/// when the task had run again. The only copy went, which the second reply told of.
#[test]
fn a_second_result_of_a_foreign_task_is_the_first_one_told_anew() {
    let (mut bench, object, inner) = (Bench::new(), foreign(1), home(9));
    bench.notice(A, shared(inner, &[]));
    let [first, second] = [bench.place(100), bench.place(100)];
    let caller = object.task.owner;
    bench.notice(A, sealed(object, first, &[inner], caller));
    let effects = bench.notice(A, sealed(object, second, &[], caller));
    let contains = vec![inner];
    let told = Effect::TellHome { object, bytes: 100, contains, maker: A, holder: caller, word: 2 };
    assert_eq!(effects, [told, Effect::Free { ticket: 1, object, location: second }]);
    bench.feed(Event::Forgotten { object, word: 1 });
    assert!(!bench.sweep_is_under_way(), "that was said before the second one was heard of");
    assert_eq!(bench.state(object), Some("stored"));
    bench.feed(Event::Forgotten { object, word: 2 });
    assert_eq!(bench.sweep(), [Effect::Free { ticket: 2, object, location: first }]);
}

/// Its home needs no copy here, and may end it before the reply is there.
#[test]
fn a_second_result_of_which_no_copy_stays_is_held_until_its_reply_has_left() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    let caller = object.task.owner;
    bench.feed(Event::ServesFar { worker: A, caller });
    bench.use_first(B, object);
    bench.want_word(B, object);
    bench.feed(told(object, FarValue::Inline((*b"x").into()), &[]));
    let second = bench.place(100);
    bench.notice(A, sealed(object, second, &[], caller));
    bench.notice(B, released(object));
    assert!(!bench.sweep_is_under_way(), "claimed here, so its home has it");
    bench.feed(Event::FarReplyLeft { worker: A, caller, named: vec![object] });
    assert_eq!(bench.sweep(), [Effect::Unforeign { object }]);
}

#[test]
fn a_copy_that_its_node_told_of_twice_is_forgotten_by_the_last_word() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.notice(A, pending(object, None));
    bench.feed(far_sealed(THERE, object, &[]));
    let again = CopyAt { node: THERE, word: 2 };
    let sealed = Event::FarSealed { copy: again, object, bytes: 100, contains: vec![] };
    assert_eq!(bench.feed(sealed), []);
    bench.notice(A, released(object));
    let forget = Effect::ForgetCopy { object, copy: again };
    assert_eq!(bench.sweep(), [forget, over(&[object])]);
}

#[test]
fn the_value_of_a_foreign_object_is_not_told_by_a_process_here() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    for notice in [shared(object, &[]), fulfilled(object, &[])] {
        let effects = bench.notice(B, notice);
        let (_, what) = Bench::violation(&effects);
        assert!(what.contains("at home at another node"), "{what}");
    }
}

#[test]
fn a_copy_is_pulled_once_however_many_wait_and_its_home_is_told() {
    let (mut bench, haul, location) = Bench::with_haul();
    let object = foreign(1);
    bench.want(B, object);
    bench.want(C, object);
    let pulls = bench.feed(told(object, stored(100, &[THERE, HERE, YONDER]), &[]));
    assert_eq!(pulls, [pull(object, 100, &[THERE, YONDER])]);
    assert_eq!(bench.want(A, object), []);
    let effects = bench.notice(haul, sealed(object, location, &[], haul));
    let answer = |to| ready(to, object, Value::Stored(location), &[]);
    assert_eq!(
        effects,
        [Effect::TellCopied { object, word: 1, turn: 1 }, answer(A), answer(B), answer(C)]
    );
    assert_eq!(bench.sweep(), [Effect::Unforeign { object }]);
    assert_eq!(bench.state(object), Some("stored"), "kept");
    bench.feed(Event::Forgotten { object, word: 1 });
    assert_eq!(bench.sweep(), [Effect::Free { ticket: 1, object, location }]);
    let result = FreeOutcome::Done;
    let back = bench.feed(Event::Freed { ticket: 1, result });
    assert_eq!(back, [reclaimed(haul, object, location)]);
}

#[test]
fn a_value_is_not_fetched_before_somebody_waits_for_it() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.want(B, object);
    bench.feed(Event::ProcessGone { process: B, obituary: String::new() });
    assert_eq!(bench.notice(C, hold(object, C)), []);
    let effects = bench.feed(told(object, stored(100, &[THERE]), &[]));
    assert_eq!(effects, [Effect::TellNotCopied { object }], "others are not sent here");
    assert_eq!(bench.state(object), Some("elsewhere"));
    let at = format!("is ready (100 B in the store of node {})", THERE.hex());
    let explained = bench.directory.explain(object).to_string();
    assert!(explained.contains(&at), "as nodes are called everywhere: {explained}");
    assert_eq!(bench.want(C, object), [pull(object, 100, &[THERE])]);
}

#[test]
fn what_was_pulled_and_is_not_wanted_any_more_is_freed() {
    let (mut bench, haul, location) = Bench::with_haul();
    let object = foreign(1);
    bench.want(B, object);
    bench.feed(told(object, stored(100, &[THERE]), &[]));
    bench.feed(Event::ProcessGone { process: B, obituary: String::new() });
    assert_eq!(bench.sweep(), [Effect::Unforeign { object }]);
    assert_eq!(bench.state(object), None);
    let effects = bench.notice(haul, sealed(object, location, &[], haul));
    let free = Effect::Free { ticket: 1, object, location };
    assert_eq!(effects, [free, Effect::TellNotCopied { object }]);
    assert_eq!(bench.state(object), None);
}

#[test]
fn a_node_that_asked_and_then_made_it_was_sent_to_fetch_it() {
    let (mut bench, haul, location) = Bench::with_haul();
    let object = home(1);
    bench.notice(A, pending(object, None));
    assert_eq!(bench.feed(Event::FarWanted { node: THERE, object }), []);
    assert_eq!(bench.feed(far_sealed(THERE, object, &[])), []);
    assert_eq!(bench.want(B, object), [pull(object, 100, &[THERE])]);
    let effects = bench.notice(haul, sealed(object, location, &[], haul));
    assert_eq!(effects, [ready(B, object, Value::Stored(location), &[])]);
}

#[test]
fn when_all_copies_fail_the_home_is_asked_again_once_and_then_who_waits_is_told() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    let failed = || Event::PullFailed { object, why: "not there".to_string(), lost: false };
    bench.want(B, object);
    bench.feed(told(object, stored(100, &[YONDER]), &[]));
    assert_eq!(bench.feed(failed()), [Effect::AskHome { object }]);
    let again = bench.feed(told(object, stored(100, &[THERE]), &[]));
    assert_eq!(again, [pull(object, 100, &[THERE])]);
    let effects = bench.feed(failed());
    assert_eq!(effects[0], Effect::TellNotCopied { object });
    assert_refused(&effects[1..], B, FailureKind::ObjectLost);
    // It is not its value: who asks again is answered anew.
    assert_eq!(bench.want(B, object), [Effect::AskHome { object }]);
}

/// Its home hears of such deaths, too: it names another copy, or has it made again.
#[test]
fn a_copy_that_went_with_its_node_is_no_try_in_vain() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    let failed = |lost| Event::PullFailed { object, why: "the link was lost".to_string(), lost };
    bench.want(B, object);
    bench.feed(told(object, stored(100, &[YONDER]), &[]));
    for lost in [true, false, true, true] {
        assert_eq!(bench.feed(failed(lost)), [Effect::AskHome { object }]);
        let again = bench.feed(told(object, stored(100, &[THERE]), &[]));
        assert_eq!(again, [pull(object, 100, &[THERE])]);
    }
    assert_refused(&bench.feed(failed(false))[1..], B, FailureKind::ObjectLost);
}

#[test]
fn without_room_who_waits_is_refused_and_may_ask_again() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.want(B, object);
    bench.feed(told(object, stored(100, &[THERE]), &[]));
    let failure = hoplo_wire::Failure::new(FailureKind::OutOfDisk, "the disk is full");
    let denied = bench.feed(Event::PullDenied { object, failure });
    assert_eq!(denied[0], Effect::TellNotCopied { object });
    assert_refused(&denied[1..], B, FailureKind::OutOfDisk);
    assert_eq!(bench.want(B, object), [pull(object, 100, &[THERE])]);
}

#[test]
fn a_value_of_no_bytes_needs_no_pull() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.want(B, object);
    let effects = bench.feed(told(object, stored(0, &[THERE]), &[]));
    assert_eq!(effects, [ready(B, object, Value::Inline((*b"").into()), &[])]);
}

#[test]
fn a_home_that_dies_without_an_heir_takes_along_what_has_no_value_here() {
    let (mut bench, haul, location) = Bench::with_haul();
    let [asked, told_it, under_way, read, kept] = [1, 2, 3, 4, 5].map(foreign);
    bench.want(B, asked);
    bench.use_first(B, told_it);
    bench.feed(told(told_it, stored(100, &[YONDER]), &[]));
    bench.want(C, under_way);
    bench.feed(told(under_way, stored(100, &[YONDER]), &[]));
    bench.use_first(B, read);
    bench.feed(told(read, FarValue::Inline((*b"value").into()), &[]));
    let at = bench.place(100);
    bench.notice(A, sealed(kept, at, &[], kept.task.owner));
    let effects = bench.feed(gone(THERE));
    assert_failure(&effects, B, FailureKind::ObjectLost, "its home node");
    assert_eq!(bench.state(told_it), Some("failed"));
    assert_eq!(bench.want(B, read), [ready(B, read, inline(), &[])]);
    let effects = bench.notice(haul, sealed(under_way, location, &[], haul));
    let answer = ready(C, under_way, Value::Stored(location), &[]);
    let known = Known::Copy { bytes: 100, word: 2, contains: vec![], copies: 0 };
    assert_eq!(effects, [Effect::TellKnown { object: under_way, known }, answer]);
    assert_eq!(bench.feed(Event::Lost { object: under_way, why: String::new() }), []);
    let freed = bench.sweep_all();
    assert_eq!((bench.state(kept), bench.state(under_way)), (None, None), "{freed:?}");
}

#[test]
fn copies_of_a_dead_node_are_not_asked_for_bytes() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.use_first(B, object);
    bench.want(C, object);
    bench.feed(Event::ProcessGone { process: C, obituary: String::new() });
    bench.feed(told(object, stored(100, &[THERE, YONDER]), &[]));
    bench.feed(gone(YONDER));
    assert_eq!(bench.want(B, object), [pull(object, 100, &[THERE])]);
}

#[test]
fn a_dead_node_had_the_only_copy_that_is_known_here() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.use_first(B, object);
    bench.feed(told(object, stored(100, &[YONDER]), &[]));
    bench.feed(gone(YONDER));
    assert_eq!(bench.want(B, object), [Effect::AskHome { object }]);
}
