//! What others wait for while another one has the session lock.
//!
//! Not a condition variable of `parking_lot`: who waits at one stands in a list of the whole process, in memory of its thread. A child by `fork`
//! inherits that list without the thread, and its own threads get that memory: it crashed, or walked round for ever.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Default)]
pub(crate) struct Signal {
    told: Mutex<u64>,
    news: Condvar,
}

impl Signal {
    /// Wakes all who wait.
    pub(crate) fn tell(&self) {
        *self.count() += 1;
        self.news.notify_all();
    }

    /// How often something was told.
    pub(crate) fn told(&self) -> u64 {
        *self.count()
    }

    fn count(&self) -> MutexGuard<'_, u64> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until something is told after `seen`, or that time is over.
    pub(crate) fn wait_after(&self, seen: u64, time: Option<Duration>) {
        let told = self.count();
        let same = |told: &mut u64| *told == seen;
        match time {
            None => drop(self.news.wait_while(told, same)),
            Some(time) => drop(self.news.wait_timeout_while(told, time, same)),
        }
    }
}
