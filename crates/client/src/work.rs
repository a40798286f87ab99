//! What a worker has beside what every process has: the machine of its calls, and who waits for functions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use hoplo_base::{FunctionId, Map, ObjectId, ProcessId};
use hoplo_core::worker;
use hoplo_shm::Spins;
use parking_lot::{Mutex, MutexGuard};

use crate::peers::Inbound;

/// Told by any thread: the main thread has something to do beside calls.
#[derive(Debug, Default)]
pub struct Nudge(AtomicBool);

/// Somebody who waits for a function's bytes.
type FunctionAsker = SyncSender<Option<Vec<u8>>>;

pub(crate) type Machine = worker::Worker<Inbound>;

/// The shell of the worker machine. Its lock is taken under the session lock as well, so nobody takes that one
/// while holding this.
#[derive(Default)]
pub(crate) struct Worker {
    machine: Mutex<Machine>,
    functions: Mutex<Map<FunctionId, Vec<FunctionAsker>>>,
    closed: AtomicBool,
    /// Of the main thread, which waits for the next call.
    pub(crate) spins: Spins,
    /// By `wake_work`.
    pub(crate) wake: Nudge,
}

impl Worker {
    #[inline]
    pub(crate) fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock()
    }

    /// The caller is gone: what it had queued is dropped, replies to it go nowhere. What its calls name that go on here is held from now on.
    pub(crate) fn disconnect(&self, caller: ProcessId) -> Vec<ObjectId> {
        let left = self.machine().disconnected(caller);
        if let Some(inbound) = left.port {
            inbound.replies.lock().closed = true;
        }
        left.named
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.functions.lock().clear();
    }

    pub(crate) fn await_function(&self, function: FunctionId) -> Receiver<Option<Vec<u8>>> {
        let (sender, receiver) = sync_channel(1);
        if !self.closed.load(Ordering::Acquire) {
            self.functions.lock().entry(function).or_default().push(sender);
        }
        receiver
    }

    pub(crate) fn function(&self, function: FunctionId, bytes: Option<Vec<u8>>) {
        for sender in self.functions.lock().remove(&function).unwrap_or_default() {
            // The asker may be gone.
            let _ = sender.try_send(bytes.clone());
        }
    }
}

impl Nudge {
    pub(crate) fn set(&self) {
        // Before the ring, which publishes it: pairs with the Acquire in `take`.
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::AcqRel)
    }
}
