//! What the kernel and the zygote know of processes, and when they tell it.
//!
//! ```text
//!  Fork --> Born: it runs --+--> (its hello, by its own socket)
//!                           +--> Births: the zygote tells its pid
//!  dead --+--> Closes: the end of its socket       each of the three may come first,
//!         +--> Ends: its pidfd, once watched       and the status may come too late
//!         +--> Reports: its exit status, after its pid
//! ```
//! A driver is not watched: it unmaps the store (`Unmaps`) when it is dead, or, after it has left, at any time.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use hoplo_base::limits::MEMORY_AVAILABLE_MIN_PERCENT;
use hoplo_base::{ActorId, ObjectId, ProcessId};
use hoplo_core::node::Event;
use hoplo_wire::node::{ActorState, DeathCause, Role, ToNode};

use crate::client::Client;
use crate::cluster::{Cluster, Step};
use crate::daemon::hello;
use crate::memory::decode_content;
use crate::sabotage::Sabotage;

/// One process, as the kernel has it.
#[derive(Debug)]
pub struct Kernel {
    pid: u32,
    /// Exit code, or minus a signal, once it is dead.
    status: Option<i32>,
    /// The daemon has a pidfd of it.
    watched: bool,
    /// The zygote has told its pid.
    told: bool,
    is_driver: bool,
    /// It has nothing of the store mapped: no array of it lies there.
    unmapped: bool,
}

impl Cluster {
    /// A process begins to run.
    pub fn runs(&mut self, process: ProcessId, pid: u32) {
        let is_driver = self.clients[&process].is_driver;
        let (watched, told, unmapped) = (false, false, false);
        let kernel = Kernel { pid, status: None, watched, told, is_driver, unmapped };
        self.kernel.insert(process, kernel);
        if !self.here.slots_used.insert(process.slot()) {
            self.count("slots used again");
        }
    }

    // ---- birth ----

    pub fn asked_to_fork(&mut self, process: ProcessId) {
        let delay = self.rng.delay(Duration::from_millis(10));
        self.after(delay, Step::Born(process));
    }

    pub fn born(&mut self, process: ProcessId) {
        if self.plan.fork_failures && self.faulty() && self.rng.one_in(3) {
            let job = self.job_of(process);
            self.books.facts.fails_to_start(job);
            self.count("failed forks");
            self.note(|| format!("FAULT: the fork of {process} fails"));
            let reason = "no memory for a fork".to_string();
            return self.happens(Event::ForkFailed { process, reason });
        }
        let job = self.job_of(process);
        let pid = self.kernel.len() as u32 + 1;
        self.note(|| format!("{process} is forked for {job}, pid {pid}"));
        self.clients.insert(process, Client::worker(process, job));
        self.here.daemon.open.insert(process);
        self.runs(process, pid);
        let (births, hellos) = (Duration::from_millis(2), Duration::from_millis(5));
        let delay = self.rng.delay(births.max(self.plan.tardiness));
        self.after(delay, Step::Births(process));
        let delay = self.rng.delay(hellos);
        self.after(delay, Step::Hellos(process));
        if self.plan.kills > 0 && self.faulty() && self.rng.one_in(2 * self.plan.kills) {
            let delay = self.rng.delay(hellos);
            self.note(|| format!("FAULT: {process} is killed while it starts"));
            self.after(delay, Step::Dies(process));
        }
    }

    /// The zygote's word on it is read.
    pub fn births(&mut self, process: ProcessId) {
        let kernel = self.kernel.get_mut(&process).expect("it was forked");
        kernel.told = true;
        let (pid, dead) = (kernel.pid, kernel.status.is_some());
        self.happens(Event::Forked { process, pid });
        if dead {
            self.reports_status(process);
        }
    }

    pub fn hellos(&mut self, process: ProcessId) {
        if self.client(process).alive {
            self.say(process, hello(Role::Worker));
        }
    }

    // ---- the end ----

    /// A process ends: what it wrote can still be read.
    pub fn dies(&mut self, process: ProcessId, cause: DeathCause) {
        let status = match cause {
            DeathCause::Exited { code } => code,
            DeathCause::Signaled { signal } => -signal,
            DeathCause::OutOfMemory { .. }
            | DeathCause::Stopped { .. }
            | DeathCause::Lost { .. }
            | DeathCause::NotStarted { .. }
            | DeathCause::BadEnvironment { .. } => panic!("the kernel knows no {cause:?}"),
        };
        let Some(kernel) = self.kernel.get_mut(&process).filter(|it| it.status.is_none()) else {
            return;
        };
        kernel.status = Some(status);
        let (told, watched, is_driver) = (kernel.told, kernel.watched, kernel.is_driver);
        self.note(|| format!("{process} dies"));
        let by_itself = matches!(cause, DeathCause::Exited { .. }) && !is_driver;
        self.falls_silent(process, by_itself);
        if is_driver {
            let delay = self.rng.delay(Duration::from_millis(2).max(self.plan.tardiness));
            self.after(delay, Step::Unmaps(process));
        }
        if watched {
            self.ends_soon(process);
        }
        if told && !is_driver {
            self.reports_status(process);
        }
    }

    /// It runs no more of our code: dead, or it left hoplo and hangs.
    fn falls_silent(&mut self, process: ProcessId, by_itself: bool) {
        let client = self.client(process);
        if !std::mem::replace(&mut client.alive, false) {
            return;
        }
        let (is_driver, job) = (client.is_driver, client.job);
        if !self.here.daemon.node.process(process).is_some_and(|it| it.is_greeted()) {
            self.books.facts.fails_to_start(job);
            self.count("deaths before hello");
        }
        let client = &self.clients[&process];
        if by_itself {
            self.books.facts.leaves(process);
        } else {
            self.books.lost_with(client.session.known_objects());
            let running = client.fibers.values().filter_map(|fiber| fiber.task());
            self.books.facts.dies(process, running);
        }
        let delay = self.rng.delay(Duration::from_millis(2).max(self.plan.tardiness));
        self.after(delay, Step::Closes(process));
        if is_driver {
            self.driver_finished();
        }
    }

    /// It closes what it has of ours, and goes on for ever. A driver may: it is a program that calls `shutdown()`, and has arrays that lie in
    /// the store until later.
    pub fn hangs(&mut self, process: ProcessId) {
        if !self.client(process).alive {
            return;
        }
        self.note(|| format!("FAULT: {process} closes its connection and does not end"));
        if !self.client(process).is_driver {
            self.count("workers that hang");
            return self.falls_silent(process, false);
        }
        self.count("drivers that left and went on");
        // Else its connection broke.
        if self.rng.one_in(2) {
            self.returns_room(process, u64::MAX);
        }
        self.falls_silent(process, false);
        let delay = self.rng.delay(Duration::from_millis(100));
        self.after(delay, Step::Unmaps(process));
    }

    /// Nobody else may be writing there, who has not given it back.
    pub fn room_is_free(&self, room: Range<u64>) {
        let node = self.here.number;
        for client in self.clients.values().filter(|it| it.id.node() == node) {
            let kernel = &self.kernel[&client.id];
            if kernel.status.is_some() || kernel.unmapped {
                continue;
            }
            let mut free = client.extents.free_ranges();
            let over = free.find(|it| it.start < room.end && room.start < it.end);
            assert!(
                over.is_none(),
                "NODE-1: {room:?} is granted, and {} may write there",
                client.id
            );
        }
    }

    /// Until now it could read its arrays.
    pub fn unmaps(&mut self, process: ProcessId) {
        if std::mem::replace(&mut self.kernel_mut(process).unmapped, true) {
            return;
        }
        if self.kernel[&process].status.is_none() {
            for (_, (object, location)) in std::mem::take(&mut self.client(process).views) {
                let there = self.here.memory.is_there(location);
                assert!(there, "NODE-1: {process} reads {object}, which is not there any more");
                let (token, _) = decode_content(self.here.memory.content(location));
                self.books.is_value_of(object, token);
                self.count("arrays that were read after their driver had left");
            }
        }
        self.read_to_the_end(process);
        self.happens(Event::Unmapped { process });
    }

    fn kernel_mut(&mut self, process: ProcessId) -> &mut Kernel {
        self.kernel.get_mut(&process).expect("it runs")
    }

    pub fn is_deaf(&mut self, process: ProcessId) {
        if !self.client(process).alive {
            return;
        }
        self.count("workers that do not read");
        self.note(|| format!("FAULT: {process} does not read"));
        self.here.daemon.excused += 1;
        self.happens(match self.sabotage {
            Some(Sabotage::DeafAreUnheard) => Event::Broke { process, what: "is deaf".into() },
            _ => Event::DoesNotRead { process },
        });
        self.here.daemon.excused = self.here.daemon.node.violations();
    }

    pub fn is_killed(&mut self, process: ProcessId, pid: u32) {
        assert_eq!(self.kernel[&process].pid, pid, "{process}");
        self.count("kills by the daemon");
        self.books.facts.dooms(process);
        let delay = self.rng.delay(Duration::from_micros(100));
        self.after(delay, Step::Dies(process));
    }

    /// The daemon closed the connection: a process that notices exits.
    pub fn hung_up(&mut self, process: ProcessId) {
        let open = self.here.daemon.open.remove(&process);
        self.notes_closed(process);
        if open && self.clients.get(&process).is_some_and(|client| client.alive) {
            let delay = self.rng.delay(Duration::from_millis(1));
            self.after(delay, Step::Dies(process));
        }
    }

    pub fn watches(&mut self, process: ProcessId, pid: u32) {
        let kernel = self.kernel.get_mut(&process).expect("it has a pid");
        assert_eq!(kernel.pid, pid, "{process}");
        kernel.watched = true;
        if kernel.status.is_some() {
            self.ends_soon(process);
        }
    }

    fn ends_soon(&mut self, process: ProcessId) {
        let delay = self.rng.delay(Duration::from_millis(2).max(self.plan.tardiness));
        self.after(delay, Step::Ends(process));
    }

    fn reports_status(&mut self, process: ProcessId) {
        let late = self.rng.one_in(16);
        let most = if late { Duration::from_millis(400) } else { Duration::from_millis(2) };
        let delay = self.rng.delay(most);
        self.after(delay, Step::Reports(process));
    }

    pub fn closes(&mut self, process: ProcessId) {
        self.read_to_the_end(process);
    }

    pub fn ends(&mut self, process: ProcessId) {
        self.read_to_the_end(process);
        self.happens(Event::Ended { process, status_follows: true });
    }

    pub fn reports(&mut self, process: ProcessId) {
        let status = self.kernel[&process].status.expect("it is dead");
        if self.here.daemon.node.process(process).is_none() {
            return self.count("exit statuses that came too late");
        }
        self.read_to_the_end(process);
        self.happens(Event::Exited { process, status });
    }

    pub fn examines(&mut self, process: ProcessId) {
        let delay = self.rng.delay(Duration::from_micros(200));
        self.after(delay, Step::Examined(process));
    }

    pub fn examined(&mut self, process: ProcessId) {
        let node = &self.here.daemon.node;
        let hosted = node.hosted().find(|(worker, _)| *worker == process);
        let actor = node.actors.actor_of(process).or(hosted.map(|(_, actor)| actor));
        if let Some(actor) = actor {
            self.books.facts.was_buried(actor, process);
        }
        self.happens(Event::Examined { process, last_lines: vec![], verdict: None });
    }

    /// Nobody else does: somebody comes and kills what outlives its job, and actors that keep themselves. Whether there was something.
    pub fn ends_detached(&mut self) -> bool {
        let living = self.hosts().filter(|host| !host.dead);
        let rows = living.flat_map(|host| host.daemon.node.actors.rows());
        let dead = |state: &ActorState| matches!(state, ActorState::Dead { .. });
        let (detached, others): (Vec<_>, Vec<_>) =
            rows.filter(|row| !dead(&row.state)).partition(|row| row.detached);
        let mut detached: Vec<ActorId> = detached.into_iter().map(|row| row.actor).collect();
        for row in others {
            if self.keeps_itself(row.actor) {
                self.count("actors whose arguments hold them");
                detached.push(row.actor);
            }
        }
        let groups = self.groups();
        if detached.is_empty() && groups.is_empty() {
            return false;
        }
        if !self.drivers.iter().any(|driver| self.clients[driver].alive) {
            self.count("drivers that clean up");
            self.goes_to(self.head());
            self.knocks(0);
        }
        let alive = self.drivers.iter().copied().find(|driver| self.clients[driver].alive);
        let killer = alive.expect("one came, if there was none");
        self.goes_to(killer.node());
        self.client(killer).fibers.clear();
        self.client(killer).finished = true;
        for actor in detached {
            self.books.facts.kills(actor, true);
            self.say(killer, ToNode::ActorKill { actor, no_restart: true, of: None });
        }
        for group in groups {
            self.removes(killer, group);
        }
        true
    }

    /// Somewhere in what its constructor was given, or in what it keeps, lies a handle of it: such a ring of references is nobody's fault but the
    /// program's, and counting does not find it.
    fn keeps_itself(&self, actor: ActorId) -> bool {
        let lives_in = |it: &&Client| it.actor.as_ref().is_some_and(|it| it.actor == actor);
        let instances = self.clients.values().filter(|it| it.alive).filter(lives_in);
        let kept = instances.flat_map(|it| it.actor.iter().flat_map(|it| it.kept.iter().copied()));
        let mut open: Vec<ObjectId> = self.books.facts.arguments(actor.0).chain(kept).collect();
        let mut seen = BTreeSet::new();
        while let Some(object) = open.pop() {
            if object == actor.handle() {
                return true;
            }
            if !seen.insert(object) {
                continue;
            }
            if object == ActorId(object.task).handle() {
                open.extend(self.books.facts.arguments(object.task));
                continue;
            }
            let mut rows = self.host(object.task.owner.node()).daemon.node.objects.listing();
            let contents = rows.find(|row| row.object == object).map(|row| row.contains);
            open.extend(contents.unwrap_or_default());
        }
        false
    }

    pub fn buried(&mut self, process: ProcessId) {
        self.note(|| format!("{process} is buried"));
        let is_driver = self.kernel.get(&process).is_some_and(|kernel| kernel.is_driver);
        if is_driver && self.sabotage == Some(Sabotage::LeavingUnmaps) {
            self.here.daemon.queue.push_back(Event::Unmapped { process });
        }
    }

    pub fn wiped(&mut self, process: ProcessId) {
        // A fork that failed was never a process.
        if let Some(kernel) = self.kernel.get(&process) {
            let over = if kernel.is_driver { kernel.unmapped } else { kernel.status.is_some() };
            let sabotaged = self.sabotage == Some(Sabotage::LeavingUnmaps);
            assert!(over || sabotaged, "NODE-1: {process} may read and write on");
        }
        self.here.memory.wipe(process);
    }

    // ---- meters ----

    /// What processes use: at times too much, of their limit or of the machine.
    pub fn measures(&mut self, processes: &[(ProcessId, u32)]) {
        let faulty = self.faulty() && self.plan.memory_faults;
        let total = 1 << 30;
        let available = if faulty && self.rng.one_in(2) { total / 50 } else { total / 2 };
        let mut used = Vec::new();
        for (process, _) in processes {
            let limit = self.here.daemon.node.scheduler.lease_on(*process);
            let limit = limit.map_or(0.0, |lease| lease.resources.units("memory")) as u64;
            let over = faulty && self.rng.one_in(2);
            used.push((*process, if over { limit + 1 } else { limit / 2 }));
        }
        self.here.measured = Some(Event::Measured { total, available, used });
        let delay = self.rng.delay(Duration::from_micros(200));
        self.after(delay, Step::Measured);
    }

    pub fn reports_measures(&mut self) {
        let measured = self.here.measured.take().expect("one measure at a time");
        if let Event::Measured { total, available, used } = &measured {
            let short = available * 100 / total < MEMORY_AVAILABLE_MIN_PERCENT;
            for (process, used) in used {
                let limit = self.here.daemon.node.scheduler.lease_on(*process);
                let limit = limit.map_or(0.0, |lease| lease.resources.units("memory")) as u64;
                if short || (limit > 0 && *used > limit) {
                    self.books.facts.uses_too_much(*process);
                }
            }
        }
        self.happens(measured);
    }
}
