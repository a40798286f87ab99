//! What is said to the threads of the head, what happens when, and what is known of each node.

use hoplo_base::{NodeNumber, ObjectId, ProcessId};
use hoplo_core::control::replica::Effect as Told;
use hoplo_core::control::{ActorEntry, NodeEntry};
use hoplo_core::members::{Found, Why};
use hoplo_core::node::Node;
use hoplo_wire::control::{ClientId, Op, Request, Response};
use hoplo_wire::peer::Peer;
use serde::Serialize;

use super::Server;

/// What happens at one moment.
pub(super) enum What {
    Decider,
    ToDecider(Said),
    Carrier,
    ToCarrier(Heard),
    /// Somebody wants to join.
    Knocks(u32),
    /// It is connected to the desk, and has asked.
    Asks(u32),
    /// It has a number, and the clerk has made its certificate.
    Certified(u32),
    /// It is connected to the store.
    Admitted(u32),
    /// To the n-th node.
    Answers(u32, Vec<Response>),
    /// It has read the node table, and its carrier is connected.
    Ready(u32),
    Beats(u32),
    Ticks(u32),
    /// For a node, of another one's decider.
    Word(u32, NodeNumber, Box<Peer>),
    Actor(u32),
    /// The load of a node that works has changed.
    Load(u32, bool),
}

pub(super) struct Member {
    pub(super) at: u32,
    pub(super) lives: bool,
    /// It is dead, and its machine says so to who dials it.
    pub(super) refuses: bool,
    pub(super) joined_at: Option<u64>,
    pub(super) decider: Server,
    pub(super) sample: Option<Box<Node>>,
    /// Of a real node, if it has one; and whether it wants a sweep.
    pub(super) driver: Option<ProcessId>,
    pub(super) wants_sweep: bool,
    /// Of a stand-in: objects of other homes that it uses, and the last death that it has not passed.
    pub(super) held: Vec<Held>,
    pub(super) passing: Option<u64>,
    pub(super) ticks_at: Option<u64>,
    /// When the head told it last that it is heard.
    pub(super) heard_at: Option<u64>,
    pub(super) seq: u64,
    /// Told, and not said so to the store.
    pub(super) owed: u32,
    pub(super) after: Option<u64>,
    /// Rows of the node table that it has heard, each time that one changed.
    pub(super) rows_heard: u64,
    /// It has heard of the table up to this entry.
    pub(super) knows_to: u64,
    pub(super) deaths_heard: u64,
    pub(super) settled_heard: u64,
    /// Rows that it has to save, and whether some are on their way.
    pub(super) unsaved: Vec<Op>,
    pub(super) saving: u64,
}

/// An object that a stand-in uses and that is at home elsewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) object: ObjectId,
    pub(super) in_charge: NodeNumber,
    /// The one in charge has answered its claim, and has heard what it knows.
    pub(super) claimed: bool,
    pub(super) heard: bool,
}

/// What a row says.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Lives,
    Dead { node: NodeNumber, heir: Option<NodeNumber> },
    Settled,
}

/// To the head's deciding thread.
pub(super) enum Said {
    /// Of a client of the store, over its connection.
    Request {
        from: ClientId,
        request: Request,
    },
    /// From the carrier.
    Member {
        entry: Box<NodeEntry>,
        index: u64,
    },
    Peer {
        from: NodeNumber,
        message: Box<Peer>,
    },
    Verdict {
        ticket: u64,
        node: NodeNumber,
        expected: u64,
        why: Why,
    },
    StoreTicks,
    NodeTicks,
}

/// To the head's carrier.
pub(super) enum Heard {
    Row {
        entry: Box<NodeEntry>,
        version: u64,
        index: u64,
    },
    Stored {
        ticket: u64,
        version: u64,
    },
    Conflict {
        ticket: u64,
    },
    Beat {
        from: NodeNumber,
    },
    Closed {
        node: NodeNumber,
    },
    Probed {
        ticket: u64,
        found: Found,
    },
    /// From a node's decider, for ours.
    Peer {
        from: NodeNumber,
        message: Box<Peer>,
    },
    /// From ours, for a node's.
    Send,
    Ticks,
}

/// What is being made.
pub(super) struct Making {
    pub(super) rows: Vec<ActorEntry>,
    pub(super) made: u64,
    pub(super) saved: u64,
    pub(super) refused: u64,
    pub(super) last_alive: u64,
    pub(super) last_saved: u64,
}

/// Up to where the last of these are to be in the log.
pub(super) fn logged(effects: &[Told]) -> Option<u64> {
    effects.iter().rev().find_map(|effect| match effect {
        Told::Append { upto, .. } => Some(*upto),
        _ => None,
    })
}

/// What it is on a connection.
pub(super) fn encoded_bytes(message: &impl Serialize) -> u64 {
    let mut bytes = Vec::new();
    hoplo_wire::node::encode(message, &mut bytes);
    bytes.len() as u64
}
