#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

const CELLS: u64 = 64;
const CAPACITY: u64 = CELLS * RangeAllocator::GRANULE;

/// One bool a granule: true is free. The simplest thing that could be right.
struct Naive(Vec<bool>);

impl Naive {
    fn set(&mut self, range: &Range<u64>, free: bool) {
        for cell in range.start / 64..range.end / 64 {
            assert_ne!(self.0[cell as usize], free, "{range:?} twice");
            self.0[cell as usize] = free;
        }
    }

    fn runs(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (cell, _) in self.0.iter().enumerate().filter(|(_, free)| **free) {
            let start = cell as u64 * 64;
            match runs.last_mut() {
                Some(run) if run.end == start => run.end += 64,
                _ => runs.push(start..start + 64),
            }
        }
        runs
    }
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(u64, u32),
    Free(usize),
    Insert(usize),
    Remove(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..1500_u64, 0..10_u32).prop_map(|(len, shift)| Step::Allocate(len, shift)),
        5 => any::<usize>().prop_map(Step::Free),
        1 => any::<usize>().prop_map(Step::Insert),
        1 => any::<usize>().prop_map(Step::Remove),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// EXTENT-1 to EXTENT-4, and best fit, against the naive model.
    #[test]
    fn behaves_like_a_row_of_cells(steps in prop::collection::vec(step(), 1..150)) {
        let mut allocator = RangeAllocator::new(CAPACITY);
        let mut naive = Naive(vec![false; CELLS as usize]);
        let mut allocated: Vec<Range<u64>> = Vec::new();
        // Four extents of a quarter each are granted and given back.
        let mut granted = [false; 4];
        let extent = |which: usize| which as u64 * CAPACITY / 4..(which as u64 + 1) * CAPACITY / 4;
        for step in steps {
            match step {
                Step::Allocate(len, shift) => {
                    let align = 1 << shift;
                    let rounded = len.max(1).next_multiple_of(64);
                    let best = naive.runs().into_iter().filter(|run| {
                        run.start.next_multiple_of(align) + rounded <= run.end
                    }).min_by_key(|run| (run.end - run.start, run.start));
                    let expected = best.map(|run| {
                        let start = run.start.next_multiple_of(align);
                        start..start + rounded
                    });
                    let found = allocator.allocate(len, align);
                    prop_assert_eq!(&found, &expected);
                    if let Some(range) = found {
                        naive.set(&range, false);
                        allocated.push(range);
                    }
                }
                Step::Free(which) if !allocated.is_empty() => {
                    let range = allocated.swap_remove(which % allocated.len());
                    naive.set(&range, true);
                    allocator.free(range);
                }
                Step::Free(_) => {}
                Step::Insert(which) => {
                    let which = which % 4;
                    if !granted[which] {
                        granted[which] = true;
                        naive.set(&extent(which), true);
                        allocator.insert(extent(which));
                    }
                }
                Step::Remove(which) => {
                    let range = extent(which % 4);
                    let whole = naive.runs().iter().any(|run| {
                        run.start <= range.start && range.end <= run.end
                    });
                    prop_assert_eq!(allocator.is_free(&range), whole);
                    prop_assert_eq!(allocator.remove(range.clone()), whole);
                    if whole {
                        granted[which % 4] = false;
                        naive.set(&range, false);
                    }
                }
            }
            allocator.check();
            let runs = naive.runs();
            let longest = runs.iter().map(|run| run.end - run.start).max().unwrap_or(0);
            prop_assert_eq!(allocator.largest_free(), longest);
            prop_assert_eq!(allocator.free_ranges().collect::<Vec<_>>(), runs);
            let granted_bytes = granted.iter().filter(|granted| **granted).count() as u64;
            prop_assert_eq!(allocator.managed_bytes(), granted_bytes * CAPACITY / 4);
        }
    }
}

#[test]
fn a_full_allocator_hands_out_everything_once() {
    let mut allocator = RangeAllocator::full(1000);
    assert_eq!(allocator.largest_free(), 960);
    assert_eq!(allocator.allocate(900, 1), Some(0..960));
    assert_eq!(allocator.allocate(0, 1), None);
    assert_eq!(allocator.allocate(u64::MAX, 1), None);
    allocator.free(0..960);
    assert_eq!(allocator.free_bytes(), 960);
    allocator.check();
}

#[test]
#[should_panic(expected = "EXTENT-2")]
fn a_double_free_is_found() {
    let mut allocator = RangeAllocator::full(4096);
    let first = allocator.allocate(64, 64).unwrap();
    let _second = allocator.allocate(64, 64).unwrap();
    allocator.free(first.clone());
    allocator.free(first);
}

#[test]
#[should_panic(expected = "EXTENT-4")]
fn a_free_of_more_than_is_in_use_is_found() {
    let mut allocator = RangeAllocator::new(4096);
    allocator.free(0..64);
}
