//! `hoplo control backup`: all rows of a store that runs, in one file; and what is in such a file.

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::bail;
use clap::Args;
use hoplo_base::Size;
use hoplo_control::backup::{Header, Reader, save};
use hoplo_control::net::cluster::Cluster;
use serde_json::json;

use crate::table;
use crate::tool::find_session;

#[derive(Args)]
pub(crate) struct BackupArgs {
    /// The file to write; that of a head holds the key of its cluster: keep it as you keep a password
    file: PathBuf,
    /// Replace the file if it is there
    #[arg(long)]
    force: bool,
    /// Write nothing: check the file, and say what is in it
    #[arg(long, conflicts_with_all = ["force", "cluster_file", "session"])]
    show: bool,
    /// The cluster.json that `hoplo control init` or `certificate` wrote [default: the head of this machine]
    #[arg(long)]
    cluster_file: Option<PathBuf>,
    /// The session folder of the head [default: the head of this machine]
    #[arg(long, value_name = "DIR", conflicts_with = "cluster_file")]
    session: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &BackupArgs) -> anyhow::Result<()> {
    let header = match (args.show, &args.cluster_file) {
        (true, _) => Reader::open(&args.file)?.check()?,
        (false, Some(file)) => save(&Cluster::load(file)?, None, &args.file, args.force)?,
        (false, None) => of_head(args)?,
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&as_json(&header))?);
        return Ok(());
    }
    let bytes = Size(std::fs::metadata(&args.file).map_or(0, |found| found.len()));
    let file = args.file.display();
    if !args.show {
        println!("{file}: {} rows, {bytes}", header.rows);
        return Ok(());
    }
    println!("{file}: {} rows, {bytes}, nothing is missing", header.rows);
    show(&header)
}

/// As its own certificate shows it, as `hoplo token` does.
fn of_head(args: &BackupArgs) -> anyhow::Result<Header> {
    let session = find_session(args.session.as_deref())?;
    let folder = session.path().join("control");
    if !folder.join("cluster.json").exists() {
        if session.path().join("head/cluster.json").exists() {
            bail!(
                "this head's tables are on control nodes: name their cluster's file with --cluster-file"
            );
        }
        if session.cluster().is_some() {
            bail!("the control store is on the cluster's head: run this there");
        }
        bail!(
            "the node of {} keeps its tables in memory, and they end with it: there is nothing to back up; a head \
             (`hoplo start --head`) keeps them",
            session.path().display()
        );
    }
    let cluster = Cluster::load(&folder.join("cluster.json"))?;
    let founding = Cluster::founding(&folder)?;
    Ok(save(&cluster, Some(founding), &args.file, args.force)?)
}

/// All but the authority.
fn as_json(header: &Header) -> serde_json::Value {
    json!({
        "hoplo": header.hoplo,
        "made_us": header.made_us,
        "cluster": header.cluster,
        "row_format": header.row_format,
        "rows": header.rows,
        "tables": header.tables,
        "shards": header.shards,
        "head": header.head.as_ref().map(|head| &head.address),
    })
}

fn show(header: &Header) -> anyhow::Result<()> {
    let made = UNIX_EPOCH + Duration::from_micros(header.made_us);
    let ago = made.elapsed().unwrap_or_default();
    println!("made {} ago by hoplo {}", in_words(ago), header.hoplo);
    match &header.head {
        Some(head) => {
            println!(
                "of the head of cluster {}; its nodes look for it at {}",
                header.cluster, head.address
            )
        }
        None => println!("of the control nodes of cluster {}", header.cluster),
    }
    for (number, shard) in header.shards.iter().enumerate() {
        println!("shard {number} after entry {} of epoch {}", shard.index, shard.epoch);
    }
    let rows =
        header.tables.iter().map(|(table, rows)| vec![table.to_lowercase(), rows.to_string()]);
    Ok(table::print(&["table", "rows"], &rows.collect::<Vec<_>>())?)
}

fn in_words(time: Duration) -> String {
    let (seconds, day, hour) = (time.as_secs(), 24 * 3600, 3600);
    match seconds {
        0..120 => format!("{seconds} seconds"),
        _ if seconds < 2 * hour => format!("{} minutes", seconds / 60),
        _ if seconds < 2 * day => format!("{} hours", seconds / hour),
        _ => format!("{} days", seconds / day),
    }
}
