//! Places in the metadata segment. A free one is used again as late as possible.

use std::collections::VecDeque;

use hoplo_base::ProcessId;
use hoplo_base::limits::PROCESSES_MAX;

#[derive(Debug)]
pub(super) struct Slots {
    owners: Vec<Option<ProcessId>>,
    /// Given back, longest ago first.
    free: VecDeque<u16>,
    /// The first that was never taken.
    fresh: u16,
    taken: Vec<u16>,
    /// So many rest before one is taken again.
    resting: usize,
}

impl Slots {
    pub(super) fn new(resting: usize) -> Self {
        Self {
            owners: vec![None; PROCESSES_MAX],
            free: VecDeque::new(),
            // Slot 0 is the daemon's.
            fresh: 1,
            taken: Vec::new(),
            resting,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        usize::from(self.fresh) < self.owners.len() || !self.free.is_empty()
    }

    pub(super) fn take(&mut self, process: impl FnOnce(u16) -> ProcessId) -> Option<ProcessId> {
        let rested = self.free.len() > self.resting;
        let slot = if !rested && usize::from(self.fresh) < self.owners.len() {
            self.fresh += 1;
            self.fresh - 1
        } else {
            self.free.pop_front()?
        };
        let process = process(slot);
        self.owners[usize::from(slot)] = Some(process);
        self.taken.push(slot);
        Some(process)
    }

    pub(super) fn give_back(&mut self, slot: u16) {
        let owner = self.owners[usize::from(slot)].take();
        assert!(owner.is_some(), "NODE-1: slot {slot} is given back twice");
        self.free.push_back(slot);
        self.taken.retain(|taken| *taken != slot);
    }

    pub(super) fn owner(&self, slot: u16) -> Option<ProcessId> {
        self.owners[usize::from(slot)]
    }

    pub(super) fn taken(&self) -> &[u16] {
        &self.taken
    }
}
