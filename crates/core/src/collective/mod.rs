//! Reduces: for one node, decides which nodes fold which objects into what, and in which order it comes here.
//!
//! ```text
//!   Reduce --plan--> Folding --the last fold is made here--> (Answer: where it lies)
//!                       |
//!                       +--a fold fails, a node dies, nobody waits any more--> (Answer: why not; a task folds)
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
//! # What is made on the way
//! has a name like an object's, whose owner is this node's haul, and whose index is its place in the chain; 0 is what comes of it all. No
//! directory knows it. It is kept where it is made until this node says that it is over. The last one's room is handed to the process that asked, which seals it
//! as its task's result: nothing is copied.
//!
//! # When something goes wrong
//! the whole reduce is given up, and whoever asked hears why. If another try may help, since a node died or an object moved, the task that asked gets
//! the members that are lost, as soon as they are made again, and asks again. Else it gets all of them and folds them itself, which does for any
//! values, and says what is wrong with those that differ. So nothing here has to tell good members from bad ones: nodes fold
//! only what is surely right, and refuse the rest.
//!
//! # Invariants
//! - COLL-1: each member is in one step of its reduce, once: an operand of one fold, or what the first one begins with.
//! - COLL-2: a reduce has the members that were asked for, and no others.
//! - COLL-4: each reduce that was asked for is answered once.
//! - COLL-5: a fold that another node was asked for is ended there once, whatever becomes of it, unless that node is dead.
//! - COLL-6: along a chain turns rise by one, so nobody waits for itself (XFER-8).
//!
//! COLL-3, that a member which is replaced costs only what contains it, is not kept yet: everything is folded again. The way there is in
//! docs/internals/collectives.md, as is how stripes of one object will be folded in chains of their own (allreduce at its optimum).

mod event;
mod numbers;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::limits::{REDUCE_MEMBERS_MAX, REDUCES_MAX};
use hoplo_base::{NodeNumber, ObjectId, ProcessId, TaskId};
use hoplo_wire::{FoldOp, Location, NoReduce};

pub use event::{Effect, Event, Member};
pub use numbers::{divide, divides, fold, folds};

use plan::plan;

#[derive(Debug)]
pub struct Collective {
    me: NodeNumber,
    /// Owns what is made.
    haul: ProcessId,
    /// By the task of what is made.
    reduces: BTreeMap<u64, Reduce>,
    /// So many were planned.
    last: u64,
}

#[derive(Debug)]
struct Reduce {
    asker: ProcessId,
    request: u64,
    /// Each as often as it was given.
    members: Vec<ObjectId>,
    /// What it begins with.
    head: (NodeNumber, ObjectId),
    /// In the order of the chain; the last one is of this node.
    steps: Vec<Step>,
}

/// A fold that a node was asked for.
#[derive(Debug)]
struct Step {
    node: NodeNumber,
    made: ObjectId,
    operands: Vec<ObjectId>,
    turn: u64,
}

impl Collective {
    pub fn new(me: NodeNumber, haul: ProcessId) -> Self {
        Self { me, haul, reduces: BTreeMap::new(), last: 0 }
    }

    pub fn handle(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Asked { asker, request, op, members } => {
                self.on_asked((asker, request), op, members, effects);
            }
            Event::GivenUp { asker, request } => {
                let why = "nobody waits for it any more";
                self.end_those(
                    |reduce| (reduce.asker, reduce.request) == (asker, request),
                    why,
                    effects,
                );
            }
            Event::ProcessGone { process } => {
                let why = "its process is gone";
                self.end_those(|reduce| reduce.asker == process, why, effects);
            }
            Event::NodeGone { node } => {
                let why = format!("node {} died", node.hex());
                let is_in = |reduce: &Reduce| {
                    reduce.head.0 == node || reduce.steps.iter().any(|step| step.node == node)
                };
                self.end_those(is_in, &why, effects);
            }
            Event::Made { made, location } => self.on_made(made, location, effects),
            Event::Failed { from, made, why, again } => {
                self.on_failed(from, made, (&why, again), effects);
            }
        }
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
        let (members, from) = (reduce.members.len(), reduce.head.0.hex());
        Some(format!(
            "{members} members are folded on their way from node {from} by {}",
            nodes.join(", ")
        ))
    }

    fn on_asked(
        &mut self,
        (asker, request): (ProcessId, u64),
        op: FoldOp,
        members: Vec<Member>,
        effects: &mut Vec<Effect>,
    ) {
        let refuse = |why| Effect::Refuse { asker, request, no: NoReduce::new(why, false) };
        let known = |it: &Reduce| (it.asker, it.request) == (asker, request);
        if self.reduces.values().any(known) {
            return; // the first one is answered
        }
        if self.reduces.len() >= REDUCES_MAX || members.len() > REDUCE_MEMBERS_MAX {
            return effects.push(refuse("too much is folded at once"));
        }
        let Some(chain) = plan(self.me, &members) else {
            return effects.push(refuse("all members are at this node, or one is at none"));
        };
        self.last += 1;
        let task = TaskId { owner: self.haul, seq: self.last };
        let (count, bytes) = (chain.steps.len(), chain.bytes);
        let mut upstream = chain.head;
        let mut steps = Vec::with_capacity(count);
        for (at, (node, operands)) in chain.steps.into_iter().enumerate() {
            // The last one is 0.
            let made = task.object(((at + 1) % count) as u32);
            let turn = at as u64 + 1;
            let (from, source) = upstream;
            let fold = hoplo_wire::Fold {
                made,
                op,
                bytes,
                from,
                upstream: source,
                operands: operands.clone(),
                turn,
            };
            effects.push(Effect::Fold { at: node, fold: Box::new(fold) });
            steps.push(Step { node, made, operands, turn });
            upstream = (node, made);
        }
        let members = members.into_iter().map(|member| member.object).collect();
        let reduce = Reduce { asker, request, members, head: chain.head, steps };
        self.reduces.insert(self.last, reduce);
    }

    /// It is in the store of this node.
    fn on_made(&mut self, made: ObjectId, location: Location, effects: &mut Vec<Effect>) {
        let reduce = self.reduces.remove(&made.task.seq).expect("who is made here was asked for");
        assert_eq!(
            reduce.steps.last().map(|step| step.made),
            Some(made),
            "the last one is made here"
        );
        let (asker, request) = (reduce.asker, reduce.request);
        self.end_steps(&reduce, None, effects);
        effects.push(Effect::Answer { asker, request, location });
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

    fn end_those(&mut self, which: impl Fn(&Reduce) -> bool, why: &str, effects: &mut Vec<Effect>) {
        let those = self.reduces.iter().filter(|(_, reduce)| which(reduce)).map(|(seq, _)| *seq);
        for seq in those.collect::<Vec<_>>() {
            // Who still waits may try again, with nodes that live.
            self.give_up(seq, NoReduce::new(why, true), effects);
        }
    }

    fn give_up(&mut self, seq: u64, no: NoReduce, effects: &mut Vec<Effect>) {
        let reduce = self.reduces.remove(&seq).expect("the caller has seen it");
        self.end_steps(&reduce, Some(self.me), effects);
        let (asker, request) = (reduce.asker, reduce.request);
        effects.push(Effect::Refuse { asker, request, no });
    }

    /// COLL-5. What was made here is somebody's now, unless this node is `too`.
    fn end_steps(&self, reduce: &Reduce, too: Option<NodeNumber>, effects: &mut Vec<Effect>) {
        for step in reduce.steps.iter().filter(|step| step.node != self.me || too == Some(self.me))
        {
            effects.push(Effect::End { at: step.node, made: step.made });
        }
    }

    /// Panics with the invariant that does not hold.
    pub fn check(&self) {
        let mut asked = BTreeSet::new();
        for (seq, reduce) in &self.reduces {
            assert!(asked.insert((reduce.asker, reduce.request)), "COLL-4: {reduce:?}");
            let operands = reduce.steps.iter().flat_map(|step| step.operands.iter().copied());
            let mut folded: Vec<ObjectId> = operands.chain([reduce.head.1]).collect();
            let mut members = reduce.members.clone();
            folded.sort_unstable();
            members.sort_unstable();
            assert_eq!(folded, members, "COLL-1, COLL-2: {reduce:?}");
            let last = reduce.steps.last().expect("there is one here");
            assert_eq!((last.node, last.made.index), (self.me, 0), "{reduce:?}");
            let made: BTreeSet<ObjectId> = reduce.steps.iter().map(|step| step.made).collect();
            assert_eq!(made.len(), reduce.steps.len(), "COLL-5: {reduce:?}");
            assert!(made.iter().all(|it| it.task.owner == self.haul && it.task.seq == *seq));
            let turns: Vec<u64> = reduce.steps.iter().map(|step| step.turn).collect();
            assert!(turns.is_sorted_by(|one, next| one + 1 == *next), "COLL-6: {turns:?}");
        }
        assert!(self.reduces.len() <= REDUCES_MAX);
    }
}
