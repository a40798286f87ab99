//! When the CPU is lent: while what runs here waits for what others make.
//!
//! ```text
//!   a thread waits in `get`, or for the reader of a stream ---after BLOCKED_AFTER---> lent
//!   a call waits for its arguments ---after BLOCKED_AFTER_FOR_ARGUMENTS---> lent
//!   a callback waits (`await`, `.future()`, `wait` for streams) --after BLOCKED_AFTER--> lent
//!   it waits for what it submitted, and then leaves --at once--> lent
//!   lent --every such wait is over, or the call replied--> taken back
//! ```
//!
//! A wait lends at once when some task of this process has no worker at all: what it waits for may need this very
//! CPU.
//!
//! Who waits by a callback is not seen to wait: its thread sleeps in an event loop, on a lock or at a file,
//! or works on. So the CPU is lent as soon as as many callbacks wait as calls run. If the thread works on after
//! all, a little more runs on the node than it has CPUs; the other way round nothing that needs this very CPU
//! would ever run.

use std::time::Duration;

use hoplo_base::{Instant, limits};

use super::Worker;

#[derive(Debug, Default)]
pub(super) struct Waits {
    /// Those that lend.
    lending: u64,
    /// The callbacks together, one of the above.
    by_callback: bool,
    /// The process that only waits to leave, one of the above.
    pub(super) to_leave: bool,
    /// When the callbacks lend, unless one of them fires before.
    due: Option<Instant>,
}

impl<P> Worker<P> {
    /// Whether a wait of that long lends, which is to be of that length. `starved`: a task of this process has no worker at all.
    pub fn is_long(starved: bool, waited: Duration, after: Duration) -> bool {
        starved || waited >= after
    }

    /// A thread waits. True: it lends, and the daemon is told `Blocked`. Not if nothing runs here, or if other
    /// calls of this actor go on beside it.
    pub fn lend(&mut self) -> bool {
        self.lend_while(1)
    }

    /// So many calls of those that run wait.
    fn lend_while(&mut self, waiting: u64) -> bool {
        let lends = self.busy > 0 && (self.busy <= waiting || !self.is_actor);
        self.waits.lending += u64::from(lends);
        lends
    }

    /// One who lent goes on. True: it was the last, and the daemon is told `Unblocked`.
    pub fn take_back(&mut self) -> bool {
        assert!(self.waits.lending > 0, "WORK-4: who takes the CPU back has lent it");
        self.waits.lending -= 1;
        self.waits.lending == 0
    }

    /// So many callbacks wait, one more than before, or a call ended beside them.
    pub fn callbacks_wait(&mut self, now: Instant, waiting: u64) {
        if !self.waits.by_callback && self.waits.due.is_none() && waiting > 0 {
            self.waits.due = Some(now + limits::BLOCKED_AFTER);
        }
    }

    /// When `callbacks_lend` is due.
    pub fn lends_at(&self) -> Option<Instant> {
        self.waits.due
    }

    /// True: the callbacks lend, and the daemon is told `Blocked`.
    pub fn callbacks_lend(&mut self, now: Instant, waiting: u64) -> bool {
        if self.waits.due.is_none_or(|due| due > now) {
            return false;
        }
        self.waits.due = None;
        self.waits.by_callback = waiting > 0 && self.lend_while(waiting);
        self.waits.by_callback
    }

    /// A callback fired, or a call replied: something goes on here, and so many wait still. True: the daemon is
    /// told `Unblocked`.
    pub fn goes_on(&mut self, now: Instant, waiting: u64) -> bool {
        let unblocked = std::mem::take(&mut self.waits.by_callback) && self.take_back();
        self.waits.due = None;
        self.callbacks_wait(now, waiting);
        unblocked
    }

    /// It waits for nothing but what it submitted.
    pub(super) fn lend_to_leave(&mut self) -> bool {
        let first = !std::mem::replace(&mut self.waits.to_leave, true);
        self.waits.lending += u64::from(first);
        first
    }

    /// There is work after all. True: the daemon is told `Unblocked`.
    #[inline]
    pub(super) fn leaves_no_more(&mut self) -> bool {
        std::mem::take(&mut self.waits.to_leave) && self.take_back()
    }
}

impl Waits {
    pub(super) fn check(&self) {
        let known = u64::from(self.by_callback) + u64::from(self.to_leave);
        assert!(known <= self.lending, "WORK-4: {self:?}");
        assert!(!self.by_callback || self.due.is_none(), "WORK-4: callbacks lend once: {self:?}");
    }
}
