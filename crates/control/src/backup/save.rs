//! A store that runs becomes a file.
//!
//! ```text
//!   pages --> a file without a name --\
//!                                      +--count, then write--> FILE.PID.new --on disk--> FILE
//!   changes meanwhile, in memory -----/
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use hoplo_base::limits::{
    CONTROL_BACKUP_ANSWERS, CONTROL_BACKUP_CHANGES_BYTES_MAX, CONTROL_BACKUP_TRIES,
    CONTROL_PAGE_ROWS_MAX, CONTROL_WATCH_CREDIT,
};
use hoplo_core::control::backup::{Backup, Effect, Event, Overlay};
use hoplo_core::control::client::{self, Call, CallError, Done};
use hoplo_core::control::rows::ROW_FORMAT;
use hoplo_wire::control::{Key, Query, Row, Table};

use super::file::{self, Header, Shard, Writer};
use super::{BackupError, named};
use crate::clock::micros_since_1970;
use crate::net::cluster::{Cluster, Founding};
use crate::net::driver::{Driver, Outcome};

/// All rows of the store, into a file that is not there (or is replaced, with `force`). `head`: of a head, what its cluster is known by.
pub fn save(
    cluster: &Cluster,
    head: Option<Founding>,
    path: &Path,
    force: bool,
) -> Result<Header, BackupError> {
    if path.is_dir() {
        return Err(BackupError::Folder(path.to_path_buf()));
    }
    // A link to nowhere is something, too.
    if !force && fs::symlink_metadata(path).is_ok() {
        return Err(BackupError::Exists(path.to_path_buf()));
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = PathBuf::from(beside);
    let saved = gather(cluster, &beside)
        .and_then(|gathered| gathered.write(cluster, head, &beside))
        .and_then(|header| give_name(&beside, path).map(|()| header).map_err(named(path)));
    if saved.is_err() {
        // It may not have been made.
        let _ = fs::remove_file(&beside);
    }
    saved
}

/// What is in it is on disk before it has this name, and so is the name.
fn give_name(beside: &Path, path: &Path) -> io::Result<()> {
    fs::rename(beside, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn create(path: &Path) -> Result<File, BackupError> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create_new(true).mode(0o600);
    options.open(path).map_err(named(path))
}

/// Pages, and what changed meanwhile.
struct Gathered {
    /// In order of their keys.
    pages: File,
    overlay: Overlay,
    epochs: Vec<u64>,
}

fn gather(cluster: &Cluster, beside: &Path) -> Result<Gathered, BackupError> {
    for _ in 0..CONTROL_BACKUP_TRIES {
        let pages = create(beside)?;
        // It goes with this process.
        fs::remove_file(beside).map_err(named(beside))?;
        if let Some(gathered) = Gathering::begin(cluster, pages, beside)?.run()? {
            return Ok(gathered);
        }
    }
    Err(BackupError::Busy)
}

struct Gathering<'a> {
    driver: Driver,
    machine: Backup,
    effects: Vec<Effect>,
    /// The page that is under way.
    scan: Option<u64>,
    until: Instant,
    pages: BufWriter<File>,
    beside: &'a Path,
}

impl<'a> Gathering<'a> {
    fn begin(cluster: &Cluster, pages: File, beside: &'a Path) -> Result<Self, BackupError> {
        let driver = Driver::new(cluster).map_err(named(beside))?;
        let mut effects = Vec::new();
        let machine = Backup::begin(CONTROL_BACKUP_CHANGES_BYTES_MAX, &mut effects);
        let (pages, until) = (BufWriter::new(pages), Instant::now() + CONTROL_BACKUP_ANSWERS);
        Ok(Self { driver, machine, effects, scan: None, until, pages, beside })
    }

    /// Absent: the store has forgotten changes that were not told yet.
    fn run(mut self) -> Result<Option<Gathered>, BackupError> {
        loop {
            for effect in std::mem::take(&mut self.effects) {
                match effect {
                    Effect::Scan { table, from } => self.scan(table, from),
                    Effect::Watch { after } => self.watch(&after),
                    Effect::Keep { rows } => {
                        let mut put = rows.iter();
                        let put =
                            put.try_for_each(|(key, row)| file::put(&mut self.pages, key, row));
                        put.map_err(named(self.beside))?;
                    }
                    Effect::Again => return Ok(None),
                    Effect::Done(overlay) => return self.done(overlay).map(Some),
                }
            }
            self.driver.turn(Some(self.until)).map_err(named(self.beside))?;
            for outcome in std::mem::take(&mut self.driver.results) {
                self.hears(outcome)?;
            }
            if Instant::now() >= self.until && self.effects.is_empty() {
                let why = "it does not tell its latest changes; try again".to_string();
                return Err(BackupError::Unread(why));
            }
        }
    }

    fn scan(&mut self, table: Table, from: Option<Vec<u8>>) {
        let (prefix, limit, archived) = (Vec::new(), CONTROL_PAGE_ROWS_MAX, true);
        let query = Query::Scan { table, prefix, from, limit, archived };
        self.until = Instant::now() + CONTROL_BACKUP_ANSWERS;
        let call = Call::Query { query, stale: false };
        self.scan = Some(self.driver.start(call, self.until));
    }

    /// Subscriptions are called as their table's place is.
    fn watch(&mut self, after: &[u64]) {
        for (subscription, table) in (0..).zip(Table::ALL) {
            let (prefix, after, credit) = (Vec::new(), after.to_vec(), CONTROL_WATCH_CREDIT);
            let event = client::Event::Subscribe { subscription, table, prefix, after, credit };
            self.driver.handle(event);
        }
    }

    fn hears(&mut self, outcome: Outcome) -> Result<(), BackupError> {
        let event = match outcome {
            Outcome::Finished { call, result } if self.scan == Some(call) => match result {
                Ok(Done::Page { rows, next, indexes }) => Event::Page { rows, next, indexes },
                Ok(Done::Updated(_) | Done::Row(_)) => unreachable!("a scan gives a page"),
                Err(error) => return Err(self.unread(&error)),
            },
            Outcome::Changes { subscription, shard, changes, upto } => {
                let told = changes.len() as u32;
                let consumed = client::Event::Consumed { subscription, shard, changes: told };
                self.driver.handle(consumed);
                let (table, shard) = (Table::ALL[subscription as usize], usize::from(shard.0));
                Event::Changes { table, shard, changes, upto }
            }
            Outcome::Missed { .. } => Event::Missed,
            Outcome::Finished { .. } | Outcome::Told { .. } => return Ok(()),
        };
        let heard = self.machine.handle(event, &mut self.effects);
        heard.map_err(|_| BackupError::Busy)
    }

    fn unread(&self, error: &CallError) -> BackupError {
        let unfit = self.driver.unfit().map(ToString::to_string);
        BackupError::Unread(unfit.unwrap_or_else(|| error.to_string()))
    }

    fn done(self, overlay: Overlay) -> Result<Gathered, BackupError> {
        let Self { driver, mut pages, beside, .. } = self;
        let config = driver.machine().config().expect("pages came by it");
        let epochs = config.shards.iter().map(|chain| chain.epoch.0).collect();
        let end = pages.write_all(&0_u32.to_le_bytes());
        end.map_err(named(beside))?;
        let pages = pages.into_inner().map_err(|error| named(beside)(error.into_error()))?;
        Ok(Gathered { pages, overlay, epochs })
    }
}

impl Gathered {
    fn write(
        self,
        cluster: &Cluster,
        head: Option<Founding>,
        beside: &Path,
    ) -> Result<Header, BackupError> {
        let Self { mut pages, overlay, epochs } = self;
        let mut each = |take: &mut dyn FnMut(&Key, &Row) -> io::Result<()>| {
            pages.rewind()?;
            merge(file::rows(BufReader::new(&pages)), &overlay.changes, take)
        };
        let mut tables = [0_u64; Table::ALL.len()];
        let counted = each(&mut |key, _| {
            tables[key.table as usize] += 1;
            Ok(())
        });
        counted.map_err(named(beside))?;
        let named_tables = Table::ALL.into_iter().zip(tables).filter(|(_, rows)| *rows > 0);
        let header = Header {
            hoplo: env!("CARGO_PKG_VERSION").to_string(),
            made_us: micros_since_1970(),
            cluster: format!("{:032x}", cluster.id.0),
            row_format: ROW_FORMAT,
            rows: tables.iter().sum(),
            tables: named_tables.map(|(table, rows)| (format!("{table:?}"), rows)).collect(),
            shards: (epochs.into_iter().zip(&overlay.cut))
                .map(|(epoch, index)| Shard { epoch, index: *index })
                .collect(),
            head,
        };
        let file = create(beside)?;
        let write = || {
            let mut writer = Writer::begin(BufWriter::new(file), &header)?;
            each(&mut |key, row| file::put(&mut writer, key, row))?;
            writer.end()?.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
        };
        write().map_err(named(beside))?;
        Ok(header)
    }
}

/// Both are in order of their keys.
fn merge(
    rows: impl Iterator<Item = io::Result<(Key, Row)>>,
    changes: &BTreeMap<Key, Option<Row>>,
    take: &mut dyn FnMut(&Key, &Row) -> io::Result<()>,
) -> io::Result<()> {
    let mut changes = changes.iter().peekable();
    for found in rows {
        let (key, row) = found?;
        while let Some((changed, now)) = changes.next_if(|(changed, _)| **changed < key) {
            now.as_ref().map_or(Ok(()), |now| take(changed, now))?;
        }
        match changes.next_if(|(changed, _)| **changed == key) {
            Some((_, now)) => now.as_ref().map_or(Ok(()), |now| take(&key, now))?,
            None => take(&key, &row)?,
        }
    }
    changes.try_for_each(|(key, now)| now.as_ref().map_or(Ok(()), |now| take(key, now)))
}
