//! What is said to one other node: items gathered into frames of its link, and frames that wait for room. The shell has one for each node.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use hoplo_base::limits::{CARRY_PACK_BYTES, CARRY_PIECE_BYTES};
use hoplo_wire::node::encode_body;
use hoplo_wire::peer::Peer;

use super::{Bytes, Item, Pair};

#[derive(Debug, Default)]
pub struct Outbox {
    pack: Vec<u8>,
    waiting: VecDeque<Arc<Vec<u8>>>,
}

impl Outbox {
    pub fn push(&mut self, item: &Item) {
        item.encode(&mut self.pack);
        if self.pack.len() >= CARRY_PACK_BYTES {
            self.close_pack();
        }
    }

    /// In pieces that fit a frame.
    pub fn push_peer(&mut self, cover: u64, message: &Peer) {
        let mut body = Vec::new();
        encode_body(message, &mut body);
        let mut pieces = body.chunks(CARRY_PIECE_BYTES).peekable();
        while let Some(piece) = pieces.next() {
            let (more, bytes) = (pieces.peek().is_some(), Bytes::Own(piece.to_vec()));
            self.push(&Item::Peer { cover, more, bytes });
        }
    }

    /// What was gathered is a frame now. A long one is moved: to copy it takes longer than to make room for the next.
    pub fn close_pack(&mut self) {
        if self.pack.is_empty() {
            return;
        }
        let pack = if self.pack.len() >= CARRY_PACK_BYTES {
            mem::replace(&mut self.pack, Vec::with_capacity(CARRY_PACK_BYTES))
        } else {
            let pack = self.pack.clone();
            self.pack.clear();
            pack
        };
        self.waiting.push_back(Arc::new(pack));
    }

    pub fn pop(&mut self) -> Option<Arc<Vec<u8>>> {
        self.waiting.pop_front()
    }

    pub fn put_back(&mut self, frame: Arc<Vec<u8>>) {
        self.waiting.push_front(frame);
    }

    /// The link takes no more: nothing is taken out of rings for this node.
    pub fn is_full(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// What was never given to the link.
    pub fn into_frames(mut self) -> VecDeque<Arc<Vec<u8>>> {
        self.close_pack();
        self.waiting
    }
}

/// The calls that lie in a frame.
pub fn calls_in(frame: &Arc<Vec<u8>>) -> Vec<(Pair, u64)> {
    let mut items = Vec::new();
    Item::parse_all(frame, &mut items).expect("it is our own");
    let calls = items.into_iter().filter_map(|item| match item {
        Item::Call(frame) => Some((frame.pair, frame.tag)),
        Item::Reply(_)
        | Item::Stray { .. }
        | Item::Credit { .. }
        | Item::Revoke { .. }
        | Item::Revoked { .. }
        | Item::Gone { .. }
        | Item::Closed { .. }
        | Item::Peer { .. } => None,
    });
    calls.collect()
}
