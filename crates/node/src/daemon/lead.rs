//! What a head over control nodes has besides the store of one that joined: the seat, a desk, and copies of rows (`hoplo_core::node::copies`, which
//! decides what is read and passed on when). It reads in a thread of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Arc, OnceLock};

use hoplo_base::NodeNumber;
use hoplo_base::limits::LEAD_READS_AGAIN;
use hoplo_control::net::client::ControlClient;
use hoplo_control::net::cluster::Cluster;
use hoplo_control::net::driver::Driver;
use hoplo_control::net::head::Founded;
use hoplo_control::net::registry::StoreRegistry;
use hoplo_control::net::seat::{Candidate, Keeper, SeatError};
use hoplo_core::control::{MemoryStore, NodeEntry};
use hoplo_core::node::Rows;
use hoplo_core::node::copies::{Copies, READ_AT_A_DEATH, RECALLED, is_left_by_the_dead};
use hoplo_net::join::{Desk, Unavailable};
use hoplo_net::poll::Bell;
use hoplo_wire::control::Change;

use super::far::Far;
use super::random_u32;
use crate::error::StartError;
use crate::journal;

pub(super) struct Lead {
    pub(super) registry: StoreRegistry,
    pub(super) desk: Option<Desk>,
    seat: Keeper,
    pub(super) copies: Copies,
    /// What the dead leave.
    reading: Option<Receiver<Result<MemoryStore, Unavailable>>>,
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
        let rows = Rows::read(&copies);
        let node = registry.add_head(random_u32()?, rows.last_number(), row).map_err(late)?;
        // By the connections that are there: the ones of `far` are made meanwhile.
        let nodes = registry.nodes().map_err(late)?;
        let driver = Driver::new(&cluster).map_err(StartError::Io)?;
        let far = Far::knowing(driver, nodes.rows, nodes.indexes);
        let (desk, copies, reading) = (None, Copies::new(copies), None);
        let lead = Self { registry, desk, seat, copies, reading, cluster, wake };
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

    /// Changes of the node table, in order: those that may be passed on now.
    pub(super) fn pass(&mut self, changes: Vec<Change>) -> Vec<Change> {
        let mut passed = self.copies.pass(changes);
        let mut again = false;
        if let Some(reading) = self.reading.take() {
            let read = match reading.try_recv() {
                Err(TryRecvError::Empty) => {
                    self.reading = Some(reading);
                    return passed.changes;
                }
                Ok(read) => read,
                Err(TryRecvError::Disconnected) => {
                    Err(Unavailable { why: "no thread could be started".to_string() })
                }
            };
            let read = read.map_err(|Unavailable { why }| {
                journal::log(format_args!("what dead nodes left is not read yet: {why}"));
            });
            again = read.is_err();
            passed = self.copies.has_read(read.ok());
        }
        if passed.reads {
            self.read(again);
        }
        passed.changes
    }

    fn read(&mut self, again: bool) {
        let (tells, rows) = sync_channel(1);
        let (mut registry, wake) = (StoreRegistry::new(self.cluster.clone()), self.wake.clone());
        let read = move || {
            if again {
                std::thread::sleep(LEAD_READS_AGAIN);
            }
            let read = registry.copy_if(&READ_AT_A_DEATH, is_left_by_the_dead);
            // Nobody hears it when this head ends.
            let _ = tells.send(read);
            wake.ring();
        };
        // Else its end of the channel is gone.
        let _ = std::thread::Builder::new().name("hoplo:wills".to_string()).spawn(read);
        self.reading = Some(rows);
    }
}

impl std::fmt::Debug for Lead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lead").finish_non_exhaustive()
    }
}
