//! Draining replies, and waiting: in `get`, and on the progress thread when nobody is in `get`.
//!
//! Who waits for one reply looks at its bell for a moment ([`hoplo_shm::Spins`]). Only then it sleeps: *leniently*
//! first, with a timer of 1 ms, so that a busy worker may batch its replies; when a whole millisecond
//! brought nothing, *strictly*, without a timer: then every reply wakes.

use std::panic::resume_unwind;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hoplo_base::{Instant as Time, ObjectId, TaskId, limits};
use hoplo_core::session::{Effect, Event, SessionMachine, StreamLook};
use hoplo_shm::{SleepKind, Slept, Urgency};
use hoplo_wire::reply::{ReplyKind, ReplyView};

use crate::Waited;
use crate::client::Client;
use crate::effects::channel_broken;
use crate::guarded::{Core, Progress, call_all};
use crate::lending;
use crate::ringer::slot_of;
use crate::work::Machine;

const LENIENT: Duration = Duration::from_millis(1);

impl Client {
    /// Drains replies and waits until `wanted` of the objects are ready (readable with `read`, except
    /// under pressure: then wait again). Duplicates count once each time they are listed.
    pub fn wait(&self, objects: &[ObjectId], wanted: usize, deadline: Option<Instant>) -> Waited {
        self.wait_for(objects, wanted, deadline, SessionMachine::want, |_| {})
    }

    /// As `wait`, but an object whose bytes are at another node is fetched, and is not ready before.
    pub fn wait_here(
        &self,
        objects: &[ObjectId],
        wanted: usize,
        deadline: Option<Instant>,
    ) -> Waited {
        let mut far_values = 0; // whatever of them was far when so many were told is being fetched
        self.wait_for(objects, wanted, deadline, SessionMachine::want, |core| {
            if std::mem::replace(&mut far_values, core.session.far_values()) < far_values {
                core.session.want_here(objects, &mut core.effects);
            }
        })
    }

    /// As `wait`, but nothing is fetched: an object is ready as soon as it has a value, wherever that is.
    pub fn wait_word(
        &self,
        objects: &[ObjectId],
        wanted: usize,
        deadline: Option<Instant>,
    ) -> Waited {
        self.wait_for(objects, wanted, deadline, SessionMachine::want_word, |_| {})
    }

    /// As `wait` for an argument that is to be read here, but it ends as well when that is made again, which may take long.
    pub fn wait_argument(&self, object: ObjectId) -> Waited {
        let asked = (&[object][..], SessionMachine::want);
        self.wait_until(None, true, asked, |core| {
            core.session.is_ready(object) || core.session.is_delayed(object)
        })
    }

    /// An argument that is awaited here was lost, and is made again.
    pub fn is_delayed(&self, object: ObjectId) -> bool {
        self.core.lock().session.is_delayed(object)
    }

    fn wait_for(
        &self,
        objects: &[ObjectId],
        wanted: usize,
        deadline: Option<Instant>,
        ask: impl Fn(&mut SessionMachine, &[ObjectId], &mut Vec<Effect>),
        mut before: impl FnMut(&mut Core),
    ) -> Waited {
        let wanted = wanted.min(objects.len());
        let mut seen = 0; // all before this index are ready
        self.wait_until(deadline, wanted == 1, (objects, ask), |core| {
            before(core);
            if wanted == objects.len() {
                while seen < wanted && core.session.is_ready(objects[seen]) {
                    seen += 1;
                }
                if seen == wanted {
                    return true;
                }
            } else {
                let ready = objects.iter().filter(|object| core.session.is_ready(**object));
                if ready.take(wanted).count() == wanted {
                    return true;
                }
            }
            false
        })
    }

    /// Waits until all are ready, or one has failed.
    pub fn wait_all(&self, objects: &[ObjectId], deadline: Option<Instant>) -> Waited {
        let mut seen = 0; // all before this index are ready
        let mut failures = 0; // at most so many had failed when all were looked at
        let asked = (objects, SessionMachine::want);
        self.wait_until(deadline, objects.len() == 1, asked, |core| {
            let session = &core.session;
            while seen < objects.len() && session.is_ready(objects[seen]) {
                seen += 1;
            }
            let more = session.failures() > failures;
            failures = session.failures();
            seen == objects.len() || more && objects.iter().any(|it| session.has_failed(*it))
        })
    }

    /// The first of these that has failed.
    pub fn first_failed(&self, objects: &[ObjectId]) -> Option<ObjectId> {
        let session = &self.core.lock().session;
        let mut objects = objects.iter().filter(|_| session.failures() > 0);
        objects.find(|object| session.has_failed(**object)).copied()
    }

    /// Which are ready now (drains replies once).
    pub fn ready(&self, objects: &[ObjectId]) -> Vec<bool> {
        let mut core = self.core.lock();
        self.drain(&mut core);
        self.arm(&mut core);
        let broken = self.is_broken();
        objects.iter().map(|object| broken || core.session.is_ready(*object)).collect()
    }

    /// As `ready`, but what is at another node is not, and is fetched.
    pub fn ready_here(&self, objects: &[ObjectId]) -> Vec<bool> {
        let mut core = self.core.lock();
        self.drain(&mut core);
        if core.session.far_values() > 0 {
            let core = &mut *core;
            core.session.want_here(objects, &mut core.effects);
            self.carry_out(core);
        }
        drop(core);
        self.ready(objects)
    }

    /// Waits until `stream_next` is not `Pending`.
    pub fn stream_wait(&self, task: TaskId, deadline: Option<Instant>) -> Waited {
        let nothing = (&[][..], SessionMachine::want);
        self.wait_until(deadline, true, nothing, |core| core.stream_moved(task))
    }

    /// `one`: a single reply ends it, so that it pays to look for a moment; replies to many calls come in
    /// batches. `objects` are asked for if need be.
    fn wait_until(
        &self,
        deadline: Option<Instant>,
        one: bool,
        (objects, ask): (&[ObjectId], impl Fn(&mut SessionMachine, &[ObjectId], &mut Vec<Effect>)),
        mut done: impl FnMut(&mut Core) -> bool,
    ) -> Waited {
        let mut core = self.core.lock();
        self.drain(&mut core);
        if done(&mut core) {
            self.arm(&mut core);
            return Waited::Ready;
        }
        {
            let core = &mut *core;
            ask(&mut core.session, objects, &mut core.effects);
            self.carry_out(core);
        }
        core.waiters += 1;
        // Of a single call there is nothing to batch, and a near timer costs as much as a wake-up. (A worker
        // needs the timer, to lend its CPU in time.)
        let mut strict = one && !self.is_worker && core.session.unfinished() <= 1;
        let mut blocked = false;
        let lends_after = lending::lends_after();
        let started = Instant::now();
        let bell = self.segment.doorbell(slot_of(self.welcome.process));
        let mut rings = bell.rings();
        let mut spins = one;
        let waited = loop {
            // A short wait lends nothing; but nothing is short when what is waited for may need this very CPU.
            let long =
                || Machine::is_long(core.session.is_starved(), started.elapsed(), lends_after);
            if self.is_worker && !blocked && long() {
                blocked = self.lend(&mut core);
            }
            if std::mem::take(&mut spins) {
                let drained = self.drain(&mut core);
                if done(&mut core) {
                    break Waited::Ready;
                }
                if drained > 0 && core.waiters > 1 {
                    self.own_bell(Urgency::Eager);
                }
                self.carry_out(&mut core);
                let looks = || self.spins.rung(bell, rings);
                if core.unlocked(looks) || drained > 0 {
                    spins = true;
                    rings = bell.rings();
                    if deadline.is_none_or(|at| Instant::now() < at) {
                        continue;
                    }
                }
            }
            let kind = if strict { SleepKind::Strict } else { SleepKind::Lenient };
            let sleeper = bell.prepare(kind);
            let drained = self.drain(&mut core);
            if done(&mut core) || self.is_broken() {
                break Waited::Ready;
            }
            if drained > 0 && core.waiters > 1 {
                self.own_bell(Urgency::Eager);
            }
            self.tick_if_due(&mut core, self.now());
            self.arm(&mut core);
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break Waited::TimedOut;
            }
            strict = drained == 0 && (strict || started.elapsed() >= LENIENT);
            let mut nap = if kind == SleepKind::Lenient { LENIENT } else { limits::SIGNALS_PERIOD };
            if self.is_worker && !blocked && started.elapsed() < lends_after {
                nap = nap.min(lends_after);
            }
            let timeout = Some(left.map_or(nap, |left| left.min(nap)));
            let slept = core.unlocked(|| sleeper.sleep(timeout));
            let looks_at_signals =
                slept == Slept::TimedOut && timeout == Some(limits::SIGNALS_PERIOD);
            if slept == Slept::Interrupted || looks_at_signals {
                break Waited::Interrupted;
            }
            spins = one && slept == Slept::Woken;
            rings = bell.rings();
        };
        core.waiters -= 1;
        if blocked {
            self.take_back(&mut core);
        }
        if core.waiters > 0 {
            self.own_bell(Urgency::Eager); // another waiter takes over the draining
        }
        self.carry_out(&mut core);
        self.arm(&mut core);
        waited
    }

    /// Takes every reply that is there; how many.
    pub(crate) fn drain(&self, core: &mut Core) -> usize {
        let mut drained = 0;
        let mut now = None;
        let mut broken = Vec::new();
        let Core { session, peers, effects, .. } = core;
        for (worker, peer) in peers.iter_mut().filter(|(_, peer)| peer.is_active()) {
            loop {
                let frame = match peer.end.replies.next() {
                    Ok(Some(frame)) => frame,
                    Ok(None) => break,
                    Err(error) => {
                        broken.push((*worker, error.to_string()));
                        break;
                    }
                };
                drained += 1;
                let now = *now.get_or_insert_with(|| self.now());
                let parsed = ReplyView::parse(frame.bytes()).and_then(|reply| {
                    session.on_reply(now, *worker, &reply, effects)?;
                    Ok(reply.header)
                });
                drop(frame);
                match parsed {
                    Ok(header) => match header.kind {
                        ReplyKind::Finished | ReplyKind::StreamEnd => peer.replied(header.seq),
                        ReplyKind::Item | ReplyKind::Part => {}
                    },
                    Err(error) => {
                        broken.push((*worker, error.to_string()));
                        break;
                    }
                }
            }
        }
        for (worker, error) in broken {
            if let Some(peer) = core.peers.get_mut(&worker) {
                peer.breaks();
            }
            let why = format!("a reply of it cannot be read: {error}");
            channel_broken(&mut core.writer, &mut core.warnings, worker, why);
        }
        self.refill(core);
        self.carry_out(core);
        drained
    }

    /// What the session does at a time is done by who is awake. A reply that was just drained may have made something due at once: others wait for
    /// the result.
    fn tick_if_due(&self, core: &mut Core, now: Time) {
        if core.session.next_deadline().is_some_and(|at| at <= now) {
            core.session.handle(now, Event::Tick, &mut core.effects);
        }
        self.carry_out(core);
    }

    /// After any change: the progress thread is woken if it must do more, or sooner, than it is awake
    /// for.
    pub(crate) fn arm(&self, core: &mut Core) {
        let deadline = core.next_timer();
        let needed = self.progress_needed(core, deadline);
        let sooner = deadline.is_some_and(|at| core.timer.is_none_or(|timer| at < timer));
        if needed > core.progress || sooner {
            core.progress = core.progress.max(needed);
            core.timer = if sooner { deadline } else { core.timer };
            self.own_bell(Urgency::Must);
        }
    }

    pub(crate) fn own_bell(&self, urgency: Urgency) {
        self.segment.doorbell(slot_of(self.welcome.process)).ring(urgency);
    }

    /// Drains replies when nobody is in `wait`, runs callbacks, ticks the session.
    pub(crate) fn progress_loop(&self) {
        let bell = self.segment.doorbell(slot_of(self.welcome.process));
        let mut quiet_since = Instant::now();
        loop {
            let mut core = self.core.lock();
            let strict = quiet_since.elapsed() >= LENIENT;
            let kind = match self.progress_needed(&core, core.next_timer()) {
                Progress::Drain if strict => SleepKind::Strict,
                Progress::Drain => SleepKind::Lenient,
                Progress::Timer | Progress::Idle => SleepKind::Idle,
            };
            let sleeper = bell.prepare(kind);
            if self.closing.load(Ordering::Acquire) {
                return; // looked at after registering: close() rings once
            }
            let drained = if core.waiters == 0 { self.drain(&mut core) } else { 0 };
            if drained > 0 {
                quiet_since = Instant::now();
                if self.worker.machine().is_leaving() {
                    self.own_bell(Urgency::Eager); // the main thread may leave now
                }
            }
            let now = self.now();
            if !self.is_broken() {
                let core = &mut *core;
                self.tick_if_due(core, now);
                self.lend_when_due(core, now);
                self.cool_down(core, now);
            }
            let due = std::mem::take(&mut core.due);
            if !due.is_empty() || !core.warnings.is_empty() {
                let warnings = std::mem::take(&mut core.warnings);
                drop(sleeper);
                drop(core);
                warnings.print(&*self.hooks);
                if let Err(panic) = call_all(due) {
                    resume_unwind(panic);
                }
                continue;
            }
            core.timer = if self.is_broken() { None } else { core.next_timer() };
            core.progress = self.progress_needed(&core, core.timer);
            let kind_now = match core.progress {
                Progress::Drain => kind != SleepKind::Idle,
                Progress::Timer | Progress::Idle => true,
            };
            let timer = core.timer.map(|at: Time| at.since(now));
            let lenient = (kind == SleepKind::Lenient).then_some(LENIENT);
            drop(core);
            if !kind_now {
                continue; // it must drain now, but is registered as idle
            }
            let timeout = match (timer, lenient) {
                (Some(timer), Some(lenient)) => Some(timer.min(lenient)),
                (timer, lenient) => timer.or(lenient),
            };
            if sleeper.sleep(timeout) == Slept::Woken && kind == SleepKind::Idle {
                quiet_since = Instant::now();
            }
        }
    }
}

impl Client {
    /// `timer`: `core.next_timer()`, which the callers need as well.
    fn progress_needed(&self, core: &Core, timer: Option<Time>) -> Progress {
        if !core.due.is_empty() || !core.warnings.is_empty() {
            return Progress::Drain;
        }
        let leaving = || core.session.unfinished() > 0 && self.worker.machine().is_leaving();
        let needed = core.session.needs_progress() || core.overflowing > 0 || leaving();
        if core.waiters == 0 && needed {
            return Progress::Drain;
        }
        if timer.is_some() { Progress::Timer } else { Progress::Idle }
    }

    /// Free room that was not used for a while goes back to the node.
    fn cool_down(&self, core: &mut Core, now: Time) {
        let Some(at) = core.cool_at.filter(|at| *at <= now) else { return };
        let mut store = self.store.lock();
        if std::mem::take(&mut store.used) {
            core.cool_at = Some(at + limits::WARM_TIME);
            return;
        }
        core.cool_at = None;
        let pieces = store.give_back(u64::MAX);
        drop(store);
        self.return_room(core, pieces);
    }
}

impl Core {
    fn next_timer(&self) -> Option<Time> {
        [self.session.next_deadline(), self.cool_at, self.lend_at].into_iter().flatten().min()
    }

    /// Whether the reader of a stream would find an item, or its end.
    fn stream_moved(&self, task: TaskId) -> bool {
        let taken = self.streams.get(&task).copied().unwrap_or(0);
        self.session.stream_look(task, taken) != StreamLook::Pending
    }
}
