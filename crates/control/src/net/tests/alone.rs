//! The store of a head, as other nodes see it: who joins, what they read and write, and what they hear when it starts again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use hoplo_core::control::client::CallError;
use hoplo_core::control::rows::node_key;
use hoplo_core::control::{ControlStore, Entry, Key, NodeEntry, NodeState, Table};
use hoplo_net::join::{Admission, JoinError, Joining, Registry, join, renew};
use hoplo_net::token::Token;
use hoplo_wire::control::{Member, Outcome, Refusal, ToCoordinator};

use super::*;
use crate::embedded::{Embedded, EmbeddedOptions};
use crate::net::client::{ControlClient, Told};
use crate::net::cluster::Cluster;
use crate::net::head::{Founded, HeadError, Listening};
use crate::net::registry::StoreRegistry;

pub(super) const SOON: Duration = Duration::from_secs(20);

/// A head's store in a thread of its own, which turns as a daemon does.
pub(super) struct Head {
    thread: Option<JoinHandle<()>>,
    ends: Arc<AtomicBool>,
    /// Its log is not written meanwhile.
    holds: Arc<AtomicBool>,
    pub(super) address: String,
    pub(super) token: Token,
    does: Sender<Deed>,
}

type Deed = Box<dyn FnOnce(&mut Embedded) + Send>;

impl Head {
    pub(super) fn start(folder: &Path, port: u16) -> Self {
        Self::start_with(folder, port, |_| ())
    }

    pub(super) fn start_with(
        folder: &Path,
        port: u16,
        set: impl FnOnce(&mut EmbeddedOptions),
    ) -> Self {
        let founded = Founded::found(folder, Listening::at(None, port).unwrap()).unwrap();
        let mut options = EmbeddedOptions::new(folder.to_path_buf());
        options.node = founded.node();
        set(&mut options);
        let mut store = Embedded::open(options).unwrap();
        let row = NodeEntry {
            node: hoplo_core::node::Rows::read(&store).next_number(5),
            head: true,
            hostname: "head".to_string(),
            resources: hoplo_base::ResourceSet::new(),
            labels: Default::default(),
            store_bytes: 0,
            session_dir: String::new(),
            pid: 0,
            address: founded.address().to_string(),
            state: NodeState::Alive,
        };
        store.put(row.key(), row.to_value()).unwrap();
        let token = founded.host().token(&mut store, None).unwrap();
        let address = founded.address().to_string();
        let served = founded.open(&store, None, Box::new(|_| {})).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let (does, todo) = channel::<Deed>();
        let theirs = Arc::clone(&ends);
        let holds = Arc::new(AtomicBool::new(false));
        let held = Arc::clone(&holds);
        let thread = std::thread::spawn(move || {
            // All of it, the desk too.
            let mut served = served;
            while !theirs.load(Ordering::Relaxed) {
                let alone = &mut served.alone;
                let fd = rustix::event::PollFd::new(&*alone, rustix::event::PollFlags::IN);
                let tick = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
                rustix::event::poll(&mut [fd], Some(&tick)).unwrap();
                alone.turn(&mut store).unwrap();
                todo.try_iter().for_each(|act| act(&mut store));
                store.tick();
                if !held.load(Ordering::Relaxed) {
                    store.flush().unwrap();
                }
                alone.answer(&mut store);
            }
            // As if it were killed: what is not flushed is lost.
        });
        Self { thread: Some(thread), ends, holds, address, token, does }
    }

    pub(super) fn port(&self) -> u16 {
        self.address.parse::<std::net::SocketAddr>().unwrap().port()
    }

    /// Done when this returns.
    pub(super) fn does(&self, act: impl FnOnce(&mut Embedded) + Send + 'static) {
        let (said, hears) = channel();
        let done = move |store: &mut Embedded| {
            act(store);
            said.send(()).unwrap();
        };
        self.does.send(Box::new(done)).unwrap();
        hears.recv_timeout(SOON).unwrap();
    }

    pub(super) fn joins(&self) -> Result<Admission, JoinError> {
        let (address, token, within) = (self.address.as_str(), &self.token, SOON);
        join(&Joining { address, token, role: Role::Node, host: "box", within })
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let panicked = self.thread.take().unwrap().join().is_err();
        assert!(!panicked || std::thread::panicking());
    }
}

/// A node that joined: the cluster as it knows it.
pub(super) fn joined(admission: &Admission, dir: &Path) -> Cluster {
    admission.write(dir).unwrap();
    let id = ClusterId(admission.name.cluster);
    let identity = Some(Identity::load(dir, id.0).unwrap());
    let nodes = admission.members.clone();
    Cluster { id, shards: 1, replication: 1, nodes, identity }
}

pub(super) fn kv(name: &str) -> Key {
    Key { table: Table::Kv, bytes: name.as_bytes().to_vec() }
}

#[test]
fn who_joins_reads_and_writes_the_heads_store_and_hears_of_changes() {
    let folder = Folder::new("alone");
    let head = Head::start(&folder.0.join("head"), 0);
    let admission = head.joins().unwrap();
    let number = admission.number.unwrap();
    let cluster = joined(&admission, &folder.0.join("node"));
    let client = ControlClient::connect(&cluster).unwrap();
    // Its number is its row, made by the head; the rest of it is the node's to say.
    let row = client.get(node_key(number), SOON).unwrap().unwrap();
    let mut entry = NodeEntry::from_row(&row).unwrap();
    assert_eq!((entry.hostname.as_str(), entry.head, row.version), ("box", false, 1));
    entry.address = "10.0.0.9:6379".to_string();
    let put = client.put(entry.key(), entry.to_value(), Some(1), SOON);
    assert_eq!(put, Ok(Outcome::Done { version: 2 }));
    let stale = client.put(entry.key(), entry.to_value(), Some(1), SOON);
    assert_eq!(stale, Ok(Outcome::Conflict { found: 2 }));
    // Two nodes hear of each other's rows, and of the head's own.
    let other = joined(&head.joins().unwrap(), &folder.0.join("other"));
    let other = ControlClient::connect(&other).unwrap();
    let changes = other.subscribe(Table::Kv, b"a".to_vec(), vec![], 100);
    client.put(kv("ab"), b"1".to_vec(), None, SOON).unwrap();
    head.does(|store| assert_eq!(store.put(kv("ac"), b"2".to_vec()), Ok(1)));
    let mut heard = Vec::new();
    while heard.len() < 2 {
        match changes.next(SOON).expect("changes are told") {
            Told::Changes { changes, .. } => {
                heard.extend(changes.into_iter().map(|change| change.key.bytes));
            }
            other @ Told::Missed { .. } => panic!("{other:?}"),
        }
    }
    assert_eq!(heard, [b"ab".to_vec(), b"ac".to_vec()]);
    assert_eq!(other.get(kv("ac"), SOON).unwrap().unwrap().value, b"2");
    let page = other.scan(Table::Node, vec![], None, 10, SOON).unwrap();
    assert_eq!(page.rows.len(), 3);
}

#[test]
fn a_head_that_starts_again_goes_on_with_its_clients_sessions() {
    let folder = Folder::new("alone-again");
    let home = folder.0.join("head");
    let head = Head::start(&home, 0);
    let port = head.port();
    let cluster = joined(&head.joins().unwrap(), &folder.0.join("node"));
    let client = ControlClient::connect(&cluster).unwrap();
    let changes = client.subscribe(Table::Kv, b"k".to_vec(), vec![], 100);
    for number in 0..20u8 {
        let put = client.put(kv("k"), vec![number], Some(u64::from(number)), SOON);
        assert_eq!(put, Ok(Outcome::Done { version: u64::from(number) + 1 }));
    }
    drop(head);
    // Under way while nobody is there: done once, by the next life.
    let value = vec![20];
    let put =
        hoplo_wire::control::Op::Put { key: kv("k"), value, expected: Some(20), finished: false };
    let update = hoplo_core::control::client::Call::Update(vec![put]);
    let pending = client.start(update, SOON).unwrap();
    let head = Head::start(&home, port);
    let done = pending.wait();
    let applied = hoplo_core::control::client::Done::Updated(vec![Outcome::Done { version: 21 }]);
    assert_eq!(done, Ok(applied));
    let mut versions = Vec::new();
    while versions.last() != Some(&21) {
        match changes.next(SOON).expect("changes are told") {
            Told::Changes { changes, .. } => {
                let rows = changes.into_iter().filter_map(|change| change.row);
                versions.extend(rows.map(|row| row.version));
            }
            other @ Told::Missed { .. } => panic!("{other:?}"),
        }
    }
    assert!(versions.is_sorted(), "{versions:?}");
    drop(head);
}

/// `history.json` says of which boot the log is: another one means that its end may be missing.
#[test]
fn after_the_machine_went_down_clients_hear_that_their_sessions_are_void() {
    let folder = Folder::new("alone-boot");
    let home = folder.0.join("head");
    let head = Head::start(&home, 0);
    let port = head.port();
    let cluster = joined(&head.joins().unwrap(), &folder.0.join("node"));
    let client = ControlClient::connect(&cluster).unwrap();
    client.put(kv("k"), vec![1], None, SOON).unwrap();
    let before = client.config().unwrap().shards[0].clone();
    assert!(before.history < before.epoch, "{before:?}");
    drop(head);
    let path = home.join("history.json");
    let mut said: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    said["boot"] = serde_json::json!(said["boot"].as_u64().unwrap() ^ 1);
    std::fs::write(&path, serde_json::to_vec(&said).unwrap()).unwrap();
    let head = Head::start(&home, port);
    client.put(kv("k"), vec![2], None, SOON).unwrap();
    let after = client.config().unwrap().shards[0].clone();
    assert_eq!(after.history, after.epoch);
    drop(head);
    // And in later lives: who missed that one hears it then.
    let head = Head::start(&home, port);
    client.put(kv("k"), vec![3], None, SOON).unwrap();
    let later = client.config().unwrap().shards[0].clone();
    assert_eq!(later.history, after.epoch);
    assert!(later.epoch > after.epoch);
    drop(head);
}

#[test]
fn a_token_that_was_revoked_lets_nobody_in_and_who_is_dead_renews_nothing() {
    let folder = Folder::new("alone-tokens");
    let head = Head::start(&folder.0.join("head"), 0);
    let admission = head.joins().unwrap();
    let cluster = joined(&admission, &folder.0.join("node"));
    let identity = cluster.identity.clone().unwrap();
    assert_eq!(renew(&head.address, &identity, SOON).unwrap().name, admission.name);
    let home = folder.0.join("head");
    let mut registry = StoreRegistry::new(Cluster::load(&home.join("cluster.json")).unwrap());
    let tokens = registry.tokens().unwrap();
    let [record] = &tokens[..] else { panic!("{tokens:?}") };
    assert_eq!((record.id, record.uses, record.role), (head.token.id(), 1, Role::Node));
    let number = admission.number.unwrap();
    head.does(move |store| {
        let row = store.get(&node_key(number)).unwrap();
        let state = NodeState::dead("it was silent");
        let dead = NodeEntry { state, ..NodeEntry::from_row(&row).unwrap() };
        store.put(dead.key(), dead.to_value()).unwrap();
    });
    let error = renew(&head.address, &identity, SOON).unwrap_err().to_string();
    assert!(error.contains("declared dead"), "{error}");
    assert!(registry.revoke(head.token.id()).unwrap());
    assert!(!registry.revoke(head.token.id()).unwrap());
    let error = head.joins().unwrap_err().to_string();
    assert!(error.contains("token"), "{error}");
}

/// Two heads' clerks over one store. Each host gets a number of its own, and a row under it, also where another clerk gave the numbers that this
/// one would have given.
#[test]
fn numbers_are_given_to_many_hosts_at_a_time_and_each_only_once() {
    let folder = Folder::new("alone-numbers");
    let head = Head::start(&folder.0.join("head"), 0);
    let file = folder.0.join("head").join("cluster.json");
    let clerk = || StoreRegistry::new(Cluster::load(&file).unwrap());
    let (mut one, mut other) = (clerk(), clerk());
    let hosts = ["a", "b", "c", "d", "e", "f"];
    let mut given = other.numbers(&hosts[..1]).unwrap();
    given.extend(one.numbers(&hosts[1..3]).unwrap());
    // It tries those two first.
    given.extend(other.numbers(&hosts[3..]).unwrap());
    let rows = given.clone();
    head.does(move |store| {
        for (node, host) in rows.into_iter().zip(hosts) {
            let entry = NodeEntry::from_row(&store.get(&node_key(node)).unwrap()).unwrap();
            assert_eq!(entry.hostname, host);
        }
    });
    given.sort_unstable();
    given.dedup();
    assert_eq!(given.len(), hosts.len());
}

#[test]
fn a_heads_token_is_given_out_again_while_it_is_good() {
    let folder = Folder::new("alone-token");
    let home = folder.0.join("head");
    let founded = Founded::found(&home, Listening::at(None, 0).unwrap()).unwrap();
    let mut options = EmbeddedOptions::new(home.clone());
    options.node = founded.node();
    let mut store = Embedded::open(options).unwrap();
    let first = founded.host().token(&mut store, None).unwrap();
    let again = founded.host().token(&mut store, Some(&first)).unwrap();
    assert_eq!(again.reveal(), first.reveal());
    // Of another cluster, or one that nobody knows any more: another one.
    store.delete(&hoplo_core::control::rows::token_key(first.id())).unwrap();
    let other = founded.host().token(&mut store, Some(&first)).unwrap();
    assert_ne!(other.id(), first.id());
    let strange = Token::make(folder.authority("ca").fingerprint()).unwrap();
    assert_ne!(founded.host().token(&mut store, Some(&strange)).unwrap().id(), strange.id());
    // The cluster stays the same, wherever it listens.
    let address = founded.address();
    drop(founded);
    let taken = std::net::TcpListener::bind(address).unwrap(); // the kernel may give the same port again
    let founded = Founded::found(&home, Listening::at(None, 0).unwrap()).unwrap();
    drop(taken);
    assert_ne!(founded.address(), address);
    assert_eq!(founded.host().token(&mut store, Some(&other)).unwrap().id(), other.id());
    let taken = Listening::at(None, founded.address().port());
    assert!(matches!(taken, Err(HeadError::Listen(_))));
}

#[test]
fn who_would_be_a_second_control_node_hears_that_there_is_one() {
    let folder = Folder::new("alone-second");
    let home = folder.0.join("head");
    let head = Head::start(&home, 0);
    let (cluster, authority) = Cluster::of_head(&home, &head.address).unwrap();
    let dir = folder.0.join("second");
    let name = Name::new(cluster.id.0, Role::Control, "second").unwrap();
    authority.issue(&name, Validity::days(1), &dir).unwrap();
    let identity = Some(Identity::load(&dir, cluster.id.0).unwrap());
    let replica = ReplicaId { node: node_of(&name, 1), incarnation: 3 };
    let hello = cluster.hello(Speaker::Replica(replica));
    let mut hub = hub(hello, identity);
    let link = hub.dial(&head.address);
    let member = Member { replica, address: "10.0.0.7:1".to_string() };
    let register = ToCoordinator::Register { member, holds: vec![] };
    hub.send(link, &Frame::ToCoordinator(register));
    let why = until(&mut [&mut hub], |_, happening| match happening {
        Happening::Closed { why, .. } => Some(why.to_string()),
        Happening::Opened { .. } | Happening::Frame { .. } => None,
    });
    assert!(why.contains("on one node, its head"), "{why}");
}

/// EMB-3: one whose disk is full acknowledges nothing, as here one whose log is not written.
#[test]
fn nothing_is_acknowledged_to_another_node_before_it_is_in_the_log() {
    let folder = Folder::new("alone-disk");
    let head = Head::start(&folder.0.join("head"), 0);
    let cluster = joined(&head.joins().unwrap(), &folder.0.join("node"));
    let client = ControlClient::connect(&cluster).unwrap();
    client.put(kv("k"), vec![1], None, SOON).unwrap();
    head.holds.store(true, Ordering::Relaxed);
    let late = client.put(kv("k"), vec![2], None, Duration::from_millis(300));
    assert!(matches!(late, Err(CallError::Late { may_apply: true, .. })), "{late:?}");
    let (said, hears) = channel();
    head.does(move |store| said.send(store.get(&kv("k")).unwrap().version).unwrap());
    assert_eq!(hears.recv_timeout(SOON), Ok(2), "it is applied");
    head.holds.store(false, Ordering::Relaxed);
    let done = client.put(kv("k"), vec![3], None, SOON);
    assert_eq!(done, Ok(Outcome::Done { version: 3 }));
}

/// Whoever has a node's certificate runs users' code: it could make itself a token to join as something better.
#[test]
fn a_node_wrote_a_token_and_another_nodes_row() {
    let folder = Folder::new("alone-writes");
    let head = Head::start(&folder.0.join("head"), 0);
    let admission = head.joins().unwrap();
    let cluster = joined(&admission, &folder.0.join("node"));
    let client = ControlClient::connect(&cluster).unwrap();
    let refused = |result: Result<Outcome, CallError>| match result {
        Err(CallError::Refused { why: Refusal::NotAllowed(why), .. }) => why,
        other => panic!("{other:?}"),
    };
    let token = Token::make(cluster.identity.as_ref().unwrap().authority()).unwrap();
    let (now, role) = (std::time::SystemTime::now(), Role::Control);
    let record = hoplo_net::token::TokenRecord::of(&token, role, now, now + SOON, None);
    let mut registry = StoreRegistry::new(cluster.clone());
    assert!(registry.put_token(&record).unwrap_err().to_string().contains("hoplo token"));
    let own = admission.number.unwrap();
    let other = head.joins().unwrap().number.unwrap();
    assert!(refused(client.delete(node_key(other), None, SOON)).contains("no other node's row"));
    // What it may goes on, in the same session.
    let row = client.get(node_key(own), SOON).unwrap().unwrap();
    let put = client.put(node_key(own), row.value, Some(1), SOON);
    assert_eq!(put, Ok(Outcome::Done { version: 2 }));
    assert_eq!(client.put(kv("k"), vec![1], None, SOON), Ok(Outcome::Done { version: 1 }));
}
