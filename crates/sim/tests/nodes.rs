//! Seeds of several nodes in order, on all cores.

use hoplo_sim::{Counts, run_nodes, seeds};

#[test]
fn every_seed_of_several_nodes_is_safe_under_faults_and_heals() {
    // What is rare comes in few seeds: calls that find their actor unavailable, streams that run again for lost items, members that differ
    // when they are made again.
    let ran = seeds(run_nodes, 5001, 2500);
    assert!(!ran.failed, "a seed failed: its number and story are above");
    if ran.shows_everything() {
        let never = ran.counts.never_happened(Counts::OF_NODES);
        assert_eq!(never, [""; 0], "what never happens is not tested");
    }
}
