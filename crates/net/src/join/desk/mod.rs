//! Holds a port, and serves those who want to join. One thread reads and writes, and never waits for anybody; another one,
//! the clerk, asks the control store and signs.
//!
//! ```text
//!   comes --door--> Speaking --asked, there is room--> Asking --clerk--> Leaving --> gone
//!                      |  \--no such message, or no room------------------/
//!                      \--not to join--> handed on
//! ```
//! # Invariants
//! - DESK-1: those that are Speaking are bounded by the door; those that asked and are not gone by `JOIN_ASKS_MAX`, half of them
//!   from one address: the rest hears that it is to come again.
//! - DESK-2: every connection has a deadline, which moves on only when its stage does.

mod turn;
mod unheard;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

use hoplo_base::limits::{JOIN_ASKS_MAX, NET_STRANGERS_KNOWN_MAX, NET_STRANGERS_MAX};
use hoplo_wire::join::Answer;

use super::judge::{Asked, Registry, accept};
use crate::authority::Authority;
use crate::descriptors;
use crate::door::Door;
use crate::link::LinkId;
use crate::name::Role;
use crate::peer::Peer;
use crate::poll::{Bell, Poller};
use crate::tls::Identity;
use crate::token::Fingerprint;
use turn::{LISTENER, RUNG, Turn};
use unheard::Unheard;

pub struct DeskOptions {
    /// A control node's.
    pub identity: Identity,
    pub authority: Authority,
    pub registry: Box<dyn Registry>,
    /// Whether a member of the cluster is at that address. Asked on the desk's thread.
    pub is_known: Box<dyn Fn(IpAddr) -> bool + Send>,
    /// What people are to know. Called on the desk's thread.
    pub tells: Box<dyn FnMut(String) + Send>,
    /// Takes who does not want to join. Called on the desk's thread, so it must not wait.
    pub peers: Box<dyn FnMut(Peer) + Send>,
}

#[derive(Debug, thiserror::Error)]
pub enum DeskError {
    #[error("{path} is that of a {role}: only a control node lets others join")]
    NotControl { path: PathBuf, role: Role },
    #[error("{path} is not by the authority that is here ({here}): both are of one folder")]
    OtherAuthority { path: PathBuf, here: Fingerprint },
    #[error("nobody can join: {0}")]
    Io(#[from] io::Error),
}

/// What happened so far, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub accepted: u64,
    /// There was no room, or somebody had to make room.
    pub turned_away: u64,
    pub handed_on: u64,
    pub joined: u64,
    pub refused: u64,
    pub broken: u64,
    /// They did not say in time what they want, or the store did not answer in time.
    pub late: u64,
    /// Connections now.
    pub open: usize,
    pub open_most: usize,
}

/// While it lives, others can join.
pub struct Desk {
    shared: Arc<Shared>,
    bell: Bell,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    counters: Mutex<Counters>,
    /// By the clerk; taken by the loop when the bell rings.
    answers: Mutex<Vec<(LinkId, Answer)>>,
    /// Read by both threads; the bell, or the end of their channel, wakes them.
    ends: AtomicBool,
}

impl Desk {
    /// `listener`: see [`super::listen`].
    pub fn open(listener: OwnedFd, options: DeskOptions) -> Result<Self, DeskError> {
        let DeskOptions { identity, authority, registry, is_known, tells, peers } = options;
        let (path, role) = (identity.path(), identity.certificate().name.role);
        if role != Role::Control {
            return Err(DeskError::NotControl { path, role });
        }
        let here = authority.fingerprint();
        if identity.authority() != here {
            return Err(DeskError::OtherAuthority { path, here });
        }
        let poller = Poller::new()?;
        let bell = poller.bell(RUNG)?;
        poller.add(&listener, LISTENER, false)?;
        let shared = Arc::new(Shared {
            counters: Mutex::default(),
            answers: Mutex::default(),
            ends: AtomicBool::new(false),
        });
        let (asks, asked) = sync_channel(JOIN_ASKS_MAX);
        let clerk =
            Clerk { registry, authority, asked, shared: Arc::clone(&shared), bell: bell.clone() };
        let most = usize::try_from(descriptors::most()).unwrap_or(usize::MAX);
        let turn = Turn {
            door: Door::new(NET_STRANGERS_MAX.min(most / 4), NET_STRANGERS_KNOWN_MAX.min(most / 8)),
            shared: Arc::clone(&shared),
            bell: bell.clone(),
            came: BTreeMap::new(),
            next: 0,
            shut_until: None,
            poller,
            listener,
            identity,
            is_known,
            tells,
            unheard: Unheard::default(),
            peers,
            asks,
        };
        let mut desk = Self { shared, bell, threads: Vec::new() };
        desk.threads.push(thread("hoplo-clerk", move || clerk.serve())?);
        desk.threads.push(thread("hoplo-desk", move || turn.serve())?);
        Ok(desk)
    }

    pub fn counters(&self) -> Counters {
        *lock(&self.shared.counters)
    }
}

impl Drop for Desk {
    /// Waits for what the clerk asks the store just now, and for no connection.
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        self.bell.ring();
        // The loop ends first, and its end of the channel ends the clerk.
        while let Some(thread) = self.threads.pop() {
            let panicked = thread.join().is_err();
            assert!(!panicked || std::thread::panicking(), "a thread of the desk panicked");
        }
    }
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_string()).spawn(run)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Clerk {
    registry: Box<dyn Registry>,
    authority: Authority,
    asked: Receiver<Waiting>,
    shared: Arc<Shared>,
    bell: Bell,
}

impl Clerk {
    fn serve(mut self) {
        while let Ok(first) = self.asked.recv() {
            if self.shared.ends.load(Ordering::Relaxed) {
                return;
            }
            // The desk bounds how many they are (DESK-1).
            let mut all: Vec<Waiting> = [first].into_iter().chain(self.asked.try_iter()).collect();
            all.retain(|waiting| Instant::now() < waiting.by);
            let now = SystemTime::now();
            let asked = all.iter().map(|waiting| &*waiting.asked);
            let each = accept(asked, &mut *self.registry, &self.authority, now);
            for (waiting, accepted) in all.iter().zip(each) {
                let answer = match accepted {
                    Ok(accepted) => accepted.answer(&self.authority, now),
                    Err(why) => Answer::Refused(why),
                };
                lock(&self.shared.answers).push((waiting.link, answer));
                self.bell.ring();
            }
        }
    }
}

/// For the clerk.
struct Waiting {
    link: LinkId,
    asked: Box<Asked>,
    /// Nobody waits any more then.
    by: Instant,
}
