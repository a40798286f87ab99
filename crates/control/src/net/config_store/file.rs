//! The document in a pair of files. Processes take turns by a lock.

use std::fs::File;
use std::path::PathBuf;

use hoplo_core::control::coordinator::Revision;
use hoplo_wire::control::ClusterConfig;
use rustix::fs::FlockOperation;

use super::pair::{Pair, private};
use super::{ConfigStore, StoreError, Swapped};

#[derive(Debug)]
pub struct FileStore {
    pair: Pair<ClusterConfig>,
}

impl FileStore {
    pub fn new(path: PathBuf) -> Self {
        Self { pair: Pair::new(path) }
    }

    /// Held for a few milliseconds by each swap, and by the kernel's word gone with its process.
    fn lock(&self, how: FlockOperation) -> Result<File, StoreError> {
        let lock = private().create(true).truncate(false).open(self.pair.beside("lock"));
        let lock = lock.map_err(|error| self.pair.unreachable(&error))?;
        rustix::fs::flock(&lock, how).map_err(|error| self.pair.unreachable(&error.into()))?;
        Ok(lock)
    }
}

impl ConfigStore for FileStore {
    fn load(&mut self) -> Result<Option<(Revision, ClusterConfig)>, StoreError> {
        let _lock = self.lock(FlockOperation::LockShared)?;
        Ok(self.pair.read()?.newest.map(|document| (document.revision, document.config)))
    }

    fn swap(
        &mut self,
        expected: Option<Revision>,
        config: &ClusterConfig,
    ) -> Result<Swapped, StoreError> {
        let _lock = self.lock(FlockOperation::LockExclusive)?;
        let found = self.pair.read()?;
        let revision = found.newest.map(|document| document.revision);
        if revision != expected {
            return Ok(Swapped::Conflict);
        }
        let revision = revision.unwrap_or(0) + 1;
        self.pair.write(&found.older, revision, config)?;
        Ok(Swapped::Stored(revision))
    }
}
