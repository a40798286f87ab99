//! Replies, crashes, retries, cancellation.

use hoplo_base::limits::WORKERS_UNTAKEN_MAX;
use hoplo_wire::call::CALL_RETRY_ANY;
use hoplo_wire::node::Tell;
use hoplo_wire::reply::{REPLY_RETIRING, REPLY_RETRYABLE};

use super::*;

#[test]
fn a_crash_costs_a_retry_only_for_what_had_started() {
    let mut owner = Owner::new();
    let quick = CallOptions { max_retries: 1, ..options() };
    let first = owner.submit(call(quick.clone())).0;
    owner.granted(1, W);
    owner.reply(W, first, &[returned(inline(b"1"))]); // now it is known to be quick
    let started = owner.submit(call(quick.clone())).0;
    let unstarted = owner.submit(call(quick)).0;
    owner.gone(W, &[unstarted.seq]);
    owner.granted(2, X);
    assert_eq!(owner.session.tasks[&started.seq].attempt, 1);
    assert_eq!(owner.session.tasks[&unstarted.seq].attempt, 0);
    owner.gone(X, &[unstarted.seq]);
    assert_eq!(owner.kind_of(started.object(0)), FailureKind::WorkerCrashed);
    assert!(!owner.session.is_ready(unstarted.object(0)));
}

#[test]
fn a_call_whose_workers_died_before_they_took_it_waited_for_new_ones_for_ever() {
    let mut owner = Owner::new();
    let task = owner.submit(call(CallOptions { max_retries: 1, ..options() })).0;
    let deaths = u64::from(WORKERS_UNTAKEN_MAX) + 2;
    for death in 1..=deaths {
        assert!(!owner.session.is_ready(task.object(0)), "SES-7: {death}");
        assert_eq!(owner.session.tasks[&task.seq].attempt, 0, "it never began");
        owner.granted(death, W);
        owner.gone(W, &[task.seq]);
    }
    assert_eq!(owner.kind_of(task.object(0)), FailureKind::WorkerCrashed);
    let text = owner.text_of(task.object(0));
    assert!(text.contains(&format!("{deaths} workers in a row died before they took")), "{text}");
    assert!(text.contains("SIGSEGV") && text.contains("goodbye"), "{text}");
}

#[test]
fn deaths_of_workers_that_ran_another_call_cost_those_behind_it_nothing() {
    let mut owner = Owner::new();
    let first = owner.task();
    owner.granted(1, W);
    owner.reply(W, first, &[returned(inline(b"1"))]); // now it is known to be quick
    let kills = owner.submit(call(CallOptions { max_retries: -1, ..options() })).0;
    let behind = owner.submit(call(CallOptions { max_retries: 0, ..options() })).0;
    for death in 0..2 * u64::from(WORKERS_UNTAKEN_MAX) {
        owner.gone(W, &[behind.seq]);
        owner.granted(2 + death, W);
    }
    assert_eq!(owner.session.tasks[&behind.seq].untaken, 0);
    assert!(!owner.session.is_ready(behind.object(0)) && !owner.session.is_ready(kills.object(0)));
}

#[test]
fn used_up_retries_are_told_with_the_signal_and_the_last_lines() {
    let mut owner = Owner::new();
    let task = owner.submit(call(CallOptions { max_retries: 1, ..options() })).0;
    owner.granted(1, W);
    owner.gone(W, &[]);
    owner.granted(2, X);
    owner.gone(X, &[]);
    let text = owner.text_of(task.object(0));
    assert!(text.contains("SIGSEGV") && text.contains("goodbye"), "{text}");
    assert!(text.contains("run 2 times"), "{text}");
}

#[test]
fn a_stale_reply_gives_back_what_it_brought() {
    let mut owner = Owner::new();
    let task = owner.submit(call(CallOptions { max_retries: 1, ..options() })).0;
    owner.granted(1, W);
    owner.gone(W, &[]);
    assert_eq!(owner.flushed(), [Notice::RepliesEnded { from: process(W), tokens: 0 }]);
    owner.granted(2, X);
    let inner = process(9);
    let inner = TaskId { owner: inner, seq: 4 }.object(0);
    owner.reply(W, task, &[returned(stored(3))]);
    owner.reply(W, task, &[Returned { value: inline(b""), contains: vec![inner] }]);
    assert_eq!(
        owner.flushed(),
        [task.object(0), inner].map(|object| Notice::Released { object, tokens: 1 })
    );
    assert!(!owner.session.is_ready(task.object(0)));
}

#[test]
fn a_failure_goes_along_the_chain_and_nothing_of_it_runs() {
    let mut owner = Owner::new();
    let first = owner.task();
    let second = owner.submit(with_refs(&[first.object(0)])).0;
    let third = owner.submit(with_refs(&[second.object(0)])).0;
    owner.granted(1, W);
    let effects = owner.reply(W, first, &[returned(failed(FailureKind::StoreFull))]);
    assert_eq!(effects, []);
    assert_eq!(owner.kind_of(third.object(0)), FailureKind::StoreFull);
    assert_eq!(owner.session.unfinished(), 0);
}

#[test]
fn failures_are_counted_so_that_who_waits_for_many_looks_only_then() {
    let mut owner = Owner::new();
    let (good, bad) = (owner.task(), owner.task());
    let after = owner.submit(with_refs(&[bad.object(0)])).0;
    owner.granted(1, W);
    owner.reply(W, good, &[returned(inline(b"1"))]);
    assert_eq!(owner.session.failures(), 0);
    owner.reply(W, bad, &[returned(failed(FailureKind::StoreFull))]);
    assert_eq!(owner.session.failures(), 2);
    let failed = [good, bad, after].map(|task| owner.session.has_failed(task.object(0)));
    assert_eq!(failed, [false, true, true]);
}

#[test]
fn a_ready_value_travels_in_the_frame_and_is_told_to_nobody() {
    let mut owner = Owner::new();
    let put = owner.put(&[]);
    let (task, effects) = owner.submit(with_refs(&[put]));
    assert_eq!(effects, [demand(1)]);
    assert_eq!(owner.granted(1, W), [placed(W, task.seq)]);
    let frame = owner.session.frame(task.seq).unwrap();
    assert!(frame.refs.ends_with(b"put"));
}

#[test]
fn a_task_whose_other_argument_is_still_asked_for_fails_alone() {
    // The pending one is borrowed, and nobody else here holds it.
    let mut owner = Owner::new();
    let borrowed = TaskId { owner: process(9), seq: 4 }.object(0);
    let own = owner.task();
    let task = owner.submit(with_refs(&[own.object(0), borrowed])).0;
    owner.granted(1, W);
    owner.reply(W, own, &[returned(failed(FailureKind::StoreFull))]);
    assert_eq!(owner.kind_of(task.object(0)), FailureKind::StoreFull);
}

#[test]
fn parts_of_a_run_that_crashed_are_not_values_of_the_next() {
    let mut owner = Owner::new();
    let options = CallOptions { returns: 2, max_retries: 1, ..options() };
    let task = owner.submit(call(options)).0;
    owner.granted(1, W);
    owner.reply_with(W, header(task.seq, ReplyKind::Part, 0), &[returned(stored(1))]);
    owner.gone(W, &[]);
    let ended = Notice::RepliesEnded { from: process(W), tokens: 1 };
    let released = Notice::Released { object: task.object(0), tokens: 1 };
    assert_eq!(owner.flushed(), [ended, released]);
    owner.granted(2, X);
    let values = [returned(inline(b"a")), returned(inline(b"b"))];
    owner.reply_with(X, header(task.seq, ReplyKind::Finished, 1), &values);
    assert_eq!(owner.session.value(task.object(0)), Some(&inline(b"a")));
    assert_eq!(owner.session.value(task.object(1)), Some(&inline(b"b")));
}

#[test]
fn an_exception_is_retried_as_often_as_allowed() {
    let mut owner = Owner::new();
    let options = CallOptions { max_retries: 1, flags: CALL_RETRY_ANY, ..options() };
    let task = owner.submit(call(options)).0;
    owner.granted(1, W);
    for attempt in 0..2 {
        let flags = REPLY_RETRYABLE;
        let header = ReplyHeader { flags, ..header(task.seq, ReplyKind::Finished, attempt) };
        owner.reply_with(W, header, &[returned(failed(FailureKind::StoreFull))]);
    }
    assert_eq!(owner.kind_of(task.object(0)), FailureKind::StoreFull);
}

#[test]
fn what_waits_is_cancelled_at_once_and_the_demand_withdrawn() {
    let mut owner = Owner::new();
    let queued = owner.task();
    let waiting = owner.submit(with_refs(&[queued.object(0)])).0;
    let cancel = |task| Event::Cancel { task, force: false, recursive: false };
    assert_eq!(owner.handle(cancel(waiting)), []);
    assert_eq!(owner.kind_of(waiting.object(0)), FailureKind::Cancelled);
    assert_eq!(owner.handle(cancel(queued)), [demand(0)]);
    assert_eq!(owner.kind_of(queued.object(0)), FailureKind::Cancelled);
}

#[test]
fn what_is_placed_is_taken_back_or_told_or_killed() {
    for (force, started) in [(false, false), (false, true), (true, true)] {
        let mut owner = Owner::new();
        let task = owner.task();
        owner.granted(1, W);
        let cancel = Event::Cancel { task, force, recursive: true };
        let worker = process(W);
        assert_eq!(owner.handle(cancel), [Effect::Revoke { worker, seqs: vec![task.seq] }]);
        if !started {
            owner.revoked(W, &[task.seq], &[]);
            assert_eq!(owner.kind_of(task.object(0)), FailureKind::Cancelled);
            continue;
        }
        let message = match force {
            true => ToNode::KillWorker { worker },
            false => ToNode::Tell { to: worker, message: Tell::Cancel { task, recursive: true } },
        };
        assert_eq!(owner.revoked(W, &[], &[task.seq]), [Effect::Node(message)]);
        owner.gone(W, &[]);
        assert_eq!(owner.kind_of(task.object(0)), FailureKind::Cancelled);
    }
}

#[test]
fn a_cancel_of_another_owners_task_is_passed_on() {
    let mut owner = Owner::new();
    let task = TaskId { owner: process(9), seq: 4 };
    let effects = owner.handle(Event::Cancel { task, force: false, recursive: true });
    let message = Tell::Cancel { task, recursive: true };
    assert_eq!(effects, [Effect::Node(ToNode::Tell { to: process(9), message })]);
}

#[test]
fn when_the_node_died_everything_fails_and_later_calls_do() {
    let mut owner = Owner::new();
    let first = owner.task();
    let second = owner.submit(with_refs(&[first.object(0)])).0; // fails with the first
    owner.granted(1, W);
    let borrowed = TaskId { owner: process(9), seq: 4 }.object(0);
    owner.session.add_ref(borrowed);
    let failure = Failure::new(FailureKind::NodeDied, "gone");
    owner.handle(Event::NodeDied { failure });
    for object in [first.object(0), second.object(0), borrowed] {
        assert_eq!(owner.kind_of(object), FailureKind::NodeDied);
    }
    let late = owner.task();
    assert_eq!(owner.kind_of(late.object(0)), FailureKind::NodeDied);
    let unknown = TaskId { owner: process(9), seq: 5 }.object(0);
    owner.session.add_ref(unknown);
    owner.act(|session, _, effects| session.want(&[unknown], effects));
    assert_eq!(owner.kind_of(unknown), FailureKind::NodeDied);
}

#[test]
fn a_retiring_worker_gets_nothing_more() {
    let mut owner = Owner::new();
    let task = owner.task();
    owner.granted(1, W);
    let flags = REPLY_RETIRING;
    let header = ReplyHeader { flags, ..header(task.seq, ReplyKind::Finished, 0) };
    let effects = owner.reply_with(W, header, &[returned(inline(b""))]);
    let retires = Effect::Node(ToNode::Retires { worker: process(W) });
    assert!(effects.contains(&retires), "the daemon is told: {effects:?}");
    let (_, effects) = owner.submit(call(options()));
    assert_eq!(effects, [demand(1)]);
    // Given back, it would be granted to somebody else on its way out.
    assert_eq!(owner.handle(Event::LeaseRecall { lease: LeaseId(1) }), []);
    assert_eq!(owner.later(hoplo_base::limits::LEASE_IDLE), []);
}

#[test]
fn a_second_result_shared_by_what_the_first_set_free_is_told() {
    // The actor waits for both; the first is complete, its creation is forced by a call that passes its
    // handle, and that lets go of the second before it has its value.
    let mut owner = Owner::new();
    let task = owner.submit(call(CallOptions { returns: 2, ..options() })).0;
    let actor_call = with_refs(&[task.object(0), task.object(1)]);
    let actor_call =
        Call { options: Arc::new(CallOptions { returns: 0, ..options() }), ..actor_call };
    let actor = owner.act(|s, now, effects| s.create_actor(now, actor_call, create(), effects)).0;
    let passes = Call { nested: vec![actor.handle()], ..with_refs(&[task.object(0)]) };
    owner.submit(passes);
    owner.drop_ref(task.object(0));
    owner.drop_ref(task.object(1));
    owner.granted(1, W);
    let mut effects = owner.reply(W, task, &[returned(inline(b"1")), returned(inline(b"2"))]);
    effects.push(notices(&owner.flushed()));
    let told = Notice::Fulfilled { object: task.object(1), value: inline(b"2"), contains: vec![] };
    let told = format!("{told:?}");
    assert!(effects.iter().any(|effect| format!("{effect:?}").contains(&told)), "{effects:#?}");
}
