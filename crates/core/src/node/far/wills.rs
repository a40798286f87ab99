//! Wills: what a detached actor is made of lies in its row, too, and the head gives it to the heir of the actor's home.
//!
//! ```text
//!   the actor's home dies:  head --ActorKnown: its will--> heir        as a keeper does (`legacies`), before the head passes the death
//!                                --ActorEnded------------>             of each whose row says that it has ended
//! ```
//! A keeper is one node, which may die together with the home; and a head that is alone has none. Its rows are on its disk: a head that is
//! started again is the heir of the one that died, if no other node lives.
//!
//! # Invariants
//! - FAR-9: a detached actor that may start again does so although all who lived with its home are dead, unless it makes checkpoints.
//!
//! # Stories
//! 1. *The row is old*: the home did not get it through before it died. A keeper or the actor's node tells a higher incarnation, which counts;
//!    if there is neither, the actor starts again once more than it may, or although it ended in that moment.
//! 2. *Its arguments.* Refs among them are held by nobody. If their values are lost, its constructor fails with that.
//! 3. *The heir is dead as well*, and the head has not heard so yet. The will is read again at that one's death.

use hoplo_base::limits::ENDED_ACTORS_TOLD_MAX;
use hoplo_base::{JobId, NodeNumber};
use hoplo_wire::peer::{KnownActor, Peer};

use super::Node;
use crate::control::rows::{home_of_actor_key, job_key};
use crate::control::store;
use crate::control::{
    ActorEntry, ActorPhase, ControlStore, Entry, JobEntry, NodeEntry, NodeState, Table,
};

/// An actor, and the job whose processes run it.
#[derive(Clone, Debug)]
pub(super) struct Will {
    known: KnownActor,
    job: JobEntry,
}

pub(in crate::node) fn will_of(actor: &ActorEntry) -> Option<&KnownActor> {
    actor.will.as_deref().filter(|_| actor.state != ActorPhase::Dead)
}

/// By itself, or since somebody killed it: its heir is not to start it again.
pub(in crate::node) fn has_ended(actor: &ActorEntry) -> bool {
    actor.state == ActorPhase::Dead && !actor.lost
}

impl Node {
    /// Of a head, which hears next what its store says of this node: if that died, the wills of all that it was in charge of, and the jobs
    /// of its drivers.
    pub fn read_wills(&mut self, entry: &NodeEntry, store: &dyn ControlStore) {
        let NodeState::Dead { heir, .. } = entry.state else { return };
        if self.far.dead.contains_key(&entry.node) || entry.node == self.me() {
            return;
        }
        let homes: Vec<NodeNumber> =
            self.heirs_after(entry.node, heir).iter().map(|it| it.home).collect();
        let is_theirs =
            |key: &[u8]| home_of_actor_key(key).is_some_and(|home| homes.contains(&home));
        let mut theirs = Vec::new();
        // There may be very many others.
        store::rows(store, Table::Actor, |key, row| {
            if is_theirs(key) {
                theirs.extend(ActorEntry::from_row(row));
            }
        });
        let ended = theirs.iter().rev().filter(|row| has_ended(row)).map(|row| row.actor);
        self.far.ended = ended.take(ENDED_ACTORS_TOLD_MAX).collect();
        let wills = theirs.into_iter().filter_map(|row: ActorEntry| {
            let known = will_of(&row)?.clone();
            let job = job_of(row.job, store)?;
            Some(Will { known, job })
        });
        self.far.wills = wills.collect();
        self.read_jobs_of_dead(entry.node, store);
    }

    /// How many it has read, and how many actors of which the rows say that they ended, for the death that it hears of next.
    pub fn wills_read(&self) -> (usize, usize) {
        (self.far.wills.len(), self.far.ended.len())
    }

    /// Their home is dead.
    pub(super) fn execute_wills(&mut self) {
        for actor in std::mem::take(&mut self.far.ended) {
            let heir = self.charge_of(actor);
            if heir == self.me() {
                self.on_actor_ended(actor);
            } else if self.is_other_node(heir) {
                self.told_heir(actor.handle());
                self.send_peer(heir, Peer::ActorEnded { actor });
            }
        }
        for Will { known, job } in std::mem::take(&mut self.far.wills) {
            // Of one that dies later it is read again (story 3).
            let heir = self.charge_of(known.spec.actor);
            if self.is_far(heir) && !self.is_other_node(heir) {
                continue;
            }
            self.on_job_told(self.me(), job.job, job.driver, job.config);
            self.tell_heir(known);
        }
    }
}

fn job_of(job: JobId, store: &dyn ControlStore) -> Option<JobEntry> {
    JobEntry::from_row(&store.get(&job_key(job))?).ok()
}
