//! The descriptor of the socket to the daemon, in a process whose code may close what it did not open.
//!
//! A worker that finds it closed ends at once: what it would say next nobody would hear. It wakes nobody in the
//! process before that, since they would close what is not theirs any more. A driver goes on without hoplo.

use std::io;
use std::os::fd::OwnedFd;

use hoplo_shm::Kept;
use rustix::io::Errno;

/// Where a descriptor is put. Code that closes what it did not open begins with the lowest numbers; and what
/// it opens afterwards gets their numbers, which then are not ours.
const HIGH: [i32; 2] = [900, 200];

pub(crate) fn out_of_the_way(socket: OwnedFd) -> io::Result<Kept> {
    // A number above the limit of this process is refused.
    let high = HIGH.into_iter().find_map(|at| rustix::io::fcntl_dupfd_cloexec(&socket, at).ok());
    Kept::new(high.unwrap_or(socket))
}

pub(crate) fn socket_lost(error: &io::Error) -> String {
    if matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE)) {
        return format!(
            "this process may open no more files, and got none that the node daemon sent it ({error}): close files, or \
             raise the limit (`ulimit -n`)"
        );
    }
    format!(
        "this process cannot speak to the node daemon any more ({error}): its code closed a descriptor that it \
         had not opened, by os.close or os.closerange for example"
    )
}

/// The daemon's end is closed; any other error is of this process's own making.
pub(crate) fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected | UnexpectedEof)
}
