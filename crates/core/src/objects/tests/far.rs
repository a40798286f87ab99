//! Objects of other homes, and objects of this one that other nodes have to do with.

use hoplo_base::ActorId;
use hoplo_wire::FailureKind;
use hoplo_wire::peer::{FarValue, Known};

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

fn stored_in(turn: u64, bytes: u64, sources: &[NodeNumber]) -> FarValue {
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

fn copy(node: NodeNumber) -> CopyAt {
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

fn assert_refused(effects: &[Effect], whom: ProcessId, kind: FailureKind) {
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
    fn asked_home_again(lost: bool) -> (Self, ProcessId, ObjectId) {
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

// ---- what is at home elsewhere ----

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

// ---- what is at home here ----

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
fn sources(bench: &mut Bench, node: NodeNumber, object: ObjectId) -> Vec<NodeNumber> {
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

// ---- secondary copies, and no room ----

/// A full store: A's own object, which nobody used for longest, and one that was fetched and is held by B.
pub(super) struct Full {
    pub(super) bench: Bench,
    haul: ProcessId,
    pub(super) own: ObjectId,
    pub(super) fetched: ObjectId,
    location: Location,
}

const FETCHED_BYTES: u64 = 4 << 20;

impl Full {
    pub(super) fn new(fetched: ObjectId, spill: bool) -> Self {
        Self::after(fetched, spill, None)
    }

    /// This happens before it is fetched.
    pub(super) fn after(fetched: ObjectId, spill: bool, before: Option<Event>) -> Self {
        let mut bench = Bench::with(Config { spill, ..Config::new(12 << 20) });
        let (haul, own) = (haul(HERE), home(7));
        bench.seal(own, 8 << 20, &[]);
        bench.feed(Event::ProcessJoined { process: haul, slots: 0 });
        let wants = Event::ExtentWanted { from: haul, request: 1, bytes: FETCHED_BYTES, slots: 1 };
        let granted = bench.feed(wants);
        let [Effect::Send { message: ToClient::ExtentGranted { offset, slots, .. }, .. }] =
            &granted[..]
        else {
            panic!("{granted:?}")
        };
        let (slot, offset) = (slots[0], *offset);
        let location = Location { slot, generation: 1, offset, len: FETCHED_BYTES };
        before.into_iter().for_each(|event| drop(bench.feed(event)));
        bench.notice(B, hold(fetched, B));
        bench.want(B, fetched);
        if fetched.task.owner.node() == HERE {
            let bytes = FETCHED_BYTES;
            bench.feed(Event::FarSealed {
                copy: copy(THERE),
                object: fetched,
                bytes,
                contains: vec![],
            });
        } else {
            bench.feed(told(fetched, stored(FETCHED_BYTES, &[THERE]), &[]));
        }
        bench.notice(haul, sealed(fetched, location, &[], haul));
        assert_eq!(bench.state(fetched), Some("stored"));
        Self { bench, haul, own, fetched, location }
    }

    pub(super) fn press(&mut self) -> Vec<Effect> {
        self.bench.feed(Event::ExtentWanted { from: C, request: 2, bytes: 1 << 20, slots: 0 })
    }

    pub(super) fn free(&self) -> Effect {
        Effect::Free { ticket: 1, object: self.fetched, location: self.location }
    }

    pub(super) fn freed(&mut self, result: FreeOutcome) -> Vec<Effect> {
        self.bench.feed(Event::Freed { ticket: 1, result })
    }
}

#[test]
fn what_was_fetched_goes_first_and_is_not_written_and_its_home_is_told() {
    for spill in [true, false] {
        let mut full = Full::new(foreign(1), spill);
        assert_eq!(full.press(), [full.free()]);
        let effects = full.freed(FreeOutcome::Done);
        let (object, haul) = (full.fetched, full.haul);
        assert_eq!(effects[0], reclaimed(haul, object, full.location));
        assert_eq!(effects.last(), Some(&Effect::TellNotCopied { object }));
        assert_eq!(full.bench.state(full.own), Some("stored"));
        // Who wants it again has it fetched again.
        assert_eq!(full.bench.want(B, object), [Effect::AskHome { object }]);
    }
}

#[test]
fn what_is_read_stays_though_it_was_fetched() {
    let mut full = Full::new(foreign(1), true);
    full.press();
    assert_eq!(full.bench.want(B, full.fetched), [], "it is decided soon");
    let effects = full.freed(FreeOutcome::Pinned);
    let value = Value::Stored(full.location);
    assert_eq!(effects[0], ready(B, full.fetched, value, &[]));
    assert!(matches!(effects[1], Effect::Spill { object, .. } if object == full.own));
}

#[test]
fn at_home_what_was_fetched_can_be_fetched_again() {
    let mut full = Full::new(home(1), true);
    assert_eq!(full.press(), [full.free()]);
    full.freed(FreeOutcome::Done);
    assert_eq!(full.bench.state(full.fetched), Some("elsewhere"));
    let effects = full.bench.want(B, full.fetched);
    assert!(
        matches!(&effects[..], [Effect::Pull { sources, .. }] if *sources == [THERE]),
        "{effects:?}"
    );
}

#[test]
fn when_a_node_died_what_was_fetched_may_be_the_only_copy() {
    let mut full = Full::new(foreign(1), true);
    full.bench.feed(gone(YONDER));
    let effects = full.press();
    let [Effect::Spill { .. }] = &effects[..] else { panic!("OBJ-15: {effects:?}") };
}

#[test]
fn a_copy_that_goes_is_named_no_more_and_with_the_last_one_the_object_is_lost() {
    let (mut bench, object) = (Bench::new(), home(1));
    bench.notice(B, hold(object, B));
    bench.feed(far_sealed(THERE, object, &[]));
    bench.feed(copied(YONDER, object));
    bench.feed(Event::FarNotCopied { node: THERE, object });
    assert_eq!(sources(&mut bench, R1, object), [YONDER]);
    bench.feed(Event::FarNotCopied { node: R1, object });
    let effects = bench.feed(Event::FarNotCopied { node: YONDER, object });
    assert_remade(&effects, &[object], "no copy of it is left");
    assert_eq!(bench.want(B, object), [delayed(B, object)]);
}

#[test]
fn what_came_from_a_node_that_drains_is_not_given_away_when_memory_is_short() {
    let mut full = Full::new(home(1), true);
    let object = full.fetched;
    let effects = full.bench.feed(Event::NodeDrains { node: THERE });
    assert_eq!(effects, [forget(THERE, object)]);
    let effects = full.press();
    assert!(!effects.contains(&full.free()), "OBJ-15: {effects:?}");
}

#[test]
fn a_copy_that_just_goes_when_its_maker_drains_is_fetched_again() {
    let mut full = Full::new(home(1), true);
    assert_eq!(full.press(), [full.free()]);
    assert_eq!(full.bench.feed(Event::NodeDrains { node: THERE }), []);
    let effects = full.freed(FreeOutcome::Done);
    let fetched = |effect: &Effect| matches!(effect, Effect::Pull { object, sources, .. } if *object == full.fetched && *sources == [THERE]);
    assert!(effects.iter().any(fetched), "{effects:?}");
}
