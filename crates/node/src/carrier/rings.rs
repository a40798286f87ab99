//! The rings of far channels at this node: of callers here, and of workers here whose callers are elsewhere.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use hoplo_base::ProcessId;
use hoplo_core::carry::{Carry, Effect, Pair};
use hoplo_shm::{
    CallerEnd, Doorbell, Position, ProcessSlot, Segment, Urgency, WorkerEnd, WriteError,
};
use hoplo_wire::reply::ReplyKind;

pub(super) struct Rings {
    segment: Arc<Segment>,
    channels: BTreeMap<Pair, Channel>,
    /// Those whose ring was full when something was to be written.
    full: BTreeSet<Pair>,
    /// Those in whose ring something was written since they were rung.
    unrung: BTreeSet<Pair>,
}

struct Channel {
    end: End,
    /// The process at the other end left nonsense: nothing is taken from it, and what is for it goes nowhere.
    broken: bool,
}

enum End {
    /// The caller is here.
    Near(WorkerEnd),
    /// The worker is here. Calls that were written and not answered, in their order.
    Far(CallerEnd, VecDeque<(u64, Position)>),
}

/// A process does not keep to the protocol.
pub(super) struct Broken {
    pub(super) process: ProcessId,
    pub(super) what: String,
}

impl Rings {
    pub(super) fn new(segment: Arc<Segment>) -> Self {
        let (full, unrung) = (BTreeSet::new(), BTreeSet::new());
        Self { segment, channels: BTreeMap::new(), full, unrung }
    }

    pub(super) fn segment(&self) -> Arc<Segment> {
        Arc::clone(&self.segment)
    }

    pub(super) fn add_caller(&mut self, pair: Pair, end: WorkerEnd) {
        self.channels.insert(pair, Channel { end: End::Near(end), broken: false });
    }

    pub(super) fn add_worker(&mut self, pair: Pair, end: CallerEnd) {
        let end = End::Far(end, VecDeque::new());
        self.channels.insert(pair, Channel { end, broken: false });
    }

    pub(super) fn remove(&mut self, pair: Pair) {
        self.channels.remove(&pair);
        self.full.remove(&pair);
        self.unrung.remove(&pair);
    }

    pub(super) fn pairs(&self) -> Vec<Pair> {
        self.channels.keys().copied().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// Whether a frame lies there that may be taken.
    pub(super) fn has_some(&self, takes: impl Fn(Pair) -> bool) -> bool {
        self.channels.iter().any(|(pair, channel)| channel.has_some() && takes(*pair))
    }

    pub(super) fn has_full(&self) -> bool {
        !self.full.is_empty()
    }

    pub(super) fn take_full(&mut self) -> BTreeSet<Pair> {
        std::mem::take(&mut self.full)
    }

    /// Takes what lies in the ring of this node's process, as far as credit goes, or (`all`) all of it; how many.
    pub(super) fn take(
        &mut self,
        pair: Pair,
        carry: &mut Carry,
        all: bool,
        effects: &mut Vec<Effect>,
    ) -> Result<usize, Broken> {
        let Some(channel) = self.channels.get_mut(&pair).filter(|it| !it.broken) else {
            return Ok(0);
        };
        let mut taken = 0;
        while all || carry.takes(pair) {
            let result = channel.end.take_one(pair, carry, effects);
            match result {
                Ok(true) => taken += 1,
                Ok(false) => break,
                Err(what) => {
                    channel.broken = true;
                    return Err(Broken { process: here(pair, &channel.end), what });
                }
            }
        }
        Ok(taken)
    }

    /// Writes what came for this node's process.
    pub(super) fn write(
        &mut self,
        pair: Pair,
        carry: &mut Carry,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Broken> {
        let Some(channel) = self.channels.get_mut(&pair) else { return Ok(()) };
        let mut result = Ok(());
        while let Some((tag, bytes)) = carry.front(pair) {
            if !channel.broken {
                match channel.end.write(tag, bytes) {
                    Ok(()) => {
                        self.unrung.insert(pair);
                    }
                    Err(WriteError::Full { .. }) => {
                        self.full.insert(pair);
                        self.unrung.insert(pair);
                        break;
                    }
                    Err(error @ (WriteError::Corrupt(_) | WriteError::FrameTooLarge { .. })) => {
                        channel.broken = true;
                        let what = format!("left a ring in which nothing can be written: {error}");
                        result = Err(Broken { process: here(pair, &channel.end), what });
                    }
                }
            }
            carry.written(pair, effects);
        }
        result
    }

    /// Calls that the worker did not take; the others are kept.
    pub(super) fn take_back(&mut self, pair: Pair, seqs: &[u64]) -> (Vec<u64>, Vec<u64>) {
        let (mut revoked, mut kept) = (Vec::new(), Vec::new());
        let channel = self.channels.get_mut(&pair);
        let Some(Channel { end: End::Far(end, written), .. }) = channel else {
            return (revoked, seqs.to_vec());
        };
        // From the back, so that nothing is started out of order meanwhile.
        for seq in seqs.iter().rev() {
            let at = written.iter().rposition(|(tag, _)| tag == seq);
            match at.filter(|at| end.calls.revoke(written[*at].1)) {
                Some(at) => {
                    written.remove(at);
                    revoked.push(*seq);
                }
                None => kept.push(*seq),
            }
        }
        revoked.reverse();
        kept.reverse();
        (revoked, kept)
    }

    /// The worker is dead: calls that it never took. Those in a ring that is corrupt count as begun.
    pub(super) fn unread(&mut self, pair: Pair) -> Vec<u64> {
        match self.channels.get_mut(&pair) {
            Some(Channel { end: End::Far(end, _), .. }) => {
                let unread = end.calls.unread().unwrap_or_default();
                unread.iter().map(|frame| frame.tag).collect()
            }
            Some(Channel { end: End::Near(_), .. }) | None => Vec::new(),
        }
    }

    /// Who has got something hears of it.
    pub(super) fn ring(&mut self) {
        for pair in std::mem::take(&mut self.unrung) {
            let Some(channel) = self.channels.get(&pair) else { continue };
            let urgency = if self.full.contains(&pair) { Urgency::Must } else { Urgency::Eager };
            self.bell(here(pair, &channel.end)).ring(urgency);
        }
    }

    fn bell(&self, process: ProcessId) -> &Doorbell {
        let slot = ProcessSlot::new(process.slot() as u32);
        self.segment.doorbell(slot.expect("processes are numbered below the limit"))
    }
}

fn here(pair: Pair, end: &End) -> ProcessId {
    match end {
        End::Near(_) => pair.caller,
        End::Far(_, _) => pair.worker,
    }
}

impl Channel {
    fn has_some(&self) -> bool {
        let empty = match &self.end {
            End::Near(end) => end.calls.is_empty(),
            End::Far(end, _) => end.replies.is_empty(),
        };
        !empty && !self.broken
    }
}

impl End {
    fn take_one(
        &mut self,
        pair: Pair,
        carry: &mut Carry,
        effects: &mut Vec<Effect>,
    ) -> Result<bool, String> {
        match self {
            End::Near(end) => match end.calls.next() {
                Ok(Some(frame)) => {
                    let took = carry.took_call(pair, frame.tag(), frame.bytes(), effects);
                    took.map_err(|error| format!("has made a call that is none: {error}"))?;
                    Ok(true)
                }
                Ok(None) => Ok(false),
                Err(error) => Err(format!("has left calls that cannot be read: {error}")),
            },
            End::Far(end, written) => match end.replies.next() {
                Ok(Some(frame)) => {
                    let (tag, bytes) = (frame.tag(), frame.bytes().to_vec());
                    drop(frame);
                    let kind = bytes.first().copied();
                    let is_last = kind == Some(ReplyKind::Finished as u8)
                        || kind == Some(ReplyKind::StreamEnd as u8);
                    if is_last {
                        replied(written, tag);
                    }
                    let took = carry.took_reply(pair, tag, bytes, effects);
                    took.map_err(|error| format!("has made a reply that is none: {error}"))?;
                    Ok(true)
                }
                Ok(None) => Ok(false),
                Err(error) => Err(format!("has left replies that cannot be read: {error}")),
            },
        }
    }

    fn write(&mut self, tag: u64, bytes: &[u8]) -> Result<(), WriteError> {
        match self {
            End::Near(end) => end.replies.try_write(tag, &[bytes]).map(|_| ()),
            End::Far(end, written) => {
                let position = end.calls.try_write(tag, &[bytes])?;
                written.push_back((tag, position));
                Ok(())
            }
        }
    }
}

fn replied(written: &mut VecDeque<(u64, Position)>, tag: u64) {
    match written.front() {
        Some((front, _)) if *front == tag => {
            written.pop_front();
        }
        Some(_) | None => written.retain(|(other, _)| *other != tag),
    }
}
