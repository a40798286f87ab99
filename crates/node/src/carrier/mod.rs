//! The daemon's thread for other nodes: heartbeats, probes, and verdicts about who lives.
//!
//! ```text
//!   decider --Told--> carrier    rows of the node table, what became of verdicts
//!   carrier --Word--> decider    verdicts to be written, and how this node stands
//!
//!   on a head        the judge (`hoplo_core::members`): hears heartbeats, probes
//!   on other nodes   `members::standing`: heartbeats to the head, and what it means when that is not heard
//! ```
//! It has a thread of its own so that a busy node is not taken for a dead one. It decides nothing that the deciding thread
//! decides: it feeds two machines, and passes on what they say.
//!
//! # Invariants
//! - CARRY-1: whoever speaks as a node has that node's certificate, or a control node's (`protocol`).
//! - CARRY-2: only a control node is believed what it says of a verdict or of where the head is, or asked to probe for.
//! - CARRY-3: a tick comes after everything that had arrived: a silence is none while words of it lie in a socket.
//! - CARRY-8: of a node nothing is heard before its row, which says where it is: the decider would not answer it (FAR-1).

pub(crate) mod bulk;
mod calls;
mod ground;
pub(crate) mod haul;
mod links;
mod protocol;
mod rings;
mod turn;
mod unreached;

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use hoplo_base::{NodeNumber, ProcessId};
use hoplo_control::net::cluster::Cluster;
use hoplo_core::control::NodeEntry;
use hoplo_core::members::Why;
use hoplo_core::node::Passing;
use hoplo_net::address::Address;
use hoplo_net::hub::{Hub, HubOptions, Intake};
use hoplo_net::poll::Bell;
use hoplo_shm::{CallerEnd, ProcessSlot, Segment, WorkerEnd};
use hoplo_wire::node::Obituary;
use hoplo_wire::peer::Peer;

use bulk::Bulk;
use calls::Calls;

use protocol::{Between, hello};
use turn::Turn;

pub(crate) struct Carrier {
    shared: Arc<Shared>,
    bell: Bell,
    /// It was told something, and not rung since.
    rings: Cell<bool>,
    thread: Option<JoinHandle<()>>,
    /// Where others dial this node.
    address: String,
}

/// From the deciding thread.
#[derive(Debug)]
pub(crate) enum Told {
    /// Of the node table, as of this entry of the store.
    Row { entry: Box<NodeEntry>, version: u64, index: u64 },
    /// What became of it: the row's version now, or another one was found there.
    Verdict { ticket: u64, stored: Option<u64> },
    /// The store did not answer.
    NoVerdict { ticket: u64 },
    /// Nothing runs at this node any more: the head is to declare it dead, for this reason.
    Leaves { why: String },
    /// The head was stopped for good: the others are told before the carrier ends.
    Over,

    /// To another node's decider.
    SendPeer { to: NodeNumber, cover: u64, message: Box<Peer> },
    /// The answer to `Passing`.
    Go { ticket: u64, cover: u64 },
    /// The channel of a process here to a worker of another node.
    Caller { caller: ProcessId, worker: ProcessId, end: WorkerEnd },
    /// A channel to a worker here, for a caller of another node.
    Worker { caller: ProcessId, worker: ProcessId, end: CallerEnd },
    /// Take calls back: answered by `Revoked`, or by `Ended`.
    RevokeFar { caller: ProcessId, worker: ProcessId, seqs: Vec<u64> },
    /// The caller is gone.
    CloseFar { caller: ProcessId, worker: ProcessId },
    /// A worker of this node is gone.
    WorkerGone { caller: ProcessId, worker: ProcessId, obituary: Obituary },
    /// Take everything that lies in rings, and say what names refs: answered by `Drained`.
    Drain { n: u64 },
}

/// To the deciding thread.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Word {
    /// That node's row, if it has this version, is to say that it is dead.
    Verdict {
        ticket: u64,
        number: NodeNumber,
        expected: u64,
        why: Why,
    },
    /// This node was declared dead, or has to take itself for it.
    Fenced {
        why: String,
    },
    /// The head says nothing, since then.
    HeadSilent {
        since: hoplo_base::Instant,
    },
    HeadHeard,
    /// This head is so late in hearing its nodes.
    Behind {
        by: Duration,
    },
    /// No connection to that node comes about, since then.
    Unreached {
        node: NodeNumber,
        since: hoplo_base::Instant,
    },
    Reached {
        node: NodeNumber,
    },
    /// There is no cluster any more.
    Over,
    /// The head of this cluster says that it listens there, and this node did not hear it elsewhere.
    Head {
        address: String,
    },

    /// Another node's decider says this.
    Peer {
        from: NodeNumber,
        cover: u64,
        message: Box<Peer>,
    },
    /// The row that `Told::Row` brought, behind all that came from that node.
    Member {
        entry: Box<NodeEntry>,
        index: u64,
    },
    /// Answered by `Go`.
    Passing {
        ticket: u64,
        frame: Passing,
    },
    Ended {
        caller: ProcessId,
        worker: ProcessId,
        unstarted: Vec<u64>,
        obituary: Obituary,
    },
    Revoked {
        caller: ProcessId,
        worker: ProcessId,
        seqs: Vec<u64>,
        kept: Vec<u64>,
    },
    /// A process of this node left nonsense in a ring.
    Broke {
        process: ProcessId,
        what: String,
    },
    /// The answer to `Drain`, behind all of that.
    Drained {
        n: u64,
    },
}

pub(crate) struct Shared {
    told: Mutex<Vec<Told>>,
    words: Mutex<VecDeque<Word>>,
    ends: AtomicBool,
    /// The deciding thread's.
    wake: Bell,
}

/// Which of the two machines runs.
pub(crate) enum Part {
    /// Its hub takes what the desk hands on, at the head's address. `seeks`: its store is where it is, so nodes have to find it there, and it
    /// tells those that it does not hear. (Where there are control nodes, nodes read in the store who is head.)
    Judge { address: String, seeks: bool },
    /// It listens at this address of the machine, and tells the head that it lives, which was there when it joined.
    Member { ip: IpAddr, head: String },
}

/// What tells that a node is on the same machine: its host's name and its address. Machines may have the same name, and network namespaces of one
/// machine are as far from each other as machines are.
pub(crate) struct Machine {
    hostname: String,
    host: String,
}

impl Machine {
    fn has(&self, node: &NodeEntry) -> bool {
        node.hostname == self.hostname && host_of(&node.address) == self.host
    }
}

fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

impl Carrier {
    /// `wake` rings when there are words.
    pub(crate) fn start(
        cluster: &Cluster,
        me: NodeNumber,
        hostname: String,
        part: Part,
        wake: Bell,
        segment: Arc<Segment>,
        bulk: Box<dyn Bulk>,
    ) -> io::Result<(Self, Intake)> {
        let hello = hello(cluster.id, me);
        let mut hub: Hub<Between> =
            Hub::new(HubOptions { hello, identity: cluster.identity.clone() })?;
        let intake = hub.intake();
        let (address, begin) = match part {
            Part::Judge { address, seeks } => {
                (address.clone(), turn::Begin::Judge { seeks_as: seeks.then_some(address) })
            }
            Part::Member { ip, head } => {
                let address = hub.listen(&Address::Tcp((ip, 0).into()))?.to_string();
                (address, turn::Begin::Member { head })
            }
        };
        let shared = Arc::new(Shared {
            told: Mutex::default(),
            words: Mutex::default(),
            ends: AtomicBool::new(false),
            wake,
        });
        let bell = hub.bell();
        let calls = Calls::new(me, random()?, segment, bulk);
        let machine = Machine { hostname, host: host_of(&address).to_string() };
        let turn = Turn::new(hub, me, machine, begin, calls, Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("hoplo:carrier".to_string());
        let thread = Some(thread.spawn(move || turn.run())?);
        let rings = Cell::new(false);
        Ok((Self { shared, bell, rings, thread, address }, intake))
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// What rings this thread, also from other processes.
    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// It is taken when `ring` is called, or before if the carrier is awake.
    pub(crate) fn tell(&self, told: Told) {
        self.tell_all([told]);
    }

    /// What it says of them is heard in one turn, too.
    pub(crate) fn tell_all(&self, told: impl IntoIterator<Item = Told>) {
        lock(&self.shared.told).extend(told);
        self.rings.set(true);
    }

    /// Once for all that one turn told: who is rung for each sends each to its node by itself, and every one of them wakes
    /// that node.
    pub(crate) fn ring(&self) {
        if self.rings.take() {
            self.bell.ring();
        }
    }

    pub(crate) fn words_waiting(&self) -> usize {
        lock(&self.shared.words).len()
    }

    /// The oldest one. They are taken one at a time, since a sweep, which one of them may end, takes those behind it: if somebody
    /// had taken several, these would overtake the rest of them.
    pub(crate) fn word(&self) -> Option<Word> {
        lock(&self.shared.words).pop_front()
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            let panicked = thread.join().is_err();
            assert!(!panicked || std::thread::panicking(), "the carrier panicked");
        }
    }
}

impl std::fmt::Debug for Carrier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Carrier").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Shared {
    fn say(&self, word: Word) {
        lock(&self.words).push_back(word);
        self.wake.ring();
    }

    fn say_all(&self, words: &mut Vec<Word>) {
        if !words.is_empty() {
            lock(&self.words).extend(words.drain(..));
            self.wake.ring();
        }
    }

    fn ended(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    fn has_told(&self) -> bool {
        !lock(&self.told).is_empty()
    }

    fn take(&self) -> Vec<Told> {
        std::mem::take(&mut *lock(&self.told))
    }
}

/// Where the carrier is rung: a slot that no process has.
fn slot() -> ProcessSlot {
    ProcessSlot::new(0).expect("there is one")
}

fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_le_bytes(bytes))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
