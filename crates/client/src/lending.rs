//! When a worker lends its CPU: while what runs in it waits for what others make.
//!
//! ```text
//!   a thread waits in `get`, or for the reader of a stream ---after BLOCKED_AFTER---> lent
//!   a callback waits (`await`, `.future()`, `wait` for streams) --after BLOCKED_AFTER--> lent
//!   lent --every such wait is over, or the call replied--> taken back
//! ```
//!
//! Who waits by a callback is not seen to wait: its thread sleeps in an event loop, on a lock or at a file,
//! or works on. So the CPU is lent as soon as as many callbacks wait as calls run. If the thread works on after
//! all, a little more runs on the node than it has CPUs; the other way round nothing that needs this very CPU
//! would ever run.

use std::sync::atomic::Ordering;

use hoplo_base::{Instant as Time, limits};
use hoplo_wire::node::ToNode;

use crate::client::{Client, Core};
use crate::work::Worker;
use crate::writer::Writer;

impl Worker {
    /// Lends the CPU of the running task while a thread of it waits; false if nothing runs here (then
    /// nothing is lent), or if other calls of this actor go on beside it.
    pub(crate) fn lend(&self, writer: &mut Writer) -> bool {
        self.lend_if(1, writer)
    }

    /// `waiting`: of an actor's calls so many wait.
    fn lend_if(&self, waiting: u64, writer: &mut Writer) -> bool {
        let busy = self.busy.load(Ordering::Relaxed);
        let lends = busy > 0 && (busy <= waiting || !self.is_actor.load(Ordering::Relaxed));
        if lends {
            self.lent.fetch_add(1, Ordering::Relaxed);
            writer.send(&ToNode::Blocked);
        }
        lends
    }

    /// One who lent it goes on; others may wait still.
    pub(crate) fn take_back(&self, writer: &mut Writer) {
        if self.lent.fetch_sub(1, Ordering::Relaxed) == 1 {
            writer.send(&ToNode::Unblocked);
        }
    }
}

impl Client {
    /// Another callback waits, or a call ended beside those that wait.
    pub(crate) fn may_lend(&self, core: &mut Core) {
        if self.is_worker && !core.lends && core.lend_at.is_none() && !core.watches.is_empty() {
            core.lend_at = Some(self.now() + limits::BLOCKED_AFTER);
        }
    }

    /// On the progress thread.
    pub(crate) fn lend_when_due(&self, core: &mut Core, now: Time) {
        if core.lend_at.is_some_and(|at| at <= now) {
            core.lend_at = None;
            let waiting = core.watches.len() as u64;
            core.lends = waiting > 0 && self.worker.lend_if(waiting, &mut core.writer);
        }
    }

    /// A callback fired, or a call replied: something goes on here.
    pub(crate) fn goes_on(&self, core: &mut Core) {
        if std::mem::take(&mut core.lends) {
            self.worker.take_back(&mut core.writer);
        }
        core.lend_at = None;
        self.may_lend(core);
    }
}
