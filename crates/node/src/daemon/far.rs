//! The control store of a cluster that this node joined: it is on the cluster's control nodes.
//!
//! ```text
//!   Question --> one call after the other --> Answer, in a later turn of the loop
//!   save, forget --> a call that nobody waits for; what is refused is told, for the log
//!   the node table --> a subscription --> what every node says of itself, as of a moment ago
//! ```
//! Calls of one key reach the store in the order in which they were begun: one that reads waits for those that write, since another control
//! node answers it. While no control node answers they wait: for `FAR_STORE_WITHIN`
//! if somebody asked, who then hears that, and for `FAR_SAVE_WITHIN` if nobody waits for them. So what a node writes while the head is
//! away is in the tables when it is back. Only if it is more than `CONTROL_CLIENT_QUEUE_BYTES_MAX` rows are lost, and the log says so.
//! The rows of a node that died may be behind what it did, since it may have died before it could say.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use hoplo_base::NodeNumber;
use hoplo_base::limits::{
    FAR_SAVE_WITHIN, FAR_STORE_QUIET, FAR_STORE_WITHIN, FAR_VERDICT_WITHIN, NODE_ROWS_ON_THE_WAY,
};
use hoplo_control::net::cluster::Cluster;
use hoplo_control::net::driver::{Driver, Outcome};
use hoplo_core::control::client::{Call, CallError, Done, Event};
use hoplo_core::control::{Entry, Key, NodeEntry, NodeState, Row, Table};
use hoplo_core::node::{Answer, KEYS_MAX, Question};
use hoplo_wire::control::{Change, Op, Outcome as Applied, Query, Refusal};

use super::scanned::{SCANNED_ROWS, rows_page};

pub(crate) struct Far {
    driver: Driver,
    /// By the call that is under way, with the key that it writes.
    underway: BTreeMap<u64, (For, Option<Key>)>,
    /// Keys that are being written, by how many calls, and what is to read them then.
    writes: BTreeMap<Key, (u32, Vec<(Call, For)>)>,
    nodes: BTreeMap<NodeNumber, Known>,
    changes: Vec<Change>,
    done: Vec<Happened>,
    /// When the last call was over, or began while no other one was under way.
    heard: Instant,
}

/// A row of the node table.
struct Known {
    entry: NodeEntry,
    version: u64,
    index: u64,
}

/// What a turn brought.
#[derive(Debug)]
pub(crate) enum Happened {
    Answered {
        ask: u64,
        answer: Answer,
    },
    /// A row that nobody waits for was not written.
    NotSaved(Refusal),
    /// This node's row says that it is dead, or is gone.
    Fenced {
        why: String,
    },
    /// What became of a verdict: the row's version now, absent if it had another one.
    Buried {
        ticket: u64,
        node: NodeNumber,
        stored: Result<Option<u64>, Refusal>,
    },
}

/// What a call is for.
enum For {
    Ask(u64, Step),
    Save,
    /// A verdict about that node.
    Bury(u64, NodeNumber),
    /// The node table is read again from here on, since changes of it were missed; as of these entries.
    Nodes {
        indexes: Option<Vec<u64>>,
        found: Vec<Change>,
    },
}

/// How far the answer to a question is.
enum Step {
    Get {
        found: Vec<Option<Vec<u8>>>,
        rest: VecDeque<Key>,
    },
    Put,
    Create {
        key: Key,
    },
    /// What was there before it could be created.
    Existing,
    /// What it is, before it is deleted.
    Doomed {
        key: Key,
    },
    Delete {
        key: Key,
        value: Vec<u8>,
    },
    List,
    Scan,
}

/// The subscription of the node table.
const NODES: u64 = 1;
const PAGE_ROWS: u32 = 1000;

impl Far {
    /// `row`: this node's, which its number was given by; it says from now on what the node is.
    pub(crate) fn open(cluster: &Cluster, row: &NodeEntry) -> Result<Self, CallError> {
        let unable =
            |error: io::Error| CallError::Late { may_apply: false, waiting: error.to_string() };
        let mut driver = Driver::new(cluster).map_err(unable)?;
        // Another version means that it was declared dead meanwhile.
        match driver.call(row_as(row, 1), FAR_STORE_WITHIN).map_err(unable)?? {
            Done::Updated(outcomes) if matches!(outcomes[..], [Applied::Done { .. }]) => {}
            _ => {
                let waiting = "this node was declared dead before it had begun: start it again";
                return Err(CallError::Late { may_apply: false, waiting: waiting.to_string() });
            }
        }
        let (mut from, mut after) = (None, None);
        let mut nodes = Vec::new();
        loop {
            let read = driver.call(nodes_from(from), FAR_STORE_WITHIN).map_err(unable)??;
            let Done::Page { rows, next, indexes } = read else {
                unreachable!("a scan gives a page")
            };
            // What changes while it is read is told again.
            after.get_or_insert(indexes);
            nodes.extend(rows);
            from = next;
            if from.is_none() {
                break;
            }
        }
        Ok(Self::knowing(driver, nodes, after.unwrap_or_default()))
    }

    /// The node table, with its keys, was read as of these entries. What changed since is told.
    pub(crate) fn knowing(mut driver: Driver, rows: Vec<(Vec<u8>, Row)>, after: Vec<u64>) -> Self {
        let (mut nodes, mut changes) = (BTreeMap::new(), Vec::new());
        for (key, row) in rows {
            if let Ok(entry) = NodeEntry::from_row(&row) {
                let (version, index) = (row.version, row.index);
                nodes.insert(entry.node, Known { entry, version, index });
            }
            let key = Key { table: Table::Node, bytes: key };
            changes.push(Change { index: row.index, key, row: Some(row) });
        }
        let (table, prefix) = (Table::Node, Vec::new());
        let (subscription, credit) = (NODES, NODE_ROWS_ON_THE_WAY);
        driver.handle(Event::Subscribe { subscription, table, prefix, after, credit });
        let underway = BTreeMap::new();
        let writes = BTreeMap::new();
        let (done, heard) = (Vec::new(), Instant::now());
        Self { driver, underway, writes, nodes, changes, done, heard }
    }

    /// Nothing of what is asked of it has been answered for so long.
    pub(crate) fn silent_for(&self) -> Option<Duration> {
        let since = (!self.underway.is_empty()).then(|| self.heard.elapsed());
        since.filter(|time| *time >= FAR_STORE_QUIET)
    }

    /// The store is there now, where there is one control node.
    pub(crate) fn moves_to(&mut self, head: &str) {
        self.driver.handle(Event::Moved { coordinators: vec![head.to_string()] });
    }

    /// Of a head: that row says from now on that it is dead, if it has this version.
    pub(crate) fn bury(&mut self, ticket: u64, expected: u64, entry: &NodeEntry) {
        let put = row_as(entry, expected);
        self.start(put, For::Bury(ticket, entry.node));
    }

    /// Of a head: the row becomes this, if it is as it is known here.
    pub(crate) fn change(&mut self, entry: &NodeEntry) {
        if let Some(known) = self.nodes.get(&entry.node) {
            let put = row_as(entry, known.version);
            self.start(put, For::Save);
        }
    }

    /// With the entry of the store that each row is of.
    pub(crate) fn indexed(&self) -> impl Iterator<Item = (&NodeEntry, u64)> {
        self.nodes.values().map(|known| (&known.entry, known.index))
    }

    /// As the store said last.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &NodeEntry> + Clone {
        self.nodes.values().map(|known| &known.entry)
    }

    /// Of the node table, since they were taken last.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    pub(crate) fn ask(&mut self, ask: u64, question: Question) {
        let get = |key: Key| Call::Query { query: Query::Get { key }, stale: false };
        let put = |key: Key, value: Vec<u8>, expected: Option<u64>| {
            Call::Update(vec![Op::Put { key, value, expected, finished: false }])
        };
        let (call, step) = match question {
            Question::Get { keys } => {
                let mut rest = VecDeque::from(keys);
                let Some(first) = rest.pop_front() else {
                    let answer = Answer::Rows(Ok(Vec::new()));
                    return self.done.push(Happened::Answered { ask, answer });
                };
                (get(first), Step::Get { found: Vec::new(), rest })
            }
            Question::Put { key, value } => (put(key, value, None), Step::Put),
            Question::Create { key, value } => {
                (put(key.clone(), value, Some(0)), Step::Create { key })
            }
            Question::Delete { key } => (get(key.clone()), Step::Doomed { key }),
            Question::List { table, prefix } => {
                let (from, limit, archived) = (None, KEYS_MAX as u32, false);
                let query = Query::Scan { table, prefix, from, limit, archived };
                (Call::Query { query, stale: false }, Step::List)
            }
            Question::Scan { table, prefix, from } => {
                let (limit, archived) = (SCANNED_ROWS, false);
                let query = Query::Scan { table, prefix, from, limit, archived };
                (Call::Query { query, stale: false }, Step::Scan)
            }
        };
        self.start(call, For::Ask(ask, step));
    }

    pub(crate) fn save(&mut self, key: Key, value: Vec<u8>, last: bool) {
        let put = Op::Put { key, value, expected: None, finished: last };
        self.start(Call::Update(vec![put]), For::Save);
    }

    pub(crate) fn forget(&mut self, key: Key) {
        self.start(Call::Update(vec![Op::Delete { key, expected: None }]), For::Save);
    }

    /// When it wants a turn though nothing came.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.driver.due()
    }

    pub(crate) fn flush(&mut self) {
        self.driver.flush();
    }

    /// What came of it since the last turn; `me`: this node.
    pub(crate) fn turn(&mut self, me: NodeNumber) -> io::Result<Vec<Happened>> {
        self.turn_until(Instant::now(), me)?;
        Ok(std::mem::take(&mut self.done))
    }

    /// What happens until then, or until the first of it.
    fn turn_until(&mut self, until: Instant, me: NodeNumber) -> io::Result<()> {
        self.driver.turn(Some(until))?;
        for outcome in std::mem::take(&mut self.driver.results) {
            match outcome {
                Outcome::Finished { call, result } => {
                    let what = self.over(call);
                    self.finished(what, result, me);
                }
                Outcome::Changes { subscription, shard, changes, .. } => {
                    let count = changes.len() as u32;
                    changes.into_iter().for_each(|change| self.changed(change, me));
                    self.driver.handle(Event::Consumed { subscription, shard, changes: count });
                }
                Outcome::Missed { .. } => {
                    let reads = |what: &For| matches!(what, For::Nodes { .. });
                    if !self.underway.values().any(|(what, _)| reads(what)) {
                        self.read_nodes(None, None, Vec::new());
                    }
                }
                Outcome::Told { .. } => {}
            }
        }
        Ok(())
    }

    /// What is under way is written, if that is possible in this time.
    pub(crate) fn wait_for_saves(&mut self, within: Duration) {
        let until = Instant::now() + within;
        let saves = |it: &Self| it.underway.values().any(|(what, _)| matches!(what, For::Save));
        while saves(self) && Instant::now() < until {
            if self.driver.turn(Some(until)).is_err() {
                return;
            }
            for outcome in std::mem::take(&mut self.driver.results) {
                if let Outcome::Finished { call, .. } = outcome {
                    self.over(call);
                }
            }
        }
    }

    /// Its row says that this node is dead, if somebody writes that in this time.
    pub(crate) fn wait_for_death(&mut self, me: NodeNumber, within: Duration) {
        let until = Instant::now() + within;
        let lives = |it: &Self| it.nodes.get(&me).is_some_and(|known| !known.entry.state.is_dead());
        while lives(self) && Instant::now() < until {
            if self.turn_until(until, me).is_err() {
                return;
            }
        }
        self.done.clear();
    }

    fn start(&mut self, call: Call, what: For) {
        let within = match what {
            For::Save => FAR_SAVE_WITHIN,
            For::Ask(..) | For::Nodes { .. } => FAR_STORE_WITHIN,
            For::Bury(..) => FAR_VERDICT_WITHIN,
        };
        let writes = match &call {
            Call::Update(ops) => {
                // One each.
                let (Op::Put { key, .. } | Op::Delete { key, .. } | Op::Archive { key, .. }) =
                    &ops[0];
                self.writes.entry(key.clone()).or_default().0 += 1;
                Some(key.clone())
            }
            Call::Query { query: Query::Get { key }, .. } => match self.writes.get_mut(key) {
                Some((_, readers)) => return readers.push((call, what)),
                None => None,
            },
            Call::Query { .. } => None,
        };
        if self.underway.is_empty() {
            self.heard = Instant::now();
        }
        let call = self.driver.start(call, Instant::now() + within);
        self.underway.insert(call, (what, writes));
    }

    /// It is not under way any more. What is to read what it wrote, or did not, begins now if no other call writes it.
    fn over(&mut self, call: u64) -> For {
        let (what, writes) = self.underway.remove(&call).expect("it was begun");
        self.heard = Instant::now();
        if let Some(key) = writes {
            let (calls, readers) = self.writes.get_mut(&key).expect("it was counted");
            *calls -= 1;
            if *calls == 0 {
                let readers = std::mem::take(readers);
                self.writes.remove(&key);
                readers.into_iter().for_each(|(call, what)| self.start(call, what));
            }
        }
        what
    }

    fn finished(&mut self, what: For, result: Result<Done, CallError>, me: NodeNumber) {
        match what {
            For::Ask(ask, step) => self.step(ask, step, result),
            For::Save => {
                if let Err(error) = result {
                    self.done.push(Happened::NotSaved(refusal(error)));
                }
            }
            For::Bury(ticket, node) => {
                let stored = result.map_err(refusal).map(|done| match done {
                    Done::Updated(outcomes) => match outcomes[..] {
                        [Applied::Done { version }] => Some(version),
                        _ => None,
                    },
                    Done::Row(_) | Done::Page { .. } => None,
                });
                self.done.push(Happened::Buried { ticket, node, stored });
            }
            For::Nodes { indexes, mut found } => match result {
                Ok(Done::Page { rows, next, indexes: now }) => {
                    found.extend(rows.into_iter().map(|(bytes, row)| {
                        let key = Key { table: Table::Node, bytes };
                        Change { index: row.index, key, row: Some(row) }
                    }));
                    // What changed while it was read is told again.
                    let indexes = indexes.or(Some(now));
                    match next {
                        Some(from) => self.read_nodes(Some(from), indexes, found),
                        None => self.nodes_read(indexes.unwrap_or_default(), found, me),
                    }
                }
                Ok(Done::Updated(_) | Done::Row(_)) => unreachable!("a scan gives a page"),
                Err(_) => self.read_nodes(None, None, Vec::new()),
            },
        }
    }

    fn step(&mut self, ask: u64, step: Step, result: Result<Done, CallError>) {
        let result = result.map_err(refusal);
        let value = |row: Option<Row>| row.map(|row| row.value);
        let answer = match (step, result) {
            (Step::Get { mut found, mut rest }, Ok(Done::Row(row))) => {
                found.push(value(row));
                if let Some(key) = rest.pop_front() {
                    return self.get(ask, key, Step::Get { found, rest });
                }
                Answer::Rows(Ok(found))
            }
            (Step::Get { .. }, Err(why)) => Answer::Rows(Err(why)),
            (Step::Put, result) => Answer::Written(result.map(|_| ())),
            (Step::Create { key }, Ok(Done::Updated(outcomes))) => match outcomes[..] {
                [Applied::Done { .. }] => Answer::Found(Ok(None)),
                _ => return self.get(ask, key, Step::Existing),
            },
            (Step::Existing, Ok(Done::Row(row))) => Answer::Found(Ok(value(row))),
            (Step::Doomed { key }, Ok(Done::Row(Some(row)))) => {
                let (expected, value) = (Some(row.version), row.value);
                let delete = Call::Update(vec![Op::Delete { key: key.clone(), expected }]);
                return self.start(delete, For::Ask(ask, Step::Delete { key, value }));
            }
            (Step::Doomed { .. }, Ok(Done::Row(None))) => Answer::Found(Ok(None)),
            (Step::Delete { key, value }, Ok(Done::Updated(outcomes))) => match outcomes[..] {
                [Applied::Done { .. }] => Answer::Found(Ok(Some(value))),
                // It was changed meanwhile.
                _ => return self.get(ask, key.clone(), Step::Doomed { key }),
            },
            (
                Step::Create { .. } | Step::Existing | Step::Doomed { .. } | Step::Delete { .. },
                Err(why),
            ) => Answer::Found(Err(why)),
            (Step::List, Ok(Done::Page { rows, .. })) => {
                Answer::Keys(Ok(rows.into_iter().map(|(key, _)| key).collect()))
            }
            (Step::List, Err(why)) => Answer::Keys(Err(why)),
            (Step::Scan, Ok(Done::Page { rows, next, .. })) => {
                Answer::Page(Ok(rows_page(rows, next)))
            }
            (Step::Scan, Err(why)) => Answer::Page(Err(why)),
            (
                Step::Get { .. }
                | Step::Create { .. }
                | Step::Existing
                | Step::Doomed { .. }
                | Step::Delete { .. }
                | Step::List
                | Step::Scan,
                Ok(_),
            ) => unreachable!("a call is answered by what it asks for"),
        };
        self.done.push(Happened::Answered { ask, answer });
    }

    fn get(&mut self, ask: u64, key: Key, step: Step) {
        let get = Call::Query { query: Query::Get { key }, stale: false };
        self.start(get, For::Ask(ask, step));
    }

    fn changed(&mut self, change: Change, me: NodeNumber) {
        self.changes.push(change.clone());
        let gone = change.row.is_none();
        let index = change.index;
        let known = change.row.and_then(|row| {
            let entry = NodeEntry::from_row(&row).ok()?;
            Some(Known { entry, version: row.version, index })
        });
        match known {
            Some(known) => self.learn(known, me),
            None if gone => {
                let of_it = |node: &NodeNumber, _: &mut Known| {
                    hoplo_core::control::rows::node_key(*node).bytes != change.key.bytes
                };
                self.nodes.retain(of_it);
            }
            None => {}
        }
    }

    fn learn(&mut self, known: Known, me: NodeNumber) {
        if known.entry.node == me
            && let NodeState::Dead { why, .. } = &known.entry.state
        {
            self.done.push(Happened::Fenced { why: why.clone() });
        }
        self.nodes.insert(known.entry.node, known);
    }

    fn read_nodes(&mut self, from: Option<Vec<u8>>, indexes: Option<Vec<u64>>, found: Vec<Change>) {
        self.start(nodes_from(from), For::Nodes { indexes, found });
    }

    /// Everybody hears of every row as if it had just changed. Who has none any more, and did, was forgotten with its death; or its
    /// head began with a backup that is older than the node.
    fn nodes_read(&mut self, indexes: Vec<u64>, found: Vec<Change>, me: NodeNumber) {
        let before = std::mem::take(&mut self.nodes);
        found.into_iter().for_each(|change| self.changed(change, me));
        let index = indexes.iter().copied().max().unwrap_or_default();
        for (node, Known { mut entry, .. }) in before {
            if !self.nodes.contains_key(&node) && !entry.state.is_dead() {
                entry.state = NodeState::dead("the head's store does not know it any more");
                let (key, value) = (entry.key(), entry.to_value());
                let row = Row { value, version: 0, index, finished: false };
                self.changed(Change { index, key, row: Some(row) }, me);
            }
        }
        for (shard, after) in indexes.into_iter().enumerate() {
            let shard = hoplo_wire::control::ShardId(shard as u16);
            self.driver.handle(Event::Resume { subscription: NODES, shard, after });
        }
    }
}

impl AsFd for Far {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.driver.as_fd()
    }
}

impl std::fmt::Debug for Far {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Far").field("nodes", &self.nodes.len()).finish_non_exhaustive()
    }
}

/// A row that is written if it has that version.
fn row_as(entry: &impl Entry, expected: u64) -> Call {
    let (key, value) = (entry.key(), entry.to_value());
    Call::Update(vec![Op::Put { key, value, expected: Some(expected), finished: false }])
}

fn nodes_from(from: Option<Vec<u8>>) -> Call {
    let (table, prefix, limit, archived) = (Table::Node, Vec::new(), PAGE_ROWS, false);
    let query = Query::Scan { table, prefix, from, limit, archived };
    Call::Query { query, stale: false }
}

fn refusal(error: CallError) -> Refusal {
    match error {
        CallError::Refused { why, .. } => why,
        late @ (CallError::Late { .. } | CallError::Overloaded { .. }) => {
            Refusal::Busy(late.to_string())
        }
    }
}
