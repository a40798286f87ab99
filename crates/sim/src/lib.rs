//! Clusters of the real machines in virtual time.
//!
//! One seed gives everything: how many drivers and CPUs, how slow sockets are read, which programs run
//! (`workload`), what is killed and when (`faults`). In the first phase safety must hold under
//! faults; then they stop and everything must heal: every program ends, nothing is left.
//!
//! The daemon is the real node (`hoplo_core::node`), as in `crates/node`; every driver and worker has a
//! real session, driven as in `crates/client`. Rings, sockets, the shared segment, the arena, the kernel, the
//! zygote and the control store's disk are models (`network`, `memory`, `kernel`, `daemon`).
//!
//! What happened is counted (`counts`): a run over many seeds in which some fault or path never occurs fails.
//!
//! `cargo test --release -p hoplo-sim` runs a few hundred seeds. More, or one:
//! ```text
//! HOPLO_SIM_SEEDS=100000 HOPLO_SIM_FIRST=1000 cargo test --release -p hoplo-sim
//! HOPLO_SIM_SEEDS=1 HOPLO_SIM_FIRST=77 HOPLO_SIM_PRINT=1 cargo test --release -p hoplo-sim -- --nocapture
//! ```
//! A failure prints its seed, the command that repeats it, and what touched the failing id.

mod asks;
mod client;
mod cluster;
pub mod control;
mod counts;
mod daemon;
mod faults;
mod fiber;
mod invariants;
mod kernel;
mod memory;
mod network;
mod rng;
mod story;
mod workload;

pub use cluster::Cluster;
pub use counts::Counts;

/// What one seed did, for the statistics of a run.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    pub counts: Counts,
}

/// Runs one seed; panics with what does not hold.
pub fn run(seed: u64) -> Summary {
    let mut cluster = Cluster::new(seed);
    let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cluster.run()));
    if let Err(cause) = tried {
        eprintln!("the latest of seed {seed}:\n{}", cluster.story.about(&[]));
        eprintln!(
            "seed {seed} failed; repeat with\n  HOPLO_SIM_SEEDS=1 HOPLO_SIM_FIRST={seed} \
             HOPLO_SIM_PRINT=1 cargo test --release -p hoplo-sim -- --nocapture"
        );
        std::panic::resume_unwind(cause);
    }
    cluster.summary()
}
