//! How many descriptors this process may have, and how many it has.

use std::io;

use rustix::process::{Resource, getrlimit, setrlimit};

/// As many as the system lets this process have; how many that is.
pub fn raise() -> io::Result<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit)?;
    }
    Ok(most())
}

pub(crate) fn most() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

pub(crate) fn open() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(0, |all| all.count() as u64)
}
