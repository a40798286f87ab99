//! The call frame: what a caller writes into a worker's ring, one per task or method call.
//!
//! ```text
//! 0   kind u8 | flags u8 | extra_len u16 | returns u32
//! 8   task id (owner u64, seq u64)
//! 24  attempt u32 | max_calls u32
//! 32  function id, 16 bytes (content hash; for a method, hash of its name)
//! 48  job u64 | refs u32 | args_len u32
//! 64  args      encoded by the Python codec; refs are named in it by their index
//!     extra     little-endian u32: GPU ids, then what flags say is there
//!     refs x    object id (20 bytes), value (see `object`)
//! ```
//! If flags say so, a **trailer** follows: every object that whoever reads the frame may reach. The carrier reads it, which takes the frame to
//! another node, and the worker, which keeps them when its caller dies.
//!
//! ```text
//!     named x   object id (20 bytes)
//!     u32       named
//! ```

use hoplo_base::{FunctionId, JobId, ObjectId, TaskId};

use crate::bytes::{Malformed, Reader, part};
use crate::object::{RefArgument, ValueView, ask_at};

pub const CALL_HEADER_BYTES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CallKind {
    Task = 1,
    Method = 2,
    /// An actor's constructor; travels through the daemon, not through a ring.
    Create = 3,
}

/// Where the flags lie in a frame.
pub const CALL_FLAGS_AT: usize = 1;
/// Results come as a stream of items.
pub const CALL_STREAMING: u8 = 1;
/// Any exception of the user's may be retried.
pub const CALL_RETRY_ANY: u8 = 2;
/// Exceptions of the types that were exported with the function may be retried.
pub const CALL_RETRY_LISTED: u8 = 4;
/// The stream's producer waits when `extra` items (last u32 of extra) are not consumed.
pub const CALL_BACKPRESSURE: u8 = 8;
/// The task has more than one whole CPU: `extra` says how many, behind its GPUs.
pub const CALL_CPUS: u8 = 16;
/// There is a trailer.
pub const CALL_NAMES: u8 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallHeader {
    pub kind: CallKind,
    pub flags: u8,
    /// How many values the call returns; 0 for a stream.
    pub returns: u32,
    pub task: TaskId,
    /// 0 for the first run.
    pub attempt: u32,
    /// The worker exits after so many calls of this function; 0 is never.
    pub max_calls: u32,
    pub function: FunctionId,
    pub job: JobId,
}

/// A call read in place.
#[derive(Clone, Copy, Debug)]
pub struct CallView<'a> {
    pub header: CallHeader,
    pub args: &'a [u8],
    extra: &'a [u8],
    refs_count: usize,
    refs: Reader<'a>,
}

impl CallHeader {
    /// The fixed part; the parts of a frame are header, args, extra, refs in this order.
    pub fn encode(&self, refs: u32, args_len: usize, extra_len: usize) -> [u8; CALL_HEADER_BYTES] {
        let mut out = [0; CALL_HEADER_BYTES];
        out[0] = self.kind as u8;
        out[CALL_FLAGS_AT] = self.flags;
        debug_assert!(u16::try_from(extra_len).is_ok(), "no machine has so many GPUs");
        out[2..4].copy_from_slice(&(extra_len as u16).to_le_bytes());
        out[4..8].copy_from_slice(&self.returns.to_le_bytes());
        out[8..24].copy_from_slice(&self.task.to_bytes());
        out[24..28].copy_from_slice(&self.attempt.to_le_bytes());
        out[28..32].copy_from_slice(&self.max_calls.to_le_bytes());
        out[32..48].copy_from_slice(&self.function.0);
        out[48..56].copy_from_slice(&self.job.0.to_le_bytes());
        out[56..60].copy_from_slice(&refs.to_le_bytes());
        out[60..64].copy_from_slice(&(args_len as u32).to_le_bytes());
        out
    }
}

/// Appends the refs part.
pub fn encode_refs(refs: &[RefArgument], out: &mut Vec<u8>) {
    for argument in refs {
        out.extend_from_slice(&argument.object.to_bytes());
        argument.value.encode(out);
    }
}

/// Appends the trailer of a frame.
pub fn encode_trailer(named: &[ObjectId], out: &mut Vec<u8>) {
    for object in named {
        out.extend_from_slice(&object.to_bytes());
    }
    out.extend_from_slice(&(named.len() as u32).to_le_bytes());
}

/// What the trailer of a frame names, each once.
pub fn named_in(frame: &[u8]) -> Result<Vec<ObjectId>, Malformed> {
    let malformed = Malformed { what: "trailer of a call frame" };
    let (header, rest) = frame.split_first_chunk::<CALL_HEADER_BYTES>().ok_or(malformed)?;
    if header[CALL_FLAGS_AT] & CALL_NAMES == 0 {
        return Ok(Vec::new());
    }
    let (rest, count) = rest.split_last_chunk::<4>().ok_or(malformed)?;
    let bytes = (u32::from_le_bytes(*count) as usize).saturating_mul(ObjectId::BYTES);
    let ids = rest.len().checked_sub(bytes).map(|at| &rest[at..]).ok_or(malformed)?;
    let ids = ids.chunks_exact(ObjectId::BYTES);
    let named = ids.map(|id| ObjectId::from_bytes(id.try_into().expect("chunks are that long")));
    let mut named: Vec<ObjectId> = named.collect();
    named.sort_unstable();
    named.dedup();
    Ok(named)
}

/// The frame is to leave its node without having been made for another one (an actor's constructor): a location means something
/// there only, so every stored value becomes `Location::ASK`.
pub fn leave_node(frame: &mut [u8]) -> Result<(), Malformed> {
    let view = CallView::parse(frame)?;
    let mut reader = view.refs;
    let mut stored = Vec::new();
    for _ in 0..view.refs_count {
        reader.object()?;
        let rest = reader.rest().len();
        if let ValueView::Stored(_) = ValueView::parse(&mut reader)? {
            stored.push(frame.len() - rest);
        }
    }
    ask_at(&stored, frame);
    Ok(())
}

/// The task of a call frame.
pub fn task_of(frame: &[u8]) -> Result<TaskId, Malformed> {
    let mut reader = Reader::new(frame, "call frame");
    Ok(TaskId::from_bytes(part(reader.array_ref::<CALL_HEADER_BYTES>()?, 8)))
}

impl<'a> CallView<'a> {
    pub fn parse(frame: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(frame, "call frame");
        // Whole: a check of the length for each field costs more than all the rest.
        let fixed = reader.array_ref::<CALL_HEADER_BYTES>()?;
        let header = CallHeader {
            kind: match fixed[0] {
                1 => CallKind::Task,
                2 => CallKind::Method,
                3 => CallKind::Create,
                _ => return Err(reader.malformed()),
            },
            flags: fixed[CALL_FLAGS_AT],
            returns: u32::from_le_bytes(part(fixed, 4)),
            task: TaskId::from_bytes(part(fixed, 8)),
            attempt: u32::from_le_bytes(part(fixed, 24)),
            max_calls: u32::from_le_bytes(part(fixed, 28)),
            function: FunctionId(part(fixed, 32)),
            job: JobId(u64::from_le_bytes(part(fixed, 48))),
        };
        let refs_count = u32::from_le_bytes(part(fixed, 56)) as usize;
        let args = reader.take(u32::from_le_bytes(part(fixed, 60)) as usize)?;
        let extra = reader.take(usize::from(u16::from_le_bytes(part(fixed, 2))))?;
        if refs_count.saturating_mul(ObjectId::BYTES) > reader.rest().len() {
            return Err(reader.malformed());
        }
        Ok(Self { header, args, extra, refs_count, refs: reader })
    }

    pub fn refs_count(&self) -> usize {
        self.refs_count
    }

    /// The top-level ref arguments in the order of their indices in `args`.
    pub fn refs(&self) -> Result<Vec<(ObjectId, ValueView<'a>)>, Malformed> {
        let mut reader = self.refs;
        (0..self.refs_count)
            .map(|_| Ok((reader.object()?, ValueView::parse(&mut reader)?)))
            .collect()
    }

    /// What the task was granted: GPUs, by id, and whole CPUs, of which each task counts as having one.
    pub fn granted(&self) -> (Vec<u32>, u32) {
        let mut numbers: Vec<u32> = self.extra().collect();
        if self.header.flags & CALL_BACKPRESSURE != 0 {
            numbers.pop();
        }
        let cpus = if self.header.flags & CALL_CPUS != 0 { numbers.pop() } else { None };
        (numbers, cpus.unwrap_or(1))
    }

    /// GPU ids, how many CPUs if they are several, and for a stream with back-pressure the limit as the last number.
    pub fn extra(&self) -> impl Iterator<Item = u32> + 'a {
        self.extra
            .chunks_exact(4)
            .map(|chunk| u32::from_le_bytes(chunk.try_into().expect("chunks are four bytes long")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Location, Value};
    use hoplo_base::{NodeNumber, ProcessId};

    fn frame() -> Vec<u8> {
        let header = CallHeader {
            kind: CallKind::Task,
            flags: CALL_STREAMING,
            returns: 3,
            task: TaskId { owner: ProcessId::new(NodeNumber::alone(1), 2, 3), seq: 4 },
            attempt: 1,
            max_calls: 9,
            function: FunctionId([7; 16]),
            job: JobId(5),
        };
        let refs = [
            RefArgument { object: header.task.object(0), value: Value::Inline((*b"abc").into()) },
            RefArgument {
                object: header.task.object(1),
                value: Value::Stored(Location { slot: 1, generation: 2, offset: 64, len: 5 }),
            },
        ];
        let mut out = header.encode(2, 4, 4).to_vec();
        out.extend_from_slice(b"args");
        out.extend_from_slice(&1u32.to_le_bytes());
        encode_refs(&refs, &mut out);
        out
    }

    #[test]
    fn what_a_task_was_granted_is_read_beside_the_limit_of_its_stream() {
        let header = CallView::parse(&frame()).unwrap().header;
        let granted = |flags, numbers: &[u32]| {
            let mut out = CallHeader { flags, ..header }.encode(0, 0, 4 * numbers.len()).to_vec();
            out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
            CallView::parse(&out).unwrap().granted()
        };
        assert_eq!(granted(0, &[]), (vec![], 1));
        assert_eq!(granted(0, &[5, 6]), (vec![5, 6], 1));
        assert_eq!(granted(CALL_CPUS, &[5, 6, 4]), (vec![5, 6], 4));
        assert_eq!(granted(CALL_BACKPRESSURE, &[5, 9]), (vec![5], 1));
        assert_eq!(granted(CALL_CPUS | CALL_BACKPRESSURE, &[4, 9]), (vec![], 4));
    }

    #[test]
    fn what_leaves_its_node_names_no_place_there() {
        let (mut there, here) = (frame(), frame());
        assert_eq!(leave_node(&mut there), Ok(()));
        let (there, here) = (CallView::parse(&there).unwrap(), CallView::parse(&here).unwrap());
        assert_eq!((there.header, there.args), (here.header, here.args));
        let (there, mut here) = (there.refs().unwrap(), here.refs().unwrap());
        here[1].1 = ValueView::Stored(Location::ASK);
        assert_eq!(there, here);
        for len in 0..frame().len() {
            assert!(leave_node(&mut frame()[..len]).is_err());
        }
    }

    #[test]
    fn a_call_survives_its_frame() {
        let frame = frame();
        let call = CallView::parse(&frame).unwrap();
        assert_eq!(call.header.returns, 3);
        assert_eq!(call.args, b"args");
        assert_eq!(call.extra().collect::<Vec<_>>(), [1]);
        let refs = call.refs().unwrap();
        assert_eq!(refs[0].1, ValueView::Inline(b"abc"));
        assert_eq!(refs[1].0.index, 1);
    }

    #[test]
    fn a_trailer_is_read_as_it_was_put_on_and_no_cut_of_it_panics() {
        let mut plain = frame();
        let task = task_of(&plain).unwrap();
        assert_eq!(named_in(&plain), Ok(vec![]), "it has none");
        plain[1] |= CALL_NAMES;
        for named in [vec![], vec![task.object(0), task.object(7)]] {
            let mut frame = plain.clone();
            encode_trailer(&[&named[..], &named].concat(), &mut frame);
            assert_eq!(named_in(&frame).unwrap(), named);
            for len in 0..frame.len() {
                let _ = named_in(&frame[..len]);
            }
        }
        let lie = [&plain[..], &u32::MAX.to_le_bytes()].concat();
        assert!(named_in(&lie).is_err());
    }

    #[test]
    fn cut_and_flipped_frames_are_errors_or_values_but_never_panics() {
        let good = frame();
        for len in 0..good.len() {
            let _ = CallView::parse(&good[..len]).map(|call| call.refs());
        }
        for at in 0..good.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut bad = good.clone();
                bad[at] = byte;
                let _ = CallView::parse(&bad).map(|call| call.refs());
            }
        }
        assert!(CallView::parse(&good[..63]).is_err());
    }
}
