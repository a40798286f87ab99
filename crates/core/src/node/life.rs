//! The life of a process: from the order to fork it to its obituary.

use std::collections::BTreeSet;
use std::sync::Arc;

use hoplo_base::limits::{
    EXIT_GRACE, GRAVES_MAX, HANGUP_GRACE, OBITUARY_LINES, RETIRE_GRACE, STATUS_PATIENCE,
};
use hoplo_base::{JobId, ProcessId};
use hoplo_wire::node::{DeathCause, Obituary, RuntimeEnv, ToClient};
use hoplo_wire::{Failure, FailureKind};

use super::process::{Birth, Kind, Process, Stage};
use super::sweeps::Deferred;
use super::{Effect, Node, Timer};
use crate::actors::life::{self, Manner};
use crate::history::PastProcess;
use crate::objects;
use crate::sched::claim::Claimant;
use crate::sched::{broker, groups, local, workers};

const SIGKILL: i32 = 9;

impl Node {
    // ---- birth ----

    pub(super) fn fork(&mut self, ticket: u64, job: JobId, env: RuntimeEnv) {
        let failed = |reason: &str| workers::Event::StartFailed {
            ticket,
            failure: Failure::new(FailureKind::WorkerStart, reason),
            killed: false,
        };
        let Some(config) = self.jobs.get(&job).map(|job| Arc::clone(&job.config)) else {
            return self.pass_to_pool(failed("its job has ended"));
        };
        let birth = Birth::Awaited { doomed: false };
        let Some(id) = self.new_process(Kind::Worker, birth, Stage::Starting { ticket }) else {
            return self.pass_to_pool(failed(&self.no_room()));
        };
        self.process_mut(id).job = job;
        self.out.push(Effect::Fork { process: id, config, env });
    }

    pub(super) fn on_forked(&mut self, id: ProcessId, pid: u32) {
        // It may have said hello before its birth is told, and it may be buried.
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Birth::Awaited { doomed } = process.birth else { return };
        process.birth = Birth::Known { pid };
        if process.stage.is_dead() {
            return;
        }
        self.out.push(Effect::Watch { process: id, pid });
        if doomed {
            self.out.push(Effect::Kill { process: id, pid });
        }
    }

    /// `cause`: it could not be made, or not in its environment.
    pub(super) fn on_fork_failed(&mut self, id: ProcessId, cause: DeathCause) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        // Who said hello is there, whatever became of the one who was to tell it.
        if process.stage.ticket().is_none() || process.stage.is_dead() {
            return;
        }
        process.cause = Some(cause);
        if process.stage.has_connection() {
            self.out.push(Effect::HangUp { process: id });
        }
        self.examine(id);
    }

    pub(super) fn on_fork_undone(&mut self, id: ProcessId) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.undone = true;
        }
        self.on_fork_failed(id, DeathCause::NotStarted { reason: "its zygote died".to_string() });
    }

    // ---- towards its end ----

    /// Asks a process to end, or ends it.
    pub(super) fn stop_process(&mut self, id: ProcessId, manner: Manner, reason: String) {
        if self.is_far(id.node()) {
            return self.stop_far(id, manner, reason);
        }
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.cause.get_or_insert(DeathCause::Stopped { reason: reason.clone() });
        if let (Stage::Starting { .. }, Birth::Awaited { doomed }) =
            (process.stage, &mut process.birth)
        {
            // What it would be told it cannot hear yet, and it has nothing to finish.
            *doomed = true;
        }
        match manner {
            Manner::Kill => return self.kill(id),
            Manner::Exit => self.after(EXIT_GRACE, Timer::Kill(id)),
            Manner::Finish => {}
        }
        self.send(id, ToClient::Exit { graceful: manner == Manner::Finish, reason });
    }

    /// An idle worker: nothing waits for what it does, so it may not linger.
    pub(super) fn retire(&mut self, id: ProcessId, reason: &str) {
        self.stop_process(id, Manner::Finish, reason.to_string());
        self.after(RETIRE_GRACE, Timer::Kill(id));
    }

    /// Its time is over: dead after this, whatever it does.
    pub(super) fn kill_late(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let reason = "it closed its connection and did not end".to_string();
        process.cause.get_or_insert(DeathCause::Stopped { reason });
        self.kill(id);
    }

    /// Only workers are ours to kill (NODE-5).
    pub(super) fn kill(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        if !process.is_worker() || process.stage.is_dead() {
            return;
        }
        match &mut process.birth {
            Birth::Awaited { doomed } => *doomed = true,
            Birth::Known { pid } => {
                let pid = *pid;
                self.out.push(Effect::Kill { process: id, pid });
            }
        }
    }

    /// It does not keep to the protocol: it is dropped, and nobody else suffers.
    pub(super) fn violation(&mut self, id: ProcessId, what: &str) {
        if self.is_accused(id, what) {
            self.kill(id);
            self.hang_up(id);
        }
    }

    /// A worker is killed, and its connection stays until its end: others rely on what it said before.
    pub(super) fn on_unread(&mut self, id: ProcessId) {
        let what = "does not read what it is sent";
        match self.processes.get(&id).map(Process::is_worker) {
            Some(true) if self.is_accused(id, what) => self.kill(id),
            Some(false) => self.violation(id, what),
            _ => {}
        }
    }

    /// False: it has no connection any more.
    fn is_accused(&mut self, id: ProcessId, what: &str) -> bool {
        let Some(process) = self.processes.get_mut(&id) else { return false };
        if !process.stage.has_connection() {
            return false;
        }
        let reason = format!("it broke the protocol: {what}");
        process.cause.get_or_insert(DeathCause::Stopped { reason });
        self.violations += 1;
        self.log(format!("{id} {what}: it is dropped"));
        true
    }

    pub(super) fn hang_up(&mut self, id: ProcessId) {
        self.out.push(Effect::HangUp { process: id });
        self.on_closed(id);
    }

    pub(super) fn on_closed(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.stage = match process.stage {
            Stage::Starting { ticket } => Stage::Closed { ticket: Some(ticket) },
            Stage::Greeted => Stage::Closed { ticket: None },
            Stage::Closed { .. } | Stage::Ended { .. } | Stage::Examined { .. } => return,
        };
        let kind = process.kind;
        self.forget_in_queries(id);
        match kind {
            Kind::Driver | Kind::Tool => self.bury(id, Vec::new()),
            // Its end is told by the zygote or by the kernel, unless it hangs.
            Kind::Worker => self.after(HANGUP_GRACE, Timer::Kill(id)),
        }
    }

    // ---- its end ----

    pub(super) fn on_ended(&mut self, id: ProcessId, status_follows: bool) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        match process.stage {
            Stage::Starting { .. } | Stage::Greeted => {
                panic!("{id} is said to have ended before its connection was read to the end");
            }
            Stage::Ended { .. } | Stage::Examined { .. } => return,
            Stage::Closed { ticket } => process.stage = Stage::Ended { ticket },
        }
        if status_follows && process.is_worker() {
            self.after(STATUS_PATIENCE, Timer::Examine(id));
        } else {
            self.examine(id);
        }
    }

    pub(super) fn on_exited(&mut self, id: ProcessId, status: i32) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        assert!(!process.stage.has_connection(), "{id} exited and was not read to the end");
        process.status.get_or_insert(status);
        self.examine(id);
    }

    pub(super) fn examine(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let ticket = match process.stage {
            Stage::Examined { .. } => return,
            Stage::Starting { ticket } => Some(ticket),
            Stage::Greeted => None,
            Stage::Closed { ticket } | Stage::Ended { ticket } => ticket,
        };
        process.stage = Stage::Examined { ticket };
        self.out.push(Effect::Examine { process: id });
    }

    pub(super) fn on_examined(
        &mut self,
        id: ProcessId,
        last_lines: Vec<String>,
        verdict: Option<DeathCause>,
    ) {
        let process = self.process_mut(id);
        if let Some(verdict) = verdict {
            process.cause.get_or_insert(verdict);
        }
        self.bury(id, last_lines);
    }

    /// Everybody concerned is told, and its place is free.
    fn bury(&mut self, id: ProcessId, last_lines: Vec<String>) {
        let process = self.processes.remove(&id).expect("one is buried once");
        let (kind, pid) = (process.kind, process.pid());
        self.out.push(Effect::Bury { process: id, kind, pid });
        if kind == Kind::Tool {
            return;
        }
        let obituary = obituary(&process, last_lines);
        let serving = self.serving(&process.peers);
        self.note(&(id, &obituary));
        self.remember_process(&process, &obituary);
        self.tell_gone(&process, &obituary);
        self.gone_to_others(id, &obituary);
        self.serves_no_more(id);
        for (task, (from, message)) in process.unheard {
            self.sweeps.defer(Deferred::Tell { from, to: task.owner, message });
        }
        let is_driver = kind == Kind::Driver;
        if is_driver {
            self.mapped.insert(id, pid);
        } else {
            self.wipe(id);
        }
        match process.stage.ticket() {
            Some(ticket) if process.undone => {
                self.pass_to_pool(workers::Event::StartUndone { ticket });
            }
            Some(ticket) => {
                self.doubt_environment(ticket);
                let failure = failed_start(&obituary);
                let killed = matches!(obituary.cause, DeathCause::Signaled { signal: SIGKILL });
                self.pass_to_pool(workers::Event::StartFailed { ticket, failure, killed });
            }
            None => {
                let obituary = obituary.headline();
                self.process_gone_in_reduces(id);
                self.process_gone_in_transfers(id);
                self.buried(id, kind, obituary, serving);
                self.pass_to_pool(workers::Event::Gone { process: id });
            }
        }
        if !self.far_is_alone() {
            self.pass_to_broker(broker::Event::ProcessGone { process: id });
        }
        self.pass_to_scheduler(local::Event::ProcessGone { process: id });
        self.pass_to_groups(groups::Event::ProcessGone { process: id });
        if !self.fenced {
            let gone = life::Event::ProcessGone { process: id, obituary: obituary.clone() };
            self.pass_to_actors(gone);
        }
        if is_driver {
            self.end_job(process.job);
        } else {
            self.drop_functions_of_ended(process.job);
        }
        self.dig_grave(id, obituary);
        self.stop_when_empty();
    }

    pub(super) fn on_unmapped(&mut self, id: ProcessId) {
        if self.processes.get(&id).is_some_and(|process| process.kind == Kind::Driver) {
            self.on_closed(id);
        }
        if self.mapped.remove(&id).is_some() {
            self.wipe(id);
            if !self.is_unmapped_before(id) {
                self.pass_to_objects(objects::Event::Unmapped { process: id });
            }
        }
    }

    /// NODE-1.
    fn wipe(&mut self, id: ProcessId) {
        self.out.push(Effect::Wipe { process: id });
        self.slots.give_back(id.slot() as u16);
    }

    fn remember_process(&mut self, process: &Process, obituary: &Obituary) {
        let lived_us = self.now.since(process.since).as_micros() as u64;
        self.history.ended(PastProcess {
            id: process.id,
            pid: process.pid(),
            job: process.job,
            is_driver: process.kind == Kind::Driver,
            title: process.title.clone(),
            started_us: self.wall_us.saturating_sub(lived_us),
            ended_us: self.wall_us,
            cause: obituary.cause.clone(),
            why: obituary.headline(),
        });
    }

    /// For who asks late.
    pub(super) fn dig_grave(&mut self, id: ProcessId, obituary: Obituary) {
        self.graves.push_back((id, obituary));
        if self.graves.len() > GRAVES_MAX {
            self.graves.pop_front();
        }
    }

    /// To everyone who has a channel with it, or a lease on it.
    fn tell_gone(&mut self, process: &Process, obituary: &Obituary) {
        let mut concerned: BTreeSet<ProcessId> = process.peers.clone();
        let lease = self.scheduler.lease_on(process.id);
        if let Some(Claimant::Demand { process: holder, .. }) = lease.map(|lease| lease.claimant) {
            concerned.insert(holder);
        }
        for peer in concerned {
            if self.is_far(peer.node()) {
                if process.peers.contains(&peer) {
                    self.worker_gone_far(peer, process.id, obituary);
                }
                continue;
            }
            if let Some(peer) = self.processes.get_mut(&peer) {
                peer.peers.remove(&process.id);
            }
            let (process, obituary, unstarted) = (process.id, obituary.clone(), Vec::new());
            self.send(peer, ToClient::ProcessGone { process, obituary, unstarted });
        }
    }

    /// How a process ended that is not there any more.
    pub(super) fn obituary_of(&self, id: ProcessId) -> Obituary {
        self.grave_of(id).cloned().unwrap_or_else(|| {
            let reason = "it is not on this node any more".to_string();
            Obituary { pid: 0, cause: DeathCause::Lost { reason }, last_lines: Vec::new() }
        })
    }

    pub(super) fn grave_of(&self, id: ProcessId) -> Option<&Obituary> {
        let grave = self.graves.iter().rev().find(|(dead, _)| *dead == id);
        grave.map(|(_, obituary)| obituary)
    }

    // ---- the end of all ----

    pub(super) fn begin_stop(&mut self, why: &str) {
        if self.stopping {
            return;
        }
        self.out.push(Effect::Stopping { why: why.to_string() });
        self.stopping = true;
        let of_kind = |kind: Kind| move |process: &&Process| process.kind == kind;
        let drivers = self.processes.values().filter(of_kind(Kind::Driver)).map(|driver| driver.id);
        for driver in drivers.collect::<Vec<_>>() {
            self.send(driver, ToClient::Exit { graceful: false, reason: why.to_string() });
            self.hang_up(driver);
        }
        let workers = self.processes.values().filter(of_kind(Kind::Worker)).map(|worker| worker.id);
        for worker in workers.collect::<Vec<_>>() {
            let reason = if self.drains() { "its node was drained" } else { "the node stops" };
            self.stop_process(worker, Manner::Exit, reason.to_string());
        }
        self.after(2 * EXIT_GRACE, Timer::Stop);
        self.stop_when_empty();
    }

    fn stop_when_empty(&mut self) {
        if self.stopping && !self.processes.values().any(Process::is_worker) {
            self.stopped();
        }
    }

    pub(super) fn stopped(&mut self) {
        self.write_all_past();
        self.out.push(Effect::Stopped);
    }

    pub(super) fn check_processes(&self) {
        for process in self.processes.values() {
            let id = process.id;
            if process.kind != Kind::Tool {
                assert_eq!(self.slots.owner(id.slot() as u16), Some(id), "NODE-1: {id}");
            }
        }
        for id in self.mapped.keys() {
            assert_eq!(self.slots.owner(id.slot() as u16), Some(*id), "NODE-1: {id}");
            assert!(!self.processes.contains_key(id), "NODE-1: {id} is not buried");
        }
        let starts = self.processes.values().filter(|it| it.stage.ticket().is_some());
        assert_eq!(starts.count(), self.pool.starting(), "NODE-4");
        let joined = self.processes.values().filter(|it| it.kind != Kind::Tool);
        let joined = joined.filter(|it| it.stage.ticket().is_none()).map(|it| it.id);
        let joined: BTreeSet<ProcessId> = joined.chain(self.unheard.keys().copied()).collect();
        let haul = self.haul();
        let known = self.objects.processes().filter(|it| *it != haul);
        assert!(joined.into_iter().eq(known), "NODE-3");
        let taken = self.processes.values().filter(|it| it.kind != Kind::Tool).count();
        assert_eq!(taken + self.mapped.len(), self.slots.taken().len(), "NODE-1");
    }
}

fn obituary(process: &Process, last_lines: Vec<String>) -> Obituary {
    assert!(last_lines.len() <= OBITUARY_LINES);
    let by_status = || match process.status {
        Some(status) if status < 0 => DeathCause::Signaled { signal: -status },
        Some(code) => DeathCause::Exited { code },
        None if process.kind == Kind::Driver => DeathCause::Exited { code: 0 },
        None => {
            let reason = "it ended, and its exit status is not known".to_string();
            DeathCause::Lost { reason }
        }
    };
    let cause = process.cause.clone().unwrap_or_else(by_status);
    Obituary { pid: process.pid(), cause, last_lines }
}

/// Why a worker did not start, with what it printed.
/// What those hear that waited for it.
fn failed_start(obituary: &Obituary) -> Failure {
    let (kind, mut text) = match &obituary.cause {
        DeathCause::BadEnvironment { reason } => (FailureKind::RuntimeEnv, reason.clone()),
        DeathCause::NotStarted { reason } => (FailureKind::WorkerStart, reason.clone()),
        DeathCause::Exited { .. }
        | DeathCause::Signaled { .. }
        | DeathCause::OutOfMemory { .. }
        | DeathCause::Stopped { .. }
        | DeathCause::Lost { .. } => (FailureKind::WorkerStart, obituary.headline()),
    };
    for line in &obituary.last_lines {
        text.push_str("\n  ");
        text.push_str(line);
    }
    Failure::new(kind, text)
}
