//! Looking for a moment before one sleeps.
//!
//! To be woken on another core costs an interrupt to a halted processor, 40 us where this was measured;
//! a call and its reply take 3. So who waits for one reply, or for the next call, looks at its bell for about
//! that long first, and yields meanwhile, so that it takes no time from who has work.
//!
//! That is wasted when what it waits for takes longer, or when other processes keep the one that would answer
//! from running: then the sleep would have given it this very processor, 50 us earlier. So looking is given up
//! for a while when it has failed `MISSES_MAX` times in a row:
//!
//! ```text
//!   looks <--rung-------------------------------- looks once in a while
//!     \--MISSES_MAX misses in a row--> sleeps --RETRY waits later--^
//! ```

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hoplo_shm::Doorbell;

/// Looking costs no more than the wake-up that it may save.
const SPIN: Duration = Duration::from_micros(50);
/// Looks at the bell between two looks at the clock; well under a microsecond.
const LOOKS: u32 = 16;
const MISSES_MAX: u32 = 4;
const RETRY: u32 = 64;

/// How looking went of late, for threads that wait for the same kind of thing. (They may count over one
/// another: nothing but speed depends on it.)
#[derive(Debug, Default)]
pub(crate) struct Spins {
    /// Waits since the last one that looking was good for.
    misses: AtomicU32,
}

/// Whether the bell rings within `SPIN`, counted from when it had rung `rings` times. False at once if
/// looking has not paid of late.
pub(crate) fn spin(bell: &Doorbell, rings: u32, spins: &Spins) -> bool {
    let misses = spins.misses.load(Ordering::Relaxed);
    let looks = misses < MISSES_MAX || misses.is_multiple_of(RETRY);
    let rung = looks && rings_soon(bell, rings);
    spins.misses.store(if rung { 0 } else { misses.wrapping_add(1) }, Ordering::Relaxed);
    rung
}

fn rings_soon(bell: &Doorbell, rings: u32) -> bool {
    let start = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if bell.rings() != rings {
                return true;
            }
            std::hint::spin_loop();
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
    use hoplo_shm::Urgency;

    #[test]
    fn looking_is_given_up_when_it_fails_and_tried_again_later() {
        let (bell, spins) = (Doorbell::new(), Spins::default());
        let rung_before = |spins: &Spins| spin(&bell, bell.rings().wrapping_sub(1), spins);
        for _ in 0..MISSES_MAX {
            assert!(!spin(&bell, bell.rings(), &spins));
        }
        bell.ring(Urgency::Lazy);
        for _ in MISSES_MAX..RETRY {
            assert!(!rung_before(&spins), "it does not look");
        }
        assert!(rung_before(&spins), "it looks again");
        assert!(rung_before(&spins), "and goes on, since it paid");
    }
}
