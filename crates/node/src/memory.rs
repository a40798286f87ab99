//! Memory limits: of a task or actor that asked for `memory=`, and of the node.
//!
//! Looked at only while something runs: every [`LIMIT_PERIOD`] while anything with a limit does,
//! else the more often the less is available.

use std::time::Duration;

use hoplo_base::resources::MEMORY;
use hoplo_base::{Instant, ProcessId};
use hoplo_core::sched::local::{Claimant, Lease};
use hoplo_wire::node::DeathCause;

use crate::daemon::{Daemon, Timer};
use crate::machine;

const LIMIT_PERIOD: Duration = Duration::from_millis(100);

/// With less than this share of the memory available somebody has to go.
const AVAILABLE_MIN_PERCENT: u64 = 5;

/// After a kill the kernel needs time to collect the memory.
const KILL_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct MemoryWatch {
    /// The timer is set.
    watching: bool,
    killed_at: Option<Instant>,
}

impl MemoryWatch {
    pub(crate) fn new() -> Self {
        Self { watching: false, killed_at: None }
    }
}

impl Daemon {
    fn begin_memory_watch(&mut self) {
        if !self.memory.watching {
            self.memory.watching = true;
            self.after(LIMIT_PERIOD, Timer::Memory);
        }
    }

    /// What the worker's new lease allows it, if it says so.
    pub(crate) fn confine(&mut self, worker: ProcessId) {
        let limit = self.scheduler.lease_on(worker).map_or(0.0, |l| l.resources.units(MEMORY));
        let pid = self.processes.get(&worker).map_or(0, |process| process.pid);
        if limit > 0.0 && pid > 0 {
            self.cages.confine(worker, pid, limit as u64);
        }
        self.begin_memory_watch();
    }

    pub(crate) fn watch_memory(&mut self) {
        self.memory.watching = false;
        let leases: Vec<Lease> = self.scheduler.leases().map(|(_, lease)| lease.clone()).collect();
        let mut period = None;
        for lease in &leases {
            let Some(worker) = lease.worker else { continue };
            let limit = lease.resources.units(MEMORY) as u64;
            if limit > 0 {
                period = Some(LIMIT_PERIOD);
                self.hold_to_limit(worker, limit);
            } else {
                period = period.or(Some(Duration::MAX));
            }
        }
        let Some(period) = period else { return };
        let period = period.min(self.hold_node_to_limit(&leases));
        self.memory.watching = true;
        self.after(period, Timer::Memory);
    }

    fn hold_to_limit(&mut self, worker: ProcessId, limit: u64) {
        let pid = self.processes.get(&worker).map_or(0, |process| process.pid);
        let Some(used) = machine::own_bytes(pid).filter(|used| *used > limit) else { return };
        let detail =
            format!("it used {} of memory, its limit (memory=) is {}", size(used), size(limit));
        self.kill_for_memory(worker, detail);
    }

    /// What the kernel killed it for, if it did.
    pub(crate) fn autopsy(&mut self, worker: ProcessId) -> Option<DeathCause> {
        let limit = self.cages.autopsy(worker)?;
        let detail = format!("it went over its limit (memory=) of {}", size(limit));
        Some(DeathCause::OutOfMemory { detail })
    }

    /// How long until it is to be looked at again.
    fn hold_node_to_limit(&mut self, leases: &[Lease]) -> Duration {
        let memory = machine::memory();
        let percent = memory.available.saturating_mul(100) / memory.total.max(1);
        if percent >= AVAILABLE_MIN_PERCENT {
            return match percent {
                50.. => Duration::from_secs(2),
                20..50 => Duration::from_millis(500),
                _ => Duration::from_millis(100),
            };
        }
        let paused = self.memory.killed_at.is_some_and(|at| self.now.since(at) < KILL_PAUSE);
        let hungry = leases.iter().filter_map(|lease| {
            let worker = lease.worker?;
            let used = machine::own_bytes(self.processes.get(&worker)?.pid)?;
            // Tasks can be run again; of an actor the state is lost.
            let is_task = matches!(lease.claimant, Claimant::Demand { .. });
            Some((is_task, used, lease.granted_at, worker))
        });
        if let Some((_, used, _, worker)) = hungry.max().filter(|_| !paused) {
            let detail = format!(
                "the node has {} of {} left, and it used most: {}",
                size(memory.available),
                size(memory.total),
                size(used)
            );
            self.memory.killed_at = Some(self.now);
            self.kill_for_memory(worker, detail);
        }
        Duration::from_millis(100)
    }

    fn kill_for_memory(&mut self, worker: ProcessId, detail: String) {
        let process = self.processes.get_mut(&worker).expect("it was just looked at");
        process.cause.get_or_insert(DeathCause::OutOfMemory { detail });
        process.kill();
    }
}

/// For people: `1.5 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut amount = bytes as f64;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < units.len() {
        amount /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0);
    format!("{amount:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_read_well() {
        let sizes = [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB")];
        for (bytes, text) in sizes {
            assert_eq!(size(bytes), text);
        }
    }
}
