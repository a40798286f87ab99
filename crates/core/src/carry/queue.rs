//! The two queues of a pair at one node: what leaves, and what came.

use std::collections::VecDeque;

use hoplo_base::limits::{CARRY_CREDIT_BYTES, CARRY_FRAME_OVERHEAD};

use super::item::{Frame, Item};

/// Out of the ring of a process of this node, and not yet on its way.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    queue: VecDeque<Parcel>,
    /// Of what left the ring and is not in the other one: with `CARRY_FRAME_OVERHEAD` each.
    on_way_bytes: usize,
}

#[derive(Debug)]
pub(super) enum Parcel {
    /// `waits`: for the decider, under this ticket.
    Frame { waits: Option<u64>, frame: Frame },
    /// What is said of the pair, and keeps its place among the frames.
    Word(Item),
}

/// Came from the other node, and is not in the ring of a process of this one.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    pub(super) queue: VecDeque<Arrival>,
    owed_bytes: usize,
    owed_frames: u64,
}

#[derive(Debug)]
pub(super) enum Arrival {
    /// `dropped`: it was taken back, and is not to be written.
    Frame {
        waits: Option<u64>,
        frame: Frame,
        dropped: bool,
    },
    Word(Item),
}

impl Outgoing {
    /// CARRY-4
    pub(super) fn takes(&self) -> bool {
        self.on_way_bytes < CARRY_CREDIT_BYTES
    }

    pub(super) fn push(&mut self, parcel: Parcel) {
        if let Parcel::Frame { frame, .. } = &parcel {
            self.on_way_bytes += cost(frame);
        }
        self.queue.push_back(parcel);
    }

    /// The decider lets it go; false if it is not here any more.
    pub(super) fn go(&mut self, ticket: u64, cover: u64) -> bool {
        for parcel in &mut self.queue {
            if let Parcel::Frame { waits, frame } = parcel
                && *waits == Some(ticket)
            {
                (*waits, frame.cover) = (None, cover);
                return true;
            }
        }
        false
    }

    /// The next one that may leave.
    pub(super) fn pop(&mut self) -> Option<Parcel> {
        match self.queue.front()? {
            Parcel::Frame { waits: Some(_), .. } => None,
            Parcel::Frame { waits: None, .. } | Parcel::Word(_) => self.queue.pop_front(),
        }
    }

    /// False: more than was on the way.
    pub(super) fn credit(&mut self, bytes: u64) -> bool {
        let left = usize::try_from(bytes).ok().and_then(|it| self.on_way_bytes.checked_sub(it));
        if let Some(left) = left {
            self.on_way_bytes = left;
        }
        left.is_some()
    }

    pub(super) fn tags(&self) -> impl Iterator<Item = u64> {
        self.queue.iter().filter_map(|parcel| match parcel {
            Parcel::Frame { frame, .. } => Some(frame.tag),
            Parcel::Word(_) => None,
        })
    }

    pub(super) fn tickets(&self) -> impl Iterator<Item = u64> {
        self.queue.iter().filter_map(|parcel| match parcel {
            Parcel::Frame { waits, .. } => *waits,
            Parcel::Word(_) => None,
        })
    }

    /// `is_stopped`: nothing leaves any more.
    pub(super) fn check(&self, is_stopped: bool) {
        let queued = self.queue.iter().map(|parcel| match parcel {
            Parcel::Frame { frame, .. } => cost(frame),
            Parcel::Word(_) => 0,
        });
        assert!(queued.sum::<usize>() <= self.on_way_bytes, "CARRY-4: what waits is on its way");
        let front = self.queue.front();
        let waits = matches!(front, None | Some(Parcel::Frame { waits: Some(_), .. }));
        assert!(waits || is_stopped, "CARRY-5: what waits for nobody has left");
    }
}

impl Incoming {
    pub(super) fn go(&mut self, ticket: u64) {
        for arrival in &mut self.queue {
            if let Arrival::Frame { waits, .. } = arrival
                && *waits == Some(ticket)
            {
                *waits = None;
                return;
            }
        }
    }

    /// Takes a call back that is not in its ring yet.
    pub(super) fn revoke(&mut self, seq: u64) -> bool {
        for arrival in &mut self.queue {
            if let Arrival::Frame { frame, dropped, .. } = arrival
                && frame.tag == seq
                && !*dropped
            {
                *dropped = true;
                return true;
            }
        }
        false
    }

    /// It is in its ring, or nobody needs it.
    pub(super) fn owe(&mut self, frame: &Frame) {
        self.owed_bytes += cost(frame);
        self.owed_frames += 1;
    }

    /// Once it is worth an item: bytes and frames.
    pub(super) fn credit(&mut self) -> Option<(u64, u64)> {
        if self.owed_bytes < CARRY_CREDIT_BYTES / 4 {
            return None;
        }
        let owed = (self.owed_bytes as u64, self.owed_frames);
        (self.owed_bytes, self.owed_frames) = (0, 0);
        Some(owed)
    }

    pub(super) fn tags(&self) -> impl Iterator<Item = u64> {
        self.queue.iter().filter_map(|arrival| match arrival {
            Arrival::Frame { frame, dropped: false, .. } => Some(frame.tag),
            Arrival::Frame { .. } | Arrival::Word(_) => None,
        })
    }

    pub(super) fn tickets(&self) -> impl Iterator<Item = u64> {
        self.queue.iter().filter_map(|arrival| match arrival {
            Arrival::Frame { waits, .. } => *waits,
            Arrival::Word(_) => None,
        })
    }
}

fn cost(frame: &Frame) -> usize {
    frame.bytes.len() + CARRY_FRAME_OVERHEAD
}
