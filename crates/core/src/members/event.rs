//! What a judge hears and wants.

use std::fmt;
use std::time::Duration;

use hoplo_base::NodeNumber;

use crate::control::NodeState;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// This control node acts as the coordinator of the store, or not any more.
    Acts(bool),
    /// The node table has this row. `near`: on the same machine as this judge, so it is no witness.
    Row {
        number: NodeNumber,
        version: u64,
        state: NodeState,
        near: bool,
    },
    /// `epoch`: the membership that it knows.
    Heartbeat {
        from: NodeNumber,
        epoch: u64,
    },
    /// Nothing runs there any more, and it waits to be declared dead for this reason.
    Leaves {
        from: NodeNumber,
        why: String,
    },
    /// Its connection to this control node ended.
    Closed {
        number: NodeNumber,
    },
    /// Another node has trouble with it.
    Complaint {
        number: NodeNumber,
    },
    Probed {
        ticket: u64,
        found: Found,
    },
    /// The outcome of a verdict; with the version that the row has now.
    Stored {
        ticket: u64,
        version: u64,
    },
    /// The row has another version: it comes, or came, as `Row`.
    Conflict {
        ticket: u64,
    },
    /// The store did not answer; it may have stored.
    Unreachable {
        ticket: u64,
    },
    /// A deadline has come, and everything that arrived before was told.
    Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// That life answered.
    Alive,
    /// Nobody listens at its address, or another life does.
    Refused,
    /// It did not answer, or its machine cannot be reached.
    Silent,
    /// Who was to probe could not be asked.
    Unasked,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Connect to it, or have `via` do it, and see who answers. What comes after `MEMBER_PROBE_WITHIN` is too late; who is
    /// asked to do it says after `MEMBER_WITNESS_WITHIN` that it found nothing.
    Probe { ticket: u64, target: NodeNumber, via: Option<NodeNumber> },
    /// Write into its row that it is dead, if the row has this version.
    Verdict { ticket: u64, number: NodeNumber, expected: u64, why: Why },
    /// It speaks, or answers, and was declared dead.
    Tell { number: NodeNumber, why: String },
    /// For people: the judge is so late, and finds the dead so much later.
    Behind { by: Duration },
}

/// Of a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It said so itself.
    Left {
        why: String,
    },
    Refused,
    /// `witnesses`: others that found it silent as well.
    Silent {
        milliseconds: u64,
        witnesses: usize,
    },
    /// This control node never heard of it.
    Unheard {
        milliseconds: u64,
        witnesses: usize,
    },
    /// It answers probes, and does not speak to this control node.
    Astray {
        seconds: u64,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Left { why } => f.write_str(why),
            Why::Refused => write!(f, "its daemon is gone: nobody listens at its address"),
            Why::Silent { milliseconds, witnesses } => {
                write!(f, "it was silent for {milliseconds} ms{}", reached_by(*witnesses))
            }
            Why::Unheard { milliseconds, witnesses } => write!(
                f,
                "it did not come to this control node in {milliseconds} ms{}",
                reached_by(*witnesses)
            ),
            Why::Astray { seconds } => write!(
                f,
                "it answered, and did not come to the head for {seconds} s: its machine has to reach the head's address"
            ),
        }
    }
}

fn reached_by(witnesses: usize) -> String {
    match witnesses {
        0 => String::new(),
        1 => "; another node did not reach it either".to_string(),
        _ => format!("; {witnesses} other nodes did not reach it either"),
    }
}
