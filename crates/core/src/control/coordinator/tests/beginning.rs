//! How a cluster and its shards begin.

use super::*;

#[test]
fn a_new_cluster_waits_for_enough_replicas_but_not_for_ever() {
    let mut world = World::new(1, 3);
    world.registers(id(1, 1), vec![]);
    world.registers(id(2, 1), vec![]);
    assert!(world.document.is_none());
    world.registers(id(3, 1), vec![]);
    assert_eq!(world.shape(), "1.1 2.1 3.1");
    assert_eq!(World::formed(3, 2).shape(), "1.1 2.1");
}

#[test]
fn a_lost_document_is_not_answered_by_an_empty_cluster() {
    let mut world = World::new(1, 1);
    world.registers(id(1, 2), vec![holding(5, 1)]);
    world.pass(limits::FORM_GRACE * 2);
    assert!(world.document.is_none());
    let why = &world.coordinators[0].explain(world.now)[0].why[0];
    assert!(why.contains("node:1.2 holds data"), "{why}");
}

#[test]
fn a_shard_has_begun_once_a_member_of_it_was_heard_to_act() {
    let mut world = World::formed(2, 2);
    assert!(world.chain().unbegun);
    world.dies(id(1, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(1, 1)) });
    assert!(world.chain().unbegun, "nobody acted");
    world.acts(id(2, 1));
    world.registers(id(1, 2), vec![]);
    assert_eq!(world.shape(), "2.1 +1.2");
    assert!(!world.chain().unbegun);
}

#[test]
fn a_chain_that_all_members_have_begun_is_said_to_have_begun() {
    let mut world = World::formed(2, 2);
    world.acts(id(1, 1));
    assert!(world.chain().unbegun, "the other has nothing yet");
    world.acts(id(2, 1));
    let chain = world.chain();
    assert_eq!((chain.unbegun, chain.epoch, chain.history), (false, Epoch(2), Epoch(1)));
}

/// Found by the simulation (seeds 4510, 24972 and others): all members lost their power before the beginning was on a disk.
#[test]
fn a_chain_whose_members_all_died_before_it_began_waited_for_ever() {
    let mut world = World::formed(2, 2);
    (1..=2).for_each(|node| world.dies(id(node, 1)));
    world.registers(id(2, 2), vec![]);
    assert_eq!(world.coordinators[0].losses(world.now), [], "nothing was acknowledged");
    world.pass(limits::SUSPECT + limits::RESTORE_GRACE * 2);
    assert_eq!(world.shape(), "2.2");
    assert!(world.chain().unbegun);
    world.acts(id(2, 2));
    assert_eq!((world.chain().unbegun, world.chain().history), (false, Epoch(1)));
}

/// Found by the simulation (seed 7837): who begins a chain again was taken to have begun it, because it had acted in another
/// epoch, in which it had another base.
#[test]
fn who_acted_in_another_epoch_had_begun_a_chain_that_begins_again() {
    let mut world = World::formed(2, 3);
    world.dies(id(1, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(1, 1)) });
    assert_eq!(world.shape(), "2.1 +3.1");
    world.dies(id(2, 1));
    let epochs = vec![(SHARD, Epoch(1))];
    world.says(id(3, 1), ToCoordinator::Heartbeat { replica: id(3, 1), epochs });
    world.all(Event::Lost { from: Speaker::Replica(id(2, 1)) });
    assert_eq!(world.shape(), "3.1");
    assert!(world.chain().unbegun);
    world.acts(id(3, 1));
    assert!(!world.chain().unbegun);
}

/// Found by the simulation (seed 5730): whoever lived had a beginning of another epoch, so nobody had nothing.
#[test]
fn a_chain_that_had_not_begun_waited_for_one_that_had_all_of_nothing() {
    let mut world = World::formed(2, 2);
    world.dies(id(1, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(1, 1)) });
    world.registers(id(3, 1), vec![]);
    world.catches_up(id(3, 1));
    assert_eq!(world.shape(), "2.1 3.1");
    world.dies(id(2, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(2, 1)) });
    world.pass(limits::SUSPECT);
    assert_eq!(world.shape(), "3.1", "it was just added, and has not acted");
    world.dies(id(3, 1));
    world.registers(id(3, 2), vec![holding(0, 1)]);
    world.pass(limits::SUSPECT + limits::RESTORE_GRACE * 2);
    assert_eq!(world.shape(), "3.2", "what it has is older than its membership");
    assert!(world.chain().unbegun);
}

#[test]
fn the_first_node_does_not_take_all_shards_while_others_are_coming() {
    let mut world = World::with_shards(1, 1, 2);
    world.registers(id(1, 1), vec![]);
    world.pass(limits::FORM_SETTLE / 2);
    assert!(world.document.is_none(), "others may be coming");
    world.registers(id(2, 1), vec![]);
    world.pass(limits::COORDINATOR_LOOKS);
    let (_, config) = world.document.as_ref().unwrap();
    let heads = config.shards.iter().map(|chain| chain.members[0].replica);
    assert_eq!(heads.collect::<Vec<_>>(), [id(1, 1), id(2, 1)]);

    let mut alone = World::with_shards(1, 1, 2);
    alone.registers(id(1, 1), vec![]);
    alone.pass(limits::FORM_SETTLE + limits::COORDINATOR_LOOKS);
    assert!(alone.document.is_some(), "nobody else came");
}
