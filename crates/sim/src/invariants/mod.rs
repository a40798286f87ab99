//! What must hold, one file for each kind.

mod attempts;
mod failures;
mod leaks;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::{ActorId, ObjectId, ProcessId, TaskId};

use crate::cluster::Cluster;

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
}

impl Books {
    pub fn died(&mut self, process: ProcessId) {
        self.dead.insert(process.count());
    }
}

impl Cluster {
    /// After every step.
    pub fn check(&self) {
        if self.steps.is_multiple_of(16) || self.steps < 2000 {
            self.daemon.scheduler.check();
            self.daemon.pool.check();
            self.daemon.actors.check();
        }
        if self.steps.is_multiple_of(32) {
            self.daemon.objects.check();
            for client in self.clients.values().filter(|client| client.alive) {
                client.session.check();
            }
        }
    }
}
