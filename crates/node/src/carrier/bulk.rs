//! What the haul gives to the bulk socket and gets from it: pieces of objects.
//!
//! ```text
//!   ticket u64 | offset u64 | bytes
//! ```
//! The haul is asked on the carrier's thread, for one piece after the other while the link takes them: so no more lies in memory than the
//! window has room for. Who has something new to send rings the carrier's bell.

use std::sync::Arc;

use hoplo_base::NodeNumber;
use hoplo_base::limits::BULK_CHUNK_BYTES;

/// Bytes of an object. `ticket`: as its asker named the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk<'a> {
    pub(crate) ticket: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
}

pub(crate) trait Bulk: Send {
    /// It came from that node.
    fn arrived(&mut self, from: NodeNumber, chunk: Chunk<'_>);

    /// Nodes for which it has pieces.
    fn waiting(&mut self) -> Vec<NodeNumber>;

    /// The next piece for that node, appended to `out` by `encode`; false if there is none.
    fn next(&mut self, to: NodeNumber, out: &mut Vec<u8>) -> bool;

    /// Nothing that was on its way from or to that node arrives any more.
    fn lost(&mut self, node: NodeNumber);
}

/// Where nothing is hauled.
#[cfg(test)]
pub(crate) struct NoBulk;

#[cfg(test)]
impl Bulk for NoBulk {
    fn arrived(&mut self, _: NodeNumber, _: Chunk<'_>) {}

    fn waiting(&mut self) -> Vec<NodeNumber> {
        Vec::new()
    }

    fn next(&mut self, _: NodeNumber, _: &mut Vec<u8>) -> bool {
        false
    }

    fn lost(&mut self, _: NodeNumber) {}
}

impl<'a> Chunk<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        assert!(self.bytes.len() <= BULK_CHUNK_BYTES, "a piece is bounded");
        out.extend_from_slice(&self.ticket.to_le_bytes());
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(self.bytes);
    }

    pub(super) fn parse(frame: &'a Arc<Vec<u8>>) -> Option<Self> {
        let (ticket, rest) = frame.split_first_chunk()?;
        let (offset, bytes) = rest.split_first_chunk()?;
        let (ticket, offset) = (u64::from_le_bytes(*ticket), u64::from_le_bytes(*offset));
        Some(Self { ticket, offset, bytes })
    }
}
