use hoplo_base::{NodeNumber, TaskId};
use hoplo_wire::FailureKind;
use hoplo_wire::node::{DeathCause, RunFailure};

use super::*;

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
