//! A head opens its cluster to other nodes: an authority, a certificate, a port.
//!
//! ```text
//!   Listening::at    binds the port
//!   Founded::found   makes or reads the cluster                       (before the store opens: who it is to others follows)
//!   Founded::open    the store is served, and the desk lets others join
//! ```
//! The store is this head's own, or on control nodes (`found_over`, `open_over`): then another machine may become head in its place (`seat`).

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
use hoplo_net::join::{Desk, DeskError, DeskOptions, ListenError, Registry, listen};
use hoplo_net::name::Role;
use hoplo_net::tls::Identity;
use hoplo_net::token::{Fingerprint, Token, TokenRecord};
use hoplo_wire::control::ClusterId;
use hoplo_wire::join::TokenId;

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

/// Whom others join: it gives them tokens.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    pub address: SocketAddr,
    pub cluster: ClusterId,
    /// By which a token says whose it is.
    pub fingerprint: Fingerprint,
}

/// A port at which who dials waits until a head answers.
#[derive(Debug)]
pub struct Listening {
    listener: OwnedFd,
    address: SocketAddr,
}

impl Listening {
    /// `host`: absent for this machine alone.
    pub fn at(host: Option<&str>, port: u16) -> Result<Self, HeadError> {
        let (listener, address) = listen(host, port)?;
        Ok(Self { listener, address })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Where tokens are kept.
pub trait Tokens {
    fn known(&mut self, id: TokenId) -> Result<Option<TokenRecord>, HeadError>;
    fn keep(&mut self, record: &TokenRecord) -> Result<(), HeadError>;
}

impl Tokens for Embedded {
    fn known(&mut self, id: TokenId) -> Result<Option<TokenRecord>, HeadError> {
        let entry = self.get(&token_key(id)).and_then(|row| TokenEntry::from_row(&row).ok());
        Ok(entry.map(|entry| record_of(&entry)))
    }

    fn keep(&mut self, record: &TokenRecord) -> Result<(), HeadError> {
        let entry = entry_of(record);
        let put = self.put(entry.key(), entry.to_value());
        put.map(|_| ()).map_err(|refusal| HeadError::Token(refusal.to_string()))
    }
}

impl Tokens for StoreRegistry {
    fn known(&mut self, id: TokenId) -> Result<Option<TokenRecord>, HeadError> {
        self.token(id).map_err(|error| HeadError::Token(error.why))
    }

    fn keep(&mut self, record: &TokenRecord) -> Result<(), HeadError> {
        self.put_token(record).map_err(|error| HeadError::Token(error.why))
    }
}

/// What people are to know of who comes. Called on a thread of its own.
pub type Tells = Box<dyn FnMut(String) + Send>;

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
    Token(String),
}

/// How long one may join with a token that a head makes by itself.
const TOKEN_LASTS: Duration = Duration::from_secs(7 * 24 * 3600);
/// With less than this left it is given out no more.
const TOKEN_LEFT: Duration = Duration::from_secs(24 * 3600);

impl Founded {
    /// `folder`: of the store.
    pub fn found(folder: &Path, at: Listening) -> Result<Self, HeadError> {
        let Listening { listener, address } = at;
        let (cluster, authority) = Cluster::of_head(folder, &address.to_string())?;
        Ok(Self { listener, address, cluster, authority })
    }

    /// The same over control nodes: their cluster's file. `folder`: of this head.
    pub fn found_over(folder: &Path, file: &Path, at: Listening) -> Result<Self, HeadError> {
        let Listening { listener, address } = at;
        let (cluster, authority) = Cluster::of_head_over(folder, file)?;
        Ok(Self { listener, address, cluster, authority })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Who lets others join from now on.
    pub fn host(&self) -> Host {
        let (address, cluster) = (self.address, self.cluster.id);
        Host { address, cluster, fingerprint: self.authority.fingerprint() }
    }

    /// Who its store is to others.
    pub fn node(&self) -> NodeId {
        Alone::node(&self.identity().certificate().name)
    }

    /// From now on others are served. `links` takes the connections that are between nodes.
    pub fn open(
        self,
        store: &Embedded,
        links: Option<Intake>,
        tells: Tells,
    ) -> Result<Head, HeadError> {
        let mut alone = Alone::new(self.cluster.clone(), store)?;
        let stores = alone.intake();
        Ok(Head { alone, _desk: self.desk(Some(stores), links, tells)? })
    }

    /// The same where control nodes serve the store.
    pub fn open_over(self, links: Intake, tells: Tells) -> Result<Desk, HeadError> {
        self.desk(None, Some(links), tells)
    }

    fn desk(
        self,
        stores: Option<Intake>,
        links: Option<Intake>,
        tells: Tells,
    ) -> Result<Desk, HeadError> {
        let identity = self.identity().clone();
        let options = DeskOptions {
            identity,
            authority: self.authority,
            registry: Box::new(StoreRegistry::new(self.cluster)),
            is_known: Box::new(|_| false),
            tells,
            peers: Box::new(move |peer| {
                let takes = match peer.purpose {
                    Purpose::Store => &stores,
                    Purpose::Link => &links,
                    // The desk's own.
                    Purpose::Join | Purpose::Renew => &None,
                };
                if let Some(takes) = takes {
                    takes.give(peer);
                }
            }),
        };
        Ok(Desk::open(self.listener, options)?)
    }

    fn identity(&self) -> &Identity {
        self.cluster.identity.as_ref().expect("a head listens on TCP")
    }
}

impl Host {
    /// A token for nodes: the one in `kept` if it is of this cluster and good for a while, else a new one.
    pub fn token(&self, tokens: &mut dyn Tokens, kept: Option<&Token>) -> Result<Token, HeadError> {
        let (now, here) = (SystemTime::now(), self.fingerprint);
        if let Some(kept) = kept.filter(|kept| kept.authority() == here) {
            let record = tokens.known(kept.id())?;
            if record.is_some_and(|it| it.role == Role::Node && it.fit(now + TOKEN_LEFT).is_ok()) {
                return Ok(kept.clone());
            }
        }
        let token = Token::make(here)?;
        let record = TokenRecord::of(&token, Role::Node, now, now + TOKEN_LASTS, None);
        tokens.keep(&record)?;
        Ok(token)
    }
}

impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Head").finish_non_exhaustive()
    }
}
