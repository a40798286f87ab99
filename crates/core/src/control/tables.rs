//! Applied state: the rows of one shard, in order of their keys.
//!
//! ```text
//!   (none) --Put--> row v1 --Put--> row v2 ... --Delete--> (none)
//!                      \---- finished: Archive ----> history: for updates it is not there
//! ```
//! Every replica applies the same operations to the same rows and gets the same outcomes. While a replica
//! is given its base in chunks, only a beginning of the key space is **covered**: operations on other
//! keys change nothing, because the chunk that brings those keys has their effect in it.
//!
//! # Invariants
//! - CTL-1: a version is 1 for a new row and grows by one with each change; 0 means "there is no row".
//! - CTL-2: a scan returns every row that was there all the time exactly once, in order of the keys.
//! - CTL-3: `bytes` is the sum over rows of what [`row_bytes`] says, and `finished_rows` their number.
//! - CTL-4: every finished row is in the queue of those that may be archived; oldest first.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use hoplo_base::limits::{CONTROL_FINISHED_OVERHEAD, CONTROL_ROW_OVERHEAD};
use hoplo_wire::control::{Chunk, Key, Op, Outcome, Row, Table};

/// Some rows in order of their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub rows: Vec<(Vec<u8>, Row)>,
    /// Where the next page begins; absent after the last one.
    pub next: Option<Vec<u8>>,
}

/// What an operation did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    Put {
        version: u64,
    },
    /// There was a row.
    Deleted,
    /// Asked to delete what was not there; it may be in the archive.
    Absent,
    Archived(Row),
    Conflict {
        found: u64,
    },
}

impl Applied {
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Put { version } => Outcome::Done { version: *version },
            Self::Deleted | Self::Absent | Self::Archived(_) => Outcome::Done { version: 0 },
            Self::Conflict { found } => Outcome::Conflict { found: *found },
        }
    }
}

/// Which keys the rows are complete for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Covered {
    #[default]
    Nothing,
    /// All that are smaller.
    Below(Key),
    All,
}

impl Covered {
    pub fn covers(&self, key: &Key) -> bool {
        match self {
            Self::Nothing => false,
            Self::Below(until) => key < until,
            Self::All => true,
        }
    }

    /// Whether what begins at `from` comes next.
    pub fn ends_at(&self, from: Option<&Key>) -> bool {
        match self {
            Self::Nothing => from.is_none(),
            Self::Below(until) => from == Some(until),
            Self::All => false,
        }
    }
}

/// A key as the map has it: its beginning lies beside it, so that few comparisons follow a pointer. That
/// halves the instructions of an update, and saves most of the cache misses of a large map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// The table and the first 15 bytes (then zeros), as a number: it is ordered as keys are.
    beginning: u128,
    key: Key,
}

impl Place {
    fn of(key: &Key) -> Self {
        let mut beginning = [0; 16];
        beginning[0] = key.table as u8;
        let len = key.bytes.len().min(15);
        beginning[1..=len].copy_from_slice(&key.bytes[..len]);
        Self { beginning: u128::from_be_bytes(beginning), key: key.clone() }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Tables {
    rows: BTreeMap<Place, Row>,
    covered: Covered,
    bytes: u64,
    finished_rows: usize,
    /// Index of the entry that wrote it, and the key. Stale where the row is of another index now.
    finished: VecDeque<(u64, Key)>,
    /// So many of `finished` were looked at by [`Tables::oldest_finished`].
    looked_at: usize,
}

/// What a row counts for; the overhead is that of the maps (measured, see `limits`).
pub fn row_bytes(key: &Key, value_len: usize, finished: bool) -> u64 {
    let queued = if finished { key.bytes.len() + CONTROL_FINISHED_OVERHEAD } else { 0 };
    (key.bytes.len() + value_len + CONTROL_ROW_OVERHEAD + queued) as u64
}

impl Tables {
    pub fn new() -> Self {
        Self::default()
    }

    /// `index`: of the entry that the operation is in. The key must be covered.
    pub fn apply(&mut self, index: u64, op: &Op) -> Applied {
        match op {
            Op::Put { key, value, expected, finished } => {
                self.put(index, key, value, *expected, *finished)
            }
            Op::Delete { key, expected } => self.delete(key, *expected),
            Op::Archive { key, version } => {
                let found = self.get(key).map_or(0, |row| row.version);
                if found != *version || found == 0 {
                    return Applied::Conflict { found };
                }
                let row = self.remove(key).expect("its version was just read");
                self.forget_stale();
                Applied::Archived(row)
            }
        }
    }

    /// A chunk's rows, for keys that were not covered.
    pub fn install(&mut self, chunk: &Chunk) {
        assert!(self.covered.ends_at(chunk.from.as_ref()), "chunks come in order of their keys");
        for (key, row) in &chunk.rows {
            self.bytes += row_bytes(key, row.value.len(), row.finished);
            if row.finished {
                self.finished_rows += 1;
                self.finished.push_back((row.index, key.clone()));
            }
            let before = self.rows.insert(Place::of(key), row.clone());
            assert!(before.is_none(), "{key:?} was not covered");
        }
        self.covered = match &chunk.until {
            Some(until) => Covered::Below(until.clone()),
            None => Covered::All,
        };
        if chunk.until.is_none() {
            // They came in order of the keys; from here on they come in order of time.
            self.finished.make_contiguous().sort_unstable();
        }
    }

    /// Up to `bytes` worth of rows that may be archived, oldest first, with their versions; each is given
    /// out once, until [`Tables::look_again`].
    pub fn oldest_finished(&mut self, bytes: u64, rows_max: usize) -> (Vec<(Key, u64)>, u64) {
        let mut chosen = Vec::new();
        let mut sum = 0;
        while sum < bytes && chosen.len() < rows_max {
            let Some((index, key)) = self.finished.get(self.looked_at) else { break };
            self.looked_at += 1;
            if let Some(row) =
                self.rows.get(&Place::of(key)).filter(|row| row.finished && row.index == *index)
            {
                sum += row_bytes(key, row.value.len(), true);
                chosen.push((key.clone(), row.version));
            }
        }
        (chosen, sum)
    }

    /// What was given out before may be given out again.
    pub fn look_again(&mut self) {
        self.looked_at = 0;
    }

    pub fn get(&self, key: &Key) -> Option<&Row> {
        self.rows.get(&Place::of(key))
    }

    /// Rows from `from` on (absent: from the first).
    pub fn range(&self, from: Option<&Key>) -> impl Iterator<Item = (&Key, &Row)> {
        let start = from.map_or(Bound::Unbounded, |from| Bound::Included(Place::of(from)));
        self.rows.range((start, Bound::Unbounded)).map(|(place, row)| (&place.key, row))
    }

    /// At most `limit` (> 0) rows, and about `bytes` of them, whose keys begin with `prefix`.
    pub fn scan(
        &self,
        table: Table,
        prefix: &[u8],
        from: Option<&[u8]>,
        limit: usize,
        bytes: usize,
    ) -> Page {
        assert!(limit > 0, "a page holds at least one row");
        let start = from.filter(|from| *from > prefix).unwrap_or(prefix).to_vec();
        let start = Key { table, bytes: start };
        let mut page = Page { rows: Vec::new(), next: None };
        let mut sum = 0;
        for (key, row) in self.range(Some(&start)) {
            if key.table != table || !key.bytes.starts_with(prefix) {
                break;
            }
            if page.rows.len() == limit || sum >= bytes {
                page.next = Some(key.bytes.clone());
                break;
            }
            sum += key.bytes.len() + row.value.len();
            page.rows.push((key.bytes.clone(), row.clone()));
        }
        page
    }

    pub fn covered(&self) -> &Covered {
        &self.covered
    }

    /// Bytes that all rows count for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn finished_rows(&self) -> usize {
        self.finished_rows
    }

    pub fn check(&self) {
        let bytes: u64 =
            self.range(None).map(|(key, row)| row_bytes(key, row.value.len(), row.finished)).sum();
        assert_eq!(self.bytes, bytes, "CTL-3");
        let finished: Vec<&Key> =
            self.range(None).filter(|(_, row)| row.finished).map(|(key, _)| key).collect();
        assert_eq!(self.finished_rows, finished.len(), "CTL-3");
        let mut queued: Vec<&Key> = self
            .finished
            .iter()
            .filter(|(index, key)| {
                self.get(key).is_some_and(|row| row.finished && row.index == *index)
            })
            .map(|(_, key)| key)
            .collect();
        queued.sort_unstable();
        // Put, deleted and put again by one entry: it is there twice.
        queued.dedup();
        assert_eq!(queued, finished, "CTL-4");
        let covered = self.range(None).all(|(key, _)| self.covered.covers(key));
        assert!(covered, "a row that is not covered");
        assert!(self.range(None).is_sorted_by_key(|(key, _)| key), "CTL-2");
        assert!(self.looked_at <= self.finished.len(), "looked at more than there is");
        if self.covered == Covered::All {
            assert!(self.finished.iter().is_sorted_by_key(|(index, _)| *index), "CTL-4");
        }
    }

    fn put(
        &mut self,
        index: u64,
        key: &Key,
        value: &[u8],
        expected: Option<u64>,
        finished: bool,
    ) -> Applied {
        use std::collections::btree_map::Entry;
        let mut queue = finished;
        let version = match self.rows.entry(Place::of(key)) {
            Entry::Vacant(vacant) => {
                if expected.is_some_and(|expected| expected != 0) {
                    return Applied::Conflict { found: 0 };
                }
                vacant.insert(Row { value: value.to_vec(), version: 1, index, finished });
                1
            }
            Entry::Occupied(occupied) => {
                let row = occupied.into_mut();
                if expected.is_some_and(|expected| expected != row.version) {
                    return Applied::Conflict { found: row.version };
                }
                self.bytes -= row_bytes(key, row.value.len(), row.finished);
                self.finished_rows -= usize::from(row.finished);
                queue &= !(row.finished && row.index == index);
                row.value.clear();
                row.value.extend_from_slice(value);
                row.value.shrink_to(value.len() + value.len() / 4);
                row.version += 1;
                row.index = index;
                row.finished = finished;
                row.version
            }
        };
        self.bytes += row_bytes(key, value.len(), finished);
        if finished {
            self.finished_rows += 1;
        }
        if queue {
            self.queue(index, key);
        }
        Applied::Put { version }
    }

    fn delete(&mut self, key: &Key, expected: Option<u64>) -> Applied {
        let found = self.get(key).map_or(0, |row| row.version);
        if expected.is_some_and(|expected| expected != found) {
            return Applied::Conflict { found };
        }
        match self.remove(key) {
            Some(_) => Applied::Deleted,
            None => Applied::Absent,
        }
    }

    fn remove(&mut self, key: &Key) -> Option<Row> {
        let row = self.rows.remove(&Place::of(key))?;
        self.bytes -= row_bytes(key, row.value.len(), row.finished);
        self.finished_rows -= usize::from(row.finished);
        Some(row)
    }

    /// Stale places are swept out when they are more than the others: O(1) for each put.
    fn queue(&mut self, index: u64, key: &Key) {
        if self.finished.len() > 2 * self.finished_rows + 1024 {
            let rows = &self.rows;
            let looked_at = self.looked_at;
            let mut place = 0;
            let mut kept_before = 0;
            self.finished.retain(|(index, key)| {
                let row = rows.get(&Place::of(key));
                let keep = row.is_some_and(|row| row.finished && row.index == *index);
                kept_before += usize::from(keep && place < looked_at);
                place += 1;
                keep
            });
            self.looked_at = kept_before;
        }
        // The row was written already; a sweep just now may not have seen its place, which comes here.
        if self.finished.len() == self.finished.capacity() {
            // By doubling, half of it would be empty: as much as a tenth of all rows take.
            self.finished.reserve_exact(self.finished.len() / 8 + 64);
        }
        self.finished.push_back((index, key.clone()));
    }

    fn forget_stale(&mut self) {
        while let Some((index, key)) = self.finished.front() {
            if self.get(key).is_some_and(|row| row.finished && row.index == *index) {
                return;
            }
            self.finished.pop_front();
            self.looked_at = self.looked_at.saturating_sub(1);
        }
    }
}
