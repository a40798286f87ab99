//! One connection: a non-blocking socket, TLS if it is TCP, frames both ways.

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use hoplo_base::limits::FRAMES_BYTES_KEPT;
use hoplo_wire::frames::{Incoming, TooLong};
use rustix::net::{SendAncillaryBuffer, SendFlags};

use crate::name::Name;
use crate::protocol::{Malformed, Protocol};
use crate::tls;

/// A connection of this process, never used again after it closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub(crate) u64);

#[derive(Debug)]
pub(crate) struct Link {
    socket: OwnedFd,
    tls: Option<Box<rustls::Connection>>,
    inbox: Incoming,
    /// Frames, before TLS.
    outbox: Vec<u8>,
    /// Bytes of the outbox that went on: to the socket, or to TLS, which keeps one piece until the socket takes it.
    passed: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// Everything that was there is in the inbox.
    Dry,
    /// The limit was reached; there may be more.
    More,
    /// The peer has closed; what it wrote is in the inbox.
    Closed,
}

/// The peer does not keep to the framing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error(transparent)]
    TooLong(#[from] TooLong),
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

impl Link {
    pub(crate) fn new(
        socket: OwnedFd,
        tls: Option<rustls::Connection>,
        frame_bytes_max: usize,
    ) -> Self {
        Self {
            socket,
            tls: tls.map(Box::new),
            inbox: Incoming::new(frame_bytes_max),
            outbox: Vec::new(),
            passed: 0,
        }
    }

    /// From now on frames may be so long.
    pub(crate) fn allow(&mut self, frame_bytes_max: usize) {
        self.inbox.allow(frame_bytes_max);
    }

    /// Reads until the socket would block, or about `limit` bytes came.
    pub(crate) fn fill(&mut self, scratch: &mut [u8], limit: usize) -> io::Result<Filled> {
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
                None => self.inbox.add(&scratch[..bytes]),
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
    pub(crate) fn take<P: Protocol>(&mut self) -> Result<Option<P::Frame>, FrameError> {
        let Some(body) = self.inbox.take()? else { return Ok(None) };
        Ok(Some(P::decode(body)?))
    }

    pub(crate) fn push<P: Protocol>(&mut self, frame: &P::Frame) {
        P::encode(frame, &mut self.outbox);
    }

    /// Sends what the socket takes; whether everything is out.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        loop {
            let rest = &self.outbox[self.passed..];
            let passed = match &mut self.tls {
                Some(tls) if tls.wants_write() => {
                    tls.write_tls(&mut ToSocket(&self.socket)).map(|_| 0)
                }
                _ if rest.is_empty() => break,
                None => ToSocket(&self.socket).write(rest),
                Some(tls) => match tls.writer().write(rest) {
                    // What TLS does not take yet goes with the end of its handshake.
                    Ok(0) => break,
                    other => other,
                },
            };
            match passed {
                Ok(bytes) => self.passed += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.passed == self.outbox.len() {
            self.outbox.clear();
            self.outbox.shrink_to(FRAMES_BYTES_KEPT);
            self.passed = 0;
        }
        Ok(true)
    }

    /// Bytes of messages that did not come whole yet.
    pub(crate) fn unfinished_bytes(&self) -> usize {
        self.inbox.len()
    }

    /// Whose certificate the peer has shown; absent without TLS. Known once anything has come from it.
    pub(crate) fn shown(&self) -> Result<Option<Name>, String> {
        let Some(tls) = &self.tls else { return Ok(None) };
        let shown = tls.peer_certificates().and_then(|chain| chain.first());
        tls::holder_of(shown.ok_or("the peer shows no certificate")?).map(Some)
    }

    /// Bytes that wait for the peer to read; but for the piece that TLS has.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.outbox.len() - self.passed
    }
}

/// Records go from TLS to the socket, and nowhere in between.
pub(crate) struct ToSocket<'a>(pub(crate) &'a OwnedFd);

impl Write for ToSocket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut nothing = SendAncillaryBuffer::default();
        Ok(rustix::net::sendmsg(self.0, parts, &mut nothing, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Takes what came off the wire, and gives what was inside.
fn open(tls: &mut rustls::Connection, mut wire: &[u8], inbox: &mut Incoming) -> io::Result<()> {
    while !wire.is_empty() {
        tls.read_tls(&mut wire)?;
        let state = tls
            .process_new_packets()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        tls.reader().read_exact(inbox.grow(state.plaintext_bytes_to_read()))?;
    }
    Ok(())
}
