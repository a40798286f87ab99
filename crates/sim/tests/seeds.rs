//! Seeds of one node in order, on all cores.

use hoplo_sim::{Counts, run, seeds};

#[test]
fn every_seed_is_safe_under_faults_and_heals() {
    let ran = seeds(run, 1, 2000);
    assert!(!ran.failed, "a seed failed: its number and story are above");
    if ran.shows_everything() {
        let never = ran.counts.never_happened(Counts::OF_ONE_NODE);
        assert_eq!(never, [""; 0], "what never happens is not tested");
    }
}
