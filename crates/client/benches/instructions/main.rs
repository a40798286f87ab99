//! How many instructions the hot paths take: a guard that no noise can fool.
//!
//! `cargo bench -p hoplo-client --bench instructions` (in `make test`) runs itself under callgrind and
//! compares with `baseline.txt` beside this file: a stage that takes over a tenth more fails. `-- --record`
//! writes the baseline anew. Without valgrind it says so in a line, and passes.
//!
//! ```text
//!   this process --valgrind--> this program again, with --counted
//!                                main thread: a driver's client and a worker's client in turn
//!                                node thread: a daemon's least (see `node`)
//! ```
//! The two clients talk over real rings, doorbells and sockets; no step of the counted part waits for
//! another thread, or looks at a clock to decide something, so that the same program gives the same
//! counts (but for the odd one of a helper thread's timer). What is counted is what the functions named
//! `counted_*` take with all that they call, and only in the rounds after the warm-up.
//!
//! Python's part of a call is not in here.

#![allow(clippy::unwrap_used)] // it is a test

mod baseline;
mod callgrind;
mod node;
mod stages;

use std::process::ExitCode;

fn main() -> ExitCode {
    let asked = |flag: &str| std::env::args().any(|argument| argument == flag);
    if asked(callgrind::COUNTED) {
        stages::run();
        return ExitCode::SUCCESS;
    }
    if !callgrind::is_here() {
        println!("instruction counts are not checked: valgrind is not installed");
        return ExitCode::SUCCESS;
    }
    let counts = callgrind::count(stages::ROUNDS);
    if asked("--record") { baseline::record(&counts) } else { baseline::compare(&counts) }
}
