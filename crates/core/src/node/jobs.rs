//! Jobs: from a driver's hello to its end.

use std::collections::BTreeSet;
use std::sync::Arc;

use hoplo_base::limits::JOBS_PAST_MAX;
use hoplo_base::{JobId, ProcessId};
use hoplo_wire::node::JobConfig;

use super::{Effect, Node};
use crate::actors::life;
use crate::control::JobEntry;
use crate::sched::{environments, groups, workers};

#[derive(Debug)]
pub struct Job {
    pub id: JobId,
    pub driver: ProcessId,
    pub driver_pid: u32,
    pub config: Arc<JobConfig>,
    /// Microseconds since 1970.
    pub started_us: u64,
    /// Absent while its driver is there.
    pub ended_us: Option<u64>,
}

impl Node {
    pub(super) fn begin_job(&mut self, driver: ProcessId, pid: u32, config: JobConfig) -> JobId {
        self.jobs_begun += 1;
        let id = JobId::new(self.config.node, self.jobs_begun);
        self.out.push(Effect::Preload { modules: config.preload.clone() });
        let job = Job {
            id,
            driver,
            driver_pid: pid,
            config: Arc::new(config),
            started_us: self.wall_us,
            ended_us: None,
        };
        self.save(&job.entry());
        let python = job.config.env.python.as_deref().cloned();
        self.jobs.insert(id, job);
        self.forget_jobs();
        if let Some(python) = python {
            // Its first task will want it: who installs it need not wait for that.
            self.pass_to_environments(environments::Event::Wanted { python });
        }
        id
    }

    /// Its driver is gone: workers and actors end, but for detached actors.
    pub(super) fn end_job(&mut self, id: JobId) {
        let wall_us = self.wall_us;
        let job = self.jobs.get_mut(&id).expect("a driver has a job");
        job.ended_us = Some(wall_us);
        let entry = job.entry();
        self.save(&entry);
        self.pass_to_actors(life::Event::JobEnded { job: id });
        self.pass_to_pool(workers::Event::JobEnded { job: id });
        self.pass_to_groups(groups::Event::JobEnded { job: id });
        self.drop_functions_of_ended(id);
        self.fetches_of_ended(id);
        self.tell_job_ended(id);
    }

    /// Of jobs that ended long ago only the row in the table remains.
    fn forget_jobs(&mut self) {
        let alive: BTreeSet<JobId> = self.processes.values().map(|process| process.job).collect();
        let ended = self.jobs.values().filter(|job| job.ended_us.is_some());
        let past: Vec<JobId> = ended.map(|job| job.id).filter(|id| !alive.contains(id)).collect();
        for id in &past[..past.len().saturating_sub(JOBS_PAST_MAX)] {
            self.jobs.remove(id);
        }
    }
}

impl Job {
    pub fn entry(&self) -> JobEntry {
        JobEntry {
            job: self.id,
            driver: self.driver,
            driver_pid: self.driver_pid,
            config: (*self.config).clone(),
            started_us: self.started_us,
            ended_us: self.ended_us,
        }
    }
}
