//! How the parts of a claim follow what is wanted and what was found.

use hoplo_base::{Instant, NodeNumber};

use super::super::claim::Claimant;
use super::claim::{Mode, Seeking};
use super::{Broker, Effect, ask};

impl Broker {
    /// What is wanted, or who is there, has changed: parts that are too much go, the rest goes where it belongs, and
    /// whose part is another one is told.
    pub(super) fn fit(&mut self, now: Instant, claimant: Claimant, effects: &mut Vec<Effect>) {
        let shape = self.claims[&claimant].shape.clone();
        let (here, mode) = (self.here, self.mode(&shape));
        let home = self.could(&self.places[&here], &shape) && !self.is_avoided(&shape);
        let round = self.round(here, &shape);
        let claim = self.claims.get_mut(&claimant).expect("it was just looked up");
        match mode {
            Mode::At(only) => {
                for (node, part) in &mut claim.parts {
                    part.wanted = if *node == only { part.wanted } else { 0 };
                }
                let wanted = claim.wanted;
                claim.set(now, only, wanted);
            }
            Mode::Nowhere(_) => claim.parts.values_mut().for_each(|part| part.wanted = 0),
            Mode::Home | Mode::Spread => {
                claim.shrink(here, round);
                let could = |node: &NodeNumber| {
                    let place = self.places.get(node);
                    place.is_some_and(|place| self.could(place, &shape))
                };
                let wrong: Vec<_> = self.claims[&claimant]
                    .parts
                    .keys()
                    .filter(|node| !could(node))
                    .copied()
                    .collect();
                let claim = self.claims.get_mut(&claimant).expect("it was just looked up");
                for node in wrong {
                    claim.parts.get_mut(&node).expect("it was just listed").wanted = 0;
                }
                let rest = claim.rest();
                if mode == Mode::Home && home && rest > 0 {
                    let part = claim.part(here);
                    claim.set(now, here, part + rest);
                }
            }
        }
        self.send(claimant, effects);
        self.arm_first(now, claimant, mode, home);
    }

    fn send(&mut self, claimant: Claimant, effects: &mut Vec<Effect>) {
        let claim = self.claims.get_mut(&claimant).expect("it is sent");
        let mut asks = Vec::new();
        // First what is taken away, so that nobody has too much at any time.
        for less in [true, false] {
            for (node, part) in &mut claim.parts {
                let changed = part.wanted != part.sent;
                if changed && (part.wanted < part.sent) == less {
                    part.crossed |= part.sent > 0;
                    part.sent = part.wanted;
                    part.crossed &= part.wanted > 0; // 0 is told: nothing is left there.
                    asks.push((*node, part.wanted));
                }
            }
        }
        effects.extend(asks.into_iter().map(|(node, wanted)| ask(node, claimant, claim, wanted)));
    }

    /// A claim that rests and is not due.
    fn arm_first(&mut self, now: Instant, claimant: Claimant, mode: Mode, home: bool) {
        let claim = &self.claims[&claimant];
        let resting = claim.seeking == Seeking::Rests && claim.due.is_none();
        match mode {
            Mode::Home | Mode::Spread if resting => {
                let at = if home { claim.patience_over().max(now) } else { now };
                self.arm(claimant, at);
            }
            Mode::Home | Mode::Spread => {}
            Mode::At(_) => self.disarm(claimant),
            Mode::Nowhere(node) => {
                let at = self.nowhere_at(claim, node).max(now);
                self.disarm(claimant);
                self.arm(claimant, at);
            }
        }
    }

    fn disarm(&mut self, claimant: Claimant) {
        let claim = self.claims.get_mut(&claimant).expect("it was just looked up");
        claim.seeking = Seeking::Rests;
        if let Some(at) = claim.due.take() {
            self.due.remove(&(at, claimant));
        }
    }

    /// That node has room for so many. Returns how many of them it is asked for.
    pub(super) fn move_into(
        &mut self,
        now: Instant,
        claimant: Claimant,
        node: NodeNumber,
        count: u32,
        reserved: u32,
    ) -> u32 {
        let (here, claim) = (self.here, &self.claims[&claimant]);
        let could = self.places.get(&node).is_some_and(|place| self.could(place, &claim.shape));
        if !could {
            return 0;
        }
        let claim = self.claims.get_mut(&claimant).expect("it was just looked up");
        let mut taken = claim.rest().min(count);
        if node != here {
            let idle = claim.part(here).saturating_sub(reserved).min(count - taken);
            let left = claim.part(here) - idle;
            claim.set(now, here, left);
            taken += idle;
        }
        for (other, stale) in claim.stale(now, here) {
            if other == node {
                continue;
            }
            let some = stale.min(count - taken);
            claim.set(now, other, stale - some);
            taken += some;
        }
        if taken > 0 {
            let part = claim.part(node);
            claim.set(now, node, part + taken);
            claim.parts.get_mut(&node).expect("it was just set").has_room = true;
        }
        taken
    }

    /// Nobody has room: so many may wait at that node.
    pub(super) fn queue_at(
        &mut self,
        now: Instant,
        claimant: Claimant,
        node: NodeNumber,
        count: u32,
    ) {
        let (here, shape) = (self.here, &self.claims[&claimant].shape);
        let could = self.places.get(&node).is_some_and(|place| self.could(place, shape));
        let (round, round_here) = (self.round(node, shape), self.round(here, shape));
        let claim = self.claims.get_mut(&claimant).expect("it was just looked up");
        if !could {
            return;
        }
        let count = count.min(round.saturating_sub(claim.part(node)));
        let from_rest = claim.rest().min(count);
        let beyond = if node == here { 0 } else { claim.part(here).saturating_sub(round_here) };
        let from_here = beyond.min(count - from_rest);
        if from_here > 0 {
            let left = claim.part(here) - from_here;
            claim.set(now, here, left);
        }
        if from_rest + from_here > 0 {
            let part = claim.part(node);
            claim.set(now, node, part + from_rest + from_here);
        }
    }
}

impl super::claim::Claim {
    /// Until the parts are at most what is wanted.
    fn shrink(&mut self, here: NodeNumber, round: u32) {
        let mut surplus = self.asked().saturating_sub(self.wanted);
        let mut take = |part: &mut super::claim::Part, keep: u32| {
            let some = surplus.min(part.wanted.saturating_sub(keep));
            part.wanted -= some;
            surplus -= some;
        };
        if let Some(part) = self.parts.get_mut(&here) {
            take(part, round);
        }
        let mut far: Vec<_> = self.parts.iter_mut().filter(|(node, _)| **node != here).collect();
        far.sort_by_key(|(node, part)| (part.asked_at, **node));
        for (_, part) in far {
            take(part, 0);
        }
        if let Some(part) = self.parts.get_mut(&here) {
            take(part, 0);
        }
    }
}
