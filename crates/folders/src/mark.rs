//! What we write into a folder that a user names for a session.

use std::io::{self, Read, Write};

use rustix::fs::OFlags;

use crate::folder::Folder;
use crate::names::MARK;

/// What we wrote into a folder that a user named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// It was not there.
    Made,
    /// It was there, and empty.
    Given,
}

const MADE: &str =
    "hoplo made this folder for a session, and removes it when nothing is left in it.\n";
const GIVEN: &str = "hoplo was given this folder, which was empty, for a session.\n";

impl Mark {
    /// That of a folder that may be anybody's.
    pub(crate) fn of(folder: &Folder) -> Option<Self> {
        let file = folder.file(MARK, OFlags::RDONLY).ok()?;
        let mut text = String::new();
        // A daemon that is killed as it writes leaves a part: then the folder stays.
        file.take(MADE.len() as u64).read_to_string(&mut text).ok()?;
        Some(if text == MADE { Self::Made } else { Self::Given })
    }

    pub(crate) fn write(self, folder: &Folder) -> io::Result<()> {
        let text = if self == Self::Made { MADE } else { GIVEN };
        match folder.file(MARK, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY) {
            Ok(mut file) => {
                file.write_all(text.as_bytes()).map_err(|error| folder.names_it(MARK, error))
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }
}
