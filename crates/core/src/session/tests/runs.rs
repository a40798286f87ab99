//! What has run is told to the daemon: by time, not by call.

use hoplo_base::limits::{RUN_FAILURE_BYTES_MAX, RUNS_TOLD_EVERY, RUNS_UNTOLD_MAX};
use hoplo_wire::node::{Run, Runs};

use super::*;

/// One call, which W has run.
fn ran(owner: &mut Owner) -> TaskId {
    let task = owner.submit(call(CallOptions { remembered: true, ..options() })).0;
    owner.granted(1, W);
    owner.reply(W, task, &[returned(inline(b""))]);
    task
}

fn again(owner: &mut Owner) -> TaskId {
    let task = owner.submit(call(CallOptions { remembered: true, ..options() })).0;
    owner.reply(W, task, &[returned(inline(b""))]);
    task
}

fn told(effects: &[Effect]) -> Vec<Runs> {
    let of_runs = effects.iter().filter_map(|effect| match effect {
        Effect::Node(ToNode::Ran(runs)) => Some(runs.clone()),
        _ => None,
    });
    of_runs.collect()
}

fn only(effects: &[Effect]) -> Runs {
    let [runs] = told(effects).try_into().expect("one message");
    runs
}

#[test]
fn what_ran_is_told_in_one_message_after_its_time_and_then_no_more() {
    let mut owner = Owner::new();
    let tasks = [ran(&mut owner), again(&mut owner), again(&mut owner)];
    assert!(owner.session.next_deadline().is_some());
    let before = owner.later(RUNS_TOLD_EVERY - Duration::from_millis(1));
    assert_eq!(told(&before), []);
    let runs = only(&owner.later(Duration::from_millis(1)));
    let of = |run: &Run| (run.task, run.worker, run.ran_ns);
    let worker = Some(process(W));
    let all: Vec<_> = runs.runs.iter().map(of).collect();
    assert_eq!(all, tasks.map(|task| (task, worker, 1000)));
    assert_eq!(runs.calls[runs.runs[0].call as usize].name, "f");
    assert_eq!(runs.runs[0].ago_us, RUNS_TOLD_EVERY.as_micros() as u64);
    owner.later(RUNS_TOLD_EVERY);
    assert_eq!(owner.session.next_deadline(), None, "it does not tick for nothing");
}

#[test]
fn of_more_runs_than_there_is_place_for_the_latest_are_told_and_the_others_counted() {
    let mut owner = Owner::new();
    ran(&mut owner);
    let last = (0..RUNS_UNTOLD_MAX).map(|_| {
        let task = again(&mut owner);
        owner.drop_ref(task.object(0)); // so that what is checked after each step is little
        task
    });
    let last = last.last();
    let runs = only(&owner.act(|session, now, effects| session.tell_runs(now, effects)).1);
    assert_eq!(runs.untold + runs.runs.len() as u64, RUNS_UNTOLD_MAX as u64 + 1);
    assert!(runs.untold > 0);
    assert_eq!(runs.runs.last().map(|run| run.task), last);
}

#[test]
fn a_failure_is_told_with_its_text_cut_whether_or_not_it_ran() {
    let mut owner = Owner::new();
    let remembered = || call(CallOptions { remembered: true, ..options() });
    let raised = owner.submit(remembered()).0;
    owner.granted(1, W);
    let text = "é".repeat(RUN_FAILURE_BYTES_MAX);
    let failure = Failure::new(FailureKind::OutOfMemory, text);
    owner.reply(W, raised, &[returned(Value::Failed(failure))]);
    let crashed = owner.submit(remembered()).0;
    let effects = owner.gone(W, &[]);
    assert_eq!(told(&effects), []);
    let runs = only(&owner.later(RUNS_TOLD_EVERY));
    let of = |run: &Run| (run.task, run.failure.as_ref().map(|failure| failure.kind));
    let all: Vec<_> = runs.runs.iter().map(of).collect();
    let kinds = [FailureKind::OutOfMemory, FailureKind::WorkerCrashed].map(Some);
    assert_eq!(all, [(raised, kinds[0]), (crashed, kinds[1])]);
    let texts: Vec<_> = runs.runs.iter().map(|run| &run.failure.as_ref().unwrap().text).collect();
    assert!(texts[0].len() <= RUN_FAILURE_BYTES_MAX + 3 && texts[0].ends_with("..."));
    assert_eq!((runs.runs[1].started_ns, runs.runs[1].ran_ns), (0, 0));
}

#[test]
fn nothing_is_told_of_calls_that_are_not_remembered_and_of_a_process_that_tells_nothing() {
    let mut owner = Owner::new();
    let task = owner.task();
    owner.granted(1, W);
    owner.reply(W, task, &[returned(inline(b""))]);
    assert_eq!(told(&owner.later(2 * RUNS_TOLD_EVERY)), []);
    let mut owner = Owner::new();
    owner.session.tell_no_runs();
    ran(&mut owner);
    assert_eq!(told(&owner.later(2 * RUNS_TOLD_EVERY)), []);
    assert_eq!(owner.session.next_deadline(), None);
}

#[test]
fn how_long_a_run_took_is_told_also_when_that_was_hours() {
    for ns in [0, 1, (1 << 31) - 1] {
        assert_eq!(ReplyHeader::ran(ReplyHeader::ran_of(ns)), ns);
    }
    let hours = 10 * 3600 * 1_000_000_000 + 999_999;
    assert_eq!(ReplyHeader::ran(ReplyHeader::ran_of(hours)), hours - 999_999);
    assert!(ReplyHeader::ran(ReplyHeader::ran_of(u64::MAX)) > hours);
}
