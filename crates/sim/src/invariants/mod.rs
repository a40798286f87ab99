//! What must hold, one file for each kind.

mod answers;
mod attempts;
mod facts;
mod failures;
mod leaks;
mod ledgers;
mod losses;
mod names;
mod order;
mod past;
mod places;
mod reach;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::{ActorId, Instant, NodeNumber, ObjectId, ProcessId, TaskId};
use hoplo_core::node::Birth;

use crate::cluster::Cluster;
use facts::Facts;
use failures::Told;
use ledgers::Ledgers;
use losses::Losses;
use order::Order;

pub use answers::{Answers, told_by};
pub use facts::Call;

/// What the invariants remember.
#[derive(Debug, Default)]
pub struct Books {
    pub facts: Facts,
    told: Told,
    pub losses: Losses,
    pub ledgers: Ledgers,
    /// What lies in an inline put.
    puts: BTreeMap<ObjectId, ObjectId>,
    /// Refs that came to this process with a task that it adopted.
    adopted_refs: BTreeSet<(ProcessId, ObjectId)>,
    /// What heirs got as values with the calls that they adopted: they give those names of their own.
    adopted_values: BTreeSet<(ProcessId, ObjectId)>,
    tokens: u64,
    pub submitted: u64,
    pub adoptions: u64,
    /// What the dead knew when they died.
    lost_with: BTreeSet<ObjectId>,
    /// Results in the store whose caller lived when their reply was written and, of a far worker, when their home heard of them:
    /// they are never lost, or made again, because somebody goes (`is_stored` names the one exception). And the nodes that made them.
    stored: BTreeMap<ObjectId, BTreeSet<NodeNumber>>,
    /// Tasks of which a worker has replied, with some of their results or all.
    pub replied: BTreeSet<TaskId>,
    /// Calls that were taken back, and from whom.
    revoked: BTreeMap<(ProcessId, u64), ProcessId>,
    order: Order,
    /// Actors whose rows had a will when their home died (FAR-9).
    pub willed: BTreeSet<ActorId>,
}

impl Books {
    /// A worker of that node told its daemon of this result, and has replied; of a far worker the home heard of it, too.
    pub fn stored(&mut self, object: ObjectId, node: NodeNumber) {
        self.stored.entry(object).or_default().insert(node);
    }

    /// Its home knows that it is stored, or will: the worker was of that node, or of one that has told the home, or lives to tell it.
    /// A process of another node than the home may adopt a task, and have it run by a worker of its own node. If that node dies before its word is at the home,
    /// nobody that lives has heard of the result, and its only copy is gone: the home has it made again, as what was not finished there (seed 80073096).
    fn is_stored(&self, object: ObjectId) -> bool {
        let home = object.task.owner.node();
        let is_known = |node: &NodeNumber| {
            *node == home
                || self.losses.was_made_at(object, *node)
                || !self.facts.is_dead_node(*node)
        };
        self.stored.get(&object).is_some_and(|nodes| nodes.iter().any(is_known))
    }

    /// It was killed, with what it knew.
    pub fn lost_with(&mut self, known: impl Iterator<Item = ObjectId>) {
        self.lost_with.extend(known);
    }
}

impl Cluster {
    pub fn notes_revoked(&mut self, caller: ProcessId, worker: ProcessId, seqs: &[u64]) {
        for seq in seqs {
            self.books.revoked.insert((caller, *seq), worker);
        }
    }

    /// A call that goes to another worker than the one it was taken back from was stolen from it.
    pub fn notes_place(&mut self, caller: ProcessId, worker: ProcessId, seq: u64) {
        if self.books.revoked.remove(&(caller, seq)).is_some_and(|before| before != worker) {
            self.count("steals");
        }
        let task = TaskId { owner: caller, seq };
        self.books.facts.is_placed(task, worker);
        self.places_in_order(worker, task);
    }

    /// Its daemon has killed it, or does so as soon as it hears its pid. A worker may say hello, and be given an actor, long before its zygote's word
    /// of its birth is read. If that actor is killed meanwhile, nobody can be told yet whom to kill, but its arguments go at once as ever (seed 80185408).
    fn is_being_killed(&self, process: ProcessId) -> bool {
        let known = self.host(process.node()).daemon.node.process(process);
        let dies_when_born =
            known.is_some_and(|it| matches!(it.birth, Birth::Awaited { doomed: true }));
        dies_when_born || self.books.facts.is_doomed(process)
    }

    /// After every step.
    pub fn check(&self) {
        if self.plan.checks_rarely && !self.steps.is_multiple_of(256) {
            return;
        }
        if self.here.frozen_until > Instant::ZERO {
            // When it goes on, all its deadlines have passed, and other steps may come before the one that looks at them.
            return;
        }
        if self.steps.is_multiple_of(16) || self.steps < 2000 {
            self.here.daemon.node.check_quickly();
        }
        if self.plan.nodes > 1 && self.steps.is_multiple_of(64) {
            self.check_reach();
            self.check_names();
        }
        if self.steps.is_multiple_of(32) {
            self.here.daemon.node.check();
            self.here.carrier.check();
            for client in self.clients.values().filter(|client| client.alive) {
                client.session.check();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: NodeNumber = NodeNumber::FIRST;
    const ADOPTER: NodeNumber = NodeNumber::alone(0);

    fn result() -> ObjectId {
        TaskId { owner: ProcessId::new(HOME, 4, 0), seq: 2 }.object(0)
    }

    #[test]
    fn what_an_adopter_made_is_stored_until_its_node_dies_with_the_word_of_it() {
        let mut books = Books::default();
        books.stored(result(), ADOPTER);
        assert!(books.is_stored(result()), "its word is on its way");
        books.facts.node_dies(ADOPTER);
        assert!(!books.is_stored(result()), "nobody that lives has heard of it");
    }

    #[test]
    fn what_the_home_has_heard_of_is_stored_whoever_dies() {
        let mut books = Books::default();
        books.stored(result(), ADOPTER);
        books.losses.made_at(result(), ADOPTER);
        books.facts.node_dies(ADOPTER);
        assert!(books.is_stored(result()), "a far worker's, which its home knows");

        let mut books = Books::default();
        books.stored(result(), HOME);
        books.facts.node_dies(ADOPTER);
        assert!(books.is_stored(result()), "made at home");
    }
}
