//! A few replicas with disks of their own, and the connections between them, driven step by step.

mod archive;
mod basics;
mod changes;
mod disk;
mod join;
mod leases;
mod pages;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use hoplo_base::{Instant, NodeId};
use hoplo_wire::control::{
    Answer, ChainConfig, ClientId, Epoch, Key, Member, Op, Outcome, PeerMessage, Query, Record,
    Refusal, ReplicaId, Request, Response, Row, ShardId, Table,
};

use super::{Effect, Event, Replica, ReplicaOptions};

pub const SHARD: ShardId = ShardId(0);
pub const CLIENT: ClientId = ClientId(1);
pub const MS: Duration = Duration::from_millis(1);

#[derive(Clone, Debug)]
enum Line {
    Record(Arc<Record>),
    Truncate { after: u64 },
    Done,
}

/// What outlives a process.
#[derive(Clone, Debug, Default)]
struct Disk {
    lines: Vec<Line>,
    cold: BTreeMap<Key, Row>,
}

struct Node {
    replica: Replica,
    disk: Disk,
    /// Of this run's records, so many were appended and so many reported.
    appended: u64,
    /// The log reports nothing.
    disk_waits: bool,
    /// The cold tier writes nothing.
    cold_waits: bool,
    suspects: BTreeSet<ReplicaId>,
    caught_up: Vec<Epoch>,
}

pub struct Cluster {
    pub now: Instant,
    nodes: BTreeMap<u64, Node>,
    disks: BTreeMap<u64, Disk>,
    wires: VecDeque<(u64, u64, PeerMessage)>,
    /// Messages between these are lost.
    cut: BTreeSet<(u64, u64)>,
    pub responses: Vec<(u64, ClientId, Response)>,
    pub epoch: u64,
    options: ReplicaOptions,
    seqs: BTreeMap<ClientId, u64>,
    requests: u64,
    events: u64,
    /// Logs give back their base first.
    pub sorted_logs: bool,
}

pub fn id(number: u64) -> ReplicaId {
    ReplicaId { node: NodeId(number), incarnation: 1 }
}

fn member(number: u64) -> Member {
    Member { replica: id(number), address: format!("replica {number}") }
}

pub fn key(name: &str) -> Key {
    Key { table: Table::Kv, bytes: name.as_bytes().to_vec() }
}

pub fn task_key(number: u64) -> Key {
    Key { table: Table::Task, bytes: number.to_be_bytes().to_vec() }
}

pub fn put(name: &str, value: &str) -> Op {
    Op::Put { key: key(name), value: value.as_bytes().to_vec(), expected: None, finished: false }
}

impl Cluster {
    pub fn new(count: u64) -> Self {
        Self::with(count, |_| ())
    }

    pub fn with(count: u64, change: impl Fn(&mut ReplicaOptions)) -> Self {
        let mut options = ReplicaOptions::new(id(0), SHARD);
        options.cold_is_empty = true;
        change(&mut options);
        let mut cluster = Self {
            now: Instant(1_000_000_000),
            nodes: BTreeMap::new(),
            disks: BTreeMap::new(),
            wires: VecDeque::new(),
            cut: BTreeSet::new(),
            responses: Vec::new(),
            epoch: 0,
            options,
            seqs: BTreeMap::new(),
            requests: 0,
            events: 0,
            sorted_logs: true,
        };
        (1..=count).for_each(|number| cluster.start(number));
        let members: Vec<u64> = (1..=count).collect();
        for _unbegun in [true, false] {
            cluster.configure(&members, None, true);
            cluster.run();
        }
        cluster
    }

    /// A process, with what the last one left on disk; the way a log is read is that of `crates/control`.
    pub fn start(&mut self, number: u64) {
        let disk = self.disks.remove(&number).unwrap_or_default();
        let mut options = self.options.clone();
        options.me = id(number);
        options.cold_is_empty &= disk.cold.is_empty();
        let mut replica = Replica::new(options, self.now);
        let records = read(&disk.lines, self.sorted_logs);
        let mut node = Node {
            replica: replica.clone(),
            disk,
            appended: 0,
            disk_waits: false,
            cold_waits: false,
            suspects: BTreeSet::new(),
            caught_up: vec![],
        };
        let mut effects = Vec::new();
        for record in records {
            let record = (*record).clone();
            replica.handle(self.now, Event::Replayed { record }, &mut effects);
        }
        replica.handle(self.now, Event::ReplayDone, &mut effects);
        replica.check();
        node.replica = replica;
        self.nodes.insert(number, node);
        self.carry_out(number, effects);
    }

    /// The process ends; what was written stays.
    pub fn kill(&mut self, number: u64) {
        let node = self.nodes.remove(&number).unwrap();
        self.disks.insert(number, node.disk);
        self.wires.retain(|(from, to, _)| *from != number && *to != number);
        let others: Vec<u64> = self.nodes.keys().copied().collect();
        for other in others {
            self.handle(other, Event::PeerGone { replica: id(number) });
        }
    }

    /// The next process with the disk that another one left: another replica.
    pub fn restart_as(&mut self, old: u64, new: u64) {
        let disk = self.disks.remove(&old).unwrap();
        self.disks.insert(new, disk);
        self.start(new);
    }

    /// The connection between two breaks; what was under way is lost.
    pub fn disconnect(&mut self, one: u64, other: u64) {
        let between = |from: u64, to: u64| (from, to) == (one, other) || (to, from) == (one, other);
        self.wires.retain(|(from, to, _)| !between(*from, *to));
        self.handle(one, Event::PeerGone { replica: id(other) });
        self.handle(other, Event::PeerGone { replica: id(one) });
    }

    pub fn config(
        &self,
        members: &[u64],
        joining: Option<u64>,
        old_tail_gone: bool,
    ) -> ChainConfig {
        ChainConfig {
            shard: SHARD,
            epoch: Epoch(self.epoch),
            members: members.iter().map(|number| member(*number)).collect(),
            joining: joining.map(member),
            added: None,
            old_tail_gone,
            history: Epoch::first(),
            unbegun: self.epoch == 1,
        }
    }

    /// The next epoch, told to all.
    pub fn configure(&mut self, members: &[u64], joining: Option<u64>, old_tail_gone: bool) {
        self.epoch += 1;
        let config = self.config(members, joining, old_tail_gone);
        let all: Vec<u64> = self.nodes.keys().copied().collect();
        for number in all {
            self.handle(number, Event::Configured(config.clone()));
        }
    }

    pub fn cut(&mut self, from: u64, to: u64) {
        self.cut.insert((from, to));
    }

    pub fn heal(&mut self) {
        self.cut.clear();
    }

    pub fn replica(&self, number: u64) -> &Replica {
        &self.nodes[&number].replica
    }

    pub fn suspects(&self, number: u64) -> &BTreeSet<ReplicaId> {
        &self.nodes[&number].suspects
    }

    pub fn caught_up(&self, number: u64) -> &[Epoch] {
        &self.nodes[&number].caught_up
    }

    pub fn log_len(&self, number: u64) -> usize {
        self.nodes[&number].disk.lines.len()
    }

    pub fn snapshots_done(&self, number: u64) -> usize {
        self.nodes[&number].disk.lines.iter().filter(|line| matches!(line, Line::Done)).count()
    }

    pub fn cold_len(&self, number: u64) -> usize {
        self.nodes[&number].disk.cold.len()
    }

    pub fn disk_waits(&mut self, number: u64, waits: bool) {
        self.nodes.get_mut(&number).unwrap().disk_waits = waits;
        if !waits {
            let upto = self.nodes[&number].appended;
            self.handle(number, Event::Logged { upto });
        }
    }

    pub fn cold_waits(&mut self, number: u64) {
        self.nodes.get_mut(&number).unwrap().cold_waits = true;
    }

    pub fn handle(&mut self, number: u64, event: Event) {
        let Some(node) = self.nodes.get_mut(&number) else { return };
        let mut effects = Vec::new();
        node.replica.handle(self.now, event, &mut effects);
        // Each check reads all rows.
        self.events += 1;
        if node.replica.tables.len() < 100 || self.events.is_multiple_of(100) {
            node.replica.check();
        }
        self.carry_out(number, effects);
    }

    fn carry_out(&mut self, number: u64, effects: Vec<Effect>) {
        // Effects are carried out in order; what comes of them comes after.
        let mut then = Vec::new();
        for effect in effects {
            let node = self.nodes.get_mut(&number).unwrap();
            match effect {
                Effect::Append { records, upto } => {
                    node.disk.lines.extend(records.into_iter().map(Line::Record));
                    node.appended = upto;
                    if !node.disk_waits {
                        then.push(Event::Logged { upto });
                    }
                }
                Effect::Truncate { after } => node.disk.lines.push(Line::Truncate { after }),
                Effect::SnapshotDone { snapshot } => {
                    node.disk.lines.push(Line::Done);
                    forget_before(&mut node.disk.lines, snapshot);
                }
                Effect::Send { to, message } => {
                    self.wires.push_back((number, to.node.0, message));
                }
                Effect::Respond { to, response } => self.responses.push((number, to, response)),
                Effect::ColdWrite { .. } if node.cold_waits => {}
                Effect::ColdWrite { flush, clear, puts, deletes } => {
                    for (from, until) in clear {
                        node.disk.cold.retain(|key, _| {
                            from.as_ref().is_some_and(|from| key < from)
                                || until.as_ref().is_some_and(|until| key >= until)
                        });
                    }
                    deletes.iter().for_each(|key| {
                        node.disk.cold.remove(key);
                    });
                    node.disk.cold.extend(puts);
                    then.push(Event::ColdWritten { flush });
                }
                Effect::ColdGet { ticket, key } => {
                    let row = node.disk.cold.get(&key).cloned();
                    then.push(Event::ColdRow { ticket, row });
                }
                Effect::ColdScan { ticket, from, until, limit, .. } => {
                    let mut rows: Vec<(Key, Row)> = (node.disk.cold.iter())
                        .filter(|(key, _)| from.as_ref().is_none_or(|from| *key >= from))
                        .filter(|(key, _)| until.as_ref().is_none_or(|until| *key < until))
                        .map(|(key, row)| (key.clone(), row.clone()))
                        .collect();
                    // Pages end early, so that everybody is used to it.
                    let limit = limit.min(10) as usize;
                    let until = rows.get(limit).map(|(key, _)| key.clone());
                    rows.truncate(limit);
                    then.push(Event::ColdPage { ticket, rows, until });
                }
                Effect::CaughtUp { epoch, .. } => node.caught_up.push(epoch),
                Effect::Suspect { replica } => {
                    node.suspects.insert(replica);
                }
                Effect::WantConfig { .. } => {}
            }
        }
        then.into_iter().for_each(|event| self.handle(number, event));
    }

    /// One message; `false`: there is none.
    pub fn step(&mut self) -> bool {
        let Some((from, to, message)) = self.wires.pop_front() else { return false };
        if self.cut.contains(&(from, to)) {
            return true;
        }
        if self.nodes.contains_key(&to) {
            self.handle(to, Event::Peer { from: id(from), message });
        } else {
            self.handle(from, Event::PeerGone { replica: id(to) });
        }
        true
    }

    /// Until nothing is under way.
    pub fn run(&mut self) {
        for _ in 0..100_000 {
            if !self.step() {
                return;
            }
        }
        panic!("messages go on and on");
    }

    /// Lets time pass, with all that is due.
    pub fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        self.run();
        for _ in 0..100_000 {
            let due = |node: &Node| node.replica.next_deadline();
            let next = self.nodes.values().filter_map(due).min().unwrap_or(end);
            // What is overdue without effect must not stop the clock.
            self.now = next.max(self.now + MS).min(end);
            let all: Vec<u64> = self.nodes.keys().copied().collect();
            for number in all {
                self.handle(number, Event::Tick);
            }
            self.run();
            if self.now == end {
                return;
            }
        }
        panic!("deadlines go on and on");
    }

    /// Sends a batch to a replica; returns its seq.
    pub fn send_as(&mut self, client: ClientId, number: u64, ops: Vec<Op>) -> u64 {
        let seq = self.seqs.entry(client).or_insert(0);
        *seq += 1;
        let seq = *seq;
        self.resend(client, number, seq, ops);
        seq
    }

    pub fn resend(&mut self, client: ClientId, number: u64, seq: u64, ops: Vec<Op>) {
        let (shard, epoch, answered) = (SHARD, Epoch(self.epoch), seq.saturating_sub(8));
        let request = Request::Update { shard, epoch, born: 0, seq, answered, ops };
        self.handle(number, Event::Request { from: client, request });
    }

    pub fn update(&mut self, number: u64, ops: Vec<Op>) -> Result<Vec<Outcome>, Refusal> {
        let seq = self.send_as(CLIENT, number, ops);
        self.run();
        let outcome = self.outcome(CLIENT, seq).expect("an answer");
        if outcome.is_err() {
            // What is refused does not use up its seq.
            *self.seqs.get_mut(&CLIENT).unwrap() -= 1;
        }
        outcome
    }

    /// The last answer to a batch.
    pub fn outcome(&self, client: ClientId, seq: u64) -> Option<Result<Vec<Outcome>, Refusal>> {
        self.responses.iter().rev().find_map(|(_, to, response)| match response {
            Response::Updated { seq: of, outcomes, .. } if (*to, *of) == (client, seq) => {
                Some(Ok(outcomes.clone()))
            }
            Response::UpdateRefused { seq: of, why, .. } if (*to, *of) == (client, seq) => {
                Some(Err(why.clone()))
            }
            _ => None,
        })
    }

    pub fn ask(&mut self, number: u64, query: Query, stale: bool) -> u64 {
        self.requests += 1;
        let (shard, epoch, request) = (SHARD, Epoch(self.epoch), self.requests);
        let request = Request::Query { shard, epoch, request, query, stale };
        self.handle(number, Event::Request { from: CLIENT, request });
        self.requests
    }

    pub fn answer(&self, request: u64) -> Option<Result<Answer, Refusal>> {
        self.responses.iter().rev().find_map(|(_, _, response)| match response {
            Response::Answered { request: of, answer, .. } if *of == request => {
                Some(Ok(answer.clone()))
            }
            Response::QueryRefused { request: of, why } if *of == request => Some(Err(why.clone())),
            _ => None,
        })
    }

    /// The value, as the tail `number` answers.
    pub fn get(&mut self, number: u64, key: Key) -> Result<Option<Vec<u8>>, Refusal> {
        let request = self.ask(number, Query::Get { key }, false);
        self.run();
        let why = self.replica(number).explain(self.now);
        match self.answer(request).unwrap_or_else(|| panic!("no answer: {why}"))? {
            Answer::Row(row) => Ok(row.map(|row| row.value)),
            Answer::Page { .. } => panic!("a row was asked for"),
        }
    }

    /// All have the same rows, sessions, and archive (CHAIN-5).
    pub fn assert_equal(&mut self) {
        self.wait(MS * 600);
        type Rows = Vec<(Key, Row)>;
        let mut seen: Option<(u64, Rows, Rows)> = None;
        for (number, node) in &self.nodes {
            let rows = node.replica.tables.range(None);
            let rows = rows.map(|(key, row)| (key.clone(), row.clone())).collect();
            let archive: Vec<(Key, Row)> =
                node.disk.cold.iter().map(|(key, row)| (key.clone(), row.clone())).collect();
            let now = (node.replica.applied, rows, archive);
            if let Some(first) = &seen {
                assert_eq!(now.0, first.0, "replica {number}\n{}", node.replica.story());
                assert_eq!(now.1, first.1, "replica {number}\n{}", node.replica.story());
                assert_eq!(now.2, first.2, "replica {number}: archive");
            }
            seen.get_or_insert(now);
        }
        let sessions: Vec<_> =
            self.nodes.values().map(|node| node.replica.sessions.to_wire()).collect();
        assert!(sessions.windows(2).all(|pair| pair[0] == pair[1]), "sessions differ");
    }
}

/// The records that a log gives back: what a truncation took is left out, entries that the first base
/// does not cover come after it, and of older snapshots nothing.
fn read(lines: &[Line], sorted: bool) -> Vec<Arc<Record>> {
    let valid = |place: usize, index: u64| {
        !lines[place..]
            .iter()
            .any(|line| matches!(line, Line::Truncate { after } if *after < index))
    };
    if !sorted {
        return records_in_order(lines);
    }
    let base = lines.iter().position(
        |line| matches!(line, Line::Record(record) if matches!(&**record, Record::Chunk(chunk) if chunk.from.is_none())),
    );
    let Some(base) = base else { return vec![] };
    let Line::Record(first) = &lines[base] else { return vec![] };
    let Record::Chunk(chunk) = &**first else { return vec![] };
    let mut records = vec![Arc::clone(first)];
    for (place, line) in lines.iter().enumerate() {
        match line {
            Line::Record(record) => match &**record {
                Record::Entry(entry) if !valid(place, entry.index) => {}
                Record::Entry(entry) if place < base && entry.index <= chunk.as_of => {}
                Record::Entry(_) => records.push(Arc::clone(record)),
                Record::Chunk(_) if place > base => records.push(Arc::clone(record)),
                Record::Chunk(_) => {}
            },
            Line::Truncate { .. } | Line::Done => {}
        }
    }
    records
}

/// As they lie in the file.
fn records_in_order(lines: &[Line]) -> Vec<Arc<Record>> {
    let void = |place: usize, index: u64| {
        lines[place..].iter().any(|line| matches!(line, Line::Truncate { after } if *after < index))
    };
    let mut records = Vec::new();
    for (place, line) in lines.iter().enumerate() {
        if let Line::Record(record) = line
            && !matches!(&**record, Record::Entry(entry) if void(place, entry.index))
        {
            records.push(Arc::clone(record));
        }
    }
    records
}

/// Nothing before the snapshot's first chunk but entries that it does not cover.
fn forget_before(lines: &mut Vec<Line>, snapshot: u64) {
    let first = lines.iter().position(|line| matches!(line, Line::Record(record)
        if matches!(&**record, Record::Chunk(chunk) if chunk.snapshot == snapshot && chunk.from.is_none())));
    let first = first.expect("a snapshot that is done has a first chunk");
    let Line::Record(record) = &lines[first] else { return };
    let Record::Chunk(chunk) = &**record else { return };
    let as_of = chunk.as_of;
    let mut place = 0;
    lines.retain(|line| {
        place += 1;
        place > first
            || match line {
                Line::Record(record) => {
                    matches!(&**record, Record::Entry(entry) if entry.index > as_of)
                }
                Line::Truncate { .. } => true,
                Line::Done => false,
            }
    });
}
