//! What somebody knows who removes old placement groups (`groups`).

use std::collections::BTreeMap;

use hoplo_base::{GroupId, Instant};

#[derive(Debug, Default)]
pub struct Operator {
    pub looks: bool,
    /// When each is to be removed.
    pub ends: BTreeMap<GroupId, Instant>,
}
