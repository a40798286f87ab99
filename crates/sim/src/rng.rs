//! The one source of chance: a seed gives everything.

use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x5851_f42d_4c95_7f2d)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to and without `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0);
        self.next() % end
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Mostly short, now and then up to `max`.
    pub fn delay(&mut self, max: Duration) -> Duration {
        let max = (max.as_nanos() as u64).max(2);
        let spread = if self.one_in(8) { max } else { max / 16 + 1 };
        Duration::from_nanos(1 + self.below(spread))
    }
}
