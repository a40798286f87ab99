//! The document as a file: swaps take a lock beside it, write a new file and rename it over the old one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use hoplo_core::control::coordinator::Revision;
use hoplo_wire::control::ClusterConfig;
use rustix::fs::FlockOperation;

use super::{ConfigStore, Document, StoreError, Swapped};

#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
}

impl FileStore {
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    fn read(&self) -> Result<Option<Document>, StoreError> {
        match fs::read(&self.path) {
            Ok(bytes) => Document::decode(&self.place(), &bytes).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.unreachable(&error)),
        }
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let beside = self.beside("new");
        let mut file = private().create(true).truncate(true).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        fs::rename(&beside, &self.path)?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }

    fn beside(&self, what: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".");
        name.push(what);
        name.into()
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn unreachable(&self, error: &io::Error) -> StoreError {
        StoreError::Unreachable { place: self.place(), why: error.to_string() }
    }
}

impl ConfigStore for FileStore {
    fn load(&mut self) -> Result<Option<(Revision, ClusterConfig)>, StoreError> {
        Ok(self.read()?.map(|document| (document.revision, document.config)))
    }

    fn swap(
        &mut self,
        expected: Option<Revision>,
        config: &ClusterConfig,
    ) -> Result<Swapped, StoreError> {
        let lock = private().create(true).truncate(false).open(self.beside("lock"));
        let lock = lock.map_err(|error| self.unreachable(&error))?;
        // Held for a few milliseconds by each swap, and by the kernel's word gone with its process.
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)
            .map_err(|error| self.unreachable(&error.into()))?;
        let found = self.read()?.map(|document| document.revision);
        if found != expected {
            return Ok(Swapped::Conflict);
        }
        let revision = found.unwrap_or(0) + 1;
        self.replace(&Document::encode(revision, config))
            .map_err(|error| self.unreachable(&error))?;
        Ok(Swapped::Stored(revision))
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}
