//! Identities. All are small copies; `Display` is short and greppable (`task:3-1f`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One process (driver, worker, tool) of one node, unique over restarts of the daemon:
/// 24 random bits of the daemon's boot, a 24-bit count, 16 bits of its slot in the shared
/// metadata segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId(pub u64);

impl ProcessId {
    pub fn new(boot: u32, count: u32, slot: u16) -> Self {
        let boot = u64::from(boot & 0xff_ffff);
        let count = u64::from(count & 0xff_ffff);
        Self(boot << 40 | count << 16 | u64::from(slot))
    }

    /// Index of this process's doorbell and pin table.
    pub fn slot(self) -> usize {
        usize::from(self.0 as u16)
    }

    pub fn count(self) -> u32 {
        (self.0 >> 16) as u32 & 0xff_ffff
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId(pub u64);

/// The `seq`-th task or put of process `owner`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId {
    pub owner: ProcessId,
    pub seq: u64,
}

/// The `index`-th value that a task returns, or the value of a put (index 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectId {
    pub task: TaskId,
    pub index: u32,
}

/// An actor is named by the task that creates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ActorId(pub TaskId);

/// Content hash of an exported function or class, or hash of a method's name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FunctionId(pub [u8; 16]);

/// The text is no id of that kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an id: expected the hex() of a ref, or a form like task:3-1f, obj:3-1f.0, actor:3-2"
)]
pub struct IdParseError(pub String);

impl TaskId {
    pub const BYTES: usize = 16;

    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.owner.0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.seq.to_le_bytes());
        bytes
    }

    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let (owner, seq) = bytes.split_at(8);
        Self {
            owner: ProcessId(u64::from_le_bytes(owner.try_into().expect("eight of sixteen"))),
            seq: u64::from_le_bytes(seq.try_into().expect("eight of sixteen")),
        }
    }

    pub fn object(self, index: u32) -> ObjectId {
        ObjectId { task: self, index }
    }
}

impl ObjectId {
    pub const BYTES: usize = 20;

    pub fn to_bytes(self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..16].copy_from_slice(&self.task.to_bytes());
        bytes[16..].copy_from_slice(&self.index.to_le_bytes());
        bytes
    }

    pub fn from_bytes(bytes: [u8; 20]) -> Self {
        let task: [u8; 16] = bytes[..16].try_into().expect("sixteen of twenty");
        let index: [u8; 4] = bytes[16..].try_into().expect("four of twenty");
        Self { task: TaskId::from_bytes(task), index: u32::from_le_bytes(index) }
    }

    /// 40 hex digits: what `ObjectRef.hex()` shows.
    pub fn hex(self) -> String {
        self.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl ActorId {
    /// The pseudo-object whose holders are the processes that hold a handle of the actor.
    pub fn handle(self) -> ObjectId {
        ObjectId { task: self.0, index: u32::MAX }
    }

    pub fn hex(self) -> String {
        self.0.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process:{:x}", self.count())
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node:{:x}", self.0)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job:{:x}", self.0)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease:{:x}", self.0)
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task:{:x}-{:x}", self.owner.count(), self.seq)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "obj:{:x}-{:x}.{:x}", self.task.owner.count(), self.task.seq, self.index)
    }
}

impl fmt::Display for ActorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "actor:{:x}-{:x}", self.0.owner.count(), self.0.seq)
    }
}

impl fmt::Display for FunctionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "function:{:02x}{:02x}{:02x}{:02x}", self.0[0], self.0[1], self.0[2], self.0[3])
    }
}

impl fmt::Debug for FunctionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a user may name on a command line: a full hex id, or the short form of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyId {
    /// A full object id (40 hex digits).
    Object(ObjectId),
    /// A full task or actor id (32 hex digits).
    Task(TaskId),
    /// `task:3-1f` or `actor:3-1f`: count of the owner, sequence.
    ShortTask { owner_count: u32, seq: u64 },
    /// `obj:3-1f.0`.
    ShortObject { owner_count: u32, seq: u64, index: u32 },
}

impl AnyId {
    pub fn names_task(self, task: TaskId) -> bool {
        match self {
            AnyId::Object(object) => object.task == task,
            AnyId::Task(id) => id == task,
            AnyId::ShortTask { owner_count, seq } | AnyId::ShortObject { owner_count, seq, .. } => {
                owner_count == task.owner.count() && seq == task.seq
            }
        }
    }

    pub fn names_object(self, object: ObjectId) -> bool {
        match self {
            AnyId::Object(id) => id == object,
            AnyId::ShortObject { index, .. } => {
                self.names_task(object.task) && index == object.index
            }
            AnyId::Task(_) | AnyId::ShortTask { .. } => self.names_task(object.task),
        }
    }
}

impl FromStr for AnyId {
    type Err = IdParseError;

    fn from_str(text: &str) -> Result<Self, IdParseError> {
        let error = || IdParseError(text.to_string());
        let short = |rest: &str| -> Result<(u32, u64), IdParseError> {
            let (owner, seq) = rest.split_once('-').ok_or_else(error)?;
            let owner = u32::from_str_radix(owner, 16).map_err(|_| error())?;
            let seq = u64::from_str_radix(seq, 16).map_err(|_| error())?;
            Ok((owner, seq))
        };
        if let Some(rest) = text.strip_prefix("obj:") {
            let (task, index) = rest.split_once('.').ok_or_else(error)?;
            let (owner_count, seq) = short(task)?;
            let index = u32::from_str_radix(index, 16).map_err(|_| error())?;
            return Ok(AnyId::ShortObject { owner_count, seq, index });
        }
        if let Some(rest) = text.strip_prefix("task:").or_else(|| text.strip_prefix("actor:")) {
            let (owner_count, seq) = short(rest)?;
            return Ok(AnyId::ShortTask { owner_count, seq });
        }
        let bytes = from_hex(text).ok_or_else(error)?;
        if let Ok(bytes) = <[u8; 20]>::try_from(bytes.as_slice()) {
            return Ok(AnyId::Object(ObjectId::from_bytes(bytes)));
        }
        let bytes = <[u8; 16]>::try_from(bytes.as_slice()).map_err(|_| error())?;
        Ok(AnyId::Task(TaskId::from_bytes(bytes)))
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_bytes_hex_and_their_short_form() {
        let task = TaskId { owner: ProcessId::new(0xabcdef, 3, 17), seq: 0x1f };
        let object = task.object(2);
        assert_eq!(TaskId::from_bytes(task.to_bytes()), task);
        assert_eq!(ObjectId::from_bytes(object.to_bytes()), object);
        assert_eq!(object.hex().parse(), Ok(AnyId::Object(object)));
        assert_eq!(object.to_string(), "obj:3-1f.2");
        let short: AnyId = object.to_string().parse().unwrap();
        assert!(short.names_object(object) && !short.names_object(task.object(0)));
        let short: AnyId = task.to_string().parse().unwrap();
        assert!(short.names_task(task) && short.names_object(object));
        assert_eq!(task.owner.slot(), 17);
    }

    #[test]
    fn nonsense_is_refused_with_the_accepted_forms() {
        for text in ["", "obj:", "task:zz-1", "abc", "é0", "obj:1-2"] {
            let error = text.parse::<AnyId>().unwrap_err();
            assert!(error.to_string().contains("task:3-1f"), "{error}");
        }
    }
}
