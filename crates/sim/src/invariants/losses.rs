//! What is made again was lost: with each such object a node died that had made a copy of it, or nobody needed it any more.
//!
//! A home that asks an owner for a result hides by it that references were forgotten: the value comes back, and no program sees a
//! failure. So the question itself must have a cause:
//!
//! | cause | |
//! |---|---|
//! | a copy died | a node is dead that had told the home of a copy. One that all nodes with copies outlived is missed by somebody's fault |
//! | an argument | it is one of a task that is to run again for a lost result, and its record may have ended before |
//! | a holder died | somebody who was killed knew it. What was counted for that process is struck, and who got the ref from it may be late |
//! | others go on without the home | it stood still, its heir let go what nobody else held, and it looks for that when it wakes (seed 90143397) |
//!
//! No other cause is known here. A secondary copy that goes for want of room leaves the first one. What the disk cannot read is unreadable, not lost. A node
//! that is drained and leaves takes nothing along: it is no death here.
//!
//! Of an object whose home is dead nothing is lost while another node has it: one that had a value or all bytes when the home died, has it still, and lives.
//! What turns up after that death may come too late for who waits.
//!
//! Who is asked and gives up must have a reason as well: an owner runs a task again as long as it has retries, and as long as nobody told it that
//! all references to the result are gone.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::{NodeNumber, ObjectId, TaskId};
use hoplo_wire::node::Notice;
use hoplo_wire::{Failure, FailureKind, Value};

use crate::cluster::Cluster;

#[derive(Debug, Default)]
pub struct Losses {
    /// Nodes that told the home of an object that a process there had made it.
    copies: BTreeMap<ObjectId, BTreeSet<NodeNumber>>,
    /// Results that nobody could reach any more, as their owners heard.
    over: BTreeSet<ObjectId>,
    /// Tasks that are to run again for a lost result.
    again: BTreeSet<TaskId>,
    /// Tasks that failed at last, as their owners said, perhaps after another attempt had made a result.
    failed: BTreeSet<TaskId>,
    /// Objects whose home died, and the nodes that had them then.
    outlived: BTreeMap<ObjectId, BTreeSet<NodeNumber>>,
}

impl Losses {
    pub fn made_at(&mut self, object: ObjectId, node: NodeNumber) {
        self.copies.entry(object).or_default().insert(node);
    }

    /// That node has told the home so.
    pub(super) fn was_made_at(&self, object: ObjectId, node: NodeNumber) -> bool {
        self.copies.get(&object).is_some_and(|nodes| nodes.contains(&node))
    }

    /// An owner hears that nobody can miss these. Who does all the same had them of somebody that was killed.
    pub fn are_over(&mut self, objects: &[ObjectId]) {
        self.over.extend(objects);
    }
}

impl Cluster {
    /// An owner hears that it is to make these again. From then on it may give them up, whatever the cause of the loss (seed 100051054: its node had stood still).
    pub fn losses_are_legitimate(&mut self, objects: &[ObjectId]) {
        let is_left_behind = !self.here.goes_on();
        for object in objects {
            let copy_died = self.a_copy_died(*object);
            let is_argument = self.is_argument_of_lineage(*object);
            let holder_died = self.books.lost_with.contains(object);
            assert!(
                copy_died || is_argument || holder_died || is_left_behind,
                "{object} is gone at its home, and nobody died who had it\n{}",
                self.story.about(&[object.to_string(), object.task.to_string()])
            );
        }
        self.books.losses.again.extend(objects.iter().map(|object| object.task));
    }

    /// A node is about to be killed: what was at home there, and others have?
    pub fn leaves_an_estate(&mut self, dead: NodeNumber) {
        let mut outlived: Vec<(ObjectId, NodeNumber)> = Vec::new();
        for host in self.hosts().filter(|host| !host.dead && host.number != dead) {
            let objects = &host.daemon.node.objects;
            let of_home = objects.listing().filter(|row| row.object.task.owner.node() == dead);
            let kept = of_home.filter(|row| objects.keeps_value(row.object));
            outlived.extend(kept.map(|row| (row.object, host.number)));
        }
        for (object, node) in outlived {
            self.count("objects that another node had when their home died");
            self.books.losses.outlived.entry(object).or_default().insert(node);
        }
    }

    /// Its home died, and a node that had it then has it still, and is not dead to the others.
    pub(super) fn outlives_its_home(&self, object: ObjectId) -> bool {
        let nodes = self.books.losses.outlived.get(&object);
        let has = |node: &&NodeNumber| {
            let host = self.host(**node);
            host.goes_on() && host.daemon.node.objects.keeps_value(object)
        };
        nodes.is_some_and(|nodes| nodes.iter().any(|node| has(&node)))
    }

    /// Of a task that runs again.
    pub(super) fn is_argument_of_lineage(&self, object: ObjectId) -> bool {
        let mut again = self.books.losses.again.iter();
        again.any(|task| self.books.facts.arguments(*task).any(|it| it == object))
    }

    /// A task runs again that has it as argument, and whose caller is not its owner: nobody held it for that call once there was a result.
    pub(super) fn is_borrowed_by_lineage(&self, object: ObjectId) -> bool {
        let again = &self.books.losses.again;
        let mut of_others = again.iter().filter(|task| task.owner != object.task.owner);
        of_others.any(|task| self.books.facts.arguments(*task).any(|it| it == object))
    }

    /// Its home died, or a node that had told the home of a copy.
    pub(super) fn lost_a_node(&self, object: ObjectId) -> bool {
        self.books.facts.is_dead_node(object.task.owner.node()) || self.a_copy_died(object)
    }

    fn a_copy_died(&self, object: ObjectId) -> bool {
        let mut copies = self.books.losses.copies.get(&object).into_iter().flatten();
        copies.any(|node| self.books.facts.is_dead_node(*node))
    }

    /// A run that made lost items of it is stopped when it has made them all.
    pub(super) fn is_stream_made_again(&self, task: TaskId) -> bool {
        self.books.facts.streams(task) && self.books.losses.again.contains(&task)
    }

    /// Where it was lost, its owner makes it again, unless its node is dead to the others: it may only stand still (seed 130099866).
    pub(super) fn is_made_again(&self, object: ObjectId) -> bool {
        let losses = &self.books.losses;
        let is_kept = losses.copies.contains_key(&object) && !losses.over.contains(&object);
        is_kept
            && self.host(object.task.owner.node()).goes_on()
            && !losses.failed.contains(&object.task)
            && self.books.facts.may_run_again(object.task)
    }

    /// What an owner is about to say.
    pub fn says_what_is_lost(&mut self, notices: &[Notice]) {
        for notice in notices {
            let Notice::Fulfilled { object, value: Value::Failed(failure), .. } = notice else {
                continue;
            };
            match failure.kind {
                FailureKind::ObjectLost => self.gives_up(*object, failure),
                _ => {
                    self.books.losses.failed.insert(object.task);
                }
            }
        }
    }

    /// A result of its own stays lost.
    fn gives_up(&mut self, object: ObjectId, failure: &Failure) {
        let was_asked = self.books.losses.again.contains(&object.task);
        if was_asked && !self.is_made_again(object) {
            self.books.told.is_lost(object, failure);
        }
    }
}
