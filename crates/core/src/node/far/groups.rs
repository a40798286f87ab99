//! What processes of this node asked of the head's placement groups, and did not hear yet. While there is no head it is kept here. A new
//! head hears all of it, and before that what this node has: what the earlier head heard last may not be in the tables.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::limits::GROUPS_REMEMBERED_MAX;
use hoplo_base::{GroupId, JobId, NodeNumber, ProcessId};
use hoplo_wire::node::{GroupSpec, GroupState, ToClient, ToNode};
use hoplo_wire::peer::{BundleOrder, Peer};

use super::Node;
use crate::sched::claim::silence_of_head;
use crate::sched::{groups, local};

#[derive(Debug, Default)]
pub(super) struct GroupAsks {
    creations: BTreeMap<(ProcessId, u64), Box<GroupSpec>>,
    watches: BTreeMap<(ProcessId, u64), GroupId>,
    /// Until the head says that they are gone.
    removed: BTreeSet<GroupId>,
}

impl GroupAsks {
    /// What has no answer yet, as it was asked.
    fn open(&self) -> Vec<(ProcessId, ToNode)> {
        let creations = self.creations.iter().map(|((from, request), spec)| {
            (*from, ToNode::GroupCreate { request: *request, spec: spec.clone() })
        });
        let watches = self.watches.iter().map(|((from, request), group)| {
            (*from, ToNode::GroupWatch { request: *request, group: *group })
        });
        creations.chain(watches).collect()
    }

    /// This process is gone. What it removed stays so.
    pub(super) fn forget(&mut self, process: ProcessId) {
        self.creations.retain(|(from, _), _| *from != process);
        self.watches.retain(|(from, _), _| *from != process);
    }
}

/// About a group, which a head decides.
pub(in crate::node) fn is_of_groups(message: &ToNode) -> bool {
    matches!(
        message,
        ToNode::GroupCreate { .. }
            | ToNode::GroupRemove { .. }
            | ToNode::GroupWatch { .. }
            | ToNode::GroupUnwatch { .. }
    )
}

impl Node {
    pub(in crate::node) fn ask_planner(&mut self, from: ProcessId, message: ToNode) {
        let asks = &mut self.far.group_asks;
        let planner = match &message {
            ToNode::GroupCreate { request, spec } => {
                asks.creations.insert((from, *request), spec.clone());
                self.far.head
            }
            ToNode::GroupWatch { request, group } => {
                asks.watches.insert((from, *request), *group);
                Some(self.planner_of(*group))
            }
            ToNode::GroupUnwatch { request, group } => {
                asks.watches.remove(&(from, *request));
                Some(self.planner_of(*group))
            }
            ToNode::GroupRemove { group } => {
                asks.removed.insert(*group);
                if asks.removed.len() > GROUPS_REMEMBERED_MAX {
                    asks.removed.pop_first();
                }
                Some(self.planner_of(*group))
            }
            other => unreachable!("{other:?} is not about a group"),
        };
        self.tell_of_silent_head(from, &message);
        if let Some(planner) = planner.filter(|planner| self.is_sent_to(*planner)) {
            self.forward(planner, from, message);
        }
    }

    /// Those that wait for groups hear that the head says nothing.
    pub(super) fn groups_of_silent_head(&mut self) {
        for (from, message) in self.far.group_asks.open() {
            self.tell_of_silent_head(from, &message);
        }
    }

    fn tell_of_silent_head(&mut self, from: ProcessId, message: &ToNode) {
        let Some((head, since)) = self.silent_head() else { return };
        let silence = silence_of_head(&head.address, since, self.now);
        let said = match message {
            ToNode::GroupWatch { request, group } if self.planner_of(*group) == head.node => {
                let why = format!("placement {group} waits: {silence}; it waits for it");
                ToClient::GroupState { request: *request, state: GroupState::Waits { why } }
            }
            ToNode::GroupCreate { .. } => {
                let line = format!("a placement group is not made yet: {silence}; it waits for it");
                let (title, lines) = ("hoplo".to_string(), vec![line]);
                ToClient::Output { pid: 0, title, address: None, stderr: true, lines }
            }
            _ => return,
        };
        self.send(from, said);
    }

    /// The head has a last word for a process of ours.
    pub(super) fn planner_answered(&mut self, to: ProcessId, message: &ToClient) {
        let asks = &mut self.far.group_asks;
        match message {
            ToClient::GroupCreated { request, .. } => {
                asks.creations.remove(&(to, *request));
            }
            ToClient::GroupState {
                request,
                state: GroupState::Created | GroupState::Removed { .. },
            } => {
                asks.watches.remove(&(to, *request));
            }
            _ => {}
        }
    }

    /// It wants bundles for a head after which another one came. That one was told what this node has, and would never give these back.
    pub(super) fn is_overtaken(&self, from: NodeNumber, order: &BundleOrder) -> bool {
        let asks = matches!(order, BundleOrder::Prepare { .. });
        asks && self.far.head.is_some_and(|head| head != from)
    }

    pub(in crate::node) fn far_group_ended(&mut self, group: GroupId) {
        self.far.group_asks.removed.remove(&group);
    }

    /// What was asked before this node heard that it is the head itself.
    fn groups_are_planned_here(&mut self) {
        let asks = std::mem::take(&mut self.far.group_asks);
        for (from, message) in asks.open() {
            self.on_request(from, message);
        }
        for group in asks.removed {
            self.pass_to_groups(groups::Event::RemoveAsked { group });
        }
    }

    pub(super) fn groups_at_new_head(&mut self) {
        let Some(head) = self.far.head else { return };
        if head == self.me() {
            return self.groups_are_planned_here();
        }
        self.pass_to_scheduler(local::Event::PlannerGone);
        let own = |job: &&JobId| job.node() == self.config.node;
        let going_on = self.jobs.iter().filter(|(_, job)| job.ended_us.is_none());
        let jobs: Vec<JobId> = going_on.map(|(id, _)| id).filter(own).copied().collect();
        for job in &jobs {
            self.tell_job(head, *job);
        }
        let bundles = self.scheduler.bundles_held();
        let removed = self.far.group_asks.removed.iter().copied().collect();
        self.send_peer(head, Peer::Held { bundles, jobs, removed });
        for (from, message) in self.far.group_asks.open() {
            self.forward(head, from, message);
        }
    }
}
