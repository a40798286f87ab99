//! A placement group that is made after its caller gave up was nobody's, and kept what it reserved.
#![allow(clippy::unwrap_used, dead_code)]

mod daemon;

use std::sync::mpsc::sync_channel;
use std::time::Duration;

use hoplo_base::{GroupId, NodeNumber, ResourceSet};
use hoplo_wire::node::{BundleSpec, GroupSpec, GroupStrategy, ToClient, ToNode};

#[test]
fn a_group_that_comes_after_its_caller_gave_up_is_removed() {
    let (removed, hears) = sync_channel(1);
    let group = GroupId::new(NodeNumber::first_given(0), 1);
    let answer = move |daemon: &daemon::Daemon, from, message, _: &mut Vec<_>| match message {
        // It answers the first question when the second one has come: by then nobody waits for it.
        ToNode::Query { .. } => {
            let result = Ok((group, None));
            daemon.say(from, &ToClient::GroupCreated { request: 1, result }, &[]);
        }
        ToNode::GroupRemove { group } => removed.send(group).unwrap(),
        _ => {}
    };
    let [(client, served)] = daemon::clients(|_| {}, answer);
    let bundle = BundleSpec {
        resources: ResourceSet::from_units([("CPU", 1.0)]).unwrap(),
        ..BundleSpec::default()
    };
    let spec = GroupSpec {
        name: String::new(),
        namespace: String::new(),
        detached: false,
        strategy: GroupStrategy::Pack,
        bundles: vec![bundle],
    };
    assert!(client.create_group(spec, &mut || true).is_err());
    let none = client.query("status", "", Duration::from_secs(60), &mut || true);
    assert!(none.is_err());
    assert_eq!(hears.recv_timeout(Duration::from_secs(60)), Ok(group));
    client.close();
    served.join().unwrap();
}
