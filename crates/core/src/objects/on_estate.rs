//! Estates: what becomes of objects whose home died.
//!
//! ```text
//!   the home dies --> the directory of its heir is in charge:  Unknown, told by nobody yet
//!                        |   nodes announce what they know (`FarKnows`)
//!                        +-- a copy --> Elsewhere      +-- the value --> Inline | Failed      +-- the lineage --> Orphaned
//!                        |
//!                        |   all have announced (`Announced`), and a sweep has passed
//!                        +-- Unknown --> Failed        +-- Orphaned --> adopted, here or at a node that waits for it
//! ```
//! The **heir** is a node that lives; which one, the composite says with each death (`core/claims`, NREF-5). From then on its directory is to
//! these objects what their home was: it is asked, it knows the copies, directs pulls, and says when copies may go. Who still uses
//! an object is known by the claims alone, as with any object of this home: the node holds it here until they free it.
//!
//! **What is announced** by each node, at once, of each object of the dead home that it knows: that it has all bytes, the value if it is
//! not stored, or how it is made. A copy that nobody uses there is announced as well: its node keeps it for its home, and now for the heir. What
//! is being fetched is announced when it is here. Who waits asks the heir anew.
//!
//! **Lineage** of a pending result is told by its home to each node that claims it, as long as the home lives. So who holds a result of a
//! task that a process of the dead node had called can say how it is made, and it is adopted (`on_adopt`).
//!
//! # Invariants
//! - EST-1: nothing of an estate ends, and nothing of it is called lost, before all nodes have announced what they know of it: each record is
//!   supported until then (`unannounced`). What is known before is told at once.
//! - EST-2: if the heir dies, all is announced again to the next one: no node forgets what it knows because it was told.
//!
//! # Stories
//! 1. *Two values.* A result was made twice, and two nodes know different ones. The first that is announced stays, as at any home. Who read
//!    the other one keeps it.
//! 2. *A copy that is late.* A node was fetching when the home died, and has all bytes after all have announced. If the object was called lost meanwhile,
//!    it has a value again (`State::is_open`): who asks from then on gets it.

use std::collections::BTreeMap;

use hoplo_base::limits::{LINEAGE_TOLD_BYTES_MAX, LINEAGES_TOLD_BYTES_MAX};
use hoplo_base::{NodeNumber, ObjectId};
use hoplo_wire::FailureKind;
use hoplo_wire::node::Lineage;
use hoplo_wire::peer::Known;

use super::ObjectDirectory;
use super::event::{CopyAt, Effect, Heir};
use super::on_notice::refs_of;
use super::record::{Record, State, elsewhere};
use super::references::is_handle;

/// What this directory knows of dead homes, and of how pending results of others are made.
#[derive(Debug, Default)]
pub(super) struct Estates {
    /// By home.
    homes: BTreeMap<NodeNumber, Home>,
    /// How pending results of other homes are made, as these told.
    lineages: BTreeMap<ObjectId, Lineage>,
    /// Bytes of their frames.
    lineage_bytes: usize,
}

/// A dead one.
#[derive(Debug)]
struct Home {
    /// Nobody, where nobody lives.
    heir: Option<NodeNumber>,
    /// It is ours, and all have announced what they know of it.
    announced: bool,
    why: String,
}

impl Estates {
    pub(super) fn in_charge(&self, home: NodeNumber) -> NodeNumber {
        self.homes.get(&home).and_then(|it| it.heir).unwrap_or(home)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.homes.is_empty()
    }

    /// Whether that home is dead.
    pub(super) fn has(&self, home: NodeNumber) -> bool {
        self.homes.contains_key(&home)
    }

    /// EST-1
    pub(super) fn is_unannounced(&self, home: NodeNumber) -> bool {
        self.homes.get(&home).is_some_and(|it| !it.announced)
    }

    pub(super) fn forget_lineage(&mut self, object: ObjectId) -> Option<Lineage> {
        let lineage = self.lineages.remove(&object)?;
        self.lineage_bytes -= lineage.frame.len();
        Some(lineage)
    }
}

impl ObjectDirectory {
    /// The node whose directory has the last word on what is, or was, at home there.
    pub fn in_charge(&self, home: NodeNumber) -> NodeNumber {
        self.estates.in_charge(home)
    }

    /// Homes in our charge of which not all nodes have announced what they know.
    pub fn unannounced(&self) -> Vec<NodeNumber> {
        let homes = self.estates.homes.iter().filter(|(_, home)| !home.announced);
        homes.map(|(home, _)| *home).collect()
    }

    /// These homes, dead ones, have new heirs: first of what this directory knows of theirs.
    pub(super) fn on_heirs(&mut self, dead: NodeNumber, why: &str, heirs: &[Heir]) {
        let me = self.node;
        for Heir { home, heir } in heirs {
            let known = self.estates.homes.remove(home);
            let why = known.map_or_else(|| why.to_string(), |it| it.why);
            let (heir, announced) = (Some(*heir), *heir != me);
            self.estates.homes.insert(*home, Home { heir, announced, why });
        }
        let nobody = || Home { heir: None, announced: true, why: why.to_string() };
        self.estates.homes.entry(dead).or_insert_with(nobody);
    }

    /// It was at home at a dead node, and has a new heir: this node or another one.
    pub(super) fn pass_on(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        if self.is_at_home(object) {
            self.inherit(object, effects);
        } else {
            self.bequeath(object, effects);
        }
    }

    /// The last word on it is ours from now on.
    fn inherit(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let lineage = self.estates.forget_lineage(object);
        let adopter = self.adoptions.adopter_here(object.task);
        let since = self.sweeps.asked;
        let record = self.records.get_mut(&object).expect("the caller has seen the record");
        record.unannounced = true;
        record.kept = None;
        record.inherit_copies();
        // The node's own hold takes its place, until the claims free it.
        if std::mem::take(&mut record.claimed) {
            effects.push(Effect::Unforeign { object });
        }
        record.abroad = None;
        // What is under way may come to its end.
        if record.state.depends_on_others() {
            record.state = match (adopter, lineage) {
                (Some(owner), lineage) => State::Pending { owner, lineage },
                (None, lineage) => State::made_by_nobody(lineage, since),
            };
            // Its owner, which the dead home had asked to make it again, died with that.
            record.remade &= !matches!(record.state, State::Unknown { .. });
            adopter.into_iter().for_each(|owner| self.index(object, owner));
            self.note(object, "inherited", adopter);
        }
    }

    /// Another node has the last word on it, and hears what is known of it here.
    fn bequeath(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        self.adoption_ends(object);
        let record = self.records.get_mut(&object).expect("the caller has seen the record");
        match &mut record.state {
            State::Foreign { asked, .. } => {
                *asked = false;
                if let Some(lineage) = self.estates.lineages.get(&object).cloned() {
                    effects.push(Effect::TellKnown { object, known: Known::Lineage(lineage) });
                }
                self.comes_no_more(object, effects);
                self.fetch_if_wanted(object, effects);
            }
            State::Elsewhere { pulling: false, .. } => {
                record.abroad = None;
                record.state = State::Foreign { asked: false, again: false };
                self.fetch_if_wanted(object, effects);
            }
            State::Inline(bytes) => {
                let (bytes, contains) = (bytes.clone(), record.contains.clone());
                effects
                    .push(Effect::TellKnown { object, known: Known::Inline { bytes, contains } });
            }
            // That nobody has it is for the heir to find out.
            State::Failed(failure) if failure.kind == FailureKind::ObjectLost => {}
            State::Failed(failure) => {
                let known = Known::Failed(failure.clone());
                effects.push(Effect::TellKnown { object, known });
            }
            State::Stored { .. }
            | State::Spilling { .. }
            | State::Spilled { .. }
            | State::Restoring { .. }
            | State::Mapped { .. }
            | State::Closing { .. } => self.tell_copied(object, 0, effects),
            // Told when it is here.
            State::Elsewhere { pulling: true, .. } => {}
            State::Unknown { .. }
            | State::Handle
            | State::Pending { .. }
            | State::Orphaned { .. } => {}
        }
    }

    /// Who is in charge hears that all bytes are here, and that they stay until it says `Forgotten`.
    pub(super) fn tell_copied(&mut self, object: ObjectId, turn: u64, effects: &mut Vec<Effect>) {
        let word = self.keep_for_home(object);
        if !self.estates.has(object.task.owner.node()) {
            return effects.push(Effect::TellCopied { object, word, turn });
        }
        let record = &self.records[&object];
        let (bytes, copies) = (record.state.len(), record.to_keep);
        let known = Known::Copy { bytes, word, contains: record.contains.clone(), copies };
        effects.push(Effect::TellKnown { object, known });
    }

    /// A node says what it knows of what is in our charge.
    pub(super) fn on_far_knows(
        &mut self,
        node: NodeNumber,
        object: ObjectId,
        known: Known,
        effects: &mut Vec<Effect>,
    ) {
        assert!(self.is_at_home(object), "{node:?} speaks of {object}, which is in others' charge");
        if is_handle(object) {
            return;
        }
        match known {
            Known::Copy { bytes, word, contains, copies } => {
                let copy = CopyAt { node, word };
                self.copy_known(object, copy, (bytes, contains), effects);
                self.keeper_known(node, object, copies, effects);
            }
            Known::Inline { bytes, contains } => {
                self.value_known(object, State::Inline(bytes), contains, effects);
            }
            Known::Failed(failure) => {
                self.value_known(object, State::Failed(failure), Vec::new(), effects);
            }
            Known::Lineage(lineage) => self.lineage_known(object, lineage, effects),
        }
        self.touch(object);
        self.leave_draining(object, effects);
    }

    fn value_known(
        &mut self,
        object: ObjectId,
        state: State,
        contains: Vec<ObjectId>,
        effects: &mut Vec<Effect>,
    ) {
        // Of a task with several results, it may be one that nobody can reach.
        let unannounced = self.estates.is_unannounced(object.task.owner.node());
        if (unannounced || self.records.contains_key(&object))
            && self.record(object).state.is_open()
        {
            self.fulfil(object, state, contains, effects);
        }
    }

    fn copy_known(
        &mut self,
        object: ObjectId,
        copy: CopyAt,
        (bytes, contains): (u64, Vec<ObjectId>),
        effects: &mut Vec<Effect>,
    ) {
        let record = self.record(object);
        if record.state.is_stored() && record.state.len() == bytes {
            record.add_copy(copy);
        } else if record.state.is_open() && bytes > 0 {
            record.add_copy(copy);
            self.fulfil(object, elsewhere(bytes), contains, effects);
        } else {
            effects.push(Effect::ForgetCopy { object, copy });
            if self.records[&object].state.is_open() {
                self.fulfil(object, elsewhere(bytes), contains, effects);
            }
        }
    }

    fn lineage_known(&mut self, object: ObjectId, lineage: Lineage, effects: &mut Vec<Effect>) {
        let Ok(refs) = refs_of(object, &lineage) else { return };
        let asked = self.sweeps.asked;
        let record = self.record(object);
        if !matches!(record.state, State::Unknown { .. }) {
            return;
        }
        record.state = State::Orphaned { lineage: Ok(lineage), since: asked };
        self.contain(&refs);
        let record = self.records.get_mut(&object).expect("it was just there");
        let before = std::mem::replace(&mut record.contains, refs);
        self.release_contained(&before);
        self.adopt(object, effects);
    }

    /// All nodes have said what they know of these estates: what has no value has none.
    pub(super) fn on_announced(&mut self, homes: &[NodeNumber], effects: &mut Vec<Effect>) {
        for home in homes {
            if let Some(home) = self.estates.homes.get_mut(home) {
                home.announced = true;
            }
        }
        let since = self.sweeps.asked;
        let of_these = |object: &ObjectId| homes.contains(&object.task.owner.node());
        let mut known = Vec::new();
        for (object, record) in self.records.iter_mut().filter(|(object, _)| of_these(object)) {
            if !std::mem::take(&mut record.unannounced) {
                continue;
            }
            known.push(*object);
            if let State::Unknown { since: at } | State::Orphaned { since: at, .. } =
                &mut record.state
            {
                *at = since;
                self.undecided.insert(*object);
            }
        }
        for object in known {
            self.make_copies(object, effects);
            self.touch(object);
            // Copies at nodes that leave were kept until others could be asked.
            self.leave_draining(object, effects);
        }
    }

    /// No copy of it is left that this directory knows of; others may announce theirs.
    pub(super) fn await_announcements(&mut self, object: ObjectId) {
        let since = self.sweeps.asked;
        let record = self.records.get_mut(&object).expect("the caller has seen the record");
        record.state = State::Unknown { since };
        self.touch(object);
    }

    /// Why an object of a dead home has no value.
    pub(super) fn why_not_inherited(&self, object: ObjectId) -> Option<String> {
        let home = object.task.owner.node();
        let Home { why, .. } = self.estates.homes.get(&home)?;
        Some(format!(
            "{object} is lost: its home node {} died ({why}), no other node has a copy of it, and none knows how to make it. \
             What is to outlive its node, put on several (`hoplo.put(value, copies=2)`), read at another one before, or make again from there",
            home.hex()
        ))
    }

    // ---- lineage ----

    /// Its home says how it is made, while it is pending.
    pub(super) fn on_lineage_told(&mut self, object: ObjectId, lineage: Lineage) {
        let Ok(refs) = refs_of(object, &lineage) else { return };
        let bytes = lineage.frame.len();
        let fits = bytes <= LINEAGE_TOLD_BYTES_MAX
            && self.estates.lineage_bytes + bytes <= LINEAGES_TOLD_BYTES_MAX;
        let waits = |record: &Record| {
            matches!(record.state, State::Foreign { .. }) && record.contains.is_empty()
        };
        if !fits || !self.records.get(&object).is_some_and(waits) {
            return;
        }
        self.estates.forget_lineage(object);
        self.estates.lineages.insert(object, lineage);
        self.estates.lineage_bytes += bytes;
        self.contain(&refs);
        self.records.get_mut(&object).expect("it was just there").contains = refs;
    }
}
