//! What may happen next, and how far the search goes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hoplo_core::claims::{Claims, Epoch, Event, Passing};
use stateright::{Model, Property};

use super::state::{Item, Node, Object, State, epoch_of, id, number};

/// How far the search goes.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub(super) nodes: usize,
    /// Who holds what at the beginning.
    pub(super) holders: Vec<(usize, Object)>,
    pub(super) sends: u32,
    /// From whom to whom; all when there is none.
    pub(super) routes: Vec<(usize, usize)>,
    pub(super) reads: u32,
    /// Links that break.
    pub(super) repeats: u32,
    pub(super) deaths: u32,
    /// Who may be declared dead.
    pub(super) mortal: Vec<usize>,
    pub(super) sabotage: Option<Sabotage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sabotage {
    /// Frames leave, and nothing holds what they name.
    SkipsCover,
    /// `Settled` is said before the claims are confirmed.
    SettlesEarly,
    /// Dead nodes are struck, and estates freed, when their death is heard of.
    StrikesEarly,
    /// An epoch is said to be passed while claims are open.
    PassesEarly,
    /// What the carrier has not taken yet is not part of a sweep.
    SweepsWithoutQueue,
    /// Who reads a foreign container does not know what it contains.
    HidesContents,
    /// What comes again counts again.
    CountsTwice,
    /// Messages overtake each other.
    LosesOrder,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    Drops {
        at: usize,
        object: Object,
    },
    Sends {
        from: usize,
        to: usize,
        object: Object,
    },
    Reads(usize),
    Takes(usize),
    Arrives {
        from: usize,
        to: usize,
    },
    /// The link breaks: what was not acknowledged comes again.
    Breaks {
        from: usize,
        to: usize,
    },
    /// The second of a wire arrives first.
    Overtakes {
        from: usize,
        to: usize,
    },
    Swept(usize),
    Declared(usize),
    Stops(usize),
    Hears(usize),
    HearsThatAllPassed(usize),
}

impl Bound {
    /// What happens by itself.
    pub(super) fn what_goes_on(&self, state: &State, actions: &mut Vec<Action>) {
        for (&(from, to), wire) in &state.wires {
            if !wire.is_empty() && state.nodes[to].runs {
                actions.push(Action::Arrives { from, to });
            }
        }
        for (at, node) in state.nodes.iter().enumerate().filter(|(_, node)| node.runs) {
            if !node.queue.is_empty() {
                actions.push(Action::Takes(at));
            }
            let careless = self.sabotage == Some(Sabotage::SweepsWithoutQueue);
            if node.sweep.is_some_and(|frames| frames == 0 || careless) {
                actions.push(Action::Swept(at));
            }
            if !state.lives(at) {
                actions.push(Action::Stops(at));
            } else if node.heard < state.deaths.len() {
                actions.push(Action::Hears(at));
            } else if node.heard_passed < state.all_passed {
                actions.push(Action::HearsThatAllPassed(at));
            }
        }
    }

    pub(super) fn leads(&self, from: usize, to: usize) -> bool {
        from != to && (self.routes.is_empty() || self.routes.contains(&(from, to)))
    }

    /// What processes and faults add, as long as the bound allows.
    pub(super) fn what_may_come(&self, state: &State, actions: &mut Vec<Action>) {
        let (sends, reads, repeats) = state.used;
        if repeats < self.repeats {
            let breaks = |(from, to): &(usize, usize)| Action::Breaks { from: *from, to: *to };
            actions.extend(state.arrived.keys().map(breaks));
        }
        for (&(from, to), wire) in &state.wires {
            let second = wire.get(1).map(|(item, _)| item);
            if self.sabotage == Some(Sabotage::LosesOrder)
                && matches!(second, Some(Item::Parcel(_)))
            {
                actions.push(Action::Overtakes { from, to });
            }
        }
        for (at, node) in state.nodes.iter().enumerate().filter(|(_, node)| node.runs) {
            for &object in &node.holds {
                actions.push(Action::Drops { at, object });
                let others = (0..self.nodes).filter(|to| sends < self.sends && self.leads(at, *to));
                actions.extend(others.map(|to| Action::Sends { from: at, to, object }));
            }
            let hidden = self.sabotage == Some(Sabotage::HidesContents);
            let reads_c = node.holds.contains(&Object::C) && !node.holds.contains(&Object::X);
            if reads_c && reads < self.reads && (hidden || state.knows_contents(at)) {
                actions.push(Action::Reads(at));
            }
            let mortal = state.lives(at) && self.mortal.contains(&at);
            if mortal && state.deaths.len() < self.deaths as usize {
                actions.push(Action::Declared(at));
            }
        }
    }
}

impl Model for Bound {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut passing = Passing::default();
        let node = |at| Node {
            claims: Claims::new(number(at)),
            holds: BTreeSet::new(),
            queue: VecDeque::new(),
            sweep: None,
            runs: true,
            heard: 0,
            heard_passed: Epoch::default(),
        };
        let nodes: Vec<Node> = (0..self.nodes).map(node).collect();
        (0..self.nodes).for_each(|at| passing.joined(number(at)));
        let mut state = State {
            nodes,
            wires: BTreeMap::new(),
            arrived: BTreeMap::new(),
            frames: BTreeMap::new(),
            forged: BTreeMap::new(),
            deaths: Vec::new(),
            passing,
            all_passed: Epoch::default(),
            freed: BTreeSet::new(),
            used: (0, 0, 0),
            wrong: None,
        };
        for at in 0..self.nodes {
            for other in 0..self.nodes {
                let epoch = Epoch(other as u64 + 1);
                state.handle(self, at, Event::Joined { node: number(other), epoch });
            }
        }
        let homes = [(1, Object::X), (0, Object::C)];
        for &(at, object) in homes.iter().chain(&self.holders) {
            if state.nodes[at].holds.insert(object) {
                state.handle(self, at, Event::Held { object: id(object) });
            }
        }
        let contents = Box::from([id(Object::X)]);
        state.handle(self, 0, Event::Contains { container: id(Object::C), contents });
        state = self.run_down(state);
        for (at, object) in homes.into_iter().filter(|home| !self.holders.contains(home)) {
            state = self.next_state(&state, Action::Drops { at, object }).expect("it holds it");
        }
        vec![self.run_down(state)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.wrong.is_none() {
            self.what_goes_on(state, actions);
            self.what_may_come(state, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Drops { at, object } => {
                state.nodes[at].holds.remove(&object);
                state.handle(self, at, Event::Dropped { object: id(object) });
            }
            Action::Sends { from, to, object } => {
                state.used.0 += 1;
                state.nodes[from].queue.push_back((to, object));
            }
            Action::Reads(at) => {
                state.used.1 += 1;
                state.nodes[at].holds.insert(Object::X);
                state.handle(self, at, Event::Held { object: id(Object::X) });
            }
            Action::Takes(at) => state.takes(self, at)?,
            Action::Arrives { from, to } => {
                let (item, again) = state.wires.get_mut(&(from, to))?.pop_front()?;
                if state.used.2 < self.repeats {
                    let arrived = state.arrived.entry((from, to)).or_default();
                    arrived.push_back(item.clone());
                    arrived.drain(..arrived.len().saturating_sub(2));
                }
                state.takes_in(self, from, to, item, again);
            }
            Action::Breaks { from, to } => {
                state.used.2 += 1;
                let wire = state.wires.entry((from, to)).or_default();
                for item in state.arrived.remove(&(from, to))?.into_iter().rev() {
                    wire.push_front((item, true));
                }
            }
            Action::Overtakes { from, to } => {
                let (item, again) = state.wires.get_mut(&(from, to))?.remove(1)?;
                state.takes_in(self, from, to, item, again);
            }
            Action::Swept(at) => {
                state.nodes[at].sweep = None;
                state.handle(self, at, Event::Swept);
            }
            Action::Declared(at) => {
                state.deaths.push(at);
                let epoch = epoch_of(self, state.deaths.len());
                state.passing.died(number(at), epoch);
            }
            Action::Stops(at) => {
                state.nodes[at].runs = false;
                state.wires.retain(|(_, to), _| *to != at);
                state.arrived.retain(|(_, to), _| *to != at);
            }
            Action::Hears(at) => state.hears(self, at),
            Action::HearsThatAllPassed(at) => {
                state.nodes[at].heard_passed = state.all_passed;
                state.handle(self, at, Event::AllPassed { epoch: state.all_passed });
            }
        }
        if state.used.2 == self.repeats {
            state.arrived.clear();
        }
        state.wires.retain(|_, wire| !wire.is_empty());
        if state.wrong.is_none() {
            state.judge(self);
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing is wrong", |_, state: &State| state.wrong.is_none()),
            Property::sometimes("both objects go", |_, state: &State| state.freed.len() == 2),
        ]
    }
}

impl Bound {
    pub(super) fn run_down(&self, mut state: State) -> State {
        loop {
            let mut actions = Vec::new();
            self.what_goes_on(&state, &mut actions);
            let Some(action) = actions.into_iter().next() else { return state };
            state = self.next_state(&state, action).expect("it goes on");
        }
    }
}
