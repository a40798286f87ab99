//! The writing end of a ring.

use super::{Corrupt, HEADER_BYTES, RingView, check_span, frame_bytes, state};
use crate::sync::Ordering;

/// Where a frame begins, in bytes since the ring was made; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub(super) u64);

impl core::fmt::Display for Position {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "at:{}", self.0)
    }
}

/// A frame that the consumer has not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    pub position: Position,
    pub tag: u64,
}

/// Why a frame was not written. Nothing was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// No room until the consumer has released some: keep the frame, and try again later.
    #[error("ring is full: {needed} bytes needed, {free} free")]
    Full { needed: usize, free: usize },
    /// Will never fit: send it another way.
    #[error("frame of {bytes} bytes is too large: at most {bytes_max} fit")]
    FrameTooLarge { bytes: usize, bytes_max: usize },
    /// The consumer left nonsense behind.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

impl WriteError {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            WriteError::Full { .. } => true,
            WriteError::FrameTooLarge { .. } | WriteError::Corrupt(_) => false,
        }
    }
}

/// The one producer of a ring.
#[derive(Debug)]
pub struct Producer {
    view: RingView,
    /// Our own head; the shared one follows it.
    head: u64,
    /// The last tail we saw: at most the real one.
    tail_seen: u64,
}

impl Producer {
    /// Takes over the writing end, at the place where its last owner left it. At most one live
    /// producer a ring: whoever holds the other end's lock decides that.
    pub(crate) fn attach(view: RingView) -> Result<Producer, Corrupt> {
        // Acquire: pairs with the Release in try_write(), for unread() of a past owner's frames.
        let head = view.head().load(Ordering::Acquire);
        let tail = view.tail().load(Ordering::Acquire);
        check_span(tail, head, view.capacity())?;
        Ok(Producer { view, head, tail_seen: tail })
    }

    /// Writes one frame made of `parts`, and publishes it.
    #[inline]
    pub fn try_write(&mut self, tag: u64, parts: &[&[u8]]) -> Result<Position, WriteError> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        if bytes > self.frame_bytes_max() {
            return Err(WriteError::FrameTooLarge { bytes, bytes_max: self.frame_bytes_max() });
        }
        let size = frame_bytes(bytes);
        let room = self.view.capacity() - self.offset(self.head);
        // Less than two frames of half the capacity: an empty ring always takes it.
        let skipped = if size > room { room } else { 0 };
        self.reserve(skipped + size)?;
        if skipped > 0 {
            // Relaxed, as all that follows: published by the Release below.
            self.view.state(self.offset(self.head)).store(state::WRAP, Ordering::Relaxed);
        }
        let start = self.head + skipped as u64;
        let offset = self.offset(start);
        self.view.state(offset).store(state::READY, Ordering::Relaxed);
        // SAFETY: reserve() found [head, head + skipped + size) outside [tail, head), so that it
        // is ours (RING-2).
        unsafe {
            self.view.write_header(offset, bytes as u32, tag);
            self.view.copy_in(offset + HEADER_BYTES, parts);
        }
        self.head = start + size as u64;
        // Release: pairs with the Acquire in Consumer::head() (RING-2).
        self.view.head().store(self.head, Ordering::Release);
        Ok(Position(start))
    }

    /// Takes a frame back. True: the consumer never saw it and never will. False: it is taken.
    pub fn revoke(&mut self, position: Position) -> bool {
        // The module doc's story: only below this line is the memory still the frame's.
        if self.taken_or_unknown(position) {
            return false;
        }
        let word = self.view.state(self.offset(position.0));
        // RING-3. AcqRel: nothing but the word itself changes hands; cheap where it matters.
        word.compare_exchange(state::READY, state::REVOKED, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Whether the consumer has taken this frame (and perhaps released it).
    pub fn taken(&mut self, position: Position) -> bool {
        if self.taken_or_unknown(position) {
            return true;
        }
        let word = self.view.state(self.offset(position.0));
        // Acquire: pairs with the consumer's compare-and-swap.
        word.load(Ordering::Acquire) == state::TAKEN
    }

    /// The frames that the consumer has not taken, oldest first, without those we revoked. If the
    /// consumer is dead, these are exactly the ones that were never begun; if it lives, use
    /// [`Producer::revoke`] on each to be sure.
    pub fn unread(&mut self) -> Result<Vec<Unread>, Corrupt> {
        self.refresh_tail()?;
        let mut unread = Vec::new();
        let mut at = self.tail_seen;
        while at < self.head {
            let offset = self.offset(at);
            let room = (self.view.capacity() - offset).min((self.head - at) as usize);
            let found = self.view.state(offset).load(Ordering::Acquire);
            let size = match found {
                state::WRAP => room,
                state::READY | state::TAKEN | state::REVOKED => {
                    // SAFETY: in [tail, head), written by this end and released by no one
                    // since: only we reuse memory, and we are here.
                    let (len, tag) = unsafe { self.view.read_header(offset) };
                    if found == state::READY {
                        unread.push(Unread { position: Position(at), tag });
                    }
                    frame_bytes(len as usize)
                }
                _ => return Err(Corrupt { position: at, what: "unknown frame state" }),
            };
            if size > room {
                return Err(Corrupt { position: at, what: "frame longer than what was written" });
            }
            at += size as u64;
        }
        Ok(unread)
    }

    /// Bytes that are free now, headers and the rest before the end included.
    pub fn free_bytes(&mut self) -> Result<usize, Corrupt> {
        self.refresh_tail()?;
        Ok(self.view.capacity() - (self.head - self.tail_seen) as usize)
    }

    /// The largest payload that a frame of this ring can have.
    pub fn frame_bytes_max(&self) -> usize {
        self.view.capacity() / 2 - HEADER_BYTES
    }

    fn offset(&self, position: u64) -> usize {
        position as usize & (self.view.capacity() - 1)
    }

    #[inline]
    fn reserve(&mut self, needed: usize) -> Result<(), WriteError> {
        let capacity = self.view.capacity();
        if self.head + needed as u64 - self.tail_seen > capacity as u64 {
            self.refresh_tail()?;
            let free = capacity - (self.head - self.tail_seen) as usize;
            if needed > free {
                return Err(WriteError::Full { needed, free });
            }
        }
        Ok(())
    }

    fn refresh_tail(&mut self) -> Result<(), Corrupt> {
        // Acquire: pairs with the Release in Consumer::advance(): its reads are over (RING-2).
        let tail = self.view.tail().load(Ordering::Acquire);
        check_span(tail, self.head, self.view.capacity())?;
        if tail < self.tail_seen {
            return Err(Corrupt { position: tail, what: "tail went back" });
        }
        self.tail_seen = tail;
        Ok(())
    }

    /// Whether the memory at `position` must not be looked at: released, never ours, or in a ring
    /// that is corrupt.
    fn taken_or_unknown(&mut self, position: Position) -> bool {
        let known = position.0 < self.head && position.0.is_multiple_of(HEADER_BYTES as u64);
        if !known || position.0 < self.tail_seen {
            return true;
        }
        match self.refresh_tail() {
            Ok(()) => position.0 < self.tail_seen,
            Err(_) => true,
        }
    }
}
