//! What goes over the talk socket of two nodes, one after the other: frames of pairs, what is said of pairs, and messages of deciders.
//!
//! ```text
//!   kind u8 | caller u64 | worker u64 | what follows by kind, little-endian, as it stands in `Item`
//! ```

use std::ops::Deref;
use std::sync::Arc;

use hoplo_base::{ObjectId, ProcessId};
use hoplo_wire::Malformed;
use hoplo_wire::bytes::Reader;
use hoplo_wire::node::{decode, encode_body};
use hoplo_wire::obituary::Obituary;

/// A process and a worker of another node that it calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    pub caller: ProcessId,
    pub worker: ProcessId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// Near to far.
    Call(Frame),
    /// Far to near. Without bytes: the call that named refs ended without a reply, since it was taken back.
    Reply(Frame),
    /// A frame that was covered, and that has nowhere to go any more.
    Stray { is_reply: bool, frame: Frame },
    /// So much of what came is in its ring, or nobody needs it. `of_calls`: far to near, else near to far.
    Credit { pair: Pair, of_calls: bool, bytes: u64, frames: u64 },
    /// Near to far.
    Revoke { pair: Pair, seqs: Vec<u64> },
    /// Far to near.
    Revoked { pair: Pair, seqs: Vec<u64>, kept: Vec<u64> },
    /// Far to near: the worker is dead. `received`: calls that arrived while it lived; of those, `unstarted` were never taken.
    Gone { pair: Pair, received: u64, unstarted: Vec<u64>, obituary: Obituary },
    /// Near to far: nothing more comes of the pair.
    Closed { pair: Pair },
    /// A piece of a message of a decider. `more`: the next piece follows, as the next such item.
    Peer { cover: u64, more: bool, bytes: Bytes },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub pair: Pair,
    pub tag: u64,
    /// Nothing more comes of this call.
    pub is_last: bool,
    pub cover: u64,
    pub named: Vec<ObjectId>,
    pub bytes: Bytes,
}

/// Bytes of a frame: its own, or a part of what came together.
#[derive(Clone, Debug)]
pub enum Bytes {
    Own(Vec<u8>),
    Part { whole: Arc<Vec<u8>>, start: u32, len: u32 },
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Own(bytes) => bytes,
            Bytes::Part { whole, start, len } => &whole[*start as usize..][..*len as usize],
        }
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::Own(bytes)
    }
}

const CALL: u8 = 0;
const REPLY: u8 = 1;
const STRAY_CALL: u8 = 2;
const STRAY_REPLY: u8 = 3;
const CREDIT_OF_CALLS: u8 = 4;
const CREDIT_OF_REPLIES: u8 = 5;
const REVOKE: u8 = 6;
const REVOKED: u8 = 7;
const GONE: u8 = 8;
const CLOSED: u8 = 9;
const PEER: u8 = 10;
const PEER_MORE: u8 = 11;

const LAST: u8 = 1;
/// A cover and names follow.
const NAMES: u8 = 2;

impl Item {
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Item::Call(frame) => frame.encode(CALL, out),
            Item::Reply(frame) => frame.encode(REPLY, out),
            Item::Stray { is_reply: false, frame } => frame.encode(STRAY_CALL, out),
            Item::Stray { is_reply: true, frame } => frame.encode(STRAY_REPLY, out),
            Item::Credit { pair, of_calls, bytes, frames } => {
                pair.encode(if *of_calls { CREDIT_OF_CALLS } else { CREDIT_OF_REPLIES }, out);
                out.extend_from_slice(&bytes.to_le_bytes());
                out.extend_from_slice(&frames.to_le_bytes());
            }
            Item::Revoke { pair, seqs } => {
                pair.encode(REVOKE, out);
                put_all(seqs, out);
            }
            Item::Revoked { pair, seqs, kept } => {
                pair.encode(REVOKED, out);
                put_all(seqs, out);
                put_all(kept, out);
            }
            Item::Gone { pair, received, unstarted, obituary } => {
                pair.encode(GONE, out);
                out.extend_from_slice(&received.to_le_bytes());
                put_all(unstarted, out);
                let mut body = Vec::new();
                encode_body(obituary, &mut body);
                put_sized(&body, out);
            }
            Item::Closed { pair } => pair.encode(CLOSED, out),
            Item::Peer { cover, more, bytes } => {
                out.push(if *more { PEER_MORE } else { PEER });
                out.extend_from_slice(&cover.to_le_bytes());
                put_sized(bytes, out);
            }
        }
    }

    /// All items that lie in what came together.
    pub fn parse_all(whole: &Arc<Vec<u8>>, items: &mut Vec<Item>) -> Result<(), Malformed> {
        let mut reader = Reader::new(whole, "item of a link");
        while !reader.is_empty() {
            items.push(Item::parse(whole, &mut reader)?);
        }
        Ok(())
    }

    fn parse(whole: &Arc<Vec<u8>>, reader: &mut Reader<'_>) -> Result<Item, Malformed> {
        let kind = reader.u8()?;
        if matches!(kind, PEER | PEER_MORE) {
            let cover = reader.u64()?;
            let bytes = sized(whole, reader)?;
            return Ok(Item::Peer { cover, more: kind == PEER_MORE, bytes });
        }
        let pair = Pair { caller: ProcessId(reader.u64()?), worker: ProcessId(reader.u64()?) };
        Ok(match kind {
            CALL => Item::Call(Frame::parse(pair, whole, reader)?),
            REPLY => Item::Reply(Frame::parse(pair, whole, reader)?),
            STRAY_CALL | STRAY_REPLY => Item::Stray {
                is_reply: kind == STRAY_REPLY,
                frame: Frame::parse(pair, whole, reader)?,
            },
            CREDIT_OF_CALLS | CREDIT_OF_REPLIES => Item::Credit {
                pair,
                of_calls: kind == CREDIT_OF_CALLS,
                bytes: reader.u64()?,
                frames: reader.u64()?,
            },
            REVOKE => Item::Revoke { pair, seqs: all(reader)? },
            REVOKED => Item::Revoked { pair, seqs: all(reader)?, kept: all(reader)? },
            GONE => {
                let (received, unstarted) = (reader.u64()?, all(reader)?);
                let malformed = reader.malformed();
                let obituary = decode(reader.sized()?).map_err(|_| malformed)?;
                Item::Gone { pair, received, unstarted, obituary }
            }
            CLOSED => Item::Closed { pair },
            _ => return Err(reader.malformed()),
        })
    }
}

impl Pair {
    fn encode(self, kind: u8, out: &mut Vec<u8>) {
        out.push(kind);
        out.extend_from_slice(&self.caller.0.to_le_bytes());
        out.extend_from_slice(&self.worker.0.to_le_bytes());
    }
}

impl Frame {
    /// It goes through the deciders (CARRY-5).
    pub fn names(&self) -> bool {
        self.cover > 0 || !self.named.is_empty()
    }

    fn encode(&self, kind: u8, out: &mut Vec<u8>) {
        self.pair.encode(kind, out);
        let names = self.names();
        out.push(if self.is_last { LAST } else { 0 } | if names { NAMES } else { 0 });
        out.extend_from_slice(&self.tag.to_le_bytes());
        if names {
            out.extend_from_slice(&self.cover.to_le_bytes());
            out.extend_from_slice(&(self.named.len() as u32).to_le_bytes());
            self.named.iter().for_each(|object| out.extend_from_slice(&object.to_bytes()));
        }
        put_sized(&self.bytes, out);
    }

    fn parse(pair: Pair, whole: &Arc<Vec<u8>>, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (flags, tag) = (reader.u8()?, reader.u64()?);
        let (mut cover, mut named) = (0, Vec::new());
        if flags & NAMES != 0 {
            cover = reader.u64()?;
            let count = reader.count(ObjectId::BYTES)?;
            named.reserve_exact(count);
            for _ in 0..count {
                named.push(reader.object()?);
            }
        }
        let is_last = flags & LAST != 0;
        let bytes = sized(whole, reader)?;
        Ok(Self { pair, tag, is_last, cover, named, bytes })
    }
}

fn put_sized(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_all(numbers: &[u64], out: &mut Vec<u8>) {
    out.extend_from_slice(&(numbers.len() as u32).to_le_bytes());
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
}

fn all(reader: &mut Reader<'_>) -> Result<Vec<u64>, Malformed> {
    let count = reader.count(8)?;
    (0..count).map(|_| reader.u64()).collect()
}

fn sized(whole: &Arc<Vec<u8>>, reader: &mut Reader<'_>) -> Result<Bytes, Malformed> {
    let len = reader.sized()?.len();
    let start = whole.len() - reader.rest().len() - len;
    Ok(Bytes::Part { whole: Arc::clone(whole), start: start as u32, len: len as u32 })
}
