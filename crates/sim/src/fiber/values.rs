//! What a program puts, returns and yields, and how its calls end.

use hoplo_base::{ActorId, ObjectId, ProcessId, limits};
use hoplo_core::session::Effect;
use hoplo_wire::call::{CALL_RETRY_ANY, CALL_STREAMING};
use hoplo_wire::node::{DeathCause, ToNode};
use hoplo_wire::reply::{
    REPLY_RETIRING, REPLY_RETRYABLE, ReplyHeader, ReplyKind, Returned, encode_returned,
};
use hoplo_wire::{Failure, FailureKind, Location, Value};

use super::{Fiber, Flow, Incoming, Room, Wait, header, ids, user_failure};
use crate::client::Answered;
use crate::cluster::Cluster;
use crate::memory::encode_content;
use crate::workload::Role;

impl Cluster {
    pub(super) fn room(&mut self, id: ProcessId, fiber: &mut Fiber, len: u64) -> Room {
        // An answer is waited for, and taken, before anything else is asked or used.
        if fiber.asked_room {
            let Some(answer) = self.client(id).room.take() else { return Room::Wait };
            fiber.asked_room = false;
            match answer {
                Answered::Denied(kind) => return Room::Denied(kind),
                Answered::File { offset, slot } => return Room::Got(offset, slot),
                Answered::Extent => {}
            }
        }
        if let Some((offset, slot)) = self.client(id).extents.allocate(len) {
            return Room::Got(offset, slot);
        }
        fiber.asked_room = true;
        self.client(id).room = None;
        let slots = if self.client(id).extents.slots.len() < 16 { limits::SLOTS_GRANT } else { 0 };
        let bytes = len.next_multiple_of(limits::OBJECT_ALIGN);
        self.session(id, |session, _, effects| session.flush(effects));
        self.say(id, ToNode::ExtentWant { request: 1, bytes, slots });
        Room::Wait
    }

    pub(super) fn put(
        &mut self,
        id: ProcessId,
        fiber: &mut Fiber,
        stored: Option<u64>,
        contains: &[ObjectId],
    ) -> Flow {
        let object = match stored {
            None => {
                let token = self.books.token(id);
                let value = Value::Inline(encode_content(token, contains).into());
                let object = self.client(id).session.put_inline(value, contains);
                self.books.put(object, token);
                object
            }
            Some(len) => match self.room(id, fiber, len) {
                Room::Wait => return Flow::Wait(Wait::Room),
                Room::Denied(_) => return Flow::Next,
                Room::Got(offset, slot) => {
                    let object = self.client(id).session.next_put();
                    let content = encode_content(object, contains);
                    let generation = self.memory.seal(slot, offset, content);
                    let location = Location { slot, generation, offset, len };
                    self.session(id, |session, now, effects| {
                        session.put_stored(now, object, location, contains, effects);
                    });
                    object
                }
            },
        };
        self.note(|| format!("{id} puts {object} (stored: {stored:?}) with {:?}", ids(contains)));
        fiber.refs.push(object);
        Flow::Next
    }

    /// The value of a returned object; `Err`: wait.
    pub(super) fn returned(
        &mut self,
        id: ProcessId,
        fiber: &mut Fiber,
        call: Incoming,
        index: u32,
        (stored, contains): (Option<u64>, usize),
    ) -> Result<Returned, Flow> {
        let contains = fiber.some(contains, u64::from(index));
        let object = call.task.object(index);
        let content = encode_content(object, &contains);
        let Some(len) = stored else {
            return Ok(Returned { value: Value::Inline(content.into()), contains });
        };
        match self.room(id, fiber, len) {
            Room::Wait => Err(Flow::Wait(Wait::Room)),
            Room::Denied(kind) => {
                let failure = Failure::new(kind, "no room for the result");
                Ok(Returned { value: Value::Failed(failure), contains: vec![] })
            }
            Room::Got(offset, slot) => {
                let generation = self.memory.seal(slot, offset, content);
                let location = Location { slot, generation, offset, len };
                self.session(id, |session, _, _| {
                    let owner = call.caller;
                    session.result_stored(object, owner, location, &contains);
                });
                Ok(Returned { value: Value::Stored(location), contains })
            }
        }
    }

    pub(super) fn yield_item(
        &mut self,
        id: ProcessId,
        fiber: &mut Fiber,
        stored: Option<u64>,
        contains: usize,
    ) -> Flow {
        let Some(call) = fiber.call.filter(|call| call.flags & CALL_STREAMING != 0) else {
            return Flow::Next;
        };
        let taken = self.client(id).consumed.get(&call.task).copied().unwrap_or(0);
        let gone = !self.channels.contains_key(&(call.caller, id));
        if call.ahead > 0
            && u64::from(fiber.items).saturating_sub(taken) >= u64::from(call.ahead)
            && !gone
        {
            return Flow::Wait(Wait::Credit);
        }
        match self.returned(id, fiber, call, fiber.items, (stored, contains)) {
            Err(flow) => flow,
            Ok(one) => {
                self.before_reply(id, call.caller, std::slice::from_ref(&one));
                let header = header(call, ReplyKind::Item, 0, fiber.items);
                fiber.items += 1;
                self.reply(id, call, header, &[one]);
                Flow::Next
            }
        }
    }

    /// Everything that it returns, one by one.
    pub(super) fn build(&mut self, id: ProcessId, fiber: &mut Fiber, call: Incoming) -> Flow {
        let program = fiber.program.clone().expect("it ran");
        let raises = call.attempt + call.incarnation < program.raises;
        if raises && fiber.failure.is_none() {
            fiber.failure = Some(user_failure("it raises"));
        }
        if fiber.failure.is_some() || call.flags & CALL_STREAMING != 0 {
            return Flow::Over;
        }
        let built = fiber.built.len();
        if built < call.returns as usize {
            let spec = program.returns[built % program.returns.len()];
            return match self.returned(id, fiber, call, built as u32, spec) {
                Err(flow) => flow,
                Ok(one) => {
                    fiber.built.push(one);
                    Flow::Next
                }
            };
        }
        Flow::Over
    }

    pub(super) fn over(&mut self, id: ProcessId, mut fiber: Fiber) {
        for (task, taken) in std::mem::take(&mut fiber.streams) {
            self.drop_stream(id, task, taken);
        }
        match fiber.call {
            None => {
                self.drop_locals(id, &mut fiber, &[]);
                self.client(id).finished = true;
                self.note(|| format!("{id} has finished its program"));
                self.driver_finished();
            }
            Some(call) if fiber.role == Role::Constructor => {
                self.drop_locals(id, &mut fiber, &[]);
                let actor = ActorId(call.task);
                let incarnation = call.incarnation;
                let result = fiber.failure.map_or(Ok(()), Err);
                let instance = self.client(id).actor.as_mut().expect("it is constructed");
                instance.constructed = result.is_ok();
                self.session(id, |session, now, effects| {
                    session.before_reply(now, session.me(), &[], effects);
                    let message = ToNode::ActorStarted { actor, incarnation, result };
                    effects.push(Effect::Node(message));
                });
            }
            Some(call) => self.finish_call(id, fiber, call),
        }
    }

    pub(super) fn finish_call(&mut self, id: ProcessId, mut fiber: Fiber, call: Incoming) {
        let streams = call.flags & CALL_STREAMING != 0;
        let mut flags = 0;
        let mut returned = std::mem::take(&mut fiber.built);
        if let Some(failure) = fiber.failure.clone() {
            if failure.kind == FailureKind::User && call.flags & CALL_RETRY_ANY != 0 {
                flags |= REPLY_RETRYABLE;
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
        let retires = call.max_calls > 0;
        if retires {
            flags |= REPLY_RETIRING;
        }
        let kept: Vec<ObjectId> = returned.iter().flat_map(|one| one.contains.clone()).collect();
        if self.rng.one_in(2) {
            self.drop_locals(id, &mut fiber, &kept);
        }
        self.before_reply(id, call.caller, &returned);
        if self.faulty() && self.rng.one_in(30) {
            self.count("deaths before a reply");
            self.note(|| format!("FAULT: {id} is killed before its reply for {}", call.task));
            return self.dies(id, DeathCause::Signaled { signal: 9 });
        }
        let early = self.rng.one_in(2);
        if early {
            self.drop_locals(id, &mut fiber, &[]);
        }
        let kind = if streams { ReplyKind::StreamEnd } else { ReplyKind::Finished };
        let index = if streams { fiber.items } else { 0 };
        let mut header = header(call, kind, flags, index);
        header.ran_ns = u32::try_from(self.now.since(call.since).as_nanos()).unwrap_or(u32::MAX);
        self.reply(id, call, header, &returned);
        self.drop_locals(id, &mut fiber, &[]);
        self.client(id).cancelled.remove(&call.task);
        self.client(id).consumed.remove(&call.task);
        if retires {
            self.client(id).leaving = true;
        }
    }

    pub(super) fn before_reply(&mut self, id: ProcessId, caller: ProcessId, returned: &[Returned]) {
        if self.channels.contains_key(&(caller, id)) {
            self.session(id, |session, now, effects| {
                session.before_reply(now, caller, returned, effects);
            });
        }
    }

    pub(super) fn reply(
        &mut self,
        id: ProcessId,
        call: Incoming,
        header: ReplyHeader,
        returned: &[Returned],
    ) {
        let Some(channel) = self.channels.get_mut(&(call.caller, id)) else { return };
        let mut bytes = header.encode(returned.len()).to_vec();
        encode_returned(returned, &mut bytes);
        channel.replies.push_back(bytes);
        let (kind, task) = (header.kind, call.task);
        self.note(|| format!("{id} replies {kind:?} for {task}, attempt {}", call.attempt));
        self.arm(call.caller);
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
