//! How many instructions a replica takes for an update: a guard that no noise can fool.
//!
//! `cargo bench -p hoplo-core --bench instructions` (in `make test`), with the client's harness: counted are
//! the functions named `counted_*` under callgrind, in the rounds after the warm-up. A round is a batch of
//! 100 puts (25 B keys that are new, 512 B values) to a chain of one and to a chain of two; the figures are
//! per batch. No disk and no network: what those do is told to the machine at once, and making the request and
//! dropping what it was answered is not counted.

#![allow(clippy::unwrap_used)] // it is a test

#[path = "../../../client/benches/instructions/counting/mod.rs"]
mod counting;
mod stages;

use std::process::ExitCode;

fn main() -> ExitCode {
    counting::main(stages::run, stages::ROUNDS)
}
