//! All connections of one process: listens, dials, shakes hands, and turns bytes into frames.
//!
//! ```text
//!   dial --> Connecting --> Greeting --Hello checked--> Open --> closed
//!   accept -----------------/   (who dialled speaks first, and is answered only if its Hello is good:
//!                                when it is Open for the one who dialled, it is for the other, too)
//! ```
//! Who comes is let in by the [`crate::door`] (`accept.rs`), and says who it is (`greet.rs`).
//!
//! # Invariants
//! - HUB-1: nothing of a connection is told before both ends have checked the other's `Hello`, against its certificate.
//! - HUB-2: what a peer can make us keep is bounded: in connections, and in bytes either way.

mod accept;
mod greet;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use hoplo_base::limits::{
    CONTROL_UNSENT_BYTES_MAX, NET_GREETING_BYTES_MAX, NET_OPENS_WITHIN, TURN_BYTES_MAX,
};

use crate::address::{self, Address};
use crate::door::Origin;
pub use crate::link::LinkId;

use crate::inbox::{Landing, Nowhere};
use crate::link::Link;
use crate::name::Name;
use crate::poll::{Bell, Poller, Ready};
use crate::protocol::{Protocol, Standing};
use crate::tls::Identity;
pub use accept::Intake;
use accept::Room;

#[derive(Debug)]
pub enum Happening<P: Protocol> {
    /// Both sides know each other.
    Opened {
        link: LinkId,
        theirs: P::Hello,
        /// The name in its certificate; absent over a unix socket.
        shown: Option<Name>,
        dialled: bool,
    },
    Frame {
        link: LinkId,
        frame: P::Frame,
    },
    /// Nothing comes from it any more, and the next `Opened` is another.
    Closed {
        link: LinkId,
        why: Gone,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Gone {
    /// Nobody listens there: the process that did is dead.
    #[error("{address}: nobody listens there")]
    Refused { address: String },
    /// The two do not belong together; trying again is of no use.
    #[error("{peer}: {why}")]
    Unfit { peer: String, why: String },
    #[error("{peer}: {why}")]
    Broken { peer: String, why: String },
}

/// What went wrong so far, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub accepted: u64,
    /// There was no room, or somebody had to make room.
    pub turned_away: u64,
    pub refused_hellos: u64,
    /// Peers that said they are, or spoke for, somebody else.
    pub refused_claims: u64,
    pub bad_frames: u64,
    pub slow_readers: u64,
    pub broken: u64,
}

#[derive(Clone, Debug)]
pub struct HubOptions<P: Protocol> {
    /// What this process says of itself.
    pub hello: P::Hello,
    /// For TCP; unix sockets need none.
    pub identity: Option<Identity>,
}

pub struct Hub<P: Protocol> {
    options: HubOptions<P>,
    poller: Poller<EVENTS_MAX>,
    bell: Bell,
    listeners: Vec<Listener>,
    links: BTreeMap<LinkId, Open>,
    /// By when links must be open that are not.
    opens_by: BTreeSet<(Instant, LinkId)>,
    next: u64,
    /// Links that have something to send.
    dirty: Vec<LinkId>,
    /// A socket took what it had had no room for.
    drained: bool,
    /// Ended, and not told yet.
    ended: Vec<(LinkId, Gone)>,
    ready: Vec<Ready>,
    scratch: Vec<u8>,
    counters: Counters,
    /// Once it listens, or a desk hands on to it.
    room: Option<Room>,
    intake: Option<Intake>,
    /// Where members are.
    known: BTreeSet<IpAddr>,
    /// Who dialled us and is no member.
    clients: usize,
    /// What their messages that are not finished hold.
    unfinished_bytes: usize,
}

struct Listener {
    socket: OwnedFd,
    tcp: bool,
}

struct Open {
    link: Link,
    stage: Stage,
    /// Where it came from; absent if it was dialled.
    origin: Option<Origin>,
    /// Once it is open.
    standing: Option<Standing>,
    /// For messages: the address, or who it said it is.
    peer: String,
    /// Of messages that did not come whole.
    unfinished_bytes: usize,
    opens_by: Instant,
    writing: bool,
    dirty: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    Greeting,
    Open,
}

/// What is read at a time: most of a piece as TLS sends it. More of it would not stay in a cache.
const SCRATCH_BYTES: usize = 256 * 1024;
const EVENTS_MAX: usize = 256;
/// The token of the bell.
const RUNG: u64 = u64::MAX;
/// Tokens of listeners are above those of links.
const LISTENERS: u64 = 1 << 63;

impl<P: Protocol> Hub<P> {
    pub fn new(options: HubOptions<P>) -> io::Result<Self> {
        let poller = Poller::new()?;
        let bell = poller.bell(RUNG)?;
        Ok(Self {
            options,
            poller,
            bell,
            listeners: Vec::new(),
            links: BTreeMap::new(),
            opens_by: BTreeSet::new(),
            next: 0,
            dirty: Vec::new(),
            drained: false,
            ended: Vec::new(),
            ready: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES],
            counters: Counters::default(),
            room: None,
            intake: None,
            known: BTreeSet::new(),
            clients: 0,
            unfinished_bytes: 0,
        })
    }

    /// Where it listens now (a port of 0 becomes a real one).
    pub fn listen(&mut self, at: &Address) -> io::Result<Address> {
        if at.is_tcp() && self.options.identity.is_none() {
            return Err(io::Error::other("a TCP port needs the cluster's certificates"));
        }
        let (socket, bound) = at.listen()?;
        self.poller.add(&socket, LISTENERS + self.listeners.len() as u64, false)?;
        self.room.get_or_insert_with(Room::measure);
        self.listeners.push(Listener { socket, tcp: at.is_tcp() });
        Ok(bound)
    }

    /// For a desk that accepts in place of this hub.
    pub fn intake(&mut self) -> Intake {
        self.room.get_or_insert_with(Room::measure);
        self.intake.get_or_insert_with(|| Intake::new(self.bell.clone())).clone()
    }

    /// Answered by `Opened` or `Closed`, in a later turn. What is sent before goes to whoever of the cluster
    /// answers there.
    pub fn dial(&mut self, text: &str) -> LinkId {
        self.dial_as(self.options.hello.clone(), text)
    }

    /// The same, but saying that it is somebody else.
    pub fn dial_as(&mut self, hello: P::Hello, text: &str) -> LinkId {
        let id = self.new_id();
        match self.try_dial(id, text) {
            Ok(mut link) => {
                link.push::<P>(&P::hello(hello));
                self.insert(id, Open::new(link, Stage::Connecting, None, text.to_string()));
            }
            Err(gone) => self.ended.push((id, gone)),
        }
        id
    }

    pub fn send(&mut self, id: LinkId, frame: &P::Frame) {
        let Some(open) = self.links.get_mut(&id) else { return };
        open.link.push::<P>(frame);
        self.mark_dirty(id);
    }

    /// Bytes of what was sent that wait for the socket.
    pub fn unsent_bytes(&self, id: LinkId) -> usize {
        self.links.get(&id).map_or(0, |open| open.link.unsent_bytes())
    }

    /// Whether a socket took, since this was asked last, what it had had no room for: it takes more.
    pub fn has_drained(&mut self) -> bool {
        std::mem::take(&mut self.drained)
    }

    fn mark_dirty(&mut self, id: LinkId) {
        if let Some(open) = self.links.get_mut(&id)
            && !std::mem::replace(&mut open.dirty, true)
        {
            self.dirty.push(id);
        }
    }

    /// Without a word from it any more, neither `Closed`. What was sent goes out as far as it can at once.
    pub fn close(&mut self, id: LinkId) {
        let Some(mut open) = self.links.remove(&id) else { return };
        let _ = open.link.flush();
        self.poller.remove(&open.link);
        self.opens_by.remove(&(open.opens_by, id));
        if open.standing == Some(Standing::Client) && open.origin.is_some() {
            self.clients -= 1;
        }
        self.unfinished_bytes -= open.unfinished_bytes;
        if let Some(room) = &mut self.room {
            room.door.forget(id);
        }
    }

    /// It said what it may not say: it is told why, and nothing comes from it any more.
    pub fn refuse(&mut self, id: LinkId, why: &str) {
        self.counters.refused_claims += 1;
        if let Some(open) = self.links.get_mut(&id) {
            open.link.push::<P>(&P::refusal(why.to_string()));
        }
        self.close(id);
    }

    /// Rings the loop awake, from any thread.
    pub fn bell(&self) -> Bell {
        self.bell.clone()
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Connections whose peers did not say yet who they are.
    pub fn strangers(&self) -> usize {
        self.room.as_ref().map_or(0, |room| room.door.len())
    }

    /// Connections of clients, and how many there may be.
    pub fn clients(&self) -> (usize, usize) {
        (self.clients, self.room.as_ref().map_or(0, |room| room.clients_max))
    }

    /// When it wants a turn though nothing came.
    pub fn due(&self) -> Option<Instant> {
        if !self.ended.is_empty() {
            return Some(Instant::now());
        }
        self.opens_by.first().map(|(by, _)| *by).into_iter().chain(self.opens_again()).min()
    }

    /// Sends what is to be sent, waits until something happens (or `until`), and tells it. True: the bell was rung. It is silent now,
    /// so what it was rung for is for the caller to do before it waits again.
    pub fn turn(
        &mut self,
        until: Option<Instant>,
        happenings: &mut Vec<Happening<P>>,
    ) -> io::Result<bool> {
        self.turn_landing(until, happenings, &mut Nowhere)
    }

    /// The same. Bytes of frames that land go to `landing` while it reads, before any of these frames is told.
    pub fn turn_landing(
        &mut self,
        until: Option<Instant>,
        happenings: &mut Vec<Happening<P>>,
        landing: &mut dyn Landing,
    ) -> io::Result<bool> {
        self.flush();
        self.watch_door(Instant::now());
        let until = until.into_iter().chain(self.due()).min();
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        let mut ready = std::mem::take(&mut self.ready);
        self.poller.wait(timeout, &mut ready)?;
        // Who is to make room for who comes is heard first.
        ready.sort_by_key(|event| event.token >= LISTENERS && event.token != RUNG);
        let mut rung = false;
        for event in ready.drain(..) {
            if event.token == RUNG {
                rung = true;
                self.bell.silence();
                self.take_in(Instant::now());
                continue;
            }
            match event.token.checked_sub(LISTENERS) {
                Some(listener) => self.accept(listener as usize),
                None => self.serve(LinkId(event.token), event, happenings, landing),
            }
        }
        self.ready = ready;
        self.expire();
        let ended = self.ended.drain(..);
        happenings.extend(ended.map(|(link, why)| Happening::Closed { link, why }));
        Ok(rung)
    }

    /// Sends what the sockets take.
    pub fn flush(&mut self) {
        for id in std::mem::take(&mut self.dirty) {
            if let Some(open) = self.links.get_mut(&id) {
                open.dirty = false;
            }
            self.flush_one(id);
        }
    }

    fn flush_one(&mut self, id: LinkId) {
        let Some(open) = self.links.get_mut(&id) else { return };
        if open.stage == Stage::Connecting {
            return;
        }
        match open.link.flush() {
            Ok(all) => {
                if open.writing == all {
                    self.drained |= all;
                    open.writing = !all;
                    self.poller.watch_writing(&open.link, id.0, !all);
                }
                if open.link.unsent_bytes() > CONTROL_UNSENT_BYTES_MAX {
                    self.counters.slow_readers += 1;
                    self.end_broken(id, "it does not read what it is sent");
                }
            }
            Err(error) => self.end_broken(id, &error.to_string()),
        }
    }

    fn try_dial(&mut self, id: LinkId, text: &str) -> Result<Link, Gone> {
        let unfit = |why: String| Gone::Unfit { peer: text.to_string(), why };
        let address: Address =
            text.parse().map_err(|error: address::AddressError| unfit(error.to_string()))?;
        let tls = match &self.options.identity {
            _ if !address.is_tcp() => None,
            Some(identity) => {
                Some(identity.dialled(P::PURPOSE).map_err(|error| unfit(error.to_string()))?)
            }
            None => return Err(unfit("TCP needs the cluster's certificates".to_string())),
        };
        if let Address::Tcp(address) = &address {
            self.known.insert(address.ip().to_canonical());
        }
        let connected = address.connect().and_then(|socket| {
            let link = Link::new(socket, tls, NET_GREETING_BYTES_MAX);
            self.poller.add(&link, id.0, true)?;
            Ok(link)
        });
        connected.map_err(|error| gone_dialling(text, &error))
    }

    fn serve(
        &mut self,
        id: LinkId,
        event: Ready,
        happenings: &mut Vec<Happening<P>>,
        landing: &mut dyn Landing,
    ) {
        let Some(open) = self.links.get_mut(&id) else { return };
        if open.stage == Stage::Connecting {
            if !event.writable && !event.hung_up {
                return;
            }
            if let Err(error) =
                rustix::net::sockopt::socket_error(&open.link).and_then(|found| found)
            {
                let gone = gone_dialling(&open.peer, &error.into());
                self.end(id, gone);
                return;
            }
            open.stage = Stage::Greeting;
            open.writing = true;
        }
        if event.readable {
            self.read(id, happenings, landing);
        }
        self.flush_one(id);
    }

    fn end_broken(&mut self, id: LinkId, why: &str) {
        let Some(open) = self.links.get(&id) else { return };
        self.counters.broken += 1;
        let gone = Gone::Broken { peer: open.peer.clone(), why: why.to_string() };
        self.end(id, gone);
    }

    fn end(&mut self, id: LinkId, gone: Gone) {
        self.close(id);
        self.ended.push((id, gone));
    }

    fn insert(&mut self, id: LinkId, open: Open) {
        self.opens_by.insert((open.opens_by, id));
        self.links.insert(id, open);
    }

    fn new_id(&mut self) -> LinkId {
        self.next += 1;
        LinkId(self.next - 1)
    }
}

/// Readable when it wants a turn.
impl<P: Protocol> AsFd for Hub<P> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

impl Open {
    fn new(link: Link, stage: Stage, origin: Option<Origin>, peer: String) -> Self {
        Self {
            link,
            stage,
            origin,
            standing: None,
            peer,
            unfinished_bytes: 0,
            opens_by: Instant::now() + NET_OPENS_WITHIN,
            writing: stage == Stage::Connecting,
            dirty: false,
        }
    }
}

fn gone_dialling(address: &str, error: &io::Error) -> Gone {
    let address = address.to_string();
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Gone::Refused { address },
        _ => Gone::Broken { peer: address, why: error.to_string() },
    }
}
