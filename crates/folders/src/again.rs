//! A daemon whose number was declared dead joins its cluster again. It has no session until it has: here it is found.
//!
//! While it tries, it holds the lock of a file in the base that has its pid in its name.

use std::fs::File;
use std::io;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::base::Base;

const PREFIX: &str = "again-";

/// As long as it lives, this process is found.
#[derive(Debug)]
pub struct JoinsAgain {
    base: Base,
    name: String,
    _lock: File,
}

impl JoinsAgain {
    pub fn begin(base: Base) -> io::Result<Self> {
        let name = format!("{PREFIX}{}", std::process::id());
        loop {
            let file = base.folder().file(&name, OFlags::CREATE | OFlags::WRONLY)?;
            // Whoever looks holds it for a moment.
            flock(&file, FlockOperation::LockExclusive)?;
            // It may have been taken for that of a dead process.
            if base.folder().names_this(&name, &file)? {
                return Ok(Self { base, name, _lock: file });
            }
        }
    }
}

impl Drop for JoinsAgain {
    fn drop(&mut self) {
        let _ = self.base.folder().remove(&self.name);
    }
}

impl Base {
    /// The pids of daemons that join their clusters again. What dead ones left is removed.
    pub fn joining_again(&self) -> Vec<u32> {
        let names = self.folder().names().unwrap_or_default();
        let pid_of = |name: &str| name.strip_prefix(PREFIX)?.parse().ok();
        let found = names.iter().filter_map(|name| Some((name.to_str()?, pid_of(name.to_str()?)?)));
        let lives = |name: &str| {
            let Ok(file) = self.folder().file(name, OFlags::WRONLY) else { return false };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => true,
                Ok(()) | Err(_) => {
                    let _ = self.folder().remove(name);
                    false
                }
            }
        };
        found.filter(|(name, _)| lives(name)).map(|(_, pid)| pid).collect()
    }
}
