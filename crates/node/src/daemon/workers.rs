//! Worker processes as the kernel and the zygote show them: forks, pipes, ends.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use hoplo_base::limits::FAMILY_PERIOD;
use hoplo_base::{JobId, ProcessId};
use hoplo_core::node::{Event, Kind};
use hoplo_folders::life::life;
use hoplo_shm::fds;
use hoplo_wire::node::{BAR_MARK, DeathCause, JobConfig, RuntimeEnv};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;

use crate::children::{self, Families};
use crate::daemon::effects::known;
use crate::daemon::ids::process_id;
use crate::daemon::{Daemon, Timer};
use crate::output::{LastLines, Pipe, Printer};
use crate::poll::Source;
use crate::zygote::{FromZygote, Lost};
use crate::{journal, machine};

/// What workers print.
#[derive(Debug)]
pub(crate) struct WorkerSide {
    stdout: Option<Pipe>,
    stderr: Option<Pipe>,
    last_lines: LastLines,
    /// It has told its driver of progress bars.
    has_bars: bool,
}

impl WorkerSide {
    fn pipe(&mut self, stderr: bool) -> &mut Option<Pipe> {
        if stderr { &mut self.stderr } else { &mut self.stdout }
    }
}

impl Daemon {
    pub(crate) fn fork(&mut self, process: ProcessId, config: &JobConfig, env: &RuntimeEnv) {
        if let Err(reason) = self.try_fork(process, config, env) {
            self.answer(Event::ForkFailed { process, reason });
        }
    }

    fn try_fork(
        &mut self,
        id: ProcessId,
        config: &JobConfig,
        env: &RuntimeEnv,
    ) -> Result<(), String> {
        let program = match &env.python {
            None => None,
            Some(python) => match self.environments.program(python) {
                Some(program) => Some(program.clone()),
                None => {
                    let reason = format!("runtime_env: {} is not there any more", python.what);
                    self.answer(Event::ForkRefused { process: id, reason });
                    return Ok(());
                }
            },
        };
        let text = |error: io::Error| format!("no descriptors for a worker: {error}");
        let cloexec = rustix::pipe::PipeFlags::CLOEXEC;
        let pipe = || rustix::pipe::pipe_with(cloexec).map_err(|error| text(error.into()));
        let (ours, theirs) = fds::socketpair().map_err(text)?;
        let (stdout, stdout_end) = pipe()?;
        let (stderr, stderr_end) = pipe()?;
        self.connect_worker(ours, id).map_err(text)?;
        let mut pipes = [(stdout, false), (stderr, true)].map(|(fd, stderr)| {
            let pipe = Pipe::new(fd).ok()?;
            let source = Source::Output { slot: id.slot() as u16, stderr };
            self.poller.add(pipe.fd(), source).ok()?;
            Some(pipe)
        });
        let worker = WorkerSide {
            stdout: pipes[0].take(),
            stderr: pipes[1].take(),
            last_lines: LastLines::default(),
            has_bars: false,
        };
        self.workers.insert(id, worker);
        let fds: Rc<[OwnedFd]> = vec![theirs, stdout_end, stderr_end].into();
        self.zygote.fork(&self.poller, id.0, config, env, program.as_ref(), fds)
    }

    pub(crate) fn on_zygote(&mut self) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let said = self.zygote.read(&mut scratch);
        if said.is_none() {
            journal::log(self.zygote.bury(&self.poller, &mut scratch));
            self.lose_forks();
            self.end_orphans();
        }
        self.scratch = scratch;
        for message in said.unwrap_or_default() {
            match message {
                FromZygote::Forked { id, pid } => {
                    self.handle(Event::Forked { process: ProcessId(id), pid });
                }
                FromZygote::Failed { id, error } => {
                    self.handle(Event::ForkFailed { process: ProcessId(id), reason: error });
                }
                FromZygote::Refused { id, error } => {
                    self.handle(Event::ForkRefused { process: ProcessId(id), reason: error });
                }
                FromZygote::Exited { pid, status } => self.on_exited(pid, status),
            }
        }
    }

    pub(crate) fn on_zygote_output(&mut self) {
        let text = self.zygote.read_output(&mut self.scratch);
        if !text.is_empty() {
            journal::log(format_args!("zygote: {}", text.trim_end()));
        }
    }

    /// What a dead zygote did not do.
    fn lose_forks(&mut self) {
        for lost in self.zygote.take_lost() {
            self.handle(match lost {
                Lost::Failed { id, reason } => Event::ForkFailed { process: ProcessId(id), reason },
                Lost::Undone { id } => Event::ForkUndone { process: ProcessId(id) },
            });
        }
    }

    /// Tells us when it ends, even if its children keep its socket open.
    pub(crate) fn watch(&mut self, id: ProcessId, pid: u32) {
        let logs = self.session.path().join("logs");
        if let Some(worker) = self.workers.get_mut(&id) {
            for (pipe, end) in [(&mut worker.stdout, "out"), (&mut worker.stderr, "err")] {
                if let Some(pipe) = pipe {
                    pipe.name(logs.join(format!("worker-{pid}.{end}")));
                }
            }
        }
        let Ok(life) = life(pid) else { return };
        if self.poller.add(&life, Source::Life(id.slot() as u16)).is_ok() {
            self.lives.insert(id, life);
        }
    }

    /// Kills it, with what it started if it leads a group of its own.
    pub(crate) fn kill(&self, id: ProcessId, pid: u32) {
        let Some(pid) = known(pid) else { return };
        if rustix::process::getpgid(Some(pid)).is_ok_and(|group| group == pid) {
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
        let _ = match self.lives.get(&id) {
            Some(life) => rustix::process::pidfd_send_signal(life, Signal::KILL),
            None => rustix::process::kill_process(pid, Signal::KILL),
        };
    }

    fn on_exited(&mut self, pid: u32, status: i32) {
        let mut workers = self.node.processes().filter(|process| process.is_worker());
        let Some(process) = workers.find(|worker| worker.pid() == pid).map(|it| it.id) else {
            return;
        };
        drop(workers);
        self.read_to_the_end(process);
        self.handle(Event::Exited { process, status });
    }

    /// The store's, and one end of a pipe. The driver holds that end as long as it has the store mapped: its process may go on for long
    /// after it has left, and we do not watch it otherwise. Without a pipe the driver finds a descriptor missing, and goes.
    pub(crate) fn descriptors_of_driver(&mut self, id: ProcessId) -> Rc<[OwnedFd]> {
        self.watch_driver(id).unwrap_or_else(|error| {
            journal::log(format_args!("{id} cannot be welcomed: {error}"));
            self.store.descriptors()
        })
    }

    fn watch_driver(&mut self, id: ProcessId) -> io::Result<Rc<[OwnedFd]>> {
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        let store = self.store.descriptors();
        let store = store.iter().map(OwnedFd::try_clone);
        let all = store.chain([Ok(theirs)]).collect::<io::Result<Vec<OwnedFd>>>()?;
        self.poller.add(&ours, Source::Life(id.slot() as u16))?;
        self.lives.insert(id, ours);
        Ok(all.into())
    }

    /// The kernel says that it ended, or that it has unmapped the store.
    pub(crate) fn on_life(&mut self, slot: u16) {
        let Some(process) = self.node.owner_of_slot(slot) else { return };
        if let Some(life) = self.lives.remove(&process) {
            self.poller.remove(&life);
        }
        if self.node.process(process).is_none_or(|it| it.kind == Kind::Driver) {
            self.read_to_the_end(process);
            return self.handle(Event::Unmapped { process });
        }
        let pid = self.node.process(process).filter(|it| it.is_worker()).map(|it| it.pid());
        // It is our own child when its zygote is dead.
        let status = pid.and_then(children::reap);
        let status_follows = self.zygote.is_running();
        self.read_to_the_end(process);
        self.handle(match status {
            Some(status) => Event::Exited { process, status },
            None => Event::Ended { process, status_follows },
        });
        self.end_orphans();
    }

    /// What dead workers left behind whose zygote is dead as well: the next one does not know of it.
    pub(crate) fn end_orphans(&mut self) {
        if self.are_orphans_left()
            && let Some(pause) = self.orphan_looks.again()
        {
            self.after(pause, Timer::Orphans);
        }
    }

    /// Those that were killed may have left others behind.
    pub(crate) fn look_for_orphans(&mut self) {
        let left = self.are_orphans_left();
        if let Some(pause) = self.orphan_looks.due(left) {
            self.after(pause, Timer::Orphans);
        }
    }

    fn are_orphans_left(&mut self) -> bool {
        if !self.adopts || !(self.zygote.has_died() || self.environments.has_built) {
            return false;
        }
        let live = self.node.processes().filter(|process| !process.stage.is_dead());
        let mut kept: BTreeSet<u32> = live.map(|process| process.pid()).collect();
        kept.extend(self.zygote.pid());
        kept.extend(self.environments.pids());
        kept.extend(&self.not_ours);
        let left = children::end_all_but(&kept);
        self.environments.has_built &= left;
        left
    }

    /// Bytes of memory that a process and all that it started use.
    pub(crate) fn family_bytes(&mut self, pid: u32) -> u64 {
        let known = self.families.take();
        let fresh = known.filter(|(at, _)| self.now.since(*at) < FAMILY_PERIOD);
        let fresh = fresh.or_else(|| Some((self.now, Families::look().ok()?)));
        let Some((at, families)) = fresh else { return machine::own_bytes(pid).unwrap_or(0) };
        let family = families.of(pid);
        self.families = Some((at, families));
        match family.as_slice() {
            [_] => machine::own_bytes(pid).unwrap_or(0),
            family => machine::own_bytes_together(family),
        }
    }

    pub(crate) fn on_output(&mut self, slot: u16, stderr: bool) {
        let Some(id) = self.node.owner_of_slot(slot) else { return };
        // Its title is written before what it prints under it.
        self.read_from(id);
        if !self.read_output(id, stderr) {
            let Some(worker) = self.workers.get_mut(&id) else { return };
            if let Some(pipe) = worker.pipe(stderr).take() {
                self.poller.remove(pipe.fd());
            }
        }
    }

    /// What the workers of a job have printed up to now.
    pub(crate) fn read_outputs_of(&mut self, job: JobId) {
        let workers = self.node.processes().filter(|it| it.job == job && it.is_worker());
        for id in workers.map(|process| process.id).collect::<Vec<_>>() {
            self.read_output(id, false);
            self.read_output(id, true);
        }
    }

    /// Whether there may be more.
    fn read_output(&mut self, id: ProcessId, stderr: bool) -> bool {
        let Some(worker) = self.workers.get_mut(&id) else { return false };
        let Some(pipe) = worker.pipe(stderr) else { return false };
        let (lines, more) = pipe.read(&mut self.scratch);
        worker.last_lines.extend(&lines);
        worker.has_bars |= lines.iter().any(|line| line.contains(BAR_MARK));
        self.print(id, stderr, lines);
        more
    }

    /// It is dead: what it printed is read, and why the kernel may have killed it.
    pub(crate) fn examine(&mut self, id: ProcessId) {
        for stderr in [false, true] {
            // Bounded: what it left behind may print on.
            for _ in 0..8 {
                if !self.read_output(id, stderr) || !self.has_more_output(id, stderr) {
                    break;
                }
            }
            let worker = self.workers.get_mut(&id);
            let pipe = worker.and_then(|worker| worker.pipe(stderr).as_mut());
            if let Some(line) = pipe.and_then(Pipe::rest) {
                let worker = self.workers.get_mut(&id).expect("its pipe was just read");
                worker.last_lines.extend(std::slice::from_ref(&line));
                self.print(id, stderr, vec![line]);
            }
        }
        if self.workers.get(&id).is_some_and(|worker| worker.has_bars) {
            // It cannot close them any more.
            let line = format!("{BAR_MARK}{{\"gone\": \"{}\"}}", process_id(id));
            self.print(id, true, vec![line]);
        }
        if let Some(job) = self.node.process(id).map(|process| process.job) {
            self.flush_output(job);
        }
        let verdict = self.cages.autopsy(id).map(|limit| {
            let limit = hoplo_base::Size(limit);
            DeathCause::OutOfMemory {
                detail: format!("it went over its limit (memory=) of {limit}"),
            }
        });
        let last_lines = self.workers.get(&id).map(|worker| worker.last_lines.to_vec());
        let last_lines = last_lines.unwrap_or_default();
        self.answer(Event::Examined { process: id, last_lines, verdict });
    }

    fn has_more_output(&mut self, id: ProcessId, stderr: bool) -> bool {
        let worker = self.workers.get_mut(&id);
        let pipe = worker.and_then(|worker| worker.pipe(stderr).as_ref());
        pipe.is_some_and(Pipe::has_more)
    }

    fn print(&mut self, id: ProcessId, stderr: bool, lines: Vec<String>) {
        let Some(process) = self.node.process(id) else { return };
        let (pid, title, job) = (process.pid(), process.title.clone(), process.job);
        self.show(job, &Printer { pid, title, stderr }, lines);
    }
}
