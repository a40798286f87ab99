//! Channels with other processes: our calls to them, and theirs to us.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use hoplo_base::limits;
use hoplo_core::session::{AskedBack, SessionMachine};
use hoplo_shm::{
    CallerEnd, Channel, ChannelError, Consumer, Kept, Position, Producer, Urgency, WriteError,
};
use hoplo_wire::reply::{REPLY_RETIRING, ReplyHeader, ReplyKind, Returned, encode_returned};

use crate::ringer::{Ringer, Whom};

/// The channel for our calls to one worker.
pub(crate) struct Outbound {
    pub(crate) end: CallerEnd,
    /// Calls in the ring or begun, in the order of writing.
    positions: VecDeque<(u64, Position)>,
    /// Calls that found the ring full, in order.
    pub(crate) overflow: VecDeque<u64>,
    pub(crate) whom: Whom,
    /// For a worker of another node.
    pub(crate) asked: AskedBack,
    /// Nonsense was found in a ring, and the daemon was told: its end will tell what becomes of the calls there.
    broken: bool,
}

/// How the writing of a call went.
pub(crate) enum Written {
    Whole,
    /// It failed meanwhile: there is nothing to write.
    Gone,
    /// There is no room yet.
    Full,
    /// It never fits.
    TooLarge(String),
    /// The worker left nonsense in the ring; said once, and then it is full for good.
    Corrupt(String),
}

/// The channel for one caller's calls to us.
pub(crate) struct Inbound {
    pub(crate) calls: Consumer,
    pub(crate) replies: Arc<Mutex<Replies>>,
    /// Locked from the telling to the writing of a reply that brings tokens.
    pub(crate) order: Arc<Mutex<()>>,
}

pub(crate) struct Replies {
    producer: Producer,
    whom: Whom,
    /// Calls that were taken and not replied to.
    pub(crate) unreplied: usize,
    /// When the caller was last woken though more was on its way.
    woken_at: Option<Instant>,
    /// Memory for encoded values.
    body: Vec<u8>,
    /// The caller is gone.
    pub(crate) closed: bool,
}

/// A caller that sleeps leniently is woken for a reply at most this often while more are to come.
const BATCH: Duration = Duration::from_micros(200);

impl Outbound {
    pub(crate) fn create(whom: Whom) -> Result<(Self, OwnedFd), ChannelError> {
        let (end, fd) = Channel::create(limits::RING_BYTES, limits::RING_BYTES)?;
        let (positions, overflow) = (VecDeque::new(), VecDeque::new());
        let outbound =
            Self { end, positions, overflow, whom, asked: AskedBack::default(), broken: false };
        Ok((outbound, fd))
    }

    #[inline]
    pub(crate) fn write(&mut self, session: &mut SessionMachine, seq: u64) -> Written {
        let Some(frame) = session.frame(seq) else { return Written::Gone };
        let parts = [&frame.header, frame.args, &frame.extra, frame.refs];
        match self.end.calls.try_write(seq, &parts) {
            Ok(position) => {
                self.positions.push_back((seq, position));
                Written::Whole
            }
            Err(WriteError::Full { .. }) => Written::Full,
            Err(error @ WriteError::FrameTooLarge { .. }) => Written::TooLarge(error.to_string()),
            Err(WriteError::Corrupt(_)) if self.broken => Written::Full,
            Err(WriteError::Corrupt(error)) => {
                self.broken = true;
                Written::Corrupt(format!("calls to it cannot be written: {error}"))
            }
        }
    }

    pub(crate) fn wake(&self, ringer: &Ringer) {
        ringer.ring(self.whom, Urgency::Eager);
    }

    /// A final reply came.
    pub(crate) fn replied(&mut self, seq: u64) {
        if self.whom.is_far {
            self.asked.replied(seq);
        }
        match self.positions.front() {
            Some((front, _)) if *front == seq => {
                self.positions.pop_front();
            }
            _ => self.positions.retain(|(other, _)| *other != seq),
        }
    }

    /// Takes a call back; true if the worker never took it.
    pub(crate) fn revoke(&mut self, seq: u64) -> bool {
        if let Some(at) = self.overflow.iter().position(|waiting| *waiting == seq) {
            self.overflow.remove(at);
            return true;
        }
        let Some(at) = self.positions.iter().rposition(|(other, _)| *other == seq) else {
            return false;
        };
        let revoked = self.end.calls.revoke(self.positions[at].1);
        if revoked {
            self.positions.remove(at);
        }
        revoked
    }

    /// The other node's answer came.
    pub(crate) fn was_answered(&mut self, revoked: &[u64], kept: &mut Vec<u64>) {
        self.asked.answered(revoked, kept);
        self.positions.retain(|(seq, _)| !revoked.contains(seq));
    }

    /// Whether a reply may come.
    pub(crate) fn is_active(&self) -> bool {
        !self.positions.is_empty() && !self.broken
    }

    /// A reply cannot be read: no more are looked for.
    #[cold]
    pub(crate) fn breaks(&mut self) {
        self.broken = true;
    }

    /// The worker is dead: the calls that it never took. Those in a ring that is corrupt count as begun.
    pub(crate) fn unstarted(&mut self) -> Vec<u64> {
        let unread = self.end.calls.unread().unwrap_or_default();
        unread.iter().map(|frame| frame.tag).chain(self.overflow.iter().copied()).collect()
    }
}

impl Inbound {
    pub(crate) fn open(whom: Whom, fd: &Kept) -> Result<Self, ChannelError> {
        let end = Channel::open_worker(fd)?;
        let replies = Replies {
            producer: end.replies,
            whom,
            unreplied: 0,
            woken_at: None,
            body: Vec::new(),
            closed: false,
        };
        let replies = Arc::new(Mutex::new(replies));
        Ok(Self { calls: end.calls, replies, order: Arc::default() })
    }
}

impl Replies {
    pub(crate) fn try_write(
        &mut self,
        header: ReplyHeader,
        values: &[Returned],
    ) -> Result<(), WriteError> {
        self.body.clear();
        encode_returned(values, &mut self.body);
        self.producer.try_write(header.seq, &[&header.encode(values.len()), &self.body])?;
        match header.kind {
            ReplyKind::Finished | ReplyKind::StreamEnd => self.unreplied -= 1,
            ReplyKind::Item | ReplyKind::Part => {}
        }
        if self.body.capacity() > limits::REPLY_BODY_BYTES_KEPT {
            self.body = Vec::new();
        }
        Ok(())
    }

    /// The ring is full: whatever the caller does, it must drain.
    pub(crate) fn insist(&self, ringer: &Ringer) {
        ringer.ring(self.whom, Urgency::Must);
    }

    /// Tells the caller about what was written. `idle`: it has no more calls for us.
    pub(crate) fn notify(&mut self, ringer: &Ringer, written: ReplyHeader, idle: bool) {
        let last = (self.unreplied == 0 && idle) || written.flags & REPLY_RETIRING != 0;
        let woken_at = &mut self.woken_at;
        ringer.ring_lenient(self.whom, || {
            let now = Instant::now();
            let due = last || woken_at.is_none_or(|at| now.duration_since(at) >= BATCH);
            if due {
                *woken_at = Some(now);
            }
            due
        });
    }
}
