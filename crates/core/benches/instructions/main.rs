//! How many instructions a replica takes for an update: a guard that no noise can fool.
//!
//! `cargo bench -p hoplo-core --bench instructions` (in `make test`), with the client's harness: counted are
//! the functions named `counted_*` under callgrind, in the rounds after the warm-up. A round is a batch of
//! 100 puts (25 B keys that are new, 512 B values) to a chain of one and to a chain of two; the figures are
//! per batch. No disk and no network: what those do is told to the machine at once, and making the request and
//! dropping what it was answered is not counted.

#![allow(clippy::unwrap_used)] // it is a test

#[path = "../../../client/benches/instructions/baseline.rs"]
mod baseline;
#[path = "../../../client/benches/instructions/callgrind.rs"]
mod callgrind;
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
