//! Objects in the spill file: made readable there, closed again, written there at once.
//!
//! **What is in the file is read in the file**, through a mapping, and does not come back to the arena:
//! - A reader never waits for memory, and no two of them can wait for each other's: a task that has one of its
//!   arguments always gets the next. So `get` is never told that the store is full.
//! - An object is written to disk once in its life, and its place is its own until it goes.
//! - What the readers of all processes hold at a time may be more than the store; the system keeps what
//!   is used in memory, as far as there is some, in its page cache.
//!
//! The price: what was spilled and is used again does not count against the store's bytes, and a disk that cannot
//! read what it could read when the object was restored is a bus error for who reads it.
//!
//! What is put and finds no room in the arena, because all that lies there is being read or because
//! it is larger than the store, goes to the file at once: its writer is given **room** there, disk space
//! that is taken already, and seals the object in it.

use hoplo_base::{ObjectId, ProcessId, Size};
use hoplo_wire::node::ToClient;
use hoplo_wire::{FailureKind, Location, Reason};

use super::ObjectDirectory;
use super::event::{Effect, Refusal, SpillPlace};
use super::on_move::{Fate, Move, MoveKind};
use super::record::State;

/// Disk space that is being taken for a process.
#[derive(Debug)]
pub(super) struct Reserve {
    pub(super) process: ProcessId,
    request: u64,
    pub(super) place: SpillPlace,
    slot: u32,
    /// Why the process does not get memory.
    why: String,
}

impl ObjectDirectory {
    /// There is a slot: it can be read where it is.
    pub(super) fn restore(&mut self, object: ObjectId, slot: u32, effects: &mut Vec<Effect>) {
        let State::Spilled { place, .. } = self.records[&object].state else {
            panic!("OBJ-9: {object} is {}, not spilled", self.records[&object].state.name());
        };
        let ticket = self.begin(object, MoveKind::Restore { place, slot });
        let state = State::Restoring { place, ticket };
        self.records.get_mut(&object).expect("it was just there").state = state;
        self.note(object, "restoring", None);
        effects.push(Effect::Restore { ticket, object, place, slot });
    }

    pub(super) fn on_restored(
        &mut self,
        ticket: u64,
        result: Result<u32, String>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(Move { object, kind, fate }) = self.moves.remove(&ticket) else { return };
        let MoveKind::Restore { place, slot } = kind else {
            panic!("ticket {ticket} is {kind:?}, not to restore");
        };
        let location = |generation| Location {
            slot,
            generation,
            offset: self.memory.file_starts() + place.offset,
            len: place.len,
        };
        match (fate, result) {
            (Fate::Live, Ok(generation)) => {
                self.restores += 1;
                let state = self.map(object, place, location(generation));
                self.records.get_mut(&object).expect("it lives").state = state;
                self.note(object, "restored", None);
                self.answer(object, effects);
            }
            (Fate::Live, Err(reason)) => {
                self.memory.return_slot(slot);
                let record = self.records.get_mut(&object).expect("it lives");
                record.state = State::Spilled { place, queued: false };
                self.note(object, "could not be restored", None);
                let text = format!("{object} was spilled and cannot be read back: {reason}");
                let refusal = Refusal { kind: FailureKind::ObjectLost, reason: text.into() };
                self.refuse(object, &refusal, effects);
            }
            (Fate::Doomed | Fate::Vanished, Ok(generation)) => {
                self.free(object, location(generation), Some(place), effects);
            }
            (Fate::Doomed | Fate::Vanished, Err(_)) => {
                self.memory.return_slot(slot);
                self.forget(place, effects);
            }
        }
        self.progress();
    }

    /// Readable in the spill file, and the last one used.
    pub(super) fn map(&mut self, object: ObjectId, place: SpillPlace, location: Location) -> State {
        self.uses += 1;
        self.mapped.insert(self.uses, object);
        State::Mapped { place, location, used: self.uses, rests_until: self.now }
    }

    /// Slots are short: those in the spill file that were not used for longest give theirs back.
    /// Whether one is about to.
    pub(super) fn close_unused(&mut self, effects: &mut Vec<Effect>) -> bool {
        let is_close = |moving: &Move| matches!(moving.kind, MoveKind::Close { .. });
        if self.moves.values().any(is_close) {
            return true;
        }
        let rests = |object: &&ObjectId| self.rests_until(**object).is_some();
        let Some(object) = self.mapped.values().find(|object| !rests(object)).copied() else {
            return false;
        };
        let record = self.records.get_mut(&object).expect("OBJ-8: what is used has a record");
        let State::Mapped { place, location, used, .. } = record.state else {
            panic!("OBJ-8: {object} is {}, not mapped", record.state.name());
        };
        self.mapped.remove(&used);
        let ticket = self.begin(object, MoveKind::Close { location, place });
        let state = State::Closing { place, ticket };
        self.records.get_mut(&object).expect("it was just there").state = state;
        self.note(object, "closing", None);
        effects.push(Effect::Free { ticket, object, location });
        true
    }

    /// Unless it is `free`, it is pinned.
    pub(super) fn on_closed(&mut self, ticket: u64, free: bool, effects: &mut Vec<Effect>) {
        let Move { object, kind, fate } =
            self.moves.remove(&ticket).expect("the caller has seen it");
        let MoveKind::Close { location, place } = kind else {
            panic!("ticket {ticket} is {kind:?}, not to close");
        };
        match (fate, free) {
            (Fate::Live, true) => {
                self.memory.return_slot(location.slot);
                let state = State::Spilled { place, queued: false };
                self.records.get_mut(&object).expect("it lives").state = state;
                self.note(object, "closed", None);
                self.restore_if_wanted(object, effects);
            }
            (Fate::Live, false) => {
                let State::Mapped { place, location, used, .. } = self.map(object, place, location)
                else {
                    unreachable!("map() makes that state");
                };
                let rests_until = self.now + self.config.pinned_retry;
                let state = State::Mapped { place, location, used, rests_until };
                self.records.get_mut(&object).expect("it lives").state = state;
                self.note(object, "kept", None);
                self.answer(object, effects);
            }
            (Fate::Doomed | Fate::Vanished, true) => {
                self.memory.return_slot(location.slot);
                self.forget(place, effects);
            }
            (Fate::Doomed | Fate::Vanished, false) => {
                self.free(object, location, Some(place), effects);
            }
        }
        self.progress();
    }

    /// The bytes in the spill file are not needed any more.
    pub(super) fn forget(&mut self, place: SpillPlace, effects: &mut Vec<Effect>) {
        let (range, end) = self.disk.release(place);
        effects.push(Effect::Forget { range, end });
    }

    /// Disk space for what does not fit into memory.
    pub(super) fn reserve(
        &mut self,
        process: ProcessId,
        request: u64,
        bytes: u64,
        why: String,
        effects: &mut Vec<Effect>,
    ) {
        let Some(place) = self.disk.take(bytes) else {
            return self.deny_disk(process, request, bytes, &why, "its file is too long", effects);
        };
        let slot = self.memory.grant_slots(process, 1);
        let slot = *slot.first().expect("the caller has seen one");
        let ticket = self.next_ticket();
        self.reserves.insert(ticket, Reserve { process, request, place, slot, why });
        effects.push(Effect::Reserve { ticket, place });
    }

    pub(super) fn on_reserved(
        &mut self,
        ticket: u64,
        result: Result<(), String>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(reserve) = self.reserves.remove(&ticket) else { return };
        let Reserve { process, request, place, slot, why } = reserve;
        if !self.processes.contains_key(&process) {
            return self.forget(place, effects);
        }
        match result {
            Ok(()) => {
                self.memory.grant_room(process, place);
                self.was_granted(place.len);
                let offset = self.memory.file_starts() + place.offset;
                let message = ToClient::FileGranted { request, offset, len: place.len, slot };
                effects.push(Effect::Send { to: process, message });
            }
            Err(reason) => {
                self.memory.revoke_slot(process, slot);
                self.forget(place, effects);
                self.deny_disk(process, request, place.len, &why, &reason, effects);
            }
        }
    }

    fn deny_disk(
        &mut self,
        process: ProcessId,
        request: u64,
        bytes: u64,
        why: &str,
        reason: &str,
        effects: &mut Vec<Effect>,
    ) {
        self.was_denied(bytes);
        let wanted = Size(bytes);
        // What could not be spilled was not taken for the same reason, mostly.
        let refused = match why.contains(reason) {
            true => "does not take them either".to_string(),
            false => format!("does not take them ({reason})"),
        };
        let text = format!("{wanted} are wanted, {why}, and the disk {refused}; ");
        let reason = Reason::from(text)
            .and(self.who_holds())
            .and(": free disk space, drop refs, or raise object_store_memory");
        let refusal = Refusal { kind: FailureKind::OutOfDisk, reason };
        effects.push(Effect::Deny { to: process, request, refusal });
    }
}
