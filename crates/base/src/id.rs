//! Identities. All are small copies; `Display` is short and greppable (`task:3-1f`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::limits::NODES_AHEAD_MAX;

/// One life of one daemon: its home is what its processes, leases, tasks, objects and actors have in their ids. 24 bits.
///
/// ```text
///   0                      nobody's
///   1 ..= GIVEN_MAX        given by a control store, by compare-and-swap, and never again
///   GIVEN_MAX + 1 ..       drawn by a daemon whose tables end with it: nobody else will ever be asked for it
/// ```
/// So that no text is longer than it need be, `Display` of an id names its node only where there may be several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeNumber(u32);

impl NodeNumber {
    const BITS: u32 = 24;
    const GIVEN_MAX: u32 = (1 << (Self::BITS - 1)) - 1;
    /// None comes before it.
    pub const FIRST: Self = Self(1);

    /// For a daemon that no other one will ever hear of.
    pub const fn alone(random: u32) -> Self {
        Self(Self::GIVEN_MAX + 1 + (random & Self::GIVEN_MAX))
    }

    /// The first one that a control store gives. Stores begin anywhere, so that a ref of another cluster is unknown
    /// here and not taken for one of ours.
    pub fn first_given(random: u32) -> Self {
        Self(1 + random % Self::GIVEN_MAX)
    }

    /// What a control store gives after this one.
    pub fn next_given(self) -> Self {
        Self(1 + self.0 % Self::GIVEN_MAX)
    }

    /// For a store that does not know which numbers it gave after this one: none that it did, unless it was thousands. None is
    /// higher than the highest.
    pub fn behind_a_gap(self, random: u32) -> Self {
        const GAP: u32 = 1 << 12;
        // Of what that store gave nothing is waited for once a number behind the gap is known.
        const _: () = assert!(NODES_AHEAD_MAX < GAP);
        Self((self.0 + GAP + random % (GAP << 4)).min(Self::GIVEN_MAX))
    }

    /// A store gives it after that one, as one of the next `many`.
    pub fn follows(self, earlier: Self, many: u32) -> bool {
        let ahead = (self.0 + Self::GIVEN_MAX - earlier.0) % Self::GIVEN_MAX;
        self.is_given() && earlier.is_given() && (1..=many).contains(&ahead)
    }

    /// Of two that one store gives: this one comes later.
    pub fn is_later_than(self, other: Self) -> bool {
        self.follows(other, Self::GIVEN_MAX / 2)
    }

    pub fn is_given(self) -> bool {
        (1..=Self::GIVEN_MAX).contains(&self.0)
    }

    pub fn number(self) -> u32 {
        self.0
    }

    /// The node whose [`number`](Self::number) this is. `None`: no node can have it.
    pub fn of_number(number: u32) -> Option<Self> {
        (1..1 << Self::BITS).contains(&number).then_some(Self(number))
    }

    /// As users see it: six digits.
    pub fn hex(self) -> String {
        format!("{:06x}", self.0)
    }

    /// What [`hex`](Self::hex) wrote. `None` if it is nothing of the kind.
    pub fn of_hex(text: &str) -> Option<Self> {
        let digits = text.len() == 6 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u32::from_str_radix(text, 16).ok().filter(|number| digits && *number > 0).map(Self)
    }

    /// What its `Display` wrote: `node:1f`. `None` if it is nothing of the kind.
    pub fn of_shown(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("node:").filter(|digits| (1..=6).contains(&digits.len()))?;
        Self::of_hex(&format!("{digits:0>6}"))
    }

    fn of_bits(bits: u64) -> Self {
        Self((bits >> (64 - Self::BITS)) as u32)
    }

    const fn bits(self) -> u64 {
        (self.0 as u64) << (64 - Self::BITS)
    }

    /// Behind the short form of an id: `@5f`, or nothing.
    fn suffix(self) -> Suffix {
        Suffix(self)
    }
}

struct Suffix(NodeNumber);

impl fmt::Display for Suffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_given() { write!(f, "@{:x}", self.0.0) } else { Ok(()) }
    }
}

/// One process (driver, worker, tool) of one node, unique over restarts of the daemon: the node's number, a 24-bit
/// count, 16 bits of its slot in the shared metadata segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId(pub u64);

impl ProcessId {
    /// The highest count: who has used it up makes no more processes.
    pub const COUNT_MAX: u32 = 0xff_ffff;

    pub const fn new(node: NodeNumber, count: u32, slot: u16) -> Self {
        assert!(count <= Self::COUNT_MAX, "a count does not begin again");
        Self(node.bits() | (count as u64) << 16 | slot as u64)
    }

    pub fn node(self) -> NodeNumber {
        NodeNumber::of_bits(self.0)
    }

    /// Index of this process's doorbell and pin table.
    pub fn slot(self) -> usize {
        usize::from(self.0 as u16)
    }

    pub fn count(self) -> u32 {
        (self.0 >> 16) as u32 & 0xff_ffff
    }
}

/// A control node, as its certificate and its folder name it, over all its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u64);

/// The node of its driver, and its count there (40 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u64);

/// The node that granted it, and its count there (40 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId(pub u64);

/// A placement group: the node of who created it, and its count there (40 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId(pub u64);

/// What a node counts.
macro_rules! counted {
    ($id:ident) => {
        impl $id {
            pub fn new(node: NodeNumber, count: u64) -> Self {
                assert!(count <= COUNT_MAX, "a count does not begin again");
                Self(node.bits() | count)
            }

            pub fn node(self) -> NodeNumber {
                NodeNumber::of_bits(self.0)
            }

            pub fn count(self) -> u64 {
                self.0 & COUNT_MAX
            }
        }
    };
}

const COUNT_MAX: u64 = (1 << 40) - 1;

counted!(JobId);
counted!(LeaseId);
counted!(GroupId);

impl GroupId {
    pub const HEX_DIGITS: usize = 16;

    /// What `PlacementGroup.id` shows, and what the names of its resources end with.
    pub fn hex(self) -> String {
        format!("{:016x}", self.0)
    }

    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_hex = text.len() == Self::HEX_DIGITS && text.bytes().all(digits);
        is_hex.then(|| u64::from_str_radix(text, 16).ok()).flatten().map(Self)
    }
}

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

    /// 32 hex digits.
    pub fn hex(self) -> String {
        self.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
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

impl fmt::Display for NodeNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node:{:x}", self.0)
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process:{:x}{}", self.count(), self.node().suffix())
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node:{:x}", self.0)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job:{:x}{}", self.count(), self.node().suffix())
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease:{:x}{}", self.count(), self.node().suffix())
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group:{:x}{}", self.count(), self.node().suffix())
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = self.owner;
        write!(f, "task:{:x}-{:x}{}", owner.count(), self.seq, owner.node().suffix())
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TaskId { owner, seq } = self.task;
        write!(f, "obj:{:x}-{seq:x}.{:x}{}", owner.count(), self.index, owner.node().suffix())
    }
}

impl fmt::Display for ActorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TaskId { owner, seq } = self.0;
        write!(f, "actor:{:x}-{seq:x}{}", owner.count(), owner.node().suffix())
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
    ShortTask(ShortTask),
    /// `obj:3-1f.0`.
    ShortObject { task: ShortTask, index: u32 },
}

/// `3-1f` or `3-1f@5`: without a node it is that task of any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortTask {
    pub owner_count: u32,
    pub seq: u64,
    pub node: Option<NodeNumber>,
}

impl ShortTask {
    pub fn names(self, task: TaskId) -> bool {
        self.owner_count == task.owner.count()
            && self.seq == task.seq
            && self.node.is_none_or(|node| node == task.owner.node())
    }
}

impl AnyId {
    pub fn names_task(self, task: TaskId) -> bool {
        match self {
            AnyId::Object(object) => object.task == task,
            AnyId::Task(id) => id == task,
            AnyId::ShortTask(short) | AnyId::ShortObject { task: short, .. } => short.names(task),
        }
    }

    pub fn names_object(self, object: ObjectId) -> bool {
        match self {
            AnyId::Object(id) => id == object,
            AnyId::ShortObject { index, .. } => {
                self.names_task(object.task) && index == object.index
            }
            AnyId::Task(_) | AnyId::ShortTask(_) => self.names_task(object.task),
        }
    }
}

impl FromStr for AnyId {
    type Err = IdParseError;

    fn from_str(text: &str) -> Result<Self, IdParseError> {
        let error = || IdParseError(text.to_string());
        let short = |rest: &str, node: Option<NodeNumber>| -> Result<ShortTask, IdParseError> {
            let (owner, seq) = rest.split_once('-').ok_or_else(error)?;
            let owner_count = u32::from_str_radix(owner, 16).map_err(|_| error())?;
            let seq = u64::from_str_radix(seq, 16).map_err(|_| error())?;
            Ok(ShortTask { owner_count, seq, node })
        };
        let (text, node) = match text.split_once('@') {
            Some((text, node)) => {
                let node = u32::from_str_radix(node, 16).map_err(|_| error())?;
                (text, Some(NodeNumber(node)))
            }
            None => (text, None),
        };
        if let Some(rest) = text.strip_prefix("obj:") {
            let (task, index) = rest.split_once('.').ok_or_else(error)?;
            let index = u32::from_str_radix(index, 16).map_err(|_| error())?;
            return Ok(AnyId::ShortObject { task: short(task, node)?, index });
        }
        if let Some(rest) = text.strip_prefix("task:").or_else(|| text.strip_prefix("actor:")) {
            return Ok(AnyId::ShortTask(short(rest, node)?));
        }
        if node.is_some() {
            return Err(error());
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
    fn numbers_follow_each_other_also_where_they_begin_anew() {
        let last = NodeNumber::first_given(NodeNumber::GIVEN_MAX - 1);
        let next = last.next_given();
        assert_eq!(next, NodeNumber::FIRST);
        assert!(next.follows(last, 1) && next.is_later_than(last) && !last.is_later_than(next));
        assert!(!next.next_given().follows(last, 1) && next.next_given().follows(last, 2));
        assert!(!last.follows(last, 9) && !NodeNumber::alone(1).follows(last, 9));
    }

    #[test]
    fn ids_survive_bytes_hex_and_their_short_form() {
        let node = NodeNumber::alone(0xabcdef);
        let task = TaskId { owner: ProcessId::new(node, 3, 17), seq: 0x1f };
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
        assert_eq!((task.owner.node(), LeaseId::new(node, 7).node()), (node, node));
        assert_eq!(LeaseId::new(node, 7).to_string(), "lease:7");
    }

    #[test]
    fn an_id_names_its_node_where_there_may_be_several() {
        let on = |node| TaskId { owner: ProcessId::new(node, 3, 17), seq: 0x1f };
        let first = NodeNumber::first_given(4);
        let (here, there) = (on(first), on(first.next_given()));
        assert_eq!(here.to_string(), "task:3-1f@5");
        assert_eq!(there.object(2).to_string(), "obj:3-1f.2@6");
        assert_eq!(ActorId(there).to_string(), "actor:3-1f@6");
        assert_eq!(there.owner.to_string(), "process:3@6");
        let named: AnyId = there.object(2).to_string().parse().unwrap();
        assert!(named.names_object(there.object(2)) && !named.names_object(here.object(2)));
        let either: AnyId = "task:3-1f".parse().unwrap();
        assert!(either.names_task(here) && either.names_task(there));
    }

    #[test]
    fn a_given_number_is_never_one_that_a_daemon_draws_for_itself() {
        for random in [0, 1, 0x7f_fffe, 0x7f_ffff, 0x80_0000, u32::MAX] {
            assert!(!NodeNumber::alone(random).is_given(), "{random}");
            assert!(NodeNumber::first_given(random).is_given(), "{random}");
            assert!(NodeNumber::first_given(random).next_given().is_given(), "{random}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_accepted_forms() {
        for text in ["", "obj:", "task:zz-1", "abc", "é0", "obj:1-2", "task:1-2@", "00@5"] {
            let error = text.parse::<AnyId>().unwrap_err();
            assert!(error.to_string().contains("task:3-1f"), "{error}");
        }
    }
}
