//! What a new daemon makes of the rows that an earlier one left.
//!
//! With a daemon go its workers and all objects. So a new one finds rows of what ran: actors become dead
//! and tasks lost, with the reason, and jobs ended. Kv rows stay as they are; functions stay that a lost actor or
//! task of their job might be looked at with.

use std::collections::BTreeSet;

use hoplo_base::JobId;
use hoplo_wire::control::{Key, Table};
use hoplo_wire::node::ActorState;
use hoplo_wire::{Failure, FailureKind};

use super::{Effect, Node};
use crate::actors::life::{ActorRow, Former};
use crate::control::{
    ActorEntry, ControlStore, Entry, EventEntry, FunctionEntry, JobEntry, NodeEntry, TaskEntry,
    TaskState, store,
};

/// All that is in the tables. What does not parse was written by another program; it stays as it is.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    pub nodes: Vec<NodeEntry>,
    pub jobs: Vec<JobEntry>,
    pub actors: Vec<ActorEntry>,
    pub tasks: Vec<TaskEntry>,
    /// Every row of a function, by the job that it is of.
    pub functions: Vec<(JobId, Key)>,
}

impl Rows {
    pub fn read(store: &dyn ControlStore) -> Self {
        let mut functions = Vec::new();
        store::rows(store, Table::Function, |key, row| {
            if let Ok(entry) = FunctionEntry::from_row(row) {
                functions.push((entry.job, Key { table: Table::Function, bytes: key.to_vec() }));
            }
        });
        Self {
            nodes: store::entries(store),
            jobs: store::entries(store),
            actors: store::entries(store),
            tasks: store::entries(store),
            functions,
        }
    }
}

impl Node {
    /// Before the first event: makes of an earlier daemon's rows what is true now.
    pub fn recall(&mut self, rows: Rows, effects: &mut Vec<Effect>) {
        let before = !rows.jobs.is_empty();
        for mut node in rows.nodes {
            if std::mem::replace(&mut node.alive, false) {
                self.save(&node);
            }
        }
        for mut job in rows.jobs {
            self.jobs_before = self.jobs_before.max(job.job.0);
            if job.ended_us.is_none() {
                job.ended_us = Some(self.wall_us);
                self.save(&job);
            }
        }
        let mut kept = BTreeSet::new();
        let actors = self.recall_actors(rows.actors, &mut kept);
        let tasks = self.recall_tasks(rows.tasks, &mut kept);
        for (job, key) in rows.functions {
            if !kept.contains(&job) {
                self.out.push(Effect::Forget { key });
            }
        }
        if before {
            self.events += 1;
            let text = format!("the node was started again; lost: {actors} actors, {tasks} tasks");
            self.log(format!("goes on with the store of an earlier daemon: {text}"));
            let (at_us, seq) = (self.wall_us, self.events);
            self.save_last(&EventEntry { at_us, seq, text });
        }
        self.work_off_queue();
        effects.append(&mut self.out);
    }

    fn recall_actors(&mut self, entries: Vec<ActorEntry>, kept: &mut BTreeSet<JobId>) -> u64 {
        let mut lost = 0;
        let mut effects = Vec::new();
        for mut entry in entries {
            if entry.state != "DEAD" {
                lost += 1;
                let text = format!(
                    "{} {:?} ({}) was {} when its node's daemon ended without stopping it; \
                     actors do not survive that",
                    entry.class_name, entry.name, entry.actor, entry.state
                );
                entry.failure = Some(Failure::new(FailureKind::ActorDied, text));
                entry.lost = true;
                entry.state = "DEAD".to_string();
                self.save(&entry);
            }
            if entry.lost && entry.detached {
                kept.insert(entry.job);
            }
            let unknown = || Failure::new(FailureKind::ActorDied, "it is dead".to_string());
            let former = Former {
                actor: entry.actor,
                class_name: entry.class_name,
                name: entry.name,
                namespace: entry.namespace,
                job: entry.job,
                detached: entry.detached,
                incarnation: entry.incarnation,
                handle: entry.handle,
                failure: entry.failure.unwrap_or_else(unknown),
                lost: entry.lost,
            };
            self.actors.recall(former, &mut effects);
        }
        effects.into_iter().for_each(|effect| self.on_actors(effect));
        lost
    }

    fn recall_tasks(&mut self, entries: Vec<TaskEntry>, kept: &mut BTreeSet<JobId>) -> u64 {
        let mut lost = 0;
        for mut entry in entries {
            match entry.state {
                TaskState::Pending => {
                    lost += 1;
                    let why = format!(
                        "{} owned it when the node's daemon ended without stopping it",
                        entry.owner
                    );
                    entry.state = TaskState::Lost;
                    entry.why = Some(why);
                    self.save_last(&entry);
                    kept.insert(entry.job);
                }
                TaskState::Lost => {
                    kept.insert(entry.job);
                }
                TaskState::Finished | TaskState::Failed => {}
            }
        }
        lost
    }
}

pub(super) fn actor_entry(row: ActorRow) -> ActorEntry {
    let state = state_name(&row.state).to_string();
    let failure = match row.state {
        ActorState::Dead { failure } => Some(failure),
        ActorState::Pending { .. } | ActorState::Alive { .. } | ActorState::Restarting { .. } => {
            None
        }
    };
    ActorEntry {
        actor: row.actor,
        class_name: row.class_name,
        name: row.name,
        namespace: row.namespace,
        job: row.job,
        state,
        incarnation: row.incarnation,
        detached: row.detached,
        handle: row.handle,
        failure,
        lost: row.lost,
    }
}

/// As people and rows call it.
pub fn state_name(state: &ActorState) -> &'static str {
    match state {
        ActorState::Pending { .. } => "PENDING",
        ActorState::Alive { .. } => "ALIVE",
        ActorState::Restarting { .. } => "RESTARTING",
        ActorState::Dead { .. } => "DEAD",
    }
}
