//! What has finished, as JSON: runs, processes, jobs (`hoplo_core::history`).

use std::collections::BTreeMap;

use hoplo_base::{Instant, JobId};
use hoplo_core::control::{ActorEntry, ActorPhase, HistoryEntry, JobEntry};
use hoplo_core::history::{PastProcess, PastRun};
use hoplo_core::node::{Everywhere, Here, PastRows, Report};
use hoplo_wire::node::{DeathCause, Run, RunCall};
use serde_json::{Value, json};

use super::ids::{job_id, node_id, process_id};
use crate::clock::clock;
use crate::daemon::{Daemon, micros};

impl Daemon {
    /// Runs of which it is known when they began.
    pub(super) fn timeline(&self) -> Value {
        let node = self.node_id();
        let runs = self.node.history.runs(usize::MAX);
        let began = runs.filter(|(_, past)| past.run.started_ns > 0);
        began.map(|(_, past)| bar(&node, &past.run, &past.call)).collect()
    }

    pub(super) fn history_json(&self, of_job_max: usize) -> Value {
        let row =
            |(job, past): (JobId, &PastRun)| run_json(job, &past.run, &past.call, past.ended_us);
        let runs: Vec<Value> = self.node.history.runs(of_job_max).map(row).collect();
        // What to add to the machine's clock for the time of day.
        let mut clocks = BTreeMap::new();
        clocks.insert(self.node_id(), micros().saturating_sub(clock().0 / 1000));
        json!({ "runs": runs, "forgotten": self.node.history.forgotten(), "clocks": clocks })
    }

    pub(super) fn past_processes_json(&self) -> Value {
        let node = self.node_id();
        let row = |past: &PastProcess| {
            json!({
                "id": past.id.to_string(),
                "worker_id": process_id(past.id),
                "pid": past.pid,
                "node": node,
                "kind": if past.is_driver { "driver" } else { "worker" },
                "state": "dead",
                "job": past.job.to_string(),
                "job_id": job_id(past.job),
                "title": past.title,
                "started_us": past.started_us,
                "ended_us": past.ended_us,
                "cause": cause_name(&past.cause),
                "reason": past.why,
            })
        };
        self.node.history.processes().map(row).collect()
    }

    /// Of jobs that another node told of that one knows more.
    pub(super) fn jobs_json(&self) -> Value {
        let mut rows = BTreeMap::new();
        for entry in self.control.jobs() {
            rows.insert(entry.job, self.job_json(&entry));
        }
        let here = self.node.config().node;
        for job in self.node.jobs().filter(|job| job.driver.node() == here) {
            rows.insert(job.id, self.job_json(&job.entry()));
        }
        rows.into_values().collect()
    }

    fn job_json(&self, entry: &JobEntry) -> Value {
        json!({
            "id": entry.job.to_string(),
            "job_id": job_id(entry.job),
            "state": if entry.ended_us.is_some() { "ended" } else { "running" },
            "pid": Some(entry.driver_pid).filter(|pid| *pid > 0),
            "node": node_id(entry.driver.node()),
            "entrypoint": entry.config.entrypoint,
            "namespace": entry.config.namespace,
            "started_us": entry.started_us,
            "ended_us": entry.ended_us,
        })
    }

    /// Microseconds since 1970.
    pub(super) fn wall_us_of(&self, at: Instant) -> u64 {
        micros().saturating_sub((clock().since(at).as_micros()) as u64)
    }
}

fn run_json(job: JobId, run: &Run, call: &RunCall, ended_us: u64) -> Value {
    json!({
        "task": run.task.to_string(),
        "task_id": run.task.hex(),
        "job_id": job_id(job),
        "name": call.name,
        "attempt": run.attempt,
        "actor_id": run.actor.map(|actor| actor.hex()),
        "parent_task_id": run.parent.map(|parent| parent.hex()),
        "worker_id": run.worker.map(process_id),
        "node": run.worker.map(|worker| node_id(worker.node())),
        "started_ns": Some(run.started_ns).filter(|ns| *ns > 0),
        "ran_ns": run.ran_ns,
        "ended_us": ended_us,
        "failure": run.failure.as_ref().map(|failure| failure.kind.exception()),
        "reason": run.failure.as_ref().map(|failure| &failure.text),
        "resources": call.resources.iter().cloned().collect::<BTreeMap<_, _>>(),
    })
}

/// In a timeline; `node`: who remembers it.
fn bar(node: &str, run: &Run, call: &RunCall) -> Value {
    json!({
        "name": call.name,
        "task": run.task.to_string(),
        "process": run.worker.map(|worker| worker.to_string()),
        "started_ns": run.started_ns,
        "ran_ns": run.ran_ns,
        "failed": run.failure.is_some(),
        "node": node,
    })
}

/// What dead nodes remembered, as each of them would have told it: of each job so many runs, the latest ones.
pub(super) fn part_of_dead(report: &Report, rows: PastRows) -> Option<Value> {
    match report {
        Report::Everywhere { subject: Everywhere::History { of_job_max }, .. } => {
            Some(dead_history(rows.runs, *of_job_max))
        }
        Report::Everywhere { subject: Everywhere::Timeline, .. } => Some(dead_timeline(&rows.runs)),
        Report::Here(Here::Actors(_)) => Some(dead_actors(&rows.actors)),
        Report::Everywhere { .. } | Report::Here(_) | Report::Drain { .. } | Report::Why { .. } => {
            None
        }
    }
}

/// Actors that ended with their home, or before it: none that lives has taken them over.
fn dead_actors(entries: &[ActorEntry]) -> Value {
    let row = |entry: &ActorEntry| {
        let home = entry.actor.0.owner.node();
        let why = entry.failure.as_ref().map(hoplo_wire::Failure::text);
        json!({
            "actor_id": entry.actor.hex(),
            "id": entry.actor.to_string(),
            "class_name": entry.class_name,
            "name": entry.name,
            "namespace": entry.namespace,
            "job": entry.job.to_string(),
            "job_id": job_id(entry.job),
            "detached": entry.detached,
            "restarts": entry.incarnation,
            "state": ActorPhase::Dead.to_string(),
            "pid": null,
            "node": node_id(home),
            "worker_id": null,
            "reason": why.unwrap_or_else(|| format!("{home}, where it was at home, died")),
        })
    };
    json!({ "rows": entries.iter().map(row).collect::<Vec<_>>(), "hosted": {} })
}

fn dead_history(mut rows: Vec<HistoryEntry>, of_job_max: usize) -> Value {
    let (mut runs, mut forgotten, mut clocks) = (Vec::new(), 0u64, BTreeMap::new());
    let mut of_jobs: BTreeMap<JobId, usize> = BTreeMap::new();
    let end = |row: &HistoryEntry| row.runs.last().map(|ended| ended.ended_us);
    rows.sort_by_key(|row| std::cmp::Reverse(end(row)));
    for row in &rows {
        forgotten = forgotten.saturating_add(row.forgotten);
        clocks.insert(node_id(row.node), row.clock_us);
        let of_job = of_jobs.entry(row.job).or_default();
        for ended in row.runs.iter().rev() {
            let call = row.calls.get(ended.run.call as usize);
            if let Some(call) = call.filter(|_| *of_job < of_job_max) {
                *of_job += 1;
                runs.push(run_json(row.job, &ended.run, call, ended.ended_us));
            }
        }
    }
    json!({ "runs": runs, "forgotten": forgotten, "clocks": clocks })
}

fn dead_timeline(rows: &[HistoryEntry]) -> Value {
    let began = rows.iter().flat_map(|row| {
        let began = row.runs.iter().filter(|ended| ended.run.started_ns > 0);
        began.filter_map(|ended| {
            let call = row.calls.get(ended.run.call as usize)?;
            Some(bar(&node_id(row.node), &ended.run, call))
        })
    });
    began.collect()
}

fn cause_name(cause: &DeathCause) -> &'static str {
    match cause {
        DeathCause::Exited { code: 0 } => "left",
        DeathCause::Exited { .. } => "exited",
        DeathCause::Signaled { .. } => "signaled",
        DeathCause::OutOfMemory { .. } => "out of memory",
        DeathCause::Stopped { .. } => "stopped",
        DeathCause::Lost { .. } => "lost",
        DeathCause::NotStarted { .. } => "not started",
        DeathCause::BadEnvironment { .. } => "bad environment",
    }
}
