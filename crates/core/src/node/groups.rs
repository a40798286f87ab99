//! Placement groups of this node, and of those that it is the head of.
//!
//! The machine (`sched::groups`) says what is to be done at which node. What is for this node goes to its scheduler.
//!
//! A group is to be there for whoever is head next. So its creator hears of it when the store has its row. If the store refuses that, there is
//! no such group if it was to be detached; one of a job is made all the same, and the next head may not know of it. For later changes of a row nobody waits:
//! nodes know which bundles they have.
//!
//! # Invariant
//! - GDESK-1: who makes a group hears that it is made once the store has its first row, or has refused it.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::bundles::{group_of, plain};
use hoplo_base::limits::GROUPS_REMEMBERED_MAX;
use hoplo_base::{GroupId, JobId, NodeNumber, ProcessId, ResourceSet};
use hoplo_wire::node::{GroupSpec, NoGroup, ToClient};
use hoplo_wire::peer::{BundleOrder, Load, Peer};
use hoplo_wire::{Failure, FailureKind, Reason};

use super::queue::Work;
use super::{Answer, Asked, Effect, Node, Question};
use crate::actors::life;
use crate::control::rows::group_key;
use crate::control::{Entry, GroupEntry};
use crate::sched::bundle::GroupFailures;
use crate::sched::groups::{self, Groups, Made, NodeView, Phase};
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
    /// Those whose first row is on its way into the store; what is said when it is there: to whom, and to which request.
    unwritten: BTreeMap<GroupId, Option<(ProcessId, u64, Made)>>,
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
            let result = Err(NoGroup::Refused(why));
            return self.send(from, ToClient::GroupCreated { request, result });
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
                self.answer_creation(to, request, result);
            }
            From::AnswerWatch { to, request, state } => {
                self.send(to, ToClient::GroupState { request, state });
            }
            From::Begun { group } => self.write_group(group),
            From::Save { group } => {
                if let Some(entry) = self.groups.machine.row(group).map(entry) {
                    self.save(&entry);
                }
            }
            From::Forget { group } => self.out.push(Effect::Forget { key: group_key(group) }),
        }
    }

    /// Its first row.
    fn write_group(&mut self, group: GroupId) {
        let Some(entry) = self.groups.machine.row(group).map(entry) else { return };
        self.groups.unwritten.insert(group, None);
        let question = Question::Put { key: entry.key(), value: entry.to_value() };
        self.ask(question, Asked::Group(group));
    }

    pub(super) fn check_unwritten(&self) {
        let writes: BTreeSet<GroupId> = self.asked.values().filter_map(Asked::group).collect();
        assert!(self.groups.unwritten.keys().eq(&writes), "GDESK-1: {:?}", self.groups.unwritten);
    }

    fn answer_creation(&mut self, to: ProcessId, request: u64, result: Result<Made, String>) {
        let result = match result {
            Ok(made) => match self.groups.unwritten.get_mut(&made.group) {
                // GDESK-1
                Some(answer) => return *answer = Some((to, request, made)),
                None => Ok((made.group, made.never)),
            },
            Err(why) => Err(NoGroup::Refused(why)),
        };
        self.send(to, ToClient::GroupCreated { request, result });
    }

    /// GDESK-1: the store has its row, or refuses it.
    pub(super) fn on_group_answer(&mut self, group: GroupId, answer: Answer) {
        let Answer::Written(written) = answer else {
            unreachable!("a question is answered by what it asks for");
        };
        let answer = self.groups.unwritten.remove(&group).expect("it is there until its answer");
        let detached = self.groups.machine.row(group).is_none_or(|row| row.spec.detached);
        let result = match written {
            Ok(()) => Ok(()),
            Err(refusal) if !detached => {
                let why = format!("the control store did not take its row: {refusal}");
                self.log(format!("{group} is lost if this head dies: {why}"));
                Ok(())
            }
            Err(refusal) => {
                let why = format!("the control store did not take its row: {refusal}");
                self.log(format!("{group} is not made: {why}"));
                self.pass_to_groups(groups::Event::NotWritten { group, why: why.clone() });
                Err(NoGroup::NotWritten(why))
            }
        };
        if let Some((to, request, made)) = answer {
            let result = result.map(|()| (made.group, made.never));
            self.send(to, ToClient::GroupCreated { request, result });
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

    /// Of an earlier head. `nodes` lived under it, have what they had of the groups, and say which of their jobs go on. A group of a job of
    /// another node ended with it, unless it is detached.
    pub(super) fn recall_groups(
        &mut self,
        entries: impl Iterator<Item = GroupEntry>,
        nodes: &BTreeSet<NodeNumber>,
    ) {
        self.pass_to_groups(groups::Event::Awaits { nodes: nodes.clone() });
        for entry in entries {
            if entry.spec.detached || nodes.contains(&entry.job.node()) {
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
