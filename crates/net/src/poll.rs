//! What a loop waits for: epoll with level-triggered events, and a bell that other threads may ring.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec};

/// Something happened at the descriptor that was added under this token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    pub token: u64,
    /// There is something to read, or the end.
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
    /// The other end is gone, or a connection could not be made: to be found by reading or writing.
    pub hung_up: bool,
}

/// One wait tells of `EVENTS_MAX` descriptors at most.
#[derive(Debug)]
pub struct Poller<const EVENTS_MAX: usize> {
    epoll: OwnedFd,
}

/// Wakes the loop.
#[derive(Clone, Debug)]
pub struct Bell(Arc<OwnedFd>);

impl<const EVENTS_MAX: usize> Poller<EVENTS_MAX> {
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    /// Told under this token when it was rung; the loop silences it then.
    pub fn bell(&self, token: u64) -> io::Result<Bell> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = Bell(Arc::new(rustix::event::eventfd(0, flags)?));
        self.add(&*bell.0, token, false)?;
        Ok(bell)
    }

    /// Reports when there is something to read, or the end; with `writing` also when there is room to write.
    pub fn add(&self, fd: impl AsFd, token: u64, writing: bool) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token), flags(writing))?)
    }

    /// Reports also (or no longer) when there is room to write.
    pub fn watch_writing(&self, fd: impl AsFd, token: u64, on: bool) {
        epoll::modify(&self.epoll, fd, EventData::new_u64(token), flags(on))
            .expect("the descriptor was added");
    }

    /// Reports (or no longer) when there is something to read; nothing else, either.
    pub fn watch_reading(&self, fd: impl AsFd, token: u64, on: bool) {
        let flags = if on { EventFlags::IN } else { EventFlags::empty() };
        epoll::modify(&self.epoll, fd, EventData::new_u64(token), flags)
            .expect("the descriptor was added");
    }

    pub fn remove(&self, fd: impl AsFd) {
        epoll::delete(&self.epoll, fd).expect("the descriptor was added");
    }

    /// Adds what is ready now; waits for the first. `None` waits for ever.
    pub fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut events = [MaybeUninit::uninit(); EVENTS_MAX];
        let events = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        ready.extend(events.iter().map(|event| {
            let (token, flags) = (event.data.u64(), event.flags);
            let hung_up = flags.intersects(EventFlags::HUP | EventFlags::ERR);
            Ready {
                token,
                readable: flags.contains(EventFlags::IN) || hung_up,
                writable: flags.contains(EventFlags::OUT),
                hung_up,
            }
        }));
        Ok(())
    }
}

/// Readable when something is ready: a loop may wait for another one's poller.
impl<const EVENTS_MAX: usize> AsFd for Poller<EVENTS_MAX> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn flags(writing: bool) -> EventFlags {
    let mut flags = EventFlags::IN;
    flags.set(EventFlags::OUT, writing);
    flags
}

/// For who is to ring it from another process.
impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Bell {
    /// One that no loop hears.
    pub fn unheard() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(Arc::new(rustix::event::eventfd(0, flags)?)))
    }

    pub fn ring(&self) {
        // Full means that it rings already.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    /// Until it is rung again.
    pub fn silence(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.0, &mut count);
    }
}
