//! What a flush waits for, and what is missed when it is taken away.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

use hoplo_wire::control::Record;

use super::super::files::{Files, LogFile, OsFiles};
use super::super::*;
use super::{
    Folder, after_a_crash, append_until, await_segments, chunk, entry, options, read, segments,
    writer,
};

/// The system's files; counts what the thread that made it waits for: syncs, and files that are made.
#[derive(Debug)]
struct Counted {
    files: OsFiles,
    waits: Waits,
}

#[derive(Clone, Debug)]
struct Waits {
    of: ThreadId,
    syncs: Arc<AtomicU64>,
    made: Arc<AtomicU64>,
}

#[derive(Debug)]
struct CountedFile {
    file: Arc<dyn LogFile>,
    waits: Waits,
}

impl Waits {
    fn count(&self, what: &AtomicU64) {
        what.fetch_add(u64::from(thread::current().id() == self.of), Ordering::Relaxed);
    }

    /// Syncs and files since the last time.
    fn take(&self) -> (u64, u64) {
        (self.syncs.swap(0, Ordering::Relaxed), self.made.swap(0, Ordering::Relaxed))
    }
}

impl Counted {
    fn counted(&self, file: Arc<dyn LogFile>) -> Arc<dyn LogFile> {
        Arc::new(CountedFile { file, waits: self.waits.clone() })
    }
}

impl Files for Counted {
    fn names(&self) -> io::Result<Vec<String>> {
        self.files.names()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        self.files.open(name).map(|file| self.counted(file))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        self.waits.count(&self.waits.made);
        self.files.create(name).map(|file| self.counted(file))
    }

    fn make_folder(&self, name: &str) -> io::Result<()> {
        self.files.make_folder(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.waits.count(&self.waits.syncs);
        self.files.sync()
    }

    fn mark(&self) -> u32 {
        self.files.mark()
    }

    fn has_threads(&self) -> bool {
        true
    }
}

impl LogFile for CountedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(into, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.write_at(bytes, at)
    }

    fn reserve(&self, from: u64, upto: u64) -> io::Result<bool> {
        self.file.reserve(from, upto)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.waits.count(&self.waits.syncs);
        self.file.sync()
    }
}

fn ahead(folder: &Path) -> LogOptions {
    LogOptions { ahead: true, ..options(folder, Fsync::Always) }
}

fn counted(folder: &Path) -> (Writer, Waits) {
    let of = thread::current().id();
    let waits = Waits { of, syncs: Arc::default(), made: Arc::default() };
    let files = OsFiles::open(folder).unwrap();
    let files = Arc::new(Counted { files, waits: waits.clone() });
    (Recovery::open_in(files, ahead(folder)).unwrap().into_writer(), waits)
}

/// What a finished snapshot has to say had a sync of its own, before which nothing was reported as logged.
#[test]
fn a_commit_waited_for_a_snapshot() {
    let folder = Folder::new();
    let (mut log, waits) = counted(&folder.0);
    log.append(&chunk(1, 0, None, true));
    for index in 1..=100 {
        log.append(&entry(index, 1));
        log.flush().unwrap();
    }
    log.append(&chunk(2, 100, None, true));
    log.flush().unwrap();
    let before = segments(&folder.0).len();
    waits.take();
    log.append(&entry(101, 1));
    log.snapshot_done(2);
    log.flush().unwrap();
    assert_eq!(waits.take(), (1, 0));
    log.close().unwrap();
    assert!(before > 4 && segments(&folder.0).len() <= 3, "{before}");
    let (records, cut) = read(options(&folder.0, Fsync::Always)).unwrap();
    assert_eq!((records, cut), (vec![chunk(2, 100, None, true), entry(101, 1)], None));
}

/// It was made when the one before it was full: two more syncs, for whoever came first.
#[test]
fn a_commit_waited_while_the_next_segment_was_made() {
    let folder = Folder::new();
    let (mut log, waits) = counted(&folder.0);
    log.append(&entry(1, 1));
    log.flush().unwrap();
    waits.take();
    for index in 2..=100 {
        log.append(&entry(index, 1));
        log.flush().unwrap();
        assert_eq!(waits.take(), (1, 0), "entry {index}");
    }
    log.close().unwrap();
    assert!(segments(&folder.0).len() > 4);
    let (records, cut) = read(options(&folder.0, Fsync::Always)).unwrap();
    let expected: Vec<Record> = (1..=100).map(|index| entry(index, 1)).collect();
    assert_eq!((records, cut), (expected, None));
}

#[test]
fn a_segment_that_was_made_and_not_used_is_used_later() {
    let folder = Folder::new();
    let mut log = Recovery::open(ahead(&folder.0)).unwrap().into_writer();
    let mut last = append_until(&mut log, 0, |_| segments(&folder.0).len() >= 2);
    drop(log); // It is killed.
    for life in 1..=3 {
        let recovery = Recovery::open(ahead(&folder.0)).unwrap();
        assert_eq!(recovery.cut, None);
        assert_eq!(recovery.records().count() as u64, last);
        let mut log = recovery.into_writer();
        last += 1;
        log.append(&entry(last, life));
        log.flush().unwrap();
        drop(log);
    }
    let (records, _) = read(options(&folder.0, Fsync::Always)).unwrap();
    assert_eq!(records.len() as u64, last);
}

/// Of three lives each begins a file. The newest of them, or all, go.
#[test]
fn a_newest_file_that_was_taken_away_was_taken_for_an_older_log() {
    for fsync in [Fsync::Always, Fsync::Never] {
        for left in [0, 1, 2] {
            let folder = Folder::new();
            for life in 1..=3 {
                let mut log = writer(&folder.0, fsync);
                log.append(&entry(life, 1));
                log.close().unwrap();
            }
            for path in segments(&folder.0).split_off(left) {
                fs::remove_file(path).unwrap();
            }
            let error = Recovery::open(options(&folder.0, fsync)).unwrap_err();
            let text = error.to_string();
            assert!(error.is_damage() && text.contains("log-0000000000000003"), "{text}");
            let recovery = Recovery::open_with_loss(options(&folder.0, fsync)).unwrap();
            assert!(recovery.cut.is_some());
            assert_eq!(recovery.records().count(), left);
            drop(recovery);
            // Nothing was written since: it need not be accepted again.
            let mut log = writer(&folder.0, fsync);
            log.append(&entry(left as u64 + 1, 2));
            log.close().unwrap();
            let (records, cut) = read(options(&folder.0, fsync)).unwrap();
            assert_eq!((records.len(), cut), (left + 1, None));
        }
    }
}

/// Nothing of it was synced, neither its name.
#[test]
fn a_newest_file_that_a_machine_lost_is_cut_off_and_told() {
    let folder = Folder::new();
    for life in 1..=2 {
        let mut log = writer(&folder.0, Fsync::Never);
        log.append(&entry(life, 1));
        log.flush().unwrap();
    }
    fs::remove_file(segments(&folder.0).remove(1)).unwrap();
    let (records, cut) = read(after_a_crash(&folder.0, Fsync::Never)).unwrap();
    assert!(records == [entry(1, 1)] && cut.unwrap().why.contains("is not there any more"));
}

/// It is not blank, since the disk kept some of what came after.
#[test]
fn a_header_that_a_machine_lost_was_taken_for_damage() {
    let folder = Folder::new();
    for life in 1..=2 {
        let mut log = writer(&folder.0, Fsync::Never);
        log.append(&entry(life, 1));
        log.flush().unwrap();
    }
    let newest = segments(&folder.0).remove(1);
    let mut bytes = fs::read(&newest).unwrap();
    bytes[..frame::HEADER_BYTES].fill(0);
    fs::write(&newest, bytes).unwrap();
    let error = Recovery::open(options(&folder.0, Fsync::Never)).unwrap_err();
    assert!(error.is_damage(), "the machine ran on: {error}");
    let (records, cut) = read(after_a_crash(&folder.0, Fsync::Never)).unwrap();
    assert!(records == [entry(1, 1)] && cut.is_some());
}

/// Found by the simulation (seed 14001): the file was shorter than it had been made, and what came later said that it had been
/// on disk.
#[test]
fn room_that_a_machine_did_not_keep_was_damage_later() {
    let folder = Folder::new();
    let options = |boot| LogOptions { fsync: Fsync::Never, boot, ..ahead(&folder.0) };
    let mut log = Recovery::open(options(1)).unwrap().into_writer();
    log.append(&entry(1, 1));
    log.flush().unwrap();
    let first = fs::OpenOptions::new().write(true).open(&segments(&folder.0)[0]).unwrap();
    first.set_len(log.bytes()).unwrap();
    drop(log);
    let mut log = Recovery::open(options(2)).unwrap().into_writer();
    let last = append_until(&mut log, 1, |_| segments(&folder.0).len() >= 3);
    drop(log);
    let (records, cut) = read(options(3)).unwrap();
    assert_eq!((records.len() as u64, cut), (last, None));
}

/// Found by the simulation (seed 43023): the note was of an earlier file that had the same number.
#[test]
fn a_note_of_an_earlier_file_spoke_for_the_one_that_has_its_number_now() {
    let folder = Folder::new();
    let options = |boot| LogOptions { fsync: Fsync::Never, boot, ..ahead(&folder.0) };
    let mut log = Recovery::open(options(1)).unwrap().into_writer();
    let half = options(1).segment_bytes / 2;
    let last = append_until(&mut log, 0, |log| log.bytes() >= half);
    await_segments(&folder.0, 2);
    // The thread that made it has ended.
    log.close().unwrap();
    let note = fs::read(folder.0.join("newest")).unwrap();
    let mut log = Recovery::open(options(1)).unwrap().into_writer();
    log.append(&entry(last + 1, 1));
    log.flush().unwrap();
    drop(log);
    // The machine dies: it kept neither the room, nor what was written, nor the note.
    let second = fs::OpenOptions::new().write(true).open(&segments(&folder.0)[1]).unwrap();
    second.set_len(frame::HEADER_BYTES as u64 + 1).unwrap();
    fs::write(folder.0.join("newest"), note).unwrap();
    let (records, _) = read(options(2)).unwrap();
    assert_eq!(records.len() as u64, last);
}

#[test]
fn a_log_without_its_note_of_the_newest_file_is_as_good_as_before() {
    let folder = Folder::new();
    for note in [None, Some(vec![]), Some(vec![7; 32])] {
        let mut log = writer(&folder.0, Fsync::Always);
        log.append(&entry(1, 1));
        log.truncate(0);
        log.append(&entry(1, 1));
        log.close().unwrap();
        fs::remove_file(folder.0.join("newest")).unwrap();
        if let Some(bytes) = note {
            fs::write(folder.0.join("newest"), bytes).unwrap();
        }
        let (records, cut) = read(options(&folder.0, Fsync::Always)).unwrap();
        assert_eq!((records, cut), (vec![entry(1, 1)], None));
    }
}
