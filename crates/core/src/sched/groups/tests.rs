use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::{GroupId, JobId, NodeNumber, ProcessId, ResourceSet};
use hoplo_wire::node::{
    BundleSpec, GroupSpec, GroupState, GroupStrategy, NODE_ID_LABEL, NODE_ID_LABEL_OF_RAY,
};
use proptest::prelude::*;

use super::*;

fn node(number: u32) -> NodeNumber {
    NodeNumber::alone(number)
}

fn group(count: u64) -> GroupId {
    GroupId::new(node(0), count)
}

fn process(count: u32) -> ProcessId {
    ProcessId::new(node(0), count, count as u16)
}

fn job() -> JobId {
    JobId::new(node(0), 1)
}

fn cpus(amount: f64) -> ResourceSet {
    ResourceSet::from_units([("CPU", amount)]).unwrap()
}

fn spec(strategy: GroupStrategy, bundles: &[f64]) -> GroupSpec {
    let bundle = |amount: &f64| BundleSpec { resources: cpus(*amount), labels: BTreeMap::new() };
    GroupSpec {
        name: String::new(),
        namespace: "here".into(),
        detached: false,
        strategy,
        bundles: bundles.iter().map(bundle).collect(),
    }
}

/// The groups, and nodes that do what they are asked.
#[derive(Default)]
struct World {
    groups: Groups,
    /// What each has, and what is free.
    nodes: BTreeMap<NodeNumber, (ResourceSet, ResourceSet)>,
    /// What is on its way to each node, and answers back.
    orders: Vec<Effect>,
    prepared: BTreeMap<(GroupId, u32), (NodeNumber, u32, bool, ResourceSet)>,
    said: Vec<Effect>,
}

impl World {
    fn with(free: &[f64]) -> Self {
        let mut world = Self::default();
        for (at, amount) in free.iter().enumerate() {
            world.nodes.insert(node(at as u32), (cpus(*amount), cpus(*amount)));
            world.sees(node(at as u32));
        }
        world
    }

    fn hears(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.groups.handle(event, &mut effects);
        self.groups.check();
        for effect in effects {
            match effect {
                Effect::Prepare { .. }
                | Effect::Commit { .. }
                | Effect::Release { .. }
                | Effect::End { .. } => self.orders.push(effect),
                other => self.said.push(other),
            }
        }
    }

    fn sees(&mut self, at: NodeNumber) {
        let (total, free) = self.nodes[&at].clone();
        self.hears(Event::NodeSeen {
            node: at,
            view: NodeView { total, free, labels: BTreeMap::new() },
        });
    }

    fn asks(&mut self, count: u64, spec: GroupSpec) {
        let event = Event::Asked {
            from: process(1),
            request: count,
            group: group(count),
            job: job(),
            spec: Box::new(spec),
        };
        self.hears(event);
    }

    fn free(&mut self, key: (GroupId, u32)) {
        let (at, _, _, resources) = self.prepared.remove(&key).unwrap();
        if let Some((_, free)) = self.nodes.get_mut(&at) {
            free.add(&resources);
        }
    }

    /// Carries out the first order.
    fn obeys(&mut self) -> bool {
        if self.orders.is_empty() {
            return false;
        }
        match self.orders.remove(0) {
            Effect::Prepare { node: at, group, attempt, bundles } => {
                let Some((_, free)) = self.nodes.get_mut(&at) else { return true };
                let mut sum = ResourceSet::new();
                bundles.iter().for_each(|(_, resources)| sum.add(resources));
                let fits = free.covers(&sum);
                if fits {
                    free.subtract(&sum);
                    for (index, resources) in bundles {
                        let other =
                            self.prepared.insert((group, index), (at, attempt, false, resources));
                        assert!(other.is_none(), "bundle {index} of {group} is on two nodes");
                    }
                }
                let refused = (!fits).then(|| "it is full".to_string());
                self.hears(Event::Answered { node: at, group, attempt, refused });
                self.sees(at);
            }
            Effect::Commit { node: at, group: of, attempt } => {
                for ((group, _), (there, made, committed, _)) in &mut self.prepared {
                    *committed |= (*group, *there, *made) == (of, at, attempt);
                }
            }
            Effect::Release { node: at, group: of, attempt } => {
                let gone =
                    self.prepared.iter().filter(|((group, _), (there, made, committed, _))| {
                        (*group, *there, *made) == (of, at, attempt) && !committed
                    });
                let gone: Vec<_> = gone.map(|(key, _)| *key).collect();
                gone.into_iter().for_each(|key| self.free(key));
                if self.nodes.contains_key(&at) {
                    self.sees(at);
                }
            }
            Effect::End { node: at, group: of, .. } => {
                let gone = self
                    .prepared
                    .iter()
                    .filter(|((group, _), (there, ..))| *group == of && *there == at);
                let gone: Vec<_> = gone.map(|(key, _)| *key).collect();
                gone.into_iter().for_each(|key| self.free(key));
                if self.nodes.contains_key(&at) {
                    self.sees(at);
                }
            }
            other => panic!("{other:?} is no order"),
        }
        true
    }

    fn settles(&mut self) {
        for _ in 0..10_000 {
            if !self.obeys() {
                return;
            }
        }
        panic!("it spins");
    }

    fn dies(&mut self, at: NodeNumber) {
        self.nodes.remove(&at);
        self.prepared.retain(|_, (there, ..)| *there != at);
        self.orders.retain(|order| match order {
            Effect::Prepare { node, .. }
            | Effect::Commit { node, .. }
            | Effect::Release { node, .. }
            | Effect::End { node, .. } => *node != at,
            _ => true,
        });
        self.hears(Event::NodeGone { node: at });
    }

    /// Another head goes on with what the tables have. Orders that are on their way are lost, and nodes free what was only prepared.
    fn head_dies(&mut self) {
        self.orders.clear();
        let prepared = self.prepared.iter().filter(|(_, (_, _, committed, _))| !committed);
        let prepared: Vec<_> = prepared.map(|(key, _)| *key).collect();
        prepared.into_iter().for_each(|key| self.free(key));
        let earlier = std::mem::take(&mut self.groups);
        self.hears(Event::Awaits { nodes: self.nodes.keys().copied().collect() });
        for row in earlier.rows().filter(|row| !matches!(row.phase, Phase::Removed { .. })) {
            let (group, job, spec) = (row.group, row.job, Box::new(row.spec.clone()));
            self.hears(Event::Recalled { group, job, spec, asked: row.asked });
        }
    }

    /// To the new head.
    fn tells(&mut self, at: NodeNumber, held: Held) {
        let mut bundles: BTreeMap<GroupId, Vec<u32>> = BTreeMap::new();
        for ((group, index), _) in self.prepared.iter().filter(|(_, (there, ..))| *there == at) {
            bundles.entry(*group).or_default().push(*index);
        }
        let held = Held { bundles: bundles.into_iter().collect(), ..held };
        self.hears(Event::Told { node: at, held });
        self.sees(at);
    }

    fn all_tell(&mut self) {
        self.all_tell_but(node(u32::MAX >> 8));
    }

    fn all_tell_but(&mut self, silent: NodeNumber) {
        let jobs = BTreeSet::from([job()]);
        for at in self.nodes.keys().copied().filter(|at| *at != silent).collect::<Vec<_>>() {
            self.tells(at, Held { jobs: jobs.clone(), ..Held::default() });
        }
    }

    fn phase(&self, count: u64) -> &'static str {
        self.groups.row(group(count)).unwrap().phase.name()
    }

    fn waits(&self, count: u64) -> String {
        self.groups.row(group(count)).unwrap().waits.unwrap_or_default().to_string()
    }

    fn answer(&self, request: u64) -> Result<Made, String> {
        let answer = self.said.iter().find_map(|effect| match effect {
            Effect::AnswerCreate { request: of, result, .. } if *of == request => {
                Some(result.clone())
            }
            _ => None,
        });
        answer.expect("it is answered")
    }

    /// What it heard last.
    fn watched(&self, request: u64) -> Option<GroupState> {
        self.said.iter().rev().find_map(|effect| match effect {
            Effect::AnswerWatch { request: of, state, .. } if *of == request => Some(state.clone()),
            _ => None,
        })
    }
}

/// Three bundles went to two nodes: what the group before it had given back was not counted before its nodes said so.
#[test]
fn a_group_that_follows_one_that_ended_spread_over_fewer_nodes() {
    let mut world = World::with(&[2.0, 1.0, 1.0]);
    for count in 1..=5 {
        world.asks(count, spec(GroupStrategy::Spread, &[1.0, 1.0, 1.0]));
        world.settles();
        let row = world.groups.row(group(count)).unwrap();
        let nodes: BTreeSet<NodeNumber> = row.placed.values().copied().collect();
        assert_eq!((row.phase.name(), nodes.len()), ("CREATED", 3), "group {count}");
        world.hears(Event::RemoveAsked { group: group(count) });
        // What these nodes say crosses the end of the group.
        for at in 1..3 {
            world.sees(node(at));
        }
    }
}

/// The node of an ended group still has what ran there: it refuses, and what it said last is believed.
#[test]
fn what_does_not_come_back_is_not_planned_with_for_ever() {
    let mut world = World::with(&[1.0, 1.0]);
    world.asks(1, spec(GroupStrategy::StrictPack, &[1.0]));
    world.settles();
    let at = world.groups.row(group(1)).unwrap().placed[&0];
    world.hears(Event::RemoveAsked { group: group(1) });
    world.orders.clear(); // its worker takes its time
    world.asks(2, spec(GroupStrategy::StrictSpread, &[1.0, 1.0]));
    world.settles();
    assert_eq!(world.groups.row(group(2)).unwrap().phase.name(), "PENDING");
    world.free((group(1), 0));
    world.sees(at);
    world.settles();
    assert_eq!(world.groups.row(group(2)).unwrap().phase.name(), "CREATED");
}

#[test]
fn a_bundle_that_named_its_node_by_the_label_that_each_has_waited_for_ever() {
    for label in [NODE_ID_LABEL, NODE_ID_LABEL_OF_RAY] {
        let mut world = World::with(&[4.0, 2.0, 4.0]);
        let mut one = spec(GroupStrategy::Pack, &[1.0]);
        one.bundles[0].labels.insert(label.to_string(), node(1).hex());
        world.asks(1, one);
        assert!(world.obeys());
        assert_eq!(world.prepared.values().map(|it| it.0).collect::<Vec<_>>(), [node(1)]);
    }
}

#[test]
fn what_nobody_can_want_is_refused() {
    let mut world = World::with(&[4.0]);
    let mut empty = spec(GroupStrategy::Pack, &[1.0]);
    empty.bundles.push(BundleSpec::default());
    let mut forged = spec(GroupStrategy::Pack, &[1.0]);
    forged.bundles[0].resources.set_parts(&hoplo_base::bundles::any_name("CPU", group(9)), 1);
    let mut torn = spec(GroupStrategy::Pack, &[1.0]);
    torn.bundles[0].resources.set_parts("GPU", PARTS + PARTS / 2);
    let cases = [
        (spec(GroupStrategy::Pack, &[]), "needs a bundle"),
        (empty, "bundle 1 needs nothing"),
        (forged, "what placement groups add"),
        (torn, "several GPUs go whole"),
        (spec(GroupStrategy::Pack, &[0.1; GROUP_BUNDLES_MAX + 1]), "may have"),
    ];
    for (count, (spec, why)) in (1..).zip(cases) {
        world.asks(count, spec);
        let refused = world.answer(count).unwrap_err();
        assert!(refused.contains(why), "{refused}");
        assert!(world.groups.row(group(count)).is_none());
    }
}

#[test]
fn a_name_is_taken_until_its_group_is_removed() {
    let mut world = World::with(&[4.0]);
    let named = GroupSpec { name: "mine".into(), ..spec(GroupStrategy::Pack, &[1.0]) };
    world.asks(1, named.clone());
    world.asks(2, named.clone());
    let refused = world.answer(2).unwrap_err();
    assert!(refused.contains("\"mine\" is taken by placement group:1"), "{refused}");
    world.asks(3, GroupSpec { namespace: "elsewhere".into(), ..named.clone() });
    assert!(world.answer(3).is_ok());
    world.hears(Event::RemoveAsked { group: group(1) });
    world.asks(4, named);
    assert!(world.answer(4).is_ok());
}

#[test]
fn a_group_is_created_when_all_nodes_have_their_part() {
    let mut world = World::with(&[2.0, 2.0]);
    world.asks(1, spec(GroupStrategy::StrictSpread, &[2.0, 1.0]));
    world.hears(Event::Watched { from: process(1), request: 10, group: group(1) });
    assert_eq!(world.phase(1), "PENDING");
    assert!(world.obeys());
    assert_eq!((world.phase(1), world.watched(10)), ("PENDING", None));
    world.settles();
    assert_eq!((world.phase(1), world.watched(10)), ("CREATED", Some(GroupState::Created)));
    assert!(world.prepared.values().all(|(_, _, committed, _)| *committed));
    world.hears(Event::RemoveAsked { group: group(1) });
    world.settles();
    assert!(world.prepared.is_empty());
    assert_eq!(world.phase(1), "REMOVED");
    world.hears(Event::Watched { from: process(1), request: 11, group: group(1) });
    assert!(
        matches!(world.watched(11), Some(GroupState::Removed { why }) if why.contains("remove_placement_group"))
    );
}

#[test]
fn one_refusal_releases_what_others_prepared_and_nothing_is_tried_until_a_node_changes() {
    let mut world = World::with(&[2.0, 2.0]);
    // The head does not know yet that node 1 is full.
    world.nodes.get_mut(&node(1)).unwrap().1 = cpus(0.0);
    world.asks(1, spec(GroupStrategy::StrictSpread, &[2.0, 2.0]));
    world.settles();
    assert_eq!(world.phase(1), "PENDING");
    assert!(world.prepared.is_empty(), "{:?}", world.prepared);
    assert_eq!(world.nodes[&node(0)].1, cpus(2.0));
    world.nodes.get_mut(&node(1)).unwrap().1 = cpus(2.0);
    world.sees(node(1));
    world.settles();
    assert_eq!(world.phase(1), "CREATED");
}

#[test]
fn why_it_waits_is_told_to_every_node_and_who_asked_hears_what_can_never_be() {
    let mut world = World::with(&[2.0, 1.0]);
    world.asks(1, spec(GroupStrategy::Pack, &[1.0, 4.0]));
    let never = "bundle 1 needs CPU 4, nearest node has 2".to_string();
    assert_eq!(world.answer(1).unwrap().never, Some(never.clone()));
    for at in [node(0), node(1)] {
        let told = Effect::Waits { node: at, group: group(1), reason: Some(never.clone()) };
        assert!(world.said.contains(&told));
    }
    // A larger node comes.
    world.nodes.insert(node(2), (cpus(8.0), cpus(8.0)));
    world.sees(node(2));
    world.settles();
    assert_eq!((world.phase(1), world.waits(1)), ("CREATED", String::new()));
    assert!(world.said.contains(&Effect::Waits { node: node(0), group: group(1), reason: None }));
    // It can be, later.
    world.asks(2, spec(GroupStrategy::StrictPack, &[8.0]));
    assert_eq!(world.answer(2).unwrap().never, None);
    assert_eq!(world.waits(2), "bundle 0 needs CPU 8, nearest node has 3 free");
}

#[test]
fn bundles_of_a_dead_node_are_placed_elsewhere_and_the_others_stay() {
    let mut world = World::with(&[2.0, 2.0]);
    world.asks(1, spec(GroupStrategy::StrictSpread, &[2.0, 2.0]));
    world.settles();
    let before = world.groups.row(group(1)).unwrap().placed.clone();
    world.dies(node(1));
    assert_eq!(world.phase(1), "RESCHEDULING");
    world.nodes.insert(node(2), (cpus(2.0), cpus(2.0)));
    world.sees(node(2));
    world.settles();
    assert_eq!(world.phase(1), "CREATED");
    let after = world.groups.row(group(1)).unwrap().placed.clone();
    for (index, at) in before {
        assert_eq!(after[&index], if at == node(1) { node(2) } else { at });
    }
}

#[test]
fn bundles_of_a_node_that_drains_are_placed_elsewhere_before_it_leaves() {
    let mut world = World::with(&[2.0, 2.0]);
    world.asks(1, spec(GroupStrategy::StrictSpread, &[2.0, 2.0]));
    world.settles();
    // What it has of them ends with it.
    world.prepared.retain(|_, (there, ..)| *there != node(1));
    world.hears(Event::NodeDrains { node: node(1) });
    assert_eq!(world.phase(1), "RESCHEDULING");
    // It has room, and is not asked.
    world.nodes.get_mut(&node(1)).unwrap().1 = cpus(2.0);
    world.sees(node(1));
    world.settles();
    assert_eq!(world.phase(1), "RESCHEDULING");
    world.nodes.insert(node(2), (cpus(2.0), cpus(2.0)));
    world.sees(node(2));
    world.settles();
    assert_eq!(world.phase(1), "CREATED");
    let placed = world.groups.row(group(1)).unwrap().placed.values().copied();
    assert_eq!(placed.collect::<BTreeSet<_>>(), BTreeSet::from([node(0), node(2)]));
    // A group that ends has nothing left where it was.
    world.hears(Event::RemoveAsked { group: group(1) });
    let ends = |order: &Effect| matches!(order, Effect::End { node: at, .. } if *at == node(1));
    assert!(world.orders.iter().any(ends));
}

#[test]
fn a_node_that_drains_while_it_is_asked_releases_what_it_prepared() {
    let mut world = World::with(&[2.0, 2.0]);
    world.asks(1, spec(GroupStrategy::StrictSpread, &[2.0, 2.0]));
    assert!(world.obeys());
    world.hears(Event::NodeDrains { node: node(1) });
    world.settles();
    assert_eq!(world.phase(1), "PENDING");
    assert!(world.prepared.is_empty());
}

#[test]
fn a_node_that_dies_while_it_is_asked_releases_the_others() {
    let mut world = World::with(&[2.0, 2.0]);
    world.asks(1, spec(GroupStrategy::StrictSpread, &[2.0, 2.0]));
    assert!(world.obeys());
    world.dies(node(1));
    world.settles();
    assert_eq!(world.phase(1), "PENDING");
    assert!(world.prepared.is_empty());
}

#[test]
fn a_group_ends_with_its_job_unless_it_is_detached() {
    let mut world = World::with(&[4.0]);
    world.asks(1, spec(GroupStrategy::Pack, &[1.0]));
    world.asks(2, GroupSpec { detached: true, ..spec(GroupStrategy::Pack, &[1.0]) });
    world.asks(3, spec(GroupStrategy::Pack, &[9.0]));
    world.settles();
    world.hears(Event::Watched { from: process(1), request: 10, group: group(3) });
    world.hears(Event::JobEnded { job: job() });
    world.settles();
    assert_eq!([1, 2, 3].map(|count| world.phase(count)), ["REMOVED", "CREATED", "REMOVED"]);
    assert!(matches!(world.watched(10), Some(GroupState::Removed { .. })));
    assert_eq!(world.nodes[&node(0)].1, cpus(3.0));
}

#[test]
fn who_waits_no_more_is_not_answered() {
    let mut world = World::with(&[1.0]);
    world.asks(1, spec(GroupStrategy::Pack, &[2.0]));
    for request in 10..13 {
        world.hears(Event::Watched { from: process(request as u32 % 2), request, group: group(1) });
    }
    world.hears(Event::Unwatched { from: process(0), request: 10 });
    world.hears(Event::ProcessGone { process: process(1) });
    world.hears(Event::RemoveAsked { group: group(1) });
    for request in [10, 11] {
        assert!(matches!(world.watched(request), Some(GroupState::Waits { .. })), "{request}");
    }
    assert!(matches!(world.watched(12), Some(GroupState::Removed { .. })));
}

#[test]
fn who_waits_hears_for_what_each_time_that_it_is_something_else() {
    let mut world = World::with(&[2.0]);
    world.asks(1, spec(GroupStrategy::Pack, &[2.0]));
    world.hears(Event::Watched { from: process(1), request: 10, group: group(1) });
    assert_eq!(world.watched(10), None, "it is being placed");
    world.asks(2, spec(GroupStrategy::Pack, &[2.0]));
    world.hears(Event::Watched { from: process(1), request: 11, group: group(2) });
    world.settles();
    assert_eq!(world.watched(10), Some(GroupState::Created));
    let waits =
        |why: &str| Some(GroupState::Waits { why: format!("placement group:2 waits: {why}") });
    assert_eq!(world.watched(11), waits("bundle 0 needs CPU 2, nearest node has 0 free"));
    world.nodes.insert(node(0), (cpus(1.0), cpus(0.0)));
    world.sees(node(0));
    assert_eq!(world.watched(11), waits("bundle 0 needs CPU 2, nearest node has 1"));
    let said = |effect: &&Effect| matches!(effect, Effect::AnswerWatch { request: 11, .. });
    let times = world.said.iter().filter(said).count();
    world.sees(node(0));
    assert_eq!(world.said.iter().filter(said).count(), times, "it is the same");
}

/// The new head placed it once more, and what nodes had of it before was reserved for ever.
#[test]
fn a_group_of_an_earlier_head_keeps_the_bundles_that_nodes_have() {
    let mut world = World::with(&[2.0, 2.0]);
    world.asks(1, spec(GroupStrategy::StrictSpread, &[1.0, 2.0]));
    world.settles();
    world.head_dies();
    world.hears(Event::Watched { from: process(1), request: 10, group: group(1) });
    let jobs = BTreeSet::from([job()]);
    world.tells(node(0), Held { jobs: jobs.clone(), ..Held::default() });
    assert_eq!((world.phase(1), world.watched(10)), ("RESCHEDULING", None), "a node did not tell");
    world.tells(node(1), Held { jobs, ..Held::default() });
    assert_eq!((world.phase(1), world.watched(10)), ("CREATED", Some(GroupState::Created)));
    assert_eq!(world.orders, [], "nobody has anything to do");
}

/// It said so of groups that were placed a moment later.
#[test]
fn a_new_head_calls_no_group_impossible_before_all_nodes_have_said_what_they_have() {
    let mut world = World::with(&[4.0]);
    world.head_dies();
    let never = |world: &World, count| world.answer(count).unwrap().never;
    world.asks(1, spec(GroupStrategy::Pack, &[2.0]));
    assert_eq!(never(&world, 1), None);
    world.hears(Event::Told { node: node(0), held: Held::default() });
    world.asks(2, spec(GroupStrategy::Pack, &[2.0]));
    assert_eq!(never(&world, 2), None);
    world.sees(node(0));
    world.settles();
    assert_eq!((world.phase(1), world.phase(2)), ("CREATED", "CREATED"));
    world.asks(3, spec(GroupStrategy::Pack, &[8.0]));
    assert!(never(&world, 3).is_some());
}

#[test]
fn a_group_of_an_earlier_head_gets_anew_just_what_no_node_has() {
    let mut world = World::with(&[1.0, 1.0, 1.0]);
    world.asks(1, spec(GroupStrategy::StrictSpread, &[1.0, 1.0]));
    world.settles();
    let (lost, stays) = (world.prepared[&(group(1), 0)].0, world.prepared[&(group(1), 1)].0);
    world.head_dies();
    world.all_tell_but(lost);
    assert_eq!(world.orders, []);
    world.dies(lost);
    world.settles();
    assert_eq!(world.phase(1), "CREATED");
    assert_eq!(world.prepared[&(group(1), 1)].0, stays);
    assert_ne!(world.prepared[&(group(1), 0)].0, stays);
}

#[test]
fn what_ended_while_there_was_no_head_ends_when_nodes_tell() {
    let mut world = World::with(&[4.0]);
    (1..=3).for_each(|count| world.asks(count, spec(GroupStrategy::Pack, &[1.0])));
    let detached = GroupSpec { detached: true, ..spec(GroupStrategy::Pack, &[1.0]) };
    world.asks(4, detached);
    world.settles();
    world.head_dies();
    world.groups.recalled.forget(group(3)); // It was never written.
    world.groups.groups.remove(&group(3));
    // The job ended, and before that removed the first one. A process of it asks for a group that it did not hear of.
    let removed = vec![group(1)];
    world.tells(node(0), Held { removed, ..Held::default() });
    world.settles();
    assert_eq!((world.phase(1), world.phase(2), world.phase(4)), ("REMOVED", "REMOVED", "CREATED"));
    assert!(world.groups.why_gone(group(1)).unwrap().contains("remove_placement_group"));
    assert_eq!(world.prepared.keys().collect::<Vec<_>>(), [&(group(4), 0)]);
}

#[test]
fn who_did_not_hear_that_its_group_was_made_gets_that_one_from_the_next_head() {
    let mut world = World::with(&[4.0]);
    let named = GroupSpec { name: "mine".into(), ..spec(GroupStrategy::Pack, &[1.0]) };
    world.asks(1, named.clone());
    world.head_dies();
    world.said.clear();
    let (from, request, job) = (process(1), 1, job());
    let again = Event::Asked { from, request, group: group(2), job, spec: Box::new(named) };
    world.hears(again);
    assert_eq!(world.answer(1), Ok(Made { group: group(1), never: None }));
    world.all_tell();
    world.settles();
    assert_eq!(world.phase(1), "CREATED");
}

#[test]
fn those_that_are_no_more_are_forgotten_in_the_end() {
    let mut world = World::with(&[1.0]);
    let count = GROUPS_REMEMBERED_MAX as u64 + 1;
    for at in 1..=count {
        world.asks(at, spec(GroupStrategy::Pack, &[1.0]));
        world.hears(Event::RemoveAsked { group: group(at) });
    }
    assert!(world.groups.row(group(1)).is_none());
    assert!(world.groups.why_gone(group(1)).unwrap().contains("long ago"));
    assert_eq!(world.phase(count), "REMOVED");
}

#[derive(Clone, Debug)]
enum Step {
    Ask { strategy: usize, bundles: Vec<u8> },
    Remove(u64),
    EndJob,
    Obey(usize),
    Die(u32),
    Come(u32, u8),
    Use(u32, u8),
    HeadDies,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..4usize, prop::collection::vec(1..4u8, 1..4))
            .prop_map(|(strategy, bundles)| Step::Ask { strategy, bundles }),
        1 => (1..10u64).prop_map(Step::Remove),
        1 => Just(Step::EndJob),
        6 => (1..6usize).prop_map(Step::Obey),
        1 => (0..4u32).prop_map(Step::Die),
        1 => (0..4u32, 1..5u8).prop_map(|(at, cpus)| Step::Come(at, cpus)),
        1 => (0..4u32, 0..5u8).prop_map(|(at, cpus)| Step::Use(at, cpus)),
        1 => Just(Step::HeadDies),
    ]
}

proptest! {
    #[test]
    fn no_bundle_is_on_two_nodes_and_a_group_has_all_or_is_asked_again(
        steps in prop::collection::vec(step(), 1..60)
    ) {
        let mut world = World::with(&[4.0, 2.0, 3.0]);
        let mut made = 0;
        for step in steps {
            match step {
                Step::Ask { strategy, bundles } => {
                    made += 1;
                    let bundles: Vec<f64> = bundles.into_iter().map(f64::from).collect();
                    world.asks(made, spec(GroupStrategy::ALL[strategy], &bundles));
                }
                Step::Remove(count) => world.hears(Event::RemoveAsked { group: group(count) }),
                Step::EndJob => world.hears(Event::JobEnded { job: job() }),
                Step::Obey(times) => (0..times).for_each(|_| assert!(world.obeys() || world.orders.is_empty())),
                Step::Die(at) => world.dies(node(at)),
                Step::HeadDies => {
                    world.head_dies();
                    world.all_tell();
                }
                Step::Come(at, amount) => {
                    if let Entry::Vacant(free) = world.nodes.entry(node(at)) {
                        let has = cpus(f64::from(amount));
                        free.insert((has.clone(), has));
                        world.sees(node(at));
                    }
                }
                // Others take of the node, and the head does not hear of it before the next answer.
                Step::Use(at, amount) => {
                    let amount = cpus(f64::from(amount));
                    if let Some((_, free)) = world.nodes.get_mut(&node(at))
                        && free.covers(&amount)
                    {
                        free.subtract(&amount);
                    }
                }
            }
        }
        world.settles();
        // Nothing is under way: each group has all of its bundles, or none that it could not keep.
        let mut kept = 0;
        for row in world.groups.rows() {
            let here: BTreeMap<u32, NodeNumber> = world.prepared.iter()
                .filter(|((group, _), _)| *group == row.group)
                .map(|((_, index), (at, _, committed, _))| {
                    assert!(*committed, "{} waits and holds what it prepared", row.group);
                    (*index, *at)
                })
                .collect();
            prop_assert_eq!(&here, row.placed);
            kept += here.len();
        }
        prop_assert_eq!(kept, world.prepared.len());
    }
}
