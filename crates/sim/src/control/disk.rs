//! One replica's disk: a log that is written, later synced, and torn by a loss of power; and the cold tier.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use hoplo_wire::control::{Key, Record, Row};

use crate::rng::Rng;

#[derive(Clone, Debug)]
enum Item {
    Record(Arc<Record>),
    Truncate(u64),
    /// Before a snapshot that is complete.
    Void,
}

/// Positions in the log count from its beginning, for ever.
#[derive(Clone, Default)]
pub struct Disk {
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
    pub fn append(&mut self, records: Vec<Arc<Record>>) {
        self.items.extend(records.into_iter().map(Item::Record));
    }

    pub fn truncate(&mut self, after: u64) {
        self.items.push_back(Item::Truncate(after));
    }

    /// Position after the last record.
    pub fn end(&self) -> u64 {
        self.first + self.items.len() as u64
    }

    pub fn write(&mut self, upto: u64) {
        self.written = self.written.max(upto);
    }

    pub fn sync(&mut self, upto: u64) {
        self.written = self.written.max(upto);
        self.synced = self.synced.max(upto);
    }

    /// The log before this snapshot may go, but for entries that came after it.
    pub fn snapshot_done(&mut self, snapshot: u64) {
        // Nothing goes before what comes in its place is safe, whatever the policy.
        self.synced = self.synced.max(self.written);
        let is_first = |item: &Item| match item {
            Item::Record(record) => match record.as_ref() {
                Record::Chunk(chunk) => chunk.snapshot == snapshot,
                Record::Entry(_) => false,
            },
            Item::Truncate(_) | Item::Void => false,
        };
        let first = self.items.iter().position(is_first).expect("its chunks were appended");
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

    /// The process died, or the machine lost its power: what was not written, or not synced, is gone.
    pub fn crash(&mut self, rng: &mut Rng, power: bool) -> Crash {
        let kept = if power {
            let unsure = self.written - self.synced.min(self.written);
            self.synced + if unsure > 0 { rng.below(unsure + 1) } else { 0 }
        } else {
            self.written
        };
        let keep = kept.saturating_sub(self.first) as usize;
        let crash =
            Crash { torn: kept > self.synced && kept < self.written, lost: kept < self.written };
        self.items.truncate(keep);
        self.written = self.end();
        self.synced = self.written;
        crash
    }

    /// What a start finds, in order.
    pub fn records(&self) -> Vec<Arc<Record>> {
        Self::replayed(self.items.iter())
    }

    /// What a start would find if the machine lost its power now.
    pub fn safe_records(&self, fsync: bool) -> Vec<Arc<Record>> {
        let safe = if fsync { self.synced } else { self.written };
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

    /// Takes the newest record away as if it had never been appended.
    pub fn loses_the_last(&mut self) {
        if let Some(Item::Record(record)) = self.items.back()
            && matches!(record.as_ref(), Record::Entry(_))
        {
            let last = self.items.len() - 1;
            self.items[last] = Item::Void;
        }
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
