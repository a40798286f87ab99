//! How calls end: what the daemon is told, then the reply, in parts where it is too large for one frame.
//!
//! Between the two other threads go on, and the process may die. Replies to one caller that bring tokens are
//! written in the order in which the daemon heard of them (REF-4): a thread takes its turn before it tells, and
//! gives it up when it has written.

use std::time::Duration;

use hoplo_base::{ActorId, Instant, ObjectId, ProcessId};
use hoplo_core::session::{Effect, brings_tokens};
use hoplo_core::worker::cuts;
use hoplo_wire::call::{CALL_RETRY_ANY, CALL_STREAMING};
use hoplo_wire::node::{DeathCause, ToNode};
use hoplo_wire::reply::{
    REPLY_NO_ROOM, REPLY_NOT_BEGUN, REPLY_RETIRING, REPLY_RETRYABLE, REPLY_STOPPED, ReplyHeader,
    ReplyKind, Returned, encode_returned,
};
use hoplo_wire::{FailureKind, Value};

use super::{Fiber, Flow, Incoming, Wait, header};
use crate::cluster::Cluster;
use crate::workload::Role;

/// What is to be written for a call that has ended.
#[derive(Debug)]
pub struct Reply {
    pub(super) header: ReplyHeader,
    pub(super) returned: Vec<Returned>,
    /// The daemon was told.
    pub(super) told: bool,
    /// Values that were written, in parts.
    pub(super) written: usize,
}

impl Reply {
    fn not_begun(now: Instant, call: Incoming) -> Self {
        let retires = if call.max_calls > 0 { REPLY_RETIRING } else { 0 };
        let mut header = header(call, ReplyKind::Finished, REPLY_NOT_BEGUN | retires, 0);
        header.ran_ns = ReplyHeader::ran_of(now.since(call.since).as_nanos() as u64);
        Self { header, returned: Vec::new(), told: false, written: 0 }
    }
}

impl Cluster {
    /// A program has ended.
    pub(super) fn over(&mut self, id: ProcessId, fiber: &mut Fiber) -> Flow {
        for (task, taken) in std::mem::take(&mut fiber.streams) {
            self.drop_stream(id, task, taken);
        }
        match fiber.call {
            None => {
                self.drop_locals(id, fiber, &[]);
                self.client(id).finished = true;
                self.note(|| format!("{id} has finished its program"));
                self.driver_finished();
                Flow::Gone
            }
            Some(call) if fiber.role == Role::Constructor => {
                self.drop_locals(id, fiber, &[]);
                let actor = ActorId(call.task);
                let incarnation = call.incarnation;
                let result = fiber.failure.take().map_or(Ok(()), Err);
                if result.is_ok() {
                    self.replays(id);
                }
                let instance = self.client(id).actor.as_mut().expect("it is constructed");
                instance.constructed = result.is_ok();
                let _names_nothing = self.client(id).worker.ended(id, call.task);
                self.session(id, |session, now, effects| {
                    session.before_reply(now, session.me(), &[], effects);
                    let message = ToNode::ActorStarted { actor, incarnation, result };
                    effects.push(Effect::Node(message));
                });
                Flow::Gone
            }
            Some(call) if fiber.not_begun => {
                self.count("calls that were given back");
                self.note(|| format!("{id} gives {} back", call.task));
                fiber.reply = Some(Reply::not_begun(self.now, call));
                Flow::Next
            }
            Some(call) => {
                fiber.reply = Some(self.reply_of(fiber, call));
                Flow::Next
            }
        }
    }

    fn reply_of(&mut self, fiber: &mut Fiber, call: Incoming) -> Reply {
        let streams = call.flags & CALL_STREAMING != 0;
        let mut flags = 0;
        let mut returned = std::mem::take(&mut fiber.built);
        if let Some(failure) = fiber.failure.clone() {
            if failure.kind == FailureKind::User && call.flags & CALL_RETRY_ANY != 0 {
                flags |= REPLY_RETRYABLE;
            }
            if failure.kind == FailureKind::OutOfDiskHere && !streams {
                flags |= REPLY_NO_ROOM;
            }
            // What was sealed already for it is in the store: the caller gives it back with the others.
            if returned.is_empty() {
                returned.push(Returned { value: Value::Failed(failure), contains: vec![] });
            } else {
                let more = call.returns as usize - returned.len();
                let one = Returned { value: Value::Failed(failure), contains: vec![] };
                returned.extend(std::iter::repeat_n(one, more));
                flags = 0;
            }
        }
        if fiber.stopped {
            flags |= REPLY_STOPPED;
        }
        if call.max_calls > 0 {
            flags |= REPLY_RETIRING;
        }
        let kind = if streams { ReplyKind::StreamEnd } else { ReplyKind::Finished };
        let index = if streams { fiber.items } else { 0 };
        let mut header = header(call, kind, flags, index);
        header.ran_ns = ReplyHeader::ran_of(self.now.since(call.since).as_nanos() as u64);
        Reply { header, returned, told: false, written: 0 }
    }

    /// The next step of a call's end.
    pub(super) fn replies(&mut self, id: ProcessId, thread: u64, fiber: &mut Fiber) -> Flow {
        let call = fiber.call.expect("only calls are replied to");
        let mut reply = fiber.reply.take().expect("the caller has seen it");
        if !self.may_leave(id, fiber, call, &reply.returned) {
            fiber.reply = Some(reply);
            return Flow::Wait(Wait::Logged);
        }
        if !reply.told {
            if reply.returned.iter().any(brings_tokens) {
                if !self.may_reply(id, thread, call.caller) {
                    fiber.reply = Some(reply);
                    return Flow::Wait(Wait::Turn(call.caller));
                }
                self.client(id).replying.insert(call.caller, thread);
            }
            let kept: Vec<ObjectId> =
                reply.returned.iter().flat_map(|one| one.contains.clone()).collect();
            if self.rng.one_in(2) {
                self.drop_locals(id, fiber, &kept);
            }
            self.before_reply(id, call, &reply.returned);
            reply.told = true;
            if self.faulty() && self.rng.one_in(30) {
                self.count("deaths before a reply");
                self.note(|| format!("FAULT: {id} is killed before its reply for {}", call.task));
                self.books.facts.dies(id, [call.task]); // this thread is in nobody's list now
                self.dies(id, DeathCause::Signaled { signal: 9 });
                return Flow::Gone;
            }
            // Its caller has what it returns, or, if it is far, the node holds it (REF-4).
            if self.rng.one_in(2) {
                self.drop_locals(id, fiber, &[]);
            }
            // Where other threads run beside it, one of them may want its turn meanwhile. And what a far caller gets may go
            // meanwhile, if nobody holds it.
            let beside = !self.client(id).fibers.is_empty();
            let far = self.is_far(call.caller);
            let most = match beside {
                true => Duration::from_millis(4),
                false if far => Duration::from_millis(10),
                false => Duration::from_micros(200),
            };
            if beside || self.rng.one_in(4) {
                fiber.reply = Some(reply);
                return Flow::Sleep(self.rng.delay(most));
            }
        }
        if let Some(cut) = cuts(&reply.returned).into_iter().find(|cut| *cut > reply.written) {
            let index = reply.written as u32;
            let part = ReplyHeader { kind: ReplyKind::Part, index, ..reply.header };
            self.reply(id, call, part, &reply.returned[reply.written..cut]);
            self.count("parts of replies");
            reply.written = cut;
            fiber.reply = Some(reply);
            return Flow::Next;
        }
        let index = if reply.written > 0 { reply.written as u32 } else { reply.header.index };
        let last = ReplyHeader { index, ..reply.header };
        self.reply(id, call, last, &reply.returned[reply.written..]);
        if fiber.not_begun {
            // Only now: who is killed before has taken the call, for all that its caller knows (seed 502406).
            self.begins_not(call.task, call.attempt);
        }
        let client = self.client(id);
        if client.replying.get(&call.caller) == Some(&thread) {
            client.replying.remove(&call.caller);
        }
        let mut held = client.worker.ended(call.caller, call.task);
        if self.sabotage_takes_nothing_over() {
            held.clear();
        }
        self.session(id, |session, now, effects| session.drop_all(now, &held, effects));
        self.answered_call(id, call.task);
        let client = self.client(id);
        if call.max_calls > 0 {
            client.worker.retire("max_calls");
            self.count("workers that retired");
        }
        self.drop_locals(id, fiber, &[]);
        Flow::Gone
    }

    /// Whether no other thread is between what it told the daemon and its reply to this caller.
    pub(super) fn may_reply(&mut self, id: ProcessId, thread: u64, caller: ProcessId) -> bool {
        let client = self.client(id);
        if client.worker.caller(caller).is_none() {
            return true; // nobody reads it
        }
        let other = client.replying.get(&caller).is_some_and(|other| *other != thread);
        if other {
            self.count("replies that waited for their turn");
        }
        !other
    }

    pub(super) fn before_reply(&mut self, id: ProcessId, call: Incoming, returned: &[Returned]) {
        self.session(id, |session, now, effects| {
            session.before_reply(now, call.caller, returned, effects);
        });
        if !self.client(id).watches.is_empty() {
            self.goes_on(id);
        }
    }

    pub(super) fn reply(
        &mut self,
        id: ProcessId,
        call: Incoming,
        header: ReplyHeader,
        returned: &[Returned],
    ) {
        let Some(channel) = self.here.channels.get_mut(&(call.caller, id)) else { return };
        let mut bytes = header.encode(returned.len()).to_vec();
        encode_returned(returned, &mut bytes);
        channel.replies.push_back(bytes);
        let (kind, task) = (header.kind, call.task);
        self.books.replied.insert(task);
        // Of a far worker the home hears it over the link: until then nobody there can know of the value.
        // So it does of a near one whose caller adopted the task: that node may die with its word (`Books::is_stored`).
        if !self.is_far(call.caller)
            && self.clients[&call.caller].alive
            && matches!(kind, ReplyKind::Finished | ReplyKind::Part)
        {
            for (at, one) in returned.iter().enumerate() {
                if matches!(one.value, Value::Stored(_)) {
                    self.books.stored(task.object(header.index + at as u32), id.node());
                }
            }
        }
        self.note(|| format!("{id} replies {kind:?} for {task}, attempt {}", call.attempt));
        match self.is_far(call.caller) {
            true => self.rings_carrier(),
            false => self.arm(call.caller),
        }
    }

    /// All but those of `kept`, each of which stays once.
    pub(super) fn drop_locals(&mut self, id: ProcessId, fiber: &mut Fiber, kept: &[ObjectId]) {
        let mut refs = std::mem::take(&mut fiber.refs);
        for object in kept {
            if fiber.refs.contains(object) {
                continue;
            }
            if let Some(at) = refs.iter().position(|held| held == object) {
                fiber.refs.push(refs.swap_remove(at));
            }
        }
        self.drop_refs(id, refs);
        let handles: Vec<ObjectId> = fiber.handles.drain(..).map(ActorId::handle).collect();
        self.drop_refs(id, handles);
    }
}
