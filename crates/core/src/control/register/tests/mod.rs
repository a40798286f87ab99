//! Acceptors and proposers in a small world: messages lie about until somebody delivers them, disks keep or lose.

mod random;
mod stories;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hoplo_base::{Instant, NodeId};
use hoplo_wire::control::ReplicaId;
use hoplo_wire::register::{Answer, Ask, Held};

use super::{
    Acceptor, AcceptorEffect, Effect, Event, Failure, Outcome, Proposer, ProposerOptions, Wanted,
};

const PATIENCE: Duration = Duration::from_secs(2);

/// A proposer that is no more.
const NOBODY: usize = usize::MAX;

#[derive(Clone, Debug)]
enum Message {
    Ask { from: usize, place: usize, ask: Ask },
    Answer { to: usize, place: usize, answer: Answer },
}

struct World {
    now: Instant,
    acceptors: Vec<Acceptor>,
    proposers: Vec<Proposer>,
    /// What each proposer is at.
    working: Vec<Option<Working>>,
    messages: Vec<Message>,
    /// Acceptors that take no message.
    down: BTreeSet<usize>,
    /// Whose disks take nothing.
    full: BTreeSet<usize>,
    /// Who has no value since its disk was lost, or since it lost its seat.
    emptied: BTreeSet<usize>,
    /// More than a minority had none at a time.
    too_many: bool,
    keeps: u64,
    nodes: u64,
    incarnations: u64,
    documents: u32,
    judge: Judge,
    ended: Vec<(usize, Outcome)>,
}

#[derive(Clone, Debug)]
struct Working {
    what: Wanted,
    /// The newest version that anybody had been told when it began.
    floor: u64,
}

/// What was told, and that it fits.
#[derive(Default)]
struct Judge {
    floor: u64,
    /// The document of each version that was told.
    told: BTreeMap<u64, String>,
    /// Which version each swap expected.
    expected: BTreeMap<String, Option<u64>>,
    /// Documents whose swaps were told `Conflict`.
    refused: BTreeSet<String>,
}

impl World {
    fn new(places: usize, proposers: usize) -> Self {
        let acceptors = (0..places).map(|at| Acceptor::new(NodeId(at as u64 + 1), at, places));
        let mut world = World {
            now: Instant::ZERO,
            acceptors: acceptors.collect(),
            proposers: Vec::new(),
            working: vec![None; proposers],
            messages: Vec::new(),
            down: BTreeSet::new(),
            full: BTreeSet::new(),
            emptied: BTreeSet::new(),
            too_many: false,
            keeps: 0,
            nodes: places as u64,
            incarnations: 0,
            documents: 0,
            judge: Judge::default(),
            ended: Vec::new(),
        };
        world.proposers = (0..proposers).map(|at| world.proposer(at)).collect();
        world
    }

    fn proposer(&mut self, at: usize) -> Proposer {
        self.incarnations += 1;
        let me = ReplicaId { node: NodeId(at as u64 + 1), incarnation: self.incarnations };
        let places = self.acceptors.len();
        Proposer::new(ProposerOptions { me, places, rank: at as u32 })
    }

    fn document(&mut self) -> String {
        self.documents += 1;
        self.documents.to_string()
    }

    fn begin(&mut self, at: usize, what: Wanted) {
        if let Wanted::Swap { expected, document } = &what {
            self.judge.expected.insert(document.clone(), *expected);
        }
        self.working[at] = Some(Working { what: what.clone(), floor: self.judge.floor });
        self.tell(at, Event::Wanted { what, until: self.now + PATIENCE });
    }

    fn swap(&mut self, at: usize, expected: Option<u64>) {
        let document = self.document();
        self.begin(at, Wanted::Swap { expected, document });
    }

    fn tell(&mut self, at: usize, event: Event) {
        let mut effects = Vec::new();
        self.proposers[at].handle(self.now, event, &mut effects);
        for effect in effects {
            match effect {
                Effect::Ask { place, ask } => {
                    self.messages.push(Message::Ask { from: at, place, ask });
                }
                Effect::End(outcome) => {
                    let working = self.working[at].take().expect("only work ends");
                    self.judge.ended(&working, &outcome);
                    self.ended.push((at, outcome));
                }
            }
        }
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Answer { to, place, answer } => {
                self.tell(to, Event::Answered { place, answer });
            }
            Message::Ask { place, .. } if self.down.contains(&place) => {}
            Message::Ask { from, place, ask } => {
                let before = self.acceptors[place].held().clone();
                let mut effects = Vec::new();
                self.acceptors[place].handle(ask, &mut effects);
                for effect in effects {
                    match effect {
                        AcceptorEffect::Keep(_) if self.full.contains(&place) => {
                            let node = self.node_of(place);
                            self.acceptors[place] = Acceptor::recovered(node, place, before);
                            return;
                        }
                        AcceptorEffect::Keep(held) => {
                            self.keeps += 1;
                            grew(&before, &held, place);
                            if held.accepted.is_some() {
                                self.emptied.remove(&place);
                            } else if before.accepted.is_some() {
                                self.is_empty(place);
                            }
                        }
                        AcceptorEffect::Answer(_) if from == NOBODY => {}
                        AcceptorEffect::Answer(answer) => {
                            self.messages.push(Message::Answer { to: from, place, answer });
                        }
                    }
                }
                self.acceptors[place].check();
            }
        }
    }

    fn node_of(&mut self, place: usize) -> NodeId {
        let mut effects = Vec::new();
        self.acceptors[place].handle(Ask::Read { number: 0 }, &mut effects);
        match effects.as_slice() {
            [AcceptorEffect::Answer(answer)] => answer.node,
            other => panic!("a read is answered and keeps nothing: {other:?}"),
        }
    }

    fn loses_disk(&mut self, place: usize) {
        self.nodes += 1;
        let places = self.acceptors.len();
        self.acceptors[place] = Acceptor::new(NodeId(self.nodes), place, places);
        self.is_empty(place);
    }

    fn is_empty(&mut self, place: usize) {
        self.emptied.insert(place);
        self.too_many |= self.emptied.len() > (self.acceptors.len() - 1) / 2;
    }

    /// Its work has no end that anybody hears of.
    fn restarts(&mut self, at: usize) {
        self.proposers[at] = self.proposer(at);
        self.working[at] = None;
        // What it asked may still arrive; the answer finds nobody.
        self.messages.retain(|message| !matches!(message, Message::Answer { to, .. } if *to == at));
        for message in &mut self.messages {
            if let Message::Ask { from, .. } = message
                && *from == at
            {
                *from = NOBODY;
            }
        }
    }

    /// Delivers in order, and lets time pass where nothing is under way, until nobody works and nothing is under way.
    fn settle(&mut self) {
        while self.working.iter().any(Option::is_some) || !self.messages.is_empty() {
            if self.messages.is_empty() {
                self.ticks();
            } else {
                let message = self.messages.remove(0);
                self.deliver(message);
            }
        }
    }

    /// To the next moment at which somebody wants to do something.
    fn ticks(&mut self) {
        let due = self.proposers.iter().filter_map(Proposer::next_deadline).min();
        self.now = self.now.max(due.expect("who works has a deadline"));
        (0..self.proposers.len()).for_each(|at| self.tell(at, Event::Tick));
    }

    /// Questions to this place.
    fn deliver_to(&mut self, place: usize) {
        let is_to = |it: &Message| matches!(it, Message::Ask { place: to, .. } if *to == place);
        while let Some(at) = self.messages.iter().position(is_to) {
            let message = self.messages.remove(at);
            self.deliver(message);
        }
    }

    /// Of proposer 0; this place promises, and hears nothing of the value.
    fn swap_hidden_from(&mut self, hidden: usize, expected: Option<u64>) {
        self.swap(0, expected);
        while self.working[0].is_some() {
            let accepts = |it: &Message| match it {
                Message::Ask { place, ask: Ask::Accept { .. }, .. } => *place == hidden,
                Message::Ask { .. } | Message::Answer { .. } => false,
            };
            match self.messages.iter().position(|it| !accepts(it)) {
                Some(at) => {
                    let message = self.messages.remove(at);
                    self.deliver(message);
                }
                None => self.ticks(),
            }
        }
    }

    /// Works alone until it ends.
    fn done(&mut self, at: usize, what: Wanted) -> Outcome {
        self.begin(at, what);
        self.settle();
        self.ended.pop().expect("it ended").1
    }

    fn load(&mut self, at: usize) -> Outcome {
        self.done(at, Wanted::Load)
    }

    fn swapped(&mut self, at: usize, expected: Option<u64>) -> Outcome {
        let document = self.document();
        self.done(at, Wanted::Swap { expected, document })
    }
}

/// REG-3
fn grew(before: &Held, after: &Held, place: usize) {
    assert!(after.promised >= before.promised, "{before:?} {after:?}");
    assert!(after.seats.iter().zip(&before.seats).all(|(after, before)| after >= before));
    let ballot = |held: &Held| held.accepted.as_ref().map(|it| it.ballot);
    let sits_anew = before.seats[place] != after.seats[place];
    assert!(sits_anew || ballot(after) >= ballot(before), "{before:?} {after:?}");
}

impl Judge {
    fn ended(&mut self, working: &Working, outcome: &Outcome) {
        match (&working.what, outcome) {
            (Wanted::Load, Outcome::Loaded(None)) => {
                assert_eq!(working.floor, 0, "REG-6: a value vanished");
            }
            (Wanted::Load, Outcome::Loaded(Some((version, document)))) => {
                assert!(*version >= working.floor, "REG-6: {version} after {}", working.floor);
                self.tells(*version, document);
            }
            (Wanted::Swap { expected, document }, Outcome::Stored(version)) => {
                assert_eq!(*version, expected.unwrap_or(0) + 1);
                assert!(*version > working.floor, "REG-6: {version} after {}", working.floor);
                self.tells(*version, document);
            }
            (Wanted::Swap { document, .. }, Outcome::Conflict) => {
                assert!(!self.told.values().any(|told| told == document), "REG-6");
                self.refused.insert(document.clone());
            }
            (_, Outcome::Failed(_)) => {}
            (what, outcome) => panic!("{what:?} ended with {outcome:?}"),
        }
    }

    fn tells(&mut self, version: u64, document: &str) {
        let told = self.told.entry(version).or_insert_with(|| document.to_string());
        assert_eq!(told, document, "REG-1: version {version}");
        assert!(!self.refused.contains(document), "REG-6: {document:?} was refused");
        assert_eq!(self.expected[document].unwrap_or(0) + 1, version, "{document:?}");
        self.floor = self.floor.max(version);
    }
}
