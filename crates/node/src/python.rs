//! The Python that runs workers: its minor version is one in a whole cluster, since what one pickles another one reads.

use std::path::Path;
use std::process::{Command, Stdio};

/// A node's row has it under this name, which is not shown.
pub(crate) const LABEL: &str = "hoplo.python";

/// What it said of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Python {
    /// Such as `3.12`.
    pub version: String,
    /// Whether it can import hoplo, as workers do.
    pub has_hoplo: bool,
}

/// Absent if it does not run, which whoever starts the first worker hears.
pub fn ask(python: &Path) -> Option<Python> {
    let program = "import sys; from importlib.util import find_spec; \
                   print('%d.%d' % sys.version_info[:2], 'with' if find_spec('hoplo') else 'without')";
    let mut command = Command::new(python);
    // As `zygote_command`.
    command.args(["-P", "-c", program]).stdin(Stdio::null()).stderr(Stdio::null());
    let said = command.output().ok().filter(|said| said.status.success())?;
    let text = String::from_utf8(said.stdout).ok()?;
    let mut words = text.split_whitespace();
    let version = words.next()?.to_string();
    let is_one =
        version.split('.').count() == 2 && version.chars().all(|c| c.is_ascii_digit() || c == '.');
    is_one.then(|| Python { version, has_hoplo: words.next() != Some("without") })
}

/// Why a node of the one cannot join a head of the other.
pub(crate) fn refusal(ours: &str, heads: &str) -> Option<String> {
    (ours != heads).then(|| {
        format!(
            "its workers run Python {ours}, and those of the cluster's head Python {heads}: what one pickles the other may not \
             read. Start it with a Python {heads} that has hoplo (--python PATH, or the `hoplo` of that environment)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_minor_version_is_refused_with_both_named() {
        assert_eq!(refusal("3.12", "3.12"), None);
        let text = refusal("3.11", "3.12").unwrap();
        assert!(text.contains("Python 3.11") && text.contains("a Python 3.12"), "{text}");
    }

    #[test]
    fn what_is_no_python_says_nothing_of_itself() {
        for none in ["/nowhere/python", "true", "false"] {
            assert_eq!(ask(Path::new(none)), None, "{none}");
        }
    }
}
