//! Placement groups, as processes meet them.

use hoplo_base::bundles::InGroup;
use hoplo_base::{GroupId, ProcessId, ResourceSet};
use hoplo_wire::control::Refusal;
use hoplo_wire::node::{
    BundleSpec, GroupSpec, GroupState, GroupStrategy, Inside, NoGroup, RuntimeEnv, Shape, ToClient,
    ToNode,
};
use hoplo_wire::{Failure, FailureKind};

use super::{Event, HELLO_PID, Role, Shell, hello};
use crate::control::{Entry, GroupEntry, Row};
use crate::node::{Answer, Effect, Question};

fn cpus(amount: f64) -> ResourceSet {
    ResourceSet::from_units([("CPU", amount)]).unwrap()
}

fn spec(amount: f64, detached: bool) -> Box<GroupSpec> {
    Box::new(GroupSpec {
        name: String::new(),
        namespace: String::new(),
        detached,
        strategy: GroupStrategy::Pack,
        bundles: vec![BundleSpec { resources: cpus(amount), ..BundleSpec::default() }],
    })
}

fn shape(group: GroupId) -> Shape {
    let resources = InGroup::of_task(group, None, cpus(1.0)).named();
    let env = RuntimeEnv { group: Some(Inside { group, capture: true }), ..RuntimeEnv::default() };
    Shape { resources, env, ..Shape::default() }
}

impl Shell {
    fn creates(&mut self, from: ProcessId, spec: Box<GroupSpec>) -> Result<GroupId, NoGroup> {
        self.says(from, ToNode::GroupCreate { request: 5, spec });
        if let Some(refused) = self.created(from) {
            return refused;
        }
        self.row_is_written(Ok(()));
        self.created(from).expect("it is answered")
    }

    fn created(&mut self, to: ProcessId) -> Option<Result<GroupId, NoGroup>> {
        let answer = self.told(to, |message| match message {
            ToClient::GroupCreated { request: 5, result } => Some(result.clone()),
            _ => None,
        })?;
        Some(answer.map(|(group, _)| group))
    }

    /// The store says what became of the first row of a group.
    fn row_is_written(&mut self, written: Result<(), Refusal>) -> GroupEntry {
        let asked = self.take(|effect| match effect {
            Effect::Ask { ask, question: Question::Put { value, .. } } => {
                Some((*ask, value.clone()))
            }
            _ => None,
        });
        let (ask, value) = asked.expect("it is written");
        self.hears(Event::Answered { ask, answer: Answer::Written(written) });
        GroupEntry::from_row(&Row { value, version: 1, index: 1, finished: false }).unwrap()
    }

    fn state(&mut self, to: ProcessId) -> Option<GroupState> {
        self.told(to, |message| match message {
            ToClient::GroupState { state, .. } => Some(state.clone()),
            _ => None,
        })
    }

    fn failed(&mut self, to: ProcessId) -> Option<Failure> {
        self.told(to, |message| match message {
            ToClient::LeaseFailed { failure, .. } => Some(failure.clone()),
            _ => None,
        })
    }
}

#[test]
fn a_task_of_a_group_gets_a_worker_that_knows_it_and_fails_when_the_group_is_gone() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    let group = shell.creates(driver, spec(2.0, false)).unwrap();
    shell.says(driver, ToNode::GroupWatch { request: 6, group });
    assert_eq!(shell.state(driver), Some(GroupState::Created));
    assert!(shell.node.scheduler.available_of_node().parts("CPU") == 0);

    shell.says(driver, ToNode::LeaseDemand { key: 1, shape: shape(group).into(), wanted: 1 });
    let forked = shell.take(|effect| match effect {
        Effect::Fork { process, env, .. } => Some((*process, env.group)),
        _ => None,
    });
    let (worker, inside) = forked.expect("it is forked");
    assert_eq!(inside, Some(Inside { group, capture: true }));
    shell.hears(Event::Forked { process: worker, pid: HELLO_PID });
    shell.says(worker, hello(Role::Worker));

    shell.says(driver, ToNode::GroupRemove { group });
    assert_eq!(shell.killed(), Some((worker, HELLO_PID)));
    shell.says(driver, ToNode::LeaseDemand { key: 1, shape: shape(group).into(), wanted: 1 });
    assert_eq!(shell.failed(driver).unwrap().kind, FailureKind::TaskGroupRemoved);
    shell.says(driver, ToNode::GroupWatch { request: 7, group });
    assert!(matches!(shell.state(driver), Some(GroupState::Removed { .. })));
}

#[test]
fn who_waits_in_vain_hears_why_and_the_group_is_placed_when_there_is_room() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    let worker = shell.worker(driver);
    let group = shell.creates(driver, spec(2.0, false)).unwrap();
    shell.says(driver, ToNode::GroupWatch { request: 6, group });
    shell.says(driver, ToNode::LeaseDemand { key: 2, shape: shape(group).into(), wanted: 1 });
    let told = shell.told(driver, |message| match message {
        ToClient::LeaseStuck { key: 2, reason: Some(reason), infeasible } => {
            Some((reason.clone(), *infeasible))
        }
        _ => None,
    });
    let says = "placement group:1 waits: bundle 0 needs CPU 2, nearest node has 1 free";
    assert_eq!(told, Some((says.to_string(), false)));
    assert_eq!(shell.state(driver), Some(GroupState::Waits { why: says.to_string() }));
    // The lease is asked back, and with it there is room.
    let recalled = shell.told(driver, |message| match message {
        ToClient::LeaseRecall { lease } => Some(*lease),
        _ => None,
    });
    let lease = recalled.expect("it is asked back");
    assert!(shell.node.scheduler.lease_on(worker).is_some());
    shell.says(driver, ToNode::LeaseReturn { lease });
    assert_eq!(shell.state(driver), Some(GroupState::Created));
}

#[test]
fn who_makes_a_group_hears_of_it_when_its_row_is_written() {
    for detached in [true, false] {
        let mut shell = Shell::new();
        let driver = shell.driver();
        shell.says(driver, ToNode::GroupCreate { request: 5, spec: spec(1.0, detached) });
        assert_eq!(
            shell.created(driver),
            None,
            "the head may die, and the next one knows rows only"
        );
        let entry = shell.row_is_written(Ok(()));
        assert_eq!(shell.created(driver), Some(Ok(entry.group)));
    }
}

#[test]
fn a_group_of_a_job_is_made_though_its_row_is_refused() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    shell.says(driver, ToNode::GroupCreate { request: 5, spec: spec(1.0, false) });
    let entry = shell.row_is_written(Err(Refusal::Disk("no space left on device".to_string())));
    assert_eq!(shell.created(driver), Some(Ok(entry.group)));
    assert_eq!(shell.node.scheduler.available_of_node().units("CPU"), 1.0);
}

/// Its creator heard that it was placed, and the next head knew nothing of it.
#[test]
fn a_detached_group_whose_row_was_not_written_was_lost_without_a_word() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    let named = || Box::new(GroupSpec { name: "kept".to_string(), ..*spec(1.0, true) });
    shell.says(driver, ToNode::GroupCreate { request: 5, spec: named() });
    let entry = shell.row_is_written(Err(Refusal::Disk("no space left on device".to_string())));
    match shell.created(driver) {
        Some(Err(NoGroup::NotWritten(why))) => assert!(why.contains("no space left"), "{why}"),
        other => panic!("{other:?}"),
    }
    let key = crate::control::rows::group_key(entry.group);
    let forgets = |effect: &Effect| matches!(effect, Effect::Forget { key: it } if *it == key);
    assert!(shell.effects.iter().any(forgets), "part of it may be there");
    assert_eq!(shell.node.scheduler.available_of_node().units("CPU"), 2.0);
    assert!(shell.creates(driver, named()).is_ok(), "the name is free");
}

#[test]
fn a_group_and_its_row_end_with_the_job() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    let group = shell.creates(driver, spec(1.0, false)).unwrap();
    let kept = shell.creates(driver, spec(1.0, true)).unwrap();
    let created = shell.effects.iter().rev().find_map(|effect| match effect {
        Effect::Save { key, value, .. } if *key == crate::control::rows::group_key(kept) => {
            Some(value.clone())
        }
        _ => None,
    });
    let row = Row { value: created.unwrap(), version: 1, index: 1, finished: false };
    let entry = GroupEntry::from_row(&row).unwrap();
    assert_eq!((entry.created, entry.placed.len()), (true, 1));
    shell.hears(Event::Closed { process: driver });
    shell.hears(Event::Ended { process: driver, status_follows: false });
    let forgotten = shell.take(|effect| match effect {
        Effect::Forget { key } => Some(key.clone()),
        _ => None,
    });
    assert_eq!(forgotten, Some(crate::control::rows::group_key(group)));
    assert_eq!(shell.node.scheduler.available_of_node(), {
        let mut left = cpus(1.0);
        left.set_parts("memory", shell.node.scheduler.total_of_node().parts("memory"));
        left
    });
}

#[test]
fn what_is_no_group_is_said_to_be_none() {
    let mut shell = Shell::new();
    let driver = shell.driver();
    let unknown = GroupId::new(shell.node.config().node, 99);
    shell.says(driver, ToNode::GroupRemove { group: unknown });
    shell.says(driver, ToNode::GroupUnwatch { request: 1, group: unknown });
    shell.says(driver, ToNode::GroupWatch { request: 6, group: unknown });
    assert!(matches!(shell.state(driver), Some(GroupState::Removed { .. })));
    shell.says(driver, ToNode::LeaseDemand { key: 1, shape: shape(unknown).into(), wanted: 1 });
    assert!(shell.failed(driver).unwrap().text().contains("never here"));
    let refused = shell.creates(driver, spec(0.0, false)).unwrap_err();
    assert!(
        matches!(&refused, NoGroup::Refused(why) if why.contains("needs nothing")),
        "{refused:?}"
    );
}
