//! The worker's side: calls of other processes, in the order of their rings, and replies to them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hoplo_base::limits::BLOCKED_AFTER;
use hoplo_base::{ActorId, ObjectId, ProcessId, TaskId};
use hoplo_core::session::{Effect, brings_tokens};
use hoplo_core::worker::{BecomeActor, Found, Leave, Next, cuts};
use hoplo_shm::{SleepKind, Slept, WriteError};
use hoplo_wire::node::ToNode;
use hoplo_wire::reply::{ReplyHeader, ReplyKind, Returned};
use hoplo_wire::{Failure, Reason};
use parking_lot::Mutex;

use crate::client::Client;
use crate::peers::{Inbound, Replies};
use crate::ringer::slot_of;
use crate::work::Machine;
use crate::{IncomingCall, Waited, Work};

/// The next call in a caller's ring, or why there will be none any more.
#[inline]
fn look(
    caller: ProcessId,
    inbound: &mut Inbound,
    unread: &mut Option<Reason>,
) -> Found<IncomingCall> {
    match inbound.calls.next() {
        Ok(Some(frame)) => {
            let call = IncomingCall { caller, tag: frame.tag(), frame: frame.bytes().to_vec() };
            drop(frame);
            inbound.replies.lock().unreplied += 1;
            Found::Call(call)
        }
        Ok(None) => Found::Nothing,
        Err(error) => {
            inbound.replies.lock().closed = true;
            let why = Reason::from("the calls of ").and(caller);
            *unread = Some(why.and(format!(" cannot be read: {error}")));
            Found::Nonsense
        }
    }
}

impl Client {
    /// The next call from any ring, or order of the daemon; `None` if nothing is there.
    pub fn next_work(&self) -> Option<Work> {
        if self.worker.wake.take() {
            return Some(Work::Interrupted);
        }
        let mut machine = self.worker.machine();
        let mut unread = None;
        let taken = machine.take(|caller, inbound| look(caller, inbound, &mut unread));
        if let Some(taken) = taken {
            if let Next::Call(call) = &taken.next {
                machine.took(call.caller, &call.frame);
            }
            drop(machine);
            if taken.takes_back {
                self.core.lock().writer.send(&ToNode::Unblocked);
            }
            return Some(match taken.next {
                Next::Call(call) => Work::Call(call),
                Next::BecomeActor(BecomeActor { spec, incarnation, gpus, replay }) => {
                    Work::RunActor { spec, incarnation, gpus, replay }
                }
            });
        }
        let wants_to_go = machine.wants_to_go();
        drop(machine);
        if let Some(why) = unread {
            self.cannot_serve(why);
        }
        if let Some(failure) = self.gone.get() {
            return Some(Work::Exit { reason: failure.text() });
        }
        if wants_to_go { self.go() } else { None }
    }

    /// A caller would wait for ever for what it called here. So the daemon ends this worker, and whoever waits for
    /// it hears why.
    #[cold]
    pub(crate) fn cannot_serve(&self, why: Reason) {
        let worker = self.welcome.process;
        self.core.lock().writer.send(&ToNode::ChannelBroken { worker, why });
    }

    /// Who leaves gracefully first sees to the end what others may wait for.
    #[cold]
    fn go(&self) -> Option<Work> {
        let leave = {
            let mut core = self.core.lock();
            let leave = self.worker.machine().may_go(core.session.unfinished());
            if leave == Leave::Lend {
                core.writer.send(&ToNode::Blocked);
            }
            leave
        };
        match leave {
            Leave::Wait | Leave::Lend => None,
            Leave::Go { reason } => {
                self.with(|session, _, effects| session.return_leases(effects));
                Some(Work::Exit { reason })
            }
        }
    }

    /// This worker takes no more calls: `next_work` says `Exit` once all it has begun, and all that it
    /// submitted itself, is done.
    pub fn retire(&self, reason: &str) {
        self.worker.machine().retire(reason);
        self.look_after_replies();
    }

    /// `next_work` says `Exit` once the rings are empty and all that this process submitted is done.
    pub(crate) fn leave(&self, reason: &str) {
        self.worker.machine().leave(reason.to_string());
        self.look_after_replies();
    }

    /// The progress thread drains replies that who leaves waits for.
    fn look_after_replies(&self) {
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
            if self.worker.spins.rung(bell, rings) {
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
        self.worker.machine().is_cancelled(task)
    }

    /// Any thread may reply. What is borrowed and still referenced is told to the daemon before
    /// (REF-3). Waits while the caller's ring is full.
    ///
    /// `task` as its call names it: an adopted one is its dead owner's.
    pub fn reply(&self, to: ProcessId, task: TaskId, header: ReplyHeader, returned: &[Returned]) {
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
                self.write_reply(to, &replies, part, &returned[from..cut], false);
                from = cut;
            }
            let index = if from > 0 { from as u32 } else { header.index };
            let last = ReplyHeader { index, ..header };
            self.write_reply(to, &replies, last, &returned[from..], finished && idle);
        }
        if finished {
            let held = self.worker.machine().ended(to, task);
            if !held.is_empty() {
                self.let_go(&held);
            }
        }
    }

    /// What this process held for a caller that died.
    #[cold]
    fn let_go(&self, held: &[ObjectId]) {
        self.with(|session, now, effects| session.drop_all(now, held, effects));
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
        let machine = self.worker.machine();
        let inbound = machine.caller(to)?;
        Some((inbound.replies.clone(), inbound.calls.is_empty()))
    }

    fn order_of_replies(&self, to: ProcessId) -> Option<Arc<Mutex<()>>> {
        Some(self.worker.machine().caller(to)?.order.clone())
    }

    /// `idle`: when it was asked, no other call of that caller was there.
    fn write_reply(
        &self,
        to: ProcessId,
        replies: &Mutex<Replies>,
        header: ReplyHeader,
        values: &[Returned],
        idle: bool,
    ) {
        let bell = self.segment.doorbell(slot_of(self.welcome.process));
        let error = loop {
            let sleeper;
            {
                let mut replies = replies.lock();
                if replies.closed {
                    return;
                }
                match replies.try_write(header, values) {
                    Ok(()) => return replies.notify(&self.ringer, header, idle),
                    Err(WriteError::Full { .. }) => {
                        replies.insist(&self.ringer);
                        sleeper = bell.prepare(SleepKind::Lenient);
                    }
                    // One value alone always fits (`cuts`).
                    Err(error @ (WriteError::Corrupt(_) | WriteError::FrameTooLarge { .. })) => {
                        replies.closed = true;
                        break error;
                    }
                }
            }
            // Nobody rings when room appears: look again in a moment.
            let _ = sleeper.sleep(Some(Duration::from_micros(200)));
        };
        let why = Reason::from("a reply to ").and(to);
        self.cannot_serve(why.and(format!(" cannot be written: {error}")));
    }

    /// For a stream with back-pressure: waits while more than `ahead` of the `sent` items are not
    /// taken (no GIL); a cancelled stream and a reader that is gone end the wait, too.
    pub fn stream_credit(&self, to: ProcessId, task: TaskId, sent: u64, ahead: u64) -> Waited {
        let bell = self.segment.doorbell(slot_of(self.welcome.process));
        let started = Instant::now();
        let mut lent = false;
        let waited = loop {
            let sleeper = bell.prepare(SleepKind::Lenient);
            let has_credit = self.worker.machine().has_credit(to, task, sent, ahead);
            if has_credit || self.gone.get().is_some() {
                break Waited::Ready;
            }
            // The reader may wait for something that needs the CPU that this one does not use.
            if !lent && Machine::is_long(false, started.elapsed(), BLOCKED_AFTER) {
                lent = self.lend(&mut self.core.lock());
            }
            let timeout = (!lent).then_some(BLOCKED_AFTER);
            if sleeper.sleep(timeout) == Slept::Interrupted {
                break Waited::Interrupted;
            }
        };
        if lent {
            self.take_back(&mut self.core.lock());
        }
        waited
    }

    pub fn actor_started(&self, actor: ActorId, incarnation: u32, result: Result<(), Failure>) {
        let _names_nothing = self.worker.machine().ended(self.welcome.process, actor.0);
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
