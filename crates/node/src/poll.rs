//! What the daemon waits for, by name: epoll with level-triggered events.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

/// Who has something to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    Listener,
    Signal,
    /// The helper thread that reads and writes spill files.
    Disk,
    /// The zygote's socket.
    Zygote,
    /// What the zygote itself prints.
    ZygoteOutput,
    /// A connection, by its number.
    Connection(u64),
    /// The process in this slot ended.
    Life(u16),
    /// The control store's archive did something.
    Archive,
    /// What the worker in this slot prints.
    Output {
        slot: u16,
        stderr: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) source: Source,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

pub(crate) struct Poller {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl std::fmt::Debug for Poller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poller").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, events: Vec::new() })
    }

    /// Reports when there is something to read, or the end.
    pub(crate) fn add(&self, fd: impl AsFd, source: Source) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(source.encode()), EventFlags::IN)?)
    }

    /// Reports also (or no longer) when there is room to write.
    pub(crate) fn watch_writing(&self, fd: impl AsFd, source: Source, on: bool) {
        let mut flags = EventFlags::IN;
        flags.set(EventFlags::OUT, on);
        let data = EventData::new_u64(source.encode());
        epoll::modify(&self.epoll, fd, data, flags).expect("the descriptor was added");
    }

    pub(crate) fn remove(&self, fd: impl AsFd) {
        epoll::delete(&self.epoll, fd).expect("the descriptor was added");
    }

    /// Everything that is ready now; waits for the first one. `None` waits for ever.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Vec<Ready>> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        self.events.clear();
        // All that may be there, so that one call sees every socket (REF-5).
        self.events.reserve(EVENTS_MAX);
        let buffer = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, buffer, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
        let ready = self.events.iter().map(|event| {
            let flags = event.flags;
            Ready {
                source: Source::decode(event.data.u64()),
                readable: flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR),
                writable: flags.contains(EventFlags::OUT),
            }
        });
        Ok(ready.collect())
    }
}

/// A socket, a life and two outputs for each process, and a few more.
const EVENTS_MAX: usize = 4 * hoplo_base::limits::PROCESSES_MAX + 64;

const KIND_SHIFT: u32 = 56;

impl Source {
    fn encode(self) -> u64 {
        let (kind, id) = match self {
            Source::Listener => (0, 0),
            Source::Signal => (1, 0),
            Source::Disk => (2, 0),
            Source::Zygote => (3, 0),
            Source::ZygoteOutput => (4, 0),
            Source::Connection(number) => (5, number),
            Source::Life(slot) => (6, u64::from(slot)),
            Source::Output { slot, stderr } => (7, u64::from(slot) << 1 | u64::from(stderr)),
            Source::Archive => (8, 0),
        };
        assert!(id < 1 << KIND_SHIFT);
        (kind as u64) << KIND_SHIFT | id
    }

    fn decode(data: u64) -> Self {
        let id = data & ((1 << KIND_SHIFT) - 1);
        match data >> KIND_SHIFT {
            0 => Source::Listener,
            1 => Source::Signal,
            2 => Source::Disk,
            3 => Source::Zygote,
            4 => Source::ZygoteOutput,
            5 => Source::Connection(id),
            6 => Source::Life(id as u16),
            7 => Source::Output { slot: (id >> 1) as u16, stderr: id & 1 == 1 },
            8 => Source::Archive,
            kind => unreachable!("no source of kind {kind} is ever encoded"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_survives_the_kernel() {
        for source in [
            Source::Listener,
            Source::Signal,
            Source::Disk,
            Source::Archive,
            Source::Zygote,
            Source::ZygoteOutput,
            Source::Connection(77),
            Source::Life(4095),
            Source::Output { slot: 4095, stderr: true },
            Source::Output { slot: 0, stderr: false },
        ] {
            assert_eq!(Source::decode(source.encode()), source);
        }
    }
}
