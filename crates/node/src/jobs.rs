//! Jobs: from a driver's hello to its end, and what its workers print meanwhile.

use std::rc::Rc;
use std::time::SystemTime;

use hoplo_base::{Instant, JobId, ProcessId};
use hoplo_core::actors::life;
use hoplo_core::control::rows::FunctionEntry;
use hoplo_core::control::{ControlStore, Entry, JobEntry, Table};
use hoplo_core::objects;
use hoplo_core::sched::workers;
use hoplo_wire::node::JobConfig;

use crate::daemon::{Daemon, Timer, Work};
use crate::output::{Digest, Printer};

/// A driver that has so many bytes unread misses lines; they are in the log files.
const UNREAD_BYTES_MAX: usize = 8 << 20;

/// Ended jobs that are kept with all they were told.
const JOBS_PAST_MAX: usize = 256;

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: JobId,
    pub(crate) driver: ProcessId,
    pub(crate) driver_pid: u32,
    pub(crate) config: Rc<JobConfig>,
    pub(crate) started_us: u64,
    pub(crate) ended_us: Option<u64>,
    digest: Digest,
    /// When the timer for the digest is set.
    output_at: Option<Instant>,
}

impl Daemon {
    pub(crate) fn begin_job(&mut self, driver: ProcessId, pid: u32, config: JobConfig) -> JobId {
        let last = self.jobs.last_key_value().map_or(self.jobs_before, |(id, _)| id.0);
        let id = JobId(last + 1);
        self.zygote.preload(config.preload.clone());
        let job = Job {
            id,
            driver,
            driver_pid: pid,
            config: Rc::new(config),
            started_us: micros(),
            ended_us: None,
            digest: Digest::default(),
            output_at: None,
        };
        self.save(&job.entry());
        self.jobs.insert(id, job);
        self.forget_jobs();
        id
    }

    /// Its driver is gone: workers and actors end, but for detached actors.
    pub(crate) fn end_job(&mut self, id: JobId) {
        let job = self.jobs.get_mut(&id).expect("a driver has a job");
        job.ended_us = Some(micros());
        let entry = job.entry();
        self.save(&entry);
        self.queue.push_back(Work::Actors(life::Event::JobEnded { job: id }));
        self.queue.push_back(Work::Pool(workers::Event::JobEnded { job: id }));
        let detached = self.actors.rows().any(|row| {
            row.job == id
                && row.detached
                && !matches!(row.state, hoplo_wire::node::ActorState::Dead { .. })
        });
        if !detached {
            self.drop_functions(id);
        }
    }

    /// Of jobs that ended long ago only the row in the table remains.
    fn forget_jobs(&mut self) {
        let alive = self.processes.values().map(|process| process.job);
        let alive: std::collections::BTreeSet<JobId> = alive.collect();
        let ended = self.jobs.values().filter(|job| job.ended_us.is_some());
        let past: Vec<JobId> = ended.map(|job| job.id).filter(|id| !alive.contains(id)).collect();
        for id in &past[..past.len().saturating_sub(JOBS_PAST_MAX)] {
            self.jobs.remove(id);
        }
    }

    /// Nobody can ask for them any more.
    fn drop_functions(&mut self, job: JobId) {
        let prefix = job.0.to_be_bytes();
        loop {
            let page = self.control.scan(Table::Function, &prefix, None, 64);
            for (_, row) in &page.rows {
                let entry = FunctionEntry::from_row(row).expect("we wrote it");
                let gone = self.control.delete(&entry.key());
                let failed = gone.is_err();
                self.note_refusal(gone.err());
                if failed {
                    return;
                }
                let objects = entry.contains;
                self.queue.push_back(Work::Objects(objects::Event::NodeReleased { objects }));
            }
            if page.next.is_none() {
                return;
            }
        }
    }

    pub(crate) fn print(&mut self, job: JobId, printer: &Printer, lines: Vec<String>) {
        let Some(job) = self.jobs.get_mut(&job) else { return };
        if lines.is_empty() || !job.config.log_to_driver || job.ended_us.is_some() {
            return;
        }
        let (id, driver) = (job.id, job.driver);
        if self.unsent_bytes(driver) > UNREAD_BYTES_MAX {
            return;
        }
        let job = self.jobs.get_mut(&id).expect("it was just there");
        job.digest.add(self.now, printer, lines);
        self.send_output(id);
    }

    /// What is due, and a timer for the rest.
    pub(crate) fn send_output(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let messages = job.digest.take_due(self.now);
        let driver = job.driver;
        if job.output_at.is_some_and(|at| at <= self.now) {
            job.output_at = None;
        }
        if let Some(at) = job.digest.next_deadline()
            && job.output_at.is_none_or(|set| set > at)
        {
            job.output_at = Some(at);
            self.timers.insert((at, Timer::Output(id)));
        }
        for message in messages {
            self.send(driver, &message);
        }
    }

    /// Before an obituary, what was printed.
    pub(crate) fn flush_output(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let messages = job.digest.take_waiting(self.now);
        let driver = job.driver;
        for message in messages {
            self.send(driver, &message);
        }
    }
}

impl Job {
    fn entry(&self) -> JobEntry {
        JobEntry {
            job: self.id,
            driver_pid: self.driver_pid,
            config: (*self.config).clone(),
            started_us: self.started_us,
            ended_us: self.ended_us,
        }
    }
}

/// Since 1970.
pub(crate) fn micros() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
