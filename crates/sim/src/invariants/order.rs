//! SES-5: calls of one caller to one actor reach each of its workers in the order of their submission.
//!
//! Those of a task count as one caller's, and so do all those of an actor, or of the driver. A call that was at a worker
//! before (an exception is retried) may come again at any time. Calls that may be overtaken have no place in this order.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::{ActorId, ProcessId, TaskId};

use crate::cluster::Cluster;

/// Who calls: a process, and in it a task where tasks are told apart.
type Caller = (ProcessId, Option<TaskId>);

#[derive(Debug, Default)]
pub struct Order {
    calls: BTreeMap<TaskId, (ActorId, Caller)>,
    /// Placed within its submission, before it was known whose call it is.
    fresh: Option<(ProcessId, TaskId)>,
    placed: BTreeSet<(ProcessId, TaskId)>,
    last: BTreeMap<(ProcessId, ActorId, Caller), TaskId>,
}

impl Order {
    /// `Err`: it was submitted after `task`, and placed there before it.
    fn places(&mut self, worker: ProcessId, task: TaskId) -> Result<(), TaskId> {
        let Some((actor, caller)) = self.calls.get(&task) else {
            self.fresh = Some((worker, task));
            return Ok(());
        };
        if !self.placed.insert((worker, task)) {
            return Ok(());
        }
        match self.last.insert((worker, *actor, *caller), task) {
            Some(last) if last.seq > task.seq => Err(last),
            _ => Ok(()),
        }
    }
}

impl Cluster {
    pub fn calls(&mut self, task: TaskId, actor: ActorId, parent: Option<TaskId>) {
        let is_actor = self.clients[&task.owner].actor.is_some();
        let order = &mut self.books.order;
        order.calls.insert(task, (actor, (task.owner, parent.filter(|_| !is_actor))));
        if let Some((worker, _)) = order.fresh.take_if(|(_, fresh)| *fresh == task) {
            self.places_in_order(worker, task);
        }
    }

    pub fn places_in_order(&mut self, worker: ProcessId, task: TaskId) {
        if let Err(later) = self.books.order.places(worker, task) {
            let story = self.story.about(&[task.to_string(), later.to_string()]);
            panic!("SES-5: {task} is placed in {worker} after {later}\n{story}");
        }
    }
}
