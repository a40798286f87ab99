//! A head's port and token, and how a node joins one: what `hoplo start` adds to a daemon.

use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};

use hoplo_base::NodeNumber;
use hoplo_base::limits::JOIN_WITHIN;
use hoplo_control::embedded::Embedded;
use hoplo_control::net::cluster::Cluster;
use hoplo_control::net::head::{Founded, HeadError};
use hoplo_folders::OwnSessionFolder;
use hoplo_net::join::{Joining, ListenError, PORT, join, renew};
use hoplo_net::name::Role;
use hoplo_net::tls::Identity;
use hoplo_net::token::{FLAG, Token, VARIABLE};
use hoplo_wire::control::ClusterId;

use crate::error::StartError;
use crate::{journal, machine};

/// Where a head lets others join.
#[derive(Clone, Debug, Default)]
pub struct Listen {
    /// Absent: this machine alone.
    pub host: Option<String>,
    /// Absent: the usual one, or any if that is taken.
    pub port: Option<u16>,
    /// Where the token is put; absent: in the user's home.
    pub token_file: Option<PathBuf>,
}

/// Which cluster a node joins.
#[derive(Clone, Debug)]
pub struct Join {
    /// Of its head: `host:port`.
    pub address: String,
    pub token: Token,
}

/// A token and where it lies, for those who are to join.
#[derive(Debug)]
pub(crate) struct Invitation {
    address: String,
    token: PathBuf,
    id: hoplo_wire::join::TokenId,
}

/// The cluster that this node joined, and who it is there.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) node: NodeNumber,
    pub(crate) cluster: Cluster,
    /// Where its certificate lies.
    folder: PathBuf,
    /// Where others of the cluster reach this machine.
    pub(crate) ip: IpAddr,
}

impl Listen {
    pub(crate) fn found(&self, folder: &Path) -> Result<Founded, HeadError> {
        let found = |port| Founded::found(folder, self.host.as_deref(), port);
        match found(self.port.unwrap_or(PORT)) {
            // Nobody asked for just that one.
            Err(HeadError::Listen(ListenError::Taken { .. })) if self.port.is_none() => found(0),
            other => other,
        }
    }

    /// Machines that share a home share it.
    pub(crate) fn token_file(&self, session: &OwnSessionFolder) -> PathBuf {
        let home = std::env::home_dir().filter(|home| home.is_dir());
        let usual = || match home {
            Some(home) => home.join(".hoplo/token"),
            None => session.control().join("token"),
        };
        self.token_file.clone().unwrap_or_else(usual)
    }
}

impl Invitation {
    /// The token that lies there already, if it is good for a while, else a new one.
    pub(crate) fn write(
        founded: &Founded,
        store: &mut Embedded,
        path: PathBuf,
    ) -> Result<Self, StartError> {
        let kept = Token::read(&path).ok();
        let token = founded.token(store, kept.as_ref()).map_err(StartError::Founding)?;
        if kept.is_none_or(|kept| kept.id() != token.id()) {
            token.write(&path)?;
        }
        let address = founded.address().to_string();
        Ok(Self { address, token: path, id: token.id() })
    }

    /// What to type elsewhere.
    pub(crate) fn in_words(&self) -> String {
        let (address, path) = (&self.address, self.token.display());
        let mut text = format!("Join it with  hoplo start --address {address} {FLAG} {path}\n");
        let _ = write!(
            text,
            "              (or {VARIABLE}, set to what that file holds, where it is not)"
        );
        text
    }

    /// The cluster is gone: nobody can join with it.
    pub(crate) fn take_back(&self) {
        if Token::read(&self.token).is_ok_and(|token| token.id() == self.id) {
            // It opens nothing any more.
            let _ = std::fs::remove_file(&self.token);
        }
    }
}

impl Join {
    pub(crate) fn join(&self, session: &OwnSessionFolder) -> Result<Joined, StartError> {
        let (address, token) = (self.address.as_str(), &self.token);
        let (role, host) = (Role::Node, &machine::hostname());
        let joining = Joining { address, token, role, host, within: JOIN_WITHIN };
        let admission = join(&joining)?;
        let node = admission.number.expect("who joins as a node gets a number");
        let folder = session.tls();
        admission.write(&folder)?;
        let id = ClusterId(admission.name.cluster);
        let identity = Some(Identity::load(&folder, id.0)?);
        let nodes = admission.members;
        let cluster = Cluster { id, shards: 1, replication: 1, nodes, identity };
        let ip = address_towards(address)?;
        Ok(Joined { node, cluster, folder, ip })
    }
}

impl Joined {
    /// Gets a new certificate, in a thread of its own; connections show it from then on.
    pub(crate) fn renew(&self) {
        let (nodes, folder) = (self.cluster.nodes.clone(), self.folder.clone());
        let identity = self.cluster.identity.clone().expect("who joined has a certificate");
        let renew = move || {
            let mut why = String::new();
            for address in nodes {
                match renew(&address, &identity, JOIN_WITHIN) {
                    Ok(admission) => match admission.write(&folder) {
                        Ok(()) => return,
                        Err(error) => why = error.to_string(),
                    },
                    Err(error) => why = error.to_string(),
                }
            }
            journal::log(format_args!("the certificate was not renewed: {why}"));
        };
        let thread = std::thread::Builder::new().name("hoplo:renew".to_string());
        if let Err(error) = thread.spawn(renew) {
            journal::log(format_args!("the certificate was not renewed: {error}"));
        }
    }
}

/// By which address of this machine others reach it that can reach that one. Nothing is sent.
fn address_towards(head: &str) -> io::Result<IpAddr> {
    let found = head.to_socket_addrs()?.next();
    let head = found.ok_or_else(|| io::Error::other(format!("{head} has no address")))?;
    let any: IpAddr = if head.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(head)?;
    Ok(socket.local_addr()?.ip())
}
