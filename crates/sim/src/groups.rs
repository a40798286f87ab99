//! Placement groups, as programs use them: made, waited for, used and removed.
//!
//! Programs may wait for each other by groups, each of which holds what the other one's tasks need. That is no fault of ours. So somebody removes
//! every group after a while, whoever made it.

use std::time::Duration;

use hoplo_base::bundles::InGroup;
use hoplo_base::{GroupId, ProcessId, TaskId};
use hoplo_core::sched::groups::{GroupRow, Phase};
use hoplo_wire::node::{GroupSpec, GroupState, NoGroup, Shape, ToClient, ToNode};

use crate::cluster::{Cluster, Step};
use crate::fiber::{Fiber, Flow, Wait};
use crate::workload::Bundle;

/// How often somebody looks which groups are old.
const LOOKS_EVERY: Duration = Duration::from_millis(20);
const GROUP_LIVES: Duration = Duration::from_millis(100);
/// One that is still there is removed again. More often, the words would be more than a slow link takes (seed 2103211).
const REMOVED_AGAIN: Duration = Duration::from_secs(1);

impl Cluster {
    /// Until it is created, or removed.
    pub fn makes_group(&mut self, id: ProcessId, fiber: &mut Fiber, spec: &GroupSpec) -> Flow {
        let Some(request) = fiber.request else {
            self.somebody_looks();
            let spec = Box::new(spec.clone());
            return self.ask(id, fiber, |request| ToNode::GroupCreate { request, spec });
        };
        match (self.answer(id, fiber), fiber.awaits_group) {
            (Err(flow), _) => flow,
            (Ok(ToClient::GroupCreated { result: Ok((group, _)), .. }), None) => {
                self.note(|| format!("{id} made {group}"));
                let job = (!spec.detached).then(|| self.client(id).job);
                self.books.facts.makes_group(group, job);
                fiber.awaits_group = Some(group);
                self.ask(id, fiber, |request| ToNode::GroupWatch { request, group })
            }
            (Ok(ToClient::GroupCreated { result: Err(NoGroup::NotWritten(why)), .. }), None) => {
                assert!(spec.detached && self.plan.control_refuses, "{id}: {why}");
                self.count("refused rows");
                Flow::Next
            }
            (Ok(ToClient::GroupCreated { result: Err(NoGroup::Refused(why)), .. }), None) => {
                let job = self.client(id).job;
                assert!(
                    !spec.detached && self.job_has_ended(job),
                    "{id} is refused a group: {why}"
                );
                Flow::Next
            }
            (Ok(ToClient::GroupState { state, .. }), Some(group)) => match state {
                GroupState::Waits { .. } => {
                    fiber.request = Some(request);
                    Flow::Wait(Wait::Answer(request))
                }
                GroupState::Created => {
                    self.count("placement groups created");
                    fiber.awaits_group = None;
                    fiber.groups.push(group);
                    Flow::Next
                }
                GroupState::Removed { .. } => {
                    self.count("placement groups removed before they were created");
                    fiber.awaits_group = None;
                    assert!(self.group_is_gone(group), "{id} hears that {group} is removed");
                    Flow::Next
                }
            },
            (Ok(other), _) => panic!("{id} asks for a group, not {other:?}"),
        }
    }

    /// From the first group on, also if that is one of an earlier daemon.
    pub fn somebody_looks(&mut self) {
        if !self.operator.looks {
            self.operator.looks = true;
            self.at_node(self.head(), self.now + LOOKS_EVERY, Step::GroupsEnd);
        }
    }

    pub fn removes_group(&mut self, id: ProcessId, fiber: &mut Fiber, pick: u64) {
        if let Some(group) = fiber.group(pick) {
            fiber.groups.retain(|it| *it != group);
            self.removes(id, group);
        }
    }

    pub fn removes(&mut self, id: ProcessId, group: GroupId) {
        self.count("placement groups removed");
        self.note(|| format!("{id} removes {group}"));
        self.books.facts.removes_group(group);
        self.say(id, ToNode::GroupRemove { group });
    }

    /// The same in a bundle of a group of its own, if it has one.
    pub fn in_group(&mut self, fiber: &Fiber, shape: &Shape, bundle: Option<Bundle>) -> Shape {
        let group = bundle.and_then(|bundle| Some((fiber.group(bundle.group)?, bundle.index)));
        let Some((group, index)) = group else { return shape.clone() };
        self.count("calls in placement groups");
        let resources = InGroup::of_task(group, index, shape.resources.clone()).named();
        Shape { resources, ..Shape::default() }
    }

    /// At the head, that are not removed.
    pub fn groups(&self) -> Vec<GroupId> {
        let rows = self.host(self.head()).daemon.node.groups().rows();
        let there = rows.filter(|row| !matches!(row.phase, Phase::Removed { .. }));
        there.map(|row| row.group).collect()
    }

    /// Somebody removes the old ones.
    pub fn groups_end(&mut self) {
        if self.is_headless() {
            return self.after(LOOKS_EVERY, Step::GroupsEnd);
        }
        self.goes_to(self.head());
        let ends_at = self.now + self.rng.delay(GROUP_LIVES);
        let moves = |row: GroupRow<'_>| *row.phase == Phase::Rescheduling;
        let lost = self.here.daemon.node.groups().rows().any(moves);
        if lost {
            self.count("placement groups that lost bundles");
        }
        let there = self.groups();
        let ends = &mut self.operator.ends;
        let now = self.now;
        let old = |group: &&GroupId| *ends.entry(**group).or_insert(ends_at) <= now;
        let old: Vec<GroupId> = there.iter().filter(old).copied().collect();
        ends.extend(old.iter().map(|group| (*group, now + REMOVED_AGAIN)));
        self.end_groups(&old);
        let programs = self.clients.values().any(|it| it.alive && it.is_driver && !it.finished);
        // What a driver that finished has submitted may go on, and a group may be on its way.
        self.operator.looks = programs || !there.is_empty() || !self.is_done();
        if self.operator.looks {
            self.after(LOOKS_EVERY, Step::GroupsEnd);
        }
    }

    fn end_groups(&mut self, groups: &[GroupId]) {
        let mut drivers = self.drivers.iter().copied();
        let alive = drivers.find(|driver| self.clients[driver].alive && self.is_open(*driver));
        let Some(driver) = alive else { return };
        let here = self.here.number;
        self.goes_to(driver.node());
        for group in groups {
            self.removes(driver, *group);
        }
        self.goes_to(here);
    }

    /// Somebody removed it, or its job ended, or its head died, and the control store had not taken its row.
    pub fn group_is_gone(&self, group: GroupId) -> bool {
        let facts = &self.books.facts;
        let job_ended = facts.job_of_group(group).is_some_and(|job| self.job_has_ended(job));
        let is_lost = self.lost_a_head() && facts.is_unwritten(group);
        facts.is_removed(group) || job_ended || is_lost
    }

    /// A task that is to run in one, an actor's constructor, or a call of its methods.
    pub fn was_in_group_that_is_gone(&self, task: TaskId) -> bool {
        self.books.facts.group_of(task).is_some_and(|group| self.group_is_gone(group))
    }
}
