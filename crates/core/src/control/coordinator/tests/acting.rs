//! Which coordinator acts, and the document that it changes.

use super::*;

#[test]
fn another_coordinator_acts_when_the_acting_one_is_dead_or_stands_still() {
    for silent in [false, true] {
        let mut world = World::new(2, 1);
        world.registers(id(1, 1), vec![]);
        world.pass(limits::CONFIG_WATCH);
        assert!(world.coordinators[0].acts() && !world.coordinators[1].acts());
        let first = world.coordinators.remove(0);
        assert!(first.acts());
        if silent {
            world.processes.insert(id(100, 1), Probe::Silent);
            world.pass(limits::ACTING_SILENT / 2);
            assert!(!world.coordinators[0].acts());
        } else {
            world.processes.remove(&id(100, 1));
        }
        world.pass(if silent { limits::ACTING_SILENT * 2 } else { limits::CONFIG_WATCH * 2 });
        assert!(world.coordinators[0].acts(), "silent: {silent}");
    }
}

/// Two processes, each a member and a coordinator, as the guide has them; the first one acts.
fn members_that_coordinate() -> World {
    let mut world = World::new(2, 2);
    (0..2).for_each(|number| world.registers(id(100 + number, 1), vec![]));
    world.pass(limits::FORM_GRACE);
    assert!(world.coordinators[0].acts() && !world.coordinators[1].acts());
    (0..2).for_each(|number| world.acts(id(100 + number, 1)));
    world
}

/// It was noticed when somebody looked at the coordinator next, half a second later, and then the chain was changed.
#[test]
fn a_member_that_dies_and_acts_is_left_out_at_once_by_who_takes_its_place() {
    let mut world = members_that_coordinate();
    let revision = world.document.as_ref().unwrap().0;
    world.dies(id(100, 1));
    world.coordinators.remove(0);
    world.all(Event::Lost { from: Speaker::Replica(id(100, 1)) });
    assert_eq!(world.shape(), "101.1");
    assert!(world.coordinators[0].acts());
    let (found, config) = world.document.as_ref().unwrap();
    let acting = config.acting.as_ref().map(|it| it.coordinator.replica);
    assert_eq!((*found, acting), (revision + 1, Some(id(101, 1))), "in one swap");
}

#[test]
fn a_member_that_is_stopped_and_acts_is_left_out_before_the_second_is_over() {
    let mut world = members_that_coordinate();
    world.falls_silent(id(100, 1));
    world.coordinators.remove(0);
    let epoch = world.chain().epoch;
    world.pass(limits::CONTROL_PEER_SILENT);
    let silent = id(100, 1);
    world.says(id(101, 1), ToCoordinator::Report { shard: SHARD, epoch, silent });
    world.pass(
        Duration::from_millis(950) - limits::CONTROL_PEER_SILENT - limits::CONTROL_LEASE_WAIT,
    );
    assert_eq!(world.shape(), "101.1");
}

#[test]
fn two_that_act_cannot_both_change_the_document() {
    let mut world = World::new(2, 2);
    (1..=2).for_each(|node| world.registers(id(node, 1), vec![]));
    world.pass(limits::CONFIG_WATCH);
    // The second one believes that the first is gone.
    world.processes.insert(id(100, 1), Probe::Silent);
    let (revision, mut config) = world.document.clone().unwrap();
    config.acting.as_mut().unwrap().coordinator = member(id(101, 1));
    world.document = Some((revision + 1, config));
    assert!(world.coordinators[0].acts(), "it did not hear of it");
    world.dies(id(1, 1));
    world.handle(0, Event::Lost { from: Speaker::Replica(id(1, 1)) });
    assert!(!world.coordinators[0].acts());
    assert_eq!(world.shape(), "1.1 2.1", "the swap failed, and it looked who acts");
    world.pass(limits::CONFIG_WATCH + limits::HEARTBEAT_MISSED * 2);
    assert_eq!(world.shape(), "2.1");
}

#[test]
fn without_its_store_it_changes_nothing_and_goes_on_when_it_is_back() {
    let mut world = World::formed(2, 2);
    let before = world.chain().clone();
    world.reachable = false;
    world.dies(id(2, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(2, 1)) });
    world.pass(limits::SUSPECT);
    assert_eq!(*world.chain(), before);
    let why = world.coordinators[0].explain(world.now)[0].why.join("; ");
    assert!(why.contains("nothing can be changed"), "{why}");
    world.reachable = true;
    world.pass(limits::CONFIG_RETRY * 2);
    assert_eq!(world.shape(), "1.1");
}

#[test]
fn a_store_that_went_back_in_time_is_not_obeyed() {
    let mut world = World::formed(2, 2);
    let old = world.document.clone();
    world.dies(id(2, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(2, 1)) });
    assert_eq!(world.shape(), "1.1");
    world.document = old;
    world.pass(limits::ACTING_RENEW * 2);
    let known = world.coordinators[0].config().unwrap();
    assert_eq!(known.shards[0].members.len(), 1, "what it knew stays");
    let why = world.coordinators[0].explain(world.now)[0].why.join("; ");
    assert!(why.contains("went back in time"), "{why}");
}

#[test]
fn strangers_and_older_processes_are_refused() {
    let mut world = World::formed(1, 1);
    world.registers(id(1, 3), vec![]);
    world.answers.clear();
    world.registers(id(1, 2), vec![]);
    world.says(id(5, 1), ToCoordinator::Heartbeat { replica: id(5, 1), epochs: vec![] });
    let refused = |who: ReplicaId| {
        world.answers.iter().any(|(to, message)| {
            *to == Speaker::Replica(who) && matches!(message, FromCoordinator::Refused { .. })
        })
    };
    assert!(refused(id(1, 2)) && refused(id(5, 1)));
}
