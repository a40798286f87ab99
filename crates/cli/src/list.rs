//! What there is and what there was, a row each: `hoplo list`, `hoplo get`, `hoplo summary`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, Write};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use hoplo_base::limits::{LOST_TASKS_MAX, TASKS_LISTED_MAX};
use hoplo_base::{Size, shown};
use serde_json::{Value, json};

use crate::show::{CLEAR, Target, WATCH_EVERY, print_json, rows, text};
use crate::table;
use crate::tool::{Tool, node_as_listed};

#[derive(Args)]
pub(crate) struct ListArgs {
    /// What to list
    what: What,
    /// Rows with this only, such as state=failed or name!=f; several: all of them must be met
    #[arg(long, value_name = "KEY=VALUE")]
    filter: Vec<Filter>,
    /// At most so many rows
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Also tasks and workers that have ended, the latest first
    #[arg(long)]
    ended: bool,
    /// Show all that is known of each, a line for each thing
    #[arg(long)]
    detail: bool,
    /// Show it again each second, until Ctrl-C
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(crate) struct GetArgs {
    /// What it is
    what: What,
    /// Its id, as lists and errors show it, or as hex() gives it
    id: String,
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(crate) struct SummaryArgs {
    /// What to count
    what: Summed,
    /// Show it again each second, until Ctrl-C
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    Tasks,
    Actors,
    Objects,
    Workers,
    Nodes,
    Jobs,
    PlacementGroups,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Summed {
    Tasks,
    Actors,
    Objects,
}

impl What {
    /// Head and key of each column.
    fn columns(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Tasks => &[
                ("id", "task"),
                ("name", "name"),
                ("state", "state"),
                ("ran", "ran_s"),
                ("owner", "owner_pid"),
                ("attempt", "attempt"),
                ("reason", "reason"),
            ],
            Self::Actors => &[
                ("id", "id"),
                ("class_name", "class_name"),
                ("name", "name"),
                ("state", "state"),
                ("pid", "pid"),
                ("restarts", "restarts"),
                ("reason", "reason"),
            ],
            Self::Objects => &[
                ("id", "id"),
                ("state", "state"),
                ("size", "size"),
                ("owner", "owner"),
                ("hex", "object_id"),
            ],
            Self::Workers => &[
                ("id", "id"),
                ("pid", "pid"),
                ("kind", "kind"),
                ("state", "state"),
                ("works for", "works_for"),
                ("memory", "memory"),
                ("title", "title"),
            ],
            Self::Nodes => &[
                ("id", "NodeID"),
                ("state", "State"),
                ("host", "NodeManagerHostname"),
                ("address", "NodeManagerAddress"),
                ("pid", "pid"),
                ("reason", "Reason"),
            ],
            Self::Jobs => &[
                ("id", "id"),
                ("state", "state"),
                ("pid", "pid"),
                ("namespace", "namespace"),
                ("entrypoint", "entrypoint"),
            ],
            Self::PlacementGroups => &[
                ("id", "id"),
                ("name", "name"),
                ("state", "state"),
                ("strategy", "strategy"),
                ("bundles", "needs"),
                ("job", "job"),
                ("reason", "reason"),
            ],
        }
    }

    /// What a filter may name besides.
    fn more_keys(self) -> &'static [&'static str] {
        match self {
            Self::Tasks => {
                &["task_id", "job_id", "actor_id", "parent_task_id", "worker_id", "node", "failure"]
            }
            Self::Actors => &["actor_id", "namespace", "job", "job_id", "detached", "node"],
            Self::Objects => &["node", "kept", "copies_wanted", "copies_had"],
            Self::Workers => &["worker_id", "job", "job_id", "node", "cause"],
            Self::Nodes => &["Alive", "Head"],
            Self::Jobs => &["job_id", "node"],
            Self::PlacementGroups => &["placement_group_id", "job_id", "namespace", "detached"],
        }
    }

    /// What it is found by.
    fn ids(self) -> &'static [&'static str] {
        match self {
            Self::Tasks => &["task", "task_id"],
            Self::Actors => &["id", "actor_id"],
            Self::Objects => &["id", "object_id"],
            Self::Workers => &["id", "worker_id", "pid"],
            Self::Nodes => &["NodeID"],
            Self::Jobs => &["id", "job_id"],
            Self::PlacementGroups => &["id", "placement_group_id"],
        }
    }
}

/// `KEY=VALUE` or `KEY!=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Filter {
    key: String,
    equal: bool,
    value: String,
}

impl std::str::FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text
            .split_once('=')
            .ok_or("a filter is KEY=VALUE or KEY!=VALUE, such as state=failed")?;
        let (key, equal) = match key.strip_suffix('!') {
            Some(key) => (key, false),
            None => (key, true),
        };
        Ok(Self { key: key.trim().to_string(), equal, value: value.trim().to_lowercase() })
    }
}

impl Filter {
    /// The key in rows; an error that names those that there are.
    fn key(&self, what: What) -> Result<&'static str> {
        let wanted = self.key.as_str();
        let heads = what.columns().iter();
        let of_head = heads.clone().find(|(head, key)| *key == wanted || *head == wanted);
        let more = what.more_keys().iter().find(|key| **key == wanted);
        match of_head.map(|(_, key)| key).or(more) {
            Some(key) => Ok(key),
            None => {
                let all = heads.map(|(head, _)| head).chain(what.more_keys());
                let all: Vec<&str> = all.copied().collect();
                bail!("there is no {wanted:?} to filter by: there are {}", all.join(", "));
            }
        }
    }
}

impl ListArgs {
    /// Nothing need be read of what dead nodes left; `keys`: of the filters.
    fn wants_no_dead_actors(&self, keys: &[&str]) -> bool {
        let no_dead = |(filter, key): (&Filter, &&str)| {
            *key == "state" && (filter.value == "dead") != filter.equal
        };
        self.what == What::Actors && self.filter.iter().zip(keys).any(no_dead)
    }
}

pub(crate) fn list(args: &ListArgs) -> Result<()> {
    let keys = args.filter.iter().map(|filter| filter.key(args.what));
    let keys: Vec<&str> = keys.collect::<Result<_>>()?;
    let mut tool = Tool::find(args.target.session.as_deref())?;
    repeated(args.watch, |again| {
        let found = match args.wants_no_dead_actors(&keys) {
            true => Found::living_actors(&mut tool)?,
            false => Found::ask(&mut tool, args.what, args.ended)?,
        };
        let Found { mut rows, more } = found;
        rows.retain(|row| {
            let met = |(filter, key): (&Filter, &&str)| {
                (text(&row[*key]).to_lowercase() == filter.value) == filter.equal
            };
            args.filter.iter().zip(&keys).all(met)
        });
        let all = rows.len();
        rows.truncate(args.limit.map_or(usize::MAX, |limit| limit as usize));
        if again {
            std::io::stdout().write_all(CLEAR)?;
        }
        if args.target.json {
            return print_json(&match args.what {
                What::Tasks => json!({ "tasks": rows, "more": more }),
                _ => Value::Array(rows),
            });
        }
        if args.detail {
            print_all(&rows)?;
        } else {
            let nodes = tool.query("nodes", "")?;
            print_table(args.what, &rows, several(&nodes))?;
        }
        if rows.len() < all {
            println!("and {} more: --limit shows {}", all - rows.len(), rows.len());
        }
        if more > 0 {
            println!(
                "and {more} more: of each process the first {TASKS_LISTED_MAX} tasks are listed, and \
                 {LOST_TASKS_MAX} lost ones; hoplo status counts those that are not lost"
            );
        }
        Ok(())
    })
}

pub(crate) fn get(args: &GetArgs) -> Result<()> {
    let mut tool = Tool::find(args.target.session.as_deref())?;
    let Found { mut rows, more: _ } = Found::ask(&mut tool, args.what, true)?;
    let id = match args.what {
        What::Nodes => node_as_listed(&args.id),
        _ => args.id.clone(),
    };
    rows.retain(|row| args.what.ids().iter().any(|key| text(&row[*key]) == id));
    if rows.is_empty() {
        bail!(
            "nobody here knows {}: it ended long ago, or was never here; `hoplo list` shows what there is",
            shown(&args.id)
        );
    }
    if args.target.json {
        return print_json(&Value::Array(rows));
    }
    print_all(&rows)
}

pub(crate) fn summary(args: &SummaryArgs) -> Result<()> {
    let mut tool = Tool::find(args.target.session.as_deref())?;
    let (what, by) = match args.what {
        Summed::Tasks => (What::Tasks, "name"),
        Summed::Actors => (What::Actors, "class_name"),
        Summed::Objects => (What::Objects, "state"),
    };
    repeated(args.watch, |again| {
        let Found { rows, more } = Found::ask(&mut tool, what, true)?;
        let mut counts: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        let mut bytes: BTreeMap<String, u64> = BTreeMap::new();
        for row in &rows {
            let name = text(&row[by]);
            *bytes.entry(name.clone()).or_default() += row["size"].as_u64().unwrap_or_default();
            *counts.entry(name).or_default().entry(text(&row["state"])).or_default() += 1;
        }
        if again {
            std::io::stdout().write_all(CLEAR)?;
        }
        if args.target.json {
            return print_json(&match args.what {
                Summed::Tasks | Summed::Actors => json!(counts),
                Summed::Objects => json!({ "counts": counts, "bytes": bytes }),
            });
        }
        let line = |(name, states): (&String, &BTreeMap<String, u64>)| {
            let counts = states.iter().map(|(state, count)| format!("{count} {state}"));
            let last = match args.what {
                Summed::Tasks | Summed::Actors => counts.collect::<Vec<_>>().join(", "),
                Summed::Objects => Size(bytes[name]).to_string(),
            };
            vec![name.clone(), states.values().sum::<u64>().to_string(), last]
        };
        let lines: Vec<Vec<String>> = counts.iter().map(line).collect();
        let last = if args.what == Summed::Objects { "size" } else { "states" };
        table::print(&[by, "count", last], &lines)?;
        if more > 0 {
            println!("and {more} more unfinished tasks, whose names are not told");
        }
        Ok(())
    })
}

/// Rows, and how many more there are.
struct Found {
    rows: Vec<Value>,
    more: u64,
}

impl Found {
    /// And those that died at nodes that live.
    fn living_actors(tool: &mut Tool) -> Result<Self> {
        Ok(Self { rows: rows(&tool.query("actors", "0")?).to_vec(), more: 0 })
    }

    fn ask(tool: &mut Tool, what: What, ended: bool) -> Result<Self> {
        let (kind, past) = match what {
            What::Tasks => return Self::tasks(tool, ended),
            What::Actors => ("actors", None),
            What::Objects => ("objects", None),
            What::Workers => ("workers", Some("past_processes")),
            What::Nodes => ("nodes", None),
            What::Jobs => ("jobs", None),
            What::PlacementGroups => ("placement_groups", None),
        };
        let mut found = rows(&tool.query(kind, "")?).to_vec();
        if what == What::Objects {
            // Nobody made these: an actor's handle is counted like an object.
            found.retain(|row| row["state"] != "handle");
        }
        if what == What::Jobs {
            // Several nodes may tell of one job: who heard of its end knows more.
            found.sort_by_key(|row| (text(&row["id"]), row["ended_us"].is_null()));
            found.dedup_by_key(|row| text(&row["id"]));
        }
        if let Some(past) = past.filter(|_| ended) {
            found.extend(rows(&tool.query(past, "")?).iter().rev().cloned());
        }
        Ok(Self { rows: found, more: 0 })
    }

    fn tasks(tool: &mut Tool, ended: bool) -> Result<Self> {
        let answer = tool.query("tasks", "")?;
        let more = answer["more"].as_u64().unwrap_or_default();
        let begun =
            rows(&answer["begun"]).iter().map(|call| (text(&call["task_id"]), &call["ran_s"]));
        let begun: BTreeMap<String, &Value> = begun.collect();
        let mut found = rows(&answer["tasks"]).to_vec();
        for row in &mut found {
            let ran = begun.get(&text(&row["task_id"])).map_or(Value::Null, |ran| (*ran).clone());
            row["ran_s"] = ran;
        }
        if !ended {
            return Ok(Self { rows: found, more });
        }
        let history = tool.query("history", &usize::MAX.to_string())?;
        let mut past = rows(&history["runs"]).to_vec();
        past.sort_by_key(|row| std::cmp::Reverse(row["ended_us"].as_u64()));
        for row in &mut past {
            let is_failed = !row["failure"].is_null();
            row["state"] = json!(if is_failed { "failed" } else { "finished" });
            let began = !row["started_ns"].is_null();
            row["ran_s"] = match row["ran_ns"].as_f64().filter(|_| began) {
                Some(ns) => json!(ns / 1e9),
                None => Value::Null,
            };
        }
        // One may have ended between both questions.
        let run = |row: &Value| (text(&row["task_id"]), row["attempt"].as_u64());
        let known: BTreeSet<_> = past.iter().map(run).collect();
        found.retain(|row| !known.contains(&run(row)));
        found.extend(past);
        Ok(Self { rows: found, more })
    }
}

/// Of a node by itself there is nothing to say.
fn several(nodes: &Value) -> bool {
    rows(nodes).iter().filter(|node| node["Alive"] == true).count() > 1
}

fn print_table(what: What, found: &[Value], several: bool) -> Result<()> {
    let mut columns = what.columns().to_vec();
    if several && !matches!(what, What::Nodes | What::PlacementGroups) {
        columns.insert(1, ("node", "node"));
    }
    let heads: Vec<&str> = columns.iter().map(|(head, _)| *head).collect();
    let row = |row: &Value| columns.iter().map(|(_, key)| cell(row, key)).collect();
    let cells: Vec<Vec<String>> = found.iter().map(row).collect();
    Ok(table::print(&heads, &cells)?)
}

fn cell(row: &Value, key: &str) -> String {
    match (key, row[key].as_f64()) {
        ("size" | "memory", Some(bytes)) => Size(bytes as u64).to_string(),
        ("ran_s", Some(seconds)) => time(seconds),
        _ => text(&row[key]),
    }
}

/// `3.2 s`, `15 ms`, `40 us`.
fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.1} s"),
        s if s >= 0.001 => format!("{:.0} ms", s * 1e3),
        s => format!("{:.0} us", s * 1e6),
    }
}

/// All that is known of each.
fn print_all(found: &[Value]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for (at, row) in found.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        let fields = row.as_object().into_iter().flatten();
        let fields: Vec<_> = fields.filter(|(_, value)| !value.is_null()).collect();
        let width = fields.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
        for (key, value) in fields {
            writeln!(out, "{key:<width$}  {}", shown(&text(value)))?;
        }
    }
    Ok(())
}

/// Once, or again and again; `again`: what a terminal shows is to go first.
fn repeated(watch: bool, mut show: impl FnMut(bool) -> Result<()>) -> Result<()> {
    loop {
        show(watch && std::io::stdout().is_terminal())?;
        std::io::stdout().flush()?;
        if !watch {
            return Ok(());
        }
        std::thread::sleep(WATCH_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_a_key_and_a_value_and_its_key_is_one_that_there_is() {
        let filter: Filter = "state!=Failed".parse().unwrap();
        let of = Filter { key: "state".to_string(), equal: false, value: "failed".to_string() };
        assert_eq!(filter, of);
        assert_eq!(
            "works for=x".parse::<Filter>().unwrap().key(What::Workers).unwrap(),
            "works_for"
        );
        assert_eq!("job_id=x".parse::<Filter>().unwrap().key(What::Tasks).unwrap(), "job_id");
        let none = "stat=x".parse::<Filter>().unwrap().key(What::Tasks).unwrap_err();
        assert!(none.to_string().contains("there are id, name, state"), "{none}");
        assert!("state".parse::<Filter>().is_err());
    }

    #[test]
    fn times_are_as_people_read_them() {
        assert_eq!([3.21, 0.0154, 0.00004].map(time), ["3.2 s", "15 ms", "40 us"]);
    }
}
