//! `hoplo control bench`: a client that measures; programs in bench/ start it, and kill nodes meanwhile.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::bail;
use clap::{Args, ValueEnum};
use hoplo_base::limits::CONTROL_BENCH_ANSWERS;
use hoplo_control::net::cluster::Cluster;
use hoplo_control::net::driver::{Driver, Outcome};
use hoplo_core::control::client::{Call, Done};
use hoplo_core::control::{Entry, EventEntry};
use hoplo_wire::control::{Key, Op, Query, Table};
use serde_json::json;

#[derive(Args)]
pub(crate) struct BenchArgs {
    #[arg(long)]
    cluster_file: PathBuf,
    #[arg(long, value_enum)]
    mode: Mode,
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    #[arg(long, default_value_t = 25)]
    key_bytes: usize,
    #[arg(long, default_value_t = 512)]
    value_bytes: usize,
    /// Different keys
    #[arg(long, default_value_t = 100_000)]
    keys: u64,
    /// Throughput: operations of one call, and calls at once
    #[arg(long, default_value_t = 100)]
    batch: usize,
    #[arg(long, default_value_t = 32)]
    calls: usize,
    /// Latency: of all operations, so many are queries
    #[arg(long, default_value_t = 0)]
    query_percent: u64,
    /// Writes each key once instead of measuring for a time
    #[arg(long)]
    fill: bool,
    /// Events, which become history when memory is short, instead of kv rows
    #[arg(long)]
    events: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Mode {
    /// One request in flight; every operation's beginning and latency
    Latency,
    /// Many batches in flight
    Throughput,
}

pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<()> {
    let cluster = Cluster::load(&args.cluster_file)?;
    let mut driver = Driver::new(&cluster)?;
    // The first call waits for the configuration and the connections.
    update(&mut driver, vec![put(args, 0)])?;
    match args.mode {
        Mode::Latency => latency(args, &mut driver),
        Mode::Throughput => throughput(args, &mut driver),
    }
}

/// Prints a line when it begins, then one object: for each operation when it began (microseconds since 1970) and how
/// long it took (microseconds), and errors.
fn latency(args: &BenchArgs, driver: &mut Driver) -> anyhow::Result<()> {
    println!("ready");
    let begin = Instant::now();
    let epoch = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let until = begin + Duration::from_secs_f64(args.seconds);
    let mut samples: Vec<(u64, u32)> = Vec::new();
    let mut errors: Vec<String> = Vec::new();
    let mut number = 0_u64;
    while Instant::now() < until {
        let at = Instant::now();
        let call = if number % 100 < args.query_percent {
            let query = Query::Get { key: key(args, number % args.keys) };
            Call::Query { query, stale: false }
        } else {
            Call::Update(vec![put(args, number % args.keys)])
        };
        let result = driver.call(call, CONTROL_BENCH_ANSWERS)?;
        let took = at.elapsed();
        if let Err(error) = result {
            errors.push(error.to_string());
        }
        let began = epoch + at.duration_since(begin);
        samples.push((began.as_micros() as u64, took.as_micros() as u32));
        number += 1;
    }
    println!("{}", json!({ "samples": samples, "errors": errors }));
    Ok(())
}

fn throughput(args: &BenchArgs, driver: &mut Driver) -> anyhow::Result<()> {
    println!("ready");
    let begin = Instant::now();
    let until = begin + Duration::from_secs_f64(args.seconds);
    let mut next = 0_u64;
    let mut open = 0;
    let mut done = 0_u64;
    let over = |next: u64| if args.fill { next >= args.keys } else { Instant::now() >= until };
    loop {
        while open < args.calls && !over(next) {
            let last = if args.fill { args.keys } else { u64::MAX };
            let batch = next..(next + args.batch as u64).min(last);
            next = batch.end;
            let ops = batch.map(|number| put(args, number % args.keys)).collect();
            driver.start(Call::Update(ops), Instant::now() + CONTROL_BENCH_ANSWERS);
            open += 1;
        }
        if open == 0 {
            break;
        }
        driver.turn(None)?;
        for outcome in std::mem::take(&mut driver.results) {
            if let Outcome::Finished { result, .. } = outcome {
                open -= 1;
                match result {
                    Ok(Done::Updated(outcomes)) => done += outcomes.len() as u64,
                    Ok(_) => bail!("an update was answered like a query"),
                    Err(error) => bail!("{error}"),
                }
            }
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("{}", json!({ "updates": done, "seconds": seconds, "rate": done as f64 / seconds }));
    Ok(())
}

fn update(driver: &mut Driver, ops: Vec<Op>) -> anyhow::Result<()> {
    match driver.call(Call::Update(ops), CONTROL_BENCH_ANSWERS)? {
        Ok(_) => Ok(()),
        Err(error) => match driver.unfit() {
            Some(unfit) => bail!("{unfit}"),
            None => bail!("{error}"),
        },
    }
}

fn key(args: &BenchArgs, number: u64) -> Key {
    let mut bytes = format!("{number:0width$}", width = args.key_bytes).into_bytes();
    bytes.truncate(args.key_bytes);
    Key { table: Table::Kv, bytes }
}

fn put(args: &BenchArgs, number: u64) -> Op {
    if args.events {
        let event = EventEntry { at_us: number, seq: number, text: "x".repeat(args.value_bytes) };
        let (key, value) = (event.key(), event.to_value());
        return Op::Put { key, value, expected: None, finished: true };
    }
    let value = kv_value(args.value_bytes, number);
    Op::Put { key: key(args, number), value, expected: None, finished: false }
}

/// A row of the kv table of this many bytes.
fn kv_value(bytes: usize, number: u64) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(bytes, b'x');
    value
}
