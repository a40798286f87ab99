//! Global scheduler: on the head, says which nodes have room for what others could not get at home.
//!
//! It knows no tasks and grants nothing. A broker *seeks* so many leases of a shape; the answer says how many are to be
//! asked for at which node, and those nodes grant, queue or refuse (BRK-2 in `broker`).
//!
//! ```text
//!  Sought --room somewhere--> Nodes          (what is left of it stands)
//!         --all are full----> Queue / Later  (it stands) --a node has room--> Nodes
//!         --none could------> Never          (it stands) --one joins that could--> Nodes / Queue / Later
//! ```
//! **Room** is what a node reported as free, less what was *pledged* since: what answers gave away of it counts against a node
//! until a report that was made later. Nobody's clock is compared for that: a report that comes `PLEDGE_SETTLES` after
//! the answer knows of it, as nearly every one does, and after `PLEDGE_MAX` it is forgotten.
//!
//! **Order.** Of the shape's selectors the first counts that any node could ever meet, with its resources. By default nodes
//! are filled up to half, in the order of their numbers, then the least used ones go first. `Spread` gives each node one before any gets
//! two, least used first, and begins behind the one that came last. Only when none has room are nodes named to
//! wait at: those with the shortest backlog, one round of the shape each, since a claim that waits nowhere is never
//! served by recalling leases.
//!
//! **Full.** A node without room for objects is named for what names it, for bundles, and where all that could run it are full.
//!
//! # Invariants
//! - GLOB-1: nobody is named that drains, is dead or could never run it.
//! - GLOB-2: an answer names at most as many as were wanted.
//! - GLOB-3: nobody is told to wait while a node that could run it has room.
//! - GLOB-4: what is free of a node is what it reported, less its pledges.
//! - GLOB-5: of each node with pledges it is noted when the first was made.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hoplo_base::bundles::group_of;
use hoplo_base::limits::{LEASES_FREE_MAX, PLEDGE_MAX, PLEDGE_SETTLES, WANTS_STANDING_MAX};
use hoplo_base::resources::{CPU, PARTS};
use hoplo_base::{Instant, NodeNumber, ResourceSet};
use hoplo_wire::node::{Shape, Strategy};
use hoplo_wire::peer::{Found, Load};

use super::claim::NEAREST;
use super::place::{Place, rooms, selectors, tried};

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Asked for from now on; again when its labels change.
    Joined {
        place: Place,
    },
    /// It gets nothing more.
    Drains {
        node: NodeNumber,
    },
    /// Dead or left; what it wanted is forgotten.
    Gone {
        node: NodeNumber,
    },
    Reported {
        node: NodeNumber,
        load: Load,
    },
    /// `wanted` 0: no more of that.
    Sought {
        asker: NodeNumber,
        seek: u64,
        shape: Shape,
        wanted: u32,
    },
    Tick,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    Answer { asker: NodeNumber, seek: u64, found: Found },
}

#[derive(Debug)]
pub struct GlobalScheduler {
    nodes: BTreeMap<NodeNumber, Known>,
    /// What was not met.
    wants: BTreeMap<Key, Want>,
    next_turn: u64,
    /// Who was named last by `Spread`.
    last: u32,
    /// The first pledge of each node that has any: a report of one node is not to cost a look at all others.
    pledged: BTreeSet<(Instant, NodeNumber)>,
}

type Key = (NodeNumber, u64);

#[derive(Debug)]
struct Known {
    place: Place,
    draining: bool,
    /// It has no room for objects.
    full: bool,
    available: ResourceSet,
    /// Parts of CPU that wait there.
    backlog: u64,
    pledges: VecDeque<Pledge>,
    /// When the first of them was made, as it is noted.
    first: Option<Instant>,
    /// `available` less the pledges.
    free: ResourceSet,
}

/// Given away since the last report.
#[derive(Debug)]
struct Pledge {
    at: Instant,
    resources: ResourceSet,
    count: u32,
    /// To wait there, and not of what is free.
    queued: bool,
}

/// What stands.
#[derive(Debug)]
struct Want {
    shape: Shape,
    wanted: u32,
    turn: u64,
    /// It was told that no node could.
    never: bool,
}

impl GlobalScheduler {
    /// `seed`: where `Spread` begins.
    pub fn new(seed: u64) -> Self {
        let last = (seed ^ seed >> 32) as u32;
        let (nodes, wants, pledged) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { nodes, wants, next_turn: 0, last, pledged }
    }

    pub fn handle(&mut self, now: Instant, event: Event, effects: &mut Vec<Effect>) {
        let mut more = self.settle(now);
        match event {
            Event::Joined { place } => {
                let known = self.nodes.entry(place.node).or_insert_with(|| Known::new(&place));
                known.place = place;
                more = true;
            }
            Event::Drains { node } => {
                if let Some(known) = self.nodes.get_mut(&node) {
                    known.draining = true;
                }
                more = true; // what only this node met may fall back to another selector
            }
            Event::Gone { node } => {
                let first = self.nodes.remove(&node).and_then(|known| known.first);
                if let Some(first) = first {
                    self.pledged.remove(&(first, node));
                }
                self.wants.retain(|(asker, _), _| *asker != node);
                more = true; // as above
            }
            Event::Reported { node, load } => {
                if let Some(known) = self.nodes.get_mut(&node) {
                    more |= known.report(now, load);
                }
                self.note_first(node);
            }
            Event::Sought { asker, seek, shape, wanted } => {
                self.on_sought(now, (asker, seek), shape, wanted, effects);
            }
            Event::Tick => {}
        }
        if more {
            self.serve_standing(now, effects);
        }
    }

    /// When time alone frees something.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.pledged.first().map(|(at, _)| *at + PLEDGE_MAX)
    }

    /// What stands: who could use how many more of which shape.
    pub fn wants(&self) -> impl Iterator<Item = (NodeNumber, &Shape, u32)> {
        self.wants.iter().map(|((asker, _), want)| (*asker, &want.shape, want.wanted))
    }

    /// Why what was sought under this number is not met; `None` if it is.
    pub fn explain(&self, asker: NodeNumber, seek: u64) -> Option<String> {
        let want = self.wants.get(&(asker, seek))?;
        let nodes = self.feasible(&want.shape);
        if nodes.is_empty() {
            return Some(self.why_never(&want.shape));
        }
        let full: Vec<String> = nodes.iter().take(3).map(|node| node.hex()).collect();
        let more = nodes.len().saturating_sub(full.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Some(format!("no room at any node that could run it: {}{more}", full.join(", ")))
    }

    /// Asserts GLOB-3 for what stands, and GLOB-4.
    pub fn check(&self) {
        for (node, known) in &self.nodes {
            assert_eq!(known.free, known.computed_free(), "GLOB-4: {node}");
            let first = known.pledges.front().map(|pledge| pledge.at);
            assert_eq!(known.first, first, "GLOB-5: {node}");
            assert!(first.is_none_or(|at| self.pledged.contains(&(at, *node))), "GLOB-5: {node}");
        }
        let any = self.nodes.values().filter(|known| !known.pledges.is_empty()).count();
        assert_eq!(self.pledged.len(), any, "GLOB-5");
        for (key, want) in &self.wants {
            assert!(want.wanted > 0, "{key:?} wants nothing");
            let room = |node: &NodeNumber| self.nodes[node].rooms(&want.shape) > 0;
            let free = self.feasible(&want.shape).into_iter().find(room);
            assert_eq!(free, None, "GLOB-3: {key:?} waits");
        }
    }

    fn on_sought(
        &mut self,
        now: Instant,
        key: Key,
        shape: Shape,
        wanted: u32,
        effects: &mut Vec<Effect>,
    ) {
        let turn = self.wants.remove(&key).map(|want| want.turn);
        if wanted == 0 {
            return;
        }
        let nodes = self.feasible(&shape);
        let given = self.give(now, &nodes, &shape, wanted);
        let left = wanted - sum(&given);
        let found = if nodes.is_empty() {
            Found::Never { why: self.why_never(&shape) }
        } else if !given.is_empty() {
            Found::Nodes(given)
        } else {
            self.queue(now, key.0, &nodes, &shape, wanted)
        };
        let never = matches!(found, Found::Never { .. });
        effects.push(Effect::Answer { asker: key.0, seek: key.1, found });
        let of_asker = self.wants.range((key.0, 0)..=(key.0, u64::MAX)).count();
        if left > 0 && of_asker < WANTS_STANDING_MAX {
            let turn = turn.unwrap_or_else(|| self.turn());
            self.wants.insert(key, Want { shape, wanted: left, turn, never });
        }
    }

    /// Something is free: those that stand get it. Each asker gets its share first.
    fn serve_standing(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if self.wants.is_empty() {
            return;
        }
        let mut order: Vec<(u64, Key)> =
            self.wants.iter().map(|(key, want)| (want.turn, *key)).collect();
        order.sort();
        let askers = self.wants.keys().map(|(asker, _)| *asker).collect::<BTreeSet<_>>().len();
        let mut gifts: BTreeMap<Key, BTreeMap<NodeNumber, u32>> = BTreeMap::new();
        for shared in [true, false] {
            let all = |key: &Key| self.rooms(&self.wants[key].shape);
            let all: Vec<u64> = order.iter().map(|(_, key)| all(key)).collect();
            for ((_, key), all) in order.iter().zip(all) {
                let want = &self.wants[key];
                let shape = want.shape.clone();
                let share = if shared { (all / askers as u64).max(1) } else { all };
                let count = u64::from(want.wanted).min(share) as u32;
                let nodes = self.feasible(&shape);
                let given = self.give(now, &nodes, &shape, count);
                let gift = gifts.entry(*key).or_default();
                self.wants.get_mut(key).expect("it stands").wanted -= sum(&given);
                for (node, count) in given {
                    *gift.entry(node).or_default() += count;
                }
            }
        }
        for (_, key) in order {
            let gift: Vec<_> = gifts.remove(&key).unwrap_or_default().into_iter().collect();
            let want = &self.wants[&key];
            let (never, shape, wanted) = (want.never, want.shape.clone(), want.wanted);
            let found = if !gift.is_empty() {
                Found::Nodes(gift)
            } else if never {
                let nodes = self.feasible(&shape);
                if nodes.is_empty() {
                    continue;
                }
                self.queue(now, key.0, &nodes, &shape, wanted)
            } else {
                continue;
            };
            effects.push(Effect::Answer { asker: key.0, seek: key.1, found });
            let turn = self.turn();
            let want = self.wants.get_mut(&key).expect("it stands");
            (want.never, want.turn) = (false, turn);
        }
        self.wants.retain(|_, want| want.wanted > 0);
    }

    /// So many of what is free there, at most `wanted`.
    fn give(
        &mut self,
        now: Instant,
        nodes: &[NodeNumber],
        shape: &Shape,
        wanted: u32,
    ) -> Vec<(NodeNumber, u32)> {
        let mut given: BTreeMap<NodeNumber, u32> = BTreeMap::new();
        let spread = shape.strategy == Strategy::Spread;
        let last = self.last;
        let place = |this: &Self, node: NodeNumber, has: u32| {
            let known = &this.nodes[&node];
            let used = known.used_with(&shape.resources);
            let rank = match spread {
                true => (has, used, behind(last, node)),
                false => (0, if used <= HALF { 0 } else { used }, 0),
            };
            (known.rooms(shape) > 0).then_some((rank, node))
        };
        let mut order: BTreeSet<_> = nodes.iter().filter_map(|it| place(self, *it, 0)).collect();
        for _ in 0..wanted {
            let Some((_, node)) = order.pop_first() else { break };
            let known = self.nodes.get_mut(&node).expect("it is feasible");
            known.pledge(now, &shape.resources, false);
            self.note_first(node);
            let has = given.entry(node).or_default();
            *has += 1;
            let has = *has;
            order.extend(place(self, node, has));
            if spread {
                self.last = node.number();
            }
        }
        given.into_iter().collect()
    }

    /// Where so many may wait, one round of the shape at each node.
    fn queue(
        &mut self,
        now: Instant,
        asker: NodeNumber,
        nodes: &[NodeNumber],
        shape: &Shape,
        wanted: u32,
    ) -> Found {
        let spread = shape.strategy == Strategy::Spread;
        let mut given: BTreeMap<NodeNumber, u32> = BTreeMap::new();
        // At home it waits already, unless that is full.
        let others =
            nodes.iter().filter(|node| spread || **node != asker || self.nodes[*node].full);
        let place = |this: &Self, node: NodeNumber| (this.nodes[&node].waiting(), node);
        let mut order: BTreeSet<_> = others.map(|node| place(self, *node)).collect();
        for _ in 0..wanted {
            let Some((_, node)) = order.pop_first() else { break };
            let known = self.nodes.get_mut(&node).expect("it is feasible");
            known.pledge(now, &shape.resources, true);
            let slots = known.place.slots(&shape.resources, 1);
            self.note_first(node);
            let has = given.entry(node).or_default();
            *has += 1;
            if *has < slots {
                order.insert(place(self, node));
            }
        }
        if given.is_empty() { Found::Later } else { Found::Queue(given.into_iter().collect()) }
    }

    /// How many would be given at most.
    fn rooms(&self, shape: &Shape) -> u64 {
        let rooms = |node: NodeNumber| u64::from(self.nodes[&node].rooms(shape));
        self.feasible(shape).into_iter().map(rooms).sum()
    }

    /// Those that could ever run it, by the first selector that anyone meets.
    fn feasible(&self, shape: &Shape) -> Vec<NodeNumber> {
        let live = || self.nodes.iter().filter(|(_, known)| !known.draining);
        for selector in selectors(shape) {
            let could = live().filter(|(_, known)| known.place.could(shape, selector));
            let mut nodes: Vec<NodeNumber> = could.map(|(node, _)| *node).collect();
            let has_room = |node: &NodeNumber| !self.nodes[node].full;
            if let Strategy::Node { node, soft } = shape.strategy
                && (!soft || nodes.contains(&node))
            {
                nodes.retain(|other| *other == node);
            } else if group_of(&shape.resources).is_none() && nodes.iter().any(has_room) {
                nodes.retain(has_room);
            }
            if !nodes.is_empty() {
                return nodes;
            }
        }
        Vec::new()
    }

    /// What is missing at the node that misses least.
    fn why_never(&self, shape: &Shape) -> String {
        if let Strategy::Node { node, soft: false } = shape.strategy {
            match self.nodes.get(&node) {
                None => return format!("needs node {}, which is not in this cluster", node.hex()),
                Some(known) if known.draining => {
                    return format!("needs node {}, which takes no more", node.hex());
                }
                Some(_) => {}
            }
        }
        let only = match shape.strategy {
            Strategy::Node { node, soft: false } => Some(node),
            Strategy::Node { .. } | Strategy::Default | Strategy::Spread => None,
        };
        let live = self.nodes.values().filter(|known| !known.draining);
        let live = live.filter(|known| only.is_none_or(|only| known.place.node == only));
        let live: Vec<&Known> = live.collect();
        let nearest = |selector| {
            let lacks = live.iter().map(|it| (it.place.lacks(shape, selector), it.place.node));
            lacks.min_by_key(|((count, missing, _), node)| (*count, *missing, *node))
        };
        let nearest: Vec<_> = selectors(shape).iter().filter_map(nearest).collect();
        let first =
            nearest.iter().min_by_key(|((count, missing, _), node)| (*count, *missing, *node));
        let Some((_, node)) = first else { return "no node takes work".to_string() };
        let why = tried(nearest.iter().filter_map(|((.., why), _)| why.clone()));
        match self.nodes.len() {
            1 => why,
            count => format!("{why}{NEAREST}{}, the nearest of {count})", node.hex()),
        }
    }

    /// What time has settled. True if something is free because of it.
    fn settle(&mut self, now: Instant) -> bool {
        let mut more = false;
        while let Some((at, node)) = self.pledged.first().copied()
            && at + PLEDGE_MAX <= now
        {
            let known = self.nodes.get_mut(&node).expect("who has pledges is known");
            more |= known.forget_before(now, PLEDGE_MAX);
            self.note_first(node);
        }
        more
    }

    /// GLOB-5, after its pledges changed.
    fn note_first(&mut self, node: NodeNumber) {
        let Some(known) = self.nodes.get_mut(&node) else { return };
        let first = known.pledges.front().map(|pledge| pledge.at);
        let before = std::mem::replace(&mut known.first, first);
        if before != first {
            self.pledged.extend(first.map(|at| (at, node)));
            if let Some(before) = before {
                self.pledged.remove(&(before, node));
            }
        }
    }

    fn turn(&mut self) -> u64 {
        self.next_turn += 1;
        self.next_turn
    }
}

/// Of a thousand parts of a node's largest share in use.
const HALF: u64 = 500;

impl Known {
    fn new(place: &Place) -> Self {
        let (available, free) = (place.total.clone(), place.total.clone());
        let (place, pledges) = (place.clone(), VecDeque::new());
        let (draining, full, backlog, first) = (false, false, 0, None);
        Self { place, draining, full, available, backlog, pledges, first, free }
    }

    /// True if somebody may get something because of it.
    fn report(&mut self, now: Instant, load: Load) -> bool {
        let could = self.place.total != load.total || self.full != load.full;
        self.full = load.full;
        let before = self.free.clone();
        let parts = |(resources, count): &(ResourceSet, u32)| weight(resources) * u64::from(*count);
        self.backlog = load.waiting.iter().map(parts).sum();
        (self.place.total, self.available) = (load.total, load.available);
        let less = self.forget_before(now, PLEDGE_SETTLES);
        self.free = self.computed_free();
        could || less || !before.covers(&self.free)
    }

    /// Pledges that old count no more. True if there were any.
    fn forget_before(&mut self, now: Instant, age: std::time::Duration) -> bool {
        let before = self.pledges.len();
        while self.pledges.front().is_some_and(|pledge| pledge.at + age <= now) {
            self.pledges.pop_front();
        }
        let less = self.pledges.len() < before;
        if less {
            self.free = self.computed_free();
        }
        less
    }

    fn pledge(&mut self, now: Instant, resources: &ResourceSet, queued: bool) {
        if !queued {
            self.free = less(&self.free, resources, 1);
        }
        match self.pledges.back_mut() {
            Some(last)
                if (last.at, last.queued) == (now, queued) && last.resources == *resources =>
            {
                last.count += 1;
            }
            _ => {
                let resources = resources.clone();
                self.pledges.push_back(Pledge { at: now, resources, count: 1, queued });
            }
        }
    }

    fn computed_free(&self) -> ResourceSet {
        let given = self.pledges.iter().filter(|pledge| !pledge.queued);
        let take = |free: ResourceSet, it: &Pledge| less(&free, &it.resources, it.count);
        given.fold(self.available.clone(), take)
    }

    fn rooms(&self, shape: &Shape) -> u32 {
        let free_of_charge = self.pledges.iter().filter(|pledge| pledge.resources.is_empty());
        let pledged: u32 = free_of_charge.map(|pledge| pledge.count).sum();
        rooms(&self.free, &shape.resources, (LEASES_FREE_MAX as u32).saturating_sub(pledged))
    }

    /// In thousandths: how much of what it has most of in use would be, with this as well.
    fn used_with(&self, wanted: &ResourceSet) -> u64 {
        let names = wanted.iter().map(|(name, _)| name).chain([CPU]);
        let used = names.filter_map(|name| {
            let (total, free) = (self.place.total.parts(name), self.free.parts(name));
            let used = total.saturating_sub(free).saturating_add(wanted.parts(name));
            (total > 0).then(|| (u128::from(used) * 1000 / u128::from(total)) as u64)
        });
        used.max().unwrap_or(0)
    }

    /// What waits there for each of its CPUs, in parts.
    fn waiting(&self) -> u64 {
        let queued = self.pledges.iter().filter(|pledge| pledge.queued);
        let queued = queued.map(|pledge| weight(&pledge.resources) * u64::from(pledge.count));
        let cpus = self.place.total.parts(CPU).max(PARTS);
        (self.backlog + queued.sum::<u64>()).saturating_mul(PARTS) / cpus
    }
}

/// How much of a node's time one waiting lease may take, in parts of a CPU.
fn weight(resources: &ResourceSet) -> u64 {
    resources.parts(CPU).max(PARTS / 10)
}

/// Its place in a round that begins behind the one that was named last.
fn behind(last: u32, node: NodeNumber) -> u32 {
    node.number().wrapping_sub(last).wrapping_sub(1)
}

fn less(free: &ResourceSet, taken: &ResourceSet, count: u32) -> ResourceSet {
    let mut rest = free.clone();
    for (name, parts) in taken.iter() {
        let parts = parts.saturating_mul(u64::from(count));
        rest.set_parts(name, rest.parts(name).saturating_sub(parts));
    }
    rest
}

fn sum(given: &[(NodeNumber, u32)]) -> u32 {
    given.iter().map(|(_, count)| count).sum()
}

#[cfg(test)]
#[path = "global_tests.rs"]
mod tests;
