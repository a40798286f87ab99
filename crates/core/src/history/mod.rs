//! What has finished on a node: runs of tasks and methods, and processes that are not there any more.
//!
//! ```text
//!   ToNode::Ran --> runs of its job --too much of the job, or of all jobs--> the oldest are forgotten, and counted
//!                              \--step--> pages: rows of the control store (`pages`)
//!   a burial ----> past processes ---too many--------------------------------> the oldest are forgotten
//! ```
//! It is for people: nothing is decided by it. It stays when a driver has ended, and ends with the daemon. Pages stay.
//!
//! # Invariants
//! - HIST-1: the runs of a job take at most `HISTORY_OF_JOB_BYTES_MAX`, those of all jobs `HISTORY_BYTES_MAX`.
//! - HIST-2: where all take too much, the job that takes the most loses its oldest run: no job pushes out the others.
//! - HIST-3: a job is known as long as a run of it is.
//! - HIST-4: the pages take at most as much as their writer is told, but for the newest, and are at most `HISTORY_OF_NODE_ROWS_MAX`.
//! - HIST-5: a run is in one page at most, and those of a page are in the order of their ends as they were told.

mod pages;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use hoplo_base::limits::{HISTORY_BYTES_MAX, HISTORY_OF_JOB_BYTES_MAX, PROCESSES_REMEMBERED_MAX};
use hoplo_base::{JobId, ProcessId};
use hoplo_wire::node::{Run, RunCall, Runs};

use pages::Pages;
pub use pages::{Step, Writer};

#[derive(Debug, Default)]
pub struct History {
    jobs: BTreeMap<JobId, OfJob>,
    /// Of all jobs.
    bytes: usize,
    processes: VecDeque<PastProcess>,
    pages: Pages,
}

#[derive(Debug, Default)]
struct OfJob {
    /// The oldest one first.
    runs: VecDeque<PastRun>,
    bytes: usize,
    forgotten: u64,
    /// The latest runs, so many, are in no page;
    unwritten: usize,
    /// and so many that are forgotten, or were never told, are in none and in no count of one.
    lost: u64,
}

/// A run that has ended.
#[derive(Debug)]
pub struct PastRun {
    pub run: Run,
    pub call: Arc<RunCall>,
    /// When its caller heard of its end, in microseconds since 1970.
    pub ended_us: u64,
    bytes: usize,
}

/// A worker or driver that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastProcess {
    pub id: ProcessId,
    /// 0: it is not known.
    pub pid: u32,
    pub job: JobId,
    pub is_driver: bool,
    pub title: String,
    /// Microseconds since 1970.
    pub started_us: u64,
    pub ended_us: u64,
    pub cause: hoplo_wire::node::DeathCause,
    /// For people: `pid 7 exited with code 1`.
    pub why: String,
}

impl History {
    /// A process of this job told what has run. `now_us`: microseconds since 1970.
    pub fn ran(&mut self, job: JobId, told: Runs, now_us: u64) {
        let of_job = self.jobs.entry(job).or_default();
        of_job.forgotten += told.untold;
        of_job.lost += told.untold;
        let mut calls: Vec<(Arc<RunCall>, usize)> = Vec::with_capacity(told.calls.len());
        for call in told.calls {
            let bytes = size_of::<RunCall>() + call.name.len() + 64 * call.resources.len();
            calls.push((Arc::new(call), bytes));
        }
        for run in told.runs {
            // Of a peer that says nonsense nothing is kept.
            let Some((call, bytes_of_call)) = calls.get_mut(run.call as usize) else { continue };
            let text = run.failure.as_ref().map_or(0, |failure| failure.text.len() + 32);
            // The first run bears what the call takes.
            let bytes = size_of::<PastRun>() + text + std::mem::take(bytes_of_call);
            let ended_us = now_us.saturating_sub(run.ago_us);
            of_job.runs.push_back(PastRun { run, call: Arc::clone(call), ended_us, bytes });
            of_job.bytes += bytes;
            of_job.unwritten += 1;
            self.bytes += bytes;
        }
        while of_job.bytes > HISTORY_OF_JOB_BYTES_MAX {
            self.bytes -= of_job.forget();
        }
        while self.bytes > HISTORY_BYTES_MAX {
            let most = self.jobs.values_mut().max_by_key(|of_job| of_job.bytes);
            self.bytes -= most.expect("there are bytes of some job").forget();
        }
        self.jobs.retain(|_, of_job| !of_job.runs.is_empty()); // HIST-3
    }

    /// Some runs are in no page.
    pub fn has_unwritten(&self) -> bool {
        self.jobs.values().any(|of_job| of_job.unwritten > 0)
    }

    /// What is to become of the rows of this node now: the runs that are in none, up to the step's bytes.
    pub fn step(&mut self, writer: Writer) -> Vec<Step> {
        let (mut steps, mut left) = (Vec::new(), writer.step_bytes_max);
        let waiting = self.jobs.iter().filter(|(_, of_job)| of_job.unwritten > 0);
        let waiting = waiting.map(|(job, _)| *job).collect();
        for job in self.pages.in_turn(waiting) {
            if left == 0 {
                break;
            }
            let of_job = self.jobs.get_mut(&job).expect("it was just seen");
            let runs = of_job.runs.range(of_job.runs.len() - of_job.unwritten..);
            let lost = std::mem::take(&mut of_job.lost);
            of_job.unwritten -= self.pages.write(writer, job, lost, runs, &mut left, &mut steps);
        }
        steps
    }

    pub fn ended(&mut self, process: PastProcess) {
        if self.processes.len() == PROCESSES_REMEMBERED_MAX {
            self.processes.pop_front();
        }
        self.processes.push_back(process);
    }

    /// The latest ones, of each job at most so many, the newest first.
    pub fn runs(&self, of_job_max: usize) -> impl Iterator<Item = (JobId, &PastRun)> {
        self.jobs.iter().flat_map(move |(job, of_job)| {
            of_job.runs.iter().rev().take(of_job_max).map(|run| (*job, run))
        })
    }

    /// How many runs of jobs that are known were forgotten, or never told.
    pub fn forgotten(&self) -> u64 {
        self.jobs.values().map(|of_job| of_job.forgotten).sum()
    }

    /// The oldest one first.
    pub fn processes(&self) -> impl Iterator<Item = &PastProcess> {
        self.processes.iter()
    }

    pub fn check(&self) {
        for (job, of_job) in &self.jobs {
            let bytes: usize = of_job.runs.iter().map(|run| run.bytes).sum();
            assert_eq!(bytes, of_job.bytes, "HIST-1: {job}");
            assert!(bytes <= HISTORY_OF_JOB_BYTES_MAX, "HIST-1: {job} has {bytes}");
            assert!(!of_job.runs.is_empty(), "HIST-3: {job}");
        }
        let bytes: usize = self.jobs.values().map(|of_job| of_job.bytes).sum();
        assert_eq!(bytes, self.bytes, "HIST-1");
        assert!(bytes <= HISTORY_BYTES_MAX, "HIST-1: {bytes}");
        assert!(self.jobs.values().all(|of_job| of_job.unwritten <= of_job.runs.len()), "HIST-5");
        self.pages.check();
        assert!(self.processes.len() <= PROCESSES_REMEMBERED_MAX);
    }
}

impl OfJob {
    /// The oldest run; how many bytes it took.
    fn forget(&mut self) -> usize {
        let oldest = self.runs.pop_front().expect("what takes bytes has runs");
        self.bytes -= oldest.bytes;
        self.forgotten += 1;
        if self.unwritten > self.runs.len() {
            self.unwritten -= 1;
            self.lost += 1;
        }
        oldest.bytes
    }
}
