//! The directory of this daemon's own session.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use hoplo_base::limits::SESSION_LOCK_PATIENCE;
use rustix::fs::OFlags;
use rustix::net::SocketFlags;

use crate::base::Base;
use crate::folder::Folder;
use crate::head::Head;
use crate::join;
use crate::lock::Lock;
use crate::names::{CLUSTER, CONTROL, CURRENT, ENVIRONMENTS, HEAD, LOGS, SOCKET, SPILL, TLS};
use crate::session::SessionFolder;
use crate::taken::Taken;

/// The session directory of this daemon, locked.
#[derive(Debug)]
pub struct OwnSessionFolder {
    base: Option<Base>,
    session: SessionFolder,
    head: Option<Head>,
    lock: Lock,
}

impl OwnSessionFolder {
    /// A new one in `base`.
    pub fn create(base: Base) -> io::Result<Self> {
        let name = format!("session-{}-{}", micros(), std::process::id());
        let make = || Ok(base.folder().make_child(&name)?);
        let (folder, lock) = Lock::of_made(SESSION_LOCK_PATIENCE, make)?;
        Self::furnish(folder, lock, Some(base))
    }

    /// Exactly this one, if it may be taken (FOLDER-8), with the base that it may become the head of.
    pub fn at(path: &Path, base: Option<Base>) -> io::Result<Self> {
        let take = || Taken::take(path, base.as_ref());
        let (taken, lock) = Lock::of_made(SESSION_LOCK_PATIENCE, take)?;
        taken.ensure_mark()?;
        Self::furnish(taken.folder, lock, base)
    }

    fn furnish(folder: Folder, lock: Lock, base: Option<Base>) -> io::Result<Self> {
        // Of an earlier daemon; its objects went with it.
        folder.remove(SPILL)?;
        for name in [LOGS, SPILL] {
            folder.make_child(name)?;
        }
        Ok(Self { base, session: SessionFolder::of(folder), head: None, lock })
    }

    pub fn path(&self) -> &Path {
        self.session.path()
    }

    pub fn folder(&self) -> &Folder {
        self.session.folder()
    }

    pub fn listen(&self) -> io::Result<OwnedFd> {
        let socket = join::stream_socket(SocketFlags::NONBLOCK)?;
        let folder = self.session.folder();
        folder.remove(SOCKET)?;
        let address = join::address(folder, SOCKET)?;
        rustix::net::bind(&socket, &address).map_err(|errno| folder.names_it(SOCKET, errno))?;
        rustix::net::listen(&socket, 128)?;
        Ok(socket)
    }

    /// Makes this the session that `address="auto"` finds.
    pub fn make_current(&mut self, head: Head) -> io::Result<()> {
        let base = self.base.as_ref().expect("a head has a base").folder();
        self.head = Some(head);
        let fresh = format!("{CURRENT}-{}", std::process::id());
        base.remove(&fresh)?;
        rustix::fs::symlinkat(self.session.path(), base, &fresh)
            .and_then(|()| rustix::fs::renameat(base, &fresh, base, CURRENT))
            .map_err(|errno| base.names_it(CURRENT, errno))
    }

    /// Where its control store lies, if it is a head.
    pub fn control(&self) -> PathBuf {
        self.path().join(CONTROL)
    }

    /// What it needs of the cluster whose head it is, if its store is on control nodes.
    pub fn head(&self) -> PathBuf {
        self.path().join(HEAD)
    }

    /// Where its certificate lies, if it joined a cluster.
    pub fn tls(&self) -> PathBuf {
        self.path().join(TLS)
    }

    /// Where environments that are built for workers lie: of all daemons of the base, if it has one.
    pub fn environments(&self) -> PathBuf {
        self.base.as_ref().map_or(self.path(), Base::path).join(ENVIRONMENTS)
    }

    /// Programs that want this cluster find the node by it.
    pub fn is_of_cluster(&self, address: &str) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        self.session.folder().file(CLUSTER, flags)?.write_all(address.as_bytes())
    }

    pub fn cluster(&self) -> Option<String> {
        self.session.cluster()
    }

    /// Removes everything but logs, and the directory too if there are none. With `stays` the control store is
    /// left to the next head.
    pub fn close(self, stays: bool) {
        if !stays {
            // What cannot be removed now is swept by the next daemon.
            let _ = self.session.folder().remove(CONTROL);
        }
        self.session.remove_remains(self.lock);
        let Some(base) = self.base else { return };
        if !stays && base.folder().link(CURRENT).as_deref() == Some(self.session.path()) {
            let _ = base.folder().remove(CURRENT);
        }
        if let Some(head) = self.head {
            head.give_up(&base);
        }
    }
}

/// Since 1970.
fn micros() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros())
}
