//! The node's shared memory: metadata segment and arena, and the daemon's moves in them.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use hoplo_core::node::Event;
use hoplo_core::objects::{FreeOutcome, SpillOutcome, SpillPlace};
use hoplo_net::poll::Bell;
use hoplo_shm::{
    Arena, CloseOutcome, Generation, MapError, ObjectState, PinRow, ProcessSlot, Segment,
};
use hoplo_wire::Location;

use crate::carrier::haul::Parts;
use crate::journal;
use crate::spill::{Done, Spill};

#[derive(Debug)]
pub(crate) struct Store {
    segment: Arc<Segment>,
    arena: Arc<Arena>,
    /// Segment, arena, spill file, and what rings the carrier, for `Welcome`.
    descriptors: Rc<[OwnedFd]>,
    spill: Spill,
    /// State words that are closed while the disk thread writes, by ticket.
    closed: BTreeMap<u64, Location>,
    /// Slots that are sealed once the disk thread has read, by ticket.
    filling: BTreeMap<u64, u32>,
}

/// Shared memory or spill files could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("cannot make the object store: {0}")]
    Map(#[from] MapError),
    #[error("cannot make the object store: {0}")]
    Io(#[from] io::Error),
}

impl Store {
    pub(crate) fn new(arena_bytes: u64, spill_file: PathBuf) -> Result<Self, StoreError> {
        let (segment, segment_fd) = Segment::create()?;
        let arena = Arena::create(arena_bytes)?;
        let arena_fd = arena.as_fd().try_clone_to_owned()?;
        let spill = Spill::new(spill_file, Arc::clone(&arena))?;
        let spill_fd = spill.file()?;
        Ok(Self {
            segment,
            arena,
            descriptors: vec![segment_fd, arena_fd, spill_fd].into(),
            spill,
            closed: BTreeMap::new(),
            filling: BTreeMap::new(),
        })
    }

    pub(crate) fn segment(&self) -> Arc<Segment> {
        Arc::clone(&self.segment)
    }

    /// For who moves bytes between nodes, and pins in the row of slot 0.
    pub(crate) fn haul_parts(&self, wake: Bell) -> io::Result<Parts> {
        let spill_file = self.spill.file()?;
        let (segment, arena) = (Arc::clone(&self.segment), Arc::clone(&self.arena));
        Ok(Parts { segment, arena, spill_file, wake })
    }

    /// Processes are told how they ring the carrier.
    pub(crate) fn rings_carrier(&mut self, bell: impl AsFd) -> io::Result<()> {
        let all = self.descriptors.iter().map(AsFd::as_fd).chain([bell.as_fd()]);
        let all: io::Result<Vec<OwnedFd>> = all.map(|fd| fd.try_clone_to_owned()).collect();
        self.descriptors = all?.into();
        Ok(())
    }

    pub(crate) fn descriptors(&self) -> Rc<[OwnedFd]> {
        Rc::clone(&self.descriptors)
    }

    /// Readable when `disk_done` has something.
    pub(crate) fn disk(&self) -> impl AsFd {
        self.spill.wake()
    }

    /// Close, check the pins, free. `live`: the slots of all processes that may read.
    pub(crate) fn free(&self, location: Location, live: &[u16]) -> FreeOutcome {
        match self.close(location, live) {
            CloseOutcome::Closed => {
                self.release(location);
                FreeOutcome::Done
            }
            CloseOutcome::Pinned => FreeOutcome::Pinned,
            CloseOutcome::Stale => FreeOutcome::Vanished,
        }
    }

    /// `None`: the disk thread is at it.
    pub(crate) fn spill(
        &mut self,
        ticket: u64,
        location: Location,
        place: SpillPlace,
        live: &[u16],
    ) -> Option<SpillOutcome> {
        match self.close(location, live) {
            CloseOutcome::Pinned | CloseOutcome::Stale => return Some(SpillOutcome::Pinned),
            CloseOutcome::Closed => {}
        }
        self.spill.write(ticket, place, location.offset);
        self.closed.insert(ticket, location);
        None
    }

    pub(crate) fn restore(&mut self, ticket: u64, place: SpillPlace, slot: u32) {
        self.filling.insert(ticket, slot);
        self.spill.look(ticket, place);
    }

    pub(crate) fn reserve(&mut self, ticket: u64, place: SpillPlace) {
        self.spill.reserve(ticket, place);
    }

    pub(crate) fn forget(&mut self, range: Range<u64>, end: u64) {
        self.spill.forget(range, end);
    }

    /// What the disk thread finished.
    pub(crate) fn disk_done(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for done in self.spill.take_done() {
            events.push(match done {
                Done::Wrote { ticket, result } => {
                    let location = self.closed.remove(&ticket).expect("it was being written");
                    let result = match result {
                        Ok(()) => {
                            self.release(location);
                            SpillOutcome::Done
                        }
                        Err(reason) => {
                            self.word(location, |word, generation| word.reopen(generation));
                            SpillOutcome::Failed(reason)
                        }
                    };
                    Event::Spilled { ticket, result }
                }
                Done::Looked { ticket, result } => {
                    let slot = self.filling.remove(&ticket).expect("it was being looked at");
                    let seal = |()| self.segment.object(slot).expect("a slot of ours").seal().0;
                    Event::Restored { ticket, result: result.map(seal) }
                }
                Done::Reserved { ticket, result } => Event::Reserved { ticket, result },
                Done::NotForgotten { reason } => {
                    journal::log(format_args!("disk space was not given back: {reason}"));
                    continue;
                }
            });
        }
        events
    }

    /// Words that a dead process left in whatever state.
    pub(crate) fn reset_slots(&self, slots: &[u32]) {
        for slot in slots {
            let word = self.segment.object(*slot).expect("the directory has slots of ours");
            let found = word.state();
            if found.state == ObjectState::Sealed {
                word.close(*slot, found.generation, std::iter::empty());
            }
            word.free(found.generation);
        }
    }

    pub(crate) fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.arena.punch(offset, len)
    }

    /// The process is dead, or has unmapped the store: nothing is pinned by it. A thread of it that still sleeps on
    /// the bell is woken before the bell goes to another process.
    pub(crate) fn wipe(&self, slot: u16) {
        let slot = ProcessSlot::new(u32::from(slot)).expect("slots are given out below the limit");
        self.segment.pin_row(slot).wipe();
        self.segment.doorbell(slot).reset();
    }

    /// Bytes of memory that the arena takes now.
    pub(crate) fn touched_bytes(&self) -> u64 {
        self.arena.touched_bytes().unwrap_or(0)
    }

    fn close(&self, location: Location, live: &[u16]) -> CloseOutcome {
        let row = |slot: &u16| -> &PinRow {
            let slot = ProcessSlot::new(u32::from(*slot));
            self.segment.pin_row(slot.expect("slots are given out below the limit"))
        };
        // What is being sent to other nodes is pinned in the first row.
        let rows = std::iter::once(&0).chain(live).map(row);
        match self.segment.object(location.slot) {
            Some(word) => word.close(location.slot, Generation(location.generation), rows),
            None => CloseOutcome::Stale,
        }
    }

    fn release(&self, location: Location) {
        self.word(location, |word, generation| word.free(generation));
    }

    fn word(&self, location: Location, act: impl Fn(&hoplo_shm::ObjectSlot, Generation) -> bool) {
        if let Some(word) = self.segment.object(location.slot) {
            act(word, Generation(location.generation));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its writer had freed an object, put another one in its place, and died before it told either. The slot stayed sealed, and each process
    /// that was given it later died of that.
    #[test]
    fn a_slot_that_its_dead_writer_had_used_again_is_free_for_the_next_one() {
        let folder = std::env::temp_dir().join(format!("hoplo-store-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let store = Store::new(1 << 20, folder.join("objects")).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let slot = 256;
        let word = store.segment.object(slot).unwrap();
        let told = word.seal();
        assert_eq!(word.close(slot, told, std::iter::empty()), CloseOutcome::Closed);
        word.free(told);
        word.seal();

        let location = Location { slot, generation: told.0, offset: 0, len: 100 };
        assert_eq!(store.free(location, &[]), FreeOutcome::Vanished);
        store.reset_slots(&[slot]);
        word.seal();
    }
}
