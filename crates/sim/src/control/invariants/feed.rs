//! CHAIN-8: a subscriber sees each change after its cursor once, in order, or is told that it missed some.
//!
//! In chain replication terms: notifications are answers of the tail, in the order of its history; a new tail's history has
//! the old one's as a prefix (van Renesse and Schneider 2004, section 3.2), so a cursor means the same at every
//! tail.

use std::collections::BTreeMap;

use hoplo_wire::control::{Change, ShardId, Table};

use super::truth::Truth;

/// One subscription of one client, as its user sees it.
#[derive(Debug)]
pub struct Feed {
    pub table: Table,
    pub prefix: Vec<u8>,
    cursors: BTreeMap<ShardId, u64>,
    pub changes: u64,
    pub missed: u64,
}

impl Feed {
    pub fn new(table: Table, prefix: Vec<u8>) -> Self {
        Self { table, prefix, cursors: BTreeMap::new(), changes: 0, missed: 0 }
    }

    pub fn cursor(&self, shard: ShardId) -> u64 {
        self.cursors.get(&shard).copied().unwrap_or(0)
    }

    /// More of one shard arrived.
    pub fn hears(&mut self, shard: ShardId, changes: &[Change], upto: u64, truth: &Truth) {
        let cursor = self.cursor(shard);
        assert!(upto >= cursor, "CHAIN-8: told up to {upto} after {cursor}");
        let expected = truth.changes_between(self.table, &self.prefix, cursor, upto);
        assert!(
            changes.iter().eq(expected.iter().copied()),
            "CHAIN-8: after {cursor} up to {upto} in {shard:?} of {:?} came\n  {changes:?}\ninstead of\n  \
             {expected:?}",
            String::from_utf8_lossy(&self.prefix)
        );
        self.changes += changes.len() as u64;
        self.cursors.insert(shard, upto);
    }

    /// Some are not remembered any more; the user read the table again as of this entry.
    pub fn misses(&mut self, shard: ShardId, oldest: u64, again_after: u64) {
        assert!(
            oldest > self.cursor(shard),
            "CHAIN-8: {oldest} comes after the cursor, so nothing was missed"
        );
        self.missed += 1;
        self.cursors.insert(shard, again_after);
    }

    /// What it was told is void: the shard began anew.
    pub fn begins_anew(&mut self, shard: ShardId) {
        self.cursors.insert(shard, 0);
    }

    /// Everything was told, up to the end of history.
    pub fn is_complete(&self, shard: ShardId, truth: &Truth) -> bool {
        let rest =
            truth.changes_between(self.table, &self.prefix, self.cursor(shard), truth.last());
        rest.is_empty()
    }
}
