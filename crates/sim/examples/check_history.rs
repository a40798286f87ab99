//! Judges what clients of a real cluster wrote down (`hoplo control history`) as the simulation judges its own clients:
//! is each key's history linearizable? Prints how many operations were judged; fails with the story of the first key
//! that has no order.

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;

use hoplo_sim::control::linear::{History, Operation, What};
use hoplo_wire::control::{Key, Outcome, Table};
use serde::Deserialize;

#[derive(Deserialize)]
struct Line {
    op: String,
    key: String,
    value: Option<String>,
    expected: Option<u64>,
    called: u64,
    ended: Option<u64>,
    outcome: Option<Seen>,
    #[serde(default)]
    found: Option<(String, u64)>,
    /// It failed, and will never have an effect.
    #[serde(default)]
    never: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Seen {
    Done(u64),
    Conflict(u64),
}

fn main() -> ExitCode {
    let mut history = History::default();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for path in std::env::args().skip(1) {
        let text = fs::read_to_string(&path).expect("a history that can be read");
        for (number, line) in text.lines().enumerate() {
            let line: Line = serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("{path}:{}: {error}", number + 1));
            *counts.entry(kind(&line)).or_default() += 1;
            if let Some((key, operation)) = operation(line) {
                history.add(key, operation);
            }
        }
    }
    println!("{}", serde_json::to_string(&counts).expect("plain data"));
    match history.check() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(keys) => {
            eprintln!("{keys} keys have more orders of their operations than could be tried");
            ExitCode::FAILURE
        }
        Err(story) => {
            eprintln!("{story}");
            ExitCode::FAILURE
        }
    }
}

fn kind(line: &Line) -> &'static str {
    match (line.ended, line.never) {
        (Some(_), _) => "ended",
        (None, true) => "refused",
        (None, false) => "unknown",
    }
}

/// Absent if it says nothing: it never had an effect, or read nothing.
fn operation(line: Line) -> Option<(Key, Operation)> {
    let outcome = line.outcome.map(|seen| match seen {
        Seen::Done(version) => Outcome::Done { version },
        Seen::Conflict(found) => Outcome::Conflict { found },
    });
    let value = || line.value.clone().expect("a put has a value").into_bytes();
    let what = match line.op.as_str() {
        "get" if line.ended.is_none() => return None,
        "get" => {
            What::Get { found: line.found.map(|(value, version)| (value.into_bytes(), version)) }
        }
        _ if line.ended.is_none() && line.never => return None,
        "put" => What::Put { value: value(), expected: line.expected, outcome },
        "delete" => What::Delete { expected: line.expected, outcome },
        other => panic!("what is {other}?"),
    };
    let key = Key { table: Table::Kv, bytes: line.key.into_bytes() };
    Some((key, Operation { called: line.called, ended: line.ended, what }))
}
