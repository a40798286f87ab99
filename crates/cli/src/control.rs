//! `hoplo control`: the processes of a cluster's control store, and what they say about themselves.

mod bench;
mod history;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use hoplo_control::disk::log::Fsync;
use hoplo_control::net::Question;
use hoplo_control::net::cluster::Cluster;
use hoplo_control::net::config_store;
use hoplo_control::net::driver::{Driver, Outcome};
use hoplo_control::net::server::{Server, ServerOptions};
use serde_json::Value;

use crate::table;

#[derive(Subcommand)]
pub(crate) enum ControlCommand {
    /// Make a new cluster: its file, and its certificates beside it
    Init(InitArgs),
    /// Run one control node
    Serve(ServeArgs),
    /// Shards, chains, epochs, lag, memory and disk of each control node
    Status(Target),
    /// Who is in each chain
    Members(Target),
    /// Snapshot every shard now, so that the logs become short
    Compact(Target),
    /// The same as status for Prometheus
    Metrics(Target),
    /// Measures latency or throughput of a running cluster
    #[command(hide = true)]
    Bench(bench::BenchArgs),
    /// Works on a few keys and writes down what it saw, for a checker
    #[command(hide = true)]
    History(history::HistoryArgs),
}

#[derive(Args)]
pub(crate) struct InitArgs {
    /// Where cluster.json and tls/ are written
    dir: PathBuf,
    /// Address of a control node (host:port, or the path of a unix socket); once for each
    #[arg(long = "node", required = true)]
    nodes: Vec<String>,
    #[arg(long, default_value_t = 1)]
    shards: u16,
    /// Replicas of each shard
    #[arg(long, default_value_t = 1)]
    replicas: u8,
}

#[derive(Args)]
pub(crate) struct ServeArgs {
    /// Where this node keeps its log; of one process at a time
    #[arg(long)]
    dir: PathBuf,
    /// host:port, or the path of a unix socket
    #[arg(long)]
    listen: String,
    /// How others reach this node, if not as it listens
    #[arg(long)]
    advertise: Option<String>,
    /// What `hoplo control init` wrote
    #[arg(long)]
    cluster_file: PathBuf,
    /// Where coordinators keep the configuration: file:PATH or etcd:http://HOST:PORT/KEY
    #[arg(long)]
    config: Option<String>,
    /// Coordinate only: hold no replica
    #[arg(long)]
    no_replicas: bool,
    /// When an update is safe enough to be acknowledged
    #[arg(long, value_enum, default_value_t = Sync::Always)]
    fsync: Sync,
    /// For the rows of each shard, in MB
    #[arg(long)]
    memory_mb: Option<u64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Sync {
    /// When it is on every member's disk
    Always,
    /// When every member's kernel has it
    Never,
}

#[derive(Args)]
pub(crate) struct Target {
    /// What `hoplo control init` wrote
    #[arg(long)]
    cluster_file: PathBuf,
    /// Only this node
    #[arg(long)]
    node: Option<String>,
    #[arg(long)]
    json: bool,
}

const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

pub(crate) fn run(command: &ControlCommand) -> anyhow::Result<()> {
    match command {
        ControlCommand::Init(args) => init(args),
        ControlCommand::Serve(args) => serve(args),
        ControlCommand::Status(target) => status(target),
        ControlCommand::Members(target) => members(target),
        ControlCommand::Compact(target) => compact(target),
        ControlCommand::Metrics(target) => metrics(target),
        ControlCommand::Bench(args) => bench::run(args),
        ControlCommand::History(args) => history::run(args),
    }
}

fn init(args: &InitArgs) -> anyhow::Result<()> {
    let path = Cluster::make(&args.dir, args.nodes.clone(), args.shards, args.replicas)?;
    println!("{}", path.display());
    Ok(())
}

fn serve(args: &ServeArgs) -> anyhow::Result<()> {
    let store = args.config.as_deref().map(config_store::open).transpose()?;
    let server = Server::start(ServerOptions {
        folder: args.dir.clone(),
        cluster: Cluster::load(&args.cluster_file)?,
        listen: args.listen.clone(),
        advertise: args.advertise.clone(),
        store,
        holds_replicas: !args.no_replicas,
        fsync: match args.fsync {
            Sync::Always => Fsync::Always,
            Sync::Never => Fsync::Never,
        },
        memory_bytes: args.memory_mb.map(|mb| mb << 20),
    })?;
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&ended))?;
    }
    println!("hoplo control: {} is ready", server.address());
    server.run(&|| ended.load(Ordering::Relaxed))?;
    Ok(())
}

/// The same question to every control node; what each says, or why it does not.
fn ask(
    target: &Target,
    question: &Question,
) -> anyhow::Result<Vec<(String, Result<String, String>)>> {
    let cluster = Cluster::load(&target.cluster_file)?;
    let mut driver = Driver::new(&cluster)?;
    let nodes = match &target.node {
        Some(node) => vec![node.clone()],
        None => cluster.nodes.clone(),
    };
    let mut waiting: Vec<(u64, String)> =
        nodes.iter().map(|node| (driver.ask(node, question.clone()), node.clone())).collect();
    let mut answers = Vec::new();
    let until = Instant::now() + ANSWERS_WITHIN;
    while !waiting.is_empty() && Instant::now() < until {
        driver.turn(Some(until))?;
        for outcome in std::mem::take(&mut driver.results) {
            let Outcome::Told { number, answer } = outcome else { continue };
            if let Some(place) = waiting.iter().position(|(asked, _)| *asked == number) {
                answers.push((waiting.swap_remove(place).1, answer));
            }
        }
    }
    if let (true, Some(unfit)) = (answers.iter().all(|(_, answer)| answer.is_err()), driver.unfit())
    {
        bail!("{unfit}");
    }
    let silent = waiting.into_iter().map(|(_, node)| (node, Err("no answer".to_string())));
    answers.extend(silent);
    answers.sort();
    Ok(answers)
}

fn statuses(target: &Target) -> anyhow::Result<Vec<(String, Result<Value, String>)>> {
    let answers = ask(target, &Question::Status)?;
    let parse = |(node, answer): (String, Result<String, String>)| {
        let answer = match answer {
            Ok(text) => Ok(serde_json::from_str(&text).context("a status that is no JSON")?),
            Err(why) => Err(why),
        };
        Ok((node, answer))
    };
    answers.into_iter().map(parse).collect()
}

fn status(target: &Target) -> anyhow::Result<()> {
    let found = statuses(target)?;
    if target.json {
        let all: serde_json::Map<String, Value> = found
            .into_iter()
            .map(|(node, status)| {
                (node, status.unwrap_or_else(|why| serde_json::json!({ "error": why })))
            })
            .collect();
        println!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(());
    }
    let heads =
        ["node", "shard", "role", "epoch", "applied", "lag", "rows", "memory", "log", "trouble"];
    let mut rows = Vec::new();
    for (node, status) in &found {
        let status = match status {
            Ok(status) => status,
            Err(why) => {
                let mut row = vec![node.clone()];
                row.extend(std::iter::repeat_n("-".to_string(), 8));
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
            let mb = |name: &str| format!("{:.1} MB", shard[name].as_f64().unwrap_or(0.0) / 1e6);
            rows.push(vec![
                node.clone(),
                field("shard"),
                field("role"),
                field("epoch"),
                field("applied"),
                field("lag"),
                field("rows"),
                mb("memory_bytes"),
                mb("log_disk_bytes"),
                [field("disk"), field("set_aside")].join(" ").trim().to_string(),
            ]);
        }
    }
    table::print(&heads, &rows)?;
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
    let mut failed = false;
    for (node, answer) in ask(target, &Question::Compact)? {
        match answer {
            Ok(shards) => println!("{node}: {shards} shards begin a snapshot"),
            Err(why) => {
                failed = true;
                println!("{node}: {why}");
            }
        }
    }
    if failed { bail!("not every node was asked") } else { Ok(()) }
}

fn metrics(target: &Target) -> anyhow::Result<()> {
    let answers = ask(target, &Question::Metrics)?;
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
