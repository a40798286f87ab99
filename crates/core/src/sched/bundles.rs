//! Bundles of placement groups that this node has, and what is said of groups that it has no bundle of.
//!
//! ```text
//!             asked, fits            committed              group ended
//!  (nothing) ------------> prepared -----------> committed -------------> leaving --its last lease ended--> (free)
//!      \--does not fit: refused  \--released, group ended--> (free)
//! ```
//! A bundle takes what it is made of from the node like a lease, at once. Committed, it adds the same to the node under other
//! names (`hoplo_base::bundles`). Tasks and actors of its group ask for those, as for anything else.
//!
//! Who asks for any bundle of a group is given one that has room for all it asks for, and takes of that bundle
//! by name. GPUs are the bundle's as well: it gives out those that it was made of.
//!
//! # Invariants
//! - SCHED-8: the node has, beside its own, just what its committed and leaving bundles add.
//! - SCHED-9: a lease in a bundle takes of that bundle and nothing else, and the bundle is there.

use std::collections::BTreeMap;

use hoplo_base::bundles::{Asked, GroupName, InGroup, is_cpu, is_gpu};
use hoplo_base::resources::GPU;
use hoplo_base::{GroupId, Instant, ResourceSet, shown};
use hoplo_wire::Reason;

use super::bundle::{Bundle, GroupFailures, Stage};
use super::claim::{Claimant, Stuck};
use super::gpus::Gpus;
use super::local::{Effect, LocalScheduler};

impl LocalScheduler {
    /// All or none.
    pub(super) fn on_bundles_asked(
        &mut self,
        group: GroupId,
        attempt: u32,
        bundles: Vec<(u32, ResourceSet)>,
        effects: &mut Vec<Effect>,
    ) {
        let (mut refused, mut prepared) = (None, Vec::new());
        for (index, resources) in bundles {
            let known = self.bundles.here.contains_key(&(group, index));
            if known || !self.has_room(&resources) {
                refused = Some(match known {
                    true => format!("bundle {index} of {group} is here already").into(),
                    false => Reason::from(format!("bundle {index} needs {resources}; "))
                        .and(self.why_short(&resources, &mut BTreeMap::new()).reason),
                });
                break;
            }
            self.used.add(&resources);
            let gpu_ids = self.gpus.take(resources.parts(GPU));
            let gpus = Gpus::part(&gpu_ids, resources.parts(GPU));
            let bundle = Bundle { resources, gpu_ids, gpus, attempt, stage: Stage::Prepared };
            self.bundles.here.insert((group, index), bundle);
            prepared.push(index);
        }
        if refused.is_some() {
            prepared.into_iter().for_each(|index| self.free_bundle((group, index)));
        }
        effects.push(Effect::AnswerBundles { group, attempt, refused });
    }

    pub(super) fn on_bundles_committed(&mut self, group: GroupId, attempt: u32) {
        let mut added = ResourceSet::new();
        for (key, bundle) in self.bundles.here.range_mut((group, 0)..=(group, u32::MAX)) {
            if bundle.attempt == attempt && bundle.stage == Stage::Prepared {
                bundle.stage = Stage::Committed;
                added.add(&bundle.adds(*key));
            }
        }
        self.total.add(&added);
        self.has_changed();
    }

    /// What this attempt has prepared and not committed.
    pub(super) fn on_bundles_released(&mut self, group: GroupId, attempt: u32) {
        let prepared = self
            .bundles
            .of(group)
            .filter(|(_, bundle)| bundle.attempt == attempt && bundle.stage == Stage::Prepared);
        let prepared: Vec<u32> = prepared.map(|(index, _)| index).collect();
        for index in prepared {
            self.free_bundle((group, index));
        }
    }

    pub(super) fn on_planner_gone(&mut self) {
        let prepared = self.bundles.here.iter();
        let prepared = prepared.filter(|(_, bundle)| bundle.stage == Stage::Prepared);
        for key in prepared.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.free_bundle(key);
        }
        // The next one says anew what waits.
        self.bundles.waiting.clear();
    }

    /// Bundles of each group that may be used here.
    pub fn bundles_held(&self) -> Vec<(GroupId, Vec<u32>)> {
        let mut held: BTreeMap<GroupId, Vec<u32>> = BTreeMap::new();
        for ((group, index), bundle) in &self.bundles.here {
            if bundle.stage == Stage::Committed {
                held.entry(*group).or_default().push(*index);
            }
        }
        held.into_iter().collect()
    }

    pub(super) fn on_group_waits(
        &mut self,
        group: GroupId,
        reason: Option<Reason>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(reason) = reason else { return drop(self.bundles.waiting.remove(&group)) };
        if self.bundles.waiting.insert(group, reason).is_none() {
            self.recall_once(effects);
        }
    }

    /// For a group that begins to wait: leases that are idle come back at once, and not when their holders give them up by
    /// themselves. Who has work goes on with it on the next lease.
    fn recall_once(&mut self, effects: &mut Vec<Effect>) {
        for (id, lease) in &mut self.leases {
            let Claimant::Demand { process, .. } = lease.claimant else { continue };
            if lease.bundle.is_none() && lease.may_be_recalled() {
                lease.recalled = true;
                effects.push(Effect::Recall { process, lease: *id });
            }
        }
    }

    /// Whatever waits for it fails, and whatever runs in it is ended.
    pub(super) fn on_group_ended(
        &mut self,
        now: Instant,
        group: GroupId,
        failures: &GroupFailures,
        effects: &mut Vec<Effect>,
    ) {
        self.bundles.waiting.remove(&group);
        let of_it = self.claims.iter().filter(|(_, claim)| {
            hoplo_base::bundles::group_of(&claim.shape.resources) == Some(group)
        });
        let of_it: Vec<Claimant> = of_it.map(|(claimant, _)| *claimant).collect();
        for claimant in of_it {
            self.drop_claim(now, claimant, effects);
            effects.push(match claimant {
                Claimant::Demand { process, key } => {
                    Effect::FailDemand { process, key, failure: failures.of_tasks.clone() }
                }
                Claimant::Actor { actor, incarnation } => {
                    Effect::FailActor { actor, incarnation, failure: failures.of_actors.clone() }
                }
            });
        }
        let indices: Vec<u32> = self.bundles.of(group).map(|(index, _)| index).collect();
        for index in indices {
            let key = (group, index);
            let users = self.leases.values().filter(|lease| lease.bundle == Some(key));
            let users: Vec<_> = users.filter_map(|lease| lease.worker).collect();
            effects.extend(users.into_iter().map(|worker| Effect::EndWorker { worker, group }));
            let bundle = self.bundles.here.get_mut(&key).expect("it was just listed");
            if bundle.is_here() {
                bundle.stage = Stage::Leaving;
            }
            self.free_if_unused(key);
        }
    }

    /// A lease in it ended, or it is not to be here any more.
    pub(super) fn free_if_unused(&mut self, key: (GroupId, u32)) {
        let stays = self.bundles.here[&key].stage == Stage::Committed;
        if !stays && !self.leases.values().any(|lease| lease.bundle == Some(key)) {
            self.free_bundle(key);
        }
    }

    fn free_bundle(&mut self, key: (GroupId, u32)) {
        let bundle = self.bundles.here.remove(&key).expect("the caller looked it up");
        assert_eq!(bundle.gpus.taken(), 0, "SCHED-9: {key:?}");
        self.used.subtract(&bundle.resources);
        self.gpus.give(&bundle.gpu_ids, bundle.resources.parts(GPU));
        if bundle.is_here() {
            self.total.subtract(&bundle.adds(key));
        }
        self.has_changed();
    }

    /// What the node has is not what it was.
    fn has_changed(&mut self) {
        let mut lines = std::mem::take(&mut self.lines);
        // What is barred here is so whatever the node has.
        for (resources, line) in lines.get_mut(&None).into_iter().flatten() {
            line.feasible = self.feasible(resources);
        }
        self.lines = lines;
        self.may_grant = true;
    }

    fn has_room(&self, resources: &ResourceSet) -> bool {
        resources.iter().all(|(name, parts)| {
            self.used.parts(name).saturating_add(parts) <= self.total.parts(name)
        }) && self.gpus.can_take(resources.parts(GPU))
    }

    /// The bundle that gives what is asked for now, if one does: which, and what is taken of it.
    pub(super) fn bundle_for(&self, asked: &InGroup) -> Option<((GroupId, u32), ResourceSet)> {
        self.bundles.open(asked).find_map(|(index, bundle)| {
            let named = InGroup { index: Some(index), ..asked.clone() }.named();
            let fits = named.iter().all(|(name, parts)| {
                self.used.parts(name).saturating_add(parts) <= self.total.parts(name)
            });
            let fits = fits && bundle.gpus.can_take(asked.resources.parts(GPU));
            fits.then_some(((asked.group, index), named))
        })
    }

    /// Whether a bundle here could if nobody else had anything of it.
    pub(super) fn bundle_could(&self, asked: &InGroup) -> bool {
        self.bundles.open(asked).any(|(index, bundle)| bundle.could_hold(asked, index))
    }

    pub(super) fn why_stuck_in_group(&self, asked: &InGroup) -> Option<Stuck> {
        let group = asked.group;
        let stuck = |reason: Reason, infeasible| Some(Stuck { reason, infeasible });
        if let Some(waiting) = self.bundles.waiting.get(&group) {
            return stuck(waiting.clone(), false);
        }
        let mut open = self.bundles.open(asked).peekable();
        if open.peek().is_none() {
            let what = match asked.index {
                Some(index) => format!("bundle {index} of {group} is not on this node"),
                None => format!("{group} has no bundle on this node"),
            };
            return stuck(what.into(), false);
        }
        let mut nearest = None;
        for (index, bundle) in open {
            if bundle.could_hold(asked, index) {
                return None; // It waits for others.
            }
            nearest.get_or_insert((index, bundle));
        }
        let (index, bundle) = nearest.expect("there is one");
        let adds = InGroup::of_bundle(group, index, bundle.resources.clone()).resources;
        let lack = match adds.lacks(&asked.resources) {
            Some((name, needs, has)) => {
                format!("needs {} {needs}, bundle {index} of {group} has {has}", shown(name))
            }
            None => {
                let (needs, has) = (asked.resources.units(GPU), bundle.resources.units(GPU));
                format!("needs GPU {needs} at once, bundle {index} of {group} has {has} of several")
            }
        };
        stuck(lack.into(), true)
    }

    /// Bundles that take of this resource of the node, and how much.
    pub(super) fn bundles_with(&self, name: &str) -> impl Iterator<Item = (GroupId, u64)> {
        let with = self.bundles.here.iter();
        with.map(move |((group, _), bundle)| (*group, bundle.resources.parts(name)))
            .filter(|(_, parts)| *parts > 0)
    }

    /// SCHED-8 and SCHED-9; what bundles take is added to `used` and to the parts of GPUs.
    pub(super) fn check_bundles(&self, used: &mut ResourceSet, gpu_parts: &mut u64) {
        let mut added = ResourceSet::new();
        for (key, bundle) in &self.bundles.here {
            used.add(&bundle.resources);
            let whole = bundle.resources.parts(GPU).min(hoplo_base::resources::PARTS);
            *gpu_parts += bundle.gpu_ids.len() as u64 * whole;
            if bundle.is_here() {
                added.add(&bundle.adds(*key));
            }
            let inside = self.leases.values().filter(|lease| lease.bundle == Some(*key));
            let mut gpus = 0;
            for lease in inside {
                let of_gpus = lease.resources.iter().find(|(name, _)| is_gpu(name));
                let parts = of_gpus.map_or(0, |(_, parts)| parts);
                gpus += lease.gpus.len() as u64 * parts.min(hoplo_base::resources::PARTS);
            }
            assert_eq!(bundle.gpus.taken(), gpus, "SCHED-9: {key:?}");
        }
        let names = self.total.iter().filter(|(name, _)| GroupName::parse(name).is_some());
        let mut grouped = ResourceSet::new();
        names.for_each(|(name, parts)| grouped.set_parts(name, parts));
        assert_eq!(grouped, added, "SCHED-8");
        for lease in self.leases.values() {
            let named = match Asked::of(&lease.resources) {
                Asked::Plain => None,
                Asked::InGroup(asked) => Some((asked.group, asked.index.expect("SCHED-9"))),
                Asked::Mixed => panic!("SCHED-9: {}", lease.resources),
            };
            // Once it has started, an actor may hold nothing of it.
            assert!(named.is_none() || named == lease.bundle, "SCHED-9: {}", lease.resources);
            assert!(lease.bundle.is_none_or(|key| self.bundles.here.contains_key(&key)), "SCHED-9");
        }
        for (name, parts) in self.used.iter().filter(|(name, _)| !is_cpu(name)) {
            assert!(parts <= self.total.parts(name), "SCHED-2: {name}");
        }
    }
}

#[cfg(test)]
#[path = "bundles_tests.rs"]
mod tests;
