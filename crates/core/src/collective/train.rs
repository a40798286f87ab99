//! A chain whose members come one after the other, and that all of their nodes read in the end.
//!
//! ```text
//!   members come:   a (at A)      b (at B)        c (at C)             d (at D), the last one
//!   folds:          A begins      B: a + b        C: (a + b) + c       D: ((a + b) + c) + d
//!   then copies:                                                       D --> A --> B --> C
//! ```
//! What was folded so far is on its way to the newest member's node, or there, when the next one comes. So the last member waits for the bytes of
//! one member on one link, and the result passes from node to node as it comes. A node has sent what it folded long before it
//! sends what it copies; only the last but one sends both at about the same time, so it is the last to copy, and sends nothing more.
//!
//! If one node is slow, it is A. It copies last, behind C: what goes over its link is its member, and what comes of all.
//!
//! A train takes as long as one member takes on one link, from the last member on, where a ring takes up to twice that. If all members come together it would
//! take longer than a ring, since each of its links is then busy twice, unless all wait for one slow link.

use hoplo_base::{Instant, NodeNumber, ObjectId, TaskId};
use hoplo_wire::{Fold, Wish};

use super::event::Member;

#[derive(Debug)]
pub(super) struct Train {
    me: NodeNumber,
    task: TaskId,
    wish: Wish,
    pub(super) result: ObjectId,
    /// Of each member, and of what is made.
    bytes: u64,
    /// Who has folded its member, in this order. The first one only sends it.
    stops: Vec<NodeNumber>,
    pub(super) head: (NodeNumber, ObjectId),
    /// That one has a slow link, so it is the last to copy what comes of it all; and when it began.
    pub(super) past_slow_since: Option<Instant>,
    /// What was made last, and where.
    tail: (NodeNumber, ObjectId),
    turn: u64,
}

impl Train {
    /// None: the first member is at no node.
    pub(super) fn new(
        me: NodeNumber,
        task: TaskId,
        wish: Wish,
        result: ObjectId,
        first: &Member,
        past_slow_since: Option<Instant>,
    ) -> Option<Self> {
        let head = (*first.nodes.last()?, first.object);
        let (bytes, stops) = (first.bytes, vec![head.0]);
        Some(Self {
            me,
            task,
            wish,
            result,
            bytes,
            stops,
            head,
            past_slow_since,
            tail: head,
            turn: 0,
        })
    }

    /// Its fold. None: it is as long as no other one, or where another one is: a ring is for these.
    pub(super) fn takes(&mut self, member: &Member, is_last: bool) -> Option<(NodeNumber, Fold)> {
        let mut nodes = member.nodes.iter().rev();
        let node = *nodes.find(|node| !self.stops.contains(node))?;
        if member.bytes != self.bytes {
            return None;
        }
        self.stops.push(node);
        Some(self.step(node, vec![member.object], is_last))
    }

    /// When the last member was taken: what comes of them goes to all others, and to this node.
    pub(super) fn copies(&mut self) -> Vec<(NodeNumber, Fold)> {
        let (_, before) = self.stops.split_last().expect("the first one is there");
        let mut to = before.to_vec();
        to.rotate_left(usize::from(self.past_slow_since.is_some()));
        if !self.stops.contains(&self.me) {
            to.push(self.me);
        }
        to.into_iter().map(|node| self.step(node, Vec::new(), true)).collect()
    }

    /// Of what is made last. `is_result`: all members are in it.
    fn step(
        &mut self,
        node: NodeNumber,
        operands: Vec<ObjectId>,
        is_result: bool,
    ) -> (NodeNumber, Fold) {
        self.turn += 1;
        // What comes of it all at this node is 0.
        let index = if is_result && node == self.me { 0 } else { self.turn as u32 };
        let made = self.task.object(index);
        let (from, upstream) = std::mem::replace(&mut self.tail, (node, made));
        let divide_by = self.wish.divide_by.filter(|_| is_result && !operands.is_empty());
        let result = is_result.then_some(self.result);
        let (op, bytes, turn) = (self.wish.op, self.bytes, self.turn);
        let (ring, rest) = (None, None);
        let fold =
            Fold { made, op, bytes, from, upstream, operands, turn, divide_by, ring, result, rest };
        (node, fold)
    }
}
