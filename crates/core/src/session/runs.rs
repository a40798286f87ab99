//! What this process called and what has ended, on its way to the daemon, which remembers it.
//!
//! ```text
//!   a reply, or a failure --> kept here --`RUNS_TOLD_EVERY` after the first one, asked, or at the end--> ToNode::Ran
//! ```
//! A call costs one entry in a list, and no message. Who calls more in that time than the list takes tells the latest ones, and how many
//! there were besides.

use std::sync::Arc;

use hoplo_base::limits::{
    RUN_FAILURE_BYTES_MAX, RUN_NAME_BYTES_MAX, RUNS_TOLD_EVERY, RUNS_UNTOLD_MAX,
};
use hoplo_base::{ActorId, Instant, Map, ProcessId, TaskId};
use hoplo_wire::Failure;
use hoplo_wire::node::{Run, RunCall, RunFailure, Runs, ToNode};
use hoplo_wire::reply::ReplyHeader;

use super::call::{CallOptions, Stage};
use super::{Effect, SessionMachine};

/// One run that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub task: TaskId,
    pub options: Arc<CallOptions>,
    pub actor: Option<ActorId>,
    pub parent: Option<TaskId>,
    pub worker: Option<ProcessId>,
    pub attempt: u32,
    /// As its reply has them; 0 if there was none.
    pub ran_ns: u32,
    pub started_ns: u64,
    pub at: Instant,
    pub failure: Option<Box<Failure>>,
}

#[derive(Debug)]
pub(super) struct Untold {
    ended: Vec<Ended>,
    /// No more than so many are kept; 0: nothing is told.
    most: usize,
    /// Those that there was no place for.
    lost: u64,
}

impl Default for Untold {
    fn default() -> Self {
        Self { ended: Vec::new(), most: RUNS_UNTOLD_MAX, lost: 0 }
    }
}

impl Untold {
    /// True for the first one.
    #[inline]
    pub fn add(&mut self, ended: Ended) -> bool {
        if self.ended.len() >= self.most && !self.drop_older_half() {
            return false;
        }
        self.ended.push(ended);
        self.ended.len() == 1
    }

    /// False if none is kept.
    #[cold]
    fn drop_older_half(&mut self) -> bool {
        let half = self.most / 2;
        self.ended.drain(..half);
        self.lost += half as u64;
        self.most > 0
    }

    /// As the daemon is told of it; `None` if there is nothing.
    fn take(&mut self, now: Instant) -> Option<Runs> {
        if self.ended.is_empty() {
            return None;
        }
        let mut runs = Runs { untold: std::mem::take(&mut self.lost), ..Runs::default() };
        // What has the same options has nearly always the same address.
        let mut known: Map<*const CallOptions, u32> = Map::default();
        for ended in &self.ended {
            let call = *known.entry(Arc::as_ptr(&ended.options)).or_insert_with(|| {
                runs.calls.push(call_of(&ended.options, ended.actor.is_some()));
                runs.calls.len() as u32 - 1
            });
            runs.runs.push(Run {
                task: ended.task,
                attempt: ended.attempt,
                call,
                actor: ended.actor,
                parent: ended.parent,
                worker: ended.worker,
                started_ns: ended.started_ns,
                ran_ns: ReplyHeader::ran(ended.ran_ns),
                ago_us: now.since(ended.at).as_micros() as u64,
                failure: ended.failure.as_ref().map(|failure| Box::new(failure_of(failure))),
            });
        }
        self.ended.clear();
        Some(runs)
    }
}

impl SessionMachine {
    /// The daemon hears of no run of this process.
    pub fn tell_no_runs(&mut self) {
        self.untold = Untold { ended: Vec::new(), most: 0, lost: 0 };
        self.runs_look = None;
        self.look_seldom();
    }

    /// What has ended and was not told is told now.
    pub fn tell_runs(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        self.runs_look = None;
        if let Some(runs) = self.untold.take(now) {
            effects.push(Effect::Node(ToNode::Ran(runs)));
        }
        self.look_seldom();
    }

    #[inline]
    pub(super) fn remember(&mut self, ended: Ended) {
        let now = ended.at;
        if self.untold.add(ended) {
            self.begin_to_remember(now);
        }
    }

    #[cold]
    fn begin_to_remember(&mut self, now: Instant) {
        self.runs_look = Some(now + RUNS_TOLD_EVERY);
        self.look_seldom();
    }

    /// A call without a reply.
    pub(super) fn remember_failure(&mut self, now: Instant, seq: u64, failure: &Failure) {
        let record = &self.tasks[&seq];
        if !record.call.options.remembered {
            return;
        }
        let worker = match record.stage {
            Stage::Placed { worker } => Some(worker),
            Stage::Waiting | Stage::Queued | Stage::Promised | Stage::Limbo => None,
        };
        let ended = Ended {
            task: TaskId { owner: self.me, seq },
            options: record.call.options.clone(),
            actor: record.actor,
            parent: record.parent,
            worker,
            attempt: record.attempt,
            ran_ns: 0,
            started_ns: 0,
            at: now,
            failure: Some(Box::new(failure.clone())),
        };
        self.remember(ended);
    }

    /// What is due seldom is looked up with one comparison.
    pub(super) fn look_seldom(&mut self) {
        self.seldom_look = match (self.memory_look, self.runs_look) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
}

fn call_of(options: &CallOptions, is_method: bool) -> RunCall {
    let resources = &options.shape.resources;
    let of_task = resources.iter().filter(|_| !is_method);
    let units = of_task.map(|(name, _)| (name.to_string(), resources.units(name)));
    RunCall { name: cut(&options.name, RUN_NAME_BYTES_MAX), resources: units.collect() }
}

fn failure_of(failure: &Failure) -> RunFailure {
    RunFailure { kind: failure.kind, text: cut(&failure.summary(), RUN_FAILURE_BYTES_MAX) }
}

fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_string();
    }
    let mut end = bytes_max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", &text[..end])
}
