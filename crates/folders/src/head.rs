//! One head at a time (FOLDER-6): a file in the base that the head's daemon keeps locked.
//!
//! Its daemon writes its pid into it, and removes it at an orderly end. Whoever locks a file that is not in
//! the base any more was beaten by a removal, and tries again.
//!
//! A process that was killed keeps its locks, and its socket takes connections, until the kernel is done with it; that
//! takes long where it writes to a slow disk. So a head *runs* only if it answers; others wait for the end of one
//! that does not. The pid in the file is for people: it may be that of a head that is dead.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hoplo_base::limits::{HEAD_ENDS, SESSION_LOCK_PATIENCE};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::base::Base;
use crate::join::Wait;
use crate::lock::Lock;
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
    /// What programs find here is no head.
    #[error(
        "a node that joined another head runs here (pid {pid}, {}): stop it with `hoplo stop`, or start the head with a HOPLO_TMPDIR of its own",
        session.display()
    )]
    NodeRuns { pid: u32, session: PathBuf },
    /// By the pid of who listens in its session, if anybody does.
    #[error(
        "{} the head of {} and neither answers nor ends: wait, or kill it ({}), then start again",
        match pid { Some(pid) => format!("process {pid} is"), None => "another process is".to_string() },
        base.display(),
        match pid { Some(pid) => format!("`kill -9 {pid}`"), None => format!("`fuser {}` names it", base.join(HEAD).display()) }
    )]
    Stuck { pid: Option<u32>, base: PathBuf },
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl HeadError {
    /// The daemon of that session answers.
    pub fn of(session: &SessionFolder, pid: u32) -> Self {
        let path = session.path().to_path_buf();
        match session.is_in_cluster() {
            true => Self::NodeRuns { pid, session: path },
            false => Self::Runs { pid, session: path },
        }
    }
}

impl Head {
    /// Waits for one that ends or begins. `hello`: what its daemon answers.
    pub(crate) fn claim(base: &Base, hello: &[u8]) -> Result<Self, HeadError> {
        let until = Instant::now() + HEAD_ENDS;
        let seen = look_for(HEAD_ENDS, || {
            match Self::try_claim(base) {
                Ok(Some(head)) => return ControlFlow::Break(Ok(head)),
                Ok(None) => {}
                Err(error) => return ControlFlow::Break(Err(error.into())),
            }
            let Some(session) = base.current() else { return ControlFlow::Continue(None) };
            let Ok(joined) = session.connect(&mut Wait::at_most(Duration::ZERO)) else {
                return ControlFlow::Continue(None);
            };
            if !joined.answers(hello, until) {
                return ControlFlow::Continue(Some(joined.pid));
            }
            ControlFlow::Break(Err(HeadError::of(&session, joined.pid)))
        });
        match seen {
            ControlFlow::Break(claimed) => claimed,
            ControlFlow::Continue(pid) => {
                Err(HeadError::Stuck { pid, base: base.path().to_path_buf() })
            }
        }
    }

    /// `None`: somebody else holds it.
    fn try_claim(base: &Base) -> io::Result<Option<Self>> {
        loop {
            let flags = OFlags::CREATE | OFlags::RDWR;
            let mut file = base.folder().file(HEAD, flags)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
            if base.folder().names_this(HEAD, &file)? {
                let written = file
                    .set_len(0)
                    .and_then(|()| file.rewind())
                    .and_then(|()| write!(file, "{}", std::process::id()));
                return match written {
                    Ok(()) => Ok(Some(Self(file))),
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
    /// The right to be the head of this base (FOLDER-6). `hello`: what a daemon answers at once.
    pub fn claim_head(&self, hello: &[u8]) -> Result<Head, HeadError> {
        Head::claim(self, hello)
    }

    /// Ends for good what a dead head left.
    pub fn forget(&self, session: &SessionFolder, hello: &[u8]) -> Result<(), HeadError> {
        let head = self.claim_head(hello)?;
        let lock = Lock::of(session.folder(), SESSION_LOCK_PATIENCE)?;
        session.folder().remove(CONTROL)?;
        session.remove_remains(lock);
        self.folder().remove(CURRENT)?;
        head.give_up(self);
        Ok(())
    }
}
