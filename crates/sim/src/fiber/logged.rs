//! Actors with checkpoints: `core::worker::journal` decides, as in the real shell. Their state is the list of calls that took effect.
//!
//! A replayed call takes no time here: its effect is known from its frame.

use std::sync::Arc;

use hoplo_base::{ActorId, ObjectId, ProcessId, TaskId};
use hoplo_core::session::CallOptions;
use hoplo_core::worker::Journal;
use hoplo_core::worker::journal::Room;
use hoplo_wire::call::{CALL_RETRY_ANY, CALL_STREAMING, CallHeader, CallView};
use hoplo_wire::node::{ActorSpec, Answer, Checkpoints, Replay, ToNode};
use hoplo_wire::reply::{ReplyKind, Returned};
use hoplo_wire::{Failure, FailureKind, Value};

use super::reply::Reply;
use super::{Fiber, Incoming, header};
use crate::cluster::{Cluster, Step};
use crate::memory::encode_content;
use crate::sabotage::Sabotage;
use crate::workload::{Op, Role, Submission, decode_args, program};

impl Cluster {
    /// Of a new actor, at times.
    pub(super) fn checkpoints(&mut self, restarts: i32) -> Option<Checkpoints> {
        let calls = 1 + self.rng.below(6) as u32;
        let logs = restarts != 0 && (self.rng.one_in(2) || self.plan.logs_all);
        let interval_ms = 1 + self.rng.below(50);
        logs.then_some(Checkpoints { calls, interval_ms })
    }

    /// A handle of such an actor knows that its calls are tried until they are answered, and are no streams.
    pub(super) fn as_its_handle_says(&self, submission: &Submission, actor: ActorId) -> Submission {
        let mut submission = submission.clone();
        if self.books.ledgers.has(actor) {
            let given = (*submission.options).clone();
            submission.options = Arc::new(CallOptions {
                flags: given.flags & !(CALL_STREAMING | CALL_RETRY_ANY),
                returns: given.returns.max(1),
                max_retries: -1,
                stream_ahead: 0,
                ..given
            });
        }
        submission
    }

    pub(super) fn begins_journal(
        &mut self,
        id: ProcessId,
        spec: &ActorSpec,
        incarnation: u32,
        replay: Option<&Replay>,
    ) {
        let Some(every) = spec.checkpoints else { return };
        let replay = replay.expect("its home sends what it is to become");
        if replay.last() > 0 && self.books.facts.is_dead_node(spec.actor.0.owner.node()) {
            self.count("actors that start from their logs without their home");
        }
        let checkpoint = replay.checkpoint.as_ref();
        let (now, job) = (self.now, self.client(id).job);
        let waits = spec.replies_wait(job, id.node());
        let journal = Journal::new(spec.actor, incarnation, id, every, waits, checkpoint, now);
        self.client(id).worker.begins_journal(journal);
    }

    /// The constructor has run.
    pub(super) fn replays(&mut self, id: ProcessId) {
        let instance = self.client(id).actor.as_mut().expect("it is constructed");
        let Some(replay) = instance.replay.take() else { return };
        let actor = instance.actor;
        let state = replay.checkpoint.iter().flat_map(|checkpoint| checkpoint.state.chunks(16));
        let state = state.map(|task| TaskId::from_bytes(task.try_into().expect("ids of 16 bytes")));
        let state: Vec<TaskId> = state.collect();
        if !state.is_empty() {
            self.count("states that were restored");
        }
        self.client(id).actor.as_mut().expect("it is there").ledger = Some(state);
        for call in &replay.calls {
            self.count("calls that were replayed");
            let view = CallView::parse(&call.frame).expect("callers here write well");
            let task = view.header.task;
            self.journal(id).replays(call);
            self.takes_effect(id, task);
            let values = self.result_of(view.header, view.args);
            self.journal(id).answers_again(task, Answer::Values(values));
        }
        let ledger = self.client(id).actor.as_ref().and_then(|actor| actor.ledger.clone());
        if let Some(due) = self.journal(id).due_at() {
            self.at(due, Step::Goes(id));
        }
        let found = self.books.ledgers.starts(actor, &ledger.unwrap_or_default(), id.node());
        self.ledger_holds(actor, found);
    }

    fn journal(&mut self, id: ProcessId) -> &mut Journal {
        self.client(id).worker.journal.as_mut().expect("it has checkpoints")
    }

    /// True: the call ran before, and is answered with what it was answered then.
    pub(super) fn answers_again(&mut self, id: ProcessId, fiber: &mut Fiber) -> bool {
        let Some(call) = fiber.call.filter(|_| fiber.role != Role::Constructor) else {
            return false;
        };
        if self.sabotage == Some(Sabotage::DuplicatesRun) {
            return false;
        }
        let Some(journal) = &self.client(id).worker.journal else { return false };
        let Some(answer) = journal.known(call.task).cloned() else { return false };
        self.count("calls that were answered again");
        let values = match answer {
            Answer::Values(values) => values,
            Answer::Kept(_) | Answer::Lost => panic!("{} is small and was not kept", call.task),
        };
        let returned = values.into_iter().map(|value| Returned { value, contains: vec![] });
        let header = header(call, ReplyKind::Finished, 0, 0);
        fiber.reply = Some(Reply { header, returned: returned.collect(), told: false, written: 0 });
        fiber.answered_again = true;
        true
    }

    /// The arguments of a call are there: it is logged, takes effect, and works for a while.
    pub(super) fn logs(&mut self, id: ProcessId, fiber: &mut Fiber) {
        let Some((frame, named)) = fiber.to_log.take() else { return };
        let program = fiber.program.as_mut().expect("it was just made");
        program.ops.retain(|op| matches!(op, Op::Work(_)));
        if fiber.failure.is_some() {
            return;
        }
        let call = fiber.call.expect("it was taken");
        self.session(id, |session, now, effects| session.mention_exported(now, &named, effects));
        let journal = self.journal(id);
        let logged = Box::new(journal.begins(call.task, &frame, named));
        let (actor, incarnation) = (journal.actor, journal.incarnation);
        self.say(id, ToNode::CallLogged { actor, incarnation, call: logged });
        fiber.logged = true;
        self.takes_effect(id, call.task);
        let view = CallView::parse(&frame).expect("callers here write well");
        let values = self.result_of(view.header, view.args);
        match values.first() {
            Some(Value::Failed(failure)) => fiber.failure = Some(failure.clone()),
            _ => {
                let returned = values.into_iter().map(|value| Returned { value, contains: vec![] });
                fiber.built = returned.collect();
            }
        }
    }

    fn takes_effect(&mut self, id: ProcessId, task: TaskId) {
        let instance = self.client(id).actor.as_mut().expect("it is an actor");
        let actor = instance.actor;
        let ledger = instance.ledger.as_mut().expect("it has checkpoints");
        ledger.push(task);
        let place = ledger.len();
        let twice = ledger[..place - 1].contains(&task);
        self.note(|| format!("{task} takes effect in {actor} at {id}, place {place}"));
        let found = match twice {
            true => Err(format!("{task} takes effect twice in {actor}, in {id}")),
            false => self.books.ledgers.takes_effect(actor, task, place, id.node()),
        };
        self.ledger_holds(actor, found);
    }

    /// The same whenever it runs.
    fn result_of(&mut self, header: CallHeader, args: &[u8]) -> Vec<Value> {
        let (seed, role, depth, _) = decode_args(args);
        if program(seed, role, depth, &self.plan).raises > 0 {
            self.books.facts.fails_by_itself(header.task, FailureKind::User);
            return vec![Value::Failed(Failure::user(b"it raises".as_slice().into()))];
        }
        let value = |index| Value::Inline(encode_content(header.task.object(index), &[], 0).into());
        (0..header.returns).map(value).collect()
    }

    /// Whether the reply to this call may be written.
    pub(super) fn may_leave(
        &mut self,
        id: ProcessId,
        fiber: &mut Fiber,
        call: Incoming,
        returned: &[Returned],
    ) -> bool {
        if !fiber.logged && !fiber.answered_again {
            return true;
        }
        if !self.journal(id).may_reply() && self.sabotage != Some(Sabotage::RepliesDoNotWait) {
            self.count("replies that waited for the log");
            return false;
        }
        if std::mem::take(&mut fiber.logged) {
            self.journal(id).answers(call.task, returned);
        }
        fiber.answered_again = false;
        true
    }

    /// A reply was written.
    pub(super) fn answered_call(&mut self, id: ProcessId, task: TaskId) {
        let now = self.now;
        let Some(instance) = &self.client(id).actor else { return };
        let (actor, Some(ledger)) = (instance.actor, instance.ledger.clone()) else { return };
        if let Some(at) = ledger.iter().position(|one| *one == task) {
            let found = self.books.ledgers.replied(actor, task, at + 1);
            self.ledger_holds(actor, found);
        }
        if self.journal(id).room(now) == Room::Enough {
            if let Some(due) = self.journal(id).due_at() {
                self.at(due, Step::Goes(id));
            }
            return;
        }
        self.makes_checkpoint(id);
    }

    /// One that has no work makes a checkpoint of what it did.
    pub(super) fn idles(&mut self, id: ProcessId) {
        let now = self.now;
        let Some(journal) = &self.client(id).worker.journal else { return };
        let due = journal.due_at().is_some_and(|due| due <= now);
        let client = self.client(id);
        let idle = client.fibers.is_empty()
            && client.actor.as_ref().is_some_and(|actor| actor.constructed);
        if due && idle {
            self.count("checkpoints of idle actors");
            self.makes_checkpoint(id);
        }
    }

    fn makes_checkpoint(&mut self, id: ProcessId) {
        let now = self.now;
        let instance = self.client(id).actor.as_ref().expect("it is an actor");
        let ledger = instance.ledger.clone().expect("it has checkpoints");
        self.count("checkpoints");
        let state: Vec<u8> = ledger.iter().flat_map(|task| task.to_bytes()).collect();
        let contains: Vec<ObjectId> = Vec::new();
        let journal = self.journal(id);
        let checkpoint = Box::new(journal.checkpoint(now, state, contains));
        let (actor, incarnation) = (journal.actor, journal.incarnation);
        self.say(id, ToNode::Checkpointed { actor, incarnation, checkpoint });
    }

    fn ledger_holds(&self, actor: ActorId, found: Result<(), String>) {
        if let Err(what) = found {
            panic!("{what}\n{}", self.story.about(&[actor.to_string()]));
        }
    }
}
