//! Framed messages with descriptors over a non-blocking unix socket: a `u32` length, then the body.
//!
//! Reading and writing stop where the socket would block and go on where they stopped. Descriptors
//! come in the order of the messages that announce them (`hoplo_shm::fds`).
//!
//! # Invariants
//! - STREAM-1: a frame above its limit, or descriptors that nothing announced, end the stream: what
//!   a peer can make us keep is bounded.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use hoplo_base::limits::{DESCRIPTORS_WAITING_MAX, FRAMES_BYTES_KEPT};
use hoplo_shm::fds;
use hoplo_wire::frames::{Incoming, TooLong};

#[derive(Debug)]
pub(crate) struct Stream {
    socket: OwnedFd,
    inbox: Incoming,
    fds: VecDeque<OwnedFd>,
    outbox: Vec<u8>,
    /// Bytes of the outbox that were sent.
    sent: usize,
    /// Descriptors and where in the outbox the message begins that they go with.
    out_fds: VecDeque<(usize, Rc<[OwnedFd]>)>,
}

/// How much is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    /// About so many bytes, if there are as many.
    Bytes(usize),
    /// What lies in the socket when the reading begins: a peer that writes on does not keep us.
    WhatLies,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error(transparent)]
    TooLong(#[from] TooLong),
    #[error("descriptors came that no message announced")]
    StrayDescriptors,
    #[error("a message announced a descriptor that did not come")]
    MissingDescriptor,
}

impl Stream {
    pub(crate) fn new(socket: OwnedFd, frame_bytes_max: usize) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self {
            socket,
            inbox: Incoming::new(frame_bytes_max),
            fds: VecDeque::new(),
            outbox: Vec::new(),
            sent: 0,
            out_fds: VecDeque::new(),
        })
    }

    /// Reads until the socket would block, or the amount came.
    pub(crate) fn fill(&mut self, scratch: &mut [u8], amount: Amount) -> io::Result<Filled> {
        let limit = match amount {
            Amount::Bytes(bytes) => bytes,
            // Where nothing lies, its end may be there to be seen.
            Amount::WhatLies => rustix::io::ioctl_fionread(&self.socket)?.max(1) as usize,
        };
        let mut total = 0;
        while total < limit {
            match fds::receive(&self.socket, scratch) {
                Ok(received) if received.bytes == 0 => return Ok(Filled::Closed),
                Ok(received) => {
                    self.inbox.add(&scratch[..received.bytes]);
                    self.fds.extend(received.fds);
                    total += received.bytes;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Filled::Dry),
                Err(error) => return Err(error),
            }
        }
        Ok(Filled::More)
    }

    /// Of messages that did not come whole yet.
    pub(crate) fn unfinished_bytes(&self) -> usize {
        self.inbox.len()
    }

    /// From now on messages may be so long.
    pub(crate) fn allow(&mut self, frame_bytes_max: usize) {
        self.inbox.allow(frame_bytes_max);
    }

    /// The next whole body.
    pub(crate) fn take_frame(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let whole = self.inbox.take()?;
        // A whole frame may still announce what waits; one that has not ended announces one.
        if whole.is_none() && self.fds.len() > DESCRIPTORS_WAITING_MAX {
            return Err(FrameError::StrayDescriptors);
        }
        Ok(whole)
    }

    /// The descriptor that the frame just taken announces.
    pub(crate) fn take_fd(&mut self) -> Result<OwnedFd, FrameError> {
        self.fds.pop_front().ok_or(FrameError::MissingDescriptor)
    }

    /// A whole message (with its length) to be sent; `write` appends it.
    pub(crate) fn push(&mut self, fds: Option<Rc<[OwnedFd]>>, write: impl FnOnce(&mut Vec<u8>)) {
        if let Some(fds) = fds {
            self.out_fds.push_back((self.outbox.len(), fds));
        }
        write(&mut self.outbox);
    }

    /// Sends what the socket takes; whether everything is out.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        while self.sent < self.outbox.len() {
            let with_fds = self.out_fds.front().filter(|(at, _)| *at == self.sent);
            let next = self.out_fds.get(usize::from(with_fds.is_some()));
            let end = next.map_or(self.outbox.len(), |(at, _)| *at);
            let fds: Vec<BorrowedFd<'_>> =
                with_fds.into_iter().flat_map(|(_, fds)| fds.iter().map(AsFd::as_fd)).collect();
            match fds::send(&self.socket, &self.outbox[self.sent..end], &fds) {
                Ok(bytes) => {
                    if with_fds.is_some() {
                        self.out_fds.pop_front();
                    }
                    self.sent += bytes;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.outbox.clear();
        self.outbox.shrink_to(FRAMES_BYTES_KEPT);
        self.sent = 0;
        Ok(true)
    }

    /// Bytes that wait for the peer to read.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.outbox.len() - self.sent
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Stream, OwnedFd) {
        let (a, b) = fds::socketpair().unwrap();
        (Stream::new(a, 1 << 20).unwrap(), b)
    }

    fn frame(body: &[u8]) -> Vec<u8> {
        [&(body.len() as u32).to_le_bytes(), body].concat()
    }

    #[test]
    fn frames_come_whole_however_they_were_cut() {
        let (mut stream, peer) = pair();
        let mut scratch = [0; 16];
        let bytes = [frame(b"one"), frame(b""), frame(b"three")].concat();
        let mut got = Vec::new();
        for byte in bytes {
            fds::send(&peer, &[byte], &[]).unwrap();
            assert_eq!(stream.fill(&mut scratch, Amount::Bytes(1000)).unwrap(), Filled::Dry);
            while let Some(body) = stream.take_frame().unwrap() {
                got.push(body.to_vec());
            }
        }
        assert_eq!(got, [b"one".to_vec(), b"".to_vec(), b"three".to_vec()]);
        // Not by closing it: a process that another test forks may have it, too, until it executes its program.
        rustix::net::shutdown(&peer, rustix::net::Shutdown::Both).unwrap();
        assert_eq!(stream.fill(&mut scratch, Amount::Bytes(1000)).unwrap(), Filled::Closed);
    }

    #[test]
    fn a_peer_that_wrote_on_kept_who_read_what_lay_there() {
        let (mut stream, peer) = pair();
        let mut scratch = [0; 16];
        fds::send(&peer, &frame(b"before"), &[]).unwrap();
        let lay = rustix::io::ioctl_fionread(&stream).unwrap();
        let writer =
            std::thread::spawn(move || while fds::send(&peer, &frame(b"more"), &[]).is_ok() {});
        stream.fill(&mut scratch, Amount::WhatLies).unwrap();
        assert!(stream.unfinished_bytes() as u64 >= lay);
        assert!(stream.take_frame().unwrap().is_some_and(|body| body == b"before"));
        drop(stream);
        writer.join().unwrap();
    }

    #[test]
    fn a_length_that_lies_is_refused() {
        let (mut stream, peer) = pair();
        fds::send(&peer, &[0xff; 8], &[]).unwrap();
        stream.fill(&mut [0; 16], Amount::Bytes(1000)).unwrap();
        assert_eq!(
            stream.take_frame(),
            Err(FrameError::TooLong(TooLong { bytes: u32::MAX as usize, max: 1 << 20 }))
        );
    }

    #[test]
    fn descriptors_go_with_their_message_even_when_the_socket_is_full() {
        let (mut stream, peer) = pair();
        let mut peer = Stream::new(peer, 1 << 20).unwrap();
        let memory = || -> Rc<[OwnedFd]> {
            let flags = rustix::fs::MemfdFlags::CLOEXEC;
            vec![rustix::fs::memfd_create("t", flags).unwrap()].into()
        };
        let big = vec![7; 900_000];
        stream.push(None, |out| out.extend_from_slice(&frame(&big)));
        stream.push(Some(memory()), |out| out.extend_from_slice(&frame(b"a")));
        stream.push(Some(memory()), |out| out.extend_from_slice(&frame(b"b")));
        stream.push(None, |out| out.extend_from_slice(&frame(b"c")));
        let mut scratch = vec![0; 65536];
        let mut bodies = Vec::new();
        let mut done = false;
        while !done {
            done = stream.flush().unwrap();
            peer.fill(&mut scratch, Amount::WhatLies).unwrap();
            while let Some(body) = peer.take_frame().unwrap() {
                bodies.push(body.to_vec());
            }
        }
        assert_eq!(bodies[1..], [b"a".to_vec(), b"b".to_vec(), b"c".to_vec()]);
        assert!(peer.take_fd().is_ok() && peer.take_fd().is_ok());
        assert_eq!(peer.take_fd().err(), Some(FrameError::MissingDescriptor));
    }
}
