//! What the haul gives to the bulk socket and gets from it: pieces of objects.
//!
//! ```text
//!   ticket u64 | offset u64 | bytes
//! ```
//! A piece is not copied on its way. It goes from where it lies into the records that are sealed, and what was opened goes to its
//! place; only then the link says that it arrived. It may be sent again until the other node has acknowledged it: so it stays where it lies until then.
//!
//! The haul is asked on the carrier's thread, for one piece after the other while the link takes them. Who has something new to send
//! rings the carrier's bell.

use std::fmt;
use std::sync::Arc;

use hoplo_base::NodeNumber;
use hoplo_core::link::Load;
use hoplo_net::Lent;

pub(crate) trait Bulk: Send {
    /// These bytes of a piece came from that node, and the piece may never be whole. `offset`: of the first of them in the object.
    /// `ticket`: as this node named its request.
    fn lands(&mut self, from: NodeNumber, ticket: u64, offset: u64, bytes: &[u8]);

    /// All bytes of it have landed.
    fn arrived(&mut self, from: NodeNumber, piece: Landed);

    /// Whether pieces were asked for and did not come.
    fn expects(&self) -> bool;

    /// What began since this was asked last, as it knows when it has said who is `waiting`.
    fn begun(&mut self) -> Vec<Begun>;

    /// Nodes for which it has pieces.
    fn waiting(&mut self) -> Vec<NodeNumber>;

    /// The next piece for that node.
    fn next(&mut self, to: NodeNumber) -> Option<Piece>;

    /// Nothing that was on its way from or to that node arrives any more.
    fn lost(&mut self, node: NodeNumber);
}

/// Where nothing is hauled.
#[cfg(test)]
pub(crate) struct NoBulk;

#[cfg(test)]
impl Bulk for NoBulk {
    fn lands(&mut self, _: NodeNumber, _: u64, _: u64, _: &[u8]) {}

    fn arrived(&mut self, _: NodeNumber, _: Landed) {}

    fn expects(&self) -> bool {
        false
    }

    fn begun(&mut self) -> Vec<Begun> {
        Vec::new()
    }

    fn waiting(&mut self) -> Vec<NodeNumber> {
        Vec::new()
    }

    fn next(&mut self, _: NodeNumber) -> Option<Piece> {
        None
    }

    fn lost(&mut self, _: NodeNumber) {}
}

/// Pieces will go between two nodes, and may not be there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// That node is asked for them.
    Asked(NodeNumber),
    /// That node waits for what is still arriving here.
    Relays(NodeNumber),
}

/// Bytes of an object that go. `ticket`: as its asker named the request.
#[derive(Clone)]
pub(crate) struct Piece {
    pub(crate) ticket: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: Lent,
}

/// Bytes of an object that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Landed {
    pub(crate) ticket: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// A frame of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parcel {
    /// Of the talk socket.
    Talk(Arc<Vec<u8>>),
    /// Of the bulk socket: what goes,
    Piece(Piece),
    /// and what came.
    Landed(Landed),
}

/// Before the bytes of a piece.
pub(super) const PIECE_HEAD_BYTES: usize = 16;

impl Load for Parcel {
    fn bytes(&self) -> usize {
        match self {
            Self::Talk(frame) => frame.len(),
            Self::Piece(piece) => PIECE_HEAD_BYTES + piece.len(),
            Self::Landed(landed) => PIECE_HEAD_BYTES + landed.len as usize,
        }
    }
}

impl Piece {
    pub(crate) fn len(&self) -> usize {
        (*self.bytes).as_ref().len()
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ticket, offset, .. } = self;
        write!(f, "Piece {{ ticket: {ticket}, offset: {offset}, len: {} }}", self.len())
    }
}

impl PartialEq for Piece {
    fn eq(&self, other: &Self) -> bool {
        let Self { ticket, offset, bytes } = self;
        (*ticket, *offset) == (other.ticket, other.offset)
            && (**bytes).as_ref() == (*other.bytes).as_ref()
    }
}

impl Eq for Piece {}
