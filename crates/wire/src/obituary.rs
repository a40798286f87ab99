//! How a process ended, for its callers and for people.

use serde::{Deserialize, Serialize};

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obituary {
    /// 0: nobody knows it any more, or nobody ever did.
    pub pid: u32,
    pub cause: DeathCause,
    /// The last lines it printed.
    pub last_lines: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeathCause {
    Exited {
        code: i32,
    },
    Signaled {
        signal: i32,
    },
    /// The daemon stopped it: over its `memory=`, or the node is short of memory.
    OutOfMemory {
        detail: String,
    },
    /// Asked for: `cancel(force=True)`, `kill(actor)`, its job ended, retired, reaped.
    Stopped {
        reason: String,
    },
    /// It never got to work: it could not be forked.
    NotStarted {
        reason: String,
    },
    /// It was not forked, since its runtime environment cannot be made.
    BadEnvironment {
        reason: String,
    },
    /// Nobody stopped it: it went with its node, or nothing is known of its end.
    Lost {
        reason: String,
    },
}

impl Obituary {
    /// One line for people: `pid 1234 was killed by SIGKILL`.
    pub fn headline(&self) -> String {
        let who = if self.pid == 0 { "it".to_string() } else { format!("pid {}", self.pid) };
        match &self.cause {
            DeathCause::Exited { code } => format!("{who} exited with code {code}"),
            DeathCause::Signaled { signal } => {
                format!("{who} was killed by {}", signal_name(*signal))
            }
            DeathCause::OutOfMemory { detail } => format!("{who} ran out of memory: {detail}"),
            DeathCause::Stopped { reason } => format!("{who} was stopped: {reason}"),
            DeathCause::NotStarted { reason } | DeathCause::BadEnvironment { reason } => {
                format!("a worker could not start: {reason}")
            }
            DeathCause::Lost { reason } if self.pid == 0 => reason.clone(),
            DeathCause::Lost { reason } => format!("{who}: {reason}"),
        }
    }
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        _ => return format!("signal {signal}"),
    };
    format!("{name} ({signal})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_buried_long_ago_was_said_to_have_the_pid_0() {
        let cause = DeathCause::Stopped { reason: "its job ended".to_string() };
        let obituary = Obituary { pid: 0, cause, last_lines: vec![] };
        assert_eq!(obituary.headline(), "it was stopped: its job ended");
    }

    #[test]
    fn who_died_with_its_node_was_said_to_have_been_stopped() {
        let cause = DeathCause::Lost { reason: "its node (node:3) died: it fell".to_string() };
        let mut obituary = Obituary { pid: 0, cause, last_lines: vec![] };
        assert_eq!(obituary.headline(), "its node (node:3) died: it fell");
        obituary.pid = 12;
        assert_eq!(obituary.headline(), "pid 12: its node (node:3) died: it fell");
    }

    #[test]
    fn an_obituary_names_the_signal() {
        let cause = DeathCause::Signaled { signal: 9 };
        let obituary = Obituary { pid: 12, cause, last_lines: vec![] };
        assert_eq!(obituary.headline(), "pid 12 was killed by SIGKILL (9)");
    }
}
