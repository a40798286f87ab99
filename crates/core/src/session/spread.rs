//! A shape that spreads: its tasks go round all nodes, and the first worker that comes does not take them all.
//!
//! A worker elsewhere is granted some hundred microseconds later than one here, or tens of milliseconds if it has to be
//! made. Small tasks would all be done by then. So work is **held back** from the moment when leases are asked for:
//!
//! ```text
//!  (no hold) --demand is told--> Asking --LeasesComing n--> Coming n --all replied once, and the queue is empty--> (no hold)
//!                                 |  ^--more demand is told----/                                                       ^
//!                                 \------------------- SPREAD_PATIENCE over, or nothing is asked for -------------------/
//! ```
//! - `Asking`: nobody knows how many will come. Each worker gets one task.
//! - `Coming`: room was found for so many leases more. Each worker gets its share of all tasks, counted since the hold
//!   began; those that are still to come have theirs kept for them.
//!   Those that are there and have replied to nothing yet have theirs kept as well: a new worker loads the function first, which
//!   takes longer than hundreds of small tasks.
//! - No hold: each task goes to the worker that got the fewest, of those that have room. So single calls go round, too.
//!
//! When all that were coming are there and more is wanted, the leases of that moment are all that there is (`width`). While
//! there are as many, nobody is waited for.

use hoplo_base::Instant;
use hoplo_base::limits::SPREAD_PATIENCE;

use super::shapes::{Hold, Lease, ShapeState, Spread};
use super::{Effect, SessionMachine};

impl Spread {
    /// Who gets the next task, while so many wait for a worker.
    pub(super) fn next<'a>(&self, leases: &'a mut [Lease], queued: usize) -> Option<&'a mut Lease> {
        let all_done = || leases.iter().all(|lease| lease.in_flight.is_empty());
        if self.hold.is_none() && queued == 1 && all_done() {
            // A new round: who got few in the last one gets no more than one in advance.
            let most = leases.iter().map(|lease| lease.placed).max().unwrap_or(0);
            for lease in leases.iter_mut() {
                lease.placed = lease.placed.max(most.saturating_sub(1));
            }
        }
        let placed: u64 = leases.iter().map(|lease| lease.placed).sum();
        let limit = self.limit(placed + queued as u64, leases.len());
        let open = leases.iter_mut().filter(|lease| lease.has_room() && lease.placed < limit);
        open.min_by_key(|lease| lease.placed)
    }

    /// No worker may have more tasks than that: of `tasks` in all, done and to do, with so many leases there.
    fn limit(&self, tasks: u64, leases: usize) -> u64 {
        match self.hold {
            None => u64::MAX,
            Some(Hold { coming: None, .. }) => 1,
            Some(Hold { coming: Some(coming), .. }) => {
                tasks.div_ceil((leases as u64 + u64::from(coming)).max(1))
            }
        }
    }
}

impl ShapeState {
    /// Whether one more worker would be of use to tasks that are placed behind others.
    pub(super) fn could_be_wider(&self) -> bool {
        let wide = |spread: &Spread| spread.width.is_some_and(|width| self.leases.len() >= width);
        self.spread.as_ref().is_some_and(|spread| !wide(spread))
    }

    /// Leases are asked for, for the first time since nothing was. When the hold ends, if there is one.
    pub(super) fn hold_back(&mut self, now: Instant) -> Option<Instant> {
        if !self.could_be_wider() {
            return None;
        }
        for lease in &mut self.leases {
            lease.placed = lease.in_flight.len() as u64;
        }
        let until = now + SPREAD_PATIENCE;
        self.spread.as_mut()?.hold = Some(Hold { coming: None, until });
        Some(until)
    }

    /// More is asked for: how many will come is told anew.
    pub(super) fn asks_for_more(&mut self) {
        if let Some(hold) = self.spread.as_mut().and_then(|spread| spread.hold.as_mut()) {
            hold.coming = None;
        }
    }

    /// One more lease is there; what it counts as having got.
    pub(super) fn joins_round(&mut self) -> u64 {
        let fewest = self.leases.iter().map(|lease| lease.placed).min();
        let Some(spread) = &mut self.spread else { return 0 };
        let Some(hold) = &mut spread.hold else { return fewest.unwrap_or(0) };
        hold.coming = hold.coming.map(|coming| coming.saturating_sub(1));
        0
    }

    /// Ends the hold if everybody is there and at work and the shares are given, or nothing is asked for, or its time is over.
    pub(super) fn end_hold(&mut self, now: Instant) {
        let Some(spread) = &mut self.spread else { return };
        let Some(hold) = spread.hold else { return };
        let all = hold.coming == Some(0) && self.leases.iter().all(|lease| !lease.cold);
        if all && self.asked > 0 {
            spread.width = (!self.leases.is_empty()).then_some(self.leases.len());
        }
        if all && self.queue.is_empty() || self.asked == 0 || now >= hold.until {
            spread.hold = None;
        }
    }

    /// A task is taken back from that lease: while each has its share, another one takes its place there. Otherwise not: it was taken back
    /// for a worker that is idle, and the one that it comes from, with the fewest, would get it again, and so on for ever.
    pub(super) fn stays_its_share(&mut self, at: usize) {
        if self.keeps_shares() {
            self.leases[at].placed = self.leases[at].placed.saturating_sub(1);
        }
    }

    /// Each worker has its share: nobody takes any of it from another one.
    pub(super) fn keeps_shares(&self) -> bool {
        self.hold_ends().is_some()
    }

    pub(super) fn hold_ends(&self) -> Option<Instant> {
        Some(self.spread.as_ref()?.hold?.until)
    }
}

impl SessionMachine {
    /// Of `wanted` leases room was found for so many; for more there is none now. None of them is granted yet.
    pub(super) fn leases_coming(
        &mut self,
        now: Instant,
        key: u32,
        wanted: u32,
        count: u32,
        effects: &mut Vec<Effect>,
    ) {
        let Some(state) = self.shapes.get_mut(key as usize) else { return };
        if wanted < state.asked {
            return; // more was asked for meanwhile, which will be answered
        }
        let Some(hold) = state.spread.as_mut().and_then(|spread| spread.hold.as_mut()) else {
            return;
        };
        hold.coming = Some(count);
        state.end_hold(now);
        self.pump(now, key, effects);
    }

    pub(super) fn end_holds(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        for key in 0..self.shapes.len() {
            if self.shapes[key].hold_ends().is_some_and(|until| until <= now) {
                self.shapes[key].end_hold(now);
                self.pump(now, key as u32, effects);
            }
        }
    }
}
