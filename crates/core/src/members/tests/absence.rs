//! The judge's own faults are nobody's death.

use hoplo_base::limits;

use super::super::{Effect, Event, Found, Judge, NodeState, Why};
use super::{JUDGE, Life, TOLD_WITHIN, World, at, ms, number, row};

#[test]
fn a_judge_that_was_stopped_blames_nobody() {
    for lost in [false, true] {
        for phase in [0, 50, 90] {
            let mut world = World::new(5);
            world.pass(ms(phase));
            world.paused_until = world.now + ms(2000);
            if lost {
                // What came meanwhile is not even there when it wakes up.
                world.pass(ms(1990));
                world.air.retain(|_, it| !matches!(it, super::Coming::ToJudge(_)));
            }
            world.pass(ms(5000));
            assert_eq!(world.dead(), [], "lost {lost}, phase {phase}");
        }
    }
}

#[test]
fn a_judge_that_was_stopped_while_it_probed_probes_again() {
    let mut stopped = 0;
    for probed_for in (500..620).step_by(5) {
        let mut world = World::new(5);
        world.cuts.extend((0..5).flat_map(|node| [(node, 3), (3, node)]));
        world.cut_both_ways(3, JUDGE);
        world.pass(ms(probed_for));
        stopped += usize::from(!world.judge.rounds.is_empty());
        if world.judge.records.get(&number(3)).is_none_or(|record| record.verdict.is_some()) {
            break;
        }
        world.paused_until = world.now + ms(2000);
        world.cuts.clear();
        // Its machine was stopped with it: what was sent to it is not there when it wakes up.
        world.pass(ms(1999));
        world.air.retain(|_, it| !matches!(it, super::Coming::ToJudge(_)));
        world.pass(ms(3000));
        assert_eq!(world.dead(), [], "after {probed_for} ms");
    }
    assert!(stopped > 10, "it was being probed, in vain");
}

/// It took its own absence for a sign of the node, and probed it once more.
#[test]
fn what_a_probe_finds_counts_though_the_judge_was_away_meanwhile() {
    let mut world = World::new(5);
    world.pass(ms(250));
    world.lives.insert(3, Life::Crashed);
    world.event(Event::Closed { number: number(3) });
    world.paused_until = world.now + ms(200);
    world.pass(ms(230));
    assert_eq!(world.dead(), [3]);
    assert_eq!(world.probes.len(), 1);
}

#[test]
fn a_judge_that_was_stopped_says_so() {
    let mut world = World::new(5);
    world.pass(ms(3000));
    assert_eq!(world.behind, []);
    world.paused_until = world.now + ms(2000);
    world.pass(ms(5000));
    let [by] = world.behind[..] else { panic!("{:?}", world.behind) };
    assert!(by > ms(1500) && by <= ms(2000), "{by:?}");
}

/// So much came that it was never told that this was all, and nobody heard that the dead were not found.
#[test]
fn a_judge_that_is_never_told_all_says_so_now_and_then() {
    let mut world = World::new(5);
    world.pass(ms(3000));
    for _ in 0..2500 {
        world.now = world.now + ms(10);
        world.event(Event::Heartbeat { from: number(1), epoch: 1 });
    }
    assert_eq!(world.behind.len(), 3, "{:?}", world.behind);
    assert!(world.behind.is_sorted() && world.behind[0] >= limits::MEMBER_JUDGE_BEHIND);
    // Who does not act finds nobody.
    world.event(Event::Acts(false));
    world.now = world.now + ms(30_000);
    world.event(Event::Heartbeat { from: number(1), epoch: 1 });
    assert_eq!(world.behind.len(), 3);
}

#[test]
fn who_dies_while_the_judge_is_stopped_is_found_afterwards() {
    let mut world = World::new(5);
    world.paused_until = world.now + ms(2000);
    world.pass(ms(1000));
    world.vanish(3);
    world.pass(ms(1000));
    let back = world.now;
    world.pass(ms(2000));
    assert_eq!(world.dead(), [3]);
    assert!(world.verdicts[&3].0.since(back) <= TOLD_WITHIN);
}

#[test]
fn a_judge_whose_turns_are_always_a_little_late_still_finds_who_is_dead() {
    let mut judge = Judge::new(at(0));
    let mut effects = Vec::new();
    judge.handle(at(0), Event::Acts(true), &mut effects);
    for node in 0..2 {
        judge.handle(at(0), row(node, 1, NodeState::Alive), &mut effects);
        judge.handle(at(0), Event::Heartbeat { from: number(node), epoch: 0 }, &mut effects);
    }
    judge.handle(at(0), Event::Tick, &mut effects);
    let late = limits::MEMBER_JUDGE_LATE + ms(10);
    let mut now = at(0);
    while now < at(30_000) && !effects.iter().any(|it| matches!(it, Effect::Verdict { .. })) {
        now = judge.next_deadline().unwrap() + late;
        judge.handle(now, Event::Heartbeat { from: number(1), epoch: 0 }, &mut effects);
        judge.handle(now, Event::Tick, &mut effects);
        judge.check();
    }
    assert!(now < at(10_000), "{now:?}");
}

#[test]
fn a_judge_that_just_began_gives_nodes_time_to_come() {
    let mut world = World::begun(5);
    world.cuts.extend((0..5).map(|node| (node, JUDGE)));
    world.now = at(50);
    world.event(Event::Acts(true));
    world.pass(ms(2800));
    assert_eq!(world.dead(), [], "they dial with back-off");
    world.cuts.clear();
    world.pass(ms(3000));
    assert_eq!(world.dead(), []);
}

#[test]
fn a_judge_that_just_began_finds_who_died_before_it() {
    for (life, within) in [(Life::Crashed, ms(20)), (Life::Vanished, ms(3500))] {
        let mut world = World::begun(5);
        world.lives.insert(3, life);
        // Its clock begins with it: it has no time that is long ago.
        world.event(Event::Acts(true));
        world.pass(within);
        assert_eq!(world.dead(), [3], "{life:?}");
        world.pass(ms(3000));
        assert_eq!(world.dead(), [3]);
    }
}

#[test]
fn a_node_that_registers_and_is_never_heard_of_is_found() {
    let mut world = World::new(3);
    world.lives.insert(7, Life::Vanished);
    world.rows.insert(7, 1);
    world.event(row(7, 1, NodeState::Alive));
    world.pass(ms(2500));
    assert_eq!(world.dead(), []);
    world.pass(ms(1000));
    assert!(matches!(world.verdicts[&7].1, Why::Unheard { .. }), "{:?}", world.verdicts);
}

#[test]
fn a_judge_that_is_cut_off_declares_nobody_dead_until_it_is_long() {
    let mut world = World::new(5);
    (0..5).for_each(|node| world.cut_both_ways(node, JUDGE));
    world.pass(limits::MEMBER_LONE_JUDGE - ms(200));
    assert_eq!(world.dead(), []);
    world.cuts.clear();
    world.pass(ms(3000));
    assert_eq!(world.dead(), []);
    (0..5).for_each(|node| world.vanish(node));
    world.pass(limits::MEMBER_LONE_JUDGE + ms(500));
    assert_eq!(world.dead().len(), 5, "or all of them are gone indeed");
}

#[test]
fn a_node_on_the_judges_own_machine_is_no_witness() {
    let mut world = World::new(4);
    let near = Event::Row { number: number(0), version: 1, state: NodeState::Alive, near: true };
    world.event(near);
    (1..4).for_each(|node| world.cut_both_ways(node, JUDGE));
    (1..4).for_each(|node| world.cut_both_ways(node, 0));
    world.pass(ms(3000));
    assert_eq!(world.dead(), [], "the machine is cut off, and not three others");
    assert!(world.probes.iter().all(|(_, _, via)| *via != Some(number(0))));
}

#[test]
fn the_time_that_a_judge_was_stopped_is_no_patience() {
    // Cut off, and stopped for as long as it would have waited.
    let mut world = World::new(5);
    (0..5).for_each(|node| world.cut_both_ways(node, JUDGE));
    world.pass(ms(500));
    world.paused_until = world.now + limits::MEMBER_LONE_JUDGE;
    world.pass(limits::MEMBER_LONE_JUDGE + ms(1000));
    world.cuts.clear();
    world.pass(ms(3000));
    assert_eq!(world.dead(), []);
}

#[test]
fn what_waited_in_a_socket_counts_before_anybody_is_judged() {
    let mut judge = Judge::new(at(0));
    let mut effects = Vec::new();
    let beat = |node| Event::Heartbeat { from: number(node), epoch: 0 };
    judge.handle(at(0), Event::Acts(true), &mut effects);
    for node in 0..3 {
        judge.handle(at(0), row(node, 1, NodeState::Alive), &mut effects);
        judge.handle(at(0), beat(node), &mut effects);
    }
    judge.handle(at(0), Event::Tick, &mut effects);
    for time in [100, 200, 300, 400] {
        judge.handle(at(time), beat(2), &mut effects);
        judge.handle(at(time), Event::Tick, &mut effects);
    }
    let of_witness = |effect: Effect| match effect {
        Effect::Probe { ticket, via: Some(_), .. } => Some(ticket),
        Effect::Probe { .. }
        | Effect::Verdict { .. }
        | Effect::Tell { .. }
        | Effect::Behind { .. } => None,
    };
    let tickets: Vec<u64> = effects.drain(..).filter_map(of_witness).collect();
    assert_eq!(tickets.len(), 2, "nodes 0 and 1 are silent, and node 2 was asked");
    for ticket in tickets {
        judge.handle(at(650), Event::Probed { ticket, found: Found::Silent }, &mut effects);
    }
    // Its turn comes a little late; both have spoken meanwhile.
    for node in 0..3 {
        judge.handle(at(900), beat(node), &mut effects);
    }
    judge.handle(at(900), Event::Tick, &mut effects);
    judge.check();
    assert!(effects.iter().all(|it| matches!(it, Effect::Probe { .. })), "{effects:?}");
}

#[test]
fn who_spoke_to_another_judge_has_time_to_come_to_this_one() {
    let mut world = World::begun(5);
    world.pass(ms(1000));
    (0..5).for_each(|node| world.cuts.extend([(node, JUDGE)]));
    world.pass(ms(3000));
    world.event(Event::Acts(true));
    // Just now it reaches nobody, and nobody reaches it; the others do come.
    world.cuts.clear();
    let others = [0, 1, 2, 4, JUDGE];
    others.into_iter().for_each(|other| world.cut_both_ways(3, other));
    world.pass(ms(2000));
    world.cuts.clear();
    world.pass(ms(2000));
    assert_eq!(world.dead(), []);
}

#[test]
fn who_answers_and_never_comes_is_not_alive_for_ever() {
    let mut world = World::begun(5);
    // It looks for the head elsewhere.
    world.air.clear();
    for node in [0, 1, 2, 4] {
        world.later(ms(0), super::Coming::Beat(number(node)));
    }
    world.event(Event::Acts(true));
    let begun = world.now;
    world.pass(limits::NODE_ALONE);
    assert_eq!(world.dead(), [], "it ends its workers by itself first");
    world.pass(ms(6000));
    assert_eq!(world.dead(), [3]);
    let (at, why) = world.verdicts[&3].clone();
    assert!(at.since(begun) < limits::MEMBER_ASTRAY + ms(1000), "{at:?}");
    assert!(why.to_string().contains("did not come to the head for 35 s"), "{why}");
    assert_eq!(world.told, [number(3)], "and hears so, though it asks nobody");
}

#[test]
fn who_comes_now_and_then_is_alive() {
    let mut world = World::begun(3);
    world.air.clear();
    world.event(Event::Acts(true));
    for _ in 0..5 {
        for node in 0..3 {
            world.event(Event::Heartbeat { from: number(node), epoch: 1 });
        }
        world.pass(ms(20_000));
    }
    assert_eq!(world.dead(), []);
}
