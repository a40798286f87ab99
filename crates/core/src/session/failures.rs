//! How tasks end without a result, or run again: failures, revoked calls, cancellation, dead workers.

use hoplo_base::{Instant, ProcessId, TaskId};
use hoplo_wire::node::{DeathCause, Obituary, Tell, ToNode};
use hoplo_wire::{Failure, FailureKind, Value};

use super::call::{Stage, Values};
use super::results::Origin;
use super::tasks::{Cancel, Task};
use super::{Effect, SessionMachine, cancelled};

impl SessionMachine {
    /// The task will not run (again): every object of it is this failure. It is in no lease any more.
    pub(super) fn fail_task(
        &mut self,
        now: Instant,
        seq: u64,
        failure: &Failure,
        effects: &mut Vec<Effect>,
    ) {
        self.give_back_parts(now, seq, effects);
        self.remember_failure(now, seq, failure);
        let record = &self.tasks[&seq];
        if record.creates.is_some() {
            self.creation_failed(now, seq, failure, effects);
        } else if record.stream.is_some() {
            self.stream_end(now, seq, Some(failure.clone()), effects);
        } else {
            let values = Values::from_buf([(Value::Failed(failure.clone()), vec![])]);
            if record.call.options.returns == 0 {
                effects.push(Effect::Warn {
                    line: format!("{} failed: {}", record.call.options.name, failure.text()),
                });
            }
            self.finish(now, seq, values, Origin::Own, effects);
        }
    }

    /// It runs again: an own task from the front of its queue, a method in its place of the order.
    pub(super) fn requeue(&mut self, now: Instant, seq: u64, effects: &mut Vec<Effect>) {
        self.set_stage(seq, Stage::Queued);
        match self.tasks[&seq].actor {
            Some(actor) => self.requeue_method(now, actor, seq, effects),
            None => self.enqueue_first(now, seq, effects),
        }
    }

    pub(super) fn revoked(
        &mut self,
        now: Instant,
        worker: ProcessId,
        seqs: &[u64],
        kept: &[u64],
        effects: &mut Vec<Effect>,
    ) {
        let is_far = worker.node() != self.me.node();
        for seq in seqs.iter().rev() {
            let placed =
                self.tasks.get(seq).is_some_and(|task| task.stage == Stage::Placed { worker });
            if is_far && !placed {
                continue; // the answer came after its call had ended otherwise
            }
            assert!(placed, "SES-1: {seq} was revoked from {worker} where it is not placed");
            self.remove_from_worker(now, worker, *seq, self.tasks[seq].actor, None);
            if self.tasks[seq].cancel.is_some() {
                let failure = self.cancelled_failure(*seq);
                self.set_stage(*seq, Stage::Limbo);
                self.fail_task(now, *seq, &failure, effects);
            } else {
                self.requeue(now, *seq, effects);
            }
        }
        for seq in kept {
            let Some(task) = self.tasks.get(seq) else { continue };
            if let Some(cancel) = task.cancel
                && task.stage == (Stage::Placed { worker })
            {
                // As its call names it.
                let id = self.as_called(*seq);
                if cancel.force && task.actor.is_none() {
                    self.kill_if_it_runs(worker, *seq, kept, effects);
                    continue;
                }
                let message = Tell::Cancel { task: id, recursive: cancel.recursive };
                effects.push(Effect::Node(ToNode::Tell { to: worker, message }));
            }
        }
        self.after_revocation(now, worker, !seqs.is_empty(), effects);
    }

    /// An error of this call alone: its worker takes others.
    pub(super) fn not_placed(
        &mut self,
        now: Instant,
        worker: ProcessId,
        seq: u64,
        failure: &Failure,
        effects: &mut Vec<Effect>,
    ) {
        let placed = |task: &&Task| task.stage == Stage::Placed { worker };
        let Some(task) = self.tasks.get(&seq).filter(placed) else { return };
        self.remove_from_worker(now, worker, seq, task.actor, None);
        self.set_stage(seq, Stage::Limbo);
        self.fail_task(now, seq, failure, effects);
        self.after_revocation(now, worker, true, effects);
    }

    pub(super) fn cancelled_failure(&self, seq: u64) -> Failure {
        let id = TaskId { owner: self.me, seq };
        cancelled(&self.tasks[&seq].call.options.name, id)
    }

    pub(super) fn cancel(
        &mut self,
        now: Instant,
        task: TaskId,
        force: bool,
        recursive: bool,
        effects: &mut Vec<Effect>,
    ) {
        let Some(task) = self.task_here(task) else {
            let message = Tell::Cancel { task, recursive };
            effects.push(Effect::Node(ToNode::Tell { to: task.owner, message }));
            return;
        };
        let Some(record) = self.tasks.get_mut(&task.seq) else { return };
        record.cancel = Some(Cancel { force, recursive });
        match record.stage {
            Stage::Placed { worker } => match self.workers.get(&worker).copied() {
                Some(at) if force => self.clear_behind(at, effects),
                _ => effects.push(Effect::Revoke { worker, seqs: vec![task.seq] }),
            },
            Stage::Waiting | Stage::Limbo => {
                let failure = self.cancelled_failure(task.seq);
                self.fail_task(now, task.seq, &failure, effects);
            }
            Stage::Promised => self.cancel_promise(now, task.seq, effects),
            Stage::Queued => {
                let key = record.actor.is_none().then(|| self.key_of(task.seq));
                let failure = self.cancelled_failure(task.seq);
                self.fail_task(now, task.seq, &failure, effects);
                for key in key.map_or(Vec::new(), |key| self.queues_of(key)) {
                    self.pump(now, key, effects); // the demand may be over
                }
            }
        }
    }

    /// What a task of this process stands for: one of a dead owner, or an own one whose result was lost.
    pub fn stands_for(&self, seq: u64) -> Option<TaskId> {
        self.tasks.get(&seq)?.stands_for
    }

    /// Under which name its workers and everybody else know a task of this process.
    pub(super) fn as_called(&self, seq: u64) -> TaskId {
        self.stands_for(seq).unwrap_or(TaskId { owner: self.me, seq })
    }

    /// The task of this process that is meant: of a dead owner's, and of one that has ended and runs again, the one that stands for it.
    pub fn task_here(&self, task: TaskId) -> Option<TaskId> {
        if task.owner == self.me {
            if self.tasks.contains_key(&task.seq) {
                return Some(task);
            }
            return Some(self.run_of(task).map_or(task, |(run, _)| run));
        }
        let mut adopted = self.tasks.iter();
        let found = adopted.find(|(_, own)| own.stands_for == Some(task));
        found.map(|(seq, _)| TaskId { owner: self.me, seq: *seq })
    }

    /// The task that ran here is cancelled with all that it submitted.
    pub fn cancel_children(&mut self, now: Instant, parent: TaskId, effects: &mut Vec<Effect>) {
        let mut children: Vec<u64> = self
            .tasks
            .iter()
            .filter(|(_, task)| task.parent == Some(parent))
            .map(|(seq, _)| *seq)
            .collect();
        children.sort_unstable();
        for seq in children {
            let task = TaskId { owner: self.me, seq };
            self.cancel(now, task, false, true, effects);
        }
    }

    pub(super) fn process_gone(
        &mut self,
        now: Instant,
        process: ProcessId,
        obituary: &Obituary,
        unstarted: &[u64],
        effects: &mut Vec<Effect>,
    ) {
        let Some(at) = self.workers.get(&process).copied() else {
            self.actor_worker_gone(now, process, obituary, unstarted, effects);
            return;
        };
        let lease = self.remove_lease(at);
        let none_begun = lease.in_flight.iter().all(|seq| unstarted.contains(seq));
        for seq in lease.in_flight.iter().rev() {
            let task = self.tasks.get_mut(seq).expect("SES-1: what is in flight exists");
            if task.cancel.is_some() {
                let failure = self.cancelled_failure(*seq);
                self.set_stage(*seq, Stage::Limbo);
                self.fail_task(now, *seq, &failure, effects);
                continue;
            }
            if none_begun {
                if self.may_wait_for_another_worker(*seq) {
                    self.requeue(now, *seq, effects);
                } else {
                    let failure = self.untaken(*seq, obituary);
                    self.set_stage(*seq, Stage::Limbo);
                    self.fail_task(now, *seq, &failure, effects);
                }
            } else if unstarted.contains(seq) {
                self.requeue(now, *seq, effects);
            } else if task.retries_left != 0 {
                let name = task.call.options.name.clone();
                let line = format!("{name} runs again: {}", obituary.headline());
                effects.push(Effect::Warn { line });
                self.run_again(now, *seq, effects);
            } else {
                let failure = self.crash(*seq, obituary);
                self.set_stage(*seq, Stage::Limbo);
                self.fail_task(now, *seq, &failure, effects);
            }
        }
        self.pump(now, at.key, effects);
    }

    fn crash(&self, seq: u64, obituary: &Obituary) -> Failure {
        let task = &self.tasks[&seq];
        let id = TaskId { owner: self.me, seq };
        let name = &task.call.options.name;
        let mut text = format!("the worker of {id} of {name} died: {}", obituary.headline());
        if task.attempt > 0 {
            text += &format!(" (run {} times; max_retries is used up)", task.attempt + 1);
        }
        crashed(text, obituary)
    }

    /// SES-7
    fn untaken(&self, seq: u64, obituary: &Obituary) -> Failure {
        let task = &self.tasks[&seq];
        let id = TaskId { owner: self.me, seq };
        let name = &task.call.options.name;
        let text = format!(
            "{} workers in a row died before they took {id} of {name}, and max_retries is used up. It did not run in them. \
             The last one died: {}",
            task.untaken,
            obituary.headline()
        );
        crashed(text, obituary)
    }
}

/// Of the kind of its death, with its last lines.
fn crashed(mut text: String, obituary: &Obituary) -> Failure {
    if !obituary.last_lines.is_empty() {
        text += "\nthe last lines it printed:";
        for line in &obituary.last_lines {
            text += "\n  ";
            text += line;
        }
    }
    let kind = match &obituary.cause {
        DeathCause::OutOfMemory { .. } => FailureKind::OutOfMemory,
        DeathCause::BadEnvironment { .. } => FailureKind::RuntimeEnv,
        DeathCause::NotStarted { .. } => FailureKind::WorkerStart,
        DeathCause::Exited { .. }
        | DeathCause::Signaled { .. }
        | DeathCause::Stopped { .. }
        | DeathCause::Lost { .. } => FailureKind::WorkerCrashed,
    };
    Failure::new(kind, text)
}
