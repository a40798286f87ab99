//! The cold tier: rows that left memory, in one redb file, in a thread of its own.
//!
//! ```text
//!   rows    table + key       -> version, index, stamp, sum, value
//!   order   stamp             -> the keys of one flush      (oldest first: retention takes them from here)
//!   facts   name              -> cluster, shard, format, bytes, rows
//! ```
//! Requests are carried out in order. A flush is one transaction, on disk before it is reported; so is what
//! retention removes with it. The file is made by the first flush: who never needs it does not pay
//! for it; a second file, `cold.made`, says that it was made, so that it is missed when it is taken away. The cache is
//! bounded, so memory is the same for a thousand rows and for a hundred million.
//!
//! # Invariants
//! - COLD-1: a flush is there whole or not at all, and what was reported as written is read again.
//! - COLD-2: a row that is read has the bytes that were written: its sum says so, else it is refused.
//! - COLD-4: a file that was there and is gone, or cannot be trusted, is an error until it is set aside.
//! - COLD-3: retention removes a row only under the stamp of the flush that wrote it last.

mod file;
mod thread;

use std::path::PathBuf;
use std::time::Duration;

use hoplo_wire::control::{ClusterId, Key, Row, ShardId};

pub use file::set_aside;
pub use thread::{ColdReport, ColdThread};

/// What is kept, at most; both may be exceeded for the time between two flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub age: Option<Duration>,
    /// Of keys and values.
    pub bytes: Option<u64>,
}

impl Retention {
    /// Unless somebody wants it otherwise.
    pub const DEFAULT: Self =
        Self { age: Some(Duration::from_secs(7 * 86_400)), bytes: Some(4 << 30) };
}

#[derive(Clone, Debug)]
pub struct ColdOptions {
    pub path: PathBuf,
    pub cluster: ClusterId,
    pub shard: ShardId,
    pub retention: Retention,
    /// Memory for pages of the file.
    pub cache_bytes: usize,
}

/// One transaction: the ranges (from, until; absent: without an end) are emptied, then rows put and deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flush {
    pub clear: Vec<(Option<Key>, Option<Key>)>,
    pub puts: Vec<(Key, Row)>,
    pub deletes: Vec<Key>,
}

/// Rows from one key to before another, as many as `limit` or as make about `bytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    pub from: Option<Key>,
    pub until: Option<Key>,
    pub limit: u32,
    pub bytes: u64,
}

/// Some rows in order of their keys; where the rest begins, if there is one.
pub type Page = (Vec<(Key, Row)>, Option<Key>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub rows: u64,
    /// Of keys and values.
    pub bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum ColdError {
    /// The disk is full, or does not work: the same may be tried again.
    #[error("{path}: {why}")]
    Io { path: PathBuf, why: String },
    /// The file cannot be trusted any more.
    #[error("{path} is damaged: {why}")]
    Damaged { path: PathBuf, why: String },
    #[error(
        "{path} belongs to cluster {found:032x}, shard {found_shard}, not to cluster {ours:032x}, shard {our_shard}"
    )]
    Foreign { path: PathBuf, found: u128, found_shard: u16, ours: u128, our_shard: u16 },
    #[error("{path} has format {found}, this program reads {ours}")]
    Format { path: PathBuf, found: u128, ours: u128 },
}

impl ColdError {
    /// A replica of a chain goes on without this file: the chain has everything.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }
}

#[cfg(test)]
mod tests;
