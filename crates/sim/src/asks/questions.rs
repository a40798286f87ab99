//! Questions to the daemon (`hoplo why`, `hoplo list`, a `get` that was not in time): processes and tools ask at random
//! times, and leave before the answer; who is asked answers at once, late or never, or dies meanwhile.
//!
//! What must hold of them is in `invariants/answers.rs`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use hoplo_base::limits::QUERIES_OF_ONE_MAX;
use hoplo_base::{ActorId, AnyId, NodeNumber, ObjectId, ProcessId, TaskId};
use hoplo_core::node::Event;
use hoplo_core::why::{Link, Question, Thing, Told};
use hoplo_wire::Reason;
use hoplo_wire::node::{Role, ToClient, ToNode};

use crate::cluster::{Cluster, Step};
use crate::daemon::{Stranger, hello};
use crate::fiber::Wait;
use crate::invariants::Answers;

#[derive(Debug, Default)]
pub struct Questions {
    pub tools: BTreeMap<ProcessId, Tool>,
    pub answers: Answers,
}

/// A `hoplo` command.
#[derive(Debug, Default)]
pub struct Tool {
    pub up: VecDeque<ToNode>,
    pub down: VecDeque<ToClient>,
    pub asked: Asked,
}

/// What one asker asked for.
#[derive(Debug, Default)]
pub struct Asked {
    last: u64,
    /// Without an answer yet.
    pub open: BTreeSet<u64>,
}

/// Somebody asks about so often, and so long after the last fault.
const ASKS_EVERY: Duration = Duration::from_millis(8);
const ASKS_AFTER_FAULTS: Duration = Duration::from_millis(200);
/// A tool asks more than it may.
const MANY_ONE_IN: u64 = 16;
/// Who is late answers within this time, at times too late.
const LATE: Duration = Duration::from_millis(1500);

const KINDS: &[&str] =
    &["status", "summary", "tasks", "timeline", "actors", "objects", "workers", "nonsense"];

impl Cluster {
    /// A process or a tool asks.
    pub fn somebody_asks(&mut self) {
        if self.now >= self.plan.faults_until + ASKS_AFTER_FAULTS {
            return;
        }
        if self.rng.one_in(3) {
            let pid = 2_000_000 + self.questions.tools.len() as u32;
            let stranger = self.stranger(Stranger::Tool);
            self.happens(Event::Knocked { stranger, pid, message: hello(Role::Tool) });
        } else {
            let greeted = |id: ProcessId| {
                self.here.daemon.node.process(id).is_some_and(|process| process.is_greeted())
            };
            let alive = self.clients.values().filter(|client| client.alive);
            let askers: Vec<_> = alive.map(|client| client.id).filter(|id| greeted(*id)).collect();
            if !askers.is_empty() {
                let asker = askers[self.rng.below(askers.len() as u64) as usize];
                self.asks_daemon(asker);
            }
        }
        let spread = Duration::from_nanos(self.rng.below(2 * ASKS_EVERY.as_nanos() as u64));
        self.after(spread, Step::SomebodyAsks);
    }

    fn asks_daemon(&mut self, asker: ProcessId) {
        let (kind, argument) = self.some_question();
        let asked = self.asked_by(asker);
        asked.last += 1;
        let request = asked.last;
        asked.open.insert(request);
        self.count("questions asked");
        self.say(asker, ToNode::Query { request, kind, argument });
    }

    fn asked_by(&mut self, asker: ProcessId) -> &mut Asked {
        match self.questions.tools.get_mut(&asker) {
            Some(tool) => &mut tool.asked,
            None => &mut self.clients.get_mut(&asker).expect("who asks is connected").asked,
        }
    }

    /// About anything that somebody deals with, or that nobody knows.
    fn some_question(&mut self) -> (String, String) {
        if self.rng.one_in(3) {
            let kind = KINDS[self.rng.below(KINDS.len() as u64) as usize];
            return (kind.to_string(), String::new());
        }
        let alive: Vec<_> = self.clients.values().filter(|client| client.alive).collect();
        let mut objects: Vec<ObjectId> = Vec::new();
        for fiber in alive.iter().flat_map(|client| client.fibers.values()) {
            objects.extend(fiber.things());
        }
        let nobody = ProcessId::new(NodeNumber::alone(7), 1, 1);
        let unknown = TaskId { owner: nobody, seq: 1 }.object(0);
        let object = match objects.len() as u64 {
            0 => unknown,
            _ if self.rng.one_in(16) => unknown,
            len => objects[self.rng.below(len) as usize],
        };
        let kind = if self.rng.one_in(2) { "why" } else { "chain" };
        let argument = match self.rng.below(4) {
            0 => object.hex(),
            1 => object.to_string(),
            2 => object.task.to_string(),
            _ if self.rng.one_in(8) => "no id".to_string(),
            _ => ActorId(object.task).hex(),
        };
        (kind.to_string(), argument)
    }

    // ---- who is asked ----

    /// The daemon wants to know what a process knows.
    pub fn inspected(&mut self, id: ProcessId, round: u64, message: ToClient) {
        match self.rng.below(16) {
            0 => {
                self.count("processes that never answer");
                self.note(|| format!("{id} is stuck, and does not answer round {round}"));
            }
            1..=3 => {
                self.client(id).inspections.insert(round, message);
                let delay = Duration::from_nanos(self.rng.below(LATE.as_nanos() as u64));
                self.after(delay, Step::Tells(id, round));
            }
            _ => self.tells_daemon(id, message),
        }
    }

    pub fn tells_late(&mut self, id: ProcessId, round: u64) {
        let message = self.client(id).inspections.remove(&round).expect("it is told once");
        if self.client(id).alive {
            self.tells_daemon(id, message);
        }
    }

    fn tells_daemon(&mut self, id: ProcessId, message: ToClient) {
        match message {
            ToClient::Inspect { request, kind: _ } => {
                self.drain(id);
                let counted = self.client(id).session.take_counters();
                self.say(id, ToNode::Counted(counted));
                self.say(id, ToNode::Inspected { request, json: id.to_string() });
            }
            ToClient::Explain { request, question: Question::Named(text) } => {
                let named = text.parse::<AnyId>().ok();
                let named = named.and_then(|id_asked| self.client(id).session.named(id_asked));
                let told = Told::Things(named.into_iter().collect());
                self.say(id, ToNode::Explained { request, told });
            }
            ToClient::Explain { request, question: Question::Links(things) } => {
                let client = self.client(id);
                let mut links: Vec<Link> =
                    things.iter().filter_map(|thing| client.session.link(*thing)).collect();
                for thing in things {
                    if let Thing::Placed(worker, task) = thing
                        && worker == id
                    {
                        links.push(client.runs_or_queues(thing, task));
                    }
                }
                self.say(id, ToNode::Explained { request, told: Told::Links(links) });
            }
            other => panic!("{id} is asked {other:?}"),
        }
    }

    // ---- answers ----

    pub fn hears_answer(&mut self, id: ProcessId, request: u64) {
        let awaited = self.asked_by(id).open.remove(&request);
        assert!(awaited, "{id} is answered question {request}, which it does not wait for");
        self.count("questions answered");
    }

    // ---- tools ----

    pub fn tool_comes(&mut self, id: ProcessId) {
        self.questions.tools.insert(id, Tool::default());
    }

    pub fn tool_hears(&mut self, id: ProcessId, message: ToClient) {
        match message {
            ToClient::Welcome(_) => {
                let many = self.rng.one_in(MANY_ONE_IN);
                let most = if many { QUERIES_OF_ONE_MAX as u64 + 4 } else { 2 };
                for _ in 0..1 + self.rng.below(most) {
                    self.asks_daemon(id);
                }
                if self.rng.one_in(4) {
                    let delay = self.rng.delay(Duration::from_millis(100));
                    self.after(delay, Step::ToolLeaves(id));
                }
            }
            ToClient::Answer { request, .. } => {
                self.hears_answer(id, request);
                if self.questions.tools[&id].asked.open.is_empty() {
                    self.after(Duration::ZERO, Step::ToolLeaves(id));
                }
            }
            other => panic!("a tool is told {other:?}"),
        }
    }

    /// What it wrote is read, and then the end of its connection.
    pub fn tool_leaves(&mut self, id: ProcessId) {
        let Some(tool) = self.questions.tools.get(&id) else { return };
        if !tool.asked.open.is_empty() {
            self.count("askers that left");
        }
        self.read_to_the_end(id);
        self.questions.tools.remove(&id);
    }
}

impl crate::client::Client {
    /// As clients tell it, without what Python says.
    fn runs_or_queues(&self, of: Thing, task: TaskId) -> Link {
        let Some(fiber) = self.fibers.values().find(|fiber| fiber.task() == Some(task)) else {
            let running = self.fibers.values().filter_map(|fiber| fiber.task());
            let waits_for: Vec<_> = running.map(|it| Thing::Placed(self.id, it)).collect();
            let only = waits_for.len() == 1;
            let says = Reason::from(format!("{task} is queued in ")).and(self.id);
            return Link { of, says, waits_for, only };
        };
        let waits_for = fiber.awaited().into_iter().map(Thing::Object).collect();
        let only = matches!(fiber.wait, Some(Wait::Ready(_)));
        let says = Reason::from(format!("{task} runs in ")).and(self.id);
        Link { of, says, waits_for, only }
    }
}
