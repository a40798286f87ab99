//! Reduces: for one node, decides which nodes fold which objects into what, and in which order it comes here.
//!
//! ```text
//!   Reduce --plan--> (others are under way) --> Folding --the last fold is made here--> (Answer: where it lies)
//!                       |                          |
//!                       +--------------------------+--a fold fails, a node dies, nobody waits any more--> (Answer: why not; a task folds)
//! ```
//! A process of this node asks for the sum (or another fold) of objects that lie in the stores of nodes, its *members*. What comes of it is
//! to lie here. The nodes that have members form a **chain**: the bytes of the first one's member go to the second node, which folds
//! its own into them as they come, and sends on what it made, as it sends on any object that comes to it (`crates/core/src/transfer`).
//! The last one sends to this node, which folds its own members in. So each link carries the size of one member once, and the whole
//! takes as long as one member takes on one link, and a piece for each further node.
//!
//! - Members at the same node are folded there in one step: a node sends once, however many members it has. This node comes last.
//! - A node with a single member begins, if there is one: it only sends. Else the first one folds its own members while it sends.
//! - Who asks has waited until all members are there, so nothing of a chain waits for a member. It would not be faster to begin earlier:
//!   the last member has to cross one link in any case.
//!
//! # Rings
//! A result that all nodes with members will read (`allreduce`) goes round a **ring** instead, if this node has a member and all are as long
//! (`Lap`): each node makes all of it, and each link carries `2 (n - 1) / n` of its size, where a chain and its readers need 2. The asker gets what is made
//! here. When it has sealed that as the result, the others hear that theirs is the same, and whoever reads the result there needs no byte of it
//! from elsewhere (`crates/core/src/transfer/on_ring.rs`).
//!
//! # Trains
//! If members of such a result come one after the other (`ToNode::Reduce`, `more`), they form a **train** ([`train`]): each is folded
//! as soon as it is there, and from the last one on the result goes from node to node. If all are there and one node is slow (`Event::Asked`), a train
//! that begins and ends at that node carries the size of a member once over each direction of its link, where a ring carries nearly twice that. A train holds rooms of nodes while it waits; who asks gives it
//! up if no member comes for a while. It waits for no place of other reduces, nor they for it: else one whose member needs another reduce
//! would wait for itself.
//!
//! # What is made on the way
//! has a name like an object's, whose owner is this node's haul, and whose index is its place in the chain; 0 is what comes of it all. No
//! directory knows it. It is kept where it is made until this node says that it is over. The last one's room is handed to the process that asked, which seals it
//! as its task's result: nothing is copied.
//!
//! # When something goes wrong
//! A chain of which nodes die is mended ([`mend`]): what was folded stays. Else
//! the whole reduce is given up, and whoever asked hears why. If another try may help, since a node died or an object moved, the task that asked gets
//! the members that are lost, as soon as they are made again, and asks again. Else it gets all of them and folds them itself, which does for any
//! values, and says what is wrong with those that differ. So nothing here has to tell good members from bad ones: nodes fold
//! only what is surely right, and refuse the rest.
//!
//! # Invariants
//! - COLL-1: each member is in one step of its reduce, once: an operand of one fold, or what the first one begins with.
//! - COLL-2: a reduce has the members that were asked for, and no others.
//! - COLL-3: a member that is made again is folded, once more, only into what does not have it. This holds for chains, with the exceptions that [`mend`] names.
//! - COLL-4: each reduce that was asked for is answered once. One that goes on when what was lost is there again is asked for anew then, under another number.
//! - COLL-5: a fold that another node was asked for is ended there once, whatever becomes of it, unless that node is dead.
//! - COLL-6: along a chain turns rise, so nobody waits for itself (XFER-8). In a ring each waits for the next one, and begins by itself.
//! - COLL-7: what a node makes in a ring becomes the result there only if the asker has sealed the bytes that it was given, as the result.

mod event;
mod lap;
mod mend;
mod numbers;
mod plan;
#[cfg(test)]
mod tests;
mod train;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hoplo_base::limits::{REDUCE_MEMBERS_MAX, REDUCES_AT_ONCE, REDUCES_MAX};
use hoplo_base::{Instant, NodeNumber, ObjectId, ProcessId, TaskId};
use hoplo_wire::{Fold, FoldOp, Location, NoReduce, Ring, Wish};

pub use event::{Effect, Event, Member};
pub use lap::{Lap, Turn};
use mend::{Broken, TURNS_APART};
pub use numbers::{divide, divides, fold, folds};
use train::Train;

#[derive(Debug)]
pub struct Collective {
    me: NodeNumber,
    /// Owns what is made.
    haul: ProcessId,
    /// By the task of what is made.
    reduces: BTreeMap<u64, Reduce>,
    /// Rings and trains that were answered, the oldest one first.
    given: VecDeque<Given>,
    /// So many were planned.
    last: u64,
    now: Instant,
}

#[derive(Debug)]
struct Reduce {
    asker: ProcessId,
    request: u64,
    /// Each as often as it was given.
    members: Vec<ObjectId>,
    shape: Shape,
    /// In this order. That of this node is the last one of a chain, and any one of a ring or a train.
    steps: Vec<Step>,
    /// What nodes are to be asked for, as long as others are under way.
    waiting: Folds,
    broken: Broken,
}

impl Reduce {
    fn is_train(&self) -> bool {
        matches!(self.shape, Shape::Train(_))
    }

    /// It takes a place of those that may be at once.
    fn is_under_way(&self) -> bool {
        self.waiting.is_empty() && !self.is_train()
    }
}

/// And who is asked for them.
type Folds = Vec<(NodeNumber, Fold)>;

#[derive(Debug)]
enum Shape {
    /// And what it begins with.
    Chain {
        head: (NodeNumber, ObjectId),
        /// Of all that is made.
        bytes: u64,
        op: FoldOp,
        /// The next name of what is made.
        names: u32,
    },
    /// And what is to become of it.
    Ring {
        result: ObjectId,
    },
    Train(Train),
}

/// The others of a ring, or a train, have what its asker has, and hear whether it became the result.
#[derive(Debug)]
struct Given {
    asker: ProcessId,
    request: u64,
    result: ObjectId,
    location: Location,
    others: Vec<(NodeNumber, ObjectId)>,
}

/// A fold that a node was asked for.
#[derive(Debug)]
struct Step {
    node: NodeNumber,
    made: ObjectId,
    operands: Vec<ObjectId>,
    turn: u64,
    /// That node will have the result.
    is_result: bool,
    /// What is in front of this byte is never made.
    begin: u64,
}

impl Step {
    fn of((node, fold): &(NodeNumber, Fold)) -> Self {
        let Fold { made, turn, ref operands, result, ref rest, .. } = *fold;
        let (is_result, begin) = (result.is_some(), rest.as_ref().map_or(0, |rest| rest.from));
        Self { node: *node, made, operands: operands.clone(), turn, is_result, begin }
    }

    /// What comes of it all, at the node of who asked.
    fn is_last(&self) -> bool {
        self.made.index == 0
    }
}

impl Shape {
    /// The member that a chain, or a train, begins with.
    fn head(&self) -> Option<(NodeNumber, ObjectId)> {
        match self {
            Self::Chain { head, .. } => Some(*head),
            Self::Train(train) => Some(train.head),
            Self::Ring { .. } => None,
        }
    }

    fn result(&self) -> Option<ObjectId> {
        match self {
            Self::Chain { .. } => None,
            Self::Train(train) => Some(train.result),
            Self::Ring { result } => Some(*result),
        }
    }
}

impl Given {
    fn end(&self, sealed: bool, effects: &mut Vec<Effect>) {
        let ends = self.others.iter();
        effects.extend(ends.map(|(at, made)| Effect::End { at: *at, made: *made, sealed }));
    }
}

impl Collective {
    pub fn new(me: NodeNumber, haul: ProcessId) -> Self {
        Self {
            me,
            haul,
            reduces: BTreeMap::new(),
            given: VecDeque::new(),
            last: 0,
            now: Instant::ZERO,
        }
    }

    pub fn handle(&mut self, now: Instant, event: Event, effects: &mut Vec<Effect>) {
        self.now = now;
        match event {
            Event::Asked { asker, request, wish, members, more: true, .. } => {
                self.on_some_asked((asker, request), wish, members, true, effects);
            }
            Event::Asked { asker, request, wish, members, more: false, slow } => {
                let takes_train = wish.for_all.is_some() && !self.is_full_of_trains();
                match plan::past_slow(self.me, &members, &slow).filter(|_| takes_train) {
                    Some(stops) => {
                        self.on_some_asked((asker, request), wish, stops, false, effects);
                    }
                    None => self.on_asked((asker, request), wish, members, effects),
                }
            }
            Event::More { asker, request, members, more } => {
                self.on_more((asker, request), members, more, effects);
            }
            Event::GivenUp { asker, request } => {
                let why = "nobody waits for it any more";
                self.end_those(
                    |reduce| (reduce.asker, reduce.request) == (asker, request),
                    why,
                    effects,
                );
                let is_it = |given: &Given| (given.asker, given.request) == (asker, request);
                self.end_given(is_it, None, effects);
            }
            Event::ProcessGone { process } => {
                let why = "its process is gone";
                self.end_those(|reduce| reduce.asker == process, why, effects);
                self.end_given(|given| given.asker == process, None, effects);
            }
            Event::NodeGone { node } => {
                let why = format!("node {} died", node.hex());
                let is_in = |reduce: &Reduce| {
                    let begins = reduce.shape.head().is_some_and(|head| head.0 == node);
                    begins || reduce.steps.iter().any(|step| step.node == node)
                };
                for seq in self.those(is_in) {
                    if !self.breaks(seq, node, effects) {
                        self.give_up(seq, NoReduce::new(&why, true), effects);
                    }
                }
            }
            Event::Broke { from, made, rest } => self.on_broke((from, made), rest, effects),
            Event::Mended { asker, request, was, members } => {
                self.on_mended(asker, (request, was), &members, effects);
            }
            Event::Made { made, location } => self.on_made(made, location, effects),
            Event::Sealed { process, object, location } => {
                // What else is sealed there has taken its place.
                let is_it = |given: &Given| {
                    let is_there = place(given.location) == place(location);
                    given.asker == process && (given.result == object || is_there)
                };
                self.end_given(is_it, Some((object, location)), effects);
            }
            Event::Failed { from, made, why, again } => {
                self.on_failed(from, made, (&why, again), effects);
            }
        }
        self.begin(effects);
    }

    /// Who waits for what is made under this name.
    pub fn asker(&self, made: ObjectId) -> Option<ProcessId> {
        let reduce = self.reduces.get(&made.task.seq).filter(|_| made.task.owner == self.haul);
        reduce.map(|reduce| reduce.asker)
    }

    /// What a fold is for, and how far it has come, for people.
    pub fn explain(&self, asker: ProcessId) -> Option<String> {
        let reduce = self.reduces.values().find(|reduce| reduce.asker == asker)?;
        let nodes: Vec<String> = reduce.steps.iter().map(|step| step.node.hex()).collect();
        let (members, nodes) = (reduce.members.len(), nodes.join(", "));
        Some(match reduce.shape {
            Shape::Chain { .. } if reduce.broken.told => {
                format!(
                    "{members} members are folded on their way, and some of them are made again"
                )
            }
            Shape::Chain { head: (from, _), .. } => {
                format!(
                    "{members} members are folded on their way from node {} by {nodes}",
                    from.hex()
                )
            }
            Shape::Ring { .. } => format!("{members} members are folded round the nodes {nodes}"),
            Shape::Train(ref train) => {
                let from = train.head.0.hex();
                format!(
                    "{members} members, so far, are folded as they come, from node {from} by {nodes}"
                )
            }
        })
    }

    fn on_asked(
        &mut self,
        (asker, request): (ProcessId, u64),
        wish: Wish,
        members: Vec<Member>,
        effects: &mut Vec<Effect>,
    ) {
        let refuse = |why| Effect::Refuse { asker, request, no: NoReduce::new(why, false) };
        if self.reduce_of(asker, request).is_some() {
            return; // the first one is answered
        }
        if self.reduces.len() >= REDUCES_MAX || members.len() > REDUCE_MEMBERS_MAX {
            return effects.push(refuse("too much is folded at once"));
        }
        let task = self.task(self.last + 1);
        let ring = wish.for_all.and_then(|result| self.ring(task, &wish, result, &members));
        let Some((shape, folds)) = ring.or_else(|| self.chain(task, &wish, &members)) else {
            return effects.push(refuse("all members are at this node, or one is at none"));
        };
        self.last += 1;
        let steps = folds.iter().map(Step::of).collect();
        let members = members.into_iter().map(|member| member.object).collect();
        let (waiting, broken) = (folds, Broken::default());
        let reduce = Reduce { asker, request, members, shape, steps, waiting, broken };
        self.reduces.insert(self.last, reduce);
    }

    /// The first members of a train; without `more` all of them, the slow node's first.
    fn on_some_asked(
        &mut self,
        (asker, request): (ProcessId, u64),
        wish: Wish,
        members: Vec<Member>,
        more: bool,
        effects: &mut Vec<Effect>,
    ) {
        let refuse = |why| Effect::Refuse { asker, request, no: NoReduce::new(why, true) };
        if self.reduce_of(asker, request).is_some() {
            return; // the first one is answered
        }
        if self.is_full_of_trains() {
            return effects.push(refuse("too much is folded at once"));
        }
        let task = self.task(self.last + 1);
        let mut rest = members.into_iter();
        let begun = wish.for_all.zip(rest.next()).and_then(|(result, first)| {
            let since = (!more).then_some(self.now);
            let train = Train::new(self.me, task, wish, result, &first, since)?;
            Some((train, first.object))
        });
        let Some((train, first)) = begun else {
            return effects.push(refuse("it is not for all, or its first member is at no node"));
        };
        self.last += 1;
        let (members, steps, waiting) = (vec![first], Vec::new(), Vec::new());
        let (shape, broken) = (Shape::Train(train), Broken::default());
        let reduce = Reduce { asker, request, members, shape, steps, waiting, broken };
        self.reduces.insert(self.last, reduce);
        self.on_more((asker, request), rest.collect(), more, effects);
    }

    fn is_full_of_trains(&self) -> bool {
        let trains = self.reduces.values().filter(|reduce| reduce.is_train()).count();
        self.reduces.len() >= REDUCES_MAX || trains >= REDUCES_AT_ONCE
    }

    /// Of a train, unless it was given up. Without `more` these are the last ones.
    fn on_more(
        &mut self,
        (asker, request): (ProcessId, u64),
        members: Vec<Member>,
        more: bool,
        effects: &mut Vec<Effect>,
    ) {
        let Some(seq) = self.reduce_of(asker, request) else { return };
        let reduce = self.reduces.get_mut(&seq).expect("it was just there");
        let Shape::Train(train) = &mut reduce.shape else { return };
        if reduce.steps.iter().any(|step| step.is_result) {
            return; // it has its last member
        }
        let (mut folds, mut left) = (Folds::new(), members.len());
        for member in members {
            left -= 1;
            let has_room = reduce.members.len() < REDUCE_MEMBERS_MAX;
            let fold = has_room.then(|| train.takes(&member, left == 0 && !more)).flatten();
            let Some(fold) = fold else {
                let why = "two members are at one node, or differ in length";
                return self.give_up(seq, NoReduce::new(why, true), effects);
            };
            reduce.members.push(member.object);
            folds.push(fold);
        }
        if !more {
            if folds.is_empty() {
                let why = "its last member is missing";
                return self.give_up(seq, NoReduce::new(why, true), effects);
            }
            folds.extend(train.copies());
        }
        reduce.steps.extend(folds.iter().map(Step::of));
        for (at, fold) in folds {
            effects.push(Effect::Fold { at, fold: Box::new(fold) });
        }
    }

    /// Whose results are what the reduce of this number makes.
    fn task(&self, seq: u64) -> TaskId {
        TaskId { owner: self.haul, seq }
    }

    fn reduce_of(&self, asker: ProcessId, request: u64) -> Option<u64> {
        let is_it = |reduce: &Reduce| (reduce.asker, reduce.request) == (asker, request);
        self.reduces.iter().find(|(_, reduce)| is_it(reduce)).map(|(seq, _)| *seq)
    }

    /// As many as may be under way, the oldest ones first.
    fn begin(&mut self, effects: &mut Vec<Effect>) {
        let under_way = self.reduces.values().filter(|reduce| reduce.is_under_way()).count();
        let waiting = self.reduces.values_mut().filter(|reduce| !reduce.waiting.is_empty());
        for reduce in waiting.take(REDUCES_AT_ONCE.saturating_sub(under_way)) {
            for (at, fold) in std::mem::take(&mut reduce.waiting) {
                effects.push(Effect::Fold { at, fold: Box::new(fold) });
            }
        }
    }

    fn chain(&self, task: TaskId, wish: &Wish, members: &[Member]) -> Option<(Shape, Folds)> {
        let plan::Chain { head, bytes, steps } = plan::chain(self.me, members)?;
        let count = steps.len();
        let mut upstream = head;
        let folds = steps.into_iter().enumerate().map(|(at, (node, operands))| {
            // The last one is 0.
            let made = task.object(((at + 1) % count) as u32);
            let (from, source) = std::mem::replace(&mut upstream, (node, made));
            let fold = Fold {
                made,
                op: wish.op,
                bytes,
                from,
                upstream: source,
                operands,
                turn: (at as u64 + 1) * TURNS_APART,
                divide_by: wish.divide_by.filter(|_| at + 1 == count),
                ring: None,
                result: None,
                rest: None,
            };
            (node, fold)
        });
        let (op, names) = (wish.op, count as u32);
        Some((Shape::Chain { head, bytes, op, names }, folds.collect()))
    }

    fn ring(
        &self,
        task: TaskId,
        wish: &Wish,
        result: ObjectId,
        members: &[Member],
    ) -> Option<(Shape, Folds)> {
        let plan::Circle { bytes, nodes } = plan::ring(self.me, members)?;
        let of = nodes.len();
        // What this node makes is 0.
        let named = |at: usize| match nodes[at % of].0 {
            me if me == self.me => task.object(0),
            _other => task.object((at % of) as u32 + 1),
        };
        let fold = |(at, (node, operands)): (usize, &(NodeNumber, Vec<ObjectId>))| {
            let fold = Fold {
                made: named(at),
                op: wish.op,
                bytes,
                from: nodes[(at + 1) % of].0,
                upstream: named(at + 1),
                operands: operands.clone(),
                turn: 1,
                divide_by: wish.divide_by,
                ring: Some(Ring { at: at as u32, of: of as u32 }),
                result: Some(result),
                rest: None,
            };
            (*node, fold)
        };
        Some((Shape::Ring { result }, nodes.iter().enumerate().map(fold).collect()))
    }

    /// It is in the store of this node.
    fn on_made(&mut self, made: ObjectId, location: Location, effects: &mut Vec<Effect>) {
        let reduce = self.reduces.remove(&made.task.seq).expect("who is made here was asked for");
        assert_eq!(made.index, 0, "what is made here is 0");
        let (asker, request) = (reduce.asker, reduce.request);
        // What was made last is the asker's now.
        Self::end_steps(&reduce, |step| !step.is_last() && !step.is_result, effects);
        if let Some(result) = reduce.shape.result() {
            let others = reduce.steps.iter().filter(|step| !step.is_last() && step.is_result);
            let others = others.map(|step| (step.node, step.made)).collect();
            self.given.push_back(Given { asker, request, result, location, others });
        }
        if let Shape::Train(Train { head: (node, _), past_slow_since: Some(since), .. }) =
            reduce.shape
        {
            let bytes = location.len;
            effects.push(Effect::PassedSlow { node, bytes, since });
        }
        effects.push(Effect::Answer { asker, request, location });
        if self.given.len() > REDUCES_MAX
            && let Some(oldest) = self.given.pop_front()
        {
            // Who wants the result has fetched it by now, or fetches it.
            oldest.end(false, effects);
        }
    }

    /// COLL-7. What was sealed, if anything was.
    fn end_given(
        &mut self,
        which: impl Fn(&Given) -> bool,
        what: Option<(ObjectId, Location)>,
        effects: &mut Vec<Effect>,
    ) {
        self.given.retain(|given| {
            if !which(given) {
                return true;
            }
            let is_it = |(object, location): (ObjectId, Location)| {
                object == given.result && place(location) == place(given.location)
            };
            let sealed = what.is_some_and(is_it);
            given.end(sealed, effects);
            false
        });
    }

    fn on_failed(
        &mut self,
        from: NodeNumber,
        made: ObjectId,
        (why, again): (&str, bool),
        effects: &mut Vec<Effect>,
    ) {
        let is_one = |reduce: &Reduce| {
            reduce.steps.iter().any(|step| step.node == from && step.made == made)
        };
        // Else it is over, or that node was never asked.
        if made.task.owner == self.haul && self.reduces.get(&made.task.seq).is_some_and(is_one) {
            let why = format!("node {} could not fold it: {why}", from.hex());
            self.give_up(made.task.seq, NoReduce::new(why, again), effects);
        }
    }

    fn those(&self, which: impl Fn(&Reduce) -> bool) -> Vec<u64> {
        self.reduces.iter().filter(|(_, reduce)| which(reduce)).map(|(seq, _)| *seq).collect()
    }

    fn end_those(&mut self, which: impl Fn(&Reduce) -> bool, why: &str, effects: &mut Vec<Effect>) {
        for seq in self.those(which) {
            // Who still waits may try again, with nodes that live.
            self.give_up(seq, NoReduce::new(why, true), effects);
        }
    }

    fn give_up(&mut self, seq: u64, no: NoReduce, effects: &mut Vec<Effect>) {
        let reduce = self.reduces.remove(&seq).expect("the caller has seen it");
        if reduce.waiting.is_empty() {
            Self::end_steps(&reduce, |_| true, effects);
        }
        let (asker, request) = (reduce.asker, reduce.request);
        // COLL-4: who was told what is lost hears it when it says that this is there again.
        if !reduce.broken.told {
            effects.push(Effect::Refuse { asker, request, no });
        }
    }

    /// COLL-5
    fn end_steps(reduce: &Reduce, which: impl Fn(&Step) -> bool, effects: &mut Vec<Effect>) {
        for step in reduce.steps.iter().filter(|step| which(step)) {
            effects.push(Effect::End { at: step.node, made: step.made, sealed: false });
        }
    }

    /// Panics with the invariant that does not hold.
    pub fn check(&self) {
        let mut asked = BTreeSet::new();
        for (seq, reduce) in &self.reduces {
            assert!(asked.insert((reduce.asker, reduce.request)), "COLL-4: {reduce:?}");
            let operands = reduce.steps.iter().flat_map(|step| step.operands.iter().copied());
            let mut folded: Vec<ObjectId> = operands.collect();
            folded.extend(reduce.shape.head().map(|(_, member)| member));
            let mut members = reduce.members.clone();
            folded.sort_unstable();
            members.sort_unstable();
            assert_eq!(folded, members, "COLL-1, COLL-2: {reduce:?}");
            let last: Vec<&Step> = reduce.steps.iter().filter(|step| step.is_last()).collect();
            assert!(last.iter().all(|step| step.node == self.me), "{reduce:?}");
            let waits = reduce.is_train() && !reduce.steps.iter().any(|step| step.is_result);
            assert_eq!(last.len(), usize::from(!waits), "{reduce:?}");
            let made: BTreeSet<ObjectId> = reduce.steps.iter().map(|step| step.made).collect();
            assert_eq!(made.len(), reduce.steps.len(), "COLL-5: {reduce:?}");
            assert!(made.iter().all(|it| it.task.owner == self.haul && it.task.seq == *seq));
            let turns: Vec<u64> = reduce.steps.iter().map(|step| step.turn).collect();
            match reduce.shape {
                Shape::Chain { .. } => {
                    assert_eq!(reduce.steps.last().map(|step| step.node), Some(self.me));
                    assert!(turns.is_sorted_by(|one, next| one < next), "COLL-6: {turns:?}");
                }
                Shape::Train(_) => {
                    assert!(turns.iter().copied().eq(1..=turns.len() as u64), "COLL-6: {turns:?}");
                }
                Shape::Ring { .. } => assert!(turns.iter().all(|turn| *turn == 1), "{turns:?}"),
            }
        }
        assert!(self.reduces.len() <= REDUCES_MAX && self.given.len() <= REDUCES_MAX);
        let waiting = self.reduces.values().filter(|it| !it.waiting.is_empty()).count();
        let under_way = self.reduces.values().filter(|it| it.is_under_way()).count();
        let trains = self.reduces.values().filter(|it| it.is_train()).count();
        assert!(trains <= REDUCES_AT_ONCE);
        assert!(under_way <= REDUCES_AT_ONCE && (waiting == 0 || under_way == REDUCES_AT_ONCE));
    }
}

/// Whatever its generation: what is handed over is sealed anew.
fn place(location: Location) -> (u32, u64, u64) {
    (location.slot, location.offset, location.len)
}
