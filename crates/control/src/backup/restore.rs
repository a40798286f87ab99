//! A backup becomes the folder of a head's store.
//!
//! ```text
//!   control.new/  cluster.json, ca/     as they were
//!                 log                   one snapshot: the rows
//!                 cold.redb             finished rows for which memory has no room
//!            --on disk--> control/      its head has never run, so its history begins anew
//! ```
//! Who lives on has seen more than the backup has: later epochs of the store, later entries, nodes that joined since. None of these numbers
//! may come again and mean something else:
//! - an **entry** and an **epoch** are more than any before them, since both go on from the time: in microseconds and in seconds since 1970.
//!   Stores make fewer of either;
//! - a **node's number** is given after the highest one that has a row. So there is a row of a node that never was, a random distance
//!   behind the last one, at which nobody who joined since can be.
//!
//! # Invariants
//! - RESTORE-1: nothing is in the folder unless the whole backup was read and found right.
//! - RESTORE-2: a number that anybody has seen of the store means the same, or is not given again.

use std::fs::{self, File};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

use hoplo_base::NodeNumber;
use hoplo_base::limits::{CONTROL_CHUNK_BYTES, CONTROL_COLD_CACHE_BYTES, CONTROL_COLD_FLUSH_BYTES};
use hoplo_core::control::tables::row_bytes;
use hoplo_core::control::{Entry, NodeEntry, NodeState};
use hoplo_wire::control::{Chunk, Epoch, Key, Record, Row, Table};

use super::file::{Header, Reader};
use super::{BackupError, named};
use crate::clock::{micros_since_1970, since_1970};
use crate::disk::cold::{ColdOptions, ColdReport, ColdThread, Flush};
use crate::disk::log::{self, Fsync, LogOptions, Recovery, Writer};
use crate::embedded::{CLUSTER, EmbeddedOptions, SHARD};
use crate::net::cluster::Cluster;

/// Makes the folder, which must not be there.
pub fn restore(path: &Path, folder: &Path) -> Result<Header, BackupError> {
    restore_for(path, folder, EmbeddedOptions::new(folder.to_path_buf()))
}

/// As for a store with these options.
pub(crate) fn restore_for(
    path: &Path,
    folder: &Path,
    options: EmbeddedOptions,
) -> Result<Header, BackupError> {
    if folder.exists() {
        return Err(BackupError::HasStore(folder.parent().unwrap_or(folder).to_path_buf()));
    }
    let header = Reader::open(path)?.check()?;
    header.fit(path)?;
    let beside = folder.with_extension("new");
    let made = fill(path, &header, EmbeddedOptions { folder: beside.clone(), ..options })
        .and_then(|()| fs::rename(&beside, folder).map_err(named(folder)));
    if made.is_err() {
        // It may not have been made.
        let _ = fs::remove_dir_all(&beside);
    }
    made.map(|()| header)
}

fn fill(path: &Path, header: &Header, options: EmbeddedOptions) -> Result<(), BackupError> {
    let folder = &options.folder.clone();
    let Some(founding) = &header.head else {
        return Err(BackupError::NotOfHead(path.to_path_buf()));
    };
    if folder.exists() {
        // Of one that was killed meanwhile.
        fs::remove_dir_all(folder).map_err(named(folder))?;
    }
    fs::create_dir(folder).map_err(named(folder))?;
    Cluster::found_again(folder, founding)?;
    let mut rows = Rows::open(path, micros_since_1970())?;
    let mut filling = Filling::begin(header, options)?;
    while let Some((key, row)) = rows.next()? {
        filling.put(key, row)?;
    }
    filling.end()?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(named(folder))
}

/// Those of a backup, in order; behind the last node one that never was (RESTORE-2).
pub(super) struct Rows {
    reader: Reader,
    gap: u64,
    /// The last node so far, and the entry that wrote its row.
    last: Option<(NodeNumber, u64)>,
    /// Comes after the node that never was.
    held: Option<(Key, Row)>,
    /// Of the node that never was: no row of the file.
    nobody: Option<Key>,
}

impl Rows {
    /// `gap`: how far behind, at random.
    pub(super) fn open(path: &Path, gap: u64) -> Result<Self, BackupError> {
        Ok(Self { reader: Reader::open(path)?, gap, last: None, held: None, nobody: None })
    }

    pub(super) fn next(&mut self) -> Result<Option<(Key, Row)>, BackupError> {
        if let Some(held) = self.held.take() {
            return Ok(Some(held));
        }
        let next = self.reader.next_row()?;
        if let Some((Key { table: Table::Node, .. }, row)) = &next {
            let entry = NodeEntry::from_row(row).ok();
            self.last = entry.map(|entry| (entry.node, row.index)).max(self.last);
            return Ok(next);
        }
        let nobody = self.last.take().and_then(|(last, index)| nobody(last, index, self.gap));
        if let Some((key, _)) = &nobody {
            self.nobody = Some(key.clone());
            self.held = next;
            return Ok(nobody);
        }
        Ok(next)
    }

    pub(super) fn is_nobody(&self, key: &Key) -> bool {
        self.nobody.as_ref() == Some(key)
    }
}

/// Its number is so far behind the last one that nobody has been given it.
fn nobody(last: NodeNumber, index: u64, gap: u64) -> Option<(Key, Row)> {
    let node = last.behind_a_gap(gap as u32);
    let entry = NodeEntry {
        head: true,
        state: NodeState::Settled {
            why: "it never was: nodes that joined after the backup may have the numbers before it"
                .to_string(),
            heir: None,
            died: 0,
        },
        ..NodeEntry::numbered(node, String::new())
    };
    let row = Row { value: entry.to_value(), version: 1, index, finished: false };
    (node != last).then(|| (entry.key(), row))
}

struct Filling {
    log: Writer,
    cold: ColdThread,
    reports: Receiver<ColdReport>,
    snapshot: u64,
    as_of: u64,
    epoch: Epoch,
    /// Where the chunk begins that is filled; absent: at the first key.
    from: Option<Key>,
    rows: Vec<(Key, Row)>,
    bytes: u64,
    /// What rows in memory count for, and at most may if there are finished ones among them.
    memory: u64,
    memory_max: u64,
    archived: Vec<(Key, Row)>,
    archived_bytes: u64,
}

impl Filling {
    fn begin(header: &Header, options: EmbeddedOptions) -> Result<Self, BackupError> {
        let (now, micros) = (since_1970(), micros_since_1970());
        let of = |number: fn(&super::Shard) -> u64| header.shards.iter().map(number).max();
        let log = Recovery::open(LogOptions {
            folder: options.folder.clone(),
            cluster: CLUSTER,
            shard: SHARD,
            fsync: Fsync::Never,
            segment_bytes: options.snapshot_bytes,
            ahead: false,
            boot: log::this_boot(),
        })?;
        let (sender, reports) = channel();
        let cold = ColdOptions {
            path: options.folder.join("cold.redb"),
            cluster: CLUSTER,
            shard: SHARD,
            retention: options.retention,
            cache_bytes: CONTROL_COLD_CACHE_BYTES,
        };
        let cold = ColdThread::start(cold, move |report| {
            let _ = sender.send(report);
        })?;
        Ok(Self {
            log: log.into_writer(),
            cold,
            reports,
            snapshot: micros,
            as_of: micros.max(of(|shard| shard.index).unwrap_or(0) + 1),
            epoch: Epoch(now.as_secs().max(of(|shard| shard.epoch).unwrap_or(0) + 1)),
            from: None,
            rows: Vec::new(),
            bytes: 0,
            memory: 0,
            memory_max: options.memory_bytes / 2,
            archived: Vec::new(),
            archived_bytes: 0,
        })
    }

    fn put(&mut self, key: Key, row: Row) -> Result<(), BackupError> {
        let bytes = row_bytes(&key, row.value.len(), row.finished);
        if row.finished && self.memory + bytes > self.memory_max {
            return self.archive(key, row);
        }
        if self.bytes >= CONTROL_CHUNK_BYTES {
            self.chunk(Some(key.clone()))?;
        }
        self.bytes += bytes;
        self.memory += bytes;
        self.rows.push((key, row));
        Ok(())
    }

    /// What was gathered is in the log; the next chunk begins at `until`.
    fn chunk(&mut self, until: Option<Key>) -> Result<(), BackupError> {
        let (from, rows) = (self.from.take(), std::mem::take(&mut self.rows));
        self.from.clone_from(&until);
        self.bytes = 0;
        self.log.append(&Record::Chunk(Chunk {
            snapshot: self.snapshot,
            as_of: self.as_of,
            epoch: self.epoch,
            from,
            until,
            rows,
            archived: vec![],
            sessions: vec![],
            sessions_over: 0,
        }));
        Ok(self.log.flush()?)
    }

    fn archive(&mut self, key: Key, row: Row) -> Result<(), BackupError> {
        self.archived_bytes += (key.bytes.len() + row.value.len()) as u64;
        self.archived.push((key, row));
        let full = self.archived_bytes >= CONTROL_COLD_FLUSH_BYTES;
        if full { self.flush_cold() } else { Ok(()) }
    }

    fn flush_cold(&mut self) -> Result<(), BackupError> {
        let puts = std::mem::take(&mut self.archived);
        if std::mem::take(&mut self.archived_bytes) == 0 {
            return Ok(());
        }
        self.cold.write(0, Flush { puts, ..Flush::default() });
        match self.reports.recv().expect("each flush is reported") {
            ColdReport::NotWritten { error, .. } => Err(error.into()),
            ColdReport::Written { .. }
            | ColdReport::Row { .. }
            | ColdReport::Page { .. }
            | ColdReport::Unread { .. } => Ok(()),
        }
    }

    fn end(mut self) -> Result<(), BackupError> {
        self.flush_cold()?;
        self.chunk(None)?;
        self.log.snapshot_done(self.snapshot);
        Ok(self.log.close()?)
    }
}
