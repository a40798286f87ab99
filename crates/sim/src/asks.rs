//! What processes ask the daemon for and wait for: functions, keys, actors by name; and what people ask (`questions`).

mod questions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use hoplo_base::{ActorId, FunctionId, JobId, NodeNumber, ObjectId, ProcessId, TaskId};
use hoplo_core::session::{CreateActor, Effect, SessionMachine};
use hoplo_wire::node::{ActorCreated, KvOperation, ToClient, ToNode};
use hoplo_wire::{FoldOp, Location, Part, Value, Wish};

use crate::cluster::{Cluster, Step};
use crate::fiber::{Fiber, Flow, Wait};
use crate::haul::sum;
use crate::host::Host;
use crate::memory::{decode_content, encode_content};
use crate::sabotage::Sabotage;
use crate::workload::{KvStep, Submission};

pub use questions::{Asked, Questions};

/// What one process asked for and was told.
#[derive(Debug, Default)]
pub struct Asks {
    exported: BTreeSet<FunctionId>,
    /// Each is there, or was asked for by a task of that job.
    functions: BTreeMap<FunctionId, Option<JobId>>,
    requests: u64,
    answers: BTreeMap<u64, ToClient>,
    /// Of reduces whose members come one after the other.
    to_say: VecDeque<ToNode>,
    /// Its own keys, as it wrote them.
    keys: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Asks {
    pub fn request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    pub fn has_answer(&self, request: u64) -> bool {
        self.answers.contains_key(&request)
    }

    pub fn has_function(&self, function: FunctionId) -> bool {
        self.functions.get(&function).is_some_and(Option::is_none)
    }
}

/// What lies in a function. Its id is a hash of that, in every job.
fn code(function: FunctionId) -> Vec<u8> {
    [b"code of ", &function.0[..]].concat()
}

impl Cluster {
    /// Before a process writes a call into a ring, it has told the daemon the function.
    pub fn exports(&mut self, id: ProcessId, function: FunctionId) {
        if self.client(id).asks.exported.insert(function) {
            let bytes = code(function);
            self.say(id, ToNode::Export { function, bytes, contains: vec![] });
        }
    }

    /// Whether the function is here; else it was asked for.
    pub fn has_function(
        &mut self,
        id: ProcessId,
        function: FunctionId,
        job: JobId,
        task: TaskId,
    ) -> bool {
        match self.client(id).asks.functions.get(&function) {
            Some(asked) => asked.is_none(),
            None => {
                self.client(id).asks.functions.insert(function, Some(job));
                let call = Some((job, task.owner));
                self.say(id, ToNode::Fetch { function, call });
                false
            }
        }
    }

    pub fn answered(&mut self, id: ProcessId, message: ToClient) {
        match message {
            ToClient::Function { function, bytes } => {
                let asked = self.clients[&id].asks.functions.get(&function).copied().flatten();
                let job = asked.expect("it comes once to who asked for it");
                let home = self.host(job.node());
                let job = home.daemon.node.job(job).filter(|_| home.goes_on());
                let ended = job.is_none_or(|job| job.ended_us.is_some());
                match bytes {
                    Some(bytes) => assert_eq!(bytes, code(function), "{id}: {function}"),
                    // With its own job, with which it ends, too.
                    None => assert!(ended, "{id} runs {function}, which was never exported"),
                }
                self.count("functions fetched");
                self.client(id).asks.functions.insert(function, None);
            }
            ToClient::ActorCreated { request, .. }
            | ToClient::ActorFound { request, .. }
            | ToClient::GroupCreated { request, .. }
            | ToClient::GroupState { request, .. }
            | ToClient::Reduced { request, .. }
            | ToClient::Assembled { request, .. }
            | ToClient::KvAnswer { request, .. } => {
                self.client(id).asks.answers.insert(request, message);
            }
            // A line for people: it waits for a head.
            ToClient::Output { .. } if self.lost_a_head() => {}
            other => panic!("{id} was told {other:?} out of place"),
        }
    }

    pub fn ask(
        &mut self,
        id: ProcessId,
        fiber: &mut Fiber,
        message: impl FnOnce(u64) -> ToNode,
    ) -> Flow {
        self.session(id, |session, _, effects| session.flush(effects));
        let request = self.client(id).asks.request();
        fiber.request = Some(request);
        self.say(id, message(request));
        Flow::Wait(Wait::Answer(request))
    }

    pub fn answer(&mut self, id: ProcessId, fiber: &mut Fiber) -> Result<ToClient, Flow> {
        let request = fiber.request.expect("it was asked");
        match self.client(id).asks.answers.remove(&request) {
            None => Err(Flow::Wait(Wait::Answer(request))),
            Some(answer) => {
                fiber.request = None;
                Ok(answer)
            }
        }
    }

    // ---- actors by name ----

    /// Sends the order; the handle is its own once that is answered.
    pub fn creates_by_name(&mut self, id: ProcessId, fiber: &mut Fiber, create: &mut CreateActor) {
        create.request = self.client(id).asks.request();
        fiber.request = Some(create.request);
    }

    pub fn created_by_name(&mut self, id: ProcessId, fiber: &mut Fiber, actor: ActorId) -> Flow {
        let result = match self.answer(id, fiber) {
            Err(flow) => return flow,
            Ok(ToClient::ActorCreated { result, .. }) => result,
            Ok(other) => panic!("{id} wants an actor, not {other:?}"),
        };
        fiber.creates = None;
        let refused = |session: &mut SessionMachine, now, effects: &mut Vec<Effect>| {
            session.creation_refused(now, actor, effects);
        };
        match result {
            Ok(ActorCreated::New) => fiber.handles.push(actor),
            Ok(ActorCreated::Existing(found)) => {
                self.count("actors found by name");
                self.session(id, refused);
                self.client(id).session.actor_found(found.actor);
                fiber.handles.push(found.actor);
            }
            Ok(ActorCreated::Unsaid { .. }) => {
                self.count("names of which nobody said whose they are");
                self.session(id, refused);
            }
            Err(_) => {
                self.count("names that were taken");
                self.session(id, refused);
            }
        }
        Flow::Next
    }

    pub fn finds(&mut self, id: ProcessId, fiber: &mut Fiber, name: &str) -> Flow {
        if fiber.request.is_none() {
            let (namespace, name) = (String::new(), name.to_string());
            return self.ask(id, fiber, |request| ToNode::ActorLookup { request, namespace, name });
        }
        match self.answer(id, fiber) {
            Err(flow) => flow,
            Ok(ToClient::ActorFound { found, .. }) => {
                if let Some(found) = found.filter(|found| found.dead.is_none()) {
                    self.count("actors found by name");
                    self.client(id).session.actor_found(found.actor);
                    fiber.handles.push(found.actor);
                }
                Flow::Next
            }
            Ok(other) => panic!("{id} looks for an actor, not {other:?}"),
        }
    }

    // ---- reduces ----

    /// What it is told to be the result is read, and is that of its members: each counts once (COLL-1).
    pub fn reduces(
        &mut self,
        id: ProcessId,
        fiber: &mut Fiber,
        of: &[ObjectId],
        pick: u64,
    ) -> Flow {
        if let Some((was, lost)) = fiber.mending.take() {
            return self.mends(id, fiber, was, lost);
        }
        if fiber.request.is_none() {
            let session = &self.client(id).session;
            let is_stored =
                |object: &ObjectId| matches!(session.value(*object), Some(Value::Stored(_)));
            let stored: Vec<ObjectId> = of.iter().copied().filter(is_stored).collect();
            let many = if self.plan.dies_when_folded { 3 } else { 2 } + pick as usize % 3;
            if stored.len() < many {
                return Flow::Next;
            }
            let mut members: Vec<ObjectId> = stored[stored.len() - many..].to_vec();
            fiber.reducing.clone_from(&members);
            if pick.is_multiple_of(4)
                && let Some(flow) = self.assembles(id, fiber)
            {
                return flow;
            }
            self.note(|| format!("{id} reduces {members:?}"));
            // What comes of a ring is to be this one.
            let rings = if self.plan.dies_when_folded { 4 } else { 2 };
            let for_all = self.rng.one_in(rings).then(|| self.client(id).session.next_put());
            fiber.reduced_for_all = for_all;
            let wish = Wish { op: FoldOp::Sum, divide_by: None, for_all };
            // Of some it says so one after the other, and of some of these not of the last one.
            let later = match for_all.is_some() && pick.is_multiple_of(3) {
                true => members.split_off(1),
                false => Vec::new(),
            };
            let more = !later.is_empty();
            let flow =
                self.ask(id, fiber, |request| ToNode::Reduce { request, wish, members, more });
            let request = fiber.request.expect("it was just asked");
            for (nth, member) in later.iter().enumerate() {
                let says = match nth + 1 == later.len() {
                    true if pick.is_multiple_of(15) => ToNode::ReduceOver { request },
                    is_last => {
                        self.count("members that came later");
                        let members = vec![*member];
                        ToNode::ReduceMore { request, members, more: !is_last }
                    }
                };
                let after = Duration::from_micros(pick % 4000 * (nth as u64 + 1));
                self.after(after, Step::SaysMore(id));
                self.client(id).asks.to_say.push_back(says);
            }
            return flow;
        }
        let request = fiber.request;
        match self.answer(id, fiber) {
            Err(flow) => flow,
            Ok(ToClient::Reduced { result: Ok(location), .. }) => {
                self.count("reduces");
                if fiber.reduced_for_all.is_some() && pick.is_multiple_of(3) {
                    self.count("reduces whose members came later");
                }
                let members = std::mem::take(&mut fiber.reducing);
                let members = sum(members.into_iter().map(|it| self.books.value_of(it)));
                let for_all = fiber.reduced_for_all.take().zip(request);
                if let Some(object) = self.takes_over(id, location, members, for_all) {
                    fiber.keeps(object);
                }
                Flow::Next
            }
            Ok(ToClient::Reduced { result: Err(no), .. }) if no.goes_on => {
                self.note(|| format!("{id} hears that members are lost: {:?}", no.lost));
                self.count("reduces that lost members");
                self.mends(id, fiber, request.expect("it was asked"), no.lost)
            }
            Ok(ToClient::Reduced { result: Err(no), .. }) => {
                self.note(|| format!("{id} hears that it cannot be reduced so: {no:?}"));
                self.count(if no.again {
                    "reduces that were in vain"
                } else {
                    "reduces of one node"
                });
                Flow::Next
            }
            Ok(ToClient::Assembled { result: Ok(location), .. }) => {
                self.count("assemblies");
                if let Some(object) = self.takes_assembled(id, fiber, location) {
                    fiber.keeps(object);
                }
                Flow::Next
            }
            Ok(ToClient::Assembled { result: Err(why), .. }) => {
                self.note(|| format!("{id} hears that it cannot be assembled: {why}"));
                self.count("assemblies that were in vain");
                Flow::Next
            }
            Ok(other) => panic!("{id} asks for a sum, not {other:?}"),
        }
    }

    /// Tasks all over the cluster, and what they return: so a chain has many nodes.
    pub fn reduces_many(
        &mut self,
        id: ProcessId,
        fiber: &mut Fiber,
        submission: &Submission,
        pick: u64,
    ) -> Flow {
        const MANY: usize = 6;
        let of = fiber.gathering.take().unwrap_or_else(|| {
            let before = fiber.refs().len();
            (0..MANY).for_each(|_| self.submit(id, fiber, submission));
            fiber.refs()[before..].to_vec()
        });
        let session = &self.client(id).session;
        let flow = match of.iter().find(|object| !session.is_ready(**object)) {
            Some(waits) => Flow::Wait(Wait::Ready(*waits)),
            None => self.reduces(id, fiber, &of, pick),
        };
        fiber.gathering = Some(of).filter(|_| !matches!(flow, Flow::Next));
        flow
    }

    /// Gets what is lost, and says so. Some lose patience.
    fn mends(&mut self, id: ProcessId, fiber: &mut Fiber, was: u64, lost: Vec<ObjectId>) -> Flow {
        for object in &lost {
            self.session(id, |session, _, effects| session.want(&[*object], effects));
            match self.read(id, *object) {
                None => {
                    let object = *object;
                    fiber.mending = Some((was, lost));
                    return Flow::Wait(Wait::Ready(object));
                }
                Some(Ok(contains)) => fiber.hold(contains),
                Some(Err(())) => {
                    self.say(id, ToNode::ReduceOver { request: was });
                    return Flow::Next;
                }
            }
        }
        if self.rng.one_in(16) {
            self.say(id, ToNode::ReduceOver { request: was });
            return Flow::Next;
        }
        self.ask(id, fiber, |request| ToNode::ReduceMended { request, was })
    }

    /// A part of each member, where some other node has it.
    fn assembles(&mut self, id: ProcessId, fiber: &mut Fiber) -> Option<Flow> {
        let (mut parts, mut bytes) = (Vec::new(), 0);
        for object in fiber.reducing.clone() {
            let Some(Value::Stored(location)) = self.client(id).session.value(object).cloned()
            else {
                return None;
            };
            let here = self.here.number;
            let has = |host: &&Host| {
                let place = host.daemon.node.objects.place_of(object);
                host.number != here && !host.dead && place.is_some_and(|place| place.is_here)
            };
            let nodes: Vec<NodeNumber> = self.hosts().filter(has).map(|host| host.number).collect();
            let others = self.living().into_iter().filter(|node| *node != here).collect::<Vec<_>>();
            // Now and then one that does not have it.
            let nodes = if nodes.is_empty() && self.rng.one_in(8) { others } else { nodes };
            let node = *nodes.get(self.rng.below(nodes.len().max(1) as u64) as usize)?;
            let (from, len) = (location.len / 4, (location.len / 2).max(1));
            let at = bytes + 3;
            parts.push(Part { object, node, from, len, at });
            bytes = at + len;
        }
        self.note(|| format!("{id} assembles {parts:?}"));
        fiber.assembling = parts.iter().map(|part| part.at).collect();
        let gives_up = self.rng.one_in(8);
        let flow = self.ask(id, fiber, |request| ToNode::Assemble { request, bytes, parts });
        if let Some(request) = fiber.request.filter(|_| gives_up) {
            let after = Duration::from_micros(self.rng.below(4000));
            self.after(after, Step::SaysMore(id));
            self.client(id).asks.to_say.push_back(ToNode::AssembleOver { request });
        }
        Some(flow)
    }

    /// Each part came once, and is of its object. The room is this process's: it puts what these give together, or has no use for it.
    fn takes_assembled(
        &mut self,
        id: ProcessId,
        fiber: &mut Fiber,
        location: Location,
    ) -> Option<ObjectId> {
        let mut came = self.here.carrier.hauler.take_parts(location.slot);
        let members = std::mem::take(&mut fiber.reducing);
        for (at, member) in std::mem::take(&mut fiber.assembling).into_iter().zip(&members) {
            let content = came.remove(&at).expect("XFER-14: all parts came");
            let (token, wanted) = (decode_content(&content).0, self.books.value_of(*member));
            assert_eq!(token, wanted, "{id}: what came is no part of {member}");
        }
        self.client(id).extents.takes_over(location);
        if self.rng.one_in(4) {
            self.count("assemblies that nobody needed");
            self.client(id).extents.reclaim(location);
            return None;
        }
        let token = sum(members.into_iter().map(|it| self.books.value_of(it)));
        let object = self.client(id).session.next_put();
        self.puts_there(id, object, token, (location, encode_content(token, &[], 0)));
        Some(object)
    }

    pub fn says_more(&mut self, id: ProcessId) {
        let message = self.client(id).asks.to_say.pop_front().expect("each is said once");
        if self.client(id).alive {
            self.say(id, message);
        }
    }

    /// What was folded lies there, and is this process's to seal: it puts it, or has no use for it. `for_all`: as what, and what it asked.
    fn takes_over(
        &mut self,
        id: ProcessId,
        location: Location,
        token: ObjectId,
        for_all: Option<(ObjectId, u64)>,
    ) -> Option<ObjectId> {
        let Location { slot, offset, len, .. } = location;
        let content = self.here.memory.content(location).to_vec();
        let unsealed = self.here.memory.free_private(location, &[id.slot() as u16]);
        assert!(unsealed, "{id}: somebody reads what was just folded");
        self.client(id).extents.takes_over(location);
        let rarely = for_all.is_none() || self.sabotage != Some(Sabotage::RingsAreTrusted);
        if !rarely || self.rng.one_in(4) {
            self.count("reduces that nobody needed");
            if let Some((object, request)) = for_all {
                self.say(id, ToNode::ReduceOver { request });
                self.client(id).extents.reclaim(location);
                return self.puts_something_else(id, object, len);
            }
            self.client(id).extents.reclaim(location);
            return None;
        }
        let object = match for_all {
            Some((object, _)) => object,
            None => self.client(id).session.next_put(),
        };
        self.puts_there(
            id,
            object,
            token,
            (Location { slot, offset, len, generation: 0 }, content),
        );
        Some(object)
    }

    /// As long, and perhaps in the same place.
    fn puts_something_else(
        &mut self,
        id: ProcessId,
        object: ObjectId,
        len: u64,
    ) -> Option<ObjectId> {
        let (offset, slot) = self.client(id).extents.allocate(len)?;
        let content = encode_content(object, &[], 0);
        let location = Location { slot, offset, len, generation: 0 };
        self.puts_there(id, object, object, (location, content));
        Some(object)
    }

    fn puts_there(
        &mut self,
        id: ProcessId,
        object: ObjectId,
        token: ObjectId,
        (location, content): (Location, Vec<u8>),
    ) {
        let Location { slot, offset, .. } = location;
        let generation = self.here.memory.seal(slot, offset, content);
        let location = Location { generation, ..location };
        self.session(id, |session, now, effects| {
            session.put_stored(now, object, location, &[], effects);
        });
        self.books.put(object, token);
    }

    // ---- keys ----

    /// Every process has a namespace of its own, so it knows what is to be there.
    pub fn kv(&mut self, id: ProcessId, fiber: &mut Fiber, step: &KvStep) -> Flow {
        if fiber.request.is_none() {
            // Ids of another daemon differ in their first part, which their names lack.
            let namespace = format!("{:x}", id.0);
            let operation = match step.clone() {
                KvStep::Get(key) => KvOperation::Get { key },
                KvStep::Put(key, value) => KvOperation::Put { key, value, overwrite: true },
                KvStep::Create(key, value) => KvOperation::Put { key, value, overwrite: false },
                KvStep::Delete(key) => KvOperation::Delete { key },
                KvStep::List => KvOperation::Keys { prefix: vec![] },
            };
            return self.ask(id, fiber, |request| ToNode::Kv { request, namespace, operation });
        }
        let (value, found, refused) = match self.answer(id, fiber) {
            Err(flow) => return flow,
            Ok(ToClient::KvAnswer { value, keys, refused, .. }) => (value, keys, refused),
            Ok(other) => panic!("{id} asks for a key, not {other:?}"),
        };
        assert!(refused.is_none() || self.plan.control_refuses, "{id}: {refused:?}");
        if refused.is_some() {
            return Flow::Next;
        }
        let keys = &mut self.client(id).asks.keys;
        let before = |keys: &BTreeMap<Vec<u8>, Vec<u8>>, key: &Vec<u8>| keys.get(key).cloned();
        let expected = match step {
            KvStep::Get(key) => before(keys, key),
            KvStep::Put(key, new) => {
                keys.insert(key.clone(), new.clone());
                None
            }
            KvStep::Create(key, new) => {
                let was = before(keys, key);
                keys.entry(key.clone()).or_insert_with(|| new.clone());
                was
            }
            KvStep::Delete(key) => keys.remove(key),
            KvStep::List => {
                let all: Vec<Vec<u8>> = keys.keys().cloned().collect();
                assert_eq!(found, all, "{id} lists its keys");
                None
            }
        };
        assert_eq!(value, expected, "{id}: {step:?}");
        self.count("keys asked for");
        Flow::Next
    }
}
