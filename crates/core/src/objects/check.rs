//! Every invariant of the directory, recomputed.

use std::collections::{BTreeMap, BTreeSet};

use hoplo_base::{ObjectId, ProcessId};
use hoplo_wire::Location;

use super::ObjectDirectory;
use super::event::Need;
use super::on_move::{Fate, MoveKind};
use super::on_room::Asker;
use super::record::{Record, State};
use super::references::is_handle;
use super::replies::Given;

impl ObjectDirectory {
    /// Panics with the invariant that does not hold, and the story of the object.
    pub fn check(&self) {
        self.memory.check();
        self.disk.check();
        self.check_disk();
        self.check_references();
        self.check_places();
        assert!(self.first_uses.is_empty());
        assert!(self.losses.are_told(), "OBJ-17");
        let joined = |owner: &ProcessId| self.processes.contains_key(owner);
        assert!(self.losses.owners().all(joined), "OBJ-17: an owner is gone");
        let busy = !self.candidates.is_empty() || !self.undecided.is_empty();
        let under_way = self.sweeps.asked - self.sweeps.done;
        assert!(under_way <= 1 && (under_way == 1 || !busy), "OBJ-10: {:?}", self.sweeps);
        for ((worker, caller), given) in &self.replies {
            let fits = match given {
                Given::Near { .. } => self.processes.contains_key(caller),
                Given::Far(_) => caller.node() != self.node,
            };
            assert!(fits, "OBJ-11: {worker} gave {caller}");
        }
        for (process, recall) in &self.recalls {
            let joined = self.processes.contains_key(process);
            assert!(joined && recall.is_sound(), "OBJ-12: {process}: {recall:?}");
        }
        for request in &self.requests {
            match request.asker {
                Asker::Extent { process, .. } => {
                    assert!(self.processes.contains_key(&process), "OBJ-9: {request:?}");
                }
                Asker::Restore { .. } => {}
            }
        }
    }

    fn check_references(&self) {
        let mut containers: BTreeMap<ObjectId, u64> = BTreeMap::new();
        for inner in self.records.values().flat_map(|record| &record.contains) {
            *containers.entry(*inner).or_default() += 1;
        }
        for inner in containers.keys() {
            assert!(self.records.contains_key(inner), "OBJ-4: {inner} has no record");
        }
        for (object, record) in &self.records {
            let story = || self.story(*object).join("\n");
            let candidate = self.candidates.contains(object);
            assert!(record.is_candidate() == candidate, "OBJ-2: {object}\n{}", story());
            self.check_far(*object, record);
            self.check_copies(*object, record);
            let concerned = record.tokens.keys().chain(record.waiting.keys()).copied();
            for process in concerned.chain(record.state.owner()) {
                let known = self.processes.get(&process).is_some_and(|it| it.contains(object));
                assert!(known, "OBJ-3: {object} and {process}\n{}", story());
            }
            assert!(record.tokens.values().all(|count| *count != 0), "OBJ-3: {object}");
            let counted = containers.get(object).copied().unwrap_or(0);
            assert!(record.containers == counted, "OBJ-4: {object}: {counted}\n{}", story());
            let readable = record.state.value().is_some();
            assert!(!readable || record.waiting.is_empty(), "OBJ-5: {object}\n{}", story());
            let told =
                !record.state.is_stored() || !record.waiting.values().any(|it| *it == Need::Word);
            assert!(told, "OBJ-5: {object}\n{}", story());
            let valueless = matches!(
                record.state,
                State::Pending { .. } | State::Orphaned { .. } | State::Foreign { .. }
            );
            assert!(!record.remade || valueless, "OBJ-18: {object}\n{}", story());
            let handle = matches!(record.state, State::Handle);
            assert!(handle == is_handle(*object), "OBJ-6: {object}");
            let undecided = match &record.state {
                _ if record.unannounced => None,
                State::Unknown { since } => Some(since),
                State::Orphaned { since, .. } => Some(since).filter(|it| self.sweeps.done <= **it),
                State::Handle
                | State::Foreign { .. }
                | State::Elsewhere { .. }
                | State::Pending { .. }
                | State::Inline(_)
                | State::Failed(_)
                | State::Stored { .. }
                | State::Spilling { .. }
                | State::Spilled { .. }
                | State::Restoring { .. }
                | State::Mapped { .. }
                | State::Closing { .. } => None,
            };
            assert!(undecided.is_some() == self.undecided.contains(object), "OBJ-10: {object}");
            assert!(undecided.is_none_or(|since| self.sweeps.done <= *since), "OBJ-10: {object}");
            assert!(record.touched <= self.sweeps.asked);
        }
        let missing = |object: &&ObjectId| !self.records.contains_key(object);
        assert!(self.candidates.iter().find(missing).is_none(), "OBJ-2");
        assert!(self.undecided.iter().find(missing).is_none(), "OBJ-10");
        assert!(self.keepers.short.iter().find(missing).is_none(), "COPY-1");
        for (process, known) in &self.processes {
            for object in known {
                let concerns = self.records.get(object).is_some_and(|it| it.concerns(*process));
                assert!(concerns, "OBJ-3: {object} does not concern {process}");
            }
        }
    }

    fn check_far(&self, object: ObjectId, record: &Record) {
        let story = || self.story(object).join("\n");
        let at_home = self.is_at_home(object);
        if at_home {
            assert!(!record.claimed && record.kept.is_none(), "OBJ-13: {object}\n{}", story());
        } else {
            let claimed = record.claimed || !record.is_supported();
            assert!(claimed, "OBJ-13: {object} is used and not claimed\n{}", story());
            assert!(record.far_waiting().next().is_none(), "OBJ-14: {object}\n{}", story());
        }
        assert!(!record.secondary || record.state.is_here(), "OBJ-15: {object}\n{}", story());
        let kept_here = record.kept.is_none() || record.state.is_here();
        let is_pending = matches!(record.state, State::Pending { .. });
        assert!(is_pending || record.lost_bytes == 0, "OBJ-17: {object}\n{}", story());
        assert!(kept_here, "OBJ-13: {object} is kept, and {}\n{}", record.state.name(), story());
        let has_copies = record.copies().next().is_some();
        let copies_fit = match &record.state {
            State::Foreign { .. } => !at_home && !has_copies,
            State::Elsewhere { pulling, .. } => {
                let fetched = *pulling || !record.is_to_read();
                fetched && (has_copies || *pulling || !at_home)
            }
            State::Stored { .. }
            | State::Spilling { .. }
            | State::Spilled { .. }
            | State::Restoring { .. }
            | State::Mapped { .. }
            | State::Closing { .. } => at_home || !has_copies,
            State::Unknown { .. } | State::Pending { .. } | State::Orphaned { .. } => {
                at_home && !has_copies
            }
            State::Handle | State::Inline(_) | State::Failed(_) => !has_copies,
        };
        assert!(copies_fit, "OBJ-14: {object} is {}\n{}", record.state.name(), story());
        let ours = record.copies().chain(record.far_waiting()).any(|node| node == self.node);
        assert!(!ours, "OBJ-14: {object}");
        let leaving = record.copies().any(|node| self.draining.contains(&node));
        let needed = !at_home || !self.outlives_drains(record) || record.awaits_copies();
        assert!(!leaving || needed, "OBJ-16: {object}\n{}", story());
        let told =
            |node| !self.speeds.is_waiting(object, node) && self.far_value(object, node).is_some();
        assert!(!record.far_waiting().any(told), "OBJ-5: {object}\n{}", story());
        let Some(abroad) = &record.abroad else { return };
        assert!(!abroad.is_empty(), "OBJ-14: {object}");
        let stored = at_home && record.state.is_stored();
        assert!(stored || abroad.fetching.is_empty(), "OBJ-14: {object}\n{}", story());
        for (node, fetching) in &abroad.fetching {
            let ours = *node == self.node && !record.state.is_pulling();
            assert!(
                !ours && !record.copies().any(|copy| copy == *node),
                "OBJ-14: {object}\n{}",
                story()
            );
            assert!(fetching.turn <= self.turns && fetching.from != *node, "OBJ-14: {object}");
        }
    }

    fn check_places(&self) {
        let mut places: BTreeSet<(u64, ObjectId, u64, u32)> = BTreeSet::new();
        let mut used: BTreeMap<u64, ObjectId> = BTreeMap::new();
        let mut mapped: BTreeMap<u64, ObjectId> = BTreeMap::new();
        for (object, record) in &self.records {
            match &record.state {
                State::Stored { location, used: at, .. } => {
                    places.insert((location.offset, *object, location.len, location.slot));
                    used.insert(*at, *object);
                }
                State::Mapped { used: at, .. } => {
                    mapped.insert(*at, *object);
                }
                State::Spilling { ticket, .. }
                | State::Restoring { ticket, .. }
                | State::Closing { ticket, .. } => {
                    let moving = self.moves.get(ticket);
                    let ours =
                        moving.is_some_and(|it| it.object == *object && it.fate == Fate::Live);
                    assert!(ours, "OBJ-7: {object} has no move {ticket}");
                }
                State::Spilled { queued, .. } => {
                    let queue = || self.requests.iter().map(|request| &request.asker);
                    let asks = |asker: &Asker| match asker {
                        Asker::Extent { .. } => false,
                        Asker::Restore { object: asked } => asked == object,
                    };
                    assert!(!queued || queue().any(asks), "OBJ-9: {object}");
                }
                State::Unknown { .. }
                | State::Handle
                | State::Foreign { .. }
                | State::Elsewhere { .. }
                | State::Pending { .. }
                | State::Orphaned { .. }
                | State::Inline(_)
                | State::Failed(_) => {}
            }
        }
        assert!(used == self.lru && mapped == self.mapped, "OBJ-8");
        for moving in self.moves.values() {
            let location = match moving.kind {
                MoveKind::Free { location, place: None, .. }
                | MoveKind::Spill { location, .. }
                | MoveKind::Evict { location } => location,
                MoveKind::Free { place: Some(_), .. }
                | MoveKind::Restore { .. }
                | MoveKind::Close { .. } => continue,
            };
            if moving.fate != Fate::Vanished {
                let Location { offset, len, slot, .. } = location;
                let new = places.insert((offset, moving.object, len, slot));
                assert!(new, "OBJ-7: {moving:?} is there twice");
            }
        }
        let tenants: BTreeSet<_> = (self.memory.tenants())
            .map(|(offset, tenant)| (offset, tenant.object, tenant.len, tenant.slot))
            .collect();
        assert!(places == tenants, "OBJ-7: {places:?} and tenants {tenants:?}");
    }

    fn check_disk(&self) {
        let mut places: Vec<u64> = self.reserves.values().map(|it| it.place.offset).collect();
        for record in self.records.values() {
            match &record.state {
                State::Spilled { place, .. } | State::Mapped { place, .. } => {
                    places.push(place.offset);
                }
                // Their moves have the place.
                State::Spilling { .. } | State::Restoring { .. } | State::Closing { .. } => {}
                State::Unknown { .. }
                | State::Handle
                | State::Foreign { .. }
                | State::Elsewhere { .. }
                | State::Pending { .. }
                | State::Orphaned { .. }
                | State::Inline(_)
                | State::Failed(_)
                | State::Stored { .. } => {}
            }
        }
        for moving in self.moves.values() {
            match &moving.kind {
                MoveKind::Free { place: None, .. } | MoveKind::Evict { .. } => {}
                MoveKind::Free { place: Some(place), .. }
                | MoveKind::Spill { place, .. }
                | MoveKind::Restore { place, .. }
                | MoveKind::Close { place, .. } => places.push(place.offset),
            }
        }
        places.extend(self.memory.estates().flat_map(|(_, estate)| estate.rooms.keys().copied()));
        places.sort_unstable();
        assert!(self.disk.taken().eq(places.iter().copied()), "OBJ-7: {places:?} {:?}", self.disk);
    }
}
