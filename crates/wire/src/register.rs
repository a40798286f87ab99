//! The register in which control nodes keep their cluster's configuration: what its acceptors hold, are asked and answer.
//! What it means is said in `core::control::register`.

use hoplo_base::NodeId;
use serde::{Deserialize, Serialize};

use crate::control::ReplicaId;

/// Rounds are ordered by these; no two are equal, since a process that starts again is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ballot {
    pub count: u64,
    pub proposer: ReplicaId,
}

impl Ballot {
    /// Before all rounds.
    pub const NONE: Self =
        Self { count: 0, proposer: ReplicaId { node: NodeId(0), incarnation: 0 } };
}

/// Whose votes count at a place. A node that lost its disk is another node, and takes a later turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Seat {
    /// 1 for the first node at this place; 0: nobody has sat there.
    pub turn: u32,
    pub node: NodeId,
}

impl Seat {
    pub const EMPTY: Self = Self { turn: 0, node: NodeId(0) };
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Value {
    /// 1 for the first, one more with each swap.
    pub version: u64,
    /// The round in which its swap proposed it first.
    pub writer: Ballot,
    pub document: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Accepted {
    pub ballot: Ballot,
    pub value: Value,
}

/// What an acceptor must not forget.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Held {
    /// By place.
    pub seats: Vec<Seat>,
    /// It takes part in no round before this one.
    pub promised: Ballot,
    pub accepted: Option<Accepted>,
}

/// To an acceptor. Coming twice, late or never does no harm.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Ask {
    /// `number` comes back with the answer.
    Read {
        number: u64,
    },
    Prepare {
        ballot: Ballot,
        seats: Vec<Seat>,
    },
    Accept {
        ballot: Ballot,
        seats: Vec<Seat>,
        value: Value,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Answer {
    /// Who answers.
    pub node: NodeId,
    /// Whom it takes for seated.
    pub seats: Vec<Seat>,
    pub promised: Ballot,
    pub said: Said,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Said {
    Holds { number: u64, accepted: Option<Accepted> },
    Promised { ballot: Ballot, accepted: Option<Accepted> },
    Accepted { ballot: Ballot },
    Refused { ballot: Ballot },
}
