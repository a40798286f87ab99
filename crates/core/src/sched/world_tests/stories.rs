use std::time::Duration;

use hoplo_base::NodeNumber;
use hoplo_wire::node::{Condition, LabelSelector, Shape, Strategy};

use super::world::{World, node, place, units};
use crate::sched::broker;
use crate::sched::claim::Claimant;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn one_cpu() -> Shape {
    Shape::of(units(&[("CPU", 1.0)]))
}

fn with(strategy: Strategy) -> Shape {
    Shape { strategy, ..one_cpu() }
}

fn zone(values: &[&str]) -> LabelSelector {
    let values = values.iter().map(|value| value.to_string()).collect();
    LabelSelector(vec![("zone".to_string(), Condition::In(values))])
}

fn three() -> World {
    World::new(vec![place(0, 1.0), place(1, 1.0), place(2, 1.0)])
}

#[test]
fn a_thousand_tasks_run_on_all_three_nodes_from_the_start() {
    let mut world = three();
    let began = world.now;
    let owner = world.owner(node(0), one_cpu(), 1000, MS(3));
    assert!(world.run_until(MS(2000), |world| world.owners[&owner].done == 1000));
    let took = world.now.since(began);
    assert!(took < MS(1000 * 3 / 3 + 60), "{took:?}");
    let ran = &world.owners[&owner].ran;
    for number in 0..3 {
        let (count, first) = ran[&node(number)];
        assert!(count > 300, "{ran:?}");
        assert!(first.since(began) < MS(30), "{ran:?}");
    }
    // What is over leaves nothing.
    world.run_for(MS(500));
    assert!(world.daemons.values().all(|it| it.scheduler.leases().count() == 0));
    assert!(world.daemons.values().all(|it| it.scheduler.claims().count() == 0));
    assert_eq!(world.global.wants().count(), 0);
    assert!(world.seeks < 30, "{}", world.seeks);
}

#[test]
fn a_node_that_joins_has_work_within_100_ms() {
    let mut world = three();
    let owner = world.owner(node(0), one_cpu(), 3000, MS(3));
    // The pauses between questions are long by now.
    world.run_for(MS(1500));
    world.join_at(MS(0), place(3, 4.0));
    let joined = world.now;
    assert!(world.run_until(MS(3000), |world| world.owners[&owner].done == 3000));
    let (count, first) = world.owners[&owner].ran[&node(3)];
    assert!(first.since(joined) < MS(100), "{:?}", first.since(joined));
    assert!(count > 600, "{count}");
}

#[test]
fn a_first_other_node_gets_what_waited_alone() {
    let mut world = World::new(vec![place(0, 1.0)]);
    let owner = world.owner(node(0), one_cpu(), 1000, MS(3));
    world.run_for(MS(500));
    assert!(world.daemons[&node(0)].broker.is_alone());
    assert_eq!(world.seeks, 0);
    world.join_at(MS(0), place(1, 1.0));
    let joined = world.now;
    assert!(world.run_until(MS(3000), |world| world.owners[&owner].done == 1000));
    let (_, first) = world.owners[&owner].ran[&node(1)];
    assert!(first.since(joined) < MS(100), "{:?}", first.since(joined));
}

#[test]
fn a_node_dies_and_nothing_is_stuck() {
    for at in [3, 7, 12, 20, 90, 400] {
        let mut world = three();
        let owner = world.owner(node(0), one_cpu(), 600, MS(3));
        world.kill_at(MS(at), node(1));
        let done = |world: &World| world.owners[&owner].done == 600;
        assert!(world.run_until(MS(2500), done), "killed after {at} ms");
    }
}

#[test]
fn what_waits_where_nobody_has_room_goes_to_the_first_that_has() {
    let mut world = three();
    let at = |number| with(Strategy::Node { node: node(number), soft: false });
    for number in 0..2 {
        world.owner(node(number), at(number), 1, MS(2000));
    }
    let short = world.owner(node(2), at(2), 1, MS(150));
    world.run_for(MS(50));
    let owner = world.owner(node(0), one_cpu(), 10, MS(10));
    // A part of it waits at node 1, which grants nothing.
    assert!(world.run_until(MS(600), |world| world.owners[&owner].done == 10));
    let ran = &world.owners[&owner].ran;
    assert_eq!(ran.keys().copied().collect::<Vec<_>>(), [node(2)], "{ran:?}");
    assert_eq!(world.owners[&short].done, 1);
}

#[test]
fn what_nobody_could_run_is_told_once_with_the_nearest_node() {
    let mut world = World::new(vec![place(0, 1.0), place(1, 2.0), place(2, 1.0)]);
    let needs = Shape::of(units(&[("CPU", 2.0), ("GPU", 1.0)]));
    let owner = world.owner(node(0), needs, 1, MS(1));
    world.run_for(MS(5000));
    let told = &world.owners[&owner].told;
    assert_eq!(told.len(), 1, "{told:?}");
    let stuck = told[0].clone().unwrap();
    let said = stuck.reason.in_words(|process| process.to_string());
    assert!(stuck.infeasible);
    let nearest = node(1).hex();
    assert_eq!(said, format!("needs GPU 1, node has 0 (node {nearest}, the nearest of 3)"));
    assert!(world.seeks < 12, "it asks again ever more rarely: {}", world.seeks);
    // One that could comes: it goes on, and hears so.
    let mut gpu = place(3, 2.0);
    gpu.total = units(&[("CPU", 2.0), ("GPU", 1.0)]);
    world.join_at(MS(0), gpu);
    assert!(world.run_until(MS(100), |world| world.owners[&owner].done == 1));
    assert_eq!(world.owners[&owner].told.last(), Some(&None));
}

#[test]
fn affinity_holds_and_a_dead_node_is_named() {
    let mut world = three();
    let only = |soft| with(Strategy::Node { node: node(2), soft });
    let hard = world.owner(node(0), only(false), 30, MS(2));
    let soft = world.owner(node(1), only(true), 30, MS(2));
    assert!(world.run_until(MS(500), |world| {
        world.owners[&hard].done == 30 && world.owners[&soft].done == 30
    }));
    for owner in [hard, soft] {
        let ran: Vec<NodeNumber> = world.owners[&owner].ran.keys().copied().collect();
        assert_eq!(ran, [node(2)]);
    }
    world.kill_at(MS(0), node(2));
    world.run_for(MS(100));
    let hard = world.owner(node(0), only(false), 1, MS(2));
    let soft = world.owner(node(0), only(true), 5, MS(2));
    assert!(world.run_until(MS(500), |world| world.owners[&soft].done == 5));
    assert_eq!(world.owners[&hard].done, 0);
    let told = &world.owners[&hard].told;
    assert_eq!(told.len(), 1, "{told:?}");
    let stuck = told[0].clone().unwrap();
    let said = stuck.reason.in_words(|process| process.to_string());
    assert_eq!(
        (said, stuck.infeasible),
        (format!("needs node {}, which is dead", node(2).hex()), true)
    );
}

#[test]
fn labels_hold_and_fallbacks_are_tried_in_order() {
    let labelled = |number, name: &str| {
        let mut it = place(number, 2.0);
        it.labels.insert("zone".to_string(), name.to_string());
        it
    };
    let mut world = World::new(vec![labelled(0, "a"), labelled(1, "b"), labelled(2, "b")]);
    let only = |labels| Shape { labels, ..one_cpu() };
    let b = world.owner(node(0), only(vec![zone(&["b"])]), 100, MS(3));
    let c = world.owner(node(0), only(vec![zone(&["c"]), zone(&["a"])]), 20, MS(3));
    assert!(world.run_until(MS(1000), |world| {
        world.owners[&b].done == 100 && world.owners[&c].done == 20
    }));
    let ran = |world: &World, owner| world.owners[&owner].ran.keys().copied().collect::<Vec<_>>();
    assert_eq!(ran(&world, b), [node(1), node(2)]);
    assert_eq!(ran(&world, c), [node(0)]);
    world.join_at(MS(0), labelled(3, "c"));
    world.run_for(MS(20));
    let c = world.owner(node(0), only(vec![zone(&["c"]), zone(&["a"])]), 20, MS(3));
    assert!(world.run_until(MS(1000), |world| world.owners[&c].done == 20));
    assert_eq!(ran(&world, c), [node(3)]);
    let d = world.owner(node(0), only(vec![zone(&["d"])]), 1, MS(3));
    world.run_for(MS(1000));
    let stuck = world.owners[&d].told.last().unwrap().clone().unwrap();
    let said = stuck.reason.in_words(|process| process.to_string());
    assert!(said.starts_with("needs label zone=d, node has a (node "), "{said}");
}

#[test]
fn spread_gives_each_node_its_share() {
    let mut world = World::new((0..4).map(|number| place(number, 4.0)).collect());
    let owner = world.owner(node(0), with(Strategy::Spread), 8, MS(300));
    world.run_for(MS(100));
    let ran: Vec<u32> = world.owners[&owner].ran.values().map(|(count, _)| *count).collect();
    assert_eq!(ran, [2, 2, 2, 2]);
    // One at a time as well: none gets a second one before each has one.
    let mut world = World::new((0..4).map(|number| place(number, 4.0)).collect());
    let mut owners = Vec::new();
    for _ in 0..8 {
        owners.push(world.owner(node(0), with(Strategy::Spread), 1, MS(5000)));
        world.run_for(MS(40));
    }
    let mut counts = std::collections::BTreeMap::<NodeNumber, u32>::new();
    for owner in owners {
        for at in world.owners[&owner].ran.keys() {
            *counts.entry(*at).or_default() += 1;
        }
    }
    assert_eq!(counts.into_values().collect::<Vec<_>>(), [2, 2, 2, 2]);
}

#[test]
fn two_that_want_everything_share_it() {
    let mut world = three();
    let one = world.owner(node(0), one_cpu(), 100_000, MS(3));
    world.run_for(MS(300));
    let two = world.owner(node(1), one_cpu(), 100_000, MS(3));
    world.run_for(MS(200));
    let done = |world: &World, owner| world.owners[&owner].done;
    let before = (done(&world, one), done(&world, two));
    world.run_for(MS(4000));
    let (one, two) = (done(&world, one) - before.0, done(&world, two) - before.1);
    let together = one + two;
    assert!(together > 3 * 4000 / 3 * 80 / 100, "{one} and {two}");
    assert!(one.min(two) * 100 > together * 30, "{one} and {two}");
}

#[test]
fn one_whose_node_has_nothing_gets_its_share_of_full_nodes() {
    let mut world = World::new(vec![place(0, 0.0), place(1, 1.0), place(2, 1.0)]);
    let greedy = world.owner(node(1), one_cpu(), 100_000, MS(3));
    world.run_for(MS(300));
    let poor = world.owner(node(0), one_cpu(), 100, MS(3));
    assert!(world.run_until(MS(2000), |world| world.owners[&poor].done == 100));
    assert!(world.owners[&greedy].done > 220);
}

#[test]
fn actors_are_placed_where_there_is_room_and_once() {
    let mut world = three();
    for seq in 0..3 {
        let process = hoplo_base::ProcessId::new(node(0), 1, 1);
        let actor = hoplo_base::ActorId(hoplo_base::TaskId { owner: process, seq });
        let claimant = Claimant::Actor { actor, incarnation: 0 };
        let (job, shape, held) = (hoplo_base::JobId(1), one_cpu(), units(&[("CPU", 1.0)]));
        let event = broker::Event::Demanded { claimant, job, shape, held, wanted: 1 };
        world.tell_broker(node(0), event);
    }
    world.run_for(MS(300));
    let mut places: Vec<_> = world.placed.values().copied().collect();
    places.sort();
    assert_eq!(places, [node(0), node(1), node(2)]);
    let leases = world.daemons.values().map(|it| it.scheduler.leases().count());
    assert_eq!(leases.sum::<usize>(), 3);
}
