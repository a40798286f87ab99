//! What a ref stands for once it is ready: bytes, a place in the object store, or a failure.

use std::sync::Arc;

use hoplo_base::limits::FAILURE_TEXT_BYTES_MAX;
use hoplo_base::{NodeNumber, ObjectId};
use serde::{Deserialize, Serialize};

use crate::bytes::{Malformed, Reader, put_sized};

/// Where a sealed object lies in the store of the node that says so, and the state word that guards it. It means nothing on
/// another node and is never sent to one: there an object is its id, and [`Location::elsewhere`] or [`Location::ASK`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Location {
    /// Index of the state word in the metadata segment.
    pub slot: u32,
    /// The state word's generation; another one there means that the object moved or went.
    pub generation: u32,
    /// Bytes from the start of the arena; a multiple of 64. From its end on they go on in the node's spill
    /// file, from that one's start.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl Location {
    /// In a call frame: the object is known to the daemon, which says where (or what) it is.
    pub const ASK: Location = Location { slot: u32::MAX, generation: 0, offset: 0, len: 0 };

    /// So many bytes in the store of that node. To read them, the daemon is to be asked, as with `ASK`.
    pub fn elsewhere(node: NodeNumber, len: u64) -> Location {
        Location { generation: node.number(), len, ..Location::ASK }
    }

    /// `None`: the daemon is to be asked.
    pub fn known(self) -> Option<Location> {
        (self.slot != Location::ASK.slot).then_some(self)
    }

    /// The node that it names, if it is one of [`elsewhere`](Location::elsewhere).
    pub fn other_node(self) -> Option<NodeNumber> {
        NodeNumber::of_number(self.generation).filter(|_| self.known().is_none())
    }

    /// What an argument of a call that lies in the store takes in the frame: its id, a tag, this.
    pub const ARGUMENT_BYTES: usize = ObjectId::BYTES + STORED_BYTES;
}

/// Stored values that lie at these places of a frame have no location any more.
pub(crate) fn ask_at(stored: &[usize], frame: &mut [u8]) {
    let mut ask = Vec::new();
    Value::Stored(Location::ASK).encode(&mut ask);
    for at in stored {
        frame[*at..][..ask.len()].copy_from_slice(&ask);
    }
}

/// Why there is no value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub kind: FailureKind,
    /// For `User`, the encoded exception; for every other kind, UTF-8 text for the user.
    #[serde(with = "crate::arc_bytes")]
    pub payload: Arc<[u8]>,
    /// The encoded exception behind a failure that is not `User` itself (a constructor's), or empty.
    #[serde(with = "crate::arc_bytes")]
    pub cause: Arc<[u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum FailureKind {
    /// The user's code raised.
    User = 1,
    /// `cancel` was called before it finished.
    Cancelled = 2,
    /// The worker died (signal, exit, crash) and retries are used up.
    WorkerCrashed = 3,
    /// The actor is dead for good.
    ActorDied = 4,
    /// The actor is restarting and the call may not be retried.
    ActorUnavailable = 5,
    /// Nothing holds it any more, or its last copy is unreadable, and nothing can make it again.
    ObjectLost = 6,
    /// The store is full and there is no disk to spill to.
    StoreFull = 7,
    /// The task went over its `memory=` or the node ran out.
    OutOfMemory = 8,
    /// The runtime environment could not be set up.
    RuntimeEnv = 9,
    /// Too many calls queued for this actor.
    PendingCallsLimit = 10,
    /// The node daemon is gone.
    NodeDied = 11,
    /// The store is full and the disk takes nothing more.
    OutOfDisk = 12,
    /// Its owner died before it was computed, and its call cannot run in another process.
    OwnerDied = 13,
    /// The call could not be handed to its worker: the process is out of memory or of descriptors.
    NotSent = 14,
    /// No worker could be started for it, whatever its runtime environment is.
    WorkerStart = 15,
    /// The placement group that the task was to run in is no more.
    TaskGroupRemoved = 16,
    /// The placement group that the actor was to live in is no more.
    ActorGroupRemoved = 17,
    /// The node that the task had to run on is no more.
    TaskUnschedulable = 18,
    /// The node that the actor had to live on is no more.
    ActorUnschedulable = 19,
    /// As `OutOfDisk`, and there are other nodes, which may have room.
    OutOfDiskHere = 20,
}

impl FailureKind {
    pub fn from_u8(byte: u8) -> Option<Self> {
        use FailureKind::*;
        [
            User,
            Cancelled,
            WorkerCrashed,
            ActorDied,
            ActorUnavailable,
            ObjectLost,
            StoreFull,
            OutOfMemory,
            RuntimeEnv,
            PendingCallsLimit,
            NodeDied,
            OutOfDisk,
            OwnerDied,
            NotSent,
            WorkerStart,
            TaskGroupRemoved,
            ActorGroupRemoved,
            TaskUnschedulable,
            ActorUnschedulable,
            OutOfDiskHere,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }

    /// The name of the exception class in `hoplo.exceptions`.
    pub fn exception(self) -> &'static str {
        match self {
            FailureKind::User => "TaskError",
            FailureKind::Cancelled => "TaskCancelledError",
            FailureKind::WorkerCrashed => "WorkerCrashedError",
            FailureKind::ActorDied => "ActorDiedError",
            FailureKind::ActorUnavailable => "ActorUnavailableError",
            FailureKind::ObjectLost => "ObjectLostError",
            FailureKind::StoreFull => "ObjectStoreFullError",
            FailureKind::OutOfMemory => "OutOfMemoryError",
            FailureKind::RuntimeEnv => "RuntimeEnvSetupError",
            FailureKind::PendingCallsLimit => "PendingCallsLimitExceeded",
            FailureKind::NodeDied => "NodeDiedError",
            FailureKind::OutOfDisk | FailureKind::OutOfDiskHere => "OutOfDiskError",
            FailureKind::OwnerDied => "OwnerDiedError",
            FailureKind::NotSent => "HoploError",
            FailureKind::WorkerStart => "WorkerStartError",
            FailureKind::TaskGroupRemoved => "TaskPlacementGroupRemoved",
            FailureKind::ActorGroupRemoved => "ActorPlacementGroupRemoved",
            FailureKind::TaskUnschedulable => "TaskUnschedulableError",
            FailureKind::ActorUnschedulable => "ActorUnschedulableError",
        }
    }
}

impl Failure {
    pub fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        assert!(kind != FailureKind::User, "a user failure carries an encoded exception");
        let text = cut(text.into());
        Self { kind, payload: text.into_bytes().into(), cause: Arc::default() }
    }

    /// The user's code raised: `exception` as the Python side encodes it.
    pub fn user(exception: Arc<[u8]>) -> Self {
        Self { kind: FailureKind::User, payload: exception, cause: Arc::default() }
    }

    pub fn caused_by(self, exception: Arc<[u8]>) -> Self {
        Self { cause: exception, ..self }
    }

    /// One line for listings: of what the user's code raised its type and text.
    pub fn summary(&self) -> String {
        match self.kind {
            FailureKind::User => summary_in(&self.payload).unwrap_or("it raised").to_string(),
            _ => self.text(),
        }
    }

    /// The text for the user; lossy for `User`, whose payload only Python can decode.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.payload).into_owned()
    }
}

/// What stands behind an encoded exception: a line of text, its length in 4 bytes, and `SUMMARY_MARK`
/// (`encode_error` of `python/hoplo/_errors.py`).
fn summary_in(payload: &[u8]) -> Option<&str> {
    let rest = payload.strip_suffix(SUMMARY_MARK)?;
    let (rest, len) = rest.split_last_chunk::<4>()?;
    let start = rest.len().checked_sub(u32::from_le_bytes(*len) as usize)?;
    str::from_utf8(&rest[start..]).ok()
}

const SUMMARY_MARK: &[u8] = b"told";

/// The text, or its two ends if it is longer than a failure's may be.
fn cut(text: String) -> String {
    if text.len() <= FAILURE_TEXT_BYTES_MAX {
        return text;
    }
    let (bytes, half) = (text.as_bytes(), FAILURE_TEXT_BYTES_MAX / 2 - 32);
    let end = bytes.len() - half;
    let [head, tail] = [&bytes[..half], &bytes[end..]].map(String::from_utf8_lossy);
    format!("{head} ... {} bytes left out ... {tail}", end - half)
}

/// A stored value in a frame: a tag and the location.
const STORED_BYTES: usize = 25;

/// A ref's value. `Inline` bytes and stored bytes have the same encoding (the Python codec's).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Value {
    Inline(#[serde(with = "crate::arc_bytes")] Arc<[u8]>),
    Stored(Location),
    Failed(Failure),
}

impl Value {
    /// Bytes that this value adds to a frame (its tag and lengths included, roughly).
    pub fn frame_bytes(&self) -> usize {
        match self {
            Value::Inline(bytes) => bytes.len() + 5,
            Value::Stored(_) => STORED_BYTES,
            Value::Failed(failure) => failure.payload.len() + failure.cause.len() + 10,
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Value::Inline(bytes) => {
                out.push(0);
                put_sized(out, bytes);
            }
            Value::Stored(location) => {
                out.push(1);
                out.extend_from_slice(&location.slot.to_le_bytes());
                out.extend_from_slice(&location.generation.to_le_bytes());
                out.extend_from_slice(&location.offset.to_le_bytes());
                out.extend_from_slice(&location.len.to_le_bytes());
            }
            Value::Failed(failure) => {
                out.push(2);
                out.push(failure.kind as u8);
                put_sized(out, &failure.payload);
                put_sized(out, &failure.cause);
            }
        }
    }
}

/// A value read in place: inline bytes are still in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueView<'a> {
    Inline(&'a [u8]),
    Stored(Location),
    Failed { kind: FailureKind, payload: &'a [u8], cause: &'a [u8] },
}

impl<'a> ValueView<'a> {
    pub fn parse(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        match reader.u8()? {
            0 => Ok(ValueView::Inline(reader.sized()?)),
            1 => Ok(ValueView::Stored(Location {
                slot: reader.u32()?,
                generation: reader.u32()?,
                offset: reader.u64()?,
                len: reader.u64()?,
            })),
            2 => {
                let kind = FailureKind::from_u8(reader.u8()?).ok_or(reader.malformed())?;
                Ok(ValueView::Failed { kind, payload: reader.sized()?, cause: reader.sized()? })
            }
            _ => Err(reader.malformed()),
        }
    }

    pub fn to_value(self) -> Value {
        match self {
            ValueView::Inline(bytes) => Value::Inline(bytes.into()),
            ValueView::Stored(location) => Value::Stored(location),
            ValueView::Failed { kind, payload, cause } => {
                Value::Failed(Failure { kind, payload: payload.into(), cause: cause.into() })
            }
        }
    }
}

/// A top-level ref argument inside a call frame: which object, and its value at hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefArgument {
    pub object: ObjectId,
    pub value: Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_with_a_long_text_keeps_both_its_ends() {
        let short = Failure::new(FailureKind::WorkerCrashed, "died");
        assert_eq!(short.text(), "died");
        let long = format!("begins{}ends", "\u{1f680}".repeat(1 << 20));
        let text = Failure::new(FailureKind::WorkerCrashed, long).text();
        assert!(text.starts_with("begins") && text.ends_with("ends"), "{text}");
        assert!(text.contains(" bytes left out ") && text.len() <= FAILURE_TEXT_BYTES_MAX);
    }
}
