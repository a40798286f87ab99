//! What people ask a process of the control store. Who may is in `who`; the answer is made in `server/report`.

use hoplo_wire::control::Wish;
use serde::{Deserialize, Serialize};

/// What `hoplo control` asks a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    Status,
    Metrics,
    /// A snapshot of every shard now, so that the logs become short.
    Compact,
    /// Of an operator, to the coordinator that acts: it shall be so, or not any more.
    Wish {
        wish: Wish,
        wished: bool,
    },
}
