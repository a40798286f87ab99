//! A session's directory that we look at. The one of our own daemon: `own`.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use hoplo_base::limits::HEAD_ENDS;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::folder::{Folder, FolderError};
use crate::join::{self, JoinError, Joined, Wait};
use crate::look::look_for;
use crate::names::{LOCK, LOGS, SOCKET, SPILL};

/// Somebody's session: of a daemon that lives or died.
#[derive(Debug)]
pub struct SessionFolder(Folder);

impl SessionFolder {
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        Folder::open(path).map(Self)
    }

    pub(crate) fn of(folder: Folder) -> Self {
        Self(folder)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn folder(&self) -> &Folder {
        &self.0
    }

    /// Its daemon holds its lock.
    pub fn is_live(&self) -> bool {
        let Ok(lock) = self.0.file(LOCK, OFlags::RDONLY) else { return false };
        flock(&lock, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
    }

    /// Connects to its daemon.
    pub fn connect(&self, wait: &mut Wait<'_>) -> Result<Joined, JoinError> {
        join::connect(&self.0, SOCKET, wait)
    }

    /// Its daemon takes connections. One that begins or ends at this moment is waited for.
    pub fn listens(&self) -> bool {
        let seen = look_for(HEAD_ENDS, || match self.connect(&mut Wait::at_most(Duration::ZERO)) {
            Err(JoinError::Io(_)) if self.is_live() => ControlFlow::Continue(()),
            Err(JoinError::Io(_)) => ControlFlow::Break(false),
            Ok(_) | Err(_) => ControlFlow::Break(true),
        });
        // What is wrong with one that lives is told to whoever connects.
        seen.break_value().unwrap_or(true)
    }

    /// Its daemon is gone. It is waited for: who calls saw it close its connections.
    pub fn has_ended(&self) -> bool {
        let look =
            || if self.is_live() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        look_for(HEAD_ENDS, look).is_break()
    }

    pub(crate) fn remove_remains(&self) {
        for name in [SOCKET, LOCK, SPILL] {
            // What cannot be removed now is swept again.
            let _ = self.0.remove(name);
        }
        // Both fail when there are logs.
        let _ = self.0.remove_empty(LOGS);
        let _ = rustix::fs::rmdir(self.path());
    }
}
