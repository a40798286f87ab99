//! The daemon's shell: the real node, fed with what the model of a machine gives.
//!
//! Nothing is decided here. Sockets are queues, the zygote, the kernel and the disk answer after a while,
//! the control store lies in memory and answers in order.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use hoplo_base::{GroupId, Instant, JobId, ProcessId, ResourceSet};
use hoplo_core::control::rows::home_of_actor_key;
use hoplo_core::control::{CasError, ControlStore, Entry, NodeEntry, Row};
use hoplo_core::node::{
    Answer, Config, Effect, Event, KEYS_MAX, Node, Question, Report, Rows, RowsPage,
};
use hoplo_core::objects;
use hoplo_wire::PROTOCOL_VERSION;
use hoplo_wire::control::{Refusal, Table};
use hoplo_wire::node::{DeathCause, Notice, Role, ToClient, ToNode, Welcome};

use crate::begin::Beginning;
use crate::client::Client;
use crate::cluster::{Cluster, Step};
use crate::faults::Plan;
use crate::invariants::told_by;
use crate::lead::Lead;
use crate::sabotage::Sabotage;

pub struct Daemon {
    pub node: Node,
    pub queue: VecDeque<Event>,
    /// Channels to and from processes of other nodes.
    pub far_channels: BTreeSet<(ProcessId, ProcessId)>,
    /// A worker of one has died since the last drain.
    pub far_left: bool,
    pub drains: u64,
    /// The answer of the carrier that the sweep under way waits for.
    pub drains_for: Option<u64>,
    /// Connections that neither side has closed.
    pub open: BTreeSet<ProcessId>,
    /// What an earlier daemon left, until it is recalled.
    pub rows: Rows,
    /// The control store's answers, in the order of the questions.
    answers: VecDeque<Event>,
    /// What is on its way from a node to the store of another one, in order.
    control_out: VecDeque<Effect>,
    tick_at: Option<Instant>,
    /// What follows is because a connection ended.
    pub reads_an_end: bool,
    /// How many violations of the protocol there may be: those that are faults.
    pub excused: u64,
    /// Who knocks.
    strangers: Vec<Stranger>,
    pub stopped: bool,
    /// Of the node table, not heard yet.
    pub news: VecDeque<(NodeEntry, u64)>,
    /// Of a head over control nodes.
    pub lead: Option<Lead>,
}

#[derive(Clone, Copy, Debug)]
pub enum Stranger {
    /// With this program.
    Driver(u64),
    Tool,
}

pub fn hello(role: Role) -> ToNode {
    let version = env!("CARGO_PKG_VERSION").to_string();
    ToNode::Hello { protocol: PROTOCOL_VERSION, version, pid: 0, role }
}

impl Daemon {
    pub fn new(plan: &Plan, beginning: Beginning, resources: ResourceSet) -> Self {
        let objects = objects::Config::new(plan.capacity_bytes);
        let config = Config {
            node: beginning.node,
            resources,
            objects,
            session_dir: "/session".to_string(),
            keeps_rows: plan.keeps_rows,
            clustered: plan.nodes > 1,
            slots_resting: plan.slots_resting,
            processes_max: hoplo_base::limits::PROCESSES_MAX,
        };
        Self {
            node: Node::new(config, Instant::ZERO),
            queue: VecDeque::new(),
            far_channels: BTreeSet::new(),
            far_left: false,
            drains: 0,
            drains_for: None,
            open: BTreeSet::new(),
            rows: beginning.rows,
            answers: VecDeque::new(),
            control_out: VecDeque::new(),
            tick_at: None,
            reads_an_end: false,
            excused: 0,
            strangers: Vec::new(),
            stopped: false,
            news: VecDeque::new(),
            lead: None,
        }
    }

    pub fn whats_up(&self) -> String {
        let mut text = String::from("daemon:\n");
        for process in self.node.processes() {
            text += &format!("  {} {:?} {:?}\n", process.id, process.birth, process.stage);
        }
        for (claimant, unmet, shape) in self.node.scheduler.waiting() {
            text += &format!("  {claimant:?} wants {unmet} of {}\n", shape.resources);
        }
        for (id, lease) in self.node.scheduler.leases() {
            text += &format!("  {id} {lease:?}\n");
        }
        for row in self.node.actors.rows() {
            text += &format!("  {} {:?}\n", row.actor, row.state);
        }
        for row in self.node.objects.listing() {
            text += &format!("  {row:?}\n");
        }
        for round in self.node.rounds() {
            text += &format!("  {round:?}\n");
        }
        text + &format!("  {:?}\n", self.node.objects.totals())
    }
}

impl Cluster {
    /// Before it hears anything a daemon makes of what an earlier one left what is true now.
    pub fn recalls(&mut self) {
        let Daemon { node, rows, .. } = &mut self.here.daemon;
        let mut effects = Vec::new();
        node.recall(std::mem::take(rows), &mut effects);
        for effect in effects {
            if let (Effect::Save { key, value, .. }, Some(lead)) =
                (&effect, &mut self.here.daemon.lead)
            {
                lead.copies.copy(key.clone(), value.clone());
            }
            self.carry_out_for_node(effect);
        }
    }

    /// The daemon hears something, and does what follows.
    pub fn happens(&mut self, event: Event) {
        let now = self.now;
        self.here.daemon.queue.push_back(event);
        let mut effects = Vec::new();
        while let Some(event) = self.here.daemon.queue.pop_front() {
            self.here.daemon.reads_an_end = matches!(event, Event::Closed { .. });
            self.here.daemon.node.handle(now, event, &mut effects);
            for effect in effects.drain(..) {
                self.carry_out_for_node(effect);
            }
        }
        self.check_questions();
        if let Some(at) = self.here.daemon.node.next_deadline()
            && self.here.daemon.tick_at.is_none_or(|set| at < set || set < now)
        {
            self.here.daemon.tick_at = Some(at);
            self.at(at.max(now), Step::DaemonTicks);
        }
    }

    pub fn daemon_ticks(&mut self) {
        self.here.daemon.tick_at = None;
        self.happens(Event::Tick);
    }

    // ---- sockets ----

    /// A driver connects.
    pub fn knocks(&mut self, program: u64) {
        let stranger = self.stranger(Stranger::Driver(program));
        let message = hello(Role::Driver);
        self.happens(Event::Knocked { stranger, pid: 1_000_000 + stranger as u32, message });
    }

    /// The number of a new connection.
    pub fn stranger(&mut self, stranger: Stranger) -> u64 {
        self.here.daemon.strangers.push(stranger);
        self.here.daemon.strangers.len() as u64 - 1
    }

    fn accepted(&mut self, stranger: u64, process: ProcessId) {
        let program = match self.here.daemon.strangers[stranger as usize] {
            Stranger::Driver(program) => program,
            Stranger::Tool => {
                self.here.daemon.open.insert(process);
                return self.tool_comes(process);
            }
        };
        let job = self.here.daemon.node.process(process).expect("it was just accepted").job;
        self.clients.insert(process, Client::driver(process, job, program));
        self.here.daemon.open.insert(process);
        self.runs(process, 1_000_000 + stranger as u32);
        self.drivers.push(process);
    }

    /// The daemon's first word to a process: it may begin.
    pub fn welcomed(&mut self, id: ProcessId, welcome: Welcome) {
        assert!(welcome.process == id && welcome.job == self.clients[&id].job);
        self.client(id).extents.slots = welcome.slots;
        self.after(Duration::ZERO, Step::Goes(id));
    }

    /// Reads what lies there: some messages, or all.
    pub fn daemon_reads(&mut self, from: ProcessId) {
        let some = if self.rng.one_in(4) { 1 } else { usize::MAX };
        self.read_socket(from, some);
        if self.here.daemon.open.contains(&from) && !self.written_by(from).is_empty() {
            let delay = self.rng.delay(self.plan.tardiness);
            self.after(delay, Step::DaemonReads(from));
        }
    }

    pub fn read_socket(&mut self, from: ProcessId, most: usize) {
        for _ in 0..most {
            if !self.here.daemon.open.contains(&from) {
                return;
            }
            let Some(mut message) = self.written_by(from).pop_front() else { return };
            self.sabotage_reads(&mut message);
            self.note(|| format!("daemon hears {from}: {message:?}"));
            self.notes_message(from, &message);
            self.notes_question(from, &message);
            self.happens(Event::Heard { from, message });
        }
    }

    /// All that it wrote, then the end.
    pub fn read_to_the_end(&mut self, process: ProcessId) {
        self.read_socket(process, usize::MAX);
        if self.here.daemon.open.remove(&process) {
            self.notes_closed(process);
            self.happens(Event::Closed { process });
        }
    }

    /// One after the other.
    pub fn daemon_sweeps(&mut self) {
        self.count("sweeps");
        assert!(self.here.daemon.drains_for.is_none(), "a sweep begins in another one");
        self.happens(Event::SweepBegins);
        if !self.drains_far() {
            self.finishes_sweep();
        }
    }

    pub fn finishes_sweep(&mut self) {
        let mut open: Vec<ProcessId> = self.here.daemon.open.iter().copied().collect();
        if !open.is_empty() {
            let turn = self.rng.below(open.len() as u64) as usize;
            open.rotate_left(turn);
        }
        let blind = self.sabotage == Some(Sabotage::SweepsReadNothing);
        for process in open.into_iter().filter(|_| !blind) {
            self.read_socket(process, usize::MAX);
        }
        self.happens(Event::Swept);
    }

    fn notes_message(&mut self, from: ProcessId, message: &ToNode) {
        let lease = self.here.daemon.node.scheduler.lease_on(from);
        if *message == ToNode::Blocked && lease.is_some_and(|lease| !lease.blocked) {
            self.count("lent CPUs");
        }
        let ToNode::Notices(notices) = message else { return };
        for notice in notices {
            if let Notice::Sealed { object, .. } = notice
                && self.here.daemon.node.objects.is_orphaned(*object)
            {
                self.count("values told after their owner's end");
            }
        }
    }

    fn notes_word(&mut self, message: &ToClient) {
        match message {
            ToClient::LeaseGranted { gpus, .. } if !gpus.is_empty() => self.count("GPUs granted"),
            ToClient::LeaseRecall { .. } => self.count("leases recalled"),
            ToClient::LeaseIdleWanted { .. } => self.count("idle leases wanted"),
            ToClient::ExtentDenied { .. } => self.count("stores that were full"),
            ToClient::ProcessGone { obituary, .. } => {
                if matches!(obituary.cause, DeathCause::OutOfMemory { .. }) {
                    self.count("memory kills");
                }
            }
            _ => {}
        }
    }

    pub fn send_to(&mut self, to: ProcessId, message: ToClient) {
        self.notes_word(&message);
        if matches!(message, ToClient::Exit { .. }) && !self.clients.contains_key(&to) {
            return; // its fork is under way: it ends before it reads anything
        }
        assert!(
            self.here.daemon.open.contains(&to),
            "{to} is sent {message:?} on a closed connection"
        );
        let tardiness = self.plan.tardiness;
        let down = self.written_to(to);
        down.push_back(message);
        if down.len() == 1 {
            let delay = self.rng.delay(tardiness);
            self.after(delay, Step::ClientReads(to));
        }
    }

    // ---- disk, control store, meters ----

    pub fn disk_wrote(&mut self, ticket: u64) {
        let full = self.plan.disk_failures && self.faulty() && self.rng.one_in(3);
        self.count(if full { "full disks" } else { "spills" });
        let result = self.here.memory.end_spill(ticket, full);
        self.happens(Event::Spilled { ticket, result });
    }

    pub fn disk_reserved(&mut self, ticket: u64) {
        let full = self.plan.disk_failures && self.faulty() && self.rng.one_in(3);
        self.count(if full { "full disks" } else { "room in the spill file" });
        self.books.facts.refused_reserves += u32::from(full);
        let result = if full { Err("no space left on device".to_string()) } else { Ok(()) };
        self.happens(Event::Reserved { ticket, result });
    }

    pub fn disk_read(&mut self, ticket: u64) {
        if self.sabotage_waits_for_room(ticket) {
            return;
        }
        let fails = self.plan.disk_failures && self.faulty() && self.rng.one_in(2);
        self.count(if fails { "failed reads" } else { "restores" });
        self.books.facts.reads(self.here.number, ticket, fails);
        let result = self.here.memory.end_restore(ticket, fails);
        self.happens(Event::Restored { ticket, result });
    }

    pub fn control_answers(&mut self) {
        let answer = self.here.daemon.answers.pop_front().expect("one step for each answer");
        self.happens(answer);
    }

    /// At a head that has the store at once. Of another node it is on its way, and waits while there is no head that has the store.
    fn for_control_store(&mut self, effect: Effect) {
        if self.here.number == self.head() && !self.plan.control_apart {
            return self.control_takes(effect);
        }
        if let (Effect::Save { key, value, .. }, Some(lead)) = (&effect, &mut self.here.daemon.lead)
        {
            lead.copies.writes(key, value);
        }
        self.writes_later(effect);
    }

    /// Behind what is on its way there already.
    pub fn writes_later(&mut self, effect: Effect) {
        self.here.daemon.control_out.push_back(effect);
        if self.here.daemon.control_out.len() == 1 {
            self.control_takes_soon();
        }
    }

    fn control_takes_soon(&mut self) {
        let delay = self.rng.delay(self.plan.latency);
        self.after(delay, Step::ControlTakes);
    }

    pub fn control_takes_next(&mut self) {
        if self.is_headless() && !self.plan.control_apart {
            return self.after(Duration::from_millis(1), Step::ControlTakes);
        }
        let effect = self.here.daemon.control_out.pop_front().expect("one step for each");
        self.control_takes(effect);
        if !self.here.daemon.control_out.is_empty() {
            self.control_takes_soon();
        }
    }

    fn control_takes(&mut self, effect: Effect) {
        match effect {
            Effect::Save { key, value, last } => {
                let actor = (key.table == Table::Actor).then_some(&key.bytes);
                let home = actor.and_then(|bytes| home_of_actor_key(bytes));
                if home.is_some_and(|home| home != self.here.number) {
                    self.count("rows that heirs wrote of actors");
                }
                self.count("rows written");
                if key.table == Table::Node && self.plan.nodes > 1 {
                    let entry = NodeEntry::of_value(&value).expect("it is a node's");
                    return self.head_writes_row(entry);
                }
                let store = &mut self.control;
                let put = if last { store.finish(key, value) } else { store.put(key, value) };
                put.expect("a store in memory takes all");
            }
            Effect::Forget { key } => {
                self.control.delete(&key).expect("a store in memory takes all");
            }
            Effect::Ask { ask, question } => self.asked(ask, question),
            other => panic!("that is nothing for a control store: {other:?}"),
        }
    }

    fn asked(&mut self, ask: u64, question: Question) {
        let store = &mut self.control;
        let value = |row: Option<Row>| row.map(|row| row.value);
        let reads = matches!(
            question,
            Question::Get { .. } | Question::List { .. } | Question::Scan { .. }
        );
        let writes = !reads;
        let refuses = writes && self.now < self.plan.faults_until && self.plan.control_refuses;
        let refused = refuses && self.rng.one_in(3);
        let refusal = || Refusal::Disk("no space left on device".to_string());
        if let Question::Create { key, .. } | Question::Put { key, .. } = &question
            && refused
            && key.table == Table::PlacementGroup
        {
            let group = key.bytes[..].try_into().expect("a group has eight bytes");
            self.books.facts.is_not_written(GroupId(u64::from_be_bytes(group)));
        }
        let answer = match question {
            Question::Get { keys } => {
                Answer::Rows(Ok(keys.iter().map(|key| value(store.get(key))).collect()))
            }
            Question::Put { .. } if refused => Answer::Written(Err(refusal())),
            Question::Create { .. } | Question::Delete { .. } if refused => {
                Answer::Found(Err(refusal()))
            }
            Question::Put { key, value } => Answer::Written(store.put(key, value).map(|_| ())),
            Question::Create { key, value: new } => {
                Answer::Found(match store.cas(key.clone(), 0, new) {
                    Ok(_) => Ok(None),
                    Err(CasError::Conflict { .. }) => Ok(value(store.get(&key))),
                    Err(CasError::Refused(refusal)) => Err(refusal),
                })
            }
            Question::Delete { key } => Answer::Found(store.delete(&key).map(value)),
            Question::List { table, prefix } => {
                let page = store.scan(table, &prefix, None, KEYS_MAX);
                Answer::Keys(Ok(page.rows.into_iter().map(|(key, _)| key).collect()))
            }
            // Few rows, so that there are several pages.
            Question::Scan { table, prefix, from } => {
                let page = store.scan(table, &prefix, from.as_deref(), 2);
                let rows = page.rows.into_iter().map(|(key, row)| (key, row.value)).collect();
                Answer::Page(Ok(RowsPage { rows, next: page.next }))
            }
        };
        if refused {
            self.count("refused rows");
        }
        self.count("questions to the control store");
        self.here.daemon.answers.push_back(Event::Answered { ask, answer });
        let delay = self.rng.delay(Duration::from_millis(1));
        self.after(delay, Step::ControlAnswers);
    }

    fn reports_to(&mut self, to: ProcessId, request: u64, report: &Report) {
        if self.sabotage_keeps_answer() {
            return;
        }
        self.notes_answer(to, request, told_by(report));
        let (result, missing) = (Ok(format!("{report:?}")), Vec::new());
        self.send_to(to, ToClient::Answer { request, result, missing });
    }

    // ---- effects ----

    fn carry_out_for_node(&mut self, effect: Effect) {
        match effect {
            Effect::Send { to, message } => {
                if let ToClient::Answer { request, .. } = message {
                    self.notes_refusal(to);
                    self.notes_answer(to, request, None);
                }
                self.notes_passed_on(to, &message);
                self.send_to(to, message);
            }
            Effect::Introduce { stranger, pid } => {
                let message = ToNode::Job(Box::default());
                self.here.daemon.queue.push_back(Event::Told { stranger, pid, message });
            }
            Effect::Accept { stranger, process, kind: _ } => self.accepted(stranger, process),
            Effect::Refuse { stranger, reason } => panic!("driver {stranger} is refused: {reason}"),
            Effect::HangUp { process } => self.hung_up(process),
            Effect::Fork { process, .. } => self.asked_to_fork(process),
            Effect::MakeEnvironment { .. }
            | Effect::StopMaking { .. }
            | Effect::LetGoEnvironment { .. } => {
                unreachable!("no task here has a Python of its own")
            }
            Effect::Watch { process, pid } => self.watches(process, pid),
            Effect::Kill { process, pid } => self.is_killed(process, pid),
            Effect::Examine { process } => self.examines(process),
            Effect::Bury { process, kind: _, pid: _ } => self.buried(process),
            Effect::Wipe { process } => self.wiped(process),
            Effect::Sweep => {
                let delay = self.rng.delay(Duration::from_micros(100));
                self.after(delay, Step::DaemonSweeps);
            }
            Effect::Free { ticket, object, location } => {
                let result = self.here.memory.free(location, self.here.daemon.node.live_slots());
                self.note(|| format!("daemon frees {object}: {result:?}"));
                self.here.daemon.queue.push_back(Event::Freed { ticket, result });
            }
            Effect::Spill { ticket, object, location, place } => {
                self.note(|| format!("daemon spills {object}"));
                let live = self.here.daemon.node.live_slots();
                match self.here.memory.begin_spill(ticket, location, place, live) {
                    Some(result) => {
                        self.here.daemon.queue.push_back(Event::Spilled { ticket, result });
                    }
                    None => {
                        let delay = self.rng.delay(Duration::from_millis(5));
                        self.after(delay, Step::DiskWrote(ticket));
                    }
                }
            }
            Effect::Restore { ticket, object, place, slot } => {
                self.note(|| format!("daemon restores {object}"));
                self.here.memory.begin_restore(ticket, place, slot);
                self.books.facts.is_read(self.here.number, ticket, object);
                let delay = self.rng.delay(Duration::from_millis(5));
                self.after(delay, Step::DiskRead(ticket));
            }
            Effect::Reserve { ticket, place } => {
                self.note(|| format!("daemon takes disk space for {} bytes", place.len));
                let delay = self.rng.delay(Duration::from_millis(5));
                self.after(delay, Step::DiskReserved(ticket));
            }
            Effect::ForgetSpilled { range, end } => self.here.memory.forget(range, end),
            Effect::ResetSlots { slots } => self.here.memory.reset_slots(&slots),
            Effect::Save { .. } | Effect::Forget { .. } | Effect::Ask { .. } => {
                self.for_control_store(effect);
            }
            Effect::Measure { processes } => self.measures(&processes),
            Effect::Log { text } => {
                self.note(|| format!("daemon logs: {text}"));
                let violations = self.here.daemon.node.violations();
                assert!(
                    violations <= self.here.daemon.excused,
                    "{text}\n{}",
                    self.story.about(&[])
                );
            }
            Effect::Note { line } => self.note(|| format!("  {line}")),
            Effect::Report { to, request, report, others: _ } => {
                self.reports_to(to, request, &report);
            }
            Effect::Stopped => {
                let is_first = !std::mem::replace(&mut self.here.daemon.stopped, true);
                if is_first && (self.here.daemon.node.drains() || self.here.fenced) {
                    self.after(Duration::ZERO, Step::Leaves);
                }
            }
            Effect::SendPeer { .. }
            | Effect::Go { .. }
            | Effect::OpenFar { .. }
            | Effect::ServeFar { .. }
            | Effect::CloseFar { .. }
            | Effect::WorkerGone { .. }
            | Effect::RevokeFar { .. }
            | Effect::Haul { .. } => {
                assert!(self.plan.nodes > 1, "this node is alone: {effect:?}");
                self.carry_out_far(effect);
            }
            Effect::Settle { epoch } => self.settles(epoch),
            Effect::ReportPart { .. } => panic!("nobody asks other nodes: {effect:?}"),
            Effect::Stopping { .. }
            | Effect::Preload { .. }
            | Effect::Punch { .. }
            | Effect::ReturnMemory
            | Effect::Confine { .. }
            | Effect::Unconfine { .. } => {}
        }
    }

    /// A job that is known, for whoever is told of it.
    pub fn job_of(&self, process: ProcessId) -> JobId {
        self.here.daemon.node.process(process).expect("it is not buried").job
    }
}
