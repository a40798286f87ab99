//! The reply frame: what a worker writes back, one per finished call or per item of a stream.
//!
//! ```text
//! 0   kind u8 | flags u8 | zero u16 | attempt u32
//! 8   seq u64: the tag of the call's frame, by which its owner knows it
//! 16  started u64, ns of CLOCK_MONOTONIC | ran u32 | index u32 (of a stream's item)
//! 32  values u32
//! 36  values x (value, count u32 x contained object id)
//! ```

use hoplo_base::{NodeNumber, ObjectId, TaskId};

use crate::bytes::{Malformed, Reader, part};
use crate::object::{Location, Value, ValueView};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReplyKind {
    /// The call finished; one value per return (or one failure for all of them).
    Finished = 1,
    /// One item of a stream.
    Item = 2,
    /// The stream ended; `index` is the number of items, a value is present if it failed.
    StreamEnd = 3,
    /// Some of the values of a call that returns more than a frame holds: those from `index` on. The rest
    /// comes with `Finished`.
    Part = 4,
}

/// The failure is the user's exception and of a type that may be retried.
pub const REPLY_RETRYABLE: u8 = 1;
/// The worker takes no more calls and exits (`max_calls`, `exit_actor`).
pub const REPLY_RETIRING: u8 = 2;
/// The call did not begin, and brings no values: arguments of it were lost, and are made again. Its caller waits for them, and makes the
/// call again.
pub const REPLY_NOT_BEGUN: u8 = 4;
/// Its result or an argument found no room at the worker's node; other nodes may have some.
pub const REPLY_NO_ROOM: u8 = 8;
/// It ended because its caller told it to stop. (A failure that says so may be an argument's: then another call was stopped.)
pub const REPLY_STOPPED: u8 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    pub kind: ReplyKind,
    pub flags: u8,
    pub attempt: u32,
    pub seq: u64,
    /// When the user's code started, nanoseconds of CLOCK_MONOTONIC.
    pub started_ns: u64,
    /// How long it ran: nanoseconds, and from 2^31 on 2^31 plus milliseconds (`ran_of`, `ran`).
    pub ran_ns: u32,
    pub index: u32,
}

/// A returned value, and the refs that lie inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Returned {
    pub value: Value,
    pub contains: Vec<ObjectId>,
}

#[derive(Clone, Copy, Debug)]
pub struct ReplyView<'a> {
    pub header: ReplyHeader,
    values_count: usize,
    values: Reader<'a>,
}

pub const REPLY_HEADER_BYTES: usize = 36;

/// In `ReplyHeader::ran_ns`: the other bits count milliseconds.
const RAN_MILLISECONDS: u32 = 1 << 31;

impl ReplyHeader {
    /// So many nanoseconds, for `ran_ns`.
    pub fn ran_of(ns: u64) -> u32 {
        if ns < u64::from(RAN_MILLISECONDS) {
            return ns as u32;
        }
        RAN_MILLISECONDS | (ns / 1_000_000).min(u64::from(RAN_MILLISECONDS - 1)) as u32
    }

    /// How long it ran, in nanoseconds.
    pub fn ran(ran_ns: u32) -> u64 {
        match ran_ns & RAN_MILLISECONDS {
            0 => u64::from(ran_ns),
            _ => u64::from(ran_ns & !RAN_MILLISECONDS) * 1_000_000,
        }
    }

    pub fn encode(&self, values: usize) -> [u8; REPLY_HEADER_BYTES] {
        let mut out = [0; REPLY_HEADER_BYTES];
        out[0] = self.kind as u8;
        out[1] = self.flags;
        out[4..8].copy_from_slice(&self.attempt.to_le_bytes());
        out[8..16].copy_from_slice(&self.seq.to_le_bytes());
        out[16..24].copy_from_slice(&self.started_ns.to_le_bytes());
        out[24..28].copy_from_slice(&self.ran_ns.to_le_bytes());
        out[28..32].copy_from_slice(&self.index.to_le_bytes());
        out[32..36].copy_from_slice(&(values as u32).to_le_bytes());
        out
    }
}

pub fn encode_returned(returned: &[Returned], out: &mut Vec<u8>) {
    for one in returned {
        one.value.encode(out);
        // What a stored value contains is held by the daemon's record of it: who reads it finds the refs.
        let contains = match one.value {
            Value::Stored(_) => &[],
            Value::Inline(_) | Value::Failed(_) => one.contains.as_slice(),
        };
        out.extend_from_slice(&(contains.len() as u32).to_le_bytes());
        for object in contains {
            out.extend_from_slice(&object.to_bytes());
        }
    }
}

/// What `encode_returned` appends for one value, or a little more.
pub fn encoded_bytes(one: &Returned) -> usize {
    one.value.frame_bytes() + 4 + ObjectId::BYTES * one.contains.len()
}

impl<'a> ReplyView<'a> {
    pub fn parse(frame: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(frame, "reply frame");
        let fixed = reader.array_ref::<{ REPLY_HEADER_BYTES - 4 }>()?;
        let header = ReplyHeader {
            kind: match fixed[0] {
                1 => ReplyKind::Finished,
                2 => ReplyKind::Item,
                3 => ReplyKind::StreamEnd,
                4 => ReplyKind::Part,
                _ => return Err(reader.malformed()),
            },
            flags: fixed[1],
            attempt: u32::from_le_bytes(part(fixed, 4)),
            seq: u64::from_le_bytes(part(fixed, 8)),
            started_ns: u64::from_le_bytes(part(fixed, 16)),
            ran_ns: u32::from_le_bytes(part(fixed, 24)),
            index: u32::from_le_bytes(part(fixed, 28)),
        };
        let values_count = reader.count(5)?;
        Ok(Self { header, values_count, values: reader })
    }

    pub fn values_count(&self) -> usize {
        self.values_count
    }

    /// The values in order, each with the refs that lie inside it.
    pub fn values(
        &self,
    ) -> impl Iterator<Item = Result<(ValueView<'a>, Vec<ObjectId>), Malformed>> + 'a {
        let mut reader = self.values;
        (0..self.values_count).map(move |_| {
            let value = ValueView::parse(&mut reader)?;
            let count = reader.count(ObjectId::BYTES)?;
            let mut contains = Vec::with_capacity(count);
            for _ in 0..count {
                contains.push(reader.object()?);
            }
            Ok((value, contains))
        })
    }
}

/// The frame is to leave `node`: a location means something there only, so every stored value becomes [`Location::elsewhere`].
/// Tells what the frame names, once for each token that it brings (REF-4): values that are stored, which are results of `task`,
/// and refs inside values that are not.
pub fn leave_node(
    frame: &mut [u8],
    node: NodeNumber,
    task: TaskId,
    named: &mut Vec<ObjectId>,
) -> Result<ReplyHeader, Malformed> {
    let view = ReplyView::parse(frame)?;
    let (header, mut reader) = (view.header, view.values);
    let mut stored = Vec::new();
    for at in 0..view.values_count {
        let rest = reader.rest().len();
        let value = ValueView::parse(&mut reader)?;
        if let ValueView::Stored(location) = value {
            stored.push((frame.len() - rest, location.len));
            named.push(task.object(header.index.wrapping_add(at as u32)));
        }
        for _ in 0..reader.count(ObjectId::BYTES)? {
            let inner = reader.object()?;
            if !matches!(value, ValueView::Stored(_)) {
                named.push(inner);
            }
        }
    }
    let mut there = Vec::new();
    for (at, len) in stored {
        there.clear();
        Value::Stored(Location::elsewhere(node, len)).encode(&mut there);
        frame[at..at + there.len()].copy_from_slice(&there);
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Failure, FailureKind};
    use hoplo_base::ProcessId;

    #[test]
    fn a_reply_survives_its_frame_and_no_cut_of_it_panics() {
        let task = TaskId { owner: ProcessId::new(NodeNumber::alone(1), 2, 3), seq: 4 };
        let header = ReplyHeader {
            kind: ReplyKind::Finished,
            flags: REPLY_RETIRING,
            attempt: 2,
            seq: 4,
            started_ns: 5,
            ran_ns: 6,
            index: 7,
        };
        let returned = vec![
            Returned { value: Value::Inline((*b"xy").into()), contains: vec![task.object(9)] },
            Returned {
                value: Value::Failed(Failure::new(FailureKind::Cancelled, "it was cancelled")),
                contains: vec![],
            },
        ];
        let mut frame = header.encode(returned.len()).to_vec();
        encode_returned(&returned, &mut frame);
        let bytes: usize = returned.iter().map(encoded_bytes).sum();
        assert_eq!(frame.len(), REPLY_HEADER_BYTES + bytes);
        let reply = ReplyView::parse(&frame).unwrap();
        assert_eq!(reply.header, header);
        let values: Vec<_> = reply.values().map(|value| value.unwrap()).collect();
        assert_eq!(values.len(), 2);
        for (value, sent) in values.into_iter().zip(&returned) {
            assert_eq!(value.0.to_value(), sent.value);
            assert_eq!(value.1, sent.contains);
        }
        for len in 0..frame.len() {
            if let Ok(reply) = ReplyView::parse(&frame[..len]) {
                assert!(reply.values().any(|value| value.is_err()));
            }
        }
    }

    #[test]
    fn what_leaves_its_node_names_no_place_there() {
        const NODE: NodeNumber = NodeNumber::alone(7);
        let task = TaskId { owner: ProcessId::new(NodeNumber::alone(1), 2, 3), seq: 4 };
        let place = Location { slot: 1, generation: 2, offset: 64, len: 5 };
        let (inner, kind) = (task.object(77), ReplyKind::Finished);
        let header =
            ReplyHeader { kind, flags: 0, attempt: 0, seq: 4, started_ns: 0, ran_ns: 0, index: 2 };
        let returned = vec![
            Returned { value: Value::Inline((*b"xy").into()), contains: vec![inner, inner] },
            Returned { value: Value::Stored(place), contains: vec![inner] },
            Returned { value: Value::Inline((*b"z").into()), contains: vec![inner] },
        ];
        let mut frame = header.encode(returned.len()).to_vec();
        encode_returned(&returned, &mut frame);
        let (mut named, len) = (vec![], frame.len());
        let there = Value::Stored(Location::elsewhere(NODE, place.len));
        assert_eq!(leave_node(&mut frame, NODE, task, &mut named), Ok(header));
        let tokens = vec![inner, inner, task.object(3), inner];
        assert_eq!((named, frame.len()), (tokens, len), "one for each that the caller counts");
        let values = ReplyView::parse(&frame).unwrap().values();
        let values: Vec<Value> = values.map(|value| value.unwrap().0.to_value()).collect();
        assert_eq!(values, [returned[0].value.clone(), there, returned[2].value.clone()]);
        for len in 0..frame.len() {
            assert!(leave_node(&mut frame[..len].to_vec(), NODE, task, &mut vec![]).is_err());
        }
    }
}
