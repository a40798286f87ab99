//! Items of a generator.

use hoplo_wire::call::CALL_STREAMING;
use hoplo_wire::node::Tell;

use super::*;
use crate::session::StreamNext;

fn streaming() -> CallOptions {
    CallOptions { flags: CALL_STREAMING, returns: 0, max_retries: 1, ..options() }
}

pub(super) fn item(
    owner: &mut Owner,
    worker: u32,
    task: TaskId,
    attempt: u32,
    index: u32,
    one: Returned,
) {
    let header = ReplyHeader { index, ..header(task.seq, ReplyKind::Item, attempt) };
    owner.reply_with(worker, header, &[one]);
}

pub(super) fn next(owner: &mut Owner, task: TaskId, taken: u32) -> StreamNext {
    owner.act(|session, _, effects| session.stream_next(task, taken, effects)).0
}

#[test]
fn items_come_in_order_and_the_end_after_them() {
    let mut owner = Owner::new();
    let task = owner.submit(call(streaming())).0;
    owner.granted(1, W);
    assert_eq!(next(&mut owner, task, 0), StreamNext::Pending);
    for index in 0..2 {
        item(&mut owner, W, task, 0, index, returned(inline(&[index as u8])));
    }
    owner.reply_with(W, header(task.seq, ReplyKind::StreamEnd, 0), &[]);
    assert_eq!(next(&mut owner, task, 0), StreamNext::Item(task.object(0)));
    assert_eq!(next(&mut owner, task, 1), StreamNext::Item(task.object(1)));
    assert_eq!(next(&mut owner, task, 2), StreamNext::End);
}

#[test]
fn items_of_a_second_run_are_dropped_and_give_their_tokens_back() {
    let mut owner = Owner::new();
    let task = owner.submit(call(streaming())).0;
    owner.granted(1, W);
    item(&mut owner, W, task, 0, 0, returned(stored(1)));
    owner.gone(W, &[]);
    owner.granted(2, X);
    owner.flushed();
    item(&mut owner, X, task, 1, 0, returned(stored(2)));
    let object = task.object(0);
    assert_eq!(owner.flushed(), [Notice::Released { object, tokens: 1 }]);
    assert_eq!(owner.session.value(object), Some(&stored(1)));
    item(&mut owner, X, task, 1, 1, returned(inline(b"new")));
    assert!(owner.session.is_ready(task.object(1)));
}

/// The reader had taken two values of many: the loop over them ended without a word after these.
#[test]
fn a_generator_that_yielded_less_when_it_ran_again_ended_as_if_that_were_all() {
    for (yields, ends) in [(1, false), (2, true)] {
        let mut owner = Owner::new();
        let task = owner.submit(call(streaming())).0;
        owner.granted(1, W);
        for index in 0..2 {
            item(&mut owner, W, task, 0, index, returned(inline(b"")));
        }
        owner.gone(W, &[]);
        owner.granted(2, X);
        for index in 0..yields {
            item(&mut owner, X, task, 1, index, returned(inline(b"")));
        }
        let end = ReplyHeader { index: yields, ..header(task.seq, ReplyKind::StreamEnd, 1) };
        owner.reply_with(X, end, &[]);
        assert_eq!(next(&mut owner, task, 0), StreamNext::Item(task.object(0)));
        assert_eq!(next(&mut owner, task, 1), StreamNext::Item(task.object(1)));
        if ends {
            assert_eq!(next(&mut owner, task, 2), StreamNext::End);
            continue;
        }
        assert_eq!(next(&mut owner, task, 2), StreamNext::Item(task.object(2)));
        assert_eq!(owner.kind_of(task.object(2)), FailureKind::ObjectLost);
        let text = owner.text_of(task.object(2));
        let says = format!("{task} of f ran again, and that run (attempt 1 at node ");
        assert!(text.starts_with(&says), "{text}");
        assert!(text.contains(") yielded 1 value, where an earlier one had yielded 2: "), "{text}");
        assert!(text.contains("max_retries=0"), "{text}");
        assert_eq!(next(&mut owner, task, 3), StreamNext::End);
    }
}

#[test]
fn a_second_run_hears_what_was_taken_of_the_first() {
    let mut owner = Owner::new();
    let task = owner.submit(call(CallOptions { stream_ahead: 1, ..streaming() })).0;
    owner.granted(1, W);
    item(&mut owner, W, task, 0, 0, returned(inline(b"")));
    next(&mut owner, task, 0);
    owner.gone(W, &[]);
    let message = Tell::Consumed { task, count: 1 };
    let tell = Effect::Node(ToNode::Tell { to: process(X), message });
    assert_eq!(owner.granted(2, X), [tell, placed(X, task.seq)]);
}

#[test]
fn a_failure_is_the_last_item() {
    let mut owner = Owner::new();
    let task = owner.submit(call(streaming())).0;
    owner.granted(1, W);
    item(&mut owner, W, task, 0, 0, returned(inline(b"")));
    let end = ReplyHeader { index: 1, ..header(task.seq, ReplyKind::StreamEnd, 0) };
    owner.reply_with(W, end, &[returned(failed(FailureKind::StoreFull))]);
    assert_eq!(next(&mut owner, task, 1), StreamNext::Item(task.object(1)));
    assert_eq!(owner.kind_of(task.object(1)), FailureKind::StoreFull);
    assert_eq!(next(&mut owner, task, 2), StreamNext::End);
}

#[test]
fn an_abandoned_stream_is_cancelled_and_what_still_comes_is_given_back() {
    let mut owner = Owner::new();
    let task = owner.submit(call(streaming())).0;
    owner.granted(1, W);
    item(&mut owner, W, task, 0, 0, returned(inline(b"")));
    let effects = owner.act(|session, now, effects| session.stream_drop(now, task, 0, effects)).1;
    assert_eq!(effects, [Effect::Revoke { worker: process(W), seqs: vec![task.seq] }]);
    owner.revoked(W, &[], &[task.seq]);
    item(&mut owner, W, task, 0, 1, returned(stored(2)));
    assert_eq!(owner.flushed(), [Notice::Released { object: task.object(1), tokens: 1 }]);
    owner.reply_with(W, header(task.seq, ReplyKind::StreamEnd, 0), &[]);
    assert_eq!(owner.session.unfinished(), 0);
    assert!(owner.session.objects.is_empty());
}

#[test]
fn an_item_that_was_spilled_is_asked_for_while_its_stream_runs() {
    let mut owner = Owner::new();
    let task = owner.submit(call(streaming())).0;
    owner.granted(1, W);
    item(&mut owner, W, task, 0, 0, returned(stored(1)));
    let object = task.object(0);
    let stale = |session: &mut SessionMachine, _, effects: &mut Vec<Effect>| {
        session.location_stale(object, place(1), effects);
    };
    let effects = owner.act(stale).1;
    assert_eq!(effects, [Effect::Node(ToNode::Want { objects: vec![object] })]);
}
