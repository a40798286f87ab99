//! One connection: a non-blocking socket, TLS if it is TCP, frames both ways.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::frame::{Frame, FrameError};
use super::tls;

#[derive(Debug)]
pub(super) struct Link {
    socket: OwnedFd,
    tls: Option<Box<rustls::Connection>>,
    frame_bytes_max: usize,
    inbox: Vec<u8>,
    /// Bytes of the inbox that were taken.
    taken: usize,
    /// Frames, before TLS.
    outbox: Vec<u8>,
    /// Bytes of the outbox that went on.
    passed: usize,
    /// What TLS made of them.
    sealed: Vec<u8>,
    sent: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// Everything that was there is in the inbox.
    Dry,
    /// The limit was reached; there may be more.
    More,
    /// The peer has closed; what it wrote is in the inbox.
    Closed,
}

/// Buffers above this are given back once they are empty.
const KEPT_BYTES_MAX: usize = 256 * 1024;

impl Link {
    pub(super) fn new(
        socket: OwnedFd,
        tls: Option<rustls::Connection>,
        frame_bytes_max: usize,
    ) -> Self {
        Self {
            socket,
            tls: tls.map(Box::new),
            frame_bytes_max,
            inbox: Vec::new(),
            taken: 0,
            outbox: Vec::new(),
            passed: 0,
            sealed: Vec::new(),
            sent: 0,
        }
    }

    /// From now on frames may be so long.
    pub(super) fn allow(&mut self, frame_bytes_max: usize) {
        self.frame_bytes_max = frame_bytes_max;
    }

    /// Reads until the socket would block, or about `limit` bytes came.
    pub(super) fn fill(&mut self, scratch: &mut [u8], limit: usize) -> io::Result<Filled> {
        let mut total = 0;
        while total < limit {
            let bytes = match rustix::net::recv(
                &self.socket,
                &mut *scratch,
                rustix::net::RecvFlags::empty(),
            ) {
                Ok((0, _)) => return Ok(Filled::Closed),
                Ok((bytes, _)) => bytes,
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(Filled::Dry),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            total += bytes;
            match &mut self.tls {
                None => self.inbox.extend_from_slice(&scratch[..bytes]),
                Some(tls) => open(tls, &scratch[..bytes], &mut self.inbox)?,
            }
            // A short read is as good as an empty one: epoll tells when there is more.
            if bytes < scratch.len() {
                return Ok(Filled::Dry);
            }
        }
        Ok(Filled::More)
    }

    /// The next whole frame.
    pub(super) fn take(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = &self.inbox[self.taken..];
        if let Some((head, body)) = rest.split_first_chunk::<4>() {
            let bytes = u32::from_le_bytes(*head) as usize;
            if bytes > self.frame_bytes_max {
                return Err(FrameError::TooLong { bytes, max: self.frame_bytes_max });
            }
            if let Some(body) = body.get(..bytes) {
                self.taken += 4 + bytes;
                return Frame::decode(body).map(Some);
            }
        }
        self.inbox.drain(..self.taken);
        self.taken = 0;
        if self.inbox.is_empty() {
            self.inbox.shrink_to(KEPT_BYTES_MAX);
        }
        Ok(None)
    }

    pub(super) fn push(&mut self, frame: &Frame) {
        frame.encode(&mut self.outbox);
    }

    /// Sends what the socket takes; whether everything is out.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        loop {
            self.seal()?;
            let (out, sent) = match &self.tls {
                None => (&self.outbox, &mut self.passed),
                Some(_) => (&self.sealed, &mut self.sent),
            };
            if *sent == out.len() {
                break;
            }
            match rustix::net::send(&self.socket, &out[*sent..], rustix::net::SendFlags::NOSIGNAL) {
                Ok(bytes) => *sent += bytes,
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if self.passed == self.outbox.len() {
            self.outbox.clear();
            self.outbox.shrink_to(KEPT_BYTES_MAX);
            self.passed = 0;
        }
        // What TLS does not take yet goes with the end of its handshake.
        Ok(true)
    }

    /// Bytes that wait for the peer to read.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.outbox.len() - self.passed + self.sealed.len() - self.sent
    }

    /// Moves from the outbox through TLS, a piece at a time.
    fn seal(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        if self.sent < self.sealed.len() {
            return Ok(());
        }
        self.sealed.clear();
        self.sealed.shrink_to(KEPT_BYTES_MAX);
        self.sent = 0;
        if self.passed < self.outbox.len() {
            self.passed += tls.writer().write(&self.outbox[self.passed..])?;
        }
        while tls.wants_write() {
            tls.write_tls(&mut self.sealed)?;
        }
        Ok(())
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Takes what came off the wire, and gives what was inside.
fn open(tls: &mut rustls::Connection, mut wire: &[u8], inbox: &mut Vec<u8>) -> io::Result<()> {
    while !wire.is_empty() {
        tls.read_tls(&mut wire)?;
        let state = tls
            .process_new_packets()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, tls::explain(&error)))?;
        let start = inbox.len();
        inbox.resize(start + state.plaintext_bytes_to_read(), 0);
        tls.reader().read_exact(&mut inbox[start..])?;
    }
    Ok(())
}
