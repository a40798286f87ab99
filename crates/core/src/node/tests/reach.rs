//! References over several nodes, at random: what somebody reaches is known at its home, and what nobody reaches goes.
//!
//! Deciders, their directories and claims are real. Processes are lists of refs with sockets that are read late; frames and words
//! of two nodes are one queue, delivered late and in order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hoplo_wire::Value;
use hoplo_wire::node::Obituary;

use super::far::{node_entry, number};
use super::*;
use crate::control::NodeState;
use crate::node::Passing;
use crate::node::far::Sabotage;

struct World {
    rng: u64,
    shells: Vec<Shell>,
    alive: Vec<bool>,
    processes: Vec<Process>,
    /// From node to node, in order.
    links: BTreeMap<(usize, usize), VecDeque<Item>>,
    calls: BTreeMap<u64, Call>,
    /// Calls of dead callers, whose workers have not heard of that.
    bereft: Vec<Call>,
    connected: BTreeSet<(usize, usize)>,
    sweeping: Vec<bool>,
    /// This link is slower than the others, so that words by way of a third node are faster.
    slow: (usize, usize),
    index: u64,
    tags: u64,
    story: Vec<String>,
}

struct Process {
    id: ProcessId,
    node: usize,
    socket: VecDeque<Said>,
    /// Whose ends it was told and has not read.
    ends: VecDeque<ProcessId>,
    is_dead: bool,
    /// Tokens, as the process counts them.
    tokens: BTreeMap<ObjectId, u32>,
    seq: u64,
    made: BTreeMap<ObjectId, Vec<ObjectId>>,
}

/// What a process wrote to its socket.
#[derive(Debug)]
enum Said {
    Notice(Notice),
    TookOver { caller: ProcessId },
}

/// `None` in `passing`: a word of a decider.
#[derive(Debug)]
enum Item {
    Word { cover: u64, message: Box<hoplo_wire::peer::Peer> },
    Frame { cover: u64, frame: Passing },
}

#[derive(Debug, Clone)]
struct Call {
    caller: usize,
    worker: usize,
    named: Vec<ObjectId>,
    arrived: bool,
    replied: bool,
}

impl World {
    fn new(seed: u64, nodes: usize) -> Self {
        let shell = |at: usize| Shell::with(|config| config.node = number(at));
        let mut world = Self {
            rng: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            shells: (0..nodes).map(shell).collect(),
            alive: vec![true; nodes],
            processes: Vec::new(),
            links: BTreeMap::new(),
            calls: BTreeMap::new(),
            bereft: Vec::new(),
            connected: BTreeSet::new(),
            sweeping: vec![false; nodes],
            slow: (seed as usize % nodes, seed as usize / nodes % nodes),
            index: 10,
            tags: 0,
            story: Vec::new(),
        };
        for at in 0..nodes {
            world.tell_row(at, NodeState::Alive);
        }
        for node in 0..nodes {
            for _ in 0..2 {
                let id = world.shells[node].driver();
                world.processes.push(Process {
                    id,
                    node,
                    socket: VecDeque::new(),
                    ends: VecDeque::new(),
                    is_dead: false,
                    tokens: BTreeMap::new(),
                    seq: 0,
                    made: BTreeMap::new(),
                });
            }
        }
        world
    }

    fn tell_row(&mut self, at: usize, state: NodeState) {
        self.index += 1;
        let index = self.index;
        for (to, shell) in self.shells.iter_mut().enumerate() {
            if self.alive[to] || to == at {
                let entry = Box::new(node_entry(at, state.clone()));
                shell.hears(Event::Member { entry, index });
            }
        }
        self.collect();
    }

    fn random(&mut self, below: usize) -> usize {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        (self.rng >> 33) as usize % below.max(1)
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Vec<T> {
        let mut picked = Vec::new();
        for one in from {
            if self.random(3) == 0 {
                picked.push(one.clone());
            }
        }
        picked
    }

    fn log(&mut self, text: String) {
        self.story.push(text);
    }

    /// What deciders want from their shells now.
    fn collect(&mut self) {
        for at in 0..self.shells.len() {
            for effect in std::mem::take(&mut self.shells[at].effects) {
                match effect {
                    Effect::SendPeer { to, cover, message } => {
                        let to = (0..).find(|other| number(*other) == to).unwrap();
                        let item = Item::Word { cover, message };
                        self.links.entry((at, to)).or_default().push_back(item);
                    }
                    Effect::Sweep => self.sweeping[at] = true,
                    Effect::Settle { epoch } => {
                        for dead in 0..self.shells.len() {
                            if !self.alive[dead] {
                                let (why, died) = (String::new(), epoch);
                                self.settle(dead, NodeState::Settled { why, heir: None, died });
                            }
                        }
                    }
                    Effect::Send { to, message: ToClient::ProcessGone { process, .. } } => {
                        let mut all = self.processes.iter_mut();
                        all.find(|it| it.id == to).expect("it is known").ends.push_back(process);
                    }
                    Effect::Log { text } => assert!(!text.contains("protocol"), "{text}"),
                    _ => {}
                }
            }
        }
    }

    fn settle(&mut self, dead: usize, state: NodeState) {
        self.index += 1;
        for to in 0..self.shells.len() {
            if self.alive[to] {
                let entry = Box::new(node_entry(dead, state.clone()));
                let index = self.index;
                self.shells[to].hears(Event::Member { entry, index });
            }
        }
    }

    fn read_socket(&mut self, process: usize) {
        let Process { id, node, socket, .. } = &mut self.processes[process];
        let (id, node) = (*id, *node);
        for said in socket.drain(..).collect::<Vec<_>>() {
            let message = match said {
                Said::Notice(notice) => ToNode::Notices(vec![notice]),
                Said::TookOver { caller } => ToNode::TookOver { caller },
            };
            if self.alive[node] {
                self.shells[node].says(id, message);
            }
        }
        self.collect();
    }

    /// A worker hears that a caller is gone, and keeps some of what it got in its calls. What lies in a value whose home is dead it may never have read.
    fn takes_over(&mut self, worker: usize) {
        let Some(caller) = self.processes[worker].ends.pop_front() else { return };
        let is_its = |call: &Call, processes: &[Process]| {
            call.worker == worker && processes[call.caller].id == caller
        };
        let mut its: Vec<Call> =
            self.bereft.extract_if(.., |it| is_its(it, &self.processes)).collect();
        let under_way = self.calls.extract_if(.., |_, it| is_its(it, &self.processes));
        its.extend(under_way.map(|(_, call)| call).filter(|call| call.arrived && !call.replied));
        for call in its {
            let mut reached = call.named.clone();
            for outer in &call.named {
                let maker = self.processes.iter().find(|it| it.made.contains_key(outer));
                if let Some(maker) = maker.filter(|it| self.alive[it.node]) {
                    let inner = maker.made[outer].clone();
                    reached.extend(self.pick(&inner));
                }
            }
            let kept = self.pick(&reached);
            self.log(format!("process {worker} keeps {kept:?} of a call of a dead caller"));
            self.keeps(worker, &kept);
        }
        self.processes[worker].socket.push_back(Said::TookOver { caller });
    }

    fn keeps(&mut self, process: usize, kept: &[ObjectId]) {
        let process = &mut self.processes[process];
        for object in kept {
            let notice = Notice::Hold { object: *object, process: process.id };
            process.socket.push_back(Said::Notice(notice));
            *process.tokens.entry(*object).or_default() += 1;
        }
    }

    fn sweep(&mut self, at: usize) {
        self.sweeping[at] = false;
        self.shells[at].hears(Event::SweepBegins);
        for process in 0..self.processes.len() {
            if self.processes[process].node == at {
                self.read_socket(process);
            }
        }
        self.shells[at].hears(Event::Swept);
        self.collect();
    }

    fn put(&mut self, process: usize) {
        let held: Vec<ObjectId> = self.processes[process].tokens.keys().copied().collect();
        let contains = self.pick(&held);
        let it = &mut self.processes[process];
        it.seq += 1;
        let object = TaskId { owner: it.id, seq: it.seq }.object(0);
        let value = Value::Inline((*b"x").into());
        let state = SharedState::Value { value, contains: contains.clone() };
        it.socket.push_back(Said::Notice(Notice::Shared { object, state }));
        it.tokens.insert(object, 1);
        it.made.insert(object, contains.clone());
        self.log(format!("process {process} puts {object} with {contains:?}"));
    }

    fn passes(&mut self, at: usize, frame: Passing) -> u64 {
        self.shells[at].hears(Event::Passing { ticket: 1, frame });
        let cover = self.shells[at].take(|effect| match effect {
            Effect::Go { ticket: 1, cover } => Some(*cover),
            _ => None,
        });
        self.collect();
        cover.expect("it goes on")
    }

    /// The first process, which nobody calls, and which has just called everybody.
    fn caller_dies(&mut self) {
        self.put(0);
        for worker in 1..self.processes.len() {
            self.call(0, worker);
        }
        for to in 1..self.shells.len() {
            while self.links.get(&(0, to)).is_some_and(|link| !link.is_empty()) {
                self.deliver(0, to);
            }
        }
        self.log("process 0 dies".to_string());
        let it = &mut self.processes[0];
        (it.is_dead, it.tokens) = (true, BTreeMap::new());
        self.read_socket(0);
        let process = self.processes[0].id;
        self.shells[0].hears(Event::Closed { process });
        self.shells[0].hears(Event::Unmapped { process });
        self.collect();
        // Nodes are faster than the workers.
        for _ in 0..4 {
            self.nodes_go_on();
        }
    }

    fn lives(&self, process: usize) -> bool {
        self.alive[self.processes[process].node] && !self.processes[process].is_dead
    }

    fn call(&mut self, caller: usize, worker: usize) {
        let (from, to) = (self.processes[caller].node, self.processes[worker].node);
        if from == to || !self.lives(caller) || !self.lives(worker) || worker == 0 {
            return;
        }
        let held: Vec<ObjectId> = self.processes[caller].tokens.keys().copied().collect();
        let named = self.pick(&held);
        self.tags += 1;
        let tag = self.tags;
        self.log(format!("process {caller} calls {worker} with {named:?} ({tag})"));
        let call = Call { caller, worker, named: named.clone(), arrived: false, replied: false };
        self.calls.insert(tag, call);
        self.read_socket(caller);
        if self.connected.insert((caller, worker)) {
            let (id, to) = (self.processes[caller].id, self.processes[worker].id);
            self.shells[from].says(id, ToNode::Connect { to });
            self.collect();
        }
        let frame = Passing {
            caller: self.processes[caller].id,
            worker: self.processes[worker].id,
            tag,
            is_reply: false,
            arrived: None,
            named,
            is_last: false,
        };
        let cover = self.passes(from, frame.clone());
        self.links.entry((from, to)).or_default().push_back(Item::Frame { cover, frame });
    }

    /// The worker keeps some of what it got, reads into some, and returns some of what it has.
    fn reply(&mut self, tag: u64) {
        let Call { caller, worker, named, .. } = self.calls[&tag].clone();
        let (from, to) = (self.processes[worker].node, self.processes[caller].node);
        let worker_id = self.processes[worker].id;
        let mut reached = named.clone();
        for outer in named {
            let mut all = self.processes.iter();
            if let Some(inner) = all.find_map(|it| it.made.get(&outer)).cloned() {
                reached.extend(self.pick(&inner));
            }
        }
        let kept = self.pick(&reached);
        self.keeps(worker, &kept);
        let held: Vec<ObjectId> = self.processes[worker].tokens.keys().copied().collect();
        let named = self.pick(&held);
        self.log(format!("process {worker} keeps {kept:?} and replies {named:?} ({tag})"));
        self.calls.get_mut(&tag).unwrap().replied = true;
        self.read_socket(worker);
        let frame = Passing {
            caller: self.processes[caller].id,
            worker: worker_id,
            tag,
            is_reply: true,
            arrived: None,
            named,
            is_last: true,
        };
        let cover = self.passes(from, frame.clone());
        self.links.entry((from, to)).or_default().push_back(Item::Frame { cover, frame });
    }

    fn deliver(&mut self, from: usize, to: usize) {
        let Some(item) = self.links.get_mut(&(from, to)).and_then(VecDeque::pop_front) else {
            return;
        };
        if !self.alive[to] {
            return;
        }
        match item {
            Item::Word { cover, message } => {
                self.shells[to].hears(Event::Peer { from: number(from), cover, message });
                self.collect();
            }
            Item::Frame { cover, frame } => {
                let arrived = Passing { arrived: Some(cover), ..frame.clone() };
                self.passes(to, arrived);
                // Absent: its worker has heard that the caller is dead.
                if frame.is_reply {
                    let call = self.calls.remove(&frame.tag);
                    let caller = call.map(|call| call.caller).filter(|caller| self.lives(*caller));
                    if let Some(caller) = caller {
                        for object in frame.named {
                            *self.processes[caller].tokens.entry(object).or_default() += 1;
                        }
                    }
                } else {
                    self.calls.get_mut(&frame.tag).unwrap().arrived = true;
                }
            }
        }
    }

    /// Lets go of something that no call of its own is under way with.
    fn release(&mut self, process: usize) {
        let mut in_use = BTreeSet::new();
        for call in self.calls.values().filter(|call| call.caller == process) {
            in_use.extend(call.named.iter().copied());
        }
        let held = self.processes[process].tokens.iter();
        let free: Vec<(ObjectId, u32)> =
            held.map(|(it, count)| (*it, *count)).filter(|(it, _)| !in_use.contains(it)).collect();
        for (object, tokens) in self.pick(&free) {
            self.processes[process].tokens.remove(&object);
            let notice = Notice::Released { object, tokens };
            self.processes[process].socket.push_back(Said::Notice(notice));
            self.log(format!("process {process} drops {object}"));
        }
    }

    fn node_dies(&mut self, at: usize) {
        self.log(format!("node {at} dies"));
        // Whatever is on its way from it arrives before the verdict, or not at all.
        for to in 0..self.shells.len() {
            let arrive = self.random(2) == 0;
            while arrive && self.links.get(&(at, to)).is_some_and(|link| !link.is_empty()) {
                self.deliver(at, to);
            }
            self.links.remove(&(at, to));
        }
        self.alive[at] = false;
        self.sweeping[at] = false;
        let of = |world: &Self, process: usize| world.processes[process].node;
        let ended: Vec<u64> = self
            .calls
            .iter()
            .filter(|(_, call)| of(self, call.caller) == at || of(self, call.worker) == at)
            .map(|(tag, _)| *tag)
            .collect();
        for tag in ended {
            let call = self.calls.remove(&tag).expect("it is under way");
            if of(self, call.worker) != at && call.arrived && !call.replied {
                self.bereft.push(call);
            }
        }
        for process in self.processes.iter_mut().filter(|process| process.node == at) {
            process.tokens.clear();
            process.socket.clear();
        }
        for (caller, worker) in self.connected.clone() {
            let node = self.processes[caller].node;
            if self.processes[worker].node == at && self.alive[node] {
                let (caller, worker) = (self.processes[caller].id, self.processes[worker].id);
                let cause = DeathCause::Stopped { reason: "it fell".to_string() };
                let obituary = Obituary { pid: 0, cause, last_lines: vec![] };
                let unstarted = vec![];
                self.shells[node].hears(Event::ChannelEnded {
                    caller,
                    worker,
                    unstarted,
                    obituary,
                });
            }
        }
        self.tell_row(at, NodeState::dead("it fell"));
    }

    /// Each object that a living process has a token of, or that lies in such an object, is known at a living home.
    fn check_reach(&self) {
        let made: BTreeMap<ObjectId, &Vec<ObjectId>> = self
            .processes
            .iter()
            .flat_map(|it| it.made.iter().map(|(object, contains)| (*object, contains)))
            .collect();
        for (at, process) in self.processes.iter().enumerate() {
            let told: BTreeSet<ObjectId> = process
                .socket
                .iter()
                .filter_map(|said| match said {
                    Said::Notice(Notice::Shared { object, .. }) => Some(*object),
                    _ => None,
                })
                .collect();
            let mut reached: Vec<ObjectId> = process.tokens.keys().copied().collect();
            let mut seen = BTreeSet::new();
            while let Some(object) = reached.pop() {
                if !seen.insert(object) || told.contains(&object) {
                    continue;
                }
                let home = (0..).find(|it| number(*it) == object.task.owner.node()).unwrap();
                if !self.alive[home] {
                    continue;
                }
                let maker = self.processes.iter().position(|it| it.made.contains_key(&object));
                let maker = &self.processes[maker.unwrap()];
                let untold = maker.socket.iter().any(
                    |said| matches!(said, Said::Notice(Notice::Shared { object: told, .. }) if *told == object),
                );
                let known = untold || self.shells[home].node.objects.knows(object);
                assert!(known, "{object} is gone, and process {at} reaches it: {:#?}", self.story);
                reached.extend(made[&object].iter().copied());
            }
        }
    }

    fn step(&mut self) {
        let processes = self.processes.len();
        let nodes = self.shells.len();
        match self.random(13) {
            0 => {
                let process = self.random(processes);
                if self.lives(process) {
                    self.put(process);
                }
            }
            1 | 2 => {
                let (caller, worker) = (self.random(processes), self.random(processes));
                self.call(caller, worker);
            }
            3 | 4 => {
                let ready = self.calls.iter().filter(|(_, call)| call.arrived && !call.replied);
                let ready: Vec<u64> = ready.map(|(tag, _)| *tag).collect();
                if !ready.is_empty() {
                    let at = self.random(ready.len());
                    self.reply(ready[at]);
                }
            }
            5 => {
                let process = self.random(processes);
                if self.lives(process) {
                    self.release(process);
                }
            }
            6 => {
                let process = self.random(processes);
                self.read_socket(process);
            }
            7 | 8 => {
                let at = self.random(nodes);
                if self.sweeping[at] {
                    self.sweep(at);
                }
            }
            9 => {
                let process = self.random(processes);
                self.takes_over(process);
            }
            _ => {
                let (from, to) = (self.random(nodes), self.random(nodes));
                if (from, to) != self.slow || self.random(12) == 0 {
                    self.deliver(from, to);
                }
            }
        }
        self.check_reach();
    }

    /// Everything arrives, and all sockets are read where a node wants that.
    fn nodes_go_on(&mut self) -> bool {
        let links: Vec<(usize, usize)> = self.links.keys().copied().collect();
        let mut moved = false;
        for (from, to) in links {
            while self.links[&(from, to)].front().is_some() {
                self.deliver(from, to);
                moved = true;
            }
        }
        for at in 0..self.shells.len() {
            if self.sweeping[at] {
                self.sweep(at);
                moved = true;
            }
        }
        moved
    }

    /// Everything arrives, everybody lets go: nothing is left anywhere.
    fn settles(&mut self) {
        for round in 0.. {
            assert!(round < 400, "it does not come to rest: {:#?}", self.story);
            let before = self.story.len();
            let replies = self.calls.iter().filter(|(_, call)| call.arrived && !call.replied);
            for tag in replies.map(|(tag, _)| *tag).collect::<Vec<_>>() {
                self.reply(tag);
            }
            for process in 0..self.processes.len() {
                self.takes_over(process);
                self.release(process);
                self.read_socket(process);
            }
            let moved = self.nodes_go_on();
            let holds = self.processes.iter().any(|process| !process.tokens.is_empty());
            if !moved && !holds && self.story.len() == before {
                break;
            }
        }
        for (at, shell) in self.shells.iter().enumerate().filter(|(at, _)| self.alive[*at]) {
            let left = shell.node.objects.listing().count();
            assert_eq!(left, 0, "objects are left at node {at}: {:#?}", self.story);
            let left = shell.node.what_is_left();
            assert!(shell.node.is_quiet(), "at node {at} is left: {left}: {:#?}", self.story);
        }
    }
}

/// Each takes a tenth of a second in a debug build.
const SEEDS: u64 = 80;

#[derive(Clone, Copy)]
enum Dies {
    Node,
    Caller,
}

fn runs(seed: u64, deaths: Option<Dies>) {
    runs_with(seed, deaths, None);
}

fn runs_with(seed: u64, deaths: Option<Dies>, sabotage: Option<Sabotage>) {
    let mut world = World::new(seed, 3);
    for shell in &mut world.shells {
        shell.node.far.sabotage = sabotage;
    }
    for step in 0..300 {
        world.step();
        match (deaths, step) {
            (Some(Dies::Node), 120) => world.node_dies(2),
            (Some(Dies::Caller), 120) => world.caller_dies(),
            _ => {}
        }
    }
    world.settles();
}

#[test]
fn what_is_reached_over_nodes_stays_and_what_is_not_goes() {
    for seed in 1..=SEEDS {
        runs(seed, None);
    }
}

#[test]
fn what_is_reached_stays_though_a_node_dies_and_nothing_is_left_of_the_rest() {
    for seed in 1..=SEEDS {
        runs(seed, Some(Dies::Node));
    }
}

/// REF-2: it went with the caller, though its calls went on.
#[test]
fn what_calls_of_a_dead_caller_name_stays_until_their_workers_have_told_what_they_keep() {
    for seed in 1..=SEEDS {
        runs(seed, Some(Dies::Caller));
    }
}

/// That what came in a call is held (FAR-3), and NREF-6, need longer chains than are met here: 1,600 seeds do not miss them. The
/// simulation of several nodes misses the first (`crates/sim/tests/nodes_sabotage.rs`), the model check of the claims the other.
#[test]
fn each_rule_that_is_taken_away_is_missed() {
    std::panic::set_hook(Box::new(|_| {})); // what is found is a panic each
    let rules = [
        (Sabotage::Cover, None),
        (Sabotage::Crossing, None),
        (Sabotage::End, None),
        (Sabotage::TakeOver, Some(Dies::Caller)),
    ];
    let missed = rules.map(|(rule, dies)| {
        let found = (1..=SEEDS)
            .find(|seed| std::panic::catch_unwind(|| runs_with(*seed, dies, Some(rule))).is_err());
        (rule, found)
    });
    let _ = std::panic::take_hook();
    assert!(missed.iter().all(|(_, found)| found.is_some()), "{missed:?}");
}
