//! The daemon with real sockets and processes. Drivers are played by the tests; the zygote and its
//! workers by this very program, started again with the name of an ignored test (see `fake`).

#![allow(clippy::unwrap_used, reason = "a test that finds nothing fails")]

mod clusters;
mod fake;
mod heads;
mod player;

use std::time::Duration;

use hoplo_base::{ActorId, FunctionId, ProcessId, ResourceSet};
use hoplo_folders::Places;
use hoplo_shm::fds;
use hoplo_wire::FailureKind;
use hoplo_wire::node::{
    ActorSpec, ActorState, DeathCause, KvOperation, Role, Shape, ToClient, ToNode,
};

use fake::Order;
use player::{Node, Player, eventually};

fn shape(units: &[(&str, f64)]) -> Shape {
    let resources = ResourceSet::from_units(units.iter().copied()).unwrap();
    Shape::of(resources)
}

fn lease(driver: &mut Player, units: &[(&str, f64)]) -> (hoplo_base::LeaseId, ProcessId) {
    driver.send(&ToNode::LeaseDemand { key: 7, shape: shape(units).into(), wanted: 1 });
    driver.wait("a lease", |message| match message {
        ToClient::LeaseGranted { lease, key: 7, worker, .. } => Some((lease, worker)),
        _ => None,
    })
}

fn gone(driver: &mut Player, process: ProcessId) -> hoplo_wire::node::Obituary {
    driver.wait("an obituary", |message| match message {
        ToClient::ProcessGone { process: dead, obituary, .. } if dead == process => Some(obituary),
        _ => None,
    })
}

#[test]
fn another_version_is_refused_with_both_named() {
    let node = Node::start(|_| {});
    let mut player = node.stranger();
    player.send(&ToNode::Hello {
        protocol: hoplo_wire::PROTOCOL_VERSION,
        version: "0.0.1".to_string(),
        pid: std::process::id(),
        role: Role::Tool,
    });
    let reason = player.wait("a refusal", |message| match message {
        ToClient::Refused { reason } => Some(reason),
        _ => None,
    });
    assert!(reason.contains("0.0.1") && reason.contains(env!("CARGO_PKG_VERSION")), "{reason}");
    assert!(player.is_closed());
}

#[test]
fn rubbish_costs_its_sender_the_connection_and_nobody_else() {
    let node = Node::start(|_| {});
    let mut bystander = node.driver();
    for rubbish in [&[0xff; 64][..], &[3, 0, 0, 0, 99, 99, 99], &[1, 0, 0, 0, 4]] {
        let mut player = node.stranger();
        player.send_raw(rubbish);
        assert!(player.is_closed());
    }
    // A greeted one as well, and a tool that wants a lease.
    let mut tool = node.tool();
    tool.send(&ToNode::Blocked);
    assert!(tool.is_closed());
    let status = bystander.query("status", "");
    assert_eq!(status["violations"], 4);
}

/// A frame that does not end is kept: a stranger could have 512 MiB of them.
#[test]
fn how_long_a_message_may_be_is_the_speakers_role() {
    use hoplo_base::limits::{HELLO_BYTES_MAX, JOB_BYTES_MAX, TOOL_MESSAGE_BYTES_MAX};
    let node = Node::start(|_| {});
    let mut bystander = node.driver();
    let announce = |player: &mut Player, bytes: usize| {
        player.send_raw(&u32::try_from(bytes).unwrap().to_le_bytes());
        assert!(player.is_closed());
    };
    announce(&mut node.stranger(), HELLO_BYTES_MAX + 1);
    announce(&mut node.tool(), TOOL_MESSAGE_BYTES_MAX + 1);
    let mut jobless = node.stranger();
    jobless.say_hello(Role::Driver);
    announce(&mut jobless, JOB_BYTES_MAX + 1);
    assert_eq!(bystander.query("status", "")["violations"], 3);
    // A driver exports functions.
    let function = FunctionId([7; 16]);
    bystander.send(&ToNode::Export { function, bytes: vec![9; 3 << 20], contains: vec![] });
    assert_eq!(bystander.query("status", "")["violations"], 3);
}

#[test]
fn who_never_said_hello_kept_its_connection_for_ever() {
    let node = Node::start(|_| {});
    let mut silent = node.stranger();
    let mut jobless = node.stranger();
    jobless.say_hello(Role::Driver);
    let mut bystander = node.driver();
    assert!(silent.is_closed());
    assert!(jobless.is_closed());
    assert_eq!(bystander.query("status", "")["violations"], 2);
}

#[test]
fn those_who_never_said_hello_took_all_connections() {
    use hoplo_base::limits::NODE_STRANGERS_MAX;
    let node = Node::start(|_| {});
    let mut oldest = node.stranger();
    let rest: Vec<_> = (0..NODE_STRANGERS_MAX).map(|_| node.stranger()).collect();
    assert!(oldest.is_closed());
    // The driver, too, is one of them until its hello: it takes the place of another.
    assert_eq!(node.driver().query("status", "")["violations"], 2);
    drop(rest);
}

/// Each announces as much as it may, and sends nearly all of it.
#[test]
fn messages_that_do_not_end_were_bounded_for_each_and_not_for_all() {
    use hoplo_base::limits::{NODE_UNFINISHED_BYTES_MAX, PROCESS_MESSAGE_BYTES_MAX};
    let node = Node::start(|_| {});
    let mut bystander = node.driver();
    let part = PROCESS_MESSAGE_BYTES_MAX - 1;
    let mut drivers: Vec<_> = (0..3).map(|_| node.driver()).collect();
    for driver in &mut drivers[..NODE_UNFINISHED_BYTES_MAX / part] {
        driver.send_raw(&(PROCESS_MESSAGE_BYTES_MAX as u32).to_le_bytes());
        driver.send_raw(&vec![0; part]);
    }
    let last = drivers.last_mut().unwrap();
    last.send_raw(&(PROCESS_MESSAGE_BYTES_MAX as u32).to_le_bytes());
    last.send_raw(&vec![0; 1 << 20]);
    eventually("one of those that had most is gone", || {
        (bystander.query("status", "")["violations"] == 1).then_some(())
    });
    assert_eq!(bystander.query("status", "")["jobs"].as_array().unwrap().len(), 3);
}

#[test]
fn a_driver_that_tells_no_job_is_not_welcome() {
    let node = Node::start(|_| {});
    let mut jobless = node.stranger();
    jobless.say_hello(Role::Driver);
    jobless.send(&ToNode::Blocked);
    assert!(jobless.is_closed());
    assert!(!jobless.was_told(|message| matches!(message, ToClient::Welcome(_))));
}

#[test]
fn a_lease_brings_a_worker_and_the_channel_reaches_it() {
    let node = Node::start(|_| {});
    let mut driver = node.driver();
    let (lease, worker) = lease(&mut driver, &[("CPU", 1.0)]);
    let (read, write) = rustix::pipe::pipe().unwrap();
    driver.send_with(&ToNode::Connect { to: worker }, write);
    // The worker writes into what it got.
    let mut bytes = [0; 16];
    let read_len = rustix::io::read(&read, &mut bytes).unwrap();
    assert_eq!(&bytes[..read_len], b"connected");
    // A lease that came back is granted again with the same worker.
    driver.send(&ToNode::LeaseReturn { lease });
    let (again, same) = self::lease(&mut driver, &[("CPU", 1.0)]);
    assert!(again != lease && same == worker);
}

#[test]
fn a_killed_worker_is_told_with_its_signal_and_last_words() {
    let node = Node::start(|_| {});
    let mut driver = node.driver();
    let (_, worker) = lease(&mut driver, &[("CPU", 1.0)]);
    driver.order(worker, Order::Print);
    let printed = driver.wait("its output", |message| match message {
        ToClient::Output { lines, .. } => lines.into_iter().find(|line| line == "the last word"),
        _ => None,
    });
    assert_eq!(printed, "the last word");
    driver.order(worker, Order::KillYourself);
    let obituary = gone(&mut driver, worker);
    assert_eq!(obituary.cause, DeathCause::Signaled { signal: 9 });
    assert_eq!(obituary.last_lines.last().map(String::as_str), Some("the last word"));
    let log = node.session().join(format!("logs/worker-{}.out", obituary.pid));
    assert!(std::fs::read_to_string(log).unwrap().contains("the last word"));
    // The CPU is free again, for a worker that is another one.
    assert_ne!(lease(&mut driver, &[("CPU", 1.0)]).1, worker);
}

#[test]
fn an_exit_code_is_told_and_a_connection_to_the_dead_is_answered() {
    let node = Node::start(|_| {});
    let mut driver = node.driver();
    let (_, worker) = lease(&mut driver, &[("CPU", 1.0)]);
    driver.order(worker, Order::Exit3);
    assert_eq!(gone(&mut driver, worker).cause, DeathCause::Exited { code: 3 });
    let (_read, write) = rustix::pipe::pipe().unwrap();
    driver.send_with(&ToNode::Connect { to: worker }, write);
    assert_eq!(gone(&mut driver, worker).cause, DeathCause::Exited { code: 3 });
}

#[test]
fn only_the_leaseholder_may_kill() {
    let node = Node::start(|_| {});
    let (mut driver, mut other) = (node.driver(), node.driver());
    let (_, worker) = lease(&mut driver, &[("CPU", 1.0)]);
    other.send(&ToNode::KillWorker { worker });
    other.query("status", ""); // It was handled.
    driver.query("status", "");
    assert!(!driver.was_told(|message| matches!(message, ToClient::ProcessGone { .. })));
    driver.send(&ToNode::KillWorker { worker });
    assert!(matches!(gone(&mut driver, worker).cause, DeathCause::Stopped { .. }));
}

#[test]
fn a_blocked_worker_lends_its_cpu_to_its_child() {
    let node = Node::start(|options| options.num_cpus = Some(1.0));
    let mut driver = node.driver();
    let (_, worker) = lease(&mut driver, &[("CPU", 1.0)]);
    driver.order(worker, Order::Block);
    driver.wait("word that it blocks", |message| match message {
        ToClient::WorkerBlocked { worker: blocked } => (blocked == worker).then_some(()),
        _ => None,
    });
    assert_ne!(lease(&mut driver, &[("CPU", 1.0)]).1, worker);
}

#[test]
fn what_the_node_lacks_is_told() {
    let node = Node::start(|options| options.num_gpus = Some(0.0));
    let mut driver = node.driver();
    driver.send(&ToNode::LeaseDemand { key: 1, shape: shape(&[("GPU", 1.0)]).into(), wanted: 1 });
    let reason = driver.wait("the reason", |message| match message {
        ToClient::LeaseStuck { key: 1, reason, infeasible: true } => reason,
        _ => None,
    });
    assert_eq!(reason, "needs GPU 1, node has 0");
}

#[test]
fn when_no_zygote_lives_the_demand_fails_with_what_it_printed() {
    let node = Node::start(|options| {
        let script = "echo no module named hoplo >&2; exit 1";
        options.zygote = ["sh", "-c", script].map(str::to_string).to_vec();
    });
    let mut driver = node.driver();
    driver.send(&ToNode::LeaseDemand { key: 1, shape: shape(&[("CPU", 1.0)]).into(), wanted: 1 });
    let failure = driver.wait("a failure", |message| match message {
        ToClient::LeaseFailed { key: 1, failure } => Some(failure),
        _ => None,
    });
    assert_eq!(failure.kind, FailureKind::WorkerStart);
    assert!(failure.text().contains("no module named hoplo"), "{}", failure.text());
}

#[test]
fn a_zygote_that_dies_is_replaced_and_its_workers_die_with_a_word() {
    let node = Node::start(|_| {});
    let mut driver = node.driver();
    let (_, worker) = lease(&mut driver, &[("CPU", 1.0)]);
    let status = driver.query("status", "");
    let zygote = i32::try_from(status["zygote_pid"].as_i64().unwrap()).unwrap();
    player::kill(zygote);
    eventually("another zygote", || {
        let pid = driver.query("status", "")["zygote_pid"].as_i64();
        pid.filter(|pid| *pid != i64::from(zygote))
    });
    driver.order(worker, Order::KillYourself);
    let DeathCause::Lost { reason } = gone(&mut driver, worker).cause else {
        panic!("nobody knows its status");
    };
    assert!(reason.contains("not known"), "{reason}");
    assert_ne!(lease(&mut driver, &[("CPU", 1.0)]).1, worker);
}

#[test]
fn a_job_that_ends_takes_its_workers_along() {
    let node = Node::start(|_| {});
    let mut driver = node.driver();
    let mut bystander = node.driver();
    let (_, worker) = lease(&mut driver, &[("CPU", 1.0)]);
    let workers = bystander.query("workers", "");
    let row = workers.as_array().unwrap().iter().find(|row| row["id"] == worker.to_string());
    let pid = i32::try_from(row.unwrap()["pid"].as_i64().unwrap()).unwrap();
    drop(driver);
    eventually("the worker's end", || player::is_gone(pid).then_some(()));
    eventually("an empty node", || (bystander.query("status", "")["workers"] == 0).then_some(()));
    assert_eq!(bystander.query("available_resources", "")["CPU"], 2.0);
}

#[test]
fn a_worker_over_its_memory_is_stopped_with_the_figures() {
    let node = Node::start(|options| options.memory = Some(1 << 30));
    let mut driver = node.driver();
    let limit = 64 * 1024 * 1024;
    let (_, worker) = lease(&mut driver, &[("CPU", 1.0), ("memory", f64::from(limit))]);
    driver.order(worker, Order::Eat);
    let DeathCause::OutOfMemory { detail } = gone(&mut driver, worker).cause else {
        panic!("it was not stopped for its memory");
    };
    assert!(detail.contains("64.0 MiB"), "{detail}");
}

/// REF-5: whoever creates an actor before somebody else asks for it is heard before.
#[test]
fn what_was_written_before_a_question_is_read_before_its_answer() {
    let node = Node::start(|options| options.num_gpus = Some(0.0));
    let (mut creator, mut asker) = (node.driver(), node.driver());
    for round in 0..200 {
        let name = format!("actor {round}");
        let actor = ActorId(hoplo_base::TaskId { owner: creator.process(), seq: round });
        creator.send(&ToNode::ActorCreate {
            request: 0,
            spec: Box::new(spec(actor, &name)),
            get_if_exists: false,
        });
        asker.send(&ToNode::ActorLookup { request: round, namespace: String::new(), name });
        let found = asker.wait("an answer", |message| match message {
            ToClient::ActorFound { request, found } if request == round => Some(found),
            _ => None,
        });
        assert_eq!(found.expect("it was created before").actor, actor);
    }
    let name = "nobody".to_string();
    asker.send(&ToNode::ActorLookup { request: 999, namespace: String::new(), name });
    let found = asker.wait("an answer", |message| match message {
        ToClient::ActorFound { request: 999, found } => Some(found),
        _ => None,
    });
    assert_eq!(found, None);
}

fn spec(actor: ActorId, name: &str) -> ActorSpec {
    ActorSpec {
        actor,
        class_name: "Counter".to_string(),
        name: name.to_string(),
        namespace: String::new(),
        detached: false,
        shape: shape(&[("GPU", 1.0)]),
        held: ResourceSet::new(),
        max_restarts: 0,
        checkpoints: None,
        frame: vec![],
        contains: vec![],
        handle: vec![],
    }
}

#[test]
fn an_actor_lives_restarts_and_dies_with_its_last_words() {
    let node = Node::start(|_| {});
    let mut driver = node.driver();
    let actor = ActorId(hoplo_base::TaskId { owner: driver.process(), seq: 1 });
    let spec = ActorSpec { shape: shape(&[("CPU", 1.0)]), max_restarts: 1, ..spec(actor, "") };
    driver.send(&ToNode::ActorCreate { request: 0, spec: Box::new(spec), get_if_exists: false });
    driver.send(&ToNode::ActorWatch { actor });
    let alive = |driver: &mut Player, wanted: u32| {
        driver.wait("a living actor", |message| match message {
            ToClient::ActorState {
                state: ActorState::Alive { incarnation, worker, .. }, ..
            } => (incarnation == wanted).then_some(worker),
            _ => None,
        })
    };
    let first = alive(&mut driver, 0);
    driver.order(first, Order::KillYourself);
    let second = alive(&mut driver, 1);
    assert_ne!(first, second);
    // What it holds is nothing: both CPUs are free.
    eventually("free CPUs", || {
        (driver.query("available_resources", "")["CPU"] == 2.0).then_some(())
    });
    driver.order(second, Order::Print);
    driver.order(second, Order::Exit3);
    let failure = driver.wait("its death", |message| match message {
        ToClient::ActorState { state: ActorState::Dead { failure }, .. } => Some(failure),
        _ => None,
    });
    assert_eq!(failure.kind, FailureKind::ActorDied);
    let text = failure.text();
    assert!(text.contains("code 3") && text.contains("the last word"), "{text}");
}

#[test]
fn an_actor_without_handles_is_asked_to_finish() {
    let node = Node::start(|_| {});
    let mut driver = node.driver();
    let actor = ActorId(hoplo_base::TaskId { owner: driver.process(), seq: 1 });
    let spec = ActorSpec { shape: shape(&[("CPU", 1.0)]), ..spec(actor, "") };
    driver.send(&ToNode::ActorCreate { request: 0, spec: Box::new(spec), get_if_exists: false });
    driver.send(&ToNode::ActorWatch { actor });
    driver.wait("a living actor", |message| match message {
        ToClient::ActorState { state: ActorState::Alive { .. }, .. } => Some(()),
        _ => None,
    });
    let object = actor.handle();
    let released = hoplo_wire::node::Notice::Released { object, tokens: 1 };
    driver.send(&ToNode::Notices(vec![released]));
    let failure = driver.wait("its death", |message| match message {
        ToClient::ActorState { state: ActorState::Dead { failure }, .. } => Some(failure),
        _ => None,
    });
    assert!(failure.text().contains("out of scope"), "{}", failure.text());
}

#[test]
fn functions_and_keys_are_kept_and_found() {
    let node = Node::start(|_| {});
    let mut driver = node.driver();
    let function = FunctionId([7; 16]);
    let fetch = |driver: &mut Player, function: FunctionId| {
        driver.send(&ToNode::Fetch { function, call: None });
        driver.wait("a function", |message| match message {
            ToClient::Function { bytes, .. } => Some(bytes),
            _ => None,
        })
    };
    assert_eq!(fetch(&mut driver, function), None);
    let bytes = vec![9; 3 << 20];
    driver.send(&ToNode::Export { function, bytes: bytes.clone(), contains: vec![] });
    assert_eq!(fetch(&mut driver, function), Some(bytes));

    let mut kv = |operation| {
        driver.send(&ToNode::Kv { request: 1, namespace: "n".to_string(), operation });
        driver.wait("an answer", |message| match message {
            ToClient::KvAnswer { value, keys, .. } => Some((value, keys)),
            _ => None,
        })
    };
    let put = |value: &[u8], overwrite| KvOperation::Put {
        key: b"k".to_vec(),
        value: value.to_vec(),
        overwrite,
    };
    assert_eq!(kv(put(b"1", false)), (None, vec![]));
    assert_eq!(kv(put(b"2", false)), (Some(b"1".to_vec()), vec![]));
    assert_eq!(kv(put(b"3", true)), (None, vec![]));
    let keys = kv(KvOperation::Keys { prefix: b"".to_vec() }).1;
    assert_eq!(keys, [b"k".to_vec()]);
    assert_eq!(kv(KvOperation::Delete { key: b"k".to_vec() }).0, Some(b"3".to_vec()));
    assert_eq!(kv(KvOperation::Get { key: b"k".to_vec() }).0, None);
}

#[test]
fn a_daemon_leaves_with_its_driver_and_leaves_nothing() {
    let (ours, theirs) = fds::socketpair().unwrap();
    let node = Node::start_for(Some(theirs), |_| {});
    let mut driver = Player::on(ours);
    driver.hello(Role::Driver);
    let (_, _worker) = lease(&mut driver, &[("CPU", 1.0)]);
    let session = node.session().to_path_buf();
    drop(driver);
    node.wait_for_end(Duration::from_secs(2));
    assert!(!session.join("sock").exists() && !session.join("spill").exists());
    let base = Places::only(session.parent().unwrap().to_path_buf()).find().unwrap().unwrap();
    assert!(base.live().is_empty());
}

#[test]
fn a_worker_that_does_not_listen_is_killed_when_the_node_stops() {
    let node = Node::start(|_| {});
    let mut driver = node.driver();
    let (_, worker) = lease(&mut driver, &[("CPU", 1.0)]);
    driver.order(worker, Order::IgnoreExit);
    driver.query("status", "");
    driver.send(&ToNode::Stop);
    assert!(driver.is_closed());
    node.wait_for_end(Duration::from_secs(2));
}

/// Not a test: the zygote that the daemon of a test starts.
#[test]
#[ignore = "started by the daemon of another test"]
fn fake_zygote() {
    fake::zygote();
}

/// Not a test: a worker that the fake zygote starts.
#[test]
#[ignore = "started by the fake zygote"]
fn fake_worker() {
    fake::worker();
}
