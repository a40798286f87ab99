//! `hoplo control`: the processes of a cluster's control store, and what they say about themselves.

mod ask;
mod backup;
mod bench;
mod history;
mod restore;
mod watch;
mod wish;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use hoplo_base::limits::{AUTHORITY_DAYS, CERTIFICATE_DAYS};
use hoplo_control::disk::cold::Retention;
use hoplo_control::disk::log::Fsync;
use hoplo_control::net::Question;
use hoplo_control::net::cluster::Cluster;
use hoplo_control::net::config_store;
use hoplo_control::net::server::{Server, ServerOptions};
use hoplo_net::authority::Validity;
use hoplo_net::name::Role;
use serde_json::{Value, json};

use crate::table;
use ask::{Target, ask, statuses};

#[derive(Subcommand)]
pub(crate) enum ControlCommand {
    /// Make a new cluster: its file, its certificate authority and the certificates of its nodes
    Init(InitArgs),
    /// Make or renew a certificate, on the machine where the cluster was made
    Certificate(CertificateArgs),
    /// Run one control node
    Serve(ServeArgs),
    /// Show shards, chains, epochs, lag, memory and disk of each control node
    Status(Target),
    /// Show which control nodes are in each chain
    Members(Target),
    /// Write a snapshot of every shard now, so that the logs become short
    Compact(Target),
    /// Print the numbers of status for Prometheus
    Metrics(Target),
    /// Move a replica of a shard from one control node to another
    Move(wish::MoveArgs),
    /// Move all replicas of a control node to others, and give it no new ones
    Drain(wish::DrainArgs),
    /// Write all rows of the store into one file while it runs; with --show say what is in such a file
    Backup(backup::BackupArgs),
    /// Say what is left of shards whose disks are gone; with --accept-loss go on with it
    Restore(restore::RestoreArgs),
    /// Measures latency or throughput of a running cluster
    #[command(hide = true)]
    Bench(bench::BenchArgs),
    /// Works on a few keys and writes down what it saw, for a checker
    #[command(hide = true)]
    History(history::HistoryArgs),
    /// Writes down how the kv table changes, for a checker
    #[command(hide = true)]
    Watch(watch::WatchArgs),
}

#[derive(Args)]
pub(crate) struct InitArgs {
    /// The folder to write the cluster's file, authority and certificates to
    dir: PathBuf,
    /// Address of a control node: host:port, or the path of a unix socket; give it once for each node. The first five (of four,
    /// three) hold the cluster's configuration, and a majority of them has to run for a chain to change
    #[arg(long = "node", required = true)]
    nodes: Vec<String>,
    /// Shards that the rows are divided into; this cannot be changed later
    #[arg(long, default_value_t = 1)]
    shards: u16,
    /// Replicas of each shard [default: one on each node, on three at most]
    #[arg(long)]
    replicas: Option<u8>,
}

#[derive(Args)]
pub(crate) struct CertificateArgs {
    /// The cluster.json that `hoplo control init` wrote, with the folder ca/ beside it
    #[arg(long)]
    cluster_file: PathBuf,
    /// What its holder may do: a node serves, a client reads and writes rows, an operator also moves replicas
    #[arg(long, value_enum)]
    role: CertificateRole,
    /// The holder's name; if it has a certificate, that is renewed
    #[arg(long)]
    name: String,
    /// The folder to write, which the holder gets [default: nodes/NAME, clients/NAME or operators/NAME]
    #[arg(long)]
    out: Option<PathBuf>,
    /// How many days it is valid
    #[arg(long, default_value_t = CERTIFICATE_DAYS)]
    days: u32,
}

#[derive(Clone, Copy, ValueEnum)]
enum CertificateRole {
    Node,
    Client,
    Operator,
}

#[derive(Args)]
pub(crate) struct ServeArgs {
    /// The folder for this node's log; one process uses it at a time
    #[arg(long)]
    dir: PathBuf,
    /// The address to listen at: host:port, or the path of a unix socket
    #[arg(long)]
    listen: String,
    /// The address at which other nodes reach this one [default: that of --listen]
    #[arg(long)]
    advertise: Option<String>,
    /// The cluster.json that `hoplo control init` or `certificate` wrote for this node
    #[arg(long)]
    cluster_file: PathBuf,
    /// Where the nodes that `init` named keep the configuration: with themselves (nodes), file:PATH or etcd:http://HOST:PORT/KEY
    #[arg(long, default_value = "nodes")]
    config: String,
    /// Hold no replica, and only take part in deciding who holds them
    #[arg(long)]
    no_replicas: bool,
    /// When an update is acknowledged
    #[arg(long, value_enum, default_value_t = Sync::Always)]
    fsync: Sync,
    /// Go on when the terminal is closed
    #[arg(long)]
    background: bool,
    /// Memory for the rows of each shard, in MiB [default: 256]
    #[arg(long)]
    memory_mb: Option<u64>,
    /// Remove finished rows from disk when they are older than that; 0: never
    #[arg(long, default_value_t = 7.0 * 24.0)]
    retention_hours: f64,
    /// Remove the oldest finished rows from disk when those of a shard take more MiB than that; 0: never
    #[arg(long, default_value_t = 4096)]
    retention_mb: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Sync {
    /// When it is on the disk of every member of its chain
    Always,
    /// When the operating system of every member of its chain has it
    Never,
}

pub(crate) fn run(command: &ControlCommand) -> anyhow::Result<()> {
    match command {
        ControlCommand::Init(args) => init(args),
        ControlCommand::Certificate(args) => certificate(args),
        ControlCommand::Serve(args) => serve(args),
        ControlCommand::Status(target) => status(target),
        ControlCommand::Members(target) => members(target),
        ControlCommand::Compact(target) => compact(target),
        ControlCommand::Metrics(target) => metrics(target),
        ControlCommand::Move(args) => wish::move_replica(args),
        ControlCommand::Drain(args) => wish::drain(args),
        ControlCommand::Backup(args) => backup::run(args),
        ControlCommand::Restore(args) => restore::run(args),
        ControlCommand::Bench(args) => bench::run(args),
        ControlCommand::History(args) => history::run(args),
        ControlCommand::Watch(args) => watch::run(args),
    }
}

fn init(args: &InitArgs) -> anyhow::Result<()> {
    let replicas = args.replicas.unwrap_or(args.nodes.len().min(3) as u8);
    let path = Cluster::make(&args.dir, args.nodes.clone(), args.shards, replicas)?;
    println!("{}", path.display());
    if args.nodes.len() < 3 {
        eprintln!(
            "hoplo: with fewer than three control nodes a chain that loses a member waits until it is back: name three or \
             five, or keep the configuration elsewhere (`hoplo control serve --config`)"
        );
    }
    Ok(())
}

fn certificate(args: &CertificateArgs) -> anyhow::Result<()> {
    let role = match args.role {
        // Where people give out certificates there are no other nodes.
        CertificateRole::Node => Role::Control,
        CertificateRole::Client => Role::Client,
        CertificateRole::Operator => Role::Operator,
    };
    if args.days == 0 || args.days > AUTHORITY_DAYS {
        bail!("--days is from 1 to {AUTHORITY_DAYS}");
    }
    let (valid, out) = (Validity::days(args.days), args.out.as_deref());
    let made = Cluster::certify(&args.cluster_file, role, &args.name, valid, out)?;
    println!("{}", made.display());
    Ok(())
}

fn serve(args: &ServeArgs) -> anyhow::Result<()> {
    if args.background {
        // A shell that starts it as a job made it the first of its group: it is no session's first, and goes on anyhow.
        let _ = rustix::process::setsid();
    }
    let server = Server::start(ServerOptions {
        folder: args.dir.clone(),
        cluster: Cluster::load(&args.cluster_file)?,
        listen: args.listen.clone(),
        advertise: args.advertise.clone(),
        config: config_store::place(&args.config)?,
        holds_replicas: !args.no_replicas,
        fsync: match args.fsync {
            Sync::Always => Fsync::Always,
            Sync::Never => Fsync::Never,
        },
        memory_bytes: args.memory_mb.map(|mb| mb << 20),
        retention: retention(args)?,
    })?;
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&ended))?;
    }
    println!("hoplo control: {} is ready", server.address());
    server.run(&|| ended.load(Ordering::Relaxed))?;
    Ok(())
}

fn retention(args: &ServeArgs) -> anyhow::Result<Retention> {
    let age = Duration::try_from_secs_f64(args.retention_hours * 3600.0);
    let age = age.context("--retention-hours is no length of time")?;
    Ok(Retention {
        age: Some(age).filter(|age| !age.is_zero()),
        bytes: Some(args.retention_mb.saturating_mul(1 << 20)).filter(|bytes| *bytes > 0),
    })
}

fn status(target: &Target) -> anyhow::Result<()> {
    let found = statuses(target)?;
    if target.json {
        return print_json(found);
    }
    let heads = [
        "node",
        "shard",
        "role",
        "epoch",
        "applied",
        "lag",
        "rows",
        "memory",
        "log",
        "cold rows",
        "cold",
        "trouble",
    ];
    let mut rows = Vec::new();
    for (node, status) in &found {
        let status = match status {
            Ok(status) => status,
            Err(why) => {
                let mut row = vec![node.clone()];
                row.extend(std::iter::repeat_n("-".to_string(), heads.len() - 2));
                row.push(why.clone());
                rows.push(row);
                continue;
            }
        };
        for shard in status["shards"].as_array().into_iter().flatten() {
            let field = |name: &str| match &shard[name] {
                Value::String(text) => text.clone(),
                Value::Null => String::new(),
                other => other.to_string(),
            };
            let known = |name: &str| if shard[name].is_null() { "-".into() } else { field(name) };
            let mb = |name: &str| format!("{:.1} MB", shard[name].as_f64().unwrap_or(0.0) / 1e6);
            rows.push(vec![
                node.clone(),
                field("shard"),
                field("role"),
                field("epoch"),
                known("applied"),
                known("lag"),
                field("rows"),
                mb("memory_bytes"),
                mb("log_disk_bytes"),
                known("cold_rows"),
                mb("cold_disk_bytes"),
                [field("disk"), field("set_aside")].join(" ").trim().to_string(),
            ]);
        }
    }
    table::print(&heads, &rows)?;
    let acts = |status: &Value| status["coordinator"]["acts"] == Value::Bool(true);
    if !found.iter().any(|(_, status)| status.as_ref().is_ok_and(acts)) {
        println!("coordinator: nobody acts");
        for (node, status) in &found {
            if let Ok(answered) = status
                && let Some(why) = trouble_of(status)
            {
                let up = answered["up_s"].as_u64().unwrap_or(0);
                println!("{node}, up for {up} s: {why}");
            }
        }
    }
    for (node, status) in &found {
        let Ok(status) = status else { continue };
        if status["coordinator"]["acts"] == Value::Bool(true) {
            println!("coordinator: {node}");
            for chain in status["coordinator"]["chains"].as_array().into_iter().flatten() {
                for why in chain["why"].as_array().into_iter().flatten() {
                    println!("shard {}: {}", chain["shard"], why.as_str().unwrap_or_default());
                }
            }
        }
    }
    Ok(())
}

/// Why a node does not answer, or its coordinator does not act though it could.
fn trouble_of(status: &Result<Value, String>) -> Option<&str> {
    match status {
        Ok(status) => status["coordinator"]["trouble"].as_str(),
        Err(why) => Some(why),
    }
}

/// As the newest configuration that any node knows says.
fn members(target: &Target) -> anyhow::Result<()> {
    let found = statuses(target)?;
    let epochs = |config: &Value| -> u64 {
        let shards = config["shards"].as_array().into_iter().flatten();
        shards.filter_map(|chain| chain["epoch"].as_u64()).sum()
    };
    let configs = found.iter().filter_map(|(_, status)| status.as_ref().ok());
    let configs = configs.map(|status| &status["config"]).filter(|config| !config.is_null());
    let Some(newest) = configs.max_by_key(|config| epochs(config)) else {
        let why: Vec<String> = found
            .iter()
            .map(|(node, status)| match status {
                Ok(_) => format!("{node} knows no configuration yet"),
                Err(why) => format!("{node}: {why}"),
            })
            .collect();
        bail!("{}", why.join("; "));
    };
    if target.json {
        println!("{}", serde_json::to_string_pretty(newest)?);
        return Ok(());
    }
    let mut rows = Vec::new();
    for chain in newest["shards"].as_array().into_iter().flatten() {
        let members: Vec<&Value> = chain["members"].as_array().into_iter().flatten().collect();
        let places = members.iter().enumerate().map(|(place, member)| {
            let name = match place {
                0 if members.len() == 1 => "head and tail",
                0 => "head",
                _ if place + 1 == members.len() => "tail",
                _ => "middle",
            };
            (name, *member)
        });
        let joining = Some(&chain["joining"]).filter(|joining| !joining.is_null());
        for (place, member) in places.chain(joining.map(|member| ("joining", member))) {
            rows.push(vec![
                chain["shard"].to_string(),
                chain["epoch"].to_string(),
                place.to_string(),
                format!("{:016x}", member["replica"]["node"].as_u64().unwrap_or(0)),
                member["replica"]["incarnation"].to_string(),
                member["address"].as_str().unwrap_or_default().to_string(),
            ]);
        }
    }
    table::print(&["shard", "epoch", "place", "node", "incarnation", "address"], &rows)?;
    Ok(())
}

fn compact(target: &Target) -> anyhow::Result<()> {
    let found = ask(target, &Question::Compact)?;
    let failed = found.iter().any(|(_, answer)| answer.is_err());
    if target.json {
        let shards = |text: String| json!({ "shards": text.parse::<u64>().unwrap_or(0) });
        print_json(found.into_iter().map(|(node, answer)| (node, answer.map(shards))))?;
    } else {
        for (node, answer) in found {
            match answer {
                Ok(shards) => println!("{node}: {shards} shards begin a snapshot"),
                Err(why) => println!("{node}: {why}"),
            }
        }
    }
    if failed { bail!("not every node did it") } else { Ok(()) }
}

fn metrics(target: &Target) -> anyhow::Result<()> {
    let answers = ask(target, &Question::Metrics)?;
    if target.json {
        return print_json(answers.into_iter().map(|(node, text)| (node, text.map(values))));
    }
    let one = answers.len() == 1;
    for (node, answer) in answers {
        match answer {
            Ok(text) => {
                if !one {
                    println!("# node {node}");
                }
                print!("{text}");
            }
            Err(why) => bail!("{node}: {why}"),
        }
    }
    Ok(())
}

/// Of Prometheus' text form: name with labels, and number.
fn values(text: String) -> Value {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.rsplit_once(' '));
    let number = |text: &str| text.parse::<u64>().map_or(Value::Null, Value::from);
    pairs.map(|(name, value)| (name.to_string(), number(value))).collect()
}

/// What each node says, or why it does not.
fn print_json(
    found: impl IntoIterator<Item = (String, Result<Value, String>)>,
) -> anyhow::Result<()> {
    let said = |answer: Result<Value, String>| answer.unwrap_or_else(|why| json!({ "error": why }));
    let all: serde_json::Map<String, Value> =
        found.into_iter().map(|(node, answer)| (node, said(answer))).collect();
    println!("{}", serde_json::to_string_pretty(&all)?);
    Ok(())
}
