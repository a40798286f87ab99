//! Tells the daemon when the CPU of this worker is lent, and when it is taken back: `core::worker` decides.

use std::cell::Cell;
use std::time::Duration;

use hoplo_base::Instant as Time;
use hoplo_base::limits::{BLOCKED_AFTER, BLOCKED_AFTER_FOR_ARGUMENTS};
use hoplo_wire::node::ToNode;

use crate::client::Client;
use crate::guarded::Core;

thread_local! {
    static TAKES_ARGUMENTS: Cell<bool> = const { Cell::new(false) };
}

/// Until it is dropped this thread takes the arguments of a call.
pub struct TakesArguments(bool);

impl TakesArguments {
    pub fn begin() -> Self {
        Self(TAKES_ARGUMENTS.replace(true))
    }
}

impl Drop for TakesArguments {
    fn drop(&mut self) {
        TAKES_ARGUMENTS.set(self.0);
    }
}

/// How long a wait of this thread is before it lends.
pub(crate) fn lends_after() -> Duration {
    match TAKES_ARGUMENTS.get() {
        true => BLOCKED_AFTER_FOR_ARGUMENTS,
        false => BLOCKED_AFTER,
    }
}

impl Client {
    /// A thread waits; true if that lends the CPU, which `take_back` ends.
    pub(crate) fn lend(&self, core: &mut Core) -> bool {
        let lends = self.worker.machine().lend();
        if lends {
            core.writer.send(&ToNode::Blocked);
        }
        lends
    }

    pub(crate) fn take_back(&self, core: &mut Core) {
        if self.worker.machine().take_back() {
            core.writer.send(&ToNode::Unblocked);
        }
    }

    /// Another callback waits, or a call ended beside those that wait.
    pub(crate) fn may_lend(&self, core: &mut Core) {
        if self.is_worker {
            let mut machine = self.worker.machine();
            machine.callbacks_wait(self.now(), core.watches.len() as u64);
            core.lend_at = machine.lends_at();
        }
    }

    /// On the progress thread.
    pub(crate) fn lend_when_due(&self, core: &mut Core, now: Time) {
        if core.lend_at.is_some_and(|at| at <= now) {
            let mut machine = self.worker.machine();
            if machine.callbacks_lend(now, core.watches.len() as u64) {
                core.writer.send(&ToNode::Blocked);
            }
            core.lend_at = machine.lends_at();
        }
    }

    /// A callback fired, or a call replied: something goes on here.
    pub(crate) fn goes_on(&self, core: &mut Core) {
        if self.is_worker {
            let mut machine = self.worker.machine();
            if machine.goes_on(self.now(), core.watches.len() as u64) {
                core.writer.send(&ToNode::Unblocked);
            }
            core.lend_at = machine.lends_at();
        }
    }
}
