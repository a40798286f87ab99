//! What operators want: `hoplo control move` and `hoplo control drain`. The coordinator that acts takes the wish into the
//! configuration and works on it; the command returns when the wish is there, so that no crash loses it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use hoplo_base::NodeId;
use hoplo_base::limits::CONTROL_WISH_WRITTEN;
use hoplo_control::net::Question;
use hoplo_control::net::cluster::Cluster;
use hoplo_wire::control::{ClusterConfig, ShardId, Wish};
use serde_json::{Value, json};

use super::ask::{ask_nodes, parsed};
use super::trouble_of;

/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

#[derive(Args)]
struct Operator {
    /// The cluster.json that `hoplo control init` or `certificate` wrote
    #[arg(long)]
    cluster_file: PathBuf,
    /// Take back what the same command asked for before
    #[arg(long)]
    undo: bool,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct MoveArgs {
    /// The number of the shard
    shard: u16,
    /// The node that has the replica: its address, or its number as `hoplo control members` shows it
    from: String,
    /// The node that shall have the replica
    to: String,
    #[command(flatten)]
    operator: Operator,
}

#[derive(Args)]
pub(crate) struct DrainArgs {
    /// The node's address, or its number as `hoplo control members` shows it
    node: String,
    #[command(flatten)]
    operator: Operator,
}

pub(crate) fn move_replica(args: &MoveArgs) -> anyhow::Result<()> {
    let nodes = Nodes::find(&args.operator.cluster_file)?;
    let (from, to) = (nodes.named(&args.from)?, nodes.named(&args.to)?);
    nodes.operate(&args.operator, &Wish::Move { shard: ShardId(args.shard), from, to })
}

pub(crate) fn drain(args: &DrainArgs) -> anyhow::Result<()> {
    let nodes = Nodes::find(&args.operator.cluster_file)?;
    nodes.operate(&args.operator, &Wish::Leave { node: nodes.named(&args.node)? })
}

/// The cluster as it says it is.
pub(super) struct Nodes {
    cluster: Cluster,
    /// Address and number: of those that answer, and of those in the configuration.
    known: Vec<(String, NodeId)>,
    /// Where the coordinator is that acts.
    acting: String,
    /// What that one says about shards that cannot go on.
    pub(super) losses: Value,
}

impl Nodes {
    pub(super) fn find(cluster_file: &Path) -> anyhow::Result<Self> {
        let cluster = Cluster::load(cluster_file)?;
        let found = parsed(ask_nodes(&cluster, cluster.nodes.clone(), &Question::Status)?)?;
        let mut known = Vec::new();
        let mut acting = None;
        let mut losses = Value::Null;
        for (address, status) in &found {
            let Ok(status) = status else { continue };
            let number = status["replica"]["node"].as_str().unwrap_or_default();
            let number = u64::from_str_radix(number, 16).context("a node without a number")?;
            known.push((address.clone(), NodeId(number)));
            if let Some(config) = config_of(status)? {
                let chains = config.shards.iter();
                let members = chains.flat_map(|chain| chain.members.iter().chain(&chain.joining));
                known.extend(members.map(|it| (it.address.clone(), it.replica.node)));
            }
            if status["coordinator"]["acts"] == Value::Bool(true) {
                acting = Some(address.clone());
                losses = status["coordinator"]["losses"].clone();
            }
        }
        known.sort();
        known.dedup();
        let said: Vec<String> = found
            .iter()
            .filter_map(|(node, status)| Some(format!("{node}: {}", trouble_of(status)?)))
            .collect();
        let nobody = || {
            let said = match &said[..] {
                [] => "though the control nodes answer: `hoplo control status` says what they wait for".to_string(),
                said => said.join("; "),
            };
            format!("no coordinator acts now; {said}")
        };
        let acting = acting.with_context(nobody)?;
        Ok(Self { cluster, known, acting, losses })
    }

    fn named(&self, name: &str) -> anyhow::Result<NodeId> {
        let number = u64::from_str_radix(name, 16).ok().filter(|_| name.len() == 16).map(NodeId);
        let fits = |(address, node): &&(String, NodeId)| address == name || Some(*node) == number;
        if let Some((_, node)) = self.known.iter().find(fits) {
            return Ok(*node);
        }
        let all = self.known.iter().map(|(address, node)| format!("{address} ({:016x})", node.0));
        bail!("no node {name:?} is known; there are {}", all.collect::<Vec<_>>().join(", "))
    }

    fn operate(&self, operator: &Operator, wish: &Wish) -> anyhow::Result<()> {
        let wished = !operator.undo;
        self.wish(wish, wished)?;
        if operator.json {
            println!("{}", json!({ "wish": wish, "wished": wished }));
        } else if wished {
            println!("it will be done; `hoplo control members` shows how far it is");
        } else {
            println!("it was taken back; what has moved stays where it is");
        }
        Ok(())
    }

    /// Until it is written down.
    pub(super) fn wish(&self, wish: &Wish, wished: bool) -> anyhow::Result<()> {
        let ask = |question| {
            let mut said = ask_nodes(&self.cluster, vec![self.acting.clone()], &question)?;
            let (node, answer) = said.pop().context("one node was asked")?;
            answer.map_err(|why| anyhow::anyhow!("{node}: {why}"))
        };
        ask(Question::Wish { wish: wish.clone(), wished })?;
        let until = Instant::now() + CONTROL_WISH_WRITTEN;
        loop {
            let status: Value = serde_json::from_str(&ask(Question::Status)?)?;
            let config = config_of(&status)?.context("the configuration is gone")?;
            if (config.wishes.contains(wish) || is_fulfilled(wish, &config)) == wished {
                return Ok(());
            }
            if Instant::now() > until {
                bail!("{} took it, but has not written it down", self.acting);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

fn config_of(status: &Value) -> anyhow::Result<Option<ClusterConfig>> {
    // It is a part of the document; what else a status says of it is not needed here.
    let part = &status["config"];
    if part.is_null() {
        return Ok(None);
    }
    let cluster = part["cluster"].as_str().unwrap_or_default();
    let cluster = u128::from_str_radix(cluster, 16).context("a configuration without a cluster")?;
    Ok(Some(ClusterConfig {
        cluster: hoplo_wire::control::ClusterId(cluster),
        replication: serde_json::from_value(part["replication"].clone())?,
        shards: serde_json::from_value(part["shards"].clone())?,
        acting: serde_json::from_value(part["acting"].clone())?,
        wishes: serde_json::from_value(part["wishes"].clone())?,
    }))
}

/// A replica that has moved is not wished any more, nor a loss accepted once the shard goes on.
fn is_fulfilled(wish: &Wish, config: &ClusterConfig) -> bool {
    let chain = |shard: &ShardId| config.shards.get(usize::from(shard.0));
    match wish {
        Wish::Leave { .. } => false,
        Wish::Move { shard, from, .. } => {
            chain(shard).is_some_and(|it| it.members.iter().all(|it| it.replica.node != *from))
        }
        Wish::AcceptLoss { shard, epoch } => chain(shard).is_some_and(|it| it.epoch > *epoch),
    }
}
