//! Who waits for a value, and bringing it back from disk.

use hoplo_base::{ObjectId, ProcessId};
use hoplo_wire::node::ToClient;
use hoplo_wire::{Failure, FailureKind, Location, Value};

use super::ObjectDirectory;
use super::event::{Effect, SpillPlace};
use super::on_move::{Fate, Move, MoveKind};
use super::on_room::{Asker, Request};
use super::record::State;
use super::references::is_handle;

impl ObjectDirectory {
    pub(super) fn on_wanted(
        &mut self,
        from: ProcessId,
        objects: Vec<ObjectId>,
        effects: &mut Vec<Effect>,
    ) {
        for object in objects {
            if is_handle(object) {
                self.violation(from, format!("wants {object}, an actor's handle"), effects);
                continue;
            }
            self.record(object).waiting.insert(from);
            self.note(object, from);
            self.touch(object);
            self.use_now(object);
            self.queue_restore(object);
            self.adopt(object, effects);
            self.answer(object, effects);
        }
    }

    /// Somebody is about to read it: it is the last to be spilled.
    fn use_now(&mut self, object: ObjectId) {
        let record = self.records.get_mut(&object).expect("the caller has seen the record");
        if let State::Stored { used, .. } = &mut record.state {
            self.lru.remove(used);
            self.uses += 1;
            self.lru.insert(self.uses, object);
            *used = self.uses;
        }
    }

    /// If it is spilled and somebody waits: asks for room for it.
    pub(super) fn queue_restore(&mut self, object: ObjectId) {
        let Some(record) = self.records.get_mut(&object) else { return };
        if record.waiting.is_empty() {
            return;
        }
        if let State::Spilled { place, queued: queued @ false } = &mut record.state {
            *queued = true;
            let bytes = place.len;
            self.requests.push_back(Request::new(Asker::Restore { object }, bytes, self.now));
        }
    }

    /// There is room: read it back.
    pub(super) fn restore(
        &mut self,
        object: ObjectId,
        offset: u64,
        slot: u32,
        effects: &mut Vec<Effect>,
    ) {
        let attempt = self.next_attempt();
        let record = self.records.get_mut(&object).expect("the queue looked for it");
        let State::Spilled { place, queued: true } = record.state else {
            panic!("OBJ-9: {object} is {}, not spilled and queued", record.state.name());
        };
        record.state = State::Restoring { place, attempt };
        let kind = MoveKind::Restore { place, offset, slot };
        self.moves.insert(attempt, Move { object, kind, fate: Fate::Live });
        self.tell(object, "restoring", None);
        effects.push(Effect::Restore { attempt, object, place, offset, slot });
    }

    pub(super) fn on_restored(
        &mut self,
        attempt: u64,
        result: Result<u32, String>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(Move { object, kind, fate }) = self.moves.remove(&attempt) else { return };
        let MoveKind::Restore { place, offset, slot } = kind else {
            panic!("attempt {attempt} is {kind:?}, not to restore");
        };
        match (fate, result) {
            (Fate::Live, Ok(generation)) => {
                self.restores += 1;
                let location = Location { slot, generation, offset, len: place.len };
                let state = self.stored(object, location);
                self.records.get_mut(&object).expect("it lives").state = state;
                self.tell(object, "restored", None);
                effects.push(Effect::Forget { place });
                self.answer(object, effects);
            }
            (Fate::Live, Err(reason)) => {
                self.memory.vacate(self.now, offset);
                let record = self.records.get_mut(&object).expect("it lives");
                record.state = State::Spilled { place, queued: false };
                self.tell(object, "could not be restored", None);
                let text = format!("{object} was spilled and cannot be read back: {reason}");
                self.refuse(object, Failure::new(FailureKind::ObjectLost, text), effects);
            }
            (Fate::Doomed | Fate::Vanished, Ok(generation)) => {
                effects.push(Effect::Forget { place });
                let location = Location { slot, generation, offset, len: place.len };
                self.free(object, location, effects);
            }
            (Fate::Doomed | Fate::Vanished, Err(_)) => {
                effects.push(Effect::Forget { place });
                self.memory.vacate(self.now, offset);
            }
        }
        self.progress();
    }

    /// Those who wait get a failure; the object stays what it is, for another try.
    pub(super) fn refuse(&mut self, object: ObjectId, failure: Failure, effects: &mut Vec<Effect>) {
        let record = self.records.get_mut(&object).expect("the caller has seen the record");
        for to in std::mem::take(&mut record.waiting) {
            self.note(object, to);
            let value = Value::Failed(failure.clone());
            let message = ToClient::Ready { object, value, contains: Vec::new() };
            effects.push(Effect::Send { to, message });
        }
        self.touch(object);
    }

    pub(super) fn spilled_place(&self, object: ObjectId) -> Option<SpillPlace> {
        match self.records.get(&object)?.state {
            State::Spilled { place, queued: true } => Some(place),
            State::Spilled { queued: false, .. }
            | State::Unknown { .. }
            | State::Handle
            | State::Pending { .. }
            | State::Orphaned { .. }
            | State::Inline(_)
            | State::Failed(_)
            | State::Stored { .. }
            | State::Spilling { .. }
            | State::Restoring { .. } => None,
        }
    }
}
