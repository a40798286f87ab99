//! Reference counting against plain reachability: random programs, sockets read in any order.
//!
//! The truth is the graph of what each live process could still get at; the daemon hears of it late
//! and out of order. A record that goes while its object is reachable fails at once; when everything
//! has been delivered and swept, the records are exactly what is reachable.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hoplo_wire::node::{DeathCause, Obituary};
use proptest::prelude::*;

use super::super::ranges::RangeSet;
use super::model_client::{Call, Client, Stage, Thing};

use super::*;

const PROCESSES: usize = 4;

#[derive(Debug)]
pub(super) struct World {
    directory: ObjectDirectory,
    pub(super) clients: Vec<Client>,
    pub(super) things: BTreeMap<ObjectId, Thing>,
    pub(super) calls: BTreeMap<u64, Call>,
    /// Ages of objects and ids of calls.
    pub(super) count: u64,
    /// Call rings, by worker.
    pub(super) frames: Vec<VecDeque<u64>>,
    /// Reply rings, by worker and caller.
    pub(super) replies: BTreeMap<(usize, usize), VecDeque<(u64, Reply)>>,
    /// To the daemon, by process.
    pub(super) sockets: Vec<VecDeque<Event>>,
    /// From the daemon, by process.
    pub(super) inboxes: Vec<VecDeque<ToClient>>,
    /// `Free` effects that are not carried out yet.
    frees: Vec<u64>,
    /// The sweep under way, and the sockets that it has not read yet.
    sweep: Option<(u64, Vec<usize>)>,
}

#[derive(Debug)]
pub(super) enum Reply {
    Stored(Vec<ObjectId>),
    Inline(Vec<ObjectId>),
}

/// A step: what, where, and three numbers to choose with.
type Step = (u8, u8, u8, u8, u8);

impl World {
    fn new() -> Self {
        let mut world = Self {
            directory: ObjectDirectory::new(HERE, Config::new(64 * MIB), Instant::ZERO),
            clients: Vec::new(),
            things: BTreeMap::new(),
            calls: BTreeMap::new(),
            count: 0,
            frames: vec![VecDeque::new(); PROCESSES],
            replies: BTreeMap::new(),
            sockets: vec![VecDeque::new(); PROCESSES],
            inboxes: vec![VecDeque::new(); PROCESSES],
            frees: Vec::new(),
            sweep: None,
        };
        for at in 0..PROCESSES {
            let from = process(at as u64);
            let mut effects = Vec::new();
            let joined = Event::ProcessJoined { process: from, slots: 64 };
            world.directory.handle(Instant::ZERO, joined, &mut effects);
            let wanted = Event::ExtentWanted { from, request: 1, bytes: 4096, slots: 0 };
            world.directory.handle(Instant::ZERO, wanted, &mut effects);
            let mut client = Client { alive: true, ..Client::default() };
            for effect in effects {
                match effect {
                    Effect::Welcome { slots, .. } => client.slots = slots,
                    Effect::Send { message: ToClient::ExtentGranted { offset, .. }, .. } => {
                        client.room = RangeSet::default();
                        client.room.insert(offset..offset + 4096);
                    }
                    other => panic!("{other:?}"),
                }
            }
            world.clients.push(client);
        }
        world
    }

    fn step(&mut self, (what, at, a, b, c): Step) {
        let at = usize::from(at) % PROCESSES;
        let chosen: Vec<ObjectId> =
            [b, c].into_iter().take(usize::from(a % 3)).filter_map(|n| self.pick(at, n)).collect();
        let lives = self.clients[at].alive;
        match what {
            0..4 if lives => self.put_small(at, chosen),
            4..8 if lives => self.put_large(at, chosen),
            8 if lives => self.create_actor(at),
            9..16 if lives => {
                let worker = (at + 1 + usize::from(c) % (PROCESSES - 1)) % PROCESSES;
                if self.clients[worker].alive {
                    self.call(at, worker, chosen);
                }
            }
            16..24 if lives => self.begin(at),
            24..30 if lives => self.finish(at, a >= 128, chosen),
            30..36 if lives => {
                if let Some(object) = self.pick(at, b) {
                    self.get(at, object);
                }
            }
            36..48 if lives => {
                let refs: Vec<_> = self.clients[at].refs.iter().copied().collect();
                if !refs.is_empty() {
                    self.clients[at].refs.remove(&refs[usize::from(b) % refs.len()]);
                    self.tell_what_changed(at);
                }
            }
            48..52 if lives => {
                if let Some(object) = self.pick(at, b) {
                    self.clients[at].refs.insert(object);
                }
            }
            52..62 if lives => {
                self.read_reply(at, usize::from(b));
            }
            62..66 if lives => self.receive_message(at),
            66..82 => self.read_socket(at),
            82..92 => self.sweep_on(usize::from(b)),
            92..94 => {
                self.free_one(usize::from(b), a % 4 == 0);
            }
            94 if lives && a < 64 => {
                if b.is_multiple_of(2) {
                    self.fail_to_finish(at, c.is_multiple_of(2), chosen);
                }
                self.crash(at, usize::from(b / 2));
            }
            95 if lives => self.hand_over(at, usize::from(c), b),
            96 if lives && a < 64 => self.run_twice(at, usize::from(c), b),
            _ => {}
        }
    }

    /// A whole call at once, by which the worker keeps what the caller lets go; all that is told
    /// about it still lies in the sockets.
    fn hand_over(&mut self, at: usize, to: usize, n: u8) {
        let worker = (at + 1 + to % (PROCESSES - 1)) % PROCESSES;
        let idle = self.frames[worker].is_empty() && self.clients[worker].task.is_none();
        let Some(object) = self.pick(at, n).filter(|_| idle && self.clients[worker].alive) else {
            return;
        };
        self.call(at, worker, vec![object]);
        self.begin(worker);
        self.clients[worker].refs.insert(object);
        self.finish(worker, false, vec![]);
        let result = self.calls.last_key_value().expect("it was made just now").1.result;
        while self.calls.values().any(|call| call.result == result) {
            self.read_reply(at, worker);
        }
        self.clients[at].refs.remove(&result);
        self.clients[at].refs.remove(&object);
        self.tell_what_changed(at);
    }

    /// A call whose worker is killed between what it tells of its result and the reply, and that runs again
    /// in another one, to another result.
    fn run_twice(&mut self, at: usize, to: usize, n: u8) {
        let worker = (at + 1 + to % (PROCESSES - 1)) % PROCESSES;
        let Some(heir) =
            (0..PROCESSES).find(|heir| *heir != at && *heir != worker && self.clients[*heir].alive)
        else {
            return;
        };
        let idle = |at: usize| self.frames[at].is_empty() && self.clients[at].task.is_none();
        if !self.clients[worker].alive || !idle(worker) || !idle(heir) {
            return;
        }
        let inner: Vec<ObjectId> = self.pick(at, n).into_iter().collect();
        self.call(at, worker, inner.clone());
        self.begin(worker);
        self.fail_to_finish(worker, true, inner);
        let id = *self.calls.last_key_value().expect("it was made just now").0;
        self.retry(id, heir);
        self.crash(worker, 1);
        self.put_small(heir, vec![]);
        self.begin(heir);
        let made = self.clients[heir].refs.last().copied();
        self.finish(heir, !n.is_multiple_of(4), made.into_iter().collect());
    }

    /// One of the objects that the program of `at` can name.
    fn pick(&self, at: usize, n: u8) -> Option<ObjectId> {
        let client = &self.clients[at];
        let borrowed = client.task.iter().flat_map(|task| &task.borrowed);
        let reach: BTreeSet<_> = client.refs.iter().chain(borrowed).copied().collect();
        reach.iter().nth(usize::from(n) % reach.len().max(1)).copied()
    }

    fn read_reply(&mut self, at: usize, n: usize) -> bool {
        let worker = (0..PROCESSES)
            .map(|i| (i + n) % PROCESSES)
            .find(|worker| self.replies.get(&(*worker, at)).is_some_and(|ring| !ring.is_empty()));
        let Some((id, reply)) = worker.and_then(|worker| self.next_reply(at, worker)) else {
            return false;
        };
        self.receive_reply(at, id, reply);
        true
    }

    pub(super) fn next_reply(&mut self, at: usize, worker: usize) -> Option<(u64, Reply)> {
        self.replies.get_mut(&(worker, at))?.pop_front()
    }

    fn read_socket(&mut self, at: usize) {
        if let Some(event) = self.sockets[at].pop_front() {
            self.feed(event);
        }
    }

    /// Reads one more socket to its end, or reports.
    fn sweep_on(&mut self, n: usize) {
        let Some((sweep, sockets)) = &mut self.sweep else { return };
        let sweep = *sweep;
        if sockets.is_empty() {
            self.sweep = None;
            return self.feed(Event::Swept { sweep });
        }
        let at = sockets.swap_remove(n % sockets.len());
        while !self.sockets[at].is_empty() {
            self.read_socket(at);
        }
    }

    fn free_one(&mut self, n: usize, pinned: bool) {
        if self.frees.is_empty() {
            return;
        }
        let ticket = self.frees.swap_remove(n % self.frees.len());
        let result = if pinned { FreeOutcome::Pinned } else { FreeOutcome::Done };
        self.feed(Event::Freed { ticket, result });
    }

    /// What it ran for others may run again.
    fn crash(&mut self, at: usize, n: usize) {
        let ids = |world: &Self, of: fn(&Call) -> usize| -> Vec<u64> {
            world.calls.iter().filter(|(_, call)| of(call) == at).map(|(id, _)| *id).collect()
        };
        for id in ids(self, |call| call.caller) {
            self.cancel(id);
            self.calls.remove(&id);
        }
        self.replies.retain(|(_, caller), _| *caller != at);
        for id in ids(self, |call| call.worker) {
            let worker = (at + 1 + n % (PROCESSES - 1)) % PROCESSES;
            if self.clients[worker].alive && self.calls[&id].caller != worker && n.is_multiple_of(2)
            {
                self.retry(id, worker);
            } else {
                self.cancel(id);
            }
        }
        self.clients[at] = Client::default();
        self.inboxes[at].clear();
        let obituary = "killed by the model".to_string();
        self.sockets[at].push_back(Event::ProcessGone { process: process(at as u64), obituary });
    }

    fn feed(&mut self, event: Event) {
        let before = self.states();
        let told = format!("{event:?}");
        let dead = match &event {
            Event::ProcessGone { process, .. } => Some(*process),
            _ => None,
        };
        let mut effects = Vec::new();
        let now = self.directory.next_deadline().unwrap_or_default();
        let now = if event == Event::Tick { now } else { self.directory.now };
        self.directory.handle(now.max(self.directory.now), event, &mut effects);
        self.directory.check();
        let after = self.states();
        let reachable = self.reachable();
        for (object, state) in before {
            let gone = !after.contains_key(&object) && !self.comes_anew(object);
            let lost = state == "unknown" && after.get(&object) == Some(&"failed");
            assert!(
                !(gone || lost) || !reachable.contains(&object),
                "{object} can be reached and goes by {told}: {:#?}\n{self:#?}",
                self.directory.story(object)
            );
        }
        if let Some(process) = dead {
            let cause = DeathCause::Signaled { signal: 9 };
            let obituary = Obituary { pid: 1, cause, last_lines: vec![] };
            let message = ToClient::ProcessGone { process, obituary, unstarted: vec![] };
            for at in (0..PROCESSES).filter(|at| self.clients[*at].alive) {
                self.inboxes[at].push_back(message.clone());
            }
        }
        for effect in effects {
            match effect {
                Effect::Send { to, message } => {
                    let at = to.slot();
                    if self.clients[at].alive {
                        self.inboxes[at].push_back(message);
                    }
                }
                Effect::Sweep { sweep } => {
                    assert!(self.sweep.is_none(), "one at a time");
                    self.sweep = Some((sweep, (0..PROCESSES).collect()));
                }
                Effect::Free { ticket, .. } => self.frees.push(ticket),
                Effect::ActorUnreachable { actor } => {
                    assert!(!reachable.contains(&actor.handle()), "{actor} by {told}");
                }
                Effect::ResetSlots { .. } | Effect::Punch { .. } | Effect::ReturnMemory => {}
                other @ (Effect::Welcome { .. }
                | Effect::Deny { .. }
                | Effect::Refuse { .. }
                | Effect::Spill { .. }
                | Effect::Restore { .. }
                | Effect::Reserve { .. }
                | Effect::Forget { .. }
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
                | Effect::Violation { .. }) => panic!("{other:?} by {told}"),
            }
        }
    }

    /// What went was left by a run that was killed; its owner, who never heard of it, makes another.
    fn comes_anew(&self, object: ObjectId) -> bool {
        let told = |event: &Event| match event {
            Event::Noticed { notice: Notice::Shared { object: told, .. }, .. } => *told == object,
            _ => false,
        };
        self.things[&object].twice && self.sockets.iter().flatten().any(told)
    }

    fn states(&self) -> BTreeMap<ObjectId, &'static str> {
        self.directory.listing().map(|row| (row.object, row.state)).collect()
    }

    /// The naive model: whatever a live process may still get at, and was told to the daemon.
    fn reachable(&self) -> BTreeSet<ObjectId> {
        let mut front: Vec<ObjectId> = Vec::new();
        for client in self.clients.iter().filter(|client| client.alive) {
            front.extend(&client.refs);
            front.extend(client.task.iter().flat_map(|task| &task.borrowed));
        }
        front.extend(self.clients.iter().flat_map(|client| client.near.values().flatten()));
        front.extend(self.calls.values().flat_map(|call| &call.args));
        for (_, reply) in self.replies.values().flatten() {
            match reply {
                // Its result is reached by the caller's refs, if it has any left. (Without one, a
                // record that was shared while pending may go, and `Sealed` makes another.)
                Reply::Stored(_) => {}
                Reply::Inline(contains) => front.extend(contains),
            }
        }
        let values: BTreeMap<ObjectId, Vec<ObjectId>> =
            self.directory.listing().map(|row| (row.object, row.contains)).collect();
        let mut reached = BTreeSet::new();
        while let Some(object) = front.pop() {
            if !reached.insert(object) {
                continue;
            }
            let thing = &self.things[&object];
            if self.clients[thing.owner].alive && !thing.twice {
                front.extend(thing.contains.as_ref().unwrap_or(&thing.lineage));
            } else {
                // It may have been run twice: its value is what the daemon says.
                front.extend(values.get(&object).into_iter().flatten());
                if !thing.told {
                    front.extend(thing.contains.iter().flatten());
                }
            }
        }
        reached.retain(|object| self.things[object].told);
        reached
    }

    /// Everything that is under way comes to its end.
    fn drain(&mut self) {
        let mut rounds = 0;
        while !self.is_quiet() {
            rounds += 1;
            assert!(rounds < 200, "it never comes to rest: {self:#?}");
            for at in 0..PROCESSES {
                while !self.sockets[at].is_empty() {
                    self.read_socket(at);
                }
                if self.clients[at].alive {
                    while !self.inboxes[at].is_empty() {
                        self.receive_message(at);
                    }
                    self.begin(at);
                    self.finish(at, false, vec![]);
                    while self.read_reply(at, 0) {}
                }
                self.sweep_on(0);
                self.free_one(0, false);
            }
            self.feed(Event::Tick);
        }
        let records: BTreeSet<_> = self.states().into_keys().collect();
        assert_eq!(records, self.reachable(), "left: records, right: reachable\n{self:#?}");
        for client in self.clients.iter().filter(|client| client.alive) {
            let held = client.refs.iter().filter(|object| self.things[*object].told);
            held.for_each(|object| assert!(client.tokens.contains_key(object), "{object}"));
        }
    }

    fn is_quiet(&self) -> bool {
        self.sweep.is_none()
            && self.frees.is_empty()
            && self.directory.pinned.is_empty()
            && self.calls.is_empty()
            && self.sockets.iter().all(VecDeque::is_empty)
            && self.inboxes.iter().all(VecDeque::is_empty)
    }

    fn run(steps: &[Step]) {
        let mut world = World::new();
        steps.iter().for_each(|step| world.step(*step));
        world.drain();
        for at in 0..PROCESSES {
            world.clients[at].refs.clear();
            world.tell_what_changed(at);
        }
        world.drain();
        assert_eq!(world.states(), BTreeMap::new());
        assert_eq!(world.directory.memory.tenants().count(), 0);
        for client in world.clients.iter().filter(|client| client.alive) {
            assert_eq!((client.room.bytes(), client.slots.len()), (4096, 64));
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0u8..97, any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>()), 40..120)
}

/// Few objects that go from hand to hand while sweeps are under way.
fn relays() -> impl Strategy<Value = Vec<Step>> {
    let what = prop_oneof![
        1 => Just(0u8),
        1 => Just(4),
        6 => Just(95),
        1 => Just(96),
        3 => Just(40),
        1 => Just(30),
        1 => Just(64),
        4 => Just(70),
        12 => Just(85),
    ];
    prop::collection::vec((what, any::<u8>(), 0u8..1, any::<u8>(), any::<u8>()), 40..160)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn an_object_goes_exactly_when_nothing_reaches_it(steps in steps()) {
        World::run(&steps);
    }

    #[test]
    fn an_object_that_changes_hands_during_sweeps_stays(steps in relays()) {
        World::run(&steps);
    }
}

#[test]
fn the_random_programs_reach_the_rare_states() {
    // Programs of fixed numbers: what the property above is worth if this list were short.
    let mut seen: BTreeMap<&'static str, u32> = BTreeMap::new();
    let mut number = 1u64;
    let mut next = || {
        number = number.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (number >> 56) as u8
    };
    for _ in 0..200 {
        let mut world = World::new();
        for _ in 0..120 {
            let step = (next() % 95, next(), next(), next(), next());
            world.step(step);
            for row in world.directory.listing() {
                *seen.entry(row.state).or_default() += 1;
                if row.holders.iter().any(|(_, tokens)| *tokens < 0) {
                    *seen.entry("below zero").or_default() += 1;
                }
                if row.containers > 1 {
                    *seen.entry("contained twice").or_default() += 1;
                }
            }
            if world
                .calls
                .values()
                .any(|call| call.parent.is_some() && call.stage == Stage::Running)
            {
                *seen.entry("nested").or_default() += 1;
            }
        }
    }
    for state in [
        "unknown",
        "handle",
        "pending",
        "orphaned",
        "inline",
        "failed",
        "stored",
        "below zero",
        "contained twice",
        "nested",
    ] {
        assert!(seen.get(state).is_some_and(|count| *count >= 5), "{state}: {seen:?}");
    }
}
