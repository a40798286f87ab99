//! Questions of people and programs: who is asked, who is awaited, and when the answer goes.
//!
//! ```text
//!   Query --the daemon knows it alone--sweep--------------------------------> Report
//!     \--every process knows a part--> Inspect --all told, left, or late----> Report
//!     \--why an id waits--> Explain, round after round (see `inquiry`)------> Report
//!     \--every node knows a part: each is asked in the same round (see `others`)
//!
//!   the asker leaves: its question is dropped, however far it got
//! ```
//! What the daemon knows alone it knows from its processes. It answers when it has read all that they wrote before the question
//! (`node/sweeps`): who has a result, and asks where it is, finds it, though the daemon heard of the question before it heard of the result.
//! What only processes know is gathered with `Inspect` or `Explain`, and answered with what came within
//! `INSPECT_PATIENCE`: a stuck process cannot hang the answer. All rounds of one question end within `WHY_PATIENCE`.
//! Each round has a number of its own, which the processes' answers carry: what comes after its round says nothing.
//! The shell writes a `Report` as JSON, with what only it knows (the control store, its story, what the kernel says of a
//! pid).
//!
//! Where the cluster has other nodes, a question of a process of this one goes to all of them at the same time, and each answers for itself:
//! a question that came from a node is never passed on to another one. Who asks waits for them as long as for its own
//! processes. They wait for theirs a little less (`INSPECT_PATIENCE_FAR`), so that a stuck process costs the answer itself, and not all of
//! its node. A node that does not answer in time, cannot, or dies meanwhile is named in the answer.
//!
//! # Invariants
//! - QUERY-1: a question is answered once, or its asker's connection has closed, or its node is dead.
//! - QUERY-2: an open round waits for somebody, and only for processes whose connection is open and for nodes that live: whoever has
//!   closed it says nothing any more, though it may live on for a while.
//! - QUERY-3: an open round has its timer, and no timer outlives its round.
//! - QUERY-4: at most `QUERIES_OPEN_MAX` questions are open, and what was told of all of them takes at most
//!   `QUERIES_BYTES_MAX`. What is more is refused, so that no answer lacks something in silence.
//! - QUERY-5: at most `QUERIES_OF_ONE_MAX` of them are of one asker (`QUERIES_OF_NODE_MAX` of a node), who is refused beyond that. When
//!   what was told is too much, whoever's questions take the most loses the largest of them. So no asker shuts out others.
//! - QUERY-6: a question of a node awaits no node.

mod inquiry;
mod others;
mod round;
mod subject;

use std::collections::BTreeSet;

use hoplo_base::limits::{INSPECT_PATIENCE, QUERIES_BYTES_MAX};
use hoplo_base::{Instant, NodeNumber, ProcessId, Size};
use hoplo_wire::node::ToClient;

use super::queue::Work;
use super::{Effect, Kind, Node, Process, Timer};
use crate::why::{Question, Told};
use inquiry::Inquiry;
use round::{Heard, Round, Topic};
use subject::Subject;

pub use round::{Asker, OpenRound, Others};
pub(super) use round::{Queries, Word};
pub use subject::{Everywhere, Here, Logs, OfDead, Report};

/// Argument of a question about what daemons know alone: of this node only.
const HERE: &str = "here";

impl Node {
    pub(super) fn on_query(&mut self, asker: Asker, request: u64, kind: &str, argument: String) {
        let asks_all = argument != HERE;
        let subject = match Subject::parse(kind, argument) {
            Err(why) => return self.deny(asker, request, why),
            Ok(subject) => subject,
        };
        let topic = match subject {
            Subject::Here(here) if here.kind().is_some() => {
                return self.sweep_before_question(asker, request, here, asks_all);
            }
            Subject::Here(_) | Subject::Why(_) if matches!(asker, Asker::Node(_)) => {
                let why = format!("{kind:?} is no question to another node");
                return self.deny(asker, request, why);
            }
            Subject::Here(here) => {
                return self.report(asker, request, Report::Here(here), Others::default());
            }
            Subject::Everywhere(subject) => Topic::Everywhere { subject, told: Vec::new() },
            Subject::Memory(id) if matches!(asker, Asker::Node(_)) => {
                let report = Report::Why { lines: self.memories(id), remembered: Some(id) };
                return self.report(asker, request, report, Others::default());
            }
            Subject::Drain { whom, within } => {
                return self.on_drain_wanted(asker, request, &whom, within);
            }
            Subject::Memory(_) => {
                return self.deny(asker, request, format!("{kind:?} is a question of nodes only"));
            }
            Subject::Why(wanted) => {
                let inquiry = Box::new(Inquiry::new(wanted, self.now));
                Topic::Why { inquiry, told: Vec::new() }
            }
        };
        self.begin_question(asker, request, topic);
    }

    /// All that processes said before they asked is in the tables now.
    pub(super) fn on_swept_question(
        &mut self,
        asker: Asker,
        request: u64,
        here: Here,
        asks_all: bool,
    ) {
        if !self.hears(asker) {
            return;
        }
        let is_asked = asks_all
            && (self.asks_others(asker)
                || self.asks_in_vain(asker, &here)
                || self.asks_past(asker, &here));
        if is_asked {
            self.begin_question(asker, request, Topic::Here(here));
        } else {
            self.report(asker, request, Report::Here(here), Others::default());
        }
    }

    /// Only a head knows it, and there is none.
    fn asks_in_vain(&self, asker: Asker, here: &Here) -> bool {
        let of_head = matches!(here, Here::PlacementGroups);
        of_head && matches!(asker, Asker::Process(_)) && self.lacks_head()
    }

    /// There may be something of dead nodes in it.
    fn asks_past(&self, asker: Asker, here: &Here) -> bool {
        let wants = matches!(here, Here::Actors(which) if *which != OfDead::Most(0));
        wants && matches!(asker, Asker::Process(_)) && self.has_past()
    }

    /// Another node's round of `why`.
    pub(super) fn on_part_of_why(
        &mut self,
        node: NodeNumber,
        request: u64,
        question: Question,
        late: Vec<ProcessId>,
        named: Vec<ProcessId>,
    ) {
        let late = late.into_iter().collect();
        let topic = Topic::Part { question, late, named, told: Vec::new() };
        self.begin_question(Asker::Node(node), request, topic);
    }

    fn begin_question(&mut self, asker: Asker, request: u64, topic: Topic) {
        if let Some(why) = self.queries.refusal(asker) {
            return self.deny(asker, request, why);
        }
        self.begin_round(asker, request, topic, Heard::default());
    }

    pub(super) fn on_word(&mut self, from: ProcessId, number: u64, word: Word) {
        let Some(round) = self.queries.open.get_mut(&number) else { return };
        if !round.waiting.remove(&from) {
            return;
        }
        let bytes = word.bytes();
        match (&mut round.topic, word) {
            (Topic::Everywhere { told, .. }, Word::Json(json)) => told.push((from, json)),
            (Topic::Why { told, .. } | Topic::Part { told, .. }, Word::Why(word)) => {
                told.push(word);
            }
            // It was asked something else: that is as good as no answer.
            (Topic::Everywhere { .. } | Topic::Here(_) | Topic::Memory { .. }, Word::Why(_))
            | (
                Topic::Why { .. } | Topic::Part { .. } | Topic::Here(_) | Topic::Memory { .. },
                Word::Json(_),
            ) => {}
        }
        self.has_heard(number, bytes);
    }

    /// So much more was told in this round. It ends, if nobody is awaited any more.
    pub(super) fn has_heard(&mut self, number: u64, bytes: usize) {
        self.queries.count(number, bytes);
        let is_over = self.queries.open.get(&number).is_some_and(Round::is_over);
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
            if round.asker == Asker::Process(gone) || (awaited && round.is_over()) {
                self.queue.push_back(Work::EndRound(*number));
            }
        }
    }

    /// With what has come.
    pub(super) fn end_round(&mut self, number: u64) {
        let Some(round) = self.close_round(number) else { return };
        let Round { asker, request, topic, waiting, nodes, until: _, reading, mut heard } = round;
        if !self.hears(asker) {
            return;
        }
        let silent = nodes.iter().map(|node| self.silence(*node));
        heard.others.missing.extend(silent);
        if let Some(reading) = reading {
            let why = format!("it did not answer within {} s", INSPECT_PATIENCE.as_secs());
            heard.read(reading, Some(why));
        }
        match topic {
            Topic::Here(here) => self.report(asker, request, Report::Here(here), heard.others),
            Topic::Everywhere { subject, told } => {
                let report = Report::Everywhere { subject, told };
                self.report(asker, request, report, heard.others);
            }
            Topic::Why { mut inquiry, told } => {
                inquiry.is_late(waiting, nodes);
                if self.inquire(&mut inquiry, told) && inquiry.has_time(self.now) {
                    let topic = Topic::Why { inquiry, told: Vec::new() };
                    return self.begin_round(asker, request, topic, heard);
                }
                let missing = std::mem::take(&mut heard.others.missing);
                let report = self.explained(&inquiry, missing);
                if inquiry.remembers() && self.asks_others(asker) && inquiry.has_time(self.now) {
                    let topic = Topic::Memory { inquiry, report };
                    return self.begin_round(asker, request, topic, heard);
                }
                self.report(asker, request, report, heard.others);
            }
            Topic::Memory { inquiry: _, report } => {
                self.report(asker, request, report, heard.others);
            }
            Topic::Part { question, late: _, named, told } => {
                self.answer_part(asker, request, &question, told, waiting, named);
            }
        }
    }

    /// The control store said all that it has of dead nodes, or refused.
    pub(super) fn has_read_past(&mut self, number: u64, bytes: usize) {
        let Some(round) = self.queries.open.get_mut(&number) else { return };
        if let Some(reading) = round.reading.take() {
            round.heard.read(reading, None);
        }
        self.has_heard(number, bytes);
    }

    fn close_round(&mut self, number: u64) -> Option<Round> {
        let round = self.queries.open.remove(&number)?;
        self.timers.remove(&(round.until, Timer::Query(number)));
        self.queries.bytes -= round.heard.bytes;
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
        self.deny(asker, request, why);
    }

    /// Asks every process, and every node, that is not known to be late.
    fn begin_round(&mut self, asker: Asker, request: u64, mut topic: Topic, mut heard: Heard) {
        self.queries.last += 1;
        let number = self.queries.last;
        let waiting = self.ask_processes(number, &topic);
        let nodes = match asker {
            Asker::Process(_) => self.ask_nodes(number, &mut topic, &mut heard),
            Asker::Node(_) => BTreeSet::new(),
        };
        let reading = match (&topic, asker) {
            (Topic::Everywhere { subject, .. }, Asker::Process(_)) if subject.is_past() => {
                self.begin_reading_runs(number)
            }
            (Topic::Here(Here::Actors(which)), Asker::Process(_)) => {
                self.begin_reading_actors(number, *which)
            }
            (
                Topic::Here(_)
                | Topic::Everywhere { .. }
                | Topic::Why { .. }
                | Topic::Memory { .. }
                | Topic::Part { .. },
                Asker::Process(_) | Asker::Node(_),
            ) => None,
        };
        let until = self.now + asker.patience();
        self.queries.bytes += heard.bytes;
        let round = Round { asker, request, topic, waiting, nodes, until, reading, heard };
        let nobody = round.is_over();
        self.queries.open.insert(number, round);
        if nobody {
            self.end_round(number);
        } else {
            self.timers.insert((until, Timer::Query(number)));
        }
    }

    fn ask_processes(&mut self, number: u64, topic: &Topic) -> BTreeSet<ProcessId> {
        let message = match topic {
            Topic::Here(_) | Topic::Memory { .. } => return BTreeSet::new(),
            Topic::Why { inquiry, .. } if asks_nothing(&inquiry.question()) => {
                return BTreeSet::new();
            }
            Topic::Part { question, .. } if asks_nothing(question) => return BTreeSet::new(),
            Topic::Everywhere { subject, .. } => {
                ToClient::Inspect { request: number, kind: subject.kind().to_string() }
            }
            Topic::Why { inquiry, .. } => {
                ToClient::Explain { request: number, question: inquiry.question() }
            }
            Topic::Part { question, .. } => {
                ToClient::Explain { request: number, question: question.clone() }
            }
        };
        let none = BTreeSet::new();
        let late = match topic {
            Topic::Here(_) | Topic::Memory { .. } | Topic::Everywhere { .. } => &none,
            Topic::Why { inquiry, .. } => inquiry.late(),
            Topic::Part { late, .. } => late,
        };
        let known = |p: &&Process| p.kind != Kind::Tool && p.is_greeted() && !late.contains(&p.id);
        let known = self.processes.values().filter(known);
        let waiting: BTreeSet<_> = known.map(|process| process.id).collect();
        for process in &waiting {
            self.send(*process, message.clone());
        }
        waiting
    }

    pub fn rounds(&self) -> impl Iterator<Item = OpenRound<'_>> {
        self.queries.open.iter().map(|(number, round)| {
            let Round { asker, request, waiting, nodes, .. } = round;
            OpenRound { number: *number, asker: *asker, request: *request, waiting, nodes }
        })
    }

    pub(super) fn check_queries(&self) {
        for (number, round) in &self.queries.open {
            assert!(self.hears(round.asker), "QUERY-1: {round:?}");
            assert!(!round.is_over(), "QUERY-2: {round:?}");
            assert!(round.waiting.iter().all(|it| self.speaks(*it)), "QUERY-2: {round:?}");
            let lives = |node: &NodeNumber| self.hears(Asker::Node(*node));
            assert!(round.nodes.iter().all(lives), "QUERY-2: {round:?}");
            let timer = (round.until, Timer::Query(*number));
            assert!(self.timers.contains(&timer), "QUERY-3: {round:?}");
            let passed_on = matches!(round.asker, Asker::Node(_)) && !round.nodes.is_empty();
            assert!(!passed_on, "QUERY-6: {round:?}");
        }
        let of_queries = |timer: &&(Instant, Timer)| matches!(timer.1, Timer::Query(_));
        let timers = self.timers.iter().filter(of_queries).count();
        assert_eq!(timers, self.queries.open.len(), "QUERY-3");
        let bytes = self.queries.open.values().map(|round| round.heard.bytes).sum::<usize>();
        assert_eq!(bytes, self.queries.bytes, "QUERY-4");
        assert!(bytes <= QUERIES_BYTES_MAX, "QUERY-4");
        self.queries.check();
    }

    pub(in crate::node) fn report(
        &mut self,
        asker: Asker,
        request: u64,
        report: Report,
        others: Others,
    ) {
        self.out.push(match asker {
            Asker::Process(to) => Effect::Report { to, request, report, others },
            Asker::Node(node) => Effect::ReportPart { node, request, report },
        });
    }

    pub(in crate::node) fn deny(&mut self, asker: Asker, request: u64, why: String) {
        match asker {
            Asker::Process(process) => {
                let missing = Vec::new();
                self.send(process, ToClient::Answer { request, result: Err(why), missing });
            }
            Asker::Node(node) => self.answer_node(node, request, Err(why)),
        }
    }

    /// What this node knows of a question of `why`, with what its processes told: who told something else than it was asked told nothing.
    fn part_of_why(&self, question: &Question, told: Vec<Told>) -> Told {
        match question {
            Question::Named(text) => {
                let theirs = told.into_iter().filter_map(|told| match told {
                    Told::Things(things) => Some(things),
                    Told::Links(_) => None,
                });
                let ours = text.parse().ok().and_then(|id| self.named(id));
                Told::Things(ours.into_iter().chain(theirs.flatten()).collect())
            }
            Question::Links(things) => {
                let theirs = told.into_iter().filter_map(|told| match told {
                    Told::Links(links) => Some(links),
                    Told::Things(_) => None,
                });
                let ours = things.iter().flat_map(|thing| self.links(*thing));
                Told::Links(theirs.flatten().chain(ours).collect())
            }
        }
    }
}

/// But for names, which the tables of a node have.
fn asks_nothing(question: &Question) -> bool {
    matches!(question, Question::Links(things) if things.is_empty())
}
