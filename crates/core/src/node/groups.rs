//! Placement groups of this node, and of those that it is the head of.
//!
//! The machine (`sched::groups`) says what is to be done at which node. What is for this node goes to its scheduler.

use std::collections::BTreeMap;

use hoplo_base::bundles::group_of;
use hoplo_base::{GroupId, JobId, NodeNumber, ProcessId, ResourceSet};
use hoplo_wire::node::{GroupSpec, ToClient};
use hoplo_wire::{Failure, FailureKind, Reason};

use super::queue::Work;
use super::{Effect, Node};
use crate::actors::life;
use crate::control::GroupEntry;
use crate::control::rows::group_key;
use crate::sched::bundles::GroupFailures;
use crate::sched::groups::{self, Groups, NodeView, Phase};
use crate::sched::local;

#[derive(Debug, Default)]
pub(super) struct GroupDesk {
    pub(super) machine: Groups,
    /// In this life.
    made: u64,
    labels: BTreeMap<String, String>,
    /// What the machine was told last that this node has free.
    told: Option<ResourceSet>,
}

impl Node {
    /// Before the first event: those of this node.
    pub fn set_labels(&mut self, labels: BTreeMap<String, String>) {
        self.groups.labels = labels;
    }

    pub fn groups(&self) -> &Groups {
        &self.groups.machine
    }

    pub(super) fn create_group(
        &mut self,
        from: ProcessId,
        job: JobId,
        request: u64,
        spec: Box<GroupSpec>,
    ) {
        let ended = match self.jobs.get(&job) {
            Some(job) => job.ended_us.is_some(),
            None => !self.is_far(job.node()),
        };
        if ended && !spec.detached {
            let why =
                format!("{job} has ended, and with it what it creates: give lifetime=\"detached\"");
            return self.send(from, ToClient::GroupCreated { request, result: Err(why) });
        }
        self.groups.made += 1;
        let group = GroupId::new(self.config.node, self.groups.made);
        self.see_own_resources();
        self.pass_to_groups(groups::Event::Asked { from, request, group, job, spec });
    }

    pub(super) fn pass_to_groups(&mut self, event: groups::Event) {
        self.queue.push_back(Work::Groups(event));
    }

    /// When nobody has anything more: groups that wait hear what this node has free, if it is something else.
    pub(super) fn tell_groups(&mut self) {
        if self.groups.machine.wants_news() {
            self.see_own_resources();
        }
    }

    fn see_own_resources(&mut self) {
        let free = self.scheduler.available_of_node();
        if self.groups.told.as_ref() == Some(&free) {
            return;
        }
        self.groups.told = Some(free.clone());
        let total = self.scheduler.total_of_node();
        let view = NodeView { total, free, labels: self.groups.labels.clone() };
        self.pass_to_groups(groups::Event::NodeSeen { node: self.config.node, view });
    }

    pub(super) fn on_groups(&mut self, effect: groups::Effect) {
        use groups::Effect as From;
        match effect {
            From::Prepare { node, group, attempt, bundles } => {
                self.to_scheduler_of(node, local::Event::BundlesAsked { group, attempt, bundles });
            }
            From::Commit { node, group, attempt } => {
                self.to_scheduler_of(node, local::Event::BundlesCommitted { group, attempt });
            }
            From::Release { node, group, attempt } => {
                self.to_scheduler_of(node, local::Event::BundlesReleased { group, attempt });
            }
            From::End { node, group, why } => {
                let failures = Box::new(failures(group, &why));
                self.to_scheduler_of(node, local::Event::GroupEnded { group, failures });
            }
            From::Waits { node, group, reason } => {
                let reason =
                    reason.map(|why| Reason::from(format!("placement {group} waits: {why}")));
                self.to_scheduler_of(node, local::Event::GroupWaits { group, reason });
            }
            From::AnswerCreate { to, request, result } => {
                let result = result.map(|made| (made.group, made.never));
                self.send(to, ToClient::GroupCreated { request, result });
            }
            From::AnswerWatch { to, request, state } => {
                self.send(to, ToClient::GroupState { request, state });
            }
            From::Save { group } => {
                if let Some(entry) = self.groups.machine.row(group).map(entry) {
                    self.save(&entry);
                }
            }
            From::Forget { group } => self.out.push(Effect::Forget { key: group_key(group) }),
        }
    }

    /// Other nodes are told by messages; as yet a node plans for itself alone.
    fn to_scheduler_of(&mut self, node: NodeNumber, event: local::Event) {
        assert_eq!(node, self.config.node, "no other node is known to the groups");
        self.pass_to_scheduler(event);
    }

    pub(super) fn on_bundles_answered(
        &mut self,
        group: GroupId,
        attempt: u32,
        refused: Option<Reason>,
    ) {
        let refused = refused.map(|reason| self.in_words(&reason));
        let node = self.config.node;
        self.pass_to_groups(groups::Event::Answered { node, group, attempt, refused });
    }

    /// Why what asks for these resources fails at once, if it does: their group is no more.
    pub(super) fn group_is_gone(&self, wanted: &ResourceSet) -> Option<GroupFailures> {
        let group = group_of(wanted)?;
        if self.is_far(self.planner_of(group)) {
            return None; // It is not known here.
        }
        let why = self.groups.machine.why_gone(group)?;
        Some(failures(group, &why))
    }

    /// Whose groups decide about it.
    pub(super) fn planner_of(&self, group: GroupId) -> NodeNumber {
        match self.groups.machine.row(group) {
            Some(_) => self.config.node,
            None => group.node(),
        }
    }

    pub(super) fn end_worker_of_group(&mut self, worker: ProcessId, group: GroupId) {
        let why = self.groups.machine.why_gone(group).unwrap_or_default();
        self.stop_process(
            worker,
            life::Manner::Kill,
            format!("its placement {group} is no more: {why}"),
        );
    }

    /// Of an earlier head: a detached group is placed again, the others ended with their jobs.
    pub(super) fn recall_groups(&mut self, entries: impl Iterator<Item = GroupEntry>) {
        for entry in entries {
            if entry.spec.detached {
                let (group, job, spec) = (entry.group, entry.job, Box::new(entry.spec));
                self.pass_to_groups(groups::Event::Recalled { group, job, spec });
            } else {
                self.out.push(Effect::Forget { key: group_key(entry.group) });
            }
        }
    }
}

fn entry(row: groups::GroupRow<'_>) -> GroupEntry {
    GroupEntry {
        group: row.group,
        job: row.job,
        spec: row.spec.clone(),
        created: *row.phase == Phase::Created,
        placed: row.placed.clone(),
    }
}

fn failures(group: GroupId, why: &str) -> GroupFailures {
    let text =
        |what: &str| format!("the {what} was to run in placement {group}, which is no more: {why}");
    GroupFailures {
        of_tasks: Failure::new(FailureKind::TaskGroupRemoved, text("task")),
        of_actors: Failure::new(FailureKind::ActorGroupRemoved, text("actor")),
    }
}
