//! Who dies, falls silent or cannot write its disk leaves its chain.

use super::*;

#[test]
fn a_killed_member_leaves_at_the_first_report_without_any_wait() {
    let mut world = World::formed(2, 2);
    let epoch = world.chain().epoch;
    let announced = world.announced.len();
    world.dies(id(1, 1));
    world.says(id(2, 1), ToCoordinator::Report { shard: SHARD, epoch, silent: id(1, 1) });
    assert_eq!(world.shape(), "2.1");
    assert!(world.chain().old_tail_gone && world.announced.len() == announced + 1);
    assert_eq!(world.announced.last().unwrap().shards[0], *world.chain());
}

#[test]
fn a_report_is_not_believed() {
    let mut world = World::formed(2, 2);
    let epoch = world.chain().epoch;
    world.all(Event::Heard {
        from: Speaker::Client(hoplo_wire::control::ClientId(9)),
        message: ToCoordinator::Report { shard: SHARD, epoch, silent: id(1, 1) },
    });
    assert_eq!(world.shape(), "1.1 2.1");
}

#[test]
fn a_silent_tail_leaves_after_a_while_and_is_not_called_gone() {
    let mut world = World::formed(2, 2);
    world.falls_silent(id(2, 1));
    world.pass(limits::HEARTBEAT_MISSED);
    assert_eq!(world.shape(), "1.1 2.1");
    world.pass(limits::SUSPECT * 2);
    assert_eq!(world.shape(), "1.1");
    assert!(!world.chain().old_tail_gone);
}

#[test]
fn members_that_cannot_hear_each_other_are_parted_though_both_live() {
    let mut world = World::formed(2, 2);
    let epoch = world.chain().epoch;
    for _ in 0..40 {
        world.says(id(1, 1), ToCoordinator::Report { shard: SHARD, epoch, silent: id(2, 1) });
        world.says(id(2, 1), ToCoordinator::Report { shard: SHARD, epoch, silent: id(1, 1) });
        world.pass(Duration::from_millis(50));
    }
    assert_eq!(world.shape(), "1.1");
    world.pass(limits::SHUNNED + limits::HEARTBEAT);
    assert_eq!(world.shape(), "1.1 +2.1");
}

#[test]
fn a_member_whose_disk_broke_leaves_and_comes_back_when_it_registers_again() {
    let mut world = World::formed(2, 2);
    let epoch = world.chain().epoch;
    world.says(id(2, 1), ToCoordinator::Report { shard: SHARD, epoch, silent: id(2, 1) });
    assert_eq!(world.shape(), "1.1");
    world.pass(limits::SHUNNED * 2);
    assert_eq!(world.shape(), "1.1");
    world.registers(id(2, 1), vec![]);
    assert_eq!(world.shape(), "1.1 +2.1");
}

/// Found by the simulation (seed 105415): the chain was left to a dead member alone, which had been heard of a moment before.
#[test]
fn a_member_whose_disk_broke_left_the_chain_to_one_that_was_dead() {
    let mut world = World::formed(2, 2);
    world.begins();
    world.pass(limits::HEARTBEAT);
    world.dies(id(2, 1));
    let epoch = world.chain().epoch;
    world.says(id(1, 1), ToCoordinator::Report { shard: SHARD, epoch, silent: id(1, 1) });
    assert_eq!(world.shape(), "1.1 2.1");
    // There is room on the disk again.
    world.registers(id(1, 1), vec![holding(5, epoch.0)]);
    world.pass(limits::HEARTBEAT);
    assert_eq!(world.shape(), "1.1");
}

/// Found by the simulation (seed 345165): the next swap went by what was known before the store was away.
#[test]
fn a_member_left_the_chain_to_one_that_had_died_while_the_store_was_away() {
    let mut world = World::formed(2, 2);
    world.begins();
    world.pass(limits::HEARTBEAT);
    world.reachable = false;
    let epoch = world.chain().epoch;
    world.says(id(1, 1), ToCoordinator::Report { shard: SHARD, epoch, silent: id(1, 1) });
    world.dies(id(2, 1));
    world.reachable = true;
    world.pass(limits::CONFIG_RETRY * 2);
    assert_eq!(world.shape(), "1.1 2.1");
    world.registers(id(1, 1), vec![holding(5, epoch.0)]);
    world.pass(limits::HEARTBEAT);
    assert_eq!(world.shape(), "1.1");
}

/// Found by the simulation (seed 119825): what it had said last still counted.
#[test]
fn a_member_accused_for_long_left_the_chain_to_its_accuser_that_had_died() {
    let mut world = World::formed(2, 2);
    world.begins();
    let (epoch, began) = (world.chain().epoch, world.now);
    let report = ToCoordinator::Report { shard: SHARD, epoch, silent: id(1, 1) };
    while world.now.since(began) < limits::ACCUSED - limits::HEARTBEAT {
        world.says(id(2, 1), report.clone());
        world.pass(limits::HEARTBEAT);
    }
    world.falls_silent(id(2, 1));
    world.pass(limits::HEARTBEAT * 2);
    assert_eq!(world.shape(), "1.1");
}

/// The same with an operator in place of the accuser.
#[test]
fn a_member_wanted_elsewhere_left_the_chain_to_one_that_had_died() {
    let mut world = World::formed(1, 2);
    world.begins();
    world.wishes(Wish::Move { shard: SHARD, from: NodeId(1), to: NodeId(2) });
    world.catches_up(id(2, 1));
    assert_eq!(world.shape(), "1.1 2.1");
    world.dies(id(2, 1));
    // What it had said before.
    let epochs = vec![(SHARD, world.chain().epoch)];
    world.says(id(2, 1), ToCoordinator::Heartbeat { replica: id(2, 1), epochs });
    assert_eq!(world.shape(), "1.1");
}

/// Found by the simulation (seed 42738): its word that it could not go on came after the one that it could again.
#[test]
fn a_late_word_of_a_broken_disk_kept_a_replica_away_for_ever() {
    let mut world = World::formed(2, 2);
    let epoch = world.chain().epoch;
    let broken = ToCoordinator::Report { shard: SHARD, epoch, silent: id(2, 1) };
    world.says(id(2, 1), broken.clone());
    world.registers(id(2, 1), vec![]);
    world.says(id(2, 1), broken);
    world.answers.clear();
    world.pass(limits::HEARTBEAT);
    let told = |(to, message): &(Speaker, FromCoordinator)| {
        *to == Speaker::Replica(id(2, 1)) && matches!(message, FromCoordinator::Refused { .. })
    };
    assert!(world.answers.iter().any(told), "it may register again: {:?}", world.answers);
}
