//! A node that hears no control node.

use hoplo_base::limits;

use super::super::standing::{Effect, Event, Options, Standing, Why};
use super::{at, ms};

fn node(control_nodes: usize) -> Standing {
    Standing::new(Options::new(control_nodes), at(0))
}

fn ends(effects: &[Effect]) -> usize {
    effects.iter().filter(|it| matches!(it, Effect::EndWorkers { .. })).count()
}

/// Turns as it asks for them, with what a dial of each control node finds each half second.
fn pass(node: &mut Standing, from: u64, to: u64, finds: &[Event]) -> Vec<Effect> {
    let mut effects = Vec::new();
    for half in (from..=to).step_by(500) {
        finds.iter().for_each(|event| node.handle(at(half), event.clone(), &mut effects));
        node.handle(at(half), Event::Tick, &mut effects);
        node.check();
    }
    effects
}

#[test]
fn thirty_seconds_of_silence_end_the_workers_once() {
    let mut node = node(1);
    let silent = [Event::Silent { control_node: 0 }];
    assert_eq!(ends(&pass(&mut node, 0, 29_500, &silent)), 0);
    let effects = pass(&mut node, 30_000, 90_000, &silent);
    let why = Why::Silent { time: ms(30_000) };
    assert_eq!(effects, [Effect::EndWorkers { why }]);
    assert_eq!(node.next_deadline(), None);
}

#[test]
fn a_head_that_restarts_costs_no_worker_however_long_it_takes() {
    let mut node = node(1);
    let refused = [Event::Refused { control_node: 0 }];
    assert_eq!(ends(&pass(&mut node, 0, 600_000, &refused)), 0);
    let silent = [Event::Silent { control_node: 0 }];
    assert_eq!(ends(&pass(&mut node, 600_500, 640_000, &silent)), 1, "its machine is gone as well");
}

#[test]
fn one_control_node_that_is_silent_may_have_declared_it_dead_while_others_refuse() {
    let mut node = node(3);
    let finds = [
        Event::Refused { control_node: 0 },
        Event::Refused { control_node: 1 },
        Event::Silent { control_node: 2 },
    ];
    assert_eq!(ends(&pass(&mut node, 0, 40_000, &finds)), 1);
}

#[test]
fn patience_with_a_head_that_is_gone_may_be_bounded() {
    let options = Options { patience_refused: Some(ms(60_000)), ..Options::new(1) };
    let mut node = Standing::new(options, at(0));
    let refused = [Event::Refused { control_node: 0 }];
    assert_eq!(ends(&pass(&mut node, 0, 59_500, &refused)), 0);
    let why = Why::Refused { time: ms(60_000) };
    assert_eq!(pass(&mut node, 60_000, 61_000, &refused), [Effect::EndWorkers { why }]);
}

#[test]
fn who_is_heard_of_again_takes_work_under_its_number() {
    let mut node = node(1);
    pass(&mut node, 0, 40_000, &[Event::Silent { control_node: 0 }]);
    let mut effects = Vec::new();
    node.handle(at(41_000), Event::Heard, &mut effects);
    node.handle(at(41_100), Event::Heard, &mut effects);
    assert_eq!(effects, [Effect::HeadHeard, Effect::TakeWork]);
    assert_eq!(node.next_deadline(), Some(at(41_100) + limits::NODE_LATE));
}

/// A daemon that did not know that its head is gone let wait for it what it could have run itself, and said so to nobody.
#[test]
fn a_silent_head_is_told_once_and_so_is_that_it_speaks_again() {
    let mut node = node(1);
    let mut effects = pass(&mut node, 0, 500, &[Event::Heard]);
    effects.extend(pass(&mut node, 1000, 9000, &[Event::Refused { control_node: 0 }]));
    assert_eq!(effects, [Effect::HeadSilent { since: at(1000) }]);
    assert_eq!(pass(&mut node, 9500, 9500, &[Event::Heard]), [Effect::HeadHeard]);
    // One that only says nothing may be busy for a while.
    let quiet = 9500 + limits::HEAD_SILENT.as_millis() as u64;
    assert_eq!(pass(&mut node, 10_000, quiet - 500, &[]), []);
    assert_eq!(pass(&mut node, quiet, quiet + 5000, &[]), [Effect::HeadSilent { since: at(9500) }]);
}

/// Nothing was told of a second head that died before it was heard: the first one had been silent already.
#[test]
fn the_silence_of_another_head_is_told_as_well() {
    let mut node = node(1);
    let refused = [Event::Refused { control_node: 0 }];
    let silent = |since| Effect::HeadSilent { since: at(since) };
    assert_eq!(pass(&mut node, 500, 2000, &refused), [silent(500)]);
    assert_eq!(pass(&mut node, 2500, 2500, &[Event::HeadChanged]), []);
    assert_eq!(pass(&mut node, 3000, 4000, &refused), [silent(3000)]);
}

#[test]
fn who_was_declared_dead_ends_its_workers_and_joins_again() {
    let mut node = node(1);
    let mut effects = Vec::new();
    let why = "it was silent".to_string();
    node.handle(at(100), Event::Fenced { why: why.clone() }, &mut effects);
    node.handle(at(200), Event::Fenced { why: why.clone() }, &mut effects);
    node.handle(at(300), Event::Heard, &mut effects);
    let ends = Effect::EndWorkers { why: Why::Declared { why } };
    assert_eq!(effects, [ends, Effect::JoinAgain], "that is final");
    let mut ended = self::node(1);
    pass(&mut ended, 0, 40_000, &[Event::Silent { control_node: 0 }]);
    effects.clear();
    ended.handle(at(41_000), Event::Fenced { why: String::new() }, &mut effects);
    assert_eq!(effects, [Effect::JoinAgain], "its workers have ended already");
}

#[test]
fn a_node_that_was_stopped_does_not_take_that_for_silence() {
    let mut node = node(1);
    let mut effects = pass(&mut node, 0, 2000, &[Event::Heard]);
    node.handle(at(120_000), Event::Tick, &mut effects);
    node.check();
    assert_eq!(effects, []);
    let silent = [Event::Silent { control_node: 0 }];
    assert_eq!(ends(&pass(&mut node, 120_500, 149_000, &silent)), 0);
    assert_eq!(ends(&pass(&mut node, 149_500, 151_000, &silent)), 1);
}

#[test]
fn a_refusal_of_before_says_nothing_about_a_control_node_that_is_silent_now() {
    let refuses = |control_node| Event::Refused { control_node };
    let mut fell_silent = node(2);
    pass(&mut fell_silent, 0, 500, &[refuses(0), Event::Silent { control_node: 1 }]);
    let finds = [Event::Silent { control_node: 0 }, refuses(1)];
    assert_eq!(ends(&pass(&mut fell_silent, 1000, 40_000, &finds)), 1);

    let mut came_back = node(2);
    pass(&mut came_back, 0, 500, &[refuses(0)]);
    pass(&mut came_back, 1000, 1000, &[Event::Heard]);
    assert_eq!(ends(&pass(&mut came_back, 1500, 40_000, &[refuses(1)])), 1);
}
