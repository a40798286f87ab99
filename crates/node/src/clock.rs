//! Time.

use hoplo_base::Instant;

/// CLOCK_MONOTONIC, which all processes of the machine share.
pub(crate) fn clock() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Instant(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
