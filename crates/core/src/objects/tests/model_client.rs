//! A small session for the reference model: it follows REF-1 to REF-4 and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_wire::FailureKind;

use super::super::ranges::RangeSet;
use super::model::{Reply, World};
use super::*;

/// One process of the model.
#[derive(Debug, Default)]
pub(super) struct Client {
    pub(super) alive: bool,
    /// What its program has refs of.
    pub(super) refs: BTreeSet<ObjectId>,
    /// Tokens that it knows it has.
    pub(super) tokens: BTreeMap<ObjectId, u32>,
    pub(super) task: Option<Task>,
    /// Where its own stored results lay when it was told of them: there it may still read them, also where
    /// another run's value is the one that the daemon kept.
    pub(super) near: BTreeMap<ObjectId, Vec<ObjectId>>,
    /// Tokens that came with replies, by worker.
    pub(super) came: BTreeMap<usize, u64>,
    /// What it asked the daemon for.
    pub(super) gets: Vec<ObjectId>,
    /// Stored objects that nobody else has seen a ref of.
    pub(super) exclusive: BTreeMap<ObjectId, Location>,
    pub(super) room: RangeSet,
    pub(super) slots: Vec<u32>,
    pub(super) seq: u64,
}

#[derive(Debug)]
pub(super) struct Task {
    pub(super) call: u64,
    /// Reachable while the caller holds the arguments.
    pub(super) borrowed: BTreeSet<ObjectId>,
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) caller: usize,
    pub(super) worker: usize,
    /// Held by the caller until it has read the reply.
    pub(super) args: Vec<ObjectId>,
    pub(super) result: ObjectId,
    /// The task in which it was made.
    pub(super) parent: Option<u64>,
    pub(super) stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stage {
    Queued,
    Running,
    Replied,
}

/// What is true of an object, whatever the daemon has heard.
#[derive(Debug, Default)]
pub(super) struct Thing {
    /// Younger objects contain older ones: no cycles.
    pub(super) age: u64,
    pub(super) owner: usize,
    /// The daemon was told (or the word is in a socket).
    pub(super) told: bool,
    /// Nothing while it is pending.
    pub(super) contains: Option<Vec<ObjectId>>,
    /// Its maker stored it and replied: it is there, whoever goes.
    pub(super) made: bool,
    /// While it is told and pending: what running it again needs.
    pub(super) lineage: Vec<ObjectId>,
    /// A run told of a value and was killed before it replied.
    pub(super) twice: bool,
}

impl World {
    pub(super) fn put_small(&mut self, at: usize, contains: Vec<ObjectId>) {
        let object = self.create(at, Some(contains));
        self.clients[at].refs.insert(object);
    }

    pub(super) fn put_large(&mut self, at: usize, contains: Vec<ObjectId>) {
        let Some(location) = self.place(at) else { return };
        contains.iter().for_each(|inner| self.share(at, *inner));
        let object = self.create(at, Some(contains.clone()));
        self.say(at, sealed(object, location, &contains, process(at as u64)));
        self.gain_told(at, object);
        self.clients[at].exclusive.insert(object, location);
    }

    pub(super) fn create_actor(&mut self, at: usize) {
        let object = self.create(at, Some(vec![]));
        let handle = hoplo_base::ActorId(object.task).handle();
        let thing = self.things.remove(&object).unwrap();
        self.things.insert(handle, thing);
        self.say(at, hold(handle, process(at as u64)));
        self.gain_told(at, handle);
    }

    /// REF-1: the daemon is told before the ref goes anywhere.
    pub(super) fn share(&mut self, at: usize, object: ObjectId) {
        self.clients[at].exclusive.remove(&object);
        let thing = &self.things[&object];
        if thing.told {
            return;
        }
        assert_eq!(thing.owner, at, "{object} is private to its owner");
        match thing.contains.clone() {
            Some(contains) => {
                contains.iter().for_each(|inner| self.share(at, *inner));
                self.say(at, shared(object, &contains));
            }
            None => {
                let call = self.calls.values().find(|call| call.result == object);
                let args = call.expect("it is pending").args.clone();
                let again = object.task.seq.is_multiple_of(2);
                let lineage = again.then(|| lineage(object, &args));
                self.say(at, pending(object, lineage));
                if again {
                    self.things.get_mut(&object).unwrap().lineage = args;
                }
            }
        }
        self.gain_told(at, object);
    }

    pub(super) fn call(&mut self, at: usize, worker: usize, args: Vec<ObjectId>) {
        args.iter().for_each(|argument| self.share(at, *argument));
        let result = self.create(at, None);
        self.clients[at].refs.insert(result);
        let parent = self.clients[at].task.as_ref().map(|task| task.call);
        let stage = Stage::Queued;
        self.count += 1;
        self.calls.insert(self.count, Call { caller: at, worker, args, result, parent, stage });
        self.frames[worker].push_back(self.count);
    }

    pub(super) fn begin(&mut self, at: usize) {
        if self.clients[at].task.is_some() {
            return;
        }
        let Some(id) = self.frames[at].pop_front() else { return };
        let call = self.calls.get_mut(&id).unwrap();
        call.stage = Stage::Running;
        let borrowed = call.args.iter().copied().collect();
        self.clients[at].task = Some(Task { call: id, borrowed });
    }

    /// REF-3 and REF-4: all holds are told before the reply is written.
    pub(super) fn finish(&mut self, at: usize, large: bool, returned: Vec<ObjectId>) {
        let Some((id, returned, reply)) = self.tell_result(at, large, returned) else { return };
        if let Reply::Stored(_) = reply {
            let thing = self.things.get_mut(&self.calls[&id].result).unwrap();
            (thing.told, thing.made) = (true, true);
            thing.contains = Some(returned);
        }
        self.clients[at].task = None;
        self.tell_what_changed(at);
        self.reply(id, reply);
    }

    /// It is killed between what it tells of its result and the reply.
    pub(super) fn fail_to_finish(&mut self, at: usize, large: bool, returned: Vec<ObjectId>) {
        if let Some((id, ..)) = self.tell_result(at, large, returned) {
            self.things.get_mut(&self.calls[&id].result).unwrap().twice = true;
        }
    }

    /// The call that runs here, what it returns, and how.
    fn tell_result(
        &mut self,
        at: usize,
        large: bool,
        returned: Vec<ObjectId>,
    ) -> Option<(u64, Vec<ObjectId>, Reply)> {
        let id = self.clients[at].task.as_ref()?.call;
        let Call { caller, result, .. } = self.calls[&id];
        let age = self.things[&result].age;
        let returned: Vec<_> =
            returned.into_iter().filter(|inner| self.things[inner].age < age).collect();
        returned.iter().for_each(|inner| self.share(at, *inner));
        let place = if large { self.place(at) } else { None };
        if place.is_some() || !returned.is_empty() {
            self.say(at, Notice::Replying { to: process(caller as u64) });
        }
        let reply = match place {
            Some(location) => {
                self.say(at, sealed(result, location, &returned, process(caller as u64)));
                Reply::Stored(returned.clone())
            }
            None => {
                for inner in &returned {
                    self.say(at, hold(*inner, process(caller as u64)));
                }
                Reply::Inline(returned.clone())
            }
        };
        Some((id, returned, reply))
    }

    pub(super) fn receive_reply(&mut self, at: usize, id: u64, reply: Reply) {
        let Call { result, worker, .. } = self.calls.remove(&id).unwrap();
        let came = self.clients[at].came.entry(worker).or_default();
        *came += match &reply {
            Reply::Stored(_) => 1,
            Reply::Inline(contains) => contains.len() as u64,
        };
        match reply {
            Reply::Stored(contains) => {
                *self.clients[at].tokens.entry(result).or_default() += 1;
                self.clients[at].near.insert(result, contains);
            }
            Reply::Inline(contains) => {
                for inner in &contains {
                    *self.clients[at].tokens.entry(*inner).or_default() += 1;
                }
                let thing = self.things.get_mut(&result).unwrap();
                thing.contains = Some(contains.clone());
                if thing.told {
                    self.say(at, fulfilled(result, &contains));
                }
            }
        }
        self.tell_what_changed(at);
    }

    pub(super) fn get(&mut self, at: usize, object: ObjectId) {
        if hoplo_base::ActorId(object.task).handle() == object {
            return;
        }
        let thing = &self.things[&object];
        if let Some(contains) = self.clients[at].near.get(&object).cloned() {
            self.clients[at].refs.extend(contains);
            self.tell_what_changed(at);
        } else if thing.told {
            self.clients[at].gets.push(object);
            let objects = vec![object];
            let event = Event::Wanted { from: process(at as u64), objects, need: Need::Bytes };
            self.sockets[at].push_back(event);
        } else if let Some(contains) = thing.contains.clone() {
            self.clients[at].refs.extend(contains);
            self.tell_what_changed(at);
        }
    }

    pub(super) fn receive_message(&mut self, at: usize) {
        let Some(message) = self.inboxes[at].pop_front() else { return };
        match message {
            ToClient::Ready { object, value, contains } => {
                let client = &mut self.clients[at];
                let asked = client.gets.iter().position(|it| *it == object);
                client.gets.swap_remove(asked.expect("it asked"));
                let borrowed = client.task.as_mut().map(|task| &mut task.borrowed);
                if let Some(borrowed) = borrowed.filter(|it| it.contains(&object)) {
                    borrowed.extend(contains);
                } else if client.refs.contains(&object) {
                    client.refs.extend(contains);
                } else {
                    return;
                }
                if let Value::Failed(failure) = value {
                    // Nobody can run again what came without lineage; only its owner could.
                    let once = !object.task.seq.is_multiple_of(2);
                    let thing = &self.things[&object];
                    let alone = once && !self.clients[thing.owner].alive && !thing.made;
                    assert!(
                        failure.kind == FailureKind::OwnerDied && alone,
                        "process {at} has a ref of {object}: {}",
                        failure.text()
                    );
                }
                self.tell_what_changed(at);
            }
            ToClient::Adopt { objects, .. } => {
                let made = objects.iter().find(|object| self.things[*object].made);
                assert!(made.is_none(), "process {at} is to make {made:?}, which is there");
                objects.iter().for_each(|object| self.say(at, fulfilled(*object, &[])));
            }
            ToClient::Reclaimed { location, .. } => self.take_back(at, location),
            ToClient::ProcessGone { process: dead, .. } => {
                let worker = dead.slot();
                while let Some((id, reply)) = self.next_reply(at, worker) {
                    self.receive_reply(at, id, reply);
                }
                let tokens = self.clients[at].came.remove(&worker).unwrap_or(0);
                self.say(at, Notice::RepliesEnded { from: dead, tokens });
            }
            other => panic!("{other:?}"),
        }
    }

    /// Brings what the daemon knows of this process to what is so: called when its refs changed.
    pub(super) fn tell_what_changed(&mut self, at: usize) {
        let me = process(at as u64);
        let needed = self.needed(at);
        let borrowed = self.clients[at].task.as_ref().map(|task| task.borrowed.clone());
        let borrowed = borrowed.unwrap_or_default();
        for object in &needed {
            let has = self.clients[at].tokens.contains_key(object);
            if self.things[object].told && !has && !borrowed.contains(object) {
                self.say(at, hold(*object, me));
                self.clients[at].tokens.insert(*object, 1);
            }
        }
        for (object, tokens) in self.clients[at].tokens.clone() {
            let keep = u32::from(needed.contains(&object));
            if keep == 0
                && let Some(location) = self.clients[at].exclusive.remove(&object)
            {
                self.say(at, Notice::Freed { object });
                self.take_back(at, location);
                self.clients[at].tokens.remove(&object);
            } else if tokens > keep {
                self.say(at, Notice::Released { object, tokens: tokens - keep });
                self.clients[at].tokens.insert(object, keep);
            }
        }
        self.clients[at].tokens.retain(|_, tokens| *tokens > 0);
        self.clients[at].near.retain(|object, _| needed.contains(object));
    }

    /// The caller of the task that runs here is gone: what was borrowed is gone with it.
    pub(super) fn abort_task(&mut self, at: usize) {
        let Some(task) = self.clients[at].task.take() else { return };
        let children: Vec<u64> = (self.calls.iter())
            .filter(|(_, call)| call.parent == Some(task.call))
            .map(|(id, _)| *id)
            .collect();
        for id in children {
            self.cancel(id);
            self.calls.get_mut(&id).unwrap().args.clear();
        }
        let refs = self.clients[at].refs.clone();
        for object in refs {
            let reached = self.privately_reached([object].into());
            let unheld =
                |it: &ObjectId| self.things[it].told && !self.clients[at].tokens.contains_key(it);
            if reached.iter().any(unheld) {
                self.clients[at].refs.remove(&object);
            }
        }
        self.tell_what_changed(at);
    }

    /// The call will not be run to its end; its caller is told, if it was not answered already.
    pub(super) fn cancel(&mut self, id: u64) {
        if self.interrupt(id) {
            self.reply(id, Reply::Inline(vec![]));
        }
    }

    /// Its worker is dead: it runs again in another one.
    pub(super) fn retry(&mut self, id: u64, worker: usize) {
        if self.interrupt(id) {
            let call = self.calls.get_mut(&id).unwrap();
            (call.worker, call.stage) = (worker, Stage::Queued);
            self.frames[worker].push_back(id);
        }
    }

    /// False if it was answered already.
    fn interrupt(&mut self, id: u64) -> bool {
        let Call { worker, stage, .. } = self.calls[&id];
        match stage {
            Stage::Queued => self.frames[worker].retain(|queued| *queued != id),
            Stage::Running => self.abort_task(worker),
            Stage::Replied => return false,
        }
        true
    }

    /// What a process must hold itself.
    fn needed(&self, at: usize) -> BTreeSet<ObjectId> {
        let args = self.calls.values().filter(|call| call.caller == at).flat_map(|call| &call.args);
        self.privately_reached(self.clients[at].refs.iter().chain(args).copied().collect())
    }

    /// Through values that only their owner's memory has.
    fn privately_reached(&self, mut reached: BTreeSet<ObjectId>) -> BTreeSet<ObjectId> {
        let mut front: Vec<_> = reached.iter().copied().collect();
        while let Some(object) = front.pop() {
            let thing = &self.things[&object];
            if !thing.told {
                let inner = thing.contains.iter().flatten().copied();
                front.extend(inner.filter(|inner| reached.insert(*inner)));
            }
        }
        reached
    }

    fn create(&mut self, owner: usize, contains: Option<Vec<ObjectId>>) -> ObjectId {
        self.count += 1;
        self.clients[owner].seq += 1;
        let object = object(process(owner as u64), self.clients[owner].seq);
        let thing = Thing { age: self.count, owner, contains, ..Thing::default() };
        self.things.insert(object, thing);
        object
    }

    fn gain_told(&mut self, at: usize, object: ObjectId) {
        self.things.get_mut(&object).unwrap().told = true;
        *self.clients[at].tokens.entry(object).or_default() += 1;
        self.clients[at].refs.insert(object);
    }

    fn place(&mut self, at: usize) -> Option<Location> {
        let client = &mut self.clients[at];
        let slot = client.slots.pop()?;
        let Some(range) = client.room.take(128) else {
            client.slots.push(slot);
            return None;
        };
        Some(Location { slot, generation: 1, offset: range.start, len: 128 })
    }

    fn take_back(&mut self, at: usize, location: Location) {
        let client = &mut self.clients[at];
        client.room.insert(location.offset..location.offset + location.len);
        client.slots.push(location.slot);
    }

    fn say(&mut self, at: usize, notice: Notice) {
        self.sockets[at].push_back(Event::Noticed { from: process(at as u64), notice });
    }

    fn reply(&mut self, id: u64, reply: Reply) {
        let call = self.calls.get_mut(&id).unwrap();
        call.stage = Stage::Replied;
        self.replies.entry((call.worker, call.caller)).or_default().push_back((id, reply));
    }
}
