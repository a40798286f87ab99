//! Objects whose last copy is gone: their owners make them again.

use hoplo_wire::FailureKind;
use hoplo_wire::peer::FarValue;

use super::far::*;
use super::*;

/// It was made at `THERE`, and `B` holds it.
fn made_there() -> (Bench, ObjectId) {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.notice(B, hold(object, B));
    bench.feed(far_sealed(THERE, object, &[]));
    (bench, object)
}

#[test]
fn with_the_only_copy_an_object_is_lost_and_its_owner_makes_it_again() {
    let (mut bench, object) = made_there();
    assert_eq!(bench.want(B, object), [pull(object, 100, &[THERE])]);
    bench.feed(Event::PullFailed { object, why: "slow".to_string(), lost: false });
    bench.feed(Event::FarWanted { node: YONDER, object });
    bench.feed(gone(THERE));
    let effects = bench.feed(Event::PullFailed { object, why: "dead".to_string(), lost: false });
    assert_remade(&effects, &[object], "no copy of it is left");
    let effects = bench.feed(far_sealed(YONDER, object, &[]));
    assert!(matches!(&effects[..], [Effect::Pull { .. }]), "who waits gets it: {effects:?}");
}

#[test]
fn an_owner_hears_at_once_of_all_that_was_lost_with_a_node_and_which_node_it_was() {
    let (mut bench, object) = made_there();
    let (other, elsewhere) = (home(2), home(3));
    for object in [other, elsewhere] {
        bench.notice(B, hold(object, B));
    }
    bench.feed(far_sealed(THERE, other, &[]));
    bench.feed(far_sealed(YONDER, elsewhere, &[]));
    let effects = bench.feed(gone(THERE));
    assert_remade(&effects, &[object, other], "died: it was silent");
    let [Effect::Send { message: ToClient::Remake { node, .. }, .. }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(*node, Some(THERE));
}

#[test]
fn what_is_made_again_and_lost_again_is_told_again() {
    let (mut bench, object) = made_there();
    assert_remade(&bench.feed(gone(THERE)), &[object], "died");
    bench.feed(far_sealed(YONDER, object, &[]));
    assert_remade(&bench.feed(gone(YONDER)), &[object], "died");
    bench.notice(A, fulfilled(object, &[]));
    assert_eq!(bench.want(B, object), [ready(B, object, inline(), &[])]);
}

#[test]
fn an_owner_that_cannot_make_it_again_says_so_and_the_object_is_lost() {
    let (mut bench, object) = made_there();
    bench.feed(gone(THERE));
    assert_eq!(bench.want(B, object), [delayed(B, object)]);
    let failure = hoplo_wire::Failure::new(FailureKind::ObjectLost, "max_retries=0");
    let value = Value::Failed(failure);
    let effects = bench.notice(A, Notice::Fulfilled { object, value, contains: vec![] });
    assert_failure(&effects, B, FailureKind::ObjectLost, "max_retries=0");
}

#[test]
fn without_its_owner_nobody_makes_it_again() {
    let (mut bench, object) = made_there();
    bench.feed(Event::ProcessGone { process: A, obituary: "killed".to_string() });
    assert_eq!(bench.feed(gone(THERE)), []);
    assert_failure(&bench.want(B, object), B, FailureKind::ObjectLost, "died: it was silent");
}

#[test]
fn an_owner_that_dies_while_it_makes_it_again_leaves_no_value() {
    let (mut bench, object) = made_there();
    bench.feed(gone(THERE));
    bench.want(B, object);
    bench.feed(Event::ProcessGone { process: A, obituary: "killed".to_string() });
    assert_failure(&bench.sweep_all(), B, FailureKind::ObjectLost, "its owner, which");
}

#[test]
fn what_nobody_uses_is_not_made_again_when_it_is_lost() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.feed(far_sealed(THERE, object, &[]));
    assert_eq!(bench.feed(gone(THERE)), []);
    assert_eq!(bench.sweep_all(), [over(&[object])]);
    assert_eq!(bench.state(object), None);
}

/// Found by a seed: B's use of it began and ended while a sweep was under way that was to decide. The sweep decided nothing.
#[test]
fn what_is_lost_and_used_for_a_moment_is_decided_by_the_next_sweep() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.feed(far_sealed(THERE, object, &[]));
    bench.feed(gone(THERE));
    bench.sweep();
    bench.notice(B, hold(object, B));
    bench.notice(B, Notice::Released { object, tokens: 1 });
    assert_eq!(bench.sweep(), []);
    assert_eq!(bench.sweep(), [over(&[object])]);
    assert_eq!(bench.state(object), None);
}

#[test]
fn what_was_lost_before_a_word_of_its_use_was_read_is_made_again() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.feed(far_sealed(THERE, object, &[]));
    bench.feed(gone(THERE));
    bench.notice(B, hold(object, B));
    assert_remade(&bench.sweep_all(), &[object], "dropped");
}

#[test]
fn a_copy_that_was_fetched_in_time_turns_up_and_nothing_needs_to_be_made_again() {
    let (mut bench, object, inner) = (Bench::new(), home(1), home(2));
    bench.notice(B, hold(object, B));
    bench.feed(far_sealed(THERE, object, &[inner]));
    bench.feed(Event::FarWanted { node: YONDER, object });
    assert_remade(&bench.feed(gone(THERE)), &[object], "died");
    bench.sweep_all();
    assert!(bench.state(inner).is_some(), "what it contains is held meanwhile");
    assert_eq!(bench.feed(copied(YONDER, object)), []);
    assert_eq!(bench.want(B, object), [pull_in(2, object, 100, &[YONDER])]);
    // What was made again is not needed.
    assert_eq!(bench.feed(far_sealed(THERE, object, &[])), [forget(THERE, object)]);
}

#[test]
fn what_a_second_run_makes_at_home_takes_the_place_of_what_lies_elsewhere() {
    let (mut bench, object) = made_there();
    let location = bench.place(100);
    // The owner reads the reply of this run alone, and keeps no call for it.
    assert_eq!(bench.notice(A, sealed(object, location, &[], A)), []);
    assert_eq!(bench.feed(gone(THERE)), []);
    assert_eq!(bench.want(B, object), [ready(B, object, Value::Stored(location), &[])]);
}

#[test]
fn what_a_second_run_makes_at_home_is_what_those_get_who_wait_for_the_first() {
    let (mut bench, haul, late) = Bench::with_haul();
    let (object, inners) = (home(1), [home(2), home(3)]);
    bench.notice(B, hold(object, B));
    bench.feed(far_sealed(THERE, object, &inners[..1]));
    assert_eq!(bench.want(B, object), [pull(object, 100, &[THERE])]);
    let location = bench.place(100);
    let effects = bench.notice(A, sealed(object, location, &inners[1..], A));
    assert_eq!(effects, [ready(B, object, Value::Stored(location), &inners)]);
    bench.sweep_all();
    assert!(inners.iter().all(|inner| bench.state(*inner).is_some()), "either may be read");
    // What was on its way is not needed.
    let effects = bench.notice(haul, sealed(object, late, &[], haul));
    assert_eq!(effects, [Effect::Free { ticket: 1, object, location: late }]);
}

#[test]
fn what_its_owner_has_as_a_plain_value_takes_the_place_of_what_lies_elsewhere() {
    let word = |told: fn(ObjectId, &[ObjectId]) -> Notice| {
        let (mut bench, object) = made_there();
        assert_eq!(bench.notice(A, told(object, &[])), [forget(THERE, object)]);
        assert_eq!(bench.feed(gone(THERE)), []);
        assert_eq!(bench.want(B, object), [ready(B, object, inline(), &[])]);
    };
    word(fulfilled);
    word(shared);
}

#[test]
fn a_failure_takes_no_place_of_a_value() {
    let (mut bench, object) = made_there();
    let value = Value::Failed(hoplo_wire::Failure::new(FailureKind::ObjectLost, "too late"));
    assert_eq!(bench.notice(A, Notice::Fulfilled { object, value, contains: vec![] }), []);
    assert_eq!(bench.want(B, object), [pull(object, 100, &[THERE])]);
}

#[test]
fn of_what_nobody_knows_any_more_its_owner_is_asked_if_it_keeps_lineages() {
    let (mut bench, argument) = (Bench::new(), home(2));
    bench.want_word(B, argument);
    let lost = "every reference to it was dropped";
    assert_failure(&bench.sweep(), B, FailureKind::ObjectLost, lost);
    let (mut bench, _) = made_there();
    bench.want_word(B, argument);
    assert_remade(&bench.sweep_all(), &[argument], lost);
    let effects = bench.feed(far_sealed(YONDER, argument, &[]));
    assert!(matches!(&effects[..], [Effect::Send { to: B, .. }]), "{effects:?}");
}

/// An argument that nobody used when its node died was a failure between two sweeps. In that moment its task ran again, and failed by it.
#[test]
fn what_was_lost_while_nobody_used_it_is_made_again_for_who_uses_it_next() {
    let (mut bench, argument) = made_there();
    bench.feed(far_sealed(THERE, home(2), &[])); // its task's result
    bench.notice(B, released(argument));
    bench.feed(gone(THERE));
    bench.sweep();
    if bench.sweep_is_under_way() {
        bench.sweep();
    }
    bench.notice(B, hold(argument, B));
    bench.want_word(B, argument);
    assert_remade(&bench.sweep_all(), &[argument], "every reference to it was dropped");
}

#[test]
fn a_process_that_makes_again_what_its_node_tried_to_fetch_has_it_for_all() {
    let mut bench = Bench::new();
    let object = foreign(1);
    bench.want(B, object);
    bench.feed(told(object, stored(100, &[YONDER]), &[]));
    let location = bench.place(100);
    let effects = bench.notice(A, sealed(object, location, &[], A));
    let contains = vec![];
    let told = Effect::TellHome { object, bytes: 100, contains, maker: A, holder: A, word: 1 };
    assert_eq!(effects, [told, ready(B, object, Value::Stored(location), &[])]);
    // The pull ends in vain, and takes nothing away from what is here.
    assert_eq!(bench.feed(Event::PullFailed { object, why: "dead".to_string(), lost: false }), []);
}

#[test]
fn a_process_that_makes_again_what_its_node_still_has_offers_that_to_its_home() {
    let mut bench = Bench::new();
    let object = foreign(1);
    bench.use_first(B, object);
    let first = bench.place(100);
    bench.notice(A, sealed(object, first, &[], A));
    bench.feed(Event::Forgotten { object, word: 1 });
    let location = bench.place(100);
    let effects = bench.notice(A, sealed(object, location, &[], A));
    let contains = vec![];
    let told = Effect::TellHome { object, bytes: 100, contains, maker: A, holder: A, word: 2 };
    assert_eq!(effects, [told, Effect::Free { ticket: 1, object, location }]);
}

#[test]
fn who_waits_at_another_node_while_it_is_lost_twice_goes_on_waiting() {
    let mut bench = Bench::new();
    let object = foreign(1);
    bench.want(B, object);
    for (turn, dead) in [(1, YONDER), (2, R1)] {
        let value = FarValue::Stored { bytes: 100, turn, sources: vec![dead] };
        assert!(!bench.feed(told(object, value, &[])).is_empty(), "it is fetched");
        bench.feed(gone(dead));
        let effects =
            bench.feed(Event::PullFailed { object, why: "dead".to_string(), lost: false });
        let asked = effects.contains(&Effect::AskHome { object });
        assert!(asked, "{effects:?}");
    }
}

#[test]
fn who_waits_for_bytes_that_are_made_again_hears_it_whether_it_waited_before_or_begins_then() {
    let (mut bench, object) = made_there();
    bench.want(B, object);
    bench.feed(Event::FarWanted { node: R1, object });
    let effects = bench.feed(gone(THERE));
    assert!(!effects.contains(&delayed(B, object)), "its bytes may still come: {effects:?}");
    let effects = bench.feed(Event::PullFailed { object, why: "dead".to_string(), lost: false });
    assert!(effects.contains(&delayed(B, object)), "{effects:?}");
    let effects = bench.feed(Event::FarWanted { node: YONDER, object });
    assert_eq!(effects, [Effect::TellDelayed { node: YONDER, object }]);
    assert_eq!(bench.want(A, object), [delayed(A, object)]);
    // Who waits for a word has nothing to give back, but may come to need the bytes, and does not ask again then (seed 3577292).
    let need = Need::Word;
    let effects = bench.feed(Event::Wanted { from: C, objects: vec![object], need });
    assert_eq!(effects, [delayed(C, object)]);
}

#[test]
fn a_node_passes_on_that_what_its_processes_wait_for_is_made_again() {
    let mut bench = Bench::new();
    let object = foreign(1);
    bench.want(B, object);
    let need = Need::Word;
    bench.feed(Event::Wanted { from: C, objects: vec![object], need });
    let told_both = [delayed(B, object), delayed(C, object)];
    assert_eq!(bench.feed(Event::Delayed { object }), told_both);
    assert_eq!(bench.want(A, object), [delayed(A, object)]);
    let value = FarValue::Stored { bytes: 100, turn: 1, sources: vec![YONDER] };
    bench.feed(told(object, value, &[]));
    assert!(bench.feed(Event::Delayed { object }).is_empty(), "that is over");
}

#[test]
fn what_was_misplaced_is_asked_of_its_home_anew() {
    let mut bench = Bench::new();
    let object = foreign(1);
    let need = Need::Word;
    let word = || Event::Wanted { from: B, objects: vec![object], need };
    bench.feed(word());
    let value = FarValue::Stored { bytes: 100, turn: 1, sources: vec![YONDER] };
    bench.feed(told(object, value, &[]));
    assert!(!bench.feed(word()).contains(&Effect::AskHome { object }), "it is known here");
    bench.feed(Event::Misplaced { objects: vec![object] });
    assert_eq!(bench.feed(word()), [Effect::AskHome { object }]);
}
