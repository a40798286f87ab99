//! Tokens, containment and sweeps.

use super::*;

#[test]
fn nothing_goes_before_a_sweep_that_began_after_the_last_word() {
    let mut bench = Bench::new();
    let object = object(A, 1);
    bench.notice(A, shared(object, &[]));
    assert!(!bench.sweep_is_under_way());
    bench.notice(A, released(object));
    assert!(bench.sweep_is_under_way());
    // The sweep finds that B has got it meanwhile, and has let go again: C may have it from B, and
    // C's socket may have been read before C wrote. Another sweep is needed.
    bench.notice(B, hold(object, B));
    bench.notice(B, released(object));
    bench.sweep();
    assert_eq!(bench.state(object), Some("inline"));
    bench.notice(C, hold(object, C));
    bench.sweep();
    assert_eq!(bench.state(object), Some("inline"));
    bench.notice(C, released(object));
    bench.sweep();
    assert_eq!(bench.state(object), None);
    assert!(!bench.sweep_is_under_way());
}

#[test]
fn a_token_that_was_given_back_before_its_giver_was_read_adds_up() {
    let mut bench = Bench::new();
    let object = object(B, 1);
    // B: Shared, Hold for A, reply, Released. A has dropped it at once, and is read first.
    bench.notice(A, released(object));
    assert_eq!(bench.state(object), Some("unknown"));
    bench.notice(B, shared(object, &[]));
    bench.notice(B, hold(object, A));
    bench.notice(B, released(object));
    assert_eq!(bench.sweep(), []);
    assert_eq!(bench.state(object), Some("inline"));
    assert_eq!(bench.sweep(), []);
    assert_eq!(bench.state(object), None);
}

#[test]
fn a_token_on_its_way_outlives_older_ones() {
    let mut bench = Bench::new();
    let object = object(B, 1);
    bench.notice(B, shared(object, &[]));
    bench.notice(B, hold(object, A));
    bench.notice(B, hold(object, A));
    bench.notice(A, released(object));
    bench.notice(B, released(object));
    assert!(!bench.sweep_is_under_way());
    bench.notice(A, released(object));
    bench.sweep();
    assert_eq!(bench.state(object), None);
}

#[test]
fn a_pending_object_that_was_let_go_before_its_seal_is_read_goes_and_comes_again() {
    let mut bench = Bench::new();
    let object = object(B, 1);
    // B shares the result of a task that runs at A, and lets go; nobody else keeps it.
    bench.notice(B, pending(object, None));
    bench.notice(B, released(object));
    bench.sweep();
    assert_eq!(bench.state(object), None);
    // The seal brings B a token with the reply that is on its way, and B gives it back.
    bench.seal_for(B, object, 100);
    assert_eq!(bench.state(object), Some("stored"));
    bench.notice(B, released(object));
    bench.sweep();
    assert_eq!(bench.state(object), None);
}

#[test]
fn giving_back_more_than_one_has_is_a_violation_when_all_was_read() {
    let mut bench = Bench::new();
    let object = object(A, 1);
    bench.notice(A, shared(object, &[]));
    bench.notice(A, Notice::Released { object, tokens: 3 });
    let effects = bench.sweep();
    assert!(Bench::violation(&effects).1.contains("more tokens"));
    assert_eq!(bench.state(object), None);
}

#[test]
fn what_is_contained_lives_as_long_as_what_contains_it() {
    let mut bench = Bench::new();
    let [outer, middle, inner] = [3, 2, 1].map(|seq| object(A, seq));
    for (object, contains) in [(inner, vec![]), (middle, vec![inner, inner]), (outer, vec![middle])]
    {
        bench.notice(A, shared(object, &contains));
    }
    for object in [inner, middle] {
        bench.notice(A, released(object));
    }
    assert!(!bench.sweep_is_under_way());
    bench.notice(A, released(outer));
    // One sweep is enough for the whole chain.
    bench.sweep();
    assert_eq!(bench.directory.listing().count(), 0);
    assert!(!bench.sweep_is_under_way());
}

#[test]
fn what_a_dying_value_contained_stays_if_somebody_spoke_of_it() {
    let mut bench = Bench::new();
    let [outer, inner] = [2, 1].map(|seq| object(A, seq));
    bench.notice(A, shared(inner, &[]));
    bench.notice(A, shared(outer, &[inner]));
    bench.notice(A, released(inner));
    bench.notice(A, released(outer));
    // During the sweep B is heard to have had the inner one and to have let go.
    bench.notice(B, hold(inner, B));
    bench.notice(B, released(inner));
    bench.sweep();
    assert_eq!((bench.state(outer), bench.state(inner)), (None, Some("inline")));
    bench.sweep();
    assert_eq!(bench.state(inner), None);
}

#[test]
fn an_inner_object_may_be_heard_of_before_its_owner() {
    let mut bench = Bench::new();
    let [outer, inner] = [object(A, 1), object(B, 1)];
    bench.seal(outer, 64, &[inner]);
    assert_eq!(bench.state(inner), Some("unknown"));
    bench.notice(B, shared(inner, &[]));
    bench.notice(B, released(inner));
    bench.sweep();
    assert_eq!(bench.state(inner), Some("inline"));
}

#[test]
fn the_node_holds_what_functions_and_actors_need() {
    let mut bench = Bench::new();
    let object = object(A, 1);
    bench.feed(Event::NodeHeld { objects: vec![object, object] });
    bench.notice(A, shared(object, &[]));
    bench.notice(A, released(object));
    bench.feed(Event::NodeReleased { objects: vec![object] });
    assert_eq!(bench.sweep(), []);
    assert_eq!(bench.state(object), Some("inline"));
    assert!(!bench.sweep_is_under_way());
    bench.feed(Event::NodeReleased { objects: vec![object] });
    bench.sweep();
    assert_eq!(bench.state(object), None);
}

#[test]
fn an_actor_without_handles_is_unreachable() {
    let mut bench = Bench::new();
    let actor = hoplo_base::ActorId(object(A, 1).task);
    let holder = object(A, 2);
    bench.notice(A, hold(actor.handle(), A));
    assert_eq!(bench.state(actor.handle()), Some("handle"));
    bench.notice(A, shared(holder, &[actor.handle()]));
    bench.notice(A, released(actor.handle()));
    assert!(!bench.sweep_is_under_way());
    bench.notice(A, released(holder));
    assert_eq!(bench.sweep(), [Effect::ActorUnreachable { actor }]);
}

#[test]
fn what_is_freed_while_it_is_read_is_tried_again() {
    let mut bench = Bench::new();
    let object = object(A, 1);
    let location = bench.seal(object, 64, &[]);
    bench.notice(A, released(object));
    assert_eq!(bench.sweep(), [Effect::Free { ticket: 1, object, location }]);
    assert_eq!(bench.feed(Event::Freed { ticket: 1, result: FreeOutcome::Pinned }), []);
    assert!(bench.directory.explain(object).to_string().contains("nobody reads it"));
    let until = bench.directory.next_deadline().unwrap();
    assert_eq!(bench.pass(until.since(bench.now)), [Effect::Free { ticket: 2, object, location }]);
    // A completion of the old ticket says nothing.
    assert_eq!(bench.feed(Event::Freed { ticket: 1, result: FreeOutcome::Done }), []);
    let done = Event::Freed { ticket: 2, result: FreeOutcome::Done };
    assert_eq!(bench.feed(done), [reclaimed(A, object, location)]);
}

#[test]
fn an_object_tells_its_story() {
    let mut bench = Bench::new();
    let object = object(A, 1);
    bench.seal(object, 3 << 20, &[]);
    let explained = bench.directory.explain(object).to_string();
    assert_eq!(explained, "obj:1-1.0 is ready (3.0 MiB in the store); held by process:1");
    bench.notice(A, released(object));
    bench.sweep();
    assert!(bench.directory.story(object).last().unwrap().ends_with("freed"));
    assert_eq!(bench.directory.totals().stored_objects, 0);
}
