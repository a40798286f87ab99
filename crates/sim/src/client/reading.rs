//! Values are read, viewed, and waited for in the background.

use std::time::Duration;

use hoplo_base::{Instant, ObjectId, ProcessId};
use hoplo_core::session::{Effect, SessionMachine};
use hoplo_wire::node::ToNode;
use hoplo_wire::{Location, Value};

use crate::cluster::{Cluster, Step};
use crate::memory::decode_content;

impl Cluster {
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
        if !self.here.memory.pin(location, id) {
            self.note(|| format!("{id} finds that {object} moved"));
            self.session(id, |session, _, effects| {
                session.location_stale(object, location, effects);
            });
            return None;
        }
        let (token, contains) = decode_content(self.here.memory.content(location));
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

    /// Free pages of its extents, at least so many bytes if there are.
    pub fn returns_room(&mut self, id: ProcessId, bytes: u64) {
        self.session(id, |session, _, effects| session.flush(effects));
        for (offset, len) in self.client(id).extents.give_back(bytes) {
            self.say(id, ToNode::ExtentReturn { offset, len });
        }
    }

    pub fn unviews(&mut self, id: ProcessId, view: u64) {
        if !self.client(id).alive {
            return;
        }
        let (object, location) = self.client(id).views.remove(&view).expect("it is closed once");
        let (token, _) = decode_content(self.here.memory.content(location));
        self.books.is_value_of(object, token);
        self.here.memory.unpin(location, id);
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

    pub(super) fn fired(&mut self, id: ProcessId, watch: u64) {
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
