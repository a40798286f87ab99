//! Placement groups of this node, and of those that it is the head of.
//!
//! The machine (`sched::groups`) says what is to be done at which node. What is for this node goes to its scheduler.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::bundles::{group_of, plain};
use hoplo_base::limits::GROUPS_REMEMBERED_MAX;
use hoplo_base::{GroupId, JobId, NodeNumber, ProcessId, ResourceSet};
use hoplo_wire::node::{GroupSpec, ToClient};
use hoplo_wire::peer::{BundleOrder, Load, Peer};
use hoplo_wire::{Failure, FailureKind, Reason};

use super::queue::Work;
use super::{Effect, Node};
use crate::actors::life;
use crate::control::GroupEntry;
use crate::control::rows::group_key;
use crate::sched::bundle::GroupFailures;
use crate::sched::groups::{self, Groups, NodeView, Phase};
use crate::sched::{broker, local};

#[derive(Debug, Default)]
pub(super) struct GroupDesk {
    pub(super) machine: Groups,
    /// In this life.
    made: u64,
    labels: BTreeMap<String, String>,
    /// What the machine was told last that this node has free.
    told: Option<ResourceSet>,
    /// Of other planners, the last that ended, and why.
    ended: BTreeMap<GroupId, String>,
}

impl GroupDesk {
    fn remember(&mut self, group: GroupId, why: String) {
        self.ended.insert(group, why);
        if self.ended.len() > GROUPS_REMEMBERED_MAX {
            self.ended.pop_first();
        }
    }
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
                self.order_bundles(node, group, BundleOrder::Prepare { attempt, bundles });
            }
            From::Commit { node, group, attempt } => {
                self.order_bundles(node, group, BundleOrder::Commit { attempt });
            }
            From::Release { node, group, attempt } => {
                self.order_bundles(node, group, BundleOrder::Release { attempt });
            }
            From::End { node, group, why } => {
                self.order_bundles(node, group, BundleOrder::End { why });
            }
            From::Waits { node, group, reason } => {
                self.order_bundles(node, group, BundleOrder::Waits { reason });
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

    fn order_bundles(&mut self, node: NodeNumber, group: GroupId, order: BundleOrder) {
        match node == self.config.node {
            true => self.on_bundle_order(group, order),
            false => self.send_peer(node, Peer::Bundles { group, order }),
        }
    }

    /// Of the head, or of this node's own groups.
    pub(super) fn on_bundle_order(&mut self, group: GroupId, order: BundleOrder) {
        let event = match order {
            BundleOrder::Prepare { attempt, bundles } => {
                local::Event::BundlesAsked { group, attempt, bundles }
            }
            BundleOrder::Commit { attempt } => local::Event::BundlesCommitted { group, attempt },
            BundleOrder::Release { attempt } => local::Event::BundlesReleased { group, attempt },
            BundleOrder::Waits { reason } => {
                let reason =
                    reason.map(|why| Reason::from(format!("placement {group} waits: {why}")));
                local::Event::GroupWaits { group, reason }
            }
            BundleOrder::End { why } => {
                let failures = Box::new(failures(group, &why));
                self.groups.remember(group, why);
                self.far_group_ended(group);
                self.pass_to_broker(broker::Event::GroupEnded { group });
                local::Event::GroupEnded { group, failures }
            }
        };
        self.pass_to_scheduler(event);
    }

    pub(super) fn on_bundles_answered(
        &mut self,
        group: GroupId,
        attempt: u32,
        refused: Option<Reason>,
    ) {
        let refused = refused.map(|reason| self.in_words(&reason));
        match self.planner_of(group) {
            planner if planner == self.config.node => {
                let node = self.config.node;
                self.pass_to_groups(groups::Event::Answered { node, group, attempt, refused });
            }
            planner => self.send_peer(planner, Peer::BundlesAnswered { group, attempt, refused }),
        }
    }

    /// Another node of the cluster, as it says it is: of a head.
    pub(super) fn groups_see(&mut self, node: NodeNumber, load: &Load) {
        let labels = self.labels_of(node);
        let view = NodeView { total: plain(&load.total), free: plain(&load.available), labels };
        self.pass_to_groups(groups::Event::NodeSeen { node, view });
    }

    /// Why what asks for these resources fails at once, if it does: their group is no more.
    pub(super) fn group_is_gone(&self, wanted: &ResourceSet) -> Option<GroupFailures> {
        let group = group_of(wanted)?;
        let why = self.why_gone(group)?;
        Some(failures(group, &why))
    }

    pub(super) fn failures_of(&self, group: GroupId) -> GroupFailures {
        failures(group, &self.why_gone(group).unwrap_or_default())
    }

    /// Of the head: somebody asks in vain where there is room in a group of ours that is gone, so he did not hear of its end.
    pub(super) fn tell_of_end(&mut self, node: NodeNumber, wanted: &ResourceSet) {
        let Some(group) = group_of(wanted) else { return };
        if self.planner_of(group) == self.config.node
            && let Some(why) = self.why_gone(group)
        {
            self.order_bundles(node, group, BundleOrder::End { why });
        }
    }

    /// Absent if it is there, or if it is not known here that it is not.
    fn why_gone(&self, group: GroupId) -> Option<String> {
        if self.is_far(self.planner_of(group)) {
            return self.groups.ended.get(&group).cloned();
        }
        self.groups.machine.why_gone(group)
    }

    /// Whose groups decide about it: who named it; another one goes on with those of a head that died.
    pub(super) fn planner_of(&self, group: GroupId) -> NodeNumber {
        if self.groups.machine.row(group).is_some() {
            return self.config.node;
        }
        self.planner(group.node())
    }

    pub(super) fn end_worker_of_group(&mut self, worker: ProcessId, group: GroupId) {
        let why = self.why_gone(group).unwrap_or_default();
        self.stop_process(
            worker,
            life::Manner::Kill,
            format!("its placement {group} is no more: {why}"),
        );
    }

    /// Of an earlier head. `nodes` lived under it, and have what they had of the groups. `jobs` go on there; a group that is neither of
    /// such a job nor detached ended with its job.
    pub(super) fn recall_groups(
        &mut self,
        entries: impl Iterator<Item = GroupEntry>,
        nodes: BTreeSet<NodeNumber>,
        jobs: &BTreeSet<JobId>,
    ) {
        self.pass_to_groups(groups::Event::Awaits { nodes });
        for entry in entries {
            if entry.spec.detached || jobs.contains(&entry.job) {
                let (group, job, spec) = (entry.group, entry.job, Box::new(entry.spec));
                let asked = entry.asked;
                self.pass_to_groups(groups::Event::Recalled { group, job, spec, asked });
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
        asked: row.asked,
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
