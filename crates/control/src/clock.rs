//! The time of day: for people, and for numbers that have to be later than all before them.

use std::time::{Duration, SystemTime};

/// No time at all if the clock is before that.
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

pub(crate) fn micros_since_1970() -> u64 {
    as_micros(since_1970())
}

pub(crate) fn as_micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
