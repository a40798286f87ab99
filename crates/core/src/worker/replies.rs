//! How values travel back: in frames that fit, and streams no further ahead than their reader wants.

use hoplo_base::{ProcessId, TaskId, limits};
use hoplo_wire::reply::{Returned, encoded_bytes};

use super::Worker;

impl<P> Worker<P> {
    /// Whether a stream's producer may go on that has sent so many items, with at most `ahead` of them not taken.
    /// Also if nobody reads it any more: then it finds out.
    pub fn has_credit(&self, reader: ProcessId, task: TaskId, sent: u64, ahead: u64) -> bool {
        let taken = self.consumed.get(&task).copied().unwrap_or(0);
        sent.saturating_sub(taken) < ahead
            || self.is_cancelled(task)
            || self.caller(reader).is_none()
    }
}

/// Where values that are too many for one frame are cut: all but the last frame are parts.
pub fn cuts(values: &[Returned]) -> Vec<usize> {
    let mut cuts = Vec::new();
    let mut bytes = 0;
    for (at, one) in values.iter().enumerate() {
        let more = encoded_bytes(one);
        if bytes + more > limits::REPLY_BYTES_MAX && at > 0 {
            cuts.push(at);
            bytes = 0;
        }
        bytes += more;
    }
    cuts
}
