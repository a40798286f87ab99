//! Which objects this process can reach, and what the daemon knows of them.
//!
//! One count per object sums everything that refers to it here: Python refs, uses by unfinished calls,
//! containers (values with the ref inside), pinned views. `tokens` is what the daemon counts for this
//! process (ARCHITECTURE.md, "References").

use hashbrown::hash_map::Entry as MapEntry;
use hoplo_base::limits::MESSAGE_REFS_MAX;
use hoplo_base::{Instant, ObjectId, ProcessId, slack};
use hoplo_wire::node::{Notice, ToNode};
use hoplo_wire::reply::Returned;
use hoplo_wire::{Location, Value};

use super::{Effect, MEMORY_DELAY, SessionMachine};

#[derive(Debug)]
pub(super) struct Entry {
    pub state: State,
    /// `Ready` with a failure that is not its value: who asks again may get one.
    pub passing: bool,
    /// `Pending`, and made again: whoever makes it has not begun, or goes on for long.
    pub delayed: bool,
    /// Everything in this process that refers to it.
    pub count: u32,
    /// Tokens that the daemon counts for this process; given back when `count` falls to zero.
    pub tokens: u32,
    pub knowledge: Knowledge,
    /// Refs inside the value; each is counted once in its own entry. Set when Ready.
    pub contains: Box<[ObjectId]>,
    /// In order of their arrival.
    pub waiters: Vec<Waiter>,
}

/// Who waits here for an object's value. (One list: entries are copied when they go, and two would take longer.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiter {
    /// A task of this process, by `seq`.
    Task(u64),
    /// A callback.
    Watch(u64),
}

#[derive(Debug)]
pub(super) enum State {
    /// Its task is not finished, or (`asked`) the daemon was asked for it.
    Pending {
        asked: bool,
    },
    Ready(Value),
}

/// What the daemon knows of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// Nothing: no other process ever saw the ref.
    Private,
    /// This process sealed it in its own extent; nobody else ever saw the ref. One token.
    Sealed,
    /// It has a record.
    Shared,
    /// Borrowed, has a record, but the daemon may not know that we hold it (`tokens` is 0).
    Unreported,
}

impl Entry {
    pub fn pending(count: u32, knowledge: Knowledge) -> Self {
        Self {
            state: State::Pending { asked: false },
            passing: false,
            delayed: false,
            count,
            tokens: 0,
            knowledge,
            contains: Box::default(),
            waiters: Vec::new(),
        }
    }
}

impl Entry {
    /// It is awaited by nobody but who holds it here: its value changes nothing else.
    pub fn is_plain(&self) -> bool {
        self.count > 0
            && self.knowledge == Knowledge::Private
            && matches!(self.state, State::Pending { .. })
            && self.waiters.is_empty()
    }

    /// Its bytes are not where they were.
    pub fn leaves(&mut self) {
        self.state = State::Pending { asked: false };
        if self.knowledge == Knowledge::Sealed {
            self.knowledge = Knowledge::Shared; // it will come back in a place of the daemon's
        }
    }
}

/// Index of the pseudo-objects that stand for handles of actors.
const ACTOR_HANDLE: u32 = u32::MAX;

/// The list of borrowed objects is cleaned of dead ones when it grows over this.
pub(super) const UNREPORTED_MIN: usize = 1024;

/// The daemon hears at once when something this large is released.
const PROMPT_BYTES: u64 = 1 << 20;

impl SessionMachine {
    /// A small value put by this process; the caller owns one count.
    pub fn put_inline(&mut self, value: Value, contains: &[ObjectId]) -> ObjectId {
        let object = self.next_task().object(0);
        let mut entry = Entry::pending(1, Knowledge::Private);
        entry.state = State::Ready(value);
        entry.contains = contains.into();
        self.objects.insert(object, entry);
        self.count_all(contains);
        object
    }

    /// The id of a put that is about to be written into the store.
    pub fn next_put(&mut self) -> ObjectId {
        self.next_task().object(0)
    }

    /// A value that this process sealed in its own extent; the caller owns one count.
    pub fn put_stored(
        &mut self,
        now: Instant,
        object: ObjectId,
        location: Location,
        contains: &[ObjectId],
        effects: &mut Vec<Effect>,
    ) {
        self.mention_all(now, contains, effects);
        let mut entry = Entry::pending(1, Knowledge::Sealed);
        entry.state = State::Ready(Value::Stored(location));
        entry.contains = contains.into();
        entry.tokens = 1;
        self.objects.insert(object, entry);
        self.count_all(contains);
        self.counters.objects_stored += 1;
        self.counters.bytes_stored += location.len;
        let contains = contains.to_vec();
        self.notice(now, Notice::Sealed { object, location, contains, holder: self.me }, effects);
    }

    /// What this process just put is to be on so many nodes. The daemon hears it at once, and has a say in its end from now on.
    pub fn put_copies(
        &mut self,
        now: Instant,
        object: ObjectId,
        copies: u8,
        effects: &mut Vec<Effect>,
    ) {
        let entry =
            self.objects.get_mut(&object).expect("it was just put, and the caller holds it");
        if entry.knowledge == Knowledge::Sealed {
            entry.knowledge = Knowledge::Shared;
        }
        self.notice(now, Notice::Copies { object, copies }, effects);
        self.flush(effects);
    }

    /// A result that this worker sealed for `owner`. The daemon hears of it with the reply and not before.
    pub fn result_stored(
        &mut self,
        object: ObjectId,
        owner: ProcessId,
        location: Location,
        contains: &[ObjectId],
    ) {
        self.counters.objects_stored += 1;
        self.counters.bytes_stored += location.len;
        let contains = contains.to_vec();
        let notice = Notice::Sealed { object, location, contains, holder: owner };
        self.results.insert(location.slot, notice);
    }

    /// A result that was sealed and will not be replied.
    pub fn result_discarded(&mut self, location: Location) {
        let result = self.results.remove(&location.slot);
        assert!(result.is_some(), "only what was sealed here can be discarded");
    }

    /// Whether the daemon must hear something before a reply, even if it brings no tokens.
    pub fn owes_daemon(&self) -> bool {
        !self.unreported.is_empty() || !self.notices.is_empty()
    }

    /// A worker is about to write a reply: what it returns to `caller` and what it keeps is told before
    /// (REF-3, REF-4). Replies that bring tokens are written to one caller in the order of these calls.
    pub fn before_reply(
        &mut self,
        now: Instant,
        caller: ProcessId,
        returned: &[Returned],
        effects: &mut Vec<Effect>,
    ) {
        if returned.iter().any(brings_tokens) {
            self.notice(now, Notice::Replying { to: caller }, effects);
        }
        for one in returned {
            self.mention_all(now, &one.contains, effects);
            if let Value::Stored(location) = &one.value {
                // The stored object's record contains them.
                let sealed = self.results.remove(&location.slot);
                assert!(sealed.is_some(), "a worker seals the stored results that it replies");
                sealed.into_iter().for_each(|sealed| self.notice(now, sealed, effects));
                continue;
            }
            for object in &one.contains {
                let notice = Notice::Hold { object: *object, process: caller };
                self.notice(now, notice, effects);
            }
        }
        self.report_borrowed(now, effects);
        self.flush(effects);
    }

    pub fn add_ref(&mut self, object: ObjectId) {
        match self.objects.get_mut(&object) {
            Some(entry) => {
                entry.count += 1;
                if object.index == ACTOR_HANDLE {
                    self.handle_counted(object);
                }
            }
            None => {
                self.objects.insert(object, Entry::pending(1, Knowledge::Unreported));
                self.unreported.push(object);
                if self.unreported.len() > self.unreported_max {
                    let objects = &self.objects;
                    self.unreported.retain(|object| objects.contains_key(object));
                    self.unreported_max = UNREPORTED_MIN.max(2 * self.unreported.len());
                }
            }
        }
    }

    pub fn drop_ref(&mut self, now: Instant, object: ObjectId, effects: &mut Vec<Effect>) {
        let Some(entry) = self.objects.get_mut(&object) else {
            return; // the session was closed and opened again since the ref was made
        };
        assert!(entry.count > 0, "SES-2: {object} is dropped more often than it was counted");
        entry.count -= 1;
        if entry.count == 0 {
            self.unreachable(now, object, effects);
        } else if object.index == ACTOR_HANDLE {
            self.handle_counted(object);
        }
    }

    /// Drops a count if that changes nothing but this process's memory, as it nearly always does. False:
    /// nothing was done, `drop_ref` does it.
    pub fn drop_quietly(&mut self, object: &ObjectId) -> bool {
        if object.index == ACTOR_HANDLE || slack::is_due(self.objects.len()) {
            return false;
        }
        let MapEntry::Occupied(mut place) = self.objects.entry(*object) else { return false };
        let entry = place.get_mut();
        if entry.count > 1 {
            entry.count -= 1;
            return true;
        }
        let quiet = entry.knowledge == Knowledge::Private
            && entry.count == 1
            && entry.contains.is_empty()
            && entry.waiters.capacity() == 0
            && matches!(entry.state, State::Ready(_));
        if quiet {
            entry.state = State::Pending { asked: false };
            // It holds nothing more: what drops each of its parts need not look.
            std::mem::forget(place.remove_entry());
        }
        quiet
    }

    /// An argument that lies in the store, as it came with a call: counted once for the reader.
    pub fn borrow_stored(&mut self, object: ObjectId, location: Location) {
        self.add_ref(object);
        let entry = self.objects.get_mut(&object).expect("it was just counted");
        if let State::Pending { asked: false } = entry.state {
            entry.state = State::Ready(Value::Stored(location));
        }
    }

    pub fn value(&self, object: ObjectId) -> Option<&Value> {
        match &self.objects.get(&object)?.state {
            State::Ready(value) => Some(value),
            State::Pending { .. } => None,
        }
    }

    /// How often an object got a failure: while it stays the same, none of those that one waits for failed.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    pub fn has_failed(&self, object: ObjectId) -> bool {
        matches!(self.value(object), Some(Value::Failed(_)))
    }

    pub fn is_ready(&self, object: ObjectId) -> bool {
        self.value(object).is_some()
    }

    /// How often a value was told whose bytes may be at another node: while it stays the same, nothing new is to be fetched.
    pub fn far_values(&self) -> u64 {
        self.far_values
    }

    /// Somebody waits for these: what no task of ours will make is asked of the daemon.
    pub fn want(&mut self, objects: &[ObjectId], effects: &mut Vec<Effect>) {
        self.ask(objects, |objects| ToNode::Want { objects }, effects);
    }

    /// Somebody waits until these have a value, here or elsewhere.
    pub fn want_word(&mut self, objects: &[ObjectId], effects: &mut Vec<Effect>) {
        self.ask(objects, |objects| ToNode::WantWord { objects }, effects);
    }

    /// Of these, what has its value at another node is not ready any more, and is fetched.
    pub fn want_here(&mut self, objects: &[ObjectId], effects: &mut Vec<Effect>) {
        for object in objects {
            if let Some(Value::Stored(location)) = self.value(*object)
                && location.known().is_none()
            {
                self.location_stale(*object, *location, effects);
            }
        }
    }

    fn ask(
        &mut self,
        objects: &[ObjectId],
        message: impl Fn(Vec<ObjectId>) -> ToNode,
        effects: &mut Vec<Effect>,
    ) {
        let mut wanted = Vec::new();
        for object in objects {
            let unasked = |entry: &&Entry| {
                entry.passing || matches!(entry.state, State::Pending { asked: false })
            };
            if self.objects.get(object).filter(unasked).is_none() || self.is_coming(*object) {
                continue;
            }
            let entry = self.objects.get_mut(object).expect("it was just there");
            entry.passing = false;
            entry.delayed = false;
            entry.state = match &self.node_died {
                Some(failure) => {
                    self.failures += 1;
                    State::Ready(Value::Failed(failure.clone()))
                }
                None => {
                    wanted.push(*object);
                    State::Pending { asked: true }
                }
            };
        }
        if !wanted.is_empty() {
            self.flush(effects);
            for part in wanted.chunks(MESSAGE_REFS_MAX) {
                effects.push(Effect::Node(message(part.to_vec())));
            }
        }
    }

    /// A failure that is not the object's value was told to who asked: from now on it is not there. False if
    /// there was none.
    pub fn failure_told(&mut self, object: ObjectId) -> bool {
        let Some(entry) = self.objects.get_mut(&object) else { return false };
        let passing = std::mem::take(&mut entry.passing);
        if passing {
            entry.state = State::Pending { asked: false };
        }
        passing
    }

    /// The location that the value had is stale (spilled, moved): ask again.
    pub fn location_stale(&mut self, object: ObjectId, seen: Location, effects: &mut Vec<Effect>) {
        if let Some(entry) = self.objects.get_mut(&object)
            && matches!(&entry.state, State::Ready(Value::Stored(now)) if *now == seen)
        {
            entry.leaves();
            self.place_changed();
            self.want(&[object], effects);
        }
    }

    /// Registers a callback; `None` if the object is ready now.
    pub fn watch(&mut self, object: ObjectId, effects: &mut Vec<Effect>) -> Option<u64> {
        self.want(&[object], effects);
        let entry = self.objects.get_mut(&object)?;
        if matches!(entry.state, State::Ready(_)) {
            return None;
        }
        let watch = self.next_watch;
        self.next_watch += 1;
        entry.waiters.push(Waiter::Watch(watch));
        self.reasons += 1;
        Some(watch)
    }

    /// The shell could not free an object alone: the daemon is at it and frees it for us.
    pub fn free_refused(&mut self, now: Instant, object: ObjectId, effects: &mut Vec<Effect>) {
        self.report_borrowed(now, effects); // what it contains is held by its record until then
        self.notice(now, Notice::Released { object, tokens: 1 }, effects);
    }

    /// The shell freed it: the daemon forgets it, or never hears of it.
    pub fn freed(&mut self, now: Instant, object: ObjectId, effects: &mut Vec<Effect>) {
        self.report_borrowed(now, effects); // what it contained was held by its record
        let unsent = self.notices.iter().rposition(
            |notice| matches!(notice, Notice::Sealed { object: sealed, .. } if *sealed == object),
        );
        match unsent {
            Some(at) => {
                self.notices.remove(at);
            }
            None => self.notice(now, Notice::Freed { object }, effects),
        }
    }

    pub(super) fn count_all(&mut self, objects: &[ObjectId]) {
        for object in objects {
            self.add_ref(*object);
        }
    }

    pub fn drop_all(&mut self, now: Instant, objects: &[ObjectId], effects: &mut Vec<Effect>) {
        for object in objects {
            self.drop_ref(now, *object, effects);
        }
    }

    /// Whether a task here will still give it its value (items of a stream that came are made).
    pub(super) fn is_coming(&self, object: ObjectId) -> bool {
        let task = self.tasks.get(&object.task.seq).filter(|_| object.task.owner == self.me);
        task.is_some_and(|task| {
            task.stream.as_ref().is_none_or(|stream| object.index >= stream.received)
        })
    }

    /// Most objects are gone, and with them the tasks that made them. What else they took (queued notices, what they
    /// contained) goes in the next moments: only then is it the time to give memory back.
    #[cold]
    fn make_tables_smaller(&mut self, now: Instant) {
        self.objects.shrink_to(slack::room_for(self.objects.len()));
        self.tasks.shrink_to(slack::room_for(self.tasks.len()));
        self.memory_look.get_or_insert(now + MEMORY_DELAY);
        self.look_seldom();
    }

    /// The last count is gone.
    fn unreachable(&mut self, now: Instant, object: ObjectId, effects: &mut Vec<Effect>) {
        if self.is_coming(object)
            && matches!(self.objects[&object].state, State::Pending { asked: false })
        {
            return; // SES-2: its task completes it and finds that nobody wants it
        }
        let entry = self.objects.remove(&object).expect("the caller had it");
        let is_watch = |waiter: &Waiter| matches!(waiter, Waiter::Watch(_));
        assert!(entry.waiters.iter().all(is_watch), "a task that waits for {object} counts it");
        self.reasons -= entry.waiters.len() as u64;
        if slack::is_found(self.objects.len(), self.objects.capacity()) {
            self.make_tables_smaller(now);
        }
        match entry.knowledge {
            Knowledge::Private => {}
            Knowledge::Sealed => {
                let State::Ready(Value::Stored(location)) = entry.state else {
                    panic!("{object} was sealed here and never moved, but is {:?}", entry.state);
                };
                effects.push(Effect::FreeStored { object, location });
            }
            Knowledge::Shared if entry.tokens > 0 => {
                self.report_borrowed(now, effects); // a borrowed inner ref is held before its container goes
                let tokens = entry.tokens;
                self.notice(now, Notice::Released { object, tokens }, effects);
                if matches!(&entry.state, State::Ready(Value::Stored(it)) if it.len >= PROMPT_BYTES)
                {
                    self.flush(effects); // who made it uses the memory again while it is warm
                }
            }
            Knowledge::Shared | Knowledge::Unreported => {}
        }
        if let Some(actor) = self.actor_of_handle(object) {
            self.handle_dropped(actor);
        }
        self.drop_all(now, &entry.contains, effects);
    }
}

/// Whether the caller gets tokens with it: one for a stored object, one for each ref inside another.
pub fn brings_tokens(returned: &Returned) -> bool {
    matches!(returned.value, Value::Stored(_)) || !returned.contains.is_empty()
}
