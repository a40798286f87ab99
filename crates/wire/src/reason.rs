//! Why something is as it is, said in parts: a process in it stays an id until a person reads it.
//!
//! Whoever makes a reason knows processes by their ids. What tells them apart for people, a kind and a pid, the node knows.
//! So a reason is made of parts, and travels as parts, until it leaves for people: there the node puts it into words,
//! once (`Node::in_words` in the core). No words are searched for ids: a user may have named an actor `process:1`.

use std::fmt;

use hoplo_base::ProcessId;
use serde::{Deserialize, Serialize};

/// A phrase or a sentence. Made of what follows each other: `Reason::from("tasks of ").and(process).and(" (2)")`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Reason {
    /// Of those that were made here no text is empty, and none follows another: equal words are equal reasons.
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Part {
    Text(String),
    Process(ProcessId),
}

impl Reason {
    /// This, and right behind it `more`.
    pub fn and(mut self, more: impl Into<Reason>) -> Self {
        for part in more.into().parts {
            match (self.parts.last_mut(), part) {
                (Some(Part::Text(before)), Part::Text(text)) => before.push_str(&text),
                (_, part) => self.parts.push(part),
            }
        }
        self
    }

    /// All of them in one, with `between` between each two.
    pub fn joined(reasons: impl IntoIterator<Item = Reason>, between: &str) -> Self {
        let together = |all: Reason, next: Reason| all.and(between).and(next);
        reasons.into_iter().reduce(together).unwrap_or_default()
    }

    /// For people, with each process called what `name` says.
    pub fn in_words(&self, name: impl Fn(ProcessId) -> String) -> String {
        let word = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Process(process) => name(*process),
        };
        self.parts.iter().map(word).collect()
    }

    /// Those that it names.
    pub fn processes(&self) -> impl Iterator<Item = ProcessId> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Process(process) => Some(*process),
        })
    }

    /// What it takes in memory.
    pub fn bytes(&self) -> usize {
        let of_part = |part: &Part| match part {
            Part::Text(text) => text.len(),
            Part::Process(_) => 0,
        };
        size_of_val(self.parts.as_slice()) + self.parts.iter().map(of_part).sum::<usize>()
    }
}

impl From<&str> for Reason {
    fn from(text: &str) -> Self {
        text.to_string().into()
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        let parts = if text.is_empty() { Vec::new() } else { vec![Part::Text(text)] };
        Self { parts }
    }
}

impl From<ProcessId> for Reason {
    fn from(process: ProcessId) -> Self {
        Self { parts: vec![Part::Process(process)] }
    }
}

/// As it can be said where nobody knows more of the processes in it.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(text),
            Part::Process(process) => process.fmt(f),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoplo_base::NodeNumber;

    #[test]
    fn a_process_gets_its_name_and_a_text_that_looks_like_one_does_not() {
        let process = ProcessId::new(NodeNumber::alone(1), 1, 1);
        let holds = Reason::from(process).and(" holds ").and("process:1");
        assert_eq!(holds.to_string(), "process:1 holds process:1");
        assert_eq!(holds.in_words(|id| format!("<{id}>")), "<process:1> holds process:1");
        assert_ne!(holds, Reason::from("process:1 holds process:1"));
    }

    #[test]
    fn equal_words_are_equal_reasons_however_they_were_put_together() {
        let whole = Reason::from("one, two");
        assert_eq!(Reason::from("").and("one").and("").and(", two".to_string()), whole);
        assert_eq!(Reason::joined(["one".into(), "two".into()], ", "), whole);
        assert_eq!(Reason::joined([], ", "), Reason::default());
    }
}
