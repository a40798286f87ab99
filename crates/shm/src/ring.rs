//! Ring: frames of bytes from one producer to one consumer, in memory that both have mapped.
//!
//! ```text
//!   data (capacity bytes, a power of two; positions count bytes since the ring was made)
//!   | free | TAKEN | READY | REVOKED | READY | WRAP - - - |     then on from the start
//!            ^ tail (consumer's)                ^ head (producer's)
//!
//!   frame = header { state: u32, len: u32, tag: u64 } + len bytes, padded to 16
//!
//!   READY --consumer takes--> TAKEN --consumer releases--> free
//!     \---producer revokes--> REVOKED --consumer skips---> free
//! ```
//! A frame never wraps: if it does not fit before the end, a WRAP marker fills the rest. So the
//! consumer reads frames where they lie. `head` and `tail` lie on cache lines of their own, and
//! each side keeps the other's last known value, so that it touches the other's line only when
//! the ring looks full or empty.
//!
//! # Invariants
//! - RING-1: `tail <= head <= tail + capacity`; all three are multiples of 16.
//! - RING-2: bytes in `[tail, head)` are written by nobody but for the state words; bytes outside
//!   belong to the producer. Published by the Release store of `head`, given back by the Release
//!   store of `tail`.
//! - RING-3: a frame is taken XOR revoked: both are a compare-and-swap from READY.
//! - RING-4: what a peer wrote (head, tail, state, len) is checked before it is used; nonsense is
//!   [`Corrupt`], after which the ring is of no use any more.
//!
//! # Budget
//! 75 instructions to write a frame of 80 bytes, 91 to take and release it (`make test-instructions`); one line
//! fetched from the other core for each batch of frames, none for the counter while the ring has room.
//!
//! # Why `revoke` never hits memory that was used again
//! 1. The producer P wants to revoke the frame at position p, which it wrote earlier.
//! 2. The state word at p is overwritten only by P itself, in a `try_write` that needs the room,
//!    and which runs only after P has seen `tail > p`, and so remembers a tail beyond p.
//! 3. `revoke` compares p with that remembered tail first: p below it means taken (or skipped),
//!    and the memory is not looked at.
//! 4. Otherwise the word at p is still the frame's own, even if the consumer C releases it this
//!    very moment: C never writes state words of frames behind its tail, and P is busy here
//!    (`&mut self`). The compare-and-swap finds READY (and wins), or TAKEN (and loses).
//!
//! # When one side dies
//! The other one, or a third process with the same memfd, reads what is left: replies that lie in
//! `[tail, head)` are as good as ever; a frame whose head was not published yet does not exist; a
//! frame found TAKEN at the tail was begun by the dead and is skipped. The producer asks
//! [`Producer::unread`] which frames were never begun.

mod consumer;
mod producer;
mod view;

pub use consumer::{Consumer, Frame};
pub use producer::{Position, Producer, Unread, WriteError};
pub(crate) use view::RingView;

/// A pair of ends on one ring in model memory.
#[cfg(loom)]
pub fn model_ring(capacity: usize) -> (Producer, Consumer) {
    let view = RingView::model(capacity);
    let producer = Producer::attach(view.clone()).expect("an empty ring is sound");
    (producer, Consumer::attach(view).expect("an empty ring is sound"))
}

/// A peer (or a bug) left something in the ring that cannot be. Drop the peer; do not try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ring is corrupt at position {position}: {what}")]
pub struct Corrupt {
    /// Where, in bytes since the ring was made.
    pub position: u64,
    /// What cannot be.
    pub what: &'static str,
}

impl Corrupt {
    /// Never.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// States of a frame. Zero is none of them, so that fresh memory is never taken for a frame.
mod state {
    pub(super) const READY: u32 = 1;
    pub(super) const TAKEN: u32 = 2;
    pub(super) const REVOKED: u32 = 3;
    pub(super) const WRAP: u32 = 4;
}

/// Bytes before a frame's payload, and the alignment of frames.
pub(crate) const HEADER_BYTES: usize = 16;

/// Bytes that a frame with `len` bytes of payload takes up.
const fn frame_bytes(len: usize) -> usize {
    HEADER_BYTES + len.next_multiple_of(HEADER_BYTES)
}

/// RING-1 for a pair of positions of which one is a peer's word.
fn check_span(tail: u64, head: u64, capacity: usize) -> Result<(), Corrupt> {
    let aligned = (tail | head).is_multiple_of(HEADER_BYTES as u64);
    match head.checked_sub(tail) {
        Some(span) if span <= capacity as u64 && aligned => Ok(()),
        _ => Err(Corrupt { position: tail, what: "head and tail do not fit together" }),
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
