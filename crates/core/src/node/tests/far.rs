//! Several nodes, wired to each other without a network: what their deciders make of each other's words.

mod bytes;
mod bytes_model;

use hoplo_wire::call::{CallView, encode_refs};
use hoplo_wire::control::{Key, Refusal, Table};
use hoplo_wire::node::{ActorState, Checkpoints, LoggedCall, Obituary};
use hoplo_wire::object::{RefArgument, ValueView};
use hoplo_wire::{Location, Value};

use super::*;
use crate::control::{Entry, FunctionEntry, NodeEntry, NodeState};
use crate::node::{Passing, Rows};

mod bars;
mod copies;
mod demands;
mod drain;
mod estates;
mod groups;
mod jobs;
mod legacies;
mod names;
mod queries;
mod replies;
mod unheard;
mod values;

pub(super) struct Nodes {
    shells: Vec<Shell>,
    index: u64,
    head: usize,
    /// What goes to it is lost.
    stuck: Option<usize>,
}

fn shell(at: usize) -> Shell {
    Shell::with(|config| {
        (config.node, config.clustered) = (number(at), true);
        config.resources = cpus(at as f64 + 1.0);
    })
}

pub(super) fn number(at: usize) -> NodeNumber {
    (0..at).fold(NodeNumber::first_given(0), |number, _| number.next_given())
}

/// The call of a constructor with an argument that lies in the store of its home.
fn constructor(actor: ActorId) -> Vec<u8> {
    let (task, function, job) = (actor.0, FunctionId([1; 16]), JobId(0));
    let (kind, flags, returns, attempt, max_calls) = (CallKind::Create, 0, 0, 0, 0);
    let header = CallHeader { kind, flags, returns, task, attempt, max_calls, function, job };
    let mut frame = header.encode(1, 0, 0).to_vec();
    let value = hoplo_wire::Value::Stored(Location { slot: 1, generation: 2, offset: 0, len: 3 });
    encode_refs(&[RefArgument { object: task.object(7), value }], &mut frame);
    frame
}

fn cpus(count: f64) -> ResourceSet {
    ResourceSet::from_units([("CPU", count)]).unwrap()
}

/// The first one is the head.
pub(super) fn node_entry(at: usize, state: NodeState) -> NodeEntry {
    NodeEntry {
        node: number(at),
        head: at == 0,
        hostname: format!("host{at}"),
        resources: cpus(at as f64 + 1.0),
        labels: Default::default(),
        store_bytes: 0,
        session_dir: String::new(),
        pid: 1,
        address: "somewhere".to_string(),
        state,
    }
}

impl Nodes {
    /// A frame goes by the decider of a node: under which cover.
    fn passes(&mut self, at: usize, frame: Passing) -> u64 {
        self.shells[at].hears(Event::Passing { ticket: 1, frame });
        let cover = self.shells[at].take(|effect| match effect {
            Effect::Go { ticket: 1, cover } => Some(*cover),
            _ => None,
        });
        self.pump();
        cover.expect("it goes on")
    }

    /// A driver at node 0 shares a small value of its own and names it in a call: that, and the call's frame.
    fn calls_with_a_value(&mut self, driver: ProcessId, worker: ProcessId) -> (ObjectId, Passing) {
        let object = ObjectId { task: TaskId { owner: driver, seq: 3 }, index: 0 };
        let value = hoplo_wire::Value::Inline((*b"x").into());
        let state = SharedState::Value { value, contains: vec![] };
        self.says(0, driver, ToNode::Notices(vec![Notice::Shared { object, state }]));
        let frame = Passing {
            caller: driver,
            worker,
            tag: 1,
            is_reply: false,
            arrived: None,
            named: vec![object],
            is_last: false,
        };
        (object, frame)
    }

    /// Node n has n + 1 CPUs; the first one is the head.
    fn new(count: usize) -> Self {
        let shells = (0..count).map(shell).collect();
        let mut nodes = Self { shells, index: 10, head: 0, stuck: None };
        for at in 0..count {
            nodes.row(at, NodeState::Alive);
        }
        nodes
    }

    /// Everybody hears it.
    fn row(&mut self, at: usize, state: NodeState) {
        let everybody: Vec<usize> = (0..self.shells.len()).collect();
        self.tells_row(&everybody, at, state);
    }

    fn joins(&mut self) {
        let at = self.shells.len();
        self.shells.push(shell(at));
        for other in 0..at {
            self.tells_row(&[at], other, NodeState::Alive);
        }
        self.row(at, NodeState::Alive);
    }

    /// A head takes the place of the one that is dead.
    fn joins_as_head(&mut self) {
        let at = self.begins_as_head();
        self.row(at, NodeState::Alive);
    }

    /// The others do not hear of it yet.
    fn begins_as_head(&mut self) -> usize {
        self.begins_as_head_with(Rows::default())
    }

    fn begins_as_head_with(&mut self, rows: Rows) -> usize {
        let at = self.shells.len();
        let nodes = (1..at).map(|other| node_entry(other, NodeState::Alive)).collect();
        let mut head = shell(at);
        head.node.recall(Rows { nodes, ..rows }, &mut head.effects);
        self.shells.push(head);
        self.head = at;
        for other in 1..at {
            self.tells_row(&[at], other, NodeState::Alive);
        }
        at
    }

    fn tells_row(&mut self, whom: &[usize], at: usize, state: NodeState) {
        self.index += 1;
        let head = at == self.head;
        let entry = NodeEntry { head, ..node_entry(at, state) };
        let index = self.index;
        for at in whom {
            let entry = Box::new(entry.clone());
            self.shells[*at].hears(Event::Member { entry, index });
        }
        self.pump();
    }

    fn dies(&mut self, at: usize) {
        self.row(at, NodeState::dead("it fell"));
    }

    /// All that live have passed its death.
    fn settles(&mut self, at: usize) {
        let died = self.index;
        self.row(at, NodeState::Settled { why: "it fell".to_string(), heir: None, died });
    }

    fn says(&mut self, at: usize, from: ProcessId, message: ToNode) {
        self.shells[at].says(from, message);
        self.pump();
    }

    /// Words arrive, and sweeps end, until nobody has any.
    fn pump(&mut self) {
        loop {
            let mut moved = false;
            for at in 0..self.shells.len() {
                let peer = self.shells[at].take(|effect| match effect {
                    Effect::SendPeer { to, cover, message } => Some((*to, *cover, message.clone())),
                    _ => None,
                });
                if let Some((to, cover, message)) = peer {
                    moved = true;
                    let to = (0..).find(|at| number(*at) == to).unwrap();
                    if self.stuck == Some(to) {
                        continue;
                    }
                    self.shells[to].hears(Event::Peer { from: number(at), cover, message });
                    continue;
                }
                moved |= self.sweeps(at) | self.writes_group(at);
            }
            if !moved {
                return;
            }
        }
    }

    /// True if that node had asked for the row of a group to be written.
    fn writes_group(&mut self, at: usize) -> bool {
        let asked = self.shells[at].take(|effect| match effect {
            Effect::Ask { ask, question: Question::Put { key, .. } }
                if key.table == Table::PlacementGroup =>
            {
                Some(*ask)
            }
            _ => None,
        });
        let Some(ask) = asked else { return false };
        self.shells[at].hears(Event::Answered { ask, answer: Answer::Written(Ok(())) });
        true
    }

    /// True if that node had asked for it.
    fn sweeps(&mut self, at: usize) -> bool {
        self.shells[at].sweeps()
    }

    /// A worker of node `at` says hello.
    fn forks(&mut self, at: usize) -> ProcessId {
        let worker = self.shells[at].forked().expect("it forks");
        self.shells[at].hears(Event::Forked { process: worker, pid: 42 });
        self.says(at, worker, hello(Role::Worker));
        worker
    }

    fn demand(&mut self, driver: ProcessId, count: f64) {
        let shape = Shape::of(cpus(count));
        self.says(0, driver, ToNode::LeaseDemand { key: 1, shape: shape.into(), wanted: 1 });
    }

    fn granted(&mut self, driver: ProcessId) -> (hoplo_base::LeaseId, ProcessId) {
        let granted = self.shells[0].told(driver, |message| match message {
            ToClient::LeaseGranted { lease, key: 1, worker, .. } => Some((*lease, *worker)),
            _ => None,
        });
        granted.expect("a lease is granted")
    }

    /// A driver of the first node with a lease on a worker of the second.
    fn leased() -> (Self, ProcessId, hoplo_base::LeaseId, ProcessId) {
        let mut nodes = Self::new(2);
        let driver = nodes.shells[0].driver();
        nodes.demand(driver, 2.0);
        let forked = nodes.forks(1);
        let (lease, worker) = nodes.granted(driver);
        assert_eq!((worker, lease.node()), (forked, number(1)));
        (nodes, driver, lease, worker)
    }

    fn gone(&mut self, at: usize, whom: ProcessId) -> Option<(ProcessId, String)> {
        self.shells[at].told(whom, |message| match message {
            ToClient::ProcessGone { process, obituary, .. } => {
                Some((*process, obituary.headline()))
            }
            _ => None,
        })
    }

    fn ends(&mut self, at: usize, worker: ProcessId) {
        self.shells[at].hears(Event::Closed { process: worker });
        self.shells[at].hears(Event::Ended { process: worker, status_follows: true });
        self.shells[at].hears(Event::Exited { process: worker, status: -9 });
        self.shells[at].examines(worker);
        self.pump();
    }

    /// What the process heard of the function that it asked for.
    fn function_told(&mut self, at: usize, process: ProcessId) -> Option<Option<Vec<u8>>> {
        self.shells[at].told(process, |message| match message {
            ToClient::Function { bytes, .. } => Some(bytes.clone()),
            _ => None,
        })
    }

    fn state_told(&mut self, driver: ProcessId) -> Option<ActorState> {
        self.shells[0].told(driver, |message| match message {
            ToClient::ActorState { state, .. } => Some(state.clone()),
            _ => None,
        })
    }

    /// An actor that needs so many CPUs.
    fn actor(&mut self, creator: ProcessId, count: f64, contains: Vec<ObjectId>) -> ActorId {
        self.actor_with(creator, count, contains, None)
    }

    /// One with checkpoints may restart.
    fn actor_with(
        &mut self,
        creator: ProcessId,
        count: f64,
        contains: Vec<ObjectId>,
        checkpoints: Option<Checkpoints>,
    ) -> ActorId {
        let actor = ActorId(TaskId { owner: creator, seq: 9 });
        let spec = ActorSpec {
            actor,
            class_name: "Echo".to_string(),
            name: String::new(),
            namespace: String::new(),
            detached: false,
            shape: Shape::of(cpus(count)),
            held: ResourceSet::new(),
            max_restarts: if checkpoints.is_some() { -1 } else { 0 },
            checkpoints,
            frame: constructor(actor),
            contains,
            handle: vec![],
        };
        let spec = Box::new(spec);
        let at = (0..).find(|at| number(*at) == creator.node()).unwrap();
        self.says(at, creator, ToNode::ActorCreate { request: 0, spec, get_if_exists: false });
        self.says(at, creator, ToNode::ActorWatch { actor });
        actor
    }
}

#[test]
fn a_lease_on_a_worker_of_another_node_is_granted_used_and_given_back() {
    let (mut nodes, driver, lease, worker) = Nodes::leased();
    let job = nodes.shells[0].node.process(driver).unwrap().job;
    assert_eq!(nodes.shells[1].node.job(job).unwrap().driver, driver, "it was told of the job");
    nodes.says(0, driver, ToNode::Connect { to: worker });
    let (caller, opened) = (driver, Effect::OpenFar { caller: driver, worker });
    assert!(nodes.shells[0].take(|effect| (*effect == opened).then_some(())).is_some());
    let served = Effect::ServeFar { caller, worker };
    assert!(nodes.shells[1].take(|effect| (*effect == served).then_some(())).is_some());
    nodes.says(0, driver, ToNode::LeaseReturn { lease });
    assert_eq!(nodes.shells[1].node.scheduler.leases().count(), 0);
}

#[test]
fn when_a_driver_leaves_nothing_of_its_job_stays_on_other_nodes() {
    let (mut nodes, driver, _, worker) = Nodes::leased();
    nodes.says(0, driver, ToNode::Connect { to: worker });
    nodes.shells[0].hears(Event::Closed { process: driver });
    nodes.pump();
    let closed = Effect::CloseFar { caller: driver, worker };
    for at in 0..2 {
        let closed = nodes.shells[at].take(|effect| (*effect == closed).then_some(()));
        assert!(closed.is_some(), "node {at}");
    }
    let exit = nodes.shells[1].told(worker, |message| match message {
        ToClient::Exit { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    assert!(exit.is_some(), "its worker ends");
    nodes.ends(1, worker);
    assert_eq!(nodes.shells[1].node.scheduler.leases().count(), 0);
    assert!(nodes.shells[1].node.jobs().all(|job| job.ended_us.is_some()));
}

#[test]
fn who_has_a_lease_and_no_channel_hears_when_its_worker_dies_elsewhere() {
    let (mut nodes, driver, _, worker) = Nodes::leased();
    nodes.ends(1, worker);
    assert_eq!(nodes.gone(0, driver).map(|gone| gone.0), Some(worker));
    assert_eq!(nodes.gone(0, driver), None, "once");
}

#[test]
fn who_has_a_channel_hears_it_behind_the_last_reply() {
    let (mut nodes, driver, _, worker) = Nodes::leased();
    nodes.says(0, driver, ToNode::Connect { to: worker });
    nodes.ends(1, worker);
    assert_eq!(nodes.gone(0, driver), None, "replies may be on their way");
    let gone = nodes.shells[1].take(|effect| match effect {
        Effect::WorkerGone { caller, worker: w, obituary } if *w == worker => {
            Some((*caller, obituary.clone()))
        }
        _ => None,
    });
    let (caller, obituary): (ProcessId, Obituary) = gone.expect("the carrier is told");
    let unstarted = vec![3];
    nodes.shells[0].hears(Event::ChannelEnded { caller, worker, unstarted, obituary });
    let told = nodes.shells[0].told(driver, |message| match message {
        ToClient::ProcessGone { process, unstarted, .. } if *process == worker => {
            Some(unstarted.clone())
        }
        _ => None,
    });
    assert_eq!(told, Some(vec![3]));
}

/// It was told at once that its worker "is not on this node any more".
#[test]
fn who_called_a_dying_worker_of_another_node_hears_how_it_died() {
    let (mut nodes, driver, _, worker) = Nodes::leased();
    nodes.shells[1].hears(Event::Closed { process: worker });
    nodes.says(0, driver, ToNode::Connect { to: worker });
    nodes.ends(1, worker);
    let mut gone = || {
        nodes.shells[1].take(|effect| match effect {
            Effect::WorkerGone { worker: w, obituary, .. } if *w == worker => {
                Some(obituary.cause.clone())
            }
            _ => None,
        })
    };
    assert_eq!(gone(), Some(DeathCause::Signaled { signal: 9 }));
    assert_eq!(gone(), None, "once");
}

/// A worker that was called by who it calls lost the reply that was on its way.
#[test]
fn who_calls_back_hears_of_its_callers_end_behind_the_last_reply() {
    let (mut nodes, driver, _, worker) = Nodes::leased();
    nodes.says(0, driver, ToNode::Connect { to: worker });
    nodes.says(1, worker, ToNode::Connect { to: driver });
    nodes.ends(1, worker);
    assert_eq!(nodes.gone(0, driver), None, "replies may be on their way");
}

#[test]
fn a_node_that_dies_takes_its_workers_along_and_who_leased_them_hears_why() {
    let (mut nodes, driver, _, worker) = Nodes::leased();
    nodes.dies(1);
    let (process, text) = nodes.gone(0, driver).expect("it is told");
    assert_eq!(process, worker);
    assert!(text.contains("it fell"), "{text}");
    // And the other way round: drivers of a dead node leave nothing here.
    let (mut nodes, _, _, worker) = Nodes::leased();
    nodes.dies(0);
    let exit = nodes.shells[1].told(worker, |message| match message {
        ToClient::Exit { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    assert!(exit.is_some());
    nodes.ends(1, worker);
    assert_eq!(nodes.shells[1].node.scheduler.leases().count(), 0);
}

/// It was cut off for so long that all others had passed its death.
#[test]
fn a_node_that_heard_late_that_its_own_death_was_settled_panicked() {
    let (mut nodes, _, _, worker) = Nodes::leased();
    let settled =
        NodeState::Settled { why: "it was silent".to_string(), heir: None, died: nodes.index + 1 };
    nodes.tells_row(&[1], 1, settled);
    assert!(nodes.shells[1].node.scheduler.lease_on(worker).is_some(), "its shell ends it");
}

/// Nobody settled the death until another node died: what was at home there stayed undecided, and who waited for it waited on.
#[test]
fn a_new_head_that_passed_the_death_of_the_last_one_before_it_heard_its_own_row_settles_it() {
    let mut nodes = Nodes::new(1);
    let head = nodes.begins_as_head();
    nodes.tells_row(&[head], 0, NodeState::dead("it fell"));
    let died = nodes.index;
    nodes.tells_row(&[head], head, NodeState::Alive);
    let settles = nodes.shells[head].take(|effect| match effect {
        Effect::Settle { epoch } => Some(*epoch),
        _ => None,
    });
    assert_eq!(settles, Some(died));
}

#[test]
fn an_actor_lives_on_another_node_and_its_home_knows_how_it_is() {
    let mut nodes = Nodes::new(2);
    let driver = nodes.shells[0].driver();
    let actor = nodes.actor(driver, 2.0, vec![]);
    assert!(matches!(nodes.state_told(driver), Some(ActorState::Pending { .. })));
    let worker = nodes.forks(1);
    let run = nodes.shells[1].told(worker, |message| match message {
        ToClient::RunActor { spec, incarnation: 0, .. } => Some(spec.clone()),
        _ => None,
    });
    let run = run.expect("it is told");
    assert_eq!(run.actor, actor);
    // It read whatever lay at the same place of its own store.
    let refs = CallView::parse(&run.frame).unwrap().refs().unwrap();
    assert_eq!(refs, [(actor.0.object(7), ValueView::Stored(Location::ASK))]);
    let (incarnation, result) = (0, Ok(()));
    nodes.says(1, worker, ToNode::ActorStarted { actor, incarnation, result });
    nodes.state_told(driver); // Starting is pending, too
    let alive = nodes.state_told(driver);
    assert_eq!(alive, Some(ActorState::Alive { incarnation: 0, worker, logs: false }));
    // A worker of the other node watches it as well.
    nodes.says(1, worker, ToNode::ActorWatch { actor });
    let watched = nodes.shells[1].told(worker, |message| match message {
        ToClient::ActorState { state, .. } => Some(state.clone()),
        _ => None,
    });
    assert_eq!(watched, Some(ActorState::Alive { incarnation: 0, worker, logs: false }));
    // The last handle goes: it finishes.
    let object = actor.handle();
    let released = vec![Notice::Released { object, tokens: 1 }];
    nodes.says(0, driver, ToNode::Notices(released));
    let exit = nodes.shells[1].told(worker, |message| match message {
        ToClient::Exit { graceful, .. } => Some(*graceful),
        _ => None,
    });
    assert_eq!(exit, Some(true));
    nodes.ends(1, worker);
    assert!(matches!(nodes.state_told(driver), Some(ActorState::Dead { .. })));
}

/// With checkpoints: what it did elsewhere lies at its home, and its next worker gets it.
#[test]
fn a_call_is_logged_at_home_and_replayed_by_the_next_worker() {
    let mut nodes = Nodes::new(2);
    let driver = nodes.shells[0].driver();
    let checkpoints = Some(Checkpoints { calls: 10, interval_ms: 0 });
    let actor = nodes.actor_with(driver, 2.0, vec![], checkpoints);
    let run = |nodes: &mut Nodes, worker| {
        nodes.shells[1].told(worker, |message| match message {
            ToClient::RunActor { incarnation, replay, .. } => Some((*incarnation, replay.clone())),
            _ => None,
        })
    };
    let worker = nodes.forks(1);
    assert_eq!(run(&mut nodes, worker), Some((0, Some(Box::default()))));
    let incarnation = 0;
    nodes.says(1, worker, ToNode::ActorStarted { actor, incarnation, result: Ok(()) });
    let held = TaskId { owner: driver, seq: 900 }.object(0);
    let value = Value::Inline(b"x".as_slice().into());
    let state = SharedState::Value { value, contains: vec![] };
    nodes.says(0, driver, ToNode::Notices(vec![Notice::Shared { object: held, state }]));
    // Its frame is a constructor's here: what it names of the store is no place there either.
    let call = LoggedCall { index: 1, frame: constructor(actor), contains: vec![held] };
    let call = Box::new(call);
    nodes.says(1, worker, ToNode::CallLogged { actor, incarnation, call });
    let upto = nodes.shells[1].told(worker, |message| match message {
        ToClient::CallsLogged { upto } => Some(*upto),
        _ => None,
    });
    assert_eq!(upto, Some(1), "its reply may go");
    let released = vec![Notice::Released { object: held, tokens: 1 }];
    nodes.says(0, driver, ToNode::Notices(released));
    assert!(nodes.shells[0].node.objects.knows(held), "the log holds it");
    nodes.ends(1, worker);
    let next = nodes.forks(1);
    let (incarnation, replay) = run(&mut nodes, next).expect("it starts again");
    let replay = replay.expect("it has checkpoints");
    assert_eq!((incarnation, replay.calls.len()), (1, 1));
    let refs = CallView::parse(&replay.calls[0].frame).unwrap().refs().unwrap();
    assert_eq!(refs, [(actor.0.object(7), ValueView::Stored(Location::ASK))]);
    // What its first worker said is not heard any more.
    let late = LoggedCall { index: 2, frame: constructor(actor), contains: vec![] };
    let (incarnation, call) = (0, Box::new(late));
    nodes.says(1, next, ToNode::CallLogged { actor, incarnation, call });
    let replay = nodes.shells[0].node.replays.replay(actor).expect("it lives");
    assert_eq!(replay.calls.len(), 1);
}

/// A driver of another node had found it by its name: its calls waited for ever.
#[test]
fn who_calls_an_actor_from_elsewhere_was_not_told_that_its_home_died() {
    let mut nodes = Nodes::new(3);
    let (driver, other) = (nodes.shells[1].driver(), nodes.shells[2].driver());
    let actor = ActorId(TaskId { owner: driver, seq: 9 });
    nodes.asks_for(1, driver, false, false);
    nodes.pump();
    nodes.says(2, other, ToNode::ActorWatch { actor });
    let told = |nodes: &mut Nodes| {
        nodes.shells[2].told(other, |message| match message {
            ToClient::ActorState { actor: of, state } if *of == actor => Some(state.clone()),
            _ => None,
        })
    };
    while let Some(state) = told(&mut nodes) {
        assert!(!matches!(state, ActorState::Dead { .. }), "{state:?}");
    }
    nodes.dies(1);
    assert_eq!(told(&mut nodes), None, "it may live elsewhere");
    nodes.settles(1);
    assert!(matches!(told(&mut nodes), Some(ActorState::Dead { .. })));
    assert_eq!(told(&mut nodes), None, "once");
}

#[test]
fn an_actor_whose_worker_dies_elsewhere_is_dead_and_one_whose_node_dies_too() {
    for node_dies in [false, true] {
        let mut nodes = Nodes::new(2);
        let driver = nodes.shells[0].driver();
        let actor = nodes.actor(driver, 2.0, vec![]);
        let worker = nodes.forks(1);
        let (incarnation, result) = (0, Ok(()));
        nodes.says(1, worker, ToNode::ActorStarted { actor, incarnation, result });
        while nodes.state_told(driver).is_some() {}
        if node_dies {
            nodes.dies(1)
        } else {
            nodes.ends(1, worker)
        }
        let state = nodes.state_told(driver);
        assert!(matches!(state, Some(ActorState::Dead { .. })), "{state:?}");
    }
}

#[test]
fn who_watches_an_actor_of_a_dead_home_hears_that() {
    let mut nodes = Nodes::new(2);
    let driver = nodes.shells[1].driver();
    let owner = ProcessId::new(number(0), 5, 5);
    nodes.dies(0);
    nodes.says(1, driver, ToNode::ActorWatch { actor: ActorId(TaskId { owner, seq: 1 }) });
    nodes.settles(0);
    let state = nodes.shells[1].told(driver, |message| match message {
        ToClient::ActorState { state: ActorState::Dead { failure }, .. } => Some(failure.text()),
        _ => None,
    });
    assert!(state.is_some_and(|text| text.contains("it fell")));
}

#[test]
fn a_function_is_asked_for_at_the_node_that_calls_it_and_once() {
    let (mut nodes, driver, _, worker) = Nodes::leased();
    let function = FunctionId([7; 16]);
    let bytes = vec![1, 2, 3];
    nodes.says(0, driver, ToNode::Export { function, bytes: bytes.clone(), contains: vec![] });
    let fetched = |nodes: &mut Nodes| {
        nodes.says(1, worker, ToNode::Fetch { function, call: None });
        let asked = nodes.shells[0].take(|effect| match effect {
            Effect::Ask { ask, .. } => Some(*ask),
            _ => None,
        });
        if let Some(ask) = asked {
            let job = nodes.shells[0].node.process(driver).unwrap().job;
            let entry = FunctionEntry::whole((job, number(0)), function, bytes.clone(), vec![]);
            let answer = Answer::Rows(Ok(vec![Some(entry.to_value())]));
            nodes.shells[0].hears(Event::Answered { ask, answer });
            nodes.pump();
        }
        let told = nodes.function_told(1, worker);
        (asked.is_some(), told.expect("it is answered"))
    };
    assert_eq!(fetched(&mut nodes), (true, Some(bytes.clone())));
    assert_eq!(fetched(&mut nodes), (false, Some(bytes.clone())));
}

/// The row was on its way to the control store, and the actor failed: its class was never exported.
#[test]
fn the_class_of_an_actor_that_a_task_elsewhere_created_is_asked_for_there() {
    let (mut nodes, _, _, creator) = Nodes::leased();
    nodes.joins();
    let (function, bytes) = (FunctionId([7; 16]), vec![1, 2, 3]);
    nodes.says(1, creator, ToNode::Export { function, bytes: bytes.clone(), contains: vec![] });
    nodes.actor(creator, 3.0, vec![]);
    let worker = nodes.forks(2);
    nodes.says(2, worker, ToNode::Fetch { function, call: None });
    let told = nodes.function_told(2, worker);
    assert_eq!(told, Some(Some(bytes)), "neither its job's home nor any store has it");
}

/// Its worker heard that it was never exported.
#[test]
fn a_function_whose_rows_went_with_another_job_is_asked_for_elsewhere() {
    let (mut nodes, driver, _, worker) = Nodes::leased();
    let (function, bytes) = (FunctionId([7; 16]), vec![1, 2, 3]);
    let export = || ToNode::Export { function, bytes: bytes.clone(), contains: vec![] };
    nodes.says(0, driver, export());
    // The driver of another job, at the worker's node, has the same one.
    let other = nodes.shells[1].driver();
    nodes.says(1, other, export());
    nodes.shells.iter_mut().for_each(|shell| shell.node.keeps_no_functions());
    let asked = |nodes: &mut Nodes, at: usize| {
        nodes.shells[at].take(|effect| match effect {
            Effect::Ask { ask, .. } => Some(*ask),
            _ => None,
        })
    };
    nodes.says(1, worker, ToNode::Fetch { function, call: None });
    let ask = asked(&mut nodes, 1).expect("it was exported here");
    let answer = Answer::Rows(Ok(vec![None]));
    nodes.shells[1].hears(Event::Answered { ask, answer });
    nodes.pump();
    // What its own job exported here could have lain unread.
    let ask = asked(&mut nodes, 1).expect("it is asked for again after a sweep");
    let answer = Answer::Rows(Ok(vec![None]));
    nodes.shells[1].hears(Event::Answered { ask, answer });
    nodes.pump();
    let ask = asked(&mut nodes, 0).expect("it was exported there as well");
    let job = nodes.shells[0].node.process(driver).unwrap().job;
    let entry = FunctionEntry::whole((job, number(0)), function, bytes.clone(), vec![]);
    let answer = Answer::Rows(Ok(vec![Some(entry.to_value())]));
    nodes.shells[0].hears(Event::Answered { ask, answer });
    nodes.pump();
    let told = nodes.function_told(1, worker);
    assert_eq!(told, Some(Some(bytes)));
}

/// That node said that it does not have it, and who had asked looked in the store, where the row was not yet.
#[test]
fn a_node_that_asks_for_a_function_whose_rows_went_with_another_job_is_answered_after_a_sweep() {
    let (mut nodes, driver, _, worker) = Nodes::leased();
    let (function, bytes) = (FunctionId([7; 16]), vec![1, 2, 3]);
    let export = || ToNode::Export { function, bytes: bytes.clone(), contains: vec![] };
    let other = nodes.shells[0].driver();
    nodes.says(0, other, export());
    nodes.shells[0].node.keeps_no_functions();
    let job = nodes.shells[0].node.process(driver).unwrap().job;
    nodes.says(1, worker, ToNode::Fetch { function, call: Some((job, driver)) });
    let entry = FunctionEntry::whole((job, number(0)), function, bytes.clone(), vec![]);
    let answers = |nodes: &mut Nodes, row| {
        let asked = nodes.shells[0].take(|effect| match effect {
            Effect::Ask { ask, .. } => Some(*ask),
            _ => None,
        });
        let (ask, answer) = (asked.expect("it asks the store"), Answer::Rows(Ok(vec![row])));
        nodes.shells[0].hears(Event::Answered { ask, answer });
    };
    answers(&mut nodes, None);
    let swept = nodes.shells[0].take(|effect| (*effect == Effect::Sweep).then_some(()));
    assert!(swept.is_some(), "the driver may have exported it");
    nodes.shells[0].hears(Event::SweepBegins);
    nodes.shells[0].says(driver, export());
    nodes.shells[0].hears(Event::Swept);
    answers(&mut nodes, Some(entry.to_value()));
    nodes.pump();
    let told = nodes.function_told(1, worker);
    assert_eq!(told, Some(Some(bytes)));
}

/// They shared their rows: the first of them that had no use for the function any more deleted it, and a detached actor of the other one could not start
/// again.
#[test]
fn each_node_that_exports_a_function_has_rows_of_its_own() {
    let (mut nodes, driver, _, worker) = Nodes::leased();
    let (function, bytes) = (FunctionId([7; 16]), vec![1, 2, 3]);
    let mut saved = Vec::new();
    for (at, process) in [(0, driver), (1, worker)] {
        let (bytes, contains) = (bytes.clone(), vec![]);
        nodes.says(at, process, ToNode::Export { function, bytes, contains });
        let key = nodes.shells[at].take(|effect| match effect {
            Effect::Save { key, .. } if key.table == Table::Function => Some(key.clone()),
            _ => None,
        });
        saved.push(key.expect("it is written"));
    }
    assert_ne!(saved[0], saved[1]);
}

/// Another node had written it as well, and its rows are there.
#[test]
fn a_function_whose_rows_go_while_they_are_read_is_read_from_another_node() {
    let (mut nodes, _, _, worker) = Nodes::leased();
    let (function, bytes) = (FunctionId([7; 16]), vec![1, 2, 3]);
    let job = nodes.shells[1].node.process(worker).unwrap().job;
    nodes.says(1, worker, ToNode::Fetch { function, call: None });
    let of = |at: usize| {
        let whole = FunctionEntry::whole((job, number(at)), function, bytes.clone(), vec![]);
        (whole.key(), whole.to_value())
    };
    let (first, second) = (of(0), of(2));
    let keys = |all: &[&(Key, Vec<u8>)]| {
        Answer::Keys(Ok(all.iter().map(|(key, _)| key.bytes.clone()).collect()))
    };
    let answers = [
        (None, keys(&[&first, &second])),
        (Some(&first.0), Answer::Rows(Ok(vec![None]))),
        (None, keys(&[&second])),
        (Some(&second.0), Answer::Rows(Ok(vec![Some(second.1.clone())]))),
    ];
    for (row, answer) in answers {
        let asked = nodes.shells[1].take(|effect| match effect {
            Effect::Ask { ask, question } => Some((*ask, question.clone())),
            _ => None,
        });
        let (ask, question) = asked.expect("it asks the store");
        match row {
            Some(key) => assert_eq!(question, Question::Get { keys: vec![key.clone()] }),
            None => assert!(matches!(question, Question::List { .. }), "{question:?}"),
        }
        nodes.shells[1].hears(Event::Answered { ask, answer });
        nodes.pump();
    }
    let told = nodes.function_told(1, worker);
    assert_eq!(told, Some(Some(bytes)));
}

/// It heard what was said of the other job: that the function was never exported.
#[test]
fn who_waits_for_a_function_with_a_process_of_another_job_is_answered_for_its_own() {
    let (mut nodes, _, _, worker) = Nodes::leased();
    let other = nodes.shells[1].driver();
    let (function, bytes) = (FunctionId([7; 16]), vec![1, 2, 3]);
    nodes.says(1, worker, ToNode::Fetch { function, call: None });
    nodes.says(1, other, ToNode::Fetch { function, call: None });
    let job = nodes.shells[1].node.process(other).unwrap().job;
    let entry = FunctionEntry::whole((job, number(0)), function, bytes.clone(), vec![]);
    let keys = Answer::Keys(Ok(vec![entry.key().bytes]));
    let row = Answer::Rows(Ok(vec![Some(entry.to_value())]));
    for answer in [Answer::Keys(Ok(vec![])), keys, row] {
        let asked = nodes.shells[1].take(|effect| match effect {
            Effect::Ask { ask, .. } => Some(*ask),
            _ => None,
        });
        nodes.shells[1].hears(Event::Answered { ask: asked.expect("it asks the store"), answer });
        nodes.pump();
    }
    for (process, answer) in [(worker, None), (other, Some(bytes))] {
        let told = nodes.function_told(1, process);
        assert_eq!(told, Some(answer), "{process}");
    }
}

/// It was asked for as of the adopter's job, whose processes had never exported it.
#[test]
fn the_function_of_an_adopted_task_is_asked_for_where_its_own_job_is_at_home() {
    let (mut nodes, _, _, worker) = Nodes::leased();
    nodes.joins();
    let stranger = nodes.shells[2].driver();
    let (function, bytes) = (FunctionId([7; 16]), vec![1, 2, 3]);
    nodes.says(2, stranger, ToNode::Export { function, bytes: bytes.clone(), contains: vec![] });
    let of = nodes.shells[2].node.process(stranger).unwrap().job;
    assert_ne!(nodes.shells[1].node.process(worker).unwrap().job, of);
    nodes.says(1, worker, ToNode::Fetch { function, call: Some((of, stranger)) });
    let told = nodes.function_told(1, worker);
    assert_eq!(told, Some(Some(bytes)));
}

/// A worker exported it while there was no head. Whoever adopted its task asked the next head's store before the row had come there, and heard that the
/// function was never exported (seed 3526552).
#[test]
fn the_function_of_an_adopted_task_is_asked_for_at_the_node_that_submitted_it() {
    let (mut nodes, driver, _, worker) = Nodes::leased();
    nodes.joins();
    let submitter = nodes.shells[2].driver();
    let (function, bytes) = (FunctionId([7; 16]), vec![1, 2, 3]);
    nodes.says(2, submitter, ToNode::Export { function, bytes: bytes.clone(), contains: vec![] });
    let job = nodes.shells[0].node.process(driver).unwrap().job;
    nodes.says(1, worker, ToNode::Fetch { function, call: Some((job, submitter)) });
    let told = nodes.function_told(1, worker);
    assert_eq!(told, Some(Some(bytes)));
}

/// It was read from the head's store, so a function that was new while the head was away ran nowhere, and was lost when the write
/// of its row was given up.
#[test]
fn a_function_is_sent_without_the_store_by_the_node_that_exported_it() {
    let mut nodes = Nodes::new(2);
    let driver = nodes.shells[1].driver();
    let (function, bytes) = (FunctionId([7; 16]), vec![1, 2, 3]);
    nodes.says(1, driver, ToNode::Export { function, bytes: bytes.clone(), contains: vec![] });
    nodes.says(1, driver, ToNode::Fetch { function, call: None });
    let asked = nodes.shells[1].take(|effect| {
        let reads = |question: &Question| matches!(question, Question::Get { .. });
        matches!(effect, Effect::Ask { question, .. } if reads(question)).then_some(())
    });
    assert_eq!(asked, None, "the store");
    let told = nodes.function_told(1, driver);
    assert_eq!(told, Some(Some(bytes)));
}

/// A worker heard that its function was never exported.
#[test]
fn a_store_that_does_not_answer_in_time_is_asked_again_for_a_function() {
    let (mut nodes, driver, ..) = Nodes::leased();
    let function = FunctionId([7; 16]);
    nodes.says(0, driver, ToNode::Export { function, bytes: vec![1], contains: vec![] });
    nodes.shells.iter_mut().for_each(|shell| shell.node.keeps_no_functions());
    nodes.says(0, driver, ToNode::Fetch { function, call: None });
    for _ in 0..2 {
        let asked = nodes.shells[0].take(|effect| match effect {
            Effect::Ask { ask, .. } => Some(*ask),
            _ => None,
        });
        let ask = asked.expect("it asks the store");
        let answer = Answer::Rows(Err(Refusal::Busy("the head is away".to_string())));
        nodes.shells[0].hears(Event::Answered { ask, answer });
    }
    let told = nodes.function_told(0, driver);
    assert_eq!(told, None);
}

#[test]
fn what_a_far_call_names_is_held_until_its_last_word_has_left() {
    let (mut nodes, driver, _, worker) = Nodes::leased();
    nodes.says(0, driver, ToNode::Connect { to: worker });
    let (object, frame) = nodes.calls_with_a_value(driver, worker);
    let cover = nodes.passes(0, frame.clone());
    assert_eq!(cover, 1);
    nodes.passes(1, Passing { arrived: Some(cover), ..frame.clone() });
    // The driver lets go: the far node holds it.
    nodes.says(0, driver, ToNode::Notices(vec![Notice::Released { object, tokens: 1 }]));
    assert!(nodes.shells[0].node.objects.knows(object));
    let reply = Passing { is_reply: true, is_last: true, named: vec![], ..frame };
    assert_eq!(nodes.passes(1, reply), 0);
    nodes.pump();
    assert!(!nodes.shells[0].node.objects.knows(object), "nobody reaches it");
    assert!(nodes.shells.iter().all(|shell| shell.node.is_quiet()));
}

/// Its caller counted a token for each value, and lost its connection when it gave them back.
#[test]
fn a_far_reply_with_a_ref_in_two_values_brings_two_tokens() {
    let (mut nodes, driver, _, worker) = Nodes::leased();
    nodes.says(0, driver, ToNode::Connect { to: worker });
    let object = ObjectId { task: TaskId { owner: driver, seq: 3 }, index: 0 };
    let value = hoplo_wire::Value::Inline((*b"x").into());
    let state = SharedState::Value { value, contains: vec![] };
    nodes.says(0, driver, ToNode::Notices(vec![Notice::Shared { object, state }]));
    let reply = Passing {
        caller: driver,
        worker,
        tag: 1,
        is_reply: true,
        arrived: None,
        named: vec![object, object],
        is_last: true,
    };
    let cover = nodes.passes(1, reply.clone());
    nodes.passes(0, Passing { arrived: Some(cover), ..reply });
    nodes.says(0, driver, ToNode::Notices(vec![Notice::Released { object, tokens: 3 }]));
    nodes.pump();
    assert_eq!(nodes.shells[0].node.violations(), 0);
    assert!(!nodes.shells[0].node.objects.knows(object), "nobody reaches it");
    assert!(nodes.shells.iter().all(|shell| shell.node.is_quiet()));
}

/// Its worker was not buried, but had no channel any more that could end: what the call named was held for ever.
#[test]
fn a_far_call_to_a_worker_that_hung_up_holds_nothing() {
    let (mut nodes, driver, _, worker) = Nodes::leased();
    nodes.shells[1].hears(Event::Closed { process: worker });
    nodes.says(0, driver, ToNode::Connect { to: worker });
    let (object, frame) = nodes.calls_with_a_value(driver, worker);
    let cover = nodes.passes(0, frame.clone());
    nodes.passes(1, Passing { arrived: Some(cover), ..frame });
    nodes.says(0, driver, ToNode::Notices(vec![Notice::Released { object, tokens: 1 }]));
    nodes.pump();
    nodes.ends(1, worker);
    assert!(!nodes.shells[0].node.objects.knows(object), "nobody reaches it");
    assert!(nodes.shells.iter().all(|shell| shell.node.is_quiet()));
}

impl Nodes {
    fn hears_of_death(&mut self, at: usize, process: ProcessId) {
        let cause = DeathCause::Signaled { signal: 9 };
        let obituary = hoplo_wire::node::Obituary { pid: 7, cause, last_lines: vec![] };
        let message = Box::new(hoplo_wire::peer::Peer::Gone { process, obituary });
        self.shells[at].hears(Event::Peer { from: process.node(), cover: 0, message });
    }

    /// `caller` heard that `callee` is gone, and says only then that it calls it: it is told once more, and no channel opens.
    fn keeps_its_calls(&mut self, at: usize, caller: ProcessId, callee: ProcessId) {
        assert!(self.gone(at, caller).is_some_and(|(process, _)| process == callee));
        self.shells[at].says(caller, ToNode::Connect { to: callee });
        let opened = Effect::OpenFar { caller, worker: callee };
        assert!(self.shells[at].take(|effect| (*effect == opened).then_some(())).is_none());
        assert!(self.gone(at, caller).is_some_and(|(process, _)| process == callee));
    }
}

/// Its calls lay in a ring that the carrier emptied after the caller had been told that none of them was away, so they cost a retry.
#[test]
fn who_calls_a_far_worker_that_it_was_told_is_gone_keeps_its_calls() {
    let (mut nodes, driver, _, worker) = Nodes::leased();
    nodes.hears_of_death(0, worker);
    nodes.keeps_its_calls(0, driver, worker);
}

/// The dead one was its caller, and it had calls for that one on their way: they cost a retry, though nobody had taken them.
#[test]
fn who_calls_a_far_caller_that_it_was_told_is_gone_keeps_its_calls() {
    let (mut nodes, driver, _, worker) = Nodes::leased();
    nodes.says(0, driver, ToNode::Connect { to: worker });
    nodes.hears_of_death(1, driver);
    nodes.keeps_its_calls(1, worker, driver);
}
