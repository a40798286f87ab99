//! How a worker takes its calls, and how it goes: `core::worker` decides.

use std::collections::BTreeSet;

use hoplo_base::{ActorId, ObjectId, ProcessId};
use hoplo_core::worker::{BecomeActor, Found, Leave, Next};
use hoplo_wire::Failure;
use hoplo_wire::call::{CALL_BACKPRESSURE, CallKind, CallView};
use hoplo_wire::node::{DeathCause, ToNode};
use hoplo_wire::object::ValueView;

use super::{Fiber, Incoming};
use crate::client::{Client, Instance};
use crate::cluster::Cluster;
use crate::memory::decode_content;
use crate::network::Channel;
use crate::workload::{Role, decode_args};

impl Client {
    /// Threads that could take a call.
    fn takes_calls(&self) -> bool {
        let most = match &self.actor {
            None => 1,
            Some(actor) if actor.constructed => actor.concurrency,
            Some(_) => 0,
        };
        self.fibers.len() < most
    }
}

impl Cluster {
    /// The thread that is to run what was taken.
    pub(super) fn finds_work(&mut self, id: ProcessId) -> Option<u64> {
        let channels = &mut self.here.channels;
        let client = self.clients.get_mut(&id).expect("processes are never forgotten");
        if client.is_driver || !client.alive {
            return None;
        }
        let takes_calls = client.takes_calls();
        let taken = client.worker.take(|caller, ()| {
            let channel = channels.get_mut(&(caller, id)).filter(|_| takes_calls);
            let call = channel.and_then(Channel::take);
            call.map_or(Found::Nothing, |call| Found::Call((caller, call)))
        });
        let Some(taken) = taken else {
            self.may_go(id);
            return None;
        };
        if let Next::Call((caller, call)) = &taken.next {
            client.worker.took(*caller, &call.bytes);
        }
        if taken.takes_back {
            self.say(id, ToNode::Unblocked); // it was leaving and only waited
        }
        Some(match taken.next {
            Next::Call((caller, call)) => {
                if self.client(id).worker.busy() > 1 {
                    self.count("calls beside others");
                }
                self.begin(id, caller, call.seq, &call.bytes, 0)
            }
            Next::BecomeActor(BecomeActor { spec, incarnation, replay, .. }) => {
                let actor = spec.actor;
                if self.is_far(actor.0.owner) {
                    self.count("actors that live elsewhere");
                }
                let concurrency = match actor.0.seq.is_multiple_of(2) {
                    true if spec.checkpoints.is_none() => 3,
                    _ => 1,
                };
                self.begins_journal(id, &spec, incarnation, replay.as_deref());
                let ledger = spec.checkpoints.map(|_| Vec::new());
                let (kept, constructed) = (vec![], false);
                let instance = Instance { actor, kept, constructed, concurrency, replay, ledger };
                self.client(id).actor = Some(instance);
                self.begin(id, actor.0.owner, 0, &spec.frame, incarnation)
            }
        })
    }

    fn may_go(&mut self, id: ProcessId) {
        let client = self.client(id);
        let unfinished = client.session.unfinished();
        match client.worker.may_go(unfinished) {
            Leave::Wait => {}
            Leave::Lend => {
                self.count("CPUs lent to leave");
                self.say(id, ToNode::Blocked);
            }
            Leave::Go { .. } => {
                self.count("workers that left");
                self.session(id, |session, _, effects| session.return_leases(effects));
                self.dies(id, DeathCause::Exited { code: 0 });
            }
        }
    }

    fn begin(
        &mut self,
        id: ProcessId,
        caller: ProcessId,
        tag: u64,
        bytes: &[u8],
        incarnation: u32,
    ) -> u64 {
        let view = CallView::parse(bytes).expect("callers here write well");
        let header = view.header;
        let (seed, role, depth, nested) = decode_args(view.args);
        let mut fiber = Fiber::new(role, seed, depth);
        let ahead = if header.flags & CALL_BACKPRESSURE != 0 { view.extra().last() } else { None };
        fiber.call = Some(Incoming {
            caller,
            function: header.function,
            tag,
            task: header.task,
            attempt: header.attempt,
            returns: header.returns,
            flags: header.flags,
            is_task: header.kind == CallKind::Task,
            job: header.job,
            max_calls: header.max_calls,
            ahead: ahead.unwrap_or(0),
            incarnation,
            since: self.now,
        });
        if self.answers_again(id, &mut fiber) {
            let client = self.client(id);
            client.next_fiber += 1;
            client.fibers.insert(client.next_fiber, fiber);
            return client.next_fiber;
        }
        let (task, attempt) = (header.task, header.attempt);
        if attempt > 0 || incarnation > 0 {
            self.count(if role == Role::Constructor { "restarts of actors" } else { "retries" });
        }
        self.note(|| format!("{id} takes {task}, attempt {attempt}, from {caller}"));
        match role {
            Role::Constructor => self.restarts_once(ActorId(task), incarnation),
            _ => self.starts_once(task, attempt, caller, id),
        }
        self.may_run_here(task);
        for (object, value) in view.refs().expect("callers here write well") {
            match value {
                ValueView::Inline(bytes) => {
                    let (token, contains) = decode_content(bytes);
                    self.books.is_value_of(object, token);
                    for inner in &contains {
                        self.client(id).session.add_ref(*inner);
                    }
                    fiber.hold(contains);
                }
                ValueView::Failed { kind, payload, cause } => {
                    let failure = Failure { kind, payload: payload.into(), cause: cause.into() };
                    self.is_accounted_for(object, &failure);
                    fiber.failure.get_or_insert(failure);
                }
                ValueView::Stored(location) if location.known().is_none() => {
                    self.client(id).session.add_ref(object);
                    fiber.args.push_back((object, None));
                }
                ValueView::Stored(location) => {
                    self.client(id).session.borrow_stored(object, location);
                    fiber.args.push_back((object, Some(location)));
                }
            }
        }
        for object in &nested {
            self.client(id).session.add_ref(*object);
        }
        if self.client(id).worker.journal.is_some() && role != Role::Constructor {
            let stored = fiber.args.iter().map(|(object, _)| *object);
            let named: BTreeSet<ObjectId> = stored.chain(nested.iter().copied()).collect();
            fiber.to_log = Some((bytes.to_vec(), named.into_iter().collect()));
        }
        fiber.hold(nested);
        let client = self.client(id);
        client.next_fiber += 1;
        client.fibers.insert(client.next_fiber, fiber);
        client.next_fiber
    }
}
