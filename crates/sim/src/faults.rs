//! What goes wrong, and until when.

use std::time::Duration;

use hoplo_base::Instant;

use crate::cluster::{Cluster, Step};
use crate::rng::Rng;

/// Sizes and faults of one seed.
#[derive(Debug)]
pub struct Plan {
    pub drivers: u32,
    pub cpus: u64,
    pub gpus: u64,
    pub capacity_bytes: u64,
    pub spill: bool,
    /// The longest that a process or the daemon lets a socket lie.
    pub tardiness: Duration,
    /// Frames that a ring holds.
    pub ring_depth: usize,
    /// One fault in so many turns; 0 is none.
    pub kills: u64,
    pub driver_kills: bool,
    pub fork_failures: bool,
    pub disk_failures: bool,
    /// What runs uses too much memory at times.
    pub memory_faults: bool,
    /// The control store refuses rows at times.
    pub control_refuses: bool,
    pub keeps_rows: bool,
    pub slots_resting: usize,
    /// The daemon dies then, and another one goes on with its control store.
    pub head_dies_at: Option<Instant>,
    /// In the end the node is told to stop; else the drivers leave.
    pub stops: bool,
    pub cancels: bool,
    pub faults_until: Instant,
    pub prints: bool,
}

const FAULT_TURN: Duration = Duration::from_millis(4);

impl Plan {
    pub fn new(rng: &mut Rng) -> Self {
        let quiet = rng.one_in(3);
        let tardiness = [20, 200, 2_000, 20_000][rng.below(4) as usize];
        let keeps_rows = rng.one_in(2);
        let head_dies = keeps_rows && rng.one_in(4);
        let head_dies_at = Instant(1_000_000) + rng.delay(Duration::from_millis(200));
        Self {
            drivers: 1 + rng.below(3) as u32,
            cpus: 1 + rng.below(4),
            gpus: rng.below(3),
            capacity_bytes: [3, 6, 12, 32, 256][rng.below(5) as usize] << 20,
            spill: !rng.one_in(5),
            tardiness: Duration::from_micros(tardiness),
            ring_depth: [1, 3, 64][rng.below(3) as usize],
            kills: if quiet { 0 } else { 2 + rng.below(30) },
            driver_kills: !quiet && rng.one_in(3),
            fork_failures: !quiet && rng.one_in(3),
            disk_failures: !quiet && rng.one_in(2),
            memory_faults: !quiet && rng.one_in(4),
            control_refuses: !quiet && rng.one_in(4),
            keeps_rows,
            head_dies_at: head_dies.then_some(head_dies_at),
            slots_resting: [0, 2, 64][rng.below(3) as usize],
            stops: rng.one_in(4),
            cancels: rng.one_in(2),
            faults_until: Instant(1_000_000) + Duration::from_millis(300),
            prints: std::env::var_os("HOPLO_SIM_PRINT").is_some(),
        }
    }

    pub fn has_kills(&self) -> bool {
        self.kills > 0
    }
}

impl Cluster {
    pub fn faulty(&self) -> bool {
        self.now < self.plan.faults_until && self.plan.has_kills()
    }

    pub fn fault(&mut self) {
        if !self.faulty() {
            return;
        }
        if self.rng.one_in(self.plan.kills) {
            let drivers = self.plan.driver_kills && self.rng.one_in(8);
            let victims: Vec<_> = self
                .clients
                .values()
                .filter(|client| client.alive && client.is_driver == drivers)
                .map(|client| client.id)
                .collect();
            if !victims.is_empty() {
                let victim = victims[self.rng.below(victims.len() as u64) as usize];
                if !drivers && self.rng.one_in(8) {
                    self.after(Duration::ZERO, Step::Hangs(victim));
                } else {
                    self.count(if drivers { "kills of drivers" } else { "kills of workers" });
                    self.note(|| format!("FAULT: {victim} is killed"));
                    self.after(Duration::ZERO, Step::Dies(victim));
                }
            }
        }
        let delay = self.rng.delay(2 * FAULT_TURN) + Duration::from_micros(50);
        self.after(delay, Step::Fault);
    }
}
