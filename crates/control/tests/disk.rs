//! Processes that die while they write, and disks that fill: what was acknowledged is there.
//!
//! The writer is this same program, started again with `WRITER` set to what it should do.

#![allow(clippy::unwrap_used, reason = "a test that finds nothing fails")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use hoplo_control::disk::log::Fsync;
use hoplo_control::embedded::{Embedded, EmbeddedOptions};
use hoplo_core::control::ControlStore;
use hoplo_wire::control::{Key, Refusal, Table};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const WRITER: &str = "HOPLO_TEST_CONTROL_WRITER";

struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let name = format!("hoplo-control-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn options(folder: &Path, fsync: Fsync) -> EmbeddedOptions {
    let mut options = EmbeddedOptions::new(folder.to_path_buf());
    options.fsync = fsync;
    options.snapshot_bytes = 100_000;
    options
}

fn row(number: u64) -> (Key, Vec<u8>) {
    let key = Key { table: Table::Kv, bytes: (number % 500).to_be_bytes().to_vec() };
    (key, [number.to_be_bytes().to_vec(), vec![number as u8; 200]].concat())
}

/// The last number that a key of [`row`] was written with.
fn last_of(store: &Embedded, key: u64) -> Option<u64> {
    let row = store.get(&row(key).0)?;
    Some(u64::from_be_bytes(*row.value.first_chunk().unwrap()))
}

/// Not a test by itself: the process that the others start.
#[test]
fn writer() {
    let Ok(what) = std::env::var(WRITER) else { return };
    let (what, folder) = what.split_once(' ').unwrap();
    match what {
        "always" => write_forever(folder, Fsync::Always),
        "background" => write_forever(folder, Fsync::Background(Duration::from_millis(5))),
        "fill" => fill(folder),
        other => panic!("{other}"),
    }
}

fn write_forever(folder: &str, fsync: Fsync) {
    let mut store = Embedded::open(options(Path::new(folder), fsync)).unwrap();
    let first = (0..500).filter_map(|key| last_of(&store, key)).max().map_or(0, |last| last + 1);
    let mut out = std::io::stdout();
    for number in first.. {
        let (key, value) = row(number);
        store.put(key, value).unwrap();
        if number % 3 == 0 {
            store.flush().unwrap();
            writeln!(out, "acknowledged {number}").unwrap();
        }
    }
}

fn start(what: &str, folder: &Path, shell: &str) -> std::process::Child {
    let program = std::env::current_exe().unwrap();
    let script = format!("{shell} exec \"$0\" --exact writer --nocapture --test-threads 1");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(program);
    command.env(WRITER, format!("{what} {}", folder.display()));
    command.stdout(Stdio::piped()).spawn().unwrap()
}

fn killed_again_and_again(what: &str) {
    let folder = Folder::new(what);
    let mut acknowledged = 0;
    for life in 0..6 {
        let mut child = start(what, &folder.0, "");
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let numbers =
            lines.filter_map(|line| Some(line.strip_prefix("acknowledged ")?.to_string()));
        let mut numbers = numbers.map(|number| number.parse::<u64>().unwrap());
        acknowledged = numbers.by_ref().nth(50 + 97 * life).unwrap();
        child.kill().unwrap();
        // What it had said before it died.
        acknowledged = numbers.last().unwrap_or(acknowledged);
        child.wait().unwrap();
    }
    let store = Embedded::open(options(&folder.0, Fsync::Always)).unwrap();
    let numbers: Vec<u64> = (0..500).filter_map(|key| last_of(&store, key)).collect();
    let last = numbers.iter().copied().max().unwrap();
    assert!(last >= acknowledged, "{last} is there, {acknowledged} was acknowledged");
    for key in 0..500.min(last + 1) {
        let expected = last - (last + 500 - key) % 500;
        assert_eq!(last_of(&store, key), Some(expected), "key {key}, last {last}");
    }
}

#[test]
fn what_a_killed_writer_acknowledged_is_there() {
    killed_again_and_again("always");
}

#[test]
fn what_a_killed_writer_acknowledged_is_there_though_it_syncs_behind() {
    killed_again_and_again("background");
}

fn fill(folder: &str) {
    let limit = getrlimit(Resource::Fsize);
    let mut store = Embedded::open(options(Path::new(folder), Fsync::Always)).unwrap();
    let mut acknowledged = None;
    let why = loop {
        let number = acknowledged.map_or(0, |last| last + 1);
        let (key, value) = row(number);
        if let Err(why) = store.put(key, value).and_then(|_| store.flush()) {
            break why;
        }
        acknowledged = Some(number);
    };
    assert!(matches!(&why, Refusal::Disk(why) if why.contains("log-")), "{why}");
    // Nothing more is taken, what was answered can be read.
    let (key, value) = row(1);
    assert!(matches!(store.put(key.clone(), value.clone()), Err(Refusal::Disk(_))));
    assert!(store.get(&key).is_some());
    // The harness has begun this line.
    println!("\nacknowledged {}", acknowledged.unwrap());
    // There is room again.
    setrlimit(Resource::Fsize, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    store.flush().unwrap();
    let (key, value) = row(acknowledged.unwrap() + 2);
    store.put(key, value).unwrap();
    store.flush().unwrap();
    println!("acknowledged {}", acknowledged.unwrap() + 2);
    std::io::stdout().flush().unwrap();
    // As if killed: nothing is closed.
    std::process::exit(0);
}

#[test]
fn a_full_disk_refuses_and_works_again_when_there_is_room() {
    let folder = Folder::new("full");
    let mut long = options(&folder.0, Fsync::Always);
    long.snapshot_bytes = 16 << 20;
    drop(Embedded::open(long).unwrap());
    // Files may have 64 KiB; who goes over gets an error, not a signal.
    let child = start("fill", &folder.0, "trap '' XFSZ; ulimit -S -f 128;");
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let numbers = text.lines().filter_map(|line| line.strip_prefix("acknowledged "));
    let numbers: Vec<u64> = numbers.map(|number| number.parse().unwrap()).collect();
    let [before, after] = numbers[..] else { panic!("{text}") };
    assert_eq!(after, before + 2);
    let store = Embedded::open(options(&folder.0, Fsync::Always)).unwrap();
    for number in (0..=before).chain([after]) {
        let later = (number + 1..=after)
            .filter(|later| later % 500 == number % 500 && *later != before + 1);
        let expected = later.max().unwrap_or(number);
        assert_eq!(last_of(&store, number % 500), Some(expected), "{number}");
    }
}
