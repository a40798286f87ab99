//! Who comes: accepted a few at a time, or by somebody else; bounded until it said who it is (see [`crate::door`]).

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hoplo_base::limits::{
    NET_ACCEPTS_A_TURN, NET_DESCRIPTORS_KEPT, NET_GREETING_BYTES_MAX, NET_STRANGERS_KNOWN_MAX,
    NET_STRANGERS_MAX,
};
use rustix::event::EventfdFlags;
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::{Gone, Hub, LISTENERS, Listener, Open, Stage};
use crate::address;
use crate::descriptors;
use crate::door::{Door, Entry, Origin};
use crate::link::{Link, LinkId};
use crate::peer::Peer;
use crate::poll::Bell;
use crate::protocol::Protocol;
use crate::records::Records;

/// Descriptors for what others dial, by what is known of them.
pub(super) struct Room {
    pub(super) door: Door,
    /// Of those that are no members.
    pub(super) clients_max: usize,
    /// A descriptor to give up when there are no others: who waits to be accepted is told then.
    spare: Option<OwnedFd>,
    /// Nothing is accepted until then.
    shut_until: Option<Instant>,
}

/// Connections that a desk accepted for a hub, until its next turn.
#[derive(Clone)]
pub struct Intake {
    came: Arc<Mutex<Vec<Peer>>>,
    bell: Bell,
}

impl Intake {
    pub(super) fn new(bell: Bell) -> Self {
        Self { came: Arc::default(), bell }
    }

    /// From any thread. Closes it if the hub has not turned for so long that a full door waits here already.
    pub fn give(&self, peer: Peer) {
        let mut came = self.came();
        if came.len() < NET_STRANGERS_MAX {
            came.push(peer);
            self.bell.ring();
        }
    }

    fn came(&self) -> MutexGuard<'_, Vec<Peer>> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Room {
    /// Shares out what this process may have beyond what it has now.
    pub(super) fn measure() -> Self {
        let most = descriptors::most();
        let room = most.saturating_sub(descriptors::open());
        let kept = NET_DESCRIPTORS_KEPT.min(room / 2);
        let room = usize::try_from(room - kept).unwrap_or(usize::MAX);
        let strangers = NET_STRANGERS_MAX.min(room / 4).max(1);
        let known = NET_STRANGERS_KNOWN_MAX.min(room / 8).max(1);
        Self {
            door: Door::new(strangers, known),
            clients_max: room.saturating_sub(strangers + known).max(1),
            spare: spare(),
            shut_until: None,
        }
    }
}

impl<P: Protocol> Hub<P> {
    /// When it has to look at those who wait outside, if nobody inside moves.
    pub(super) fn opens_again(&self) -> Option<Instant> {
        self.room.as_ref().and_then(|room| room.shut_until)
    }

    /// Accepts again, or no longer: a listener that nobody serves would wake the loop for ever.
    pub(super) fn watch_door(&mut self, now: Instant) {
        let Some(room) = &mut self.room else { return };
        let shut_until = room.door.shut_until(now);
        if shut_until.is_some() != room.shut_until.is_some() {
            for (number, listener) in self.listeners.iter().enumerate() {
                let token = LISTENERS + number as u64;
                self.poller.watch_reading(&listener.socket, token, shut_until.is_none());
            }
        }
        room.shut_until = shut_until;
    }

    pub(super) fn accept(&mut self, listener: usize) {
        let now = Instant::now();
        for _ in 0..NET_ACCEPTS_A_TURN {
            let Some(room) = &mut self.room else { return };
            if room.door.shut_until(now).is_some() {
                return;
            }
            let Listener { socket, tcp } = &self.listeners[listener];
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (socket, from) = match rustix::net::acceptfrom_with(socket, flags) {
                Ok(found) => found,
                Err(Errno::MFILE | Errno::NFILE) if room.spare.take().is_some() => {
                    // Left alone, it would wake this loop for ever. The kernel says so even if nobody waits.
                    let waiting = rustix::net::accept_with(socket, flags).ok();
                    let is_last = waiting.is_none();
                    drop(waiting);
                    room.spare = spare();
                    if is_last {
                        return;
                    }
                    self.counters.turned_away += 1;
                    continue;
                }
                // Nobody there any more.
                Err(_) => return,
            };
            let origin = match from.map(SocketAddr::try_from) {
                Some(Ok(from)) if *tcp => Origin::Host(from.ip().to_canonical()),
                _ => Origin::Local,
            };
            let tls = match (&self.options.identity, origin) {
                (Some(identity), Origin::Host(_)) => identity.accepted(P::PURPOSE).map(Some),
                (None, _) | (_, Origin::Local) => Ok(None),
            };
            let tuned = origin == Origin::Local || address::tune(&socket).is_ok();
            if let (Ok(tls), true) = (tls, tuned) {
                self.knocks(now, socket, tls, origin);
            }
        }
    }

    /// What a desk accepted meanwhile. It handed on only those that it had room for; here they wait for their hello.
    pub(super) fn take_in(&mut self, now: Instant) {
        let Some(intake) = &self.intake else { return };
        let came = std::mem::take(&mut *intake.came());
        for Peer { socket, tls, from, .. } in came {
            let origin = Origin::Host(from.ip().to_canonical());
            if let Some(id) = self.knocks(now, socket, Some(tls), origin)
                && let Some(room) = &mut self.room
            {
                // To the desk.
                room.door.spoke(id);
            }
        }
    }

    fn knocks(
        &mut self,
        now: Instant,
        socket: OwnedFd,
        tls: Option<Records>,
        origin: Origin,
    ) -> Option<LinkId> {
        let known = self.is_known(origin);
        let room = self.room.as_mut()?;
        match room.door.knock(now, origin, known) {
            Entry::Enters => {}
            Entry::InsteadOf(one) => {
                self.counters.turned_away += 1;
                self.end_broken(one, "it did not say who it is, and others wait");
            }
            Entry::TurnedAway => {
                self.counters.turned_away += 1;
                return None;
            }
        }
        let id = LinkId(self.next);
        let link = Link::new(socket, tls, NET_GREETING_BYTES_MAX);
        if self.poller.add(&link, id.0, false).is_err() {
            return None;
        }
        self.next += 1;
        self.counters.accepted += 1;
        self.insert(id, Open::new(link, Stage::Greeting, Some(origin), describe(origin)));
        self.room.as_mut()?.door.enters(now, id, origin, known);
        // A desk has read the beginning of a handshake: it is to be answered, though nothing comes.
        self.mark_dirty(id);
        Some(id)
    }

    fn is_known(&self, origin: Origin) -> bool {
        match origin {
            Origin::Local => true,
            Origin::Host(host) => self.known.contains(&host),
        }
    }

    /// Whoever was let in, and is no member: whether there is room for it.
    pub(super) fn has_room(&self) -> Result<(), String> {
        let Some(room) = &self.room else { return Ok(()) };
        if self.clients < room.clients_max {
            return Ok(());
        }
        Err(format!(
            "{} clients are connected here, more than that its descriptors do not allow: raise the limit of open files",
            self.clients
        ))
    }

    pub(super) fn turned_away(&mut self, id: LinkId, why: String) {
        self.counters.turned_away += 1;
        let Some(open) = self.links.get_mut(&id) else { return };
        open.link.push::<P>(&P::refusal(why.clone()));
        let gone = Gone::Broken { peer: open.peer.clone(), why };
        self.end(id, gone);
    }
}

fn describe(origin: Origin) -> String {
    match origin {
        Origin::Local => "a peer".to_string(),
        Origin::Host(host) => format!("a peer at {host}"),
    }
}

fn spare() -> Option<OwnedFd> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC).ok()
}
