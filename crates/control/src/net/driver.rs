//! The client machine with its connections, turned by whoever owns it: one thread, no lock.
//!
//! A program with one request in flight calls it directly ([`Driver::call`]); [`super::client::ControlClient`]
//! gives it a thread of its own.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use hoplo_base::limits::COORDINATOR_FRAMES_WAITING_MAX;
use hoplo_core::control::client::{Call, CallError, Client, ClientOptions, Done, Effect, Event};
use hoplo_net::hub::{Gone, HubOptions, LinkId};
use hoplo_net::poll::Bell;
use hoplo_wire::control::{Change, ClientId, Member, ReplicaId, ShardId, Speaker};

use super::cluster::Cluster;
use super::frame::Frame;
use super::question::Question;
use super::{Happening, Hub};

pub struct Driver {
    hub: Hub,
    machine: Client,
    cluster: Cluster,
    me: ClientId,
    /// Others that were used.
    names: u64,
    origin: Instant,
    replicas: BTreeMap<ReplicaId, LinkId>,
    coordinators: BTreeMap<String, Coordinator>,
    /// Who is at the other end.
    links: BTreeMap<LinkId, End>,
    effects: Vec<Effect>,
    happenings: Vec<Happening>,
    /// What came of calls and subscriptions, for the owner to take.
    pub results: Vec<Outcome>,
    next_call: u64,
    /// A control node that will never talk to us, and why.
    unfit: Option<Gone>,
}

#[derive(Debug)]
pub enum Outcome {
    Finished { call: u64, result: Result<Done, CallError> },
    Changes { subscription: u64, shard: ShardId, changes: Vec<Change>, upto: u64 },
    Missed { subscription: u64, shard: ShardId, oldest: u64 },
    Told { number: u64, answer: Result<String, String> },
}

enum End {
    Replica(ReplicaId),
    Coordinator(String),
}

struct Coordinator {
    link: LinkId,
    open: bool,
    /// Waits for the connection; the newest few.
    waiting: Vec<Frame>,
}

impl Driver {
    pub fn new(cluster: &Cluster) -> io::Result<Self> {
        let mut id = [0; 8];
        rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())?;
        let me = ClientId(u64::from_le_bytes(id));
        let hello = cluster.hello(Speaker::Client(me));
        let hub = Hub::new(HubOptions { hello, identity: cluster.identity.clone() })?;
        let options = ClientOptions { me, coordinators: cluster.nodes.clone() };
        let machine = Client::new(options, hoplo_base::Instant::ZERO);
        Ok(Self {
            hub,
            machine,
            cluster: cluster.clone(),
            me,
            names: 0,
            origin: Instant::now(),
            replicas: BTreeMap::new(),
            coordinators: BTreeMap::new(),
            links: BTreeMap::new(),
            effects: Vec::new(),
            happenings: Vec::new(),
            results: Vec::new(),
            next_call: 1,
            unfit: None,
        })
    }

    pub fn bell(&self) -> Bell {
        self.hub.bell()
    }

    pub fn machine(&self) -> &Client {
        &self.machine
    }

    /// Why a control node will never talk to this program, if one said so.
    pub fn unfit(&self) -> Option<&Gone> {
        self.unfit.as_ref()
    }

    /// Its end will be among the results.
    pub fn start(&mut self, what: Call, deadline: Instant) -> u64 {
        let call = self.next_call;
        self.next_call += 1;
        let deadline = self.at(deadline);
        self.handle(Event::Call { call, what, deadline });
        call
    }

    /// One call from its beginning to its end.
    pub fn call(&mut self, what: Call, timeout: Duration) -> io::Result<Result<Done, CallError>> {
        let call = self.start(what, Instant::now() + timeout);
        loop {
            let mine = self.results.iter().position(
                |outcome| matches!(outcome, Outcome::Finished { call: other, .. } if *other == call),
            );
            if let Some(mine) = mine
                && let Outcome::Finished { result, .. } = self.results.swap_remove(mine)
            {
                return Ok(result);
            }
            self.turn(None)?;
        }
    }

    /// Asks the process at this address; the answer will be among the results.
    pub fn ask(&mut self, address: &str, question: Question) -> u64 {
        let number = self.next_call;
        self.next_call += 1;
        self.tell(address, Frame::Ask { number, question });
        number
    }

    pub fn handle(&mut self, event: Event) {
        let now = self.at(Instant::now());
        self.machine.handle(now, event, &mut self.effects);
        self.act();
    }

    /// When it wants a turn though nothing came.
    pub fn due(&self) -> Option<Instant> {
        let machine = self.machine.next_deadline();
        let machine = machine.map(|at| self.origin + Duration::from_nanos(at.0));
        machine.into_iter().chain(self.hub.due()).min()
    }

    /// Sends what was begun since the last turn.
    pub fn flush(&mut self) {
        self.hub.flush();
    }

    /// Waits for something to happen, but not beyond `until`, and deals with it.
    pub fn turn(&mut self, until: Option<Instant>) -> io::Result<()> {
        let until = until.into_iter().chain(self.due()).min();
        let mut happenings = std::mem::take(&mut self.happenings);
        self.hub.turn(until, &mut happenings)?;
        for happening in happenings.drain(..) {
            self.on_happening(happening);
        }
        self.happenings = happenings;
        self.handle(Event::Tick);
        self.hub.flush();
        Ok(())
    }

    fn on_happening(&mut self, happening: Happening) {
        match happening {
            Happening::Opened { link, theirs, .. } => self.on_opened(link, theirs.who),
            Happening::Frame { link, frame } => self.on_frame(link, frame),
            Happening::Closed { link, why } => self.on_closed(link, why),
        }
    }

    fn on_opened(&mut self, link: LinkId, who: Speaker) {
        match self.links.get(&link) {
            Some(End::Replica(replica)) => {
                let replica = *replica;
                if who == Speaker::Replica(replica) {
                    self.handle(Event::Connected { replica });
                } else {
                    // Another incarnation listens there: the one that we want is gone.
                    self.hub.close(link);
                    self.lost(link, "another process listens there");
                }
            }
            Some(End::Coordinator(address)) => {
                let Some(coordinator) = self.coordinators.get_mut(address) else { return };
                coordinator.open = true;
                for frame in std::mem::take(&mut coordinator.waiting) {
                    self.hub.send(link, &frame);
                }
            }
            None => self.hub.close(link),
        }
    }

    fn on_frame(&mut self, link: LinkId, frame: Frame) {
        match (self.links.get(&link), frame) {
            (Some(End::Replica(from)), Frame::Response(response)) => {
                let from = *from;
                self.handle(Event::Response { from, response });
            }
            (_, Frame::FromCoordinator(message)) => self.handle(Event::Told { message }),
            (_, Frame::Told { number, answer }) => {
                self.results.push(Outcome::Told { number, answer });
            }
            // Nothing else is for clients; a process that sends it is confused.
            (_, _) => {
                self.hub.close(link);
                self.lost(link, "it sent what is not for clients");
            }
        }
    }

    fn on_closed(&mut self, link: LinkId, why: Gone) {
        let text = why.to_string();
        if let Gone::Unfit { .. } = &why {
            self.unfit = Some(why);
        }
        self.lost(link, &text);
    }

    fn lost(&mut self, link: LinkId, why: &str) {
        match self.links.remove(&link) {
            Some(End::Replica(replica)) => {
                self.replicas.remove(&replica);
                self.handle(Event::Lost { replica });
            }
            Some(End::Coordinator(address)) => {
                let known = self.coordinators.remove(&address);
                for frame in known.into_iter().flat_map(|known| known.waiting) {
                    if let Frame::Ask { number, .. } = frame {
                        let answer = Err(why.to_string());
                        self.results.push(Outcome::Told { number, answer });
                    }
                }
                self.handle(Event::CoordinatorLost { address });
            }
            None => {}
        }
    }

    fn act(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Connect(Member { replica, address }) => {
                    let link = self.hub.dial(&address);
                    self.links.insert(link, End::Replica(replica));
                    if let Some(old) = self.replicas.insert(replica, link) {
                        self.links.remove(&old);
                        self.hub.close(old);
                    }
                }
                Effect::Disconnect(replica) => {
                    if let Some(link) = self.replicas.remove(&replica) {
                        self.links.remove(&link);
                        self.hub.close(link);
                    }
                }
                Effect::Send { to, request } => {
                    if let Some(&link) = self.replicas.get(&to) {
                        self.hub.send(link, &Frame::Request(request));
                    }
                }
                Effect::Tell { address, message } => {
                    self.tell(&address, Frame::ToCoordinator(message));
                }
                Effect::Finish { call, result } => {
                    self.results.push(Outcome::Finished { call, result });
                }
                Effect::Changes { subscription, shard, changes, upto } => {
                    self.results.push(Outcome::Changes { subscription, shard, changes, upto });
                }
                Effect::Missed { subscription, shard, oldest } => {
                    self.results.push(Outcome::Missed { subscription, shard, oldest });
                }
            }
        }
        self.effects = effects;
    }

    fn tell(&mut self, address: &str, frame: Frame) {
        let coordinator = self.coordinators.entry(address.to_string()).or_insert_with(|| {
            // Under another name: a process keeps one connection of a client, and answers updates there.
            self.names += 1;
            let name = ClientId(self.me.0.wrapping_add(self.names));
            let hello = self.cluster.hello(Speaker::Client(name));
            let link = self.hub.dial_as(hello, address);
            self.links.insert(link, End::Coordinator(address.to_string()));
            Coordinator { link, open: false, waiting: Vec::new() }
        });
        if coordinator.open {
            self.hub.send(coordinator.link, &frame);
        } else if coordinator.waiting.len() < COORDINATOR_FRAMES_WAITING_MAX {
            coordinator.waiting.push(frame);
        }
    }

    fn at(&self, instant: Instant) -> hoplo_base::Instant {
        let since = instant.saturating_duration_since(self.origin);
        hoplo_base::Instant(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Readable when it wants a turn.
impl AsFd for Driver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.hub.as_fd()
    }
}
