//! What is said to one other node: items gathered into frames of its link, and frames that wait for room. The shell has one for each node.
//!
//! What workers print comes as fast as they print it, whatever the link takes. While the link is behind, such lines wait apart: they go when
//! nothing else waits, so no call waits for them, and what is too much of them is lost.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use hoplo_base::limits::{CARRY_PACK_BYTES, CARRY_PIECE_BYTES, DRIVER_UNREAD_BYTES_MAX};
use hoplo_wire::node::{ToClient, encode_body};
use hoplo_wire::peer::Peer;

use super::{Bytes, Item, Pair};

#[derive(Debug, Default)]
pub struct Outbox {
    pack: Vec<u8>,
    waiting: VecDeque<Arc<Vec<u8>>>,
    /// Messages with lines of workers, while the link is behind.
    lines: VecDeque<Vec<u8>>,
    lines_bytes: usize,
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
        self.push_pieces(cover, &body);
    }

    /// Lines of workers, while the link is behind. They are lost if very many wait already.
    pub fn push_lines(&mut self, message: &Peer) {
        let mut body = Vec::new();
        encode_body(message, &mut body);
        if self.lines_bytes + body.len() <= DRIVER_UNREAD_BYTES_MAX {
            body.shrink_to_fit(); // it may wait for long
            self.lines_bytes += body.len();
            self.lines.push_back(body);
        }
    }

    pub fn has_lines(&self) -> bool {
        !self.lines.is_empty()
    }

    /// The oldest lines that wait go now.
    pub fn take_lines(&mut self) {
        if let Some(body) = self.lines.pop_front() {
            self.lines_bytes -= body.len();
            self.push_pieces(0, &body);
        }
    }

    fn push_pieces(&mut self, cover: u64, body: &[u8]) {
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

/// What workers printed, for a driver of the other node.
pub fn is_lines(message: &Peer) -> bool {
    matches!(message, Peer::To { message, .. } if matches!(**message, ToClient::Output { .. }))
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

#[cfg(test)]
mod tests {
    use hoplo_base::{NodeNumber, ProcessId};

    use super::*;

    fn lines(bytes: usize) -> Peer {
        let process = ProcessId::new(NodeNumber::first_given(0), 1, 1);
        let lines = vec!["x".repeat(bytes)];
        let message = ToClient::Output {
            pid: 1,
            title: "f".to_string(),
            address: None,
            stderr: false,
            lines,
        };
        Peer::To { process, message: Box::new(message) }
    }

    fn sent(outbox: &mut Outbox) -> usize {
        outbox.close_pack();
        std::iter::from_fn(|| outbox.pop()).map(|frame| frame.len()).sum()
    }

    #[test]
    fn lines_wait_apart_and_no_more_of_them_than_a_driver_may_leave_unread() {
        let mut outbox = Outbox::default();
        for _ in 0..200 {
            outbox.push_lines(&lines(100_000));
        }
        assert!(!outbox.is_full() && sent(&mut outbox) == 0, "nothing waits behind them");
        outbox.push_peer(0, &Peer::JobEnded { job: hoplo_base::JobId(1) });
        assert!(sent(&mut outbox) < 100, "what is no line goes first");
        let mut total = 0;
        while outbox.has_lines() {
            outbox.take_lines();
            total += sent(&mut outbox);
        }
        assert!(
            (DRIVER_UNREAD_BYTES_MAX - 200_000..DRIVER_UNREAD_BYTES_MAX + 10_000).contains(&total),
            "{total}"
        );
        outbox.push_lines(&lines(10));
        assert!(outbox.has_lines(), "there is room again");
    }

    #[test]
    fn only_what_workers_printed_may_wait() {
        assert!(is_lines(&lines(1)));
        assert!(!is_lines(&Peer::JobEnded { job: hoplo_base::JobId(1) }));
    }
}
