//! Groups of an earlier head. The tables say that they are there, and may be behind what that head did; nodes know which bundles they
//! have. So nothing of such a group is planned before every node that lived under the earlier head has told what it has, or is gone.
//!
//! ```text
//!   Awaits --> Recalled: rescheduling --every node told--> has all its bundles: Created
//!                                                         lacks some: waits for room for those, as after a node's death
//! ```
//! A node's word names the jobs of its drivers that go on, too: a job that ended while there was no head ends here.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::{GroupId, JobId, NodeNumber, ProcessId};
use hoplo_wire::node::GroupSpec;

use super::{Effect, Groups, Known, NodeView, Phase};

#[derive(Debug, Default)]
pub(super) struct Recalled {
    /// Nodes whose word is awaited.
    untold: BTreeSet<NodeNumber>,
    groups: BTreeSet<GroupId>,
    /// Who asked for them: the answer may not have arrived.
    asked: BTreeMap<(ProcessId, u64), GroupId>,
}

impl Recalled {
    pub(super) fn has_heard_all(&self) -> bool {
        self.untold.is_empty()
    }

    pub(super) fn has(&self, id: GroupId) -> bool {
        self.groups.contains(&id)
    }

    pub(super) fn made_for(&self, asked: (ProcessId, u64)) -> Option<GroupId> {
        self.asked.get(&asked).copied()
    }

    pub(super) fn forget(&mut self, id: GroupId) {
        self.groups.remove(&id);
        self.asked.retain(|_, group| *group != id);
    }
}

/// What a node has, by its own word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub bundles: Vec<(GroupId, Vec<u32>)>,
    /// Of its drivers, those that go on.
    pub jobs: BTreeSet<JobId>,
    /// Its processes removed them, and no head has said since that they are gone.
    pub removed: Vec<GroupId>,
}

impl Groups {
    pub(super) fn on_awaits(&mut self, nodes: BTreeSet<NodeNumber>) {
        self.recalled.untold = nodes;
    }

    pub(super) fn on_recalled(
        &mut self,
        group: GroupId,
        job: JobId,
        spec: GroupSpec,
        asked: (ProcessId, u64),
        effects: &mut Vec<Effect>,
    ) {
        self.begin(group, job, spec, asked, Phase::Rescheduling);
        self.recalled.groups.insert(group);
        self.recalled.asked.insert(asked, group);
        effects.push(Effect::Save { group });
        self.go_on_if_all_told(effects);
    }

    pub(super) fn on_told(&mut self, node: NodeNumber, held: Held, effects: &mut Vec<Effect>) {
        // What it has free it says by itself.
        let unseen =
            Known { view: NodeView::default(), returning: Default::default(), refused: true };
        self.nodes.entry(node).or_insert(unseen);
        for id in held.removed {
            self.remove(id, "it was removed by remove_placement_group()", effects);
        }
        let ended: BTreeSet<JobId> = self
            .recalled
            .groups
            .iter()
            .map(|id| self.groups[id].job)
            .filter(|job| job.node() == node && !held.jobs.contains(job))
            .collect();
        for job in ended {
            self.on_job_ended(job, effects);
        }
        let drains = self.draining.contains(&node);
        for (id, indices) in held.bundles {
            if let Some(why) = self.why_gone(id) {
                effects.push(Effect::End { node, group: id, why });
                continue;
            }
            // What a node has that leaves is planned anew, elsewhere.
            if drains || !self.recalled.has(id) {
                continue;
            }
            let group = self.groups.get_mut(&id).expect("it is not gone");
            let known = 0..group.spec.bundles.len() as u32;
            for index in indices.into_iter().filter(|index| known.contains(index)) {
                group.placed.entry(index).or_insert(node);
            }
        }
        self.has_told(node, effects);
    }

    /// It told, or is gone.
    pub(super) fn has_told(&mut self, node: NodeNumber, effects: &mut Vec<Effect>) {
        if self.recalled.untold.remove(&node) {
            self.go_on_if_all_told(effects);
        }
    }

    fn go_on_if_all_told(&mut self, effects: &mut Vec<Effect>) {
        if !self.recalled.has_heard_all() {
            return;
        }
        for id in std::mem::take(&mut self.recalled.groups) {
            let group = &self.groups[&id];
            if group.placed.len() == group.spec.bundles.len() {
                self.created(id, effects);
            } else {
                self.wait(id);
            }
        }
        self.try_all(true, effects);
    }
}
