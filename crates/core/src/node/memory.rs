//! Memory limits: of a task or actor that asked for `memory=`, and of the node. Who has to go is decided here.
//!
//! Looked at only while something runs: every [`MEMORY_LIMIT_PERIOD`] while anything with a limit does, else the
//! more often the less is available. Those without a limit are measured only when the node is short. What
//! a worker's children use is the worker's.

use std::time::Duration;

use hoplo_base::limits::{MEMORY_AVAILABLE_MIN_PERCENT, MEMORY_KILL_PAUSE, MEMORY_LIMIT_PERIOD};
use hoplo_base::resources::MEMORY;
use hoplo_base::{Instant, ProcessId, Size};
use hoplo_wire::node::DeathCause;

use super::{Effect, Node, Timer};
use crate::sched::claim::{Claimant, Lease};

#[derive(Debug, Default)]
pub(super) struct MemoryWatch {
    watching: bool,
    killed_at: Option<Instant>,
    /// Everybody was asked about, since the node is short.
    measures_all: bool,
}

impl Node {
    /// What the worker's new lease allows it, if it says so.
    pub(super) fn confine(&mut self, worker: ProcessId) {
        let limit = self.scheduler.lease_on(worker).map_or(0.0, |l| l.resources.units(MEMORY));
        let pid = self.with_pid(worker).map(|(_, pid)| pid);
        if let Some(pid) = pid.filter(|_| limit > 0.0) {
            let limit_bytes = limit as u64;
            self.out.push(Effect::Confine { process: worker, pid, limit_bytes });
        }
        if !self.memory.watching {
            self.memory.watching = true;
            self.after(MEMORY_LIMIT_PERIOD, Timer::Memory);
        }
    }

    /// The timer: those that have a limit are measured, and the machine.
    pub(super) fn measure_limited(&mut self) {
        let leases: Vec<Lease> = self.scheduler.leases().map(|(_, lease)| lease.clone()).collect();
        self.memory.watching = leases.iter().any(|lease| lease.worker.is_some());
        if self.memory.watching {
            let limited = leases.iter().filter(|lease| lease.resources.units(MEMORY) > 0.0);
            let processes = limited.filter_map(|lease| self.with_pid(lease.worker?)).collect();
            self.memory.measures_all = false;
            self.out.push(Effect::Measure { processes });
        }
    }

    fn with_pid(&self, worker: ProcessId) -> Option<(ProcessId, u32)> {
        Some((worker, self.processes.get(&worker)?.known_pid()?))
    }

    pub(super) fn on_measured(&mut self, total: u64, available: u64, used: &[(ProcessId, u64)]) {
        if !self.memory.measures_all {
            for (worker, used) in used {
                self.hold_to_limit(*worker, *used);
            }
        }
        let percent = available.saturating_mul(100) / total.max(1);
        let short = percent < MEMORY_AVAILABLE_MIN_PERCENT;
        let paused = self.memory.killed_at.is_some_and(|at| self.now.since(at) < MEMORY_KILL_PAUSE);
        if short && !paused && !self.memory.measures_all {
            self.memory.measures_all = true;
            let leases = self.scheduler.leases().filter_map(|(_, lease)| lease.worker);
            let processes = leases.filter_map(|worker| self.with_pid(worker)).collect();
            return self.out.push(Effect::Measure { processes });
        }
        if short && !paused {
            self.end_hungriest(total, available, used);
        }
        let limits = self.scheduler.leases().any(|(_, it)| it.resources.units(MEMORY) > 0.0);
        let period = match percent {
            50.. => Duration::from_secs(2),
            20..50 => Duration::from_millis(500),
            0..20 => Duration::from_millis(100),
        };
        let period = if limits { period.min(MEMORY_LIMIT_PERIOD) } else { period };
        self.after(period, Timer::Memory);
    }

    fn hold_to_limit(&mut self, worker: ProcessId, used: u64) {
        // The lease may be another one by now.
        let limit = self.scheduler.lease_on(worker).map_or(0.0, |l| l.resources.units(MEMORY));
        let limit = limit as u64;
        if limit > 0 && used > limit {
            let (used, limit) = (Size(used), Size(limit));
            let detail = format!(
                "it used {used} of memory, with the processes that it started; its limit (memory=) is {limit}"
            );
            self.kill_for_memory(worker, detail);
        }
    }

    /// Tasks can be run again; of an actor the state is lost. Among equals who uses most goes.
    fn end_hungriest(&mut self, total: u64, available: u64, used: &[(ProcessId, u64)]) {
        let hungry = used.iter().filter_map(|(worker, used)| {
            let lease = self.scheduler.lease_on(*worker)?;
            let is_task = matches!(lease.claimant, Claimant::Demand { .. });
            Some((is_task, *used, lease.granted_at, *worker))
        });
        if let Some((_, used, _, worker)) = hungry.max() {
            let (available, total, used) = (Size(available), Size(total), Size(used));
            let detail =
                format!("the node has {available} of {total} left, and it used most: {used}");
            self.memory.killed_at = Some(self.now);
            self.kill_for_memory(worker, detail);
        }
    }

    fn kill_for_memory(&mut self, worker: ProcessId, detail: String) {
        let Some(process) = self.processes.get_mut(&worker) else { return };
        process.cause.get_or_insert(DeathCause::OutOfMemory { detail });
        self.kill(worker);
    }
}
