//! What a loop waits for: epoll with level-triggered events, and a bell that other threads may ring.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) token: u64,
    pub(super) readable: bool,
    pub(super) writable: bool,
}

#[derive(Debug)]
pub(super) struct Poller {
    epoll: OwnedFd,
    bell: Bell,
}

/// Wakes the loop.
#[derive(Clone, Debug)]
pub struct Bell(Arc<OwnedFd>);

/// The token of the bell.
pub(super) const RUNG: u64 = u64::MAX;

const EVENTS_MAX: usize = 256;

impl Poller {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = Bell(Arc::new(rustix::event::eventfd(0, flags)?));
        epoll::add(&epoll, &*bell.0, EventData::new_u64(RUNG), EventFlags::IN)?;
        Ok(Self { epoll, bell })
    }

    pub(super) fn bell(&self) -> Bell {
        self.bell.clone()
    }

    pub(super) fn add(&self, fd: impl AsFd, token: u64, writing: bool) -> io::Result<()> {
        let mut flags = EventFlags::IN;
        flags.set(EventFlags::OUT, writing);
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token), flags)?)
    }

    /// Reports also (or no longer) when there is room to write.
    pub(super) fn watch_writing(&self, fd: impl AsFd, token: u64, on: bool) {
        let mut flags = EventFlags::IN;
        flags.set(EventFlags::OUT, on);
        let data = EventData::new_u64(token);
        epoll::modify(&self.epoll, fd, data, flags).expect("the descriptor was added");
    }

    pub(super) fn remove(&self, fd: impl AsFd) {
        epoll::delete(&self.epoll, fd).expect("the descriptor was added");
    }

    /// What is ready now, the bell among it; waits for the first. `None` waits for ever.
    pub(super) fn wait(
        &mut self,
        timeout: Option<Duration>,
        ready: &mut Vec<Ready>,
    ) -> io::Result<()> {
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
        for event in events {
            let (token, flags) = (event.data.u64(), event.flags);
            if token == RUNG {
                self.bell.silence();
            }
            ready.push(Ready {
                token,
                readable: flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR),
                writable: flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR),
            });
        }
        Ok(())
    }
}

impl Bell {
    pub fn ring(&self) {
        // Full means that it rings already.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    fn silence(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.0, &mut count);
    }
}
