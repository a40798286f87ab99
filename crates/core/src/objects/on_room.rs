//! Who needs room, and where it comes from.
//!
//! Requests (for extents, for the slots of restores) are served in order. The first one that does not
//! fit presses: idle memory is recalled from processes (see `on_recall`); when they have answered, the least
//! recently used objects are spilled, as many as are missing; before them, those that were fetched from other nodes go, and nothing is written. Where that cannot be enough, because the others
//! are being read, because the request is larger than the store, or because the disk took no object, the request
//! gets **room in the spill file** instead (see `on_file`). So it is denied only when the disk is full, or when all slots have been in use for
//! `room_patience`.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::limits::{ROOM_REQUEST_BYTES_MAX, ROOM_REQUESTS_MAX, SPILLS_MAX};
use hoplo_base::{Instant, ObjectId, ProcessId, Size};
use hoplo_wire::node::ToClient;
use hoplo_wire::{FailureKind, Reason};

use super::ObjectDirectory;
use super::estate::Estate;
use super::event::{Effect, Refusal};
use super::on_move::MoveKind;
use super::record::State;

#[derive(Debug)]
pub(super) struct Request {
    pub(super) asker: Asker,
    /// At least so many.
    pub(super) bytes: u64,
    /// Since when it has been the first in the queue and did not fit (or since it came).
    pub(super) since: Instant,
    /// Idle memory was recalled for it.
    recalled: bool,
}

#[derive(Debug)]
pub(super) enum Asker {
    Extent { process: ProcessId, request: u64, slots: u32 },
    Restore { object: ObjectId },
}

/// What comes of a request that does not fit.
enum Pressed {
    /// Until then, or until something happens.
    Wait(Option<Instant>),
    Deny(Refusal),
    /// It is to have room in the spill file; why not in memory.
    ToFile(String),
}

impl Request {
    pub(super) fn new(asker: Asker, bytes: u64, since: Instant) -> Self {
        Self { asker, bytes, since, recalled: false }
    }

    pub(super) fn is_from(&self, who: ProcessId) -> bool {
        match &self.asker {
            Asker::Extent { process, .. } => *process == who,
            Asker::Restore { .. } => false,
        }
    }
}

impl ObjectDirectory {
    pub(super) fn on_extent_wanted(
        &mut self,
        process: ProcessId,
        request: u64,
        bytes: u64,
        slots: u32,
        effects: &mut Vec<Effect>,
    ) {
        let waiting = self.requests.iter().filter(|request| request.is_from(process)).count();
        if waiting >= ROOM_REQUESTS_MAX {
            let what = format!("has {waiting} requests for extents waiting and sends more");
            return self.violation(process, what, effects);
        }
        if bytes > self.config.capacity_bytes.max(ROOM_REQUEST_BYTES_MAX) {
            let reason = format!(
                "{} are wanted at once, the whole object store has {}, and no file may be so large: make the object \
                 smaller or raise object_store_memory",
                Size(bytes),
                Size(self.config.capacity_bytes)
            );
            let refusal = Refusal { kind: FailureKind::StoreFull, reason: reason.into() };
            return effects.push(Effect::Deny { to: process, request, refusal });
        }
        let asker = Asker::Extent { process, request, slots };
        self.requests.push_back(Request::new(asker, bytes, self.now));
    }

    pub(super) fn on_extent_returned(
        &mut self,
        from: ProcessId,
        offset: u64,
        len: u64,
        effects: &mut Vec<Effect>,
    ) {
        if offset >= self.memory.file_starts() {
            return match self.memory.return_room(from, offset, len) {
                Ok(place) => self.forget(place, effects),
                Err(what) => self.violation(from, format!("returned room: {what}"), effects),
            };
        }
        match self.memory.return_extent(self.now, from, offset, len) {
            Ok(()) => {
                self.came_back(from, len);
                self.progress();
            }
            Err(what) => self.violation(from, format!("returned an extent: {what}"), effects),
        }
    }

    /// Something came free: patience starts anew.
    pub(super) fn progress(&mut self) {
        self.progress_at = self.now;
    }

    /// Serves requests in order as far as there is room, and presses for more.
    pub(super) fn serve_requests(&mut self, effects: &mut Vec<Effect>) {
        self.room_wake = None;
        while let Some(request) = self.requests.front() {
            if self.is_moot(request) || self.grant(effects) {
                self.requests.pop_front();
                self.progress();
                continue;
            }
            match self.press(effects) {
                Pressed::Wait(until) => {
                    self.room_wake = until;
                    break;
                }
                Pressed::Deny(refusal) => self.deny(refusal, effects),
                Pressed::ToFile(why) => self.send_to_file(why, effects),
            }
        }
        if self.requests.is_empty() {
            self.spill_failure = None;
        }
        for range in self.memory.cool(self.now, self.config.warm_idle) {
            effects.push(Effect::Punch { offset: range.start, len: range.end - range.start });
        }
    }

    /// A restore that nobody waits for any more (or that was served by another request).
    fn is_moot(&self, request: &Request) -> bool {
        match &request.asker {
            Asker::Extent { .. } => false,
            Asker::Restore { object } => !self.is_queued(*object),
        }
    }

    /// Whether the first request was served.
    fn grant(&mut self, effects: &mut Vec<Effect>) -> bool {
        let Request { ref asker, bytes, .. } = *self.requests.front().expect("the caller looked");
        match *asker {
            Asker::Extent { process, request, slots } => {
                if slots > 0 && !self.memory.has_slots() {
                    return false;
                }
                let range = match bytes {
                    0 => Some(0..0),
                    bytes => self.memory.grant(self.now, process, bytes),
                };
                let Some(range) = range else { return false };
                let slots = self.memory.grant_slots(process, slots);
                let (offset, len) = (range.start, range.end - range.start);
                let message = ToClient::ExtentGranted { request, offset, len, slots };
                effects.push(Effect::Send { to: process, message });
                self.was_granted(bytes);
                true
            }
            Asker::Restore { object } => match self.memory.lend_slot() {
                Some(slot) => {
                    self.restore(object, slot, effects);
                    true
                }
                None => false,
            },
        }
    }

    fn press(&mut self, effects: &mut Vec<Effect>) -> Pressed {
        let needs_slot = match &self.requests.front().expect("the caller looked").asker {
            Asker::Extent { slots, .. } => *slots > 0,
            Asker::Restore { .. } => true,
        };
        if needs_slot && !self.memory.has_slots() {
            return self.press_for_slot(effects);
        }
        let free_bytes = self.memory.free_bytes();
        let request = self.requests.front().expect("the caller looked");
        if request.bytes > self.config.capacity_bytes {
            let capacity = Size(self.config.capacity_bytes);
            return self.turn_to_file(format!("the whole object store has {capacity}"), effects);
        }
        let missing = request.bytes.saturating_sub(free_bytes).max(1);
        // What others were asked for before may do; and who still owes that cannot be asked for more.
        let mut awaited = self.recalls_end();
        if awaited.is_none() && !request.recalled {
            let request = self.requests.front_mut().expect("it is there");
            (request.since, request.recalled) = (self.now, true);
            self.recall_idle(missing, effects);
            awaited = self.recalls_end();
        }
        if awaited.is_some() {
            return Pressed::Wait(awaited);
        }
        if let Some(reason) = self.spill_failure.take() {
            return self.turn_to_file(
                format!("the object store is full, and an object could not be spilled ({reason})"),
                effects,
            );
        }
        if self.spill_lru(missing, effects) {
            return Pressed::Wait(None);
        }
        self.turn_to_file(format!("the object store {}", self.free_text()), effects)
    }

    /// Why what is free does not do for the first request.
    fn free_text(&self) -> String {
        let wanted = self.requests.front().expect("the caller looked").bytes;
        let (free, capacity) = (self.memory.free_bytes(), self.config.capacity_bytes);
        let (longest, pieces) = self.memory.free_pieces();
        let mut text = format!("has {} of {} free", Size(free), Size(capacity));
        if wanted > free {
            // Rounded, both may look alike.
            text += &format!(", {} less than is wanted", Size(wanted - free));
        } else {
            text += &format!(" in {pieces} pieces, the largest of {}", Size(longest));
        }
        let read: Vec<u64> = (self.lru.values())
            .filter(|object| self.rests_until(**object).is_some())
            .map(|object| self.records[object].state.len())
            .collect();
        if !read.is_empty() {
            let bytes = Size(read.iter().sum());
            text += &format!("; {} objects ({bytes}) stay, since they are being read", read.len());
        }
        text
    }

    /// Room in the spill file needs a slot that is known to be there.
    fn turn_to_file(&mut self, why: String, effects: &mut Vec<Effect>) -> Pressed {
        if self.memory.has_slots() { Pressed::ToFile(why) } else { self.press_for_slot(effects) }
    }

    fn press_for_slot(&mut self, effects: &mut Vec<Effect>) -> Pressed {
        if self.close_unused(effects) {
            return Pressed::Wait(None);
        }
        let rests = self.mapped.values().filter_map(|object| self.rests_until(*object)).min();
        match rests {
            Some(until) if self.now < self.patience_ends() => Pressed::Wait(Some(until)),
            Some(_) | None => {
                let text = format!(
                    "all {} object slots of the node are in use: drop refs of large objects",
                    self.config.slots
                );
                Pressed::Deny(Refusal { kind: FailureKind::StoreFull, reason: text.into() })
            }
        }
    }

    fn patience_ends(&self) -> Instant {
        let since = self.requests.front().expect("it is there").since;
        since.max(self.progress_at) + self.config.room_patience
    }

    fn send_to_file(&mut self, why: String, effects: &mut Vec<Effect>) {
        let Request { asker, bytes, .. } = self.requests.pop_front().expect("the caller looked");
        let Asker::Extent { process, request, .. } = asker else {
            panic!("{asker:?} needs no memory");
        };
        self.reserve(process, request, bytes, why, effects);
    }

    /// Starts evictions and spills for what is missing. False if that would not be enough, or would change nothing:
    /// then nothing is spilled.
    fn spill_lru(&mut self, missing: u64, effects: &mut Vec<Effect>) -> bool {
        let waits: BTreeSet<u64> = self.pinned.iter().map(|(_, ticket)| *ticket).collect();
        let mut coming_bytes = 0;
        let mut spills = 0;
        for (ticket, moving) in &self.moves {
            match &moving.kind {
                MoveKind::Evict { location } => coming_bytes += location.len,
                MoveKind::Spill { location, .. } => {
                    coming_bytes += location.len;
                    spills += 1;
                }
                MoveKind::Free { location, place: None, .. } if !waits.contains(ticket) => {
                    coming_bytes += location.len;
                }
                MoveKind::Free { .. } | MoveKind::Restore { .. } | MoveKind::Close { .. } => {}
            }
        }
        let mut candidates = Vec::new();
        let mut enough_bytes = coming_bytes;
        // What others have goes first, and is not written.
        let is_secondary = |object: &ObjectId| self.records[object].secondary;
        let secondary = self.lru.values().copied().filter(is_secondary);
        let primary = self.lru.values().copied().filter(|object| !is_secondary(object));
        for object in secondary.chain(primary) {
            if enough_bytes >= missing {
                break;
            }
            if self.rests_until(object).is_none() {
                enough_bytes += self.records[&object].state.len();
                candidates.push(object);
            }
        }
        if enough_bytes < missing {
            return false;
        }
        for object in candidates {
            if self.records[&object].secondary {
                self.evict(object, effects);
                continue;
            }
            if spills >= SPILLS_MAX || !self.spill(object, effects) {
                break;
            }
            spills += 1;
        }
        true
    }

    /// For an object in the order of use that was pinned a moment ago.
    pub(super) fn rests_until(&self, object: ObjectId) -> Option<Instant> {
        let state = &self.records.get(&object).expect("OBJ-8: what is used has a record").state;
        let (State::Stored { rests_until, .. } | State::Mapped { rests_until, .. }) = state else {
            panic!("OBJ-8: {object} is {}, neither stored nor mapped", state.name());
        };
        (*rests_until > self.now).then_some(*rests_until)
    }

    fn deny(&mut self, refusal: Refusal, effects: &mut Vec<Effect>) {
        let Request { asker, .. } = self.requests.pop_front().expect("the caller looked");
        match asker {
            Asker::Extent { process, request, .. } => {
                effects.push(Effect::Deny { to: process, request, refusal });
            }
            Asker::Restore { object } => {
                let record = self.records.get_mut(&object).expect("it is not moot");
                if let State::Spilled { queued, .. } = &mut record.state {
                    *queued = false;
                }
                let reason = Reason::from(format!("{object} cannot be read back from disk now: "));
                let reason = reason.and(refusal.reason);
                self.refuse(object, &Refusal { kind: refusal.kind, reason }, effects);
            }
        }
    }

    /// Who holds most bytes of the arena, and who keeps idle memory.
    pub(super) fn who_holds(&self) -> Reason {
        let mut holders: BTreeMap<ProcessId, (u64, u64)> = BTreeMap::new();
        let mut others = (0, 0);
        for record in self.records.values() {
            if let State::Stored { location, .. } = &record.state {
                if record.holders().next().is_none() {
                    others = (others.0 + 1, others.1 + location.len);
                }
                for process in record.holders() {
                    let (objects, bytes) = holders.entry(process).or_default();
                    *objects += 1;
                    *bytes += location.len;
                }
            }
        }
        let mut holders: Vec<_> = holders.into_iter().collect();
        holders.sort_by_key(|(process, (_, bytes))| (std::cmp::Reverse(*bytes), *process));
        let mut told: Vec<Reason> = (holders.iter().take(3))
            .map(|(process, (objects, bytes))| {
                let bytes = Size(*bytes);
                Reason::from(*process).and(format!(" holds {objects} objects ({bytes})"))
            })
            .collect();
        if let (objects @ 1.., bytes) = others {
            let bytes = Size(bytes);
            let text = format!("{objects} objects ({bytes}) are held by other nodes or objects");
            told.push(text.into());
        }
        let pinned = self.pinned.iter().filter_map(|(_, ticket)| match self.moves[ticket].kind {
            MoveKind::Free { location, place: None, .. } => Some(location.len),
            _ => None,
        });
        let (objects, bytes) = pinned.fold((0, 0), |(objects, all), len| (objects + 1, all + len));
        if objects > 0 {
            let bytes = Size(bytes);
            let text = format!(
                "{objects} objects without a ref ({bytes}) are in arrays of programs that have left"
            );
            told.push(text.into());
        }
        let idle = |(_, estate): &(ProcessId, &Estate)| estate.idle_bytes();
        if let Some(most) = self.memory.estates().max_by_key(idle).filter(|it| idle(it) > 0) {
            let keeps = format!(" keeps {} to write in", Size(idle(&most)));
            told.push(Reason::from(most.0).and(keeps));
        }
        if told.is_empty() { "nobody holds objects".into() } else { Reason::joined(told, ", ") }
    }
}
