//! The head's node table: who joins, who is declared dead, and when each node hears of it.
//!
//! Verdicts are a model: a node that was killed is declared dead a while later, and so is one that hears before that it will be (as after a
//! long silence), and ends in order, and one that stands still; nobody else is. Each node hears of all rows in their order, later than others do.

use std::collections::BTreeMap;
use std::time::Duration;

use hoplo_base::{NodeNumber, ResourceSet};
use hoplo_core::control::rows::node_key;
use hoplo_core::control::{ControlStore, Entry, MemoryStore, NodeEntry, NodeState, store};
use hoplo_core::node::{Effect, Event, Rows, settled};
use hoplo_wire::control::Table;

use crate::begin::Beginning;
use crate::carrier::{Carrier, Told};
use crate::cluster::{Cluster, Step};
use crate::daemon::Daemon;
use crate::faults::Plan;
use crate::host::Host;
use crate::lead::Lead;
use crate::memory::Memory;
use crate::workload::{ZONE, ZONES};

/// A node that leaves, to its head.
const SAYS_THAT_IT_LEAVES_WITHIN: Duration = Duration::from_millis(1);
/// What a head over control nodes has not written for so long, it says again.
const VERDICT_AGAIN: Duration = Duration::from_millis(500);

/// A verdict comes after up to 0.7 s: before the node goes on, or after.
const FROZEN_FOR: Duration = Duration::from_millis(1500);
/// Then it goes on for so long, at most, as if nothing had been.
const NOTICES_WITHIN: Duration = Duration::from_millis(20);

/// Rows as they are, and the entries of the store that made them so.
pub type Rowset = Vec<(NodeEntry, u64)>;

/// The node that begins as the n-th; the first one is the head.
pub fn number(at: u32) -> NodeNumber {
    (0..at).fold(NodeNumber::first_given(0), |number, _| number.next_given())
}

/// It runs, and no other one knows of it.
pub fn begins(plan: &Plan, at: u32, node: NodeNumber) -> Box<Host> {
    begins_with(plan, at, Beginning { node, rows: Rows::default() }, &MemoryStore::new())
}

/// `control`: what the store has.
fn begins_with(plan: &Plan, at: u32, beginning: Beginning, control: &MemoryStore) -> Box<Host> {
    let number = beginning.node;
    let mut daemon = Daemon::new(plan, beginning, resources(plan, at));
    daemon.node.set_labels(labels(at));
    daemon.node.scheduler.set_labels(labels(at));
    daemon.lead = (at == 0 && plan.control_apart).then(|| Lead::new(control));
    let memory = Memory::new(plan.capacity_bytes);
    Box::new(Host::new(daemon, memory, Carrier::new(number, plan)))
}

/// What must be in one zone can be at the head.
fn labels(at: u32) -> BTreeMap<String, String> {
    [(ZONE.to_string(), ZONES[at as usize % 2].to_string())].into()
}

fn resources(plan: &Plan, at: u32) -> ResourceSet {
    // What any program wants there is at the head.
    let (cpus, gpus) =
        if at == 0 { (plan.cpus, plan.gpus) } else { ((plan.cpus + u64::from(at)) % 4, 0) };
    let units = [("CPU", cpus as f64), ("GPU", gpus as f64), ("memory", 1e9)];
    ResourceSet::from_units(units).expect("finite amounts")
}

impl Cluster {
    /// The head, and then the others in the order of their numbers. Programs come to any of them, as soon as it is there.
    pub fn everybody_joins(&mut self) {
        let within = self.plan.joins_within.as_nanos() as u64;
        let mut times: Vec<u64> =
            (1..self.plan.nodes).map(|_| self.rng.below(within + 1)).collect();
        times.sort_unstable();
        times.insert(0, 0);
        for (at, nanos) in times.into_iter().enumerate() {
            self.after(Duration::from_nanos(nanos), Step::Joins(at as u32));
        }
        let places = (0..self.plan.drivers).map(|_| self.rng.below(self.plan.nodes.into()) as u32);
        self.plan.drivers_at = places.collect();
    }

    /// It gets a number, which the others hear of before they hear where it is. It hears of all that are there already.
    pub fn joins(&mut self, at: u32) {
        if self.is_headless() {
            return self.after(Duration::from_millis(1), Step::Joins(at));
        }
        if at == 0 {
            self.says_where(at);
        } else {
            let node = Rows::read(&self.control).next_number(0);
            let begun = begins(&self.plan, at, node);
            self.away.insert(node, begun);
            self.row_changes(self.row_of(node, at, String::new()));
            self.goes_to(node);
            self.here.daemon.news.clear();
            self.recalls();
            self.tells_rows(self.rows_at_a_start());
            let delay = self.rng.delay(self.plan.news_within);
            self.after(delay, Step::SaysWhere(at));
        }
        if self.clients.values().any(|client| client.alive) {
            self.count("nodes that joined while programs ran");
        }
        if self.lost_a_head() {
            self.count("nodes that joined after a head's death");
        }
        let here = self.plan.drivers_at.iter().filter(|it| **it == at).count();
        self.drivers_come(here as u32);
    }

    pub fn says_where(&mut self, at: u32) {
        if self.is_headless() {
            return self.after(Duration::from_millis(1), Step::SaysWhere(at));
        }
        let (node, address) = (self.here.number, format!("{at}"));
        let entry = match self.control.get(&node_key(node)) {
            None => self.row_of(node, at, address),
            Some(row) => {
                let entry = NodeEntry::from_row(&row).expect("it is a node's");
                if entry.state.is_dead() {
                    return self.count("nodes that were dead before they said where they are");
                }
                NodeEntry { address, ..entry }
            }
        };
        self.row_changes(entry);
    }

    /// The head's daemon is started again on its store, or another machine goes on as head: it has the number behind the highest one, and makes of the
    /// rows what is true now, before it hears anything.
    pub fn head_begins(&mut self) {
        let rows = Rows::read(&self.control);
        let node = rows.next_number(0);
        self.count("heads that went on where one died");
        self.heads_begun += 1;
        match self.heads_begun {
            1 => {}
            2 => self.count("heads that went on where a second one died"),
            _ => self.count("heads that went on where a third one died"),
        }
        self.note(|| format!("{node} goes on as head"));
        let begun = begins_with(&self.plan, 0, Beginning { node, rows }, &self.control);
        self.away.insert(node, begun);
        self.is_led_by(node);
        self.row_changes(self.row_of(node, 0, node.to_string()));
        self.goes_to(node);
        let mut rows = self.rows_at_a_start();
        self.here.daemon.news.clear();
        self.recalls();
        if self.here.daemon.lead.is_none() {
            // What it made of them is written.
            rows = self.rows_at_a_start();
            self.here.daemon.news.clear();
        }
        self.sabotage_new_head();
        self.tells_rows(rows);
        if !self.groups().is_empty() {
            self.somebody_looks();
        }
        if let Some(more) = self.plan.heads_fall_more.checked_sub(1) {
            self.plan.heads_fall_more = more;
            self.plan.head_falls_at = Some(self.now + self.rng.delay(Duration::from_millis(50)));
        }
    }

    fn row_of(&self, node: NodeNumber, at: u32, address: String) -> NodeEntry {
        NodeEntry {
            node,
            head: at == 0,
            hostname: format!("host{at}"),
            resources: resources(&self.plan, at),
            labels: labels(at),
            store_bytes: 0,
            session_dir: "/session".to_string(),
            pid: 1,
            address,
            state: NodeState::Alive,
        }
    }

    /// Who lives, who died, and this node itself (`tell_carrier` in `crates/node/src/daemon.rs`).
    fn rows_at_a_start(&self) -> Rowset {
        let (mut rows, me) = (Vec::new(), self.here.number);
        store::rows(&self.control, Table::Node, |_, row| {
            let entry = NodeEntry::from_row(row).expect("it is a node's");
            let order = match entry.state {
                _ if entry.node == me => (2, row.index),
                NodeState::Settled { died, .. } => (1, died),
                NodeState::Dead { .. } => (1, row.index),
                NodeState::Alive | NodeState::Draining => (0, row.index),
            };
            rows.push((order, entry, row.index));
        });
        rows.sort_by_key(|(order, ..)| *order);
        rows.into_iter().map(|(_, entry, index)| (entry, index)).collect()
    }

    /// By the head.
    pub fn row_changes(&mut self, entry: NodeEntry) {
        assert!(!self.is_headless(), "{} changes, and there is no head", entry.node);
        self.control.put(entry.key(), entry.to_value()).expect("a store in memory takes all");
        let index = self.control.get(&entry.key()).expect("it was just written").index;
        self.note(|| {
            let NodeEntry { node, address, state, .. } = &entry;
            format!("the table says that {node} is {state:?} at {address:?}")
        });
        if let NodeState::Dead { .. } = entry.state {
            self.notes_wills(entry.node);
        }
        for node in self.living() {
            let news = &mut self.host_mut(node).daemon.news;
            news.push_back((entry.clone(), index));
            if news.len() == 1 {
                let delay = self.rng.delay(self.plan.news_within);
                self.at_node(node, self.now + delay, Step::HearsRows);
            }
        }
    }

    /// The node here hears of the next row; at times twice.
    pub fn hears_rows(&mut self) {
        // Those of its start were told together.
        let Some((entry, index)) = self.here.daemon.news.pop_front() else { return };
        let twice = self.rng.one_in(8);
        for _ in 0..1 + u32::from(twice) {
            self.tells_rows(vec![(entry.clone(), index)]);
        }
        if twice {
            self.count("rows that were told twice");
        }
        if !self.here.daemon.news.is_empty() {
            let delay = self.rng.delay(self.plan.news_within);
            self.after(delay, Step::HearsRows);
        }
    }

    fn tells_rows(&mut self, rows: Rowset) {
        let rows = match &self.here.daemon.lead {
            Some(_) => self.lead_reads(rows),
            None => rows,
        };
        self.carrier_is_told(rows);
    }

    pub fn carrier_is_told(&mut self, rows: Rowset) {
        for (entry, index) in rows {
            self.tells_carrier(Told::Row { entry: Box::new(entry), index });
        }
    }

    pub fn is_declared_dead(&mut self, node: NodeNumber) {
        if self.is_headless() {
            return self.after(Duration::from_millis(1), Step::Verdict(node));
        }
        let entry = self.entry_of(node);
        if entry.state.is_dead() {
            return;
        }
        self.count("nodes that were declared dead");
        self.goes_to(self.head());
        let heir = self.heir_by_verdict(node);
        let drained = self.host(node).daemon.node.drains();
        let why = if drained { hoplo_core::node::DRAINED } else { "it was killed" };
        let state = NodeState::Dead { why: why.to_string(), heir };
        let entry = NodeEntry { state, ..entry };
        if self.here.daemon.lead.is_none() {
            return self.row_changes(entry);
        }
        self.writes_later(Effect::Save { key: entry.key(), value: entry.to_value(), last: false });
        // If this head dies before, the next one is to say so.
        self.after(VERDICT_AGAIN, Step::Verdict(node));
    }

    pub fn entry_of(&self, node: NodeNumber) -> NodeEntry {
        let row = self.control.get(&node_key(node)).expect("it joined");
        NodeEntry::from_row(&row).expect("it is a node's")
    }

    /// All have passed every death up to this entry.
    pub fn settles(&mut self, epoch: u64) {
        let mut rows = Vec::new();
        store::rows(&self.control, Table::Node, |_, row| {
            if row.index <= epoch
                && let Ok(entry) = NodeEntry::from_row(row)
            {
                rows.extend(settled(&entry, row.index));
            }
        });
        for entry in rows {
            self.count("deaths that all had passed");
            self.row_changes(entry);
        }
    }

    // ---- the end of a node ----

    /// `hoplo drain`. That it takes nothing along follows: no invariant knows of this, and every loss needs a death.
    pub fn node_drains(&mut self, node: NodeNumber) {
        self.count("nodes that were drained");
        self.books.facts.node_drains();
        self.row_changes(NodeEntry { state: NodeState::Draining, ..self.entry_of(node) });
    }

    /// The node here has been drained, or fenced, and has stopped.
    pub fn leaves(&mut self) {
        let node = self.here.number;
        if self.here.fenced {
            self.note(|| format!("{node}, which was fenced, ends"));
            self.count("fenced nodes that ended in order");
            return self.ends_with_all(node);
        }
        let mut left = self.clients.values().filter(|it| it.alive && it.id.node() == node);
        if left.clone().any(|client| client.is_driver) {
            // Its driver keeps it: all nodes were told to stop.
            return;
        }
        assert!(left.next().is_none(), "{node} leaves, and a worker runs there");
        self.note(|| format!("{node} leaves"));
        self.count("drained nodes that left");
        self.break_all_of(node);
        self.here.dead = true;
        // Its head writes that, whoever is it by then: it says so until its row does.
        let delay = self.rng.delay(SAYS_THAT_IT_LEAVES_WITHIN);
        self.at_node(self.head(), self.now + delay, Step::Verdict(node));
    }

    /// A node that is not the head.
    pub fn node_falls(&mut self, node: NodeNumber) {
        if self.plan.node_is_fenced {
            self.node_is_fenced(node);
        } else if self.plan.node_freezes {
            self.node_freezes(node);
        } else {
            self.node_dies(node);
        }
        let delay = self.rng.delay(Duration::from_millis(700));
        self.at_node(self.head(), self.now + delay, Step::Verdict(node));
    }

    /// With all that runs there, at once.
    fn node_dies(&mut self, node: NodeNumber) {
        self.count("kills of nodes");
        self.note(|| format!("FAULT: {node} dies with all that runs there"));
        self.is_lost(node);
        self.ends_with_all(node);
    }

    /// It was silent for long, say, and hears that it is dead to others before these do.
    fn node_is_fenced(&mut self, node: NodeNumber) {
        self.count("nodes that were fenced");
        self.note(|| format!("FAULT: {node} hears that it is dead to others"));
        self.is_lost(node);
        self.notes_actors_of(node);
        self.host_mut(node).fenced = true;
        let back = self.here.number;
        self.goes_to(node);
        self.is_fenced();
        self.goes_to(back);
    }

    /// The node here hears that it is dead to others.
    pub fn is_fenced(&mut self) {
        if self.entry_of(self.here.number).state.is_dead() {
            self.count("nodes that heard of their death after others");
        }
        let fenced = self.sabotage_fences("it was silent".to_string());
        self.happens(fenced);
    }

    /// Nothing runs there for a while. What was under way to it arrives then, and it goes on until it hears that it is dead, or will be: that takes its
    /// threads a moment (`standing` of `hoplo_core::members` tells the real one at its next turn).
    fn node_freezes(&mut self, node: NodeNumber) {
        let time = Duration::from_millis(20) + self.rng.delay(FROZEN_FOR);
        self.count("nodes that froze");
        self.note(|| format!("FAULT: nothing runs at {node} for {time:?}"));
        self.is_lost(node);
        self.notes_actors_of(node);
        let until = self.now + time;
        let host = self.host_mut(node);
        (host.fenced, host.frozen_until) = (true, until);
        let notices = self.rng.delay(NOTICES_WITHIN);
        self.at_node(node, until + notices, Step::IsFenced);
    }

    /// Others are to go on without it.
    fn is_lost(&mut self, node: NodeNumber) {
        if self.books.facts.some_node_died() {
            self.count("kills of nodes after others");
        }
        self.leaves_an_estate(node);
        self.books.facts.node_dies(node);
        self.books.ledgers.node_is_lost(node);
    }

    fn ends_with_all(&mut self, node: NodeNumber) {
        self.break_all_of(node);
        self.host_mut(node).dead = true;
        let of_it = self.clients.values().filter(|it| it.alive && it.id.node() == node);
        for id in of_it.map(|client| client.id).collect::<Vec<_>>() {
            let client = &self.clients[&id];
            self.books.lost_with(client.session.known_objects());
            let running = client.fibers.values().filter_map(|fiber| fiber.task());
            self.books.facts.dies(id, running);
            self.client(id).alive = false;
        }
        self.notes_actors_of(node);
        self.driver_finished();
    }

    /// They die with it, as their tables say.
    fn notes_actors_of(&mut self, node: NodeNumber) {
        let actors = self.hosts().flat_map(|host| host.daemon.node.actors.rows());
        let lived: Vec<_> = actors
            .filter_map(|row| Some((row.actor, row.worker?)))
            .filter(|(_, worker)| worker.node() == node)
            .collect();
        for (actor, worker) in lived {
            self.books.facts.lived_in(actor, worker);
        }
    }

    /// With its node. Another one goes on after a while.
    pub fn head_dies(&mut self) {
        self.count("kills of heads");
        let head = self.head();
        let delay = self.rng.delay(self.plan.headless_for);
        self.node_dies(head);
        self.at_node(head, self.now + delay, Step::HeadBegins);
        for node in self.living() {
            let notices = self.rng.delay(Duration::from_secs(2));
            self.at_node(node, self.now + notices, Step::HeadIsSilent);
        }
    }

    pub fn head_is_silent(&mut self) {
        if self.is_headless() {
            self.count("nodes that noticed that there is no head");
            self.happens(Event::HeadSilent { since: self.now });
        }
    }
}
