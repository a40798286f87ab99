//! One connection: a non-blocking socket, TLS if it is TCP, frames both ways.

use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{SendAncillaryBuffer, SendFlags};

use crate::inbox::{FrameError, Inbox, Landing};
pub use crate::link_id::LinkId;
use crate::name::Name;
use crate::outbox::Outbox;
use crate::protocol::Protocol;
use crate::records::Records;
use crate::tls;

#[derive(Debug)]
pub(crate) struct Link {
    socket: OwnedFd,
    tls: Option<Box<Records>>,
    inbox: Inbox,
    /// Before TLS. What went on has the socket, or TLS, which seals a piece and keeps it until the socket takes it.
    outbox: Outbox,
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

impl Link {
    pub(crate) fn new(socket: OwnedFd, tls: Option<Records>, frame_bytes_max: usize) -> Self {
        Self {
            socket,
            tls: tls.map(Box::new),
            inbox: Inbox::new(frame_bytes_max),
            outbox: Outbox::default(),
        }
    }

    /// From now on frames may be so long.
    pub(crate) fn allow(&mut self, frame_bytes_max: usize) {
        self.inbox.allow(frame_bytes_max);
    }

    /// Reads until the socket would block, or about `limit` bytes came. `id`: as `landing` knows it.
    pub(crate) fn fill<P: Protocol>(
        &mut self,
        id: LinkId,
        scratch: &mut [u8],
        limit: usize,
        landing: &mut dyn Landing,
    ) -> io::Result<Filled> {
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
                None => self.inbox.add::<P>(id, &scratch[..bytes], landing),
                Some(tls) => {
                    scratch[..kept].copy_from_slice(tls.kept());
                    let inbox = &mut self.inbox;
                    let mut take = |plain: &[u8]| inbox.add::<P>(id, plain, landing);
                    tls.open(&mut scratch[..kept + bytes], &mut take).map_err(of_tls)?;
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
        self.inbox.take::<P>()
    }

    pub(crate) fn push<P: Protocol>(&mut self, frame: &P::Frame) {
        self.outbox.push::<P>(frame);
    }

    /// Sends what the socket takes; whether everything is out.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        let Self { socket, tls, outbox, .. } = self;
        let mut socket = ToSocket(socket);
        loop {
            if let Some(tls) = tls
                && tls.unsent().is_empty()
                && !outbox.next().is_empty()
            {
                seal(tls, outbox)?;
            }
            let wire = tls.as_ref().map_or(outbox.next(), |tls| tls.unsent());
            if wire.is_empty() {
                // What TLS does not take yet goes with the end of its handshake.
                return Ok(true);
            }
            match (socket.write(wire), &mut *tls) {
                (Ok(bytes), Some(tls)) => tls.sent(bytes),
                (Ok(bytes), None) => outbox.passed(bytes),
                (Err(error), _) if error.kind() == io::ErrorKind::WouldBlock => {
                    outbox.forget_passed();
                    return Ok(false);
                }
                (Err(error), _) if error.kind() == io::ErrorKind::Interrupted => {}
                (Err(error), _) => return Err(error),
            }
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

    /// Bytes that wait for the peer to read.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.outbox.len() + self.tls.as_ref().map_or(0, |tls| tls.unsent().len())
    }
}

/// A piece, of as many parts as it takes.
fn seal(tls: &mut Records, outbox: &mut Outbox) -> io::Result<()> {
    loop {
        let bytes = tls.seal(outbox.next()).map_err(of_tls)?;
        outbox.passed(bytes);
        if bytes == 0 || outbox.next().is_empty() {
            return Ok(());
        }
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
    use hoplo_base::limits::FRAMES_BYTES_KEPT;
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

    use super::*;
    use crate::testing::Plain;

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
                link.outbox.push::<Plain>(&piece);
                sent.extend_from_slice(&(piece.len() as u32).to_le_bytes());
                sent.extend_from_slice(&piece);
            }
            assert!(!link.flush().unwrap(), "there is always more");
            let (bytes, _) = rustix::net::recv(&far, &mut scratch[..], RecvFlags::empty()).unwrap();
            came.extend_from_slice(&scratch[..bytes]);
            let kept = link.outbox.own_bytes();
            assert!(kept < 6 * FRAMES_BYTES_KEPT, "{kept} bytes");
        }
        assert!(sent.len() > 12 * FRAMES_BYTES_KEPT);
        assert!(sent.starts_with(&came));
    }
}
