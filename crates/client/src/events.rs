//! What the daemon says, on the thread that reads its socket.

use hoplo_base::{ProcessId, TaskId, limits};
use hoplo_core::session::{Event, PROMISED, TaskLine};
use hoplo_core::worker::BecomeActor;
use hoplo_shm::Urgency;
use hoplo_wire::node::{ActorCreated, GroupState, Tell, ToClient, ToNode};
use hoplo_wire::{Failure, FailureKind, Reason};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::client::Client;
use crate::daemon::Reader;
use crate::guarded::Core;
use crate::peers::Inbound;
use crate::socket::{is_of_the_peer, socket_lost};

/// Questions that the daemon answers with what has run: it is told first.
const TOLD_BEFORE: [&str; 2] = ["timeline", "history"];

fn process_id(process: ProcessId) -> String {
    format!("{:016x}", process.0)
}

impl Client {
    /// Until the socket ends, and why it did.
    pub(crate) fn node_loop(self: &Arc<Self>, reader: &mut Reader) -> std::io::Error {
        loop {
            let message = match reader.receive() {
                Ok(message) => message,
                Err(error) => return error,
            };
            match message {
                ToClient::Connected { from } => {
                    let fd = match reader.take_fd() {
                        Ok(fd) => fd,
                        Err(error) => return error,
                    };
                    match Inbound::open(self.ringer.whom(from), &fd) {
                        Ok(inbound) => self.worker.machine().connected(from, inbound),
                        Err(error) => {
                            let why = Reason::from("it cannot open the channel of ").and(from);
                            let why = why.and(format!(", by which its calls come: {error}"));
                            self.cannot_serve(why);
                        }
                    }
                    self.own_bell(Urgency::Must);
                }
                message => self.node_says(message),
            }
        }
    }

    /// The socket has ended (`None`: a thread of ours panicked): everything that waits fails.
    pub(crate) fn node_is_gone(&self, end: Option<std::io::Error>) {
        let closing = self.closing.load(Ordering::Acquire);
        let panicked = self.core.lock().panicked;
        let text = match end {
            Some(cause) if !panicked && !closing && !is_of_the_peer(&cause) => {
                let text = socket_lost(&cause);
                if self.is_worker {
                    self.hooks.fail(&text);
                }
                text
            }
            Some(cause) if !panicked => {
                let folder = &self.welcome.session_dir;
                if closing {
                    "hoplo was shut down in this process; call init() again".to_string()
                } else if let Some(why) = self.stopped.get() {
                    format!(
                        "the node daemon was stopped ({why}); call shutdown() and init() to go on"
                    )
                } else {
                    format!(
                        "the node daemon is gone ({cause}): it crashed or was killed; its log is in \
                         {folder}/daemon.log; call shutdown() and init() to go on"
                    )
                }
            }
            _ => "hoplo failed in this process, by a mistake of its own that it has written to standard \
                  error: please report it; call shutdown() and init() to go on"
                .to_string(),
        };
        let failure = Failure::new(FailureKind::NodeDied, text);
        // Set once, here.
        let _ = self.gone.set(failure.clone());
        self.requests.lock().close();
        self.worker.close();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let mut core = self.core.lock();
            let core = &mut *core;
            core.writer.shutdown();
            if !core.panicked {
                self.drain(core);
            }
            let event = Event::NodeDied { failure: failure.clone() };
            core.session.handle(self.now(), event, &mut core.effects);
            self.carry_out(core);
            self.arm(core);
        }));
        if ended.is_err() {
            self.give_up();
        }
        self.own_bell(Urgency::Must);
        match self.is_worker && !closing {
            true if panicked => self.hooks.fail(&failure.text()),
            true => self.hooks.exit(&failure.text()),
            false => {}
        }
    }

    /// The session is beyond use: what waits is woken, and finds `gone`.
    #[cold]
    pub(crate) fn give_up(&self) {
        self.broken.store(true, Ordering::Release); // pairs with the Acquire in `is_broken`
        let mut core = self.core.lock();
        let core = &mut *core;
        core.effects.clear();
        core.peers.clear();
        core.overflowing = 0;
        core.due.extend(std::mem::take(&mut core.watches).into_values());
    }

    #[cold]
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire) // pairs with the Release in `give_up`
    }

    fn node_says(self: &Arc<Self>, message: ToClient) {
        let event = match message {
            ToClient::LeaseGranted { lease, key, worker, gpus } => {
                Event::LeaseGranted { lease, key, worker, gpus }
            }
            ToClient::LeaseRecall { lease } => Event::LeaseRecall { lease },
            ToClient::LeaseIdleWanted { key } => Event::LeaseIdleWanted { key },
            ToClient::LeaseStuck { key, reason, infeasible } => {
                Event::LeaseStuck { key, reason, infeasible }
            }
            ToClient::LeasesComing { key, wanted, count } => {
                Event::LeasesComing { key, wanted, count }
            }
            ToClient::LeaseFailed { key, failure } => Event::LeaseFailed { key, failure },
            ToClient::WorkerBlocked { worker } => Event::WorkerBlocked { worker },
            ToClient::ProcessGone { process, obituary, unstarted: far } => {
                let mut core = self.core.lock();
                let core = &mut *core;
                let named = self.worker.disconnect(process);
                core.session.takes_over(self.now(), process, &named, &mut core.effects);
                self.drain(core);
                let mut peer = core.peers.remove(&process);
                let mut unstarted = peer.as_mut().map(|peer| peer.unstarted()).unwrap_or_default();
                unstarted.extend(far);
                if peer.is_some_and(|peer| !peer.overflow.is_empty()) {
                    core.overflowing -= 1;
                }
                return self
                    .pass_to_session(core, Event::ProcessGone { process, obituary, unstarted });
            }
            ToClient::Revoked { worker, seqs, mut kept } => {
                let mut core = self.core.lock();
                self.drain(&mut core);
                if let Some(peer) = core.peers.get_mut(&worker) {
                    peer.was_answered(&seqs, &mut kept);
                }
                return self.pass_to_session(&mut core, Event::Revoked { worker, seqs, kept });
            }
            ToClient::Ready { object, value, contains } => Event::Ready { object, value, contains },
            ToClient::Unreadable { object, failure } => Event::Unreadable { object, failure },
            ToClient::ActorState { actor, state } => Event::ActorState { actor, state },
            ToClient::GroupState { request, state } if request >= PROMISED => {
                Event::GroupState { request, state }
            }
            // `wait_group` tells only whether it is there.
            ToClient::GroupState { state: GroupState::Waits { .. }, .. } => return,
            ToClient::Adopt { lineage, objects } => {
                Event::Adopt { lineage: Box::new(lineage), objects }
            }
            ToClient::Remake { objects, node, why } => Event::Remake { objects, node, why },
            ToClient::Delayed { objects } => Event::Delayed { objects },
            ToClient::LineageOver { objects } => Event::LineageOver { objects },
            ToClient::Told { message: Tell::Cancel { task, recursive }, .. }
                if self.core.lock().session.task_here(task).is_some() =>
            {
                Event::Cancel { task, force: false, recursive }
            }
            other => return self.node_says_to_shell(other),
        };
        let mut core = self.core.lock();
        self.drain(&mut core);
        self.pass_to_session(&mut core, event);
    }

    fn pass_to_session(&self, core: &mut Core, event: Event) {
        core.session.handle(self.now(), event, &mut core.effects);
        self.carry_out(core);
        self.arm(core);
        if core.waiters > 0 {
            self.own_bell(Urgency::Eager);
        }
    }

    fn node_says_to_shell(self: &Arc<Self>, message: ToClient) {
        match message {
            ToClient::ExtentGranted { request, offset, len, ref slots } => {
                self.store.lock().grant(offset, len, slots);
                self.answer(request, message);
            }
            ToClient::FileGranted { request, .. }
            | ToClient::ExtentDenied { request, .. }
            | ToClient::ActorCreated { request, .. }
            | ToClient::ActorFound { request, .. }
            | ToClient::GroupCreated { request, .. }
            | ToClient::GroupState { request, .. }
            | ToClient::KvAnswer { request, .. }
            | ToClient::Reduced { request, .. }
            | ToClient::Assembled { request, .. }
            | ToClient::Answer { request, .. } => self.answer(request, message),
            ToClient::ExtentRecall { bytes } => {
                let mut core = self.core.lock();
                let pieces = self.store.lock().recall(bytes);
                self.return_room(&mut core, pieces);
                core.writer.send(&ToNode::ExtentRecalled);
            }
            ToClient::Reclaimed { location, .. } => {
                self.store.lock().reclaim(location);
                self.trim(&mut self.core.lock());
            }
            ToClient::Function { function, bytes } => self.worker.function(function, bytes),
            ToClient::RunActor { spec, incarnation, gpus, replay } => {
                self.core.lock().session.become_actor();
                self.worker.machine().ordered(BecomeActor { spec, incarnation, gpus, replay });
                self.own_bell(Urgency::Must);
            }
            ToClient::CallsLogged { upto } => {
                self.worker.machine().logged(upto);
                self.own_bell(Urgency::Eager);
            }
            ToClient::Told { message: Tell::Cancel { task, recursive }, .. } => {
                self.worker.machine().cancelled(task);
                if recursive {
                    self.with(|session, now, effects| {
                        session.cancel_children(now, task, effects);
                    });
                }
                self.hooks.cancel(task);
                self.own_bell(Urgency::Must);
            }
            ToClient::Told { message: Tell::Consumed { task, count }, .. } => {
                self.worker.machine().consumed(task, count);
                self.own_bell(Urgency::Must);
            }
            ToClient::Explain { request, question } => self.answer_why(request, question),
            ToClient::Inspect { request, kind } => {
                let json = self.inspect(&kind);
                let mut core = self.core.lock();
                let core = &mut *core;
                self.drain(core);
                if TOLD_BEFORE.contains(&kind.as_str()) {
                    core.session.tell_runs(self.now(), &mut core.effects);
                    self.carry_out(core);
                    self.arm(core);
                }
                let counted = core.session.take_counters();
                core.writer.send(&ToNode::Counted(counted));
                core.writer.send(&ToNode::Inspected { request, json });
            }
            ToClient::Output { pid, title, address, stderr, lines } => {
                let pid = Some(pid).filter(|pid| *pid > 0);
                self.hooks.output(pid, &title, address.as_deref(), stderr, &lines);
            }
            ToClient::Exit { graceful: true, reason } => {
                self.leave(&reason);
                self.own_bell(Urgency::Must);
            }
            ToClient::Exit { graceful: false, reason } => {
                match self.is_worker {
                    true => self.hooks.exit(&reason),
                    // Its connection ends behind this.
                    false => drop(self.stopped.set(reason)),
                }
            }
            other => self.hooks.warn(&format!("the daemon said {other:?} out of place")),
        }
    }

    /// An actor that came too late for who asked brought a reference all the same: it goes back. A placement group that was made too late
    /// is nobody's: it would keep what it reserved as long as the job goes on.
    fn answer(&self, request: u64, message: ToClient) {
        let late = self.requests.lock().answer(request, message);
        let actor = match late {
            Some(ToClient::ActorCreated { result: Ok(ActorCreated::Existing(found)), .. }) => {
                found.actor
            }
            Some(ToClient::ActorFound { found: Some(found), .. }) if found.dead.is_none() => {
                found.actor
            }
            Some(ToClient::GroupCreated { result: Ok((group, _)), .. }) => {
                return self.remove_group(group);
            }
            _ => return,
        };
        self.with(|session, now, effects| {
            session.actor_found(actor);
            session.drop_ref(now, actor.handle(), effects);
        });
    }

    fn inspect(&self, kind: &str) -> String {
        let core = self.core.lock();
        let session = &core.session;
        let answer: Value = match kind {
            "tasks" => {
                let lines = session.task_lines(limits::TASKS_LISTED_MAX);
                let more = session.unfinished() - lines.len();
                let job = format!("{:016x}", self.welcome.job.0);
                let row = |line: TaskLine| {
                    let units = line.resources.iter().map(|(name, _)| name);
                    let units = units.map(|name| (name, line.resources.units(name)));
                    json!({
                        "task": line.task.to_string(),
                        "task_id": line.task.hex(),
                        "name": line.name,
                        "state": line.stage,
                        "attempt": line.attempt,
                        "reason": line.reason,
                        "owner_pid": std::process::id(),
                        "job_id": &job,
                        "actor_id": line.actor.map(|actor| actor.hex()),
                        "creates_actor": line.creates,
                        "parent_task_id": line.parent.map(|parent| parent.hex()),
                        "worker_id": line.worker.map(process_id),
                        "resources": units.collect::<BTreeMap<_, _>>(),
                    })
                };
                let begun = self.hooks.begun().map(|begun| {
                    let row = |(task, ran): (TaskId, Duration)| {
                        json!({ "task_id": task.hex(), "ran_s": ran.as_secs_f64() })
                    };
                    begun.into_iter().map(row).collect::<Vec<_>>()
                });
                json!({
                    "tasks": lines.into_iter().map(row).collect::<Vec<_>>(),
                    "more": more,
                    // It cannot say which calls have begun: those that it has.
                    "begins_all": begun.is_none().then(|| process_id(self.welcome.process)),
                    "begun": begun,
                })
            }
            "status" => json!(session.task_counts()),
            _ => Value::Null, // what was counted says it
        };
        answer.to_string()
    }
}
