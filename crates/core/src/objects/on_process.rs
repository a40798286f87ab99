//! Processes come and go; pending objects of the dead are orphans, which others may adopt (`on_adopt`).

use std::collections::BTreeSet;

use hoplo_base::{ObjectId, ProcessId};
use hoplo_wire::{Failure, FailureKind};

use super::ObjectDirectory;
use super::event::Effect;
use super::memory::Legacy;
use super::record::State;

impl ObjectDirectory {
    pub(super) fn on_process_joined(
        &mut self,
        process: ProcessId,
        slots: u32,
        effects: &mut Vec<Effect>,
    ) {
        let before = self.processes.insert(process, BTreeSet::new());
        assert!(before.is_none(), "{process} joined twice");
        self.memory.join(process);
        let slots = self.memory.grant_slots(process, slots);
        effects.push(Effect::Welcome { process, slots });
    }

    pub(super) fn on_process_left(
        &mut self,
        process: ProcessId,
        obituary: &str,
        effects: &mut Vec<Effect>,
    ) {
        let Some(known) = self.processes.remove(&process) else { return };
        self.dying.remove(&process);
        self.requests.retain(|request| !request.is_from(process));
        self.recalls.remove(&process);
        self.losses.owner_gone(process);
        // What it gave itself is kept until its callers have said what came.
        self.replies.retain(|(_, caller), _| *caller != process);
        self.memory.leave(process);
        for object in &known {
            let record = self.records.get_mut(object).expect("OBJ-3: what is known has a record");
            record.tokens.remove(&process);
            record.waiting.remove(&process);
        }
        for object in known {
            if self.records[&object].state.owner() == Some(process) {
                self.orphan(object, obituary);
            }
            self.touch(object);
        }
        self.adopter_gone(process, effects);
        self.progress();
    }

    pub(super) fn on_unmapped(&mut self, process: ProcessId, effects: &mut Vec<Effect>) {
        if !self.memory.has_estate(process) {
            return;
        }
        let Legacy { slots, rooms } = self.memory.bury(self.now, process);
        rooms.into_iter().for_each(|place| self.forget(place, effects));
        if !slots.is_empty() {
            effects.push(Effect::ResetSlots { slots });
        }
        self.pins_went(effects);
        self.progress();
    }

    /// The owner is dead, and the value is not here: it was not computed, or its maker's word is not read yet.
    fn orphan(&mut self, object: ObjectId, obituary: &str) {
        let record = self.records.get_mut(&object).expect("an orphan has a record");
        let State::Pending { lineage, .. } = &mut record.state else {
            panic!("{object} is {}, not pending", record.state.name());
        };
        let was_lost = record.remade;
        let lineage = lineage.take().ok_or_else(|| match was_lost {
            true => {
                let text = format!(
                    "{object} is lost: no node that lives has a copy of it, and its owner, which could have made it again, \
                     has ended ({obituary})"
                );
                Failure::new(FailureKind::ObjectLost, text)
            }
            false => {
                let text = format!(
                    "{object} has no value: its owner died before it was computed, and it comes from a \
                     call that cannot run again in another process ({obituary})"
                );
                Failure::new(FailureKind::OwnerDied, text)
            }
        });
        record.lost_bytes = 0;
        record.state = State::Orphaned { lineage, since: self.sweeps.asked };
        if !record.unannounced {
            self.undecided.insert(object);
        }
        self.note(object, "orphaned", None);
    }
}
