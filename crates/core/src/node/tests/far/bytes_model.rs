//! Stored objects over several nodes, at random: words and bytes arrive late, copies cannot be sent, a store is full, a node dies. Whoever holds an
//! object can read it as long as somebody has its bytes; what nobody holds is gone everywhere, with its copies and their room. Of what is put with copies, no
//! object is lost that two nodes had before the death.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hoplo_wire::node::SharedState;
use hoplo_wire::peer::Peer;
use hoplo_wire::{FailureKind, Location, Value};

use super::*;
use crate::objects::{FreeOutcome, SpillOutcome};
use crate::transfer::{Done, Order, Place};

const NODES: usize = 4;
const BYTES: u64 = 5000;

struct World {
    nodes: Nodes,
    rng: u64,
    drivers: Vec<ProcessId>,
    links: BTreeMap<(usize, usize), VecDeque<Word>>,
    /// By the node that receives, and its ticket: from where, and whether it was told to stop.
    receives: BTreeMap<(usize, u64), (usize, Place, bool)>,
    /// By the node that sends, who asked, and its ticket: the slot of what is still coming to the sender, if it is.
    sends: BTreeMap<(usize, usize, u64), Option<u32>>,
    relayed: usize,
    /// Free slots and the next place of what each driver writes.
    room: Vec<(VecDeque<u32>, u64)>,
    /// To each driver.
    granted: Vec<u64>,
    objects: BTreeMap<ObjectId, Thing>,
    /// What owners are to make again.
    lost: VecDeque<ObjectId>,
    remade: usize,
    /// Objects whose home died when another node had one of the copies that it had asked for.
    saved: usize,
    dead: Option<usize>,
    seq: u64,
    /// Copies may fail to be sent.
    bad: bool,
    story: Vec<String>,
}

/// Of a decider: its cover and what it says.
type Word = (u64, Box<Peer>);

struct Thing {
    owner: usize,
    holders: BTreeSet<usize>,
    waiting: BTreeSet<usize>,
    /// Those of them that only ask where it is.
    asking: BTreeSet<usize>,
    /// On how many nodes it is to be.
    copies: u8,
    /// It had two copies when a node died.
    safe: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut nodes = Nodes::new(NODES);
        let drivers: Vec<ProcessId> = (0..NODES).map(|at| nodes.shells[at].driver()).collect();
        let mut room = Vec::new();
        for (at, driver) in drivers.iter().enumerate() {
            let want = ToNode::ExtentWant { request: 1, bytes: 1 << 20, slots: 64 };
            nodes.says(at, *driver, want);
            let granted = nodes.shells[at].told(*driver, |message| match message {
                ToClient::ExtentGranted { offset, slots, .. } => {
                    Some((slots.iter().copied().collect(), *offset))
                }
                _ => None,
            });
            room.push(granted.expect("there is room"));
        }
        let granted = |shell: &Shell| shell.node.objects.totals().granted_bytes;
        let granted = nodes.shells.iter().map(granted).collect();
        Self {
            granted,
            nodes,
            rng: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            drivers,
            links: BTreeMap::new(),
            receives: BTreeMap::new(),
            sends: BTreeMap::new(),
            relayed: 0,
            room,
            objects: BTreeMap::new(),
            lost: VecDeque::new(),
            remade: 0,
            saved: 0,
            dead: None,
            seq: 0,
            bad: true,
            story: Vec::new(),
        }
    }

    fn random(&mut self, below: usize) -> usize {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        (self.rng >> 33) as usize % below.max(1)
    }

    fn pick<T: Copy>(&mut self, from: impl Iterator<Item = T>) -> Option<T> {
        let all: Vec<T> = from.collect();
        let nth = self.random(all.len());
        all.get(nth).copied()
    }

    fn lives(&self, at: usize) -> bool {
        self.dead != Some(at)
    }

    fn hears(&mut self, at: usize, event: Event) {
        self.story.push(format!("{at} hears {event:?}"));
        self.nodes.shells[at].hears(event);
        self.collect(at);
    }

    fn says(&mut self, at: usize, message: ToNode) {
        self.hears(at, Event::Heard { from: self.drivers[at], message });
    }

    /// A driver wants more room than is free, and gives it back at once.
    fn press(&mut self, at: usize) {
        let totals = self.nodes.shells[at].node.objects.totals();
        let bytes = (totals.capacity_bytes - totals.granted_bytes).next_multiple_of(4096) + 4096;
        self.says(at, ToNode::ExtentWant { request: 2, bytes, slots: 0 });
    }

    fn notice(&mut self, at: usize, notice: Notice) {
        let message = ToNode::Notices(vec![notice]);
        self.hears(at, Event::Heard { from: self.drivers[at], message });
    }

    fn index_of(node: NodeNumber) -> usize {
        (0..NODES).find(|at| number(*at) == node).expect("one of ours")
    }

    /// What a node asked for is begun; words wait in the links.
    fn collect(&mut self, at: usize) {
        let mut frees = Vec::new();
        let mut done = Vec::new();
        let mut room = Vec::new();
        let mut sweeps = false;
        let mut settled = None;
        for effect in std::mem::take(&mut self.nodes.shells[at].effects) {
            match effect {
                Effect::SendPeer { to, cover, message } => {
                    let to = Self::index_of(to);
                    self.links.entry((at, to)).or_default().push_back((cover, message));
                }
                Effect::Sweep => sweeps = true,
                Effect::Spill { ticket, .. } => {
                    room.push(Event::Spilled { ticket, result: SpillOutcome::Pinned });
                }
                Effect::Reserve { ticket, .. } => {
                    room.push(Event::Reserved { ticket, result: Ok(()) });
                }
                Effect::Settle { epoch } => settled = Some(epoch),
                Effect::Free { ticket, .. } => frees.push(ticket),
                Effect::Haul { order: Order::Receive { ticket, from, place, written } } => {
                    assert!(written < place.len);
                    let from = Self::index_of(from);
                    self.receives.insert((at, ticket), (from, place, false));
                }
                Effect::Haul { order: Order::StopReceive { ticket } } => {
                    if let Some(receive) = self.receives.get_mut(&(at, ticket)) {
                        receive.2 = true;
                    }
                }
                Effect::Haul { order: Order::Send { to, ticket, .. } } => {
                    self.sends.insert((at, Self::index_of(to), ticket), None);
                }
                Effect::Haul { order: Order::Relay { to, ticket, place, .. } } => {
                    let mut comes = self.receives.iter().filter(|((it, _), _)| *it == at);
                    if comes.any(|(_, (_, coming, _))| *coming == place) {
                        self.relayed += 1;
                        self.sends.insert((at, Self::index_of(to), ticket), Some(place.slot));
                    } else {
                        let why = "it does not come".to_string();
                        done.push(Done::SendFailed { to, ticket, moved: true, why });
                    }
                }
                Effect::Haul { order: Order::Clear { ticket, slot } } => {
                    self.sends.retain(|(it, ..), relayed| *it != at || *relayed != Some(slot));
                    done.push(Done::Cleared { ticket });
                }
                Effect::Haul { order: Order::StopSend { to, ticket } } => {
                    self.sends.remove(&(at, Self::index_of(to), ticket));
                }
                Effect::Send { to, message } => self.told(at, to, message),
                Effect::Log { text } => assert!(!text.contains("protocol"), "{text}"),
                _ => {}
            }
        }
        for event in room {
            self.hears(at, event);
        }
        for done in done {
            self.hears(at, Event::Hauled { done });
        }
        for ticket in frees {
            let pinned = self.bad && self.random(4) == 0;
            let result = if pinned { FreeOutcome::Pinned } else { FreeOutcome::Done };
            self.hears(at, Event::Freed { ticket, result });
        }
        if let (Some(died), Some(dead)) = (settled, self.dead) {
            self.row(dead, NodeState::Settled { why: "it fell".to_string(), heir: None, died });
        }
        if sweeps {
            self.hears(at, Event::SweepBegins);
            self.hears(at, Event::Swept);
        }
    }

    fn told(&mut self, at: usize, to: ProcessId, message: ToClient) {
        assert_eq!(to, self.drivers[at]);
        match message {
            ToClient::Ready { object, value, .. } => {
                let thing = self.objects.get_mut(&object).unwrap();
                assert!(thing.waiting.remove(&at), "it asked");
                let asks = thing.asking.remove(&at);
                if let Value::Stored(location) = value {
                    assert!(asks || location.known().is_some(), "{at} is to read {object} here");
                }
                if let Value::Failed(failure) = value {
                    let excused = self.dead.is_some() && failure.kind == FailureKind::ObjectLost;
                    assert!(excused, "{at} holds {object}: {}", failure.text());
                    let Thing { owner, safe, .. } = self.objects[&object];
                    assert!(!self.lives(owner), "{at} lost {object}: {}", failure.text());
                    assert!(!safe, "{at} lost {object}, of which there were two copies");
                }
            }
            ToClient::Unreadable { object, failure } => {
                assert!(self.bad || self.dead.is_some(), "{at} and {object}: {}", failure.text());
                let thing = self.objects.get_mut(&object).unwrap();
                assert!(thing.waiting.remove(&at) && !thing.asking.contains(&at), "it reads");
            }
            ToClient::Remake { objects, .. } => {
                assert!(self.dead.is_some(), "nothing was lost");
                self.lost.extend(objects);
            }
            ToClient::Reclaimed { location, .. } => self.room[at].0.push_back(location.slot),
            ToClient::ExtentRecall { .. } => self.says(at, ToNode::ExtentRecalled),
            ToClient::ExtentGranted { offset, len, .. } => {
                self.says(at, ToNode::ExtentReturn { offset, len });
            }
            ToClient::FileGranted { offset, len, slot: _, .. } => {
                self.says(at, ToNode::ExtentReturn { offset, len });
            }
            _ => {}
        }
    }

    /// An owner has had a lost object made again somewhere.
    fn remake(&mut self) -> bool {
        let Some(object) = self.lost.pop_front() else { return false };
        let owner = self.drivers.iter().position(|driver| *driver == object.task.owner);
        let owner = owner.expect("one of ours");
        let room: Vec<usize> =
            self.living().into_iter().filter(|at| !self.room[*at].0.is_empty()).collect();
        let maker = self.pick(room.into_iter());
        match maker.filter(|_| self.random(8) > 0) {
            Some(maker) => {
                self.seals(owner, maker, object);
                if owner == maker {
                    let tokens = 1; // it holds it already
                    self.notice(owner, Notice::Released { object, tokens });
                }
                self.remade += 1;
            }
            None => {
                let value = Value::Inline((*b"small").into());
                self.notice(owner, Notice::Fulfilled { object, value, contains: vec![] });
            }
        }
        true
    }

    fn make(&mut self, owner: usize, maker: usize) {
        if self.objects.len() > 12 || !self.lives(owner) || !self.lives(maker) {
            return;
        }
        if self.room[maker].0.is_empty() {
            return;
        }
        self.seq += 1;
        let object = TaskId { owner: self.drivers[owner], seq: self.seq }.object(0);
        // Its owner holds it before its maker tells of it: in one process they are one word.
        if owner != maker {
            let state = SharedState::Pending { lineage: None };
            self.notice(owner, Notice::Shared { object, state });
        }
        self.seals(owner, maker, object);
        let holders = BTreeSet::from([owner]);
        let (waiting, asking) = (BTreeSet::new(), BTreeSet::new());
        let copies = if owner == maker { 1 + self.random(3) as u8 } else { 1 };
        let thing = Thing { owner, holders, waiting, asking, copies, safe: false };
        self.objects.insert(object, thing);
        if copies > 1 {
            self.notice(owner, Notice::Copies { object, copies });
        }
        if owner != maker {
            // A reply would come behind the word that tells the home.
            while self.deliver((maker, owner)) {}
        }
    }

    fn seals(&mut self, owner: usize, maker: usize, object: ObjectId) {
        let slot = self.room[maker].0.pop_front().expect("the caller has looked");
        let offset = self.room[maker].1;
        self.room[maker].1 += BYTES.next_multiple_of(64);
        let location = Location { slot, generation: 1, offset, len: BYTES };
        let holder = self.drivers[owner];
        self.notice(maker, Notice::Sealed { object, location, contains: vec![], holder });
    }

    fn deliver(&mut self, link: (usize, usize)) -> bool {
        let Some((cover, message)) = self.links.get_mut(&link).and_then(VecDeque::pop_front) else {
            return false;
        };
        if self.lives(link.1) && self.lives(link.0) {
            let from = number(link.0);
            self.hears(link.1, Event::Peer { from, cover, message });
        }
        true
    }

    /// One attempt ends, well or not.
    fn haul(&mut self, well: bool) -> bool {
        let done = self.receives.iter().map(|(key, receive)| (*key, *receive));
        let can = |((at, ticket), (from, _, stops)): &((usize, u64), (usize, Place, bool))| {
            let sends = self.sends.get(&(*from, *at, *ticket));
            *stops || sends == Some(&None) || self.dead == Some(*from)
        };
        let all: Vec<_> = done.filter(can).collect();
        let Some(((at, ticket), (from, place, stops))) = self.pick(all.into_iter()) else {
            return false;
        };
        self.receives.remove(&(at, ticket));
        let sends = self.sends.remove(&(from, at, ticket)).is_some();
        let why = "a test".to_string();
        if !self.lives(at) {
            return true;
        }
        if sends && self.lives(from) && (well || self.random(2) == 0) {
            for ((it, ..), relayed) in &mut self.sends {
                // What is whole is pinned for those to whom it is relayed.
                relayed.take_if(|slot| *it == at && *slot == place.slot);
            }
            self.hears(from, Event::Hauled { done: Done::Sent { to: number(at), ticket } });
            self.hears(at, Event::Hauled { done: Done::Received { ticket, generation: 1 } });
        } else if sends && self.lives(from) && !stops {
            let to = number(at);
            let done = Done::SendFailed { to, ticket, moved: false, why };
            self.receives.insert((at, ticket), (from, place, stops));
            self.hears(from, Event::Hauled { done });
        } else {
            let lost = !self.lives(from);
            let written = self.random(BYTES as usize) as u64;
            self.hears(
                at,
                Event::Hauled { done: Done::Stopped { ticket, written, why, lost, front: None } },
            );
        }
        true
    }

    fn want(&mut self, at: usize, object: ObjectId, asks: bool) {
        let thing = self.objects.get_mut(&object).unwrap();
        if !thing.holders.contains(&at) || !thing.waiting.insert(at) {
            return;
        }
        let objects = vec![object];
        let message = if asks {
            thing.asking.insert(at);
            ToNode::WantWord { objects }
        } else {
            ToNode::Want { objects }
        };
        self.hears(at, Event::Heard { from: self.drivers[at], message });
    }

    fn release(&mut self, at: usize, object: ObjectId) {
        let thing = self.objects.get_mut(&object).unwrap();
        if !thing.waiting.contains(&at) && thing.holders.remove(&at) {
            self.notice(at, Notice::Released { object, tokens: 1 });
        }
    }

    /// Until nothing is under way.
    fn drain(&mut self) {
        loop {
            let links: Vec<(usize, usize)> = self.links.keys().copied().collect();
            let mut moved = false;
            for link in links {
                moved |= self.deliver(link);
            }
            if !moved && !self.haul(true) && !self.remake() {
                return;
            }
        }
    }

    fn die(&mut self, at: usize) {
        if self.dead.is_some() {
            return;
        }
        // What it said before is heard; what others said to it is not.
        for to in 0..NODES {
            while self.deliver((at, to)) {}
        }
        let had = self.copies_had();
        for (object, thing) in &mut self.objects {
            thing.safe = had.get(object).is_some_and(|had| *had > 1);
            self.saved += usize::from(thing.safe && thing.owner == at);
        }
        self.dead = Some(at);
        self.story.push(format!("{at} dies"));
        self.objects.retain(|_, thing| {
            thing.holders.remove(&at);
            thing.waiting.remove(&at);
            thing.asking.remove(&at);
            !thing.holders.is_empty()
        });
        self.row(at, NodeState::dead("it fell"));
        self.sends.retain(|(from, to, _), _| *from != at && *to != at);
    }

    /// Of what is put with copies, as those say who are in charge.
    fn copies_had(&self) -> BTreeMap<ObjectId, u8> {
        let rows = self.living().into_iter();
        let rows = rows.flat_map(|at| self.nodes.shells[at].node.objects.listing());
        rows.filter_map(|row| Some((row.object, row.several?.had))).collect()
    }

    /// All who live hear it.
    fn row(&mut self, dead: usize, state: NodeState) {
        self.nodes.index += 1;
        let index = self.nodes.index;
        for other in self.living() {
            let entry = Box::new(node_entry(dead, state.clone()));
            self.hears(other, Event::Member { entry, index });
        }
    }

    fn step(&mut self) {
        let at = self.random(NODES);
        let other = self.random(NODES);
        let object = self.pick(self.objects.keys().copied().collect::<Vec<_>>().into_iter());
        match self.random(20) {
            0 | 1 => self.make(at, other),
            2..=4 => {
                let Some(object) = object.filter(|_| self.lives(at)) else { return };
                let thing = &self.objects[&object];
                if !thing.holders.is_empty()
                    && self.lives(thing.owner)
                    && thing.holders.contains(&thing.owner)
                    && self.objects.get_mut(&object).unwrap().holders.insert(at)
                {
                    let process = self.drivers[at];
                    self.notice(at, Notice::Hold { object, process });
                }
            }
            5..=8 => {
                if let Some(object) = object.filter(|_| self.lives(at)) {
                    let asks = self.random(3) == 0;
                    self.want(at, object, asks);
                }
            }
            9 => {
                if let Some(object) = object.filter(|_| self.lives(at)) {
                    if self.objects[&object].owner == at {
                        self.drain(); // so that all who hold it are known at its home
                    }
                    if self.objects.contains_key(&object) {
                        self.release(at, object);
                    }
                }
            }
            10..=15 => {
                let links = self.links.iter().filter(|(_, queue)| !queue.is_empty());
                let links: Vec<(usize, usize)> = links.map(|(link, _)| *link).collect();
                if let Some(link) = self.pick(links.into_iter()) {
                    self.deliver(link);
                }
            }
            16 if self.random(3) == 0 => {
                self.remake();
            }
            16..=17 => {
                self.haul(false);
            }
            18 if self.lives(at) => self.press(at),
            _ => {
                if self.random(40) == 0 {
                    self.die(1 + other % (NODES - 1));
                }
            }
        }
    }

    fn pass(&mut self, time: std::time::Duration) {
        for at in self.living() {
            let shell = &mut self.nodes.shells[at];
            shell.now = shell.now + time;
            self.hears(at, Event::Tick);
        }
    }

    fn living(&self) -> Vec<usize> {
        (0..NODES).filter(|at| self.lives(*at)).collect()
    }

    fn finish(&mut self) {
        self.drain();
        self.bad = false;
        // Who holds something can read it now.
        for object in self.objects.keys().copied().collect::<Vec<_>>() {
            for at in self.living() {
                self.want(at, object, false);
            }
        }
        self.drain();
        let waits = self.objects.iter().find(|(_, thing)| !thing.waiting.is_empty());
        assert!(waits.is_none(), "{:?} is waited for", waits.map(|(object, _)| object));
        // Those are asked again that had refused.
        self.pass(hoplo_base::limits::COPY_RETRY);
        self.drain();
        let had = self.copies_had();
        let used = |thing: &Thing| thing.copies > 1 && !thing.holders.is_empty();
        for (object, thing) in self.objects.iter().filter(|(_, thing)| used(thing)) {
            let had = had.get(object).copied().unwrap_or(0);
            let is_lost = had == 0 && !self.lives(thing.owner) && !thing.safe;
            let enough = had >= thing.copies;
            assert!(enough || is_lost, "{object} has {had} copies of {}", thing.copies);
        }
        for object in self.objects.keys().copied().collect::<Vec<_>>() {
            for at in self.living() {
                self.release(at, object);
            }
        }
        for _ in 0..3 {
            self.drain();
            self.pass(std::time::Duration::from_secs(1));
        }
        for at in self.living() {
            let objects = &self.nodes.shells[at].node.objects;
            let left: Vec<_> = objects.listing().collect();
            assert!(left.is_empty(), "node {at} keeps {left:#?}");
            let granted = objects.totals().granted_bytes;
            assert_eq!(
                granted, self.granted[at],
                "node {at}: all but its driver's extent came back"
            );
        }
    }
}

/// How often something was sent on before it was whole, how many copies went for want of room, what was made again, and what a second copy saved.
fn run(seed: u64) -> [usize; 4] {
    let mut world = World::new(seed);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for _ in 0..400 {
            world.step();
        }
        world.finish();
    }));
    if let Err(panic) = result {
        let story = world.story.len().saturating_sub(60);
        eprintln!("seed {seed}:\n{}", world.story[story..].join("\n"));
        std::panic::resume_unwind(panic);
    }
    let evicted = |shell: &Shell| shell.node.objects.totals().evictions as usize;
    let evicted = world.nodes.shells.iter().map(evicted).sum();
    [world.relayed, evicted, world.remade, world.saved]
}

#[test]
fn whoever_holds_an_object_can_read_it_and_what_nobody_holds_is_gone_everywhere() {
    let mut counts = [0; 4];
    for more in (0..100).map(run) {
        counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
    }
    let [relayed, evicted, remade, saved] = counts;
    assert!(relayed > 100 && evicted > 100 && remade > 20 && saved > 10, "{counts:?}");
}
