//! Nodes of the real machines in virtual time.
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
//! # Several nodes
//! `run_nodes` has up to 16 of them (`host`), each with a daemon, a store and a carrier of its own. A step happens at one of them. The links
//! and the calls between nodes are the real machines (`hoplo_core::link`, `hoplo_core::carry`); decider and carrier are two threads, so
//! each takes at steps of its own what the other left (`carrier`, `far`). Connections are a model, late, cut in one direction or both, and
//! broken (`wires`), and so are the haul (`haul`) and the head's node table with its verdicts (`table`); who gets the next piece of an object
//! decides the real `hoplo_core::transfer::Uplink`. Programs reduce objects of theirs, and the sum that is read has each member once. The first node is the head; its composite has the global scheduler and the names. The
//! others join at random times, also while programs run or after the head's death, and programs begin at once, whoever their node has heard of. A node that is killed takes along what ran there and what was at home there; the others go on, and
//! nothing of it stays with them. Or it is fenced: it hears that it is dead to the others before these do, and ends in order. Or nothing runs there for up to 1.5 s,
//! as on a machine that is suspended: when it goes on most others have heard that it is dead, and it has not. So may the head be killed: for up to some seconds there is none, and then another node goes on as head with its rows (`table`). What other nodes write
//! is late, and waits meanwhile, unless the control nodes live elsewhere: then the head has copies of rows, and what it writes is late as well (`lead`). Programs make placement groups (`groups`), and ask for labels that some nodes have.
//!
//! Not simulated with several nodes: questions (`asks`), a fourth death of a head, a fifth one of other nodes,
//! nodes that go on past their verdict for more than 20 ms in which they run (the judge itself is tried in `crates/core/src/members`), talk windows that are full,
//! frames of a link in bytes. That NREF-6 is taken away cannot show here (`docs/internals/references.md`); the model check of references
//! misses it.
//!
//! Not simulated at all: what the shells do with bytes. That a connection is read to its end before it is closed is tried in
//! `crates/node/src/daemon/clients.rs`; an object of which a part has landed, in `crates/node/src/carrier/haul`; and real processes that are
//! stopped in the middle of what they do, by the soaks (`tests/soak/hiccups.py`).
//!
//! `seat`: which of several machines is head, over control nodes. `cost` has clusters of thousands of nodes, for how long things take and where that bends; what is right is checked here.
//!
//! `sabotage` breaks promises on purpose, to see that the checks can fail.
//!
//! What happened is counted (`counts`): a run over many seeds in which some fault or path never occurs fails.
//!
//! `cargo test --profile sim -p hoplo-sim` runs some thousand seeds of one node (`crates/sim/tests/seeds.rs`) and of several (`crates/sim/tests/nodes.rs`). More, or one:
//! ```text
//! HOPLO_SIM_SEEDS=100000 HOPLO_SIM_FIRST=1000 HOPLO_SIM_CHECKS_RARELY=1 cargo test --profile sim -p hoplo-sim --test nodes
//! HOPLO_SIM_SEEDS=1 HOPLO_SIM_FIRST=77 HOPLO_SIM_PRINT=1 cargo test --profile sim -p hoplo-sim --test nodes -- --nocapture
//! ```
//! With `HOPLO_SIM_CHECKS_RARELY` the machines of most seeds are checked at few steps only. A failure prints its seed, the command that repeats it, and what touched the failing id.

mod asks;
mod begin;
mod carrier;
mod client;
mod cluster;
pub mod control;
pub mod cost;
mod counts;
mod daemon;
mod far;
mod faults;
mod fiber;
mod groups;
mod haul;
mod host;
mod invariants;
mod kernel;
mod lead;
mod memory;
mod network;
mod operator;
mod rng;
mod sabotage;
pub mod seat;
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
    runs(seed, || Cluster::new(seed, None), "seeds")
}

/// Runs one seed of several nodes; panics with what does not hold.
pub fn run_nodes(seed: u64) -> Summary {
    runs(seed, || Cluster::of_nodes(seed, None), "nodes")
}

fn runs(seed: u64, begin: impl Fn() -> Cluster, test: &str) -> Summary {
    let mut cluster = begin();
    if cluster.plan.prints {
        cluster.story.begin();
    }
    if panics(&mut cluster).is_none() {
        return cluster.summary();
    }
    eprintln!("seed {seed} failed, and runs again with its story");
    let mut again = begin();
    again.story.begin();
    let Some(cause) = panics(&mut again) else {
        panic!(
            "seed {seed} failed, and did not when it ran again: something here is left to chance"
        )
    };
    eprintln!("the latest of seed {seed}:\n{}", again.story.about(&[]));
    eprintln!(
        "seed {seed} failed; repeat with\n  HOPLO_SIM_SEEDS=1 HOPLO_SIM_FIRST={seed} \
         HOPLO_SIM_PRINT=1 cargo test --profile sim -p hoplo-sim --test {test} -- --nocapture"
    );
    std::panic::resume_unwind(cause)
}

/// Runs it to its end; with what it panicked.
fn panics(cluster: &mut Cluster) -> Option<Box<dyn std::any::Any + Send>> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cluster.run())).err()
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
    let Some(cause) = panics(&mut cluster) else { return Ok(cluster.summary()) };
    let text = cause.downcast_ref::<String>().cloned();
    let text = text.or_else(|| cause.downcast_ref::<&str>().map(|it| (*it).to_string()));
    Err(text.unwrap_or_default())
}
