//! Typed rows of the control tables, and their bytes.

use hoplo_base::{ActorId, FunctionId, JobId, NodeId, ObjectId, ResourceSet};
use hoplo_wire::node::{JobConfig, NodeCodecError};
use serde::{Deserialize, Serialize};

use hoplo_wire::control::{Key, Refusal, Row, Table};

/// What a table's rows are made of: a key that names the thing, and the thing.
pub trait Entry: Serialize + for<'a> Deserialize<'a> {
    const TABLE: Table;

    fn key_bytes(&self) -> Vec<u8>;

    fn key(&self) -> Key {
        Key { table: Self::TABLE, bytes: self.key_bytes() }
    }

    fn to_value(&self) -> Vec<u8> {
        let mut framed = Vec::new();
        hoplo_wire::node::encode(self, &mut framed);
        framed.split_off(4)
    }

    fn from_row(row: &Row) -> Result<Self, NodeCodecError> {
        hoplo_wire::node::decode(&row.value)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEntry {
    pub node: NodeId,
    pub hostname: String,
    pub resources: ResourceSet,
    pub session_dir: String,
    pub alive: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEntry {
    pub job: JobId,
    pub driver_pid: u32,
    pub config: JobConfig,
    /// Microseconds since 1970.
    pub started_us: u64,
    /// Absent while it runs.
    pub ended_us: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorEntry {
    pub actor: ActorId,
    pub class_name: String,
    pub name: String,
    pub namespace: String,
    pub job: JobId,
    /// `PENDING`, `ALIVE`, `RESTARTING` or `DEAD`.
    pub state: String,
    pub incarnation: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionEntry {
    pub job: JobId,
    pub function: FunctionId,
    /// The pickled function or class.
    pub bytes: Vec<u8>,
    /// Refs inside it; the node holds them as long as the row is there.
    pub contains: Vec<ObjectId>,
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
        self.node.0.to_be_bytes().to_vec()
    }
}

impl Entry for JobEntry {
    const TABLE: Table = Table::Job;

    fn key_bytes(&self) -> Vec<u8> {
        self.job.0.to_be_bytes().to_vec()
    }
}

impl Entry for ActorEntry {
    const TABLE: Table = Table::Actor;

    fn key_bytes(&self) -> Vec<u8> {
        actor_key(self.actor).bytes
    }
}

impl Entry for FunctionEntry {
    const TABLE: Table = Table::Function;

    fn key_bytes(&self) -> Vec<u8> {
        function_key(self.job, self.function).bytes
    }
}

impl Entry for EventEntry {
    const TABLE: Table = Table::Event;

    fn key_bytes(&self) -> Vec<u8> {
        [self.at_us.to_be_bytes(), self.seq.to_be_bytes()].concat()
    }
}

pub fn actor_key(actor: ActorId) -> Key {
    Key { table: Table::Actor, bytes: actor.0.to_bytes().to_vec() }
}

/// The key of one function of one job; the job comes first, so that a job's rows are a range.
pub fn function_key(job: JobId, function: FunctionId) -> Key {
    let mut bytes = job.0.to_be_bytes().to_vec();
    bytes.extend_from_slice(&function.0);
    Key { table: Table::Function, bytes }
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
    fn a_namespace_that_begins_like_another_is_another() {
        let keys = [kv_key("a", b"bc"), kv_key("ab", b"c")];
        assert_ne!(keys[0], keys[1]);
        assert!(!keys[1].bytes.starts_with(&kv_key("a", b"").bytes));
    }
}

/// Checks a row's value, at the head of a chain: what is refused here never reaches a replica.
pub fn validate(_key: &Key, _value: &[u8]) -> Result<(), Refusal> {
    Ok(())
}
