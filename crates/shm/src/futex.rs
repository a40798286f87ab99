//! Sleep on, and wake, a 32-bit word that several processes share.
//!
//! The thin skin over `FUTEX_WAIT_BITSET` and `FUTEX_WAKE_BITSET`, never the PRIVATE kind: the
//! kernel finds a sleeper by the page behind the address, so that two mappings of one file meet.
//!
//! # Invariants
//! - FUTEX-1: `wait` sleeps only if the word still holds `expected`; the kernel compares under the
//!   lock that `wake` takes, so that a change followed by a wake is never missed.
//! - FUTEX-2: a wake reaches those sleepers whose `bits` share a bit with its own.

use core::num::NonZeroU32;
use core::sync::atomic::AtomicU32;
use core::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// How a wait ended. Only a hint: the caller looks at its condition again in each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A wake reached us (or, rarely, a stray one).
    Woken,
    /// The timeout passed.
    TimedOut,
    /// A signal handler ran in this thread.
    Interrupted,
    /// The word did not hold the expected value; we did not sleep.
    Changed,
}

/// Sleeps while `word` holds `expected`, for at most `timeout` (`None`: for ever).
pub fn wait(word: &AtomicU32, expected: u32, bits: NonZeroU32, timeout: Option<Duration>) -> Wait {
    let deadline = timeout.and_then(deadline_after);
    match futex::wait_bitset(word, futex::Flags::empty(), expected, deadline.as_ref(), bits) {
        Ok(()) => Wait::Woken,
        Err(Errno::AGAIN) => Wait::Changed,
        Err(Errno::TIMEDOUT) => Wait::TimedOut,
        Err(Errno::INTR) => Wait::Interrupted,
        Err(errno) => panic!("futex wait on a valid word failed: {errno}"),
    }
}

/// Wakes at most `count` sleepers whose bits meet `bits`; returns how many.
pub fn wake(word: &AtomicU32, bits: NonZeroU32, count: u32) -> usize {
    let count = count.min(i32::MAX as u32);
    match futex::wake_bitset(word, futex::Flags::empty(), count, bits) {
        Ok(woken) => woken,
        Err(errno) => panic!("futex wake of a valid word failed: {errno}"),
    }
}

/// The bitset calls take a point on the monotonic clock; `None` (for ever) if it lies beyond it.
fn deadline_after(timeout: Duration) -> Option<Timespec> {
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).ok()?,
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    clock_gettime(ClockId::Monotonic).checked_add(timeout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering;

    const BITS: NonZeroU32 = NonZeroU32::MIN;

    #[test]
    fn a_changed_word_does_not_sleep() {
        let word = AtomicU32::new(7);
        assert_eq!(wait(&word, 6, BITS, None), Wait::Changed);
    }

    #[test]
    fn a_timeout_ends_the_sleep() {
        let word = AtomicU32::new(7);
        assert_eq!(wait(&word, 7, BITS, Some(Duration::from_millis(1))), Wait::TimedOut);
        assert_eq!(wait(&word, 7, BITS, Some(Duration::ZERO)), Wait::TimedOut);
    }

    #[test]
    fn an_endless_timeout_is_for_ever() {
        assert_eq!(deadline_after(Duration::MAX), None);
    }

    #[test]
    fn a_wake_reaches_only_sleepers_of_its_bits() {
        let word = AtomicU32::new(0);
        let other = NonZeroU32::new(2).unwrap();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                while word.load(Ordering::Acquire) == 0 {
                    wait(&word, 0, BITS, None);
                }
            });
            // The word does not change, so that only a matching wake can return 1.
            loop {
                assert_eq!(wake(&word, other, u32::MAX), 0);
                if wake(&word, BITS, u32::MAX) == 1 {
                    break;
                }
                std::thread::yield_now();
            }
            word.store(1, Ordering::Release);
            while !sleeper.is_finished() {
                wake(&word, BITS, u32::MAX);
                std::thread::yield_now();
            }
        });
    }
}
