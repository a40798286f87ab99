//! Measures the store of one node, log and cold tier included; prints one line of JSON.
//!
//! `measure throughput|flush|no-flush|fill|recover|read FOLDER RECORDS BATCH FSYNC CAP_BYTES`

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hoplo_base::{JobId, ProcessId, TaskId};
use hoplo_control::disk::cold::Retention;
use hoplo_control::disk::log::Fsync;
use hoplo_control::embedded::{Embedded, EmbeddedOptions};
use hoplo_core::control::{Entry, TaskEntry, TaskState};
use hoplo_wire::control::{Key, Op, Refusal, Table};
use rustix::fs::{Advice, fadvise};
use serde_json::{Value, json};

/// As in the paper: 25 B keys, 512 B values.
const KEY_BYTES: usize = 25;
const VALUE_BYTES: usize = 512;

struct Asked {
    folder: PathBuf,
    records: u64,
    batch: u64,
    fsync: Fsync,
    cap: u64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, folder, records, batch, fsync, cap] = &arguments[..] else {
        panic!("measure WHAT FOLDER RECORDS BATCH FSYNC CAP_BYTES");
    };
    let number = |text: &String| text.parse::<u64>().expect("a number");
    let asked = Asked {
        folder: PathBuf::from(folder),
        records: number(records),
        batch: number(batch),
        fsync: match fsync.as_str() {
            "always" => Fsync::Always,
            "background" => Fsync::Background(Duration::from_millis(100)),
            "never" => Fsync::Never,
            other => panic!("{other}: always, background or never"),
        },
        cap: number(cap),
    };
    let result = match what.as_str() {
        "throughput" => throughput(&asked),
        "flush" => tasks(&asked, true),
        "no-flush" => tasks(&asked, false),
        "recover" => recover(&asked),
        other => panic!("{other}?"),
    };
    println!("{result}");
}

fn open(asked: &Asked) -> Embedded {
    let mut options = EmbeddedOptions::new(asked.folder.clone());
    options.fsync = asked.fsync;
    options.memory_bytes = asked.cap;
    options.snapshot_bytes = 64 << 20;
    options.retention = Retention { age: None, bytes: None };
    Embedded::open(options).expect("the store opens")
}

fn key(table: Table, number: u64) -> Key {
    let mut bytes = vec![b'k'; KEY_BYTES];
    bytes[KEY_BYTES - 8..].copy_from_slice(&number.to_be_bytes());
    Key { table, bytes }
}

/// Puts of the keys 0, 1, 2, ... in batches.
fn throughput(asked: &Asked) -> Value {
    let mut store = open(asked);
    let began = Instant::now();
    let mut latencies = Vec::new();
    for first in (0..asked.records).step_by(asked.batch as usize) {
        let ops = (first..(first + asked.batch).min(asked.records)).map(|number| Op::Put {
            key: key(Table::Kv, number),
            value: vec![number as u8; VALUE_BYTES],
            expected: None,
            finished: false,
        });
        let ops = ops.collect();
        let asked_at = Instant::now();
        store.update(ops).expect("there is room");
        store.flush().expect("the disk works");
        latencies.push(asked_at.elapsed().as_secs_f64());
    }
    let seconds = began.elapsed().as_secs_f64();
    json!({
        "updates_per_s": asked.records as f64 / seconds,
        "batch_ms": quantiles(latencies),
        "log_bytes": store.log_bytes(),
        "resident_bytes": resident_bytes(),
    })
}

fn empty_task(number: u64) -> Vec<u8> {
    let owner = ProcessId(number);
    let (task, job) = (TaskId { owner, seq: number }, JobId(1));
    let (state, lineage, why) = (TaskState::Finished, None, None);
    TaskEntry { task, job, owner, attempt: 0, state, lineage, why }.to_value()
}

/// Records of finished, empty tasks, one after the other: history, or kept until nothing more fits.
fn tasks(asked: &Asked, flush: bool) -> Value {
    let mut store = open(asked);
    let began = Instant::now();
    let mut series = Vec::new();
    let mut stalled = None;
    let sample_every = (asked.records / 250).max(asked.batch);
    let mut written = 0;
    while written < asked.records {
        let ops = (written..written + asked.batch).map(|number| Op::Put {
            key: key(Table::Task, number),
            value: empty_task(number),
            expected: None,
            finished: flush,
        });
        match store.update(ops.collect()) {
            Ok(_) => {}
            Err(Refusal::Full { used, cap }) => {
                stalled = Some(json!({ "records": written, "used": used, "cap": cap }));
                break;
            }
            Err(why) => panic!("{why}"),
        }
        store.flush().expect("the disk works");
        written += asked.batch;
        if written % sample_every < asked.batch {
            let status = store.status();
            let seconds = began.elapsed().as_secs_f64();
            series.push(json!([
                written,
                resident_bytes(),
                seconds,
                status.memory_bytes,
                status.cold_bytes
            ]));
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let mut latencies = Vec::new();
    let archived = store.archive();
    let mut without_waiting = Vec::new();
    let mut cached = Vec::new();
    if flush {
        let archive = std::fs::File::open(asked.folder.join("cold.redb")).expect("it has history");
        // The oldest half is in the cold tier for sure; a step that is coprime to everything.
        for step in 0..1000u64 {
            let number = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (written / 2);
            // What is not on disk yet cannot be dropped.
            archive.sync_data().expect("the disk works");
            fadvise(&archive, 0, None, Advice::DontNeed).expect("the kernel takes the advice");
            let waited = waited_for_cpu();
            let asked_at = Instant::now();
            let row = store.find(&key(Table::Task, number)).expect("the disk works");
            let took = asked_at.elapsed();
            latencies.push(took.as_secs_f64());
            let waited = waited_for_cpu().saturating_sub(waited);
            without_waiting.push(took.saturating_sub(waited).as_secs_f64());
            assert!(row.is_some(), "task {number} is history, not gone");
        }
        for read in 0..2000u64 {
            let number = (read % 1000).wrapping_mul(0x9e37_79b9_7f4a_7c15) % (written / 2);
            let asked_at = Instant::now();
            store.find(&key(Table::Task, number)).expect("the disk works");
            // The first time round fills the kernel's cache.
            cached.extend((read >= 1000).then(|| asked_at.elapsed().as_secs_f64()));
        }
    }
    json!({
        "records": written,
        "records_per_s": written as f64 / seconds,
        "stalled": stalled,
        "series": series,
        // From disk, and what the kernel still had of it after that.
        "read_back_ms": quantiles(latencies),
        "read_back_cached_ms": quantiles(cached),
        // Less the time in which the thread could have run, had others not had the processors.
        "read_back_on_cpu_ms": quantiles(without_waiting),
        "archived_rows": archived.rows,
        "rows_in_memory": store.status().rows,
        "counted_bytes": store.status().memory_bytes,
        "disk_bytes": disk_bytes(&asked.folder),
        "resident_bytes": resident_bytes(),
    })
}

fn recover(asked: &Asked) -> Value {
    let began = Instant::now();
    let store = open(asked);
    let seconds = began.elapsed().as_secs_f64();
    let rows = store.status().rows;
    assert_eq!(rows, asked.records, "all rows are there");
    json!({
        "seconds": seconds,
        "rows": rows,
        "log_bytes": store.log_bytes(),
        "resident_bytes": resident_bytes(),
    })
}

fn quantiles(mut seconds: Vec<f64>) -> Value {
    seconds.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = (share * (seconds.len().saturating_sub(1)) as f64) as usize;
        seconds.get(place).map(|seconds| seconds * 1e3)
    };
    json!({ "p50": at(0.5), "p99": at(0.99), "max": at(1.0) })
}

/// How long this thread was ready to run, and others ran instead.
fn waited_for_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').nth(1).and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0u64) * rustix::param::page_size() as u64
}

fn disk_bytes(folder: &std::path::Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries.flatten().filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}
