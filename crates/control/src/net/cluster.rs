//! The cluster file: what every process of a cluster has to know before it can ask anybody.
//!
//! ```text
//!   DIR/cluster.json             the cluster
//!   DIR/ca/                      its authority: stays where it is
//!   DIR/tls/                     the certificate of whoever made the cluster: an operator
//!   DIR/nodes/NAME/cluster.json  what one control node needs, to be copied to its machine
//!   DIR/nodes/NAME/tls/
//! ```
//! `hoplo control init` writes all of that, `hoplo control certificate` makes more folders like the last. A process finds
//! its certificate in `tls/` beside the cluster file that it is given. A head makes the first three in the folder of its store,
//! with a certificate of its own: it is the one control node.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hoplo_base::limits::{CERTIFICATE_DAYS, REGISTER_PLACES_MAX};
use hoplo_net::authority::{Authority, Kept, Lasts, Validity};
use hoplo_net::name::{Name, NameError, Role};
use hoplo_net::tls::{Identity, IdentityError};
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

/// What the cluster of a head is known by: a head that begins with it is the head of the same cluster. SECRET.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Founding {
    cluster: String,
    /// Where nodes look for their head.
    pub address: String,
    authority_certificate: String,
    authority_key: String,
}

impl fmt::Debug for Founding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Founding").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("{path}: {why}")]
    File { path: PathBuf, why: String },
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Name(#[from] NameError),
}

#[derive(Serialize, Deserialize)]
struct Written {
    cluster: String,
    shards: u16,
    replication: u8,
    nodes: Vec<String>,
}

const FILE: &str = "cluster.json";
const BESIDE: &str = "cluster.json.new";
const TLS: &str = "tls";
const AUTHORITY: &str = "ca";
/// Who made the cluster.
const FOUNDER: &str = "founder";
/// The control node of a cluster that has one.
const HEAD: &str = "head";

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
        if let Some(why) = wrong_among(&nodes) {
            return Err(error(why));
        }
        let id = draw().map_err(|cause| error(cause.to_string()))?;
        let written = Written { cluster: format!("{id:032x}"), shards, replication, nodes };
        fs::create_dir_all(dir).map_err(|cause| error(cause.to_string()))?;
        write(&path, &written)?;
        let authority = Authority::make(&dir.join(AUTHORITY), id)?;
        let valid = Validity::days(CERTIFICATE_DAYS);
        authority.issue(&Name::new(id, Role::Operator, FOUNDER)?, valid, &dir.join(TLS))?;
        for node in written.nodes.iter().filter(|node| is_tcp(node)) {
            let name = Name::new(id, Role::Control, node)?;
            give(&authority, &written, &name, valid, &folder_of(dir, &name))?;
        }
        Ok(path)
    }

    /// That of a head which listens there: made when its store is, and then the same.
    pub fn of_head(dir: &Path, address: &str) -> Result<(Self, Authority), ClusterError> {
        let (path, ca) = (dir.join(FILE), dir.join(AUTHORITY));
        let error =
            |cause: io::Error| ClusterError::File { path: path.clone(), why: cause.to_string() };
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(error)?;
        let id = if path.exists() { read(&path)?.1.0 } else { draw().map_err(error)? };
        let nodes = vec![address.to_string()];
        let written = Written { cluster: format!("{id:032x}"), shards: 1, replication: 1, nodes };
        // First, and then the authority, whole or not at all: one that is there is this cluster's.
        replace(dir, &written)?;
        if !ca.exists() {
            let beside = dir.join("ca.new");
            match fs::remove_dir_all(&beside) {
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(error(cause)),
                Ok(()) | Err(_) => {}
            }
            Authority::make(&beside, id)?;
            fs::rename(&beside, &ca).map_err(error)?;
        }
        let authority = Authority::load(&ca, id)?;
        issue_to_head(&authority, id, dir, Lasts::OnDisk)?;
        Ok((Self::load(&path)?, authority))
    }

    /// Where the head listened last whose store lies there.
    pub fn head_at(dir: &Path) -> Option<String> {
        let (written, _) = read(&dir.join(FILE)).ok()?;
        written.nodes.into_iter().next()
    }

    /// For a head whose store is on the control nodes of this file's cluster: what it needs, written into `dir`, and the authority, which
    /// lies beside the file.
    pub fn of_head_over(dir: &Path, file: &Path) -> Result<(Self, Authority), ClusterError> {
        let (written, id) = read(file)?;
        let error = |why: &str| ClusterError::File { path: file.into(), why: why.to_string() };
        if written.shards != 1 {
            return Err(error(
                "a head needs control nodes of one shard: `hoplo control init --shards 1`",
            ));
        }
        if !written.nodes.iter().all(|node| is_tcp(node)) {
            return Err(error(
                "a head needs control nodes at HOST:PORT: others join over the network",
            ));
        }
        let ca = folder_with(file).join(AUTHORITY);
        if !ca.exists() {
            return Err(error(
                "a head signs certificates for those that join, and the folder ca/ is not beside this file: copy it from where \
                 `hoplo control init` made it, and let nobody else read it",
            ));
        }
        let authority = Authority::load(&ca, id.0)?;
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(|cause| ClusterError::File { path: dir.into(), why: cause.to_string() })?;
        // Of a session, which ends when its machine does. Nodes wait for this head.
        issue_to_head(&authority, id.0, dir, Lasts::WithMachine)?;
        replace(dir, &written)?;
        Ok((Self::load(&dir.join(FILE))?, authority))
    }

    /// A new certificate in place of that of the head whose folder this is. `over`: its control nodes' file, if it has some.
    pub fn renew_head(dir: &Path, over: Option<&Path>) -> Result<(), ClusterError> {
        let (_, id) = read(&dir.join(FILE))?;
        let ca = over.map_or(dir, folder_with).join(AUTHORITY);
        issue_to_head(&Authority::load(&ca, id.0)?, id.0, dir, Lasts::OnDisk)
    }

    /// That of the head whose store lies there.
    pub fn founding(dir: &Path) -> Result<Founding, ClusterError> {
        let (written, _) = read(&dir.join(FILE))?;
        let address = written.nodes[0].clone();
        let Kept { key, certificate } = Kept::read(&dir.join(AUTHORITY))?;
        let (authority_certificate, authority_key) = (certificate, key);
        Ok(Founding { cluster: written.cluster, address, authority_certificate, authority_key })
    }

    /// In a folder that is there: [`Cluster::of_head`] finds that cluster, and not a new one.
    pub fn found_again(dir: &Path, founding: &Founding) -> Result<(), ClusterError> {
        let Founding { cluster, address, authority_certificate, authority_key } = founding.clone();
        let nodes = vec![address];
        replace(dir, &Written { cluster, shards: 1, replication: 1, nodes })?;
        let kept = Kept { key: authority_key, certificate: authority_certificate };
        Ok(kept.write(&dir.join(AUTHORITY))?)
    }

    /// A folder with all that the holder of a new certificate needs; by the authority that lies beside this file. In place
    /// of an older one of the same holder.
    pub fn certify(
        path: &Path,
        role: Role,
        name: &str,
        valid: Validity,
        out: Option<&Path>,
    ) -> Result<PathBuf, ClusterError> {
        let (written, id) = read(path)?;
        let dir = folder_with(path);
        let authority = Authority::load(&dir.join(AUTHORITY), id.0)?;
        let name = Name::new(id.0, role, name)?;
        let out = out.map_or_else(|| folder_of(dir, &name), Path::to_path_buf);
        give(&authority, &written, &name, valid, &out)?;
        Ok(out)
    }

    /// The file, and the certificates beside it.
    pub fn load(path: &Path) -> Result<Self, ClusterError> {
        let (written, id) = read(path)?;
        let tls = folder_with(path).join(TLS);
        let tcp = written.nodes.iter().any(|node| is_tcp(node));
        let identity = if tcp { Some(Identity::load(&tls, id.0)?) } else { None };
        Ok(Self {
            id,
            shards: written.shards,
            replication: written.replication,
            nodes: written.nodes,
            identity,
        })
    }

    /// Those of the control nodes that hold the configuration, where it lies with these. An even number of them would be in the way
    /// of more failures than it survives; of two, both hold it, since then one disk may be lost.
    pub fn acceptors(&self) -> &[String] {
        let places = match self.nodes.len().min(REGISTER_PLACES_MAX) {
            4 => 3,
            places => places,
        };
        &self.nodes[..places]
    }

    pub fn hello(&self, who: Speaker) -> Hello {
        let program = concat!("hoplo ", env!("CARGO_PKG_VERSION")).to_string();
        Hello { protocol: PROTOCOL, program, cluster: self.id, who }
    }
}

fn issue_to_head(
    authority: &Authority,
    cluster: u128,
    dir: &Path,
    lasts: Lasts,
) -> Result<(), ClusterError> {
    let (name, valid) =
        (Name::new(cluster, Role::Control, HEAD)?, Validity::days(CERTIFICATE_DAYS));
    Ok(authority.issue_lasting(&name, valid, &dir.join(TLS), lasts)?)
}

fn folder_with(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new("."))
}

/// Where the holder's folder is made.
fn folder_of(dir: &Path, name: &Name) -> PathBuf {
    let of_role = match name.role {
        // Where people give out certificates there are no other nodes.
        Role::Control => "nodes",
        Role::Node => "members",
        Role::Client => "clients",
        Role::Operator => "operators",
    };
    dir.join(of_role).join(name.name())
}

fn give(
    authority: &Authority,
    written: &Written,
    name: &Name,
    valid: Validity,
    out: &Path,
) -> Result<(), ClusterError> {
    authority.issue(name, valid, &out.join(TLS))?;
    replace(out, written)
}

/// Where it may be already.
fn replace(dir: &Path, written: &Written) -> Result<(), ClusterError> {
    let (path, beside) = (dir.join(FILE), dir.join(BESIDE));
    let error =
        |cause: io::Error| ClusterError::File { path: path.clone(), why: cause.to_string() };
    if beside.exists() {
        fs::remove_file(&beside).map_err(error)?;
    }
    write(&beside, written)?;
    fs::rename(&beside, &path).map_err(error)
}

fn draw() -> io::Result<u128> {
    let mut id = [0; 16];
    rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())?;
    Ok(u128::from_le_bytes(id))
}

/// Why these cannot be control nodes of a cluster.
fn wrong_among(nodes: &[String]) -> Option<String> {
    for (at, node) in nodes.iter().enumerate() {
        if nodes[..at].contains(node) {
            return Some(format!(
                "control node {node} is given twice: each has an address of its own"
            ));
        }
        let port = node.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>()));
        if is_tcp(node) && !matches!(port, Some((host, Ok(1..))) if !host.is_empty()) {
            return Some(format!(
                "{node:?} is no address of a control node: give HOST:PORT, or the path of a unix socket, with a slash in it"
            ));
        }
    }
    None
}

fn is_tcp(node: &str) -> bool {
    !node.contains('/')
}

fn write(path: &Path, written: &Written) -> Result<(), ClusterError> {
    let text = serde_json::to_string_pretty(written).expect("plain data");
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| writeln!(file, "{text}"))
        .map_err(|cause| ClusterError::File { path: path.into(), why: cause.to_string() })
}

fn read(path: &Path) -> Result<(Written, ClusterId), ClusterError> {
    let error = |why: String| ClusterError::File { path: path.into(), why };
    let text = fs::read_to_string(path).map_err(|cause| {
        error(format!(
            "{cause}; name the cluster.json that `hoplo control init` or `certificate` wrote"
        ))
    })?;
    let written: Written =
        serde_json::from_str(&text).map_err(|cause| error(format!("no cluster file: {cause}")))?;
    let id = u128::from_str_radix(&written.cluster, 16)
        .map_err(|_| error(format!("{:?} is no cluster id", written.cluster)))?;
    if written.shards == 0 || written.replication == 0 || written.nodes.is_empty() {
        return Err(error("a cluster has shards, replicas and control nodes".to_string()));
    }
    Ok((written, ClusterId(id)))
}
