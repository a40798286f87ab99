use std::time::Duration;

use hoplo_base::bundles::InGroup;
use hoplo_base::resources::{GPU, PARTS};
use hoplo_base::{ActorId, GroupId, Instant, JobId, NodeNumber, ProcessId, ResourceSet, TaskId};
use hoplo_wire::node::Shape;
use hoplo_wire::{Failure, FailureKind};
use proptest::prelude::*;

use crate::sched::bundle::GroupFailures;
use crate::sched::claim::Claimant;
use crate::sched::local::{Effect, Event, LocalScheduler};

const NODE: NodeNumber = NodeNumber::alone(1);

fn group(count: u64) -> GroupId {
    GroupId::new(NODE, count)
}

fn process(count: u32) -> ProcessId {
    ProcessId::new(NODE, count, count as u16)
}

fn set(cpus: f64, gpus: f64) -> ResourceSet {
    ResourceSet::from_units([("CPU", cpus), ("GPU", gpus)]).unwrap()
}

fn in_group(of: GroupId, index: Option<u32>, cpus: f64, gpus: f64) -> Shape {
    let resources = InGroup::of_task(of, index, set(cpus, gpus)).named();
    Shape::of(resources)
}

struct Node {
    scheduler: LocalScheduler,
    now: Instant,
    workers: u32,
}

impl Node {
    fn new(cpus: f64, gpus: f64) -> Self {
        let scheduler = LocalScheduler::new(NODE, set(cpus, gpus));
        Self { scheduler, now: Instant(1_000_000_000), workers: 100 }
    }

    fn hears(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.scheduler.handle(self.now, event, &mut effects);
        self.scheduler.check();
        effects
    }

    /// True if they were prepared.
    fn prepares(&mut self, of: GroupId, attempt: u32, bundles: &[(u32, ResourceSet)]) -> bool {
        let bundles = bundles.to_vec();
        let effects = self.hears(Event::BundlesAsked { group: of, attempt, bundles });
        let answer = effects.iter().find_map(|effect| match effect {
            Effect::AnswerBundles { group, attempt: at, refused } => {
                assert_eq!((*group, *at), (of, attempt));
                Some(refused.is_none())
            }
            _ => None,
        });
        answer.expect("it is answered")
    }

    fn has(&mut self, of: GroupId, bundles: &[(u32, ResourceSet)]) {
        assert!(self.prepares(of, 1, bundles));
        self.hears(Event::BundlesCommitted { group: of, attempt: 1 });
    }

    /// Workers with their GPUs, for what is granted now.
    fn wants(
        &mut self,
        by: ProcessId,
        key: u32,
        shape: Shape,
        wanted: u32,
    ) -> Vec<(ProcessId, Vec<u32>)> {
        let effects =
            self.hears(Event::Demanded { process: by, job: JobId(1), key, shape, wanted });
        self.assigns(effects)
    }

    fn assigns(&mut self, effects: Vec<Effect>) -> Vec<(ProcessId, Vec<u32>)> {
        let mut granted = Vec::new();
        for effect in effects {
            if let Effect::AcquireWorker { lease, gpus, .. } = effect {
                self.workers += 1;
                let worker = process(self.workers);
                self.hears(Event::WorkerAssigned { lease, worker });
                granted.push((worker, gpus));
            }
        }
        granted
    }

    fn ends(&mut self, of: GroupId) -> Vec<Effect> {
        let failure = |kind| Failure::new(kind, "gone");
        let failures = Box::new(GroupFailures {
            of_tasks: failure(FailureKind::TaskGroupRemoved),
            of_actors: failure(FailureKind::ActorGroupRemoved),
        });
        self.hears(Event::GroupEnded { group: of, failures })
    }

    fn why(&self, by: ProcessId, key: u32) -> String {
        let stuck = self.scheduler.explain(Claimant::Demand { process: by, key });
        stuck.expect("it waits").reason.to_string()
    }
}

#[test]
fn a_refused_group_leaves_nothing_reserved() {
    let mut node = Node::new(2.0, 1.0);
    assert!(!node.prepares(group(1), 1, &[(0, set(1.0, 1.0)), (1, set(2.0, 0.0))]));
    assert_eq!(node.scheduler.available(), set(2.0, 1.0));
    assert!(node.prepares(group(1), 2, &[(0, set(1.0, 1.0)), (1, set(1.0, 0.0))]));
    assert_eq!(node.scheduler.available(), set(0.0, 0.0));
    node.hears(Event::BundlesReleased { group: group(1), attempt: 1 });
    assert_eq!(
        node.scheduler.available(),
        set(0.0, 0.0),
        "an old attempt's release undid a new one"
    );
    node.hears(Event::BundlesReleased { group: group(1), attempt: 2 });
    assert_eq!(node.scheduler.available(), set(2.0, 1.0));
}

#[test]
fn nothing_runs_in_a_bundle_before_it_is_committed() {
    let mut node = Node::new(2.0, 0.0);
    assert!(node.prepares(group(1), 1, &[(0, set(1.0, 0.0))]));
    assert!(node.wants(process(1), 0, in_group(group(1), Some(0), 1.0, 0.0), 1).is_empty());
    let effects = node.hears(Event::BundlesCommitted { group: group(1), attempt: 1 });
    assert_eq!(node.assigns(effects).len(), 1);
    assert_eq!(node.scheduler.total_of_node(), set(2.0, 0.0));
    assert_eq!(node.scheduler.available_of_node(), set(1.0, 0.0));
}

#[test]
fn a_task_of_a_group_runs_in_its_bundle_and_takes_nothing_else() {
    let mut node = Node::new(4.0, 0.0);
    node.has(group(1), &[(0, set(1.0, 0.0)), (1, set(2.0, 0.0))]);
    let first = in_group(group(1), Some(0), 1.0, 0.0);
    assert_eq!(node.wants(process(1), 0, first, 3).len(), 1);
    assert!(node.why(process(1), 0).starts_with("CPU of bundle 0 of group:1: 1 of 1"));
    // Any bundle: only the second one has room.
    let any = in_group(group(1), None, 1.0, 0.0);
    assert_eq!(node.wants(process(2), 0, any, 5).len(), 2);
    // One CPU is the node's still.
    let plain = Shape::of(set(1.0, 0.0));
    assert_eq!(node.wants(process(3), 0, plain, 5).len(), 1);
}

#[test]
fn what_no_bundle_can_hold_is_infeasible_and_what_is_not_placed_waits() {
    let mut node = Node::new(4.0, 0.0);
    node.has(group(1), &[(0, set(1.0, 0.0)), (1, set(1.0, 0.0))]);
    node.wants(process(1), 0, in_group(group(1), None, 2.0, 0.0), 1);
    let stuck = node.scheduler.explain(Claimant::Demand { process: process(1), key: 0 }).unwrap();
    assert!(stuck.infeasible);
    assert_eq!(stuck.reason.to_string(), "needs CPU 2, bundle 0 of group:1 has 1");
    node.hears(Event::GroupWaits { group: group(2), reason: Some("it waits".into()) });
    node.wants(process(1), 1, in_group(group(2), None, 1.0, 0.0), 1);
    let stuck = node.scheduler.explain(Claimant::Demand { process: process(1), key: 1 }).unwrap();
    assert!(!stuck.infeasible);
    assert_eq!(stuck.reason.to_string(), "it waits");
}

#[test]
fn leases_that_are_idle_come_back_when_a_group_begins_to_wait_and_are_asked_for_once() {
    let mut node = Node::new(2.0, 0.0);
    let plain = Shape::of(set(1.0, 0.0));
    node.wants(process(1), 0, plain, 2);
    for (reason, recalled) in [("it waits", 2), ("it waits for less", 0)] {
        let waits = Event::GroupWaits { group: group(1), reason: Some(reason.into()) };
        let effects = node.hears(waits);
        let recalls = effects.iter().filter(|it| matches!(it, Effect::Recall { .. }));
        assert_eq!(recalls.count(), recalled, "{reason}");
    }
}

#[test]
fn gpus_of_a_bundle_are_given_to_its_tasks_alone() {
    let mut node = Node::new(4.0, 3.0);
    node.has(group(1), &[(0, set(0.0, 1.0)), (1, set(0.0, 1.0))]);
    let second = in_group(group(1), Some(1), 0.0, 1.0);
    assert_eq!(node.wants(process(1), 0, second.clone(), 2)[0].1, [1]);
    let any = in_group(group(1), None, 0.0, 1.0);
    assert_eq!(node.wants(process(2), 0, any, 2)[0].1, [0]);
    let plain = Shape::of(set(0.0, 1.0));
    let granted = node.wants(process(3), 0, plain, 2);
    assert_eq!(granted.len(), 1);
    assert_eq!(granted[0].1, [2]);
}

#[test]
fn two_halves_of_different_gpus_make_no_whole_one() {
    let mut node = Node::new(1.0, 2.0);
    node.has(group(1), &[(0, set(0.0, 0.5)), (1, set(0.0, 0.5))]);
    assert!(node.wants(process(1), 0, in_group(group(1), None, 0.0, 1.0), 1).is_empty());
    assert_eq!(node.why(process(1), 0), "needs GPU 1, bundle 0 of group:1 has 0.5");
    let parts = PARTS / 2;
    assert_eq!(set(0.0, 0.5).parts(GPU), parts);
}

#[test]
fn a_group_that_ends_ends_what_runs_in_it_and_fails_what_waits() {
    let mut node = Node::new(4.0, 0.0);
    node.has(group(1), &[(0, set(2.0, 0.0))]);
    let shape = in_group(group(1), Some(0), 1.0, 0.0);
    let granted = node.wants(process(1), 0, shape.clone(), 3);
    assert_eq!(granted.len(), 2);
    let actor = ActorId(TaskId { owner: process(1), seq: 1 });
    node.hears(Event::ActorWaits {
        actor,
        incarnation: 0,
        job: JobId(1),
        shape,
        held: ResourceSet::new(),
    });
    let effects = node.ends(group(1));
    let ended: Vec<_> =
        effects.iter().filter(|it| matches!(it, Effect::EndWorker { .. })).collect();
    assert_eq!(ended.len(), 2, "{effects:?}");
    assert!(
        effects.iter().any(|it| matches!(it, Effect::FailDemand { key: 0, .. })),
        "{effects:?}"
    );
    assert!(effects.iter().any(|it| matches!(it, Effect::FailActor { .. })), "{effects:?}");
    // Its resources are the node's again when what used them has gone.
    assert_eq!(node.scheduler.available_of_node(), set(2.0, 0.0));
    for (worker, _) in granted {
        node.hears(Event::ProcessGone { process: worker });
    }
    assert_eq!(node.scheduler.available(), set(4.0, 0.0));
    assert_eq!(node.scheduler.total(), &set(4.0, 0.0));
}

#[test]
fn a_task_that_waits_lends_the_cpu_of_its_bundle_within_it() {
    let mut node = Node::new(1.0, 0.0);
    node.has(group(1), &[(0, set(1.0, 0.0))]);
    let shape = in_group(group(1), Some(0), 1.0, 0.0);
    let worker = node.wants(process(1), 0, shape.clone(), 1)[0].0;
    assert!(node.wants(worker, 0, shape, 1).is_empty());
    let effects = node.hears(Event::Blocked { worker });
    assert_eq!(node.assigns(effects).len(), 1, "its child runs");
    node.hears(Event::Unblocked { worker });
}

#[test]
fn an_actor_keeps_its_place_in_the_bundle_when_it_holds_nothing_else() {
    let mut node = Node::new(1.0, 0.0);
    node.has(group(1), &[(0, set(1.0, 0.0))]);
    let actor = ActorId(TaskId { owner: process(1), seq: 1 });
    let shape = in_group(group(1), None, 1.0, 0.0);
    let held = InGroup::of_task(group(1), None, ResourceSet::new()).named();
    let effects =
        node.hears(Event::ActorWaits { actor, incarnation: 0, job: JobId(1), shape, held });
    let worker = node.assigns(effects)[0].0;
    node.hears(Event::ActorStarted { worker });
    let shape = in_group(group(1), Some(0), 1.0, 0.0);
    assert_eq!(node.wants(process(1), 0, shape, 1).len(), 1);
    let effects = node.ends(group(1));
    let ended = |it: &&Effect| matches!(it, Effect::EndWorker { .. });
    assert_eq!(effects.iter().filter(ended).count(), 2);
}

#[test]
fn who_asks_for_several_groups_is_never_served_and_harms_nobody() {
    let mut node = Node::new(2.0, 0.0);
    node.has(group(1), &[(0, set(1.0, 0.0))]);
    let mut shape = in_group(group(1), Some(0), 1.0, 0.0);
    shape.resources.add(&set(1.0, 0.0));
    assert!(node.wants(process(1), 0, shape, 1).is_empty());
    assert!(node.why(process(1), 0).contains("several placement groups"));
    // A name of the group's, without the mark.
    let cpu = hoplo_base::bundles::any_name("CPU", group(1));
    let mut resources = ResourceSet::new();
    resources.set_parts(&cpu, PARTS);
    let shape = Shape::of(resources);
    assert_eq!(node.wants(process(1), 1, shape, 1).len(), 1);
    node.ends(group(1));
}

#[derive(Clone, Debug)]
enum Step {
    Ask { group: u64, attempt: u32, bundles: Vec<(u32, u8, u8)> },
    Commit { group: u64, attempt: u32 },
    Release { group: u64, attempt: u32 },
    End { group: u64 },
    Demand { by: u32, group: u64, index: Option<u32>, cpus: u8, gpus: u8, wanted: u32 },
    Plain { by: u32, cpus: u8, wanted: u32 },
    Gone { at: usize },
    Later,
}

fn step() -> impl Strategy<Value = Step> {
    let group = 1..4u64;
    let attempt = 1..3u32;
    prop_oneof![
        (group.clone(), attempt.clone(), prop::collection::vec((0..3u32, 0..3u8, 0..3u8), 1..3))
            .prop_map(|(group, attempt, bundles)| Step::Ask { group, attempt, bundles }),
        (group.clone(), attempt.clone())
            .prop_map(|(group, attempt)| Step::Commit { group, attempt }),
        (group.clone(), attempt).prop_map(|(group, attempt)| Step::Release { group, attempt }),
        group.clone().prop_map(|group| Step::End { group }),
        (1..4u32, group, prop::option::of(0..3u32), 0..3u8, 0..3u8, 0..3u32).prop_map(
            |(by, group, index, cpus, gpus, wanted)| Step::Demand {
                by,
                group,
                index,
                cpus,
                gpus,
                wanted
            }
        ),
        (1..4u32, 0..3u8, 0..3u32).prop_map(|(by, cpus, wanted)| Step::Plain { by, cpus, wanted }),
        (0..10usize).prop_map(|at| Step::Gone { at }),
        Just(Step::Later),
    ]
}

proptest! {
    #[test]
    fn sums_are_never_above_what_the_node_has_and_all_comes_back(
        steps in prop::collection::vec(step(), 1..60)
    ) {
        let mut node = Node::new(4.0, 2.0);
        let mut workers = Vec::new();
        let half = |amount: u8| f64::from(amount) / 2.0;
        for step in steps {
            let effects = match step {
                Step::Ask { group: of, attempt, bundles } => {
                    let mut bundles: Vec<_> = bundles
                        .into_iter()
                        .map(|(index, cpus, gpus)| {
                            (index, set(half(cpus) + 0.5, if gpus == 1 { 0.5 } else { half(gpus) }))
                        })
                        .collect();
                    bundles.dedup_by_key(|(index, _)| *index);
                    let free = node.scheduler.available();
                    if !node.prepares(group(of), attempt, &bundles) {
                        prop_assert_eq!(node.scheduler.available(), free);
                    }
                    Vec::new()
                }
                Step::Commit { group: of, attempt } => {
                    node.hears(Event::BundlesCommitted { group: group(of), attempt })
                }
                Step::Release { group: of, attempt } => {
                    node.hears(Event::BundlesReleased { group: group(of), attempt })
                }
                Step::End { group: of } => node.ends(group(of)),
                Step::Demand { by, group: of, index, cpus, gpus, wanted } => {
                    let shape = in_group(group(of), index, half(cpus), half(gpus.min(2)));
                    let key = of as u32 * 8 + index.map_or(7, |index| index);
                    workers.extend(node.wants(process(by), key, shape, wanted));
                    Vec::new()
                }
                Step::Plain { by, cpus, wanted } => {
                    let shape = Shape::of(set(half(cpus), 0.0));
                    workers.extend(node.wants(process(by), 0, shape, wanted));
                    Vec::new()
                }
                Step::Gone { at } => match workers.is_empty() {
                    true => Vec::new(),
                    false => {
                        let (worker, _) = workers.remove(at % workers.len());
                        node.hears(Event::ProcessGone { process: worker })
                    }
                },
                Step::Later => {
                    node.now = node.now + Duration::from_secs(1);
                    node.hears(Event::Tick)
                }
            };
            let more = node.assigns(effects);
            workers.extend(more);
        }
        for of in 1..4 {
            node.ends(group(of));
        }
        for by in 1..4 {
            node.hears(Event::ProcessGone { process: process(by) });
        }
        for count in 101..=node.workers {
            node.hears(Event::ProcessGone { process: process(count) });
        }
        prop_assert_eq!(node.scheduler.available(), set(4.0, 2.0));
        prop_assert_eq!(node.scheduler.total(), &set(4.0, 2.0));
    }
}
