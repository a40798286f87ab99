//! Deaths: what the dead held, owned and wrote.

use super::*;

fn gone(process: ProcessId) -> Event {
    Event::ProcessGone { process, obituary: "pid 7 was killed by SIGKILL (9)".to_string() }
}

fn reset(effects: &[Effect]) -> Vec<u32> {
    let slots = effects.iter().filter_map(|effect| match effect {
        Effect::ResetSlots { slots } => Some(slots.clone()),
        _ => None,
    });
    slots.flatten().collect()
}

#[test]
fn the_dead_hold_nothing_and_their_objects_live_as_long_as_others_hold_them() {
    let mut bench = Bench::new();
    let [kept, lost] = [1, 2].map(|seq| object(A, seq));
    let kept_at = bench.seal(kept, 5000, &[]);
    let lost_at = bench.seal(lost, 5000, &[]);
    bench.notice(A, hold(kept, B));
    let effects = bench.feed(gone(A));
    assert_eq!(reset(&effects), [2, 3], "slots without an object come back");
    // A page that the kept object shares with the lost one stays the node's.
    assert_eq!(bench.directory.totals().granted_bytes, 3 * PAGE);
    assert_eq!(bench.sweep(), [Effect::Free { ticket: 1, object: lost, location: lost_at }]);
    // Nobody is told: the place is the node's.
    assert_eq!(bench.feed(Event::Freed { ticket: 1, result: FreeOutcome::Done }), []);
    assert_eq!(bench.directory.totals().granted_bytes, 2 * PAGE);
    assert_eq!(bench.want(B, kept), [ready(B, kept, Value::Stored(kept_at), &[])]);
    bench.notice(B, released(kept));
    bench.sweep();
    bench.feed(Event::Freed { ticket: 2, result: FreeOutcome::Done });
    assert_eq!(bench.directory.totals().granted_bytes, 0);
}

#[test]
fn tokens_for_the_dead_are_void() {
    let mut bench = Bench::new();
    let object = object(B, 1);
    bench.feed(gone(A));
    bench.notice(B, hold(object, A));
    assert_eq!(bench.state(object), None);
    bench.notice(B, shared(object, &[]));
    bench.notice(B, hold(object, A));
    bench.notice(B, released(object));
    bench.sweep();
    assert_eq!(bench.state(object), None);
}

#[test]
fn a_holder_adopts_everything_that_the_dead_owners_task_makes() {
    let mut bench = Bench::new();
    let argument = object(A, 1);
    let first = object(A, 2);
    let second = first.task.object(1);
    let lineage = lineage(first, &[argument]);
    bench.notice(A, shared(argument, &[]));
    for object in [first, second] {
        bench.notice(A, pending(object, Some(lineage.clone())));
    }
    bench.notice(A, hold(first, C));
    bench.notice(A, hold(second, B));
    bench.want(B, second);
    let adopt = |objects| ToClient::Adopt { lineage: lineage.clone(), objects };
    bench.feed(gone(A));
    let message = adopt(vec![first, second]);
    assert_eq!(bench.sweep(), [Effect::Send { to: C, message }]);
    // Its arguments live on for it.
    assert!(!bench.sweep_is_under_way());
    assert_eq!(bench.state(argument), Some("inline"));
    // The heir dies too; then the next one, who tells the value.
    bench.feed(gone(C));
    let message = adopt(vec![first, second]);
    assert_eq!(bench.sweep(), [Effect::Send { to: B, message }]);
    assert_eq!(bench.notice(B, fulfilled(second, &[])), [ready(B, second, inline(), &[])]);
    assert_eq!(bench.state(first), None, "nobody held it any more");
    bench.sweep();
    assert_eq!(bench.state(argument), None);
}

#[test]
fn an_orphan_that_is_only_contained_waits_for_who_uses_it() {
    let mut bench = Bench::new();
    let [inner, outer] = [object(A, 1), object(B, 1)];
    bench.notice(A, pending(inner, Some(lineage(inner, &[]))));
    bench.notice(B, shared(outer, &[inner]));
    bench.feed(gone(A));
    assert!(bench.directory.explain(inner).to_string().contains("is being read"));
    assert_eq!(bench.sweep(), []);
    assert_eq!(bench.state(inner), Some("orphaned"));
    assert!(bench.directory.explain(inner).to_string().contains("owner is dead"));
    let message = ToClient::Adopt { lineage: lineage(inner, &[]), objects: vec![inner] };
    assert_eq!(bench.want(C, inner), [Effect::Send { to: C, message }]);
    assert_eq!(bench.state(inner), Some("pending"));
}

#[test]
fn a_method_call_dies_with_its_caller_and_says_so() {
    let mut bench = Bench::new();
    let object = object(A, 1);
    bench.notice(A, pending(object, None));
    bench.notice(A, hold(object, B));
    bench.want(B, object);
    bench.feed(gone(A));
    let effects = bench.sweep();
    let failure = effects.iter().find_map(|effect| match effect {
        Effect::Send { to: B, message: ToClient::Ready { value: Value::Failed(it), .. } } => {
            Some(it)
        }
        _ => None,
    });
    let failure = failure.expect("B is told");
    assert_eq!(failure.kind, hoplo_wire::FailureKind::OwnerDied);
    assert!(failure.text().contains("killed by SIGKILL"), "{}", failure.text());
}

/// Its owner has read the reply, passed the ref on and gone. The daemon hears of the end first, and of what the
/// worker sealed before it replied in the sweep that follows.
fn is_heard_of_after_its_owners_end(lineage: Option<Lineage>) {
    let mut bench = Bench::new();
    let object = object(B, 1);
    bench.notice(B, pending(object, lineage));
    bench.notice(B, hold(object, C));
    bench.want(C, object);
    bench.feed(gone(B));
    let location = bench.place(64);
    let ready = ready(C, object, Value::Stored(location), &[]);
    assert_eq!(bench.notice(A, sealed(object, location, &[], B)), [ready]);
    assert_eq!(bench.sweep(), []);
    assert_eq!(bench.state(object), Some("stored"));
}

#[test]
fn a_stored_result_was_lost_with_its_owner_because_its_makers_word_was_read_later() {
    is_heard_of_after_its_owners_end(None);
}

#[test]
fn a_finished_task_ran_again_because_its_owners_end_was_heard_first() {
    is_heard_of_after_its_owners_end(Some(lineage(object(B, 1), &[])));
}

#[test]
fn an_orphan_is_decided_by_a_sweep_that_began_after_its_owners_end() {
    let mut bench = Bench::new();
    let [other, mine] = [object(A, 9), object(B, 1)];
    bench.want(C, other);
    assert!(bench.sweep_is_under_way(), "nobody knows it");
    bench.notice(B, pending(mine, None));
    bench.want(C, mine);
    bench.feed(gone(B));
    let told = |effects: Vec<Effect>, object: ObjectId| {
        effects.into_iter().any(|effect| match effect {
            Effect::Send { message: ToClient::Ready { object: told, .. }, .. } => told == object,
            _ => false,
        })
    };
    // Its maker's socket may have been read before the maker wrote.
    assert!(!told(bench.sweep(), mine));
    assert!(told(bench.sweep(), mine));
}

#[test]
fn who_wants_an_orphan_does_not_adopt_it_before_its_makers_word_is_read() {
    let mut bench = Bench::new();
    let [inner, outer] = [object(A, 1), object(B, 1)];
    bench.notice(A, pending(inner, Some(lineage(inner, &[]))));
    bench.notice(B, shared(outer, &[inner]));
    bench.feed(gone(A));
    assert_eq!(bench.want(C, inner), []);
    assert_eq!(bench.notice(B, hold(inner, C)), []);
    let message = ToClient::Adopt { lineage: lineage(inner, &[]), objects: vec![inner] };
    assert_eq!(bench.sweep(), [Effect::Send { to: C, message }]);
}

#[test]
fn a_worker_may_finish_for_a_dead_owner_before_the_heir_does() {
    let mut bench = Bench::new();
    let object = object(B, 1);
    bench.notice(B, pending(object, Some(lineage(object, &[]))));
    bench.notice(B, hold(object, C));
    bench.want(C, object);
    bench.feed(gone(B));
    assert!(matches!(bench.sweep()[..], [Effect::Send { message: ToClient::Adopt { .. }, .. }]));
    let location = bench.place(64);
    let value = Value::Stored(location);
    assert_eq!(bench.notice(A, sealed(object, location, &[], B)), [ready(C, object, value, &[])]);
    assert_eq!(bench.notice(C, fulfilled(object, &[])), []);
    assert_eq!(bench.state(object), Some("stored"));
}

#[test]
fn what_is_being_moved_for_the_dead_comes_to_an_end() {
    let mut bench = Bench::with(Config::new(8 * MIB));
    let [spilled, freed] = [1, 2].map(|seq| object(A, seq));
    let spilled_at = bench.seal(spilled, 5 * MIB, &[]);
    let freed_at = bench.seal(freed, MIB, &[]);
    bench.notice(A, released(freed));
    bench.sweep();
    bench.feed(Event::ExtentWanted { from: B, request: 1, bytes: 5 * MIB, slots: 0 });
    let effects = bench.pass(Duration::from_millis(20));
    let ticket = 2;
    let place = SpillPlace { offset: 0, len: 5 * MIB };
    assert_eq!(effects, [Effect::Spill { ticket, object: spilled, location: spilled_at, place }]);
    bench.feed(gone(A));
    bench.feed(gone(B));
    bench.sweep();
    assert_eq!(
        bench.feed(Event::Spilled { ticket, result: SpillOutcome::Done }),
        [Effect::Forget { range: 0..5 * MIB, end: 0 }]
    );
    assert!(bench.directory.memory.tenant(freed_at.offset).is_some());
    bench.feed(Event::Freed { ticket: 1, result: FreeOutcome::Done });
    assert_eq!(bench.directory.totals().granted_bytes, 0);
}
