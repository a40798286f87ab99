//! Chains whose members all died: what comes back goes on, what is lost waits for an operator.

use super::*;

#[test]
fn a_chain_that_restarted_whole_goes_on_with_the_longest_log() {
    let mut world = World::formed(3, 3);
    for node in 1..=3 {
        world.dies(id(node, 1));
    }
    world.pass(limits::SUSPECT * 2);
    assert_eq!(world.shape(), "1.1 2.1 3.1");
    world.registers(id(2, 2), vec![holding(7, 1)]);
    world.registers(id(1, 2), vec![holding(5, 1)]);
    assert_eq!(world.shape(), "1.1 2.1 3.1", "it waits for the third");
    world.registers(id(3, 2), vec![holding(9, 1)]);
    assert_eq!(world.shape(), "3.2 +2.2", "who joins has the next longest log");
    // It has to wait, also if it hears of this configuration first.
    assert!(!world.chain().old_tail_gone);
}

/// It took whoever the document names for alive in the first second of its clock, and gave the chain to the one that
/// never came back.
#[test]
fn a_coordinator_that_just_began_relies_on_nobody_of_whom_it_has_not_heard() {
    for third in [Probe::Refused, Probe::Silent] {
        let mut world = World::formed(3, 3);
        for node in 1..=3 {
            world.dies(id(node, 1));
        }
        world.processes.insert(id(3, 1), third);
        world.coordinator_restarts();
        world.registers(id(1, 2), vec![holding(5, 1)]);
        world.registers(id(2, 2), vec![holding(7, 1)]);
        world.pass(limits::SUSPECT + limits::RESTORE_GRACE * 2);
        assert_eq!(world.shape(), "2.2 +1.2", "the third is {third:?}");
    }
}

/// Two were found dead, the third had said something a moment before: it got the chain, and was dead, too.
#[test]
fn members_that_die_together_are_not_left_one_by_one() {
    let mut world = World::formed(3, 3);
    world.pass(limits::HEARTBEAT);
    for node in 1..=3 {
        world.dies(id(node, 1));
    }
    world.all(Event::Lost { from: Speaker::Replica(id(1, 1)) });
    world.all(Event::Lost { from: Speaker::Replica(id(2, 1)) });
    assert_eq!(world.shape(), "1.1 2.1 3.1");
    world.registers(id(1, 2), vec![holding(5, 1)]);
    world.registers(id(2, 2), vec![holding(7, 1)]);
    world.pass(limits::RESTORE_GRACE * 2);
    assert_eq!(world.shape(), "2.2 +1.2");
}

/// A chain of two whose second member comes back without its disk, and whose first one never does.
fn a_lost_shard() -> World {
    let mut world = World::formed(2, 2);
    world.begins();
    (1..=2).for_each(|node| world.dies(id(node, 1)));
    world.registers(id(2, 2), vec![]);
    world.pass(limits::SUSPECT + limits::RESTORE_GRACE * 2);
    assert_eq!(world.shape(), "1.1 2.1");
    world
}

#[test]
fn a_shard_whose_disks_are_gone_says_what_is_left_and_waits_for_an_operator() {
    let mut world = a_lost_shard();
    // It was a member once, and lacks what came after it left.
    world.registers(id(3, 1), vec![holding(4, 1)]);
    let losses = world.coordinators[0].losses(world.now);
    let left = Left { member: member(id(3, 1)), last: Some((Epoch(1), 4)) };
    let loss = Loss { shard: SHARD, epoch: Epoch(2), left: Some(left), silent: vec![] };
    assert_eq!(losses, [loss]);
    world.pass(limits::RESTORE_GRACE * 4);
    assert_eq!(world.shape(), "1.1 2.1");
    world.wishes(Wish::AcceptLoss { shard: SHARD, epoch: Epoch(2) });
    assert_eq!(world.shape(), "3.1 +2.2");
    let chain = world.chain();
    assert!(!chain.old_tail_gone && chain.history == Epoch(3));
    world.pass(limits::HEARTBEAT);
    assert!(world.document.as_ref().unwrap().1.wishes.is_empty());
    assert_eq!(world.coordinators[0].losses(world.now), []);
}

#[test]
fn a_loss_that_is_accepted_is_that_of_one_epoch_and_of_a_chain_that_waits() {
    let mut world = a_lost_shard();
    world.wishes(Wish::AcceptLoss { shard: SHARD, epoch: Epoch(7) });
    world.pass(limits::RESTORE_GRACE * 4);
    assert_eq!(world.shape(), "1.1 2.1", "it is not in that epoch");

    let mut world = a_lost_shard();
    world.registers(id(1, 2), vec![holding(9, 1)]);
    assert_eq!(world.coordinators[0].losses(world.now), [], "it is back with everything");
    world.wishes(Wish::AcceptLoss { shard: SHARD, epoch: Epoch(2) });
    world.pass(limits::RESTORE_GRACE * 2);
    assert_eq!(world.shape(), "1.2 +2.2");
    assert_eq!(world.chain().history, Epoch(1), "nothing was lost");
}

#[test]
fn who_returned_without_its_disk_does_not_restore_a_chain() {
    let mut world = World::formed(1, 1);
    world.begins();
    world.dies(id(1, 1));
    world.registers(id(1, 2), vec![]);
    world.pass(limits::RESTORE_GRACE * 3);
    assert_eq!(world.shape(), "1.1");
}

#[test]
fn a_restarted_single_replica_goes_on_at_once() {
    let mut world = World::formed(1, 1);
    world.dies(id(1, 1));
    world.registers(id(1, 2), vec![holding(3, 1)]);
    world.pass(limits::COORDINATOR_LOOKS * 2);
    assert_eq!(world.shape(), "1.2");
}
