//! Proposer: carries out loads and swaps, one after the other.
//!
//! ```text
//!   Load -----> Reading ----a majority holds the same, at the same seats---------------------> End
//!                | ^   \--silence--\
//!         unlike | | REGISTER_READS  \
//!                v |                  v
//!              Resting ----------> Preparing --enough promises--> Accepting --a majority--> End
//!   Swap ------------------------/  ^ | ^                             |
//!                                   | | +--somebody takes a seat------+
//!                                   | +--overtaken--> Resting <-------+
//!                                   +------------------/
//! ```
//! Whatever its phase, it ends when its time is over.

mod rounds;

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::{Instant, NodeId, limits};
use hoplo_wire::control::ReplicaId;
use hoplo_wire::register::{Accepted, Answer, Ask, Ballot, Said, Seat, Value};

use super::seats;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProposerOptions {
    /// The process that it is part of: no other one, before or after, has the same.
    pub me: ReplicaId,
    /// How many acceptors there are.
    pub places: usize,
    /// From 0 on, and not the same for two that run at the same time: who goes first after they overtook each other.
    pub rank: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Wanted {
    Load,
    /// If the version is still `expected` (absent: if there is no value).
    Swap {
        expected: Option<u64>,
        document: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Only when the one before has ended.
    Wanted {
        what: Wanted,
        until: Instant,
    },
    Answered {
        place: usize,
        answer: Answer,
    },
    /// Nobody answers there just now.
    Gone {
        place: usize,
    },
    Tick,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Ask { place: usize, ask: Ask },
    End(Outcome),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Version and document; absent if there is no value.
    Loaded(Option<(u64, String)>),
    /// The version now.
    Stored(u64),
    /// The version is another one; nothing was stored, nor will be.
    Conflict,
    /// A swap may have been stored, or may yet be.
    Failed(Failure),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// These did not answer in time, and the others are too few; `beginning`: there is no value yet, and all are needed.
    Silent { places: Vec<usize>, beginning: bool },
    /// All have answered. These came back without their disks, and the newest value may have been on those alone.
    Lost { places: Vec<usize> },
    /// Others have changed the value more than once since.
    Overtaken,
    /// Others went on overtaking it.
    Contended,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proposer {
    options: ProposerOptions,
    /// All that was ever heard of seats.
    seats: Vec<Seat>,
    /// Who answered last at each place, and knew who sits there.
    present: Vec<Option<NodeId>>,
    /// The highest count of a ballot that was heard of or used.
    count: u64,
    reads: u64,
    work: Option<Work>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Work {
    what: Wanted,
    until: Instant,
    phase: Phase,
    /// When it does not wait any longer for who has not answered, or has rested.
    again_at: Instant,
    reads_left: u32,
    overtaken: u32,
    /// The round in which a swap proposed its value first. Who finds it as a value's writer has found that value.
    writer: Option<Ballot>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Reading {
        number: u64,
        /// By place; absent where nobody answers.
        holdings: BTreeMap<usize, Option<Holding>>,
    },
    Preparing {
        round: Round,
        promises: BTreeMap<usize, Option<Accepted>>,
    },
    Accepting {
        round: Round,
        value: Value,
        accepted: BTreeSet<usize>,
        then: Outcome,
    },
    Resting {
        reads: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Holding {
    /// Who answered has a seat.
    seated: bool,
    seats: Vec<Seat>,
    accepted: Option<Accepted>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Round {
    ballot: Ballot,
    seats: Vec<Seat>,
    /// Who answered that it has no seat in it.
    unseated: BTreeSet<usize>,
}

impl Proposer {
    pub fn new(options: ProposerOptions) -> Self {
        assert!(options.places > 0, "a register has an acceptor");
        let places = options.places;
        let (seats, present) = (vec![Seat::EMPTY; places], vec![None; places]);
        Self { options, seats, present, count: 0, reads: 0, work: None }
    }

    pub fn handle(&mut self, now: Instant, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Wanted { what, until } => {
                assert!(self.work.is_none(), "one after the other");
                let phase = Phase::Resting { reads: what == Wanted::Load };
                self.work = Some(Work {
                    what,
                    until,
                    phase,
                    again_at: now,
                    reads_left: limits::REGISTER_READS,
                    overtaken: 0,
                    writer: None,
                });
            }
            Event::Answered { place, answer } => self.on_answer(now, place, answer, effects),
            Event::Gone { place } => self.on_holding(now, place, None, effects),
            Event::Tick => {}
        }
        self.on_time(now, effects);
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.work.as_ref().map(|work| work.again_at.min(work.until))
    }

    fn on_answer(&mut self, now: Instant, place: usize, answer: Answer, effects: &mut Vec<Effect>) {
        let Answer { node, seats, promised, said } = answer;
        if seats.len() != self.options.places || place >= self.options.places {
            return;
        }
        self.count = self.count.max(promised.count);
        self.learn(place, node, &seats);
        match said {
            Said::Holds { number, accepted } => {
                let seated = seats[place].node == node;
                let holding = Holding { seated, seats, accepted };
                self.on_holding(now, place, Some((number, holding)), effects);
            }
            Said::Promised { ballot, accepted } => {
                if let Some(Phase::Preparing { round, promises }) = self.phase()
                    && round.ballot == ballot
                {
                    promises.insert(place, accepted);
                    self.decide(now, effects);
                }
            }
            Said::Accepted { ballot } => {
                let majority = self.majority();
                if let Some(Phase::Accepting { round, accepted, then, .. }) = self.phase()
                    && round.ballot == ballot
                {
                    accepted.insert(place);
                    if accepted.len() >= majority {
                        let then = then.clone();
                        self.end(then, effects);
                    }
                }
            }
            Said::Refused { ballot } => {
                if let Some(Phase::Preparing { round, .. } | Phase::Accepting { round, .. }) =
                    self.phase()
                    && round.ballot == ballot
                {
                    round.unseated.insert(place);
                    self.on_refused(now, promised, effects);
                }
            }
        }
    }

    /// What was heard of a node before its place was taken anew displaces nobody: only who knows whose seat it is wants one.
    fn learn(&mut self, place: usize, node: NodeId, seats: &[Seat]) {
        let known = seats::joined(&self.seats, seats);
        let changed = known.iter().zip(&self.seats).map(|(now, before)| now != before);
        for (present, changed) in self.present.iter_mut().zip(changed) {
            *present = present.filter(|_| !changed);
        }
        self.seats = known;
        if seats[place] == self.seats[place] {
            self.present[place] = Some(node);
        }
    }

    fn on_time(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let Some(work) = &self.work else { return };
        if now >= work.until {
            let failure = self.failure();
            return self.end(Outcome::Failed(failure), effects);
        }
        if now < work.again_at {
            return;
        }
        match work.phase {
            Phase::Resting { reads: true } => self.read(now, effects),
            Phase::Resting { reads: false } | Phase::Reading { .. } => self.prepare(now, effects),
            Phase::Preparing { .. } | Phase::Accepting { .. } => self.ask(now, effects),
        }
    }

    fn end(&mut self, outcome: Outcome, effects: &mut Vec<Effect>) {
        self.work = None;
        effects.push(Effect::End(outcome));
    }

    /// Why it did not come to an end in time.
    fn failure(&self) -> Failure {
        let silent = self.unanswered();
        let Some(work) = &self.work else { return Failure::Contended };
        match &work.phase {
            Phase::Resting { .. } => Failure::Contended,
            Phase::Reading { .. } | Phase::Preparing { .. } | Phase::Accepting { .. }
                if !silent.is_empty() =>
            {
                Failure::Silent { places: silent, beginning: !seats::are_taken(&self.seats) }
            }
            Phase::Preparing { round, promises } => {
                let is_lost = |place: &usize| {
                    promises.get(place).is_none_or(Option::is_none) && round.seats[*place].turn > 1
                };
                Failure::Lost { places: (0..self.options.places).filter(is_lost).collect() }
            }
            Phase::Reading { .. } | Phase::Accepting { .. } => Failure::Contended,
        }
    }

    /// Who has not answered in this phase.
    fn unanswered(&self) -> Vec<usize> {
        let Some(work) = &self.work else { return Vec::new() };
        let has_answered = |place: &usize| match &work.phase {
            Phase::Reading { holdings, .. } => holdings.get(place).is_some_and(Option::is_some),
            Phase::Preparing { round, promises } => {
                promises.contains_key(place) || round.unseated.contains(place)
            }
            Phase::Accepting { round, accepted, .. } => {
                accepted.contains(place) || round.unseated.contains(place)
            }
            Phase::Resting { .. } => true,
        };
        (0..self.options.places).filter(|place| !has_answered(place)).collect()
    }

    fn phase(&mut self) -> Option<&mut Phase> {
        self.work.as_mut().map(|work| &mut work.phase)
    }

    /// A value that so many accepted is the register's.
    pub fn majority(&self) -> usize {
        self.options.places / 2 + 1
    }

    /// Among any so many is one of those that accepted the register's value.
    fn enough(&self) -> usize {
        self.options.places - self.majority() + 1
    }
}
