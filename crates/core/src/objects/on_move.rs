//! What the shell is doing with bytes: freeing, spilling, restoring, closing.
//!
//! A **move** outlives its record: when the record goes meanwhile, the outcome only gives the bytes'
//! places back.

use std::time::Duration;

use hoplo_base::ObjectId;
use hoplo_base::limits::PINNED_RETRY_MAX;
use hoplo_wire::Location;
use hoplo_wire::node::ToClient;

use super::ObjectDirectory;
use super::event::{Effect, FreeOutcome, SpillOutcome, SpillPlace};
use super::record::State;

#[derive(Debug)]
pub(super) struct Move {
    pub(super) object: ObjectId,
    pub(super) kind: MoveKind,
    pub(super) fate: Fate,
}

#[derive(Debug)]
pub(super) enum MoveKind {
    /// No record any more: its last reader may still be there. `place`: it lies in the spill file. `rest`: where it is pinned, it is tried
    /// again after this time.
    Free {
        location: Location,
        place: Option<SpillPlace>,
        rest: Duration,
    },
    Spill {
        location: Location,
        place: SpillPlace,
    },
    /// Others have its bytes.
    Evict {
        location: Location,
    },
    /// In the spill file, where it stays.
    Restore {
        place: SpillPlace,
        slot: u32,
    },
    /// An object in the spill file gives its slot back, and stays.
    Close {
        location: Location,
        place: SpillPlace,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// There is a record that waits for the outcome (or it is a `Free`).
    Live,
    /// The record went; nobody wants the bytes.
    Doomed,
    /// The writer freed the object itself: range and slot are no tenant any more.
    Vanished,
}

impl ObjectDirectory {
    pub(super) fn next_ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    pub(super) fn begin(&mut self, object: ObjectId, kind: MoveKind) -> u64 {
        let ticket = self.next_ticket();
        self.moves.insert(ticket, Move { object, kind, fate: Fate::Live });
        ticket
    }

    pub(super) fn doom(&mut self, ticket: u64, fate: Fate) {
        let moving = self.moves.get_mut(&ticket).expect("OBJ-7: a record that moves has a move");
        assert!(moving.fate == Fate::Live && fate != Fate::Live);
        moving.fate = fate;
    }

    /// Nobody can reach what lies there: take it away once nobody reads it.
    pub(super) fn free(
        &mut self,
        object: ObjectId,
        location: Location,
        place: Option<SpillPlace>,
        effects: &mut Vec<Effect>,
    ) {
        let is_there = |it: &super::memory::Tenant| it.object == object;
        assert!(place.is_some() || self.memory.tenant(location.offset).is_some_and(is_there));
        let rest = self.config.pinned_retry;
        let ticket = self.begin(object, MoveKind::Free { location, place, rest });
        effects.push(Effect::Free { ticket, object, location });
    }

    pub(super) fn on_freed(&mut self, ticket: u64, result: FreeOutcome, effects: &mut Vec<Effect>) {
        let Some(Move { object, kind, .. }) = self.moves.get(&ticket) else { return };
        let object = *object;
        match (kind, result) {
            (MoveKind::Free { location, place: None, .. }, FreeOutcome::Vanished)
                if self.memory.tenant(location.offset).is_some_and(|it| it.writer.is_some()) =>
            {
                // A driver that has left. It may write there, and into the slot, for as long as it has the store mapped (NODE-1).
                let offset = location.offset;
                self.moves.remove(&ticket);
                self.memory.vacated(offset);
                self.progress();
            }
            (
                MoveKind::Free { location, .. }
                | MoveKind::Evict { location }
                | MoveKind::Close { location, .. },
                FreeOutcome::Vanished,
            ) => {
                // Its writer is dead. Of what he wrote into the slot since then nobody has heard.
                effects.push(Effect::ResetSlots { slots: vec![location.slot] });
                self.on_freed(ticket, FreeOutcome::Done, effects);
            }
            (MoveKind::Free { location, place, .. }, FreeOutcome::Done) => {
                let (location, place) = (*location, *place);
                self.moves.remove(&ticket);
                match place {
                    None => self.vacate(object, location, effects),
                    Some(place) => {
                        self.memory.return_slot(location.slot);
                        self.forget(place, effects);
                        self.progress();
                    }
                }
            }
            (MoveKind::Free { rest, .. }, FreeOutcome::Pinned) => {
                self.pinned.insert((self.now + *rest, ticket));
            }
            (MoveKind::Close { .. }, result) => {
                self.on_closed(ticket, result == FreeOutcome::Done, effects);
            }
            (MoveKind::Evict { .. }, result) => {
                self.on_evicted(ticket, result == FreeOutcome::Done, effects);
            }
            (MoveKind::Spill { .. } | MoveKind::Restore { .. }, _) => {
                panic!("ticket {ticket} is {kind:?}, not to free");
            }
        }
    }

    /// What was pinned may be free now.
    pub(super) fn pins_went(&mut self, effects: &mut Vec<Effect>) {
        let waiting = std::mem::take(&mut self.pinned).into_iter();
        self.pinned = waiting.map(|(_, ticket)| (self.now, ticket)).collect();
        self.retry_pinned(effects);
    }

    /// What was pinned when it was to be freed is tried again: less and less often, as a program that left may keep it for long.
    pub(super) fn retry_pinned(&mut self, effects: &mut Vec<Effect>) {
        while let Some(&(at, ticket)) = self.pinned.first() {
            if at > self.now {
                return;
            }
            self.pinned.pop_first();
            let Move { object, kind, .. } = self.moves.remove(&ticket).expect("it waited here");
            let MoveKind::Free { location, place, rest } = kind else {
                panic!("{kind:?} does not wait here")
            };
            let rest = (2 * rest).min(PINNED_RETRY_MAX);
            let ticket = self.begin(object, MoveKind::Free { location, place, rest });
            effects.push(Effect::Free { ticket, object, location });
        }
    }

    /// The object goes to the spill file; false if that has no more addresses.
    pub(super) fn spill(&mut self, object: ObjectId, effects: &mut Vec<Effect>) -> bool {
        let record = &self.records[&object];
        let State::Stored { location, used, .. } = record.state else {
            panic!("OBJ-8: {object} is {}, not stored", record.state.name());
        };
        let Some(place) = self.disk.take(location.len) else { return false };
        let ticket = self.begin(object, MoveKind::Spill { location, place });
        let state = State::Spilling { location, ticket };
        self.records.get_mut(&object).expect("it was just there").state = state;
        self.lru.remove(&used);
        self.note(object, "spilling", None);
        effects.push(Effect::Spill { ticket, object, location, place });
        true
    }

    /// The secondary copy goes away.
    pub(super) fn evict(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let record = &self.records[&object];
        let State::Stored { location, used, .. } = record.state else {
            panic!("OBJ-8: {object} is {}, not stored", record.state.name());
        };
        assert!(record.secondary, "OBJ-15: nobody else may have {object}");
        let ticket = self.begin(object, MoveKind::Evict { location });
        let state = State::Spilling { location, ticket };
        self.records.get_mut(&object).expect("it was just there").state = state;
        self.lru.remove(&used);
        self.note(object, "evicting", None);
        effects.push(Effect::Free { ticket, object, location });
    }

    /// Unless it is `free`, it is pinned.
    fn on_evicted(&mut self, ticket: u64, free: bool, effects: &mut Vec<Effect>) {
        let Move { object, kind, fate } = self.moves.remove(&ticket).expect("the caller looked");
        let MoveKind::Evict { location } = kind else {
            panic!("ticket {ticket} is {kind:?}, not to evict");
        };
        match (fate, free) {
            (Fate::Live, true) => {
                self.evictions += 1;
                self.note(object, "evicted", None);
                self.vacate(object, location, effects);
                self.forsake(object, location.len, effects);
            }
            (Fate::Live, false) => {
                self.keep(object, location, effects);
                self.leave_draining(object, effects);
            }
            (Fate::Doomed, true) => self.vacate(object, location, effects),
            (Fate::Doomed, false) => self.free(object, location, None, effects),
            (Fate::Vanished, _) => panic!("{object} was fetched: nobody frees it alone"),
        }
    }

    pub(super) fn on_spilled(
        &mut self,
        ticket: u64,
        result: SpillOutcome,
        effects: &mut Vec<Effect>,
    ) {
        let Some(Move { object, kind, fate }) = self.moves.remove(&ticket) else { return };
        let MoveKind::Spill { location, place } = kind else {
            panic!("ticket {ticket} is {kind:?}, not to spill");
        };
        match &result {
            SpillOutcome::Done if fate == Fate::Live => {}
            SpillOutcome::Done | SpillOutcome::Failed(_) => self.forget(place, effects),
            SpillOutcome::Pinned => {
                // Nothing was written there.
                self.disk.release(place);
            }
        }
        match (fate, result) {
            (Fate::Live, SpillOutcome::Done) => {
                self.spills += 1;
                let state = State::Spilled { place, queued: false };
                self.records.get_mut(&object).expect("it lives").state = state;
                self.note(object, "spilled", None);
                self.vacate(object, location, effects);
                self.restore_if_wanted(object, effects);
            }
            (Fate::Live, SpillOutcome::Pinned) => self.keep(object, location, effects),
            (Fate::Live, SpillOutcome::Failed(reason)) => {
                self.spill_failure = Some(reason);
                self.keep(object, location, effects);
            }
            (Fate::Doomed, SpillOutcome::Done) => self.vacate(object, location, effects),
            (Fate::Doomed, SpillOutcome::Pinned | SpillOutcome::Failed(_)) => {
                self.free(object, location, None, effects);
            }
            (Fate::Vanished, _) => {}
        }
    }

    /// It was not spilled: it stays where it is, and is left alone for a while.
    fn keep(&mut self, object: ObjectId, location: Location, effects: &mut Vec<Effect>) {
        let rests_until = self.now + self.config.pinned_retry;
        let State::Stored { location, used, .. } = self.stored(object, location) else {
            unreachable!("stored() makes that state");
        };
        let state = State::Stored { location, used, rests_until };
        self.records.get_mut(&object).expect("it lives").state = state;
        self.note(object, "kept", None);
        self.answer(object, effects);
    }

    /// The bytes are gone from the arena: range and slot go back to whom they belong.
    fn vacate(&mut self, object: ObjectId, location: Location, effects: &mut Vec<Effect>) {
        let (tenant, bytes) = self.memory.vacate(self.now, location.offset);
        assert!(tenant.object == object && tenant.slot == location.slot, "OBJ-7: {tenant:?}");
        self.progress();
        if let Some(to) = tenant.writer {
            let message = ToClient::Reclaimed { object, location };
            effects.push(Effect::Send { to, message });
            self.recall_what_came_free(to, bytes, effects);
        }
    }
}
