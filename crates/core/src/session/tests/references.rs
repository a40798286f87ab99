//! Who is told about which object, and when (REF-1 to REF-4).

use hoplo_base::limits::TABLE_ROOM_KEPT;
use hoplo_wire::call::CallView;
use hoplo_wire::node::{SharedState, Tell};

use super::*;
use crate::session::MEMORY_DELAY;

fn foreign(seq: u64) -> ObjectId {
    TaskId { owner: process(9), seq }.object(0)
}

fn shared(object: ObjectId, contains: &[ObjectId]) -> Notice {
    let state = SharedState::Value { value: inline(b"put"), contains: contains.to_vec() };
    Notice::Shared { object, state }
}

#[test]
fn a_nested_ref_is_told_before_its_frame_is_placed_and_what_it_contains_before_it() {
    let mut owner = Owner::new();
    let inner = owner.put(&[]);
    let outer = owner.put(&[inner]);
    let (task, _) = owner.submit(with_nested(&[outer]));
    let told = notices(&[shared(inner, &[]), shared(outer, &[inner])]);
    assert_eq!(owner.granted(1, W), [told, placed(W, task.seq)]);
}

#[test]
fn what_lies_inside_an_inlined_argument_is_told() {
    let mut owner = Owner::new();
    let inner = owner.put(&[]);
    let outer = owner.put(&[inner]);
    let (task, _) = owner.submit(with_refs(&[outer]));
    assert_eq!(owner.granted(1, W), [notices(&[shared(inner, &[])]), placed(W, task.seq)]);
}

#[test]
fn a_worker_tells_what_it_keeps_and_what_it_returns_before_its_reply() {
    let mut owner = Owner::new();
    let (kept, own) = (foreign(4), owner.put(&[]));
    owner.session.add_ref(kept);
    let one = Returned { value: inline(b""), contains: vec![own] };
    let caller = process(7);
    let effects =
        owner.act(|session, now, effects| session.before_reply(now, caller, &[one], effects)).1;
    let told = notices(&[
        Notice::Replying { to: caller },
        shared(own, &[]),
        Notice::Hold { object: own, process: caller },
        Notice::Hold { object: kept, process: process(1) },
    ]);
    assert_eq!(effects, [told]);
    assert_eq!(owner.drop_ref(kept), []);
    assert_eq!(owner.flushed(), [Notice::Released { object: kept, tokens: 1 }]);
}

#[test]
fn a_stored_result_holds_what_it_contains_itself() {
    let mut owner = Owner::new();
    let own = owner.put(&[]);
    let (result, caller) = (foreign(4), process(9));
    owner.session.result_stored(result, caller, place(1), &[own]);
    assert_eq!(owner.flushed(), [], "until the reply the owner could not learn of its token");
    let one = Returned { value: stored(1), contains: vec![own] };
    let effects =
        owner.act(|session, now, effects| session.before_reply(now, caller, &[one], effects)).1;
    let contains = vec![own];
    let sealed = Notice::Sealed { object: result, location: place(1), contains, holder: caller };
    let replying = Notice::Replying { to: caller };
    assert_eq!(effects, [notices(&[replying, shared(own, &[]), sealed])]);
}

#[test]
fn a_reply_without_refs_tells_nothing() {
    let mut owner = Owner::new();
    let one = returned(inline(b"7"));
    let effects =
        owner.act(|session, now, effects| session.before_reply(now, process(9), &[one], effects)).1;
    assert_eq!(effects, []);
}

#[test]
fn the_tokens_of_a_dead_workers_replies_are_counted_whatever_became_of_them() {
    let mut owner = Owner::new();
    let task = owner.submit(call(CallOptions { returns: 3, ..options() })).0;
    owner.granted(1, W);
    let refs = Returned { value: inline(b""), contains: vec![foreign(4), foreign(5)] };
    // One part comes twice: the second time it is of no attempt.
    for attempt in [0, 7] {
        let part = header(task.seq, ReplyKind::Part, attempt);
        owner.reply_with(W, part, &[returned(stored(1)), refs.clone(), returned(inline(b""))]);
    }
    owner.flushed();
    owner.gone(W, &[]);
    let told = owner.flushed();
    assert_eq!(told[0], Notice::RepliesEnded { from: process(W), tokens: 6 });
}

#[test]
fn a_borrowed_ref_that_leaves_by_hand_is_held_from_then_on_and_reported_once() {
    let mut owner = Owner::new();
    let (borrowed, own) = (foreign(4), owner.put(&[]));
    owner.session.add_ref(borrowed);
    let hold = Notice::Hold { object: borrowed, process: process(1) };
    let escape = |owner: &mut Owner, object| {
        owner.act(|session, now, effects| session.escape(now, object, effects)).1
    };
    assert_eq!(escape(&mut owner, borrowed), [notices(&[hold])]);
    assert_eq!(escape(&mut owner, borrowed), []);
    assert_eq!(escape(&mut owner, own), [notices(&[shared(own, &[])])]);
    owner.act(|session, now, effects| session.before_reply(now, process(9), &[], effects));
    assert_eq!(owner.drop_ref(borrowed), []);
    assert_eq!(owner.flushed(), [Notice::Released { object: borrowed, tokens: 1 }]);
}

/// REF-2
#[test]
fn who_served_a_dead_caller_tells_what_it_uses_of_its_calls_before_it_says_so() {
    let mut actor = Owner::new();
    let (argument, read) = (foreign(4), foreign(5));
    actor.session.add_ref(read); // the user took it out of the argument's value
    let holds = [read, argument].map(|object| Notice::Hold { object, process: process(1) });
    let caller = process(9);
    let told = actor.act(|session, now, effects| {
        session.takes_over(now, caller, &[argument], effects);
    });
    assert_eq!(told.1, [notices(&holds), Effect::Node(ToNode::TookOver { caller })]);
    assert_eq!(actor.drop_ref(argument), []);
    assert_eq!(actor.flushed(), [Notice::Released { object: argument, tokens: 1 }]);
}

#[test]
fn a_private_stored_object_goes_without_the_daemon_hearing_of_it() {
    let mut owner = Owner::new();
    let object = owner.put_stored(1, &[]);
    let free = Effect::FreeStored { object, location: place(1) };
    assert_eq!(owner.drop_ref(object), [free]);
    owner.act(|session, now, effects| session.freed(now, object, effects));
    assert_eq!(owner.flushed(), []);
}

#[test]
fn a_private_stored_object_whose_seal_was_told_is_told_freed_or_released() {
    for refused in [false, true] {
        let mut owner = Owner::new();
        let object = owner.put_stored(1, &[]);
        owner.flushed();
        owner.drop_ref(object);
        let notice = if refused {
            owner.act(|session, now, effects| session.free_refused(now, object, effects));
            Notice::Released { object, tokens: 1 }
        } else {
            owner.act(|session, now, effects| session.freed(now, object, effects));
            Notice::Freed { object }
        };
        assert_eq!(owner.flushed(), [notice]);
    }
}

#[test]
fn what_is_to_be_on_several_nodes_is_told_at_once_and_not_freed_alone() {
    let mut owner = Owner::new();
    let object = owner.put_stored(1, &[]);
    let (_, effects) =
        owner.act(|session, now, effects| session.put_copies(now, object, 2, effects));
    let sealed =
        Notice::Sealed { object, location: place(1), contains: vec![], holder: process(1) };
    assert_eq!(effects, [notices(&[sealed, Notice::Copies { object, copies: 2 }])]);
    assert_eq!(owner.drop_ref(object), []);
    assert_eq!(owner.flushed(), [Notice::Released { object, tokens: 1 }]);
}

/// It was lost when who had made the call that brought it died, and then this process, while a third one served it (seed 130067188).
#[test]
fn a_borrowed_ref_that_is_passed_on_is_held_here_before() {
    let mut owner = Owner::new();
    let borrowed = foreign(4);
    owner.session.add_ref(borrowed);
    let (task, _) = owner.submit(with_nested(&[borrowed]));
    let hold = Notice::Hold { object: borrowed, process: process(1) };
    assert_eq!(owner.granted(1, W), [notices(&[hold]), placed(W, task.seq)]);
}

#[test]
fn what_a_refused_free_contained_is_reported_before_it_is_released() {
    let mut owner = Owner::new();
    let borrowed = foreign(4);
    owner.session.add_ref(borrowed);
    let object = owner.put_stored(1, &[borrowed]);
    owner.flushed();
    owner.drop_ref(object);
    owner.act(|session, now, effects| session.free_refused(now, object, effects));
    let hold = Notice::Hold { object: borrowed, process: process(1) };
    assert_eq!(owner.flushed(), [hold, Notice::Released { object, tokens: 1 }]);
}

#[test]
fn a_borrowed_ref_is_reported_before_its_container_is_released() {
    let mut owner = Owner::new();
    let task = owner.task();
    owner.granted(1, W);
    let inner = foreign(4);
    owner.reply(W, task, &[Returned { value: stored(1), contains: vec![inner] }]);
    owner.session.add_ref(inner); // the user took it out of the value
    owner.drop_ref(task.object(0));
    let hold = Notice::Hold { object: inner, process: process(1) };
    let released = Notice::Released { object: task.object(0), tokens: 1 };
    assert_eq!(owner.flushed(), [hold, released]);
}

#[test]
fn a_result_that_nobody_wants_any_more_is_given_back() {
    let mut owner = Owner::new();
    let task = owner.task();
    owner.granted(1, W);
    owner.drop_ref(task.object(0));
    owner.reply(W, task, &[returned(stored(1))]);
    assert_eq!(owner.flushed(), [Notice::Released { object: task.object(0), tokens: 1 }]);
}

#[test]
fn a_pending_result_that_others_know_is_fulfilled_though_nobody_here_wants_it() {
    let mut owner = Owner::new();
    let task = owner.task();
    let (user, _) = owner.submit(with_nested(&[task.object(0)]));
    owner.granted(1, W);
    owner.granted(2, X);
    let tasks = &owner.session.tasks;
    let (first, second) = match tasks[&task.seq].stage {
        super::super::Stage::Placed { worker } if worker == process(W) => (W, X),
        _ => (X, W),
    };
    assert!(owner.session.needs_progress());
    owner.reply(second, user, &[returned(inline(b""))]);
    assert!(owner.session.needs_progress(), "somebody elsewhere may wait for it");
    owner.drop_ref(task.object(0));
    owner.flushed();
    owner.reply(first, task, &[returned(inline(b"1"))]);
    let object = task.object(0);
    let fulfilled = Notice::Fulfilled { object, value: inline(b"1"), contains: vec![] };
    assert_eq!(owner.session.next_deadline(), Some(owner.now), "it is told at once");
    assert_eq!(owner.flushed(), [fulfilled, Notice::Released { object, tokens: 1 }]);
}

#[test]
fn messages_that_listed_millions_of_refs_ended_their_process() {
    let mut owner = Owner::new();
    let borrowed = |seq| TaskId { owner: process(2), seq }.object(0);
    let inner: Vec<ObjectId> = (0..60_000).map(borrowed).collect();
    let mut sent = Vec::new();
    for slot in 1..=3 {
        let object = owner.session.next_put();
        let put = |session: &mut SessionMachine, now, effects: &mut Vec<Effect>| {
            session.put_stored(now, object, place(slot), &inner, effects);
        };
        sent.extend(owner.act(put).1);
    }
    let wanted: Vec<ObjectId> = (0..250_000).map(borrowed).collect();
    wanted.iter().for_each(|object| owner.session.add_ref(*object));
    sent.extend(owner.act(|session, _, effects| session.want(&wanted, effects)).1);
    let refs = |effect: &Effect| match effect {
        Effect::Node(ToNode::Notices(notices)) => notices.iter().map(Notice::refs).sum(),
        Effect::Node(ToNode::Want { objects }) => objects.len(),
        other => panic!("{other:?}"),
    };
    let refs: Vec<usize> = sent.iter().map(refs).collect();
    assert_eq!(refs, [60_000, 60_000, 60_000, 100_000, 100_000, 50_000]);
}

#[test]
fn a_moved_object_of_our_own_is_the_daemons_to_free() {
    let mut owner = Owner::new();
    let object = owner.put_stored(1, &[]);
    owner.flushed();
    let effects =
        owner.act(|session, _, effects| session.location_stale(object, place(1), effects)).1;
    assert_eq!(effects, [Effect::Node(ToNode::Want { objects: vec![object] })]);
    owner.handle(Event::Ready { object, value: stored(7), contains: vec![] });
    assert_eq!(owner.drop_ref(object), []);
    assert_eq!(owner.flushed(), [Notice::Released { object, tokens: 1 }]);
}

/// The process ended with a panic (seed 65403).
#[test]
fn a_moved_object_may_be_gone_when_its_last_user_fails_with_it() {
    let mut owner = Owner::new();
    let inner = owner.put(&[]);
    let object = owner.put_stored(1, &[inner]);
    owner.flushed();
    owner.act(|session, _, effects| session.location_stale(object, place(1), effects));
    let (task, _) = owner.submit(with_refs(&[object]));
    owner.drop_ref(object);
    owner.drop_ref(inner);
    owner.handle(Event::Ready { object, value: failed(FailureKind::ObjectLost), contains: vec![] });
    assert_eq!(owner.kind_of(task.object(0)), FailureKind::ObjectLost);
    assert!(!owner.session.objects.contains_key(&object));
    assert!(!owner.session.objects.contains_key(&inner), "nor what it contains");
}

#[test]
fn a_reply_that_comes_after_the_daemons_word_counts_its_refs_once() {
    let mut owner = Owner::new();
    let task = owner.task();
    owner.granted(1, W);
    let (object, inner) = (task.object(0), foreign(4));
    owner.session.borrow_stored(object, place(1)); // came back as an argument
    owner.reply(W, task, &[Returned { value: stored(1), contains: vec![inner] }]);
    owner.drop_ref(object);
    owner.drop_ref(object);
    assert!(owner.session.value(object).is_none());
    assert!(!owner.session.objects.contains_key(&inner));
}

#[test]
fn an_adopted_task_keeps_what_lies_in_its_arguments() {
    let mut owner = Owner::new();
    let nested = owner.put(&[]);
    let call = Call {
        options: Arc::new(CallOptions { max_retries: 3, ..options() }),
        ..with_nested(&[nested])
    };
    let (task, _) = owner.submit(call);
    owner.submit(with_nested(&[task.object(0)]));
    let effects = [owner.granted(1, W), owner.granted(2, X)].concat();
    let lineage = effects.iter().find_map(|effect| match effect {
        Effect::Node(ToNode::Notices(notices)) => notices.iter().find_map(|notice| match notice {
            Notice::Shared { state: SharedState::Pending { lineage }, .. } => lineage.clone(),
            _ => None,
        }),
        _ => None,
    });
    let lineage = lineage.unwrap();
    assert_eq!(lineage.contains, [nested]);

    let mut heir = Owner { session: SessionMachine::new(process(2), JobId(1)), now: owner.now };
    let objects = vec![task.object(0)];
    heir.session.add_ref(task.object(0));
    let lineage = Box::new(lineage);
    let effects = heir.handle(Event::Adopt { lineage, objects });
    assert!(mentions(&effects, nested), "{effects:?}");
    assert!(heir.session.objects.contains_key(&nested));
    heir.granted(1, W);
    let seq = *heir.session.tasks.keys().next().unwrap();
    let reply = header(seq, ReplyKind::Finished, 1);
    heir.reply_with(W, reply, &[returned(inline(b"again"))]);
    assert_eq!(heir.session.value(task.object(0)), Some(&inline(b"again")));
    assert!(!heir.session.objects.contains_key(&nested));
}

/// It had the value alone, and told the daemon of the object as if it were its own. That was at home at another node.
#[test]
fn what_an_heir_got_by_value_is_not_its_object_when_a_ref_of_it_comes() {
    let mut dead = Owner { session: SessionMachine::new(process(9), JobId(1)), ..Owner::new() };
    let value = dead.put(&[]);
    let pending = dead.task().object(0);
    let options = Arc::new(CallOptions { max_retries: 1, ..options() });
    let (task, _) = dead.submit(Call { options, ..with_refs(&[value, pending]) });
    let lineage = dead.act(|session, now, effects| session.lineage(now, task.object(0), effects)).0;
    let lineage = lineage.unwrap();
    assert_eq!(lineage.contains, [pending]);

    let mut heir = Owner::new();
    heir.session.add_ref(task.object(0));
    let mut effects =
        heir.handle(Event::Adopt { lineage: Box::new(lineage), objects: vec![task.object(0)] });
    let (object, contains) = (pending, vec![value]);
    effects.extend(heir.handle(Event::Ready { object, value: inline(b"y"), contains }));
    effects.extend(heir.granted(1, W));
    let seq = *heir.session.tasks.keys().next().unwrap();
    assert!(heir.runs_at(TaskId { owner: process(1), seq }, process(W)));
    let notices: Vec<Notice> = effects.into_iter().filter_map(noticed).flatten().collect();
    let shared = |it: &Notice| matches!(it, Notice::Shared { object, .. } if *object == value);
    assert!(!notices.iter().any(shared), "{notices:?}");
}

/// Its worker asked for the function as of the adopter's job, which had never exported it (seed 1142197).
#[test]
fn the_call_of_an_adopted_task_names_the_job_of_its_owner() {
    let mut dead = Owner { session: SessionMachine::new(process(9), JobId(9)), ..Owner::new() };
    let (task, _) = dead.submit(call(CallOptions { max_retries: 1, ..options() }));
    let lineage = dead.act(|session, now, effects| session.lineage(now, task.object(0), effects)).0;
    let mut heir = Owner::new();
    heir.session.add_ref(task.object(0));
    let objects = vec![task.object(0)];
    heir.handle(Event::Adopt { lineage: Box::new(lineage.unwrap()), objects });
    heir.granted(1, W);
    let seq = *heir.session.tasks.keys().next().unwrap();
    let frame = heir.session.frame(seq).unwrap();
    let frame = [&frame.header[..], frame.args, &frame.extra, frame.refs].concat();
    assert_eq!(CallView::parse(&frame).unwrap().header.job, JobId(9));
    let (own, _) = heir.submit(call(options()));
    let frame = heir.session.frame(own.seq).unwrap();
    let frame = [&frame.header[..], frame.args, &frame.extra, frame.refs].concat();
    assert_eq!(CallView::parse(&frame).unwrap().header.job, JobId(1));
}

fn noticed(effect: Effect) -> Option<Vec<Notice>> {
    match effect {
        Effect::Node(ToNode::Notices(notices)) => Some(notices),
        _ => None,
    }
}

#[test]
fn to_cancel_an_adopted_task_did_nothing() {
    let mut heir = Owner::new();
    let mut dead = Owner { session: SessionMachine::new(process(9), JobId(1)), now: heir.now };
    let (task, _) = dead.submit(call(CallOptions { max_retries: 1, ..options() }));
    let lineage = dead.act(|session, now, effects| session.lineage(now, task.object(0), effects)).0;
    heir.session.add_ref(task.object(0));
    let objects = vec![task.object(0)];
    heir.handle(Event::Adopt { lineage: Box::new(lineage.unwrap()), objects });
    heir.granted(1, W);
    let seq = *heir.session.tasks.keys().next().unwrap();
    let cancel = Event::Cancel { task, force: false, recursive: true };
    assert_eq!(heir.handle(cancel), [Effect::Revoke { worker: process(W), seqs: vec![seq] }]);
    // It runs: its worker is told the name that stands in its call.
    let kept = Event::Revoked { worker: process(W), seqs: vec![], kept: vec![seq] };
    let message = Tell::Cancel { task, recursive: true };
    let told = Effect::Node(ToNode::Tell { to: process(W), message });
    assert!(heir.handle(kept).contains(&told));
}

#[test]
fn one_failed_value_of_an_adopted_task_fails_only_itself() {
    let mut heir = Owner::new();
    let mut dead = Owner { session: SessionMachine::new(process(9), JobId(1)), now: heir.now };
    let several = CallOptions { returns: 2, max_retries: 1, ..options() };
    let (task, _) = dead.submit(call(several));
    let lineage = dead.act(|session, now, effects| session.lineage(now, task.object(0), effects)).0;
    let objects = vec![task.object(0), task.object(1)];
    heir.session.add_ref(task.object(0));
    heir.session.add_ref(task.object(1));
    heir.handle(Event::Adopt { lineage: Box::new(lineage.unwrap()), objects });
    heir.granted(1, W);
    let seq = *heir.session.tasks.keys().next().unwrap();
    let values = [returned(failed(FailureKind::StoreFull)), returned(inline(b"2"))];
    heir.reply_with(W, header(seq, ReplyKind::Finished, 1), &values);
    assert_eq!(heir.kind_of(task.object(0)), FailureKind::StoreFull);
    assert_eq!(heir.session.value(task.object(1)), Some(&inline(b"2")));
}

#[test]
fn what_cannot_be_read_now_fails_who_waits_and_never_becomes_the_objects_value() {
    let mut owner = Owner::new();
    let object = owner.put_stored(1, &[]);
    owner.flushed();
    let asks = [Effect::Node(ToNode::Want { objects: vec![object] })];
    let want =
        |owner: &mut Owner| owner.act(|session, _, effects| session.want(&[object], effects)).1;
    let unreadable = |owner: &mut Owner| {
        let failure = Failure::new(FailureKind::ObjectLost, "input/output error");
        owner.handle(Event::Unreadable { object, failure })
    };
    let moved = owner.act(|session, _, effects| session.location_stale(object, place(1), effects));
    assert_eq!(moved.1, asks);
    let (task, _) = owner.submit(with_refs(&[object]));
    // The task that waits fails; so does who reads now.
    unreadable(&mut owner);
    assert_eq!(owner.text_of(task.object(0)), "input/output error");
    assert_eq!(owner.text_of(object), "input/output error");
    // Who reads after that asks again, and so does who never looked.
    assert!(owner.session.failure_told(object));
    assert!(!owner.session.failure_told(object));
    assert_eq!(owner.session.value(object), None);
    assert_eq!(want(&mut owner), asks);
    unreadable(&mut owner);
    let (task, effects) = owner.submit(with_refs(&[object]));
    assert_eq!(effects, [Effect::Node(ToNode::WantWord { objects: vec![object] })]);
    owner.handle(Event::Ready { object, value: stored(2), contains: vec![] });
    assert_eq!(owner.session.value(object), Some(&stored(2)));
    assert!(!owner.session.is_ready(task.object(0)));
    // It comes too late: there is a value.
    unreadable(&mut owner);
    assert_eq!(owner.session.value(object), Some(&stored(2)));
}

#[test]
fn memory_was_given_back_before_all_of_it_was_free_and_then_never_again() {
    let mut owner = Owner::new();
    let puts: Vec<_> = (0..2 * TABLE_ROOM_KEPT).map(|_| owner.put(&[])).collect();
    let effects = owner.act(|session, now, effects| session.drop_all(now, &puts, effects)).1;
    assert_eq!(effects, []);
    assert_eq!(owner.session.next_deadline(), Some(owner.now + MEMORY_DELAY));
    assert_eq!(owner.later(MEMORY_DELAY), [Effect::ReturnMemory]);
    assert_eq!((owner.session.next_deadline(), owner.later(MEMORY_DELAY)), (None, vec![]));
}
