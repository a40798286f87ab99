//! A replica's log: the stream of records on disk, in segment files that are only appended to.
//!
//! ```text
//!   folder/  log-0000000000000007   log-0000000000000008 ...      lock by flock of the folder
//!
//!   Recovery::open --verified, cut--> records() --> machine
//!        \--- into_writer() --> Writer   (inline: the caller flushes)
//!                                 \----> LogThread (group commit: append -> write -> sync -> Logged)
//! ```
//! A start reads the log twice: first every checksum, to know where it ends, what was truncated, and
//! whether it may be used at all; then the records, one by one, for the machine.
//!
//! # Invariants
//! - LOG-1: what was reported as logged is read again after the process died; with [`Fsync::Always`]
//!   also after the machine died.
//! - LOG-2: records are read in the order in which they were appended, without those that a truncation
//!   took back, and nothing else is read.
//! - LOG-3: damage to anything that was acknowledged is never taken for the end of the log: of what was synced at any
//!   time, of all that was written while the machine runs. What is cut off is set aside, counted and told.
//! - LOG-4: a segment goes only when a finished snapshot behind it, on disk, has all that is in it.
//! - LOG-5: a record that is flushed waits for one write and one sync: not for a snapshot, nor for the next segment.

pub mod files;
mod frame;
mod newest;
mod recovery;
mod segment;
mod sync;
#[cfg(test)]
pub(crate) mod tests;
mod thread;
mod writer;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hoplo_wire::control::{ClusterId, ShardId};

pub use recovery::{Cut, Records, Recovery, set_aside, set_aside_in};
pub use thread::{LogThread, Report};
pub use writer::Writer;

/// When what was written is forced onto the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Before it counts as logged.
    Always,
    /// By a thread, at most so long after it was written: a power failure loses so much.
    Background(Duration),
    /// When the kernel likes; only whole segments are forced.
    Never,
}

#[derive(Clone, Debug)]
pub struct LogOptions {
    pub folder: PathBuf,
    pub cluster: ClusterId,
    pub shard: ShardId,
    pub fsync: Fsync,
    /// A segment that is this long gets no more records.
    pub segment_bytes: u64,
    /// The next segment is made by a thread while one is written.
    pub ahead: bool,
    /// The machine's start that this is ([`this_boot`]); 0 if it is not known.
    pub boot: u32,
}

/// A number for the time since the machine was started: until it ends, no file loses what was written to it.
pub fn this_boot() -> u32 {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    if id.is_empty() { 0 } else { (xxhash_rust::xxh3::xxh3_64(&id) as u32).max(1) }
}

/// A log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("{path}: {error}")]
    Io { path: PathBuf, error: io::Error },
    #[error("{0} is used by another process")]
    InUse(PathBuf),
    #[error(
        "{path} is the log of cluster {found:032x}, shard {found_shard}, not of cluster {ours:032x}, shard {our_shard}"
    )]
    Foreign { path: PathBuf, found: u128, found_shard: u16, ours: u128, our_shard: u16 },
    #[error(
        "{path} has format {found}, this program reads up to {ours}: it was written by a newer program"
    )]
    Newer { path: PathBuf, found: u32, ours: u32 },
    /// It was there and is not any more: what follows it cannot be trusted.
    #[error("{path} is damaged at offset {offset}: {why}; {lost}")]
    Corrupt { path: PathBuf, offset: u64, why: String, lost: Lost },
}

/// What lies behind a damaged place, as far as it can be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    pub bytes: u64,
    /// Those that can still be recognized.
    pub records: u64,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} bytes from there on cannot be used, with at least {} records",
            self.bytes, self.records
        )
    }
}

impl LogError {
    /// A replica of a chain goes on without this log: it is set aside, and the chain has everything.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Corrupt { .. })
    }
}
