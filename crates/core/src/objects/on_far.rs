//! What other nodes have to do with objects that are at home here: they wait for them, make them, have copies, die.
//!
//! ```text
//!   Unknown, Pending, Orphaned --FarSealed--> Elsewhere --pulled--> Stored, Mapped ... (the copies stay)
//!                                                 |
//!                                                 +--no copy is left--> Failed
//! ```
//! Each copy that another node said it has is told to be forgotten: when the record ends, or at once where it is not needed.
//! A node that waits for a value supports it as a process does; what it gets then is covered by the message that tells it.

use hoplo_base::{NodeNumber, ObjectId};
use hoplo_wire::peer::FarValue;
use hoplo_wire::{Failure, FailureKind};

use super::ObjectDirectory;
use super::event::Effect;
use super::record::State;
use super::references::is_handle;

impl ObjectDirectory {
    pub(super) fn on_far_wanted(
        &mut self,
        node: NodeNumber,
        object: ObjectId,
        effects: &mut Vec<Effect>,
    ) {
        assert!(self.is_at_home(object), "{node:?} wants {object}, which is not at home here");
        if is_handle(object) {
            let what = format!("{object} stands for an actor and has no value");
            let value = FarValue::Failed(Failure::new(FailureKind::ObjectLost, what));
            let contains = Vec::new();
            return effects.push(Effect::TellNode { node, object, value, contains });
        }
        self.record(object).abroad().waiting.insert(node);
        self.touch(object);
        self.adopt(object, effects);
        self.answer_nodes(object, effects);
    }

    pub(super) fn on_far_sealed(
        &mut self,
        node: NodeNumber,
        object: ObjectId,
        bytes: u64,
        contains: Vec<ObjectId>,
        effects: &mut Vec<Effect>,
    ) {
        assert!(self.is_at_home(object), "{node:?} made {object}, which is not at home here");
        self.note(object, "sealed at another node", None);
        if is_handle(object) || !self.record(object).state.is_open() {
            // Its task ran twice: the first value stays. Whoever hears of this one asks here.
            if !self.records.get(&object).is_some_and(|it| it.copies().any(|copy| copy == node)) {
                effects.push(Effect::ForgetCopy { node, object });
            }
            return self.touch(object);
        }
        let state = elsewhere(bytes);
        match &state {
            State::Elsewhere { .. } => {
                let record = self.records.get_mut(&object).expect("it was just there");
                record.abroad().copies.insert(node);
            }
            _nothing => effects.push(Effect::ForgetCopy { node, object }),
        }
        self.fulfil(object, state, contains, effects);
        self.touch(object);
    }

    pub(super) fn on_far_copied(
        &mut self,
        node: NodeNumber,
        object: ObjectId,
        effects: &mut Vec<Effect>,
    ) {
        match self.records.get_mut(&object) {
            Some(record) if record.state.is_stored() => {
                record.abroad().copies.insert(node);
            }
            // It ended while the copy was made.
            Some(_) | None => effects.push(Effect::ForgetCopy { node, object }),
        }
    }

    /// Tells the nodes that wait, if there is something to tell.
    pub(super) fn answer_nodes(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let Some(record) = self.records.get(&object) else { return };
        if record.far_waiting().next().is_none() {
            return;
        }
        let Some(value) = self.far_value(object) else { return };
        let record = self.records.get_mut(&object).expect("it was just there");
        let nodes = std::mem::take(&mut record.abroad().waiting);
        record.tidy();
        let contains = record.contains.clone();
        for node in nodes {
            let (value, contains) = (value.clone(), contains.clone());
            effects.push(Effect::TellNode { node, object, value, contains });
        }
        self.touch(object);
    }

    /// What another node is told of the value, once there is one.
    pub(super) fn far_value(&self, object: ObjectId) -> Option<FarValue> {
        let record = self.records.get(&object)?;
        match &record.state {
            State::Inline(bytes) => Some(FarValue::Inline(bytes.clone())),
            State::Failed(failure) => Some(FarValue::Failed(failure.clone())),
            State::Elsewhere { bytes, .. } => {
                let copies: Vec<NodeNumber> = record.copies().collect();
                // Without any it is decided when the pull that is under way has ended.
                (!copies.is_empty()).then_some(FarValue::Stored { bytes: *bytes, copies })
            }
            State::Stored { .. }
            | State::Spilling { .. }
            | State::Spilled { .. }
            | State::Restoring { .. }
            | State::Mapped { .. }
            | State::Closing { .. } => {
                let copies = std::iter::once(self.node).chain(record.copies()).collect();
                Some(FarValue::Stored { bytes: record.state.len(), copies })
            }
            State::Unknown { .. }
            | State::Handle
            | State::Foreign { .. }
            | State::Pending { .. }
            | State::Orphaned { .. } => None,
        }
    }

    /// A pending object whose owner is dead, and no process here holds or wants it: if only other nodes wait, they hear that
    /// nobody can make it.
    pub(super) fn give_up_far(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        if self.records[&object].far_waiting().next().is_none() {
            return;
        }
        let text = format!(
            "{object} has no value: its owner died before it was computed, and the processes that still use it are on \
             other nodes, which cannot run its task again"
        );
        let failure = Failure::new(FailureKind::OwnerDied, text);
        self.fulfil(object, State::Failed(failure), Vec::new(), effects);
    }

    /// Nobody can tell its value, or has its bytes.
    pub(super) fn lose(&mut self, object: ObjectId, text: String, effects: &mut Vec<Effect>) {
        let record = self.records.get_mut(&object).expect("the caller has seen the record");
        if let Some(abroad) = &mut record.abroad {
            abroad.copies.clear();
        }
        record.tidy();
        let failure = Failure::new(FailureKind::ObjectLost, text);
        self.settle(object, State::Failed(failure), Vec::new(), effects);
    }

    pub(super) fn on_node_gone(&mut self, dead: NodeNumber, why: &str, effects: &mut Vec<Effect>) {
        let mut concerned = Vec::new();
        for (object, record) in &mut self.records {
            let was_home = object.task.owner.node() == dead;
            let mut named = false;
            if let Some(abroad) = &mut record.abroad {
                named = abroad.copies.remove(&dead) | abroad.waiting.remove(&dead);
            }
            record.tidy();
            // Nobody will say that its copy may go: it goes when it is not used here.
            let kept = was_home && std::mem::take(&mut record.kept);
            if was_home || named || kept {
                concerned.push(*object);
            }
        }
        for object in concerned {
            let was_home = object.task.owner.node() == dead;
            let at_home = self.is_at_home(object);
            let record = self.records.get_mut(&object).expect("nothing ended meanwhile");
            let has_copies = record.copies().next().is_some();
            match &mut record.state {
                State::Foreign { .. } | State::Elsewhere { pulling: false, .. } if was_home => {
                    let text =
                        format!("{object} is lost: its home node {} died: {why}", dead.number());
                    self.lose(object, text, effects);
                }
                // What is under way may come to its end; else it is decided then.
                State::Elsewhere { pulling: false, .. } if !has_copies && at_home => {
                    let text = format!(
                        "{object} is lost: the only copy of it was on node {}, which died: {why}",
                        dead.number()
                    );
                    self.lose(object, text, effects);
                }
                State::Elsewhere { pulling: false, .. } if !has_copies => {
                    record.state = State::Foreign { asked: false, again: false };
                }
                State::Foreign { .. }
                | State::Elsewhere { .. }
                | State::Unknown { .. }
                | State::Handle
                | State::Pending { .. }
                | State::Orphaned { .. }
                | State::Inline(_)
                | State::Failed(_)
                | State::Stored { .. }
                | State::Spilling { .. }
                | State::Spilled { .. }
                | State::Restoring { .. }
                | State::Mapped { .. }
                | State::Closing { .. } => {}
            }
            self.touch(object);
        }
    }
}

/// A stored value whose bytes are at other nodes. Where there are none of them, that is all of it.
pub(super) fn elsewhere(bytes: u64) -> State {
    match bytes {
        0 => State::Inline(std::sync::Arc::default()),
        bytes => State::Elsewhere { bytes, pulling: false, again: false },
    }
}
