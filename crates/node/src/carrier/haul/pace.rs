//! How fast what comes here is relayed to one node, beside how fast it comes.

use hoplo_base::limits::{BULK_CHUNK_BYTES, LAG_BYTES_MIN, LAG_PART};

/// Of one relay. Both are counted over the same time: since that node was last sent all there was, or since the last look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// So much was here then.
    came: u64,
    /// And up to there it had been sent.
    went: u64,
    told: bool,
}

impl Pace {
    pub(super) fn new(came: u64, went: u64) -> Self {
        Self { came, went, told: false }
    }

    /// Up to where it has come, and been sent, of so many bytes. True once: less than half of what came went.
    ///
    /// Who is sent all there is keeps up. Who came late, and is sent what was there before, goes as fast as it comes or faster.
    /// What its socket took counts as sent. So the kernel, which takes some megabytes, hides a slow link for as long as these last, and hides what no
    /// node is slow for: a connection that is being made, a process that gets no core for a moment.
    pub(super) fn lags(&mut self, came: u64, went: u64, len: u64) -> bool {
        if self.told {
            return false;
        }
        if came.saturating_sub(went) <= BULK_CHUNK_BYTES as u64 {
            *self = Self::new(came, went);
            return false;
        }
        let (comes, goes) = (came - self.came, went - self.went);
        if comes < LAG_BYTES_MIN.max(len / LAG_PART) {
            return false;
        }
        *self = Self { came, went, told: goes < comes / 2 };
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 8_000_000;
    const STEP: u64 = 100_000;

    /// What is here when it lags, if ever: of each step that comes, so much goes. So much was here at the beginning.
    fn when_it_lags(before: u64, goes: u64) -> Option<u64> {
        let mut pace = Pace::new(before, 0);
        let (mut came, mut went) = (before, 0);
        while came < LEN {
            came += STEP;
            went = (went + goes).min(came);
            if pace.lags(came, went, LEN) {
                assert!(!pace.lags(LEN, went, LEN), "it is told once");
                return Some(came);
            }
        }
        None
    }

    #[test]
    fn who_is_sent_less_than_half_of_what_comes_lags() {
        let soon = when_it_lags(0, STEP / 4).expect("it lags");
        assert!(soon <= LAG_BYTES_MIN + 5 * STEP, "{soon}");
        assert_eq!(when_it_lags(0, STEP / 2), None);
    }

    #[test]
    fn who_keeps_up_and_is_slow_then_lags_as_soon() {
        let mut pace = Pace::new(0, 0);
        for came in (0..LEN / 2).step_by(STEP as usize) {
            assert!(!pace.lags(came, came, LEN));
        }
        let (came, went) = (LEN / 2 + LAG_BYTES_MIN, LEN / 2);
        assert!(pace.lags(came, went, LEN));
    }

    #[test]
    fn who_comes_late_and_goes_as_fast_as_it_comes_does_not_lag() {
        assert_eq!(when_it_lags(LEN / 2, STEP), None);
    }

    #[test]
    fn who_stood_still_and_goes_on_does_not_lag() {
        let mut pace = Pace::new(0, 0);
        let (mut came, mut went) = (LAG_BYTES_MIN / 2, 0);
        while came < LEN {
            assert!(!pace.lags(came, went, LEN), "{came}");
            (came, went) = (came + STEP, went + STEP);
        }
    }

    #[test]
    fn a_small_object_is_there_before_anybody_lags() {
        let mut pace = Pace::new(0, 0);
        assert!(!pace.lags(LAG_BYTES_MIN - 1, 0, LAG_BYTES_MIN - 1));
    }
}
