//! Where the coordinators keep the cluster's configuration: one document, changed by compare-and-swap.
//!
//! A file for one control node (or several on one file system), etcd for more. A store made of embedded consensus
//! needs no more than this trait. What a coordinator may rely on, whichever it is:
//!
//! # Invariants
//! - STORE-1: revisions of the document grow; each swap that was told `Stored` made a new one.
//! - STORE-2: of swaps with the same expected revision at most one is stored.
//! - STORE-3: what was told `Stored` is there after a crash of everything.
//! - STORE-4: after an error the swap may have been stored or not; the next load tells.

mod etcd;
mod file;

#[cfg(test)]
mod tests;

use hoplo_core::control::coordinator::Revision;
use hoplo_wire::control::ClusterConfig;
use serde::{Deserialize, Serialize};

pub use etcd::EtcdStore;
pub use file::FileStore;

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

/// The text names no store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no configuration store: expected file:PATH or etcd:http://HOST:PORT/KEY")]
pub struct StoreNameError(pub String);

/// `file:PATH`, `etcd:http://HOST:PORT[,HOST:PORT...]/KEY`.
pub fn open(name: &str) -> Result<Box<dyn ConfigStore>, StoreNameError> {
    let wrong = || StoreNameError(name.to_string());
    let (kind, place) = name.split_once(':').ok_or_else(wrong)?;
    match kind {
        "file" if !place.is_empty() => Ok(Box::new(FileStore::new(place.into()))),
        "etcd" => Ok(Box::new(EtcdStore::parse(place).ok_or_else(wrong)?)),
        _ => Err(wrong()),
    }
}

/// Version of the document's form, which outlives programs.
const FORMAT: u32 = 1;

/// JSON, so that a person can read what a cluster thinks it is.
#[derive(Serialize, Deserialize)]
struct Document {
    format: u32,
    /// Where the store does not count by itself.
    revision: Revision,
    /// Of revision and configuration: it is whole.
    checksum: String,
    config: ClusterConfig,
}

impl Document {
    /// How each begins that this program and older ones wrote.
    const BEGINNING: &[u8] = br#"{"format":1,"#;

    fn encode(revision: Revision, config: &ClusterConfig) -> Vec<u8> {
        let checksum = checksum(revision, config);
        let document = Document { format: FORMAT, revision, checksum, config: config.clone() };
        serde_json::to_vec(&document).expect("plain data")
    }

    fn decode(place: &str, bytes: &[u8]) -> Result<Document, StoreError> {
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
        let document: Document =
            serde_json::from_slice(bytes).map_err(|error| unreadable(error.to_string()))?;
        if document.checksum != checksum(document.revision, &document.config) {
            return Err(unreadable("it does not fit its checksum".to_string()));
        }
        Ok(document)
    }
}

fn checksum(revision: Revision, config: &ClusterConfig) -> String {
    let text = serde_json::to_vec(config).expect("plain data");
    format!("{:016x}", xxhash_rust::xxh3::xxh3_64_with_seed(&text, revision))
}
