//! Who joins a chain and becomes its tail, and shards that move.

use super::*;

#[test]
fn who_joins_becomes_tail_when_it_caught_up_in_the_newest_epoch() {
    let mut world = World::formed(2, 3);
    world.dies(id(1, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(1, 1)) });
    assert_eq!(world.shape(), "2.1 +3.1");
    let old = Epoch(world.chain().epoch.0 - 1);
    world.says(id(3, 1), ToCoordinator::CaughtUp { replica: id(3, 1), shard: SHARD, epoch: old });
    assert_eq!(world.shape(), "2.1 +3.1");
    world.catches_up(id(3, 1));
    assert_eq!(world.shape(), "2.1 3.1");
    assert_eq!(world.chain().added, Some((id(3, 1), world.chain().epoch)));
}

/// CONF-2: it may lack the last entries that were acknowledged before it became a member.
#[test]
fn a_new_tail_that_did_not_act_yet_is_never_left_alone() {
    let mut world = World::formed(2, 3);
    world.begins();
    world.dies(id(1, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(1, 1)) });
    world.catches_up(id(3, 1));
    world.dies(id(2, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(2, 1)) });
    world.pass(limits::RESTORE_GRACE * 4);
    assert_eq!(world.shape(), "2.1 3.1");
    let why = world.coordinators[0].explain(world.now)[0].why.join("; ");
    assert!(why.contains("node:2.1 is dead, and nobody else has all data"), "{why}");
    world.registers(id(2, 2), vec![holding(9, 1)]);
    world.pass(limits::RESTORE_GRACE);
    assert_eq!(world.shape(), "2.2 +3.1");
}

/// What it lacks nobody may forget when it comes back with its disk.
#[test]
fn a_new_tail_that_did_not_act_yet_does_not_restore_the_chain() {
    let mut world = World::formed(2, 3);
    world.begins();
    world.dies(id(1, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(1, 1)) });
    world.catches_up(id(3, 1));
    assert_eq!(world.shape(), "2.1 3.1");
    let since = world.chain().epoch.0;
    [2, 3].into_iter().for_each(|node| world.dies(id(node, 1)));
    world.registers(id(3, 2), vec![holding(9, since - 1)]);
    world.pass(limits::SUSPECT + limits::RESTORE_GRACE * 2);
    assert_eq!(world.shape(), "2.1 3.1");
    world.dies(id(3, 2));
    // It had something of the epoch in which it was a member: that came after all it had missed.
    world.registers(id(3, 3), vec![holding(10, since)]);
    world.pass(limits::SUSPECT + limits::RESTORE_GRACE * 2);
    assert_eq!(world.shape(), "3.3");
}

/// CHAIN-6: until the new tail acts, the one before it may answer.
#[test]
fn who_left_before_the_new_tail_acted_could_answer_beside_it() {
    for settled in [false, true] {
        let mut world = World::formed(3, 4);
        world.begins();
        world.dies(id(3, 1));
        world.all(Event::Lost { from: Speaker::Replica(id(3, 1)) });
        world.catches_up(id(4, 1));
        assert_eq!(world.shape(), "1.1 2.1 4.1");
        if settled {
            world.acts(id(4, 1));
        }
        let epoch = world.chain().epoch;
        world.says(id(2, 1), ToCoordinator::Report { shard: SHARD, epoch, silent: id(2, 1) });
        assert_eq!((world.shape().as_str(), world.chain().old_tail_gone), ("1.1 4.1", settled));
    }
}

#[test]
fn a_new_tail_that_acted_may_be_left_alone() {
    let mut world = World::formed(2, 3);
    world.dies(id(1, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(1, 1)) });
    world.catches_up(id(3, 1));
    world.acts(id(3, 1));
    world.dies(id(2, 1));
    world.all(Event::Lost { from: Speaker::Replica(id(2, 1)) });
    assert_eq!(world.shape(), "3.1");
}

#[test]
fn a_shard_moves_by_adding_before_it_removes() {
    let mut world = World::formed(2, 2);
    (1..=2).for_each(|node| world.acts(id(node, 1)));
    world.registers(id(3, 1), vec![]);
    assert_eq!(world.shape(), "1.1 2.1");
    let wish = Wish::Move { shard: SHARD, from: NodeId(1), to: NodeId(3) };
    world.says(id(2, 1), ToCoordinator::Wished(wish));
    assert_eq!(world.shape(), "1.1 2.1 +3.1");
    world.catches_up(id(3, 1));
    assert_eq!(world.shape(), "1.1 2.1 3.1");
    world.acts(id(3, 1));
    assert_eq!(world.shape(), "2.1 3.1");
    world.pass(limits::HEARTBEAT);
    assert!(world.document.as_ref().unwrap().1.wishes.is_empty());
}

/// The wish never came into the document, so it was never forgotten, and the node was never used again.
#[test]
fn a_move_from_where_nothing_is_keeps_nobody_out() {
    let mut world = World::formed(2, 1);
    let wish = Wish::Move { shard: SHARD, from: NodeId(2), to: NodeId(3) };
    world.says(id(1, 1), ToCoordinator::Wished(wish));
    world.registers(id(2, 1), vec![]);
    assert_eq!(world.shape(), "1.1 +2.1");
}

#[test]
fn a_node_that_shall_leave_is_emptied_and_may_come_back() {
    let mut world = World::formed(1, 1);
    world.acts(id(1, 1));
    world.registers(id(2, 1), vec![]);
    world.says(id(2, 1), ToCoordinator::Wished(Wish::Leave { node: NodeId(1) }));
    assert_eq!(world.shape(), "1.1 +2.1");
    world.catches_up(id(2, 1));
    world.acts(id(2, 1));
    assert_eq!(world.shape(), "2.1");
    world.says(id(2, 1), ToCoordinator::Unwished(Wish::Leave { node: NodeId(1) }));
    assert!(world.document.as_ref().unwrap().1.wishes.is_empty());
}
