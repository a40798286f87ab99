//! A head opens its cluster to other nodes: an authority, a certificate, a port.
//!
//! ```text
//!   Founded::found   binds the port, makes or reads the cluster       (before the store opens: who it is to others follows)
//!   Founded::open    the store is served, and the desk lets others join
//! ```

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, SystemTime};

use hoplo_base::NodeId;
use hoplo_core::control::rows::token_key;
use hoplo_core::control::{ControlStore, Entry, TokenEntry};
use hoplo_net::Purpose;
use hoplo_net::authority::Authority;
use hoplo_net::hub::Intake;
use hoplo_net::join::{Desk, DeskError, DeskOptions, ListenError, listen};
use hoplo_net::name::Role;
use hoplo_net::tls::Identity;
use hoplo_net::token::{Token, TokenRecord};
use hoplo_wire::control::Refusal;

use super::alone::Alone;
use super::cluster::{Cluster, ClusterError};
use super::registry::{StoreRegistry, entry_of, record_of};
use crate::embedded::Embedded;

/// A cluster of one control node, at a port where nobody is served yet.
pub struct Founded {
    listener: OwnedFd,
    address: SocketAddr,
    cluster: Cluster,
    authority: Authority,
}

/// While it lives, others can join.
pub struct Head {
    pub alone: Alone,
    _desk: Desk,
}

#[derive(Debug, thiserror::Error)]
pub enum HeadError {
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Desk(#[from] DeskError),
    #[error("nobody can join: {0}")]
    Io(#[from] io::Error),
    #[error("the control store does not take a token: {0}")]
    Token(Refusal),
}

/// How long one may join with a token that a head makes by itself.
const TOKEN_LASTS: Duration = Duration::from_secs(7 * 24 * 3600);
/// With less than this left it is given out no more.
const TOKEN_LEFT: Duration = Duration::from_secs(24 * 3600);

impl Founded {
    /// `folder`: of the store; `host`: absent for this machine alone.
    pub fn found(folder: &Path, host: Option<&str>, port: u16) -> Result<Self, HeadError> {
        let (listener, address) = listen(host, port)?;
        let (cluster, authority) = Cluster::of_head(folder, &address.to_string())?;
        Ok(Self { listener, address, cluster, authority })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Who its store is to others.
    pub fn node(&self) -> NodeId {
        Alone::node(&self.identity().certificate().name)
    }

    /// A token for nodes: the one in `kept` if it is of this cluster and good for a while, else a new one.
    pub fn token(&self, store: &mut Embedded, kept: Option<&Token>) -> Result<Token, HeadError> {
        let (now, here) = (SystemTime::now(), self.authority.fingerprint());
        if let Some(kept) = kept.filter(|kept| kept.authority() == here) {
            let row = store.get(&token_key(kept.id()));
            let record = row.and_then(|row| TokenEntry::from_row(&row).ok());
            let record = record.map(|entry| record_of(&entry));
            if record.is_some_and(|it| it.role == Role::Node && it.fit(now + TOKEN_LEFT).is_ok()) {
                return Ok(kept.clone());
            }
        }
        let token = Token::make(here)?;
        let record = TokenRecord::of(&token, Role::Node, now, now + TOKEN_LASTS, None);
        let entry = entry_of(&record);
        store.put(entry.key(), entry.to_value()).map_err(HeadError::Token)?;
        Ok(token)
    }

    /// From now on others are served. `links` takes the connections that are between nodes.
    pub fn open(self, store: &Embedded, links: Option<Intake>) -> Result<Head, HeadError> {
        let identity = self.identity().clone();
        let mut alone = Alone::new(self.cluster.clone(), store)?;
        let stores = alone.intake();
        let options = DeskOptions {
            identity,
            authority: self.authority,
            registry: Box::new(StoreRegistry::new(self.cluster)),
            is_known: Box::new(|_| false),
            peers: Box::new(move |peer| match peer.purpose {
                Purpose::Store => stores.give(peer),
                Purpose::Link => {
                    if let Some(links) = &links {
                        links.give(peer);
                    }
                }
                // The desk's own.
                Purpose::Join | Purpose::Renew => {}
            }),
        };
        let desk = Desk::open(self.listener, options)?;
        Ok(Head { alone, _desk: desk })
    }

    fn identity(&self) -> &Identity {
        self.cluster.identity.as_ref().expect("a head listens on TCP")
    }
}

impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Head").finish_non_exhaustive()
    }
}
