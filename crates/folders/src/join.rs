//! Reaching a daemon: only one of our own user, and not longer than we want to wait (FOLDER-5).

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hoplo_base::limits;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::folder::{Folder, FolderError, me};
use crate::names::SOCKET;

/// Between two looks at whether a wait is still wanted, and at a daemon that takes no connections.
const LOOK: Duration = Duration::from_millis(20);

/// How long somebody waits for a daemon, and whether they still want to.
pub struct Wait<'a> {
    since: Instant,
    most: Option<Duration>,
    wanted: Option<&'a mut (dyn FnMut() -> bool + Send)>,
    /// Of the daemon; 0 while it is not known.
    pub pid: u32,
}

/// A connection to a daemon of our user. It does not block.
#[derive(Debug)]
pub struct Joined {
    pub socket: OwnedFd,
    /// Of the process that listens there.
    pub pid: u32,
}

impl Joined {
    /// Whether anything comes back for `hello` before `until`. The kernel takes connections also for a process that was
    /// killed, as long as it is not done with it.
    pub fn answers(&self, hello: &[u8], until: Instant) -> bool {
        // A few bytes, and nothing lies before them.
        if rustix::net::send(&self.socket, hello, SendFlags::NOSIGNAL) != Ok(hello.len()) {
            return false;
        }
        loop {
            match rustix::net::recv(&self.socket, &mut [0; 1], RecvFlags::PEEK) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                heard => return heard.is_ok_and(|(_, bytes)| bytes > 0),
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let pause = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            // Whatever it says, the next look finds out.
            let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&pause));
        }
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Nobody listens, or it is no socket.
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Folder(#[from] FolderError),
    /// What it says could be made to harm us: it would be unpickled.
    #[error(
        "the process that listens there (pid {pid}) belongs to user {uid}, and you are user {}",
        me()
    )]
    Stranger { pid: u32, uid: u32 },
    #[error("{0}")]
    Silent(Silent),
    /// Whoever waited does not want to any more.
    #[error("interrupted")]
    Interrupted,
}

/// It lives and does nothing.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "the node daemon{} has not answered for {} s: it is stopped or it hangs. Let it go on{}, or end it{} and start another \
     node",
    pid_of(.pid, " (pid ", ")"), .waited.as_secs(), pid_of(.pid, " (kill -CONT ", ")"), pid_of(.pid, " (kill -KILL ", ")")
)]
pub struct Silent {
    /// 0 if it is not known.
    pub pid: u32,
    pub waited: Duration,
}

fn pid_of(pid: &u32, before: &str, after: &str) -> String {
    if *pid == 0 { String::new() } else { format!("{before}{pid}{after}") }
}

impl<'a> Wait<'a> {
    pub fn at_most(most: Duration) -> Self {
        Self { since: Instant::now(), most: Some(most), wanted: None, pid: 0 }
    }

    /// As long as the other end lives.
    pub fn for_ever() -> Self {
        Self { since: Instant::now(), most: None, wanted: None, pid: 0 }
    }

    /// As long as a daemon that is not busy takes at the most, and as long as `wanted` says so.
    pub fn for_answer(wanted: &'a mut (dyn FnMut() -> bool + Send)) -> Self {
        Self { wanted: Some(wanted), ..Self::at_most(limits::NODE_ANSWERS) }
    }

    /// The same for a daemon of our own, that is to start.
    pub fn for_start(wanted: &'a mut (dyn FnMut() -> bool + Send)) -> Self {
        Self { wanted: Some(wanted), ..Self::at_most(limits::NODE_STARTS) }
    }

    /// How long to sleep until the next look; an error when the wait is over.
    pub fn pause(&mut self) -> Result<Option<Duration>, JoinError> {
        if self.wanted.as_mut().is_some_and(|wanted| !wanted()) {
            return Err(JoinError::Interrupted);
        }
        let Some(most) = self.most else { return Ok(self.wanted.is_some().then_some(LOOK)) };
        match most.checked_sub(self.since.elapsed()) {
            Some(left) => Ok(Some(if self.wanted.is_some() { left.min(LOOK) } else { left })),
            None => Err(JoinError::Silent(Silent { pid: self.pid, waited: most })),
        }
    }
}

/// The daemon at an address that a user gave: a session's directory, or its socket.
pub fn named(path: &Path, wait: &mut Wait<'_>) -> Result<Joined, JoinError> {
    if path.is_dir() {
        return connect(Folder::open(path)?, SOCKET, wait);
    }
    // Whoever made the folder: what counts is who listens.
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty()).map_err(io::Error::from)?;
    let name = path.file_name().ok_or_else(|| io::Error::from(Errno::NOTSOCK))?;
    connect(&folder, name, wait)
}

/// Connects without blocking: who listens may have stopped, with connections that wait already.
pub(crate) fn connect(
    folder: impl AsFd,
    name: impl AsRef<OsStr>,
    wait: &mut Wait<'_>,
) -> Result<Joined, JoinError> {
    let socket = stream_socket(SocketFlags::NONBLOCK)?;
    let address = address(&folder, name)?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let pause = wait.pause()?.unwrap_or(LOOK);
                std::thread::sleep(pause.min(LOOK));
            }
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
    }
    let peer = rustix::net::sockopt::socket_peercred(&socket).map_err(io::Error::from)?;
    let pid = u32::try_from(peer.pid.as_raw_nonzero().get()).unwrap_or(0);
    if peer.uid.as_raw() != me() {
        return Err(JoinError::Stranger { pid, uid: peer.uid.as_raw() });
    }
    wait.pid = pid;
    Ok(Joined { socket, pid })
}

pub(crate) fn stream_socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    Ok(rustix::net::socket_with(family, kind, flags | SocketFlags::CLOEXEC, None)?)
}

/// A socket's address has room for 107 bytes; a long path is reached through its open folder.
pub(crate) fn address(folder: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<SocketAddrUnix> {
    let folder = PathBuf::from(format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd()));
    Ok(SocketAddrUnix::new(folder.join(name.as_ref()).as_os_str().as_bytes())?)
}
