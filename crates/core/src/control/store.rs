//! The control store as the daemon sees it: single keys, versions, scans.
//!
//! Nothing here spans two keys, and everything may be refused: the disk may be full, or the memory.

use hoplo_wire::control::{Key, Op, Refusal, Row, Table};

use super::rows::Entry;
use super::tables::{Applied, Page, Tables};

/// Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CasError {
    /// Read it again and decide anew. `found` is 0 if there is no row.
    #[error("row has version {found}, not {expected}")]
    Conflict { expected: u64, found: u64 },
    #[error(transparent)]
    Refused(#[from] Refusal),
}

pub trait ControlStore {
    fn get(&self, key: &Key) -> Option<Row>;

    /// Writes whatever was there; returns the new version.
    fn put(&mut self, key: Key, value: Vec<u8>) -> Result<u64, Refusal>;

    /// Writes the last version of something: it may become history, on disk, when memory is short.
    fn finish(&mut self, key: Key, value: Vec<u8>) -> Result<u64, Refusal>;

    /// Writes if the row's version is `expected` (0: if there is no row); returns the new version.
    fn cas(&mut self, key: Key, expected: u64, value: Vec<u8>) -> Result<u64, CasError>;

    /// The row that was there.
    fn delete(&mut self, key: &Key) -> Result<Option<Row>, Refusal>;

    /// At most `limit` (> 0) rows whose keys begin with `prefix`, from key `from` on.
    fn scan(&self, table: Table, prefix: &[u8], from: Option<&[u8]>, limit: usize) -> Page;
}

/// Rows that are read at once.
const PAGE_ROWS: usize = 256;

/// Every row of a table in order, by its key.
pub fn rows(store: &dyn ControlStore, table: Table, mut take: impl FnMut(&[u8], &Row)) {
    let mut from: Option<Vec<u8>> = None;
    loop {
        let page = store.scan(table, b"", from.as_deref(), PAGE_ROWS);
        page.rows.iter().for_each(|(key, row)| take(key, row));
        from = page.next;
        if from.is_none() {
            return;
        }
    }
}

/// Every entry of a table in order. What does not parse was written by another program; it stays as it is.
pub fn entries<E: Entry>(store: &dyn ControlStore) -> Vec<E> {
    let mut entries = Vec::new();
    rows(store, E::TABLE, |_, row| entries.extend(E::from_row(row)));
    entries
}

/// All tables in memory; nothing stays.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    tables: Tables,
    changes: u64,
}

impl MemoryStore {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    fn apply(&mut self, op: &Op) -> Applied {
        self.changes += 1;
        self.tables.apply(self.changes, op)
    }

    fn write(&mut self, key: Key, value: Vec<u8>, finished: bool) -> u64 {
        match self.apply(&Op::Put { key, value, expected: None, finished }) {
            Applied::Put { version } => version,
            other => unreachable!("a put without condition: {other:?}"),
        }
    }
}

impl ControlStore for MemoryStore {
    fn get(&self, key: &Key) -> Option<Row> {
        self.tables.get(key).cloned()
    }

    fn put(&mut self, key: Key, value: Vec<u8>) -> Result<u64, Refusal> {
        Ok(self.write(key, value, false))
    }

    fn finish(&mut self, key: Key, value: Vec<u8>) -> Result<u64, Refusal> {
        Ok(self.write(key, value, true))
    }

    fn cas(&mut self, key: Key, expected: u64, value: Vec<u8>) -> Result<u64, CasError> {
        let put = Op::Put { key, value, expected: Some(expected), finished: false };
        match self.apply(&put) {
            Applied::Put { version } => Ok(version),
            Applied::Conflict { found } => Err(CasError::Conflict { expected, found }),
            other => unreachable!("a put: {other:?}"),
        }
    }

    fn delete(&mut self, key: &Key) -> Result<Option<Row>, Refusal> {
        let row = self.tables.get(key).cloned();
        self.apply(&Op::Delete { key: key.clone(), expected: None });
        Ok(row)
    }

    fn scan(&self, table: Table, prefix: &[u8], from: Option<&[u8]>, limit: usize) -> Page {
        self.tables.scan(table, prefix, from, limit, usize::MAX)
    }
}

/// What every implementation of [`ControlStore`] must pass.
pub fn conformance(store: &mut impl ControlStore) {
    let key = |bytes: &str| Key { table: Table::Kv, bytes: bytes.as_bytes().to_vec() };
    let conflict = |expected, found| Err(CasError::Conflict { expected, found });
    let seen = |store: &dyn Fn(&Key) -> Option<Row>, name: &str| {
        store(&key(name)).map(|row| (row.value, row.version))
    };
    assert_eq!(store.get(&key("a")), None);
    assert_eq!(store.delete(&key("a")), Ok(None));
    assert_eq!(store.cas(key("a"), 1, vec![1]), conflict(1, 0));
    assert_eq!(store.cas(key("a"), 0, vec![1]), Ok(1));
    assert_eq!(store.cas(key("a"), 0, vec![2]), conflict(0, 1));
    assert_eq!(store.put(key("a"), vec![3]), Ok(2));
    assert_eq!(seen(&|key| store.get(key), "a"), Some((vec![3], 2)));
    assert_eq!(store.get(&Key { table: Table::Job, bytes: b"a".to_vec() }), None);

    for name in ["x/1", "x/2", "x/3", "y"] {
        assert_eq!(store.put(key(name), name.as_bytes().to_vec()), Ok(1));
    }
    let mut seen = Vec::new();
    let mut from: Option<Vec<u8>> = None;
    loop {
        let page = store.scan(Table::Kv, b"x/", from.as_deref(), 2);
        assert!(page.rows.len() <= 2, "no more than was asked for");
        seen.extend(page.rows.into_iter().map(|(key, _)| key));
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!(seen, [b"x/1", b"x/2", b"x/3"]);
    let gone = store.delete(&key("a")).map(|row| row.map(|row| (row.value, row.version)));
    assert_eq!(gone, Ok(Some((vec![3], 2))));
    assert_eq!(store.get(&key("a")), None);
    assert_eq!(store.put(key("a"), vec![]), Ok(1), "CTL-1");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_in_memory_conforms() {
        conformance(&mut MemoryStore::new());
    }
}
