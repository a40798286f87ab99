//! Where tasks with large arguments run: where the bytes lie.
//!
//! What the session knows of a stored value says where it lies (`Location`): in the store of this node, or at another one. A task of
//! which the most bytes of large arguments lie at one other node queues for that node: under a *near shape*, which is
//! the shape of its function with a soft affinity to that node. So its demand goes there, and a lease that is granted there takes
//! it. All other tasks queue under the shape of their function, and begin at this node.
//!
//! ```text
//!  enqueue --most bytes at another node--> queue for (shape, node) --a lease there--> Placed
//!     |                                          | patience over
//!     +--------all others--------> queue of the shape, which any node may serve
//! ```
//! **Patience.** The first of a queue leaves it when for so long as moving its bytes would take (`NEAR_BYTES_MOVED`) nothing else
//! left, and no call ended at the workers that serve the queue. So a node that makes progress keeps its queue, and one that is
//! full gives away as much as a link could carry. A queue without a worker gets the time of starting one beside.
//!
//! **What was given away** lies at two nodes soon: the session forgets where the arguments of a task that leaves lie. So the task
//! does not come back, and others with the same arguments follow it without waiting.
//!
//! A node that is dead, drains, or could never run the shape makes the affinity void: the broker asks for it here and elsewhere.
//!
//! # Invariants
//! - NEAR-1: only shapes without a wish of their own are drawn: no `SPREAD`, no affinity, no placement group. Labels come first, since
//!   an affinity is soft.
//! - NEAR-2: a near shape is never another task's: who asks for the same soft affinity has another key, and no patience.
//! - NEAR-3: no task waits for a node by itself for longer than its patience after the last thing that moved there.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hoplo_base::bundles::group_of;
use hoplo_base::limits::{NEAR_BYTES_MIN, NEAR_BYTES_MOVED, NEAR_WORKER_STARTS};
use hoplo_base::{Instant, NodeNumber, ObjectId};
use hoplo_wire::node::{Shape, Strategy};
use hoplo_wire::{Location, Value};

use super::call::{Call, Stage};
use super::refs::State;
use super::shapes::{Locality, Near, ShapeState};
use super::{Effect, SessionMachine};

impl Near {
    /// A worker that served the queue is gone: until then it made progress.
    pub(super) fn moved(&mut self, at: Instant) {
        self.since = self.since.max(at);
    }
}

impl SessionMachine {
    /// Tasks run where they would if no argument lay anywhere.
    pub fn ignore_where_arguments_lie(&mut self) {
        self.locality = Locality::Off;
    }

    /// A node of which it is known that its store has the value, and how many bytes that is.
    pub fn lies_at(&self, object: ObjectId) -> Option<(NodeNumber, u64)> {
        let Some(Value::Stored(location)) = self.value(object) else { return None };
        let here = self.me.node();
        let node = location.known().map_or(location.other_node(), |_| Some(here))?;
        Some((node, location.len))
    }

    /// This value turned out to be stored.
    pub(super) fn saw_stored(&mut self, object: ObjectId) {
        match self.locality {
            Locality::Off => {}
            Locality::Used => self.place_changed(),
            Locality::Unneeded => {
                let draws = |location: &Location| {
                    location.other_node().is_some() && location.len >= NEAR_BYTES_MIN
                };
                let value = self.value(object);
                if matches!(value, Some(Value::Stored(location)) if draws(location)) {
                    self.locality = Locality::Used;
                }
            }
        }
    }

    /// A task came that is drawn by something smaller than others are.
    #[cold]
    pub(super) fn use_locality(&mut self) {
        if self.locality == Locality::Unneeded {
            self.locality = Locality::Used;
        }
    }

    /// The queue for a task of the shape with this key.
    #[cold]
    pub(super) fn near_key(&mut self, now: Instant, seq: u64, shape: u32) -> u32 {
        let Some((node, _)) = self.nearest(seq) else { return shape };
        let state = &self.shapes[shape as usize];
        if !is_drawn(&state.shape) {
            return shape;
        }
        let next = self.shapes.len() as u32;
        let key = *self.near_keys.entry((shape, node)).or_insert(next);
        if key == next {
            let strategy = Strategy::Node { node, soft: true };
            let near = Shape { strategy, ..(*state.shape).clone() };
            let near = ShapeState::new(&Arc::new(near), Some(Near { shape, node, since: now }));
            self.shapes.push(near);
        }
        let ShapeState { near, queue, leases, .. } = &mut self.shapes[key as usize];
        if let Some(near) = near
            && queue.is_empty()
        {
            near.since = if leases.is_empty() { now + NEAR_WORKER_STARTS } else { now };
        }
        key
    }

    /// The queues in which tasks of this shape may be.
    pub(super) fn queues_of(&self, shape: u32) -> Vec<u32> {
        let near = self.near_keys.range((shape, NodeNumber::FIRST)..(shape + 1, NodeNumber::FIRST));
        std::iter::once(shape).chain(near.map(|(_, key)| *key)).collect()
    }

    /// The queue of a queued task; of one whose arguments moved since it was queued, its shape's.
    pub(super) fn queue_of(&self, seq: u64) -> Option<&ShapeState> {
        let shape = *self.shape_keys.get(&self.tasks[&seq].call.options.shape)?;
        let near = self.nearest(seq).and_then(|(node, _)| self.near_keys.get(&(shape, node)));
        Some(&self.shapes[*near.unwrap_or(&shape) as usize])
    }

    /// The other node where most bytes of its large arguments lie, and how many of them.
    fn nearest(&self, seq: u64) -> Option<(NodeNumber, u64)> {
        let here = self.me.node();
        let mut bytes: BTreeMap<NodeNumber, u64> = BTreeMap::new();
        let call = &self.tasks.get(&seq)?.call;
        let (drawn_by, least) = draws(call);
        for object in drawn_by {
            if let Some((node, len)) = self.lies_at(*object).filter(|(_, len)| *len >= least) {
                *bytes.entry(node).or_default() += len;
            }
        }
        let most =
            bytes.into_iter().max_by_key(|(node, bytes)| (*bytes, *node == here, Reverse(*node)));
        most.filter(|(node, _)| *node != here)
    }

    /// When the first of a near queue leaves it, if nothing moves before: at once if it is over, or draws nothing any more.
    fn leaves_at(&self, key: u32) -> Option<Instant> {
        let state = &self.shapes[key as usize];
        let near = state.near.as_ref()?;
        let first = state.queue.front()?;
        let bytes = self.nearest(*first).filter(|(node, _)| *node == near.node);
        let patience = bytes.map_or(Duration::ZERO, |(_, bytes)| moving_takes(bytes));
        let moved = state.leases.iter().map(|lease| lease.progress_at).max();
        Some(moved.map_or(near.since, |at| at.max(near.since)) + patience)
    }

    /// SES-6: this queue has another first one.
    pub(super) fn look_at_first(&mut self, key: u32) {
        self.lease_look = self.lease_look.into_iter().chain(self.leaves_at(key)).min();
    }

    /// SES-6: the bytes of an argument lie elsewhere, or here.
    pub(super) fn place_changed(&mut self) {
        self.lease_look = self.lease_look.into_iter().chain(self.patience_deadline()).min();
    }

    pub(super) fn patience_deadline(&self) -> Option<Instant> {
        self.near_keys.values().filter_map(|key| self.leaves_at(*key)).min()
    }

    pub(super) fn tick_near(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let keys: Vec<u32> = self.near_keys.values().copied().collect();
        for key in keys {
            let mut left = None;
            while self.leaves_at(key).is_some_and(|at| at <= now) {
                left = self.leave_first(now, key);
            }
            if let Some(shape) = left {
                self.pump(now, shape, effects);
                self.pump(now, key, effects);
            }
        }
    }

    /// The first of a near queue may run anywhere. Returns the key of its shape.
    fn leave_first(&mut self, now: Instant, key: u32) -> Option<u32> {
        let ShapeState { near, queue, .. } = &mut self.shapes[key as usize];
        let (near, seq) = (near.as_mut()?, queue.pop_front()?);
        near.moved(now);
        let Near { shape, node, .. } = *near;
        if self.tasks.get(&seq).is_some_and(|task| task.stage == Stage::Queued) {
            self.draws_no_more(seq, node);
            self.shapes[shape as usize].queue.push_back(seq);
        }
        Some(shape)
    }

    /// What lies at that node does not draw the task there any more.
    pub(super) fn draws_no_more(&mut self, seq: u64, node: NodeNumber) {
        for object in draws(&self.tasks[&seq].call).0 {
            let entry = self.objects.get_mut(object).expect("the task counts it");
            if let State::Ready(Value::Stored(location)) = &mut entry.state
                && location.other_node() == Some(node)
            {
                *location = Location::ASK;
            }
        }
    }

    pub(super) fn check_near(&self) {
        for (key, state) in self.shapes.iter().enumerate() {
            let Some(near) = &state.near else { continue };
            let shape = &self.shapes[near.shape as usize].shape;
            assert!(is_drawn(shape), "NEAR-1: {shape:?}");
            assert_eq!(self.near_keys.get(&(near.shape, near.node)), Some(&(key as u32)), "NEAR-2");
        }
        assert!(
            self.shape_keys.values().all(|key| self.shapes[*key as usize].near.is_none()),
            "NEAR-2"
        );
    }
}

/// Whose place says where the call belongs, and how large they are at least.
fn draws(call: &Call) -> (&[ObjectId], u64) {
    match call.nested.first().or(call.refs.first()) {
        Some(first) if call.options.near_first => (std::slice::from_ref(first), 0),
        _ => (&call.refs, NEAR_BYTES_MIN),
    }
}

/// NEAR-1.
fn is_drawn(shape: &Shape) -> bool {
    shape.strategy == Strategy::Default && group_of(&shape.resources).is_none()
}

fn moving_takes(bytes: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / NEAR_BYTES_MOVED as f64)
}
