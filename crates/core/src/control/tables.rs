//! Control tables: rows under binary keys, each with a version.
//!
//! The interface is what a sharded, replicated store can give: one key at a time, an optimistic
//! compare-and-swap on its version, and scans in order of the keys, a page at a time. Nothing here
//! spans two keys. [`MemoryStore`] is the store of one node.
//!
//! # Invariants
//! - CTL-1: a version is 1 for a new row and grows by one with each change; 0 means "there is no row".
//! - CTL-2: a scan returns every row that was there all the time exactly once, in order of the keys.

use std::collections::BTreeMap;
use std::ops::Bound;

/// The tables; a key belongs to exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    Node,
    Job,
    Actor,
    Function,
    Kv,
    Event,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub table: Table,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub value: Vec<u8>,
    pub version: u64,
}

/// Some rows in order of their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub rows: Vec<(Vec<u8>, Row)>,
    /// Where the next page begins; absent after the last one.
    pub next: Option<Vec<u8>>,
}

/// The row is not of the version that was expected; read it again and decide anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("row has version {found}, not {expected}")]
pub struct CasError {
    pub expected: u64,
    /// 0 if there is no row.
    pub found: u64,
}

pub trait ControlStore {
    fn get(&self, key: &Key) -> Option<Row>;

    /// Writes whatever was there; returns the new version.
    fn put(&mut self, key: Key, value: Vec<u8>) -> u64;

    /// Writes if the row's version is `expected` (0: if there is no row); returns the new version.
    fn cas(&mut self, key: Key, expected: u64, value: Vec<u8>) -> Result<u64, CasError>;

    /// The row that was there.
    fn delete(&mut self, key: &Key) -> Option<Row>;

    /// At most `limit` (> 0) rows whose keys begin with `prefix`, from key `from` on.
    fn scan(&self, table: Table, prefix: &[u8], from: Option<&[u8]>, limit: usize) -> Page;
}

/// All tables in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    rows: BTreeMap<Key, Row>,
}

impl MemoryStore {
    pub fn new() -> Self {
        Self::default()
    }
}

impl ControlStore for MemoryStore {
    fn get(&self, key: &Key) -> Option<Row> {
        self.rows.get(key).cloned()
    }

    fn put(&mut self, key: Key, value: Vec<u8>) -> u64 {
        let row = self.rows.entry(key).or_insert(Row { value: Vec::new(), version: 0 });
        row.value = value;
        row.version += 1;
        row.version
    }

    fn cas(&mut self, key: Key, expected: u64, value: Vec<u8>) -> Result<u64, CasError> {
        let found = self.rows.get(&key).map_or(0, |row| row.version);
        if found != expected {
            return Err(CasError { expected, found });
        }
        Ok(self.put(key, value))
    }

    fn delete(&mut self, key: &Key) -> Option<Row> {
        self.rows.remove(key)
    }

    fn scan(&self, table: Table, prefix: &[u8], from: Option<&[u8]>, limit: usize) -> Page {
        assert!(limit > 0, "a page holds at least one row");
        let start = from.filter(|from| *from > prefix).unwrap_or(prefix).to_vec();
        let start = Bound::Included(Key { table, bytes: start });
        let matches = |key: &Key| key.table == table && key.bytes.starts_with(prefix);
        let mut rows =
            self.rows.range((start, Bound::Unbounded)).take_while(|(key, _)| matches(key));
        let page = rows.by_ref().take(limit);
        let page = page.map(|(key, row)| (key.bytes.clone(), row.clone())).collect();
        Page { rows: page, next: rows.next().map(|(key, _)| key.bytes.clone()) }
    }
}

/// What every implementation of [`ControlStore`] must pass; the replicated one will as well.
#[cfg(test)]
pub(crate) fn conformance(store: &mut impl ControlStore) {
    let key = |bytes: &str| Key { table: Table::Kv, bytes: bytes.as_bytes().to_vec() };
    assert_eq!(store.get(&key("a")), None);
    assert_eq!(store.delete(&key("a")), None);
    assert_eq!(store.cas(key("a"), 1, vec![1]), Err(CasError { expected: 1, found: 0 }));
    assert_eq!(store.cas(key("a"), 0, vec![1]), Ok(1));
    assert_eq!(store.cas(key("a"), 0, vec![2]), Err(CasError { expected: 0, found: 1 }));
    assert_eq!(store.put(key("a"), vec![3]), 2);
    assert_eq!(store.get(&key("a")), Some(Row { value: vec![3], version: 2 }));
    assert_eq!(store.get(&Key { table: Table::Job, bytes: b"a".to_vec() }), None);

    for name in ["x/1", "x/2", "x/3", "y"] {
        store.put(key(name), name.as_bytes().to_vec());
    }
    store.put(Key { table: Table::Event, bytes: b"x/9".to_vec() }, vec![]);
    let mut seen = Vec::new();
    let mut from: Option<Vec<u8>> = None;
    loop {
        let page = store.scan(Table::Kv, b"x/", from.as_deref(), 2);
        assert!(page.rows.len() <= 2);
        seen.extend(page.rows.into_iter().map(|(key, _)| key));
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!(seen, [b"x/1", b"x/2", b"x/3"]);
    assert_eq!(store.delete(&key("a")), Some(Row { value: vec![3], version: 2 }));
    assert_eq!(store.put(key("a"), vec![]), 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_in_memory_conforms() {
        conformance(&mut MemoryStore::new());
    }
}
