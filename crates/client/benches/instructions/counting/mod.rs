//! The harness of every crate's instruction counts.
//!
//! ```text
//!   this process --valgrind--> this program again, with --counted: the stages
//!        `-- reads the profile, compares it with `baseline.txt` of the crate, or writes that anew (`--record`)
//! ```
//! Without valgrind it says so in a line, and passes.

mod baseline;
mod callgrind;

use std::process::ExitCode;

/// Of a program whose `stages` call each function named `counted_*` so many times.
pub fn main(stages: fn(), rounds: u64) -> ExitCode {
    let asked = |flag: &str| std::env::args().any(|argument| argument == flag);
    if asked(callgrind::COUNTED) {
        stages();
        return ExitCode::SUCCESS;
    }
    if !callgrind::is_here() {
        println!("instruction counts are not checked: valgrind is not installed");
        return ExitCode::SUCCESS;
    }
    let counts = callgrind::count(rounds);
    if asked("--record") { baseline::record(&counts) } else { baseline::compare(&counts) }
}
