//! The document as two files, of which each swap overwrites the older one in place.
//!
//! A rename would be one file, but it costs three writes to disk, one after the other (the data, the journal of
//! the file system twice); a swap lies on the way of every fail-over. Here it is one: the blocks are there already.
//! Who reads takes the newer of the two that is whole. A write that a crash tore was never told
//! `Stored`, and the other file has what was before. Processes take turns by a lock.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hoplo_core::control::coordinator::Revision;
use hoplo_wire::control::ClusterConfig;
use rustix::fs::FlockOperation;

use super::{ConfigStore, Document, StoreError, Swapped};

#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
}

/// What one of the two files holds.
enum Half {
    Whole(Document),
    /// Absent, empty, or torn by a crash.
    Nothing,
}

/// Files grow by so much, so that most swaps change no file's length.
const PIECE_BYTES: usize = 4096;

impl FileStore {
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The newer half, and which one the next swap overwrites.
    fn read(&self) -> Result<(Option<Document>, PathBuf), StoreError> {
        let [one, other] = [self.path.clone(), self.beside("other")];
        let newest = match (self.read_half(&one)?, self.read_half(&other)?) {
            (Half::Whole(a), Half::Whole(b)) if a.revision > b.revision => (Some(a), other),
            (Half::Whole(_) | Half::Nothing, Half::Whole(b)) => (Some(b), one),
            (Half::Whole(a), Half::Nothing) => (Some(a), other),
            (Half::Nothing, Half::Nothing) => (None, one),
        };
        Ok(newest)
    }

    fn read_half(&self, path: &Path) -> Result<Half, StoreError> {
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
            Err(_) if bytes.starts_with(Document::BEGINNING) => Ok(Half::Nothing),
            Err(error) => Err(error),
        }
    }

    fn write(&self, path: &Path, mut bytes: Vec<u8>) -> io::Result<()> {
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

    /// Held for a few milliseconds by each swap, and by the kernel's word gone with its process.
    fn lock(&self, how: FlockOperation) -> Result<File, StoreError> {
        let lock = private().create(true).truncate(false).open(self.beside("lock"));
        let lock = lock.map_err(|error| self.unreachable(&error))?;
        rustix::fs::flock(&lock, how).map_err(|error| self.unreachable(&error.into()))?;
        Ok(lock)
    }

    fn beside(&self, what: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".");
        name.push(what);
        name.into()
    }

    fn unreachable(&self, error: &io::Error) -> StoreError {
        StoreError::Unreachable { place: self.path.display().to_string(), why: error.to_string() }
    }
}

impl ConfigStore for FileStore {
    fn load(&mut self) -> Result<Option<(Revision, ClusterConfig)>, StoreError> {
        let _lock = self.lock(FlockOperation::LockShared)?;
        Ok(self.read()?.0.map(|document| (document.revision, document.config)))
    }

    fn swap(
        &mut self,
        expected: Option<Revision>,
        config: &ClusterConfig,
    ) -> Result<Swapped, StoreError> {
        let _lock = self.lock(FlockOperation::LockExclusive)?;
        let (found, older) = self.read()?;
        let found = found.map(|document| document.revision);
        if found != expected {
            return Ok(Swapped::Conflict);
        }
        if found.is_none() {
            // The second swap finds its blocks, too.
            let other =
                [self.path.clone(), self.beside("other")].into_iter().find(|it| *it != older);
            let made = other.map_or(Ok(()), |other| self.write(&other, vec![b'\n']));
            made.map_err(|error| self.unreachable(&error))?;
        }
        let revision = found.unwrap_or(0) + 1;
        let bytes = Document::encode(revision, config);
        self.write(&older, bytes).map_err(|error| self.unreachable(&error))?;
        Ok(Swapped::Stored(revision))
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}
