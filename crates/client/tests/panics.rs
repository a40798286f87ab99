//! A panic in a process ends its client with an error for everybody who waits, and never in a wait without end.
#![allow(clippy::unwrap_used)]

mod daemon;

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hoplo_base::{ObjectId, ProcessId, ResourceSet, TaskId};
use hoplo_client::{Call, Client, Content, Waited};
use hoplo_wire::FailureKind;

const PATIENCE: Duration = Duration::from_secs(60);

/// A client of a daemon that greets, and then says nothing. It ends when its client hangs up.
fn client() -> (Arc<Client>, JoinHandle<()>) {
    let [served] = daemon::clients(|_| {}, |_, _, _, _| {});
    served
}

/// The result of a task that no worker will ever run.
fn pending(client: &Client) -> ObjectId {
    let options = daemon::call_options(ResourceSet::new(), 0);
    let call = Call { options, args: vec![], refs: vec![], nested: vec![], packed: false };
    client.submit(call, None).object(0)
}

/// Waits in another thread; gives the text of the failure that ended the wait.
fn waits(client: &Arc<Client>, object: ObjectId) -> impl FnOnce() -> String + use<> {
    let (ended, end) = sync_channel(1);
    let client = client.clone();
    std::thread::spawn(move || {
        while client.wait(&[object], 1, None) != Waited::Ready {}
        let Some(Content::Failed(failure)) = client.read(object) else { panic!("a value?") };
        assert_eq!(failure.kind, FailureKind::NodeDied);
        ended.send(failure.text()).unwrap();
    });
    move || end.recv_timeout(PATIENCE).expect("the wait ends")
}

fn all_ends(client: Arc<Client>, daemon: JoinHandle<()>, end: impl FnOnce() -> String) {
    assert!(end().contains("mistake of its own"));
    assert!(client.daemon_gone().is_some());
    // Who comes later is told as well.
    let later = pending(&client);
    assert!(waits(&client, later)().contains("mistake of its own"));
    client.close();
    daemon.join().unwrap();
}

#[test]
fn a_panic_under_the_session_lock_left_everybody_else_waiting() {
    let (client, daemon) = client();
    let object = pending(&client);
    let end = waits(&client, object);
    let (wrong, other) = (client.clone(), pending(&client));
    // Dropped once too often: an assertion of the session.
    let panicked = std::thread::spawn(move || (0..3).for_each(|_| wrong.drop_ref(other))).join();
    assert!(panicked.is_err());
    all_ends(client, daemon, end);
}

#[test]
fn a_panic_in_a_helper_thread_left_everybody_waiting() {
    let (client, daemon) = client();
    let object = pending(&client);
    let end = waits(&client, object);
    let ready = client.put(b"value", &[]);
    client.on_ready(ready, Box::new(|| panic!("a callback fails")));
    all_ends(client, daemon, end);
}

#[test]
fn a_callback_that_panicked_kept_the_others_from_being_called() {
    const EACH: usize = 8;
    let (client, daemon) = client();
    let (called, calls) = sync_channel(EACH);
    for _ in 0..EACH {
        let called = called.clone();
        client.on_ready(pending(&client), Box::new(|| panic!("a callback fails")));
        client.on_ready(pending(&client), Box::new(move || called.send(()).unwrap()));
    }
    // All are due at once when the client ends.
    let ready = client.put(b"value", &[]);
    client.on_ready(ready, Box::new(|| panic!("a callback fails")));
    for _ in 0..EACH {
        calls.recv_timeout(PATIENCE).expect("each is called");
    }
    client.close();
    daemon.join().unwrap();
}

#[test]
fn a_client_that_gave_up_answers_everybody() {
    let (client, daemon) = client();
    let end = waits(&client, pending(&client));
    let fails = || {
        let ready = client.put(b"value", &[]);
        client.on_ready(ready, Box::new(|| panic!("a callback fails")));
    };
    fails();
    assert!(end().contains("mistake of its own"));
    // All was over already: its session is not asked any more.
    fails();
    let unknown = TaskId { owner: ProcessId(99), seq: 1 }.object(0);
    let deadline = Instant::now() + PATIENCE;
    let failure = loop {
        if let Some(Content::Failed(failure)) = client.read(unknown) {
            break failure;
        }
        assert!(Instant::now() < deadline, "it gives up");
        std::thread::yield_now();
    };
    assert_eq!(failure.kind, FailureKind::NodeDied);
    let end = waits(&client, unknown);
    all_ends(client, daemon, end);
}
