//! Stories of processes, told in every order in which a kernel may tell them.

use hoplo_base::limits::{EXIT_GRACE, HANGUP_GRACE, LINEAGE_DELAY, SLOTS_RESTING, STATUS_PATIENCE};
use hoplo_base::{
    ActorId, FunctionId, Instant, JobId, NodeNumber, ObjectId, ProcessId, ResourceSet, TaskId,
};
use hoplo_wire::call::{CallHeader, CallKind};
use hoplo_wire::control::Refusal;
use hoplo_wire::node::{
    ActorSpec, DeathCause, JobConfig, KvOperation, Lineage, Notice, Role, Shape, SharedState, Tell,
    ToClient, ToNode,
};
use hoplo_wire::{FailureKind, PROTOCOL_VERSION, Reason};

mod environments;
mod far;
mod groups;
mod past;
mod queries;
mod reach;
mod takeover;

use super::{Answer, Config, Effect, Event, Kind, Node, Question, Stage};
use crate::control::{Entry, Row, Table, TaskEntry};
use crate::objects;

struct Shell {
    node: Node,
    now: Instant,
    /// What the node asked for and nobody looked at.
    effects: Vec<Effect>,
    strangers: u64,
}

/// What a process says of itself.
const HELLO_PID: u32 = 7;

fn hello(role: Role) -> ToNode {
    let version = env!("CARGO_PKG_VERSION").to_string();
    ToNode::Hello { protocol: PROTOCOL_VERSION, version, pid: HELLO_PID, role }
}

impl Shell {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(configure: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            node: NodeNumber::alone(1),
            resources: ResourceSet::from_units([("CPU", 2.0), ("memory", 1e9)]).unwrap(),
            objects: objects::Config::new(64 << 20),
            session_dir: String::new(),
            keeps_rows: false,
            clustered: false,
            slots_resting: SLOTS_RESTING,
            processes_max: hoplo_base::limits::PROCESSES_MAX,
        };
        configure(&mut config);
        let now = Instant(1_000_000_000);
        Self { node: Node::new(config, now), now, effects: Vec::new(), strangers: 0 }
    }

    fn hears(&mut self, event: Event) {
        self.node.handle(self.now, event, &mut self.effects);
        self.node.check();
    }

    fn says(&mut self, from: ProcessId, message: ToNode) {
        self.hears(Event::Heard { from, message });
    }

    /// Takes out the first effect that is one.
    fn take<T>(&mut self, what: impl Fn(&Effect) -> Option<T>) -> Option<T> {
        let at = self.effects.iter().position(|effect| what(effect).is_some())?;
        what(&self.effects.remove(at))
    }

    /// True if the node had asked for it.
    fn sweeps(&mut self) -> bool {
        if self.take(|effect| (*effect == Effect::Sweep).then_some(())).is_none() {
            return false;
        }
        self.hears(Event::SweepBegins);
        self.hears(Event::Swept);
        true
    }

    fn killed(&mut self) -> Option<(ProcessId, u32)> {
        self.take(|effect| match effect {
            Effect::Kill { process, pid } => Some((*process, *pid)),
            _ => None,
        })
    }

    fn told<T>(&mut self, to: ProcessId, what: impl Fn(&ToClient) -> Option<T>) -> Option<T> {
        self.take(|effect| match effect {
            Effect::Send { to: whom, message } if *whom == to => what(message),
            _ => None,
        })
    }

    fn driver(&mut self) -> ProcessId {
        self.driver_of(JobConfig::default())
    }

    fn driver_of(&mut self, config: JobConfig) -> ProcessId {
        self.strangers += 1;
        let stranger = self.strangers;
        self.hears(Event::Knocked { stranger, pid: 7, message: hello(Role::Driver) });
        let introduced = Effect::Introduce { stranger, pid: 7 };
        assert!(self.take(|effect| (*effect == introduced).then_some(())).is_some());
        let message = ToNode::Job(Box::new(config));
        self.hears(Event::Told { stranger, pid: 7, message });
        let accepted = self.take(|effect| match effect {
            Effect::Accept { process, .. } => Some(*process),
            _ => None,
        });
        accepted.expect("a driver is welcome")
    }

    /// A worker that is being forked.
    fn starting(&mut self, driver: ProcessId) -> ProcessId {
        let resources = ResourceSet::from_units([("CPU", 1.0)]).unwrap();
        let shape = Shape::of(resources);
        self.says(driver, ToNode::LeaseDemand { key: 1, shape: shape.into(), wanted: 1 });
        self.forked().expect("a demand needs a worker")
    }

    fn forked(&mut self) -> Option<ProcessId> {
        self.take(|effect| match effect {
            Effect::Fork { process, .. } => Some(*process),
            _ => None,
        })
    }

    fn worker(&mut self, driver: ProcessId) -> ProcessId {
        let worker = self.starting(driver);
        self.hears(Event::Forked { process: worker, pid: 42 });
        self.says(worker, hello(Role::Worker));
        worker
    }

    /// One that needs more than the node has.
    fn actor(&mut self, creator: ProcessId, name: &str) -> ActorId {
        let actor = ActorId(TaskId { owner: creator, seq: 7 });
        let resources = ResourceSet::from_units([("CPU", 64.0)]).unwrap();
        let spec = ActorSpec {
            actor,
            class_name: "Echo".to_string(),
            name: name.to_string(),
            namespace: String::new(),
            detached: false,
            shape: Shape::of(resources),
            held: ResourceSet::new(),
            max_restarts: 0,
            checkpoints: None,
            frame: vec![],
            contains: vec![],
            handle: vec![],
        };
        let spec = Box::new(spec);
        self.says(creator, ToNode::ActorCreate { request: 0, spec, get_if_exists: false });
        actor
    }

    fn examines(&mut self, worker: ProcessId) {
        let asked =
            self.take(|effect| (*effect == Effect::Examine { process: worker }).then_some(()));
        assert!(asked.is_some(), "{worker} is to be examined");
        self.hears(Event::Examined { process: worker, last_lines: vec![], verdict: None });
        assert!(self.node.process(worker).is_none());
    }

    fn waits(&mut self, time: std::time::Duration) {
        self.now = self.now + time;
        self.hears(Event::Tick);
    }
}

#[test]
fn a_worker_that_is_to_die_before_its_pid_is_known_is_killed_when_it_comes() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    let worker = shell.starting(driver);
    // It breaks the protocol, and only then does the zygote tell its pid.
    shell.hears(Event::Broke { process: worker, what: "sent rubbish".to_string() });
    assert_eq!(shell.killed(), None, "nobody knows whom");
    shell.hears(Event::Forked { process: worker, pid: 42 });
    assert_eq!(shell.killed(), Some((worker, 42)));
}

/// What it had said was not read: an actor's call whose reply had left was missing in the actor's log.
#[test]
fn a_worker_that_does_not_read_is_killed_and_heard_to_its_end() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    let worker = shell.starting(driver);
    shell.hears(Event::Forked { process: worker, pid: 42 });
    shell.says(worker, hello(Role::Worker));
    for _ in 0..2 {
        shell.hears(Event::DoesNotRead { process: worker });
        assert_eq!(shell.killed(), Some((worker, 42)));
        let hangs_up = Effect::HangUp { process: worker };
        assert!(!shell.effects.contains(&hangs_up), "it may have said something before");
    }
    shell.hears(Event::Closed { process: worker });
    shell.hears(Event::DoesNotRead { process: worker });
    assert_eq!(shell.killed(), None);
}

#[test]
fn a_driver_that_does_not_read_loses_its_connection() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    shell.hears(Event::DoesNotRead { process: driver });
    assert!(shell.effects.contains(&Effect::HangUp { process: driver }));
    assert_eq!(shell.killed(), None, "only workers are ours to kill");
}

#[test]
fn a_worker_whose_zygote_died_before_it_told_its_pid_could_not_be_killed() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    let worker = shell.starting(driver);
    shell.says(worker, hello(Role::Worker));
    shell.hears(Event::ForkFailed { process: worker, reason: "its zygote died".to_string() });
    shell.hears(Event::Broke { process: worker, what: "sent rubbish".to_string() });
    assert_eq!(shell.killed(), Some((worker, HELLO_PID)));
}

#[test]
fn a_start_that_its_zygote_never_began_is_tried_again_and_is_no_failure() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    let mut worker = shell.starting(driver);
    for _ in 0..9 {
        shell.hears(Event::ForkUndone { process: worker });
        shell.examines(worker);
        worker = shell.forked().expect("another one takes its place");
    }
}

#[test]
fn a_worker_that_dies_before_its_hello_is_a_start_that_failed() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    let worker = shell.starting(driver);
    shell.hears(Event::Closed { process: worker });
    shell.hears(Event::Forked { process: worker, pid: 42 });
    shell.hears(Event::Ended { process: worker, status_follows: true });
    shell.hears(Event::Exited { process: worker, status: -9 });
    shell.examines(worker);
    let next = shell.forked().expect("another one is tried");
    assert_ne!(next, worker);
}

#[test]
fn workers_that_died_before_their_hello_were_told_as_a_broken_runtime_env() {
    type Ends = fn(&mut Shell, ProcessId);
    let dies: Ends = |shell, worker| {
        shell.hears(Event::Forked { process: worker, pid: 42 });
        shell.hears(Event::Closed { process: worker });
        shell.hears(Event::Ended { process: worker, status_follows: true });
        shell.hears(Event::Exited { process: worker, status: 1 });
    };
    let fails: Ends = |shell, process| {
        shell.hears(Event::ForkFailed { process, reason: "no memory".to_string() });
    };
    let refused: Ends = |shell, process| {
        shell.hears(Event::ForkRefused { process, reason: "no such folder".to_string() });
    };
    let starts = [
        (dies, FailureKind::WorkerStart),
        (fails, FailureKind::WorkerStart),
        (refused, FailureKind::RuntimeEnv),
    ];
    for (ends, kind) in starts {
        let mut shell = Shell::new();
        let driver = shell.driver();
        let mut next = Some(shell.starting(driver));
        while let Some(worker) = next {
            ends(&mut shell, worker);
            shell.examines(worker);
            next = shell.forked();
        }
        let told = shell.told(driver, |message| match message {
            ToClient::LeaseFailed { key: 1, failure } => Some(failure.kind),
            _ => None,
        });
        assert_eq!(told, Some(kind));
    }
}

#[test]
fn the_end_of_a_worker_may_be_told_in_any_order_and_is_told_once() {
    for order in [[0, 1], [1, 0]] {
        let mut shell = Shell::new();
        let driver = shell.driver();
        let worker = shell.worker(driver);
        shell.hears(Event::Closed { process: worker });
        for step in order {
            shell.hears(match step {
                0 => Event::Ended { process: worker, status_follows: true },
                _ => Event::Exited { process: worker, status: 3 },
            });
        }
        shell.examines(worker);
        let cause = |message: &ToClient| match message {
            ToClient::ProcessGone { process, obituary, .. } if *process == worker => {
                Some(obituary.cause.clone())
            }
            _ => None,
        };
        assert_eq!(shell.told(driver, cause), Some(DeathCause::Exited { code: 3 }));
        assert_eq!(shell.told(driver, cause), None);
    }
}

#[test]
fn a_status_that_never_comes_is_not_waited_for_for_ever() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    let worker = shell.worker(driver);
    shell.hears(Event::Closed { process: worker });
    shell.hears(Event::Ended { process: worker, status_follows: true });
    assert_eq!(shell.node.process(worker).unwrap().stage, Stage::Ended { ticket: None });
    shell.waits(STATUS_PATIENCE);
    shell.examines(worker);
}

#[test]
fn a_worker_that_closes_its_connection_and_does_not_end_is_killed() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    let worker = shell.worker(driver);
    shell.hears(Event::Closed { process: worker });
    assert_eq!(shell.killed(), None);
    shell.waits(HANGUP_GRACE);
    assert_eq!(shell.killed(), Some((worker, 42)));
}

#[test]
fn a_slot_is_free_when_its_worker_is_buried_and_not_before() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    let worker = shell.worker(driver);
    shell.hears(Event::Closed { process: worker });
    shell.hears(Event::Exited { process: worker, status: 0 });
    assert!(shell.node.live_slots().contains(&(worker.slot() as u16)), "it may have pins");
    shell.examines(worker);
    let buried = Effect::Bury { process: worker, kind: Kind::Worker, pid: 42 };
    assert!(shell.effects.contains(&buried));
    assert!(!shell.node.live_slots().contains(&(worker.slot() as u16)));
}

/// Found by use: a program that had called `shutdown()` read in its arrays what another one had put since, and what it wrote to its
/// arrays changed the other's objects.
#[test]
fn what_a_driver_has_mapped_is_left_alone_until_it_unmaps_it() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    let slot = driver.slot() as u16;
    let wiped = Effect::Wipe { process: driver };
    shell.hears(Event::Closed { process: driver });
    let is_buried = |it: &Effect| matches!(it, Effect::Bury { process, .. } if *process == driver);
    assert!(shell.effects.iter().any(is_buried), "all that depends on its connection goes on");
    assert!(!shell.effects.contains(&wiped));
    assert!(shell.node.live_slots().contains(&slot));
    shell.node.check();
    shell.hears(Event::Unmapped { process: driver });
    assert!(shell.effects.contains(&wiped));
    assert!(!shell.node.live_slots().contains(&slot));
    shell.hears(Event::Unmapped { process: driver });
    shell.node.check();
}

#[test]
fn a_driver_that_has_unmapped_the_store_has_left() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    shell.hears(Event::Unmapped { process: driver });
    assert!(shell.effects.contains(&Effect::Wipe { process: driver }));
    assert!(shell.node.process(driver).is_none() && shell.node.live_slots().is_empty());
    shell.hears(Event::Closed { process: driver });
    shell.node.check();
}

#[test]
fn a_node_that_stops_refuses_drivers_and_kills_who_does_not_go() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    let worker = shell.worker(driver);
    shell.hears(Event::Stop { why: "asked for".to_string() });
    let told = ToClient::Exit { graceful: false, reason: "asked for".to_string() };
    let last_words = Effect::Send { to: driver, message: told };
    let at = |effect: &Effect| shell.effects.iter().position(|it| it == effect);
    assert!(
        at(&last_words).expect("it is told")
            < at(&Effect::HangUp { process: driver }).expect("it ends")
    );
    shell.hears(Event::Knocked { stranger: 99, pid: 7, message: hello(Role::Driver) });
    let refused = |effect: &Effect| matches!(effect, Effect::Refuse { stranger: 99, .. });
    assert!(shell.effects.iter().any(refused));
    shell.waits(EXIT_GRACE);
    assert_eq!(shell.killed(), Some((worker, 42)));
    shell.hears(Event::Closed { process: worker });
    shell.hears(Event::Exited { process: worker, status: -9 });
    shell.examines(worker);
    assert!(shell.effects.contains(&Effect::Stopped));
}

#[test]
fn a_node_that_stops_said_to_tools_that_it_runs() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    shell.worker(driver);
    let accepts = |effect: &Effect| matches!(effect, Effect::Accept { stranger: 98 | 99, .. });
    shell.hears(Event::Knocked { stranger: 98, pid: 7, message: hello(Role::Tool) });
    assert!(shell.effects.iter().any(accepts), "it runs");
    shell.hears(Event::Stop { why: "a signal".to_string() });
    shell.effects.clear();
    shell.hears(Event::Knocked { stranger: 99, pid: 7, message: hello(Role::Tool) });
    assert_eq!(shell.effects, [], "neither a word nor an end: who asks waits for the end");
}

#[test]
fn a_function_whose_export_lies_in_another_socket_is_found_after_a_sweep() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    let worker = shell.worker(driver);
    let function = FunctionId([5; 16]);
    shell.says(worker, ToNode::Fetch { function, call: None });
    assert!(shell.effects.contains(&Effect::Sweep));
    shell.hears(Event::SweepBegins);
    let contains = vec![];
    shell.says(driver, ToNode::Export { function, bytes: vec![1, 2], contains });
    shell.hears(Event::Swept);
    let ask = shell.take(|effect| match effect {
        Effect::Ask { ask, question: Question::Get { keys } } => Some((*ask, keys.len())),
        _ => None,
    });
    let (ask, keys) = ask.expect("the store has it");
    assert_eq!(keys, 1);
    let row = shell.take(|effect| match effect {
        Effect::Save { key, value, .. } if key.table == hoplo_wire::control::Table::Function => {
            Some(value.clone())
        }
        _ => None,
    });
    shell.hears(Event::Answered { ask, answer: Answer::Rows(Ok(vec![row])) });
    let bytes = shell.told(worker, |message| match message {
        ToClient::Function { bytes, .. } => Some(bytes.clone()),
        _ => None,
    });
    assert_eq!(bytes, Some(Some(vec![1, 2])));
}

#[test]
fn a_function_of_another_job_was_never_exported_for_who_adopted_its_task() {
    let mut shell = Shell::new();
    let (one, two) = (shell.driver(), shell.driver());
    let worker = shell.worker(two);
    let function = FunctionId([5; 16]);
    shell.says(one, ToNode::Export { function, bytes: vec![1, 2], contains: vec![] });
    shell.says(worker, ToNode::Fetch { function, call: None });
    let asked = |effect: &Effect| matches!(effect, Effect::Ask { .. });
    assert!(shell.effects.iter().any(asked), "{:?}", shell.effects);
}

/// Another job had exported it, and its rows had gone with that one. The worker heard that the function was never exported, although its own driver had
/// exported it: that lay unread (seed 80171697). The store may also not have answered while the other job was known, which is forgotten by then.
#[test]
fn a_function_that_went_with_another_job_is_answered_after_a_sweep() {
    let busy = || Err(Refusal::Busy("the head is away".to_string()));
    for (ends, rows) in [(false, Ok(vec![None])), (true, busy())] {
        let mut shell = Shell::new();
        let (other, driver) = (shell.driver(), shell.driver());
        let worker = shell.worker(driver);
        let function = FunctionId([5; 16]);
        let export = || ToNode::Export { function, bytes: vec![1, 2], contains: vec![] };
        let asked = |shell: &mut Shell| {
            shell.take(|effect| match effect {
                Effect::Ask { ask, question: Question::Get { .. } } => Some(*ask),
                _ => None,
            })
        };
        let told = |shell: &mut Shell| {
            shell.told(worker, |message| match message {
                ToClient::Function { bytes, .. } => Some(bytes.clone()),
                _ => None,
            })
        };
        shell.says(other, export());
        shell.says(worker, ToNode::Fetch { function, call: None });
        let ask = asked(&mut shell).expect("another job exported it");
        if ends {
            shell.hears(Event::Closed { process: other });
        }
        shell.effects.retain(|effect| *effect != Effect::Sweep);
        shell.hears(Event::Answered { ask, answer: Answer::Rows(rows) });
        assert_eq!(told(&mut shell), None, "its own job may have exported it");
        assert!(shell.effects.contains(&Effect::Sweep));
        shell.hears(Event::SweepBegins);
        shell.says(driver, export());
        shell.hears(Event::Swept);
        let ask = asked(&mut shell).expect("its own job exported it");
        let job = shell.node.process(driver).unwrap().job;
        let entry = crate::control::FunctionEntry::whole(
            (job, driver.node()),
            function,
            vec![1, 2],
            vec![],
        );
        let rows = Ok(vec![Some(entry.to_value())]);
        shell.hears(Event::Answered { ask, answer: Answer::Rows(rows) });
        assert_eq!(told(&mut shell), Some(Some(vec![1, 2])));
    }
}

/// A sweep cannot bring what nobody exported: it is asked for once more, and then it is said.
#[test]
fn a_function_that_only_another_job_had_is_not_swept_for_again_and_again() {
    let mut shell = Shell::new();
    let (other, driver) = (shell.driver(), shell.driver());
    let worker = shell.worker(driver);
    let function = FunctionId([5; 16]);
    shell.says(other, ToNode::Export { function, bytes: vec![1], contains: vec![] });
    shell.says(worker, ToNode::Fetch { function, call: None });
    for nth in 0..2 {
        let ask = shell.take(|effect| match effect {
            Effect::Ask { ask, question: Question::Get { .. } } => Some(*ask),
            _ => None,
        });
        let ask = ask.expect("another job exported it");
        shell.hears(Event::Answered { ask, answer: Answer::Rows(Ok(vec![None])) });
        assert_eq!(shell.sweeps(), nth == 0);
    }
    let bytes = shell.told(worker, |message| match message {
        ToClient::Function { bytes, .. } => Some(bytes.clone()),
        _ => None,
    });
    assert_eq!(bytes, Some(None));
}

/// A driver of another job waits for a task of `owner`, which needs this function.
fn shares_a_pending_task(shell: &mut Shell, owner: ProcessId, function: FunctionId) -> ObjectId {
    let task = TaskId { owner, seq: 1 };
    let header = CallHeader {
        kind: CallKind::Task,
        flags: 0,
        returns: 1,
        task,
        attempt: 0,
        max_calls: 0,
        function,
        job: JobId(1),
    };
    let frame = header.encode(0, 0, 0).to_vec();
    let resources = ResourceSet::from_units([("CPU", 1.0)]).unwrap();
    let shape = Shape::of(resources);
    let lineage = Some(Lineage { task, shape: shape.into(), frame, contains: vec![], retries: 3 });
    let (object, state) = (task.object(0), SharedState::Pending { lineage });
    shell.says(owner, ToNode::Export { function, bytes: vec![1, 2], contains: vec![] });
    shell.says(owner, ToNode::Notices(vec![Notice::Shared { object, state }]));
    object
}

#[test]
fn the_functions_of_an_ended_job_went_while_its_task_was_adopted() {
    let mut shell = Shell::new();
    let (owner, heir) = (shell.driver(), shell.driver());
    let function = FunctionId([5; 16]);
    let object = shares_a_pending_task(&mut shell, owner, function);
    shell.says(heir, ToNode::Want { objects: vec![object] });
    shell.hears(Event::Closed { process: owner });
    let adopts = |message: &ToClient| matches!(message, ToClient::Adopt { .. }).then_some(());
    assert!(shell.told(heir, adopts).is_none(), "whether it is done may lie in another socket");
    shell.hears(Event::SweepBegins);
    shell.hears(Event::Swept);
    assert!(shell.told(heir, adopts).is_some());
    let worker = shell.worker(heir);
    shell.says(worker, ToNode::Fetch { function, call: None });
    let asked = |effect: &Effect| matches!(effect, Effect::Ask { .. });
    assert!(shell.effects.iter().any(asked), "{:?}", shell.effects);

    // Once the task is done nobody needs it.
    let forgets = |effect: &Effect| matches!(effect, Effect::Forget { .. }).then_some(());
    shell.waits(LINEAGE_DELAY);
    assert!(shell.take(forgets).is_none());
    let value = hoplo_wire::Value::Inline([1].into());
    let fulfilled = Notice::Fulfilled { object, value, contains: vec![] };
    shell.says(heir, ToNode::Notices(vec![fulfilled]));
    shell.waits(LINEAGE_DELAY);
    assert!(shell.take(forgets).is_some());
    shell.says(worker, ToNode::Fetch { function, call: None });
    assert!(shell.effects.contains(&Effect::Sweep), "it is looked for and not found");
}

#[test]
fn to_cancel_an_adopted_task_was_told_to_its_dead_owner() {
    let mut shell = Shell::new();
    let (owner, heir, other) = (shell.driver(), shell.driver(), shell.driver());
    let object = shares_a_pending_task(&mut shell, owner, FunctionId([5; 16]));
    shell.says(heir, ToNode::Want { objects: vec![object] });
    shell.says(other, ToNode::Want { objects: vec![object] });
    shell.hears(Event::Closed { process: owner });
    let message = Tell::Cancel { task: object.task, recursive: false };
    let told = |heard: &ToClient| match heard {
        ToClient::Told { message, .. } => Some(message.clone()),
        _ => None,
    };
    // While it is not decided who runs it, and when it is.
    for _ in 0..2 {
        shell.says(other, ToNode::Tell { to: owner, message: message.clone() });
        while shell.sweeps() {}
        assert_eq!(shell.told(heir, told), Some(message.clone()));
    }
}

#[test]
fn a_task_whose_owner_was_dead_was_written_as_one_of_job_0() {
    let mut shell = Shell::with(|config| config.keeps_rows = true);
    let (owner, heir) = (shell.driver(), shell.driver());
    let object = shares_a_pending_task(&mut shell, owner, FunctionId([5; 16]));
    shell.says(heir, ToNode::Want { objects: vec![object] });
    shell.hears(Event::Closed { process: owner });
    shell.waits(LINEAGE_DELAY);
    let saved = shell.take(|effect| match effect {
        Effect::Save { key, value, .. } if key.table == Table::Task => {
            let value = value.clone();
            TaskEntry::from_row(&Row { version: 1, index: 1, finished: false, value }).ok()
        }
        _ => None,
    });
    assert_eq!(saved.map(|task| (task.task, task.job)), Some((object.task, JobId(1))));
}

#[test]
fn to_cancel_a_task_whose_owner_had_closed_its_connection_was_told_to_nobody() {
    let mut shell = Shell::new();
    let (driver, heir, other) = (shell.driver(), shell.driver(), shell.driver());
    let owner = shell.worker(driver);
    let object = shares_a_pending_task(&mut shell, owner, FunctionId([5; 16]));
    shell.says(heir, ToNode::Want { objects: vec![object] });
    shell.hears(Event::Closed { process: owner });
    let message = Tell::Cancel { task: object.task, recursive: false };
    shell.says(other, ToNode::Tell { to: owner, message: message.clone() });
    shell.hears(Event::Exited { process: owner, status: -9 });
    shell.examines(owner);
    while shell.sweeps() {}
    let told = shell.told(heir, |heard| match heard {
        ToClient::Adopt { .. } => Some(None),
        ToClient::Told { message, .. } => Some(Some(message.clone())),
        _ => None,
    });
    assert_eq!(told, Some(None), "it adopts the task first");
    let told = shell.told(heir, |heard| match heard {
        ToClient::Told { message, .. } => Some(message.clone()),
        _ => None,
    });
    assert_eq!(told, Some(message));
}

#[test]
fn the_hungriest_task_goes_when_the_machine_is_short_and_the_next_one_after_a_pause() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    let worker = shell.worker(driver);
    shell.waits(std::time::Duration::from_millis(100));
    let measures = |effect: &Effect| match effect {
        Effect::Measure { processes } => Some(processes.clone()),
        _ => None,
    };
    assert_eq!(shell.take(measures), Some(vec![]), "nobody has a limit");
    let short = |used| Event::Measured { total: 1000, available: 40, used };
    shell.hears(short(vec![]));
    assert_eq!(shell.take(measures), Some(vec![(worker, 42)]));
    shell.hears(short(vec![(worker, 500)]));
    assert_eq!(shell.killed(), Some((worker, 42)));
    shell.waits(std::time::Duration::from_millis(100));
    shell.take(measures);
    shell.hears(short(vec![]));
    assert_eq!(shell.take(measures), None, "the kernel is collecting what the last one had");
}

#[test]
fn an_answer_of_the_store_for_a_dead_process_is_dropped() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    let operation = KvOperation::Get { key: b"a".to_vec() };
    shell.says(driver, ToNode::Kv { request: 1, namespace: String::new(), operation });
    let ask = shell.take(|effect| match effect {
        Effect::Ask { ask, .. } => Some(*ask),
        _ => None,
    });
    shell.hears(Event::Closed { process: driver });
    shell.effects.clear();
    let answer = Answer::Rows(Ok(vec![None]));
    shell.hears(Event::Answered { ask: ask.expect("it was asked"), answer });
    assert_eq!(shell.effects, []);
}

#[test]
fn an_actor_whose_ring_was_corrupt_could_not_be_ended_by_its_caller_who_has_no_lease_on_it() {
    let mut shell = Shell::new();
    let (holder, caller, stranger) = (shell.driver(), shell.driver(), shell.driver());
    let worker = shell.worker(holder);
    shell.says(caller, ToNode::Connect { to: worker });
    let why = Reason::from("a reply to ").and(caller).and(" cannot be read");
    let broken = ToNode::ChannelBroken { worker, why };
    shell.says(stranger, broken.clone());
    assert_eq!(shell.killed(), None, "it has no channel with it");
    shell.says(caller, broken);
    assert_eq!(shell.killed(), Some((worker, 42)));
    shell.hears(Event::Closed { process: worker });
    shell.hears(Event::Exited { process: worker, status: -9 });
    shell.examines(worker);
    for concerned in [holder, caller] {
        let gone = shell.told(concerned, |heard| match heard {
            ToClient::ProcessGone { process, obituary, .. } if *process == worker => {
                Some(obituary.cause.clone())
            }
            _ => None,
        });
        let reason = format!("a reply to {caller} (driver, pid 7) cannot be read");
        assert_eq!(gone, Some(DeathCause::Stopped { reason }));
    }
}

/// It was told at once that its worker "is not on this node any more", and what the worker had printed was lost.
#[test]
fn who_called_a_worker_that_was_dying_hears_how_it_died() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    let worker = shell.worker(driver);
    shell.hears(Event::Closed { process: worker });
    shell.says(driver, ToNode::Connect { to: worker });
    shell.hears(Event::Exited { process: worker, status: 1 });
    let last_lines = vec!["no such license".to_string()];
    shell.hears(Event::Examined { process: worker, last_lines: last_lines.clone(), verdict: None });
    let mut gone = || {
        shell.told(driver, |heard| match heard {
            ToClient::ProcessGone { process, obituary, .. } if *process == worker => {
                Some((obituary.cause.clone(), obituary.last_lines.clone()))
            }
            _ => None,
        })
    };
    assert_eq!(gone(), Some((DeathCause::Exited { code: 1 }, last_lines)));
    assert_eq!(gone(), None, "once");
}

#[test]
fn a_worker_that_cannot_serve_its_caller_ends_with_that_reason() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    let worker = shell.worker(driver);
    shell.says(worker, ToNode::ChannelBroken { worker: driver, why: "no".into() });
    shell.says(worker, ToNode::ChannelBroken { worker, why: "of its ring".into() });
    assert_eq!(shell.killed(), Some((worker, 42)));
    assert_eq!(shell.killed(), None, "a driver is not ours to kill");
}

#[test]
fn an_idle_node_sleeps() {
    let mut shell = Shell::new();
    assert_eq!(shell.node.next_deadline(), None, "NODE-2");
    let driver = shell.driver();
    shell.hears(Event::SweepBegins);
    shell.hears(Event::Swept);
    assert_eq!(shell.node.next_deadline(), None, "NODE-2: {driver} does nothing");
}
