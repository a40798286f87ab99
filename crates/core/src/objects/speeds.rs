//! How fast other nodes take objects, so that in a chain of readers the slow ones come last.
//!
//! The home of an object sees when it tells a node from where to fetch it, and when that node has all of it. That says how fast the node
//! is if it **lagged**: its source had all bytes for half of that time or more, so it took twice as long as its source. Who kept up with a source that was fetching
//! itself may be faster than that. What somebody fetches beside other objects of this home says nothing.
//!
//! *Why half:* with a quarter, who was behind a slow node was taken for slow as well, and was put behind it from then on, where it could be no faster.
//!
//! The last rate of each node counts, so one that was slow once is not slow for ever: as the last one of a chain it keeps up, or lags again.
//! Only the reader is blamed: a node that takes fast and sends slowly is not found out, and those behind it seem slow.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hoplo_base::limits::{CHAIN_BYTES_MIN, SLOW_WAITS_MAX};
use hoplo_base::{Instant, NodeNumber, ObjectId};

use super::record::Fetching;

#[derive(Debug, Default)]
pub(super) struct Speeds {
    takers: BTreeMap<NodeNumber, Taker>,
    /// Slow nodes that are not told yet from where to fetch, and when they will be.
    later: BTreeMap<(ObjectId, NodeNumber), Instant>,
}

#[derive(Debug, Default)]
struct Taker {
    /// Bytes a second.
    rate: Option<u64>,
    /// The turn in which it was last told from where to fetch something.
    turn: u64,
    /// When it last had all of something.
    had: Option<Instant>,
}

/// Below this rate a node is slow; 0 if none is.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlowBelow(u64);

impl Speeds {
    pub(super) fn told(&mut self, node: NodeNumber, turn: u64) {
        self.takers.entry(node).or_default().turn = turn;
    }

    /// It has all bytes.
    pub(super) fn took(&mut self, now: Instant, node: NodeNumber, bytes: u64, fetching: &Fetching) {
        let Some(taker) = self.takers.get_mut(&node) else { return };
        let had = taker.had.replace(now);
        let Some(since) = fetching.since.filter(|_| bytes >= CHAIN_BYTES_MIN) else { return };
        if taker.turn != fetching.turn || had.is_some_and(|at| at >= since) {
            return;
        }
        let took = now.since(since);
        let rate = rate(bytes, took);
        let lagged = fetching.source_has_all.is_some_and(|at| now.since(at) > took / 2);
        taker.rate = if lagged { Some(rate) } else { taker.rate.map(|known| known.max(rate)) };
    }

    /// What many nodes made together went past that one, since it seemed slow. Among equals that takes twice as long as a member on one link.
    pub(super) fn passed(&mut self, now: Instant, node: NodeNumber, bytes: u64, since: Instant) {
        let is_slow = rate(bytes, now.since(since)) < self.best().unwrap_or(0) / 8 * 3;
        if let Some(taker) = self.takers.get_mut(&node).filter(|_| !is_slow) {
            taker.rate = None;
        }
    }

    /// Which nodes are slow beside the one that asks for so many bytes: those that take less than half of what it takes. One that was not seen yet
    /// is as fast as the best.
    pub(super) fn slow_below(&self, node: NodeNumber, bytes: u64) -> SlowBelow {
        if bytes < CHAIN_BYTES_MIN {
            return SlowBelow(0);
        }
        SlowBelow(self.rate(node).or(self.best()).map_or(0, |rate| rate / 2))
    }

    pub(super) fn is_slow(&self, node: NodeNumber, below: SlowBelow) -> bool {
        self.rate(node).is_some_and(|rate| rate < below.0)
    }

    /// Whether that node is not told yet from where to fetch the object: it is slow, so those who ask at the same time are to come before it.
    pub(super) fn comes_later(
        &mut self,
        now: Instant,
        object: ObjectId,
        node: NodeNumber,
        bytes: u64,
    ) -> bool {
        if let Some(at) = self.later.get(&(object, node)) {
            return *at > now;
        }
        let best = SlowBelow(self.best().unwrap_or(0) / 2);
        if bytes < CHAIN_BYTES_MIN || !self.is_slow(node, best) {
            return false;
        }
        let rate = self.rate(node).unwrap_or(0).max(1);
        // It takes a sixteenth longer at most.
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate) / 16;
        let wait =
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(SLOW_WAITS_MAX);
        self.later.insert((object, node), now + wait);
        true
    }

    pub(super) fn slow_nodes(&self) -> BTreeSet<NodeNumber> {
        let below = SlowBelow(self.best().unwrap_or(0) / 2);
        self.takers.keys().filter(|node| self.is_slow(**node, below)).copied().collect()
    }

    pub(super) fn is_waiting(&self, object: ObjectId, node: NodeNumber) -> bool {
        self.later.contains_key(&(object, node))
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.later.values().min().copied()
    }

    /// Of what somebody has waited long enough.
    pub(super) fn due(&self, now: Instant) -> Vec<ObjectId> {
        let due = self.later.iter().filter(|(_, at)| **at <= now);
        due.map(|((object, _), _)| *object).collect()
    }

    pub(super) fn end_due(&mut self, now: Instant) {
        self.later.retain(|_, at| *at > now);
    }

    /// It is dead.
    pub(super) fn forget(&mut self, node: NodeNumber) {
        self.takers.remove(&node);
        self.later.retain(|(_, waiting), _| *waiting != node);
    }

    fn rate(&self, node: NodeNumber) -> Option<u64> {
        self.takers.get(&node)?.rate
    }

    fn best(&self) -> Option<u64> {
        self.takers.values().filter_map(|taker| taker.rate).max()
    }
}

/// Bytes a second.
fn rate(bytes: u64, took: Duration) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / took.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}
