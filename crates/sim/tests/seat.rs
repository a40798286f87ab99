//! Who is head over control nodes, seed by seed (`hoplo_sim::seat`).
//!
//! ```text
//! HOPLO_SIM_SEEDS=100000 cargo test --profile sim -p hoplo-sim --test seat
//! HOPLO_SIM_SEEDS=1 HOPLO_SIM_FIRST=77 cargo test --profile sim -p hoplo-sim --test seat -- --nocapture
//! ```

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use hoplo_sim::seat::{Happened, Sabotage, World};

fn setting(name: &str, else_: u64) -> u64 {
    std::env::var(name).map_or(else_, |text| text.parse().expect("a number"))
}

#[test]
fn one_head_is_certain_and_a_head_that_beats_keeps_its_seat() {
    let first = setting("HOPLO_SIM_FIRST", 0);
    let seeds = setting("HOPLO_SIM_SEEDS", 1_000);
    let mut counts = BTreeMap::new();
    for seed in first..first + seeds {
        let mut world = World::new(seed, None);
        let ran = catch_unwind(AssertUnwindSafe(|| world.run()));
        assert!(ran.is_ok(), "seed {seed}: HOPLO_SIM_SEEDS=1 HOPLO_SIM_FIRST={seed} repeats it");
        for (what, count) in world.counts {
            *counts.entry(what).or_insert(0) += count;
        }
    }
    println!("{counts:?}");
    if seeds >= 1_000 {
        use Happened::{
            AppliedLate, GivenBack, Lost, NoAnswer, TakenAfterRefusal, TakenAfterSilence,
            TwoWantedIt,
        };
        for what in [
            TakenAfterSilence,
            TakenAfterRefusal,
            GivenBack,
            Lost,
            NoAnswer,
            AppliedLate,
            TwoWantedIt,
        ] {
            assert!(
                counts.get(&what).copied().unwrap_or(0) > 20,
                "{what:?} hardly ever happened: {counts:?}"
            );
        }
    }
}

#[test]
fn each_rule_that_is_taken_away_is_missed() {
    for sabotage in [Sabotage::LateLooks, Sabotage::NoAnswerIsLoss, Sabotage::FromItsAnswer] {
        let fails = |seed: &u64| {
            catch_unwind(AssertUnwindSafe(|| World::new(*seed, Some(sabotage)).run())).is_err()
        };
        let found = (0..1_000).find(fails);
        println!("{sabotage:?}: found by seed {found:?}");
        assert!(found.is_some(), "{sabotage:?} goes unnoticed");
    }
}
