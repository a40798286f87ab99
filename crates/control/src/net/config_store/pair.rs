//! Something small as two files, of which each write overwrites the older one in place.
//!
//! A rename would be one file, but it costs three writes to disk, one after the other (the data, the journal of
//! the file system twice); what is written here lies on the way of every fail-over. Here it is one: the blocks are there already.
//! Who reads takes the newer of the two that is whole. A write that a crash tore was never said to be done,
//! and the other file has what was before.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Document, StoreError};

#[derive(Debug)]
pub(in crate::net) struct Pair<T> {
    path: PathBuf,
    of: PhantomData<T>,
}

pub(in crate::net) struct Found<T> {
    pub(in crate::net) newest: Option<Document<T>>,
    /// The file that the next write overwrites.
    pub(in crate::net) older: PathBuf,
}

/// What one of the two files holds.
enum Half<T> {
    Whole(Document<T>),
    /// Absent, empty, or torn by a crash.
    Nothing,
}

/// Files grow by so much, so that most writes change no file's length.
const PIECE_BYTES: usize = 4096;

impl<T: Serialize + DeserializeOwned> Pair<T> {
    pub(in crate::net) fn new(path: PathBuf) -> Self {
        Self { path, of: PhantomData }
    }

    pub(in crate::net) fn read(&self) -> Result<Found<T>, StoreError> {
        let [one, other] = [self.path.clone(), self.beside("other")];
        let (newest, older) = match (self.read_half(&one)?, self.read_half(&other)?) {
            (Half::Whole(a), Half::Whole(b)) if a.revision > b.revision => (Some(a), other),
            (Half::Whole(_) | Half::Nothing, Half::Whole(b)) => (Some(b), one),
            (Half::Whole(a), Half::Nothing) => (Some(a), other),
            (Half::Nothing, Half::Nothing) => (None, one),
        };
        Ok(Found { newest, older })
    }

    /// Returns the file that is the older one now.
    pub(in crate::net) fn write(
        &self,
        older: &Path,
        revision: u64,
        content: &T,
    ) -> Result<PathBuf, StoreError> {
        let other = if older == self.path { self.beside("other") } else { self.path.clone() };
        // The next write finds its blocks, too.
        let made = if other.exists() { Ok(()) } else { write(&other, vec![b'\n']) };
        let written = made.and_then(|()| write(older, Document::encode(revision, content)));
        written.map_err(|error| self.unreachable(&error))?;
        Ok(other)
    }

    pub(super) fn beside(&self, what: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".");
        name.push(what);
        name.into()
    }

    pub(super) fn unreachable(&self, error: &io::Error) -> StoreError {
        StoreError::Unreachable { place: self.path.display().to_string(), why: error.to_string() }
    }

    fn read_half(&self, path: &Path) -> Result<Half<T>, StoreError> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Half::Nothing),
            Err(error) => return Err(self.unreachable(&error)),
        };
        if bytes.trim_ascii().is_empty() {
            return Ok(Half::Nothing);
        }
        match Document::decode(&path.display().to_string(), &bytes) {
            Ok(document) => Ok(Half::Whole(document)),
            // What begins like ours and does not end so is torn; what never was ours is refused.
            Err(_) if bytes.starts_with(BEGINNING) => Ok(Half::Nothing),
            Err(error) => Err(error),
        }
    }
}

/// How each text begins that this program and older ones wrote.
const BEGINNING: &[u8] = br#"{"format":1,"#;

fn write(path: &Path, mut bytes: Vec<u8>) -> io::Result<()> {
    let is_new = !path.exists();
    let file = private().create(true).truncate(false).open(path)?;
    let old = file.metadata()?.len() as usize;
    let whole = old.max(bytes.len()).next_multiple_of(PIECE_BYTES);
    // JSON may be followed by space: nothing of an older text is left behind.
    bytes.resize(whole, b'\n');
    file.write_all_at(&bytes, 0)?;
    file.sync_data()?;
    if is_new {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

pub(super) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}
