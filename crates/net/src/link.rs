//! One connection: a non-blocking socket, TLS if it is TCP, frames both ways.

use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use hoplo_base::limits::FRAMES_BYTES_KEPT;
use hoplo_wire::frames::{Incoming, TooLong};
use rustix::net::{SendAncillaryBuffer, SendFlags};

use crate::name::Name;
use crate::protocol::{Malformed, Protocol};
use crate::records::Records;
use crate::tls;

/// A connection of this process, never used again after it closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub(crate) u64);

#[derive(Debug)]
pub(crate) struct Link {
    socket: OwnedFd,
    tls: Option<Box<Records>>,
    inbox: Incoming,
    /// Frames, before TLS.
    outbox: Vec<u8>,
    /// Bytes of the outbox that went on: to the socket, or to TLS, which seals one piece and keeps it until the socket takes it.
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
    pub(crate) fn new(socket: OwnedFd, tls: Option<Records>, frame_bytes_max: usize) -> Self {
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
            let kept = self.tls.as_ref().map_or(0, |tls| tls.kept().len());
            let bytes = match rustix::net::recv(
                &self.socket,
                &mut scratch[kept..],
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
                Some(tls) => {
                    scratch[..kept].copy_from_slice(tls.kept());
                    tls.open(&mut scratch[..kept + bytes], &mut self.inbox).map_err(of_tls)?;
                }
            }
            // A short read is as good as an empty one: epoll tells when there is more.
            if kept + bytes < scratch.len() {
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
                Some(tls) if !tls.unsent().is_empty() => {
                    ToSocket(&self.socket).write(tls.unsent()).map(|bytes| {
                        tls.sent(bytes);
                        0
                    })
                }
                _ if rest.is_empty() => break,
                None => ToSocket(&self.socket).write(rest),
                Some(tls) => match tls.seal(rest, &mut self.inbox).map_err(of_tls) {
                    // What TLS does not take yet goes with the end of its handshake.
                    Ok(0) if tls.unsent().is_empty() => break,
                    other => other,
                },
            };
            match passed {
                Ok(bytes) => self.passed += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.forget_passed();
                    return Ok(false);
                }
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

    /// Who always has more to say never has said all: what the socket took goes before that. Each byte is moved once at most, since as many went.
    fn forget_passed(&mut self) {
        if self.passed > FRAMES_BYTES_KEPT && self.passed > self.outbox.len() / 2 {
            self.outbox.drain(..self.passed);
            self.passed = 0;
        }
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

fn of_tls(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

    use super::*;

    /// A node that sent 64 MiB over a slow link held all of them in the end: its socket never took all that there was.
    #[test]
    fn who_always_has_more_to_send_keeps_nothing_that_was_sent() {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (near, far) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let mut link = Link::new(near, None, 0);
        let (mut sent, mut came, mut scratch) = (Vec::new(), Vec::new(), vec![0; 100_000]);
        for round in 0..200u8 {
            while link.unsent_bytes() < 2 * FRAMES_BYTES_KEPT {
                let piece = vec![round; 100_000];
                link.outbox.extend_from_slice(&piece);
                sent.extend_from_slice(&piece);
            }
            assert!(!link.flush().unwrap(), "there is always more");
            let (bytes, _) = rustix::net::recv(&far, &mut scratch[..], RecvFlags::empty()).unwrap();
            came.extend_from_slice(&scratch[..bytes]);
            assert!(link.outbox.len() < 6 * FRAMES_BYTES_KEPT, "{} bytes", link.outbox.len());
        }
        assert!(sent.len() > 12 * FRAMES_BYTES_KEPT);
        assert!(sent.starts_with(&came));
    }
}
