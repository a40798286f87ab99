//! The head's node table: who joins, who is declared dead, and when each node hears of it.
//!
//! Verdicts are a model: a node that was killed is declared dead a while later, and nobody else is. Each node hears of all rows
//! in their order, later than others do.

use std::collections::BTreeMap;
use std::time::Duration;

use hoplo_base::{NodeNumber, ResourceSet};
use hoplo_core::control::{ControlStore, Entry, NodeEntry, NodeState, store};
use hoplo_core::node::{Rows, settled};
use hoplo_wire::control::Table;

use crate::begin::Beginning;
use crate::carrier::{Carrier, Told};
use crate::cluster::{Cluster, Step};
use crate::daemon::Daemon;
use crate::faults::Plan;
use crate::host::Host;
use crate::memory::Memory;

/// The node that begins as the n-th; the first one is the head.
pub fn number(at: u32) -> NodeNumber {
    (0..at).fold(NodeNumber::first_given(0), |number, _| number.next_given())
}

pub fn joins(plan: &Plan, at: u32) -> Box<Host> {
    let beginning = Beginning { node: number(at), rows: Rows::default() };
    let daemon = Daemon::new(plan, beginning, resources(plan, at));
    let memory = Memory::new(plan.capacity_bytes);
    Box::new(Host::new(daemon, memory, Carrier::new(number(at), plan)))
}

fn resources(plan: &Plan, at: u32) -> ResourceSet {
    // What any program wants there is at the head.
    let (cpus, gpus) =
        if at == 0 { (plan.cpus, plan.gpus) } else { ((plan.cpus + u64::from(at)) % 4, 0) };
    let units = [("CPU", cpus as f64), ("GPU", gpus as f64), ("memory", 1e9)];
    ResourceSet::from_units(units).expect("finite amounts")
}

impl Cluster {
    /// Everybody makes a row, one after the other.
    pub fn everybody_joins(&mut self) {
        for at in 0..self.plan.nodes {
            let node = number(at);
            let entry = NodeEntry {
                node,
                head: at == 0,
                hostname: format!("host{at}"),
                resources: resources(&self.plan, at),
                labels: BTreeMap::new(),
                store_bytes: 0,
                session_dir: "/session".to_string(),
                pid: 1,
                address: format!("{at}"),
                state: NodeState::Alive,
            };
            self.row_changes(entry);
        }
    }

    /// Each node has heard of all others, so nobody is told of something at home at a node that it does not know.
    pub fn everybody_is_known(&self) -> bool {
        let living = self.living();
        let knows = |node: NodeNumber, other: NodeNumber| {
            let mut known = self.host(node).daemon.node.other_nodes();
            node == other || known.any(|entry| entry.node == other)
        };
        self.plan.nodes == 1 || living.iter().all(|one| living.iter().all(|it| knows(*one, *it)))
    }

    fn row_changes(&mut self, entry: NodeEntry) {
        self.control.put(entry.key(), entry.to_value()).expect("a store in memory takes all");
        let index = self.control.get(&entry.key()).expect("it was just written").index;
        self.note(|| format!("the table says that {} is {:?}", entry.node, entry.state));
        for node in self.living() {
            let news = &mut self.host_mut(node).daemon.news;
            news.push_back((entry.clone(), index));
            if news.len() == 1 {
                let delay = self.rng.delay(self.plan.news_within);
                self.at_node(node, self.now + delay, Step::HearsRow);
            }
        }
    }

    /// The node here hears of the next row; at times twice.
    pub fn hears_row(&mut self) {
        let (entry, index) = self.here.daemon.news.pop_front().expect("one step for each");
        let twice = self.rng.one_in(8);
        for _ in 0..1 + u32::from(twice) {
            self.tells_carrier(Told::Row { entry: Box::new(entry.clone()), index });
        }
        if twice {
            self.count("rows that were told twice");
        }
        if !self.here.daemon.news.is_empty() {
            let delay = self.rng.delay(self.plan.news_within);
            self.after(delay, Step::HearsRow);
        }
    }

    pub fn is_declared_dead(&mut self, node: NodeNumber) {
        let key = hoplo_core::control::rows::node_key(node);
        let row = self.control.get(&key).expect("it joined");
        let entry = NodeEntry::from_row(&row).expect("it is a node's");
        self.count("nodes that were declared dead");
        let state = NodeState::Dead { why: "it was killed".to_string() };
        self.row_changes(NodeEntry { state, ..entry });
    }

    /// All have passed every death up to this entry.
    pub fn settles(&mut self, epoch: u64) {
        let mut rows = Vec::new();
        store::rows(&self.control, Table::Node, |_, row| {
            if row.index <= epoch
                && let Ok(entry) = NodeEntry::from_row(row)
            {
                rows.extend(settled(entry, row.index));
            }
        });
        for entry in rows {
            self.count("deaths that all had passed");
            self.row_changes(entry);
        }
    }

    // ---- the end of a node ----

    /// With all that runs there, at once.
    pub fn node_dies(&mut self, node: NodeNumber) {
        self.count("kills of nodes");
        self.note(|| format!("FAULT: {node} dies with all that runs there"));
        self.break_all_of(node);
        self.host_mut(node).dead = true;
        self.books.facts.node_dies(node);
        let of_it = self.clients.values().filter(|it| it.alive && it.id.node() == node);
        for id in of_it.map(|client| client.id).collect::<Vec<_>>() {
            let client = &self.clients[&id];
            self.books.lost_with(client.session.known_objects());
            let running = client.fibers.values().filter_map(|fiber| fiber.task());
            self.books.facts.dies(id, running);
            self.client(id).alive = false;
        }
        let actors = self.hosts().flat_map(|host| host.daemon.node.actors.rows());
        let lived: Vec<_> = actors
            .filter_map(|row| Some((row.actor, row.worker?)))
            .filter(|(_, worker)| worker.node() == node)
            .collect();
        for (actor, worker) in lived {
            self.books.facts.lived_in(actor, worker);
        }
        let head = number(0);
        let delay = self.rng.delay(Duration::from_millis(700));
        self.at_node(head, self.now + delay, Step::Verdict(node));
        self.driver_finished();
    }
}
