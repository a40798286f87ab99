//! A bundle of a placement group that a node has, and the table of them. What becomes of them is in `bundles`.

use std::collections::BTreeMap;

use hoplo_base::bundles::InGroup;
use hoplo_base::resources::GPU;
use hoplo_base::{GroupId, ResourceSet};
use hoplo_wire::{Failure, Reason};

use super::gpus::Gpus;

#[derive(Debug, Default)]
pub(super) struct Bundles {
    pub(super) here: BTreeMap<(GroupId, u32), Bundle>,
    /// Why groups are not placed.
    pub(super) waiting: BTreeMap<GroupId, Reason>,
}

#[derive(Debug)]
pub(super) struct Bundle {
    /// What it takes of the node.
    pub(super) resources: ResourceSet,
    pub(super) gpu_ids: Vec<u32>,
    /// The same, as it is given out.
    pub(super) gpus: Gpus,
    /// Which try to place its group made it.
    pub(super) attempt: u32,
    pub(super) stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Prepared,
    Committed,
    Leaving,
}

impl Bundle {
    /// What it adds to the node.
    pub(super) fn adds(&self, (group, index): (GroupId, u32)) -> ResourceSet {
        InGroup::of_bundle(group, index, self.resources.clone()).named()
    }

    pub(super) fn is_here(&self) -> bool {
        match self.stage {
            Stage::Committed | Stage::Leaving => true,
            Stage::Prepared => false,
        }
    }

    /// Whether it could give that if nobody else had anything of it; `index`: its own.
    pub(super) fn could_hold(&self, asked: &InGroup, index: u32) -> bool {
        let adds = InGroup::of_bundle(asked.group, index, self.resources.clone()).resources;
        adds.covers(&asked.resources) && self.gpus.could_take(asked.resources.parts(GPU))
    }
}

impl Bundles {
    pub(super) fn is_empty(&self) -> bool {
        self.here.is_empty()
    }

    pub(super) fn of(&self, group: GroupId) -> impl Iterator<Item = (u32, &Bundle)> {
        let all = self.here.range((group, 0)..=(group, u32::MAX));
        all.map(|((_, index), bundle)| (*index, bundle))
    }

    /// Of those that give something, the one that was asked for, or each.
    pub(super) fn open(&self, asked: &InGroup) -> impl Iterator<Item = (u32, &Bundle)> {
        let wanted = asked.index;
        self.of(asked.group).filter(move |(index, bundle)| {
            bundle.stage == Stage::Committed && wanted.is_none_or(|wanted| wanted == *index)
        })
    }

    pub(super) fn take_gpus(&mut self, key: (GroupId, u32), parts: u64) -> Vec<u32> {
        self.here.get_mut(&key).expect("SCHED-9").gpus.take(parts)
    }

    pub(super) fn give_gpus(&mut self, key: (GroupId, u32), ids: &[u32], parts: u64) {
        self.here.get_mut(&key).expect("SCHED-9").gpus.give(ids, parts);
    }
}

/// What those hear that waited for a group which is no more.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupFailures {
    pub of_tasks: Failure,
    pub of_actors: Failure,
}
