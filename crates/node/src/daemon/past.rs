//! What has finished, as JSON: runs, processes, jobs (`hoplo_core::history`).

use std::collections::BTreeMap;

use hoplo_base::{Instant, JobId};
use hoplo_core::control::JobEntry;
use hoplo_core::history::{PastProcess, PastRun};
use hoplo_wire::node::DeathCause;
use serde_json::{Value, json};

use super::query::{job_id, node_id, process_id};
use crate::clock::clock;
use crate::daemon::{Daemon, micros};

impl Daemon {
    /// Runs of which it is known when they began.
    pub(super) fn timeline(&self) -> Value {
        let node = self.node_id();
        let runs = self.node.history.runs(usize::MAX);
        let began = runs.filter(|(_, past)| past.run.started_ns > 0);
        let row = |(_, past): (JobId, &PastRun)| {
            json!({
                "name": past.call.name,
                "task": past.run.task.to_string(),
                "process": past.run.worker.map(|worker| worker.to_string()),
                "started_ns": past.run.started_ns,
                "ran_ns": past.run.ran_ns,
                "failed": past.run.failure.is_some(),
                "node": node,
            })
        };
        began.map(row).collect()
    }

    pub(super) fn history_json(&self, of_job_max: usize) -> Value {
        let row = |(job, past): (JobId, &PastRun)| {
            let run = &past.run;
            json!({
                "task": run.task.to_string(),
                "task_id": run.task.hex(),
                "job_id": job_id(job),
                "name": past.call.name,
                "attempt": run.attempt,
                "actor_id": run.actor.map(|actor| actor.hex()),
                "parent_task_id": run.parent.map(|parent| parent.hex()),
                "worker_id": run.worker.map(process_id),
                "node": run.worker.map(|worker| node_id(worker.node())),
                "started_ns": Some(run.started_ns).filter(|ns| *ns > 0),
                "ran_ns": run.ran_ns,
                "ended_us": past.ended_us,
                "failure": run.failure.as_ref().map(|failure| failure.kind.exception()),
                "reason": run.failure.as_ref().map(|failure| &failure.text),
                "resources": past.call.resources.iter().cloned().collect::<BTreeMap<_, _>>(),
            })
        };
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

fn cause_name(cause: &DeathCause) -> &'static str {
    match cause {
        DeathCause::Exited { code: 0 } => "left",
        DeathCause::Exited { .. } => "exited",
        DeathCause::Signaled { .. } => "signaled",
        DeathCause::OutOfMemory { .. } => "out of memory",
        DeathCause::Stopped { .. } => "stopped",
        DeathCause::NotStarted { .. } => "not started",
        DeathCause::BadEnvironment { .. } => "bad environment",
    }
}
