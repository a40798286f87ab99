//! Descriptors that the daemon watches the other end of, in a process whose code may close what it did not open: the socket, and what a
//! driver holds as long as it has the store mapped.
//!
//! A worker that finds it closed ends at once: what it would say next nobody would hear. It wakes nobody in the
//! process before that, since they would close what is not theirs any more. A driver goes on without hoplo.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use hoplo_shm::Kept;
use rustix::io::Errno;

/// Where a descriptor is put. Code that closes what it did not open begins with the lowest numbers; and what
/// it opens afterwards gets their numbers, which then are not ours.
const HIGH: [i32; 2] = [900, 200];

/// In a process with several threads the kernel makes its table of descriptors larger only after all processors have
/// passed a point of rest: 10 to 19 ms, which `init()` would wait. There the last numbers of the table as it is have to do.
const LAST_OF_TABLE: i32 = 8;

pub(crate) fn out_of_the_way(low: OwnedFd) -> io::Result<Kept> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let last = [number(&status, "FDSize:").unwrap_or(64) - LAST_OF_TABLE];
    let places = if number(&status, "Threads:") == Some(1) { &HIGH[..] } else { &last };
    // A number above the limit of this process is refused.
    let high = places.iter().find_map(|at| rustix::io::fcntl_dupfd_cloexec(&low, *at).ok());
    Kept::new(high.unwrap_or(low))
}

/// The same socket once more, under the next number that is free.
pub(crate) fn once_more(socket: &Kept) -> io::Result<Kept> {
    let socket = socket.as_fd();
    let beside = rustix::io::fcntl_dupfd_cloexec(socket, socket.as_raw_fd());
    Kept::new(beside.or_else(|_| rustix::io::fcntl_dupfd_cloexec(socket, 0))?)
}

fn number(status: &str, name: &str) -> Option<i32> {
    status.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beside_other_threads_the_table_of_descriptors_was_made_larger_and_init_waited_for_that() {
        let (end, begin) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || begin.recv());
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let kept = out_of_the_way(std::fs::File::open("/dev/null").unwrap().into()).unwrap();
        let again = once_more(&kept).unwrap();
        let size = number(&status, "FDSize:").unwrap();
        for at in [&kept, &again].map(|it| it.as_fd().as_raw_fd()) {
            assert!((size - LAST_OF_TABLE..size).contains(&at), "{at} of {size}");
        }
        drop(end);
        let _ = other.join();
    }
}
