//! The folder that a user names for a session (`--session-dir`): whether we take it, and whether it goes with the
//! session (FOLDER-8).
//!
//! | what is there | taken | at the end, if nothing is left in it |
//! |---|---|---|
//! | nothing | made, and marked as made | removed |
//! | an empty folder | marked as given | stays, empty |
//! | a folder with our mark | as it is | as its mark says |
//! | any other | refused before anything in it is touched | |
//!
//! What has one of our names in a folder of the user's (`lock`, `logs/`, `control/`) need not be ours. The mark says
//! that we began when nothing was there. Sessions in a base need none: their place and name say whose they are.

use std::ffi::OsString;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use hoplo_base::limits::SESSION_LOCK_PATIENCE;

use crate::base::Base;
use crate::folder::{Folder, FolderError};
use crate::look::look_for;
use crate::mark::Mark;
use crate::names::{LOCK, MARK};

const INSTEAD: &str = ": name another one by --session-dir";

/// A folder that was taken for a session, and how it is marked.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) folder: Folder,
    mark: Option<Mark>,
}

impl Taken {
    /// `base` knows what it made itself.
    pub(crate) fn take(path: &Path, base: Option<&Base>) -> io::Result<Self> {
        loop {
            let is_there = !matches!(Folder::open(path), Err(FolderError::Missing(_)));
            let folder = Folder::make(path).map_err(|error| error.instead(INSTEAD))?;
            if base.is_some_and(|base| base.made(path)) {
                return Ok(Self { folder, mark: None });
            }
            let mark = if is_there { Mark::Given } else { Mark::Made };
            let taken = Self { folder, mark: Some(mark) };
            match taken.refuse_others().and_then(|()| taken.ensure_mark()) {
                Ok(()) => return Ok(taken),
                // Whoever had it before removed it as it ended.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// An error if there is anything in it, and no mark.
    fn refuse_others(&self) -> io::Result<()> {
        let seen = look_for(SESSION_LOCK_PATIENCE, || match self.others() {
            // Of a daemon that ended between the two looks, or ends: its mark goes before its lock.
            Ok(names) if names == [LOCK] || names.iter().any(|name| name == MARK) => {
                ControlFlow::Continue(Ok(names))
            }
            seen => ControlFlow::Break(seen),
        });
        let (ControlFlow::Break(names) | ControlFlow::Continue(names)) = seen;
        let Some(name) = names?.into_iter().next() else { return Ok(()) };
        let text = format!(
            "{} is not empty and no session's folder of hoplo ({} is in it): name an empty one, or one that is not \
             there, by --session-dir",
            self.folder.path().display(),
            Path::new(&name).display()
        );
        Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
    }

    /// What is in a folder without a mark.
    fn others(&self) -> io::Result<Vec<OsString>> {
        // In this order: another daemon that takes it now marks it first of all.
        let names = self.folder.names()?;
        Ok(if Mark::of(&self.folder).is_some() { Vec::new() } else { names })
    }

    /// Whoever had the folder before may have removed the mark as it ended.
    pub(crate) fn ensure_mark(&self) -> io::Result<()> {
        self.mark.map_or(Ok(()), |mark| mark.write(&self.folder))
    }
}

impl AsRef<Folder> for Taken {
    fn as_ref(&self) -> &Folder {
        &self.folder
    }
}
