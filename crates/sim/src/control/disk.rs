//! One replica's disk: a log that is written, later synced, torn by a loss of power and damaged; and the cold tier.
//!
//! The log is the real one (`hoplo_control::disk::log`) over files in memory. Beside it lies what should be in it, as a list:
//! what a crash left must have all of that which was safe, and nothing else (LOG-1, LOG-2); what damage left must be the
//! same, or be refused or told (LOG-3).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use hoplo_control::disk::log::{Cut, Fsync, LogError, LogOptions, Recovery, Writer, set_aside_in};
use hoplo_wire::control::{Chunk, Key, Record, Row, ShardId};

use super::CLUSTER;
use super::files::MemoryFiles;
use crate::rng::Rng;

#[derive(Clone, Debug)]
enum Item {
    Record(Arc<Record>),
    Truncate(u64),
    /// Before a snapshot that is complete.
    Void,
}

/// How logs are written in this world.
#[derive(Clone, Copy, Debug)]
pub struct LogKind {
    /// Acknowledged means synced; else written.
    pub fsync: bool,
    pub segment_bytes: u64,
    /// The next segment is made before it is needed.
    pub ahead: bool,
    /// Room for records is reserved.
    pub reserves: bool,
}

/// Positions in the log count from its beginning, for ever.
pub struct Disk {
    shard: ShardId,
    kind: LogKind,
    files: MemoryFiles,
    /// Of the process that runs.
    writer: Option<Writer>,
    /// Snapshots whose end is in the writer's buffer.
    done: Vec<u64>,
    /// What of the files was done before the flush that is under way.
    under_way: Option<usize>,
    /// Flushes have ended up to here.
    landed: u64,
    /// Synced by one of those.
    safe: u64,
    /// Something happened to its files since it was last read.
    rotten: bool,
    first: u64,
    items: VecDeque<Item>,
    /// In the system's hands: survives the death of the process.
    written: u64,
    /// Survives everything.
    synced: u64,
    pub cold: BTreeMap<Key, Row>,
}

/// What a crash did to a log.
#[derive(Clone, Copy, Debug)]
pub struct Crash {
    /// It kept a part of what was not synced.
    pub torn: bool,
    /// It lost a part of what was written.
    pub lost: bool,
}

impl Disk {
    pub fn new(shard: ShardId, kind: LogKind) -> Self {
        Self {
            shard,
            kind,
            files: MemoryFiles::new(kind.reserves),
            writer: None,
            done: Vec::new(),
            under_way: None,
            landed: 0,
            safe: 0,
            rotten: false,
            first: 0,
            items: VecDeque::new(),
            written: 0,
            synced: 0,
            cold: BTreeMap::new(),
        }
    }

    /// What a process finds when it starts, in order. `boot`: of its machine.
    pub fn open(&mut self, boot: u32) -> Result<Vec<Arc<Record>>, LogError> {
        let (records, cut) = self.read(boot)?;
        let expected = self.records();
        if std::mem::take(&mut self.rotten) {
            let found: Vec<_> = records.iter().map(short).collect();
            assert!(
                records == expected || cut.is_some(),
                "LOG-3: damage was taken for nothing: of {expected:?} only {found:?} are there"
            );
        } else {
            assert_eq!(records, expected, "LOG-1: it was read before, and is another one now");
        }
        self.holds(&records);
        Ok(records)
    }

    /// Its log is of no use any more.
    pub fn sets_log_aside(&mut self) {
        set_aside_in(&self.files).expect("memory does not fail");
        self.rotten = false;
        self.holds(&[]);
    }

    /// Something happens to its log while nobody uses it.
    pub fn rots(&mut self, rng: &mut Rng) -> Option<String> {
        // Where nothing is reserved, or not surely on disk, nothing says how long the newest file was.
        let cuts = self.kind.reserves && self.kind.fsync;
        let what = self.files.rots(rng, "log-", cuts);
        self.rotten |= what.is_some();
        what
    }

    fn read(&mut self, boot: u32) -> Result<(Vec<Arc<Record>>, Option<Cut>), LogError> {
        // The files are used by one at a time.
        self.writer = None;
        let options = LogOptions {
            folder: "log".into(),
            cluster: CLUSTER,
            shard: self.shard,
            fsync: if self.kind.fsync { Fsync::Always } else { Fsync::Never },
            segment_bytes: self.kind.segment_bytes,
            ahead: self.kind.ahead,
            boot,
        };
        let recovery = Recovery::open_in(Arc::new(self.files.clone()), options)?;
        let records = recovery.records().map(|record| record.map(Arc::new));
        let records = records.collect::<Result<Vec<_>, _>>()?;
        let cut = recovery.cut.clone();
        self.writer = Some(recovery.into_writer());
        Ok((records, cut))
    }

    /// That is what was read.
    fn holds(&mut self, records: &[Arc<Record>]) {
        self.items = records.iter().cloned().map(Item::Record).collect();
        self.first = 0;
        let end = self.end();
        (self.written, self.synced, self.landed, self.safe) = (end, end, end, end);
        self.under_way = None;
        self.done.clear();
    }

    /// `loses`: the last of them, if it is an entry, as if it had never been appended.
    pub fn append(&mut self, mut records: Vec<Arc<Record>>, loses: bool) {
        let is_entry = |record: &&Arc<Record>| matches!(record.as_ref(), Record::Entry(_));
        let lost = loses && records.last().filter(is_entry).is_some();
        records.truncate(records.len() - usize::from(lost));
        let writer = self.writer.as_mut().expect("a process runs");
        records.iter().for_each(|record| writer.append(record));
        self.items.extend(records.into_iter().map(Item::Record));
        self.items.extend(lost.then_some(Item::Void));
    }

    pub fn truncate(&mut self, after: u64) {
        self.writer.as_mut().expect("a process runs").truncate(after);
        self.items.push_back(Item::Truncate(after));
    }

    /// Position after the last record.
    pub fn end(&self) -> u64 {
        self.first + self.items.len() as u64
    }

    pub fn has_unwritten(&self) -> bool {
        self.writer.as_ref().is_some_and(Writer::has_unflushed)
    }

    /// A flush begins: of all that was appended.
    pub fn write(&mut self) {
        self.under_way = Some(self.files.done());
        self.written = self.end();
        let writer = self.writer.as_mut().expect("a process runs");
        writer.flush().expect("memory does not fail");
        for snapshot in std::mem::take(&mut self.done) {
            self.forget_before(snapshot);
        }
    }

    /// It ended.
    pub fn lands(&mut self, upto: u64) {
        self.under_way = None;
        self.landed = upto;
        if self.kind.fsync {
            self.synced = self.synced.max(upto);
            self.files.settle();
        }
        self.safe = self.synced;
    }

    /// The log before this snapshot may go, but for entries that came after it.
    pub fn snapshot_done(&mut self, snapshot: u64) {
        self.writer.as_mut().expect("a process runs").snapshot_done(snapshot);
        self.done.push(snapshot);
    }

    fn forget_before(&mut self, snapshot: u64) {
        let is_first = |item: &Item| match item {
            Item::Record(record) => match record.as_ref() {
                Record::Chunk(chunk) => chunk.snapshot == snapshot,
                Record::Entry(_) => false,
            },
            Item::Truncate(_) | Item::Void => false,
        };
        let Some(first) = self.items.iter().position(is_first) else { return };
        let Item::Record(record) = &self.items[first] else { unreachable!("it is a chunk") };
        let Record::Chunk(chunk) = record.as_ref() else { unreachable!("it is a chunk") };
        let as_of = chunk.as_of;
        for item in self.items.iter_mut().take(first) {
            let needed = match item {
                Item::Record(record) => match record.as_ref() {
                    Record::Entry(entry) => entry.index > as_of,
                    Record::Chunk(_) => false,
                },
                Item::Truncate(_) | Item::Void => true,
            };
            if !needed {
                *item = Item::Void;
            }
        }
        while matches!(self.items.front(), Some(Item::Void)) {
            self.items.pop_front();
            self.first += 1;
        }
    }

    /// The process died, or the machine lost its power: what was not written, or not synced, may be gone. `boot`: of the
    /// machine from now on.
    pub fn crash(&mut self, rng: &mut Rng, power: bool, boot: u32) -> Crash {
        let landed = self.entries(self.landed);
        let landed_items = self.landed.saturating_sub(self.first) as usize;
        let reached = reach(&Self::replayed(self.items.iter().take(landed_items)));
        let safe = if power { self.entries(self.safe) } else { landed.clone() };
        let safe_items = if power { self.safe } else { self.landed };
        let safe_items = safe_items.saturating_sub(self.first) as usize;
        let had_base = self.items.iter().take(safe_items).any(is_chunk);
        let sure = self.under_way.unwrap_or_else(|| self.files.done());
        let torn = self.files.crash(rng, power, sure);
        let (records, cut) = self.read(boot).unwrap_or_else(|error| {
            panic!("LOG-3: a crash was taken for damage: {error}");
        });
        for record in &records {
            if let Record::Entry(entry) = record.as_ref() {
                let known = |item: &Item| matches!(item, Item::Record(known) if known == record);
                let other = |item: &Item| is_entry(item, entry.index);
                let strange = !self.items.iter().any(known) && self.items.iter().any(other);
                assert!(!strange, "LOG-2: entry {} was never appended like that", entry.index);
            }
        }
        let has = |entry: &&Arc<Record>| {
            let Record::Entry(wanted) = entry.as_ref() else { return true };
            records.iter().any(|record| match record.as_ref() {
                Record::Entry(_) => record == *entry,
                Record::Chunk(chunk) => chunk.as_of >= wanted.index,
            })
        };
        let missing: Vec<_> = safe.iter().filter(|entry| !has(entry)).map(short).collect();
        let found: Vec<_> = records.iter().map(short).collect();
        assert!(
            missing.is_empty(),
            "LOG-1: {missing:?} were safe (power lost: {power}), and only {found:?} are there; cut off: {cut:?}"
        );
        let has_base = records.iter().any(|it| matches!(it.as_ref(), Record::Chunk(_)));
        assert!(has_base || !had_base, "LOG-1: there was a base (power lost: {power})");
        // A base that is gone may have been all there was.
        let lost = reach(&records) < reached || !landed.iter().all(|entry| has(&entry));
        self.writer = None;
        self.holds(&records);
        Crash { torn, lost }
    }

    /// Those before a position that nothing took back, so far: what was appended again is another matter.
    fn entries(&self, upto: u64) -> Vec<Arc<Record>> {
        let upto = upto.saturating_sub(self.first) as usize;
        let mut some = Self::replayed(self.items.iter().take(upto));
        some.retain(|record| match record.as_ref() {
            Record::Entry(entry) => self.items.iter().skip(upto).all(|item| match item {
                Item::Truncate(after) => entry.index <= *after,
                Item::Record(_) | Item::Void => true,
            }),
            Record::Chunk(_) => false,
        });
        some
    }

    /// What a start finds, in order.
    pub fn records(&self) -> Vec<Arc<Record>> {
        Self::replayed(self.items.iter())
    }

    /// What a start would find if the machine lost its power now.
    pub fn safe_records(&self) -> Vec<Arc<Record>> {
        let safe = if self.kind.fsync { self.synced } else { self.written };
        Self::replayed(self.items.iter().take(safe.saturating_sub(self.first) as usize))
    }

    fn replayed<'a>(items: impl Iterator<Item = &'a Item>) -> Vec<Arc<Record>> {
        let mut records: Vec<Arc<Record>> = Vec::new();
        for item in items {
            match item {
                Item::Record(record) => records.push(record.clone()),
                Item::Truncate(after) => records.retain(|record| match record.as_ref() {
                    Record::Entry(entry) => entry.index <= *after,
                    Record::Chunk(_) => true,
                }),
                Item::Void => {}
            }
        }
        records
    }

    pub fn cold_write(
        &mut self,
        clear: Vec<(Option<Key>, Option<Key>)>,
        puts: Vec<(Key, Row)>,
        deletes: Vec<Key>,
    ) {
        for (from, until) in clear {
            let from = from.map_or(Bound::Unbounded, Bound::Included);
            let until = until.map_or(Bound::Unbounded, Bound::Excluded);
            let keys: Vec<Key> =
                self.cold.range((from, until)).map(|(key, _)| key.clone()).collect();
            for key in keys {
                self.cold.remove(&key);
            }
        }
        self.cold.extend(puts);
        for key in deletes {
            self.cold.remove(&key);
        }
    }

    pub fn cold_scan(
        &self,
        from: Option<Key>,
        until: Option<Key>,
        limit: u32,
    ) -> (Vec<(Key, Row)>, Option<Key>) {
        let from = from.map_or(Bound::Unbounded, Bound::Included);
        let until = until.map_or(Bound::Unbounded, Bound::Excluded);
        let mut range = self.cold.range((from, until));
        let page = range.by_ref().take(limit as usize);
        let page = page.map(|(key, row)| (key.clone(), row.clone())).collect();
        (page, range.next().map(|(key, _)| key.clone()))
    }
}

/// The last entry that is there, or in a base; absent: there is no whole base.
fn reach(records: &[Arc<Record>]) -> Option<u64> {
    let chunks = || records.iter().filter_map(|record| as_chunk(record));
    let begun = |snapshot| chunks().any(|it| it.snapshot == snapshot && it.from.is_none());
    let base = chunks().filter(|it| it.until.is_none() && begun(it.snapshot)).map(|it| it.as_of);
    let entries = records.iter().filter_map(|record| match record.as_ref() {
        Record::Entry(entry) => Some(entry.index),
        Record::Chunk(_) => None,
    });
    base.max().map(|base| entries.max().unwrap_or(0).max(base))
}

fn as_chunk(record: &Record) -> Option<&Chunk> {
    match record {
        Record::Chunk(chunk) => Some(chunk),
        Record::Entry(_) => None,
    }
}

fn short(record: &Arc<Record>) -> String {
    match record.as_ref() {
        Record::Entry(entry) => format!("entry {}", entry.index),
        Record::Chunk(chunk) if chunk.from.is_none() => format!("base as of {}", chunk.as_of),
        Record::Chunk(chunk) => format!("chunk as of {}", chunk.as_of),
    }
}

fn is_chunk(item: &Item) -> bool {
    match item {
        Item::Record(record) => matches!(record.as_ref(), Record::Chunk(_)),
        Item::Truncate(_) | Item::Void => false,
    }
}

fn is_entry(item: &Item, index: u64) -> bool {
    match item {
        Item::Record(record) => match record.as_ref() {
            Record::Entry(entry) => entry.index == index,
            Record::Chunk(_) => false,
        },
        Item::Truncate(_) | Item::Void => false,
    }
}
