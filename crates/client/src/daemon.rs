//! The unix socket to the node daemon: framing, descriptors, requests that wait for an answer.

use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use hoplo_base::limits;
use hoplo_shm::fds;
use hoplo_wire::frames::Incoming;
use hoplo_wire::node::{self, ToClient, ToNode};

/// The writing half. Writes are whole messages, in the order of the calls.
pub(crate) struct Writer {
    socket: UnixStream,
    buffer: Vec<u8>,
    broken: bool,
}

/// The reading half.
pub(crate) struct Reader {
    socket: UnixStream,
    scratch: Vec<u8>,
    incoming: Incoming,
    fds: Vec<OwnedFd>,
}

/// Questions to the daemon that somebody waits for.
#[derive(Default)]
pub(crate) struct Requests {
    next: u64,
    waiting: BTreeMap<u64, SyncSender<ToClient>>,
    /// Nobody will answer any more.
    closed: bool,
}

pub(crate) fn open(socket: OwnedFd) -> io::Result<(Writer, Reader)> {
    let socket = UnixStream::from(socket);
    socket.set_nonblocking(false)?;
    let reading = socket.try_clone()?;
    let writer = Writer { socket, buffer: Vec::new(), broken: false };
    let reader = Reader {
        socket: reading,
        scratch: vec![0; 64 * 1024],
        incoming: Incoming::new(limits::NODE_MESSAGE_BYTES_MAX),
        fds: Vec::new(),
    };
    Ok((writer, reader))
}

impl Writer {
    /// Blocks until the kernel has it. A broken socket is noticed by the reader, too, so errors are kept
    /// and nothing more is written.
    pub(crate) fn send(&mut self, message: &ToNode) {
        self.send_with(message, &[]);
    }

    pub(crate) fn send_with(&mut self, message: &ToNode, with: &[BorrowedFd<'_>]) {
        if self.broken {
            return;
        }
        self.buffer.clear();
        node::encode(message, &mut self.buffer);
        let mut sent = 0;
        let mut with = with;
        while sent < self.buffer.len() {
            match fds::send(self.socket.as_fd(), &self.buffer[sent..], with) {
                Ok(bytes) => {
                    sent += bytes;
                    with = &[];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.broken = true;
                    return;
                }
            }
        }
        if self.buffer.capacity() > 1 << 20 {
            self.buffer = Vec::new();
        }
    }

    /// Nothing more will be written; the daemon may still have something to say.
    pub(crate) fn finish(&mut self) {
        self.broken = true;
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    pub(crate) fn shutdown(&mut self) {
        self.broken = true;
        // It may be closed already: then there is nothing to shut down.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl Reader {
    /// Waits for the next message. `UnexpectedEof`: the daemon is gone.
    pub(crate) fn receive(&mut self) -> io::Result<ToClient> {
        loop {
            if let Some(body) = self.incoming.take().map_err(io::Error::other)? {
                return node::decode(body).map_err(io::Error::other);
            }
            let received = fds::receive(self.socket.as_fd(), &mut self.scratch)?;
            if received.bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.incoming.add(&self.scratch[..received.bytes]);
            self.fds.extend(received.fds);
        }
    }

    /// A descriptor that came with the message just received.
    pub(crate) fn take_fd(&mut self) -> io::Result<OwnedFd> {
        if self.fds.is_empty() {
            return Err(io::Error::other("a descriptor is missing"));
        }
        Ok(self.fds.remove(0))
    }
}

impl Requests {
    /// A number for the question, and where the answer will come. After the daemon's death the receiver
    /// is disconnected at once.
    pub(crate) fn open(&mut self) -> (u64, Receiver<ToClient>) {
        let (sender, receiver) = sync_channel(1);
        self.next += 1;
        if !self.closed {
            self.waiting.insert(self.next, sender);
        }
        (self.next, receiver)
    }

    pub(crate) fn answer(&mut self, request: u64, message: ToClient) {
        if let Some(sender) = self.waiting.remove(&request) {
            // The asker may have given up.
            let _ = sender.try_send(message);
        }
    }

    pub(crate) fn forget(&mut self, request: u64) {
        self.waiting.remove(&request);
    }

    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.waiting.clear();
    }
}
