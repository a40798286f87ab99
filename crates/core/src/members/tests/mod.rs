//! A judge in a small world: machines that beat, are stopped, die or are cut off, in virtual time.

mod absence;
mod deaths;
mod many;
mod standing;
mod verdicts;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hoplo_base::{Instant, NodeNumber, limits};

use super::{Effect, Event, Found, Judge, NodeState, Why, beat};

fn number(count: u32) -> NodeNumber {
    NodeNumber::first_given(count)
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn at(milliseconds: u64) -> Instant {
    Instant::ZERO + ms(milliseconds)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Lives,
    /// Its daemon is gone, its machine answers for it.
    Crashed,
    /// Nothing comes from there.
    Vanished,
}

/// What is under way.
#[derive(Clone, Debug, PartialEq)]
enum Coming {
    Beat(NodeNumber),
    ToJudge(Event),
    Store { ticket: u64, number: NodeNumber, expected: u64, why: Why },
}

/// The judge's own machine, as an end of a way.
const JUDGE: u32 = 1000;

struct World {
    now: Instant,
    judge: Judge,
    lives: BTreeMap<u32, Life>,
    /// Ways that let nothing through: from, to.
    cuts: BTreeSet<(u32, u32)>,
    /// What a heartbeat of it takes.
    delays: BTreeMap<u32, Duration>,
    rows: BTreeMap<u32, u64>,
    air: BTreeMap<(Instant, u64), Coming>,
    count: u64,
    events: usize,
    store_answers: bool,
    /// It takes nothing up before then.
    paused_until: Instant,
    probes: Vec<(Instant, u32, Option<NodeNumber>)>,
    open: BTreeSet<u64>,
    open_most: usize,
    verdicts: BTreeMap<u32, (Instant, Why)>,
    told: Vec<NodeNumber>,
    behind: Vec<Duration>,
}

/// One way.
const WAY: Duration = Duration::from_millis(2);

impl World {
    /// Nodes 0 to `nodes - 1` live, and a judge that acts has heard of all of them.
    fn new(nodes: u32) -> Self {
        let mut world = Self::begun(nodes);
        world.event(Event::Acts(true));
        world.pass(ms(1000));
        world.probes.clear();
        assert!(world.verdicts.is_empty());
        world
    }

    /// The judge has just begun, and does not act.
    fn begun(nodes: u32) -> Self {
        let mut world = Self {
            now: Instant::ZERO,
            judge: Judge::new(Instant::ZERO),
            lives: BTreeMap::new(),
            cuts: BTreeSet::new(),
            delays: BTreeMap::new(),
            rows: BTreeMap::new(),
            air: BTreeMap::new(),
            count: 0,
            events: 0,
            store_answers: true,
            paused_until: Instant::ZERO,
            probes: Vec::new(),
            open: BTreeSet::new(),
            open_most: 0,
            verdicts: BTreeMap::new(),
            told: Vec::new(),
            behind: Vec::new(),
        };
        for node in 0..nodes {
            world.lives.insert(node, Life::Lives);
            world.rows.insert(node, 1);
            world.event(row(node, 1, NodeState::Alive));
            // They do not beat in step.
            world.later(ms(u64::from(node * 37 % 100)), Coming::Beat(number(node)));
        }
        world
    }

    fn later(&mut self, after: Duration, what: Coming) {
        self.count += 1;
        self.air.insert((self.now + after, self.count), what);
    }

    fn reaches(&self, from: u32, to: u32) -> bool {
        !self.cuts.contains(&(from, to))
    }

    fn event(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.judge.handle(self.now, event, &mut effects);
        self.events += 1;
        // It looks at every node.
        if self.events.is_multiple_of(1 + self.rows.len() / 10) {
            self.judge.check();
        }
        for effect in effects {
            match effect {
                Effect::Probe { ticket, target, via } => self.probe(ticket, target, via),
                Effect::Verdict { ticket, number, expected, why } => {
                    self.later(WAY * 2, Coming::Store { ticket, number, expected, why });
                }
                Effect::Tell { number, why: _ } => self.told.push(number),
                Effect::Behind { by } => self.behind.push(by),
            }
        }
    }

    fn probe(&mut self, ticket: u64, target: NodeNumber, via: Option<NodeNumber>) {
        let node = node_of(target);
        self.probes.push((self.now, node, via));
        self.open.insert(ticket);
        self.open.retain(|ticket| self.judge.tickets.contains_key(ticket));
        self.open_most = self.open_most.max(self.open.len());
        let prober = via.map_or(JUDGE, node_of);
        let asks = |a: u32, b: u32| self.reaches(a, b) && self.reaches(b, a);
        if via.is_some() && !(asks(JUDGE, prober) && self.lives[&prober] == Life::Lives) {
            return;
        }
        let hops = if via.is_some() { 4 } else { 2 };
        let slow = self.delays.get(&node).copied().unwrap_or_default();
        let reached = asks(prober, node).then_some(self.lives[&node]);
        let (found, takes) = match (reached, via) {
            (Some(Life::Lives), _) => (Found::Alive, WAY * hops + slow),
            (Some(Life::Crashed), _) => (Found::Refused, WAY * hops),
            (Some(Life::Vanished) | None, Some(_)) => {
                (Found::Silent, WAY * 2 + limits::MEMBER_WITNESS_WITHIN)
            }
            (Some(Life::Vanished) | None, None) => return,
        };
        self.later(takes, Coming::ToJudge(Event::Probed { ticket, found }));
    }

    /// Everything that happens in this time.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let due = self.judge.next_deadline().map(|at| at.max(self.paused_until));
            let next = self.air.first_key_value().map(|((at, _), _)| *at);
            let next = next.map(|at| match self.air.first_key_value().unwrap().1 {
                Coming::ToJudge(_) => at.max(self.paused_until),
                Coming::Beat(_) | Coming::Store { .. } => at,
            });
            let Some(at) = due.into_iter().chain(next).min().filter(|at| *at <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(at);
            if next != Some(at) {
                self.event(Event::Tick);
                continue;
            }
            let (_, what) = self.air.pop_first().unwrap();
            self.happens(what);
        }
    }

    fn happens(&mut self, what: Coming) {
        match what {
            Coming::Beat(of) => {
                let node = node_of(of);
                if self.lives[&node] == Life::Lives {
                    if self.reaches(node, JUDGE) {
                        let way = WAY + self.delays.get(&node).copied().unwrap_or_default();
                        let beat = Event::Heartbeat { from: of, epoch: 1 };
                        self.later(way, Coming::ToJudge(beat));
                    }
                    let nodes = self.rows.len() - self.verdicts.len();
                    self.later(beat(nodes), Coming::Beat(of));
                }
            }
            Coming::ToJudge(event) if self.now < self.paused_until => {
                self.later(self.paused_until - self.now, Coming::ToJudge(event));
            }
            Coming::ToJudge(event) => self.event(event),
            Coming::Store { ticket, number, expected, why } => {
                let version = self.rows.get_mut(&node_of(number)).unwrap();
                let outcome = if !self.store_answers {
                    Event::Unreachable { ticket }
                } else if *version == expected {
                    *version += 1;
                    let before = self.verdicts.insert(node_of(number), (self.now, why));
                    assert_eq!(before, None, "MEMB-4");
                    Event::Stored { ticket, version: *version }
                } else {
                    Event::Conflict { ticket }
                };
                self.event(outcome);
            }
        }
    }

    fn vanish(&mut self, node: u32) {
        self.lives.insert(node, Life::Vanished);
    }

    fn dead(&self) -> Vec<u32> {
        self.verdicts.keys().copied().collect()
    }

    fn cut_both_ways(&mut self, a: u32, b: u32) {
        self.cuts.extend([(a, b), (b, a)]);
    }
}

fn node_of(of: NodeNumber) -> u32 {
    of.number() - number(0).number()
}

fn row(node: u32, version: u64, state: NodeState) -> Event {
    Event::Row { number: number(node), version, state, near: false }
}

/// That much of the time that a silent node may take is the judge's and the store's.
const TOLD_WITHIN: Duration = Duration::from_millis(750);
