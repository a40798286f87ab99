//! Looking for a moment before the carrier sleeps, as those who wait for replies do (`client/src/spin.rs`): to be woken costs more
//! than a call on its way takes. It is given up for a while when it was vain several times in a row.

use std::time::{Duration, Instant};

const SPIN: Duration = Duration::from_micros(40);
const MISSES_MAX: u32 = 4;
const RETRY: u32 = 64;

#[derive(Debug, Default)]
pub(super) struct Spins {
    /// Since the last time that looking was good for something.
    misses: u32,
}

impl Spins {
    /// Whether something came within `SPIN`; false at once if looking has not paid of late.
    pub(super) fn spin(&mut self, mut came: impl FnMut() -> bool) -> bool {
        let looks = self.misses < MISSES_MAX || self.misses.is_multiple_of(RETRY);
        let found = looks && soon(&mut came);
        self.misses = if found { 0 } else { self.misses.wrapping_add(1) };
        found
    }
}

fn soon(came: &mut impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if came() {
            return true;
        }
        if start.elapsed() >= SPIN {
            return false;
        }
        std::thread::yield_now();
    }
}
