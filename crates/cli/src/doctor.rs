//! What a program written for Ray uses that is not there: `hoplo doctor`. Python reads programs, so it is asked.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::start::python_beside;

#[derive(Args)]
pub(crate) struct DoctorArgs {
    /// Programs that import ray; they are read, not run
    #[arg(required = true, value_name = "PROGRAM")]
    programs: Vec<PathBuf>,
}

/// Ends with the status of Python's own answer: 0 if all is there, 1 if something is not, 2 if a program cannot be read.
pub(crate) fn doctor(args: &DoctorArgs) -> Result<()> {
    let python = python_beside(&std::env::current_exe()?);
    let error = Command::new(&python).args(["-m", "hoplo.doctor"]).args(&args.programs).exec();
    Err(error).with_context(|| format!("cannot run {}", python.display()))
}
