//! Random clusters, owners, joins and deaths: whatever can run ends, and the invariants hold at every step (the world
//! checks them after each event).

use std::time::Duration;

use hoplo_wire::node::{PythonEnv, RuntimeEnv, Shape, Strategy};
use proptest::prelude::*;
use proptest::strategy::Strategy as Generates;

use super::world::{World, node, place, units};

const MS: fn(u64) -> Duration = Duration::from_millis;

#[derive(Clone, Debug)]
struct Plan {
    cpus: Vec<u32>,
    /// At which node, how it may run, how many tasks, of how many milliseconds, half CPUs of each.
    owners: Vec<(usize, u8, u32, u64, u32)>,
    join: (u64, u32),
    kill: Option<(u64, usize)>,
    jitter_us: u64,
}

fn plans() -> impl Generates<Value = Plan> {
    let owner = (0..4usize, 0..4u8, 1..120u32, 1..12u64, 1..4u32);
    (
        prop::collection::vec(0..4u32, 2..5),
        prop::collection::vec(owner, 1..5),
        (0..400u64, 1..5u32),
        prop::option::of((0..300u64, 1..4usize)),
        prop_oneof![Just(0), 0..20_000u64],
    )
        .prop_map(|(mut cpus, owners, join, kill, jitter_us)| {
            cpus[0] = cpus[0].max(2); // The first one is never killed: everything can run.
            Plan { cpus, owners, join, kill, jitter_us }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn everything_ends_whoever_joins_or_dies(plan in plans()) {
        let count = plan.cpus.len();
        let places = plan.cpus.iter().enumerate();
        let mut world = World::new(
            places.map(|(number, cpus)| place(number as u32, f64::from(*cpus))).collect(),
        );
        world.jitter_us = plan.jitter_us;
        for (at, kind, tasks, takes, halves) in &plan.owners {
            let strategy = match kind {
                0 | 1 => Strategy::Default,
                2 => Strategy::Spread,
                _ => Strategy::Node { node: node((*tasks % count as u32).max(1)), soft: true },
            };
            // Every third one waits for a Python of its own, wherever it is to run.
            let python = PythonEnv { what: format!("pip install {halves}"), ..PythonEnv::default() };
            let python = (tasks % 3 == 0).then(|| Box::new(python));
            let shape = Shape {
                strategy,
                env: RuntimeEnv { python, ..RuntimeEnv::default() },
                ..Shape::of(units(&[("CPU", f64::from(*halves) / 2.0)]))
            };
            world.owner(node((at % count) as u32), shape, *tasks, MS(*takes));
        }
        world.join_at(MS(plan.join.0), place(count as u32, f64::from(plan.join.1)));
        if let Some((at, who)) = plan.kill {
            world.kill_at(MS(at), node((who % count).max(1) as u32));
        }
        world.run_for(MS(500));
        let over = |world: &World| {
            world.owners.values().all(|owner| owner.queue == 0 && owner.leases.is_empty())
        };
        prop_assert!(world.run_until(MS(20_000), over), "some wait for ever");
        world.run_for(MS(1500));
        for daemon in world.daemons.values() {
            prop_assert_eq!(daemon.scheduler.leases().count(), 0);
            prop_assert_eq!(daemon.scheduler.claims().count(), 0, "{}", daemon.node);
            prop_assert_eq!(daemon.broker.waiting().count(), 0);
        }
        prop_assert_eq!(world.global.wants().count(), 0);
    }
}
