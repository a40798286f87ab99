//! `hoplo control restore`: a shard whose disks are gone goes on with what is left. By itself it would wait for ever for a
//! member that had all that was acknowledged, because only an operator knows that nobody will bring its disk back.
//!
//! With `--from-backup` control nodes that begin anew get the rows of a backup.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use hoplo_control::backup::{Refilled, refill};
use hoplo_control::net::cluster::Cluster;
use hoplo_wire::control::{Epoch, ShardId, Wish};
use serde::Deserialize;
use serde_json::json;

use super::wish::Nodes;

#[derive(Args)]
pub(crate) struct RestoreArgs {
    /// The cluster.json that `hoplo control init` or `certificate` wrote
    #[arg(long)]
    cluster_file: PathBuf,
    /// Put the rows of this backup into control nodes that begin anew, before any head begins
    #[arg(long, value_name = "FILE", conflicts_with_all = ["shard", "accept_loss"])]
    from_backup: Option<PathBuf>,
    /// The number of one shard [default: all]
    #[arg(long)]
    shard: Option<u16>,
    /// Go on with what is left, and lose what was acknowledged after that; without this nothing is changed
    #[arg(long)]
    accept_loss: bool,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// As a coordinator's status says it.
#[derive(Deserialize)]
struct Loss {
    shard: u16,
    epoch: u64,
    left: Option<Left>,
    /// Members that are not proven to be dead.
    silent: Vec<String>,
}

#[derive(Deserialize)]
struct Left {
    address: String,
    last: Option<Last>,
}

#[derive(Deserialize)]
struct Last {
    epoch: u64,
    index: u64,
}

pub(crate) fn run(args: &RestoreArgs) -> anyhow::Result<()> {
    if let Some(backup) = &args.from_backup {
        return from_backup(backup, args);
    }
    let nodes = Nodes::find(&args.cluster_file)?;
    let losses: Vec<Loss> = serde_json::from_value(nodes.losses.clone())
        .context("the coordinator does not say what is lost: is it of this version?")?;
    let losses: Vec<Loss> =
        losses.into_iter().filter(|it| args.shard.is_none_or(|shard| it.shard == shard)).collect();
    if losses.is_empty() {
        return nothing_lost(args);
    }
    if args.json {
        println!("{}", json!({ "losses": &nodes.losses, "accepted": args.accept_loss }));
    } else {
        losses.iter().for_each(|loss| println!("{}", loss.told()));
    }
    if !args.accept_loss {
        bail!(
            "nothing was changed: bring back a disk of a member, or give --accept-loss to go on with what is left"
        );
    }
    for loss in &losses {
        let (shard, epoch) = (ShardId(loss.shard), Epoch(loss.epoch));
        nodes.wish(&Wish::AcceptLoss { shard, epoch }, true)?;
        if !args.json {
            println!("shard {}: the loss is accepted", loss.shard);
        }
    }
    Ok(())
}

fn from_backup(backup: &Path, args: &RestoreArgs) -> anyhow::Result<()> {
    let cluster = Cluster::load(&args.cluster_file)?;
    let (header, Refilled { written, there }) = refill(backup, &cluster)?;
    let of_other = header.cluster != format!("{:032x}", cluster.id.0);
    if args.json {
        let said = json!({ "written": written, "there": there, "of_other_cluster": of_other });
        println!("{said}");
        return Ok(());
    }
    let there = match there {
        0 => String::new(),
        there => format!("; {there} were there already, and stay as they are"),
    };
    println!("{written} rows of {} are in the control nodes{there}", backup.display());
    if of_other {
        println!(
            "They are of another cluster ({}): its nodes do not know this one, and have to join it anew",
            header.cluster
        );
    }
    println!("Now start the heads");
    Ok(())
}

fn nothing_lost(args: &RestoreArgs) -> anyhow::Result<()> {
    if args.json {
        println!("{}", json!({ "losses": [], "accepted": false }));
    } else {
        println!("no shard waits for a disk that is gone");
    }
    Ok(())
}

impl Loss {
    fn told(&self) -> String {
        let Self { shard, epoch, .. } = self;
        let left = match &self.left {
            None => "no process runs that could go on: start one first".to_string(),
            Some(Left { address, last: None }) => {
                format!("nothing is left: everything in it is lost, {address} would begin anew")
            }
            Some(Left { address, last: Some(Last { epoch: of, index }) }) => format!(
                "{address} has what was entered up to entry {index} of epoch {of}; what was \
                 acknowledged after that is lost, and all clients begin new sessions"
            ),
        };
        let silent = match self.silent.as_slice() {
            [] => String::new(),
            silent => format!(
                "; not proven to be dead: {} (be sure that they do not run: what they acknowledge is lost, too)",
                silent.join(", ")
            ),
        };
        format!(
            "shard {shard}: no member of epoch {epoch} is there that had everything; {left}{silent}"
        )
    }
}
