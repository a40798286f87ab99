//! Questions of people and programs: who is asked, who is awaited, and when the answer goes.
//!
//! ```text
//!   Query --the daemon knows it alone---------------------------------------> Report
//!     \--every process knows a part--> Inspect --all told, left, or late----> Report
//!     \--why an id waits--> Explain, round after round (see `inquiry`)------> Report
//!
//!   the asker leaves: its question is dropped, however far it got
//! ```
//! What only processes know is gathered with `Inspect` or `Explain`, and answered with what came within
//! `INSPECT_PATIENCE`: a stuck process cannot hang the answer. All rounds of one question end within `WHY_PATIENCE`.
//! Each round has a number of its own, which the processes' answers carry: what comes after its round says nothing.
//! The shell writes a `Report` as JSON, with what only it knows (the control store, its story, what the kernel says of a
//! pid).
//!
//! # Invariants
//! - QUERY-1: a question is answered once, or its asker's connection has closed.
//! - QUERY-2: an open round waits for somebody, and only for those whose connection is open: whoever has closed it says
//!   nothing any more, though it may live on for a while.
//! - QUERY-3: an open round has its timer, and no timer outlives its round.
//! - QUERY-4: at most `QUERIES_OPEN_MAX` questions are open, and what processes told of all of them takes at most
//!   `QUERIES_BYTES_MAX`. What is more is refused, so that no answer lacks something in silence.
//! - QUERY-5: at most `QUERIES_OF_ONE_MAX` of them are of one asker, who is refused beyond that. When what processes told is
//!   too much, whoever's questions take the most loses the largest of them. So no asker shuts out others.

mod inquiry;
mod subject;

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::limits::{
    INSPECT_PATIENCE, QUERIES_BYTES_MAX, QUERIES_OF_ONE_MAX, QUERIES_OPEN_MAX,
};
use hoplo_base::{Instant, ProcessId, Size};
use hoplo_wire::node::ToClient;

use super::queue::Work;
use super::{Effect, Kind, Node, Process, Timer};
use crate::why::{Link, Told};
use inquiry::Inquiry;
use subject::Subject;

pub use subject::{Everywhere, Here, Report};

#[derive(Debug, Default)]
pub(super) struct Queries {
    /// Number of the latest round.
    last: u64,
    open: BTreeMap<u64, Round>,
    /// What processes told, of all open questions.
    bytes: usize,
}

/// A round that waits for somebody.
#[derive(Debug)]
pub struct OpenRound<'a> {
    pub number: u64,
    pub asker: ProcessId,
    pub request: u64,
    pub waiting: &'a BTreeSet<ProcessId>,
}

/// A round of one question.
#[derive(Debug)]
struct Round {
    asker: ProcessId,
    /// The asker's number for it.
    request: u64,
    topic: Topic,
    waiting: BTreeSet<ProcessId>,
    until: Instant,
    /// Its share of `Queries::bytes`, with that of earlier rounds.
    bytes: usize,
}

#[derive(Debug)]
enum Topic {
    Everywhere { subject: Everywhere, told: Vec<(ProcessId, String)> },
    Why { inquiry: Inquiry, told: Vec<Told> },
}

/// What a process told in one round.
pub(super) enum Word {
    /// To `Inspect`.
    Json(String),
    /// To `Explain`.
    Why(Told),
}

impl Word {
    /// What it takes in memory.
    fn bytes(&self) -> usize {
        match self {
            Self::Json(json) => json.len(),
            Self::Why(Told::Things(things)) => size_of_val(things.as_slice()),
            Self::Why(Told::Links(links)) => {
                let of_link =
                    |link: &Link| link.says.bytes() + size_of_val(link.waits_for.as_slice());
                size_of_val(links.as_slice()) + links.iter().map(of_link).sum::<usize>()
            }
        }
    }
}

impl Queries {
    /// Why this asker has to wait, if it has to.
    fn refusal(&self, asker: ProcessId) -> Option<String> {
        if self.of(asker).count() >= QUERIES_OF_ONE_MAX {
            return Some(format!(
                "{QUERIES_OF_ONE_MAX} questions of this process to the node are being answered: wait for one of the \
                 answers, then ask again"
            ));
        }
        (self.open.len() >= QUERIES_OPEN_MAX).then(|| {
            format!(
                "{QUERIES_OPEN_MAX} questions to the node are being answered: ask again in a second"
            )
        })
    }

    fn of(&self, asker: ProcessId) -> impl Iterator<Item = &Round> {
        self.open.values().filter(move |round| round.asker == asker)
    }

    /// QUERY-5: of the asker whose questions take the most.
    fn largest(&self) -> u64 {
        let mut of_askers: BTreeMap<ProcessId, usize> = BTreeMap::new();
        for round in self.open.values() {
            *of_askers.entry(round.asker).or_default() += round.bytes;
        }
        let size = |round: &Round| (of_askers[&round.asker], round.asker, round.bytes);
        let largest = self.open.iter().max_by_key(|(_, round)| size(round));
        *largest.expect("what is told belongs to a question").0
    }
}

impl Node {
    pub(super) fn on_query(
        &mut self,
        asker: ProcessId,
        request: u64,
        kind: &str,
        argument: String,
    ) {
        let topic = match Subject::parse(kind, argument) {
            Err(why) => {
                return self.send(asker, ToClient::Answer { request, result: Err(why) });
            }
            Ok(Subject::Here(here)) => return self.report(asker, request, Report::Here(here)),
            Ok(Subject::Everywhere(subject)) => Topic::Everywhere { subject, told: Vec::new() },
            Ok(Subject::Drain { whom, within }) => {
                return self.on_drain_wanted(asker, request, &whom, within);
            }
            Ok(Subject::Why(wanted)) => {
                Topic::Why { inquiry: Inquiry::new(wanted, self.now), told: Vec::new() }
            }
        };
        if let Some(why) = self.queries.refusal(asker) {
            return self.send(asker, ToClient::Answer { request, result: Err(why) });
        }
        self.begin_round(asker, request, topic, 0);
    }

    pub(super) fn on_word(&mut self, from: ProcessId, number: u64, word: Word) {
        let Some(round) = self.queries.open.get_mut(&number) else { return };
        if !round.waiting.remove(&from) {
            return;
        }
        let bytes = word.bytes();
        round.bytes += bytes;
        self.queries.bytes += bytes;
        match (&mut round.topic, word) {
            (Topic::Everywhere { told, .. }, Word::Json(json)) => told.push((from, json)),
            (Topic::Why { told, .. }, Word::Why(word)) => told.push(word),
            // It was asked something else: that is as good as no answer.
            (Topic::Everywhere { .. }, Word::Why(_)) | (Topic::Why { .. }, Word::Json(_)) => {}
        }
        let is_over = round.waiting.is_empty();
        while self.queries.bytes > QUERIES_BYTES_MAX {
            self.give_up(self.queries.largest());
        }
        if is_over {
            self.end_round(number);
        }
    }

    /// Nothing comes from this process any more: nobody waits for its answers, and its questions need none.
    pub(super) fn forget_in_queries(&mut self, gone: ProcessId) {
        for (number, round) in &mut self.queries.open {
            let awaited = round.waiting.remove(&gone);
            if round.asker == gone || (awaited && round.waiting.is_empty()) {
                self.queue.push_back(Work::EndRound(*number));
            }
        }
    }

    /// With what has come.
    pub(super) fn end_round(&mut self, number: u64) {
        let Some(round) = self.close_round(number) else { return };
        let Round { asker, request, topic, waiting, until: _, bytes } = round;
        if !self.speaks(asker) {
            return;
        }
        match topic {
            Topic::Everywhere { subject, told } => {
                self.report(asker, request, Report::Everywhere { subject, told });
            }
            Topic::Why { mut inquiry, told } => {
                if self.inquire(&mut inquiry, told, waiting) && inquiry.has_time(self.now) {
                    let topic = Topic::Why { inquiry, told: Vec::new() };
                    return self.begin_round(asker, request, topic, bytes);
                }
                let report = self.explained(&inquiry);
                self.report(asker, request, report);
            }
        }
    }

    fn close_round(&mut self, number: u64) -> Option<Round> {
        let round = self.queries.open.remove(&number)?;
        self.timers.remove(&(round.until, Timer::Query(number)));
        self.queries.bytes -= round.bytes;
        Some(round)
    }

    /// Its answer would be too large, or those of all.
    fn give_up(&mut self, number: u64) {
        let Round { asker, request, .. } = self.close_round(number).expect("it is open");
        let why = format!(
            "what processes told of this and of other questions is more than {}: ask about less, or again \
             when the others are answered",
            Size(QUERIES_BYTES_MAX as u64)
        );
        self.send(asker, ToClient::Answer { request, result: Err(why) });
    }

    /// Asks every process that is not known to be late.
    fn begin_round(&mut self, asker: ProcessId, request: u64, topic: Topic, bytes: usize) {
        let late = |process: ProcessId| match &topic {
            Topic::Everywhere { .. } => false,
            Topic::Why { inquiry, .. } => inquiry.is_late(process),
        };
        let known = |p: &&Process| p.kind != Kind::Tool && p.is_greeted() && !late(p.id);
        let known = self.processes.values().filter(known);
        let waiting: BTreeSet<_> = known.map(|process| process.id).collect();
        self.queries.last += 1;
        let number = self.queries.last;
        for process in &waiting {
            let message = match &topic {
                Topic::Everywhere { subject, .. } => {
                    ToClient::Inspect { request: number, kind: subject.kind().to_string() }
                }
                Topic::Why { inquiry, .. } => {
                    ToClient::Explain { request: number, question: inquiry.question() }
                }
            };
            self.send(*process, message);
        }
        let nobody = waiting.is_empty();
        let until = self.now + INSPECT_PATIENCE;
        self.queries.open.insert(number, Round { asker, request, topic, waiting, until, bytes });
        self.queries.bytes += bytes;
        if nobody {
            self.end_round(number);
        } else {
            self.timers.insert((until, Timer::Query(number)));
        }
    }

    pub fn rounds(&self) -> impl Iterator<Item = OpenRound<'_>> {
        self.queries.open.iter().map(|(number, round)| {
            let Round { asker, request, waiting, .. } = round;
            OpenRound { number: *number, asker: *asker, request: *request, waiting }
        })
    }

    pub(super) fn check_queries(&self) {
        for (number, round) in &self.queries.open {
            assert!(self.speaks(round.asker), "QUERY-1: {round:?}");
            assert!(!round.waiting.is_empty(), "QUERY-2: {round:?}");
            assert!(round.waiting.iter().all(|it| self.speaks(*it)), "QUERY-2: {round:?}");
            let timer = (round.until, Timer::Query(*number));
            assert!(self.timers.contains(&timer), "QUERY-3: {round:?}");
        }
        let of_queries = |timer: &&(Instant, Timer)| matches!(timer.1, Timer::Query(_));
        let timers = self.timers.iter().filter(of_queries).count();
        assert_eq!(timers, self.queries.open.len(), "QUERY-3");
        let bytes = self.queries.open.values().map(|round| round.bytes).sum::<usize>();
        assert_eq!(bytes, self.queries.bytes, "QUERY-4");
        assert!(bytes <= QUERIES_BYTES_MAX, "QUERY-4");
        assert!(self.queries.open.len() <= QUERIES_OPEN_MAX, "QUERY-4");
        for round in self.queries.open.values() {
            assert!(
                self.queries.of(round.asker).count() <= QUERIES_OF_ONE_MAX,
                "QUERY-5: {round:?}"
            );
        }
    }

    pub(in crate::node) fn report(&mut self, to: ProcessId, request: u64, report: Report) {
        self.out.push(Effect::Report { to, request, report });
    }
}
