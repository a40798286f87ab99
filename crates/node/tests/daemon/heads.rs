//! A head whose daemon is killed, and the daemon that goes on with its control store. What the kill leaves is
//! taken as a copy of the session directory while the first daemon lives.

use std::path::{Path, PathBuf};

use hoplo_base::{ActorId, FunctionId, JobId, TaskId};
use hoplo_wire::call::{CallHeader, CallKind, encode_refs};
use hoplo_wire::node::{
    ActorFound, ActorSpec, KvOperation, Lineage, Notice, SharedState, ToClient, ToNode,
};
use hoplo_wire::{Failure, FailureKind};
use serde_json::Value;

use crate::player::{Node, Player, eventually};
use crate::{shape, spec};

fn kv(player: &mut Player, operation: KvOperation) -> (Option<Vec<u8>>, Option<String>) {
    player.send(&ToNode::Kv { request: 1, namespace: "n".to_string(), operation });
    player.wait("an answer", |message| match message {
        ToClient::KvAnswer { value, refused, .. } => Some((value, refused)),
        _ => None,
    })
}

fn look_up(player: &mut Player, name: &str) -> Option<ActorFound> {
    let (namespace, name) = (String::new(), name.to_string());
    player.send(&ToNode::ActorLookup { request: 5, namespace, name });
    player.wait("an answer", |message| match message {
        ToClient::ActorFound { request: 5, found } => Some(found),
        _ => None,
    })
}

/// As `kill -9` leaves it.
fn copied(session: &Path) -> PathBuf {
    let copy = session.with_file_name("copy");
    std::fs::create_dir_all(copy.join("control")).unwrap();
    for entry in std::fs::read_dir(session.join("control")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, copy.join("control").join(path.file_name().unwrap())).unwrap();
        }
    }
    for name in ["lock", "hoplo-session"] {
        std::fs::write(copy.join(name), "").unwrap();
    }
    std::fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    copy
}

fn row<'a>(rows: &'a Value, key: &str, value: &str) -> Option<&'a Value> {
    rows.as_array().unwrap().iter().find(|row| row[key] == value)
}

#[test]
fn a_killed_head_is_gone_on_with() {
    let node = Node::start(|options| options.head = true);
    let mut driver = node.driver();
    let put = |value: &[u8]| KvOperation::Put {
        key: b"k".to_vec(),
        value: value.to_vec(),
        overwrite: true,
    };
    assert_eq!(kv(&mut driver, put(b"kept")), (None, None));
    let actor = ActorId(TaskId { owner: driver.process(), seq: 1 });
    let create = ActorSpec {
        shape: shape(&[("CPU", 1.0)]),
        detached: true,
        handle: vec![4, 2],
        ..spec(actor, "counter")
    };
    driver.send(&ToNode::ActorCreate { request: 0, spec: Box::new(create), get_if_exists: false });
    let function = FunctionId([7; 16]);
    driver.send(&ToNode::Export { function, bytes: vec![9; 5 << 20], contains: vec![] });
    let task = TaskId { owner: driver.process(), seq: 9 };
    let object = task.object(0);
    let lineage = Lineage {
        task,
        shape: shape(&[("CPU", 1.0)]).into(),
        frame: frame(task),
        contains: vec![],
        retries: 3,
    };
    let state = SharedState::Pending { lineage: Some(lineage) };
    driver.send(&ToNode::Notices(vec![Notice::Shared { object, state }]));
    driver.query("status", "");

    // Once it has lain there for a while, the task has a row.
    let second = eventually("the row of a task that is pending for long", || {
        let copy = copied(node.session());
        let second = Node::start(|options| {
            options.head = true;
            options.session_dir = Some(copy);
        });
        row(&second.tool().query("tasks", "")["tasks"], "task", &task.to_string())?;
        Some(second)
    });
    let mut driver = second.driver();
    assert_eq!(kv(&mut driver, KvOperation::Get { key: b"k".to_vec() }).0, Some(b"kept".to_vec()));
    let actors = driver.query("actors", "");
    let listed = row(&actors, "name", "counter").unwrap();
    assert_eq!((&listed["state"], &listed["detached"]), (&"DEAD".into(), &true.into()));
    let reason = listed["reason"].as_str().unwrap().to_string();
    assert!(reason.contains("daemon ended without stopping it"), "{reason}");
    let found = look_up(&mut driver, "counter").unwrap();
    let Failure { kind, .. } = found.dead.clone().unwrap();
    assert_eq!((found.actor, found.handle, kind), (actor, vec![4, 2], FailureKind::ActorDied));
    let tasks = driver.query("tasks", "");
    assert_eq!(tasks["more"], 0);
    assert_eq!(row(&tasks["tasks"], "task", &task.to_string()).unwrap()["state"], "lost");
    let why = driver.query("why", &task.to_string()).to_string();
    assert!(why.contains("was lost"), "{why}");
    let why = driver.query("why", &actor.to_string()).to_string();
    assert!(why.contains("daemon ended"), "{why}");
    // Its name is free.
    let fresh = ActorId(TaskId { owner: driver.process(), seq: 1 });
    let create = ActorSpec { shape: shape(&[("CPU", 1.0)]), ..spec(fresh, "counter") };
    driver.send(&ToNode::ActorCreate { request: 3, spec: Box::new(create), get_if_exists: false });
    driver.wait("the new actor", |message| match message {
        ToClient::ActorCreated { request: 3, result } => Some(result.unwrap()),
        _ => None,
    });
    assert_eq!(look_up(&mut driver, "counter").unwrap().actor, fresh);
}

/// Of a call without arguments.
fn frame(task: TaskId) -> Vec<u8> {
    let header = CallHeader {
        kind: CallKind::Task,
        flags: 0,
        returns: 1,
        task,
        attempt: 0,
        max_calls: 0,
        function: FunctionId([7; 16]),
        job: JobId(1),
    };
    let mut frame = header.encode(0, 0, 0).to_vec();
    encode_refs(&[], &mut frame);
    frame
}

#[test]
fn a_head_that_is_stopped_leaves_nothing_and_a_drivers_own_node_never_does() {
    let node = Node::start(|options| options.head = true);
    let session = node.session().to_path_buf();
    assert!(session.join("control").exists());
    let mut tool = node.tool();
    tool.send(&ToNode::Stop);
    node.wait_for_end(std::time::Duration::from_secs(10));
    assert!(!session.join("control").exists());
    let node = Node::start(|_| {});
    assert!(!node.session().join("control").exists());
}

#[test]
fn a_value_that_is_too_large_for_the_store_is_refused_to_who_asked() {
    let node = Node::start(|options| options.head = true);
    let mut driver = node.driver();
    let value = vec![0; 9 << 20];
    let put = KvOperation::Put { key: b"k".to_vec(), value, overwrite: true };
    let (_, refused) = kv(&mut driver, put);
    assert!(refused.as_deref().is_some_and(|why| why.contains("allowed")), "{refused:?}");
    assert_eq!(kv(&mut driver, KvOperation::Get { key: b"k".to_vec() }).0, None);
}
