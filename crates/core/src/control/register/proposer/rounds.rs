//! Reads and rounds: what is asked, and what follows from the answers.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::{Instant, limits};
use hoplo_wire::register::{Accepted, Ask, Ballot, Seat, Value};

use super::super::seats;
use super::{Effect, Failure, Holding, Outcome, Phase, Proposer, Round, Wanted};

impl Proposer {
    pub(super) fn read(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        self.reads += 1;
        let work = self.work.as_mut().expect("somebody wants to read");
        work.phase = Phase::Reading { number: self.reads, holdings: BTreeMap::new() };
        work.reads_left = work.reads_left.saturating_sub(1);
        self.ask(now, effects);
    }

    /// One more has answered a read, with its number; or nobody answers there.
    pub(super) fn on_holding(
        &mut self,
        now: Instant,
        place: usize,
        holding: Option<(u64, Holding)>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(Phase::Reading { number: current, holdings }) = self.phase() else { return };
        match holding {
            Some((number, holding)) if number == *current => {
                holdings.insert(place, Some(holding));
            }
            Some(_) => return,
            None => {
                holdings.entry(place).or_insert(None);
            }
        }
        let all = holdings.len() == self.options.places;
        if let Some(found) = self.settled() {
            return self.end(Outcome::Loaded(found), effects);
        }
        let work = self.work.as_mut().expect("it reads");
        match (all, work.reads_left) {
            (false, _) => {}
            (true, 0) => self.prepare(now, effects),
            (true, _) => {
                work.phase = Phase::Resting { reads: true };
                work.again_at = now + limits::REGISTER_READS_AGAIN;
            }
        }
    }

    /// What the register holds, if that can be seen from what was read: a majority has accepted it in one round, and whatever was
    /// acknowledged before the read began was accepted by one of them at least. Or nobody has anything, and nobody ever sat.
    #[expect(clippy::option_option, reason = "whether it is known, and whether there is a value")]
    fn settled(&self) -> Option<Option<(u64, String)>> {
        let Phase::Reading { holdings, .. } = &self.work.as_ref()?.phase else { return None };
        let holdings: Vec<&Holding> = holdings.values().flatten().collect();
        let begun = seats::are_taken(&self.seats);
        if holdings.len() == self.options.places
            && !begun
            && holdings.iter().all(|holding| holding.accepted.is_none())
        {
            return Some(None);
        }
        holdings.iter().find_map(|holding| {
            let accepted = holding.accepted.as_ref()?;
            let same = holdings.iter().filter(|other| {
                let ballot = other.accepted.as_ref().map(|it| it.ballot);
                other.seated && other.seats == holding.seats && ballot == Some(accepted.ballot)
            });
            let value = &accepted.value;
            let is_settled = same.count() >= self.majority();
            is_settled.then(|| Some((value.version, value.document.clone())))
        })
    }

    pub(super) fn prepare(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        self.count += 1;
        self.seats = seats::taken(&self.seats, &self.present);
        let ballot = Ballot { count: self.count, proposer: self.options.me };
        let round = Round { ballot, seats: self.seats.clone(), unseated: BTreeSet::new() };
        let work = self.work.as_mut().expect("somebody wants a round");
        work.phase = Phase::Preparing { round, promises: BTreeMap::new() };
        self.ask(now, effects);
    }

    /// A node promises, or accepts, nothing in this round: it has no seat, or knows of a later round.
    pub(super) fn on_refused(&mut self, now: Instant, promised: Ballot, effects: &mut Vec<Effect>) {
        let next = seats::taken(&self.seats, &self.present);
        let rank = self.options.rank;
        let Some(work) = &mut self.work else { return };
        let (Phase::Preparing { round, .. } | Phase::Accepting { round, .. }) = &work.phase else {
            return;
        };
        if next != round.seats {
            self.prepare(now, effects);
        } else if promised > round.ballot {
            let doubled = work.overtaken.min(limits::REGISTER_YIELDS_DOUBLED_MAX);
            work.overtaken += 1;
            work.phase = Phase::Resting { reads: false };
            work.again_at = now + limits::REGISTER_YIELDS * (rank + 1) * (1 << doubled);
        }
    }

    /// With enough promises: the newest value that they tell of is proposed again, or what follows it.
    pub(super) fn decide(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let Some(Phase::Preparing { round, promises }) = self.work.as_ref().map(|it| &it.phase)
        else {
            return;
        };
        if !self.are_enough(promises, &round.seats) {
            return;
        }
        let (ballot, seats) = (round.ballot, round.seats.clone());
        let newest = promises.values().flatten().max_by_key(|accepted| accepted.ballot);
        let newest = newest.map(|accepted| accepted.value.clone());
        let work = self.work.as_mut().expect("it prepares");
        let (value, then) = match (&work.what, newest) {
            (Wanted::Load, None) => return self.end(Outcome::Loaded(None), effects),
            (Wanted::Load, Some(value)) => {
                let then = Outcome::Loaded(Some((value.version, value.document.clone())));
                (value, then)
            }
            (Wanted::Swap { expected, document }, newest)
                if newest.as_ref().map(|value| value.version) == *expected =>
            {
                let version = expected.unwrap_or(0) + 1;
                let writer = *work.writer.get_or_insert(ballot);
                let value = Value { version, writer, document: document.clone() };
                (value, Outcome::Stored(version))
            }
            (Wanted::Swap { .. }, None) => return self.end(Outcome::Conflict, effects),
            (Wanted::Swap { expected, .. }, Some(value)) => {
                // Each version has one value. So if what this swap proposed is not the value of its version, it never will be; of a
                // later one nobody knows what it followed.
                let mine = expected.unwrap_or(0) + 1;
                let then = match work.writer {
                    Some(writer) if writer == value.writer => Outcome::Stored(value.version),
                    Some(_) if value.version > mine => Outcome::Failed(Failure::Overtaken),
                    Some(_) | None => Outcome::Conflict,
                };
                (value, then)
            }
        };
        let round = Round { ballot, seats, unseated: BTreeSet::new() };
        work.phase = Phase::Accepting { round, value, accepted: BTreeSet::new(), then };
        self.ask(now, effects);
    }

    /// REG-5
    fn are_enough(&self, promises: &BTreeMap<usize, Option<Accepted>>, seats: &[Seat]) -> bool {
        let all = promises.len() == self.options.places;
        let is_sure = |(place, accepted): (&usize, &Option<Accepted>)| {
            accepted.is_some() || all && seats[*place].turn == 1
        };
        promises.iter().filter(|it| is_sure(*it)).count() >= self.enough()
    }

    /// Whoever has not answered in this phase.
    pub(super) fn ask(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let places = self.unanswered();
        let Some(work) = &mut self.work else { return };
        work.again_at = now + limits::REGISTER_ASKS_AGAIN;
        let ask = match &work.phase {
            Phase::Reading { number, .. } => Ask::Read { number: *number },
            Phase::Preparing { round, .. } => {
                Ask::Prepare { ballot: round.ballot, seats: round.seats.clone() }
            }
            Phase::Accepting { round, value, .. } => Ask::Accept {
                ballot: round.ballot,
                seats: round.seats.clone(),
                value: value.clone(),
            },
            Phase::Resting { .. } => return,
        };
        effects.extend(places.into_iter().map(|place| Effect::Ask { place, ask: ask.clone() }));
    }
}
