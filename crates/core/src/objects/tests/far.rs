//! Objects of this home that other nodes have to do with; and what such tests need, of other homes (`foreign`), too.

use hoplo_wire::FailureKind;
use hoplo_wire::peer::FarValue;

use super::*;

pub(super) const THERE: NodeNumber = NodeNumber::alone(2);
pub(super) const YONDER: NodeNumber = NodeNumber::alone(3);

/// What a process of node `THERE` owns.
pub(super) fn foreign(seq: u64) -> ObjectId {
    object(ProcessId::new(THERE, 7, 7), seq)
}

pub(super) fn home(seq: u64) -> ObjectId {
    object(A, seq)
}

pub(super) fn stored(bytes: u64, sources: &[NodeNumber]) -> FarValue {
    stored_in(1, bytes, sources)
}

pub(super) fn stored_in(turn: u64, bytes: u64, sources: &[NodeNumber]) -> FarValue {
    FarValue::Stored { bytes, turn, sources: sources.to_vec() }
}

pub(super) fn told(object: ObjectId, value: FarValue, contains: &[ObjectId]) -> Event {
    Event::ValueTold { object, value, contains: contains.to_vec() }
}

pub(super) fn tell(
    node: NodeNumber,
    object: ObjectId,
    value: FarValue,
    contains: &[ObjectId],
) -> Effect {
    Effect::TellNode { node, object, value, contains: contains.to_vec() }
}

pub(super) fn pull(object: ObjectId, bytes: u64, sources: &[NodeNumber]) -> Effect {
    pull_in(1, object, bytes, sources)
}

pub(super) fn pull_in(turn: u64, object: ObjectId, bytes: u64, sources: &[NodeNumber]) -> Effect {
    Effect::Pull { object, bytes, turn, sources: sources.to_vec() }
}

pub(super) fn gone(node: NodeNumber) -> Event {
    Event::NodeGone { node, why: "it was silent".to_string(), heirs: vec![] }
}

pub(super) fn far_sealed(node: NodeNumber, object: ObjectId, contains: &[ObjectId]) -> Event {
    Event::FarSealed { copy: copy(node), object, bytes: 100, contains: contains.to_vec() }
}

pub(super) fn copy(node: NodeNumber) -> CopyAt {
    CopyAt { node, word: 1 }
}

pub(super) fn copied(node: NodeNumber, object: ObjectId) -> Event {
    Event::FarCopied { copy: copy(node), object, turn: 0 }
}

pub(super) fn forget(node: NodeNumber, object: ObjectId) -> Effect {
    Effect::ForgetCopy { object, copy: copy(node) }
}

/// What who waits is answered: a kind, and a part of the text.
pub(super) fn assert_failure(effects: &[Effect], to: ProcessId, kind: FailureKind, part: &str) {
    let [Effect::Send { to: whom, message: ToClient::Ready { value: Value::Failed(failure), .. } }] =
        effects
    else {
        panic!("{effects:?}")
    };
    assert!(*whom == to && failure.kind == kind && failure.text().contains(part), "{failure:?}");
}

/// Who waits for bytes hears that they are made again.
fn is_delayed(effect: &Effect) -> bool {
    match effect {
        Effect::TellDelayed { .. } => true,
        Effect::Send { message, .. } => matches!(message, ToClient::Delayed { .. }),
        _other => false,
    }
}

/// A, the owner, is to make these again. Beside that, only those who wait hear of it.
pub(super) fn assert_remade(effects: &[Effect], objects: &[ObjectId], part: &str) {
    let others = effects.iter().filter(|effect| !is_delayed(effect)).collect::<Vec<_>>();
    let [Effect::Send { to: A, message: ToClient::Remake { objects: told, why, .. } }] = others[..]
    else {
        panic!("{effects:?}")
    };
    assert!(told == objects && why.contains(part), "{effects:?}");
}

pub(super) fn delayed(to: ProcessId, object: ObjectId) -> Effect {
    Effect::Send { to, message: ToClient::Delayed { objects: vec![object] } }
}

/// A, the owner, may drop the lineage of these.
pub(super) fn over(objects: &[ObjectId]) -> Effect {
    Effect::Send { to: A, message: ToClient::LineageOver { objects: objects.to_vec() } }
}

pub(super) fn assert_refused(effects: &[Effect], whom: ProcessId, kind: FailureKind) {
    let [Effect::Refuse { to, refusal, .. }] = effects else { panic!("{effects:?}") };
    assert_eq!((*to, refusal.kind), (whom, kind));
}

impl Bench {
    /// A bench whose haul has joined and has room.
    pub(super) fn with_haul() -> (Self, ProcessId, Location) {
        let (mut bench, haul) = (Self::new(), haul(HERE));
        let welcome = bench.feed(Event::ProcessJoined { process: haul, slots: 0 });
        assert_eq!(welcome, [Effect::Welcome { process: haul, slots: vec![] }]);
        let wants = Event::ExtentWanted { from: haul, request: 1, bytes: 100, slots: 1 };
        let granted = bench.feed(wants);
        let [Effect::Send { message: ToClient::ExtentGranted { offset, slots, .. }, .. }] =
            &granted[..]
        else {
            panic!("{granted:?}")
        };
        let location = Location { slot: slots[0], generation: 1, offset: *offset, len: 100 };
        (bench, haul, location)
    }

    /// B waits for a foreign object that could not be fetched from where its home had said. `lost`: with its node.
    pub(super) fn asked_home_again(lost: bool) -> (Self, ProcessId, ObjectId) {
        let (mut bench, haul, _) = Self::with_haul();
        let object = foreign(1);
        bench.want(B, object);
        bench.feed(told(object, stored(100, &[YONDER]), &[]));
        let failed = Event::PullFailed { object, why: "it died".to_string(), lost };
        assert_eq!(bench.feed(failed), [Effect::AskHome { object }]);
        (bench, haul, object)
    }

    /// Sweeps until none is needed.
    pub(super) fn sweep_all(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        while self.sweep_is_under_way() {
            effects.extend(self.sweep());
        }
        effects
    }

    pub(super) fn use_first(&mut self, from: ProcessId, object: ObjectId) {
        assert_eq!(self.notice(from, hold(object, from)), [Effect::Foreign { object }]);
    }
}

#[test]
fn a_node_that_waits_keeps_the_object_and_is_told_its_value() {
    let (mut bench, object, inner) = (Bench::new(), home(1), home(2));
    bench.notice(A, pending(object, None));
    assert_eq!(bench.feed(Event::FarWanted { node: THERE, object }), []);
    assert_eq!(bench.feed(Event::FarWanted { node: YONDER, object }), []);
    bench.notice(A, released(object));
    bench.notice(A, shared(inner, &[]));
    bench.feed(Event::NodeHeld { objects: vec![object] });
    bench.feed(Event::NodeReleased { objects: vec![object] });
    assert!(!bench.sweep_is_under_way());
    let value = FarValue::Inline((*b"value").into());
    let effects = bench.notice(A, fulfilled(object, &[inner]));
    let expected = [THERE, YONDER].map(|node| tell(node, object, value.clone(), &[inner]));
    assert_eq!(effects, expected);
    bench.sweep();
    assert_eq!(bench.state(object), None);
}

/// Nobody behind it was told, for ever.
#[test]
fn a_node_that_made_what_it_waits_for_keeps_no_other_one_waiting() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.notice(A, pending(object, None));
    assert_eq!(bench.feed(Event::FarWanted { node: THERE, object }), []);
    assert_eq!(bench.feed(Event::FarWanted { node: YONDER, object }), []);
    let contains = vec![];
    let effects = bench.feed(Event::FarSealed { copy: copy(THERE), object, bytes: 100, contains });
    let told = |whom| {
        let tells = |it: &Effect| matches!(it, Effect::TellNode { node, .. } if *node == whom);
        effects.iter().any(tells)
    };
    assert!(told(YONDER) && !told(THERE), "{effects:?}");
}

#[test]
fn a_node_that_wants_what_nobody_tells_of_hears_after_a_sweep_that_it_is_lost() {
    let (mut bench, object) = (Bench::new(), home(1));
    assert_eq!(bench.feed(Event::FarWanted { node: THERE, object }), []);
    let effects = bench.sweep_all();
    let [Effect::TellNode { value: FarValue::Failed(failure), .. }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(failure.kind, FailureKind::ObjectLost);
}

#[test]
fn what_a_process_here_holds_is_adopted_though_another_node_waits() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.notice(A, pending(object, Some(lineage(object, &[]))));
    bench.notice(B, hold(object, B));
    bench.feed(Event::FarWanted { node: THERE, object });
    bench.feed(Event::ProcessGone { process: A, obituary: String::new() });
    let effects = bench.sweep();
    assert!(
        matches!(&effects[..], [Effect::Send { to: B, message: ToClient::Adopt { .. } }]),
        "{effects:?}"
    );
}

/// Asks for it in the name of a node: what that is told.
pub(super) fn sources(bench: &mut Bench, node: NodeNumber, object: ObjectId) -> Vec<NodeNumber> {
    let effects = bench.feed(Event::FarWanted { node, object });
    let [Effect::TellNode { node: to, value: FarValue::Stored { bytes: 100, sources, .. }, .. }] =
        &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!(*to, node);
    sources.clone()
}

pub(super) const R1: NodeNumber = NodeNumber::alone(11);
pub(super) const R2: NodeNumber = NodeNumber::alone(12);
pub(super) const R3: NodeNumber = NodeNumber::alone(13);
pub(super) const R4: NodeNumber = NodeNumber::alone(14);

#[test]
fn those_who_fetch_at_the_same_time_form_a_chain() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.seal(object, 100, &[]);
    assert_eq!(sources(&mut bench, R1, object), [HERE]);
    assert_eq!(sources(&mut bench, R2, object), [R1, HERE], "what is behind it has all bytes");
    assert_eq!(sources(&mut bench, R3, object), [R2, R1, HERE]);
    // Who has all bytes and sends to nobody is better than who is fetching.
    bench.feed(copied(R3, object));
    assert_eq!(sources(&mut bench, R4, object), [R3, HERE]);
}

/// Else two would fetch from one node, at half the rate each, and the one before the dead one would send to nobody.
#[test]
fn a_chain_is_whole_again_without_one_that_dies() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.seal(object, 100, &[]);
    sources(&mut bench, R1, object);
    sources(&mut bench, R2, object);
    assert_eq!(sources(&mut bench, R3, object), [R2, R1, HERE], "R1, if R2 dies");
    let (why, heirs) = ("it was silent".to_string(), vec![]);
    bench.feed(Event::NodeGone { node: R2, why, heirs });
    assert_eq!(sources(&mut bench, R4, object), [R3, R1, HERE], "R1 sends to R3 now");
}

#[test]
fn each_node_is_told_in_a_turn_of_its_own() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.seal(object, 100, &[]);
    for (turn, node, from) in [(1, R1, &[HERE][..]), (2, R2, &[R1, HERE]), (3, R1, &[HERE])] {
        let effects = bench.feed(Event::FarWanted { node, object });
        assert_eq!(effects, [tell(node, object, stored_in(turn, 100, from), &[])]);
    }
}

#[test]
fn who_asks_again_is_told_those_that_have_all_bytes() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.seal(object, 100, &[]);
    sources(&mut bench, R1, object);
    sources(&mut bench, R2, object);
    sources(&mut bench, R3, object);
    assert_eq!(sources(&mut bench, R2, object), [HERE], "R3 may wait for it");
}

#[test]
fn nobody_is_sent_to_a_node_that_fetches_no_more() {
    for end in [
        |node, object| Event::FarNotCopied { node, object },
        |node, _| Event::NodeGone { node, why: "it was silent".to_string(), heirs: vec![] },
    ] {
        let (mut bench, object) = (Bench::new(), home(1));
        bench.seal(object, 100, &[]);
        sources(&mut bench, R1, object);
        bench.feed(end(R1, object));
        assert_eq!(sources(&mut bench, R2, object), [HERE]);
        sources(&mut bench, R3, object);
        bench.feed(end(R3, object));
        assert_eq!(sources(&mut bench, R4, object), [R2, HERE]);
    }
}

#[test]
fn of_those_that_have_all_bytes_each_is_named_first_in_turn() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.seal(object, 100, &[]);
    bench.feed(copied(YONDER, object));
    let [first, second] = [R1, R2].map(|node| sources(&mut bench, node, object)[0]);
    assert_eq!(BTreeSet::from([first, second]), BTreeSet::from([HERE, YONDER]));
    assert_eq!(sources(&mut bench, R3, object)[0], R1);
}

/// Its home named that copy to nobody any more, and never told that it may go.
#[test]
fn a_second_answer_about_a_copy_that_is_here_does_not_take_it_back() {
    let (mut bench, haul, location) = Bench::with_haul();
    let object = foreign(1);
    bench.want(B, object);
    bench.feed(told(object, stored(100, &[THERE]), &[]));
    bench.notice(haul, sealed(object, location, &[], haul));
    assert_eq!(bench.feed(told(object, stored_in(2, 100, &[THERE]), &[])), []);
}

#[test]
fn a_node_that_asks_for_what_it_has_is_answered_and_does_not_fetch_it() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.seal(object, 100, &[]);
    bench.feed(copied(THERE, object));
    let effects = bench.feed(Event::FarWanted { node: THERE, object });
    assert_eq!(effects, [tell(THERE, object, stored(100, &[HERE]), &[])]);
    assert_eq!(sources(&mut bench, YONDER, object).len(), 2, "it is no source that fetches");
}

#[test]
fn what_the_haul_asks_for_before_the_word_of_its_home_is_here_is_told_when_it_comes() {
    let (mut bench, haul, location) = Bench::with_haul();
    let object = foreign(1);
    bench.want(B, object);
    assert_eq!(bench.want(haul, object), []);
    let effects = bench.feed(told(object, stored(100, &[THERE]), &[]));
    assert_eq!(effects, [pull(object, 100, &[THERE])]);
    let effects = bench.notice(haul, sealed(object, location, &[], haul));
    let answers = [B, haul].map(|to| ready(to, object, Value::Stored(location), &[]));
    assert_eq!(effects[0], Effect::TellCopied { object, word: 1, turn: 1 });
    assert!(answers.iter().all(|answer| effects.contains(answer)), "{effects:?}");
}

/// What it was told to fetch was lost meanwhile, and its home, which asks it now, has nothing else to tell.
#[test]
fn a_home_that_asks_for_what_is_not_here_hears_so_at_once() {
    let (mut bench, haul, object) = Bench::asked_home_again(false);
    let effects = bench.feed(Event::AskedByHome { object });
    assert_refused(&effects, haul, FailureKind::ObjectLost);
}

/// The last copy died. Its home fetched it from a node that fetched it from this one, and told nobody anything before that had come to an end:
/// each waited for another one, for ever.
#[test]
fn who_asks_for_what_could_not_be_fetched_here_hears_so_at_once() {
    let (mut bench, haul, object) = Bench::asked_home_again(true);
    assert_refused(&bench.want(haul, object), haul, FailureKind::ObjectLost);
}

/// It was told when what the home fetches had come to its end.
#[test]
fn who_waits_hears_of_a_copy_that_turns_up_while_the_home_fetches_what_was_lost() {
    let further = NodeNumber::alone(4);
    for made_again in [true, false] {
        let (mut bench, object) = (Bench::new(), home(1));
        bench.feed(far_sealed(YONDER, object, &[]));
        assert_eq!(bench.want(B, object), [pull(object, 100, &[YONDER])]);
        bench.feed(gone(YONDER));
        assert_eq!(bench.feed(Event::FarWanted { node: THERE, object }), []);
        let effects = bench.feed(match made_again {
            true => far_sealed(further, object, &[]),
            false => copied(further, object),
        });
        let told = |it: &Effect| matches!(it, Effect::TellNode { node: THERE, .. });
        assert!(effects.iter().any(told), "{made_again}: {effects:?}");
    }
}

#[test]
fn copies_are_forgotten_when_the_record_ends_or_where_there_is_none() {
    let (mut bench, object) = (Bench::new(), home(1));
    let location = bench.seal(object, 100, &[]);
    bench.feed(copied(YONDER, object));
    let what = bench.notice(A, Notice::Freed { object });
    assert!(Bench::violation(&what).1.contains("others may reach"), "{what:?}");
    bench.notice(A, released(object));
    assert_eq!(
        bench.sweep(),
        [forget(YONDER, object), Effect::Free { ticket: 1, object, location }]
    );
    assert_eq!(bench.feed(copied(THERE, object)), [forget(THERE, object)]);
}

#[test]
fn a_far_result_is_pulled_for_who_waits_at_its_home() {
    let (mut bench, haul, location) = Bench::with_haul();
    let (object, inner) = (home(1), foreign(2));
    bench.notice(A, pending(object, None));
    bench.want(B, object);
    bench.feed(Event::FarWanted { node: YONDER, object });
    let effects = bench.feed(far_sealed(THERE, object, &[inner]));
    let expected = [
        Effect::Foreign { object: inner },
        tell(YONDER, object, stored(100, &[THERE]), &[inner]),
        pull_in(2, object, 100, &[YONDER, THERE]),
    ];
    assert_eq!(effects, expected);
    let effects = bench.notice(haul, sealed(object, location, &[], haul));
    assert_eq!(effects, [ready(B, object, Value::Stored(location), &[inner])]);
    bench.notice(A, released(object));
    let ends = [
        forget(THERE, object),
        Effect::Free { ticket: 1, object, location },
        Effect::Unforeign { object: inner },
        over(&[object]),
    ];
    assert_eq!(bench.sweep(), ends);
}

#[test]
fn the_last_copy_at_a_node_that_drains_is_fetched_and_then_forgotten_there() {
    let (mut bench, haul, location) = Bench::with_haul();
    let (last, kept) = (home(1), home(2));
    bench.notice(A, pending(last, None));
    bench.feed(far_sealed(THERE, last, &[]));
    bench.notice(A, pending(kept, None));
    bench.feed(far_sealed(YONDER, kept, &[]));
    assert_eq!(bench.feed(copied(THERE, kept)), []);
    // Nobody waits for any of them.
    let effects = bench.feed(Event::NodeDrains { node: THERE });
    assert_eq!(effects, [pull(last, 100, &[THERE]), forget(THERE, kept)]);
    let effects = bench.notice(haul, sealed(last, location, &[], haul));
    assert_eq!(effects, [forget(THERE, last)]);
    assert_eq!(bench.feed(gone(THERE)), []);
    assert_eq!(bench.want(B, last), [ready(B, last, Value::Stored(location), &[])]);
}

#[test]
fn what_a_node_that_drains_makes_or_copies_does_not_stay_there() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.feed(Event::NodeDrains { node: THERE });
    bench.notice(A, pending(object, None));
    let effects = bench.feed(far_sealed(THERE, object, &[]));
    assert_eq!(effects, [pull(object, 100, &[THERE])]);
    // That copy may go when memory is short.
    assert_eq!(bench.feed(copied(YONDER, object)), []);
    let stored = home(2);
    bench.seal(stored, 100, &[]);
    let copied = bench.feed(copied(THERE, stored));
    assert_eq!(copied, [forget(THERE, stored)]);
}

#[test]
fn a_last_copy_that_could_not_be_fetched_from_a_node_that_drains_is_asked_for_once_more() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.notice(A, pending(object, None));
    bench.feed(far_sealed(THERE, object, &[]));
    let drains = bench.feed(Event::NodeDrains { node: THERE });
    assert_eq!(drains, [pull(object, 100, &[THERE])]);
    let failed = || Event::PullFailed { object, why: "no answer".to_string(), lost: false };
    assert_eq!(bench.feed(failed()), [pull_in(2, object, 100, &[THERE])]);
    assert_eq!(bench.feed(failed()), []);
}

#[test]
fn a_far_result_that_nobody_uses_is_forgotten_after_a_sweep() {
    let (mut bench, object) = (Bench::new(), home(1));
    assert_eq!(bench.feed(far_sealed(THERE, object, &[])), []);
    assert_eq!(bench.state(object), Some("elsewhere"));
    assert_eq!(bench.sweep_all(), [forget(THERE, object), over(&[object])]);
}

#[test]
fn of_two_results_at_other_nodes_the_first_stays_and_the_second_is_forgotten() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.notice(B, hold(object, B));
    bench.feed(far_sealed(THERE, object, &[]));
    assert_eq!(bench.feed(far_sealed(THERE, object, &[])), [], "the same one");
    let forget = forget(YONDER, object);
    assert_eq!(bench.feed(far_sealed(YONDER, object, &[])), [forget]);
    assert_eq!(bench.state(object), Some("elsewhere"));
}

#[test]
fn a_pull_from_a_node_that_died_may_have_come_to_its_end() {
    for ends_well in [true, false] {
        let (mut bench, haul, location) = Bench::with_haul();
        let object = home(1);
        bench.want(B, object);
        bench.feed(far_sealed(THERE, object, &[]));
        bench.feed(gone(THERE));
        assert_eq!(bench.feed(Event::FarWanted { node: YONDER, object }), []);
        if ends_well {
            let effects = bench.notice(haul, sealed(object, location, &[], haul));
            let told = tell(YONDER, object, stored_in(2, 100, &[HERE]), &[]);
            assert_eq!(effects, [ready(B, object, Value::Stored(location), &[]), told]);
        } else {
            let effects =
                bench.feed(Event::PullFailed { object, why: "dead".to_string(), lost: false });
            assert_remade(&effects, &[object], "no copy of it is left: dead");
        }
    }
}

/// Its owner hears of the death as well, and runs the task again at once.
#[test]
fn what_is_made_again_while_a_pull_from_a_dead_node_ends_is_the_value() {
    let (mut bench, haul, late) = Bench::with_haul();
    let [here, there] = [home(1), home(2)];
    for object in [here, there] {
        bench.want(B, object);
        bench.feed(far_sealed(THERE, object, &[]));
    }
    bench.feed(gone(THERE));
    let location = bench.place(100);
    let effects = bench.notice(A, sealed(here, location, &[], A));
    assert_eq!(effects, [ready(B, here, Value::Stored(location), &[])]);
    bench.feed(far_sealed(YONDER, there, &[]));
    let failed = |object| Event::PullFailed { object, why: "dead".to_string(), lost: true };
    assert_eq!(bench.feed(failed(there)), [pull_in(3, there, 100, &[YONDER])]);
    let effects = bench.notice(haul, sealed(here, late, &[], haul));
    assert!(matches!(effects[..], [Effect::Free { .. }]), "bytes of the first one: {effects:?}");
    assert_eq!(bench.feed(failed(here)), []);
    assert_eq!(bench.state(here), Some("stored"));
}

#[test]
fn at_home_a_pull_is_tried_twice_before_who_waits_is_refused() {
    let (mut bench, object) = (Bench::new(), home(1));
    let failed = || Event::PullFailed { object, why: "not there".to_string(), lost: false };
    bench.want(B, object);
    assert_eq!(bench.feed(far_sealed(THERE, object, &[])), [pull(object, 100, &[THERE])]);
    assert_eq!(bench.feed(failed()), [pull_in(2, object, 100, &[THERE])]);
    assert_refused(&bench.feed(failed()), B, FailureKind::ObjectLost);
    assert_eq!(bench.state(object), Some("elsewhere"));
}

#[test]
fn a_dead_node_waits_for_nothing_and_has_no_copies() {
    let (mut bench, object, other) = (Bench::new(), home(1), home(2));
    bench.notice(A, pending(object, None));
    bench.feed(Event::FarWanted { node: THERE, object });
    bench.notice(A, released(object));
    bench.seal(other, 100, &[]);
    bench.feed(copied(THERE, other));
    assert_eq!(bench.feed(gone(THERE)), []);
    let effects = bench.notice(A, fulfilled(object, &[]));
    assert_eq!(effects, []);
    let told = bench.feed(Event::FarWanted { node: YONDER, object: other });
    assert_eq!(told, [tell(YONDER, other, stored(100, &[HERE]), &[])]);
    bench.sweep_all();
    assert_eq!(bench.state(object), None);
}

#[test]
fn the_haul_is_told_where_an_object_lies_or_that_it_is_not_here() {
    let (mut bench, haul, _) = Bench::with_haul();
    let (object, other) = (home(1), foreign(2));
    let location = bench.seal(object, 100, &[]);
    assert_eq!(bench.want(haul, object), [ready(haul, object, Value::Stored(location), &[])]);
    assert_refused(&bench.want(haul, other), haul, FailureKind::ObjectLost);
    assert_eq!(bench.state(other), None, "nobody asks for it by that");
    bench.use_first(B, other);
    assert_refused(&bench.want(haul, other), haul, FailureKind::ObjectLost);
}

// ---- a word, without the bytes ----

fn word(to: ProcessId, object: ObjectId) -> Effect {
    ready(to, object, Value::Stored(Location::elsewhere(THERE, 100)), &[])
}

#[test]
fn who_needs_a_word_only_hears_it_and_nothing_is_fetched() {
    let (mut bench, object) = (Bench::new(), foreign(1));
    let asks = [Effect::Foreign { object }, Effect::AskHome { object }];
    assert_eq!(bench.want_word(B, object), asks);
    let effects = bench.feed(told(object, stored(100, &[THERE]), &[]));
    assert_eq!(effects, [word(B, object), Effect::TellNotCopied { object }]);
    assert_eq!(bench.want_word(C, object), [word(C, object)]);
    assert_eq!(bench.want(B, object), [pull(object, 100, &[THERE])]);
    assert_eq!(bench.want_word(C, object), [word(C, object)], "while it is on its way, too");
    // The one that asked for both has both when the bytes are here.
    let (mut bench, object) = (Bench::new(), home(1));
    bench.notice(A, pending(object, None));
    bench.want_word(B, object);
    bench.want(B, object);
    bench.want_word(B, object);
    assert_eq!(bench.feed(far_sealed(THERE, object, &[])), [pull(object, 100, &[THERE])]);
}

#[test]
fn at_home_who_asks_is_told_where_a_far_worker_made_it() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.notice(A, pending(object, None));
    assert_eq!(bench.want_word(B, object), []);
    assert_eq!(bench.feed(far_sealed(THERE, object, &[])), [word(B, object)]);
}

#[test]
fn of_a_value_that_is_here_the_word_says_where() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.notice(A, pending(object, None));
    assert_eq!(bench.want_word(B, object), []);
    let location = bench.place(100);
    let effects = bench.notice(A, sealed(object, location, &[], A));
    assert_eq!(effects, [ready(B, object, Value::Stored(location), &[])]);
    assert_eq!(bench.want_word(C, object), [ready(C, object, Value::Stored(location), &[])]);
}
