//! Which chain and configuration the client goes by.

use super::*;

#[test]
fn of_a_silent_chain_a_newer_configuration_is_asked_for_and_it_is_asked_again() {
    let mut world = World::ready();
    world.call(1, Call::Update(vec![put("a")]));
    world.take();
    world.after(limits::CONTROL_CLIENT_SILENCE);
    world.after(limits::CONTROL_CLIENT_ASKS_SOON);
    assert_eq!(world.asks(), 2, "each coordinator");
    world.after(Duration::from_millis(250));
    assert_eq!(world.updates(), [(1, 1, 0, 1)]);
    world.updated(1, &[1]);
    world.after(limits::CONTROL_CLIENT_ASKS_SOON);
    world.take();
    world.after(Duration::from_millis(600));
    assert_eq!(world.asks(), 0, "nobody waits any more");
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
    world.after(limits::CONTROL_CLIENT_ASKS_SOON);
    assert!(world.asks() > 0);
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

/// Of a node that dies all clients spoke at once, and with each try to reach it. Coordinators tell who would go on without it.
#[test]
fn that_a_node_is_not_reached_is_told_to_nobody() {
    let mut world = World::ready();
    world.take();
    for _ in 0..40 {
        world.event(Event::Lost { replica: replica(1) });
        world.after(Duration::from_millis(10));
        let tells = |effect: &Effect| matches!(effect, Effect::Tell { .. });
        assert!(!world.take().iter().any(tells));
    }
}

#[test]
fn who_hears_that_coordinators_moved_asks_there_at_once_and_goes_on() {
    let mut world = World::with(vec![chain(0, 1, &[1])]);
    world.event(Event::Lost { replica: replica(1) });
    world.take();
    world.event(Event::Moved { coordinators: vec!["host:9".into()] });
    let asked = |effect: &Effect| match effect {
        Effect::Tell { address, message: ToCoordinator::WantConfig { .. } } => {
            Some(address.clone())
        }
        _ => None,
    };
    assert_eq!(world.take().iter().filter_map(asked).collect::<Vec<_>>(), ["host:9"]);
    world.told(config(vec![chain(0, 2, &[2])]));
    let connects =
        |effect: &Effect| matches!(effect, Effect::Connect(it) if it.replica == replica(2));
    assert!(world.take().iter().any(connects));
}
