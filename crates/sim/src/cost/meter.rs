//! How often each machine was asked, how much it said, and what it took.

use std::collections::BTreeMap;

/// With a clock it measures what runs; without one each event costs the same, so that a run is the same each time.
pub struct Meter {
    clock: Option<fn() -> u64>,
    /// What asking the clock takes.
    clock_ns: u64,
    tallies: BTreeMap<&'static str, Tally>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub events: u64,
    pub effects: u64,
    pub ns: u64,
    pub longest_ns: u64,
}

/// What an event is taken to cost where nothing is measured.
const FIXED_NS: u64 = 1_000;

impl Meter {
    pub fn fixed() -> Self {
        Self { clock: None, clock_ns: 0, tallies: BTreeMap::new() }
    }

    /// `clock`: nanoseconds that this thread has run.
    pub fn measuring(clock: fn() -> u64) -> Self {
        let times = 10_000;
        let began = clock();
        for _ in 0..times {
            std::hint::black_box(clock());
        }
        let clock_ns = (clock() - began) / times;
        Self { clock: Some(clock), clock_ns, tallies: BTreeMap::new() }
    }

    /// Runs it; returns how many nanoseconds it took. It says how much came of it.
    pub fn run(&mut self, what: &'static str, run: impl FnOnce() -> usize) -> u64 {
        let began = self.clock.map(|clock| clock());
        let effects = run();
        let ns = match (self.clock, began) {
            (Some(clock), Some(began)) => (clock() - began).saturating_sub(self.clock_ns).max(1),
            (_, _) => FIXED_NS,
        };
        let tally = self.tallies.entry(what).or_default();
        tally.events += 1;
        tally.effects += effects as u64;
        tally.ns += ns;
        tally.longest_ns = tally.longest_ns.max(ns);
        ns
    }

    pub fn tallies(&self) -> &BTreeMap<&'static str, Tally> {
        &self.tallies
    }

    /// What was counted until now is forgotten: it was before what is of interest.
    pub fn begin(&mut self) {
        self.tallies.clear();
    }

    /// What such an event takes on the average; absent if there was none.
    pub fn mean(&self, what: &str) -> Option<u64> {
        let tally = self.tallies.get(what)?;
        Some(tally.ns / tally.events.max(1))
    }
}
