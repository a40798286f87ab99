//! Many at once, and anything in any order.

use hoplo_base::limits;
use proptest::prelude::*;

use super::super::{Event, beat};
use super::{JUDGE, Life, TOLD_WITHIN, World, ms, number};

#[test]
fn a_hundred_that_vanish_together_are_dead_in_time_by_few_probes() {
    let mut world = World::new(104);
    world.pass(ms(70));
    let last_sign = world.now;
    (0..100).for_each(|node| world.vanish(node));
    world.pass(ms(2000));
    assert_eq!(world.dead(), (0..100).collect::<Vec<_>>());
    let latest = world.verdicts.values().map(|(at, _)| *at).max().unwrap();
    assert!(latest.since(last_sign) <= TOLD_WITHIN, "{:?}", latest.since(last_sign));
    assert!(world.probes.len() <= 330, "{} probes", world.probes.len());
    let asked = |node| world.probes.iter().filter(move |(_, _, via)| *via == Some(number(node)));
    let most = (100..104).map(|node| asked(node).count()).max().unwrap();
    assert!(most <= 60, "they take turns: one was asked {most} times");
}

#[test]
fn more_than_can_be_probed_at_once_take_their_turn() {
    let mut world = World::new(1000);
    (0..990).for_each(|node| world.vanish(node));
    world.pass(ms(5000));
    assert_eq!(world.dead().len(), 990);
    assert!(world.open_most <= 3 * limits::MEMBER_ROUNDS_MAX, "{} probes", world.open_most);
}

#[test]
fn heartbeats_of_ten_thousand_nodes_took_most_of_the_time_of_who_hears_them() {
    let mut world = World::new(10_000);
    let before = world.events;
    world.pass(ms(900));
    let heard = world.events - before;
    assert!((30_000..32_000).contains(&heard), "{heard} in 0.9 s, turns for time among them");
    // As late as they may be where they are more frequent.
    (0..20).for_each(|node| _ = world.delays.insert(node, ms(200)));
    world.pass(ms(1000));
    assert_eq!(world.probes, [], "it waits for them");
    let last_sign = world.now;
    world.vanish(20);
    world.pass(ms(1000));
    assert_eq!(world.dead(), [20]);
    let late = beat(10_000) - limits::MEMBER_BEAT;
    assert!(world.verdicts[&20].0.since(last_sign) <= TOLD_WITHIN + late);
}

#[test]
fn a_judge_that_begins_does_not_probe_all_at_once() {
    let mut world = World::begun(1000);
    world.event(Event::Acts(true));
    world.event(Event::Tick);
    assert!(world.probes.len() <= 3 * limits::MEMBER_ROUNDS_MAX);
    world.pass(ms(3000));
    assert_eq!(world.dead(), []);
}

#[derive(Clone, Debug)]
enum Step {
    Pass { milliseconds: u64 },
    Cut { from: u32, to: u32 },
    Heal,
    Slow { node: u32, milliseconds: u64 },
    Pause { milliseconds: u64 },
    Closed { node: u32 },
    Complaint { node: u32 },
    Acts { acts: bool },
    Store { answers: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let end = || prop_oneof![4 => 0..6u32, 2 => Just(JUDGE)];
    prop_oneof![
        8 => (0..500u64).prop_map(|milliseconds| Step::Pass { milliseconds }),
        3 => (end(), end()).prop_map(|(from, to)| Step::Cut { from, to }),
        3 => Just(Step::Heal),
        2 => (0..6u32, 0..280u64).prop_map(|(node, milliseconds)| Step::Slow { node, milliseconds }),
        1 => (0..3000u64).prop_map(|milliseconds| Step::Pause { milliseconds }),
        2 => (0..6u32).prop_map(|node| Step::Closed { node }),
        1 => (0..6u32).prop_map(|node| Step::Complaint { node }),
        1 => any::<bool>().prop_map(|acts| Step::Acts { acts }),
        1 => any::<bool>().prop_map(|answers| Step::Store { answers }),
    ]
}

proptest! {
    /// Cuts in one direction, one at a time, and all else that is no death.
    #[test]
    fn nobody_who_lives_is_declared_dead_and_everybody_who_died_is(
        steps in prop::collection::vec(step(), 1..60),
        dies in 0..6u32,
        crashes in any::<bool>(),
    ) {
        let mut world = World::new(6);
        for step in steps {
            match step {
                Step::Pass { milliseconds } => world.pass(ms(milliseconds)),
                Step::Cut { from, to } => {
                    world.cuts.clear();
                    world.cuts.insert((from, to));
                }
                Step::Heal => world.cuts.clear(),
                Step::Slow { node, milliseconds } => {
                    world.delays.clear();
                    world.delays.insert(node, ms(milliseconds));
                }
                Step::Pause { milliseconds } => world.paused_until = world.now + ms(milliseconds),
                Step::Closed { node } => world.event(Event::Closed { number: number(node) }),
                Step::Complaint { node } => world.event(Event::Complaint { number: number(node) }),
                Step::Acts { acts } => world.event(Event::Acts(acts)),
                Step::Store { answers } => world.store_answers = answers,
            }
        }
        prop_assert_eq!(world.dead(), []);
        world.cuts.clear();
        world.delays.clear();
        world.store_answers = true;
        world.event(Event::Acts(true));
        world.pass(ms(6000));
        prop_assert_eq!(world.dead(), []);
        world.lives.insert(dies, if crashes { Life::Crashed } else { Life::Vanished });
        let died = world.now;
        world.pass(ms(1000));
        prop_assert_eq!(world.dead(), [dies]);
        prop_assert!(world.verdicts[&dies].0.since(died) <= TOLD_WITHIN);
    }
}
