//! All connections of one process: listens, dials, shakes hands, and turns bytes into frames.
//!
//! ```text
//!   dial --> Connecting --> Greeting --Hello checked--> Open --> closed
//!   accept -----------------/   (who dialled speaks first, and is answered only if its Hello is good:
//!                                when it is Open for the one who dialled, it is for the other, too)
//! ```

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use hoplo_base::limits::{CONTROL_FRAME_BYTES_MAX, CONTROL_UNSENT_BYTES_MAX};
use rustix::event::EventfdFlags;
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::address::{self, Address};
use crate::link::{Filled, Link};
use crate::poll::{Bell, Poller, Ready};
use crate::protocol::{Meaning, Protocol};
use crate::tls::Identity;

/// A connection of this process, never used again after it closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(u64);

#[derive(Debug)]
pub enum Happening<P: Protocol> {
    /// Both sides know each other.
    Opened {
        link: LinkId,
        theirs: P::Hello,
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
    /// This process has as many descriptors as it may.
    pub turned_away: u64,
    pub refused_hellos: u64,
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
    next: u64,
    /// Links that have something to send.
    dirty: Vec<LinkId>,
    /// Ended, and not told yet.
    ended: Vec<(LinkId, Gone)>,
    ready: Vec<Ready>,
    scratch: Vec<u8>,
    counters: Counters,
    /// A descriptor to give up when there are no others: who waits to be accepted is told then.
    spare: Option<OwnedFd>,
}

struct Listener {
    socket: OwnedFd,
    tcp: bool,
}

struct Open {
    link: Link,
    stage: Stage,
    dialled: bool,
    /// For messages: the address, or who it said it is.
    peer: String,
    /// It must be open by then.
    opens_by: Option<Instant>,
    writing: bool,
    dirty: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    Greeting,
    Open,
}

/// To connect and to shake hands.
const OPENS_WITHIN: Duration = Duration::from_secs(2);
/// Until the other end is known, nobody sends us more than that.
const HELLO_BYTES_MAX: usize = 4096;
/// One connection, in one turn of the loop.
const TURN_BYTES_MAX: usize = 1 << 20;
const SCRATCH_BYTES: usize = 64 * 1024;
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
            next: 0,
            dirty: Vec::new(),
            ended: Vec::new(),
            ready: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES],
            counters: Counters::default(),
            spare: None,
        })
    }

    /// Where it listens now (a port of 0 becomes a real one).
    pub fn listen(&mut self, at: &Address) -> io::Result<Address> {
        if at.is_tcp() && self.options.identity.is_none() {
            return Err(io::Error::other("a TCP port needs the cluster's certificates"));
        }
        let (socket, bound) = at.listen()?;
        self.poller.add(&socket, LISTENERS + self.listeners.len() as u64, false)?;
        self.spare = self.spare.take().or_else(spare);
        self.listeners.push(Listener { socket, tcp: at.is_tcp() });
        Ok(bound)
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
                let open = Open::new(link, Stage::Connecting, true, text.to_string());
                self.links.insert(id, open);
            }
            Err(gone) => self.ended.push((id, gone)),
        }
        id
    }

    pub fn send(&mut self, id: LinkId, frame: &P::Frame) {
        let Some(open) = self.links.get_mut(&id) else { return };
        open.link.push::<P>(frame);
        if !std::mem::replace(&mut open.dirty, true) {
            self.dirty.push(id);
        }
    }

    /// Without a word from it any more, neither `Closed`. What was sent goes out as far as it can at once.
    pub fn close(&mut self, id: LinkId) {
        if let Some(mut open) = self.links.remove(&id) {
            let _ = open.link.flush();
            self.poller.remove(&open.link);
        }
    }

    /// Rings the loop awake, from any thread.
    pub fn bell(&self) -> Bell {
        self.bell.clone()
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Sends what is to be sent, waits until something happens (or `until`), and tells it.
    pub fn turn(
        &mut self,
        until: Option<Instant>,
        happenings: &mut Vec<Happening<P>>,
    ) -> io::Result<()> {
        self.flush();
        let opens_by = self.links.values().filter_map(|open| open.opens_by).min();
        let until = until.into_iter().chain(opens_by).min();
        let timeout = match until {
            _ if !self.ended.is_empty() => Some(Duration::ZERO),
            Some(until) => Some(until.saturating_duration_since(Instant::now())),
            None => None,
        };
        let mut ready = std::mem::take(&mut self.ready);
        self.poller.wait(timeout, &mut ready)?;
        for event in ready.drain(..) {
            if event.token == RUNG {
                self.bell.silence();
                continue;
            }
            match event.token.checked_sub(LISTENERS) {
                Some(listener) => self.accept(listener as usize),
                None => self.serve(LinkId(event.token), event, happenings),
            }
        }
        self.ready = ready;
        self.expire();
        let ended = self.ended.drain(..);
        happenings.extend(ended.map(|(link, why)| Happening::Closed { link, why }));
        Ok(())
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

    fn try_dial(&self, id: LinkId, text: &str) -> Result<Link, Gone> {
        let unfit = |why: String| Gone::Unfit { peer: text.to_string(), why };
        let address: Address =
            text.parse().map_err(|error: address::AddressError| unfit(error.to_string()))?;
        let tls = match &self.options.identity {
            _ if !address.is_tcp() => None,
            Some(identity) => Some(identity.dialled().map_err(|error| unfit(error.to_string()))?),
            None => return Err(unfit("TCP needs the cluster's certificates".to_string())),
        };
        let connected = address.connect().and_then(|socket| {
            let link = Link::new(socket, tls, HELLO_BYTES_MAX);
            self.poller.add(&link, id.0, true)?;
            Ok(link)
        });
        connected.map_err(|error| gone_dialling(text, &error))
    }

    fn accept(&mut self, listener: usize) {
        loop {
            let Listener { socket, tcp } = &self.listeners[listener];
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match rustix::net::accept_with(socket, flags) {
                Ok(socket) => socket,
                Err(Errno::MFILE | Errno::NFILE) if self.spare.take().is_some() => {
                    // Left alone, it would wake this loop for ever. The kernel says so even if nobody waits.
                    let waiting = rustix::net::accept_with(socket, flags).ok();
                    let is_last = waiting.is_none();
                    drop(waiting);
                    self.spare = spare();
                    if is_last {
                        return;
                    }
                    self.counters.turned_away += 1;
                    continue;
                }
                // Nobody there any more.
                Err(_) => return,
            };
            let id = LinkId(self.next);
            let tls = match &self.options.identity {
                Some(identity) if *tcp => identity.accepted().map(Some),
                _ => Ok(None),
            };
            let Ok(tls) = tls else { continue };
            if *tcp && address::tune(&socket).is_err() {
                continue;
            }
            let link = Link::new(socket, tls, HELLO_BYTES_MAX);
            if self.poller.add(&link, id.0, false).is_err() {
                continue;
            }
            self.next += 1;
            self.counters.accepted += 1;
            let open = Open::new(link, Stage::Greeting, false, "a peer".to_string());
            self.links.insert(id, open);
        }
    }

    fn serve(&mut self, id: LinkId, event: Ready, happenings: &mut Vec<Happening<P>>) {
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
            self.read(id, happenings);
        }
        self.flush_one(id);
    }

    fn read(&mut self, id: LinkId, happenings: &mut Vec<Happening<P>>) {
        let Some(open) = self.links.get_mut(&id) else { return };
        let filled = open.link.fill(&mut self.scratch, TURN_BYTES_MAX);
        loop {
            let Some(open) = self.links.get_mut(&id) else { return };
            match open.link.take::<P>() {
                Ok(Some(frame)) => match (P::meaning(frame), open.stage) {
                    (Meaning::Refusal(why), _) => {
                        let gone = Gone::Unfit { peer: open.peer.clone(), why };
                        self.end(id, gone);
                    }
                    (Meaning::Other(frame), Stage::Open) => {
                        happenings.push(Happening::Frame { link: id, frame });
                    }
                    (Meaning::Hello(theirs), Stage::Connecting | Stage::Greeting) => {
                        self.greeted(id, theirs, happenings);
                    }
                    (Meaning::Hello(_), Stage::Open) => self.out_of_turn(id, "a second hello came"),
                    (Meaning::Other(frame), Stage::Connecting | Stage::Greeting) => {
                        let why = format!("{} came instead of a hello", P::name(&frame));
                        self.out_of_turn(id, &why);
                    }
                },
                Ok(None) => break,
                Err(error) => {
                    self.out_of_turn(id, &error.to_string());
                }
            }
        }
        match filled {
            Ok(Filled::Dry | Filled::More) => {}
            Ok(Filled::Closed) => self.end_broken(id, "the other end closed the connection"),
            // TLS says so: trying again is of no use.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let Some(open) = self.links.get(&id) else { return };
                let gone = Gone::Unfit { peer: open.peer.clone(), why: error.to_string() };
                self.counters.broken += 1;
                self.end(id, gone);
            }
            Err(error) => self.end_broken(id, &error.to_string()),
        }
    }

    /// NET-2: what has no business here ends the connection.
    fn out_of_turn(&mut self, id: LinkId, why: &str) {
        let Some(open) = self.links.get_mut(&id) else { return };
        self.counters.bad_frames += 1;
        open.link.push::<P>(&P::refusal(why.to_string()));
        self.end_broken(id, why);
    }

    /// The first frame of the other end.
    fn greeted(&mut self, id: LinkId, theirs: P::Hello, happenings: &mut Vec<Happening<P>>) {
        let Some(open) = self.links.get_mut(&id) else { return };
        let ours = &self.options.hello;
        if let Some(why) = P::mismatch(ours, &theirs) {
            self.counters.refused_hellos += 1;
            open.link.push::<P>(&P::refusal(why.clone()));
            let gone = Gone::Unfit { peer: open.peer.clone(), why };
            self.end(id, gone);
            return;
        }
        open.stage = Stage::Open;
        open.opens_by = None;
        open.link.allow(CONTROL_FRAME_BYTES_MAX);
        if !open.dialled {
            open.peer = P::describe(&theirs);
            open.link.push::<P>(&P::hello(ours.clone()));
        }
        let dialled = open.dialled;
        happenings.push(Happening::Opened { link: id, theirs, dialled });
    }

    fn expire(&mut self) {
        let now = Instant::now();
        let late = self.links.iter().filter(|(_, open)| open.opens_by.is_some_and(|by| by <= now));
        let late: Vec<LinkId> = late.map(|(id, _)| *id).collect();
        for id in late {
            self.end_broken(id, "no answer in time");
        }
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

    fn new_id(&mut self) -> LinkId {
        self.next += 1;
        LinkId(self.next - 1)
    }
}

impl Open {
    fn new(link: Link, stage: Stage, dialled: bool, peer: String) -> Self {
        let opens_by = Some(Instant::now() + OPENS_WITHIN);
        let writing = stage == Stage::Connecting;
        Self { link, stage, dialled, peer, opens_by, writing, dirty: false }
    }
}

fn spare() -> Option<OwnedFd> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC).ok()
}

fn gone_dialling(address: &str, error: &io::Error) -> Gone {
    let address = address.to_string();
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Gone::Refused { address },
        _ => Gone::Broken { peer: address, why: error.to_string() },
    }
}
