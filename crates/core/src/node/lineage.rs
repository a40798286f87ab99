//! Tasks that others depend on, written behind.
//!
//! A task whose result was shared while it was pending, and still is after [`LINEAGE_DELAY`], gets a row: who
//! shares short tasks pays nothing. The row becomes history when the result is there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hoplo_base::limits::LINEAGE_DELAY;
use hoplo_base::{Instant, JobId, ObjectId, ProcessId, TaskId};
use hoplo_wire::call::CallView;
use hoplo_wire::node::{Lineage, Notice, SharedState};

use super::{Node, Timer};
use crate::control::{TaskEntry, TaskState};

/// Pending results that were shared.
#[derive(Debug, Default)]
pub(super) struct Escaped {
    /// Looked at when their time has come, in order.
    fresh: VecDeque<(Instant, ObjectId)>,
    written: BTreeMap<TaskId, Written>,
    timer: bool,
}

/// A task with a row.
#[derive(Debug)]
struct Written {
    job: JobId,
    owner: ProcessId,
    /// Its results that were shared and are not there.
    objects: BTreeSet<ObjectId>,
}

impl Node {
    /// A result was shared before it was there.
    pub(super) fn note_escape(&mut self, notice: &Notice) {
        let Notice::Shared { object, state: SharedState::Pending { lineage: Some(_) } } = notice
        else {
            return;
        };
        if self.config.keeps_rows {
            self.escaped.fresh.push_back((self.now + LINEAGE_DELAY, *object));
            self.look_at_escaped_later();
        }
    }

    pub(super) fn look_at_escaped(&mut self) {
        self.escaped.timer = false;
        while let Some((at, object)) = self.escaped.fresh.front().copied()
            && at <= self.now
        {
            self.escaped.fresh.pop_front();
            let Some(entry) = self.task_entry(object) else { continue };
            if !self.escaped.written.contains_key(&entry.task) {
                self.save(&entry);
            }
            let TaskEntry { task, job, owner, .. } = entry;
            let written = self.escaped.written.entry(task);
            let written =
                written.or_insert_with(|| Written { job, owner, objects: BTreeSet::new() });
            written.objects.insert(object);
        }
        let mut done = Vec::new();
        for (task, written) in &mut self.escaped.written {
            written.objects.retain(|object| self.objects.pending(*object).is_some());
            if written.objects.is_empty() {
                done.push(*task);
            }
        }
        for task in done {
            let written = self.escaped.written.remove(&task).expect("it was just seen");
            let Written { job, owner, .. } = written;
            let state = TaskState::Finished;
            let entry = TaskEntry { task, job, owner, attempt: 0, state, lineage: None, why: None };
            self.save_last(&entry);
        }
        self.look_at_escaped_later();
    }

    fn look_at_escaped_later(&mut self) {
        let waits = !self.escaped.fresh.is_empty() || !self.escaped.written.is_empty();
        if waits && !std::mem::replace(&mut self.escaped.timer, true) {
            self.after(LINEAGE_DELAY, Timer::Escaped);
        }
    }

    fn task_entry(&self, object: ObjectId) -> Option<TaskEntry> {
        let (owner, lineage) = self.objects.pending(object)?;
        let owner = owner.unwrap_or(object.task.owner);
        Some(TaskEntry {
            task: object.task,
            job: self.job_of(owner, lineage)?,
            owner,
            attempt: 0,
            state: TaskState::Pending,
            lineage: Some(lineage.clone()),
            why: None,
        })
    }

    /// Whose task it is. The call itself says it, also when its owner is buried.
    fn job_of(&self, owner: ProcessId, lineage: &Lineage) -> Option<JobId> {
        let call = || CallView::parse(&lineage.frame).ok();
        let owner = self.processes.get(&owner).map(|process| process.job);
        owner.or_else(|| call().map(|call| call.header.job))
    }
}
