//! Rings as they behave: calls are taken or revoked by one atomic step each, replies lie there until drained.

use std::collections::{BTreeMap, VecDeque};

use hoplo_base::ProcessId;
use hoplo_core::session::AskedBack;

/// The calls of one process to one worker, and the replies.
#[derive(Debug, Default)]
pub struct Channel {
    /// The worker was told of it.
    pub connected: bool,
    pub calls: VecDeque<Call>,
    pub replies: VecDeque<Vec<u8>>,
}

#[derive(Debug)]
pub struct Call {
    pub seq: u64,
    pub bytes: Vec<u8>,
}

/// By caller and worker.
pub type Channels = BTreeMap<(ProcessId, ProcessId), Channel>;

/// What a caller keeps of a channel.
#[derive(Debug, Default)]
pub struct Outbound {
    /// Calls in the ring or begun.
    pub sent: VecDeque<u64>,
    /// Calls that found the ring full.
    pub overflow: VecDeque<u64>,
    /// Calls that a worker of another node was asked to give back, and did not answer.
    pub asked: AskedBack,
}

impl Channel {
    /// The worker takes the first call that is ready.
    pub fn take(&mut self) -> Option<Call> {
        self.calls.pop_front()
    }

    /// The caller takes a call back; false if the worker took it.
    pub fn revoke(&mut self, seq: u64) -> bool {
        let at = self.calls.iter().position(|call| call.seq == seq);
        at.is_some_and(|at| self.calls.remove(at).is_some())
    }
}
