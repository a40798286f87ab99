//! `hoplo control history`: a client that reads and writes a few keys and writes down what it asked, what it heard and
//! when, one JSON object a line. The checker of the simulation judges it (crates/sim/examples/check_history.rs).

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use hoplo_control::net::cluster::Cluster;
use hoplo_control::net::driver::{Driver, Outcome};
use hoplo_core::control::client::{Call, CallError, Done};
use hoplo_wire::control::{Key, Op, Outcome as Applied, Query, Table};
use serde_json::{Value, json};

#[derive(Args)]
pub(crate) struct HistoryArgs {
    #[arg(long)]
    cluster_file: PathBuf,
    #[arg(long)]
    out: PathBuf,
    /// Names this client in its values
    #[arg(long)]
    name: String,
    #[arg(long)]
    seconds: f64,
    #[arg(long, default_value_t = 8)]
    keys: u64,
    /// Operations in flight
    #[arg(long, default_value_t = 4)]
    at_once: usize,
    #[arg(long, default_value_t = 10.0)]
    timeout: f64,
    /// At most so many operations a second
    #[arg(long, default_value_t = 500.0)]
    rate: f64,
}

struct Open {
    call: u64,
    line: Value,
}

pub(crate) fn run(args: &HistoryArgs) -> anyhow::Result<()> {
    let cluster = Cluster::load(&args.cluster_file)?;
    let mut driver = Driver::new(&cluster)?;
    let mut out = BufWriter::new(std::fs::File::create(&args.out)?);
    let until = Instant::now() + Duration::from_secs_f64(args.seconds);
    let pause = Duration::from_secs_f64(1.0 / args.rate);
    let mut next_at = Instant::now();
    let mut open: Vec<Open> = Vec::new();
    // A simple generator, different for each client: which operations come is not important.
    let mut seed = args.name.bytes().fold(1_u64, |seed, byte| seed * 31 + u64::from(byte));
    let mut number = 0_u64;
    println!("ready");
    loop {
        let now = Instant::now();
        if now >= until && open.is_empty() {
            break;
        }
        if now < until && open.len() < args.at_once && now >= next_at {
            next_at = now.max(next_at + pause);
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            number += 1;
            let (call, mut line) = operation(args, seed >> 33, number);
            line["called"] = json!(monotonic_us());
            let deadline = now + Duration::from_secs_f64(args.timeout);
            open.push(Open { call: driver.start(call, deadline), line });
            continue;
        }
        let rest = if now < until && open.len() < args.at_once { Some(next_at) } else { None };
        driver.turn(rest)?;
        for outcome in std::mem::take(&mut driver.results) {
            let Outcome::Finished { call, result } = outcome else { continue };
            let ended = monotonic_us();
            let Some(place) = open.iter().position(|it| it.call == call) else { continue };
            let mut line = open.swap_remove(place).line;
            heard(&mut line, ended, result)?;
            writeln!(out, "{line}")?;
        }
    }
    out.flush()?;
    Ok(())
}

fn operation(args: &HistoryArgs, random: u64, number: u64) -> (Call, Value) {
    let name = format!("key-{}", random % args.keys);
    let key = Key { table: Table::Kv, bytes: name.clone().into_bytes() };
    let value = format!("{}-{number}", args.name);
    let update = |op: Op| Call::Update(vec![op]);
    match random / args.keys % 10 {
        0..4 => {
            let query = Query::Get { key };
            (Call::Query { query, stale: false }, json!({ "op": "get", "key": name }))
        }
        4..7 => {
            let bytes = value.clone().into_bytes();
            let put = Op::Put { key, value: bytes, expected: None, finished: false };
            (update(put), json!({ "op": "put", "key": name, "value": value, "expected": null }))
        }
        7..9 => {
            // A guess: some find the version that they expect.
            let expected = random / args.keys / 10 % 4;
            let bytes = value.clone().into_bytes();
            let put = Op::Put { key, value: bytes, expected: Some(expected), finished: false };
            (update(put), json!({ "op": "put", "key": name, "value": value, "expected": expected }))
        }
        _ => {
            let delete = Op::Delete { key, expected: None };
            (update(delete), json!({ "op": "delete", "key": name, "expected": null }))
        }
    }
}

/// `ended` is absent if the operation may still have an effect.
fn heard(line: &mut Value, ended: u64, result: Result<Done, CallError>) -> anyhow::Result<()> {
    match result {
        Ok(Done::Updated(outcomes)) => {
            line["ended"] = json!(ended);
            line["outcome"] = match outcomes[..] {
                [Applied::Done { version }] => json!({ "done": version }),
                [Applied::Conflict { found }] => json!({ "conflict": found }),
                _ => bail!("one operation has {} outcomes", outcomes.len()),
            };
        }
        Ok(Done::Row(row)) => {
            line["ended"] = json!(ended);
            line["found"] = match row {
                Some(row) => json!([String::from_utf8_lossy(&row.value), row.version]),
                None => Value::Null,
            };
        }
        Ok(Done::Page { .. }) => bail!("nothing was scanned"),
        Err(error) => {
            line["error"] = json!(error.to_string());
            // Nothing happened, and nothing will.
            let never = match error {
                CallError::Late { may_apply, .. } => !may_apply,
                CallError::Refused { .. } | CallError::Overloaded { .. } => true,
            };
            line["never"] = json!(never);
        }
    }
    Ok(())
}

/// Of the machine: the same for all clients on it.
fn monotonic_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}
