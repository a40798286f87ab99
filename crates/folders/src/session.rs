//! A session's directory that we look at. The one of our own daemon: `own`.

use std::ffi::OsString;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use hoplo_base::limits::HEAD_ENDS;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::folder::{Folder, FolderError};
use crate::join::{self, JoinError, Joined, Wait};
use crate::lock::Lock;
use crate::look::look_for;
use crate::mark::Mark;
use crate::names::{
    CLUSTER, ENVIRONMENTS, HEAD, LOCK, LOGS, MARK, PACKAGES, RESTORED, SOCKET, SPILL, TLS,
};

/// What goes with the daemon.
const REMAINS: [&str; 8] = [SOCKET, SPILL, TLS, HEAD, PACKAGES, ENVIRONMENTS, CLUSTER, RESTORED];

/// Longer than any address.
const ADDRESS_BYTES_MAX: u64 = 1024;

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

    /// Its daemon joined a cluster, whose certificate it has.
    pub(crate) fn is_in_cluster(&self) -> bool {
        self.0.child(TLS).is_ok()
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

    /// Where the head of its cluster listens, as its node was told; absent of a node that nobody can join, and of one that ends
    /// with its driver.
    pub fn cluster(&self) -> Option<String> {
        let file = self.0.file(CLUSTER, OFlags::RDONLY).ok()?;
        let mut text = String::new();
        file.take(ADDRESS_BYTES_MAX).read_to_string(&mut text).ok()?;
        Some(text)
    }

    /// Its daemon is gone. It is waited for: who calls saw it close its connections.
    pub fn has_ended(&self) -> bool {
        let look =
            || if self.is_live() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        look_for(HEAD_ENDS, look).is_break()
    }

    /// Its daemon is dead, and this process has its lock. `None` if somebody else has.
    pub(crate) fn seize(&self) -> Option<Lock> {
        if self.0.has_no_file(LOCK) {
            // No daemon made that.
            self.0.remove(LOCK).ok()?;
        }
        Lock::of(&self.0, Duration::ZERO).ok()
    }

    /// A daemon that ends in order leaves nothing but its logs, and a head its control store.
    pub(crate) fn has_remains(&self) -> bool {
        let names = self.0.names().unwrap_or_default();
        names.is_empty()
            || names.iter().any(|name| name == LOCK || REMAINS.iter().any(|of| name == of))
    }

    /// Removes everything but logs and the control store, and the folder too if there are none.
    pub(crate) fn remove_remains(&self, lock: Lock) {
        for name in REMAINS {
            // What cannot be removed now is swept again.
            let _ = self.0.remove(name);
        }
        // Fails when there are logs.
        let _ = self.0.remove_empty(LOGS);
        self.remove_if_empty(lock);
    }

    /// With its logs.
    pub(crate) fn remove_all(&self, lock: Lock) {
        let names = self.0.names().unwrap_or_default();
        for name in names.iter().filter(|name| *name != LOCK) {
            // What cannot be removed now is swept again.
            let _ = self.0.remove(name);
        }
        self.remove_if_empty(lock);
    }

    /// The lock goes last: from then on the folder is whoever's locks another one in it.
    fn remove_if_empty(&self, lock: Lock) {
        let named = Mark::of(&self.0);
        let is_empty = |names: Vec<OsString>| names.iter().all(|name| name == LOCK || name == MARK);
        if self.0.names().is_ok_and(is_empty) {
            let _ = self.0.remove(MARK);
        }
        let _ = self.0.remove(LOCK);
        if named != Some(Mark::Given) {
            // Fails when it is not empty.
            let _ = rustix::fs::rmdir(self.path());
        }
        drop(lock);
    }
}
