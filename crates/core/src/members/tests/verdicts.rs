//! A verdict is true when the store has it, once, by the one that acts, and for ever.

use hoplo_base::limits;

use super::super::{Event, NodeState};
use super::{Life, World, ms, number, row};

#[test]
fn who_does_not_act_neither_probes_nor_declares() {
    let mut world = World::begun(5);
    world.vanish(3);
    world.event(Event::Closed { number: number(3) });
    world.pass(ms(5000));
    assert!(world.probes.is_empty() && world.dead().is_empty());
    // It hears all the same, and begins with what it heard.
    world.event(Event::Acts(true));
    world.pass(ms(1));
    assert!(world.probes.iter().all(|(_, node, _)| *node == 3), "{:?}", world.probes);
    world.pass(ms(4000));
    assert_eq!(world.dead(), [3]);
}

#[test]
fn who_stops_to_act_ends_its_probes() {
    let mut world = World::new(5);
    world.vanish(3);
    world.pass(ms(500));
    assert!(!world.judge.rounds.is_empty());
    world.event(Event::Acts(false));
    world.pass(ms(3000));
    assert_eq!(world.dead(), []);
}

#[test]
fn a_row_that_changed_meanwhile_is_judged_anew() {
    let mut world = World::new(5);
    // It begins to drain, and the judge does not know yet.
    world.rows.insert(3, 2);
    world.lives.insert(3, Life::Crashed);
    world.event(Event::Closed { number: number(3) });
    world.pass(ms(30));
    assert_eq!(world.dead(), [], "the version that was judged is not there any more");
    world.event(row(3, 2, NodeState::Draining));
    world.pass(ms(200));
    assert_eq!(world.dead(), [3]);
}

#[test]
fn who_speaks_before_the_store_took_the_verdict_is_judged_anew() {
    let mut world = World::new(5);
    world.store_answers = false;
    world.vanish(3);
    world.pass(ms(1500));
    assert_eq!(world.dead(), []);
    world.lives.insert(3, Life::Lives);
    world.later(ms(0), super::Coming::Beat(number(3)));
    world.pass(ms(300));
    world.store_answers = true;
    world.pass(ms(3000));
    assert_eq!(world.dead(), []);
}

#[test]
fn a_store_that_does_not_answer_is_asked_again() {
    let mut world = World::new(5);
    world.store_answers = false;
    world.lives.insert(3, Life::Crashed);
    world.event(Event::Closed { number: number(3) });
    world.pass(ms(3000));
    world.store_answers = true;
    world.pass(ms(1000));
    assert_eq!(world.dead(), [3]);
}

#[test]
fn a_dead_number_that_speaks_learns_that_it_is_dead_and_stays_so() {
    let mut world = World::new(5);
    world.vanish(3);
    world.pass(ms(1000));
    assert_eq!(world.dead(), [3]);
    world.lives.insert(3, Life::Lives);
    world.later(ms(0), super::Coming::Beat(number(3)));
    world.pass(limits::MEMBER_BEAT * 4);
    assert!(world.told.len() >= 4 && world.told.iter().all(|it| *it == number(3)));
    world.event(row(3, 9, NodeState::Alive));
    world.pass(limits::MEMBER_BEAT * 4);
    assert!(world.judge.explain(world.now, number(3)).contains("is dead"));
    assert!(world.told.len() >= 8);
}

#[test]
fn a_judge_that_does_not_act_tells_the_dead_as_well() {
    let mut world = World::begun(2);
    let why = "its power failed".to_string();
    world.event(row(1, 2, NodeState::dead(why)));
    world.pass(ms(200));
    assert!(world.told.contains(&number(1)) && !world.told.contains(&number(0)));
    world.event(row(0, 2, NodeState::Settled { why: String::new(), heir: None, died: 1 }));
    world.pass(ms(200));
    assert!(world.told.contains(&number(0)));
}

#[test]
fn an_epoch_is_known_to_all_when_the_last_living_node_said_so() {
    let mut world = World::new(3);
    assert!(world.judge.known_to_all(1) && !world.judge.known_to_all(2));
    for node in 0..2 {
        world.event(Event::Heartbeat { from: number(node), epoch: 2 });
    }
    assert!(!world.judge.known_to_all(2));
    world.event(row(2, 2, NodeState::dead("gone")));
    assert!(world.judge.known_to_all(2), "the dead need not know");
}
