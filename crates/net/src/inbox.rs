//! What comes over one connection: whole frames, in their order; and long ones whose bytes go on as they come.
//!
//! ```text
//!   bytes --> the beginning of a frame --is it a long one's?--no--> kept until it is whole
//!                                              '------------yes---> its head is kept, the rest goes to a `Landing`
//! ```
//! A frame that landed is taken in its turn as any other: as its head, with the number of its bytes behind that.
//!
//! # Invariants
//! - INBOX-1: frames are taken in the order in which they came, those that landed among the others.
//! - INBOX-2: of a frame that lands no more than its head is kept.
//! - INBOX-3: a frame that is longer than the limit does not land: it is an error when it is its turn (FRAME-1).

use hoplo_wire::frames::{Incoming, TooLong};

use crate::link_id::LinkId;
use crate::protocol::{Malformed, Protocol};

/// Where the bytes of long frames go as they come.
pub trait Landing {
    /// `bytes` lie in a frame of this connection, `at` bytes behind its head. If the connection breaks, the frame is never told.
    fn land(&mut self, link: LinkId, head: &[u8], at: usize, bytes: &[u8]);
}

/// Where no frame lands.
pub(crate) struct Nowhere;

impl Landing for Nowhere {
    fn land(&mut self, _: LinkId, _: &[u8], _: usize, _: &[u8]) {
        unreachable!("a protocol whose frames land says where")
    }
}

#[derive(Debug)]
pub(crate) struct Inbox {
    frame_bytes_max: usize,
    kept: Incoming,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Too short to say what it is, or without all of its head.
    Beginning(Beginning),
    /// So much of it is to come.
    Kept { left: usize },
    /// `at`: so much of it came, behind its head.
    Lands { beginning: Beginning, at: usize, bytes: usize },
}

/// The length of a frame, and the first bytes of its body.
#[derive(Debug)]
struct Beginning {
    bytes: [u8; BEGINNING_BYTES_MAX],
    len: usize,
}

/// A head is so long at most, with its length.
const BEGINNING_BYTES_MAX: usize = 48;
/// Of a length.
const LENGTH: usize = 4;
/// Bytes of a body that say what it is.
const KIND: usize = 2;

impl Inbox {
    pub(crate) fn new(frame_bytes_max: usize) -> Self {
        let stage = Stage::Beginning(Beginning::NONE);
        Self { frame_bytes_max, kept: Incoming::new(frame_bytes_max), stage }
    }

    /// From now on frames may be so long.
    pub(crate) fn allow(&mut self, frame_bytes_max: usize) {
        self.frame_bytes_max = frame_bytes_max;
        self.kept.allow(frame_bytes_max);
    }

    pub(crate) fn add<P: Protocol>(
        &mut self,
        link: LinkId,
        mut bytes: &[u8],
        landing: &mut dyn Landing,
    ) {
        if !P::LANDS {
            return self.kept.add(bytes);
        }
        while !bytes.is_empty() {
            match &mut self.stage {
                Stage::Beginning(beginning) => {
                    let wanted = wanted::<P>(beginning.get(), self.frame_bytes_max);
                    bytes = beginning.add(bytes, wanted);
                    self.go_on::<P>();
                }
                Stage::Kept { left } => {
                    let (more, rest) = bytes.split_at(bytes.len().min(*left));
                    self.kept.add(more);
                    *left -= more.len();
                    bytes = rest;
                    if *left == 0 {
                        self.stage = Stage::Beginning(Beginning::NONE);
                    }
                }
                Stage::Lands { beginning, at, bytes: all } => {
                    let (more, rest) = bytes.split_at(bytes.len().min(*all - *at));
                    landing.land(link, beginning.body(), *at, more);
                    *at += more.len();
                    bytes = rest;
                    self.end_landing();
                }
            }
        }
    }

    /// What the beginning says, if it is long enough.
    fn go_on<P: Protocol>(&mut self) {
        let Stage::Beginning(beginning) = &mut self.stage else { return };
        if beginning.len < wanted::<P>(beginning.get(), self.frame_bytes_max) {
            return;
        }
        let beginning = std::mem::replace(beginning, Beginning::NONE);
        let (length, body) = (beginning.length(), beginning.body());
        self.stage = match head::<P>(length, body, self.frame_bytes_max) {
            Some(head) => Stage::Lands { beginning, at: 0, bytes: length - head },
            None => {
                self.kept.add(beginning.get());
                match length - body.len() {
                    0 => Stage::Beginning(Beginning::NONE),
                    left => Stage::Kept { left },
                }
            }
        };
        self.end_landing();
    }

    /// INBOX-1: if it is whole, it waits for its turn.
    fn end_landing(&mut self) {
        let Stage::Lands { beginning, at, bytes } = &self.stage else { return };
        if at < bytes {
            return;
        }
        let head = beginning.body();
        let length = u32::try_from(head.len() + size_of::<u64>()).expect("a head is short");
        self.kept.add(&length.to_le_bytes());
        self.kept.add(head);
        self.kept.add(&(*bytes as u64).to_le_bytes());
        self.stage = Stage::Beginning(Beginning::NONE);
    }

    /// The next whole frame.
    pub(crate) fn take<P: Protocol>(&mut self) -> Result<Option<P::Frame>, FrameError> {
        let Some(body) = self.kept.take()? else { return Ok(None) };
        let landed = P::LANDS && P::head_bytes(body).is_some();
        Ok(Some(if landed { landed_frame::<P>(body)? } else { P::decode(body)? }))
    }

    /// Bytes of messages that did not come whole yet.
    pub(crate) fn len(&self) -> usize {
        let beginning = match &self.stage {
            Stage::Beginning(beginning) | Stage::Lands { beginning, .. } => beginning.len,
            Stage::Kept { .. } => 0,
        };
        self.kept.len() + beginning
    }
}

impl Beginning {
    const NONE: Self = Self { bytes: [0; BEGINNING_BYTES_MAX], len: 0 };

    fn get(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Once it has one.
    fn length(&self) -> usize {
        let length = self.bytes.first_chunk().expect("it has room for one");
        u32::from_le_bytes(*length) as usize
    }

    fn body(&self) -> &[u8] {
        &self.bytes[LENGTH..self.len]
    }

    /// Takes these bytes until it is so long, and gives the rest.
    fn add<'a>(&mut self, bytes: &'a [u8], until: usize) -> &'a [u8] {
        let (more, rest) = bytes.split_at(bytes.len().min(until - self.len));
        self.bytes[self.len..self.len + more.len()].copy_from_slice(more);
        self.len += more.len();
        rest
    }
}

/// How long a beginning must be before anything can be done with it.
fn wanted<P: Protocol>(beginning: &[u8], frame_bytes_max: usize) -> usize {
    let Some((length, body)) = beginning.split_first_chunk::<LENGTH>() else { return LENGTH };
    let length = u32::from_le_bytes(*length) as usize;
    if body.len() < KIND.min(length) {
        return LENGTH + KIND.min(length);
    }
    LENGTH + head::<P>(length, body, frame_bytes_max).unwrap_or(body.len())
}

/// How many bytes the head of a body has that lands.
fn head<P: Protocol>(length: usize, body: &[u8], frame_bytes_max: usize) -> Option<usize> {
    P::head_bytes(body).filter(|head| *head <= length && length <= frame_bytes_max)
}

fn landed_frame<P: Protocol>(body: &[u8]) -> Result<P::Frame, Malformed> {
    let cut = || Malformed { bytes: body.len(), why: "its head is cut".to_string() };
    let head = P::head_bytes(body).unwrap_or(0);
    let (head, bytes) = body.split_at_checked(head).ok_or_else(cut)?;
    let bytes = bytes.try_into().map_err(|_| cut())?;
    P::landed(head, u64::from_le_bytes(bytes))
}

/// The peer does not keep to the framing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error(transparent)]
    TooLong(#[from] TooLong),
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

#[cfg(test)]
mod tests;
