//! Looking for a moment before the carrier sleeps, as those who wait for replies do (`client/src/spin.rs`): to be woken costs more
//! than a call on its way takes. It is given up for a while when it was vain several times in a row.

use std::time::{Duration, Instant};

/// For replies,
pub(super) const FOR_REPLIES: Duration = Duration::from_micros(40);
/// and for the next piece of an object: the other node seals and sends one in 100 us.
pub(super) const FOR_PIECES: Duration = Duration::from_micros(200);
const MISSES_MAX: u32 = 4;
const RETRY: u32 = 64;

#[derive(Debug)]
pub(super) struct Spins {
    most: Duration,
    /// Since the last time that looking was good for something.
    misses: u32,
}

impl Spins {
    pub(super) fn new(most: Duration) -> Self {
        Self { most, misses: 0 }
    }

    /// Whether something came in time; false at once if looking has not paid of late.
    pub(super) fn spin(&mut self, mut came: impl FnMut() -> bool) -> bool {
        let looks = self.misses < MISSES_MAX || self.misses.is_multiple_of(RETRY);
        let found = looks && soon(self.most, &mut came);
        self.misses = if found { 0 } else { self.misses.wrapping_add(1) };
        found
    }
}

fn soon(most: Duration, came: &mut impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if came() {
            return true;
        }
        if start.elapsed() >= most {
            return false;
        }
        std::thread::yield_now();
    }
}
