//! What is kept of a call until its `Finish`, and what its operations weigh.

use std::collections::BTreeMap;

use hoplo_base::Instant;
use hoplo_wire::control::{Key, Op, Outcome, Refusal, Row, ShardId};

pub(super) struct CallState {
    pub(super) deadline: Instant,
    pub(super) what: What,
}

pub(super) enum What {
    /// Waits for the configuration.
    Early,
    Update(UpdateState),
    Get,
    Scan(ScanState),
}

pub(super) struct UpdateState {
    /// In the order of the call's operations; absent while unknown.
    pub(super) outcomes: Vec<Option<Outcome>>,
    /// Shards that have not answered.
    pub(super) parts_left: usize,
    pub(super) parts: usize,
    pub(super) refused: Option<Refusal>,
    /// A part was sent at least once: it may be applied whatever the caller hears.
    pub(super) sent: bool,
}

pub(super) struct ScanState {
    pub(super) limit: usize,
    pub(super) pages: BTreeMap<ShardId, Page>,
    pub(super) shards: usize,
}

pub(super) struct Page {
    pub(super) rows: Vec<(Vec<u8>, Row)>,
    pub(super) next: Option<Vec<u8>>,
    pub(super) index: u64,
}

pub(super) fn key_of(op: &Op) -> &Key {
    match op {
        Op::Put { key, .. } | Op::Delete { key, .. } | Op::Archive { key, .. } => key,
    }
}

/// What an operation takes in memory and in a frame, about.
pub(super) fn op_bytes(op: &Op) -> usize {
    let value = match op {
        Op::Put { value, .. } => value.len(),
        Op::Delete { .. } | Op::Archive { .. } => 0,
    };
    key_of(op).bytes.len() + value + OP_OVERHEAD
}

const OP_OVERHEAD: usize = 64;
