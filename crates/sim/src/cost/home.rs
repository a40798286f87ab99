//! What the home of an actor does for it, by a real node: how long it takes, and which rows it saves.

use std::collections::VecDeque;

use hoplo_base::{ActorId, Instant, ProcessId, ResourceSet, TaskId};
use hoplo_core::control::rows::RowError;
use hoplo_core::control::{ActorEntry, Entry, Row, Table};
use hoplo_core::node::{Effect, Event, Node};
use hoplo_wire::PROTOCOL_VERSION;
use hoplo_wire::node::{ActorSpec, Role, Shape, ToClient, ToNode};

use super::Meter;

/// Of one actor.
pub(super) struct Home {
    pub(super) ns: u64,
    /// Rows that it saves, the first when it is asked for and the last when it lives.
    pub(super) rows: Vec<ActorEntry>,
    /// To other nodes.
    pub(super) words: usize,
}

struct Shell<'a> {
    node: Node,
    now: Instant,
    meter: &'a mut Meter,
    todo: VecDeque<Event>,
    driver: Option<ProcessId>,
    rows: Vec<ActorEntry>,
    words: usize,
    ns: u64,
    alive: usize,
}

/// A driver of this node makes so many actors, one after the other.
pub(super) fn home(node: Node, now: u64, count: u64, meter: &mut Meter) -> Home {
    let (rows, todo) = (Vec::new(), VecDeque::new());
    let now = Instant(now);
    let mut shell = Shell { node, now, meter, todo, driver: None, rows, words: 0, ns: 0, alive: 0 };
    shell.driver_comes();
    (shell.ns, shell.words) = (0, 0);
    shell.rows.clear();
    for seq in 1..=count {
        shell.makes(seq);
    }
    assert_eq!(shell.alive as u64, count, "each actor lives");
    let of_first = shell.rows[0].actor;
    let rows = shell.rows.iter().filter(|row| row.actor == of_first).cloned().collect();
    Home { ns: shell.ns / count, rows, words: shell.words / count as usize }
}

pub(super) fn hello(role: Role) -> ToNode {
    let version = env!("CARGO_PKG_VERSION").to_string();
    ToNode::Hello { protocol: PROTOCOL_VERSION, version, pid: 7, role }
}

impl Shell<'_> {
    fn driver_comes(&mut self) {
        self.hears(Event::Knocked { stranger: 1, pid: 7, message: hello(Role::Driver) });
        self.hears(Event::Told { stranger: 1, pid: 7, message: ToNode::Job(Box::default()) });
    }

    fn makes(&mut self, seq: u64) {
        let from = self.driver.expect("a driver is welcome");
        let spec = ActorSpec {
            actor: ActorId(TaskId { owner: from, seq }),
            class_name: "Counter".to_string(),
            name: String::new(),
            namespace: String::new(),
            detached: false,
            // As by default: a CPU to begin, none to live.
            shape: Shape::of(ResourceSet::from_units([("CPU", 1.0)]).expect("a finite amount")),
            held: ResourceSet::new(),
            max_restarts: 0,
            frame: vec![0; 100],
            contains: vec![],
            handle: vec![0; 200],
            checkpoints: None,
        };
        let spec = Box::new(spec);
        let message = ToNode::ActorCreate { request: seq, spec, get_if_exists: false };
        self.hears(Event::Heard { from, message });
    }

    fn hears(&mut self, event: Event) {
        self.todo.push_back(event);
        while let Some(event) = self.todo.pop_front() {
            let (now, node) = (self.now, &mut self.node);
            let mut effects = Vec::new();
            self.ns += self.meter.run("home: of an actor", || {
                node.handle(now, event, &mut effects);
                effects.len()
            });
            effects.into_iter().for_each(|effect| self.carries_out(effect));
        }
    }

    fn carries_out(&mut self, effect: Effect) {
        match effect {
            Effect::Accept { process, .. } => self.driver = Some(process),
            Effect::Fork { process, .. } => {
                let pid = 1000 + process.slot() as u32;
                self.todo.push_back(Event::Forked { process, pid });
                let message = hello(Role::Worker);
                self.todo.push_back(Event::Heard { from: process, message });
            }
            Effect::Send { to, message: ToClient::RunActor { spec, incarnation, .. } } => {
                let result = Ok(());
                let message = ToNode::ActorStarted { actor: spec.actor, incarnation, result };
                self.todo.push_back(Event::Heard { from: to, message });
                self.alive += 1;
            }
            Effect::Save { key, value, .. } if key.table == Table::Actor => {
                self.rows.push(read(value).expect("it is an actor's"));
            }
            Effect::SendPeer { .. } => self.words += 1,
            Effect::Sweep => {
                self.todo.extend([Event::SweepBegins, Event::Swept]);
            }
            _ => {}
        }
    }
}

fn read(value: Vec<u8>) -> Result<ActorEntry, RowError> {
    ActorEntry::from_row(&Row { value, version: 1, index: 1, finished: false })
}
