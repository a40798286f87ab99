//! Control nodes that hold the configuration themselves: real ones, over unix sockets.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use hoplo_net::hub::{Gone, HubOptions};
use hoplo_net::poll::Bell;
use hoplo_wire::control::{ClientId, Speaker};
use hoplo_wire::register::{Ask, Ballot, Seat};

use super::super::super::cluster::Cluster;
use super::super::super::frame::Frame;
use super::super::super::server::{Server, ServerOptions};
use super::super::super::{Happening, Hub};
use super::super::{NodesStore, Place};
use super::*;
use crate::disk::cold::Retention;
use crate::disk::log::Fsync;

struct Nodes {
    folder: PathBuf,
    cluster: Cluster,
    running: Vec<Option<Running>>,
    stores: u64,
}

struct Running {
    ended: Arc<AtomicBool>,
    bell: Bell,
    thread: JoinHandle<()>,
}

impl Nodes {
    fn start(name: &str, count: usize) -> Self {
        let folder = folder(name);
        let sockets = (0..count).map(|at| folder.join(format!("{at}.sock")).display().to_string());
        let file = Cluster::make(&folder.join("cluster"), sockets.collect(), 1, 1).unwrap();
        let cluster = Cluster::load(&file).unwrap();
        let running = (0..count).map(|_| None).collect();
        let mut nodes = Self { folder, cluster, running, stores: 0 };
        (0..count).for_each(|at| nodes.starts(at));
        nodes
    }

    fn folder(&self, at: usize) -> PathBuf {
        self.folder.join(format!("node-{at}"))
    }

    fn holds_something(&self, at: usize) -> bool {
        ["register.json", "register.json.other"].iter().any(|half| {
            let text = fs::read_to_string(self.folder(at).join(half));
            text.is_ok_and(|text| text.contains("\"accepted\":{"))
        })
    }

    fn options(&self, at: usize) -> ServerOptions {
        ServerOptions {
            folder: self.folder(at),
            cluster: self.cluster.clone(),
            listen: self.cluster.nodes[at].clone(),
            advertise: None,
            config: Place::Nodes,
            holds_replicas: false,
            fsync: Fsync::Never,
            memory_bytes: None,
            retention: Retention { age: None, bytes: None },
        }
    }

    fn starts(&mut self, at: usize) {
        let (options, ended) = (self.options(at), Arc::new(AtomicBool::new(false)));
        let (sender, bells) = channel();
        let until = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            let server = Server::start(options).unwrap();
            sender.send(server.bell()).unwrap();
            server.run(&|| until.load(Ordering::SeqCst)).unwrap();
        });
        let bell = bells.recv().unwrap();
        self.running[at] = Some(Running { ended, bell, thread });
    }

    fn stops(&mut self, at: usize) {
        let running = self.running[at].take().unwrap();
        running.ended.store(true, Ordering::SeqCst);
        running.bell.ring();
        running.thread.join().unwrap();
    }

    /// Of another process each time.
    fn store(&mut self) -> NodesStore {
        self.stores += 1;
        let me = ReplicaId { node: NodeId(1 << 40 | self.stores), incarnation: 1 };
        NodesStore::new(&self.cluster, me, self.running.len() + self.stores as usize).unwrap()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for at in 0..self.running.len() {
            if self.running[at].is_some() {
                self.stops(at);
            }
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// On what it expects, until nobody comes between: the nodes' own coordinators settle what they read.
fn swapped(store: &mut NodesStore, expected: Option<u64>, epoch: u64) -> u64 {
    match store.swap(expected, &config(epoch)) {
        Ok(Swapped::Stored(revision)) => revision,
        other => panic!("{other:?}"),
    }
}

#[test]
fn control_nodes_conform() {
    for count in [1, 2, 3] {
        let mut nodes = Nodes::start(&format!("config-nodes-{count}"), count);
        conforms(&mut || Box::new(nodes.store()));
    }
}

#[test]
fn without_a_majority_the_error_names_who_is_missing_and_afterwards_all_goes_on() {
    let mut nodes = Nodes::start("config-majority", 3);
    let mut store = nodes.store();
    let first = swapped(&mut store, None, 1);
    nodes.stops(0);
    let second = swapped(&mut store, Some(first), 2);
    nodes.stops(2);
    let (gone, here) = (["0.sock", "2.sock"], "1.sock");
    for error in [store.load().unwrap_err(), store.swap(Some(second), &config(3)).unwrap_err()] {
        let error = error.to_string();
        assert!(error.contains("2 of 3 must answer"), "{error}");
        assert!(gone.iter().all(|name| error.contains(name)) && !error.contains(here), "{error}");
    }
    nodes.starts(2);
    // What an error left open, the next load tells (STORE-4).
    let (revision, found) = store.load().unwrap().unwrap();
    assert!(found == config(2) || found == config(3), "{found:?}");
    let last = swapped(&mut store, Some(revision), 4);
    nodes.starts(0);
    assert_eq!(nodes.store().load(), Ok(Some((last, config(4)))));
}

#[test]
fn a_cluster_begins_when_all_nodes_run_and_until_then_the_error_says_so() {
    let mut nodes = Nodes::start("config-begins", 3);
    nodes.stops(1);
    let error = nodes.store().load().unwrap_err().to_string();
    assert!(error.contains("begins") && error.contains("1.sock"), "{error}");
    nodes.starts(1);
    assert_eq!(nodes.store().load(), Ok(None));
}

#[test]
fn a_node_whose_folder_was_deleted_holds_the_configuration_again_and_another_may_die() {
    let mut nodes = Nodes::start("config-deleted", 3);
    let mut store = nodes.store();
    nodes.stops(2);
    nodes.starts(2);
    let mut revision = Some(swapped(&mut store, None, 1));
    for lost in [0, 1, 2] {
        nodes.stops(lost);
        fs::remove_dir_all(nodes.folder(lost)).unwrap();
        nodes.starts(lost);
        // It gets a seat, and the configuration, with the changes that come.
        let deadline = Instant::now() + Duration::from_secs(20);
        while !nodes.holds_something(lost) {
            assert!(Instant::now() < deadline, "node {lost} was given nothing");
            revision = Some(swapped(&mut store, revision, 5));
        }
        let other = (lost + 1) % 3;
        nodes.stops(other);
        revision = Some(swapped(&mut store, revision, 7));
        assert_eq!(nodes.store().load(), Ok(Some((revision.unwrap(), config(7)))));
        nodes.starts(other);
    }
}

#[test]
fn when_most_folders_are_deleted_the_error_says_whose() {
    let mut nodes = Nodes::start("config-lost", 3);
    let revision = swapped(&mut nodes.store(), None, 1);
    for lost in [0, 2] {
        nodes.stops(lost);
        fs::remove_dir_all(nodes.folder(lost)).unwrap();
    }
    [0, 2].into_iter().for_each(|lost| nodes.starts(lost));
    let error = nodes.store().swap(Some(revision), &config(2)).unwrap_err().to_string();
    assert!(error.contains("0.sock, ") && error.contains("2.sock. Start"), "{error}");
}

#[test]
fn a_folder_of_another_node_is_refused_by_name() {
    let mut nodes = Nodes::start("config-others", 3);
    swapped(&mut nodes.store(), None, 1);
    (0..3).for_each(|at| nodes.stops(at));
    let kept = |nodes: &Nodes, at: usize| nodes.folder(at).join("register.json");
    fs::copy(kept(&nodes, 0), kept(&nodes, 1)).unwrap();
    let _ = fs::remove_file(nodes.folder(1).join("register.json.other"));
    let error = Server::start(nodes.options(1)).err().unwrap().to_string();
    assert!(error.contains("register.json") && error.contains("place 1 of 3"), "{error}");
}

/// As a loss of power leaves the file that was written last.
#[test]
fn a_file_that_a_crash_tore_leaves_what_was_answered_before() {
    let mut nodes = Nodes::start("config-nodes-torn", 1);
    let mut store = nodes.store();
    let first = swapped(&mut store, None, 1);
    nodes.stops(0);
    let halves = ["register.json", "register.json.other"].map(|name| nodes.folder(0).join(name));
    let whole = halves.clone().map(|path| fs::read(path).unwrap());
    let number = |at: &usize| {
        let text: serde_json::Value = serde_json::from_slice(&whole[*at]).unwrap();
        text["revision"].as_u64().unwrap()
    };
    let newest = [0, 1].into_iter().max_by_key(number).unwrap();
    let text = whole[newest].trim_ascii_end().len();
    let put_back = || (0..2).for_each(|at| fs::write(&halves[at], &whole[at]).unwrap());
    for at in [20, text / 3, text / 2, text - 1] {
        put_back();
        let mut torn = whole[newest].clone();
        torn[at..].fill(b'\n');
        fs::write(&halves[newest], &torn).unwrap();
        nodes.starts(0);
        // The acceptance is torn, the promise before it is not: nothing was acknowledged, as far as this file knows.
        assert_eq!(nodes.store().load(), Ok(None), "cut at {at}");
        nodes.stops(0);
    }
    put_back();
    nodes.starts(0);
    assert_eq!(nodes.store().load(), Ok(Some((first, config(1)))));
}

/// Why the node at this place does not go on with who says that.
fn refusal(nodes: &Nodes, at: usize, who: Speaker, ask: Ask) -> String {
    let hello = nodes.cluster.hello(who);
    let mut hub = Hub::new(HubOptions { hello, identity: None }).unwrap();
    let link = hub.dial(&nodes.cluster.nodes[at]);
    hub.send(link, &Frame::ToRegister(ask));
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        assert!(Instant::now() < deadline, "it was not refused");
        let mut happenings = Vec::new();
        hub.turn(Some(Instant::now() + Duration::from_millis(10)), &mut happenings).unwrap();
        for happening in happenings {
            match happening {
                Happening::Closed { why: Gone::Unfit { why, .. }, .. } => return why,
                Happening::Opened { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn only_coordinators_ask_those_who_hold_the_configuration() {
    let nodes = Nodes::start("config-who", 4);
    let [me, other] = [1, 2].map(|node| ReplicaId { node: NodeId(node), incarnation: 1 });
    let read = Ask::Read { number: 1 };
    for who in [Speaker::Client(ClientId(1)), Speaker::Replica(me)] {
        let why = refusal(&nodes, 0, who, read.clone());
        assert!(why.contains("only a coordinator"), "{why}");
    }
    let (ballot, seats) = (Ballot { count: 1, proposer: other }, vec![Seat::EMPTY; 3]);
    let why = refusal(&nodes, 0, Speaker::Coordinator(me), Ask::Prepare { ballot, seats });
    assert!(why.contains("does not speak for replica 2.1"), "{why}");
    // Of four, three hold it.
    let why = refusal(&nodes, 3, Speaker::Coordinator(me), read);
    assert!(why.contains("does not hold the configuration"), "{why}");
}
