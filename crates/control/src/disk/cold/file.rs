//! The redb file: what one transaction does.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hoplo_wire::control::{Key, Row, Table};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use xxhash_rust::xxh3::xxh3_64;

use crate::clock::{as_micros, micros_since_1970};

use super::{ColdError, ColdOptions, Flush, Page, Range, Usage};

const ROWS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("rows");
const ORDER: TableDefinition<u64, &[u8]> = TableDefinition::new("order");
const FACTS: TableDefinition<&str, u128> = TableDefinition::new("facts");

const FORMAT: u128 = 1;

/// Old flushes that one new flush makes room for.
const TRIMMED_PER_FLUSH: usize = 8;

pub(super) struct ColdFile {
    reader: Reader,
    /// Of the last flush, microseconds since 1970; each is later than the one before.
    stamp: u64,
    usage: Usage,
}

/// Reads what was committed last; several may, beside the one that writes.
#[derive(Clone)]
pub(super) struct Reader {
    options: ColdOptions,
    database: Arc<Database>,
}

/// What lies in front of a row's value.
const FIXED_BYTES: usize = 33;

impl ColdFile {
    /// Makes it if it is not there.
    pub(super) fn open(options: ColdOptions) -> Result<Self, ColdError> {
        let io =
            |error: io::Error| ColdError::Io { path: options.path.clone(), why: error.to_string() };
        if is_gone(&options.path).map_err(io)? {
            let (path, why) = (options.path, "it was there, and is not any more".to_string());
            return Err(ColdError::Damaged { path, why });
        }
        let database = Database::builder()
            .set_cache_size(options.cache_bytes)
            .create(&options.path)
            .map_err(|error| named(&options, error))?;
        let path = options.path.clone();
        let reader = Reader { options, database: Arc::new(database) };
        let mut file = Self { reader, stamp: 0, usage: Usage::default() };
        file.begin()?;
        note_made(&path).map_err(|error| ColdError::Io { path, why: error.to_string() })?;
        Ok(file)
    }

    pub(super) fn reader(&self) -> &Reader {
        &self.reader
    }

    pub(super) fn usage(&self) -> Usage {
        self.usage
    }

    pub(super) fn write(&mut self, flush: Flush) -> Result<(), ColdError> {
        let Flush { clear, puts, deletes } = flush;
        let transaction = self.begin_write()?;
        let stamp = micros_since_1970().max(self.stamp + 1);
        let mut usage = self.usage;
        {
            let mut rows = self.reader.named(transaction.open_table(ROWS))?;
            let mut order = self.reader.named(transaction.open_table(ORDER))?;
            for (from, until) in clear {
                let range = bounds(from.as_ref(), until.as_ref());
                let range = (as_slice(&range.0), as_slice(&range.1));
                let removed = |key: &[u8], value: &[u8]| {
                    usage.remove(key, value);
                    false
                };
                self.reader.named(rows.retain_in::<&[u8], _>(range, removed))?;
            }
            let mut keys: Vec<Vec<u8>> = Vec::with_capacity(puts.len());
            for (key, row) in &puts {
                let (key, value) = (key_bytes(key), row_bytes(row, stamp));
                if let Some(old) =
                    self.reader.named(rows.insert(key.as_slice(), value.as_slice()))?
                {
                    usage.remove(&key, old.value());
                }
                usage.rows += 1;
                usage.bytes += (key.len() + value.len()) as u64;
                keys.push(key);
            }
            for key in &deletes {
                let key = key_bytes(key);
                if let Some(old) = self.reader.named(rows.remove(key.as_slice()))? {
                    usage.remove(&key, old.value());
                }
            }
            if !keys.is_empty() {
                let keys = postcard::to_allocvec(&keys).expect("a vector takes everything");
                self.reader.named(order.insert(stamp, keys.as_slice()))?;
            }
        }
        self.trim(&transaction, &mut usage, TRIMMED_PER_FLUSH)?;
        self.commit(transaction, usage)?;
        self.stamp = stamp;
        Ok(())
    }

    /// Removes what is too old or too much; whether there may be more of it.
    pub(super) fn retain(&mut self) -> Result<bool, ColdError> {
        let transaction = self.begin_write()?;
        let mut usage = self.usage;
        let trimmed = self.trim(&transaction, &mut usage, TRIMMED_PER_FLUSH)?;
        if trimmed == 0 {
            self.reader.named(transaction.abort())?;
        } else {
            self.commit(transaction, usage)?;
        }
        Ok(trimmed == TRIMMED_PER_FLUSH)
    }

    /// Whose it is, and what is in it.
    fn begin(&mut self) -> Result<(), ColdError> {
        let transaction = self.begin_write()?;
        let (cluster, shard) = (self.reader.options.cluster.0, self.reader.options.shard.0);
        let read = {
            let mut facts = self.reader.named(transaction.open_table(FACTS))?;
            let mut fact = |name, initial: u128| -> Result<u128, ColdError> {
                let found = self.reader.named(facts.get(name))?.map(|found| found.value());
                if found.is_none() {
                    self.reader.named(facts.insert(name, initial))?;
                }
                Ok(found.unwrap_or(initial))
            };
            let format = fact("format", FORMAT)?;
            if format != FORMAT {
                let path = self.reader.options.path.clone();
                return Err(ColdError::Format { path, found: format, ours: FORMAT });
            }
            let found = (fact("cluster", cluster)?, fact("shard", u128::from(shard))?);
            if found != (cluster, u128::from(shard)) {
                return Err(ColdError::Foreign {
                    path: self.reader.options.path.clone(),
                    found: found.0,
                    found_shard: found.1 as u16,
                    ours: cluster,
                    our_shard: shard,
                });
            }
            Usage { rows: fact("rows", 0)? as u64, bytes: fact("bytes", 0)? as u64 }
        };
        let last = {
            self.reader.named(transaction.open_table(ROWS))?;
            let order = self.reader.named(transaction.open_table(ORDER))?;
            let last = self.reader.named(order.last())?;
            last.map_or(0, |(stamp, _)| stamp.value())
        };
        self.stamp = last;
        self.commit(transaction, read)
    }

    fn trim(
        &self,
        transaction: &WriteTransaction,
        usage: &mut Usage,
        at_most: usize,
    ) -> Result<usize, ColdError> {
        let retention = self.reader.options.retention;
        let oldest =
            retention.age.map_or(0, |age| micros_since_1970().saturating_sub(as_micros(age)));
        let bytes_max = retention.bytes.unwrap_or(u64::MAX);
        let mut rows = self.reader.named(transaction.open_table(ROWS))?;
        let mut order = self.reader.named(transaction.open_table(ORDER))?;
        for trimmed in 0..at_most {
            let first = self.reader.named(order.first())?;
            let first = first.map(|(stamp, keys)| (stamp.value(), keys.value().to_vec()));
            let wanted = |stamp| stamp < oldest || usage.bytes > bytes_max;
            let Some((stamp, keys)) = first.filter(|(stamp, _)| wanted(*stamp)) else {
                return Ok(trimmed);
            };
            let keys: BTreeSet<Vec<u8>> = postcard::from_bytes(&keys).map_err(|error| {
                self.reader.damaged(format!("the keys of flush {stamp}: {error}"))
            })?;
            for key in keys {
                let found = self.reader.named(rows.get(key.as_slice()))?;
                let ours = found.is_some_and(|value| stamp_of(value.value()) == Some(stamp));
                if ours && let Some(old) = self.reader.named(rows.remove(key.as_slice()))? {
                    usage.remove(&key, old.value());
                }
            }
            self.reader.named(order.remove(stamp))?;
        }
        Ok(at_most)
    }

    fn begin_write(&self) -> Result<WriteTransaction, ColdError> {
        let mut transaction = self.reader.named(self.reader.database.begin_write())?;
        // A start after a kill does not read the whole file.
        transaction.set_quick_repair(true);
        Ok(transaction)
    }

    fn commit(&mut self, transaction: WriteTransaction, usage: Usage) -> Result<(), ColdError> {
        {
            let mut facts = self.reader.named(transaction.open_table(FACTS))?;
            self.reader.named(facts.insert("rows", u128::from(usage.rows)))?;
            self.reader.named(facts.insert("bytes", u128::from(usage.bytes)))?;
        }
        self.reader.named(transaction.commit())?;
        self.usage = usage;
        Ok(())
    }
}

/// It is there, or should be.
pub(super) fn was_made(path: &Path) -> io::Result<bool> {
    Ok(path.try_exists()? || is_gone(path)?)
}

fn is_gone(path: &Path) -> io::Result<bool> {
    Ok(!path.try_exists()? && note_of(path).try_exists()?)
}

/// On disk, like the file that it speaks of.
fn note_made(path: &Path) -> io::Result<()> {
    let note = note_of(path);
    if !note.try_exists()? {
        File::create(&note)?.sync_all()?;
        let folder = path.parent().expect("a file lies in a folder");
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

fn note_of(path: &Path) -> PathBuf {
    path.with_extension("made")
}

/// Of a file that is not to be used any more: where it lies now; absent if it was taken away. The next flush makes a new
/// one.
pub fn set_aside(path: &Path) -> io::Result<Option<PathBuf>> {
    let aside = path.with_extension(format!("damaged-{}", micros_since_1970()));
    let found = match fs::rename(path, &aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        done => Some(done?),
    };
    match fs::remove_file(note_of(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    Ok(found.map(|()| aside))
}

impl Reader {
    pub(super) fn row(&self, key: &Key) -> Result<Option<Row>, ColdError> {
        let rows = self.named(self.database.begin_read())?;
        let rows = self.named(rows.open_table(ROWS))?;
        let key = key_bytes(key);
        let found = self.named(rows.get(key.as_slice()))?;
        found.map(|value| self.parse_row(&key, value.value())).transpose()
    }

    pub(super) fn page(&self, range: &Range) -> Result<Page, ColdError> {
        let rows = self.named(self.database.begin_read())?;
        let rows = self.named(rows.open_table(ROWS))?;
        let bounds = bounds(range.from.as_ref(), range.until.as_ref());
        let bounds = (as_slice(&bounds.0), as_slice(&bounds.1));
        let (mut page, mut bytes) = (Vec::new(), 0u64);
        for found in self.named(rows.range::<&[u8]>(bounds))? {
            let (key, value) = self.named(found)?;
            let (key, value) = (key.value(), value.value());
            let parsed = self.parse_key(key)?;
            if page.len() >= range.limit as usize || bytes >= range.bytes {
                return Ok((page, Some(parsed)));
            }
            bytes += (key.len() + value.len()) as u64;
            page.push((parsed, self.parse_row(key, value)?));
        }
        Ok((page, None))
    }

    fn parse_key(&self, bytes: &[u8]) -> Result<Key, ColdError> {
        let (number, rest) = bytes.split_first().ok_or_else(|| self.damaged("an empty key"))?;
        let table = Table::ALL.get(usize::from(*number));
        let table = *table.ok_or_else(|| self.damaged(format!("a key of table {number}")))?;
        Ok(Key { table, bytes: rest.to_vec() })
    }

    fn parse_row(&self, key: &[u8], bytes: &[u8]) -> Result<Row, ColdError> {
        let wrong = || self.damaged(format!("the row under {}", hex(key)));
        let (fixed, value) = bytes.split_first_chunk::<FIXED_BYTES>().ok_or_else(wrong)?;
        if u64_at(fixed, 0) != xxh3_64(&bytes[8..]) {
            return Err(wrong());
        }
        Ok(Row {
            value: value.to_vec(),
            version: u64_at(fixed, 16),
            index: u64_at(fixed, 24),
            finished: fixed[32] == 1,
        })
    }

    fn named<T, E: Into<redb::Error>>(&self, result: Result<T, E>) -> Result<T, ColdError> {
        result.map_err(|error| named(&self.options, error))
    }

    fn damaged(&self, why: impl Into<String>) -> ColdError {
        ColdError::Damaged { path: self.options.path.clone(), why: why.into() }
    }
}

impl Usage {
    fn remove(&mut self, key: &[u8], value: &[u8]) {
        self.rows = self.rows.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub((key.len() + value.len()) as u64);
    }
}

fn named(options: &ColdOptions, error: impl Into<redb::Error>) -> ColdError {
    let (path, error) = (options.path.clone(), error.into());
    let why = error.to_string();
    match error {
        redb::Error::Corrupted(_)
        | redb::Error::UpgradeRequired(_)
        | redb::Error::RepairAborted
        | redb::Error::TableTypeMismatch { .. }
        | redb::Error::TableExists(_)
        | redb::Error::TableDoesNotExist(_)
        | redb::Error::TypeDefinitionChanged { .. } => ColdError::Damaged { path, why },
        redb::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            ColdError::Damaged { path, why }
        }
        _ => ColdError::Io { path, why },
    }
}

fn key_bytes(key: &Key) -> Vec<u8> {
    let number = Table::ALL.iter().position(|table| *table == key.table);
    let mut bytes = Vec::with_capacity(key.bytes.len() + 1);
    bytes.push(number.expect("all tables are listed") as u8);
    bytes.extend_from_slice(&key.bytes);
    bytes
}

fn row_bytes(row: &Row, stamp: u64) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    bytes.extend_from_slice(&stamp.to_le_bytes());
    bytes.extend_from_slice(&row.version.to_le_bytes());
    bytes.extend_from_slice(&row.index.to_le_bytes());
    bytes.push(u8::from(row.finished));
    bytes.extend_from_slice(&row.value);
    let sum = xxh3_64(&bytes[8..]);
    bytes[..8].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn stamp_of(value: &[u8]) -> Option<u64> {
    value.first_chunk::<FIXED_BYTES>().map(|fixed| u64_at(fixed, 8))
}

fn bounds(from: Option<&Key>, until: Option<&Key>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let from = from.map_or(Bound::Unbounded, |key| Bound::Included(key_bytes(key)));
    let until = until.map_or(Bound::Unbounded, |key| Bound::Excluded(key_bytes(key)));
    (from, until)
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("the fixed part is longer"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
