use hoplo_wire::FailureKind;
use hoplo_wire::node::{PythonEnv, RuntimeEnv, Shape};

use super::*;
use crate::sched::local::Event;
use crate::sched::local::tests::{Node, actor, process, set, shape};
use hoplo_base::{JobId, ResourceSet};

const JOB: JobId = JobId(1);

fn python() -> PythonEnv {
    PythonEnv { spec: "{}".to_string(), what: "pip install a".to_string(), patience_s: 0 }
}

fn of_its_own(units: &[(&str, f64)]) -> Shape {
    let env = RuntimeEnv { python: Some(Box::new(python())), ..RuntimeEnv::default() };
    Shape { env, ..shape(units) }
}

fn demanded(by: u32, shape: Shape, wanted: u32) -> Event {
    Event::Demanded { process: process(by), job: JOB, key: 1, shape, wanted }
}

fn make() -> Effect {
    Effect::MakeEnvironment { python: python() }
}

fn granted(effects: &[Effect]) -> usize {
    let granted = |it: &&Effect| matches!(it, Effect::Grant { .. } | Effect::PlaceActor { .. });
    effects.iter().filter(granted).count()
}

fn made() -> Event {
    Event::EnvironmentMade { python: python() }
}

const CPU: &[(&str, f64)] = &[("CPU", 1.0)];

#[test]
fn what_waits_for_its_environment_takes_nothing_from_others() {
    let mut node = Node::new(CPU);
    let effects = node.handle(demanded(1, of_its_own(CPU), 5));
    assert!(effects.contains(&make()) && granted(&effects) == 0, "{effects:?}");
    let claimant = Claimant::Demand { process: process(1), key: 1 };
    let stuck = node.scheduler.explain(claimant).unwrap();
    assert_eq!(stuck.reason.to_string(), "its environment is being built (pip install a)");
    assert!(!stuck.infeasible);
    // One of the five stays here for the broker: there is room for one.
    assert_eq!(node.scheduler.reserved(claimant), 1);
    // Others run meanwhile.
    assert_eq!(granted(&node.handle(demanded(2, shape(CPU), 1))), 1);
    assert_eq!(node.scheduler.reserved(claimant), 0);
}

#[test]
fn what_waited_goes_on_when_its_environment_is_made() {
    let mut node = Node::new(&[("CPU", 3.0)]);
    node.handle(demanded(1, of_its_own(CPU), 2));
    let (shape, held) = (of_its_own(CPU), ResourceSet::new());
    let waits = Event::ActorWaits { actor: actor(1), incarnation: 0, job: JOB, shape, held };
    assert_eq!(node.handle(waits).iter().filter(|it| **it == make()).count(), 1);
    assert_eq!(granted(&node.handle(made())), 3);
    // Who comes later waits for nothing.
    assert_eq!(granted(&node.handle(Event::ProcessGone { process: process(1) })), 0);
    assert_eq!(granted(&node.handle(demanded(3, of_its_own(CPU), 1))), 0); // the workers are killed first
}

#[test]
fn what_waited_fails_when_its_environment_cannot_be_made_and_the_next_one_has_it_tried_again() {
    let mut node = Node::new(CPU);
    node.handle(demanded(1, of_its_own(CPU), 2));
    let (shape, held) = (of_its_own(&[]), set(&[]));
    let waits = Event::ActorWaits { actor: actor(1), incarnation: 3, job: JOB, shape, held };
    node.handle(waits);
    let failure = Failure::new(FailureKind::RuntimeEnv, "no such package");
    let failed = Event::EnvironmentFailed { python: python(), failure: failure.clone() };
    let mut effects = node.handle(failed);
    effects.retain(|it| matches!(it, Effect::FailDemand { .. } | Effect::FailActor { .. }));
    assert_eq!(
        effects,
        [
            Effect::FailActor { actor: actor(1), incarnation: 3, failure: failure.clone() },
            Effect::FailDemand { process: process(1), key: 1, failure },
        ]
    );
    assert_eq!(node.scheduler.next_deadline(), None);
    assert!(node.handle(demanded(1, of_its_own(CPU), 2)).contains(&make()));
}

#[test]
fn one_that_is_gone_is_made_again() {
    let mut node = Node::new(CPU);
    node.handle(demanded(1, of_its_own(CPU), 1));
    assert_eq!(granted(&node.handle(made())), 1);
    node.handle(Event::EnvironmentGone { python: python() });
    assert!(!node.handle(demanded(2, of_its_own(CPU), 1)).contains(&make())); // there is no room
    assert!(node.handle(Event::ProcessGone { process: process(101) }).contains(&make()));
}

#[test]
fn nothing_is_made_where_there_is_never_room() {
    let mut node = Node::new(CPU);
    let effects = node.handle(demanded(1, of_its_own(&[("CPU", 2.0)]), 1));
    assert!(!effects.contains(&make()), "{effects:?}");
}
