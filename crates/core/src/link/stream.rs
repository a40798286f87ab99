//! The counted frames of one socket, both ways, whatever connection carries them.

use std::collections::VecDeque;
use std::time::Duration;

use hoplo_base::Instant;
use hoplo_base::limits::LINK_FRAME_OVERHEAD;

use super::message::{Load, Message, SendError, Unacknowledged};

#[derive(Clone, Debug)]
pub(super) struct Stream<F> {
    /// Not acknowledged; the first one is number `acked + 1`.
    held: VecDeque<F>,
    /// With `LINK_FRAME_OVERHEAD` each.
    held_bytes: usize,
    acked: u64,
    /// The highest number that was ever written to a connection.
    written: u64,
    /// The highest number that was delivered.
    received: u64,
    /// Bytes that were delivered and not acknowledged on this connection.
    owed_bytes: usize,
    /// When that is due by itself; absent if nothing is owed.
    ack_at: Option<Instant>,
    /// The least room for which somebody waits.
    wanted: Option<usize>,
}

/// The peer says what cannot be.
pub(super) type Nonsense = &'static str;

impl<F: Load> Stream<F> {
    pub(super) fn new() -> Self {
        Self {
            held: VecDeque::new(),
            held_bytes: 0,
            acked: 0,
            written: 0,
            received: 0,
            owed_bytes: 0,
            ack_at: None,
            wanted: None,
        }
    }

    /// Takes it, if the window has room.
    pub(super) fn push(&mut self, frame: F, window: usize) -> Result<(), SendError<F>> {
        let cost = cost(&frame);
        if cost > frame_cost_max(window) {
            return Err(SendError::TooLong(frame));
        }
        if self.held_bytes + cost > window {
            self.wanted = Some(self.wanted.map_or(cost, |least| least.min(cost)));
            return Err(SendError::Full(frame));
        }
        self.held_bytes += cost;
        self.held.push_back(frame);
        Ok(())
    }

    /// A connection begins, and the peer has told how much it received: what it lacks is to be written.
    pub(super) fn resume(&mut self, peer_received: u64) -> Result<Vec<Message<F>>, Nonsense> {
        if self.is_past(peer_received) {
            return Err("it received less than it acknowledged");
        }
        self.on_ack(peer_received)?;
        self.no_debt();
        Ok((0..self.held.len()).map(|at| self.frame(at)).collect())
    }

    /// The last frame that was pushed, as a message.
    pub(super) fn last(&mut self) -> Message<F> {
        assert!(!self.held.is_empty(), "a frame was pushed");
        self.frame(self.held.len() - 1)
    }

    fn frame(&mut self, at: usize) -> Message<F> {
        let count = self.acked + 1 + at as u64;
        self.written = self.written.max(count);
        self.no_debt();
        Message::Frame { count, upto: self.received, frame: self.held[at].clone() }
    }

    pub(super) fn on_ack(&mut self, upto: u64) -> Result<(), Nonsense> {
        if upto > self.written {
            return Err("it received more than was sent");
        }
        while self.acked < upto {
            let frame = self.held.pop_front().expect("what was written and not acknowledged");
            self.held_bytes -= cost(&frame);
            self.acked += 1;
        }
        if self.held.is_empty() {
            self.held.shrink_to(HELD_KEPT);
        }
        Ok(())
    }

    /// The next frame arrived, in order, and is delivered.
    pub(super) fn on_frame(
        &mut self,
        now: Instant,
        count: u64,
        frame: &F,
        within: Duration,
    ) -> Result<(), Nonsense> {
        if count != self.received + 1 {
            return Err("a frame is missing, or came twice");
        }
        self.received = count;
        self.owed_bytes += cost(frame);
        self.ack_at.get_or_insert(now + within);
        Ok(())
    }

    /// An acknowledgement that is to be written by itself.
    pub(super) fn ack(&mut self, now: Instant, window: usize) -> Option<Message<F>> {
        let due = self.ack_at.is_some_and(|at| at <= now) || self.owed_bytes >= window / 8;
        due.then(|| {
            self.no_debt();
            Message::Ack { upto: self.received }
        })
    }

    /// What was received was just told, or will be by the next hello.
    pub(super) fn no_debt(&mut self) {
        (self.owed_bytes, self.ack_at) = (0, None);
    }

    /// Whether to tell who waits for room that there is some.
    pub(super) fn has_wanted_room(&mut self, window: usize) -> bool {
        let room = self.wanted.is_some_and(|wanted| self.held_bytes + wanted <= window);
        if room {
            self.wanted = None;
        }
        room
    }

    /// Begins anew, and gives what was not acknowledged.
    pub(super) fn give_up(&mut self) -> Unacknowledged<F> {
        let wanted = self.wanted;
        let old = std::mem::replace(self, Self { wanted, ..Self::new() });
        let sent = (old.written - old.acked) as usize;
        let mut may_have_arrived: Vec<F> = old.held.into();
        let never_sent = may_have_arrived.split_off(sent);
        Unacknowledged { may_have_arrived, never_sent }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The peer has acknowledged more than that.
    pub(super) fn is_past(&self, peer_received: u64) -> bool {
        peer_received < self.acked
    }

    pub(super) fn received(&self) -> u64 {
        self.received
    }

    pub(super) fn ack_at(&self) -> Option<Instant> {
        self.ack_at
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// What it takes in memory, besides itself and the bytes of frames.
    pub(super) fn table_bytes(&self) -> usize {
        self.held.capacity() * size_of::<F>()
    }

    pub(super) fn check(&self, window: usize, up: bool) {
        let last = self.acked + self.held.len() as u64;
        let (acked, written) = (self.acked, self.written);
        assert!(acked <= written && written <= last, "LINK-1: {acked} <= {written} <= {last}");
        assert!(!up || written == last, "LINK-1: an open connection was given all");
        let bytes: usize = self.held.iter().map(cost).sum();
        assert_eq!(bytes, self.held_bytes, "LINK-2");
        assert!(bytes <= window, "LINK-2: {bytes} bytes are held, the window has {window}");
        assert!(up || self.ack_at.is_none(), "LINK-5: an acknowledgement has a connection");
        assert_eq!(self.owed_bytes > 0, self.ack_at.is_some(), "LINK-5");
    }
}

/// Entries of the table of held frames that stay when it is empty.
const HELD_KEPT: usize = 16;

fn cost<F: Load>(frame: &F) -> usize {
    frame.bytes() + LINK_FRAME_OVERHEAD
}

fn frame_cost_max(window: usize) -> usize {
    window / 4 + LINK_FRAME_OVERHEAD
}
