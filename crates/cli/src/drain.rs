//! `hoplo drain`: a node leaves its cluster in order.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use hoplo_base::limits::{DRAIN_SHOWN, DRAIN_WITHIN};
use hoplo_base::shown;
use hoplo_core::node::DRAINED;
use serde_json::Value;

use crate::tool::{Tool, node_as_listed};

#[derive(Args)]
pub(crate) struct DrainArgs {
    /// The node: its id as `hoplo status` shows it, or the name of its host
    node: String,
    /// It has so many seconds; then it leaves, whatever runs there [default: 600]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    deadline: Option<Duration>,
    /// Do not wait until it has left
    #[arg(long)]
    no_wait: bool,
    /// Ask the head with this session folder [default: the one that runs here]
    #[arg(long, value_name = "DIR")]
    session: Option<PathBuf>,
}

/// More than any program runs, and no overflow.
const SECONDS_MAX: f64 = 366.0 * 86400.0;

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    match (0.0..=SECONDS_MAX).contains(&number) {
        true => Ok(Duration::from_secs_f64(number)),
        false => Err("give seconds from 0 to those of a year".to_string()),
    }
}

pub(crate) fn drain(args: &DrainArgs) -> Result<()> {
    let mut tool = Tool::find(args.session.as_deref())?;
    let within = args.deadline.unwrap_or(DRAIN_WITHIN);
    // As it is found now: by its host it is found no more when it has left.
    let named = node_as_listed(&args.node);
    let id = tool.query("nodes", "").map(|nodes| id_of(&nodes, &named))?;
    tool.query("drain", &format!("{named} {}", within.as_millis()))?;
    let id = id.unwrap_or(named);
    println!("{} is being drained; it has {} s", shown(&id), within.as_secs());
    if args.no_wait {
        return Ok(());
    }
    let began = Instant::now();
    // The members' verdict comes even if it does not leave by itself.
    let until = began + within + DRAIN_SHOWN;
    while Instant::now() < until {
        let nodes = tool.query("nodes", "")?;
        match row_of(&nodes, &id) {
            Some(row) if row["Alive"] == true => {}
            row => {
                let why = row.and_then(|row| row["Reason"].as_str()).unwrap_or("it is gone");
                let took = began.elapsed().as_secs_f64();
                if !was_drained(why) {
                    bail!(
                        "{} died after {took:.1} s and did not leave in order: {}. What only it had is lost, or made again",
                        shown(&id),
                        shown(why)
                    );
                }
                println!("{} left after {took:.1} s: {}", shown(&id), shown(why));
                return Ok(());
            }
        }
        sleep(Duration::from_millis(100));
    }
    bail!("{id} did not leave in time: see daemon.log in its session folder")
}

/// As its row says.
fn was_drained(why: &str) -> bool {
    why.starts_with(DRAINED)
}

fn row_of<'a>(nodes: &'a Value, id: &str) -> Option<&'a Value> {
    nodes.as_array()?.iter().find(|row| row["NodeID"] == *id)
}

/// Of a node that lives; absent if it is not the only one of its host.
fn id_of(nodes: &Value, named: &str) -> Option<String> {
    let is_it = |row: &&Value| row["NodeID"] == *named || row["NodeManagerHostname"] == *named;
    let lives = |row: &&Value| row["Alive"] == true && row["Head"] != true;
    let rows: Vec<&Value> = nodes.as_array()?.iter().filter(is_it).filter(lives).collect();
    match rows[..] {
        [row] => row["NodeID"].as_str().map(str::to_string),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_found_by_its_id_or_a_host_that_it_has_for_itself() {
        let row = |id: &str, host: &str, alive: bool| serde_json::json!({ "NodeID": id, "NodeManagerHostname": host, "Alive": alive, "Head": false });
        let nodes = Value::Array(vec![
            row("00000a", "one", true),
            row("00000b", "two", true),
            row("00000c", "two", true),
            row("00000d", "one", false),
        ]);
        assert_eq!(id_of(&nodes, "one").as_deref(), Some("00000a"));
        assert_eq!(id_of(&nodes, "00000b").as_deref(), Some("00000b"));
        for none in ["two", "00000d", "three", ""] {
            assert_eq!(id_of(&nodes, none), None, "{none}");
        }
        assert!(was_drained("it was drained, and its time was over before b had all"));
        assert!(!was_drained("it was silent for 700 ms") && !was_drained("it is gone"));
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        for bad in ["", "-1", "nan", "inf", "1e99", "x"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
