//! The store of a head, served to the other nodes of its cluster. A control node that is alone needs no coordinator: its one
//! configuration is that of this life, and never changes.
//!
//! ```text
//!   desk --Intake--> hub --Request-----> Embedded --answers, once the log is written--> hub
//!                     \--WantConfig--> the configuration
//!                      \--Ask--------> status, metrics, compact
//! ```
//! To clients it is a control node like any other: the same frames, sessions, queries and subscriptions. When the head's daemon starts again, its
//! clients find another incarnation at the same address, ask for the configuration, and go on with their sessions.
//!
//! It waits for nothing. Its owner waits for it ([`AsFd`], [`Alone::due`]), calls [`Alone::turn`], flushes the store, and then lets it
//! [`Alone::answer`]. NET-1 to NET-4 (`super`) hold here, and EMB-3.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use hoplo_net::hub::{HubOptions, Intake, LinkId};
use hoplo_net::name::Name;
use hoplo_wire::control::{
    ClientId, ClusterConfig, FromCoordinator, Refusal, Request, Speaker, ToCoordinator,
};
use serde_json::json;

use super::cluster::Cluster;
use super::frame::Frame;
use super::question::Question;
use super::server::{not_hosted, refused};
use super::who::{may_ask, may_say, may_write, node_of};
use super::{Happening, Hub};
use crate::embedded::{Embedded, SHARD};
use crate::report::{metrics, resident_bytes};

/// To who speaks of several control nodes.
const ONE_NODE: &str = "the store of this cluster is on one node, its head";

pub struct Alone {
    hub: Hub,
    cluster: Cluster,
    peers: BTreeMap<LinkId, Peer>,
    clients: BTreeMap<ClientId, LinkId>,
    happenings: Vec<Happening>,
}

struct Peer {
    who: Speaker,
    shown: Option<Name>,
}

impl Alone {
    /// `cluster`: its one control node is this one, where the desk listens.
    pub fn new(cluster: Cluster, store: &Embedded) -> io::Result<Self> {
        let hello = cluster.hello(Speaker::Replica(store.me()));
        let hub = Hub::new(HubOptions { hello, identity: cluster.identity.clone() })?;
        let (peers, clients, happenings) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Ok(Self { hub, cluster, peers, clients, happenings })
    }

    /// Who the store is to others, by the certificate of its head ([`crate::embedded::EmbeddedOptions`]).
    pub fn node(name: &Name) -> hoplo_base::NodeId {
        node_of(name, 0)
    }

    /// For the desk.
    pub fn intake(&mut self) -> Intake {
        self.hub.intake()
    }

    /// When it wants a turn though nothing came.
    pub fn due(&self) -> Option<Instant> {
        self.hub.due()
    }

    fn address(&self) -> &str {
        &self.cluster.nodes[0]
    }

    /// Gives the store what came meanwhile.
    pub fn turn(&mut self, store: &mut Embedded) -> io::Result<()> {
        let mut happenings = std::mem::take(&mut self.happenings);
        self.hub.turn(Some(Instant::now()), &mut happenings)?;
        for happening in happenings.drain(..) {
            match happening {
                Happening::Opened { link, theirs, shown, .. } => {
                    self.on_opened(link, Peer { who: theirs.who, shown }, store);
                }
                Happening::Frame { link, frame } => self.on_frame(link, frame, store),
                Happening::Closed { link, .. } => self.on_closed(link, store),
            }
        }
        self.happenings = happenings;
        Ok(())
    }

    /// Sends what may be said now.
    pub fn answer(&mut self, store: &mut Embedded) {
        for (to, response) in store.take_answers() {
            if let Some(&link) = self.clients.get(&to) {
                self.hub.send(link, &Frame::Response(response));
            }
        }
        self.hub.flush();
    }

    fn on_opened(&mut self, link: LinkId, peer: Peer, store: &mut Embedded) {
        if let Speaker::Client(client) = peer.who {
            let older = self.clients.get(&client).copied();
            let whose = older.and_then(|older| self.peers.get(&older));
            if whose.is_some_and(|whose| whose.shown != peer.shown) {
                let why = format!("client {:x} is somebody else, who is connected", client.0);
                return self.hub.refuse(link, &why);
            }
            // NET-4
            if let Some(older) = older {
                self.hub.close(older);
                self.peers.remove(&older);
                store.client_gone(client);
            }
            self.clients.insert(client, link);
        }
        self.peers.insert(link, peer);
    }

    fn on_closed(&mut self, link: LinkId, store: &mut Embedded) {
        if let Some(Peer { who: Speaker::Client(client), .. }) = self.peers.remove(&link)
            && self.clients.get(&client) == Some(&link)
        {
            self.clients.remove(&client);
            store.client_gone(client);
        }
    }

    fn on_frame(&mut self, link: LinkId, frame: Frame, store: &mut Embedded) {
        let Some(peer) = self.peers.get(&link) else { return };
        let refused = match (peer.who, frame) {
            (Speaker::Client(from), Frame::Request(request)) => {
                return self.on_request(link, from, request, store);
            }
            (who, Frame::ToCoordinator(message)) => match (may_say(who, &message), message) {
                (Err(why), _) => why,
                (Ok(()), ToCoordinator::WantConfig { known }) => {
                    return self.tell_config(link, known, store);
                }
                (
                    Ok(()),
                    ToCoordinator::Register { .. }
                    | ToCoordinator::Heartbeat { .. }
                    | ToCoordinator::CaughtUp { .. }
                    | ToCoordinator::Report { .. }
                    | ToCoordinator::Wished(_)
                    | ToCoordinator::Unwished(_),
                ) => ONE_NODE.to_string(),
            },
            (_, Frame::Probe { ticket }) => {
                return self.hub.send(link, &Frame::Alive { ticket });
            }
            (_, Frame::Ask { number, question }) => {
                let allowed = may_ask(peer.shown.as_ref(), &question);
                let answer = allowed.and_then(|()| self.tell(&question, store));
                return self.hub.send(link, &Frame::Told { number, answer });
            }
            // NET-2
            (_, frame) => format!("{} has no business on this connection", frame.name()),
        };
        self.hub.refuse(link, &refused);
        self.on_closed(link, store);
    }

    fn on_request(&mut self, link: LinkId, from: ClientId, request: Request, store: &mut Embedded) {
        let shown = self.peers.get(&link).and_then(|peer| peer.shown.as_ref());
        let why = match may_write(shown, &request) {
            Err(why) => Refusal::NotAllowed(why),
            Ok(()) if request.shard() == SHARD => return store.request(from, request),
            Ok(()) => not_hosted(),
        };
        if let Some(response) = refused(request, why) {
            self.hub.send(link, &Frame::Response(response));
        }
    }

    fn tell_config(&mut self, link: LinkId, known: u64, store: &Embedded) {
        let chain = store.chain_at(self.address());
        if chain.epoch.0 > known {
            let (cluster, wishes) = (self.cluster.id, Vec::new());
            let shards = vec![chain];
            let config = ClusterConfig { cluster, replication: 1, shards, acting: None, wishes };
            let config = FromCoordinator::Config(config);
            self.hub.send(link, &Frame::FromCoordinator(config));
        }
    }

    fn tell(&self, question: &Question, store: &mut Embedded) -> Result<String, String> {
        match question {
            Question::Status => Ok(self.status(store).to_string()),
            Question::Metrics => Ok(metrics(&[store.report()])),
            Question::Compact => {
                store.compact();
                Ok("1".to_string())
            }
            Question::Wish { .. } => Err(ONE_NODE.to_string()),
        }
    }

    /// As a control node of a cluster says it.
    pub fn status(&self, store: &Embedded) -> serde_json::Value {
        let (me, chain) = (store.me(), store.chain_at(self.address()));
        json!({
            "program": concat!("hoplo ", env!("CARGO_PKG_VERSION")),
            "replica": { "node": format!("{:016x}", me.node.0), "incarnation": me.incarnation },
            "address": self.address(),
            "resident_bytes": resident_bytes(),
            "shards": [store.report().json()],
            "config": { "cluster": format!("{:032x}", self.cluster.id.0), "replication": 1,
                        "shards": [chain] },
            "connections": { "clients": self.clients.len(), "strangers": self.hub.strangers() },
        })
    }
}

impl AsFd for Alone {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.hub.as_fd()
    }
}
