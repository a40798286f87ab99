//! Seeds in order, on all cores.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hoplo_sim::Counts;

/// So many seeds see every fault and every rare path.
const EVERYTHING_HAPPENS_IN: u64 = 500;

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn every_seed_is_safe_under_faults_and_heals() {
    let first = variable("HOPLO_SIM_FIRST", 1);
    let count = variable("HOPLO_SIM_SEEDS", 500);
    let next = AtomicU64::new(first);
    let failed = AtomicBool::new(false);
    let counts = Mutex::new(Counts::default());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let ran = std::panic::catch_unwind(|| hoplo_sim::run(seed));
                    let Ok(summary) = ran else { return failed.store(true, Ordering::Relaxed) };
                    counts.lock().unwrap().join(&summary.counts);
                }
            });
        }
    });
    let counts = counts.into_inner().unwrap();
    println!("{count} seeds:\n{counts}");
    assert!(!failed.load(Ordering::Relaxed), "a seed failed: its number and story are above");
    if count >= EVERYTHING_HAPPENS_IN {
        assert_eq!(counts.never_happened(), [""; 0], "what never happens is not tested");
    }
}
