//! What the daemon waits for, by name.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

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
    /// The control store's connections.
    Store,
    /// The thread for other nodes has something to say.
    Carrier,
    /// The builder of this ticket ended.
    Builder(u64),
    /// What it prints.
    BuilderOutput(u64),
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

#[derive(Debug)]
pub(crate) struct Poller {
    /// All that may be there, so that one call sees every socket (REF-5).
    poller: hoplo_net::poll::Poller<EVENTS_MAX>,
    ready: Vec<hoplo_net::poll::Ready>,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { poller: hoplo_net::poll::Poller::new()?, ready: Vec::new() })
    }

    /// Reports when there is something to read, or the end.
    pub(crate) fn add(&self, fd: impl AsFd, source: Source) -> io::Result<()> {
        self.poller.add(fd, source.encode(), false)
    }

    /// Rings this loop, from any thread.
    pub(crate) fn bell(&self, source: Source) -> io::Result<hoplo_net::poll::Bell> {
        self.poller.bell(source.encode())
    }

    /// Reports also (or no longer) when there is room to write.
    pub(crate) fn watch_writing(&self, fd: impl AsFd, source: Source, on: bool) {
        self.poller.watch_writing(fd, source.encode(), on);
    }

    pub(crate) fn remove(&self, fd: impl AsFd) {
        self.poller.remove(fd);
    }

    /// Everything that is ready now; waits for the first one. `None` waits for ever.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Vec<Ready>> {
        self.poller.wait(timeout, &mut self.ready)?;
        let ready = self.ready.drain(..).map(|event| Ready {
            source: Source::decode(event.token),
            readable: event.readable,
            writable: event.writable,
        });
        Ok(ready.collect())
    }
}

/// A socket, a life and two outputs for each process, and a few more: builders among them.
const EVENTS_MAX: usize = 4 * hoplo_base::limits::PROCESSES_MAX + 64;
const _: () = assert!(2 * hoplo_base::limits::ENVIRONMENTS_MAKING_MAX < 32);

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
            Source::Store => (9, 0),
            Source::Carrier => (10, 0),
            Source::Builder(ticket) => (11, ticket),
            Source::BuilderOutput(ticket) => (12, ticket),
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
            9 => Source::Store,
            10 => Source::Carrier,
            11 => Source::Builder(id),
            12 => Source::BuilderOutput(id),
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
            Source::Store,
            Source::Carrier,
            Source::Zygote,
            Source::ZygoteOutput,
            Source::Connection(77),
            Source::Builder(3),
            Source::BuilderOutput(3),
            Source::Life(4095),
            Source::Output { slot: 4095, stderr: true },
            Source::Output { slot: 0, stderr: false },
        ] {
            assert_eq!(Source::decode(source.encode()), source);
        }
    }
}
