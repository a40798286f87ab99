//! A session's lock: whoever has it may make, change and remove what is in the session's folder (FOLDER-7).
//!
//! ```text
//!   folder made --> lock file made --> locked --> it still has its name --> ours, until this process ends
//!        ^                |                              |
//!        +--- removed meanwhile, by who had locked it <--+
//! ```
//! A sweep locks a dead session's file, or makes one to lock, before it removes anything, and removes the file last. So
//! it does not matter how far another daemon has come with the same folder: either that daemon has the lock, and the
//! sweep goes on without it, or it finds that its folder or its lock file is gone, and begins again.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::folder::Folder;
use crate::look::look_for;
use crate::names::LOCK;

/// As long as it lives, no other process has this session.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "it is held, not read")] File);

impl Lock {
    /// Of a folder that is there. Who only looks whether a daemon lives holds the lock for a moment: `patience`.
    pub(crate) fn of(folder: &Folder, patience: Duration) -> io::Result<Self> {
        loop {
            let file = folder.file(LOCK, OFlags::CREATE | OFlags::WRONLY)?;
            let look = || match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => ControlFlow::Continue(()),
                locked => ControlFlow::Break(locked),
            };
            match look_for(patience, look) {
                ControlFlow::Break(locked) => locked?,
                ControlFlow::Continue(()) => {
                    let text = format!("{} belongs to another daemon", folder.path().display());
                    return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
                }
            }
            if folder.names_this(LOCK, &file)? {
                return Ok(Self(file));
            }
        }
    }

    /// The folder is made before, and again if somebody removes it meanwhile.
    pub(crate) fn of_made<F: AsRef<Folder>>(
        patience: Duration,
        make: impl Fn() -> io::Result<F>,
    ) -> io::Result<(F, Self)> {
        loop {
            let folder = make()?;
            match Self::of(folder.as_ref(), patience) {
                Ok(lock) => return Ok((folder, lock)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
}
