use hoplo_base::limits::{HISTORY_OF_NODE_ROWS_MAX, HISTORY_ROW_BYTES};
use hoplo_base::{NodeNumber, TaskId};
use hoplo_wire::FailureKind;
use hoplo_wire::node::{DeathCause, RunFailure};

use super::*;
use crate::control::{Entry, HistoryEntry};

fn job(count: u64) -> JobId {
    JobId::new(NodeNumber::alone(1), count)
}

fn run(seq: u64) -> Run {
    Run {
        task: TaskId { owner: ProcessId::new(NodeNumber::alone(1), 1, 1), seq },
        attempt: 0,
        call: 0,
        actor: None,
        parent: None,
        worker: None,
        started_ns: 5,
        ran_ns: 7,
        ago_us: 1000,
        failure: None,
    }
}

fn told(seqs: std::ops::Range<u64>) -> Runs {
    let call = RunCall { name: "f".to_string(), resources: vec![("CPU".to_string(), 1.0)] };
    Runs { calls: vec![call], runs: seqs.map(run).collect(), untold: 0 }
}

fn seqs(history: &History, of: JobId) -> Vec<u64> {
    let runs = history.runs(usize::MAX).filter(|(job, _)| *job == of);
    runs.map(|(_, past)| past.run.task.seq).collect()
}

#[test]
fn runs_are_there_newest_first_with_the_moment_of_their_end() {
    let mut history = History::default();
    history.ran(job(1), told(0..3), 5000);
    history.check();
    assert_eq!(seqs(&history, job(1)), [2, 1, 0]);
    assert!(history.runs(1).all(|(_, past)| past.ended_us == 4000 && past.call.name == "f"));
    assert_eq!(history.runs(1).count(), 1);
}

#[test]
fn a_job_that_runs_much_forgets_its_own_oldest_and_leaves_the_others_theirs() {
    let mut history = History::default();
    history.ran(job(1), told(0..10), 5000);
    for batch in 0..20 {
        history.ran(job(2), told(batch * 10_000..(batch + 1) * 10_000), 5000);
        history.check();
    }
    assert_eq!(seqs(&history, job(1)).len(), 10);
    let left = seqs(&history, job(2));
    assert_eq!(left[0], 199_999, "the newest is there");
    assert!(left.len() > 10_000 && left.len() < 100_000, "{}", left.len());
    assert_eq!(history.forgotten(), 200_000 - left.len() as u64);
}

#[test]
fn many_jobs_share_what_there_is_and_a_new_one_has_place() {
    let mut history = History::default();
    for number in 1..8 {
        for batch in 0..4 {
            history.ran(job(number), told(batch * 10_000..(batch + 1) * 10_000), 5000);
            history.check();
        }
    }
    history.ran(job(9), told(0..10), 5000);
    history.check();
    assert_eq!(seqs(&history, job(9)).len(), 10);
    assert!((1..8).all(|number| seqs(&history, job(number)).len() > 10_000));
}

#[test]
fn long_texts_of_failures_count() {
    let mut history = History::default();
    for batch in 0..50 {
        let mut runs = told(batch * 1000..(batch + 1) * 1000);
        for run in &mut runs.runs {
            let text = "x".repeat(1000);
            run.failure = Some(Box::new(RunFailure { kind: FailureKind::User, text }));
        }
        history.ran(job(1), runs, 5000);
        history.check();
    }
    assert!(seqs(&history, job(1)).len() < HISTORY_OF_JOB_BYTES_MAX / 1000);
}

#[test]
fn a_run_of_no_call_is_nonsense_and_not_kept() {
    let mut history = History::default();
    let mut runs = told(0..2);
    runs.runs[0].call = 7;
    history.ran(job(1), runs, 5000);
    assert_eq!(seqs(&history, job(1)), [1]);
    let only = Runs { untold: 3, ..Runs::default() };
    history.ran(job(2), only, 5000);
    history.check();
}

#[test]
fn past_processes_are_bounded() {
    let mut history = History::default();
    for count in 0..PROCESSES_REMEMBERED_MAX as u32 + 5 {
        history.ended(PastProcess {
            id: ProcessId::new(NodeNumber::alone(1), count, 1),
            pid: count,
            job: job(1),
            is_driver: false,
            title: String::new(),
            started_us: 1,
            ended_us: 2,
            cause: DeathCause::Exited { code: 0 },
            why: String::new(),
        });
    }
    history.check();
    assert_eq!(history.processes().next().map(|process| process.pid), Some(5));
}

fn writer() -> Writer {
    Writer { node: NodeNumber::FIRST, clock_us: 9, bytes_max: 1 << 20, step_bytes_max: 1 << 18 }
}

/// The rows after these steps.
fn carry_out(steps: Vec<Step>, rows: &mut BTreeMap<Vec<u8>, HistoryEntry>) {
    for step in steps {
        match step {
            Step::Write(entry) => {
                rows.insert(entry.key_bytes(), entry);
            }
            Step::Drop(key) => {
                rows.remove(&key.bytes).expect("only what was written is dropped");
            }
        }
    }
}

fn seqs_of(rows: &BTreeMap<Vec<u8>, HistoryEntry>, of: JobId) -> Vec<u64> {
    let pages = rows.values().filter(|entry| entry.job == of);
    pages.flat_map(|entry| &entry.runs).map(|ended| ended.run.task.seq).collect()
}

#[test]
fn runs_come_into_one_row_until_it_is_full_and_each_is_in_one_row() {
    let (mut history, mut rows) = (History::default(), BTreeMap::new());
    for seq in 0..10 {
        history.ran(job(1), told(seq..seq + 1), 5000);
        assert!(history.has_unwritten());
        carry_out(history.step(writer()), &mut rows);
        history.check();
        assert!(!history.has_unwritten());
    }
    assert_eq!(rows.len(), 1);
    assert_eq!(seqs_of(&rows, job(1)), (0..10).collect::<Vec<_>>());
    let entry = rows.values().next().unwrap();
    assert_eq!((entry.calls.len(), entry.clock_us, entry.forgotten), (1, 9, 0));
    assert_eq!((entry.runs[0].ended_us, entry.runs[0].run.ago_us), (4000, 0));
    history.ran(job(1), told(10..1000), 5000);
    carry_out(history.step(writer()), &mut rows);
    history.check();
    assert!(rows.len() > 1 && rows.len() < 10, "{}", rows.len());
    assert_eq!(seqs_of(&rows, job(1)), (0..1000).collect::<Vec<_>>());
    assert!(rows.values().all(|entry| entry.to_value().len() < 2 * HISTORY_ROW_BYTES));
    assert_eq!(history.step(writer()), []);
}

#[test]
fn a_step_writes_no_more_than_it_is_told_and_jobs_take_turns() {
    let (mut history, mut rows) = (History::default(), BTreeMap::new());
    history.ran(job(1), told(0..2000), 5000);
    history.ran(job(2), told(0..10), 5000);
    let small = Writer { step_bytes_max: HISTORY_ROW_BYTES, ..writer() };
    carry_out(history.step(small), &mut rows);
    assert_eq!(rows.len(), 1, "{rows:?}");
    carry_out(history.step(small), &mut rows);
    assert_eq!(
        seqs_of(&rows, job(2)).len(),
        10,
        "the second job does not wait for all of the first"
    );
    let mut steps = 0;
    while history.has_unwritten() {
        carry_out(history.step(small), &mut rows);
        history.check();
        steps += 1;
    }
    assert!(steps > 5);
    assert_eq!(seqs_of(&rows, job(1)), (0..2000).collect::<Vec<_>>());
}

#[test]
fn rows_are_bounded_and_the_job_that_has_the_most_loses_its_oldest_ones_and_says_how_many() {
    let (mut history, mut rows) = (History::default(), BTreeMap::new());
    let small = Writer { bytes_max: 10 * HISTORY_ROW_BYTES, ..writer() };
    history.ran(job(1), told(0..10), 5000);
    carry_out(history.step(small), &mut rows);
    for batch in 0..20 {
        history.ran(job(2), told(batch * 1000..(batch + 1) * 1000), 5000);
        while history.has_unwritten() {
            carry_out(history.step(small), &mut rows);
            history.check();
        }
    }
    assert!(rows.len() <= 12, "{}", rows.len());
    assert_eq!(seqs_of(&rows, job(1)).len(), 10);
    let left = seqs_of(&rows, job(2));
    assert_eq!(left.last(), Some(&19_999), "the newest is there");
    let forgotten: u64 = rows.values().map(|entry| entry.forgotten).sum();
    let dropped_last = 20_000 - left.len() as u64 - forgotten;
    assert!(
        dropped_last < 1000,
        "what was dropped after the last page began is said by the next: {dropped_last}"
    );
    // As a cluster grows.
    let none = Writer { bytes_max: 0, ..writer() };
    history.ran(job(2), told(0..1), 5000);
    carry_out(history.step(none), &mut rows);
    history.check();
    assert_eq!(rows.len(), 1, "the newest stays");
}

#[test]
fn runs_that_are_forgotten_before_they_are_in_a_row_are_counted() {
    let (mut history, mut rows) = (History::default(), BTreeMap::new());
    for batch in 0..10 {
        history.ran(job(1), told(batch * 10_000..(batch + 1) * 10_000), 5000);
        history.check();
    }
    let unlimited = Writer { bytes_max: usize::MAX, step_bytes_max: usize::MAX, ..writer() };
    let steps = history.step(unlimited);
    carry_out(steps, &mut rows);
    let left = seqs_of(&rows, job(1));
    let forgotten: u64 = rows.values().map(|entry| entry.forgotten).sum();
    assert_eq!(left.len() as u64 + forgotten, 100_000);
    assert_eq!(forgotten, history.forgotten());
}

#[test]
fn very_many_jobs_have_at_most_so_many_rows() {
    let (mut history, mut rows) = (History::default(), BTreeMap::new());
    for number in 1..HISTORY_OF_NODE_ROWS_MAX as u64 + 20 {
        history.ran(job(number), told(0..1), 5000);
        carry_out(history.step(writer()), &mut rows);
    }
    history.check();
    assert_eq!(rows.len(), HISTORY_OF_NODE_ROWS_MAX);
    assert_eq!(seqs_of(&rows, job(1)).len(), 0, "the oldest are dropped");
}
