//! Completions of this command for a shell: `hoplo completion`.

use std::io::Write;

use anyhow::Result;
use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::Shell;

use crate::Cli;

#[derive(Args)]
pub(crate) struct CompletionArgs {
    /// Which shell; without it, that of SHELL
    #[arg(value_enum)]
    shell: Option<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Bash,
    Zsh,
    Fish,
}

/// Prints a script that the shell is to read.
pub(crate) fn completion(args: &CompletionArgs) -> Result<()> {
    let named = || std::env::var("SHELL").ok();
    let shell = match args.shell.or_else(|| kind_of(&named()?)) {
        Some(Kind::Bash) => Shell::Bash,
        Some(Kind::Zsh) => Shell::Zsh,
        Some(Kind::Fish) => Shell::Fish,
        None => anyhow::bail!("say for which shell: `hoplo completion bash`, `zsh` or `fish`"),
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "hoplo", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(())
}

/// Of the path of a shell.
fn kind_of(path: &str) -> Option<Kind> {
    let name = path.rsplit('/').next()?;
    Kind::from_str(name, true).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_known_by_its_program() {
        assert_eq!(kind_of("/usr/bin/zsh"), Some(Kind::Zsh));
        assert_eq!(kind_of("fish"), Some(Kind::Fish));
        assert_eq!(kind_of("/bin/dash"), None);
    }

    #[test]
    fn what_is_written_on_the_command_line_is_defined_once() {
        Cli::command().debug_assert();
    }
}
