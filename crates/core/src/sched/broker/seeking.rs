//! When the head is asked, and what becomes of its answers.

use hoplo_base::Instant;
use hoplo_base::limits::{PART_PATIENCE, SEEK_LOST_AFTER, SEEK_PAUSE_MAX, SEEK_PAUSE_MIN};
use hoplo_wire::node::Strategy;
use hoplo_wire::peer::Found;

use super::super::claim::{Claimant, Stuck};
use super::claim::{Mode, Seeking};
use super::{Broker, Effect};

impl Broker {
    /// It is due.
    pub(super) fn wake(&mut self, now: Instant, claimant: Claimant, effects: &mut Vec<Effect>) {
        let claim = self.claims.get_mut(&claimant).expect("only what lives is due");
        if let Some(at) = claim.due.take() {
            self.due.remove(&(at, claimant));
        }
        match self.mode(&self.claims[&claimant].shape) {
            Mode::Home | Mode::Spread => {
                let claim = self.claims.get_mut(&claimant).expect("it was just looked up");
                claim.seeking = Seeking::Looks;
                self.arm(claimant, now + SEEK_LOST_AFTER);
                effects.push(Effect::Look { claimant });
                if self.silent.is_some() {
                    self.tell_words(now, claimant, effects); // for how long by now
                }
            }
            Mode::At(_) => {}
            Mode::Nowhere(node) => {
                let why = self.why_nowhere(node);
                if self.closed.get(&node) == Some(&false) {
                    let stuck = Stuck { reason: why.into(), infeasible: true };
                    return self.tell(now, claimant, Some(stuck), effects);
                }
                self.end(claimant, None, effects);
                effects.push(Effect::Fail { claimant, why });
            }
        }
    }

    pub(super) fn on_looked(
        &mut self,
        now: Instant,
        claimant: Claimant,
        reserved: u32,
        effects: &mut Vec<Effect>,
    ) {
        let here = self.here;
        let Some(claim) = self.claims.get_mut(&claimant) else { return };
        match std::mem::replace(&mut claim.seeking, Seeking::Rests) {
            Seeking::Rests => {}
            // Of another look.
            Seeking::Asked => claim.seeking = Seeking::Asked,
            Seeking::Looks => {
                let stale = claim.stale(now, here).into_iter().map(|(_, count)| count);
                let movable = claim.part(here).saturating_sub(reserved) + stale.sum::<u32>();
                let wanted = movable + claim.rest();
                // Neither says anything of room.
                if wanted == 0 || self.silent.is_some() {
                    return self.pause(now, claimant);
                }
                (claim.seeking, claim.stands) = (Seeking::Asked, wanted);
                let (seek, shape) = (claim.seek, claim.shape.clone());
                effects.push(Effect::Seek { seek, shape, wanted });
                self.arm(claimant, now + SEEK_LOST_AFTER);
            }
            Seeking::Applies(found) => self.apply(now, claimant, found, reserved, effects),
        }
    }

    /// It may answer again what it answered before: there is room now.
    pub(super) fn on_found(
        &mut self,
        now: Instant,
        seek: u64,
        found: Found,
        effects: &mut Vec<Effect>,
    ) {
        let Some(claimant) = self.by_seek.get(&seek).copied() else { return };
        let claim = self.claims.get_mut(&claimant).expect("it is sought");
        claim.seeking = Seeking::Applies(found);
        self.arm(claimant, now + SEEK_LOST_AFTER);
        effects.push(Effect::Look { claimant });
    }

    fn apply(
        &mut self,
        now: Instant,
        claimant: Claimant,
        found: Found,
        reserved: u32,
        effects: &mut Vec<Effect>,
    ) {
        if !matches!(self.mode(&self.claims[&claimant].shape), Mode::Home | Mode::Spread) {
            return self.fit(now, claimant, effects);
        }
        match found {
            Found::Nodes(rooms) => {
                let sum: u32 = rooms.iter().map(|(_, count)| *count).sum();
                let claim = self.claims.get_mut(&claimant).expect("it was just looked up");
                claim.stands = claim.stands.saturating_sub(sum);
                let mut taken = 0;
                for (node, count) in rooms {
                    taken += self.move_into(now, claimant, node, count, reserved);
                }
                self.not_infeasible(now, claimant, effects);
                let claim = self.claims.get_mut(&claimant).expect("it was just looked up");
                claim.coming += taken;
                claim.refused = taken == 0;
                if taken == 0 || claim.rest() == 0 {
                    self.tell_coming(claimant, effects);
                }
                self.fit(now, claimant, effects);
                if taken == 0 {
                    return self.pause(now, claimant);
                }
                let claim = self.claims.get_mut(&claimant).expect("it was just looked up");
                // What is left may have room as well, or is told where to wait.
                claim.pause = None;
                let here = self.here;
                let rest = claim.rest() + claim.part(here).saturating_sub(reserved);
                let at = if rest > 0 { now } else { now + PART_PATIENCE };
                self.arm(claimant, at);
            }
            Found::Queue(places) => {
                self.refuse(claimant, effects);
                for (node, count) in places {
                    self.queue_at(now, claimant, node, count);
                }
                self.not_infeasible(now, claimant, effects);
                self.fit(now, claimant, effects);
                self.pause(now, claimant);
            }
            Found::Later => {
                self.refuse(claimant, effects);
                self.not_infeasible(now, claimant, effects);
                self.pause(now, claimant);
            }
            Found::Never { why } => {
                self.refuse(claimant, effects);
                if self.claims[&claimant].asked() == 0 {
                    let stuck = Stuck { reason: why.into(), infeasible: true };
                    self.tell(now, claimant, Some(stuck), effects);
                }
                self.pause(now, claimant);
            }
        }
    }

    /// There is no room for more of it.
    pub(super) fn refuse(&mut self, claimant: Claimant, effects: &mut Vec<Effect>) {
        self.claims.get_mut(&claimant).expect("it is sought").refused = true;
        self.tell_coming(claimant, effects);
    }

    /// All that there is for it now was found.
    pub(super) fn tell_coming(&mut self, claimant: Claimant, effects: &mut Vec<Effect>) {
        let claim = self.claims.get_mut(&claimant).expect("it is sought");
        if claim.shape.strategy == Strategy::Spread && !claim.counted {
            claim.counted = true;
            let (wanted, count) = (claim.wanted, claim.coming);
            effects.push(Effect::Coming { claimant, wanted, count });
        }
    }

    fn not_infeasible(&mut self, now: Instant, claimant: Claimant, effects: &mut Vec<Effect>) {
        if self.claims[&claimant].said.as_ref().is_some_and(|stuck| stuck.infeasible) {
            self.tell(now, claimant, None, effects);
        }
    }

    /// Twice as long as the last time.
    fn pause(&mut self, now: Instant, claimant: Claimant) {
        let claim = self.claims.get_mut(&claimant).expect("it pauses");
        let pause = claim.pause.map_or(SEEK_PAUSE_MIN, |pause| (pause * 2).min(SEEK_PAUSE_MAX));
        claim.pause = Some(pause);
        claim.seeking = Seeking::Rests;
        self.arm(claimant, now + pause);
    }
}
