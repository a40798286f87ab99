//! Typed rows of the control tables, and their bytes.
//!
//! A value begins with its row format, one byte, then comes the entry in postcard. Users' keys (`Kv`) have users'
//! bytes as they are. The head of a chain decodes what it is asked to put: a row that nobody could
//! read is refused to who wrote it, before any replica has it.

use std::collections::BTreeMap;
use std::fmt;

use hoplo_base::limits::CONTROL_VALUE_BYTES_MAX;
use hoplo_base::{
    ActorId, FunctionId, GroupId, JobId, NodeNumber, ObjectId, ProcessId, ResourceSet, TaskId,
};
use hoplo_wire::node::{ActorState, GroupSpec, JobConfig, Lineage, NodeCodecError, Run, RunCall};
use serde::{Deserialize, Serialize};

use hoplo_wire::Failure;
use hoplo_wire::control::{Key, Refusal, Row, Table};
use hoplo_wire::join::{JoinRole, TokenId};
use hoplo_wire::peer::KnownActor;

/// First byte of every typed row; raised with every change of an entry's fields, or of its key.
pub const ROW_FORMAT: u8 = 9;

/// What a table's rows are made of: a key that names the thing, and the thing.
pub trait Entry: Serialize + for<'a> Deserialize<'a> {
    const TABLE: Table;

    fn key_bytes(&self) -> Vec<u8>;

    fn key(&self) -> Key {
        Key { table: Self::TABLE, bytes: self.key_bytes() }
    }

    fn to_value(&self) -> Vec<u8> {
        let mut value = vec![ROW_FORMAT];
        hoplo_wire::node::encode_body(self, &mut value);
        value
    }

    fn from_row(row: &Row) -> Result<Self, RowError> {
        decode(&row.value)
    }

    fn of_value(value: &[u8]) -> Result<Self, RowError> {
        decode(value)
    }
}

/// These bytes are no row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    #[error("it is empty")]
    Empty,
    #[error("this program has no rows of that table")]
    Unused,
    #[error("it has row format {found}, this program reads {ROW_FORMAT}")]
    Format { found: u8 },
    #[error(transparent)]
    Codec(#[from] NodeCodecError),
}

fn decode<'a, E: Deserialize<'a>>(value: &'a [u8]) -> Result<E, RowError> {
    match value.split_first() {
        None => Err(RowError::Empty),
        Some((&ROW_FORMAT, body)) => Ok(hoplo_wire::node::decode(body)?),
        Some((&found, _)) => Err(RowError::Format { found }),
    }
}

/// Checks a row's value, at the head of a chain: what is refused here never reaches a replica.
pub fn validate(key: &Key, value: &[u8]) -> Result<(), Refusal> {
    let checked = match key.table {
        Table::Kv => return Ok(()),
        Table::Node => decode::<NodeEntry>(value).err(),
        Table::Job => decode::<JobEntry>(value).err(),
        Table::Function => decode::<FunctionEntry>(value).err(),
        Table::Task => decode::<TaskEntry>(value).err(),
        Table::Actor => decode::<ActorEntry>(value).err(),
        Table::PlacementGroup => decode::<GroupEntry>(value).err(),
        // Nothing of this program writes them yet.
        Table::Object => Some(RowError::Unused),
        Table::Event => decode::<EventEntry>(value).err(),
        Table::Token => decode::<TokenEntry>(value).err(),
        Table::Head => decode::<SeatEntry>(value).err(),
        Table::History => decode::<HistoryEntry>(value).err(),
    };
    match checked {
        None => Ok(()),
        Some(error) => Err(Refusal::BadRow { table: key.table, why: error.to_string() }),
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEntry {
    pub node: NodeNumber,
    /// Its daemon kept this store: who goes on with the store goes on in its place.
    pub head: bool,
    pub hostname: String,
    pub resources: ResourceSet,
    pub labels: BTreeMap<String, String>,
    /// Of its object store.
    pub store_bytes: u64,
    pub session_dir: String,
    pub pid: u32,
    /// Where others dial it; empty where nobody can.
    pub address: String,
    pub state: NodeState,
}

impl NodeEntry {
    /// A number that is given away, and nothing is known yet of the node that has it.
    pub fn numbered(node: NodeNumber, hostname: String) -> Self {
        Self {
            node,
            head: false,
            hostname,
            resources: ResourceSet::new(),
            labels: BTreeMap::new(),
            store_bytes: 0,
            session_dir: String::new(),
            pid: 0,
            address: String::new(),
            state: NodeState::Alive,
        }
    }
}

/// How far a node's life is; it never goes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeState {
    Alive,
    /// It gets nothing new, and leaves in order.
    Draining,
    /// `heir`: the node that is in charge from then on of all that this one was in charge of. It lived when this was written.
    Dead {
        why: String,
        heir: Option<NodeNumber>,
    },
    /// Dead, and all nodes that live have passed its death, which was the store's entry `died`.
    Settled {
        why: String,
        heir: Option<NodeNumber>,
        died: u64,
    },
}

impl NodeState {
    /// Dead without an heir: nobody else lives.
    pub fn dead(why: impl Into<String>) -> Self {
        Self::Dead { why: why.into(), heir: None }
    }

    pub fn is_dead(&self) -> bool {
        match self {
            Self::Alive | Self::Draining => false,
            Self::Dead { .. } | Self::Settled { .. } => true,
        }
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alive => "ALIVE",
            Self::Draining => "DRAINING",
            Self::Dead { .. } | Self::Settled { .. } => "DEAD",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEntry {
    pub job: JobId,
    pub driver: ProcessId,
    pub driver_pid: u32,
    pub config: JobConfig,
    /// Microseconds since 1970.
    pub started_us: u64,
    /// Absent while it runs.
    pub ended_us: Option<u64>,
}

/// How far an actor's life is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActorPhase {
    Pending,
    Alive,
    Restarting,
    Dead,
}

impl ActorPhase {
    pub fn of(state: &ActorState) -> Self {
        match state {
            ActorState::Pending { .. } => ActorPhase::Pending,
            ActorState::Alive { .. } => ActorPhase::Alive,
            ActorState::Restarting { .. } => ActorPhase::Restarting,
            ActorState::Dead { .. } => ActorPhase::Dead,
        }
    }
}

impl fmt::Display for ActorPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ActorPhase::Pending => "PENDING",
            ActorPhase::Alive => "ALIVE",
            ActorPhase::Restarting => "RESTARTING",
            ActorPhase::Dead => "DEAD",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActorEntry {
    pub actor: ActorId,
    pub class_name: String,
    pub name: String,
    pub namespace: String,
    pub job: JobId,
    pub state: ActorPhase,
    pub incarnation: u32,
    pub detached: bool,
    /// What a handle needs; opaque.
    pub handle: Vec<u8>,
    /// Why it is dead.
    pub failure: Option<Failure>,
    /// It is dead because its node was: who asks for its name hears why.
    pub lost: bool,
    /// What it is made of, for the heir of its home (`node/far/wills`).
    pub will: Option<Box<KnownActor>>,
}

/// A placement group that is not removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupEntry {
    pub group: GroupId,
    pub job: JobId,
    /// Who asked for it, by which request.
    pub asked: (ProcessId, u64),
    pub spec: GroupSpec,
    /// All its bundles are placed.
    pub created: bool,
    /// The node of each bundle that is placed.
    pub placed: BTreeMap<u32, NodeNumber>,
}

/// A pickled function or class, or a part of one that is larger than a value may be: its other parts
/// are written before part 0, so who finds that one finds all. Each node that exports it has rows of its own, which it drops when
/// nobody needs them there: another node may need the function for longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionEntry {
    pub job: JobId,
    pub function: FunctionId,
    /// Whose processes exported it.
    pub node: NodeNumber,
    pub part: u32,
    pub parts: u32,
    pub bytes: Vec<u8>,
    /// Refs inside it (in part 0); the node holds them as long as the row is there.
    pub contains: Vec<ObjectId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskState {
    Pending,
    Finished,
    Failed,
    /// What ran it is gone.
    Lost,
}

/// A task that others depend on, so that it can be run again when its owner is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEntry {
    pub task: TaskId,
    pub job: JobId,
    /// Who runs it, or has it run; another one takes over by compare-and-swap.
    pub owner: ProcessId,
    pub attempt: u32,
    pub state: TaskState,
    /// Absent where it cannot be run again.
    pub lineage: Option<Lineage>,
    /// Why it failed or was lost, for people.
    pub why: Option<String>,
}

/// What lets somebody join who has its other half. Who removes it revokes the token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenEntry {
    pub id: TokenId,
    /// Ed25519.
    pub public_key: [u8; 32],
    /// As what one may join with it.
    pub role: JoinRole,
    /// Microseconds since 1970.
    pub created_us: u64,
    pub expires_us: u64,
    /// How many joined with it, and how many may; absent: any number.
    pub uses: u32,
    pub uses_max: Option<u32>,
}

/// Who is the head, where several machines may be: it writes this again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeatEntry {
    /// One life of one daemon; absent if nobody has the seat.
    pub holder: Option<u64>,
    /// Where it lets others join. While a backup is put back: which one.
    pub address: String,
    pub beats: u64,
}

impl SeatEntry {
    /// The holder while a backup is put back (SEAT-7). No life of a daemon has that number.
    pub const RESTORE: u64 = 0;

    pub fn is_restored(&self) -> bool {
        self.holder == Some(Self::RESTORE)
    }
}

/// Runs of one job that have ended, as one life of a daemon remembers them: what is left of them when it is dead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryEntry {
    pub node: NodeNumber,
    pub job: JobId,
    /// Of all rows of the node, in the order in which they were begun.
    pub page: u32,
    /// What to add to the clock of the node's machine for the time of day, in microseconds.
    pub clock_us: u64,
    /// Runs of the job that ended before those of this row and are in none.
    pub forgotten: u64,
    pub calls: Vec<RunCall>,
    /// The oldest one first.
    pub runs: Vec<EndedRun>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedRun {
    pub run: Run,
    /// When its caller heard of its end, in microseconds since 1970.
    pub ended_us: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventEntry {
    /// Microseconds since 1970; with `seq` the key.
    pub at_us: u64,
    pub seq: u64,
    pub text: String,
}

impl Entry for NodeEntry {
    const TABLE: Table = Table::Node;

    fn key_bytes(&self) -> Vec<u8> {
        node_key(self.node).bytes
    }
}

impl Entry for JobEntry {
    const TABLE: Table = Table::Job;

    fn key_bytes(&self) -> Vec<u8> {
        job_key(self.job).bytes
    }
}

impl Entry for ActorEntry {
    const TABLE: Table = Table::Actor;

    fn key_bytes(&self) -> Vec<u8> {
        actor_key(self.actor).bytes
    }
}

impl Entry for GroupEntry {
    const TABLE: Table = Table::PlacementGroup;

    fn key_bytes(&self) -> Vec<u8> {
        group_key(self.group).bytes
    }
}

impl Entry for FunctionEntry {
    const TABLE: Table = Table::Function;

    fn key_bytes(&self) -> Vec<u8> {
        let mut bytes = function_prefix(self.job, self.function);
        bytes.extend_from_slice(&self.node.number().to_be_bytes());
        if self.part > 0 {
            bytes.extend_from_slice(&self.part.to_be_bytes());
        }
        bytes
    }
}

impl FunctionEntry {
    pub fn whole(
        (job, node): (JobId, NodeNumber),
        function: FunctionId,
        bytes: Vec<u8>,
        contains: Vec<ObjectId>,
    ) -> Self {
        Self { job, function, node, part: 0, parts: 1, bytes, contains }
    }

    /// Of these keys of one function, in order, all rows that one node wrote, part 0 last. Nothing: no node has written all of it.
    pub fn of_one_node(keys: Vec<Vec<u8>>) -> Vec<Key> {
        const FIRST_BYTES: usize = size_of::<JobId>() + size_of::<FunctionId>() + size_of::<u32>();
        let Some(first) = keys.iter().find(|key| key.len() == FIRST_BYTES).cloned() else {
            return Vec::new();
        };
        let mut of_it: Vec<Vec<u8>> =
            keys.into_iter().filter(|key| key.starts_with(&first)).collect();
        of_it.rotate_left(1);
        of_it.into_iter().map(|bytes| Key { table: Table::Function, bytes }).collect()
    }

    /// In the order in which the rows are to be written.
    pub fn split(self) -> Vec<Self> {
        const PART_BYTES: usize = CONTROL_VALUE_BYTES_MAX / 2;
        let parts = self.bytes.len().div_ceil(PART_BYTES).max(1) as u32;
        let piece = |part: u32| {
            let from = part as usize * PART_BYTES;
            self.bytes[from..self.bytes.len().min(from + PART_BYTES)].to_vec()
        };
        let others = (1..parts).map(|part| Self {
            part,
            parts,
            bytes: piece(part),
            contains: vec![],
            ..self
        });
        let mut all: Vec<Self> = others.collect();
        let contains = self.contains.clone();
        all.push(Self { part: 0, parts, bytes: piece(0), contains, ..self });
        all
    }

    /// The whole, from part 0 and a way to read the others; absent when one of them is not there.
    pub fn joined(mut self, read: impl Fn(&Key) -> Option<Row>) -> Result<Option<Self>, RowError> {
        for part in 1..self.parts {
            let key = Self { part, bytes: vec![], contains: vec![], ..self }.key();
            let Some(row) = read(&key) else { return Ok(None) };
            self.bytes.append(&mut Self::from_row(&row)?.bytes);
        }
        self.parts = 1;
        Ok(Some(self))
    }
}

impl Entry for TaskEntry {
    const TABLE: Table = Table::Task;

    fn key_bytes(&self) -> Vec<u8> {
        task_key(self.task).bytes
    }
}

impl Entry for SeatEntry {
    const TABLE: Table = Table::Head;

    fn key_bytes(&self) -> Vec<u8> {
        seat_key().bytes
    }
}

impl Entry for TokenEntry {
    const TABLE: Table = Table::Token;

    fn key_bytes(&self) -> Vec<u8> {
        token_key(self.id).bytes
    }
}

impl Entry for EventEntry {
    const TABLE: Table = Table::Event;

    fn key_bytes(&self) -> Vec<u8> {
        [self.at_us.to_be_bytes(), self.seq.to_be_bytes()].concat()
    }
}

impl Entry for HistoryEntry {
    const TABLE: Table = Table::History;

    fn key_bytes(&self) -> Vec<u8> {
        history_key(self.node, self.job, self.page).bytes
    }
}

const NODE_KEY_BYTES: usize = 4;

pub fn node_key(node: NodeNumber) -> Key {
    Key { table: Table::Node, bytes: node.number().to_be_bytes().to_vec() }
}

/// Whose row that is.
pub fn node_of_key(bytes: &[u8]) -> Option<NodeNumber> {
    bytes.try_into().ok().map(u32::from_be_bytes).and_then(NodeNumber::of_number)
}

/// At which node the actor of that row is at home.
pub fn home_of_actor_key(bytes: &[u8]) -> Option<NodeNumber> {
    bytes.get(..NODE_KEY_BYTES).and_then(node_of_key)
}

pub fn job_key(job: JobId) -> Key {
    Key { table: Table::Job, bytes: job.0.to_be_bytes().to_vec() }
}

/// There is one.
pub fn seat_key() -> Key {
    Key { table: Table::Head, bytes: b"seat".to_vec() }
}

pub fn token_key(token: TokenId) -> Key {
    Key { table: Table::Token, bytes: token.0.to_be_bytes().to_vec() }
}

/// All rows of actors that are at home at one node are a range.
pub fn actor_key(actor: ActorId) -> Key {
    let mut bytes = node_key(actor.0.owner.node()).bytes;
    bytes.extend_from_slice(&actor.0.to_bytes());
    Key { table: Table::Actor, bytes }
}

pub fn group_key(group: GroupId) -> Key {
    Key { table: Table::PlacementGroup, bytes: group.0.to_be_bytes().to_vec() }
}

pub fn task_key(task: TaskId) -> Key {
    Key { table: Table::Task, bytes: task.to_bytes().to_vec() }
}

/// All rows of one node are a range.
pub fn history_key(node: NodeNumber, job: JobId, page: u32) -> Key {
    let mut bytes = node_key(node).bytes;
    bytes.extend_from_slice(&job.0.to_be_bytes());
    bytes.extend_from_slice(&page.to_be_bytes());
    Key { table: Table::History, bytes }
}

/// How the keys of one function of one job begin; the job comes first, so that a job's rows are a range.
pub fn function_prefix(job: JobId, function: FunctionId) -> Vec<u8> {
    let mut bytes = job.0.to_be_bytes().to_vec();
    bytes.extend_from_slice(&function.0);
    bytes
}

/// The key of a user's key: namespaces do not see each other.
pub fn kv_key(namespace: &str, key: &[u8]) -> Key {
    let mut bytes = u32::try_from(namespace.len()).unwrap_or(u32::MAX).to_be_bytes().to_vec();
    bytes.extend_from_slice(namespace.as_bytes());
    bytes.extend_from_slice(key);
    Key { table: Table::Kv, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{ControlStore, MemoryStore};

    #[test]
    fn an_entry_survives_its_row_and_rubbish_is_an_error() {
        let entry = EventEntry { at_us: 5, seq: 1, text: "job 1 started".to_string() };
        let mut store = MemoryStore::new();
        store.put(entry.key(), entry.to_value()).unwrap();
        let row = store.get(&entry.key()).unwrap();
        assert_eq!(EventEntry::from_row(&row), Ok(entry));
        assert!(
            EventEntry::from_row(&Row { value: vec![0xff], version: 1, index: 1, finished: false })
                .is_err()
        );
    }

    #[test]
    fn a_row_is_its_format_and_its_entry_and_nothing_that_a_socket_needs() {
        let entry = EventEntry { at_us: 5, seq: 1, text: "a".to_string() };
        assert_eq!(entry.to_value(), [ROW_FORMAT, 5, 1, 1, b'a']);
    }

    #[test]
    fn a_namespace_that_begins_like_another_is_another() {
        let keys = [kv_key("a", b"bc"), kv_key("ab", b"c")];
        assert_ne!(keys[0], keys[1]);
        assert!(!keys[1].bytes.starts_with(&kv_key("a", b"").bytes));
    }

    #[test]
    fn every_table_takes_its_own_entries_and_refuses_what_is_none() {
        let owner = ProcessId::new(NodeNumber::alone(1), 2, 3);
        let task = TaskId { owner, seq: 4 };
        let job = JobId(1);
        let entry = TaskEntry {
            task,
            job,
            owner,
            attempt: 0,
            state: TaskState::Pending,
            lineage: None,
            why: None,
        };
        assert_eq!(validate(&entry.key(), &entry.to_value()), Ok(()));
        // Values of kv are the user's.
        for table in Table::ALL.into_iter().filter(|table| *table != Table::Kv) {
            let key = Key { table, bytes: vec![1] };
            for value in [vec![], vec![ROW_FORMAT], vec![ROW_FORMAT + 1, 0], vec![0xff; 40]] {
                let refused = validate(&key, &value);
                assert!(matches!(refused, Err(Refusal::BadRow { table: of, .. }) if of == table));
            }
        }
        let mut longer = entry.to_value();
        longer.push(0);
        let refused = validate(&entry.key(), &longer).unwrap_err().to_string();
        assert!(refused.contains("Task") && refused.contains("left over"), "{refused}");
        assert_eq!(validate(&kv_key("", b"a"), b"anything"), Ok(()));
    }

    #[test]
    fn a_function_that_is_larger_than_a_value_lies_in_several_rows() {
        let bytes: Vec<u8> = (0..20_000_000u32).map(|number| number as u8).collect();
        let function = FunctionId([7; 16]);
        let of = |node| (JobId(1), node);
        let (node, other) = (NodeNumber::first_given(1), NodeNumber::first_given(2));
        let whole = FunctionEntry::whole(of(node), function, bytes.clone(), vec![]);
        let mut store = MemoryStore::new();
        for part in whole.clone().split() {
            assert!(part.to_value().len() <= CONTROL_VALUE_BYTES_MAX);
            assert_eq!(validate(&part.key(), &part.to_value()), Ok(()));
            store.put(part.key(), part.to_value()).unwrap();
        }
        let keys = |store: &MemoryStore| {
            let prefix = function_prefix(JobId(1), function);
            let page = store.scan(Table::Function, &prefix, None, 100);
            page.rows.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        // Another node has written a part of it, and its first row is still to come.
        let others = FunctionEntry::whole(of(other), function, bytes, vec![]).split();
        store.put(others[0].key(), others[0].to_value()).unwrap();
        let of_one = FunctionEntry::of_one_node(keys(&store));
        let all: Vec<Key> = whole.clone().split().iter().map(Entry::key).collect();
        assert_eq!(of_one, all, "the first one comes last");
        all.iter().for_each(|key| assert!(store.delete(key).unwrap().is_some()));
        assert_eq!(FunctionEntry::of_one_node(keys(&store)), []);
        whole.clone().split().into_iter().for_each(|part| {
            store.put(part.key(), part.to_value()).unwrap();
        });
        let first = store.get(of_one.last().unwrap()).unwrap();
        let first = FunctionEntry::from_row(&first).unwrap();
        assert_eq!(first.parts, 5);
        assert_eq!(first.clone().joined(|key| store.get(key)), Ok(Some(whole)));
        assert_eq!(first.joined(|_| None), Ok(None));
    }
}
