//! Rounds: who was asked, who is awaited, and what has come.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::limits::{
    INSPECT_PATIENCE, INSPECT_PATIENCE_FAR, QUERIES_OF_NODE_MAX, QUERIES_OF_ONE_MAX,
    QUERIES_OPEN_MAX,
};
use hoplo_base::{Instant, NodeNumber, ProcessId};

use super::inquiry::Inquiry;
use super::subject::{Everywhere, Here, Report};
use crate::node::past::{PastRows, Reading};
use crate::why::{Link, Question, Told};

/// Whose question it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asker {
    /// A tool or program of this node: all nodes are asked.
    Process(ProcessId),
    /// Another node, which asks each for itself.
    Node(NodeNumber),
}

impl Asker {
    fn questions_max(self) -> usize {
        match self {
            Self::Process(_) => QUERIES_OF_ONE_MAX,
            Self::Node(_) => QUERIES_OF_NODE_MAX,
        }
    }

    /// How long its question waits for whom it is passed on to.
    pub(super) fn patience(self) -> std::time::Duration {
        match self {
            Self::Process(_) => INSPECT_PATIENCE,
            Self::Node(_) => INSPECT_PATIENCE_FAR,
        }
    }
}

#[derive(Debug, Default)]
pub(in crate::node) struct Queries {
    /// Number of the latest round.
    pub(super) last: u64,
    pub(super) open: BTreeMap<u64, Round>,
    /// What was told, of all open questions.
    pub(super) bytes: usize,
}

/// A round that waits for somebody.
#[derive(Debug)]
pub struct OpenRound<'a> {
    pub number: u64,
    pub asker: Asker,
    pub request: u64,
    pub waiting: &'a BTreeSet<ProcessId>,
    pub nodes: &'a BTreeSet<NodeNumber>,
}

/// A round of one question.
#[derive(Debug)]
pub(super) struct Round {
    pub asker: Asker,
    /// The asker's number for it.
    pub request: u64,
    pub topic: Topic,
    /// Processes of this node that are awaited, and other nodes.
    pub waiting: BTreeSet<ProcessId>,
    pub nodes: BTreeSet<NodeNumber>,
    pub until: Instant,
    /// What the control store has of dead nodes, as long as more of it is awaited.
    pub reading: Option<Reading>,
    pub heard: Heard,
}

/// What has come besides what the topic keeps, and in earlier rounds.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub others: Others,
    /// Of answers of which there is more.
    pub begun: BTreeMap<NodeNumber, String>,
    /// Its share of `Queries::bytes`.
    pub bytes: usize,
}

/// What other nodes told: nothing where a node is alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Others {
    /// Each for itself, as JSON.
    pub told: Vec<(NodeNumber, String)>,
    /// Which nodes are missing, and why: a sentence each.
    pub missing: Vec<String>,
    /// Of a question about what has run, or about actors: what dead nodes left.
    pub past: PastRows,
}

#[derive(Debug)]
pub(super) enum Topic {
    /// Of this node its tables as they are in the end: only others are awaited.
    Here(Here),
    Everywhere {
        subject: Everywhere,
        told: Vec<(ProcessId, String)>,
    },
    Why {
        inquiry: Box<Inquiry>,
        told: Vec<Told>,
    },
    /// The chain is told: other nodes are asked what they remember of the thing (`remembered`).
    Memory {
        inquiry: Box<Inquiry>,
        report: Report,
    },
    /// Another node's round of `why`, here.
    Part {
        question: Question,
        /// Who is not asked.
        late: BTreeSet<ProcessId>,
        named: Vec<ProcessId>,
        told: Vec<Told>,
    },
}

/// What a process told in one round.
pub(in crate::node) enum Word {
    /// To `Inspect`.
    Json(String),
    /// To `Explain`.
    Why(Told),
}

impl Word {
    /// What it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Json(json) => json.len(),
            Self::Why(told) => bytes_of(told),
        }
    }
}

pub(super) fn bytes_of(told: &Told) -> usize {
    match told {
        Told::Things(things) => size_of_val(things.as_slice()),
        Told::Links(links) => {
            let of_link = |link: &Link| link.says.bytes() + size_of_val(link.waits_for.as_slice());
            size_of_val(links.as_slice()) + links.iter().map(of_link).sum::<usize>()
        }
    }
}

impl Heard {
    /// What the control store has of dead nodes; `late`: why there may be more.
    pub(super) fn read(&mut self, reading: Reading, late: Option<String>) {
        self.others.past = reading.found;
        if let Some(why) = reading.refused.or(late) {
            self.others.missing.push(format!("the control store, for nodes that are dead: {why}"));
        }
    }
}

impl Queries {
    /// Why this asker has to wait, if it has to.
    pub(super) fn refusal(&self, asker: Asker) -> Option<String> {
        let max = asker.questions_max();
        if self.of(asker).count() >= max {
            let who = match asker {
                Asker::Process(_) => "process",
                Asker::Node(_) => "node",
            };
            return Some(format!(
                "{max} questions of this {who} to the node are being answered: wait for one of the \
                 answers, then ask again"
            ));
        }
        (self.open.len() >= QUERIES_OPEN_MAX).then(|| {
            format!(
                "{QUERIES_OPEN_MAX} questions to the node are being answered: ask again in a second"
            )
        })
    }

    pub(super) fn of(&self, asker: Asker) -> impl Iterator<Item = &Round> {
        self.open.values().filter(move |round| round.asker == asker)
    }

    /// QUERY-5: of the asker whose questions take the most.
    pub(super) fn largest(&self) -> u64 {
        let mut of_askers: BTreeMap<Asker, usize> = BTreeMap::new();
        for round in self.open.values() {
            *of_askers.entry(round.asker).or_default() += round.heard.bytes;
        }
        let size = |round: &Round| (of_askers[&round.asker], round.asker, round.heard.bytes);
        let largest = self.open.iter().max_by_key(|(_, round)| size(round));
        *largest.expect("what is told belongs to a question").0
    }

    pub(super) fn check(&self) {
        assert!(self.open.len() <= QUERIES_OPEN_MAX, "QUERY-4");
        for round in self.open.values() {
            let of_asker = self.of(round.asker).count();
            assert!(of_asker <= round.asker.questions_max(), "QUERY-5: {round:?}");
        }
    }

    pub(in crate::node) fn reading(&mut self, number: u64) -> Option<&mut Reading> {
        self.open.get_mut(&number)?.reading.as_mut()
    }

    /// So much more was told in this round.
    pub(in crate::node) fn count(&mut self, number: u64, bytes: usize) {
        let Some(round) = self.open.get_mut(&number) else { return };
        round.heard.bytes += bytes;
        self.bytes += bytes;
    }
}

impl Round {
    pub(super) fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.nodes.is_empty() && self.reading.is_none()
    }
}
