//! Conversations with the session machine.

mod actors;
mod arguments;
mod items;
mod leases;
mod near;
mod promises;
mod references;
mod remake;
mod room;
mod runs;
mod spread;
mod streams;
mod tasks;

use std::sync::Arc;
use std::time::Duration;

use hoplo_base::{
    ActorId, FunctionId, Instant, JobId, LeaseId, NodeNumber, ObjectId, ProcessId, ResourceSet,
    TaskId,
};
use hoplo_wire::node::{DeathCause, Notice, Obituary, Shape, ToNode};
use hoplo_wire::reply::{ReplyHeader, ReplyKind, ReplyView, Returned, encode_returned};
use hoplo_wire::{Failure, FailureKind, Location, Value};

use super::call::Stage;
use super::{Call, CallOptions, CreateActor, Effect, Event, SessionMachine};

/// A session and its clock.
struct Owner {
    session: SessionMachine,
    now: Instant,
}

fn process(count: u32) -> ProcessId {
    ProcessId::new(NodeNumber::alone(1), count, count as u16)
}

const W: u32 = 5;
const X: u32 = 6;

fn inline(bytes: &[u8]) -> Value {
    Value::Inline(bytes.into())
}

fn stored(slot: u32) -> Value {
    Value::Stored(place(slot))
}

fn place(slot: u32) -> Location {
    Location { slot, generation: 1, offset: u64::from(slot) * 64, len: 1000 }
}

fn failed(kind: FailureKind) -> Value {
    Value::Failed(Failure::new(kind, "it failed"))
}

fn returned(value: Value) -> Returned {
    Returned { value, contains: vec![] }
}

fn shape() -> Shape {
    let resources = ResourceSet::from_units([("CPU", 1.0)]).unwrap();
    Shape::of(resources)
}

fn options() -> CallOptions {
    CallOptions {
        function: FunctionId([1; 16]),
        name: Arc::from("f"),
        shape: Arc::new(shape()),
        returns: 1,
        flags: 0,
        max_retries: 0,
        max_calls: 0,
        job: None,
        stream_ahead: 0,
        max_pending_calls: 0,
        remembered: false,
        near_first: false,
        may_be_overtaken: false,
    }
}

fn call(options: CallOptions) -> Call {
    Call { options: Arc::new(options), args: vec![], refs: vec![], nested: vec![], packed: false }
}

fn with_refs(refs: &[ObjectId]) -> Call {
    Call { refs: refs.to_vec(), ..call(options()) }
}

fn with_nested(nested: &[ObjectId]) -> Call {
    Call { nested: nested.to_vec(), ..call(options()) }
}

fn died(count: u32) -> Obituary {
    let last_lines = vec!["goodbye".to_string()];
    Obituary { pid: count, cause: DeathCause::Signaled { signal: 11 }, last_lines }
}

fn demand(wanted: u32) -> Effect {
    Effect::Node(ToNode::LeaseDemand { key: 0, shape: shape().into(), wanted })
}

fn placed(worker: u32, seq: u64) -> Effect {
    Effect::Place { worker: process(worker), seq }
}

fn notices(notices: &[Notice]) -> Effect {
    Effect::Node(ToNode::Notices(notices.to_vec()))
}

impl Owner {
    fn new() -> Self {
        Self { session: SessionMachine::new(process(1), JobId(1)), now: Instant(1_000_000_000) }
    }

    fn act<R>(
        &mut self,
        act: impl FnOnce(&mut SessionMachine, Instant, &mut Vec<Effect>) -> R,
    ) -> (R, Vec<Effect>) {
        let mut effects = Vec::new();
        let result = act(&mut self.session, self.now, &mut effects);
        self.session.check();
        (result, effects)
    }

    fn handle(&mut self, event: Event) -> Vec<Effect> {
        self.act(|session, now, effects| session.handle(now, event, effects)).1
    }

    fn submit(&mut self, call: Call) -> (TaskId, Vec<Effect>) {
        self.act(|session, now, effects| session.submit(now, call, None, effects))
    }

    /// A plain task that waits for a lease.
    fn task(&mut self) -> TaskId {
        self.submit(call(options())).0
    }

    fn runs_at(&self, task: TaskId, worker: ProcessId) -> bool {
        self.session.tasks[&task.seq].stage == Stage::Placed { worker }
    }

    fn granted(&mut self, lease: u64, worker: u32) -> Vec<Effect> {
        let (lease, worker) = (LeaseId(lease), process(worker));
        self.handle(Event::LeaseGranted { lease, key: 0, worker, gpus: vec![] })
    }

    fn reply_with(&mut self, worker: u32, header: ReplyHeader, values: &[Returned]) -> Vec<Effect> {
        let mut bytes = header.encode(values.len()).to_vec();
        encode_returned(values, &mut bytes);
        let reply = ReplyView::parse(&bytes).unwrap();
        let worker = process(worker);
        let reply = |session: &mut SessionMachine, now, effects: &mut Vec<Effect>| {
            session.on_reply(now, worker, &reply, effects)
        };
        let (result, effects) = self.act(reply);
        result.unwrap();
        effects
    }

    fn reply(&mut self, worker: u32, task: TaskId, values: &[Returned]) -> Vec<Effect> {
        self.reply_with(worker, header(task.seq, ReplyKind::Finished, 0), values)
    }

    fn gone(&mut self, worker: u32, unstarted: &[u64]) -> Vec<Effect> {
        let (process, obituary) = (process(worker), died(worker));
        self.handle(Event::ProcessGone { process, obituary, unstarted: unstarted.to_vec() })
    }

    fn revoked(&mut self, worker: u32, seqs: &[u64], kept: &[u64]) -> Vec<Effect> {
        let (seqs, kept) = (seqs.to_vec(), kept.to_vec());
        self.handle(Event::Revoked { worker: process(worker), seqs, kept })
    }

    fn drop_ref(&mut self, object: ObjectId) -> Vec<Effect> {
        let drop_as_clients_do = |session: &mut SessionMachine, now, effects: &mut Vec<Effect>| {
            if !session.drop_quietly(&object) {
                session.drop_ref(now, object, effects);
            }
        };
        self.act(drop_as_clients_do).1
    }

    fn later(&mut self, time: Duration) -> Vec<Effect> {
        self.now = self.now + time;
        self.handle(Event::Tick)
    }

    fn flushed(&mut self) -> Vec<Notice> {
        let effects = self.act(|session, _, effects| session.flush(effects)).1;
        let lists = effects.into_iter().map(|effect| match effect {
            Effect::Node(ToNode::Notices(notices)) => notices,
            other => panic!("{other:?}"),
        });
        lists.flatten().collect()
    }

    fn put(&mut self, contains: &[ObjectId]) -> ObjectId {
        self.session.put_inline(inline(b"put"), contains)
    }

    /// A large value in this process's own extent.
    fn put_stored(&mut self, slot: u32, contains: &[ObjectId]) -> ObjectId {
        let object = self.session.next_put();
        let location = place(slot);
        self.act(|session, now, effects| {
            session.put_stored(now, object, location, contains, effects);
        });
        object
    }

    fn kind_of(&self, object: ObjectId) -> FailureKind {
        match self.session.value(object) {
            Some(Value::Failed(failure)) => failure.kind,
            other => panic!("{object} is {other:?}"),
        }
    }

    fn text_of(&self, object: ObjectId) -> String {
        match self.session.value(object) {
            Some(Value::Failed(failure)) => failure.text(),
            other => panic!("{object} is {other:?}"),
        }
    }
}

fn header(seq: u64, kind: ReplyKind, attempt: u32) -> ReplyHeader {
    ReplyHeader { kind, flags: 0, attempt, seq, started_ns: 0, ran_ns: 1000, index: 0 }
}

fn create() -> CreateActor {
    CreateActor {
        class_name: "A".to_string(),
        name: String::new(),
        namespace: String::new(),
        detached: false,
        get_if_exists: false,
        shape: shape(),
        held: ResourceSet::new(),
        max_restarts: 0,
        checkpoints: None,
        handle: vec![],
        request: 0,
    }
}

/// Named in a notice or message.
fn mentions(effects: &[Effect], object: ObjectId) -> bool {
    effects.iter().any(|effect| format!("{effect:?}").contains(&format!("{object:?}")))
}

fn actor_of(owner: u32, seq: u64) -> ActorId {
    ActorId(TaskId { owner: process(owner), seq })
}
