//! Object directory and store of one node (skeleton: types are final, `handle` is being written).

mod config;
mod event;
mod listing;

pub use config::{Config, PAGE};
pub use event::{Effect, Event, FreeOutcome, SpillOutcome, SpillPlace};
pub use listing::{ObjectRow, Totals};

use hoplo_base::{Instant, ObjectId};

#[derive(Debug)]
pub struct ObjectDirectory {
    config: Config,
}

impl ObjectDirectory {
    pub fn new(config: Config) -> Self {
        config.check();
        Self { config }
    }

    pub fn handle(&mut self, _now: Instant, _event: Event, _effects: &mut Vec<Effect>) {}

    pub fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// Every shared object, in order of its id.
    pub fn listing(&self) -> Vec<ObjectRow> {
        Vec::new()
    }

    pub fn totals(&self) -> Totals {
        Totals { capacity_bytes: self.config.capacity_bytes, ..Totals::default() }
    }

    /// Why the object is there and what it waits for, for people.
    pub fn explain(&self, object: ObjectId) -> String {
        format!("{object} has no record on this node")
    }

    /// What happened to the object lately, one line each.
    pub fn story(&self, _object: ObjectId) -> Vec<String> {
        Vec::new()
    }

    pub fn check(&self) {}
}
