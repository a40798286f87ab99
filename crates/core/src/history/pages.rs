//! What has run, as rows of the control store: what is left of it when the daemon is dead.
//!
//! ```text
//!   runs that are in no row --step, seldom--> the open page of their job --full--> the next one
//!   all pages take too much, or are too many --> the oldest one of the job whose pages take the most is dropped
//! ```
//! A run costs no row of its own: a job's latest ones are in one page, which is written again until it is full. A step writes no more
//! than it is told; what is left waits for the next one, where new runs push out old ones as they do in memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use hoplo_base::limits::{HISTORY_OF_NODE_ROWS_MAX, HISTORY_ROW_BYTES};
use hoplo_base::{JobId, NodeNumber};
use hoplo_wire::control::Key;
use hoplo_wire::node::{Run, RunCall};

use super::PastRun;
use crate::control::rows::history_key;
use crate::control::{EndedRun, HistoryEntry};

/// A row that becomes this, or is no more; in this order.
#[derive(Debug, PartialEq)]
pub enum Step {
    Write(HistoryEntry),
    Drop(Key),
}

/// Whose rows they are, and how much room there is.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    pub node: NodeNumber,
    /// What to add to the machine's clock for the time of day, in microseconds.
    pub clock_us: u64,
    /// Of all rows of the node.
    pub bytes_max: usize,
    /// Of this step.
    pub step_bytes_max: usize,
}

#[derive(Debug, Default)]
pub(super) struct Pages {
    jobs: BTreeMap<JobId, OfJob>,
    /// Of all pages.
    bytes: usize,
    rows: usize,
    last: u32,
    /// Whose runs were written last: the others come first.
    served: Option<JobId>,
}

#[derive(Debug, Default)]
struct OfJob {
    /// Those that are in the store, the oldest first; the last one may be open.
    pages: VecDeque<Page>,
    bytes: usize,
    open: Option<Open>,
    /// Runs of pages that were dropped: the next page says so.
    lost: u64,
}

#[derive(Debug)]
struct Page {
    number: u32,
    bytes: usize,
    /// Its runs, and those that it says are lost.
    runs: u64,
}

/// What the last page of a job has.
#[derive(Debug)]
struct Open {
    lost: u64,
    calls: Vec<Arc<RunCall>>,
    runs: Vec<EndedRun>,
    bytes: usize,
}

impl Open {
    fn new(lost: u64) -> Self {
        Self { lost, calls: Vec::new(), runs: Vec::new(), bytes: 0 }
    }

    fn is_full(&self) -> bool {
        self.bytes >= HISTORY_ROW_BYTES
    }

    fn add(&mut self, past: &PastRun) {
        let same = |call: &Arc<RunCall>| Arc::ptr_eq(call, &past.call) || *call == past.call;
        let call = self.calls.iter().rposition(same).unwrap_or_else(|| {
            let resources: usize = past.call.resources.iter().map(|(name, _)| name.len() + 9).sum();
            self.bytes += past.call.name.len() + resources + 8;
            self.calls.push(Arc::clone(&past.call));
            self.calls.len() - 1
        });
        let run = Run { call: call as u32, ago_us: 0, ..past.run.clone() };
        self.bytes += 70 + run.failure.as_ref().map_or(0, |failure| failure.text.len() + 8);
        self.runs.push(EndedRun { run, ended_us: past.ended_us });
    }

    fn entry(&self, writer: Writer, job: JobId, page: u32) -> HistoryEntry {
        HistoryEntry {
            node: writer.node,
            job,
            page,
            clock_us: writer.clock_us,
            forgotten: self.lost,
            calls: self.calls.iter().map(|call| (**call).clone()).collect(),
            runs: self.runs.clone(),
        }
    }
}

impl Pages {
    /// Jobs with runs that are in no row in the order in which they are to be written.
    pub fn in_turn(&self, mut waiting: Vec<JobId>) -> Vec<JobId> {
        let behind = waiting.iter().filter(|job| Some(**job) <= self.served).count();
        waiting.rotate_left(behind);
        waiting
    }

    /// Writes of these runs, the oldest first, as many as there is room for in the step: how many. `lost`: so many others of the job
    /// are in no row.
    pub fn write<'a>(
        &mut self,
        writer: Writer,
        job: JobId,
        lost: u64,
        mut runs: impl ExactSizeIterator<Item = &'a PastRun>,
        left: &mut usize,
        steps: &mut Vec<Step>,
    ) -> usize {
        let mut written = 0;
        self.jobs.entry(job).or_default().lost += lost;
        while *left > 0 && runs.len() > 0 {
            let of_job = self.jobs.entry(job).or_default();
            if of_job.open.as_ref().is_none_or(Open::is_full) {
                self.last += 1;
                self.rows += 1;
                of_job.open = Some(Open::new(std::mem::take(&mut of_job.lost)));
                of_job.pages.push_back(Page { number: self.last, bytes: 0, runs: 0 });
            }
            let open = of_job.open.as_mut().expect("it was just made");
            let before = open.runs.len();
            while !open.is_full()
                && let Some(run) = runs.next()
            {
                open.add(run);
            }
            written += open.runs.len() - before;
            let page = of_job.pages.back_mut().expect("the open page is one of them");
            self.bytes += open.bytes - page.bytes;
            of_job.bytes += open.bytes - page.bytes;
            (page.bytes, page.runs) = (open.bytes, open.runs.len() as u64 + open.lost);
            steps.push(Step::Write(open.entry(writer, job, page.number)));
            *left = left.saturating_sub(open.bytes);
            self.served = Some(job);
            self.make_room(writer, steps);
        }
        written
    }

    fn make_room(&mut self, writer: Writer, steps: &mut Vec<Step>) {
        // The newest page stays, however large it is.
        while self.rows > 1
            && (self.bytes > writer.bytes_max || self.rows > HISTORY_OF_NODE_ROWS_MAX)
        {
            let last = self.last;
            let others = self
                .jobs
                .iter_mut()
                .filter(|(_, of_job)| of_job.pages.front().is_some_and(|page| page.number != last));
            let oldest = |of_job: &OfJob| of_job.pages.front().map(|page| page.number);
            let most =
                others.max_by_key(|(_, of_job)| (of_job.bytes, std::cmp::Reverse(oldest(of_job))));
            let (job, of_job) = most.expect("there is another page than the newest one");
            let page = of_job.pages.pop_front().expect("it has one");
            of_job.bytes -= page.bytes;
            of_job.lost += page.runs;
            self.bytes -= page.bytes;
            self.rows -= 1;
            steps.push(Step::Drop(history_key(writer.node, *job, page.number)));
            if of_job.pages.is_empty() {
                // It ran nothing for long: how many runs it has lost is forgotten with them.
                let job = *job;
                self.jobs.remove(&job);
            }
        }
    }

    pub fn check(&self) {
        let bytes: usize = self.jobs.values().map(|of_job| of_job.bytes).sum();
        let rows: usize = self.jobs.values().map(|of_job| of_job.pages.len()).sum();
        assert_eq!((bytes, rows), (self.bytes, self.rows), "HIST-4");
        assert!(rows <= HISTORY_OF_NODE_ROWS_MAX, "HIST-4");
        for (job, of_job) in &self.jobs {
            let bytes: usize = of_job.pages.iter().map(|page| page.bytes).sum();
            assert_eq!(bytes, of_job.bytes, "HIST-4: {job}");
            assert!(of_job.pages.iter().is_sorted_by_key(|page| page.number), "HIST-4: {job}");
        }
    }
}
