//! The shell of `core::worker::journal`: an actor with checkpoints logs its calls at its home, and its replies wait for that.

use std::time::{Duration, Instant};

use hoplo_base::{ObjectId, TaskId, limits};
use hoplo_core::session::Effect;
use hoplo_core::worker::Journal;
use hoplo_core::worker::journal::Room;
use hoplo_shm::{SleepKind, Slept};
use hoplo_wire::Failure;
use hoplo_wire::node::{ActorSpec, Answer, Checkpoint, LoggedCall, ToNode};
use hoplo_wire::reply::Returned;

use crate::client::Client;
use crate::ringer::slot_of;

/// Of an actor with checkpoints; its main thread alone runs calls.
const THERE: &str = "an actor with checkpoints has a journal from its start on";

impl Client {
    /// From which the calls of this actor go on. Nothing for an actor without checkpoints.
    pub fn begin_journal(
        &self,
        spec: &ActorSpec,
        incarnation: u32,
        checkpoint: Option<&Checkpoint>,
    ) {
        let Some(every) = spec.checkpoints else { return };
        let (me, actor) = (self.welcome.process, spec.actor);
        let waits = spec.replies_wait(self.welcome.job, me.node());
        let journal = Journal::new(actor, incarnation, me, every, waits, checkpoint, self.now());
        self.worker.machine().begins_journal(journal);
    }

    fn journal<R>(&self, look: impl FnOnce(&mut Journal) -> R) -> R {
        look(self.worker.machine().journal.as_mut().expect(THERE))
    }

    /// What this call was answered, if it ran before.
    pub fn answer_of_known(&self, task: TaskId) -> Option<Answer> {
        self.journal(|journal| journal.known(task).cloned())
    }

    /// The home is told that this call begins; no reply to it is written before `wait_until_logged`.
    pub fn log_call(&self, task: TaskId, frame: &[u8], contains: Vec<ObjectId>) {
        let (actor, incarnation, call) = self.journal(|journal| {
            let call = Box::new(journal.begins(task, frame, contains));
            (journal.actor, journal.incarnation, call)
        });
        self.with(|session, now, effects| {
            session.mention_exported(now, &call.contains, effects);
            effects.push(Effect::Node(ToNode::CallLogged { actor, incarnation, call }));
        });
    }

    /// Of what the home sent: it runs again.
    pub fn replay_call(&self, call: &LoggedCall) {
        self.journal(|journal| journal.replays(call));
    }

    pub fn answers_again(&self, task: TaskId, answer: Answer) {
        self.journal(|journal| journal.answers_again(task, answer));
    }

    /// Until the reply to the call that runs may go (no GIL).
    pub fn wait_until_logged(&self) {
        let bell = self.segment.doorbell(slot_of(self.welcome.process));
        while self.gone.get().is_none() {
            let sleeper = bell.prepare(SleepKind::Strict);
            if self.journal(|journal| journal.may_reply()) {
                return;
            }
            match sleeper.sleep(Some(limits::SIGNALS_PERIOD.max(Duration::from_millis(1)))) {
                Slept::Interrupted | Slept::Woken | Slept::TimedOut => {}
            }
        }
    }

    /// The call that runs is about to be answered with this.
    pub fn answers(&self, task: TaskId, returned: &[Returned]) {
        self.journal(|journal| journal.answers(task, returned));
    }

    /// How the log stands, between two calls.
    pub fn log_room(&self) -> Room {
        let now = self.now();
        self.journal(|journal| journal.room(now))
    }

    /// When a checkpoint is due though no call comes.
    pub fn checkpoint_due_at(&self) -> Option<Instant> {
        let due = self.worker.machine().journal.as_ref().and_then(|journal| journal.due_at())?;
        let left = Duration::from_nanos(due.0.saturating_sub(self.now().0));
        Some(Instant::now() + left)
    }

    /// The program wants a checkpoint behind the call that runs. False: this is no actor that makes any.
    pub fn ask_for_checkpoint(&self) -> bool {
        let mut machine = self.worker.machine();
        machine.journal.as_mut().map(|journal| journal.ask()).is_some()
    }

    /// What the shell has put for callers that may ask again.
    pub fn kept_answers(&self) -> Vec<ObjectId> {
        self.journal(|journal| journal.kept().collect())
    }

    /// `contains`: in the state. What is kept for callers is held, too.
    pub fn checkpoint(&self, state: Vec<u8>, mut contains: Vec<ObjectId>) {
        let now = self.now();
        let (actor, incarnation, checkpoint) = self.journal(|journal| {
            contains.extend(journal.kept());
            contains.retain(|object| *object != journal.actor.handle());
            contains.sort_unstable();
            contains.dedup();
            let checkpoint = Box::new(journal.checkpoint(now, state, contains));
            (journal.actor, journal.incarnation, checkpoint)
        });
        self.with(|session, now, effects| {
            session.mention_exported(now, &checkpoint.contains, effects);
            effects.push(Effect::Node(ToNode::Checkpointed { actor, incarnation, checkpoint }));
        });
    }

    /// It could not be made.
    pub fn no_checkpoint(&self) {
        let now = self.now();
        self.journal(|journal| journal.no_checkpoint(now));
    }

    /// No process can be this actor any more.
    pub fn actor_failed(&self, failure: Failure) {
        let actor = self.journal(|journal| journal.actor);
        self.core.lock().writer.send(&ToNode::ActorFailed { actor, failure });
    }
}
