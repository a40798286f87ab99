//! Snapshots of its own: chunks among the entries in the log, one at a time, while everything goes on.
//!
//! One is made when the log has grown by `snapshot_bytes`, and by as much as the rows have. It is
//! complete when its last chunk is stable and the cold tier has all that was archived until then: archived rows
//! are not in it. A base that was given by another replica is a snapshot, too.

use std::sync::Arc;

use hoplo_wire::control::{Key, Record, ReplicaId};

use super::{Effect, Replica};

#[derive(Clone, Debug, Default)]
pub struct Snapshots {
    count: u64,
    /// Bytes of entries in the log that no snapshot includes.
    appended: u64,
    making: Option<Making>,
    /// Somebody asked for one.
    pub wanted: bool,
    /// A base that was given is complete.
    pub given: Option<u64>,
    /// The base that the log is giving back.
    pub replaying: Option<u64>,
    /// What that one is as of.
    pub replayed_base: u64,
}

#[derive(Clone, Debug)]
struct Making {
    snapshot: u64,
    /// Where the next chunk begins.
    from: Option<Key>,
    /// The last chunk's number in the log.
    number: u64,
    /// All chunks are there; what the cold tier must have written.
    mark: Option<u64>,
}

impl Snapshots {
    /// Of a snapshot that `me` makes: no other is likely to have the same.
    pub fn number(&mut self, me: ReplicaId) -> u64 {
        self.count += 1;
        let spread = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        spread(spread(me.node.0) ^ me.incarnation).wrapping_add(self.count)
    }

    pub fn appended(&mut self, bytes: u64) {
        self.appended += bytes;
    }

    pub fn waits_for_cold(&self) -> bool {
        self.making.as_ref().is_some_and(|making| making.mark.is_some())
    }

    pub fn forget(&mut self) {
        self.making = None;
        self.appended = 0;
        self.given = None;
    }

    pub fn log_bytes(&self) -> u64 {
        self.appended
    }
}

impl Replica {
    /// Does the next step of a snapshot, or begins one.
    pub(super) fn snapshot(&mut self, effects: &mut Vec<Effect>) {
        if let Some(snapshot) = self.snapshots.given.take() {
            effects.push(Effect::SnapshotDone { snapshot });
        }
        if !self.has_base() || self.base_unstable.is_some() {
            return;
        }
        let due = self.options.snapshot_bytes.max(self.tables.bytes());
        if self.snapshots.making.is_none()
            && (self.snapshots.wanted || self.snapshots.appended >= due)
        {
            self.snapshots.wanted = false;
            self.snapshots.appended = 0;
            let snapshot = self.snapshots.number(self.options.me);
            self.snapshots.making = Some(Making { snapshot, from: None, number: 0, mark: None });
        }
        let Some(mut making) = self.snapshots.making.take() else { return };
        if self.stable_number < making.number {
            self.snapshots.making = Some(making);
            return;
        }
        match making.mark {
            Some(mark) if self.cold.is_written(mark) => {
                effects.push(Effect::SnapshotDone { snapshot: making.snapshot });
            }
            Some(_) => self.snapshots.making = Some(making),
            None => {
                let until = self.chunk_end(making.from.as_ref());
                let chunk = self.chunk(making.snapshot, making.from.take(), until.clone(), vec![]);
                if until.is_none() {
                    making.mark = Some(self.cold.mark());
                }
                making.number = self.append(Arc::new(Record::Chunk(chunk)));
                making.from = until;
                self.snapshots.making = Some(making);
            }
        }
    }
}
