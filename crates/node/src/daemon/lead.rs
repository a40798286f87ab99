//! What a head over control nodes has besides the store of one that joined: the seat, a desk, and copies of rows.
//!
//! A head with a store of its own reads rows whenever it wants. This one has *copies*: of the tables of which a new head makes
//! something ([`RECALLED`]), as they were when it began; and of what detached actors left (`hoplo_core::node`, wills), read anew at each death.
//!
//! ```text
//!   a row says that a node died --> held, and what follows it --> actors and jobs are read, in a thread --> passed on, in order
//! ```
//! So whoever hears of a death can read the wills of that moment, and the deciding thread waits for no control node.
//!
//! # Invariants
//! - LEAD-1: who is named as a dead node's heir is not dead by an earlier entry of the store: what this head wrote is counted before it
//!   comes back to it.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Arc, OnceLock};

use hoplo_base::NodeNumber;
use hoplo_control::net::client::ControlClient;
use hoplo_control::net::cluster::Cluster;
use hoplo_control::net::driver::Driver;
use hoplo_control::net::head::Founded;
use hoplo_control::net::registry::StoreRegistry;
use hoplo_control::net::seat::{Candidate, Keeper, SeatError};
use hoplo_core::control::rows::{node_key, node_of_key};
use hoplo_core::control::{
    ActorEntry, ControlStore, Entry, MemoryStore, NodeEntry, NodeState, Table, store,
};
use hoplo_core::node::Rows;
use hoplo_net::join::{Desk, Unavailable};
use hoplo_net::poll::Bell;
use hoplo_wire::control::{Change, Key};

use super::far::Far;
use super::random_u32;
use crate::error::StartError;
use crate::journal;

pub(super) struct Lead {
    pub(super) registry: StoreRegistry,
    pub(super) desk: Option<Desk>,
    seat: Keeper,
    copies: MemoryStore,
    /// Of which it wrote that they are dead, and has not read it yet.
    buried: BTreeSet<NodeNumber>,
    /// Changes of the node table behind a death whose wills are being read.
    held: Vec<Change>,
    reading: Option<Reading>,
    cluster: Cluster,
    wake: Bell,
}

/// The seat, and what was begun with it: who waited for it takes it before the rest of its daemon is made, so that others go on waiting.
pub(crate) struct Seated {
    seat: Keeper,
    /// By which it was taken.
    client: Arc<ControlClient>,
    /// What is rung when the seat is lost, once it is there.
    bell: Arc<OnceLock<Bell>>,
}

impl Seated {
    /// `address`: where this process listens already.
    pub(crate) fn take(candidate: &mut Candidate, address: SocketAddr) -> Result<Self, StartError> {
        let life = u64::from(random_u32()?) << 32 | u64::from(random_u32()?);
        let (seat, client) = candidate.take(life, &address.to_string())?;
        let bell = Arc::new(OnceLock::<Bell>::new());
        let rings = Arc::clone(&bell);
        let wakes = move || rings.get().into_iter().for_each(Bell::ring);
        let seat = Keeper::start(Arc::clone(&client), seat, wakes)?;
        Ok(Self { seat, client, bell })
    }
}

struct Reading {
    /// So many of those that are held wait for it.
    covers: usize,
    rows: Receiver<Result<MemoryStore, Unavailable>>,
}

/// What a new head makes something of.
const RECALLED: [Table; 6] =
    [Table::Node, Table::Job, Table::Function, Table::Task, Table::Actor, Table::PlacementGroup];

impl Lead {
    /// It takes the seat unless it has it, or is no head. With the store as one that joined has it, the rows that were there before, and its number.
    pub(super) fn begin(
        founded: &Founded,
        seated: Option<Seated>,
        wake: Bell,
        row: impl Fn(NodeNumber) -> NodeEntry,
    ) -> Result<(Self, Far, Rows, NodeNumber), StartError> {
        let cluster = founded.cluster().clone();
        let take = || Seated::take(&mut Candidate::new(&cluster)?, founded.address());
        let Seated { seat, client, bell } = seated.map_or_else(take, Ok)?;
        // It may be lost already.
        bell.get_or_init(|| wake.clone()).ring();
        let mut registry = StoreRegistry::by(client, cluster.clone());
        let late = |error: Unavailable| StartError::Seat(SeatError::Store(error.why));
        let copies = registry.copy(&RECALLED).map_err(late)?;
        let numbers =
            rows_of(&copies, Table::Node).into_iter().map(|(key, _)| node_of_key(&key.bytes));
        let node = registry.add_head(random_u32()?, numbers.max().flatten(), row).map_err(late)?;
        // By the connections that are there: the ones of `far` are made meanwhile.
        let nodes = registry.nodes().map_err(late)?;
        let driver = Driver::new(&cluster).map_err(StartError::Io)?;
        let far = Far::knowing(driver, nodes.rows, nodes.indexes);
        let rows = Rows::read(&copies);
        let (desk, buried, held, reading) = (None, BTreeSet::new(), Vec::new(), None);
        let lead = Self { registry, desk, seat, copies, buried, held, reading, cluster, wake };
        Ok((lead, far, rows, node))
    }

    /// It asks the control nodes by a certificate of its own, which is renewed. Who waited for the seat had another one.
    pub(super) fn asks_by_its_own(&mut self) -> io::Result<()> {
        let client = Arc::new(ControlClient::connect(&self.cluster)?);
        self.seat.writes_by(Arc::clone(&client));
        self.registry = StoreRegistry::by(client, self.cluster.clone());
        Ok(())
    }

    /// Why it is head no more, if it was; said once.
    pub(super) fn lost_seat(&self) -> Option<String> {
        self.seat.lost()
    }

    /// What it says of others is to be written (SEAT-5).
    pub(super) fn is_certain(&self) -> bool {
        self.seat.is_certain()
    }

    pub(super) fn copies(&self) -> &MemoryStore {
        &self.copies
    }

    pub(super) fn buries(&mut self, node: NodeNumber) {
        self.buried.insert(node);
    }

    pub(super) fn spares(&mut self, node: NodeNumber) {
        self.buried.remove(&node);
    }

    /// LEAD-1
    pub(super) fn is_dead(&self, node: NodeNumber) -> bool {
        let row = || self.copies.get(&node_key(node));
        let is_dead = |row| NodeEntry::from_row(&row).is_ok_and(|entry| entry.state.is_dead());
        self.buried.contains(&node) || row().is_some_and(is_dead)
    }

    /// What it writes itself at its beginning.
    pub(super) fn copy(&mut self, key: Key, value: Vec<u8>) {
        let put = self.copies.put(key, value);
        put.expect("a store in memory takes everything");
    }

    /// Changes of the node table, in order: those that may be passed on now.
    pub(super) fn pass(&mut self, changes: Vec<Change>) -> Vec<Change> {
        self.held.extend(changes);
        if let Some(Reading { covers, rows }) = self.reading.take() {
            match rows.try_recv() {
                Err(TryRecvError::Empty) => {
                    self.reading = Some(Reading { covers, rows });
                    return Vec::new();
                }
                Ok(Ok(read)) => {
                    for table in [Table::Actor, Table::Job] {
                        // Actors that ended since then have no will.
                        for (key, _) in rows_of(&self.copies, table) {
                            let gone = self.copies.delete(&key);
                            gone.expect("a store in memory takes everything");
                        }
                        for (key, value) in rows_of(&read, table) {
                            self.copy(key, value);
                        }
                    }
                }
                Ok(Err(Unavailable { why })) => {
                    journal::log(format_args!(
                        "the wills of a dead node's actors were not read: {why}"
                    ));
                }
                Err(TryRecvError::Disconnected) => {}
            }
            return self.release(covers);
        }
        self.release(0)
    }

    /// The first `covered`, and what follows up to the next death.
    fn release(&mut self, covered: usize) -> Vec<Change> {
        let dies = |change: &Change| self.is_new_death(change);
        let free = self.held[covered..].iter().position(dies).map(|at| covered + at);
        let passed: Vec<Change> = match free {
            None => self.held.drain(..).collect(),
            Some(at) => {
                let passed = self.held.drain(..at).collect();
                self.read();
                passed
            }
        };
        for Change { key, row, .. } in &passed {
            if let Some(row) = row {
                if let Ok(entry) = NodeEntry::from_row(row)
                    && entry.state.is_dead()
                {
                    self.buried.remove(&entry.node);
                }
                self.copy(key.clone(), row.value.clone());
            }
        }
        passed
    }

    fn is_new_death(&self, change: &Change) -> bool {
        let state = |value: Option<NodeEntry>| value.map(|entry| entry.state);
        let now = state(change.row.as_ref().and_then(|row| NodeEntry::from_row(row).ok()));
        let before = self.copies.get(&change.key);
        let before = state(before.and_then(|row| NodeEntry::from_row(&row).ok()));
        matches!(now, Some(NodeState::Dead { .. })) && !before.is_some_and(|it| it.is_dead())
    }

    /// For all deaths that are held now.
    fn read(&mut self) {
        let (tells, rows) = sync_channel(1);
        let (mut registry, wake) = (StoreRegistry::new(self.cluster.clone()), self.wake.clone());
        let read = move || {
            let read = registry.copy_if(&[Table::Job, Table::Actor], |table, row| {
                table != Table::Actor
                    || ActorEntry::from_row(row).is_ok_and(|entry| entry.will.is_some())
            });
            // Nobody hears it when this head ends.
            let _ = tells.send(read);
            wake.ring();
        };
        let thread = std::thread::Builder::new().name("hoplo:wills".to_string()).spawn(read);
        if let Err(error) = thread {
            journal::log(format_args!("the wills of a dead node's actors are not read: {error}"));
        }
        self.reading = Some(Reading { covers: self.held.len(), rows });
    }
}

fn rows_of(store: &MemoryStore, table: Table) -> Vec<(Key, Vec<u8>)> {
    let mut rows = Vec::new();
    store::rows(store, table, |key, row| {
        rows.push((Key { table, bytes: key.to_vec() }, row.value.clone()));
    });
    rows
}

impl std::fmt::Debug for Lead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lead").field("held", &self.held.len()).finish_non_exhaustive()
    }
}
