//! `hoplo control watch`: a client that subscribes to the kv table from its beginning and writes down what it is told, one
//! JSON object a line: each change, how far the feed is, and what it missed.

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use hoplo_base::limits::CONTROL_WATCH_CREDIT;
use hoplo_control::net::cluster::Cluster;
use hoplo_control::net::driver::{Driver, Outcome};
use hoplo_core::control::client::Event;
use hoplo_wire::control::Table;
use serde_json::json;

#[derive(Args)]
pub(crate) struct WatchArgs {
    #[arg(long)]
    cluster_file: PathBuf,
    #[arg(long)]
    out: PathBuf,
    /// Only keys that begin with this
    #[arg(long, default_value = "")]
    prefix: String,
}

/// The one subscription.
const FEED: u64 = 1;

/// A signal is seen this soon.
const LOOK_UP: Duration = Duration::from_millis(100);

/// Until it is told to end.
pub(crate) fn run(args: &WatchArgs) -> anyhow::Result<()> {
    let cluster = Cluster::load(&args.cluster_file)?;
    let mut driver = Driver::new(&cluster)?;
    let mut out = BufWriter::new(std::fs::File::create(&args.out)?);
    let ended = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&ended))?;
    let prefix = args.prefix.clone().into_bytes();
    let (subscription, table, after) = (FEED, Table::Kv, vec![]);
    driver.handle(Event::Subscribe {
        subscription,
        table,
        prefix,
        after,
        credit: CONTROL_WATCH_CREDIT,
    });
    println!("ready");
    while !ended.load(Ordering::Relaxed) {
        driver.turn(Some(Instant::now() + LOOK_UP))?;
        for outcome in std::mem::take(&mut driver.results) {
            match outcome {
                Outcome::Changes { subscription, shard, changes, upto } => {
                    for change in &changes {
                        let key = String::from_utf8_lossy(&change.key.bytes);
                        let row = change.row.as_ref();
                        let value = row.map(|row| String::from_utf8_lossy(&row.value));
                        let version = row.map(|row| row.version);
                        let line = json!({ "shard": shard.0, "index": change.index, "key": key,
                                           "value": value, "version": version });
                        writeln!(out, "{line}")?;
                    }
                    writeln!(out, "{}", json!({ "shard": shard.0, "upto": upto }))?;
                    let changes = changes.len() as u32;
                    driver.handle(Event::Consumed { subscription, shard, changes });
                }
                Outcome::Missed { subscription, shard, oldest } => {
                    let missed = json!({ "shard": shard.0, "missed_until": oldest });
                    writeln!(out, "{missed}")?;
                    driver.handle(Event::Resume { subscription, shard, after: oldest });
                }
                Outcome::Finished { .. } | Outcome::Told { .. } => {}
            }
        }
        out.flush()?;
    }
    Ok(())
}
