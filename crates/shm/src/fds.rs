//! Bytes together with file descriptors, over a unix stream socket.
//!
//! A stream has no message bounds: descriptors ride with the first byte of one send, and the
//! kernel never merges two sends' descriptors into one receive. So a frame that announces n
//! descriptors gets them in the receive that returned its first byte.
//!
//! # Invariants
//! - FDS-1: received descriptors are close-on-exec from the start, and owned by whom they are
//!   handed to; none leaks on any error.
//! - FDS-2: a send to a socket whose peer is gone is an error, not a signal.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// Descriptors that one send may carry.
pub const FDS_PER_SEND: usize = 16;

/// What one receive brought.
#[derive(Debug)]
pub struct Received {
    /// Bytes written to the buffer; 0 means that the peer has closed.
    pub bytes: usize,
    pub fds: Vec<OwnedFd>,
}

/// Who is at the other end, by the kernel's word, as of when the socket was connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    pub pid: u32,
    pub uid: u32,
    pub gid: u32,
}

/// Sends a prefix of `bytes` (at least one byte), with all of `fds`; returns the prefix's length.
/// Send the rest without descriptors. `WouldBlock` if the socket is non-blocking and full.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    send_by(socket, bytes, fds, SendFlags::NOSIGNAL)
}

/// As `send`, and never waits: `WouldBlock` if the socket is full, whatever its mode.
pub fn send_now(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    send_by(socket, bytes, fds, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

/// Waits until `send_now` takes something, or says what is wrong. May return too early.
pub fn wait_writable(socket: impl AsFd) {
    use rustix::event::{PollFd, PollFlags, poll};
    // Interrupted, or out of memory for a moment: the next send finds out.
    let _ = poll(&mut [PollFd::new(&socket, PollFlags::OUT)], None);
}

fn send_by(
    socket: impl AsFd,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<usize> {
    if fds.len() > FDS_PER_SEND || (bytes.is_empty() && !fds.is_empty()) {
        let what = "at most 16 descriptors a send, and at least one byte with them";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        let pushed = control.push(SendAncillaryMessage::ScmRights(fds));
        assert!(pushed, "space for {FDS_PER_SEND} descriptors");
    }
    let parts = [IoSlice::new(bytes)];
    loop {
        match rustix::net::sendmsg(&socket, &parts, &mut control, flags) {
            Err(rustix::io::Errno::INTR) => {}
            sent => return Ok(sent?),
        }
    }
}

/// Receives into `buffer` (not empty), with the descriptors that came along. `WouldBlock` if the
/// socket is non-blocking and empty.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(buffer)];
    let message = loop {
        match rustix::net::recvmsg(&socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            message => break message?,
        }
    };
    let mut fds = Vec::new();
    for received in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = received {
            fds.extend(rights);
        }
    }
    if message.flags.contains(ReturnFlags::CTRUNC) {
        // Out of descriptors, or a peer that sent too many; those that came are closed (FDS-1).
        return Err(rustix::io::Errno::MFILE.into());
    }
    Ok(Received { bytes: message.bytes, fds })
}

/// Who is at the other end of a unix socket.
pub fn peer_credentials(socket: impl AsFd) -> io::Result<PeerCredentials> {
    let found = rustix::net::sockopt::socket_peercred(socket)?;
    Ok(PeerCredentials {
        pid: u32::try_from(found.pid.as_raw_nonzero().get()).unwrap_or(0),
        uid: found.uid.as_raw(),
        gid: found.gid.as_raw(),
    })
}

/// A connected pair of unix stream sockets, close-on-exec.
pub fn socketpair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    Ok(rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?)
}

const SPACE: usize = rustix::cmsg_space!(ScmRights(FDS_PER_SEND));

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::{FdFlags, fcntl_getfd};

    #[test]
    fn descriptors_travel_with_their_bytes() {
        let (a, b) = socketpair().unwrap();
        let memory = rustix::fs::memfd_create("t", rustix::fs::MemfdFlags::empty()).unwrap();
        rustix::fs::ftruncate(&memory, 12345).unwrap();
        let fds = [memory.as_fd(); FDS_PER_SEND];
        assert_eq!(send(&a, b"first", &fds).unwrap(), 5);
        assert_eq!(send(&a, b"second", &fds[..1]).unwrap(), 6);
        let mut buffer = [0; 64];
        let first = receive(&b, &mut buffer).unwrap();
        assert_eq!((first.bytes, first.fds.len()), (5, FDS_PER_SEND));
        for fd in &first.fds {
            assert_eq!(rustix::fs::fstat(fd).unwrap().st_size, 12345);
            assert!(fcntl_getfd(fd).unwrap().contains(FdFlags::CLOEXEC));
        }
        let second = receive(&b, &mut buffer).unwrap();
        assert_eq!((&buffer[..second.bytes], second.fds.len()), (&b"second"[..], 1));
    }

    #[test]
    fn a_closed_peer_is_an_error_for_the_sender_and_an_end_for_the_receiver() {
        let (a, b) = socketpair().unwrap();
        drop(b);
        assert_eq!(send(&a, b"x", &[]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(receive(&a, &mut [0; 8]).unwrap().bytes, 0);
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        let (a, _b) = socketpair().unwrap();
        let too_many = [a.as_fd(); FDS_PER_SEND + 1];
        assert!(send(&a, b"x", &too_many).is_err());
        assert!(send(&a, b"", &too_many[..1]).is_err());
    }

    #[test]
    fn the_peer_of_a_pair_is_this_process() {
        let (a, _b) = socketpair().unwrap();
        let peer = peer_credentials(&a).unwrap();
        assert_eq!(peer.pid, std::process::id());
        assert_eq!(peer.uid, rustix::process::getuid().as_raw());
    }
}
