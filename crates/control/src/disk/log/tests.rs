//! What the log promised, step by step; `damage` has random histories, `waits` what a flush waits for.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::*;
use hoplo_wire::control::{
    Chunk, ClientId, ClusterId, Entry, Epoch, Key, Op, Record, ShardId, Table,
};

mod damage;
mod waits;

/// A folder that goes with its test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // In memory, where there is such a folder: thousands of logs are synced here.
        let memory = Some(PathBuf::from("/dev/shm")).filter(|path| path.is_dir());
        let base = memory.unwrap_or_else(std::env::temp_dir);
        let path = base.join(format!("hoplo-log-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn options(folder: &Path, fsync: Fsync) -> LogOptions {
    let (cluster, shard) = (ClusterId(77), ShardId(2));
    let folder = folder.to_path_buf();
    LogOptions { folder, cluster, shard, fsync, segment_bytes: 2000, ahead: false, boot: 1 }
}

/// The machine was started since the log was written.
fn after_a_crash(folder: &Path, fsync: Fsync) -> LogOptions {
    LogOptions { boot: 2, ..options(folder, fsync) }
}

fn entry(index: u64, epoch: u64) -> Record {
    let key = Key { table: Table::Kv, bytes: index.to_be_bytes().to_vec() };
    let value = vec![index as u8; 20 + index as usize % 50];
    let ops = vec![Op::Put { key, value, expected: None, finished: false }];
    Record::Entry(Entry {
        index,
        epoch: Epoch(epoch),
        committed: index.saturating_sub(1),
        client: Some(ClientId(1)),
        born: 0,
        seq: index,
        answered: 0,
        ops,
        ended: vec![],
    })
}

fn chunk(snapshot: u64, as_of: u64, from: Option<u8>, last: bool) -> Record {
    let key = |byte| Key { table: Table::Kv, bytes: vec![byte] };
    let until = (!last).then(|| key(from.unwrap_or(0) + 1));
    let epoch = Epoch(1);
    let from = from.map(key);
    let (rows, archived, sessions) = (vec![], vec![], vec![]);
    Record::Chunk(Chunk {
        snapshot,
        as_of,
        epoch,
        from,
        until,
        rows,
        archived,
        sessions,
        sessions_over: 0,
    })
}

fn read(options: LogOptions) -> Result<(Vec<Record>, Option<Cut>), LogError> {
    let recovery = Recovery::open(options)?;
    let records = recovery.records().collect::<Result<_, _>>()?;
    Ok((records, recovery.cut.clone()))
}

fn writer(folder: &Path, fsync: Fsync) -> Writer {
    Recovery::open(options(folder, fsync)).unwrap().into_writer()
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let is_segment =
        |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("log-");
    let mut found: Vec<PathBuf> = files.filter(is_segment).collect();
    found.sort();
    found
}

/// Entries after `last` are logged one by one until that holds: the last one's index.
fn append_until(log: &mut Writer, mut last: u64, holds: impl Fn(&Writer) -> bool) -> u64 {
    while !holds(log) {
        last += 1;
        assert!(last < 1000, "it never comes to that");
        log.append(&entry(last, 1));
        log.flush().unwrap();
    }
    last
}

/// Those that are made ahead are made by a thread.
fn await_segments(folder: &Path, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while segments(folder).len() < count {
        assert!(Instant::now() < deadline, "no segment is made ahead");
        std::thread::yield_now();
    }
}

#[test]
fn records_come_back_in_order_over_segments_and_lives() {
    let folder = Folder::new();
    let mut expected = vec![chunk(1, 0, None, true)];
    expected.extend((1..=100).map(|index| entry(index, 1)));
    for life in expected.chunks(30) {
        let mut log = writer(&folder.0, Fsync::Always);
        for record in life {
            log.append(record);
            log.flush().unwrap();
        }
        assert!(log.bytes() > 0 && !log.has_unflushed());
    }
    assert!(segments(&folder.0).len() > 4);
    assert_eq!(read(options(&folder.0, Fsync::Always)).unwrap(), (expected, None));
}

#[test]
fn what_was_not_flushed_is_not_there() {
    let folder = Folder::new();
    let mut log = writer(&folder.0, Fsync::Never);
    log.append(&entry(1, 1));
    log.flush().unwrap();
    log.append(&entry(2, 1));
    assert!(log.has_unflushed());
    drop(log);
    assert_eq!(read(options(&folder.0, Fsync::Never)).unwrap().0, [entry(1, 1)]);
}

#[test]
fn a_truncation_takes_back_what_came_before_it_and_not_what_comes_after() {
    let folder = Folder::new();
    let mut log = writer(&folder.0, Fsync::Always);
    (1..=9).for_each(|index| log.append(&entry(index, 1)));
    log.flush().unwrap();
    log.append(&chunk(4, 5, None, true));
    log.truncate(6);
    log.append(&entry(7, 2));
    log.append(&entry(8, 2));
    log.truncate(7);
    log.append(&entry(8, 3));
    log.close().unwrap();
    let recovery = Recovery::open(options(&folder.0, Fsync::Always)).unwrap();
    let records: Vec<Record> = recovery.records().map(Result::unwrap).collect();
    // The base first, and what it does not cover right after it.
    let expected = [chunk(4, 5, None, true), entry(6, 1), entry(7, 2), entry(8, 3)];
    assert_eq!(records, expected);
}

#[test]
fn a_truncation_of_everything_voids_chunks_as_well() {
    let folder = Folder::new();
    let mut log = writer(&folder.0, Fsync::Always);
    log.append(&chunk(1, 0, None, true));
    for index in 1..=100 {
        log.append(&entry(index, 1));
        log.flush().unwrap();
    }
    log.truncate(0);
    log.append(&chunk(2, 70, None, false));
    log.append(&entry(71, 3));
    log.append(&chunk(2, 70, Some(1), true));
    log.flush().unwrap();
    log.snapshot_done(2);
    log.close().unwrap();
    assert!(segments(&folder.0).len() <= 2);
    let expected = [chunk(2, 70, None, false), entry(71, 3), chunk(2, 70, Some(1), true)];
    assert_eq!(read(options(&folder.0, Fsync::Always)).unwrap().0, expected);
}

/// Entries that were pending on an empty base went, and the base with them: it had nothing at the next start.
#[test]
fn dropping_all_that_was_pending_lost_the_base() {
    let folder = Folder::new();
    let mut log = writer(&folder.0, Fsync::Always);
    log.append(&chunk(1, 0, None, true));
    log.append(&entry(1, 1));
    log.flush().unwrap();
    log.truncate(0);
    log.flush().unwrap();
    log.append(&entry(1, 2));
    log.close().unwrap();
    let expected = vec![chunk(1, 0, None, true), entry(1, 2)];
    assert_eq!(read(options(&folder.0, Fsync::Always)).unwrap().0, expected);
    let mut log = writer(&folder.0, Fsync::Always);
    log.truncate(0);
    log.close().unwrap();
    let expected = vec![chunk(1, 0, None, true)];
    assert_eq!(read(options(&folder.0, Fsync::Always)).unwrap().0, expected);
}

#[test]
fn a_finished_snapshot_frees_what_it_covers_and_pending_entries_stay() {
    let folder = Folder::new();
    let mut log = writer(&folder.0, Fsync::Always);
    log.append(&chunk(1, 0, None, true));
    for index in 1..=100 {
        log.append(&entry(index, 1));
        log.flush().unwrap();
    }
    // As of 90, although entries up to 100 were logged before.
    log.append(&chunk(2, 90, None, false));
    log.append(&entry(101, 1));
    log.append(&chunk(2, 90, Some(1), true));
    let before = segments(&folder.0).len();
    log.snapshot_done(2);
    log.close().unwrap();
    let after = segments(&folder.0).len();
    assert!(after < before && after <= 4, "{before} {after}");
    let (records, _) = read(options(&folder.0, Fsync::Always)).unwrap();
    let mut expected = vec![chunk(2, 90, None, false)];
    expected.extend((91..=101).map(|index| entry(index, 1)));
    expected.push(chunk(2, 90, Some(1), true));
    assert_eq!(records, expected);
}

/// Found by `it_is_a_map_that_survives`: a segment that had to stay held the base of an older snapshot,
/// and was taken for the beginning.
#[test]
fn the_base_of_an_older_snapshot_that_stays_is_not_the_beginning() {
    let folder = Folder::new();
    let mut log = writer(&folder.0, Fsync::Always);
    let fill = |log: &mut Writer| {
        (0..80).for_each(|_| log.append(&chunk(9, 0, Some(3), true)));
        log.flush().unwrap();
    };
    (1..=15).for_each(|index| log.append(&entry(index, 1)));
    fill(&mut log);
    log.append(&chunk(1, 14, None, true));
    log.append(&entry(16, 1));
    log.snapshot_done(1);
    fill(&mut log);
    log.append(&chunk(2, 15, None, true));
    log.snapshot_done(2);
    log.close().unwrap();
    assert_eq!(segments(&folder.0).len(), 2);
    let (records, _) = read(options(&folder.0, Fsync::Always)).unwrap();
    assert_eq!(records, [chunk(2, 15, None, true), entry(16, 1)]);
}

#[test]
fn a_log_of_another_cluster_or_a_newer_program_is_refused_by_name() {
    let folder = Folder::new();
    let mut log = writer(&folder.0, Fsync::Always);
    log.append(&entry(1, 1));
    let in_use = Recovery::open(options(&folder.0, Fsync::Always)).unwrap_err();
    assert!(matches!(in_use, LogError::InUse(_)), "{in_use}");
    log.close().unwrap();
    let mut other = options(&folder.0, Fsync::Always);
    other.cluster = ClusterId(78);
    let error = Recovery::open(other).unwrap_err();
    assert!(matches!(error, LogError::Foreign { found: 77, ours: 78, .. }), "{error}");
    let mut other = options(&folder.0, Fsync::Always);
    other.shard = ShardId(3);
    assert!(matches!(Recovery::open(other).unwrap_err(), LogError::Foreign { .. }));
    let path = segments(&folder.0).remove(0);
    let mut bytes = fs::read(&path).unwrap();
    let header = frame::tests::of_format(*bytes.first_chunk().unwrap(), 9);
    bytes[..header.len()].copy_from_slice(&header);
    fs::write(&path, bytes).unwrap();
    let error = Recovery::open(options(&folder.0, Fsync::Always)).unwrap_err();
    assert!(matches!(error, LogError::Newer { found: 9, ours: frame::FORMAT, .. }), "{error}");
    assert!(!error.is_damage());
}

#[test]
fn damage_in_the_middle_is_refused_with_its_place_and_the_log_can_be_set_aside() {
    let folder = Folder::new();
    let mut log = writer(&folder.0, Fsync::Always);
    for index in 1..=10 {
        log.append(&entry(index, 1));
        log.flush().unwrap();
    }
    log.close().unwrap();
    let path = segments(&folder.0).remove(0);
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = Recovery::open(options(&folder.0, Fsync::Always)).unwrap_err();
    assert!(error.is_damage());
    let LogError::Corrupt { path: named, offset, .. } = error else { panic!("{error}") };
    assert_eq!(named, path);
    assert!(offset <= at as u64 && at as u64 - offset < 200, "{offset} {at}");
    let aside = set_aside(&folder.0).unwrap();
    assert_eq!(segments(&aside).len(), 1);
    assert_eq!(read(options(&folder.0, Fsync::Always)).unwrap().0, []);
}

#[test]
fn a_missing_segment_is_damage() {
    let folder = Folder::new();
    let mut log = writer(&folder.0, Fsync::Always);
    for index in 1..=100 {
        log.append(&entry(index, 1));
        log.flush().unwrap();
    }
    log.close().unwrap();
    let files = segments(&folder.0);
    fs::remove_file(&files[1]).unwrap();
    let error = Recovery::open(options(&folder.0, Fsync::Always)).unwrap_err();
    assert!(error.to_string().contains("segment 2 is missing"), "{error}");
    fs::remove_file(&files[0]).unwrap();
    let error = read(options(&folder.0, Fsync::Always)).unwrap_err();
    assert!(error.is_damage() && error.to_string().contains("where 1 should be"), "{error}");
}

#[test]
fn a_machine_that_fails_may_lose_pages_that_were_not_synced_but_keeps_what_was() {
    let folder = Folder::new();
    let mut log = writer(&folder.0, Fsync::Background(Duration::from_secs(3600)));
    (1..=3).for_each(|index| log.append(&entry(index, 1)));
    log.close().unwrap();
    let mut log = writer(&folder.0, Fsync::Background(Duration::from_secs(3600)));
    for index in 4..=9 {
        log.append(&entry(index, 1));
        log.flush().unwrap();
    }
    std::mem::forget(log); // It dies before its first sync.
    let path = segments(&folder.0).remove(1);
    let mut bytes = fs::read(&path).unwrap();
    // A page in the middle did not get there, one behind it did.
    let frame = (bytes.len().min(600) - 64) / 6;
    bytes[64 + 2 * frame..64 + 3 * frame].fill(0);
    let copy = Folder::new();
    fs::copy(&segments(&folder.0)[0], copy.0.join("log-0000000000000001")).unwrap();
    fs::write(copy.0.join("log-0000000000000002"), bytes).unwrap();
    let (records, cut) = read(after_a_crash(&copy.0, Fsync::Always)).unwrap();
    assert!(cut.is_some());
    assert!(records.len() >= 4 && records.len() < 9, "{}", records.len());
    let prefix: Vec<Record> = (1..=records.len() as u64).map(|index| entry(index, 1)).collect();
    assert_eq!(records, prefix);
}

#[test]
fn the_thread_reports_in_order_and_everything_is_there() {
    let folder = Folder::new();
    let (reports, inbox) = channel();
    let log = LogThread::start(writer(&folder.0, Fsync::Always), move |report| {
        reports.send(report).unwrap();
    });
    let log = log.unwrap();
    for batch in 0..100 {
        log.append((1..=10).map(|index| entry(batch * 10 + index, 1)).collect());
    }
    let mut last = 0;
    while last != 1000 {
        let Report::Logged { upto } = inbox.recv_timeout(PATIENCE).unwrap() else {
            panic!("nothing failed");
        };
        assert!(upto > last);
        last = upto;
    }
    log.truncate(900);
    log.append(vec![entry(901, 2)]);
    log.snapshot_done(5); // Of which nothing is known.
    log.close().unwrap();
    let (records, _) = read(options(&folder.0, Fsync::Always)).unwrap();
    assert_eq!((records.len(), records.last()), (901, Some(&entry(901, 2))));
}

const PATIENCE: Duration = Duration::from_secs(20);
