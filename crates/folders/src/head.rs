//! One head at a time (FOLDER-6): a file in the base that the head's daemon keeps locked.
//!
//! Its daemon writes its pid into it, and removes it at an orderly end. Whoever locks a file that is not in
//! the base any more was beaten by a removal, and tries again.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use hoplo_base::limits::HEAD_ENDS;
use rustix::fs::{AtFlags, FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::base::Base;
use crate::join::Wait;
use crate::look::look_for;
use crate::names::{CONTROL, CURRENT, HEAD};
use crate::session::SessionFolder;

/// As long as it lives, nobody else is the head.
#[derive(Debug)]
pub struct Head(File);

/// Why this one cannot be the head.
#[derive(Debug, thiserror::Error)]
pub enum HeadError {
    #[error(
        "a head runs already (pid {pid}, {}): connect with hoplo.init(address=\"auto\"), or stop it with `hoplo stop`",
        session.display()
    )]
    Runs { pid: u32, session: PathBuf },
    #[error(
        "process {pid} is the head of {} and neither answers nor ends: wait, or kill it (`kill -9 {pid}`), then start \
         again",
        base.display()
    )]
    Stuck { pid: u32, base: PathBuf },
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl Head {
    /// Waits for one that ends or begins.
    pub(crate) fn claim(base: &Base) -> Result<Self, HeadError> {
        let seen = look_for(HEAD_ENDS, || {
            let pid = match Self::try_claim(base) {
                Ok(Ok(head)) => return ControlFlow::Break(Ok(head)),
                Ok(Err(pid)) => pid,
                Err(error) => return ControlFlow::Break(Err(error.into())),
            };
            if let Some(session) = base.current()
                && let Ok(joined) = session.connect(&mut Wait::at_most(Duration::ZERO))
            {
                let session = session.path().to_path_buf();
                return ControlFlow::Break(Err(HeadError::Runs { pid: joined.pid, session }));
            }
            ControlFlow::Continue(pid)
        });
        match seen {
            ControlFlow::Break(claimed) => claimed,
            ControlFlow::Continue(pid) => {
                Err(HeadError::Stuck { pid, base: base.path().to_path_buf() })
            }
        }
    }

    /// Or who holds it, as far as it is known.
    fn try_claim(base: &Base) -> io::Result<Result<Self, u32>> {
        loop {
            let flags = OFlags::CREATE | OFlags::RDWR;
            let mut file = base.folder().file(HEAD, flags)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    let mut text = String::new();
                    // It may not have written yet.
                    let _ = (&mut file).take(20).read_to_string(&mut text);
                    return Ok(Err(text.trim().parse().unwrap_or(0)));
                }
                Err(errno) => return Err(errno.into()),
            }
            let there = rustix::fs::statat(base.folder(), HEAD, AtFlags::SYMLINK_NOFOLLOW);
            let ours = rustix::fs::fstat(&file)?;
            if there.is_ok_and(|there| (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)) {
                let written = file
                    .set_len(0)
                    .and_then(|()| file.rewind())
                    .and_then(|()| write!(file, "{}", std::process::id()));
                return match written {
                    Ok(()) => Ok(Ok(Self(file))),
                    Err(error) => Err(base.folder().names_it(HEAD, error)),
                };
            }
        }
    }

    /// Another may be the head.
    pub(crate) fn give_up(self, base: &Base) {
        // While it is locked: afterwards it may be somebody else's.
        let _ = base.folder().remove(HEAD);
        drop(self.0);
    }
}

impl Base {
    /// The right to be the head of this base (FOLDER-6).
    pub fn claim_head(&self) -> Result<Head, HeadError> {
        Head::claim(self)
    }

    /// Ends for good what a dead head left.
    pub fn forget(&self, session: &SessionFolder) -> Result<(), HeadError> {
        let head = self.claim_head()?;
        session.folder().remove(CONTROL)?;
        session.remove_remains();
        self.folder().remove(CURRENT)?;
        head.give_up(self);
        Ok(())
    }
}
