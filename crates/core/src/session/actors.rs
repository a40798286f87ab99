//! Calls to actors: one queue per actor, sent in order to whichever worker the actor lives in now.
//!
//! ```text
//!   (first call) --watch--> Unknown --> Pending --> Alive --worker gone--> Unknown --> Restarting --> Alive
//!                                                     \------------------------------> Dead (for good)
//! ```
//! When the worker goes, calls that it never took go back into the queue; those it had taken wait in
//! `Limbo` for the daemon's word: restarting (again, if they may be retried, else `ActorUnavailable`)
//! or dead (`ActorDied`).
//!
//! Calls that no worker took wait for a restart. When several have failed in a row, each that fails costs
//! each of those calls a retry, as if they had begun with it; who has none left hears `ActorUnavailable`. So
//! an actor that restarts for ever holds nobody for ever who did not ask for that (`max_task_retries=-1`). The same
//! holds for one that starts again and again, and goes down before it takes a call (SES-7).
//!
//! Calls keep their order within one caller: the driver, an actor, or one task. Not all tasks that one worker
//! runs, one after the other:
//! 1. A task calls the actor with the result of a second one as an argument, and is over.
//! 2. The same worker runs the second task. It calls the same actor, and waits for the reply.
//! 3. Behind the first task's call, which waits for the second task, this call would wait for ever.
//!
//! Where an actor runs several calls at once, its callers let calls be overtaken that wait for their arguments (`may_be_overtaken`): who
//! makes the argument may need a later call. All others go in order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hoplo_base::limits::{ACTOR_DEPTH_LOGGED_MAX, ACTOR_DEPTH_MAX, RESTARTS_FAILED_MAX};
use hoplo_base::{ActorId, Instant, ObjectId, ProcessId, ResourceSet, TaskId};
use hoplo_wire::call::CallKind;
use hoplo_wire::node::{ActorSpec, ActorState, Checkpoints, Obituary, Shape, ToNode};
use hoplo_wire::{Failure, FailureKind};

use super::call::Stage;
use super::refs::{Entry, Knowledge};
use super::tasks::Task;
use super::{Call, Effect, SessionMachine, SubmitError};
use crate::sched::claim::lack_of;

const BEING_KILLED: &str = "it is being killed";

fn being_killed_status() -> Status {
    Status::Pending { reason: BEING_KILLED.to_string(), infeasible: false }
}

fn kill_for_good(actor: ActorId) -> Effect {
    Effect::Node(ToNode::ActorKill { actor, no_restart: true, of: None })
}

fn end_worker(actor: ActorId, of: Option<ProcessId>) -> Effect {
    Effect::Node(ToNode::ActorKill { actor, no_restart: false, of })
}

#[derive(Debug)]
pub(super) struct Actor {
    pub status: Status,
    /// Submitted, not placed: in order of submission.
    pub queue: VecDeque<u64>,
    /// Those of tasks that ran here, from the first that waits for a ref: other tasks' calls overtake them.
    pub aside: BTreeMap<TaskId, VecDeque<u64>>,
    /// Submitted, may be overtaken, and without all arguments: in the queue when they are there.
    pub incomplete: BTreeSet<u64>,
    /// Placed: in order of submission.
    pub in_flight: BTreeSet<u64>,
    /// Its worker died with these begun.
    pub limbo: BTreeSet<u64>,
    /// Calls of this process that are not finished.
    pub unfinished: u32,
    /// Only those calls hold the handle: the actor ends with them, so their replies are drained though
    /// nobody may wait for them.
    pub abandoned: bool,
    /// Calls that may lie before it.
    pub depth_max: usize,
    pub ended: Ended,
}

/// What this process has told the daemon to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Nothing, or it is known that the actor is dead, or does not live in that worker any more.
    None,
    /// The worker in which the actor lived, so that it starts again: which one that is, the daemon says next.
    Unknown,
    /// That worker, so that the actor starts again.
    Worker(ProcessId),
    /// The actor, for good.
    ForGood,
}

impl Ended {
    /// What calls must still stay away from, now that the daemon has said this of the actor.
    fn after(self, told: &ActorState) -> Ended {
        match (self, told) {
            (_, ActorState::Dead { .. }) => Ended::None,
            (Ended::ForGood, _) => Ended::ForGood,
            (Ended::Unknown, ActorState::Alive { worker, .. }) => Ended::Worker(*worker),
            (Ended::Worker(of), ActorState::Alive { worker, .. }) if of == *worker => self,
            (Ended::Worker(_), ActorState::Pending { .. }) => self,
            (Ended::None | Ended::Unknown | Ended::Worker(_), _) => Ended::None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Status {
    /// The daemon's word is awaited.
    Unknown,
    Pending {
        reason: String,
        infeasible: bool,
    },
    Alive {
        worker: ProcessId,
    },
    Restarting {
        incarnation: u32,
        /// Restarts in a row that failed.
        failed: u32,
        cause: String,
    },
    Dead {
        failure: Failure,
    },
}

impl Status {
    /// What it would need that no node has.
    fn lack(&self) -> Option<&str> {
        match self {
            Status::Pending { reason, infeasible: true } => Some(lack_of(reason)),
            Status::Pending { infeasible: false, .. }
            | Status::Unknown
            | Status::Alive { .. }
            | Status::Restarting { .. }
            | Status::Dead { .. } => None,
        }
    }
}

/// What the creator of an actor says.
#[derive(Clone, Debug)]
pub struct CreateActor {
    pub class_name: String,
    /// Empty for none.
    pub name: String,
    pub namespace: String,
    pub detached: bool,
    pub get_if_exists: bool,
    pub shape: Shape,
    pub held: ResourceSet,
    pub max_restarts: i32,
    pub checkpoints: Option<Checkpoints>,
    pub handle: Vec<u8>,
    /// 0: nobody waits for the answer.
    pub request: u64,
}

impl SessionMachine {
    /// The caller owns one count of the handle.
    pub fn create_actor(
        &mut self,
        now: Instant,
        call: Call,
        create: CreateActor,
        effects: &mut Vec<Effect>,
    ) -> ActorId {
        let task = self.create_task(call, None, None);
        let actor = ActorId(task);
        self.objects.insert(actor.handle(), Entry::pending(1, Knowledge::Private));
        self.actor_mut(actor, effects);
        self.tasks.get_mut(&task.seq).expect("it was just made").creates = Some(Box::new(create));
        self.admit(now, task.seq, effects);
        actor
    }

    /// The constructor's arguments are there: the daemon takes over.
    pub(super) fn send_creation(
        &mut self,
        now: Instant,
        seq: u64,
        create: CreateActor,
        effects: &mut Vec<Effect>,
    ) {
        let actor = ActorId(TaskId { owner: self.me(), seq });
        self.mention_arguments(now, seq, effects);
        let named = self.named_in_frame(seq);
        let frame = self.frame_of_kind(seq, Some(CallKind::Create));
        let mut bytes = frame.header.to_vec();
        for part in [frame.args, &frame.extra, frame.refs] {
            bytes.extend_from_slice(part);
        }
        let record = self.remove_task(seq);
        let known = |object: &ObjectId| {
            let knowledge = self.objects.get(object).map(|entry| entry.knowledge);
            knowledge.is_some_and(|knowledge| knowledge != Knowledge::Private)
        };
        let contains: Vec<ObjectId> = named.into_iter().filter(known).collect();
        let spec = Box::new(ActorSpec {
            actor,
            class_name: create.class_name,
            name: create.name,
            namespace: create.namespace,
            detached: create.detached,
            shape: create.shape,
            held: create.held,
            max_restarts: create.max_restarts,
            checkpoints: create.checkpoints,
            frame: bytes,
            contains,
            handle: create.handle,
        });
        let (request, get_if_exists) = (create.request, create.get_if_exists);
        self.flush(effects);
        effects.push(Effect::Node(ToNode::ActorCreate { request, spec, get_if_exists }));
        effects.push(Effect::Node(ToNode::ActorWatch { actor }));
        self.drop_all(now, &record.call.refs, effects);
        self.drop_all(now, &record.call.nested, effects);
        let handle = self.objects.get_mut(&actor.handle()).expect("its task kept it");
        handle.tokens += 1;
        handle.knowledge = Knowledge::Shared;
        handle.count += 1;
        self.drop_ref(now, actor.handle(), effects); // if nobody holds it any more
    }

    /// Its handle is about to leave this process: the daemon must know it now, even if arguments are
    /// still pending (its constructor waits for them in its worker).
    pub(super) fn create_now(&mut self, now: Instant, actor: ActorId, effects: &mut Vec<Effect>) {
        let seq = actor.0.seq;
        let task = self.tasks.get_mut(&seq).filter(|_| actor.0.owner == self.me);
        if let Some(create) = task.and_then(|task| task.creates.take()) {
            self.send_creation(now, seq, *create, effects);
        }
    }

    /// An argument of its constructor failed: it is dead before it was created.
    pub(super) fn creation_failed(
        &mut self,
        now: Instant,
        seq: u64,
        failure: &Failure,
        effects: &mut Vec<Effect>,
    ) {
        let record = self.remove_task(seq);
        let actor = ActorId(TaskId { owner: self.me, seq });
        if let Some(request) = record.creates.as_ref().map(|creates| creates.request)
            && request != 0
        {
            effects.push(Effect::CreationFailed { request });
        }
        self.drop_all(now, &record.call.refs, effects);
        self.drop_all(now, &record.call.nested, effects);
        let handle = self.objects.get_mut(&actor.handle()).expect("its task kept it");
        handle.count += 1;
        self.actor_state(now, actor, ActorState::Dead { failure: failure.clone() }, effects);
        self.drop_ref(now, actor.handle(), effects); // if nobody holds it any more
    }

    /// An answer of the daemon named an actor and gave this process a token for its handle: the caller owns
    /// one count.
    pub fn actor_found(&mut self, actor: ActorId) {
        self.add_ref(actor.handle());
        let entry = self.objects.get_mut(&actor.handle()).expect("it was just counted");
        entry.tokens += 1;
        entry.knowledge = Knowledge::Shared;
    }

    /// The daemon refused to create it (its name is taken): nothing of it is left but the caller's count.
    pub fn creation_refused(&mut self, now: Instant, actor: ActorId, effects: &mut Vec<Effect>) {
        if let Some(entry) = self.objects.get_mut(&actor.handle()) {
            entry.tokens = 0;
            entry.knowledge = Knowledge::Private;
            self.drop_ref(now, actor.handle(), effects);
        }
    }

    /// This process is an actor from now on.
    pub fn become_actor(&mut self) {
        self.actor_from = Some(self.next_seq);
    }

    pub fn submit_method(
        &mut self,
        now: Instant,
        actor: ActorId,
        call: Call,
        parent: Option<TaskId>,
        effects: &mut Vec<Effect>,
    ) -> Result<TaskId, SubmitError> {
        let limit = call.options.max_pending_calls;
        let may_wait_apart = call.options.may_be_overtaken && !call.refs.is_empty();
        let state = self.actor_mut(actor, effects);
        if limit > 0 && state.unfinished >= limit {
            return Err(SubmitError::PendingCallsLimit { pending: state.unfinished });
        }
        state.unfinished += 1;
        let dead = match &state.status {
            Status::Dead { failure } => Some(failure.clone()),
            _ => None,
        };
        let task = self.create_task(call, Some(actor), parent);
        self.add_ref(actor.handle()); // the actor stays while calls are pending
        if let Some(failure) = dead {
            self.fail_task(now, task.seq, &failure, effects);
            return Ok(task);
        }
        let state = self.actors.get_mut(&actor).expect("it was just there");
        if may_wait_apart {
            state.incomplete.insert(task.seq);
        } else {
            state.queue.push_back(task.seq);
        }
        self.admit(now, task.seq, effects);
        Ok(task)
    }

    /// All its arguments are there.
    pub(super) fn is_complete(
        &mut self,
        now: Instant,
        actor: ActorId,
        seq: u64,
        effects: &mut Vec<Effect>,
    ) {
        let state = self.actors.get_mut(&actor).expect("it has calls");
        if state.incomplete.remove(&seq) {
            return self.requeue_method(now, actor, seq, effects);
        }
        self.pump_actor(now, actor, effects);
    }

    /// Kills it for good: later calls wait for the daemon's word that it is dead, and none slips in (SES-8). One whose constructor still
    /// waits for arguments is known to this process alone, and is never created.
    pub fn kill_actor(&mut self, now: Instant, actor: ActorId, effects: &mut Vec<Effect>) {
        let own = self.tasks.get(&actor.0.seq).filter(|_| actor.0.owner == self.me);
        if let Some(create) = own.and_then(|task| task.creates.as_ref()) {
            let text = format!("{} ({actor}) was killed by hoplo.kill()", create.class_name);
            let failure = Failure::new(FailureKind::ActorDied, text);
            return self.fail_task(now, actor.0.seq, &failure, effects);
        }
        let state = self.actor_mut(actor, effects);
        if !matches!(state.status, Status::Dead { .. }) {
            (state.status, state.ended) = (being_killed_status(), Ended::ForGood);
        }
        effects.push(kill_for_good(actor));
    }

    /// Ends the worker that it lives in; it starts again, if it may. Later calls wait for the next one (SES-8).
    pub fn end_worker_of(&mut self, actor: ActorId, effects: &mut Vec<Effect>) {
        let state = self.actor_mut(actor, effects);
        let of = match state.status {
            Status::Alive { worker } => {
                (state.status, state.ended) = (Status::Unknown, Ended::Worker(worker));
                Some(worker)
            }
            Status::Unknown => {
                if state.ended == Ended::None {
                    state.ended = Ended::Unknown;
                }
                None
            }
            Status::Pending { .. } | Status::Restarting { .. } | Status::Dead { .. } => None,
        };
        effects.push(end_worker(actor, of));
    }

    /// Where its calls go, if they go anywhere now.
    pub fn lives_in(&self, actor: ActorId) -> Option<ProcessId> {
        match self.actors.get(&actor)?.status {
            Status::Alive { worker } => Some(worker),
            Status::Unknown
            | Status::Pending { .. }
            | Status::Restarting { .. }
            | Status::Dead { .. } => None,
        }
    }

    fn actor_mut(&mut self, actor: ActorId, effects: &mut Vec<Effect>) -> &mut Actor {
        let own = actor.0.owner == self.me && self.tasks.contains_key(&actor.0.seq);
        let all_ended = &mut self.ended;
        self.actors.entry(actor).or_insert_with(|| {
            if !own {
                effects.push(Effect::Node(ToNode::ActorWatch { actor }));
            }
            let ended = all_ended.remove(&actor).unwrap_or(Ended::None);
            let for_good = ended == Ended::ForGood;
            Actor {
                status: if for_good { being_killed_status() } else { Status::Unknown },
                queue: VecDeque::new(),
                aside: BTreeMap::new(),
                incomplete: BTreeSet::new(),
                in_flight: BTreeSet::new(),
                limbo: BTreeSet::new(),
                unfinished: 0,
                abandoned: false,
                depth_max: ACTOR_DEPTH_MAX,
                ended,
            }
        })
    }

    /// Sends what is ready, in order (SES-5).
    pub(super) fn pump_actor(&mut self, now: Instant, actor: ActorId, effects: &mut Vec<Effect>) {
        self.pump_aside(now, actor, effects);
        loop {
            // Nearly always there is one call, or none: looked at before the rest.
            let queue = self.actors.get(&actor).map(|state| &state.queue);
            let Some(seq) = queue.and_then(|queue| queue.front()).copied() else { return };
            let Some((worker, state)) = self.actor_open(actor) else { return };
            let full = state.in_flight.len() >= state.depth_max;
            let call = self.tasks.get(&seq).map(|task| (task.stage, self.caller_of(seq, task)));
            let caller = call.and_then(|(_, caller)| caller);
            let state = self.actors.get_mut(&actor).expect("it is open");
            let aside = caller.and_then(|caller| state.aside.get_mut(&caller));
            match (call, aside) {
                (None, _) => {} // it failed or was cancelled
                (Some(_), Some(aside)) => aside.push_back(seq),
                (Some((Stage::Queued, _)), None) if !full => {
                    state.queue.pop_front();
                    state.in_flight.insert(seq);
                    self.place(now, seq, worker, effects);
                    continue;
                }
                (Some((Stage::Queued, _)), None) => return,
                (Some(_), None) => match caller {
                    Some(caller) => {
                        state.aside.insert(caller, VecDeque::from([seq]));
                    }
                    None => return,
                },
            }
            state.queue.pop_front();
        }
    }

    /// The task that made this call, where the calls of tasks are told apart. An actor is one caller, whatever it runs; what tasks called
    /// in this process before it became one stays theirs.
    fn caller_of(&self, seq: u64, task: &Task) -> Option<TaskId> {
        task.parent.filter(|_| self.actor_from.is_none_or(|from| seq < from))
    }

    fn pump_aside(&mut self, now: Instant, actor: ActorId, effects: &mut Vec<Effect>) {
        if self.actors.get(&actor).is_none_or(|state| state.aside.is_empty()) {
            return;
        }
        let Some((worker, state)) = self.actor_open(actor) else { return };
        let mut all = std::mem::take(&mut state.aside);
        for calls in all.values_mut() {
            while let Some(seq) = calls.front() {
                let stage = self.tasks.get(seq).map(|task| task.stage);
                let state = self.actors.get_mut(&actor).expect("it is open");
                if stage.is_some_and(|stage| stage != Stage::Queued)
                    || state.in_flight.len() >= state.depth_max
                {
                    break;
                }
                let seq = calls.pop_front().expect("it was just there");
                if stage.is_some() {
                    state.in_flight.insert(seq);
                    self.place(now, seq, worker, effects);
                }
            }
        }
        all.retain(|_, calls| !calls.is_empty());
        self.actors.get_mut(&actor).expect("it is open").aside = all;
    }

    /// Where it runs, if calls may be sent there now.
    fn actor_open(&mut self, actor: ActorId) -> Option<(ProcessId, &mut Actor)> {
        let state = self.actors.get_mut(&actor)?;
        let Status::Alive { worker } = state.status else { return None };
        let before = state.in_flight.first().and_then(|first| self.tasks.get(first));
        // SES-5: otherwise the obituary of its last worker has not come yet.
        before.is_none_or(|task| task.stage == Stage::Placed { worker }).then_some((worker, state))
    }

    pub(super) fn remove_from_actor(&mut self, actor: ActorId, seq: u64) {
        let state = self.actors.get_mut(&actor).expect("it has calls");
        state.in_flight.remove(&seq);
        state.limbo.remove(&seq);
    }

    /// A method call goes back to its place in the order.
    pub(super) fn requeue_method(
        &mut self,
        now: Instant,
        actor: ActorId,
        seq: u64,
        effects: &mut Vec<Effect>,
    ) {
        let caller = self.tasks.get(&seq).and_then(|task| self.caller_of(seq, task));
        let state = self.actors.get_mut(&actor).expect("it has calls");
        state.in_flight.remove(&seq);
        state.limbo.remove(&seq);
        let aside = caller.and_then(|caller| state.aside.get_mut(&caller));
        let queue = aside.unwrap_or(&mut state.queue);
        let at = queue.partition_point(|queued| *queued < seq);
        queue.insert(at, seq);
        self.pump_actor(now, actor, effects);
    }

    /// One of this process's calls is over.
    pub(super) fn call_over(&mut self, now: Instant, actor: ActorId, effects: &mut Vec<Effect>) {
        if let Some(state) = self.actors.get_mut(&actor) {
            state.unfinished -= 1;
        }
        self.pump_actor(now, actor, effects);
        self.drop_ref(now, actor.handle(), effects);
    }

    pub(super) fn actor_of_handle(&self, object: ObjectId) -> Option<ActorId> {
        (object.index == u32::MAX).then_some(ActorId(object.task))
    }

    /// The count of a handle changed and is not zero.
    pub(super) fn handle_counted(&mut self, handle: ObjectId) {
        let count = self.objects[&handle].count;
        let Some(state) = self.actors.get_mut(&ActorId(handle.task)) else { return };
        let abandoned = state.unfinished > 0 && count <= state.unfinished;
        self.reasons += u64::from(abandoned);
        self.reasons -= u64::from(std::mem::replace(&mut state.abandoned, abandoned));
    }

    pub(super) fn handle_dropped(&mut self, actor: ActorId) {
        let state = self.actors.remove(&actor);
        if let Some(state) = &state
            && state.ended != Ended::None
        {
            self.ended.insert(actor, state.ended);
        }
        self.warned.retain(|_, by| *by != actor);
        self.reasons -= u64::from(state.as_ref().is_some_and(|state| state.abandoned));
        assert!(state.is_none_or(|state| state.unfinished == 0), "calls hold the handle");
    }

    pub(super) fn actor_worker_gone(
        &mut self,
        now: Instant,
        process: ProcessId,
        obituary: &Obituary,
        unstarted: &[u64],
        effects: &mut Vec<Effect>,
    ) {
        let lives_there =
            |state: &Actor| matches!(state.status, Status::Alive { worker } if worker == process);
        let placed_there = |state: &Actor| {
            let first = state.in_flight.first().and_then(|first| self.tasks.get(first));
            first.is_some_and(|task| task.stage == Stage::Placed { worker: process })
        };
        let concerned =
            self.actors.iter_mut().find(|(_, state)| lives_there(state) || placed_there(state));
        let Some((actor, state)) = concerned else { return };
        let actor = *actor;
        let is_there = placed_there(state);
        if lives_there(state) {
            state.status = Status::Unknown;
        }
        // SES-5: all of them are back in their places before any of them goes, or one that came later.
        let status = std::mem::replace(&mut state.status, Status::Unknown);
        // All of them lie at one worker. If that is one that lived before, its word may come later than this one's, from another node.
        let in_flight = match is_there {
            true => std::mem::take(&mut state.in_flight),
            false => BTreeSet::new(),
        };
        let none_begun = in_flight.iter().all(|seq| unstarted.contains(seq));
        let mut untaken = Vec::new();
        for seq in in_flight {
            if unstarted.contains(&seq) {
                if none_begun && !self.may_wait_for_another_worker(seq) {
                    untaken.push(seq);
                }
                self.requeue(now, seq, effects);
            } else {
                self.set_stage(seq, Stage::Limbo);
                self.actors.get_mut(&actor).expect("it is there").limbo.insert(seq);
            }
        }
        self.actors.get_mut(&actor).expect("it is there").status = status;
        match &self.actors[&actor].status {
            // The daemon's word was faster than the obituary.
            Status::Alive { .. } => self.restarted(now, actor, "its worker died", effects),
            Status::Restarting { cause, .. } => {
                let cause = cause.clone();
                self.restarted(now, actor, &cause, effects);
            }
            Status::Unknown | Status::Pending { .. } | Status::Dead { .. } => {}
        }
        for seq in untaken {
            self.untaken_by_actor(now, actor, seq, obituary, effects);
        }
    }

    /// SES-7: unless it lies in the next one's ring already.
    fn untaken_by_actor(
        &mut self,
        now: Instant,
        actor: ActorId,
        seq: u64,
        obituary: &Obituary,
        effects: &mut Vec<Effect>,
    ) {
        let queued = |task: &&Task| task.stage == Stage::Queued;
        let Some(task) = self.tasks.get(&seq).filter(queued) else { return };
        let text = format!(
            "{actor} went down {} times in a row before it took this call of {}; the call did not run. The last time: {}. Set \
             max_task_retries to wait longer",
            task.untaken,
            task.call.options.name,
            obituary.headline()
        );
        let failure = Failure::new(FailureKind::ActorUnavailable, text);
        self.fail_task(now, seq, &failure, effects);
    }

    pub(super) fn actor_state(
        &mut self,
        now: Instant,
        actor: ActorId,
        told: ActorState,
        effects: &mut Vec<Effect>,
    ) {
        let of_a_kind =
            matches!(&told, ActorState::Pending { reason, .. } if self.was_said(reason));
        let Some(state) = self.actors.get_mut(&actor) else {
            if let Some(ended) = self.ended.remove(&actor).map(|ended| ended.after(&told))
                && ended != Ended::None
            {
                self.ended.insert(actor, ended);
            }
            return;
        };
        if matches!(state.status, Status::Dead { .. }) {
            return;
        }
        state.ended = state.ended.after(&told);
        let told = match (state.ended, told) {
            // Said before the end was heard, or by another node that has taken its home's place and did not hear of it.
            (Ended::Worker(_), ActorState::Alive { worker, .. }) => {
                return effects.push(end_worker(actor, Some(worker)));
            }
            (Ended::ForGood, lives) => {
                if let ActorState::Alive { .. } = lives {
                    effects.push(kill_for_good(actor));
                }
                ActorState::Pending { reason: BEING_KILLED.to_string(), infeasible: false }
            }
            (Ended::None | Ended::Unknown | Ended::Worker(_), told) => told,
        };
        let limbo = std::mem::take(&mut state.limbo);
        let restarted_before = match &state.status {
            Status::Restarting { incarnation, failed, .. } => Some((*incarnation, *failed)),
            Status::Unknown
            | Status::Pending { .. }
            | Status::Alive { .. }
            | Status::Dead { .. } => None,
        };
        let (status, verdict) = match told {
            ActorState::Pending { reason, infeasible } => {
                let lack = lack_of(&reason);
                let warned = state.status.lack() == Some(lack);
                if infeasible && !warned && !of_a_kind {
                    self.warned.retain(|_, by| *by != actor); // it lacks something else now
                    self.warned.insert(lack.to_string(), actor);
                    let line = format!("{actor} can start nowhere yet: {reason}; it stays pending");
                    effects.push(Effect::Warn { line });
                }
                (Status::Pending { reason, infeasible }, None)
            }
            ActorState::Alive { worker, logs, .. } => {
                state.depth_max = if logs { ACTOR_DEPTH_LOGGED_MAX } else { ACTOR_DEPTH_MAX };
                (Status::Alive { worker }, None)
            }
            ActorState::Restarting { incarnation, cause } => {
                let failed = restarted_before
                    .map_or(0, |(before, failed)| failed + u32::from(before < incarnation));
                (Status::Restarting { incarnation, failed, cause }, None)
            }
            ActorState::Dead { failure } => {
                (Status::Dead { failure: failure.clone() }, Some(failure))
            }
        };
        let cause = match &status {
            Status::Restarting { cause, .. } => cause.clone(),
            _ => "its worker died".to_string(),
        };
        let costs = matches!(&status, Status::Restarting { incarnation, failed, .. }
            if *failed >= RESTARTS_FAILED_MAX
                && restarted_before.is_some_and(|(before, _)| before < *incarnation));
        if status == Status::Unknown || matches!(status, Status::Pending { .. }) {
            self.actors.get_mut(&actor).expect("it is there").limbo = limbo;
            self.actors.get_mut(&actor).expect("it is there").status = status;
            return;
        }
        state.status = status;
        if let Some(failure) = verdict {
            let state = self.actors.get_mut(&actor).expect("it is there");
            let mut seqs: Vec<u64> = limbo.into_iter().collect();
            seqs.extend(std::mem::take(&mut state.in_flight));
            seqs.extend(std::mem::take(&mut state.queue));
            seqs.extend(std::mem::take(&mut state.aside).into_values().flatten());
            seqs.extend(std::mem::take(&mut state.incomplete));
            seqs.sort_unstable();
            seqs.dedup();
            for seq in seqs {
                if self.tasks.contains_key(&seq) {
                    self.set_stage(seq, Stage::Limbo);
                    self.fail_task(now, seq, &failure, effects);
                }
            }
            return;
        }
        self.actors.get_mut(&actor).expect("it is there").limbo = limbo;
        self.restarted(now, actor, &cause, effects);
        if costs {
            self.restart_failed(now, actor, &cause, effects);
        }
    }

    /// Another actor that still waits has a line that says so.
    fn was_said(&self, why_never: &str) -> bool {
        let lack = lack_of(why_never);
        let other = self.warned.get(lack).and_then(|other| self.actors.get(other));
        other.is_some_and(|other| other.status.lack() == Some(lack))
    }

    /// Calls that waited for its restart wait for another one, or fail.
    fn restart_failed(
        &mut self,
        now: Instant,
        actor: ActorId,
        cause: &str,
        effects: &mut Vec<Effect>,
    ) {
        let Some(state) = self.actors.get(&actor) else { return };
        let mut seqs: Vec<u64> = state.queue.iter().copied().collect();
        seqs.extend(state.aside.values().flatten());
        seqs.extend(&state.incomplete);
        seqs.sort_unstable();
        for seq in seqs {
            // Those before it may have taken it along.
            let Some(task) = self.tasks.get_mut(&seq) else { continue };
            if task.retries_left != 0 {
                task.retries_left -= i32::from(task.retries_left > 0);
                continue;
            }
            let text = format!(
                "{actor} went down again and again while it was being restarted ({cause}), and this call of {} \
                 waited for it; the call did not run. Set max_task_retries to wait longer",
                task.call.options.name
            );
            let failure = Failure::new(FailureKind::ActorUnavailable, text);
            self.fail_task(now, seq, &failure, effects);
        }
    }

    /// Calls that its last worker had begun run again, or fail.
    fn restarted(&mut self, now: Instant, actor: ActorId, cause: &str, effects: &mut Vec<Effect>) {
        let state = self.actors.get_mut(&actor).expect("the caller has it");
        // SES-5, as in `actor_worker_gone`.
        let status = std::mem::replace(&mut state.status, Status::Unknown);
        for seq in std::mem::take(&mut state.limbo) {
            let Some(task) = self.tasks.get(&seq) else { continue };
            if task.retries_left != 0 && task.cancel.is_none() {
                self.run_again(now, seq, effects);
            } else {
                let text = format!(
                    "{actor} was running this call of {} when it went down and is being restarted ({cause}); \
                     the call may have had effects. Set max_task_retries to run it again",
                    task.call.options.name
                );
                let failure = Failure::new(FailureKind::ActorUnavailable, text);
                self.fail_task(now, seq, &failure, effects);
            }
        }
        // The last call may have taken it along.
        if let Some(state) = self.actors.get_mut(&actor) {
            state.status = status;
        }
        self.pump_actor(now, actor, effects);
    }
}

impl Actor {
    /// The daemon is gone, and with it every actor.
    pub(super) fn give_up(&mut self, failure: Failure) {
        (self.status, self.ended) = (Status::Dead { failure }, Ended::None);
        self.queue.clear();
        self.aside.clear();
        self.incomplete.clear();
        self.in_flight.clear();
        self.limbo.clear();
    }
}
