//! Why something is not ready, as a chain that a person can follow; and listings.

use std::collections::VecDeque;

use hoplo_base::{AnyId, ObjectId, TaskId};

use super::Session;
use super::actors::Status;
use super::refs::State;
use super::tasks::Stage;

/// Links of a chain that are told.
const CHAIN_MAX: usize = 8;

/// A line of `hoplo list tasks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskLine {
    pub task: TaskId,
    pub name: String,
    /// `waiting`, `queued`, `running` (or next in a worker's ring), `limbo`.
    pub stage: &'static str,
    pub attempt: u32,
    pub reason: String,
}

impl Session {
    /// `waits for task:1-2 of f (queued: needs GPU 1, node has 0)`; says so when it is ready.
    pub fn explain(&self, object: ObjectId) -> String {
        let mut text = String::new();
        let mut at = object;
        for link in 0..CHAIN_MAX {
            let Some(entry) = self.objects.get(&at) else {
                return format!("{text}{at} is not known here");
            };
            if let State::Ready(_) = entry.state {
                return format!("{text}{at} is ready");
            }
            let Some(task) = self.own_task(at.task) else {
                return format!(
                    "{text}waits for {at}, made by another process ({})",
                    at.task.owner
                );
            };
            if link > 0 {
                text += "; it ";
            }
            let record = &self.tasks[&task.seq];
            text += &format!("waits for {task} of {}", record.call.options.name);
            let missing = record.call.refs.iter().find(|object| !self.is_ready(**object));
            match (record.stage, missing) {
                (Stage::Waiting, Some(missing)) => at = *missing,
                _ => return format!("{text} ({})", self.reason(task.seq)),
            }
        }
        text + "; and so on"
    }

    fn own_task(&self, task: TaskId) -> Option<TaskId> {
        (task.owner == self.me && self.tasks.contains_key(&task.seq)).then_some(task)
    }

    /// Where a task is and why it is there.
    fn reason(&self, seq: u64) -> String {
        let task = &self.tasks[&seq];
        if let (Some(actor), true) = (task.actor, task.stage != Stage::Waiting) {
            let state = &self.actors[&actor];
            return match (&state.status, task.stage) {
                (Status::Unknown, _) => format!("queued: {actor} is being looked up"),
                (Status::Pending { reason, .. }, _) => {
                    format!("queued: {actor} is pending: {reason}")
                }
                (Status::Restarting { cause, .. }, _) => {
                    format!("queued: {actor} is restarting: {cause}")
                }
                (Status::Alive { worker }, Stage::Placed { .. }) => {
                    format!("running, or next in line, in {actor} ({worker})")
                }
                (Status::Alive { .. }, _) => {
                    let aside = task.parent.and_then(|caller| state.aside.get(&caller));
                    let queue = aside.unwrap_or(&state.queue);
                    let before = queue.iter().take_while(|queued| **queued != seq).count();
                    format!(
                        "queued for {actor}: {before} calls before it, {} sent",
                        state.in_flight.len()
                    )
                }
                (Status::Dead { .. }, _) => format!("{actor} is dead"),
            };
        }
        match task.stage {
            Stage::Waiting => {
                let missing = task.call.refs.iter().find(|object| !self.is_ready(**object));
                match missing {
                    Some(object) => format!("waiting for its argument {object}"),
                    None => "waiting".to_string(),
                }
            }
            Stage::Queued => {
                let state = self.shape_keys.get(&task.call.options.shape);
                let state = state.map(|key| &self.shapes[*key as usize]);
                match state {
                    Some(state) => match &state.stuck {
                        Some((reason, _)) => format!("queued: {reason}"),
                        None if state.leases.is_empty() => {
                            "queued: a worker is being leased".into()
                        }
                        None => {
                            format!("queued: all {} leased workers are busy", state.leases.len())
                        }
                    },
                    None => "queued".to_string(),
                }
            }
            Stage::Placed { worker } => format!("running, or next in line, in {worker}"),
            Stage::Limbo => "its worker is gone; the verdict is awaited".to_string(),
        }
    }

    /// Why the named thing waits; `None` if it is not of this process.
    pub fn why(&self, id: AnyId) -> Option<String> {
        if let Some(actor) = self.actors.keys().find(|actor| id.names_task(actor.0)) {
            let state = &self.actors[actor];
            return Some(match &state.status {
                Status::Unknown => format!("{actor}: being looked up"),
                Status::Pending { reason, .. } => format!("{actor}: pending: {reason}"),
                Status::Alive { worker } => format!(
                    "{actor}: alive in {worker}; {} calls of this process sent, {} queued",
                    state.in_flight.len(),
                    state.queue.len() + state.aside.values().map(VecDeque::len).sum::<usize>()
                ),
                Status::Restarting { cause, .. } => format!("{actor}: restarting: {cause}"),
                Status::Dead { failure } => format!("{actor}: dead: {}", failure.text()),
            });
        }
        let mut objects: Vec<ObjectId> =
            self.objects.keys().filter(|object| id.names_object(**object)).copied().collect();
        objects.sort_unstable();
        if let Some(object) = objects.first() {
            return Some(format!("{object}: {}", self.explain(*object)));
        }
        let mut seqs: Vec<u64> = self.tasks.keys().copied().collect();
        seqs.sort_unstable();
        let seq =
            seqs.into_iter().find(|seq| id.names_task(TaskId { owner: self.me, seq: *seq }))?;
        let task = TaskId { owner: self.me, seq };
        Some(format!("{task} of {}: {}", self.tasks[&seq].call.options.name, self.reason(seq)))
    }

    /// Unfinished tasks in order of submission, at most `most`.
    pub fn task_lines(&self, most: usize) -> Vec<TaskLine> {
        let mut seqs: Vec<u64> = self.tasks.keys().copied().collect();
        seqs.sort_unstable();
        let line = |seq: u64| {
            let task = &self.tasks[&seq];
            TaskLine {
                task: TaskId { owner: self.me, seq },
                name: task.call.options.name.to_string(),
                stage: match task.stage {
                    Stage::Waiting => "waiting",
                    Stage::Queued => "queued",
                    Stage::Placed { .. } => "running",
                    Stage::Limbo => "limbo",
                },
                attempt: task.attempt,
                reason: self.reason(seq),
            }
        };
        seqs.into_iter().take(most).map(line).collect()
    }
}
