//! Seeds in order, on all cores.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn every_seed_is_safe_under_faults_and_heals() {
    let first = variable("HOPLO_SIM_FIRST", 1);
    let count = variable("HOPLO_SIM_SEEDS", 500);
    let next = AtomicU64::new(first);
    let failed = AtomicBool::new(false);
    let (steps, calls, spills, adoptions) =
        (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
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
                    steps.fetch_add(summary.steps, Ordering::Relaxed);
                    calls.fetch_add(summary.calls, Ordering::Relaxed);
                    spills.fetch_add(summary.spills, Ordering::Relaxed);
                    adoptions.fetch_add(summary.adoptions, Ordering::Relaxed);
                }
            });
        }
    });
    println!(
        "{count} seeds: {steps:?} steps, {calls:?} calls, {spills:?} spills, {adoptions:?} adoptions"
    );
    assert!(!failed.load(Ordering::Relaxed), "a seed failed: its number and story are above");
}
