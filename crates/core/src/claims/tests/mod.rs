//! Nodes with links between them; a test says what arrives when, and which sweep ends.

use std::collections::{BTreeMap, VecDeque};

use hoplo_base::{NodeNumber, ObjectId, ProcessId, TaskId};

use super::{Claims, Cover, Effect, Epoch, Event, Message, Parcel, View};

mod covers;
mod deaths;
mod estates;
mod passing;
mod sets;

/// Nodes 0, 1, 2, ...; who is the n-th joined in epoch n + 1.
struct Nodes {
    nodes: Vec<Claims>,
    wires: BTreeMap<(usize, usize), VecDeque<Item>>,
    frames: u64,
    epoch: u64,
    /// What nodes asked for, but messages and sweeps.
    effects: Vec<(usize, Effect)>,
}

#[derive(Debug)]
enum Item {
    Frame { frame: u64, objects: Vec<ObjectId> },
    Parcel(Parcel),
}

fn number(at: usize) -> NodeNumber {
    NodeNumber::first_given(at as u32)
}

fn object(home: usize, seq: u64) -> ObjectId {
    TaskId { owner: ProcessId::new(number(home), 1, 1), seq }.object(0)
}

impl Nodes {
    fn new(count: usize) -> Self {
        let nodes = (0..count).map(|at| Claims::new(number(at))).collect();
        let (wires, effects) = (BTreeMap::new(), Vec::new());
        let mut all = Self { nodes, wires, frames: 0, epoch: count as u64, effects };
        for at in 0..count {
            for other in 0..count {
                let epoch = Epoch(other as u64 + 1);
                all.handle(at, Event::Joined { node: number(other), epoch });
            }
        }
        all
    }

    fn handle(&mut self, at: usize, event: Event) {
        let mut effects = Vec::new();
        self.nodes[at].handle(event, &mut effects);
        self.nodes[at].check();
        for effect in effects {
            match effect {
                Effect::Send { to, parcel } => {
                    let to = to.number() as usize - 1;
                    self.wires.entry((at, to)).or_default().push_back(Item::Parcel(parcel));
                }
                Effect::Sweep => {}
                other => self.effects.push((at, other)),
            }
        }
    }

    fn held(&mut self, at: usize, object: ObjectId) {
        self.handle(at, Event::Held { object });
    }

    fn dropped(&mut self, at: usize, object: ObjectId) {
        self.handle(at, Event::Dropped { object });
    }

    fn contains(&mut self, at: usize, container: ObjectId, contents: &[ObjectId]) {
        self.handle(at, Event::Contains { container, contents: contents.into() });
    }

    /// A frame leaves; who is there holds all that it names when it arrives.
    fn sends(&mut self, from: usize, to: usize, objects: &[ObjectId]) {
        self.frames += 1;
        let (frame, named) = (self.frames, objects.into());
        self.handle(from, Event::Covered { to: number(to), frame, objects: named });
        let item = Item::Frame { frame, objects: objects.to_vec() };
        self.wires.entry((from, to)).or_default().push_back(item);
    }

    /// All that is on its way from one node to another.
    fn arrives(&mut self, from: usize, to: usize) {
        for item in self.wires.remove(&(from, to)).unwrap_or_default() {
            let sender = number(from);
            match item {
                Item::Frame { frame, objects } => {
                    objects.iter().for_each(|object| self.held(to, *object));
                    let objects = objects.into();
                    self.handle(to, Event::Arrived { from: sender, frame, objects });
                }
                Item::Parcel(parcel) => {
                    self.handle(to, Event::Received { from: sender, parcel });
                }
            }
        }
    }

    /// Until nothing is on its way. Sweeps stay open.
    fn run(&mut self) {
        while let Some((from, to)) = self.wires.keys().next().copied() {
            self.arrives(from, to);
        }
    }

    /// Until nothing is on its way and nobody sweeps.
    fn run_down(&mut self) {
        self.run();
        while let Some(at) = (0..self.nodes.len()).find(|at| self.nodes[*at].sweep_under_way) {
            self.handle(at, Event::Swept);
            self.run();
        }
    }

    /// What it sent so far arrives nowhere, and nothing arrives there.
    fn dies(&mut self, at: usize) -> Epoch {
        self.epoch += 1;
        self.wires.retain(|(from, to), _| *from != at && *to != at);
        Epoch(self.epoch)
    }

    fn hears(&mut self, at: usize, dead: usize, epoch: Epoch) {
        self.handle(at, Event::Died { node: number(dead), heir: None, epoch });
    }

    /// What was said, once.
    fn said(&mut self) -> Vec<(usize, Effect)> {
        std::mem::take(&mut self.effects)
    }

    /// What is on its way from one node to another.
    fn messages(&self, from: usize, to: usize) -> Vec<Message> {
        let items = self.wires.get(&(from, to)).into_iter().flatten();
        let parcel = |item: &Item| match item {
            Item::Parcel(parcel) => Some(parcel.message.clone()),
            Item::Frame { .. } => None,
        };
        items.filter_map(parcel).collect()
    }

    fn view(&self, at: usize, object: ObjectId) -> View {
        self.nodes[at].view(object).unwrap_or_else(|| panic!("{at} knows nothing of {object}"))
    }
}
