//! Which GPU ids a lease gets: whole GPUs are exclusive, fractions share one id.

use hoplo_base::resources::PARTS;

/// Free parts of each GPU, by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gpus {
    free: Vec<u64>,
}

impl Gpus {
    pub(crate) fn new(count: usize) -> Self {
        Self { free: vec![PARTS; count] }
    }

    /// Whether an empty node could give so many parts.
    pub(crate) fn could_take(&self, parts: u64) -> bool {
        parts.div_ceil(PARTS) <= self.free.len() as u64
    }

    pub(crate) fn can_take(&self, parts: u64) -> bool {
        if parts >= PARTS {
            let whole = self.free.iter().filter(|free| **free == PARTS).count() as u64;
            parts.div_ceil(PARTS) <= whole
        } else {
            parts == 0 || self.free.iter().any(|free| *free >= parts)
        }
    }

    /// The ids that give `parts` now; the caller has checked `can_take`. A fraction goes where
    /// least is left over, so that whole GPUs stay whole.
    pub(crate) fn take(&mut self, parts: u64) -> Vec<u32> {
        assert!(self.can_take(parts), "the caller checked that {parts} parts of a GPU are free");
        let ids: Vec<usize> = if parts >= PARTS {
            let whole = (0..self.free.len()).filter(|id| self.free[*id] == PARTS);
            whole.take(parts.div_ceil(PARTS) as usize).collect()
        } else if parts > 0 {
            let enough = (0..self.free.len()).filter(|id| self.free[*id] >= parts);
            enough.min_by_key(|id| self.free[*id]).into_iter().collect()
        } else {
            Vec::new()
        };
        for id in &ids {
            self.free[*id] -= parts.min(PARTS);
        }
        ids.into_iter().map(|id| id as u32).collect()
    }

    pub(crate) fn give(&mut self, ids: &[u32], parts: u64) {
        for id in ids {
            let free = &mut self.free[*id as usize];
            *free += parts.min(PARTS);
            assert!(*free <= PARTS, "GPU {id} was given back twice");
        }
    }

    /// Parts that are taken, over all ids.
    pub(crate) fn taken(&self) -> u64 {
        self.free.iter().map(|free| PARTS - free).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_gpus_are_exclusive_and_fractions_fill_up_one() {
        let mut gpus = Gpus::new(2);
        assert_eq!(gpus.take(PARTS / 2), [0]);
        assert_eq!(gpus.take(PARTS / 4), [0]);
        assert!(!gpus.can_take(2 * PARTS) && gpus.could_take(2 * PARTS));
        assert_eq!(gpus.take(PARTS), [1]);
        assert!(!gpus.can_take(PARTS / 2) && gpus.can_take(PARTS / 4));
        gpus.give(&[0], PARTS / 2);
        gpus.give(&[0], PARTS / 4);
        gpus.give(&[1], PARTS);
        assert_eq!(gpus.take(2 * PARTS), [0, 1]);
        assert_eq!(gpus.taken(), 2 * PARTS);
        assert!(!gpus.could_take(3 * PARTS));
        assert_eq!(Gpus::new(0).take(0), [0u32; 0]);
    }
}
