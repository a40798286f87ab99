//! Whether a machine is woken again and again for nothing.
//!
//! A machine says when it wants to be woken (`next_deadline`). One that does nothing about a deadline that is due is woken
//! again at once, for ever: it burns its core. Here such ticks are a microsecond apart. What counts is how close they are
//! together: a timer that comes back every few milliseconds is fine, however many of its ticks follow one another.

use std::time::Duration;

use hoplo_base::Instant;

/// Ticks of one process since anything else happened to it, and when the first of them came.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spins {
    ticks: u32,
    since: Instant,
}

/// More ticks than this with nothing between, so close together, are none that anybody needs.
const TICKS_MAX: u32 = 100;
const WITHIN: Duration = Duration::from_millis(100);

impl Spins {
    /// It was woken.
    pub fn tick(&mut self, now: Instant) {
        if self.ticks == 0 || now.since(self.since) > WITHIN {
            *self = Self { ticks: 0, since: now };
        }
        self.ticks += 1;
    }

    /// Something else came: what it was woken for may be an answer to that.
    pub fn ends(&mut self) {
        self.ticks = 0;
    }

    pub fn is_too_many(&self) -> bool {
        self.ticks > TICKS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(many: u32, every: Duration) -> Spins {
        let mut spins = Spins::default();
        (0..many).for_each(|n| spins.tick(Instant(1) + every * n));
        spins
    }

    #[test]
    fn a_timer_of_a_few_milliseconds_was_called_a_spin_where_nothing_else_came() {
        // A session's end is looked for every 300 / 64 ms; its chain stands still, and each heartbeat falls on another timer.
        assert!(!ticks(10_000, Duration::from_micros(4687)).is_too_many());
    }

    #[test]
    fn a_deadline_that_stays_due_is_a_spin() {
        assert!(!ticks(TICKS_MAX, Duration::from_micros(1)).is_too_many());
        assert!(ticks(TICKS_MAX + 1, Duration::from_micros(1)).is_too_many());
        // One that is put off, but for no good.
        assert!(ticks(TICKS_MAX + 1, Duration::from_micros(900)).is_too_many());
    }

    #[test]
    fn what_comes_between_ends_a_spin() {
        let mut spins = ticks(TICKS_MAX, Duration::from_micros(1));
        spins.ends();
        spins.tick(Instant(1000));
        assert!(!spins.is_too_many());
    }
}
