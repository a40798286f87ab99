//! Which GPU ids a lease gets: whole GPUs are exclusive, fractions share one id.

use hoplo_base::resources::PARTS;

/// Free parts of each GPU, by id: of a node, or of one bundle of a placement group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gpus {
    free: Vec<u64>,
    /// What there is of each when nobody has any.
    whole: Vec<u64>,
}

impl Gpus {
    pub(crate) fn new(count: usize) -> Self {
        Self { free: vec![PARTS; count], whole: vec![PARTS; count] }
    }

    /// What was taken of a node's, to be given out again.
    pub(crate) fn part(ids: &[u32], parts: u64) -> Self {
        let mut whole = vec![0; ids.iter().max().map_or(0, |last| *last as usize + 1)];
        for id in ids {
            whole[*id as usize] = parts.min(PARTS);
        }
        Self { free: whole.clone(), whole }
    }

    /// Whether it could give so many parts when nobody has any.
    pub(crate) fn could_take(&self, parts: u64) -> bool {
        fits(&self.whole, parts)
    }

    pub(crate) fn can_take(&self, parts: u64) -> bool {
        fits(&self.free, parts)
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
            assert!(*free <= self.whole[*id as usize], "GPU {id} was given back twice");
        }
    }

    /// Parts that are taken, over all ids.
    pub(crate) fn taken(&self) -> u64 {
        self.whole.iter().zip(&self.free).map(|(whole, free)| whole - free).sum()
    }
}

fn fits(free: &[u64], parts: u64) -> bool {
    if parts >= PARTS {
        let whole = free.iter().filter(|free| **free == PARTS).count() as u64;
        parts.div_ceil(PARTS) <= whole
    } else {
        parts == 0 || free.iter().any(|free| *free >= parts)
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

    #[test]
    fn a_part_gives_out_its_own_gpus_and_no_others() {
        let mut two = Gpus::part(&[1, 3], 2 * PARTS);
        assert!(two.could_take(2 * PARTS) && !two.could_take(3 * PARTS));
        assert_eq!((two.take(PARTS), two.take(PARTS)), (vec![1], vec![3]));
        assert!(!two.can_take(1));
        two.give(&[3], PARTS);
        assert_eq!(two.taken(), PARTS);
        let mut half = Gpus::part(&[2], PARTS / 2);
        assert!(!half.could_take(PARTS) && half.could_take(PARTS / 2));
        assert_eq!(half.take(PARTS / 4), [2]);
    }
}
