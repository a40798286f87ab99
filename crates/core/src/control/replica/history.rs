//! The entries that a replica has in memory: all that are not applied yet, and the latest that are.
//!
//! The applied ones are for two readers: a successor that asks for what it missed, and subscribers. So
//! each applied entry remembers what its operations did.
//!
//! # Invariants
//! - HIST-1: entries follow each other from `base` + 1 on; their epochs never fall.
//! - HIST-2: `bytes` is the sum of what they count for.

use std::collections::VecDeque;
use std::sync::Arc;

use hoplo_base::limits::CONTROL_ENTRY_OVERHEAD;
use hoplo_wire::control::{Change, Entry, Epoch, Op, Record, Row, Table};

use crate::control::tables::Applied;

/// What one operation changed for those who look on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    Nothing,
    Put { version: u64 },
    Deleted,
}

#[derive(Clone, Debug)]
pub struct Kept {
    pub record: Arc<Record>,
    /// Number of its record in the log (`Effect::Append`); 0 when it came from there.
    pub number: u64,
    /// Bytes of all entries up to this one, since the machine began.
    upto_bytes: u64,
    bytes: u64,
    /// Bit for each table that it has operations on.
    tables: u16,
    /// By operation; empty until it is applied.
    did: Vec<Did>,
}

#[derive(Clone, Debug, Default)]
pub struct History {
    /// The entry before the first one.
    base: (u64, Epoch),
    entries: VecDeque<Kept>,
    upto_bytes: u64,
    /// What operations did is known of entries after this one.
    changes_after: u64,
}

/// A record that is an entry.
pub fn entry(record: &Record) -> &Entry {
    match record {
        Record::Entry(entry) => entry,
        Record::Chunk(_) => unreachable!("the history has entries only"),
    }
}

pub fn entry_bytes(entry: &Entry) -> u64 {
    let of_op = |op: &Op| match op {
        Op::Put { key, value, .. } => key.bytes.len() + value.len() + size_of::<Op>(),
        Op::Delete { key, .. } | Op::Archive { key, .. } => key.bytes.len() + size_of::<Op>(),
    };
    (entry.ops.iter().map(of_op).sum::<usize>() + CONTROL_ENTRY_OVERHEAD) as u64
}

fn bit(table: Table) -> u16 {
    1 << (table as u16)
}

fn key(op: &Op) -> &hoplo_wire::control::Key {
    match op {
        Op::Put { key, .. } | Op::Delete { key, .. } | Op::Archive { key, .. } => key,
    }
}

impl History {
    /// Nothing is known but what the rows are as of.
    pub fn reset(&mut self, base: u64, epoch: Epoch) {
        self.entries.clear();
        self.base = (base, epoch);
        self.changes_after = base;
    }

    /// What operations did before this entry is applied is not known here.
    pub fn changes_begin_after(&mut self, index: u64) {
        self.changes_after = index;
    }

    pub fn push(&mut self, record: Arc<Record>, number: u64) {
        let entry = entry(&record);
        assert_eq!(entry.index, self.last() + 1, "HIST-1");
        assert!(entry.epoch >= self.last_epoch(), "HIST-1");
        let bytes = entry_bytes(entry);
        self.upto_bytes += bytes;
        let tables = entry.ops.iter().fold(0, |bits, op| bits | bit(key(op).table));
        let upto_bytes = self.upto_bytes;
        self.entries.push_back(Kept { record, number, upto_bytes, bytes, tables, did: Vec::new() });
    }

    pub fn applied(&mut self, index: u64, did: Vec<Did>) {
        let place = self.place(index).expect("an entry is applied while it is here");
        self.entries[place].did = did;
    }

    /// Entries after this one never happened.
    pub fn cut(&mut self, after: u64) {
        while self.last() > after && !self.entries.is_empty() {
            self.entries.pop_back();
        }
        self.upto_bytes = self.entries.back().map_or(self.base_bytes(), |kept| kept.upto_bytes);
    }

    /// Forgets the oldest.
    pub fn forget_first(&mut self) {
        let kept = self.entries.pop_front().expect("there is one");
        let entry = entry(&kept.record);
        self.base = (entry.index, entry.epoch);
        self.changes_after = self.changes_after.max(entry.index);
        if self.entries.is_empty() {
            self.upto_bytes = kept.upto_bytes;
        }
    }

    pub fn get(&self, index: u64) -> Option<&Kept> {
        self.entries.get(self.place(index)?)
    }

    pub fn last(&self) -> u64 {
        self.base.0 + self.entries.len() as u64
    }

    pub fn last_epoch(&self) -> Epoch {
        self.entries.back().map_or(self.base.1, |kept| entry(&kept.record).epoch)
    }

    /// The entry before the first one that is here.
    pub fn base(&self) -> u64 {
        self.base.0
    }

    /// Of an entry that is here, or of the one before.
    pub fn epoch_at(&self, index: u64) -> Option<Epoch> {
        if index == self.base.0 {
            return Some(self.base.1);
        }
        self.get(index).map(|kept| entry(&kept.record).epoch)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes_between(self.base.0, self.last())
    }

    /// Of the entries after `after` up to `upto`, as far as they are here.
    pub fn bytes_between(&self, after: u64, upto: u64) -> u64 {
        let total = |index: u64| match self.place(index.min(self.last())) {
            Some(place) => self.entries[place].upto_bytes,
            None => self.base_bytes(),
        };
        total(upto).saturating_sub(total(after))
    }

    /// Changes of entries after `index` are known.
    pub fn changes_known_after(&self, index: u64) -> bool {
        index >= self.changes_after
    }

    pub fn changes_after(&self) -> u64 {
        self.changes_after
    }

    /// What an applied entry changed in keys with a prefix; returns how many bytes of values.
    pub fn changes(&self, index: u64, table: Table, prefix: &[u8], out: &mut Vec<Change>) -> usize {
        let kept = self.get(index).expect("it is here");
        if kept.tables & bit(table) == 0 {
            return 0;
        }
        let mut bytes = 0;
        let entry = entry(&kept.record);
        for (op, did) in entry.ops.iter().zip(&kept.did) {
            let key = key(op);
            if key.table != table || !key.bytes.starts_with(prefix) {
                continue;
            }
            let row = match (op, did) {
                (_, Did::Nothing) => continue,
                (Op::Put { value, finished, .. }, Did::Put { version }) => Some(Row {
                    value: value.clone(),
                    version: *version,
                    index,
                    finished: *finished,
                }),
                (_, Did::Put { .. } | Did::Deleted) => None,
            };
            bytes += key.bytes.len() + row.as_ref().map_or(0, |row| row.value.len());
            out.push(Change { index, key: key.clone(), row });
        }
        bytes
    }

    pub fn check(&self) {
        let mut bytes = 0;
        let mut last = self.base;
        for kept in &self.entries {
            let entry = entry(&kept.record);
            assert_eq!(entry.index, last.0 + 1, "HIST-1");
            assert!(entry.epoch >= last.1, "HIST-1");
            last = (entry.index, entry.epoch);
            bytes += entry_bytes(entry);
        }
        assert_eq!(bytes, self.bytes(), "HIST-2");
    }

    fn place(&self, index: u64) -> Option<usize> {
        let place = usize::try_from(index.checked_sub(self.base.0 + 1)?).ok()?;
        (place < self.entries.len()).then_some(place)
    }

    /// Bytes up to the base.
    fn base_bytes(&self) -> u64 {
        match self.entries.front() {
            Some(kept) => kept.upto_bytes - kept.bytes,
            None => self.upto_bytes,
        }
    }
}

impl From<&Applied> for Did {
    fn from(applied: &Applied) -> Self {
        match applied {
            Applied::Put { version } => Self::Put { version: *version },
            Applied::Deleted => Self::Deleted,
            // What becomes history can still be read: nothing changed for those who look on.
            Applied::Absent | Applied::Archived(_) | Applied::Conflict { .. } => Self::Nothing,
        }
    }
}
