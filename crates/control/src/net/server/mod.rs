//! One control process: hosts a replica of each shard that the configuration gives it, coordinates where the
//! cluster file says so, and serves clients. One thread decides; logs, cold tiers and the configuration's
//! store have threads of their own, which leave their reports in an inbox and ring.
//!
//! A turn: read all that came, let the machines decide, send, write the logs that are written in line, let the machines
//! decide on that, send.

mod coordinating;
mod home;
mod hosted;
mod peers;
mod register;
mod report;
mod wishes;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hoplo_base::limits::HEARTBEAT;
use hoplo_core::control::coordinator;
use hoplo_core::control::replica::{Effect, Event};
use hoplo_net::address::{Address, AddressError};
use hoplo_net::descriptors;
use hoplo_net::hub::{Gone, HubOptions, LinkId};
use hoplo_net::name::{Name, Role};
use hoplo_net::poll::Bell;
use hoplo_net::tls::Identity;
use hoplo_wire::control::{
    ClientId, ClusterConfig, Member, Refusal, ReplicaId, Request, Response, ShardId, Speaker,
    ToCoordinator,
};

use super::cluster::{Cluster, ClusterError};
use super::config_store::{ConfigStore, NodesStore, Place, StoreError, StoreNameError};
use super::frame::Frame;
use super::question::Question;
use super::who::{may_ask, may_say, may_write};
use super::{Happening, Hub};
use crate::disk::cold::{ColdError, Retention};
use crate::disk::log::{Fsync, LogError};
use coordinating::Coordinating;
use home::Home;
use hosted::Hosted;
use peers::Peers;
use register::Register;

pub struct ServerOptions {
    /// Where this process keeps what it must not lose; of one process at a time.
    pub folder: PathBuf,
    pub cluster: Cluster,
    /// `host:port` (0 for any port), or the path of a unix socket.
    pub listen: String,
    /// How others reach this process, if not as it listens.
    pub advertise: Option<String>,
    /// Where the coordinators' document lies. A node that the cluster file does not name has no coordinator.
    pub config: Place,
    /// It only coordinates if not.
    pub holds_replicas: bool,
    pub fsync: Fsync,
    /// For the hot rows of each shard.
    pub memory_bytes: Option<u64>,
    /// Of each shard's history on disk.
    pub retention: Retention,
}

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{path}: {source}")]
    Folder { path: PathBuf, source: io::Error },
    #[error("{0} is in use by another process")]
    InUse(PathBuf),
    #[error(
        "{folder} is that of node {node:016x}, which is not one of the certificate's: that is of {name:?}"
    )]
    OthersFolder { folder: PathBuf, node: u64, name: String },
    #[error(
        "{path} is that of {holder}: a control node needs one of its own (`hoplo control certificate --role node`)"
    )]
    NoNode { path: PathBuf, holder: String },
    #[error("cannot listen at {at}: {source}")]
    Listen { at: String, source: io::Error },
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Cold(#[from] ColdError),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Store(#[from] StoreNameError),
    #[error(transparent)]
    Register(#[from] StoreError),
    #[error("{0}")]
    Loop(#[from] io::Error),
}

pub struct Server {
    hub: Hub,
    home: Home,
    me: Member,
    holds_replicas: bool,
    cluster: Cluster,
    fsync: Fsync,
    memory_bytes: Option<u64>,
    retention: Retention,
    origin: Instant,
    hosted: BTreeMap<ShardId, Hosted>,
    /// Their disks are being read; what came for them meanwhile. Neighbours send a new member little before it answers.
    opening: BTreeMap<ShardId, Vec<Event>>,
    peers: Peers,
    /// Connections that others dialled.
    inbound: BTreeMap<LinkId, Inbound>,
    clients: BTreeMap<ClientId, LinkId>,
    /// A replica dials twice: to send to ours, and to speak with our coordinator.
    senders: BTreeMap<ReplicaId, LinkId>,
    reporters: BTreeMap<ReplicaId, LinkId>,
    coordinating: Option<Coordinating>,
    /// What this node holds of the configuration, where that lies with the nodes.
    register: Option<Register>,
    /// Where coordinators listen, itself left out; the connection, and whether it is open.
    coordinators: BTreeMap<String, Option<(LinkId, bool)>>,
    /// The newest that any coordinator told.
    config: Option<ClusterConfig>,
    heartbeat_at: Instant,
    /// Who was told that it does not know this replica.
    unknown_to: BTreeSet<LinkId>,
    /// When it was said last that the certificate expires, or is not used.
    warned: Option<(Instant, String)>,
    inbox: Inbox,
    effects: Vec<Effect>,
    started: Instant,
}

/// Who dialled us, and the name in its certificate.
struct Inbound {
    who: Speaker,
    shown: Option<Name>,
}

/// What other threads say.
#[derive(Clone)]
struct Inbox {
    reports: Arc<Mutex<Vec<Report>>>,
    bell: Bell,
}

enum Report {
    Shard(ShardId, Event),
    Opened(ShardId, Box<Result<Hosted, ServeError>>),
    Coordinator(coordinator::Event),
    /// To whoever asked the register.
    Register(LinkId, hoplo_wire::register::Answer),
}

impl Inbox {
    pub(super) fn post(&self, report: Report) {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner).push(report);
        self.bell.ring();
    }

    fn take(&self) -> Vec<Report> {
        std::mem::take(&mut *self.reports.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Server {
    /// Recovers what lies in its folder, and listens.
    pub fn start(options: ServerOptions) -> Result<Self, ServeError> {
        // Before anything is opened: what others connect is bounded by what is left then.
        descriptors::raise()?;
        let certificate = options.cluster.identity.as_ref().map(Identity::certificate);
        let name = certificate.map(|it| it.name);
        if let (Some(identity), Some(name)) = (&options.cluster.identity, &name)
            && name.role != Role::Control
        {
            let holder = format!("{} {:?}", name.role, name.name());
            return Err(ServeError::NoNode { path: identity.path(), holder });
        }
        let home = Home::open(&options.folder, name.as_ref())?;
        let me = home.replica;
        let hello = options.cluster.hello(Speaker::Replica(me));
        let mut hub = Hub::new(HubOptions { hello, identity: options.cluster.identity.clone() })?;
        let inbox = Inbox { reports: Arc::default(), bell: hub.bell() };
        let origin = Instant::now();

        let mut hosted = BTreeMap::new();
        for shard in home.shards()? {
            let options = hosted::HostOptions {
                me,
                shard,
                cluster: options.cluster.id,
                folder: home.shard(shard),
                fsync: options.fsync,
                memory_bytes: options.memory_bytes,
                retention: options.retention,
            };
            hosted.insert(shard, Hosted::open(options, hoplo_base::Instant::ZERO, &inbox)?);
        }

        // Last, so that whoever finds the port open is served.
        let at: Address = options.listen.parse()?;
        let bound = hub
            .listen(&at)
            .map_err(|source| ServeError::Listen { at: options.listen.clone(), source })?;
        let address = options.advertise.unwrap_or_else(|| bound.to_string());
        let me = Member { replica: me, address };
        let cluster = &options.cluster;
        let rank = cluster.nodes.iter().position(|node| *node == me.address);
        let (store, register) = match (rank, options.config) {
            (None, _) => (None, None),
            (Some(_), Place::Beside(store)) => (Some(store), None),
            (Some(rank), Place::Nodes) => {
                let store = NodesStore::new(cluster, me.replica, rank)?;
                let register = if rank < cluster.acceptors().len() {
                    Some(Register::start(&home, rank, cluster, inbox.clone())?)
                } else {
                    None
                };
                (Some(Box::new(store) as Box<dyn ConfigStore>), register)
            }
        };
        let coordinating = store
            .map(|store| Coordinating::start(&me, cluster, store, inbox.clone()))
            .transpose()?;
        let others = options.cluster.nodes.iter().filter(|node| **node != me.address);
        let coordinators = others.map(|node| (node.clone(), None)).collect();
        Ok(Self {
            hub,
            home,
            me,
            holds_replicas: options.holds_replicas,
            cluster: options.cluster,
            fsync: options.fsync,
            memory_bytes: options.memory_bytes,
            retention: options.retention,
            origin,
            hosted,
            opening: BTreeMap::new(),
            peers: Peers::default(),
            inbound: BTreeMap::new(),
            clients: BTreeMap::new(),
            senders: BTreeMap::new(),
            reporters: BTreeMap::new(),
            coordinating,
            register,
            coordinators,
            config: None,
            heartbeat_at: origin,
            unknown_to: BTreeSet::new(),
            warned: None,
            inbox,
            effects: Vec::new(),
            started: origin,
        })
    }

    /// Where it can be reached.
    pub fn address(&self) -> &str {
        &self.me.address
    }

    pub fn bell(&self) -> Bell {
        self.hub.bell()
    }

    /// Until `ended` says so; whoever sets it rings the bell.
    pub fn run(mut self, ended: &dyn Fn() -> bool) -> Result<(), ServeError> {
        self.register_everywhere();
        let mut happenings = Vec::new();
        while !ended() {
            let until = self.due();
            self.hub.turn(Some(until), &mut happenings)?;
            for happening in happenings.drain(..) {
                self.on_happening(happening);
            }
            for report in self.inbox.take() {
                match report {
                    Report::Shard(shard, event) => self.shard(shard, event),
                    Report::Opened(shard, opened) => self.on_opened(shard, *opened),
                    Report::Coordinator(event) => self.coordinate(event),
                    Report::Register(link, answer) => {
                        self.hub.send(link, &Frame::FromRegister(answer));
                    }
                }
            }
            self.on_time();
            // The neighbours get to work while this one writes.
            self.hub.flush();
            self.write_logs();
        }
        for (_, hosted) in std::mem::take(&mut self.hosted) {
            hosted.close()?;
        }
        Ok(())
    }

    fn on_happening(&mut self, happening: Happening) {
        match happening {
            Happening::Opened { link, theirs, shown, dialled: false } => {
                self.on_accepted(link, Inbound { who: theirs.who, shown });
            }
            Happening::Opened { link, theirs, dialled: true, .. } => {
                self.on_dialled(link, theirs.who);
            }
            Happening::Frame { link, frame } => self.on_frame(link, frame),
            Happening::Closed { link, why } => self.on_closed(link, &why),
        }
    }

    fn on_accepted(&mut self, link: LinkId, peer: Inbound) {
        if let Speaker::Client(client) = peer.who {
            let older = self.clients.get(&client).copied();
            let whose = older.and_then(|older| self.inbound.get(&older));
            if whose.is_some_and(|whose| whose.shown != peer.shown) {
                let why = format!("client {:x} is somebody else, who is connected", client.0);
                self.hub.refuse(link, &why);
                return;
            }
            self.clients.insert(client, link);
            if let Some(older) = older {
                self.replaced(older);
                self.client_gone(client);
            }
        }
        self.inbound.insert(link, peer);
    }

    /// NET-4: the newer connection of the two is the one that counts.
    fn replaced(&mut self, older: LinkId) {
        self.hub.close(older);
        self.inbound.remove(&older);
    }

    fn on_dialled(&mut self, link: LinkId, who: Speaker) {
        if self.on_probe_opened(link, who) {
            return;
        }
        if let Some(address) = self.coordinator_of(link) {
            self.coordinators.insert(address, Some((link, true)));
            self.register_with(link);
            return;
        }
        match self.peers.opened(link, who) {
            peers::Opened::Ours(frames) => {
                for frame in frames {
                    self.hub.send(link, &frame);
                }
            }
            peers::Opened::Another(replica) => {
                self.hub.close(link);
                self.peer_gone(replica);
            }
            peers::Opened::Unknown => self.hub.close(link),
        }
    }

    fn on_frame(&mut self, link: LinkId, frame: Frame) {
        let who = self.inbound.get(&link).map(|peer| peer.who);
        if let (Some(who), Frame::ToCoordinator(message)) = (who, &frame)
            && let Err(why) = may_say(who, message)
        {
            // NET-2
            self.hub.refuse(link, &why);
            self.on_closed(link, &Gone::Unfit { peer: "a peer".to_string(), why });
            return;
        }
        match (who, frame) {
            (Some(Speaker::Client(from)), Frame::Request(request)) => {
                self.on_request(link, from, request);
            }
            (Some(Speaker::Replica(from)), Frame::Peer(message)) => {
                if self.senders.get(&from) != Some(&link)
                    && let Some(older) = self.senders.insert(from, link)
                {
                    self.replaced(older);
                    self.peer_gone(from);
                }
                let shard = message.shard;
                self.shard(shard, Event::Peer { from, message });
            }
            (Some(from), Frame::ToCoordinator(message)) => {
                self.on_to_coordinator(link, from, message)
            }
            (Some(who), Frame::ToRegister(ask)) => self.on_register_asked(link, who, ask),
            (Some(_), Frame::Probe { ticket }) => self.hub.send(link, &Frame::Alive { ticket }),
            (Some(_), Frame::Ask { number, question }) => {
                let shown = self.inbound.get(&link).and_then(|peer| peer.shown.as_ref());
                let answer = may_ask(shown, &question).and_then(|()| self.answer(&question));
                self.hub.send(link, &Frame::Told { number, answer });
            }
            (None, Frame::FromCoordinator(message)) => self.on_told(link, message),
            (None, Frame::Alive { ticket }) => self.on_alive(link, ticket),
            (_, frame) => {
                // NET-2
                let why = format!("{} has no business on this connection", frame.name());
                self.hub.send(link, &Frame::Refused { why: why.clone() });
                self.hub.close(link);
                self.on_closed(link, &Gone::Unfit { peer: "a peer".to_string(), why });
            }
        }
    }

    fn on_request(&mut self, link: LinkId, from: ClientId, request: Request) {
        let shard = request.shard();
        let shown = self.inbound.get(&link).and_then(|peer| peer.shown.as_ref());
        let why = match may_write(shown, &request) {
            Err(why) => Refusal::NotAllowed(why),
            Ok(()) if self.hosted.contains_key(&shard) => {
                return self.shard(shard, Event::Request { from, request });
            }
            Ok(()) => not_hosted(),
        };
        if let Some(response) = refused(request, why) {
            self.hub.send(link, &Frame::Response(response));
        }
    }

    fn on_closed(&mut self, link: LinkId, why: &Gone) {
        if self.on_probe_closed(link, why) {
            return;
        }
        if let Some(peer) = self.inbound.remove(&link) {
            self.on_inbound_closed(link, peer.who);
        } else if let Some(address) = self.coordinator_of(link) {
            self.coordinators.insert(address, None);
            self.unknown_to.remove(&link);
        } else if let Some(replica) = self.peers.closed(link) {
            self.peer_gone(replica);
        }
    }

    fn on_inbound_closed(&mut self, link: LinkId, who: Speaker) {
        match who {
            Speaker::Client(client) => {
                if remove_current(&mut self.clients, &client, link) {
                    self.client_gone(client);
                }
            }
            Speaker::Replica(replica) => {
                if remove_current(&mut self.senders, &replica, link) {
                    // What we sent it may be lost, too: both begin anew.
                    if let Some(link) = self.peers.forget(replica) {
                        self.hub.close(link);
                    }
                    self.peer_gone(replica);
                }
                if remove_current(&mut self.reporters, &replica, link) {
                    self.coordinate(coordinator::Event::Lost { from: who });
                }
            }
            // It has asked whether we live.
            Speaker::Coordinator(_) => {}
        }
    }

    fn client_gone(&mut self, client: ClientId) {
        self.every_shard(&Event::ClientGone { client });
        self.coordinate(coordinator::Event::Lost { from: Speaker::Client(client) });
    }

    fn peer_gone(&mut self, replica: ReplicaId) {
        self.every_shard(&Event::PeerGone { replica });
    }

    fn every_shard(&mut self, event: &Event) {
        let all = self.hosted.keys().chain(self.opening.keys());
        for shard in all.copied().collect::<Vec<_>>() {
            self.shard(shard, event.clone());
        }
    }

    /// One event of one replica, and what follows from it.
    fn shard(&mut self, shard: ShardId, event: Event) {
        let now = self.now();
        let Some(hosted) = self.hosted.get_mut(&shard) else {
            if let Some(early) = self.opening.get_mut(&shard) {
                early.push(event);
            }
            return;
        };
        // It has told the coordinators that it cannot go on; now it can.
        let is_back = event == Event::LogBack;
        hosted.machine.handle(now, event, &mut self.effects);
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            self.act(shard, effect);
        }
        self.effects = effects;
        if is_back {
            self.register_everywhere();
        }
    }

    fn act(&mut self, shard: ShardId, effect: Effect) {
        match effect {
            Effect::Send { to, message } => self.send_peer(to, Frame::Peer(message)),
            Effect::Respond { to, response } => {
                if let Some(&link) = self.clients.get(&to) {
                    self.hub.send(link, &Frame::Response(response));
                }
            }
            Effect::CaughtUp { shard, epoch } => {
                let replica = self.me.replica;
                self.tell_coordinators(&ToCoordinator::CaughtUp { replica, shard, epoch });
            }
            Effect::Suspect { replica } => {
                let epoch = self.epoch(shard);
                self.tell_coordinators(&ToCoordinator::Report { shard, epoch, silent: replica });
            }
            Effect::WantConfig { epoch: _ } => {
                let known = self.epochs_known();
                self.tell_coordinators(&ToCoordinator::WantConfig { known });
            }
            disk => {
                if let Some(hosted) = self.hosted.get_mut(&shard) {
                    hosted.act(disk);
                }
            }
        }
    }

    /// What was appended and is written in line.
    fn write_logs(&mut self) {
        for shard in self.hosted.keys().copied().collect::<Vec<_>>() {
            let Some(hosted) = self.hosted.get_mut(&shard) else { continue };
            for event in hosted.write() {
                self.shard(shard, event);
            }
        }
    }

    fn on_time(&mut self) {
        let now = self.now();
        let due = self
            .hosted
            .iter()
            .filter(|(_, hosted)| hosted.machine.next_deadline().is_some_and(|at| at <= now));
        for shard in due.map(|(shard, _)| *shard).collect::<Vec<_>>() {
            self.shard(shard, Event::Tick);
        }
        self.coordinate_on_time();
        if self.heartbeat_at <= Instant::now() {
            self.heartbeat_at = Instant::now() + HEARTBEAT;
            self.heartbeat();
            self.look_at_certificate();
        }
    }

    fn due(&self) -> Instant {
        let shards = self.hosted.values().filter_map(|hosted| hosted.machine.next_deadline());
        let machines = shards.chain(self.coordinating.as_ref().and_then(Coordinating::due));
        let machines = machines.min().map(|at| self.origin + Duration::from_nanos(at.0));
        let disks = self.hosted.values().filter_map(Hosted::due).min();
        machines.into_iter().chain(disks).chain([self.heartbeat_at]).min().expect("a heartbeat")
    }

    fn now(&self) -> hoplo_base::Instant {
        hoplo_base::Instant(self.origin.elapsed().as_nanos() as u64)
    }
}

/// For who runs it. It may go to a disk that is full, which is no reason to end.
fn note(what: &str) {
    let _ = writeln!(io::stderr(), "hoplo: {what}");
}

fn remove_current<K: Ord>(map: &mut BTreeMap<K, LinkId>, key: &K, link: LinkId) -> bool {
    let current = map.get(key) == Some(&link);
    if current {
        map.remove(key);
    }
    current
}

/// The client's configuration is older or newer than ours.
pub(super) fn not_hosted() -> Refusal {
    Refusal::NotMine("host".to_string())
}

pub(super) fn refused(request: Request, why: Refusal) -> Option<Response> {
    match request {
        Request::Update { shard, seq, .. } => Some(Response::UpdateRefused { shard, seq, why }),
        Request::Query { request, .. } => Some(Response::QueryRefused { request, why }),
        Request::Subscribe { shard, subscription, .. } => {
            Some(Response::SubscriptionEnded { shard, subscription, why })
        }
        Request::Credit { .. } | Request::Unsubscribe { .. } => None,
    }
}
