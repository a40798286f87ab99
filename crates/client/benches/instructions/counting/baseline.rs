//! What the stages took when somebody last looked, in `baseline.txt`.

use std::collections::BTreeSet;
use std::process::{Command, ExitCode};

use super::callgrind::Counts;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions/baseline.txt");
const RECORD: &str = "make record-instructions";

pub fn record(counts: &Counts) -> ExitCode {
    let mut text = format!(
        "# Instructions of each stage, written by `{RECORD}`.\n# {}, {}\n",
        compiler(),
        std::env::consts::ARCH
    );
    for (stage, count) in counts {
        text += &format!("{stage}: {count}\n");
        println!("{stage}: {count}");
    }
    std::fs::write(FILE, text).unwrap();
    ExitCode::SUCCESS
}

/// Fails if a stage takes over a tenth more than it did, or is only on one of the two lists.
pub fn compare(counts: &Counts) -> ExitCode {
    let text = std::fs::read_to_string(FILE).unwrap_or_default();
    let made_with = text.lines().nth(1).unwrap_or_default().trim_start_matches("# ");
    if !made_with.ends_with(std::env::consts::ARCH) {
        println!("instruction counts are not checked: the baseline is of another processor");
        return ExitCode::SUCCESS;
    }
    let before: Counts = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(": "))
        .filter_map(|(stage, count)| Some((stage.to_string(), count.parse().ok()?)))
        .collect();
    let mut fine = true;
    let stages: BTreeSet<&String> = before.keys().chain(counts.keys()).collect();
    for stage in stages {
        let (Some(was), Some(now)) = (before.get(stage), counts.get(stage)) else {
            let where_not = if before.contains_key(stage) { "program" } else { "baseline" };
            println!("{stage:24} is not in the {where_not}: record it");
            fine = false;
            continue;
        };
        let ratio = *now as f64 / *was as f64;
        let verdict = match ratio {
            _ if ratio > 1.1 => "TOO MANY",
            _ if ratio < 0.9 => "fewer: record it",
            _ => "",
        };
        fine &= ratio <= 1.1;
        println!("{stage:24} before {was:6}  now {now:6}  ratio {ratio:.3}  {verdict}");
    }
    if fine {
        return ExitCode::SUCCESS;
    }
    println!(
        "a hot path takes over a tenth more instructions than it did, or is not compared (baseline: \
         {made_with}; here: {}). If that is what it is worth, record it: {RECORD}",
        compiler()
    );
    ExitCode::FAILURE
}

fn compiler() -> String {
    let version = Command::new("rustc").arg("--version").output().map(|output| output.stdout);
    let version = version.unwrap_or_default();
    String::from_utf8_lossy(&version).split(" (").next().unwrap_or_default().trim().to_string()
}
