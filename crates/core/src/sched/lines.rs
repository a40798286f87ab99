//! Lines of actors: those that wait for the same resources are looked at as one.
//!
//! A line is in the order of arrival, and its first member stands for all: what does not fit the first one does not fit
//! the others. So an event costs as much as there are lines, however many wait in them. Joining and leaving cost as much
//! as a look-up.
//!
//! **What is said.** Why a line waits is looked up once for all its members, at most every `CLAIM_STUCK_AFTER`. A member
//! hears it when it has waited for that long, and at once if the line is infeasible. When the reason changes, the
//! first `LINE_TOLD_MAX` hear of it: they are the next ones. The others have heard a reason, and `hoplo why` asks anew.
//!
//! # Invariants
//! - SCHED-6: an actor is in the line of its resources, and of what bars it here, exactly while it waits without a lease; no line is empty.
//! - SCHED-7: members of a line that came later have waited for less.

use std::collections::BTreeMap;
use std::time::Duration;

use hoplo_base::Instant;
use hoplo_base::limits::{CLAIM_STUCK_AFTER, LINE_TOLD_MAX};
use hoplo_wire::Reason;

use super::claim::{Claimant, Line, Word};
use super::local::{Effect, LocalScheduler};
use super::stuck::tell_stuck;

impl LocalScheduler {
    pub(super) fn join_line(&mut self, now: Instant, claimant: Claimant) {
        let claim = &self.claims[&claimant];
        let (turn, since) = (claim.turn, claim.since);
        let resources = claim.shape.resources.clone();
        let feasible = claim.barred.is_none() && self.feasible(&resources);
        let lines = self.lines.entry(claim.barred.clone()).or_default();
        let line = lines.entry(resources).or_insert_with(|| Line {
            feasible,
            members: BTreeMap::new(),
            word: Word::none(now),
            told_before: 0,
        });
        let other = line.members.insert(turn, claimant);
        assert!(other.is_none(), "SCHED-6: {claimant:?} came in another's turn");
        if line.members.len() == 1 && feasible {
            self.arm_grant(now, since);
        }
    }

    /// It waits no more, or for something else. True if it was told why it waits.
    pub(super) fn leave_line(&mut self, now: Instant, claimant: Claimant) -> bool {
        let claim = &self.claims[&claimant];
        let (turn, resources) = (claim.turn, &claim.shape.resources);
        let lines = self.lines.get_mut(&claim.barred).expect("SCHED-6");
        let line = lines.get_mut(resources).expect("SCHED-6");
        let left = line.members.remove(&turn);
        assert_eq!(left, Some(claimant), "SCHED-6");
        let was_told = turn < line.told_before && line.word.said.is_some();
        let next = line.members.first_key_value().map(|(next, member)| (*next, *member));
        match next {
            None => {
                lines.remove(resources);
                if lines.is_empty() {
                    self.lines.remove(&claim.barred);
                }
            }
            // Time alone may make an elder of the one that is the first now.
            Some((next, member)) if next > turn && line.feasible => {
                self.arm_grant(now, self.claims[&member].since);
            }
            Some(_) => {}
        }
        was_told
    }

    /// The first of each line that the node could meet.
    pub(super) fn heads(&self) -> impl Iterator<Item = Claimant> {
        let lines = self.lines.get(&None).into_iter().flat_map(BTreeMap::values);
        let lines = lines.filter(|line| line.feasible);
        lines.map(|line| *line.members.first_key_value().expect("SCHED-6: no line is empty").1)
    }

    /// The member of its line that came next.
    pub(super) fn behind(&self, claimant: Claimant) -> Option<Claimant> {
        let claim = &self.claims[&claimant];
        let members = &self.lines[&claim.barred][&claim.shape.resources].members;
        members.range(claim.turn + 1..).next().map(|(_, member)| *member)
    }

    /// Tells the lines why they wait. `users` is that of `why_stuck`.
    pub(super) fn tell_lines(
        &mut self,
        now: Instant,
        users: &mut BTreeMap<String, Reason>,
        effects: &mut Vec<Effect>,
    ) {
        let mut lines = std::mem::take(&mut self.lines);
        for line in lines.values_mut().flat_map(BTreeMap::values_mut) {
            if let Some(at) = self.tell_line(now, line, users, effects) {
                self.arm(at);
            }
        }
        self.lines = lines;
    }

    /// Returns when it is to be told again.
    fn tell_line(
        &self,
        now: Instant,
        line: &mut Line,
        users: &mut BTreeMap<String, Reason>,
        effects: &mut Vec<Effect>,
    ) -> Option<Instant> {
        let (first, member) = line.members.first_key_value().expect("SCHED-6: no line is empty");
        let (first, member) = (*first, *member);
        if first >= line.told_before {
            line.word.said = None; // All that heard it are gone.
        }
        let patience = if line.feasible { CLAIM_STUCK_AFTER } else { Duration::ZERO };
        // The next one to be told, and when.
        let untold = |line: &Line| {
            let (turn, claimant) = line.members.range(line.told_before..).next()?;
            Some((*turn, *claimant, self.claims[claimant].since + patience))
        };
        let due = |line: &Line| untold(line).filter(|(_, _, at)| *at <= now);
        let look = match line.word.said {
            None => due(line).is_some(),
            Some(_) => line.word.stale_at(self.changes).is_some_and(|at| at <= now),
        };
        if look {
            let stuck = Some(self.why_stuck(&self.claims[&member], users));
            let changed = line.word.said.is_some() && line.word.said != stuck;
            line.word = Word { said: stuck, looked_at: now, looked: self.changes };
            if changed {
                let told = line.members.range(..line.told_before).take(LINE_TOLD_MAX);
                effects.extend(told.map(|(_, it)| tell_stuck(*it, line.word.said.clone())));
            }
        }
        for _ in 0..LINE_TOLD_MAX {
            let Some((turn, claimant, _)) = due(line) else { break };
            effects.push(tell_stuck(claimant, line.word.said.clone()));
            line.told_before = turn + 1;
        }
        let untold_at = untold(line).map(|(_, _, at)| at);
        [untold_at, line.word.stale_at(self.changes)].into_iter().flatten().min()
    }

    /// Asserts SCHED-6 and SCHED-7.
    pub(super) fn check_lines(&self) {
        let mut in_lines = 0;
        let lines = self.lines.iter();
        let lines = lines.flat_map(|(barred, lines)| lines.iter().map(move |it| (barred, it)));
        for (barred, (resources, line)) in lines {
            assert!(!line.members.is_empty(), "SCHED-6: {resources}");
            let feasible = barred.is_none() && self.feasible(resources);
            assert_eq!(line.feasible, feasible, "SCHED-6: {resources}");
            let mut before = Instant::ZERO;
            for (turn, claimant) in &line.members {
                let claim = &self.claims[claimant];
                assert_eq!((claim.turn, claim.unmet()), (*turn, 1), "SCHED-6: {claimant:?}");
                assert_eq!(claim.shape.resources, *resources, "SCHED-6: {claimant:?}");
                assert_eq!(claim.barred, *barred, "SCHED-6: {claimant:?}");
                assert!(claim.since >= before, "SCHED-7: {claimant:?}");
                before = claim.since;
            }
            in_lines += line.members.len();
        }
        let actors = self.claims.iter().filter(|(id, _)| matches!(id, Claimant::Actor { .. }));
        let waiting = actors.filter(|(_, claim)| claim.unmet() > 0).count();
        assert_eq!(in_lines, waiting, "SCHED-6");
    }
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
