//! Which chain and configuration the client goes by.

use super::*;

#[test]
fn a_silent_chain_is_reported_and_asked_again() {
    let mut world = World::ready();
    world.call(1, Call::Update(vec![put("a")]));
    world.take();
    world.after(limits::CONTROL_CLIENT_SILENCE);
    assert_eq!(world.reports(), [1, 1, 2, 2], "each member to each coordinator");
    world.after(Duration::from_millis(250));
    assert_eq!(world.updates(), [(1, 1, 0, 1)]);
    world.updated(1, &[1]);
    world.take();
    world.after(Duration::from_millis(900));
    assert_eq!(world.reports(), [], "nobody waits any more");
}

#[test]
fn a_head_that_stops_is_noticed_though_the_tail_answers() {
    let mut world = World::ready();
    world.call(1, Call::Update(vec![put("a")]));
    for call in 2..=5 {
        let query = Query::Get { key: key("a") };
        world.call(call, Call::Query { query, stale: false });
        let request = call - 1;
        world.response(2, Response::Answered { request, index: 1, answer: Answer::Row(None) });
        world.after(limits::CONTROL_CLIENT_SILENCE / 4);
    }
    assert!(world.reports().contains(&1));
}

#[test]
fn another_clusters_configuration_is_not_taken() {
    let mut world = World::ready();
    let mut other = config(vec![chain(0, 9, &[7])]);
    other.cluster = ClusterId(2);
    world.told(other);
    world.told(config(vec![chain(0, 9, &[7]), chain(1, 9, &[7])]));
    assert_eq!(world.client.config().unwrap().shards[0].epoch, Epoch(1));
    assert_eq!(world.take(), []);
}

#[test]
fn a_configuration_of_chains_of_one_replica_is_asked_for_more_rarely() {
    for (members, asks) in [(&[1, 2][..], 10), (&[1], 2)] {
        let mut world = World::with(vec![chain(0, 1, members)]);
        let mut asked = 0;
        for _ in 0..10 {
            world.after(limits::CONTROL_CLIENT_ASKS);
            let to_first = |effect: &Effect| match effect {
                Effect::Tell { address, message: ToCoordinator::WantConfig { .. } } => {
                    address == "host:1"
                }
                _ => false,
            };
            asked += world.take().iter().filter(|effect| to_first(effect)).count();
        }
        assert_eq!(asked, asks, "{members:?}");
    }
}

/// Of a node that dies all clients report, and they reported with each try to reach it.
#[test]
fn a_node_that_is_not_reached_is_reported_at_once_and_then_now_and_then() {
    let mut world = World::ready();
    world.take();
    world.event(Event::Lost { replica: replica(1) });
    assert_eq!(world.reports(), [1, 1], "to each coordinator");
    let mut reports = 0;
    for _ in 0..40 {
        world.after(Duration::from_millis(10));
        world.event(Event::Lost { replica: replica(1) });
        reports += world.reports().iter().filter(|silent| **silent == 1).count();
    }
    assert_eq!(reports, 2 * 4, "in 400 ms");
    world.event(Event::Connected { replica: replica(1) });
    world.take();
    world.event(Event::Lost { replica: replica(1) });
    assert_eq!(world.reports(), [1, 1]);
}
