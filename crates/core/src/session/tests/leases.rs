//! Demand, recall, blocked workers, stalls, idle leases.

use hoplo_base::limits;
use hoplo_wire::reply::REPLY_RETIRING;

use super::*;

fn returns(lease: u64) -> Effect {
    Effect::Node(ToNode::LeaseReturn { lease: LeaseId(lease) })
}

fn revoke(worker: u32, tasks: &[TaskId]) -> Effect {
    let seqs = tasks.iter().map(|task| task.seq).collect();
    Effect::Revoke { worker: process(worker), seqs }
}

/// A lease on W whose function is known to take a microsecond.
fn quick() -> Owner {
    let mut owner = Owner::new();
    let task = owner.task();
    owner.granted(1, W);
    owner.reply(W, task, &[returned(inline(b""))]);
    owner
}

#[test]
fn demand_is_told_in_doubling_steps_and_withdrawn() {
    let mut owner = Owner::new();
    let told: Vec<Vec<Effect>> = (0..5).map(|_| owner.submit(call(options())).1).collect();
    assert_eq!(told, [vec![demand(1)], vec![demand(2)], vec![], vec![demand(4)], vec![]]);
    for lease in 0..5 {
        owner.granted(lease, 10 + lease as u32);
    }
    assert_eq!(owner.session.shapes[0].asked, 0);
}

#[test]
fn a_process_is_starved_while_its_tasks_have_no_worker_at_all() {
    let mut owner = Owner::new();
    assert!(!owner.session.is_starved());
    let task = owner.task();
    assert!(owner.session.is_starved());
    owner.granted(1, W);
    owner.task();
    assert!(!owner.session.is_starved(), "the second waits for a worker that is there");
    owner.handle(Event::Cancel { task, force: false, recursive: false });
    owner.gone(W, &[]);
    assert!(owner.session.is_starved());
}

#[test]
fn an_idle_lease_goes_back_after_its_time() {
    let mut owner = quick();
    let due = owner.session.next_deadline().unwrap();
    assert_eq!(due, owner.now + limits::LEASE_IDLE);
    assert_eq!(owner.later(limits::LEASE_IDLE), [returns(1)]);
    assert_eq!(owner.session.next_deadline(), None);
}

#[test]
fn a_recalled_lease_takes_nothing_more_and_goes_back_when_it_is_empty() {
    let mut owner = quick();
    let (started, queued) = (owner.task(), owner.task());
    let recall = Event::LeaseRecall { lease: LeaseId(1) };
    assert_eq!(owner.handle(recall), [revoke(W, &[started, queued])]);
    assert_eq!(owner.revoked(W, &[queued.seq], &[started.seq]), [demand(1)]);
    assert!(owner.session.needs_progress(), "somebody waits for the lease");
    assert_eq!(owner.reply(W, started, &[returned(inline(b""))]), [returns(1)]);
    owner.handle(Event::Cancel { task: queued, force: false, recursive: false });
    assert!(!owner.session.needs_progress());
}

#[test]
fn a_worker_is_killed_for_a_task_only_when_nothing_behind_it_can_begin_there() {
    let mut owner = quick();
    let (started, queued) = (owner.task(), owner.task());
    let force = Event::Cancel { task: started, force: true, recursive: false };
    assert_eq!(owner.handle(force), [revoke(W, &[started, queued])]);
    let worker = process(W);
    let effects = owner.revoked(W, &[queued.seq], &[started.seq]);
    assert!(effects.contains(&Effect::Node(ToNode::KillWorker { worker })), "{effects:?}");
    let placed = |effects: &[Effect]| effects.iter().any(|it| matches!(it, Effect::Place { .. }));
    assert!(!placed(&effects), "nothing is given to who is to die: {effects:?}");
    // Its reply was written just before.
    assert!(!placed(&owner.reply(W, started, &[returned(inline(b""))])));
    owner.gone(W, &[]);
    owner.granted(2, 8);
    owner.reply(8, queued, &[returned(inline(b"whole"))]);
    assert_eq!(owner.session.value(queued.object(0)), Some(&inline(b"whole")));
}

#[test]
fn a_task_whose_successor_has_begun_has_ended_and_no_worker_is_killed_for_it() {
    let mut owner = quick();
    let (ended, runs) = (owner.task(), owner.task());
    owner.handle(Event::Cancel { task: ended, force: true, recursive: false });
    assert_eq!(owner.revoked(W, &[], &[ended.seq, runs.seq]), []);
    owner.reply(W, ended, &[returned(inline(b"one"))]);
    owner.reply(W, runs, &[returned(inline(b"two"))]);
    assert_eq!(owner.session.value(runs.object(0)), Some(&inline(b"two")));
}

#[test]
fn a_recalled_lease_whose_reply_nobody_waits_for_is_drained() {
    let mut owner = quick();
    let task = owner.task();
    assert!(!owner.session.needs_progress());
    owner.handle(Event::LeaseRecall { lease: LeaseId(1) });
    owner.revoked(W, &[], &[task.seq]);
    assert!(owner.session.needs_progress());
}

#[test]
fn an_overdue_lease_is_drained() {
    let mut owner = quick();
    let task = owner.task();
    assert_eq!(owner.later(limits::LEASE_IDLE), []);
    assert!(owner.session.needs_progress());
    assert_eq!(owner.session.next_deadline(), None, "it does not tick for nothing");
    owner.reply(W, task, &[returned(inline(b""))]);
    assert!(!owner.session.needs_progress());
}

#[test]
fn a_blocked_worker_gives_back_what_it_has_not_started() {
    let mut owner = quick();
    let (started, queued) = (owner.task(), owner.task());
    let blocked = Event::WorkerBlocked { worker: process(W) };
    assert_eq!(owner.handle(blocked), [revoke(W, &[started, queued])]);
    assert_eq!(owner.revoked(W, &[queued.seq], &[started.seq]), [demand(1)]);
    assert_eq!(owner.granted(2, X), [placed(X, queued.seq)]);
}

#[test]
fn a_late_word_that_a_worker_blocked_does_not_close_its_lease() {
    let mut owner = quick();
    assert_eq!(owner.handle(Event::WorkerBlocked { worker: process(W) }), []);
    let (task, effects) = owner.submit(call(options()));
    assert_eq!(effects, [placed(W, task.seq)]);
    // Of two, all comes back: nothing had started, so nothing blocks.
    let behind = owner.task();
    let blocked = Event::WorkerBlocked { worker: process(W) };
    assert_eq!(owner.handle(blocked), [revoke(W, &[task, behind])]);
    let placed_again = [demand(1), placed(W, task.seq), placed(W, behind.seq), demand(0)];
    assert_eq!(owner.revoked(W, &[task.seq, behind.seq], &[]), placed_again);
}

#[test]
fn a_blocked_worker_with_one_task_is_asked_for_nothing_and_gets_nothing_more_before_it_replies() {
    let mut owner = quick();
    let blocks = owner.task();
    assert_eq!(owner.handle(Event::WorkerBlocked { worker: process(W) }), []);
    let (next, effects) = owner.submit(call(options()));
    assert_eq!(effects, [demand(1)]);
    let effects = owner.reply(W, blocks, &[returned(inline(b""))]);
    assert!(effects.contains(&placed(W, next.seq)), "{effects:?}");
}

#[test]
fn a_stalled_worker_is_asked_for_what_waits_behind() {
    let mut owner = quick();
    let (slow, queued) = (owner.task(), owner.task());
    assert_eq!(owner.later(Duration::from_millis(5)), [revoke(W, &[slow, queued])]);
    assert_eq!(owner.revoked(W, &[queued.seq], &[slow.seq]), [demand(1)]);
}

/// A worker of another node.
fn far(count: u32) -> ProcessId {
    let node = NodeNumber::alone(2);
    ProcessId::new(node, count, count as u16)
}

/// A lease on a far worker whose function is known to take a microsecond.
fn quick_far() -> Owner {
    let mut owner = Owner::new();
    let task = owner.task();
    let (lease, worker) = (LeaseId(1), far(W));
    owner.handle(Event::LeaseGranted { lease, key: 0, worker, gpus: vec![] });
    reply_far(&mut owner, task);
    owner
}

fn reply_far(owner: &mut Owner, task: TaskId) -> Vec<Effect> {
    let header = header(task.seq, ReplyKind::Finished, 0);
    let mut bytes = header.encode(1).to_vec();
    encode_returned(&[returned(inline(b""))], &mut bytes);
    let reply = |session: &mut SessionMachine, now, effects: &mut Vec<Effect>| {
        session.on_reply(now, far(W), &ReplyView::parse(&bytes).unwrap(), effects).unwrap();
    };
    owner.act(reply).1
}

fn revoked_far(owner: &mut Owner, seqs: &[u64], kept: &[u64]) -> Vec<Effect> {
    let (seqs, kept) = (seqs.to_vec(), kept.to_vec());
    owner.handle(Event::Revoked { worker: far(W), seqs, kept })
}

#[test]
fn a_far_worker_answers_a_recall_after_more_has_happened() {
    let mut owner = quick_far();
    let (started, queued) = (owner.task(), owner.task());
    let asked = Effect::Revoke { worker: far(W), seqs: vec![started.seq, queued.seq] };
    assert_eq!(owner.handle(Event::LeaseRecall { lease: LeaseId(1) }), [asked]);
    // Nothing is answered yet: a reply comes, and a task more.
    assert_eq!(reply_far(&mut owner, started), []);
    let (_, effects) = owner.submit(call(options()));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Place { .. })), "{effects:?}");
    // The last one leaves: then the lease goes back, and what came back waits for another worker.
    let effects = revoked_far(&mut owner, &[queued.seq], &[started.seq]);
    assert!(effects.contains(&returns(1)), "{effects:?}");
    let effects = owner.granted(2, X);
    assert!(effects.contains(&placed(X, queued.seq)), "{effects:?}");
}

#[test]
fn a_far_call_is_cancelled_when_the_answer_comes() {
    let mut owner = quick_far();
    let (kept, taken) = (owner.task(), owner.task());
    for task in [kept, taken] {
        let asked = Effect::Revoke { worker: far(W), seqs: vec![task.seq] };
        let cancel = Event::Cancel { task, force: false, recursive: false };
        assert_eq!(owner.handle(cancel), [asked]);
        assert!(!owner.session.is_ready(task.object(0)));
    }
    let effects = revoked_far(&mut owner, &[taken.seq], &[]);
    assert_eq!(owner.kind_of(taken.object(0)), FailureKind::Cancelled, "{effects:?}");
    let effects = revoked_far(&mut owner, &[], &[kept.seq]);
    let message = hoplo_wire::node::Tell::Cancel { task: kept, recursive: false };
    assert!(effects.contains(&Effect::Node(ToNode::Tell { to: far(W), message })), "{effects:?}");
}

#[test]
fn calls_went_on_at_a_far_worker_though_one_at_home_was_idle() {
    let mut owner = quick_far();
    owner.granted(2, X);
    for _ in 0..3 {
        let task = owner.task();
        assert!(owner.runs_at(task, process(X)), "a worker of this node comes first");
        owner.reply(X, task, &[returned(inline(b""))]);
    }
    // Whoever is placed elsewhere is still found there.
    let (at_home, away) = (owner.task(), owner.task());
    assert!(owner.runs_at(away, far(W)));
    reply_far(&mut owner, away);
    owner.reply(X, at_home, &[returned(inline(b""))]);
}

#[test]
fn a_loop_of_single_calls_stayed_at_a_far_worker_for_ever() {
    let mut owner = quick_far();
    let mut returned = Vec::new();
    for _ in 0..6 {
        owner.later(limits::LEASE_IDLE / 2);
        let task = owner.task();
        returned = reply_far(&mut owner, task);
        if !returned.is_empty() {
            break;
        }
    }
    assert_eq!(returned, [returns(1)], "the next call asks at home first");
}

#[test]
fn an_answer_that_comes_after_the_worker_died_changes_nothing() {
    let mut owner = quick_far();
    let (started, queued) = (owner.task(), owner.task());
    owner.handle(Event::LeaseRecall { lease: LeaseId(1) });
    let (process, obituary) = (far(W), died(W));
    let unstarted = vec![queued.seq];
    owner.handle(Event::ProcessGone { process, obituary, unstarted });
    assert_eq!(owner.kind_of(started.object(0)), FailureKind::WorkerCrashed);
    assert_eq!(revoked_far(&mut owner, &[queued.seq], &[started.seq]), []);
    assert!(owner.granted(2, X).contains(&placed(X, queued.seq)));
}

#[test]
fn an_idle_lease_helps_a_far_one_once_it_has_answered() {
    let mut owner = quick_far();
    let first = owner.task();
    let pace = ReplyHeader { ran_ns: 200_000, ..header(first.seq, ReplyKind::Finished, 0) };
    let mut bytes = pace.encode(1).to_vec();
    encode_returned(&[returned(inline(b""))], &mut bytes);
    owner.act(|session, now, effects| {
        session.on_reply(now, far(W), &ReplyView::parse(&bytes).unwrap(), effects).unwrap();
    });
    let tasks: Vec<TaskId> = (0..6).map(|_| owner.task()).collect();
    let effects = owner.granted(2, X);
    let asked = effects.iter().find_map(|effect| match effect {
        Effect::Revoke { worker, seqs } if *worker == far(W) => Some(seqs.clone()),
        _ => None,
    });
    let asked = asked.expect("the idle one takes over");
    reply_far(&mut owner, tasks[0]);
    let effects = revoked_far(&mut owner, &asked, &[]);
    assert!(
        effects
            .iter()
            .any(|it| matches!(it, Effect::Place { worker, .. } if *worker == process(X)))
    );
}

/// Two leases, eight tasks of 200 us each behind W, X idle.
fn one_idle() -> (Owner, Vec<TaskId>) {
    let mut owner = Owner::new();
    let first = owner.task();
    owner.granted(1, W);
    let pace = ReplyHeader { ran_ns: 200_000, ..header(first.seq, ReplyKind::Finished, 0) };
    owner.reply_with(W, pace, &[returned(inline(b""))]);
    let tasks: Vec<TaskId> = (0..4).map(|_| owner.task()).collect();
    (owner, tasks)
}

#[test]
fn an_idle_lease_takes_over_half_of_what_waits() {
    let (mut owner, tasks) = one_idle();
    assert_eq!(owner.granted(2, X), [demand(3), revoke(W, &tasks[2..])]);
    let seqs = [tasks[2].seq, tasks[3].seq];
    let effects = owner.revoked(W, &seqs, &[]);
    assert!(effects.contains(&placed(X, tasks[2].seq)), "{effects:?}");
}

#[test]
fn frames_that_were_all_taken_are_not_asked_for_without_end() {
    // Their replies lie in the ring: nothing changes until they are drained.
    let (mut owner, tasks) = one_idle();
    owner.granted(2, X);
    assert_eq!(owner.revoked(W, &[], &[tasks[2].seq, tasks[3].seq]), []);
}

#[test]
fn a_leaving_process_gives_its_leases_back() {
    let mut owner = quick();
    let effects = owner.act(|session, _, effects| session.return_leases(effects)).1;
    assert_eq!(effects, [returns(1)]);
}

#[test]
fn a_shape_for_which_no_worker_can_be_made_fails_what_waits_for_it() {
    let mut owner = Owner::new();
    let task = owner.task();
    let failure = Failure::new(FailureKind::RuntimeEnv, "no such module");
    owner.handle(Event::LeaseFailed { key: 0, failure });
    assert_eq!(owner.kind_of(task.object(0)), FailureKind::RuntimeEnv);
    assert_eq!(owner.submit(call(options())).1, [demand(1)]);
}

#[test]
fn a_task_for_which_there_is_no_place_was_not_named() {
    let mut owner = Owner::new();
    let task = owner.task();
    let text = "the task needs node abcdef, which is not in this cluster";
    let failure = Failure::new(FailureKind::TaskUnschedulable, text);
    owner.handle(Event::LeaseFailed { key: 0, failure });
    let text = owner.text_of(task.object(0));
    assert!(
        text.starts_with("task:") && text.contains(" cannot run: the task needs node"),
        "{text}"
    );
}

#[test]
fn what_no_node_has_is_said_once_and_again_when_something_else_is_lacking() {
    let mut owner = Owner::new();
    owner.task();
    let mut lines = |reason: &str| {
        let reason = Some(reason.to_string());
        let effects = owner.handle(Event::LeaseStuck { key: 0, reason, infeasible: true });
        effects.iter().filter(|effect| matches!(effect, Effect::Warn { .. })).count()
    };
    // The head has not heard yet of the nodes that joined before the call.
    assert_eq!(lines("needs CPU 1, node has 0"), 1);
    assert_eq!(lines("needs disk 3, node has 2 (node 1, the nearest of 2)"), 1);
    assert_eq!(lines("needs disk 3, node has 2 (node 1, the nearest of 3)"), 0);
}

#[test]
fn who_left_gave_back_a_worker_that_takes_no_more_calls() {
    let mut owner = Owner::new();
    let (task, _) = owner.submit(call(CallOptions { max_calls: 1, ..options() }));
    owner.granted(1, W);
    let reply = ReplyHeader { flags: REPLY_RETIRING, ..header(task.seq, ReplyKind::Finished, 0) };
    let retires = Effect::Node(ToNode::Retires { worker: process(W) });
    let effects = owner.reply_with(W, reply, &[returned(inline(b"1"))]);
    assert_eq!(effects.iter().filter(|effect| **effect == retires).count(), 1);
    let effects = owner.act(|session, _, effects| session.return_leases(effects)).1;
    assert_eq!(effects, [Effect::Node(ToNode::LeaseReturn { lease: LeaseId(1) })]);
}

/// A call of another shape, which takes half a CPU, and what is told of it.
fn narrow(owner: &mut Owner) -> (TaskId, Vec<Effect>) {
    let mut options = options();
    let resources = ResourceSet::from_units([("CPU", 0.5)]).unwrap();
    options.shape = Arc::new(Shape::of(resources));
    owner.submit(call(options))
}

fn idle_wanted(key: u32) -> Event {
    Event::LeaseIdleWanted { key }
}

#[test]
fn an_idle_lease_stayed_while_another_shape_of_its_holder_lacked_it() {
    let mut owner = quick();
    narrow(&mut owner);
    assert_eq!(owner.handle(idle_wanted(1)), [returns(1)]);
}

#[test]
fn a_lease_that_is_used_stays_until_it_falls_idle() {
    let mut owner = quick();
    let (first, second) = (owner.task(), owner.task());
    narrow(&mut owner);
    assert_eq!(owner.handle(idle_wanted(1)), []);
    let third = owner.submit(call(options()));
    assert_eq!(third.1, [placed(W, third.0.seq)]);
    assert_eq!(owner.reply(W, first, &[returned(inline(b""))]), []);
    assert_eq!(owner.reply(W, second, &[returned(inline(b""))]), []);
    assert_eq!(owner.reply(W, third.0, &[returned(inline(b""))]), [returns(1)]);
}

#[test]
fn no_more_idle_leases_go_than_are_lacking() {
    let mut owner = quick();
    owner.granted(2, X);
    narrow(&mut owner);
    assert_eq!(owner.handle(idle_wanted(1)), [returns(1)]);
    assert_eq!(owner.later(limits::LEASE_IDLE), [returns(2)]);
}

#[test]
fn an_idle_lease_stays_when_what_lacked_it_was_met_or_withdrawn_meanwhile() {
    let mut owner = quick();
    let (task, _) = narrow(&mut owner);
    owner.handle(Event::Cancel { task, force: false, recursive: false });
    assert_eq!(owner.handle(idle_wanted(1)), []);
    let mut owner = quick();
    let task = owner.task();
    narrow(&mut owner);
    owner.handle(idle_wanted(1));
    let (lease, worker) = (LeaseId(2), process(X));
    owner.handle(Event::LeaseGranted { lease, key: 1, worker, gpus: vec![] });
    assert_eq!(owner.reply(W, task, &[returned(inline(b""))]), []);
}
