//! One replica of a shard: a member of its chain, or one that joins it.
//!
//! It follows *Chain Replication for Supporting High Throughput and Availability* (van Renesse and
//! Schneider, OSDI 2004); docs/internals/control.md tells the whole. What it does next is never remembered as a
//! plan: after each event `do_what_is_due` does it for the state as it is.
//!
//! ```text
//!              Configured                          Sync (head: at once)
//!   Outside <-------------> Joining | Member ----------------------------> acting
//!                                ^---------------- next epoch -----------------/
//!
//!   entry:   logged --stable here, and before (tail) | Committed (others)--> committed --> applied
//!
//!   to the successor:   Asked (Sync) --Have--> Streaming
//!                                       \----> Transfer --last chunk--> Streaming
//! ```
//! - **Epochs.** Everything that was said in an older epoch is void, and links begin anew: `Sync` down, `Have`
//!   up, then what follows. `Sync` is said again until `Have` comes, `Have` again where something is missing;
//!   both ends take what they have already as nothing new. So a link heals from every loss by the same few
//!   words.
//! - **Pending** entries stay through every change of a chain's members, and go when a replica joins.
//! - **Quiet.** A member that hears of an epoch whose predecessor had a tail which may still answer neither
//!   commits, nor tells its successor what is stable, nor lends, for `CONTROL_LEASE_WAIT`. An update needs all
//!   members to get committed, so nothing is before the last of them has waited, whoever became tail meanwhile.
//! - **Leases** are asked for by the tail and granted by the head; the members between pass the ask up and the
//!   grant down, as long as they are of that epoch. Every chain that could go on without the tail has
//!   one of them, and that one is quiet first.
//! - **A tail** that was not tail before answers no query before it has applied all that it or its predecessor
//!   had logged then: the old tail may have answered any of it.
//! - **Bounds.** The head holds all that is not committed anywhere, and takes no more when that is too much; so
//!   nobody else has more. A joining replica is never waited for: it is sent what it has room for.
//!
//! # Invariants
//! - CHAIN-1: a member's log is a prefix of its predecessor's (checked across replicas, in `sim`).
//! - CHAIN-2: applied <= committed <= stable here <= logged.
//! - CHAIN-4: (client, seq) is applied at most once (`sessions`).
//! - CHAIN-7: nobody acts in an epoch before the member in front of it does.
//! - CHAIN-9: entries that are not applied are in memory, and follow what is applied.
//!
//! # Cost
//! Instructions of a put (25 B keys, new and in no order among 20,000 rows; 512 B values; batches of 100), as
//! `benches/instructions` counts them. `make test-instructions` fails when one grows by over a tenth.
//!
//! ```text
//!   alone   Request                take, log                 380   (checks 65, an older entry is freed 270)
//!           Logged                 commit, apply, answer    1650
//!   head    Request                take, log, forward        400
//!           Peer(Committed)        apply                    1530
//!   tail    Peer(Forward)          take, log                 310
//!           Logged                 commit, apply, answer    1670
//! ```
//! What only says how far somebody is (the head's `Logged`, the `Forward` that comes of it) costs under 10, since
//! it is one for the batch. To apply a put is to find its key's place (580), to copy key and value (470) and
//! to insert the row (270): a tree with keys that are compared cheaper is what could make all of it faster. Codec,
//! disk and network are not in here.

mod apply;
mod archive;
mod check;
mod cold;
mod down;
mod event;
mod history;
mod lease;
mod log;
mod on_config;
mod on_peer;
mod on_query;
mod on_update;
mod pages;
mod snapshot;
mod start;
mod status;
mod subscribe;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use hoplo_base::limits::{
    CONTROL_MEMORY_BYTES, CONTROL_RECENT_BYTES, CONTROL_SESSION_IDLE, CONTROL_SNAPSHOT_BYTES,
};
use hoplo_base::{Instant, Map, limits};
use hoplo_wire::control::{
    ChainConfig, ClientId, Epoch, PeerBody, PeerMessage, Record, ReplicaId, ShardId,
};

use super::sessions::{BatchId, ClientSessions};
use super::tables::{Covered, Tables};
use archive::Archiving;
use cold::Cold;
use down::Down;
pub use event::{Effect, Event};
use history::History;
use on_query::Queries;
use pages::Pages;
use snapshot::Snapshots;
pub use status::{Found, Role, Status};
use subscribe::Subscriptions;
use watch::Watch;

#[derive(Clone, Debug)]
pub struct ReplicaOptions {
    pub me: ReplicaId,
    pub shard: ShardId,
    /// Rows, sessions and the way to the cold tier; over it, finished rows are archived.
    pub memory_bytes: u64,
    /// Applied entries that are kept for subscribers and returning neighbours.
    pub recent_bytes: u64,
    /// The log gets a snapshot when so much was appended, and at least as much as the rows have.
    pub snapshot_bytes: u64,
    /// A client's session ends when nothing was heard of it for so long.
    pub session_idle: Duration,
    /// There is nothing in the cold tier, so nobody has to look.
    pub cold_is_empty: bool,
}

impl ReplicaOptions {
    pub fn new(me: ReplicaId, shard: ShardId) -> Self {
        Self {
            me,
            shard,
            memory_bytes: CONTROL_MEMORY_BYTES,
            recent_bytes: CONTROL_RECENT_BYTES,
            snapshot_bytes: CONTROL_SNAPSHOT_BYTES,
            session_idle: CONTROL_SESSION_IDLE,
            cold_is_empty: false,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Replica {
    options: ReplicaOptions,
    /// The log is being read.
    replaying: bool,
    /// The newest that it was told.
    config: Option<ChainConfig>,
    role: Role,
    up: Option<Up>,
    down: Option<Down>,
    /// A `Sync` of an epoch that it was not told of yet.
    early: Option<(ReplicaId, PeerMessage)>,
    /// Until then it neither commits, nor tells what is stable, nor lends.
    quiet_until: Instant,
    /// As tail: answers no query before it has applied up to here.
    answers_from: u64,
    /// It became tail in this epoch.
    new_tail: bool,
    lease_until: Instant,
    lease_asked: Option<Instant>,

    history: History,
    /// Entries up to this one are known to be committed.
    known: u64,
    applied: u64,
    /// Entries up to this one are stable here.
    stable: u64,
    tables: Tables,
    sessions: ClientSessions,
    cold: Cold,

    /// Records that were appended in this run.
    numbered: u64,
    /// Those that are stable.
    stable_number: u64,
    to_log: Vec<Arc<Record>>,
    disk_failed: Option<String>,
    disk_reported: Option<Instant>,
    /// A base that it was given and that is not stable yet: number of its last record, mark of the cold tier.
    base_unstable: Option<(u64, u64)>,
    /// The last record of such a base is not logged, and nothing after it, before the cold tier has written up
    /// to this mark: what is archived is not in the log, and a base that is complete there is trusted.
    log_waits: Option<u64>,
    /// The first record of a base that it is given: the archive of before is not touched until that is stable,
    /// so that a log without it has its archive still.
    cold_waits: Option<u64>,
    snapshots: Snapshots,
    /// Entries that the log gives back before the base that they follow.
    before_base: VecDeque<Arc<Record>>,

    /// Head: the last batch of each client that was entered and is not applied.
    entered: Map<ClientId, BatchId>,
    /// Batches that were asked for again while pending: answered here, too.
    asked_again: BTreeSet<(ClientId, u64)>,
    /// Head: when each client's last batch came.
    touched: BTreeMap<ClientId, Instant>,
    expire_at: Instant,
    /// Head: sessions whose end is entered and not applied.
    ending: BTreeSet<ClientId>,
    archiving: Archiving,
    queries: Queries,
    pages: Pages,
    subscriptions: Subscriptions,
    story: VecDeque<String>,
}

/// The predecessor.
#[derive(Clone, Debug)]
struct Up {
    replica: ReplicaId,
    /// It said `Sync` in this epoch.
    synced: bool,
    /// How far it had logged then: with that, this one has all that was ever acknowledged.
    whole_from: u64,
    /// Stable there and before, as far as it said.
    stable: u64,
    /// What it was told: `Committed`, and `Progress`.
    told: (u64, (u64, u64)),
    /// Chunks of the transfer that it gives: how many came, and numbers of those that are not stable.
    chunks: u64,
    chunks_unstable: VecDeque<u64>,
    /// The transfer that it gives.
    receiving: Option<u64>,
    /// Say `Have` again.
    again_at: Option<Instant>,
    /// The coordinator was told that this one has caught up.
    caught_up: bool,
    watch: Watch,
}

impl Replica {
    pub fn new(options: ReplicaOptions, now: Instant) -> Self {
        let mut cold = Cold::default();
        cold.used = !options.cold_is_empty;
        Self {
            options,
            replaying: true,
            config: None,
            role: Role::Outside,
            up: None,
            down: None,
            early: None,
            quiet_until: Instant::ZERO,
            answers_from: 0,
            new_tail: false,
            lease_until: Instant::ZERO,
            lease_asked: None,
            history: History::default(),
            known: 0,
            applied: 0,
            stable: 0,
            tables: Tables::new(),
            sessions: ClientSessions::new(),
            cold,
            numbered: 0,
            stable_number: 0,
            to_log: Vec::new(),
            disk_failed: None,
            disk_reported: None,
            base_unstable: None,
            log_waits: None,
            cold_waits: None,
            snapshots: Snapshots::default(),
            before_base: VecDeque::new(),
            entered: Map::default(),
            asked_again: BTreeSet::new(),
            touched: BTreeMap::new(),
            expire_at: now,
            ending: BTreeSet::new(),
            archiving: Archiving::default(),
            queries: Queries::default(),
            pages: Pages::default(),
            subscriptions: Subscriptions::default(),
            story: VecDeque::new(),
        }
    }

    pub fn handle(&mut self, now: Instant, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Replayed { record } => self.on_replayed(now, record),
            Event::ReplayDone => self.on_replay_done(),
            Event::Configured(config) => self.on_configured(now, config, effects),
            Event::Peer { from, message } => self.on_peer(now, from, message, effects),
            Event::PeerGone { replica } => self.on_peer_gone(now, replica, effects),
            Event::Request { from, request } => self.on_request(now, from, request, effects),
            Event::ClientGone { client } => self.on_client_gone(client),
            Event::Logged { upto } => self.on_logged(upto),
            Event::LogFailed { why } => self.on_log_failed(now, why),
            Event::LogBack => self.on_log_back(now),
            Event::ColdWritten { flush } => self.cold.on_written(flush),
            Event::ColdRow { ticket, row } => self.on_cold_row(ticket, row, effects),
            Event::ColdPage { ticket, rows, until } => {
                self.on_cold_page(now, ticket, rows, until, effects);
            }
            Event::ColdFailed { flush, why } => self.on_cold_failed(now, flush, &why),
            Event::ColdUnread { ticket, why } => self.on_cold_unread(now, ticket, &why, effects),
            Event::SnapshotWanted => self.snapshots.wanted = true,
            Event::Tick => {}
        }
        if self.replaying {
            self.cold.flush(now, false, effects);
        } else {
            self.do_what_is_due(now, effects);
        }
    }

    /// When `Tick` is due at the latest.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.replaying {
            return self.cold.next_deadline();
        }
        let feeds = self.acting() && self.has_base();
        [
            Some(self.quiet_until).filter(|at| *at > Instant::ZERO),
            self.up.as_ref().and_then(|up| up.again_at),
            self.up.as_ref().and_then(|up| up.watch.next_deadline()),
            self.down.as_ref().filter(|_| feeds).and_then(Down::next_deadline),
            self.down.as_ref().and_then(|down| down.watch.next_deadline()),
            self.cold.next_deadline().filter(|_| self.cold_waits.is_none()),
            self.queries.next_deadline(),
            self.next_lease_ask(),
            self.subscriptions.next_deadline(),
            self.disk_reported,
            (self.is_head() && !self.touched.is_empty()).then_some(self.expire_at),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Does what is due.
    fn do_what_is_due(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if self.quiet_until <= now {
            self.quiet_until = Instant::ZERO;
        }
        self.advance_stable();
        self.commit(now);
        self.apply(now, effects);
        self.expire_sessions(now);
        self.archive();
        self.snapshot(effects);
        self.flush_log(effects);
        self.feed(now, effects);
        self.report_up(now, effects);
        self.answer_queries(now, effects);
        self.subscriptions.remind(now);
        self.publish(now, effects);
        self.cold_waits = self.cold_waits.filter(|number| self.stable_number < *number);
        if self.cold_waits.is_none() {
            self.cold.flush(now, self.waits_for_cold(), effects);
        }
        self.trim();
        self.look_after_neighbours(now, effects);
    }

    fn is_head(&self) -> bool {
        matches!(self.role, Role::Member { place: 0, .. })
    }

    fn is_tail(&self) -> bool {
        matches!(self.role, Role::Member { place, of } if place + 1 == of)
    }

    /// All members had a beginning on disk.
    fn has_begun(&self) -> bool {
        self.config.as_ref().is_some_and(|config| !config.unbegun)
    }

    /// It is a member, and the one in front of it acts (CHAIN-7).
    pub fn acting(&self) -> bool {
        matches!(self.role, Role::Member { .. }) && self.up.as_ref().is_none_or(|up| up.synced)
    }

    fn epoch(&self) -> Epoch {
        self.config.as_ref().map_or(Epoch(0), |config| config.epoch)
    }

    /// Its last entry.
    fn last(&self) -> u64 {
        self.history.last()
    }

    fn committed(&self) -> u64 {
        self.known.min(self.stable)
    }

    /// It has rows for all keys.
    fn has_base(&self) -> bool {
        *self.tables.covered() == Covered::All
    }

    /// Too much is on its way to the cold tier: nothing more is acknowledged.
    fn cold_is_full(&self) -> bool {
        self.cold.bytes() > hoplo_base::limits::CONTROL_COLD_BYTES_MAX
    }

    fn send(&self, to: ReplicaId, body: PeerBody, effects: &mut Vec<Effect>) {
        let message = PeerMessage { shard: self.options.shard, epoch: self.epoch(), body };
        effects.push(Effect::Send { to, message });
    }

    fn note(&mut self, now: Instant, line: String) {
        if self.story.len() == limits::CONTROL_STORY_LINES {
            self.story.pop_front();
        }
        self.story.push_back(format!("{:.6} {line}", now.0 as f64 / 1e9));
    }
}
