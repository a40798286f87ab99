//! Acceptor: what one of the nodes that hold the register remembers, and what it answers.

use hoplo_base::NodeId;
use hoplo_wire::register::{Accepted, Answer, Ask, Ballot, Held, Said, Seat};

use super::seats;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acceptor {
    node: NodeId,
    place: usize,
    held: Held,
}

/// In this order. Who cannot keep it answers nothing and goes on with what it kept last (REG-2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Keep(Held),
    Answer(Answer),
}

impl Acceptor {
    /// With an empty disk.
    pub fn new(node: NodeId, place: usize, places: usize) -> Self {
        let held =
            Held { seats: vec![Seat::EMPTY; places], promised: Ballot::NONE, accepted: None };
        Self::recovered(node, place, held)
    }

    /// With what it kept last.
    pub fn recovered(node: NodeId, place: usize, held: Held) -> Self {
        assert!(place < held.seats.len(), "place {place} of {}", held.seats.len());
        Self { node, place, held }
    }

    pub fn handle(&mut self, ask: Ask, effects: &mut Vec<Effect>) {
        let before = self.held.clone();
        let said = match ask {
            Ask::Read { number } => Said::Holds { number, accepted: self.held.accepted.clone() },
            Ask::Prepare { ballot, seats } if self.may_vote(ballot, &seats) => {
                self.held.promised = ballot;
                Said::Promised { ballot, accepted: self.held.accepted.clone() }
            }
            Ask::Accept { ballot, seats, value } if self.may_vote(ballot, &seats) => {
                self.held.promised = ballot;
                self.held.accepted = Some(Accepted { ballot, value });
                Said::Accepted { ballot }
            }
            Ask::Prepare { ballot, .. } | Ask::Accept { ballot, .. } => Said::Refused { ballot },
        };
        if self.held != before {
            effects.push(Effect::Keep(self.held.clone()));
        }
        effects.push(Effect::Answer(Answer {
            node: self.node,
            seats: self.held.seats.clone(),
            promised: self.held.promised,
            said,
        }));
    }

    pub fn held(&self) -> &Held {
        &self.held
    }

    pub fn check(&self) {
        let accepted = self.held.accepted.as_ref().map(|it| it.ballot);
        assert!(accepted <= Some(self.held.promised), "REG-3: {:?}", self.held);
    }

    /// REG-4: only in a round that knows all that this node knows of seats, and gives one to it.
    fn may_vote(&mut self, ballot: Ballot, seats: &[Seat]) -> bool {
        if seats.len() != self.held.seats.len() {
            return false;
        }
        let known = seats::joined(&self.held.seats, seats);
        let (seat, before) = (known[self.place], self.held.seats[self.place]);
        if seat != before && seat.node == self.node {
            // Others voted in its place meanwhile: what it holds is not all that this place accepted.
            self.held.accepted = None;
        }
        self.held.seats = known;
        self.held.seats == seats && seat.node == self.node && ballot >= self.held.promised
    }
}
