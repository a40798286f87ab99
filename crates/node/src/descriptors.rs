//! Open files: how many this process may have, and what it does when there are no more.
//!
//! The soft limit (often 1024) is raised to what the node may need; the zygote, and so the user's code, gets
//! the one that we were started with. A process takes [`PER_PROCESS`] descriptors, and so no more are
//! accepted or forked than three quarters of the limit allow: the rest is for what is on its way to others.
//!
//! If the limit is reached all the same (or the machine's), who connects is refused, with a descriptor that is
//! kept in reserve (and another one for the log, which may not be open yet). What waits at the listener would
//! wake the loop for ever.

use std::io;
use std::os::fd::OwnedFd;

use hoplo_base::limits::PROCESSES_MAX;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Its socket, its two outputs, its life.
const PER_PROCESS: usize = 4;

/// The daemon's own: listener, epoll, store, logs, control store, zygote.
const OWN: usize = 64;

/// As many as the largest node takes.
const WANTED: usize = ((OWN + PER_PROCESS * PROCESSES_MAX) * 4).div_ceil(3).next_multiple_of(4);

#[derive(Debug)]
pub(crate) struct Descriptors {
    /// The limit of this process.
    pub(crate) limit: usize,
    reserve: Vec<OwnedFd>,
    /// The log says so already.
    told: bool,
}

/// Raises the soft limit, and says what it was: `None` if there was none.
pub(crate) fn raise_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(WANTED as u64, |most| most.min(WANTED as u64));
    if limit.current.is_some_and(|current| current < wanted) {
        // Refused: then it stays as it is, and fewer processes are accepted.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit });
    }
    limit.current
}

/// Gives another process the soft limit that `raise_limit` found.
pub(crate) fn lower_limit_of(pid: u32, current: Option<u64>) {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else {
        return;
    };
    let limit = Rlimit { current, ..getrlimit(Resource::Nofile) };
    // It may be dead already.
    let _ = rustix::process::prlimit(Some(pid), Resource::Nofile, limit);
}

impl Descriptors {
    pub(crate) fn new() -> io::Result<Self> {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Ok(Self { limit, reserve: vec![null()?, null()?], told: false })
    }

    /// Processes (drivers, workers, tools) that may be connected at a time.
    pub(crate) fn processes_max(&self) -> usize {
        ((self.limit / 4 * 3).saturating_sub(OWN) / PER_PROCESS).clamp(2, PROCESSES_MAX)
    }

    /// Makes room for one to be refused, and for the log, if the reserve is there.
    pub(crate) fn spend(&mut self) -> bool {
        let had = !self.reserve.is_empty();
        self.reserve.clear();
        had
    }

    /// After what `spend` made room for is closed.
    pub(crate) fn save(&mut self) {
        while self.reserve.len() < 2
            && let Ok(null) = null()
        {
            self.reserve.push(null);
        }
    }

    /// Whether this shortage is yet to be told.
    pub(crate) fn is_news(&mut self) -> bool {
        !std::mem::replace(&mut self.told, true)
    }

    pub(crate) fn is_well(&mut self) {
        self.told = false;
    }
}

fn null() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_leave_room_for_what_is_on_its_way() {
        let mut descriptors = Descriptors::new().unwrap();
        descriptors.limit = 1024;
        assert_eq!(descriptors.processes_max(), 176);
        descriptors.limit = WANTED;
        assert_eq!(descriptors.processes_max(), PROCESSES_MAX);
        descriptors.limit = 0;
        assert_eq!(descriptors.processes_max(), 2);
        assert!(descriptors.spend() && !descriptors.spend());
        descriptors.save();
        assert!(descriptors.spend());
        assert!(descriptors.is_news() && !descriptors.is_news());
        descriptors.is_well();
        assert!(descriptors.is_news());
    }
}
