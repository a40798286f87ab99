//! The control store: seeds in order, on all cores; and proof that the checks can fail.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use hoplo_sim::control::{Counts, Sabotage, run, run_sabotaged};

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn every_seed_is_safe_under_faults_and_heals() {
    let first = variable("HOPLO_SIM_FIRST", 1);
    let count = variable("HOPLO_SIM_SEEDS", 2000);
    let next = AtomicU64::new(first);
    let failures_max = variable("HOPLO_SIM_FAILURES", 0);
    let failed = AtomicU64::new(0);
    let sums: [AtomicU64; 7] = Default::default();
    let happened = Mutex::new(Counts::default());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while failed.load(Ordering::Relaxed) <= failures_max {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let Ok(summary) = std::panic::catch_unwind(|| run(seed)) else {
                        failed.fetch_add(1, Ordering::Relaxed);
                        continue;
                    };
                    let counts = [
                        summary.steps,
                        summary.calls,
                        summary.calls_done,
                        summary.faults,
                        summary.epochs,
                        summary.time / 1_000_000_000,
                        summary.undecided,
                    ];
                    happened.lock().expect("nobody panics with it").include(&summary.counts);
                    for (sum, count) in sums.iter().zip(counts) {
                        sum.fetch_add(count, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let [steps, calls, done, faults, epochs, seconds, undecided] = sums.map(AtomicU64::into_inner);
    println!(
        "{count} seeds: {steps} steps, {calls} calls, {done} of them done, {faults} faults, {epochs} \
         configurations, {seconds} virtual seconds; histories of {undecided} keys were too wide to be put in order"
    );
    let happened = happened.into_inner().expect("nobody panicked with it");
    println!("{happened}");
    let failed = failed.into_inner();
    assert!(failed == 0, "{failed} seeds failed: their numbers and stories are above");
    // A few seeds need not have everything.
    let never = if count < 500 { vec![] } else { happened.never() };
    assert!(never.is_empty(), "what never happens is not proven to be survived: {never:?}");
}

/// Within so many seeds the sabotage shows as one of these; it may show as something else before.
fn shows(sabotage: Sabotage, seeds: u64, signs: &[&str]) {
    let mut others = Vec::new();
    for seed in 1..=seeds {
        if let Err(what) = run_sabotaged(seed, sabotage) {
            if signs.iter().any(|sign| what.contains(sign)) {
                return;
            }
            others.push(format!("seed {seed}: {}", what.lines().next().unwrap_or_default()));
        }
    }
    panic!("{sabotage:?} was not found in {seeds} seeds, but shows as: {others:?}");
}

#[test]
fn a_lease_that_is_not_waited_for_is_found() {
    shows(Sabotage::SilenceIsDeath, 2000, &["CHAIN-", "linearizable", "answered before"]);
}

#[test]
fn a_record_that_a_disk_lost_is_found() {
    shows(Sabotage::LostRecord, 50, &["CHAIN-", "LOG-"]);
}

#[test]
fn a_skipped_dedupe_is_found() {
    shows(Sabotage::ForgottenSeq, 50, &["CHAIN-", "outcomes", "linearizable"]);
}

#[test]
fn a_lost_change_is_found() {
    shows(Sabotage::LostChange, 50, &["CHAIN-8"]);
}

#[test]
fn what_is_called_stable_too_early_is_found() {
    shows(Sabotage::StableTooEarly, 50, &["CHAIN-"]);
}

#[test]
fn a_deadline_that_stays_due_is_found() {
    shows(Sabotage::ForgottenTick, 5, &["it spins"]);
}
