//! Very many actors are made, at all nodes at once, in a cluster whose rows are on three control nodes.
//!
//! As `super::super::actors` has it for the store of a head: each actor is made at its home, which saves its rows by one batch after the other.

use std::collections::BTreeMap;

use hoplo_core::control::client::{Call, CallError, Event as Comes};
use hoplo_core::control::{ActorEntry, Entry};
use hoplo_wire::control::Op;

use super::super::actors::{BATCH, row_of};
use super::super::home::Home;
use super::{CALL_WITHIN, NODES, Server, What, World};
use crate::cost::{Meter, Plane};
use hoplo_base::Instant;

#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    pub nodes: u32,
    pub shards: u16,
    pub made: u64,
    /// Until the last of them lives, and until the last of their rows is in the store.
    pub alive_s: f64,
    pub saved_s: f64,
    pub per_second: f64,
    /// The busiest control node: seconds of one core.
    pub busiest_s: f64,
    /// Actors whose rows all replicas have; and the fullest shard at one of them, of how many bytes.
    pub rows: u64,
    pub fullest_bytes: u64,
    pub memory_bytes: u64,
    /// What the store refused, and how often.
    pub refusals: BTreeMap<String, u64>,
}

/// What is being made.
pub(super) struct Making {
    rows: Vec<ActorEntry>,
    homes: Vec<Node>,
    made: u64,
    /// Rows that were stored or refused.
    saved: u64,
    last_alive: u64,
    last_saved: u64,
    refusals: BTreeMap<String, u64>,
}

#[derive(Clone, Default)]
struct Node {
    decider: Server,
    unsaved: Vec<Op>,
    /// So many are on their way.
    saving: usize,
}

/// Until each client knows the chains.
const BEGIN_NS: u64 = 5_000_000_000;
const STEP_NS: u64 = 1_000_000;

impl Plane {
    /// So many in all, evenly over its nodes, as [`Plane::make_actors`]; control nodes have the rows, in so many shards.
    pub fn make_actors_stored(mut self, count: u64, shards: u16) -> (Stored, Meter) {
        let Home { ns, rows, words } = self.tries_home();
        assert_eq!(words, 0, "who makes an actor at home asks nobody");
        let (nodes, forks_at_once) = (self.members.len() as u32, self.cpus as u64);
        let wanted = count * rows.len() as u64;
        let mut world = World::new(nodes, shards, self.costs, self.meter);
        world.after(0, What::Beats);
        world.after(0, What::Ticks);
        world.run_until(BEGIN_NS);
        world.servers.iter_mut().for_each(Server::begin);
        world.meter.begin();
        let began = world.now;
        let mut homes = vec![Node::default(); nodes as usize];
        for turn in 0..count {
            let (at, nth) = ((turn % u64::from(nodes)) as u32, turn / u64::from(nodes));
            let decided = homes[at as usize].decider.takes(began, ns);
            let forked = began + (nth / forks_at_once + 1) * world.costs.fork;
            world.at(forked.max(decided), What::Actor(at));
        }
        world.making = Some(Making {
            rows,
            homes,
            made: 0,
            saved: 0,
            last_alive: 0,
            last_saved: 0,
            refusals: BTreeMap::new(),
        });
        while world.making.as_ref().is_some_and(|it| it.saved < wanted) {
            world.run_until(world.now + STEP_NS);
        }
        // The last entries reach the others, too.
        let busiest = world.servers.iter().map(|server| server.busy).max().unwrap_or(0);
        world.run_until(world.now + BEGIN_NS);
        let making = world.making.take().expect("they were being made");
        let status = || world.replicas.values().map(|replica| replica.status());
        let rows = status().map(|status| status.rows).sum::<u64>() / NODES;
        let fullest = status().map(|it| it.memory_bytes).max().unwrap_or(0);
        let seconds = |at: u64| at.saturating_sub(began) as f64 / 1e9;
        let stored = Stored {
            nodes,
            shards,
            made: making.made,
            alive_s: seconds(making.last_alive),
            saved_s: seconds(making.last_saved),
            per_second: making.made as f64 / seconds(making.last_saved.max(making.last_alive)),
            busiest_s: busiest as f64 / 1e9,
            rows,
            fullest_bytes: fullest,
            memory_bytes: status().map(|it| it.memory_cap).max().unwrap_or(0),
            refusals: making.refusals,
        };
        (stored, world.meter)
    }
}

impl World {
    pub(super) fn actor_lives(&mut self, at: u32) {
        let making = self.making.as_mut().expect("they are being made");
        making.made += 1;
        making.last_alive = self.now;
        let ops = making.rows.iter().map(|row| {
            let row = row_of(row, making.made);
            Op::Put { key: row.key(), value: row.to_value(), expected: None, finished: false }
        });
        making.homes[at as usize].unsaved.extend(ops);
        self.saves(at);
    }

    /// One batch after the other: what comes meanwhile travels in the next one.
    fn saves(&mut self, at: u32) {
        let home = &mut self.making.as_mut().expect("they are being made").homes[at as usize];
        if home.saving > 0 || home.unsaved.is_empty() {
            return;
        }
        let rest = home.unsaved.split_off(home.unsaved.len().min(BATCH));
        let ops = std::mem::replace(&mut home.unsaved, rest);
        home.saving = ops.len();
        self.call += 1;
        let (call, what) = (self.call, Call::Update(ops));
        let deadline = Instant(self.now) + CALL_WITHIN;
        self.client(at, Comes::Call { call, what, deadline });
    }

    pub(super) fn is_saved(&mut self, at: u32, result: Result<(), CallError>) {
        let making = self.making.as_mut().expect("they are being made");
        let saved = std::mem::take(&mut making.homes[at as usize].saving);
        making.saved += saved as u64;
        making.last_saved = self.now;
        if let Err(error) = result {
            *making.refusals.entry(error.to_string()).or_default() += saved as u64;
        }
        self.saves(at);
    }
}
