//! What the daemon's socket did not take at once: who hands it over, and who waits for that (see `writer`).

use std::sync::atomic::Ordering;

use hoplo_base::limits::SIGNALS_PERIOD;
use hoplo_shm::{Kept, fds};

use crate::Waited;
use crate::client::Client;

impl Client {
    /// Hands the daemon what its socket did not take at once.
    pub(crate) fn writer_loop(&self, socket: &Kept) {
        let mut core = self.core.lock();
        loop {
            while !core.writer.is_behind() {
                if core.writer.is_over() {
                    return;
                }
                core.wait(&self.news.fell_behind);
            }
            core.unlocked(|| fds::wait_writable(socket));
            core.writer.flush();
            if core.writer.is_behind() {
                continue;
            }
            self.news.full.store(false, Ordering::Relaxed);
            self.news.caught_up.tell();
            let core = &mut *core;
            self.refill(core); // WRITE-1
            self.carry_out(core);
            self.arm(core);
        }
    }

    /// WRITE-1: what this process has said to the daemon is in its socket.
    pub(crate) fn wait_until_told(&self) {
        let mut core = self.core.lock();
        while core.writer.is_behind() {
            core.wait(&self.news.caught_up);
        }
    }

    /// Whether more may be said to the daemon: else `wait_for_room` first.
    #[inline]
    pub fn has_room(&self) -> bool {
        !self.news.full.load(Ordering::Relaxed)
    }

    /// Until the daemon has read some of what lies before it (no GIL); not for long: look at signals, and again.
    pub fn wait_for_room(&self) -> Waited {
        let mut core = self.core.lock();
        if !self.has_room() {
            core.wait_for(&self.news.caught_up, SIGNALS_PERIOD);
        }
        if self.has_room() { Waited::Ready } else { Waited::Interrupted }
    }
}
