//! Clusters of the real machines in virtual time.
//!
//! One seed gives everything: how many drivers and CPUs, how slow sockets are read, which programs run
//! (`workload`), what is killed and when (`faults`). In the first phase safety must hold under
//! faults; then they stop and everything must heal: every program ends, nothing is left.
//!
//! The daemon is the real node (`hoplo_core::node`), as in `crates/node`; every process has a real session, and every
//! worker the real machine of workers (`hoplo_core::worker`), driven as in `crates/client`. Rings, sockets, the shared segment, the arena, the kernel, the
//! zygote and the control store's disk are models (`network`, `memory`, `kernel`, `daemon`).
//! A daemon begins as the real one does (`begin`): its number comes from its control store.
//! Beside the programs, processes and tools ask the daemon at random times why something waits and what there is (`asks`).
//!
//! `sabotage` breaks promises on purpose, to see that the checks can fail.
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
mod begin;
mod carrier;
mod client;
mod cluster;
pub mod control;
mod counts;
mod daemon;
mod far;
mod faults;
mod fiber;
mod haul;
mod host;
mod invariants;
mod kernel;
mod memory;
mod network;
mod rng;
mod sabotage;
mod seeds;
mod story;
mod table;
mod wires;
mod workload;

pub use cluster::Cluster;
pub use counts::Counts;
pub use sabotage::Sabotage;
pub use seeds::{Ran, seeds};

/// What one seed did, for the statistics of a run.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    pub counts: Counts,
}

/// Runs one seed of one node; panics with what does not hold.
pub fn run(seed: u64) -> Summary {
    runs(seed, Cluster::new(seed, None), "seeds")
}

/// Runs one seed of several nodes; panics with what does not hold.
pub fn run_nodes(seed: u64) -> Summary {
    runs(seed, Cluster::of_nodes(seed, None), "nodes")
}

fn runs(seed: u64, mut cluster: Cluster, test: &str) -> Summary {
    let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cluster.run()));
    if let Err(cause) = tried {
        eprintln!("the latest of seed {seed}:\n{}", cluster.story.about(&[]));
        eprintln!(
            "seed {seed} failed; repeat with\n  HOPLO_SIM_SEEDS=1 HOPLO_SIM_FIRST={seed} \
             HOPLO_SIM_PRINT=1 cargo test --release -p hoplo-sim --test {test} -- --nocapture"
        );
        std::panic::resume_unwind(cause);
    }
    cluster.summary()
}

/// Runs one seed of one node with a broken promise: what the checks say to it, if anything.
pub fn run_sabotaged(seed: u64, sabotage: Sabotage) -> Result<Summary, String> {
    sabotaged(Cluster::new(seed, Some(sabotage)))
}

/// The same of several nodes.
pub fn run_nodes_sabotaged(seed: u64, sabotage: Sabotage) -> Result<Summary, String> {
    sabotaged(Cluster::of_nodes(seed, Some(sabotage)))
}

fn sabotaged(mut cluster: Cluster) -> Result<Summary, String> {
    let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cluster.run()));
    match tried {
        Ok(()) => Ok(cluster.summary()),
        Err(cause) => {
            let text = cause.downcast_ref::<String>().cloned();
            let text = text.or_else(|| cause.downcast_ref::<&str>().map(|it| (*it).to_string()));
            Err(text.unwrap_or_default())
        }
    }
}
