//! Connections and the processes behind them: greeting, reading, sending, hanging up.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use hoplo_base::limits::{NODE_MESSAGE_BYTES_MAX, PROCESSES_MAX, SLOTS_GRANT};
use hoplo_base::{Instant, JobId, ProcessId, ResourceSet};
use hoplo_core::objects;
use hoplo_core::sched::workers;
use hoplo_shm::fds;
use hoplo_wire::PROTOCOL_VERSION;
use hoplo_wire::node::{
    DeathCause, JobConfig, Obituary, Role, ToClient, ToNode, Welcome, decode, encode,
};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::daemon::{Daemon, HANGUP_GRACE, Timer, Work};
use crate::journal;
use crate::poll::Source;
use crate::stream::{Filled, Stream};
use crate::workers::WorkerSide;

/// A peer that lets more than this pile up does not read.
const UNSENT_BYTES_MAX: usize = 2 * NODE_MESSAGE_BYTES_MAX;

#[derive(Debug)]
pub(crate) struct Connection {
    stream: Stream,
    peer: Peer,
    wants_writing: bool,
    /// It was refused: closed as soon as it was told why.
    closing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// Has not said Hello.
    Stranger,
    /// The socket of a worker that has not said Hello.
    Starting(ProcessId),
    Process(ProcessId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Driver,
    Worker,
    Tool,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    /// 0 while it is being forked.
    pub(crate) pid: u32,
    pub(crate) kind: Kind,
    pub(crate) job: JobId,
    pub(crate) connection: Option<u64>,
    /// Readable when it has ended.
    pub(crate) life: Option<OwnedFd>,
    /// It said Hello.
    pub(crate) greeted: bool,
    pub(crate) since: Instant,
    /// What it runs, by its own word.
    pub(crate) title: String,
    /// Processes that it has a channel with, in either direction.
    pub(crate) peers: BTreeSet<ProcessId>,
    pub(crate) worker: Option<WorkerSide>,
    /// Why we ended it.
    pub(crate) cause: Option<DeathCause>,
    /// As the zygote told it: exit code, or minus a signal.
    pub(crate) status: Option<i32>,
    /// The kernel says so.
    pub(crate) dead: bool,
}

impl Process {
    pub(crate) fn is_worker(&self) -> bool {
        self.kind == Kind::Worker
    }

    /// Kills it, with what it started if it leads a group of its own.
    pub(crate) fn kill(&self) {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return };
        if !self.is_worker() || self.dead || self.status.is_some() {
            return;
        }
        if rustix::process::getpgid(Some(pid)).is_ok_and(|group| group == pid) {
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
        let _ = match &self.life {
            Some(life) => rustix::process::pidfd_send_signal(life, Signal::KILL),
            None => rustix::process::kill_process(pid, Signal::KILL),
        };
    }
}

impl Daemon {
    /// The socket that the daemon was started with.
    pub(crate) fn add_master(&mut self, socket: OwnedFd) -> io::Result<()> {
        self.master = Some(self.connect(socket, Peer::Stranger)?);
        Ok(())
    }

    pub(crate) fn connect_worker(&mut self, socket: OwnedFd, worker: ProcessId) -> io::Result<u64> {
        self.connect(socket, Peer::Starting(worker))
    }

    fn connect(&mut self, socket: OwnedFd, peer: Peer) -> io::Result<u64> {
        let number = self.next_connection;
        let stream = Stream::new(socket, NODE_MESSAGE_BYTES_MAX)?;
        self.poller.add(&stream, Source::Connection(number))?;
        self.next_connection += 1;
        let connection = Connection { stream, peer, wants_writing: false, closing: false };
        self.connections.insert(number, connection);
        Ok(number)
    }

    pub(crate) fn accept(&mut self) {
        loop {
            let flags = rustix::net::SocketFlags::CLOEXEC;
            let Ok(socket) = rustix::net::accept_with(&self.listener, flags) else { return };
            let ours = rustix::process::getuid().as_raw();
            let peer = fds::peer_credentials(&socket);
            if peer.is_ok_and(|peer| peer.uid == ours) && self.connections.len() < PROCESSES_MAX {
                if let Err(error) = self.connect(socket, Peer::Stranger) {
                    journal::log(format_args!("a connection was lost: {error}"));
                }
            } else {
                self.violations += 1;
                journal::log("a connection was refused: another user's, or too many");
            }
        }
    }

    /// Reads about so many bytes and handles the messages in them.
    pub(crate) fn read_connection(&mut self, number: u64, bytes_max: usize) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let filled = connection.stream.fill(&mut self.scratch, bytes_max);
        loop {
            let Some(connection) = self.connections.get_mut(&number) else { return };
            let message = match connection.stream.take_frame() {
                Ok(None) => break,
                Ok(Some(_)) if connection.closing => continue,
                Ok(Some(body)) => decode::<ToNode>(body).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            let message = message.and_then(|message| match message {
                ToNode::Connect { .. } => match connection.stream.take_fd() {
                    Ok(fd) => Ok((message, Some(fd))),
                    Err(error) => Err(error.to_string()),
                },
                message => Ok((message, None)),
            });
            let handled = match message {
                Ok((message, fd)) => self.on_message(number, message, fd),
                Err(error) => Err(error),
            };
            if let Err(what) = handled {
                return self.violation(number, &what);
            }
            self.settle();
        }
        if !matches!(filled, Ok(Filled::Dry | Filled::More)) {
            self.say_farewell(number);
            self.hang_up(number);
        }
    }

    /// A driver that leaves reads on for a moment: what its workers printed before is shown.
    pub(crate) fn say_farewell(&mut self, number: u64) {
        let Some(Connection { peer: Peer::Process(id), .. }) = self.connections.get(&number) else {
            return;
        };
        let process = &self.processes[id];
        if process.kind == Kind::Driver {
            let job = process.job;
            self.read_outputs_of(job);
            self.flush_output(job);
            let connection = self.connections.get_mut(&number).expect("it was just there");
            // As much as the socket takes; the rest is in the log files.
            let _ = connection.stream.flush();
        }
    }

    fn on_message(
        &mut self,
        number: u64,
        message: ToNode,
        fd: Option<OwnedFd>,
    ) -> Result<(), String> {
        let peer = self.connections[&number].peer;
        match (peer, message) {
            (Peer::Process(process), message) => self.on_request(process, message, fd),
            (peer, ToNode::Hello { protocol, version, pid, role }) => {
                let ours = env!("CARGO_PKG_VERSION");
                if protocol != PROTOCOL_VERSION || version != ours {
                    let reason = format!(
                        "this program is hoplo {version} (protocol {protocol}), the node daemon is \
                         hoplo {ours} (protocol {PROTOCOL_VERSION}): use the same version for both"
                    );
                    self.refuse(number, reason);
                    return Ok(());
                }
                match (peer, role) {
                    (Peer::Starting(worker), Role::Worker) => self.greet_worker(number, worker),
                    (Peer::Stranger, Role::Driver(config)) => {
                        self.greet_driver(number, pid, config)
                    }
                    (Peer::Stranger, Role::Tool) => self.greet_tool(number, pid),
                    (_, role) => return Err(format!("says hello as {role:?} on a wrong socket")),
                }
                Ok(())
            }
            (_, _) => Err("spoke before it said hello".to_string()),
        }
    }

    fn greet_worker(&mut self, number: u64, worker: ProcessId) {
        self.connection_is_of(number, worker);
        let process = self.processes.get_mut(&worker).expect("its socket lives");
        process.greeted = true;
        let attempt = process.worker.as_ref().expect("it is a worker").attempt;
        self.attempts.remove(&attempt);
        self.join(worker);
        self.queue.push_back(Work::Pool(workers::Event::Started { attempt, worker }));
    }

    fn greet_driver(&mut self, number: u64, pid: u32, config: JobConfig) {
        let socket = &self.connections[&number].stream;
        // The kernel's word counts where it has one: 0 is a process of another pid namespace.
        let known = fds::peer_credentials(socket).map_or(0, |peer| peer.pid);
        let pid = if known == 0 { pid } else { known };
        let Some(id) = self.new_process(Kind::Driver, pid) else {
            return self.refuse(number, format!("the node has {PROCESSES_MAX} processes already"));
        };
        self.connection_is_of(number, id);
        let job = self.begin_job(id, pid, config);
        let process = self.processes.get_mut(&id).expect("it was just made");
        process.job = job;
        process.greeted = true;
        self.watch_life(id);
        self.join(id);
    }

    fn greet_tool(&mut self, number: u64, pid: u32) {
        let id = self.next_process_id(0);
        self.processes.insert(id, self.process(id, Kind::Tool, pid));
        self.connection_is_of(number, id);
        self.processes.get_mut(&id).expect("it was just made").greeted = true;
        self.welcome(id, Vec::new());
    }

    fn join(&mut self, process: ProcessId) {
        let event = objects::Event::ProcessJoined { process, slots: SLOTS_GRANT };
        self.queue.push_back(Work::Objects(event));
    }

    fn connection_is_of(&mut self, number: u64, id: ProcessId) {
        self.connections.get_mut(&number).expect("it speaks").peer = Peer::Process(id);
        self.processes.get_mut(&id).expect("the caller made it").connection = Some(number);
    }

    /// The first message that a process gets.
    pub(crate) fn welcome(&mut self, id: ProcessId, slots: Vec<u32>) {
        let Some(process) = self.processes.get(&id) else { return };
        let config = self.jobs.get(&process.job).map(|job| (*job.config).clone());
        let welcome = Welcome {
            process: id,
            node: self.node,
            job: process.job,
            arena_bytes: self.store.arena_bytes(),
            session_dir: self.session.path().display().to_string(),
            config: config.filter(|_| process.is_worker()).unwrap_or_default(),
            slots,
            resources: self.scheduler.total().clone(),
        };
        let fds = (process.kind != Kind::Tool).then(|| self.store.descriptors());
        self.send_with(id, &ToClient::Welcome(welcome), fds);
    }

    /// A process in the next free slot; `None` if there is none.
    pub(crate) fn new_process(&mut self, kind: Kind, pid: u32) -> Option<ProcessId> {
        let (boot, count) = (self.boot, self.next_process);
        let id = self.slots.take(|slot| ProcessId::new(boot, count, slot))?;
        self.next_process += 1;
        self.processes.insert(id, self.process(id, kind, pid));
        Some(id)
    }

    fn next_process_id(&mut self, slot: u16) -> ProcessId {
        self.next_process += 1;
        ProcessId::new(self.boot, self.next_process - 1, slot)
    }

    fn process(&self, id: ProcessId, kind: Kind, pid: u32) -> Process {
        Process {
            id,
            pid,
            kind,
            job: JobId(0),
            connection: None,
            life: None,
            greeted: false,
            since: self.now,
            title: String::new(),
            peers: BTreeSet::new(),
            worker: None,
            cause: None,
            status: None,
            dead: false,
        }
    }

    /// Tells us when it ends, even if its children keep its socket open.
    pub(crate) fn watch_life(&mut self, id: ProcessId) {
        let process = self.processes.get_mut(&id).expect("the caller made it");
        let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
        let life = pid.and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
        let Some(life) = life else { return };
        if self.poller.add(&life, Source::Life(id.slot() as u16)).is_ok() {
            process.life = Some(life);
        }
    }

    pub(crate) fn send(&mut self, to: ProcessId, message: &ToClient) {
        self.send_with(to, message, None);
    }

    /// Nothing happens if it is gone: it, or who asked, is told otherwise.
    pub(crate) fn send_with(
        &mut self,
        to: ProcessId,
        message: &ToClient,
        fds: Option<Rc<[OwnedFd]>>,
    ) {
        let number = self.processes.get(&to).and_then(|process| process.connection);
        if let Some(number) = number {
            self.send_to(number, message, fds);
        }
    }

    fn send_to(&mut self, number: u64, message: &ToClient, fds: Option<Rc<[OwnedFd]>>) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.stream.push(fds, |out| encode(message, out));
        self.dirty.insert(number);
    }

    /// Bytes that a process has not read yet.
    pub(crate) fn unsent_bytes(&self, id: ProcessId) -> usize {
        let number = self.processes.get(&id).and_then(|process| process.connection);
        let connection = number.and_then(|number| self.connections.get(&number));
        connection.map_or(0, |connection| connection.stream.unsent_bytes())
    }

    fn refuse(&mut self, number: u64, reason: String) {
        journal::log(format_args!("refused: {reason}"));
        self.send_to(number, &ToClient::Refused { reason }, None);
        self.connections.get_mut(&number).expect("it speaks").closing = true;
    }

    pub(crate) fn flush_all(&mut self) {
        self.zygote.flush(&self.poller);
        while let Some(number) = self.dirty.pop_first() {
            let Some(connection) = self.connections.get_mut(&number) else { continue };
            match connection.stream.flush() {
                Ok(true) if connection.closing => self.hang_up(number),
                Ok(done) if connection.stream.unsent_bytes() <= UNSENT_BYTES_MAX => {
                    if connection.wants_writing == done {
                        connection.wants_writing = !done;
                        let source = Source::Connection(number);
                        self.poller.watch_writing(&connection.stream, source, !done);
                    }
                }
                Ok(_) => self.violation(number, "does not read what it is sent"),
                Err(_) => self.hang_up(number),
            }
        }
    }

    /// It does not keep to the protocol: it is dropped, and nobody else suffers.
    pub(crate) fn violation(&mut self, number: u64, what: &str) {
        self.violations += 1;
        let Some(connection) = self.connections.get(&number) else { return };
        journal::log(format_args!("{:?} {what}: its connection is dropped", connection.peer));
        if let Peer::Process(id) | Peer::Starting(id) = connection.peer {
            let process = self.processes.get_mut(&id).expect("its connection lives");
            let reason = format!("it broke the protocol: {what}");
            process.cause.get_or_insert(DeathCause::Stopped { reason });
            process.kill();
        }
        self.hang_up(number);
    }

    pub(crate) fn violation_of(&mut self, id: ProcessId, what: &str) {
        if let Some(number) = self.processes.get(&id).and_then(|process| process.connection) {
            self.violation(number, what);
        }
    }

    /// The other end is closed, and what came from it is handled.
    pub(crate) fn hang_up(&mut self, number: u64) {
        let Some(connection) = self.connections.remove(&number) else { return };
        self.poller.remove(&connection.stream);
        self.dirty.remove(&number);
        if let Peer::Process(id) | Peer::Starting(id) = connection.peer {
            let process = self.processes.get_mut(&id).expect("its connection lived");
            process.connection = None;
            match process.kind {
                Kind::Driver | Kind::Tool => self.bury(id),
                // Its end is told by the zygote or by the kernel, unless it hangs.
                Kind::Worker => self.after(HANGUP_GRACE, Timer::Kill(id)),
            }
        }
        if self.master == Some(number) {
            self.begin_stop("its driver left");
        }
    }

    /// Everything that it wrote is handled, and its connection is closed.
    pub(crate) fn read_to_the_end(&mut self, id: ProcessId) {
        let number = self.processes.get(&id).and_then(|process| process.connection);
        if let Some(number) = number {
            self.read_connection(number, usize::MAX);
            if self.processes.get(&id).is_some_and(|process| process.connection.is_some()) {
                self.hang_up(number);
            }
        }
    }

    /// How a process ended that is not there any more.
    pub(crate) fn obituary_of(&self, id: ProcessId) -> Obituary {
        let grave = self.graves.iter().rev().find(|(dead, _)| *dead == id);
        grave.map(|(_, obituary)| obituary.clone()).unwrap_or_else(|| {
            let reason = "it is not on this node any more".to_string();
            Obituary { pid: 0, cause: DeathCause::Stopped { reason }, last_lines: Vec::new() }
        })
    }

    /// A text for people: each `process:3` in it is told apart, as `process:3 (driver, pid 77)`.
    pub(crate) fn with_names(&self, text: &str) -> String {
        let mut parts = text.split("process:");
        let mut named = parts.next().unwrap_or_default().to_string();
        for part in parts {
            let digits =
                part.len() - part.trim_start_matches(|c: char| c.is_ascii_hexdigit()).len();
            let (count, rest) = part.split_at(digits);
            named.push_str("process:");
            named.push_str(count);
            let count = u32::from_str_radix(count, 16).unwrap_or(0);
            if let Some(process) = self.processes.values().find(|p| p.id.count() == count) {
                let kind = if process.kind == Kind::Driver { "driver" } else { "worker" };
                named.push_str(&format!(" ({kind}, pid {})", process.pid));
            }
            named.push_str(rest);
        }
        named
    }

    pub(crate) fn resources_json(resources: &ResourceSet) -> serde_json::Value {
        let units = resources.iter().map(|(name, _)| (name.to_string(), resources.units(name)));
        units.map(|(name, amount)| (name, serde_json::json!(amount))).collect()
    }
}
