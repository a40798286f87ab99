//! How many instructions the hot paths take: a guard that no noise can fool.
//!
//! `cargo bench -p hoplo-client --bench instructions` (in `make test`) runs itself under callgrind and
//! compares with `baseline.txt` beside this file: a stage that takes over a tenth more fails. `-- --record`
//! writes the baseline anew (see `counting`).
//!
//! ```text
//!   main thread: a driver's client, a worker's and an actor's in turn
//!   a thread for each of them: its side of the node (see `node`)
//! ```
//! The clients talk over real rings, doorbells and sockets; no step of the counted part waits for
//! another thread, or looks at a clock to decide something, so that the same program gives the same
//! counts (but for the odd one of a helper thread's timer). What is counted is what the functions named
//! `counted_*` take with all that they call, and only in the rounds after the warm-up.
//!
//! Python's part of a call is not in here.

#![allow(clippy::unwrap_used)] // it is a test

mod counting;
#[path = "../../tests/daemon/mod.rs"]
mod daemon;
mod node;
mod stages;

use std::process::ExitCode;

fn main() -> ExitCode {
    counting::main(stages::run, stages::ROUNDS)
}
