//! The hot paths, step by step, as an owner and a worker take them. (Where two do the same, a black box
//! keeps the compiler from making one function of them.)

use std::hint::black_box;
use std::sync::Arc;

use hoplo_base::{ActorId, ObjectId, ResourceSet, TaskId};
use hoplo_client::{Call, CallOptions, Client, Content, IncomingCall, Waited, Work};
use hoplo_shm::{CallerEnd, Channel, WorkerEnd};
use hoplo_wire::Value;
use hoplo_wire::call::CallView;
use hoplo_wire::reply::{ReplyHeader, ReplyKind, Returned};

use crate::daemon;
use crate::node::{self, DRIVER};

/// Rounds that are counted, after as many that are not.
pub const ROUNDS: u64 = 1000;

/// As long as an encoded int.
const VALUE: [u8; 5] = [7; 5];

pub fn run() {
    let mut stages = Stages::new();
    for _ in 0..ROUNDS {
        stages.round();
    }
    counted_rounds(&mut stages);
    // The clients' threads and the node's go with the process.
    std::process::exit(0);
}

#[inline(never)]
fn counted_rounds(stages: &mut Stages) {
    for _ in 0..ROUNDS {
        black_box(&mut *stages).round();
    }
}

struct Stages {
    caller: CallerEnd,
    callee: WorkerEnd,
    driver: Arc<Client>,
    worker: Arc<Client>,
    actor: Arc<Client>,
    options: Arc<CallOptions>,
    actor_id: ActorId,
}

impl Stages {
    fn new() -> Stages {
        let (caller, channel) = Channel::create(1 << 18, 1 << 18).unwrap();
        let callee = Channel::open_worker(&channel).unwrap();
        let [driver, worker, actor] = node::clients();
        let resources = ResourceSet::from_units([("CPU", 1.0)]).unwrap();
        let options = daemon::call_options(resources, 3);
        let actor_id = ActorId(TaskId { owner: node::ACTOR, seq: 1 });
        driver.add_ref(actor_id.handle());
        drop(driver.allocate(1, &mut || false).unwrap()); // from now on there is room
        let mut stages = Stages { caller, callee, driver, worker, actor, options, actor_id };
        // The first calls wait for a lease, for the actor, and to be joined.
        let task = stages.submit();
        reply(&stages.worker, taken(Some(stages.worker.wait_work())));
        stages.take_result(task.object(0));
        let task = stages.submit_method();
        reply(&stages.actor, taken(Some(stages.actor.wait_work())));
        stages.take_result(task.object(0));
        stages
    }

    fn round(&mut self) {
        counted_ring_write(&mut self.caller);
        counted_ring_read(&mut self.callee);

        let task = counted_submit(self);
        let call = counted_execute_take(&self.worker);
        counted_execute_reply(&self.worker, call);
        counted_get_wait(&self.driver, task.object(0));
        counted_get_read(&self.driver, task.object(0));
        counted_ref_drop(&self.driver, task.object(0));

        let task = counted_method_submit(self);
        reply(&self.actor, taken(self.actor.next_work()));
        counted_method_get(self, task.object(0));

        let object = counted_put(&self.driver);
        counted_get_put(&self.driver, object);
        self.driver.drop_ref(object);

        let object = counted_put_stored(&self.driver);
        counted_get_stored(&self.driver, object);
        counted_ref_drop_stored(&self.driver, object);
    }

    fn call(&self) -> Call {
        let options = self.options.clone();
        Call { options, args: VALUE.to_vec(), refs: vec![], nested: vec![], packed: false }
    }

    fn submit(&mut self) -> TaskId {
        self.driver.submit(self.call(), None)
    }

    fn submit_method(&mut self) -> TaskId {
        self.driver.submit_method(self.actor_id, self.call(), None).unwrap()
    }

    fn take_result(&self, object: ObjectId) {
        assert_eq!(self.driver.wait(&[object], 1, None), Waited::Ready);
        assert!(matches!(self.driver.read(object), Some(Content::Inline(_))));
        self.driver.drop_ref(object);
    }
}

fn reply(worker: &Client, call: IncomingCall) {
    let header = CallView::parse(&call.frame).unwrap().header;
    let reply = ReplyHeader {
        kind: ReplyKind::Finished,
        flags: 0,
        attempt: header.attempt,
        seq: call.tag,
        started_ns: 1,
        ran_ns: 100,
        index: 0,
    };
    let returned = Returned { value: Value::Inline(VALUE.into()), contains: vec![] };
    worker.reply(DRIVER, header.task, reply, &[returned]);
}

fn taken(work: Option<Work>) -> IncomingCall {
    match work {
        Some(Work::Call(call)) => call,
        _ => panic!("a call lies in the ring"),
    }
}

#[inline(never)]
fn counted_ring_write(caller: &mut CallerEnd) {
    let (header, args) = ([1; 64], black_box(VALUE));
    caller.calls.try_write(1, &[&header, &args]).unwrap();
}

#[inline(never)]
fn counted_ring_read(callee: &mut WorkerEnd) {
    let frame = callee.calls.next().unwrap().unwrap();
    black_box(frame.bytes());
}

/// With what it takes to make the call.
#[inline(never)]
fn counted_submit(stages: &mut Stages) -> TaskId {
    stages.submit()
}

#[inline(never)]
fn counted_execute_take(worker: &Client) -> IncomingCall {
    taken(worker.next_work())
}

#[inline(never)]
fn counted_execute_reply(worker: &Client, call: IncomingCall) {
    reply(worker, call);
}

/// The reply is there: it is drained, and the object is ready.
#[inline(never)]
fn counted_get_wait(driver: &Client, object: ObjectId) {
    assert_eq!(driver.wait(&[object], 1, None), Waited::Ready);
}

#[inline(never)]
fn counted_get_read(driver: &Arc<Client>, object: ObjectId) {
    assert!(matches!(driver.read(object), Some(Content::Inline(_))));
}

#[inline(never)]
fn counted_ref_drop(driver: &Client, object: ObjectId) {
    driver.drop_ref(object);
}

#[inline(never)]
fn counted_method_submit(stages: &mut Stages) -> TaskId {
    stages.submit_method()
}

/// Wait, read, drop.
#[inline(never)]
fn counted_method_get(stages: &mut Stages, object: ObjectId) {
    stages.take_result(object);
}

#[inline(never)]
fn counted_put(driver: &Client) -> ObjectId {
    driver.put(&VALUE, &[])
}

#[inline(never)]
fn counted_get_put(driver: &Arc<Client>, object: ObjectId) {
    black_box("get put");
    assert!(matches!(driver.read(object), Some(Content::Inline(_))));
}

/// But for the copy.
#[inline(never)]
fn counted_put_stored(driver: &Arc<Client>) -> ObjectId {
    let allocation = driver.allocate_warm(1 << 16).unwrap();
    driver.put_allocated(allocation, &[])
}

/// Pinned and let go.
#[inline(never)]
fn counted_get_stored(driver: &Arc<Client>, object: ObjectId) {
    assert!(matches!(driver.read(object), Some(Content::Stored(_))));
}

#[inline(never)]
fn counted_ref_drop_stored(driver: &Client, object: ObjectId) {
    black_box("ref drop stored");
    driver.drop_ref(object);
}
