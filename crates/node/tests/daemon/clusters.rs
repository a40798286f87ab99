//! A head and a node that joined it, each in a thread, over real sockets.

use std::path::PathBuf;
use std::time::Duration;

use hoplo_net::token::Token;
use hoplo_node::{Join, Listen};
use hoplo_wire::node::{KvOperation, ToClient, ToNode};
use serde_json::Value;

use crate::player::{Node, Player, eventually};

struct Cluster {
    // First: it leaves before the head goes.
    node: Node,
    head: Node,
    token: PathBuf,
}

impl Cluster {
    fn new(name: &str) -> Self {
        Self::with(name, |_| {})
    }

    fn with(name: &str, more: impl FnOnce(&mut hoplo_node::Options)) -> Self {
        let file = format!("hoplo-cluster-{}-{name}.token", std::process::id());
        let token = std::env::temp_dir().join(file);
        let head = Node::start(|options| {
            options.head = true;
            let token_file = Some(token.clone());
            options.listen = Some(Listen { port: Some(0), token_file, ..Listen::default() });
            more(options);
        });
        let node = joined(&head, &token, |_| {});
        Self { node, head, token }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.token);
    }
}

fn joined(
    head: &Node,
    token: &std::path::Path,
    more: impl FnOnce(&mut hoplo_node::Options),
) -> Node {
    let rows = nodes(head);
    let (host, port) = (&rows[0]["NodeManagerAddress"], &rows[0]["NodeManagerPort"]);
    let address = format!("{}:{port}", host.as_str().unwrap());
    let token = Token::read(token).unwrap();
    Node::start(|options| {
        options.join = Some(Join { address, token });
        more(options);
    })
}

fn nodes(node: &Node) -> Vec<Value> {
    let rows = node.tool().query("nodes", "");
    rows.as_array().unwrap().clone()
}

fn states(node: &Node) -> Vec<String> {
    nodes(node).iter().map(|row| row["State"].as_str().unwrap().to_string()).collect()
}

struct Said {
    value: Option<Vec<u8>>,
    keys: Vec<Vec<u8>>,
}

fn kv(player: &mut Player, operation: KvOperation) -> Said {
    player.send(&ToNode::Kv { request: 1, namespace: "n".to_string(), operation });
    player.wait("an answer", |message| match message {
        ToClient::KvAnswer { value, keys, refused: None, .. } => Some(Said { value, keys }),
        ToClient::KvAnswer { refused: Some(why), .. } => panic!("{why}"),
        _ => None,
    })
}

#[test]
fn keys_are_the_clusters_whoever_writes_them() {
    let cluster = Cluster::new("keys");
    let (mut here, mut there) = (cluster.head.driver(), cluster.node.driver());
    let key = || b"k".to_vec();
    let get = || KvOperation::Get { key: key() };
    let put =
        |value: &[u8], overwrite| KvOperation::Put { key: key(), value: value.to_vec(), overwrite };
    assert_eq!(kv(&mut there, get()).value, None);
    kv(&mut there, put(b"one", true));
    assert_eq!(kv(&mut here, get()).value, Some(b"one".to_vec()));
    // What was there is told, and stays.
    assert_eq!(kv(&mut there, put(b"two", false)).value, Some(b"one".to_vec()));
    kv(&mut here, put(b"three", true));
    assert_eq!(kv(&mut there, get()).value, Some(b"three".to_vec()));
    let other = KvOperation::Put { key: b"kk".to_vec(), value: vec![], overwrite: false };
    assert_eq!(kv(&mut there, other).value, None);
    let keys = kv(&mut there, KvOperation::Keys { prefix: key() }).keys;
    assert_eq!(keys, [b"k".to_vec(), b"kk".to_vec()]);
    let delete = || KvOperation::Delete { key: key() };
    assert_eq!(kv(&mut there, delete()).value, Some(b"three".to_vec()));
    assert_eq!(kv(&mut there, delete()).value, None);
    assert_eq!(kv(&mut here, get()).value, None);
}

#[test]
fn jobs_of_two_nodes_are_two() {
    let cluster = Cluster::new("jobs");
    let (here, there) = (cluster.head.driver(), cluster.node.driver());
    let (one, two) = (here.job_id(), there.job_id());
    assert_ne!(one, two);
    assert_eq!((one.node(), two.node()), (here.process().node(), there.process().node()));
    assert_eq!((one.count(), two.count()), (1, 1));
}

#[test]
fn who_stops_in_order_says_so() {
    let Cluster { node, head, .. } = &Cluster::new("stops");
    assert_eq!(states(head), ["ALIVE", "ALIVE"]);
    node.tool().send(&ToNode::Stop);
    node.wait_for_end(Duration::from_secs(20));
    eventually("the head knows", || (states(head) == ["ALIVE", "DEAD"]).then_some(()));
    assert_eq!(nodes(head)[1]["Reason"], "it was stopped");
}

#[test]
fn a_node_knows_the_others_and_hears_of_those_that_come() {
    let cluster = Cluster::new("others");
    eventually("it knows the head", || (states(&cluster.node).len() == 2).then_some(()));
    let third = joined(&cluster.head, &cluster.token, |_| {});
    eventually("all know all", || {
        let wanted = nodes(&cluster.head);
        let known = wanted.len() == 3 && nodes(&third) == wanted;
        (known && nodes(&cluster.node) == wanted).then_some(())
    });
}

/// It lasts for 30 days, and nobody could join a head that ran longer.
#[test]
fn a_head_renews_its_own_certificate() {
    let renews = |options: &mut hoplo_node::Options| options.renews = Duration::from_millis(50);
    let cluster = Cluster::with("itself", renews);
    let path = cluster.head.session().join("control/tls/identity.pem");
    let first = std::fs::read(&path).unwrap();
    eventually("it has another one", || std::fs::read(&path).ok().filter(|now| *now != first));
    let late = joined(&cluster.head, &cluster.token, |_| {});
    eventually("it is known", || (states(&late).len() == 3).then_some(()));
}

#[test]
fn a_certificate_is_renewed_before_it_ends() {
    let cluster = Cluster::new("renews");
    let node = joined(&cluster.head, &cluster.token, |options| {
        options.renews = Duration::from_millis(50);
    });
    let path = node.session().join("tls/identity.pem");
    let first = std::fs::read(&path).unwrap();
    eventually("it has another one", || std::fs::read(&path).ok().filter(|now| *now != first));
    // Others believe it as well.
    let mut driver = node.driver();
    kv(&mut driver, KvOperation::Get { key: b"k".to_vec() });
}
