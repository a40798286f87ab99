//! What becomes of an object whose last copy is gone.
//!
//! ```text
//!   Elsewhere --no copy is left--> Pending, and its owner is told (Remake) --FarSealed, Sealed, Fulfilled--> it has a value again
//!       |                             ^
//!       |  its owner is dead          | a sweep: nobody knows it, and its owner keeps lineages
//!       +--------> Failed          Unknown
//! ```
//! The **owner** of a result keeps the call that made it, its *lineage* (`crates/core/src/session/remake.rs`), from the first time that the
//! result was made at another node. It hears when the record here ends (`LineageOver`): then nobody can miss the object any more. So
//! this directory asks the owner, whatever was lost, and the owner either runs the task again or tells why not (`Fulfilled` with a
//! failure). Until then the object is pending as it was at first, and who waits goes on waiting.
//!
//! The owner keeps no call for a result that came to it from this node, nor for one that is no stored object. But an earlier run of the task may have made it at another
//! node, and its worker died before the owner read the reply. So what comes from here takes the place of what lies elsewhere (`on_notice`).
//!
//! An argument that everybody dropped has no record any more when the task that used it runs again. The process that runs it holds it and wants it, so it
//! is `Unknown` here, as what is lost while nobody uses it; the sweep that would call it lost asks its owner first, if that has results at other nodes: it may have kept the lineage for
//! the task that it is an argument of.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::limits::MESSAGE_REFS_MAX;
use hoplo_base::{NodeNumber, ObjectId, ProcessId};
use hoplo_wire::node::ToClient;
use hoplo_wire::{Failure, FailureKind};

use super::ObjectDirectory;
use super::event::{CopyAt, Effect};
use super::record::{State, elsewhere};

/// How an object was lost.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Loss {
    /// The node that died with it.
    pub(super) node: Option<NodeNumber>,
    /// Goes on from "it is lost: ".
    pub(super) why: String,
}

/// What owners are to hear at the end of the event, and which of them keep lineages.
#[derive(Debug, Default)]
pub(super) struct Losses {
    owners: BTreeSet<ProcessId>,
    remade: BTreeMap<(ProcessId, Loss), Vec<ObjectId>>,
    over: BTreeMap<ProcessId, Vec<ObjectId>>,
}

impl Loss {
    pub(super) fn no_copy() -> Self {
        Self { node: None, why: "no copy of it is left".to_string() }
    }
}

impl Losses {
    pub(super) fn owner_gone(&mut self, process: ProcessId) {
        self.owners.remove(&process);
    }

    pub(super) fn are_told(&self) -> bool {
        self.remade.is_empty() && self.over.is_empty()
    }

    /// OBJ-17
    pub(super) fn owners(&self) -> impl Iterator<Item = &ProcessId> {
        self.owners.iter()
    }
}

impl ObjectDirectory {
    /// No copy of it is left: its owner makes it again, or tells why not. Of a dead owner's nobody can.
    pub(super) fn lose(&mut self, object: ObjectId, loss: Loss, effects: &mut Vec<Effect>) {
        if self.records[&object].unannounced {
            self.has_no_copy(object);
            return self.await_announcements(object);
        }
        if self.is_at_home(object) && self.processes.contains_key(&object.task.owner) {
            return match self.records[&object].is_supported() {
                true => self.remake(object, loss, effects),
                false => self.forget_value(object),
            };
        }
        let text = format!("{object} is lost: {}", loss.why);
        self.fail_as_lost(object, text, effects);
    }

    /// Nobody can tell its value, or has its bytes.
    pub(super) fn fail_as_lost(
        &mut self,
        object: ObjectId,
        text: String,
        effects: &mut Vec<Effect>,
    ) {
        self.has_no_copy(object);
        let failure = Failure::new(FailureKind::ObjectLost, text);
        self.settle(object, State::Failed(failure), Vec::new(), effects);
    }

    /// It may have kept the lineage of what nobody here knows.
    pub(super) fn owner_may_remake(&self, object: ObjectId) -> bool {
        self.is_at_home(object) && self.losses.owners.contains(&object.task.owner)
    }

    /// Its owner is asked for it, if somebody uses it. Else it goes, or (if it was used and let go meanwhile) the next sweep decides.
    pub(super) fn remake_unknown(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        if self.records[&object].is_supported() {
            let why = "every reference to it was dropped, before this one was used".to_string();
            return self.remake(object, Loss { node: None, why }, effects);
        }
        let asked = self.sweeps.asked;
        let record = self.records.get_mut(&object).expect("it was just there");
        if let State::Unknown { since } = &mut record.state {
            *since = asked;
        }
    }

    fn remake(&mut self, object: ObjectId, loss: Loss, effects: &mut Vec<Effect>) {
        let owner = object.task.owner;
        self.has_no_copy(object);
        self.undecided.remove(&object);
        let record = self.records.get_mut(&object).expect("the caller has seen the record");
        // A copy may turn up, and needs what it contains: a node that was fetching it had all bytes in time.
        record.lost_bytes = record.state.len();
        record.state = State::Pending { owner, lineage: None };
        record.has_lineage = true;
        record.remade = true;
        self.index(object, owner);
        self.note(object, "lost, and to be made again", Some(owner));
        self.losses.owners.insert(owner);
        self.losses.remade.entry((owner, loss)).or_default().push(object);
        self.tell_delayed(object, effects);
        self.touch(object);
    }

    /// That node fetched it in time: it need not be made again.
    pub(super) fn copy_turns_up(
        &mut self,
        copy: CopyAt,
        object: ObjectId,
        effects: &mut Vec<Effect>,
    ) {
        let record = self.records.get_mut(&object).expect("the caller has seen the record");
        record.add_copy(copy);
        let (state, contains) = (elsewhere(record.lost_bytes), record.contains.clone());
        self.fulfil(object, state, contains, effects);
    }

    /// Nobody uses it now. If no word of a use is on its way, it goes with the next sweep.
    fn forget_value(&mut self, object: ObjectId) {
        self.has_no_copy(object);
        let since = self.sweeps.asked;
        let record = self.records.get_mut(&object).expect("the caller has seen the record");
        record.state = State::Unknown { since };
        let contains = std::mem::take(&mut record.contains);
        self.undecided.insert(object);
        self.note(object, "lost, and not used", None);
        self.release_contained(&contains);
        self.touch(object);
    }

    pub(super) fn has_no_copy(&mut self, object: ObjectId) {
        let record = self.records.get_mut(&object).expect("the caller has seen the record");
        if let Some(abroad) = &mut record.abroad {
            abroad.copies.clear();
            abroad.fetching.clear();
        }
        record.tidy();
        // COPY-1: what has no value is not short of copies.
        self.keepers.short.remove(&object);
    }

    /// A result was made at another node: its owner keeps the lineage.
    pub(super) fn lineage_begins(&mut self, object: ObjectId) {
        let owner = object.task.owner;
        if self.processes.contains_key(&owner) {
            self.record(object).has_lineage = true;
            self.losses.owners.insert(owner);
        }
    }

    /// Its record is gone: nobody will miss it.
    pub(super) fn lineage_ends(&mut self, object: ObjectId) {
        if self.processes.contains_key(&object.task.owner) {
            self.losses.over.entry(object.task.owner).or_default().push(object);
        }
    }

    /// At the end of an event: all that an owner is to hear goes together.
    pub(super) fn tell_owners(&mut self, effects: &mut Vec<Effect>) {
        if self.losses.are_told() {
            return;
        }
        for ((to, loss), objects) in std::mem::take(&mut self.losses.remade) {
            for part in objects.chunks(MESSAGE_REFS_MAX) {
                let Loss { node, why } = loss.clone();
                let message = ToClient::Remake { objects: part.to_vec(), node, why };
                effects.push(Effect::Send { to, message });
            }
        }
        for (to, objects) in std::mem::take(&mut self.losses.over) {
            for part in objects.chunks(MESSAGE_REFS_MAX) {
                let message = ToClient::LineageOver { objects: part.to_vec() };
                effects.push(Effect::Send { to, message });
            }
        }
    }
}
