//! Where the coordinators keep the cluster's configuration: one document, changed by compare-and-swap.
//!
//! The control nodes themselves (a register that a majority of them holds), a file for one control node (or several on one file
//! system), or etcd. What a coordinator may rely on, whichever it is:
//!
//! # Invariants
//! - STORE-1: revisions of the document grow; each swap that was told `Stored` made a new one.
//! - STORE-2: of swaps with the same expected revision at most one is stored.
//! - STORE-3: what was told `Stored` is there after a crash of everything.
//! - STORE-4: after an error the swap may have been stored or not; the next load tells.

mod etcd;
mod file;
mod nodes;
pub(super) mod pair;

#[cfg(test)]
mod tests;

use hoplo_core::control::coordinator::Revision;
use hoplo_wire::control::ClusterConfig;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use etcd::EtcdStore;
pub use file::FileStore;
pub use nodes::NodesStore;

pub trait ConfigStore: Send {
    /// The document; absent if there is none yet.
    fn load(&mut self) -> Result<Option<(Revision, ClusterConfig)>, StoreError>;

    /// Replaces the document if it still has the expected revision (absent: if there is none).
    fn swap(
        &mut self,
        expected: Option<Revision>,
        config: &ClusterConfig,
    ) -> Result<Swapped, StoreError>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swapped {
    Stored(Revision),
    /// Somebody else was there first.
    Conflict,
}

/// The store did not do it, or nobody knows whether it did.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("{place}: {why}")]
    Unreachable { place: String, why: String },
    /// It answers, but what lies there is not ours.
    #[error("{place} holds no configuration that this program can read: {why}")]
    Unreadable { place: String, why: String },
}

/// Which store it is.
pub enum Place {
    /// The first control nodes that the cluster file names: [`NodesStore`].
    Nodes,
    Beside(Box<dyn ConfigStore>),
}

/// The text names no store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} names no configuration store: expected nodes, file:PATH or etcd:http://HOST:PORT/KEY"
)]
pub struct StoreNameError(pub String);

/// `nodes`, `file:PATH`, `etcd:http://HOST:PORT[,HOST:PORT...]/KEY`.
pub fn place(name: &str) -> Result<Place, StoreNameError> {
    let wrong = || StoreNameError(name.to_string());
    if name == "nodes" {
        return Ok(Place::Nodes);
    }
    let (kind, place) = name.split_once(':').ok_or_else(wrong)?;
    match kind {
        "file" if !place.is_empty() => Ok(Place::Beside(Box::new(FileStore::new(place.into())))),
        "etcd" => Ok(Place::Beside(Box::new(EtcdStore::parse(place).ok_or_else(wrong)?))),
        _ => Err(wrong()),
    }
}

/// Version of the document's form, which outlives programs.
const FORMAT: u32 = 1;

/// JSON, so that a person can read what a cluster thinks it is.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Document<T> {
    format: u32,
    /// Where the store does not count by itself.
    pub(super) revision: Revision,
    /// Of revision and configuration: it is whole.
    checksum: String,
    /// The cluster's, or what one of several nodes holds of it.
    pub(super) config: T,
}

impl<T: Serialize + DeserializeOwned> Document<T> {
    fn encode(revision: Revision, config: &T) -> Vec<u8> {
        let checksum = checksum(revision, config);
        let document = Document { format: FORMAT, revision, checksum, config };
        serde_json::to_vec(&document).expect("plain data")
    }

    fn decode(place: &str, bytes: &[u8]) -> Result<Self, StoreError> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let unreadable = |why: String| StoreError::Unreadable { place: place.to_string(), why };
        let found: Format =
            serde_json::from_slice(bytes).map_err(|error| unreadable(error.to_string()))?;
        if found.format != FORMAT {
            let format = found.format;
            return Err(unreadable(format!("it has format {format}, this program reads {FORMAT}")));
        }
        let document: Self =
            serde_json::from_slice(bytes).map_err(|error| unreadable(error.to_string()))?;
        if document.checksum != checksum(document.revision, &document.config) {
            return Err(unreadable("it does not fit its checksum".to_string()));
        }
        Ok(document)
    }
}

fn checksum<T: Serialize>(revision: Revision, config: &T) -> String {
    let text = serde_json::to_vec(config).expect("plain data");
    format!("{:016x}", xxhash_rust::xxh3::xxh3_64_with_seed(&text, revision))
}
