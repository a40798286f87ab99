use hoplo_wire::node::{Condition, LabelSelector, Strategy};
use proptest::prelude::*;

use super::*;
use crate::sched::claim::lack_of;

const MS: fn(u64) -> Instant = |ms| Instant(ms * 1_000_000);

fn node(number: u32) -> NodeNumber {
    (0..number).fold(NodeNumber::first_given(0), |node, _| node.next_given())
}

fn units(units: &[(&str, f64)]) -> ResourceSet {
    ResourceSet::from_units(units.iter().copied()).unwrap()
}

fn cpu(count: f64) -> Shape {
    Shape::of(units(&[("CPU", count)]))
}

struct Head(GlobalScheduler);

impl Head {
    /// Of nodes with so many CPUs.
    fn of(cpus: &[f64]) -> Self {
        let mut head = Self(GlobalScheduler::new(0));
        for (number, cpus) in cpus.iter().enumerate() {
            let total = units(&[("CPU", *cpus)]);
            let place = Place { node: node(number as u32), labels: BTreeMap::new(), total };
            assert_eq!(head.tell(MS(0), Event::Joined { place }), []);
        }
        head
    }

    fn tell(&mut self, now: Instant, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.0.handle(now, event, &mut effects);
        self.0.check();
        effects
    }

    fn seek(&mut self, now: Instant, seek: u64, shape: Shape, wanted: u32) -> Found {
        let asker = node(0);
        match &self.tell(now, Event::Sought { asker, seek, shape, wanted })[..] {
            [Effect::Answer { found, .. }] => found.clone(),
            other => panic!("one answer, not {other:?}"),
        }
    }

    fn report(&mut self, now: Instant, number: u32, total: f64, free: f64) -> Vec<Effect> {
        let (total, available) = (units(&[("CPU", total)]), units(&[("CPU", free)]));
        let load = Load { total, available, ..Load::default() };
        self.tell(now, Event::Reported { node: node(number), load })
    }
}

fn nodes(parts: &[(u32, u32)]) -> Found {
    Found::Nodes(parts.iter().map(|(number, count)| (node(*number), *count)).collect())
}

#[test]
fn what_it_gave_away_counts_until_a_report_that_knows_of_it() {
    let mut head = Head::of(&[0.0, 2.0]);
    assert_eq!(head.seek(MS(0), 1, cpu(1.0), 2), nodes(&[(1, 2)]));
    // A report that was under way says that all is free.
    assert_eq!(head.report(MS(5), 1, 2.0, 2.0), []);
    assert_eq!(head.seek(MS(6), 2, cpu(1.0), 1), Found::Queue(vec![(node(1), 1)]));
    // One that was made later says what is left, and it goes to what stands.
    let answer = Effect::Answer { asker: node(0), seek: 2, found: nodes(&[(1, 1)]) };
    assert_eq!(head.report(MS(20), 1, 2.0, 1.0), [answer]);
    assert_eq!(head.0.wants().count(), 0);
}

#[test]
fn without_a_report_it_counts_for_a_while() {
    let mut head = Head::of(&[0.0, 1.0]);
    assert_eq!(head.seek(MS(0), 1, cpu(1.0), 1), nodes(&[(1, 1)]));
    assert_eq!(head.seek(MS(1), 2, cpu(1.0), 1), Found::Queue(vec![(node(1), 1)]));
    let at = head.0.next_deadline().unwrap();
    assert_eq!(at, MS(0) + PLEDGE_MAX);
    let answer = Effect::Answer { asker: node(0), seek: 2, found: nodes(&[(1, 1)]) };
    assert_eq!(head.tell(at, Event::Tick), [answer]);
}

#[test]
fn who_does_not_want_it_any_more_hears_nothing() {
    let mut head = Head::of(&[0.0, 1.0]);
    assert_eq!(head.seek(MS(0), 1, cpu(1.0), 3), nodes(&[(1, 1)]));
    assert_eq!(head.0.wants().next().unwrap().2, 2);
    let (asker, shape) = (node(0), cpu(1.0));
    let forget = Event::Sought { asker, seek: 1, shape, wanted: 0 };
    assert_eq!(head.tell(MS(1), forget), []);
    assert_eq!(head.report(MS(50), 1, 1.0, 1.0), []);
}

#[test]
fn nodes_are_filled_to_half_and_then_the_least_used_goes_first() {
    let mut head = Head::of(&[4.0, 4.0, 4.0]);
    assert_eq!(head.seek(MS(0), 1, cpu(1.0), 2), nodes(&[(0, 2)]));
    assert_eq!(head.seek(MS(1), 2, cpu(1.0), 4), nodes(&[(1, 2), (2, 2)]));
    assert_eq!(head.seek(MS(2), 3, cpu(1.0), 3), nodes(&[(0, 1), (1, 1), (2, 1)]));
    // Nobody waits while there is room.
    assert_eq!(head.seek(MS(3), 4, cpu(1.0), 9), nodes(&[(0, 1), (1, 1), (2, 1)]));
}

#[test]
fn waiting_goes_to_the_shortest_backlog_a_round_each() {
    let mut head = Head::of(&[0.0, 2.0, 1.0]);
    for (number, cpus, waiting) in [(1, 2.0, 6), (2, 1.0, 1)] {
        let (total, available) = (units(&[("CPU", cpus)]), ResourceSet::new());
        let waiting = vec![(units(&[("CPU", 1.0)]), waiting)];
        let load = Load { total, available, waiting, full: false };
        head.tell(MS(0), Event::Reported { node: node(number), load });
    }
    assert_eq!(head.seek(MS(1), 1, cpu(1.0), 1), Found::Queue(vec![(node(2), 1)]));
    let all = Found::Queue(vec![(node(1), 2), (node(2), 1)]);
    assert_eq!(head.seek(MS(2), 2, cpu(1.0), 100), all);
    let why = head.0.explain(node(0), 2).unwrap();
    assert!(why.starts_with("no room at any node that could run it: "), "{why}");
}

#[test]
fn draining_and_dead_nodes_get_nothing() {
    let mut head = Head::of(&[1.0, 4.0, 4.0]);
    head.tell(MS(0), Event::Drains { node: node(1) });
    assert_eq!(head.seek(MS(0), 1, cpu(2.0), 9), nodes(&[(2, 2)]));
    head.tell(MS(1), Event::Gone { node: node(2) });
    let never = head.seek(MS(2), 2, cpu(2.0), 1);
    let nearest = node(0).hex();
    let why = format!("needs CPU 2, node has 1 (node {nearest}, the nearest of 2)");
    assert_eq!(lack_of(&why), "needs CPU 2, node has 1");
    assert_eq!(never, Found::Never { why });
}

/// What could run only there falls back to its second choice.
#[test]
fn who_waits_for_a_node_that_drains_or_dies_gets_the_room_of_another() {
    for gone in [Event::Drains { node: node(1) }, Event::Gone { node: node(1) }] {
        let mut head = Head::of(&[1.0]);
        let zone =
            |name: &str| LabelSelector(vec![("zone".into(), Condition::In(vec![name.into()]))]);
        let labels = BTreeMap::from([("zone".to_string(), "first".to_string())]);
        let place = Place { node: node(1), labels, total: units(&[("CPU", 1.0)]) };
        head.tell(MS(0), Event::Joined { place });
        head.report(MS(1), 1, 1.0, 0.0);
        let shape = Shape { labels: vec![zone("first"), LabelSelector(vec![])], ..cpu(1.0) };
        assert_eq!(head.seek(MS(2), 7, shape, 1), Found::Queue(vec![(node(1), 1)]));
        let answer = Effect::Answer { asker: node(0), seek: 7, found: nodes(&[(0, 1)]) };
        assert_eq!(head.tell(MS(3), gone), [answer]);
    }
}

#[test]
fn of_nodes_that_miss_the_same_the_one_that_misses_least_of_it_is_the_nearest() {
    let mut head = Head::of(&[1.0, 3.0, 2.0]);
    let why = format!("needs CPU 64, node has 3 (node {}, the nearest of 3)", node(1).hex());
    assert_eq!(head.seek(MS(0), 1, cpu(64.0), 1), Found::Never { why });
}

/// The fallbacks of a selector that fit nowhere, either, were not named.
#[test]
fn all_selectors_that_were_tried_are_named() {
    let mut head = Head::of(&[1.0, 1.0]);
    let zone = |zone: &str| {
        LabelSelector(vec![("zone".to_string(), Condition::In(vec![zone.to_string()]))])
    };
    let labels = ["a", "b", "c", "d", "e", "f"].map(zone);
    let mut why_of = |labels: &[LabelSelector]| {
        let shape = Shape { labels: labels.to_vec(), ..cpu(1.0) };
        match head.seek(MS(0), 1, shape, 1) {
            Found::Never { why } => why.split(" (node ").next().unwrap().to_string(),
            other => panic!("{other:?}"),
        }
    };
    let two = "needs label zone=a, node has none; or else needs label zone=b, node has none";
    assert_eq!(why_of(&labels[..2]), two);
    assert_eq!(why_of(&labels).matches("zone=").count(), 4);
    assert!(why_of(&labels).ends_with("; or else 2 more"));
}

#[test]
fn what_misses_least_is_the_nearest() {
    let mut head = Head::of(&[1.0, 1.0]);
    let labels = BTreeMap::from([("zone".to_string(), "a".to_string())]);
    let total = units(&[("CPU", 4.0)]);
    head.tell(MS(0), Event::Joined { place: Place { node: node(2), labels, total } });
    let selector = LabelSelector(vec![
        ("zone".to_string(), Condition::In(vec!["b".to_string()])),
        ("disk".to_string(), Condition::Exists),
    ]);
    let shape = Shape { labels: vec![selector], ..cpu(3.0) };
    let nearest = node(2).hex();
    let why = format!("needs label zone=b, node has a (node {nearest}, the nearest of 3)");
    assert_eq!(head.seek(MS(0), 1, shape.clone(), 1), Found::Never { why });
    // One comes that has all of it.
    let labels = ["zone", "disk"].map(|key| (key.to_string(), "b".to_string())).into();
    let total = units(&[("CPU", 3.0)]);
    let came = head.tell(MS(9), Event::Joined { place: Place { node: node(3), labels, total } });
    let found = nodes(&[(3, 1)]);
    assert_eq!(came, [Effect::Answer { asker: node(0), seek: 1, found }]);
}

#[test]
fn what_is_free_is_shared_among_those_that_stand() {
    let mut head = Head::of(&[0.0, 4.0]);
    head.report(MS(0), 1, 4.0, 0.0);
    for asker in [node(7), node(8)] {
        let shape = cpu(1.0);
        head.tell(MS(0), Event::Sought { asker, seek: 1, shape, wanted: 100 });
    }
    let answers = head.report(MS(50), 1, 4.0, 4.0);
    let found = || nodes(&[(1, 2)]);
    let answer = |asker| Effect::Answer { asker, seek: 1, found: found() };
    assert_eq!(answers, [answer(node(7)), answer(node(8))]);
}

fn fills(head: &mut Head, now: Instant, number: u32, full: bool) -> Vec<Effect> {
    let total = units(&[("CPU", 2.0)]);
    let load = Load { available: total.clone(), total, full, ..Load::default() };
    head.tell(now, Event::Reported { node: node(number), load })
}

#[test]
fn a_full_node_gets_nothing_that_may_run_elsewhere() {
    let mut head = Head::of(&[0.0, 2.0, 2.0]);
    fills(&mut head, MS(0), 1, true);
    let spread = Shape { strategy: Strategy::Spread, ..cpu(1.0) };
    assert_eq!(head.seek(MS(1), 1, spread, 1), nodes(&[(2, 1)]));
    assert_eq!(head.seek(MS(1), 2, cpu(1.0), 3), nodes(&[(2, 1)]));
    // What waits does not wait there, either.
    assert_eq!(head.seek(MS(1), 3, cpu(1.0), 5), Found::Queue(vec![(node(2), 2)]));
    // What is bound to it may go there, or has nowhere else to go.
    for soft in [true, false] {
        let there = Shape { strategy: Strategy::Node { node: node(1), soft }, ..cpu(1.0) };
        assert_eq!(head.seek(MS(2), 4 + u64::from(soft), there, 1), nodes(&[(1, 1)]));
    }
    // It has room again.
    let answer = Effect::Answer { asker: node(0), seek: 2, found: nodes(&[(1, 2)]) };
    assert_eq!(fills(&mut head, MS(50), 1, false), [answer]);
}

#[test]
fn where_all_nodes_are_full_they_get_work_as_ever() {
    let mut head = Head::of(&[2.0, 2.0]);
    fills(&mut head, MS(0), 0, true);
    assert_eq!(head.seek(MS(1), 1, cpu(1.0), 3), nodes(&[(1, 2)]));
    let answer = Effect::Answer { asker: node(0), seek: 1, found: nodes(&[(0, 1)]) };
    assert_eq!(fills(&mut head, MS(2), 1, true), [answer]);
    // A node that is full and asks does not let it wait at home: others may have room first.
    assert_eq!(head.seek(MS(3), 2, cpu(2.0), 1), Found::Queue(vec![(node(0), 1)]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn answers_name_only_nodes_that_may_be_asked_and_use_all_room(
        cpus in prop::collection::vec(0..6u32, 1..7),
        closed in prop::collection::vec(0..3u8, 7),
        zones in prop::collection::vec(0..3u8, 7),
        asks in prop::collection::vec((1..4u32, 1..20u32, 0..3u8, 0..4u8), 1..12),
        seed in any::<u64>(),
    ) {
        let mut head = Head(GlobalScheduler::new(seed));
        for (number, cpus) in cpus.iter().enumerate() {
            let total = units(&[("CPU", f64::from(*cpus))]);
            let labels = BTreeMap::from([("zone".to_string(), zones[number].to_string())]);
            let place = Place { node: node(number as u32), labels, total };
            head.tell(MS(0), Event::Joined { place });
        }
        for (number, state) in closed.iter().enumerate().take(cpus.len()) {
            let node = node(number as u32);
            match state {
                0 => drop(head.tell(MS(0), Event::Drains { node })),
                1 => drop(head.tell(MS(0), Event::Gone { node })),
                _ => {}
            }
        }
        let mut used = vec![0; cpus.len()];
        for (seek, (needs, wanted, zone, kind)) in asks.into_iter().enumerate() {
            let zoned = kind % 2 == 0;
            let selector = Condition::In(vec![zone.to_string()]);
            let labels = zoned.then(|| LabelSelector(vec![("zone".to_string(), selector)]));
            let strategy = if kind < 2 { Strategy::Spread } else { Strategy::Default };
            let labels = labels.into_iter().collect();
            let shape = Shape { strategy, labels, ..cpu(f64::from(needs)) };
            let may: Vec<bool> = (0..cpus.len())
                .map(|n| closed[n] > 1 && cpus[n] >= needs && (!zoned || zones[n] == zone))
                .collect();
            let room: Vec<u32> = (0..cpus.len())
                .map(|n| if may[n] { (cpus[n] - used[n]) / needs } else { 0 })
                .collect();
            let place = |it: &NodeNumber| (0..7).find(|n| node(*n) == *it).unwrap() as usize;
            match head.seek(MS(1), seek as u64, shape, wanted) {
                Found::Nodes(given) => {
                    let sum: u32 = given.iter().map(|(_, count)| count).sum();
                    prop_assert_eq!(sum, wanted.min(room.iter().sum()));
                    for (it, count) in &given {
                        prop_assert!(*count > 0 && *count <= room[place(it)]);
                        used[place(it)] += count * needs;
                    }
                    if kind < 2 {
                        // Who got fewer than another one had no room for more.
                        let got = |n: usize| {
                            given.iter().find(|(it, _)| place(it) == n).map_or(0, |it| it.1)
                        };
                        let most = (0..cpus.len()).map(got).max().unwrap();
                        for (n, room) in room.iter().enumerate() {
                            prop_assert!(got(n) + 1 >= most || got(n) == *room);
                        }
                    }
                }
                Found::Queue(given) => {
                    prop_assert_eq!(room.iter().sum::<u32>(), 0);
                    let sum: u32 = given.iter().map(|(_, count)| count).sum();
                    prop_assert!(sum <= wanted);
                    prop_assert!(given.iter().all(|(it, _)| may[place(it)]));
                }
                Found::Later => prop_assert_eq!(room.iter().sum::<u32>(), 0),
                Found::Never { .. } => prop_assert!(!may.contains(&true)),
            }
        }
    }
}
