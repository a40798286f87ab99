//! The daemon of this program is alone in it: what it has open can be counted.

#![allow(clippy::unwrap_used, reason = "a test that finds nothing fails")]

#[path = "daemon/fake.rs"]
mod fake;
#[path = "daemon/player.rs"]
#[expect(dead_code, reason = "the other tests use the rest")]
mod player;

use hoplo_base::ResourceSet;
use hoplo_wire::node::{Shape, ToClient, ToNode};

use player::{Node, Player, eventually};

#[test]
fn drivers_and_workers_that_come_and_go_leave_no_descriptors() {
    let node = Node::start(|_| {});
    let mut watcher = node.driver();
    come_and_go(&node);
    let before = at_rest(&mut watcher);
    for _ in 0..20 {
        come_and_go(&node);
    }
    assert_eq!(at_rest(&mut watcher), before);
}

fn come_and_go(node: &Node) {
    let mut driver = node.driver();
    let resources = ResourceSet::from_units([("CPU", 1.0)]).unwrap();
    let shape = Shape::of(resources);
    driver.send(&ToNode::LeaseDemand { key: 1, shape: shape.into(), wanted: 1 });
    driver.wait("a lease", |message| match message {
        ToClient::LeaseGranted { worker, .. } => Some(worker),
        _ => None,
    });
}

/// What is open here once nobody but the watcher is there.
fn at_rest(watcher: &mut Player) -> usize {
    eventually("an empty node", || (watcher.query("status", "")["workers"] == 0).then_some(()));
    std::fs::read_dir("/proc/self/fd").unwrap().count()
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
