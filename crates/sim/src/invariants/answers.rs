//! Each question of an asker that stays is answered once, in time, and never waits for somebody who is gone.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::limits::{INSPECT_PATIENCE, QUERIES_OF_ONE_MAX, WHY_PATIENCE};
use hoplo_base::{Instant, ProcessId};
use hoplo_core::node::{Asker, Report};
use hoplo_wire::node::{ToClient, ToNode};

use crate::cluster::Cluster;

/// What the daemon was asked, as the world saw it.
#[derive(Debug, Default)]
pub struct Answers {
    open: BTreeMap<(ProcessId, u64), Open>,
}

/// A question that the daemon has read and not answered.
#[derive(Debug)]
struct Open {
    until: Instant,
    /// Who was asked for it and did not tell.
    silent: BTreeSet<ProcessId>,
    /// Who told, in its present round.
    told: BTreeSet<ProcessId>,
    round: u64,
    lost_somebody: bool,
}

impl Cluster {
    /// The daemon reads this.
    pub fn notes_question(&mut self, from: ProcessId, message: &ToNode) {
        match message {
            ToNode::Query { request, kind, .. } => {
                let chain = kind == "why" || kind == "chain";
                let until = self.now + if chain { WHY_PATIENCE } else { INSPECT_PATIENCE };
                let (silent, told) = (BTreeSet::new(), BTreeSet::new());
                let open = Open { until, silent, told, round: 0, lost_somebody: false };
                let before = self.questions.answers.open.insert((from, *request), open);
                assert!(before.is_none(), "{from} asks question {request} twice");
            }
            ToNode::Inspected { request, .. } | ToNode::Explained { request, .. } => {
                let questions = &mut self.questions.answers.open;
                let mut asked = questions.values_mut().filter(|open| open.round == *request);
                let awaited = asked.any(|open| open.silent.remove(&from) && open.told.insert(from));
                if !awaited {
                    self.count("answers that came too late");
                }
            }
            _ => {}
        }
    }

    /// The daemon passes a question on.
    pub fn notes_passed_on(&mut self, to: ProcessId, message: &ToClient) {
        let (ToClient::Inspect { request: number, .. } | ToClient::Explain { request: number, .. }) =
            message
        else {
            return;
        };
        let round = self.here.daemon.node.rounds().find(|round| round.number == *number);
        let round = round.expect("a round that asks is open");
        let Asker::Process(asker) = round.asker else { panic!("this node is alone: {round:?}") };
        let open = self.questions.answers.open.get_mut(&(asker, round.request));
        let open = open.expect("who asks is not answered");
        if open.round != *number {
            open.round = *number;
            open.silent.clear();
            open.told.clear();
        }
        open.silent.insert(to);
        self.count("questions passed on");
    }

    /// Nothing comes from this process any more.
    pub fn notes_closed(&mut self, process: ProcessId) {
        self.questions.answers.open.retain(|(asker, _), _| *asker != process);
        for open in self.questions.answers.open.values_mut() {
            open.lost_somebody |= open.silent.remove(&process);
        }
    }

    /// A question is refused, for whatever reason.
    pub fn notes_refusal(&mut self, to: ProcessId) {
        let rounds =
            self.here.daemon.node.rounds().filter(|round| round.asker == Asker::Process(to));
        if rounds.count() == QUERIES_OF_ONE_MAX {
            self.count("questions of one who asks too many");
        }
    }

    /// `told`: by whom, where the answer says it.
    pub fn notes_answer(&mut self, to: ProcessId, request: u64, told: Option<BTreeSet<ProcessId>>) {
        let open = self.questions.answers.open.remove(&(to, request));
        let open = open.unwrap_or_else(|| panic!("{to} is answered {request} twice, or unasked"));
        assert!(self.now <= open.until, "question {request} of {to} is answered too late");
        if let Some(told) = told {
            assert_eq!(told, open.told, "what was told is in the answer to {request} of {to}");
        }
        if open.lost_somebody {
            self.count("questions answered with a dead process among them");
        }
        if !open.silent.is_empty() {
            self.count("questions answered without who was late");
        }
    }

    /// After everything that the daemon hears: a question that is not answered waits for somebody who can speak.
    pub fn check_questions(&self) {
        for ((asker, request), open) in &self.questions.answers.open {
            let name = || format!("question {request} of {asker}");
            assert!(self.now <= open.until, "{} has no answer in time", name());
            let asked = (Asker::Process(*asker), *request);
            if self.here.daemon.node.questions_before_sweep().any(|it| it == asked) {
                continue;
            }
            let mut rounds = self.here.daemon.node.rounds();
            let round =
                rounds.find(|it| it.asker == Asker::Process(*asker) && it.request == *request);
            let Some(round) = round else {
                panic!(
                    "{} waits for nobody and has no answer\n{}",
                    name(),
                    self.story.about(&[asker.to_string()])
                );
            };
            assert_eq!(
                *round.waiting,
                open.silent,
                "{} waits for others than who is silent",
                name()
            );
            assert!(!round.waiting.is_empty(), "{} waits for nobody", name());
            let gone =
                round.waiting.iter().find(|process| !self.here.daemon.open.contains(process));
            assert!(gone.is_none(), "{} waits for {gone:?}, who is gone", name());
        }
    }

    /// Everybody was answered.
    pub fn check_answers(&self) {
        assert!(self.questions.answers.open.is_empty(), "open: {:?}", self.questions.answers);
        assert!(self.questions.tools.is_empty(), "tools wait: {:?}", self.questions.tools);
        for client in self.clients.values().filter(|client| client.alive) {
            let open = &client.asked.open;
            assert!(open.is_empty(), "{} has no answer to its questions {open:?}", client.id);
        }
    }
}

/// Who told something, by the answer.
pub fn told_by(report: &Report) -> Option<BTreeSet<ProcessId>> {
    match report {
        Report::Everywhere { subject: _, told } => {
            for (process, json) in told {
                assert_eq!(*json, process.to_string(), "it told something else");
            }
            let by: BTreeSet<ProcessId> = told.iter().map(|(process, _)| *process).collect();
            assert_eq!(by.len(), told.len(), "somebody is in the answer twice");
            Some(by)
        }
        Report::Here(_) | Report::Why { .. } | Report::Drain { .. } => None,
    }
}
