//! The cluster file: what every process of a cluster has to know before it can ask anybody.
//!
//! `hoplo control init` writes it, with the certificates beside it in `tls/`; both are copied to every node.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use hoplo_net::tls::{Authority, Identity, IdentityError};
use hoplo_wire::control::{ClusterId, Hello, Speaker};
use serde::{Deserialize, Serialize};

use super::frame::PROTOCOL;

#[derive(Clone, Debug)]
pub struct Cluster {
    pub id: ClusterId,
    pub shards: u16,
    pub replication: u8,
    /// Of the control nodes: coordinators listen there.
    pub nodes: Vec<String>,
    /// Absent if nobody listens on TCP.
    pub identity: Option<Identity>,
}

#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("{path}: {why}")]
    File { path: PathBuf, why: String },
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

#[derive(Serialize, Deserialize)]
struct Written {
    cluster: String,
    shards: u16,
    replication: u8,
    nodes: Vec<String>,
}

const FILE: &str = "cluster.json";
const TLS: &str = "tls";

impl Cluster {
    /// Writes a new cluster into this directory; refuses to replace one.
    pub fn make(
        dir: &Path,
        nodes: Vec<String>,
        shards: u16,
        replication: u8,
    ) -> Result<PathBuf, ClusterError> {
        let path = dir.join(FILE);
        let error = |why: String| ClusterError::File { path: path.clone(), why };
        if shards == 0 || replication == 0 {
            return Err(error("a cluster has at least one shard and one replica".to_string()));
        }
        let mut id = [0; 16];
        rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())
            .map_err(|cause| error(cause.to_string()))?;
        let cluster = format!("{:032x}", u128::from_le_bytes(id));
        let written = Written { cluster, shards, replication, nodes };
        fs::create_dir_all(dir).map_err(|cause| error(cause.to_string()))?;
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|cause| error(cause.to_string()))?;
        let text = serde_json::to_string_pretty(&written).expect("plain data");
        writeln!(file, "{text}").map_err(|cause| error(cause.to_string()))?;
        Authority::make(&dir.join(TLS))?;
        Ok(path)
    }

    /// The file, and the certificates beside it.
    pub fn load(path: &Path) -> Result<Self, ClusterError> {
        let error = |why: String| ClusterError::File { path: path.into(), why };
        let text = fs::read_to_string(path).map_err(|cause| error(cause.to_string()))?;
        let written: Written = serde_json::from_str(&text)
            .map_err(|cause| error(format!("no cluster file: {cause}")))?;
        let id = u128::from_str_radix(&written.cluster, 16)
            .map_err(|_| error(format!("{:?} is no cluster id", written.cluster)))?;
        if written.shards == 0 || written.replication == 0 || written.nodes.is_empty() {
            return Err(error("a cluster has shards, replicas and control nodes".to_string()));
        }
        let tcp = written.nodes.iter().any(|node| !node.contains('/'));
        let tls = path.parent().unwrap_or(Path::new(".")).join(TLS);
        let identity = if tcp { Some(Identity::load(&tls)?) } else { None };
        Ok(Self {
            id: ClusterId(id),
            shards: written.shards,
            replication: written.replication,
            nodes: written.nodes,
            identity,
        })
    }

    pub fn hello(&self, who: Speaker) -> Hello {
        let program = concat!("hoplo ", env!("CARGO_PKG_VERSION")).to_string();
        Hello { protocol: PROTOCOL, program, cluster: self.id, who }
    }
}
