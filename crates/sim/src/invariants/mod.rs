//! What must hold, one file for each kind.

mod answers;
mod attempts;
mod failures;
mod leaks;
mod order;
mod past;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::{ActorId, ObjectId, ProcessId, TaskId};

use crate::cluster::Cluster;
use order::Order;

pub use answers::{Answers, told_by};

/// What the invariants remember.
#[derive(Debug, Default)]
pub struct Books {
    /// Starts of each task, by attempt.
    starts: BTreeMap<TaskId, Vec<u32>>,
    /// What lies in an inline put.
    puts: BTreeMap<ObjectId, ObjectId>,
    tokens: u64,
    dead: BTreeSet<u32>,
    pub submitted: u64,
    pub cancelled: bool,
    /// Actors that the daemon was told of.
    pub actors: BTreeSet<ActorId>,
    pub actors_killed: bool,
    pub streams_dropped: BTreeSet<TaskId>,
    pub adoptions: u64,
    /// Workers that died or were not forked before their hello.
    pub failed_starts: u64,
    /// What the dead knew when they died, by name, and who.
    lost_with: BTreeMap<String, ProcessId>,
    /// Who was told that it cannot read what, and has not failed by that yet.
    unreadable: BTreeSet<(ProcessId, ObjectId)>,
    /// Results in the store, by name, whose caller lived when their reply was written: they are never lost, or made
    /// again, because somebody goes.
    stored: BTreeSet<String>,
    /// Calls that were taken back, and from whom.
    revoked: BTreeMap<(ProcessId, u64), ProcessId>,
    order: Order,
}

impl Books {
    /// It is told so, and one read of it may fail.
    pub fn unreadable(&mut self, process: ProcessId, object: ObjectId) {
        self.unreadable.insert((process, object));
    }

    /// A worker told the daemon of this result, and has replied.
    pub fn stored(&mut self, object: ObjectId) {
        self.stored.insert(object.to_string());
    }

    /// It was killed.
    pub fn died(&mut self, process: ProcessId, known: impl Iterator<Item = ObjectId>) {
        self.dead.insert(process.count());
        self.lost_with.extend(known.map(|object| (object.to_string(), process)));
    }
}

impl Cluster {
    pub fn notes_revoked(&mut self, caller: ProcessId, worker: ProcessId, seqs: &[u64]) {
        for seq in seqs {
            self.books.revoked.insert((caller, *seq), worker);
        }
    }

    /// A call that goes to another worker than the one it was taken back from was stolen from it.
    pub fn notes_place(&mut self, caller: ProcessId, worker: ProcessId, seq: u64) {
        if self.books.revoked.remove(&(caller, seq)).is_some_and(|before| before != worker) {
            self.count("steals");
        }
        self.places_in_order(worker, TaskId { owner: caller, seq });
    }

    /// After every step.
    pub fn check(&self) {
        if self.steps.is_multiple_of(16) || self.steps < 2000 {
            self.daemon.node.check_quickly();
        }
        if self.steps.is_multiple_of(32) {
            self.daemon.node.check();
            for client in self.clients.values().filter(|client| client.alive) {
                client.session.check();
            }
        }
    }
}
