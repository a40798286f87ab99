//! Connections that this process dialled to send to other replicas.

use std::collections::BTreeMap;

use hoplo_net::hub::LinkId;
use hoplo_wire::control::{ChainConfig, ClusterConfig, ReplicaId, Speaker};

use super::super::frame::Frame;
use super::Server;

#[derive(Default)]
pub(super) struct Peers {
    addresses: BTreeMap<ReplicaId, String>,
    links: BTreeMap<ReplicaId, Peer>,
    whose: BTreeMap<LinkId, ReplicaId>,
}

struct Peer {
    link: LinkId,
    /// Absent once it is open; before, what waits for that.
    waiting: Option<Vec<Frame>>,
}

pub(super) enum Opened {
    Ours(Vec<Frame>),
    /// Another incarnation listens there: this one is gone.
    Another(ReplicaId),
    Unknown,
}

impl Peers {
    /// Forgets those that are in no chain any more, once nothing connects us.
    pub(super) fn learn(&mut self, config: &ClusterConfig) {
        self.addresses.retain(|replica, _| self.links.contains_key(replica));
        for chain in &config.shards {
            for member in chain.members.iter().chain(&chain.joining) {
                self.addresses.insert(member.replica, member.address.clone());
            }
        }
    }

    pub(super) fn opened(&mut self, link: LinkId, who: Speaker) -> Opened {
        let Some(&replica) = self.whose.get(&link) else { return Opened::Unknown };
        if who != Speaker::Replica(replica) {
            self.forget(replica);
            return Opened::Another(replica);
        }
        let peer = self.links.get_mut(&replica).expect("a link is somebody's");
        Opened::Ours(peer.waiting.take().unwrap_or_default())
    }

    pub(super) fn closed(&mut self, link: LinkId) -> Option<ReplicaId> {
        let replica = self.whose.remove(&link)?;
        self.links.remove(&replica);
        Some(replica)
    }

    pub(super) fn forget(&mut self, replica: ReplicaId) -> Option<LinkId> {
        let peer = self.links.remove(&replica)?;
        self.whose.remove(&peer.link);
        Some(peer.link)
    }
}

impl Server {
    /// Beforehand, so that nobody has to be dialled when who stands between is dead.
    pub(super) fn connect_all(&mut self, chain: &ChainConfig) {
        for member in chain.members.iter().chain(&chain.joining) {
            let replica = member.replica;
            if replica != self.me.replica && !self.peers.links.contains_key(&replica) {
                self.dial_peer(replica, Vec::new());
            }
        }
    }

    pub(super) fn send_peer(&mut self, to: ReplicaId, frame: Frame) {
        if let Some(peer) = self.peers.links.get_mut(&to) {
            match &mut peer.waiting {
                None => self.hub.send(peer.link, &frame),
                Some(waiting) => waiting.push(frame),
            }
            return;
        }
        self.dial_peer(to, vec![frame]);
    }

    fn dial_peer(&mut self, to: ReplicaId, waiting: Vec<Frame>) {
        let Some(address) = self.peers.addresses.get(&to) else { return };
        let link = self.hub.dial(address);
        self.peers.whose.insert(link, to);
        self.peers.links.insert(to, Peer { link, waiting: Some(waiting) });
    }
}
