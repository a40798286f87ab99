//! Objects that are to be on several nodes: at the one in charge, and at nodes that are asked for a copy.

use hoplo_base::limits::COPY_RETRY;
use hoplo_wire::peer::Known;

use super::far::{
    R1, THERE, YONDER, copied, far_sealed, foreign, forget, gone, home, pull, pull_in, stored, told,
};
use super::secondary::Full;
use super::*;

fn ask(node: NodeNumber, object: ObjectId, copies: u8) -> Effect {
    Effect::AskCopy { node, object, copies }
}

fn not_copied(node: NodeNumber, object: ObjectId) -> Event {
    Event::FarNotCopied { node, object }
}

fn keep(object: ObjectId) -> Event {
    Event::CopyAsked { object, copies: 2 }
}

/// A node says so to the heir: of so many copies it was asked for one.
fn has_copy(node: NodeNumber, object: ObjectId, copies: u8) -> Event {
    let known = Known::Copy { bytes: 100, word: 1, contains: vec![], copies };
    Event::FarKnows { node, object, known }
}

/// The heir of `THERE`, which dies, is this node, and these live.
fn inherits(bench: &mut Bench, nodes: &[NodeNumber]) {
    bench.others(nodes);
    let heirs = vec![Heir { home: THERE, heir: HERE }];
    bench.feed(Event::NodeGone { node: THERE, why: "it was silent".to_string(), heirs });
}

fn announced() -> Event {
    Event::Announced { homes: vec![THERE] }
}

impl Bench {
    /// These live and do not leave, and no other ones. The first of them would inherit.
    fn others(&mut self, nodes: &[NodeNumber]) -> Vec<Effect> {
        let before = self.directory.keepers.nodes.clone();
        let gone = before.into_iter().filter(|node| !nodes.contains(node));
        let changed: Vec<_> = gone.chain(nodes.iter().copied()).collect();
        let heir = nodes.first().copied();
        let mut tell = |node| self.feed(Event::Other { node, stays: nodes.contains(&node), heir });
        changed.into_iter().flat_map(&mut tell).collect()
    }

    /// A puts it.
    fn put(&mut self, object: ObjectId, copies: u8) -> Vec<Effect> {
        self.seal(object, 100, &[]);
        self.notice(A, Notice::Copies { object, copies })
    }

    fn several(&self, object: ObjectId) -> Option<(u8, u8)> {
        let several = self.directory.place_of(object)?.several?;
        Some((several.wanted, several.had))
    }

    /// Two copies of it, the second one at `THERE`.
    fn with_two(nodes: &[NodeNumber]) -> (Self, ObjectId) {
        let (mut bench, object) = (Self::new(), home(1));
        bench.others(nodes);
        assert_eq!(bench.put(object, 2), [ask(THERE, object, 2)]);
        assert_eq!(bench.feed(copied(THERE, object)), []);
        assert_eq!(bench.several(object), Some((2, 2)));
        (bench, object)
    }
}

// ---- who is asked ----

#[test]
fn as_many_nodes_are_asked_as_are_missing_and_the_heir_first() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.others(&[YONDER, THERE, R1]);
    assert_eq!(bench.put(object, 2), [ask(YONDER, object, 2)]);
    assert_eq!(bench.several(object), Some((2, 1)));
    bench.feed(copied(YONDER, object));
    assert_eq!(bench.several(object), Some((2, 2)));
    let next = [ask(YONDER, home(2), 3), ask(R1, home(2), 3)];
    assert_eq!(bench.put(home(2), 3), next);
    let other = [ask(YONDER, home(3), 3), ask(THERE, home(3), 3)];
    assert_eq!(bench.put(home(3), 3), other, "the third copies are spread");
}

#[test]
fn a_put_that_says_nothing_of_copies_has_one() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.others(&[THERE]);
    bench.seal(object, 100, &[]);
    assert_eq!(bench.several(object), None);
    assert_eq!(bench.others(&[THERE, YONDER]), []);
}

#[test]
fn a_node_that_has_read_it_is_asked_before_others() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.seal(object, 100, &[]);
    bench.feed(copied(YONDER, object));
    bench.others(&[THERE, YONDER]);
    assert_eq!(bench.notice(A, Notice::Copies { object, copies: 2 }), [ask(YONDER, object, 2)]);
    assert_eq!(bench.several(object), Some((2, 2)), "it has all bytes");
}

#[test]
fn what_a_reader_copied_does_not_count() {
    let (mut bench, object) = Bench::with_two(&[THERE, YONDER]);
    bench.feed(copied(YONDER, object));
    assert_eq!(bench.several(object), Some((2, 2)));
}

#[test]
fn with_too_few_nodes_more_copies_are_made_when_one_joins() {
    let (mut bench, object) = (Bench::new(), home(1));
    assert_eq!(bench.put(object, 3), []);
    assert_eq!(bench.others(&[THERE]), [ask(THERE, object, 3)]);
    assert_eq!(bench.others(&[THERE, YONDER]), [ask(YONDER, object, 3)]);
    assert_eq!(bench.others(&[THERE, YONDER, R1]), []);
}

#[test]
fn who_wants_copies_of_what_it_did_not_put_breaks_the_protocol() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.seal(object, 100, &[]);
    for (from, object, copies) in [(B, object, 2), (A, home(2), 2), (A, object, 0), (A, object, 9)]
    {
        let effects = bench.notice(from, Notice::Copies { object, copies });
        let (process, what) = Bench::violation(&effects);
        assert!(process == from && what.contains("copies"), "{what}");
    }
}

// ---- refusals, deaths, drains ----

#[test]
fn when_one_refuses_another_is_asked_and_later_the_first_one_again() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.others(&[THERE, YONDER]);
    bench.put(object, 2);
    assert_eq!(bench.feed(not_copied(THERE, object)), [ask(YONDER, object, 2)]);
    assert_eq!(bench.feed(not_copied(YONDER, object)), []);
    assert_eq!(bench.put(home(2), 2), [], "neither is asked for any now");
    assert_eq!(bench.directory.next_deadline(), Some(bench.now + COPY_RETRY));
    let asked = bench.pass(COPY_RETRY);
    assert_eq!(asked, [ask(THERE, object, 2), ask(THERE, home(2), 2)]);
    bench.feed(copied(THERE, object));
    assert_eq!(bench.several(object), Some((2, 2)));
}

#[test]
fn for_a_copy_that_dies_with_its_node_another_one_is_made() {
    let (mut bench, object) = Bench::with_two(&[THERE, YONDER]);
    bench.others(&[YONDER]);
    assert_eq!(bench.feed(gone(THERE)), [ask(YONDER, object, 2)]);
    bench.feed(copied(YONDER, object));
    assert_eq!(bench.several(object), Some((2, 2)));
}

#[test]
fn one_that_was_asked_and_died_before_it_had_it_is_replaced() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.others(&[THERE, YONDER]);
    bench.put(object, 2);
    bench.others(&[YONDER]);
    assert_eq!(bench.feed(gone(THERE)), [ask(YONDER, object, 2)]);
}

#[test]
fn a_node_that_drains_keeps_its_copy_until_another_one_has_it() {
    let (mut bench, object) = Bench::with_two(&[THERE, YONDER]);
    bench.others(&[YONDER]);
    assert_eq!(bench.feed(Event::NodeDrains { node: THERE }), [ask(YONDER, object, 2)]);
    assert_eq!(bench.feed(copied(YONDER, object)), [forget(THERE, object)]);
    assert_eq!(bench.several(object), Some((2, 2)));
}

/// The node that had it, and that was to keep it, died. Nobody was asked when it had been made again elsewhere (seed 357359).
#[test]
fn a_result_that_is_made_again_while_its_home_leaves_is_kept_elsewhere() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.others(&[THERE, YONDER]);
    bench.notice(A, Notice::Hold { object, process: A });
    bench.feed(far_sealed(THERE, object, &[]));
    bench.feed(Event::NodeDrains { node: HERE });
    assert_eq!(bench.feed(Event::HandsOver { objects: vec![object] }), [ask(THERE, object, 1)]);
    bench.others(&[YONDER]);
    let remade =
        |effect: &Effect| matches!(effect, Effect::Send { message: ToClient::Remake { .. }, .. });
    assert!(bench.feed(gone(THERE)).iter().any(remade));
    let effects = bench.feed(far_sealed(YONDER, object, &[]));
    assert!(effects.contains(&ask(YONDER, object, 1)), "{effects:?}");
}

#[test]
fn a_node_that_drains_is_not_kept_by_a_copy_that_nobody_else_takes() {
    let (mut bench, object) = Bench::with_two(&[THERE, YONDER]);
    bench.others(&[YONDER]);
    bench.feed(Event::NodeDrains { node: THERE });
    assert_eq!(bench.feed(not_copied(YONDER, object)), [forget(THERE, object)]);
    let (mut bench, object) = Bench::with_two(&[THERE]);
    bench.others(&[]);
    assert_eq!(bench.feed(Event::NodeDrains { node: THERE }), [forget(THERE, object)]);
}

#[test]
fn all_copies_go_with_the_last_reference() {
    let (mut bench, object) = Bench::with_two(&[THERE, YONDER]);
    bench.notice(A, released(object));
    let effects = bench.sweep_all();
    assert_eq!(effects[0], forget(THERE, object));
    assert!(matches!(effects[1], Effect::Free { .. }), "{effects:?}");
    assert_eq!(bench.state(object), None);
    // One that was still being made.
    bench.put(home(2), 2);
    bench.notice(A, released(home(2)));
    bench.sweep_all();
    assert_eq!(bench.feed(copied(THERE, home(2))), [forget(THERE, home(2))]);
    // And one that nobody could take is asked of nobody.
    let (mut bench, object) = (Bench::new(), home(1));
    bench.put(object, 2);
    bench.notice(A, released(object));
    bench.sweep_all();
    assert_eq!(bench.others(&[THERE]), []);
}

// ---- at a node that is asked ----

#[test]
fn who_is_asked_fetches_it_without_a_reader_and_keeps_it() {
    let (mut bench, haul, location) = Bench::with_haul();
    let object = foreign(1);
    assert_eq!(bench.feed(keep(object)), [Effect::Foreign { object }, Effect::AskHome { object }]);
    let effects = bench.feed(told(object, stored(100, &[THERE]), &[]));
    assert_eq!(effects, [pull(object, 100, &[THERE])]);
    assert!(!bench.sweep_is_under_way(), "it is on its way");
    let effects = bench.notice(haul, sealed(object, location, &[], haul));
    assert_eq!(effects, [Effect::TellCopied { object, word: 1, turn: 1 }]);
    // Nobody uses it, and it stays.
    assert_eq!(bench.sweep_all(), [Effect::Unforeign { object }]);
    assert_eq!(bench.state(object), Some("stored"));
    bench.feed(Event::Forgotten { object, word: 1 });
    assert_eq!(bench.sweep_all(), [Effect::Free { ticket: 1, object, location }]);
    assert_eq!(bench.state(object), None);
}

#[test]
fn when_memory_is_short_it_is_written_to_disk_and_not_dropped() {
    for asked_before in [true, false] {
        let object = foreign(1);
        let mut full = match asked_before {
            true => Full::after(object, Some(keep(object))),
            false => Full::new(object),
        };
        // Of what a reader fetched, no byte is moved.
        assert!(asked_before || full.bench.feed(keep(object)).is_empty());
        // So that it is the first one to go.
        full.bench.want(B, full.own);
        let effects = full.press();
        let goes =
            |effect: &Effect| matches!(effect, Effect::Spill { object: it, .. } if *it == object);
        assert!(effects.iter().any(goes), "COPY-2: {effects:?}");
    }
}

#[test]
fn a_secondary_copy_that_just_goes_is_fetched_again() {
    let mut full = Full::new(foreign(1));
    let object = full.fetched;
    assert_eq!(full.press(), [full.free()]);
    assert_eq!(full.bench.feed(keep(object)), []);
    let effects = full.freed(FreeOutcome::Done);
    assert!(effects.contains(&Effect::TellNotCopied { object }), "{effects:?}");
    assert!(effects.contains(&Effect::AskHome { object }), "{effects:?}");
}

#[test]
fn who_has_no_room_refuses_and_forgets_it() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.feed(keep(object));
    bench.feed(told(object, stored(100, &[THERE]), &[]));
    let failure = hoplo_wire::Failure::new(hoplo_wire::FailureKind::StoreFull, "full");
    let denied = bench.feed(Event::PullDenied { object, failure });
    assert_eq!(denied, [Effect::TellNotCopied { object }]);
    assert_eq!(bench.sweep_all(), [Effect::Unforeign { object }]);
    assert_eq!(bench.state(object), None);
}

#[test]
fn who_cannot_fetch_it_tries_once_more_and_refuses() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.feed(keep(object));
    bench.feed(told(object, stored(100, &[THERE]), &[]));
    let failed = || Event::PullFailed { object, why: "no answer".to_string(), lost: false };
    assert_eq!(bench.feed(failed()), [Effect::AskHome { object }]);
    bench.feed(told(object, stored(100, &[THERE]), &[]));
    assert_eq!(bench.feed(failed()), [Effect::TellNotCopied { object }]);
    assert_eq!(bench.sweep_all(), [Effect::Unforeign { object }]);
}

#[test]
fn what_its_home_does_not_know_any_more_is_not_kept() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.feed(keep(object));
    bench.feed(Event::Lost { object, why: "nobody knows it".to_string() });
    assert_eq!(bench.sweep_all(), [Effect::Unforeign { object }]);
    assert_eq!(bench.state(object), None);
}

// ---- the home dies ----

#[test]
fn the_heir_hears_how_many_copies_there_are_to_be() {
    let (mut bench, haul, location) = Bench::with_haul();
    let object = foreign(1);
    bench.feed(keep(object));
    bench.feed(told(object, stored(100, &[THERE]), &[]));
    bench.notice(haul, sealed(object, location, &[], haul));
    let heirs = vec![Heir { home: THERE, heir: YONDER }];
    let died = Event::NodeGone { node: THERE, why: "it was silent".to_string(), heirs };
    let effects = bench.feed(died);
    let known = Known::Copy { bytes: 100, word: 2, contains: vec![], copies: 2 };
    assert!(effects.contains(&Effect::TellKnown { object, known }), "{effects:?}");
}

#[test]
fn an_heir_that_has_a_copy_has_another_one_made_when_all_have_told_theirs() {
    let (mut bench, haul, location) = Bench::with_haul();
    let object = foreign(1);
    bench.feed(keep(object));
    bench.feed(told(object, stored(100, &[THERE]), &[]));
    bench.notice(haul, sealed(object, location, &[], haul));
    inherits(&mut bench, &[YONDER]);
    bench.feed(Event::NodeHeld { objects: vec![object] });
    assert_eq!(bench.several(object), Some((2, 1)));
    assert_eq!(bench.feed(announced()), [ask(YONDER, object, 2)]);
}

#[test]
fn an_heir_counts_the_copies_that_nodes_were_asked_for() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    inherits(&mut bench, &[YONDER, R1]);
    bench.feed(Event::NodeHeld { objects: vec![object] });
    bench.feed(has_copy(YONDER, object, 3));
    bench.feed(has_copy(R1, object, 3));
    assert_eq!(bench.several(object), Some((3, 2)));
    // The third one is its own.
    assert_eq!(bench.feed(announced()), [pull(object, 100, &[YONDER, R1])]);
}

#[test]
fn an_heir_without_room_asks_others() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    inherits(&mut bench, &[YONDER, R1]);
    bench.feed(Event::NodeHeld { objects: vec![object] });
    bench.feed(has_copy(YONDER, object, 2));
    assert_eq!(bench.feed(announced()), [pull(object, 100, &[YONDER])]);
    let failure = hoplo_wire::Failure::new(hoplo_wire::FailureKind::StoreFull, "full");
    assert_eq!(bench.feed(Event::PullDenied { object, failure }), [ask(R1, object, 2)]);
    // It tries again when it may, and nobody else is left.
    bench.others(&[YONDER]);
    bench.feed(gone(R1));
    assert_eq!(bench.pass(COPY_RETRY), [pull_in(2, object, 100, &[YONDER])]);
}

/// Nobody was asked for another one before that node had left, and it was told to forget its copy meanwhile (seed 100048724).
#[test]
fn an_heir_does_not_count_the_copy_of_a_node_that_leaves() {
    let (mut bench, haul, location) = Bench::with_haul();
    let object = foreign(1);
    inherits(&mut bench, &[R1]);
    bench.feed(Event::NodeDrains { node: YONDER });
    bench.feed(Event::NodeHeld { objects: vec![object] });
    // Of what is at a node that leaves, the one in charge has a copy itself.
    let effects = bench.feed(has_copy(YONDER, object, 2));
    assert_eq!(effects, [pull(object, 100, &[YONDER])]);
    assert_eq!(bench.feed(announced()), [ask(R1, object, 2)]);
    assert_eq!(bench.notice(haul, sealed(object, location, &[], haul)), []);
    assert_eq!(bench.feed(copied(R1, object)), [forget(YONDER, object)]);
    assert_eq!(bench.several(object), Some((2, 2)));
}

#[test]
fn a_node_that_leaves_keeps_its_copy_until_the_heir_may_ask_another_one() {
    let (mut bench, haul, location) = Bench::with_haul();
    let object = foreign(1);
    bench.feed(keep(object));
    bench.feed(told(object, stored(100, &[THERE]), &[]));
    bench.notice(haul, sealed(object, location, &[], haul));
    bench.feed(Event::NodeDrains { node: YONDER });
    inherits(&mut bench, &[R1]);
    bench.feed(Event::NodeHeld { objects: vec![object] });
    assert_eq!(bench.feed(has_copy(YONDER, object, 2)), []);
    assert_eq!(bench.feed(announced()), [ask(R1, object, 2)]);
    assert_eq!(bench.feed(not_copied(R1, object)), [forget(YONDER, object)]);
}

#[test]
fn what_an_heir_fetches_for_a_reader_is_not_short_of_that_copy() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    inherits(&mut bench, &[YONDER]);
    bench.feed(Event::NodeHeld { objects: vec![object] });
    bench.feed(has_copy(YONDER, object, 2));
    bench.feed(announced());
    let failure = hoplo_wire::Failure::new(hoplo_wire::FailureKind::StoreFull, "full");
    bench.feed(Event::PullDenied { object, failure });
    assert!(bench.directory.next_deadline().is_some(), "it is short, and tries again");
    assert_eq!(bench.want(A, object), [pull_in(2, object, 100, &[YONDER])]);
    assert_eq!(bench.directory.next_deadline(), None);
}

#[test]
fn what_is_lost_is_not_short_of_copies() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.others(&[THERE]);
    bench.put(home(2), 2);
    bench.feed(not_copied(THERE, home(2)));
    bench.notice(A, released(home(2)));
    bench.sweep_all();
    // The node that made it dies, and the one that read it drops its copy before it hears that.
    bench.notice(A, Notice::Hold { object, process: A });
    bench.feed(far_sealed(YONDER, object, &[]));
    bench.feed(copied(THERE, object));
    bench.feed(gone(YONDER));
    bench.feed(Event::NodeDrains { node: HERE });
    assert_eq!(bench.feed(Event::HandsOver { objects: vec![object] }), [], "the other one refuses");
    assert!(bench.directory.next_deadline().is_some());
    let effects = bench.feed(not_copied(THERE, object));
    let remade =
        |effect: &Effect| matches!(effect, Effect::Send { message: ToClient::Remake { .. }, .. });
    assert!(effects.iter().any(remade), "{effects:?}");
    assert_eq!(bench.directory.next_deadline(), None);
}
