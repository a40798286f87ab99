//! Connections: accepting, reading, sending, hanging up.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use hoplo_base::ProcessId;
use hoplo_base::limits::{
    HELLO_BYTES_MAX, JOB_BYTES_MAX, NODE_ACCEPT_PAUSE, NODE_HELLO_WITHIN, NODE_STRANGERS_MAX,
    NODE_UNFINISHED_BYTES_MAX, NODE_UNSENT_BYTES_MAX, PROCESS_MESSAGE_BYTES_MAX,
    TOOL_MESSAGE_BYTES_MAX,
};
use hoplo_core::node::{Event, Kind};
use hoplo_shm::fds;
use hoplo_wire::node::{ToClient, ToNode, decode, encode};

use crate::daemon::{Daemon, Timer};
use crate::journal;
use crate::poll::Source;
use crate::stream::{Amount, Filled, Stream};

#[derive(Debug, Default)]
pub(crate) struct Connections {
    by_number: BTreeMap<u64, Connection>,
    by_process: BTreeMap<ProcessId, u64>,
    last: u64,
    /// Who did not say yet who it is, the oldest first; but for the driver that started us.
    strangers: BTreeSet<u64>,
    /// Bytes of messages that did not come whole yet, of all connections.
    unfinished_bytes: usize,
    /// Those with something to send.
    pub(crate) dirty: BTreeSet<u64>,
    /// The daemon stops with this connection, of the driver that started it.
    pub(crate) master: Option<u64>,
    /// The descriptor that came with the message that is being handled.
    pub(crate) hand: Option<OwnedFd>,
}

#[derive(Debug)]
struct Connection {
    stream: Stream,
    peer: Peer,
    wants_writing: bool,
    /// Its share of `Connections::unfinished_bytes`.
    unfinished_bytes: usize,
    /// It was refused: closed as soon as it was told why.
    closing: bool,
    /// It does not read, and is told nothing more.
    deaf: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// Has not said hello; its pid by the kernel's word, 0 where it has none.
    Stranger { pid: u32 },
    /// A driver that has not told its job.
    Jobless { pid: u32 },
    /// A worker's is its own before it says hello.
    Process(ProcessId),
}

/// Says so to one that has no connection; it may not wait for it.
fn send_away(socket: &OwnedFd, reason: String) {
    let mut message = Vec::new();
    encode(&ToClient::Refused { reason }, &mut message);
    let _ = fds::send(socket, &message, &[]);
}

impl Daemon {
    /// The socket of the driver that started this daemon: when it leaves, everything stops.
    pub fn add_master(&mut self, socket: OwnedFd) -> io::Result<()> {
        let pid = fds::peer_credentials(&socket).map_or(0, |peer| peer.pid);
        let number = self.connect(socket, Peer::Stranger { pid })?;
        self.connections.master = Some(number);
        Ok(())
    }

    pub(crate) fn connect_worker(&mut self, socket: OwnedFd, worker: ProcessId) -> io::Result<()> {
        let number = self.connect(socket, Peer::Process(worker))?;
        self.connections.by_process.insert(worker, number);
        Ok(())
    }

    fn connect(&mut self, socket: OwnedFd, peer: Peer) -> io::Result<u64> {
        let number = self.connections.last + 1;
        let frame_bytes_max = match peer {
            Peer::Stranger { .. } => HELLO_BYTES_MAX,
            Peer::Jobless { .. } => JOB_BYTES_MAX,
            // We made its socket and gave it to the zygote.
            Peer::Process(_) => PROCESS_MESSAGE_BYTES_MAX,
        };
        let stream = Stream::new(socket, frame_bytes_max)?;
        self.poller.add(&stream, Source::Connection(number))?;
        self.connections.last = number;
        let connection = Connection {
            stream,
            peer,
            wants_writing: false,
            unfinished_bytes: 0,
            closing: false,
            deaf: false,
        };
        self.connections.by_number.insert(number, connection);
        Ok(number)
    }

    pub(crate) fn accept(&mut self) {
        use rustix::io::Errno;
        loop {
            let flags = rustix::net::SocketFlags::CLOEXEC;
            match rustix::net::accept_with(&self.listener, flags) {
                Ok(socket) => {
                    self.descriptors.is_well();
                    self.admit(socket);
                }
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
                Err(error) => {
                    if !self.turn_away(error) {
                        return self.pause_accepting();
                    }
                }
            }
        }
    }

    fn admit(&mut self, socket: OwnedFd) {
        let ours = rustix::process::getuid().as_raw();
        let Some(peer) = fds::peer_credentials(&socket).ok().filter(|peer| peer.uid == ours) else {
            self.violations += 1;
            return journal::log("a connection was refused: another user's");
        };
        if self.connections.by_number.len() >= self.descriptors.processes_max() {
            self.violations += 1;
            if self.descriptors.is_news() {
                journal::log(format_args!("connections are refused: {}", self.no_room()));
            }
            return send_away(&socket, self.no_room());
        }
        match self.connect(socket, Peer::Stranger { pid: peer.pid }) {
            Ok(number) => self.expect_hello(number),
            Err(error) => journal::log(format_args!("a connection was lost: {error}")),
        }
    }

    /// Who says nothing costs a descriptor: not for long, and not many of them.
    fn expect_hello(&mut self, number: u64) {
        if self.connections.strangers.len() >= NODE_STRANGERS_MAX
            && let Some(oldest) = self.connections.strangers.first().copied()
        {
            self.end_stranger(oldest);
        }
        self.connections.strangers.insert(number);
        self.after(NODE_HELLO_WITHIN, Timer::Hello(number));
    }

    /// It did not say who it is; nothing happens if it did meanwhile, or left.
    pub(crate) fn end_stranger(&mut self, number: u64) {
        if self.connections.strangers.contains(&number) {
            self.broke(number, "did not say who it is");
        }
    }

    fn no_room(&self) -> String {
        format!(
            "the node has {} connections, and its limit of {} open files allows no more: end some \
             processes, or start the node with a higher limit (ulimit -n)",
            self.connections.by_number.len(),
            self.descriptors.limit
        )
    }

    /// Tells the next one at the listener that there are no descriptors; false if not even that is
    /// possible, or nobody is there.
    fn turn_away(&mut self, why: rustix::io::Errno) -> bool {
        let may = self.descriptors.spend();
        if self.descriptors.is_news() {
            journal::log(format_args!("connections are refused: {why}"));
        }
        if !may {
            self.descriptors.save();
            return false;
        }
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let next = rustix::net::accept_with(&self.listener, flags);
        let came = next.is_ok();
        if let Ok(socket) = next {
            send_away(&socket, self.no_room());
        }
        self.descriptors.save();
        came
    }

    /// Who connects waits in the kernel's queue for a while.
    fn pause_accepting(&mut self) {
        self.poller.remove(&self.listener);
        self.after(NODE_ACCEPT_PAUSE, Timer::Accept);
    }

    pub(crate) fn resume_accepting(&mut self) {
        if let Err(error) = self.poller.add(&self.listener, Source::Listener) {
            journal::log(format_args!("connections are not accepted yet: {error}"));
            self.after(NODE_ACCEPT_PAUSE, Timer::Accept);
        }
    }

    /// Reads about so much and handles the messages in it.
    pub(crate) fn read_connection(&mut self, number: u64, amount: Amount) {
        let Some(connection) = self.connections.by_number.get_mut(&number) else { return };
        let filled = connection.stream.fill(&mut self.scratch, amount);
        loop {
            let Some(connection) = self.connections.by_number.get_mut(&number) else { return };
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
            let peer = connection.peer;
            match message {
                Err(what) => return self.broke(number, &what),
                Ok((message, fd)) => {
                    self.connections.hand = fd;
                    self.handle(match peer {
                        Peer::Stranger { pid } => Event::Knocked { stranger: number, pid, message },
                        Peer::Jobless { pid } => Event::Told { stranger: number, pid, message },
                        Peer::Process(from) => Event::Heard { from, message },
                    });
                    // Where nobody took it, it goes.
                    self.connections.hand = None;
                }
            }
        }
        if matches!(filled, Ok(Filled::Dry | Filled::More)) {
            self.count_unfinished(number);
        } else {
            self.hang_up(number);
        }
    }

    /// What came and is no whole message is bounded, of one and of all.
    fn count_unfinished(&mut self, number: u64) {
        let Connections { by_number, unfinished_bytes, .. } = &mut self.connections;
        let Some(connection) = by_number.get_mut(&number) else { return };
        let bytes = connection.stream.unfinished_bytes();
        *unfinished_bytes = *unfinished_bytes - connection.unfinished_bytes + bytes;
        connection.unfinished_bytes = bytes;
        if *unfinished_bytes > NODE_UNFINISHED_BYTES_MAX {
            let most = by_number.iter().max_by_key(|(_, connection)| connection.unfinished_bytes);
            let (number, connection) = most.expect("this one is among them");
            let (number, bytes) = (*number, connection.unfinished_bytes);
            self.broke(number, &format!("has sent {bytes} bytes of a message that does not end"));
        }
    }

    /// What came is no message.
    fn broke(&mut self, number: u64, what: &str) {
        let Some(connection) = self.connections.by_number.get(&number) else { return };
        match connection.peer {
            Peer::Stranger { .. } | Peer::Jobless { .. } => {
                self.violations += 1;
                journal::log(format_args!("a stranger {what}: its connection is dropped"));
                self.hang_up(number);
            }
            Peer::Process(process) => {
                self.handle(Event::Broke { process, what: what.to_string() });
            }
        }
    }

    pub(crate) fn introduced(&mut self, number: u64, pid: u32) {
        let connection = self.connections.by_number.get_mut(&number).expect("it speaks");
        connection.peer = Peer::Jobless { pid };
        connection.stream.allow(JOB_BYTES_MAX);
    }

    pub(crate) fn connection_is_of(&mut self, number: u64, id: ProcessId, kind: Kind) {
        let connection = self.connections.by_number.get_mut(&number).expect("it speaks");
        connection.peer = Peer::Process(id);
        connection.stream.allow(match kind {
            Kind::Driver | Kind::Worker => PROCESS_MESSAGE_BYTES_MAX,
            Kind::Tool => TOOL_MESSAGE_BYTES_MAX,
        });
        self.connections.strangers.remove(&number);
        self.connections.by_process.insert(id, number);
    }

    /// Nothing happens if it is gone: it, or who asked, is told otherwise.
    pub(crate) fn send_with(
        &mut self,
        to: ProcessId,
        message: &ToClient,
        fds: Option<Rc<[OwnedFd]>>,
    ) {
        if let Some(number) = self.connections.by_process.get(&to).copied() {
            self.send_to(number, message, fds);
        }
    }

    fn send_to(&mut self, number: u64, message: &ToClient, fds: Option<Rc<[OwnedFd]>>) {
        let Some(connection) = self.connections.by_number.get_mut(&number) else { return };
        if connection.deaf {
            return;
        }
        connection.stream.push(fds, |out| encode(message, out));
        self.connections.dirty.insert(number);
    }

    /// Bytes that a process has not read yet.
    pub(crate) fn unsent_bytes(&self, id: ProcessId) -> usize {
        let number = self.connections.by_process.get(&id);
        let connection = number.and_then(|number| self.connections.by_number.get(number));
        connection.map_or(0, |connection| connection.stream.unsent_bytes())
    }

    pub(crate) fn refuse(&mut self, number: u64, reason: String) {
        self.send_to(number, &ToClient::Refused { reason }, None);
        self.connections.by_number.get_mut(&number).expect("it speaks").closing = true;
    }

    pub(crate) fn flush_all(&mut self) {
        self.zygote.flush(&self.poller);
        while let Some(number) = self.connections.dirty.pop_first() {
            let Some(connection) = self.connections.by_number.get_mut(&number) else { continue };
            match connection.stream.flush() {
                Ok(true) if connection.closing => self.hang_up(number),
                Ok(done) if connection.stream.unsent_bytes() <= NODE_UNSENT_BYTES_MAX => {
                    if connection.wants_writing == done {
                        connection.wants_writing = !done;
                        let source = Source::Connection(number);
                        self.poller.watch_writing(&connection.stream, source, !done);
                    }
                }
                // Not here: the rows of what follows from it are to be in the store before it is told.
                Ok(_) => self.after(Duration::ZERO, Timer::Unread(number)),
                Err(_) => self.after(Duration::ZERO, Timer::Unsent(number)),
            }
        }
    }

    /// More waits for it to be read than may.
    pub(crate) fn end_unread(&mut self, number: u64) {
        let Some(connection) = self.connections.by_number.get_mut(&number) else { return };
        match connection.peer {
            Peer::Process(_) if connection.deaf => {}
            Peer::Process(process) => {
                connection.deaf = true;
                self.handle(Event::DoesNotRead { process });
            }
            Peer::Stranger { .. } | Peer::Jobless { .. } => {
                self.broke(number, "does not read what it is sent");
            }
        }
    }

    /// The other end is closed. What it wrote before is handled first: its replies may have gone another way, and others rely on what
    /// it told here before them.
    pub(crate) fn read_to_its_end(&mut self, number: u64) {
        self.read_connection(number, Amount::WhatLies);
        self.hang_up(number);
    }

    /// The other end is closed, and what came from it is handled.
    fn hang_up(&mut self, number: u64) {
        let Some(connection) = self.connections.by_number.get(&number) else { return };
        let peer = connection.peer;
        if let Peer::Process(process) = peer {
            self.say_farewell(process);
        }
        self.close_connection(number);
        if let Peer::Process(process) = peer {
            self.connections.by_process.remove(&process);
            self.handle(Event::Closed { process });
        }
        if self.connections.master == Some(number) {
            self.handle(Event::Stop { why: "its driver left".to_string() });
        }
    }

    /// The node wants no more of it.
    pub(crate) fn part_with(&mut self, process: ProcessId) {
        let Some(number) = self.connections.by_process.get(&process).copied() else { return };
        self.say_farewell(process);
        self.connections.by_process.remove(&process);
        self.close_connection(number);
        if self.connections.master == Some(number) {
            self.answer(Event::Stop { why: "its driver left".to_string() });
        }
    }

    fn close_connection(&mut self, number: u64) {
        let connection = self.connections.by_number.remove(&number).expect("the caller saw it");
        self.connections.unfinished_bytes -= connection.unfinished_bytes;
        self.connections.strangers.remove(&number);
        self.poller.remove(&connection.stream);
        self.connections.dirty.remove(&number);
    }

    /// As much as the socket takes of what it was told. A driver that leaves reads on for a moment: what its
    /// workers printed before is shown; the rest is in the log files.
    fn say_farewell(&mut self, process: ProcessId) {
        let driver = self.node.process(process).filter(|process| process.kind == Kind::Driver);
        if let Some(job) = driver.map(|driver| driver.job) {
            self.read_outputs_of(job);
            self.flush_output(job);
        }
        let number = self.connections.by_process.get(&process);
        if let Some(connection) =
            number.and_then(|number| self.connections.by_number.get_mut(number))
        {
            let _ = connection.stream.flush();
        }
    }

    /// Everything that it wrote is handled, and its connection is closed.
    pub(crate) fn read_to_the_end(&mut self, id: ProcessId) {
        if let Some(number) = self.connections.by_process.get(&id).copied() {
            self.read_to_its_end(number);
        }
    }

    /// What lies in its socket is handled.
    pub(crate) fn read_from(&mut self, id: ProcessId) {
        if let Some(number) = self.connections.by_process.get(&id).copied() {
            self.read_connection(number, Amount::WhatLies);
        }
    }
}

#[cfg(test)]
mod tests {
    use hoplo_folders::Places;
    use hoplo_wire::PROTOCOL_VERSION;
    use hoplo_wire::node::Role;

    use super::*;
    use crate::options::Options;

    /// The daemon was slow, and an actor was killed behind its reply. Nothing could be sent to it any more, and that it had run the call was
    /// not read: the next process that was this actor did not know of it.
    #[test]
    fn what_was_written_before_the_end_is_read_though_nothing_can_be_sent_there() {
        let base = std::env::temp_dir().join(format!("hoplo-clients-{}", std::process::id()));
        let options = Options {
            base: Places::only(base.clone()),
            object_store_memory: Some(1 << 20),
            zygote: vec!["none".to_string()],
            ..Options::default()
        };
        let mut daemon = Daemon::new(options).unwrap();
        let (ours, theirs) = fds::socketpair().unwrap();
        let number = daemon.connect(ours, Peer::Stranger { pid: std::process::id() }).unwrap();
        let say = |message: &ToNode| {
            let mut bytes = Vec::new();
            encode(message, &mut bytes);
            fds::send(&theirs, &bytes, &[]).unwrap();
        };
        say(&ToNode::Hello {
            protocol: PROTOCOL_VERSION,
            version: env!("CARGO_PKG_VERSION").to_string(),
            pid: std::process::id(),
            role: Role::Tool,
        });
        let (kind, argument) = ("status".to_string(), String::new());
        say(&ToNode::Query { request: 1, kind, argument });
        daemon.read_connection(number, Amount::WhatLies);
        assert!(daemon.connections.dirty.contains(&number), "it has answers to send");
        say(&ToNode::Stop);
        drop(theirs);
        daemon.flush_all();
        daemon.turn();
        assert!(!daemon.connections.by_number.contains_key(&number), "it is gone");
        assert!(daemon.stopped, "and was heard before");
        drop(daemon);
        let _ = std::fs::remove_dir_all(base);
    }
}
