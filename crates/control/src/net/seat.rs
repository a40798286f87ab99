//! The *seat*: one row of the store that says who is the head, where several machines may be.
//!
//! ```text
//!   head      writes the row every SEAT_BEAT, each time under the version that it has
//!   stand-by  looks every SEAT_LOOK, and takes the seat under the version that it saw, when
//!                 nobody has it: its holder ended, and gave it back
//!                 or its holder's port refuses: that process is gone
//!                 or it did not change for SEAT_SILENT
//! ```
//! The store alone decides: who writes the row under its version has the seat. A head that finds somebody else in it is head no more, and
//! ends. While too few control nodes answer, nobody can write: then nobody becomes head, and the head goes on.
//!
//! # Invariants
//! - SEAT-1: of those that want the seat at a time, one gets it; its holder finds out with its next beat that it lost it.
//! - SEAT-2: silence counts only between looks that the store answered, none of them late: else it may be we that were not there.
//! - SEAT-3: a beat that got no answer may have been written: what is there is read before the next one.
//! - SEAT-4: beats come from a thread of their own ([`Keeper`]): a busy head is not a dead head.
//! - SEAT-5: a head that is cut off from the store and from nodes at a time declares none of them dead: it is not [certain](Keeper::is_certain) any
//!   more when it finds them silent. What it wrote then would come to the store when the cut is healed, before it hears that it is head no more.

use std::io::{self, ErrorKind};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hoplo_base::limits::{SEAT_BEAT, SEAT_CERTAIN, SEAT_LATE, SEAT_LOOK, SEAT_SILENT};
use hoplo_core::control::client::CallError;
use hoplo_core::control::rows::seat_key;
use hoplo_core::control::{Entry, SeatEntry};
use hoplo_wire::control::{Outcome, Row};

use super::client::ControlClient;
use super::cluster::Cluster;

/// What it is now, under which version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    pub entry: SeatEntry,
    pub version: u64,
}

impl Seat {
    fn of(row: &Row) -> Option<Self> {
        Some(Self { entry: SeatEntry::from_row(row).ok()?, version: row.version })
    }
}

/// Nobody becomes head now.
#[derive(Debug, thiserror::Error)]
pub enum SeatError {
    #[error("the head of this cluster is at {address}")]
    Taken { address: String },
    #[error("the control nodes do not say who is the head: {0}")]
    Store(String),
}

/// Of each call.
const WITHIN: Duration = Duration::from_secs(5);
/// An answer of a machine that lives comes in less.
const DIAL: Duration = Duration::from_millis(50);

/// Decides whether a seat may be taken, by one look after the other.
#[derive(Debug, Default)]
pub struct Watch {
    /// Which version it has had, and since when, as far as we looked.
    seen: Option<(u64, Instant)>,
    looked: Option<Instant>,
}

impl Watch {
    /// `seat`: as the store says; `refused`: nobody listens where its holder did.
    pub fn is_free(&mut self, now: Instant, seat: Option<&Seat>, refused: bool) -> bool {
        let late = self.looked.is_none_or(|at| now.saturating_duration_since(at) > SEAT_LATE);
        self.looked = Some(now);
        let Some(seat) = seat.filter(|seat| seat.entry.holder.is_some()) else { return true };
        match self.seen {
            Some((version, since)) if version == seat.version && !late => {
                refused || now.saturating_duration_since(since) >= SEAT_SILENT
            }
            // What refuses at the first look may be a head that begins: it takes the seat before it listens anew.
            Some(_) | None => {
                self.seen = Some((seat.version, now));
                false
            }
        }
    }
}

/// A program that wants it.
pub struct Candidate {
    client: ControlClient,
    watch: Watch,
    seat: Option<Seat>,
}

impl Candidate {
    pub fn new(cluster: &Cluster) -> Result<Self, SeatError> {
        let client = ControlClient::connect(cluster);
        let client = client.map_err(|error| SeatError::Store(error.to_string()))?;
        Ok(Self { client, watch: Watch::default(), seat: None })
    }

    /// Whether it may be taken now; called every `SEAT_LOOK`.
    pub fn look(&mut self) -> Result<bool, SeatError> {
        let row = self.client.get(seat_key(), WITHIN).map_err(store)?;
        self.seat = row.as_ref().and_then(Seat::of);
        let refused = self.held_at().is_some_and(refuses);
        Ok(self.watch.is_free(Instant::now(), self.seat.as_ref(), refused))
    }

    /// Where the head is, as of the last look.
    fn held_at(&self) -> Option<&str> {
        let held = self.seat.as_ref().filter(|seat| seat.entry.holder.is_some());
        held.map(|seat| seat.entry.address.as_str())
    }

    fn taken(&self) -> SeatError {
        SeatError::Taken { address: self.held_at().unwrap_or_default().to_string() }
    }

    /// The version of the seat, as of the last look.
    pub fn version(&self) -> u64 {
        self.seat.as_ref().map_or(0, |seat| seat.version)
    }

    /// Looks until it is clear whether somebody else has it: its holder's next beat tells. `found_free`: a version under which it was
    /// free already.
    pub fn take(
        mut self,
        holder: u64,
        address: &str,
        found_free: Option<u64>,
    ) -> Result<Seat, SeatError> {
        let mut free = self.look()? || found_free == Some(self.version());
        let known = self.version();
        let until = Instant::now() + SEAT_SILENT + SEAT_LATE;
        while !free {
            std::thread::sleep(SEAT_LOOK);
            free = self.look()?;
            if !free && (self.version() != known || Instant::now() > until) {
                return Err(self.taken());
            }
        }
        let expected = self.version();
        let entry = SeatEntry { holder: Some(holder), address: address.to_string(), beats: 0 };
        let put = self.client.put(entry.key(), entry.to_value(), Some(expected), WITHIN);
        match put.map_err(store)? {
            Outcome::Done { version } => Ok(Seat { entry, version }),
            // SEAT-1
            Outcome::Conflict { .. } => {
                self.look()?;
                Err(self.taken())
            }
        }
    }
}

/// Beats for a head; gives the seat back when it is dropped.
pub struct Keeper {
    ends: Option<Sender<()>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// When the last beat was sent that was written.
    beaten: Mutex<Instant>,
    lost: Mutex<Option<String>>,
}

impl Keeper {
    /// `wakes` is called when the seat is lost.
    pub fn start(
        cluster: &Cluster,
        seat: Seat,
        wakes: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let client = ControlClient::connect(cluster)?;
        let (ends, ended) = channel();
        let (beaten, lost) = (Mutex::new(Instant::now()), Mutex::default());
        let shared = Arc::new(Shared { beaten, lost });
        let theirs = Arc::clone(&shared);
        let keep = move || {
            if let Some(why) = beat(&client, seat, &ended, &theirs.beaten) {
                *lock(&theirs.lost) = Some(why);
                wakes();
            }
        };
        let thread = std::thread::Builder::new().name("hoplo:seat".to_string()).spawn(keep)?;
        Ok(Self { ends: Some(ends), shared, thread: Some(thread) })
    }

    /// SEAT-5
    pub fn is_certain(&self) -> bool {
        lock(&self.shared.beaten).elapsed() < SEAT_CERTAIN
    }

    /// Why this head is none any more; said once.
    pub fn lost(&self) -> Option<String> {
        lock(&self.shared.lost).take()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.ends = None;
        if let Some(thread) = self.thread.take() {
            // It panicked already where it did: nothing is left to be said.
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Until the other end of `ended` is gone. Why the seat is somebody else's, if it is.
fn beat(
    client: &ControlClient,
    mut seat: Seat,
    ended: &Receiver<()>,
    beaten: &Mutex<Instant>,
) -> Option<String> {
    let mut certain = true;
    loop {
        let ends = ended.recv_timeout(SEAT_BEAT) == Err(RecvTimeoutError::Disconnected);
        // SEAT-3
        if !certain {
            match client.get(seat_key(), SEAT_SILENT) {
                Ok(row) => match still_ours(&seat, row.as_ref()) {
                    Ok(found) => seat = found,
                    Err(why) => return Some(why),
                },
                // Nobody can write now, nor take the seat.
                Err(_) if ends => return None,
                Err(_) => continue,
            }
        }
        let holder = seat.entry.holder.filter(|_| !ends);
        let entry = SeatEntry { holder, beats: seat.entry.beats + 1, ..seat.entry.clone() };
        let sent = Instant::now();
        let put = client.put(entry.key(), entry.to_value(), Some(seat.version), SEAT_SILENT);
        match put {
            _ if ends => return None,
            Ok(Outcome::Done { version }) => {
                (seat, certain) = (Seat { entry, version }, true);
                *lock(beaten) = sent;
            }
            Ok(Outcome::Conflict { .. }) | Err(_) => certain = false,
        }
    }
}

/// As it is now, or why it is not ours any more.
fn still_ours(seat: &Seat, row: Option<&Row>) -> Result<Seat, String> {
    match row.and_then(Seat::of) {
        Some(found) if found.entry.holder == seat.entry.holder => Ok(found),
        Some(Seat { entry: SeatEntry { holder: Some(_), address, .. }, .. }) => {
            Err(format!("the head is at {address} now: this one wrote nothing for too long"))
        }
        Some(_) | None => Err("the control nodes know nothing of this head any more".to_string()),
    }
}

fn store(error: CallError) -> SeatError {
    SeatError::Store(error.to_string())
}

/// Its machine says that nobody listens there. Silence is no answer.
fn refuses(address: &str) -> bool {
    let found = address.to_socket_addrs().ok().and_then(|mut found| found.next());
    let dialled = found.map(|at| TcpStream::connect_timeout(&at, DIAL));
    dialled.is_some_and(|dialled| {
        dialled.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat(version: u64) -> Seat {
        let entry = SeatEntry { holder: Some(7), address: "a:1".to_string(), beats: version };
        Seat { entry, version }
    }

    /// Whether it is free at each look, `SEAT_LOOK` after the one before.
    fn looks(seats: impl IntoIterator<Item = (Option<Seat>, bool)>) -> Vec<bool> {
        let (mut watch, mut now) = (Watch::default(), Instant::now());
        let mut look = |(seat, refused): (Option<Seat>, bool)| {
            now += SEAT_LOOK;
            watch.is_free(now, seat.as_ref(), refused)
        };
        seats.into_iter().map(&mut look).collect()
    }

    #[test]
    fn a_seat_that_nobody_has_is_free() {
        let given_back = Seat { entry: SeatEntry { holder: None, ..seat(3).entry }, version: 3 };
        assert_eq!(looks([(None, false), (Some(given_back), false)]), [true, true]);
    }

    #[test]
    fn a_head_that_beats_keeps_it_and_one_that_does_not_loses_it() {
        let beats = (0..40).map(|n| (Some(seat(n / 3)), false));
        assert!(looks(beats).into_iter().all(|free| !free));
        let silent = looks((0..14).map(|_| (Some(seat(1)), false)));
        assert_eq!(silent.iter().position(|free| *free), Some(10), "after a second");
    }

    #[test]
    fn a_head_whose_port_refuses_is_gone_at_the_second_look() {
        assert_eq!(looks([(Some(seat(1)), true), (Some(seat(1)), true)]), [false, true]);
        let again = [(Some(seat(1)), true), (Some(seat(2)), true), (Some(seat(2)), false)];
        assert_eq!(looks(again), [false, false, false], "it beat meanwhile");
    }

    /// SEAT-2
    #[test]
    fn who_did_not_look_for_long_takes_no_silence_for_a_death() {
        let (mut watch, start) = (Watch::default(), Instant::now());
        assert!(!watch.is_free(start, Some(&seat(1)), false));
        let late = start + SEAT_SILENT * 3;
        assert!(!watch.is_free(late, Some(&seat(1)), true));
        let mut now = late;
        while now < late + SEAT_SILENT {
            assert!(!watch.is_free(now, Some(&seat(1)), false));
            now += SEAT_LOOK;
        }
        assert!(watch.is_free(now, Some(&seat(1)), false));
    }
}
