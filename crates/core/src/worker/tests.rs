//! Conversations with the worker machine.

use std::time::Duration;

use hoplo_base::{ActorId, FunctionId, Instant, JobId, NodeNumber, ResourceSet, limits};
use hoplo_wire::Value;
use hoplo_wire::call::{CallHeader, CallKind, encode_trailer};
use hoplo_wire::node::Shape;
use hoplo_wire::reply::Returned;

use super::*;

type Ring = VecDeque<u64>;

fn process(count: u32) -> ProcessId {
    ProcessId::new(NodeNumber::alone(1), count, count as u16)
}

fn task(seq: u64) -> TaskId {
    TaskId { owner: process(1), seq }
}

fn worker(rings: &[&[u64]]) -> Worker<Ring> {
    let mut worker = Worker::default();
    for (at, calls) in rings.iter().enumerate() {
        worker.connected(process(at as u32 + 1), calls.iter().copied().collect());
    }
    worker
}

/// The next call, or `None`.
fn next(worker: &mut Worker<Ring>) -> Option<u64> {
    let taken = worker.take(|_, ring| ring.pop_front().map_or(Found::Nothing, Found::Call));
    worker.check();
    taken.map(|taken| match taken.next {
        Next::Call(call) => call,
        Next::BecomeActor(_) => panic!("no order was given"),
    })
}

fn become_actor() -> BecomeActor {
    let spec = ActorSpec {
        actor: ActorId(task(1)),
        class_name: "A".to_string(),
        name: String::new(),
        namespace: String::new(),
        detached: false,
        shape: Shape::default(),
        held: ResourceSet::new(),
        max_restarts: 0,
        checkpoints: None,
        frame: vec![],
        contains: vec![],
        handle: vec![],
    };
    BecomeActor { spec: Box::new(spec), incarnation: 0, gpus: vec![], replay: None }
}

fn actor(calls: &[u64]) -> Worker<Ring> {
    let mut worker = worker(&[calls]);
    worker.ordered(become_actor());
    let taken = worker.take(|_, ring| ring.pop_front().map_or(Found::Nothing, Found::Call));
    let first = taken.map(|taken| taken.next);
    assert!(matches!(first, Some(Next::BecomeActor(_))), "WORK-2");
    worker
}

#[test]
fn a_caller_with_many_calls_does_not_keep_others_from_their_turn() {
    let mut worker = worker(&[&[10, 11, 12, 13], &[20], &[], &[40, 41]]);
    let order: Vec<u64> = std::iter::from_fn(|| next(&mut worker)).collect();
    assert_eq!(order, [10, 20, 40, 11, 41, 12, 13]);
    assert_eq!(worker.busy(), 7);
}

#[test]
fn who_writes_nonsense_is_not_served_any_more() {
    let mut worker = worker(&[&[1], &[2]]);
    let first = process(1);
    let look = |from, _: &mut Ring| if from == first { Found::Nonsense } else { Found::Call(0) };
    assert!(worker.take(look).is_none());
    assert!(worker.caller(first).is_none());
    assert_eq!(next(&mut worker), Some(2));
}

#[test]
fn a_call_of_a_caller_that_is_gone_is_dropped() {
    let mut worker = worker(&[&[1], &[2]]);
    assert_eq!(worker.disconnected(process(1)).port, Some(VecDeque::from([1])));
    assert_eq!(worker.disconnected(process(1)).port, None);
    assert_eq!((next(&mut worker), next(&mut worker)), (Some(2), None));
}

/// It went with its caller, and so did what lay in it and an actor had kept.
#[test]
fn what_calls_of_a_dead_caller_name_is_held_until_they_end() {
    let mut worker = worker(&[&[5, 6], &[7]]);
    let [a, b] = [1, 2].map(|index| task(9).object(index));
    let frame = |seq, named: &[ObjectId]| {
        let header = CallHeader {
            kind: CallKind::Method,
            flags: if named.is_empty() { 0 } else { CALL_NAMES },
            returns: 1,
            task: task(seq),
            attempt: 0,
            max_calls: 0,
            function: FunctionId([0; 16]),
            job: JobId(1),
        };
        let mut frame = header.encode(0, 0, 0).to_vec();
        if !named.is_empty() {
            encode_trailer(named, &mut frame);
        }
        frame
    };
    for (caller, seq, named) in [(1, 5, &[b, a][..]), (2, 7, &[a]), (1, 6, &[])] {
        assert_eq!(next(&mut worker), Some(seq));
        worker.took(process(caller), &frame(seq, named));
    }
    worker.took(process(1), &[1, CALL_NAMES]); // nonsense names nothing
    assert_eq!(worker.disconnected(process(1)).named, [a, b]);
    assert_eq!(worker.disconnected(process(1)).named, [], "once");
    assert_eq!(worker.ended(process(1), task(6)), []);
    assert_eq!(worker.ended(process(2), task(7)), [], "its caller lives, and holds it");
    assert_eq!(worker.ended(process(1), task(5)), [a, b]);
}

#[test]
fn who_retires_takes_nothing_more_and_who_leaves_empties_its_rings() {
    let mut retired = worker(&[&[1, 2]]);
    next(&mut retired);
    retired.retire("max_calls");
    assert_eq!(next(&mut retired), None);
    assert_eq!(retired.may_go(0), Leave::Wait, "the call that it began runs");
    assert_eq!(retired.ended(process(1), task(1)), []);
    retired.leave("told, too".to_string());
    assert_eq!(next(&mut retired), None, "it stays retired");
    assert_eq!(retired.may_go(0), Leave::Go { reason: "told, too".to_string() });

    let mut told = worker(&[&[1]]);
    told.leave("idle".to_string());
    assert_eq!(next(&mut told), Some(1));
    assert_eq!(told.ended(process(1), task(1)), []);
    assert_eq!(next(&mut told), None);
    assert_eq!(told.may_go(0), Leave::Go { reason: "idle".to_string() });
}

#[test]
fn who_waits_to_leave_lends_once_and_takes_back_when_a_call_comes() {
    let mut worker = worker(&[&[]]);
    worker.leave("idle".to_string());
    assert_eq!(worker.may_go(1), Leave::Lend);
    assert_eq!(worker.may_go(1), Leave::Wait);
    let taken = worker.take(|_, _| Found::Call(7)).unwrap();
    assert!(taken.takes_back, "WORK-4");
    assert_eq!(worker.ended(process(1), task(7)), []);
    assert_eq!(worker.may_go(1), Leave::Lend);
    assert_eq!(worker.may_go(0), Leave::Go { reason: "idle".to_string() });
    worker.check();
}

#[test]
fn only_what_runs_lends_and_an_actor_only_when_all_its_calls_wait() {
    let mut idle = worker(&[&[1]]);
    assert!(!idle.lend(), "nothing runs");
    next(&mut idle);
    assert!(idle.lend());
    assert!(idle.lend(), "a second thread of the task waits as well");
    assert!(!idle.take_back());
    assert!(idle.take_back(), "WORK-4: the last one");

    let mut actor = actor(&[1]);
    assert!(actor.lend(), "its constructor waits");
    assert!(actor.take_back());
    next(&mut actor);
    assert!(!actor.lend(), "its other call goes on");
}

#[test]
fn callbacks_lend_when_as_many_wait_as_calls_run() {
    let now = Instant(1);
    let later = now + limits::BLOCKED_AFTER;
    let mut actor = actor(&[1]);
    next(&mut actor);
    actor.callbacks_wait(now, 1);
    assert_eq!(actor.lends_at(), Some(later));
    assert!(!actor.callbacks_lend(now, 1), "not yet");
    assert!(!actor.callbacks_lend(later, 1), "one of two");
    actor.callbacks_wait(now, 2);
    assert!(actor.callbacks_lend(later, 2));
    actor.callbacks_wait(later, 3);
    assert_eq!(actor.lends_at(), None, "it is lent already");
    assert!(actor.goes_on(later, 1), "one fired");
    assert_eq!(actor.lends_at(), Some(later + limits::BLOCKED_AFTER));
    actor.check();
}

#[test]
fn a_starved_wait_lends_at_once() {
    for after in [limits::BLOCKED_AFTER, limits::BLOCKED_AFTER_FOR_ARGUMENTS] {
        assert!(Worker::<Ring>::is_long(true, Duration::ZERO, after));
        assert!(!Worker::<Ring>::is_long(false, after / 2, after));
        assert!(Worker::<Ring>::is_long(false, after, after));
    }
}

#[test]
fn a_stream_stops_ahead_of_its_reader_and_goes_on_when_it_took_or_is_gone() {
    let (reader, stream) = (process(1), task(5));
    let mut worker = worker(&[&[5]]);
    next(&mut worker);
    assert!(worker.has_credit(reader, stream, 1, 2));
    assert!(!worker.has_credit(reader, stream, 2, 2));
    worker.consumed(stream, 1);
    worker.consumed(stream, 0); // WORK-6: an older one that came late
    assert!(worker.has_credit(reader, stream, 2, 2));
    assert!(!worker.has_credit(reader, stream, 3, 2));
    worker.disconnected(reader);
    assert!(worker.has_credit(reader, stream, 3, 2));
}

#[test]
fn a_cancelled_call_is_forgotten_when_it_ended() {
    let mut worker = worker(&[&[5]]);
    next(&mut worker);
    worker.cancelled(task(5));
    assert!(worker.is_cancelled(task(5)));
    assert!(worker.has_credit(process(1), task(5), 9, 1), "it ends sooner");
    assert_eq!(worker.ended(process(1), task(5)), []);
    assert!(!worker.is_cancelled(task(5)));
}

#[test]
fn values_are_cut_so_that_each_frame_fits_and_none_is_lost() {
    let value =
        |bytes: usize| Returned { value: Value::Inline(vec![1; bytes].into()), contains: vec![] };
    assert_eq!(cuts(&[value(10), value(20)]), Vec::<usize>::new());
    let many: Vec<Returned> = (0..7).map(|_| value(60_000)).collect();
    assert_eq!(cuts(&many), [2, 4, 6]);
    assert_eq!(cuts(&[value(limits::INLINE_BYTES_MAX)]), Vec::<usize>::new());
}
