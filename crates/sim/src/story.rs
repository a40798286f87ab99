//! What happened lately: printed when an invariant fails. To write it takes most of the time of a run, so it is written only when a seed
//! that failed runs again.

use std::collections::VecDeque;

use hoplo_base::Instant;

/// Lines that are kept, and of these printed.
const KEPT: usize = 200_000;
const PRINTED: usize = 120;

#[derive(Debug, Default)]
pub struct Story {
    is_written: bool,
    lines: VecDeque<(Instant, String)>,
}

impl Story {
    pub fn begin(&mut self) {
        self.is_written = true;
    }

    pub fn is_written(&self) -> bool {
        self.is_written
    }

    pub fn note(&mut self, now: Instant, line: String) {
        if self.lines.len() == KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back((now, line));
    }

    /// The latest lines that name one of `words`; all latest lines for none.
    pub fn about(&self, words: &[String]) -> String {
        let named = |line: &(Instant, String)| {
            words.is_empty() || words.iter().any(|word| names(&line.1, word))
        };
        let short = self.lines.iter().map(|(at, line)| (*at, shorten(line)));
        let mut lines: Vec<_> = short.filter(named).collect();
        let skip = lines.len().saturating_sub(PRINTED);
        lines.drain(..skip);
        lines.iter().map(|(at, line)| format!("{:>12.6}ms {line}\n", at.0 as f64 / 1e6)).collect()
    }
}

/// `obj:3-1` does not name `obj:3-1f`.
fn names(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let after = line[at + word.len()..].chars().next();
        !after.is_some_and(|next| next.is_ascii_hexdigit())
    })
}

/// Ids in the form that people read, where a message was printed with `Debug`.
pub fn shorten(line: &str) -> String {
    let mut line = line.to_string();
    while let Some(at) = line.find("ProcessId(") {
        let digits = &line[at + 10..];
        let len = digits.find(')').unwrap_or(digits.len());
        let Ok(process) = digits[..len].parse() else { break };
        let short = hoplo_base::ProcessId(process).to_string();
        line.replace_range(at..at + 10 + len + 1, &short);
    }
    let task = |line: &str| {
        let at = line.find("TaskId { owner: process:")?;
        let end = at + line[at..].find(" }")?;
        let (owner, seq) = line[at + 24..end].split_once(", seq: ")?;
        Some((at..end + 2, format!("task:{owner}-{:x}", seq.parse::<u64>().ok()?)))
    };
    while let Some((range, short)) = task(&line) {
        line.replace_range(range, &short);
    }
    let object = |line: &str| {
        let at = line.find("ObjectId { task: task:")?;
        let end = at + line[at..].find(" }")?;
        let (task, index) = line[at + 22..end].split_once(", index: ")?;
        Some((at..end + 2, format!("obj:{task}.{:x}", index.parse::<u32>().ok()?)))
    };
    while let Some((range, short)) = object(&line) {
        line.replace_range(range, &short);
    }
    line
}
