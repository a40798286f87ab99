//! Placement groups: which bundles are to be on which node. It runs at the head, which knows what each node has.
//!
//! ```text
//!   asked --> Pending --room for all--> planned: Prepare to each node --all have it--> Commit: Created
//!                ^                          |                                            |
//!                +---- one refuses: Release +                    a node of it dies or drains: Rescheduling,
//!                                                                its bundles are planned anew, the others stay
//!   removed, job ended: End to all nodes --> Removed
//! ```
//! A plan is made of what nodes said last, less what plans under way take. It may be wrong: then a node
//! refuses, and counts for nothing until it says something new. Nothing here looks again by time: a group that found no room is
//! looked at when a node has something else than it had, those that wait longest first. Whatever they want is not kept for
//! them: a smaller group that came later may get it.
//!
//! What a group had that ended counts as free from then on, although its nodes still have to say so: a group that is made right
//! after it would spread over fewer nodes. A node may have said what it has before it heard of the end, so the second word after it
//! counts alone. If that was too much, the node refuses, and its last word counts.
//!
//! Groups of an earlier head are in `recalled`.
//!
//! Each try of a group has a number, its *attempt*; an answer to an old one says nothing. Frames to a node are in order, so a
//! `Release` that follows a `Prepare` undoes it, whatever the node answered.
//!
//! # Invariants
//! - GRP-1: a bundle is at one node, or planned for one, or neither.
//! - GRP-2: a group is `Created` just when all its bundles are at nodes; a removed one has none, and no plan.
//! - GRP-3: the bundles of a strict group are at, or planned for, one node, or each another one.
//! - GRP-4: a name of a namespace is that of one group that is not removed.
//! - GRP-5: groups have bundles, and plans, at known nodes that do not drain only.

mod event;
mod plan;
mod recalled;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hoplo_base::bundles::{MARK, group_of};
use hoplo_base::limits::{
    GROUP_BUNDLES_MAX, GROUP_WATCHERS_MAX, GROUPS_MAX, GROUPS_REMEMBERED_MAX, GROUPS_TRIED_MAX,
};
use hoplo_base::resources::{GPU, PARTS};
use hoplo_base::{GroupId, JobId, NodeNumber, ProcessId, ResourceSet, shown};
use hoplo_wire::node::{GroupSpec, GroupState, GroupStrategy};

pub use event::{Effect, Event, GroupRow, Made, NodeView, Phase};
pub use recalled::Held;

use plan::{Room, Spot};
use recalled::Recalled;

#[derive(Debug, Default)]
pub struct Groups {
    groups: BTreeMap<GroupId, Group>,
    /// Pending and rescheduling ones without a plan, in the order in which they began to wait.
    waiting: BTreeMap<u64, GroupId>,
    names: BTreeMap<(String, String), GroupId>,
    nodes: BTreeMap<NodeNumber, Known>,
    /// Those that are about to leave.
    draining: BTreeSet<NodeNumber>,
    watches: BTreeMap<(ProcessId, u64), GroupId>,
    /// Removed ones, the first one longest.
    past: VecDeque<GroupId>,
    recalled: Recalled,
    next_turn: u64,
}

#[derive(Debug)]
struct Group {
    job: JobId,
    /// Who asked for it, by which request.
    asked: (ProcessId, u64),
    spec: GroupSpec,
    phase: Phase,
    placed: BTreeMap<u32, NodeNumber>,
    attempt: u32,
    plan: Option<Plan>,
    /// Its place among those that wait.
    turn: u64,
    waits: Option<Waits>,
    watchers: BTreeSet<(ProcessId, u64)>,
}

impl Group {
    /// What those hear who wait for it, if it is known what it waits for.
    fn waiting(&self, id: GroupId) -> Option<GroupState> {
        let reason = &self.waits.as_ref()?.reason;
        Some(GroupState::Waits { why: format!("placement {id} waits: {reason}") })
    }
}

/// A try under way.
#[derive(Debug)]
struct Plan {
    nodes: BTreeMap<u32, NodeNumber>,
    /// Nodes that did not answer yet.
    asked: BTreeSet<NodeNumber>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Waits {
    reason: String,
    infeasible: bool,
}

#[derive(Debug)]
struct Known {
    view: NodeView,
    /// What comes back of groups that ended: since it spoke last, and between its last words.
    returning: [ResourceSet; 2],
    /// It refused something since: what it said is not so.
    refused: bool,
}

impl Known {
    fn spot(&self, node: NodeNumber, free: ResourceSet) -> Spot {
        Spot { node, free, labels: self.view.labels.clone() }
    }

    /// As it said, and what is on its way back.
    fn free(&self) -> ResourceSet {
        let mut free = self.view.free.clone();
        for (name, parts) in self.returning.iter().flat_map(|returning| returning.iter()) {
            let most = self.view.total.parts(name);
            free.set_parts(name, free.parts(name).saturating_add(parts).min(most));
        }
        free
    }

    /// After this word of its own.
    fn sees(self, view: NodeView) -> Self {
        let [newest, _] = match view.free.covers(&self.free()) {
            true => [ResourceSet::new(), ResourceSet::new()],
            false => self.returning,
        };
        Self { view, returning: [ResourceSet::new(), newest], refused: false }
    }

    fn refuses(&mut self) {
        // What it was thought to have may have been too much.
        self.refused = self.returning.iter().all(ResourceSet::is_empty);
        self.returning = [ResourceSet::new(), ResourceSet::new()];
    }
}

impl Groups {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn handle(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Asked { from, request, group, job, spec } => {
                self.on_asked(from, request, group, job, *spec, effects);
            }
            Event::Awaits { nodes } => self.on_awaits(nodes),
            Event::Recalled { group, job, spec, asked } => {
                self.on_recalled(group, job, *spec, asked, effects);
            }
            Event::Told { node, held } => self.on_told(node, held, effects),
            Event::RemoveAsked { group } => {
                self.remove(group, "it was removed by remove_placement_group()", effects);
            }
            Event::NotWritten { group, why } => self.remove(group, &why, effects),
            Event::JobEnded { job } => self.on_job_ended(job, effects),
            Event::Watched { from, request, group } => {
                self.on_watched(from, request, group, effects);
            }
            Event::Unwatched { from, request } => self.unwatch((from, request)),
            Event::ProcessGone { process } => {
                let theirs = self.watches.range((process, 0)..=(process, u64::MAX));
                let theirs: Vec<_> = theirs.map(|(watch, _)| *watch).collect();
                theirs.into_iter().for_each(|watch| self.unwatch(watch));
            }
            Event::NodeSeen { node, view } => self.on_node_seen(node, view, effects),
            Event::NodeDrains { node } => {
                self.draining.insert(node);
                self.leave(node, effects);
            }
            Event::NodeGone { node } => {
                self.draining.remove(&node);
                self.nodes.remove(&node);
                self.leave(node, effects);
                self.has_told(node, effects);
            }
            Event::Answered { node, group, attempt, refused } => {
                self.on_answered(node, group, attempt, refused, effects);
            }
        }
    }

    /// Something waits for room: what nodes have is news.
    pub fn wants_news(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub fn rows(&self) -> impl Iterator<Item = GroupRow<'_>> {
        self.groups.keys().filter_map(|group| self.row(*group))
    }

    pub fn row(&self, id: GroupId) -> Option<GroupRow<'_>> {
        let group = self.groups.get(&id)?;
        Some(GroupRow {
            group: id,
            job: group.job,
            asked: group.asked,
            spec: &group.spec,
            phase: &group.phase,
            placed: &group.placed,
            waits: group.waits.as_ref().map(|waits| waits.reason.as_str()),
            infeasible: group.waits.as_ref().is_some_and(|waits| waits.infeasible),
        })
    }

    /// Of one that is no more, why.
    pub fn why_gone(&self, id: GroupId) -> Option<String> {
        match self.groups.get(&id).map(|group| &group.phase) {
            None => Some("it was removed long ago, or was never here".to_string()),
            Some(Phase::Removed { why }) => Some(why.clone()),
            Some(Phase::Pending | Phase::Created | Phase::Rescheduling) => None,
        }
    }

    /// Asserts the invariants of the module's doc.
    pub fn check(&self) {
        let mut waiting = BTreeMap::new();
        let mut names = BTreeMap::new();
        for (id, group) in &self.groups {
            let planned = group.plan.iter().flat_map(|plan| &plan.nodes);
            let planned: BTreeMap<u32, NodeNumber> =
                planned.map(|(at, node)| (*at, *node)).collect();
            assert!(planned.keys().all(|index| !group.placed.contains_key(index)), "GRP-1: {id}");
            let all: Vec<NodeNumber> =
                planned.values().chain(group.placed.values()).copied().collect();
            let distinct: BTreeSet<NodeNumber> = all.iter().copied().collect();
            match group.spec.strategy {
                GroupStrategy::StrictPack => assert!(distinct.len() <= 1, "GRP-3: {id}"),
                GroupStrategy::StrictSpread => assert_eq!(distinct.len(), all.len(), "GRP-3: {id}"),
                GroupStrategy::Pack | GroupStrategy::Spread => {}
            }
            let stays = |node: &NodeNumber| self.staying().any(|(known, _)| known == node);
            assert!(distinct.iter().all(stays), "GRP-5: {id}");
            let whole = group.placed.len() == group.spec.bundles.len();
            match &group.phase {
                Phase::Created => assert!(whole && group.plan.is_none(), "GRP-2: {id}"),
                Phase::Pending | Phase::Rescheduling => {
                    assert!(!whole || self.recalled.has(*id), "GRP-2: {id}");
                    if group.plan.is_none() && !self.recalled.has(*id) {
                        waiting.insert(group.turn, *id);
                    }
                }
                Phase::Removed { .. } => assert!(all.is_empty(), "GRP-2: {id}"),
            }
            if !matches!(group.phase, Phase::Removed { .. })
                && let Some(name) = group.spec.name()
            {
                let other = names.insert((group.spec.namespace.clone(), name.to_string()), *id);
                assert_eq!(other, None, "GRP-4: {id}");
            }
            for watch in &group.watchers {
                assert_eq!(self.watches.get(watch), Some(id));
            }
        }
        assert_eq!(self.names, names, "GRP-4");
        assert_eq!(self.waiting, waiting);
        assert_eq!(self.watches.len(), self.groups.values().map(|it| it.watchers.len()).sum());
    }

    fn on_asked(
        &mut self,
        from: ProcessId,
        request: u64,
        group: GroupId,
        job: JobId,
        spec: GroupSpec,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(group) = self.recalled.made_for((from, request)) {
            // An earlier head made it, and its answer did not arrive.
            let result = Ok(Made { group, never: None });
            return effects.push(Effect::AnswerCreate { to: from, request, result });
        }
        let refusal = refusal(&spec).or_else(|| self.no_place_for(&spec));
        let result = match refusal {
            Some(why) => Err(why),
            None => {
                self.begin(group, job, spec, (from, request), Phase::Pending);
                self.wait(group);
                effects.push(Effect::Begun { group });
                self.try_all(true, effects);
                let waits = self.groups[&group].waits.clone();
                let never = waits.filter(|waits| waits.infeasible).map(|waits| waits.reason);
                Ok(Made { group, never })
            }
        };
        effects.push(Effect::AnswerCreate { to: from, request, result });
    }

    fn no_place_for(&self, spec: &GroupSpec) -> Option<String> {
        if self.groups.len() - self.past.len() >= GROUPS_MAX {
            return Some(format!(
                "there are {GROUPS_MAX} placement groups: remove some by remove_placement_group()"
            ));
        }
        let name = (spec.namespace.clone(), spec.name()?.to_string());
        let other = self.names.get(&name)?;
        Some(format!(
            "the name {:?} is taken by placement {other}: look it up by get_placement_group(), or give another name",
            name.1
        ))
    }

    /// It is neither planned nor does it wait.
    fn begin(
        &mut self,
        id: GroupId,
        job: JobId,
        spec: GroupSpec,
        asked: (ProcessId, u64),
        phase: Phase,
    ) {
        if let Some(name) = spec.name() {
            self.names.insert((spec.namespace.clone(), name.to_string()), id);
        }
        let group = Group {
            job,
            asked,
            spec,
            phase,
            placed: BTreeMap::new(),
            attempt: 0,
            plan: None,
            turn: self.next_turn,
            waits: None,
            watchers: BTreeSet::new(),
        };
        let other = self.groups.insert(id, group);
        assert!(other.is_none(), "GRP-1: {id} is there already");
        self.next_turn += 1;
    }

    /// It waits for room, behind all others.
    fn wait(&mut self, id: GroupId) {
        let group = self.groups.get_mut(&id).expect("the caller looked it up");
        group.turn = self.next_turn;
        self.waiting.insert(self.next_turn, id);
        self.next_turn += 1;
    }

    fn on_job_ended(&mut self, job: JobId, effects: &mut Vec<Effect>) {
        let of_it =
            self.groups.iter().filter(|(_, group)| group.job == job && !group.spec.detached);
        let of_it: Vec<GroupId> = of_it.map(|(id, _)| *id).collect();
        for id in of_it {
            self.remove(id, "the job that created it ended", effects);
        }
    }

    fn remove(&mut self, id: GroupId, why: &str, effects: &mut Vec<Effect>) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        if let Phase::Removed { .. } = group.phase {
            return;
        }
        group.phase = Phase::Removed { why: why.to_string() };
        for (index, node) in std::mem::take(&mut group.placed) {
            if let Some(known) = self.nodes.get_mut(&node) {
                known.returning[0].add(&group.spec.bundles[index as usize].resources);
            }
        }
        group.waits = None;
        self.waiting.remove(&group.turn);
        self.recalled.forget(id);
        let attempt = group.attempt;
        if let Some(plan) = group.plan.take() {
            let asked: BTreeSet<NodeNumber> = plan.nodes.into_values().collect();
            effects.extend(asked.into_iter().map(|node| Effect::Release {
                node,
                group: id,
                attempt,
            }));
        }
        let state = GroupState::Removed { why: why.to_string() };
        let watchers = std::mem::take(&mut group.watchers);
        if let Some(name) = group.spec.name() {
            self.names.remove(&(group.spec.namespace.clone(), name.to_string()));
        }
        let end = |node: &NodeNumber| Effect::End { node: *node, group: id, why: why.to_string() };
        effects.extend(self.nodes.keys().map(end));
        for (to, request) in watchers {
            self.watches.remove(&(to, request));
            effects.push(Effect::AnswerWatch { to, request, state: state.clone() });
        }
        effects.push(Effect::Forget { group: id });
        self.past.push_back(id);
        if self.past.len() > GROUPS_REMEMBERED_MAX
            && let Some(oldest) = self.past.pop_front()
        {
            self.groups.remove(&oldest);
        }
    }

    fn on_watched(
        &mut self,
        from: ProcessId,
        request: u64,
        id: GroupId,
        effects: &mut Vec<Effect>,
    ) {
        let state = match self.why_gone(id) {
            Some(why) => Some(GroupState::Removed { why }),
            None if self.groups[&id].phase == Phase::Created => Some(GroupState::Created),
            None => None,
        };
        if let Some(state) = state {
            return effects.push(Effect::AnswerWatch { to: from, request, state });
        }
        let group = self.groups.get_mut(&id).expect("it was just looked up");
        // Whoever is one too many hears at its own deadline that it is not there.
        if group.watchers.len() < GROUP_WATCHERS_MAX && !self.watches.contains_key(&(from, request))
        {
            group.watchers.insert((from, request));
            self.watches.insert((from, request), id);
            if let Some(state) = group.waiting(id) {
                effects.push(Effect::AnswerWatch { to: from, request, state });
            }
        }
    }

    fn unwatch(&mut self, watch: (ProcessId, u64)) {
        let group = self.watches.remove(&watch);
        if let Some(group) = group.and_then(|id| self.groups.get_mut(&id)) {
            group.watchers.remove(&watch);
        }
    }

    fn on_node_seen(&mut self, node: NodeNumber, view: NodeView, effects: &mut Vec<Effect>) {
        let before = self.nodes.get(&node);
        let other =
            before.is_none_or(|it| it.view.total != view.total || it.view.labels != view.labels);
        let known = match self.nodes.remove(&node) {
            Some(known) => known.sees(view),
            None => Known { view, returning: Default::default(), refused: false },
        };
        self.nodes.insert(node, known);
        self.try_all(other, effects);
    }

    /// No group has a bundle there any more, and what it had there is planned anew. What a node that drains still has of them ends
    /// with it.
    fn leave(&mut self, node: NodeNumber, effects: &mut Vec<Effect>) {
        let ids: Vec<GroupId> = self.groups.keys().copied().collect();
        for id in ids {
            let group = self.groups.get_mut(&id).expect("it was just listed");
            let had = group.placed.len();
            group.placed.retain(|_, at| *at != node);
            let lost = had > group.placed.len();
            let planned =
                group.plan.as_ref().is_some_and(|plan| plan.nodes.values().any(|at| *at == node));
            if planned || (lost && group.plan.is_some()) {
                self.give_up(id, effects);
            } else if lost && group.phase == Phase::Created {
                self.wait(id);
            }
            let group = self.groups.get_mut(&id).expect("it was just listed");
            if lost {
                group.phase = Phase::Rescheduling;
                effects.push(Effect::Save { group: id });
            }
        }
        self.try_all(true, effects);
    }

    /// The plan under way comes to nothing.
    fn give_up(&mut self, id: GroupId, effects: &mut Vec<Effect>) {
        let group = self.groups.get_mut(&id).expect("the caller looked it up");
        let plan = group.plan.take().expect("the caller saw the plan");
        let attempt = group.attempt;
        let nodes: BTreeSet<NodeNumber> = plan.nodes.into_values().collect();
        let known = nodes.into_iter().filter(|node| self.nodes.contains_key(node));
        effects.extend(known.map(|node| Effect::Release { node, group: id, attempt }));
        // It keeps its place: it was its turn.
        self.waiting.insert(group.turn, id);
    }

    fn on_answered(
        &mut self,
        node: NodeNumber,
        id: GroupId,
        attempt: u32,
        refused: Option<String>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(group) = self.groups.get_mut(&id).filter(|group| group.attempt == attempt) else {
            return;
        };
        let Some(plan) = &mut group.plan else { return };
        if !plan.asked.remove(&node) {
            return;
        }
        if let Some(why) = refused {
            if let Some(known) = self.nodes.get_mut(&node) {
                known.refuses();
            }
            self.give_up(id, effects);
            self.say(id, Some(Waits { reason: why, infeasible: false }), effects);
            return self.try_all(false, effects);
        }
        if plan.asked.is_empty() {
            let plan = group.plan.take().expect("it was just looked at");
            let nodes: BTreeSet<NodeNumber> = plan.nodes.values().copied().collect();
            effects.extend(nodes.into_iter().map(|node| Effect::Commit {
                node,
                group: id,
                attempt,
            }));
            group.placed.extend(plan.nodes);
            self.created(id, effects);
        }
    }

    /// All its bundles are at nodes.
    fn created(&mut self, id: GroupId, effects: &mut Vec<Effect>) {
        let group = self.groups.get_mut(&id).expect("the caller looked it up");
        group.phase = Phase::Created;
        for (to, request) in std::mem::take(&mut group.watchers) {
            self.watches.remove(&(to, request));
            effects.push(Effect::AnswerWatch { to, request, state: GroupState::Created });
        }
        self.say(id, None, effects);
        effects.push(Effect::Save { group: id });
    }

    /// Looks for room. `other`: nodes are not those that they were, so what could never be may be now.
    fn try_all(&mut self, other: bool, effects: &mut Vec<Effect>) {
        if self.waiting.is_empty() {
            return;
        }
        let looked_for =
            |id: &GroupId| other || !self.groups[id].waits.as_ref().is_some_and(|it| it.infeasible);
        let ids = self.waiting.values().copied().filter(looked_for);
        let ids: Vec<GroupId> = ids.take(GROUPS_TRIED_MAX).collect();
        let mut room = self.room(false);
        for id in ids {
            let group = &self.groups[&id];
            match plan::place(&group.spec, &group.placed, &room) {
                Some(nodes) => {
                    for (index, node) in &nodes {
                        let spot = room.get_mut(node).expect("it was planned with");
                        spot.free.subtract(&group.spec.bundles[*index as usize].resources);
                    }
                    self.ask(id, nodes, effects);
                }
                None if self.fits_by_what_was_said(group) => {} // Who refused it said why.
                None => {
                    let empty = self.empty_room();
                    let infeasible =
                        self.has_heard_all() && plan::is_never(&group.spec, &group.placed, &empty);
                    let reason = match infeasible {
                        true => plan::lack(&group.spec, &group.placed, &empty, ""),
                        false => plan::lack(&group.spec, &group.placed, &self.room(true), " free"),
                    };
                    self.say(id, Some(Waits { reason, infeasible }), effects);
                }
            }
        }
    }

    fn ask(&mut self, id: GroupId, nodes: BTreeMap<u32, NodeNumber>, effects: &mut Vec<Effect>) {
        let group = self.groups.get_mut(&id).expect("it was just looked up");
        self.waiting.remove(&group.turn);
        group.attempt += 1;
        let attempt = group.attempt;
        let asked: BTreeSet<NodeNumber> = nodes.values().copied().collect();
        for node in &asked {
            let there = nodes.iter().filter(|(_, at)| *at == node);
            let bundles = there
                .map(|(index, _)| (*index, group.spec.bundles[*index as usize].resources.clone()));
            let bundles = bundles.collect();
            effects.push(Effect::Prepare { node: *node, group: id, attempt, bundles });
        }
        group.plan = Some(Plan { nodes, asked });
    }

    fn say(&mut self, id: GroupId, waits: Option<Waits>, effects: &mut Vec<Effect>) {
        let group = self.groups.get_mut(&id).expect("the caller looked it up");
        if group.waits != waits {
            let reason = waits.as_ref().map(|waits| waits.reason.clone());
            group.waits = waits;
            if let Some(state) = group.waiting(id) {
                let answer = |watch: &(ProcessId, u64)| {
                    let (to, request) = *watch;
                    Effect::AnswerWatch { to, request, state: state.clone() }
                };
                effects.extend(group.watchers.iter().map(answer));
            }
            for node in self.nodes.keys() {
                effects.push(Effect::Waits { node: *node, group: id, reason: reason.clone() });
            }
        }
    }

    fn fits_by_what_was_said(&self, group: &Group) -> bool {
        let refused = self.nodes.values().any(|known| known.refused);
        refused && plan::place(&group.spec, &group.placed, &self.room(true)).is_some()
    }

    /// What can be planned with; `all`: if nodes that refused are taken at their word.
    fn room(&self, all: bool) -> Room {
        let usable = self.staying().filter(|(_, known)| all || !known.refused);
        let mut room: Room =
            usable.map(|(node, known)| (*node, known.spot(*node, known.free()))).collect();
        for group in self.groups.values() {
            for (index, node) in group.plan.iter().flat_map(|plan| &plan.nodes) {
                let Some(spot) = room.get_mut(node) else { continue };
                for (name, parts) in group.spec.bundles[*index as usize].resources.iter() {
                    spot.free.set_parts(name, spot.free.parts(name).saturating_sub(parts));
                }
            }
        }
        room
    }

    fn empty_room(&self) -> Room {
        let spots = self
            .staying()
            .map(|(node, known)| (*node, known.spot(*node, known.view.total.clone())));
        spots.collect()
    }

    /// A new head has not, for a moment: what those have that did not speak yet may be enough.
    fn has_heard_all(&self) -> bool {
        let spoke = |known: &Known| !known.view.total.is_empty();
        self.recalled.has_heard_all() && self.nodes.values().all(spoke)
    }

    /// Nodes that do not drain.
    fn staying(&self) -> impl Iterator<Item = (&NodeNumber, &Known)> {
        self.nodes.iter().filter(|(node, _)| !self.draining.contains(node))
    }
}

/// Why nobody can want that.
fn refusal(spec: &GroupSpec) -> Option<String> {
    if spec.bundles.is_empty() {
        return Some(
            "a placement group needs a bundle: give bundles=[{\"CPU\": 1}, ...]".to_string(),
        );
    }
    if spec.bundles.len() > GROUP_BUNDLES_MAX {
        let count = spec.bundles.len();
        return Some(format!(
            "a placement group may have {GROUP_BUNDLES_MAX} bundles, not {count}"
        ));
    }
    for (index, bundle) in spec.bundles.iter().enumerate() {
        let resources: &ResourceSet = &bundle.resources;
        if resources.is_empty() {
            return Some(format!(
                "bundle {index} needs nothing: give it an amount, as {{\"CPU\": 1}}"
            ));
        }
        if group_of(resources).is_some() || resources.parts(MARK) > 0 {
            return Some(format!(
                "bundle {index} ({}) asks for what placement groups add: give names of a node's own resources",
                shown(&resources.to_string())
            ));
        }
        let gpus = resources.parts(GPU);
        if gpus > PARTS && !gpus.is_multiple_of(PARTS) {
            return Some(format!(
                "bundle {index} needs GPU {}: several GPUs go whole",
                resources.units(GPU)
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests;
