//! Ringing the doorbells of other processes. Who is on another node is rung at slot 0: the carrier, which sleeps in `epoll` and is
//! woken by a descriptor that came with the Welcome.

use std::os::fd::AsFd;
use std::sync::Arc;

use hoplo_base::{NodeNumber, ProcessId};
use hoplo_shm::{Kept, ProcessSlot, Segment, Urgency};

pub(crate) struct Ringer {
    segment: Arc<Segment>,
    node: NodeNumber,
    /// The carrier's eventfd.
    carrier: Kept,
}

/// Where a process is rung.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whom {
    slot: ProcessSlot,
    pub(crate) is_far: bool,
}

pub(crate) fn slot_of(process: ProcessId) -> ProcessSlot {
    ProcessSlot::new(process.slot() as u32).expect("the daemon numbers processes below the limit")
}

impl Ringer {
    pub(crate) fn new(segment: Arc<Segment>, me: ProcessId, carrier: Kept) -> Self {
        Self { segment, node: me.node(), carrier }
    }

    pub(crate) fn whom(&self, process: ProcessId) -> Whom {
        let is_far = process.node() != self.node;
        let slot =
            if is_far { ProcessSlot::new(0).expect("there is one") } else { slot_of(process) };
        Whom { slot, is_far }
    }

    #[inline]
    pub(crate) fn ring(&self, whom: Whom, urgency: Urgency) {
        let bell = self.segment.doorbell(whom.slot);
        if whom.is_far {
            bell.ring_with(urgency, || self.wake_carrier());
        } else {
            bell.ring(urgency);
        }
    }

    /// As `Doorbell::ring_lenient`. The carrier's sleep is strict: it hears everything.
    pub(crate) fn ring_lenient(&self, whom: Whom, wakes: impl FnOnce() -> bool) {
        let bell = self.segment.doorbell(whom.slot);
        if whom.is_far {
            bell.ring_with(Urgency::Lazy, || self.wake_carrier());
        } else {
            bell.ring_lenient(wakes);
        }
    }

    #[cold]
    fn wake_carrier(&self) {
        // Full means that it is awake already. User code that closed it has cut itself off; the daemon's socket tells.
        if self.carrier.checked().is_ok() {
            let _ = rustix::io::write(self.carrier.as_fd(), &1_u64.to_ne_bytes());
        }
    }
}
