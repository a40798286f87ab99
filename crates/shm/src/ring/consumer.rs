//! The reading end of a ring.

use super::{Corrupt, HEADER_BYTES, RingView, check_span, frame_bytes, state};
use crate::sync::Ordering;

/// The one consumer of a ring.
#[derive(Debug)]
pub struct Consumer {
    view: RingView,
    /// Our own tail; the shared one follows it.
    tail: u64,
    /// The last head we saw: at most the real one.
    head_seen: u64,
}

/// A frame that is taken: nobody else will get it. Its room is given back when it is dropped.
#[derive(Debug)]
pub struct Frame<'a> {
    consumer: &'a mut Consumer,
    tag: u64,
    len: usize,
}

impl Consumer {
    /// Takes over the reading end, at the place where its last owner left it. At most one live
    /// consumer a ring.
    pub(crate) fn attach(view: RingView) -> Result<Consumer, Corrupt> {
        let tail = view.tail().load(Ordering::Acquire);
        let mut consumer = Consumer { view, tail, head_seen: tail };
        consumer.refresh_head()?;
        Ok(consumer)
    }

    /// Takes the oldest frame that is not revoked; `None` if there is none. Not an iterator: the
    /// frame borrows the consumer until it is released.
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Frame<'_>>, Corrupt> {
        loop {
            if self.tail == self.head_seen {
                self.refresh_head()?;
                if self.tail == self.head_seen {
                    return Ok(None);
                }
            }
            let offset = self.offset();
            let room = (self.view.capacity() - offset).min((self.head_seen - self.tail) as usize);
            let taken = self.view.state(offset).compare_exchange(
                state::READY,
                state::TAKEN,
                // RING-3. Acquire and Release: a revoker sees all we did before, should it lose.
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match taken {
                // TAKEN: by a predecessor who died, or whose guard was forgotten.
                Ok(_) | Err(state::TAKEN | state::REVOKED) => {}
                Err(state::WRAP) if offset + room == self.view.capacity() => {
                    self.advance(room);
                    continue;
                }
                Err(state::WRAP) => return Err(self.corrupt("wrap marker past the head")),
                Err(_) => return Err(self.corrupt("unknown frame state")),
            }
            // SAFETY: in [tail, head) (RING-2).
            let (len, tag) = unsafe { self.view.read_header(offset) };
            let size = frame_bytes(len as usize);
            if size > room {
                return Err(self.corrupt("frame longer than what was written"));
            }
            if taken.is_ok() {
                return Ok(Some(Frame { consumer: self, tag, len: len as usize }));
            }
            self.advance(size);
        }
    }

    /// Whether nothing lies in the ring, not even a revoked frame. May be asked at any time, and
    /// sees all that was published before a bell that the caller heard.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pending_bytes() == 0
    }

    /// Bytes published and not released; nonsense by a peer counts as a full ring.
    #[inline]
    pub fn pending_bytes(&self) -> usize {
        let head = self.view.head().load(Ordering::Acquire);
        head.wrapping_sub(self.tail).min(self.view.capacity() as u64) as usize
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn view(&self) -> &RingView {
        &self.view
    }

    fn offset(&self) -> usize {
        self.tail as usize & (self.view.capacity() - 1)
    }

    fn refresh_head(&mut self) -> Result<(), Corrupt> {
        // Acquire: pairs with the Release in Producer::try_write() (RING-2).
        let head = self.view.head().load(Ordering::Acquire);
        check_span(self.tail, head, self.view.capacity())?;
        self.head_seen = head;
        Ok(())
    }

    #[inline]
    fn advance(&mut self, bytes: usize) {
        self.tail += bytes as u64;
        debug_assert!(self.tail <= self.head_seen, "RING-1");
        // Release: pairs with the Acquire in Producer::refresh_tail() (RING-2).
        self.view.tail().store(self.tail, Ordering::Release);
    }

    fn corrupt(&self, what: &'static str) -> Corrupt {
        Corrupt { position: self.tail, what }
    }
}

impl Frame<'_> {
    /// What the producer tagged it with.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// The payload, where it lies; 16-byte aligned.
    pub fn bytes(&self) -> &[u8] {
        let offset = self.consumer.offset() + HEADER_BYTES;
        // SAFETY: next() checked that the frame lies in [tail, head), and it stays there until we
        // are dropped (RING-2).
        unsafe { self.consumer.view.bytes(offset, self.len) }
    }

    /// Gives the room back; the same as dropping it.
    pub fn release(self) {}
}

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        self.consumer.advance(frame_bytes(self.len));
    }
}
