//! The worker's side: calls of other processes, in the order of their rings, and replies to them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use hoplo_base::{ActorId, FunctionId, Map, ProcessId, Set, TaskId, limits};
use hoplo_core::session::{Effect, brings_tokens};
use hoplo_shm::{SleepKind, Slept, WriteError};
use hoplo_wire::Failure;
use hoplo_wire::node::ToNode;
use hoplo_wire::reply::{ReplyHeader, ReplyKind, Returned, encoded_bytes};
use parking_lot::Mutex;

use crate::client::Client;
use crate::peers::{Inbound, Replies, slot_of};
use crate::spin::{Spins, spin};
use crate::turn::Nudge;
use crate::{IncomingCall, Waited, Work};

/// Somebody who waits for a function's bytes.
type FunctionAsker = SyncSender<Option<Vec<u8>>>;

#[derive(Default)]
pub(crate) struct Worker {
    inbound: Mutex<Vec<Inbound>>,
    /// Work that comes through the daemon.
    orders: Mutex<VecDeque<Work>>,
    /// `Exit { graceful }` was received: leave when the rings are empty.
    leave: Mutex<Option<String>>,
    functions: Mutex<Map<FunctionId, Vec<FunctionAsker>>>,
    cancelled: Mutex<Set<TaskId>>,
    /// What readers have taken of the streams that are produced here.
    consumed: Mutex<Map<TaskId, u64>>,
    /// There was ever something in the two above. Set before, so that who finds it unset missed nothing
    /// that it could not have missed a moment ago.
    told: AtomicBool,
    /// Calls taken and not replied to.
    pub(crate) busy: AtomicU64,
    pub(crate) is_actor: AtomicBool,
    /// Waits that have lent the CPU; changed under the session lock.
    pub(crate) lent: AtomicU64,
    /// It takes no more calls.
    retired: AtomicBool,
    /// It is leaving, and only waits for what it submitted.
    lent_while_leaving: AtomicBool,
    closed: AtomicBool,
    /// Of the main thread, which waits for the next call.
    pub(crate) spins: Spins,
    /// By `wake_work`.
    wake: Nudge,
}

impl Worker {
    pub(crate) fn connect(&self, inbound: Inbound) {
        self.inbound.lock().push(inbound);
    }

    /// The caller is gone: what it had queued is dropped, replies to it go nowhere.
    pub(crate) fn disconnect(&self, caller: ProcessId) {
        self.inbound.lock().retain(|inbound| {
            let gone = inbound.caller == caller;
            if gone {
                inbound.replies.lock().closed = true;
            }
            !gone
        });
    }

    pub(crate) fn order(&self, work: Work) {
        self.orders.lock().push_back(work);
    }

    pub(crate) fn leave(&self, reason: String) {
        *self.leave.lock() = Some(reason);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leave.lock().is_some()
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

    pub(crate) fn mark_cancelled(&self, task: TaskId) {
        self.told.store(true, Ordering::Release); // pairs with the Acquire in `forget`
        self.cancelled.lock().insert(task);
    }

    pub(crate) fn consumed(&self, task: TaskId, count: u64) {
        self.told.store(true, Ordering::Release); // pairs with the Acquire in `forget`
        let mut consumed = self.consumed.lock();
        let seen = consumed.entry(task).or_insert(0);
        *seen = count.max(*seen);
    }

    /// The call is over: what was told about it is of no use any more.
    fn forget(&self, task: TaskId) {
        if self.told.load(Ordering::Acquire) {
            self.cancelled.lock().remove(&task);
            self.consumed.lock().remove(&task);
        }
    }

    fn take(&self) -> Option<Work> {
        if let Some(work) = self.orders.lock().pop_front() {
            if matches!(work, Work::RunActor { .. }) {
                self.is_actor.store(true, Ordering::Relaxed);
                self.busy.fetch_add(1, Ordering::Relaxed); // with its constructor
            }
            return Some(work);
        }
        if self.retired.load(Ordering::Acquire) {
            return None; // its callers take back what they queued here
        }
        let mut inbound = self.inbound.lock();
        for at in 0..inbound.len() {
            let peer = &mut inbound[at];
            let taken = peer
                .calls
                .next()
                .map(|frame| frame.map(|frame| (frame.tag(), frame.bytes().to_vec())));
            let (tag, frame) = match taken {
                Ok(Some(call)) => call,
                Ok(None) => continue,
                Err(_) => {
                    // A caller that writes nonsense is not served any more.
                    inbound.remove(at).replies.lock().closed = true;
                    break;
                }
            };
            peer.replies.lock().unreplied += 1;
            self.busy.fetch_add(1, Ordering::Relaxed);
            let call = IncomingCall { caller: peer.caller, tag, frame };
            inbound[at..].rotate_left(1); // callers take turns
            return Some(Work::Call(call));
        }
        None
    }
}

impl Client {
    /// The next call from any ring, or order of the daemon; `None` if nothing is there.
    pub fn next_work(&self) -> Option<Work> {
        if self.worker.wake.take() {
            return Some(Work::Interrupted);
        }
        if let Some(work) = self.worker.take() {
            if self.worker.lent_while_leaving.swap(false, Ordering::Relaxed) {
                self.core.lock().writer.send(&ToNode::Unblocked);
            }
            return Some(work);
        }
        if let Some(failure) = self.gone.get() {
            return Some(Work::Exit { reason: failure.text() });
        }
        // Who leaves gracefully first sees to the end what others may wait for.
        let idle = self.worker.busy.load(Ordering::Relaxed) == 0;
        if !self.worker.is_leaving() || !idle {
            return None;
        }
        {
            let mut core = self.core.lock();
            if core.session.unfinished() > 0 {
                // What it waits for may need the CPU that it still has.
                if !self.worker.lent_while_leaving.swap(true, Ordering::Relaxed) {
                    core.writer.send(&ToNode::Blocked);
                }
                return None;
            }
        }
        let reason = self.worker.leave.lock().take()?;
        self.with(|session, _, effects| session.leave(effects));
        Some(Work::Exit { reason })
    }

    /// This worker takes no more calls: `next_work` says `Exit` once all it has begun, and all that it
    /// submitted itself, is done.
    pub fn retire(&self, reason: &str) {
        self.worker.retired.store(true, Ordering::Release);
        self.leave_gracefully(reason);
    }

    /// `next_work` says `Exit` once the rings are empty and all that this process submitted is done.
    pub(crate) fn leave_gracefully(&self, reason: &str) {
        self.worker.leave(reason.to_string());
        let mut core = self.core.lock();
        self.arm(&mut core);
    }

    /// From any thread: who waits for work, or does so next, gets `Work::Interrupted`.
    pub fn wake_work(&self) {
        self.nudge(&self.worker.wake);
    }

    /// Waits for the next (no GIL).
    pub fn wait_work(&self) -> Work {
        let bell = self.segment.doorbell(slot_of(self.welcome.process));
        loop {
            let rings = bell.rings();
            if let Some(work) = self.next_work() {
                return work;
            }
            if spin(bell, rings, &self.worker.spins) {
                continue;
            }
            let sleeper = bell.prepare(SleepKind::Lenient);
            if let Some(work) = self.next_work() {
                return work;
            }
            match sleeper.sleep(None) {
                Slept::Interrupted => return Work::Interrupted,
                Slept::Woken | Slept::TimedOut => {}
            }
        }
    }

    /// The task that runs on the main thread from now on: the parent of what it submits.
    pub fn set_running(&self, task: Option<TaskId>) {
        self.core.lock().running = task;
    }

    /// Whether `cancel` was asked for a task that runs or waits here.
    pub fn is_cancelled(&self, task: TaskId) -> bool {
        self.worker.cancelled.lock().contains(&task)
    }

    /// Any thread may reply. What is borrowed and still referenced is told to the daemon before
    /// (REF-3). Waits while the caller's ring is full.
    pub fn reply(&self, to: ProcessId, header: ReplyHeader, returned: &[Returned]) {
        // What brings tokens is written in the order in which the daemon hears of it (REF-4).
        let tokens = returned.iter().any(brings_tokens);
        let order = if tokens { self.order_of_replies(to) } else { None };
        let _turn = order.as_ref().map(|order| order.lock());
        if self.tell_before_reply(to, returned, tokens) {
            self.wait_until_told();
        }
        let finished = match header.kind {
            ReplyKind::Finished | ReplyKind::StreamEnd => true,
            ReplyKind::Item | ReplyKind::Part => false,
        };
        if let Some((replies, idle)) = self.replies_to(to) {
            let mut from = 0;
            for cut in cuts(returned) {
                let part = ReplyHeader { kind: ReplyKind::Part, index: from as u32, ..header };
                self.write_reply(&replies, part, &returned[from..cut], false);
                from = cut;
            }
            let index = if from > 0 { from as u32 } else { header.index };
            let last = ReplyHeader { index, ..header };
            self.write_reply(&replies, last, &returned[from..], finished && idle);
        }
        if finished {
            self.worker.busy.fetch_sub(1, Ordering::Relaxed);
            self.worker.forget(TaskId { owner: to, seq: header.seq });
        }
    }

    /// Also when the caller is gone: then the daemon gives the room of stored results back. True: some of what
    /// was said is not in the socket yet (WRITE-1).
    fn tell_before_reply(&self, to: ProcessId, returned: &[Returned], tokens: bool) -> bool {
        let mut core = self.core.lock();
        let core = &mut *core;
        if tokens || core.session.owes_daemon() {
            core.session.before_reply(self.now(), to, returned, &mut core.effects);
            self.carry_out(core);
        }
        if !core.watches.is_empty() {
            self.goes_on(core);
            self.arm(core);
        }
        core.writer.is_behind()
    }

    /// The ring for replies to a caller, and whether it has no more calls for us. (The list of callers is
    /// locked before a caller's replies, never after.)
    fn replies_to(&self, to: ProcessId) -> Option<(Arc<Mutex<Replies>>, bool)> {
        let inbound = self.worker.inbound.lock();
        let peer = inbound.iter().find(|peer| peer.caller == to)?;
        Some((peer.replies.clone(), peer.calls.is_empty()))
    }

    fn order_of_replies(&self, to: ProcessId) -> Option<Arc<Mutex<()>>> {
        let inbound = self.worker.inbound.lock();
        inbound.iter().find(|peer| peer.caller == to).map(|peer| peer.order.clone())
    }

    /// `idle`: when it was asked, no other call of that caller was there.
    fn write_reply(
        &self,
        replies: &Mutex<Replies>,
        header: ReplyHeader,
        values: &[Returned],
        idle: bool,
    ) {
        let bell = self.segment.doorbell(slot_of(self.welcome.process));
        loop {
            let sleeper;
            {
                let mut replies = replies.lock();
                if replies.closed {
                    return;
                }
                match replies.try_write(header, values) {
                    Ok(()) => return replies.notify(&self.segment, header, idle),
                    Err(WriteError::Full { .. }) => {
                        replies.insist(&self.segment);
                        sleeper = bell.prepare(SleepKind::Lenient);
                    }
                    Err(WriteError::FrameTooLarge { .. } | WriteError::Corrupt(_)) => {
                        replies.closed = true;
                        return;
                    }
                }
            }
            // Nobody rings when room appears: look again in a moment.
            let _ = sleeper.sleep(Some(Duration::from_micros(200)));
        }
    }

    /// For a stream with back-pressure: waits while more than `ahead` of the `sent` items are not
    /// taken (no GIL); a cancelled stream and a reader that is gone end the wait, too.
    pub fn stream_credit(&self, to: ProcessId, task: TaskId, sent: u64, ahead: u64) -> Waited {
        let bell = self.segment.doorbell(slot_of(self.welcome.process));
        let started = Instant::now();
        let mut lent = false;
        let waited = loop {
            let sleeper = bell.prepare(SleepKind::Lenient);
            let taken = self.worker.consumed.lock().get(&task).copied().unwrap_or(0);
            let over = self.replies_to(to).is_none() || self.gone.get().is_some();
            if sent.saturating_sub(taken) < ahead || self.is_cancelled(task) || over {
                break Waited::Ready;
            }
            // The reader may wait for something that needs the CPU that this one does not use.
            if !lent && started.elapsed() >= limits::BLOCKED_AFTER {
                lent = self.worker.lend(&mut self.core.lock().writer);
            }
            let timeout = (!lent).then_some(limits::BLOCKED_AFTER);
            if sleeper.sleep(timeout) == Slept::Interrupted {
                break Waited::Interrupted;
            }
        };
        if lent {
            self.worker.take_back(&mut self.core.lock().writer);
        }
        waited
    }

    pub fn actor_started(&self, actor: ActorId, incarnation: u32, result: Result<(), Failure>) {
        self.worker.busy.fetch_sub(1, Ordering::Relaxed);
        self.with(|session, now, effects| {
            session.before_reply(now, session.me(), &[], effects);
            effects.push(Effect::Node(ToNode::ActorStarted { actor, incarnation, result }));
        });
    }

    /// `exit_actor()`: the daemon will not restart it; reply first, then exit.
    pub fn actor_exit(&self, actor: ActorId) {
        self.core.lock().writer.send(&ToNode::ActorExit { actor });
    }

    pub fn set_title(&self, title: &str) {
        self.core.lock().writer.send(&ToNode::Title { title: title.to_string() });
    }
}

/// Where values that are too many for one frame are cut.
fn cuts(values: &[Returned]) -> Vec<usize> {
    let mut cuts = Vec::new();
    let mut bytes = 0;
    for (at, one) in values.iter().enumerate() {
        let more = encoded_bytes(one);
        if bytes + more > REPLY_BYTES_MAX && at > 0 {
            cuts.push(at);
            bytes = 0;
        }
        bytes += more;
    }
    cuts
}

/// Values of one reply frame; one alone always fits.
const REPLY_BYTES_MAX: usize = limits::RING_BYTES / 2 - 1024;
const _: () = assert!(limits::INLINE_BYTES_MAX + 20 * limits::INLINE_REFS_MAX < REPLY_BYTES_MAX);
