//! Method calls: their order, and what becomes of them when an actor goes.

use hoplo_base::limits::{ACTOR_DEPTH_LOGGED_MAX, WORKERS_UNTAKEN_MAX};
use hoplo_wire::node::ActorState;

use super::*;
use crate::session::SubmitError;

const A: ActorId = ActorId(TaskId { owner: ProcessId(9 << 16), seq: 3 });

fn method(max_retries: i32) -> Call {
    call(CallOptions { max_retries, ..options() })
}

impl Owner {
    fn method(&mut self, actor: ActorId, call: Call) -> (TaskId, Vec<Effect>) {
        self.method_of(None, actor, call)
    }

    fn method_of(
        &mut self,
        parent: Option<TaskId>,
        actor: ActorId,
        call: Call,
    ) -> (TaskId, Vec<Effect>) {
        let (task, effects) = self
            .act(|session, now, effects| session.submit_method(now, actor, call, parent, effects));
        (task.unwrap(), effects)
    }

    fn state(&mut self, actor: ActorId, state: ActorState) -> Vec<Effect> {
        self.handle(Event::ActorState { actor, state })
    }

    fn alive(&mut self, actor: ActorId, worker: u32) -> Vec<Effect> {
        self.state(
            actor,
            ActorState::Alive { incarnation: 0, worker: process(worker), logs: false },
        )
    }

    fn restarting(&mut self, actor: ActorId) -> Vec<Effect> {
        self.state(actor, ActorState::Restarting { incarnation: 1, cause: "boom".to_string() })
    }

    fn kills(&mut self, actor: ActorId) -> Vec<Effect> {
        self.act(|session, now, effects| session.kill_actor(now, actor, effects)).1
    }

    fn ends_worker_of(&mut self, actor: ActorId) -> Vec<Effect> {
        self.act(|session, _, effects| session.end_worker_of(actor, effects)).1
    }

    /// Its constructor needs the result of that task.
    fn creates_with(&mut self, task: TaskId, create: CreateActor) -> (ActorId, Vec<Effect>) {
        let options = Arc::new(CallOptions { returns: 0, ..options() });
        let constructor = Call { options, ..with_refs(&[task.object(0)]) };
        self.act(|session, now, effects| session.create_actor(now, constructor, create, effects))
    }
}

fn dead() -> ActorState {
    ActorState::Dead { failure: Failure::new(FailureKind::ActorDied, "it died") }
}

/// One that holds a handle of another's actor.
fn borrower() -> Owner {
    let mut owner = Owner::new();
    owner.session.actor_found(A);
    owner
}

/// What is said of a killed actor may be older than the kill, or come from a node that took its home's place.
#[test]
fn no_call_slips_into_an_actor_that_this_process_has_killed() {
    let mut owner = borrower();
    let kills = Effect::Node(ToNode::ActorKill { actor: A, no_restart: true, of: None });
    owner.method(A, method(-1));
    owner.restarting(A);
    let effects = owner.kills(A);
    assert_eq!(effects, std::slice::from_ref(&kills));
    let (late, _) = owner.method(A, method(-1));
    assert_eq!(owner.restarting(A), []);
    assert_eq!(owner.alive(A, 1), [kills], "it is killed there, too, and gets no call");
    owner.state(A, dead());
    assert_eq!(owner.kind_of(late.object(0)), FailureKind::ActorDied);
}

fn ends_worker(of: Option<u32>) -> Effect {
    Effect::Node(ToNode::ActorKill { actor: A, no_restart: false, of: of.map(process) })
}

/// The kill goes by way of the nodes, and calls go to the worker at once: one that was made after the kill ran where it was to run no more.
#[test]
fn no_call_slips_into_a_worker_that_this_process_has_ended() {
    let mut owner = borrower();
    let (first, _) = owner.method(A, method(0));
    owner.alive(A, 1);
    owner.reply(1, first, &[]);
    assert_eq!(owner.ends_worker_of(A), [ends_worker(Some(1))]);
    let (late, effects) = owner.method(A, method(0));
    assert_eq!(effects, []);
    assert_eq!(owner.alive(A, 1), [ends_worker(Some(1))], "its home may not have heard of it");
    assert_eq!(owner.restarting(A), []);
    assert_eq!(owner.alive(A, 2).last(), Some(&placed(2, late.seq)));
    owner.reply(2, late, &[]);
}

#[test]
fn who_ends_an_actors_worker_need_not_know_which_one_that_is() {
    let mut owner = borrower();
    let watches = Effect::Node(ToNode::ActorWatch { actor: A });
    assert_eq!(owner.ends_worker_of(A), [watches, ends_worker(None)]);
    let (late, _) = owner.method(A, method(0));
    assert_eq!(owner.alive(A, 1), [ends_worker(Some(1))], "as it was before that was heard");
    assert_eq!(owner.ends_worker_of(A), [ends_worker(None)], "or its next one");
    assert_eq!(owner.alive(A, 2).last(), Some(&placed(2, late.seq)));
    owner.reply(2, late, &[]);
}

#[test]
fn an_actor_that_starts_again_when_its_worker_is_to_end_is_called_where_it_lives_then() {
    let mut owner = borrower();
    owner.ends_worker_of(A);
    let (late, _) = owner.method(A, method(0));
    assert_eq!(owner.restarting(A), []);
    assert_eq!(owner.ends_worker_of(A), [ends_worker(None)]);
    assert_eq!(owner.alive(A, 2).last(), Some(&placed(2, late.seq)));
    owner.reply(2, late, &[]);
}

/// It had dropped its handle after the kill, and got another one before it heard that the actor was dead: what was said before the kill
/// was taken for the latest (seed 1285051).
#[test]
fn an_actor_that_was_killed_is_not_forgotten_with_its_handle() {
    let mut owner = borrower();
    owner.alive(A, 1);
    let kills = owner.kills(A);
    owner.drop_ref(A.handle());
    owner.session.actor_found(A);
    let (late, _) = owner.method(A, method(-1));
    assert_eq!(owner.alive(A, 1), kills[kills.len() - 1..], "it gets no call");
    owner.drop_ref(late.object(0));
    owner.drop_ref(A.handle());
    owner.state(A, dead());
    owner.session.actor_found(A);
    let (after, _) = owner.method(A, method(-1));
    assert_eq!(
        owner.alive(A, 1).len(),
        1,
        "nothing is kept of what is dead: its node says so again"
    );
    owner.state(A, dead());
    assert_eq!(owner.kind_of(after.object(0)), FailureKind::ActorDied);
}

/// As above: the call of the new handle ran in the worker that was to end (seed 100053979).
#[test]
fn a_worker_that_was_ended_is_not_forgotten_with_the_handle() {
    for known in [true, false] {
        let mut owner = borrower();
        let (first, _) = owner.method(A, method(0));
        owner.alive(A, 1);
        owner.reply(1, first, &[]);
        owner.drop_ref(first.object(0));
        if !known {
            owner.drop_ref(A.handle());
            owner.session.actor_found(A);
        }
        owner.ends_worker_of(A);
        owner.drop_ref(A.handle());
        assert_eq!(owner.alive(A, 1), [], "said before the end was heard");
        owner.session.actor_found(A);
        let (late, effects) = owner.method(A, method(0));
        assert_eq!(effects, [Effect::Node(ToNode::ActorWatch { actor: A })]);
        assert_eq!(owner.alive(A, 1), [ends_worker(Some(1))], "known: {known}");
        assert_eq!(owner.alive(A, 2).last(), Some(&placed(2, late.seq)));
        owner.reply(2, late, &[]);
    }
}

#[test]
fn nothing_is_kept_of_a_worker_that_was_ended_when_its_actor_has_left_it() {
    let restarting = ActorState::Restarting { incarnation: 1, cause: "boom".to_string() };
    let lives = ActorState::Alive { incarnation: 1, worker: process(2), logs: false };
    for left in [restarting, lives, dead()] {
        let mut owner = borrower();
        owner.ends_worker_of(A);
        owner.alive(A, 1);
        owner.drop_ref(A.handle());
        assert_eq!(owner.session.ended.len(), 1);
        owner.state(A, left);
        assert!(owner.session.ended.is_empty());
    }
}

#[test]
fn a_process_kills_an_actor_that_it_never_called() {
    let mut owner = borrower();
    let effects = owner.kills(A);
    let kills = Effect::Node(ToNode::ActorKill { actor: A, no_restart: true, of: None });
    assert_eq!(effects, [Effect::Node(ToNode::ActorWatch { actor: A }), kills.clone()]);
    let (late, effects) = owner.method(A, method(-1));
    assert_eq!(effects, []);
    assert_eq!(owner.alive(A, 1), [kills], "the node did not know it when it was told");
    owner.state(A, dead());
    assert_eq!(owner.kind_of(late.object(0)), FailureKind::ActorDied);
}

/// A far worker never took them, and the word of that came after the word of the next one's end (seed 327327): they cost a retry.
#[test]
fn calls_at_an_earlier_worker_are_not_those_of_a_later_one_that_is_gone() {
    let mut owner = borrower();
    let (call, _) = owner.method(A, method(0));
    owner.alive(A, 4);
    owner.restarting(A);
    assert_eq!(owner.alive(A, 5), [], "what became of the call is not known yet");
    owner.gone(5, &[]);
    owner.restarting(A);
    assert_eq!(owner.alive(A, 7), []);
    assert_eq!(owner.gone(4, &[call.seq]), [placed(7, call.seq)]);
}

#[test]
fn calls_wait_for_the_actor_and_go_in_order() {
    let mut owner = borrower();
    let pending = owner.task();
    let watch = Effect::Node(ToNode::ActorWatch { actor: A });
    let first = Call { refs: vec![pending.object(0)], ..method(0) };
    let (first, effects) = owner.method(A, first);
    assert_eq!(effects, [watch]);
    let (second, effects) = owner.method(A, method(0));
    assert_eq!(effects, []);
    assert_eq!(owner.alive(A, 7), []); // the first waits for its argument: nothing overtakes
    owner.granted(1, W);
    let effects = owner.reply(W, pending, &[returned(inline(b"1"))]);
    assert_eq!(effects, [placed(7, first.seq), placed(7, second.seq)]);
}

/// An actor that runs several calls at once waited for ever for an argument that only a later call of it could bring about.
#[test]
fn a_call_that_waits_for_its_argument_may_be_overtaken() {
    let mut owner = borrower();
    let (pending, failing) = (owner.task(), owner.task());
    let may = |refs| {
        let options = CallOptions { may_be_overtaken: true, ..options() };
        Call { refs, ..call(options) }
    };
    let (first, _) = owner.method(A, may(vec![pending.object(0)]));
    owner.alive(A, 7);
    let (fails, _) = owner.method(A, may(vec![failing.object(0)]));
    let (second, effects) = owner.method(A, may(vec![]));
    assert_eq!(effects, [placed(7, second.seq)]);
    let (third, effects) = owner.method(A, method(0));
    assert_eq!(effects, [placed(7, third.seq)]);
    let known = owner.session.link(crate::why::Thing::Actor(A)).unwrap();
    assert!(known.says.to_string().contains("2 calls sent, 2 queued"), "{known:?}");

    owner.granted(1, W);
    let effects = owner.reply(W, pending, &[returned(inline(b"1"))]);
    assert!(effects.contains(&placed(7, first.seq)), "{effects:?}");
    owner.reply(W, failing, &[returned(Value::Failed(Failure::new(FailureKind::Cancelled, "no")))]);
    assert_eq!(owner.kind_of(fails.object(0)), FailureKind::Cancelled);
    let known = owner.session.link(crate::why::Thing::Actor(A)).unwrap();
    assert!(known.says.to_string().contains("3 calls sent, 0 queued"), "{known:?}");
}

#[test]
fn calls_that_may_be_overtaken_fail_with_their_actor() {
    let mut owner = borrower();
    let pending = owner.task();
    let options = CallOptions { may_be_overtaken: true, ..options() };
    let waits = Call { refs: vec![pending.object(0)], ..call(options) };
    let (waits, _) = owner.method(A, waits);
    owner.alive(A, 7);
    owner.state(A, dead());
    assert_eq!(owner.kind_of(waits.object(0)), FailureKind::ActorDied);
}

/// Its worker keeps the replies of so many calls of each caller, and no more.
#[test]
fn few_calls_lie_before_an_actor_with_checkpoints() {
    let mut owner = borrower();
    let worker = process(7);
    let calls: Vec<TaskId> =
        (0..ACTOR_DEPTH_LOGGED_MAX + 2).map(|_| owner.method(A, method(-1)).0).collect();
    let effects = owner.state(A, ActorState::Alive { incarnation: 0, worker, logs: true });
    let first: Vec<Effect> =
        calls[..ACTOR_DEPTH_LOGGED_MAX].iter().map(|call| placed(7, call.seq)).collect();
    assert_eq!(effects, first);
    let effects = owner.reply(7, calls[0], &[returned(inline(b"1"))]);
    assert_eq!(effects, [placed(7, calls[ACTOR_DEPTH_LOGGED_MAX].seq)]);
}

#[test]
fn calls_of_a_task_do_not_wait_behind_those_of_another_that_wait_for_it() {
    let running = |seq| Some(TaskId { owner: process(3), seq });
    let mut owner = borrower();
    let second = owner.task();
    // The first task that runs here calls with the second one's result, and once more.
    let waits = Call { refs: vec![second.object(0)], ..method(0) };
    let (waits, _) = owner.method_of(running(1), A, waits);
    owner.alive(A, 7);
    let (behind, effects) = owner.method_of(running(1), A, method(0));
    assert_eq!(effects, []);
    // The second one's call goes; the order of each is kept.
    let (overtakes, effects) = owner.method_of(running(2), A, method(0));
    assert_eq!(effects, [placed(7, overtakes.seq)]);
    let known = owner.session.link(crate::why::Thing::Actor(A)).unwrap();
    assert!(known.says.to_string().contains("2 queued"), "{known:?}");
    owner.granted(1, W);
    let effects = owner.reply(W, second, &[returned(inline(b"1"))]);
    assert_eq!(effects, [placed(7, waits.seq), placed(7, behind.seq)]);
}

#[test]
fn calls_of_an_actor_keep_their_order_whichever_of_its_methods_made_them() {
    let running = |seq| Some(TaskId { owner: process(3), seq });
    let mut owner = borrower();
    owner.session.become_actor();
    let pending = owner.task();
    let waits = Call { refs: vec![pending.object(0)], ..method(0) };
    let (waits, _) = owner.method_of(running(1), A, waits);
    owner.alive(A, 7);
    let (behind, effects) = owner.method_of(running(2), A, method(0));
    assert_eq!(effects, []);
    owner.granted(1, W);
    let effects = owner.reply(W, pending, &[returned(inline(b"1"))]);
    assert_eq!(effects, [placed(7, waits.seq), placed(7, behind.seq)]);
}

/// A worker ran a task that called twice, and became an actor before what the first call waited for was there: the second one overtook it.
#[test]
fn calls_of_a_task_keep_their_order_when_its_worker_has_become_an_actor() {
    let running = |seq| Some(TaskId { owner: process(3), seq });
    let mut owner = borrower();
    let (first, second) = (owner.task(), owner.task());
    let waits_for = |task: TaskId| Call { refs: vec![task.object(0)], ..method(0) };
    let (call, _) = owner.method_of(running(1), A, waits_for(first));
    owner.alive(A, 7);
    let (behind, _) = owner.method_of(running(1), A, waits_for(second));
    owner.session.become_actor();
    owner.granted(1, W);
    assert_eq!(owner.granted(2, X), [placed(X, second.seq)]);
    let effects = owner.reply(X, second, &[returned(inline(b"2"))]);
    assert!(!effects.contains(&placed(7, behind.seq)), "SES-5: {effects:?}");
    let (own, effects) = owner.method_of(running(2), A, method(0));
    assert_eq!(effects, [placed(7, own.seq)]);
    let effects = owner.reply(W, first, &[returned(inline(b"1"))]);
    assert!(effects.starts_with(&[placed(7, call.seq), placed(7, behind.seq)]), "{effects:?}");
}

#[test]
fn after_a_crash_what_had_begun_waits_for_the_verdict_and_the_rest_goes_again() {
    for retries in [0, 1] {
        let mut owner = borrower();
        let (begun, _) = owner.method(A, method(retries));
        let (queued, _) = owner.method(A, method(0));
        owner.alive(A, 7);
        assert_eq!(owner.gone(7, &[queued.seq]), []);
        assert!(!owner.session.is_ready(begun.object(0)));
        owner.restarting(A);
        let effects = owner.alive(A, 8);
        if retries == 0 {
            assert_eq!(owner.kind_of(begun.object(0)), FailureKind::ActorUnavailable);
            assert_eq!(effects, [placed(8, queued.seq)]);
        } else {
            assert_eq!(effects, [placed(8, begun.seq), placed(8, queued.seq)]);
        }
    }
}

#[test]
fn a_dead_actor_fails_all_its_calls_and_every_later_one() {
    let mut owner = borrower();
    let (begun, _) = owner.method(A, method(-1));
    owner.alive(A, 7);
    let waits = owner.task();
    let waiting = Call { refs: vec![waits.object(0)], ..method(0) };
    let (waiting, _) = owner.method(A, waiting);
    owner.state(A, dead());
    let (late, _) = owner.method(A, method(0));
    for task in [begun, waiting, late] {
        assert_eq!(owner.kind_of(task.object(0)), FailureKind::ActorDied);
    }
}

#[test]
fn an_actor_told_alive_before_its_last_workers_obituary_loses_no_call() {
    let mut owner = borrower();
    let (sent, _) = owner.method(A, method(0));
    owner.alive(A, 7);
    owner.restarting(A);
    owner.alive(A, 8);
    let (later, effects) = owner.method(A, method(0));
    assert_eq!(effects, [], "SES-5: the first one may go again");
    assert_eq!(owner.gone(7, &[sent.seq]), [placed(8, sent.seq), placed(8, later.seq)]);
}

#[test]
fn calls_that_go_again_were_overtaken_by_one_that_came_later() {
    let mut owner = borrower();
    let [begun, sent, also_sent] = [(); 3].map(|()| owner.method(A, method(-1)).0.seq);
    owner.alive(A, 7);
    owner.restarting(A);
    owner.alive(A, 8);
    let later = owner.method(A, method(0)).0.seq;
    let in_order = [begun, sent, also_sent, later].map(|seq| placed(8, seq));
    assert_eq!(owner.gone(7, &[sent, also_sent]), in_order, "SES-5");
}

#[test]
fn pending_calls_are_limited() {
    let mut owner = borrower();
    let limited = || call(CallOptions { max_pending_calls: 1, ..options() });
    let (first, _) = owner.method(A, limited());
    let refused = owner
        .act(|session, now, effects| session.submit_method(now, A, limited(), None, effects))
        .0;
    assert_eq!(refused, Err(SubmitError::PendingCallsLimit { pending: 1 }));
    owner.alive(A, 7);
    owner.reply(7, first, &[returned(inline(b""))]);
    owner.method(A, limited());
}

#[test]
fn a_handle_dropped_with_calls_pending_goes_with_the_last_of_them() {
    let mut owner = borrower();
    let (task, _) = owner.method(A, method(0));
    owner.alive(A, 7);
    owner.drop_ref(A.handle());
    assert_eq!(owner.flushed(), []);
    owner.reply(7, task, &[returned(inline(b""))]);
    assert_eq!(owner.flushed(), [Notice::Released { object: A.handle(), tokens: 1 }]);
    assert!(owner.session.actors.is_empty());
}

#[test]
fn a_creation_waits_for_its_arguments_and_holds_what_they_contain() {
    let mut owner = Owner::new();
    let inner = owner.put(&[]);
    let task = owner.task();
    let (actor, effects) = owner.creates_with(task, create());
    assert_eq!(effects, []);
    owner.granted(1, W);
    let effects = owner.reply(W, task, &[Returned { value: inline(b""), contains: vec![inner] }]);
    let spec = effects.iter().find_map(|effect| match effect {
        Effect::Node(ToNode::ActorCreate { spec, .. }) => Some(spec.clone()),
        _ => None,
    });
    let spec = spec.unwrap();
    assert_eq!((spec.actor, spec.contains), (actor, vec![inner]));
    assert!(effects.contains(&Effect::Node(ToNode::ActorWatch { actor })));
}

#[test]
fn an_actor_whose_argument_failed_is_dead_and_its_callers_hear_why() {
    let mut owner = Owner::new();
    let task = owner.task();
    let (actor, _) = owner.creates_with(task, create());
    let (method, _) = owner.method(actor, method(0));
    owner.drop_ref(actor.handle()); // the call is the last that holds it
    owner.granted(1, W);
    owner.reply(W, task, &[returned(failed(FailureKind::StoreFull))]);
    assert_eq!(owner.kind_of(method.object(0)), FailureKind::StoreFull);
    assert!(owner.session.actors.is_empty());
}

#[test]
fn an_actor_that_is_killed_while_its_argument_is_pending_is_never_created() {
    let mut owner = Owner::new();
    let task = owner.task();
    let (actor, _) = owner.creates_with(task, create());
    let (early, _) = owner.method(actor, method(0));
    let effects = owner.kills(actor);
    assert_eq!(effects, []);
    assert_eq!(owner.kind_of(early.object(0)), FailureKind::ActorDied);
    owner.granted(1, W);
    let effects = owner.reply(W, task, &[returned(inline(b"1"))]);
    let created = |effect: &Effect| matches!(effect, Effect::Node(ToNode::ActorCreate { .. }));
    assert!(!effects.iter().any(created), "{effects:?}");
    let (late, _) = owner.method(actor, method(0));
    assert_eq!(owner.kind_of(late.object(0)), FailureKind::ActorDied);
}

#[test]
fn who_waited_for_the_name_of_an_actor_whose_argument_failed_waited_for_ever() {
    let mut owner = Owner::new();
    let task = owner.task();
    let named = CreateActor { request: 5, name: "model".to_string(), ..create() };
    owner.creates_with(task, named);
    owner.granted(1, W);
    let effects = owner.reply(W, task, &[returned(failed(FailureKind::OwnerDied))]);
    assert!(effects.contains(&Effect::CreationFailed { request: 5 }), "{effects:?}");
}

#[test]
fn a_handle_is_passed_on_only_when_the_daemon_knows_its_actor() {
    let mut owner = Owner::new();
    let task = owner.task();
    let (actor, _) = owner.creates_with(task, create());
    owner.submit(with_nested(&[actor.handle()]));
    owner.granted(1, W);
    let effects = owner.granted(2, X);
    let created = |effect: &Effect| matches!(effect, Effect::Node(ToNode::ActorCreate { .. }));
    let at = effects.iter().position(created).unwrap();
    assert!(matches!(effects[at + 1..].last(), Some(Effect::Place { .. })), "{effects:?}");
    assert!(mentions(&effects[..at], task.object(0)), "its argument is told as pending");
}

#[test]
fn a_refused_creation_leaves_nothing() {
    let mut owner = Owner::new();
    let constructor = call(CallOptions { returns: 0, ..options() });
    let actor = owner.act(|s, now, effects| s.create_actor(now, constructor, create(), effects)).0;
    owner.act(|session, now, effects| session.creation_refused(now, actor, effects));
    assert!(owner.session.objects.is_empty() && owner.session.actors.is_empty());
    assert_eq!(actor, actor_of(1, 1));
}

#[test]
fn the_last_calls_of_an_abandoned_actor_are_drained() {
    let mut owner = borrower();
    owner.alive(A, 7);
    let (call, _) = owner.method(A, method(0));
    owner.alive(A, 7);
    assert!(!owner.session.needs_progress());
    owner.drop_ref(A.handle());
    assert!(owner.session.needs_progress(), "only its reply lets the actor go");
    owner.session.add_ref(A.handle());
    assert!(!owner.session.needs_progress());
    owner.drop_ref(A.handle());
    owner.reply(7, call, &[returned(inline(b""))]);
    assert!(!owner.session.needs_progress());
}

#[test]
fn calls_of_an_actor_that_went_down_again_and_again_waited_for_ever() {
    let restarting =
        |incarnation| ActorState::Restarting { incarnation, cause: format!("boom {incarnation}") };
    let mut owner = borrower();
    owner.alive(A, 7);
    owner.state(A, restarting(1));
    let (plain, _) = owner.method(A, method(0));
    let (patient, _) = owner.method(A, method(1));
    let (endless, _) = owner.method(A, method(-1));
    for incarnation in [1, 2, 3, 3] {
        owner.state(A, restarting(incarnation)); // told twice is no second restart
        assert!(!owner.session.is_ready(plain.object(0)));
    }
    owner.state(A, restarting(4));
    assert!(owner.session.has_failed(plain.object(0)));
    assert!(!owner.session.is_ready(patient.object(0)));
    owner.state(A, restarting(5));
    assert!(owner.session.has_failed(patient.object(0)));
    owner.state(A, restarting(6));
    assert_eq!(
        owner.state(A, ActorState::Alive { incarnation: 6, worker: process(8), logs: false }),
        [placed(8, endless.seq)]
    );
}

#[test]
fn a_call_of_an_actor_that_always_went_down_before_it_took_it_waited_for_ever() {
    let mut owner = borrower();
    let (once, _) = owner.method(A, method(0));
    let (patient, _) = owner.method(A, method(-1));
    owner.alive(A, 7);
    for _ in 0..WORKERS_UNTAKEN_MAX {
        owner.gone(7, &[once.seq, patient.seq]);
        owner.restarting(A);
        assert_eq!(owner.alive(A, 7), [placed(7, once.seq), placed(7, patient.seq)]);
    }
    owner.gone(7, &[once.seq, patient.seq]);
    assert_eq!(owner.kind_of(once.object(0)), FailureKind::ActorUnavailable);
    let text = owner.text_of(once.object(0));
    assert!(text.contains("did not run") && text.contains("max_task_retries"), "{text}");
    assert!(text.contains("SIGSEGV"), "{text}");
    owner.restarting(A);
    assert_eq!(owner.alive(A, 7), [placed(7, patient.seq)], "SES-7: it waits as long as it takes");
}

#[test]
fn each_actor_of_a_kind_that_can_never_start_made_a_line() {
    let never = |reason: &str| ActorState::Pending { reason: reason.to_string(), infeasible: true };
    let mut owner = Owner::new();
    let actors: Vec<(ActorId, ObjectId)> = (0..4)
        .map(|seq| {
            let actor = ActorId(TaskId { owner: process(9), seq });
            owner.session.actor_found(actor);
            let call = owner.method(actor, method(0)).0;
            (actor, call.object(0))
        })
        .collect();
    let lines = |owner: &mut Owner, at: usize, reason: &str| {
        let effects = owner.state(actors[at].0, never(reason));
        effects.iter().filter(|effect| matches!(effect, Effect::Warn { .. })).count()
    };
    assert_eq!(lines(&mut owner, 0, "needs GPU 1"), 1);
    assert_eq!(lines(&mut owner, 0, "needs GPU 1"), 0);
    assert_eq!(lines(&mut owner, 1, "needs GPU 1"), 0);
    assert_eq!(lines(&mut owner, 2, "needs CPU 64"), 1, "another kind");
    // Once the one whose line it was waits no more, the next one says so again.
    owner.state(actors[0].0, dead());
    assert_eq!(lines(&mut owner, 3, "needs GPU 1"), 1);
    // Another node came nearer, but lacks the same; then one that lacks something else.
    assert_eq!(lines(&mut owner, 2, "needs CPU 64 (node 1, the nearest of 3)"), 0);
    assert_eq!(lines(&mut owner, 2, "needs disk 3 (node 2, the nearest of 4)"), 1);
    // Nothing is kept of those that are gone.
    for (actor, result) in actors {
        owner.state(actor, dead());
        owner.drop_ref(result);
        owner.drop_ref(actor.handle());
    }
    assert_eq!(owner.session.warned.len(), 0);
}
