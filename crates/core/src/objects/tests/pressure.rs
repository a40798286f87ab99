//! Random pressure on a small store, with a shell that remembers what lies where.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use proptest::prelude::*;

use super::super::ranges::RangeSet;
use super::*;

const WRITERS: usize = 3;
const CAPACITY: u64 = 40 * PAGE;

#[derive(Debug)]
struct Store {
    directory: ObjectDirectory,
    now: Instant,
    writers: Vec<Writer>,
    processes: u64,
    /// What the bytes are, by offset; those of the spill file come after those of the arena.
    bytes: BTreeMap<u64, (u64, ObjectId)>,
    file_starts: u64,
    /// Closed or never readable: what the shell is working on.
    jobs: Vec<Job>,
    /// State words: which object each slot's word guards, while it is sealed.
    sealed: BTreeMap<u32, (u32, ObjectId)>,
    generations: BTreeMap<u32, u32>,
    pinned: BTreeSet<ObjectId>,
    sweep: Option<u64>,
    objects: u64,
    seen: BTreeMap<&'static str, u32>,
    /// Who left and has the store mapped, and where it may write.
    left: Vec<(ProcessId, RangeSet)>,
}

#[derive(Debug)]
struct Writer {
    process: ProcessId,
    socket: VecDeque<Event>,
    room: RangeSet,
    slots: Vec<u32>,
    /// In the spill file: location's offset, bytes and slot.
    rooms: Vec<(u64, u64, u32)>,
    holds: BTreeSet<ObjectId>,
    /// Sealed here, and nobody else has seen it.
    exclusive: BTreeMap<ObjectId, Location>,
    asked: BTreeSet<u64>,
}

#[derive(Debug)]
enum Job {
    Free {
        ticket: u64,
        location: Location,
    },
    Spill {
        ticket: u64,
        object: ObjectId,
        location: Location,
        place: SpillPlace,
    },
    /// It found a reader, or another generation.
    Passed {
        ticket: u64,
    },
    Restore {
        ticket: u64,
        object: ObjectId,
        place: SpillPlace,
        slot: u32,
    },
    Reserve {
        ticket: u64,
        place: SpillPlace,
    },
}

type Step = (u8, u8, u8, u8);

impl Store {
    fn new(arena_pages: u64, slots: u32) -> Self {
        let file_starts = arena_pages * PAGE;
        let config = Config { slots, arena_bytes: file_starts, ..Config::new(CAPACITY) };
        let mut store = Self {
            directory: ObjectDirectory::new(HERE, config, Instant::ZERO),
            now: Instant::ZERO,
            writers: Vec::new(),
            processes: 0,
            bytes: BTreeMap::new(),
            file_starts,
            jobs: Vec::new(),
            sealed: BTreeMap::new(),
            generations: BTreeMap::new(),
            pinned: BTreeSet::new(),
            sweep: None,
            objects: 0,
            seen: BTreeMap::new(),
            left: Vec::new(),
        };
        (0..WRITERS).for_each(|at| store.join(at));
        store
    }

    fn join(&mut self, at: usize) {
        self.processes += 1;
        let process = process(self.processes);
        let writer = Writer {
            process,
            socket: VecDeque::new(),
            room: RangeSet::default(),
            slots: Vec::new(),
            rooms: Vec::new(),
            holds: BTreeSet::new(),
            exclusive: BTreeMap::new(),
            asked: BTreeSet::new(),
        };
        if at == self.writers.len() {
            self.writers.push(writer);
        } else {
            self.writers[at] = writer;
        }
        self.feed(Event::ProcessJoined { process, slots: 2 });
    }

    fn step(&mut self, (what, at, a, b): Step) {
        let at = usize::from(at) % WRITERS;
        let process = self.writers[at].process;
        let held = |n: u8| {
            let holds = &self.writers[at].holds;
            holds.iter().nth(usize::from(n) % holds.len().max(1)).copied()
        };
        match what {
            0..12 => {
                let request = self.processes << 32 | u64::from(a) << 8 | u64::from(b);
                if self.writers[at].asked.insert(request) {
                    let bytes = u64::from(a) * CAPACITY / 240;
                    let slots = u32::from(b % 4);
                    let event = Event::ExtentWanted { from: process, request, bytes, slots };
                    self.writers[at].socket.push_back(event);
                }
            }
            12..26 => self.seal(at, 64 + u64::from(a) * u64::from(b)),
            26..30 => self.use_room(at, a < 200),
            30..38 => {
                if let Some(object) = held(a) {
                    self.let_go(at, object);
                }
            }
            38..44 => {
                if let Some(object) = held(a) {
                    let to = usize::from(b) % WRITERS;
                    self.writers[at].exclusive.remove(&object);
                    if self.writers[to].holds.insert(object) {
                        let notice = hold(object, self.writers[to].process);
                        let event = Event::Noticed { from: process, notice };
                        self.writers[at].socket.push_back(event);
                    }
                }
            }
            44..54 => {
                if let Some(object) = held(a) {
                    let event =
                        Event::Wanted { from: process, objects: vec![object], need: Need::Bytes };
                    self.writers[at].socket.push_back(event);
                }
            }
            54..57 => {
                if let Some(object) = held(a) {
                    self.pinned.insert(object);
                }
            }
            57..60 => drop(self.pinned.pop_first()),
            60..78 => self.read(at),
            78..90 => self.work(usize::from(a), b % 4 == 0),
            90..95 => self.sweep(),
            95..99 => self.tick(),
            99 if a < 80 => self.crash(at),
            99 if a < 160 => self.leave(at),
            _ => self.unmap(),
        }
    }

    fn seal(&mut self, at: usize, len: u64) {
        let writer = &mut self.writers[at];
        let Some(slot) = writer.slots.pop() else { return };
        let Some(range) = writer.room.take(len.next_multiple_of(64)) else {
            writer.slots.push(slot);
            return;
        };
        let (object, location) = self.seal_at(at, slot, range.start, len);
        self.writers[at].exclusive.insert(object, location);
    }

    fn seal_at(&mut self, at: usize, slot: u32, offset: u64, len: u64) -> (ObjectId, Location) {
        let process = self.writers[at].process;
        self.objects += 1;
        let object = object(process, self.objects);
        self.assert_empty(offset..offset + len);
        self.bytes.insert(offset, (len, object));
        let generation = self.set_word(object, slot);
        let location = Location { slot, generation, offset, len };
        let writer = &mut self.writers[at];
        writer.holds.insert(object);
        let notice = sealed(object, location, &[], process);
        writer.socket.push_back(Event::Noticed { from: process, notice });
        (object, location)
    }

    /// Writes what it was given room for in the spill file, or gives the room back.
    fn use_room(&mut self, at: usize, writes: bool) {
        let Some((offset, len, slot)) = self.writers[at].rooms.pop() else { return };
        if writes {
            self.seal_at(at, slot, offset, len - len / 3);
            return self.note("sealed in the file");
        }
        let writer = &mut self.writers[at];
        writer.slots.push(slot);
        let from = writer.process;
        writer.socket.push_back(Event::ExtentReturned { from, offset, len });
    }

    fn let_go(&mut self, at: usize, object: ObjectId) {
        let writer = &mut self.writers[at];
        writer.holds.remove(&object);
        let mut notice = released(object);
        if let Some(location) = writer.exclusive.remove(&object)
            && !self.pinned.contains(&object)
            && self.sealed.get(&location.slot) == Some(&(location.generation, object))
        {
            notice = Notice::Freed { object };
            self.sealed.remove(&location.slot);
            self.bytes.remove(&location.offset);
            writer.room.insert(granules(location));
            writer.slots.push(location.slot);
        }
        writer.socket.push_back(Event::Noticed { from: writer.process, notice });
    }

    fn read(&mut self, at: usize) {
        if let Some(event) = self.writers[at].socket.pop_front() {
            self.feed(event);
        }
    }

    fn read_all(&mut self) {
        for at in 0..WRITERS {
            while !self.writers[at].socket.is_empty() {
                self.read(at);
            }
        }
    }

    fn sweep(&mut self) {
        if let Some(sweep) = self.sweep {
            self.read_all();
            self.sweep = None;
            self.feed(Event::Swept { sweep });
        }
    }

    fn tick(&mut self) {
        if let Some(deadline) = self.directory.next_deadline() {
            self.now = self.now.max(deadline);
            self.feed(Event::Tick);
        }
    }

    fn crash(&mut self, at: usize) {
        while !self.writers[at].socket.is_empty() {
            self.read(at);
        }
        let process = self.writers[at].process;
        self.feed(Event::ProcessGone { process, obituary: "killed by the model".to_string() });
        self.join(at);
    }

    /// Its program goes on, and may write in what it was given.
    fn leave(&mut self, at: usize) {
        while !self.writers[at].socket.is_empty() {
            self.read(at);
        }
        let process = self.writers[at].process;
        self.feed(Event::ProcessLeft { process, obituary: "it left".to_string() });
        self.left.push((process, std::mem::take(&mut self.writers[at].room)));
        self.note("left");
        self.join(at);
    }

    fn unmap(&mut self) {
        if let Some((process, _)) = self.left.pop() {
            self.feed(Event::Unmapped { process });
        }
    }

    /// The shell carries one of its jobs to the end.
    fn work(&mut self, n: usize, fails: bool) {
        if self.jobs.is_empty() {
            return;
        }
        match self.jobs.swap_remove(n % self.jobs.len()) {
            Job::Free { ticket, location } => {
                if location.offset < self.file_starts {
                    self.bytes.remove(&location.offset).expect("it lay there");
                }
                self.feed(Event::Freed { ticket, result: FreeOutcome::Done });
            }
            Job::Spill { ticket, object, location, .. } if fails => {
                self.sealed.insert(location.slot, (location.generation, object));
                let result = SpillOutcome::Failed("disk full".to_string());
                self.feed(Event::Spilled { ticket, result });
            }
            Job::Spill { ticket, object, location, place } => {
                assert_eq!(self.bytes.remove(&location.offset), Some((location.len, object)));
                assert_eq!(place.len, location.len);
                let offset = self.file_starts + place.offset;
                self.assert_empty(offset..offset + place.len);
                self.bytes.insert(offset, (place.len, object));
                self.feed(Event::Spilled { ticket, result: SpillOutcome::Done });
            }
            Job::Passed { ticket } => {
                self.feed(Event::Spilled { ticket, result: SpillOutcome::Pinned });
            }
            Job::Restore { ticket, .. } if fails => {
                self.feed(Event::Restored { ticket, result: Err("unreadable".to_string()) });
            }
            Job::Restore { ticket, object, place, slot } => {
                let offset = self.file_starts + place.offset;
                assert_eq!(self.bytes[&offset], (place.len, object));
                let generation = self.set_word(object, slot);
                self.feed(Event::Restored { ticket, result: Ok(generation) });
            }
            Job::Reserve { ticket, .. } if fails => {
                let result = Err("disk full".to_string());
                self.feed(Event::Reserved { ticket, result });
            }
            Job::Reserve { ticket, place } => {
                let offset = self.file_starts + place.offset;
                self.assert_empty(offset..offset + place.len);
                self.feed(Event::Reserved { ticket, result: Ok(()) });
            }
        }
    }

    /// Seals; the slot is in no other use.
    fn set_word(&mut self, object: ObjectId, slot: u32) -> u32 {
        let generation = self.generations.entry(slot).or_insert(0);
        *generation += 1;
        let before = self.sealed.insert(slot, (*generation, object));
        assert_eq!(before, None, "slot {slot} is in use");
        *generation
    }

    fn assert_empty(&self, range: Range<u64>) {
        if let Some((offset, (len, object))) = self.bytes.range(..range.end).next_back() {
            assert!(offset + len <= range.start, "{object} lies in {range:?}");
        }
    }

    fn feed(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.directory.handle(self.now, event, &mut effects);
        self.directory.check();
        let totals = self.directory.totals();
        assert_eq!(totals.granted_bytes + totals.free_bytes, CAPACITY, "OBJ-1");
        for effect in effects {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send { to, message } => {
                if let Some(at) = self.writers.iter().position(|writer| writer.process == to) {
                    self.receive(at, message);
                }
            }
            Effect::Deny { to, request, .. } => {
                if let Some(writer) = self.writers.iter_mut().find(|it| it.process == to) {
                    assert!(writer.asked.remove(&request));
                    self.note("denied");
                }
            }
            Effect::Refuse { to, object, .. } => {
                if let Some(writer) = self.writers.iter().find(|it| it.process == to) {
                    let state = self.states().get(&object).copied();
                    let held = writer.holds.contains(&object);
                    assert!(state == Some("spilled") || !held, "{object} is {state:?}");
                    self.note("unreadable");
                }
            }
            Effect::Welcome { process, slots } => {
                let writer = self.writers.iter_mut().find(|writer| writer.process == process);
                writer.unwrap().slots = slots;
            }
            Effect::Sweep { sweep } => self.sweep = Some(sweep),
            Effect::Free { ticket, object, location } => {
                if self.states().get(&object) == Some(&"closing") {
                    self.note("close");
                }
                if self.close(object, location) {
                    self.jobs.push(Job::Free { ticket, location });
                } else {
                    self.note("free pinned");
                    self.feed(Event::Freed { ticket, result: FreeOutcome::Pinned });
                }
            }
            Effect::Spill { ticket, object, location, place } => {
                let closed = self.close(object, location);
                self.note(if closed { "spill" } else { "spill passed" });
                self.jobs.push(match closed {
                    true => Job::Spill { ticket, object, location, place },
                    false => Job::Passed { ticket },
                });
            }
            Effect::Restore { ticket, object, place, slot } => {
                self.note("restore");
                self.jobs.push(Job::Restore { ticket, object, place, slot });
            }
            Effect::Reserve { ticket, place } => {
                self.jobs.push(Job::Reserve { ticket, place });
            }
            Effect::Forget { range, end } => self.forget(range, end),
            Effect::ResetSlots { slots } => {
                for slot in slots {
                    assert!(!self.sealed.contains_key(&slot), "slot {slot} guards an object");
                }
            }
            Effect::Punch { offset, len } => {
                self.note("punch");
                self.assert_empty(offset..offset + len);
            }
            Effect::ReturnMemory => {}
            Effect::ActorUnreachable { .. }
            | Effect::Foreign { .. }
            | Effect::Unforeign { .. }
            | Effect::AskHome { .. }
            | Effect::Pull { .. }
            | Effect::TellHome { .. }
            | Effect::TellCopied { .. }
            | Effect::TellNotCopied { .. }
            | Effect::TellKnown { .. }
            | Effect::TellNotAdopted { .. }
            | Effect::TellMadeAt { .. }
            | Effect::AdoptAt { .. }
            | Effect::TellNode { .. }
            | Effect::AskCopy { .. }
            | Effect::ForgetCopy { .. }
            | Effect::TellSources { .. }
            | Effect::TellDelayed { .. }
            | Effect::Violation { .. } => panic!("{effect:?}"),
        }
    }

    fn states(&self) -> BTreeMap<ObjectId, &'static str> {
        self.directory.listing().map(|row| (row.object, row.state)).collect()
    }

    /// Nobody may read what goes.
    fn forget(&mut self, range: Range<u64>, end: u64) {
        let range = self.file_starts + range.start..self.file_starts + range.end;
        let gone: Vec<u64> = self.bytes.range(range).map(|(offset, _)| *offset).collect();
        for offset in gone {
            let (_, object) = self.bytes.remove(&offset).expect("it was just there");
            let read = self.sealed.values().any(|(_, sealed)| *sealed == object);
            // What could not be written is read where it was.
            let stays = self.bytes.values().any(|(_, other)| *other == object);
            assert!(!read || stays, "{object} is forgotten while it can be read");
        }
        let behind = self.bytes.range(self.file_starts + end..).next();
        assert_eq!(behind, None, "the file is cut off at {end}");
    }

    fn close(&mut self, object: ObjectId, location: Location) -> bool {
        let sealed = self.sealed.get(&location.slot) == Some(&(location.generation, object));
        if sealed && !self.pinned.contains(&object) {
            self.sealed.remove(&location.slot);
            return true;
        }
        false
    }

    fn receive(&mut self, at: usize, message: ToClient) {
        let process = self.writers[at].process;
        match message {
            ToClient::ExtentGranted { request, offset, len, slots } => {
                assert!(self.writers[at].asked.remove(&request));
                if len > 0 {
                    self.assert_empty(offset..offset + len);
                    let rooms = self.left.iter().flat_map(|(_, room)| room.iter());
                    let mut over = rooms.filter(|it| it.start < offset + len && offset < it.end);
                    assert_eq!(over.next(), None, "who left may write there");
                    self.writers[at].room.insert(offset..offset + len);
                }
                self.writers[at].slots.extend(slots);
                self.note("granted");
            }
            ToClient::FileGranted { request, offset, len, slot } => {
                assert!(self.writers[at].asked.remove(&request));
                self.assert_empty(offset..offset + len);
                self.writers[at].rooms.push((offset, len, slot));
                self.note("granted in the file");
            }
            ToClient::ExtentRecall { bytes } => self.return_pages(at, bytes),
            ToClient::Reclaimed { location, .. } => {
                self.assert_empty(granules(location));
                self.writers[at].room.insert(granules(location));
                self.writers[at].slots.push(location.slot);
            }
            ToClient::Ready { object, value: Value::Stored(location), .. } => {
                // Unless it was let go: then it may be another one's place by now.
                if self.writers[at].holds.contains(&object) {
                    assert_eq!(self.bytes[&location.offset], (location.len, object), "{process}");
                    self.note("ready");
                }
            }
            ToClient::Ready { object, value: Value::Failed(_), .. } => {
                assert!(!self.writers[at].holds.contains(&object), "{object} is lost");
            }
            other => panic!("{other:?}"),
        }
    }

    /// Gives back whole pages, as far as they are free, until it is enough.
    fn return_pages(&mut self, at: usize, bytes: u64) {
        let writer = &mut self.writers[at];
        let mut left = bytes.next_multiple_of(PAGE);
        let free: Vec<_> = writer.room.iter().collect();
        for range in free {
            let start = range.start.next_multiple_of(PAGE);
            let end = (range.end / PAGE * PAGE).min(start + left);
            if start < end {
                writer.room.remove(start..end);
                left -= end - start;
                let from = writer.process;
                let event = Event::ExtentReturned { from, offset: start, len: end - start };
                writer.socket.push_back(event);
            }
        }
        writer.socket.push_back(Event::ExtentRecalled { from: writer.process });
    }

    fn note(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    /// Everything is let go and comes to rest: nothing is left, no request without an answer.
    fn finish(&mut self) {
        self.pinned.clear();
        while !self.left.is_empty() {
            self.unmap();
        }
        self.come_to_rest();
        assert!(self.writers.iter().all(|writer| writer.asked.is_empty()), "{self:#?}");
        for at in 0..WRITERS {
            for object in self.writers[at].holds.clone() {
                self.let_go(at, object);
            }
        }
        self.come_to_rest();
        (0..WRITERS).for_each(|at| {
            while !self.writers[at].rooms.is_empty() {
                self.use_room(at, false);
            }
        });
        self.come_to_rest();
        assert_eq!(self.bytes, BTreeMap::new(), "{self:#?}");
        assert_eq!(self.directory.totals().disk_bytes, 0);
        let mut granted = 0;
        for at in 0..WRITERS {
            granted += self.writers[at].room.bytes();
        }
        assert_eq!(self.directory.totals().granted_bytes, granted);
        assert_eq!(self.directory.totals().objects, 0);
        (0..WRITERS).for_each(|at| self.crash(at));
        assert_eq!(self.directory.totals().free_bytes, CAPACITY);
    }

    fn come_to_rest(&mut self) {
        for _ in 0..500 {
            self.read_all();
            while !self.jobs.is_empty() {
                self.work(0, false);
            }
            self.sweep();
            let quiet = self.jobs.is_empty()
                && self.sweep.is_none()
                && self.writers.iter().all(|writer| writer.socket.is_empty());
            if quiet && self.directory.next_deadline().is_none() {
                return;
            }
            self.tick();
        }
        panic!("it never comes to rest: {self:#?}");
    }
}

fn granules(location: Location) -> Range<u64> {
    location.offset..location.offset + location.len.next_multiple_of(64)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0u8..100, any::<u8>(), any::<u8>(), any::<u8>()), 50..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 384, ..ProptestConfig::default() })]

    #[test]
    fn memory_adds_up_under_any_pressure(
        steps in steps(),
        arena_pages in prop_oneof![Just(40u64), Just(160)],
        slots in prop_oneof![Just(64u32), Just(12)],
    ) {
        let mut store = Store::new(arena_pages, slots);
        for step in steps {
            store.step(step);
        }
        store.finish();
    }
}

#[test]
fn the_random_pressure_is_some() {
    let mut number = 7u64;
    let mut next = || {
        number = number.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (number >> 56) as u8
    };
    let mut seen: BTreeMap<&'static str, u32> = BTreeMap::new();
    for round in 0..200 {
        let mut store = Store::new(40, if round % 2 == 0 { 64 } else { 12 });
        for _ in 0..200 {
            store.step((next() % 100, next(), next(), next()));
        }
        store.finish();
        for (what, count) in store.seen {
            *seen.entry(what).or_default() += count;
        }
    }
    for what in [
        "granted",
        "granted in the file",
        "sealed in the file",
        "denied",
        "spill",
        "spill passed",
        "restore",
        "ready",
        "unreadable",
        "punch",
        "free pinned",
        "left",
        "close",
    ] {
        assert!(seen.get(what).is_some_and(|count| *count >= 3), "{what}: {seen:?}");
    }
}
