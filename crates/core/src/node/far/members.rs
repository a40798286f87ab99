//! Who is there: rows of the node table, in the order in which they changed.

use std::collections::BTreeSet;
use std::ops::Bound;

use hoplo_base::limits::PASSED_TOLD_OF_EACH;
use hoplo_base::{Instant, JobId, NodeNumber, ProcessId};
use hoplo_wire::node::{DeathCause, Obituary, ToClient};
use hoplo_wire::peer::Peer;

use super::{Leased, Node, Stranger};
use crate::actors::life;
use crate::claims::{self, Epoch};
use crate::control::{NodeEntry, NodeState};
use crate::node::Effect;
use crate::node::Timer;
use crate::objects;
use crate::sched::broker;
use crate::sched::claim::silence_of_head;
use crate::transfer;

impl Node {
    pub(in crate::node) fn on_member(&mut self, entry: NodeEntry, index: u64) {
        let node = entry.node;
        if self.far.latest.is_none_or(|latest| node.is_later_than(latest)) {
            self.far.latest = Some(node);
        }
        match entry.state.clone() {
            // Its own shell knows what to do when this node is declared dead.
            NodeState::Dead { .. } | NodeState::Settled { .. } if node == self.me() => {}
            // It has a number, and did not say yet where it is.
            NodeState::Alive | NodeState::Draining if entry.address.is_empty() => {
                self.far.unplaced.insert(node);
            }
            NodeState::Alive | NodeState::Draining => self.on_alive(entry, index),
            NodeState::Dead { why, heir } => self.on_dead(node, &why, heir, index),
            NodeState::Settled { why, heir, died } => {
                self.on_dead(node, &why, heir, died);
                self.pass_to_claims(claims::Event::AllPassed { epoch: Epoch(died) });
                self.estates_announced();
            }
        }
    }

    fn on_alive(&mut self, entry: NodeEntry, index: u64) {
        let node = entry.node;
        if self.far.dead.contains_key(&node) {
            return;
        }
        self.far.unplaced.remove(&node);
        let drains = entry.state == NodeState::Draining;
        let new_head = entry.head && self.far.head != Some(node);
        if new_head {
            self.far.head = Some(node);
            self.far.head_lost = None;
            self.on_head_heard();
        }
        let (is_me, drained) = (node == self.me(), self.drains());
        let keeper = self.keeper();
        let (known, drained) = match is_me {
            true => {
                self.far.hostname.clone_from(&entry.hostname);
                (std::mem::replace(&mut self.far.joined, true), drained)
            }
            false => {
                let before = self.far.nodes.insert(node, entry.clone()).map(|it| it.state);
                self.look_at_heir(node);
                (before.is_some(), before == Some(NodeState::Draining))
            }
        };
        if !known {
            self.far.passed.joined(node);
            self.pass_to_claims(claims::Event::Joined { node, epoch: Epoch(index) });
        }
        // An actor that waits for its name may seek a place as soon as it has it.
        self.offers(&entry);
        if !known {
            self.names_at_new_node(node);
            if !is_me {
                self.tell_of_other(node);
            }
        }
        if new_head {
            self.names_at_new_head();
            self.groups_at_new_head();
            self.sweep_past();
            if !self.far.passed_timer {
                self.may_tell_passed();
            }
        }
        if drains && !drained {
            self.on_draining(node);
        }
        if self.keeper() != keeper {
            self.look_at_keeper();
        }
    }

    pub(in crate::node) fn on_head_silent(&mut self, since: Instant) {
        let Some(head) = self.far.head.and_then(|head| self.far.nodes.get(&head)) else { return };
        let address = head.address.clone();
        self.far.head_silent = Some(since);
        self.pass_to_broker(broker::Event::HeadSilent { address, since });
        self.groups_of_silent_head();
    }

    pub(in crate::node) fn on_head_heard(&mut self) {
        if self.far.head_silent.take().is_some() {
            self.pass_to_broker(broker::Event::HeadHeard);
        }
    }

    /// The head, if it says nothing, and since when.
    pub fn silent_head(&self) -> Option<(&NodeEntry, Instant)> {
        let head = self.far.head.and_then(|head| self.far.nodes.get(&head))?;
        Some((head, self.far.head_silent?))
    }

    pub(in crate::node) fn on_unreached(&mut self, node: NodeNumber, since: Instant) {
        if self.far.nodes.contains_key(&node) {
            self.far.unreached.insert(node, since);
        }
    }

    pub(in crate::node) fn on_reached(&mut self, node: NodeNumber) {
        self.far.unreached.remove(&node);
    }

    /// Those that this node does not reach, while they live: what a person is told of each.
    pub(in crate::node) fn unreached(&self) -> Vec<(NodeNumber, String)> {
        let told = self.far.unreached.iter().filter_map(|(node, since)| {
            let NodeEntry { hostname, address, .. } = self.far.nodes.get(node)?;
            let seconds = self.now.since(*since).as_secs();
            let told = format!(
                "{node} ({hostname}, {address}) has not been reached from {} for {seconds} s",
                self.me()
            );
            Some((*node, told))
        });
        told.collect()
    }

    /// Why nothing is to be heard of a head, if that is known: it says nothing, or it is dead and there is no other yet.
    pub(in crate::node) fn silence_of_head(&self) -> Option<String> {
        let silent = self.silent_head().map(|(head, since)| (&head.address, since));
        let lost = self.far.head_lost.as_ref().map(|(address, since)| (address, *since));
        let (address, since) = silent.or(lost)?;
        Some(silence_of_head(address, since, self.now))
    }

    /// A cluster has one. This node has not heard of it, or the last one is dead.
    pub(in crate::node) fn lacks_head(&self) -> bool {
        self.config.clustered && self.far.head.is_none()
    }

    /// That node's row changed, or it is dead. Of all rows only this one and the heir's need be looked at, unless it was the heir: what
    /// every node does for every other one takes as long with many of them as with few.
    fn look_at_heir(&mut self, changed: NodeNumber) {
        let me = self.me();
        let nodes = &self.far.nodes;
        self.far.heir = match self.far.heir.filter(|heir| *heir != changed) {
            Some(heir) => {
                let of_two = [heir, changed].into_iter().filter_map(|node| nodes.get(&node));
                heir_of(me, of_two)
            }
            None => heir_of(me, nodes.values()),
        };
    }

    /// All that came from it was handed in; nothing comes any more.
    fn on_dead(&mut self, node: NodeNumber, why: &str, heir: Option<NodeNumber>, epoch: u64) {
        if self.far.dead.contains_key(&node) {
            return;
        }
        // Deaths come in the order of the table. If one did not, it would be passed a little late, and no daemon falls for it.
        let epoch = epoch.max(self.far.last_death + 1);
        self.far.last_death = epoch;
        self.far.unplaced.remove(&node);
        self.far.dead.insert(node, why.to_string());
        self.node_gone_in_queries(node, why);
        let gone = self.far.nodes.remove(&node);
        self.far.unreached.remove(&node);
        self.look_at_heir(node);
        self.far.covers.remove(&node);
        self.far.values_sent.values_mut().for_each(|nodes| _ = nodes.remove(&node));
        // First of all: from now on who is in charge of its objects is asked, and told.
        self.tell_of_other(node);
        let heirs = self.heirs_after(node, heir);
        let homes: BTreeSet<NodeNumber> = heirs.iter().map(|it| it.home).collect();
        let why_told = why.to_string();
        self.pass_to_objects(objects::Event::NodeGone { node, why: why_told, heirs });
        self.answer_ahead(node);
        self.work_off_queue();
        if self.far.head == Some(node) {
            self.far.head = None;
            let since = self.far.head_silent.unwrap_or(self.now);
            self.far.head_lost = gone.map(|head| (head.address, since));
        }
        let obituary = of_dead_node(node, why);
        self.offers_no_more(node);
        let strangers = self.far.strangers.keys().filter(|process| process.node() == node);
        for process in strangers.copied().collect::<Vec<_>>() {
            self.stranger_gone(process, &obituary);
        }
        self.far_workers_gone(node, &obituary);
        for told in self.far.told.values_mut() {
            told.remove(&node);
        }
        for dealt in self.far.dealt.values_mut() {
            dealt.remove(&node);
        }
        self.end_jobs_of(node);
        self.close_bars_of_dead(node);
        self.actors_of_dead(node, &homes);
        self.execute_wills();
        self.fetches_of_dead(node);
        self.names_of_dead(node);
        self.work_off_queue();
        self.pass_to_transfer(transfer::Event::NodeGone { node });
        self.node_gone_in_reduces(node);
        self.work_off_queue();
        self.far.passed.died(node, Epoch(epoch));
        self.begin_passing(node, Epoch(epoch));
        self.pass_to_claims(claims::Event::Died { node, heir, epoch: Epoch(epoch) });
        self.inherits(node, &homes);
        self.sweep_past();
    }

    /// What ran at a dead node: actors that are at home here, and leases without a channel. Those with a channel hear it
    /// by that (`ChannelEnded`).
    fn far_workers_gone(&mut self, node: NodeNumber, obituary: &Obituary) {
        let workers: Vec<ProcessId> = self
            .actors
            .rows()
            .filter_map(|row| row.worker)
            .filter(|worker| worker.node() == node)
            .collect();
        for process in workers {
            let obituary = obituary.clone();
            self.pass_to_actors(life::Event::ProcessGone { process, obituary });
        }
        let leases = self.far.leases.values().filter(|leased| leased.worker.node() == node);
        let workers: Vec<ProcessId> = leases.map(|leased| leased.worker).collect();
        for worker in workers {
            self.far_worker_gone(worker, obituary);
        }
    }

    /// Leases on it end; who holds one and has no channel to it hears so here.
    pub(super) fn far_worker_gone(&mut self, worker: ProcessId, obituary: &Obituary) {
        let ended = self.far.leases.values().filter(|leased| leased.worker == worker);
        let ended: Vec<Leased> = ended.copied().collect();
        self.far.leases.retain(|_, leased| leased.worker != worker);
        let mut told = false;
        for leased in ended {
            if !self.far.channels.contains(&(leased.holder, worker)) {
                let (process, obituary, unstarted) = (worker, obituary.clone(), Vec::new());
                let gone = ToClient::ProcessGone { process, obituary, unstarted };
                self.send(leased.holder, gone);
                told = true;
            }
        }
        if told {
            self.dig_grave(worker, obituary.clone());
        }
    }

    /// Of a head: a node passed a death. When all have, the dead until then are settled.
    pub(super) fn on_passed(&mut self, node: NodeNumber, epoch: u64) {
        let Some(done) = self.far.passed.passed(node, Epoch(epoch)) else { return };
        self.out.push(Effect::Settle { epoch: done.0 });
    }

    /// Its claims are confirmed that were open when that node died, and heirs have heard what is known here: the head is told, at once unless
    /// it was told of another death just now. So many deaths at a time are few words.
    pub(super) fn has_passed(&mut self, epoch: Epoch) {
        self.far.passed_here = self.far.passed_here.max(Some(epoch));
        if !self.far.passed_timer {
            self.may_tell_passed();
        }
    }

    pub(in crate::node) fn may_tell_passed(&mut self) {
        self.far.passed_timer = false;
        // A new head may pass the death of the earlier one before it hears that it is the head.
        let Some(head) = self.far.head else { return };
        let Some(epoch) = self.far.passed_here.take() else { return };
        let others = self.far.nodes.len() as u32;
        self.far.passed_timer = true;
        self.after(PASSED_TOLD_OF_EACH * others, Timer::Passed);
        match head == self.me() {
            true => self.on_passed(head, epoch.0),
            false => self.send_peer(head, Peer::Passed { epoch: epoch.0 }),
        }
    }

    /// It has heard its own row, and those before it.
    pub fn has_joined(&self) -> bool {
        self.far.joined
    }

    /// To the cluster of a head that is another node.
    pub(in crate::node) fn is_joined(&self) -> bool {
        let leads = self.far.global.is_some() || self.far.head == Some(self.me());
        self.config.clustered && !leads
    }

    /// Those whose death this node heard of, the latest life first.
    pub(in crate::node) fn dead_nodes(&self) -> Vec<NodeNumber> {
        let latest = self.far.latest.unwrap_or(self.config.node);
        // Numbers begin again behind the highest one.
        let earlier = self.far.dead.range(..=latest).rev();
        let before_those = self.far.dead.range((Bound::Excluded(latest), Bound::Unbounded)).rev();
        earlier.chain(before_those).map(|(node, _)| *node).collect()
    }

    /// For people.
    pub fn node_name(&self, node: NodeNumber) -> String {
        match self.far.nodes.get(&node) {
            Some(entry) => format!("{node} ({})", entry.hostname),
            None => node.to_string(),
        }
    }

    pub(super) fn stranger(&mut self, process: ProcessId) -> &mut Stranger {
        let new = || Stranger { job: JobId(0), workers: BTreeSet::new() };
        self.far.strangers.entry(process).or_insert_with(new)
    }
}

pub(super) fn of_dead_node(node: NodeNumber, why: &str) -> Obituary {
    let reason = format!("its node ({node}) died: {why}");
    Obituary { pid: 0, cause: DeathCause::Lost { reason }, last_lines: Vec::new() }
}

/// What the row of a dead node becomes when all have passed its death.
pub fn settled(entry: &NodeEntry, died: u64) -> Option<NodeEntry> {
    match &entry.state {
        NodeState::Dead { why, heir } => {
            let state = NodeState::Settled { why: why.clone(), heir: *heir, died };
            Some(NodeEntry { state, ..entry.clone() })
        }
        NodeState::Alive | NodeState::Draining | NodeState::Settled { .. } => None,
    }
}

/// Who is in charge of what a node was in charge of that dies now: a node that lives, and does not leave if another one can be had.
pub fn heir_of<'a>(
    dead: NodeNumber,
    nodes: impl Iterator<Item = &'a NodeEntry> + Clone,
) -> Option<NodeNumber> {
    let placed = |entry: &&NodeEntry| !entry.address.is_empty() && entry.node != dead;
    let of_state = |state: NodeState| {
        let nodes = nodes.clone().filter(placed).filter(move |entry| entry.state == state);
        claims::heir(dead, nodes.map(|entry| entry.node))
    };
    of_state(NodeState::Alive).or_else(|| of_state(NodeState::Draining))
}

/// The same, of very many nodes: only the rows are read of those that come into question, which are few.
pub fn heir_among(
    dead: NodeNumber,
    nodes: impl Iterator<Item = NodeNumber>,
    row: impl Fn(NodeNumber) -> Option<NodeEntry>,
) -> Option<NodeNumber> {
    let mut leaving = None;
    for node in claims::by_preference(dead, nodes) {
        let placed = row(node).filter(|entry| !entry.address.is_empty());
        match placed.map(|entry| entry.state) {
            Some(NodeState::Alive) => return Some(node),
            Some(NodeState::Draining) => leaving = leaving.or(Some(node)),
            Some(NodeState::Dead { .. } | NodeState::Settled { .. }) | None => {}
        }
    }
    leaving
}

/// Nodes whose rows nobody needs: of those that are settled the last `keep` stay, and so does the highest number, after which the next
/// node's is given.
pub fn outlived<'a>(
    nodes: impl Iterator<Item = &'a NodeEntry> + Clone,
    keep: usize,
) -> Vec<NodeNumber> {
    let highest = nodes.clone().map(|entry| entry.node).max();
    let died = |entry: &NodeEntry| match entry.state {
        NodeState::Settled { died, .. } => Some((died, entry.node)),
        NodeState::Alive | NodeState::Draining | NodeState::Dead { .. } => None,
    };
    let mut settled: Vec<_> = nodes.filter_map(died).collect();
    settled.sort_unstable();
    settled.truncate(settled.len().saturating_sub(keep));
    let old = settled.into_iter().map(|(_, node)| node);
    old.filter(|node| Some(*node) != highest).collect()
}
