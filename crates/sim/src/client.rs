//! A process: its session machine, and a shell that does with it what the real one does.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use hoplo_base::{ActorId, Instant, JobId, ObjectId, ProcessId, TaskId};
use hoplo_core::session::{Effect, Event, SessionMachine};
use hoplo_core::worker::{BecomeActor, Worker};
use hoplo_wire::node::{ActorCreated, Tell, ToClient, ToNode};
use hoplo_wire::reply::{ReplyKind, ReplyView};
use hoplo_wire::{FailureKind, Location, Value};

use crate::asks::{Asked, Asks};
use crate::cluster::{Cluster, Step};
use crate::fiber::Fiber;
use crate::memory::{Extents, decode_content};
use crate::network::{Call, Outbound};

/// What the daemon said to a process that wanted room.
#[derive(Clone, Copy, Debug)]
pub enum Answered {
    Extent,
    /// For one object, in the spill file.
    File {
        offset: u64,
        slot: u32,
    },
    Denied(FailureKind),
}

pub struct Client {
    pub id: ProcessId,
    pub job: JobId,
    pub is_driver: bool,
    /// It runs our code.
    pub alive: bool,
    /// A driver whose program is over.
    pub finished: bool,
    pub session: SessionMachine,
    /// Written to the daemon and not read.
    pub up: VecDeque<ToNode>,
    pub down: VecDeque<ToClient>,
    pub extents: Extents,
    pub outbound: BTreeMap<ProcessId, Outbound>,
    /// What waits in the background, by watch.
    pub watches: BTreeMap<u64, ObjectId>,
    views: BTreeMap<u64, (ObjectId, Location)>,
    pub next_view: u64,
    /// What its threads do: one, or several in an actor with concurrent calls.
    pub fibers: BTreeMap<u64, Fiber>,
    pub next_fiber: u64,
    pub worker: Worker<()>,
    pub actor: Option<Instance>,
    /// Which thread is about to write a reply that brings tokens, by caller.
    pub replying: BTreeMap<ProcessId, u64>,
    pub asks: Asks,
    /// Of the daemon, as people do.
    pub asked: Asked,
    /// What it was asked and answers later, by round.
    pub inspections: BTreeMap<u64, ToClient>,
    /// Answers to requests for room.
    pub rooms: BTreeMap<u64, Answered>,
    woken: bool,
    draining: bool,
    tick_at: Option<Instant>,
}

/// What an actor keeps.
pub struct Instance {
    pub actor: ActorId,
    pub kept: Vec<ObjectId>,
    pub constructed: bool,
    /// Calls that run at a time.
    pub concurrency: usize,
}

impl Client {
    fn new(id: ProcessId, job: JobId, is_driver: bool) -> Self {
        Self {
            id,
            job,
            is_driver,
            alive: true,
            finished: false,
            session: SessionMachine::new(id, job),
            up: VecDeque::new(),
            down: VecDeque::new(),
            extents: Extents::default(),
            outbound: BTreeMap::new(),
            watches: BTreeMap::new(),
            views: BTreeMap::new(),
            next_view: 0,
            fibers: BTreeMap::new(),
            next_fiber: 0,
            worker: Worker::default(),
            actor: None,
            replying: BTreeMap::new(),
            asks: Asks::default(),
            asked: Asked::default(),
            inspections: BTreeMap::new(),
            rooms: BTreeMap::new(),
            woken: false,
            draining: false,
            tick_at: None,
        }
    }

    pub fn driver(id: ProcessId, job: JobId, program: u64) -> Self {
        let mut client = Self::new(id, job, true);
        client.fibers.insert(0, Fiber::driver(program));
        client
    }

    pub fn worker(id: ProcessId, job: JobId) -> Self {
        Self::new(id, job, false)
    }

    pub fn is_waiting(&self) -> bool {
        self.fibers.values().any(|fiber| fiber.wait.is_some())
    }

    fn must_drain(&self) -> bool {
        self.session.needs_progress()
            || self.is_waiting()
            || (self.worker.is_leaving() && self.session.unfinished() > 0)
    }

    pub fn whats_up(&self) -> String {
        let mut text = format!(
            "{}{}: up {}, down {}\n",
            self.id,
            if self.worker.is_leaving() { " (leaving)" } else { "" },
            self.up.len(),
            self.down.len()
        );
        for fiber in self.fibers.values() {
            text += &format!("  runs {fiber}\n");
            for object in fiber.awaited() {
                text += &format!("    {object}: {}\n", self.session.explain(object));
            }
        }
        for line in self.session.task_lines(20) {
            text += &format!("  {} {} {}: {}\n", line.task, line.stage, line.attempt, line.reason);
        }
        text
    }
}

impl Cluster {
    pub fn client(&mut self, id: ProcessId) -> &mut Client {
        self.clients.get_mut(&id).expect("processes are never forgotten")
    }

    /// Runs `change` on the session and carries out what it decides.
    pub fn session<R>(
        &mut self,
        id: ProcessId,
        change: impl FnOnce(&mut SessionMachine, Instant, &mut Vec<Effect>) -> R,
    ) -> R {
        let now = self.now;
        let mut effects = Vec::new();
        let result = change(&mut self.client(id).session, now, &mut effects);
        self.carry_out(id, effects);
        self.arm(id);
        result
    }

    fn carry_out(&mut self, id: ProcessId, mut effects: Vec<Effect>) {
        let mut rounds = 0;
        while !effects.is_empty() {
            rounds += 1;
            assert!(rounds < 1000, "{id} never stops: {effects:?}");
            for effect in std::mem::take(&mut effects) {
                match effect {
                    Effect::Place { worker, seq } => self.place(id, worker, seq),
                    Effect::Revoke { worker, seqs } => {
                        let (seqs, kept) = self.revoke(id, worker, &seqs);
                        self.count(if seqs.is_empty() {
                            "vain revocations"
                        } else {
                            "revocations"
                        });
                        self.note(|| {
                            format!("{id} takes back {seqs:?} from {worker}, not {kept:?}")
                        });
                        self.notes_revoked(id, worker, &seqs);
                        let event = Event::Revoked { worker, seqs, kept };
                        let now = self.now;
                        self.client(id).session.handle(now, event, &mut effects);
                    }
                    Effect::Node(message) => self.say(id, message),
                    Effect::FreeStored { object, location } => {
                        let ours = location.offset < self.plan.capacity_bytes;
                        let live = self.daemon.node.live_slots();
                        let freed = ours && self.memory.free_private(location, live);
                        self.note(|| format!("{id} frees {object} itself: {freed}"));
                        let now = self.now;
                        let client = self.client(id);
                        if freed {
                            client.extents.reclaim(location);
                            client.session.freed(now, object, &mut effects);
                        } else {
                            client.session.free_refused(now, object, &mut effects);
                        }
                    }
                    Effect::Fire { watch } => self.fired(id, watch),
                    Effect::CreationFailed { request } => {
                        let result = Ok(ActorCreated::New);
                        self.answered(id, ToClient::ActorCreated { request, result });
                    }
                    Effect::Warn { line } => self.note(|| format!("{id} warns: {line}")),
                    Effect::ReturnMemory => {}
                }
            }
        }
    }

    /// What lies in its socket for the daemon.
    pub fn written_by(&mut self, id: ProcessId) -> &mut VecDeque<ToNode> {
        match self.questions.tools.get_mut(&id) {
            Some(tool) => &mut tool.up,
            None => &mut self.clients.get_mut(&id).expect("it is connected").up,
        }
    }

    /// And from the daemon.
    pub fn written_to(&mut self, id: ProcessId) -> &mut VecDeque<ToClient> {
        match self.questions.tools.get_mut(&id) {
            Some(tool) => &mut tool.down,
            None => &mut self.clients.get_mut(&id).expect("it is connected").down,
        }
    }

    pub fn say(&mut self, id: ProcessId, message: ToNode) {
        if self.sabotage_loses(&message) {
            return;
        }
        let up = self.written_by(id);
        up.push_back(message);
        if up.len() == 1 {
            let delay = self.rng.delay(self.plan.tardiness);
            self.after(delay, Step::DaemonReads(id));
        }
    }

    fn place(&mut self, id: ProcessId, worker: ProcessId, seq: u64) {
        self.notes_place(id, worker, seq);
        if !self.channels.contains_key(&(id, worker)) {
            self.channels.entry((id, worker)).or_default();
            self.client(id).outbound.insert(worker, Outbound::default());
            self.say(id, ToNode::Connect { to: worker });
        }
        self.client(id).outbound.get_mut(&worker).expect("it is there").overflow.push_back(seq);
        self.refill(id, worker);
    }

    fn refill(&mut self, id: ProcessId, worker: ProcessId) {
        let depth = self.plan.ring_depth;
        loop {
            let channel = self.channels.get_mut(&(id, worker)).expect("the caller has it");
            let client = self.clients.get_mut(&id).expect("it lives");
            let outbound = client.outbound.get_mut(&worker).expect("the caller has it");
            if channel.calls.len() >= depth {
                return;
            }
            let Some(seq) = outbound.overflow.pop_front() else { return };
            let Some(frame) = client.session.frame(seq) else { continue };
            let mut bytes = frame.header.to_vec();
            bytes.extend_from_slice(frame.args);
            bytes.extend_from_slice(&frame.extra);
            bytes.extend_from_slice(frame.refs);
            outbound.sent.push_back(seq);
            channel.calls.push_back(Call { seq, bytes });
            let connected = channel.connected;
            self.note(|| format!("{id} sends {} to {worker}", TaskId { owner: id, seq }));
            if connected {
                self.wake(worker);
            }
        }
    }

    fn revoke(&mut self, id: ProcessId, worker: ProcessId, asked: &[u64]) -> (Vec<u64>, Vec<u64>) {
        let (mut seqs, mut kept) = (Vec::new(), Vec::new());
        let client = self.clients.get_mut(&id).expect("it lives");
        let Some(outbound) = client.outbound.get_mut(&worker) else { return (seqs, kept) };
        let channel = self.channels.get_mut(&(id, worker)).expect("both or none");
        for seq in asked.iter().rev() {
            if let Some(at) = outbound.overflow.iter().position(|waiting| waiting == seq) {
                outbound.overflow.remove(at);
                seqs.push(*seq);
            } else if channel.revoke(*seq) {
                outbound.sent.retain(|sent| sent != seq);
                seqs.push(*seq);
            } else {
                kept.push(*seq);
            }
        }
        seqs.reverse();
        (seqs, kept)
    }

    /// Takes every reply that is there.
    pub fn drain(&mut self, id: ProcessId) {
        let mut effects = Vec::new();
        let now = self.now;
        let workers: Vec<ProcessId> = self.client(id).outbound.keys().copied().collect();
        for worker in &workers {
            let channel = self.channels.get_mut(&(id, *worker)).expect("both or none");
            let client = self.clients.get_mut(&id).expect("it lives");
            while let Some(bytes) = channel.replies.pop_front() {
                let reply = ReplyView::parse(&bytes).expect("workers here write well");
                let seq = reply.header.seq;
                client
                    .session
                    .on_reply(now, *worker, &reply, &mut effects)
                    .expect("workers here write well");
                let outbound = client.outbound.get_mut(worker).expect("it is there");
                match reply.header.kind {
                    ReplyKind::Finished | ReplyKind::StreamEnd => {
                        outbound.sent.retain(|sent| *sent != seq);
                    }
                    ReplyKind::Item | ReplyKind::Part => {}
                }
            }
        }
        for worker in workers {
            self.refill(id, worker);
        }
        self.carry_out(id, effects);
        self.arm(id);
    }

    pub fn drains(&mut self, id: ProcessId) {
        self.client(id).draining = false;
        if self.client(id).alive && self.client(id).must_drain() {
            self.drain(id);
            self.wake(id);
        }
    }

    pub fn ticks(&mut self, id: ProcessId) {
        let now = self.now;
        let client = self.client(id);
        client.tick_at = None;
        if !client.alive {
            return;
        }
        if client.worker.callbacks_lend(now, client.watches.len() as u64) {
            self.count("CPUs lent by callbacks");
            self.say(id, ToNode::Blocked);
        }
        let due = self.client(id).session.next_deadline().is_some_and(|at| at <= now);
        if due {
            self.session(id, |session, now, effects| session.handle(now, Event::Tick, effects));
        } else {
            self.arm(id);
        }
    }

    /// Threads and timers that the state of the session asks for.
    pub fn arm(&mut self, id: ProcessId) {
        let client = self.client(id);
        if !client.alive {
            return;
        }
        if client.must_drain() && !client.draining {
            let range = (id, ProcessId(0))..=(id, ProcessId(u64::MAX));
            let any = self.channels.range(range).any(|(_, channel)| !channel.replies.is_empty());
            if any {
                self.client(id).draining = true;
                let delay = self.rng.delay(Duration::from_micros(500));
                self.after(delay, Step::Drains(id));
            }
        }
        let client = self.client(id);
        let timers = [client.session.next_deadline(), client.worker.lends_at()];
        if let Some(at) = timers.into_iter().flatten().min()
            && client.tick_at.is_none_or(|set| at < set)
        {
            client.tick_at = Some(at);
            let late = self.rng.delay(Duration::from_micros(100));
            self.at(at + late, Step::Ticks(id));
        }
    }

    /// The main thread looks again.
    pub fn wake(&mut self, id: ProcessId) {
        let client = self.client(id);
        if client.alive && !client.woken {
            client.woken = true;
            let delay = self.rng.delay(Duration::from_micros(100));
            self.after(delay, Step::Goes(id));
        }
    }

    pub fn awake(&mut self, id: ProcessId) {
        self.client(id).woken = false;
    }

    // ---- what the daemon says ----

    pub fn client_reads(&mut self, id: ProcessId) {
        let is_tool = self.questions.tools.contains_key(&id);
        if !is_tool && !self.clients.get(&id).is_some_and(|client| client.alive) {
            return;
        }
        let Some(message) = self.written_to(id).pop_front() else { return };
        self.note(|| format!("{id} hears {message:?}"));
        if is_tool {
            self.tool_hears(id, message);
        } else {
            self.node_says(id, message);
            self.wake(id);
        }
        if !self.written_to(id).is_empty() {
            let delay = self.rng.delay(self.plan.tardiness) / 4;
            self.after(delay, Step::ClientReads(id));
        }
    }

    fn node_says(&mut self, id: ProcessId, message: ToClient) {
        self.hears_of_failed_read(id, &message);
        let event = match message {
            ToClient::LeaseGranted { lease, key, worker, gpus } => {
                Event::LeaseGranted { lease, key, worker, gpus }
            }
            ToClient::LeaseRecall { lease } => Event::LeaseRecall { lease },
            ToClient::LeaseStuck { key, reason, infeasible } => {
                Event::LeaseStuck { key, reason, infeasible }
            }
            ToClient::LeaseFailed { key, failure } => Event::LeaseFailed { key, failure },
            ToClient::WorkerBlocked { worker } => Event::WorkerBlocked { worker },
            ToClient::ProcessGone { process, obituary } => {
                self.client(id).worker.disconnected(process);
                self.channels.remove(&(process, id));
                self.drain(id);
                let outbound = self.client(id).outbound.remove(&process).unwrap_or_default();
                let channel = self.channels.remove(&(id, process)).unwrap_or_default();
                let unread = channel.calls.iter().map(|call| call.seq);
                let unstarted = unread.chain(outbound.overflow).collect();
                Event::ProcessGone { process, obituary, unstarted }
            }
            ToClient::Ready { object, value, contains } => Event::Ready { object, value, contains },
            ToClient::Unreadable { object, failure } => Event::Unreadable { object, failure },
            ToClient::ActorState { actor, state } => Event::ActorState { actor, state },
            ToClient::Adopt { lineage, objects } => {
                self.count("adoptions");
                self.books.adoptions += 1;
                self.adoption_is_needed(id, &objects);
                Event::Adopt { lineage: Box::new(lineage), objects }
            }
            ToClient::Told { message: Tell::Cancel { task, recursive }, .. }
                if self.clients[&id].session.task_here(task).is_some() =>
            {
                Event::Cancel { task, force: false, recursive }
            }
            other => return self.node_says_to_shell(id, other),
        };
        self.drain(id);
        let Some(event) = self.sabotage_hears(event) else { return };
        self.session(id, |session, now, effects| session.handle(now, event, effects));
    }

    fn node_says_to_shell(&mut self, id: ProcessId, message: ToClient) {
        match message {
            ToClient::Welcome(welcome) => self.welcomed(id, welcome),
            ToClient::Connected { from } => {
                if let Some(channel) = self.channels.get_mut(&(from, id)) {
                    channel.connected = true;
                    self.client(id).worker.connected(from, ());
                }
            }
            ToClient::ExtentGranted { request, offset, len, slots } => {
                let client = self.client(id);
                if len > 0 {
                    client.extents.insert(offset, len);
                }
                client.extents.slots.extend(slots);
                client.rooms.insert(request, Answered::Extent);
            }
            ToClient::FileGranted { request, offset, slot, .. } => {
                self.client(id).rooms.insert(request, Answered::File { offset, slot });
            }
            ToClient::ExtentDenied { request, failure } => {
                self.client(id).rooms.insert(request, Answered::Denied(failure.kind));
            }
            ToClient::ExtentRecall { bytes } => {
                self.session(id, |session, _, effects| session.flush(effects));
                for (offset, len) in self.client(id).extents.give_back(bytes) {
                    self.say(id, ToNode::ExtentReturn { offset, len });
                }
            }
            ToClient::Reclaimed { location, .. } => self.client(id).extents.reclaim(location),
            ToClient::RunActor { spec, incarnation, gpus } => {
                self.client(id).session.become_actor();
                self.client(id).worker.ordered(BecomeActor { spec, incarnation, gpus });
            }
            ToClient::Told { message: Tell::Cancel { task, recursive }, .. } => {
                self.client(id).worker.cancelled(task);
                if recursive {
                    self.session(id, |session, now, effects| {
                        session.cancel_children(now, task, effects);
                    });
                }
            }
            ToClient::Told { message: Tell::Consumed { task, count }, .. } => {
                self.client(id).worker.consumed(task, count);
            }
            ToClient::Exit { graceful: true, reason } => {
                self.client(id).worker.leave(reason);
                self.arm(id);
            }
            ToClient::Exit { graceful: false, .. } => {
                let delay = self.rng.delay(Duration::from_micros(100));
                self.after(delay, Step::Dies(id));
            }
            ToClient::Inspect { request, .. } | ToClient::Explain { request, .. } => {
                self.inspected(id, request, message);
            }
            ToClient::Answer { request, .. } => self.hears_answer(id, request),
            other => self.answered(id, other),
        }
    }

    // ---- reading ----

    /// Reads a value that is ready: the refs inside are counted and returned. `None`: it moved, wait again.
    pub fn read(&mut self, id: ProcessId, object: ObjectId) -> Option<Result<Vec<ObjectId>, ()>> {
        let value = self.client(id).session.value(object).cloned()?;
        match value {
            Value::Inline(bytes) => {
                let (token, contains) = decode_content(&bytes);
                self.books.is_value_of(object, token);
                contains.iter().for_each(|inner| self.client(id).session.add_ref(*inner));
                Some(Ok(contains))
            }
            Value::Failed(failure) => {
                self.client(id).session.failure_told(object);
                self.failure_is_legitimate(id, object, &failure);
                Some(Err(()))
            }
            Value::Stored(location) => self.read_stored(id, object, location, false).map(Ok),
        }
    }

    /// `counted`: the reader has a count of the object for the view, which stays open until it is closed:
    /// an argument of a call.
    pub fn read_stored(
        &mut self,
        id: ProcessId,
        object: ObjectId,
        location: Location,
        counted: bool,
    ) -> Option<Vec<ObjectId>> {
        if !self.memory.pin(location, id) {
            self.note(|| format!("{id} finds that {object} moved"));
            self.session(id, |session, _, effects| {
                session.location_stale(object, location, effects);
            });
            return None;
        }
        let (token, contains) = decode_content(self.memory.content(location));
        self.books.is_value_of(object, token);
        let client = self.client(id);
        if !counted {
            client.session.add_ref(object);
        }
        contains.iter().for_each(|inner| client.session.add_ref(*inner));
        let view = client.next_view;
        client.next_view += 1;
        client.views.insert(view, (object, location));
        if !counted {
            let delay = self.rng.delay(Duration::from_millis(20));
            self.after(delay, Step::Unviews(id, view));
        }
        Some(contains)
    }

    pub fn unviews(&mut self, id: ProcessId, view: u64) {
        if !self.client(id).alive {
            return;
        }
        let (object, location) = self.client(id).views.remove(&view).expect("it is closed once");
        let (token, _) = decode_content(self.memory.content(location));
        self.books.is_value_of(object, token);
        self.memory.unpin(location, id);
        self.session(id, |session, now, effects| drop_ref(session, now, object, effects));
    }

    pub fn drop_refs(&mut self, id: ProcessId, objects: impl IntoIterator<Item = ObjectId>) {
        for object in objects {
            self.session(id, |session, now, effects| drop_ref(session, now, object, effects));
        }
    }

    /// Waits for it in the background, reads it, drops it: the caller gives one count.
    pub fn watch(&mut self, id: ProcessId, object: ObjectId) {
        let watch = self.session(id, |session, _, effects| session.watch(object, effects));
        match watch {
            Some(watch) => {
                self.note(|| format!("{id} waits for {object} in the background"));
                let now = self.now;
                let client = self.client(id);
                client.watches.insert(watch, object);
                if !client.is_driver {
                    client.worker.callbacks_wait(now, client.watches.len() as u64);
                }
                self.arm(id);
            }
            None => self.watched(id, object),
        }
    }

    fn fired(&mut self, id: ProcessId, watch: u64) {
        // Streams' watches are the main thread's.
        if let Some(object) = self.client(id).watches.remove(&watch) {
            self.client(id).session.check();
            self.goes_on(id);
            self.watched(id, object);
        }
        self.wake(id);
    }

    /// A callback fired, or a call replied beside callbacks that wait.
    pub fn goes_on(&mut self, id: ProcessId) {
        let now = self.now;
        let client = self.client(id);
        if !client.is_driver && client.worker.goes_on(now, client.watches.len() as u64) {
            self.say(id, ToNode::Unblocked);
        }
    }

    fn watched(&mut self, id: ProcessId, object: ObjectId) {
        match self.read(id, object) {
            Some(read) => {
                self.drop_refs(id, read.unwrap_or_default().into_iter().chain([object]));
            }
            None => self.watch(id, object),
        }
    }
}

/// As clients do.
fn drop_ref(
    session: &mut SessionMachine,
    now: Instant,
    object: ObjectId,
    effects: &mut Vec<Effect>,
) {
    if !session.drop_quietly(&object) {
        session.drop_ref(now, object, effects);
    }
}
