//! Nodes die, many at once: verdicts, what every node hears of them, and when all have passed.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Plane;
use super::plane::number;
use super::words::{Heard, What};

/// How they die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Their processes end, and their machines say so.
    Crash,
    /// Nothing comes from there any more.
    Vanish,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Deaths {
    pub nodes: u32,
    pub died: u32,
    pub declared_dead: u64,
    /// Of nodes that live.
    pub declared_wrongly: u64,
    /// Until the last verdict is in the store, every node has heard of every death, and all are settled.
    pub verdicts_s: f64,
    pub heard_s: f64,
    pub settled_s: f64,
    pub decider_s: f64,
    pub carrier_s: f64,
    pub member_s: f64,
    pub probes: u64,
    pub frames: u64,
    pub flushes: u64,
    /// What nodes said to the head: that they passed a death.
    pub passed: u64,
    /// What nodes said to each other of the estates.
    pub words: u64,
    /// Those to heirs by kind: of stand-ins, and of real nodes.
    pub to_heirs: BTreeMap<&'static str, [u64; 2]>,
    /// How often all had passed some, so that all rows were read.
    pub settlings: u64,
}

const WITHIN: Duration = Duration::from_secs(600);

impl Plane {
    /// So many of its nodes die at this moment. So many others used an object of each of them, and tell its heir.
    pub fn die(&mut self, count: u32, how: Ends, holders: u32) -> Deaths {
        let dying = self.those_who_die(count);
        self.hold(&dying, holders);
        self.begin();
        let (began, nodes) = (self.now, self.members.len() as u32 + 1);
        let died = dying.len() as u64;
        for at in dying {
            let member = self.members.get_mut(&at).expect("it lives");
            (member.lives, member.refuses) = (false, how == Ends::Crash);
            if how == Ends::Crash {
                let closed = Heard::Closed { node: number(at) };
                self.after(self.costs.way, What::ToCarrier(closed));
            }
        }
        let all_settled = move |plane: &Self| {
            let mut living = plane.members.values().filter(|member| member.lives);
            living.next().is_some_and(|it| it.settled_heard >= died)
                && living.all(|member| member.settled_heard >= died)
        };
        self.heard_deaths_at = 0;
        let end = began + WITHIN.as_nanos() as u64;
        // To look at all nodes after each step would take long.
        while self.now < end && !all_settled(self) {
            self.run_for(10_000_000);
        }
        let seconds = |at: u64| at.saturating_sub(began) as f64 / 1e9;
        let tally = |what: &str| self.meter.tallies().get(what).map_or(0, |tally| tally.events);
        Deaths {
            nodes,
            died: died as u32,
            declared_dead: self.verdicts_stored,
            declared_wrongly: self.false_verdicts,
            verdicts_s: seconds(self.last_verdict_at),
            heard_s: seconds(self.heard_deaths_at),
            settled_s: seconds(self.last_heard_at),
            decider_s: self.decider.busy as f64 / 1e9,
            carrier_s: self.carrier.busy as f64 / 1e9,
            member_s: self.busiest_member() as f64 / 1e9,
            probes: self.probes,
            frames: self.frames,
            flushes: self.flushes,
            passed: tally("head: a node passed a death"),
            words: self.words,
            to_heirs: self.to_heirs.clone(),
            settlings: self.settlings,
        }
    }
}
