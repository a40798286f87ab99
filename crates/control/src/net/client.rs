//! The client as programs use it: from any thread, blocking, with a deadline on everything.
//!
//! A thread of its own turns the [`Driver`]; callers leave their calls in its inbox and ring. Calls of many callers
//! travel together (the machine batches them). Who has too many bytes underway waits for room before
//! the call begins.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hoplo_base::limits::{CONTROL_CLIENT_GRACE, CONTROL_CLIENT_QUEUE_BYTES_MAX};
use hoplo_core::control::client::{Call, CallError, Done, Event};
use hoplo_net::poll::Bell;
use hoplo_wire::control::{
    Change, ClusterConfig, Key, Op, Outcome as Applied, Query, Row, ShardId, Table,
};

use super::cluster::Cluster;
use super::driver::{Driver, Outcome};

pub struct ControlClient {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    inbox: Mutex<Inbox>,
    room: Condvar,
    bell: Bell,
    config: Mutex<Option<ClusterConfig>>,
}

#[derive(Default)]
struct Inbox {
    commands: Vec<Command>,
    /// Of updates from when they begin until they end.
    bytes: usize,
    ended: bool,
}

enum Command {
    Call {
        what: Call,
        bytes: usize,
        deadline: Instant,
        reply: SyncSender<Reply>,
    },
    Subscribe {
        table: Table,
        prefix: Vec<u8>,
        after: Vec<u64>,
        credit: u32,
        told: Sender<Told>,
        id: u64,
    },
    Consumed {
        id: u64,
        shard: ShardId,
        changes: u32,
    },
    Resume {
        id: u64,
        shard: ShardId,
        after: u64,
    },
    Unsubscribe {
        id: u64,
    },
}

type Reply = Result<Done, CallError>;

/// A call that is underway.
pub struct Pending {
    reply: Receiver<Reply>,
    deadline: Instant,
}

/// Changes of the keys with one prefix, from all shards; each shard's in order.
pub struct Subscription {
    shared: Arc<Shared>,
    id: u64,
    told: Receiver<Told>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Everything of interest in this shard up to entry `upto` has been told.
    Changes { shard: ShardId, changes: Vec<Change>, upto: u64 },
    /// Changes before `oldest` are forgotten: read the table again, and [`Subscription::resume`].
    Missed { shard: ShardId, oldest: u64 },
}

/// Rows of one page, where the next begins, and which entry of each shard it reflects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub rows: Vec<(Vec<u8>, Row)>,
    pub next: Option<Vec<u8>>,
    pub indexes: Vec<u64>,
}

impl Page {
    /// What a scan gives.
    pub fn of(done: Done) -> Self {
        match done {
            Done::Page { rows, next, indexes } => Self { rows, next, indexes },
            Done::Updated(_) | Done::Row(_) => unreachable!("a scan gives a page"),
        }
    }
}

impl ControlClient {
    pub fn connect(cluster: &Cluster) -> io::Result<Self> {
        let driver = Driver::new(cluster)?;
        let shared = Arc::new(Shared {
            inbox: Mutex::new(Inbox::default()),
            room: Condvar::new(),
            bell: driver.bell(),
            config: Mutex::new(None),
        });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("hoplo:control".to_string())
            .spawn(move || Turner::new(driver, theirs).run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    pub fn get(&self, key: Key, timeout: Duration) -> Result<Option<Row>, CallError> {
        let query = Query::Get { key };
        match self.start(Call::Query { query, stale: false }, timeout)?.wait()? {
            Done::Row(row) => Ok(row),
            Done::Updated(_) | Done::Page { .. } => unreachable!("a get gives a row"),
        }
    }

    /// Writes if the row's version is `expected` (0: if there is none; absent: in any case).
    pub fn put(
        &self,
        key: Key,
        value: Vec<u8>,
        expected: Option<u64>,
        timeout: Duration,
    ) -> Result<Applied, CallError> {
        let put = Op::Put { key, value, expected, finished: false };
        Ok(self.batch(vec![put], timeout)?[0])
    }

    pub fn delete(
        &self,
        key: Key,
        expected: Option<u64>,
        timeout: Duration,
    ) -> Result<Applied, CallError> {
        Ok(self.batch(vec![Op::Delete { key, expected }], timeout)?[0])
    }

    /// Outcomes in the order of the operations.
    pub fn batch(&self, ops: Vec<Op>, timeout: Duration) -> Result<Vec<Applied>, CallError> {
        match self.start(Call::Update(ops), timeout)?.wait()? {
            Done::Updated(outcomes) => Ok(outcomes),
            Done::Row(_) | Done::Page { .. } => unreachable!("an update gives outcomes"),
        }
    }

    pub fn scan(
        &self,
        table: Table,
        prefix: Vec<u8>,
        from: Option<Vec<u8>>,
        limit: u32,
        timeout: Duration,
    ) -> Result<Page, CallError> {
        Ok(Page::of(self.start_scan(table, prefix, from, limit, timeout)?.wait()?))
    }

    /// The same, for who has other things to do meanwhile; what it gives is a page.
    pub fn start_scan(
        &self,
        table: Table,
        prefix: Vec<u8>,
        from: Option<Vec<u8>>,
        limit: u32,
        timeout: Duration,
    ) -> Result<Pending, CallError> {
        let query = Query::Scan { table, prefix, from, limit, archived: false };
        self.start(Call::Query { query, stale: false }, timeout)
    }

    /// Begins a call; waits for room first, no longer than `timeout`.
    pub fn start(&self, what: Call, timeout: Duration) -> Result<Pending, CallError> {
        let deadline = Instant::now() + timeout;
        let bytes = bytes_of(&what);
        let mut inbox = self.shared.inbox();
        while inbox.bytes > 0 && inbox.bytes + bytes > CONTROL_CLIENT_QUEUE_BYTES_MAX {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let waiting = format!("{} bytes of updates are underway already", inbox.bytes);
                return Err(CallError::Late { may_apply: false, waiting });
            }
            let woken = self.shared.room.wait_timeout(inbox, left);
            inbox = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        inbox.bytes += bytes;
        let (reply, answer) = sync_channel(1);
        self.shared.post(inbox, Command::Call { what, bytes, deadline, reply });
        Ok(Pending { reply: answer, deadline })
    }

    /// From `after` on (by shard; missing: from the beginning). At most `credit` changes of a shard wait here.
    pub fn subscribe(
        &self,
        table: Table,
        prefix: Vec<u8>,
        after: Vec<u64>,
        credit: u32,
    ) -> Subscription {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        // Only its being different from others counts.
        let id = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (told, hears) = channel();
        let subscribe =
            Command::Subscribe { table, prefix, after, credit: credit.max(1), told, id };
        self.shared.post(self.shared.inbox(), subscribe);
        Subscription { shared: Arc::clone(&self.shared), id, told: hears }
    }

    /// As calls go by it now; absent before a coordinator has answered.
    pub fn config(&self) -> Option<ClusterConfig> {
        self.shared.config.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ControlClient {
    fn drop(&mut self) {
        self.shared.inbox().ended = true;
        self.shared.bell.ring();
        if let Some(thread) = self.thread.take() {
            // It panicked already where it did: nothing is left to be said.
            let _ = thread.join();
        }
    }
}

impl Pending {
    /// At the call's deadline at the latest.
    pub fn wait(self) -> Result<Done, CallError> {
        let left = self.deadline.saturating_duration_since(Instant::now()) + CONTROL_CLIENT_GRACE;
        self.reply.recv_timeout(left).unwrap_or_else(|_| {
            let waiting = "the client was closed".to_string();
            Err(CallError::Late { may_apply: true, waiting })
        })
    }
}

impl Subscription {
    /// The next word; absent if none came in time. Makes room for more.
    pub fn next(&self, timeout: Duration) -> Option<Told> {
        let told = match self.told.recv_timeout(timeout) {
            Ok(told) => told,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
        };
        if let Told::Changes { shard, changes, .. } = &told {
            let (shard, changes) = (*shard, changes.len() as u32);
            self.shared
                .post(self.shared.inbox(), Command::Consumed { id: self.id, shard, changes });
        }
        Some(told)
    }

    /// The table was read again, as of entry `after` of this shard.
    pub fn resume(&self, shard: ShardId, after: u64) {
        self.shared.post(self.shared.inbox(), Command::Resume { id: self.id, shard, after });
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.shared.post(self.shared.inbox(), Command::Unsubscribe { id: self.id });
    }
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn post(&self, mut inbox: MutexGuard<'_, Inbox>, command: Command) {
        let first = inbox.commands.is_empty();
        inbox.commands.push(command);
        drop(inbox);
        if first {
            self.bell.ring();
        }
    }
}

struct Turner {
    driver: Driver,
    shared: Arc<Shared>,
    calls: BTreeMap<u64, (SyncSender<Reply>, usize)>,
    subscriptions: BTreeMap<u64, Sender<Told>>,
    epochs: u64,
}

impl Turner {
    fn new(driver: Driver, shared: Arc<Shared>) -> Self {
        Self { driver, shared, calls: BTreeMap::new(), subscriptions: BTreeMap::new(), epochs: 0 }
    }

    fn run(mut self) {
        loop {
            let mut inbox = self.shared.inbox();
            if inbox.ended {
                return;
            }
            let commands = std::mem::take(&mut inbox.commands);
            drop(inbox);
            for command in commands {
                self.begin(command);
            }
            self.hand_out();
            self.driver.turn(None).expect("epoll works for as long as the process has descriptors");
            self.hand_out();
        }
    }

    fn begin(&mut self, command: Command) {
        match command {
            Command::Call { what, bytes, deadline, reply } => {
                let call = self.driver.start(what, deadline);
                self.calls.insert(call, (reply, bytes));
            }
            Command::Subscribe { table, prefix, after, credit, told, id } => {
                self.subscriptions.insert(id, told);
                let subscription = id;
                self.driver.handle(Event::Subscribe { subscription, table, prefix, after, credit });
            }
            Command::Consumed { id, shard, changes } => {
                self.driver.handle(Event::Consumed { subscription: id, shard, changes });
            }
            Command::Resume { id, shard, after } => {
                self.driver.handle(Event::Resume { subscription: id, shard, after });
            }
            Command::Unsubscribe { id } => {
                self.subscriptions.remove(&id);
                self.driver.handle(Event::Unsubscribe { subscription: id });
            }
        }
    }

    fn hand_out(&mut self) {
        let mut freed = 0;
        for outcome in self.driver.results.drain(..) {
            // Who does not listen any more has dropped its end: nothing is lost.
            match outcome {
                Outcome::Finished { call, result } => {
                    if let Some((reply, bytes)) = self.calls.remove(&call) {
                        freed += bytes;
                        let _ = reply.send(result);
                    }
                }
                Outcome::Changes { subscription, shard, changes, upto } => {
                    if let Some(told) = self.subscriptions.get(&subscription) {
                        let _ = told.send(Told::Changes { shard, changes, upto });
                    }
                }
                Outcome::Missed { subscription, shard, oldest } => {
                    if let Some(told) = self.subscriptions.get(&subscription) {
                        let _ = told.send(Told::Missed { shard, oldest });
                    }
                }
                Outcome::Told { .. } => {}
            }
        }
        if freed > 0 {
            self.shared.inbox().bytes -= freed;
            self.shared.room.notify_all();
        }
        if let Some(config) = self.driver.machine().config() {
            let epochs = config.shards.iter().map(|chain| chain.epoch.0).sum();
            if epochs != self.epochs {
                self.epochs = epochs;
                let mut shown = self.shared.config.lock().unwrap_or_else(PoisonError::into_inner);
                *shown = Some(config.clone());
            }
        }
    }
}

fn bytes_of(what: &Call) -> usize {
    match what {
        Call::Update(ops) => ops.iter().map(op_bytes).sum(),
        Call::Query { .. } => 0,
    }
}

fn op_bytes(op: &Op) -> usize {
    const OVERHEAD: usize = 64;
    match op {
        Op::Put { key, value, .. } => key.bytes.len() + value.len() + OVERHEAD,
        Op::Delete { key, .. } | Op::Archive { key, .. } => key.bytes.len() + OVERHEAD,
    }
}
