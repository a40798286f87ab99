//! What must hold, one file for each kind.

mod answers;
mod attempts;
mod facts;
mod failures;
mod leaks;
mod ledgers;
mod losses;
mod names;
mod order;
mod past;
mod places;
mod reach;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::{ActorId, ObjectId, ProcessId, TaskId};

use crate::cluster::Cluster;
use facts::Facts;
use failures::Told;
use ledgers::Ledgers;
use losses::Losses;
use order::Order;

pub use answers::{Answers, told_by};
pub use facts::Call;

/// What the invariants remember.
#[derive(Debug, Default)]
pub struct Books {
    pub facts: Facts,
    told: Told,
    pub losses: Losses,
    pub ledgers: Ledgers,
    /// What lies in an inline put.
    puts: BTreeMap<ObjectId, ObjectId>,
    /// What heirs got as values with the calls that they adopted: they give those names of their own.
    adopted_values: BTreeSet<(ProcessId, ObjectId)>,
    tokens: u64,
    pub submitted: u64,
    pub adoptions: u64,
    /// What the dead knew when they died.
    lost_with: BTreeSet<ObjectId>,
    /// Results in the store whose caller lived when their reply was written and, of a far worker, when their home heard of them:
    /// they are never lost, or made again, because somebody goes.
    stored: BTreeSet<ObjectId>,
    /// Tasks of which a worker has replied, with some of their results or all.
    pub replied: BTreeSet<TaskId>,
    /// Calls that were taken back, and from whom.
    revoked: BTreeMap<(ProcessId, u64), ProcessId>,
    order: Order,
    /// Actors whose rows had a will when their home died (FAR-9).
    pub willed: BTreeSet<ActorId>,
}

impl Books {
    /// A worker told the daemon of this result, and has replied; of a far worker its home heard of it, too.
    pub fn stored(&mut self, object: ObjectId) {
        self.stored.insert(object);
    }

    /// It was killed, with what it knew.
    pub fn lost_with(&mut self, known: impl Iterator<Item = ObjectId>) {
        self.lost_with.extend(known);
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
        let task = TaskId { owner: caller, seq };
        self.books.facts.is_placed(task, worker);
        self.places_in_order(worker, task);
    }

    /// After every step.
    pub fn check(&self) {
        if self.plan.checks_rarely && !self.steps.is_multiple_of(256) {
            return;
        }
        if self.steps.is_multiple_of(16) || self.steps < 2000 {
            self.here.daemon.node.check_quickly();
        }
        if self.plan.nodes > 1 && self.steps.is_multiple_of(64) {
            self.check_reach();
            self.check_names();
        }
        if self.steps.is_multiple_of(32) {
            self.here.daemon.node.check();
            self.here.carrier.check();
            for client in self.clients.values().filter(|client| client.alive) {
                client.session.check();
            }
        }
    }
}
