//! The session lock, which notices when its holder panics.
//!
//! What a panic leaves behind may be half done, so nobody is to go on with it: the socket to the daemon is closed
//! at once, and the thread that reads it tells everybody who waits (`Client::node_is_gone`).

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::guarded::Core;
use crate::signal::Signal;

pub(crate) struct SessionLock(Mutex<Core>);

pub(crate) struct Locked<'a>(MutexGuard<'a, Core>);

/// Dropped by a panic only.
struct Watched<'a>(&'a mut Core);

impl SessionLock {
    pub(crate) fn new(core: Core) -> Self {
        Self(Mutex::new(core))
    }

    #[inline]
    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked(self.0.lock())
    }

    /// For the hot paths: nothing asks whether `act` has panicked, and still a panic is noticed.
    #[inline]
    pub(crate) fn within<R>(&self, act: impl FnOnce(&mut Core) -> R) -> R {
        let mut guard = self.0.lock();
        let watched = Watched(&mut guard);
        let result = act(watched.0);
        std::mem::forget(watched);
        result
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.0.panicked();
    }
}

impl Locked<'_> {
    /// Gives the lock away meanwhile.
    pub(crate) fn unlocked<R>(&mut self, act: impl FnOnce() -> R) -> R {
        MutexGuard::unlocked(&mut self.0, act)
    }

    pub(crate) fn wait(&mut self, news: &Signal) {
        // Looked at under the lock: what is told when it is given away is not missed.
        let seen = news.told();
        self.unlocked(|| news.wait_after(seen, None));
    }

    pub(crate) fn wait_for(&mut self, news: &Signal, time: Duration) {
        let seen = news.told();
        self.unlocked(|| news.wait_after(seen, Some(time)));
    }
}

impl Deref for Locked<'_> {
    type Target = Core;

    #[inline]
    fn deref(&self) -> &Core {
        &self.0
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Core {
        &mut self.0
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.panicked();
        }
    }
}
