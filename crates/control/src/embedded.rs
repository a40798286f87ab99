//! One shard with one replica inside its caller's loop: the control store of a head.
//!
//! ```text
//!   put, cas, delete, requests --> Replica machine --> records in a buffer      (at once: applied, answered)
//!                                                            |
//!   flush(), before the turn's replies are sent -------------+--> log file ---> synced by a thread, or here
//! ```
//! The same machine, log and cold tier as in a cluster; there is no coordinator. Each life is an epoch of its own in which
//! this replica is head and tail. A record counts as stable as soon as it is in the buffer, because nobody outside hears
//! of it before [`Embedded::flush`] has written the buffer. If that fails, it says so, nothing more is taken, and the same
//! bytes are tried again with the next flush. [`crate::net::alone`] serves it to the other nodes.
//!
//! **What others know of it.** Where it goes on with less than it acknowledged, those who were told have to hear so: its history begins
//! with that life's epoch (`ChainConfig::history`), in that life and all later ones. Whether something acknowledged is missing cannot be seen
//! after the machine went down, since the log is synced behind; so that counts as a loss, too. `history.json` keeps it.
//!
//! # Invariants
//! - EMB-1: what was answered after a flush that worked is there after `kill -9` of the process.
//! - EMB-2: an update is refused, or applied when its call returns.
//! - EMB-3: answers to others wait until a flush worked.

use std::collections::VecDeque;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use hoplo_base::limits::{CONTROL_COLD_CACHE_BYTES, CONTROL_COLD_PATIENCE};
use hoplo_base::{Instant, NodeId};
use hoplo_core::control::replica::{Effect, Event, Found, Replica, ReplicaOptions, Status};
use hoplo_core::control::{CasError, ControlStore, Page};
use hoplo_wire::control::{
    ChainConfig, Change, ClientId, ClusterId, Epoch, Key, Member, Op, Outcome, Refusal, ReplicaId,
    Request, Response, Row, ShardId, Table,
};
use rustix::event::{EventfdFlags, eventfd};
use serde::{Deserialize, Serialize};

use crate::clock::micros_since_1970;
use crate::disk::cold::{
    self, ColdError, ColdOptions, ColdReport, ColdThread, Flush, Range, Retention, Usage,
};
use crate::disk::log::{self, Cut, Fsync, LogError, LogOptions, Recovery, Writer};
use crate::report::ShardReport;

#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    /// Log and cold tier; made if it is not there.
    pub folder: PathBuf,
    pub fsync: Fsync,
    /// For rows and the archive's cache together.
    pub memory_bytes: u64,
    /// The log gets a snapshot when so much was appended, and at least as much as the rows have.
    pub snapshot_bytes: u64,
    pub retention: Retention,
    /// What is damaged is set aside, and the store goes on with the rest; else it is an error.
    pub accept_loss: bool,
    /// Who it is to others.
    pub node: NodeId,
}

impl EmbeddedOptions {
    /// What a laptop has room for.
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            fsync: Fsync::Background(Duration::from_millis(100)),
            memory_bytes: 128 << 20,
            snapshot_bytes: 16 << 20,
            retention: Retention::DEFAULT,
            accept_loss: false,
            node: NodeId(0),
        }
    }
}

/// The store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the control store cannot be read: {0}")]
    Log(#[from] LogError),
    #[error("the control store's archive cannot be read: {0}")]
    Cold(#[from] ColdError),
    #[error("the control store in {0} is incomplete: its log begins with no snapshot")]
    NoBase(PathBuf),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// What a start found, for the daemon's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start {
    pub rows: u64,
    /// The end of the log: not finished by the last process, lost with the machine, or damaged and given up.
    pub cut: Option<Cut>,
    /// The whole log was of no use and given up: where it lies now, and why.
    pub unreadable: Option<(PathBuf, String)>,
    /// The archive was damaged, or taken away, and given up: what was wrong, and where it lies now if it is there.
    pub lost_archive: Option<(String, Option<PathBuf>)>,
}

#[derive(Debug)]
pub struct Embedded {
    folder: PathBuf,
    replica: Replica,
    log: Writer,
    cold: ColdThread,
    reports: Receiver<ColdReport>,
    /// Readable when the cold tier has reported something.
    wake: Arc<OwnedFd>,
    me: ReplicaId,
    history: Epoch,
    client: ClientId,
    /// Of its session, and the last update (see `Request::Update`).
    born: u64,
    seq: u64,
    epoch: Epoch,
    effects: Vec<Effect>,
    /// To `client`.
    responses: VecDeque<Response>,
    /// To others, when the log is written.
    answers: Vec<(ClientId, Response)>,
    /// Of the table that is watched.
    changes: Vec<Change>,
    /// The log could not be written, and the machine knows.
    failed: bool,
    pub start: Start,
}

/// The cluster of a node by itself.
pub(crate) const CLUSTER: ClusterId = ClusterId(0);
pub(crate) const SHARD: ShardId = ShardId(0);

/// What others have to know of earlier lives: `history.json`.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Before {
    /// What was said of entries in older epochs is void.
    history: Epoch,
    /// The machine has not gone down since.
    boot: u32,
}

impl Before {
    const FILE: &str = "history.json";

    fn read(folder: &Path) -> Option<Self> {
        let bytes = fs::read(folder.join(Self::FILE)).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Where it is not there afterwards, the next life takes everything for lost.
    fn write(self, folder: &Path) -> std::io::Result<()> {
        let beside = folder.join("history.json.new");
        fs::write(&beside, serde_json::to_vec(&self)?)?;
        fs::rename(&beside, folder.join(Self::FILE))
    }
}

impl OpenError {
    /// Something that was written is not there any more: `accept_loss` goes on without it.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Log(error) => error.is_damage(),
            Self::NoBase(_) => true,
            Self::Cold(error) => error.is_damage(),
            Self::Io(_) => false,
        }
    }
}

impl Embedded {
    pub fn open(options: EmbeddedOptions) -> Result<Self, OpenError> {
        match Self::open_log(options.clone()) {
            // What is left of it makes no sense.
            Err(damage) if options.accept_loss && damage.is_damage() => {
                let log = log::set_aside(&options.folder)?;
                cold::set_aside(&options.folder.join("cold.redb"))?;
                let mut store = Self::open_log(options)?;
                store.start.unreadable = Some((log, damage.to_string()));
                Ok(store)
            }
            other => other,
        }
    }

    fn open_log(options: EmbeddedOptions) -> Result<Self, OpenError> {
        std::fs::create_dir_all(&options.folder)?;
        let log_options = LogOptions {
            folder: options.folder.clone(),
            cluster: CLUSTER,
            shard: SHARD,
            fsync: options.fsync,
            segment_bytes: options.snapshot_bytes,
            ahead: true,
            boot: log::this_boot(),
        };
        let log = match options.accept_loss {
            true => Recovery::open_with_loss(log_options)?,
            false => Recovery::open(log_options)?,
        };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = Arc::new(wake.map_err(std::io::Error::from)?);
        let mut start = Start { cut: log.cut.clone(), ..Start::default() };
        let path = options.folder.join("cold.redb");
        let (cold, reports) = match start_cold(&options, &path, &wake) {
            Err(error) if options.accept_loss && error.is_damage() => {
                start.lost_archive = Some((error.to_string(), cold::set_aside(&path)?));
                start_cold(&options, &path, &wake)?
            }
            other => other?,
        };
        let me = ReplicaId { node: options.node, incarnation: micros_since_1970() };
        let mut machine = ReplicaOptions::new(me, SHARD);
        machine.memory_bytes = options.memory_bytes - cache_bytes(&options) as u64;
        machine.snapshot_bytes = options.snapshot_bytes;
        machine.cold_is_empty = cold.usage().rows == 0;
        let mut replica = Replica::new(machine, clock());
        let mut effects = Vec::new();
        for record in log.records() {
            replica.handle(clock(), Event::Replayed { record: record? }, &mut effects);
            carry_out_cold(&mut effects, &cold);
        }
        let begins = log.is_empty();
        let mut store = Self {
            folder: options.folder.clone(),
            replica,
            log: log.into_writer(),
            cold,
            reports,
            wake,
            me,
            history: Epoch::first(),
            client: ClientId(micros_since_1970()),
            born: 0,
            seq: 0,
            epoch: Epoch(1),
            effects,
            responses: VecDeque::new(),
            answers: Vec::new(),
            changes: Vec::new(),
            failed: false,
            start,
        };
        store.handle(Event::ReplayDone);
        let holding = store.replica.holding();
        store.epoch = holding.epoch;
        let begun = holding.epoch > Epoch(0);
        if !begun && !begins {
            return Err(OpenError::NoBase(options.folder));
        }
        if !begun {
            store.configure(true);
        }
        store.remember_losses(begun)?;
        store.configure(false);
        store.start.rows = store.replica.status().rows;
        store.flush().map_err(|why| OpenError::Io(std::io::Error::other(why.to_string())))?;
        Ok(store)
    }

    /// Before the epoch of this life: whether something that was acknowledged may be missing.
    fn remember_losses(&mut self, begun: bool) -> std::io::Result<()> {
        let (boot, next) = (log::this_boot(), Epoch(self.epoch.0 + 1));
        let before = Before::read(&self.folder);
        let whole = before.is_some_and(|it| it.boot == boot) && self.start.is_whole();
        self.history = match before {
            _ if !begun => Epoch::first(),
            Some(before) if whole => before.history,
            Some(_) | None => next,
        };
        Before { history: self.history, boot }.write(&self.folder)
    }

    /// The next epoch.
    fn configure(&mut self, unbegun: bool) {
        self.epoch = Epoch(self.epoch.0 + 1);
        self.handle(Event::Configured(self.chain(String::new(), unbegun)));
    }

    fn chain(&self, address: String, unbegun: bool) -> ChainConfig {
        ChainConfig {
            shard: SHARD,
            epoch: self.epoch,
            members: vec![Member { replica: self.me, address }],
            joining: None,
            added: None,
            old_tail_gone: true,
            history: self.history,
            unbegun,
        }
    }

    /// From now on [`Embedded::take_changes`] has what changes in this table, whoever changes it. One at a time.
    pub fn watch(&mut self, table: Table) {
        let (epoch, after) = (self.epoch, self.replica.status().applied);
        let (subscription, prefix, credit) = (1, Vec::new(), u32::MAX);
        let request =
            Request::Subscribe { shard: SHARD, epoch, subscription, table, prefix, after, credit };
        self.handle(Event::Request { from: self.client, request });
    }

    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    // ---- for others ----

    pub(crate) fn me(&self) -> ReplicaId {
        self.me
    }

    /// As others see it who reach it there.
    pub(crate) fn chain_at(&self, address: &str) -> ChainConfig {
        self.chain(address.to_string(), false)
    }

    /// What it says to that is among the [`Embedded::take_answers`] of this turn or a later one.
    pub(crate) fn request(&mut self, from: ClientId, request: Request) {
        if from != self.client {
            self.handle(Event::Request { from, request });
        }
    }

    pub(crate) fn client_gone(&mut self, client: ClientId) {
        self.handle(Event::ClientGone { client });
        self.answers.retain(|(to, _)| *to != client);
    }

    /// EMB-3: nothing while the log could not be written.
    pub(crate) fn take_answers(&mut self) -> Vec<(ClientId, Response)> {
        if self.failed || self.log.has_unflushed() {
            return Vec::new();
        }
        std::mem::take(&mut self.answers)
    }

    /// One batch: all of it is applied, or it is refused.
    pub fn update(&mut self, ops: Vec<Op>) -> Result<Vec<Outcome>, Refusal> {
        let deadline = clock() + CONTROL_COLD_PATIENCE;
        loop {
            let waits = self.replica.status().disk.is_none();
            match self.try_update(ops.clone(), deadline) {
                // Nothing is lost with it: each update is answered before the next one comes.
                Err(Refusal::SessionOver { upto }) if upto != self.born => self.born = upto,
                Err(Refusal::Busy(_)) if waits && clock() < deadline => {
                    self.wait_for_cold(deadline);
                }
                done => return done,
            }
        }
    }

    /// What was answered so far survives this process once this returns. After an error everything is
    /// kept, and nothing more is taken until a flush works again.
    pub fn flush(&mut self) -> Result<(), Refusal> {
        self.take_reports();
        if !self.log.has_unflushed() && !self.failed {
            return Ok(());
        }
        match self.log.flush() {
            Ok(()) => {
                if std::mem::take(&mut self.failed) {
                    self.handle(Event::LogBack);
                }
                Ok(())
            }
            Err(error) => {
                let why = error.to_string();
                if !std::mem::replace(&mut self.failed, true) {
                    self.handle(Event::LogFailed { why: why.clone() });
                }
                Err(Refusal::Disk(why))
            }
        }
    }

    /// Everything on disk.
    pub fn close(mut self) -> Result<(), Refusal> {
        self.flush()?;
        self.log.close().map_err(|error| Refusal::Disk(error.to_string()))
    }

    /// Readable when [`Embedded::flush`] has reports of the cold tier to take.
    pub fn wake(&self) -> impl AsFd {
        &*self.wake
    }

    /// When [`Embedded::tick`] is due: only while something is on its way to the cold tier or somebody else is there, so that
    /// an idle node sleeps.
    pub fn next_deadline(&self) -> Option<Instant> {
        let status = self.replica.status();
        let others = status.sessions > 1 || status.subscriptions > 0;
        (status.cold_bytes > 0 || others).then(|| self.replica.next_deadline()).flatten()
    }

    pub fn tick(&mut self) {
        self.handle(Event::Tick);
    }

    pub fn status(&self) -> Status {
        self.replica.status()
    }

    pub fn archive(&self) -> Usage {
        self.cold.usage()
    }

    pub fn log_bytes(&self) -> u64 {
        self.log.bytes()
    }

    pub fn report(&self) -> ShardReport {
        let aside = self.start.lost_archive.as_ref().map(|(why, aside)| match aside {
            Some(path) => format!("{why}; it lies in {}", path.display()),
            None => why.clone(),
        });
        ShardReport::new(&self.replica, self.archive(), &self.folder, aside)
    }

    /// A snapshot now, so that the log becomes short.
    pub fn compact(&mut self) {
        self.handle(Event::SnapshotWanted);
    }

    /// The archive as well as memory; waits for the disk.
    pub fn find(&self, key: &Key) -> Result<Option<Row>, Refusal> {
        match self.replica.find(key) {
            Found::Row(row) => Ok(Some(row.clone())),
            Found::None => Ok(None),
            Found::AskCold => {
                self.cold.ask(key.clone()).map_err(|error| Refusal::Disk(error.to_string()))
            }
        }
    }

    fn try_update(&mut self, ops: Vec<Op>, deadline: Instant) -> Result<Vec<Outcome>, Refusal> {
        let (seq, answered) = (self.seq + 1, self.seq);
        let (epoch, born) = (self.epoch, self.born);
        let request = Request::Update { shard: SHARD, epoch, born, seq, answered, ops };
        self.handle(Event::Request { from: self.client, request });
        loop {
            match self.responses.pop_front() {
                Some(Response::Updated { seq: of, outcomes, .. }) if of == seq => {
                    self.seq = seq;
                    return Ok(outcomes);
                }
                Some(Response::UpdateRefused { seq: of, why, .. }) if of == seq => return Err(why),
                Some(_) => {}
                // It is entered, and waits until the cold tier has taken more: it cannot be taken back.
                None => self.wait_for_cold(deadline + CONTROL_COLD_PATIENCE),
            }
        }
    }

    fn handle(&mut self, event: Event) {
        self.replica.handle(clock(), event, &mut self.effects);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while !self.effects.is_empty() {
            carry_out_cold(&mut self.effects, &self.cold);
            let mut logged = None;
            for effect in std::mem::take(&mut self.effects) {
                match effect {
                    Effect::Append { records, upto } => {
                        records.iter().for_each(|record| self.log.append(record));
                        logged = Some(upto);
                    }
                    Effect::Truncate { after } => self.log.truncate(after),
                    Effect::SnapshotDone { snapshot } => self.log.snapshot_done(snapshot),
                    Effect::Respond { to, response } if to == self.client => match response {
                        Response::Changes { changes, .. } => {
                            self.changes.extend(changes.into_value())
                        }
                        other => self.responses.push_back(other),
                    },
                    Effect::Respond { to, response } => self.answers.push((to, response)),
                    // There is nobody else.
                    Effect::Send { .. }
                    | Effect::CaughtUp { .. }
                    | Effect::Suspect { .. }
                    | Effect::WantConfig { .. } => {}
                    Effect::ColdWrite { .. } | Effect::ColdGet { .. } | Effect::ColdScan { .. } => {
                        unreachable!("they were taken out before")
                    }
                }
            }
            if let Some(upto) = logged {
                self.replica.handle(clock(), Event::Logged { upto }, &mut self.effects);
            }
        }
    }

    fn take_reports(&mut self) {
        while let Ok(report) = self.reports.try_recv() {
            let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
            self.handle(event_of(report));
        }
    }

    fn wait_for_cold(&mut self, deadline: Instant) {
        let now = clock();
        let due = self.replica.next_deadline().unwrap_or(deadline).min(deadline);
        match self.reports.recv_timeout(due.since(now)) {
            Ok(report) => self.handle(event_of(report)),
            Err(_) => self.tick(),
        }
    }

    fn write(&mut self, op: Op) -> Result<Outcome, Refusal> {
        let outcomes = self.update(vec![op])?;
        Ok(outcomes[0])
    }
}

impl ControlStore for Embedded {
    fn get(&self, key: &Key) -> Option<Row> {
        self.replica.tables().get(key).cloned()
    }

    fn put(&mut self, key: Key, value: Vec<u8>) -> Result<u64, Refusal> {
        let put = Op::Put { key, value, expected: None, finished: false };
        self.write(put).map(version_of)
    }

    fn finish(&mut self, key: Key, value: Vec<u8>) -> Result<u64, Refusal> {
        let put = Op::Put { key, value, expected: None, finished: true };
        self.write(put).map(version_of)
    }

    fn cas(&mut self, key: Key, expected: u64, value: Vec<u8>) -> Result<u64, CasError> {
        let put = Op::Put { key, value, expected: Some(expected), finished: false };
        match self.write(put)? {
            Outcome::Done { version } => Ok(version),
            Outcome::Conflict { found } => Err(CasError::Conflict { expected, found }),
        }
    }

    fn delete(&mut self, key: &Key) -> Result<Option<Row>, Refusal> {
        let row = self.get(key);
        if row.is_some() || matches!(self.replica.find(key), Found::AskCold) {
            self.write(Op::Delete { key: key.clone(), expected: None })?;
        }
        Ok(row)
    }

    fn scan(&self, table: Table, prefix: &[u8], from: Option<&[u8]>, limit: usize) -> Page {
        self.replica.tables().scan(table, prefix, from, limit, usize::MAX)
    }
}

/// A small store has a small cache.
fn cache_bytes(options: &EmbeddedOptions) -> usize {
    let share = usize::try_from(options.memory_bytes / 8).unwrap_or(CONTROL_COLD_CACHE_BYTES);
    share.min(CONTROL_COLD_CACHE_BYTES)
}

fn start_cold(
    options: &EmbeddedOptions,
    path: &Path,
    wake: &Arc<OwnedFd>,
) -> Result<(ColdThread, Receiver<ColdReport>), ColdError> {
    let (sender, reports) = channel();
    let wake = Arc::clone(wake);
    let cold = ColdOptions {
        path: path.to_path_buf(),
        cluster: CLUSTER,
        shard: SHARD,
        retention: options.retention,
        cache_bytes: cache_bytes(options),
    };
    let thread = ColdThread::start(cold, move |report| {
        let _ = sender.send(report);
        let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
    })?;
    Ok((thread, reports))
}

impl Start {
    /// Nothing that was written is known to be missing.
    fn is_whole(&self) -> bool {
        self.cut.is_none() && self.unreadable.is_none() && self.lost_archive.is_none()
    }
}

/// Gives what is for the cold tier to it; the rest stays, in order.
fn carry_out_cold(effects: &mut Vec<Effect>, cold: &ColdThread) {
    for effect in std::mem::take(effects) {
        match effect {
            Effect::ColdWrite { flush, clear, puts, deletes } => {
                cold.write(flush, Flush { clear, puts, deletes });
            }
            Effect::ColdGet { ticket, key } => cold.get(ticket, key),
            Effect::ColdScan { ticket, from, until, limit, bytes } => {
                cold.scan(ticket, Range { from, until, limit, bytes });
            }
            other => effects.push(other),
        }
    }
}

fn event_of(report: ColdReport) -> Event {
    match report {
        ColdReport::Written { flush } => Event::ColdWritten { flush },
        ColdReport::Row { ticket, row } => Event::ColdRow { ticket, row },
        ColdReport::Page { ticket, page: (rows, until) } => Event::ColdPage { ticket, rows, until },
        ColdReport::NotWritten { flush, error } => {
            Event::ColdFailed { flush, why: error.to_string() }
        }
        ColdReport::Unread { ticket, error } => {
            Event::ColdUnread { ticket, why: error.to_string() }
        }
    }
}

fn version_of(outcome: Outcome) -> u64 {
    match outcome {
        Outcome::Done { version } => version,
        Outcome::Conflict { found } => unreachable!("a put without condition found {found}"),
    }
}

/// CLOCK_MONOTONIC.
fn clock() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Instant(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests;
