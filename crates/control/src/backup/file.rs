//! The file of a backup.
//!
//! ```text
//!   hoplo backup 1\n          what it is, and its format
//!   {"hoplo": ...}\n          the header, as JSON: who made it, when, of what, how many rows
//!   length, row               each row, in order of the keys; length: u32, little-endian; row: `Line` in postcard
//!   0                         as a length: the end
//!   sum                       u64, little-endian: XXH3 of all bytes before it
//! ```
//! A later version may add fields to the header, and raises the format for everything else.
//!
//! # Invariants
//! - FILE-1: a file of which a byte is missing, added or changed is refused.
//! - FILE-2: what is in a file takes no more memory than a row may, whatever its bytes say.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use hoplo_base::limits::{
    CONTROL_BACKUP_HEADER_BYTES_MAX, CONTROL_KEY_BYTES_MAX, CONTROL_VALUE_BYTES_MAX,
};
use hoplo_core::control::rows::ROW_FORMAT;
use hoplo_wire::control::{Key, Row, Table};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::{BackupError, named};
use crate::net::cluster::Founding;

pub const FORMAT: u32 = 1;
const MAGIC: &str = "hoplo backup ";
/// A row that is as long as can be, with its lengths and numbers.
const LINE_BYTES_MAX: usize = CONTROL_KEY_BYTES_MAX + CONTROL_VALUE_BYTES_MAX + 64;

/// What is said of all rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The version that made it.
    pub hoplo: String,
    /// Microseconds since 1970.
    pub made_us: u64,
    /// 32 hexadecimal digits.
    pub cluster: String,
    /// Of the rows' values, but for users' keys.
    pub row_format: u8,
    pub rows: u64,
    /// By table, those that have any.
    pub tables: BTreeMap<String, u64>,
    pub shards: Vec<Shard>,
    /// Of a head: what its cluster is known by. SECRET.
    pub head: Option<Founding>,
}

/// Of which moment a shard's rows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    pub epoch: u64,
    pub index: u64,
}

#[derive(Serialize, Deserialize)]
struct Line {
    /// Its place in [`Table::ALL`].
    table: u8,
    #[serde(with = "serde_bytes")]
    key: Vec<u8>,
    #[serde(with = "serde_bytes")]
    value: Vec<u8>,
    version: u64,
    index: u64,
    finished: bool,
}

impl Header {
    /// Its rows can be those of this program.
    pub(super) fn fit(&self, path: &Path) -> Result<(), BackupError> {
        if self.row_format != ROW_FORMAT {
            let (found, hoplo, path) = (self.row_format, self.hoplo.clone(), path.into());
            return Err(BackupError::Rows { path, found, hoplo });
        }
        Ok(())
    }
}

/// A row as it lies in the file, without its length.
fn line(key: &Key, row: &Row) -> Vec<u8> {
    let line = Line {
        table: key.table as u8,
        key: key.bytes.clone(),
        value: row.value.clone(),
        version: row.version,
        index: row.index,
        finished: row.finished,
    };
    postcard::to_stdvec(&line).expect("plain data")
}

fn of_line(bytes: &[u8]) -> Result<(Key, Row), String> {
    let line: Line = postcard::from_bytes(bytes).map_err(|error| format!("no row: {error}"))?;
    let table = Table::ALL.get(usize::from(line.table));
    let table = *table.ok_or_else(|| format!("there is no table {}", line.table))?;
    let Line { key, value, version, index, finished, .. } = line;
    Ok((Key { table, bytes: key }, Row { value, version, index, finished }))
}

/// Rows one after the other, each with its length: as in the file.
pub(super) fn put(out: &mut impl Write, key: &Key, row: &Row) -> io::Result<()> {
    let line = line(key, row);
    out.write_all(&(line.len() as u32).to_le_bytes())?;
    out.write_all(&line)
}

pub(super) struct Writer<W> {
    out: W,
    sum: Xxh3,
}

impl<W: Write> Writer<W> {
    pub(super) fn begin(out: W, header: &Header) -> io::Result<Self> {
        let mut new = Self { out, sum: Xxh3::new() };
        let header = serde_json::to_string(header).expect("plain data");
        write!(new, "{MAGIC}{FORMAT}\n{header}\n")?;
        Ok(new)
    }

    /// After this it is whole.
    pub(super) fn end(mut self) -> io::Result<W> {
        self.write_all(&0_u32.to_le_bytes())?;
        let sum = self.sum.digest();
        self.out.write_all(&sum.to_le_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }
}

impl<W: Write> Write for Writer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.sum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Reads a backup, row by row.
pub struct Reader {
    path: PathBuf,
    pub header: Header,
    bytes: Bytes<BufReader<File>>,
    last: Option<Key>,
    rows: u64,
    ended: bool,
}

impl Reader {
    pub fn open(path: &Path) -> Result<Self, BackupError> {
        let file = File::open(path).map_err(named(path))?;
        if file.metadata().map_err(named(path))?.is_dir() {
            return Err(BackupError::NotOne(path.to_path_buf()));
        }
        let mut bytes = Bytes { from: BufReader::new(file), sum: Xxh3::new(), read: 0 };
        let path = path.to_path_buf();
        let mut magic = [0; MAGIC.len()];
        match bytes.fill(&mut magic) {
            Ok(()) if magic == MAGIC.as_bytes() => {}
            Err(Unfit::CutOff(there)) if MAGIC.as_bytes().starts_with(&magic[..there as usize]) => {
                return Err(Unfit::CutOff(there).of(&path));
            }
            Err(why @ Unfit::Io(_)) => return Err(why.of(&path)),
            Ok(()) | Err(_) => return Err(BackupError::NotOne(path)),
        }
        let format = bytes.line(16).map_err(|why| why.of(&path))?;
        match format.parse().ok() {
            None => return Err(BackupError::NotOne(path)),
            Some(FORMAT) => {}
            Some(found) => return Err(BackupError::Newer { path, found }),
        }
        let text = bytes.line(CONTROL_BACKUP_HEADER_BYTES_MAX).map_err(|why| why.of(&path))?;
        let header = serde_json::from_str(&text);
        let header = header.map_err(|why| Unfit::Bytes(format!("its header: {why}")).of(&path))?;
        Ok(Self { path, header, bytes, last: None, rows: 0, ended: false })
    }

    /// Reads what is left, and only then says that all of it is right.
    pub fn check(mut self) -> Result<Header, BackupError> {
        while self.next_row()?.is_some() {}
        Ok(self.header)
    }

    /// Absent after the last one, where everything was right, and from then on.
    pub fn next_row(&mut self) -> Result<Option<(Key, Row)>, BackupError> {
        if self.ended {
            return Ok(None);
        }
        let next = self.try_next().map_err(|why| why.of(&self.path))?;
        self.ended = next.is_none();
        Ok(next)
    }

    fn try_next(&mut self) -> Result<Option<(Key, Row)>, Unfit> {
        let damaged = |why: &str| Err(Unfit::Bytes(why.to_string()));
        let Some(line) = self.bytes.frame()? else {
            let sum = self.bytes.sum.digest();
            if u64::from_le_bytes(self.bytes.exactly()?) != sum {
                return damaged("its checksum is wrong");
            }
            return match (self.bytes.is_at_end()?, self.rows == self.header.rows) {
                (true, true) => Ok(None),
                (false, _) => damaged("something follows its end"),
                (true, false) => damaged("it has another number of rows than it says"),
            };
        };
        let (key, row) = of_line(&line).map_err(Unfit::Bytes)?;
        if self.last.as_ref().is_some_and(|last| *last >= key) {
            return damaged("its rows are in disorder");
        }
        self.rows += 1;
        self.last = Some(key.clone());
        Ok(Some((key, row)))
    }
}

/// Rows that [`put`] wrote, and nothing else.
pub(super) fn rows(from: impl Read) -> impl Iterator<Item = io::Result<(Key, Row)>> {
    let mut bytes = Bytes { from, sum: Xxh3::new(), read: 0 };
    std::iter::from_fn(move || match bytes.frame() {
        Ok(Some(line)) => Some(of_line(&line).map_err(io::Error::other)),
        Ok(None) => None,
        Err(Unfit::Io(error)) => Some(Err(error)),
        Err(why @ (Unfit::CutOff(_) | Unfit::Bytes(_))) => {
            Some(Err(io::Error::other(why.in_words())))
        }
    })
}

/// Why nothing more can be read.
enum Unfit {
    Io(io::Error),
    CutOff(u64),
    Bytes(String),
}

impl Unfit {
    fn of(self, path: &Path) -> BackupError {
        let path = path.to_path_buf();
        match self {
            Self::Io(error) => BackupError::Io { path, error },
            Self::CutOff(bytes) => BackupError::CutOff { path, bytes },
            Self::Bytes(why) => BackupError::Damaged { path, why },
        }
    }

    fn in_words(&self) -> String {
        match self {
            Self::Io(error) => error.to_string(),
            Self::CutOff(bytes) => format!("it ends after {bytes} bytes"),
            Self::Bytes(why) => why.clone(),
        }
    }
}

/// Counts and sums what is read.
struct Bytes<R> {
    from: R,
    sum: Xxh3,
    read: u64,
}

impl<R: Read> Bytes<R> {
    fn fill(&mut self, into: &mut [u8]) -> Result<(), Unfit> {
        let mut filled = 0;
        while filled < into.len() {
            match self.from.read(&mut into[filled..]) {
                Ok(0) => return Err(Unfit::CutOff(self.read + filled as u64)),
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Unfit::Io(error)),
            }
        }
        self.sum.update(into);
        self.read += into.len() as u64;
        Ok(())
    }

    fn exactly<const N: usize>(&mut self) -> Result<[u8; N], Unfit> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn line(&mut self, bytes_max: u64) -> Result<String, Unfit> {
        let mut line = Vec::new();
        loop {
            let [byte] = self.exactly()?;
            if byte == b'\n' {
                break;
            }
            line.push(byte);
            if line.len() as u64 > bytes_max {
                return Err(Unfit::Bytes("a line without an end".to_string()));
            }
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    /// Absent at the end.
    fn frame(&mut self) -> Result<Option<Vec<u8>>, Unfit> {
        match u32::from_le_bytes(self.exactly()?) as usize {
            0 => Ok(None),
            len if len > LINE_BYTES_MAX => {
                Err(Unfit::Bytes(format!("a row of {len} bytes, at most {LINE_BYTES_MAX} can be")))
            }
            len => {
                let mut line = vec![0; len];
                self.fill(&mut line)?;
                Ok(Some(line))
            }
        }
    }

    fn is_at_end(&mut self) -> Result<bool, Unfit> {
        let mut more = [0];
        loop {
            match self.from.read(&mut more) {
                Ok(bytes) => return Ok(bytes == 0),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Unfit::Io(error)),
            }
        }
    }
}
