//! The client: one per process. What user threads call.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hoplo_base::{ActorId, FunctionId, Instant as Time, Map, ObjectId, ProcessId, TaskId, limits};
use hoplo_core::session::{CreateActor, Effect, Event, Session, StreamNext as Next};
use hoplo_shm::{Arena, PinError, Segment, Urgency, WriteError};
use hoplo_wire::node::{ActorCreated, KvOperation, Role, ToClient, ToNode, Welcome};
use hoplo_wire::{Failure, FailureKind, Location, PROTOCOL_VERSION, Value};
use parking_lot::Mutex;

use crate::daemon::{self, Reader, Requests, Writer};
use crate::peers::{Outbound, slot_of};
use crate::store::{Room, Store};
use crate::work::Worker;
use crate::{ActorCreate, Call, Content, FoundActor, Hooks, Pinned, StreamNext, SubmitError};

pub struct Client {
    pub(crate) welcome: Welcome,
    pub(crate) segment: Arc<Segment>,
    pub(crate) arena: Arc<Arena>,
    /// The session lock.
    pub(crate) core: Mutex<Core>,
    pub(crate) store: Mutex<Store>,
    pub(crate) requests: Mutex<Requests>,
    /// What a worker has beside: other processes' calls.
    pub(crate) worker: Worker,
    pub(crate) hooks: Box<dyn Hooks>,
    pub(crate) is_worker: bool,
    pub(crate) gone: OnceLock<Failure>,
    pub(crate) closing: AtomicBool,
    /// The thread that reads the daemon's socket has ended.
    pub(crate) node_ended: Latch,
    threads: Mutex<Vec<JoinHandle<()>>>,
    start: Instant,
}

/// Opens once.
#[derive(Default)]
pub(crate) struct Latch {
    open: Mutex<bool>,
    opened: parking_lot::Condvar,
}

impl Latch {
    pub(crate) fn open(&self) {
        *self.open.lock() = true;
        self.opened.notify_all();
    }

    /// False if it is still shut at `deadline`.
    fn wait_until(&self, deadline: Instant) -> bool {
        let mut open = self.open.lock();
        while !*open {
            if self.opened.wait_until(&mut open, deadline).timed_out() {
                return *open;
            }
        }
        true
    }
}

/// What the session lock guards.
pub(crate) struct Core {
    pub(crate) session: Session,
    pub(crate) effects: Vec<Effect>,
    pub(crate) peers: Map<ProcessId, Outbound>,
    /// Peers with calls that found their ring full.
    pub(crate) overflowing: usize,
    pub(crate) writer: Writer,
    watches: Map<u64, Callback>,
    /// Callbacks that are due, for the progress thread.
    pub(crate) due: Vec<Callback>,
    /// Threads that wait for objects here, and drain replies while they do.
    pub(crate) waiters: usize,
    /// What the progress thread is awake for.
    pub(crate) progress: Progress,
    /// An object of ours was freed: there may be room to give back.
    freed: bool,
    /// When it wakes by itself.
    pub(crate) timer: Option<Time>,
    /// When free room in the store is given back if none was used until then.
    pub(crate) cool_at: Option<Time>,
    /// Items that the readers of our streams have taken.
    pub(crate) streams: Map<TaskId, u32>,
    /// The task that runs here: parent of what is submitted meanwhile.
    pub(crate) running: Option<TaskId>,
}

pub(crate) type Callback = Box<dyn FnOnce() + Send>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Progress {
    /// Asleep until it is rung.
    Idle,
    /// Asleep until a deadline of the session.
    Timer,
    /// Drains replies.
    Drain,
}

/// Room in the store that is being written; freed on drop unless it was put.
pub struct Allocation {
    client: Arc<Client>,
    room: Option<Room>,
    address: usize,
    len: usize,
}

/// The old value (of a get, or of a put that did not overwrite), and the keys (of a listing).
pub type KvAnswer = (Option<Vec<u8>>, Vec<Vec<u8>>);

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the node daemon refused: {0}")]
    Refused(String),
    #[error("the node daemon does not answer: {0}")]
    Io(#[from] std::io::Error),
}

/// No room in the object store.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Says who holds what and what may be done.
    #[error("{0}")]
    Full(String),
    #[error("{0}")]
    NodeDied(String),
}

/// A reply's round trip through the daemon is bounded by its own deadlines; this only guards against a
/// daemon that is stopped or stuck.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// How long `close` listens to the daemon's last words.
const CLOSE_MAX: Duration = Duration::from_secs(2);

impl Client {
    /// Says Hello on a connected unix socket and waits for the Welcome. Starts the helper threads.
    pub fn connect(
        socket: OwnedFd,
        role: Role,
        hooks: Box<dyn Hooks>,
    ) -> Result<Arc<Client>, ConnectError> {
        let (mut writer, mut reader) = daemon::open(socket)?;
        let is_worker = role == Role::Worker;
        writer.send(&ToNode::Hello {
            protocol: PROTOCOL_VERSION,
            version: env!("CARGO_PKG_VERSION").to_string(),
            pid: std::process::id(),
            role,
        });
        let welcome = match reader.receive()? {
            ToClient::Welcome(welcome) => welcome,
            ToClient::Refused { reason } => return Err(ConnectError::Refused(reason)),
            other => return Err(ConnectError::Refused(format!("unexpected answer {other:?}"))),
        };
        let segment = Segment::open(reader.take_fd()?).map_err(std::io::Error::other)?;
        let arena =
            Arena::open(reader.take_fd()?, welcome.arena_bytes).map_err(std::io::Error::other)?;
        let me = welcome.process;
        let slots = welcome.slots.clone();
        let store = Store::new(segment.clone(), arena.clone(), slot_of(me), slots);
        let core = Core {
            session: Session::new(me, welcome.job),
            effects: Vec::new(),
            peers: Map::default(),
            overflowing: 0,
            writer,
            watches: Map::default(),
            due: Vec::new(),
            waiters: 0,
            progress: Progress::Idle,
            freed: false,
            timer: None,
            cool_at: None,
            streams: Map::default(),
            running: None,
        };
        let client = Arc::new(Client {
            welcome,
            segment,
            arena,
            core: Mutex::new(core),
            store: Mutex::new(store),
            requests: Mutex::default(),
            worker: Worker::default(),
            hooks,
            is_worker,
            gone: OnceLock::new(),
            closing: AtomicBool::new(false),
            node_ended: Latch::default(),
            threads: Mutex::default(),
            start: Instant::now(),
        });
        client.spawn_threads(reader)?;
        Ok(client)
    }

    fn spawn_threads(self: &Arc<Self>, reader: Reader) -> std::io::Result<()> {
        let (node, progress) = (self.clone(), self.clone());
        let threads = [
            spawn("hoplo-node", move || {
                node.node_loop(reader);
                node.node_ended.open();
            })?,
            spawn("hoplo-progress", move || progress.progress_loop())?,
        ];
        self.threads.lock().extend(threads);
        Ok(())
    }

    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// The daemon's obituary once it is gone.
    pub fn daemon_gone(&self) -> Option<Failure> {
        self.gone.get().cloned()
    }

    /// Flushes what is owed to the daemon, closes the socket, joins the helper threads. Every later call
    /// fails with `NodeDied`.
    pub fn close(&self) {
        if self.closing.swap(true, Ordering::AcqRel) {
            return;
        }
        {
            let mut core = self.core.lock();
            let core = &mut *core;
            core.session.flush(&mut core.effects);
            self.carry_out(core);
            let counted = ToNode::Counted(core.session.take_counters());
            core.writer.send(&counted);
            // Before the daemon hears of it: then it silences our bell for the slot's next owner.
            self.own_bell(Urgency::Must);
            core.writer.finish();
        }
        // The daemon says what is left to say (the workers' last lines), then closes.
        let (ended, patience) = (&self.node_ended, Instant::now() + CLOSE_MAX);
        if !ended.wait_until(patience) {
            self.core.lock().writer.shutdown();
        }
        let me = std::thread::current().id();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A callback may close: a thread cannot join itself.
            if thread.thread().id() != me {
                thread.join().expect("helper threads do not panic");
            }
        }
    }

    pub(crate) fn now(&self) -> Time {
        Time(self.start.elapsed().as_nanos() as u64)
    }

    /// Runs `change` on the session and carries out what it decides.
    pub(crate) fn with<R>(
        &self,
        change: impl FnOnce(&mut Session, Time, &mut Vec<Effect>) -> R,
    ) -> R {
        let now = self.now();
        let mut core = self.core.lock();
        let core = &mut *core;
        let result = change(&mut core.session, now, &mut core.effects);
        if !core.effects.is_empty() {
            self.carry_out(core);
        }
        self.arm(core);
        result
    }

    /// Effects in order, and those of the events that they lead to.
    pub(crate) fn carry_out(&self, core: &mut Core) {
        let mut rung: Vec<ProcessId> = Vec::new();
        let mut fired = false;
        while !core.effects.is_empty() {
            for effect in std::mem::take(&mut core.effects) {
                match effect {
                    Effect::Place { worker, seq } => {
                        if self.place(core, worker, seq) && rung.last() != Some(&worker) {
                            rung.push(worker);
                        }
                    }
                    Effect::Revoke { worker, seqs } => self.revoke(core, worker, &seqs),
                    Effect::Node(message) => core.writer.send(&message),
                    Effect::FreeStored { object, location } => {
                        let freed = self.store.lock().free_private(location);
                        let now = self.now();
                        if freed {
                            core.session.freed(now, object, &mut core.effects);
                            core.freed = true;
                        } else {
                            core.session.free_refused(now, object, &mut core.effects);
                        }
                    }
                    Effect::Fire { watch } => {
                        let callback = core.watches.remove(&watch);
                        fired |= callback.is_some();
                        core.due.extend(callback);
                    }
                    Effect::Warn { line } => self.hooks.warn(&line),
                }
            }
        }
        if fired {
            self.own_bell(Urgency::Must); // the progress thread may sleep until a reply comes
        }
        if std::mem::take(&mut core.freed) {
            self.trim(core); // only now: it flushes, and earlier notices of this batch go first
        }
        for worker in rung {
            if let Some(peer) = core.peers.get(&worker) {
                peer.wake(&self.segment);
            }
        }
    }

    /// Free room beyond what is worth keeping warm goes back to the node.
    pub(crate) fn trim(&self, core: &mut Core) {
        let pieces = self.store.lock().surplus();
        self.return_room(core, pieces);
        if core.cool_at.is_none() {
            core.cool_at = Some(self.now() + limits::WARM_TIME);
        }
    }

    /// The daemon hears first that what lay there is gone.
    pub(crate) fn return_room(&self, core: &mut Core, pieces: Vec<(u64, u64)>) {
        if pieces.is_empty() {
            return;
        }
        core.session.flush(&mut core.effects);
        self.carry_out(core);
        for (offset, len) in pieces {
            core.writer.send(&ToNode::ExtentReturn { offset, len });
        }
    }

    /// Writes a call into its ring; true if the worker is to be rung.
    fn place(&self, core: &mut Core, worker: ProcessId, seq: u64) -> bool {
        let Core { session, peers, writer, overflowing, .. } = core;
        let peer = peers.entry(worker).or_insert_with(|| {
            let (peer, fd) = Outbound::create(worker).expect("a memfd of 512 KiB can be made");
            writer.send_with(&ToNode::Connect { to: worker }, &[fd.as_fd()]);
            peer
        });
        if !peer.overflow.is_empty() {
            peer.overflow.push_back(seq);
            return false;
        }
        let Some(frame) = session.frame(seq) else { return false };
        match peer.write(seq, &[&frame.header, frame.args, &frame.extra, frame.refs]) {
            Ok(()) => true,
            Err(WriteError::Full { .. }) => {
                peer.overflow.push_back(seq);
                *overflowing += 1;
                true
            }
            Err(error @ (WriteError::FrameTooLarge { .. } | WriteError::Corrupt(_))) => {
                panic!("a call does not fit its ring: {error}")
            }
        }
    }

    /// Calls that found a ring full are tried again.
    pub(crate) fn refill(&self, core: &mut Core) {
        if core.overflowing == 0 {
            return;
        }
        let Core { session, peers, overflowing, .. } = core;
        let mut full: Vec<&mut Outbound> =
            peers.values_mut().filter(|peer| !peer.overflow.is_empty()).collect();
        for peer in &mut full {
            let mut wrote = false;
            while let Some(seq) = peer.overflow.front().copied() {
                if let Some(frame) = session.frame(seq) {
                    let parts = [&frame.header, frame.args, &frame.extra, frame.refs];
                    if peer.write(seq, &parts).is_err() {
                        break;
                    }
                    wrote = true;
                }
                peer.overflow.pop_front();
            }
            if peer.overflow.is_empty() {
                *overflowing -= 1;
            }
            if wrote {
                peer.wake(&self.segment);
            }
        }
    }

    fn revoke(&self, core: &mut Core, worker: ProcessId, asked: &[u64]) {
        let mut seqs = Vec::new();
        let mut kept = Vec::new();
        if let Some(peer) = core.peers.get_mut(&worker) {
            let overflowed = !peer.overflow.is_empty();
            // From the back, so that nothing is started out of order meanwhile.
            for seq in asked.iter().rev() {
                if peer.revoke(*seq) { seqs.push(*seq) } else { kept.push(*seq) }
            }
            if overflowed && peer.overflow.is_empty() {
                core.overflowing -= 1;
            }
        }
        seqs.reverse();
        let event = Event::Revoked { worker, seqs, kept };
        core.session.handle(self.now(), event, &mut core.effects);
    }

    // ---- values ----

    /// A value of at most `INLINE_BYTES_MAX`; the caller owns one reference. `contains`: refs that
    /// lie inside.
    pub fn put(&self, bytes: &[u8], contains: &[ObjectId]) -> ObjectId {
        let value = Value::Inline(bytes.into());
        self.core.lock().session.put_inline(value, contains)
    }

    /// Room in the store. May wait for the daemon: call it without the GIL when `len` is not at hand
    /// (`allocate_warm` never waits).
    pub fn allocate(self: &Arc<Self>, len: usize) -> Result<Allocation, StoreError> {
        loop {
            if let Some(allocation) = self.allocate_warm(len) {
                return Ok(allocation);
            }
            let slots = self.store.lock().slots_short();
            let bytes = (len as u64).max(1).next_multiple_of(limits::OBJECT_ALIGN);
            let answer = self.ask(None, |request| ToNode::ExtentWant { request, bytes, slots });
            match answer {
                // The node loop has put it into the store.
                Some(ToClient::ExtentGranted { .. }) => {}
                Some(ToClient::ExtentDenied { reason, .. }) => {
                    return Err(StoreError::Full(reason));
                }
                _ => return Err(StoreError::NodeDied(self.died().text())),
            }
        }
    }

    pub fn allocate_warm(self: &Arc<Self>, len: usize) -> Option<Allocation> {
        let mut room = self.store.lock().allocate(len as u64)?;
        let address = room.claim.as_mut_ptr() as usize;
        Some(Allocation { client: self.clone(), room: Some(room), address, len })
    }

    /// Seals it as a put of this process.
    pub fn put_allocated(&self, mut allocation: Allocation, contains: &[ObjectId]) -> ObjectId {
        let location = self.seal(&mut allocation);
        self.with(|session, now, effects| {
            let object = session.next_put();
            session.put_stored(now, object, location, contains, effects);
            object
        })
    }

    /// Seals it as the result `object` that belongs to `owner`; the value goes into a reply.
    pub fn seal_result(
        &self,
        object: ObjectId,
        owner: ProcessId,
        mut allocation: Allocation,
        contains: &[ObjectId],
    ) -> Value {
        let location = self.seal(&mut allocation);
        self.with(|session, now, effects| {
            session.result_stored(now, object, owner, location, contains, effects);
        });
        Value::Stored(location)
    }

    fn seal(&self, allocation: &mut Allocation) -> Location {
        let room = allocation.room.take().expect("an allocation is sealed once");
        self.store.lock().seal(room)
    }

    // ---- references: each Python ObjectRef owns one ----

    pub fn add_ref(&self, object: ObjectId) {
        self.core.lock().session.add_ref(object);
    }

    pub fn drop_ref(&self, object: ObjectId) {
        self.with(|session, now, effects| session.drop_ref(now, object, effects));
    }

    /// A ref leaves this process in a way that nobody follows (bytes that foreign code pickled): the daemon
    /// knows the object from now on.
    pub fn escape(&self, object: ObjectId) {
        self.with(|session, now, effects| session.mention_exported(now, &[object], effects));
    }

    // ---- reading ----

    /// The content if it is ready and readable here now; never waits. For a borrowed or spilled
    /// object that is not here, `None`: `wait` fetches it.
    pub fn read(self: &Arc<Self>, object: ObjectId) -> Option<Content> {
        let value = self.core.lock().session.value(object).cloned()?;
        match value {
            Value::Inline(bytes) => Some(Content::Inline(bytes)),
            Value::Failed(failure) => Some(Content::Failed(failure)),
            Value::Stored(location) => self.read_stored(object, location, false),
        }
    }

    /// A top-level argument that lies in the store, as its call frame says. `None`: it moved; then
    /// this process holds one reference: `wait` for it, `read` it, `drop_ref` it.
    pub fn argument(self: &Arc<Self>, object: ObjectId, location: Location) -> Option<Content> {
        let mut core = self.core.lock();
        if location == Location::ASK {
            core.session.add_ref(object);
            return None;
        }
        core.session.borrow_stored(object, location);
        drop(core);
        self.read_stored(object, location, true)
    }

    /// `counted`: the caller has a count of the object to give to the view.
    fn read_stored(
        self: &Arc<Self>,
        object: ObjectId,
        location: Location,
        counted: bool,
    ) -> Option<Content> {
        let pinned = self.store.lock().pin(location);
        match pinned {
            Ok(pin) => {
                if !counted {
                    self.core.lock().session.add_ref(object);
                }
                let (client, pin) = (self.clone(), Mutex::new(Some(pin)));
                let release = Box::new(move || {
                    // Once closed, our row of pins may be another process's.
                    let ours = !client.closing.load(Ordering::Acquire);
                    if let Some(pin) = pin.lock().take()
                        && ours
                    {
                        client.store.lock().unpin(pin);
                        client.drop_ref(object);
                    }
                });
                let arena = self.arena.clone();
                let (offset, len) = (location.offset, location.len);
                Some(Content::Stored(Arc::new(Pinned { arena, offset, len, release })))
            }
            Err(PinError::Stale { .. } | PinError::Closing { .. }) => {
                self.with(|session, _, effects| {
                    session.location_stale(object, location, effects);
                });
                None
            }
            Err(error @ PinError::TableFull) => {
                if counted {
                    self.drop_ref(object);
                }
                let failure = Failure::new(FailureKind::StoreFull, error.to_string());
                Some(Content::Failed(failure))
            }
        }
    }

    /// Runs `callback` on the progress thread once the object is ready (soon, if it is).
    pub fn on_ready(&self, object: ObjectId, callback: Box<dyn FnOnce() + Send>) {
        let mut core = self.core.lock();
        let core = &mut *core;
        match core.session.watch(object, &mut core.effects) {
            Some(watch) => {
                core.watches.insert(watch, callback);
            }
            None => core.due.push(callback),
        }
        self.carry_out(core);
        self.arm(core);
    }

    /// Why it is not ready, for the text of a timeout: `waits for task:1-2 of f (queued: needs GPU 1,
    /// node has 0)`.
    pub fn explain(&self, object: ObjectId) -> String {
        self.core.lock().session.explain(object)
    }

    // ---- calls ----

    /// Exports a pickled function or class of this job once; later calls with the same bytes are free.
    pub fn export(&self, bytes: &[u8], contains: &[ObjectId]) -> FunctionId {
        let hash = blake3::hash(bytes);
        let id: [u8; 16] = hash.as_bytes()[..16].try_into().expect("a hash has 32 bytes");
        let function = FunctionId(id);
        self.with(|session, now, effects| {
            if session.exports(function) {
                let contains = contains.to_vec();
                session.mention_exported(now, &contains, effects);
                let bytes = bytes.to_vec();
                effects.push(Effect::Node(ToNode::Export { function, bytes, contains }));
            }
        });
        function
    }

    /// The pickled function; waits for the daemon (no GIL). `None`: nobody exported it.
    pub fn fetch_function(&self, function: FunctionId) -> Option<Vec<u8>> {
        let receiver = self.worker.await_function(function);
        self.core.lock().writer.send(&ToNode::Fetch { function });
        receiver.recv().ok().flatten()
    }

    /// Submits a task. The caller owns one reference to each of its `returns` objects
    /// (`task.object(0..n)`).
    pub fn submit(&self, call: Call) -> TaskId {
        let now = self.now();
        let mut core = self.core.lock();
        let core = &mut *core;
        self.drain(core);
        let parent = core.running;
        let task = core.session.submit(now, call, parent, &mut core.effects);
        self.carry_out(core);
        self.arm(core);
        task
    }

    /// Submits a method call, in order with this process's other calls to the actor.
    pub fn submit_method(&self, actor: ActorId, call: Call) -> Result<TaskId, SubmitError> {
        let now = self.now();
        let mut core = self.core.lock();
        let core = &mut *core;
        self.drain(core);
        let parent = core.running;
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
            Next::Pending => StreamNext::Pending,
            Next::End => StreamNext::End,
        }
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

    // ---- actors ----

    /// The caller owns one reference to the handle (`actor.handle()`), which `add_ref`/`drop_ref` count.
    /// Waits for the daemon only for named actors (no GIL). Err: the name is taken.
    pub fn create_actor(&self, create: ActorCreate) -> Result<FoundActor, String> {
        let asks = !create.name.is_empty();
        let mut answer = None;
        let mut request = 0;
        if asks {
            let (number, receiver) = self.requests.lock().open();
            request = number;
            answer = Some(receiver);
        }
        let handle = create.handle.clone();
        let record = CreateActor {
            class_name: create.class_name,
            name: create.name,
            namespace: create.namespace,
            detached: create.detached,
            get_if_exists: create.get_if_exists,
            shape: create.shape,
            held: create.held,
            max_restarts: create.max_restarts,
            handle: create.handle,
            request,
        };
        let actor = self
            .with(|session, now, effects| session.create_actor(now, create.call, record, effects));
        let Some(answer) = answer else { return Ok(FoundActor { actor, handle }) };
        let result = match answer.recv() {
            Ok(ToClient::ActorCreated { result, .. }) => result,
            _ => Err(self.died().text()),
        };
        match result {
            Ok(ActorCreated::New) => Ok(FoundActor { actor, handle }),
            Ok(ActorCreated::Existing(found)) => {
                self.with(|session, now, effects| {
                    session.creation_refused(now, actor, effects);
                    session.actor_found(found.actor);
                });
                Ok(FoundActor { actor: found.actor, handle: found.handle })
            }
            Err(reason) => {
                self.with(|session, now, effects| session.creation_refused(now, actor, effects));
                Err(reason)
            }
        }
    }

    /// Waits for the daemon (no GIL).
    pub fn lookup_actor(&self, namespace: &str, name: &str) -> Option<FoundActor> {
        let (namespace, name) = (namespace.to_string(), name.to_string());
        let answer =
            self.ask(Some(ANSWER_MAX), |request| ToNode::ActorLookup { request, namespace, name });
        let Some(ToClient::ActorFound { found: Some(found), .. }) = answer else { return None };
        self.core.lock().session.actor_found(found.actor);
        Some(FoundActor { actor: found.actor, handle: found.handle })
    }

    pub fn kill_actor(&self, actor: ActorId, no_restart: bool) {
        self.with(|session, _, effects| {
            if no_restart {
                session.actor_killed(actor);
            }
            effects.push(Effect::Node(ToNode::ActorKill { actor, no_restart }));
        });
    }

    // ---- asking the daemon (all wait: no GIL) ----

    pub fn query(&self, kind: &str, argument: &str, timeout: Duration) -> Result<String, String> {
        let (kind, argument) = (kind.to_string(), argument.to_string());
        let answer = self.ask(Some(timeout), |request| ToNode::Query { request, kind, argument });
        match answer {
            Some(ToClient::Answer { result, .. }) => result,
            _ if self.gone.get().is_some() => Err(self.died().text()),
            _ => Err(format!("the node daemon did not answer within {timeout:?}")),
        }
    }

    /// The old value (Get, Put without overwrite), or the keys.
    pub fn kv(&self, namespace: &str, operation: KvOperation) -> Result<KvAnswer, Failure> {
        let namespace = namespace.to_string();
        let answer =
            self.ask(Some(ANSWER_MAX), |request| ToNode::Kv { request, namespace, operation });
        match answer {
            Some(ToClient::KvAnswer { value, keys, .. }) => Ok((value, keys)),
            _ => Err(self.died()),
        }
    }

    pub fn stop_node(&self) {
        self.core.lock().writer.send(&ToNode::Stop);
    }

    /// `None`: the daemon is gone, or the time is up.
    fn ask(
        &self,
        timeout: Option<Duration>,
        message: impl FnOnce(u64) -> ToNode,
    ) -> Option<ToClient> {
        let (request, receiver): (u64, Receiver<ToClient>) = self.requests.lock().open();
        {
            let mut core = self.core.lock();
            let core = &mut *core;
            core.session.flush(&mut core.effects);
            self.carry_out(core);
            core.writer.send(&message(request));
        }
        match timeout {
            None => receiver.recv().ok(),
            Some(timeout) => match receiver.recv_timeout(timeout) {
                Ok(answer) => Some(answer),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    self.requests.lock().forget(request);
                    None
                }
            },
        }
    }

    pub(crate) fn died(&self) -> Failure {
        self.gone.get().cloned().unwrap_or_else(|| {
            Failure::new(FailureKind::NodeDied, "the connection to the node daemon is closed")
        })
    }
}

impl Allocation {
    /// 64-byte aligned, writable memory in the arena.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.address as *mut u8
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Some(room) = self.room.take() {
            self.client.store.lock().abandon(room);
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_string()).stack_size(512 * 1024).spawn(run)
}
