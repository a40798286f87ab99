//! Looking into a node: `hoplo status`, `hoplo why`.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use hoplo_base::limits::NODES_DEAD_SHOWN;
use hoplo_base::{Size, shown};
use serde_json::Value;

use crate::tool::{Tool, warn};

/// Of `--watch`.
pub(crate) const WATCH_EVERY: Duration = Duration::from_secs(1);

/// The terminal's cursor goes to the first column of the first line, and what follows is blank.
pub(crate) const CLEAR: &[u8] = b"\x1b[H\x1b[2J";

#[derive(Args)]
pub(crate) struct StatusArgs {
    /// Show it again each second, until Ctrl-C
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(crate) struct Target {
    /// Ask the node with this session folder [default: the head, else the node that started last]
    #[arg(long, value_name = "DIR")]
    pub(crate) session: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct WhyArgs {
    /// An id: ref.hex(), or a short one as errors and lists show it, like task:3-1f, obj:3-1f.0, actor:3-2@5
    id: String,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn status(args: &StatusArgs) -> Result<()> {
    let mut tool = Tool::find(args.target.session.as_deref())?;
    loop {
        let (status, missing) = tool.ask("status", "")?;
        let mut text = Vec::new();
        if args.watch && std::io::stdout().is_terminal() {
            text.extend(CLEAR);
        }
        if args.target.json {
            warn(&missing);
            writeln!(text, "{status:#}")?;
        } else {
            write_status(&mut text, &status, &missing)?;
        }
        let mut out = std::io::stdout().lock();
        out.write_all(&text)?;
        out.flush()?;
        if !args.watch {
            return Ok(());
        }
        drop(out);
        std::thread::sleep(WATCH_EVERY);
    }
}

fn write_status(out: &mut Vec<u8>, status: &Value, missing: &[String]) -> Result<()> {
    writeln!(out, "hoplo {}, daemon pid {}", text(&status["version"]), text(&status["pid"]))?;
    writeln!(out, "session  {}", text(&status["session_dir"]))?;
    let nodes = rows(&status["nodes"]);
    let (living, dead): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| node["Alive"] == true);
    // Of a node by itself there is nothing to say.
    for node in living.into_iter().filter(|_| nodes.len() > 1) {
        let here = here(&node["NodeID"], status);
        let (id, state) = (text(&node["NodeID"]), text(&node["State"]).to_lowercase());
        let (host, address) =
            (text(&node["NodeManagerHostname"]), text(&node["NodeManagerAddress"]));
        write!(out, "node     {id}{here} {state}, {} at {address}", shown(&host))?;
        match node["Reason"].as_str() {
            Some(why) => writeln!(out, ": {}", shown(why))?,
            None => writeln!(out, ", CPU {}", node["Resources"]["CPU"].as_f64().unwrap_or(0.0))?,
        }
    }
    // The last to die is the first of them.
    if let Some(last) = dead.first() {
        let (id, why) = (text(&last["NodeID"]), text(&last["Reason"]));
        let why = shown(&why);
        match dead.len() {
            1 => writeln!(out, "dead     {id}: {why}")?,
            count => {
                let more = if count < NODES_DEAD_SHOWN { "" } else { " or more" };
                writeln!(
                    out,
                    "dead     {count} nodes{more}, the last one {id}: {why} (hoplo list nodes shows them)"
                )?;
            }
        }
    }
    for line in missing {
        writeln!(out, "missing  {}", shown(line))?;
    }
    let others = rows(&status["others"]);
    if others.is_empty() && missing.is_empty() {
        return write_node(out, "", status);
    }
    let mut all: Vec<&Value> = std::iter::once(status).chain(others).collect();
    all.sort_by_key(|of_node| text(&of_node["node"]));
    for of_node in all {
        let id = text(&of_node["node"]);
        let row = nodes.iter().find(|node| node["NodeID"] == of_node["node"]);
        let host = row.map_or_else(String::new, |row| text(&row["NodeManagerHostname"]));
        let (here, pid) = (here(&of_node["node"], status), text(&of_node["pid"]));
        writeln!(out)?;
        writeln!(out, "{id}{here}, {}, daemon pid {pid}", shown(&host))?;
        write_node(out, "  ", of_node)?;
    }
    Ok(())
}

fn here(node: &Value, status: &Value) -> &'static str {
    if *node == status["node"] { " (here)" } else { "" }
}

/// What one node has, what of it is in use, and what waits there and why.
fn write_node(out: &mut Vec<u8>, indent: &str, status: &Value) -> Result<()> {
    let (workers, actors) = (text(&status["workers"]), text(&status["actors"]));
    write!(out, "{indent}workers  {workers}, actors {actors}")?;
    match status["actors_waiting"].as_u64().unwrap_or_default() {
        0 => writeln!(out)?,
        waiting => writeln!(out, ", {waiting} waiting for a place")?,
    }
    for (name, total) in status["resources"].as_object().into_iter().flatten() {
        let total = total.as_f64().unwrap_or(0.0);
        let used = total - status["available"][name].as_f64().unwrap_or(0.0);
        let amount = |amount: f64| match name.as_str() {
            "memory" => Size(amount as u64).to_string(),
            // They are counted in ten-thousandths, and the difference of two floats is not.
            _ => ((amount * 1e4).round() / 1e4).to_string(),
        };
        let named = shown(name);
        write!(out, "{indent}{named:<8} {} of {} reserved", amount(used), amount(total))?;
        match name.as_str() {
            "memory" => {
                let in_use = Size(status["memory_in_use"].as_u64().unwrap_or_default());
                writeln!(out, " by `memory=`; {in_use} in use by drivers and workers")?;
            }
            _ => writeln!(out)?,
        }
    }
    if let Some(why) = status["control_trouble"].as_str() {
        writeln!(out, "{indent}control  the store takes no rows: {}", shown(why))?;
    }
    if let Some(why) = status["members_trouble"].as_str() {
        writeln!(out, "{indent}nodes    {}", shown(why))?;
    }
    let groups = &status["placement_groups"];
    if (&groups["created"], &groups["waiting"]) != (&Value::from(0), &Value::from(0)) {
        let (created, waiting) = (text(&groups["created"]), text(&groups["waiting"]));
        let reserved = text(&groups["reserved"]);
        let reserved = shown(&reserved);
        writeln!(out, "groups   {created} placed ({reserved}), {waiting} waiting")?;
    }
    let tasks = status["tasks"].as_object().into_iter().flatten();
    let tasks: Vec<_> = tasks.map(|(stage, count)| format!("{} {stage}", text(count))).collect();
    let tasks = if tasks.is_empty() { "none".to_string() } else { tasks.join(", ") };
    writeln!(out, "{indent}tasks    {}", shown(&tasks))?;
    let store = &status["store"];
    let bytes = |name: &str| Size(store[name].as_f64().unwrap_or(0.0) as u64);
    write!(
        out,
        "{indent}objects  {} in {}, of {}; {} spilled, {} on disk",
        text(&store["objects"]),
        bytes("stored"),
        bytes("capacity"),
        text(&store["spilled_objects"]),
        bytes("disk")
    )?;
    match bytes("read_on_disk") {
        Size(0) => {}
        read => write!(out, ", {read} of them being read there")?,
    }
    let full = store["full"] == true;
    writeln!(out, "{}", if full { "; full: what may run elsewhere does" } else { "" })?;
    for job in rows(&status["jobs"]) {
        let (id, pid) = (text(&job["job"]), text(&job["pid"]));
        writeln!(out, "{indent}{id:<8} pid {pid}: {}", shown(&text(&job["entrypoint"])))?;
    }
    for one in rows(&status["waiting"]) {
        let reason = if one["reason"].is_null() { String::new() } else { text(&one["reason"]) };
        let (who, count, needs) = (text(&one["who"]), text(&one["count"]), text(&one["needs"]));
        let reason = shown(&reason);
        writeln!(out, "{indent}wanted   {who}: {count} more workers with ({needs}): {reason}")?;
    }
    Ok(())
}

pub(crate) fn why(args: &WhyArgs) -> Result<()> {
    let answer = Tool::find(args.target.session.as_deref())?.query("why", &args.id)?;
    let lines = rows(&answer);
    if lines.is_empty() {
        bail!("nobody here knows {}: it finished long ago, or was never here", shown(&args.id));
    }
    if args.target.json {
        return print_json(&answer);
    }
    let mut out = std::io::stdout().lock();
    for line in lines {
        writeln!(out, "{}", shown(&text(line)))?;
    }
    Ok(())
}

pub(crate) fn print_json(value: &Value) -> Result<()> {
    Ok(writeln!(std::io::stdout().lock(), "{value:#}")?)
}

pub(crate) fn rows(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_string(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
