//! Runs this program under callgrind and reads what it counted.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

/// The flag of the run that is counted.
pub const COUNTED: &str = "--counted";

/// Instructions of one call, by stage.
pub type Counts = BTreeMap<String, u64>;

pub fn is_here() -> bool {
    let found = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// Counts each function whose name begins with `counted_`, per one of `rounds` rounds.
pub fn count(rounds: u64) -> Counts {
    let out = std::env::temp_dir().join(format!("hoplo-instructions-{}", std::process::id()));
    let ran = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet", "--toggle-collect=*counted_rounds*"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().unwrap())
        .arg(COUNTED)
        .output()
        .expect("valgrind has told its version a moment ago");
    let profile = std::fs::read_to_string(&out);
    // It is in the directory for temporary files.
    let _ = std::fs::remove_file(&out);
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "the counted run failed: {}\n{said}", ran.status);
    let counts = read(&profile.unwrap(), rounds);
    assert!(!counts.is_empty(), "callgrind has seen none of the counted functions\n{said}");
    counts
}

/// Of a profile in callgrind's format: what each call of a counted function took, with what it called.
///
/// ```text
/// cfn=(12) instructions::stages::counted_put     a name is given once, then its number will do
/// calls=1000 0
/// 0 61000                                        where, and how many instructions
/// ```
fn read(profile: &str, rounds: u64) -> Counts {
    let mut names = BTreeMap::new();
    let mut totals = Counts::new();
    let mut lines = profile.lines();
    let mut callee = None;
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn=")) {
            let (number, name) = name.split_once(' ').unwrap_or((name, ""));
            if !name.is_empty() {
                names.insert(number, stage(name));
            }
            callee = line.starts_with("cfn=").then(|| names[number]).flatten();
        } else if line.starts_with("calls=") {
            let cost = lines.next().and_then(|cost| cost.split(' ').nth(1));
            let cost: u64 = cost.and_then(|cost| cost.parse().ok()).expect("a call has its cost");
            if let Some(stage) = callee {
                *totals.entry(stage.replace('_', " ")).or_default() += cost;
            }
        }
    }
    totals.values_mut().for_each(|total| *total /= rounds);
    totals
}

/// `put_small` of `instructions::stages::counted_put_small` and whatever the compiler adds.
fn stage(name: &str) -> Option<&str> {
    let (_, name) = name.split_once("counted_")?;
    let end = name.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(name.len());
    (&name[..end] != "rounds").then_some(&name[..end])
}
