//! Why a daemon could not start.

use std::io;

use hoplo_base::{ResourceError, Size};
use hoplo_folders::{FolderError, HeadError};

use crate::store::StoreError;

/// The daemon could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The session directory, socket or another system resource could not be made.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// There is no folder that is safe to use.
    #[error("{0}")]
    Folder(#[from] FolderError),
    /// Somebody else is the head.
    #[error("{0}")]
    Head(#[from] HeadError),
    /// A resource amount on the command line cannot be.
    #[error("{0}")]
    Resource(#[from] ResourceError),
    /// Absurdly small, or more than there is.
    #[error(
        "an object store of {wanted} cannot be: give --object-store-memory (init: object_store_memory) from {least} to {machine}, \
         which is this machine's memory"
    )]
    StoreBytes { wanted: Size, least: Size, machine: Size },
    /// The object store's memory could not be mapped.
    #[error("{0}")]
    Store(String),
    /// The control store of an earlier daemon cannot be read.
    #[error("{0}")]
    Control(String),
    /// A head cannot begin with a backup.
    #[error("{0}")]
    Backup(#[from] hoplo_control::backup::BackupError),
    /// A head cannot let others join.
    #[error("{0}")]
    Founding(hoplo_control::net::head::HeadError),
    /// The cluster could not be joined.
    #[error("{0}")]
    Join(#[from] hoplo_net::join::JoinError),
    /// A certificate or a token cannot be kept.
    #[error("{0}")]
    Identity(#[from] hoplo_net::tls::IdentityError),
    /// That file is not its own.
    #[error("{} holds the token of another head, which runs: name another file with --token-file", .0.display())]
    TokenFile(std::path::PathBuf),
    /// Another one than the cluster's.
    #[error("{0}")]
    Python(String),
    /// Another machine is head, or it cannot be said.
    #[error("{0}")]
    Seat(#[from] hoplo_control::net::seat::SeatError),
    /// The cluster's control store did not take this node's row.
    #[error("the cluster's head does not take this node in: {0}")]
    NotTaken(hoplo_core::control::client::CallError),
}

impl From<StoreError> for StartError {
    fn from(error: StoreError) -> Self {
        StartError::Store(error.to_string())
    }
}
