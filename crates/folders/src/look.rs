//! Waiting for what another process does to a lock or a socket: the kernel does not tell us, so we look again and again.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Looks until `look` breaks, at least once, and for at most `patience`: then what the last look saw.
pub(crate) fn look_for<T, Seen>(
    patience: Duration,
    mut look: impl FnMut() -> ControlFlow<T, Seen>,
) -> ControlFlow<T, Seen> {
    let until = Instant::now() + patience;
    loop {
        let seen = look();
        if seen.is_break() || Instant::now() >= until {
            return seen;
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_look_that_breaks_is_the_last() {
        let mut looks = 0;
        let found = look_for(Duration::from_secs(60), || {
            looks += 1;
            if looks == 3 { ControlFlow::Break("there") } else { ControlFlow::Continue(()) }
        });
        assert_eq!((found, looks), (ControlFlow::Break("there"), 3));
    }

    #[test]
    fn without_patience_there_is_one_look() {
        let mut looks = 0;
        let found: ControlFlow<(), _> = look_for(Duration::ZERO, || {
            looks += 1;
            ControlFlow::Continue(looks)
        });
        assert_eq!((found, looks), (ControlFlow::Continue(1), 1));
    }
}
