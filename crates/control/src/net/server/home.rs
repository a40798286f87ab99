//! A process's folder: who it is, how often it started, and a folder for each shard that it holds.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hoplo_base::NodeId;
use hoplo_net::name::Name;
use hoplo_wire::control::{ReplicaId, ShardId};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use super::super::who::{is_of, node_of};
use super::ServeError;

pub(super) struct Home {
    folder: PathBuf,
    pub(super) replica: ReplicaId,
    _lock: File,
}

#[derive(Serialize, Deserialize)]
struct Identity {
    node: u64,
    incarnation: u64,
}

impl Home {
    /// Counts one incarnation on.
    /// `name`: that of the certificate; absent where there is none.
    pub(super) fn open(folder: &Path, name: Option<&Name>) -> Result<Self, ServeError> {
        let error = |source: io::Error| ServeError::Folder { path: folder.into(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(error)?;
        let lock = private().open(folder.join("lock")).map_err(error)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|cause| {
            if cause == rustix::io::Errno::WOULDBLOCK {
                ServeError::InUse(folder.into())
            } else {
                error(cause.into())
            }
        })?;
        // For who wants to end it.
        lock.set_len(0).map_err(error)?;
        writeln!(&lock, "{}", std::process::id()).map_err(error)?;
        let replica = next_incarnation(folder, name).map_err(error)?;
        if let Some(name) = name.filter(|name| !is_of(replica.node, name)) {
            let (folder, name) = (folder.into(), name.name().to_string());
            return Err(ServeError::OthersFolder { folder, node: replica.node.0, name });
        }
        Ok(Self { folder: folder.into(), replica, _lock: lock })
    }

    /// Those that left something here.
    pub(super) fn shards(&self) -> Result<Vec<ShardId>, ServeError> {
        let error = |source: io::Error| ServeError::Folder { path: self.folder.clone(), source };
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(error)? {
            let name = entry.map_err(error)?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("shard-"));
            found.extend(number.and_then(|number| number.parse().ok()).map(ShardId));
        }
        found.sort_unstable();
        Ok(found)
    }

    pub(super) fn register(&self) -> PathBuf {
        self.folder.join("register.json")
    }

    pub(super) fn shard(&self, shard: ShardId) -> PathBuf {
        self.folder.join(format!("shard-{}", shard.0))
    }
}

fn next_incarnation(folder: &Path, name: Option<&Name>) -> io::Result<ReplicaId> {
    let path = folder.join("node.json");
    let identity = match fs::read(&path) {
        Ok(bytes) => {
            let found: Identity = serde_json::from_slice(&bytes).map_err(|error| {
                io::Error::other(format!("{} is damaged: {error}", path.display()))
            })?;
            Identity { incarnation: found.incarnation + 1, ..found }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut node = [0; 8];
            rustix::rand::getrandom(&mut node, rustix::rand::GetRandomFlags::empty())?;
            let drawn = u64::from_le_bytes(node);
            let node = name.map_or(NodeId(drawn), |name| node_of(name, drawn as u32));
            Identity { node: node.0, incarnation: 1 }
        }
        Err(error) => return Err(error),
    };
    let beside = folder.join("node.json.new");
    let mut file = private().truncate(true).open(&beside)?;
    file.write_all(&serde_json::to_vec(&identity)?)?;
    file.sync_data()?;
    fs::rename(&beside, &path)?;
    File::open(folder)?.sync_all()?;
    Ok(ReplicaId { node: NodeId(identity.node), incarnation: identity.incarnation })
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}
