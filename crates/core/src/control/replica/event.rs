//! What happens to a replica, and what it asks its shell to do.
//!
//! # What the shell promises
//! - Start-up: `Replayed` for each record of the log, in order, then `ReplayDone`, then everything else. What the
//!   log gave back is synced before, whatever the policy: it counts as stable at once.
//! - `Append`, `Truncate` and `SnapshotDone` are carried out in order. `Logged` grows. While the disk fails
//!   (`LogFailed`) what was appended is kept and written once it works again (`LogBack`).
//! - The cold tier works in the order of the effects, and its events come in that order, too.
//! - A connection to a peer is ordered. It is made when something is sent and none is there; where that fails, or
//!   it breaks, `PeerGone` comes after all that came over it.
//! - A response to a client that is not connected is dropped: clients ask again.

use std::sync::Arc;

use hoplo_wire::control::{
    ChainConfig, ClientId, Epoch, Key, PeerMessage, Record, ReplicaId, Request, Response, Row,
    ShardId,
};

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// From the log, in order, before anything else happens.
    Replayed {
        record: Record,
    },
    ReplayDone,
    /// The coordinator says how the chain is; older and equal epochs are ignored.
    Configured(ChainConfig),
    Peer {
        from: ReplicaId,
        message: PeerMessage,
    },
    /// There is no connection to it any more, or none could be made.
    PeerGone {
        replica: ReplicaId,
    },
    Request {
        from: ClientId,
        request: Request,
    },
    ClientGone {
        client: ClientId,
    },
    /// All records up to this number (see `Effect::Append`) are as safe as the shell's policy wants.
    Logged {
        upto: u64,
    },
    LogFailed {
        why: String,
    },
    LogBack,
    ColdWritten {
        flush: u64,
    },
    /// Answers `ColdGet`.
    ColdRow {
        ticket: u64,
        row: Option<Row>,
    },
    /// Answers `ColdScan`: rows in order of their keys. `until`: where the rest begins; absent when there
    /// is no more in the range.
    ColdPage {
        ticket: u64,
        rows: Vec<(Key, Row)>,
        until: Option<Key>,
    },
    /// This flush did not work, and is asked for again.
    ColdFailed {
        flush: u64,
        why: String,
    },
    /// What `ColdGet` or `ColdScan` asked for cannot be read.
    ColdUnread {
        ticket: u64,
        why: String,
    },
    /// Somebody wants the log to be short.
    SnapshotWanted,
    Tick,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// To the log. The records appended by this run of the process are numbered 1, 2, 3, ... (those of
    /// `Replayed` are not counted); `upto` is the last one's number.
    Append {
        records: Vec<Arc<Record>>,
        upto: u64,
    },
    /// The log's entries after this index are void; its chunks are not.
    Truncate {
        after: u64,
    },
    /// This snapshot is complete and safe: of what lies before its first chunk only the entries after its
    /// `as_of` are needed.
    SnapshotDone {
        snapshot: u64,
    },
    Send {
        to: ReplicaId,
        message: PeerMessage,
    },
    Respond {
        to: ClientId,
        response: Response,
    },
    /// One transaction: the ranges (from, until; absent: without an end) are emptied, then rows are put
    /// and deleted. Answered by `ColdWritten` when it is safe, or `ColdFailed`.
    ColdWrite {
        flush: u64,
        clear: Vec<(Option<Key>, Option<Key>)>,
        puts: Vec<(Key, Row)>,
        deletes: Vec<Key>,
    },
    ColdGet {
        ticket: u64,
        key: Key,
    },
    /// From `from` (absent: the first) to before `until`, as many as `limit` or as make about `bytes`; a
    /// page may end earlier, if it says where.
    ColdScan {
        ticket: u64,
        from: Option<Key>,
        until: Option<Key>,
        limit: u32,
        bytes: u64,
    },
    /// To the coordinator, while it is true: this replica is joining and has all but the last few entries, stable.
    CaughtUp {
        shard: ShardId,
        epoch: Epoch,
    },
    /// To the coordinator: this one makes no progress. Of itself: it cannot go on.
    Suspect {
        replica: ReplicaId,
    },
    /// To the coordinator: there is a configuration newer than ours.
    WantConfig {
        epoch: Epoch,
    },
}
