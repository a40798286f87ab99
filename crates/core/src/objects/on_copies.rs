//! Objects that are to be on several nodes: `put(value, copies=2)`.
//!
//! ```text
//!   who is in charge: the home, or its heir                        a node that may have a copy
//!   Copies (of the put), a node dies,
//!   leaves, refuses, joins --> too few? ---- AskCopy, KeepCopy ---> fetches it as any reader does
//!                              asked   <--- Copied ---------------- keeps it: in its store, or on its disk
//!                              not asked any more <-- NotCopied --- it has no room, or could not fetch it
//! ```
//! What is put with copies is always stored, however small it is. Its home counts the copy that it has itself, and asks other nodes for the
//! others. Whoever is asked fetches the object at once, without a reader, and its copy is **primary**: it is never dropped for want of memory,
//! as secondary ones are, but spilled, and stays until the one in charge says `Forgotten`. That is when the last reference is gone, or when the
//! node leaves and others have it.
//!
//! **Who is asked**: nodes that live and do not leave. First one that has a copy already, since some reader fetched it; then the node that would
//! inherit from this one, so that the heir has what it is in charge of; then the others, beginning with another one for each object. Who did not
//! take one is asked for none for a while (`COPY_RETRY`). When nobody is left to ask, the object is **short** of copies: more are made when a node
//! joins, or when one that refused is asked again. Nobody waits for it.
//!
//! **Deaths.** When a node dies, the one in charge asks another one for each copy that was there. When the home dies, each node tells the heir of its copy
//! that it was asked for it, and how many there are to be. When all have told, the heir sees that there are so many, of which one is its own.
//!
//! A node that leaves keeps its copy until the node that was asked instead has one, or refuses. If it is the one in charge, it does not count its own (`on_leave`).
//!
//! # Invariants
//! - COPY-1: of each object that is to be on several nodes, and that has its value, so many nodes have a primary copy or were asked for one; or it is
//!   short, and every node that may have one and does not refuse has been asked. A node that leaves does not count.
//! - COPY-2: the copy at a node that was asked is not secondary.
//!
//! # Stories
//! 1. *A copy too many.* A node evicts its secondary copy and says `NotCopied`; before that comes, it is asked to keep one, and fetches it again. Its home takes the
//!    word for a refusal, and asks another node. Both keep it: there are more copies than wanted, and they go with the others.
//! 2. *Asked by an heir that it does not know.* A node hears of a home's death after the heir has asked it for a copy. It asks the dead home, and then, as every reader,
//!    the heir.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::limits::{COPIES_MAX, COPY_RETRY};
use hoplo_base::{Instant, NodeNumber, ObjectId, ProcessId};

use super::ObjectDirectory;
use super::event::Effect;
use super::record::{Copies, Record, Several, State};
use super::references::is_handle;

/// Who may have copies.
#[derive(Debug, Default)]
pub(super) struct Keepers {
    /// Other nodes that live and do not leave, in order.
    pub(super) nodes: Vec<NodeNumber>,
    /// Who would inherit from this one.
    heir: Option<NodeNumber>,
    /// Who did not take one, this node too, and until when it is asked for none.
    refused: BTreeMap<NodeNumber, Instant>,
    /// What is on fewer nodes than it is to be, and nobody else can be asked.
    pub(super) short: BTreeSet<ObjectId>,
}

impl Keepers {
    /// When those are asked again that refused.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.refused.values().min().copied().filter(|_| !self.short.is_empty())
    }
}

impl Record {
    /// In our charge: who has a copy that does not go.
    pub(super) fn several(&self) -> Option<Several> {
        let Copies { wanted, asked } = &**self.copies.as_ref()?;
        let others = self.copies().filter(|node| asked.contains(node)).count();
        let had = others + usize::from(self.state.is_here());
        Some(Several { wanted: *wanted, had: u8::try_from(had).unwrap_or(u8::MAX) })
    }

    /// That node was asked for one.
    pub(super) fn is_asked(&self, node: NodeNumber) -> bool {
        self.copies.as_ref().is_some_and(|copies| copies.asked.contains(&node))
    }

    /// A node that was asked did not answer yet, or nobody is asked before all nodes have announced their copies (EST-1).
    pub(super) fn awaits_copies(&self) -> bool {
        let Some(copies) = &self.copies else { return false };
        let comes = |node: &NodeNumber| self.copies().all(|copy| copy != *node);
        self.unannounced || copies.asked.iter().any(comes)
    }

    /// So many nodes have it or will. `leaves`: this one does not count.
    pub(super) fn copies_coming(&self, copies: &Copies, leaves: bool) -> usize {
        let ours = !leaves && (self.state.is_here() || self.state.is_pulling());
        usize::from(ours) + copies.asked.len()
    }

    /// This node is in charge from now on, and was asked for a copy before.
    pub(super) fn inherit_copies(&mut self) {
        if self.to_keep > 0 {
            let wanted = std::mem::take(&mut self.to_keep);
            self.copies = Some(Box::new(Copies { wanted, asked: BTreeSet::new() }));
        }
    }

    /// The one in charge asked for one here, and it is not here yet.
    pub(super) fn is_to_come(&self) -> bool {
        self.to_keep > 0 && matches!(self.state, State::Foreign { .. } | State::Elsewhere { .. })
    }
}

// ---- at the one in charge ----

impl ObjectDirectory {
    /// Who put it says on how many nodes it is to be.
    pub(super) fn on_copies(
        &mut self,
        from: ProcessId,
        object: ObjectId,
        wanted: u8,
        effects: &mut Vec<Effect>,
    ) -> Result<(), String> {
        let record = self.records.get_mut(&object).filter(|record| record.state.is_here());
        let Some(record) = record.filter(|_| object.task.owner == from) else {
            return Err(format!("wants copies of {object}, which it did not put"));
        };
        if !(1..=COPIES_MAX).contains(&wanted) {
            return Err(format!("wants {wanted} copies of {object}"));
        }
        record.copies = Some(Box::new(Copies { wanted, asked: BTreeSet::new() }));
        self.make_copies(object, effects);
        self.touch(object);
        Ok(())
    }

    /// COPY-1: asks as many nodes as are missing.
    pub(super) fn make_copies(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        while let Some(record) = self.records.get(&object)
            && let Some(copies) = &record.copies
        {
            let has_value = record.state.is_stored() && !record.unannounced;
            let coming = record.copies_coming(copies, self.leaves());
            if !has_value || coming >= usize::from(copies.wanted) {
                break;
            }
            let wanted = copies.wanted;
            let Some(node) = self.next_keeper(object, record, copies) else {
                self.keepers.short.insert(object);
                return;
            };
            if node == self.node {
                // Which goes on here.
                return self.pull(object, effects);
            }
            let record = self.records.get_mut(&object).expect("it was just there");
            record.copies.as_mut().expect("it was just there").asked.insert(node);
            effects.push(Effect::AskCopy { node, object, copies: wanted });
        }
        self.keepers.short.remove(&object);
    }

    fn next_keeper(
        &self,
        object: ObjectId,
        record: &Record,
        copies: &Copies,
    ) -> Option<NodeNumber> {
        let Keepers { nodes, heir, refused, .. } = &self.keepers;
        let may = |node: &NodeNumber| {
            let is_out = refused.contains_key(node) || self.draining.contains(node);
            !is_out && !copies.asked.contains(node)
        };
        if !record.state.is_here() && !record.state.is_pulling() && may(&self.node) {
            return Some(self.node);
        }
        let lives = |node: &NodeNumber| nodes.binary_search(node).is_ok();
        if let Some(has) = record.copies().find(|node| may(node) && lives(node)) {
            return Some(has);
        }
        if let Some(heir) = heir.filter(|heir| may(heir) && lives(heir)) {
            return Some(heir);
        }
        let spread = object.task.seq.wrapping_add(u64::from(object.index));
        let at = (spread % nodes.len().max(1) as u64) as usize;
        nodes[at..].iter().chain(&nodes[..at]).copied().find(may)
    }

    /// That node does not have it, though it may have been asked for it.
    pub(super) fn copy_refused(
        &mut self,
        node: NodeNumber,
        object: ObjectId,
        effects: &mut Vec<Effect>,
    ) {
        let Some(record) = self.records.get_mut(&object) else { return };
        let Some(copies) = &mut record.copies else { return };
        if copies.asked.remove(&node) || node == self.node {
            self.keepers.refused.insert(node, self.now + COPY_RETRY);
            self.note(object, "a copy was refused", None);
            self.make_copies(object, effects);
        }
    }

    /// It leaves, and another node is to have its copy.
    pub(super) fn keeps_no_more(&mut self, node: NodeNumber, object: ObjectId) {
        if let Some(record) = self.records.get_mut(&object)
            && let Some(copies) = &mut record.copies
        {
            copies.asked.remove(&node);
        }
    }

    /// Every node hears this of every other one: so it takes as long with many of them as with few.
    pub(super) fn on_other(
        &mut self,
        node: NodeNumber,
        stays: bool,
        heir: Option<NodeNumber>,
        effects: &mut Vec<Effect>,
    ) {
        let keepers = &mut self.keepers;
        keepers.heir = heir;
        match (keepers.nodes.binary_search(&node), stays) {
            (Err(at), true) => keepers.nodes.insert(at, node),
            (Ok(at), false) => {
                keepers.nodes.remove(at);
                keepers.refused.remove(&node);
            }
            (Ok(_), true) | (Err(_), false) => {}
        }
        self.make_short_ones(effects);
    }

    /// Who refused is asked again.
    pub(super) fn retry_copies(&mut self, effects: &mut Vec<Effect>) {
        let (before, now) = (self.keepers.refused.len(), self.now);
        self.keepers.refused.retain(|_, until| *until > now);
        if self.keepers.refused.len() < before {
            self.make_short_ones(effects);
        }
    }

    fn make_short_ones(&mut self, effects: &mut Vec<Effect>) {
        for object in self.keepers.short.clone() {
            self.make_copies(object, effects);
        }
    }

    /// A node tells of its copy that the home, which is dead, asked for it.
    pub(super) fn keeper_known(
        &mut self,
        node: NodeNumber,
        object: ObjectId,
        wanted: u8,
        effects: &mut Vec<Effect>,
    ) {
        let record = self.records.get_mut(&object).expect("the caller has seen the record");
        if wanted == 0 || record.copies().all(|copy| copy != node) {
            return;
        }
        record.secondary = false;
        let copies = record.copies.get_or_insert_default();
        copies.wanted = copies.wanted.max(wanted);
        // For the copy at a node that leaves another one is asked.
        if !self.draining.contains(&node) {
            copies.asked.insert(node);
        }
        self.make_copies(object, effects);
    }

    /// For `check`: COPY-1, COPY-2.
    pub(super) fn check_copies(&self, object: ObjectId, record: &Record) {
        let story = || self.story(object).join("\n");
        let is_short = self.keepers.short.contains(&object);
        assert!(record.to_keep == 0 || !self.is_at_home(object), "COPY-1: {object}\n{}", story());
        let asked = record.to_keep > 0 || record.copies.is_some();
        assert!(!asked || !record.secondary, "COPY-2: {object}\n{}", story());
        let Some(copies) = &record.copies else {
            return assert!(!is_short, "COPY-1: {object}");
        };
        assert!(copies.asked.is_disjoint(&self.draining), "COPY-1: {object}\n{}", story());
        let has_value = record.state.is_stored() && !record.unannounced;
        let coming = record.copies_coming(copies, self.leaves());
        let lacks = coming < usize::from(copies.wanted);
        assert!(is_short == (has_value && lacks), "COPY-1: {object}\n{}", story());
        let next = self.next_keeper(object, record, copies);
        assert!(!is_short || next.is_none(), "COPY-1: {object} could be at {next:?}");
    }
}

// ---- at a node that is asked ----

impl ObjectDirectory {
    /// Who is in charge of it asks for one of so many copies.
    pub(super) fn on_copy_asked(
        &mut self,
        object: ObjectId,
        copies: u8,
        effects: &mut Vec<Effect>,
    ) {
        // It is in charge itself by now, and sees to it.
        if self.is_at_home(object) || is_handle(object) {
            return;
        }
        let record = self.record(object);
        if record.state.is_here() {
            record.to_keep = copies;
            record.secondary = false;
            if record.kept.is_none() {
                self.tell_copied(object, 0, effects);
            }
        } else if record.state.is_pulling() || record.state.depends_on_others() {
            record.to_keep = copies;
            self.fetch_if_wanted(object, effects);
        } else {
            effects.push(Effect::TellNotCopied { object });
        }
        self.touch(object);
    }
}
