//! Questions to control nodes: those of a cluster over its own protocol, or the one node that runs here through its
//! daemon's socket, which answers in the same form.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::Args;
use hoplo_base::limits::CONTROL_TOOL_ANSWERS;
use hoplo_control::net::Question;
use hoplo_control::net::cluster::Cluster;
use hoplo_control::net::driver::{Driver, Outcome};
use serde_json::Value;

use crate::tool::{Tool, find_session};

#[derive(Args)]
pub(crate) struct Target {
    /// The cluster.json that `hoplo control init` or `certificate` wrote [default: ask the hoplo node of this machine]
    #[arg(long)]
    pub(super) cluster_file: Option<PathBuf>,
    /// Ask only this control node, by its address
    #[arg(long, requires = "cluster_file")]
    node: Option<String>,
    /// Ask the node with this session folder [default: the head, else the node that started last]
    #[arg(long, value_name = "DIR", conflicts_with = "cluster_file")]
    session: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long)]
    pub(super) json: bool,
}

/// What each node says, or why it does not.
pub(super) type Answers<T> = Vec<(String, Result<T, String>)>;

/// The same question to every control node.
pub(super) fn ask(target: &Target, question: &Question) -> anyhow::Result<Answers<String>> {
    let Some(file) = &target.cluster_file else { return ask_here(target, question) };
    let cluster = Cluster::load(file)?;
    let nodes = match &target.node {
        Some(node) => vec![node.clone()],
        None => cluster.nodes.clone(),
    };
    ask_nodes(&cluster, nodes, question)
}

pub(super) fn ask_nodes(
    cluster: &Cluster,
    nodes: Vec<String>,
    question: &Question,
) -> anyhow::Result<Answers<String>> {
    let mut driver = Driver::new(cluster)?;
    let mut waiting: Vec<(u64, String)> =
        nodes.into_iter().map(|node| (driver.ask(&node, question.clone()), node)).collect();
    let mut answers = Vec::new();
    let until = Instant::now() + CONTROL_TOOL_ANSWERS;
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

fn ask_here(target: &Target, question: &Question) -> anyhow::Result<Answers<String>> {
    let what = match question {
        Question::Status => "status",
        Question::Metrics => "metrics",
        Question::Compact => "compact",
        Question::Wish { .. } => {
            bail!("one node by itself has nothing to move: --cluster-file names a cluster")
        }
    };
    let session = find_session(target.session.as_deref())?;
    let answer = match Tool::connect(&session)?.query("control", what)? {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let path = session.path();
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    Ok(vec![(name.into_owned(), Ok(answer))])
}

pub(super) fn statuses(target: &Target) -> anyhow::Result<Answers<Value>> {
    parsed(ask(target, &Question::Status)?)
}

pub(super) fn parsed(answers: Answers<String>) -> anyhow::Result<Answers<Value>> {
    let parse = |(node, answer): (String, Result<String, String>)| {
        let answer = match answer {
            Ok(text) => Ok(serde_json::from_str(&text).context("a status that is no JSON")?),
            Err(why) => Err(why),
        };
        Ok((node, answer))
    };
    answers.into_iter().map(parse).collect()
}
