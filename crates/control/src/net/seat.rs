//! The *seat* of the head (`hoplo_core::control::seat`, where its rules are), over a client of the control nodes.

use std::io::{self, ErrorKind};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hoplo_base::limits::{SEAT_AGAIN, SEAT_BEAT, SEAT_LOOK, SEAT_SILENT};
use hoplo_core::control::client::CallError;
use hoplo_core::control::rows::seat_key;
use hoplo_core::control::seat::{Beat, Candidate as Machine, Hold, Seat, Step};
use hoplo_core::control::{Entry, SeatEntry};
use hoplo_wire::control::Outcome;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::client::ControlClient;
use super::cluster::Cluster;

/// Nobody becomes head now.
#[derive(Debug, thiserror::Error)]
pub enum SeatError {
    #[error("the head of this cluster is at {address}")]
    Taken { address: String },
    #[error(
        "a backup is put back into the control nodes just now; if `hoplo control restore --from-backup` was stopped, run it once more"
    )]
    Restored,
    #[error("the control nodes do not say who is the head: {0}")]
    Store(String),
}

/// Of each call.
const WITHIN: Duration = Duration::from_secs(5);
/// An answer of a machine that lives comes in less.
const DIAL: Duration = Duration::from_millis(50);

/// Time of the machines: since it was made.
#[derive(Clone, Copy, Debug)]
struct Clock(Instant);

impl Clock {
    fn now(self) -> hoplo_base::Instant {
        hoplo_base::Instant(self.0.elapsed().as_nanos() as u64)
    }
}

/// A program that wants it.
pub struct Candidate {
    client: Arc<ControlClient>,
    machine: Machine,
    clock: Clock,
    /// To the head, of the last look: it ends with its process.
    head: Option<TcpStream>,
    /// Of so many looks in a row the connection ended.
    ended: u32,
}

impl Candidate {
    pub fn new(cluster: &Cluster) -> Result<Self, SeatError> {
        let client = ControlClient::connect(cluster);
        let client = Arc::new(client.map_err(|error| SeatError::Store(error.to_string()))?);
        let (machine, clock) = (Machine::default(), Clock(Instant::now()));
        Ok(Self { client, machine, clock, head: None, ended: 0 })
    }

    /// Whether it may be taken now; called after each [wait](Self::waits).
    pub fn look(&mut self) -> Result<bool, SeatError> {
        self.head = None;
        let row = self.client.get(seat_key(), WITHIN).map_err(store)?;
        let seat = row.as_ref().and_then(Seat::of);
        let holder = seat.as_ref().filter(|seat| seat.entry.holder.is_some());
        let (connection, refused) = holder.map_or((None, false), |it| dial(&it.entry.address));
        self.head = connection;
        Ok(self.machine.looked(self.clock.now(), seat, refused))
    }

    /// Between two looks: `SEAT_LOOK`, or until the head's connection ends, and then true.
    pub fn waits(&mut self) -> bool {
        let Some(head) = self.head.take() else {
            std::thread::sleep(SEAT_LOOK);
            return false;
        };
        let pause = self.pause();
        std::thread::sleep(pause);
        let within = Timespec { tv_sec: 0, tv_nsec: (SEAT_LOOK - pause).as_nanos() as i64 };
        let ready = poll(&mut [PollFd::new(&head, PollFlags::IN)], Some(&within));
        let ended = ready.is_ok_and(|ready| ready > 0);
        self.ended = if ended { self.ended.saturating_add(1) } else { 0 };
        ended
    }

    /// At least so long between two looks. A process that ends may still take connections when it has ended the one before; a head
    /// that lives, and ends each, is not looked for all the time.
    pub(crate) fn pause(&self) -> Duration {
        match self.ended {
            0 => Duration::ZERO,
            ended => (SEAT_AGAIN * (1 << (ended - 1).min(10))).min(SEAT_LOOK),
        }
    }

    fn taken(&self) -> SeatError {
        match self.machine.is_restored() {
            true => SeatError::Restored,
            false => {
                SeatError::Taken { address: self.machine.held_at().unwrap_or_default().to_string() }
            }
        }
    }

    /// Looks until it is clear whether somebody else has it. With the seat comes the client that was asked: who has it wants no other one.
    pub fn take(
        &mut self,
        holder: u64,
        address: &str,
    ) -> Result<(Taken, Arc<ControlClient>), SeatError> {
        // Who has just seen that it is free need not look again: the version says whether it is free still.
        if !self.machine.is_free() {
            self.look()?;
        }
        let expected = loop {
            match self.machine.take(self.clock.now()) {
                Step::Look => {
                    self.waits();
                    self.look()?;
                }
                Step::Taken => return Err(self.taken()),
                Step::Put { expected } => break expected,
            }
        };
        let entry = SeatEntry { holder: Some(holder), address: address.to_string(), beats: 0 };
        let sent = self.clock.now();
        let put = self.client.put(entry.key(), entry.to_value(), Some(expected), WITHIN);
        match put.map_err(store)? {
            Outcome::Done { version } => {
                let hold = Hold::new(Seat { entry, version }, sent);
                Ok((Taken { hold, clock: self.clock }, Arc::clone(&self.client)))
            }
            // SEAT-1
            Outcome::Conflict { .. } => {
                self.look()?;
                Err(self.taken())
            }
        }
    }
}

/// The seat, which is lost unless a [`Keeper`] starts soon.
#[derive(Debug)]
pub struct Taken {
    hold: Hold,
    clock: Clock,
}

/// Beats for a head; gives the seat back when it is dropped.
pub struct Keeper {
    ends: Option<Sender<()>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    hold: Mutex<Hold>,
    client: Mutex<Arc<ControlClient>>,
    clock: Clock,
    lost: Mutex<Option<String>>,
}

impl Keeper {
    /// `client`: by which it was taken. `wakes` is called when the seat is lost.
    pub fn start(
        client: Arc<ControlClient>,
        Taken { hold, clock }: Taken,
        wakes: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let (ends, ended) = channel();
        let (hold, client, lost) = (Mutex::new(hold), Mutex::new(client), Mutex::default());
        let shared = Arc::new(Shared { hold, client, clock, lost });
        let theirs = Arc::clone(&shared);
        let keep = move || {
            if let Some(why) = theirs.beat(&ended) {
                *lock(&theirs.lost) = Some(why);
                wakes();
            }
        };
        let thread = std::thread::Builder::new().name("hoplo:seat".to_string()).spawn(keep)?;
        Ok(Self { ends: Some(ends), shared, thread: Some(thread) })
    }

    /// From now on it writes by this one.
    pub fn writes_by(&self, client: Arc<ControlClient>) {
        *lock(&self.shared.client) = client;
    }

    /// SEAT-5
    pub fn is_certain(&self) -> bool {
        lock(&self.shared.hold).is_certain(self.shared.clock.now())
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

impl Shared {
    /// Until the other end of `ended` is gone. Why the seat is somebody else's, if it is.
    fn beat(&self, ended: &Receiver<()>) -> Option<String> {
        loop {
            let ends = ended.recv_timeout(SEAT_BEAT) == Err(RecvTimeoutError::Disconnected);
            let client = Arc::clone(&lock(&self.client));
            let mut next = lock(&self.hold).next(ends);
            if next == Beat::Read {
                match client.get(seat_key(), SEAT_SILENT) {
                    Ok(row) => {
                        let mut hold = lock(&self.hold);
                        if let Err(lost) = hold.has_read(row.as_ref()) {
                            return Some(lost.to_string());
                        }
                        next = hold.next(ends);
                    }
                    // Nobody can write now, nor take the seat.
                    Err(_) if ends => return None,
                    Err(_) => continue,
                }
            }
            let Beat::Write { entry, expected } = next else { continue };
            let sent = self.clock.now();
            let put = client.put(entry.key(), entry.to_value(), Some(expected), SEAT_SILENT);
            lock(&self.hold).has_written(entry, sent, put.as_ref().ok());
            if ends {
                return None;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn store(error: CallError) -> SeatError {
    SeatError::Store(error.to_string())
}

/// The connection, and whether its machine says that nobody listens there. Silence is no answer.
fn dial(address: &str) -> (Option<TcpStream>, bool) {
    let found = address.to_socket_addrs().ok().and_then(|mut found| found.next());
    match found.map(|at| TcpStream::connect_timeout(&at, DIAL)) {
        Some(Ok(connection)) => (Some(connection), false),
        Some(Err(error)) => (None, error.kind() == ErrorKind::ConnectionRefused),
        None => (None, false),
    }
}
