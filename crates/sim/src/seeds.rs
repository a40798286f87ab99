//! Many seeds in order, on all cores.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::{Counts, Summary};

/// What became of them.
#[derive(Debug)]
pub struct Ran {
    count: u64,
    usual: u64,
    pub counts: Counts,
    pub failed: bool,
}

impl Ran {
    /// The usual seeds see every fault and every rare path.
    pub fn shows_everything(&self) -> bool {
        self.count >= self.usual
    }
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// As many as usual, or as `HOPLO_SIM_SEEDS` says, from the usual first one or `HOPLO_SIM_FIRST` on, until one fails.
pub fn seeds(run: fn(u64) -> Summary, first: u64, usual: u64) -> Ran {
    let first = variable("HOPLO_SIM_FIRST", first);
    let count = variable("HOPLO_SIM_SEEDS", usual);
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
                    let ran = std::panic::catch_unwind(|| run(seed));
                    let Ok(summary) = ran else { return failed.store(true, Ordering::Relaxed) };
                    counts.lock().unwrap_or_else(PoisonError::into_inner).join(&summary.counts);
                }
            });
        }
    });
    let counts = counts.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{count} seeds:\n{counts}");
    Ran { count, usual, counts, failed: failed.into_inner() }
}
