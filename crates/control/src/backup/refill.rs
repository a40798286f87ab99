//! The rows of a backup go into control nodes, which begin anew.
//!
//! ```text
//!   nobody has been head --take the seat--> RESTORE --each row, if there is none--> give the seat back --> a head begins
//!                                            |   ^
//!                                      dies  \---/  the same backup once more
//! ```
//! Control nodes have lost their disks, or have never run. Other programs may write already, and what they write is newer. So a row is put only
//! where there is none. All that must not begin is a head, since it would make of half of the rows what is true now: so the seat is
//! taken meanwhile (SEAT-7), and a restore that dies leaves it taken until it was run once more.
//!
//! Nodes that live on know more than the backup: later nodes, and deaths, in the order of a history that is lost. So each node has the row of an earlier head: the
//! next head declares them dead, inherits what outlives them (`core/node/recall`), and those that hear of it end their workers, and join again as new nodes.
//! They do hear: the epochs of a cluster that begins are the time's (`CoordinatorOptions::founded`), so they take the new control nodes for those of before. Numbers of
//! nodes have a gap (RESTORE-2).
//!
//! # Invariants
//! - REFILL-1: nothing was written unless the whole backup was read and found right.
//! - REFILL-2: where a head has been, nothing is written.
//! - REFILL-3: no head begins between the first row and the last one.
//! - REFILL-4: no node of before is one of the next head's.
//! - REFILL-5: who was dead dies anew, in the same order. That all had passed its death was said in a count of entries that is lost: a node that hears of it would take
//!   all deaths of the new count for earlier ones, and no heir would ever begin.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use hoplo_base::limits::{CONTROL_CLIENT_BATCH_BYTES, CONTROL_CLIENT_BATCH_OPS};
use hoplo_core::control::client::{Call, Done};
use hoplo_core::control::rows::seat_key;
use hoplo_core::control::seat::Seat;
use hoplo_core::control::{Entry, NodeEntry, NodeState, SeatEntry};
use hoplo_wire::control::{Key, Op, Outcome, Row, Table};

use super::restore::Rows;
use super::{BackupError, Header, Reader};
use crate::clock::micros_since_1970;
use crate::net::client::{ControlClient, Pending};
use crate::net::cluster::Cluster;

/// Of each call. Control nodes that begin may take a while.
const WITHIN: Duration = Duration::from_secs(30);

/// Batches that are on their way at a time.
const UNDERWAY: usize = 8;

/// What was put back, in rows of the backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refilled {
    /// With that of the seat, in whose place is the one that was taken for this.
    pub written: u64,
    /// Rows for which there was a newer one: other programs wrote it meanwhile, or an earlier try did.
    pub there: u64,
}

pub fn refill(path: &Path, cluster: &Cluster) -> Result<(Header, Refilled), BackupError> {
    // REFILL-1
    let header = Reader::open(path)?.check()?;
    header.fit(path)?;
    let client = ControlClient::connect(cluster).map_err(unwritten)?;
    let seat = take_seat(&client, &header)?;
    let refilled = put_rows(&client, Rows::open(path, seat.entry.beats)?)?;
    give_back(&client, seat)?;
    Ok((header, refilled))
}

/// REFILL-2, REFILL-3
fn take_seat(client: &ControlClient, header: &Header) -> Result<Seat, BackupError> {
    let entry = SeatEntry {
        holder: Some(SeatEntry::RESTORE),
        address: format!("the backup of cluster {} of {}", header.cluster, header.made_us),
        // The gap before the next node's number: another try has the same one.
        beats: micros_since_1970(),
    };
    let row =
        client.get(seat_key(), WITHIN).map_err(|error| BackupError::Unread(error.to_string()))?;
    let expected = match row.as_ref().and_then(Seat::of) {
        None => 0,
        // A try before this one.
        Some(found) if found.entry.is_restored() && found.entry.address == entry.address => {
            return Ok(found);
        }
        Some(found) if found.entry.is_restored() => return Err(BackupError::OtherBackup),
        Some(_) => return Err(BackupError::HadHead),
    };
    match client.put(entry.key(), entry.to_value(), Some(expected), WITHIN).map_err(unwritten)? {
        Outcome::Done { version } => Ok(Seat { entry, version }),
        Outcome::Conflict { .. } => Err(BackupError::HadHead),
    }
}

fn give_back(client: &ControlClient, Seat { entry, version }: Seat) -> Result<(), BackupError> {
    let entry = SeatEntry { holder: None, ..entry };
    match client.put(entry.key(), entry.to_value(), Some(version), WITHIN).map_err(unwritten)? {
        Outcome::Done { .. } => Ok(()),
        Outcome::Conflict { .. } => Err(BackupError::Unwritten(
            "another `hoplo control restore` ran at the same time, and ended first".to_string(),
        )),
    }
}

fn put_rows(client: &ControlClient, mut rows: Rows) -> Result<Refilled, BackupError> {
    let mut refilled = Refilled::default();
    let (mut underway, mut nodes) = (VecDeque::new(), Vec::new());
    loop {
        let batch = next_batch(&mut rows, &mut nodes, &mut refilled)?;
        if batch.is_empty() {
            break;
        }
        underway.push_back(client.start(Call::Update(batch), WITHIN).map_err(unwritten)?);
        if underway.len() > UNDERWAY
            && let Some(first) = underway.pop_front()
        {
            refilled.count(first)?;
        }
    }
    underway.into_iter().try_for_each(|batch| refilled.count(batch))?;
    // REFILL-5: each with an entry of its own.
    nodes.sort_by_key(|(died, ..)| *died);
    for (_, key, value) in nodes {
        let mut nothing = Refilled::default();
        let counted = if rows.is_nobody(&key) { &mut nothing } else { &mut refilled };
        let put = Op::Put { key, value, expected: Some(0), finished: false };
        counted.count(client.start(Call::Update(vec![put]), WITHIN).map_err(unwritten)?)?;
    }
    Ok(refilled)
}

/// None are left if it is empty. Rows of nodes are for later, each with when it died.
fn next_batch(
    rows: &mut Rows,
    nodes: &mut Vec<(u64, Key, Vec<u8>)>,
    refilled: &mut Refilled,
) -> Result<Vec<Op>, BackupError> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while batch.len() < CONTROL_CLIENT_BATCH_OPS && bytes < CONTROL_CLIENT_BATCH_BYTES {
        let Some((key, row)) = rows.next()? else { break };
        if key.table == Table::Head {
            // Who was head is none any more.
            refilled.written += 1;
            continue;
        }
        if key.table == Table::Node {
            let (died, value) = ended(&row);
            nodes.push((died, key, value));
            continue;
        }
        bytes += key.bytes.len() + row.value.len();
        batch.push(Op::Put { key, value: row.value, expected: Some(0), finished: row.finished });
    }
    Ok(batch)
}

/// REFILL-4, REFILL-5
fn ended(row: &Row) -> (u64, Vec<u8>) {
    let Ok(entry) = NodeEntry::from_row(row) else { return (u64::MAX, row.value.clone()) };
    match entry.state.clone() {
        NodeState::Alive | NodeState::Draining => {
            (u64::MAX, NodeEntry { head: true, ..entry }.to_value())
        }
        NodeState::Dead { .. } => (row.index, row.value.clone()),
        NodeState::Settled { why, heir, died } => {
            let state = NodeState::Dead { why, heir };
            (died, NodeEntry { state, ..entry }.to_value())
        }
    }
}

impl Refilled {
    fn count(&mut self, batch: Pending) -> Result<(), BackupError> {
        let outcomes = match batch.wait().map_err(unwritten)? {
            Done::Updated(outcomes) => outcomes,
            Done::Row(_) | Done::Page { .. } => unreachable!("an update gives outcomes"),
        };
        for outcome in outcomes {
            match outcome {
                Outcome::Done { .. } => self.written += 1,
                Outcome::Conflict { .. } => self.there += 1,
            }
        }
        Ok(())
    }
}

fn unwritten(error: impl std::fmt::Display) -> BackupError {
    BackupError::Unwritten(error.to_string())
}
