//! Results that were lost with a node are made again.

use hoplo_base::limits::LINEAGE_BYTES_MAX;
use hoplo_wire::reply::REPLY_NOT_BEGUN;

use super::*;

pub(super) const B: NodeNumber = NodeNumber::alone(2);
pub(super) const C: NodeNumber = NodeNumber::alone(3);
pub(super) const WHY: &str = "node B died";

pub(super) fn at(node: NodeNumber) -> Returned {
    returned(Value::Stored(Location::elsewhere(node, 200_000)))
}

pub(super) fn retried(max_retries: i32) -> Call {
    call(CallOptions { max_retries, ..options() })
}

fn with_argument(object: ObjectId) -> Call {
    Call { refs: vec![object], ..retried(3) }
}

/// Tasks that were placed.
pub(super) fn places(effects: &[Effect]) -> Vec<u64> {
    let place = |effect: &Effect| match effect {
        Effect::Place { seq, .. } => Some(*seq),
        _other => None,
    };
    effects.iter().filter_map(place).collect()
}

pub(super) fn asks_for(effects: &[Effect], object: ObjectId) -> bool {
    effects.contains(&Effect::Node(ToNode::WantWord { objects: vec![object] }))
}

pub(super) fn told(effects: &[Effect]) -> Vec<(ObjectId, Value)> {
    let mut all = Vec::new();
    for effect in effects {
        let Effect::Node(ToNode::Notices(notices)) = effect else { continue };
        for notice in notices {
            if let Notice::Fulfilled { object, value, .. } = notice {
                all.push((*object, value.clone()));
            }
        }
    }
    all
}

impl Owner {
    pub(super) fn with_worker() -> Self {
        let mut owner = Self::new();
        owner.task();
        let effects = owner.granted(1, W);
        let first = TaskId { owner: process(1), seq: places(&effects)[0] };
        owner.reply(W, first, &[returned(inline(b"warm"))]);
        owner
    }

    /// It runs, and its result lies at that node.
    pub(super) fn made(&mut self, call: Call, node: NodeNumber) -> ObjectId {
        let (task, _) = self.submit(call);
        self.reply(W, task, &[at(node)]);
        task.object(0)
    }

    pub(super) fn lost(&mut self, objects: &[ObjectId], node: NodeNumber) -> Vec<Effect> {
        let (objects, node, why) = (objects.to_vec(), Some(node), WHY.to_string());
        self.handle(Event::Remake { objects, node, why })
    }

    pub(super) fn unknown(&mut self, object: ObjectId) -> Vec<Effect> {
        let why = "every reference to it was dropped".to_string();
        self.handle(Event::Remake { objects: vec![object], node: None, why })
    }

    pub(super) fn over(&mut self, object: ObjectId) {
        self.handle(Event::LineageOver { objects: vec![object] });
    }

    fn again(&mut self, seq: u64, attempt: u32, values: &[Returned]) -> Vec<Effect> {
        self.reply_with(W, header(seq, ReplyKind::Finished, attempt), values)
    }

    pub(super) fn keeps(&self) -> usize {
        self.session.kept_lineages()
    }
}

#[test]
fn a_result_that_is_lost_is_made_again_under_its_name_and_costs_a_retry() {
    let mut owner = Owner::with_worker();
    let object = owner.made(retried(2), B);
    let effects = owner.lost(&[object], B);
    let [seq] = places(&effects)[..] else { panic!("{effects:?}") };
    assert!(!owner.session.is_ready(object), "who needs it waits");
    let frame = owner.session.frame(seq).unwrap();
    let frame = [&frame.header[..], frame.args, &frame.extra, frame.refs].concat();
    let header = hoplo_wire::call::CallView::parse(&frame).unwrap().header;
    assert_eq!((header.task, header.attempt), (object.task, 1));
    owner.again(seq, 1, &[at(C)]);
    assert_eq!(owner.session.value(object), Some(&at(C).value));
    // The second loss takes the last retry, the third one has none.
    let [seq] = places(&owner.lost(&[object], C))[..] else { panic!("it runs") };
    owner.again(seq, 2, &[at(B)]);
    let effects = owner.lost(&[object], B);
    let [(of, Value::Failed(failure))] = &told(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((*of, failure.kind), (object, FailureKind::ObjectLost));
    let text = failure.text();
    assert!(
        text.contains(WHY) && text.contains("f ran 3 times") && text.contains("With more"),
        "{text}"
    );
    assert_eq!(owner.text_of(object), text);
}

#[test]
fn what_failed_here_is_that_failure_when_what_an_earlier_run_made_is_lost() {
    let mut owner = Owner::with_worker();
    let (task, _) = owner.submit(retried(0));
    let failed = failed(FailureKind::OutOfMemory);
    owner.reply(W, task, &[returned(failed.clone())]);
    let effects = owner.lost(&[task.object(0)], B);
    assert_eq!(told(&effects), [(task.object(0), failed)]);
}

#[test]
fn without_retries_the_error_says_what_to_set() {
    let mut owner = Owner::with_worker();
    let object = owner.made(retried(0), B);
    owner.lost(&[object], B);
    let text = owner.text_of(object);
    assert!(text.contains(WHY) && text.contains("f has max_retries=0"), "{text}");
    assert!(text.contains(&object.to_string()), "{text}");
}

#[test]
fn what_was_put_is_not_made_again_and_the_error_says_so() {
    let mut owner = Owner::with_worker();
    let object = owner.put(&[]);
    owner.drop_ref(object);
    owner.session.add_ref(object);
    let effects = owner.unknown(object);
    assert_eq!(told(&effects).len(), 1, "{effects:?}");
    assert!(owner.text_of(object).contains("it was put"), "{}", owner.text_of(object));
}

#[test]
fn who_waits_in_this_process_gets_the_value_that_was_made_again() {
    let mut owner = Owner::with_worker();
    let object = owner.made(retried(3), B);
    let [seq] = places(&owner.lost(&[object], B))[..] else { panic!("it runs") };
    let (task, _) = owner.submit(with_argument(object));
    let watch = owner.act(|session, _, effects| session.watch(object, effects)).0.unwrap();
    let effects = owner.again(seq, 1, &[returned(inline(b"small"))]);
    assert!(effects.contains(&Effect::Fire { watch }), "{effects:?}");
    assert_eq!(places(&effects), [task.seq]);
    let told_value = told(&effects);
    assert!(told_value == [(object, inline(b"small"))], "others wait as well: {effects:?}");
}

#[test]
fn a_value_that_was_dropped_here_is_made_again_for_those_who_borrow_it() {
    let mut owner = Owner::with_worker();
    let object = owner.made(retried(3), B);
    owner.drop_ref(object);
    assert_eq!(owner.keeps(), 1);
    let [seq] = places(&owner.lost(&[object], B))[..] else { panic!("it runs") };
    owner.over(object);
    let effects = owner.again(seq, 1, &[returned(inline(b"small"))]);
    assert_eq!(told(&effects), [(object, inline(b"small"))]);
}

#[test]
fn two_lost_results_of_one_task_are_made_in_one_run() {
    for together in [true, false] {
        let mut owner = Owner::with_worker();
        let two = CallOptions { returns: 2, max_retries: 3, ..options() };
        let (task, _) = owner.submit(call(two));
        owner.reply(W, task, &[at(B), at(B)]);
        let objects = [task.object(0), task.object(1)];
        let effects = if together {
            owner.lost(&objects, B)
        } else {
            let mut effects = owner.lost(&objects[..1], B);
            effects.extend(owner.lost(&objects[1..], B));
            effects
        };
        let [seq] = places(&effects)[..] else { panic!("one run: {effects:?}") };
        let effects = owner.again(seq, 1, &[at(C), at(C)]);
        assert_eq!(places(&effects), [] as [u64; 0]);
        for object in objects {
            assert_eq!(owner.session.value(object), Some(&at(C).value));
        }
    }
}

#[test]
fn a_result_that_was_not_lost_keeps_its_value() {
    let mut owner = Owner::with_worker();
    let two = CallOptions { returns: 2, max_retries: 3, ..options() };
    let (task, _) = owner.submit(call(two));
    owner.reply(W, task, &[at(B), returned(inline(b"first"))]);
    let [seq] = places(&owner.lost(&[task.object(0)], B))[..] else { panic!("it runs") };
    let effects = owner.again(seq, 1, &[at(C), returned(inline(b"second"))]);
    assert_eq!(told(&effects), []);
    assert_eq!(owner.session.value(task.object(1)), Some(&inline(b"first")));
}

#[test]
fn arguments_that_were_dropped_are_made_again_first_each_by_its_owner() {
    let mut owner = Owner::with_worker();
    let first = owner.made(retried(3), B);
    let second = owner.made(with_argument(first), B);
    let third = owner.made(with_argument(second), B);
    for dropped in [first, second] {
        owner.drop_ref(dropped);
        owner.over(dropped);
    }
    assert_eq!(owner.keeps(), 3, "the lineage of the last one");
    let effects = owner.lost(&[third], B);
    assert!(places(&effects).is_empty() && asks_for(&effects, second), "{effects:?}");
    // Their home knows them no more, and asks.
    let effects = owner.unknown(second);
    assert!(places(&effects).is_empty() && asks_for(&effects, first), "{effects:?}");
    let [run] = places(&owner.unknown(first))[..] else { panic!("it needs nothing") };
    for last in [false, false, true] {
        let seq = *owner
            .session
            .tasks
            .iter()
            .find(|(_, it)| matches!(it.stage, Stage::Placed { .. }))
            .unwrap()
            .0;
        let effects = owner.again(seq, 1, &[at(C)]);
        assert_eq!(places(&effects).is_empty(), last, "{run}: {effects:?}");
    }
    assert_eq!(owner.session.value(third), Some(&at(C).value));
    assert!(owner.session.value(first).is_none() && owner.session.value(second).is_none());
    // Nobody can miss any of them any more.
    owner.drop_ref(third);
    for object in [first, second, third] {
        owner.over(object);
    }
    assert_eq!(owner.keeps(), 0);
}

#[test]
fn a_small_argument_is_held_for_the_call_that_may_run_again() {
    let mut owner = Owner::with_worker();
    let small = owner.put(&[]);
    let object = owner.made(with_argument(small), B);
    owner.drop_ref(small);
    assert_eq!(owner.session.value(small), Some(&inline(b"put")));
    assert_eq!(places(&owner.lost(&[object], B)).len(), 1);
    let mut owner = Owner::with_worker();
    let small = owner.put(&[]);
    let object = owner.made(with_argument(small), B);
    owner.drop_ref(small);
    owner.drop_ref(object);
    owner.over(object);
    assert_eq!(owner.session.value(small), None, "nothing needs it");
}

#[test]
fn a_loss_that_is_told_before_the_reply_was_read_is_made_good_after_it() {
    let mut owner = Owner::with_worker();
    let (task, _) = owner.submit(retried(3));
    assert!(places(&owner.lost(&[task.object(0)], B)).is_empty(), "it runs already");
    let effects = owner.reply(W, task, &[at(B)]);
    let [seq] = places(&effects)[..] else { panic!("{effects:?}") };
    owner.again(seq, 1, &[at(C)]);
    assert_eq!(owner.session.value(task.object(0)), Some(&at(C).value));
}

#[test]
fn a_loss_before_the_reply_is_over_when_the_task_ran_again_elsewhere() {
    let mut owner = Owner::with_worker();
    let (task, _) = owner.submit(retried(3));
    owner.lost(&[task.object(0)], B);
    owner.gone(W, &[]);
    owner.granted(2, X);
    let effects = owner.reply_with(X, header(task.seq, ReplyKind::Finished, 1), &[at(C)]);
    assert!(places(&effects).is_empty(), "{effects:?}");
    assert_eq!(owner.session.value(task.object(0)), Some(&at(C).value));
}

#[test]
fn what_is_lost_again_while_it_is_made_again_is_made_once_more() {
    let mut owner = Owner::with_worker();
    let object = owner.made(retried(3), B);
    let [seq] = places(&owner.lost(&[object], B))[..] else { panic!("it runs") };
    // It was sealed at C, which died before the reply was read.
    assert!(places(&owner.lost(&[object], C)).is_empty());
    let effects = owner.again(seq, 1, &[at(C)]);
    let [seq] = places(&effects)[..] else { panic!("{effects:?}") };
    owner.again(seq, 2, &[at(B)]);
    assert_eq!(owner.session.value(object), Some(&at(B).value));
}

#[test]
fn a_run_that_fails_is_what_the_object_is_for_all() {
    let mut owner = Owner::with_worker();
    let object = owner.made(retried(1), B);
    let [seq] = places(&owner.lost(&[object], B))[..] else { panic!("it runs") };
    let effects = owner.again(seq, 1, &[returned(failed(FailureKind::StoreFull))]);
    assert_eq!(told(&effects), [(object, failed(FailureKind::StoreFull))]);
    assert_eq!(owner.kind_of(object), FailureKind::StoreFull);
}

/// It failed, though it was there: its worker had stored it, and died before it replied (seed 1195013).
#[test]
fn a_result_that_a_run_stored_before_its_worker_died_is_there() {
    let mut owner = Owner::with_worker();
    let call = call(CallOptions { returns: 2, max_retries: 1, ..options() });
    let (task, _) = owner.submit(call);
    owner.reply(W, task, &[at(B), at(B)]);
    let [stored, lost] = [task.object(0), task.object(1)];
    assert_eq!(places(&owner.lost(&[stored, lost], B)).len(), 1);
    let value = at(C).value;
    owner.handle(Event::Ready { object: stored, value: value.clone(), contains: vec![] });
    let effects = owner.gone(W, &[]);
    let [(of, Value::Failed(failure))] = &told(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((*of, failure.kind), (lost, FailureKind::WorkerCrashed));
    assert_eq!(owner.session.value(stored), Some(&value));
}

/// It was taken for what the run had stored, and nobody heard of its failure: who waited for it did so for ever.
#[test]
fn a_lost_result_that_was_read_here_fails_with_the_run() {
    let mut owner = Owner::with_worker();
    let object = owner.made(retried(1), B);
    owner.act(|session, _, effects| session.want_here(&[object], effects));
    owner.handle(Event::Ready { object, value: stored(1), contains: vec![] });
    assert_eq!(places(&owner.lost(&[object], B)).len(), 1);
    let effects = owner.gone(W, &[]);
    let [(of, Value::Failed(failure))] = &told(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((*of, failure.kind), (object, FailureKind::WorkerCrashed));
    assert_eq!(owner.kind_of(object), FailureKind::WorkerCrashed);
}

/// The loss was told before the reply was read. What the reply named was taken for what the run had stored, and nobody heard of its
/// failure: who waited for it did so for ever (seed 100025462).
#[test]
fn a_result_that_was_lost_before_its_reply_was_read_fails_with_the_run() {
    let mut owner = Owner::with_worker();
    let (task, _) = owner.submit(retried(2));
    let object = task.object(0);
    owner.lost(&[object], B);
    assert_eq!(places(&owner.reply(W, task, &[at(B)])).len(), 1);
    assert!(!owner.session.is_ready(object), "who needs it waits");
    // The next run ends at a node that dies before its reply is read, too.
    owner.lost(&[object], C);
    let run = owner.session.run_of(task).expect("it is made again").0;
    assert_eq!(places(&owner.again(run.seq, 1, &[at(C)])).len(), 1);
    assert!(!owner.session.is_ready(object), "who needs it waits");
    let effects = owner.gone(W, &[]);
    let [(of, Value::Failed(failure))] = &told(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((*of, failure.kind), (object, FailureKind::WorkerCrashed));
    assert_eq!(owner.kind_of(object), FailureKind::WorkerCrashed);
}

/// The run failed as soon as it was to begin: its argument was lost with the same node, and is not made again.
#[test]
fn a_result_that_was_lost_before_its_reply_was_read_fails_with_its_argument() {
    let mut owner = Owner::with_worker();
    let argument = owner.made(retried(0), B);
    let (task, _) = owner.submit(with_argument(argument));
    let object = task.object(0);
    let (reader, _) = owner.submit(with_argument(object));
    owner.lost(&[argument, object], B);
    let effects = owner.reply(W, task, &[at(B)]);
    let [(of, Value::Failed(failure))] = &told(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((*of, failure.kind), (object, FailureKind::ObjectLost));
    assert_eq!(owner.text_of(object), owner.text_of(argument));
    assert_eq!(places(&effects), [reader.seq], "{effects:?}");
}

#[test]
fn what_nobody_here_wants_and_was_lost_before_its_reply_was_read_is_made_again_for_others() {
    let mut owner = Owner::with_worker();
    let (task, _) = owner.submit(retried(3));
    let object = task.object(0);
    let (borrower, _) = owner.submit(Call { nested: vec![object], ..retried(0) });
    owner.reply(W, borrower, &[returned(inline(b"kept"))]);
    owner.drop_ref(object);
    assert_eq!(owner.session.objects[&object].count, 0);
    owner.lost(&[object], B);
    let [seq] = places(&owner.reply(W, task, &[at(B)]))[..] else { panic!("it runs") };
    let effects = owner.again(seq, 1, &[returned(inline(b"small"))]);
    assert_eq!(told(&effects), [(object, inline(b"small"))]);
}

#[test]
fn the_oldest_lineage_goes_when_there_is_too_much_and_the_error_says_so() {
    let mut owner = Owner::with_worker();
    let large = || Call { args: vec![0; LINEAGE_BYTES_MAX / 3], ..retried(3) };
    let objects: Vec<ObjectId> = (0..4).map(|_| owner.made(large(), B)).collect();
    assert_eq!(owner.keeps(), 2);
    owner.lost(&objects[..1], B);
    assert!(owner.text_of(objects[0]).contains("too much memory"), "{}", owner.text_of(objects[0]));
    assert_eq!(places(&owner.lost(&objects[3..], B)).len(), 1);
}

#[test]
fn results_on_the_own_node_keep_no_lineage() {
    let mut owner = Owner::with_worker();
    let (task, _) = owner.submit(retried(3));
    owner.reply(W, task, &[returned(stored(1))]);
    assert_eq!(owner.keeps(), 0);
}

#[test]
fn to_cancel_a_task_cancels_the_run_that_makes_its_result_again() {
    let mut owner = Owner::with_worker();
    let object = owner.made(retried(3), B);
    let [seq] = places(&owner.lost(&[object], B))[..] else { panic!("it runs") };
    let cancel = Event::Cancel { task: object.task, force: false, recursive: false };
    assert_eq!(owner.handle(cancel), [Effect::Revoke { worker: process(W), seqs: vec![seq] }]);
    owner.revoked(W, &[seq], &[]);
    assert_eq!(owner.kind_of(object), FailureKind::Cancelled);
}

#[test]
fn why_tells_which_run_makes_it_again_and_for_which_node() {
    let mut owner = Owner::with_worker();
    let object = owner.made(retried(3), B);
    owner.lost(&[object], B);
    let text = owner.session.explain(object);
    assert!(text.contains("made again") && text.contains("run 2") && text.contains(WHY), "{text}");
}

#[test]
fn refs_inside_a_value_that_is_made_again_are_counted_once() {
    let mut owner = Owner::with_worker();
    let inner = TaskId { owner: process(9), seq: 1 }.object(0);
    let (task, _) = owner.submit(retried(3));
    let object = task.object(0);
    owner.reply(W, task, &[at(B)]);
    // It is read, and what lies in it is known by that.
    owner.act(|session, _, effects| session.want_here(&[object], effects));
    owner.handle(Event::Ready { object, value: at(B).value, contains: vec![inner] });
    let [seq] = places(&owner.lost(&[object], B))[..] else { panic!("it runs") };
    let small = Returned { value: inline(b"small"), contains: vec![inner] };
    owner.again(seq, 1, &[small]);
    assert!(owner.session.objects.contains_key(&inner));
    owner.drop_ref(object);
    assert!(!owner.session.objects.contains_key(&inner), "it was counted twice");
}

#[test]
fn a_task_whose_worker_gave_it_back_waits_for_its_argument_and_runs_then_without_a_retry() {
    let mut owner = Owner::with_worker();
    let object = owner.made(retried(3), B);
    let reader = Call {
        options: Arc::new(CallOptions { max_retries: 0, ..options() }),
        ..with_argument(object)
    };
    let (task, effects) = owner.submit(reader);
    assert_eq!(places(&effects), [task.seq], "as far as is known here, its argument is there");
    let given_back =
        ReplyHeader { flags: REPLY_NOT_BEGUN, ..header(task.seq, ReplyKind::Finished, 0) };
    let effects = owner.reply_with(W, given_back, &[]);
    let misplaced = Effect::Node(ToNode::Misplaced { objects: vec![object] });
    let place = |wanted: &Effect| effects.iter().position(|effect| effect == wanted);
    let word = Effect::Node(ToNode::WantWord { objects: vec![object] });
    assert!(place(&misplaced).is_some() && place(&misplaced) < place(&word), "{effects:?}");
    assert!(places(&effects).is_empty(), "{effects:?}");
    // The worker is free for the one that makes it.
    let [maker] = places(&owner.lost(&[object], B))[..] else { panic!("it is made again") };
    let effects = owner.again(maker, 1, &[at(C)]);
    assert_eq!(places(&effects), [task.seq]);
    owner.reply(W, task, &[returned(inline(b"read"))]);
    assert_eq!(owner.session.value(task.object(0)), Some(&inline(b"read")));
}

#[test]
fn a_task_that_was_cancelled_and_given_back_is_cancelled() {
    let mut owner = Owner::with_worker();
    let object = owner.made(retried(3), B);
    let (task, _) = owner.submit(with_argument(object));
    owner.handle(Event::Cancel { task, force: false, recursive: true });
    let given_back =
        ReplyHeader { flags: REPLY_NOT_BEGUN, ..header(task.seq, ReplyKind::Finished, 0) };
    owner.reply_with(W, given_back, &[]);
    assert!(owner.text_of(task.object(0)).contains("was cancelled"));
}

#[test]
fn whose_bytes_are_awaited_and_made_again_is_delayed_until_it_is_asked_for_anew() {
    let mut owner = Owner::new();
    let object = TaskId { owner: process(9), seq: 1 }.object(0);
    owner.act(|session, _, effects| {
        session.add_ref(object);
        session.want(&[object], effects);
    });
    assert!(!owner.session.is_delayed(object));
    owner.handle(Event::Delayed { objects: vec![object] });
    assert!(owner.session.is_delayed(object));
    owner.handle(Event::Ready { object, value: at(B).value, contains: vec![] });
    assert!(!owner.session.is_delayed(object));
    let location = Location::elsewhere(B, 200_000);
    owner.act(|session, _, effects| session.location_stale(object, location, effects));
    assert!(!owner.session.is_delayed(object), "nobody said so of this wait");
}
