//! Worker processes: from the order to fork one to its obituary.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use hoplo_base::limits::OBITUARY_LINES;
use hoplo_base::{JobId, ProcessId};
use hoplo_core::actors::life::{self, Manner};
use hoplo_core::objects;
use hoplo_core::sched::local::{self, Claimant};
use hoplo_core::sched::workers;
use hoplo_shm::fds;
use hoplo_wire::node::{DeathCause, Obituary, RuntimeEnv, ToClient};
use rustix::process::{Pid, Signal};

use crate::clients::Kind;
use crate::daemon::{Daemon, EXIT_GRACE, GRAVES_MAX, RETIRE_GRACE, STATUS_PATIENCE, Timer, Work};
use crate::journal;
use crate::output::{LastLines, Pipe, Printer};
use crate::poll::Source;
use crate::zygote::FromZygote;

/// What the daemon keeps of a worker only.
#[derive(Debug)]
pub(crate) struct WorkerSide {
    /// The pool's.
    pub(crate) attempt: u64,
    stdout: Option<Pipe>,
    stderr: Option<Pipe>,
    last_lines: LastLines,
    /// It is to be killed as soon as its pid is known.
    kill_at_birth: bool,
}

impl Daemon {
    pub(crate) fn fork(&mut self, attempt: u64, job: JobId, env: &RuntimeEnv) {
        if let Err(reason) = self.try_fork(attempt, job, env) {
            let failed = workers::Event::StartFailed { attempt, reason };
            self.queue.push_back(Work::Pool(failed));
        }
    }

    fn try_fork(&mut self, attempt: u64, job: JobId, env: &RuntimeEnv) -> Result<(), String> {
        let text = |error: std::io::Error| format!("no descriptors for a worker: {error}");
        let cloexec = rustix::pipe::PipeFlags::CLOEXEC;
        let pipe = || rustix::pipe::pipe_with(cloexec).map_err(|error| text(error.into()));
        let (ours, theirs) = fds::socketpair().map_err(text)?;
        let (stdout, stdout_end) = pipe()?;
        let (stderr, stderr_end) = pipe()?;
        let config = Rc::clone(&self.jobs.get(&job).ok_or("its job has ended")?.config);
        let id = self.new_process(Kind::Worker, 0).ok_or("too many processes on this node")?;
        let number = self.connect_worker(ours, id).map_err(|error| {
            self.processes.remove(&id);
            self.slots.give_back(id.slot() as u16);
            text(error)
        })?;
        let mut pipes = [(stdout, false), (stderr, true)].map(|(fd, stderr)| {
            let pipe = Pipe::new(fd).ok()?;
            let source = Source::Output { slot: id.slot() as u16, stderr };
            self.poller.add(pipe.fd(), source).ok()?;
            Some(pipe)
        });
        let process = self.processes.get_mut(&id).expect("it was just made");
        process.job = job;
        process.connection = Some(number);
        process.worker = Some(WorkerSide {
            attempt,
            stdout: pipes[0].take(),
            stderr: pipes[1].take(),
            last_lines: LastLines::default(),
            kill_at_birth: false,
        });
        self.attempts.insert(attempt, id);
        let fds: Rc<[OwnedFd]> = vec![theirs, stdout_end, stderr_end].into();
        self.zygote.fork(attempt, &config, env, fds);
        if !self.zygote.is_running() {
            self.zygote.start(&self.poller);
        }
        self.fail_forks();
        Ok(())
    }

    pub(crate) fn on_zygote(&mut self) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let said = self.zygote.read(&mut scratch);
        if said.is_none() {
            journal::log(self.zygote.bury(&self.poller, &mut scratch));
        }
        self.scratch = scratch;
        for message in said.unwrap_or_default() {
            match message {
                FromZygote::Forked { id, pid } => self.on_forked(id, pid),
                FromZygote::Refused { id, error } => self.fork_failed(id, error),
                FromZygote::Exited { pid, status } => self.on_exited(pid, status),
            }
            self.settle();
        }
        self.fail_forks();
    }

    pub(crate) fn on_zygote_output(&mut self) {
        let text = self.zygote.read_output(&mut self.scratch);
        if !text.is_empty() {
            journal::log(format_args!("zygote: {}", text.trim_end()));
        }
    }

    /// What the zygote gave up.
    pub(crate) fn fail_forks(&mut self) {
        for (attempt, reason) in self.zygote.take_failed() {
            self.fork_failed(attempt, reason);
        }
    }

    fn on_forked(&mut self, attempt: u64, pid: u32) {
        // It may have said Hello before its birth is told.
        let ours = |process: &&mut crate::clients::Process| {
            process.worker.as_ref().is_some_and(|worker| worker.attempt == attempt)
        };
        let Some(process) = self.processes.values_mut().find(ours) else { return };
        process.pid = pid;
        let id = process.id;
        let logs = self.session.path().join("logs");
        let worker = process.worker.as_mut().expect("it was just looked at");
        for (pipe, end) in [(&mut worker.stdout, "out"), (&mut worker.stderr, "err")] {
            if let Some(pipe) = pipe {
                pipe.name(logs.join(format!("worker-{pid}.{end}")));
            }
        }
        let kill = worker.kill_at_birth;
        self.watch_life(id);
        if kill {
            self.processes[&id].kill();
        }
    }

    fn fork_failed(&mut self, attempt: u64, reason: String) {
        let Some(id) = self.attempts.get(&attempt).copied() else { return };
        let process = self.processes.get_mut(&id).expect("an attempt has a process");
        process.cause = Some(DeathCause::NotStarted { reason });
        process.dead = true;
        self.bury(id);
    }

    fn on_exited(&mut self, pid: u32, status: i32) {
        let ours =
            |process: &&mut crate::clients::Process| process.is_worker() && process.pid == pid;
        let Some(process) = self.processes.values_mut().find(ours) else { return };
        process.status = Some(status);
        let id = process.id;
        self.read_to_the_end(id);
        self.bury(id);
    }

    /// The kernel says that it ended.
    pub(crate) fn on_life(&mut self, slot: u16) {
        let Some(id) = self.slots.owner(slot) else { return };
        let process = self.processes.get_mut(&id).expect("a slot's owner lives");
        if let Some(life) = process.life.take() {
            self.poller.remove(&life);
        }
        process.dead = true;
        let status_is_coming = process.is_worker() && self.zygote.is_running();
        self.read_to_the_end(id);
        if status_is_coming {
            self.after(STATUS_PATIENCE, Timer::Bury(id));
        } else {
            self.bury(id);
        }
    }

    pub(crate) fn on_output(&mut self, slot: u16, stderr: bool) {
        let Some(id) = self.slots.owner(slot) else { return };
        // Its title is written before what it prints under it.
        if let Some(number) = self.processes[&id].connection {
            self.read_connection(number, usize::MAX);
        }
        if !self.read_output(id, stderr) {
            let Some(process) = self.processes.get_mut(&id) else { return };
            let Some(worker) = &mut process.worker else { return };
            let pipe = if stderr { worker.stderr.take() } else { worker.stdout.take() };
            if let Some(pipe) = pipe {
                self.poller.remove(pipe.fd());
            }
        }
    }

    /// What the workers of a job have printed up to now.
    pub(crate) fn read_outputs_of(&mut self, job: JobId) {
        let workers = self.processes.values().filter(|p| p.job == job && p.is_worker());
        for id in workers.map(|process| process.id).collect::<Vec<_>>() {
            self.read_output(id, false);
            self.read_output(id, true);
        }
    }

    /// Whether there may be more.
    fn read_output(&mut self, id: ProcessId, stderr: bool) -> bool {
        let Some(process) = self.processes.get_mut(&id) else { return false };
        let (pid, job, title) = (process.pid, process.job, process.title.clone());
        let Some(worker) = &mut process.worker else { return false };
        let pipe = if stderr { &mut worker.stderr } else { &mut worker.stdout };
        let Some(pipe) = pipe else { return false };
        let (lines, more) = pipe.read(&mut self.scratch);
        worker.last_lines.extend(&lines);
        self.print(job, &Printer { pid, title, stderr }, lines);
        more
    }

    /// Asks a process to end, or ends it.
    pub(crate) fn stop_process(&mut self, id: ProcessId, manner: Manner, reason: String) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.cause.get_or_insert(DeathCause::Stopped { reason: reason.clone() });
        if process.pid == 0
            && let Some(worker) = &mut process.worker
        {
            worker.kill_at_birth = true;
        }
        match manner {
            Manner::Kill => return process.kill(),
            Manner::Exit => self.after(EXIT_GRACE, Timer::Kill(id)),
            Manner::Finish => {}
        }
        self.send(id, &ToClient::Exit { graceful: manner == Manner::Finish, reason });
    }

    /// An idle worker: nothing waits for what it does, so it may not linger.
    pub(crate) fn retire(&mut self, id: ProcessId, reason: &str) {
        self.stop_process(id, Manner::Finish, reason.to_string());
        self.after(RETIRE_GRACE, Timer::Kill(id));
    }

    /// Its time is over: dead after this, whatever it does.
    pub(crate) fn kill_late(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let reason = "it closed its connection and did not end".to_string();
        process.cause.get_or_insert(DeathCause::Stopped { reason });
        process.kill();
    }

    /// The end of a process: everybody concerned is told, and its place is free.
    pub(crate) fn bury(&mut self, id: ProcessId) {
        self.read_to_the_end(id);
        for stderr in [false, true] {
            // Bounded: what it left behind may print on.
            for _ in 0..8 {
                if !self.read_output(id, stderr) || !self.has_more_output(id, stderr) {
                    break;
                }
            }
        }
        let Some(mut process) = self.processes.remove(&id) else { return };
        if process.kind == Kind::Tool {
            return self.forget_asker(id);
        }
        if let Some(worker) = &mut process.worker {
            for (pipe, stderr) in [(&mut worker.stdout, false), (&mut worker.stderr, true)] {
                let Some(line) = pipe.as_mut().and_then(Pipe::rest) else { continue };
                worker.last_lines.extend(std::slice::from_ref(&line));
                let title = process.title.clone();
                self.print(process.job, &Printer { pid: process.pid, title, stderr }, vec![line]);
            }
        }
        if let Some(cause) = self.autopsy(id) {
            process.cause.get_or_insert(cause);
        }
        let obituary = obituary(&process);
        journal::note(self.now, &(id, &obituary));
        self.flush_output(process.job);
        self.tell_gone(&process, &obituary);
        self.store.bury(id.slot() as u16);
        self.slots.give_back(id.slot() as u16);
        self.end_group(&process);
        if process.greeted {
            let headline = obituary.headline();
            let gone = objects::Event::ProcessGone { process: id, obituary: headline };
            self.queue.push_back(Work::Objects(gone));
        }
        match process.worker.as_ref().map(|worker| worker.attempt) {
            Some(attempt) if self.attempts.remove(&attempt).is_some() => {
                let reason = failure_reason(&obituary);
                self.queue.push_back(Work::Pool(workers::Event::StartFailed { attempt, reason }));
            }
            Some(_) | None => {
                self.queue.push_back(Work::Pool(workers::Event::Gone { process: id }));
            }
        }
        self.queue.push_back(Work::Scheduler(local::Event::ProcessGone { process: id }));
        let gone = life::Event::ProcessGone { process: id, obituary: obituary.clone() };
        self.queue.push_back(Work::Actors(gone));
        if process.kind == Kind::Driver {
            self.end_job(process.job);
        }
        self.graves.push_back((id, obituary));
        if self.graves.len() > GRAVES_MAX {
            self.graves.pop_front();
        }
        self.forget_asker(id);
        self.stop_when_empty();
    }

    /// To everyone who has a channel with it, or a lease on it.
    fn tell_gone(&mut self, process: &crate::clients::Process, obituary: &Obituary) {
        let mut concerned = process.peers.clone();
        if let Some(Claimant::Demand { process: holder, .. }) =
            self.scheduler.lease_on(process.id).map(|lease| lease.claimant)
        {
            concerned.insert(holder);
        }
        let (id, obituary) = (process.id, obituary.clone());
        let message = ToClient::ProcessGone { process: id, obituary };
        for peer in concerned {
            if let Some(peer) = self.processes.get_mut(&peer) {
                peer.peers.remove(&id);
            }
            self.send(peer, &message);
        }
    }

    /// What it started and left behind in its own group.
    fn end_group(&self, process: &crate::clients::Process) {
        let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| process.is_worker()) {
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }

    fn has_more_output(&self, id: ProcessId, stderr: bool) -> bool {
        let worker = self.processes.get(&id).and_then(|process| process.worker.as_ref());
        let pipe = worker.and_then(|w| if stderr { w.stderr.as_ref() } else { w.stdout.as_ref() });
        pipe.is_some_and(Pipe::has_more)
    }
}

fn obituary(process: &crate::clients::Process) -> Obituary {
    let last_lines = process.worker.as_ref().map(|worker| worker.last_lines.to_vec());
    let last_lines = last_lines.unwrap_or_default();
    assert!(last_lines.len() <= OBITUARY_LINES);
    let by_status = || match process.status {
        Some(status) if status < 0 => DeathCause::Signaled { signal: -status },
        Some(code) => DeathCause::Exited { code },
        None if process.kind == Kind::Driver => DeathCause::Exited { code: 0 },
        None => {
            let reason = "it ended, and its exit status is not known".to_string();
            DeathCause::Stopped { reason }
        }
    };
    let cause = process.cause.clone().unwrap_or_else(by_status);
    Obituary { pid: process.pid, cause, last_lines }
}

/// Why a worker did not start, with what it printed.
fn failure_reason(obituary: &Obituary) -> String {
    let mut text = match &obituary.cause {
        DeathCause::NotStarted { reason } => reason.clone(),
        _ => obituary.headline(),
    };
    for line in &obituary.last_lines {
        text.push_str("\n  ");
        text.push_str(line);
    }
    text
}
