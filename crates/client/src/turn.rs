//! Waiting for work in a main thread that other threads may call back for something else: the event
//! loop of an async actor, which also runs timers, looks at files, and is given callbacks.

use std::time::{Duration, Instant};

use hoplo_shm::{SleepKind, Slept, Urgency};

use crate::Work;
use crate::client::Client;
use crate::ringer::slot_of;
use crate::work::Nudge;

/// How a main thread waits.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// It takes calls; else it waits for nudges alone.
    pub takes: bool,
    /// It was busy with calls just now, so that looking for the next one a moment may pay.
    pub spins: bool,
    pub deadline: Option<Instant>,
}

impl Client {
    /// The next work; `None` when it was nudged, or at the deadline (no GIL).
    pub fn wait_turn(&self, patience: Patience, nudge: &Nudge) -> Option<Work> {
        let bell = self.segment.doorbell(slot_of(self.welcome.process));
        let next = || if patience.takes { self.next_work() } else { None };
        loop {
            let rings = bell.rings();
            if let Some(work) = next() {
                return Some(work);
            }
            if nudge.take() || patience.is_over() {
                return None;
            }
            if patience.spins && patience.is_long() && self.worker.spins.rung(bell, rings) {
                continue;
            }
            let sleeper = bell.prepare(SleepKind::Lenient);
            if let Some(work) = next() {
                return Some(work);
            }
            if nudge.take() {
                return None;
            }
            let left = patience.deadline.map(|at| at.saturating_duration_since(Instant::now()));
            match sleeper.sleep(left) {
                Slept::Interrupted => return Some(Work::Interrupted),
                Slept::Woken | Slept::TimedOut => {}
            }
        }
    }

    /// `wait_turn` ends, or does not wait the next time.
    pub fn nudge(&self, nudge: &Nudge) {
        nudge.set();
        self.own_bell(Urgency::Eager);
    }
}

impl Patience {
    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|at| Instant::now() >= at)
    }

    /// Looking does not make it late.
    fn is_long(&self) -> bool {
        self.deadline.is_none_or(|at| Instant::now() + Duration::from_millis(1) < at)
    }
}
