//! The control store in virtual time: chains of real replicas, real coordinators and real clients.
//!
//! One seed gives everything (`plan`): how many nodes, shards, clients; how late messages are and how slow disks; clocks that
//! differ and drift; and what goes wrong (`faults`): kills, loss of power with torn logs, bits that flip, stopped processes, cuts in one
//! direction, broken connections, full and slow disks, a config store that is away or does not answer, operators who move
//! nodes. Safety is checked after each step; then the faults stop and everything must heal: full chains, all calls ended,
//! all replicas equal.
//!
//! `invariants` has one file for each invariant; `counts` what really went wrong, so that a fault that never happens shows.
//! `sabotage` breaks promises on purpose, to see that the checks can fail.
//!
//! ```text
//! HOPLO_SIM_SEEDS=1000000 cargo test --profile sim -p hoplo-sim --test control
//! HOPLO_SIM_SEEDS=1 HOPLO_SIM_FIRST=77 HOPLO_SIM_PRINT=1 cargo test --profile sim -p hoplo-sim --test control -- --nocapture
//! ```

mod clients;
mod coordinators;
pub mod counts;
mod disk;
mod faults;
mod files;
mod invariants;
mod loss;
mod network;
mod plan;
mod process;
mod replicas;
mod sabotage;
mod short;
mod spins;
mod store;
mod well;
mod world;

pub use counts::Counts;
pub use invariants::linear;
pub use sabotage::Sabotage;
use world::World;

/// The one that all processes here are of.
const CLUSTER: hoplo_wire::control::ClusterId = hoplo_wire::control::ClusterId(0xc1);
/// As of one that is founded in 2026.
const FOUNDED: hoplo_wire::control::Epoch = hoplo_wire::control::Epoch(1_790_000_000);

/// What one seed did, for the statistics of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    pub steps: u64,
    pub calls: u64,
    /// Calls that did what they were asked for.
    pub calls_done: u64,
    pub faults: u64,
    /// Configurations of chains.
    pub epochs: u64,
    /// Nanoseconds of virtual time.
    pub time: u64,
    /// Keys whose history was too wide to be put in order.
    pub undecided: u64,
    pub counts: Counts,
}

/// Runs one seed; panics with what does not hold.
pub fn run(seed: u64) -> Summary {
    let mut world = World::new(seed, None);
    let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run()));
    let undecided = tried.unwrap_or_else(|cause| {
        eprintln!("the latest of seed {seed}:\n{}", world.story.about(&[]));
        eprintln!(
            "seed {seed} of the control store failed; repeat with\n  HOPLO_SIM_SEEDS=1 \
             HOPLO_SIM_FIRST={seed} HOPLO_SIM_PRINT=1 cargo test --profile sim -p hoplo-sim --test \
             control -- --nocapture"
        );
        std::panic::resume_unwind(cause)
    });
    summary(&world, undecided)
}

/// Runs one seed with a broken promise: what the checks say to it, if anything.
pub fn run_sabotaged(seed: u64, sabotage: Sabotage) -> Result<Summary, String> {
    let mut world = World::new(seed, Some(sabotage));
    let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run()));
    match tried {
        Ok(undecided) => Ok(summary(&world, undecided)),
        Err(cause) => {
            let text = cause.downcast_ref::<String>().cloned();
            let text = text.or_else(|| cause.downcast_ref::<&str>().map(|it| (*it).to_string()));
            Err(text.unwrap_or_default())
        }
    }
}

fn summary(world: &World, undecided: usize) -> Summary {
    let mut counts = world.counts;
    let over: u64 = world.truths.values().map(|truth| truth.sessions_over()).sum();
    (0..over).for_each(|_| counts.add(counts::What::SessionEnded));
    Summary {
        steps: world.steps,
        calls: world.calls,
        calls_done: world.calls_done,
        faults: world.faults,
        epochs: world.store.changes() as u64,
        time: world.now.0,
        undecided: undecided as u64,
        counts,
    }
}
