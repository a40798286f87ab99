//! Whether this node is full: neither its memory nor its disk has room for what is put here.
//!
//! Other nodes hear it with the load, and nothing is placed here that may run elsewhere. Otherwise a node whose tasks fail at once
//! would be free at once, and get ever more of them.
//!
//! It begins when room is denied. A denial says nothing of what others want if the object is larger than half of the memory, and an eighth of that is free.
//! It ends when as much as was denied, of all denials the least, was granted since, or came free in one piece of memory or on the disk. It ends as well
//! `FULL_FORGOTTEN` after the last denial: nobody tells us when the disk has room that others had taken.

use hoplo_base::Instant;
use hoplo_base::limits::FULL_FORGOTTEN;

use super::ObjectDirectory;
use super::config::PAGE;
use super::on_move::MoveKind;

#[derive(Debug)]
pub(super) struct Full {
    /// Of all that was denied, the least.
    bytes: u64,
    /// When something was denied last.
    at: Instant,
    /// What was on the disk since, at most.
    on_disk: u64,
}

impl ObjectDirectory {
    pub fn is_full(&self) -> bool {
        self.full.is_some()
    }

    pub(super) fn was_denied(&mut self, bytes: u64) {
        let is_huge = bytes > self.config.capacity_bytes / 2;
        if bytes > self.config.capacity_bytes
            || is_huge && self.memory.longest_free() >= self.much()
        {
            return;
        }
        let least = self.full.as_ref().map_or(bytes, |full| full.bytes.min(bytes));
        self.full = Some(Full { bytes: least, at: self.now, on_disk: self.on_disk() });
    }

    pub(super) fn was_granted(&mut self, bytes: u64) {
        if self.full.as_ref().is_some_and(|full| bytes >= full.bytes) {
            self.full = None;
        }
    }

    /// After each event.
    pub(super) fn look_whether_full(&mut self) {
        let Some(Full { bytes, at, on_disk }) = self.full else { return };
        let now_on_disk = self.on_disk();
        let ends = self.memory.longest_free() >= bytes.max(self.much())
            || now_on_disk + bytes <= on_disk
            || at + FULL_FORGOTTEN <= self.now;
        let on_disk = on_disk.max(now_on_disk);
        self.full = (!ends).then_some(Full { bytes, at, on_disk });
    }

    pub(super) fn full_ends(&self) -> Option<Instant> {
        self.full.as_ref().map(|full| full.at + FULL_FORGOTTEN)
    }

    /// Of memory.
    fn much(&self) -> u64 {
        self.config.capacity_bytes / 8
    }

    /// Without what may yet turn out to find no room there.
    fn on_disk(&self) -> u64 {
        let spills = self.moves.values().filter_map(|moving| match &moving.kind {
            MoveKind::Spill { place, .. } => Some(place.len),
            MoveKind::Free { .. }
            | MoveKind::Evict { .. }
            | MoveKind::Restore { .. }
            | MoveKind::Close { .. } => None,
        });
        let reserves = self.reserves.values().map(|reserve| reserve.place.len);
        let open = spills.chain(reserves).map(|len| len.next_multiple_of(PAGE));
        self.disk.taken_bytes() - open.sum::<u64>()
    }
}
