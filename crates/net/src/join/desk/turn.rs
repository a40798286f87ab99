//! The desk's loop: reads and writes, and never waits for anybody.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, Instant};

use hoplo_base::limits::{
    JOIN_ANSWERS, JOIN_ASKS_MAX, NET_ACCEPTS_A_TURN, NET_OPENS_WITHIN, NET_STRANGER_GRACE,
};
use hoplo_wire::join::{Answer, Refused, Text};
use rustix::net::{RecvFlags, SocketFlags};

use super::unheard::Unheard;
use super::{Counters, Shared, Waiting, lock};
use crate::address;
use crate::door::{Door, Entry, Origin};
use crate::join::judge::Asked;
use crate::join::stranger::{Heard, Stranger};
use crate::link::{LinkId, ToSocket};
use crate::peer::Peer;
use crate::poll::{Bell, Poller, Ready};
use crate::protocol::Purpose;
use crate::records::Records;
use crate::tls::Identity;

/// The loop's own.
pub(super) struct Turn {
    pub(super) shared: Arc<Shared>,
    pub(super) bell: Bell,
    pub(super) poller: Poller<EVENTS_MAX>,
    pub(super) listener: OwnedFd,
    pub(super) door: Door,
    pub(super) came: BTreeMap<LinkId, Came>,
    pub(super) next: u64,
    /// Nothing is accepted until then.
    pub(super) shut_until: Option<Instant>,
    pub(super) identity: Identity,
    pub(super) is_known: Box<dyn Fn(IpAddr) -> bool + Send>,
    pub(super) tells: Box<dyn FnMut(String) + Send>,
    pub(super) unheard: Unheard,
    pub(super) peers: Box<dyn FnMut(Peer) + Send>,
    pub(super) asks: SyncSender<Waiting>,
}

pub(super) struct Came {
    socket: OwnedFd,
    stranger: Stranger,
    from: SocketAddr,
    stage: Stage,
    /// It took a place among those who ask.
    asked: bool,
    by: Instant,
    writing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Speaking,
    Asking,
    /// It was answered, and has to read that.
    Leaving,
}

pub(super) const EVENTS_MAX: usize = 64;
const SCRATCH_BYTES: usize = 4096;
pub(super) const RUNG: u64 = u64::MAX;
pub(super) const LISTENER: u64 = u64::MAX - 1;

impl Turn {
    pub(super) fn serve(mut self) {
        let mut ready = Vec::new();
        while !self.shared.ends.load(Ordering::Relaxed) {
            self.watch_door(Instant::now());
            let until = self.came.values().map(|it| it.by).chain(self.shut_until);
            let until = until.chain(self.unheard.due()).min();
            let timeout = until.map(|it| it.saturating_duration_since(Instant::now()));
            self.poller.wait(timeout, &mut ready).expect("epoll waits");
            // Who is to make room for who comes is heard first.
            ready.sort_by_key(|event| event.token == LISTENER);
            for event in ready.drain(..) {
                self.happens(event);
            }
            let answers = std::mem::take(&mut *lock(&self.shared.answers));
            for (link, answer) in answers {
                // It may have been told that it took too long.
                if self.came.get(&link).is_some_and(|it| it.stage == Stage::Asking) {
                    self.answer(link, &answer);
                }
            }
            self.expire(Instant::now());
            if let Some(text) = self.unheard.told(Instant::now()) {
                (self.tells)(text);
            }
        }
    }

    fn happens(&mut self, event: Ready) {
        match event.token {
            RUNG => self.bell.silence(),
            LISTENER => self.accept(),
            link => {
                let link = LinkId(link);
                if event.readable {
                    self.read(link);
                }
                self.write(link);
            }
        }
    }

    /// A listener that nobody serves would wake the loop for ever.
    fn watch_door(&mut self, now: Instant) {
        let short = self.shut_until.filter(|until| *until > now);
        let shut_until = self.door.shut_until(now).or(short);
        if shut_until.is_some() != self.shut_until.is_some() {
            self.poller.watch_reading(&self.listener, LISTENER, shut_until.is_none());
        }
        self.shut_until = shut_until;
    }

    fn accept(&mut self) {
        let now = Instant::now();
        for _ in 0..NET_ACCEPTS_A_TURN {
            if self.door.shut_until(now).is_some() {
                return;
            }
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (socket, from) = match rustix::net::acceptfrom_with(&self.listener, flags) {
                Ok((socket, Some(from))) => match SocketAddr::try_from(from) {
                    Ok(from) => (socket, from),
                    Err(_) => continue,
                },
                Ok((_, None)) => continue,
                // No descriptors: those that are open are given up in a moment.
                Err(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => {
                    self.poller.watch_reading(&self.listener, LISTENER, false);
                    self.shut_until = Some(now + NET_STRANGER_GRACE);
                    return;
                }
                // Nobody there any more.
                Err(_) => return,
            };
            self.knocks(now, socket, from);
        }
    }

    fn knocks(&mut self, now: Instant, socket: OwnedFd, from: SocketAddr) {
        let host = from.ip().to_canonical();
        let (origin, known) = (Origin::Host(host), (self.is_known)(host));
        match self.door.knock(now, origin, known) {
            Entry::Enters => {}
            Entry::InsteadOf(one) => {
                self.count(|it| it.turned_away += 1);
                if let Some(came) = self.close_but_for_socket(one) {
                    self.unheard.closed(now, came.from.ip().to_canonical(), true);
                }
            }
            Entry::TurnedAway => {
                self.unheard.closed(now, host, true);
                return self.count(|it| it.turned_away += 1);
            }
        }
        let link = LinkId(self.next);
        if address::tune(&socket).is_err() || self.poller.add(&socket, link.0, false).is_err() {
            return;
        }
        self.next += 1;
        let by = now + NET_OPENS_WITHIN;
        let (stage, stranger) = (Stage::Speaking, Stranger::new());
        let came = Came { socket, stranger, from, stage, asked: false, by, writing: false };
        self.came.insert(link, came);
        self.door.enters(now, link, origin, known);
        let open = self.came.len();
        self.count(|it| {
            it.accepted += 1;
            it.open = open;
            it.open_most = it.open_most.max(open);
        });
    }

    fn read(&mut self, link: LinkId) {
        let Some(came) = self.came.get_mut(&link) else { return };
        let mut scratch = [0; SCRATCH_BYTES];
        let bytes = match rustix::net::recv(&came.socket, &mut scratch, RecvFlags::empty()) {
            Ok((0, _)) => return self.close(link),
            Ok((bytes, _)) => bytes,
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => return,
            Err(_) => return self.close(link),
        };
        match came.stage {
            Stage::Speaking => self.door.spoke(link),
            // What it says after its message is nobody's business.
            Stage::Asking => return self.close(link),
            // Taken and dropped: bytes that nobody took would make the kernel drop the answer.
            Stage::Leaving => return,
        }
        match came.stranger.receive(&self.identity, &scratch[..bytes]) {
            Ok(Heard::Nothing) => {}
            Ok(Heard::Peer(purpose, tls)) => self.hand_on(link, purpose, tls),
            Ok(Heard::Asked(asked)) => self.asks(link, asked),
            Ok(Heard::Refused(refused)) => self.answer(link, &Answer::Refused(refused)),
            Err(_) => {
                self.count(|it| it.broken += 1);
                self.leaves(link);
            }
        }
    }

    fn hand_on(&mut self, link: LinkId, purpose: Purpose, tls: Box<Records>) {
        let Some(came) = self.close_but_for_socket(link) else { return };
        self.count(|it| it.handed_on += 1);
        (self.peers)(Peer { purpose, socket: came.socket, tls: *tls, from: came.from });
    }

    fn asks(&mut self, link: LinkId, asked: Box<Asked>) {
        let Some(host) = self.came.get(&link).map(|it| it.from.ip().to_canonical()) else { return };
        let asking = self.came.values().filter(|it| it.asked);
        let of_host = asking.clone().filter(|it| it.from.ip().to_canonical() == host);
        // DESK-1
        if asking.count() >= JOIN_ASKS_MAX || of_host.count() >= JOIN_ASKS_MAX / 2 {
            return self.answer(link, &Answer::Refused(Refused::Busy));
        }
        let by = Instant::now() + JOIN_ANSWERS;
        match self.asks.try_send(Waiting { link, asked, by }) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                return self.answer(link, &Answer::Refused(Refused::Busy));
            }
        }
        self.door.forget(link);
        let Some(came) = self.came.get_mut(&link) else { return };
        came.stage = Stage::Asking;
        came.asked = true;
        came.by = by;
    }

    fn answer(&mut self, link: LinkId, answer: &Answer) {
        let Some(came) = self.came.get_mut(&link) else { return };
        came.stranger.answer(answer);
        self.count(|it| match answer {
            Answer::Joined(_) => it.joined += 1,
            Answer::Refused(_) => it.refused += 1,
        });
        self.leaves(link);
        self.write(link);
    }

    /// It closes when it has read what it was told, or is closed.
    fn leaves(&mut self, link: LinkId) {
        self.door.leaves(link);
        let Some(came) = self.came.get_mut(&link) else { return };
        came.stage = Stage::Leaving;
        came.by = Instant::now() + LEAVES_WITHIN;
    }

    fn write(&mut self, link: LinkId) {
        let Some(came) = self.came.get_mut(&link) else { return };
        let Ok(all) = came.stranger.send(&mut ToSocket(&came.socket)) else {
            return self.close(link);
        };
        if came.writing == all {
            came.writing = !all;
            self.poller.watch_writing(&came.socket, link.0, !all);
        }
        if all && came.stage == Stage::Leaving {
            // Fails if it is gone already.
            let _ = rustix::net::shutdown(&came.socket, rustix::net::Shutdown::Write);
        }
    }

    fn expire(&mut self, now: Instant) {
        let late = self.came.iter().filter(|(_, it)| it.by <= now);
        let late: Vec<(LinkId, Stage)> = late.map(|(link, it)| (*link, it.stage)).collect();
        for (link, stage) in late {
            match stage {
                Stage::Speaking => {
                    self.count(|it| it.late += 1);
                    if let Some(came) = self.close_but_for_socket(link) {
                        self.unheard.closed(now, came.from.ip().to_canonical(), false);
                    }
                }
                Stage::Asking => {
                    self.count(|it| it.late += 1);
                    let why = Text::cut("the control store does not answer");
                    self.answer(link, &Answer::Refused(Refused::Unavailable { why }));
                }
                Stage::Leaving => self.close(link),
            }
        }
    }

    fn close(&mut self, link: LinkId) {
        drop(self.close_but_for_socket(link));
    }

    fn close_but_for_socket(&mut self, link: LinkId) -> Option<Came> {
        let came = self.came.remove(&link)?;
        self.poller.remove(&came.socket);
        self.door.forget(link);
        let open = self.came.len();
        self.count(|it| it.open = open);
        Some(came)
    }

    fn count(&self, change: impl FnOnce(&mut Counters)) {
        change(&mut lock(&self.shared.counters));
    }
}

/// After its answer.
const LEAVES_WITHIN: Duration = NET_STRANGER_GRACE.saturating_mul(2);
