//! What comes from the node daemon: messages with descriptors, answers to requests.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use hoplo_shm::{Kept, fds};
use hoplo_wire::frames::Incoming;
use hoplo_wire::node::{self, ToClient};

use crate::socket::{once_more, out_of_the_way};
use crate::writer::Writer;

/// The reading half.
pub(crate) struct Reader {
    socket: Kept,
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

/// Goes on behind the greeting.
pub(crate) fn open(
    socket: OwnedFd,
    incoming: Incoming,
    fds: Vec<OwnedFd>,
) -> io::Result<(Writer, Reader)> {
    rustix::io::ioctl_fionbio(&socket, false)?;
    let socket = out_of_the_way(socket)?;
    let reading = once_more(&socket)?;
    let writer = Writer::new(socket);
    let reader = Reader { socket: reading, scratch: vec![0; 64 * 1024], incoming, fds };
    Ok((writer, reader))
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
    pub(crate) fn take_fd(&mut self) -> io::Result<Kept> {
        Kept::new(self.next_fd()?)
    }

    /// The same, and it is put out of the way.
    pub(crate) fn take_watched(&mut self) -> io::Result<Kept> {
        out_of_the_way(self.next_fd()?)
    }

    fn next_fd(&mut self) -> io::Result<OwnedFd> {
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

    /// Gives it back if nobody waits for it any more.
    pub(crate) fn answer(&mut self, request: u64, message: ToClient) -> Option<ToClient> {
        match self.waiting.remove(&request) {
            Some(asker) => asker.try_send(message).err().map(|error| match error {
                TrySendError::Full(message) | TrySendError::Disconnected(message) => message,
            }),
            None => Some(message),
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
