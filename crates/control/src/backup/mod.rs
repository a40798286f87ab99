//! Backups of a control store: one file with all its rows.
//!
//! ```text
//!   a store that runs --save--> FILE --Reader--> what is in it
//!                                  |--restore--> the folder of a new head
//!                                  \--refill---> control nodes that begin anew
//! ```
//! **Save** is a client of the store like any other, so it stops nobody, and works with a head as with control nodes. What makes
//! many pages one moment is decided in `hoplo_core::control::backup`. The file gets its name when it is whole and on disk.
//!
//! **The file** is meant for later versions: rows as they are, no log and no pages of a database. That of a head also has the
//! cluster's authority with its key, since nodes take nobody for their head without it: whoever has the file can be head of that
//! cluster, so it is the user's alone (0600).
//!
//! **Restore** makes the folder of a head that goes on with less than was acknowledged; what a head does then is known already
//! (`history.json`, see `crate::embedded`). Numbers that others have seen after the backup must not come again with another meaning, so
//! epochs and entries go on from the time, and nodes' numbers behind a gap.

mod file;
mod refill;
mod restore;
mod save;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use hoplo_core::control::rows::ROW_FORMAT;

use crate::disk::cold::ColdError;
use crate::disk::log::LogError;
use crate::net::cluster::ClusterError;

pub use file::{Header, Reader, Shard};
pub use refill::{Refilled, refill};
pub use restore::restore;
#[cfg(test)]
pub(crate) use restore::restore_for;
pub use save::save;

/// No backup was made, or none is of use.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{0} is there already: name another file, or give --force to replace it")]
    Exists(PathBuf),
    #[error("{0} is a folder: name a file in it")]
    Folder(PathBuf),
    #[error("{0} is no backup: name a file that `hoplo control backup` wrote")]
    NotOne(PathBuf),
    #[error(
        "{path} has format {found}, and this hoplo reads format {ours}: use a newer hoplo, the version that wrote it or a later one",
        ours = file::FORMAT
    )]
    Newer { path: PathBuf, found: u32 },
    #[error("{path} is cut off after {bytes} bytes: copy it again, or use another backup")]
    CutOff { path: PathBuf, bytes: u64 },
    #[error("{path} is damaged ({why}): copy it again, or use another backup")]
    Damaged { path: PathBuf, why: String },
    #[error(
        "the rows in {path} have format {found}, and this hoplo ({}) has format {ROW_FORMAT}: restore it with hoplo {hoplo}, which wrote it",
        env!("CARGO_PKG_VERSION")
    )]
    Rows { path: PathBuf, found: u8, hoplo: String },
    #[error(
        "{0} is a backup of control nodes, and no head can begin with it: give one of a head, or put it back into control nodes with \
         `hoplo control restore --from-backup`"
    )]
    NotOfHead(PathBuf),
    #[error(
        "{0} has a store already: leave --from-backup out to go on with it; to begin with the backup, end that cluster with `hoplo stop`, or name another folder by --session-dir"
    )]
    HasStore(PathBuf),
    #[error(
        "there has been a head over these control nodes, or a backup was put back into them before, and nothing was changed: if that was this one, \
         start the heads; to begin with the \
         backup in spite of that, stop heads and control nodes, remove the folders of the control nodes (`--dir`), start them, and restore before any head begins"
    )]
    HadHead,
    #[error(
        "another backup was begun to be put back, and not all of it was: give that file; or stop the control nodes, remove their \
         folders (`--dir`), and start them again"
    )]
    OtherBackup,
    #[error("{path}: {error}{}", remedy(error))]
    Io { path: PathBuf, error: io::Error },
    #[error("the control store cannot be read: {0}")]
    Unread(String),
    #[error(
        "the store forgets changes faster than its rows can be read: try again when less is written"
    )]
    Busy,
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("the new store cannot be written: {0}")]
    Unwritten(String),
}

impl From<LogError> for BackupError {
    fn from(error: LogError) -> Self {
        Self::Unwritten(error.to_string())
    }
}

impl From<ColdError> for BackupError {
    fn from(error: ColdError) -> Self {
        Self::Unwritten(error.to_string())
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ": free some, or name a folder on another disk"
        }
        io::ErrorKind::PermissionDenied => ": name a file that you may use",
        io::ErrorKind::NotFound => ": name a file in a folder that is there",
        _ => "",
    }
}

fn named(path: &Path) -> impl Fn(io::Error) -> BackupError {
    move |error| BackupError::Io { path: path.to_path_buf(), error }
}
