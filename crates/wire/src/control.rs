//! The control store's rows, operations and messages (docs/internals/control.md says what they mean).
//!
//! Between processes each message is a frame: `u32` length, then the message in postcard. The two
//! ends compare [`Hello`] first, so the codec needs no evolution; a record in a log file is under the
//! version in the file's header.

use std::sync::Arc;

use hoplo_base::NodeId;
use serde::{Deserialize, Serialize};

use crate::Shared;

/// The tables; a key belongs to exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Table {
    Node,
    Job,
    Function,
    Object,
    Task,
    Actor,
    PlacementGroup,
    Kv,
    Event,
    Token,
    /// One row: who is the head, where several machines may be.
    Head,
    /// Runs that have ended, as the node of their caller remembers them.
    History,
}

impl Table {
    /// In the order of keys; a table's place here is its number on disk.
    pub const ALL: [Self; 12] = [
        Self::Node,
        Self::Job,
        Self::Function,
        Self::Object,
        Self::Task,
        Self::Actor,
        Self::PlacementGroup,
        Self::Kv,
        Self::Event,
        Self::Token,
        Self::Head,
        Self::History,
    ];
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    pub table: Table,
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    #[serde(with = "serde_bytes")]
    pub value: Vec<u8>,
    /// 1 for a new row, one more with each change.
    pub version: u64,
    /// The entry that wrote it.
    pub index: u64,
    /// It may be archived when memory is short.
    pub finished: bool,
}

/// One process that holds replicas. A restart is another replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplicaId {
    pub node: NodeId,
    pub incarnation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShardId(pub u16);

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The one in which a shard begins.
    pub fn first() -> Self {
        Self(1)
    }
}

/// Random, chosen by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientId(pub u64);

/// Random, chosen when the cluster is made: a log or a peer of another cluster is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClusterId(pub u128);

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Writes if the row's version is `expected` (0: if there is no row; absent: in any case).
    Put {
        key: Key,
        #[serde(with = "serde_bytes")]
        value: Vec<u8>,
        expected: Option<u64>,
        finished: bool,
    },
    /// Removes if the row's version is `expected` (absent: in any case); from the archive, too.
    Delete { key: Key, expected: Option<u64> },
    /// Entered by the head alone: the row, if it still has that version, becomes history.
    Archive { key: Key, version: u64 },
}

/// What became of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The version now; 0 after a delete.
    Done { version: u64 },
    /// The version that was found instead of the expected one; nothing changed.
    Conflict { found: u64 },
}

/// One client's batch in a shard's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub index: u64,
    pub epoch: Epoch,
    /// Known to be committed when this was written.
    pub committed: u64,
    /// Absent for what the head enters by itself.
    pub client: Option<ClientId>,
    /// The client's session is younger than all that had ended up to this entry (see `Request::Update`).
    pub born: u64,
    /// In a session each is one more than the one before; 0 without a client.
    pub seq: u64,
    /// The client has seen the outcomes of all batches up to this one.
    pub answered: u64,
    pub ops: Vec<Op>,
    /// Sessions that are over, because nothing was heard of these clients for long. Only in entries
    /// without a client.
    pub ended: Vec<ClientId>,
}

/// What is remembered of a client: which batch came last, and outcomes that it may not have seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSession {
    pub client: ClientId,
    pub born: u64,
    pub last_seq: u64,
    /// Of the batches up to `last_seq` that are the last ones: index of the entry and its outcomes.
    pub outcomes: Vec<(u64, Vec<Outcome>)>,
}

/// All that lies between two keys, as it was right after entry `as_of`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// Chunks of one snapshot have one number.
    pub snapshot: u64,
    pub as_of: u64,
    /// Epoch of the entry `as_of`.
    pub epoch: Epoch,
    /// Absent in the first chunk: from the smallest key on.
    pub from: Option<Key>,
    /// Exclusive; absent in the last one.
    pub until: Option<Key>,
    pub rows: Vec<(Key, Row)>,
    /// Rows in the cold tier (or on their way there). Left out of a replica's own log, whose
    /// cold tier is a file beside it.
    pub archived: Vec<(Key, Row)>,
    /// All sessions; only in the last chunk.
    pub sessions: Vec<ClientSession>,
    /// The newest entry that ended sessions (0: none did); only in the last chunk.
    pub sessions_over: u64,
}

/// One record of the stream that is log, snapshot and state transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    Entry(Entry),
    Chunk(Chunk),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub replica: ReplicaId,
    /// `host:port`, or the path of a unix socket.
    pub address: String,
}

/// The order of one shard's replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainConfig {
    pub shard: ShardId,
    pub epoch: Epoch,
    /// Head first; never empty.
    pub members: Vec<Member>,
    /// Catches up; not counted.
    pub joining: Option<Member>,
    /// The member that came last, and the epoch in which it did: once it has acted in that epoch or a
    /// later one it has all that was ever acknowledged, as the other members have.
    pub added: Option<(ReplicaId, Epoch)>,
    /// The tail of the epoch before is a member still, or its process is known to be gone: nobody needs
    /// to wait for its lease. It says nothing about epochs that a replica did not see.
    pub old_tail_gone: bool,
    /// The epoch in which the shard's history began: the first one, or the one in which an operator had it go on with
    /// less than was acknowledged. What was said of entries in older epochs is void.
    #[serde(default = "Epoch::first")]
    pub history: Epoch,
    /// No member is known to have acted since the history began. Its head takes no updates: nothing was acknowledged, and
    /// whoever is the head where nothing is may begin it.
    #[serde(default)]
    pub unbegun: bool,
}

/// What an operator asked for and is not done yet; new members come by registering.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Wish {
    /// The node shall hold nothing, now and later.
    Leave { node: NodeId },
    /// One replica of one shard; done once the member on `from` is not one any more.
    Move { shard: ShardId, from: NodeId, to: NodeId },
    /// The shard, which waits in this epoch for disks that are gone, shall go on with what is left of it, though that may be
    /// less than was acknowledged; done with the next epoch.
    AcceptLoss { shard: ShardId, epoch: Epoch },
}

/// The coordinator that acts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acting {
    pub coordinator: Member,
    /// Counts on: who sees it stand still for long may act instead.
    pub renewed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterConfig {
    pub cluster: ClusterId,
    /// Replicas that each shard should have.
    pub replication: u8,
    /// By shard number.
    pub shards: Vec<ChainConfig>,
    pub acting: Option<Acting>,
    pub wishes: Vec<Wish>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Query {
    Get {
        key: Key,
    },
    /// Rows whose keys begin with `prefix`, from `from` on.
    Scan {
        table: Table,
        prefix: Vec<u8>,
        from: Option<Vec<u8>>,
        limit: u32,
        archived: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    Row(Option<Row>),
    /// Rows in order of their keys; where the next page begins, if there is one.
    Page {
        rows: Shared<Vec<(Vec<u8>, Row)>>,
        next: Option<Vec<u8>>,
    },
}

/// A row changed, or went (absent).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub index: u64,
    pub key: Key,
    pub row: Option<Row>,
}

/// Why the store did not do what it was asked for; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    #[error("this replica is at epoch {0:?}: ask for the configuration again")]
    Stale(Epoch),
    #[error("this replica is not the {0} of the shard: ask for the configuration again")]
    NotMine(String),
    #[error("batch {expected} of this client comes next, not this one")]
    Gap { expected: u64 },
    /// A session that begins now is `born: upto`.
    #[error("the session of this client is over, or it never had one")]
    SessionOver { upto: u64 },
    #[error("the key has {bytes} bytes, at most {max} are allowed")]
    KeyTooLong { bytes: u64, max: u64 },
    #[error("the value has {bytes} bytes, at most {max} are allowed")]
    ValueTooLong { bytes: u64, max: u64 },
    #[error("the batch has {0}: send less at once")]
    BatchTooLarge(String),
    #[error("this is no row of table {table:?}: {why}")]
    BadRow { table: Table, why: String },
    #[error("{used} of {cap} bytes are in use, and no finished row is left that could go to disk")]
    Full { used: u64, cap: u64 },
    #[error("the disk of the control store is full or broken: {0}")]
    Disk(String),
    #[error("not now: {0}")]
    Busy(String),
    #[error("{0}")]
    NotAllowed(String),
}

/// First on every connection, both ways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Must be equal.
    pub protocol: u32,
    /// For the message when it is not.
    pub program: String,
    pub cluster: ClusterId,
    pub who: Speaker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Speaker {
    Client(ClientId),
    Replica(ReplicaId),
    Coordinator(ReplicaId),
}

/// From a client to a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// A session is a client's batches of one `born`: the newest entry that ended sessions, as far as the
    /// client was told (by `SessionOver`; 0 at first). Its first batch may have any seq after all that are
    /// `answered`, each following one is one more. A session that ended was born before the entry that
    /// ended it, so what is left of it is refused for ever.
    Update {
        shard: ShardId,
        epoch: Epoch,
        born: u64,
        seq: u64,
        answered: u64,
        ops: Vec<Op>,
    },
    /// `stale`: any replica may answer, from its prefix of history.
    Query {
        shard: ShardId,
        epoch: Epoch,
        request: u64,
        query: Query,
        stale: bool,
    },
    /// Changes of keys with this prefix after entry `after`; `subscription` is the client's number.
    Subscribe {
        shard: ShardId,
        epoch: Epoch,
        subscription: u64,
        table: Table,
        prefix: Vec<u8>,
        after: u64,
        credit: u32,
    },
    /// So many more changes may be sent.
    Credit {
        shard: ShardId,
        subscription: u64,
        more: u32,
    },
    Unsubscribe {
        shard: ShardId,
        subscription: u64,
    },
}

impl Request {
    pub fn shard(&self) -> ShardId {
        match self {
            Self::Update { shard, .. }
            | Self::Query { shard, .. }
            | Self::Subscribe { shard, .. }
            | Self::Credit { shard, .. }
            | Self::Unsubscribe { shard, .. } => *shard,
        }
    }
}

/// From a replica to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response {
    Updated {
        shard: ShardId,
        seq: u64,
        index: u64,
        outcomes: Vec<Outcome>,
    },
    UpdateRefused {
        shard: ShardId,
        seq: u64,
        why: Refusal,
    },
    /// `index`: what the answer reflects.
    Answered {
        request: u64,
        index: u64,
        answer: Answer,
    },
    QueryRefused {
        request: u64,
        why: Refusal,
    },
    /// In order of their indexes: everything of interest after `after` up to `upto`. Who was not told
    /// all up to `after` has missed a message and asks again.
    Changes {
        shard: ShardId,
        subscription: u64,
        after: u64,
        changes: Shared<Vec<Change>>,
        upto: u64,
    },
    /// Changes before `oldest` are not remembered any more: read the table again.
    Missed {
        shard: ShardId,
        subscription: u64,
        oldest: u64,
    },
    /// The subscription ended here: subscribe at the new tail, after the last `upto`.
    SubscriptionEnded {
        shard: ShardId,
        subscription: u64,
        why: Refusal,
    },
}

/// Between neighbours in a chain; `epoch` is the sender's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerMessage {
    pub shard: ShardId,
    pub epoch: Epoch,
    pub body: PeerBody,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerBody {
    // Down the chain.
    /// First of an epoch: how far the sender has logged and committed.
    Sync {
        logged: u64,
        committed: u64,
    },
    /// What follows, in order; up to `stable` it is stable at the sender and all before it.
    Forward {
        records: Vec<Arc<Record>>,
        stable: u64,
        committed: u64,
    },
    /// Good for so long from the moment when the asker sent `asked`.
    LeaseGranted {
        asked: u64,
        for_us: u64,
    },
    // Up the chain.
    /// What the sender has: the last entry that it keeps, and that entry's epoch; absent when it has no
    /// complete base.
    Have {
        last: Option<(u64, Epoch)>,
    },
    Committed {
        index: u64,
    },
    /// From a joining replica: the last entry that it has, and how many chunks of this transfer are stable
    /// there. More is sent as this grows.
    Progress {
        logged: u64,
        chunks: u64,
    },
    LeaseWanted {
        asked: u64,
    },
    // Either way.
    /// Something is expected of the receiver, and it was silent: answered by `Pong`, in any epoch.
    Ping,
    Pong,
    Stale {
        newest: Epoch,
    },
}

/// What a replica that starts finds on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    pub shard: ShardId,
    /// The last configuration that it obeyed.
    pub config: Epoch,
    /// Its last entry, and the epoch of that.
    pub logged: u64,
    pub epoch: Epoch,
}

/// To a coordinator, from replicas and clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToCoordinator {
    /// A replica process is there and may be used.
    Register { member: Member, holds: Vec<Holding> },
    /// Regularly, from registered replicas: the newest epoch in which it acts (it had its predecessor's
    /// `Sync` and has logged as far), for each shard of which it is a member.
    Heartbeat { replica: ReplicaId, epochs: Vec<(ShardId, Epoch)> },
    /// The joining replica has all but the last few entries, stable. Said again with each heartbeat.
    CaughtUp { replica: ReplicaId, shard: ShardId, epoch: Epoch },
    /// It does not answer, or its connection broke. From a neighbour: again while it lasts. Of itself: it
    /// cannot go on (its disk is broken), and registers again when it can.
    Report { shard: ShardId, epoch: Epoch, silent: ReplicaId },
    /// `known`: the sum of epochs that the asker has seen; answered when there is something newer.
    WantConfig { known: u64 },
    /// Of an operator. A node that shall leave, or a replica that shall move.
    Wished(Wish),
    /// Not any more: the node may hold replicas again.
    Unwished(Wish),
}

/// From a coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromCoordinator {
    Config(ClusterConfig),
    /// Another one acts; its address, if it is known.
    NotActing {
        acting: Option<String>,
    },
    Refused {
        why: String,
    },
}
