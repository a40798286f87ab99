//! One session's directory: of our own daemon ([`OwnSessionFolder`]), or of one that we look at ([`SessionFolder`]).

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::base::{Base, CURRENT};
use crate::folder::{Folder, FolderError};
use crate::head::{Head, PATIENCE};
use crate::join::{self, JoinError, Joined, Wait};

pub(crate) const CONTROL: &str = "control";
pub(crate) const LOCK: &str = "lock";
pub(crate) const LOGS: &str = "logs";
const SOCKET: &str = "sock";
const SPILL: &str = "spill";

/// Who looks whether a daemon lives holds its lock for a moment.
const LOOKING: Duration = Duration::from_millis(500);

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
        flock(&lock, FlockOperation::NonBlockingLockShared).is_err()
    }

    /// Connects to its daemon.
    pub fn connect(&self, wait: &mut Wait<'_>) -> Result<Joined, JoinError> {
        join::connect(&self.0, SOCKET, wait)
    }

    /// Its daemon takes connections. One that begins or ends at this moment is waited for.
    pub fn listens(&self) -> bool {
        let patience = Instant::now() + PATIENCE;
        loop {
            match self.connect(&mut Wait::at_most(Duration::ZERO)) {
                Err(JoinError::Io(_)) if self.is_live() && Instant::now() < patience => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(JoinError::Io(_)) if !self.is_live() => return false,
                // What is wrong is told to whoever connects.
                Ok(_) | Err(_) => return true,
            }
        }
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

/// The session directory of this daemon, locked.
#[derive(Debug)]
pub struct OwnSessionFolder {
    base: Option<Base>,
    session: SessionFolder,
    head: Option<Head>,
    _lock: File,
}

impl OwnSessionFolder {
    /// A new one in `base`.
    pub fn create(base: Base) -> io::Result<Self> {
        let name = format!("session-{}-{}", micros(), std::process::id());
        let folder = base.folder().make_child(&name)?;
        Self::lock(folder, Some(base))
    }

    /// Exactly this one, with the base that it may become the head of.
    pub fn at(path: &Path, base: Option<Base>) -> io::Result<Self> {
        Self::lock(Folder::make(path)?, base)
    }

    fn lock(folder: Folder, base: Option<Base>) -> io::Result<Self> {
        let lock = folder.file(LOCK, OFlags::CREATE | OFlags::WRONLY)?;
        let patience = Instant::now() + LOOKING;
        while let Err(errno) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if errno != Errno::WOULDBLOCK {
                return Err(errno.into());
            }
            if Instant::now() > patience {
                let text = format!("{} belongs to another daemon", folder.path().display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // Of an earlier daemon; its objects went with it.
        folder.remove(SPILL)?;
        for name in [LOGS, SPILL] {
            folder.make_child(name)?;
        }
        Ok(Self { base, session: SessionFolder(folder), head: None, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        self.session.path()
    }

    pub fn listen(&self) -> io::Result<OwnedFd> {
        let socket = join::stream_socket(SocketFlags::NONBLOCK)?;
        self.session.0.remove(SOCKET)?;
        rustix::net::bind(&socket, &join::address(&self.session.0, SOCKET)?)?;
        rustix::net::listen(&socket, 128)?;
        Ok(socket)
    }

    /// Makes this the session that `address="auto"` finds.
    pub fn make_current(&mut self, head: Head) -> io::Result<()> {
        let base = self.base.as_ref().expect("a head has a base").folder();
        self.head = Some(head);
        let fresh = format!("{CURRENT}-{}", std::process::id());
        base.remove(&fresh)?;
        rustix::fs::symlinkat(self.session.path(), base, &fresh)?;
        Ok(rustix::fs::renameat(base, &fresh, base, CURRENT)?)
    }

    /// Where its control store lies, if it is a head.
    pub fn control(&self) -> PathBuf {
        self.path().join(CONTROL)
    }

    /// Removes everything but logs, and the directory too if there are none. With `stays` the control store is
    /// left to the next head.
    pub fn close(self, stays: bool) {
        if !stays {
            // What cannot be removed now is swept by the next daemon.
            let _ = self.session.0.remove(CONTROL);
        }
        self.session.remove_remains();
        let Some(base) = self.base else { return };
        if !stays && base.folder().link(CURRENT).as_deref() == Some(self.session.path()) {
            let _ = base.folder().remove(CURRENT);
        }
        if let Some(head) = self.head {
            head.give_up(&base);
        }
    }
}

/// Since 1970.
fn micros() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros())
}
