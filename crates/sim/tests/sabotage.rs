//! Each broken promise is found: the checks of the node's simulation can fail.

#![allow(clippy::unwrap_used, reason = "a test")]

use hoplo_sim::{Sabotage, run_sabotaged};

/// Within so many seeds the sabotage shows as one of these; it may show as something else before.
fn shows(sabotage: Sabotage, seeds: u64, signs: &[&str]) {
    let mut others = Vec::new();
    for seed in 1..=seeds {
        if let Err(what) = run_sabotaged(seed, sabotage) {
            if signs.iter().any(|sign| what.contains(sign)) {
                return println!("{sabotage:?} shows in seed {seed}");
            }
            others.push((seed, what.chars().take(200).collect::<String>()));
        }
    }
    panic!("{sabotage:?} was not found in {seeds} seeds, but shows as: {others:?}");
}

#[test]
fn tasks_that_wait_for_room_which_others_hold_are_found() {
    shows(Sabotage::ArgumentsWaitForRoom, 500, &["does not heal", " calls:"]);
}

#[test]
fn a_passing_failure_that_becomes_a_value_is_found() {
    shows(Sabotage::PassingFailureStays, 500, &["though nobody said so now"]);
}

#[test]
fn workers_that_wait_and_keep_their_cpu_are_found() {
    shows(Sabotage::NothingIsLent, 500, &["does not heal"]);
}

#[test]
fn tasks_of_the_dead_that_nobody_runs_are_found() {
    shows(Sabotage::NobodyAdopts, 500, &["does not heal", " calls:", "leaks"]);
}

#[test]
fn questions_that_wait_for_the_dead_are_found() {
    shows(Sabotage::DeadAreAwaited, 50, &["waits for nobody and has no answer"]);
}

#[test]
fn what_is_lost_before_the_sockets_are_read_is_found() {
    let made_again = "though its maker stored it and replied";
    let lost = ["failed for no reason: OwnerDied", "failed for no reason: ObjectLost"];
    shows(Sabotage::SweepsReadNothing, 500, &[lost[0], lost[1], made_again]);
}

#[test]
fn a_crash_that_is_told_for_a_call_whose_worker_lives_is_found() {
    shows(Sabotage::WaitIsTakenForDeath, 50, &["failed for no reason: WorkerCrashed"]);
}

#[test]
fn a_crash_that_is_told_for_a_call_that_no_worker_took_is_found() {
    shows(Sabotage::QueuedCountAsBegun, 500, &["failed for no reason: WorkerCrashed"]);
}

#[test]
fn a_method_that_fails_with_a_worker_that_never_took_it_is_found() {
    shows(Sabotage::QueuedCountAsBegun, 2000, &["failed for no reason: ActorUnavailable"]);
}

#[test]
fn memory_that_is_blamed_for_another_death_is_found() {
    shows(Sabotage::DeathsBlameMemory, 50, &["failed for no reason: OutOfMemory"]);
}

#[test]
fn a_cancel_that_is_told_to_a_bystander_is_found() {
    let stopped = "is told to stop, and nobody cancelled it";
    shows(Sabotage::CancelHitsTheNext, 50, &["failed for no reason: Cancelled", stopped]);
}

#[test]
fn a_cancel_that_reaches_children_which_it_does_not_mean_is_found() {
    let stopped = "is told to stop, and nobody cancelled it";
    shows(Sabotage::CancelSpreads, 1000, &["failed for no reason: Cancelled", stopped]);
}

#[test]
fn an_actor_that_is_said_to_be_dead_and_starts_again_is_found() {
    shows(Sabotage::RestartIsTakenForDeath, 500, &["failed for no reason: ActorDied"]);
}

#[test]
fn a_full_disk_that_no_disk_told_is_found() {
    shows(Sabotage::GrantIsTakenForDenial, 50, &["is denied room: OutOfDisk"]);
}

#[test]
fn calls_that_take_effect_twice_are_found() {
    shows(Sabotage::DuplicatesRun, 500, &["takes effect twice"]);
}

#[test]
fn calls_that_are_replayed_in_another_order_are_found() {
    shows(Sabotage::ReplayIsReversed, 500, &["and stands at", "and is not there in"]);
}

#[test]
fn words_of_a_worker_that_does_not_read_and_that_nobody_hears_are_found() {
    let others_suffer = "gave back more tokens";
    shows(Sabotage::DeafAreUnheard, 500, &[others_suffer, "failed for no reason: ObjectLost"]);
}
