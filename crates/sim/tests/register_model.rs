//! The register of the control nodes, model-checked: every order of what may happen, within a stated bound, over the real acceptors
//! and proposers (`core::control::register`).
//!
//! What may happen at any moment: a question arrives, in any order, late, never or twice, and its answer with it or late; a proposer begins
//! its next load or swap, or does not wait any longer; an acceptor comes back without its disk. One that comes back with it is as it was, since it keeps all before
//! it answers; a proposer that dies is one of which nothing arrives any more.
//!
//! In each state: a version has one value (REG-1), who begins later finds at least what was told before, and what was told to be refused
//! is not found (REG-6). Rules are taken away once (`Sabotage`), from outside of the machines, and the search must find what goes wrong.
//!
//! ```text
//! HOPLO_MODEL_DEPTH=20 cargo test --profile sim -p hoplo-sim --test register_model -- --nocapture
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hoplo_base::{Instant, NodeId};
use hoplo_core::control::register::{
    Acceptor, AcceptorEffect, Effect, Event, Outcome, Proposer, ProposerOptions, Wanted,
};
use hoplo_wire::control::ReplicaId;
use hoplo_wire::register::{Answer, Ask, Ballot, Held, Said};
use stateright::{Checker, Model, Property};

use Job::{Load, Swap};

const FAR: Instant = Instant(u64::MAX);

/// How far the search goes.
#[derive(Clone, Debug)]
struct Bound {
    places: usize,
    /// What each proposer does, one after the other.
    work: Vec<Vec<Job>>,
    /// All hold a value when it begins.
    begun: bool,
    /// The last proposer's rounds are above those of the others: earlier ones reached nobody.
    ahead: bool,
    /// Proposers that do not wait any longer.
    wakes: u32,
    twice: u32,
    /// Answers that do not arrive at once.
    late: u32,
    losses: u32,
    /// Things that happen, one after the other; 0: all there are.
    depth: usize,
    sabotage: Option<Sabotage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Job {
    Load,
    /// On the newest version that anybody was told.
    Swap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sabotage {
    /// Who lost its disk votes as before.
    KeepsItsSeat,
    /// An acceptor that starts again has forgotten what it answered last.
    AnswersBeforeItKeeps,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    acceptors: Vec<Acceptor>,
    /// What each had on its disk before its last answer.
    before: Vec<Held>,
    proposers: Vec<Proposer>,
    clocks: Vec<Instant>,
    ahead: Vec<VecDeque<Job>>,
    at_work: Vec<Option<Work>>,
    messages: BTreeSet<Message>,
    told: BTreeMap<u64, String>,
    refused: BTreeSet<String>,
    used: Used,
    wrong: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Work {
    what: Wanted,
    floor: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Used {
    wakes: u32,
    twice: u32,
    late: u32,
    losses: u32,
    documents: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Message {
    Ask { from: usize, place: usize, ask: Ask },
    Answer { to: usize, place: usize, answer: Answer },
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    Arrives(Message),
    /// It comes again.
    ArrivesOnce(Message),
    /// The answer is under way.
    IsAnsweredLate(Message),
    Begins(usize),
    Wakes(usize),
    Loses(usize),
    Forgets(usize),
}

fn node(place: usize, losses: u32) -> NodeId {
    NodeId(1 + place as u64 + 10 * u64::from(losses))
}

impl State {
    fn handle(&mut self, at: usize, event: Event) {
        let mut effects = Vec::new();
        self.proposers[at].handle(self.clocks[at], event, &mut effects);
        for effect in effects {
            match effect {
                Effect::Ask { place, ask } => {
                    self.messages.insert(Message::Ask { from: at, place, ask });
                }
                Effect::End(outcome) => self.ends(at, outcome),
            }
        }
    }

    fn asks(&mut self, from: usize, place: usize, ask: Ask, late: bool) {
        let (before, mut effects) = (self.acceptors[place].held().clone(), Vec::new());
        self.acceptors[place].handle(ask, &mut effects);
        self.acceptors[place].check();
        for effect in effects {
            match effect {
                AcceptorEffect::Keep(_) => self.before[place] = before.clone(),
                AcceptorEffect::Answer(answer) if late => {
                    self.messages.insert(Message::Answer { to: from, place, answer });
                }
                AcceptorEffect::Answer(answer) => {
                    self.handle(from, Event::Answered { place, answer });
                }
            }
        }
    }

    fn ends(&mut self, at: usize, outcome: Outcome) {
        let Work { what, floor } = self.at_work[at].take().expect("only work ends");
        let told = match (what, outcome) {
            (Wanted::Load, Outcome::Loaded(told)) => told,
            (Wanted::Swap { document, .. }, Outcome::Stored(version)) => Some((version, document)),
            (Wanted::Swap { document, .. }, Outcome::Conflict) => {
                if self.told.values().any(|told| *told == document) {
                    self.wrong = Some(format!("REG-6: {document} was refused, and is there"));
                }
                self.refused.insert(document);
                return;
            }
            (_, Outcome::Failed(_)) => return,
            (what, outcome) => panic!("{what:?} ended with {outcome:?}"),
        };
        let version = told.as_ref().map_or(0, |(version, _)| *version);
        if version < floor {
            self.wrong = Some(format!("REG-6: version {version} after {floor}"));
        }
        let Some((version, document)) = told else { return };
        if self.refused.contains(&document) {
            self.wrong = Some(format!("REG-6: {document} was refused, and is there"));
        }
        let first = self.told.entry(version).or_insert_with(|| document.clone());
        if *first != document {
            self.wrong = Some(format!("REG-1: version {version} is {first} and {document}"));
        }
    }

    fn newest(&self) -> u64 {
        self.told.keys().next_back().copied().unwrap_or(0)
    }

    fn begins(&mut self, at: usize, job: Job) {
        let floor = self.newest();
        let what = match job {
            Job::Load => Wanted::Load,
            Job::Swap => {
                self.used.documents += 1;
                let document = self.used.documents.to_string();
                Wanted::Swap { expected: Some(floor).filter(|it| *it > 0), document }
            }
        };
        self.at_work[at] = Some(Work { what: what.clone(), floor });
        self.handle(at, Event::Wanted { what, until: FAR });
    }

    fn takes(&mut self, message: Message, late: bool) {
        match message {
            Message::Ask { from, place, ask } => self.asks(from, place, ask, late),
            Message::Answer { to, place, answer } => {
                self.handle(to, Event::Answered { place, answer });
            }
        }
    }

    /// What cannot change anything any more is not kept apart.
    fn forget_the_idle(&mut self) {
        let idle: Vec<bool> = (0..self.proposers.len())
            .map(|at| self.at_work[at].is_none() && self.ahead[at].is_empty())
            .collect();
        self.messages.retain(|message| match message {
            Message::Ask { from, place, ask } => {
                let held = self.acceptors[*place].held();
                let is_void = match ask {
                    Ask::Read { .. } => true,
                    Ask::Prepare { ballot, seats } | Ask::Accept { ballot, seats, .. } => {
                        *ballot < held.promised && *seats == held.seats
                    }
                };
                !(is_void && idle[*from])
            }
            Message::Answer { to, .. } => !idle[*to],
        });
    }
}

impl Model for Bound {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let places = self.places;
        let acceptors: Vec<Acceptor> =
            (0..places).map(|at| Acceptor::new(node(at, 0), at, places)).collect();
        let proposer = |rank: usize| {
            let me = ReplicaId { node: NodeId(rank as u64 + 1), incarnation: 1 };
            Proposer::new(ProposerOptions { me, places, rank: rank as u32 })
        };
        let count = self.work.len();
        let mut state = State {
            before: acceptors.iter().map(|it| it.held().clone()).collect(),
            acceptors,
            proposers: (0..count).map(proposer).collect(),
            clocks: vec![Instant::ZERO; count],
            ahead: self.work.iter().map(|jobs| jobs.iter().copied().collect()).collect(),
            at_work: vec![None; count],
            messages: BTreeSet::new(),
            told: BTreeMap::new(),
            refused: BTreeSet::new(),
            used: Used::default(),
            wrong: None,
        };
        if self.begun {
            for (at, job) in (0..count).map(|at| (at, if at > 0 { Load } else { Swap })) {
                state.begins(at, job);
                while let Some(message) = state.messages.pop_first() {
                    state.takes(message, false);
                }
            }
            assert_eq!(state.newest(), 1);
            if self.ahead {
                let me = ReplicaId { node: NodeId(count as u64), incarnation: 1 };
                let none = Said::Refused { ballot: Ballot::NONE };
                let promised = Ballot { count: 50, proposer: me };
                let seats = state.acceptors[0].held().seats.clone();
                let answer = Answer { node: node(0, 0), seats, promised, said: none };
                state.handle(count - 1, Event::Answered { place: 0, answer });
            }
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let all_done =
            state.ahead.iter().all(VecDeque::is_empty) && state.at_work.iter().all(Option::is_none);
        if state.wrong.is_some() || all_done {
            return;
        }
        for message in &state.messages {
            actions.push(Action::Arrives(message.clone()));
            if state.used.twice < self.twice {
                actions.push(Action::ArrivesOnce(message.clone()));
            }
            if state.used.late < self.late && matches!(message, Message::Ask { .. }) {
                actions.push(Action::IsAnsweredLate(message.clone()));
            }
        }
        for at in 0..state.proposers.len() {
            if state.at_work[at].is_none() && !state.ahead[at].is_empty() {
                actions.push(Action::Begins(at));
            } else if state.at_work[at].is_some() && state.used.wakes < self.wakes {
                actions.push(Action::Wakes(at));
            }
        }
        for place in 0..self.places {
            // The places are alike.
            if place == 0 && state.used.losses < self.losses {
                actions.push(Action::Loses(place));
            }
            if self.sabotage == Some(Sabotage::AnswersBeforeItKeeps)
                && state.before[place] != *state.acceptors[place].held()
            {
                actions.push(Action::Forgets(place));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Arrives(message) => {
                state.messages.remove(&message);
                state.takes(message, false);
            }
            Action::ArrivesOnce(message) => {
                state.used.twice += 1;
                state.takes(message, false);
            }
            Action::IsAnsweredLate(message) => {
                state.used.late += 1;
                state.messages.remove(&message);
                state.takes(message, true);
            }
            Action::Begins(at) => {
                let job = state.ahead[at].pop_front()?;
                state.begins(at, job);
            }
            Action::Wakes(at) => {
                state.used.wakes += 1;
                state.clocks[at] = state.proposers[at].next_deadline()?;
                state.handle(at, Event::Tick);
            }
            Action::Loses(place) => {
                state.used.losses += 1;
                state.acceptors[place] = match self.sabotage {
                    Some(Sabotage::KeepsItsSeat) => {
                        let seats = state.acceptors[place].held().seats.clone();
                        let held = Held { seats, promised: Ballot::NONE, accepted: None };
                        Acceptor::recovered(node(place, 0), place, held)
                    }
                    Some(Sabotage::AnswersBeforeItKeeps) | None => {
                        Acceptor::new(node(place, state.used.losses), place, self.places)
                    }
                };
                state.before[place] = state.acceptors[place].held().clone();
            }
            Action::Forgets(place) => {
                let before = state.before[place].clone();
                state.acceptors[place] = Acceptor::recovered(node(place, 0), place, before);
            }
        }
        state.forget_the_idle();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing is wrong", |_, state: &State| state.wrong.is_none()),
            Property::sometimes("work ends", |bound: &Bound, state: &State| {
                let all = state.ahead.iter().all(VecDeque::is_empty)
                    && state.at_work.iter().all(Option::is_none);
                // Not all of it within each depth.
                all || bound.depth > 0 && state.told.len() > usize::from(bound.begun)
            }),
        ]
    }
}

impl Bound {
    /// Searches everything within the bound. Returns the way to what is wrong.
    fn search(&self) -> Option<String> {
        let depth = match std::env::var("HOPLO_MODEL_DEPTH") {
            Ok(depth) if self.depth > 0 => depth.parse().expect("a number"),
            _ => self.depth,
        };
        let checker = self.clone().checker().target_max_depth(depth).spawn_bfs().join();
        let (states, unique) = (checker.state_count(), checker.unique_state_count());
        println!("{states} states, {unique} of them different");
        if let Some(path) = checker.discovery("nothing is wrong") {
            let wrong = path.last_state().wrong.clone().expect("it is");
            let actions: Vec<String> =
                path.into_actions().into_iter().map(|it| format!("{it:?}")).collect();
            return Some(format!("{wrong}\n{}", actions.join("\n")));
        }
        assert!(checker.discovery("work ends").is_some(), "{self:?} sees too little");
        None
    }
}

#[track_caller]
fn holds(bound: &Bound) {
    if let Some(wrong) = bound.search() {
        panic!("{wrong}\nin {bound:?}");
    }
}

#[track_caller]
fn is_found(sabotage: Sabotage, bound: Bound) {
    let bound = Bound { sabotage: Some(sabotage), ..bound };
    assert!(bound.search().is_some(), "nothing is wrong in {bound:?}");
}

fn bound(work: &[&[Job]]) -> Bound {
    Bound {
        places: 3,
        work: work.iter().map(|jobs| jobs.to_vec()).collect(),
        begun: true,
        ahead: false,
        wakes: 0,
        twice: 0,
        late: 0,
        losses: 0,
        depth: 0,
        sabotage: None,
    }
}

#[test]
fn two_swap_at_once() {
    holds(&bound(&[&[Swap], &[Swap]]));
    holds(&Bound { begun: false, ..bound(&[&[Swap], &[Swap]]) });
}

#[test]
fn answers_are_late_and_questions_come_twice() {
    holds(&Bound { late: 1, twice: 1, depth: 12, ..bound(&[&[Swap], &[Swap]]) });
}

#[test]
fn one_swaps_and_another_loads_what_it_did() {
    holds(&Bound { late: 1, ..bound(&[&[Swap], &[Load, Load]]) });
}

#[test]
fn who_was_overtaken_tries_again() {
    holds(&Bound { wakes: 1, depth: 15, ..bound(&[&[Swap], &[Swap]]) });
}

#[test]
fn a_disk_is_lost() {
    holds(&Bound { losses: 1, depth: 12, ..bound(&[&[Swap], &[Swap]]) });
    holds(&Bound { losses: 1, depth: 14, ahead: true, ..bound(&[&[Swap], &[Swap]]) });
}

#[test]
fn a_disk_is_lost_while_the_cluster_begins() {
    holds(&Bound { begun: false, losses: 1, depth: 15, ..bound(&[&[Swap], &[Swap]]) });
}

#[test]
fn who_votes_as_before_after_its_disk_was_lost_is_found() {
    is_found(Sabotage::KeepsItsSeat, Bound { losses: 1, ..bound(&[&[Swap], &[Swap]]) });
}

#[test]
fn who_answers_before_it_keeps_is_found() {
    is_found(Sabotage::AnswersBeforeItKeeps, bound(&[&[Swap], &[Swap]]));
}
