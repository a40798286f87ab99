//! What was at home at a node that died, at its heir and at others; and tasks of dead owners that other nodes adopt.

use hoplo_wire::FailureKind;
use hoplo_wire::peer::{FarValue, Known};

use super::far::{
    THERE, YONDER, assert_failure, far_sealed, foreign, home, pull_in, stored, tell, told,
};
use super::*;

/// `THERE` dies, and its heir is this node.
fn falls_to(heir: NodeNumber) -> Event {
    let heirs = vec![Heir { home: THERE, heir }];
    Event::NodeGone { node: THERE, why: "it was silent".to_string(), heirs }
}

fn knows(node: NodeNumber, object: ObjectId, known: Known) -> Event {
    Event::FarKnows { node, object, known }
}

fn copy(word: u64) -> Known {
    Known::Copy { bytes: 100, word, contains: vec![], copies: 0 }
}

fn value(contains: &[ObjectId]) -> Known {
    Known::Inline { bytes: (*b"value").into(), contains: contains.to_vec() }
}

fn tells(object: ObjectId, known: Known) -> Effect {
    Effect::TellKnown { object, known }
}

fn adopt(to: ProcessId, lineage: &Lineage, object: ObjectId) -> Effect {
    let message = ToClient::Adopt { lineage: lineage.clone(), objects: vec![object] };
    Effect::Send { to, message }
}

const ANNOUNCED: fn() -> Event = || Event::Announced { homes: vec![THERE] };

impl Bench {
    /// B uses it and waits for it, and its home was asked.
    fn waits_for_foreign(&mut self, object: ObjectId) {
        self.use_first(B, object);
        assert_eq!(self.want(B, object), [Effect::AskHome { object }]);
    }

    /// Its bytes were made here, for a process of its home.
    fn makes_for_there(&mut self, object: ObjectId) -> u64 {
        let location = self.place(100);
        let effects = self.notice(A, sealed(object, location, &[], object.task.owner));
        let [Effect::TellHome { word, .. }] = effects[..] else { panic!("{effects:?}") };
        word
    }
}

// ---- at the heir ----

#[test]
fn nothing_of_an_estate_is_called_lost_before_all_have_announced() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.waits_for_foreign(object);
    assert_eq!(bench.feed(falls_to(HERE)), [Effect::Unforeign { object }]);
    assert!(!bench.sweep_is_under_way(), "EST-1: no sweep decides it");
    assert_eq!(bench.state(object), Some("unknown"));
    assert_eq!(bench.feed(ANNOUNCED()), []);
    assert_failure(&bench.sweep_all(), B, FailureKind::ObjectLost, "died (it was silent)");
}

/// Found by the simulator: it was taken for one that is still made again (seed 2113016).
#[test]
fn what_a_dead_home_had_made_again_is_as_unknown_as_the_rest() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.waits_for_foreign(object);
    bench.feed(Event::Delayed { object });
    bench.feed(falls_to(HERE));
    assert_eq!(bench.state(object), Some("unknown"));
    bench.feed(ANNOUNCED());
    assert_failure(&bench.sweep_all(), B, FailureKind::ObjectLost, "died (it was silent)");
}

#[test]
fn a_copy_that_is_announced_is_fetched_and_told_to_all_who_wait() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.waits_for_foreign(object);
    bench.feed(falls_to(HERE));
    bench.feed(Event::NodeHeld { objects: vec![object] });
    bench.feed(Event::FarWanted { node: super::far::R1, object });
    let effects = bench.feed(knows(YONDER, object, copy(5)));
    let value = FarValue::Stored { bytes: 100, turn: 1, sources: vec![YONDER] };
    assert_eq!(effects[0], tell(super::far::R1, object, value, &[]), "{effects:?}");
    let Effect::Pull { sources, .. } = &effects[1] else { panic!("{effects:?}") };
    assert!(sources.contains(&YONDER), "{sources:?}");
}

#[test]
fn a_copy_that_nobody_uses_stays_until_all_have_announced_and_may_go_then() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.feed(falls_to(HERE));
    assert_eq!(bench.feed(knows(YONDER, object, copy(5))), []);
    assert!(!bench.sweep_is_under_way());
    bench.feed(ANNOUNCED());
    let forget = Effect::ForgetCopy { object, copy: CopyAt { node: YONDER, word: 5 } };
    assert_eq!(bench.sweep_all(), [forget]);
    assert_eq!(bench.state(object), None);
}

#[test]
fn what_the_claims_hold_outlives_the_announcements() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.feed(falls_to(HERE));
    bench.feed(knows(YONDER, object, value(&[])));
    bench.feed(Event::NodeHeld { objects: vec![object] });
    bench.feed(ANNOUNCED());
    assert_eq!(bench.sweep_all(), []);
    let inline = FarValue::Inline((*b"value").into());
    assert_eq!(
        bench.feed(Event::FarWanted { node: YONDER, object }),
        [tell(YONDER, object, inline, &[])]
    );
    bench.feed(Event::NodeReleased { objects: vec![object] });
    assert_eq!(bench.sweep_all(), []);
    assert_eq!(bench.state(object), None);
}

#[test]
fn what_an_inherited_value_contains_is_used_as_long_as_it() {
    let (mut bench, object, inner) =
        (Bench::new(), foreign(1), object(ProcessId::new(YONDER, 1, 1), 1));
    bench.feed(falls_to(HERE));
    bench.feed(Event::NodeHeld { objects: vec![object] });
    let effects = bench.feed(knows(YONDER, object, value(&[inner])));
    assert_eq!(effects, [Effect::Foreign { object: inner }]);
    bench.feed(ANNOUNCED());
    bench.feed(Event::NodeReleased { objects: vec![object] });
    assert_eq!(bench.sweep_all(), [Effect::Unforeign { object: inner }]);
}

#[test]
fn a_pull_that_was_under_way_at_the_death_may_fail_and_a_copy_turn_up() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.waits_for_foreign(object);
    assert_eq!(
        bench.feed(told(object, stored(100, &[THERE]), &[])),
        [pull_in(1, object, 100, &[THERE])]
    );
    bench.feed(falls_to(HERE));
    assert_eq!(
        bench.feed(Event::PullFailed { object, why: "it is dead".to_string(), lost: false }),
        []
    );
    assert_eq!(bench.state(object), Some("unknown"));
    let effects = bench.feed(knows(YONDER, object, copy(1)));
    assert_eq!(effects, [pull_in(1, object, 100, &[YONDER])]);
    bench.feed(ANNOUNCED());
    assert_eq!(bench.state(object), Some("elsewhere"));
}

#[test]
fn what_is_called_lost_and_is_announced_late_has_a_value_again() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.waits_for_foreign(object);
    bench.feed(falls_to(HERE));
    bench.feed(ANNOUNCED());
    bench.sweep_all();
    assert_eq!(bench.state(object), Some("failed"));
    bench.feed(knows(YONDER, object, value(&[])));
    assert_eq!(bench.want(B, object), [ready(B, object, inline(), &[])]);
}

#[test]
fn a_second_copy_of_other_length_is_given_up() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.feed(falls_to(HERE));
    bench.feed(knows(YONDER, object, value(&[])));
    let forget = Effect::ForgetCopy { object, copy: CopyAt { node: YONDER, word: 5 } };
    assert_eq!(bench.feed(knows(YONDER, object, copy(5))), [forget]);
}

// ---- at the others ----

#[test]
fn whoever_knows_something_tells_the_heir_and_who_waits_asks_it() {
    let (mut bench, [asked, known, made]) = (Bench::new(), [1, 2, 3].map(foreign));
    bench.waits_for_foreign(asked);
    bench.waits_for_foreign(known);
    bench.feed(told(known, FarValue::Inline((*b"value").into()), &[]));
    bench.makes_for_there(made);
    let effects = bench.feed(falls_to(YONDER));
    let expected =
        [Effect::AskHome { object: asked }, tells(known, value(&[])), tells(made, copy(2))];
    assert_eq!(effects, expected);
    assert_eq!(bench.directory.in_charge(THERE), YONDER);
    assert_eq!(bench.sweep_all(), [], "its copy stays, though nobody here uses it");
    assert_eq!(bench.state(made), Some("stored"));
    bench.feed(Event::Forgotten { object: made, word: 2 });
    bench.sweep_all();
    assert_eq!(bench.state(made), None);
}

#[test]
fn when_the_heir_dies_all_is_told_to_the_next_one() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.makes_for_there(object);
    assert_eq!(bench.feed(falls_to(YONDER)), [tells(object, copy(2))]);
    let heirs = vec![Heir { home: THERE, heir: HERE }, Heir { home: YONDER, heir: HERE }];
    let dies = Event::NodeGone { node: YONDER, why: "it fell".to_string(), heirs };
    assert_eq!(bench.feed(dies), [], "EST-2: it is ours now");
    assert_eq!(bench.directory.unannounced(), [THERE, YONDER]);
    let value = FarValue::Stored { bytes: 100, turn: 1, sources: vec![HERE] };
    let node = super::far::R1;
    assert_eq!(bench.feed(Event::FarWanted { node, object }), [tell(node, object, value, &[])]);
}

#[test]
fn a_copy_that_arrives_after_the_death_is_announced_then() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.waits_for_foreign(object);
    bench.feed(told(object, stored(100, &[YONDER]), &[]));
    assert_eq!(bench.feed(falls_to(YONDER)), [], "it is under way");
    let failed = bench.feed(Event::PullFailed { object, why: "broken".to_string(), lost: false });
    assert_eq!(failed, [Effect::AskHome { object }], "of the heir");
}

// ---- lineage ----

#[test]
fn how_a_result_is_made_is_told_to_the_heir_which_has_it_made() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    let lineage = lineage(object, &[]);
    bench.use_first(B, object);
    assert_eq!(bench.feed(Event::LineageTold { object, lineage: lineage.clone() }), []);
    let effects = bench.feed(falls_to(YONDER));
    assert_eq!(effects, [tells(object, Known::Lineage(lineage.clone()))]);

    let mut heir = Bench::new();
    heir.feed(falls_to(HERE));
    heir.feed(Event::NodeHeld { objects: vec![object] });
    heir.feed(knows(YONDER, object, Known::Lineage(lineage.clone())));
    assert_eq!(heir.feed(Event::FarWanted { node: YONDER, object }), [], "EST-1");
    heir.feed(ANNOUNCED());
    let asked = Effect::AdoptAt { node: YONDER, lineage: lineage.clone(), objects: vec![object] };
    assert_eq!(heir.sweep_all(), [asked]);
    assert_eq!(heir.feed(Event::FarWanted { node: super::far::R1, object }), [], "EST-3");

    bench.want(B, object);
    let objects = vec![object];
    let asked = bench.feed(Event::AdoptAsked { lineage: lineage.clone(), objects });
    assert_eq!(asked, [adopt(B, &lineage, object)]);
    let made = bench.notice(B, fulfilled(object, &[]));
    assert_eq!(made, [tells(object, value(&[])), ready(B, object, inline(), &[])]);
    let told = heir.feed(knows(YONDER, object, value(&[])));
    assert_eq!(told.len(), 2, "both nodes hear it: {told:?}");
}

#[test]
fn a_lineage_that_the_heir_has_itself_is_run_by_who_waits_there() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    let lineage = lineage(object, &[]);
    bench.waits_for_foreign(object);
    bench.feed(Event::LineageTold { object, lineage: lineage.clone() });
    bench.feed(falls_to(HERE));
    bench.feed(ANNOUNCED());
    assert_eq!(bench.sweep_all(), [adopt(B, &lineage, object)]);
    assert_eq!(bench.notice(B, fulfilled(object, &[])), [ready(B, object, inline(), &[])]);
}

#[test]
fn a_value_that_is_announced_spares_the_run() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.waits_for_foreign(object);
    bench.feed(Event::LineageTold { object, lineage: lineage(object, &[]) });
    bench.feed(falls_to(HERE));
    assert_eq!(bench.feed(knows(YONDER, object, value(&[]))), [ready(B, object, inline(), &[])]);
    bench.feed(ANNOUNCED());
    assert_eq!(bench.sweep_all(), []);
}

/// Its owner died before it was made, and THERE and YONDER wait for it.
fn orphan_of_others() -> (Bench, ObjectId, Lineage) {
    let (mut bench, object) = (Bench::new(), home(1));
    let lineage = lineage(object, &[]);
    bench.notice(A, pending(object, Some(lineage.clone())));
    bench.feed(Event::NodeHeld { objects: vec![object] });
    bench.feed(Event::FarWanted { node: THERE, object });
    bench.feed(Event::FarWanted { node: YONDER, object });
    bench.feed(Event::ProcessGone { process: A, obituary: String::new() });
    (bench, object, lineage)
}

#[test]
fn what_only_other_nodes_wait_for_is_made_there_when_its_owner_dies() {
    let (mut bench, object, lineage) = orphan_of_others();
    let asks = |node| Effect::AdoptAt { node, lineage: lineage.clone(), objects: vec![object] };
    assert_eq!(bench.sweep(), [asks(THERE)]);
    // Nobody there waits any more.
    let objects = vec![object];
    assert_eq!(bench.feed(Event::FarNotAdopted { node: THERE, objects }), [asks(YONDER)]);
    // A worker anywhere makes it.
    let effects = bench.feed(far_sealed(super::far::R1, object, &[]));
    assert!(matches!(&effects[..], [Effect::TellNode { node: YONDER, .. }]), "{effects:?}");
}

#[test]
fn a_node_that_dies_while_it_makes_a_result_is_replaced() {
    let (mut bench, object, lineage) = orphan_of_others();
    bench.sweep();
    let again = Effect::AdoptAt { node: YONDER, lineage, objects: vec![object] };
    assert_eq!(bench.feed(super::far::gone(THERE)), [again]);
}

/// THERE had it made at YONDER, which died before the home had its word. The home waited for THERE, where nobody had anything to do any more.
#[test]
fn a_result_that_was_made_at_a_third_node_and_lost_with_it_is_made_again() {
    let made_at = |maker, object| Event::FarMadeAt { adopter: THERE, maker, objects: vec![object] };
    let again = |lineage, object| Effect::AdoptAt { node: THERE, lineage, objects: vec![object] };

    let (mut bench, object, lineage) = orphan_of_others();
    bench.sweep();
    assert_eq!(bench.feed(made_at(YONDER, object)), [], "its word is on its way");
    assert_eq!(bench.feed(super::far::gone(YONDER)), [again(lineage, object)]);

    // It was known to be dead before its work was heard of.
    let (mut bench, object, lineage) = orphan_of_others();
    bench.sweep();
    assert_eq!(bench.feed(super::far::gone(YONDER)), []);
    assert_eq!(bench.feed(made_at(YONDER, object)), [again(lineage, object)]);

    // Who had it made dies, and the node where it lies does not.
    let (mut bench, object, _) = orphan_of_others();
    bench.sweep();
    bench.feed(made_at(super::far::R1, object));
    assert_eq!(bench.feed(super::far::gone(THERE)), [], "its word is on its way");
    let effects = bench.feed(far_sealed(super::far::R1, object, &[]));
    assert!(matches!(&effects[..], [Effect::TellNode { node: YONDER, .. }]), "{effects:?}");
}

#[test]
fn who_had_it_made_says_where() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    let lineage = lineage(object, &[]);
    bench.waits_for_foreign(object);
    bench.feed(Event::AdoptAsked { lineage, objects: vec![object] });
    let maker = Some(ProcessId::new(YONDER, 1, 1));
    let over = || Notice::AdoptionOver { task: object.task, maker };
    assert_eq!(bench.notice(C, over()), [], "nobody asked it");
    let told = bench.notice(B, over());
    assert_eq!(told, [Effect::TellMadeAt { maker: YONDER, objects: vec![object] }]);
}

#[test]
fn who_cannot_adopt_says_so_and_who_waits_asks_again() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    let lineage = lineage(object, &[]);
    let asked =
        |lineage: &Lineage| Event::AdoptAsked { lineage: lineage.clone(), objects: vec![object] };
    let not = Effect::TellNotAdopted { objects: vec![object] };
    assert_eq!(bench.feed(asked(&lineage)), std::slice::from_ref(&not), "nobody here uses it");
    bench.waits_for_foreign(object);
    bench.want(C, object);
    assert_eq!(bench.feed(asked(&lineage)), [adopt(B, &lineage, object)]);
    let effects = bench.feed(Event::ProcessGone { process: B, obituary: String::new() });
    let [one, other, ..] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!([one, other], [&not, &Effect::AskHome { object }], "C waits");
}

/// Its maker stored it here while another process that had asked for it died: home's wish to have it made and the word of it crossed.
#[test]
fn what_was_stored_here_is_not_made_again_though_its_home_asks_for_that() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.waits_for_foreign(object);
    let location = bench.place(100);
    bench.notice(A, sealed(object, location, &[], B));
    let (lineage, objects) = (lineage(object, &[]), vec![object]);
    assert_eq!(bench.feed(Event::AdoptAsked { lineage, objects }), []);
}

/// B ran it for its home, which died with the node that had the only copy. The heir waited for B, who had nothing to do any more.
#[test]
fn a_result_that_was_adopted_made_and_lost_is_made_again() {
    let over = |object: ObjectId| Notice::AdoptionOver { task: object.task, maker: None };
    let (mut bench, object) = (Bench::new(), foreign(1));
    let lineage = lineage(object, &[]);
    bench.waits_for_foreign(object);
    bench.feed(Event::LineageTold { object, lineage: lineage.clone() });
    let asked = Event::AdoptAsked { lineage: lineage.clone(), objects: vec![object] };
    assert_eq!(bench.feed(asked.clone()), [adopt(B, &lineage, object)]);
    assert_eq!(bench.feed(asked), [adopt(B, &lineage, object)]);
    assert_eq!(bench.notice(B, over(object)), []);
    bench.feed(falls_to(HERE));
    bench.feed(ANNOUNCED());
    assert_eq!(bench.sweep_all(), [], "B was asked twice, and is to say so once more");
    bench.notice(B, over(object));
    assert_eq!(bench.sweep_all(), [adopt(B, &lineage, object)]);

    // Who said so before the home died does not make it.
    let (mut bench, object) = (Bench::new(), foreign(2));
    let lineage = super::lineage(object, &[]);
    bench.waits_for_foreign(object);
    bench.feed(Event::AdoptAsked { lineage, objects: vec![object] });
    bench.notice(B, over(object));
    bench.feed(falls_to(HERE));
    bench.feed(ANNOUNCED());
    assert_failure(&bench.sweep_all(), B, FailureKind::ObjectLost, "none knows how to make it");
}

/// The dead home had named this node to another one, its heir by now, and this node was still to be told. Each waited for the other.
#[test]
fn an_heir_did_not_hear_that_what_it_was_to_fetch_from_a_node_would_not_come_there() {
    let heir = YONDER;
    let haul = haul(HERE);
    let serve = |object| Event::Wanted { from: haul, objects: vec![object], need: Need::Bytes };
    let is_refused = |effects: &[Effect]| {
        let refused = |it: &Effect| matches!(it, Effect::Refuse { to, .. } if *to == haul);
        effects.iter().any(refused)
    };
    let (mut bench, object) = (Bench::new(), foreign(1));
    bench.feed(Event::ProcessJoined { process: haul, slots: 0 });
    bench.waits_for_foreign(object);
    assert_eq!(bench.feed(serve(object)), []);
    let effects = bench.feed(falls_to(heir));
    assert!(is_refused(&effects), "{effects:?}");
    assert!(effects.contains(&Effect::AskHome { object }), "B waits for it, too: {effects:?}");
    // One that asks later.
    assert!(is_refused(&bench.feed(serve(object))));
}

/// OBJ-19. It kept the arguments of a task that had ended, as long as somebody there held the result and did not read it.
#[test]
fn who_was_told_how_something_is_made_is_told_its_value_unasked() {
    let mut bench = Bench::new();
    let (argument, object) = (home(1), home(2));
    bench.notice(A, shared(argument, &[]));
    bench.notice(A, pending(object, Some(lineage(object, &[argument]))));
    bench.feed(Event::LineageGiven { node: THERE, object });
    bench.feed(Event::LineageGiven { node: YONDER, object });
    assert!(bench.directory.pending(object).is_some());
    bench.feed(super::far::gone(YONDER));
    let effects = bench.notice(A, fulfilled(object, &[]));
    let value = FarValue::Inline(match inline() {
        Value::Inline(bytes) => bytes,
        other => panic!("{other:?}"),
    });
    assert!(effects.contains(&tell(THERE, object, value.clone(), &[])), "{effects:?}");
    let told = effects.iter().filter(|it| matches!(it, Effect::TellNode { .. })).count();
    assert_eq!(told, 1, "the other one is dead");
    // The word that it is told how came when it had ended already.
    let late = bench.feed(Event::LineageGiven { node: YONDER, object });
    assert_eq!(late, [tell(YONDER, object, value, &[])]);
}

#[test]
fn a_value_that_comes_unasked_takes_the_place_of_how_it_is_made() {
    let mut bench = Bench::new();
    let (argument, object) = (foreign(1), foreign(2));
    bench.notice(B, Notice::Hold { object, process: B });
    bench.feed(Event::LineageTold { object, lineage: lineage(object, &[argument]) });
    assert!(bench.directory.knows(argument), "it is held for who may run the task");
    let value = FarValue::Inline((*b"x").into());
    bench.feed(told(object, value, &[]));
    assert!(bench.directory.keeps_value(object));
    bench.sweep();
    assert!(!bench.directory.knows(argument));
}
