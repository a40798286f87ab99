//! Arguments that were lost, and are made again, while a task waits for them in its worker.
//!
//! ```text
//!   worker: waits for an argument --Delayed--> replies that it did not begin (REPLY_NOT_BEGUN), and takes other calls
//!   caller: the task is Waiting again: for a word of each argument that was said to lie at another node --> Queued
//! ```
//! So what the task was granted is free for the one that makes its argument (`core/objects/on_delay`). It ran nothing, so that costs no
//! retry. A method keeps its place in its actor instead, and an actor's constructor its worker.

use hoplo_base::{Instant, ObjectId, ProcessId};
use hoplo_wire::node::ToNode;
use hoplo_wire::{Malformed, Value};

use super::call::Stage;
use super::leases::Replied;
use super::refs::State;
use super::{Effect, SessionMachine};

impl SessionMachine {
    pub(super) fn delayed(&mut self, objects: &[ObjectId]) {
        for object in objects {
            if let Some(entry) = self.objects.get_mut(object) {
                entry.delayed = matches!(entry.state, State::Pending { .. });
            }
        }
    }

    /// It is awaited here, and is made again.
    pub fn is_delayed(&self, object: ObjectId) -> bool {
        let delayed =
            |entry: &super::Entry| entry.delayed && matches!(entry.state, State::Pending { .. });
        self.objects.get(&object).is_some_and(delayed)
    }

    /// Its worker gave it back.
    #[cold]
    pub(super) fn not_begun(
        &mut self,
        now: Instant,
        worker: ProcessId,
        seq: u64,
        replied: Replied,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Malformed> {
        let task = &self.tasks[&seq];
        if task.actor.is_some() {
            return Err(Malformed { what: "a reply that gives a method back" });
        }
        let (refs, is_cancelled) = (task.call.refs.clone(), task.cancel.is_some());
        self.remove_from_worker(now, worker, seq, None, Some(replied));
        self.set_stage(seq, Stage::Waiting);
        if is_cancelled {
            let failure = self.cancelled_failure(seq);
            self.fail_task(now, seq, &failure, effects);
        } else {
            let elsewhere = |object: &ObjectId| match self.value(*object) {
                Some(Value::Stored(location)) => location.known().is_none(),
                Some(Value::Inline(_) | Value::Failed(_)) | None => false,
            };
            let misplaced: Vec<ObjectId> = refs.iter().copied().filter(elsewhere).collect();
            self.misplaced(&misplaced, effects);
            self.admit(now, seq, effects);
        }
        self.after_reply(now, worker, effects);
        Ok(())
    }

    fn misplaced(&mut self, objects: &[ObjectId], effects: &mut Vec<Effect>) {
        for object in objects {
            let entry = self.objects.get_mut(object).expect("the task counts it");
            entry.state = State::Pending { asked: false };
        }
        if !objects.is_empty() {
            self.place_changed();
            self.flush(effects);
            let objects = objects.to_vec();
            effects.push(Effect::Node(ToNode::Misplaced { objects }));
        }
    }
}
