//! The nodes with what is between them, and what must hold in each state.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hoplo_base::{NodeNumber, ObjectId, ProcessId, TaskId};
use hoplo_core::claims::{Claims, Effect, Epoch, Event, Message, Parcel, Passing};

use super::model::{Bound, Sabotage};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Object {
    X,
    C,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Item {
    Frame { frame: u64, object: Object },
    Parcel(Parcel),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) claims: Claims,
    pub(super) holds: BTreeSet<Object>,
    /// Frames that processes wrote and the carrier has not taken.
    pub(super) queue: VecDeque<(usize, Object)>,
    /// A sweep is under way, and so many frames of the queue are part of it.
    pub(super) sweep: Option<usize>,
    pub(super) runs: bool,
    pub(super) heard: usize,
    pub(super) heard_passed: Epoch,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) nodes: Vec<Node>,
    /// By sender and receiver. `true`: it arrived once.
    pub(super) wires: BTreeMap<(usize, usize), VecDeque<(Item, bool)>>,
    /// The last two that arrived: their acknowledgements may be lost.
    pub(super) arrived: BTreeMap<(usize, usize), VecDeque<Item>>,
    pub(super) frames: BTreeMap<(usize, usize), u64>,
    /// Parcels that were handed in, where they are counted anew.
    pub(super) forged: BTreeMap<(usize, usize), u64>,
    /// In order.
    pub(super) deaths: Vec<usize>,
    pub(super) passing: Passing,
    pub(super) all_passed: Epoch,
    pub(super) freed: BTreeSet<Object>,
    pub(super) used: (u32, u32, u32),
    pub(super) wrong: Option<String>,
}

pub(super) fn number(node: usize) -> NodeNumber {
    NodeNumber::first_given(node as u32)
}

pub(super) fn index(node: NodeNumber) -> usize {
    node.number() as usize - 1
}

pub(super) fn id(object: Object) -> ObjectId {
    let home = match object {
        Object::C => 0,
        Object::X => 1,
    };
    TaskId { owner: ProcessId::new(number(home), 1, 1), seq: 1 }.object(0)
}

pub(super) fn object(id: ObjectId) -> Object {
    if id == self::id(Object::X) { Object::X } else { Object::C }
}

/// The node table begins with everybody; then each death has its epoch.
pub(super) fn epoch_of(bound: &Bound, deaths: usize) -> Epoch {
    Epoch((bound.nodes + deaths) as u64)
}

impl State {
    pub(super) fn lives(&self, at: usize) -> bool {
        !self.deaths.contains(&at)
    }

    pub(super) fn has_heard(&self, at: usize, of: usize) -> bool {
        self.deaths[..self.nodes[at].heard].contains(&of)
    }

    /// Hands an event to a node, and carries out what it asks for.
    pub(super) fn handle(&mut self, bound: &Bound, at: usize, event: Event) {
        let mut effects = Vec::new();
        self.nodes[at].claims.handle(event, &mut effects);
        self.nodes[at].claims.check();
        for effect in effects {
            match effect {
                Effect::Send { to, parcel } => self.put(at, index(to), Item::Parcel(parcel)),
                Effect::Sweep => self.nodes[at].sweep = Some(self.nodes[at].queue.len()),
                Effect::Free { object } if self.lives(at) => {
                    self.freed.insert(self::object(object));
                }
                Effect::Free { .. } | Effect::Forget { .. } => {}
                Effect::Lost { object } => {
                    if self.lives(at) && self.nodes[at].holds.contains(&self::object(object)) {
                        self.wrong =
                            Some(format!("reach: {at} holds {object} and hears it is lost"));
                    }
                }
                Effect::Passed { epoch } => self.passes(at, epoch),
                Effect::Violation { node, what } => {
                    if bound.sabotage.is_none() {
                        self.wrong = Some(format!("{at} accuses {node}: {what}"));
                    }
                }
            }
        }
    }

    pub(super) fn passes(&mut self, at: usize, epoch: Epoch) {
        if let Some(epoch) = self.passing.passed(number(at), epoch) {
            self.all_passed = epoch;
        }
    }

    pub(super) fn put(&mut self, from: usize, to: usize, item: Item) {
        if self.nodes[to].runs && !self.has_heard(to, from) {
            self.wires.entry((from, to)).or_default().push_back((item, false));
        }
    }

    pub(super) fn takes(&mut self, bound: &Bound, at: usize) -> Option<()> {
        let (to, object) = self.nodes[at].queue.pop_front()?;
        if let Some(sweep) = &mut self.nodes[at].sweep {
            *sweep = sweep.saturating_sub(1);
        }
        if !self.has_heard(at, to) {
            let frame = self.frames.entry((at, to)).or_default();
            *frame += 1;
            let frame = *frame;
            if bound.sabotage != Some(Sabotage::SkipsCover) {
                let objects = Box::from([id(object)]);
                self.handle(bound, at, Event::Covered { to: number(to), frame, objects });
            }
            self.put(at, to, Item::Frame { frame, object });
        }
        Some(())
    }

    pub(super) fn takes_in(
        &mut self,
        bound: &Bound,
        from: usize,
        to: usize,
        item: Item,
        again: bool,
    ) {
        let sender = number(from);
        match item {
            Item::Frame { frame, object } => {
                let arrived = Event::Arrived { from: sender, frame, objects: [id(object)].into() };
                let early = bound.sabotage == Some(Sabotage::SettlesEarly);
                if early {
                    self.handle(bound, to, arrived.clone());
                }
                if !again && self.nodes[to].holds.insert(object) {
                    self.handle(bound, to, Event::Held { object: id(object) });
                }
                if !early {
                    self.handle(bound, to, arrived);
                }
            }
            Item::Parcel(mut parcel) => {
                if matches!(bound.sabotage, Some(Sabotage::CountsTwice | Sabotage::LosesOrder)) {
                    let seq = self.forged.entry((from, to)).or_default();
                    *seq += 1;
                    parcel.seq = *seq;
                }
                if bound.sabotage == Some(Sabotage::HidesContents)
                    && let Message::Claimed { contents, .. } = &mut parcel.message
                {
                    *contents = None;
                }
                self.handle(bound, to, Event::Received { from: sender, parcel });
            }
        }
    }

    pub(super) fn hears(&mut self, bound: &Bound, at: usize) {
        let node = self.deaths[self.nodes[at].heard];
        self.nodes[at].heard += 1;
        let epoch = epoch_of(bound, self.nodes[at].heard);
        self.wires.retain(|wire, _| *wire != (node, at) && *wire != (at, node));
        self.arrived.retain(|wire, _| *wire != (node, at) && *wire != (at, node));
        self.handle(bound, at, Event::Died { node: number(node), heir: None, epoch });
        match bound.sabotage {
            Some(Sabotage::StrikesEarly) => self.handle(bound, at, Event::AllPassed { epoch }),
            Some(Sabotage::PassesEarly) => self.passes(at, epoch),
            _ => {}
        }
    }

    pub(super) fn knows_contents(&self, at: usize) -> bool {
        let view = self.nodes[at].claims.view(id(Object::C));
        view.is_some_and(|view| view.contents.is_some())
    }

    /// What living processes hold, or somebody alive has sent to somebody alive, and what is inside.
    pub(super) fn reached(&self) -> BTreeSet<Object> {
        let living = (0..self.nodes.len()).filter(|at| self.lives(*at));
        let mut reached: BTreeSet<Object> = BTreeSet::new();
        let mut known = false;
        for at in living {
            reached.extend(&self.nodes[at].holds);
            let queue = self.nodes[at].queue.iter().filter(|(to, _)| self.lives(*to));
            reached.extend(queue.map(|(_, object)| *object));
            known |= self.knows_contents(at);
        }
        for ((from, to), wire) in &self.wires {
            for (item, again) in wire {
                if let Item::Frame { object, .. } = item
                    && self.lives(*from)
                    && self.lives(*to)
                    && !again
                {
                    reached.insert(*object);
                }
            }
        }
        if reached.contains(&Object::C) && known {
            reached.insert(Object::X);
        }
        reached
    }

    pub(super) fn judge(&mut self, bound: &Bound) {
        let reached = self.reached();
        if let Some(object) = reached.intersection(&self.freed).next() {
            self.wrong = Some(format!("reach: {object:?} is freed, and somebody reaches it"));
        }
        let mut under_way = Vec::new();
        bound.what_goes_on(self, &mut under_way);
        if !under_way.is_empty() {
            return;
        }
        let living = (0..self.nodes.len()).filter(|at| self.lives(*at));
        for at in living.collect::<Vec<_>>() {
            for object in [Object::X, Object::C] {
                if !reached.contains(&object)
                    && let Some(view) = self.nodes[at].claims.view(id(object))
                {
                    self.wrong = Some(format!("leak: {at} keeps {object:?}: {view:?}"));
                }
            }
            if reached.is_empty() && !self.nodes[at].claims.is_empty() {
                self.wrong = Some(format!("leak: {:?}", self.nodes[at].claims));
            }
        }
    }
}
