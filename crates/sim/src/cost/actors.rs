//! Very many actors are made, at all nodes at once: each at its home, and two rows of each in the store of the head.

use std::collections::BTreeMap;
use std::time::Duration;

use hoplo_base::{ActorId, Instant, TaskId};
use hoplo_core::control::{ActorEntry, ControlStore, Entry, MemoryStore};
use hoplo_core::node::Node;
use hoplo_wire::control::Op;

use super::Plane;
use super::home::{Home, home};
use super::plane::{config, number};
use super::words::{Making, What};

#[derive(Clone, Debug, PartialEq)]
pub struct Actors {
    pub nodes: u32,
    pub made: u64,
    /// Until the last of them lives, and until the last of their rows is in the store.
    pub alive_s: f64,
    pub saved_s: f64,
    pub per_second: f64,
    pub decider_s: f64,
    /// Of each actor, at its home's decider.
    pub home_us: f64,
    pub rows_of_each: usize,
    pub row_bytes: usize,
    pub updates: u64,
    /// What the store refused, and how often.
    pub refusals: BTreeMap<String, u64>,
}

/// As many as a batch of the store has.
pub(super) const BATCH: usize = hoplo_base::limits::CONTROL_BATCH_OPS_MAX;
const WITHIN: Duration = Duration::from_secs(3600);
/// How many a real home makes, to see what one costs.
const TRIED: u64 = 200;

/// Of another actor, whose number makes its key its own.
pub(super) fn row_of(row: &ActorEntry, seq: u64) -> ActorEntry {
    let owner = row.actor.0.owner;
    ActorEntry { actor: ActorId(TaskId { owner, seq }), ..row.clone() }
}

impl Plane {
    /// So many in all, evenly over its nodes. Each node forks as many at a time as it has CPUs.
    pub fn make_actors(&mut self, count: u64) -> Actors {
        let began = self.now;
        let Home { ns, rows, words } = self.tries_home();
        assert_eq!(words, 0, "who makes an actor at home asks nobody");
        self.begin();
        let of_each = rows.len();
        let row_bytes = rows.iter().map(|row| row.to_value().len()).max().unwrap_or(0);
        let making = Making { rows, made: 0, saved: 0, refused: 0, last_alive: 0, last_saved: 0 };
        self.making = Some(making);
        let nodes: Vec<u32> = self.members.keys().copied().collect();
        let forks_at_once = self.cpus as u64;
        for turn in 0..count {
            let at = nodes[(turn % nodes.len() as u64) as usize];
            let nth = turn / nodes.len() as u64;
            let member = self.members.get_mut(&at).expect("it lives");
            let decided = member.decider.takes(began, ns);
            let forked = began + (nth / forks_at_once + 1) * self.costs.fork;
            self.at(forked.max(decided), What::Actor(at));
        }
        let wanted = count * of_each as u64;
        let all_saved = move |plane: &Self| {
            plane.making.as_ref().is_none_or(|it| it.saved + it.refused >= wanted)
        };
        self.run_until(began + WITHIN.as_nanos() as u64, all_saved);
        let making = self.making.take().expect("they were being made");
        let seconds = |at: u64| at.saturating_sub(began) as f64 / 1e9;
        let updates = self.meter.tallies().get("store: an update").map_or(0, |it| it.events);
        Actors {
            nodes: nodes.len() as u32 + 1,
            made: making.made,
            alive_s: seconds(making.last_alive),
            saved_s: seconds(making.last_saved),
            per_second: making.made as f64 / seconds(making.last_saved.max(making.last_alive)),
            decider_s: self.decider.busy as f64 / 1e9,
            home_us: ns as f64 / 1e3,
            rows_of_each: of_each,
            row_bytes,
            updates,
            refusals: self.refusals.clone(),
        }
    }

    /// So many live already, of jobs that go on: the head's store has a row of each.
    pub fn stores_actors(&mut self, count: u64) {
        let rows = self.tries_home().rows;
        let last = rows.last().expect("an actor that lives has a row");
        let mut store = MemoryStore::new();
        for seq in 1..=count {
            let row = row_of(last, seq);
            store.put(row.key(), row.to_value()).expect("a store in memory takes all");
        }
        self.actors = Some(store);
    }

    /// A node of this cluster, that knows all others.
    pub(super) fn tries_home(&mut self) -> Home {
        let at = self.members.len() as u32 + 7;
        let mut node = Node::new(config(number(at), self.cpus), Instant(self.now));
        let me = (self.row(at, hoplo_core::control::NodeState::Alive), self.seq + 1_000_000);
        let rows = self.rows.values().map(|(entry, _, index)| (entry.clone(), *index));
        for (entry, index) in rows.chain([me]).collect::<Vec<_>>() {
            let event = hoplo_core::node::Event::Member { entry: Box::new(entry), index };
            node.handle(Instant(self.now), event, &mut Vec::new());
        }
        home(node, self.now, TRIED, &mut self.meter)
    }

    /// One more of this node lives.
    pub(super) fn actor_lives(&mut self, at: u32) {
        let now = self.now;
        let making = self.making.as_mut().expect("they are being made");
        making.made += 1;
        making.last_alive = now;
        let seq = making.made;
        let op = |row: &ActorEntry| {
            let row = row_of(row, seq);
            Op::Put { key: row.key(), value: row.to_value(), expected: None, finished: false }
        };
        let ops: Vec<Op> = making.rows.iter().map(op).collect();
        let member = self.members.get_mut(&at).expect("it lives");
        member.unsaved.extend(ops);
        self.saves(at);
    }

    /// One batch after the other: what comes meanwhile travels in the next one.
    fn saves(&mut self, at: u32) {
        let member = self.members.get_mut(&at).expect("it lives");
        if member.saving > 0 || member.unsaved.is_empty() {
            return;
        }
        let rest = member.unsaved.split_off(member.unsaved.len().min(BATCH));
        let ops = std::mem::replace(&mut member.unsaved, rest);
        member.saving = ops.len() as u64;
        let ns = self.costs.frame * ops.len() as u64 + self.costs.flush;
        let done = member.decider.takes(self.now, ns);
        self.update_of(done, at, ops);
    }

    pub(super) fn is_saved(&mut self, at: u32) {
        let now = self.now;
        let member = self.members.get_mut(&at).expect("it lives");
        let saved = std::mem::take(&mut member.saving);
        if let Some(making) = &mut self.making {
            making.saved += saved;
            making.last_saved = now;
        }
        self.saves(at);
    }

    pub(super) fn is_refused(&mut self, at: u32) {
        let member = self.members.get_mut(&at).expect("it lives");
        let refused = std::mem::take(&mut member.saving);
        if let Some(making) = &mut self.making {
            making.refused += refused;
            making.last_saved = self.now;
        }
        self.saves(at);
    }
}
