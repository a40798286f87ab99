use std::time::Duration;

use hoplo_base::JobId;
use hoplo_base::limits::{LEASE_KEEP_PERIOD, LINE_TOLD_MAX};
use hoplo_wire::{Failure, FailureKind};

use crate::sched::local::tests::{Node, actor, grants, lease, process, recalls, set, shape};
use crate::sched::local::{Effect, Event};

const MANY: u64 = 4_000;
/// More than the shapes of these tests take, and far less than there are actors.
const LOOKS_MAX: u64 = 40;

fn placed(effects: &[Effect]) -> Vec<u64> {
    let placed = effects.iter().filter_map(|effect| match effect {
        Effect::PlaceActor { actor, .. } => Some(actor.0.seq),
        _ => None,
    });
    placed.collect()
}

/// Actors that were told why they wait, or that they wait no more.
fn told(effects: &[Effect]) -> Vec<(u64, bool)> {
    let told = effects.iter().filter_map(|effect| match effect {
        Effect::TellActorStuck { actor, stuck } => Some((actor.0.seq, stuck.is_some())),
        _ => None,
    });
    told.collect()
}

/// A node of one CPU that an actor has, and so many more that wait for it.
fn full(waiting: u64) -> Node {
    let mut node = Node::new(&[("CPU", 1.0)]);
    for seq in 0..=waiting {
        node.quietly(|node| node.place(seq, &[("CPU", 1.0)], &[("CPU", 1.0)]));
    }
    node.scheduler.check();
    node
}

/// Until all were told that are to be told by now: so many.
fn tell_all(node: &mut Node) -> usize {
    let mut heard = 0;
    while node.scheduler.next_deadline().is_some_and(|at| at <= node.now) {
        heard += told(&node.quietly(|node| node.handle(Event::Tick))).len();
    }
    heard
}

/// How often `act` looks at claims.
fn looks(node: &mut Node, act: impl FnOnce(&mut Node)) -> u64 {
    let before = node.scheduler.looks.get();
    node.quietly(act);
    node.scheduler.check();
    node.scheduler.looks.get() - before
}

#[test]
fn thousands_of_actors_that_waited_were_all_looked_at_when_a_task_came() {
    let mut node = full(MANY);
    node.pass(10_000);
    let looks = looks(&mut node, |node| {
        assert_eq!(grants(&node.demand(2, 0, &[], 1)).len(), 1);
    });
    assert!(looks <= LOOKS_MAX, "{looks} looks");
}

#[test]
fn each_handle_that_was_dropped_had_all_other_waiting_actors_looked_at() {
    let mut node = full(MANY);
    node.quietly(|node| node.pass(1_000));
    tell_all(&mut node);
    let looks = looks(&mut node, |node| {
        for seq in (1..=MANY).rev() {
            assert_eq!(node.handle(Event::ActorGaveUp { actor: actor(seq) }), []);
        }
    });
    assert!(looks <= MANY * LOOKS_MAX, "{looks} looks");
    assert_eq!(node.scheduler.waiting().count(), 0);
}

#[test]
fn infeasible_actors_were_looked_at_at_each_event() {
    let mut node = Node::new(&[("CPU", 1.0)]);
    for seq in 1..=MANY {
        let effects = node.quietly(|node| node.place(seq, &[("CPU", 64.0)], &[]));
        assert_eq!(told(&effects), [(seq, true)]);
    }
    assert_eq!(node.scheduler.next_deadline(), None);
    let looks = looks(&mut node, |node| {
        assert_eq!(grants(&node.demand(2, 0, &[("CPU", 1.0)], 1)).len(), 1);
    });
    assert!(looks <= LOOKS_MAX, "{looks} looks");
}

#[test]
fn actors_that_want_the_same_are_placed_in_the_order_in_which_they_came() {
    let mut node = full(3);
    node.pass(1_000);
    // The second in the line gives up: the order of the others stays.
    node.handle(Event::ActorGaveUp { actor: actor(2) });
    let effects = node.handle(Event::ProcessGone { process: process(101) });
    assert_eq!((placed(&effects), told(&effects)), (vec![1], vec![(1, false)]));
    let effects = node.handle(Event::ProcessGone { process: process(102) });
    assert_eq!((placed(&effects), told(&effects)), (vec![3], vec![(3, false)]));
}

#[test]
fn an_actor_whose_worker_could_not_start_was_looked_for_in_its_line() {
    let mut node = Node::new(&[("CPU", 1.0)]);
    let incarnation = 0;
    let waits = |seq| Event::ActorWaits {
        actor: actor(seq),
        incarnation,
        job: JobId(1),
        shape: shape(&[("CPU", 1.0)]),
        held: set(&[]),
    };
    node.raw(waits(1));
    node.raw(waits(2));
    let failure = Failure::new(FailureKind::RuntimeEnv, "no such directory");
    let effects = node.raw(Event::WorkerFailed { lease: lease(1), failure: failure.clone() });
    assert!(matches!(
        &effects[..],
        [failed, Effect::AcquireWorker { .. }]
            if *failed == Effect::FailActor { actor: actor(1), incarnation, failure }
    ));
    // The same of one that waits again while its worker is on its way.
    let effects = node.raw(waits(2));
    assert!(matches!(&effects[..], [Effect::CancelWorker { .. }, Effect::AcquireWorker { .. }]));
}

#[test]
fn all_of_a_line_that_fit_are_placed_at_once() {
    let mut node = Node::new(&[("CPU", 3.0)]);
    node.place(0, &[("CPU", 3.0)], &[("CPU", 3.0)]);
    for seq in 1..=5 {
        node.place(seq, &[("CPU", 1.0)], &[("CPU", 1.0)]);
    }
    node.pass(60);
    let effects = node.handle(Event::ProcessGone { process: process(101) });
    assert_eq!(placed(&effects), [1, 2, 3]);
    // Young ones, too.
    let mut node = full(0);
    node.place(1, &[("CPU", 0.5)], &[("CPU", 0.5)]);
    node.place(2, &[("CPU", 0.5)], &[("CPU", 0.5)]);
    let effects = node.handle(Event::ProcessGone { process: process(101) });
    assert_eq!(placed(&effects), [1, 2]);
}

#[test]
fn a_line_recalls_a_lease_for_each_of_its_members() {
    let mut node = Node::new(&[("CPU", 2.0)]);
    assert_eq!(grants(&node.demand(1, 0, &[("CPU", 1.0)], 5)), [(1, 1), (1, 2)]);
    assert_eq!(recalls(&node.place(1, &[("CPU", 1.0)], &[])), [(1, 1)]);
    assert_eq!(recalls(&node.place(2, &[("CPU", 1.0)], &[])), [(1, 2)]);
    assert_eq!(recalls(&node.place(3, &[("CPU", 1.0)], &[])), []);
}

#[test]
fn the_one_behind_an_elder_becomes_an_elder_by_time_alone() {
    let mut node = Node::new(&[("CPU", 2.0)]);
    node.demand(1, 0, &[("CPU", 1.0)], 2);
    node.place(1, &[("CPU", 2.0)], &[("CPU", 2.0)]);
    node.place(2, &[("CPU", 2.0)], &[("CPU", 2.0)]);
    node.handle(Event::ActorGaveUp { actor: actor(1) });
    node.pass(50);
    // One CPU comes back, and is kept for the one that needs two.
    node.give_back(1, 1);
    assert_eq!(grants(&node.demand(2, 0, &[("CPU", 1.0)], 1)), []);
    node.now = node.now + LEASE_KEEP_PERIOD;
    assert_eq!(grants(&node.handle(Event::Tick)).len(), 1);
}

#[test]
fn what_was_said_to_a_line_changed_and_thousands_were_told_at_once() {
    let mut node = full(MANY);
    let count = |effects: &[Effect]| told(effects).len();
    let mut heard = count(&node.quietly(|node| node.pass(500)));
    assert_eq!(heard, LINE_TOLD_MAX);
    heard += tell_all(&mut node);
    assert_eq!(heard, MANY as usize, "each hears once why it waits");
    // Another reason, but too soon; then the next ones hear of it.
    node.quietly(|node| node.handle(Event::Blocked { worker: process(101) }));
    assert_eq!(count(&node.quietly(|node| node.pass(400))), 0);
    assert!(count(&node.quietly(|node| node.pass(100))) <= LINE_TOLD_MAX);
}

#[test]
fn one_that_came_later_is_told_in_its_own_time() {
    let mut node = full(1);
    assert_eq!(told(&node.pass(500)), [(1, true)]);
    assert_eq!(told(&node.place(2, &[("CPU", 1.0)], &[])), []);
    let due = node.now + Duration::from_millis(500);
    node.now = node.scheduler.next_deadline().expect("it is to be told");
    assert!(node.now <= due);
    while node.now < due {
        assert_eq!(told(&node.handle(Event::Tick)), []);
        node.now = node.scheduler.next_deadline().expect("it is to be told");
    }
    assert_eq!(told(&node.handle(Event::Tick)), [(2, true)]);
}
