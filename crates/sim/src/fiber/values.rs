//! What a program puts, returns and yields.

use hoplo_base::{ObjectId, ProcessId, limits};
use hoplo_wire::call::CALL_STREAMING;
use hoplo_wire::node::ToNode;
use hoplo_wire::reply::{ReplyKind, Returned};
use hoplo_wire::{Failure, Location, Value};

use super::{Fiber, Flow, Incoming, Room, Wait, header, ids};
use crate::client::Answered;
use crate::cluster::Cluster;
use crate::memory::encode_content;

impl Cluster {
    pub(super) fn room(&mut self, id: ProcessId, fiber: &mut Fiber, len: u64) -> Room {
        // An answer is waited for, and taken, before anything else is asked or used.
        if let Some(request) = fiber.asked_room {
            let Some(answer) = self.client(id).rooms.remove(&request) else { return Room::Wait };
            fiber.asked_room = None;
            match answer {
                Answered::Denied(kind) => return Room::Denied(kind),
                Answered::File { offset, slot } => return Room::Got(offset, slot),
                Answered::Extent => {}
            }
        }
        if let Some((offset, slot)) = self.client(id).extents.allocate(len) {
            return Room::Got(offset, slot);
        }
        let request = self.client(id).asks.request();
        fiber.asked_room = Some(request);
        let slots = if self.client(id).extents.slots.len() < 16 { limits::SLOTS_GRANT } else { 0 };
        let bytes = len.next_multiple_of(limits::OBJECT_ALIGN);
        self.session(id, |session, _, effects| session.flush(effects));
        self.say(id, ToNode::ExtentWant { request, bytes, slots });
        Room::Wait
    }

    pub(super) fn put(
        &mut self,
        id: ProcessId,
        fiber: &mut Fiber,
        (stored, copies): (Option<u64>, u8),
        contains: &[ObjectId],
    ) -> Flow {
        let object = match stored {
            None => {
                let token = self.books.token(id);
                let value = Value::Inline(encode_content(token, contains, 0).into());
                let object = self.client(id).session.put_inline(value, contains);
                self.books.put(object, token);
                object
            }
            Some(len) => match self.room(id, fiber, len) {
                Room::Wait => return Flow::Wait(Wait::Room),
                Room::Denied(_) => return Flow::Next,
                Room::Got(offset, slot) => {
                    let object = self.client(id).session.next_put();
                    let content = encode_content(object, contains, 0);
                    let generation = self.here.memory.seal(slot, offset, content);
                    let location = Location { slot, generation, offset, len };
                    self.session(id, |session, now, effects| {
                        session.put_stored(now, object, location, contains, effects);
                        if copies > 1 {
                            session.put_copies(now, object, copies, effects);
                        }
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
        let Some(len) = stored else {
            let inline_bytes = fiber.program.as_ref().map_or(0, |program| program.inline_bytes);
            let content = encode_content(object, &contains, inline_bytes);
            return Ok(Returned { value: Value::Inline(content.into()), contains });
        };
        let content = encode_content(object, &contains, 0);
        match self.room(id, fiber, len) {
            Room::Wait => Err(Flow::Wait(Wait::Room)),
            Room::Denied(kind) => {
                self.books.facts.fails_by_itself(call.task, kind);
                let failure = Failure::new(kind, "no room for the result");
                Ok(Returned { value: Value::Failed(failure), contains: vec![] })
            }
            Room::Got(offset, slot) => {
                let generation = self.here.memory.seal(slot, offset, content);
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
        thread: u64,
        fiber: &mut Fiber,
        stored: Option<u64>,
        contains: usize,
    ) -> Flow {
        let Some(call) = fiber.call.filter(|call| call.flags & CALL_STREAMING != 0) else {
            return Flow::Next;
        };
        let (sent, ahead) = (u64::from(fiber.items), u64::from(call.ahead));
        let worker = &self.client(id).worker;
        if ahead > 0 && !worker.has_credit(call.caller, call.task, sent, ahead) {
            return Flow::Wait(Wait::Credit);
        }
        if !self.may_reply(id, thread, call.caller) {
            return Flow::Wait(Wait::Turn(call.caller));
        }
        match self.returned(id, fiber, call, fiber.items, (stored, contains)) {
            Err(flow) => flow,
            Ok(one) => {
                self.before_reply(id, call, std::slice::from_ref(&one));
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
            self.raises(fiber, "it raises");
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
}
