//! Values: put, read, counted; room in the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hoplo_base::{ObjectId, ProcessId, limits};
use hoplo_shm::{FileRoom, PinError};
use hoplo_wire::node::{ToClient, ToNode};
use hoplo_wire::{Failure, FailureKind, Location, Value};
use parking_lot::Mutex;

use crate::ask::GivesUp;
use crate::client::Client;
use crate::store::{Memory, Room};
use crate::{Content, Pinned};

/// Room in the store that is being written; freed on drop unless it was put.
pub struct Allocation {
    client: Arc<Client>,
    room: Option<Room>,
    address: usize,
    len: usize,
}

/// No room in the object store.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Says who holds what and what may be done, and whether the disk is full, too.
    #[error("{}", .0.text())]
    Denied(Failure),
    #[error("{0}")]
    NodeDied(String),
    /// A signal came: the asker knows why.
    #[error("the wait for room in the object store was given up")]
    GivenUp,
}

impl Client {
    /// A value of at most `INLINE_BYTES_MAX`; the caller owns one reference. `contains`: refs that
    /// lie inside.
    pub fn put(&self, bytes: &[u8], contains: &[ObjectId]) -> ObjectId {
        let value = Value::Inline(bytes.into());
        self.core.within(|core| core.session.put_inline(value, contains))
    }

    /// Room in the store. May wait for the daemon: call it without the GIL when `len` is not at hand
    /// (`allocate_warm` never waits).
    pub fn allocate(
        self: &Arc<Self>,
        len: usize,
        gives_up: GivesUp<'_>,
    ) -> Result<Allocation, StoreError> {
        loop {
            if let Some(allocation) = self.allocate_warm(len) {
                return Ok(allocation);
            }
            let slots = self.store.lock().slots_short();
            let bytes = (len as u64).max(1).next_multiple_of(limits::OBJECT_ALIGN);
            let answer =
                self.ask(None, gives_up, |request| ToNode::ExtentWant { request, bytes, slots });
            match answer {
                // The node loop has put it into the store.
                Some(ToClient::ExtentGranted { .. }) => {}
                Some(ToClient::FileGranted { offset, len: granted, slot, .. }) => {
                    return self.allocate_in_file(offset, granted, slot, len);
                }
                Some(ToClient::ExtentDenied { failure, .. }) => {
                    return Err(StoreError::Denied(failure));
                }
                _ if self.gone.get().is_none() => return Err(StoreError::GivenUp),
                _ => return Err(StoreError::NodeDied(self.died().text())),
            }
        }
    }

    pub fn allocate_warm(self: &Arc<Self>, len: usize) -> Option<Allocation> {
        let room = self.store.lock().allocate(len as u64)?;
        Some(Allocation::new(self, room, len))
    }

    /// Memory is short: the daemon gave us room in the spill file.
    fn allocate_in_file(
        self: &Arc<Self>,
        offset: u64,
        granted: u64,
        slot: u32,
        len: usize,
    ) -> Result<Allocation, StoreError> {
        let room = self.store.lock().allocate_in_file(offset, slot, len as u64);
        match room {
            Ok(room) => Ok(Allocation::new(self, room, len)),
            Err(error) => {
                let mut core = self.core.lock();
                self.store.lock().refuse_room(slot);
                self.return_room(&mut core, vec![(offset, granted)]);
                let text = format!(
                    "{len} bytes are to be written to the spill file, which cannot be mapped: {error}"
                );
                Err(StoreError::Denied(Failure::new(FailureKind::StoreFull, text)))
            }
        }
    }

    /// Room for what may never be sealed, from what is at hand; `None`, too, while the node is short of room.
    pub fn allocate_scratch(self: &Arc<Self>, len: usize) -> Option<Allocation> {
        let mut store = self.store.lock();
        if store.is_pressed() {
            return None;
        }
        let room = store.allocate(len as u64)?;
        drop(store);
        Some(Allocation::new(self, room, len))
    }

    /// Where allocations may lie in this process.
    pub fn arena_addresses(&self) -> std::ops::Range<usize> {
        self.arena.writing_addresses()
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

    /// What was just put in the store is to be on so many nodes.
    pub fn put_copies(&self, object: ObjectId, copies: u8) {
        self.with(|session, now, effects| session.put_copies(now, object, copies, effects));
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
        self.core.lock().session.result_stored(object, owner, location, contains);
        Value::Stored(location)
    }

    /// A sealed result that will not be replied: nobody else ever saw it.
    pub fn discard_result(&self, value: &Value) {
        if let Value::Stored(location) = value {
            let mut core = self.core.lock();
            core.session.result_discarded(*location);
            let pieces = self.store.lock().discard(*location);
            self.return_room(&mut core, pieces);
        }
    }

    fn seal(&self, allocation: &mut Allocation) -> Location {
        let room = allocation.room.take().expect("an allocation is sealed once");
        self.store.lock().seal(room)
    }

    // ---- references: each Python ObjectRef owns one ----

    pub fn add_ref(&self, object: ObjectId) {
        self.core.within(|core| core.session.add_ref(object));
    }

    pub fn drop_ref(&self, object: ObjectId) {
        self.core.within(|core| {
            if !core.session.drop_quietly(&object) {
                core.session.drop_ref(self.now(), object, &mut core.effects);
                self.carry_out(core);
                self.arm(core);
            }
        });
    }

    /// A ref leaves this process in a way that nobody follows (bytes that foreign code pickled): the daemon
    /// knows the object from now on.
    pub fn escape(&self, object: ObjectId) {
        self.with(|session, now, effects| session.escape(now, object, effects));
    }

    /// What this process calls is in no listing and no `timeline` once it has ended.
    pub fn tell_no_runs(&self) {
        self.with(|session, _, _| session.tell_no_runs());
    }

    /// Tasks that this process submits run where they would if no argument lay anywhere.
    pub fn ignore_where_arguments_lie(&self) {
        self.with(|session, _, _| session.ignore_where_arguments_lie());
    }

    // ---- reading ----

    /// The content if it is ready and readable here now; never waits. For a borrowed or spilled
    /// object that is not here, `None`: `wait` fetches it.
    pub fn read(self: &Arc<Self>, object: ObjectId) -> Option<Content> {
        let value = self.core.within(|core| core.session.value(object).cloned());
        let Some(value) = value else {
            return self.is_broken().then(|| Content::Failed(self.died()));
        };
        match value {
            Value::Inline(bytes) => Some(Content::Inline(bytes)),
            Value::Failed(failure) => {
                self.failure_told(object);
                Some(Content::Failed(failure))
            }
            Value::Stored(location) if location.known().is_none() => {
                // It lies at another node: the daemon is to fetch it.
                self.with(|session, _, effects| {
                    session.location_stale(object, location, effects);
                });
                None
            }
            Value::Stored(location) => self.read_stored(object, location, false),
        }
    }

    /// A top-level argument that lies in the store, as its call frame says. `None`: it moved; then
    /// this process holds one reference: `wait` for it, `read` it, `drop_ref` it.
    pub fn argument(self: &Arc<Self>, object: ObjectId, location: Location) -> Option<Content> {
        let mut core = self.core.lock();
        let Some(location) = location.known() else {
            core.session.add_ref(object);
            return None;
        };
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
        let pinned = {
            let mut store = self.store.lock();
            store.pin(location).map(|pin| match store.bytes(location) {
                Ok(bytes) => Ok((pin, bytes)),
                Err(error) => {
                    store.unpin(pin);
                    Err(error)
                }
            })
        };
        match pinned {
            Ok(Err(error)) => {
                let text = format!("{object} lies on disk and cannot be mapped now: {error}");
                Some(self.not_pinned(object, text, counted))
            }
            Ok(Ok((pin, bytes))) => {
                if !counted {
                    self.core.lock().session.add_ref(object);
                }
                let (client, pin) = (self.clone(), Mutex::new(Some(pin)));
                let release = Box::new(move || {
                    if let Some(pin) = pin.lock().take() {
                        client.store.lock().unpin(pin);
                        // Once closed, it counts for nobody.
                        if !client.closing.load(Ordering::Acquire) {
                            client.drop_ref(object);
                        }
                    }
                });
                Some(Content::Stored(Arc::new(Pinned { bytes, release })))
            }
            Err(PinError::Stale { .. } | PinError::Closing { .. }) => {
                self.with(|session, _, effects| {
                    session.location_stale(object, location, effects);
                });
                None
            }
            Err(error @ PinError::TableFull) => {
                Some(self.not_pinned(object, error.to_string(), counted))
            }
        }
    }

    /// This call cannot read it; another may.
    #[cold]
    fn not_pinned(&self, object: ObjectId, text: String, counted: bool) -> Content {
        if counted {
            self.drop_ref(object);
        }
        Content::Failed(Failure::new(FailureKind::StoreFull, text))
    }

    /// Whoever reads these next waits for them: they are asked for at once, and each is counted once.
    pub fn want(&self, objects: &[ObjectId]) {
        self.with(|session, _, effects| {
            objects.iter().for_each(|object| session.add_ref(*object));
            session.want(objects, effects);
        });
    }

    /// A failure that is no value is told once: who reads after this asks again, and so do we for those who
    /// wait at this moment.
    #[cold]
    fn failure_told(&self, object: ObjectId) {
        let mut core = self.core.lock();
        let core = &mut *core;
        if core.session.failure_told(object) && core.waiters > 0 {
            core.session.want(&[object], &mut core.effects);
            self.carry_out(core);
        }
    }

    /// Runs `callback` on the progress thread once the object is ready (soon, if it is).
    pub fn on_ready(&self, object: ObjectId, callback: Box<dyn FnOnce() + Send>) {
        let mut core = self.core.lock();
        let core = &mut *core;
        match core.session.watch(object, &mut core.effects) {
            Some(watch) => {
                core.watches.insert(watch, callback);
                self.may_lend(core);
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
}

impl Allocation {
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn new(client: &Arc<Client>, mut room: Room, len: usize) -> Allocation {
        let address = match &mut room.memory {
            Memory::Arena(claim) => claim.as_mut_ptr() as usize,
            Memory::File { room, .. } => room.as_mut_ptr() as usize,
        };
        Allocation { client: client.clone(), room: Some(room), address, len }
    }

    /// What keeps the memory where it is in this process, also after it was sealed; nothing is needed for what
    /// lies in the arena.
    pub fn mapping(&self) -> Option<Arc<FileRoom>> {
        match &self.room.as_ref()?.memory {
            Memory::Arena(_) => None,
            Memory::File { room, .. } => Some(room.clone()),
        }
    }

    /// 64-byte aligned, writable memory in the store.
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
            let pieces = self.client.store.lock().abandon(room);
            if !pieces.is_empty() {
                self.client.return_room(&mut self.client.core.lock(), pieces);
            }
        }
    }
}
