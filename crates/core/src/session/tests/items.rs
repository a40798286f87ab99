//! Items of streams that were lost with a node are made again.

use hoplo_base::limits::LINEAGE_BYTES_MAX;
use hoplo_wire::call::{CALL_BACKPRESSURE, CALL_STREAMING, CallView};
use hoplo_wire::node::Tell;
use hoplo_wire::reply::REPLY_STOPPED;

use super::remake::{B, C, WHY, asks_for, at, places, retried, told};
use super::streams::{item, next};
use super::*;
use crate::session::StreamNext;

fn stream(max_retries: i32) -> Call {
    let flags = CALL_STREAMING;
    call(CallOptions { flags, returns: 0, max_retries, ..options() })
}

/// Of another node.
fn far(node: NodeNumber, count: u32) -> ProcessId {
    ProcessId::new(node, count, count as u16)
}

fn small() -> Returned {
    returned(inline(b"small"))
}

impl Owner {
    fn end(&mut self, seq: u64, attempt: u32, items: u32) -> Vec<Effect> {
        self.end_with(seq, attempt, items, &[])
    }

    fn end_with(&mut self, seq: u64, attempt: u32, items: u32, last: &[Returned]) -> Vec<Effect> {
        let end = ReplyHeader { index: items, ..header(seq, ReplyKind::StreamEnd, attempt) };
        self.reply_with(W, end, last)
    }

    /// It was told to stop after so many items.
    fn stopped(&mut self, seq: u64, attempt: u32, items: u32) -> Vec<Effect> {
        let end = ReplyHeader {
            index: items,
            flags: REPLY_STOPPED,
            ..header(seq, ReplyKind::StreamEnd, attempt)
        };
        self.reply_with(W, end, &[returned(failed(FailureKind::Cancelled))])
    }

    /// It yields so many items that lie at B, of which the reader takes all.
    fn streams(&mut self, call: Call, items: u32) -> TaskId {
        let task = self.submit(call).0;
        for index in 0..items {
            item(self, W, task, 0, index, at(B));
            assert_eq!(next(self, task, index), StreamNext::Item(task.object(index)));
        }
        task
    }

    fn streamed(&mut self, call: Call, items: u32) -> TaskId {
        let task = self.streams(call, items);
        self.end(task.seq, 0, items);
        assert_eq!(next(self, task, items), StreamNext::End);
        task
    }

    /// The one run that begins by this loss.
    fn run_for(&mut self, items: &[ObjectId]) -> TaskId {
        let effects = self.lost(items, B);
        let [seq] = places(&effects)[..] else { panic!("{effects:?}") };
        TaskId { owner: process(1), seq }
    }

    fn is_stopped(&mut self, effects: &[Effect], run: TaskId) {
        let revoke = Effect::Revoke { worker: process(W), seqs: vec![run.seq] };
        assert!(effects.contains(&revoke), "{effects:?}");
        self.revoked(W, &[], &[run.seq]);
        self.stopped(run.seq, 1, 9);
    }

    fn at_worker(&mut self, run: TaskId, attempt: u32, index: u32, value: Returned) -> Vec<Effect> {
        let header = ReplyHeader { index, ..header(run.seq, ReplyKind::Item, attempt) };
        self.reply_with(W, header, &[value])
    }
}

#[test]
fn items_of_a_stream_that_has_ended_are_made_again_in_one_run_which_ends_after_the_last_of_them() {
    let mut owner = Owner::with_worker();
    let paced = CallOptions { stream_ahead: 2, ..(*stream(3).options).clone() };
    let task = owner.streamed(call(paced), 5);
    let run = owner.run_for(&[task.object(1), task.object(3)]);
    assert!(!owner.session.is_ready(task.object(1)), "who needs it waits");
    let frame = owner.session.frame(run.seq).unwrap();
    let frame = [&frame.header[..], frame.args, &frame.extra, frame.refs].concat();
    let header = CallView::parse(&frame).unwrap().header;
    assert_eq!((header.task, header.attempt), (task, 1));
    assert_eq!(header.flags & CALL_BACKPRESSURE, 0, "nobody reads it");
    owner.flushed();
    owner.at_worker(run, 1, 0, at(C));
    let back = Notice::Released { object: task.object(0), tokens: 1 };
    assert_eq!(owner.flushed(), [back], "that was not lost");
    assert_eq!(owner.session.value(task.object(0)), Some(&at(B).value));
    for index in 1..3 {
        assert_eq!(owner.at_worker(run, 1, index, at(C)), []);
    }
    assert_eq!(owner.session.value(task.object(1)), Some(&at(C).value), "at once");
    let effects = owner.at_worker(run, 1, 3, at(C));
    owner.is_stopped(&effects, run);
    assert_eq!(owner.session.value(task.object(3)), Some(&at(C).value));
    assert_eq!(owner.session.unfinished(), 0);
    // The first run took none of its retries, and each loss takes one.
    for attempt in 2..4 {
        let run = owner.run_for(&[task.object(0)]);
        owner.at_worker(run, attempt, 0, at(B));
        owner.revoked(W, &[], &[run.seq]);
        owner.end(run.seq, attempt, 1);
    }
    let effects = owner.lost(&[task.object(0)], B);
    let text = owner.text_of(task.object(0));
    assert!(text.contains(WHY) && text.contains("f ran 4 times"), "{text}");
    assert_eq!(told(&effects).len(), 1, "{effects:?}");
}

#[test]
fn without_retries_the_error_of_an_item_says_what_to_set() {
    for ended in [false, true] {
        let mut owner = Owner::with_worker();
        let task = owner.streams(stream(0), 1);
        if ended {
            owner.end(task.seq, 0, 1);
        }
        assert_eq!(places(&owner.lost(&[task.object(0)], B)), []);
        let text = owner.text_of(task.object(0));
        assert!(text.contains(WHY) && text.contains("f has max_retries=0"), "{text}");
    }
}

#[test]
fn an_item_of_a_method_is_not_made_again_and_the_error_says_what_is() {
    let mut owner = Owner::new();
    let actor = actor_of(1, 1);
    let options = Arc::new(CallOptions { flags: CALL_STREAMING, returns: 0, ..options() });
    owner.session.add_ref(actor.handle());
    let method = Call { options, ..call(super::options()) };
    let submit = |session: &mut SessionMachine, now, effects: &mut Vec<Effect>| {
        session.submit_method(now, actor, method, None, effects).unwrap()
    };
    let task = owner.act(submit).0;
    let worker = process(W);
    let state = hoplo_wire::node::ActorState::Alive { worker, incarnation: 0, logs: false };
    owner.handle(Event::ActorState { actor, state });
    item(&mut owner, W, task, 0, 0, at(B));
    owner.lost(&[task.object(0)], B);
    let text = owner.text_of(task.object(0));
    assert!(text.contains("result of a method") && text.contains("returns or yields"), "{text}");
}

/// Its worker was at the node that died: the run that follows for the reader makes them, too.
#[test]
fn a_stream_that_runs_again_makes_what_is_lost_of_it_on_its_way() {
    for loss_first in [true, false] {
        let mut owner = Owner::new();
        let task = owner.submit(stream(1)).0;
        let (lease, worker) = (LeaseId(1), far(B, 7));
        owner.handle(Event::LeaseGranted { lease, key: 0, worker, gpus: vec![] });
        for index in 0..3 {
            let mut bytes =
                ReplyHeader { index, ..header(task.seq, ReplyKind::Item, 0) }.encode(1).to_vec();
            encode_returned(&[at(B)], &mut bytes);
            let reply = ReplyView::parse(&bytes).unwrap();
            owner.act(|session, now, effects| {
                session.on_reply(now, worker, &reply, effects).unwrap();
            });
        }
        next(&mut owner, task, 0);
        let gone = Event::ProcessGone { process: worker, obituary: died(7), unstarted: vec![] };
        let lost = [task.object(0), task.object(2)];
        if loss_first {
            assert_eq!(places(&owner.lost(&lost, B)), [] as [u64; 0]);
            owner.handle(gone);
        } else {
            owner.handle(gone);
            assert_eq!(places(&owner.lost(&lost, B)), [] as [u64; 0]);
        }
        assert_eq!(places(&owner.granted(2, W)), [task.seq]);
        // What the reader did not take, and is lost, is its next one all the same.
        let StreamNext::Item(_) = next(&mut owner, task, 1) else { panic!("it was there") };
        let StreamNext::Item(_) = next(&mut owner, task, 2) else { panic!("it is made again") };
        for index in 0..3 {
            item(&mut owner, W, task, 1, index, at(C));
        }
        let nodes: Vec<Option<&Value>> =
            (0..3).map(|index| owner.session.value(task.object(index))).collect();
        assert_eq!(nodes, [Some(&at(C).value), Some(&at(B).value), Some(&at(C).value)]);
        item(&mut owner, W, task, 1, 3, small());
        assert_eq!(next(&mut owner, task, 3), StreamNext::Item(task.object(3)));
        owner.end(task.seq, 1, 4);
        assert_eq!(next(&mut owner, task, 4), StreamNext::End);
    }
}

#[test]
fn what_a_stream_that_runs_is_past_is_made_by_another_run_beside_it_of_the_same_retries() {
    let mut owner = Owner::with_worker();
    let task = owner.streams(stream(2), 2);
    let seq = owner.run_for(&[task.object(0)]).seq;
    // It lies behind the first one, which waits for its reader.
    owner.handle(Event::WorkerBlocked { worker: process(W) });
    owner.revoked(W, &[seq], &[]);
    assert_eq!(places(&owner.granted(3, X)), [seq]);
    // The first one goes on for its reader, whose next item is not made again by anybody.
    assert_eq!(next(&mut owner, task, 2), StreamNext::Pending);
    let text = owner.session.explain(task.object(0));
    assert!(text.contains("made again"), "{text}");
    assert!(!owner.session.explain(task.object(2)).contains("made again"));
    let header = ReplyHeader { index: 0, ..header(seq, ReplyKind::Item, 1) };
    owner.reply_with(X, header, &[at(C)]);
    assert_eq!(owner.session.value(task.object(0)), Some(&at(C).value));
    // Their attempts have different numbers, and what one used up the other has not.
    owner.gone(W, &[]);
    let record = &owner.session.tasks[&task.seq];
    assert_eq!((record.attempt, record.retries_left), (2, 0));
    owner.gone(X, &[]);
    assert!(!owner.session.tasks.contains_key(&seq), "nothing was left for it to make");
}

#[test]
fn what_is_lost_when_the_run_is_past_it_is_made_by_the_next_run() {
    let mut owner = Owner::with_worker();
    let task = owner.streamed(stream(-1), 3);
    let run = owner.run_for(&[task.object(1)]);
    owner.at_worker(run, 1, 0, at(C));
    assert_eq!(places(&owner.lost(&[task.object(0), task.object(2)], B)), [] as [u64; 0]);
    owner.at_worker(run, 1, 1, at(C));
    assert!(!owner.session.is_ready(task.object(0)));
    owner.at_worker(run, 1, 2, at(C));
    assert_eq!(owner.session.value(task.object(2)), Some(&at(C).value));
    owner.revoked(W, &[], &[run.seq]);
    let effects = owner.end(run.seq, 1, 3);
    let [seq] = places(&effects)[..] else { panic!("{effects:?}") };
    owner.at_worker(TaskId { seq, ..run }, 2, 0, at(C));
    assert_eq!(owner.session.value(task.object(0)), Some(&at(C).value));
}

#[test]
fn a_stream_that_is_dropped_goes_on_until_what_was_lost_of_it_is_made() {
    let mut owner = Owner::new();
    let task = owner.submit(stream(1)).0;
    owner.granted(1, W);
    for index in 0..3 {
        item(&mut owner, W, task, 0, index, at(B));
        next(&mut owner, task, index);
    }
    owner.gone(W, &[]);
    owner.lost(&[task.object(1)], B);
    let effects = owner.act(|session, now, effects| session.stream_drop(now, task, 3, effects)).1;
    assert_eq!(effects, []);
    owner.granted(2, X);
    item(&mut owner, X, task, 1, 0, at(C));
    let header = ReplyHeader { index: 1, ..header(task.seq, ReplyKind::Item, 1) };
    let effects = owner.reply_with(X, header, &[at(C)]);
    assert!(effects.contains(&Effect::Revoke { worker: process(X), seqs: vec![task.seq] }));
    let tell = Tell::Cancel { task, recursive: false };
    let tell = Effect::Node(ToNode::Tell { to: process(X), message: tell });
    assert!(owner.revoked(X, &[], &[task.seq]).contains(&tell));
    assert_eq!(owner.session.value(task.object(1)), Some(&at(C).value));
}

#[test]
fn an_item_that_a_dropped_stream_had_yielded_is_made_again() {
    let mut owner = Owner::with_worker();
    let task = owner.streams(stream(1), 1);
    owner.act(|session, now, effects| session.stream_drop(now, task, 1, effects));
    owner.revoked(W, &[], &[task.seq]);
    owner.stopped(task.seq, 0, 1);
    let run = owner.run_for(&[task.object(0)]);
    let effects = owner.at_worker(run, 1, 0, at(C));
    owner.is_stopped(&effects, run);
    assert_eq!(owner.session.value(task.object(0)), Some(&at(C).value));
}

#[test]
fn a_run_that_yields_too_few_says_how_many_and_what_to_do() {
    let mut owner = Owner::with_worker();
    let task = owner.streamed(stream(1), 3);
    let run = owner.run_for(&[task.object(0), task.object(2)]);
    owner.at_worker(run, 1, 0, at(C));
    owner.end(run.seq, 1, 1);
    assert_eq!(owner.session.value(task.object(0)), Some(&at(C).value));
    let text = owner.text_of(task.object(2));
    assert_eq!(owner.kind_of(task.object(2)), FailureKind::ObjectLost);
    let (item, node) = (task.object(2), process(W).node().hex());
    let says = format!(
        "{item} is lost: {WHY}. {task} of f ran again to make it, and that run (attempt 1 at node {node}) yielded 1 value, where an earlier \
         one had yielded 3 values or more. Let f yield the same values in each run"
    );
    assert_eq!(text, says);
    assert_eq!(owner.session.unfinished(), 0);
}

#[test]
fn a_run_that_fails_is_what_the_items_are_that_it_did_not_come_to() {
    let mut owner = Owner::with_worker();
    let task = owner.streamed(stream(1), 3);
    let run = owner.run_for(&[task.object(0), task.object(2)]);
    owner.at_worker(run, 1, 0, small());
    let effects = owner.end_with(run.seq, 1, 1, &[returned(failed(FailureKind::StoreFull))]);
    assert_eq!(told(&effects), [(task.object(2), failed(FailureKind::StoreFull))]);
    assert_eq!(owner.session.value(task.object(0)), Some(&small().value));
}

#[test]
fn a_loss_that_is_told_before_the_item_was_read_is_made_good_after_it() {
    let mut owner = Owner::with_worker();
    let task = owner.submit(stream(1)).0;
    assert_eq!(places(&owner.lost(&[task.object(0)], B)), [] as [u64; 0], "it runs already");
    item(&mut owner, W, task, 0, 0, at(B));
    owner.end(task.seq, 0, 1);
    let run = TaskId { seq: *owner.session.tasks.keys().next().unwrap(), ..task };
    owner.at_worker(run, 1, 0, at(C));
    assert_eq!(owner.session.value(task.object(0)), Some(&at(C).value));
}

#[test]
fn a_cancellation_that_comes_to_the_worker_after_its_run_does_not_end_the_next_one() {
    let mut owner = Owner::with_worker();
    let task = owner.streamed(stream(2), 1);
    let run = owner.run_for(&[task.object(0)]);
    let effects = owner.stopped(run.seq, 1, 0);
    assert_eq!(places(&effects), [run.seq]);
    owner.at_worker(run, 2, 0, at(C));
    assert_eq!(owner.session.value(task.object(0)), Some(&at(C).value));
}

/// Found by a seed: it ran again as often as it might, for ever with `max_retries=-1`. That its argument was cancelled was taken for a word
/// to itself.
#[test]
fn a_generator_whose_argument_was_cancelled_has_failed() {
    let mut owner = Owner::with_worker();
    let task = owner.submit(stream(2)).0;
    let effects = owner.end_with(task.seq, 0, 0, &[returned(failed(FailureKind::Cancelled))]);
    assert_eq!(places(&effects), [] as [u64; 0]);
    assert_eq!(next(&mut owner, task, 0), StreamNext::Item(task.object(0)));
    assert_eq!(owner.kind_of(task.object(0)), FailureKind::Cancelled);
}

#[test]
fn the_argument_of_a_generator_is_made_again_first() {
    let mut owner = Owner::with_worker();
    let argument = owner.made(retried(3), B);
    let task = owner.streamed(Call { refs: vec![argument], ..stream(3) }, 2);
    owner.drop_ref(argument);
    owner.over(argument);
    assert_eq!(owner.keeps(), 2);
    let effects = owner.lost(&[task.object(1)], B);
    assert!(places(&effects).is_empty() && asks_for(&effects, argument), "{effects:?}");
    let [first] = places(&owner.unknown(argument))[..] else { panic!("it needs nothing") };
    let effects = owner.reply_with(W, header(first, ReplyKind::Finished, 1), &[at(C)]);
    assert_eq!(places(&effects).len(), 1, "{effects:?}");
}

#[test]
fn the_lineage_of_a_stream_goes_with_the_last_item_that_anybody_can_reach_and_when_it_is_too_much()
{
    let mut owner = Owner::with_worker();
    let task = owner.streamed(stream(3), 2);
    for index in 0..2 {
        assert_eq!(owner.keeps(), 1);
        owner.drop_ref(task.object(index));
        owner.over(task.object(index));
    }
    assert_eq!(owner.keeps(), 0);
    let large = || Call { args: vec![0; LINEAGE_BYTES_MAX / 3], ..stream(3) };
    let first = owner.streamed(large(), 1);
    for _ in 0..3 {
        owner.streamed(large(), 1);
    }
    assert_eq!(owner.keeps(), 2);
    owner.lost(&[first.object(0)], B);
    let text = owner.text_of(first.object(0));
    assert!(text.contains("too much memory"), "{text}");
}
