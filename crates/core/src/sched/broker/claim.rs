//! What the broker knows of one claim.

use std::collections::BTreeMap;
use std::time::Duration;

use hoplo_base::limits::{BROKER_PATIENCE, MAKING_PATIENCE, PART_PATIENCE, STARTING_PATIENCE};
use hoplo_base::{Instant, JobId, NodeNumber, ResourceSet};
use hoplo_wire::node::{RuntimeEnv, Shape, Strategy};
use hoplo_wire::peer::Found;

use super::super::claim::Stuck;

/// Where its rest goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Here, if this node could run it.
    Home,
    /// Nowhere before the head has said where.
    Spread,
    /// To this node, whatever it has.
    At(NodeNumber),
    /// It waits for a node that is not there.
    Nowhere(NodeNumber),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Seeking {
    /// Until it is due.
    Rests,
    /// We look here for what could move.
    Looks,
    /// The head was asked.
    Asked,
    /// The head has answered, and we look here for what could move.
    Applies(Found),
}

#[derive(Debug)]
pub(super) struct Claim {
    pub(super) job: JobId,
    pub(super) shape: Shape,
    pub(super) held: ResourceSet,
    /// Leases wanted; those that were granted are no more among them.
    pub(super) wanted: u32,
    pub(super) parts: BTreeMap<NodeNumber, Part>,
    /// When it began to wait.
    pub(super) since: Instant,
    /// Under this number it is sought.
    pub(super) seek: u64,
    pub(super) seeking: Seeking,
    /// Leases that the head still looks for.
    pub(super) stands: u32,
    /// The head's last answer: there is no room for more.
    pub(super) refused: bool,
    /// The last pause.
    pub(super) pause: Option<Duration>,
    /// When it is looked at again; of a claim that was asked: when the question counts as lost.
    pub(super) due: Option<Instant>,
    /// Why it waits, as a local scheduler or the head said last.
    pub(super) said: Option<Stuck>,
    /// What who waits was told last: the same, and that the head is silent.
    pub(super) told: Option<Stuck>,
    /// Leases for which room was found and that are not granted.
    pub(super) coming: u32,
    /// Who waits was told how many are coming, of what is wanted.
    pub(super) counted: bool,
}

/// Leases asked for at one node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    pub(super) wanted: u32,
    /// As that node knows it, if nothing crossed.
    pub(super) sent: u32,
    /// When it last became more.
    pub(super) asked_at: Instant,
    /// There was room for what it last became more by.
    pub(super) has_room: bool,
    /// It was told a second number: a grant may have crossed it.
    pub(super) crossed: bool,
}

impl Part {
    /// From when on it may be moved. `env`: of its claim.
    fn stale_at(&self, env: &RuntimeEnv) -> Instant {
        self.asked_at
            + match (self.has_room, &env.python) {
                (true, Some(_)) => MAKING_PATIENCE,
                (true, None) => STARTING_PATIENCE,
                (false, _) => PART_PATIENCE,
            }
    }

    /// That node may still have something of it.
    pub(super) fn is_open(&self) -> bool {
        self.sent > 0 || self.crossed
    }
}

impl Claim {
    pub(super) fn new(
        now: Instant,
        job: JobId,
        shape: Shape,
        held: ResourceSet,
        seek: u64,
    ) -> Self {
        Self {
            job,
            shape,
            held,
            wanted: 0,
            parts: BTreeMap::new(),
            since: now,
            seek,
            seeking: Seeking::Rests,
            stands: 0,
            refused: false,
            pause: None,
            due: None,
            said: None,
            told: None,
            coming: 0,
            counted: false,
        }
    }

    /// Of all nodes together.
    pub(super) fn asked(&self) -> u32 {
        self.parts.values().map(|part| part.wanted).sum()
    }

    /// Asked for nowhere.
    pub(super) fn rest(&self) -> u32 {
        self.wanted.saturating_sub(self.asked())
    }

    pub(super) fn part(&self, node: NodeNumber) -> u32 {
        self.parts.get(&node).map_or(0, |part| part.wanted)
    }

    pub(super) fn set(&mut self, now: Instant, node: NodeNumber, wanted: u32) {
        let part = self.parts.entry(node).or_insert(Part {
            wanted: 0,
            sent: 0,
            asked_at: now,
            has_room: false,
            crossed: false,
        });
        if wanted > part.wanted {
            (part.asked_at, part.has_room) = (now, false);
        }
        part.wanted = wanted;
    }

    /// What other nodes than `here` were asked for and have not granted for a while: who, how many, longest ago first.
    pub(super) fn stale(&self, now: Instant, here: NodeNumber) -> Vec<(NodeNumber, u32)> {
        let stale = self.parts.iter().filter(|(node, part)| {
            **node != here && part.wanted > 0 && part.stale_at(&self.shape.env) <= now
        });
        let mut stale: Vec<_> = stale.collect();
        stale.sort_by_key(|(node, part)| (part.asked_at, **node));
        stale.into_iter().map(|(node, part)| (*node, part.wanted)).collect()
    }

    /// From when on other nodes are looked for.
    pub(super) fn patience_over(&self) -> Instant {
        match self.shape.strategy {
            Strategy::Spread => self.since,
            Strategy::Default | Strategy::Node { .. } => self.since + BROKER_PATIENCE,
        }
    }
}
