//! Calls of this process: functions, tasks, methods, streams.

use hoplo_base::{ActorId, FunctionId, JobId, ObjectId, ProcessId, TaskId};
use hoplo_core::session::{Effect, Event, StreamNext as Next};
use hoplo_wire::node::ToNode;

use crate::ask::{GivesUp, answer_of};
use crate::client::Client;
use crate::{Call, StreamLook, StreamNext, SubmitError};

/// The name of a pickled function: equal functions have equal names.
pub fn function_id(pickle: &[u8]) -> FunctionId {
    let hash = blake3::hash(pickle);
    FunctionId(hash.as_bytes()[..16].try_into().expect("a hash has 32 bytes"))
}

impl Client {
    /// Whether this process exported it in this session.
    pub fn has_exported(&self, function: FunctionId) -> bool {
        self.core.lock().session.has_exported(function)
    }

    /// Makes the bytes known under that name to all processes of the job, unless this process did.
    pub fn export(&self, function: FunctionId, bytes: &[u8], contains: &[ObjectId]) {
        self.with(|session, now, effects| {
            if session.exports(function) {
                let contains = contains.to_vec();
                session.mention_exported(now, &contains, effects);
                let bytes = bytes.to_vec();
                effects.push(Effect::Node(ToNode::Export { function, bytes, contains }));
            }
        });
    }

    /// The pickled function; waits for the daemon (no GIL). `call`: which call needs it, as in `ToNode::Fetch`. `None`: nobody exported it.
    pub fn fetch_function(
        &self,
        function: FunctionId,
        call: Option<(JobId, ProcessId)>,
        gives_up: GivesUp<'_>,
    ) -> Option<Vec<u8>> {
        let receiver = self.worker.await_function(function);
        self.core.lock().writer.send(&ToNode::Fetch { function, call });
        answer_of(&receiver, None, gives_up).flatten()
    }

    /// Submits a task. The caller owns one reference to each of its `returns` objects
    /// (`task.object(0..n)`). `parent`: the call that submits it, where several run at once.
    pub fn submit(&self, call: Call, parent: Option<TaskId>) -> TaskId {
        let now = self.now();
        let mut core = self.core.lock();
        let core = &mut *core;
        self.drain(core);
        let parent = parent.or(core.running);
        let task = core.session.submit(now, call, parent, &mut core.effects);
        self.carry_out(core);
        self.arm(core);
        task
    }

    /// Submits a method call, in order with this process's other calls to the actor. `parent`: as of a task.
    pub fn submit_method(
        &self,
        actor: ActorId,
        call: Call,
        parent: Option<TaskId>,
    ) -> Result<TaskId, SubmitError> {
        let now = self.now();
        let mut core = self.core.lock();
        let core = &mut *core;
        self.drain(core);
        let parent = parent.or(core.running);
        let task = core.session.submit_method(now, actor, call, parent, &mut core.effects);
        self.carry_out(core);
        self.arm(core);
        task
    }

    /// Takes the next item of a streaming call of this process.
    pub fn stream_next(&self, task: TaskId) -> StreamNext {
        let mut core = self.core.lock();
        let core = &mut *core;
        self.drain(core);
        let taken = core.streams.get(&task).copied().unwrap_or(0);
        let next = core.session.stream_next(task, taken, &mut core.effects);
        if let Next::Item(_) = next {
            core.streams.insert(task, taken + 1);
        }
        self.carry_out(core);
        match next {
            Next::Item(object) => StreamNext::Item(object),
            Next::Pending if self.is_broken() => StreamNext::End,
            Next::Pending => StreamNext::Pending,
            Next::End => StreamNext::End,
        }
    }

    /// What its next item will be.
    pub fn stream_upcoming(&self, task: TaskId) -> ObjectId {
        task.object(self.core.lock().streams.get(&task).copied().unwrap_or(0))
    }

    /// What `stream_next` would find. The producer does not hear of it: nothing is taken.
    pub fn stream_look(&self, task: TaskId) -> StreamLook {
        let mut core = self.core.lock();
        let core = &mut *core;
        self.drain(core);
        let taken = core.streams.get(&task).copied().unwrap_or(0);
        let look = core.session.stream_look(task, taken);
        self.arm(core);
        look
    }

    /// The object that is ready (with the value `none`, encoded) when a stream of this process has ended,
    /// or fails with what ended it. The caller owns one reference.
    pub fn stream_completion(&self, task: TaskId, none: &[u8]) -> ObjectId {
        self.core.lock().session.stream_completion(task, none.into())
    }

    /// Runs `callback` on the progress thread when `stream_next` is not `Pending`.
    pub fn on_stream(&self, task: TaskId, callback: Box<dyn FnOnce() + Send>) {
        let mut core = self.core.lock();
        let core = &mut *core;
        let taken = core.streams.get(&task).copied().unwrap_or(0);
        match core.session.stream_watch(task, taken) {
            Some(watch) => {
                core.watches.insert(watch, callback);
                self.may_lend(core);
            }
            None => core.due.push(callback),
        }
        self.arm(core);
    }

    /// The reader is gone: items not taken are dropped, the producer is cancelled.
    pub fn stream_drop(&self, task: TaskId) {
        let now = self.now();
        let mut core = self.core.lock();
        let core = &mut *core;
        let taken = core.streams.remove(&task).unwrap_or(0);
        core.session.stream_drop(now, task, taken, &mut core.effects);
        self.carry_out(core);
        self.arm(core);
    }

    pub fn cancel(&self, object: ObjectId, force: bool, recursive: bool) {
        let mut core = self.core.lock();
        let core = &mut *core;
        self.drain(core);
        let event = Event::Cancel { task: object.task, force, recursive };
        core.session.handle(self.now(), event, &mut core.effects);
        self.carry_out(core);
        self.arm(core);
    }
}
