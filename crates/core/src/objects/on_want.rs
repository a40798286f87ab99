//! Who waits for a value, and what is on disk and wanted.

use hoplo_base::{ObjectId, ProcessId};

use super::ObjectDirectory;
use super::event::Need;
use super::event::{Effect, Refusal};
use super::on_room::{Asker, Request};
use super::record::State;
use super::references::is_handle;

impl ObjectDirectory {
    pub(super) fn on_wanted(
        &mut self,
        from: ProcessId,
        objects: Vec<ObjectId>,
        need: Need,
        effects: &mut Vec<Effect>,
    ) {
        if from == self.haul {
            return objects.into_iter().for_each(|object| self.on_served(object, false, effects));
        }
        for object in objects {
            if is_handle(object) {
                self.violation(from, format!("wants {object}, an actor's handle"), effects);
                continue;
            }
            self.record(object).waits_for(from, need);
            self.index(object, from);
            self.touch(object);
            self.use_now(object);
            self.restore_if_wanted(object, effects);
            self.fetch_if_wanted(object, effects);
            self.adopt(object, effects);
            self.answer(object, effects);
            self.tell_if_delayed(from, object, effects);
        }
    }

    /// Somebody is about to read it: it is the last to be spilled, or closed.
    pub(super) fn use_now(&mut self, object: ObjectId) {
        let record = self.records.get_mut(&object).expect("the caller has seen the record");
        let (used, order) = match &mut record.state {
            State::Stored { used, .. } => (used, &mut self.lru),
            State::Mapped { used, .. } => (used, &mut self.mapped),
            State::Unknown { .. }
            | State::Handle
            | State::Foreign { .. }
            | State::Elsewhere { .. }
            | State::Pending { .. }
            | State::Orphaned { .. }
            | State::Inline(_)
            | State::Failed(_)
            | State::Spilling { .. }
            | State::Spilled { .. }
            | State::Restoring { .. }
            | State::Closing { .. } => return,
        };
        order.remove(used);
        self.uses += 1;
        order.insert(self.uses, object);
        *used = self.uses;
    }

    /// If it is on disk and somebody waits: makes it readable there, or asks for the slot that it needs.
    pub(super) fn restore_if_wanted(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let Some(record) = self.records.get_mut(&object) else { return };
        if !record.is_to_read() {
            return;
        }
        let State::Spilled { queued: queued @ false, .. } = &mut record.state else { return };
        match self.memory.lend_slot() {
            Some(slot) => self.restore(object, slot, effects),
            None => {
                *queued = true;
                self.requests.push_back(Request::new(Asker::Restore { object }, 0, self.now));
            }
        }
    }

    /// It cannot be read now: that is the answer to those who wait, and never the object's value. Who asks
    /// again is answered anew.
    pub(super) fn refuse(
        &mut self,
        object: ObjectId,
        refusal: &Refusal,
        effects: &mut Vec<Effect>,
    ) {
        let record = self.records.get_mut(&object).expect("the caller has seen the record");
        for to in std::mem::take(&mut record.waiting).into_keys() {
            self.index(object, to);
            effects.push(Effect::Refuse { to, object, refusal: refusal.clone() });
        }
        self.touch(object);
    }

    /// Spilled, and a request for a slot is waiting for it.
    pub(super) fn is_queued(&self, object: ObjectId) -> bool {
        let Some(record) = self.records.get(&object) else { return false };
        match record.state {
            State::Spilled { queued, .. } => queued,
            State::Unknown { .. }
            | State::Handle
            | State::Foreign { .. }
            | State::Elsewhere { .. }
            | State::Pending { .. }
            | State::Orphaned { .. }
            | State::Inline(_)
            | State::Failed(_)
            | State::Stored { .. }
            | State::Spilling { .. }
            | State::Restoring { .. }
            | State::Mapped { .. }
            | State::Closing { .. } => false,
        }
    }
}
