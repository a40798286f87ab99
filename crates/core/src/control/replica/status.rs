//! What a replica says about itself.

use hoplo_base::Instant;
use hoplo_wire::control::{ChainConfig, Epoch, Holding, Key, ReplicaId, Row, ShardId};

use super::cold::Above;
use super::{Replica, apply};
use crate::control::tables::Tables;

/// Its place in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Outside,
    Joining,
    /// 0 is the head, `of` - 1 the tail.
    Member {
        place: usize,
        of: usize,
    },
}

impl Role {
    pub fn of(me: ReplicaId, config: &ChainConfig) -> Self {
        let place = config.members.iter().position(|member| member.replica == me);
        match place {
            Some(place) => Self::Member { place, of: config.members.len() },
            None if config.joining.as_ref().is_some_and(|joining| joining.replica == me) => {
                Self::Joining
            }
            None => Self::Outside,
        }
    }
}

/// For `hoplo control status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub shard: ShardId,
    pub epoch: Epoch,
    pub role: Role,
    /// The epoch in which it acts and has all that was ever acknowledged.
    pub acts: Option<Epoch>,
    /// It joins, and has all but the last few entries.
    pub caught_up: bool,
    pub logged: u64,
    pub stable: u64,
    pub committed: u64,
    pub applied: u64,
    /// Entries that its successor, or who joins, is not known to have.
    pub lag: u64,
    pub rows: u64,
    pub finished_rows: u64,
    /// What counts against the cap.
    pub memory_bytes: u64,
    pub memory_cap: u64,
    /// Entries kept in memory.
    pub history_bytes: u64,
    pub pending_bytes: u64,
    /// Archived rows that the cold tier does not have yet.
    pub cold_bytes: u64,
    /// Entries in the log since the last snapshot.
    pub log_bytes: u64,
    pub sessions: u64,
    pub subscriptions: u64,
    pub queries: u64,
    /// What the log or the cold tier says is wrong.
    pub disk: Option<String>,
}

/// Where a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    Row(&'a Row),
    None,
    /// Not in memory: the cold tier knows.
    AskCold,
}

impl Replica {
    pub fn status(&self) -> Status {
        let behind = match &self.down {
            Some(down) if down.is_joining() => down.acked(),
            Some(_) => self.known,
            None => self.last(),
        };
        Status {
            shard: self.options.shard,
            epoch: self.epoch(),
            role: self.role,
            acts: self.acts(),
            caught_up: self.caught_up(),
            logged: self.last(),
            stable: self.stable,
            committed: self.committed(),
            applied: self.applied,
            lag: self.last().saturating_sub(behind),
            rows: self.tables.len() as u64,
            finished_rows: self.tables.finished_rows() as u64,
            memory_bytes: self.used_bytes(),
            memory_cap: self.options.memory_bytes,
            history_bytes: self.history.bytes(),
            pending_bytes: self.pending_bytes(),
            cold_bytes: self.cold.bytes(),
            log_bytes: self.snapshots.log_bytes(),
            sessions: self.sessions.len() as u64,
            subscriptions: self.subscriptions.len() as u64,
            queries: self.queries.len() as u64,
            disk: self.disk_failed.clone().or_else(|| self.cold.failed.clone()),
        }
    }

    /// What it registers with. `logged` is 0 when its base is not complete.
    pub fn holding(&self) -> Holding {
        let (logged, epoch) =
            if self.has_base() { (self.last(), self.last_epoch()) } else { (0, Epoch(0)) };
        Holding { shard: self.options.shard, config: self.epoch().max(epoch), logged, epoch }
    }

    /// It cannot log: it registers again when it can.
    pub fn log_fails(&self) -> bool {
        self.disk_failed.is_some()
    }

    pub fn config(&self) -> Option<&ChainConfig> {
        self.config.as_ref()
    }

    /// The rows as applied, for who lives in the same process.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// A row as applied, hot or archived, as far as that is known without the cold tier.
    pub fn find(&self, key: &Key) -> Found<'_> {
        match self.tables.get(key) {
            Some(row) => Found::Row(row),
            None if !self.cold.used || !apply::archivable(key.table) => Found::None,
            None => match self.cold.above(key) {
                Above::Row(row) => Found::Row(row),
                Above::Gone => Found::None,
                Above::Nothing => Found::AskCold,
            },
        }
    }

    /// The entry itself, if it is in memory; for checks across replicas.
    pub fn entry(&self, index: u64) -> Option<&hoplo_wire::control::Entry> {
        self.history.get(index).map(|kept| super::history::entry(&kept.record))
    }

    /// It would answer a query as the tail now.
    pub fn answers(&self, now: Instant) -> bool {
        self.may_answer(now)
    }

    /// Why it does not answer queries, or how it is otherwise, for people.
    pub fn explain(&self, now: Instant) -> String {
        if self.is_tail() && !self.may_answer(now) {
            return self.why_not_answering(now);
        }
        format!("{:?} in epoch {}, applied {}", self.role, self.epoch().0, self.applied)
    }

    /// The last things that happened, oldest first.
    pub fn story(&self) -> String {
        self.story.iter().fold(String::new(), |story, line| story + line + "\n")
    }
}
