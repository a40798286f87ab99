//! Who died, and how soon that is true.

use hoplo_base::limits::MEMBER_BEAT;

use super::super::{Event, NodeState, Why};
use super::{JUDGE, Life, TOLD_WITHIN, World, ms, number, row};

#[test]
fn a_silent_node_is_dead_within_three_quarters_of_a_second_of_its_last_sign() {
    for phase in [0, 30, 60, 95] {
        let mut world = World::new(5);
        world.pass(ms(phase));
        let last_sign = world.now;
        world.vanish(3);
        world.pass(ms(2000));
        assert_eq!(world.dead(), [3]);
        let (at, why) = world.verdicts[&3].clone();
        assert!(at.since(last_sign) <= TOLD_WITHIN, "{:?}", at.since(last_sign));
        assert!(at.since(last_sign) >= ms(550), "not before it was looked for");
        assert!(matches!(why, Why::Silent { witnesses: 2, .. }), "{why:?}");
    }
}

#[test]
fn a_daemon_that_is_gone_is_dead_as_soon_as_its_address_refuses() {
    let mut world = World::new(5);
    world.pass(ms(250));
    let crashed = world.now;
    world.lives.insert(3, Life::Crashed);
    world.event(Event::Closed { number: number(3) });
    world.pass(ms(20));
    assert_eq!(world.verdicts.get(&3).map(|(_, why)| why), Some(&Why::Refused));
    assert!(world.verdicts[&3].0.since(crashed) <= ms(20));
    assert_eq!(world.probes.len(), 1, "nobody else had to be asked");
}

#[test]
fn who_says_that_it_leaves_is_dead_at_once_for_the_reason_that_it_gives() {
    let mut world = World::new(5);
    let leaves = Event::Leaves { from: number(3), why: "it was drained".to_string() };
    world.event(leaves.clone());
    // Said again meanwhile, that is one verdict.
    world.event(leaves);
    world.pass(ms(10));
    assert_eq!(world.dead(), [3]);
    assert_eq!(world.verdicts[&3].1.to_string(), "it was drained");
    assert_eq!(world.probes, []);
}

#[test]
fn who_leaves_is_judged_again_when_that_could_not_be_written() {
    let mut world = World::new(5);
    let leaves = Event::Leaves { from: number(3), why: "it was stopped".to_string() };
    world.store_answers = false;
    world.event(leaves.clone());
    world.pass(ms(10));
    assert_eq!(world.dead(), []);
    world.store_answers = true;
    world.event(leaves);
    world.pass(ms(10));
    assert_eq!(world.dead(), [3]);
    assert_eq!(world.verdicts[&3].1.to_string(), "it was stopped");
}

#[test]
fn who_leaves_while_nobody_acts_is_judged_by_who_acts_then() {
    let mut world = World::begun(3);
    let leaves = Event::Leaves { from: number(1), why: "it was stopped".to_string() };
    world.event(leaves.clone());
    world.pass(ms(10));
    assert_eq!(world.dead(), []);
    world.event(Event::Acts(true));
    world.event(leaves);
    world.pass(ms(10));
    assert_eq!(world.dead(), [1]);
}

#[test]
fn a_complaint_just_before_the_end_does_not_hide_it() {
    let mut world = World::new(5);
    world.event(Event::Complaint { number: number(3) });
    world.pass(ms(1));
    // The probe of that finds it alive, and is still on its way.
    world.pass(ms(2));
    world.lives.insert(3, Life::Crashed);
    world.event(Event::Closed { number: number(3) });
    world.pass(ms(100));
    assert_eq!(world.dead(), [3], "and not by silence");
    assert_eq!(world.verdicts[&3].1, Why::Refused);
}

#[test]
fn a_broken_connection_alone_kills_nobody() {
    let mut world = World::new(5);
    for _ in 0..10 {
        world.event(Event::Closed { number: number(3) });
        world.event(Event::Complaint { number: number(3) });
        world.pass(ms(30));
    }
    world.pass(ms(2000));
    assert_eq!(world.dead(), []);
    assert!(world.probes.len() <= 8, "complaints are no way to make probes: {:?}", world.probes);
}

#[test]
fn of_two_nodes_the_silent_one_is_dead_though_nobody_else_can_look() {
    let mut world = World::new(1);
    let last_sign = world.now;
    world.vanish(0);
    world.pass(ms(2000));
    assert_eq!(world.dead(), [0]);
    assert!(world.verdicts[&0].0.since(last_sign) <= TOLD_WITHIN);
}

#[test]
fn a_draining_node_is_judged_like_any_other() {
    let mut world = World::new(3);
    world.rows.insert(2, 2);
    world.event(row(2, 2, NodeState::Draining));
    world.vanish(2);
    world.pass(ms(2000));
    assert_eq!(world.dead(), [2]);
}

#[test]
fn a_node_whose_heartbeats_come_late_lives() {
    let mut world = World::new(5);
    // From now on; so there is one gap of 450 ms, and answers to probes are as late.
    world.delays.insert(3, ms(350));
    world.pass(ms(5000));
    assert_eq!(world.dead(), []);
    // And in bursts.
    for _ in 0..20 {
        world.delays.insert(3, ms(0));
        world.pass(ms(100));
        world.delays.insert(3, ms(350));
        world.pass(ms(450));
    }
    assert_eq!(world.dead(), []);
}

#[test]
fn a_cut_in_one_direction_kills_nobody() {
    for both in [false, true] {
        let mut world = World::new(5);
        world.cuts.insert((3, JUDGE));
        if both {
            world.cuts.insert((JUDGE, 3));
        }
        world.pass(ms(10_000));
        assert_eq!(world.dead(), [], "others reach it");
        let silent_since = world.now;
        world.vanish(3);
        world.pass(ms(1500));
        assert_eq!(world.dead(), [3], "and who nobody reaches is dead");
        assert!(world.verdicts[&3].0.since(silent_since) <= ms(1200));
    }
}

#[test]
fn what_a_witness_takes_for_a_refusal_is_no_proof() {
    let mut world = World::new(4);
    // The judge is cut from node 3, whose machine refuses the others at a wall; it lives, and its heartbeats come.
    world.lives.insert(3, Life::Crashed);
    world.cut_both_ways(JUDGE, 3);
    let begun = world.now;
    world.pass(ms(500));
    assert_eq!(world.dead(), [], "not yet: somebody else's refusal is not ours");
    world.pass(ms(1000));
    assert_eq!(world.dead(), [3]);
    assert!(world.verdicts[&3].0.since(begun) >= ms(550));
    assert!(matches!(world.verdicts[&3].1, Why::Silent { .. }));
}

#[test]
fn a_heartbeat_that_came_after_the_probe_began_outweighs_a_refusal() {
    let mut world = World::new(3);
    world.event(Event::Closed { number: number(1) });
    // A firewall, a restart of its listener: for one probe nobody listens.
    let ticket = *world.open.last().unwrap();
    world.air.retain(|_, it| !matches!(it, super::Coming::ToJudge(Event::Probed { .. })));
    world.pass(MEMBER_BEAT + ms(10));
    let found = super::super::Found::Refused;
    world.event(Event::Probed { ticket, found });
    world.pass(ms(2000));
    assert_eq!(world.dead(), []);
}

#[test]
fn complaints_about_a_node_that_speaks_but_cannot_be_reached_do_not_kill_it() {
    let mut world = World::new(5);
    world.cuts.insert((JUDGE, 3));
    for _ in 0..10 {
        world.event(Event::Complaint { number: number(3) });
        world.pass(ms(450));
    }
    assert_eq!(world.dead(), []);
}

#[test]
fn complaints_about_a_silent_node_do_not_delay_its_verdict() {
    for complained_at in (0..700).step_by(20) {
        let mut world = World::new(5);
        let last_sign = world.now;
        world.vanish(3);
        world.pass(ms(complained_at));
        world.event(Event::Complaint { number: number(3) });
        world.pass(ms(10));
        world.event(Event::Closed { number: number(3) });
        world.pass(ms(2000));
        let after = world.verdicts[&3].0.since(last_sign);
        assert!(after <= TOLD_WITHIN, "complained at {complained_at}: {after:?}");
    }
}
