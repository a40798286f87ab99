//! A round: the probes of one node that are under way, and what is made of them.

use hoplo_base::{Instant, NodeNumber, limits};

use super::record::Verdict;
use super::{Effect, Found, Judge, Why};

/// Others that are asked to probe a node that is silent.
const WITNESSES: usize = 2;

#[derive(Clone, Debug)]
pub(super) struct Round {
    began: Instant,
    /// The first is the judge's own.
    probes: Vec<Probe>,
}

#[derive(Clone, Debug)]
struct Probe {
    ticket: u64,
    via: Option<NodeNumber>,
    found: Option<Found>,
}

impl Round {
    /// Of those that are not answered.
    pub(super) fn tickets(&self) -> impl Iterator<Item = u64> {
        self.probes.iter().filter(|probe| probe.found.is_none()).map(|probe| probe.ticket)
    }

    /// Others that did not reach it.
    fn witnesses(&self) -> usize {
        let of_others = self.probes.iter().filter(|probe| probe.via.is_some());
        of_others
            .filter(|probe| match probe.found {
                // A refusal that another one sees may be of something in between.
                Some(Found::Silent | Found::Refused) => true,
                Some(Found::Alive | Found::Unasked) | None => false,
            })
            .count()
    }
}

impl Judge {
    /// Something is wrong with it, they say.
    pub(super) fn on_trouble(
        &mut self,
        now: Instant,
        number: NodeNumber,
        effects: &mut Vec<Effect>,
    ) {
        let open = self.rounds.contains_key(&number);
        let acts = self.acts;
        let Some(record) = self.records.get_mut(&number) else { return };
        if !acts || record.verdict.is_some() {
            return;
        }
        record.troubled = true;
        // A probe that is under way may find what was before.
        if !open {
            let at = record.troubled_at.map_or(now, |at| at + limits::MEMBER_PROBES_AGAIN);
            self.look_at(number, Some(at));
            if at <= now {
                self.look(now, number, effects);
            }
        }
    }

    /// Its time has come: it was perhaps silent for too long, or its round is over.
    pub(super) fn look(&mut self, now: Instant, number: NodeNumber, effects: &mut Vec<Effect>) {
        assert!(self.acts, "MEMB-2");
        let patience = self.patience();
        let record = &self.records[&number];
        if record.verdict.is_some() {
            return;
        }
        if self.rounds.contains_key(&number) {
            return self.conclude(now, number, effects);
        }
        let silent = record.is_silent(now, patience);
        if !silent && !record.troubled {
            let at = record.silent_at(patience);
            return self.look_at(number, Some(at));
        }
        if self.rounds.len() >= limits::MEMBER_ROUNDS_MAX {
            return self.look_at(number, Some(now + limits::MEMBER_PROBES_AGAIN));
        }
        // Who is only said to be in trouble can be proven dead, but not by silence.
        let witnesses = if silent { WITNESSES } else { 0 };
        self.begin_round(now, number, witnesses, effects);
    }

    fn begin_round(
        &mut self,
        now: Instant,
        target: NodeNumber,
        witnesses: usize,
        effects: &mut Vec<Effect>,
    ) {
        let record = self.records.get_mut(&target).expect("who is probed is known");
        if std::mem::take(&mut record.troubled) {
            record.troubled_at = Some(now);
        }
        let asked = self.choose_witnesses(now, target, witnesses);
        let mut probes = Vec::with_capacity(1 + asked.len());
        for via in [None].into_iter().chain(asked.into_iter().map(Some)) {
            let ticket = self.new_ticket(target);
            effects.push(Effect::Probe { ticket, target, via });
            probes.push(Probe { ticket, via, found: None });
        }
        let before = self.rounds.insert(target, Round { began: now, probes });
        assert!(before.is_none(), "MEMB-3: {target} is probed already");
        // Who falls silent while it is probed for trouble is probed anew, with witnesses: trouble delays no verdict.
        let silent_at = self.records[&target].silent_at(self.patience());
        let silent_at = Some(silent_at).filter(|at| *at > now);
        let until = now + limits::MEMBER_PROBE_WITHIN;
        self.look_at(target, Some(silent_at.map_or(until, |at| at.min(until))));
    }

    /// Nodes on other machines, each in its turn, that said something just now: of many that die together, most
    /// are not silent for long enough to be seen when the first one is.
    fn choose_witnesses(
        &mut self,
        now: Instant,
        target: NodeNumber,
        count: usize,
    ) -> Vec<NodeNumber> {
        use std::ops::Bound::{Excluded, Unbounded};
        let after = self.records.range((Excluded(self.asked), Unbounded));
        let all = after.chain(self.records.range(..=self.asked));
        let fit = all
            .filter(|(number, record)| **number != target && !record.near && record.is_fresh(now));
        let chosen: Vec<NodeNumber> = fit.map(|(number, _)| *number).take(count).collect();
        self.asked = chosen.last().copied().unwrap_or(self.asked);
        chosen
    }

    pub(super) fn on_probed(
        &mut self,
        now: Instant,
        ticket: u64,
        found: Found,
        effects: &mut Vec<Effect>,
    ) {
        let patience = self.patience();
        let Some(number) = self.tickets.remove(&ticket) else { return };
        let Some(round) = self.rounds.get_mut(&number) else { return };
        let Some(probe) = round.probes.iter_mut().find(|probe| probe.ticket == ticket) else {
            return;
        };
        probe.found = Some(found);
        let (began, is_own) = (round.began, probe.via.is_none());
        let record = self.records.get_mut(&number).expect("who is probed is known");
        match found {
            Found::Alive => {
                record.heard(began);
                if let Some(why) = record.astray(now) {
                    return self.declare(number, why, effects);
                }
                let at = if record.troubled { now } else { record.silent_at(patience) };
                self.end_round(number);
                self.look_at(number, Some(at.max(now + limits::MEMBER_PROBES_AGAIN)));
            }
            Found::Refused if is_own && !record.heard_since(began) => {
                self.declare(number, Why::Refused, effects);
            }
            Found::Refused if is_own => {
                // What came of it may have been on its way when it died.
                self.end_round(number);
                self.begin_round(now, number, 0, effects);
            }
            Found::Refused | Found::Silent | Found::Unasked => {}
        }
    }

    /// The round had its time, or the node fell silent meanwhile, and nobody has reached it.
    fn conclude(&mut self, now: Instant, number: NodeNumber, effects: &mut Vec<Effect>) {
        let round = &self.rounds[&number];
        let record = &self.records[&number];
        let (began, witnesses) = (round.began, round.witnesses());
        let mut others = self.records.iter().filter(|(it, record)| **it != number && !record.near);
        let alone = witnesses == 0
            && others.next().is_some()
            && record.silent_for(now) < limits::MEMBER_LONE_JUDGE;
        let why = record.silence(now, self.patience(), witnesses);
        self.end_round(number);
        match why {
            Some(why) if !alone && began >= self.back_since => self.declare(number, why, effects),
            Some(_) | None => self.look(now, number, effects),
        }
    }

    pub(super) fn declare(&mut self, number: NodeNumber, why: Why, effects: &mut Vec<Effect>) {
        assert!(self.acts, "MEMB-2");
        self.end_round(number);
        self.look_at(number, None);
        let ticket = self.new_ticket(number);
        let record = self.records.get_mut(&number).expect("who is judged is known");
        record.verdict = Some(Verdict { ticket, why: why.clone() });
        effects.push(Effect::Verdict { ticket, number, expected: record.version, why });
    }

    pub(super) fn end_round(&mut self, number: NodeNumber) {
        if let Some(round) = self.rounds.remove(&number) {
            round.tickets().for_each(|ticket| assert!(self.tickets.remove(&ticket).is_some()));
        }
    }
}
