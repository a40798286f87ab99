//! Looking for a moment before one sleeps.
//!
//! To be woken on another core costs an interrupt to a halted processor: 10 us on a good day, 70 us on a bad one, where this was
//! measured. A call and its reply take 3 us in a node, and 35 us between two. So who waits for one reply, for the next call, or for what
//! a connection brings, looks for a moment first, and yields meanwhile, so that it takes no time from who has work.
//!
//! **For how long?** As long as a call to another node takes if all six who pass it on are asleep, and not only as long as one
//! wake-up. Those who look for less all miss, give up, and keep each other asleep: with 50 us such a call took 400 us on a bad day. With
//! 200 us it took 120, since who looks is there for the next one. 300 us gained nothing more.
//!
//! It is wasted when what is waited for takes longer, or when other processes keep the one that would answer
//! from running. So looking is given up for a while when it has failed `MISSES_MAX` times in a row:
//!
//! ```text
//!   looks <--came-------------------------------- looks once in a while
//!     \--MISSES_MAX misses in a row--> sleeps --RETRY waits later--^
//! ```

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::Doorbell;

const SPIN: Duration = Duration::from_micros(200);
/// Looks at the bell between two looks at the clock; well under a microsecond.
const LOOKS: u32 = 16;
const MISSES_MAX: u32 = 4;
const RETRY: u32 = 64;

/// How looking went of late, for threads that wait for the same kind of thing. (They may count over one
/// another: nothing but speed depends on it.)
#[derive(Debug, Default)]
pub struct Spins {
    /// Waits since the last one that looking was good for.
    misses: AtomicU32,
}

impl Spins {
    /// Whether the bell rings in a moment, counted from when it had rung `rings` times. False at once if looking has not
    /// paid of late.
    pub fn rung(&self, bell: &Doorbell, rings: u32) -> bool {
        self.spin(|| {
            (0..LOOKS).any(|_| {
                std::hint::spin_loop();
                bell.rings() != rings
            })
        })
    }

    /// The same of anything that may come.
    pub fn spin(&self, came: impl FnMut() -> bool) -> bool {
        let misses = self.misses.load(Ordering::Relaxed);
        let looks = misses < MISSES_MAX || misses.is_multiple_of(RETRY);
        let found = looks && soon(came);
        self.misses.store(if found { 0 } else { misses.wrapping_add(1) }, Ordering::Relaxed);
        found
    }
}

fn soon(mut came: impl FnMut() -> bool) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_is_given_up_when_it_fails_and_tried_again_later() {
        let spins = Spins::default();
        for _ in 0..MISSES_MAX {
            assert!(!spins.spin(|| false));
        }
        for _ in MISSES_MAX..RETRY {
            assert!(!spins.spin(|| true), "it does not look");
        }
        assert!(spins.spin(|| true), "it looks again");
        assert!(spins.spin(|| true), "and goes on, since it paid");
    }

    #[test]
    fn a_bell_that_has_rung_is_seen() {
        let (bell, spins) = (Doorbell::new(), Spins::default());
        let before = bell.rings();
        assert!(!spins.rung(&bell, before));
        bell.ring(crate::Urgency::Lazy);
        assert!(spins.rung(&bell, before));
    }
}
