//! What one process has been granted, and how much of it is idle.
//!
//! A page of an extent is under a tenant, or **idle**. Some idle pages the process **keeps**: as far as is known, it
//! is writing there. `memory` keeps the books (MEM-2 to MEM-4), `on_recall` asks for what is idle.

use std::collections::{BTreeMap, BTreeSet};

use super::ranges::RangeSet;

/// What a process has been granted.
#[derive(Debug, Default)]
pub(super) struct Estate {
    pub(super) extents: RangeSet,
    pub(super) slots: BTreeSet<u32>,
    /// Those of them with a tenant.
    pub(super) slots_used: BTreeSet<u32>,
    /// The pages under its tenants, bytes.
    pub(super) tenant_bytes: u64,
    /// Of its idle bytes, those that it did not give when it was asked, or was granted since because it wanted
    /// them: it is writing there.
    pub(super) kept_bytes: u64,
    /// The process is over, and may have the store mapped.
    pub(super) left: bool,
    /// Places in the spill file for what it writes next; by offset, their bytes.
    pub(super) rooms: BTreeMap<u64, u64>,
}

impl Estate {
    /// Pages without a tenant, bytes. It may be writing in some.
    pub(super) fn idle_bytes(&self) -> u64 {
        self.extents.bytes() - self.tenant_bytes
    }

    /// Idle ones that have become so since it was last asked for more than it gave.
    pub(super) fn fresh_bytes(&self) -> u64 {
        self.idle_bytes() - self.kept_bytes
    }

    /// After some of it is idle no more.
    pub(super) fn lower_kept(&mut self) {
        self.kept_bytes = self.kept_bytes.min(self.idle_bytes());
    }
}
