use std::time::Duration;

use super::*;
use hoplo_base::TaskId;
use hoplo_wire::{FailureKind, Reason};

const JOB: JobId = JobId(1);
const NODE: NodeNumber = NodeNumber::alone(1);

pub(in crate::sched) fn lease(count: u64) -> LeaseId {
    LeaseId::new(NODE, count)
}

pub(in crate::sched) fn process(count: u32) -> ProcessId {
    ProcessId::new(NODE, count, count as u16)
}

pub(in crate::sched) fn actor(seq: u64) -> ActorId {
    ActorId(TaskId { owner: process(1), seq })
}

pub(in crate::sched) fn set(units: &[(&str, f64)]) -> ResourceSet {
    ResourceSet::from_units(units.iter().copied()).unwrap()
}

pub(in crate::sched) fn shape(units: &[(&str, f64)]) -> Shape {
    Shape::of(set(units))
}

/// A scheduler whose workers start at once: the `n`-th worker is `process(100 + n)`.
pub(in crate::sched) struct Node {
    pub(in crate::sched) scheduler: LocalScheduler,
    pub(in crate::sched) now: Instant,
    workers: u32,
    idle: Vec<ProcessId>,
    quiet: bool,
}

impl Node {
    pub(in crate::sched) fn new(units: &[(&str, f64)]) -> Self {
        let scheduler = LocalScheduler::new(NODE, set(units));
        Self { scheduler, now: Instant::ZERO, workers: 0, idle: Vec::new(), quiet: false }
    }

    pub(in crate::sched) fn raw(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.scheduler.handle(self.now, event, &mut effects);
        if !self.quiet {
            self.scheduler.check();
        }
        effects
    }

    /// Without asserting the invariants after each event: with thousands of claims that takes long.
    pub(in crate::sched) fn quietly<R>(&mut self, act: impl FnOnce(&mut Self) -> R) -> R {
        self.quiet = true;
        let result = act(self);
        self.quiet = false;
        result
    }

    /// Everything that the processes see of `event`, workers being there at once.
    pub(in crate::sched) fn handle(&mut self, event: Event) -> Vec<Effect> {
        let mut seen = Vec::new();
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for effect in self.raw(event) {
                match effect {
                    Effect::AcquireWorker { lease, .. } => {
                        let worker = self.idle.pop().unwrap_or_else(|| {
                            self.workers += 1;
                            process(100 + self.workers)
                        });
                        events.insert(0, Event::WorkerAssigned { lease, worker });
                    }
                    Effect::ReleaseWorker { worker } => self.idle.push(worker),
                    other => seen.push(other),
                }
            }
        }
        seen
    }

    pub(in crate::sched) fn demand(
        &mut self,
        count: u32,
        key: u32,
        units: &[(&str, f64)],
        wanted: u32,
    ) -> Vec<Effect> {
        let (process, shape) = (process(count), shape(units));
        self.handle(Event::Demanded { process, job: JOB, key, shape, wanted })
    }

    pub(in crate::sched) fn place(
        &mut self,
        seq: u64,
        units: &[(&str, f64)],
        held: &[(&str, f64)],
    ) -> Vec<Effect> {
        let (shape, held) = (shape(units), set(held));
        self.handle(Event::ActorWaits { actor: actor(seq), incarnation: 0, job: JOB, shape, held })
    }

    pub(in crate::sched) fn pass(&mut self, millis: u64) -> Vec<Effect> {
        self.now = self.now + Duration::from_millis(millis);
        self.handle(Event::Tick)
    }

    pub(in crate::sched) fn give_back(&mut self, count: u32, lease: u64) -> Vec<Effect> {
        self.handle(Event::Returned { process: process(count), lease: self::lease(lease) })
    }
}

pub(in crate::sched) fn grants(effects: &[Effect]) -> Vec<(u32, u64)> {
    let grant = |effect: &Effect| match effect {
        Effect::Grant { process, lease, .. } => Some((process.count(), lease.count())),
        _ => None,
    };
    effects.iter().filter_map(grant).collect()
}

pub(in crate::sched) fn recalls(effects: &[Effect]) -> Vec<(u32, u64)> {
    let recall = |effect: &Effect| match effect {
        Effect::Recall { process, lease } => Some((process.count(), lease.count())),
        _ => None,
    };
    effects.iter().filter_map(recall).collect()
}

#[test]
fn an_infeasible_shape_is_told_once_with_what_the_node_lacks() {
    let mut node = Node::new(&[("CPU", 2.0)]);
    let stuck = Stuck { reason: "needs GPU 1, node has 0".into(), infeasible: true };
    let told = Effect::TellStuck { process: process(1), key: 0, stuck: Some(stuck.clone()) };
    assert_eq!(node.demand(1, 0, &[("GPU", 1.0)], 3), [told]);
    assert_eq!(node.demand(1, 0, &[("GPU", 1.0)], 4), []);
    assert_eq!(node.scheduler.next_deadline(), None);
    let claimant = Claimant::Demand { process: process(1), key: 0 };
    assert_eq!(node.scheduler.explain(claimant), Some(stuck));
    let gone = Effect::TellStuck { process: process(1), key: 0, stuck: None };
    assert_eq!(node.demand(1, 0, &[("GPU", 1.0)], 0), [gone]);
    assert_eq!(node.scheduler.explain(claimant), None);
}

#[test]
fn a_huge_amount_is_infeasible_and_does_not_overflow() {
    let mut node = Node::new(&[("CPU", 2.0)]);
    let mut resources = ResourceSet::new();
    resources.set_parts("CPU", u64::MAX);
    let shape = Shape::of(resources);
    let event = Event::Demanded { process: process(1), job: JOB, key: 0, shape, wanted: u32::MAX };
    assert!(matches!(&node.handle(event)[..], [Effect::TellStuck { .. }]));
}

#[test]
fn a_feasible_shape_that_waits_is_told_who_has_it_and_when_it_goes_on() {
    let mut node = Node::new(&[("CPU", 2.0)]);
    assert_eq!(grants(&node.demand(1, 0, &[("CPU", 1.0)], 5)), [(1, 1), (1, 2)]);
    assert_eq!(node.demand(2, 0, &[("CPU", 2.0)], 1), []);
    let effects = node.pass(500);
    let reason = Reason::from("CPU: 2 of 2 in use by tasks of ").and(process(1)).and(" (2)");
    assert!(effects.contains(&Effect::TellStuck {
        process: process(2),
        key: 0,
        stuck: Some(Stuck { reason, infeasible: false }),
    }));
    assert_eq!(recalls(&effects), [(1, 1), (1, 2)]);
    // What comes back is kept for the one that lacks it.
    assert_eq!(grants(&node.give_back(1, 1)), []);
    let effects = node.give_back(1, 2);
    assert_eq!(grants(&effects), [(2, 3)]);
    assert!(effects.contains(&Effect::TellStuck { process: process(2), key: 0, stuck: None }));
}

#[test]
fn one_that_has_leases_is_told_too_what_it_lacks_but_not_at_every_change() {
    let mut node = Node::new(&[("CPU", 4.0), ("memory", 2.0)]);
    let shape: &[(&str, f64)] = &[("CPU", 1.0), ("memory", 1.0)];
    assert_eq!(grants(&node.demand(1, 0, shape, 3)).len(), 2);
    let reason = |effects: &[Effect]| match effects {
        [Effect::TellStuck { stuck: Some(stuck), .. }] => stuck.reason.to_string(),
        other => panic!("{other:?}"),
    };
    let told = reason(&node.pass(500));
    assert_eq!(told, "memory: 2 B of 2 B in use by tasks of process:1 (2 B)");
    // Another reason, but too soon.
    node.handle(Event::Returned { process: process(1), lease: lease(1) });
    assert_eq!(node.scheduler.next_deadline(), None);
}

#[test]
fn processes_take_turns_and_nobody_is_robbed_for_one_who_has_as_much() {
    let mut node = Node::new(&[("CPU", 2.0)]);
    assert_eq!(grants(&node.demand(1, 0, &[("CPU", 1.0)], 5)), [(1, 1), (1, 2)]);
    assert_eq!(node.demand(2, 0, &[("CPU", 1.0)], 5), []);
    assert_eq!(recalls(&node.pass(49)), []);
    assert_eq!(recalls(&node.pass(1)), [(1, 1)]);
    assert_eq!(grants(&node.give_back(1, 1)), [(2, 3)]);
    // One each: both want more, nobody gets it.
    assert_eq!(node.pass(200), []);
    // A third one takes from the older lease.
    assert_eq!(recalls(&node.demand(3, 0, &[("CPU", 1.0)], 1)), [(1, 2)]);
    assert_eq!(recalls(&node.pass(50)), []);
    let effects = node.give_back(1, 2);
    assert_eq!(grants(&effects), [(3, 4)]);
    // Now the first has nothing, and takes its turn.
    assert_eq!(recalls(&effects), [(2, 3)]);
}

#[test]
fn a_placement_recalls_at_once_and_keeps_only_what_it_holds() {
    let mut node = Node::new(&[("CPU", 1.0)]);
    assert_eq!(grants(&node.demand(1, 0, &[("CPU", 1.0)], 2)), [(1, 1)]);
    assert_eq!(recalls(&node.place(7, &[("CPU", 1.0)], &[])), [(1, 1)]);
    let effects = node.give_back(1, 1);
    let worker = process(101);
    let gpus = vec![];
    let placed = Effect::PlaceActor { actor: actor(7), incarnation: 0, worker, gpus };
    assert_eq!(effects, [placed]);
    let effects = node.handle(Event::ActorStarted { worker });
    assert_eq!(grants(&effects), [(1, 3)]);
    assert_eq!(node.scheduler.lease_on(worker).unwrap().resources, set(&[]));
}

#[test]
fn an_actor_that_gives_up_waits_no_more() {
    let mut node = Node::new(&[("CPU", 1.0)]);
    node.demand(1, 0, &[("CPU", 1.0)], 1);
    node.place(7, &[("CPU", 1.0)], &[]);
    node.handle(Event::ActorGaveUp { actor: actor(7) });
    assert_eq!(node.give_back(1, 1), []);
    assert_eq!(node.scheduler.available(), set(&[("CPU", 1.0)]));
}

#[test]
fn a_blocked_worker_lends_its_cpu_and_takes_it_back() {
    let mut node = Node::new(&[("CPU", 1.0), ("memory", 8.0)]);
    node.demand(1, 0, &[("CPU", 1.0), ("memory", 8.0)], 1);
    let worker = process(101);
    assert_eq!(
        node.handle(Event::Blocked { worker }),
        [Effect::TellBlocked { holder: process(1), worker }]
    );
    assert_eq!(node.handle(Event::Blocked { worker }), []);
    assert_eq!(node.scheduler.available(), set(&[("CPU", 1.0)]));
    // Its own child runs meanwhile.
    assert_eq!(grants(&node.demand(101, 0, &[("CPU", 1.0)], 1)), [(101, 2)]);
    node.handle(Event::Unblocked { worker });
    assert_eq!(node.scheduler.available(), set(&[]));
    assert_eq!(grants(&node.demand(1, 1, &[("CPU", 1.0)], 1)), []);
    assert_eq!(grants(&node.give_back(101, 2)), []);
    assert_eq!(grants(&node.give_back(1, 1)), [(1, 3)]);
}

/// Two workers on their way out had half a GPU each, and waited for what needed a whole one.
#[test]
fn what_waits_to_leave_kept_the_gpu_that_it_waited_for() {
    for retires_first in [true, false] {
        let mut node = Node::new(&[("CPU", 2.0), ("GPU", 1.0)]);
        node.demand(1, 0, &[("CPU", 1.0), ("GPU", 0.5)], 2);
        assert_eq!(grants(&node.demand(1, 1, &[("GPU", 1.0)], 1)), []);
        for worker in [process(101), process(102)] {
            let blocked = Event::Blocked { worker };
            let retires = Event::Retires { worker };
            let (first, then) = match retires_first {
                true => (retires, blocked),
                false => (blocked, retires),
            };
            assert_eq!(grants(&node.handle(first)), [], "it may be gone at once");
            let granted = grants(&node.handle(then));
            let all = if worker == process(102) { vec![(1, 3)] } else { vec![] };
            assert_eq!(granted, all);
        }
        // Their leases end with them.
        assert!(node.scheduler.lease_on(process(101)).is_some());
        node.handle(Event::ProcessGone { process: process(101) });
        assert!(node.scheduler.lease_on(process(101)).is_none());
    }
}

#[test]
fn an_owner_that_dies_frees_what_waits_and_its_workers_are_killed() {
    let mut node = Node::new(&[("CPU", 2.0)]);
    node.demand(1, 0, &[("CPU", 1.0)], 1);
    let shape = shape(&[("CPU", 1.0)]);
    let event = Event::Demanded { process: process(1), job: JOB, key: 1, shape, wanted: 4 };
    let asked = Effect::WantIdle { process: process(1), key: 1 };
    assert!(matches!(
        &node.raw(event)[..],
        [Effect::AcquireWorker { lease: it, .. }, other] if *it == lease(2) && *other == asked
    ));
    assert_eq!(
        node.raw(Event::ProcessGone { process: process(1) }),
        [
            Effect::CancelWorker { lease: lease(2) },
            Effect::KillWorker { worker: process(101), owner: process(1) }
        ]
    );
    assert_eq!(node.scheduler.available(), set(&[("CPU", 1.0)]));
    node.raw(Event::ProcessGone { process: process(101) });
    assert_eq!(node.scheduler.available(), set(&[("CPU", 2.0)]));
    // A worker that comes too late is given back, a return that comes too late is nothing.
    let late = Event::WorkerAssigned { lease: lease(2), worker: process(102) };
    assert_eq!(node.raw(late), [Effect::ReleaseWorker { worker: process(102) }]);
    assert_eq!(node.give_back(1, 1), []);
}

#[test]
fn somebody_elses_lease_cannot_be_returned() {
    let mut node = Node::new(&[("CPU", 1.0)]);
    node.demand(1, 0, &[("CPU", 1.0)], 1);
    assert_eq!(node.give_back(2, 1), []);
    assert_eq!(node.scheduler.available(), set(&[]));
}

#[test]
fn a_demand_that_falls_cancels_what_has_no_worker_yet() {
    let mut node = Node::new(&[("CPU", 2.0)]);
    let demanded = |wanted| Event::Demanded {
        process: process(1),
        job: JOB,
        key: 0,
        shape: shape(&[("CPU", 1.0)]),
        wanted,
    };
    assert_eq!(node.raw(demanded(2)).len(), 2);
    assert_eq!(node.raw(demanded(1)), [Effect::CancelWorker { lease: lease(2) }]);
    assert_eq!(node.raw(demanded(0)), [Effect::CancelWorker { lease: lease(1) }]);
    assert_eq!(node.scheduler.available(), set(&[("CPU", 2.0)]));
}

#[test]
fn when_no_worker_can_start_the_demand_is_dropped_and_told() {
    let mut node = Node::new(&[("CPU", 2.0)]);
    let shape = shape(&[("CPU", 1.0)]);
    node.raw(Event::Demanded { process: process(1), job: JOB, key: 0, shape, wanted: 5 });
    let failure = Failure::new(FailureKind::RuntimeEnv, "no such directory");
    let failed = Event::WorkerFailed { lease: lease(1), failure: failure.clone() };
    assert_eq!(
        node.raw(failed),
        [
            Effect::CancelWorker { lease: lease(2) },
            Effect::FailDemand { process: process(1), key: 0, failure: failure.clone() }
        ]
    );
    assert_eq!(node.raw(Event::WorkerFailed { lease: lease(2), failure }), []);
    assert_eq!(node.scheduler.available(), set(&[("CPU", 2.0)]));
}

#[test]
fn gpu_ids_are_given_and_come_back() {
    let mut node = Node::new(&[("CPU", 4.0), ("GPU", 2.0)]);
    let gpus = |effects: Vec<Effect>| match &effects[..] {
        [Effect::Grant { gpus, .. }] => gpus.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(gpus(node.demand(1, 0, &[("GPU", 0.5)], 1)), [0]);
    assert_eq!(gpus(node.demand(1, 0, &[("GPU", 0.5)], 1)), [0]);
    assert_eq!(gpus(node.demand(1, 1, &[("GPU", 1.0)], 1)), [1]);
    assert_eq!(grants(&node.demand(1, 1, &[("GPU", 1.0)], 1)), []);
    node.give_back(1, 1);
    assert_eq!(node.pass(0), []); // Half of GPU 0 is free: not a whole one.
    assert_eq!(gpus(node.give_back(1, 2)), [0]);
}

#[test]
fn a_wide_shape_is_not_starved_but_lets_children_through_every_other_second() {
    let mut node = Node::new(&[("CPU", 2.0)]);
    node.demand(1, 0, &[("CPU", 1.0)], 1);
    node.demand(2, 0, &[("CPU", 2.0)], 1);
    node.pass(50);
    // The free CPU is kept for the wide one.
    assert_eq!(grants(&node.demand(101, 0, &[("CPU", 1.0)], 1)), []);
    let deadline = node.scheduler.next_deadline().expect("it waits for the other second");
    assert!(deadline <= Instant::ZERO + Duration::from_secs(1));
    node.now = Instant::ZERO + Duration::from_secs(1);
    assert_eq!(grants(&node.handle(Event::Tick)), [(101, 2)]);
}

#[test]
fn shapes_that_need_nothing_are_bounded_all_the_same() {
    let mut node = Node::new(&[("CPU", 1.0)]);
    let effects = node.demand(1, 0, &[], u32::MAX);
    assert_eq!(grants(&effects).len(), LEASES_FREE_MAX);
}

/// 64 of them waited for others that need nothing, either.
#[test]
fn who_waits_and_needs_nothing_kept_its_place_from_those_that_it_waits_for() {
    let mut node = Node::new(&[("CPU", 1.0)]);
    node.demand(1, 0, &[], LEASES_FREE_MAX as u32);
    assert_eq!(grants(&node.demand(2, 0, &[], 2)), []);
    assert_eq!(grants(&node.handle(Event::Blocked { worker: process(101) })).len(), 1);
    // It goes on: there is one more than the bound, and no other one comes before two have ended.
    assert_eq!(grants(&node.handle(Event::Unblocked { worker: process(101) })), []);
    assert_eq!(grants(&node.give_back(1, 1)), []);
    assert_eq!(grants(&node.give_back(1, 2)).len(), 1);
}

/// A node had 64 of them at most, and with so many no task that needs nothing ran.
#[test]
fn actors_that_need_nothing_are_as_many_as_were_asked_for() {
    let mut node = Node::new(&[("CPU", 1.0)]);
    for seq in 1..=3 * LEASES_FREE_MAX as u64 {
        let effects = node.place(seq, &[], &[]);
        let placed = |effect: &Effect| matches!(effect, Effect::PlaceActor { .. });
        assert!(effects.iter().any(placed), "{seq}: {effects:?}");
    }
    assert_eq!(grants(&node.demand(1, 0, &[], 1)).len(), 1);
}

#[test]
fn hundreds_that_wait_for_one_another_were_explained_anew_at_every_event() {
    let mut node = Node::new(&[("CPU", 1.0)]);
    for number in 1..=200 {
        node.demand(number, 0, &[("CPU", 1.0)], 1);
    }
    let reasons = |effects: &[Effect]| {
        effects.iter().filter(|e| matches!(e, Effect::TellStuck { stuck: Some(_), .. })).count()
    };
    assert_eq!(reasons(&node.pass(500)), 199);
    // Whoever has the CPU lends it: for all who wait the reason is another, but they heard one just now.
    let holder = node.scheduler.leases().next().unwrap().1.worker.unwrap();
    let effects = node.handle(Event::Blocked { worker: holder });
    assert_eq!((grants(&effects).len(), reasons(&effects)), (1, 0));
    assert_eq!(reasons(&node.pass(499)), 0);
    assert_eq!(reasons(&node.pass(1)), 198);
    // And as nothing changes, nobody looks again.
    assert_eq!(reasons(&node.pass(500)), 0);
}

#[test]
fn one_that_got_something_just_now_was_told_at_every_event_why_it_waits() {
    let mut node = Node::new(&[("CPU", 1.0)]);
    node.demand(1, 0, &[("CPU", 1.0)], 3);
    let told = |effects: &[Effect]| {
        let told = effects.iter().filter_map(|effect| match effect {
            Effect::TellStuck { stuck, .. } => Some(stuck.is_some()),
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    assert_eq!(told(&node.pass(500)), [true]);
    let effects = node.give_back(1, 1);
    assert_eq!((grants(&effects), told(&effects)), (vec![(1, 2)], vec![false]));
    assert_eq!(told(&node.pass(499)), [false; 0]);
    assert_eq!(told(&node.pass(1)), [true]);
}

#[test]
fn one_that_got_something_was_not_told_why_it_waits_until_something_else_happened() {
    let mut node = Node::new(&[("CPU", 2.0)]);
    node.demand(1, 0, &[("CPU", 1.0)], 1);
    node.demand(1, 1, &[("CPU", 1.0)], 3);
    node.pass(500);
    let effects = node.give_back(1, 1);
    assert_eq!(grants(&effects), [(1, 3)]);
    // Nothing happens from here on: the scheduler has to ask for the time itself.
    let due = node.now + Duration::from_millis(500);
    assert_eq!(node.scheduler.next_deadline(), Some(due));
    node.now = due;
    let effects = node.handle(Event::Tick);
    assert!(
        effects.iter().any(|effect| matches!(effect, Effect::TellStuck { stuck: Some(_), .. })),
        "{effects:?}"
    );
}

fn idle_wanted(effects: &[Effect]) -> Vec<(u32, u32)> {
    let wanted = effects.iter().filter_map(|effect| match effect {
        Effect::WantIdle { process, key } => Some((process.count(), *key)),
        _ => None,
    });
    wanted.collect()
}

#[test]
fn a_process_waited_for_its_own_idle_lease_until_the_quantum_was_over() {
    let mut node = Node::new(&[("CPU", 1.0)]);
    assert_eq!(grants(&node.demand(1, 0, &[("CPU", 1.0)], 1)), [(1, 1)]);
    let effects = node.demand(1, 1, &[("CPU", 0.5)], 2);
    assert_eq!((idle_wanted(&effects), recalls(&effects)), (vec![(1, 1)], vec![]));
    // Once is enough, until it got something.
    assert_eq!(idle_wanted(&node.demand(1, 1, &[("CPU", 0.5)], 4)), []);
    let effects = node.give_back(1, 1);
    assert_eq!((grants(&effects), idle_wanted(&effects)), (vec![(1, 2), (1, 3)], vec![]));
    // The other way round.
    assert_eq!(idle_wanted(&node.demand(1, 1, &[("CPU", 0.5)], 0)), []);
    assert_eq!(idle_wanted(&node.demand(1, 0, &[("CPU", 1.0)], 1)), [(1, 0)]);
}

#[test]
fn nobody_is_asked_for_idle_leases_in_vain() {
    let mut node = Node::new(&[("CPU", 2.0), ("memory", 8.0)]);
    assert_eq!(grants(&node.demand(1, 0, &[("CPU", 1.0)], 5)), [(1, 1), (1, 2)]);
    // More of the same; another process; what they do not take; what the node has not.
    assert_eq!(idle_wanted(&node.demand(1, 0, &[("CPU", 1.0)], 9)), []);
    assert_eq!(idle_wanted(&node.demand(2, 0, &[("CPU", 1.0)], 1)), []);
    assert_eq!(idle_wanted(&node.demand(1, 1, &[("CPU", 3.0)], 1)), []);
    assert_eq!(grants(&node.demand(2, 1, &[("memory", 8.0)], 1)).len(), 1);
    assert_eq!(idle_wanted(&node.demand(1, 2, &[("memory", 1.0)], 1)), []);
    // And their own holder may use them for the quantum.
    assert_eq!(recalls(&node.pass(49)), []);
}
